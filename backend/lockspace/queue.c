/* queue: the queue of a lock, and which ticket blocks which.
 *
 * Holders and waiters are two skiplists by number, so that the first waiter is
 * at hand and ranks are sums.  In most queues no two tickets have one identity and at most
 * one covers a part of the lock.  Such a queue is plain: any two of its tickets
 * conflict unless both are shared, so counts decide, and the first waiter that
 * may not hold stops all behind it.  In any other queue each ticket is compared.
 */
#include "backend/lockspace/private.h"

static bool queue_is_partial(const struct ticket *t)
{
    const GArray *segments = lockspace_segments(t);
    return segments && (segments->len > 1 || lockspace_start(t) != 0 || lockspace_end(t) != BACKEND_RANGE_MAX);
}

void lockspace_queue_free(struct queue *q)
{
    if (q) {
        skiplist_clear(&q->holders);
        skiplist_clear(&q->waiters);
        g_free(q);
    }
}

/* The queue of a lock.  If there is none yet, makes it and moves the only ticket into it. */
static struct queue *queue_obtain(struct lockspace *space, struct entry *lock)
{
    struct queue *q = lockspace_queue(lock);
    if (q) {
        return q;
    }
    q = g_new0(struct queue, 1);
    skiplist_init(&q->holders, lockspace_compare_tickets, lockspace_random(space));
    skiplist_init(&q->waiters, lockspace_compare_tickets, lockspace_random(space));
    if (lock->type == ENTRY_DIRECTORY) {
        lock->directory->queue = q;
        return q;
    }
    struct ticket *t = lock->ticket;
    lock->queue = q;
    lock->type = ENTRY_QUEUE;
    skiplist_insert(&q->holders, t);
    q->granted = t->head.fence;
    q->exclusive = lockspace_shared(t) ? 0 : 1;
    q->partial = queue_is_partial(t);
    q->delays = t->head.kind == LOCKSPACE_DELAY;
    if (t->scope) {
        lockspace_group_join(space, t);
    }
    return q;
}

static void queue_set_counted(struct lockspace *space, struct entry *entry, bool counted)
{
    space->locks += (uint64_t)counted - (uint64_t)entry->counted;
    entry->counted = counted;
}

struct ticket *lockspace_first_holder(const struct entry *lock)
{
    struct queue *q = lockspace_queue(lock);
    struct skiplist_node *node = q ? skiplist_first(&q->holders) : NULL;
    struct ticket *t = q ? lockspace_ticket(node) : lock->type == ENTRY_SINGLE ? lock->ticket : NULL;
    while (t && t->head.kind == LOCKSPACE_DELAY) {
        node = node ? skiplist_next(node) : NULL;
        t = lockspace_ticket(node);
    }
    return t;
}

/* May a store have to keep it later: as a lease when its file is closed, or as a handle lock that was granted? */
static bool queue_is_keep_candidate(const struct ticket *t)
{
    bool queued = t->entry->type == ENTRY_SEQUENCE && !t->head.guarded;
    bool handle_lock = t->head.kind == BACKEND_FLOCK || t->head.kind == BACKEND_FCNTL;
    return t->head.kind == BACKEND_PROVISIONAL || (handle_lock && (queued || !t->head.held));
}

void lockspace_link(struct lockspace *space, struct ticket *t)
{
    struct queue *q = lockspace_queue(lockspace_lock_of(t));
    space->keep_candidates += queue_is_keep_candidate(t);
    if (q) {
        q->exclusive += t->head.held && !lockspace_shared(t);
        q->partial += queue_is_partial(t);
        q->delays += t->head.kind == LOCKSPACE_DELAY;
        q->same_identity += t->scope ? lockspace_group_join(space, t) : 0;
    }
}

