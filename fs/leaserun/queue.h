/* queue: -N: makes the queue that the lock is a ticket of. */
#ifndef FS_LEASERUN_QUEUE_H
#define FS_LEASERUN_QUEUE_H

#include "fs/leaserun/arguments.h"

/* Makes `path` a directory of the width of -N, if there is none.  0: it is one; else the exit status.  Another width is
 * an error.  Errors are printed on stderr.  Waits while another process makes it: as -w says, with -n for a second. */
int leaserun_queue_make(const struct leaserun_arguments *arguments, const char *path);

#endif
