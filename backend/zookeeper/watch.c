/* watch: watches the nodes of this mount, and names that others hold, for backend/remote/watch.c.
 *
 * A server reports once that a queue has changed or that a ticket's node was removed.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

/* --- nodes of this mount --- */

/* The server reports no reason; the end of a holder with a guard counts as broken. */
void watch_report_end(struct zookeeper *z, const char *id)
{
    const struct remote_ticket *t = remote_ticket_find(&z->remote, id);
    bool guarded = t && backend_parse_guard(t->meta) > 0;
    g_hash_table_remove(z->nodes, id);
    remote_on_event(&z->remote, id, REMOTE_ENDED, guarded ? BACKEND_BROKEN : BACKEND_LOST);
}

struct watch_own_flow {
    struct zk_batch batch;
    char id[REMOTE_ID_SIZE]; /* the ticket whose node it watches */
};

/* The node may have been removed before the watch. */
static void watch_on_node(struct zk_batch *batch)
{
    const char *id = ((struct watch_own_flow *)batch)->id;
    struct zookeeper *z = batch->z;
    struct zk_node *node = node_find(z, id);
    const struct zk_reply *get = batch_reply(batch, 0);
    bool gone = get->rc == ZNONODE || (get->rc == ZOK && node && node->fence != node_fence(z, NULL, &get->stat));
    if (gone && node && strcmp(node->path, batch->path) == 0) {
        watch_report_end(z, id);
    }
    batch_end(batch);
}

static void watch_begin_node(struct zk_batch *batch)
{
    batch_watch(batch, batch->path, ((struct watch_own_flow *)batch)->id);
    batch_then(batch, watch_on_node);
}

void watch_node(struct zookeeper *z, const char *path, const char *id)
{
    static const struct zk_flow watch = {sizeof(struct watch_own_flow), .begin = watch_begin_node};
    struct watch_own_flow *flow = batch_new(z, &watch, NULL);
    flow->batch.path = g_strdup(path);
    g_strlcpy(flow->id, id, sizeof flow->id);
    batch_start(&flow->batch, 0);
}

/* --- a directory: its lock-delay is for the tickets that hold in it, its width for those in its queue --- */

static void watch_on_directory(struct zk_batch *batch)
{
    struct zookeeper *z = batch->z;
    int64_t delay = node_read_delay(batch_reply(batch, 0)->data);
    GPtrArray *queue = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter each;
    struct remote_ticket *t;
    g_hash_table_iter_init(&each, z->remote.tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        struct zk_node *node = node_find(z, t->id);
        const char *leaf;
        char *directory = remote_parent(t->lock->name, &leaf);
        char *path = node_path(z, t->lock->sequence ? t->lock->name : directory);
        bool in = node && strcmp(path, batch->path) == 0;
        if (in && t->lock->sequence) {
            node->blocker_changed = true; /* if its queue is being read just now */
            g_ptr_array_add(queue, g_strdup(t->id));
        } else if (in && node->delay != delay) {
            node->delay = delay;
            if (t->state == REMOTE_HELD && node->kind != BACKEND_PROVISIONAL) {
                batch_mark_held(batch, node);
            }
        }
        g_free(path);
        g_free(directory);
    }
    for (guint i = 0; i < queue->len; i++) {
        remote_on_event(&z->remote, queue->pdata[i], REMOTE_MAY_BE_FREE, BACKEND_LOST);
    }
    g_ptr_array_unref(queue);
    batch_then(batch, batch_end);
}

static void watch_begin_directory(struct zk_batch *batch)
{
    batch_watch(batch, batch->path, "");
    batch_then(batch, watch_on_directory);
}

void watch_directory(struct zookeeper *z, const char *path)
{
    static const struct zk_flow watch = {sizeof(struct zk_batch), .begin = watch_begin_directory};
    struct zk_batch *batch = batch_new(z, &watch, NULL);
    batch->path = g_strdup(path);
    batch_start(batch, 0);
}

/* --- names that others hold --- */

struct watch_name_flow {
    struct zk_batch batch;
    char *name;
    bool ticket; /* its node is that of a ticket, else it is a lock with a queue of nodes */
};

static void watch_clear_name(struct zk_batch *batch)
{
    g_free(((struct watch_name_flow *)batch)->name);
}

static void watch_on_name(struct zk_batch *batch)
{
    const struct watch_name_flow *flow = (struct watch_name_flow *)batch;
    const struct zk_reply *reply = batch_reply(batch, 0);
    GPtrArray *queue = node_queue(reply->children);
    if (reply->rc == ZNONODE || (reply->rc == ZOK && !flow->ticket && queue->len == 0)) {
        remote_watch_gone(&batch->z->remote, flow->name);
    }
    g_ptr_array_unref(queue);
    batch_end(batch);
}

static void watch_begin(struct zk_batch *batch)
{
    if (((struct watch_name_flow *)batch)->ticket) {
        batch_watch(batch, batch->path, NULL);
    } else {
        batch_children(batch, batch->path, true);
    }
    batch_then(batch, watch_on_name);
}

void watch_name(struct remote *r, const char *name)
{
    static const struct zk_flow watch = {sizeof(struct watch_name_flow), .begin = watch_begin,
                                         .clear = watch_clear_name};
    struct zookeeper *z = (struct zookeeper *)r;
    struct watch_name_flow *flow = batch_new(z, &watch, NULL);
    int32_t number;
    flow->name = g_strdup(name);
    flow->batch.path = node_path(z, name);
    flow->ticket = node_parse_number(name, &number);
    batch_start(&flow->batch, 0);
}
