/* top: --top: a table of the locks that a mount holds, those with most waiters first. */
#ifndef FS_LEASERUN_TOP_H
#define FS_LEASERUN_TOP_H

#include "fs/leaserun/arguments.h"

/* On a terminal, live until q; else once.  Returns the exit status, and prints errors on stderr. */
int leaserun_top(const struct leaserun_arguments *arguments);

#endif
