/* handle: an open file of the mount, and what it holds; see handle.h. */
#include "fs/hold/handle.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "backend/log.h"
#include "fs/hold/guard.h"
#include "fs/hold/quota.h"
#include "fs/hold/rights.h"
#include "fs/kernel/tree.h"

void handle_warn_foreign(struct request *r)
{
    if (request_is_foreign(r) && !r->fs->foreign) {
        r->fs->foreign = true;
        log_warning("%s", FS_FOREIGN_WARNING);
    }
}

struct handle *handle_find(struct fs *fs, uint64_t id)
{
    const struct handle_record *record = keep_record_find(keep_table(fs->keep, KEEP_HANDLES), id);
    return record ? record->handle : NULL;
}

static guint handle_hash(gconstpointer key)
{
    const struct handle *h = key;
    return g_direct_hash(h->node) * 31 + g_direct_hash(h->opener);
}

static gboolean handle_equal(gconstpointer a, gconstpointer b)
{
    const struct handle *x = a, *y = b;
    return x->node == y->node && x->opener == y->opener;
}

GHashTable *handle_table(void)
{
    return g_hash_table_new(handle_hash, handle_equal);
}

struct handle *handle_latest(struct fs *fs, const struct node *node, struct owner *opener)
{
    struct handle key = {.node = (struct node *)node, .opener = opener};
    return g_hash_table_lookup(fs->opened, &key);
}

static void handle_leave_opened(struct fs *fs, struct handle *h)
{
    if (h->older) {
        h->older->newer = h->newer;
    }
    if (h->newer) {
        h->newer->older = h->older;
    } else if (h->older) {
        g_hash_table_add(fs->opened, h->older);
    } else {
        g_hash_table_remove(fs->opened, h);
    }
}

struct handle *handle_attach(struct fs *fs, struct node *node, struct owner *opener, struct handle_record *record)
{
    struct handle *h = backend_new0(sizeof *h);
    h->node = tree_ref(node);
    h->opener = opener ? owner_ref(opener) : NULL;
    h->record = record;
    h->id = keep_record_number(keep_table(fs->keep, KEEP_HANDLES), record);
    record->handle = h;
    LIST_INSERT_HEAD(&node->handles, h, link);
    LIST_INSERT_HEAD(&fs->handles, h, all);
    h->older = handle_latest(fs, node, opener);
    if (h->older) {
        h->older->newer = h;
    }
    g_hash_table_add(fs->opened, h);
    return h;
}

/* For record->found: it was opened on a lock whose token is not known, the next that is seen. */
#define HANDLE_FOUND_UNKNOWN UINT64_MAX

/* 0: it was opened on a free name. */
static uint64_t handle_find_lock(const struct request *r)
{
    const struct hold *shown = hold_find_shown(r->node);
    uint64_t elsewhere = r->node->past ? r->node->past->fence : 0;
    if (shown && shown->ticket) {
        return shown->ticket->fence;
    }
    return elsewhere || r->creates ? elsewhere : HANDLE_FOUND_UNKNOWN;
}

/* The handle that an earlier daemon opened for this request, and that the kernel may know. */
static bool handle_open_again(struct request *r)
{
    struct handle *h = r->before && r->before->handle ? handle_find(r->fs, r->before->handle) : NULL;
    if (h && h->node != r->node) {
        handle_free(r->fs, h);
        h = NULL;
    }
    r->handle = h;
    return h != NULL;
}

bool handle_new(struct request *r)
{
    r->opens = true;
    r->refused = handle_on_error;
    if (handle_open_again(r)) {
        return true;
    }
    struct keep_table *table = keep_table(r->fs->keep, KEEP_HANDLES);
    struct owner *opener = request_caller(r);
    const struct fuse_ctx *context = fuse_req_ctx(r->req);
    uint64_t id;
    struct handle_record *record = keep_record_new(table, &id);
    if (!record) {
        r->opens = false;
        request_reply(r, -ENFILE);
        return false;
    }
    KEEP_STORE(request_intent(r)->handle, id);
    handle_warn_foreign(r);
    record->node = tree_id(r->fs->tree, r->node);
    record->opener_pid = opener ? owner_identity(opener, &record->opener_start) : 0;
    record->uid = context->uid;
    record->gid = context->gid;
    record->found = handle_find_lock(r);
    record->mode = (r->creates ? r->mode : r->fs->options->lock_mode) & RIGHTS_MODE;
    record->has_mode = r->creates || record->mode;
    record->writable = (r->file.flags & O_ACCMODE) != O_RDONLY;
    keep_record_commit(table, record);
    r->handle = handle_attach(r->fs, r->node, opener, record);
    return true;
}

