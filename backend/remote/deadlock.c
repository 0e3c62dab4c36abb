/* deadlock: which tickets of this mount block which, for backend/deadlock.h. */
#include "backend/deadlock.h"

#include "backend/remote/remote.h"

static bool deadlock_excludes(uint64_t start, uint64_t end, enum backend_mode mode, const struct remote_ticket *t)
{
    return start <= t->end && t->start <= end && (mode == BACKEND_EXCLUSIVE || t->head.mode == BACKEND_EXCLUSIVE);
}

static bool deadlock_holds_against(const struct remote_ticket *holder, const struct remote_ticket *t)
{
    if (holder->state != REMOTE_HELD || !holder->segments) {
        return false;
    }
    for (guint i = 0; i < holder->segments->len; i++) {
        const struct backend_segment *s = &g_array_index(holder->segments, struct backend_segment, i);
        if (deadlock_excludes(s->start, s->end, s->mode, t)) {
            return true;
        }
    }
    return false;
}

/* Has it the whole lock?  Then all that wait wait for it in the end. */
static bool deadlock_holds_whole(const struct remote *r, const struct remote_ticket *holder)
{
    const struct backend_segment *s =
        holder->segments ? &g_array_index(holder->segments, struct backend_segment, 0) : NULL;
    bool whole = s && holder->segments->len == 1 && s->start == 0 && s->end == BACKEND_RANGE_MAX;
    return holder->state == REMOTE_HELD && (whole || !(r->backend.features & BACKEND_CAN_RANGE));
}

/* Must `t` wait for `other`?  `own`: the tickets of its lock owner on the lock.  That holds, or is before it and does
 * not itself wait for what t's lock owner holds. */
static bool deadlock_blocks(const struct remote *r, const struct remote_ticket *other, const struct remote_ticket *t,
                            const GPtrArray *own)
{
    if (!other->lock_owner || other->lock_owner == t->lock_owner) {
        return false;
    }
    if (other->state != REMOTE_WAITING) {
        return deadlock_holds_against(other, t);
    }
    if (other->head.fence > t->head.fence || !deadlock_excludes(other->start, other->end, other->head.mode, t)) {
        return false;
    }
    for (guint i = 0; i < own->len; i++) {
        const struct remote_ticket *k = own->pdata[i];
        if (deadlock_holds_whole(r, k) || deadlock_holds_against(k, other)) {
            return false;
        }
    }
    return true;
}

/* What a search knows. */
struct search {
    struct remote *r;
    GHashTable *waiting; /* lock owner -> GPtrArray of its tickets that wait; NULL until it is needed */
};

static void deadlock_index_waiting(struct search *s)
{
    struct remote_ticket *t;
    s->waiting = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, (GDestroyNotify)g_ptr_array_unref);
    LIST_FOREACH(t, &s->r->waiters, waiters) {
        if (!t->lock_owner || t->state != REMOTE_WAITING) {
            continue;
        }
        GPtrArray *of_owner = g_hash_table_lookup(s->waiting, &t->lock_owner);
        if (!of_owner) {
            of_owner = g_ptr_array_new();
            g_hash_table_insert(s->waiting, &t->lock_owner, of_owner);
        }
        g_ptr_array_add(of_owner, t);
    }
}

static void deadlock_visit_tickets(struct deadlock *deadlock, void *store, uint64_t lock_owner)
{
    struct search *s = store;
    if (!s->waiting) {
        deadlock_index_waiting(s);
    }
    GPtrArray *of_owner = g_hash_table_lookup(s->waiting, &lock_owner);
    for (guint i = 0; of_owner && i < of_owner->len; i++) {
        deadlock_add_ticket(deadlock, of_owner->pdata[i]);
    }
}

static void deadlock_visit_blockers(struct deadlock *deadlock, void *store, const void *ticket)
{
    const struct remote_ticket *waiter = ticket;
    struct remote_ticket *other;
    const struct search *s = store;
    g_autoptr(GPtrArray) own = g_ptr_array_new();
    LIST_FOREACH(other, &waiter->lock->tickets, link) {
        if (other->lock_owner == waiter->lock_owner) {
            g_ptr_array_add(own, other);
        }
    }
    LIST_FOREACH(other, &waiter->lock->tickets, link) {
        if (!deadlock_may_take(deadlock, 1)) {
            return;
        }
        if (deadlock_blocks(s->r, other, waiter, own)) {
            deadlock_add_blocker(deadlock, other, &other->lock_owner, other->state == REMOTE_WAITING);
        }
    }
}

bool remote_deadlocked(struct remote *r, const struct remote_ticket *t)
{
    static const struct deadlock_rules rules = {.visit_blockers = deadlock_visit_blockers,
                                                .visit_tickets = deadlock_visit_tickets};
    struct search s = {.r = r};
    if (!t->lock_owner || r->waiting <= 1) {
        return false;
    }
    bool found = deadlock_search(&rules, &s, t, t->lock_owner);
    g_clear_pointer(&s.waiting, g_hash_table_unref);
    return found;
}
