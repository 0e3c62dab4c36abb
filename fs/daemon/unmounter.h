/* unmounter: a process that ends the mount of a daemon that cannot do it itself.
 *
 * The daemon in its sandbox has no right to unmount, and cannot run fusermount3.
 * So a child that keeps the right is forked before, holds nothing of the daemon's
 * but one end of a socket, and sleeps until it is asked, or the daemon has ended.
 * It unmounts as mountpoint_clear does, so not what somebody has mounted there
 * since.
 *
 * A daemon that is killed asks for nothing, and leaves its mount behind: whoever
 * uses it is told, and does not lock files of the directory below.  But a thread
 * of it that tells the kernel of a change cannot be killed while it waits for a
 * request that nobody will answer, and with it the connection would stay, and all
 * who use the mount would wait for good.  So the child ends the connection then.
 */
#ifndef FS_DAEMON_UNMOUNTER_H
#define FS_DAEMON_UNMOUNTER_H

#include <stddef.h>

struct unmounter;

/* Forks it.  Before the store is opened: the child would share its memory.  To be
 * called by the thread whose end is the daemon's.  0, or -errno. */
int unmounter_start(const char *mountpoint, struct unmounter **ret_unmounter);

/* From now on the mount's connection ends with the daemon, whether that is killed
 * or crashes.  `abort_fd` is as mountpoint_open_abort gave it, and stays open; if it
 * is an error, the log tells what is missing. */
void unmounter_watch(struct unmounter *unmounter, int abort_fd);

/* Waits until the mount is gone, but not longer than ten seconds.  The caller has
 * closed /dev/fuse, or what is there does not count as dead.  0, or -errno with
 * one line in `error`. */
int unmounter_unmount(struct unmounter *unmounter, char *error, size_t error_size);

/* Ends it.  NULL is allowed. */
void unmounter_free(struct unmounter *unmounter);

#endif
