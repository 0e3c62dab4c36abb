/* acquire: taking a lock, and waiting for it.
 *
 * All servers are asked to set the key.  If a majority has, the number is the greatest that one of these servers could
 * give; it is written back, and who asked is told when a majority has it: so whoever holds next is given a greater one.
 * If not, all are told to let go, also those that seem to have refused.  One that waits tries again after a random
 * pause, or when a majority of the servers tells that the key has changed; of those that wait on this mount the first
 * does so for all.  So does one that does not wait, for a while, when nobody can have a majority: the votes were split.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/redlock/private.h"

static struct remote_ticket *acquire_ticket(const struct redlock_call *call)
{
    return remote_ticket_find(&call->r->remote, call->request->id);
}

static void acquire_answer(struct redlock_call *call, struct remote_answer *answer)
{
    struct remote_request *request = call->request;
    call->request = NULL;
    request->on_answer(request, answer);
    redlock_call_end(call, true);
}

/* --- refused --- */

static void acquire_answer_busy(struct redlock_call *call, const char *word)
{
    struct backend_info holder = {.type = BACKEND_LOCK, .holders = 1};
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY, .info = &holder};
    redlock_ask_describe(call, word, &holder);
    acquire_answer(call, &answer);
    redlock_ask_clear(&holder);
}

/* How many of this mount wait before it. */
static int64_t acquire_rank(const struct remote_ticket *t, uint64_t number)
{
    const struct remote_ticket *other;
    int64_t rank = 0;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        rank += other != t && other->state == REMOTE_WAITING && other->head.fence < number;
    }
    return rank;
}

/* It waits here; the servers know nothing of it. */
static void acquire_answer_queued(struct redlock_call *call)
{
    struct redlock *r = call->r;
    const struct remote_ticket *t = acquire_ticket(call);
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                   .result = BACKEND_QUEUED,
                                   .fence = t->head.fence,
                                   .sent = clock_now(),
                                   .foreign = true};
    for (unsigned i = 0; i < r->count; i++) {
        r->order = MAX(r->order, (uint64_t)MAX(redlock_ballot_number(&call->poll->ballots[i], 1), 0));
    }
    if (!answer.fence) {
        answer.fence = ++r->order; /* its place among those of this mount; it is given a number when it holds */
    }
    answer.rank = acquire_rank(t, answer.fence);
    answer.wait = redlock_call_pause(r, clock_now() - t->head.acquired);
    acquire_answer(call, &answer);
}

static void acquire_refused(struct redlock_call *call, enum vote_verdict verdict, const char *word)
{
    struct redlock *r = call->r;
    const struct remote_ticket *t = acquire_ticket(call);
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_UNREACHABLE};
    bool held_off = verdict == VOTE_AWAY && redlock_poll_answers(call->poll) >= vote_majority(r->count);
    if (verdict == VOTE_LOST) {
        answer.result = remote_parse_result(word, BACKEND_BUSY);
    } else if (verdict == VOTE_SPLIT) {
        answer.result = BACKEND_BUSY;
    }
    redlock_poll_forget(call->poll);
    redlock_call_undo(r, call->name, call->id);
    g_hash_table_remove(r->tries, t->id);
    if (t->wait && (held_off || answer.result == BACKEND_BUSY)) {
        acquire_answer_queued(call);
    } else if (verdict == VOTE_SPLIT && ++call->tries < REDLOCK_TRIES) {
        redlock_poll_close(call->poll, false);
        redlock_call_later(call, redlock_call_pause(r, 4 * REDLOCK_RETRY * call->tries), redlock_acquire_begin);
    } else if (answer.result == BACKEND_BUSY) {
        acquire_answer_busy(call, word);
    } else {
        answer.outcome = answer.result == BACKEND_UNREACHABLE ? REMOTE_REFUSED : REMOTE_ANSWERED;
        acquire_answer(call, &answer);
    }
}

/* --- granted --- */

/* `was`: the ticket with which its lock owner holds; or NULL. */
static void acquire_granted(struct redlock_call *call, const struct remote_ticket *was, clock_ms sent)
{
    const struct remote_ticket *t = acquire_ticket(call);
    char *id = g_strdup(was ? was->id : t->id);
    struct remote_answer answer = {
        .outcome = REMOTE_ANSWERED, .result = BACKEND_OK, .sent = sent, .fence = call->number, .id = id};
    if (was) {
        g_hash_table_remove(call->r->holds, t->id);
    }
    acquire_answer(call, &answer);
    g_free(id);
}

static void acquire_on_written(struct redlock_call *call)
{
    struct redlock *r = call->r;
    const struct remote_ticket *t = acquire_ticket(call);
    enum vote_verdict verdict = redlock_keep_verdict(call);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict != VOTE_WON) { /* a server that had set it has failed */
        bool answered = redlock_poll_answers(call->poll) >= vote_majority(r->count);
        acquire_refused(call, verdict == VOTE_LOST || answered ? VOTE_SPLIT : verdict, NULL);
        return;
    }
    redlock_keep_new(r, t, call->id, call->revision);
    /* what was won is to be believed in until its number is written, or else it is asked for again */
    acquire_granted(call, NULL,
                    clock_now() < call->deadline ? redlock_poll_sent(call->poll, "ok") : call->deadline - t->head.ttl);
}

