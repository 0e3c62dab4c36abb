/* queue: the queue of a lock, and which ticket blocks which.
 *
 * Holders and waiters are two skiplists by number, so that the first waiter is
 * at hand and ranks are sums.  What they cover is in two trees, in which the blockers of a claim are found.
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
        lockspace_spans_clear(&q->held);
        lockspace_spans_clear(&q->wanted);
        if (q->grants.left) {
            LIST_REMOVE(q, granting);
        }
        g_free(q);
    }
}

/* The queue of a lock.  If there is none yet, makes it and moves the only ticket into it, if there is one. */
static struct queue *queue_obtain(struct lockspace *space, struct entry *lock)
{
    struct queue *q = lockspace_queue(lock);
    if (q) {
        return q;
    }
    q = g_new0(struct queue, 1);
    q->lock = lock;
    skiplist_init(&q->holders, lockspace_compare_tickets, lockspace_random(space));
    skiplist_init(&q->waiters, lockspace_compare_tickets, lockspace_random(space));
    if (lock->type == ENTRY_DIRECTORY) {
        lock->directory->queue = q;
        return q;
    }
    struct ticket *t = lock->ticket;
    lock->queue = q;
    lock->type = ENTRY_QUEUE;
    if (!t) {
        return q;
    }
    skiplist_insert(&q->holders, t);
    q->granted = t->head.fence;
    lockspace_spans_add(space, &q->held, t, 0, BACKEND_RANGE_MAX);
    q->exclusive = lockspace_shared(t) ? 0 : 1;
    q->delay = t->head.kind == LOCKSPACE_DELAY ? t : NULL;
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
    if (t && t->head.kind == LOCKSPACE_DELAY) {
        return node ? lockspace_ticket(skiplist_next(node)) : NULL;
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
        q->delay = t->head.kind == LOCKSPACE_DELAY ? t : q->delay;
        q->same_identity += t->scope ? lockspace_group_join(space, t) : 0;
    }
}

void lockspace_unlink(struct lockspace *space, struct ticket *t)
{
    struct queue *q = lockspace_queue(lockspace_lock_of(t));
    space->keep_candidates -= queue_is_keep_candidate(t);
    if (q) {
        q->exclusive -= t->head.held && !lockspace_shared(t);
        q->delay = t == q->delay ? NULL : q->delay;
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

void lockspace_join_only(struct lockspace *space, struct ticket *t, bool held)
{
    struct entry *lock = lockspace_lock_of(t);
    t->head.held = held;
    if (lock->type == ENTRY_SINGLE && !lock->ticket && held) {
        lock->ticket = t;
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

static struct spans *queue_spans(struct queue *q, const struct ticket *t)
{
    return t->head.held ? &q->held : &q->wanted;
}

void lockspace_join(struct lockspace *space, struct ticket *t, bool held)
{
    lockspace_join_only(space, t, held);
    struct queue *q = lockspace_queue(lockspace_lock_of(t));
    if (q) {
        lockspace_spans_add(space, queue_spans(q, t), t, 0, BACKEND_RANGE_MAX);
    }
}

void lockspace_leave(struct lockspace *space, struct ticket *t)
{
    struct queue *q = lockspace_queue(lockspace_lock_of(t));
    if (q) {
        lockspace_spans_remove(space, queue_spans(q, t), t, 0, BACKEND_RANGE_MAX);
    }
    lockspace_leave_only(space, t);
}

void lockspace_leave_only(struct lockspace *space, struct ticket *t)
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

static struct ticket *queue_first_exclusive(const struct queue *q)
{
    struct span_search search = {.end = BACKEND_RANGE_MAX, .before = UINT64_MAX, .exclusive = true};
    return lockspace_spans_next(&q->held, &search);
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
    struct ticket *holder = queue_first_exclusive(q);
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

/* The next ticket that overlaps `t`, and is not of its identity; of those that wait, only older ones. */
static struct ticket *queue_next_overlap(const struct queue *q, const struct ticket *t, struct blocker_walk *walk)
{
    while (walk->at != WALK_END) {
        struct ticket *u = lockspace_spans_next(walk->at == WALK_HOLDERS ? &q->held : &q->wanted, &walk->search);
        if (!u) {
            walk->at++;
            walk->search.begun = false;
            walk->search.before = t->head.fence;
            continue;
        }
        walk->steps++;
        bool mate =
            u->scope && t->scope && backend_identity_matches(BACKEND_IDENTITY(u->scope), BACKEND_IDENTITY(t->scope));
        if (u != t && !mate) {
            return u;
        }
    }
    return NULL;
}

static void queue_begin_walk(const struct ticket *t, bool exclusive, struct blocker_walk *walk)
{
    walk->at = WALK_HOLDERS;
    walk->search = (struct span_search){
        .start = lockspace_start(t), .end = lockspace_end(t), .before = UINT64_MAX, .exclusive = exclusive};
}

bool lockspace_is_rivalled(struct lockspace *space, const struct entry *lock, const struct ticket *t)
{
    const struct queue *q = lockspace_queue(lock);
    bool holds = queue_group(space, lock, t, GROUP_LOCK_OWNER) || queue_group(space, lock, t, GROUP_HANDLE);
    struct blocker_walk walk = {0};
    const struct ticket *u;
    if (!q || !holds || q->same_identity == 0) {
        return false;
    }
    queue_begin_walk(t, false, &walk);
    while ((u = queue_next_overlap(q, t, &walk)) && u->head.held) {
        for (enum group_kind kind = GROUP_HANDLE; kind <= GROUP_LOCK_OWNER; kind++) {
            const struct group *group = queue_group(space, lock, u, kind);
            for (const struct ticket *k = group ? group->first : NULL; k; k = k->scope->next[kind]) {
                if (!k->head.held && queue_outranks(space, lock, t, k) && queue_outranks(space, lock, k, t)) {
                    return true;
                }
            }
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
        walk->steps++;
        return only && only != t && lockspace_conflict(lock, only, t) ? only : NULL;
    }
    if (walk->at == WALK_START) {
        queue_begin_walk(t, lockspace_shared(t), walk);
    }
    struct ticket *u = queue_next_overlap(q, t, walk);
    while (u && !u->head.held && queue_outranks(space, lock, t, u)) {
        u = queue_next_overlap(q, t, walk);
    }
    return u;
}

struct ticket *lockspace_blocker(struct lockspace *space, const struct entry *lock, const struct ticket *t)
{
    if (lock->type == ENTRY_DIRECTORY) {
        return queue_blocker_in_sequence(lock, t);
    }
    struct blocker_walk walk = {0};
    return lockspace_next_blocker(space, lock, t, &walk);
}

bool lockspace_excludes(const struct ticket *t, uint64_t start, uint64_t end)
{
    const GArray *segments = lockspace_segments(t);
    return !lockspace_shared(t) && (!segments || segments->len == 1) && lockspace_start(t) <= start &&
           end <= lockspace_end(t);
}

/* Not for a ticket with many segments, because its next queue would have to get them all. */
static bool queue_is_needed(const struct queue *q)
{
    const struct ticket *t = lockspace_ticket(skiplist_first(&q->holders));
    const GArray *segments = t ? lockspace_segments(t) : NULL;
    return skiplist_length(&q->waiters) > 0 || skiplist_length(&q->holders) > 1 || (segments && segments->len > 1);
}

void lockspace_shrink(struct lockspace *space, struct entry *lock)
{
    struct queue *q = lockspace_queue(lock);
    if (q && !queue_is_needed(q)) {
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
