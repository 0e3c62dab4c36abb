/* hold: what this mount holds on a name, and for whom; see hold.h. */
#include "fs/hold/hold.h"

#include <string.h>
#include <sys/stat.h>

#include "fs/hold/guard.h"
#include "fs/hold/handle.h"
#include "fs/hold/quota.h"
#include "fs/hold/rights.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/notify.h"
#include "fs/kernel/tree.h"

_Static_assert(sizeof(struct hold) <= 104, "a hold must fit into 112 bytes of heap");

/* --- finding ------------------------------------------------------------- */

/* The hold before it in node->holds, or NULL. */
static struct hold *hold_previous(const struct hold *hold)
{
    struct hold **link = hold->link.le_prev;
    return link == &hold->node->holds.lh_first ? NULL : (struct hold *)((char *)link - offsetof(struct hold, link));
}

/* Takes it out of node->holds or node->waiting. */
static void hold_unlist(struct hold *hold)
{
    struct node *node = hold->node;
    if (node->longest == hold) {
        struct hold *before = hold_previous(hold);
        node->longest = before && before->since ? before : NULL;
    }
    LIST_REMOVE(hold, link);
}

/* Puts a granted hold at its place in node->holds. */
static void hold_list_granted(struct hold *hold, enum backend_kind kind)
{
    struct node *node = hold->node;
    struct hold *next = LIST_FIRST(&node->holds), *last = NULL;
    while (next && next->kind <= BACKEND_LEASE && (!next->since || kind > BACKEND_LEASE)) {
        last = next;
        next = LIST_NEXT(next, link);
    }
    if (last) {
        LIST_INSERT_AFTER(last, hold, link);
    } else {
        LIST_INSERT_HEAD(&node->holds, hold, link);
    }
    node->longest = next && next->since ? node->longest : hold;
}

void hold_mark_longest(struct hold *hold)
{
    struct node *node = hold->node;
    if (hold->since && hold->kind > BACKEND_LEASE && hold != node->longest) { /* else not reported yet, or exclusive */
        LIST_REMOVE(hold, link);
        LIST_INSERT_AFTER(node->longest, hold, link);
        node->longest = hold;
    }
}

/* A path is compared only where its last name and the lock owner are the same. */
static guint hold_records_hash(gconstpointer key)
{
    const struct hold *hold = key;
    return g_int64_hash(&hold->extra->records->lock_owner) * 31 + hold->extra->records->name;
}

static gboolean hold_records_equal(gconstpointer a, gconstpointer b)
{
    const struct hold *left = a, *right = b;
    return left->extra->records->lock_owner == right->extra->records->lock_owner &&
           tree_same_path(left->node, right->node);
}

GHashTable *hold_records_table(void)
{
    return g_hash_table_new(hold_records_hash, hold_records_equal);
}

struct hold *hold_find_by_lock_owner(struct fs *fs, struct node *node, uint64_t lock_owner)
{
    if (g_hash_table_size(fs->records) == 0) {
        return NULL;
    }
    struct hold_records records = {.lock_owner = lock_owner, .name = g_str_hash(tree_name(node))};
    struct hold_extra extra = {.records = &records};
    struct hold key = {.node = node, .extra = &extra};
    return g_hash_table_lookup(fs->records, &key);
}

void hold_set_lock_owner(struct fs *fs, struct hold *hold, uint64_t lock_owner)
{
    struct hold_records *records = hold_extra(hold)->records = g_new(struct hold_records, 1);
    *records = (struct hold_records){
        .lock_owner = lock_owner, .name = g_str_hash(tree_name(hold->node)), .handles = g_ptr_array_new()};
    g_hash_table_add(fs->records, hold);
}

void hold_rename_node(struct fs *fs, struct node *node, struct node *parent, const char *name)
{
    struct hold *hold;
    LIST_FOREACH(hold, &node->waiting, link) {
        if (hold->kind == BACKEND_FCNTL) {
            g_hash_table_remove(fs->records, hold);
        }
    }
    tree_rename(fs->tree, node, parent, name);
    LIST_FOREACH(hold, &node->waiting, link) {
        if (hold->kind == BACKEND_FCNTL) {
            hold->extra->records->name = g_str_hash(tree_name(node));
            g_hash_table_add(fs->records, hold);
        }
    }
}

