/* mounts: --mounts: which mounts the server of a leasefs knows. */
#ifndef FS_LEASERUN_MOUNTS_H
#define FS_LEASERUN_MOUNTS_H

#include "fs/leaserun/arguments.h"

/* The exit status. */
int leaserun_mounts(const struct leaserun_arguments *arguments);

#endif
