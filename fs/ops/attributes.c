/* attributes: what stat(2) shows of a name, and what of it may be set; see
 * attributes.h. */
#include "fs/ops/attributes.h"

#include <errno.h>
#include <string.h>

#include "fs/hold/entry.h"
#include "fs/hold/handle.h"
#include "fs/hold/hold.h"
#include "fs/hold/meta.h"
#include "fs/hold/rights.h"
#include "fs/kernel/tree.h"
#include "fs/ops/content.h"
#include "fs/ops/directory.h"
#include "fs/ops/opening.h"

/* A handle of the process that asks, the latest, or NULL. */
static struct handle *attributes_own_handle(struct request *r)
{
    struct handle *h;
    for (h = handle_latest(r->fs, r->node, request_caller(r)); h; h = h->older) {
        if (h->opener || h->record->uid == request_uid(r)) {
            return h;
        }
    }
    return NULL;
}

/* Did the caller open it, or an ancestor, from which it may have the descriptor? */
static bool attributes_are_of_own_handle(struct request *r)
{
    struct handle *h;
    LIST_FOREACH(h, &r->node->handles, link) {
        if (h->opener && request_caller(r) && owner_descends(request_caller(r), h->opener)) {
            return true;
        }
    }
    return false;
}

static void attributes_reply(struct request *r)
{
    struct stat st;
    struct handle *h = r->node->directory || hold_find_shown(r->node) ? NULL : attributes_own_handle(r);
    entry_fill_attributes(r->fs, r->node, &st);
    if (h) { /* nobody holds it: each caller sees what its own handle would give a hold */
        st.st_uid = h->record->uid;
        st.st_gid = h->record->gid;
        st.st_mode = (r->node->record->mode & S_IFMT) | handle_mode(h);
    }
    request_reply_attr(r, &st, entry_attribute_timeout(r->fs, r->node));
}

/* --- asking ---------------------------------------------------------------- */

/* The caller's first try got ESTALE, and the kernel has looked the name up again, which it does once: so this shows
 * what it found then, even if that has ended as well. */
static bool attributes_were_looked_up(struct request *r)
{
    clock_ms when = r->attributes.stat_time ? r->attributes.stat_time : clock_now();
    return openings_check_look(r->fs->openings, fuse_req_ctx(r->req)->pid, r->node, when);
}

static void attributes_show(struct request *r);

/* Does this mount know the longest holder, because no other mount can hold the lock? */
static bool attributes_are_known(const struct request *r)
{
    const struct hold *hold = hold_find_first(r->node);
    return r->fs->backend->features & BACKEND_SOLE_AUTHORITY || (hold && (hold->sequence || hold_is_exclusive(hold)));
}

/* The node is not what the backend has under its name now: the kernel looks the
 * name up again. */
static bool attributes_are_of_another(const struct node *node, const struct backend_info *info)
{
    struct meta meta = {.mode = S_IFREG};
    if (info->type != BACKEND_LOCK) {
        return node->directory ? info->type != BACKEND_DIRECTORY : info->type == BACKEND_DIRECTORY;
    }
    meta_decode(info->meta, &meta);
    return node->directory || S_ISLNK(node->record->mode) != S_ISLNK(meta.mode);
}

/* Is it held here: under this node, or through a file of it while another node has the name? */
static bool attributes_are_of_hold(const struct node *node, const struct hold *hold)
{
    const struct handle *h;
    if (hold->node == node) {
        return true;
    }
    LIST_FOREACH(h, &node->handles, link) {
        if (hold_has_handle(hold, h)) {
            return true;
        }
    }
    return false;
}

