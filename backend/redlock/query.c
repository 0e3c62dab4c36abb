/* query: the holder of a name, and the names in a directory.
 *
 * A lock that this mount holds needs no request.  A listing has every name that any server of a majority has: it is for
 * people, and no code decides by it.
 */
#include <string.h>

#include "backend/redlock/private.h"

#define QUERY_TIME_MAX INT64_C(315576000000) /* ms: 10 years */
#define QUERY_FENCE_MAX (INT64_C(1) << 53)

/* The fields of an answer 'held'. */
enum query_field {
    QUERY_TOKEN = 3,
    QUERY_LEFT,
    QUERY_NUMBER,
    QUERY_KIND,
    QUERY_AGE,
    QUERY_TTL,
    QUERY_REVISION,
    QUERY_META,
    QUERY_CONTENT
};

static int64_t query_time(const struct redlock_ballot *ballot, enum query_field field)
{
    return CLAMP(redlock_ballot_number(ballot, field), -1, QUERY_TIME_MAX);
}

bool redlock_is_guard(const char *id)
{
    return id[0] == 'g' && strlen(id) == REMOTE_ID_SIZE - 1;
}

void redlock_query_describe(struct redlock_flow *flow, const char *word, struct backend_info *info)
{
    const struct redlock_ballot *ballot = word ? redlock_poll_best(flow->poll, word, QUERY_REVISION) : NULL;
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
    int64_t left = query_time(ballot, QUERY_LEFT);
    info->deadline = left >= 0 ? now + left : CLOCK_NEVER;
    const char *id = redlock_ballot_text(ballot, QUERY_TOKEN);
    if (!remote_is_id(id) && !redlock_is_guard(id)) {
        return;
    }
    info->kind =
        (enum backend_kind)CLAMP(redlock_ballot_number(ballot, QUERY_KIND), BACKEND_PROVISIONAL, BACKEND_FCNTL);
    info->fence = (uint64_t)CLAMP(redlock_ballot_number(ballot, QUERY_NUMBER), 0, QUERY_FENCE_MAX);
    info->acquired = now - MAX(query_time(ballot, QUERY_AGE), 0);
    info->ttl = MAX(query_time(ballot, QUERY_TTL), 0);
    info->meta = redlock_ballot_bytes(ballot, QUERY_META, REDLOCK_META_MAX);
    info->content = redlock_ballot_bytes(ballot, QUERY_CONTENT, REDLOCK_CONTENT_MAX);
    info->guarded = redlock_is_guard(id);
    struct remote_ticket *t = redlock_hold_find_holder(flow->r, flow->name);
    if (t && strcmp(redlock_hold_value(flow->r, t->id), id) == 0) {
        remote_ticket_describe(t, info);
    }
}

void redlock_query_describe_ticket(struct remote_ticket *t, struct backend_info *info)
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

/* The verdict on any word.  If all servers say `nothing`, held-off ones count too; if one does not answer, it may have
 * the name. */
enum vote_verdict redlock_query_verdict(const struct redlock_flow *flow, const char *nothing, const char **ret_word)
{
    enum vote_verdict verdict = vote_verdict(&flow->poll->vote, NULL, ret_word);
    unsigned agree = 0;
    for (unsigned i = 0; i < flow->r->count; i++) {
        agree += strcmp(redlock_ballot_text(&flow->poll->ballots[i], 0), nothing) == 0;
    }
    if (verdict == VOTE_AWAY && agree == flow->r->count) {
        return VOTE_SPLIT;
    }
    return verdict == VOTE_AWAY && agree + flow->poll->open == flow->r->count ? VOTE_OPEN : verdict;
}

/* --- a name --- */

static void query_answer(struct redlock_flow *flow, enum backend_result result, const struct backend_info *info)
{
    struct remote_request *request = flow->request;
    request->on_answer(request, &(struct remote_answer){.result = result, .info = info});
    redlock_flow_end(flow, true);
}

void redlock_query_note_directory(struct redlock_flow *flow, const char *word, struct backend_directory *directory)
{
    const struct redlock_ballot *ballot = redlock_poll_best(flow->poll, word, 3);
    *directory = (struct backend_directory){.ttl = CLAMP(redlock_ballot_number(ballot, 2), 0, QUERY_TIME_MAX),
                                            .width = 1,
                                            .meta = redlock_ballot_bytes(ballot, 4, REDLOCK_META_MAX)};
    remote_directory_cache_add(&flow->r->remote, flow->name,
                               &(struct remote_directory){.attributes = *directory,
                                                          .mark = (char *)redlock_ballot_text(ballot, 1),
                                                          .revision = redlock_ballot_number(ballot, 3)});
}

static void query_answer_directory(struct redlock_flow *flow, const char *word)
{
    struct backend_info info = {.type = BACKEND_DIRECTORY};
    redlock_query_note_directory(flow, word, &info.directory);
    query_answer(flow, BACKEND_OK, &info);
    remote_info_clear(&info);
}

