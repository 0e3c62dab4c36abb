/* keeper: the process that has the lock's file open.
 *
 * Any system call on a mount can block as long as its daemon does.  leaserun and its
 * watchdog must act in time, so they make none: their child, the keeper, acquires the
 * lock, watches it, and shows its deadline.  Nobody waits for the keeper: while the daemon
 * does not answer it, the last deadline that it showed counts.
 *
 * When the daemon has ended, the keeper opens the file of the next mount, as long as the term that it showed lasts, and
 * moves the lock to it (user.lease.resume).  Nobody else notices.  One that waits closes its file and queues again.
 *
 * It lives until leaserun and the watchdog have both ended.  If it was not told to release
 * the lock by then, both were killed, and it kills the command's process group first.
 */
#ifndef FS_LEASERUN_KEEPER_H
#define FS_LEASERUN_KEEPER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/clock.h"
#include "fs/leaserun/lock.h"

enum leaserun_report_kind {
    LEASERUN_RESTARTED, /* the daemon has ended, and the keeper queues again: close claim.fd */
    LEASERUN_REFUSED,   /* `error`: EAGAIN if the lock is held; the keeper has ended */
    LEASERUN_HELD,      /* the lock is held */
    LEASERUN_SHORTENED, /* the deadline is earlier than the one before */
    LEASERUN_LOST, /* `error`: 0, or the mount's error if its daemon is gone, and no next one had the lock in time */
    LEASERUN_RELEASED, /* after leaserun_keeper_release */
};

struct leaserun_report {
    enum leaserun_report_kind kind;
    int error;
    bool late;                 /* LOST: its term was over, so it was not renewed in time */
    uint64_t token;            /* HELD */
    char ticket[NAME_MAX + 1]; /* HELD: the ticket's name, or "" */
};

struct leaserun_claim {
    int fd; /* the keeper has it, too, from leaserun_keeper_start on */
    const struct leaserun_lock *lock;
    bool resumes;            /* the store keeps a handle lock until the next daemon comes */
    int64_t next_mount_wait; /* how long a waiter waits for the next daemon, ms */
    int wake;                /* eventfd(2): wakes the watchdog when the deadline gets earlier */
    const char *title;       /* the command that holders and waiters are shown with */
    const char *note;        /* user.lease.note; NULL: none */
    bool shared;
    bool wait;
    int64_t ttl;        /* ms; 0: do not change it */
    int64_t delay;      /* how long the lock stays refused after it was lost, ms */
    int64_t guard;      /* user.lease.guard, ms */
    int64_t max_outage; /* see struct leaserun_mount */
};

/* Shared memory: the keeper writes it, leaserun and the watchdog read it at any time. */
struct leaserun_view {
    _Atomic clock_ms deadline; /* until then nobody else can hold the lock */
    _Atomic int64_t ttl;       /* confirmed by the store, ms */
};

struct leaserun_keeper {
    pid_t pid;
    int socket; /* readable with a report, or after the keeper's death */
    const struct leaserun_view *view;
};

/* Starts the keeper, which acquires the lock at once.  0 or -errno. */
int leaserun_keeper_start(struct leaserun_keeper *keeper, const struct leaserun_claim *claim);

/* The next report: 1; 0: none yet; -EPIPE: the keeper has died, and the lock is lost. */
int leaserun_keeper_read_report(struct leaserun_keeper *keeper, struct leaserun_report *ret_report);

/* The target to kill if nobody else is left, as for kill(2): a process, or the negative of a process group. */
void leaserun_keeper_watch(struct leaserun_keeper *keeper, pid_t target);

/* Releases the lock; the keeper reports RELEASED when it has. */
void leaserun_keeper_release(struct leaserun_keeper *keeper);

/* Kills the keeper.  Its ticket has left the queue when this returns, unless the daemon hangs for a second.  The keeper
 * may have ended before. */
void leaserun_keeper_kill(struct leaserun_keeper *keeper);

#endif