mode_t handle_mode(struct handle *h)
{
    if (!h->record->has_mode) {
        h->record->mode = 0666 & ~(h->opener ? owner_umask(h->opener) : OWNER_UMASK_USUAL);
        h->record->has_mode = true;
    }
    return h->record->mode;
}

struct hold *handle_new_hold(struct fs *fs, struct handle *h, enum backend_kind kind)
{
    tree_attach(fs->tree, h->node); /* others that open the name find the claim */
    return hold_new(fs, h->node, kind, h->opener, h->record->uid, h->record->gid, S_IFREG | handle_mode(h));
}

/* A search for a process's lock on a name looks at so many of its files, or of the name's locks, the latest first. */
#define HANDLE_SEARCH_MAX 64

/* The one that has held longer; either may be NULL. */
static struct hold *handle_longer(struct hold *a, struct hold *b)
{
    if (!a || !b) {
        return a ? a : b;
    }
    bool first = a == hold_find_shown(a->node) || a->ticket->fence < b->ticket->fence;
    return first && b != hold_find_shown(b->node) ? a : b;
}

/* Of the locks on the node that are the handle's own, or its lock owners', the one that it has held longest; or NULL.
 */
static struct hold *handle_find_own(const struct node *node, const struct handle *h)
{
    struct hold *longest = h->hold && h->hold->node == node && hold_holds(h->hold) ? h->hold : NULL;
    for (guint i = 0; h->records && i < h->records->len; i++) {
        struct hold *hold = g_ptr_array_index(h->records, i);
        longest = hold->node == node && hold_holds(hold) ? handle_longer(longest, hold) : longest;
    }
    return longest;
}

struct hold *handle_find_owned(struct fs *fs, const struct node *node, struct owner *who)
{
    struct hold *hold;
    LIST_FOREACH(hold, &node->holds, link) {
        if (hold->kind > BACKEND_LEASE) {
            break;
        }
        if (hold_holds(hold) && hold_is_owned_by(hold, who)) {
            return hold;
        }
    }
    struct hold *longest = hold_find_shown(node);
    if (longest && hold_holds(longest) && hold_is_owned_by(longest, who)) {
        return longest;
    }
    longest = NULL;
    unsigned count = 0;
    for (const struct handle *h = handle_latest(fs, node, who); h && count < HANDLE_SEARCH_MAX; h = h->older, count++) {
        hold = handle_find_own(node, h);
        longest = hold && hold_is_owned_by(hold, who) ? handle_longer(longest, hold) : longest;
    }
    return longest;
}

/* The handle's own hold before those that its opener has through other handles. */
static struct hold *handle_find_hold_on(struct fs *fs, const struct node *node, const struct handle *h)
{
    struct hold *own = handle_find_own(node, h);
    return own ? own : handle_find_owned(fs, node, h->opener);
}

struct hold *handle_find_shown_to(struct fs *fs, const struct node *node, struct owner *caller)
{
    struct hold *hold, *found = handle_find_owned(fs, node, caller), *ancestors = NULL;
    unsigned count = 0;
    if (found) {
        return found;
    }
    LIST_FOREACH(hold, &node->holds, link) {
        if (count++ == HANDLE_SEARCH_MAX) {
            break;
        }
        if (hold_holds(hold) && hold_is_exclusive(hold)) {
            return hold;
        }
        struct owner *owner = ancestors || !hold_holds(hold) ? NULL : hold_update_owner(hold);
        ancestors = owner && caller && owner_descends(caller, owner) ? hold : ancestors;
    }
    return ancestors;
}

struct hold *handle_find_hold(struct fs *fs, const struct handle *h)
{
    struct hold *own = h->hold && h->hold->kind != BACKEND_FLOCK ? h->hold : handle_find_hold_on(fs, h->node, h);
    own = own ? own : h->hold;
    return own ? own : handle_find_hold_on(fs, tree_current_node(fs->tree, h->node), h);
}

