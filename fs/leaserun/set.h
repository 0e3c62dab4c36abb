/* set: the locks that one leaserun holds together, each with its keeper.
 *
 * They are held as one: until the first of them ends, and given back together.
 */
#ifndef FS_LEASERUN_SET_H
#define FS_LEASERUN_SET_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "fs/leaserun/keeper.h"
#include "fs/leaserun/lock.h"
#include "fs/leaserun/options.h"

struct leaserun_set {
    struct leaserun_lock *locks; /* in their order; the first `count` have a keeper */
    struct leaserun_keeper keepers[LEASERUN_LOCKS_MAX];
    bool released[LEASERUN_LOCKS_MAX]; /* or its keeper has ended */
    size_t count;
    bool lost;    /* one of them is */
    bool alone;   /* its keeper was killed */
    int error;    /* the mount's, when its daemon is gone */
    size_t first; /* the one that was lost first */
};

#define LEASERUN_SET_FDS_MAX (LEASERUN_LOCKS_MAX + 4)

/* The keepers' sockets, to be polled; returns how many. */
size_t leaserun_set_poll(const struct leaserun_set *set, struct pollfd *ret_fds);

/* Takes what the keepers have reported. */
void leaserun_set_hear(struct leaserun_set *set);

/* When all must be dead that the locks protect, less what dying takes; and the
 * shortest ttl, which tells how long that may be. */
clock_ms leaserun_set_last_moment(const struct leaserun_set *set);
size_t leaserun_set_next(const struct leaserun_set *set); /* which of them that is */
int64_t leaserun_set_ttl(const struct leaserun_set *set);
/* From when on all of them are free, whoever may be left. */
clock_ms leaserun_set_deadline(const struct leaserun_set *set);

void leaserun_set_watch(struct leaserun_set *set, pid_t target);
void leaserun_set_let_go(struct leaserun_set *set);
bool leaserun_set_released(const struct leaserun_set *set);
void leaserun_set_kill(struct leaserun_set *set);

/* The keepers' processes; returns how many. */
size_t leaserun_set_pids(const struct leaserun_set *set, pid_t *ret_pids);

#endif
