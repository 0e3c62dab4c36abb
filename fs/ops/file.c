/* file: opens, closes and polls files; see file.h. */
#include "fs/ops/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/log.h"
#include "fs/hold/entry.h"
#include "fs/hold/rights.h"
#include "fs/kernel/tree.h"
#include "fs/ops/content.h"

/* Did the caller open the handle?  If its pid namespace cannot be seen, any process of that user may have. */
static bool file_is_opener(const struct handle *h, struct request *r)
{
    if (request_is_foreign(r)) {
        return !h->opener && h->record->uid == request_uid(r);
    }
    return h->opener && h->opener == request_caller(r);
}

/* --- opening --------------------------------------------------------------- */

static void file_opened(struct request *r)
{
    if (r->result == BACKEND_OK) {
        handle_set_hold(r->handle, r->hold);
        entry_reply_open(r);
    } else if (r->result == BACKEND_BUSY && !r->busy_new_lease) {
        entry_reply_open(r); /* held through another mount: idle */
    } else {
        request_reply(r, fs_error(r->result));
    }
}

/* The name is free, as far as this mount knows: claims it provisionally. */
static void file_open_provisionally(struct request *r)
{
    r->awaits_provisional = !r->waited;
    hold_acquire(r, handle_new_hold(r->fs, r->handle, BACKEND_PROVISIONAL), NULL, file_opened);
}

/* The owner opens its own lock: this renews it, and O_TRUNC truncates its content. */
static void file_open_own(struct request *r, struct hold *hold)
{
    bool lease = hold->kind == BACKEND_PROVISIONAL || hold->kind == BACKEND_LEASE;
    if (lease && hold->node == r->handle->node) {
        handle_set_hold(r->handle, hold);
    }
    if (hold->kind == BACKEND_LEASE) {
        hold_renew(r->fs, hold);
    }
    if (r->file.flags & O_TRUNC && hold->kind != BACKEND_PROVISIONAL && hold->converting) {
        hold_await_outcome(r, hold, file_open);
    } else if (r->file.flags & O_TRUNC && hold->kind != BACKEND_PROVISIONAL) {
        content_truncate_at_open(r, hold);
    } else {
        entry_reply_open(r);
    }
}

void file_open(struct request *r)
{
    struct handle *h = r->handle;
    struct hold *lease = hold_find_lease(r->node);
    struct hold *own = h->record->writable ? handle_find_hold(r->fs, h) : NULL;
    if (lease && !own) {
        h->record->by_descendant = hold_allows_descendant(lease, h->opener, h->record->uid);
    }
    if (!h->record->writable) {
        entry_reply_open(r);
    } else if (own) {
        file_open_own(r, own);
    } else if (lease && !lease->since) {
        hold_await_outcome(r, lease, file_open); /* the store has not answered yet */
    } else if (lease && lease->kind == BACKEND_PROVISIONAL) {
        if (r->waited) {
            entry_reply_open(r); /* the first waiter has it now */
        } else {
            r->waited = true;
            hold_await_outcome(r, lease, file_open);
        }
    } else if (lease && clock_now() - lease->since < SECOND) {
        if (h->record->by_descendant && r->file.flags & (O_TRUNC | O_APPEND)) { /* to write into it, as > and >> do */
            r->fs->observer->contended(r, lease);
        }
        request_reply(r, -EBUSY);
    } else if (lease || hold_find_first(r->node)) {
        entry_reply_open(r);
    } else {
        file_open_provisionally(r);
    }
}

/* --- closing ----------------------------------------------------------------- */

static void file_flushed(struct request *r)
{
    if (r->result == BACKEND_OK) {
        handle_set_hold(r->handle, r->hold);
        r->handle->record->closing = true;
        hold_read_heirs(r->fs, r->hold);
        r->hold->closed = true;
    }
    request_reply(r, fs_error(r->result));
}

/* The result of its close: its earlier error again; but a close does not fail for a lost lock. */
static int file_close_error(const struct handle *h)
{
    return h->record->locking || h->record->refused == -ESTALE ? 0 : h->record->refused;
}

/* An explicit close of an idle handle: as if it had been opened just now. */
static void file_flush_idle(struct request *r)
{
    struct handle *h = r->handle;
    if (handle_find_hold(r->fs, h)) {
        request_reply(r, 0);
    } else if (h->record->refused) {
        request_reply(r, file_close_error(h));
    } else if (hold_find_first(tree_current_node(r->fs->tree, h->node))) {
        request_reply(r, -EBUSY);
    } else {
        hold_acquire(r, handle_new_hold(r->fs, h, BACKEND_PROVISIONAL), NULL, file_flushed);
    }
}

