/* update: the procedures of remote.h that set, renew, rename and release tickets. */
#include <string.h>

#include "backend/zookeeper/private.h"

/* The ticket that reserves the target of a rename ends with it. */
static void update_answer(struct remote_request *request, const struct remote_answer *answer)
{
    struct remote *r = request->r;
    char *target = g_strdup(request->replaced);
    request->on_answer(request, answer);
    struct remote_ticket *reserved = target ? remote_ticket_find(r, target) : NULL;
    if (reserved && answer->result != BACKEND_OK) {
        backend_release(&r->backend, &reserved->head, NULL, NULL);
    }
    g_free(target);
}

static void update_failed(struct zk_batch *batch, enum remote_outcome outcome)
{
    struct remote_answer answer = {
        .outcome = outcome, .result = BACKEND_UNREACHABLE, .sent = batch->sent, .repeated = batch->was_sent};
    update_answer(batch->request, &answer);
}

static void update_clear(struct zk_batch *batch)
{
    struct zk_update *change = zk_update_of(batch);
    g_free(change->id);
    g_free(change->lock);
    g_clear_pointer(&change->before, g_ptr_array_unref);
    g_clear_pointer(&change->earlier, g_ptr_array_unref);
    g_clear_pointer(&change->queue, g_ptr_array_unref);
}

/* --- release: by the ticket's node or, where that is not known, by its name or data --- */

static void update_on_released(struct zk_batch *batch)
{
    g_hash_table_remove(batch->z->nodes, zk_update_of(batch)->id);
    batch_finish(batch, batch->result);
}

static void update_on_node_removed(struct zk_batch *batch)
{
    bool gone = true;
    for (guint i = 0; i < batch->replies->len; i++) {
        gone = gone && batch_reply(batch, i)->rc == ZNONODE;
    }
    batch->result = gone && batch->result == BACKEND_OK ? BACKEND_MISSING : batch->result;
    update_on_released(batch);
}

static void update_remove(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    const struct zk_node *node = node_find(batch->z, change->id);
    if (node) {
        batch_remove_node(batch, node, change->against_will && node->kind != BACKEND_PROVISIONAL);
        batch_then(batch, update_on_node_removed);
    } else {
        create_remove_earlier(batch, update_on_released);
    }
}

static void update_release(struct zk_batch *batch)
{
    batch->result = BACKEND_OK;
    if (!convert_undo(batch, update_remove)) {
        update_remove(batch);
    }
}

/* --- set and renew, of a known node --- */

/* A node's term runs from its last write; a fixed term must not be extended by that. */
static void update_keep_term(const struct remote_ticket *t, struct zk_node *node)
{
    if (t && t->ends != CLOCK_NEVER && !node->automatic) {
        node->ttl = CLAMP(t->ends - clock_now(), 1, t->head.ttl);
    }
}

static void update_on_written(struct zk_batch *batch)
{
    batch_finish(batch, batch_confirm_write(batch));
}

static void update_set(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    if (convert_is_deferred(batch) || !batch_begin_write(batch, change->id)) {
        return;
    }
    if (!node_find(batch->z, change->id) || !batch->request) {
        batch_finish_soon(batch, BACKEND_STALE);
        return;
    }
    node_change(batch_begin_draft(batch), &batch->request->update.change);
    update_keep_term(remote_ticket_find(&batch->z->remote, change->id), batch->draft);
    batch_send_draft(batch);
    batch_then(batch, update_on_written);
}

/* Compares the node in the store with the ticket.  A node that is stronger, or that another client wrote, is written
 * again.  A ticket whose node is weaker is lost, because others may share the lock. */
static void update_on_compared(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    const struct zk_reply *get = batch_reply(batch, 0);
    const struct remote_ticket *t = remote_ticket_find(&batch->z->remote, change->id);
    struct zk_node *node = node_find(batch->z, change->id);
    struct zk_data data;
    if (!t || !node || get->rc != ZOK || batch_find_writer(batch->z, change->id)) {
        batch_finish(batch, get->rc == ZOK || get->rc == ZNONODE ? BACKEND_OK : batch_result(batch, get->rc));
        return;
    }
    node_decode(get->data, &data);
    bool same = data.ours && !data.upgrading && data.mode == (enum backend_mode)t->head.mode;
    bool weaker =
        t->head.mode == BACKEND_EXCLUSIVE && (node->may_be_shared || (data.ours && data.mode == BACKEND_SHARED));
    node_data_clear(&data);
    if (same) {
        node->version = get->stat.version;
        batch_finish(batch, BACKEND_OK);
    } else if (weaker) {
        node->may_be_shared = true;
        batch_finish(batch, BACKEND_BUSY);
    } else {
        node->unconfirmed = true;
        batch->flow->begin(batch);
    }
}

