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

/* For root: locks one byte of the file /run/leasefs.takeover, so that only one daemon of this host does what the byte
 * stands for.  Byte 0: it prepares a mount (mountpoint_stage).  Another byte: it replaces the mount with this device
 * number.  Returns a descriptor, which the caller closes to unlock; or -errno with one line in `error`. */
int mountpoint_lock(dev_t byte, char *error, size_t error_size);

/* For root: how a new mount replaces a dead one, while `path` never shows the directory below.  Each returns -errno on
 * failure, with one line in `error` where it has that parameter.
 *
 * mountpoint_stage makes the directory MOUNTPOINT_STAGE, on which the caller then mounts, and removes a mount that a
 * killed daemon has left there.  Only one daemon at a time can have the directory.  It returns `lock` for
 * mountpoint_unstage.  This function removes the directory and, if the caller has `mounted`, returns a descriptor of
 * the mount, which it has detached.  mountpoint_replace moves the detached mount `tree` to `path`, and removes the dead
 * mount there.  Before Linux 6.5 the new mount covers the dead one, which stays. */
#define MOUNTPOINT_STAGE MOUNTPOINT_STAGES "/mount"
#define MOUNTPOINT_STAGES "/run/leasefs.stage" /* mode 0700, so that no user can open files of the mount there */
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
/* The user whose leasefs is mounted at `path`; asks nothing of its daemon.  -ENOENT: none is. */
int mountpoint_user(const char *path, uid_t *ret_user);
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
