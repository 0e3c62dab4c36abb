/* quota: what each user has of this mount, and the limits of users.
 *
 * A hold is charged to the uid that acquires it, from hold_new to hold_free, with
 * the content that it has or is about to get.  A directory is charged to its maker
 * while it exists, and after a restart to its owner.  So the counts do not depend on
 * the outcome of a request.
 *
 * After a hold has ended, a guard or the lock-delay of its directory may keep the name refused.  The user of the hold
 * is charged one lock until the guard and the lock-delay end.  Such charges end with the daemon, too.
 *
 * A user may have as much as the user's limit and, of the total for all users, as much as is left free.  So a single
 * user gets half of the total, n users get all but 1 part of n + 1, and there is always as much left for the next one
 * as the greatest of them has.  Root has no limit, but counts in the total.
 */
#ifndef FS_HOLD_QUOTA_H
#define FS_HOLD_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/clock.h"

struct quota; /* opaque */

struct quota_used {
    uid_t uid;
    uint64_t locks;   /* names, tickets, directories, and names that stay refused after their hold */
    uint64_t content; /* bytes */
    uint64_t open;    /* open files of .leasefs */
};

/* 0: none. */
struct quota_limits {
    uint64_t user_locks, user_content; /* of each user */
    uint64_t locks, content;           /* of all together */
};

struct quota *quota_new(const struct quota_limits *limits);
void quota_free(struct quota *quota);

/* Adds to what a user has; a negative number subtracts. */
void quota_charge(struct quota *quota, uid_t uid, int64_t locks, int64_t content);
void quota_charge_open(struct quota *quota, uid_t uid, int files);

/* Charges one more lock until that time.  Charges nothing to root, or if there is no limit. */
void quota_charge_until(struct quota *quota, uid_t uid, clock_ms until);
/* Ends one charge of quota_charge_until with this `until` now. */
void quota_end_charge(struct quota *quota, uid_t uid, clock_ms until);

/* Has this user more than the limits allow? */
bool quota_exceeded(struct quota *quota, uid_t uid);
/* May the user have another directory, or open another file of .leasefs? */
bool quota_allows_directory(struct quota *quota, uid_t uid);
bool quota_allows_open(struct quota *quota, uid_t uid);

/* What a user may still have, and `used`: the content of all users.  UINT64_MAX: no limit.  For root, as for a user who
 * has as much. */
struct quota_left {
    uint64_t locks, content, used;
};
struct quota_left quota_left(struct quota *quota, uid_t uid);

/* A directory exists, or exists no longer.  Repeated calls change nothing. */
void quota_add_directory(struct quota *quota, const char *path, uid_t uid);
void quota_drop_directory(struct quota *quota, const char *path);

/* The path of a directory that is charged to this user, each time another one; NULL: there is none. */
const char *quota_some_directory(struct quota *quota, uid_t uid);

/* Does no user have anything? */
bool quota_is_unused(struct quota *quota);

/* Calls `each` for each user that has locks, directories or content. */
void quota_each(struct quota *quota, void (*each)(void *arg, const struct quota_used *used), void *arg);

#endif
