/* handle: an open file of the mount, and its hold.
 *
 * A handle open for writing is
 *
 *     provisional  it belongs to the provisional hold of its process:
 *                  hold->kind is PROVISIONAL
 *     holding      it belongs to the lease of its process (LEASE), or has its
 *                  own flock
 *     idle         it holds nothing, and may still acquire
 *     spent        its lease ended: closing or writing never acquires again.
 *                  `lost`: the lease did not end by its user's will.  A new
 *                  flock or fcntl may still acquire.
 *
 * write(2), setting times, or an explicit close(2) by the process that opened it turns a provisional hold into a lease.
 * FLUSH alone is no close: the kernel sends it for each descriptor that goes, also those of children and of dying
 * processes.
 *
 * A program that got an error must not hold the lock a moment later: if a write, a change of times or a close failed
 * through a handle without a hold, closing it acquires nothing, and returns the same error.
 */
#ifndef FS_HOLD_HANDLE_H
#define FS_HOLD_HANDLE_H

#include "fs/hold/hold.h"

/* What the next daemon must know of a handle, in KEEP_HANDLES. */
struct handle_record {
    struct handle *handle; /* of this daemon; means nothing to the next one */
    uint64_t node;         /* number of its node */
    uint64_t fence;        /* of `hold`; 0: none */
    uint64_t found;        /* the fencing token of what it was opened on: see handle_has_outlived */
    uint64_t poll;         /* the kernel's number for those that poll it; 0: nobody does */
    uint64_t opener_start; /* with its pid, whom it belongs to */
    int32_t opener_pid;    /* 0: a process of another pid namespace */
    int32_t refused; /* negated errno of the first write, times or close that failed: its close acquires nothing */
    uint32_t uid;    /* of the open: the rights of a hold acquired through it */
    uint32_t gid;
    uint16_t mode;
    uint8_t has_mode;    /* else: see handle_mode */
    uint8_t provisional; /* `hold` is */
    uint8_t locked;      /* lock owners have record locks through it */
    uint8_t writable;
    uint8_t locking; /* flock or fcntl was called on it, F_GETLK too */
    uint8_t closing; /* its opener has closed it explicitly, as far as FLUSH shows */
    uint8_t
        flushed; /* a descriptor of it was closed after it got its lock: perhaps only another process still has one */
    uint8_t spent;
    uint8_t lost;
    uint8_t by_descendant; /* opened by one of hold_allows_descendant */
    uint8_t ticket;        /* it made a sequence ticket; without that, a lock through it has no effect */
    uint8_t wanted;        /* a waiter began to wait for what it holds: POLLPRI */
};

struct handle {
    LIST_ENTRY(handle) link; /* node->handles */
    LIST_ENTRY(handle) all;  /* fs->handles */
    struct handle *newer;    /* of the same node and opener; NULL: it is in fs->opened */
    struct handle *older;
    struct node *node;    /* counted */
    struct owner *opener; /* counted; NULL: a process of another pid namespace */
    struct hold *hold;    /* the lease it belongs to, or its own flock; set by handle_set_hold */
    GPtrArray *records;   /* holds of lock owners that used it for fcntl, or NULL */
    struct guard *guard;  /* of the lock that it lost, while the guard lasts; or NULL */
    struct handle_record *record;
    uint64_t id; /* the record's number: the kernel's number for the file */
};

/* Sets r->handle, for an open or create of r->node with the flags of r->file.  False if there are too many: the request
 * has its reply then. */
bool handle_new(struct request *r);
/* A handle with this record, which is kept. */
struct handle *handle_attach(struct fs *fs, struct node *node, struct owner *opener, struct handle_record *record);
/* Also releases what only this handle holds.  NULL is allowed. */
void handle_free(struct fs *fs, struct handle *handle);
/* The daemon ends, and leaves the handle to the next one: nothing that happens to it from now on is kept.  Then frees
 * it without releasing anything. */
void handle_leave(struct handle *handle);
void handle_free_left(struct fs *fs, struct handle *handle);

