/* lock: flock(2), and fcntl(2) record locks; see lock.h. */
#include "fs/ops/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "fs/hold/handle.h"
#include "fs/hold/meta.h"
#include "fs/hold/survivor.h"
#include "fs/kernel/tree.h"
#include "fs/ops/sequence.h"

static int lock_error(enum backend_result result)
{
    return result == BACKEND_BUSY ? -EAGAIN : fs_error(result);
}

static void lock_apply(struct request *r);

/* The handle holds a lock from now on, even if it lost another one before.  Called at the grant: what happens to the
 * lock between that and the reply counts. */
static void lock_mark_granted(struct handle *h)
{
    h->record->found = 0;
    h->record->spent = false;
    h->record->lost = false;
    h->record->wanted = false;
    h->record->flushed = false;
}

/* A request that a surviving lock may have refused is repeated once, when it is known whether that lock has ended.  So
 * is one whose grant was broken or released before it was reported (STALE): it goes on waiting. */
static void lock_answer(struct request *r, enum backend_result result)
{
    if (result == BACKEND_BUSY && survivors_await_walk(r, lock_apply)) {
        return;
    }
    clock_ms retry_at = r->retry_at;
    r->retry_at = 0; /* the next refusal may be another's */
    if (result == BACKEND_BUSY && retry_at && !r->cancel_pending) {
        request_sleep(r, retry_at, lock_apply, request_reply_interrupted);
        return;
    }
    if (result == BACKEND_STALE && !r->cancel_pending) {
        lock_apply(r);
        return;
    }
    request_reply(r, r->cancel_pending && result != BACKEND_OK ? request_cancel_error(r) : lock_error(result));
}

/* --- flock ------------------------------------------------------------------- */

static void lock_claim(struct request *r, struct hold *hold, enum backend_kind kind, struct backend_claim *claim)
{
    hold_fill_claim(r->fs, hold, kind, r->handle, r->lock.owner, claim);
    claim->mode = r->lock.mode;
    claim->wait = r->blocks;
    claim->handle = handle_identity(r->fs, r->handle);
    claim->lock_owner = r->lock.owner;
    claim->start = r->lock.start;
    claim->end = r->lock.end;
}

static struct hold *lock_new(struct request *r, enum backend_kind kind)
{
    struct hold *hold = handle_new_hold(r->fs, r->handle, kind);
    hold_set_handle_owner(hold, request_caller(r), r->handle->opener);
    return hold;
}

/* A lease belongs to all handles of its owner.  Converted, it belongs to one handle or lock owner: the other handles
 * lose it. */
static void lock_take_from_others(struct request *r, const struct hold *hold)
{
    struct handle *other;
    if (hold_handle(hold) == r->handle) {
        return; /* it has it already: only the mode changes */
    }
    LIST_FOREACH(other, &hold->node->handles, link) {
        if (other != r->handle && other->hold == hold) {
            handle_set_hold(other, NULL);
        }
    }
}

/* Parks the request while the lease of its path (`lease`, here and below) is being renamed: when the store gets the
 * claim, the name may be another lock's. */
static bool lock_awaits_name(struct request *r, struct hold *lease, request_step *answer)
{
    if (!lease || !lease->renaming) {
        return false;
    }
    hold_await_outcome(r, lease, answer);
    return true;
}

/* Parks a request with LOCK_NB or F_SETLK, too, until the provisional second of another handle is decided.  For that of
 * another mount see lock_answer. */
static bool lock_awaits_outcome(struct request *r, struct hold *lease)
{
    if (r->blocks || r->waited || !lease || lease->kind != BACKEND_PROVISIONAL || lease == r->handle->hold) {
        return false;
    }
    r->waited = lease->since != 0;
    hold_await_outcome(r, lease, lock_apply);
    return true;
}

