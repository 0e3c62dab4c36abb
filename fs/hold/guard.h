/* guard: what this mount has lost, while its guard keeps it from others.
 *
 * A holder sets user.lease.guard, and the store keeps it in the lock's meta.  When the lock is broken, or released by
 * its token, the hold ends here at once, but stays in the store (backend_revoke).  Its guard ends when the last of the
 * files closes through which it was held: this mount then revokes it once more.  A hold without an open file, as after
 * a restart of the daemon, is kept for all of the guard's time.
 */
#ifndef FS_HOLD_GUARD_H
#define FS_HOLD_GUARD_H

#include "fs/hold/hold.h"

struct guard {
    LIST_ENTRY(guard) link; /* fs->guards */
    struct node *node;      /* counted */
    char *path;             /* by which the store has it */
    uint64_t fence;
    clock_ms since, deadline; /* of the hold */
    struct owner *owner;      /* counted, or NULL */
    uid_t uid;
    unsigned kind; /* as metrics count it */
    enum backend_mode mode;
    unsigned handles; /* so many files are open by which it was held */
};

/* In milliseconds; 0: none.  It is kept with the hold's next description: hold_store. */
unsigned guard_duration(const struct hold *hold);
void guard_set(struct hold *hold, unsigned milliseconds);

/* Of a hold whose ticket has just ended, and is guarded.  Counted once for each handle that had it: guard_add_handle.
 */
struct guard *guard_new(struct fs *fs, struct hold *hold);
void guard_add_handle(struct fs *fs, struct guard *guard, struct handle *handle);
/* The handle closes; the last one ends the guard in the store, too, if it `ends`. */
void guard_remove_handle(struct fs *fs, struct handle *handle, bool ends);
/* Is the node's name kept by a guard of this mount? */
bool guard_covers_node(struct fs *fs, const struct node *node);
bool guard_covers_path(struct fs *fs, const char *path);
/* The store has said that nobody holds that name. */
void guard_end_path(struct fs *fs, const char *path);
/* Forgets those whose time is over; returns how many are left. */
unsigned guard_count(struct fs *fs);

#endif
