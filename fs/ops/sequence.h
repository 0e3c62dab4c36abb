/* sequence: files whose name ends in '-' are places in their directory's queue.
 *
 * Creating DIR/job- makes DIR/job-0000000042, a ticket that waits or holds.  It
 * is held by its handle and goes with the last close; closed explicitly without
 * ever asking for a lock, it stays as a lease.  flock on it waits for its turn.
 * (ZooKeeper's ephemeral sequential nodes.)
 */
#ifndef FS_OPS_SEQUENCE_H
#define FS_OPS_SEQUENCE_H

#include "fs/hold/hold.h"

/* Is this the name of a file to be numbered? */
static inline bool sequence_is_prefix(const char *name)
{
    return g_str_has_suffix(name, "-");
}

/* Creates a ticket for r->name in r->other; r->handle may be NULL (then it is a
 * lease at once).  `content` NULL: its own name. */
void sequence_create(struct request *r, mode_t mode, GBytes *content, request_step *answer);

/* The ticket on whose turn a lock request through r->handle waits, or NULL.  `lease` is that of the request's path, or
 * NULL. */
struct hold *sequence_ticket(struct request *r, struct hold *lease);

/* Answers it when the ticket holds; r->blocks and r->lock.mode say how. */
void sequence_await_grant(struct request *r, struct hold *hold);

#endif
