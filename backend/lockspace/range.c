/* range: what a lock owner holds and waits for.
 *
 * The ranges that a lock owner holds on a lock never overlap, and neighbours of the
 * same mode are one ticket, as POSIX record locks are (fcntl(2)); only FCNTL
 * tickets take part in that.
 */
#include "backend/lockspace/private.h"

/* The FCNTL tickets that a lock owner holds on a lock and that overlap start..end, or
 * that only touch it; but not `except`. */
static GPtrArray *range_held(struct lockspace *space, const struct entry *place, uint64_t lock_owner, uint64_t start,
                             uint64_t end, const struct ticket *except)
{
    GPtrArray *found = g_ptr_array_new();
    uint64_t from = start == 0 ? 0 : start - 1;
    uint64_t to = end == BACKEND_RANGE_MAX ? end : end + 1;
    struct group *g = lockspace_group(space, GROUP_LOCK_OWNER, lock_owner, place);
    for (struct ticket *t = g ? g->first : NULL; t; t = t->scope->next[GROUP_LOCK_OWNER]) {
        if (t != except && t->head.held && t->head.kind == BACKEND_FCNTL && t->scope->start <= to &&
            t->scope->end >= from) {
            g_ptr_array_add(found, t);
        }
    }
    return found;
}

bool lockspace_range_may_grow(struct lockspace *space, const struct entry *place, uint64_t lock_owner)
{
    const struct group *g = lock_owner ? lockspace_group(space, GROUP_LOCK_OWNER, lock_owner, place) : NULL;
    return !g || g->count < LOCKSPACE_RANGES_MAX;
}

static void range_resize(struct lockspace *space, struct ticket *t, uint64_t start, uint64_t end)
{
    lockspace_unlink(space, t);
    t->scope->start = start;
    t->scope->end = end;
    lockspace_link(space, t);
}

static void range_drop(struct lockspace *space, struct ticket *t)
{
    struct entry *ended = lockspace_entry_ended(t->entry);
    lockspace_leave(space, t);
    t->entry = ended;
    if (space->listener.dropped) {
        space->listener.dropped(space->context, &t->head);
    } else {
        lockspace_ticket_free(&t->head);
    }
}

/* Takes start..end, which overlaps it, from a ticket: what is left of it is a
 * smaller one, two, or none. */
static void range_carve(struct lockspace *space, struct ticket *t, uint64_t start, uint64_t end)
{
    uint64_t first = t->scope->start, last = t->scope->end;
    if (first >= start && last <= end) {
        range_drop(space, t);
    } else if (first >= start) {
        range_resize(space, t, end + 1, last);
    } else {
        range_resize(space, t, first, start - 1);
        if (last > end) {
            lockspace_join(space, lockspace_ticket_piece(space, t, end + 1, last), true);
        }
    }
}

bool lockspace_range_replace(struct lockspace *space, struct ticket *t)
{
    struct entry *place = lockspace_place(t);
    if (t->head.kind != BACKEND_FCNTL || !lockspace_lock_owner(t) || place->type == ENTRY_DIRECTORY) {
        return false;
    }
    uint64_t start = t->scope->start, end = t->scope->end;
    uint64_t from = start, to = end;
    bool replaced = false;
    GPtrArray *ranges = range_held(space, place, t->scope->lock_owner, start, end, t);
    for (guint i = 0; i < ranges->len; i++) {
        struct ticket *other = ranges->pdata[i];
        if (other->head.mode == t->head.mode) {
            from = MIN(from, other->scope->start);
            to = MAX(to, other->scope->end);
            range_drop(space, other);
            replaced = true;
        } else if (other->scope->start <= end && other->scope->end >= start) {
            range_carve(space, other, start, end);
            replaced = true;
        }
    }
    g_ptr_array_free(ranges, TRUE);
    if (from != start || to != end) {
        range_resize(space, t, from, to);
    }
    return replaced;
}

enum backend_result lockspace_range_take(struct lockspace *space, const struct entry *place, uint64_t lock_owner,
                                         uint64_t start, uint64_t end)
{
    GPtrArray *ranges = range_held(space, place, lock_owner, start, end, NULL);
    if (ranges->len == 1 && !lockspace_range_may_grow(space, place, lock_owner)) {
        const struct ticket *t = ranges->pdata[0];
        if (t->scope->start < start && t->scope->end > end) {
            g_ptr_array_free(ranges, TRUE);
            return BACKEND_QUOTA; /* it would be two */
        }
    }
    for (guint i = 0; i < ranges->len; i++) {
        struct ticket *t = ranges->pdata[i];
        if (t->scope->start <= end && t->scope->end >= start) {
            range_carve(space, t, start, end);
        }
    }
    g_ptr_array_free(ranges, TRUE);
    return BACKEND_OK;
}

/* Adds a ticket to those whose way is to be looked at, once in a search. */
static void range_follow(struct lockspace *space, GPtrArray *open, struct ticket *t)
{
    if (t->scope->search != space->search) {
        t->scope->search = space->search;
        g_ptr_array_add(open, t);
    }
}

/* What a lock owner holds it may keep for as long as anything for which it waits. */
static void range_follow_lock_owner(struct lockspace *space, GPtrArray *open, uint64_t lock_owner)
{
    struct group *g = lockspace_group(space, GROUP_WAITING, lock_owner, NULL);
    if (g->search != space->search) {
        g->search = space->search;
        for (struct ticket *t = g->first; t; t = t->scope->next[GROUP_WAITING]) {
            range_follow(space, open, t);
        }
    }
}

/* Follows, breadth first, what stands in the way of what stands in the way.
 * Tickets without a lock owner end the search: nobody knows for what else their
 * holder waits.  Another ticket of the same lock owner that only waits closes no
 * cycle: it is another thread's. */
bool lockspace_range_deadlock(struct lockspace *space, const struct ticket *t)
{
    uint64_t self = lockspace_lock_owner(t);
    if (t->head.kind != BACKEND_FCNTL || !self || !lockspace_group(space, GROUP_WAITING, self, NULL)) {
        return false; /* it holds nothing, so nobody waits for it */
    }
    bool found = false;
    unsigned budget = LOCKSPACE_SEARCH_MAX;
    GPtrArray *open = g_ptr_array_new();
    g_ptr_array_add(open, (gpointer)t);
    space->search++;
    for (guint i = 0; i < open->len && !found && budget > 0; i++) {
        const struct ticket *waiter = open->pdata[i];
        struct way way = {0};
        struct ticket *blocker;
        while (!found && budget > 0 && (blocker = lockspace_next_blocker(space, waiter->entry, waiter, &way))) {
            uint64_t lock_owner = lockspace_lock_owner(blocker);
            budget--;
            if (lock_owner && !blocker->head.held) {
                range_follow(space, open, blocker);
            } else if (lock_owner == self) {
                found = true;
            } else if (lock_owner) {
                range_follow_lock_owner(space, open, lock_owner);
            }
        }
    }
    g_ptr_array_free(open, TRUE);
    return found;
}
