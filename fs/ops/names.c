/* names: looking names up, making, moving and removing them; see names.h. */
#include "fs/ops/names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/system.h"
#include "fs/hold/entry.h"
#include "fs/hold/hold.h"
#include "fs/hold/meta.h"
#include "fs/hold/quota.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"
#include "fs/ops/directory.h"
#include "fs/ops/file.h"
#include "fs/ops/opening.h"
#include "fs/ops/sequence.h"

/* --- looking up ---------------------------------------------------------------- */

static void names_reply_missing(struct request *r, bool has_node)
{
    struct fuse_entry_param entry;
    entry_fill_missing(r->fs, has_node, r->name, &entry);
    openings_note_lookup(r->fs->openings, fuse_req_ctx(r->req)->pid, NULL);
    if (entry.entry_timeout > 0) {
        request_reply_entry(r, &entry);
    } else {
        request_reply(r, -ENOENT);
    }
}

static void names_reply_node(struct request *r)
{
    struct fuse_entry_param entry;
    openings_note_lookup(r->fs->openings, fuse_req_ctx(r->req)->pid, r->node);
    entry_fill(r->fs, r->node, &entry);
    if (sequence_is_prefix(r->name)) {
        entry.entry_timeout = 0; /* the ticket that was made has another name */
    }
    request_reply_entry(r, &entry);
}

/* The node of a name that this mount holds; it may have been taken by a node of
 * another type meanwhile.  False if the mount does not hold it. */
static bool names_take_held(struct request *r, struct node *node, const struct backend_info *info)
{
    struct hold *hold = info && info->ticket ? info->ticket->user : NULL;
    if (hold) {
        hold_attach_name(r->fs, hold, hold->kind);
        node = hold->node;
    } else if (!node || !hold_find_first(node)) {
        return false;
    }
    r->node = tree_ref(node);
    return true;
}

static void names_reply_elsewhere(struct request *r, struct node *there, const struct backend_info *info)
{
    char path[TREE_PATH_MAX];
    struct fuse_entry_param entry;
    struct meta meta = {.mode = S_IFREG};
    meta_decode(info->meta, &meta);
    if (there && entry_has_outlived(there, info)) {
        tree_detach(r->fs->tree, there); /* who has that open sees another file */
        there = NULL;
    }
    r->node = tree_get(r->fs->tree, there, r->other, r->name, S_ISLNK(meta.mode) ? S_IFLNK : S_IFREG);
    openings_note_lookup(r->fs->openings, fuse_req_ctx(r->req)->pid, r->node);
    entry_fill_elsewhere(r->fs, r->node, info, &entry);
    if (tree_path(r->node, path, sizeof path)) {
        backend_watch(r->fs->backend, path); /* for inotify(7) */
    }
    request_reply_entry(r, &entry);
}

/* A server that has lost its data gets a directory again with the locks that are restored in it. */
static bool names_is_put_back(const struct node *node)
{
    return node && node->directory && hold_exists_at(node);
}

/* The name existed until another mount released it. */
static void names_forget(struct request *r, struct node *node)
{
    char path[TREE_PATH_MAX];
    if (names_is_put_back(node)) {
        return;
    }
    if (node && node->directory) {
        if (tree_path(node, path, sizeof path)) {
            quota_drop_directory(r->fs->quota, path);
        }
        tree_detach(r->fs->tree, node);
    } else if (node && node->record->visible && !hold_exists_at(node)) {
        hold_notify_gone(r->fs, node);
    }
}

/* The backend does not answer: only names that this mount holds surely exist. */
static void names_reply_unknown(struct request *r, struct node *node)
{
    if (node && hold_exists_at(node)) {
        r->node = tree_ref(node);
        names_reply_node(r);
    } else {
        request_reply(r, -EIO);
    }
}

