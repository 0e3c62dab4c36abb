/* acquire: taking a lock, waiting for it, and claiming it.
 *
 * One request does all three, so asking again with the same token is always
 * safe: it renews what is held, gives a word of life for what waits, and claims
 * what was handed over.  A ticket that waits asks again when the lock's deadline
 * has come and it is first, when the store has told it that it holds, when a
 * stranger that held it may have let go, and when the heartbeat (keep.c), which is
 * one for all that wait, finds that it does not wait any more: so a lost message
 * costs it no more than REMOTE_REFRESH.
 */
#include <string.h>

#include "backend/remote/remote.h"

/* It could not be had, or not be kept waiting.  Frees it. */
static void acquire_refused(struct remote *r, struct remote_ticket *t, enum backend_result result,
                            const struct backend_info *holder)
{
    backend_acquire_done *done = t->acquired;
    void *arg = t->arg;
    if (!done) {
        remote_end(r, t, BACKEND_LOST, true);
        return;
    }
    remote_ticket_free(r, t);
    done(arg, result, NULL, holder);
}

static void acquire_told(struct remote_ticket *t, enum backend_result result)
{
    backend_acquire_done *done = t->acquired;
    t->acquired = NULL;
    done(t->arg, result, &t->head, NULL);
}

static void acquire_set_given_name(struct remote_ticket *t, const char *leaf)
{
    if (!t->place->sequence || !*leaf) {
        return;
    }
    g_free(t->name);
    t->name = *t->place->name ? g_strconcat(t->place->name, "/", leaf, NULL) : g_strdup(leaf);
}

static void acquire_ask(struct remote *r, struct remote_ticket *t);

/* --- undone --- */

/* What its lock owner holds is as it was, or it stands, or that is lost: `t` may have made it weaker in the store. */
static void acquire_undone(void *arg, enum backend_result result)
{
    struct remote_op *undo = arg;
    struct remote *r = undo->r;
    struct remote_ticket *t = remote_ticket_find(r, undo->token), *was = t ? remote_ticket_joins(t) : NULL;
    enum backend_result told = undo->result;
    if (t) {
        t->undoing = false;
    }
    if (was && result == BACKEND_BUSY && !t->stands) {
        t->stands = true;
        remote_op_free(undo);
        acquire_ask(r, t);
        return;
    }
    bool weaker = was && t->head.mode == BACKEND_SHARED && was->head.mode == BACKEND_EXCLUSIVE;
    if (was && (result == BACKEND_STALE || result == BACKEND_BUSY || (result != BACKEND_OK && weaker))) {
        remote_end(r, was, BACKEND_LOST, result != BACKEND_STALE); /* who is told may release this one */
        t = remote_ticket_find(r, undo->token);
    }
    remote_op_free(undo);
    if (t && t->acquired) {
        acquire_refused(r, t, told, NULL);
    } else if (t) {
        remote_end(r, t, BACKEND_LOST, false);
    }
}

/* Its end, which may have to be told, is told then. */
static void acquire_undo(struct remote *r, struct remote_ticket *t, enum backend_result result)
{
    struct remote_op *undo = remote_op_new(r, t);
    undo->result = result;
    t->undoing = true;
    remote_ticket_turn(r, t, REMOTE_ASKED);
    t->due = t->refresh = t->head.deadline = CLOCK_NEVER;
    remote_ticket_schedule(r, t);
    remote_send_undo(r, t, acquire_undone, undo);
}

/* A claim that is under way may have been joined to what its lock owner holds, and be weaker than that was: then it
 * cannot be undone any more when others have been let in.  Else it is undone before its end is told. */
bool remote_cancel(struct backend *b, struct backend_ticket *ticket)
{
    struct remote *r = (struct remote *)b;
    struct remote_ticket *t = (struct remote_ticket *)ticket;
    t->cancelled = t->undoing ||
                   (t->asked && remote_ticket_has_kin(t, (struct backend_identity){.lock_owner = t->lock_owner})) ||
                   (t->unknown && remote_ticket_joins(t));
    if (!t->cancelled) {
        remote_send_release(r, t, "", NULL, NULL);
        remote_ticket_free(r, t);
        return true;
    }
    if (!t->asked && !t->undoing) {
        acquire_undo(r, t, BACKEND_UNREACHABLE);
    }
    return false;
}

