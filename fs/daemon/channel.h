/* channel: the kernel's messages, from /dev/fuse by way of kept memory to libfuse.
 *
 * A message is read into memory that outlives the daemon.  The next daemon begins with the INIT of the first one, which
 * makes libfuse ready, and handles the requests that have no reply.
 */
#ifndef FS_DAEMON_CHANNEL_H
#define FS_DAEMON_CHANNEL_H

#include "fs/fs.h"

struct fuse_in_header;
struct fuse_session;

struct channel {
    struct fuse_session *fuse;
    struct keep *keep;
    int fd;
};

void channel_open(struct channel *channel, struct fuse_session *fuse, struct keep *keep);

/* Reads a message.  NULL and -errno: -EAGAIN, there is none, -ENOBUFS: none can be read until a request is done,
 * -ENODEV: the mount is gone. */
const struct fuse_in_header *channel_read(struct channel *channel, int *ret_error);
/* Handles what was read. */
void channel_process(struct channel *channel);

/* Handles the messages that the daemon before has left.  Without any, does nothing.  -EPROTO: libfuse does not
 * take the INIT. */
int channel_resume(struct channel *channel, char *error, size_t error_size);

#endif
