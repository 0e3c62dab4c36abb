/* acquire: takes locks, and waits for them.
 *
 * 1. All servers get a request to set the key.
 * 2. If a majority has set it, the fencing token is the greatest that one of these servers proposes.  It is written to
 *    all servers, and the lock is granted once a majority has it: so the next holder gets a greater one.
 * 3. Otherwise all servers get a release, also those that have refused.
 *
 * A waiter tries again after a random pause, or when a majority of the servers reports a change of the key; the first
 * waiter of this mount does so for all.  A claim that does not wait tries a few times while votes are split, so that
 * nobody can have a majority, or while servers still have the key of an earlier claim of this mount.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/redlock/private.h"

static struct remote_ticket *acquire_ticket(const struct redlock_flow *flow)
{
    return remote_ticket_find(&flow->r->remote, flow->request->id);
}

static void acquire_answer(struct redlock_flow *flow, struct remote_answer *answer)
{
    struct remote_request *request = flow->request;
    flow->request = NULL;
    request->on_answer(request, answer);
    redlock_flow_end(flow, true);
}

/* --- refused --- */

static void acquire_answer_busy(struct redlock_flow *flow, const char *word)
{
    struct backend_info holder = {.type = BACKEND_LOCK, .holders = 1};
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY, .info = &holder};
    redlock_query_describe(flow, word, &holder);
    acquire_answer(flow, &answer);
    remote_info_clear(&holder);
}

/* How many tickets of this mount wait before it. */
static int64_t acquire_rank(const struct remote_ticket *t, uint64_t number)
{
    const struct remote_ticket *other;
    int64_t rank = 0;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        rank += other != t && other->state == REMOTE_WAITING && other->head.fence < number;
    }
    return rank;
}

/* A waiter is known only to its mount, not to the servers. */
static void acquire_answer_queued(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    const struct remote_ticket *t = acquire_ticket(flow);
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                   .result = BACKEND_QUEUED,
                                   .fence = t->head.fence,
                                   .sent = clock_now(),
                                   .foreign = true};
    for (unsigned i = 0; i < r->count; i++) {
        r->order = MAX(r->order, (uint64_t)MAX(redlock_ballot_number(&flow->poll->ballots[i], 1), 0));
    }
    if (!answer.fence) {
        answer.fence = ++r->order; /* its order among this mount's waiters, until it has a fencing token */
    }
    answer.rank = acquire_rank(t, answer.fence);
    answer.wait = redlock_flow_pause(r, clock_now() - t->head.acquired);
    acquire_answer(flow, &answer);
}

static void acquire_refused(struct redlock_flow *flow, enum vote_verdict verdict, const char *word)
{
    struct redlock *r = flow->r;
    const struct remote_ticket *t = acquire_ticket(flow);
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_UNREACHABLE};
    bool own = verdict == VOTE_LOST && word && redlock_poll_is_removing(r, word);
    bool held_off = verdict == VOTE_AWAY && redlock_poll_answers(flow->poll) >= vote_majority(r->count);
    if (verdict == VOTE_LOST && !own) {
        answer.result = remote_parse_result(word, BACKEND_BUSY);
    } else if (verdict == VOTE_SPLIT) {
        answer.result = BACKEND_BUSY;
    }
    redlock_poll_forget(flow->poll);
    redlock_flow_undo(r, flow->name, flow->id);
    g_hash_table_remove(r->tries, t->id);
    if (t->wait && (held_off || own || answer.result == BACKEND_BUSY)) {
        acquire_answer_queued(flow);
    } else if ((own || verdict == VOTE_SPLIT) && ++flow->tries < REDLOCK_TRIES) {
        redlock_poll_close(flow->poll, false);
        redlock_flow_continue_later(flow, redlock_flow_pause(r, 4 * REDLOCK_RETRY * flow->tries),
                                    redlock_acquire_begin);
    } else if (answer.result == BACKEND_BUSY) {
        acquire_answer_busy(flow, word);
    } else {
        answer.outcome = answer.result == BACKEND_UNREACHABLE ? REMOTE_REFUSED : REMOTE_ANSWERED;
        acquire_answer(flow, &answer);
    }
}

/* --- granted --- */

