/* change: what is done to tickets. */
#include <string.h>

#include "backend/redis/private.h"

/* --- release --- */

/* 0 means that it was gone already: released all the same. */
static void change_on_released(void *arg, const struct redis_answer *answer)
{
    struct remote_op *op = arg;
    remote_released(op, answer->outcome == REDIS_REPLY ? BACKEND_OK : redis_failure(redis_of(op), answer));
}

void redis_send_release(struct remote_op *op, int64_t timeout)
{
    struct redis *r = redis_of(op);
    struct redis_call call = {0};
    bool sequence = op->claim.sequence;
    redis_call_lock(&call, r, REDIS_RELEASE, op->name, sequence, NULL);
    redis_call_leaf(&call, op->file, sequence);
    redis_call_text(&call, "ticket", op->token);
    redis_call_text(&call, "mount", r->mount);
    redis_call_text(&call, "path", op->name);
    redis_call_unsigned(&call, "owner", op->claim.lock_owner);
    if (*op->why) {
        redis_call_text(&call, "why", op->why);
    }
    redis_call_flag(&call, "lease", op->lease);
    redis_call_send(&call, timeout, change_on_released, op);
}

static void change_on_range_released(void *arg, const struct redis_answer *answer);

static void change_send_release_range(struct remote_op *op, int64_t timeout)
{
    struct redis_call call = {0};
    redis_call_lock(&call, redis_of(op), REDIS_RELEASE_RANGE, op->name, false, NULL);
    redis_call_leaf(&call, op->name, false);
    redis_call_text(&call, "mount", redis_of(op)->mount);
    redis_call_range(&call, op->claim.lock_owner, op->claim.start, op->claim.end);
    redis_call_send(&call, timeout, change_on_range_released, op);
}

static bool change_has_lock_owner(struct redis *r, const char *name, uint64_t lock_owner)
{
    struct remote_place *place = g_hash_table_lookup(r->remote.places, name);
    struct remote_ticket *t;
    for (t = place ? LIST_FIRST(&place->tickets) : NULL; t && t->lock_owner != lock_owner; t = LIST_NEXT(t, link)) {
    }
    return t;
}

/* What a lock owner holds after a part of it was perhaps given back. */
static void change_forget_segments(struct redis *r, const struct remote_op *op)
{
    struct remote_place *place = g_hash_table_lookup(r->remote.places, op->name);
    struct remote_ticket *t;
    for (t = place ? LIST_FIRST(&place->tickets) : NULL; t; t = LIST_NEXT(t, link)) {
        if (t->lock_owner == op->claim.lock_owner) {
            remote_ticket_segments(t, "");
        }
    }
}

static void change_on_range_released(void *arg, const struct redis_answer *answer)
{
    struct remote_op *op = arg;
    struct redis *r = redis_of(op);
    int64_t ttl = MIN(op->ttl, REMOTE_RELEASE_MAX);
    if (answer->outcome != REDIS_REPLY) {
        enum backend_result result = redis_failure(r, answer);
        if (op->done) {
            op->done(op->arg, result);
        }
        op->done = NULL;
        op->ttl = 0;
        change_forget_segments(r, op);
        /* what was forgotten here; unless it has asked for more since, which may be the same to the server */
        if (ttl > 0 && !change_has_lock_owner(r, op->name, op->claim.lock_owner)) {
            change_send_release_range(op, ttl);
        } else {
            remote_op_free(op);
        }
        return;
    }
    for (size_t i = 0; i + 1 < answer->reply->elements; i += 2) {
        struct remote_ticket *t = remote_ticket_find(&r->remote, redis_text(answer->reply, i));
        const char *left = redis_text(answer->reply, i + 1);
        if (t && (t->state != REMOTE_HELD || t->lock_owner != op->claim.lock_owner ||
                  strcmp(t->place->name, op->name) != 0)) {
            continue; /* not one of those that were asked about */
        }
        if (t && *left) {
            remote_ticket_segments(t, left);
        } else if (t) {
            remote_ticket_free(&r->remote, t);
        }
    }
    remote_op_finish(op, BACKEND_OK);
}

void redis_release_range(struct backend *b, const char *name, uint64_t lock_owner, uint64_t start, uint64_t end,
                         backend_done *done, void *arg)
{
    struct redis *r = (struct redis *)b;
    struct remote_place *place = g_hash_table_lookup(r->remote.places, name);
    struct remote_op *op = remote_op_done(&r->remote, NULL, done, arg);
    struct remote_ticket *t, *next;
    op->name = g_strdup(name);
    op->claim = (struct backend_claim){.lock_owner = lock_owner, .start = start, .end = end};
    change_send_release_range(op, 0);
    for (t = place && start == 0 && end == BACKEND_RANGE_MAX ? LIST_FIRST(&place->tickets) : NULL; t; t = next) {
        next = LIST_NEXT(t, link);
        if (t->lock_owner == lock_owner && t->state == REMOTE_HELD) {
            op->ttl = MAX(op->ttl, t->head.ttl);
            remote_ticket_free(&r->remote, t);
        }
    }
}

