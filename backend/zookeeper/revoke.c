/* revoke: ending holders by name, whosever they are: their nodes are removed.
 *
 * Who holds on another mount hears of it from the server at once, as of something lost.  One that has a guard leaves a
 * node in the same place, which belongs to the session of the mount that revokes: that removes it when its time is
 * over, and the servers do if that mount is gone.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

struct revoke_flow {
    struct zk_call call;
    char *parent;                /* the node of the directory that the name is in */
    uint64_t fence;              /* ends this holder; 0: breaks whoever holds */
    struct backend_match *match; /* ends nothing that does not match; NULL: all do */
    GPtrArray *queue;            /* paths of the nodes in the queue, in order */
    clock_ms delayed;            /* when the lock-delay ends that runs now; 0: none does */
    bool waits;                  /* the name is a ticket that does not hold */
    bool chosen;                 /* what follows is decided, also if it begins anew */
    GPtrArray *paths;            /* nodes that are removed */
    GPtrArray *guards;           /* for each the GBytes of a guard in its place, or NULL */
    GPtrArray *tokens;           /* tickets of this mount among them, whose end this call reports */
    int64_t delay;               /* lock-delay that the last one leaves behind, */
    bool broken;                 /* if it ends against its holder's will */
};

/* The end of a guard of this mount's session. */
struct revoke_guard_flow {
    struct zk_call call;
    clock_ms end;
    int64_t delay; /* lock-delay that it leaves behind, */
    bool broken;   /* if the holder that it stands for was broken */
};

static struct revoke_flow *revoke_of(struct zk_call *call)
{
    return (struct revoke_flow *)call;
}

static void revoke_clear(struct zk_call *call)
{
    struct revoke_flow *flow = revoke_of(call);
    g_free(flow->parent);
    g_free(flow->match);
    g_clear_pointer(&flow->queue, g_ptr_array_unref);
    g_clear_pointer(&flow->paths, g_ptr_array_unref);
    g_clear_pointer(&flow->guards, g_ptr_array_unref);
    g_clear_pointer(&flow->tokens, g_ptr_array_unref);
}

static void revoke_tell(struct zk_call *call, enum backend_result result)
{
    struct zookeeper *z = call->z;
    struct remote_op *op = call->op;
    call->op = NULL;
    call_end(call);
    call_resume_all(z);
    if (op) {
        remote_op_finish(op, result);
    }
}

static void revoke_note(struct zk_call *call, bool leaves)
{
    const GPtrArray *tokens = revoke_of(call)->tokens;
    for (guint i = 0; i < tokens->len; i++) {
        struct zk_node *node = node_of(call->z, tokens->pdata[i]);
        if (node) {
            node->leaves = leaves;
        }
    }
}

static void revoke_failed(struct zk_call *call, enum remote_outcome outcome)
{
    (void)outcome;
    call->revokes = false;
    revoke_note(call, false);
    remote_op_finish(call->op, BACKEND_UNREACHABLE);
    call_resume_all(call->z);
}

static void revoke_on_deleted(struct zk_call *call)
{
    const struct revoke_flow *flow = revoke_of(call);
    struct remote *r = &call->z->remote;
    const GPtrArray *tokens = flow->tokens;
    enum backend_end why = flow->fence ? BACKEND_RELEASED : BACKEND_BROKEN;
    enum backend_result result = BACKEND_OK;
    for (guint i = 0; i < call->replies->len; i++) {
        int rc = call_reply(call, i)->rc;
        result = rc == ZOK || rc == ZNONODE || rc == ZNOTEMPTY ? result : call_result(call, rc);
    }
    for (guint i = 0; i < tokens->len; i++) {
        const struct zk_node *node = node_of(call->z, tokens->pdata[i]);
        if (node && !g_ptr_array_find_with_equal_func(flow->paths, node->path, g_str_equal, NULL)) {
            continue; /* it was renamed before */
        }
        const struct remote_ticket *t = remote_ticket_find(r, tokens->pdata[i]);
        if (t && t->asked) { /* it may be making its node anew */
            remote_send_release(r, t, "", NULL, NULL);
        } else {
            g_hash_table_remove(call->z->nodes, tokens->pdata[i]);
        }
        remote_told(r, tokens->pdata[i], REMOTE_ENDED, why);
    }
    revoke_tell(call, result);
}

/* One that is to end, unless it does not match.  Why it has ended is told by this call; one that is asked for, or
 * waits and is not meant by its name, finds out itself. */
static bool revoke_take(struct zk_call *call, const struct zk_data *data, const struct Stat *stat)
{
    const struct revoke_flow *flow = revoke_of(call);
    if (flow->match && (data->guards || !backend_matches(flow->match, data->meta))) {
        return false;
    }
    const struct remote_ticket *t = node_ticket(call->z, data, stat);
    if (t && (t->state == REMOTE_HELD || (t->place->sequence && t->state != REMOTE_ASKED))) {
        g_ptr_array_add(flow->tokens, g_strdup(data->token));
    }
    return true;
}

