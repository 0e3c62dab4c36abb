/* acquire: taking a lock, waiting for it, and claiming it.
 *
 * One script does all three, so asking again with the same token is always
 * safe: it renews what is held, gives a word of life for what waits, and claims
 * what was handed over.  A ticket that waits asks again every REDIS_REFRESH,
 * when the lock's deadline has come and it is first, when the server has told it
 * that it holds, and when a foreign holder's key has changed.
 */
#include <string.h>

#include "backend/redis/private.h"

static int64_t liveness(const struct redis_ticket *t)
{
    return t->place->sequence ? t->head.ttl : MIN(t->head.ttl, REDIS_LIVENESS);
}

static void fill(struct redis_call *call, struct redis *r, const struct redis_ticket *t, bool test)
{
    const char *name = t->place->sequence ? t->name : t->place->name;
    bool in_root = !strchr(name, '/');
    const char *leaf;
    char *directory = redis_parent(name, &leaf);

    redis_call_lock(call, r, REDIS_ACQUIRE, t->place->name, t->place->sequence, NULL);
    redis_call_key(call, 0, directory);
    for (const char *letter = redis_is_numbered(leaf) ? "oti" : ""; *letter && !t->place->sequence; letter++)
        redis_call_key(call, *letter, directory);
    g_free(directory);
    redis_call_leaf(call, name, t->place->sequence);
    redis_call_text(call, in_root ? "0" : "1");
    redis_call_text(call, t->token);
    redis_call_text(call, r->mount);
    redis_call_number(call, t->head.kind);
    redis_call_number(call, t->head.mode);
    redis_call_unsigned(call, t->handle);
    redis_call_unsigned(call, t->party);
    redis_call_offset(call, t->start);
    redis_call_offset(call, t->end);
    redis_call_number(call, t->head.ttl);
    redis_call_text(call, t->wait ? "1" : "0");
    redis_call_number(call, (int64_t)t->head.fence);
    redis_call_text(call, redis_ticket_has_kin(t, t->handle, t->party) ? "1" : "0");
    redis_call_number(call, liveness(t));
    redis_call_bytes(call, t->meta);
    redis_call_bytes(call, t->content);
    redis_call_text(call, test ? "1" : "0");
    redis_call_text(call, r->identity);
    redis_call_text(call, t->place->name);
}

/* It could not be had, or not be kept waiting.  Frees it. */
static void refuse(struct redis *r, struct redis_ticket *t, enum backend_result result,
                   const struct backend_info *holder)
{
    backend_acquired *done = t->acquired;
    void *arg = t->arg;

    if (!done) {
        redis_ticket_end(r, t, BACKEND_LOST, true);
        return;
    }
    redis_ticket_free(r, t);
    done(arg, result, NULL, holder);
}

static void told(struct redis_ticket *t, enum backend_result result)
{
    backend_acquired *done = t->acquired;

    t->acquired = NULL;
    done(t->arg, result, &t->head, NULL);
}

static void start_term(struct redis_ticket *t, clock_ms now, clock_ms deadline)
{
    t->head.deadline = deadline;
    t->due = t->due_after > 0 ? now + t->due_after : CLOCK_NEVER;
}

static void set_given_name(struct redis_ticket *t, const char *leaf)
{
    if (!t->place->sequence || !*leaf)
        return;
    g_free(t->name);
    t->name = *t->place->name ? g_strconcat(t->place->name, "/", leaf, NULL) : g_strdup(leaf);
}

/* `ttl` was asked for; it may have been changed since. */
static void on_granted(struct redis *r, struct redis_ticket *t, const struct redis_answer *answer, int64_t ttl)
{
    clock_ms now = clock_now(), deadline = redis_deadline(answer->sent, MIN(ttl, t->head.ttl));
    bool first = t->state != REDIS_HELD;

    if (deadline <= now) { /* too late to believe in it */
        redis_send_release(r, t, "", NULL, NULL);
        refuse(r, t, BACKEND_UNREACHABLE, NULL);
        return;
    }
    redis_ticket_adopt(r, t, redis_text(answer->reply, 1));
    redis_fence(answer->reply, 2, &t->head.fence);
    redis_ticket_segments(t, redis_text(answer->reply, 3));
    set_given_name(t, redis_text(answer->reply, 4));
    t->handed = false;
    t->refresh = CLOCK_NEVER;
    redis_ticket_turn(r, t, REDIS_HELD);
    if (first) {
        t->head.acquired = now;
        start_term(t, now, deadline);
    } else {
        t->head.deadline = MAX(t->head.deadline, deadline);
    }
    redis_ticket_schedule(r, t);
    if (ttl != t->head.ttl)
        redis_extend(r, t);
    if (first && t->head.mode == BACKEND_EXCLUSIVE && t->head.kind != BACKEND_FCNTL && !t->place->sequence)
        redis_ticket_doubt(r, t->place, t);
    if (t->acquired)
        told(t, BACKEND_OK);
    else if (first)
        r->events->granted(r->context, &t->head);
}