static void attributes_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    struct node *node = r->node;
    const struct hold *first = hold_find_first(node);
    bool lock = result == BACKEND_OK && info->type == BACKEND_LOCK;
    struct hold *hold = lock && info->ticket ? info->ticket->user : NULL;
    hold = hold && attributes_are_of_hold(node, hold) ? hold : NULL; /* else the name is another node's */
    if (hold) {
        hold_mark_longest(hold);
    }
    if (result != BACKEND_OK) {
        if (hold_exists_at(node)) {
            r->next_step(r);
        } else {
            request_reply(r, -EIO);
        }
    } else if (hold || (first && (!lock || hold_is_exclusive(first)))) {
        r->next_step(r); /* ours, or ours meanwhile */
    } else if (node->directory && info->type == BACKEND_NOTHING && hold_exists_at(node)) {
        r->next_step(r); /* the server has forgotten it, and gets it again with a lock in it */
    } else if (node->directory && info->type == BACKEND_NOTHING) {
        request_reply(r, -ENOENT); /* also to who is in it */
    } else if (attributes_are_of_another(node, info)) {
        if (r->next_step == attributes_show && attributes_were_looked_up(r)) {
            attributes_reply(r);                      /* as what it was */
        } else if (attributes_are_of_own_handle(r)) { /* its open file, which is no directory and no link */
            r->attributes.elsewhere = lock && r->next_step != attributes_show ? info : NULL;
            r->next_step(r);
        } else {
            request_reply(r, -ESTALE);
        }
    } else if (lock && r->next_step == attributes_show &&
               (!node->record->hashed ||
                entry_has_outlived(node, info))) { /* its lock has ended, and another has the name */
        tree_detach(r->fs->tree, node);
        if (attributes_are_of_own_handle(r) || attributes_were_looked_up(r)) {
            attributes_reply(r);
        } else {
            request_reply(r, -ESTALE);
        }
    } else if (lock) {
        r->attributes.elsewhere = info;
        r->next_step(r);
    } else {
        if (node->directory) {
            directory_load(node, &info->directory);
        } else if (node->record->visible) {
            hold_notify_gone(r->fs, node);
        }
        r->next_step(r);
    }
}

/* Continues at once if this mount knows all; else r->attributes.elsewhere describes the lock of another mount. */
static void attributes_stat(struct request *r, request_step *answer)
{
    r->attributes.elsewhere = NULL;
    r->next_step = answer;
    r->attributes.stat_time = 0;
    if (attributes_are_known(r)) {
        answer(r);
    } else {
        if (openings_has_thread(r->fs->openings, fuse_req_ctx(r->req)->pid)) { /* else it does not matter */
            r->attributes.stat_time = clock_now();
        }
        request_stat(r, attributes_known);
    }
}

/* --- showing --------------------------------------------------------------- */

/* An inode whose lock has ended, that nobody has open, and that the kernel looks
 * at through a kept entry: ESTALE makes it look the name up again. */
static bool attributes_are_stale(const struct node *node)
{
    return !node->directory && LIST_EMPTY(&node->handles) && !hold_find_first(node) && LIST_EMPTY(&node->holds) &&
           LIST_EMPTY(&node->waiting);
}

/* For how long, in milliseconds, the kernel may still ask about a name that is gone. */
#define ATTRIBUTES_LEAVING 50

/* Did the name end just now, so that the kernel may not have dropped it yet?  A process
 * without an open handle must have used the name, not fstat(2). */
static bool attributes_just_ended(struct request *r)
{
    const struct node *node = r->node;
    return !node->directory && tree_ended_within(node, ATTRIBUTES_LEAVING) && LIST_EMPTY(&node->holds) &&
           LIST_EMPTY(&node->waiting) && !attributes_are_of_own_handle(r);
}

static void attributes_show_elsewhere(struct request *r)
{
    struct stat st;
    entry_fill_attributes_elsewhere(r->fs, r->node, r->attributes.elsewhere, &st);
    request_reply_attr(r, &st, 0);
}

static void attributes_show(struct request *r)
{
    if (r->attributes.elsewhere) {
        attributes_show_elsewhere(r);
        return;
    }
    bool gone = attributes_are_stale(r->node) || attributes_just_ended(r);
    if (gone && !attributes_were_looked_up(r)) {
        request_reply(r, -ESTALE);
    } else {
        attributes_reply(r);
    }
}

void attributes_get(struct request *r)
{
    if (!r->node->parent) {
        attributes_reply(r); /* the top directory is always there; its mode and owner are the mount's */
    } else {
        attributes_stat(r, attributes_show);
    }
}

/* --- setting ---------------------------------------------------------------- */

#define ATTRIBUTES_TIMES (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME)
#define ATTRIBUTES_OWNER (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)