static void hold_drop_lock_owner(struct fs *fs, struct hold *hold)
{
    if (hold_records(hold)) {
        g_hash_table_remove(fs->records, hold);
        g_ptr_array_free(hold->extra->records->handles, TRUE);
        g_clear_pointer(&hold->extra->records, g_free);
    }
}

/* --- making and ending ----------------------------------------------------- */

struct hold *hold_new(struct fs *fs, struct node *node, enum backend_kind kind, struct owner *owner, uid_t uid,
                      gid_t gid, mode_t mode)
{
    struct hold *hold = backend_new0(sizeof *hold);
    hold->references = 1;
    hold->account = uid;
    hold->charged = true;
    quota_charge(fs->quota, uid, 1, 0);
    hold->node = tree_ref(node);
    hold->kind = (uint8_t)kind;
    hold->owner = owner ? owner_ref(owner) : NULL;
    hold->uid = uid;
    hold->gid = gid;
    hold->mode = (uint16_t)(mode & (S_IFMT | RIGHTS_MODE));
    if (kind == BACKEND_FLOCK || kind == BACKEND_FCNTL) {
        LIST_INSERT_HEAD(&node->waiting, hold, link);
    } else {
        LIST_INSERT_HEAD(&node->holds, hold, link);
    }
    return hold;
}

/* `by_descendant` is about this lease, not about the next one. */
static void hold_clear_descendants(const struct hold *hold)
{
    struct handle *handle;
    LIST_FOREACH(handle, &hold->node->handles, link) {
        handle->record->by_descendant = false;
    }
}

/* A process that has looked the name up before may read its attributes only now: it sees the rights as they were. */
static void hold_save_rights(const struct hold *hold)
{
    if (hold->since) {
        struct node_past *past = tree_ensure_past(hold->node);
        past->mode = hold->mode;
        past->uid = hold->uid;
        past->gid = hold->gid;
        tree_note_ended(hold->node);
    }
}

static void hold_detach_handles(struct hold *hold)
{
    struct handle *handle;
    if (hold->since && hold->kind <= BACKEND_LEASE) {
        hold_clear_descendants(hold);
    }
    if (hold->kind == BACKEND_FLOCK && !hold->sequence) {
        handle = hold_handle(hold);
        if (handle && handle->hold == hold) {
            handle_set_hold(handle, NULL);
            handle->record->closing = false;
        }
        return;
    }
    if (hold->kind == BACKEND_FCNTL && hold_records(hold)) { /* else its handle still has it as a lease */
        GPtrArray *handles = hold->extra->records->handles;
        for (guint i = 0; i < handles->len; i++) {
            handle = g_ptr_array_index(handles, i);
            g_ptr_array_remove_fast(handle->records, hold);
            handle->record->locked = handle->records->len > 0;
        }
        g_ptr_array_set_size(handles, 0);
        return;
    }
    LIST_FOREACH(handle, &hold->node->handles, link) {
        if (handle->hold == hold) {
            handle_set_hold(handle, NULL);
            handle->record->closing = false;
        }
    }
}

void hold_count_in_directories(struct hold *hold, bool held)
{
    if (hold->counted != held) {
        hold->counted = held;
        for (const struct node *at = hold->node->parent; at; at = at->parent) {
            at->directory->held = held ? at->directory->held + 1 : at->directory->held - 1;
        }
    }
}

void hold_move(struct fs *fs, struct hold *hold, struct node *node)
{
    struct node *before = hold->node;
    hold_count_in_directories(hold, false);
    LIST_REMOVE(hold, link);
    tree_detach(fs->tree, before);
    hold->node = tree_ref(node);
    LIST_INSERT_HEAD(&node->holds, hold, link);
    hold_count_in_directories(hold, true);
    tree_unref(fs->tree, before);
}

