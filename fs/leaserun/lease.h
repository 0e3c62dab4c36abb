/* lease: --get and --put: a lease with a fixed term that no process owns.
 *
 * Each returns the exit status, and prints errors on stderr.
 */
#ifndef FS_LEASERUN_LEASE_H
#define FS_LEASERUN_LEASE_H

#include "backend/clock.h"
#include "fs/leaserun/arguments.h"

/* Acquires it, and prints its token. */
int leaserun_lease_get(const struct leaserun_arguments *arguments);

/* Releases it by its token. */
int leaserun_lease_put(const struct leaserun_arguments *arguments);

/* Takes a free lock for `ttl` milliseconds; no process owns it.  0; EEXIST: it is held; ETIMEDOUT: no answer at
 * `until`; another errno.  Prints nothing. */
int leaserun_lease_take(const char *name, int64_t ttl, clock_ms until);

#endif