/* --- granted --- */

/* It does not hold yet.  The ttl may have been changed since it was asked for. */
static void acquire_granted(struct remote *r, struct remote_ticket *t, int64_t ttl, const struct remote_answer *grant)
{
    clock_ms now = clock_now(), deadline = remote_deadline(grant->sent, MIN(ttl, t->head.ttl));
    bool late = deadline - now < MIN(ttl, t->head.ttl) / 8; /* a renewal might not be answered before it is over */
    if (late && !t->cancelled && (t->wait || t->late++ < REMOTE_LATE_MAX)) {
        acquire_ask(r, t);
        return;
    }
    if (deadline <= now && remote_ticket_joins(t)) {
        acquire_undo(r, t, BACKEND_UNREACHABLE);
        return;
    }
    if (deadline <= now) {
        remote_send_release(r, t, "", NULL, NULL);
        acquire_refused(r, t, BACKEND_UNREACHABLE, NULL);
        return;
    }
    remote_ticket_adopt(r, t, grant->token);
    t->head.fence = grant->fence;
    remote_ticket_segments(t, grant->segments);
    acquire_set_given_name(t, grant->leaf);
    t->handed = false;
    t->refresh = CLOCK_NEVER;
    remote_ticket_turn(r, t, REMOTE_HELD);
    t->head.acquired = now;
    if (t->place->sequence && !t->acquired) { /* its term runs while it waits, and is renewed for its own reasons */
        t->head.deadline = MIN(t->head.deadline, deadline);
    } else {
        remote_ticket_start_term(t, now, deadline);
    }
    remote_ticket_schedule(r, t);
    if (ttl != t->head.ttl) {
        remote_extend(r, t);
    }
    if (t->place->held > 1 && !t->place->sequence) {
        remote_doubt(r, t->place, t);
    }
    if (t->acquired) {
        acquire_told(t, BACKEND_OK);
    } else {
        r->events->granted(r->context, &t->head);
    }
}

/* The first that waits is there when the holder's term has ended, or a stranger has let go. */
static void acquire_look_ahead(struct remote *r, struct remote_ticket *t, const struct remote_answer *answer)
{
    bool soon = answer->rank == 0 && answer->wait >= 0 && answer->wait < remote_pause(t);
    t->refresh = soon ? clock_now() + MAX(answer->wait + 1, REMOTE_REFRESH_MIN) : CLOCK_NEVER;
    remote_ticket_schedule(r, t);
    if (answer->rank == 0 && answer->foreign && !t->place->watched) {
        t->place->watched = true;
        r->store->watch(r, t);
    }
}

void remote_beaten(struct remote *r, const char *token, const struct remote_answer *answer)
{
    struct remote_ticket *t = remote_ticket_find(r, token);
    if (!t || t->state != REMOTE_WAITING) {
        return;
    }
    if (answer->rank < 0) {
        remote_refresh(r, t);
    } else {
        acquire_look_ahead(r, t, answer);
    }
}

/* It has been told nothing yet that could not be taken back. */
static void acquire_give_up(struct remote *r, struct remote_ticket *t, enum backend_result result)
{
    if (t->acquired) {
        remote_send_release(r, t, "", NULL, NULL);
    }
    acquire_refused(r, t, result, NULL);
}

