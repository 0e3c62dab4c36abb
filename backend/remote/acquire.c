/* acquire: takes a lock, waits for it, and claims it; the heartbeat of waiters.
 *
 * One request does all three, so it is safe to send it again under the same ticket id: it renews a holder, keeps a
 * waiter alive, and claims a grant.  A waiter asks again when it is the first and the holder's deadline has come, when
 * the store reports a grant, when another client may have released the lock, and when a heartbeat finds that it no
 * longer waits. So a lost message delays it by REMOTE_HEARTBEAT at most.
 */
#include <string.h>

#include "backend/remote/remote.h"

/* How often a waiter needs a heartbeat, ms. */
static int64_t acquire_heartbeat_interval(const struct remote_ticket *t)
{
    return MAX(MIN(REMOTE_HEARTBEAT, remote_ticket_liveness(t, t->head.ttl) / 3), REMOTE_HEARTBEAT_MIN);
}

/* The claim fails, or the waiter cannot go on waiting.  Frees it. */
static void acquire_refused(struct remote *r, struct remote_ticket *t, enum backend_result result,
                            const struct backend_info *holder)
{
    backend_acquire_done *done = t->acquire_done;
    void *arg = t->arg;
    if (!done) {
        remote_end_ticket(r, t, BACKEND_LOST, true);
        return;
    }
    remote_ticket_free(r, t);
    done(arg, result, NULL, holder);
}

static void acquire_complete(struct remote_ticket *t, enum backend_result result)
{
    backend_acquire_done *done = t->acquire_done;
    t->acquire_done = NULL;
    done(t->arg, result, &t->head, NULL);
}

static void acquire_set_given_name(struct remote_ticket *t, const char *leaf)
{
    if (!t->lock->sequence || !leaf || !*leaf) {
        return;
    }
    g_free(t->name);
    t->name = *t->lock->name ? g_strconcat(t->lock->name, "/", leaf, NULL) : g_strdup(leaf);
}

static void acquire_send(struct remote *r, struct remote_ticket *t);

/* --- undone --- */

/* The claim of `t` may have weakened the ticket with which its lock owner holds.  That is as before now, or the claim
 * holds after all, or the lock is lost. */
static void acquire_undone(void *arg, enum backend_result result)
{
    struct remote_request *undo = arg;
    struct remote *r = undo->r;
    struct remote_ticket *t = remote_ticket_find(r, undo->id), *was = t ? remote_ticket_find_joined(t) : NULL;
    enum backend_result result_of_acquire = undo->release.result;
    if (t) {
        t->undoing = false;
    }
    if (was && result == BACKEND_BUSY && !t->undo_failed) {
        t->undo_failed = true;
        remote_request_free(undo);
        acquire_send(r, t);
        return;
    }
    bool weaker = was && t->head.mode == BACKEND_SHARED && was->head.mode == BACKEND_EXCLUSIVE;
    if (was && (result == BACKEND_STALE || result == BACKEND_BUSY || (result != BACKEND_OK && weaker))) {
        remote_end_ticket(r, was, BACKEND_LOST, result != BACKEND_STALE); /* its callback may release this one */
        t = remote_ticket_find(r, undo->id);
    }
    remote_request_free(undo);
    if (t && t->acquire_done) {
        acquire_refused(r, t, result_of_acquire, NULL);
    } else if (t) {
        remote_end_ticket(r, t, BACKEND_LOST, false);
    }
}

/* Reports the end of `t` once its claim is undone. */
static void acquire_undo(struct remote *r, struct remote_ticket *t, enum backend_result result)
{
    struct remote_request *undo = remote_request_new(r, REMOTE_NO_PROCEDURE, t, NULL);
    undo->release.result = result;
    t->undoing = true;
    remote_ticket_set_state(r, t, REMOTE_ACQUIRING);
    t->due = t->refresh = t->head.deadline = CLOCK_NEVER;
    remote_ticket_schedule(r, t);
    remote_send_undo(r, t, acquire_undone, undo);
}

/* A pending claim may have joined, and weakened, what its lock owner holds.  If the store has let others in since, that
 * cannot be undone.  Otherwise the claim is undone before its end is reported. */
bool remote_cancel(struct remote *r, struct remote_ticket *t)
{
    t->cancelled =
        t->undoing ||
        (t->acquiring && remote_ticket_has_compatible(t, (struct backend_identity){.lock_owner = t->lock_owner})) ||
        (t->outcome_unknown && remote_ticket_find_joined(t));
    if (!t->cancelled) {
        remote_send_release(r, t, "", NULL, NULL);
        remote_ticket_free(r, t);
        return true;
    }
    if (!t->acquiring && !t->undoing) {
        acquire_undo(r, t, BACKEND_UNREACHABLE);
    }
    return false;
}

/* --- granted --- */

