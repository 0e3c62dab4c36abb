/* session: the mount, and the loop around its descriptor.
 *
 * One thread: the FUSE descriptor, the backend's events, timers and signals all
 * meet here.  No handler blocks.
 *
 * The room's files:
 *
 *     main        the program                        session    the mount and its loop
 *     filesystem  makes and ends struct fs           restart    recovers leases after a restart
 *     mountpoint  what is mounted there already      unmounter  a process that unmounts for the sandbox
 *     sdnotify    the service manager                spin       polls before the loop sleeps
 *     takeover    replaces the daemon of a mount     drain      answers its requests before that
 *     undo        puts the old mount back            follow     runs on the caller's processor
 *     tick        interrupts a blocking read         channel    messages of the kernel
 */
#ifndef FS_DAEMON_SESSION_H
#define FS_DAEMON_SESSION_H

#include "fs/options/options.h"
#include "fs/sandbox/sandbox.h"

struct backend;
struct ev_loop;
struct unmounter;

struct session_sandbox {
    bool wanted;
    struct sandbox_policy policy;
    struct unmounter *unmounter; /* unmounts in place of the session, which has no right to then */
};

/* For a daemon that replaces another one. */
struct session_takeover {
    struct takeover *old;
    int manager; /* see sdnotify.h */
    /* Opens the store, if it could not be opened beside the old daemon.  The caller owns it.  NULL: one line in
     * `error`. */
    struct backend *(*open_store)(void *arg, char *error, size_t error_size);
    void *arg;
};

/* Mounts, confines itself if `sandbox` says so, serves until SIGTERM, SIGINT, SIGHUP or an unmount, and unmounts.
 * Calls `ready` once, when the mount answers.  0 after a clean end, or -errno with one line in `error`.  Ends the
 * process when another daemon has taken over.  Backend, loop and unmounter belong to the caller; the backend uses the
 * loop until it is freed.  `takeover`: or NULL; `backend` may be NULL with it. */
int session_run(const struct options *options, struct backend *backend, const struct session_takeover *takeover,
                struct ev_loop *loop, const struct session_sandbox *sandbox, void (*ready)(void *arg), void *arg,
                char *error, size_t error_size);

#endif
