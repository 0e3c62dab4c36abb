/* tickets: releases, renews, sets and converts tickets; the table of procedures. */
#include <string.h>

#include "backend/redlock/private.h"

#define TICKETS_TRIES 2 /* repetitions if a majority answers without a verdict */

static void tickets_answer(struct redlock_flow *flow, enum backend_result result, clock_ms sent)
{
    struct remote_request *request = flow->request;
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = result, .sent = sent};
    bool known = result != BACKEND_UNREACHABLE;
    answer.outcome = known ? REMOTE_ANSWERED : request->procedure == REMOTE_RENEW ? REMOTE_REFUSED : REMOTE_UNKNOWN;
    flow->request = NULL;
    request->on_answer(request, &answer);
    redlock_flow_end(flow, true);
}

static void tickets_on_settled(struct redlock_flow *flow)
{
    tickets_answer(flow, flow->result, clock_now());
}

/* Answers without a request, but from the loop like any answer. */
static void tickets_answer_soon(struct redlock_flow *flow, enum backend_result result)
{
    flow->result = result;
    redlock_flow_continue_later(flow, 0, tickets_on_settled);
}

/* Is there time for one more try? */
static bool tickets_has_time_left(const struct redlock_flow *flow)
{
    return clock_now() + REDLOCK_RETRY_MAX < flow->tried_until;
}

/* --- release --- */

static void tickets_send_release(struct redlock_flow *flow);

/* No server of a majority had it, or can have forgotten it or ended it in an earlier attempt. */
static bool tickets_was_gone(const struct redlock_flow *flow)
{
    bool gone = flow->tries == 0;
    for (unsigned i = 0; i < flow->r->count; i++) {
        const struct redlock_ballot *ballot = &flow->poll->ballots[i];
        bool ended = redlock_ballot_number(ballot, 1) != 0;
        gone = gone && (!ballot->words || !(ended || ballot->held_off || ballot->repeated));
    }
    return gone;
}

static void tickets_on_released(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    enum vote_verdict verdict = vote_verdict(&flow->poll->vote, "ok", NULL);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict != VOTE_WON && tickets_has_time_left(flow)) {
        flow->tries++;
        redlock_poll_close(flow->poll, true);
        redlock_flow_continue_later(flow, REDLOCK_RETRY_MAX, tickets_send_release);
        return;
    }
    char *name = g_strdup(flow->name);
    tickets_answer(flow,
                   verdict != VOTE_WON      ? BACKEND_UNREACHABLE
                   : tickets_was_gone(flow) ? BACKEND_MISSING
                                            : BACKEND_OK,
                   redlock_poll_sent(flow->poll));
    struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, name);
    if (!lock) {
        g_hash_table_remove(r->changes, name);
    } else if (verdict == VOTE_WON) {
        remote_retry_waiter(&r->remote, lock);
    }
    g_free(name);
}

static void tickets_on_passed(struct redlock_flow *flow)
{
    if (vote_verdict(&flow->poll->vote, "ok", NULL) != VOTE_OPEN) {
        tickets_answer(flow, BACKEND_OK, clock_now()); /* if it failed, the next renewal writes the record */
    }
}

/* Another ticket still holds with the key: its record now describes that one.  The key is not extended. */
static void tickets_pass_key_to(struct redlock_flow *flow, const struct remote_ticket *left)
{
    struct redlock *r = flow->r;
    struct redlock_hold *hold = redlock_hold_find(r, left->id);
    if (!hold || left->state != REMOTE_HELD) {
        tickets_answer_soon(flow, BACKEND_OK);
        return;
    }
    hold->revision = ++r->revisions;
    struct redlock_record record = redlock_hold_record(left, hold->revision);
    redlock_hold_send(flow, &record, true, tickets_on_passed);
}

static void tickets_send_release(struct redlock_flow *flow)
{
    char *digest = redlock_flow_digest(flow->id);
    redlock_poll_fill_release(flow->r, flow->name, digest, "", 0, 0, flow->id);
    redlock_flow_poll(flow, REDLOCK_RELEASE, flow->r->remote.timeout, tickets_on_released);
    g_free(digest);
}

static void tickets_release(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    const struct remote_ticket *left = redlock_hold_find_sharing(r, flow->name, flow->request->id);
    g_strlcpy(flow->id, redlock_hold_value(r, flow->request->id), sizeof flow->id);
    g_hash_table_remove(r->holds, flow->request->id);
    g_hash_table_remove(r->tries, flow->request->id);
    if (left) {
        tickets_pass_key_to(flow, left);
    } else {
        tickets_send_release(flow);
    }
}

/* --- holders --- */

