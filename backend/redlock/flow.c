/* flow: a request to all servers, in one or more polls. */
#include <string.h>

#include "backend/redlock/private.h"

#define SHARE 5           /* one server may take this part of a term, */
#define TIMEOUT_SHORT 100 /* or so many ms if that is at most half of the term */

struct redlock_flow *redlock_flow_new(struct redlock *r, struct remote_request *request, const char *name)
{
    struct redlock_flow *flow = g_new0(struct redlock_flow, 1);
    flow->r = r;
    flow->request = request;
    flow->name = g_strdup(name);
    ev_init(&flow->timer, NULL);
    LIST_INSERT_HEAD(&r->flows, flow, link);
    return flow;
}

void redlock_flow_end(struct redlock_flow *flow, bool settle)
{
    if (flow->poll) {
        redlock_poll_close(flow->poll, settle);
    }
    ev_timer_stop(flow->r->remote.loop, &flow->timer);
    LIST_REMOVE(flow, link);
    g_clear_pointer(&flow->mounts, g_hash_table_unref);
    g_free(flow->name);
    g_free(flow);
}

void redlock_flow_end_all(struct redlock *r)
{
    while (!LIST_EMPTY(&r->flows)) {
        redlock_flow_end(LIST_FIRST(&r->flows), false);
    }
}

void redlock_flow_poll(struct redlock_flow *flow, enum redlock_script_id script, int64_t timeout,
                       void (*on_answer)(struct redlock_flow *flow))
{
    if (flow->poll) {
        redlock_poll_close(flow->poll, true);
    }
    flow->on_answer = on_answer;
    redlock_poll_send(flow->r, flow, script, timeout);
}

static void flow_on_timer(struct ev_loop *loop, ev_timer *timer, int revents)
{
    struct redlock_flow *flow = timer->data;
    (void)loop, (void)revents;
    flow->on_timer(flow);
}

void redlock_flow_continue_later(struct redlock_flow *flow, int64_t ms, void (*on_timer)(struct redlock_flow *flow))
{
    flow->on_timer = on_timer;
    ev_timer_stop(flow->r->remote.loop, &flow->timer);
    ev_timer_init(&flow->timer, flow_on_timer, (double)ms / 1000, 0);
    flow->timer.data = flow;
    ev_now_update(flow->r->remote.loop);
    ev_timer_start(flow->r->remote.loop, &flow->timer);
}

int64_t redlock_flow_pause(struct redlock *r, int64_t waited)
{
    double pause = (double)CLAMP(waited / 4, REDLOCK_RETRY, REDLOCK_RETRY_MAX);
    return (int64_t)(pause * g_rand_double_range(r->random, 0.5, 1.5));
}

int64_t redlock_flow_timeout(const struct redlock *r, int64_t ttl)
{
    return MIN(r->remote.timeout, MAX(ttl / SHARE, MIN(ttl / 2, TIMEOUT_SHORT)));
}

char *redlock_flow_digest(const char *id)
{
    return g_compute_checksum_for_string(G_CHECKSUM_SHA1, id, -1);
}

void redlock_flow_undo(struct redlock *r, const char *name, const char *id)
{
    char *digest = redlock_flow_digest(id);
    redlock_poll_fill_release(r, name, digest, "", 0, 0, id);
    redlock_poll_send(r, NULL, REDLOCK_RELEASE, REDLOCK_RELEASE_TIME);
    g_free(digest);
}
