/* inherit: what the daemon before has left; see inherit.h. */
#include "fs/hold/inherit.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/stat.h>

#include "backend/log.h"
#include "fs/hold/handle.h"
#include "fs/kernel/intent.h"
#include "fs/kernel/notify.h"
#include "fs/kernel/tree.h"

struct inheritance {
    GHashTable *locking;   /* numbers of the handles on which a request wants a lock, or has opened */
    GHashTable *unlocking; /* or ends one */
    GHashTable *renaming;  /* numbers of the nodes that a request renames: it decides what their handles have */
    GPtrArray *released;   /* holds, counted: no handle has them */
    bool settled;          /* what is found from now on comes late: */
    ev_timer late;         /* then it runs while there are such holds */
    GPtrArray *claims;     /* struct inherit_claim */
};

/* To get a provisional hold again. */
struct inherit_claim {
    struct fs *fs;
    struct hold *hold; /* counted */
};

static void inherit_free_claim(gpointer data)
{
    struct inherit_claim *claim = data;
    if (claim->hold) {
        hold_unref(claim->fs, claim->hold);
    }
    g_free(claim);
}

/* --- requests in flight ------------------------------------------------------------ */

static void inherit_note_request(struct keep_request *slot, void *arg)
{
    struct fs *fs = arg;
    const struct fuse_in_header *message = keep_request_message(fs->keep, slot);
    const struct fuse_lk_in *lock = (const void *)(message + 1); /* each of these begins with the file's number */
    const struct intent *intent = (const void *)slot->intent;
    bool locks = message->opcode == FUSE_SETLK || message->opcode == FUSE_SETLKW;
    bool closes = message->opcode == FUSE_FLUSH || message->opcode == FUSE_RELEASE;
    if (intent->handle) {
        g_hash_table_add(fs->inheritance->locking, g_memdup2(&intent->handle, sizeof intent->handle));
    }
    if (intent->node) {
        g_hash_table_add(fs->inheritance->renaming, g_memdup2(&intent->node, sizeof intent->node));
    }
    if (locks && message->len >= sizeof *message + sizeof *lock) {
        GHashTable *handles = lock->lk.type == F_UNLCK ? fs->inheritance->unlocking : fs->inheritance->locking;
        g_hash_table_add(handles, g_memdup2(&lock->fh, sizeof lock->fh));
    } else if (closes && message->len >= sizeof *message + sizeof lock->fh) {
        g_hash_table_add(fs->inheritance->unlocking, g_memdup2(&lock->fh, sizeof lock->fh));
    }
}

static bool inherit_is_locking(const struct fs *fs, const struct handle *h)
{
    return g_hash_table_contains(fs->inheritance->locking, &h->id);
}

static bool inherit_is_unlocking(const struct fs *fs, const struct handle *h)
{
    return g_hash_table_contains(fs->inheritance->unlocking, &h->id);
}

/* --- handles ------------------------------------------------------------------------ */

static void inherit_release(struct fs *fs)
{
    for (guint i = 0; i < fs->inheritance->released->len; i++) {
        struct hold *hold = g_ptr_array_index(fs->inheritance->released, i);
        if (hold->ticket) {
            hold_release(fs, hold, NULL, NULL);
        }
        hold_unref(fs, hold);
    }
    g_ptr_array_set_size(fs->inheritance->released, 0);
}

static void inherit_on_late(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    inherit_release(timer->data);
}

void inherit_handles(struct fs *fs)
{
    struct keep_table *table = keep_table(fs->keep, KEEP_HANDLES);
    struct handle_record *record, *next;
    fs->inheritance = g_new0(struct inheritance, 1);
    fs->inheritance->locking = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    fs->inheritance->unlocking = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    fs->inheritance->renaming = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    fs->inheritance->released = g_ptr_array_new();
    fs->inheritance->claims = g_ptr_array_new_with_free_func(inherit_free_claim);
    ev_timer_init(&fs->inheritance->late, inherit_on_late, 0, 0);
    fs->inheritance->late.data = fs;
    keep_requests_pending(fs->keep, inherit_note_request, fs);
    for (record = keep_record_next(table, NULL); record; record = next) {
        next = keep_record_next(table, record);
        struct node *node = tree_node(fs->tree, record->node);
        if (node && !node->directory) {
            struct owner *opener =
                record->opener_pid ? owner_restore(fs->owners, record->opener_pid, record->opener_start, NULL) : NULL;
            handle_attach(fs, node, opener, record);
            owner_unref(opener);
        } else {
            keep_record_free(table, record);
        }
    }
}

