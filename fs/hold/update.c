/* update: writes a hold's claim, meta and term to the store; see hold.h. */
#include <string.h>

#include "fs/hold/guard.h"
#include "fs/hold/handle.h"
#include "fs/hold/hold.h"
#include "fs/hold/meta.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/tree.h"

int64_t hold_directory_ttl(const struct fs *fs, const struct node *directory)
{
    for (; directory; directory = directory->parent) {
        if (directory->directory && directory->directory->attributes.ttl) {
            return directory->directory->attributes.ttl;
        }
    }
    return fs->options->ttl;
}

/* Of struct meta: host and boot come before it, and are the same for all holds of this mount. */
#define HOLD_META_OWN offsetof(struct meta, command)

/* Most leases are like the one before: they share their meta. */
static GBytes *hold_share_meta(struct fs *fs, struct meta *meta)
{
    const char *own = (const char *)meta + HOLD_META_OWN;
    if (!fs->last_meta || memcmp((const char *)fs->last_meta + HOLD_META_OWN, own, sizeof *meta - HOLD_META_OWN) != 0) {
        g_strlcpy(meta->host, fs->host, sizeof meta->host);
        g_strlcpy(meta->boot, fs->boot_id, sizeof meta->boot);
        g_free(fs->last_meta);
        g_clear_pointer(&fs->last_meta_bytes, g_bytes_unref);
        fs->last_meta = g_memdup2(meta, sizeof *meta);
        fs->last_meta_bytes = meta_encode(meta);
    }
    return g_bytes_ref(fs->last_meta_bytes);
}

/* A handle that has it, or NULL. */
static const struct handle *hold_find_handle(const struct hold *hold)
{
    const struct hold_records *records = hold->kind == BACKEND_FCNTL ? hold_records(hold) : NULL;
    const struct handle *handle = hold->kind == BACKEND_FLOCK ? hold_handle(hold) : NULL;
    if (hold->sequence) {
        LIST_FOREACH(handle, &hold->node->handles, link) {
            if (handle->hold == hold) {
                break;
            }
        }
    }
    return records && records->handles->len ? g_ptr_array_index(records->handles, 0) : handle;
}

/* The node of a handle's file.  It is not the name's where another node got the name since the file was opened. */
static const struct node *hold_file_node(const struct hold *hold)
{
    const struct handle *handle = hold_find_handle(hold);
    return handle ? handle->node : hold->node;
}

/* Names the handle by which the next daemon of this mount finds the lock again. */
static void hold_describe_handle(const struct fs *fs, const struct hold *hold, const struct handle *handle,
                                 uint64_t lock_owner, struct meta *meta)
{
    const struct handle *known = handle ? handle : hold_find_handle(hold);
    const struct hold_records *records = hold->kind == BACKEND_FCNTL ? hold_records(hold) : NULL;
    if (known) {
        meta->nonce = keep_nonce(fs->keep);
        meta->handle = known->id;
        meta->lock_owner = !lock_owner && records ? records->lock_owner : lock_owner;
    }
}

/* Names the file by which the next daemon finds the processes that have it open. */
static void hold_describe_file(const struct fs *fs, const struct hold *hold, enum backend_kind kind,
                               const struct handle *handle, struct meta *meta)
{
    const struct survivor *survivor = hold_survivor(hold);
    if (survivor && !handle) { /* else it is being resumed */
        meta->device = survivor->device;
        meta->inode = survivor->inode;
    } else if (kind == BACKEND_FLOCK || kind == BACKEND_FCNTL) {
        meta->device = fs->device;
        meta->inode = fs->device ? (handle ? handle->node : hold_file_node(hold))->record->ino : 0;
    }
}

/* The times of a lease do not count once it is a handle lock. */
static void hold_describe_heirs(const struct hold *hold, const struct handle *handle, struct meta *meta)
{
    const struct hold_heirs *heirs = handle ? NULL : hold_heirs(hold);
    if (handle && handle->opener && handle->opener != hold->owner) {
        meta->heir[meta->heirs].pid = owner_identity(handle->opener, &meta->heir[meta->heirs].start);
        meta->heirs++;
    }
    for (size_t i = 0; heirs && i < heirs->count; i++) {
        meta->heir[i].pid = owner_identity(heirs->heir[i], &meta->heir[i].start);
        meta->heirs++;
    }
    const struct hold_heirs *partners = handle ? NULL : hold_partners(hold);
    for (size_t i = 0; partners && i < partners->count && meta->heirs + i < META_HEIRS_MAX; i++) {
        meta->heir[meta->heirs + i].pid = owner_identity(partners->heir[i], &meta->heir[meta->heirs + i].start);
        meta->partners++;
    }
}

