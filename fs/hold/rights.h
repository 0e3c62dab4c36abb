/* rights: owner, group and mode of a lock, and what they allow other users.
 *
 * A name shows uid, gid and mode of the hold that has held longest; they end with
 * that hold.  The kernel checks them at each open, but the lock may change hands
 * between its check and the request, and a handle may be older than the lock.  So
 * whatever gives something away is checked again here.  (Of the capabilities that
 * the kernel knows, only root's uid counts.)
 */
#ifndef FS_HOLD_RIGHTS_H
#define FS_HOLD_RIGHTS_H

#include <stdbool.h>
#include <sys/types.h>

struct backend_info;
struct owner;

/* The permissions of a lock.  No set-user-ID and its like. */
#define RIGHTS_MODE 0777

enum { RIGHTS_READ = 4, RIGHTS_WRITE = 2 };

struct rights {
    uid_t uid;
    gid_t gid;
    mode_t mode; /* of RIGHTS_MODE */
};

/* Of a lock that the store reports, of whichever mount. */
struct rights rights_of(const struct backend_info *info);

/* Do they allow `what` to this uid and gid, or to a supplementary group of `who` while it lives?  `who` may be NULL. */
bool rights_allow(const struct rights *rights, unsigned what, struct owner *who, uid_t uid, gid_t gid);

#endif
