/* change: what is done to tickets: the procedures of remote.h. */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

static void change_failed(struct zk_call *call, enum remote_outcome outcome)
{
    struct remote_answer answer = {
        .outcome = outcome, .result = BACKEND_UNREACHABLE, .sent = call->sent, .repeated = call->was_sent};
    call->op->answered(call->op, &answer);
}

static void change_clear(struct zk_call *call)
{
    struct zk_change *change = zk_change_of(call);
    g_free(change->token);
    g_free(change->lock);
    g_clear_pointer(&change->before, g_ptr_array_unref);
    g_clear_pointer(&change->made, g_ptr_array_unref);
    g_clear_pointer(&change->queue, g_ptr_array_unref);
}

/* --- release: by its node or, where that is not known, by what it is named or says --- */

static void change_on_released(struct zk_call *call)
{
    g_hash_table_remove(call->z->nodes, zk_change_of(call)->token);
    call_answer(call, call->result);
}

static void change_remove(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    const struct zk_node *node = node_of(call->z, change->token);
    if (node) {
        call_leave(call, node, change->against_will && node->kind != BACKEND_PROVISIONAL);
        call_then(call, change_on_released);
    } else {
        acquire_remove(call, change_on_released);
    }
}

static void change_release(struct zk_call *call)
{
    call->result = BACKEND_OK;
    if (!convert_undoes(call, change_remove)) {
        change_remove(call);
    }
}

/* --- set, renew: of a node that is known --- */

/* Its term counts from when the node is written, which is no reason to extend a fixed one. */
static void change_keep_term(const struct remote_ticket *t, struct zk_node *node)
{
    if (t && t->ends != CLOCK_NEVER && !node->automatic) {
        node->ttl = CLAMP(t->ends - clock_now(), 1, t->head.ttl);
    }
}

static void change_on_written(struct zk_call *call)
{
    call_answer(call, call_written(call));
}

static void change_set(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    if (convert_is_put_off(call) || !call_may_write(call, change->token)) {
        return;
    }
    if (!node_of(call->z, change->token) || !call->op) {
        call_settle(call, BACKEND_STALE);
        return;
    }
    node_change(call_draft(call), &call->op->change);
    change_keep_term(remote_ticket_find(&call->z->remote, change->token), call->draft);
    call_write(call);
    call_then(call, change_on_written);
}

/* As others see it.  What is stronger there than it is believed to be, or a stranger's word, is written anew; what is
 * weaker is lost: others may share it. */
static void change_on_compared(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    const struct zk_reply *get = call_reply(call, 0);
    const struct remote_ticket *t = remote_ticket_find(&call->z->remote, change->token);
    struct zk_node *node = node_of(call->z, change->token);
    struct zk_data data;
    if (!t || !node || get->rc != ZOK || call_is_written(call->z, change->token)) {
        call_answer(call, get->rc == ZOK || get->rc == ZNONODE ? BACKEND_OK : call_result(call, get->rc));
        return;
    }
    node_decode(get->data, &data);
    bool same = data.ours && !data.raises && data.mode == (enum backend_mode)t->head.mode;
    bool weaker = t->head.mode == BACKEND_EXCLUSIVE && (node->lax || (data.ours && data.mode == BACKEND_SHARED));
    node_data_clear(&data);
    if (same) {
        node->version = get->stat.version;
        call_answer(call, BACKEND_OK);
    } else if (weaker) {
        node->lax = true;
        call_answer(call, BACKEND_BUSY);
    } else {
        node->unsure = true;
        call->flow->begin(call);
    }
}

static void change_on_looked(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    const struct zk_reply *looked = call_reply(call, 0);
    const struct remote_ticket *t = remote_ticket_find(&call->z->remote, change->token);
    const struct zk_node *node = node_of(call->z, change->token);
    bool ours = looked->rc == ZOK && looked->stat.ephemeralOwner == zoo_client_id(call->z->handle)->client_id;
    if (call->draft) {
        call_written(call);
    } else if (ours && t && node && (looked->stat.version != node->version || node->mode != t->head.mode)) {
        call_get(call, node->path);
        call_then(call, change_on_compared);
        return;
    }
    call_answer(call,
                looked->rc == ZNONODE || (looked->rc == ZOK && !ours) ? BACKEND_STALE : call_result(call, looked->rc));
}

