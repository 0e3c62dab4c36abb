/* lock: flock(2), and fcntl(2) record locks in their POSIX and OFD forms.
 *
 * A flock belongs to a handle, as its own hold.  fcntl locks belong to a lock
 * owner (the kernel's number for a process's files, or for an open file
 * description), one hold for each on a path; their byte ranges are the
 * backend's.  OFD locks arrive like POSIX ones, but FLUSH carries another owner:
 * a handle remembers who has used it, and gives their locks back at RELEASE.
 */
#ifndef FS_OPS_LOCK_H
#define FS_OPS_LOCK_H

#include "backend/backend.h"
#include "fs/fs.h"

struct flock;
struct handle;
struct node;
struct request;

/* `operation` as of flock(2).  Each ends the request. */
void lock_flock(struct request *r, int operation);
void lock_set(struct request *r, const struct flock *lock, bool sleep);
void lock_get(struct request *r, const struct flock *lock);

#endif
