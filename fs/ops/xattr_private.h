/* xattr_private: what xattr.c and xattr_set.c share. */
#ifndef FS_OPS_XATTR_PRIVATE_H
#define FS_OPS_XATTR_PRIVATE_H

#include "fs/ops/xattr.h"

struct xattr {
    const char *name;
    bool on_lock, on_directory;
    bool of_ticket; /* all that it tells is in the ticket, if that is this mount's */
    /* The value, to be freed, or NULL: the lock has none now (ENODATA).  NULL: write only. */
    char *(*get)(struct request *r, const struct backend_info *info);
    /* Ends the request; takes r->value, NUL-terminated.  NULL: read only. */
    void (*set)(struct request *r);
};

/* Each ends the request; takes r->value. */
void xattr_set_ttl(struct request *r);
void xattr_set_guard(struct request *r);
void xattr_set_delay(struct request *r);
void xattr_set_width(struct request *r);
void xattr_set_check(struct request *r);
void xattr_set_release(struct request *r);
void xattr_set_break(struct request *r);

#endif