static void tickets_on_renewed(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    char id[REMOTE_ID_SIZE];
    g_strlcpy(id, flow->request->id, sizeof id);
    const struct remote_ticket *t = remote_ticket_find(&r->remote, id);
    enum vote_verdict verdict = redlock_hold_verdict(flow);
    if (verdict == VOTE_OPEN) {
        return;
    }
    bool late = t && clock_now() >= t->head.deadline; /* another may have held it since */
    tickets_answer(flow,
                   verdict == VOTE_LOST || (verdict == VOTE_WON && late) ? BACKEND_STALE
                   : verdict == VOTE_WON                                 ? BACKEND_OK
                                                                         : BACKEND_UNREACHABLE,
                   redlock_poll_sent(flow->poll));
    if (!remote_ticket_find(&r->remote, id)) {
        g_hash_table_remove(r->holds, id);
    }
}

static void tickets_write(struct redlock_flow *flow);

/* The change is in force if a majority has it; otherwise the next renewal writes the earlier record. */
static void tickets_on_written(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    struct redlock_hold *hold = redlock_hold_find(r, flow->request->id);
    enum vote_verdict verdict = redlock_hold_verdict(flow);
    if (verdict == VOTE_OPEN) {
        return;
    }
    bool answered = redlock_poll_answers(flow->poll) >= vote_majority(r->count);
    if (verdict == VOTE_AWAY && ((answered && flow->tries++ < TICKETS_TRIES) || tickets_has_time_left(flow))) {
        redlock_poll_close(flow->poll, true);
        redlock_flow_continue_later(flow, REDLOCK_RETRY, tickets_write);
        return;
    }
    if (hold) {
        hold->revision = verdict == VOTE_WON ? flow->revision : ++r->revisions;
    }
    tickets_answer(flow,
                   verdict == VOTE_WON    ? BACKEND_OK
                   : verdict == VOTE_LOST ? BACKEND_STALE
                                          : BACKEND_UNREACHABLE,
                   redlock_poll_sent(flow->poll));
}

static void tickets_write(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    struct remote_request *request = flow->request;
    const struct remote_ticket *t = remote_ticket_find(&r->remote, request->id);
    const struct redlock_hold *hold = redlock_hold_find(r, request->id);
    if (!t || !hold) {
        tickets_answer_soon(flow, BACKEND_STALE);
        return;
    }
    struct redlock_record record = redlock_hold_record(t, hold->revision);
    g_strlcpy(flow->id, hold->id, sizeof flow->id);
    if (request->procedure != REMOTE_RENEW) {
        record.revision = flow->revision = ++r->revisions;
        record.meta = request->update.change.set & BACKEND_SET_META ? request->update.change.meta : record.meta;
        record.content =
            request->update.change.set & BACKEND_SET_CONTENT ? request->update.change.content : record.content;
    }
    if (request->procedure == REMOTE_CONVERT) {
        record.kind = request->update.claim.kind;
        record.ttl = request->update.claim.ttl;
        r->longest = MAX(r->longest, MIN(record.ttl, REDLOCK_LONGEST));
    }
    redlock_hold_send(flow, &record, true,
                      request->procedure == REMOTE_RENEW ? tickets_on_renewed : tickets_on_written);
}

/* A waiter is known only to its mount. */
static void tickets_convert(struct redlock_flow *flow)
{
    const struct remote_ticket *t = remote_ticket_find(&flow->r->remote, flow->request->id);
    if (t && t->state != REMOTE_HELD) {
        tickets_answer_soon(flow, BACKEND_OK);
    } else {
        tickets_write(flow);
    }
}

/* --- many renewals --- */

/* Its record is not about to change, and describes no other ticket. */
static bool tickets_may_be_in_batch(const struct remote_request *request, const struct remote_ticket *t)
{
    bool only = t && LIST_FIRST(&t->lock->tickets) == t && !LIST_NEXT(t, link);
    return request->procedure == REMOTE_RENEW && only && request->background_cost > 0 &&
           request->renewal.left == request->ttl && redlock_hold_find((struct redlock *)request->r, t->id);
}

static void tickets_renew_in_full(struct remote_request *request)
{
    tickets_write(redlock_flow_new((struct redlock *)request->r, request, request->name));
}

/* How many servers have renewed lock `i` of the batch, and how many have answered that they have not. */
static void tickets_count_renewed(const struct redlock_flow *flow, unsigned i, unsigned *ret_renewed,
                                  unsigned *ret_others)
{
    *ret_renewed = *ret_others = 0;
    for (unsigned server = 0; server < flow->r->count; server++) {
        const char *digits = redlock_ballot_text(&flow->poll->ballots[server], 1);
        bool answered = strlen(digits) == flow->renewals->count;
        *ret_renewed += answered && digits[i] == '1';
        *ret_others += answered && digits[i] != '1';
    }
}

