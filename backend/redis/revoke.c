/* revoke: ending holders by name, whosever they are; see revoke.lua for what a holder's guard leaves behind.
 *
 * Where no token is named, the server is asked first who holds, and then to end these: if that comes late, those who
 * hold by then keep what they have.
 *
 * It is complete when all know of it: this mount's tickets are named by the answer,
 * and each other mount that the server could tell says when it has heard.  One
 * that gets the message and does not confirm it, because it is stopped or cut off, is not waited for
 * longer than REDIS_HEARD_MAX.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/redis/private.h"

#define REDIS_HEARD_MAX 1.0 /* s */

struct redis_revocation {
    LIST_ENTRY(redis_revocation) link; /* r->revocations */
    struct redis *r;
    uint64_t number;
    int64_t unheard; /* other mounts that are still to say that they have heard; those of before the answer count -1 */
    bool answered;
    struct remote_request *request;
    GPtrArray *ends; /* who held: as revoke.lua has told it */
    clock_ms until;
    enum backend_result result;
    ev_timer limit;
};

static void revoke_revocation_free(struct redis_revocation *v)
{
    LIST_REMOVE(v, link);
    ev_timer_stop(v->r->remote.loop, &v->limit);
    g_ptr_array_unref(v->ends);
    g_free(v);
}

void redis_revoke_end_all(struct redis *r)
{
    while (!LIST_EMPTY(&r->revocations)) {
        revoke_revocation_free(LIST_FIRST(&r->revocations));
    }
}

static void revoke_complete(struct redis_revocation *v)
{
    struct remote_request *request = v->request;
    enum backend_result result = v->result;
    revoke_revocation_free(v);
    remote_request_answer(request, result, 0);
}

static void revoke_complete_if_heard(struct redis_revocation *v)
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

enum backend_end redis_end(const char *why)
{
    return strcmp(why, "broken") == 0     ? BACKEND_BROKEN
           : strcmp(why, "released") == 0 ? BACKEND_RELEASED
           : strcmp(why, "expired") == 0  ? BACKEND_EXPIRED
                                          : BACKEND_LOST;
}

void redis_revoke_confirm(struct redis *r, const char *mount, const char *number)
{
    char *text = g_strconcat("h ", number, NULL);
    const struct redis_argument arguments[] = {
        {"PUBLISH", strlen("PUBLISH")}, {mount, strlen(mount)}, {text, strlen(text)}};
    if (strlen(mount) == strlen(r->mount) && g_str_has_prefix(mount, "lfs:")) {
        redis_conn_command(r->conn, arguments, G_N_ELEMENTS(arguments), 0, NULL, NULL);
    }
    g_free(text);
}

void redis_revoke_confirmed(struct redis *r, const char *number)
{
    uint64_t wanted = g_ascii_strtoull(number, NULL, 10);
    struct redis_revocation *v = LIST_FIRST(&r->revocations);
    while (v && v->number != wanted) {
        v = LIST_NEXT(v, link);
    }
    if (v) {
        v->unheard--;
        revoke_complete_if_heard(v);
    }
}

static bool revoke_is_on(const struct remote_ticket *t, const char *name)
{
    return strcmp(remote_ticket_name(t), name) == 0;
}

static void revoke_fill(struct redis_call *call, const struct redis_revocation *v)
{
    struct redis *r = v->r;
    redis_call_lock(call, v->request->name, false, "otiwf");
    redis_call_key(call, 'e', v->request->name);
    redis_call_leaf(call, v->request->name, false);
    redis_call_unsigned(call, "fence", v->request->fence);
    redis_call_text(call, "mount", r->mount);
    redis_call_unsigned(call, "request", v->number);
    redis_call_number(call, "keep", r->timeout);
    const struct backend_match *match = v->request->match;
    redis_call_flag(call, "keeps", match);
    if (match && *match->text) {
        redis_call_number(call, "word", match->word);
        redis_call_text(call, "text", match->text);
    }
}

static void revoke_on_revoked(void *arg, const struct redis_answer *answer)
{
    struct redis_revocation *v = arg;
    struct redis *r = v->r;
    v->result = redis_result(r, answer);
    v->answered = true;
    if (answer->outcome == REMOTE_ANSWERED && answer->reply->type == REDIS_REPLY_ARRAY) {
        v->unheard += redis_number(answer->reply, 1);
        for (size_t i = 2; i < answer->reply->elements; i++) {
            struct remote_ticket *t = remote_ticket_find(&r->remote, redis_text(answer->reply, i));
            if (t && revoke_is_on(t, v->request->name)) {
                remote_on_event(&r->remote, t->id, REMOTE_ENDED, v->request->fence ? BACKEND_RELEASED : BACKEND_BROKEN);
            }
        }
        ev_timer_start(r->remote.loop, &v->limit);
    }
    revoke_complete_if_heard(v);
}

static void revoke_on_found(void *arg, const struct redis_answer *answer)
{
    struct redis_revocation *v = arg;
    struct redis_call call = {.r = v->r, .script = REDIS_REVOKE};
    v->result = redis_result(v->r, answer);
    if (v->result != BACKEND_OK) {
        revoke_complete(v);
        return;
    }
    for (size_t i = 1; answer->reply->type == REDIS_REPLY_ARRAY && i < answer->reply->elements; i++) {
        g_ptr_array_add(v->ends, g_strdup(redis_text(answer->reply, i)));
    }
    revoke_fill(&call, v);
    redis_call_texts(&call, "ends", v->ends);
    redis_call_send(&call, MAX(v->until - clock_now(), 1), revoke_on_revoked, v);
}

void redis_revoke(struct remote_request *request)
{
    struct redis *r = redis_of(request);
    struct redis_call call = {.r = r, .script = REDIS_REVOKE};
    struct redis_revocation *v = g_new0(struct redis_revocation, 1);
    v->r = r;
    v->request = request;
    v->number = ++r->remote.serials;
    v->ends = g_ptr_array_new_with_free_func(g_free);
    v->until = clock_now() + r->timeout;
    ev_timer_init(&v->limit, revoke_on_limit, REDIS_HEARD_MAX, 0);
    v->limit.data = v;
    LIST_INSERT_HEAD(&r->revocations, v, link);
    revoke_fill(&call, v);
    redis_call_flag(&call, "look", !request->fence);
    redis_call_send(&call, 0, request->fence ? revoke_on_revoked : revoke_on_found, v);
}
