/* once: --once: a command that runs unless it has succeeded within a period, on any host.
 *
 * The store remembers the success: a lease beside the lock, named LOCK#once, that no process owns and whose fixed term
 * is the rest of the period.  It is taken before the lock is released.  So the store's clock counts, and the hosts'
 * clocks are not compared.  The command runs again if that lease is removed.
 *
 * At least once: a host that dies between the command's end and that lease, or a store that is away then, leaves no
 * trace of the success.
 */
#ifndef FS_LEASERUN_ONCE_H
#define FS_LEASERUN_ONCE_H

#include "backend/clock.h"
#include "fs/leaserun/arguments.h"
#include "fs/leaserun/lock.h"

#define LEASERUN_ONCE_SUFFIX "#once" /* ends the name of the lease that remembers a success */

/* Has it succeeded within the period?  1, 0, or -errno.  The lock is held. */
int leaserun_once_is_done(const struct leaserun_lock *lock);

/* Remembers that the command, which began at `began`, has succeeded.  Gives up at `until`.  Prints errors on stderr. */
void leaserun_once_remember(const struct leaserun_arguments *arguments, const struct leaserun_lock *lock,
                            clock_ms began, clock_ms until);

#endif