void hold_free(struct fs *fs, struct hold *hold)
{
    tree_invalidate(fs->tree, hold->node);
    hold_save_rights(hold);
    hold_detach_handles(hold);
    hold_count_in_directories(hold, false);
    fs->observer->gone(fs, hold);
    survivor_free(hold);
    hold_set_size(fs, hold, 0);
    quota_charge(fs->quota, hold->account, -1, 0);
    hold->charged = false;
    hold_unlist(hold);
    LIST_INSERT_HEAD(&fs->ended, hold, link);
    if (hold->kind == BACKEND_FCNTL) {
        hold_drop_lock_owner(fs, hold);
    }
    hold->ticket = NULL;
    if (hold_first_parked(hold)) {
        request_resume_all(&hold->extra->parked, hold->sequence ? BACKEND_STALE : BACKEND_UNREACHABLE);
    }
    hold_unref(fs, hold);
}

void hold_destroy(struct fs *fs, struct hold *hold)
{
    LIST_REMOVE(hold, link);
    hold_drop_heirs(hold);
    owner_unref(hold->owner);
    g_free(hold_times(hold));
    if (hold->has_extra) {
        hold_heirs_unref(hold->extra->partners);
        survivor_free_resumers(hold);
        g_free(hold->extra->note);
        g_free(hold->extra);
    }
    tree_unref(fs->tree, hold->node);
    g_free(hold);
}

void hold_await_outcome(struct request *r, struct hold *hold, request_step *answer)
{
    request_park(r, hold_queue(hold), answer, request_reply_interrupted);
}

void hold_attach_name(struct fs *fs, const struct hold *hold, enum backend_kind kind)
{
    struct node *node = hold->node;
    if (node->record->hashed) {
        return;
    }
    struct node *there = tree_find(fs->tree, node->parent, tree_name(node));
    bool sole = kind != BACKEND_FCNTL && hold->ticket->mode == BACKEND_EXCLUSIVE;
    if (there && (sole || !hold_find_first(there))) {
        tree_detach(fs->tree, there);
    }
    tree_attach(fs->tree, node);
}

void hold_mark_granted(struct fs *fs, struct hold *hold, struct backend_ticket *ticket)
{
    enum backend_kind kind = ticket->kind;
    if (hold->ticket && hold->ticket != ticket && !ticket->joined) {
        hold_ref(hold); /* until the end of its earlier ticket is reported */
    }
    hold->ticket = ticket;
    hold_attach_name(fs, hold, kind);
    hold_count_in_directories(hold, true);
    if (!hold->since) { /* else it has held before, as another kind or in another mode */
        tree_touch(hold->node->parent);
        tree_invalidate(fs->tree, hold->node);
        LIST_REMOVE(hold, link);
        hold_list_granted(hold, kind);
    }
    fs->observer->granted(fs, hold, kind);
    if (hold->since && hold->kind <= BACKEND_LEASE && kind > BACKEND_LEASE) {
        hold_clear_descendants(hold);
    }
    hold->kind = (uint8_t)kind;
    hold->since = clock_now();
}

void hold_resume_all(struct fs *fs, struct hold *hold)
{
    hold_ref(hold);
    request_resume_all(&hold->extra->parked, BACKEND_OK);
    hold_unref(fs, hold);
}

void hold_unpin(struct fs *fs, struct hold *hold)
{
    if (!hold) {
        return;
    }
    if (hold->pinned) {
        hold->pinned = false;
        hold->converting = false;
        hold_resume_parked(fs, hold);
    }
    hold_unref(fs, hold);
}

/* --- ending ---------------------------------------------------------------- */

/* Its ticket has ended: frees the hold, or, while its lock owner waits for further bytes, keeps it without a ticket. */
static void hold_end(struct fs *fs, struct hold *hold)
{
    if (hold->kind != BACKEND_FCNTL || !hold_first_parked(hold)) {
        hold_free(fs, hold);
        return;
    }
    hold_save_rights(hold);
    hold_detach_handles(hold);
    hold_count_in_directories(hold, false);
    fs->observer->gone(fs, hold);
    hold_set_size(fs, hold, 0);
    g_clear_pointer(&hold->extra->times, g_free);
    g_clear_pointer(&hold->extra->note, g_free);
    guard_set(hold, 0);
    hold->ticket = NULL;
    hold_unlist(hold);
    hold->since = 0;
    hold->released_all = true;
    LIST_INSERT_HEAD(&hold->node->waiting, hold, link);
}

