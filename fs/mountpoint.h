/* mountpoint: what is mounted where we are to mount, or are mounted already. */
#ifndef FS_MOUNTPOINT_H
#define FS_MOUNTPOINT_H

#include <stddef.h>
#include <stdint.h>

/* The absolute path of the directory `given`, without asking a file system that
 * is mounted there, so that one without its daemon has a path too.  NULL with
 * one line in `error`.  Free with g_free. */
char *mountpoint_resolve(const char *given, char *error, size_t error_size);

/* Makes way for a mount at `path`, as mountpoint_resolve gave it: detaches what
 * leasefs daemons of this user left there when they were killed.  Touches
 * nothing else: a mount that is alive or another user's is an error, and one of
 * another file system is no obstacle.  0, or -errno with one line in `error`. */
int mountpoint_clear(const char *path, char *error, size_t error_size);

/* Gives the leasefs that is mounted at `path` another TTL, in milliseconds.
 * 0, or -errno with one line in `error`. */
int mountpoint_set_ttl(const char *path, int64_t ttl, char *error, size_t error_size);

#endif
