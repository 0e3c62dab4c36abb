/* hold: the locks that this mount holds, and their records on the servers.
 *
 * Compatible tickets share a key, whose value is the id of the first.  A renewal extends the key, and gives it to
 * servers that lack it; these count from the next renewal on.  That is safe: if the lock had been broken or held by
 * another meanwhile, one server of each majority would have a greater number.  If a majority lacks the key without a
 * restart, another client has deleted it, and the lock is lost.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/redlock/private.h"

/* --- holds --- */

struct redlock_hold *redlock_hold_find(const struct redlock *r, const char *id)
{
    return g_hash_table_lookup(r->holds, id);
}

struct redlock_hold *redlock_hold_new(struct redlock *r, const struct remote_ticket *t, const char *id,
                                      uint64_t revision)
{
    struct redlock_hold *hold = g_new0(struct redlock_hold, 1);
    g_strlcpy(hold->id, id, sizeof hold->id);
    hold->name = g_strdup(t->lock->name);
    hold->revision = revision;
    g_hash_table_remove(r->tries, t->id);
    g_hash_table_replace(r->holds, g_strdup(t->id), hold);
    return hold;
}

void redlock_hold_free(gpointer data)
{
    struct redlock_hold *hold = data;
    g_free(hold->name);
    g_free(hold);
}

const char *redlock_hold_value(const struct redlock *r, const char *id)
{
    const struct redlock_hold *hold = redlock_hold_find(r, id);
    const char *tried = g_hash_table_lookup(r->tries, id);
    return hold ? hold->id : tried ? tried : id;
}

struct remote_ticket *redlock_hold_find_sharing(const struct redlock *r, const char *name, const char *id)
{
    const struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, name);
    struct remote_ticket *t = lock ? LIST_FIRST(&lock->tickets) : NULL;
    while (t && (strcmp(t->id, id) == 0 || strcmp(redlock_hold_value(r, t->id), redlock_hold_value(r, id)) != 0)) {
        t = LIST_NEXT(t, link);
    }
    return t;
}

struct remote_ticket *redlock_hold_find_holder(const struct redlock *r, const char *name)
{
    const struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, name);
    struct remote_ticket *t = lock ? LIST_FIRST(&lock->tickets) : NULL;
    while (t && (t->state != REMOTE_HELD || t->expiry_sent || t->head.deadline <= clock_now())) {
        t = LIST_NEXT(t, link);
    }
    return t;
}

static void hold_send_note_out(struct redlock *r, const char *id, const char *name)
{
    redlock_poll_fill_notes(r);
    redlock_poll_text(r, "remove");
    redlock_poll_fill_note(r, id, name);
    redlock_poll_send(r, NULL, REDLOCK_NOTES, REDLOCK_RELEASE_TIME);
}

bool redlock_hold_report(struct redlock *r, const char *id, enum remote_event event, enum backend_end why)
{
    GPtrArray *ids = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter each;
    gpointer of, hold;
    char *name = NULL;
    g_hash_table_iter_init(&each, r->holds);
    while (g_hash_table_iter_next(&each, &of, &hold)) {
        if (strcmp(((struct redlock_hold *)hold)->id, id) == 0) {
            g_ptr_array_add(ids, g_strdup(of));
            name = name ? name : g_strdup(((struct redlock_hold *)hold)->name);
        }
    }
    if (event == REMOTE_ENDED && name) { /* who ended it does not know this mount's notes */
        hold_send_note_out(r, id, name);
    }
    for (guint i = 0; i < ids->len; i++) {
        if (event == REMOTE_ENDED) {
            g_hash_table_remove(r->holds, ids->pdata[i]);
        }
        remote_on_event(&r->remote, ids->pdata[i], event, why);
    }
    bool any = ids->len > 0;
    g_ptr_array_unref(ids);
    g_free(name);
    return any;
}

/* --- records --- */

