/* deadlock: cycles of waits, as fcntl(2) EDEADLK knows them: whether a lock owner waits, in the end, for what it holds.
 *
 * Who holds goes on only when what it waits for elsewhere does, who waits when it holds.  What stands in whose way is
 * for the store to say, which knows the order of its queues; the search is the same for all of them.
 */
#ifndef BACKEND_DEADLOCK_H
#define BACKEND_DEADLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct deadlock; /* a search */

struct deadlock_rules {
    /* Tells deadlock_add_blocker of each ticket that stands in the way of this one; asks deadlock_within_limit before
     * each. */
    void (*visit_blockers)(struct deadlock *search, void *store, const void *ticket);
    /* Tells deadlock_add_ticket of each ticket with which a lock owner waits, anywhere. */
    void (*visit_tickets)(struct deadlock *search, void *store, uint64_t lock_owner);
};

/* Does the lock owner wait for itself with this ticket?  Breadth first, and no longer than users may make it: a cycle
 * behind more than 100,000 tickets is not found. */
bool deadlock_search(const struct deadlock_rules *rules, void *store, const void *ticket, uint64_t lock_owner);

/* False: enough has been seen. */
bool deadlock_within_limit(struct deadlock *search);
/* `waits`: the ticket waits, else it holds.  `lock_owner` stays where it is until the search ends; 0: it has none, and
 * nobody knows for what else its holder waits. */
void deadlock_add_blocker(struct deadlock *search, const void *ticket, const uint64_t *lock_owner, bool waits);
void deadlock_add_ticket(struct deadlock *search, const void *ticket);

#endif
