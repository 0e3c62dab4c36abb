/* revoke: ends holders by name, of any mount, by removing their nodes.
 *
 * The server reports the removal at once to the holder's mount, which ends the lock.  For a holder with a guard, a
 * guard node takes its position in the queue.  It belongs to the session of the mount that revokes: this mount removes
 * it when the guard has run out, and the servers do if the mount dies.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

struct revoke_flow {
    struct zk_batch batch;
    char *parent;                /* the node of the directory above */
    uint64_t fence;              /* ends the holder with this fencing token; 0: breaks any holder */
    struct backend_match *match; /* ends nothing that does not match; NULL: all do */
    GPtrArray *queue;            /* paths of the nodes in the queue, in order */
    clock_ms delayed;            /* the end of the running lock-delay; 0: none runs */
    bool waits;                  /* the name is a ticket that does not hold */
    bool chosen;                 /* the next three are final, also if the flow begins again */
    GPtrArray *paths;            /* nodes to remove */
    GPtrArray *guards;           /* for each the GBytes of its guard, or NULL */
    GPtrArray *ids;              /* tickets of this mount among them, whose end this flow reports */
    int64_t delay;               /* the directory's lock-delay */
    bool broken;                 /* the lock-delay applies */
};

/* The end of a guard of this mount's session. */
struct revoke_guard_flow {
    struct zk_batch batch;
    clock_ms end;
    int64_t delay; /* the directory's lock-delay */
    bool broken;   /* its holder was broken: the lock-delay applies */
};

static struct revoke_flow *revoke_of(struct zk_batch *batch)
{
    return (struct revoke_flow *)batch;
}

static void revoke_clear(struct zk_batch *batch)
{
    struct revoke_flow *flow = revoke_of(batch);
    g_free(flow->parent);
    g_free(flow->match);
    g_clear_pointer(&flow->queue, g_ptr_array_unref);
    g_clear_pointer(&flow->paths, g_ptr_array_unref);
    g_clear_pointer(&flow->guards, g_ptr_array_unref);
    g_clear_pointer(&flow->ids, g_ptr_array_unref);
}

static void revoke_finish(struct zk_batch *batch, enum backend_result result)
{
    struct zookeeper *z = batch->z;
    struct remote_request *request = batch->request;
    batch->request = NULL;
    batch_end(batch);
    batch_resume_all(z);
    if (request) {
        remote_request_answer(request, result, 0);
    }
}

static void revoke_mark_nodes(struct zk_batch *batch, bool leaves)
{
    const GPtrArray *ids = revoke_of(batch)->ids;
    for (guint i = 0; i < ids->len; i++) {
        struct zk_node *node = node_find(batch->z, ids->pdata[i]);
        if (node) {
            node->removing = leaves;
        }
    }
}

static void revoke_failed(struct zk_batch *batch, enum remote_outcome outcome)
{
    (void)outcome;
    batch->revokes = false;
    revoke_mark_nodes(batch, false);
    remote_request_answer(batch->request, BACKEND_UNREACHABLE, 0);
    batch_resume_all(batch->z);
}

static void revoke_on_deleted(struct zk_batch *batch)
{
    const struct revoke_flow *flow = revoke_of(batch);
    struct remote *r = &batch->z->remote;
    const GPtrArray *ids = flow->ids;
    enum backend_end why = flow->fence ? BACKEND_RELEASED : BACKEND_BROKEN;
    enum backend_result result = BACKEND_OK;
    for (guint i = 0; i < batch->replies->len; i++) {
        int rc = batch_reply(batch, i)->rc;
        result = rc == ZOK || rc == ZNONODE || rc == ZNOTEMPTY ? result : batch_result(batch, rc);
    }
    for (guint i = 0; i < ids->len; i++) {
        const struct zk_node *node = node_find(batch->z, ids->pdata[i]);
        if (node && !g_ptr_array_find_with_equal_func(flow->paths, node->path, g_str_equal, NULL)) {
            continue; /* it was renamed before */
        }
        const struct remote_ticket *t = remote_ticket_find(r, ids->pdata[i]);
        if (t && t->acquiring) { /* it may be making another node */
            remote_send_release(r, t, "", NULL, NULL);
        } else {
            g_hash_table_remove(batch->z->nodes, ids->pdata[i]);
        }
        remote_on_event(r, ids->pdata[i], REMOTE_ENDED, why);
    }
    revoke_finish(batch, result);
}

/* Notes a ticket that will end; false: it does not match.  This flow reports the end of holders and of sequence files.
 * The flow of a pending acquire, or the watch of a waiting ticket, notices the end itself. */
static bool revoke_note_ticket(struct zk_batch *batch, const struct zk_data *data, const struct Stat *stat)
{
    const struct revoke_flow *flow = revoke_of(batch);
    if (flow->match && (data->guards || !backend_matches(flow->match, data->meta))) {
        return false;
    }
    const struct remote_ticket *t = node_ticket(batch->z, data, stat);
    if (t && (t->state == REMOTE_HELD || (t->lock->sequence && t->state != REMOTE_ACQUIRING))) {
        g_ptr_array_add(flow->ids, g_strdup(data->id));
    }
    return true;
}

