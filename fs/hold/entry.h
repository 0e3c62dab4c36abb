/* entry: what the kernel is told of a name: its attributes, and for how long it may
 * keep them.
 */
#ifndef FS_HOLD_ENTRY_H
#define FS_HOLD_ENTRY_H

#include "fs/hold/hold.h"

/* Of what this mount holds, of a directory, and of what nobody holds. */
void entry_fill_attributes(struct fs *fs, const struct node *node, struct stat *ret_attributes);
void entry_fill(struct fs *fs, struct node *node, struct fuse_entry_param *ret_entry);
/* The same for a listing, if the kernel may go by it until its caller asks for it: of a lease, for a second.  What
 * changes the lease's attributes meanwhile calls tree_invalidate. */
bool entry_fill_listed(struct fs *fs, struct node *node, struct fuse_entry_param *ret_entry);
double entry_attribute_timeout(const struct fs *fs, const struct node *node);

/* Of a lock that another mount holds, or a client that is none: nothing may be kept. */
void entry_fill_attributes_elsewhere(struct fs *fs, const struct node *node, const struct backend_info *info,
                                     struct stat *ret_attributes);
void entry_fill_elsewhere(struct fs *fs, struct node *node, const struct backend_info *info,
                          struct fuse_entry_param *ret_entry);

/* A name that is not there; is there a node of it? */
void entry_fill_missing(struct fs *fs, bool has_node, const char *name, struct fuse_entry_param *ret_entry);

/* Hands r->handle to the kernel, with r->node if the request creates. */
void entry_reply_open(struct request *r);

#endif