void lockspace_unlink(struct lockspace *space, struct ticket *t)
{
    struct queue *q = lockspace_queue(lockspace_lock_of(t));
    space->keep_candidates -= queue_is_keep_candidate(t);
    if (q) {
        q->exclusive -= t->head.held && !lockspace_shared(t);
        q->partial -= queue_is_partial(t);
        q->delays -= t->head.kind == LOCKSPACE_DELAY;
        q->same_identity -= t->scope ? lockspace_group_leave(space, t) : 0;
    }
}

static void queue_count_waiting(struct lockspace *space, const struct ticket *t, int change)
{
    struct entry *lock = lockspace_lock_of(t);
    struct directory *directory = lock->type == ENTRY_DIRECTORY ? lock->directory : lock->parent;
    space->waiting += (uint64_t)change;
    directory->waiting += (uint32_t)change;
}

void lockspace_join(struct lockspace *space, struct ticket *t, bool held)
{
    struct entry *lock = lockspace_lock_of(t);
    t->head.held = held;
    if (lock->type == ENTRY_SINGLE && !lock->ticket) {
        lock->ticket = t; /* a waiter is never the only ticket */
    } else {
        struct queue *q = queue_obtain(space, lock);
        skiplist_insert(held ? &q->holders : &q->waiters, t);
        q->granted = held ? MAX(q->granted, t->head.fence) : q->granted;
    }
    lockspace_link(space, t);
    sorted_insert(&space->agenda, t);
    queue_count_waiting(space, t, !held);
    if (t->entry->type == ENTRY_SEQUENCE) {
        queue_set_counted(space, t->entry, held);
    }
}

void lockspace_leave(struct lockspace *space, struct ticket *t)
{
    struct entry *lock = lockspace_lock_of(t);
    struct queue *q = lockspace_queue(lock);
    lockspace_unlink(space, t);
    sorted_remove(&space->agenda, t);
    if (q) {
        skiplist_remove(t->head.held ? &q->holders : &q->waiters, t);
    } else {
        lock->ticket = NULL;
    }
    queue_count_waiting(space, t, t->head.held ? 0 : -1);
    if (t->entry->type == ENTRY_SEQUENCE) {
        queue_set_counted(space, t->entry, false);
    }
}

void lockspace_remove(struct lockspace *space, struct ticket *t)
{
    lockspace_leave(space, t);
    if (t->entry->type == ENTRY_SEQUENCE) {
        lockspace_entry_free(space, t->entry);
        t->entry = NULL;
    }
    lockspace_ticket_free(&t->head);
}

bool lockspace_conflict(const struct entry *lock, const struct ticket *a, const struct ticket *b)
{
    if (lockspace_shared(a) && lockspace_shared(b)) {
        return false;
    }
    const struct scope *x = a->scope, *y = b->scope;
    if (!x || !y || lock->type == ENTRY_DIRECTORY) {
        return true;
    }
    bool same_identity = backend_identity_matches(BACKEND_IDENTITY(x), BACKEND_IDENTITY(y));
    return !same_identity && (!x->segments || !y->segments || backend_segments_conflict(x->segments, y->segments));
}

struct backend_segment lockspace_blocking_segment(const struct ticket *t, const struct ticket *claimant)
{
    bool both = claimant && lockspace_segments(claimant) && lockspace_segments(t);
    const struct backend_segment *s =
        both ? backend_segments_conflict(lockspace_segments(t), lockspace_segments(claimant)) : NULL;
    return s ? *s
             : (struct backend_segment){.start = lockspace_start(t), .end = lockspace_end(t), .mode = t->head.mode};
}

/* The group that it is in, or would be, with those of its lock owner (GROUP_LOCK_OWNER) or handle; or NULL. */
static struct group *queue_group(struct lockspace *space, const struct entry *lock, const struct ticket *t,
                                 enum group_kind kind)
{
    uint64_t id = !t->scope ? 0 : kind == GROUP_LOCK_OWNER ? t->scope->lock_owner : t->scope->handle;
    return id ? lockspace_group(space, kind, id, lock) : NULL;
}

