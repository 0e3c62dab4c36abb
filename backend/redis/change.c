/* change: what is done to tickets: the procedures of remote.h are scripts. */
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

/* --- what is asked --- */

static void change_fill_release(struct redis_call *call, const struct remote_op *op)
{
    struct redis *r = redis_of(op);
    redis_call_lock(call, r, REDIS_RELEASE, op->name, op->claim.sequence, NULL);
    redis_call_leaf(call, op->file, op->claim.sequence);
    redis_call_text(call, "ticket", op->token);
    redis_call_text(call, "mount", r->mount);
    redis_call_text(call, "path", op->name);
    redis_call_unsigned(call, "owner", op->claim.lock_owner);
    if (*op->why) {
        redis_call_text(call, "why", op->why);
    }
    redis_call_flag(call, "lease", op->lease);
}

static void change_fill_release_range(struct redis_call *call, const struct remote_op *op)
{
    redis_call_lock(call, redis_of(op), REDIS_RELEASE_RANGE, op->name, false, NULL);
    redis_call_leaf(call, op->name, false);
    redis_call_text(call, "mount", redis_of(op)->mount);
    redis_call_range(call, op->claim.lock_owner, op->claim.start, op->claim.end);
}

static void change_fill_change(struct redis_call *call, const struct backend_change *c)
{
    if (c->set & BACKEND_SET_META) {
        redis_call_bytes(call, "meta", c->meta);
    }
    if (c->set & BACKEND_SET_CONTENT) {
        redis_call_bytes(call, "content", c->content);
    }
}

static void change_fill_rename(struct redis_call *call, const struct remote_op *op, const struct remote_ticket *t)
{
    const char *leaf = remote_leaf(op->name);
    redis_call_lock(call, redis_of(op), REDIS_RENAME, t->place->name, false, NULL);
    redis_call_lock(call, redis_of(op), REDIS_RENAME, op->name, false, "i");
    redis_call_leaf(call, t->place->name, false);
    redis_call_text(call, "ticket", t->token);
    redis_call_text(call, "new_leaf", leaf);
    redis_call_text(call, "path", op->name);
    redis_call_flag(call, "needed", leaf != op->name);
    if (op->replaced) {
        redis_call_text(call, "replaced", op->replaced);
    }
}

/* While the store is closed it is told all that there is to know of what this mount believes in. */
static void change_fill_renew(struct redis_call *call, const struct remote_op *op, const struct remote_ticket *t)
{
    struct redis *r = redis_of(op);
    bool reclaims = epoch_is_closed(&r->epoch) && t->head.deadline > clock_now();
    redis_call_ticket(call, r, reclaims ? REDIS_RECLAIM : REDIS_RENEW, t);
    redis_call_number(call, "ttl", op->ttl);
    redis_call_number(call, "left", op->left);
    redis_call_number(call, "mode", (int64_t)op->claim.mode);
    if (op->segments || (reclaims && t->segments)) {
        redis_call_segments(call, op->segments ? op->segments : t->segments);
    }
    if (!reclaims) {
        return;
    }
    redis_call_text(call, "mount", r->mount);
    redis_call_text(call, "path", t->place->name);
    redis_call_number(call, "kind", t->head.kind);
    redis_call_kin(call, t, BACKEND_IDENTITY(t));
    redis_call_unsigned(call, "owner", t->lock_owner);
    redis_call_unsigned(call, "number", t->head.fence);
    redis_call_number(call, "age", clock_now() - t->head.acquired);
    redis_call_bytes(call, "meta", t->meta);
    if (t->head.content) {
        redis_call_bytes(call, "content", t->head.content);
    }
}

static void change_fill(struct redis_call *call, const struct remote_op *op, const struct remote_ticket *t)
{
    struct redis *r = redis_of(op);
    switch (op->procedure) {
    case REMOTE_ACQUIRE:
        redis_acquire_fill(call, r, t, false);
        break;
    case REMOTE_RELEASE:
        change_fill_release(call, op);
        break;
    case REMOTE_RELEASE_RANGE:
        change_fill_release_range(call, op);
        break;
    case REMOTE_RENEW:
        change_fill_renew(call, op, t);
        break;
    case REMOTE_SET:
        redis_call_ticket(call, r, REDIS_SET, t);
        change_fill_change(call, &op->change);
        redis_call_flag(call, "untold", !op->done);
        break;
    case REMOTE_RENAME:
        change_fill_rename(call, op, t);
        break;
    case REMOTE_CONVERT:
        redis_call_ticket(call, r, REDIS_CONVERT, t);
        redis_call_claim(call, t, &op->claim);
        change_fill_change(call, &op->change);
        break;
    }
}

