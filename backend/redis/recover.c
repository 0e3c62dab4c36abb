/* recover: the leases that this mount held when it last ended.
 *
 * They are found by the mount's identity.  The question is asked before the
 * mount is there, so the loop has nothing else to do until it is answered; with
 * a server that is away nothing is found, and the leases run out.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/redis/private.h"

#define RECOVER_TIMEOUT 2000    /* ms, of a part */
#define RECOVER_PARTS_MAX 20000 /* of some 500 leases */

struct recovery {
    struct redis *r;
    bool answered;
    char cursor[24]; /* of the part that is asked for next; "0": the first, and none */
    void (*found)(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta);
    void *arg;
};

/* One lease: see recover.lua for the elements from `at` on.  One that this mount
 * could not have had, or has been told of, is passed over. */
static void recover_restore(struct recovery *recovery, const struct redis_answer *answer, size_t at)
{
    struct redis *r = recovery->r;
    const redisReply *reply = answer->reply;
    const char *path = redis_text(reply, at), *leaf = redis_text(reply, at + 9);
    bool sequence = redis_number(reply, at + 1) == 1;
    bool waits = redis_number(reply, at + 10) == 1;
    GBytes *meta = redis_bytes(reply, at + 8, REDIS_META_MAX);
    const char *token = redis_text(reply, at + 2);
    int64_t left = MAX(redis_time(reply, at + 4), 0), age = MAX(redis_time(reply, at + 5), 0);
    uint64_t fence;
    struct backend_claim claim = {
        .kind = BACKEND_LEASE,
        .mode = redis_number(reply, at + 7) ? BACKEND_SHARED : BACKEND_EXCLUSIVE,
        .sequence = sequence,
        .ttl = MAX(redis_time(reply, at + 6), 1),
        .meta = meta,
    };
    char *name = sequence && *path ? g_strconcat(path, "/", leaf, NULL) : g_strdup(sequence ? leaf : path);
    if (!remote_is_token(token) || remote_ticket_find(&r->remote, token) || !redis_fence(reply, at + 3, &fence) ||
        !redis_is_path(name) || !redis_key_allowed(r, name) || (sequence && !redis_is_numbered(leaf))) {
        g_bytes_unref(meta);
        g_free(name);
        return;
    }
    struct remote_ticket *t = remote_ticket_new(&r->remote, name, &claim);
    remote_ticket_adopt(&r->remote, t, token);
    remote_ticket_turn(&r->remote, t, waits ? REMOTE_WAITING : REMOTE_HELD);
    t->wait = true;
    t->refresh = waits ? clock_now() + REMOTE_REFRESH_MIN : CLOCK_NEVER;
    t->head.fence = fence;
    t->head.deadline = answer->sent + left - (claim.ttl / 100 + 2);
    t->head.acquired = clock_now() - age;
    t->due = clock_now(); /* so that it is renewed, if it is to be */
    remote_ticket_schedule(&r->remote, t);
    recovery->found(recovery->arg, name, &t->head, meta);
    g_bytes_unref(meta);
    g_free(name);
}

static void recover_on_recovered(void *arg, const struct redis_answer *answer)
{
    struct recovery *recovery = arg;
    g_strlcpy(recovery->cursor, "0", sizeof recovery->cursor);
    if (answer->outcome != REDIS_REPLY) {
        redis_failure(recovery->r, answer);
        log_warning("the server does not tell which leases this mount held before: they will run out");
    } else {
        g_strlcpy(recovery->cursor, redis_text(answer->reply, 0), sizeof recovery->cursor);
        for (size_t i = 1; i + 10 < answer->reply->elements; i += 11) {
            recover_restore(recovery, answer, i);
        }
    }
    recovery->answered = true;
}

static void recover_ask_part(struct recovery *recovery)
{
    struct redis *r = recovery->r;
    struct redis_call call = {.r = r, .script = REDIS_RECOVER};
    char *root = redis_key(r, "");
    redis_call_key(&call, 'm', NULL);
    redis_call_text(&call, "mount", r->mount);
    redis_call_text(&call, "before", r->before);
    redis_call_text(&call, "behind", r->behind);
    redis_call_text(&call, "root", root);
    redis_call_text(&call, "cursor", recovery->cursor);
    g_free(root);
    recovery->answered = false;
    redis_call_send(&call, RECOVER_TIMEOUT, recover_on_recovered, recovery);
    while (!recovery->answered) {
        ev_run(r->remote.loop, EVRUN_ONCE);
    }
}

void redis_recover(struct backend *b,
                   void (*found)(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta), void *arg)
{
    struct redis *r = (struct redis *)b;
    struct recovery recovery = {.r = r, .found = found, .arg = arg, .cursor = "0"};
    for (unsigned parts = 0; parts == 0 || (strcmp(recovery.cursor, "0") != 0 && parts < RECOVER_PARTS_MAX); parts++) {
        recover_ask_part(&recovery);
    }
}
