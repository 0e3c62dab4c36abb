/* file: the kernel's requests to open, close and poll a file; see fs/hold/handle.h. */
#ifndef FS_OPS_FILE_H
#define FS_OPS_FILE_H

#include "fs/hold/handle.h"

/* The steps of the kernel's requests on an open file; each ends the request. */
void handle_open(struct request *r);
void handle_flush(struct request *r);
/* fsync(2): whether what it held is held still, as the store knows it. */
void handle_sync(struct request *r);
/* Does its release make a lease of what it holds?  Otherwise it is only freed. */
bool handle_release_decides(const struct handle *handle);
void handle_release(struct request *r);
void handle_read(struct request *r);
void handle_write(struct request *r); /* takes r->content.bytes over */
void handle_truncate(struct request *r, off_t size);
void handle_truncate_at_open(struct request *r, struct hold *hold);
void handle_times(struct request *r); /* of r->node, by its caller */
/* Has the caller lost the lock that it had through a file of r->node, and no writable one there that lost nothing?  The
 * kernel does not tell by which times are set. */
bool handle_times_are_lost(struct request *r);

/* poll(2): always readable and writable; POLLPRI when somebody began to wait for
 * what the handle holds, POLLERR|POLLHUP when it was lost, or released but not
 * through the handle.  Takes `poll` over
 * (may be NULL) and ends the request. */
void handle_poll(struct request *r, struct fuse_pollhandle *poll);

#endif