static void lock_convert(struct request *r, struct hold *hold, enum backend_kind kind, request_step *answer)
{
    struct backend_claim claim;
    struct owner *before = hold->owner;
    r->hold = hold;
    /* The store gets the new owner now; here it changes once the store has answered. */
    hold->owner = request_caller(r) ? request_caller(r) : before;
    lock_claim(r, hold, kind, &claim);
    hold->owner = before;
    hold_convert(r, &claim, answer);
}

static void lock_flocked(struct request *r);

static void lock_flock_new(struct request *r)
{
    struct backend_claim claim;
    r->beside = r->handle->hold && r->handle->hold->kind == BACKEND_FLOCK;
    r->hold = lock_new(r, BACKEND_FLOCK);
    lock_claim(r, r->hold, BACKEND_FLOCK, &claim);
    hold_acquire_claim(r, &claim, lock_flocked);
}

static void lock_flock_change(struct request *r, struct hold *hold);

/* Releases the claim that was granted beside the handle's lock: that lock is converted, or has ended. */
static void lock_flock_drop_claim(struct request *r, backend_done *done)
{
    struct fs *fs = r->fs; /* `done` may end the request */
    struct hold *claim = r->claim;
    r->claim = NULL;
    if (claim && claim->ticket) {
        hold_release(fs, claim, done, r);
    } else if (done) {
        done(r, BACKEND_OK);
    }
    if (claim) {
        hold_unref(fs, claim);
    }
}

/* The result of the claim's release does not matter.  The converted lock may have ended during the release. */
static void lock_flock_claim_dropped(void *arg, enum backend_result result)
{
    struct request *r = arg;
    (void)result;
    bool ended = r->handle->record->spent && !r->handle->hold;
    r->hold = NULL;
    lock_answer(r, r->result == BACKEND_OK && ended ? BACKEND_STALE : r->result);
}

static void lock_flock_converted(struct request *r)
{
    struct hold *hold = r->hold;
    enum backend_result result = r->result;
    bool lost = result == BACKEND_STALE || (result == BACKEND_BUSY && hold->kind != BACKEND_FLOCK);
    if (lost && hold) { /* the store does not have it, or it would exclude all others */
        hold_release(r->fs, hold, NULL, NULL);
    }
    if (lost || (r->blocks && (result == BACKEND_BUSY || result == BACKEND_GRACE))) {
        lock_flock_drop_claim(r, NULL);
        lock_flock_new(r);
        return;
    }
    if (result == BACKEND_OK) {
        lock_take_from_others(r, hold);
        hold_set_handle_owner(hold, request_caller(r), r->handle->opener);
        handle_set_hold(r->handle, hold);
        hold_extra(hold)->handle = r->handle;
        lock_mark_granted(r->handle);
        hold_resume_parked(r->fs, hold);
    }
    lock_flock_drop_claim(r, lock_flock_claim_dropped);
}

static void lock_flock_change_resumed(struct request *r)
{
    lock_flock_change(r, r->handle->hold);
}

static void lock_flock_change_cancelled(struct request *r)
{
    lock_flock_drop_claim(r, NULL);
    request_reply(r, request_cancel_error(r));
}

/* Converts the lock that the handle has; NULL: it has ended since the claim beside it was made. */
static void lock_flock_change(struct request *r, struct hold *hold)
{
    if (!hold) {
        lock_flock_drop_claim(r, NULL);
        lock_flock_new(r);
    } else if (hold->converting) {
        request_park(r, hold_queue(hold), lock_flock_change_resumed, lock_flock_change_cancelled);
    } else {
        lock_convert(r, hold, BACKEND_FLOCK, lock_flock_converted);
    }
}

/* A granted claim becomes the handle's lock, unless the handle has one: then the claim has only waited for the other
 * holders, and the handle's lock, which it kept meanwhile, is converted. */
static void lock_flocked(struct request *r)
{
    struct hold *before = r->handle->hold;
    if (r->result != BACKEND_OK) {
        lock_answer(r, r->result);
    } else if (before || r->beside) {
        r->claim = hold_ref(r->hold);
        lock_flock_change(r, before);
    } else {
        handle_set_hold(r->handle, r->hold);
        hold_extra(r->hold)->handle = r->handle;
        lock_mark_granted(r->handle);
        lock_answer(r, r->result);
    }
}

