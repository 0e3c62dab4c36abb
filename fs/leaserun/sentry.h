/* sentry: -F, the command takes the place of leaserun.
 *
 * Somebody must still watch the locks: a process of its own, the sentry, which is no
 * child of the command, acquires them and supervises the command from outside.
 */
#ifndef FS_LEASERUN_SENTRY_H
#define FS_LEASERUN_SENTRY_H

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/set.h"

/* Returns when the first `count` locks of `set` are held for this process:
 * LEASERUN_WAIT_HELD, and their `held` and `token` are set; or the exit status.  They
 * are held until this process ends, whatever it executes meanwhile. */
int leaserun_sentry_start(const struct leaserun_arguments *arguments, struct leaserun_set *set, size_t count);

#endif
