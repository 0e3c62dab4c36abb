/* procedures: the procedures of remote.h as scripts, from one table: what fills the call, which script, what reads the
 * answer. */
#include <string.h>

#include "backend/redis/private.h"

/* What an answer points to. */
struct procedure_values {
    struct backend_info info;
    GArray *segments; /* or NULL */
    bool again;       /* the request is sent again */
};

/* --- acquire, test --- */

/* With `test` the script only finds what is in the way. */
static void procedure_fill_claim(struct redis_call *call, const struct remote_ticket *t, bool test)
{
    struct redis *r = call->r;
    const char *name = remote_ticket_name(t);
    bool in_root = !strchr(name, '/');
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    redis_call_lock(call, t->lock->name, t->lock->sequence, NULL);
    redis_call_key(call, 0, directory);
    for (const char *letter = remote_is_numbered(leaf) ? "oti" : ""; *letter && !t->lock->sequence; letter++) {
        redis_call_key(call, *letter, directory);
    }
    g_free(directory);
    const struct backend_claim claim = {
        .kind = t->head.kind,
        .mode = t->head.mode,
        .ttl = t->head.ttl,
        .handle = t->handle,
        .lock_owner = t->lock_owner,
        .start = t->start,
        .end = t->end,
    };
    redis_call_leaf(call, name, t->lock->sequence);
    redis_call_flag(call, "needed", !in_root);
    redis_call_text(call, "ticket", t->id);
    redis_call_text(call, "mount", r->mount);
    redis_call_text(call, "path", t->lock->name);
    redis_call_claim(call, t, &claim);
    redis_call_flag(call, "wait", t->wait);
    redis_call_flag(call, "test", test);
    redis_call_bytes(call, "meta", t->meta);
    if (t->head.content) {
        redis_call_bytes(call, "content", t->head.content);
    }
    if (t->head.fence) {
        redis_call_number(call, "number", (int64_t)t->head.fence);
    } else if (t->lock->sequence) {
        redis_call_number(call, "next", (int64_t)redis_sequence(r, t->lock->name, 0));
    }
}

static void procedure_fill_acquire(struct redis_call *call, const struct remote_request *request,
                                   const struct remote_ticket *t)
{
    (void)request;
    procedure_fill_claim(call, t, false);
}

static void procedure_fill_test(struct redis_call *call, const struct remote_request *request,
                                const struct remote_ticket *t)
{
    (void)t;
    struct remote_ticket *claim = remote_ticket_new(&call->r->remote, request->name, &request->claim);
    procedure_fill_claim(call, claim, true);
    remote_ticket_free(&call->r->remote, claim);
}

/* The name of a sequence ticket is the requested one and a number. */
static bool procedure_is_given_name(const struct remote_ticket *t, const char *given)
{
    const char *leaf = remote_leaf(t->name);
    size_t prefix = strlen(leaf) - (remote_is_numbered(leaf) ? 10 : 0);
    return remote_is_component(given) && strlen(given) == prefix + 10 && strncmp(given, leaf, prefix) == 0 &&
           remote_is_numbered(given);
}

static uint64_t procedure_sequence_number(const char *leaf)
{
    return g_ascii_strtoull(leaf + strlen(leaf) - 10, NULL, 10);
}

/* Can the script have given this answer to this ticket? */
static bool procedure_is_credible(struct redis *r, const struct remote_ticket *t, const redisReply *reply, bool granted,
                                  uint64_t *ret_fence)
{
    if (!redis_fence(reply, granted ? 2 : 1, ret_fence)) {
        return false;
    }
    if (t->lock->sequence && !procedure_is_given_name(t, redis_text(reply, granted ? 4 : 5))) {
        return false;
    }
    return granted ? remote_ticket_accepts_id(&r->remote, t, redis_text(reply, 1)) : t->wait;
}

