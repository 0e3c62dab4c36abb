/* break: --break: takes a lock from its holders. */
#ifndef FS_LEASERUN_BREAK_H
#define FS_LEASERUN_BREAK_H

#include "fs/leaserun/arguments.h"

/* Says on standard output who held it.  0; LEASERUN_EXIT_FREE: nobody held it; else another exit status, after an error
 * on stderr. */
int leaserun_break(const struct leaserun_arguments *arguments);

#endif