/* The hold that a lock through this handle converts: the handle's own, or the lease of the process that opened it, even
 * if another process asks, as flock(1) does for its shell.  For a process of another pid namespace only the handle's
 * own.  NULL: the request needs a new claim. */
static struct hold *lock_convertible(const struct request *r, struct hold *lease)
{
    struct handle *h = r->handle;
    struct hold *hold = h->hold ? h->hold : lease;
    if (!hold || !hold->since) {
        return NULL;
    }
    if (hold == h->hold && hold->kind != BACKEND_LEASE) {
        return hold;
    }
    bool own = hold->owner ? hold_is_owned_by(hold, h->opener) : hold == h->hold;
    return own ? hold : NULL;
}

/* --- waiting for oneself --------------------------------------------------------- */

/* Does this holder block the request?  Two lock owners count as in conflict: only the store knows their bytes. */
static bool lock_is_excluded(const struct request *r, const struct hold *hold)
{
    const struct hold_records *records = hold->kind == BACKEND_FCNTL ? hold_records(hold) : NULL;
    if (r->lock.mode == BACKEND_SHARED && hold->ticket->mode == BACKEND_SHARED) {
        return false;
    }
    if (records && r->lock.owner) {
        return records->lock_owner != r->lock.owner;
    }
    if (records) {
        return records->handles->len == 0 || g_ptr_array_index(records->handles, 0) != r->handle;
    }
    return r->handle->hold != hold;
}

/* A process that is blocked by more locks of its own than this waits like any other. */
#define LOCK_OWN_MAX 64

/* Do all holders here that block the request belong to its own process, whose only thread waits?  Sets how many hold
 * here.  False if they are many; and for byte locks of two open file descriptions, because they may be the same one,
 * and for a flock that a child may share and release.  The owner of a surviving lock is known after the next walk
 * (verdict.c). */
static bool lock_excludes_itself(struct request *r, uint32_t *ret_holders)
{
    const struct node *node = tree_current_node(r->fs->tree, r->node);
    const struct hold *turns = lock_convertible(r, hold_find_lease(node));
    struct hold *hold;
    bool own = false;
    *ret_holders = 0;
    LIST_FOREACH(hold, &node->holds, link) {
        *ret_holders += hold_holds(hold);
        if (*ret_holders > LOCK_OWN_MAX) {
            return false;
        }
        if (!hold_holds(hold) || hold == turns || !lock_is_excluded(r, hold)) {
            continue;
        }
        bool unknown = (r->lock.owner && hold->kind == BACKEND_FCNTL) || hold_survivor(hold);
        bool passed = hold->kind == BACKEND_FLOCK && hold_handle(hold) && hold_handle(hold)->record->flushed;
        if (unknown || passed || !request_caller(r) || hold_update_owner(hold) != request_caller(r)) {
            return false;
        }
        own = true;
    }
    return own && owner_is_single_threaded(request_caller(r));
}

static void lock_request(struct request *r);

static void lock_on_holders(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    uint32_t here;
    if (result == BACKEND_OK && lock_excludes_itself(r, &here) && info->holders <= here) {
        request_reply(r, -EDEADLK);
    } else {
        lock_request(r);
    }
}

/* Refuses a wait that only a signal could end.  If the holders of this mount suggest that, the store is asked whether
 * there are others. */
static void lock_apply(struct request *r)
{
    char path[TREE_PATH_MAX];
    uint32_t here;
    if (!r->blocks || r->handle->record->ticket || !lock_excludes_itself(r, &here)) {
        lock_request(r);
    } else if (request_path(r, path)) {
        backend_stat(r->fs->backend, path, lock_on_holders, r);
    }
}

/* Many thousands wait: one more would leave no room for requests that release. */
static bool lock_has_no_room(const struct request *r)
{
    return r->blocks && r->kept && keep_is_crowded(r->fs->keep);
}

