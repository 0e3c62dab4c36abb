/* quota: what each user has of this mount, and how much of it a user may have.
 *
 * A hold is charged to the uid that asked for it, from hold_new to hold_free, with
 * the content that it has or is about to get; a directory to its maker while it is
 * there, or after a restart to its owner.  So the counts are right whatever becomes
 * of a request.  Root has no limit.
 */
#ifndef FS_HOLD_QUOTA_H
#define FS_HOLD_QUOTA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct quota; /* opaque */

struct quota_used {
    uid_t uid;
    uint64_t locks;   /* names, tickets and directories */
    uint64_t content; /* bytes */
    uint64_t open;    /* files of .leasefs */
};

/* Limits for each user; 0: none. */
struct quota *quota_new(uint64_t locks, uint64_t content);
void quota_free(struct quota *quota);

/* Adds to what a user has; negative: takes away. */
void quota_charge(struct quota *quota, uid_t uid, int64_t locks, int64_t content);
void quota_charge_open(struct quota *quota, uid_t uid, int files);

/* Has this user more than allowed? */
bool quota_exceeded(const struct quota *quota, uid_t uid);
/* May it have another directory, or open another file of .leasefs? */
bool quota_allows_directory(const struct quota *quota, uid_t uid);
bool quota_allows_open(const struct quota *quota, uid_t uid);

/* What a user may still have, and the content that all users have.  UINT64_MAX: there is no limit.  Root is told what a
 * user is that has as much. */
struct quota_left {
    uint64_t locks, content, used;
};
struct quota_left quota_left(const struct quota *quota, uid_t uid);

/* A directory is there, or is there no extra; each may be said again. */
void quota_add_directory(struct quota *quota, const char *path, uid_t uid);
void quota_drop_directory(struct quota *quota, const char *path);

/* Has nobody anything? */
bool quota_is_unused(const struct quota *quota);

/* Calls `tell` for each user that has locks, directories or content. */
void quota_each(const struct quota *quota, void (*tell)(void *arg, const struct quota_used *used), void *arg);

#endif