static void names_looked_up(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    struct node *node = tree_find(r->fs->tree, r->other, r->name);
    if (result != BACKEND_OK) {
        names_reply_unknown(r, node);
    } else if (names_take_held(r, node, info)) {
        names_reply_node(r);
    } else if (info->type == BACKEND_NOTHING && names_is_put_back(node)) {
        r->node = tree_ref(node);
        names_reply_node(r);
    } else if (info->type == BACKEND_NOTHING) {
        names_forget(r, node);
        names_reply_missing(r, (node && node->record->hashed) ||
                                   tree_next_displaced(r->fs->tree, r->other, r->name, &(unsigned){0}));
    } else if (info->type == BACKEND_DIRECTORY) {
        r->node = tree_get(r->fs->tree, node, r->other, r->name, S_IFDIR);
        directory_load(r->node, &info->directory);
        names_reply_node(r);
    } else {
        names_reply_elsewhere(r, node, info);
    }
}

/* The kernel does not look up the top directory or a working directory.  Their settings may be those of another mount,
 * so a look-up of a name in them reads the settings first, unless they were read within a second. */
static bool names_directory_is_old(const struct request *r)
{
    return !(r->fs->backend->features & BACKEND_SOLE_AUTHORITY) && clock_now() - r->other->directory->loaded >= SECOND;
}

static void names_directory_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    bool unchanged = r->other->directory->loaded == r->attributes.stat_time; /* this mount has not set them meanwhile */
    if (result == BACKEND_OK && info->type == BACKEND_DIRECTORY && unchanged) {
        directory_load(r->other, &info->directory);
    }
    request_stat_in(r, names_looked_up);
}

static void names_lookup_in_old(struct request *r)
{
    char path[TREE_PATH_MAX];
    r->attributes.stat_time = r->other->directory->loaded = clock_now();
    if (tree_path(r->other, path, sizeof path)) {
        backend_stat(r->fs->backend, path, names_directory_known, r);
    } else {
        request_stat_in(r, names_looked_up);
    }
}

void names_lookup(struct request *r)
{
    if (sequence_is_prefix(r->name)) {
        names_reply_missing(r, false); /* always free: the next one is another file */
    } else if (names_take_held(r, tree_find(r->fs->tree, r->other, r->name), NULL)) {
        survivors_check(r->fs, r->node);
        names_reply_node(r);
    } else if (names_directory_is_old(r)) {
        names_lookup_in_old(r);
    } else {
        request_stat_in(r, names_looked_up);
    }
}

/* --- removing ------------------------------------------------------------------- */

static void names_add_releasable(struct request *r, const struct node *node, GPtrArray *holds)
{
    struct hold *hold;
    LIST_FOREACH(hold, &node->holds, link) {
        bool meant = !request_begun_before(r) || (hold->ticket && hold->ticket->fence <= r->before->fence);
        if (meant && hold_makes_name(hold) && hold_allows_change(r->fs, hold, request_caller(r), request_uid(r))) {
            g_ptr_array_add(holds, hold_ref(hold));
        }
    }
}

static void names_released(void *arg, enum backend_result result)
{
    struct request *r = arg;
    if (r->result == BACKEND_STALE || (r->result == BACKEND_OK && result != BACKEND_STALE)) {
        r->result = result; /* a ticket that had already ended is gone, as the caller wishes */
    }
    if (--r->releases == 0) {
        request_done(r, r->result);
    }
}

/* Releases what this caller may release of the name now, not what is granted meanwhile.  False: there is nothing. */
static bool names_release(struct request *r)
{
    struct fs *fs = r->fs;
    struct node *node = tree_find(fs->tree, r->other, r->name);
    GPtrArray *holds = g_ptr_array_new();
    if (node) {
        names_add_releasable(r, node, holds);
    }
    for (unsigned at = 0; (node = tree_next_displaced(fs->tree, r->other, r->name, &at));) {
        names_add_releasable(r, node, holds);
    }
    guint count = holds->len;
    struct intent *intent = request_intent(r);
    for (guint i = 0; i < count; i++) {
        const struct hold *hold = holds->pdata[i];
        intent->fence = MAX(intent->fence, hold->ticket ? hold->ticket->fence : 0);
    }
    KEEP_STORE(intent->begun, count > 0 || request_begun_before(r));
    r->result = BACKEND_STALE;
    r->releases = count;
    for (guint i = 0; i < count; i++) { /* the last one may answer the request */
        struct hold *hold = holds->pdata[i];
        hold->node->record->visible = false; /* the kernel drops the name itself */
        hold_spend_handles(fs, hold, false);
        hold_release(fs, hold, names_released, r);
        hold_unref(fs, hold);
    }
    g_ptr_array_free(holds, TRUE);
    return count > 0;
}

