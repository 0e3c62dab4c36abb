/* deadlock: cycles of waits, as fcntl(2) EDEADLK knows them. */
#include "backend/remote/remote.h"

#define SEARCH_MAX 100000 /* tickets that a search looks at */

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

/* Whether `t` has to wait for `other`: it holds, or stands before it and does not
 * itself wait for what t's lock owner holds. */
static bool deadlock_blocks(const struct remote_ticket *other, const struct remote_ticket *t)
{
    const struct remote_ticket *k;
    if (!other->lock_owner || other->lock_owner == t->lock_owner) {
        return false;
    }
    if (other->state != REMOTE_WAITING) {
        return deadlock_holds_against(other, t);
    }
    if (other->head.fence > t->head.fence || !deadlock_excludes(other->start, other->end, other->head.mode, t)) {
        return false;
    }
    LIST_FOREACH(k, &t->place->tickets, link) {
        if (k->lock_owner == t->lock_owner && deadlock_holds_against(k, other)) {
            return false;
        }
    }
    return true;
}

/* The way to be looked at: each ticket once, each lock owner's once. */
struct search {
    GPtrArray *open;
    GHashTable *tickets, *lock_owners;
    GHashTable *waiting; /* lock owner -> GPtrArray of its tickets that wait; NULL until it is needed */
};

static void deadlock_follow(struct search *s, struct remote_ticket *t)
{
    if (g_hash_table_add(s->tickets, t)) {
        g_ptr_array_add(s->open, t);
    }
}

static GHashTable *deadlock_index_waiting(struct remote *r)
{
    GHashTable *waiting = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, (GDestroyNotify)g_ptr_array_unref);
    GHashTableIter tickets;
    struct remote_ticket *t;
    g_hash_table_iter_init(&tickets, r->tickets);
    while (g_hash_table_iter_next(&tickets, NULL, (gpointer *)&t)) {
        if (!t->lock_owner || t->state != REMOTE_WAITING) {
            continue;
        }
        GPtrArray *of_owner = g_hash_table_lookup(waiting, &t->lock_owner);
        if (!of_owner) {
            of_owner = g_ptr_array_new();
            g_hash_table_insert(waiting, &t->lock_owner, of_owner);
        }
        g_ptr_array_add(of_owner, t);
    }
    return waiting;
}

/* What a lock owner holds it may keep for as long as anything for which it waits. */
static void deadlock_follow_lock_owner(struct remote *r, struct search *s, struct remote_ticket *holder)
{
    if (!g_hash_table_add(s->lock_owners, &holder->lock_owner)) {
        return;
    }
    if (!s->waiting) {
        s->waiting = deadlock_index_waiting(r);
    }
    GPtrArray *of_owner = g_hash_table_lookup(s->waiting, &holder->lock_owner);
    for (guint i = 0; of_owner && i < of_owner->len; i++) {
        deadlock_follow(s, of_owner->pdata[i]);
    }
}

/* Whether `t` waits, in the end, for what its lock owner holds: who holds goes on only
 * when what it waits for elsewhere does, who waits when it holds.  Breadth first,
 * and no longer than users may make it: a cycle behind more is not found. */
static bool deadlock_reaches_itself(struct remote *r, struct remote_ticket *t)
{
    struct search s = {
        .open = g_ptr_array_new(),
        .tickets = g_hash_table_new(NULL, NULL),
        .lock_owners = g_hash_table_new(g_int64_hash, g_int64_equal),
    };
    unsigned budget = SEARCH_MAX;
    bool found = false;
    deadlock_follow(&s, t);
    for (guint i = 0; i < s.open->len && !found && budget > 0; i++) {
        struct remote_ticket *waiter = s.open->pdata[i], *other;
        LIST_FOREACH(other, &waiter->place->tickets, link) {
            if (--budget == 0) {
                break;
            }
            if (!deadlock_blocks(other, waiter)) {
                continue;
            }
            found = other->state != REMOTE_WAITING && other->lock_owner == t->lock_owner;
            if (found) {
                break;
            }
            if (other->state == REMOTE_WAITING) {
                deadlock_follow(&s, other);
            } else {
                deadlock_follow_lock_owner(r, &s, other);
            }
        }
    }
    g_ptr_array_unref(s.open);
    g_hash_table_unref(s.tickets);
    g_hash_table_unref(s.lock_owners);
    g_clear_pointer(&s.waiting, g_hash_table_unref);
    return found;
}

/* Nobody waits for a lock owner that holds nothing. */
static bool deadlock_lock_owner_holds(struct remote *r, uint64_t lock_owner)
{
    GHashTableIter tickets;
    const struct remote_ticket *t;
    g_hash_table_iter_init(&tickets, r->tickets);
    while (g_hash_table_iter_next(&tickets, NULL, (gpointer *)&t)) {
        if (t->lock_owner == lock_owner && t->state == REMOTE_HELD) {
            return true;
        }
    }
    return false;
}

bool remote_deadlocked(struct remote *r, struct remote_ticket *t)
{
    return t->lock_owner && r->waiting > 1 && deadlock_lock_owner_holds(r, t->lock_owner) &&
           deadlock_reaches_itself(r, t);
}
