/* wait: acquires the locks, one after the other in their order: all, or
 * none.  Complaints go to stderr. */
#ifndef FS_LEASERUN_WAIT_H
#define FS_LEASERUN_WAIT_H

#include <signal.h>

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/set.h"

#define LEASERUN_WAIT_HELD (-1)

/* Acquires the `count` locks of `set`.  LEASERUN_WAIT_HELD, or the exit status: then
 * all is given back.
 *
 * `whom`, a pidfd: that process is waited for; when it ends the wait does.  -1: the
 * caller itself waits: a signal that ends it ends the wait first, and *ret_mask is
 * the signal mask of before (the signals stay blocked). */
int leaserun_wait(const struct leaserun_arguments *arguments, struct leaserun_set *set, size_t count, int whom,
                  sigset_t *ret_mask);

/* A clock to wait for: a descriptor that is readable from `when` on.  It counts
 * the time that the host is suspended. */
int leaserun_timer(void);
void leaserun_timer_set(int timer, clock_ms when); /* CLOCK_NEVER: not at all */

#endif
