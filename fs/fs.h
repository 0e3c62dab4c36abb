/* fs: what the parts of the filesystem share.
 *
 *     session  the mount and the loop          ops     one thin handler per kernel request
 *     request  a kernel request that waits     tree    names and inodes
 *     handle   an open file                    hold    what this mount holds on a name
 *     owner    processes                       lock    flock(2) and fcntl(2)
 *     xattr    the attributes user.lease.*     notify  telling the kernel what changed
 *     attributes  what stat(2) shows
 *     sandbox  rights given up               control  the directory .leasefs
 *     metrics  counters and histograms
 */
#ifndef FS_FS_H
#define FS_FS_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <time.h>

#include "backend/backend.h"
#include "fs/options/options.h"
#include "fs/process/owner.h"
#include "fs/sandbox/sandbox.h"

/* The first second of a lease, the provisional second of a handle: SECOND in
 * milliseconds. */
#define SECOND 1000

#define NAME_BYTES_MAX 255
#define CONTENT_BYTES_MAX 65536

struct control;
struct directory_cursor;
struct handle;
struct hold;
struct hold_question;
struct meta;
struct metrics;
struct notify;
struct openings;
struct quota;
struct request;
struct tree;

TAILQ_HEAD(request_queue, request);
LIST_HEAD(handle_list, handle);
LIST_HEAD(directory_cursor_list, directory_cursor);
LIST_HEAD(hold_question_list, hold_question);

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
    struct metrics *metrics;
    struct quota *quota;
    struct fuse_session *session;
    const struct options *options;
    char host[256];
    char boot_id[40];
    struct handle_list handles;
    struct directory_cursor_list cursors; /* open directories */
    struct hold_question_list questions;  /* of hold_check_gone */
    uint64_t next_handle;
    int64_t wall_offset;    /* see fs_wall */
    uint32_t requests;      /* not answered yet */
    struct meta *last_meta; /* of the last claim, and its encoding: see hold.c */
    GBytes *last_meta_bytes;
    struct request_queue interrupted;
    ev_idle interrupts;
    struct request_queue sleeping; /* the first to wake first */
    ev_timer alarm;
    bool foreign;                /* see FS_FOREIGN_WARNING */
    struct request_queue untold; /* see request_reply_when_told */
    ev_idle teller;
    struct sandbox sandbox;   /* what was given up */
    void (*ready)(void *arg); /* told once, when the kernel has greeted */
    void *ready_arg;
};

/* Everything but the session: for session.c and for tests without a mount.
 * Starts no thread.  `loop`, `backend` and `options` stay the caller's and outlive
 * it. */
struct fs *fs_new(struct ev_loop *loop, struct backend *backend, const struct options *options);
/* Starts the backend, takes over the leases that it kept, and tells the kernel of
 * changes through this session from now on. */
void fs_start(struct fs *fs, struct fuse_session *session);
/* While the mount still answers: ends the notifications, and answers whoever
 * waits with ENOLCK. */
void fs_stop(struct fs *fs);
void fs_free(struct fs *fs);

/* A moment on the wall clock, in milliseconds since the epoch: the same for the
 * same moment each time, unless the wall clock was set meanwhile. */
int64_t fs_wall(struct fs *fs, clock_ms when);
struct timespec fs_wall_time(struct fs *fs, clock_ms when);

/* The negated errno of an outcome, 0 for OK and QUEUED. */
int fs_error(enum backend_result result);

extern const struct fuse_lowlevel_ops ops_table;

#endif
