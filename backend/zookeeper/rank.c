/* rank: grants, queues or refuses a ticket by the nodes before its own.
 *
 * The first exclusive node behind the one with which a ticket's user already holds the lock, and all nodes behind that,
 * wait for that user, so they do not block the ticket.  For a lock owner, what it holds excludes all others before the
 * claim is granted, because a waiter could leave in that moment and let others in.  The user of a flock converts what
 * it holds after the grant, and does not rely on the claim.
 *
 * A waiting ticket watches the last node before it that conflicts, and reads the queue again when that changes, also
 * if it changed between its reading and the watch.  A ticket that must not wait is removed before its request is
 * refused; the same step reads the holder, so that the ticket blocks others only briefly.  If another client has
 * removed a ticket's node, it starts again.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

struct remote_ticket *rank_ticket(const struct zk_batch *batch)
{
    return remote_ticket_find(&batch->z->remote, batch->request->id);
}

static void rank_finish(struct zk_batch *batch, struct remote_answer *answer)
{
    struct remote_request *request = batch->request;
    batch->request = NULL;
    answer->sent = clock_now(); /* only this mount counts its term */
    answer->repeated = batch->was_sent;
    request->on_answer(request, answer);
    batch_end(batch);
}

void rank_finish_with(struct zk_batch *batch, enum backend_result result)
{
    struct remote_answer answer = {.result = result};
    answer.outcome = result == BACKEND_UNREACHABLE ? REMOTE_REFUSED : REMOTE_ANSWERED;
    rank_finish(batch, &answer);
}

static const char *rank_blocker_leaf(const struct zk_batch *batch, guint index)
{
    return zk_update_of(batch)->before->pdata[index];
}

/* Another client has removed its node. */
static void rank_restart(struct zk_batch *batch)
{
    g_hash_table_remove(batch->z->nodes, batch->request->id);
    batch->flow->begin(batch);
}

/* --- refused --- */

static void rank_finish_busy(struct zk_batch *batch, const struct zk_reply *get)
{
    struct backend_info holder = {.type = BACKEND_LOCK, .holders = 1};
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY, .info = &holder};
    struct zk_data data;
    g_hash_table_remove(batch->z->nodes, batch->request->id);
    node_decode(get->data, &data);
    query_describe(batch->z, &data, &get->stat, &holder);
    rank_finish(batch, &answer);
    node_data_clear(&data);
}

static void rank_on_refused(struct zk_batch *batch)
{
    const struct zk_reply *get = batch_reply(batch, 0);
    if (get->rc == ZNONODE) { /* the holder has ended meanwhile */
        g_hash_table_remove(batch->z->nodes, batch->request->id);
        zk_update_of(batch)->keeps_ticket = true;
        batch->flow->begin(batch);
    } else {
        rank_finish_busy(batch, get);
    }
}

static void rank_on_removed(struct zk_batch *batch)
{
    rank_finish_busy(batch, batch->before->pdata[0]);
}

static void rank_on_holder(struct zk_batch *batch)
{
    if (batch_reply(batch, 0)->rc == ZNONODE) {
        rank_read_queue(batch); /* its own node is there, with fewer before it */
    } else {
        batch_delete(batch, node_find(batch->z, batch->request->id)->path, -1);
        batch_then(batch, rank_on_removed);
    }
}

/* Three tickets that must not wait could retry for ever: each finds another's node, removes its own, and then finds
 * that the other has removed its node as well.  So from the second time on a ticket keeps its node while it reads. */
static void rank_refuse(struct zk_batch *batch, const struct zk_node *node)
{
    const struct zk_update *change = zk_update_of(batch);
    char *holder = node_child(batch->path, rank_blocker_leaf(batch, 0));
    batch_get(batch, holder);
    if (!change->keeps_ticket) {
        batch_delete(batch, node->path, -1);
    }
    batch_then(batch, change->keeps_ticket ? rank_on_holder : rank_on_refused);
    g_free(holder);
}

/* The lock is a ticket of a queue, which is always held. */
void rank_refuse_for_ticket(struct zk_batch *batch)
{
    batch_get(batch, batch->path);
    batch_then(batch, rank_on_refused);
}

/* --- queued --- */

