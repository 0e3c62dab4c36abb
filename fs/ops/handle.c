/* handle: an open file of the mount, and the rules of opening and closing; see
 * handle.h.  Content and times: content.c. */
#include "fs/ops/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/log.h"
#include "fs/hold/rights.h"
#include "fs/kernel/tree.h"
#include "fs/ops/attributes.h"
#include "fs/ops/lock.h"
#include "fs/ops/sequence.h"

/* Once, as it concerns the whole mount. */
static void handle_warn_foreign(struct request *r)
{
    if (request_is_foreign(r) && !r->fs->foreign) {
        r->fs->foreign = true;
        log_warning("%s", FS_FOREIGN_WARNING);
    }
}

struct handle *handle_new(struct request *r, int flags)
{
    struct handle *h = g_new0(struct handle, 1);
    handle_warn_foreign(r);
    h->node = tree_ref(r->node);
    h->opener = request_caller(r) ? owner_ref(request_caller(r)) : NULL;
    h->uid = request_uid(r);
    h->gid = fuse_req_ctx(r->req)->gid;
    h->mode = (r->creates ? r->mode : r->fs->options->lock_mode) & RIGHTS_MODE;
    h->has_mode = r->creates || h->mode;
    h->writable = (flags & O_ACCMODE) != O_RDONLY;
    h->id = ++r->fs->next_handle;
    LIST_INSERT_HEAD(&h->node->handles, h, link);
    LIST_INSERT_HEAD(&r->fs->handles, h, all);
    return h;
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

/* Does another handle belong to the same hold? */
static bool handle_shares_hold(const struct handle *h)
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

void handle_free(struct fs *fs, struct handle *h)
{
    if (!h) {
        return;
    }
    struct hold *hold = h->hold;
    if (hold && hold->kind != BACKEND_LEASE && !handle_shares_hold(h)) {
        hold_release(fs, hold, NULL, NULL);
    }
    lock_release_parties(fs, h);
    handle_drop(fs, h);
}

void handle_drop(struct fs *fs, struct handle *h)
{
    LIST_REMOVE(h, link);
    LIST_REMOVE(h, all);
    if (h->poll) {
        fuse_pollhandle_destroy(h->poll);
    }
    if (h->parties) {
        g_array_free(h->parties, TRUE);
    }
    owner_unref(h->opener);
    tree_unref(fs->tree, h->node);
    g_free(h);
}

/* Of a pid namespace that cannot be seen any process of the user may be it. */
static bool handle_is_opener(const struct handle *h, struct request *r)
{
    if (request_is_foreign(r)) {
        return !h->opener && h->uid == request_uid(r);
    }
    return request_caller(r) && h->opener == request_caller(r);
}

struct hold *handle_own_hold(const struct handle *h)
{
    struct hold *hold;
    if (h->hold) {
        return h->hold;
    }
    LIST_FOREACH(hold, &h->node->holds, link) {
        bool holds = (hold->kind == BACKEND_FCNTL && hold->since) || (hold->ticket && hold->ticket->held);
        if (holds && (hold_is_of(hold, h) || hold_is_owner(hold, h->opener))) {
            return hold;
        }
    }
    return NULL;
}

/* Can closing it make a lease of what it holds? */
static bool handle_may_decide(const struct handle *h)
{
    return h->hold && (h->hold->kind == BACKEND_PROVISIONAL || (h->hold->sequence && h->hold->kind == BACKEND_FLOCK));
}

static void handle_note_refusal(struct handle *h, int error)
{
    if (!h->refused && (!h->hold || handle_may_decide(h))) {
        h->refused = error;
    }
}

void handle_refuse(struct request *r, int error)
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

/* --- opening --------------------------------------------------------------- */

static void handle_open_interrupted(struct request *r)
{
    request_reply(r, -EINTR);
}

static void handle_opened(struct request *r, enum backend_result result)
{
    if (result == BACKEND_OK) {
        r->handle->hold = r->hold;
        request_reply_open(r);
    } else if (result == BACKEND_BUSY && !r->busy_young) {
        request_reply_open(r); /* held through another mount: idle */
    } else {
        request_reply(r, fs_error(result));
    }
}

/* The name is free, as far as this mount knows: the provisional second. */
static void handle_open_provisionally(struct request *r)
{
    struct backend_claim claim;
    r->hold = handle_new_hold(r->fs, r->handle, BACKEND_PROVISIONAL);
    r->awaits = !r->waited;
    hold_claim(r->fs, r->hold, BACKEND_PROVISIONAL, &claim);
    hold_acquire(r, &claim, handle_opened);
    g_bytes_unref(claim.meta);
}

/* The owner itself opens what it holds: a renewal, and O_TRUNC is its own. */
static void handle_open_own(struct request *r, struct hold *hold)
{
    if (hold->kind == BACKEND_PROVISIONAL || hold->kind == BACKEND_LEASE) {
        r->handle->hold = hold;
    }
    if (hold->kind == BACKEND_LEASE) {
        hold_renew(r->fs, hold);
    }
    if (r->file.flags & O_TRUNC && hold->kind != BACKEND_PROVISIONAL && hold->converting) {
        request_park(r, hold_queue(hold), handle_open, handle_open_interrupted);
    } else if (r->file.flags & O_TRUNC && hold->kind != BACKEND_PROVISIONAL) {
        handle_truncate_at_open(r, hold);
    } else {
        request_reply_open(r);
    }
}

void handle_open(struct request *r)
{
    struct handle *h = r->handle;
    struct hold *lease = hold_lease(r->node);
    struct hold *own = h->writable ? handle_own_hold(h) : NULL;
    if (lease && !own && h->opener && hold_owner(lease)) {
        h->kin = owner_descends(h->opener, hold_owner(lease));
    }
    if (!h->writable) {
        request_reply_open(r);
    } else if (own) {
        handle_open_own(r, own);
    } else if (lease && !lease->since) {
        request_park(r, hold_queue(lease), handle_open, handle_open_interrupted); /* asked for, not answered */
    } else if (lease && lease->kind == BACKEND_PROVISIONAL) {
        if (r->waited) {
            request_reply_open(r); /* the first of those that waited has it now */
        } else {
            r->waited = true;
            request_park(r, hold_queue(lease), handle_open, handle_open_interrupted);
        }
    } else if (lease && clock_now() - lease->since < SECOND) {
        request_reply(r, -EBUSY);
    } else if (lease || hold_first(r->node)) {
        request_reply_open(r);
    } else {
        handle_open_provisionally(r);
    }
}

/* --- a lease at once --------------------------------------------------------- */

static void handle_acquired(struct request *r, enum backend_result result)
{
    if (result == BACKEND_OK) {
        if (r->handle) {
            r->handle->hold = r->hold;
        }
        r->hold->closed = !r->handle;
        r->reply(r);
    } else if (result == BACKEND_BUSY || result == BACKEND_IS_DIRECTORY) {
        request_reply(r, -EEXIST);
    } else {
        request_reply(r, fs_error(result));
    }
}

void handle_acquire(struct request *r, mode_t mode, GBytes *content, void (*reply)(struct request *))
{
    const struct fuse_ctx *context = fuse_req_ctx(r->req);
    struct backend_claim claim;
    if (hold_first(r->node)) {
        request_reply(r, -EEXIST);
        return;
    }
    handle_warn_foreign(r);
    r->reply = reply;
    r->hold = hold_new(r->fs, r->node, BACKEND_LEASE, request_caller(r), context->uid, context->gid, mode);
    hold_claim(r->fs, r->hold, BACKEND_LEASE, &claim);
    claim.content = content;
    r->hold->size = content ? (uint32_t)g_bytes_get_size(content) : 0; /* charged when it is asked for */
    hold_acquire(r, &claim, handle_acquired);
    g_bytes_unref(claim.meta);
}

/* --- closing ----------------------------------------------------------------- */

static void handle_flushed(struct request *r, enum backend_result result)
{
    if (result == BACKEND_OK) {
        r->handle->hold = r->hold;
        r->handle->closing = true;
        hold_read_heirs(r->hold);
    }
    request_reply(r, fs_error(result));
}

/* An explicit close of an idle handle: as if it had been opened just now. */
static void handle_flush_idle(struct request *r)
{
    struct handle *h = r->handle;
    struct backend_claim claim;
    if (handle_own_hold(h)) {
        request_reply(r, 0);
    } else if (h->refused) {
        request_reply(r, h->refused);
    } else if (hold_first(h->node)) {
        request_reply(r, -EBUSY);
    } else {
        r->hold = handle_new_hold(r->fs, h, BACKEND_PROVISIONAL);
        hold_claim(r->fs, r->hold, BACKEND_PROVISIONAL, &claim);
        hold_acquire(r, &claim, handle_flushed);
        g_bytes_unref(claim.meta);
    }
}

static void handle_flush_unlocked(void *arg, enum backend_result result)
{
    struct request *r = arg;
    struct handle *h = r->handle;
    if (result != BACKEND_OK) {
        request_reply(r, fs_error(result));
        return;
    }
    bool matters =
        h->hold ? handle_may_decide(h) || h->hold->kind == BACKEND_LEASE : h->writable && !h->locking && !h->spent;
    pid_t tid = fuse_req_ctx(r->req)->pid;
    /* One that is on its way out may be past being known. */
    bool gone = !request_caller(r) && h->opener && owner_pid(h->opener) == tid;
    if (!matters || (!gone && !handle_is_opener(h, r))) {
        request_reply_when_told(r, 0);
        return;
    }
    if (request_is_foreign(r) && !h->hold) {
        request_reply(r, 0); /* perhaps a child's, that has ended */
        return;
    }
    bool exiting = gone || (tid && owner_thread_exiting(r->fs->owners, tid));
    h->closing = !exiting && !h->locking && !h->refused;
    if (h->hold && h->hold->kind == BACKEND_LEASE) {
        h->hold->closed = !exiting;
    } else if (h->hold && !exiting && h->closing) {
        /* Now, while it is there for sure: RELEASE may find it gone. */
        hold_read_heirs(h->hold);
        hold_linger(r->fs, h->hold);
    }
    if (exiting) {
        request_reply_when_told(r, 0);
    } else if (h->hold) {
        request_reply(r, handle_may_decide(h) && !h->locking ? h->refused : 0);
    } else {
        handle_flush_idle(r);
    }
}

/* Any close by a lock owner ends its record locks: closed is when that is done. */
void handle_flush(struct request *r)
{
    lock_end_party(r->fs, r->handle->node, r->file.lock_owner, handle_flush_unlocked, r);
}

static void handle_released(struct request *r, enum backend_result result)
{
    if (result == BACKEND_OK) {
        r->hold->closed = true;
    }
    handle_free(r->fs, r->handle);
    request_reply(r, 0);
}

void handle_release(struct request *r)
{
    struct handle *h = r->handle;
    /* Of several that share a ticket the last decides, of a provisional second the first that is closed: it was told
     * that it made a lease. */
    bool another = h->hold && (h->hold->sequence || h->hold->converting) && handle_shares_hold(h);
    if (handle_may_decide(h) && h->closing && !another) {
        r->hold = h->hold;
        hold_decide(r, NULL, handle_released);
    } else {
        handle_free(r->fs, h);
        request_reply(r, 0);
    }
}

/* --- what the kernel is told --------------------------------------------------- */

/* How long the kernel may keep what only it can change. */
#define HANDLE_KEEP_SECONDS (24.0 * 3600)

/* Whose it is; of what nobody holds, what the last that was opened would bring. */
static void handle_rights(const struct node *node, const struct hold *hold, struct stat *st)
{
    struct handle *h = hold ? NULL : LIST_FIRST(&node->handles);
    st->st_mode = node->mode & S_IFMT;
    if (hold) {
        st->st_uid = hold->uid;
        st->st_gid = hold->gid;
        st->st_mode |= hold->mode & RIGHTS_MODE;
    } else if (h) {
        st->st_uid = h->uid;
        st->st_gid = h->gid;
        st->st_mode |= handle_mode(h);
    }
}

void handle_attributes(struct fs *fs, const struct node *node, struct stat *st)
{
    const struct hold *hold = hold_to_change(node);
    memset(st, 0, sizeof *st);
    st->st_ino = node->ino;
    st->st_nlink = tree_links(fs->tree, node);
    st->st_blksize = 4096;
    if (node->directory) {
        st->st_mode = node->mode;
        st->st_uid = node->uid;
        st->st_gid = node->gid;
        st->st_nlink = 2;
        st->st_mtim = st->st_ctim = st->st_atim = node->directory->changed;
        return;
    }
    handle_rights(node, hold, st);
    const struct backend_ticket *ticket = hold ? hold->ticket : NULL;
    clock_ms now = clock_now();
    st->st_size = hold ? hold->size : 0;
    st->st_blocks = (st->st_size + 511) / 512;
    st->st_ctim = fs_wall_time(fs, ticket ? ticket->acquired : now);
    st->st_mtim = st->st_atim = fs_wall_time(fs, ticket ? ticket->deadline - ticket->ttl : now);
    if (hold && hold->times) {
        st->st_atim = hold->times[0];
        st->st_mtim = hold->times[1];
    }
}

double handle_attribute_timeout(const struct fs *fs, const struct node *node)
{
    return node->directory && fs->backend->features & BACKEND_SOLE_AUTHORITY ? HANDLE_KEEP_SECONDS : 0;
}

void handle_entry(struct fs *fs, struct node *node, struct fuse_entry_param *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->ino = tree_id(fs->tree, node);
    entry->attr_timeout = handle_attribute_timeout(fs, node);
    handle_attributes(fs, node, &entry->attr);
    /* Only leases and directories stay for long enough to be kept; all else
     * comes and goes with handles, without the kernel's knowledge.  A lease that has
     * moved is looked up before each open: opening.h. */
    struct hold *lease = hold_lease(node);
    bool keep = node->directory || (lease && lease->kind == BACKEND_LEASE && !node->moved);
    entry->entry_timeout = keep && fs->backend->features & BACKEND_SOLE_AUTHORITY ? HANDLE_KEEP_SECONDS : 0;
    node->visible = node->visible || !LIST_EMPTY(&node->holds) || !LIST_EMPTY(&node->waiting);
    node->kept = node->kept || entry->entry_timeout > 0;
}

void handle_entry_elsewhere(struct fs *fs, struct node *node, const struct backend_info *info,
                            struct fuse_entry_param *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->ino = tree_id(fs->tree, node);
    attributes_elsewhere(fs, node, info, &entry->attr);
    node->visible = true;
}

void handle_entry_missing(struct fs *fs, const struct node *node, const char *name, struct fuse_entry_param *entry)
{
    memset(entry, 0, sizeof *entry);
    /* A name with a node may be locked through a handle at any time, and a ticket
     * is created by another name. */
    bool keep = !node && !sequence_is_ticket_name(name);
    entry->entry_timeout = keep && fs->backend->features & BACKEND_SOLE_AUTHORITY ? HANDLE_KEEP_SECONDS : 0;
}

/* --- poll -------------------------------------------------------------------------- */

void handle_poll(struct request *r, struct fuse_pollhandle *poll)
{
    struct handle *h = r->handle;
    if (poll) {
        if (h->poll) {
            fuse_pollhandle_destroy(h->poll);
        }
        h->poll = poll;
    }
    unsigned events = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;
    events |= h->wanted ? POLLPRI : 0;
    events |= h->spent && !h->hold ? POLLERR | POLLHUP : 0; /* by rm or its token, too: who polls did not do that */
    request_reply_poll(r, events);
}

void handle_notify_poll(struct handle *h)
{
    if (h->poll) {
        fuse_lowlevel_notify_poll(h->poll);
        fuse_pollhandle_destroy(h->poll);
        h->poll = NULL;
    }
}