/* `handle`: the lock is being asked for by it; NULL: by none, or it has it. */
static GBytes *hold_encode_meta(struct fs *fs, const struct hold *hold, enum backend_kind kind,
                                const struct handle *handle, uint64_t lock_owner)
{
    struct meta meta;
    memset((char *)&meta + HOLD_META_OWN, 0, sizeof meta - HOLD_META_OWN); /* padding too: it is compared */
    meta.uid = hold->uid;
    meta.gid = hold->gid;
    meta.mode = hold->mode;
    meta.fixed = hold->fixed;
    meta.sequence = hold->sequence;
    meta.guard = guard_duration(hold);
    hold_describe_file(fs, hold, kind, handle, &meta);
    if (kind == BACKEND_FLOCK || kind == BACKEND_FCNTL) {
        hold_describe_handle(fs, hold, handle, lock_owner, &meta);
    }
    if (hold->owner) {
        meta.pid = owner_identity(hold->owner, &meta.start);
        g_strlcpy(meta.command, owner_command(hold->owner), sizeof meta.command);
        g_strdelimit(meta.command, "\t", ' '); /* a tab begins the note */
    }
    g_strlcpy(meta.note, hold_note(hold) ? hold_note(hold) : "", sizeof meta.note);
    meta.has_times = hold_times(hold) != NULL;
    if (meta.has_times) {
        memcpy(meta.times, hold_times(hold), sizeof meta.times);
    }
    hold_describe_heirs(hold, handle, &meta);
    return hold_share_meta(fs, &meta);
}

/* Without a daemon the mount must end before the store gives a lock to another: see keep_term. */
static void hold_note_term(struct fs *fs, int64_t ttl)
{
    bool sole = fs->backend->features & BACKEND_SOLE_AUTHORITY;
    if (fs->keep && !sole && (!keep_term(fs->keep) || ttl < keep_term(fs->keep))) {
        keep_set_term(fs->keep, ttl);
    }
}

/* When the backend shall call next, to settle the owner or to renew; 0: not. */
static int64_t hold_next_due(const struct hold *hold, int64_t ttl, int64_t age)
{
    int64_t settling = MAX(SECOND - age, 1);
    if (hold->fixed) {
        return hold->owner_final ? 0 : settling;
    }
    return hold->owner_final ? ttl / 3 : MIN(ttl / 3, settling);
}

#define HOLD_COMMAND_AFTER SECOND

/* flock(1) executes its command only when it has the lock: the store has that a second later. */
static bool hold_learns_command(const struct hold *hold, int64_t ttl)
{
    return hold->owner && ttl / 3 > HOLD_COMMAND_AFTER;
}

void hold_update_command(struct fs *fs, struct hold *hold)
{
    const struct backend_ticket *ticket = hold->ticket; /* NULL: its lock owner holds nothing, and waits */
    if (ticket && hold_learns_command(hold, ticket->ttl) && clock_now() - hold->since < 2 * HOLD_COMMAND_AFTER) {
        hold_store(fs, hold);
    }
}

void hold_fill_claim(struct fs *fs, struct hold *hold, enum backend_kind kind, const struct handle *handle,
                     uint64_t lock_owner, struct backend_claim *claim)
{
    memset(claim, 0, sizeof *claim);
    claim->user = hold;
    claim->kind = kind;
    claim->ttl = hold_directory_ttl(fs, hold->node->parent);
    hold_note_term(fs, claim->ttl);
    claim->end = BACKEND_RANGE_MAX;
    if (kind == BACKEND_PROVISIONAL) {
        /* Given back by hold_events.due; the ttl only matters when we are gone. */
        claim->due = SECOND;
        claim->ttl = SECOND + SECOND / 2;
    } else if (kind == BACKEND_LEASE) {
        hold_read_heirs(fs, hold);
        claim->due = hold_next_due(hold, claim->ttl, 0);
    } else {
        bool learns = hold_learns_command(hold, claim->ttl) && owner_is_wrapper(hold->owner);
        claim->due = learns ? HOLD_COMMAND_AFTER : claim->ttl / 3;
    }
    claim->meta = hold_encode_meta(fs, hold, kind, handle, lock_owner);
}

