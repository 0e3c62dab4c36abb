/* sequence: a file whose name ends in '-' is a ticket of its directory's queue.
 *
 * Creating DIR/job- makes DIR/job-0000000042, a ticket that waits or holds.  It belongs
 * to its handle, and goes with the last close.  If it is closed explicitly before any
 * lock on it was asked for, it stays as a lease.  flock(2) on it waits until it holds.
 * (Like ZooKeeper's ephemeral sequential nodes.)
 */
#ifndef FS_OPS_SEQUENCE_H
#define FS_OPS_SEQUENCE_H

#include "fs/hold/hold.h"

/* Does creating this name make a ticket? */
static inline bool sequence_is_prefix(const char *name)
{
    return g_str_has_suffix(name, "-");
}

/* Creates a ticket for r->name in r->other.  With a NULL r->handle it is a lease at once.  With NULL `content` its
 * content is its own name. */
void sequence_create(struct request *r, mode_t mode, GBytes *content, request_step *answer);

/* The ticket whose grant a lock request through r->handle waits for, or NULL.  `lease`: of the request's path, or NULL.
 */
struct hold *sequence_ticket(struct request *r, struct hold *lease);

/* Replies when the ticket holds, as r->blocks and r->lock.mode say. */
void sequence_await_grant(struct request *r, struct hold *hold);

#endif