void lock_flock(struct request *r, int operation)
{
    struct handle *h = r->handle;
    h->record->locking = true;
    h->record->closing = false;
    r->blocks = !(operation & LOCK_NB);
    r->lock.mode = operation & LOCK_SH ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    r->lock.end = BACKEND_RANGE_MAX;
    if (operation & LOCK_UN) {
        if (h->hold && h->hold->kind == BACKEND_FLOCK) {
            handle_release_hold(r, h->hold, request_released);
        } else {
            request_reply(r, 0);
        }
    } else if (lock_has_no_room(r)) {
        request_reply(r, -ENOLCK);
    } else {
        lock_apply(r);
    }
}

/* --- fcntl -------------------------------------------------------------------- */

/* Frees the hold of a lock owner that never got a lock. */
static void lock_drop_unused(struct fs *fs, struct hold *hold)
{
    if (!hold->ticket && !hold_first_parked(hold)) {
        hold_free(fs, hold);
    }
}

static void lock_set_answer(struct request *r)
{
    struct fs *fs = r->fs;
    enum backend_result result = r->result;
    struct hold *hold = hold_find_by_lock_owner(r->fs, r->node, r->lock.owner);
    if (result == BACKEND_OK) {
        hold_mark_granted(fs, hold, r->ticket);
        hold_set_handle_owner(hold, request_caller(r), r->handle->opener); /* the last process that locked by it */
        if (hold->released_all) {
            handle_take_records(fs, r->handle, hold);
        }
        handle_add_records(r->handle, hold);
        lock_mark_granted(r->handle);
    }
    r->ticket = NULL;
    if (hold) {
        lock_drop_unused(fs, hold);
    }
    lock_answer(r, result);
}

static void lock_set_done(void *arg, enum backend_result result, struct backend_ticket *ticket,
                          const struct backend_info *holder)
{
    struct request *r = arg;
    r->ticket = ticket;
    if (result == BACKEND_QUEUED) {
        r->queued = true;
        return;
    }
    r->retry_at = result == BACKEND_BUSY ? hold_retry_at(r, holder) : 0;
    request_resume(r, result);
}

static void lock_set_given_up(struct request *r)
{
    struct fs *fs = r->fs;
    struct hold *hold = hold_find_by_lock_owner(r->fs, r->node, r->lock.owner);
    r->cancel_pending = r->ticket && !backend_cancel(fs->backend, r->ticket);
    if (r->cancel_pending) {
        request_park(r, hold_queue(hold), lock_set_answer, lock_set_given_up);
        return;
    }
    request_reply(r, request_cancel_error(r));
    if (hold) {
        lock_drop_unused(fs, hold);
    }
}

static void lock_set_new(struct request *r)
{
    char path[TREE_PATH_MAX];
    struct backend_claim claim;
    if (!request_path(r, path)) {
        return;
    }
    struct hold *hold = hold_find_by_lock_owner(r->fs, r->node, r->lock.owner);
    if (!hold) {
        hold = lock_new(r, BACKEND_FCNTL);
        hold_set_lock_owner(r->fs, hold, r->lock.owner);
    }
    r->next_step = lock_set_answer;
    if (!hold_charge(r->fs, hold, 0)) {
        request_resume(r, BACKEND_QUOTA);
        return;
    }
    lock_claim(r, hold, BACKEND_FCNTL, &claim);
    request_ref(r);
    struct backend_ticket *ticket = backend_acquire(r->fs->backend, path, &claim, lock_set_done, r);
    if (r->req && ticket) {
        r->ticket = ticket;
        (r->blocks ? request_park : request_park_for_store)(r, hold_queue(hold), lock_set_answer, lock_set_given_up);
    }
    request_unref(r);
    g_bytes_unref(claim.meta);
}