/* NULL: there is no such handle any more. */
struct handle *handle_find(struct fs *fs, uint64_t id);

/* By which the store knows it, among the handles of all mounts that there ever were. */
static inline uint64_t handle_identity(const struct fs *fs, const struct handle *handle)
{
    return handle->id ^ keep_nonce(fs->keep);
}

/* It belongs to this hold from now on (NULL: to none), which the next daemon finds by its fencing token. */
static inline void handle_set_hold(struct handle *handle, struct hold *hold)
{
    handle->hold = hold;
    handle->record->provisional = hold && hold->kind == BACKEND_PROVISIONAL;
    KEEP_STORE(handle->record->fence, hold && hold->ticket ? hold->ticket->fence : 0);
}

/* For request->refused.  Frees a handle that the kernel did not get; else notes the error, so that closing the handle
 * acquires nothing. */
void handle_on_error(struct request *r, int error);

/* Logs FS_FOREIGN_WARNING, once for the whole mount. */
void handle_warn_foreign(struct request *r);

/* A hold to be acquired through the handle: owned by the opener, with the rights of the open. */
struct hold *handle_new_hold(struct fs *fs, struct handle *handle, enum backend_kind kind);

/* The permissions of a lock acquired through it: lockmode=; else the mode of its O_CREAT; else 0666 less the opener's
 * umask, because the kernel does not send that. */
mode_t handle_mode(struct handle *handle);

/* For fs->opened. */
GHashTable *handle_table(void);
/* The latest handle of the node that this process (or NULL: another pid namespace) opened, and by `older` its others;
 * or NULL. */
struct handle *handle_latest(struct fs *fs, const struct node *node, struct owner *opener);

/* The hold of this process on the node: its lease, what the name shows, or a lock through one of its files; or NULL. */
struct hold *handle_find_owned(struct fs *fs, const struct node *node, struct owner *who);
/* The hold that a caller sees: its own, if it has one (a store that lost data may have granted it beside another); else
 * an exclusive one; else, of several shared ones, its ancestor's, if that is among the latest.  Or NULL. */
struct hold *handle_find_shown_to(struct fs *fs, const struct node *node, struct owner *caller);
/* Of the holds that it owns, the one that has held longest; or NULL.  Also looks at the node that its name has now. */
struct hold *handle_find_hold(struct fs *fs, const struct handle *handle);
/* Is its provisional hold being converted, to a lock of another handle or to a lease? */
static inline bool handle_is_converting(const struct handle *h)
{
    return h->hold && h->hold->converting && h->hold->kind == BACKEND_PROVISIONAL;
}

/* Has the lock ended that had the name when the handle was opened?  `info` is what the store has by its name now.  Such
 * a handle reads nothing until it has a lock itself, whoever has the name. */
bool handle_has_outlived(struct fs *fs, struct handle *handle, const struct backend_info *info);
/* Does another handle belong to the same hold? */
bool handle_shares_hold(const struct handle *handle);
/* Can closing it make a lease of its hold? */
static inline bool handle_is_provisional(const struct handle *h)
{
    return h->hold && (h->hold->kind == BACKEND_PROVISIONAL || (h->hold->sequence && h->hold->kind == BACKEND_FLOCK));
}

/* A lock owner has got this hold through it. */
void handle_add_records(struct handle *handle, struct hold *hold);
/* Gives the hold to the handle's user, with the rights of its open.  For a lock owner that has released all its locks
 * while it waited for this one. */
void handle_take_records(struct fs *fs, struct handle *handle, struct hold *hold);
/* Releases all fcntl locks of a lock owner on the path of r->node: any close by that owner ends them, as POSIX says.
 * They are gone here when the call returns.  Calls `done` with `r` when the store has released them, at once if there
 * are none. */
void handle_release_lock_owner(struct request *r, uint64_t lock_owner, backend_done *done);
/* Releases a hold of the name that the request is about.  r->node is then the hold's node. */
void handle_release_hold(struct request *r, struct hold *hold, backend_done *done);

#endif