/* Has it an open file that was opened on a lock, and so sees that this has ended? */
static bool hold_was_found(const struct node *node)
{
    const struct handle *handle = LIST_FIRST(&node->handles);
    while (handle && !handle->record->found) {
        handle = LIST_NEXT(handle, link);
    }
    return handle;
}

void hold_notify_gone(struct fs *fs, struct node *node)
{
    if (node->record->visible) {
        node->record->visible = false;
        struct node_past *past = tree_ensure_past(node);
        tree_note_ended(node);
        past->deleted = notify_delete(fs->notify, tree_id(fs->tree, node->parent), tree_id(fs->tree, node),
                                      tree_name(node), node->record->kept);
        past->expired = node->record->kept ? past->deleted : past->expired;
        node->record->kept = false;
    }
    if (node->past) {
        node->past->fence = 0;
    }
    tree_unlink(fs->tree, node);
    tree_touch(node->parent);
    if ((LIST_EMPTY(&node->handles) || hold_was_found(node)) && LIST_EMPTY(&node->holds) &&
        LIST_EMPTY(&node->waiting) && !node->awaited) {
        tree_detach(fs->tree, node); /* the next lock of this name is another inode */
    }
}

/* Does a request of this mount wait in the store's queue?  Then the lock is held, here or elsewhere, and the end of the
 * wait shows whether it still is. */
static bool hold_is_awaited(const struct node *node)
{
    const struct hold *hold;
    const struct request *r = NULL;
    LIST_FOREACH(hold, &node->waiting, link) {
        for (r = hold_first_parked(hold); r && !r->queued; r = TAILQ_NEXT(r, parked)) {
        }
        if (r) {
            break;
        }
    }
    return r;
}

/* After something of the node has ended: the kernel drops the name, unless a hold or a waiter of this mount has it. */
static void hold_notify_if_gone(struct fs *fs, struct node *node)
{
    if (!hold_find_first(node) && !hold_is_awaited(node) && !guard_covers_node(fs, node)) {
        hold_notify_gone(fs, node);
    }
}

void hold_release(struct fs *fs, struct hold *hold, backend_done *done, void *arg)
{
    struct backend_ticket *ticket = hold->ticket;
    struct node *node = tree_ref(hold->node);
    hold_detach_handles(hold); /* first: to the next daemon it is not lost then */
    hold->ticket = NULL;
    if (ticket) {
        backend_release(fs->backend, ticket, done, arg);
    } else if (done) {
        done(arg, BACKEND_STALE);
    }
    hold_end(fs, hold);
    hold_notify_if_gone(fs, node);
    tree_unref(fs->tree, node);
}

void hold_release_range(struct fs *fs, struct hold *hold, uint64_t start, uint64_t end, backend_done *done, void *arg)
{
    struct node *node = tree_ref(hold->node);
    if (!backend_release_range(fs->backend, hold->ticket, start, end, done, arg)) {
        hold_end(fs, hold);
        hold_notify_if_gone(fs, node);
    }
    tree_unref(fs->tree, node);
}

bool hold_exists_at(const struct node *node)
{
    return node->directory ? node->directory->held > 0 : hold_find_first(node) != NULL;
}

/* --- the backend's events ---------------------------------------------------- */

/* A handle lock that no handle has: it was found late, and its file was closed before. */
static bool hold_is_abandoned(const struct hold *hold)
{
    const struct hold_records *records = hold->kind == BACKEND_FCNTL ? hold_records(hold) : NULL;
    bool handle_lock = hold->since && hold->kind > BACKEND_LEASE && !hold->sequence && !hold_survivor(hold);
    return handle_lock && !hold->converting && hold->references == 1 &&
           (records ? records->handles->len == 0 : !hold_handle(hold));
}

