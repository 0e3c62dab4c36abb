/* lockspace: operations on tickets; see lockspace.h.
 *
 * Every call that removes or weakens tickets ends with lockspace_grant_waiters
 * on their lock, which grants what has become free.
 */
#include "backend/lockspace/private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LEAF_MAX = 255 };

static clock_ms lockspace_next_event(const struct ticket *t)
{
    return t->due == LOCKSPACE_DUE_REPORTED || t->head.resting ? CLOCK_NEVER : MIN(t->due, t->head.deadline);
}

static int lockspace_compare_agenda(const void *a, const void *b)
{
    const struct ticket *x = a, *y = b;
    clock_ms s = lockspace_next_event(x), t = lockspace_next_event(y);
    if (s != t) {
        return s < t ? -1 : 1;
    }
    if (s == CLOCK_NEVER && x->due != y->due) {
        return x->due < y->due ? -1 : 1;
    }
    return lockspace_compare_tickets(x, y);
}

struct lockspace *lockspace_new(const struct lockspace_listener *listener, void *context, uint32_t seed)
{
    struct lockspace *space = g_new0(struct lockspace, 1);
    struct backend_directory attributes = {.width = 1};
    space->listener = *listener;
    space->context = context;
    space->random = seed;
    space->next_fence = 1;
    space->groups = g_hash_table_new_full(lockspace_group_hash, lockspace_group_equal, g_free, NULL);
    sorted_init(&space->agenda, lockspace_compare_agenda, lockspace_random(space));
    space->root = lockspace_directory_new(space, NULL, "", &attributes);
    return space;
}

void lockspace_free(struct lockspace *space)
{
    if (space) {
        sorted_clear(&space->agenda);
        lockspace_tree_free(space);
        g_hash_table_destroy(space->groups);
        g_free(space);
    }
}

uint64_t lockspace_next_fence(const struct lockspace *space)
{
    return space->next_fence;
}

void lockspace_raise_fence(struct lockspace *space, uint64_t next)
{
    space->next_fence = MAX(space->next_fence, next);
}

uint64_t lockspace_next_number(const struct lockspace *space)
{
    return space->next_number;
}

struct backend_counts lockspace_counts(const struct lockspace *space)
{
    return (struct backend_counts){.locks = space->locks, .waiting = space->waiting};
}

uint64_t lockspace_keep_candidates(const struct lockspace *space)
{
    return space->keep_candidates;
}

/* Ends */

void lockspace_release(struct lockspace *space, clock_ms now, struct backend_ticket *ticket)
{
    struct ticket *t = (struct ticket *)ticket;
    struct entry *lock = lockspace_lock_of(t);
    uint64_t start = lockspace_start(t), end = lockspace_end(t);
    lockspace_remove(space, t);
    lockspace_grant_waiters(space, now, lock, start, end);
}

enum backend_result lockspace_release_range(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                            uint64_t start, uint64_t end)
{
    struct ticket *t = (struct ticket *)ticket;
    enum backend_result result = lockspace_range_take(space, t, start, end);
    if (result == BACKEND_MISSING) {
        lockspace_release(space, now, ticket);
    } else {
        lockspace_grant_waiters(space, now, lockspace_lock_of(t), start, end);
    }
    return result;
}

GPtrArray *lockspace_revoked(const struct entry *entry, uint64_t fence)
{
    GPtrArray *found = g_ptr_array_new();
    bool guards = true;
    struct queue *q = lockspace_queue(entry);
    struct skiplist_node *node = q ? skiplist_first(&q->holders) : NULL;
    for (struct ticket *t = q ? lockspace_ticket(node) : entry->ticket; t; t = lockspace_ticket(node)) {
        if (t->head.kind != LOCKSPACE_DELAY && (!fence || t->head.fence == fence)) {
            g_ptr_array_add(found, t);
            guards = guards && t->head.guarded;
        }
        node = node ? skiplist_next(node) : NULL;
    }
    for (guint i = found->len; i > 0 && !guards; i--) {
        if (((struct ticket *)found->pdata[i - 1])->head.guarded) {
            g_ptr_array_remove_index(found, i - 1);
        }
    }
    return found;
}

