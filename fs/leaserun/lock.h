/* lock: which lock is meant, and whether this process is already inside
 * a leaserun that holds it.
 *
 * Complaints go to stderr; an exit status says what kind they are.
 */
#ifndef FS_LEASERUN_LOCK_H
#define FS_LEASERUN_LOCK_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct leaserun_lock {
    char name[PATH_MAX]; /* absolute; of a ticket: what it is made as, which ends in '-' */
    char directory[PATH_MAX];
    int64_t ttl;   /* of what is made in the directory, milliseconds */
    int64_t delay; /* how long a lock that is lost stays refused to others */
};

/* Finds the lock that `path` means: a name in a leasefs, or a directory there,
 * which means a ticket of its queue.  0, or the exit status. */
int leaserun_lock_find(struct leaserun_lock *lock, const char *path);

/* Opens it; nothing is acquired by that, but for a place in a queue.  A
 * descriptor, or -1 with the exit status in *ret_status (`conflict` when it is
 * held in a way that cannot be waited for, and `waits` is false). */
int leaserun_lock_open(const struct leaserun_lock *lock, bool waits, int conflict, int *ret_status);

/* Tells the command, by its environment, what it runs under. */
int leaserun_lock_export(const char *name, uint64_t token);

enum leaserun_lock_inherited { LEASERUN_LOCK_FREE, LEASERUN_LOCK_INHERITED, LEASERUN_LOCK_SHARED };

/* Is the lock held by a leaserun that this process runs under?  If so, the
 * environment is that of this lock now.  SHARED: it is, but not exclusively, as
 * is asked for. */
enum leaserun_lock_inherited leaserun_lock_inherited(const struct leaserun_lock *lock, bool shared);

#endif