static void attributes_stored(struct request *r)
{
    if (r->result == BACKEND_OK) {
        attributes_reply(r);
    } else {
        request_reply(r, fs_error(r->result));
    }
}

static void attributes_apply(const struct request *r, uint16_t *mode, mode_t settable, uid_t *uid, gid_t *gid)
{
    const struct stat *st = &r->attributes.stat;
    int set = r->attributes.set;
    if (set & FUSE_SET_ATTR_MODE) {
        *mode = (uint16_t)((*mode & S_IFMT) | (st->st_mode & settable));
    }
    if (set & FUSE_SET_ATTR_UID) {
        *uid = st->st_uid;
    }
    if (set & FUSE_SET_ATTR_GID) {
        *gid = st->st_gid;
    }
}

/* A change that the store refused is undone here; then the store's values replace the others, except the rights of the
 * top directory, which only this mount has. */
static void attributes_directory_stored(struct request *r)
{
    struct node *node = r->node;
    if (r->result != BACKEND_OK) {
        node->record->mode = (uint16_t)r->attributes.stat.st_mode;
        node->directory->uid = r->attributes.stat.st_uid;
        node->directory->gid = r->attributes.stat.st_gid;
        tree_set_changed(node, r->attributes.stat.st_mtim);
        directory_reload(r, attributes_stored);
    } else {
        attributes_stored(r);
    }
}

static void attributes_change_directory(struct request *r)
{
    struct node *node = r->node;
    if (node->parent && !node->record->hashed) {
        request_reply(r, -ESTALE); /* removed; by that name there may be another's */
        return;
    }
    if (r->attributes.set & ATTRIBUTES_OWNER && request_uid(r) != 0 && request_uid(r) != node->directory->uid) {
        request_reply(r, -EPERM); /* the kernel has looked at whose it was */
        return;
    }
    struct stat before = {.st_mode = node->record->mode,
                          .st_uid = node->directory->uid,
                          .st_gid = node->directory->gid,
                          .st_mtim = tree_changed(node)};
    attributes_apply(r, &node->record->mode, 07777, &node->directory->uid, &node->directory->gid);
    if (r->attributes.set & FUSE_SET_ATTR_MTIME_NOW) {
        tree_touch(node);
    } else if (r->attributes.set & FUSE_SET_ATTR_MTIME) {
        tree_set_changed(node, r->attributes.stat.st_mtim);
    }
    r->attributes.stat = before;
    directory_store(r, attributes_directory_stored);
}

/* How often a change continues with the next lock of its process when the changed one has ended. */
#define ATTRIBUTES_TRIES 8

static void attributes_change(struct request *r);

static bool attributes_have_another(struct request *r)
{
    struct hold *next = hold_find_shown(r->node);
    return next && hold_allows_change(r->fs, next, request_caller(r), request_uid(r)) && r->tries++ < ATTRIBUTES_TRIES;
}

/* A change that the store refused is undone here. */
static void attributes_changed(struct request *r)
{
    struct hold *hold = r->hold;
    struct stat before = r->attributes.stat, wanted = {.st_mode = hold->mode, .st_uid = hold->uid, .st_gid = hold->gid};
    if (r->result == BACKEND_OK) {
        attributes_reply(r);
        return;
    }
    hold->mode = (uint16_t)before.st_mode;
    hold->uid = before.st_uid;
    hold->gid = before.st_gid;
    if (r->result == BACKEND_STALE && attributes_have_another(r)) {
        r->attributes.stat = wanted;
        attributes_change(r);
    } else {
        request_reply(r, fs_error(r->result));
    }
}

/* While nobody holds the name, chmod changes the attributes that the caller's own handles give to a later lock.  Has
 * the caller's user such a handle? */
static bool attributes_are_of_own_user(struct request *r)
{
    struct handle *h;
    LIST_FOREACH(h, &r->node->handles, link) {
        if (h->record->uid == request_uid(r)) {
            return true;
        }
    }
    return request_uid(r) == 0;
}

