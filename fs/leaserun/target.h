/* target: what must be dead before the lock is another's: the command, and all that it
 * has started, as far as that can be seen.
 *
 * That is all in its control group, if it has one; its process group; and all descendants
 * of a process above it, whatever group or session they are in.
 */
#ifndef FS_LEASERUN_TARGET_H
#define FS_LEASERUN_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/cgroup.h"

struct leaserun_target {
    pid_t command;                    /* 0: not started yet */
    int pidfd;                        /* of a command that is no child, and no process group of its own; else -1 */
    pid_t root;                       /* whose descendants are meant */
    pid_t watchdog;                   /* one of them that is not meant, but its descendants are; 0: none */
    pid_t except[LEASERUN_LOCKS_MAX]; /* and those that are not meant with theirs */
    size_t exceptions;
    struct leaserun_cgroup cgroup;
};

/* Orphans among the descendants of this process become its children, so that none can
 * get out of sight. */
void leaserun_target_adopt_orphans(void);

/* The command only: its process group, or the process. */
void leaserun_target_signal_command(const struct leaserun_target *target, int signal);

void leaserun_target_signal(const struct leaserun_target *target, int signal);

/* First stops all, so that none starts another or answers to the death of another, then
 * kills them. */
void leaserun_target_kill(const struct leaserun_target *target);

/* How many there are; one that is dead and not waited for may count. */
size_t leaserun_target_count(const struct leaserun_target *target);

/* How many milliseconds killing them all may take now: it is measured by counting them. */
int64_t leaserun_target_cost(const struct leaserun_target *target);

#endif
