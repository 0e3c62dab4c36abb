/* keep: what is held, and its record.
 *
 * Tickets of one handle, or of one lock owner, hold together; in the key stands the token of the first.  What is held
 * is extended where it is, and given to the servers that have it not, which count the next time: had it been broken,
 * or had another held it meanwhile, one server of each majority would know a greater number.  If a majority has to be
 * given it at once, though none was started anew, it was deleted, and is let go.
 */
#include <string.h>

#include "backend/redlock/private.h"

/* --- holds --- */

struct redlock_hold *redlock_keep_hold(const struct redlock *r, const char *id)
{
    return g_hash_table_lookup(r->holds, id);
}

struct redlock_hold *redlock_keep_new(struct redlock *r, const struct remote_ticket *t, const char *id,
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

void redlock_keep_free(gpointer data)
{
    struct redlock_hold *hold = data;
    g_free(hold->name);
    g_free(hold);
}

const char *redlock_keep_token(const struct redlock *r, const char *id)
{
    const struct redlock_hold *hold = redlock_keep_hold(r, id);
    const char *tried = g_hash_table_lookup(r->tries, id);
    return hold ? hold->id : tried ? tried : id;
}

struct remote_ticket *redlock_keep_other(const struct redlock *r, const char *name, const char *id)
{
    const struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, name);
    struct remote_ticket *t = lock ? LIST_FIRST(&lock->tickets) : NULL;
    while (t && (strcmp(t->id, id) == 0 || strcmp(redlock_keep_token(r, t->id), redlock_keep_token(r, id)) != 0)) {
        t = LIST_NEXT(t, link);
    }
    return t;
}

struct remote_ticket *redlock_keep_holder(const struct redlock *r, const char *name)
{
    const struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, name);
    struct remote_ticket *t = lock ? LIST_FIRST(&lock->tickets) : NULL;
    while (t && (t->state != REMOTE_HELD || t->expiry_sent || t->head.deadline <= clock_now())) {
        t = LIST_NEXT(t, link);
    }
    return t;
}

void redlock_keep_tell(struct redlock *r, const char *id, enum remote_event news, enum backend_end why)
{
    GPtrArray *ids = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter each;
    gpointer of, hold;
    g_hash_table_iter_init(&each, r->holds);
    while (g_hash_table_iter_next(&each, &of, &hold)) {
        if (strcmp(((struct redlock_hold *)hold)->id, id) == 0) {
            g_ptr_array_add(ids, g_strdup(of));
        }
    }
    for (guint i = 0; i < ids->len; i++) {
        if (news == REMOTE_ENDED) {
            g_hash_table_remove(r->holds, ids->pdata[i]);
        }
        remote_on_event(&r->remote, ids->pdata[i], news, why);
    }
    g_ptr_array_unref(ids);
}

/* --- records --- */

struct redlock_record redlock_keep_record(const struct remote_ticket *t, uint64_t revision)
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

void redlock_keep_fill_record(struct redlock *r, const struct redlock_record *record)
{
    redlock_poll_number(r, record->ttl);
    redlock_poll_number(r, record->age);
    redlock_poll_number(r, (int64_t)record->revision);
    redlock_poll_number(r, record->kind);
    redlock_poll_number(r, (int64_t)record->number);
    redlock_poll_bytes(r, record->meta);
    redlock_poll_bytes(r, record->content);
}

int64_t redlock_keep_left(const struct remote_ticket *t)
{
    int64_t left = MAX(t->head.deadline - clock_now(), 0);
    return left + left / 99 + 3; /* more than remote_deadline takes off */
}

/* How long the key is to last: others that hold with it may need it for longer, and to set something does not extend a
 * fixed term. */
static int64_t keep_term(const struct redlock *r, const struct redlock_call *call, const struct redlock_record *record)
{
    const struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, call->name);
    const struct remote_ticket *t = remote_ticket_find((struct remote *)&r->remote, call->request->id);
    enum remote_procedure procedure = call->request->procedure;
    bool ends = procedure == REMOTE_RELEASE || procedure == REMOTE_RELEASE_RANGE;
    int64_t term = procedure == REMOTE_RENEW ? call->request->ttl : ends ? 0 : record->ttl;
    if (procedure == REMOTE_SET && t && t->ends != CLOCK_NEVER) {
        term = MIN(term - 1, redlock_keep_left(t)); /* less than the record's, by which the script knows it */
    }
    for (t = lock ? LIST_FIRST(&lock->tickets) : NULL; t; t = LIST_NEXT(t, link)) {
        bool other = t->state == REMOTE_HELD && strcmp(t->id, call->request->id) != 0 &&
                     strcmp(redlock_keep_token(r, t->id), call->id) == 0;
        if (other) {
            term = MAX(term, redlock_keep_left(t));
        }
    }
    return term;
}

void redlock_keep_poll(struct redlock_call *call, const struct redlock_record *record, bool give,
                       void (*told)(struct redlock_call *call))
{
    struct redlock *r = call->r;
    const char *leaf;
    char *directory = remote_parent(call->name, &leaf);
    redlock_poll_key(r, 0, call->name);
    redlock_poll_key(r, 'R', call->name);
    redlock_poll_key(r, 'N', call->name);
    redlock_poll_key(r, 'L', directory);
    redlock_poll_text(r, call->id);
    redlock_poll_number(r, keep_term(r, call, record));
    redlock_poll_text(r, leaf);
    redlock_keep_fill_record(r, record);
    redlock_poll_number(r, give);
    redlock_call_poll(call, REDLOCK_KEEP, redlock_call_timeout(r, record->ttl), told);
    g_free(directory);
}

enum vote_verdict redlock_keep_verdict(struct redlock_call *call)
{
    const struct redlock_poll *poll = call->poll;
    const char *word;
    enum vote_verdict verdict = vote_verdict(&poll->vote, "ok", &word);
    unsigned majority = vote_majority(call->r->count), others = vote_count(&poll->vote, word);
    if (verdict == VOTE_LOST && others >= majority) { /* where it was given again it is to go, too */
        redlock_call_undo(call->r, call->name, call->id);
    } else if (verdict == VOTE_LOST) {
        verdict = others + poll->open >= majority ? VOTE_OPEN : VOTE_AWAY;
    }
    return verdict == VOTE_SPLIT ? VOTE_AWAY : verdict;
}