/* `was`: the ticket with which its lock owner holds already, or NULL. */
static void acquire_granted(struct redlock_flow *flow, const struct remote_ticket *was, clock_ms sent)
{
    const struct remote_ticket *t = acquire_ticket(flow);
    char *id = g_strdup(was ? was->id : t->id);
    struct remote_answer answer = {
        .outcome = REMOTE_ANSWERED, .result = BACKEND_OK, .sent = sent, .fence = flow->acquire.fence, .id = id};
    if (was) {
        g_hash_table_remove(flow->r->holds, t->id);
    }
    acquire_answer(flow, &answer);
    g_free(id);
}

static void acquire_on_written(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    const struct remote_ticket *t = acquire_ticket(flow);
    enum vote_verdict verdict = redlock_hold_verdict(flow);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict != VOTE_WON) { /* a server that had set the key has failed */
        bool answered = redlock_poll_answers(flow->poll) >= vote_majority(r->count);
        acquire_refused(flow, verdict == VOTE_LOST || answered ? VOTE_SPLIT : verdict, NULL);
        return;
    }
    redlock_hold_new(r, t, flow->id, flow->revision);
    /* if the keys have run out before the token was written, the deadline is in the past, so a renewal verifies it */
    acquire_granted(flow, NULL,
                    clock_now() < flow->acquire.deadline ? redlock_poll_sent(flow->poll)
                                                         : flow->acquire.deadline - t->head.ttl);
}

static void acquire_on_votes(struct redlock_flow *flow)
{
    const char *word;
    enum vote_verdict verdict = vote_verdict(&flow->poll->vote, "ok", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict != VOTE_WON) {
        acquire_refused(flow, verdict, word);
        return;
    }
    const struct remote_ticket *t = acquire_ticket(flow);
    struct redlock_record record = redlock_hold_record(t, flow->revision);
    record.number = flow->acquire.fence =
        (uint64_t)MAX(redlock_ballot_number(redlock_poll_best(flow->poll, "ok", 1), 1), 1);
    flow->acquire.deadline = remote_deadline(redlock_poll_sent(flow->poll), t->head.ttl);
    redlock_hold_send(flow, &record, false, acquire_on_written);
}

/* --- joined: it shares the key of a compatible holder --- */

/* NULL also if another holder conflicts with it. */
static const struct remote_ticket *acquire_find_compatible(const struct remote_ticket *t)
{
    const struct remote_ticket *other, *found = NULL;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        if (other == t || other->state != REMOTE_HELD || other->expiry_sent) {
            continue;
        }
        if (!backend_identity_matches(BACKEND_IDENTITY(other), BACKEND_IDENTITY(t))) {
            return NULL;
        }
        found = !found || (other->lock_owner && other->lock_owner == t->lock_owner) ? other : found;
    }
    return found;
}

/* The key that it wanted to share is lost: reports that to its holders, and requests a key of its own. */
static void acquire_restart(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    char *lost = g_strdup(flow->id);
    redlock_poll_close(flow->poll, false);
    redlock_flow_continue_later(flow, 0, redlock_acquire_begin);
    redlock_hold_report(r, lost, REMOTE_ENDED, BACKEND_LOST); /* may also cancel this flow */
    g_free(lost);
}

static void acquire_on_joined(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    const struct remote_ticket *t = acquire_ticket(flow), *was = acquire_find_compatible(t);
    struct remote_answer answer = {.outcome = REMOTE_REFUSED, .result = BACKEND_UNREACHABLE};
    bool ended = !redlock_hold_find(r, t->id); /* revoked: the message came before the answers */
    enum vote_verdict verdict = ended ? VOTE_LOST : redlock_hold_verdict(flow);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict == VOTE_WON) {
        bool same = was && was->lock_owner && was->lock_owner == t->lock_owner;
        acquire_granted(flow, same ? was : NULL, redlock_poll_sent(flow->poll));
        return;
    }
    if (!redlock_hold_find_sharing(r, flow->name, t->id)) {
        redlock_flow_undo(r, flow->name, flow->id);
    }
    g_hash_table_remove(r->holds, t->id);
    if (verdict == VOTE_LOST) {
        acquire_restart(flow);
    } else {
        acquire_answer(flow, &answer);
    }
}

