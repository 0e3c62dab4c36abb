/* run: runs the command while the locks are held, and ends it in time
 * when one is lost. */
#ifndef FS_LEASERUN_RUN_H
#define FS_LEASERUN_RUN_H

#include <signal.h>

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/set.h"

#define LEASERUN_EXIT_LOST 75 /* EX_TEMPFAIL: try again later */

/* The locks of `set` are held; they have been let go when this returns, or have ended
 * without it.  `mask` is what the command's signal mask shall be.  Returns the exit
 * status; or does not, when Ctrl-C ended the command. */
int leaserun_run(const struct leaserun_arguments *arguments, struct leaserun_set *set, const sigset_t *mask);

/* The same for a process that is there already, and is no child of this one; `ready` is
 * called when all is watched.  0, or the exit status: it could not be watched, and the
 * locks have been let go. */
int leaserun_run_other(const struct leaserun_arguments *arguments, struct leaserun_set *set, pid_t pid, int pidfd,
                       void (*ready)(void *arg), void *arg);

#endif