/* --- guards --- */

static void revoke_on_guard_end(struct zk_batch *batch)
{
    const struct revoke_guard_flow *flow = (struct revoke_guard_flow *)batch;
    if (flow->delay > 0) {
        char *lock = g_path_get_dirname(batch->path);
        batch_end_hold(batch, batch->path, lock, flow->broken ? flow->delay : 0);
        g_free(lock);
    } else {
        batch_delete(batch, batch->path, -1);
    }
    batch_then(batch, batch_end);
}

static void revoke_await_guard(struct zk_batch *batch)
{
    batch_wait(batch, MAX(((struct revoke_guard_flow *)batch)->end - clock_now(), 0), revoke_on_guard_end);
}

void revoke_end_guard_in(struct zookeeper *z, const char *path, int64_t left, int64_t delay, bool broken)
{
    static const struct zk_flow guard = {sizeof(struct revoke_guard_flow), .begin = revoke_await_guard,
                                         .persists = true};
    struct revoke_guard_flow *flow = batch_new(z, &guard, NULL);
    flow->batch.path = g_strdup(path);
    flow->end = clock_now() + left;
    flow->delay = delay;
    flow->broken = broken;
    batch_start(&flow->batch, 0);
}

/* The data of the guard for a holder; NULL: it leaves none. */
static GBytes *revoke_guard(struct zk_batch *batch, const struct zk_data *data, const struct Stat *stat)
{
    const struct revoke_flow *flow = revoke_of(batch);
    struct backend_info info = {.type = BACKEND_LOCK};
    bool may = data->ours && !data->guards && data->kind != BACKEND_PROVISIONAL;
    bool holds = !flow->waits || data->mode == BACKEND_SHARED; /* perhaps, with those before it */
    int64_t guard = may && holds ? backend_parse_guard(data->meta) : 0;
    query_describe(batch->z, data, stat, &info);
    int64_t left = MIN(guard, info.deadline - clock_now());
    return left > 0 ? node_encode_guard(batch->z, data, stat, flow->fence == 0, left) : NULL;
}

static void revoke_free_guard(gpointer guard)
{
    g_clear_pointer((GBytes **)&guard, g_bytes_unref);
}

static void revoke_leave_guard(struct zk_batch *batch, const char *path, GBytes *guard)
{
    struct zk_data data;
    char *lock = node_guard_path(batch->z, path, strcmp(path, batch->path) == 0);
    node_decode(guard, &data);
    batch_guard(batch, path, lock, guard);
    revoke_end_guard_in(batch->z, lock, data.ttl, revoke_of(batch)->delay, data.broken);
    node_data_clear(&data);
    g_free(lock);
}

/* Removes the chosen nodes.  A repetition removes the same ones: later holders are not meant. */
static void revoke_delete(struct zk_batch *batch)
{
    const struct revoke_flow *flow = revoke_of(batch);
    for (guint i = 0, last = flow->paths->len - 1; i <= last; i++) {
        if (flow->guards->pdata[i]) {
            revoke_leave_guard(batch, flow->paths->pdata[i], flow->guards->pdata[i]);
        } else if (i == last && flow->delay > 0) {
            batch_end_hold(batch, flow->paths->pdata[i], batch->path, flow->broken ? flow->delay : 0);
        } else {
            batch_delete(batch, flow->paths->pdata[i], -1);
        }
    }
    batch_then(batch, revoke_on_deleted);
}

/* Chooses the holders with `fence`, or guards if nothing else holds.  False: nobody holds, because the first ticket
 * waits for a lock-delay to end. */
static bool revoke_choose(struct zk_batch *batch, GPtrArray *chosen)
{
    const struct revoke_flow *flow = revoke_of(batch);
    GArray *holders = node_holders(batch->replies);
    bool any = false, guards = true;
    for (guint i = 0; i < batch->replies->len; i++) {
        const struct zk_reply *get = batch_reply(batch, i);
        struct zk_data data;
        if (get->rc != ZOK) {
            continue;
        }
        node_decode(get->data, &data);
        bool waits = flow->delayed && !any && data.ours && !data.guards && data.mode == BACKEND_EXCLUSIVE;
        bool holds = g_array_index(holders, bool, i) && !waits;
        bool meant = holds && (!flow->fence || flow->fence == node_fence(batch->z, &data, &get->stat));
        if (meant && guards && !data.guards) {
            g_ptr_array_set_size(chosen, 0);
            guards = false;
        }
        if (meant && guards == (data.guards > 0)) {
            g_ptr_array_add(chosen, GUINT_TO_POINTER(i));
        }
        any = any || !waits;
        node_data_clear(&data);
        if (waits) {
            break;
        }
    }
    g_array_unref(holders);
    return any;
}

