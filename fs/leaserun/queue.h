/* queue: -N, a queue that is made on the way. */
#ifndef FS_LEASERUN_QUEUE_H
#define FS_LEASERUN_QUEUE_H

#include "fs/leaserun/arguments.h"

/* `path` is a directory of the width of -N when this returns 0: made, if there was none.
 * Else the exit status; another width is an error.  Complaints go to stderr.  Another
 * who makes it is waited for, as -w says, and with -n for a second. */
int leaserun_queue_make(const struct leaserun_arguments *arguments, const char *path);

#endif