static void hold_due_event(void *context, struct backend_ticket *ticket)
{
    struct fs *fs = context;
    struct hold *hold = ticket->user;
    if (ticket->kind == BACKEND_PROVISIONAL) {
        /* Not if it was just extended, or is being decided: then its deadline or that decision ends it. */
        if (!hold->converting && ticket->deadline - clock_now() <= SECOND / 2) {
            hold_release(fs, hold, NULL, NULL);
        }
        return;
    }
    const struct survivor *survivor = hold_survivor(hold);
    if (survivor && !survivor->inode) {
        return; /* its processes are not known: it ends with its term */
    }
    if (hold->ticket == ticket && hold_is_abandoned(hold)) {
        hold_release(fs, hold, NULL, NULL);
        return;
    }
    if (ticket->kind != BACKEND_LEASE) {
        hold_update_owner(hold);
        if (hold->inherited && hold_heirs(hold)) {
            hold_finalize_owner(fs, hold); /* the process that took it has ended */
        }
        hold_update_command(fs, hold);
        backend_renew(fs->backend,
                      &(struct backend_renewal){.ticket = ticket, .ttl = ticket->ttl, .due = ticket->ttl / 3}, 1);
        return;
    }
    bool settles = !hold->owner_final && clock_now() - hold->since >= SECOND;
    if (settles) {
        hold_finalize_owner(fs, hold);
    }
    if (!hold->fixed && hold_needs_renewal(hold)) {
        hold_extend(fs, hold, ticket->ttl);
    }
}

static struct request *hold_find_request(const struct hold *hold, const struct backend_ticket *ticket)
{
    struct request *r = hold_first_parked(hold);
    while (r && (r->ticket ? r->ticket != ticket : r->hold != hold)) {
        r = TAILQ_NEXT(r, parked);
    }
    return r;
}

static void hold_granted_event(void *context, struct backend_ticket *ticket)
{
    struct fs *fs = context;
    struct hold *hold = ticket->user;
    struct request *r = hold_find_request(hold, ticket);
    if (hold->sequence) {
        fs->observer->granted(fs, hold, ticket->kind);
        hold_resume_parked(fs, hold); /* several requests may wait for it */
        return;
    }
    hold_mark_granted(fs, hold, ticket);
    if (r) {
        request_resume(r, BACKEND_OK);
    }
}

bool hold_has_handle(const struct hold *hold, const struct handle *handle)
{
    return handle->hold == hold || (handle->records && g_ptr_array_find(handle->records, hold, NULL));
}

/* Calls `visit` with each handle that has the hold. */
static void hold_each_handle(const struct hold *hold, void (*visit)(struct handle *handle, void *arg), void *arg)
{
    struct handle *handle;
    if (hold->kind == BACKEND_FLOCK && !hold->sequence) {
        if (hold_handle(hold)) {
            visit(hold_handle(hold), arg);
        }
    } else if (hold->kind == BACKEND_FCNTL) {
        const struct hold_records *records = hold_records(hold); /* it may be forgotten */
        for (guint i = 0; records && i < records->handles->len; i++) {
            visit(g_ptr_array_index(records->handles, i), arg);
        }
    } else {
        LIST_FOREACH(handle, &hold->node->handles, link) {
            if (handle->hold == hold) {
                visit(handle, arg);
            }
        }
    }
}

struct hold_guarding {
    struct fs *fs;
    struct guard *guard;
};

static void hold_guard_handle(struct handle *handle, void *arg)
{
    const struct hold_guarding *guarding = arg;
    guard_add_handle(guarding->fs, guarding->guard, handle);
}

/* Its handles have lost the lock; nobody else gets it as long as one of them is open. */
static void hold_begin_guard(struct fs *fs, struct hold *hold, int64_t delay)
{
    struct hold_guarding guarding = {.fs = fs, .guard = guard_new(fs, hold, delay)};
    if (guarding.guard) {
        hold_each_handle(hold, hold_guard_handle, &guarding);
    }
}

struct hold_spending {
    struct fs *fs;
    bool lost;
};

static void hold_spend_handle(struct handle *handle, void *arg)
{
    const struct hold_spending *spending = arg;
    handle->record->spent = true;
    handle->record->lost = spending->lost;
    notify_poll(spending->fs->notify, &handle->record->poll);
}

void hold_spend_handles(struct fs *fs, struct hold *hold, bool lost)
{
    hold_each_handle(hold, hold_spend_handle, &(struct hold_spending){fs, lost});
}

