/* unmounter: a process that unmounts for a daemon that no longer may.
 *
 * The daemon in its sandbox has no right to unmount, and cannot run fusermount3.
 * So a child that keeps the right is forked before, holds nothing of the daemon's
 * but one end of a socket, and sleeps until it is asked, once, or the daemon has
 * ended.  It unmounts as mountpoint_clear does, so not what somebody has mounted
 * there since.
 *
 * A daemon that is killed asks for nothing, and leaves its mount behind, as one
 * without a sandbox does: whoever uses it is told, and does not lock files of the
 * directory below.
 */
#ifndef FS_UNMOUNTER_H
#define FS_UNMOUNTER_H

#include <stddef.h>

struct unmounter;

/* Forks it.  Before the store is opened: the child would share its memory.  0,
 * or -errno. */
int unmounter_start(const char *mountpoint, struct unmounter **ret_unmounter);

/* Waits until the mount is gone, but not longer than ten seconds.  The caller has
 * closed /dev/fuse, or what is there does not count as dead.  0, or -errno with
 * one line in `error`. */
int unmounter_unmount(struct unmounter *unmounter, char *error, size_t error_size);

/* Ends it.  NULL is allowed. */
void unmounter_free(struct unmounter *unmounter);

#endif
