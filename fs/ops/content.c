/* content: reads and writes the content and the times of a lock; see content.h.
 *
 * Content lives with the ticket in the backend.  It is small (64 KiB), so a
 * write reads it, splices the new bytes in and sets it whole. */
#include "fs/ops/content.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "fs/hold/entry.h"
#include "fs/hold/rights.h"
#include "fs/kernel/tree.h"

/* `length` bytes of `data` at `offset` into `old`, or `old` cut or filled to
 * `offset` when `data` is NULL; NULL if it becomes too large. */
static GBytes *content_splice(GBytes *old, uint64_t offset, const void *data, size_t length)
{
    gsize size = 0;
    const void *bytes = old ? g_bytes_get_data(old, &size) : NULL;
    if (offset > CONTENT_BYTES_MAX || length > CONTENT_BYTES_MAX - offset) {
        return NULL;
    }
    gsize total = (gsize)(data ? MAX(size, offset + length) : offset); /* CONTENT_BYTES_MAX at most */
    char *copy = g_malloc0(total ? total : 1);
    if (bytes) {
        memcpy(copy, bytes, MIN(size, total));
    }
    if (data) {
        memcpy(copy + offset, data, length);
    }
    return g_bytes_new_take(copy, total);
}

#define CONTENT_READ_BY_ALL (S_IRUSR | S_IRGRP | S_IROTH)

/* --- reading ----------------------------------------------------------------- */

/* May the caller read the content?  The holder may.  Another handle may be older than the present hold, or was opened
 * while the kernel still had the rights of the hold before; so its opener needs the right to open L for reading now.  A
 * mapped page is shown to all who have mapped L without another check. */
static bool content_may_read(const struct request *r, const struct backend_info *info)
{
    const struct handle *h = r->handle;
    struct hold *hold = info->ticket ? info->ticket->user : NULL;
    if (r->read.mapped && r->fs->options->allow_other && info->type == BACKEND_LOCK) {
        return (rights_of(info).mode & CONTENT_READ_BY_ALL) == CONTENT_READ_BY_ALL;
    }
    if (info->type != BACKEND_LOCK || (hold && (hold_has_handle(hold, h) || hold_is_owned_by(hold, h->opener)))) {
        return true;
    }
    struct rights rights = rights_of(info);
    return rights_allow(&rights, RIGHTS_READ, h->opener, h->record->uid, h->record->gid);
}

static void content_reply_read(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    gsize size = 0;
    bool ended = r->handle->record->lost || (result == BACKEND_OK && handle_has_outlived(r->fs, r->handle, info));
    if (result != BACKEND_OK || ended) { /* lost before, or found to be, by asking */
        request_reply(r, ended ? -ESTALE : -EIO);
        return;
    }
    if (!content_may_read(r, info)) {
        request_reply(r, -EACCES);
        return;
    }
    const char *data = info->content ? g_bytes_get_data(info->content, &size) : NULL;
    size_t offset = MIN((size_t)r->read.offset, size);
    request_reply_buffer(r, data ? data + offset : NULL, MIN(r->read.size, size - offset));
}

void content_read(struct request *r)
{
    if (r->handle->record->lost) {
        request_reply(r, -ESTALE);
    } else {
        request_stat(r, content_reply_read);
    }
}

/* Without an answer this mount counts it as held until its deadline. */
static void content_synced(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    (void)result, (void)info;
    request_reply(r, r->handle->record->lost ? -ESTALE : 0);
}

void content_sync(struct request *r)
{
    char path[TREE_PATH_MAX];
    bool known = r->fs->backend->features & BACKEND_SOLE_AUTHORITY || !hold_exists_at(r->node);
    if (known || r->handle->record->lost || !tree_path(r->node, path, sizeof path)) {
        content_synced(r, BACKEND_OK, NULL);
    } else {
        backend_stat(r->fs->backend, path, content_synced, r);
    }
}

/* --- changing ------------------------------------------------------------------ */

