/* fs: what the rooms of the filesystem share: one struct, the errno of an outcome, and the wall clock.
 *
 * A room includes headers of its own and of rooms below it only:
 *
 *     daemon   the mount's beginning and end, and the loop around it
 *     ops      the kernel's requests, by theme
 *     control  the directory .leasefs
 *     hold     what this mount holds, for whom, and what the kernel is told of it
 *     kernel   a request and its one reply; names and inodes; notifications; counters
 *     sandbox  rights given up         process  who asks, and does it live
 *     options  the command line
 *
 * The first comment of a room's main header tells its files: daemon/session.h, ops/ops.h, control/control.h,
 * hold/hold.h, kernel/request.h, sandbox/sandbox.h, process/owner.h, options/options.h.
 */
#ifndef FS_FS_H
#define FS_FS_H

#include <ev.h>
#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "backend/backend.h"

/* The first second of a lease, the provisional second of a handle: SECOND in
 * milliseconds. */
#define SECOND 1000

#define NAME_BYTES_MAX 255
#define CONTENT_BYTES_MAX 65536

struct control;
struct directory_cursor;
struct handle;
struct hold;
struct meta;
struct metrics;
struct notify;
struct observer;
struct openings;
struct options;
struct owner_table;
struct quota;
struct request;
struct sandbox;
struct tree;

TAILQ_HEAD(request_queue, request);
LIST_HEAD(handle_list, handle);
LIST_HEAD(request_list, request);
LIST_HEAD(directory_cursor_list, directory_cursor);
LIST_HEAD(hold_list, hold);
LIST_HEAD(guard_list, guard);
LIST_HEAD(recover_list, recover_question);

/* In the log and in .leasefs/status, once a process of a pid namespace that the daemon cannot see has used the mount.
 */
#define FS_FOREIGN_WARNING                                                                                             \
    "processes of another pid namespace use the mount: who takes a lease cannot be told, so touch keeps it for one "   \
    "TTL only; run leasefs in the host's pid namespace, or hold locks with flock"

struct fs {
    struct ev_loop *loop;
    struct backend *backend;
    struct owner_table *owners;
    struct tree *tree;
    struct notify *notify;
    struct openings *openings;
    struct control *control;
    const struct observer *observer; /* what control wants to be told */
    struct metrics *metrics;
    struct quota *quota;
    struct fuse_session *session;
    const struct options *options;
    char host[256];
    char boot_id[40];
    struct handle_list handles;
    struct hold_list ended;               /* of no node any more, but still counted by what is not answered */
    struct guard_list guards;             /* what was lost, and is kept from others: see guard.h */
    struct recover_list recovering;       /* what the backend was asked about leases that it kept */
    GHashTable *records;                  /* a set of holds, by lock owner and path: see hold_find_by_lock_owner */
    struct directory_cursor_list cursors; /* open directories */
    uint64_t next_handle;
    int64_t wall_offset; /* see fs_wall */
    struct request_list unanswered;
    uint32_t requests;      /* so many are not answered yet */
    uint64_t answered;      /* requests, ever */
    struct meta *last_meta; /* of the last claim, and its encoding: see hold.c */
    GBytes *last_meta_bytes;
    struct hold_heirs *last_heirs; /* of the last lease: see hold_read_heirs; or NULL */
    struct request_queue interrupted;
    ev_idle interrupts;
    struct request_queue sleeping; /* the first to wake first */
    ev_timer alarm;
    bool foreign;                      /* see FS_FOREIGN_WARNING */
    struct request_queue invalidating; /* see request_reply_when_invalidated */
    ev_idle invalidate_idle;
    ev_timer invalidate_timeout;
    const struct sandbox *sandbox; /* what was given up, or NULL */
    void (*ready)(void *arg);      /* told once, when the kernel has greeted */
    void *ready_arg;
};

/* Two clocks cannot be read at once: differences below this are only that. */
#define FS_WALL_JITTER 50

/* A moment on the wall clock, in milliseconds since the epoch: the same for the
 * same moment each time, unless the wall clock was set meanwhile. */
static inline int64_t fs_wall(struct fs *fs, clock_ms when)
{
    int64_t offset = clock_wall() - clock_now();
    if (llabs(offset - fs->wall_offset) > FS_WALL_JITTER) {
        fs->wall_offset = offset;
    }
    return when + fs->wall_offset;
}

/* The negated errno of an outcome, 0 for OK and QUEUED. */
int fs_error(enum backend_result result);

#endif
