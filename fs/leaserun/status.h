/* status: --status: the holders and waiters of a lock. */
#ifndef FS_LEASERUN_STATUS_H
#define FS_LEASERUN_STATUS_H

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/lock.h"
#include "fs/leaserun/report.h"

#define LEASERUN_EXIT_FREE 1

/* Prints them on standard output.  0: held; LEASERUN_EXIT_FREE: free; else another exit status, after an error on
 * stderr. */
int leaserun_status(const struct leaserun_arguments *arguments);

/* Reads the state of a lock whose `mount` is set.  0 or -errno; call leaserun_status_clear in both cases. */
int leaserun_status_read(const struct leaserun_lock *lock, struct leaserun_report_lock *ret_report);
void leaserun_status_clear(struct leaserun_report_lock *report);

#endif