static void procedure_read_acquire(const struct remote_request *request, const struct redis_answer *given,
                                   struct remote_answer *answer, struct procedure_values *values)
{
    struct redis *r = redis_of(request);
    struct remote_ticket *t = remote_ticket_find(&r->remote, request->id);
    const redisReply *reply = given->reply;
    const char *word = redis_text(reply, 0);
    bool granted = strcmp(word, "granted") == 0, queued = strcmp(word, "queued") == 0;
    answer->result = granted ? BACKEND_OK : queued ? BACKEND_QUEUED : redis_result(r, given);
    if (answer->outcome == REMOTE_ANSWERED && (granted || queued) &&
        procedure_is_credible(r, t, reply, granted, &answer->fence)) {
        t->uncontended = false;
        answer->id = redis_text(reply, 1);
        answer->segments = values->segments = remote_parse_segments(redis_text(reply, 3));
        answer->leaf = redis_text(reply, granted ? 4 : 5);
        answer->rank = redis_number(reply, 2);
        answer->wait = redis_number(reply, 3);
        answer->foreign = redis_number(reply, 4) == 1;
        if (t->lock->sequence) {
            redis_sequence(r, t->lock->name, procedure_sequence_number(answer->leaf) + 1);
        }
    } else if (answer->result == BACKEND_BUSY) {
        redis_describe(r, t->lock->name, reply, &values->info);
        answer->info = &values->info;
    } else if (answer->outcome == REMOTE_ANSWERED && answer->result != BACKEND_MISSING &&
               answer->result != BACKEND_DEADLOCK && answer->result != BACKEND_GRACE &&
               answer->result != BACKEND_IS_DIRECTORY && answer->result != BACKEND_NOT_DIRECTORY) {
        redis_disbelieve(r, given);
        answer->outcome = REMOTE_UNKNOWN;
        answer->result = BACKEND_UNREACHABLE;
    }
}

static void procedure_read_test(const struct remote_request *request, const struct redis_answer *given,
                                struct remote_answer *answer, struct procedure_values *values)
{
    struct redis *r = redis_of(request);
    struct backend_info *info = &values->info;
    const char *word = redis_text(given->reply, 0);
    *info = (struct backend_info){.type = BACKEND_NOTHING};
    answer->info = info;
    if (given->outcome != REMOTE_ANSWERED) {
        answer->result = redis_failure(r, given);
    } else if (strcmp(word, "grace") == 0) {
        answer->result = BACKEND_GRACE;
    } else if (strcmp(word, "busy") == 0) {
        *info = (struct backend_info){.type = BACKEND_LOCK, .holders = 1};
        redis_describe(r, request->name, given->reply, info);
        if (remote_info_is_expired(
                info, redis_describes_own(r, given->reply, 1))) { /* another may be named behind its release */
            info->type = BACKEND_NOTHING;
            values->again = !request->verified;
        }
    }
}

/* --- release --- */

static void procedure_fill_release(struct redis_call *call, const struct remote_request *request,
                                   const struct remote_ticket *t)
{
    (void)t;
    struct redis *r = redis_of(request);
    redis_call_lock(call, request->name, request->release.sequence, NULL);
    redis_call_leaf(call, request->release.ticket_name, request->release.sequence);
    redis_call_text(call, "ticket", request->id);
    redis_call_text(call, "mount", r->mount);
    redis_call_unsigned(call, "owner", request->lock_owner);
    if (*request->release.why) {
        redis_call_text(call, "why", request->release.why);
    }
    char *note =
        redis_note(request->id, request->release.sequence, request->name, request->release.kind, request->release.meta);
    if (*note) {
        redis_call_text(call, "noted", note);
    }
    g_free(note);
}

static void procedure_read_release(const struct remote_request *request, const struct redis_answer *given,
                                   struct remote_answer *answer, struct procedure_values *values)
{
    (void)values;
    answer->result = given->outcome != REMOTE_ANSWERED    ? redis_failure(redis_of(request), given)
                     : redis_number(given->reply, 0) == 2 ? BACKEND_BUSY
                     : redis_number(given->reply, 0) == 1 || epoch_is_closed(&redis_of(request)->epoch)
                         ? BACKEND_OK
                         : BACKEND_MISSING;
}

static void procedure_fill_release_range(struct redis_call *call, const struct remote_request *request,
                                         const struct remote_ticket *t)
{
    (void)t;
    redis_call_lock(call, request->name, false, NULL);
    redis_call_leaf(call, request->name, false);
    redis_call_text(call, "mount", redis_of(request)->mount);
    redis_call_range(call, request->lock_owner, request->release.start, request->release.end);
}

/* --- renew --- */

