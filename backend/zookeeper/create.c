/* create: takes a lock by the recipe of Curator's mutex: creates the ticket's node.
 *
 * The server numbers the nodes of a queue in order.  A session that has made a node sees all nodes made before it, and
 * no further node can get a position before its own; so rank.c decides by the nodes before it.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

/* --- its node --- */

static void create_on_created(struct zk_batch *batch);

/* The lock had no node: it was made with the ticket's in it, if its directory exists. */
static void create_on_parent(struct zk_batch *batch)
{
    const struct zk_reply *get = batch_reply(batch, 0), *made = batch_reply(batch, 1), *create = batch_reply(batch, 2);
    const struct remote_ticket *t = rank_ticket(batch);
    bool in_root = !strchr(t->lock->name, '/');
    struct zk_data data;
    node_decode(get->data, &data);
    bool well = in_root || data.directory;
    node_data_clear(&data);
    if (well && (made->rc == ZOK || made->rc == ZNODEEXISTS)) {
        g_ptr_array_remove_range(batch->replies, 0, 2);
        create_on_created(batch);
    } else if (well) {
        rank_finish_with(batch, batch_result(batch, made->rc));
    } else {
        batch->result = made->rc == ZNOCHILDRENFOREPHEMERALS || (get->rc == ZOK && get->stat.numChildren > 0)
                            ? BACKEND_NOT_DIRECTORY
                            : BACKEND_MISSING;
        if (create->rc == ZOK) {
            batch_delete(batch, create->name, -1);
        }
        if (made->rc == ZOK) {
            batch_delete(batch, batch->path, 0);
        }
        batch_then(batch, rank_on_node_removed);
    }
}

static void create_send_create(struct zk_batch *batch)
{
    const struct remote_ticket *t = rank_ticket(batch);
    char *prefix = node_prefix(batch->z, t);
    struct zk_node *node = node_register(batch->z, t, NULL, 0);
    GBytes *bytes = node_encode(node, t->id);
    batch_create(batch, prefix, bytes, ZOO_EPHEMERAL_SEQUENTIAL);
    batch_children(batch, batch->path, false);
    batch_get(batch, batch->path);
    rank_watch_directory(batch);
    g_bytes_unref(bytes);
    node_free(node);
    g_free(prefix);
}

/* `delays`: the lock's node must stay when it is empty, to keep the lock-delay. */
static void create_make_lock(struct zk_batch *batch, bool delays)
{
    const struct remote_ticket *t = rank_ticket(batch);
    int32_t number;
    const char *leaf = remote_leaf(t->lock->name);
    if (t->lock->sequence || node_parse_number(leaf, &number)) { /* such a name would be a ticket of the directory */
        rank_finish_with(batch, t->lock->sequence ? BACKEND_MISSING : BACKEND_INVALID);
    } else {
        rank_watch_directory(batch);
        batch_create(batch, batch->path, NULL, delays ? ZOO_PERSISTENT : ZOO_CONTAINER);
        create_send_create(batch);
        batch_then(batch, create_on_parent);
    }
}

/* The servers count in 32 bits, and then repeat the last number. */
static bool create_is_numbered(const char *path)
{
    int32_t number;
    return node_parse_number(path, &number) && number < INT32_MAX;
}

static void create_on_created(struct zk_batch *batch)
{
    const struct zk_reply *create = batch_reply(batch, 0), *list = batch_reply(batch, 1), *get = batch_reply(batch, 2),
                          *directory = batch_reply(batch, 3);
    const struct remote_ticket *t = rank_ticket(batch);
    if (create->rc == ZNONODE) {
        create_make_lock(batch, node_read_delay(directory->data) > 0);
    } else if (create->rc == ZNOCHILDRENFOREPHEMERALS) {
        rank_refuse_for_ticket(batch);
    } else if (create->rc != ZOK) {
        rank_finish_with(batch, batch_result(batch, create->rc));
    } else if (!create_is_numbered(create->name)) {
        batch->result = BACKEND_FULL;
        batch_delete(batch, create->name, -1);
        batch_then(batch, rank_on_node_removed);
    } else {
        node_register(batch->z, t, create->name, node_fence(batch->z, NULL, &create->stat));
        if (list->rc != ZOK) {
            rank_read_queue(batch);
        } else if (!rank_remove_misplaced(batch, get)) {
            rank_decide(batch, list, get, directory);
        }
    }
}

