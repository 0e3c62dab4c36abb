/* mountpoint: the mounts that are on the directory of ours.
 *
 * A daemon that was killed leaves its mount behind.  That is safe: the mount answers
 * everything with ENOTCONN, while in the directory below everybody could make plain
 * files that look like locks.  So a dead mount is removed only when the next mount
 * covers the directory.
 */
#ifndef FS_DAEMON_MOUNTPOINT_H
#define FS_DAEMON_MOUNTPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* May leasefs mount at `path`, an absolute path?  A living leasefs there, or one of another user, is an error; a mount
 * of another file system is not.  Sets `*ret_dead` if a killed daemon of this user left its mount there.  0, or -errno
 * with one line in `error`. */
int mountpoint_check(const char *path, bool *ret_dead, char *error, size_t error_size);

/* False if anything is in the directory.  One that cannot be listed counts as empty. */
bool mountpoint_is_empty(const char *path);

/* For root: locks a byte of a file of this host, where daemons replace mounts: 0, or the device number of a mount.  The
 * caller closes the descriptor; or -errno with one line in `error`. */
int mountpoint_lock(dev_t byte, char *error, size_t error_size);

/* For root: mountpoint_stage makes a directory to mount on first, which one daemon at a time has; what one that was
 * killed has left there is removed.  mountpoint_unstage removes it, and takes what mountpoint_stage returned.  If a
 * mount is there, it returns a descriptor of it, detached.  mountpoint_replace moves that mount to `path`, where a dead
 * one is, and removes the dead mount.  `path` never shows the directory below.  Before Linux 6.5 the new mount covers
 * the dead one, which stays.  Or -errno; with one line in `error` where there is one. */
#define MOUNTPOINT_STAGE MOUNTPOINT_STAGES "/mount"
#define MOUNTPOINT_STAGES "/run/leasefs.stage" /* mode 0700, so that no user can have the mount open */
int mountpoint_stage(char *error, size_t error_size);
int mountpoint_unstage(int lock, bool mounted);
int mountpoint_replace(int tree, const char *path, char *error, size_t error_size);

/* For root: opening a symbolic link of the mount at `path` fails (ELOOP) instead of leading to another lock, or to a
 * file that the maker of the link has chosen.  readlink(2) works.  0, or -errno: before Linux 5.14. */
int mountpoint_follow_no_links(const char *path);

/* The device number of the mount at `path`; 0: not known. */
dev_t mountpoint_device(const char *path);

/* A descriptor that ends the connection of the FUSE mount at `path` when the caller writes "1" to it.  Without effect
 * once that connection has ended.  -errno if there is none: an ordinary user needs a mounted /sys/fs/fuse/connections.
 */
int mountpoint_open_abort(const char *path);

#ifndef MOVE_MOUNT_BENEATH /* Linux 6.5 */
#define MOVE_MOUNT_BENEATH 0x00000200
#endif

/* A descriptor (O_PATH) of the top of a leasefs at `path` that answers, and the user who mounted it; or -errno with one
 * line in `error`. */
int mountpoint_open_living(const char *path, uid_t *ret_user, char *error, size_t error_size);

/* Is the mount that `fd` is on mounted at `path`?  Is it the topmost there? */
bool mountpoint_is_at(int fd, const char *path);
bool mountpoint_is_top(int fd, const char *path);

/* The source of the mount that `fd` is on, as mount tables show it; free with g_free.  NULL: not known. */
char *mountpoint_source(int fd);

/* Detaches the mounts at `path` that killed daemons of this user left, and no other. */
int mountpoint_clear(const char *path, char *error, size_t error_size);

/* Sets the TTL, in milliseconds, of the leasefs that is mounted at `path`.  0, or -errno with one line in `error`. */
int mountpoint_set_ttl(const char *path, int64_t ttl, char *error, size_t error_size);

#endif