/* While the store is closed the script gets all that the mount knows of the ticket, to restore it. */
static void procedure_fill_renew(struct redis_call *call, const struct remote_request *request,
                                 const struct remote_ticket *t)
{
    struct redis *r = redis_of(request);
    bool restores = epoch_is_closed(&r->epoch) && t->head.deadline > clock_now();
    if (restores) {
        call->script = REDIS_RECLAIM;
    }
    redis_call_ticket(call, t);
    redis_call_number(call, "ttl", request->ttl);
    redis_call_number(call, "left", request->renewal.left);
    redis_call_number(call, "mode", (int64_t)request->renewal.mode);
    if (request->renewal.segments || (restores && t->segments)) {
        redis_call_segments(call, request->renewal.segments ? request->renewal.segments : t->segments);
    }
    if (!restores) {
        return;
    }
    redis_call_text(call, "path", t->lock->name);
    redis_call_number(call, "kind", t->head.kind);
    redis_call_identity(call, t, BACKEND_IDENTITY(t));
    redis_call_unsigned(call, "owner", t->lock_owner);
    redis_call_unsigned(call, "number", t->head.fence);
    redis_call_number(call, "age", clock_now() - t->head.acquired);
    redis_call_bytes(call, "meta", t->meta);
    if (t->head.content) {
        redis_call_bytes(call, "content", t->head.content);
    }
}

static void procedure_read_renew(const struct remote_request *request, const struct redis_answer *given,
                                 struct remote_answer *answer, struct procedure_values *values)
{
    struct redis *r = redis_of(request);
    (void)values;
    if (given->outcome != REMOTE_ANSWERED) {
        answer->result = redis_failure(r, given);
        return;
    }
    switch (redis_number(given->reply, 0)) {
    case 0:
        epoch_on_missing(&r->epoch);
        answer->result = BACKEND_STALE;
        break;
    case 1:
        epoch_on_confirmed(&r->epoch, request->id, false);
        break;
    case 3:
        epoch_on_confirmed(&r->epoch, request->id, true);
        break;
    case 4: /* the next renewal restores the ticket */
        answer->result = BACKEND_UNREACHABLE;
        break;
    default: /* it holds in another mode */
        answer->result = BACKEND_BUSY;
        break;
    }
}

/* --- set, convert, rename --- */

static void procedure_fill_change(struct redis_call *call, const struct backend_change *c)
{
    if (c->set & BACKEND_SET_META) {
        redis_call_bytes(call, "meta", c->meta);
    }
    if (c->set & BACKEND_SET_CONTENT) {
        redis_call_bytes(call, "content", c->content);
    }
}

static void procedure_fill_set(struct redis_call *call, const struct remote_request *request,
                               const struct remote_ticket *t)
{
    redis_call_ticket(call, t);
    procedure_fill_change(call, &request->update.change);
    redis_call_flag(call, "unreported", !request->done);
}

static void procedure_fill_convert(struct redis_call *call, const struct remote_request *request,
                                   const struct remote_ticket *t)
{
    redis_call_ticket(call, t);
    redis_call_claim(call, t, &request->update.claim);
    procedure_fill_change(call, &request->update.change);
}

static void procedure_fill_rename(struct redis_call *call, const struct remote_request *request,
                                  const struct remote_ticket *t)
{
    const char *leaf = remote_leaf(request->name);
    redis_call_lock(call, t->lock->name, false, NULL);
    redis_call_lock(call, request->name, false, "i");
    redis_call_leaf(call, t->lock->name, false);
    redis_call_text(call, "ticket", t->id);
    redis_call_text(call, "mount", call->r->mount);
    redis_call_text(call, "new_leaf", leaf);
    redis_call_text(call, "path", request->name);
    redis_call_flag(call, "needed", leaf != request->name);
    if (request->replaced) {
        redis_call_text(call, "replaced", request->replaced);
    }
}

static void procedure_read_word(const struct remote_request *request, const struct redis_answer *given,
                                struct remote_answer *answer, struct procedure_values *values)
{
    struct redis *r = redis_of(request);
    (void)values;
    answer->result = redis_result(r, given);
    if (answer->result == BACKEND_STALE &&
        epoch_is_closed(&r->epoch)) { /* not restored yet, as the server is full, say */
        answer->result = BACKEND_UNREACHABLE;
    }
    redis_fence(given->reply, 1, &answer->fence); /* of rename */
}

