/* run: runs the command while the locks are held, and kills it in time if one is lost. */
#ifndef FS_LEASERUN_RUN_H
#define FS_LEASERUN_RUN_H

#include <signal.h>

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/set.h"

#define LEASERUN_EXIT_LOST 75 /* EX_TEMPFAIL: try again later */

/* The locks of `set` are held.  They are released, or have ended, when this returns.  `mask`: the command's signal
 * mask. Returns the exit status; does not return if Ctrl-C ended the command. */
int leaserun_run(const struct leaserun_arguments *arguments, struct leaserun_set *set, const sigset_t *mask);

/* The same for a running process that is no child of this one.  Calls `ready` when the process is watched.  0, or the
 * exit status if it could not be watched: the locks are released then. */
int leaserun_run_other(const struct leaserun_arguments *arguments, struct leaserun_set *set, pid_t pid, int pidfd,
                       void (*ready)(void *arg), void *arg);

#endif
