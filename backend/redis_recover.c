/* redis_recover: the leases that this mount held when it last ended.
 *
 * They are found by the mount's identity.  The question is asked before the
 * mount is there, so the loop has nothing else to do until it is answered; with
 * a server that is away nothing is found, and the leases run out.
 */
#include "log.h"
#include "redis_private.h"

#define RECOVER_TIMEOUT 2000 /* ms */

struct recovery {
    struct redis *r;
    bool answered;
    void (*found)(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta);
    void *arg;
};

/* One lease: see recover.lua for the elements from `at` on. */
static void restore(struct recovery *recovery, const struct redis_answer *answer, size_t at)
{
    struct redis *r = recovery->r;
    const redisReply *reply = answer->reply;
    const char *path = redis_text(reply, at), *leaf = redis_text(reply, at + 9);
    bool sequence = redis_number(reply, at + 1) == 1;
    bool waits = redis_number(reply, at + 10) == 1;
    GBytes *meta = redis_bytes(reply, at + 8);
    struct backend_claim claim = {
        .kind = BACKEND_LEASE,
        .mode = redis_number(reply, at + 7) ? BACKEND_SHARED : BACKEND_EXCLUSIVE,
        .sequence = sequence,
        .ttl = redis_number(reply, at + 6),
        .meta = meta,
    };
    char *name = sequence && *path ? g_strconcat(path, "/", leaf, NULL) : g_strdup(sequence ? leaf : path);
    struct redis_ticket *t = redis_ticket_new(r, name, &claim);

    redis_ticket_adopt(r, t, redis_text(reply, at + 2));
    redis_ticket_turn(r, t, waits ? REDIS_WAITING : REDIS_HELD);
    t->wait = true;
    t->refresh = waits ? clock_now() + REDIS_REFRESH_MIN : CLOCK_NEVER;
    t->head.fence = redis_unsigned(reply, at + 3);
    t->head.deadline = answer->sent + redis_number(reply, at + 4) - (claim.ttl / 100 + 2);
    t->head.acquired = clock_now() - redis_number(reply, at + 5);
    t->due = clock_now(); /* so that it is renewed, if it is to be */
    redis_ticket_schedule(r, t);
    recovery->found(recovery->arg, name, &t->head, meta);
    g_bytes_unref(meta);
    g_free(name);
}

static void on_recovered(void *arg, const struct redis_answer *answer)
{
    struct recovery *recovery = arg;

    recovery->answered = true;
    if (answer->outcome != REDIS_REPLY) {
        redis_failure(recovery->r, answer);
        log_warning("the server does not tell which leases this mount held before: they will run out");
        return;
    }
    for (size_t i = 0; i + 10 < answer->reply->elements; i += 11)
        restore(recovery, answer, i);
}

void redis_recover(struct backend *b,
                   void (*found)(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta), void *arg)
{
    struct redis *r = (struct redis *)b;
    struct recovery recovery = {.r = r, .found = found, .arg = arg};
    struct redis_call call = {.r = r, .script = REDIS_RECOVER};
    char key[48];

    if (!*r->identity)
        return;
    g_snprintf(key, sizeof key, "lfs:m:%s", r->identity);
    redis_call_text(&call, key);
    call.keys = call.count;
    redis_call_text(&call, r->mount);
    redis_call_text(&call, r->before);
    redis_call_text(&call, r->behind);
    redis_call_send(&call, RECOVER_TIMEOUT, on_recovered, &recovery);
    while (!recovery.answered)
        ev_run(r->loop, EVRUN_ONCE);
}
