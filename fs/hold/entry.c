/* entry: a name's attributes for the kernel; see entry.h. */
#include "fs/hold/entry.h"

#include <ctype.h>
#include <string.h>

#include "fs/hold/handle.h"
#include "fs/hold/meta.h"
#include "fs/hold/rights.h"
#include "fs/kernel/tree.h"

/* How long the kernel may keep what only it can change. */
#define ENTRY_KEEP_SECONDS (24.0 * 3600)

/* For a new file, because the kernel checks the permissions of a file that it has just made.  One tick of the kernel's
 * clock, to which it would round a shorter time. */
#define ENTRY_MADE_SECONDS 0.001

/* And what a listing tells of a lease. */
#define ENTRY_LISTED_SECONDS 1.0

/* For so long, in milliseconds, whoever has found a name may be on the way to looking at it. */
#define ENTRY_LEAVING 1000

static void entry_set_rights(struct stat *st, uid_t uid, gid_t gid, mode_t mode)
{
    st->st_uid = uid;
    st->st_gid = gid;
    st->st_mode |= mode & RIGHTS_MODE;
}

/* The owner and mode of the hold.  If nothing is held: those of the last hold if it has just ended or no handle is
 * open, or those that the last opened handle would give a hold, or those of a pending hold. */
static void entry_rights(const struct node *node, const struct hold *hold, struct stat *st)
{
    struct handle *h = LIST_FIRST(&node->handles);
    const struct node_past *past = node->past && node->past->mode ? node->past : NULL;
    const struct hold *pending = LIST_FIRST(&node->holds) ? LIST_FIRST(&node->holds) : LIST_FIRST(&node->waiting);
    st->st_mode = node->record->mode & S_IFMT;
    if (hold) {
        entry_set_rights(st, hold->uid, hold->gid, hold->mode);
    } else if (past && (!h || tree_ended_within(node, ENTRY_LEAVING))) {
        entry_set_rights(st, past->uid, past->gid, past->mode);
    } else if (h) {
        entry_set_rights(st, h->record->uid, h->record->gid, handle_mode(h));
    } else if (pending) {
        entry_set_rights(st, pending->uid, pending->gid, pending->mode);
    }
}

static void entry_content(struct stat *st, size_t size)
{
    st->st_size = (off_t)size;
    st->st_blocks = (st->st_size + 511) / 512;
}

/* `set`: access and modification, as set by the holder; or NULL. */
static void entry_times(struct fs *fs, struct stat *st, clock_ms acquired, clock_ms renewed, const struct timespec *set)
{
    int64_t wall = fs_wall(fs, acquired);
    st->st_ctim = clock_timespec(wall);
    st->st_atim = set ? set[0] : clock_timespec(wall + renewed - acquired);
    st->st_mtim = set ? set[1] : clock_timespec(wall + renewed - acquired);
}

void entry_fill_attributes(struct fs *fs, const struct node *node, struct stat *st)
{
    const struct hold *hold = hold_find_shown(node);
    memset(st, 0, sizeof *st);
    st->st_ino = node->record->ino;
    st->st_nlink = tree_links(fs->tree, node);
    st->st_blksize = 4096;
    if (node->directory) {
        st->st_mode = node->record->mode;
        st->st_uid = node->directory->uid;
        st->st_gid = node->directory->gid;
        st->st_nlink = 2;
        st->st_mtim = st->st_ctim = st->st_atim = tree_changed(node);
        return;
    }
    entry_rights(node, hold, st);
    const struct backend_ticket *ticket = hold ? hold->ticket : NULL;
    clock_ms acquired = ticket ? ticket->acquired : clock_now();
    entry_content(st, hold ? hold->size : 0);
    clock_ms renewed = ticket ? backend_ticket_deadline(ticket, clock_now()) - ticket->ttl : acquired;
    entry_times(fs, st, acquired, renewed, hold ? hold_times(hold) : NULL);
}

/* A store says how long ago that was, so it moves by a moment with each answer.  The first answer about a holder
 * counts: programs such as tar take a change of ctime for a change of the file. */
static clock_ms entry_acquired_elsewhere(struct node *node, const struct backend_info *info)
{
    if (!node->acquired_elsewhere || node->fence_elsewhere != info->fence) {
        node->fence_elsewhere = info->fence;
        node->acquired_elsewhere = info->acquired == CLOCK_NEVER ? clock_now() : info->acquired;
    }
    return node->acquired_elsewhere;
}

void entry_fill_attributes_elsewhere(struct fs *fs, struct node *node, const struct backend_info *info, struct stat *st)
{
    struct meta meta;
    struct rights rights = rights_of(info);
    bool known = meta_decode(info->meta, &meta);
    bool renewed = info->deadline != CLOCK_NEVER && info->ttl;
    clock_ms acquired = entry_acquired_elsewhere(node, info);
    memset(st, 0, sizeof *st);
    st->st_ino = node->record->ino;
    st->st_nlink = 1;
    st->st_mode = (node->record->mode & S_IFMT) | rights.mode;
    st->st_uid = rights.uid;
    st->st_gid = rights.gid;
    st->st_blksize = 4096;
    entry_content(st, info->content ? g_bytes_get_size(info->content) : 0);
    entry_times(fs, st, acquired, renewed ? MIN(info->deadline - info->ttl, clock_now()) : acquired,
                known && meta.has_times ? meta.times : NULL);
}