void redlock_acquire_begin(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    const struct remote_ticket *t = acquire_ticket(flow), *compatible = acquire_find_compatible(t);
    r->longest = MAX(r->longest, MIN(t->head.ttl, REDLOCK_LONGEST));
    if (compatible && redlock_hold_find(r, compatible->id)) {
        struct redlock_record record = redlock_hold_record(t, 0);
        const struct redlock_hold *hold = redlock_hold_find(r, compatible->id);
        g_strlcpy(flow->id, hold->id, sizeof flow->id);
        record.number = flow->acquire.fence = compatible->head.fence;
        redlock_hold_new(r, t, flow->id, 0);
        redlock_hold_send(flow, &record, true, acquire_on_joined);
        return;
    }
    const char *leaf;
    char *directory = remote_parent(flow->name, &leaf);
    flow->revision = ++r->revisions;
    remote_make_id(flow->id);
    redlock_recover_exclude(r, flow->id);
    g_hash_table_replace(r->tries, g_strdup(t->id), g_strdup(flow->id));
    redlock_poll_key(r, 0, flow->name);
    redlock_poll_key(r, 'R', flow->name);
    redlock_poll_key(r, 'N', flow->name);
    redlock_poll_key(r, 'L', directory);
    redlock_poll_key(r, 'D', flow->name);
    redlock_poll_key(r, 'D', directory);
    redlock_poll_key(r, 0, directory);
    redlock_poll_text(r, flow->id);
    redlock_poll_number(r, t->head.ttl);
    redlock_poll_text(r, leaf);
    redlock_poll_number(r, *directory != '\0');
    redlock_poll_number(r, t->wait && t->acquire_done);
    redlock_poll_text(r, r->channel);
    struct redlock_record record = redlock_hold_record(t, flow->revision);
    record.number = 0;
    redlock_hold_fill_record(r, &record);
    redlock_flow_poll(flow, REDLOCK_ACQUIRE, redlock_flow_timeout(r, t->head.ttl), acquire_on_votes);
    g_free(directory);
}

/* --- waiting --- */

/* The first waiter of each lock tries again, in case a message was lost. */
void redlock_acquire_heartbeat(struct remote *remote, struct remote_ticket *const *tickets, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || tickets[i]->lock != tickets[i - 1]->lock) {
            remote_retry_waiter(remote, tickets[i]->lock);
        }
    }
}

void redlock_acquire_changed(struct redlock_node *node, const char *name)
{
    struct redlock *r = node->r;
    struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, name);
    guint servers = GPOINTER_TO_UINT(g_hash_table_lookup(r->changes, name)) | 1u << (node - r->nodes);
    if (!lock) {
        return;
    }
    unsigned count = (unsigned)__builtin_popcount(servers);
    if (count < vote_majority(r->count)) {
        g_hash_table_replace(r->changes, g_strdup(name), GUINT_TO_POINTER(servers));
        return;
    }
    g_hash_table_remove(r->changes, name);
    remote_retry_waiter(&r->remote, lock);
}

static void acquire_on_watched(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    char *name = g_steal_pointer(&request->name);
    struct redlock_node *node = request->arg;
    remote_request_free(request);
    if (answer->outcome == REMOTE_ANSWERED && answer->reply->type == REDIS_REPLY_INTEGER &&
        answer->reply->integer == 0) {
        redlock_acquire_changed(node, name);
    }
    g_free(name);
}

void redlock_acquire_watch(struct remote *remote, struct remote_ticket *t)
{
    struct redlock *r = (struct redlock *)remote;
    char *key = redis_key(&r->keys, 0, t->lock->name);
    g_hash_table_remove(r->changes, t->lock->name);
    for (unsigned i = 0; i < r->count; i++) {
        if (redlock_node_is_up(&r->nodes[i])) {
            struct remote_request *request = remote_request_new(remote, REMOTE_NO_PROCEDURE, NULL, t->lock->name);
            request->arg = &r->nodes[i];
            redis_conn_watch(r->nodes[i].conn, key, strlen(key), NULL, acquire_on_watched, request);
        }
    }
    g_free(key);
}
