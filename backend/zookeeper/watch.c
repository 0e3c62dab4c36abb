/* watch: watches the nodes of this mount, and names that others hold, for backend_watch.
 *
 * A server reports once that a queue has changed or that a ticket's node was removed.  If the filesystem still has the
 * name, this reads and watches it again.  Only the WATCH_MAX names that were looked up last are watched, so that a
 * listing of a large directory stays cheap.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

#define WATCH_MAX 1024

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

static void watch_drop(struct zookeeper *z, GList *link)
{
    char *name = link->data;
    g_hash_table_remove(z->named, name);
    g_queue_delete_link(&z->recent, link);
    g_free(name);
}

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
    struct zookeeper *z = batch->z;
    const struct zk_reply *reply = batch_reply(batch, 0);
    GPtrArray *queue = node_queue(reply->children);
    GList *link = g_hash_table_lookup(z->named, flow->name);
    if (link && (reply->rc == ZNONODE || (reply->rc == ZOK && !flow->ticket && queue->len == 0))) {
        watch_drop(z, link);
        z->remote.events->gone(z->remote.context, flow->name);
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

static void watch_read_name(struct zookeeper *z, const char *name)
{
    static const struct zk_flow watch = {sizeof(struct watch_name_flow), .begin = watch_begin,
                                         .clear = watch_clear_name};
    struct watch_name_flow *flow = batch_new(z, &watch, NULL);
    int32_t number;
    flow->name = g_strdup(name);
    flow->batch.path = node_path(z, name);
    flow->ticket = node_parse_number(name, &number);
    batch_start(&flow->batch, 0);
}

void zk_watch(struct remote *remote, const char *name)
{
    struct zookeeper *z = (struct zookeeper *)remote;
    GList *link = g_hash_table_lookup(z->named, name);
    if (link) {
        g_queue_unlink(&z->recent, link);
        g_queue_push_head_link(&z->recent, link);
        return;
    }
    g_queue_push_head(&z->recent, g_strdup(name));
    g_hash_table_insert(z->named, z->recent.head->data, z->recent.head);
    if (z->recent.length > WATCH_MAX) {
        watch_drop(z, z->recent.tail);
    }
    watch_read_name(z, name);
}

static void watch_read_again(struct zookeeper *z, GList *link)
{
    if (z->remote.events->watched(z->remote.context, link->data)) {
        watch_read_name(z, link->data);
    } else {
        watch_drop(z, link);
    }
}

void watch_on_event(struct zookeeper *z, const char *path)
{
    size_t chroot = strlen(z->chroot);
    GList *link = strlen(path) > chroot ? g_hash_table_lookup(z->named, path + chroot + 1) : NULL;
    if (link) {
        watch_read_again(z, link);
    }
}

void watch_read_all(struct zookeeper *z)
{
    for (GList *link = z->recent.head, *next; link; link = next) {
        next = link->next;
        watch_read_again(z, link);
    }
}
