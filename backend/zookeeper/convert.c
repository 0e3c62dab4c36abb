/* convert: changes of the mode of a node that holds: conversions, the release of byte ranges, and undoing a claim.
 *
 * A zk_node has only what the store has confirmed, and one flow at a time writes to it.  So each change takes effect in
 * one step, or not at all.
 *
 * A node that was shared in the store, even for a moment, may share the lock with others (may_be_shared).  So a node
 * that wants to exclude others first writes that, and then looks for them.  Later tickets see what it wrote; it sees
 * earlier ones; and if two want to exclude all others, each sees that the other holds.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

bool convert_is_deferred(struct zk_batch *batch)
{
    const struct zk_batch *other;
    TAILQ_FOREACH(other, &batch->z->batches, link) {
        if (other->revokes && strcmp(other->path, batch->path) == 0) {
            batch->parked = true;
            return true;
        }
    }
    return false;
}

/* --- excluding all others --- */

/* The other shared nodes up to the first exclusive one hold too, except those that were made after this one had written
 * that it wants to be exclusive. */
static void convert_on_modes(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    const struct remote_ticket *t = remote_ticket_find(&batch->z->remote, batch->writes);
    bool others = false, end = false;
    if (!t || !node_find(batch->z, batch->writes)) {
        change->raised(batch, BACKEND_STALE);
        return;
    }
    for (guint i = 0; i < change->queue->len && !end; i++) {
        const struct zk_reply *get = batch_reply(batch, i);
        struct zk_data data;
        node_decode(get->data, &data);
        if (get->rc == ZOK && get->stat.czxid < change->raised_at) {
            bool shared = data.ours && data.mode == BACKEND_SHARED;
            others = others || (shared && !node_is_compatible(batch->z, t, change->queue->pdata[i]));
            end = !shared; /* also its user's own claim, which waits or is granted */
        }
        node_data_clear(&data);
    }
    change->raised(batch, others ? BACKEND_BUSY : BACKEND_OK);
}

static void convert_on_raised(struct zk_batch *batch)
{
    struct zk_update *change = zk_update_of(batch);
    const struct zk_reply *set = batch_reply(batch, 0), *list = batch_reply(batch, 1);
    if (set->rc != ZOK || list->rc != ZOK) {
        change->raised(batch,
                       set->rc == ZNONODE ? BACKEND_STALE : batch_result(batch, set->rc == ZOK ? list->rc : set->rc));
        return;
    }
    GPtrArray *queue = node_queue(list->children);
    change->raised_at = set->stat.mzxid;
    g_clear_pointer(&change->queue, g_ptr_array_unref);
    change->queue = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < queue->len; i++) {
        char *path = node_child(batch->path, queue->pdata[i]);
        g_ptr_array_add(change->queue, g_strdup(queue->pdata[i]));
        batch_get(batch, path);
        g_free(path);
    }
    g_ptr_array_unref(queue);
    batch_then(batch, convert_on_modes);
}

void convert_raise(struct zk_batch *batch, zk_raised *raised)
{
    struct zk_node *draft = batch_begin_draft(batch);
    zk_update_of(batch)->raised = raised;
    draft->mode = BACKEND_SHARED;
    draft->upgrading = true;
    batch_send_draft(batch);
    batch_children(batch, batch->path, false);
    batch_then(batch, convert_on_raised);
}

/* --- conversions --- */

/* A ticket that waits may hold in its new mode. */
static void convert_on_written(struct zk_batch *batch)
{
    struct zookeeper *z = batch->z;
    char *id = g_strdup(zk_update_of(batch)->id);
    enum backend_result result = batch_confirm_write(batch);
    struct zk_node *node = node_find(z, id);
    if (node) {
        node->blocker_changed = true; /* if its queue is being read just now */
    }
    batch_finish(batch, result);
    remote_on_event(&z->remote, id, REMOTE_MAY_BE_FREE, BACKEND_LOST);
    g_free(id);
}

static void convert_into(struct zk_batch *batch)
{
    if (!node_find(batch->z, zk_update_of(batch)->id) || !batch->request) {
        batch_finish_soon(batch, BACKEND_STALE);
        return;
    }
    const struct backend_claim *claim = &batch->request->update.claim;
    struct zk_node *draft = batch_begin_draft(batch);
    draft->kind = (uint8_t)claim->kind;
    draft->mode = (uint8_t)claim->mode;
    draft->ttl = claim->ttl;
    draft->automatic = false;
    draft->handle = claim->handle;
    draft->lock_owner = claim->lock_owner;
    node_change(draft, &batch->request->update.change);
    batch_send_draft(batch);
    batch_mark_held(batch, draft);
    batch_then(batch, convert_on_written);
}

static void convert_on_refused(struct zk_batch *batch)
{
    enum backend_result result = batch_confirm_write(batch);
    batch_finish(batch, result == BACKEND_OK ? BACKEND_BUSY : result);
}

static void convert_if_exclusive(struct zk_batch *batch, enum backend_result result)
{
    if (result == BACKEND_OK) {
        convert_into(batch);
    } else if (result == BACKEND_BUSY) {
        batch_begin_draft(batch)->mode = BACKEND_SHARED;
        batch_send_draft(batch);
        batch_then(batch, convert_on_refused);
    } else {
        batch_finish(batch, result);
    }
}