/* A lease of the name that this caller may release, but whose claim has no answer yet: its process must not get an
 * error; or NULL. */
static struct hold *names_find_unanswered(struct request *r)
{
    struct node *node = tree_find(r->fs->tree, r->other, r->name);
    struct hold *lease = node ? hold_find_lease(node) : NULL;
    bool unanswered = lease && !lease->since && !lease->sequence && hold_makes_name(lease);
    return unanswered && hold_allows_change(r->fs, lease, request_caller(r), request_uid(r)) ? lease : NULL;
}

/* False: there is nothing to release. */
static bool names_release_granted(struct request *r)
{
    struct hold *unanswered = request_begun_before(r) ? NULL : names_find_unanswered(r);
    if (unanswered) {
        hold_await_outcome(r, unanswered, names_unlink);
    }
    return unanswered || names_release(r);
}

static void names_unlink_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    if (names_release_granted(r)) { /* meanwhile */
        return;
    }
    struct node *node = tree_find(r->fs->tree, r->other, r->name);
    if (result != BACKEND_OK) {
        request_reply(r, -ENOLCK);
    } else if (info->type == BACKEND_NOTHING &&
               !(node && hold_find_first(node))) { /* the answer may be older than a grant */
        names_forget(r, node);
        request_reply(r, -ENOENT);
    } else {
        request_reply(r, info->type == BACKEND_DIRECTORY ? -EISDIR : -EPERM);
    }
}

void names_unlink(struct request *r)
{
    if (names_release_granted(r)) {
        return;
    }
    if (request_begun_before(r)) {
        request_reply(r, 0); /* an earlier daemon has released all that it meant */
    } else {
        request_stat_in(r, names_unlink_known);
    }
}

/* --- a lease at once ---------------------------------------------------------------- */

/* The request to make a name has its result. */
static void names_made(struct request *r)
{
    if (r->result == BACKEND_OK && r->creates) {
        entry_reply_open(r);
    } else if (r->result == BACKEND_OK) {
        names_reply_node(r);
    } else {
        bool exists = r->result == BACKEND_BUSY || r->result == BACKEND_IS_DIRECTORY;
        request_reply(r, exists ? -EEXIST : fs_error(r->result));
    }
}

static void names_acquired(struct request *r)
{
    if (r->result == BACKEND_OK) {
        r->hold->closed = !r->handle;
        if (r->handle) {
            handle_set_hold(r->handle, r->hold);
        }
    }
    names_made(r);
}

/* The lease of the name that this request acquired when an earlier daemon handled it, or NULL. */
static struct hold *names_find_made(struct request *r, const struct node *node)
{
    struct hold *lease = request_begun_before(r) && node ? hold_find_lease(node) : NULL;
    bool made = lease && lease->since && lease->kind == BACKEND_LEASE && lease->uid == request_uid(r) &&
                (request_caller(r) ? owner_is_same(lease->owner, request_caller(r)) : !lease->owner);
    return made ? lease : NULL;
}

/* Is the name taken, by another than this request? */
static bool names_is_taken(struct request *r, const struct node *there)
{
    return there && !names_find_made(r, there) && (there->directory || hold_find_first(there));
}

/* Of r->node, for a process that means to make it. */
static void names_acquire(struct request *r, mode_t mode, GBytes *content, request_step *answer)
{
    const struct fuse_ctx *context = fuse_req_ctx(r->req);
    struct hold *made = names_find_made(r, r->node);
    if (made) {
        r->hold = made;
        r->next_step = answer;
        request_resume(r, BACKEND_OK);
        return;
    }
    if (hold_find_first(r->node)) {
        request_reply(r, -EEXIST);
        return;
    }
    handle_warn_foreign(r);
    hold_acquire(r, hold_new(r->fs, r->node, BACKEND_LEASE, request_caller(r), context->uid, context->gid, mode),
                 content, answer);
}

