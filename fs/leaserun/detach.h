/* detach: what the processes of leaserun do that are not the command's. */
#ifndef FS_LEASERUN_DETACH_H
#define FS_LEASERUN_DETACH_H

#include <stddef.h>

/* Leaves the directory, and closes all descriptors but these (-1: none), which it sorts,
 * and but 0, 1 and 2, which become /dev/null. */
void leaserun_detach(int *keep, size_t count);

#endif
