/* protect: a mount point on which nobody makes files while nothing is mounted. */
#ifndef FS_DAEMON_PROTECT_H
#define FS_DAEMON_PROTECT_H

#include <stddef.h>

/* Sets mode 0555 of the directory, which stops ordinary users, and its immutable flag (chattr +i), which stops root.  A
 * file that a program makes in an unmounted mount point looks like a lock, and locks nothing.  The directory must be
 * empty and have no mount; only root can.  Warns if its filesystem has no such flag.  0, or -errno with one line in
 * `error`. */
int protect_mountpoint(const char *path, char *error, size_t error_size);

#endif
