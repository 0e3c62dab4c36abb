/* revoke: ending holders by name, whosever they are: their nodes are removed.
 *
 * Who holds on another mount hears of it from the server at once, as of something lost.  One that has a guard leaves a
 * node in the same place, which belongs to the session of the mount that revokes: that removes it when its time is
 * over, and the servers do if that mount is gone.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

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
    for (guint i = 0; i < call->entries->len; i++) {
        struct zk_node *node = node_of(call->z, call->entries->pdata[i]);
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
    struct remote *r = &call->z->remote;
    GPtrArray *tokens = g_ptr_array_ref(call->entries);
    enum backend_end why = call->number ? BACKEND_RELEASED : BACKEND_BROKEN;
    enum backend_result result = BACKEND_OK;
    for (guint i = 0; i < call->replies->len; i++) {
        int rc = call_reply(call, i)->rc;
        result = rc == ZOK || rc == ZNONODE || rc == ZNOTEMPTY ? result : call_result(call, rc);
    }
    for (guint i = 0; i < tokens->len; i++) {
        const struct zk_node *node = node_of(call->z, tokens->pdata[i]);
        if (node && !g_ptr_array_find_with_equal_func(call->children, node->path, g_str_equal, NULL)) {
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
    g_ptr_array_unref(tokens);
    revoke_tell(call, result);
}

/* One that is to end, unless it does not match.  Why it has ended is told by this call; one that is asked for, or
 * waits and is not meant by its name, finds out itself. */
static bool revoke_take(struct zk_call *call, const struct zk_data *data, const struct Stat *stat)
{
    if (call->match && (data->guards || !backend_matches(call->match, data->meta))) {
        return false;
    }
    const struct remote_ticket *t = node_ticket(call->z, data, stat);
    if (t && (t->state == REMOTE_HELD || (t->place->sequence && t->state != REMOTE_ASKED))) {
        g_ptr_array_add(call->entries, g_strdup(data->token));
    }
    return true;
}

/* --- guards --- */

static void revoke_on_guard_over(struct zk_call *call)
{
    if (call->max > 0) {
        char *lock = g_path_get_dirname(call->path);
        call_end_hold(call, call->path, lock, call->against ? (int64_t)call->max : 0);
        g_free(lock);
    } else {
        call_delete(call, call->path, -1);
    }
    call_then(call, call_end);
}

static void revoke_await_guard(struct zk_call *call)
{
    call_wait(call, MAX(call->since - clock_now(), 0), revoke_on_guard_over);
}

void revoke_end_guard_in(struct zookeeper *z, const char *path, int64_t left, int64_t delay, bool broken)
{
    struct zk_call *call = call_new(z, NULL, revoke_await_guard, NULL);
    call->path = g_strdup(path);
    call->since = clock_now() + left;
    call->max = (size_t)delay;
    call->against = broken;
    call->stubborn = true;
    call_start(call, 0);
}

/* What is to be in place of a holder; NULL: nothing. */
static GBytes *revoke_guard(struct zk_call *call, const struct zk_data *data, const struct Stat *stat)
{
    struct backend_info info = {.type = BACKEND_LOCK};
    bool may = data->ours && !data->guards && data->kind != BACKEND_PROVISIONAL;
    bool holds = !call->waits || data->mode == BACKEND_SHARED; /* perhaps, with those before it */
    int64_t guard = may && holds ? backend_guard(data->meta) : 0;
    ask_describe(call->z, data, stat, &info);
    int64_t left = MIN(guard, info.deadline - clock_now());
    return left > 0 ? node_encode_guard(call->z, data, stat, call->number == 0, left) : NULL;
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
    revoke_end_guard_in(call->z, place, data.ttl, (int64_t)call->max, data.broken);
    node_data_clear(&data);
    g_free(place);
}

/* What was chosen, also when it is repeated: whoever holds then is not meant. */
static void revoke_delete(struct zk_call *call)
{
    for (guint i = 0, last = call->children->len - 1; i <= last; i++) {
        if (call->guards->pdata[i]) {
            revoke_leave_guard(call, call->children->pdata[i], call->guards->pdata[i]);
        } else if (i == last && call->max > 0) {
            call_end_hold(call, call->children->pdata[i], call->path, call->against ? (int64_t)call->max : 0);
        } else {
            call_delete(call, call->children->pdata[i], -1);
        }
    }
    call_then(call, revoke_on_deleted);
}

/* Those that hold, and are meant: guards only if there is nothing else.  False: none of the queue holds, as the first
 * waits for a lock-delay to end. */
