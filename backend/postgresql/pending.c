/* pending: calls that are not answered yet.
 *
 * Calls are sent in the order of their ids.  While a transaction keeps a name, only one call for that name is sent,
 * since the connection would wait for each.
 */
#include "backend/postgresql/private.h"

void pq_pending_init(struct pq_pending *pending)
{
    *pending = (struct pq_pending){.ids = 0};
    TAILQ_INIT(&pending->waiting);
    TAILQ_INIT(&pending->sent);
    pending->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
    pending->blocked = g_hash_table_new_full(g_bytes_hash, g_bytes_equal, (GDestroyNotify)g_bytes_unref, NULL);
}

void pq_pending_clear(struct pq_pending *pending)
{
    struct pq_call *call;
    pq_pending_take_back(pending);
    while ((call = TAILQ_FIRST(&pending->waiting))) {
        TAILQ_REMOVE(&pending->waiting, call, link);
        pq_pending_free(pending, call);
    }
    g_hash_table_unref(pending->by_id);
    g_hash_table_unref(pending->blocked);
}

struct pq_call *pq_pending_add(struct pq_pending *pending, enum pq_function function,
                               const struct pq_parameters *parameters, clock_ms until, pq_answered *answered, void *arg)
{
    struct pq_call *call = g_new0(struct pq_call, 1);
    call->id = ++pending->ids;
    call->function = function;
    call->parameters = *parameters;
    call->parameters.bytes = parameters->bytes ? parameters->bytes : g_byte_array_new();
    call->until = until;
    call->answered = answered;
    call->arg = arg;
    g_hash_table_insert(pending->by_id, &call->id, call);
    TAILQ_INSERT_TAIL(&pending->waiting, call, link);
    return call;
}

void pq_pending_add_preparation(struct pq_pending *pending, enum pq_function function)
{
    struct pq_call *call = g_new0(struct pq_call, 1);
    call->function = function;
    call->parameters.bytes = g_byte_array_new();
    call->until = CLOCK_NEVER;
    TAILQ_INSERT_TAIL(&pending->sent, call, link);
}

GBytes *pq_pending_path(const struct pq_call *call)
{
    bool waits = pq_function_is_stamped(call->function) && call->parameters.count > 0 && call->parameters.at[0].binary;
    return waits ? g_bytes_new(call->parameters.bytes->data, (gsize)call->parameters.at[0].length) : NULL;
}

void pq_pending_set_blocked(struct pq_pending *pending, GBytes *path, struct pq_call *call)
{
    if (!g_hash_table_contains(pending->blocked, path)) {
        g_hash_table_insert(pending->blocked, g_bytes_ref(path), call);
    }
}

static void pending_unblock(struct pq_pending *pending, struct pq_call *call)
{
    GBytes *path = call->blocked ? pq_pending_path(call) : NULL;
    if (path && g_hash_table_lookup(pending->blocked, path) == call) {
        g_hash_table_remove(pending->blocked, path);
    }
    g_clear_pointer(&path, g_bytes_unref);
}

bool pq_pending_is_behind_blocked(struct pq_pending *pending, const struct pq_call *call)
{
    if (g_hash_table_size(pending->blocked) == 0) {
        return false;
    }
    GBytes *path = pq_pending_path(call);
    const struct pq_call *first = path ? g_hash_table_lookup(pending->blocked, path) : NULL;
    g_clear_pointer(&path, g_bytes_unref);
    return first && first != call;
}

void pq_pending_put_back(struct pq_pending *pending, struct pq_call *call)
{
    struct pq_call *next = TAILQ_FIRST(&pending->waiting);
    while (next && next->id < call->id) {
        next = TAILQ_NEXT(next, link);
    }
    if (next) {
        TAILQ_INSERT_BEFORE(next, call, link);
    } else {
        TAILQ_INSERT_TAIL(&pending->waiting, call, link);
    }
}

void pq_pending_free(struct pq_pending *pending, struct pq_call *call)
{
    if (call->id) {
        pending_unblock(pending, call);
        g_hash_table_remove(pending->by_id, &call->id);
    }
    PQclear(call->rows);
    g_byte_array_unref(call->parameters.bytes);
    g_free(call);
}

void pq_pending_answer(struct pq_call *call, enum remote_outcome outcome, enum backend_result result,
                       const PGresult *rows)
{
    pq_answered *answered = call->answered;
    call->answered = NULL;
    if (answered) {
        const struct pq_answer answer = {
            .outcome = outcome, .result = result, .sent = call->sent, .repeated = call->repeated, .rows = rows};
        answered(call->arg, &answer);
    }
}

void pq_pending_forget(struct pq_pending *pending, uint64_t id)
{
    struct pq_call *call = g_hash_table_lookup(pending->by_id, &id);
    if (!call) {
        return;
    }
    call->answered = NULL;
    if (call->sent == 0) {
        TAILQ_REMOVE(&pending->waiting, call, link);
        pq_pending_free(pending, call);
    }
}

void pq_pending_take_back(struct pq_pending *pending)
{
    struct pq_call *call;
    while ((call = TAILQ_LAST(&pending->sent, pq_call_list))) {
        TAILQ_REMOVE(&pending->sent, call, link);
        if (!call->answered) {
            pq_pending_free(pending, call);
        } else {
            g_clear_pointer(&call->rows, PQclear);
            pq_pending_put_back(pending, call);
        }
    }
}

static enum remote_outcome pending_outcome(const struct pq_call *call)
{
    return call->sent != 0 ? REMOTE_UNKNOWN : REMOTE_NOT_SENT;
}

/* A callback may send and forget calls, so the search begins again after each. */
static bool pending_expire_waiting(struct pq_pending *pending, clock_ms now)
{
    struct pq_call *call;
    TAILQ_FOREACH(call, &pending->waiting, link) {
        if (!call->answered || call->until <= now) {
            TAILQ_REMOVE(&pending->waiting, call, link);
            g_hash_table_remove(pending->by_id, &call->id); /* so that the callback cannot forget it */
            pq_pending_answer(call, pending_outcome(call), BACKEND_UNREACHABLE, NULL);
            pq_pending_free(pending, call);
            return true;
        }
    }
    return false;
}

/* The call stays in the list until its answer comes. */
static bool pending_expire_sent(struct pq_pending *pending, clock_ms now)
{
    struct pq_call *call;
    TAILQ_FOREACH(call, &pending->sent, link) {
        if (call->answered && call->until <= now) {
            pq_pending_answer(call, pending_outcome(call), BACKEND_UNREACHABLE, NULL);
            return true;
        }
    }
    return false;
}

void pq_pending_expire(struct pq_pending *pending, clock_ms now)
{
    while (pending_expire_waiting(pending, now) || pending_expire_sent(pending, now)) {
    }
}
