/* mounting: mounts, and if that fails, says why in one line.
 *
 * libfuse and fusermount3 write their errors to stderr.  They are caught here, and become part of the line.
 */
#ifndef FS_DAEMON_MOUNTING_H
#define FS_DAEMON_MOUNTING_H

#include <stddef.h>

#include "fs/fs.h"

/* A session of libfuse; NULL, with one line in `error`. */
struct fuse_session *mounting_session_new(struct fs *fs, char *error, size_t error_size);

/* Goes on with the connection of a mount.  Takes the descriptor.  0, or -errno with one line in `error`. */
int mounting_adopt(struct fuse_session *session, int connection, char *error, size_t error_size);

/* Mounts it at `path`.  The mount point of `options` is the one in the messages.  0, or -errno with one line in
 * `error`. */
int mounting_mount(const struct options *options, struct fuse_session *session, const char *path, char *error,
                   size_t error_size);

#endif
