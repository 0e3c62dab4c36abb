/* sentry: -F: the command takes the place of leaserun.
 *
 * The sentry, a process that is no child of the command, acquires the locks, watches them,
 * and supervises the command from outside.
 */
#ifndef FS_LEASERUN_SENTRY_H
#define FS_LEASERUN_SENTRY_H

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/set.h"

/* Returns when the first `count` locks of `set` are held for this process: LEASERUN_WAIT_HELD, with their `held` and
 * `token` set; or the exit status.  The locks are held until this process ends, whatever program it executes. */
int leaserun_sentry_start(const struct leaserun_arguments *arguments, struct leaserun_set *set, size_t count);

#endif
