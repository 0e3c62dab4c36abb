/* range: the byte ranges that a lock owner holds and waits for.
 *
 * A lock owner holds a lock by one ticket, whose segments never overlap and are as few as can be, as POSIX
 * record locks are (fcntl(2)).  A ticket that is granted after a wait stays unclaimed until its user learns of it, so
 * that it can be given back alone until then.  Only FCNTL tickets take part in that.
 */
#include "backend/deadlock.h"
#include "backend/lockspace/private.h"

static struct group *range_group(struct lockspace *space, const struct entry *lock, uint64_t lock_owner)
{
    return lock_owner ? lockspace_group(space, GROUP_LOCK_OWNER, lock_owner, lock) : NULL;
}

static bool range_holds(const struct ticket *t)
{
    return t->head.held && t->head.kind == BACKEND_FCNTL && !t->scope->unclaimed;
}

/* The ticket with which a lock owner holds, but not `except`; NULL: it has none. */
static struct ticket *range_held(struct lockspace *space, const struct entry *lock, uint64_t lock_owner,
                                 const struct ticket *except)
{
    struct ticket *t = lock->type == ENTRY_SINGLE ? lock->ticket : NULL;
    if (t) {
        bool own = lock_owner && lockspace_lock_owner(t) == lock_owner;
        return own && t != except && range_holds(t) ? t : NULL;
    }
    const struct group *g = range_group(space, lock, lock_owner);
    for (t = g ? g->first : NULL; t && (t == except || !range_holds(t)); t = t->scope->next[GROUP_LOCK_OWNER]) {
    }
    return t;
}

bool lockspace_range_may_grow(struct lockspace *space, const struct entry *lock, uint64_t lock_owner)
{
    const struct ticket *held = range_held(space, lock, lock_owner, NULL);
    const struct group *g = range_group(space, lock, lock_owner);
    return (g ? g->count : 1) + (held ? held->scope->segments->len : 0) <= LOCKSPACE_RANGES_MAX;
}

static void range_swap_bytes(GBytes **a, GBytes **b)
{
    GBytes *bytes = *a;
    *a = *b;
    *b = bytes;
}

/* Before and after a change to these bytes of a ticket that holds: segments that touch them may grow together. */
static void range_remove_spans(struct lockspace *space, struct queue *q, struct ticket *t, uint64_t start, uint64_t end)
{
    if (q) {
        lockspace_spans_remove(space, &q->held, t, start - (start > 0), end + (end < BACKEND_RANGE_MAX));
    }
}

static void range_add_spans(struct lockspace *space, struct queue *q, struct ticket *t, uint64_t start, uint64_t end)
{
    if (q) {
        lockspace_spans_add(space, &q->held, t, start - (start > 0), end + (end < BACKEND_RANGE_MAX));
    }
}

bool lockspace_range_join(struct lockspace *space, struct ticket *t, bool new)
{
    const struct entry *lock = lockspace_lock_of(t);
    bool ranged = t->head.kind == BACKEND_FCNTL && lock->type != ENTRY_DIRECTORY;
    struct ticket *held = ranged ? range_held(space, lock, lockspace_lock_owner(t), t) : NULL;
    if (t->scope) {
        t->scope->unclaimed = false;
    }
    if (!held) {
        return false;
    }
    struct queue *q = lockspace_queue(lock);
    struct scope *scope = t->scope;
    const struct backend_segment *s = &g_array_index(scope->segments, struct backend_segment, 0);
    range_remove_spans(space, q, held, s->start, s->end);
    lockspace_leave_only(space, held);
    if (!new) {
        lockspace_leave(space, t);
    } else if (q) {
        q->granted = MAX(q->granted, t->head.fence);
    }
    t->scope = held->scope;
    backend_segments_set(t->scope->segments, s->start, s->end, &s->mode);
    held->scope = scope;
    t->head.mode = (uint8_t)backend_segments_mode(t->scope->segments);
    t->head.fence = held->head.fence;
    t->head.acquired = held->head.acquired;
    t->head.joined = true;
    range_swap_bytes(&t->meta, &held->meta);
    range_swap_bytes(&t->head.content, &held->head.content);
    lockspace_join_only(space, t, true);
    range_add_spans(space, q, t, s->start, s->end);
    space->listener.absorbed(space->context, &held->head);
    lockspace_ticket_free(&held->head);
    return true;
}

enum backend_result lockspace_range_take(struct lockspace *space, struct ticket *t, uint64_t start, uint64_t end)
{
    const GArray *held = t->scope->segments;
    GArray *left = g_array_copy((GArray *)held);
    backend_segments_set(left, start, end, NULL);
    enum backend_result result = BACKEND_OK;
    if (left->len == 0) {
        result = BACKEND_MISSING;
    } else if (left->len > held->len &&
               !lockspace_range_may_grow(space, lockspace_lock_of(t), lockspace_lock_owner(t))) {
        result = BACKEND_QUOTA;
    }
    if (result != BACKEND_OK) {
        g_array_unref(left);
        return result;
    }
    struct queue *q = lockspace_queue(lockspace_lock_of(t));
    lockspace_unlink(space, t);
    range_remove_spans(space, q, t, start, end);
    g_array_unref(t->scope->segments);
    t->scope->segments = left;
    t->head.mode = (uint8_t)backend_segments_mode(left);
    range_add_spans(space, q, t, start, end);
    lockspace_link(space, t);
    return BACKEND_OK;
}

static void range_visit_tickets(struct deadlock *search, void *store, uint64_t lock_owner)
{
    const struct group *g = lockspace_group(store, GROUP_WAITING, lock_owner, NULL);
    for (const struct ticket *t = g ? g->first : NULL; t; t = t->scope->next[GROUP_WAITING]) {
        deadlock_add_ticket(search, t);
    }
}

static void range_visit_blockers(struct deadlock *search, void *store, const void *ticket)
{
    static const uint64_t none = 0;
    const struct ticket *waiter = ticket, *blocker;
    struct blocker_walk walk = {0};
    while ((blocker = lockspace_next_blocker(store, waiter->entry, waiter, &walk)) &&
           deadlock_may_take(search, walk.steps)) {
        walk.steps = 0;
        deadlock_add_blocker(search, blocker, blocker->scope ? &blocker->scope->lock_owner : &none,
                             !blocker->head.held);
    }
}

bool lockspace_range_deadlock(struct lockspace *space, const struct ticket *t)
{
    static const struct deadlock_rules rules = {.visit_blockers = range_visit_blockers,
                                                .visit_tickets = range_visit_tickets};
    uint64_t self = lockspace_lock_owner(t);
    if (t->head.kind != BACKEND_FCNTL || !self || !lockspace_group(space, GROUP_WAITING, self, NULL)) {
        return false; /* nobody waits for it */
    }
    return deadlock_search(&rules, space, t, self);
}
