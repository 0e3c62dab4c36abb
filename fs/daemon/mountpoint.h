/* mountpoint: what is mounted where we are to mount, or are mounted already.
 *
 * A daemon that is killed leaves its mount behind.  That is as well: it answers
 * everything with ENOTCONN, while the directory below would let everybody make
 * plain files that look like locks.  So it is only taken away when the next mount
 * covers that directory already.
 */
#ifndef FS_DAEMON_MOUNTPOINT_H
#define FS_DAEMON_MOUNTPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* May leasefs mount at `path`, an absolute path?  A leasefs that is
 * alive there, or another user's, is an error, and what is there of other file
 * systems no obstacle.  `*ret_dead` tells whether a killed daemon of this user
 * left its mount there.  0, or -errno with one line in `error`. */
int mountpoint_check(const char *path, bool *ret_dead, char *error, size_t error_size);

/* Is anything in the directory?  What cannot be listed counts as empty. */
bool mountpoint_is_empty(const char *path);

/* For root: a directory to mount on first; mountpoint_replace moves that mount to
 * `path`, where there is a dead one, and takes the dead one and the directory
 * away.  There is no moment when `path` shows the directory below.  Before Linux
 * 6.5 the new mount covers the dead one, which stays.  NULL, or -errno, with one
 * line in `error`; free with g_free. */
char *mountpoint_stage(char *error, size_t error_size);
int mountpoint_replace(const char *stage, const char *path, char *error, size_t error_size);

/* For root: who opens a lock of the mount at `path` that is a symbolic link is refused (ELOOP), not led to another
 * lock, or to a file that whoever made the link has chosen; readlink(2) works.  0, or -errno: before Linux 5.14. */
int mountpoint_follow_no_links(const char *path);

/* A descriptor that ends the connection of the FUSE mount at `path` when "1" is
 * written to it, and does nothing once that connection has ended.  -errno if there
 * is none: for an ordinary user /sys/fs/fuse/connections has to be mounted. */
int mountpoint_open_abort(const char *path);

/* Detaches what killed daemons of this user left at `path`, and nothing else. */
int mountpoint_clear(const char *path, char *error, size_t error_size);

/* Gives the leasefs that is mounted at `path` another TTL, in milliseconds.
 * 0, or -errno with one line in `error`. */
int mountpoint_set_ttl(const char *path, int64_t ttl, char *error, size_t error_size);

#endif
