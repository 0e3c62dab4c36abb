/* grant: which waiter holds next, and how a ticket ends.
 *
 * After tickets were removed or weakened, lockspace_grant_waiters grants the waiters that may hold now.
 */
#include "backend/lockspace/private.h"

/* `wanted` goes to up to this many holders. */
enum { WANTED_MAX = 64 };

/* So many waiters are looked at in one call. */
enum { GRANT_PART = 64 };

void lockspace_report_wanted(struct lockspace *space, const struct ticket *t)
{
    const struct entry *lock = lockspace_lock_of(t);
    const struct queue *q = lockspace_queue(lock);
    struct skiplist_node *node = skiplist_first(&q->holders);
    for (unsigned i = 0; node && i < WANTED_MAX; i++, node = skiplist_next(node)) {
        struct ticket *holder = lockspace_ticket(node);
        if (!lockspace_is_ownerless(&holder->head) && lockspace_conflict(lock, holder, t)) {
            space->listener.wanted(space->context, &holder->head);
        }
    }
}

/* Puts a delay in the place of a ticket that has left, for `delay` ms.  A lock has only one: it excludes everybody. */
static void grant_delay(struct lockspace *space, clock_ms now, const struct ticket *lost, int64_t delay)
{
    const struct entry *lock = lockspace_lock_of(lost);
    const struct queue *q = lockspace_queue(lock);
    if (q && q->delay) {
        sorted_remove(&space->agenda, q->delay);
        lockspace_start_term(q->delay, now, MAX(delay, q->delay->head.deadline - now), 0);
        sorted_insert(&space->agenda, q->delay);
        return;
    }
    struct ticket *t = g_new0(struct ticket, 1);
    t->head.kind = LOCKSPACE_DELAY;
    t->head.mode = BACKEND_EXCLUSIVE;
    t->head.fence = lost->head.fence;
    t->head.acquired = now;
    t->entry = lockspace_lock_of(lost);
    t->meta = lost->meta ? g_bytes_ref(lost->meta) : NULL;
    lockspace_start_term(t, now, delay, 0);
    lockspace_join(space, t, true);
}

/* Reports the end of a ticket that has left, and had this path. */
static void grant_report_ended(struct lockspace *space, struct ticket *t, struct entry *path, enum backend_end why)
{
    bool guard = t->head.guarded;
    t->entry = path;
    if (guard) {
        space->listener.unguarded(space->context, &t->head);
        lockspace_ticket_free(&t->head);
    } else {
        space->listener.ended(space->context, &t->head, why);
    }
}

void lockspace_expel(struct lockspace *space, clock_ms now, struct ticket *t, enum backend_end why)
{
    struct entry *entry = t->entry;
    if (t->head.kind == LOCKSPACE_DELAY) {
        lockspace_remove(space, t);
        return;
    }
    int64_t delay = entry->parent->attributes.delay;
    enum backend_end first = t->head.guarded ? (enum backend_end)(t->head.guarded - 1) : why;
    bool lost = first != BACKEND_RELEASED; /* against the will of its holder */
    struct entry *ended = lockspace_entry_ended(entry);
    lockspace_leave(space, t);
    lockspace_catch_up(t, now);
    if (lost && delay > 0 && t->head.held && t->head.kind != BACKEND_PROVISIONAL) {
        grant_delay(space, now, t, delay);
    }
    if (entry->type == ENTRY_SEQUENCE) {
        lockspace_entry_free(space, entry);
    }
    grant_report_ended(space, t, ended, why);
}

/* The guard for a ticket that is about to leave; it shows all that the ticket showed. */
static struct ticket *grant_guard(clock_ms now, const struct ticket *t, enum backend_end why, int64_t guard)
{
    struct ticket *g = backend_new0(sizeof *g);
    g->head = t->head;
    g->head.user = NULL;
    g->head.content = t->head.content ? g_bytes_ref(t->head.content) : NULL;
    g->head.guarded = (uint8_t)(1 + why);
    g->head.deadline = MIN(backend_ticket_deadline(&t->head, now), now + guard);
    g->head.resting = false;
    g->due = CLOCK_NEVER;
    g->entry = t->entry;
    g->meta = g_bytes_ref(t->meta);
    if (lockspace_segments(t)) {
        g->scope = backend_new0(sizeof(struct scope));
        g->scope->segments = g_array_ref(lockspace_segments(t));
    }
    return g;
}

void lockspace_expel_revoked(struct lockspace *space, clock_ms now, struct ticket *t, enum backend_end why)
{
    int64_t guard = t->head.held && !t->head.guarded ? backend_parse_guard(t->meta) : 0;
    if (guard == 0) {
        lockspace_expel(space, now, t, why);
        return;
    }
    struct ticket *g = grant_guard(now, t, why, guard);
    struct entry *path = lockspace_entry_ended(t->entry);
    lockspace_leave(space, t);
    if (g->entry->type == ENTRY_SEQUENCE) {
        g->entry->ticket = g;
    }
    lockspace_join(space, g, true);
    t->head.guarded = g->head.guarded;
    t->entry = path;
    space->listener.guarded(space->context, &g->head);
    space->listener.ended(space->context, &t->head, why);
}

