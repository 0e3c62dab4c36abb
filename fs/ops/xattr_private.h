/* xattr_private: shared by xattr.c and xattr_set.c. */
#ifndef FS_OPS_XATTR_PRIVATE_H
#define FS_OPS_XATTR_PRIVATE_H

#include "fs/ops/xattr.h"

struct node;

struct xattr {
    const char *name;
    bool on_lock, on_directory;
    bool of_ticket; /* a ticket of this mount has everything that it shows */
    /* Returns the value, which the caller frees; NULL: the lock has none now (ENODATA).  A NULL function: write only.
     */
    char *(*get)(struct request *r, const struct backend_info *info);
    /* Ends the request; takes r->value, NUL-terminated.  A NULL function: read only. */
    void (*set)(struct request *r);
};

/* Ends the request with this value, or with its length if r->xattr.size is 0. */
void xattr_reply(struct request *r, const char *text, size_t length);
/* The values of user.lease.owner and user.lease.acquired; the caller frees them; NULL: none.  `node` may be NULL. */
char *xattr_format_owner(struct fs *fs, const struct node *node, const struct backend_info *info);
char *xattr_format_acquired(struct fs *fs, const struct backend_info *info);

/* Each ends the request; takes r->value. */
void xattr_set_ttl(struct request *r);
void xattr_set_guard(struct request *r);
void xattr_set_note(struct request *r);
void xattr_set_delay(struct request *r);
void xattr_set_width(struct request *r);
void xattr_set_check(struct request *r);
void xattr_set_release(struct request *r);
void xattr_set_break(struct request *r);
void xattr_set_resume(struct request *r);

#endif