/* --- links ------------------------------------------------------------------------ */

/* A lease by r->name, or a ticket, that nobody has opened. */
static void names_make(struct request *r, mode_t mode, GBytes *content)
{
    struct node *there = tree_find(r->fs->tree, r->other, r->name);
    if (sequence_is_prefix(r->name)) {
        r->node = tree_make(r->fs->tree, r->other, r->name, mode & S_IFMT);
        sequence_create(r, mode, content, names_made);
    } else if (names_is_taken(r, there)) {
        request_reply(r, -EEXIST);
    } else {
        r->node = tree_get(r->fs->tree, there, r->other, r->name, mode & S_IFMT);
        names_acquire(r, mode, content, names_acquired);
    }
}

void names_symlink(struct request *r, const char *target)
{
    g_autoptr(GBytes) content = g_bytes_new(target, strlen(target));
    names_make(r, S_IFLNK | 0777, content);
}

static void names_readlink_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    gsize size;
    const char *data = result == BACKEND_OK && info->content ? g_bytes_get_data(info->content, &size) : NULL;
    if (!data) { /* another lock has the name by now, and nothing in it */
        request_reply(r, result != BACKEND_OK ? -EIO : -ESTALE);
        return;
    }
    char *target = g_strndup(data, size);
    request_reply_readlink(r, target);
    g_free(target);
}

void names_readlink(struct request *r)
{
    request_stat(r, names_readlink_known);
}

static void names_linked(struct request *r)
{
    if (r->result == BACKEND_OK && r->node->record->ino != r->other->record->ino) {
        tree_link(r->fs->tree, r->node, r->other);
    }
    names_acquired(r);
}

static void names_link_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    if (result == BACKEND_OK && info->type == BACKEND_LOCK && !info->ticket) {
        request_reply(r, -EPERM); /* another mount's */
    } else if (result == BACKEND_OK && info->type == BACKEND_LOCK) {
        struct hold *hold = info->ticket->user; /* whose content it is */
        if (hold_allows_change(r->fs, hold, request_caller(r), request_uid(r))) {
            names_acquire(r, hold->mode, info->content, names_linked);
        } else {
            request_reply(r, -EPERM); /* to the user both names would be one file */
        }
    } else {
        request_reply(r, result == BACKEND_OK ? -ESTALE : -EIO);
    }
}

/* r->node is the file that gets another name. */
static void names_try_link(struct request *r)
{
    char path[TREE_PATH_MAX];
    struct node *other = r->node, *directory = r->other, *there = tree_find(r->fs->tree, directory, r->name);
    struct hold *hold = hold_find_first(other);
    if (sequence_is_prefix(r->name)) {
        request_reply(r, -EPERM); /* a ticket is made, not linked */
    } else if (hold && !hold_allows_change(r->fs, hold, request_caller(r), request_uid(r))) {
        request_reply(r, -EPERM);
    } else if (names_is_taken(r, there)) {
        request_reply(r, -EEXIST);
    } else if (hold && hold->renaming) {
        hold_await_outcome(r, hold, names_try_link);
    } else if (!tree_path(other, path, sizeof path)) {
        request_reply(r, -ENAMETOOLONG);
    } else {
        r->node = tree_get(r->fs->tree, there, directory, r->name, other->record->mode & S_IFMT);
        r->other = other;
        tree_unref(r->fs->tree, directory);
        backend_stat(r->fs->backend, path, names_link_known, r);
    }
}

void names_link(struct request *r, struct node *other)
{
    r->node = tree_ref(other);
    names_try_link(r);
}

/* --- moving ------------------------------------------------------------------------- */

/* Other processes that have opened the name may wait for it, or lock it later, by that name: they cannot learn that
 * their file has another name now. */
static bool names_is_opened_by_others(struct hold *hold)
{
    struct handle *h;
    LIST_FOREACH(h, &hold->node->handles, link) {
        if (h->hold != hold && !h->record->by_descendant && !hold_is_owned_by(hold, h->opener)) {
            return true;
        }
    }
    return LIST_NEXT(LIST_FIRST(&hold->node->holds), link) || !LIST_EMPTY(&hold->node->waiting);
}