static void content_end(struct request *r, enum backend_result result)
{
    if (result != BACKEND_OK) {
        request_reply(r, fs_error(result));
    } else if (r->content.reply == CONTENT_REPLY_OPEN) {
        entry_reply_open(r);
    } else if (r->content.reply == CONTENT_REPLY_ATTRIBUTES) {
        struct stat st;
        entry_fill_attributes(r->fs, r->node, &st);
        request_reply_attr(r, &st, entry_attribute_timeout(r->fs, r->node));
    } else {
        request_reply_write(r, r->content.length);
    }
}

/* How often a request continues with the next lock of the name when its own has ended. */
#define CONTENT_TRIES 8

static void content_change_through(struct request *r);

/* Another thread has released the request's lock: does the file have another one?  No if its lock was lost. */
static bool content_has_another(struct request *r)
{
    struct handle *h = r->handle;
    return h && !h->record->spent && handle_find_hold(r->fs, h) && r->tries++ < CONTENT_TRIES;
}

static void content_stored(void *arg, enum backend_result result)
{
    struct request *r = arg;
    struct hold *hold = r->hold;
    result = hold_result(hold, r->handle, result);
    hold_set_size(r->fs, hold, result == BACKEND_OK ? r->content.size : hold->size);
    hold_unpin(r->fs, r->hold);
    if (result == BACKEND_STALE && content_has_another(r)) {
        content_change_through(r);
    } else {
        content_end(r, result);
    }
}

/* The new content: the old one with the request's bytes. */
static GBytes *content_next(struct request *r, GBytes *old)
{
    gsize length = 0;
    const void *data = r->content.bytes ? g_bytes_get_data(r->content.bytes, &length) : NULL;
    uint64_t end = old ? g_bytes_get_size(old) : 0;
    end = r->before && r->before->offset ? r->before->offset - 1 : end; /* where an earlier daemon wrote it */
    uint64_t offset = r->content.append ? end : (uint64_t)r->content.offset;
    KEEP_STORE(request_intent(r)->offset, r->content.append ? offset + 1 : 0);
    GBytes *next = content_splice(old, offset, r->content.bytes && !data ? "" : data, length);
    r->content.size = next ? (uint32_t)g_bytes_get_size(next) : 0;
    return next;
}

static void content_refuse(struct request *r, int error)
{
    hold_unpin(r->fs, r->hold);
    request_reply(r, error);
}

static void content_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    struct hold *hold = r->hold;
    if (result != BACKEND_OK) {
        content_refuse(r, fs_error(result));
        return;
    }
    if (!hold->ticket && content_has_another(r)) {
        hold_unpin(r->fs, r->hold);
        content_change_through(r);
        return;
    }
    bool shown = info->ticket && info->ticket->user == hold;
    bool forgotten =
        info->type == BACKEND_NOTHING; /* the lock is held here, but not restored yet in a store that lost its data */
    if (!hold->ticket || (hold->kind == BACKEND_LEASE && !shown && !forgotten)) {
        content_refuse(r, -ESTALE); /* it is not held any more */
        return;
    }
    /* If several share, the name shows the content of the first: the others start from empty content. */
    g_autoptr(GBytes) next = content_next(r, shown ? info->content : hold->ticket->content);
    if (!next) {
        content_refuse(r, -EFBIG);
    } else if (!hold_charge(r->fs, hold, r->content.size)) {
        content_refuse(r, fs_error(BACKEND_QUOTA));
    } else {
        struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = next};
        backend_set(r->fs->backend, hold->ticket, &change, content_stored, r);
    }
}

static void content_change(struct request *r, struct hold *hold)
{
    char path[TREE_PATH_MAX];
    r->hold = hold_pin_lease(hold);
    if (tree_path(hold->node, path, sizeof path)) {
        backend_stat(r->fs->backend, path, content_known, r);
    } else {
        content_refuse(r, -ENAMETOOLONG);
    }
}

/* Was the provisional second over before the store answered?  Then the file is idle, and its process may acquire again.
 */
static bool content_has_lapsed(struct request *r)
{
    bool lapsed = r->result == BACKEND_STALE && r->tries++ < CONTENT_TRIES;
    if (lapsed && r->hold) {
        hold_release(r->fs, r->hold, NULL, NULL); /* the store does not have it */
        r->hold = NULL;
    }
    return lapsed;
}

