/* rights: whose a lock is now, and what everybody else may do with it.
 *
 * uid, gid and mode of a name are those of whoever has held it longest now: they
 * belong to the hold, and end with it.  The kernel asks for them at each open, but
 * between its question and the request somebody else may have taken the lock, and
 * a handle may be older than the lock: what gives something away is asked again
 * here.  (Of the capabilities that the kernel knows only root's uid counts.)
 */
#ifndef FS_HOLD_RIGHTS_H
#define FS_HOLD_RIGHTS_H

#include <stdbool.h>
#include <sys/types.h>

struct backend_info;
struct owner;

/* The permissions of a lock: never those that make a program run as somebody else. */
#define RIGHTS_MODE 0777

enum { RIGHTS_READ = 4, RIGHTS_WRITE = 2 };

struct rights {
    uid_t uid;
    gid_t gid;
    mode_t mode; /* of RIGHTS_MODE */
};

/* Of a lock that the store has told of, whichever mount holds it. */
struct rights rights_of(const struct backend_info *info);

/* May somebody with these uid, gid and (while it lives) supplementary groups?  `who` may be NULL. */
bool rights_allow(const struct rights *rights, unsigned what, struct owner *who, uid_t uid, gid_t gid);

#endif