bool lockspace_revoked_match(struct lockspace *space, const char *name, uint64_t fence,
                             const struct backend_match *match)
{
    struct entry *entry = NULL;
    if (lockspace_find(space, name, &entry) != BACKEND_OK || entry->type == ENTRY_DIRECTORY) {
        return true;
    }
    bool all = true;
    GPtrArray *found = lockspace_revoked(entry, fence);
    for (guint i = 0; i < found->len; i++) {
        const struct ticket *t = found->pdata[i];
        all = all && !t->head.guarded && backend_matches(match, t->meta);
    }
    g_ptr_array_free(found, TRUE);
    return all;
}

enum backend_result lockspace_revoke(struct lockspace *space, clock_ms now, const char *name, uint64_t fence)
{
    struct entry *entry = NULL;
    enum backend_result result = lockspace_find(space, name, &entry);
    if (result != BACKEND_OK) {
        return result;
    }
    if (entry->type == ENTRY_DIRECTORY) {
        return BACKEND_IS_DIRECTORY;
    }
    GPtrArray *found = lockspace_revoked(entry, fence);
    if (found->len > 0) {
        struct entry *lock = lockspace_lock_of(found->pdata[0]);
        for (guint i = 0; i < found->len; i++) {
            lockspace_expel_revoked(space, now, found->pdata[i], fence ? BACKEND_RELEASED : BACKEND_BROKEN);
        }
        lockspace_grant_waiters(space, now, lock, 0, BACKEND_RANGE_MAX);
    } else {
        result = fence ? BACKEND_STALE : BACKEND_MISSING;
    }
    g_ptr_array_free(found, TRUE);
    return result;
}

/* Claims */

/* The ticket that blocks the new ticket `t`, or NULL.  Ends blockers that have expired.
 * Sets the fencing token of `t` to the next one, and its entry to the one that has the name
 * afterwards, or NULL. */
static struct ticket *lockspace_find_blocker(struct lockspace *space, clock_ms now, struct directory *directory,
                                             const char *leaf, struct ticket *t)
{
    for (;;) {
        t->head.fence = space->next_fence;
        struct ticket *blocker = t->entry ? lockspace_blocker(space, lockspace_lock_of(t), t) : NULL;
        if (!blocker || !lockspace_is_expired(blocker, now)) {
            return blocker;
        }
        lockspace_end_ticket(space, now, blocker, BACKEND_EXPIRED);
        t->entry = lockspace_entry_find(directory, leaf);
    }
}

/* Inserts a ticket, holding or waiting, and gives it the next fencing token. */
static enum backend_result lockspace_append(struct lockspace *space, clock_ms now, struct ticket *t,
                                            const struct backend_claim *claim, bool held)
{
    space->next_fence++;
    t->head.acquired = now;
    t->head.held = held;
    lockspace_start_term(t, now, claim->ttl, claim->due);
    bool joined = held && !space->defer_grants && lockspace_range_join(space, t, true);
    if (!joined) {
        lockspace_join(space, t, held);
    }
    if (!held) {
        lockspace_report_wanted(space, t);
        return BACKEND_QUEUED;
    }
    struct entry *lock = lockspace_lock_of(t);
    const struct queue *q = lockspace_queue(lock);
    if (t->scope) {
        t->scope->unclaimed = space->defer_grants && t->head.kind == BACKEND_FCNTL;
    }
    if (joined || (q && q->same_identity > 0)) {
        /* a range that became shared is free for others, and waiters of its identity may now overtake its waiters */
        lockspace_grant_waiters(space, now, lock, 0, BACKEND_RANGE_MAX);
    } else {
        lockspace_shrink(space, lock);
    }
    return BACKEND_OK;
}

