/* revoke: ends holders by name, of any mount, by removing their keys.
 *
 * Each server sends a message to the holder's mount, which otherwise notices at its next renewal.  The answer waits for
 * that mount's confirmation, so that afterwards no mount shows the lock.  A mount that is stopped or cut off delays it
 * by REVOKE_CONFIRM_MAX, and so does one that is gone if there are others: the servers do not know whose a token is.
 * The keys of a holder with a guard stay until the guard has run out, with another value: see release.lua.
 */
#include <string.h>

#include "backend/redlock/private.h"

#define REVOKE_CONFIRM_MAX 1000 /* ms */

static void revoke_answer(struct redlock_flow *flow, enum backend_result result)
{
    struct remote_request *request = flow->request;
    redlock_flow_end(flow, true);
    remote_request_answer(request, result, 0);
}

static void revoke_on_confirmed(struct redlock_flow *flow)
{
    revoke_answer(flow, BACKEND_OK);
}

/* Has a mount other than this one got the message that the holder ended? */
static bool revoke_was_heard(const struct redlock_flow *flow)
{
    int64_t most = 0;
    for (unsigned i = 0; i < flow->r->count; i++) {
        most = MAX(most, redlock_ballot_number(&flow->poll->ballots[i], 2));
    }
    return most > 1; /* this one is among them */
}

static void revoke_look(struct redlock_flow *flow);

static void revoke_on_released(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    enum vote_verdict verdict = vote_verdict(&flow->poll->vote, "ok", NULL);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict != VOTE_WON) {
        revoke_answer(flow, BACKEND_UNREACHABLE);
        return;
    }
    bool ended = redlock_ballot_number(redlock_poll_best(flow->poll, "ok", 1), 1) != 0;
    bool own = redlock_hold_report(r, flow->id, REMOTE_ENDED, flow->request->fence ? BACKEND_RELEASED : BACKEND_BROKEN);
    if (!ended && !flow->revoke.holder_read) { /* this mount's own hold had ended unnoticed: another may hold by now */
        revoke_look(flow);
        return;
    }
    struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, flow->name);
    if (lock) {
        remote_retry_waiter(&r->remote, lock);
    }
    bool another = flow->revoke.holder_read && !own && *flow->id && !redlock_is_guard(flow->id);
    if (another && !flow->revoke.confirmed && revoke_was_heard(flow)) {
        flow->revoke.released = true;
        redlock_poll_close(flow->poll, true);
        redlock_flow_continue_later(flow, REVOKE_CONFIRM_MAX, revoke_on_confirmed);
    } else {
        revoke_answer(flow, BACKEND_OK);
    }
}

void redlock_revoke_confirmed(struct redlock *r, const char *id)
{
    struct redlock_flow *flow;
    LIST_FOREACH(flow, &r->flows, link) {
        if (flow->on_answer == revoke_on_released && strcmp(flow->id, id) == 0) {
            flow->revoke.confirmed = true;
            if (flow->revoke.released) {
                redlock_flow_continue_later(flow, 0, revoke_on_confirmed);
            }
        }
    }
}

static void revoke_release(struct redlock_flow *flow, const char *digest, const struct backend_info *holder)
{
    bool guards = holder->kind != BACKEND_PROVISIONAL && !redlock_is_guard(flow->id);
    redlock_poll_fill_release(flow->r, flow->name, digest, flow->request->fence ? "released" : "broken", holder->fence,
                              guards ? backend_parse_guard(holder->meta) : 0, flow->id);
    redlock_flow_poll(flow, REDLOCK_RELEASE, flow->r->remote.timeout, revoke_on_released);
}

/* Must this holder end?  If not, flow->result says why. */
static bool revoke_matches(struct redlock_flow *flow, const struct backend_info *holder)
{
    bool stale = flow->request->fence && holder->fence != flow->request->fence;
    bool guard = redlock_is_guard(flow->id);
    if (stale || (flow->request->match && (guard || !backend_matches(flow->request->match, holder->meta)))) {
        flow->result = stale ? BACKEND_STALE : BACKEND_BUSY;
        return false;
    }
    return true;
}

static void revoke_on_looked(struct redlock_flow *flow)
{
    const char *word;
    enum vote_verdict verdict = vote_verdict(&flow->poll->vote, NULL, &word);
    struct backend_info holder = {.type = BACKEND_LOCK};
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict != VOTE_WON || !g_str_has_prefix(word, "held ")) {
        revoke_answer(flow, verdict == VOTE_AWAY ? BACKEND_UNREACHABLE : BACKEND_MISSING);
        return;
    }
    redlock_query_describe(flow, word, &holder);
    g_strlcpy(flow->id, redlock_ballot_text(redlock_poll_best(flow->poll, word, 9), 3), sizeof flow->id);
    char *digest = g_strdup(word + strlen("held "));
    if (revoke_matches(flow, &holder)) {
        revoke_release(flow, digest, &holder);
    } else {
        revoke_answer(flow, flow->result);
    }
    g_free(digest);
    remote_info_clear(&holder);
}

static void revoke_look(struct redlock_flow *flow)
{
    flow->revoke.holder_read = true;
    redlock_query_fill(flow->r, flow->name);
    redlock_flow_poll(flow, REDLOCK_LOOK, flow->r->remote.timeout, revoke_on_looked);
}

static void revoke_on_refused(struct redlock_flow *flow)
{
    revoke_answer(flow, flow->result);
}

void redlock_revoke(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    struct remote_ticket *t = redlock_hold_find_holder(r, flow->name);
    struct backend_info holder = {.type = BACKEND_LOCK};
    if (!t || !redlock_hold_find(r, t->id)) {
        revoke_look(flow);
        return;
    }
    /* a lock of this mount needs no read, so a following request cannot overtake this one */
    redlock_query_describe_ticket(t, &holder);
    g_strlcpy(flow->id, redlock_hold_value(r, t->id), sizeof flow->id);
    if (revoke_matches(flow, &holder)) {
        char *digest = redlock_flow_digest(flow->id);
        revoke_release(flow, digest, &holder);
        g_free(digest);
    } else {
        redlock_flow_continue_later(flow, 0, revoke_on_refused);
    }
}