/* The session is believed in because of its heartbeat; this one sees that the node is there, and says what it is
 * believed to.  Only another term, that it is renewed at all, and what may be otherwise there are written. */
static void change_renew(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    const struct remote_ticket *t = remote_ticket_find(&call->z->remote, change->token);
    struct zk_node *node = node_of(call->z, change->token);
    if (!node || !t || !call->op) {
        call_settle(call, BACKEND_STALE);
        return;
    }
    bool fixed = t->ends != CLOCK_NEVER, automatic = node->ttl == call->op->ttl && t->due_after > 0 && !fixed;
    bool same = fixed ? call->op->confirm && !node->automatic : automatic && node->automatic;
    bool weaker = node->lax && t->head.mode == BACKEND_EXCLUSIVE;
    g_clear_pointer(&call->draft, node_free);
    if (weaker || (same && !node->unsure && node->mode == t->head.mode)) {
        call_exists(call, node->path);
    } else if (!call_may_write(call, change->token)) {
        return;
    } else {
        struct zk_node *draft = call_draft(call);
        draft->mode = t->head.mode;
        draft->automatic = automatic;
        draft->ttl = call->op->ttl;
        change_keep_term(t, draft);
        call_write(call);
    }
    if (node->kind != BACKEND_PROVISIONAL) {
        call_mark(call, call->draft ? call->draft : node);
    }
    call_then(call, change_on_looked);
}

/* --- rename: the new name is taken provisionally; then in one step the old node goes and that one says what it said.
 * Who takes the leases over if this daemon is killed finds either the one or the other. --- */

static void change_is_renamed(struct zk_call *call, struct zk_node *node, const struct zk_node *to)
{
    struct remote_op *op = call->op;
    struct remote_answer answer = {
        .outcome = REMOTE_ANSWERED, .result = BACKEND_OK, .sent = call->sent, .fence = to->fence};
    node_move(node, to);
    watch_node(call->z, node->path, zk_change_of(call)->token);
    g_hash_table_remove(call->z->nodes, op->replaced);
    call->op = NULL;
    op->answered(op, &answer);
    call_end(call);
}

static void change_rename(struct zk_call *call);

static void change_on_renamed(struct zk_call *call)
{
    struct zk_node *node = node_of(call->z, zk_change_of(call)->token);
    const struct zk_node *to = call->op ? node_of(call->z, call->op->replaced) : NULL;
    int rc = call_reply(call, 0)->rc;
    if (node) {
        node->leaves = false;
    }
    if (rc == ZOK && node && to) {
        change_is_renamed(call, node, to);
    } else {
        call_answer(call, rc == ZOK || rc == ZNONODE ? BACKEND_STALE : call_result(call, rc));
    }
}

/* Whether an earlier try has done it. */
static void change_on_found(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    struct zk_node *node = node_of(call->z, change->token);
    const struct zk_node *to = call->op ? node_of(call->z, call->op->replaced) : NULL;
    struct zk_data data;
    node_decode(call_reply(call, 0)->data, &data);
    bool done = node && to && strcmp(data.token, change->token) == 0;
    node_data_clear(&data);
    if (done) {
        change_is_renamed(call, node, to);
    } else {
        call->was_sent = false;
        change_rename(call);
    }
}

static void change_rename(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    struct zk_node *node = node_of(call->z, change->token);
    struct zk_node *to = call->op ? node_of(call->z, call->op->replaced) : NULL;
    if (!node || !to) {
        call_settle(call, BACKEND_STALE);
    } else if (!call_may_write(call, change->token)) {
        return; /* what is written to it just now is to go with it */
    } else if (call->was_sent) {
        call_get(call, to->path);
        call_then(call, change_on_found);
    } else {
        change_keep_term(remote_ticket_find(&call->z->remote, change->token), node);
        GBytes *bytes = node_encode(node, change->token);
        node->leaves = true;
        call_move(call, node, to, bytes);
        call_mark(call, to);
        call_then(call, change_on_renamed);
        g_bytes_unref(bytes);
    }
}

