/* ops: the kernel's requests, one short handler each: check, call, return.
 *
 * One file for each theme; a line calls only those below it:
 *
 *     ops        the table of handlers
 *     names      look-up, create, unlink, rename, links       attributes  stat(2), chmod, utimes
 *     file       open, close, poll              lock       flock(2) and fcntl(2)
 *     content    read, write, truncate, times   directory  mkdir, rmdir, readdir
 *     sequence   tickets of a queue             opening    between look-up and open
 *     xattr      the table user.lease.*         xattr_set  sets those that can be set
 *
 * Each function that takes a request ends it.
 */
#ifndef FS_OPS_OPS_H
#define FS_OPS_OPS_H

struct fuse_lowlevel_ops;

/* Its userdata is a struct fs. */
extern const struct fuse_lowlevel_ops ops_table;

#endif
