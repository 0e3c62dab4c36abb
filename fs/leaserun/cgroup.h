/* cgroup: a control group (cgroup v2) that holds the command and all that it starts.
 *
 * Nothing leaves it by forking, by a session of its own or by the death of its parent,
 * and one write kills all that is in it (cgroup.kill, Linux 5.14), however much that is.
 * Root can make one, and whoever has a part of the tree delegated to them.
 */
#ifndef FS_LEASERUN_CGROUP_H
#define FS_LEASERUN_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct leaserun_cgroup {
    int parent;    /* the directory of the group that it is made in; -1: there is no group */
    int directory; /* its own */
    int kill;      /* its cgroup.kill */
    char name[NAME_MAX + 1];
};

/* Makes a group below that of this process.  There is none where none can be made, and
 * where it would have limits of its own (cgroup.subtree_control). */
void leaserun_cgroup_make(struct leaserun_cgroup *cgroup);

/* As fork(2); the child is in the group from its beginning, if there is one. */
pid_t leaserun_cgroup_fork(const struct leaserun_cgroup *cgroup);

/* Moves a process into it. */
void leaserun_cgroup_enter(const struct leaserun_cgroup *cgroup, pid_t pid);

void leaserun_cgroup_kill(const struct leaserun_cgroup *cgroup);

/* Does anything in it live?  False if there is no group. */
bool leaserun_cgroup_is_populated(const struct leaserun_cgroup *cgroup);

/* What is in it goes to the group above, and it is removed. */
void leaserun_cgroup_remove(struct leaserun_cgroup *cgroup);

#endif
