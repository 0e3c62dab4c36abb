/* ops: the kernel's requests, one thin handler each: validate, call, return.
 *
 * By theme, a file and its header for each; a line calls those below it only:
 *
 *     ops        the table of handlers
 *     names      look-up, create, unlink, rename, links       attributes  stat(2), chmod, utimes
 *     handle     open, close, poll           lock  flock(2) and fcntl(2)
 *     content    read, write, truncate, times   directory   mkdir, rmdir, readdir
 *     sequence   places in a queue           opening     from look-up to open
 *     xattr      the table user.lease.*      xattr_set   what of it can be set
 *
 * Each function that takes a request ends it.
 */
#ifndef FS_OPS_OPS_H
#define FS_OPS_OPS_H

struct fuse_lowlevel_ops;

/* With a struct fs for userdata. */
extern const struct fuse_lowlevel_ops ops_table;

#endif
