/* set: the locks that one leaserun holds together, each with its keeper.
 *
 * They are held as one: until the first of them ends, and given back together.
 */
#ifndef FS_LEASERUN_SET_H
#define FS_LEASERUN_SET_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/keeper.h"
#include "fs/leaserun/lock.h"
#include "fs/leaserun/target.h"

struct leaserun_set {
    struct leaserun_lock *locks; /* in their order; the first `count` have a keeper */
    struct leaserun_keeper keepers[LEASERUN_LOCKS_MAX];
    bool released[LEASERUN_LOCKS_MAX]; /* or its keeper has ended */
    size_t count;
    int wake;           /* readable when a deadline has come nearer, for the watchdog */
    int64_t early;      /* so much earlier the killing must begin: it is slow, or this process wakes late */
    bool lost;          /* one of them is */
    bool keeper_killed; /* its keeper was killed */
    int error;          /* the mount's, when its daemon is gone */
    size_t first;       /* the one that was lost first */
};

#define LEASERUN_SET_FDS_MAX (LEASERUN_LOCKS_MAX + 5)

/* No locks yet.  -errno. */
int leaserun_set_init(struct leaserun_set *set, struct leaserun_lock *locks);

/* The keepers' sockets, to be polled; returns how many. */
size_t leaserun_set_poll(const struct leaserun_set *set, struct pollfd *ret_fds);

/* Takes what the keepers have reported. */
void leaserun_set_read_reports(struct leaserun_set *set);

/* When all must be dead that the locks protect, less what dying takes; and the
 * shortest ttl, which tells how long that may be. */
clock_ms leaserun_set_last_moment(const struct leaserun_set *set);
size_t leaserun_set_next(const struct leaserun_set *set); /* which of them that is */
int64_t leaserun_set_ttl(const struct leaserun_set *set);
/* What the killing may take of it. */
int64_t leaserun_set_guard(const struct leaserun_set *set);
/* How much of the time goes to TERM: `asked`, as far as it fits; negative: as usual. */
int64_t leaserun_set_grace(const struct leaserun_set *set, int64_t wanted);

/* Measures how early the killing must begin: what it costs, and how much later than it
 * meant to this process woke.  Again in `leaserun_set_measure_pause` milliseconds. */
void leaserun_set_measure(struct leaserun_set *set, const struct leaserun_target *target, int64_t late);
int64_t leaserun_set_measure_pause(const struct leaserun_set *set);

/* From when on all of them are free, whoever may be left. */
clock_ms leaserun_set_deadline(const struct leaserun_set *set);

void leaserun_set_watch(struct leaserun_set *set, pid_t target);
void leaserun_set_release(struct leaserun_set *set);
bool leaserun_set_released(const struct leaserun_set *set);
void leaserun_set_kill(struct leaserun_set *set);

/* The keepers' processes; returns how many. */
size_t leaserun_set_pids(const struct leaserun_set *set, pid_t *ret_pids);

#endif
