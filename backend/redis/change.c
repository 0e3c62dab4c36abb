/* change: what is done to tickets: the procedures of remote.h are scripts. */
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

/* --- what is asked --- */

static void change_fill_release(struct redis_call *call, const struct remote_request *request)
{
    struct redis *r = redis_of(request);
    redis_call_lock(call, r, REDIS_RELEASE, request->name, request->claim.sequence, NULL);
    redis_call_leaf(call, request->ticket_name, request->claim.sequence);
    redis_call_text(call, "ticket", request->id);
    redis_call_text(call, "mount", r->mount);
    redis_call_text(call, "path", request->name);
    redis_call_unsigned(call, "owner", request->claim.lock_owner);
    if (*request->why) {
        redis_call_text(call, "why", request->why);
    }
    redis_call_flag(call, "lease", request->lease);
}

static void change_fill_release_range(struct redis_call *call, const struct remote_request *request)
{
    redis_call_lock(call, redis_of(request), REDIS_RELEASE_RANGE, request->name, false, NULL);
    redis_call_leaf(call, request->name, false);
    redis_call_text(call, "mount", redis_of(request)->mount);
    redis_call_range(call, request->claim.lock_owner, request->claim.start, request->claim.end);
}

static void change_fill_change(struct redis_call *call, const struct backend_change *c)
{
    if (c->set & BACKEND_SET_META) {
        redis_call_bytes(call, "meta", c->meta);
    }
    if (c->set & BACKEND_SET_CONTENT) {
        redis_call_bytes(call, "content", c->content);
    }
}

static void change_fill_rename(struct redis_call *call, const struct remote_request *request,
                               const struct remote_ticket *t)
{
    const char *leaf = remote_leaf(request->name);
    redis_call_lock(call, redis_of(request), REDIS_RENAME, t->lock->name, false, NULL);
    redis_call_lock(call, redis_of(request), REDIS_RENAME, request->name, false, "i");
    redis_call_leaf(call, t->lock->name, false);
    redis_call_text(call, "ticket", t->id);
    redis_call_text(call, "new_leaf", leaf);
    redis_call_text(call, "path", request->name);
    redis_call_flag(call, "needed", leaf != request->name);
    if (request->replaced) {
        redis_call_text(call, "replaced", request->replaced);
    }
}

/* While the store is closed it is told all that there is to know of what this mount believes in. */
static void change_fill_renew(struct redis_call *call, const struct remote_request *request,
                              const struct remote_ticket *t)
{
    struct redis *r = redis_of(request);
    bool reclaims = epoch_is_closed(&r->epoch) && t->head.deadline > clock_now();
    redis_call_ticket(call, r, reclaims ? REDIS_RECLAIM : REDIS_RENEW, t);
    redis_call_number(call, "ttl", request->ttl);
    redis_call_number(call, "left", request->left);
    redis_call_number(call, "mode", (int64_t)request->claim.mode);
    if (request->segments || (reclaims && t->segments)) {
        redis_call_segments(call, request->segments ? request->segments : t->segments);
    }
    if (!reclaims) {
        return;
    }
    redis_call_text(call, "mount", r->mount);
    redis_call_text(call, "path", t->lock->name);
    redis_call_number(call, "kind", t->head.kind);
    redis_call_kin(call, t, BACKEND_IDENTITY(t));
    redis_call_unsigned(call, "owner", t->lock_owner);
    redis_call_unsigned(call, "number", t->head.fence);
    redis_call_number(call, "age", clock_now() - t->head.acquired);
    redis_call_bytes(call, "meta", t->meta);
    if (t->head.content) {
        redis_call_bytes(call, "content", t->head.content);
    }
}

static void change_fill(struct redis_call *call, const struct remote_request *request, const struct remote_ticket *t)
{
    struct redis *r = redis_of(request);
    switch (request->procedure) {
    case REMOTE_ACQUIRE:
        redis_acquire_fill(call, r, t, false);
        break;
    case REMOTE_RELEASE:
        change_fill_release(call, request);
        break;
    case REMOTE_RELEASE_RANGE:
        change_fill_release_range(call, request);
        break;
    case REMOTE_RENEW:
        change_fill_renew(call, request, t);
        break;
    case REMOTE_SET:
        redis_call_ticket(call, r, REDIS_SET, t);
        change_fill_change(call, &request->change);
        redis_call_flag(call, "untold", !request->done);
        break;
    case REMOTE_RENAME:
        change_fill_rename(call, request, t);
        break;
    case REMOTE_CONVERT:
        redis_call_ticket(call, r, REDIS_CONVERT, t);
        redis_call_claim(call, t, &request->claim);
        change_fill_change(call, &request->change);
        break;
    default:
        break;
    }
}