static void lock_set_converted(struct request *r)
{
    struct hold *hold = r->hold;
    if (r->result != BACKEND_OK) {
        lock_set_new(r);
        return;
    }
    lock_take_from_others(r, hold);
    hold_set_lock_owner(r->fs, hold, r->lock.owner);
    handle_set_hold(r->handle, NULL);
    r->ticket = hold->ticket;
    struct fs *fs = r->fs;
    lock_set_answer(r); /* first, because a parked request may change the ticket */
    hold_resume_parked(fs, hold);
}

/* The hold that is being converted to a record lock, or NULL. Until that is done, another thread of its lock owner
 * would not find it, and make a second hold. */
static struct hold *lock_becoming(const struct node *node)
{
    struct hold *hold;
    LIST_FOREACH(hold, &node->holds, link) {
        if (hold->kind > BACKEND_LEASE) {
            return NULL; /* only a lease is converted to one */
        }
        if (hold->converting && hold->converting_to == BACKEND_FCNTL) {
            return hold;
        }
    }
    return NULL;
}

/* flock(2) and fcntl(2): without and with a lock owner. */
static void lock_request(struct request *r)
{
    const struct node *node = tree_current_node(r->fs->tree, r->node);
    struct hold *lease = hold_find_lease(node), *becoming = r->lock.owner ? lock_becoming(node) : NULL;
    struct hold *ticket = sequence_ticket(r, lease), *hold = lock_convertible(r, lease);
    if (becoming) {
        hold_await_outcome(r, becoming, lock_apply);
    } else if (ticket) {
        sequence_await_grant(r, ticket);
    } else if (r->handle->record->ticket) {
        request_reply(r, -ESTALE); /* it has lost its position in the queue */
    } else if (hold && hold->converting) {
        hold_await_outcome(r, hold, lock_apply);
    } else if (hold && !r->lock.owner) {
        lock_convert(r, hold, BACKEND_FLOCK, lock_flock_converted);
    } else if (hold && hold->kind != BACKEND_FLOCK && !hold_find_by_lock_owner(r->fs, r->node, r->lock.owner)) {
        lock_convert(r, hold, BACKEND_FCNTL, lock_set_converted);
    } else if (lock_awaits_name(r, lease, lock_apply) || lock_awaits_outcome(r, lease)) {
        return;
    } else if (r->lock.owner) {
        lock_set_new(r);
    } else {
        lock_flock_new(r);
    }
}

static void lock_range(struct request *r, const struct flock *lock)
{
    r->lock.range = *lock;
    r->lock.owner = r->file.lock_owner;
    r->lock.mode = lock->l_type == F_RDLCK ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    r->lock.start = (uint64_t)lock->l_start;
    r->lock.end = lock->l_len ? r->lock.start + (uint64_t)lock->l_len - 1 : BACKEND_RANGE_MAX;
}

static void lock_unlock_own(void *arg, enum backend_result result)
{
    struct request *r = arg;
    struct hold *hold = hold_find_by_lock_owner(r->fs, r->node, r->lock.owner);
    if (result != BACKEND_OK) {
        request_released(r, result);
    } else if (!hold || !hold->ticket || (r->lock.start == 0 && r->lock.end >= INT64_MAX)) {
        handle_release_lock_owner(r, r->lock.owner, request_released);
    } else {
        hold_release_range(r->fs, hold, r->lock.start, r->lock.end, request_released, r);
    }
}

/* The record lock that was moved to this handle, or NULL. */
static struct hold *lock_find_resumed(const struct handle *h)
{
    for (guint i = 0; h->records && i < h->records->len; i++) {
        struct hold *hold = g_ptr_array_index(h->records, i);
        if (hold_records(hold)->resumed) {
            return hold;
        }
    }
    return NULL;
}

/* Releases first the lock that was moved to the handle, then that of the lock owner.  A store across a network releases
 * bytes by lock owner, and the moved lock has none. */