static void update_on_looked(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    const struct zk_reply *looked = batch_reply(batch, 0);
    const struct remote_ticket *t = remote_ticket_find(&batch->z->remote, change->id);
    const struct zk_node *node = node_find(batch->z, change->id);
    bool ours = looked->rc == ZOK && looked->stat.ephemeralOwner == zoo_client_id(batch->z->handle)->client_id;
    if (batch->draft) {
        batch_confirm_write(batch);
    } else if (ours && t && node && (looked->stat.version != node->version || node->mode != t->head.mode)) {
        batch_get(batch, node->path);
        batch_then(batch, update_on_compared);
        return;
    }
    batch_finish(batch, looked->rc == ZNONODE || (looked->rc == ZOK && !ours) ? BACKEND_STALE
                                                                              : batch_result(batch, looked->rc));
}

/* The heartbeat renews the session; this verifies that the node exists and has the ticket's mode.  It writes only a
 * changed term, the first renewal, and what may differ in the store. */
static void update_renew(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    const struct remote_ticket *t = remote_ticket_find(&batch->z->remote, change->id);
    struct zk_node *node = node_find(batch->z, change->id);
    if (!node || !t || !batch->request) {
        batch_finish_soon(batch, BACKEND_STALE);
        return;
    }
    bool fixed = t->ends != CLOCK_NEVER, automatic = node->ttl == batch->request->ttl && t->due_after > 0 && !fixed;
    bool same = fixed ? batch->request->renewal.verify_only && !node->automatic : automatic && node->automatic;
    bool weaker = node->may_be_shared && t->head.mode == BACKEND_EXCLUSIVE;
    g_clear_pointer(&batch->draft, node_free);
    if (weaker || (same && !node->unconfirmed && node->mode == t->head.mode)) {
        batch_exists(batch, node->path);
    } else if (!batch_begin_write(batch, change->id)) {
        return;
    } else {
        struct zk_node *draft = batch_begin_draft(batch);
        draft->mode = t->head.mode;
        draft->automatic = automatic;
        draft->ttl = batch->request->ttl;
        update_keep_term(t, draft);
        batch_send_draft(batch);
    }
    if (node->kind != BACKEND_PROVISIONAL) {
        batch_mark_held(batch, batch->draft ? batch->draft : node);
    }
    batch_then(batch, update_on_looked);
}

/* --- rename: takes the new name provisionally; then one step removes the old node and writes its data to the new one.
 * If this daemon is killed, the next one finds one of the two. --- */

static void update_finish_rename(struct zk_batch *batch, struct zk_node *node, const struct zk_node *to)
{
    struct remote_request *request = batch->request;
    struct remote_answer answer = {
        .outcome = REMOTE_ANSWERED, .result = BACKEND_OK, .sent = batch->sent, .fence = to->fence};
    node_move(node, to);
    watch_node(batch->z, node->path, zk_update_of(batch)->id);
    g_hash_table_remove(batch->z->nodes, request->replaced);
    batch->request = NULL;
    request->on_answer(request, &answer);
    batch_end(batch);
}

static void update_fail_rename(struct zk_batch *batch, enum backend_result result)
{
    struct remote_request *request = batch->request;
    batch->request = NULL;
    if (request) {
        update_answer(request, &(struct remote_answer){.outcome = result == BACKEND_UNREACHABLE ? REMOTE_REFUSED
                                                                                                : REMOTE_ANSWERED,
                                                       .result = result,
                                                       .sent = batch->sent,
                                                       .repeated = batch->was_sent});
    }
    batch_end(batch);
}

static void update_fail_rename_as_stale(struct zk_batch *batch)
{
    update_fail_rename(batch, BACKEND_STALE);
}

static void update_rename(struct zk_batch *batch);

static void update_on_renamed(struct zk_batch *batch)
{
    struct zk_node *node = node_find(batch->z, zk_update_of(batch)->id);
    const struct zk_node *to = batch->request ? node_find(batch->z, batch->request->replaced) : NULL;
    int rc = batch_reply(batch, 0)->rc;
    if (node) {
        node->removing = false;
    }
    if (rc == ZOK && node && to) {
        update_finish_rename(batch, node, to);
    } else {
        update_fail_rename(batch, rc == ZOK || rc == ZNONODE ? BACKEND_STALE : batch_result(batch, rc));
    }
}

/* An earlier try may have renamed it. */
static void update_on_found(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    struct zk_node *node = node_find(batch->z, change->id);
    const struct zk_node *to = batch->request ? node_find(batch->z, batch->request->replaced) : NULL;
    struct zk_data data;
    node_decode(batch_reply(batch, 0)->data, &data);
    bool done = node && to && strcmp(data.id, change->id) == 0;
    node_data_clear(&data);
    if (done) {
        update_finish_rename(batch, node, to);
    } else {
        batch->was_sent = false;
        update_rename(batch);
    }
}

