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
    struct unmounter *unmounter; /* unmounts, which the session cannot do then */
};

/* Mounts, goes into the sandbox if that is wanted, serves until SIGTERM,
 * SIGINT, SIGHUP or an unmount, and unmounts.  `ready` is called once, when the
 * mount answers.  0 after a clean end, or -errno with one line in `error`.  The
 * backend stays the caller's, and so do the loop, which the backend uses until it
 * is freed, and the unmounter. */
int session_run(const struct options *options, struct backend *backend, struct ev_loop *loop,
                const struct session_sandbox *sandbox, void (*ready)(void *arg), void *arg, char *error,
                size_t error_size);

#endif