bool lockspace_is_plain(struct lockspace *space, const struct entry *lock, const struct queue *q,
                        const struct ticket *t)
{
    if (q->same_identity > 0 || q->partial > 1) {
        return false;
    }
    if (t->head.fence < space->next_fence) {
        return true;
    }
    return !(q->partial && queue_is_partial(t)) && !queue_group(space, lock, t, GROUP_LOCK_OWNER) &&
           !queue_group(space, lock, t, GROUP_HANDLE);
}

static struct ticket *queue_first_exclusive(const struct skiplist *list)
{
    struct skiplist_node *node = skiplist_first(list);
    while (node && lockspace_shared(lockspace_ticket(node))) {
        node = skiplist_next(node);
    }
    return lockspace_ticket(node);
}

static struct ticket *queue_blocker_by_count(const struct queue *q, const struct ticket *t)
{
    struct ticket *holder = !lockspace_shared(t) ? lockspace_ticket(skiplist_first(&q->holders))
                            : q->exclusive       ? queue_first_exclusive(&q->holders)
                                                 : NULL;
    if (holder) {
        return holder;
    }
    struct ticket *waiter = lockspace_ticket(skiplist_first(&q->waiters));
    return waiter && lockspace_compare_tickets(waiter, t) < 0 ? waiter : NULL;
}

/* How many hold, or wait before `t`, which does not hold. */
static uint32_t queue_waiting_rank(const struct queue *q, const struct ticket *t)
{
    return skiplist_length(&q->holders) + skiplist_rank(&q->waiters, t);
}

uint32_t lockspace_position(const struct ticket *t)
{
    const struct queue *q = lockspace_queue(lockspace_lock_of(t));
    return t->head.held ? skiplist_rank(&q->holders, t) : queue_waiting_rank(q, t);
}

/* The ticket that blocks `t`, a waiter in a sequence, or NULL.  An exclusive ticket is
 * blocked when `width` or more tickets hold or wait before it.  A shared one is blocked by a waiter
 * before it, by an exclusive holder before it, and by an exclusive holder behind it if there are
 * `width` such tickets.  (A holder behind it was granted while the width, or its own mode, was
 * another.) */
static struct ticket *queue_blocker_in_sequence(const struct entry *lock, const struct ticket *t)
{
    const struct queue *q = lock->directory->queue;
    if (!q) {
        return NULL;
    }
    bool room = queue_waiting_rank(q, t) < lock->directory->attributes.width;
    struct ticket *waiter = lockspace_ticket(skiplist_first(&q->waiters));
    if (!lockspace_shared(t)) {
        struct ticket *holder = lockspace_ticket(skiplist_first(&q->holders));
        return room ? NULL : holder ? holder : waiter;
    }
    struct ticket *holder = q->exclusive ? queue_first_exclusive(&q->holders) : NULL;
    if (holder && (!room || lockspace_compare_tickets(holder, t) < 0)) {
        return holder;
    }
    return waiter && lockspace_compare_tickets(waiter, t) < 0 ? waiter : NULL;
}

/* Does `waiter` wait for `other`, a holder with the identity of `t`?  For one that has the whole lock all wait in the
 * end: a shared waiter waits for an exclusive one, which waits for it. */
static bool queue_must_wait_for(const struct entry *lock, const struct ticket *t, const struct ticket *other,
                                const struct ticket *waiter)
{
    struct backend_identity identity = BACKEND_IDENTITY(other->scope);
    if (!other->head.held || other == t || !backend_identity_matches(identity, BACKEND_IDENTITY(t->scope))) {
        return false;
    }
    bool same = waiter->scope && backend_identity_matches(identity, BACKEND_IDENTITY(waiter->scope));
    return lockspace_conflict(lock, other, waiter) || (!queue_is_partial(other) && !same);
}

/* Does `waiter` wait for a holder with the identity of `t`?  Then it does not block `t`: see
 * lockspace.h. */