static void on_watched(void *arg, const struct redis_answer *answer)
{
    struct redis_op *op = arg;
    struct redis_ticket *t = redis_ticket_find(op->r, op->token);
    bool there = answer->outcome != REDIS_REPLY || redis_number(answer->reply, 0) != 0;

    if (t && !there && t->state == REDIS_WAITING)
        redis_refresh(op->r, t);
    redis_op_free(op);
}

/* The end of a foreign holder is told by the server. */
static void watch(struct redis *r, struct redis_ticket *t)
{
    char *key = redis_key(r, t->place->name);

    t->place->watched = true;
    redis_conn_watch(r->conn, key, strlen(key), on_watched, redis_op_new(r, t));
    g_free(key);
}

static void on_queued(struct redis *r, struct redis_ticket *t, const struct redis_answer *answer)
{
    clock_ms now = clock_now();
    int64_t rank = redis_number(answer->reply, 2), wait = redis_number(answer->reply, 3);
    int64_t pause = MIN(REDIS_REFRESH, liveness(t) / 3);
    bool foreign = redis_number(answer->reply, 4) == 1;

    redis_fence(answer->reply, 1, &t->head.fence);
    set_given_name(t, redis_text(answer->reply, 5));
    redis_ticket_turn(r, t, REDIS_WAITING);
    if (t->acquired)
        start_term(t, now, redis_deadline(answer->sent, t->head.ttl));
    if (rank == 0 && wait >= 0 && wait < pause)
        pause = wait + 1;
    t->refresh = now + MAX(pause, REDIS_REFRESH_MIN);
    redis_ticket_schedule(r, t);
    if (t->acquired && redis_ticket_deadlocked(r, t)) {
        redis_send_release(r, t, "", NULL, NULL);
        refuse(r, t, BACKEND_DEADLOCK, NULL);
        return;
    }
    if (rank == 0 && foreign && !t->place->watched)
        watch(r, t);
    if (t->handed)
        redis_refresh(r, t);
    if (t->acquired)
        told(t, BACKEND_QUEUED);
}

static void on_failed(struct redis *r, struct redis_ticket *t, const struct redis_answer *answer)
{
    enum backend_result result = redis_failure(r, answer);

    if (t->acquired) {
        if (answer->outcome == REDIS_UNKNOWN || answer->repeated)
            redis_send_release(r, t, "", NULL, NULL);
        refuse(r, t, result, NULL);
        return;
    }
    if (t->state == REDIS_CLAIMED)
        redis_ticket_turn(r, t, REDIS_WAITING);
    t->refresh = clock_now() + REDIS_RENEW_RETRY;
    redis_ticket_schedule(r, t);
}

static void on_busy(struct redis *r, struct redis_ticket *t, const struct redis_answer *answer)
{
    struct backend_info info = {.type = BACKEND_LOCK, .holders = 1};

    redis_describe(r, t->place->name, answer->reply, 1, &info);
    refuse(r, t, BACKEND_BUSY, &info);
    redis_info_clear(&info);
}

/* A ticket in a sequence is named by what was asked for, and a number. */
static bool is_given_name(const struct redis_ticket *t, const char *given)
{
    const char *leaf;

    g_free(redis_parent(t->name, &leaf));
    size_t prefix = strlen(leaf) - (redis_is_numbered(leaf) ? 10 : 0);
    return redis_is_component(given) && strlen(given) == prefix + 10 && strncmp(given, leaf, prefix) == 0 &&
           redis_is_numbered(given);
}

/* Whether the script can have given this answer to this ticket. */
static bool is_credible(struct redis *r, struct redis_ticket *t, const redisReply *reply, bool granted)
{
    const char *name = redis_text(reply, granted ? 4 : 5);
    uint64_t fence;

    if (!redis_fence(reply, granted ? 2 : 1, &fence))
        return false;
    if (t->place->sequence && !is_given_name(t, name))
        return false;
    return granted ? redis_ticket_may_adopt(r, t, redis_text(reply, 1)) : t->wait;
}

