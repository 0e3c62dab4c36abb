/* recover: the leases and handle locks that this mount held when it last ended.
 *
 * Each server has notes of them (NOTES of head.lua), which are read part by part.  A lock that a majority has is noted
 * by a majority, so all notes of any majority of the servers have it.  This asks all servers for each such lock, and
 * gives it another token.  A lock that a majority has is recovered, with what is left of its term on a majority; it is
 * renewed now if its owner lives or a process has its file open.  Any other is lost.
 *
 * The mount may serve before all notes are read, so the servers may have notes of its own locks: these are left alone.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redlock/private.h"

#define RECOVER_PART 500    /* notes of one answer */
#define RECOVER_PENDING 100 /* locks that are asked for at a time */
#define RECOVER_TRIES 4     /* while too few servers answer; a part of the notes has as many timeouts */

/* Words of an answer of recover.lua. */
enum recover_field { NUMBER = 1, KIND, AGE, TTL, LEFT, REVISION, META, CONTENT };

struct recover_note {
    pid_t pid;        /* its score: see head.lua */
    unsigned servers; /* a bit for each that has it */
};

/* Reads the notes of one server. */
struct recover_reader {
    struct redlock *r;
    struct redlock_node *node;
    uint64_t request; /* the pending one; 0: none */
    bool complete;    /* all its notes were read */
};

struct redlock_recovery {
    struct recover_reader readers[VOTE_SERVERS];
    GHashTable *notes;    /* note -> struct recover_note, of locks that were not requested yet */
    GHashTable *own;      /* the tokens of this daemon */
    GHashTable *restored; /* the names of recovered locks */
    GHashTable *lost;     /* name -> pid, of handle locks that a majority has noted, but does not have */
    unsigned open;        /* pending requests for locks */
    bool warned;          /* that the servers do not answer */
    backend_recover_each *found;
    void *arg;
};

static void recover_stop_readers(struct redlock *r)
{
    for (unsigned i = 0; i < r->count; i++) {
        struct recover_reader *reader = &r->recovery->readers[i];
        if (reader->request) {
            redis_conn_forget(reader->node->conn, reader->request);
            reader->request = 0;
        }
    }
}

void redlock_recover_stop(struct redlock *r)
{
    if (r->recovery) {
        recover_stop_readers(r);
        g_hash_table_unref(r->recovery->notes);
        g_hash_table_unref(r->recovery->own);
        g_hash_table_unref(r->recovery->restored);
        g_hash_table_unref(r->recovery->lost);
        g_clear_pointer(&r->recovery, g_free);
    }
}

void redlock_recover_exclude(struct redlock *r, const char *id)
{
    if (r->recovery) {
        g_hash_table_add(r->recovery->own, g_strdup(id));
    }
}

static void recover_warn(struct redlock_recovery *recovery)
{
    if (!recovery->warned) {
        log_warning("the servers do not answer which locks this mount held before: they will run out");
    }
    recovery->warned = true;
}

/* --- a lock --- */