static enum backend_result lockspace_acquire_sequence(struct lockspace *space, clock_ms now,
                                                      struct directory *directory, const char *prefix,
                                                      const struct backend_claim *claim,
                                                      struct backend_ticket **ret_ticket)
{
    char leaf[LEAF_MAX + 1];
    uint64_t number = directory->attributes.sequence;
    do {
        int length = snprintf(leaf, sizeof(leaf), "%s%010" PRIu64, prefix, number++);
        if (length >= (int)sizeof(leaf) || prefix[strlen(prefix) - 1] != '-') {
            return BACKEND_INVALID;
        }
    } while (lockspace_entry_find(directory, leaf));
    lockspace_directory_raise_number(space, directory, number);

    struct ticket *t = lockspace_ticket_new(claim);
    struct entry *file = lockspace_entry_new(directory, leaf, ENTRY_SEQUENCE);
    file->ticket = t;
    t->entry = file;
    struct ticket *blocker = lockspace_find_blocker(space, now, directory, leaf, t);
    *ret_ticket = &t->head;
    return lockspace_append(space, now, t, claim, !blocker);
}

static enum backend_result lockspace_busy(const struct ticket *holder, const struct ticket *claimant,
                                          struct backend_info *ret_holder)
{
    if (ret_holder) {
        lockspace_describe(holder, claimant, ret_holder);
    }
    return BACKEND_BUSY;
}

/* For a name that is, or may become, a lock. */
static enum backend_result lockspace_acquire_lock(struct lockspace *space, clock_ms now, struct directory *directory,
                                                  const char *leaf, struct entry *entry,
                                                  const struct backend_claim *claim, struct backend_ticket **ret_ticket,
                                                  struct backend_info *ret_holder)
{
    struct ticket *t = lockspace_ticket_new(claim);
    t->entry = entry;
    struct ticket *blocker = lockspace_find_blocker(space, now, directory, leaf, t);
    enum backend_result result = BACKEND_OK;
    if (blocker && !claim->wait) {
        result = lockspace_busy(blocker, t, ret_holder);
    } else if (blocker && (lockspace_is_rivalled(space, t->entry, t) || lockspace_range_deadlock(space, t))) {
        result = BACKEND_DEADLOCK;
    }
    if (result != BACKEND_OK) {
        lockspace_ticket_free(&t->head);
        return result;
    }
    if (!t->entry) {
        t->entry = lockspace_entry_new(directory, leaf, ENTRY_SINGLE);
    }
    *ret_ticket = &t->head;
    return lockspace_append(space, now, t, claim, !blocker);
}

enum backend_result lockspace_acquire(struct lockspace *space, clock_ms now, const char *name,
                                      const struct backend_claim *claim, struct backend_ticket **ret_ticket,
                                      struct backend_info *ret_holder)
{
    struct directory *directory = NULL;
    const char *leaf = NULL;
    enum backend_result result = lockspace_locate(space, name, &directory, &leaf);
    if (result != BACKEND_OK) {
        return *name ? result : BACKEND_IS_DIRECTORY;
    }
    if (claim->sequence) {
        return lockspace_acquire_sequence(space, now, directory, leaf, claim, ret_ticket);
    }
    struct entry *entry = lockspace_entry_find(directory, leaf);
    if (entry && entry->type == ENTRY_DIRECTORY) {
        return BACKEND_IS_DIRECTORY;
    }
    if (entry && claim->kind == BACKEND_FCNTL && !lockspace_range_may_grow(space, entry, claim->lock_owner)) {
        return BACKEND_QUOTA;
    }
    if (entry && entry->type == ENTRY_SEQUENCE) {
        return lockspace_busy(entry->ticket, NULL, ret_holder); /* the file of a ticket has that name */
    }
    return lockspace_acquire_lock(space, now, directory, leaf, entry, claim, ret_ticket, ret_holder);
}