void hold_set_note(struct hold *hold, const char *note)
{
    if (hold->has_extra || *note) {
        g_free(hold_extra(hold)->note);
        hold->extra->note = *note ? g_strdup(note) : NULL;
    }
}

void hold_store_then(struct fs *fs, struct hold *hold, backend_done *done, void *arg)
{
    if (hold->ticket) {
        GBytes *meta = hold_encode_meta(fs, hold, (enum backend_kind)hold->kind, NULL, 0);
        backend_set(fs->backend, hold->ticket, &(struct backend_change){.set = BACKEND_SET_META, .meta = meta}, done,
                    arg);
        g_bytes_unref(meta);
    } else if (done) {
        done(arg, BACKEND_STALE);
    }
}

void hold_store(struct fs *fs, struct hold *hold)
{
    hold_store_then(fs, hold, NULL, NULL);
}

/* The pid of the final owner of a lease, whose end is reported; else 0.  While that lives there is nothing to renew
 * where nobody else decides. */
static uint32_t hold_keeper(const struct fs *fs, const struct hold *hold)
{
    bool settled = hold->kind == BACKEND_LEASE && !hold->fixed && hold->owner_final && hold->owner;
    bool sole = fs->backend->features & BACKEND_SOLE_AUTHORITY;
    return sole && settled && owner_watch(hold->owner) ? (uint32_t)owner_pid(hold->owner) : 0;
}

void hold_extend(struct fs *fs, struct hold *hold, int64_t ttl)
{
    hold_note_term(fs, ttl);
    bool lease = hold->kind == BACKEND_LEASE;
    int64_t due = lease ? hold_next_due(hold, ttl, clock_now() - hold->since) : ttl / 3;
    uint32_t keeper = hold_keeper(fs, hold);
    backend_renew(fs->backend,
                  &(struct backend_renewal){.ticket = hold->ticket, .ttl = ttl, .due = due, .keeper = keeper}, 1);
    tree_invalidate(fs->tree, hold->node);
}

bool hold_set_term(struct fs *fs, struct hold *hold, int64_t ttl)
{
    bool fixed = hold->fixed;
    int64_t term = ttl > 0 ? ttl : hold_directory_ttl(fs, hold->node->parent);
    hold->fixed = ttl > 0 && hold->kind == BACKEND_LEASE;
    hold_extend(fs, hold, term);
    if (hold->ticket->ttl < term && backend_ticket_deadline(hold->ticket, clock_now()) > clock_now()) {
        hold->fixed = fixed;
        hold_extend(fs, hold, hold->ticket->ttl);
        return false;
    }
    return true;
}

void hold_renew(struct fs *fs, struct hold *hold)
{
    if (!hold->fixed) {
        hold_extend(fs, hold, hold->ticket->ttl);
    }
}

/* How long a FLUSH that was answered waits for its RELEASE. */
#define HOLD_RELEASE_WAIT (SECOND / 4)

void hold_extend_provisional(struct fs *fs, struct hold *hold)
{
    if (hold->kind == BACKEND_PROVISIONAL && hold->ticket->deadline - clock_now() < SECOND / 2 + HOLD_RELEASE_WAIT) {
        backend_renew(fs->backend,
                      &(struct backend_renewal){
                          .ticket = hold->ticket, .ttl = SECOND / 2 + HOLD_RELEASE_WAIT, .due = HOLD_RELEASE_WAIT},
                      1);
    }
}

static void hold_trim_extra(struct hold *hold)
{
    struct hold_extra *extra = hold->has_extra ? hold->extra : NULL;
    if (extra && !extra->times && !extra->records && !extra->guard && !extra->note && !extra->survivor &&
        !extra->partners && !extra->resumers && TAILQ_EMPTY(&extra->parked)) {
        hold->has_extra = false;
        hold->heirs = extra->heirs;
        g_free(extra);
    }
}

void hold_finalize_owner(struct fs *fs, struct hold *hold)
{
    hold_pass_to_heirs(hold, true);
    hold_drop_heirs(hold);
    hold_trim_extra(hold);
    hold->owner_final = true;
    if (hold->inherited) {
        hold_store(fs, hold);
    }
}