/* Can a close of the handle decide or acquire something, or settle whose lease it is? */
static bool file_close_matters(const struct handle *h)
{
    return h->hold ? handle_is_provisional(h) || h->hold->kind == BACKEND_LEASE
                   : h->record->writable && !h->record->locking && !h->record->spent;
}

/* Is its opener exiting?  The daemon may no longer find such a process. */
static bool file_opener_is_exiting(struct request *r)
{
    const struct handle *h = r->handle;
    pid_t tid = fuse_req_ctx(r->req)->pid;
    bool unknown = !request_caller(r) && h->opener && owner_pid(h->opener) == tid;
    return unknown || (tid && file_is_opener(h, r) && owner_thread_is_exiting(r->fs->owners, tid));
}

/* Has its provisional second run out, though the store has not reported that yet?  So it is after this daemon stood
 * still. */
static bool file_has_expired(const struct handle *h)
{
    const struct hold *hold = h->hold;
    return hold && hold->kind == BACKEND_PROVISIONAL && !hold->converting && hold->ticket->deadline <= clock_now();
}

/* An idle handle joins the provisional hold that its process has through another handle: its close decides it. */
static void file_join_provisional(struct fs *fs, struct handle *h)
{
    struct hold *own = h->hold ? NULL : handle_find_hold(fs, h);
    if (own && own->kind == BACKEND_PROVISIONAL && !own->converting && own->node == h->node) {
        handle_set_hold(h, own);
    }
}

/* An explicit close by the process that opened it. */
static void file_flush_close(struct request *r)
{
    struct handle *h = r->handle;
    if (request_is_foreign(r) && !h->hold) {
        request_reply(r, 0); /* perhaps the close of a child that has exited */
        return;
    }
    h->record->closing = !h->record->locking && !h->record->refused;
    if (h->record->closing) {
        file_join_provisional(r->fs, h);
    }
    struct hold *hold = h->hold;
    if (h->record->closing && file_has_expired(h)) {
        hold_release(r->fs, hold, NULL, NULL);
        hold = NULL;
    }
    if (!hold) {
        file_flush_idle(r);
    } else if (hold->kind == BACKEND_LEASE) {
        hold->closed = true;
        request_reply(r, 0);
    } else {
        if (h->record->closing) { /* now, while the process surely exists: at RELEASE it may have ended */
            hold_read_heirs(r->fs, hold);
            hold->closed = true;
            hold_extend_provisional(r->fs, hold);
        }
        request_reply(r, file_close_error(h));
    }
}

static void file_flush_unlocked(void *arg, enum backend_result result)
{
    struct request *r = arg;
    struct handle *h = r->handle;
    if (result != BACKEND_OK && result != BACKEND_STALE) { /* a close succeeds if the lock was lost */
        request_reply(r, fs_error(result));
        return;
    }
    bool matters = file_close_matters(h), exits = matters && file_opener_is_exiting(r);
    if (matters && !exits && file_is_opener(h, r)) {
        file_flush_close(r);
        return;
    }
    if (exits) {
        h->record->closing = false;
        if (h->hold) {
            h->hold->closed = false;
            owner_note_children(h->opener);
        }
    }
    request_reply_when_invalidated(r, 0);
}

/* Any close by a lock owner releases its record locks, and is answered when that is done. */
void file_flush(struct request *r)
{
    r->handle->record->flushed = true;
    handle_release_lock_owner(r, r->file.lock_owner, file_flush_unlocked);
}

static void file_released(struct request *r)
{
    handle_free(r->fs, r->handle);
    request_reply(r, 0);
}

bool file_release_makes_lease(const struct handle *h)
{
    /* If handles share a ticket, the last close decides.  If they share a provisional hold, the first close does: it
     * returned success. */
    bool another = h->hold && h->hold->sequence && handle_shares_hold(h);
    return handle_is_provisional(h) && h->record->closing && !another && !handle_is_converting(h);
}

void file_release(struct request *r)
{
    r->hold = r->handle->hold;
    hold_make_lease(r, NULL, file_released);
}

/* --- poll -------------------------------------------------------------------------- */

void file_poll(struct request *r)
{
    struct handle *h = r->handle;
    const struct fuse_in_header *message = r->kept ? keep_request_message(r->fs->keep, r->kept) : NULL;
    const struct fuse_poll_in *in = (const void *)(message + 1);
    if (message && message->len >= sizeof *message + sizeof *in && in->flags & FUSE_POLL_SCHEDULE_NOTIFY) {
        h->record->poll = in->kh;
    }
    unsigned events = POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM;
    events |= h->record->wanted ? POLLPRI : 0;
    events |= h->record->spent && !h->hold ? POLLERR | POLLHUP : 0; /* also after rm, or a release by token */
    request_reply_poll(r, events);
}
