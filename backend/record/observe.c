/* observe: compares a record with the tickets of this mount; see private.h. */
#include <string.h>

#include "backend/record/private.h"

static void observe_push(struct ticket *t, const struct op_type *type, bool changes)
{
    struct op *op = op_new(t->lock->engine, type, t->lock, t);
    op->changes = changes;
    op_push(op);
}

static bool observe_segments_differ(const GArray *a, const GArray *b)
{
    bool differ = a && b && a->len != b->len;
    for (guint i = 0; a && b && !differ && i < a->len; i++) {
        const struct backend_segment *x = &g_array_index(a, struct backend_segment, i);
        const struct backend_segment *y = &g_array_index(b, struct backend_segment, i);
        differ = x->start != y->start || x->end != y->end || x->mode != y->mode;
    }
    return differ;
}

static bool observe_differs(const struct ticket *t, const struct record_ticket *r)
{
    return !r->held || r->kind != t->head.kind || r->mode != t->head.mode ||
           observe_segments_differ(t->segments, r->segments);
}

static void observe_holder(struct ticket *t, const struct record_ticket *r)
{
    struct engine *e = t->lock->engine;
    if (!r && t->renaming) {
        return; /* it may be at its new name, which the op finds out */
    }
    if (!r || r->guarded) {
        bool restores = !r && !t->why && e->must_restore;
        if (restores && !t->changing) {
            observe_push(t, &op_restore, true);
        } else if (!restores) {
            t->head.guarded = r ? r->guarded : 0;
            enum backend_end why = r        ? (enum backend_end)(r->guarded - 1)
                                   : t->why ? (enum backend_end)(t->why - 1)
                                            : BACKEND_LOST;
            ticket_end(t, why);
        }
        return;
    }
    if (!t->changing && observe_differs(t, r)) {
        observe_push(t, &op_restore, true);
    } else {
        t->head.fence = r->fence;
    }
}

static void observe_waiter(struct ticket *t, const struct record_ticket *r, bool own_swap, clock_ms sent)
{
    struct engine *e = t->lock->engine;
    bool revoked = t->why && (t->why - 1 == BACKEND_BROKEN || t->why - 1 == BACKEND_RELEASED);
    if ((!r && revoked) || (r && r->guarded)) {
        ticket_end(t, r ? (enum backend_end)(r->guarded - 1) : (enum backend_end)(t->why - 1));
    } else if (!r && !t->requeued) {
        t->requeued = true;
        observe_push(t, &op_requeue, false);
    } else if (r && r->held && !r->claim && own_swap && ticket_begin_hold(t, (struct record_id){{0}}, sent)) {
        e->events->granted(e->context, &t->head);
    } else if (r && r->held && !t->claiming) {
        t->claiming = true;
        observe_push(t, &op_claim, false);
    } else if (r && !r->held) {
        t->head.fence = r->fence;
    }
}

static bool observe_is_pending(const struct lock *lock, struct record_id id)
{
    const struct op *op;
    TAILQ_FOREACH(op, &lock->ops, link) {
        if (record_id_equal(op->id, id)) {
            return true;
        }
    }
    return false;
}

/* Rule 7: after the number of a new connection stands, the record shows what the requests of the last one have done. */
static void observe_unknown(struct lock *lock)
{
    struct engine *e = lock->engine;
    for (guint i = 0; i < lock->record->tickets->len; i++) {
        const struct record_ticket *r = lock->record->tickets->pdata[i];
        if (record_id_equal(r->mount, e->store->mount) && !r->guarded && !e->recovering && !ticket_find(e, r->id) &&
            !observe_is_pending(lock, r->id)) {
            struct op *op = op_new(e, &op_remove, lock, NULL);
            op->id = r->id;
            op->leaf = g_strdup(r->leaf);
            op_push(op);
        }
    }
}

static bool observe_waits_for(const struct ticket *t, const struct record_ticket *waiter)
{
    const struct engine *e = t->lock->engine;
    struct backend_identity own = {engine_identity(e, t->handle), engine_identity(e, t->lock_owner)};
    bool same_name = !t->leaf || t->sequence || g_strcmp0(t->leaf, waiter->leaf) == 0;
    bool shared = t->head.mode == BACKEND_SHARED && waiter->mode == BACKEND_SHARED;
    bool apart = t->segments && waiter->segments && !backend_segments_conflict(t->segments, waiter->segments);
    return !waiter->held && same_name && !shared && !apart && waiter->sequence == t->sequence &&
           !backend_identity_matches(own, BACKEND_IDENTITY(waiter));
}

