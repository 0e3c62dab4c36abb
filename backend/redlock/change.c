/* change: what is done to tickets: the procedures of remote.h. */
#include <string.h>

#include "backend/redlock/private.h"

#define CHANGE_TRIES 2 /* more, where a majority answers, but is not at one */

static void change_answer(struct redlock_call *call, enum backend_result result, clock_ms sent)
{
    struct remote_request *request = call->request;
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = result, .sent = sent};
    bool known = result != BACKEND_UNREACHABLE;
    answer.outcome = known ? REMOTE_ANSWERED : request->procedure == REMOTE_RENEW ? REMOTE_REFUSED : REMOTE_UNKNOWN;
    call->request = NULL;
    request->on_answer(request, &answer);
    redlock_call_end(call, true);
}

static void change_on_settled(struct redlock_call *call)
{
    change_answer(call, call->result, clock_now());
}

/* Nobody has to be asked for it; it is told from the loop, as all is. */
static void change_settle(struct redlock_call *call, enum backend_result result)
{
    call->result = result;
    redlock_call_later(call, 0, change_on_settled);
}

/* Is there time for one more try? */
static bool change_may_try_again(const struct redlock_call *call)
{
    return clock_now() + REDLOCK_RETRY_MAX < call->tried_until;
}

/* --- release --- */

static void change_send_release(struct redlock_call *call);

static void change_on_released(struct redlock_call *call)
{
    struct redlock *r = call->r;
    enum vote_verdict verdict = vote_verdict(&call->poll->vote, "ok", NULL);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict != VOTE_WON && change_may_try_again(call)) {
        redlock_poll_close(call->poll, true);
        redlock_call_later(call, REDLOCK_RETRY_MAX, change_send_release);
        return;
    }
    char *name = g_strdup(call->name);
    change_answer(call, verdict == VOTE_WON ? BACKEND_OK : BACKEND_UNREACHABLE, redlock_poll_sent(call->poll, "ok"));
    struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, name);
    if (!lock) {
        g_hash_table_remove(r->changes, name);
    } else if (verdict == VOTE_WON) {
        remote_retry_waiter(&r->remote, lock);
    }
    g_free(name);
}

static void change_on_left(struct redlock_call *call)
{
    if (vote_verdict(&call->poll->vote, "ok", NULL) != VOTE_OPEN) {
        change_answer(call, BACKEND_OK, clock_now()); /* what is left is told at its next renewal, if not now */
    }
}

/* What others are told of the key is what is left of those that hold with it.  It is not extended. */
static void change_leave_to(struct redlock_call *call, const struct remote_ticket *left)
{
    struct redlock *r = call->r;
    struct redlock_hold *hold = redlock_keep_hold(r, left->id);
    if (!hold || left->state != REMOTE_HELD) {
        change_settle(call, BACKEND_OK);
        return;
    }
    hold->revision = ++r->revisions;
    struct redlock_record record = redlock_keep_record(left, hold->revision);
    redlock_keep_poll(call, &record, true, change_on_left);
}

static void change_send_release(struct redlock_call *call)
{
    char *digest = redlock_call_digest(call->id);
    redlock_poll_fill_release(call->r, call->name, digest, "", 0, 0);
    redlock_call_poll(call, REDLOCK_RELEASE, call->r->timeout, change_on_released);
    g_free(digest);
}

static void change_release(struct redlock_call *call)
{
    struct redlock *r = call->r;
    const struct remote_ticket *left = redlock_keep_other(r, call->name, call->request->id);
    g_strlcpy(call->id, redlock_keep_token(r, call->request->id), sizeof call->id);
    g_hash_table_remove(r->holds, call->request->id);
    g_hash_table_remove(r->tries, call->request->id);
    if (left) {
        change_leave_to(call, left);
    } else {
        change_send_release(call);
    }
}

/* --- what is held --- */

static void change_on_renewed(struct redlock_call *call)
{
    struct redlock *r = call->r;
    char id[REMOTE_ID_SIZE];
    g_strlcpy(id, call->request->id, sizeof id);
    const struct remote_ticket *t = remote_ticket_find(&r->remote, id);
    enum vote_verdict verdict = redlock_keep_verdict(call);
    if (verdict == VOTE_OPEN) {
        return;
    }
    bool late = t && clock_now() >= t->head.deadline; /* another may have held it since */
    change_answer(call,
                  verdict == VOTE_LOST || (verdict == VOTE_WON && late) ? BACKEND_STALE
                  : verdict == VOTE_WON                                 ? BACKEND_OK
                                                                        : BACKEND_UNREACHABLE,
                  redlock_poll_sent(call->poll, "ok"));
    if (!remote_ticket_find(&r->remote, id)) {
        g_hash_table_remove(r->holds, id);
    }
}

