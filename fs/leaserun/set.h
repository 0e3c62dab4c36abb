/* set: the locks that one leaserun holds together, each with its keeper.
 *
 * They are held as one until the first of them ends, and are released together.
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
    struct leaserun_lock *locks; /* sorted; the first `count` have a keeper */
    struct leaserun_keeper keepers[LEASERUN_LOCKS_MAX];
    bool released[LEASERUN_LOCKS_MAX]; /* reported, or the keeper has ended */
    size_t count;
    int wake;           /* readable when a deadline got earlier, for the watchdog */
    int64_t early;      /* ms that killing must begin earlier: it is slow, or this process wakes late */
    bool lost;          /* one of the locks was lost */
    bool keeper_killed; /* its keeper was killed */
    int error;          /* the mount's error, if its daemon is gone */
    bool late;          /* it was not renewed in time */
    size_t first;       /* index of the lock that was lost first */
};

#define LEASERUN_SET_FDS_MAX (LEASERUN_LOCKS_MAX + 5)

/* Without locks.  0 or -errno. */
int leaserun_set_init(struct leaserun_set *set, struct leaserun_lock *locks);

/* Writes the keepers' sockets, for poll(2), and returns how many. */
size_t leaserun_set_poll(const struct leaserun_set *set, struct pollfd *ret_fds);

/* Reads the keepers' reports. */
void leaserun_set_read_reports(struct leaserun_set *set);

/* leaserun_set_last_moment: when the killing of all processes must begin.  leaserun_set_next: the lock that decides it.
 */
clock_ms leaserun_set_last_moment(const struct leaserun_set *set);
size_t leaserun_set_next(const struct leaserun_set *set);
/* The time from SIGTERM to SIGKILL: `wanted` ms, cut to what fits; negative: by the ttl. */
int64_t leaserun_set_grace(const struct leaserun_set *set, int64_t wanted);

/* Measures how early the killing must begin: what it costs, and how `late`, in ms, this process woke.  Call it again in
 * leaserun_set_measure_pause milliseconds. */
void leaserun_set_measure(struct leaserun_set *set, const struct leaserun_target *target, int64_t late);
int64_t leaserun_set_measure_pause(const struct leaserun_set *set);

/* When all the locks are free again, whatever processes are left. */
clock_ms leaserun_set_deadline(const struct leaserun_set *set);

void leaserun_set_watch(struct leaserun_set *set, pid_t target);
void leaserun_set_release(struct leaserun_set *set);
bool leaserun_set_released(const struct leaserun_set *set);
void leaserun_set_kill(struct leaserun_set *set);

/* Writes the keepers' process IDs, and returns how many. */
size_t leaserun_set_pids(const struct leaserun_set *set, pid_t *ret_pids);

#endif
