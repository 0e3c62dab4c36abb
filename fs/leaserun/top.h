/* top: --top: a table of the locks that a mount holds, who blocks most first. */
#ifndef FS_LEASERUN_TOP_H
#define FS_LEASERUN_TOP_H

#include "fs/leaserun/arguments.h"

/* Live on a terminal, until q; else once.  Returns the exit status; complaints go to
 * stderr. */
int leaserun_top(const struct leaserun_arguments *arguments);

#endif
