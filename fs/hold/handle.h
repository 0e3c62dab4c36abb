/* handle: an open file of the mount, and what it holds.
 *
 * A handle open for writing is
 *
 *     provisional  it joined the provisional second of its process: hold->kind
 *                  is PROVISIONAL
 *     holding      it belongs to the lease of its process (LEASE), or has its
 *                  own flock
 *     idle         it holds nothing and may yet acquire
 *     spent        its lease ended: it never acquires again by closing or
 *                  writing; `lost` when that was against its will.  Only a new
 *                  flock or fcntl starts afresh.
 *
 * What decides a provisional second: write(2), times, or an explicit close(2)
 * by the process that opened it.  FLUSH is not close: the kernel sends it for
 * each descriptor that goes, also of children and of dying processes.
 *
 * A program that was told no must not hold the lock a moment later: a handle
 * that does not hold and through which a write, times or close was refused
 * acquires nothing by being closed.  Its close tells the error again.
 */
#ifndef FS_HOLD_HANDLE_H
#define FS_HOLD_HANDLE_H

#include "fs/hold/hold.h"

struct handle {
    LIST_ENTRY(handle) link; /* node->handles */
    LIST_ENTRY(handle) all;  /* fs->handles */
    struct node *node;       /* counted */
    struct owner *opener;    /* NULL: of another pid namespace */
    struct hold *hold;       /* the lease it belongs to, or its own flock */
    GPtrArray *records;      /* the holds of lock owners that have used it for fcntl, or NULL */
    struct guard *guard;     /* of what was lost by it, as long as it keeps others off; or NULL */
    struct fuse_pollhandle *poll;
    uint64_t id;
    int refused; /* the negated errno of the first write, times or close that failed: it acquires nothing by closing */
    uid_t uid;   /* what its own open brought: rights of the hold that comes of it */
    gid_t gid;
    uint16_t mode;
    bool has_mode; /* else: see handle_mode */
    bool writable;
    bool locking; /* flock or fcntl was ever asked on it, F_GETLK too */
    bool closing; /* explicitly closed once, as far as is known */
    bool flushed; /* since its lock was got a descriptor of it was closed: perhaps only another process has it still */
    bool spent;
    bool lost;
    bool by_descendant; /* opened by a descendant of the lease's owner */
    bool ticket;        /* made a sequence ticket: without that a lock through it means nothing */
    bool wanted;        /* somebody waits for what it holds: POLLPRI */
};

/* r->handle, of an open or a create of r->node with the flags of r->file. */
void handle_new(struct request *r);
/* Gives back what it holds alone.  NULL is allowed. */
void handle_free(struct fs *fs, struct handle *handle);
/* The same without giving anything back: the daemon ends. */
void handle_discard(struct fs *fs, struct handle *handle);

static inline struct handle *handle_of(const struct fuse_file_info *file)
{
    return (struct handle *)(uintptr_t)file->fh;
}

/* request->refused: a handle that the kernel did not get is freed, and what a request was
 * refused through acquires nothing by closing. */
void handle_on_error(struct request *r, int error);

/* Once, as it concerns the whole mount: FS_FOREIGN_WARNING. */
void handle_warn_foreign(struct request *r);

/* A hold to be asked for through the handle: the opener's, with the rights that its open brought. */
struct hold *handle_new_hold(struct fs *fs, struct handle *handle, enum backend_kind kind);

/* The permissions of what is taken through it: lockmode=; else those of the O_CREAT that made it; else, as the kernel
 * does not tell them, what the opener's umask leaves of 0666. */
mode_t handle_mode(struct handle *handle);

/* Has the handle this one, or the process that opened it, whichever handle it came by? */
bool handle_owns(const struct handle *handle, struct hold *hold);
/* Of these the one that has held longest; or NULL.  The name may have another node by now than the handle has. */
struct hold *handle_find_hold(struct fs *fs, const struct handle *handle);
/* Is what it holds for the second being made into a lock of another handle's, or a lease by its times? */
static inline bool handle_is_converting(const struct handle *h)
{
    return h->hold && h->hold->converting && h->hold->kind == BACKEND_PROVISIONAL;
}

/* Does another handle belong to the same hold? */
bool handle_shares_hold(const struct handle *handle);
/* Can closing it make a lease of what it holds? */
static inline bool handle_is_provisional(const struct handle *h)
{
    return h->hold && (h->hold->kind == BACKEND_PROVISIONAL || (h->hold->sequence && h->hold->kind == BACKEND_FLOCK));
}

/* A lock owner has got this by it. */
void handle_add_records(struct handle *handle, struct hold *hold);
/* What the lock owner has got by it is of the file's user, and as that asked: it has given up all that it had while it
 * waited. */
void handle_take_records(struct fs *fs, struct handle *handle, struct hold *hold);
/* Ends the fcntl locks of a lock owner on the path of r->node: all go with any close by that
 * owner, as POSIX has it.  They are forgotten here when the call returns; `done` with `r`
 * tells that the store has done it, at once if there are none. */
void handle_release_lock_owner(struct request *r, uint64_t lock_owner, backend_done *done);
/* Ends a hold of the name of which the request is about: r->node is then the hold's. */
void handle_release_hold(struct request *r, struct hold *hold, backend_done *done);

#endif