/* What is asked first of a lock that is likely free, or held by one alone; false: it is nothing like that. */
static bool change_fill_short(struct redis_call *call, const struct remote_op *op, const struct remote_ticket *t)
{
    struct redis *r = redis_of(op);
    if (op->procedure == REMOTE_ACQUIRE && redis_acquire_may_be_free(r, t)) {
        redis_acquire_fill_free(call, r, t);
        return true;
    }
    if (op->procedure == REMOTE_RELEASE && op->alone) {
        redis_call_lone(call, r, op->name);
        redis_call_word(call, op->token);
        redis_call_word(call, remote_leaf(op->file));
        redis_call_word_lease(call, op->token, op->name, op->lease);
        return true;
    }
    return false;
}

/* --- what is answered --- */

static enum backend_result change_result(const struct remote_op *op, const struct redis_answer *given)
{
    if (given->outcome == REMOTE_ANSWERED && op->procedure == REMOTE_RENEW) {
        struct redis *r = redis_of(op);
        int64_t held = redis_number(given->reply, 0);
        if (held == 1 || held == 3) {
            epoch_on_confirmed(&r->epoch, op->token, held == 3);
        } else if (held == 0) {
            epoch_on_missing(&r->epoch);
        }
        return held == 1 || held == 3 ? BACKEND_OK : held == 0 ? BACKEND_STALE : BACKEND_BUSY;
    }
    if (given->outcome == REMOTE_ANSWERED && op->procedure == REMOTE_RELEASE) { /* or it was gone already */
        return redis_number(given->reply, 0) == 2 ? BACKEND_BUSY : BACKEND_OK;
    }
    return redis_result(redis_of(op), given);
}

static void change_on_answer(void *arg, const struct redis_answer *given)
{
    struct remote_op *op = arg;
    struct backend_info holder = {.type = BACKEND_LOCK, .holders = 1};
    struct remote_answer answer = {
        .outcome = given->outcome, .sent = given->sent, .repeated = given->repeated || op->again};
    if (op->procedure == REMOTE_ACQUIRE) {
        redis_acquire_read(op, given, &answer, &holder);
    } else {
        answer.result = change_result(op, given);
        redis_fence(given->reply, 1, &answer.fence);
    }
    op->answered(op, &answer);
    redis_info_clear(&holder);
}

static void change_forget_short(struct remote_op *op)
{
    GHashTable *releases = redis_of(op)->releases;
    if (op->procedure == REMOTE_RELEASE && g_hash_table_lookup(releases, op->name) == op) {
        g_hash_table_remove(releases, op->name);
    }
}

/* The short way leads nowhere where there is more to it. */
static void change_on_short_answer(void *arg, const struct redis_answer *given)
{
    struct remote_op *op = arg;
    change_forget_short(op);
    bool nothing = given->outcome == REMOTE_ANSWERED && given->reply->type == REDIS_REPLY_NIL;
    if (nothing || given->outcome != REMOTE_ANSWERED) {
        redis_of(op)->noted = 0; /* that may not have been done, either */
    }
    if (!nothing) {
        change_on_answer(arg, given);
        return;
    }
    struct remote_ticket *t = op->procedure == REMOTE_ACQUIRE ? remote_ticket_find(op->r, op->token) : NULL;
    struct redis_call call = {0};
    op->again = given->repeated;
    change_fill(&call, op, t);
    uint64_t id = redis_call_send(&call, 0, change_on_answer, op);
    if (t) {
        t->request = id;
    }
}

/* A release in the short way that leads nowhere would be carried out behind what is asked now of the name: so it is
 * asked for in full before that. */
static void change_release_in_full(struct redis *r, const char *name)
{
    struct remote_op *op = g_hash_table_lookup(r->releases, name);
    struct redis_call call = {0};
    if (op) {
        change_forget_short(op);
        redis_conn_forget(r->conn, op->request);
        change_fill(&call, op, NULL);
        redis_call_send(&call, 0, change_on_answer, op);
    }
}

/* --- many renewals at once --- */