/* Each lock is answered as soon as a majority has renewed it, since a server that is cut off may take longer than a
 * short term has left.  A lock that a server has not renewed is renewed alone, which gives it the key again, or finds
 * that the lock is lost. */
static void tickets_on_batch(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    struct remote_batch *batch = flow->renewals;
    const struct redlock_poll *poll = flow->poll;
    clock_ms sent = redlock_poll_sent(poll);
    unsigned majority = vote_majority(r->count), renewed, others;
    for (unsigned i = 0; i < batch->count; i++) {
        struct remote_request *request = batch->requests[i];
        struct remote_ticket *t = remote_ticket_find(&r->remote, batch->ids[i]); /* ids[i] is "" if it went on alone */
        tickets_count_renewed(flow, i, &renewed, &others);
        if (!request) {
            if (others > 0 && poll->open == 0 && t && t->state == REMOTE_HELD) {
                remote_verify_in_background(&r->remote, t); /* the server answered behind the majority */
            }
        } else if (others > 0) {
            batch->requests[i] = NULL;
            batch->ids[i][0] = '\0';
            tickets_renew_in_full(request);
        } else if (renewed >= majority || renewed + poll->open < majority) {
            bool late = t && clock_now() >= t->head.deadline; /* another may have held it since */
            batch->requests[i] = NULL;
            remote_request_answer(request,
                                  renewed < majority ? BACKEND_UNREACHABLE
                                  : late             ? BACKEND_STALE
                                                     : BACKEND_OK,
                                  sent);
        }
    }
    if (poll->open == 0) {
        remote_batch_free(batch);
        redlock_flow_end(flow, true);
    }
}

void redlock_tickets_renew(struct remote *remote, struct remote_batch *batch)
{
    struct redlock *r = (struct redlock *)remote;
    struct redlock_flow *flow = redlock_flow_new(r, NULL, NULL);
    int64_t shortest = INT64_MAX;
    flow->renewals = batch;
    for (unsigned i = 0; i < batch->count; i++) {
        redlock_poll_key(r, 0, batch->requests[i]->name);
        redlock_poll_key(r, 'R', batch->requests[i]->name);
        redlock_poll_key(r, 'N', batch->requests[i]->name);
    }
    redlock_poll_fill_notes(r);
    for (unsigned i = 0; i < batch->count; i++) {
        const struct remote_request *request = batch->requests[i];
        const struct remote_ticket *t = remote_ticket_find(remote, request->id);
        const struct redlock_hold *hold = redlock_hold_find(r, request->id);
        redlock_poll_text(r, hold ? hold->id : "");
        redlock_poll_number(r, request->ttl);
        redlock_poll_number(r, hold ? (int64_t)hold->revision : 0);
        redlock_poll_number(r, t ? (int64_t)t->head.fence : 0);
        shortest = MIN(shortest, request->ttl);
    }
    redlock_flow_poll(flow, REDLOCK_RENEW, redlock_flow_timeout(r, shortest), tickets_on_batch);
}

/* --- procedures --- */

uint64_t redlock_tickets_send(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
    static void (*const begin[REMOTE_PROCEDURES])(struct redlock_flow * flow) = {
        [REMOTE_ACQUIRE] = redlock_acquire_begin,
        [REMOTE_RELEASE] = tickets_release,
        [REMOTE_RENEW] = tickets_write,
        [REMOTE_SET] = tickets_write,
        [REMOTE_CONVERT] = tickets_convert,
        [REMOTE_REVOKE] = redlock_revoke,
        [REMOTE_TEST] = redlock_test,
        [REMOTE_STAT] = redlock_stat,
        [REMOTE_LIST] = redlock_list,
        [REMOTE_MOUNTS] = redlock_mounts,
        [REMOTE_MKDIR] = redlock_mkdir,
        [REMOTE_RMDIR] = redlock_rmdir,
        [REMOTE_SET_DIRECTORY] = redlock_set_directory,
    };
    struct redlock *r = (struct redlock *)request->r;
    if (tickets_may_be_in_batch(request, t)) {
        remote_batch_add(request->r, request);
        return 0;
    }
    struct redlock_flow *flow = redlock_flow_new(r, request, t ? t->lock->name : request->name);
    flow->tried_until = timeout ? clock_now() + timeout : 0;
    begin[request->procedure](flow);
    return (uint64_t)(uintptr_t)flow;
}

void redlock_tickets_forget(struct remote *remote, uint64_t request)
{
    (void)remote;
    redlock_flow_end((struct redlock_flow *)(uintptr_t)request, false); /* a pending request's flow exists */
}