static void acquire_on_votes(struct redlock_call *call)
{
    const char *word;
    enum vote_verdict verdict = vote_verdict(&call->poll->vote, "ok", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict != VOTE_WON) {
        acquire_refused(call, verdict, word);
        return;
    }
    const struct remote_ticket *t = acquire_ticket(call);
    struct redlock_record record = redlock_keep_record(t, call->revision);
    record.number = call->number = (uint64_t)MAX(redlock_ballot_number(redlock_poll_best(call->poll, "ok", 1), 1), 1);
    call->deadline = remote_deadline(redlock_poll_sent(call->poll, "ok"), t->head.ttl);
    redlock_keep_poll(call, &record, false, acquire_on_written);
}

/* --- joined: it holds with what another of its handle, or lock owner, holds --- */

/* Not if yet another excludes it: a lock owner that joined its handle's flock. */
static const struct remote_ticket *acquire_kin(const struct remote_ticket *t)
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

/* What it was to hold with is lost, so it is asked for alone; who had that is told now. */
static void acquire_alone(struct redlock_call *call)
{
    struct redlock *r = call->r;
    char *lost = g_strdup(call->id);
    redlock_poll_close(call->poll, false);
    redlock_call_later(call, 0, redlock_acquire_begin);
    redlock_keep_tell(r, lost, REMOTE_ENDED, BACKEND_LOST); /* who is told may cancel this one, too */
    g_free(lost);
}

static void acquire_on_joined(struct redlock_call *call)
{
    struct redlock *r = call->r;
    const struct remote_ticket *t = acquire_ticket(call), *was = acquire_kin(t);
    struct remote_answer answer = {.outcome = REMOTE_REFUSED, .result = BACKEND_UNREACHABLE};
    bool ended = !redlock_keep_hold(r, t->id); /* a message has come before the answers: it was ended by name */
    enum vote_verdict verdict = ended ? VOTE_LOST : redlock_keep_verdict(call);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict == VOTE_WON) {
        bool same = was && was->lock_owner && was->lock_owner == t->lock_owner;
        acquire_granted(call, same ? was : NULL, redlock_poll_sent(call->poll, "ok"));
        return;
    }
    if (!redlock_keep_other(r, call->name, t->id)) {
        redlock_call_undo(r, call->name, call->id);
    }
    g_hash_table_remove(r->holds, t->id);
    if (verdict == VOTE_LOST) {
        acquire_alone(call);
    } else {
        acquire_answer(call, &answer);
    }
}

void redlock_acquire_begin(struct redlock_call *call)
{
    struct redlock *r = call->r;
    const struct remote_ticket *t = acquire_ticket(call), *kin = acquire_kin(t);
    r->longest = MAX(r->longest, MIN(t->head.ttl, REDLOCK_LONGEST));
    if (kin && redlock_keep_hold(r, kin->id)) {
        struct redlock_record record = redlock_keep_record(t, 0);
        const struct redlock_hold *hold = redlock_keep_hold(r, kin->id);
        g_strlcpy(call->id, hold->id, sizeof call->id);
        record.number = call->number = kin->head.fence;
        redlock_keep_new(r, t, call->id, 0);
        redlock_keep_poll(call, &record, true, acquire_on_joined);
        return;
    }
    const char *leaf;
    char *directory = remote_parent(call->name, &leaf);
    call->revision = ++r->revisions;
    remote_make_id(call->id);
    g_hash_table_replace(r->tries, g_strdup(t->id), g_strdup(call->id));
    redlock_poll_key(r, 0, call->name);
    redlock_poll_key(r, 'R', call->name);
    redlock_poll_key(r, 'N', call->name);
    redlock_poll_key(r, 'L', directory);
    redlock_poll_key(r, 'D', call->name);
    redlock_poll_key(r, 'D', directory);
    redlock_poll_key(r, 0, directory);
    redlock_poll_text(r, call->id);
    redlock_poll_number(r, t->head.ttl);
    redlock_poll_text(r, leaf);
    redlock_poll_number(r, *directory != '\0');
    redlock_poll_number(r, t->wait && t->acquired);
    redlock_poll_text(r, r->channel);
    struct redlock_record record = redlock_keep_record(t, call->revision);
    record.number = 0;
    redlock_keep_fill_record(r, &record);
    redlock_call_poll(call, REDLOCK_ACQUIRE, redlock_call_timeout(r, t->head.ttl), acquire_on_votes);
    g_free(directory);
}

/* --- waiting --- */

/* Of each place the first asks, in case no message came. */
void redlock_acquire_beat(struct remote *remote, struct remote_ticket *const *tickets, size_t count)
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
    char *key = redlock_key(r, t->lock->name);
    g_hash_table_remove(r->changes, t->lock->name);
    for (unsigned i = 0; i < r->count; i++) {
        if (redlock_node_is_up(&r->nodes[i])) {
            struct remote_request *request = remote_request_new(remote, NULL);
            request->name = g_strdup(t->lock->name);
            request->arg = &r->nodes[i];
            redis_conn_watch(r->nodes[i].conn, key, strlen(key), NULL, acquire_on_watched, request);
        }
    }
    g_free(key);
}