/* The state is not REMOTE_HELD yet.  The ttl may have changed since the request. */
static void acquire_granted(struct remote *r, struct remote_ticket *t, int64_t ttl, const struct remote_answer *grant)
{
    clock_ms now = clock_now(), deadline = remote_deadline(grant->sent, MIN(ttl, t->head.ttl));
    bool late = deadline - now < MIN(ttl, t->head.ttl) / 8; /* a renewal might be answered too late */
    if (late && !t->cancelled && (t->wait || t->late_grants++ < REMOTE_LATE_GRANTS)) {
        acquire_send(r, t);
        return;
    }
    if (deadline <= now && remote_ticket_find_joined(t)) {
        acquire_undo(r, t, BACKEND_UNREACHABLE);
        return;
    }
    if (deadline <= now) {
        remote_send_release(r, t, "", NULL, NULL);
        acquire_refused(r, t, BACKEND_UNREACHABLE, NULL);
        return;
    }
    const struct remote_ticket *joined = grant->id ? remote_ticket_find(r, grant->id) : t;
    GArray *whole = t->lock_owner && !(r->backend.features & BACKEND_CAN_RANGE)
                        ? remote_ticket_join_segments(t, joined == t ? NULL : joined)
                        : NULL;
    remote_ticket_set_segments(t, whole ? whole : grant->segments);
    g_clear_pointer(&whole, g_array_unref);
    if (grant->id) {
        remote_ticket_adopt_id(r, t, grant->id);
    }
    t->head.fence = grant->fence;
    acquire_set_given_name(t, grant->leaf);
    t->granted_unclaimed = false;
    t->refresh = CLOCK_NEVER;
    remote_ticket_set_state(r, t, REMOTE_HELD);
    t->head.acquired = now;
    if (t->lock->sequence && !t->acquire_done) { /* its term runs while it waits, and is renewed for its own reasons */
        t->head.deadline = MIN(t->head.deadline, deadline);
    } else {
        remote_ticket_start_term(t, now, deadline);
    }
    remote_ticket_schedule(r, t);
    if (ttl != t->head.ttl) {
        remote_extend(r, t);
    }
    if (t->lock->held > 1 && !t->lock->sequence) {
        remote_verify(r, t->lock, t);
    }
    if (t->acquire_done) {
        acquire_complete(t, BACKEND_OK);
    } else {
        r->events->granted(r->context, &t->head);
    }
}

/* The first that waits is there when the holder's term has ended, or a stranger has let go. */
static void acquire_look_ahead(struct remote *r, struct remote_ticket *t, const struct remote_answer *answer)
{
    bool soon = answer->rank == 0 && answer->wait >= 0 && answer->wait < acquire_heartbeat_interval(t);
    t->refresh = soon ? clock_now() + MAX(answer->wait + 1, REMOTE_HEARTBEAT_MIN) : CLOCK_NEVER;
    remote_ticket_schedule(r, t);
    if (answer->rank == 0 && answer->foreign && !t->lock->watched) {
        t->lock->watched = true;
        r->store->watch_lock(r, t);
    }
}

void remote_heartbeat_reply(struct remote *r, const char *id, const struct remote_answer *answer)
{
    struct remote_ticket *t = remote_ticket_find(r, id);
    if (!t || t->state != REMOTE_WAITING) {
        return;
    }
    if (answer->rank < 0) {
        remote_refresh(r, t);
    } else {
        acquire_look_ahead(r, t, answer);
    }
}

/* Its caller knows nothing of it yet, or only that it waits. */
static void acquire_abandon(struct remote *r, struct remote_ticket *t, enum backend_result result)
{
    if (t->acquire_done) {
        remote_send_release(r, t, "", NULL, NULL);
    }
    acquire_refused(r, t, result, NULL);
}

static void acquire_queued(struct remote *r, struct remote_ticket *t, const struct remote_answer *answer)
{
    clock_ms now = clock_now();
    if (t->cancelled) {
        acquire_abandon(r, t, BACKEND_UNREACHABLE);
        return;
    }
    t->head.fence = answer->fence;
    acquire_set_given_name(t, answer->leaf);
    remote_ticket_set_state(r, t, REMOTE_WAITING);
    if (t->acquire_done) {
        remote_ticket_start_term(t, now, remote_deadline(now, t->head.ttl)); /* heartbeats keep it alive in the store */
    }
    t->last_heartbeat = answer->sent;
    r->next_heartbeat = MIN(r->next_heartbeat, t->last_heartbeat + acquire_heartbeat_interval(t));
    acquire_look_ahead(r, t, answer);
    if (t->acquire_done && remote_deadlocked(r, t)) {
        acquire_abandon(r, t, BACKEND_DEADLOCK);
        return;
    }
    if (t->granted_unclaimed) {
        remote_refresh(r, t);
    }
    if (t->acquire_done) {
        acquire_complete(t, BACKEND_QUEUED);
    }
}

