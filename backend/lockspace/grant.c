/* grant: which waiter holds next, and how a ticket ends.
 *
 * After tickets were removed or weakened, lockspace_grant_waiters grants the waiters that may hold now.
 */
#include "backend/lockspace/private.h"

/* `wanted` goes to up to this many holders. */
enum { WANTED_MAX = 64 };

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

/* Puts a delay in the place of a ticket that has left, for `delay` ms. */
static void grant_delay(struct lockspace *space, clock_ms now, const struct ticket *lost, int64_t delay)
{
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
    if (t->head.fence < q->granted && t->entry->type != ENTRY_SEQUENCE) {
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

static void grant_sequence(struct lockspace *space, clock_ms now, struct entry *lock)
{
    struct queue *q = lock->directory->queue;
    struct skiplist_node *next = NULL;
    for (struct skiplist_node *node = skiplist_first(&q->waiters); node; node = next) {
        struct ticket *t = lockspace_ticket(node);
        next = skiplist_next(node);
        if (!lockspace_blocker(space, lock, t)) {
            grant_ticket(space, now, t);
        } else if (!lockspace_shared(t) || lockspace_position(t) >= lock->directory->attributes.width) {
            return; /* all behind it are exclusive and too far, or shared and behind what it is behind */
        }
    }
}

static void grant_lock(struct lockspace *space, clock_ms now, struct entry *lock, uint64_t start, uint64_t end)
{
    struct queue *q = lock->queue;
    struct skiplist_node *next = NULL;
    for (struct skiplist_node *node = skiplist_first(&q->waiters); node; node = next) {
        struct ticket *t = lockspace_ticket(node);
        next = skiplist_next(node);
        bool plain = lockspace_is_plain(space, lock, q, t);
        if (!plain && (lockspace_start(t) > end || lockspace_end(t) < start)) {
            continue;
        }
        if (lockspace_blocker(space, lock, t)) {
            if (plain) {
                return;
            }
        } else if (grant_ticket(space, now, t)) {
            start = 0;
            end = BACKEND_RANGE_MAX;
            next = skiplist_first(&q->waiters);
        }
    }
}

void lockspace_grant_waiters(struct lockspace *space, clock_ms now, struct entry *lock, uint64_t start, uint64_t end)
{
    struct queue *q = lockspace_queue(lock);
    if (q && skiplist_length(&q->waiters) > 0) {
        if (lock->type == ENTRY_DIRECTORY) {
            grant_sequence(space, now, lock);
        } else {
            grant_lock(space, now, lock, start, end);
        }
    }
    lockspace_shrink(space, lock);
}

void lockspace_end_ticket(struct lockspace *space, clock_ms now, struct ticket *t, enum backend_end why)
{
    struct entry *lock = lockspace_lock_of(t);
    uint64_t start = lockspace_start(t), end = lockspace_end(t);
    lockspace_expel(space, now, t, why);
    lockspace_grant_waiters(space, now, lock, start, end);
}