static bool queue_outranks(struct lockspace *space, const struct entry *lock, const struct ticket *t,
                           const struct ticket *waiter)
{
    for (enum group_kind kind = GROUP_HANDLE; kind <= GROUP_LOCK_OWNER; kind++) {
        const struct group *group = queue_group(space, lock, t, kind);
        for (const struct ticket *k = group ? group->first : NULL; k; k = k->scope->next[kind]) {
            if (queue_must_wait_for(lock, t, k, waiter)) {
                return true;
            }
        }
    }
    return false;
}

bool lockspace_is_rivalled(struct lockspace *space, const struct entry *lock, const struct ticket *t)
{
    struct queue *q = lockspace_queue(lock);
    bool holds = queue_group(space, lock, t, GROUP_LOCK_OWNER) || queue_group(space, lock, t, GROUP_HANDLE);
    struct skiplist_node *node = q && holds ? skiplist_first(&q->waiters) : NULL;
    for (; node; node = skiplist_next(node)) {
        const struct ticket *waiter = lockspace_ticket(node);
        if (queue_outranks(space, lock, t, waiter) && queue_outranks(space, lock, waiter, t)) {
            return true;
        }
    }
    return false;
}

struct ticket *lockspace_next_blocker(struct lockspace *space, const struct entry *lock, const struct ticket *t,
                                      struct blocker_walk *walk)
{
    const struct queue *q = lockspace_queue(lock);
    if (!q) {
        struct ticket *only = walk->at == WALK_START && lock->type == ENTRY_SINGLE ? lock->ticket : NULL;
        walk->at = WALK_END;
        return only && only != t && lockspace_conflict(lock, only, t) ? only : NULL;
    }
    if (walk->at == WALK_START) {
        *walk = (struct blocker_walk){.at = WALK_HOLDERS, .node = skiplist_first(&q->holders)};
    }
    for (;;) {
        struct ticket *u = lockspace_ticket(walk->node);
        if (!u && walk->at == WALK_HOLDERS) {
            *walk = (struct blocker_walk){.at = WALK_WAITERS, .node = skiplist_first(&q->waiters)};
            continue;
        }
        if (!u || (walk->at == WALK_WAITERS && lockspace_compare_tickets(u, t) >= 0)) {
            *walk = (struct blocker_walk){.at = WALK_END};
            return NULL;
        }
        walk->node = skiplist_next(walk->node);
        if (u != t && lockspace_conflict(lock, u, t) && (u->head.held || !queue_outranks(space, lock, t, u))) {
            return u;
        }
    }
}

struct ticket *lockspace_blocker(struct lockspace *space, const struct entry *lock, const struct ticket *t)
{
    if (lock->type == ENTRY_DIRECTORY) {
        return queue_blocker_in_sequence(lock, t);
    }
    const struct queue *q = lockspace_queue(lock);
    if (q && lockspace_is_plain(space, lock, q, t)) {
        return queue_blocker_by_count(q, t);
    }
    struct blocker_walk walk = {0};
    return lockspace_next_blocker(space, lock, t, &walk);
}

void lockspace_shrink(struct lockspace *space, struct entry *lock)
{
    struct queue *q = lockspace_queue(lock);
    if (q && skiplist_length(&q->waiters) == 0 && skiplist_length(&q->holders) <= 1) {
        struct ticket *t = lockspace_ticket(skiplist_first(&q->holders));
        if (lock->type == ENTRY_QUEUE) {
            if (t && t->scope) {
                lockspace_group_leave(space, t);
            }
            lockspace_queue_free(q);
            lock->type = ENTRY_SINGLE;
            lock->ticket = t;
        } else if (!t) {
            lockspace_queue_free(q);
            lock->directory->queue = NULL;
        }
    }
    if (lock->type == ENTRY_SINGLE && !lock->ticket) {
        lockspace_entry_free(space, lock);
    } else if (lock->type != ENTRY_DIRECTORY) {
        queue_set_counted(space, lock, lockspace_first_holder(lock) != NULL);
    }
}
