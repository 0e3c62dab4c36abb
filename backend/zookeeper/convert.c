/* convert: what a node that holds excludes: conversions, bytes that are given back, and undoing a claim.
 *
 * Each is one step, whatever becomes of it: what is noted of a node is what the store has confirmed, and one call at a
 * time writes to it.  Whoever is weaker in the store, even for a moment, may have let others in (zk_node.lax).  So a
 * node that is to exclude others says so before it looks for them: who comes later sees it, and who came before is
 * seen; of two that want to, each sees that the other holds.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

bool convert_is_put_off(struct zk_call *call)
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

/* --- to exclude all others --- */

/* The others that are shared, up to the first that is not, hold too; not those that were made since the node says that
 * it wants to be alone. */
static void convert_on_modes(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    const struct remote_ticket *t = remote_ticket_find(&call->z->remote, call->writes);
    bool others = false, end = false;
    if (!t || !node_of(call->z, call->writes)) {
        change->raised(call, BACKEND_STALE);
        return;
    }
    for (guint i = 0; i < change->queue->len && !end; i++) {
        const struct zk_reply *get = call_reply(call, i);
        struct zk_data data;
        node_decode(get->data, &data);
        if (get->rc == ZOK && get->stat.czxid < change->raised_at &&
            !node_is_kin(call->z, t, change->queue->pdata[i])) {
            others = others || (data.ours && data.mode == BACKEND_SHARED);
            end = !data.ours || data.mode == BACKEND_EXCLUSIVE;
        }
        node_data_clear(&data);
    }
    change->raised(call, others ? BACKEND_BUSY : BACKEND_OK);
}

static void convert_on_raised(struct zk_call *call)
{
    struct zk_change *change = zk_change_of(call);
    const struct zk_reply *set = call_reply(call, 0), *list = call_reply(call, 1);
    if (set->rc != ZOK || list->rc != ZOK) {
        change->raised(call,
                       set->rc == ZNONODE ? BACKEND_STALE : call_result(call, set->rc == ZOK ? list->rc : set->rc));
        return;
    }
    GPtrArray *queue = node_queue(list->children);
    change->raised_at = set->stat.mzxid;
    g_clear_pointer(&change->queue, g_ptr_array_unref);
    change->queue = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < queue->len; i++) {
        char *path = node_child(call->path, queue->pdata[i]);
        g_ptr_array_add(change->queue, g_strdup(queue->pdata[i]));
        call_get(call, path);
        g_free(path);
    }
    g_ptr_array_unref(queue);
    call_then(call, convert_on_modes);
}

static void convert_raise(struct zk_call *call, zk_raised *raised)
{
    struct zk_node *draft = call_draft(call);
    zk_change_of(call)->raised = raised;
    draft->mode = BACKEND_SHARED;
    draft->raises = true;
    call_write(call);
    call_children(call, call->path, false);
    call_then(call, convert_on_raised);
}

/* --- conversions --- */

/* Who waits may hold in its new mode. */
static void convert_on_written(struct zk_call *call)
{
    struct zookeeper *z = call->z;
    char *token = g_strdup(zk_change_of(call)->token);
    enum backend_result result = call_written(call);
    struct zk_node *node = node_of(z, token);
    if (node) {
        node->again = true; /* should it be looking just now */
    }
    call_answer(call, result);
    remote_told(&z->remote, token, REMOTE_MAY_BE_FREE, BACKEND_LOST);
    g_free(token);
}

static void convert_into(struct zk_call *call)
{
    if (!node_of(call->z, zk_change_of(call)->token) || !call->op) {
        call_settle(call, BACKEND_STALE);
        return;
    }
    const struct backend_claim *claim = &call->op->claim;
    struct zk_node *draft = call_draft(call);
    draft->kind = (uint8_t)claim->kind;
    draft->mode = (uint8_t)claim->mode;
    draft->ttl = claim->ttl;
    draft->automatic = false;
    draft->handle = claim->handle;
    draft->lock_owner = claim->lock_owner;
    node_change(draft, &call->op->change);
    call_write(call);
    call_mark(call, draft);
    call_then(call, convert_on_written);
}

static void convert_on_refused(struct zk_call *call)
{
    enum backend_result result = call_written(call);
    call_answer(call, result == BACKEND_OK ? BACKEND_BUSY : result);
}

static void convert_if_alone(struct zk_call *call, enum backend_result result)
{
    if (result == BACKEND_OK) {
        convert_into(call);
    } else if (result == BACKEND_BUSY) {
        call_draft(call)->mode = BACKEND_SHARED;
        call_write(call);
        call_then(call, convert_on_refused);
    } else {
        call_answer(call, result);
    }
}

