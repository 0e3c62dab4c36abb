/* survivor: a handle lock whose daemon has ended.
 *
 * It belongs to the processes that have its file of the dead mount open, until none of
 * them has.  This mount renews it meanwhile.  No handle of this mount has it, so only
 * three things end it: nobody has the file open any more, user.lease.break or its token,
 * or unlink(2) by who might before, or by another process of the holder's user that has it open.
 *
 * survivor.c keeps what is known; verdict.c acts on what a walk through the processes
 * found (openers.h); resume.c gives it to an open file of this mount.
 */
#ifndef FS_HOLD_SURVIVOR_H
#define FS_HOLD_SURVIVOR_H

#include "fs/hold/hold.h"
#include "fs/process/openers.h"

/* Follows its command wherever users see it. */
#define SURVIVOR_NOTE " (daemon restarted)"

struct survivor {
    LIST_ENTRY(survivor) link; /* survivors->list */
    struct fs *fs;
    struct hold *hold;
    dev_t device;              /* of the dead mount, */
    uint64_t inode;            /* and in it; 0: not known, so it is not renewed */
    struct openers_file *file; /* NULL: nobody looks who has it open */
    GArray *processes;         /* struct openers_process with counted owners, by the last walk */
    bool walked;               /* `processes` is known */
    bool unsure;               /* the last walk saw nobody, which is not certain yet */
    bool wanted;               /* somebody waits for it */
};

LIST_HEAD(survivor_list, survivor);

LIST_HEAD(survivor_question_list, survivor_question);

/* All of a mount. */
struct survivors {
    struct survivor_list list;
    size_t count;
    clock_ms last_end;                       /* of one of them */
    struct request_queue asking;             /* refused because of one: they ask again after the next walk */
    struct survivor_question_list questions; /* that the store has not answered */
    ev_timer settle;                         /* after a walk */
};

/* For fs->survivors. */
struct survivors *survivors_new(struct fs *fs);
/* Forgets what the store was asked: it does not answer any more. */
void survivors_stop(struct fs *fs);
/* After that, and when all holds are freed. */
void survivors_free(struct fs *fs);

static inline struct survivor *hold_survivor(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->survivor : NULL;
}

/* For hold_free. */
void survivor_free(struct hold *hold);
/* Takes over what a walk found. */
void survivor_set_processes(struct survivor *survivor, const struct openers_found *found);
/* Is it the only one, with one thread, so that it would wait for itself? */
bool survivor_is_only_of(const struct survivor *survivor, const struct owner *who);
/* Is it one of its processes, or a descendant of one?  Only those of the holder's user: another's may have waited.  The
 * descendant has this uid. */
bool survivor_allows_change(const struct survivor *survivor, struct owner *who, uid_t uid);
/* The process that took the lock, if it still has the file open.  Else one of the processes that have, preferably one
 * whose open files could be read.  Borrowed; may be NULL. */
struct owner *survivor_process(const struct survivor *survivor);
/* Somebody waits for it: looks at its processes now, and then every second. */
void survivor_set_wanted(struct survivor *survivor);
/* Looks at the processes of the survivors of that name, or of all names (NULL), which somebody looks at or lists. */
void survivors_check(struct fs *fs, const struct node *node);

/* user.lease.resume has moved it to a handle: it is no survivor any more.  Keeps the processes that had its file open
 * in hold->extra->resumers. */
void survivor_keep_resumers(struct hold *hold);
/* For hold_destroy. */
void survivor_free_resumers(struct hold *hold);

/* --- verdict.c --- */

/* Logs the lock, and `what` follows its name. */
void survivor_log(const struct survivor *survivor, const char *what);

/* A recovered handle lock on this file of a dead mount.  `opener`: who opened it, or NULL: a process that this pid
 * namespace does not show.  If device or inode is 0, the lock ends with its term. */
void survivor_new(struct fs *fs, struct hold *hold, dev_t device, uint64_t inode, struct owner *opener);
/* The request was refused.  If that may be because of a survivor, and this request has not waited for a walk yet: parks
 * it, and `again` continues it after the walk; or calls `again` at once if one has just ended, perhaps between the
 * store's answer and now. */
bool survivors_await_walk(struct request *r, request_step *again);

/* --- resume.c --- */

/* Moves the survivor with this fencing token to the file of r->node that the caller opened last, and ends the request:
 * ESTALE: no lock here has that token; EPERM: the caller does not have the survivor's file open, or is another user's;
 * EBUSY: another of its processes was first; EINVAL: that file has a lock, or there is none. */
void survivors_resume(struct request *r, uint64_t token);

#endif