/* The caller's own lease of the new name, provisional or not, which the rename replaces.  NULL: only the store knows
 * whether the name is free. */
static struct hold *names_replaceable(struct request *r, const struct node *there)
{
    struct hold *hold = there ? hold_find_lease(there) : NULL;
    bool is = hold && hold->since && !hold->sequence && hold->ticket && hold_is_owned_by(hold, request_caller(r));
    return is ? hold : NULL;
}

/* The rename may have raised the token: who has the lock, or reads it, goes on under the new one. */
static void names_set_token(const struct node *node, uint64_t before, struct hold *hold)
{
    struct handle *h;
    LIST_FOREACH(h, &node->handles, link) {
        if (h->record->found == before) {
            h->record->found = hold->ticket->fence;
        }
        if (h->record->fence == before) {
            handle_set_hold(h, hold);
        }
    }
}

static void names_move(struct request *r, struct hold *hold)
{
    hold_count_in_directories(hold, false);
    hold_rename_node(r->fs, r->node, r->other, r->name);
    hold_count_in_directories(hold, true);
    names_set_token(r->node, r->rename.fence, hold);
    openings_note_rename(r->fs->openings, r->node);
}

static void names_renamed(void *arg, enum backend_result result)
{
    struct request *r = arg;
    struct fs *fs = r->fs;
    struct hold *hold = r->hold, *replaced = r->rename.replaced;
    bool taken = result == BACKEND_BUSY && r->file.flags & RENAME_NOREPLACE;
    if (result == BACKEND_OK && hold->ticket) {
        names_move(r, hold);
        hold_adopt(fs, hold, request_caller(r));
    } else if (result == BACKEND_OK) {
        result = BACKEND_STALE; /* it ended meanwhile */
    }
    if (result == BACKEND_OK && replaced && replaced->ticket) {
        replaced->node->record->visible = false; /* the kernel drops the name itself */
        hold_spend_handles(fs, replaced, false);
        hold_release(fs, replaced, NULL, NULL);
    }
    request_reply(r, taken ? -EEXIST : fs_error(result));
    hold->renaming = false;
    hold_unpin(fs, hold);
    hold_unpin(fs, replaced);
}

/* Why the caller cannot move it: 0 or a negated errno.  Whoever may unlink it may: it keeps its owner, its deadline and
 * its content, so also of a dead process's lease nothing is taken over. */
static int names_source_error(struct request *r, struct hold *hold)
{
    if (!hold || hold->sequence || hold->kind != BACKEND_LEASE ||
        !hold_allows_change(r->fs, hold, request_caller(r), request_uid(r))) {
        return -EPERM;
    }
    bool opened =
        names_is_opened_by_others(hold) || openings_is_expected(r->fs->openings, r->node->parent, tree_name(r->node));
    return opened ? -EBUSY : 0;
}

/* Why the rename is refused although it would replace the caller's own lease. */
static int names_target_error(const struct request *r, const struct node *there, bool gives_way)
{
    bool held = there && hold_find_first(there);
    if (held && r->file.flags & RENAME_NOREPLACE) {
        return -EEXIST;
    }
    return (held && !gives_way) || openings_is_expected(r->fs->openings, r->other, r->name) ? -EBUSY : 0;
}

/* An earlier daemon has renamed it in the store: here it has the new name from now on. */
static void names_note_renamed(struct request *r)
{
    struct fs *fs = r->fs;
    struct node *node = tree_node(fs->tree, r->before->node), *there = tree_find(fs->tree, r->other, r->name);
    struct hold *hold = there ? hold_find_lease(there) : NULL;
    if (node && hold && there != node) {
        hold_move(fs, hold, node);
    }
    if (node && there != node) {
        hold_rename_node(fs, node, r->other, r->name);
        openings_note_rename(fs->openings, node);
    }
    if (node && hold) {
        names_set_token(node, r->before->fence, hold);
    }
    request_reply(r, 0);
}

