/* entry: a name's attributes for the kernel, and for how long the kernel may cache them. */
#ifndef FS_HOLD_ENTRY_H
#define FS_HOLD_ENTRY_H

#include "fs/hold/hold.h"

/* For a name that this mount holds, a directory, or a name that nobody holds. */
void entry_fill_attributes(struct fs *fs, const struct node *node, struct stat *ret_attributes);
void entry_fill(struct fs *fs, struct node *node, struct fuse_entry_param *ret_entry);
/* For a listing.  True if the kernel may cache the entry without asking again: a lease, for a second.  Code that
 * changes the lease's attributes calls tree_invalidate. */
bool entry_fill_listed(struct fs *fs, struct node *node, struct fuse_entry_param *ret_entry);
double entry_attribute_timeout(const struct fs *fs, const struct node *node);

/* For a lock of another mount, or of another client of the store: the kernel caches nothing. */
void entry_fill_attributes_elsewhere(struct fs *fs, struct node *node, const struct backend_info *info,
                                     struct stat *ret_attributes);
void entry_fill_elsewhere(struct fs *fs, struct node *node, const struct backend_info *info,
                          struct fuse_entry_param *ret_entry);

/* Has the lock of another mount that the node was found on ended, though the node is still open here?  `info` is the
 * lock that has its name now. */
bool entry_has_outlived(const struct node *node, const struct backend_info *info);

/* A negative entry.  `has_node`: this mount still has a node of that name. */
void entry_fill_missing(struct fs *fs, bool has_node, const char *name, struct fuse_entry_param *ret_entry);

/* Replies with r->handle, and with r->node if the request creates. */
void entry_reply_open(struct request *r);

#endif
