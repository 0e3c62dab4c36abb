/* session: the mount, and the loop around its descriptor.
 *
 * One thread: the FUSE descriptor, the backend's events, timers and signals all
 * meet here.  No handler blocks.
 *
 * The room's files:
 *
 *     main        the program                        session    the mount and its loop
 *     filesystem  makes and ends struct fs           restart    recovers leases after a restart
 *     mountpoint  what is mounted there already      keeper     keeps the mount when the daemon ends
 *     keeper_process  what it does                   starter    starts the next daemon
 *     predecessor the daemon before                  link       messages between these processes
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
struct keeper;
struct predecessor;

struct session_sandbox {
    bool wanted;
    struct sandbox_policy policy;
};

/* For a daemon that replaces another one which has no keeper. */
struct session_takeover {
    struct takeover *old;
    int manager; /* see sdnotify.h */
    /* Opens the store, if it could not be opened beside the old daemon.  The caller owns it.  NULL: one line in
     * `error`. */
    struct backend *(*open_store)(void *arg, char *error, size_t error_size);
    void *arg;
};

/* The processes around this one. */
struct session_keepers {
    struct keeper *own;         /* unmounts, also in place of a session that has no right to */
    struct predecessor *before; /* whose mount this daemon goes on with; or NULL */
    int manager;                /* see sdnotify.h */
};

/* Mounts, confines itself if `sandbox` says so, serves until SIGTERM, SIGINT, SIGHUP or an unmount, and unmounts.
 * Calls `ready` once, when the mount answers.  0 after a clean end, or -errno with one line in `error`.  Ends the
 * process when another daemon has taken over.  Backend, loop and keepers belong to the caller; the backend uses the
 * loop until it is freed.  `takeover`: how a store is opened that could not be opened beside the old daemon; or NULL.
 * `backend` may be NULL with it. */
int session_run(const struct options *options, struct backend *backend, const struct session_takeover *takeover,
                struct ev_loop *loop, const struct session_sandbox *sandbox, const struct session_keepers *keepers,
                void (*ready)(void *arg), void *arg, char *error, size_t error_size);

#endif