static void change_on_moved(void *arg, enum backend_result result)
{
    struct remote_op *op = arg;
    struct remote_ticket *reserved = remote_ticket_find(op->r, op->replaced);
    if (result != BACKEND_OK && reserved) {
        remote_release(&op->r->backend, &reserved->head, NULL, NULL);
    }
    remote_op_finish(op, result);
}

static void change_on_reserved(void *arg, enum backend_result result, struct backend_ticket *reserved,
                               const struct backend_info *holder)
{
    struct remote_op *op = arg;
    struct remote_ticket *t = remote_ticket_find(op->r, op->token);
    (void)holder;
    if (result != BACKEND_OK) {
        remote_op_finish(op, result);
    } else if (!t) {
        remote_release(&op->r->backend, reserved, NULL, NULL);
        remote_op_finish(op, BACKEND_STALE);
    } else {
        op->replaced = g_strdup(((struct remote_ticket *)reserved)->token);
        remote_rename(&op->r->backend, &t->head, op->name, reserved, change_on_moved, op);
    }
}

/* --- the call tier --- */

uint64_t change_call(struct remote_op *op, struct remote_ticket *t, int64_t timeout)
{
#define CHANGE_FLOW(step, ...)                                                                                         \
    {                                                                                                                  \
        sizeof(struct zk_change), step, change_failed, change_clear, __VA_ARGS__                                       \
    }
    static const struct zk_flow flows[] = {
        [REMOTE_ACQUIRE] = CHANGE_FLOW(acquire_begin),
        [REMOTE_RELEASE] = CHANGE_FLOW(change_release, .persists = true),
        [REMOTE_RELEASE_RANGE] = CHANGE_FLOW(convert_release_range, .persists = true),
        [REMOTE_RENEW] = CHANGE_FLOW(change_renew),
        [REMOTE_SET] = CHANGE_FLOW(change_set),
        [REMOTE_CONVERT] = CHANGE_FLOW(convert_begin),
        [REMOTE_RENAME] = CHANGE_FLOW(change_rename),
    };
    struct zookeeper *z = (struct zookeeper *)op->r;
    struct zk_change *change = call_new(z, &flows[op->procedure], op);
    const char *place = t ? t->place->name : op->name;
    change->token = g_strdup(op->token);
    change->lock = g_strdup(op->name);
    change->lock_owner = op->claim.lock_owner;
    change->call.path = node_path(z, place);
    change->sequence = t ? t->place->sequence : op->claim.sequence;
    change->against_will = op->procedure == REMOTE_RELEASE && *op->why;
    call_start(&change->call, timeout);
    return (uint64_t)(uintptr_t)change;
}

void change_forget(struct remote *r, uint64_t request)
{
    struct zk_call *call = (struct zk_call *)(uintptr_t)request; /* it is not answered, so it is there */
    (void)r;
    call->op = NULL;
    call_end(call);
}

void zk_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
               backend_done *done, void *arg)
{
    struct remote *r = (struct remote *)b;
    const struct remote_ticket *t = (struct remote_ticket *)ticket, *target = (struct remote_ticket *)replaced;
    if (target && strcmp(target->place->name, name) == 0) {
        log_notice("on ZooKeeper a lock can be renamed to a name that is free, not over another lock");
        done(arg, BACKEND_UNSUPPORTED);
        return;
    }
    struct remote_op *op = remote_op_done(r, t, done, arg);
    op->name = g_strdup(name);
    zk_acquire(b, name, &(struct backend_claim){.kind = BACKEND_PROVISIONAL, .ttl = t->head.ttl, .meta = t->meta},
               change_on_reserved, op);
}