static void rank_wait(struct zk_batch *batch, const struct remote_ticket *t, const char *blocker);

static void rank_on_watched(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    const struct remote_ticket *t = rank_ticket(batch);
    struct zk_node *node = node_find(batch->z, t->id);
    const struct zk_reply *watched = batch_reply(batch, 0);
    bool changed = change->blocker_written && watched->name && watched->rc == ZOK &&
                   watched->stat.mzxid != change->blocker_written; /* between its reading and the watch */
    bool freed = watched->rc == ZNONODE || changed;
    if (watched->rc == ZNOAUTH &&
        watched->name) { /* its client lets nobody read it, so the server does not report its end */
        rank_wait(batch, t, NULL);
        return;
    }
    if (watched->children) {
        GPtrArray *queue = node_queue(watched->children);
        guint rank = 0;
        while (rank < queue->len && strcmp(queue->pdata[rank], node->leaf) != 0) {
            rank++;
        }
        freed = rank < change->width;
        g_ptr_array_unref(queue);
    }
    if (t->lock->sequence) {
        struct zk_data data;
        node_decode(batch_reply(batch, 1)->data, &data);
        freed = freed || data.attributes.width != change->width; /* it changed before the watch */
        node_data_clear(&data);
    }
    if (freed || node->blocker_changed) {
        rank_read_queue(batch);
        return;
    }
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                   .result = BACKEND_QUEUED,
                                   .fence = node->fence,
                                   .leaf = t->lock->sequence ? node->leaf : "",
                                   .rank = change->before->len,
                                   .wait = -1};
    GPtrArray *holders = g_ptr_array_new_with_free_func(g_free);
    struct zookeeper *z = batch->z;
    struct remote_ticket *other;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        if (other->state == REMOTE_HELD) {
            g_ptr_array_add(holders, g_strdup(other->id));
        }
    }
    rank_finish(batch, &answer);
    for (guint i = 0; i < holders->len; i++) {
        remote_on_event(&z->remote, holders->pdata[i], REMOTE_WANTED, BACKEND_LOST);
    }
    g_ptr_array_unref(holders);
}

/* Waits for a change of that node; NULL: of any node of the queue. */
static void rank_wait(struct zk_batch *batch, const struct remote_ticket *t, const char *blocker)
{
    if (!blocker || (t->lock->sequence && zk_update_of(batch)->width > 1)) {
        node_add_watch(batch->z, batch->path, t->id);
        batch_children(batch, batch->path, true);
    } else {
        char *path = node_child(batch->path, blocker);
        batch_watch(batch, path, t->id);
        g_free(path);
    }
    if (t->lock->sequence) { /* its width may change */
        batch_watch(batch, batch->path, "");
    }
    batch_then(batch, rank_on_watched);
}

static void rank_wait_or_refuse(struct zk_batch *batch, const char *blocker)
{
    const struct remote_ticket *t = rank_ticket(batch);
    if (t->wait) {
        rank_wait(batch, t, blocker);
    } else {
        rank_refuse(batch, node_find(batch->z, t->id));
    }
}

/* --- granted --- */

static void rank_finish_granted(struct zk_batch *batch, const char *id)
{
    struct zookeeper *z = batch->z;
    const struct remote_ticket *t = rank_ticket(batch);
    const struct zk_node *node = node_find(z, id);
    watch_node(z, node->path, id);
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                   .result = BACKEND_OK,
                                   .fence = node->fence,
                                   .id = id,
                                   .leaf = t->lock->sequence ? node->leaf : ""};
    rank_finish(batch, &answer);
}

static void rank_on_joined(struct zk_batch *batch)
{
    const struct remote_ticket *was = remote_ticket_find_joined(rank_ticket(batch));
    enum backend_result result = batch_confirm_write(batch);
    bool there = was && node_find(batch->z, was->id) && strcmp(was->id, batch->writes) == 0;
    g_hash_table_remove(batch->z->nodes, batch->request->id);
    if (result == BACKEND_OK && there) {
        rank_finish_granted(batch, batch->writes);
    } else if (result == BACKEND_OK || result == BACKEND_STALE) {
        batch->flow->begin(batch);
    } else {
        rank_finish_with(batch, result);
    }
}

