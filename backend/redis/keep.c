/* keep: what keeps a ticket in the server, and what ends it there: renewals and releases. */
#include <string.h>

#include "backend/redis/private.h"

/* --- release --- */

static void on_released(void *arg, const struct redis_answer *answer);

static void send_release(struct redis_op *op, int64_t timeout)
{
    struct redis_call call = {0};
    bool sequence = op->claim.sequence;

    redis_call_lock(&call, op->r, REDIS_RELEASE, op->name, sequence, NULL);
    redis_call_leaf(&call, op->file, sequence);
    redis_call_text(&call, op->token);
    redis_call_text(&call, op->why);
    redis_call_text(&call, op->lease ? op->r->identity : "");
    redis_call_text(&call, op->name);
    redis_call_send(&call, timeout, on_released, op);
}

/* 0 means that it was gone already: released all the same. */
static void on_released(void *arg, const struct redis_answer *answer)
{
    struct redis_op *op = arg;
    enum backend_result result = answer->outcome == REDIS_REPLY ? BACKEND_OK : redis_failure(op->r, answer);
    int64_t ttl = MIN(op->ttl, REDIS_RELEASE_MAX);

    if (result == BACKEND_OK || ttl <= 0) {
        redis_op_finish(op, result);
        return;
    }
    if (op->done)
        op->done(op->arg, result);
    op->done = NULL;
    op->ttl = 0;
    send_release(op, ttl);
}

void redis_send_release(struct redis *r, const struct redis_ticket *t, const char *why, backend_done *done, void *arg)
{
    struct redis_op *op = redis_op_done(r, t, done, arg);

    op->claim.sequence = t->place->sequence;
    op->name = g_strdup(t->place->name);
    op->file = g_strdup(t->place->sequence ? t->name : t->place->name);
    op->ttl = t->head.ttl;
    op->why = why;
    op->lease = t->head.kind == BACKEND_LEASE;
    if (t->moving) { /* it is under one name or the other */
        struct redis_op *other = redis_op_done(r, t, NULL, NULL);

        other->name = g_strdup(t->moving);
        other->file = g_strdup(t->moving);
        other->ttl = t->head.ttl;
        other->why = why;
        send_release(other, 0);
    }
    send_release(op, 0);
}

/* --- renewing --- */

static void on_extended(void *arg, const struct redis_answer *answer)
{
    struct redis_op *op = arg;
    struct redis *r = op->r;
    struct redis_ticket *t = redis_ticket_find(r, op->token);
    int64_t ttl = op->ttl;
    bool gone = answer->outcome == REDIS_REPLY && redis_number(answer->reply, 0) == 0;
    bool moved = t && redis_ticket_has_moved(t, op->name);

    redis_op_free(op);
    if (!t || t->state != REDIS_HELD)
        return;
    if (gone && !moved) {
        redis_ticket_end(r, t, BACKEND_LOST, t->moving != NULL);
        return;
    }
    if (gone) {
        t->refresh = clock_now() + REDIS_RENEW_RETRY;
    } else if (answer->outcome == REDIS_REPLY) {
        t->renewing = false;
        t->head.deadline = redis_deadline(answer->sent, MIN(ttl, t->head.ttl)); /* a shorter one was asked for since */
        t->refresh = CLOCK_NEVER;
    } else {
        redis_failure(r, answer);
        t->refresh = clock_now() + REDIS_RENEW_RETRY;
    }
    redis_ticket_schedule(r, t);
}

void redis_extend(struct redis *r, struct redis_ticket *t)
{
    struct redis_call call = {0};
    struct redis_op *op = redis_op_new(r, t);

    t->renewing = true;
    op->ttl = t->head.ttl;
    op->name = g_strdup(t->place->name);
    redis_call_ticket(&call, r, REDIS_RENEW, t);
    redis_call_number(&call, t->head.ttl);
    redis_call_send(&call, 0, on_extended, op);
}

/* --- ends, and doubts --- */

void redis_ticket_end(struct redis *r, struct redis_ticket *t, enum backend_end why, bool release)
{
    if (release && !t->over)
        redis_send_release(r, t, why == BACKEND_EXPIRED ? "expired" : "lost", NULL, NULL);
    if (t->acquired) { /* its user does not have it yet */
        t->acquired(t->arg, BACKEND_UNREACHABLE, NULL, NULL);
    } else {
        r->events->ended(r->context, &t->head, why);
    }
    redis_ticket_free(r, t);
}

void redis_ticket_tell_over(struct redis *r, const char *name)
{
    struct redis_place *place = g_hash_table_lookup(r->places, name);
    struct redis_ticket *t;

    for (t = place ? LIST_FIRST(&place->tickets) : NULL; t; t = LIST_NEXT(t, link)) {
        if (t->state == REDIS_HELD && !t->over && t->head.deadline <= clock_now()) {
            redis_send_release(r, t, "expired", NULL, NULL);
            t->over = true;
        }
    }
}

void redis_ticket_doubt(struct redis *r, struct redis_place *place, const struct redis_ticket *sure)
{
    struct redis_ticket *t;

    LIST_FOREACH(t, &place->tickets, link) {
        bool kin = sure && ((t->handle && t->handle == sure->handle) || (t->party && t->party == sure->party));

        if (t != sure && !kin && t->state == REDIS_HELD && !t->over && !t->renaming && !t->moving)
            redis_extend(r, t);
    }
}