/* --- guards --- */

static void revoke_on_guard_over(struct zk_call *call)
{
    const struct revoke_guard_flow *flow = (struct revoke_guard_flow *)call;
    if (flow->delay > 0) {
        char *lock = g_path_get_dirname(call->path);
        call_end_hold(call, call->path, lock, flow->broken ? flow->delay : 0);
        g_free(lock);
    } else {
        call_delete(call, call->path, -1);
    }
    call_then(call, call_end);
}

static void revoke_await_guard(struct zk_call *call)
{
    call_wait(call, MAX(((struct revoke_guard_flow *)call)->end - clock_now(), 0), revoke_on_guard_over);
}

void revoke_end_guard_in(struct zookeeper *z, const char *path, int64_t left, int64_t delay, bool broken)
{
    static const struct zk_flow guard = {sizeof(struct revoke_guard_flow), .begin = revoke_await_guard,
                                         .persists = true};
    struct revoke_guard_flow *flow = call_new(z, &guard, NULL);
    flow->call.path = g_strdup(path);
    flow->end = clock_now() + left;
    flow->delay = delay;
    flow->broken = broken;
    call_start(&flow->call, 0);
}

/* What is to be in place of a holder; NULL: nothing. */
static GBytes *revoke_guard(struct zk_call *call, const struct zk_data *data, const struct Stat *stat)
{
    const struct revoke_flow *flow = revoke_of(call);
    struct backend_info info = {.type = BACKEND_LOCK};
    bool may = data->ours && !data->guards && data->kind != BACKEND_PROVISIONAL;
    bool holds = !flow->waits || data->mode == BACKEND_SHARED; /* perhaps, with those before it */
    int64_t guard = may && holds ? backend_parse_guard(data->meta) : 0;
    ask_describe(call->z, data, stat, &info);
    int64_t left = MIN(guard, info.deadline - clock_now());
    return left > 0 ? node_encode_guard(call->z, data, stat, flow->fence == 0, left) : NULL;
}

static void revoke_free_guard(gpointer guard)
{
    g_clear_pointer((GBytes **)&guard, g_bytes_unref);
}

static void revoke_leave_guard(struct zk_call *call, const char *path, GBytes *guard)
{
    struct zk_data data;
    char *place = node_guard_path(call->z, path, strcmp(path, call->path) == 0);
    node_decode(guard, &data);
    call_guard(call, path, place, guard);
    revoke_end_guard_in(call->z, place, data.ttl, revoke_of(call)->delay, data.broken);
    node_data_clear(&data);
    g_free(place);
}

/* What was chosen, also when it is repeated: whoever holds then is not meant. */
static void revoke_delete(struct zk_call *call)
{
    const struct revoke_flow *flow = revoke_of(call);
    for (guint i = 0, last = flow->paths->len - 1; i <= last; i++) {
        if (flow->guards->pdata[i]) {
            revoke_leave_guard(call, flow->paths->pdata[i], flow->guards->pdata[i]);
        } else if (i == last && flow->delay > 0) {
            call_end_hold(call, flow->paths->pdata[i], call->path, flow->broken ? flow->delay : 0);
        } else {
            call_delete(call, flow->paths->pdata[i], -1);
        }
    }
    call_then(call, revoke_on_deleted);
}

/* Those that hold, and are meant: guards only if there is nothing else.  False: none of the queue holds, as the first
 * waits for a lock-delay to end. */
