/* revoke: ends holders by name, of any mount; see schema.sql for guards.
 *
 * Without a token it first reads the holders, and then ends exactly these: so a late or repeated call never ends a
 * later holder.
 */
#include <string.h>

#include "backend/postgresql/private.h"

static void revoke_on_said(void *arg, const struct pq_answer *answer)
{
    (void)arg, (void)answer;
}

void pq_revoke_on_confirm_request(struct postgresql *p, const char *mount, const char *number)
{
    struct pq_parameters f = {.count = 0};
    pq_add_text(&f, mount);
    pq_add_text(&f, number);
    postgresql_send(p, PQ_CONFIRM_ENDS, &f, 0, revoke_on_said, NULL);
}

static void revoke_note_ends(struct remote_revocation *v, const PGresult *rows)
{
    for (int i = 0; i < PQntuples(rows); i++) {
        if (*pq_text(rows, i, "id")) {
            remote_revocation_add(v, pq_text(rows, i, "id"));
        }
    }
}

static void revoke_on_revoked(void *arg, const struct pq_answer *given)
{
    struct remote_revocation *v = arg;
    enum backend_result result = pq_result(given, "result");
    if (result == BACKEND_OK) {
        revoke_note_ends(v, given->rows);
        remote_revocation_wait(v, pq_number(given->rows, 0, "others"));
    } else {
        remote_revocation_complete(v, result);
    }
}

static void revoke_fill(struct pq_parameters *f, const struct remote_request *request)
{
    const struct backend_match *match = request->match;
    pq_add_text(f, postgresql_of(request)->mount);
    pq_add_number(f, (int64_t)request->serial);
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
    struct remote_revocation *v = arg;
    struct pq_parameters f = {.count = 0};
    enum backend_result result = pq_result(given, "result");
    if (result != BACKEND_OK) {
        remote_revocation_complete(v, result);
        return;
    }
    revoke_note_ends(v, given->rows);
    GBytes *path = pq_bytes(given->rows, 0, "path", POSTGRESQL_CONTENT_MAX);
    pq_add_bytes(&f, path);
    g_bytes_unref(path);
    pq_add_texts(&f, (const char *const *)v->ends->pdata, v->ends->len);
    pq_add_text(&f, "broken");
    revoke_fill(&f, v->request);
    postgresql_send(postgresql_of(v->request), PQ_REVOKE, &f, MAX(v->until - clock_now(), 1), revoke_on_revoked, v);
}

void pq_revoke(struct remote_request *request)
{
    struct postgresql *p = postgresql_of(request);
    struct remote_revocation *v = remote_revocation_new(request);
    struct pq_parameters f = {.count = 0};
    pq_add_name(&f, request->name);
    pq_add_nonzero(&f, request->fence);
    if (request->fence) {
        revoke_fill(&f, request);
        postgresql_send(p, PQ_REVOKE_TOKEN, &f, 0, revoke_on_revoked, v);
    } else {
        postgresql_send(p, PQ_HOLDERS, &f, 0, revoke_on_found, v);
    }
}
