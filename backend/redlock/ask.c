/* ask: questions: who holds, and what is in a directory.
 *
 * Of what this mount holds itself nobody has to be asked.  A directory's names are all that some server of a majority
 * knows: to look at, not to decide by.
 */
#include <string.h>

#include "backend/redlock/private.h"

#define ASK_TIME_MAX INT64_C(315576000000) /* ms: 10 years */
#define ASK_FENCE_MAX (INT64_C(1) << 53)

/* Of an answer 'held'. */
enum ask_field { ASK_TOKEN = 3, ASK_LEFT, ASK_NUMBER, ASK_KIND, ASK_AGE, ASK_TTL, ASK_REVISION, ASK_META, ASK_CONTENT };

static int64_t ask_time(const struct redlock_ballot *ballot, enum ask_field field)
{
    return CLAMP(redlock_ballot_number(ballot, field), -1, ASK_TIME_MAX);
}

bool redlock_is_guard(const char *id)
{
    return id[0] == 'g' && strlen(id) == REMOTE_ID_SIZE - 1;
}

void redlock_ask_describe(struct redlock_call *call, const char *word, struct backend_info *info)
{
    const struct redlock_ballot *ballot = word ? redlock_poll_best(call->poll, word, ASK_REVISION) : NULL;
    clock_ms now = clock_now();
    *info = (struct backend_info){.type = BACKEND_LOCK,
                                  .kind = BACKEND_LEASE,
                                  .acquired = CLOCK_NEVER,
                                  .deadline = CLOCK_NEVER,
                                  .end = BACKEND_RANGE_MAX,
                                  .holders = 1};
    if (!ballot) {
        return;
    }
    int64_t left = ask_time(ballot, ASK_LEFT);
    info->deadline = left >= 0 ? now + left : CLOCK_NEVER;
    const char *id = redlock_ballot_text(ballot, ASK_TOKEN);
    if (!remote_is_id(id) && !redlock_is_guard(id)) {
        return;
    }
    info->kind = (enum backend_kind)CLAMP(redlock_ballot_number(ballot, ASK_KIND), BACKEND_PROVISIONAL, BACKEND_FCNTL);
    info->fence = (uint64_t)CLAMP(redlock_ballot_number(ballot, ASK_NUMBER), 0, ASK_FENCE_MAX);
    info->acquired = now - MAX(ask_time(ballot, ASK_AGE), 0);
    info->ttl = MAX(ask_time(ballot, ASK_TTL), 0);
    info->meta = redlock_ballot_bytes(ballot, ASK_META, REDLOCK_META_MAX);
    info->content = redlock_ballot_bytes(ballot, ASK_CONTENT, REDLOCK_CONTENT_MAX);
    info->guarded = redlock_is_guard(id);
    struct remote_ticket *t = redlock_keep_holder(call->r, call->name);
    if (t && strcmp(redlock_keep_token(call->r, t->id), id) == 0) {
        remote_ticket_describe(t, info);
    }
}

void redlock_ask_clear(struct backend_info *info)
{
    g_clear_pointer(&info->meta, g_bytes_unref);
    g_clear_pointer(&info->content, g_bytes_unref);
}

void redlock_ask_describe_ticket(struct remote_ticket *t, struct backend_info *info)
{
    *info = (struct backend_info){.type = BACKEND_LOCK,
                                  .kind = t->head.kind,
                                  .end = BACKEND_RANGE_MAX,
                                  .meta = t->meta,
                                  .content = t->head.content,
                                  .holders = 1,
                                  .waiters = t->lock->waiting};
    remote_ticket_describe(t, info);
}

/* The verdict of whichever word; servers that are held off tell as well as others that nothing is there, if all do: one
 * that does not answer may know better. */
enum vote_verdict redlock_ask_verdict(const struct redlock_call *call, const char *nothing, const char **ret_word)
{
    enum vote_verdict verdict = vote_verdict(&call->poll->vote, NULL, ret_word);
    unsigned agree = 0;
    for (unsigned i = 0; i < call->r->count; i++) {
        agree += strcmp(redlock_ballot_text(&call->poll->ballots[i], 0), nothing) == 0;
    }
    if (verdict == VOTE_AWAY && agree == call->r->count) {
        return VOTE_SPLIT;
    }
    return verdict == VOTE_AWAY && agree + call->poll->open == call->r->count ? VOTE_OPEN : verdict;
}

/* --- a name --- */

static void ask_tell(struct redlock_call *call, enum backend_result result, const struct backend_info *info)
{
    struct remote_request *request = call->request;
    request->on_answer(request, &(struct remote_answer){.result = result, .info = info});
    redlock_call_end(call, true);
}

void redlock_ask_note_directory(struct redlock_call *call, const char *word, struct backend_directory *directory)
{
    const struct redlock_ballot *ballot = redlock_poll_best(call->poll, word, 3);
    *directory = (struct backend_directory){.ttl = CLAMP(redlock_ballot_number(ballot, 2), 0, ASK_TIME_MAX),
                                            .width = 1,
                                            .meta = redlock_ballot_bytes(ballot, 4, REDLOCK_META_MAX)};
    redlock_seen_note(call->r, call->name, redlock_ballot_text(ballot, 1), redlock_ballot_number(ballot, 3), directory);
}

static void ask_tell_directory(struct redlock_call *call, const char *word)
{
    struct backend_info info = {.type = BACKEND_DIRECTORY};
    redlock_ask_note_directory(call, word, &info.directory);
    GBytes *meta = info.directory.meta;
    ask_tell(call, BACKEND_OK, &info);
    g_bytes_unref(meta);
}

