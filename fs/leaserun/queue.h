/* queue: -N, a queue that is made on the way. */
#ifndef FS_LEASERUN_QUEUE_H
#define FS_LEASERUN_QUEUE_H

#include <stdint.h>

/* `path` is a directory of this width when this returns 0: made, if there was none.
 * Else the exit status; another width is an error.  Complaints go to stderr. */
int leaserun_queue_make(const char *path, uint32_t width);

#endif
