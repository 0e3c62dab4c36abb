/* loop: --loop: queues again whenever the command has ended or the lock was lost. */
#ifndef FS_LEASERUN_LOOP_H
#define FS_LEASERUN_LOOP_H

#include "fs/leaserun/arguments.h"

/* Each round is `run` in a child, until a signal ends it, or an error that no round can mend.  Returns the exit status;
 * does not return if a signal ended the last round. */
int leaserun_loop(struct leaserun_arguments *arguments, int (*run)(struct leaserun_arguments *arguments));

#endif