static void acquire_queued(struct remote *r, struct remote_ticket *t, const struct remote_answer *answer)
{
    clock_ms now = clock_now();
    if (t->cancelled) {
        acquire_give_up(r, t, BACKEND_UNREACHABLE);
        return;
    }
    t->head.fence = answer->fence;
    acquire_set_given_name(t, answer->leaf);
    remote_ticket_turn(r, t, REMOTE_WAITING);
    if (t->acquired) {
        remote_ticket_start_term(t, now,
                                 remote_deadline(now, t->head.ttl)); /* its life in the store is another matter */
    }
    t->spoke = answer->sent;
    r->beat = MIN(r->beat, t->spoke + remote_pause(t));
    acquire_look_ahead(r, t, answer);
    if (t->acquired && remote_deadlocked(r, t)) {
        acquire_give_up(r, t, BACKEND_DEADLOCK);
        return;
    }
    if (t->handed) {
        remote_refresh(r, t);
    }
    if (t->acquired) {
        acquire_told(t, BACKEND_QUEUED);
    }
}

static void acquire_failed(struct remote *r, struct remote_ticket *t, const struct remote_answer *answer)
{
    if ((t->acquired || t->cancelled) && t->unknown && remote_ticket_joins(t)) {
        acquire_undo(r, t, answer->result);
        return;
    }
    if (t->acquired) {
        if (remote_is_unknown(answer) || answer->result == BACKEND_DAMAGED) { /* the latter may have done a part */
            remote_send_release(r, t, "", NULL, NULL);
        }
        acquire_refused(r, t, answer->result, NULL);
        return;
    }
    if (answer->result == BACKEND_DAMAGED || t->cancelled) { /* the first for nobody knows how long */
        remote_end(r, t, BACKEND_LOST, true);
        return;
    }
    if (t->state == REMOTE_CLAIMED) {
        remote_ticket_turn(r, t, REMOTE_WAITING);
    }
    t->refresh = clock_now() + REMOTE_RENEW_RETRY;
    remote_ticket_schedule(r, t);
}

/* Whether its lock owner has given back something behind it, which may be what it was joined to. */
static bool acquire_is_outdated(const struct remote_op *asked, const struct remote_ticket *t)
{
    const struct remote_op *op;
    if (!t->lock_owner) {
        return false;
    }
    LIST_FOREACH(op, &asked->r->ops, link) {
        bool release = op->procedure == REMOTE_RELEASE || op->procedure == REMOTE_RELEASE_RANGE;
        if (release && op->claim.lock_owner == t->lock_owner && op->serial > asked->serial &&
            strcmp(op->name, t->place->name) == 0) {
            return true;
        }
    }
    return false;
}

static void acquire_answered(struct remote_op *op, const struct remote_answer *answer)
{
    struct remote *r = op->r;
    struct remote_ticket *t = remote_ticket_find(r, op->token);
    int64_t ttl = op->ttl;
    bool outdated = acquire_is_outdated(op, t);
    t->asked = NULL;
    t->unknown = remote_is_unknown(answer);
    remote_op_free(op);
    if (answer->outcome != REMOTE_ANSWERED) {
        acquire_failed(r, t, answer);
    } else if (answer->result == BACKEND_OK && outdated) {
        acquire_ask(r, t);
    } else if (answer->result == BACKEND_OK) {
        acquire_granted(r, t, ttl, answer);
    } else if (answer->result == BACKEND_QUEUED) {
        acquire_queued(r, t, answer);
    } else if (answer->repeated && remote_ticket_joins(t)) { /* an earlier try may have been granted */
        acquire_undo(r, t, answer->result);
    } else {
        acquire_refused(r, t, answer->result, answer->holder);
    }
}

static void acquire_ask(struct remote *r, struct remote_ticket *t)
{
    t->asked = remote_op_new(r, t);
    t->asked->ttl = t->head.ttl;
    t->request = remote_op_send(t->asked, t, REMOTE_ACQUIRE, acquire_answered, 0);
}

void remote_refresh(struct remote *r, struct remote_ticket *t)
{
    if (t->asked) {
        return; /* its answer will tell what to do */
    }
    if (t->handed) {
        remote_ticket_turn(r, t, REMOTE_CLAIMED);
    }
    t->handed = false;
    acquire_ask(r, t);
}

void remote_acquire(struct remote *r, struct remote_ticket *t, backend_acquire_done *done, void *arg)
{
    t->acquired = done;
    t->arg = arg;
    acquire_ask(r, t);
}
