/* queue: the queue of a lock, and what in it stands in whose way.
 *
 * Holders and waiters are two skiplists by number, so that the first waiter is
 * at hand and ranks are sums.  In most queues no two tickets are kin and at most
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

/* The queue of a place; made, and the ticket that was alone moved to it. */
static struct queue *queue_obtain(struct lockspace *space, struct entry *place)
{
    struct queue *q = lockspace_queue(place);
    if (q) {
        return q;
    }
    q = g_new0(struct queue, 1);
    skiplist_init(&q->holders, lockspace_compare_tickets, lockspace_random(space));
    skiplist_init(&q->waiters, lockspace_compare_tickets, lockspace_random(space));
    if (place->type == ENTRY_DIRECTORY) {
        place->directory->queue = q;
        return q;
    }
    struct ticket *t = place->ticket;
    place->queue = q;
    place->type = ENTRY_QUEUE;
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

struct ticket *lockspace_first_holder(const struct entry *place)
{
    struct queue *q = lockspace_queue(place);
    struct skiplist_node *node = q ? skiplist_first(&q->holders) : NULL;
    struct ticket *t = q ? lockspace_ticket(node) : place->type == ENTRY_SINGLE ? place->ticket : NULL;
    while (t && t->head.kind == LOCKSPACE_DELAY) {
        node = node ? skiplist_next(node) : NULL;
        t = lockspace_ticket(node);
    }
    return t;
}

/* Can closing its file make a lease of it? */
static bool queue_is_undecided(const struct ticket *t)
{
    bool queued = t->entry->type == ENTRY_SEQUENCE && !t->head.guarded;
    return t->head.kind == BACKEND_PROVISIONAL || (t->head.kind == BACKEND_FLOCK && queued);
}

void lockspace_link(struct lockspace *space, struct ticket *t)
{
    struct queue *q = lockspace_queue(lockspace_place(t));
    space->undecided += queue_is_undecided(t);
    if (q) {
        q->exclusive += t->head.held && !lockspace_shared(t);
        q->partial += queue_is_partial(t);
        q->delays += t->head.kind == LOCKSPACE_DELAY;
        q->kin += t->scope ? lockspace_group_join(space, t) : 0;
    }
}

void lockspace_unlink(struct lockspace *space, struct ticket *t)
{
    struct queue *q = lockspace_queue(lockspace_place(t));
    space->undecided -= queue_is_undecided(t);
    if (q) {
        q->exclusive -= t->head.held && !lockspace_shared(t);
        q->partial -= queue_is_partial(t);
        q->delays -= t->head.kind == LOCKSPACE_DELAY;
        q->kin -= t->scope ? lockspace_group_leave(space, t) : 0;
    }
}

static void queue_count_waiting(struct lockspace *space, const struct ticket *t, int change)
{
    struct entry *place = lockspace_place(t);
    struct directory *directory = place->type == ENTRY_DIRECTORY ? place->directory : place->parent;
    space->waiting += (uint64_t)change;
    directory->waiting += (uint32_t)change;
}

void lockspace_join(struct lockspace *space, struct ticket *t, bool held)
{
    struct entry *place = lockspace_place(t);
    t->head.held = held;
    if (place->type == ENTRY_SINGLE && !place->ticket) {
        place->ticket = t; /* nothing that waits is ever alone */
    } else {
        struct queue *q = queue_obtain(space, place);
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
    struct entry *place = lockspace_place(t);
    struct queue *q = lockspace_queue(place);
    lockspace_unlink(space, t);
    sorted_remove(&space->agenda, t);
    if (q) {
        skiplist_remove(t->head.held ? &q->holders : &q->waiters, t);
    } else {
        place->ticket = NULL;
    }
    queue_count_waiting(space, t, t->head.held ? 0 : -1);
    if (t->entry->type == ENTRY_SEQUENCE) {
        queue_set_counted(space, t->entry, false);
    }
}

void lockspace_finish(struct lockspace *space, struct ticket *t)
{
    lockspace_leave(space, t);
    if (t->entry->type == ENTRY_SEQUENCE) {
        lockspace_entry_free(space, t->entry);
        t->entry = NULL;
    }
    lockspace_ticket_free(&t->head);
}

bool lockspace_conflict(const struct entry *place, const struct ticket *a, const struct ticket *b)
{
    if (lockspace_shared(a) && lockspace_shared(b)) {
        return false;
    }
    const struct scope *x = a->scope, *y = b->scope;
    if (!x || !y || place->type == ENTRY_DIRECTORY) {
        return true;
    }
    bool kin = backend_identity_matches(BACKEND_IDENTITY(x), BACKEND_IDENTITY(y));
    return !kin && (!x->segments || !y->segments || backend_segments_conflict(x->segments, y->segments));
}

struct backend_segment lockspace_segment_in_way(const struct ticket *t, const struct ticket *asker)
{
    bool both = asker && lockspace_segments(asker) && lockspace_segments(t);
    const struct backend_segment *s =
        both ? backend_segments_conflict(lockspace_segments(t), lockspace_segments(asker)) : NULL;
    return s ? *s
             : (struct backend_segment){.start = lockspace_start(t), .end = lockspace_end(t), .mode = t->head.mode};
}

/* The group that it is in, or would be, with those of its lock owner (GROUP_LOCK_OWNER) or handle; or NULL. */
static struct group *queue_kin(struct lockspace *space, const struct entry *place, const struct ticket *t,
                               enum group_kind kind)
{
    uint64_t id = !t->scope ? 0 : kind == GROUP_LOCK_OWNER ? t->scope->lock_owner : t->scope->handle;
    return id ? lockspace_group(space, kind, id, place) : NULL;
}

bool lockspace_is_plain(struct lockspace *space, const struct entry *place, const struct queue *q,
                        const struct ticket *t)
{
    if (q->kin > 0 || q->partial > 1) {
        return false;
    }
    if (t->head.fence < space->next_fence) {
        return true;
    }
    return !(q->partial && queue_is_partial(t)) && !queue_kin(space, place, t, GROUP_LOCK_OWNER) &&
           !queue_kin(space, place, t, GROUP_HANDLE);
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
    const struct queue *q = lockspace_queue(lockspace_place(t));
    return t->head.held ? skiplist_rank(&q->holders, t) : queue_waiting_rank(q, t);
}

/* In a sequence, of a ticket that does not hold: all that hold and all that wait
 * before it stand in the way of an exclusive one if they are `width` or more.  In
 * that of a shared one stands who waits before it, an exclusive holder before it,
 * and one behind it if they are that many.  Holders behind it were let in while
 * the width, or its own mode, was another. */
static struct ticket *queue_blocker_in_sequence(const struct entry *place, const struct ticket *t)
{
    const struct queue *q = place->directory->queue;
    if (!q) {
        return NULL;
    }
    bool room = queue_waiting_rank(q, t) < place->directory->attributes.width;
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

static bool queue_is_awaited(const struct entry *place, const struct ticket *t, const struct ticket *kin,
                             const struct ticket *waiter)
{
    return kin->head.held && kin != t &&
           backend_identity_matches(BACKEND_IDENTITY(kin->scope), BACKEND_IDENTITY(t->scope)) &&
           lockspace_conflict(place, kin, waiter);
}

/* Whether `waiter` waits for kin of `t`: it cannot go on before `t` does, so it
 * does not stand in its way. */
static bool queue_outranks(struct lockspace *space, const struct entry *place, const struct ticket *t,
                           const struct ticket *waiter)
{
    for (enum group_kind kind = GROUP_HANDLE; kind <= GROUP_LOCK_OWNER; kind++) {
        const struct group *group = queue_kin(space, place, t, kind);
        for (const struct ticket *k = group ? group->first : NULL; k; k = k->scope->next[kind]) {
            if (queue_is_awaited(place, t, k, waiter)) {
                return true;
            }
        }
    }
    return false;
}

struct ticket *lockspace_next_blocker(struct lockspace *space, const struct entry *place, const struct ticket *t,
                                      struct way *way)
{
    const struct queue *q = lockspace_queue(place);
    if (!q) {
        struct ticket *lone = way->at == WAY_START && place->type == ENTRY_SINGLE ? place->ticket : NULL;
        way->at = WAY_END;
        return lone && lone != t && lockspace_conflict(place, lone, t) ? lone : NULL;
    }
    if (way->at == WAY_START) {
        *way = (struct way){.at = WAY_HOLDERS, .node = skiplist_first(&q->holders)};
    }
    for (;;) {
        struct ticket *u = lockspace_ticket(way->node);
        if (!u && way->at == WAY_HOLDERS) {
            *way = (struct way){.at = WAY_WAITERS, .node = skiplist_first(&q->waiters)};
            continue;
        }
        if (!u || (way->at == WAY_WAITERS && lockspace_compare_tickets(u, t) >= 0)) {
            *way = (struct way){.at = WAY_END};
            return NULL;
        }
        way->node = skiplist_next(way->node);
        if (u != t && lockspace_conflict(place, u, t) && (u->head.held || !queue_outranks(space, place, t, u))) {
            return u;
        }
    }
}

struct ticket *lockspace_blocker(struct lockspace *space, const struct entry *place, const struct ticket *t)
{
    if (place->type == ENTRY_DIRECTORY) {
        return queue_blocker_in_sequence(place, t);
    }
    const struct queue *q = lockspace_queue(place);
    if (q && lockspace_is_plain(space, place, q, t)) {
        return queue_blocker_by_count(q, t);
    }
    struct way way = {0};
    return lockspace_next_blocker(space, place, t, &way);
}

void lockspace_settle(struct lockspace *space, struct entry *place)
{
    struct queue *q = lockspace_queue(place);
    if (q && skiplist_length(&q->waiters) == 0 && skiplist_length(&q->holders) <= 1) {
        struct ticket *t = lockspace_ticket(skiplist_first(&q->holders));
        if (place->type == ENTRY_QUEUE) {
            if (t && t->scope) {
                lockspace_group_leave(space, t);
            }
            lockspace_queue_free(q);
            place->type = ENTRY_SINGLE;
            place->ticket = t;
        } else if (!t) {
            lockspace_queue_free(q);
            place->directory->queue = NULL;
        }
    }
    if (place->type == ENTRY_SINGLE && !place->ticket) {
        lockspace_entry_free(space, place);
    } else if (place->type != ENTRY_DIRECTORY) {
        queue_set_counted(space, place, lockspace_first_holder(place) != NULL);
    }
}
