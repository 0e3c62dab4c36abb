/* holder: says who holds a lock that was not free in time. */
#ifndef FS_LEASERUN_HOLDER_H
#define FS_LEASERUN_HOLDER_H

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/lock.h"
#include "fs/leaserun/report.h"

/* Prints it on stderr, unless -E 0 says that this is no error, and returns the exit status of -E.  Asks the mount, but
 * for no longer than half a second. */
int leaserun_holder_refuse(const struct leaserun_arguments *arguments, const struct leaserun_lock *lock);

/* "held by HOST:PID COMMAND, for TIME", escaped, from a report of the lock; "": nobody holds it. */
void leaserun_holder_describe(const struct leaserun_report_lock *report, char *text, size_t size);

#endif
