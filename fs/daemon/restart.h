/* restart: recovers the leases and handle locks that the backend kept while no daemon ran. */
#ifndef FS_DAEMON_RESTART_H
#define FS_DAEMON_RESTART_H

#include "fs/fs.h"

/* Restores directories, leases and their owners as they were.  A lease whose owner lives is renewed; another one
 * expires.  A handle lock belongs to the processes that have its file open: see survivor.h. */
void recover_leases(struct fs *fs);
/* Drops questions that the backend has not answered: it will not answer them any more. */
void recover_stop(struct fs *fs);

#endif