void lockspace_test(struct lockspace *space, const char *name, const struct backend_claim *claim,
                    struct backend_info *ret_info)
{
    struct entry *entry = NULL;
    *ret_info = (struct backend_info){.type = BACKEND_NOTHING};
    if (claim->sequence || lockspace_find(space, name, &entry) != BACKEND_OK || entry->type == ENTRY_DIRECTORY) {
        return;
    }
    struct ticket *t = lockspace_ticket_new(claim);
    struct ticket *blocker = NULL;
    t->head.fence = space->next_fence;
    if (entry->type == ENTRY_SEQUENCE) {
        blocker = lockspace_conflict(entry, entry->ticket, t) ? entry->ticket : NULL;
    } else {
        blocker = lockspace_blocker(space, entry, t);
    }
    if (blocker) {
        lockspace_describe(blocker, t, ret_info);
    }
    lockspace_ticket_free(&t->head);
}

/* Changes */

/* A holder other than `t` that conflicts with the claim, or NULL. */
static struct ticket *lockspace_excluded_holder(struct lockspace *space, const struct ticket *t,
                                                const struct ticket *wanted)
{
    struct blocker_walk walk = {0};
    struct ticket *other;
    do {
        other = lockspace_next_blocker(space, lockspace_lock_of(t), wanted, &walk);
    } while (other == t);
    return other; /* no waiter, because `wanted` has no number yet */
}

/* Does no holder other than `t` conflict with the claim?  Ends those that have
 * expired.  In a sequence an exclusive ticket may stand beside fewer than `width` exclusive
 * holders, and beside no shared one. */
static bool lockspace_may_convert(struct lockspace *space, clock_ms now, struct ticket *t,
                                  const struct backend_claim *claim)
{
    const struct entry *lock = lockspace_lock_of(t);
    if (lock->type == ENTRY_DIRECTORY) {
        const struct queue *q = lock->directory->queue;
        uint32_t others = skiplist_length(&q->holders) - 1;
        return claim->mode == BACKEND_SHARED || !lockspace_shared(t) ||
               (others == q->exclusive && others < lock->directory->attributes.width);
    }
    if (!lockspace_queue(lock)) {
        return true; /* the only ticket */
    }
    struct ticket *wanted = lockspace_ticket_new(claim);
    struct ticket *other;
    while ((other = lockspace_excluded_holder(space, t, wanted)) && lockspace_is_expired(other, now)) {
        lockspace_end_ticket(space, now, other, BACKEND_EXPIRED);
    }
    lockspace_ticket_free(&wanted->head);
    return !other;
}

enum backend_result lockspace_convert(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                      const struct backend_claim *claim)
{
    struct ticket *t = (struct ticket *)ticket;
    struct backend_claim wanted = *claim;
    wanted.sequence = t->entry->type == ENTRY_SEQUENCE;
    if (lockspace_is_expired(t, now)) {
        return BACKEND_STALE;
    }
    if (t->head.held && !lockspace_may_convert(space, now, t, &wanted)) {
        return BACKEND_BUSY;
    }
    lockspace_leave(space, t);
    t->head.user = claim->user;
    t->head.kind = (uint8_t)claim->kind;
    t->head.mode = (uint8_t)claim->mode;
    lockspace_set_scope(t, &wanted);
    lockspace_start_term(t, now, claim->ttl, claim->due);
    lockspace_join(space, t, t->head.held);
    struct backend_change change = {.set = (claim->meta ? BACKEND_SET_META : 0u) |
                                           (claim->content ? BACKEND_SET_CONTENT : 0u),
                                    .meta = claim->meta,
                                    .content = claim->content};
    lockspace_set(ticket, &change);
    if (t->head.held) {
        lockspace_range_join(space, t, false);
    }
    lockspace_grant_waiters(space, now, lockspace_lock_of(t), 0, BACKEND_RANGE_MAX);
    return BACKEND_OK;
}