/* What is asked first of a lock that is likely free, or held by one alone; false: it is nothing like that. */
static bool change_fill_short(struct redis_call *call, const struct remote_request *request,
                              const struct remote_ticket *t)
{
    struct redis *r = redis_of(request);
    if (request->procedure == REMOTE_ACQUIRE && redis_acquire_may_be_free(r, t)) {
        redis_acquire_fill_free(call, r, t);
        return true;
    }
    if (request->procedure == REMOTE_RELEASE && request->uncontended) {
        redis_call_lone(call, r, request->name);
        redis_call_word(call, request->id);
        redis_call_word(call, remote_leaf(request->ticket_name));
        redis_call_word_lease(call, request->id, request->name, request->lease);
        return true;
    }
    return false;
}

/* --- what is answered --- */

static enum backend_result change_result(const struct remote_request *request, const struct redis_answer *given)
{
    if (given->outcome == REMOTE_ANSWERED && request->procedure == REMOTE_RENEW) {
        struct redis *r = redis_of(request);
        int64_t held = redis_number(given->reply, 0);
        if (held == 1 || held == 3) {
            epoch_on_confirmed(&r->epoch, request->id, held == 3);
        } else if (held == 0) {
            epoch_on_missing(&r->epoch);
        }
        return held == 1 || held == 3 ? BACKEND_OK : held == 0 ? BACKEND_STALE : BACKEND_BUSY;
    }
    if (given->outcome == REMOTE_ANSWERED && request->procedure == REMOTE_RELEASE) { /* or it was gone already */
        return redis_number(given->reply, 0) == 2 ? BACKEND_BUSY : BACKEND_OK;
    }
    return redis_result(redis_of(request), given);
}

static void change_on_answer(void *arg, const struct redis_answer *given)
{
    struct remote_request *request = arg;
    struct backend_info holder = {.type = BACKEND_LOCK, .holders = 1};
    GArray *segments = NULL;
    struct remote_answer answer = {
        .outcome = given->outcome, .sent = given->sent, .repeated = given->repeated || request->again};
    if (request->procedure == REMOTE_ACQUIRE) {
        redis_acquire_read(request, given, &answer, &holder, &segments);
    } else {
        answer.result = change_result(request, given);
        redis_fence(given->reply, 1, &answer.fence);
    }
    request->on_answer(request, &answer);
    g_clear_pointer(&segments, g_array_unref);
    redis_info_clear(&holder);
}

static void change_forget_short(struct remote_request *request)
{
    GHashTable *releases = redis_of(request)->releases;
    if (request->procedure == REMOTE_RELEASE && g_hash_table_lookup(releases, request->name) == request) {
        g_hash_table_remove(releases, request->name);
    }
}

/* The short way leads nowhere where there is more to it. */
static void change_on_short_answer(void *arg, const struct redis_answer *given)
{
    struct remote_request *request = arg;
    change_forget_short(request);
    bool nothing = given->outcome == REMOTE_ANSWERED && given->reply->type == REDIS_REPLY_NIL;
    if (nothing || given->outcome != REMOTE_ANSWERED) {
        redis_of(request)->noted = 0; /* that may not have been done, either */
    }
    if (!nothing) {
        change_on_answer(arg, given);
        return;
    }
    struct remote_ticket *t = request->procedure == REMOTE_ACQUIRE ? remote_ticket_find(request->r, request->id) : NULL;
    struct redis_call call = {0};
    request->again = given->repeated;
    change_fill(&call, request, t);
    uint64_t id = redis_call_send(&call, 0, change_on_answer, request);
    if (t) {
        t->acquiring_call = id;
    }
}

/* A release in the short way that leads nowhere would be carried out behind what is asked now of the name: so it is
 * asked for in full before that. */
static void change_release_in_full(struct redis *r, const char *name)
{
    struct remote_request *request = g_hash_table_lookup(r->releases, name);
    struct redis_call call = {0};
    if (request) {
        change_forget_short(request);
        redis_conn_forget(r->conn, request->short_call);
        change_fill(&call, request, NULL);
        redis_call_send(&call, 0, change_on_answer, request);
    }
}

/* --- many renewals at once --- */