void convert_begin(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    if (convert_is_put_off(call) || !call_may_write(call, change->token)) {
        return;
    }
    const struct remote_ticket *t = remote_ticket_find(&call->z->remote, change->token);
    const struct zk_node *node = node_of(call->z, change->token);
    bool stronger = t && node && t->state == REMOTE_HELD && call->op && call->op->claim.mode == BACKEND_EXCLUSIVE;
    if (stronger && node->lax) {
        convert_raise(call, convert_if_alone);
    } else {
        convert_into(call);
    }
}

/* --- bytes that are given back: of what is still held the strongest mode counts --- */

/* What its lock owner holds there, or held until just now. */
static void convert_find_owned(struct zk_call *call, struct remote_ticket **ret_ticket)
{
    struct zk_change *change = zk_change_of(call);
    struct remote *r = &call->z->remote;
    struct remote_place *place = g_hash_table_lookup(r->places, change->lock);
    struct remote_ticket *t = place ? LIST_FIRST(&place->tickets) : NULL;
    GHashTableIter each;
    gpointer token;
    struct zk_node *node;
    while (t && !(t->lock_owner == change->lock_owner && t->state == REMOTE_HELD)) {
        t = LIST_NEXT(t, link);
    }
    *ret_ticket = t;
    g_free(change->token);
    change->token = t ? g_strdup(t->token) : NULL;
    g_hash_table_iter_init(&each, call->z->nodes);
    while (!t && !change->token && g_hash_table_iter_next(&each, &token, (gpointer *)&node)) {
        bool its = node->lock_owner == change->lock_owner && strcmp(node->place, change->lock) == 0;
        change->token = its && !remote_ticket_find(r, token) ? g_strdup(token) : NULL;
    }
}

static void convert_on_less(struct zk_call *call)
{
    call_answer(call, call_written(call));
}

static void convert_on_gone(struct zk_call *call)
{
    g_hash_table_remove(call->z->nodes, zk_change_of(call)->token);
    call_answer(call, BACKEND_OK);
}

void convert_release_range(struct zk_call *call)
{
    const struct zk_change *change = zk_change_of(call);
    struct remote_ticket *t;
    convert_find_owned(call, &t);
    const struct zk_node *node = change->token ? node_of(call->z, change->token) : NULL;
    if (node && t && !call_may_write(call, change->token)) {
        return;
    }
    if (!node || (t && node->mode == t->head.mode && !node->unsure)) {
        call_settle(call, BACKEND_OK);
    } else if (t && t->head.mode == BACKEND_EXCLUSIVE && node->lax) {
        call_settle(call, BACKEND_OK); /* a claim that made it weaker is being undone, or ended */
    } else if (t) {
        call_draft(call)->mode = t->head.mode;
        call_write(call);
        call_then(call, convert_on_less);
    } else {
        call_leave(call, node, false);
        call_then(call, convert_on_gone);
    }
}

/* --- undoing --- */

/* It is not held any more. */
static void convert_on_lost(struct zk_call *call)
{
    g_hash_table_remove(call->z->nodes, call->writes);
    call->result = BACKEND_STALE;
    zk_change_of(call)->then(call);
}

static void convert_on_undone(struct zk_call *call)
{
    enum backend_result result = call_written(call);
    if (result == BACKEND_OK) {
        zk_change_of(call)->then(call);
    } else if (result == BACKEND_STALE) {
        convert_on_lost(call);
    } else {
        call_answer(call, result);
    }
}

static void convert_back(struct zk_call *call, enum backend_mode mode)
{
    call_draft(call)->mode = (uint8_t)mode;
    call_write(call);
    call_then(call, convert_on_undone);
}

static void convert_back_if_alone(struct zk_call *call, enum backend_result result)
{
    if (result == BACKEND_OK || result == BACKEND_BUSY) {
        call->result = result;
        convert_back(call, result == BACKEND_OK ? BACKEND_EXCLUSIVE : BACKEND_SHARED);
    } else if (result == BACKEND_STALE) {
        convert_on_lost(call);
    } else {
        call_answer(call, result);
    }
}

bool convert_undoes(struct zk_call *call, zk_step *next)
{
    struct zk_change *change = zk_change_of(call);
    struct remote_place *place = change->lock_owner ? g_hash_table_lookup(call->z->remote.places, change->lock) : NULL;
    const struct remote_ticket *t = place ? LIST_FIRST(&place->tickets) : NULL;
    while (t &&
           !(t->lock_owner == change->lock_owner && t->state == REMOTE_HELD && strcmp(t->token, change->token) != 0)) {
        t = LIST_NEXT(t, link);
    }
    const struct zk_node *node = t ? node_of(call->z, t->token) : NULL;
    if (!node) {
        return false;
    }
    if (!call_may_write(call, t->token)) {
        return true;
    }
    bool weaker = t->head.mode == BACKEND_EXCLUSIVE && node->lax;
    if (!weaker && !node->unsure && node->mode == t->head.mode) {
        return false;
    }
    change->then = next;
    if (weaker) {
        convert_raise(call, convert_back_if_alone);
    } else {
        convert_back(call, (enum backend_mode)t->head.mode);
    }
    return true;
}
