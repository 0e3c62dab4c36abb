/* restart: recovers the leases that the backend kept while no daemon ran. */
#ifndef FS_DAEMON_RESTART_H
#define FS_DAEMON_RESTART_H

#include "fs/fs.h"

/* Restores directories, leases and their owners as they were.  A lease whose owner lives is renewed; another one
 * expires. */
void recover_leases(struct fs *fs);
/* Drops questions that the backend has not answered: it will not answer them any more. */
void recover_stop(struct fs *fs);

#endif