/* For how long at least a majority has the key, from when the requests were sent, ms. */
static int64_t recover_time_left(const struct redlock_flow *flow)
{
    int64_t left[VOTE_SERVERS], most = 0;
    unsigned count = 0, majority = vote_majority(flow->r->count);
    for (unsigned i = 0; i < flow->r->count; i++) {
        const struct redlock_ballot *ballot = &flow->poll->ballots[i];
        if (strcmp(redlock_ballot_text(ballot, 0), "ok") == 0) {
            left[count++] = MAX(redlock_ballot_number(ballot, LEFT), 0);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        unsigned as_long = 0;
        for (unsigned k = 0; k < count; k++) {
            as_long += left[k] >= left[i];
        }
        most = as_long >= majority ? MAX(most, left[i]) : most;
    }
    return most;
}

static void recover_restore(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    const struct redlock_ballot *newest = redlock_poll_best(flow->poll, "ok", REVISION);
    int64_t kind = redlock_ballot_number(newest, KIND);
    int64_t number = redlock_ballot_number(redlock_poll_best(flow->poll, "ok", NUMBER), NUMBER);
    if (number <= 0 || kind < BACKEND_LEASE || kind > BACKEND_FCNTL) { /* it was never granted */
        redlock_flow_undo(r, flow->name, flow->id);
        return;
    }
    GBytes *meta = redlock_ballot_bytes(newest, META, REDLOCK_META_MAX),
           *content = redlock_ballot_bytes(newest, CONTENT, REDLOCK_CONTENT_MAX);
    struct backend_claim claim = {.kind = (enum backend_kind)kind,
                                  .mode = BACKEND_EXCLUSIVE,
                                  .ttl = MAX(redlock_ballot_number(newest, TTL), 1),
                                  .meta = meta,
                                  .content = g_bytes_get_size(content) > 0 ? content : NULL};
    clock_ms sent = redlock_poll_sent(flow->poll);
    int64_t left = MIN(recover_time_left(flow), claim.ttl);
    struct remote_ticket *t = remote_ticket_restore(
        &r->remote, flow->name, &claim,
        &(struct remote_restored){.id = flow->id,
                                  .fence = (uint64_t)number,
                                  .acquired = clock_now() - MAX(redlock_ballot_number(newest, AGE), 0),
                                  .deadline = remote_deadline(sent + left - claim.ttl, claim.ttl)});
    uint64_t revision = (uint64_t)MAX(redlock_ballot_number(newest, REVISION), 0);
    r->revisions = MAX(r->revisions, revision);
    r->longest = MAX(r->longest, MIN(claim.ttl, REDLOCK_LONGEST));
    redlock_hold_new(r, t, flow->id, revision);
    g_hash_table_add(r->recovery->restored, g_strdup(flow->name));
    r->recovery->found(r->recovery->arg, flow->name, &t->head, meta, content);
    t->due = clock_now(); /* renewed now, if its owner lives, or a process has its file open */
    remote_ticket_schedule(&r->remote, t);
    g_bytes_unref(meta);
    g_bytes_unref(content);
}

static void recover_start_more(struct redlock *r);

static void recover_request_lock(struct redlock_flow *flow);

static void recover_on_lock(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    enum vote_verdict verdict = vote_verdict(&flow->poll->vote, "ok", NULL);
    if (verdict == VOTE_OPEN) {
        return;
    }
    if (verdict == VOTE_AWAY && flow->tries++ < RECOVER_TRIES) {
        redlock_poll_close(flow->poll, true);
        redlock_flow_continue_later(flow, REDLOCK_RETRY, recover_request_lock);
        return;
    }
    if (verdict == VOTE_WON) {
        recover_restore(flow);
    } else if (verdict == VOTE_AWAY) {
        recover_warn(r->recovery);
    } else {
        redlock_flow_undo(r, flow->name, flow->id);
        if (flow->recovery.pid != 0 && flow->recovery.confirmed) {
            g_hash_table_replace(r->recovery->lost, g_strdup(flow->name), GINT_TO_POINTER(flow->recovery.pid));
        }
    }
    redlock_flow_end(flow, true);
    r->recovery->open--;
    recover_start_more(r);
}

static void recover_request_lock(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    redlock_poll_key(r, 0, flow->name);
    redlock_poll_key(r, 'R', flow->name);
    redlock_poll_key(r, 'N', flow->name);
    redlock_poll_key(r, 'L', flow->name);
    redlock_poll_fill_notes(r);
    redlock_poll_text(r, flow->recovery.former);
    redlock_poll_text(r, flow->id);
    redlock_poll_fill_note(r, flow->recovery.former, flow->name);
    redlock_poll_fill_note(r, flow->id, flow->name);
    redlock_poll_number(r, flow->recovery.pid);
    redlock_flow_poll(flow, REDLOCK_RECOVER, r->remote.timeout, recover_on_lock);
}

/* A server may hold anything. */
static bool recover_is_note(struct redlock *r, const char *note)
{
    char id[REMOTE_ID_SIZE];
    g_strlcpy(id, note, sizeof id);
    return remote_is_id(id) && note[REMOTE_ID_SIZE - 1] == ' ' && remote_is_path(note + REMOTE_ID_SIZE) &&
           redis_key_allowed(&r->keys, note + REMOTE_ID_SIZE);
}

/* A lock is not lost if another note of its name was recovered. */
static void recover_log_lost(const struct redlock_recovery *recovery)
{
    GHashTableIter each;
    gpointer name, pid;
    g_hash_table_iter_init(&each, recovery->lost);
    while (g_hash_table_iter_next(&each, &name, &pid)) {
        if (!g_hash_table_contains(recovery->restored, name)) {
            remote_log_lost(name, GPOINTER_TO_INT(pid));
        }
    }
}

/* The next locks; or ends. */
static void recover_start_more(struct redlock *r)
{
    struct redlock_recovery *recovery = r->recovery;
    GHashTableIter each;
    gpointer note, value;
    g_hash_table_iter_init(&each, recovery->notes);
    while (recovery->open < RECOVER_PENDING && g_hash_table_iter_next(&each, &note, &value)) {
        const struct recover_note *noted = value;
        char former[REMOTE_ID_SIZE];
        g_strlcpy(former, note, sizeof former);
        if (!g_hash_table_contains(recovery->own, former)) {
            struct redlock_flow *flow = redlock_flow_new(r, NULL, (const char *)note + REMOTE_ID_SIZE);
            memcpy(flow->recovery.former, former, sizeof former);
            flow->recovery.pid = noted->pid;
            flow->recovery.confirmed = (unsigned)__builtin_popcount(noted->servers) >= vote_majority(r->count);
            remote_make_id(flow->id);
            recovery->open++;
            recover_request_lock(flow);
        }
        g_hash_table_iter_remove(&each);
    }
    if (recovery->open == 0) {
        recover_log_lost(recovery);
        redlock_recover_stop(r);
    }
}

/* --- the notes --- */

static void recover_add_note(struct recover_reader *reader, const char *note, pid_t pid)
{
    GHashTable *notes = reader->r->recovery->notes;
    struct recover_note *noted = g_hash_table_lookup(notes, note);
    if (!noted) {
        noted = g_new0(struct recover_note, 1);
        g_hash_table_insert(notes, g_strdup(note), noted);
    }
    noted->pid = pid;
    noted->servers |= 1u << (reader->node - reader->r->nodes);
}

/* Asks for the locks as soon as the notes of a majority are complete, or no majority answers. */
static void recover_end_reading(struct redlock *r)
{
    unsigned complete = 0, pending = 0, majority = vote_majority(r->count);
    for (unsigned i = 0; i < r->count; i++) {
        complete += r->recovery->readers[i].complete;
        pending += r->recovery->readers[i].request != 0;
    }
    if (complete < majority && complete + pending >= majority) {
        return;
    }
    if (complete < majority) {
        recover_warn(r->recovery);
    }
    recover_stop_readers(r);
    recover_start_more(r);
}

static const char *recover_text(const redisReply *word)
{
    return word->str ? word->str : "";
}

static void recover_read_part(struct recover_reader *reader, GBytes *note, const char *score);

static void recover_on_part(void *arg, const struct redis_answer *answer)
{
    struct recover_reader *reader = arg;
    const redisReply *reply = answer->reply;
    bool answered = answer->outcome == REMOTE_ANSWERED && reply->type == REDIS_REPLY_ARRAY;
    size_t words = answered ? reply->elements : 0;
    reader->request = 0;
    for (size_t k = 1; k + 1 < words; k += 2) {
        const char *note = recover_text(reply->element[k]), *score = recover_text(reply->element[k + 1]);
        if (recover_is_note(reader->r, note)) {
            recover_add_note(reader, note, (pid_t)g_ascii_strtoll(score, NULL, 10));
        }
    }
    if (words > 2 * RECOVER_PART) {
        const redisReply *last = reply->element[words - 2];
        GBytes *note = g_bytes_new(recover_text(last), last->len);
        recover_read_part(reader, note, recover_text(reply->element[words - 1]));
        g_bytes_unref(note);
    } else {
        reader->complete = answered;
        recover_end_reading(reader->r);
    }
}

/* The notes behind that one; NULL and "": from the first. */
static void recover_read_part(struct recover_reader *reader, GBytes *note, const char *score)
{
    struct redlock *r = reader->r;
    redlock_poll_fill_notes(r);
    redlock_poll_text(r, "part");
    redlock_poll_bytes(r, note);
    redlock_poll_text(r, score);
    redlock_poll_number(r, RECOVER_PART);
    reader->request =
        redlock_poll_send_one(reader->node, REDLOCK_NOTES, RECOVER_TRIES * r->remote.timeout, recover_on_part, reader);
}

/* --- the beginning --- */

void redlock_recover(struct remote *remote, backend_recover_each *found, void *arg)
{
    struct redlock *r = (struct redlock *)remote;
    if (!r->notes) {
        return;
    }
    r->recovery = g_new0(struct redlock_recovery, 1);
    *r->recovery = (struct redlock_recovery){.notes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free),
                                             .own = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                                             .restored = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                                             .lost = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
                                             .found = found,
                                             .arg = arg};
    for (unsigned i = 0; i < r->count; i++) {
        r->recovery->readers[i] = (struct recover_reader){.r = r, .node = &r->nodes[i]};
    }
    for (unsigned i = 0; i < r->count; i++) {
        recover_read_part(&r->recovery->readers[i], NULL, "");
    }
}
