/* directory: makes, changes and removes directories. */
#include <string.h>

#include "backend/redis/private.h"

#define DELAY_PART 64 /* locks whose lock-delay one request changes */

uint64_t redis_sequence(struct redis *r, const char *name, uint64_t next)
{
    struct remote_directory *known = remote_directory_cache_find(&r->remote, name);
    if (known) {
        known->attributes.sequence = MAX(known->attributes.sequence, next);
    }
    return known ? known->attributes.sequence : next;
}

/* A change of a directory that is not answered yet. */
struct redis_directory_flow {
    LIST_ENTRY(redis_directory_flow) link; /* r->directory_flows */
    struct remote_request *request;
    bool swept;  /* leftovers in it were removed */
    char *after; /* the lock-delay of all names up to this one is changed; "": of all; NULL: of none yet */
};

static void directory_flow_free(struct redis_directory_flow *flow)
{
    LIST_REMOVE(flow, link);
    g_free(flow->after);
    g_free(flow);
}

void redis_directory_end_all(struct redis *r)
{
    while (!LIST_EMPTY(&r->directory_flows)) {
        directory_flow_free(LIST_FIRST(&r->directory_flows));
    }
}

static void directory_complete(struct redis_directory_flow *flow, enum backend_result result)
{
    struct remote_request *request = flow->request;
    directory_flow_free(flow);
    remote_request_answer(request, result, 0);
}

static void directory_on_answer(void *arg, const struct redis_answer *given);

static void directory_send(struct redis_directory_flow *flow)
{
    const struct remote_request *request = flow->request;
    const struct backend_directory *d = &request->directory;
    const char *what = request->procedure == REMOTE_MKDIR   ? "make"
                       : request->procedure == REMOTE_RMDIR ? "remove"
                                                            : "set";
    struct redis_call call = {.r = redis_of(request), .script = REDIS_DIRECTORY};
    const char *leaf;
    char *parent = remote_parent(request->name, &leaf), nonce[24];
    g_snprintf(nonce, sizeof nonce, "%08x%08x", g_random_int(), g_random_int());
    redis_call_key(&call, 0, request->name);
    for (const char *letter = "otwifdlq"; *letter; letter++) {
        redis_call_key(&call, *letter, request->name);
    }
    redis_call_key(&call, 'd', parent);
    redis_call_key(&call, 'm', NULL);
    redis_call_key(&call, 'l', parent);
    redis_call_key(&call, 0, parent);
    redis_call_text(&call, "leaf", leaf);
    redis_call_flag(&call, "sequence", request->procedure == REMOTE_SET_DIRECTORY);
    redis_call_text(&call, "what", what);
    redis_call_flag(&call, "needed", *parent);
    redis_call_flag(&call, "root", !*request->name);
    redis_call_number(&call, "ttl", d->ttl);
    redis_call_number(&call, "width", d->width);
    redis_call_number(&call, "delay", d->delay);
    redis_call_number(&call, "next", (int64_t)d->sequence);
    redis_call_bytes(&call, "meta", d->meta);
    redis_call_text(&call, "nonce", nonce);
    redis_call_send(&call, 0, directory_on_answer, flow);
    g_free(parent);
}

/* The listing has removed leftovers. */
static void directory_on_swept(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    struct redis_directory_flow *flow = arg;
    (void)entries;
    if (result == BACKEND_OK && count == 0) {
        directory_send(flow);
    } else {
        directory_complete(flow, result == BACKEND_OK ? BACKEND_NOT_EMPTY : result);
    }
}

/* --- a new lock-delay: the locks that are there already get it, a part of them after the other --- */

static void directory_on_names(void *arg, const struct redis_answer *given);

static void directory_send_names(struct redis_directory_flow *flow)
{
    const char *name = flow->request->name;
    struct redis_call call = {.r = redis_of(flow->request), .script = REDIS_LIST};
    redis_call_key(&call, 'l', name);
    redis_call_key(&call, 'd', name);
    redis_call_key(&call, 0, name);
    redis_call_text(&call, "after", flow->after ? flow->after : "");
    redis_call_number(&call, "max", DELAY_PART);
    redis_call_flag(&call, "needed", *name);
    redis_call_send(&call, 0, directory_on_names, flow);
}

static void directory_on_delay(void *arg, const struct redis_answer *given)
{
    struct redis_directory_flow *flow = arg;
    enum backend_result result = redis_result(redis_of(flow->request), given);
    if (result == BACKEND_OK && *flow->after) {
        directory_send_names(flow);
    } else {
        directory_complete(flow, result);
    }
}

static void directory_on_names(void *arg, const struct redis_answer *given)
{
    struct redis_directory_flow *flow = arg;
    struct redis *r = redis_of(flow->request);
    const char *name = flow->request->name;
    const redisReply *reply = given->reply;
    enum backend_result result = redis_result(r, given);
    if (result != BACKEND_OK) {
        directory_complete(flow, result == BACKEND_MISSING ? BACKEND_OK : result); /* removed since */
        return;
    }
    GPtrArray *leaves = g_ptr_array_new();
    struct redis_call call = {.r = r, .script = REDIS_DELAY};
    for (size_t i = 2; i < MIN(reply->elements, 2 + DELAY_PART); i++) {
        const char *leaf = redis_text(reply, i);
        char *path = *name ? g_strconcat(name, "/", leaf, NULL) : g_strdup(leaf);
        if (remote_is_component(leaf) && redis_key_allowed(&r->keys, path)) {
            redis_call_lock(&call, path, false, NULL);
            g_ptr_array_add(leaves, (char *)leaf);
        }
        g_free(path);
    }
    bool more = !flow->after || strcmp(redis_text(reply, 1), flow->after) > 0;
    g_free(flow->after);
    flow->after = g_strdup(more ? redis_text(reply, 1) : "");
    if (leaves->len > 0) {
        redis_call_texts(&call, "leaves", leaves);
        redis_call_send(&call, 0, directory_on_delay, flow);
    } else if (*flow->after) {
        directory_send_names(flow);
    } else {
        directory_complete(flow, BACKEND_OK);
    }
    g_ptr_array_unref(leaves);
}

static void directory_on_answer(void *arg, const struct redis_answer *given)
{
    struct redis_directory_flow *flow = arg;
    struct redis *r = redis_of(flow->request);
    if (given->outcome == REMOTE_ANSWERED && strcmp(redis_text(given->reply, 0), "delayed") == 0) {
        directory_send_names(flow);
        return;
    }
    enum backend_result result = redis_result(r, given);
    if (result == BACKEND_NOT_EMPTY && !flow->swept) {
        flow->swept = true;
        backend_list(&r->remote.backend, flow->request->name, "", 1, directory_on_swept, flow);
        return;
    }
    if (result == BACKEND_MISSING && given->repeated && flow->request->procedure == REMOTE_RMDIR) {
        result = BACKEND_OK; /* an earlier attempt, whose answer was lost, has removed it */
    }
    directory_complete(flow, result);
}

void redis_change_directory(struct remote_request *request)
{
    struct redis *r = redis_of(request);
    struct redis_directory_flow *flow = g_new0(struct redis_directory_flow, 1);
    flow->request = request;
    LIST_INSERT_HEAD(&r->directory_flows, flow, link);
    directory_send(flow);
}
