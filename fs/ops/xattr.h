/* xattr: the table of attributes user.lease.* of locks and directories. */
#ifndef FS_OPS_XATTR_H
#define FS_OPS_XATTR_H

#include "fs/fs.h"

struct request;

/* Each ends the request.  With `size` 0 the reply is the length of the value or list.  `flags`: of setxattr(2). */
void xattr_get(struct request *r, const char *name, size_t size);
/* r->xattr.size is set. */
void xattr_list(struct request *r);
void xattr_set(struct request *r, const char *name, const char *value, size_t size, int flags);
void xattr_remove(struct request *r, const char *name);

#endif
