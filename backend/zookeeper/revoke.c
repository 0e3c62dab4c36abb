/* revoke: ending holders by name, whosever they are: their nodes are removed.
 *
 * Who holds on another mount hears of it from the server at once, as of something lost.
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
    if (call->match && !backend_matches(call->match, data->meta)) {
        return false;
    }
    const struct remote_ticket *t = node_ticket(call->z, data, stat);
    if (t && (t->state == REMOTE_HELD || (t->place->sequence && t->state != REMOTE_ASKED))) {
        g_ptr_array_add(call->entries, g_strdup(data->token));
    }
    return true;
}

/* What was chosen, also when it is repeated: whoever holds then is not meant. */
static void revoke_delete(struct zk_call *call)
{
    for (guint i = 0, last = call->children->len - 1; i <= last; i++) {
        if (i == last && call->max > 0) {
            call_end_hold(call, call->children->pdata[i], call->path, call->number ? 0 : (int64_t)call->max);
        } else {
            call_delete(call, call->children->pdata[i], -1);
        }
    }
    call_then(call, revoke_on_deleted);
}

static void revoke_on_data(struct zk_call *call)
{
    GPtrArray *paths = g_ptr_array_new_with_free_func(g_free);
    GArray *holders = node_holders(call->replies);
    bool matches = true, any = false;
    g_ptr_array_set_size(call->entries, 0);
    for (guint i = 0; i < call->replies->len; i++) {
        const struct zk_reply *get = call_reply(call, i);
        struct zk_data data;
        if (get->rc != ZOK) {
            continue;
        }
        node_decode(get->data, &data);
        if (call->since && !any && data.ours && data.mode == BACKEND_EXCLUSIVE) { /* it waits for the delay to end */
            node_data_clear(&data);
            break;
        }
        any = true;
        if (g_array_index(holders, bool, i) && (!call->number || call->number == (uint64_t)get->stat.czxid)) {
            call->max = paths->len == 0 && data.ours && data.kind == BACKEND_PROVISIONAL ? 0 : call->max;
            g_ptr_array_add(paths, g_strdup(call->children->pdata[i]));
            matches = revoke_take(call, &data, &get->stat) && matches;
        }
        node_data_clear(&data);
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
    g_array_unref(holders);
    g_ptr_array_unref(paths);
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
    for (guint i = 0; i < call->children->len; i++) {
        call_get(call, call->children->pdata[i]);
    }
    call_then(call, revoke_on_data);
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