static void update_rename(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    struct zk_node *node = node_find(batch->z, change->id);
    struct zk_node *to = batch->request ? node_find(batch->z, batch->request->replaced) : NULL;
    if (!node || !to) {
        batch_then(batch, update_fail_rename_as_stale);
    } else if (!batch_begin_write(batch, change->id)) {
        return; /* parked: the rename needs the result of the pending write */
    } else if (batch->was_sent) {
        batch_get(batch, to->path);
        batch_then(batch, update_on_found);
    } else {
        update_keep_term(remote_ticket_find(&batch->z->remote, change->id), node);
        GBytes *bytes = node_encode(node, change->id);
        node->removing = true;
        batch_move(batch, node, to, bytes);
        batch_mark_held(batch, to);
        batch_then(batch, update_on_renamed);
        g_bytes_unref(bytes);
    }
}

static struct zk_batch *update_start(struct remote_request *request, struct remote_ticket *t, int64_t timeout);

/* The result of a rename that has not begun. */
static void update_refuse_rename(struct remote_request *request, enum backend_result result)
{
    request->on_answer(
        request, &(struct remote_answer){.outcome = result == BACKEND_UNREACHABLE ? REMOTE_NOT_SENT : REMOTE_ANSWERED,
                                         .result = result});
}

static void update_on_reserved(void *arg, enum backend_result result, struct backend_ticket *reserved,
                               const struct backend_info *holder)
{
    struct remote_request *request = arg;
    struct remote_ticket *t = remote_ticket_find(request->r, request->id);
    (void)holder;
    if (result == BACKEND_OK && t) {
        ((struct remote_ticket *)reserved)->renaming = true;
        g_free(request->replaced);
        request->replaced = g_strdup(((struct remote_ticket *)reserved)->id);
        update_start(request, t, 0);
        return;
    }
    if (result == BACKEND_OK) {
        backend_release(&request->r->backend, reserved, NULL, NULL);
    }
    update_refuse_rename(request, result == BACKEND_OK ? BACKEND_STALE : result);
}

static void update_reserve_target(struct remote_request *request, const struct remote_ticket *t)
{
    backend_acquire(&request->r->backend, request->name,
                    &(struct backend_claim){.kind = BACKEND_PROVISIONAL, .ttl = t->head.ttl, .meta = t->meta},
                    update_on_reserved, request);
}

/* --- requests of remote.h --- */

/* The flow of a request about a ticket. */
static struct zk_batch *update_start(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
#define UPDATE_FLOW(step, ...)                                                                                         \
    {                                                                                                                  \
        sizeof(struct zk_update), step, update_failed, update_clear, __VA_ARGS__                                       \
    }
    static const struct zk_flow flows[REMOTE_PROCEDURES] = {
        [REMOTE_ACQUIRE] = UPDATE_FLOW(create_begin),
        [REMOTE_RELEASE] = UPDATE_FLOW(update_release, .persists = true),
        [REMOTE_RELEASE_RANGE] = UPDATE_FLOW(convert_release_range, .persists = true),
        [REMOTE_RENEW] = UPDATE_FLOW(update_renew),
        [REMOTE_SET] = UPDATE_FLOW(update_set),
        [REMOTE_CONVERT] = UPDATE_FLOW(convert_begin),
        [REMOTE_RENAME] = UPDATE_FLOW(update_rename),
    };
    struct zookeeper *z = (struct zookeeper *)request->r;
    struct zk_update *change = batch_new(z, &flows[request->procedure], request);
    const char *lock = t ? t->lock->name : request->name;
    change->id = g_strdup(request->id);
    change->lock = g_strdup(request->name);
    change->lock_owner = request->lock_owner;
    change->batch.path = node_path(z, lock);
    change->sequence = t ? t->lock->sequence : request->release.sequence;
    change->against_will = request->procedure == REMOTE_RELEASE && *request->release.why;
    batch_start(&change->batch, timeout);
    return &change->batch;
}

uint64_t update_send(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
    static void (*const about_names[REMOTE_PROCEDURES])(struct remote_request * request) = {
        [REMOTE_REVOKE] = revoke_start,   [REMOTE_TEST] = query_start_about,   [REMOTE_STAT] = query_start_about,
        [REMOTE_LIST] = query_start_list, [REMOTE_TICKETS] = query_start_list, [REMOTE_MOUNTS] = query_start_mounts,
        [REMOTE_MKDIR] = directory_start, [REMOTE_RMDIR] = directory_start,    [REMOTE_SET_DIRECTORY] = directory_start,
    };
    if (about_names[request->procedure]) {
        about_names[request->procedure](request);
    } else if (request->procedure == REMOTE_RENAME) {
        update_reserve_target(request, t);
    } else {
        return (uint64_t)(uintptr_t)update_start(request, t, timeout);
    }
    return 0;
}

void update_forget(struct remote *r, uint64_t call)
{
    struct zk_batch *batch = (struct zk_batch *)(uintptr_t)call; /* a pending request's flow exists */
    (void)r;
    batch->request = NULL;
    batch_end(batch);
}
