/* call: what an operation asks of all servers, once or more. */
#include <string.h>

#include "backend/redlock/private.h"

#define SHARE 5           /* of a term, what one server may take at most */
#define TIMEOUT_SHORT 100 /* ms: but this, where it is no more than half of the term */

struct redlock_call *redlock_call_new(struct redlock *r, struct remote_request *request, const char *name)
{
    struct redlock_call *call = g_new0(struct redlock_call, 1);
    call->r = r;
    call->request = request;
    call->name = g_strdup(name);
    ev_init(&call->timer, NULL);
    LIST_INSERT_HEAD(&r->calls, call, link);
    return call;
}

void redlock_call_end(struct redlock_call *call, bool settle)
{
    if (call->poll) {
        redlock_poll_close(call->poll, settle);
    }
    ev_timer_stop(call->r->remote.loop, &call->timer);
    LIST_REMOVE(call, link);
    g_free(call->made);
    g_free(call->name);
    g_free(call);
}

void redlock_call_end_all(struct redlock *r)
{
    while (!LIST_EMPTY(&r->calls)) {
        redlock_call_end(LIST_FIRST(&r->calls), false);
    }
}

void redlock_call_poll(struct redlock_call *call, enum redlock_script_id script, int64_t timeout,
                       void (*told)(struct redlock_call *call))
{
    if (call->poll) {
        redlock_poll_close(call->poll, true);
    }
    call->told = told;
    redlock_poll_send(call->r, call, script, timeout);
}

static void call_on_timer(struct ev_loop *loop, ev_timer *timer, int revents)
{
    struct redlock_call *call = timer->data;
    (void)loop, (void)revents;
    call->again(call);
}

void redlock_call_later(struct redlock_call *call, int64_t ms, void (*again)(struct redlock_call *call))
{
    call->again = again;
    ev_timer_init(&call->timer, call_on_timer, (double)ms / 1000, 0);
    call->timer.data = call;
    ev_now_update(call->r->remote.loop);
    ev_timer_start(call->r->remote.loop, &call->timer);
}

int64_t redlock_call_pause(struct redlock *r, int64_t waited)
{
    double pause = (double)CLAMP(waited / 4, REDLOCK_RETRY, REDLOCK_RETRY_MAX);
    return (int64_t)(pause * g_rand_double_range(r->random, 0.5, 1.5));
}

int64_t redlock_call_timeout(const struct redlock *r, int64_t ttl)
{
    return MIN(r->timeout, MAX(ttl / SHARE, MIN(ttl / 2, TIMEOUT_SHORT)));
}

char *redlock_call_digest(const char *id)
{
    return g_compute_checksum_for_string(G_CHECKSUM_SHA1, id, -1);
}

void redlock_call_undo(struct redlock *r, const char *name, const char *id)
{
    char *digest = redlock_call_digest(id);
    redlock_poll_fill_release(r, name, digest, "", 0, 0);
    redlock_poll_send(r, NULL, REDLOCK_RELEASE, REDLOCK_RELEASE_TIME);
    g_free(digest);
}
