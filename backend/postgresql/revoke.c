/* revoke: ends holders by name, of any mount; see schema.sql for guards.
 *
 * Without a token it first reads the holders, and then ends exactly these: so a late or repeated call never ends a
 * later holder.  The request completes when every other mount that had a holder has confirmed its end, or after
 * REVOKE_HEARD_MAX, if a mount is stopped or cut off.
 */
#include <string.h>

#include "backend/postgresql/private.h"

#define REVOKE_HEARD_MAX 1.0 /* s */

struct pq_revocation {
    LIST_ENTRY(pq_revocation) link; /* p->revocations */
    struct postgresql *p;
    struct remote_request *request;
    char number[24];
    int64_t unheard; /* mounts that have not confirmed yet; confirmations before the answer make it negative */
    bool answered;
    GPtrArray *ends; /* ids of the holders to end */
    clock_ms until;
    enum backend_result result;
    ev_timer limit;
};

static void revoke_free(struct pq_revocation *v)
{
    LIST_REMOVE(v, link);
    ev_timer_stop(v->p->remote.loop, &v->limit);
    g_ptr_array_unref(v->ends);
    g_free(v);
}

void pq_revoke_end_all(struct postgresql *p)
{
    while (!LIST_EMPTY(&p->revocations)) {
        revoke_free(LIST_FIRST(&p->revocations));
    }
}

static void revoke_complete(struct pq_revocation *v)
{
    struct remote_request *request = v->request;
    enum backend_result result = v->result;
    revoke_free(v);
    remote_request_answer(request, result, clock_now());
}

static void revoke_complete_if_heard(struct pq_revocation *v)
{
    if (v->answered && v->unheard <= 0) {
        revoke_complete(v);
    }
}

static void revoke_on_limit(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    revoke_complete(timer->data);
}

enum backend_end pq_end(const char *why)
{
    return strcmp(why, "broken") == 0     ? BACKEND_BROKEN
           : strcmp(why, "released") == 0 ? BACKEND_RELEASED
           : strcmp(why, "expired") == 0  ? BACKEND_EXPIRED
                                          : BACKEND_LOST;
}

static void revoke_on_said(void *arg, const struct pq_answer *answer)
{
    (void)arg, (void)answer;
}

void pq_revoke_on_confirm_request(struct postgresql *p, const char *mount, const char *number)
{
    struct pq_parameters f = {.count = 0};
    pq_add_text(&f, mount);
    pq_add_text(&f, number);
    postgresql_send(p, PQ_HEARD, &f, 0, revoke_on_said, NULL);
}

void pq_revoke_on_confirmed(struct postgresql *p, const char *number)
{
    struct pq_revocation *v = LIST_FIRST(&p->revocations);
    while (v && strcmp(v->number, number) != 0) {
        v = LIST_NEXT(v, link);
    }
    if (v) {
        v->unheard--;
        revoke_complete_if_heard(v);
    }
}

static void revoke_note_ends(struct pq_revocation *v, const PGresult *rows)
{
    for (int i = 0; i < PQntuples(rows); i++) {
        if (*pq_text(rows, i, "id")) {
            g_ptr_array_add(v->ends, g_strdup(pq_text(rows, i, "id")));
        }
    }
}

static void revoke_on_revoked(void *arg, const struct pq_answer *given)
{
    struct pq_revocation *v = arg;
    struct remote *r = &v->p->remote;
    v->result = pq_result(given, "result");
    v->answered = true;
    if (v->result == BACKEND_OK) {
        revoke_note_ends(v, given->rows);
        v->unheard += pq_number(given->rows, 0, "others");
        for (guint i = 0; i < v->ends->len; i++) {
            struct remote_ticket *t = remote_ticket_find(r, v->ends->pdata[i]);
            if (t && strcmp(remote_ticket_name(t), v->request->name) == 0) {
                remote_on_event(r, t->id, REMOTE_ENDED, v->request->fence ? BACKEND_RELEASED : BACKEND_BROKEN);
            }
        }
        ev_timer_start(r->loop, &v->limit);
    } else {
        v->unheard = 0;
    }
    revoke_complete_if_heard(v);
}

static void revoke_fill(struct pq_parameters *f, const struct pq_revocation *v)
{
    const struct backend_match *match = v->request->match;
    pq_add_text(f, v->p->mount);
    pq_add_text(f, v->number);
    if (match && *match->text) {
        pq_add_number(f, match->word);
        pq_add_text(f, match->text);
    } else {
        pq_add_null(f);
        pq_add_null(f);
    }
    pq_add_flag(f, match);
}

static void revoke_on_found(void *arg, const struct pq_answer *given)
{
    struct pq_revocation *v = arg;
    struct pq_parameters f = {.count = 0};
    v->result = pq_result(given, "result");
    if (v->result != BACKEND_OK) {
        revoke_complete(v);
        return;
    }
    revoke_note_ends(v, given->rows);
    GBytes *path = pq_bytes(given->rows, 0, "path", POSTGRESQL_CONTENT_MAX);
    pq_add_bytes(&f, path);
    g_bytes_unref(path);
    pq_add_texts(&f, (const char *const *)v->ends->pdata, v->ends->len);
    pq_add_text(&f, "broken");
    revoke_fill(&f, v);
    postgresql_send(v->p, PQ_REVOKE, &f, MAX(v->until - clock_now(), 1), revoke_on_revoked, v);
}

void pq_revoke(struct remote_request *request)
{
    struct postgresql *p = postgresql_of(request);
    struct pq_revocation *v = g_new0(struct pq_revocation, 1);
    struct pq_parameters f = {.count = 0};
    v->p = p;
    v->request = request;
    g_snprintf(v->number, sizeof v->number, "%" G_GUINT64_FORMAT, request->serial);
    v->ends = g_ptr_array_new_with_free_func(g_free);
    v->until = clock_now() + pq_link_timeout(p->link);
    ev_timer_init(&v->limit, revoke_on_limit, REVOKE_HEARD_MAX, 0);
    v->limit.data = v;
    LIST_INSERT_HEAD(&p->revocations, v, link);
    pq_add_name(&f, request->name);
    pq_add_nonzero(&f, request->fence);
    if (request->fence) {
        revoke_fill(&f, v);
        postgresql_send(p, PQ_REVOKE_TOKEN, &f, 0, revoke_on_revoked, v);
    } else {
        postgresql_send(p, PQ_HOLDERS, &f, 0, revoke_on_found, v);
    }
}