enum backend_result hold_result(const struct hold *hold, const struct handle *handle, enum backend_result result)
{
    return result == BACKEND_OK && !hold->ticket && handle && handle->record->lost ? BACKEND_STALE : result;
}

/* The name of a hold that has ended may stay refused: by a guard or by the lock-delay.  This is charged to the hold's
 * user, so that a user cannot have any number of refused names. */
static void hold_begin_refusal(struct fs *fs, struct hold *hold, const struct backend_ticket *ticket,
                               enum backend_end why)
{
    int64_t delay = why != BACKEND_RELEASED ? hold->node->parent->directory->attributes.delay : 0;
    if (ticket->guarded && hold->ticket == ticket) {
        hold_begin_guard(fs, hold, delay);
    } else if (hold->kind != BACKEND_PROVISIONAL && (ticket->guarded || delay > 0)) {
        delay += ticket->guarded ? guard_duration(hold) : 0;
        quota_charge_until(fs->quota, hold->account, clock_now() + delay);
    }
}

static void hold_ended_event(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    struct fs *fs = context;
    struct hold *hold = ticket->user;
    struct node *node = tree_ref(hold->node);
    struct request *r = ticket->held ? NULL : hold_find_request(hold, ticket);
    bool revoked = why == BACKEND_BROKEN || why == BACKEND_RELEASED;
    enum backend_result result = revoked && !hold->sequence ? BACKEND_STALE : BACKEND_UNREACHABLE;
    if (ticket->held) {
        fs->observer->ended(fs, hold, why);
        hold_begin_refusal(fs, hold, ticket, why);
    }
    if (hold->kind != BACKEND_PROVISIONAL && ticket->held) {
        hold_spend_handles(fs, hold, why != BACKEND_RELEASED || ticket->guarded);
    }
    if (r && r->ticket) {
        r->ticket = NULL;
        request_resume(r, result);
    } else if (r && result == BACKEND_STALE) {
        request_unpark(r); /* the request acquires again, with a new hold */
        r->hold = NULL;
        hold_end(fs, hold);
        request_resume(r, result);
    } else if (hold->kind != BACKEND_FCNTL || hold->ticket == ticket) {
        hold_end(fs, hold);
    } else {
        hold_unref(fs, hold); /* its lock owner has another ticket since */
    }
    if (why != BACKEND_RELEASED && node->parent->directory->attributes.delay > 0 && !hold_find_first(node) &&
        !guard_covers_node(fs, node)) {
        hold_notify_gone(fs, node); /* its waiters wait for the delay, not for a holder */
    } else {
        hold_notify_if_gone(fs, node);
    }
    tree_unref(fs->tree, node);
}

static void hold_mark_wanted(struct handle *handle, void *arg)
{
    struct fs *fs = arg;
    handle->record->wanted = true;
    notify_poll(fs->notify, &handle->record->poll);
}

static void hold_wanted_event(void *context, struct backend_ticket *ticket)
{
    struct survivor *survivor = hold_survivor(ticket->user);
    if (survivor) {
        survivor_set_wanted(survivor);
        return;
    }
    hold_each_handle(ticket->user, hold_mark_wanted, context);
}

/* The node of a name that others hold, if the kernel knows of it. */
static struct node *hold_find_node_elsewhere(struct fs *fs, const char *name)
{
    struct node *node = tree_find_path(fs->tree, name);
    bool known = node && !node->directory && node->record->visible && node->record->lookups && !hold_exists_at(node);
    return known ? node : NULL;
}

static bool hold_watched_event(void *context, const char *name)
{
    return hold_find_node_elsewhere(context, name) != NULL || guard_covers_path(context, name);
}

static void hold_gone_event(void *context, const char *name)
{
    struct node *node = hold_find_node_elsewhere(context, name);
    guard_end_path(context, name);
    if (node) {
        hold_notify_if_gone(context, node);
    }
}

const struct backend_events hold_events = {
    .granted = hold_granted_event,
    .due = hold_due_event,
    .ended = hold_ended_event,
    .wanted = hold_wanted_event,
    .watched = hold_watched_event,
    .gone = hold_gone_event,
};