/* Of a lock that this mount holds alone, as far as is known: renew_many.lua is asked first. */
static bool change_may_be_gathered(const struct remote_request *request, const struct remote_ticket *t)
{
    return request->procedure == REMOTE_RENEW && request->background_cost > 0 && request->left == request->ttl &&
           !t->lock->sequence && !t->segments && request->claim.mode == BACKEND_EXCLUSIVE &&
           !epoch_is_closed(&redis_of(request)->epoch);
}

static void change_ask_renewal(struct remote_request *request)
{
    struct remote_ticket *t = remote_ticket_find(request->r, request->id);
    struct redis_call call = {0};
    if (t) {
        change_fill(&call, request, t);
        redis_call_send(&call, 0, change_on_answer, request);
    } else { /* it was released meanwhile */
        request->on_answer(request, &(struct remote_answer){.outcome = REMOTE_ANSWERED, .result = BACKEND_STALE});
    }
}

static void change_on_renewals(void *arg, const struct redis_answer *given)
{
    GPtrArray *ops = arg;
    struct redis *r = redis_of(ops->pdata[0]);
    bool answered = given->outcome == REMOTE_ANSWERED;
    g_hash_table_steal(r->renewals, ops);
    for (guint i = 0; i < ops->len; i++) {
        struct remote_request *request = ops->pdata[i];
        if (!answered) {
            change_on_answer(request, given);
        } else if (redis_number(given->reply, i) == 1) {
            epoch_on_confirmed(&r->epoch, request->id, false);
            request->on_answer(
                request,
                &(struct remote_answer){.outcome = given->outcome, .sent = given->sent, .repeated = given->repeated});
        } else {
            change_ask_renewal(request);
        }
    }
    g_ptr_array_unref(ops);
}

void redis_send_renewals(struct redis *r)
{
    GPtrArray *ops = g_steal_pointer(&r->gathered);
    struct redis_call call = {.r = r, .script = REDIS_RENEW_MANY};
    if (ops->len == 1) {
        change_ask_renewal(ops->pdata[0]);
        g_hash_table_remove(r->renewals, ops);
        return;
    }
    guint begin = redis_call_array(&call, "tickets");
    for (guint i = 0; i < ops->len; i++) {
        const struct remote_request *request = ops->pdata[i];
        redis_call_key(&call, 0, request->name);
        pack_text(r->packed, request->id, strlen(request->id));
        pack_number(r->packed, request->ttl);
    }
    pack_count(r->packed, begin, 2 * ops->len);
    redis_call_key(&call, 'm', NULL);
    redis_call_send(&call, 0, change_on_renewals, ops);
}

/* Those of one turn of the loop go together. */
static void change_gather(struct redis *r, struct remote_request *request)
{
    if (!r->gathered) {
        r->gathered = g_ptr_array_new();
        g_hash_table_add(r->renewals, r->gathered);
        ev_feed_event(r->remote.loop, &r->gathering, EV_CUSTOM);
    }
    g_ptr_array_add(r->gathered, request);
}

uint64_t redis_send_request(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
    static void (*const about_names[REMOTE_PROCEDURES])(struct remote_request * request) = {
        [REMOTE_REVOKE] = redis_revoke,
        [REMOTE_TEST] = redis_test,
        [REMOTE_STAT] = redis_stat,
        [REMOTE_LIST] = redis_list,
        [REMOTE_TICKETS] = redis_list,
        [REMOTE_MKDIR] = redis_change_directory,
        [REMOTE_RMDIR] = redis_change_directory,
        [REMOTE_SET_DIRECTORY] = redis_change_directory,
    };
    struct redis *r = redis_of(request);
    struct redis_call call = {0};
    if (about_names[request->procedure]) {
        about_names[request->procedure](request);
        return 0;
    }
    epoch_before_request(&r->epoch, request, t);
    if (change_may_be_gathered(request, t)) {
        change_gather(r, request);
        return 0;
    }
    bool is_short = change_fill_short(&call, request, t);
    if (!is_short) {
        if (request->procedure == REMOTE_ACQUIRE || request->procedure == REMOTE_RENAME) {
            change_release_in_full(r, request->procedure == REMOTE_ACQUIRE ? t->lock->name : request->name);
        }
        change_fill(&call, request, t);
    }
    uint64_t id = redis_call_send(&call, timeout, is_short ? change_on_short_answer : change_on_answer, request);
    if (is_short && request->procedure == REMOTE_RELEASE) {
        request->short_call = id;
        g_hash_table_replace(r->releases, request->name, request);
    }
    return id;
}