static void change_kept(struct redlock_call *call);

/* What is in force is what the servers have of before, unless a majority has the new. */
static void change_on_changed(struct redlock_call *call)
{
    struct redlock *r = call->r;
    struct redlock_hold *hold = redlock_keep_hold(r, call->request->id);
    enum vote_verdict verdict = redlock_keep_verdict(call);
    if (verdict == VOTE_OPEN) {
        return;
    }
    bool answered = redlock_poll_answers(call->poll) >= vote_majority(r->count);
    if (verdict == VOTE_AWAY && ((answered && call->tries++ < CHANGE_TRIES) || change_may_try_again(call))) {
        redlock_poll_close(call->poll, true);
        redlock_call_later(call, REDLOCK_RETRY, change_kept);
        return;
    }
    if (hold) {
        hold->revision = verdict == VOTE_WON ? call->revision : ++r->revisions;
    }
    change_answer(call,
                  verdict == VOTE_WON    ? BACKEND_OK
                  : verdict == VOTE_LOST ? BACKEND_STALE
                                         : BACKEND_UNREACHABLE,
                  redlock_poll_sent(call->poll, "ok"));
}

static void change_kept(struct redlock_call *call)
{
    struct redlock *r = call->r;
    struct remote_request *request = call->request;
    const struct remote_ticket *t = remote_ticket_find(&r->remote, request->id);
    const struct redlock_hold *hold = redlock_keep_hold(r, request->id);
    if (!t || !hold) {
        change_settle(call, BACKEND_STALE);
        return;
    }
    struct redlock_record record = redlock_keep_record(t, hold->revision);
    g_strlcpy(call->id, hold->id, sizeof call->id);
    if (request->verify_only) {
        request->ttl = MIN(redlock_keep_left(t), t->head.ttl - 1); /* by which the script knows it */
    }
    if (request->procedure != REMOTE_RENEW) {
        record.revision = call->revision = ++r->revisions;
        record.meta = request->change.set & BACKEND_SET_META ? request->change.meta : record.meta;
        record.content = request->change.set & BACKEND_SET_CONTENT ? request->change.content : record.content;
    }
    if (request->procedure == REMOTE_CONVERT) {
        record.kind = request->claim.kind;
        record.ttl = request->claim.ttl;
        r->longest = MAX(r->longest, MIN(record.ttl, REDLOCK_LONGEST));
    }
    redlock_keep_poll(call, &record, true, request->procedure == REMOTE_RENEW ? change_on_renewed : change_on_changed);
}

/* One that waits is known here only. */
static void change_convert(struct redlock_call *call)
{
    const struct remote_ticket *t = remote_ticket_find(&call->r->remote, call->request->id);
    if (t && t->state != REMOTE_HELD) {
        change_settle(call, BACKEND_OK);
    } else {
        change_kept(call);
    }
}

/* --- the call tier --- */

uint64_t redlock_change_call(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
    static void (*const begin[REMOTE_PROCEDURES])(struct redlock_call * call) = {
        [REMOTE_ACQUIRE] = redlock_acquire_begin,
        [REMOTE_RELEASE] = change_release,
        [REMOTE_RENEW] = change_kept,
        [REMOTE_SET] = change_kept,
        [REMOTE_CONVERT] = change_convert,
        [REMOTE_REVOKE] = redlock_revoke,
        [REMOTE_TEST] = redlock_test,
        [REMOTE_STAT] = redlock_stat,
        [REMOTE_LIST] = redlock_list,
        [REMOTE_MKDIR] = redlock_mkdir,
        [REMOTE_RMDIR] = redlock_rmdir,
        [REMOTE_SET_DIRECTORY] = redlock_set_directory,
    };
    struct redlock *r = (struct redlock *)request->r;
    struct redlock_call *call = redlock_call_new(r, request, t ? t->lock->name : request->name);
    call->tried_until = timeout ? clock_now() + timeout : 0;
    begin[request->procedure](call);
    return (uint64_t)(uintptr_t)call;
}

void redlock_change_forget(struct remote *remote, uint64_t request)
{
    (void)remote;
    redlock_call_end((struct redlock_call *)(uintptr_t)request, false); /* it is not answered, so it is there */
}
