/* messages: messages from the store to this mount, and the requests that wait until other mounts have read theirs.
 *
 * A holder that is ended by name, on whichever mount, ends there with a message.  The request is complete when all
 * mounts know: the answer names this mount's tickets, and each other mount with a ticket that ended confirms that it
 * has read so.  One that does not, because it is stopped or cut off, delays the request by REVOCATION_CONFIRM_MAX.
 */
#include "backend/remote/remote.h"

#define REVOCATION_CONFIRM_MAX 1.0 /* s */

static void revocation_free(struct remote_revocation *v)
{
    LIST_REMOVE(v, link);
    ev_timer_stop(v->request->r->loop, &v->limit);
    g_ptr_array_unref(v->ends);
    g_free(v);
}

void remote_revocation_clear_all(struct remote *r)
{
    while (!LIST_EMPTY(&r->revocations)) {
        revocation_free(LIST_FIRST(&r->revocations));
    }
}

void remote_revocation_complete(struct remote_revocation *v, enum backend_result result)
{
    struct remote_request *request = v->request;
    revocation_free(v);
    remote_request_answer(request, result, 0);
}

static void revocation_on_limit(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    remote_revocation_complete(timer->data, BACKEND_OK);
}

struct remote_revocation *remote_revocation_new(struct remote_request *request)
{
    struct remote_revocation *v = g_new0(struct remote_revocation, 1);
    v->request = request;
    v->ends = g_ptr_array_new_with_free_func(g_free);
    v->until = clock_now() + request->r->timeout;
    ev_timer_init(&v->limit, revocation_on_limit, REVOCATION_CONFIRM_MAX, 0);
    v->limit.data = v;
    LIST_INSERT_HEAD(&request->r->revocations, v, link);
    return v;
}

void remote_revocation_add(struct remote_revocation *v, const char *id)
{
    g_ptr_array_add(v->ends, g_strdup(id));
}

void remote_revocation_wait(struct remote_revocation *v, int64_t others)
{
    struct remote *r = v->request->r;
    for (guint i = 0; i < v->ends->len; i++) {
        struct remote_ticket *t = remote_ticket_find(r, v->ends->pdata[i]);
        if (t && strcmp(remote_ticket_name(t), v->request->name) == 0) {
            remote_on_event(r, t->id, REMOTE_ENDED, v->request->fence ? BACKEND_RELEASED : BACKEND_BROKEN);
        }
    }
    v->answered = true;
    v->unconfirmed += others;
    if (v->unconfirmed <= 0) {
        remote_revocation_complete(v, BACKEND_OK);
    } else {
        ev_timer_start(r->loop, &v->limit);
    }
}

static void revocation_on_confirmed(struct remote *r, const char *serial)
{
    uint64_t wanted = g_ascii_strtoull(serial, NULL, 10);
    struct remote_revocation *v = LIST_FIRST(&r->revocations);
    while (v && v->request->serial != wanted) {
        v = LIST_NEXT(v, link);
    }
    if (v && --v->unconfirmed <= 0 && v->answered) {
        remote_revocation_complete(v, BACKEND_OK);
    }
}

static enum backend_end message_end(const char *why)
{
    return strcmp(why, "broken") == 0     ? BACKEND_BROKEN
           : strcmp(why, "released") == 0 ? BACKEND_RELEASED
           : strcmp(why, "expired") == 0  ? BACKEND_EXPIRED
                                          : BACKEND_LOST;
}

void remote_on_message(struct remote *r, char *const *words)
{
    static const char letters[] = {
        [REMOTE_GRANTED] = 'g', [REMOTE_MAY_BE_FREE] = 'a', [REMOTE_WANTED] = 'w', [REMOTE_ENDED] = 'e'};
    if (!words[0] || strlen(words[0]) != 1 || !words[1]) {
        return;
    }
    if (*words[0] == 'h') {
        revocation_on_confirmed(r, words[1]);
    }
    for (guint i = 0; i < G_N_ELEMENTS(letters); i++) {
        if (*words[0] != letters[i] || (i == REMOTE_ENDED && !words[2])) {
            continue;
        }
        enum backend_end why = i == REMOTE_ENDED ? message_end(words[2]) : BACKEND_LOST;
        if (i != REMOTE_ENDED || !remote_verify_end(r, words[1], why)) {
            remote_on_event(r, words[1], i, why);
        }
    }
}