static void content_acquired(struct request *r)
{
    if (content_has_lapsed(r)) {
        content_change_through(r);
        return;
    }
    if (r->result == BACKEND_OK && r->handle && r->handle->node == r->hold->node) {
        handle_set_hold(r->handle, r->hold);
    }
    content_end(r, r->result);
}

/* A lease with this content, decided or acquired by changing it. */
static void content_acquire(struct request *r, struct hold *provisional)
{
    GBytes *next = content_next(r, NULL);
    if (!next) {
        request_reply(r, -EFBIG);
        return;
    }
    if (provisional) {
        r->hold = provisional;
        hold_make_lease(r, next, content_acquired);
    } else {
        hold_acquire(r, handle_new_hold(r->fs, r->handle, BACKEND_LEASE), next, content_acquired);
    }
    g_bytes_unref(next);
}

/* On this mount; the name may have another node by now. */
static bool content_is_held(const struct request *r)
{
    return hold_find_first(r->node) || hold_find_first(tree_current_node(r->fs->tree, r->node));
}

/* Through an open handle. */
static void content_change_through(struct request *r)
{
    struct handle *h = r->handle;
    struct hold *own = handle_find_hold(r->fs, h);
    bool nothing = !r->content.bytes && r->content.offset == 0;
    if (h->record->spent) {
        request_reply(r, -ESTALE);
    } else if (own && own->converting) {
        hold_await_outcome(r, own, content_change_through);
    } else if (own && own->kind != BACKEND_PROVISIONAL) {
        content_change(r, own);
    } else if (!own && content_is_held(r)) {
        if (h->record->by_descendant && r->content.bytes && hold_find_lease(r->node)) {
            r->fs->observer->contended(r, hold_find_lease(r->node));
        }
        request_reply(r, -EBUSY);
    } else if (nothing) {
        content_end(r, BACKEND_OK); /* cutting nothing to nothing decides nothing */
    } else {
        content_acquire(r, own);
    }
}

void content_write(struct request *r)
{
    r->content.reply = CONTENT_REPLY_WRITTEN;
    r->content.length = g_bytes_get_size(r->content.bytes);
    content_change_through(r);
}

void content_truncate_at_open(struct request *r, struct hold *hold)
{
    r->content.reply = CONTENT_REPLY_OPEN;
    content_change(r, hold);
}

/* By path. */
static void content_truncate_by_path(struct request *r)
{
    struct hold *hold = hold_find_shown(r->node);
    if (!hold) {
        request_reply(r, -ESTALE);
    } else if (!hold_allows_change(r->fs, hold, request_caller(r), request_uid(r))) {
        request_reply(r, -EPERM);
    } else if (hold->converting) {
        hold_await_outcome(r, hold, content_truncate_by_path);
    } else {
        content_change(r, hold);
    }
}

void content_truncate(struct request *r, off_t size)
{
    r->content.reply = CONTENT_REPLY_ATTRIBUTES;
    r->content.offset = size;
    if (r->handle) {
        content_change_through(r);
    } else {
        content_truncate_by_path(r);
    }
}

/* --- times ----------------------------------------------------------------------- */

static void content_reply_dated(struct request *r)
{
    struct stat st;
    entry_fill_attributes(r->fs, r->node, &st);
    request_reply_attr(r, &st, 0);
}

static struct hold *content_hold_of(struct request *r);

static void content_exchange_times(struct content_times *times, struct hold *hold)
{
    struct content_times before = {.explicit_times = hold_times(hold) != NULL};
    if (before.explicit_times) {
        memcpy(before.time, hold_times(hold), sizeof before.time);
        g_clear_pointer(&hold->extra->times, g_free);
    }
    if (times->explicit_times) {
        hold_extra(hold)->times = g_memdup2(times->time, sizeof times->time);
    }
    *times = before;
}

