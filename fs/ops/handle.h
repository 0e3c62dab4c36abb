/* handle: an open file of the mount, and the rules of opening, closing and
 * writing.
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
#ifndef FS_OPS_HANDLE_H
#define FS_OPS_HANDLE_H

#include "fs/fs.h"
#include "fs/hold/hold.h"
#include "fs/kernel/request.h"

struct handle {
    LIST_ENTRY(handle) link; /* node->handles */
    LIST_ENTRY(handle) all;  /* fs->handles */
    struct node *node;       /* counted */
    struct owner *opener;    /* NULL: of another pid namespace */
    struct hold *hold;       /* the lease it belongs to, or its own flock */
    GArray *parties;         /* lock owners that have used it for fcntl, or NULL */
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
    bool spent;
    bool lost;
    bool kin;    /* opened by a descendant of the lease's owner */
    bool ticket; /* made a sequence ticket: without that a lock through it means nothing */
    bool wanted; /* somebody waits for what it holds: POLLPRI */
};

struct handle *handle_new(struct request *r, int flags);
/* Gives back what it holds alone.  NULL is allowed. */
void handle_free(struct fs *fs, struct handle *handle);
/* The same without giving anything back: the daemon ends. */
void handle_drop(struct fs *fs, struct handle *handle);

static inline struct handle *handle_of(const struct fuse_file_info *file)
{
    return (struct handle *)(uintptr_t)file->fh;
}

/* The request fails with this error: what it was asked through is refused from now on. */
void handle_refuse(struct request *r, int error);

/* A hold to be asked for through the handle: the opener's, with the rights that its open brought. */
struct hold *handle_new_hold(struct fs *fs, struct handle *handle, enum backend_kind kind);
/* The permissions of what is taken through it: lockmode=; else those of the O_CREAT that made it; else, as the kernel
 * does not tell them, what the opener's umask leaves of 0666. */
mode_t handle_mode(struct handle *handle);

/* What the handle has, or the process that opened it, whichever handle it came by;
 * or NULL. */
struct hold *handle_own_hold(const struct handle *handle);

/* The steps of the kernel's requests on an open file; each ends the request. */
void handle_open(struct request *r);
void handle_flush(struct request *r);
/* fsync(2): whether what it held is held still, as the store knows it. */
void handle_sync(struct request *r);
void handle_release(struct request *r);
void handle_read(struct request *r);
void handle_write(struct request *r); /* takes r->content.bytes over */
void handle_truncate(struct request *r, off_t size);
void handle_truncate_at_open(struct request *r, struct hold *hold);
void handle_times(struct request *r); /* of r->node, by its caller */

/* A lease at once (O_EXCL, symlink): r->handle may be NULL; then `reply`. */
void handle_acquire(struct request *r, mode_t mode, GBytes *content, void (*reply)(struct request *));

/* What the kernel is told of a node: its attributes, and for how long it may
 * keep the name. */
void handle_attributes(struct fs *fs, const struct node *node, struct stat *ret_attributes);
void handle_entry(struct fs *fs, struct node *node, struct fuse_entry_param *ret_entry);
/* The same of a lock that another mount or a client holds: nothing may be kept. */
void handle_entry_elsewhere(struct fs *fs, struct node *node, const struct backend_info *info,
                            struct fuse_entry_param *ret_entry);
/* A name that is not there; `node` may be NULL. */
void handle_entry_missing(struct fs *fs, const struct node *node, const char *name, struct fuse_entry_param *ret_entry);
double handle_attribute_timeout(const struct fs *fs, const struct node *node);

/* poll(2): always readable and writable; POLLPRI when somebody began to wait for
 * what the handle holds, POLLERR|POLLHUP when it was lost, or released but not
 * through the handle.  Takes `poll` over
 * (may be NULL) and ends the request. */
void handle_poll(struct request *r, struct fuse_pollhandle *poll);

/* Tells those who poll it that its state has changed. */
void handle_notify_poll(struct handle *handle);

#endif
