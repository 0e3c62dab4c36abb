/* mounts: the attribute user.lease.mounts of a directory: the mounts that use the store. */
#ifndef FS_OPS_MOUNTS_H
#define FS_OPS_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

struct request;

#define MOUNTS_ATTRIBUTE "user.lease.mounts"

/* Ends the request.  The value has a line for each mount, as many as there is room for: its host, its version and for
 * how many seconds its daemon has been there (- for what is not known), with tabs between them.  `size` as of
 * getxattr(2). */
void mounts_get(struct request *r, size_t size);

#endif