/* Mode and owner of the caller's hold; without one, those that its handles give the next hold. */
static void attributes_change(struct request *r)
{
    struct hold *hold = hold_find_shown(r->node);
    struct handle *h = hold ? NULL : attributes_own_handle(r);
    if (hold ? !hold_allows_change(r->fs, hold, request_caller(r), request_uid(r)) : !attributes_are_of_own_user(r)) {
        request_reply(r, -EPERM);
        return;
    }
    if (hold) {
        struct stat before = {.st_mode = hold->mode, .st_uid = hold->uid, .st_gid = hold->gid};
        attributes_apply(r, &hold->mode, RIGHTS_MODE, &hold->uid, &hold->gid);
        r->attributes.stat = before;
        hold_store_for(r, hold, attributes_changed);
        return;
    }
    if (h) {
        handle_mode(h);
        attributes_apply(r, &h->record->mode, RIGHTS_MODE, &h->record->uid, &h->record->gid);
    }
    attributes_reply(r);
}

/* A time that is not set stays as it is shown. */
static void attributes_take_times(struct request *r)
{
    const struct stat *st = &r->attributes.stat;
    int set = r->attributes.set;
    bool access = set & FUSE_SET_ATTR_ATIME && !(set & FUSE_SET_ATTR_ATIME_NOW);
    bool modification = set & FUSE_SET_ATTR_MTIME && !(set & FUSE_SET_ATTR_MTIME_NOW);
    struct timespec now;
    struct stat shown = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    r->times.explicit_times = access || modification;
    if ((set & ATTRIBUTES_TIMES) != ATTRIBUTES_TIMES) {
        const struct hold *hold = hold_find_first(r->node);
        r->times.explicit_times = r->times.explicit_times || (hold && hold_times(hold));
        entry_fill_attributes(r->fs, r->node, &shown);
    }
    r->times.time[0] = access ? st->st_atim : set & FUSE_SET_ATTR_ATIME ? now : shown.st_atim;
    r->times.time[1] = modification ? st->st_mtim : set & FUSE_SET_ATTR_MTIME ? now : shown.st_mtim;
}

static void attributes_set_here(struct request *r)
{
    int set = r->attributes.set;
    if (attributes_are_stale(r->node)) {
        request_reply(r, attributes_were_looked_up(r) ? -ENOENT : -ESTALE);
    } else if (set & FUSE_SET_ATTR_SIZE) {
        content_truncate(r, r->attributes.stat.st_size);
    } else if (r->node->directory) {
        attributes_change_directory(r);
    } else if (set & ATTRIBUTES_OWNER) {
        attributes_change(r);
    } else if (set & ATTRIBUTES_TIMES) {
        attributes_take_times(r);
        content_set_times(r);
    } else {
        attributes_reply(r); /* ctime alone: the kernel's own bookkeeping */
    }
}

/* Another mount's lock is not changed here; the errors are those that another process on that mount gets. */
static void attributes_refuse(struct request *r)
{
    bool lost = r->handle ? r->handle->record->spent : content_times_are_lost(r);
    if (r->attributes.set & ATTRIBUTES_OWNER || (r->attributes.set & FUSE_SET_ATTR_SIZE && !r->handle)) {
        request_reply(r, -EPERM);
    } else if (hold_find_first(r->node)) {
        attributes_set_here(r); /* it shares a lock that another mount has held longer: changes its own */
    } else if (r->attributes.set & (FUSE_SET_ATTR_SIZE | ATTRIBUTES_TIMES)) {
        request_reply(r, lost ? -ESTALE : -EBUSY);
    } else {
        attributes_show_elsewhere(r);
    }
}

static void attributes_set_known(struct request *r)
{
    if (r->attributes.elsewhere) {
        attributes_refuse(r);
    } else {
        attributes_set_here(r);
    }
}

void attributes_set(struct request *r, const struct stat *st, int set)
{
    if (r->node->directory && set & ATTRIBUTES_TIMES && !directory_is_made_by_caller(r)) {
        request_reply(r, -EISDIR); /* `touch "DIRECTORY/$EMPTY"` must not succeed on every host */
        return;
    }
    r->attributes.stat = *st;
    r->attributes.set = set;
    r->sets_times = set & ATTRIBUTES_TIMES && !(set & (ATTRIBUTES_OWNER | FUSE_SET_ATTR_SIZE));
    if (r->sets_times) {
        request_caller(r); /* which can be asked for until it is answered */
        r->refused = handle_on_error;
    }
    attributes_stat(r, attributes_set_known);
}
