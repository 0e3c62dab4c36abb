/* inherit: what the daemon before has left: its open files, and which locks they had.
 *
 * inherit_handles makes the handles again.  backend_recover then finds the locks, and inherit_lock gives each to its
 * handle, by the handle's number in the lock's meta, or by the fencing token in the handle's record.  A lock that names
 * this memory, and whose handle does not have it, was on its way to its end, or never got as far as its handle:
 * inherit_settle releases it.  So does it with a ticket of a mount that has ended, if the ticket only waited.  A handle
 * that has lost its lock meanwhile learns it there.
 */
#ifndef FS_HOLD_INHERIT_H
#define FS_HOLD_INHERIT_H

#include "fs/hold/hold.h"
#include "fs/hold/meta.h"

/* Before backend_recover. */
void inherit_handles(struct fs *fs);
/* A recovered lock.  False: it held for a handle of a mount that has ended, and no handle here can have it. */
bool inherit_lock(struct fs *fs, struct hold *hold, const struct meta *meta);
/* After it. */
void inherit_settle(struct fs *fs);
/* When the kernel's INIT was handled again: sends what the kernel may not have got, and lets those that poll look
 * again. */
void inherit_notify(struct fs *fs);
/* Forgets what is left of it. */
void inherit_stop(struct fs *fs);

#endif