/* Of a lock that this mount holds alone, as far as is known: renew_many.lua is asked first. */
static bool change_may_be_gathered(const struct remote_op *op, const struct remote_ticket *t)
{
    return op->procedure == REMOTE_RENEW && op->in_lane && op->left == op->ttl && !t->place->sequence && !t->segments &&
           op->claim.mode == BACKEND_EXCLUSIVE && !epoch_is_closed(&redis_of(op)->epoch);
}

static void change_ask_renewal(struct remote_op *op)
{
    struct remote_ticket *t = remote_ticket_find(op->r, op->token);
    struct redis_call call = {0};
    if (t) {
        change_fill(&call, op, t);
        redis_call_send(&call, 0, change_on_answer, op);
    } else { /* it was released meanwhile */
        op->answered(op, &(struct remote_answer){.outcome = REMOTE_ANSWERED, .result = BACKEND_STALE});
    }
}

static void change_on_renewals(void *arg, const struct redis_answer *given)
{
    GPtrArray *ops = arg;
    struct redis *r = redis_of(ops->pdata[0]);
    bool answered = given->outcome == REMOTE_ANSWERED;
    g_hash_table_steal(r->renewals, ops);
    for (guint i = 0; i < ops->len; i++) {
        struct remote_op *op = ops->pdata[i];
        if (!answered) {
            change_on_answer(op, given);
        } else if (redis_number(given->reply, i) == 1) {
            epoch_on_confirmed(&r->epoch, op->token, false);
            op->answered(op, &(struct remote_answer){
                                 .outcome = given->outcome, .sent = given->sent, .repeated = given->repeated});
        } else {
            change_ask_renewal(op);
        }
    }
    g_ptr_array_unref(ops);
}

void redis_send_renewals(struct redis *r)
{
    GPtrArray *ops = g_steal_pointer(&r->gathered);
    struct redis_call call = {.r = r, .script = REDIS_RENEW_MANY};
    if (ops->len == 1) {
        change_ask_renewal(ops->pdata[0]);
        g_hash_table_remove(r->renewals, ops);
        return;
    }
    guint begin = redis_call_array(&call, "tickets");
    for (guint i = 0; i < ops->len; i++) {
        const struct remote_op *op = ops->pdata[i];
        redis_call_key(&call, 0, op->name);
        pack_text(r->packed, op->token, strlen(op->token));
        pack_number(r->packed, op->ttl);
    }
    pack_count(r->packed, begin, 2 * ops->len);
    redis_call_key(&call, 'm', NULL);
    redis_call_send(&call, 0, change_on_renewals, ops);
}

/* Those of one turn of the loop go together. */
static void change_gather(struct redis *r, struct remote_op *op)
{
    if (!r->gathered) {
        r->gathered = g_ptr_array_new();
        g_hash_table_add(r->renewals, r->gathered);
        ev_feed_event(r->remote.loop, &r->gathering, EV_CUSTOM);
    }
    g_ptr_array_add(r->gathered, op);
}

uint64_t redis_call_op(struct remote_op *op, struct remote_ticket *t, int64_t timeout)
{
    struct redis *r = redis_of(op);
    struct redis_call call = {0};
    epoch_before_request(&r->epoch, op, t);
    if (change_may_be_gathered(op, t)) {
        change_gather(r, op);
        return 0;
    }
    bool is_short = change_fill_short(&call, op, t);
    if (!is_short) {
        if (op->procedure == REMOTE_ACQUIRE || op->procedure == REMOTE_RENAME) {
            change_release_in_full(r, op->procedure == REMOTE_ACQUIRE ? t->place->name : op->name);
        }
        change_fill(&call, op, t);
    }
    uint64_t id = redis_call_send(&call, timeout, is_short ? change_on_short_answer : change_on_answer, op);
    if (is_short && op->procedure == REMOTE_RELEASE) {
        op->request = id;
        g_hash_table_replace(r->releases, op->name, op);
    }
    return id;
}

void redis_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                  backend_done *done, void *arg)
{
    const struct remote_ticket *t = (const struct remote_ticket *)ticket;
    if (!*name || !redis_key_allowed((struct redis *)b, name) || t->place->sequence) {
        done(arg, *name ? BACKEND_INVALID : BACKEND_IS_DIRECTORY);
    } else {
        ((struct remote_ticket *)ticket)->alone = false;
        remote_tell_expired((struct remote *)b, name);
        remote_rename(b, ticket, name, replaced, done, arg);
    }
}