static void lock_unlock(struct request *r)
{
    struct hold *resumed = lock_find_resumed(r->handle);
    if (!resumed) {
        lock_unlock_own(r, BACKEND_OK);
    } else if (r->lock.start == 0 && r->lock.end >= INT64_MAX) {
        handle_release_hold(r, resumed, lock_unlock_own);
    } else if (r->fs->backend->features & BACKEND_SOLE_AUTHORITY) {
        hold_release_range(r->fs, resumed, r->lock.start, r->lock.end, lock_unlock_own, r);
    } else {
        request_reply(r, -ENOLCK);
    }
}

void lock_set(struct request *r, const struct flock *lock, bool sleep)
{
    struct handle *h = r->handle;
    h->record->locking = true;
    h->record->closing = false;
    r->blocks = sleep;
    lock_range(r, lock);
    if (lock->l_type == F_UNLCK) {
        lock_unlock(r);
    } else if (lock_has_no_room(r)) {
        request_reply(r, -ENOLCK);
    } else {
        lock_apply(r);
    }
}

/* For F_GETLK: a pid, which is valid on its own host only, or -1 for a lock that no process here has; see fcntl(2). */
static pid_t lock_holder_pid(const struct fs *fs, const struct backend_info *info)
{
    const struct survivor *survivor = info->ticket ? hold_survivor(info->ticket->user) : NULL;
    const struct owner *owner = survivor       ? survivor_process(survivor)
                                : info->ticket ? hold_update_owner(info->ticket->user)
                                               : NULL;
    struct meta meta;
    if (owner) {
        return owner_pid(owner);
    }
    return meta_decode(info->meta, &meta) && meta.pid && strcmp(meta.host, fs->host) == 0 ? meta.pid : -1;
}

static void lock_got(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct request *r = arg;
    struct flock found = r->lock.range;
    if (result != BACKEND_OK) {
        request_reply(r, lock_error(result));
        return;
    }
    found.l_type = F_UNLCK;
    if (info->type == BACKEND_LOCK) {
        found.l_type = info->mode == BACKEND_SHARED ? F_RDLCK : F_WRLCK;
        found.l_whence = SEEK_SET;
        found.l_start = (off_t)info->start;
        /* 0 is "to the end", however far. */
        found.l_len = info->end >= INT64_MAX ? 0 : (off_t)(info->end - info->start + 1);
        found.l_pid = lock_holder_pid(r->fs, info);
    }
    request_reply_lock(r, &found);
}

static void lock_get_unheld(struct request *r)
{
    r->lock.range.l_type = F_UNLCK;
    request_reply_lock(r, &r->lock.range);
}

/* For a ticket in a queue: does it hold? */
static void lock_get_ticket(struct request *r, const struct hold *ticket)
{
    if (ticket->ticket->held) {
        lock_get_unheld(r);
    } else {
        request_reply_lock(r, &(struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_pid = -1});
    }
}

static void lock_get_try(struct request *r)
{
    char path[TREE_PATH_MAX];
    struct backend_claim claim = {.kind = BACKEND_FCNTL, .handle = handle_identity(r->fs, r->handle)};
    struct hold *lease = hold_find_lease_by_path(r->fs, r->node);
    const struct hold *ticket = sequence_ticket(r, lease), *hold = lock_convertible(r, lease);
    if (ticket) {
        lock_get_ticket(r, ticket);
        return;
    }
    if (hold && hold->kind != BACKEND_FLOCK) {
        lock_get_unheld(r); /* F_SETLK would convert this lease, and it is exclusive */
        return;
    }
    if (lock_awaits_name(r, lease, lock_get_try)) {
        return;
    }
    claim.mode = r->lock.mode;
    claim.lock_owner = r->lock.owner;
    claim.start = r->lock.start;
    claim.end = r->lock.end;
    if (request_path(r, path)) {
        backend_test(r->fs->backend, path, &claim, lock_got, r);
    }
}

void lock_get(struct request *r, const struct flock *lock)
{
    r->handle->record->locking = true;
    r->handle->record->closing = false;
    lock_range(r, lock);
    lock_get_try(r);
}
