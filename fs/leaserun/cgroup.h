/* cgroup: a control group (cgroup v2) for the command and all its descendants.
 *
 * No process leaves it by a fork, a session of its own or the death of its parent, and one
 * write kills all processes in it (cgroup.kill, Linux 5.14), however many.  Root can make
 * one, and so can a user to whom a part of the tree is delegated.
 */
#ifndef FS_LEASERUN_CGROUP_H
#define FS_LEASERUN_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct leaserun_cgroup {
    int parent;    /* directory of the group above; -1: there is no group */
    int directory; /* directory of the group */
    int kill;      /* its cgroup.kill */
    char name[NAME_MAX + 1];
};

/* Makes a group below that of this process.  Makes none if it may not, or if the group would have limits of its own
 * (cgroup.subtree_control). */
void leaserun_cgroup_make(struct leaserun_cgroup *cgroup);

/* fork(2); the child starts in the group, if there is one. */
pid_t leaserun_cgroup_fork(const struct leaserun_cgroup *cgroup);

/* Moves a process into it. */
void leaserun_cgroup_enter(const struct leaserun_cgroup *cgroup, pid_t pid);

void leaserun_cgroup_kill(const struct leaserun_cgroup *cgroup);

/* Is a living process in it?  False if there is no group. */
bool leaserun_cgroup_is_populated(const struct leaserun_cgroup *cgroup);

/* Moves its processes to the group above, and removes it. */
void leaserun_cgroup_remove(struct leaserun_cgroup *cgroup);

#endif