static void query_on_looked(struct redlock_flow *flow)
{
    struct backend_info info = {.type = BACKEND_NOTHING, .waiters = remote_count_waiters(&flow->r->remote, flow->name)};
    const char *word;
    enum vote_verdict verdict = redlock_query_verdict(flow, "nothing", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    bool answered = verdict != VOTE_AWAY;
    if (verdict == VOTE_WON && strcmp(word, "directory") == 0) {
        query_answer_directory(flow, word);
    } else if (verdict == VOTE_WON && g_str_has_prefix(word, "held ")) {
        redlock_query_describe(flow, word, &info);
        info.waiters = remote_count_waiters(&flow->r->remote, flow->name);
        query_answer(flow, BACKEND_OK, &info);
        remote_info_clear(&info);
    } else {
        if (answered) {
            remote_directory_cache_remove(&flow->r->remote, flow->name);
        }
        query_answer(flow, answered ? BACKEND_OK : BACKEND_UNREACHABLE, &info);
    }
}

void redlock_query_fill(struct redlock *r, const char *name)
{
    redlock_poll_key(r, 0, name);
    redlock_poll_key(r, 'R', name);
    redlock_poll_key(r, 'N', name);
    redlock_poll_key(r, 'L', name);
    redlock_poll_key(r, 'D', name);
    redlock_poll_number(r, !*name);
}

static void query_look(struct redlock_flow *flow)
{
    redlock_query_fill(flow->r, flow->name);
    redlock_flow_poll(flow, REDLOCK_LOOK, flow->r->remote.timeout, query_on_looked);
}

void redlock_stat(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    struct remote_ticket *t = redlock_hold_find_holder(r, flow->name);
    struct backend_info info;
    if (t) {
        redlock_query_describe_ticket(t, &info);
        query_answer(flow, BACKEND_OK, &info);
    } else {
        query_look(flow);
    }
}

void redlock_test(struct redlock_flow *flow)
{
    struct redlock *r = flow->r;
    struct backend_info info = {.type = BACKEND_NOTHING};
    struct remote_ticket *t = redlock_hold_find_holder(r, flow->name), *other;
    struct backend_identity asker = BACKEND_IDENTITY(&flow->request->claim);
    if (!t) {
        query_look(flow);
        return;
    }
    LIST_FOREACH(other, &t->lock->tickets, link) {
        bool holds = other->state == REMOTE_HELD && !other->expiry_sent;
        if (holds && !backend_identity_matches(BACKEND_IDENTITY(other), asker)) {
            redlock_query_describe_ticket(other, &info);
        }
    }
    query_answer(flow, BACKEND_OK, &info);
}

/* --- a directory's names --- */

static int query_compare_names(gconstpointer a, gconstpointer b)
{
    const struct backend_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* All names that any server has, in order. */
static void query_add_names(const struct redlock_flow *flow)
{
    GArray *entries = g_array_new(FALSE, FALSE, sizeof(struct backend_entry));
    GStringChunk *names = g_string_chunk_new(1024);
    for (unsigned i = 0; i < flow->r->count; i++) {
        const struct redlock_ballot *ballot = &flow->poll->ballots[i];
        bool lists = strcmp(redlock_ballot_text(ballot, 0), "names") == 0;
        for (guint k = 1; lists && k < ballot->words->len; k++) {
            const char *said = redlock_ballot_text(ballot, k), *slash = strchrnul(said, '/');
            struct backend_entry entry = {.name = g_string_chunk_insert_len(names, said, slash - said),
                                          .type = *slash ? BACKEND_DIRECTORY : BACKEND_LOCK};
            if (!*slash || !slash[1]) {
                g_array_append_val(entries, entry);
            }
        }
    }
    g_array_sort(entries, query_compare_names);
    for (guint i = 0; i < entries->len; i++) {
        const struct backend_entry *entry = &g_array_index(entries, struct backend_entry, i);
        remote_listing_add(flow->request, entry->name, entry->type, NULL); /* the first of this name */
    }
    g_array_unref(entries);
    g_string_chunk_free(names);
}

static void query_on_listed(struct redlock_flow *flow)
{
    struct remote_request *request = flow->request;
    const char *word;
    enum vote_verdict verdict = redlock_query_verdict(flow, "missing", &word);
    if (verdict == VOTE_OPEN) {
        return;
    }
    enum backend_result result = verdict == VOTE_AWAY ? BACKEND_UNREACHABLE : BACKEND_MISSING;
    if (verdict == VOTE_WON && strcmp(word, "names") == 0) {
        query_add_names(flow); /* each server gave as many as were requested: there is no other part */
        result = BACKEND_OK;
    } else if (verdict == VOTE_WON && strcmp(word, "notdirectory") == 0) {
        result = BACKEND_NOT_DIRECTORY;
    }
    redlock_flow_end(flow, true);
    remote_request_answer(request, result, 0);
}

void redlock_list(struct redlock_flow *flow)
{
    redlock_poll_fill_list(flow->r, flow->name, flow->request->listing->after, flow->request->listing->max);
    redlock_flow_poll(flow, REDLOCK_LIST, flow->r->remote.timeout, query_on_listed);
}
