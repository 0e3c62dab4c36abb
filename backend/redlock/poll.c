/* poll: one request to all servers, and their votes.
 *
 * The vote of a server is the first word of its answer.  For a lock that another holds, the vote names the holder; for
 * a name that is free or unknown it is VOTE_NOTHING.  An answer of a held-off server that may be due to lost data is an
 * absence.
 */
#include <stdio.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redlock/private.h"

/* --- requests --- */

static void poll_add(struct redlock *r, const char *data, size_t length)
{
    struct redis_argument argument = {g_string_chunk_insert_len(r->arena, data, (gssize)length), length};
    g_array_append_val(r->arguments, argument);
}

void redlock_poll_key(struct redlock *r, char letter, const char *name)
{
    const GString *key = redis_key_make(&r->keys, letter, name);
    poll_add(r, key->str, key->len);
    r->key_count = r->arguments->len;
}

void redlock_poll_text(struct redlock *r, const char *text)
{
    poll_add(r, text, strlen(text));
}

void redlock_poll_number(struct redlock *r, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" G_GINT64_FORMAT, number);
    redlock_poll_text(r, text);
}

void redlock_poll_bytes(struct redlock *r, GBytes *bytes)
{
    gsize length = 0;
    const char *data = bytes ? g_bytes_get_data(bytes, &length) : NULL;
    poll_add(r, length ? data : "", length);
}

void redlock_poll_fill_notes(struct redlock *r)
{
    redlock_poll_key(r, 'm', "");
}

void redlock_poll_fill_note(struct redlock *r, const char *id, const char *name)
{
    char *note = id && r->notes ? g_strconcat(id, " ", name, NULL) : g_strdup("");
    redlock_poll_text(r, note);
    g_free(note);
}

void redlock_poll_fill_release(struct redlock *r, const char *name, const char *digest, const char *why,
                               uint64_t number, int64_t guard, const char *id)
{
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    redlock_poll_key(r, 0, name);
    redlock_poll_key(r, 'R', name);
    redlock_poll_key(r, 'N', name);
    redlock_poll_key(r, 'L', directory);
    redlock_poll_fill_notes(r);
    redlock_poll_text(r, digest);
    redlock_poll_text(r, leaf);
    redlock_poll_text(r, r->channel);
    redlock_poll_text(r, why);
    redlock_poll_number(r, (int64_t)number);
    redlock_poll_number(r, guard);
    redlock_poll_fill_note(r, id, name);
    r->removes = *why ? NULL : g_strdup(digest);
    g_free(directory);
}

void redlock_poll_fill_list(struct redlock *r, const char *directory, const char *after, size_t max)
{
    char *before = g_strconcat(r->keys.before, directory, *directory ? "/" : "", NULL);
    redlock_poll_key(r, 'L', directory);
    redlock_poll_key(r, 'D', directory);
    redlock_poll_key(r, 0, directory);
    redlock_poll_text(r, after);
    redlock_poll_number(r, (int64_t)max);
    redlock_poll_number(r, !*directory);
    redlock_poll_text(r, before);
    redlock_poll_text(r, r->keys.behind);
    g_free(before);
}

/* --- answers --- */

static GBytes *poll_copy(const redisReply *e)
{
    char number[24];
    if (e->type == REDIS_REPLY_STRING || e->type == REDIS_REPLY_STATUS) {
        return g_bytes_new_take(g_memdup2(e->str, e->len + 1), e->len);
    }
    snprintf(number, sizeof number, "%lld", e->type == REDIS_REPLY_INTEGER ? e->integer : 0);
    return g_bytes_new_take(g_strdup(number), strlen(number));
}

const char *redlock_ballot_text(const struct redlock_ballot *ballot, guint index)
{
    return ballot->words && index < ballot->words->len ? g_bytes_get_data(ballot->words->pdata[index], NULL) : "";
}

int64_t redlock_ballot_number(const struct redlock_ballot *ballot, guint index)
{
    return g_ascii_strtoll(redlock_ballot_text(ballot, index), NULL, 10);
}

