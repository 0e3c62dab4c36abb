/* target: the processes that must be dead before another holds the lock: the command and all that it has started, as
 * far as leaserun sees them.
 *
 * These are all processes of its control group, if it has one; of its process group; and
 * all descendants of a process above it, in any group or session.
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
    int pidfd;                        /* of a command that is no child and no process group of its own; else -1 */
    pid_t root;                       /* its descendants belong to the target */
    pid_t watchdog;                   /* a descendant that does not belong to it, but its own descendants do; 0: none */
    pid_t except[LEASERUN_LOCKS_MAX]; /* processes that, with their descendants, do not belong to it */
    size_t exceptions;
    struct leaserun_cgroup cgroup;
};

/* Orphans among the descendants of this process become its children, so that it keeps seeing them. */
void leaserun_target_adopt_orphans(void);

/* Signals only the command: its process group, or the process. */
void leaserun_target_signal_command(const struct leaserun_target *target, int signal);

void leaserun_target_signal(const struct leaserun_target *target, int signal);

/* Stops all processes, so that none forks or reacts to another's death; then kills them. */
void leaserun_target_kill(const struct leaserun_target *target);

/* Counts the processes; may include a zombie. */
size_t leaserun_target_count(const struct leaserun_target *target);

/* How many milliseconds killing them would take now, measured by counting them. */
int64_t leaserun_target_cost(const struct leaserun_target *target);

#endif