bool handle_has_outlived(struct fs *fs, struct handle *h, const struct backend_info *info)
{
    const struct hold *shown = hold_find_shown(tree_current_node(fs->tree, h->node));
    uint64_t now = info->type == BACKEND_LOCK ? info->fence
                   : shown && shown->ticket   ? shown->ticket->fence /* a server that lost its data gets it again */
                                              : HANDLE_FOUND_UNKNOWN;
    if (!h->record->found || handle_find_hold(fs, h)) {
        return false;
    }
    if (h->record->found == HANDLE_FOUND_UNKNOWN && now != HANDLE_FOUND_UNKNOWN) {
        h->record->found = now;
    }
    return now == HANDLE_FOUND_UNKNOWN || now != h->record->found;
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

void handle_add_records(struct handle *h, struct hold *hold)
{
    h->records = h->records ? h->records : g_ptr_array_new();
    h->record->locked = true;
    if (!g_ptr_array_find(h->records, hold, NULL)) {
        g_ptr_array_add(h->records, hold);
        g_ptr_array_add(hold->extra->records->handles, h);
    }
}

void handle_take_records(struct fs *fs, struct handle *h, struct hold *hold)
{
    hold->released_all = false;
    quota_charge(fs->quota, hold->account, -1, 0);
    quota_charge(fs->quota, h->record->uid, 1, 0);
    hold->account = h->record->uid;
    hold->uid = h->record->uid;
    hold->gid = h->record->gid;
    hold->mode = (uint16_t)(S_IFREG | handle_mode(h));
    hold_store(fs, hold); /* the claim named it as it was then */
}

void handle_release_hold(struct request *r, struct hold *hold, backend_done *done)
{
    struct node *node = r->node;
    r->node = tree_ref(hold->node); /* the answer waits until that name is gone */
    tree_unref(r->fs->tree, node);
    hold_release(r->fs, hold, done, r);
}

void handle_release_lock_owner(struct request *r, uint64_t lock_owner, backend_done *done)
{
    struct hold *hold = hold_find_by_lock_owner(r->fs, r->node, lock_owner);
    if (hold && hold->ticket) {
        handle_release_hold(r, hold, done);
    } else {
        done(r, BACKEND_OK);
    }
}

static void handle_release_records(struct fs *fs, struct handle *h)
{
    while (h->records && h->records->len) {
        hold_release(fs, g_ptr_array_index(h->records, h->records->len - 1), NULL, NULL);
    }
}

/* --- ending ------------------------------------------------------------------ */

void handle_leave(struct handle *h)
{
    h->record->handle = NULL;
    h->record = g_memdup2(h->record, sizeof *h->record);
}

static void handle_discard(struct fs *fs, struct handle *h)
{
    LIST_REMOVE(h, link);
    handle_leave_opened(fs, h);
    LIST_REMOVE(h, all);
    if (h->records) {
        g_ptr_array_free(h->records, TRUE);
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
    if (hold && hold->kind != BACKEND_LEASE && !handle_shares_hold(h) && !handle_is_converting(h)) {
        hold_release(fs, hold, NULL, NULL);
    }
    handle_release_records(fs, h);
    guard_remove_handle(fs, h, true);
    struct handle_record *record = h->record;
    handle_discard(fs, h);
    keep_record_free(keep_table(fs->keep, KEEP_HANDLES), record);
}

void handle_free_left(struct fs *fs, struct handle *h)
{
    guard_remove_handle(fs, h, false);
    g_free(h->record);
    handle_discard(fs, h);
}

static void handle_note_refusal(struct handle *h, int error)
{
    if (!h->record->refused && error != -EPERM &&
        (!h->hold || handle_is_provisional(h))) { /* EPERM: its mode, not the lock */
        h->record->refused =
            error == -ESTALE && !h->hold ? -EBUSY : error; /* it has lost nothing: the name is another's */
    }
}

static void handle_note_refusals(struct request *r, int error)
{
    struct handle *h;
    bool through = r->operation == METRICS_WRITE || r->operation == METRICS_FLUSH || r->operation == METRICS_SETATTR;
    if (r->handle && through) {
        handle_note_refusal(r->handle, error);
    } else if (!r->handle && r->sets_times && request_caller(r)) {
        /* The kernel does not say through which descriptor they were set, if through any. */
        for (h = handle_latest(r->fs, r->node, request_caller(r)); h; h = h->older) {
            handle_note_refusal(h, error);
        }
    }
}

void handle_on_error(struct request *r, int error)
{
    if (r->opens) {
        handle_free(r->fs, r->handle);
    } else if (error != -EINTR) {
        handle_note_refusals(r, error);
    }
}
