/* change: what is done to tickets: the procedures of remote.h. */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

static void change_answer(struct zk_call *call, enum backend_result result)
{
    struct remote_op *op = call->op;
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = result, .sent = call->sent};
    answer.outcome = result == BACKEND_UNREACHABLE ? REMOTE_REFUSED : REMOTE_ANSWERED;
    answer.repeated = call->was_sent;
    call->op = NULL;
    if (op) {
        op->answered(op, &answer);
    }
    call_end(call);
}

static void change_on_settled(struct zk_call *call)
{
    change_answer(call, (enum backend_result)call->max);
}

/* Nothing has to be asked for it; it is told from the loop, as all is. */
static void change_settle(struct zk_call *call, enum backend_result result)
{
    call->max = result;
    call_then(call, change_on_settled);
}

static void change_failed(struct zk_call *call, enum remote_outcome outcome)
{
    struct remote_answer answer = {
        .outcome = outcome, .result = BACKEND_UNREACHABLE, .sent = call->sent, .repeated = call->was_sent};
    call->op->answered(call->op, &answer);
}

/* --- release: by its node or, where that is not known, by what it is named or says --- */

static void change_on_released(struct zk_call *call)
{
    g_hash_table_remove(call->z->nodes, call->name);
    change_answer(call, BACKEND_OK);
}

static void change_release(struct zk_call *call)
{
    const struct zk_node *node = node_of(call->z, call->name);
    if (node) {
        call_leave(call, node, call->against && node->kind != BACKEND_PROVISIONAL);
        call_then(call, change_on_released);
    } else {
        acquire_remove(call, change_on_released);
    }
}

/* --- the rest is done to a node that is known --- */

static void change_write(struct zk_call *call, const struct zk_node *node, zk_step *next)
{
    GBytes *bytes = node_encode(node, call->name);
    call_set(call, node->path, bytes, -1);
    if (next) {
        call_then(call, next);
    }
    g_bytes_unref(bytes);
}

static void change_on_written(struct zk_call *call)
{
    int rc = call_reply(call, 0)->rc;
    change_answer(call, rc == ZNONODE ? BACKEND_STALE : call_result(call, rc));
}

/* A revocation of the lock is under way: what was asked for after it is done after it. */
static bool change_is_put_off(struct zk_call *call)
{
    const struct zk_call *other;
    TAILQ_FOREACH(other, &call->z->calls, link) {
        if (other->revokes && strcmp(other->path, call->path) == 0) {
            call->parked = true;
            return true;
        }
    }
    return false;
}

static void change_set(struct zk_call *call)
{
    if (change_is_put_off(call)) {
        return;
    }
    struct zk_node *node = node_of(call->z, call->name);
    if (!node || !call->op) {
        change_settle(call, BACKEND_STALE);
        return;
    }
    node_change(node, &call->op->change);
    change_write(call, node, change_on_written);
}

static void change_on_looked(struct zk_call *call)
{
    const struct zk_reply *exists = call_reply(call, 0);
    bool ours = exists->rc == ZOK && exists->stat.ephemeralOwner == zoo_client_id(call->z->handle)->client_id;
    change_answer(call, exists->rc == ZNONODE || (exists->rc == ZOK && !ours) ? BACKEND_STALE
                                                                              : call_result(call, exists->rc));
}

/* The session is believed in because of its heartbeat; this one sees that the node is there.  Only another term, and
 * that it is renewed at all, are written. */
static void change_renew(struct zk_call *call)
{
    const struct remote_ticket *t = remote_ticket_find(&call->z->remote, call->name);
    struct zk_node *node = node_of(call->z, call->name);
    if (!node || !t || !call->op) {
        change_settle(call, BACKEND_STALE);
        return;
    }
    bool automatic = node->ttl == call->op->ttl && t->due_after > 0;
    if (automatic && node->automatic) {
        call_exists(call, node->path);
    } else {
        node->automatic = automatic;
        node->ttl = call->op->ttl;
        change_write(call, node, NULL);
    }
    if (node->kind != BACKEND_PROVISIONAL) {
        call_mark(call, node);
    }
    call_then(call, change_on_looked);
}