GBytes *redlock_ballot_bytes(const struct redlock_ballot *ballot, guint index, gsize max)
{
    gsize length = 0;
    const char *data =
        ballot->words && index < ballot->words->len ? g_bytes_get_data(ballot->words->pdata[index], &length) : "";
    return g_bytes_new(data, MIN(length, max));
}

/* May a held-off server give this answer only because it has lost data? */
static bool poll_may_have_forgotten(const struct redlock_poll *poll, const char *word)
{
    return strcmp(word, "missing") == 0 || strcmp(word, "nothing") == 0 || strcmp(word, "gone") == 0 ||
           (poll->script == REDLOCK_ACQUIRE && strcmp(word, "ok") == 0);
}

static void poll_cast(struct redlock_poll *poll, unsigned server)
{
    const struct redlock_ballot *ballot = &poll->ballots[server];
    const char *word = redlock_ballot_text(ballot, 0);
    char holder[VOTE_WORD];
    if (!*word || (ballot->held_off && poll_may_have_forgotten(poll, word))) {
        word = NULL;
    } else if (strcmp(word, "held") == 0 || strcmp(word, "exists") == 0) {
        g_snprintf(holder, sizeof holder, "%s %s", word,
                   redlock_ballot_text(ballot, strcmp(word, "held") == 0 ? 2 : 1));
        word = holder;
    } else if (strcmp(word, "given") == 0 && ballot->held_off) {
        word = "ok";
    } else if (strcmp(word, "nothing") == 0) {
        word = VOTE_NOTHING;
    }
    vote_cast(&poll->vote, server, word);
}

static void poll_free(struct redlock_poll *poll)
{
    for (unsigned i = 0; i < poll->r->count; i++) {
        g_clear_pointer(&poll->ballots[i].words, g_ptr_array_unref);
    }
    LIST_REMOVE(poll, link);
    g_free(poll->removes);
    g_free(poll);
}

/* A server that is out of memory votes "full".  A refusal is an error reply, whose text is never NULL. */
static void poll_take(struct redlock_ballot *ballot, const struct redis_answer *answer)
{
    const redisReply *reply = answer->reply;
    ballot->id = 0;
    ballot->sent = answer->sent;
    ballot->repeated = answer->repeated;
    struct redlock_node *node = &ballot->poll->r->nodes[ballot - ballot->poll->ballots];
    ballot->held_off = redlock_node_held_off(node) > 0;
    if (answer->outcome == REMOTE_REFUSED && strstr(reply->str, "OOM ")) {
        if (!redlock_node_is_full(node)) {
            log_error("the Redis server %s: %s", node->where, REDIS_FULL);
        }
        node->full = clock_now();
        ballot->words = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
        g_ptr_array_add(ballot->words, g_bytes_new_static("full", strlen("full")));
    } else if (answer->outcome == REMOTE_ANSWERED && reply->type == REDIS_REPLY_ARRAY) {
        ballot->words = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
        for (size_t i = 0; i < reply->elements; i++) {
            g_ptr_array_add(ballot->words, poll_copy(reply->element[i]));
        }
    }
}

static void poll_on_answer(void *arg, const struct redis_answer *answer)
{
    struct redlock_ballot *ballot = arg;
    struct redlock_poll *poll = ballot->poll;
    poll_take(ballot, answer);
    poll_cast(poll, (unsigned)(ballot - poll->ballots));
    poll->open--;
    poll->reporting = true;
    if (poll->flow) {
        poll->flow->on_answer(poll->flow);
    }
    poll->reporting = false;
    if (!poll->flow && poll->open == 0) {
        poll_free(poll);
    }
}

/* --- sending --- */

static uint64_t poll_call(struct redlock_node *node, enum redlock_script_id script, int64_t timeout,
                          redis_answered *on_answer, void *arg)
{
    const struct redlock *r = node->r;
    bool up = redlock_node_is_up(node);
    clock_ms silent = redis_conn_counts(node->conn).silent;
    bool away = !up && silent > 0 && clock_now() - silent >= r->remote.timeout;
    redlock_node_stamp(node);
    return redis_conn_call(node->conn, &redlock_scripts[script], r->key_count,
                           (const struct redis_argument *)r->arguments->data, r->arguments->len,
                           up     ? timeout
                           : away ? REMOTE_TIMEOUT_AWAY
                                  : MAX(timeout, r->remote.timeout), /* it may be connecting */
                           on_answer, arg);
}

