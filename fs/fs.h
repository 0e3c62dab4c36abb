/* fs: shared by all rooms of the filesystem: struct fs, the errno of a result, and the wall clock.
 *
 * A room includes headers of its own and of rooms below it only:
 *
 *     daemon   starts and ends the mount; the event loop
 *     ops      the kernel's requests, by theme
 *     control  the directory .leasefs
 *     hold     what this mount holds, and for which process; attributes for the kernel
 *     kernel   requests and their replies; names and inodes; notifications; counters
 *     sandbox  gives up rights                 process  identity and life of processes
 *     options  the command line                keep     memory that outlives a daemon
 *
 * The first comment of a room's main header lists its files: daemon/session.h, ops/ops.h, control/control.h,
 * hold/hold.h, kernel/request.h, sandbox/sandbox.h, process/owner.h, options/options.h, keep/memory.h.
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
#include <sys/types.h>

#include "backend/backend.h"

/* In milliseconds: how long a handle stays provisional, and how long a new lease can pass to an heir. */
#define SECOND 1000

#define NAME_BYTES_MAX 255
#define CONTENT_BYTES_MAX 65536

struct control;
struct directory_cursor;
struct handle;
struct hold;
struct inheritance;
struct keep;
struct meta;
struct metrics;
struct notify;
struct openers;
struct observer;
struct openings;
struct options;
struct owner_table;
struct quota;
struct recovery;
struct request;
struct sandbox;
struct survivors;
struct tree;

TAILQ_HEAD(request_queue, request);
LIST_HEAD(handle_list, handle);
LIST_HEAD(request_list, request);
TAILQ_HEAD(directory_cursor_queue, directory_cursor);
LIST_HEAD(hold_list, hold);
LIST_HEAD(guard_list, guard);
#define GUARD_BUCKETS 1024
LIST_HEAD(recover_list, recover_question);

/* A warning in the log and in .leasefs/status, after a process of a pid namespace that the daemon cannot see has used
 * the mount. */
#define FS_FOREIGN_WARNING                                                                                             \
    "processes of another pid namespace use the mount: who takes a lease cannot be told, so touch keeps it for one "   \
    "TTL only; run leasefs in the host's pid namespace, or hold locks with flock"

struct fs {
    struct ev_loop *loop;
    struct backend *backend;
    struct keep *keep; /* what the next daemon finds */
    struct owner_table *owners;
    ev_io owners_ended;
    struct tree *tree;
    struct notify *notify;
    struct openings *openings;
    struct openers *openers;     /* who has files of dead mounts open; NULL: nobody looks */
    struct survivors *survivors; /* handle locks whose daemon has ended: see survivor.h */
    dev_t device;                /* of this mount; 0: not known */
    dev_t dead_device;           /* of the mount of a killed daemon that this one replaced; 0: none */
    struct control *control;
    const struct observer *observer; /* callbacks of the control room */
    struct metrics *metrics;
    struct quota *quota;
    struct fuse_session *session;
    const struct options *options;
    char host[256];
    char boot_id[40];
    struct handle_list handles;
    struct hold_list ended;                  /* holds without a node, to which requests in flight still refer */
    struct guard_list guards[GUARD_BUCKETS]; /* lost locks that a guard keeps from others, by the hash of their path */
    unsigned guarded;                        /* number of guards */
    unsigned guard_pruned;                   /* the bucket that was pruned last */
    struct inheritance *inheritance;         /* of inherit.c */
    struct recovery *recovery;      /* of restart.c; kept until the daemon ends, because more leases may be found */
    struct recover_list recovering; /* content of recovered leases that the backend is reading */
    GHashTable *opened;             /* a set of handles, the latest of each node and opener: see handle_latest */
    GHashTable *records; /* a set of holds with record locks, by lock owner and path: see hold_find_by_lock_owner */
    GHashTable *cursors; /* of open directories, by number */
    struct directory_cursor_queue kept_cursors;
    unsigned kept_count;
    uint64_t next_fh;    /* of directories and files of .leasefs */
    int64_t wall_offset; /* see fs_wall */
    struct request_list unanswered;
    uint32_t requests; /* requests without a reply yet */
    clock_ms started;
    uint64_t answered;      /* replies since the daemon started */
    struct meta *last_meta; /* of the last claim, and its encoding: see update.c */
    GBytes *last_meta_bytes;
    struct hold_heirs *last_heirs; /* of the last lease: see hold_read_heirs; or NULL */
    struct request_queue interrupted;
    ev_idle interrupts;
    struct request_queue signalled; /* interrupted by a signal that is not fatal: see request_park_for_store */
    ev_timer signals;
    struct request_queue sleeping; /* ordered by wake */
    ev_timer alarm;
    bool foreign;                      /* a process has caused FS_FOREIGN_WARNING */
    struct request_queue invalidating; /* see request_reply_when_invalidated */
    ev_idle invalidate_idle;
    ev_timer invalidate_timeout;
    const struct sandbox *sandbox; /* rights given up, or NULL */
    bool replaced;                 /* another daemon has taken over its mount */
    void (*ready)(void *arg);      /* called once, after the kernel's INIT */
    void *ready_arg;
};

/* In milliseconds.  Two clocks cannot be read at the same moment, so a smaller difference does not count. */
#define FS_WALL_JITTER 50

/* Converts a time to milliseconds of the wall clock since the epoch.  Gives the same result for the same `when`, unless
 * the wall clock was set in between. */
static inline int64_t fs_wall(struct fs *fs, clock_ms when)
{
    int64_t offset = clock_wall() - clock_now();
    if (llabs(offset - fs->wall_offset) > FS_WALL_JITTER) {
        fs->wall_offset = offset;
    }
    return when + fs->wall_offset;
}

/* The kernel's number for an open directory or file of .leasefs.  No other daemon gives it to another one. */
static inline uint64_t fs_next_fh(struct fs *fs)
{
    return ++fs->next_fh;
}

/* The negated errno of a result; 0 for OK and QUEUED. */
int fs_error(enum backend_result result);

#endif
