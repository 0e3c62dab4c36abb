/* takeover: replaces the daemon of a mount that is in use, without a moment in which a call by path fails.
 *
 *     a  tries all that can fail: options, the server, the journal, a mount elsewhere     takeover_begin
 *     b  moves that mount over the old one                                                takeover_switch
 *     c  the old daemon answers the requests of the old mount, and ends                   takeover_await_end
 *     d  opens the store, and recovers as after a crash                                   the caller
 *
 * After b, calls by path wait for this daemon.  If the old daemon does not end in five seconds, or this one is killed
 * before it has, b is undone: undo.h.  After c there is no way back: an error is a crash, and the rules of surviving
 * locks hold.
 *
 * The old daemon gets SIGUSR1, or SIGUSR2 if b is undone: drain.h.  Its mount is under the new one when it ends, so
 * it unmounts nothing.
 */
#ifndef FS_DAEMON_TAKEOVER_H
#define FS_DAEMON_TAKEOVER_H

#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

#define TAKEOVER_BEGINS SIGUSR1
#define TAKEOVER_UNDONE SIGUSR2

struct backend;
struct options;
struct takeover;

/* Looks at the mount that is there.  0, or -errno with one line in `error`. */
/* Would the local store of these options open? */
int takeover_try_store(const struct options *options, char *error, size_t error_size);
int takeover_begin(const struct options *options, struct takeover **ret_takeover, char *error, size_t error_size);
/* NULL is allowed. */
void takeover_free(struct takeover *takeover);

/* Is this the store of the mount that is there?  Reads a copy of a local store's journal to its end.  `backend`: not
 * started; NULL: it cannot be opened twice, and the options tell.  0, or -errno with one line in `error`. */
int takeover_check_store(const struct takeover *takeover, const struct options *options, struct backend *backend,
                         char *error, size_t error_size);

/* Moves the detached mount `tree` to the mount point.  `connection` is the FUSE connection of that mount.  If this
 * process ends before takeover_await_end has succeeded, the move is undone: see undo.h. */
int takeover_switch(struct takeover *takeover, int tree, int connection, int manager, char *error, size_t error_size);

/* `manager`: see sdnotify.h; it watches this process from now on. */
int takeover_await_end(struct takeover *takeover, int manager, char *error, size_t error_size);

/* The device number of the old mount. */
dev_t takeover_device(const struct takeover *takeover);

#endif