static void acquire_failed(struct remote *r, struct remote_ticket *t, const struct remote_answer *answer)
{
    if ((t->acquire_done || t->cancelled) && t->outcome_unknown && remote_ticket_find_joined(t)) {
        acquire_undo(r, t, answer->result);
        return;
    }
    if (t->acquire_done) {
        if (remote_outcome_is_unknown(answer) ||
            answer->result == BACKEND_DAMAGED) { /* a damaged store may have done a part */
            remote_send_release(r, t, "", NULL, NULL);
        }
        acquire_refused(r, t, answer->result, NULL);
        return;
    }
    if (answer->result == BACKEND_DAMAGED || t->cancelled) { /* damage may last */
        remote_end_ticket(r, t, BACKEND_LOST, true);
        return;
    }
    if (t->state == REMOTE_CLAIMING) {
        remote_ticket_set_state(r, t, REMOTE_WAITING);
    }
    t->refresh = clock_now() + REMOTE_RENEW_RETRY;
    remote_ticket_schedule(r, t);
}

/* Has its lock owner sent a release since, perhaps of the ticket that the claim has joined? */
static bool acquire_is_outdated(const struct remote_request *acquiring, const struct remote_ticket *t)
{
    const struct remote_request *request;
    if (!t->lock_owner) {
        return false;
    }
    LIST_FOREACH(request, &acquiring->r->requests, link) {
        bool release = request->procedure == REMOTE_RELEASE || request->procedure == REMOTE_RELEASE_RANGE;
        if (release && request->lock_owner == t->lock_owner && request->serial > acquiring->serial &&
            strcmp(request->name, t->lock->name) == 0) {
            return true;
        }
    }
    return false;
}

static void acquire_answered(struct remote_request *request, const struct remote_answer *answer)
{
    struct remote *r = request->r;
    struct remote_ticket *t = remote_ticket_find(r, request->id);
    int64_t ttl = request->ttl;
    bool outdated = acquire_is_outdated(request, t);
    t->acquiring = NULL;
    t->outcome_unknown = remote_outcome_is_unknown(answer);
    remote_request_free(request);
    if (answer->outcome != REMOTE_ANSWERED) {
        acquire_failed(r, t, answer);
    } else if (answer->result == BACKEND_OK && outdated) {
        acquire_send(r, t);
    } else if (answer->result == BACKEND_OK) {
        acquire_granted(r, t, ttl, answer);
    } else if (answer->result == BACKEND_QUEUED) {
        acquire_queued(r, t, answer);
    } else if (answer->repeated && remote_ticket_find_joined(t)) { /* an earlier try may have been granted */
        acquire_undo(r, t, answer->result);
    } else {
        acquire_refused(r, t, answer->result, answer->result == BACKEND_BUSY ? answer->info : NULL);
    }
}

static void acquire_send(struct remote *r, struct remote_ticket *t)
{
    t->acquiring = remote_request_new(r, REMOTE_ACQUIRE, t, NULL);
    t->acquiring->ttl = t->head.ttl;
    t->acquiring_call = remote_request_send(t->acquiring, t, acquire_answered, 0);
}

void remote_refresh(struct remote *r, struct remote_ticket *t)
{
    if (t->acquiring) {
        return; /* its answer decides */
    }
    if (t->granted_unclaimed) {
        remote_ticket_set_state(r, t, REMOTE_CLAIMING);
    }
    t->granted_unclaimed = false;
    acquire_send(r, t);
}

void remote_acquire(struct remote *r, struct remote_ticket *t, backend_acquire_done *done, void *arg)
{
    t->acquire_done = done;
    t->arg = arg;
    acquire_send(r, t);
}

/* --- heartbeat --- */

static int acquire_compare_locks(gconstpointer a, gconstpointer b)
{
    uintptr_t x = (uintptr_t)(*(struct remote_ticket *const *)a)->lock;
    uintptr_t y = (uintptr_t)(*(struct remote_ticket *const *)b)->lock;
    return (x > y) - (x < y);
}

/* A ticket with a heartbeat less than half of its interval ago waits for the next, so those of one interval go
 * together. While the store is away nothing is sent: all waiters ask again when it is back. */
void remote_heartbeat(struct remote *r, clock_ms now)
{
    GPtrArray *due = g_ptr_array_new();
    struct remote_ticket *t;
    r->next_heartbeat = CLOCK_NEVER;
    LIST_FOREACH(t, &r->waiters, waiters) {
        if (now - t->last_heartbeat >= acquire_heartbeat_interval(t) / 2) {
            t->last_heartbeat = now;
            if (t->state == REMOTE_WAITING && !t->acquiring && r->store->is_up(r)) {
                g_ptr_array_add(due, t);
            }
        }
        r->next_heartbeat = MIN(r->next_heartbeat, t->last_heartbeat + acquire_heartbeat_interval(t));
    }
    g_ptr_array_sort(due, acquire_compare_locks);
    for (guint i = 0; i < due->len; i += REMOTE_HEARTBEAT_TICKETS) {
        r->store->heartbeat(r, (struct remote_ticket *const *)due->pdata + i,
                            MIN(due->len - i, REMOTE_HEARTBEAT_TICKETS));
    }
    g_ptr_array_free(due, TRUE);
}
