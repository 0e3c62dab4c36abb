/* lock: which locks are meant, in which order they are taken, and whether
 * this process is already inside a leaserun that holds them.
 *
 * Complaints go to stderr; an exit status says what kind they are.
 */
#ifndef FS_LEASERUN_LOCK_H
#define FS_LEASERUN_LOCK_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/leaserun/mount.h"

struct leaserun_lock {
    char name[PATH_MAX]; /* absolute; of a ticket: what it is made as, which ends in '-' */
    char directory[PATH_MAX];
    int64_t ttl;                    /* of what is made in the directory, milliseconds */
    int64_t delay;                  /* how long a lock that is lost stays refused to others */
    size_t place;                   /* on the command line */
    struct leaserun_mount mount;    /* once it was put in order */
    char held[PATH_MAX + NAME_MAX]; /* once it is held: its name, or that of the ticket */
    uint64_t token;
};

/* Finds the lock that `path` means: a name in a leasefs, or a directory there,
 * which means a ticket of its queue.  0, or the exit status. */
int leaserun_lock_find(struct leaserun_lock *lock, const char *path);

/* Opens it; nothing is acquired by that, but for a place in a queue.  A
 * descriptor, or -1 with the exit status in *ret_status (`conflict` when it is
 * held in a way that cannot be waited for, and `waits` is false). */
int leaserun_lock_open(const struct leaserun_lock *lock, bool waits, int conflict, int *ret_status);

/* Puts locks in the order in which everybody takes them, on whatever host and by
 * whatever path: by the path within the mount, then by where the locks are.  A lock
 * that is named twice is left once.  Returns how many are left. */
size_t leaserun_lock_sort(struct leaserun_lock *locks, size_t count);

/* Tells the command, by its environment, what it runs under: `held` and `token` of
 * each.  -errno. */
int leaserun_lock_export(const struct leaserun_lock *locks, size_t count);

enum leaserun_lock_inherited { LEASERUN_LOCK_FREE, LEASERUN_LOCK_INHERITED, LEASERUN_LOCK_SHARED };

/* Is the lock held by a leaserun that this process runs under?  If so, sets `held`
 * and `token`.  SHARED: it is, but not exclusively, as is asked for. */
enum leaserun_lock_inherited leaserun_lock_inherited(struct leaserun_lock *lock, bool shared);

#endif