static void ask_on_looked(struct redlock_call *call)
{
    struct backend_info info = {.type = BACKEND_NOTHING, .waiters = remote_count_waiters(&call->r->remote, call->name)};
    const char *word;
    enum vote_verdict verdict = redlock_ask_verdict(call, "nothing", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    bool answered = verdict != VOTE_AWAY;
    if (verdict == VOTE_WON && strcmp(word, "directory") == 0) {
        ask_tell_directory(call, word);
    } else if (verdict == VOTE_WON && g_str_has_prefix(word, "held ")) {
        redlock_ask_describe(call, word, &info);
        info.waiters = remote_count_waiters(&call->r->remote, call->name);
        ask_tell(call, BACKEND_OK, &info);
        redlock_ask_clear(&info);
    } else {
        if (answered) {
            redlock_seen_forget(call->r, call->name);
        }
        ask_tell(call, answered ? BACKEND_OK : BACKEND_UNREACHABLE, &info);
    }
}

void redlock_ask_fill_look(struct redlock *r, const char *name)
{
    redlock_poll_key(r, 0, name);
    redlock_poll_key(r, 'R', name);
    redlock_poll_key(r, 'N', name);
    redlock_poll_key(r, 'L', name);
    redlock_poll_key(r, 'D', name);
    redlock_poll_number(r, !*name);
}

static void ask_about(struct redlock_call *call)
{
    redlock_ask_fill_look(call->r, call->name);
    redlock_call_poll(call, REDLOCK_LOOK, call->r->timeout, ask_on_looked);
}

void redlock_stat(struct redlock_call *call)
{
    struct redlock *r = call->r;
    struct remote_ticket *t = redlock_keep_holder(r, call->name);
    struct backend_info info;
    if (t) {
        redlock_ask_describe_ticket(t, &info);
        ask_tell(call, BACKEND_OK, &info);
    } else {
        ask_about(call);
    }
}

void redlock_test(struct redlock_call *call)
{
    struct redlock *r = call->r;
    struct backend_info info = {.type = BACKEND_NOTHING};
    struct remote_ticket *t = redlock_keep_holder(r, call->name), *other;
    struct backend_identity asker = BACKEND_IDENTITY(&call->request->claim);
    if (!t) {
        ask_about(call);
        return;
    }
    LIST_FOREACH(other, &t->lock->tickets, link) {
        bool holds = other->state == REMOTE_HELD && !other->expiry_sent;
        if (holds && !backend_identity_matches(BACKEND_IDENTITY(other), asker)) {
            redlock_ask_describe_ticket(other, &info);
        }
    }
    ask_tell(call, BACKEND_OK, &info);
}

/* --- a directory's names --- */

static int ask_compare(gconstpointer a, gconstpointer b)
{
    const struct backend_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* What any of them knows, each once, in order: struct backend_entry, whose names are in `kept`. */
static GArray *ask_union(const struct redlock_call *call, GStringChunk *kept)
{
    GHashTable *seen = g_hash_table_new(g_str_hash, g_str_equal);
    GArray *entries = g_array_new(FALSE, FALSE, sizeof(struct backend_entry));
    for (unsigned i = 0; i < call->r->count; i++) {
        const struct redlock_ballot *ballot = &call->poll->ballots[i];
        bool names = strcmp(redlock_ballot_text(ballot, 0), "names") == 0;
        for (guint k = 1; names && k < ballot->words->len; k++) {
            const char *said = redlock_ballot_text(ballot, k), *slash = strchrnul(said, '/');
            char *name = g_string_chunk_insert_len(kept, said, slash - said);
            struct backend_entry entry = {.name = name, .type = *slash ? BACKEND_DIRECTORY : BACKEND_LOCK};
            if (*name && strlen(name) <= 255 && !(*slash && slash[1]) && g_hash_table_add(seen, name)) {
                g_array_append_val(entries, entry);
            }
        }
    }
    g_hash_table_unref(seen);
    g_array_sort(entries, ask_compare);
    return entries;
}

static void ask_tell_listed(struct redlock_call *call, enum backend_result result)
{
    struct remote_request *request = call->request;
    GStringChunk *kept = g_string_chunk_new(1024);
    GArray *entries = ask_union(call, kept);
    request->on_answer(request, &(struct remote_answer){.result = result,
                                                        .entries = (struct backend_entry *)entries->data,
                                                        .entry_count = MIN(entries->len, request->max)});
    g_array_unref(entries);
    g_string_chunk_free(kept);
    redlock_call_end(call, true);
}

static void ask_on_listed(struct redlock_call *call)
{
    const char *word;
    enum vote_verdict verdict = redlock_ask_verdict(call, "missing", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    bool answered = verdict != VOTE_AWAY;
    bool names = verdict == VOTE_WON && strcmp(word, "names") == 0;
    ask_tell_listed(call, names                                                      ? BACKEND_OK
                          : verdict == VOTE_WON && strcmp(word, "notdirectory") == 0 ? BACKEND_NOT_DIRECTORY
                          : answered                                                 ? BACKEND_MISSING
                                                                                     : BACKEND_UNREACHABLE);
}

void redlock_list(struct redlock_call *call)
{
    redlock_poll_fill_list(call->r, call->name, call->request->after, call->request->max);
    redlock_call_poll(call, REDLOCK_LIST, call->r->timeout, ask_on_listed);
}