/* A lock owner has given back bytes: of what it still holds the strongest mode counts. */
static void change_release_range(struct zk_call *call)
{
    struct remote *r = &call->z->remote;
    struct remote_place *place = g_hash_table_lookup(r->places, call->after);
    struct remote_ticket *t = place ? LIST_FIRST(&place->tickets) : NULL;
    GHashTableIter each;
    gpointer token;
    struct zk_node *node;
    while (t && !(t->lock_owner == call->number && t->state == REMOTE_HELD)) {
        t = LIST_NEXT(t, link);
    }
    g_free(call->name);
    call->name = t ? g_strdup(t->token) : NULL;
    g_hash_table_iter_init(&each, call->z->nodes);
    while (!t && !call->name && g_hash_table_iter_next(&each, &token, (gpointer *)&node)) {
        bool its = node->lock_owner == call->number && strcmp(node->place, call->after) == 0;
        call->name = its && !remote_ticket_find(r, token) ? g_strdup(token) : NULL;
    }
    node = call->name ? node_of(call->z, call->name) : NULL;
    if (!node || (t && node->mode == t->head.mode)) {
        change_settle(call, BACKEND_OK);
    } else if (t) {
        node->mode = t->head.mode;
        change_write(call, node, change_on_written);
    } else {
        change_release(call);
    }
}

/* --- convert --- */

/* Who waits may hold in its new mode. */
static void change_on_converted(struct zk_call *call)
{
    struct zookeeper *z = call->z;
    char *token = g_strdup(call->name);
    struct zk_node *node = node_of(z, token);
    if (node) {
        node->again = true; /* should it be looking just now */
    }
    change_on_written(call);
    remote_told(&z->remote, token, REMOTE_MAY_BE_FREE, BACKEND_LOST);
    g_free(token);
}

static void change_into(struct zk_call *call)
{
    struct zk_node *node = node_of(call->z, call->name);
    if (!node || !call->op) {
        change_settle(call, BACKEND_STALE);
        return;
    }
    const struct backend_claim *claim = &call->op->claim;
    node->kind = (uint8_t)claim->kind;
    node->mode = (uint8_t)claim->mode;
    node->raises = false;
    node->ttl = claim->ttl;
    node->automatic = false;
    node->handle = claim->handle;
    node->lock_owner = claim->lock_owner;
    g_clear_pointer(&node->handles, g_array_unref);
    node_change(node, &call->op->change);
    change_write(call, node, NULL);
    call_mark(call, node);
    call_then(call, change_on_converted);
}

static void change_on_reverted(struct zk_call *call)
{
    change_answer(call, BACKEND_BUSY);
}

/* The others that are shared, up to the first that is not, hold too. */
static void change_on_modes(struct zk_call *call)
{
    const struct remote_ticket *t = remote_ticket_find(&call->z->remote, call->name);
    struct zk_node *node = node_of(call->z, call->name);
    bool others = false, end = false;
    if (!t || !node) {
        change_answer(call, BACKEND_STALE);
        return;
    }
    for (guint i = 0; i < call->children->len && !end; i++) {
        const struct zk_reply *get = call_reply(call, i);
        struct zk_data data;
        node_decode(get->data, &data);
        if (get->rc == ZOK && !node_is_kin(call->z, t, call->children->pdata[i])) {
            others = others || (data.ours && data.mode == BACKEND_SHARED);
            end = !data.ours || data.mode == BACKEND_EXCLUSIVE;
        }
        node_data_clear(&data);
    }
    if (others) {
        node->raises = false;
        change_write(call, node, change_on_reverted);
    } else {
        change_into(call);
    }
}

static void change_on_raised(struct zk_call *call)
{
    const struct zk_reply *set = call_reply(call, 0), *list = call_reply(call, 1);
    if (set->rc != ZOK || list->rc != ZOK) {
        change_answer(call, set->rc == ZNONODE ? BACKEND_STALE : call_result(call, set->rc));
        return;
    }
    GPtrArray *queue = node_queue(list->children);
    g_clear_pointer(&call->children, g_ptr_array_unref);
    call->children = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < queue->len; i++) {
        char *path = node_child(call->path, queue->pdata[i]);
        g_ptr_array_add(call->children, g_strdup(queue->pdata[i]));
        call_get(call, path);
        g_free(path);
    }
    g_ptr_array_unref(queue);
    call_then(call, change_on_modes);
}