static void poll_clear(struct redlock *r)
{
    r->key_count = 0;
    g_array_set_size(r->arguments, 0);
    g_string_chunk_clear(r->arena);
}

void redlock_poll_send(struct redlock *r, struct redlock_flow *flow, enum redlock_script_id script, int64_t timeout)
{
    struct redlock_poll *poll = g_new0(struct redlock_poll, 1);
    poll->r = r;
    poll->flow = flow;
    poll->script = script;
    poll->removes = g_steal_pointer(&r->removes);
    vote_init(&poll->vote, r->count);
    LIST_INSERT_HEAD(&r->polls, poll, link);
    if (flow) {
        flow->poll = poll;
    }
    for (unsigned i = 0; i < r->count; i++) {
        struct redlock_ballot *ballot = &poll->ballots[i];
        ballot->poll = poll;
        poll->open++;
        ballot->id = poll_call(&r->nodes[i], script, timeout, poll_on_answer, ballot);
    }
    poll_clear(r);
}

uint64_t redlock_poll_send_one(struct redlock_node *node, enum redlock_script_id script, int64_t timeout,
                               redis_answered *on_answer, void *arg)
{
    uint64_t id = poll_call(node, script, timeout, on_answer, arg);
    poll_clear(node->r);
    return id;
}

void redlock_poll_forget(struct redlock_poll *poll)
{
    for (unsigned i = 0; i < poll->r->count; i++) {
        struct redlock_ballot *ballot = &poll->ballots[i];
        if (ballot->id) {
            redis_conn_forget(poll->r->nodes[i].conn, ballot->id);
            ballot->id = 0;
            poll->open--;
        }
    }
}

void redlock_poll_close(struct redlock_poll *poll, bool settle)
{
    if (poll->flow) {
        poll->flow->poll = NULL;
        poll->flow = NULL;
    }
    if (!settle) {
        redlock_poll_forget(poll);
    }
    if (poll->open == 0 && !poll->reporting) {
        poll_free(poll);
    }
}

void redlock_poll_end_all(struct redlock *r)
{
    while (!LIST_EMPTY(&r->polls)) {
        redlock_poll_close(LIST_FIRST(&r->polls), false);
    }
}

/* --- all answers together --- */

static bool poll_says(const struct redlock_poll *poll, unsigned server, const char *word)
{
    return poll->vote.votes[server].cast && !poll->vote.votes[server].absent &&
           strcmp(poll->vote.votes[server].word, word) == 0;
}

const struct redlock_ballot *redlock_poll_best(const struct redlock_poll *poll, const char *word, guint index)
{
    const struct redlock_ballot *best = NULL;
    for (unsigned i = 0; i < poll->r->count; i++) {
        const struct redlock_ballot *ballot = &poll->ballots[i];
        if (poll_says(poll, i, word) &&
            (!best || redlock_ballot_number(ballot, index) > redlock_ballot_number(best, index))) {
            best = ballot;
        }
    }
    return best;
}

bool redlock_poll_is_removing(const struct redlock *r, const char *word)
{
    const struct redlock_poll *poll = LIST_FIRST(&r->polls);
    while (poll &&
           !(poll->removes && g_str_has_prefix(word, "held ") && strcmp(word + strlen("held "), poll->removes) == 0)) {
        poll = LIST_NEXT(poll, link);
    }
    return poll;
}

unsigned redlock_poll_answers(const struct redlock_poll *poll)
{
    unsigned answers = 0;
    for (unsigned i = 0; i < poll->r->count; i++) {
        answers += poll->ballots[i].words != NULL;
    }
    return answers;
}

clock_ms redlock_poll_sent(const struct redlock_poll *poll)
{
    clock_ms sent = CLOCK_NEVER;
    for (unsigned i = 0; i < poll->r->count; i++) {
        if (poll_says(poll, i, "ok")) {
            sent = MIN(sent, poll->ballots[i].sent);
        }
    }
    return sent;
}