static bool revoke_choose(struct zk_call *call, GPtrArray *chosen)
{
    const struct revoke_flow *flow = revoke_of(call);
    GArray *holders = node_holders(call->replies);
    bool any = false, guards = true;
    for (guint i = 0; i < call->replies->len; i++) {
        const struct zk_reply *get = call_reply(call, i);
        struct zk_data data;
        if (get->rc != ZOK) {
            continue;
        }
        node_decode(get->data, &data);
        bool waits = flow->delayed && !any && data.ours && !data.guards && data.mode == BACKEND_EXCLUSIVE;
        bool holds = g_array_index(holders, bool, i) && !waits;
        bool meant = holds && (!flow->fence || flow->fence == node_fence(call->z, &data, &get->stat));
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

/* Notes what one that was chosen leaves behind; false if it does not match. */
static bool revoke_add(struct zk_call *call, guint index)
{
    struct revoke_flow *flow = revoke_of(call);
    const struct zk_reply *get = call_reply(call, index);
    struct zk_data data;
    node_decode(get->data, &data);
    flow->delay = flow->paths->len == 0 && data.ours && data.kind == BACKEND_PROVISIONAL ? 0 : flow->delay;
    flow->broken = data.guards ? data.broken : flow->fence == 0;
    g_ptr_array_add(flow->paths, g_strdup(flow->queue->pdata[index]));
    g_ptr_array_add(flow->guards, revoke_guard(call, &data, &get->stat));
    bool matches = revoke_take(call, &data, &get->stat);
    node_data_clear(&data);
    return matches;
}

static void revoke_on_data(struct zk_call *call)
{
    struct revoke_flow *flow = revoke_of(call);
    GPtrArray *chosen = g_ptr_array_new();
    bool matches = true, any = revoke_choose(call, chosen);
    g_ptr_array_set_size(flow->tokens, 0);
    g_ptr_array_set_size(flow->paths, 0);
    g_ptr_array_set_size(flow->guards, 0);
    for (guint i = 0; i < chosen->len; i++) {
        matches = revoke_add(call, GPOINTER_TO_UINT(chosen->pdata[i])) && matches;
    }
    if (flow->paths->len == 0 || !matches) {
        revoke_tell(call, !any ? BACKEND_MISSING : matches ? BACKEND_STALE : BACKEND_BUSY);
    } else {
        revoke_note(call, true);
        flow->chosen = true;
        revoke_delete(call);
    }
    g_ptr_array_unref(chosen);
}

static void revoke_get_queue(struct zk_call *call)
{
    const struct revoke_flow *flow = revoke_of(call);
    for (guint i = 0; i < flow->queue->len; i++) {
        call_get(call, flow->queue->pdata[i]);
    }
    call_then(call, revoke_on_data);
}

/* Where a ticket stands in its directory's queue. */
static void revoke_on_place(struct zk_call *call)
{
    GPtrArray *queue = node_queue(call_reply(call, 0)->children);
    struct zk_data directory;
    guint rank = 0;
    node_decode(call_reply(call, 1)->data, &directory);
    while (rank < queue->len && strcmp(queue->pdata[rank], remote_leaf(call->path)) != 0) {
        rank++;
    }
    revoke_of(call)->waits = rank >= directory.attributes.width;
    node_data_clear(&directory);
    g_ptr_array_unref(queue);
    revoke_get_queue(call);
}

static void revoke_on_node(struct zk_call *call)
{
    struct revoke_flow *flow = revoke_of(call);
    const struct zk_reply *get = call_reply(call, 1), *list = call_reply(call, 2);
    struct zk_data data;
    node_decode(get->data, &data);
    bool directory = data.directory;
    node_data_clear(&data);
    flow->delay = get->stat.ephemeralOwner ? 0 : node_delay_of(call_reply(call, 3)->data); /* a ticket has none */
    flow->delayed = node_delay(call->z, get->data, &get->stat, list->children);
    node_take_queue(&flow->queue, call->path, list->children);
    if (get->rc == ZOK && get->stat.ephemeralOwner) {
        g_ptr_array_add(flow->queue, g_strdup(call->path));
    }
    if (directory || flow->queue->len == 0) {
        revoke_tell(call, directory                              ? BACKEND_IS_DIRECTORY
                          : get->rc == ZOK || get->rc == ZNONODE ? BACKEND_MISSING
                                                                 : call_result(call, get->rc));
        return;
    }
    if (get->stat.ephemeralOwner) {
        call_children(call, flow->parent, false);
        call_get(call, flow->parent);
        call_then(call, revoke_on_place);
    } else {
        revoke_get_queue(call);
    }
}

static void revoke_begin(struct zk_call *call)
{
    if (revoke_of(call)->chosen) {
        revoke_delete(call);
        return;
    }
    call_sync(call, call->path);
    call_get(call, call->path);
    call_children(call, call->path, false);
    call_get(call, revoke_of(call)->parent);
    call_then(call, revoke_on_node);
}

void zk_revoke(struct backend *b, const char *name, uint64_t fence, const struct backend_match *match,
               backend_done *done, void *arg)
{
    struct zookeeper *z = (struct zookeeper *)b;
    if (!*name || !node_is_name(name)) {
        done(arg, *name ? BACKEND_MISSING : BACKEND_IS_DIRECTORY);
        return;
    }
    static const struct zk_flow revoke = {sizeof(struct revoke_flow), .begin = revoke_begin, .failed = revoke_failed,
                                          .clear = revoke_clear};
    struct revoke_flow *flow = call_new(z, &revoke, remote_op_done(&z->remote, NULL, done, arg));
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    flow->call.path = node_path(z, name);
    flow->call.revokes = true;
    flow->parent = node_path(z, directory);
    g_free(directory);
    flow->fence = fence;
    flow->match = match ? g_memdup2(match, sizeof *match) : NULL;
    flow->paths = g_ptr_array_new_with_free_func(g_free);
    flow->guards = g_ptr_array_new_with_free_func(revoke_free_guard);
    flow->tokens = g_ptr_array_new_with_free_func(g_free);
    call_start(&flow->call, 0);
}
