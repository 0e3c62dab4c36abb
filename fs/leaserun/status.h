/* status: --status: the holders and waiters of a lock. */
#ifndef FS_LEASERUN_STATUS_H
#define FS_LEASERUN_STATUS_H

#include "fs/leaserun/arguments.h"

#define LEASERUN_EXIT_FREE 1

/* Prints them on standard output.  0: held; LEASERUN_EXIT_FREE: free; else another exit status, after an error on
 * stderr. */
int leaserun_status(const struct leaserun_arguments *arguments);

#endif
