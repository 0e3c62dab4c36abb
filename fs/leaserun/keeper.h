/* keeper: the process that has the lock's file open.
 *
 * Any system call on a mount can block for as long as its daemon does.  So those
 * who must act in time, leaserun and its watchdog, make none: a child, the keeper,
 * asks for the lock, watches it, and shows until when it lasts.  Nobody waits for
 * its word: when it hears nothing from the daemon, what it has shown is what counts.
 *
 * It lives until leaserun and the watchdog have both ended.  If nobody has told it to
 * let go by then, it kills the command's process group first: both were killed.
 */
#ifndef FS_LEASERUN_KEEPER_H
#define FS_LEASERUN_KEEPER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/clock.h"

enum leaserun_report_kind {
    LEASERUN_REFUSED,   /* `error`: EAGAIN when it is held; and the keeper has ended */
    LEASERUN_HELD,      /* it is ours */
    LEASERUN_SHORTENED, /* the deadline is earlier than before */
    LEASERUN_LOST,      /* `error`: 0, or that of the mount when its daemon is gone */
    LEASERUN_RELEASED,  /* as asked for */
};

struct leaserun_report {
    enum leaserun_report_kind kind;
    int error;
    uint64_t token;            /* HELD */
    char ticket[NAME_MAX + 1]; /* HELD: its name, if it is one */
};

struct leaserun_claim {
    int fd;
    int wake; /* an eventfd(2), for what the watchdog must hear of */
    bool shared;
    bool wait;
    int64_t ttl;        /* 0: leave it as it is */
    int64_t delay;      /* how long the lock stays refused after it was lost */
    int64_t guard;      /* user.lease.guard */
    int64_t max_outage; /* see struct leaserun_mount */
};

/* What the keeper knows, for leaserun to look at whenever it wants to. */
struct leaserun_view {
    _Atomic clock_ms deadline; /* until when nobody else can hold the lock */
    _Atomic int64_t ttl;       /* what the store has confirmed of it */
};

struct leaserun_keeper {
    pid_t pid;
    int socket; /* becomes readable with a report, or when the keeper has died */
    const struct leaserun_view *view;
};

/* Starts it; it asks for the lock at once.  -errno. */
int leaserun_keeper_start(struct leaserun_keeper *keeper, const struct leaserun_claim *claim);

/* The next report: 1; 0 if there is none yet; -EPIPE: the keeper has died, and
 * the lock with it. */
int leaserun_keeper_read_report(struct leaserun_keeper *keeper, struct leaserun_report *ret_report);

/* Whom to kill when nobody else is left to do it, as kill(2) names it: a process, or
 * the negative of a process group. */
void leaserun_keeper_watch(struct leaserun_keeper *keeper, pid_t target);

/* Release the lock: RELEASED is reported when that is done. */
void leaserun_keeper_release(struct leaserun_keeper *keeper);

/* Ends it at once, and what it waits for: its place in the queue is free when this returns, unless the daemon has
 * hung for a second.  It may be ended already. */
void leaserun_keeper_kill(struct leaserun_keeper *keeper);

#endif
