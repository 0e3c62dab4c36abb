/* wait: acquires all the locks, one after the other in their order, or none.  Prints errors on stderr. */
#ifndef FS_LEASERUN_WAIT_H
#define FS_LEASERUN_WAIT_H

#include <signal.h>

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/set.h"

#define LEASERUN_WAIT_HELD (-1)

/* Acquires the first `count` locks of `set`.  LEASERUN_WAIT_HELD; or the exit status, with all released.
 *
 * `whom`, a pidfd: the process that the locks are for; if it ends, the wait does.  -1: this
 * process.  A signal that ends it ends the wait first.  *ret_mask is its signal mask of
 * before; the signals stay blocked.
 */
int leaserun_wait(const struct leaserun_arguments *arguments, struct leaserun_set *set, size_t count, int whom,
                  sigset_t *ret_mask);

/* A descriptor that is readable from `when` on.  Its clock includes suspended time. */
int leaserun_timer(void);
void leaserun_timer_set(int timer, clock_ms when); /* CLOCK_NEVER: never */

#endif
