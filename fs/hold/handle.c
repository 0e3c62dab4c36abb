/* handle: an open file of the mount, and what it holds; see handle.h. */
#include "fs/hold/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "backend/log.h"
#include "fs/hold/rights.h"
#include "fs/kernel/tree.h"

void handle_warn_foreign(struct request *r)
{
    if (request_is_foreign(r) && !r->fs->foreign) {
        r->fs->foreign = true;
        log_warning("%s", FS_FOREIGN_WARNING);
    }
}

void handle_new(struct request *r)
{
    struct handle *h = g_new0(struct handle, 1);
    struct owner *opener = request_caller(r);
    const struct fuse_ctx *context = fuse_req_ctx(r->req);
    handle_warn_foreign(r);
    h->node = tree_ref(r->node);
    h->opener = opener ? owner_ref(opener) : NULL;
    h->uid = context->uid;
    h->gid = context->gid;
    h->mode = (r->creates ? r->mode : r->fs->options->lock_mode) & RIGHTS_MODE;
    h->has_mode = r->creates || h->mode;
    h->writable = (r->file.flags & O_ACCMODE) != O_RDONLY;
    h->id = ++r->fs->next_handle;
    LIST_INSERT_HEAD(&h->node->handles, h, link);
    LIST_INSERT_HEAD(&r->fs->handles, h, all);
    r->handle = h;
    r->opens = true;
    r->refused = handle_refused;
}

mode_t handle_mode(struct handle *h)
{
    if (!h->has_mode) {
        h->mode = 0666 & ~(h->opener ? owner_umask(h->opener) : OWNER_UMASK_USUAL);
        h->has_mode = true;
    }
    return h->mode;
}

struct hold *handle_new_hold(struct fs *fs, struct handle *h, enum backend_kind kind)
{
    return hold_new(fs, h->node, kind, h->opener, h->uid, h->gid, S_IFREG | handle_mode(h));
}

struct hold *handle_own_hold(const struct handle *h)
{
    struct hold *hold;
    if (h->hold) {
        return h->hold;
    }
    LIST_FOREACH(hold, &h->node->holds, link) {
        if (hold_holds(hold) && (hold_is_of(hold, h) || hold_is_owner(hold, h->opener))) {
            return hold;
        }
    }
    return NULL;
}

bool handle_shares_hold(const struct handle *h)
{
    struct handle *other;
    if (h->hold->kind == BACKEND_FLOCK && !h->hold->sequence) {
        return false;
    }
    LIST_FOREACH(other, &h->node->handles, link) {
        if (other != h && other->hold == h->hold) {
            return true;
        }
    }
    return false;
}

/* --- lock owners ------------------------------------------------------------- */

void handle_remember_lock_owner(struct handle *h, uint64_t lock_owner)
{
    h->lock_owners = h->lock_owners ? h->lock_owners : g_array_new(FALSE, FALSE, sizeof lock_owner);
    for (guint i = 0; i < h->lock_owners->len; i++) {
        if (g_array_index(h->lock_owners, uint64_t, i) == lock_owner) {
            return;
        }
    }
    g_array_append_val(h->lock_owners, lock_owner);
}

void handle_end_lock_owner(struct fs *fs, struct node *node, uint64_t lock_owner, backend_done *done, void *arg)
{
    struct hold *hold = hold_of_lock_owner(node, lock_owner);
    if (hold && hold->ticket) {
        hold_release(fs, hold, done, arg);
    } else if (done) {
        done(arg, BACKEND_OK);
    }
}

static void handle_release_lock_owners(struct fs *fs, struct handle *h)
{
    while (h->lock_owners && h->lock_owners->len) {
        uint64_t lock_owner = g_array_index(h->lock_owners, uint64_t, h->lock_owners->len - 1);
        g_array_set_size(h->lock_owners, h->lock_owners->len - 1);
        handle_end_lock_owner(fs, h->node, lock_owner, NULL, NULL);
    }
}

/* --- ending ------------------------------------------------------------------ */

void handle_drop(struct fs *fs, struct handle *h)
{
    LIST_REMOVE(h, link);
    LIST_REMOVE(h, all);
    if (h->poll) {
        fuse_pollhandle_destroy(h->poll);
    }
    if (h->lock_owners) {
        g_array_free(h->lock_owners, TRUE);
    }
    owner_unref(h->opener);
    tree_unref(fs->tree, h->node);
    g_free(h);
}

void handle_free(struct fs *fs, struct handle *h)
{
    if (!h) {
        return;
    }
    struct hold *hold = h->hold;
    if (hold && hold->kind != BACKEND_LEASE && !handle_shares_hold(h)) {
        hold_release(fs, hold, NULL, NULL);
    }
    handle_release_lock_owners(fs, h);
    handle_drop(fs, h);
}

static void handle_note_refusal(struct handle *h, int error)
{
    if (!h->refused && error != -EPERM && (!h->hold || handle_may_decide(h))) { /* EPERM: its mode, not the lock */
        h->refused = error;
    }
}

static void handle_note_refusals(struct request *r, int error)
{
    struct handle *h;
    bool through = r->operation == METRICS_WRITE || r->operation == METRICS_FLUSH || r->operation == METRICS_SETATTR;
    if (r->handle && through) {
        handle_note_refusal(r->handle, error);
    } else if (!r->handle && r->sets_times && request_caller(r)) {
        /* The kernel does not tell by which descriptor they were set, if by any. */
        LIST_FOREACH(h, &r->node->handles, link) {
            if (h->opener == request_caller(r)) {
                handle_note_refusal(h, error);
            }
        }
    }
}

void handle_refused(struct request *r, int error)
{
    if (r->opens) {
        handle_free(r->fs, r->handle);
    } else if (error != -EINTR) {
        handle_note_refusals(r, error);
    }
}