/* --- locks -------------------------------------------------------------------------- */

/* Did the handle have this lock, or was it about to get or to release it? */
static bool inherit_may_have(const struct fs *fs, const struct handle *h, const struct hold *hold)
{
    bool records = hold->kind == BACKEND_FCNTL, requested = inherit_is_locking(fs, h) || inherit_is_unlocking(fs, h);
    return h->record->fence == hold->ticket->fence || (records && h->record->locked) ||
           ((records || !h->record->fence) && requested);
}

/* A lease, or a ticket, belongs to each handle that names its fencing token. */
static void inherit_by_fence(struct hold *hold)
{
    struct handle *h;
    bool open = false, closing = true;
    LIST_FOREACH(h, &hold->node->handles, link) {
        if (h->record->fence == hold->ticket->fence) {
            handle_set_hold(h, hold);
            open = true;
            closing = closing && h->record->closing;
        }
    }
    hold->closed = !open || closing;
}

static void inherit_join(struct fs *fs, struct handle *h, struct hold *hold, const struct meta *meta)
{
    hold_set_handle_owner(hold, hold->owner, h->opener);
    hold->owner_final = true;
    backend_identify(fs->backend, hold->ticket,
                     (struct backend_identity){.handle = handle_identity(fs, h), .lock_owner = meta->lock_owner});
    if (hold->kind == BACKEND_FCNTL) {
        hold_set_lock_owner(fs, hold, meta->lock_owner);
        handle_add_records(h, hold);
    } else {
        handle_set_hold(h, hold);
        hold_extra(hold)->handle = hold->sequence ? NULL : h;
    }
}

bool inherit_lock(struct fs *fs, struct hold *hold, const struct meta *meta)
{
    if (hold->kind == BACKEND_LEASE || hold->sequence) {
        inherit_by_fence(hold);
    }
    if (hold->kind == BACKEND_LEASE) {
        return true;
    }
    bool ours = meta->nonce == keep_nonce(fs->keep);
    bool waited = !ours && hold->sequence && !hold->ticket->held; /* its wait has ended with its daemon */
    struct handle *h = ours ? handle_find(fs, meta->handle) : NULL;
    if (h && inherit_may_have(fs, h, hold)) {
        inherit_join(fs, h, hold, meta);
    } else if (ours || waited) {
        g_ptr_array_add(fs->inheritance->released, hold_ref(hold));
        if (fs->inheritance->settled) {
            ev_timer_start(fs->loop, &fs->inheritance->late);
        }
    }
    return ours || waited;
}

/* --- settling ----------------------------------------------------------------------- */

static bool inherit_is_converted(const struct handle *h)
{
    const struct hold *hold;
    LIST_FOREACH(hold, &h->node->holds, link) {
        if (hold->ticket && hold->ticket->fence == h->record->fence) {
            return true; /* to a lock of another handle */
        }
    }
    return false;
}

/* Its lock ended while no daemon ran. */
static void inherit_lose(struct handle *h)
{
    char path[TREE_PATH_MAX], escaped[NAME_BYTES_MAX];
    if (tree_path(h->node, path, sizeof path)) {
        log_warning("%s: the lock of process %d is lost: it ended in the store while no daemon ran",
                    log_escape(escaped, sizeof escaped, path), h->record->opener_pid);
    }
    h->record->spent = h->record->lost = true;
}