void convert_begin(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    if (convert_is_deferred(batch) || !batch_begin_write(batch, change->id)) {
        return;
    }
    const struct remote_ticket *t = remote_ticket_find(&batch->z->remote, change->id);
    const struct zk_node *node = node_find(batch->z, change->id);
    bool stronger = t && node && t->state == REMOTE_HELD && batch->request &&
                    batch->request->update.claim.mode == BACKEND_EXCLUSIVE;
    if (stronger && node->may_be_shared) {
        convert_raise(batch, convert_if_exclusive);
    } else {
        convert_into(batch);
    }
}

/* --- release of a range: the strongest mode of the ranges that are left counts --- */

/* Finds the ticket that the lock owner holds there, or the node of one that it held until just now. */
static void convert_find_owned(struct zk_batch *batch, struct remote_ticket **ret_ticket)
{
    struct zk_update *change = zk_update_of(batch);
    struct remote *r = &batch->z->remote;
    struct remote_lock *lock = g_hash_table_lookup(r->locks, change->lock);
    struct remote_ticket *t = lock ? LIST_FIRST(&lock->tickets) : NULL;
    GHashTableIter each;
    gpointer id;
    struct zk_node *node;
    while (t && !(t->lock_owner == change->lock_owner && t->state == REMOTE_HELD)) {
        t = LIST_NEXT(t, link);
    }
    *ret_ticket = t;
    g_free(change->id);
    change->id = t ? g_strdup(t->id) : NULL;
    g_hash_table_iter_init(&each, batch->z->nodes);
    while (!t && !change->id && g_hash_table_iter_next(&each, &id, (gpointer *)&node)) {
        bool its = node->lock_owner == change->lock_owner && strcmp(node->lock, change->lock) == 0;
        change->id = its && !remote_ticket_find(r, id) ? g_strdup(id) : NULL;
    }
}

static void convert_on_weakened(struct zk_batch *batch)
{
    batch_finish(batch, batch_confirm_write(batch));
}

static void convert_on_removed(struct zk_batch *batch)
{
    g_hash_table_remove(batch->z->nodes, zk_update_of(batch)->id);
    batch_finish(batch, BACKEND_OK);
}

void convert_release_range(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    struct remote_ticket *t;
    convert_find_owned(batch, &t);
    const struct zk_node *node = change->id ? node_find(batch->z, change->id) : NULL;
    if (node && t && !batch_begin_write(batch, change->id)) {
        return;
    }
    if (!node || (t && node->mode == t->head.mode && !node->unconfirmed)) {
        batch_finish_soon(batch, BACKEND_OK);
    } else if (t && t->head.mode == BACKEND_EXCLUSIVE && node->may_be_shared) {
        batch_finish_soon(batch, BACKEND_OK); /* the claim that weakened it is being undone, or ended */
    } else if (t) {
        batch_begin_draft(batch)->mode = t->head.mode;
        batch_send_draft(batch);
        batch_then(batch, convert_on_weakened);
    } else {
        batch_remove_node(batch, node, false);
        batch_then(batch, convert_on_removed);
    }
}

/* --- undoing --- */

/* The lock is not held any more. */
static void convert_on_lost(struct zk_batch *batch)
{
    g_hash_table_remove(batch->z->nodes, batch->writes);
    batch->result = BACKEND_STALE;
    zk_update_of(batch)->then(batch);
}

static void convert_on_undone(struct zk_batch *batch)
{
    enum backend_result result = batch_confirm_write(batch);
    if (result == BACKEND_OK) {
        zk_update_of(batch)->then(batch);
    } else if (result == BACKEND_STALE) {
        convert_on_lost(batch);
    } else {
        batch_finish(batch, result);
    }
}

static void convert_restore_mode(struct zk_batch *batch, enum backend_mode mode)
{
    batch_begin_draft(batch)->mode = (uint8_t)mode;
    batch_send_draft(batch);
    batch_then(batch, convert_on_undone);
}

static void convert_back_if_exclusive(struct zk_batch *batch, enum backend_result result)
{
    if (result == BACKEND_OK || result == BACKEND_BUSY) {
        batch->result = result;
        convert_restore_mode(batch, result == BACKEND_OK ? BACKEND_EXCLUSIVE : BACKEND_SHARED);
    } else if (result == BACKEND_STALE) {
        convert_on_lost(batch);
    } else {
        batch_finish(batch, result);
    }
}

bool convert_undo(struct zk_batch *batch, zk_step *next)
{
    struct zk_update *change = zk_update_of(batch);
    struct remote_lock *lock = change->lock_owner ? g_hash_table_lookup(batch->z->remote.locks, change->lock) : NULL;
    const struct remote_ticket *t = lock ? LIST_FIRST(&lock->tickets) : NULL;
    while (t && !(t->lock_owner == change->lock_owner && t->state == REMOTE_HELD && strcmp(t->id, change->id) != 0)) {
        t = LIST_NEXT(t, link);
    }
    const struct zk_node *node = t ? node_find(batch->z, t->id) : NULL;
    if (!node) {
        return false;
    }
    if (!batch_begin_write(batch, t->id)) {
        return true;
    }
    bool weaker = t->head.mode == BACKEND_EXCLUSIVE && node->may_be_shared;
    if (!weaker && !node->unconfirmed && node->mode == t->head.mode) {
        return false;
    }
    change->then = next;
    if (weaker) {
        convert_raise(batch, convert_back_if_exclusive);
    } else {
        convert_restore_mode(batch, (enum backend_mode)t->head.mode);
    }
    return true;
}