static bool revoke_choose(struct zk_call *call, GPtrArray *chosen)
{
    GArray *holders = node_holders(call->replies);
    bool any = false, guards = true;
    for (guint i = 0; i < call->replies->len; i++) {
        const struct zk_reply *get = call_reply(call, i);
        struct zk_data data;
        if (get->rc != ZOK) {
            continue;
        }
        node_decode(get->data, &data);
        bool waits = call->since && !any && data.ours && !data.guards && data.mode == BACKEND_EXCLUSIVE;
        bool holds = g_array_index(holders, bool, i) && !waits;
        bool meant = holds && (!call->number || call->number == node_fence(call->z, &data, &get->stat));
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
static bool revoke_add(struct zk_call *call, GPtrArray *paths, guint index)
{
    const struct zk_reply *get = call_reply(call, index);
    struct zk_data data;
    node_decode(get->data, &data);
    call->max = paths->len == 0 && data.ours && data.kind == BACKEND_PROVISIONAL ? 0 : call->max;
    call->against = data.guards ? data.broken : call->number == 0;
    g_ptr_array_add(paths, g_strdup(call->children->pdata[index]));
    g_ptr_array_add(call->guards, revoke_guard(call, &data, &get->stat));
    bool matches = revoke_take(call, &data, &get->stat);
    node_data_clear(&data);
    return matches;
}

static void revoke_on_data(struct zk_call *call)
{
    GPtrArray *paths = g_ptr_array_new_with_free_func(g_free), *chosen = g_ptr_array_new();
    bool matches = true, any = revoke_choose(call, chosen);
    g_ptr_array_set_size(call->entries, 0);
    g_clear_pointer(&call->guards, g_ptr_array_unref);
    call->guards = g_ptr_array_new_with_free_func(revoke_free_guard);
    for (guint i = 0; i < chosen->len; i++) {
        matches = revoke_add(call, paths, GPOINTER_TO_UINT(chosen->pdata[i])) && matches;
    }
    if (paths->len == 0 || !matches) {
        revoke_tell(call, !any ? BACKEND_MISSING : matches ? BACKEND_STALE : BACKEND_BUSY);
    } else {
        revoke_note(call, true);
        g_ptr_array_unref(call->children);
        call->children = g_ptr_array_ref(paths);
        call->flag = true;
        revoke_delete(call);
    }
    g_ptr_array_unref(chosen);
    g_ptr_array_unref(paths);
}

static void revoke_get_queue(struct zk_call *call)
{
    for (guint i = 0; i < call->children->len; i++) {
        call_get(call, call->children->pdata[i]);
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
    call->waits = rank >= directory.attributes.width;
    node_data_clear(&directory);
    g_ptr_array_unref(queue);
    revoke_get_queue(call);
}

static void revoke_on_node(struct zk_call *call)
{
    const struct zk_reply *get = call_reply(call, 1), *list = call_reply(call, 2);
    struct zk_data data;
    node_decode(get->data, &data);
    bool directory = data.directory;
    node_data_clear(&data);
    call->max = get->stat.ephemeralOwner ? 0 : (size_t)node_delay_of(call_reply(call, 3)->data); /* a ticket has none */
    call->since = node_delay(call->z, get->data, &get->stat, list->children);
    node_take_queue(&call->children, call->path, list->children);
    if (get->rc == ZOK && get->stat.ephemeralOwner) {
        g_ptr_array_add(call->children, g_strdup(call->path));
    }
    if (directory || call->children->len == 0) {
        revoke_tell(call, directory                              ? BACKEND_IS_DIRECTORY
                          : get->rc == ZOK || get->rc == ZNONODE ? BACKEND_MISSING
                                                                 : call_result(call, get->rc));
        return;
    }
    if (get->stat.ephemeralOwner) {
        call_children(call, call->after, false);
        call_get(call, call->after);
        call_then(call, revoke_on_place);
    } else {
        revoke_get_queue(call);
    }
}

static void revoke_begin(struct zk_call *call)
{
    if (call->flag) {
        revoke_delete(call);
        return;
    }
    call_sync(call, call->path);
    call_get(call, call->path);
    call_children(call, call->path, false);
    call_get(call, call->after);
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
    struct zk_call *call = call_new(z, remote_op_done(&z->remote, NULL, done, arg), revoke_begin, revoke_failed);
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    call->path = node_path(z, name);
    call->after = node_path(z, directory);
    g_free(directory);
    call->number = fence;
    call->revokes = true;
    call->match = match ? g_memdup2(match, sizeof *match) : NULL;
    call->entries = g_ptr_array_new_with_free_func(g_free);
    call_start(call, 0);
}