static void inherit_settle_handle(struct fs *fs, struct handle *h)
{
    if (g_hash_table_contains(fs->inheritance->renaming, &h->record->node)) {
        return;
    }
    bool fence_gone = h->record->fence && !h->hold && !h->record->provisional && !inherit_is_converted(h);
    bool records_gone = h->record->locked && !(h->records && h->records->len);
    if ((fence_gone || records_gone) && !inherit_is_unlocking(fs, h)) {
        inherit_lose(h);
    }
    h->record->locked = h->record->locked && !records_gone;
    if (!h->hold && !h->record->provisional) {
        handle_set_hold(h, NULL);
    }
}

static void inherit_reacquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                               const struct backend_info *holder)
{
    struct inherit_claim *claim = arg;
    struct fs *fs = claim->fs;
    struct hold *hold = claim->hold;
    struct handle *h;
    (void)holder;
    if (result == BACKEND_OK) {
        hold_mark_granted(fs, hold, ticket);
    }
    LIST_FOREACH(h, &hold->node->handles, link) {
        if (h->record->provisional && !h->hold) {
            handle_set_hold(h, result == BACKEND_OK ? hold : NULL);
        }
    }
    if (result == BACKEND_OK) {
        hold_resume_parked(fs, hold);
    } else if (result != BACKEND_QUEUED) {
        hold->ticket = NULL;
        hold_free(fs, hold);
    }
    hold_unref(fs, hold);
    claim->hold = NULL;
}

/* Of a handle whose use is not decided yet: it gets its second once more, if nobody has the name. */
static void inherit_reacquire(struct fs *fs, struct handle *h)
{
    char path[TREE_PATH_MAX];
    struct backend_claim wish;
    if (h->hold || !h->record->provisional || hold_find_first(h->node) || hold_find_lease(h->node) ||
        !tree_path(h->node, path, sizeof path)) {
        return;
    }
    struct inherit_claim *claim = g_new(struct inherit_claim, 1);
    struct hold *hold = handle_new_hold(fs, h, BACKEND_PROVISIONAL);
    *claim = (struct inherit_claim){.fs = fs, .hold = hold_ref(hold)};
    g_ptr_array_add(fs->inheritance->claims, claim);
    hold->closed = h->record->closing;
    hold_fill_claim(fs, hold, BACKEND_PROVISIONAL, NULL, 0, &wish);
    struct backend_ticket *pending = backend_acquire(fs->backend, path, &wish, inherit_reacquired, claim);
    if (pending && claim->hold) {
        hold->ticket = pending;
    }
    g_bytes_unref(wish.meta);
}

void inherit_settle(struct fs *fs)
{
    struct handle *h;
    inherit_release(fs);
    fs->inheritance->settled = true;
    LIST_FOREACH(h, &fs->handles, all) {
        inherit_settle_handle(fs, h);
    }
    LIST_FOREACH(h, &fs->handles, all) {
        inherit_reacquire(fs, h);
    }
}

static void inherit_note_sent(void *arg, const struct notify_record *record, uint64_t number)
{
    struct fs *fs = arg;
    struct node *node = tree_node(fs->tree, record->child);
    if (node) {
        struct node_past *past = tree_ensure_past(node);
        past->deleted = record->parent ? number : past->deleted;
        past->expired = record->kept || !record->parent ? number : past->expired;
    }
}

void inherit_notify(struct fs *fs)
{
    struct handle *h;
    notify_repeat(fs->notify, inherit_note_sent, fs);
    LIST_FOREACH(h, &fs->handles, all) {
        notify_poll(fs->notify, &h->record->poll);
    }
}

void inherit_stop(struct fs *fs)
{
    if (fs->inheritance) {
        ev_timer_stop(fs->loop, &fs->inheritance->late);
        g_hash_table_destroy(fs->inheritance->locking);
        g_hash_table_destroy(fs->inheritance->unlocking);
        g_hash_table_destroy(fs->inheritance->renaming);
        for (guint i = 0; i < fs->inheritance->released->len; i++) {
            hold_unref(fs, g_ptr_array_index(fs->inheritance->released, i));
        }
        g_ptr_array_free(fs->inheritance->released, TRUE);
        g_ptr_array_free(fs->inheritance->claims, TRUE);
        g_clear_pointer(&fs->inheritance, g_free);
    }
}