struct redlock_record redlock_hold_record(const struct remote_ticket *t, uint64_t revision)
{
    return (struct redlock_record){
        .kind = t->head.kind,
        .ttl = t->head.ttl,
        .age = t->state == REMOTE_HELD ? clock_now() - t->head.acquired : 0,
        .number = t->head.fence,
        .revision = revision,
        .meta = t->meta,
        .content = t->head.content,
    };
}

void redlock_hold_fill_record(struct redlock *r, const struct redlock_record *record)
{
    redlock_poll_number(r, record->ttl);
    redlock_poll_number(r, record->age);
    redlock_poll_number(r, (int64_t)record->revision);
    redlock_poll_number(r, record->kind);
    redlock_poll_number(r, (int64_t)record->number);
    redlock_poll_bytes(r, record->meta);
    redlock_poll_bytes(r, record->content);
}

/* How long the key must last, ms: other holders that share it may need it for longer, and REMOTE_SET does not extend a
 * fixed term. */
static int64_t hold_term(const struct redlock *r, const struct redlock_flow *flow, const struct redlock_record *record)
{
    const struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, flow->name);
    const struct remote_ticket *t = remote_ticket_find((struct remote *)&r->remote, flow->request->id);
    enum remote_procedure procedure = flow->request->procedure;
    bool ends = procedure == REMOTE_RELEASE || procedure == REMOTE_RELEASE_RANGE;
    int64_t term = procedure == REMOTE_RENEW ? flow->request->renewal.left : ends ? 0 : record->ttl;
    if (procedure == REMOTE_SET && t && t->ends != CLOCK_NEVER) {
        term = MIN(term, remote_time_left(t));
    }
    for (t = lock ? LIST_FIRST(&lock->tickets) : NULL; t; t = LIST_NEXT(t, link)) {
        bool other = t->state == REMOTE_HELD && strcmp(t->id, flow->request->id) != 0 &&
                     strcmp(redlock_hold_value(r, t->id), flow->id) == 0;
        if (other) {
            term = MAX(term, remote_time_left(t));
        }
    }
    return term;
}

/* See NOTES in head.lua. */
static int64_t hold_note_score(const struct redlock_record *record)
{
    size_t length = 0;
    const char *pid = backend_parse_pid(record->meta, &length);
    return record->kind == BACKEND_LEASE ? 0 : length ? atoi(pid) : -1;
}

void redlock_hold_send(struct redlock_flow *flow, const struct redlock_record *record, bool give,
                       void (*on_answer)(struct redlock_flow *flow))
{
    struct redlock *r = flow->r;
    const char *leaf;
    char *directory = remote_parent(flow->name, &leaf);
    redlock_poll_key(r, 0, flow->name);
    redlock_poll_key(r, 'R', flow->name);
    redlock_poll_key(r, 'N', flow->name);
    redlock_poll_key(r, 'L', directory);
    redlock_poll_fill_notes(r);
    redlock_poll_text(r, flow->id);
    redlock_poll_number(r, hold_term(r, flow, record));
    redlock_poll_text(r, leaf);
    redlock_hold_fill_record(r, record);
    redlock_poll_number(r, give);
    redlock_poll_fill_note(r, record->kind == BACKEND_PROVISIONAL ? NULL : flow->id, flow->name);
    redlock_poll_number(r, hold_note_score(record));
    redlock_flow_poll(flow, REDLOCK_HOLD, redlock_flow_timeout(r, record->ttl), on_answer);
    g_free(directory);
}

enum vote_verdict redlock_hold_verdict(struct redlock_flow *flow)
{
    const struct redlock_poll *poll = flow->poll;
    const char *word;
    enum vote_verdict verdict = vote_verdict(&poll->vote, "ok", &word);
    unsigned majority = vote_majority(flow->r->count), others = vote_count(&poll->vote, word);
    if (verdict == VOTE_LOST && others >= majority) { /* where it was given again it is to go, too */
        redlock_flow_undo(flow->r, flow->name, flow->id);
    } else if (verdict == VOTE_LOST) {
        verdict = others + poll->open >= majority ? VOTE_OPEN : VOTE_AWAY;
    }
    return verdict == VOTE_SPLIT ? VOTE_AWAY : verdict;
}