double entry_attribute_timeout(const struct fs *fs, const struct node *node)
{
    return node->directory && fs->backend->features & BACKEND_SOLE_AUTHORITY ? ENTRY_KEEP_SECONDS : 0;
}

/* Does this mount hold it for sure: nobody else can end it before an event arrives here, or its term is over? */
static bool entry_is_ours(const struct hold *lease)
{
    return hold_holds(lease) && hold_is_exclusive(lease) && !lease->converting && !lease->renaming;
}

void entry_fill(struct fs *fs, struct node *node, struct fuse_entry_param *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->ino = tree_id(fs->tree, node);
    entry->attr_timeout = entry_attribute_timeout(fs, node);
    entry_fill_attributes(fs, node, &entry->attr);
    /* Only leases and directories stay for long enough to be kept; all else
     * comes and goes with handles, without the kernel's knowledge.  A lease that has
     * moved is looked up before each open: ops/opening.h. */
    struct hold *lease = hold_find_lease(node);
    bool sole = fs->backend->features & BACKEND_SOLE_AUTHORITY;
    bool keep = lease && lease->kind == BACKEND_LEASE && !node->record->moved && (sole || entry_is_ours(lease));
    entry->entry_timeout = keep || (node->directory && sole) ? ENTRY_KEEP_SECONDS : 0;
    node->record->visible = node->record->visible || !LIST_EMPTY(&node->holds) || !LIST_EMPTY(&node->waiting);
    node->record->kept = node->record->kept || entry->entry_timeout > 0;
}

bool entry_fill_listed(struct fs *fs, struct node *node, struct fuse_entry_param *entry)
{
    const struct hold *hold = hold_find_first(node);
    if (!hold || hold->kind != BACKEND_LEASE || hold->sequence || hold->converting || !hold_is_exclusive(hold) ||
        !LIST_EMPTY(&node->waiting) || node->record->moved || node->record->linked) {
        return false;
    }
    entry_fill(fs, node, entry);
    entry->attr_timeout = MIN(entry->entry_timeout, ENTRY_LISTED_SECONDS);
    node->record->shown = true;
    return true;
}

void entry_fill_elsewhere(struct fs *fs, struct node *node, const struct backend_info *info,
                          struct fuse_entry_param *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->ino = tree_id(fs->tree, node);
    entry_fill_attributes_elsewhere(fs, node, info, &entry->attr);
    node->record->visible = true;
    struct node_past *past =
        tree_ensure_past(node); /* a process that has found it may still ask about it when it has gone */
    past->fence = info->fence;
    past->mode = entry->attr.st_mode;
    past->uid = entry->attr.st_uid;
    past->gid = entry->attr.st_gid;
}

bool entry_has_outlived(const struct node *node, const struct backend_info *info)
{
    bool open = !LIST_EMPTY(&node->handles) && LIST_EMPTY(&node->holds) && LIST_EMPTY(&node->waiting);
    return open && !node->awaited && node->past && node->past->fence && node->past->fence != info->fence;
}

#define ENTRY_TICKET_DIGITS 10

/* Does it look like a ticket's (…-NNNNNNNNNN)?  Such a name may come to be
 * without the kernel's knowledge. */
static bool entry_is_ticket_name(const char *name)
{
    size_t length = strlen(name), digits = 0;
    while (digits < length && isdigit((unsigned char)name[length - digits - 1])) {
        digits++;
    }
    return digits >= ENTRY_TICKET_DIGITS && digits < length && name[length - digits - 1] == '-';
}

void entry_fill_missing(struct fs *fs, bool has_node, const char *name, struct fuse_entry_param *entry)
{
    memset(entry, 0, sizeof *entry);
    /* A name with a node may be locked through a handle at any time, and a ticket
     * is created by another name. */
    bool keep = !has_node && !entry_is_ticket_name(name);
    entry->entry_timeout = keep && fs->backend->features & BACKEND_SOLE_AUTHORITY ? ENTRY_KEEP_SECONDS : 0;
}

/* The kernel may cache rights and attributes for a tick: meanwhile they change only through the kernel, except the
 * number of links: tree_link. */
static void entry_made(struct request *r, struct fuse_entry_param *entry)
{
    entry_fill(r->fs, r->node, entry);
    if (r->fs->options->checks && r->fs->backend->features & BACKEND_SOLE_AUTHORITY && r->handle->hold) {
        entry->attr_timeout = ENTRY_MADE_SECONDS;
        r->node->record->made = true;
    }
}

void entry_reply_open(struct request *r)
{
    struct fs *fs = r->fs;
    struct handle *handle = r->handle;
    struct fuse_entry_param entry;
    r->file.fh = handle->id;
    r->file.direct_io = 1;
    r->opens = false;
    if (r->creates) {
        entry_made(r, &entry);
    }
    if (!request_reply_open(r, r->creates ? &entry : NULL)) {
        handle_free(fs, handle);
    }
}