void lockspace_defer_grants(struct lockspace *space, bool defer)
{
    space->defer_grants = defer;
}

void lockspace_claim(struct lockspace *space, clock_ms now, struct backend_ticket *ticket)
{
    struct ticket *t = (struct ticket *)ticket;
    if (lockspace_range_join(space, t, false)) {
        lockspace_grant_waiters(space, now, lockspace_lock_of(t), 0, BACKEND_RANGE_MAX);
    }
}

void lockspace_renew(struct lockspace *space, clock_ms now, struct backend_ticket *ticket, int64_t ttl, int64_t due)
{
    struct ticket *t = (struct ticket *)ticket;
    if (t->head.held && lockspace_is_expired(t, now)) {
        lockspace_end_ticket(space, now, t, BACKEND_LOST);
        return;
    }
    sorted_remove(&space->agenda, t);
    lockspace_start_term(t, now, ttl, due);
    sorted_insert(&space->agenda, t);
}

void lockspace_rest(struct lockspace *space, struct backend_ticket *ticket, uint32_t keeper)
{
    struct ticket *t = (struct ticket *)ticket;
    sorted_remove(&space->agenda, t);
    t->head.resting = true;
    t->due = lockspace_resting_due(keeper);
    sorted_insert(&space->agenda, t);
}

static int lockspace_probe_resting(const void *item, const void *key)
{
    const struct ticket *t = item;
    const clock_ms *due = key;
    if (lockspace_next_event(t) != CLOCK_NEVER) {
        return -1;
    }
    return t->due < *due ? -1 : t->due > *due;
}

size_t lockspace_wake(struct lockspace *space, clock_ms now, uint32_t keeper, struct backend_ticket **ret_tickets,
                      size_t max)
{
    clock_ms due = lockspace_resting_due(keeper);
    size_t count = 0;
    struct ticket *t;
    while (count < max && (t = sorted_find(&space->agenda, lockspace_probe_resting, &due))) {
        sorted_remove(&space->agenda, t);
        lockspace_start_term(t, now, t->head.ttl, 0);
        t->due = now;
        sorted_insert(&space->agenda, t);
        ret_tickets[count++] = &t->head;
    }
    return count;
}

void lockspace_due_handled(struct lockspace *space, struct backend_ticket *ticket)
{
    struct ticket *t = (struct ticket *)ticket;
    if (t->due == LOCKSPACE_DUE_REPORTED) {
        sorted_remove(&space->agenda, t);
        t->due = CLOCK_NEVER;
        sorted_insert(&space->agenda, t);
    }
}

bool lockspace_ticket_is_expired(const struct backend_ticket *ticket, clock_ms now)
{
    return lockspace_is_expired((const struct ticket *)ticket, now);
}

/* The first holder of the lock, but not `but` unless that has expired. */
static struct ticket *lockspace_other_holder(const struct entry *lock, clock_ms now, const struct ticket *but)
{
    const struct queue *q = lockspace_queue(lock);
    struct skiplist_node *node = q ? skiplist_first(&q->holders) : NULL;
    struct ticket *t = q ? lockspace_ticket(node) : lock->ticket;
    if (t && t == but && !lockspace_is_expired(t, now) && lock->type != ENTRY_SEQUENCE) {
        return node ? lockspace_ticket(skiplist_next(node)) : NULL;
    }
    return t;
}

/* Finds the target of a rename.  *ret_entry: an entry on which only `replaced`
 * holds, the ticket's own entry, or NULL. */
