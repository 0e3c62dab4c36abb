/* status: --status: who holds a lock, since when, and who waits. */
#ifndef FS_LEASERUN_STATUS_H
#define FS_LEASERUN_STATUS_H

#include "fs/leaserun/arguments.h"

#define LEASERUN_EXIT_FREE 1

/* Tells it on standard output.  0: held; LEASERUN_EXIT_FREE: free; else what kept it
 * from being known, which was told on stderr. */
int leaserun_status(const struct leaserun_arguments *arguments);

#endif
