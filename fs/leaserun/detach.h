/* detach: separates leaserun's helper processes from the command's surroundings. */
#ifndef FS_LEASERUN_DETACH_H
#define FS_LEASERUN_DETACH_H

#include <stddef.h>

/* Changes to the root directory.  Closes all descriptors but those in `keep` (-1: none), which it sorts; 0, 1 and 2
 * become /dev/null. */
void leaserun_detach(int *keep, size_t count);

#endif
