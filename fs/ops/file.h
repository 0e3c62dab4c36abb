/* file: the kernel's requests to open, close and poll a file; see fs/hold/handle.h.
 *
 * Each function that takes a request ends it.
 */
#ifndef FS_OPS_FILE_H
#define FS_OPS_FILE_H

#include "fs/hold/handle.h"

void file_open(struct request *r);
/* A close(2) of one descriptor.  Replies when the record locks of its lock owner are released. */
void file_flush(struct request *r);
/* Does RELEASE of this handle make a lease, by file_release?  Otherwise the handle is only freed. */
bool file_release_makes_lease(const struct handle *handle);
void file_release(struct request *r);

/* poll(2): always readable and writable.  POLLPRI: somebody waits for what the handle holds.  POLLERR|POLLHUP: its lock
 * was lost, or was released through something else than this handle.  Takes `poll` over; it may be NULL. */
void file_poll(struct request *r);

#endif
