/* revoke: ending holders by name, whosever they are: their keys are taken away.
 *
 * Who holds on another mount is told by a message of each server, or else notices when it renews.  The keys of one that
 * has a guard stay until that is over, under another token: see release.lua.
 */
#include <string.h>

#include "backend/redlock/private.h"

static void revoke_done(struct redlock_call *call, enum backend_result result)
{
    struct remote_request *request = call->request;
    redlock_call_end(call, true);
    remote_request_answer(request, result, 0);
}

static void revoke_look(struct redlock_call *call);

static void revoke_on_released(struct redlock_call *call)
{
    struct redlock *r = call->r;
    enum vote_verdict verdict = vote_verdict(&call->poll->vote, "ok", NULL);
    if (verdict == VOTE_OPEN) {
        return;
    }
    char *name = g_strdup(call->name);
    bool gone = verdict == VOTE_WON && redlock_ballot_number(redlock_poll_best(call->poll, "ok", 1), 1) == 0;
    if (verdict == VOTE_WON) {
        redlock_keep_tell(r, call->id, REMOTE_ENDED, call->request->fence ? BACKEND_RELEASED : BACKEND_BROKEN);
    }
    if (gone && !call->looked) { /* of this mount, which does not know yet that it was ended: another may hold */
        revoke_look(call);
        g_free(name);
        return;
    }
    revoke_done(call, verdict == VOTE_WON ? BACKEND_OK : BACKEND_UNREACHABLE);
    struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, name);
    if (lock) {
        remote_retry_waiter(&r->remote, lock);
    }
    g_free(name);
}

static void revoke_release(struct redlock_call *call, const char *digest, const struct backend_info *holder)
{
    bool guards = holder->kind != BACKEND_PROVISIONAL && !redlock_is_guard(call->id);
    redlock_poll_fill_release(call->r, call->name, digest, call->request->fence ? "released" : "broken", holder->fence,
                              guards ? backend_parse_guard(holder->meta) : 0);
    redlock_call_poll(call, REDLOCK_RELEASE, call->r->timeout, revoke_on_released);
}

/* Whether this holder is to end; if not, that has been told. */
static bool revoke_is_meant(struct redlock_call *call, const struct backend_info *holder)
{
    bool stale = call->request->fence && holder->fence != call->request->fence;
    bool guard = redlock_is_guard(call->id);
    if (stale || (call->request->match && (guard || !backend_matches(call->request->match, holder->meta)))) {
        call->result = stale ? BACKEND_STALE : BACKEND_BUSY;
        return false;
    }
    return true;
}

static void revoke_on_looked(struct redlock_call *call)
{
    const char *word;
    enum vote_verdict verdict = vote_verdict(&call->poll->vote, NULL, &word);
    struct backend_info holder = {.type = BACKEND_LOCK};
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict != VOTE_WON || !g_str_has_prefix(word, "held ")) {
        revoke_done(call, verdict == VOTE_AWAY ? BACKEND_UNREACHABLE : BACKEND_MISSING);
        return;
    }
    redlock_ask_describe(call, word, &holder);
    g_strlcpy(call->id, redlock_ballot_text(redlock_poll_best(call->poll, word, 9), 3), sizeof call->id);
    char *digest = g_strdup(word + strlen("held "));
    if (revoke_is_meant(call, &holder)) {
        revoke_release(call, digest, &holder);
    } else {
        revoke_done(call, call->result);
    }
    g_free(digest);
    redlock_ask_clear(&holder);
}

static void revoke_look(struct redlock_call *call)
{
    call->looked = true;
    redlock_ask_fill_look(call->r, call->name);
    redlock_call_poll(call, REDLOCK_LOOK, call->r->timeout, revoke_on_looked);
}

static void revoke_on_refused(struct redlock_call *call)
{
    revoke_done(call, call->result);
}

void redlock_revoke(struct redlock_call *call)
{
    struct redlock *r = call->r;
    struct remote_ticket *t = redlock_keep_holder(r, call->name);
    struct backend_info holder = {.type = BACKEND_LOCK};
    if (!t || !redlock_keep_hold(r, t->id)) {
        revoke_look(call);
        return;
    }
    /* of this mount: it need not be asked for, and what is asked next is done next */
    redlock_ask_describe_ticket(t, &holder);
    g_strlcpy(call->id, redlock_keep_token(r, t->id), sizeof call->id);
    if (revoke_is_meant(call, &holder)) {
        char *digest = redlock_call_digest(call->id);
        revoke_release(call, digest, &holder);
        g_free(digest);
    } else {
        redlock_call_later(call, 0, revoke_on_refused);
    }
}