/* A change that the store refused is undone here. */
static void content_times_stored(struct request *r)
{
    if (r->result == BACKEND_OK) {
        content_reply_dated(r);
    } else {
        content_exchange_times(&r->times, r->hold);
        if (r->result == BACKEND_STALE && content_hold_of(r) && r->tries++ < CONTENT_TRIES) {
            content_set_times(r);
        } else {
            request_reply(r, fs_error(r->result));
        }
    }
}

static void content_store_times(struct request *r, struct hold *hold)
{
    if (hold_times(hold) || r->times.explicit_times) {
        content_exchange_times(&r->times, hold);
        hold_store_for(r, hold, content_times_stored);
    } else {
        content_reply_dated(r);
    }
}

static void content_dated(struct request *r)
{
    if (r->result == BACKEND_OK) {
        content_store_times(r, r->hold);
    } else if (content_has_lapsed(r)) {
        content_set_times(r);
    } else {
        request_reply(r, fs_error(r->result));
    }
}

/* The handle through which this process may acquire by setting times: one that lost its lock only if it has no other.
 */
static struct handle *content_handle_of(struct request *r)
{
    struct handle *h, *found = NULL;
    for (h = handle_latest(r->fs, r->node, request_caller(r)); h; h = h->older) {
        if (h->record->writable && h->opener && (!found || found->record->spent)) {
            found = h;
        }
    }
    return found;
}

bool content_times_are_lost(struct request *r)
{
    const struct handle *h = content_handle_of(r);
    if (h && !h->record->spent) {
        return false;
    }
    for (h = handle_latest(r->fs, r->node, request_caller(r)); h; h = h->older) {
        if (h->record->lost && h->opener) {
            return true;
        }
    }
    return false;
}

static struct hold *content_hold_of_node(struct request *r, const struct node *node)
{
    struct hold *hold;
    LIST_FOREACH(hold, &node->holds, link) {
        bool undecided = hold->kind == BACKEND_PROVISIONAL && !hold->owner && request_is_foreign(r);
        if (hold->kind > BACKEND_LEASE && !hold->sequence) {
            break;
        }
        if (hold_makes_name(hold) &&
            (hold_is_owned_by(hold, request_caller(r)) || (undecided && hold->uid == request_uid(r)))) {
            return hold;
        }
    }
    return handle_find_owned(r->fs, node, request_caller(r));
}

/* This process's hold on the name, or its ticket in a directory's queue.  The name may have another node by now. */
static struct hold *content_hold_of(struct request *r)
{
    struct hold *own = content_hold_of_node(r, r->node);
    return own ? own : content_hold_of_node(r, tree_current_node(r->fs->tree, r->node));
}

/* Utimes by path does not keep the handle open: look again. */
static void content_dated_again(struct request *r)
{
    struct handle *h = r->result == BACKEND_OK ? content_handle_of(r) : NULL;
    if (h) {
        handle_set_hold(h, r->hold);
    } else if (r->result == BACKEND_OK) {
        r->hold->closed = true;
    }
    content_dated(r);
}

static void content_date_idle(struct request *r)
{
    struct handle *h = content_handle_of(r);
    if (!h || h->record->spent) {
        request_reply(r, -ESTALE);
    } else if (h->record->locking) {
        content_reply_dated(r); /* it must not acquire, and the store is not asked */
    } else {
        hold_acquire(r, handle_new_hold(r->fs, h, BACKEND_LEASE), NULL, content_dated_again);
    }
}

void content_set_times(struct request *r)
{
    struct hold *own = content_hold_of(r);
    if (!own && content_times_are_lost(r)) {
        request_reply(r, -ESTALE);
    } else if (own && own->converting) {
        hold_await_outcome(r, own, content_set_times);
    } else if (own && own->kind == BACKEND_PROVISIONAL) {
        r->hold = own;
        hold_make_lease(r, NULL, content_dated);
    } else if (own) {
        if (own->kind == BACKEND_LEASE) {
            hold_renew(r->fs, own);
        }
        content_store_times(r, own);
    } else if (content_is_held(r)) {
        request_reply(r, -EBUSY);
    } else {
        content_date_idle(r);
    }
}