/* One that is to exclude others says so before it looks for them: who comes later sees it, and who came before is
 * seen; of two that want to, each sees that the other holds. */
static void change_convert(struct zk_call *call)
{
    if (change_is_put_off(call)) {
        return;
    }
    const struct remote_ticket *t = remote_ticket_find(&call->z->remote, call->name);
    struct zk_node *node = node_of(call->z, call->name);
    bool stronger = t && node && t->state == REMOTE_HELD && call->op && call->op->claim.mode == BACKEND_EXCLUSIVE &&
                    t->head.mode == BACKEND_SHARED;
    if (!stronger) {
        change_into(call);
        return;
    }
    node->raises = true;
    change_write(call, node, NULL);
    call_children(call, call->path, false);
    call_then(call, change_on_raised);
}

/* --- rename: the new name is taken provisionally; then in one step the old node goes and that one says what it said.
 * Who takes the leases over if this daemon is killed finds either the one or the other. --- */

static void change_is_renamed(struct zk_call *call, struct zk_node *node, const struct zk_node *to)
{
    struct remote_op *op = call->op;
    struct remote_answer answer = {
        .outcome = REMOTE_ANSWERED, .result = BACKEND_OK, .sent = call->sent, .fence = to->fence};
    node_move(node, to);
    watch_node(call->z, node->path, call->name);
    g_hash_table_remove(call->z->nodes, op->replaced);
    call->op = NULL;
    op->answered(op, &answer);
    call_end(call);
}

static void change_rename(struct zk_call *call);

static void change_on_renamed(struct zk_call *call)
{
    struct zk_node *node = node_of(call->z, call->name);
    const struct zk_node *to = call->op ? node_of(call->z, call->op->replaced) : NULL;
    int rc = call_reply(call, 0)->rc;
    if (node) {
        node->leaves = false;
    }
    if (rc == ZOK && node && to) {
        change_is_renamed(call, node, to);
    } else {
        change_answer(call, rc == ZOK || rc == ZNONODE ? BACKEND_STALE : call_result(call, rc));
    }
}

/* Whether an earlier try has done it. */
static void change_on_found(struct zk_call *call)
{
    struct zk_node *node = node_of(call->z, call->name);
    const struct zk_node *to = call->op ? node_of(call->z, call->op->replaced) : NULL;
    struct zk_data data;
    node_decode(call_reply(call, 0)->data, &data);
    bool done = node && to && strcmp(data.token, call->name) == 0;
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
    struct zk_node *node = node_of(call->z, call->name);
    struct zk_node *to = call->op ? node_of(call->z, call->op->replaced) : NULL;
    if (!node || !to) {
        change_settle(call, BACKEND_STALE);
    } else if (call->was_sent) {
        call_get(call, to->path);
        call_then(call, change_on_found);
    } else {
        GBytes *bytes = node_encode(node, call->name);
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
    static zk_step *const steps[] = {
        [REMOTE_ACQUIRE] = acquire_begin,
        [REMOTE_RELEASE] = change_release,
        [REMOTE_RELEASE_RANGE] = change_release_range,
        [REMOTE_RENEW] = change_renew,
        [REMOTE_SET] = change_set,
        [REMOTE_CONVERT] = change_convert,
        [REMOTE_RENAME] = change_rename,
    };
    struct zookeeper *z = (struct zookeeper *)op->r;
    struct zk_call *call = call_new(z, op, steps[op->procedure], change_failed);
    const char *place = t ? t->place->name : op->name;
    call->name = g_strdup(op->token);
    call->after = g_strdup(op->name);
    call->number = op->claim.lock_owner;
    call->path = node_path(z, place);
    call->stubborn = op->procedure == REMOTE_RELEASE || op->procedure == REMOTE_RELEASE_RANGE;
    call->flag = t ? t->place->sequence : op->claim.sequence;
    call->against = op->procedure == REMOTE_RELEASE && *op->why;
    call_start(call, timeout);
    return (uint64_t)(uintptr_t)call;
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
