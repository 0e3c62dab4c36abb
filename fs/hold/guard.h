/* guard: a lock that this mount has lost, and that its guard keeps from others.
 *
 * A holder sets user.lease.guard, and the store keeps it in the lock's meta.  When the lock is broken, or released by
 * its token, the hold ends here at once, but stays in the store (backend_revoke).  The guard ends when the last file
 * closes through which the lock was held: this mount then revokes the lock a second time.  If no file is open, as after
 * a restart of the daemon, the guard lasts for its whole time.
 */
#ifndef FS_HOLD_GUARD_H
#define FS_HOLD_GUARD_H

#include "fs/hold/hold.h"

struct guard {
    LIST_ENTRY(guard) link; /* fs->guards */
    struct observed listed; /* on the observer's list */
    struct node *node;      /* counted */
    char *path;             /* the lock's name in the store */
    uint64_t fence;
    clock_ms since, deadline; /* of the hold */
    int64_t delay;            /* the lock-delay that begins when the guard ends */
    struct owner *owner;      /* counted, or NULL */
    uid_t uid, account;       /* `account` is charged until `deadline` + `delay` */
    unsigned kind;            /* of lock: index into metrics_kind_names */
    enum backend_mode mode;
    unsigned handles; /* open files through which it was held */
};

/* In milliseconds; 0: none.  hold_store writes it to the store. */
unsigned guard_duration(const struct hold *hold);
void guard_set(struct hold *hold, unsigned milliseconds);

/* For a hold whose ticket has just ended with `guarded`.  Call guard_add_handle for each handle that had the hold. */
struct guard *guard_new(struct fs *fs, struct hold *hold, int64_t delay);
void guard_add_handle(struct fs *fs, struct guard *guard, struct handle *handle);
/* The handle closes.  With `ends`, the last handle also ends the guard in the store. */
void guard_remove_handle(struct fs *fs, struct handle *handle, bool ends);
bool guard_is_over(const struct guard *guard);
/* Does a guard of this mount cover the node's name, or this path? */
bool guard_covers_node(struct fs *fs, const struct node *node);
bool guard_covers_path(struct fs *fs, const char *path);
/* The store reported that nobody holds that name. */
void guard_end_path(struct fs *fs, const char *path);
/* Frees expired guards, and returns how many are left. */
unsigned guard_count(struct fs *fs);
/* At the end of the daemon, when all handles are discarded. */
void guard_free_all(struct fs *fs);

#endif
