/* content: reads and writes the content and the times of a lock.
 *
 * A write belongs to the lock of its handle, a truncate(2) by path to the lock that the name shows.  Each function that
 * takes a request and returns nothing ends it.
 */
#ifndef FS_OPS_CONTENT_H
#define FS_OPS_CONTENT_H

#include "fs/hold/handle.h"

void content_read(struct request *r);  /* r->read */
void content_write(struct request *r); /* takes r->content.bytes over */
/* To `size` bytes, through r->handle or, if that is NULL, by path. */
void content_truncate(struct request *r, off_t size);
/* O_TRUNC: empties the content of `hold`, then replies to the open. */
void content_truncate_at_open(struct request *r, struct hold *hold);
/* fsync(2): asks the store whether the handle still holds; -ESTALE if it lost its lock. */
void content_sync(struct request *r);

/* Sets r->times on r->node, for the request's caller. */
void content_set_times(struct request *r);
/* Has the caller lost its lock through a file of r->node, and has it no other writable file there that lost nothing?
 * The kernel does not say through which file it sets times. */
bool content_times_are_lost(struct request *r);

#endif