/* --- convert, set --- */

static void change_add(struct redis_call *call, const struct backend_change *c)
{
    if (c->set & BACKEND_SET_META) {
        redis_call_bytes(call, "meta", c->meta);
    }
    if (c->set & BACKEND_SET_CONTENT) {
        redis_call_bytes(call, "content", c->content);
    }
}

static void change_on_converted(void *arg, const struct redis_answer *answer)
{
    struct remote_op *op = arg;
    remote_converted(op, redis_result(redis_of(op), answer), answer->outcome == REDIS_UNKNOWN, answer->sent);
}

void redis_send_convert(struct remote_op *op, struct remote_ticket *t, int64_t timeout)
{
    struct redis_call call = {0};
    redis_call_ticket(&call, redis_of(op), REDIS_CONVERT, t);
    redis_call_claim(&call, t, &op->claim);
    change_add(&call, &op->change);
    redis_call_send(&call, timeout, change_on_converted, op);
}

static void change_on_set(void *arg, const struct redis_answer *answer)
{
    struct remote_op *op = arg;
    remote_was_set(op, redis_result(redis_of(op), answer));
}

void redis_send_set(struct remote_op *op, struct remote_ticket *t)
{
    struct redis_call call = {0};
    redis_call_ticket(&call, redis_of(op), REDIS_SET, t);
    change_add(&call, &op->change);
    redis_call_send(&call, 0, change_on_set, op);
}

/* --- renew --- */

static void change_on_renewed(void *arg, const struct redis_answer *answer)
{
    struct remote_op *op = arg;
    int64_t held = redis_number(answer->reply, 0);
    enum backend_result result = held == 1 ? BACKEND_OK : held == 0 ? BACKEND_STALE : BACKEND_BUSY;
    remote_renewed(op, answer->outcome == REDIS_REPLY ? result : redis_failure(redis_of(op), answer), answer->sent);
}

void redis_send_renewal(struct remote_op *op, struct remote_ticket *t)
{
    struct redis_call call = {0};
    redis_call_ticket(&call, redis_of(op), REDIS_RENEW, t);
    redis_call_number(&call, "ttl", op->ttl);
    redis_call_number(&call, "mode", (int64_t)op->claim.mode);
    if (op->segments) {
        redis_call_segments(&call, op->segments);
    }
    redis_call_send(&call, 0, change_on_renewed, op);
}

/* --- rename --- */

static void change_on_renamed(void *arg, const struct redis_answer *answer)
{
    struct remote_op *op = arg;
    enum backend_result result = redis_result(redis_of(op), answer);
    bool unknown = answer->outcome == REDIS_UNKNOWN ||
                   (answer->repeated && (answer->outcome == REDIS_ERROR || result == BACKEND_STALE));
    uint64_t fence = 0;
    redis_fence(answer->reply, 1, &fence);
    remote_renamed(op, result, unknown, fence);
}

void redis_send_rename(struct remote_op *op, struct remote_ticket *t)
{
    struct redis *r = redis_of(op);
    struct redis_call call = {0};
    const char *name = op->name, *leaf;
    redis_call_lock(&call, r, REDIS_RENAME, t->place->name, false, NULL);
    redis_call_lock(&call, r, REDIS_RENAME, name, false, "i");
    redis_call_leaf(&call, t->place->name, false);
    redis_call_text(&call, "ticket", t->token);
    g_free(remote_parent(name, &leaf));
    redis_call_text(&call, "new_leaf", leaf);
    redis_call_text(&call, "path", name);
    redis_call_flag(&call, "needed", leaf != name);
    if (op->replaced) {
        redis_call_text(&call, "replaced", op->replaced);
    }
    redis_call_send(&call, 0, change_on_renamed, op);
}

void redis_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                  backend_done *done, void *arg)
{
    const struct remote_ticket *t = (const struct remote_ticket *)ticket;
    if (!*name || !redis_key_allowed((struct redis *)b, name) || t->place->sequence) {
        done(arg, *name ? BACKEND_INVALID : BACKEND_IS_DIRECTORY);
    } else {
        remote_rename(b, ticket, name, replaced, done, arg);
    }
}
