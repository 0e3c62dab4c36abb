/* unmounter: a process that unmounts for a daemon that cannot do it itself.
 *
 * The daemon in its sandbox has no right to unmount, and cannot run fusermount3.  So it
 * forks a child before, which keeps the right, has only one end of a socket of the
 * daemon's, and sleeps until the daemon sends a request or ends.  It unmounts as
 * mountpoint_clear does: not a mount that somebody has made there since.
 *
 * A daemon that was killed sends nothing, and leaves its mount behind: users get an
 * error, and lock no files of the directory below.  But a thread of it that sends a
 * notification cannot be killed while the kernel waits for a reply that nobody will
 * send.  The connection would stay, and all users of the mount would wait for good.  So
 * the child ends the connection then.
 *
 * The child also looks into other processes for the next daemon: see fs/process/walker.h.
 */
#ifndef FS_DAEMON_UNMOUNTER_H
#define FS_DAEMON_UNMOUNTER_H

#include <stdbool.h>
#include <stddef.h>

struct unmounter;

/* Has this process CAP_SYS_PTRACE, so that its child may look into the processes of other users? */
bool unmounter_may_look(void);

/* Forks it.  Call it before the store is opened, because the child shares its memory, and from the thread that ends
 * with the daemon.  0, or -errno. */
int unmounter_start(const char *mountpoint, struct unmounter **ret_unmounter);

/* From now on the mount's connection ends with the daemon, if that is killed or crashes.  `abort_fd`: from
 * mountpoint_open_abort, and stays open; if it is an error, this logs what is missing. */
void unmounter_watch(struct unmounter *unmounter, int abort_fd);

/* The socket for openers_new, which the caller owns from now on; -1 the second time. */
int unmounter_take_walker(struct unmounter *unmounter);

/* Waits up to ten seconds until the mount is gone.  The caller has closed /dev/fuse; otherwise the mount does not count
 * as dead.  0, or -errno with one line in `error`. */
int unmounter_unmount(struct unmounter *unmounter, char *error, size_t error_size);

/* Ends the process.  NULL is allowed. */
void unmounter_free(struct unmounter *unmounter);

#endif
