/* filesystem: makes, starts, stops and frees the struct fs of a mount. */
#ifndef FS_DAEMON_FILESYSTEM_H
#define FS_DAEMON_FILESYSTEM_H

#include "fs/fs.h"
#include "fs/keep/memory.h"

/* What a mount needs of a struct keep. */
void fs_keep_sizes(struct keep_sizes *ret_sizes);
/* Everything but the session, for session.c and for tests without a mount.  Starts no thread.  `loop`, `backend`,
 * `options` and `keep` belong to the caller, and must outlive it. */
struct fs *fs_new(struct ev_loop *loop, struct backend *backend, const struct options *options, struct keep *keep);
/* Starts the backend, recovers the leases that it kept, and sends notifications to the kernel through `session` from
 * now on. */
void fs_start(struct fs *fs, struct fuse_session *session);
/* Call it while the mount still answers: ends the notifications, and replies ENOLCK to all pending requests. */
void fs_stop(struct fs *fs);
void fs_free(struct fs *fs);

#endif
