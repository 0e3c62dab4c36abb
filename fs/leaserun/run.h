/* run: runs the command while the lock is held, and ends it in time
 * when it is lost. */
#ifndef FS_LEASERUN_RUN_H
#define FS_LEASERUN_RUN_H

#include <signal.h>

#include "fs/leaserun/keeper.h"
#include "fs/leaserun/options.h"

#define LEASERUN_EXIT_LOST 75 /* EX_TEMPFAIL: try again later */

/* `keeper` holds the lock `name`; it has let go and ended when this returns, or
 * the lock has ended without it.  `mask` is what the command's signal mask shall
 * be.  Returns the exit status; or does not, when Ctrl-C ended the command. */
int leaserun_run(const struct leaserun_options *options, const char *name, struct leaserun_keeper *keeper,
                 const sigset_t *mask);

/* A clock to wait for: a descriptor that is readable from `when` on.  It counts
 * the time that the host is suspended. */
int leaserun_timer(void);
void leaserun_timer_set(int timer, clock_ms when); /* CLOCK_NEVER: not at all */

#endif