/* Grants the lock to a waiter, or ends it if it has expired.  True if that
 * may let waiters hold that were skipped before. */
static bool grant_ticket(struct lockspace *space, clock_ms now, struct ticket *t)
{
    struct queue *q = lockspace_queue(lockspace_lock_of(t));
    if (lockspace_is_expired(t, now)) {
        lockspace_expel(space, now, t, BACKEND_EXPIRED);
        return true;
    }
    lockspace_leave(space, t);
    int64_t due = t->scope ? t->scope->due : 0;
    if (t->head.fence < q->granted && (t->entry->type != ENTRY_SEQUENCE || space->of_record)) {
        t->head.fence = space->next_fence++; /* it was overtaken: see lockspace.h */
    }
    t->head.held = true;
    t->head.acquired = now;
    if (t->entry->type != ENTRY_SEQUENCE) { /* there the term runs while it waits, and is renewed for its own reasons */
        lockspace_start_term(t, now, t->head.ttl, due);
    }
    lockspace_trim_scope(t);
    if (t->scope) {
        t->scope->unclaimed = t->head.kind == BACKEND_FCNTL;
    }
    lockspace_join(space, t, true);
    space->listener.granted(space->context, &t->head);
    return q->same_identity > 0;
}

/* Is no waiter behind `t`, which `blocker` blocks, granted any of start..end? */
static bool grant_is_over(const struct entry *lock, const struct ticket *t, const struct ticket *blocker,
                          uint64_t start, uint64_t end)
{
    if (lock->type == ENTRY_DIRECTORY) {
        /* all behind it are exclusive and too far, or shared and behind what it is behind */
        return !lockspace_shared(t) || lockspace_position(t) >= lock->directory->attributes.width;
    }
    return lock->queue->same_identity == 0 &&
           (lockspace_excludes(t, start, end) || lockspace_excludes(blocker, start, end));
}

static int grant_probe(const void *item, const void *key)
{
    const struct ticket *t = item;
    const uint64_t *fence = key;
    return t->head.fence < *fence ? -1 : t->head.fence > *fence;
}

/* Looks at the next waiters in their order; false: the rest is left for the next tick. */
static bool grant_part(struct lockspace *space, clock_ms now, struct queue *q)
{
    struct skiplist_node *node = skiplist_seek(&q->waiters, grant_probe, &q->grants.from, false);
    for (unsigned i = 0; node && i < GRANT_PART; i++) {
        struct ticket *t = lockspace_ticket(node);
        uint64_t start = q->grants.start, end = q->grants.end;
        node = skiplist_next(node);
        q->grants.from = t->head.fence + 1;
        if (lockspace_start(t) > end || lockspace_end(t) < start) {
            continue;
        }
        const struct ticket *blocker = lockspace_blocker(space, q->lock, t);
        if (blocker && grant_is_over(q->lock, t, blocker, start, end)) {
            return true;
        }
        if (!blocker && grant_ticket(space, now, t)) {
            q->grants.start = q->grants.from = 0;
            q->grants.end = BACKEND_RANGE_MAX;
            node = skiplist_first(&q->waiters);
        }
    }
    return !node;
}

static void grant_some(struct lockspace *space, clock_ms now, struct queue *q)
{
    bool left;
    do {
        left = !grant_part(space, now, q);
    } while (left && space->of_record);
    if (left && !q->grants.left) {
        LIST_INSERT_HEAD(&space->granting, q, granting);
    } else if (!left && q->grants.left) {
        LIST_REMOVE(q, granting);
    }
    q->grants.left = left;
    lockspace_shrink(space, q->lock);
}

void lockspace_grant_more(struct lockspace *space, clock_ms now)
{
    grant_some(space, now, LIST_FIRST(&space->granting));
}

void lockspace_grant_waiters(struct lockspace *space, clock_ms now, struct entry *lock, uint64_t start, uint64_t end)
{
    struct queue *q = lockspace_queue(lock);
    if (!q || skiplist_length(&q->waiters) == 0 || space->grants_nothing) {
        lockspace_shrink(space, lock);
        return;
    }
    q->grants.start = q->grants.left ? MIN(q->grants.start, start) : start;
    q->grants.end = q->grants.left ? MAX(q->grants.end, end) : end;
    q->grants.from = 0;
    grant_some(space, now, q);
}

void lockspace_end_ticket(struct lockspace *space, clock_ms now, struct ticket *t, enum backend_end why)
{
    struct entry *lock = lockspace_lock_of(t);
    uint64_t start = lockspace_start(t), end = lockspace_end(t);
    lockspace_expel(space, now, t, why);
    lockspace_grant_waiters(space, now, lock, start, end);
}