/* --- mounts --- */

static void procedure_fill_mounts(struct redis_call *call, const struct remote_request *request,
                                  const struct remote_ticket *t)
{
    (void)request, (void)t;
    redis_call_key(call, 's', "");
}

static void procedure_read_mounts(const struct remote_request *request, const struct redis_answer *given,
                                  struct remote_answer *answer, struct procedure_values *values)
{
    const char *text = redis_text(given->reply, 1);
    bool known = given->outcome == REMOTE_ANSWERED && strcmp(redis_text(given->reply, 0), "mounts") == 0;
    values->info.content = known ? g_bytes_new(text, strlen(text)) : NULL;
    answer->info = &values->info;
    answer->result = given->outcome != REMOTE_ANSWERED ? redis_failure(redis_of(request), given)
                     : known                           ? BACKEND_OK
                                                       : BACKEND_UNSUPPORTED;
}

/* --- the table --- */

/* A procedure that is one call of a script; or else a flow of several. */
static const struct procedure {
    enum redis_script_id script;
    void (*fill)(struct redis_call *call, const struct remote_request *request, const struct remote_ticket *t);
    /* Fills the result and what else the answer says.  The answer borrows from `given` and `values`. */
    void (*read)(const struct remote_request *request, const struct redis_answer *given, struct remote_answer *answer,
                 struct procedure_values *values);
    void (*begin)(struct remote_request *request);
} procedures[REMOTE_PROCEDURES] = {
    [REMOTE_ACQUIRE] = {REDIS_ACQUIRE, procedure_fill_acquire, procedure_read_acquire},
    [REMOTE_TEST] = {REDIS_ACQUIRE, procedure_fill_test, procedure_read_test},
    [REMOTE_RELEASE] = {REDIS_RELEASE, procedure_fill_release, procedure_read_release},
    [REMOTE_RELEASE_RANGE] = {REDIS_RELEASE_RANGE, procedure_fill_release_range, procedure_read_word},
    [REMOTE_RENEW] = {REDIS_RENEW, procedure_fill_renew, procedure_read_renew},
    [REMOTE_SET] = {REDIS_SET, procedure_fill_set, procedure_read_word},
    [REMOTE_CONVERT] = {REDIS_CONVERT, procedure_fill_convert, procedure_read_word},
    [REMOTE_RENAME] = {REDIS_RENAME, procedure_fill_rename, procedure_read_word},
    [REMOTE_REVOKE] = {.begin = redis_revoke},
    [REMOTE_STAT] = {.begin = redis_stat},
    [REMOTE_LIST] = {.begin = redis_list},
    [REMOTE_TICKETS] = {.begin = redis_list},
    [REMOTE_MOUNTS] = {REDIS_MOUNTS, procedure_fill_mounts, procedure_read_mounts},
    [REMOTE_MKDIR] = {.begin = redis_change_directory},
    [REMOTE_RMDIR] = {.begin = redis_change_directory},
    [REMOTE_SET_DIRECTORY] = {.begin = redis_change_directory},
};

void redis_procedure_answer(struct remote_request *request, const struct redis_answer *given)
{
    struct procedure_values values = {.info = {.type = BACKEND_LOCK, .holders = 1}};
    struct remote_answer answer = {
        .outcome = given->outcome, .sent = given->sent, .repeated = given->repeated || request->repeated};
    procedures[request->procedure].read(request, given, &answer, &values);
    if (values.again) {
        request->verified = true;
        redis_procedure_send(request, NULL, 0);
    } else {
        request->on_answer(request, &answer);
    }
    g_clear_pointer(&values.segments, g_array_unref);
    remote_info_clear(&values.info);
}

static void procedure_on_answer(void *arg, const struct redis_answer *given)
{
    redis_procedure_answer(arg, given);
}

uint64_t redis_procedure_send(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
    const struct procedure *procedure = &procedures[request->procedure];
    struct redis_call call = {.r = redis_of(request), .script = procedure->script};
    if (procedure->begin) {
        procedure->begin(request);
        return 0;
    }
    procedure->fill(&call, request, t);
    return redis_call_send(&call, timeout, procedure_on_answer, request);
}
