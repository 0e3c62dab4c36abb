/* session: the mount, and the loop around its descriptor.
 *
 * One thread: the FUSE descriptor, the backend's events, timers and signals all
 * meet here.  No handler blocks.
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#include "options.h"

struct backend;
struct ev_loop;

/* Mounts, serves until SIGTERM, SIGINT, SIGHUP or an unmount, and unmounts.
 * `ready` is called once, when the mount answers.  0 after a clean end, or
 * -errno with one line in `error`.  The backend stays the caller's, and so does
 * the loop, which the backend uses until it is freed. */
int session_run(const struct options *options, struct backend *backend, struct ev_loop *loop, void (*ready)(void *arg),
                void *arg, char *error, size_t error_size);

#endif