static void on_acquired(void *arg, const struct redis_answer *answer)
{
    struct redis_op *op = arg;
    struct redis *r = op->r;
    struct redis_ticket *t = redis_ticket_find(r, op->token);
    const char *word = redis_text(answer->reply, 0);
    bool granted = strcmp(word, "granted") == 0, queued = strcmp(word, "queued") == 0;
    struct redis_answer unknown = {.outcome = REDIS_UNKNOWN, .sent = answer->sent, .repeated = answer->repeated};
    enum backend_result result;
    int64_t ttl = op->ttl;

    redis_op_free(op);
    t->asked = NULL;
    if (answer->outcome != REDIS_REPLY) {
        on_failed(r, t, answer);
    } else if ((granted || queued) && is_credible(r, t, answer->reply, granted)) {
        if (granted)
            on_granted(r, t, answer, ttl);
        else
            on_queued(r, t, answer);
    } else if (strcmp(word, "busy") == 0) {
        on_busy(r, t, answer);
    } else {
        result = redis_result(r, answer);
        if (result == BACKEND_MISSING || result == BACKEND_IS_DIRECTORY || result == BACKEND_NOT_DIRECTORY) {
            refuse(r, t, result, NULL);
        } else {
            redis_disbelieve(r, answer);
            on_failed(r, t, &unknown);
        }
    }
}

static void ask(struct redis *r, struct redis_ticket *t)
{
    struct redis_call call = {0};
    struct redis_op *op = redis_op_new(r, t);

    t->asked = op;
    op->ttl = t->head.ttl;
    fill(&call, r, t, false);
    t->request = redis_call_send(&call, 0, on_acquired, op);
}

void redis_refresh(struct redis *r, struct redis_ticket *t)
{
    if (t->asked)
        return; /* its answer will tell what to do */
    if (t->handed)
        redis_ticket_turn(r, t, REDIS_CLAIMED);
    t->handed = false;
    ask(r, t);
}

/* What no backend could take. */
static enum backend_result check(struct redis *r, const char *name, const struct backend_claim *claim)
{
    const char *leaf;

    g_free(redis_parent(name, &leaf));
    if (!*name)
        return BACKEND_IS_DIRECTORY;
    if (claim->kind == BACKEND_FCNTL && claim->start > claim->end)
        return BACKEND_INVALID;
    if (claim->sequence && (!g_str_has_suffix(leaf, "-") || strlen(leaf) + 10 > 255))
        return BACKEND_INVALID;
    return redis_key_allowed(r, name) ? BACKEND_OK : BACKEND_INVALID;
}

struct backend_ticket *redis_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                     backend_acquired *done, void *arg)
{
    struct redis *r = (struct redis *)b;
    enum backend_result result = check(r, name, claim);
    struct redis_ticket *t;

    if (result != BACKEND_OK) {
        done(arg, result, NULL, NULL);
        return NULL;
    }
    redis_ticket_tell_over(r, name);
    t = redis_ticket_new(r, name, claim);
    t->acquired = done;
    t->arg = arg;
    ask(r, t);
    return &t->head;
}

static void on_tested(void *arg, const struct redis_answer *answer)
{
    struct redis_op *op = arg;
    struct redis *r = op->r;
    struct backend_info info = {.type = BACKEND_NOTHING};
    enum backend_result result = BACKEND_OK;

    if (answer->outcome != REDIS_REPLY) {
        result = redis_failure(r, answer);
    } else if (strcmp(redis_text(answer->reply, 0), "busy") == 0) {
        info = (struct backend_info){.type = BACKEND_LOCK, .holders = 1};
        redis_describe(r, op->name, answer->reply, 1, &info);
        if (redis_is_over(r, answer->reply, 1, &info))
            info.type = BACKEND_NOTHING;
    }
    op->known(op->arg, result, result == BACKEND_OK ? &info : NULL);
    redis_info_clear(&info);
    redis_op_free(op);
}

void redis_test(struct backend *b, const char *name, const struct backend_claim *claim, backend_known *done, void *arg)
{
    struct redis *r = (struct redis *)b;
    struct backend_info nothing = {.type = BACKEND_NOTHING};
    struct redis_call call = {0};
    struct redis_ticket *t;
    struct redis_op *op;

    if (check(r, name, claim) != BACKEND_OK || claim->sequence) {
        done(arg, BACKEND_OK, &nothing);
        return;
    }
    t = redis_ticket_new(r, name, claim); /* for as long as the call is made */
    fill(&call, r, t, true);
    op = redis_op_new(r, NULL);
    op->name = g_strdup(name);
    op->known = done;
    op->arg = arg;
    redis_call_send(&call, 0, on_tested, op);
    redis_ticket_free(r, t);
}