static enum backend_result lockspace_find_target(struct lockspace *space, clock_ms now, const struct ticket *t,
                                                 const char *name, const struct ticket *replaced,
                                                 struct directory **ret_directory, const char **ret_leaf,
                                                 struct entry **ret_entry)
{
    enum backend_result result = lockspace_locate(space, name, ret_directory, ret_leaf);
    if (result != BACKEND_OK || t->entry->type == ENTRY_SEQUENCE) {
        return result == BACKEND_OK ? BACKEND_INVALID : result;
    }
    if (!t->head.held || lockspace_is_expired(t, now)) {
        return BACKEND_STALE;
    }
    struct entry *target;
    while ((target = lockspace_entry_find(*ret_directory, *ret_leaf)) && target != t->entry) {
        if (target->type == ENTRY_DIRECTORY) {
            return BACKEND_IS_DIRECTORY;
        }
        struct ticket *holder = lockspace_other_holder(target, now, replaced);
        if (!holder) {
            break;
        }
        if (!lockspace_is_expired(holder, now)) {
            return BACKEND_BUSY;
        }
        lockspace_end_ticket(space, now, holder, BACKEND_EXPIRED);
    }
    *ret_entry = target;
    return BACKEND_OK;
}

enum backend_result lockspace_may_rename(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                         const char *name, const struct backend_ticket *replaced)
{
    struct directory *directory = NULL;
    const char *leaf = NULL;
    struct entry *target = NULL;
    return lockspace_find_target(space, now, (struct ticket *)ticket, name, (const struct ticket *)replaced, &directory,
                                 &leaf, &target);
}

enum backend_result lockspace_rename(struct lockspace *space, clock_ms now, struct backend_ticket *ticket,
                                     const char *name, struct backend_ticket *replaced)
{
    struct ticket *t = (struct ticket *)ticket;
    struct directory *directory = NULL;
    const char *leaf = NULL;
    struct entry *lock = t->entry, *target = NULL;
    enum backend_result result =
        lockspace_find_target(space, now, t, name, (const struct ticket *)replaced, &directory, &leaf, &target);
    if (result != BACKEND_OK || target == lock) {
        return result;
    }
    uint64_t start = lockspace_start(t), end = lockspace_end(t);
    lockspace_leave(space, t);
    t->entry = target ? target : lockspace_entry_new(directory, leaf, ENTRY_SINGLE);
    t->head.fence = space->next_fence++;
    lockspace_join(space, t, true);
    if (target) {
        lockspace_expel(space, now, (struct ticket *)replaced, BACKEND_RELEASED);
        const struct queue *q = lockspace_queue(target);
        if (q && skiplist_length(&q->waiters) > 0) {
            space->listener.wanted(space->context, ticket);
        }
        lockspace_grant_waiters(space, now, target, 0, BACKEND_RANGE_MAX);
    } else {
        lockspace_shrink(space, t->entry);
    }
    lockspace_grant_waiters(space, now, lock, start, end);
    return BACKEND_OK;
}

/* Time */

static clock_ms lockspace_next_term(const struct lockspace *space)
{
    const struct ticket *t = sorted_item(sorted_first(&space->agenda));
    return t ? lockspace_next_event(t) : CLOCK_NEVER;
}

clock_ms lockspace_next(const struct lockspace *space)
{
    return LIST_EMPTY(&space->granting) ? lockspace_next_term(space) : 0;
}

size_t lockspace_tick(struct lockspace *space, clock_ms now, size_t max)
{
    size_t count = 0;
    if (!LIST_EMPTY(&space->granting)) {
        lockspace_grant_more(space, now);
        count = max; /* the next call handles what is due */
    }
    for (; count < max && lockspace_next_term(space) <= now; count++) {
        struct ticket *t = sorted_item(sorted_first(&space->agenda));
        if (lockspace_is_expired(t, now)) {
            lockspace_end_ticket(space, now, t, BACKEND_EXPIRED);
            continue;
        }
        sorted_remove(&space->agenda, t);
        lockspace_catch_up(t, now);
        t->due = LOCKSPACE_DUE_REPORTED;
        sorted_insert(&space->agenda, t);
        space->listener.due(space->context, &t->head);
    }
    return count;
}
