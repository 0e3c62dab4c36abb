/* lock: flock(2), and fcntl(2) record locks in their POSIX and OFD forms.
 *
 * A flock belongs to a handle, as its own hold.  fcntl locks belong to a lock owner
 * (the kernel's number for a process's files, or for an open file description), with
 * one hold for each path; the backend keeps their byte ranges.  OFD locks arrive like
 * POSIX ones, but their FLUSH carries another owner.  So a handle remembers the lock
 * owners that used it, and releases their locks at RELEASE.
 */
#ifndef FS_OPS_LOCK_H
#define FS_OPS_LOCK_H

#include "backend/backend.h"
#include "fs/fs.h"

struct flock;
struct handle;
struct node;
struct request;

/* `operation`: of flock(2).  Each ends the request. */
void lock_flock(struct request *r, int operation);
void lock_set(struct request *r, const struct flock *lock, bool sleep);
void lock_get(struct request *r, const struct flock *lock);

#endif
