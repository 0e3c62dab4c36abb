/* convert: converts tickets, and reverts conversions whose outcome is unknown. */
#include <string.h>

#include "backend/remote/remote.h"

static void convert_apply(struct remote_ticket *t, const struct remote_request *request, clock_ms sent)
{
    t->head.user = request->update.claim.user;
    t->head.kind = (uint8_t)request->update.claim.kind;
    t->head.mode = (uint8_t)request->update.claim.mode;
    t->head.ttl = request->update.claim.ttl;
    t->handle = request->update.claim.handle;
    t->lock_owner = request->update.claim.lock_owner;
    t->start = request->update.claim.start;
    t->end = request->update.claim.end;
    t->due_after = request->update.claim.due;
    g_clear_pointer(&t->segments, g_array_unref);
    if (t->lock_owner) {
        struct backend_segment s = {.start = t->start, .end = t->end, .mode = request->update.claim.mode};
        t->segments = g_array_append_val(g_array_new(FALSE, FALSE, sizeof s), s);
    }
    remote_ticket_start_term(t, clock_now(), remote_deadline(sent, t->head.ttl));
    remote_ticket_change(t, &request->update.change);
}

static void convert_on_answer(struct remote_request *request, const struct remote_answer *answer);

static void convert_send(struct remote_request *request, struct remote_ticket *t, const struct backend_claim *claim,
                         int64_t timeout)
{
    struct backend_change c = {.set =
                                   (claim->meta ? BACKEND_SET_META : 0u) | (claim->content ? BACKEND_SET_CONTENT : 0u),
                               .meta = claim->meta,
                               .content = claim->content};
    remote_request_set_change(request, &c);
    request->update.claim = *claim;
    request->update.claim.meta = request->update.claim.content = NULL;
    request->lock_owner = request->update.claim.lock_owner = claim->kind == BACKEND_FCNTL ? claim->lock_owner : 0;
    remote_request_send(request, t, convert_on_answer, timeout);
}

static bool convert_makes_weaker(const struct remote_request *request, const struct remote_ticket *t)
{
    bool part = request->update.claim.lock_owner &&
                (request->update.claim.start > 0 || request->update.claim.end < BACKEND_RANGE_MAX) &&
                request->r->backend.features & BACKEND_CAN_RANGE;
    return part || (request->update.claim.mode == BACKEND_SHARED && t->head.mode == BACKEND_EXCLUSIVE);
}

/* The store must not have the ticket as shared, say, while this mount relies on it as exclusive.  So the caller gets no
 * result until the ticket is as before.  The byte ranges of a lock owner cannot be restored in one request: the lock is
 * lost. */
static void convert_revert(struct remote *r, struct remote_ticket *t, struct remote_request *reverted, bool weaker)
{
    int64_t left = t->head.deadline == CLOCK_NEVER ? REMOTE_RELEASE_MAX : t->head.deadline - clock_now();
    struct backend_claim claim = {
        .user = t->head.user,
        .kind = (enum backend_kind)t->head.kind,
        .mode = (enum backend_mode)t->head.mode,
        .handle = t->handle,
        .lock_owner = t->lock_owner,
        .start = t->start,
        .end = t->end,
        .ttl = t->head.ttl,
        .due = t->due_after,
        .meta = t->meta,
        .content = t->head.content,
    };
    bool ends = left > 0 && (t->lock_owner || (reverted && reverted->update.undo_failed));
    if (ends) {
        remote_end_ticket(r, t, BACKEND_LOST, true);
    }
    if (left <= 0 || ends) {
        if (reverted) {
            remote_request_finish(reverted, BACKEND_UNREACHABLE);
        }
        return;
    }
    struct remote_request *back = remote_request_new(r, REMOTE_CONVERT, t, NULL);
    back->update.reverts = true;
    back->update.weaker = weaker;
    back->update.reverted = reverted;
    if (reverted) {
        left = weaker ? MIN(left, REMOTE_UNDO_MAX) : 0;
    }
    convert_send(back, t, &claim, left);
}

/* If the store may have let others in, the lock is lost unless the answer comes in time; otherwise this tries again. */
static void convert_on_reverted(struct remote_request *request, const struct remote_answer *answer)
{
    struct remote *r = request->r;
    struct remote_request *reverted = request->update.reverted;
    struct remote_ticket *t = remote_ticket_find(r, request->id);
    bool unknown = remote_outcome_is_unknown(answer) || answer->outcome == REMOTE_NOT_SENT,
         weaker = request->update.weaker;
    if (t && answer->result == BACKEND_OK) {
        convert_apply(t, request, answer->sent);
        remote_ticket_schedule(r, t);
    } else if (t && answer->result == BACKEND_BUSY && reverted &&
               !unknown) { /* others share it: the conversion holds */
        reverted->update.undo_failed = true;
        remote_request_free(request);
        remote_request_send(reverted, t, convert_on_answer, 0);
        return;
    } else if (t && unknown && !weaker) {
        convert_revert(r, t, NULL, false);
    } else if (t) {
        remote_end_ticket(r, t, BACKEND_LOST, true);
    }
    remote_request_free(request);
    if (reverted) {
        remote_request_finish(reverted, BACKEND_UNREACHABLE);
    }
}

static void convert_on_answer(struct remote_request *request, const struct remote_answer *answer)
{
    struct remote *r = request->r;
    struct remote_ticket *t = remote_ticket_find(r, request->id);
    enum backend_result result = answer->result;
    if (request->update.reverts) {
        convert_on_reverted(request, answer);
        return;
    }
    if (t && remote_outcome_is_unknown(answer)) {
        convert_revert(r, t, request, convert_makes_weaker(request, t));
        return;
    }
    if (t && result == BACKEND_STALE) {
        remote_verify(r, t->lock, NULL);
    } else if (t && result == BACKEND_OK) {
        convert_apply(t, request, answer->sent);
        remote_ticket_schedule(r, t);
        result = remote_ticket_is_expired(t) ? BACKEND_STALE : BACKEND_OK; /* the answer came after its deadline */
    }
    remote_request_finish(request, result);
}

void remote_convert(struct remote *r, struct remote_ticket *t, const struct backend_claim *claim, backend_done *done,
                    void *arg)
{
    if (remote_ticket_is_expired(t)) {
        done(arg, BACKEND_STALE);
        return;
    }
    struct remote_request *request = remote_request_new(r, REMOTE_CONVERT, t, NULL);
    request->done = done;
    request->arg = arg;
    convert_send(request, t, claim, 0);
}
