/* connection: the kernel's directory of a FUSE mount's connection, in fusectl.
 *
 * It is named after the mount's device number, and is removed when the last descriptor
 * of the mount is closed.  The number may be used again then.  So a descriptor of the
 * directory is kept, which shows the removal of just this one.
 *
 * Root can have fusectl without a mounted /sys/fs/fuse/connections, as in most
 * containers.
 */
#ifndef FS_PROCESS_CONNECTION_H
#define FS_PROCESS_CONNECTION_H

#include <stdbool.h>
#include <sys/types.h>

#define CONNECTION_ALL "/sys/fs/fuse/connections"

/* A descriptor of the directory of all connections, which the caller owns; or -errno. */
int connection_open_all(void);

/* A descriptor of the connection of the mount `device`, which the caller owns.  -ENOENT: there is none, so no mount has
 * that number; another -errno: not known. */
int connection_open(int all, dev_t device);

/* Has the kernel removed it? */
bool connection_is_gone(int connection);

#endif
