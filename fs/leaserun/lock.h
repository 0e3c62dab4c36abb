/* lock: finds, opens and sorts the locks of the command line, and those that this process inherited.
 *
 * Errors are printed on stderr; the exit status gives their kind.
 */
#ifndef FS_LEASERUN_LOCK_H
#define FS_LEASERUN_LOCK_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/leaserun/mount.h"

struct leaserun_lock {
    char name[PATH_MAX]; /* absolute; of a ticket: the name to create, which ends in '-' */
    char directory[PATH_MAX];
    int64_t ttl;                    /* of locks made in the directory, milliseconds */
    int64_t delay;                  /* how long a lost lock stays refused to others, milliseconds */
    size_t position;                /* index on the command line */
    struct leaserun_mount mount;    /* set by leaserun_lock_sort */
    char held[PATH_MAX + NAME_MAX]; /* once held: its name, or its ticket's */
    uint64_t token;
};

/* Finds the lock of `path`: a name in a leasefs, or a directory there, which means a ticket of its queue.  0, or the
 * exit status. */
int leaserun_lock_find(struct leaserun_lock *lock, const char *path);

/* Opens it.  That acquires nothing, but makes the ticket of a queue.  A descriptor, or -1 and the exit status in
 * *ret_status: `conflict` if `waits` is false and the lock is held in a way that it could not wait for. */
int leaserun_lock_open(const struct leaserun_lock *lock, bool waits, int conflict, int *ret_status);

/* Opens `name` in the lock's directory once more, after its mount has ended; `create`: as leaserun_lock_open does.  A
 * descriptor, or -errno; -ENOTCONN while no leasefs is mounted there. */
int leaserun_lock_reopen(const struct leaserun_lock *lock, const char *name, bool create);

/* Sorts locks into the order in which every leaserun acquires them, on any host and by any path: by path within the
 * mount, then by store.  Drops repeated locks, and returns how many are left. */
size_t leaserun_lock_sort(struct leaserun_lock *locks, size_t count);

/* Exports `held` and `token` of each lock to the command's environment.  0 or -errno. */
int leaserun_lock_export(const struct leaserun_lock *locks, size_t count);

enum leaserun_lock_inherited { LEASERUN_LOCK_FREE, LEASERUN_LOCK_INHERITED, LEASERUN_LOCK_SHARED };

/* Does a leaserun above this process hold the lock?  Then sets `held` and `token`.  SHARED: it holds the lock, but not
 * exclusively as wanted. */
enum leaserun_lock_inherited leaserun_lock_inherited(struct leaserun_lock *lock, bool shared);

#endif