enum backend_mode rank_joined_mode(const struct remote_ticket *t, const struct remote_ticket *was)
{
    GArray *segments = remote_ticket_join_segments(t, was);
    enum backend_mode mode = backend_segments_mode(segments);
    g_array_unref(segments);
    return mode;
}

void rank_join(struct zk_batch *batch, const struct remote_ticket *was, const struct zk_node *spare)
{
    if (!batch_begin_write(batch, was->id)) {
        return;
    }
    struct zk_node *draft = batch_begin_draft(batch);
    draft->mode = (uint8_t)rank_joined_mode(rank_ticket(batch), was);
    batch_send_draft(batch);
    if (spare) {
        batch_delete(batch, spare->path, -1);
    }
    batch_then(batch, rank_on_joined);
}

static void rank_on_marked(struct zk_batch *batch)
{
    char *id = g_strdup(batch->request->id);
    rank_finish_granted(batch, id);
    g_free(id);
}

/* The node with which the ticket's lock owner, or its handle by flock, holds the lock already; or NULL. */
static const struct zk_node *rank_held_node(const struct zk_batch *batch)
{
    const struct remote_ticket *t = rank_ticket(batch), *held = remote_ticket_find_joined(t), *other;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        bool flocks = t->head.kind == BACKEND_FLOCK && other->head.kind == BACKEND_FLOCK && other != t;
        if (flocks && other->state == REMOTE_HELD &&
            backend_identity_matches(BACKEND_IDENTITY(other), BACKEND_IDENTITY(t))) {
            held = other;
        }
    }
    return held && !t->lock->sequence ? node_find(batch->z, held->id) : NULL;
}

static void rank_on_lowered(struct zk_batch *batch)
{
    enum backend_result result = batch_confirm_write(batch);
    if (result == BACKEND_OK) {
        rank_read_queue(batch);
    } else if (result == BACKEND_STALE) {
        batch->flow->begin(batch);
    } else {
        rank_finish_with(batch, result);
    }
}

/* The node that was to exclude all others is shared again. */
static void rank_lower(struct zk_batch *batch)
{
    batch_begin_draft(batch)->mode = BACKEND_SHARED;
    batch_send_draft(batch);
    batch_then(batch, rank_on_lowered);
}

static void rank_join_if_exclusive(struct zk_batch *batch, enum backend_result result)
{
    const struct remote_ticket *t = rank_ticket(batch), *was = remote_ticket_find_joined(t);
    if (result == BACKEND_OK && was && strcmp(was->id, batch->writes) == 0) {
        rank_join(batch, was, node_find(batch->z, t->id));
    } else if (result == BACKEND_OK || result == BACKEND_BUSY) {
        rank_lower(batch);
    } else if (result == BACKEND_STALE) {
        batch->flow->begin(batch);
    } else {
        rank_finish_with(batch, result);
    }
}

/* Before others that wait. */
static void rank_grant_first(struct zk_batch *batch)
{
    const struct remote_ticket *was = remote_ticket_find_joined(rank_ticket(batch));
    if (!was) {
        rank_on_marked(batch);
    } else if (batch_begin_write(batch, was->id)) {
        convert_raise(batch, rank_join_if_exclusive);
    }
}

static void rank_grant(struct zk_batch *batch)
{
    const struct remote_ticket *t = rank_ticket(batch), *was = remote_ticket_find_joined(t);
    if (was && node_find(batch->z, was->id)) {
        rank_join(batch, was, node_find(batch->z, t->id));
        return;
    }
    if (!batch_begin_write(batch, t->id)) {
        return; /* until its conversion is done: it may not hold in its new mode */
    }
    struct zk_node *node = node_find(batch->z, t->id);
    if (node->delay > 0 && node->kind != BACKEND_PROVISIONAL) {
        batch_mark_held(batch, node);
        batch_then(batch, rank_on_marked);
    } else {
        rank_on_marked(batch);
    }
}

/* --- delayed: nobody holds the lock, but its last holder was lost --- */

static void rank_on_delayed(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    struct backend_info holder = {.type = BACKEND_LOCK,
                                  .kind = BACKEND_LEASE,
                                  .acquired = change->delayed_since,
                                  .deadline = change->delayed_until,
                                  .end = BACKEND_RANGE_MAX};
    struct remote_answer answer = {.outcome = REMOTE_ANSWERED, .result = BACKEND_BUSY, .info = &holder};
    g_hash_table_remove(batch->z->nodes, batch->request->id);
    rank_finish(batch, &answer);
}

