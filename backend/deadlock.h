/* deadlock: finds cycles of waits, for EDEADLK of fcntl(2).
 *
 * A wait closes a cycle if its lock owner would wait, directly or through others, for a lock that it holds itself.  The
 * store says which tickets block which; the search is the same for all stores.
 */
#ifndef BACKEND_DEADLOCK_H
#define BACKEND_DEADLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct deadlock; /* a search */

struct deadlock_rules {
    /* Calls deadlock_add_blocker for each ticket that blocks this one, as long as deadlock_may_take allows it. */
    void (*visit_blockers)(struct deadlock *search, void *store, const void *ticket);
    /* Calls deadlock_add_ticket for each waiting ticket of a lock owner, on any lock. */
    void (*visit_tickets)(struct deadlock *search, void *store, uint64_t lock_owner);
};

/* Does this ticket make its lock owner wait for itself?  A search breadth first, which gives up after looking at
 * 1,000 tickets: so no user can keep the daemon busy with it for longer than a millisecond. */
bool deadlock_search(const struct deadlock_rules *rules, void *store, const void *ticket, uint64_t lock_owner);

/* Counts tickets that were looked at.  False: the search has its result, or has reached its limit. */
bool deadlock_may_take(struct deadlock *search, unsigned tickets);
/* `waits`: the ticket waits, else it holds.  `*lock_owner` must stay valid until the search ends; a ticket without a
 * lock owner (0) ends its path, because it is not known what else its process waits for. */
void deadlock_add_blocker(struct deadlock *search, const void *ticket, const uint64_t *lock_owner, bool waits);
void deadlock_add_ticket(struct deadlock *search, const void *ticket);

#endif
