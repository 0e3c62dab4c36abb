/* processes: all that a command has started, also what has left its
 * process group. */
#ifndef FS_LEASERUN_PROCESSES_H
#define FS_LEASERUN_PROCESSES_H

#include <stddef.h>
#include <sys/types.h>

/* Orphans among the descendants of this process become its children, so that
 * none can get out of sight. */
void leaserun_processes_adopt(void);

/* Sends the signal to all descendants of `root` but the `count` processes `except`
 * and their descendants, and but those in the process group
 * `group`, which have got it.  Returns how many descendants there are, but for those;
 * one that is dead and not waited for counts.  Signal 0 only counts. */
size_t leaserun_processes_signal(pid_t root, const pid_t *except, size_t count, pid_t group, int signal);

#endif