static void rank_delay(struct zk_batch *batch, const struct remote_ticket *t, struct zk_node *node, clock_ms since,
                       clock_ms until)
{
    struct zk_update *change = zk_update_of(batch);
    if (t->wait) {
        struct remote_answer answer = {.outcome = REMOTE_ANSWERED,
                                       .result = BACKEND_QUEUED,
                                       .fence = node->fence,
                                       .leaf = "",
                                       .wait = MAX(until - clock_now(), 0)};
        node->delayed = until;
        rank_finish(batch, &answer);
    } else {
        change->delayed_until = until;
        change->delayed_since = since;
        batch_delete(batch, node->path, -1);
        batch_then(batch, rank_on_delayed);
    }
}

/* --- reading the queue --- */

/* Does one that waits wait for the user of the ticket, which would wait for it?  Each holds the lock, too: `holders` of
 * the nodes before the ticket's own may hold, and the others wait for the user. */
static bool rank_has_rival(const struct zk_batch *batch, guint holders)
{
    bool found = false;
    for (guint i = holders, before = zk_update_of(batch)->before->len; i < before && !found; i++) {
        const struct zk_reply *get = batch_reply(batch, i);
        struct zk_data waits, data;
        node_decode(get->data, &waits);
        for (guint k = 0; k < holders && waits.ours && !found; k++) {
            const struct zk_reply *held = batch_reply(batch, k);
            node_decode(held->data, &data);
            found = data.ours && held->stat.ephemeralOwner == get->stat.ephemeralOwner &&
                    backend_identity_matches(BACKEND_IDENTITY(&data), BACKEND_IDENTITY(&waits));
            node_data_clear(&data);
        }
        node_data_clear(&waits);
    }
    return found;
}

static void rank_blocked(struct zk_batch *batch, const char *blocker, bool rival)
{
    const struct remote_ticket *t = rank_ticket(batch), *was = remote_ticket_find_joined(t);
    const struct zk_node *held = was ? node_find(batch->z, was->id) : NULL;
    if (held && held->unconfirmed) { /* by a try of this claim that had no answer */
        if (batch_begin_write(batch, was->id)) {
            rank_lower(batch);
        }
    } else if (rival && t->wait && t->acquire_done) {
        batch->result = BACKEND_DEADLOCK;
        batch_delete(batch, node_find(batch->z, t->id)->path, -1);
        batch_then(batch, rank_on_node_removed);
    } else {
        rank_wait_or_refuse(batch, blocker);
    }
}

/* Only exclusive tickets before a shared one conflict with it. */
static void rank_on_modes(struct zk_batch *batch)
{
    const char *blocker = NULL;
    const struct zk_node *held = rank_held_node(batch);
    bool exclusive = node_find(batch->z, batch->request->id)->mode == BACKEND_EXCLUSIVE;
    bool gone = false;
    guint holders = 0, before = zk_update_of(batch)->before->len;
    if (exclusive && !held) { /* it has been converted meanwhile */
        rank_read_queue(batch);
        return;
    }
    for (bool end = false; holders < before && !end; holders += !end) {
        const struct zk_reply *get = batch_reply(batch, holders);
        struct zk_data data;
        int32_t number = 0;
        node_decode(get->data, &data);
        gone = gone || get->rc == ZNONODE;
        node_parse_number(rank_blocker_leaf(batch, holders), &number);
        bool excludes = !data.ours || (data.mode == BACKEND_EXCLUSIVE && !data.upgrading);
        end = held && number > held->sequence && get->rc != ZNONODE && (excludes || held->mode == BACKEND_EXCLUSIVE);
        if (!end && get->rc != ZNONODE && (exclusive || excludes || data.upgrading)) {
            blocker = rank_blocker_leaf(batch, holders);
            zk_update_of(batch)->blocker_written = get->stat.mzxid;
        }
        node_data_clear(&data);
    }
    if (blocker) {
        rank_blocked(batch, blocker, held && rank_has_rival(batch, holders));
    } else if (gone && !exclusive) { /* a claim may have joined a node that was read as shared before */
        rank_read_queue(batch);
    } else if (holders < before) {
        rank_grant_first(batch);
    } else {
        rank_grant(batch);
    }
}