/* The last waiter for what it holds, by its token; 0: none. */
static uint64_t observe_last_waiter(const struct ticket *t)
{
    const GPtrArray *tickets = t->lock->record->tickets;
    for (guint i = tickets->len; i > 0; i--) {
        const struct record_ticket *r = tickets->pdata[i - 1];
        if (observe_waits_for(t, r)) {
            return r->fence;
        }
    }
    return 0;
}

/* --- when a waiter looks again --- */

/* Does another mount's waiter stand before ours?  Then that mount looks first, and ours when a grant to it would have
 * run out.  Tickets of a mount that has an unclaimed grant end with that. */
static bool observe_is_second(const struct lock *lock)
{
    const GPtrArray *tickets = lock->record->tickets;
    const struct engine *e = lock->engine;
    for (guint i = 0; i < tickets->len; i++) {
        const struct record_ticket *r = tickets->pdata[i];
        bool claims = false;
        if (r->held) {
            continue;
        }
        if (record_id_equal(r->mount, e->store->mount)) {
            return false;
        }
        for (guint k = 0; k < tickets->len && !claims; k++) {
            const struct record_ticket *other = tickets->pdata[k];
            claims = other->claim && record_id_equal(other->mount, r->mount);
        }
        if (!claims) {
            return true;
        }
    }
    return false;
}

/* Rule 8: the mount of the first waiter looks at the holder's end, because a release may not be reported; that of the
 * second at the end of the claim of the first. */
static void observe_schedule(struct lock *lock)
{
    const struct engine *e = lock->engine;
    clock_ms first = CLOCK_NEVER, now = clock_now();
    bool waits = false, holders = false;
    const struct ticket *t;
    LIST_FOREACH(t, &lock->tickets, link) {
        waits = waits || t->state == TICKET_WAITING;
    }
    for (guint i = 0; i < lock->record->tickets->len && waits; i++) {
        const struct record_ticket *r = lock->record->tickets->pdata[i];
        holders = holders || r->held;
        first = r->held ? MIN(first, r->deadline) : first;
    }
    if (!waits || e->closed) {
        first = CLOCK_NEVER;
    } else if (!holders) {
        first = now;
    } else if (first < CLOCK_NEVER) {
        first += ENGINE_MARGIN - e->offset + (observe_is_second(lock) ? ENGINE_CLAIM + 10 * ENGINE_MARGIN : 0);
    }
    if (waits && lock->lock.state == STORE_FOREIGN) {
        first = MIN(first, now + ENGINE_POLL);
    }
    lock_schedule(lock, first == CLOCK_NEVER ? first : MAX(first, now + ENGINE_MARGIN));
}

void engine_observe(struct lock *lock, bool own_swap, clock_ms sent)
{
    struct engine *e = lock->engine;
    GArray *ids = g_array_new(FALSE, FALSE, sizeof(struct record_id));
    struct ticket *t;
    if (!lock->known || lock->damaged) {
        g_array_unref(ids);
        return;
    }
    LIST_FOREACH(t, &lock->tickets, link) {
        g_array_append_val(ids, t->id);
    }
    for (guint i = ids->len; i > 0; i--) { /* in the order of their calls */
        struct record_id id = g_array_index(ids, struct record_id, i - 1);
        t = ticket_find(e, id);
        if (t && t->lock == lock && t->state == TICKET_HOLDS) {
            observe_holder(t, record_find(lock->record, id));
        } else if (t && t->lock == lock && t->state == TICKET_WAITING) {
            observe_waiter(t, record_find(lock->record, id), own_swap, sent);
        }
    }
    for (guint i = ids->len; i > 0; i--) {
        t = ticket_find(e, g_array_index(ids, struct record_id, i - 1));
        uint64_t waiter = t && t->lock == lock && t->state == TICKET_HOLDS ? observe_last_waiter(t) : 0;
        if (t && waiter > t->wanted) {
            t->wanted = waiter;
            e->events->wanted(e->context, &t->head);
        }
    }
    g_array_unref(ids);
    observe_unknown(lock);
    observe_schedule(lock);
}