/* Adds a chosen node and what it leaves behind; false: it does not match. */
static bool revoke_add(struct zk_batch *batch, guint index)
{
    struct revoke_flow *flow = revoke_of(batch);
    const struct zk_reply *get = batch_reply(batch, index);
    struct zk_data data;
    node_decode(get->data, &data);
    flow->delay = flow->paths->len == 0 && data.ours && data.kind == BACKEND_PROVISIONAL ? 0 : flow->delay;
    flow->broken = data.guards ? data.broken : flow->fence == 0;
    g_ptr_array_add(flow->paths, g_strdup(flow->queue->pdata[index]));
    g_ptr_array_add(flow->guards, revoke_guard(batch, &data, &get->stat));
    bool matches = revoke_note_ticket(batch, &data, &get->stat);
    node_data_clear(&data);
    return matches;
}

static void revoke_on_data(struct zk_batch *batch)
{
    struct revoke_flow *flow = revoke_of(batch);
    GPtrArray *chosen = g_ptr_array_new();
    bool matches = true, any = revoke_choose(batch, chosen);
    g_ptr_array_set_size(flow->ids, 0);
    g_ptr_array_set_size(flow->paths, 0);
    g_ptr_array_set_size(flow->guards, 0);
    for (guint i = 0; i < chosen->len; i++) {
        matches = revoke_add(batch, GPOINTER_TO_UINT(chosen->pdata[i])) && matches;
    }
    if (flow->paths->len == 0 || !matches) {
        revoke_finish(batch, !any ? BACKEND_MISSING : matches ? BACKEND_STALE : BACKEND_BUSY);
    } else {
        revoke_mark_nodes(batch, true);
        flow->chosen = true;
        revoke_delete(batch);
    }
    g_ptr_array_unref(chosen);
}

static void revoke_get_queue(struct zk_batch *batch)
{
    const struct revoke_flow *flow = revoke_of(batch);
    for (guint i = 0; i < flow->queue->len; i++) {
        batch_get(batch, flow->queue->pdata[i]);
    }
    batch_then(batch, revoke_on_data);
}

/* The rank of a ticket in its directory's queue is known. */
static void revoke_on_place(struct zk_batch *batch)
{
    GPtrArray *queue = node_queue(batch_reply(batch, 0)->children);
    struct zk_data directory;
    guint rank = 0;
    node_decode(batch_reply(batch, 1)->data, &directory);
    while (rank < queue->len && strcmp(queue->pdata[rank], remote_leaf(batch->path)) != 0) {
        rank++;
    }
    revoke_of(batch)->waits = rank >= directory.attributes.width;
    node_data_clear(&directory);
    g_ptr_array_unref(queue);
    revoke_get_queue(batch);
}

static void revoke_on_node(struct zk_batch *batch)
{
    struct revoke_flow *flow = revoke_of(batch);
    const struct zk_reply *get = batch_reply(batch, 1), *list = batch_reply(batch, 2);
    struct zk_data data;
    node_decode(get->data, &data);
    bool directory = data.directory;
    node_data_clear(&data);
    flow->delay =
        get->stat.ephemeralOwner ? 0 : node_read_delay(batch_reply(batch, 3)->data); /* sequence files have none */
    flow->delayed = node_delay(batch->z, get->data, &get->stat, list->children);
    node_replace_queue(&flow->queue, batch->path, list->children);
    if (get->rc == ZOK && get->stat.ephemeralOwner) {
        g_ptr_array_add(flow->queue, g_strdup(batch->path));
    }
    if (directory || flow->queue->len == 0) {
        revoke_finish(batch, directory                              ? BACKEND_IS_DIRECTORY
                             : get->rc == ZOK || get->rc == ZNONODE ? BACKEND_MISSING
                                                                    : batch_result(batch, get->rc));
        return;
    }
    if (get->stat.ephemeralOwner) {
        batch_children(batch, flow->parent, false);
        batch_get(batch, flow->parent);
        batch_then(batch, revoke_on_place);
    } else {
        revoke_get_queue(batch);
    }
}

static void revoke_begin(struct zk_batch *batch)
{
    if (revoke_of(batch)->chosen) {
        revoke_delete(batch);
        return;
    }
    batch_sync(batch, batch->path);
    batch_get(batch, batch->path);
    batch_children(batch, batch->path, false);
    batch_get(batch, revoke_of(batch)->parent);
    batch_then(batch, revoke_on_node);
}

void revoke_start(struct remote_request *request)
{
    static const struct zk_flow revoke = {sizeof(struct revoke_flow), .begin = revoke_begin, .failed = revoke_failed,
                                          .clear = revoke_clear};
    struct zookeeper *z = (struct zookeeper *)request->r;
    struct revoke_flow *flow = batch_new(z, &revoke, request);
    const char *leaf;
    char *directory = remote_parent(request->name, &leaf);
    flow->batch.path = node_path(z, request->name);
    flow->batch.revokes = true;
    flow->parent = node_path(z, directory);
    g_free(directory);
    flow->fence = request->fence;
    flow->match = request->match ? g_memdup2(request->match, sizeof *request->match) : NULL;
    flow->paths = g_ptr_array_new_with_free_func(g_free);
    flow->guards = g_ptr_array_new_with_free_func(revoke_free_guard);
    flow->ids = g_ptr_array_new_with_free_func(g_free);
    batch_start(&flow->batch, 0);
}
