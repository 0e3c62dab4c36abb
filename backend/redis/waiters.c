/* waiters: the heartbeat of the tickets that wait, and the watch on locks that other clients hold. */
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

static void waiters_on_heartbeat(void *arg, const struct redis_answer *answer)
{
    const redisReply *reply = answer->reply;
    for (size_t i = 0; answer->outcome == REMOTE_ANSWERED && i + 3 < reply->elements; i += 4) {
        remote_heartbeat_reply(arg, redis_text(reply, i),
                               &(struct remote_answer){.rank = redis_number(reply, i + 1),
                                                       .wait = redis_number(reply, i + 2),
                                                       .foreign = redis_number(reply, i + 3) == 1});
    }
}

void redis_send_heartbeat(struct remote *remote, struct remote_ticket *const *tickets, size_t count)
{
    struct redis *r = (struct redis *)remote;
    struct redis_call call = {.r = r, .script = REDIS_HEARTBEAT};
    guint begin = redis_call_array(&call, "places"), locks = 0;
    for (size_t i = 0, next; i < count; i = next) {
        const struct remote_lock *lock = tickets[i]->lock;
        const char *leaf = remote_leaf(lock->name);
        for (next = i + 1; next < count && tickets[next]->lock == lock; next++) {
        }
        redis_call_lock(&call, lock->name, lock->sequence, NULL);
        pack_text(r->packed, leaf, strlen(leaf));
        pack_number(r->packed, lock->sequence);
        pack_number(r->packed, (int64_t)(next - i));
        locks++;
    }
    pack_count(r->packed, begin, 3 * locks);
    begin = redis_call_array(&call, "tickets");
    for (size_t i = 0; i < count; i++) {
        pack_text(r->packed, tickets[i]->id, strlen(tickets[i]->id));
        pack_number(r->packed, remote_ticket_liveness(tickets[i], tickets[i]->head.ttl));
    }
    pack_count(r->packed, begin, (guint)(2 * count));
    redis_call_send(&call, 0, waiters_on_heartbeat, remote);
}

static void waiters_on_watched(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct remote_ticket *t = remote_ticket_find(request->r, request->id);
    bool answered = answer->outcome == REMOTE_ANSWERED;
    bool there = !answered || redis_number(answer->reply, 0) != 0;
    if (t && !answered) {
        t->lock->watched = false;
    }
    if (t && !there && t->state == REMOTE_WAITING) {
        remote_refresh(request->r, t);
    }
    remote_request_free(request);
}

void redis_watch_lock(struct remote *remote, struct remote_ticket *t)
{
    struct redis *r = (struct redis *)remote;
    char *key = redis_key(&r->keys, 0, t->lock->name);
    redis_conn_watch(r->conn, key, strlen(key), NULL, waiters_on_watched,
                     remote_request_new(&r->remote, REMOTE_NO_PROCEDURE, t, NULL));
    g_free(key);
}