static void create_create(struct zk_batch *batch)
{
    create_send_create(batch);
    batch_then(batch, create_on_created);
}

/* --- nodes that an earlier try has made, without an answer or in a session that has expired --- */

static void create_delete_earlier(struct zk_batch *batch)
{
    const struct zk_update *change = zk_update_of(batch);
    for (guint i = 0; i < change->earlier->len; i++) {
        if (change->earlier->pdata[i]) {
            batch_delete(batch, change->earlier->pdata[i], -1);
        }
    }
    batch_then(batch, change->then);
}

/* The name of a sequence file has no ticket id, so its data decide. */
static void create_on_data(struct zk_batch *batch)
{
    struct zk_update *change = zk_update_of(batch);
    for (guint i = 0, answers = batch->replies->len; i < answers; i++) {
        struct zk_data data;
        node_decode(batch_reply(batch, i)->data, &data);
        if (strcmp(data.id, change->id) != 0) {
            g_clear_pointer(&change->earlier->pdata[i], g_free);
        }
        node_data_clear(&data);
    }
    create_delete_earlier(batch);
}

static void create_on_searched(struct zk_batch *batch)
{
    struct zk_update *change = zk_update_of(batch);
    node_replace_queue(&change->earlier, batch->path, batch_reply(batch, 1)->children);
    for (guint i = change->earlier->len; i-- > 0;) {
        if (!change->sequence && !node_has_token(strrchr(change->earlier->pdata[i], '/') + 1, change->id)) {
            g_ptr_array_remove_index(change->earlier, i);
        }
    }
    if (!change->sequence) {
        create_delete_earlier(batch);
        return;
    }
    for (guint i = 0; i < change->earlier->len; i++) {
        batch_get(batch, change->earlier->pdata[i]);
    }
    batch_then(batch, change->earlier->len > 0 ? create_on_data : change->then);
}

void create_remove_earlier(struct zk_batch *batch, zk_step *next)
{
    zk_update_of(batch)->then = next;
    batch_sync(batch, batch->path);
    batch_children(batch, batch->path, false);
    batch_then(batch, create_on_searched);
}

/* A flock beside the lock owner's ticket, through the handle of that, excludes a claim through another handle. */
static bool create_is_excluded(const struct remote_ticket *t)
{
    const struct remote_ticket *other;
    LIST_FOREACH(other, &t->lock->tickets, link) {
        bool shared = other->head.mode == BACKEND_SHARED && t->head.mode == BACKEND_SHARED;
        if (other->state == REMOTE_HELD && !shared &&
            !backend_identity_matches(BACKEND_IDENTITY(other), BACKEND_IDENTITY(t))) {
            return true;
        }
    }
    return false;
}

void create_begin(struct zk_batch *batch)
{
    const struct remote_ticket *t = rank_ticket(batch), *was = remote_ticket_find_joined(t);
    if (!batch->path) {
        batch->path = node_path(batch->z, t->lock->name);
    }
    const struct zk_node *held = was && !create_is_excluded(t) ? node_find(batch->z, was->id) : NULL;
    enum backend_mode mode = held ? rank_joined_mode(t, was) : BACKEND_EXCLUSIVE;
    if (held && held->may_be_shared && mode == BACKEND_EXCLUSIVE && t->head.mode == BACKEND_SHARED) {
        batch->parked = true; /* until the claim that weakened it is undone */
    } else if (held && !batch_begin_write(batch, was->id)) {
        return;
    } else if (held && (!held->may_be_shared || mode == BACKEND_SHARED)) {
        rank_join(batch, was, node_find(batch->z, t->id));
    } else if (node_find(batch->z, t->id)) {
        rank_read_queue(batch);
    } else if (batch->was_sent) {
        create_remove_earlier(batch, create_create);
    } else {
        create_create(batch);
    }
}
