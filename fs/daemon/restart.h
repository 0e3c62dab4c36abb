/* restart: recovers the leases that the backend kept while no daemon ran. */
#ifndef FS_DAEMON_RESTART_H
#define FS_DAEMON_RESTART_H

#include "fs/fs.h"

/* After the daemon was started again: directories, leases and their owners are
 * what they were; who lives is renewed, who died runs out. */
void recover_leases(struct fs *fs);
/* Forgets what the backend was asked of them: it does not answer any more. */
void recover_stop(struct fs *fs);

#endif