static void names_try_rename(struct request *r)
{
    char path[TREE_PATH_MAX];
    struct node *there = tree_find(r->fs->tree, r->other, r->name);
    struct hold *hold = r->node ? hold_find_lease(r->node) : NULL, *replaced = names_replaceable(r, there);
    bool undecided =
        hold && hold->kind == BACKEND_PROVISIONAL && hold_allows_change(r->fs, hold, request_caller(r), request_uid(r));
    if (hold && (hold->converting || !hold->since || undecided)) { /* perhaps closed already: RELEASE is on its way */
        hold_await_outcome(r, hold, names_try_rename);
        return;
    }
    int error = names_source_error(r, hold);
    if (!error && there != r->node) {
        error = names_target_error(r, there, replaced);
    }
    if (error || there == r->node) {
        request_reply(r, error);
    } else if (replaced && replaced->converting) {
        hold_await_outcome(r, replaced, names_try_rename);
    } else if (request_path_in(r, path)) {
        struct intent *intent = request_intent(r);
        intent->fence = hold->ticket->fence;
        intent->node = tree_id(r->fs->tree, r->node);
        KEEP_STORE(intent->begun, 1);
        r->hold = hold_pin(hold);
        hold->renaming = true;
        r->rename.replaced = hold_pin(replaced);
        r->rename.fence = hold->ticket->fence;
        backend_rename(r->fs->backend, hold->ticket, path, replaced ? replaced->ticket : NULL, names_renamed, r);
    }
}

static bool names_has_token(const struct node *node, uint64_t fence)
{
    const struct hold *lease = node ? hold_find_lease(node) : NULL;
    return lease && lease->ticket && lease->ticket->fence == fence;
}

void names_rename(struct request *r, struct node *from, const char *name, unsigned flags)
{
    struct node *node = tree_find(r->fs->tree, from, name);
    r->node = node ? tree_ref(node) : NULL;
    r->file.flags = (int)flags;
    if (flags & ~(unsigned)RENAME_NOREPLACE) {
        request_reply(r, -EINVAL);
    } else if (sequence_is_prefix(r->name)) {
        request_reply(r, -EPERM); /* a ticket is made, not moved */
    } else if (request_begun_before(r) && !names_has_token(node, r->before->fence)) {
        names_note_renamed(r);
    } else {
        names_try_rename(r);
    }
}

/* --- making --------------------------------------------------------------------------- */

static void names_create_ticket(struct request *r)
{
    struct node *made = r->before && r->before->node ? tree_node(r->fs->tree, r->before->node) : NULL;
    r->node = made ? tree_ref(made) : tree_make(r->fs->tree, r->other, r->name, S_IFREG);
    KEEP_STORE(request_intent(r)->node, tree_id(r->fs->tree, r->node));
    r->creates = true;
    if (handle_new(r)) {
        r->handle->record->ticket = true;
        sequence_create(r, r->mode, NULL, names_made);
    }
}

void names_create(struct request *r)
{
    if (sequence_is_prefix(r->name)) {
        names_create_ticket(r);
        return;
    }
    struct node *there = tree_find(r->fs->tree, r->other, r->name);
    if (there && !S_ISREG(there->record->mode) && (there->directory || hold_find_first(there))) {
        request_reply(r, r->file.flags & O_EXCL ? -EEXIST : -ESTALE);
        return;
    }
    struct hold *lease = there ? hold_find_lease(there) : NULL;
    if (lease && lease->renaming && !hold_is_owned_by(lease, request_caller(r))) { /* means the name after that */
        hold_await_outcome(r, lease, names_create);
        return;
    }
    r->node = tree_get(r->fs->tree, there, r->other, r->name, S_IFREG);
    r->creates = true;
    if (!handle_new(r)) {
        return;
    }
    if (r->file.flags & O_EXCL) {
        names_acquire(r, r->mode, NULL, names_acquired);
    } else {
        file_open(r);
    }
}

void names_mknod(struct request *r)
{
    if (S_ISREG(r->mode)) {
        names_make(r, r->mode, NULL);
    } else {
        request_reply(r, -EPERM); /* locks are files, not devices or pipes */
    }
}