void rank_decide(struct zk_batch *batch, const struct zk_reply *list, const struct zk_reply *get,
                 const struct zk_reply *directory)
{
    struct zk_update *change = zk_update_of(batch);
    const struct remote_ticket *t = rank_ticket(batch);
    struct zk_node *node = node_find(batch->z, t->id);
    node->delay = t->lock->sequence ? 0 : node_read_delay(directory->data);
    clock_ms until = t->lock->sequence ? 0 : node_delay(batch->z, get->data, &get->stat, list->children);
    GPtrArray *queue = node_queue(list->children);
    bool there = false;
    change->blocker_written = 0;
    g_clear_pointer(&change->before, g_ptr_array_unref);
    change->before = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; i < queue->len && !there; i++) {
        there = strcmp(queue->pdata[i], node->leaf) == 0;
        if (!there && !node_is_compatible(batch->z, t, queue->pdata[i])) {
            g_ptr_array_add(change->before, g_strdup(queue->pdata[i]));
        }
    }
    g_ptr_array_unref(queue);
    guint before = change->before->len;
    if (!there && t->lock->sequence && !t->acquire_done) { /* its place has been broken while it waited */
        g_hash_table_remove(batch->z->nodes, t->id);
        rank_finish_with(batch, BACKEND_STALE);
    } else if (!there) { /* another client has removed it */
        rank_restart(batch);
    } else if (until > 0 && (before == 0 || node->mode == BACKEND_SHARED)) {
        rank_delay(batch, t, node, get->stat.mtime - batch->z->server_time, until);
    } else if (before == 0 || (t->lock->sequence && before < change->width)) {
        rank_grant(batch);
    } else if (node->mode == BACKEND_EXCLUSIVE && !rank_held_node(batch)) {
        rank_wait_or_refuse(batch, rank_blocker_leaf(batch, before - 1));
    } else {
        for (guint i = 0; i < before; i++) {
            char *path = node_child(batch->path, rank_blocker_leaf(batch, i));
            batch_get(batch, path);
            g_free(path);
        }
        batch_then(batch, rank_on_modes);
    }
}

void rank_on_node_removed(struct zk_batch *batch)
{
    g_hash_table_remove(batch->z->nodes, batch->request->id);
    rank_finish_with(batch, batch->result);
}

bool rank_remove_misplaced(struct zk_batch *batch, const struct zk_reply *get)
{
    const struct remote_ticket *t = rank_ticket(batch);
    struct zk_data data;
    node_decode(get->data, &data);
    bool directory = data.directory || !*t->lock->name;
    zk_update_of(batch)->width = data.attributes.width;
    node_data_clear(&data);
    if (directory == t->lock->sequence) {
        return false;
    }
    batch->result = directory ? BACKEND_IS_DIRECTORY : BACKEND_NOT_DIRECTORY;
    batch_delete(batch, node_find(batch->z, t->id)->path, -1);
    batch_then(batch, rank_on_node_removed);
    return true;
}

static void rank_on_queue(struct zk_batch *batch)
{
    const struct zk_reply *list = batch_reply(batch, 0), *get = batch_reply(batch, 1),
                          *directory = batch_reply(batch, 2);
    if (list->rc != ZOK) {
        rank_restart(batch);
    } else if (!rank_remove_misplaced(batch, get)) {
        rank_decide(batch, list, get, directory);
    }
}

void rank_watch_directory(struct zk_batch *batch)
{
    const char *leaf;
    char *parent = remote_parent(rank_ticket(batch)->lock->name, &leaf), *path = node_path(batch->z, parent);
    batch_watch(batch, path, "");
    g_free(path);
    g_free(parent);
}

void rank_read_queue(struct zk_batch *batch)
{
    struct zk_node *node = node_find(batch->z, batch->request->id);
    node->blocker_changed = false;
    node->delayed = 0;
    batch_children(batch, batch->path, false);
    batch_get(batch, batch->path);
    rank_watch_directory(batch);
    batch_then(batch, rank_on_queue);
}
