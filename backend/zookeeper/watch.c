/* watch: nodes of this mount, and names that others hold and that the filesystem wants to hear of when nobody does any
 * more.
 *
 * The servers tell once that a queue has changed, or that the node of a ticket has gone.  If the filesystem still wants
 * to know, it is looked at and watched again.  So that a listing of a large directory costs no more, the names looked
 * up last are watched, WATCH_MAX of them.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

#define WATCH_MAX 1024

/* --- what this mount holds --- */

/* Who has removed it does not tell why; what has a guard is taken for broken. */
void watch_node_gone(struct zookeeper *z, const char *token)
{
    const struct remote_ticket *t = remote_ticket_find(&z->remote, token);
    bool guarded = t && backend_parse_guard(t->meta) > 0;
    g_hash_table_remove(z->nodes, token);
    remote_told(&z->remote, token, REMOTE_ENDED, guarded ? BACKEND_BROKEN : BACKEND_LOST);
}

struct watch_own_flow {
    struct zk_call call;
    char token[REMOTE_TOKEN_SIZE]; /* the ticket whose node it watches */
};

/* It was gone before it could be watched. */
static void watch_on_node(struct zk_call *call)
{
    const char *token = ((struct watch_own_flow *)call)->token;
    struct zookeeper *z = call->z;
    struct zk_node *node = node_of(z, token);
    const struct zk_reply *get = call_reply(call, 0);
    bool gone = get->rc == ZNONODE || (get->rc == ZOK && node && node->fence != node_fence(z, NULL, &get->stat));
    if (gone && node && strcmp(node->path, call->path) == 0) {
        watch_node_gone(z, token);
    }
    call_end(call);
}

static void watch_begin_node(struct zk_call *call)
{
    call_watch(call, call->path, ((struct watch_own_flow *)call)->token);
    call_then(call, watch_on_node);
}

void watch_node(struct zookeeper *z, const char *path, const char *token)
{
    static const struct zk_flow watch = {sizeof(struct watch_own_flow), .begin = watch_begin_node};
    struct watch_own_flow *flow = call_new(z, &watch, NULL);
    flow->call.path = g_strdup(path);
    g_strlcpy(flow->token, token, sizeof flow->token);
    call_start(&flow->call, 0);
}

/* --- a directory: who holds in it says its lock-delay from then on; who waits in its queue heeds its width --- */

static void watch_on_directory(struct zk_call *call)
{
    struct zookeeper *z = call->z;
    int64_t delay = node_delay_of(call_reply(call, 0)->data);
    GPtrArray *queue = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter each;
    struct remote_ticket *t;
    g_hash_table_iter_init(&each, z->remote.tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        struct zk_node *node = node_of(z, t->token);
        const char *leaf;
        char *directory = remote_parent(t->place->name, &leaf);
        char *path = node_path(z, t->place->sequence ? t->place->name : directory);
        bool in = node && strcmp(path, call->path) == 0;
        if (in && t->place->sequence) {
            node->again = true; /* should it be looking just now */
            g_ptr_array_add(queue, g_strdup(t->token));
        } else if (in && node->delay != delay) {
            node->delay = delay;
            if (t->state == REMOTE_HELD && node->kind != BACKEND_PROVISIONAL) {
                call_mark(call, node);
            }
        }
        g_free(path);
        g_free(directory);
    }
    for (guint i = 0; i < queue->len; i++) {
        remote_told(&z->remote, queue->pdata[i], REMOTE_MAY_BE_FREE, BACKEND_LOST);
    }
    g_ptr_array_unref(queue);
    call_then(call, call_end);
}

static void watch_begin_directory(struct zk_call *call)
{
    call_watch(call, call->path, "");
    call_then(call, watch_on_directory);
}

void watch_directory(struct zookeeper *z, const char *path)
{
    static const struct zk_flow watch = {sizeof(struct zk_call), .begin = watch_begin_directory};
    struct zk_call *call = call_new(z, &watch, NULL);
    call->path = g_strdup(path);
    call_start(call, 0);
}

/* --- what others hold --- */

static void watch_drop(struct zookeeper *z, GList *link)
{
    char *name = link->data;
    g_hash_table_remove(z->named, name);
    g_queue_delete_link(&z->recent, link);
    g_free(name);
}

struct watch_name_flow {
    struct zk_call call;
    char *name;
    bool ticket; /* its node is that of a ticket, else it is a lock with a queue of nodes */
};

static void watch_clear_name(struct zk_call *call)
{
    g_free(((struct watch_name_flow *)call)->name);
}

static void watch_on_looked(struct zk_call *call)
{
    const struct watch_name_flow *flow = (struct watch_name_flow *)call;
    struct zookeeper *z = call->z;
    const struct zk_reply *reply = call_reply(call, 0);
    GPtrArray *queue = node_queue(reply->children);
    GList *link = g_hash_table_lookup(z->named, flow->name);
    if (link && (reply->rc == ZNONODE || (reply->rc == ZOK && !flow->ticket && queue->len == 0))) {
        watch_drop(z, link);
        z->remote.events->gone(z->remote.context, flow->name);
    }
    g_ptr_array_unref(queue);
    call_end(call);
}

static void watch_begin(struct zk_call *call)
{
    if (((struct watch_name_flow *)call)->ticket) {
        call_watch(call, call->path, NULL);
    } else {
        call_children(call, call->path, true);
    }
    call_then(call, watch_on_looked);
}

static void watch_look(struct zookeeper *z, const char *name)
{
    static const struct zk_flow watch = {sizeof(struct watch_name_flow), .begin = watch_begin,
                                         .clear = watch_clear_name};
    struct watch_name_flow *flow = call_new(z, &watch, NULL);
    int32_t number;
    flow->name = g_strdup(name);
    flow->call.path = node_path(z, name);
    flow->ticket = node_number(name, &number);
    call_start(&flow->call, 0);
}

void zk_watch(struct backend *b, const char *name)
{
    struct zookeeper *z = (struct zookeeper *)b;
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
    watch_look(z, name);
}

static void watch_look_again(struct zookeeper *z, GList *link)
{
    if (z->remote.events->watched(z->remote.context, link->data)) {
        watch_look(z, link->data);
    } else {
        watch_drop(z, link);
    }
}

void watch_changed(struct zookeeper *z, const char *path)
{
    size_t chroot = strlen(z->chroot);
    GList *link = strlen(path) > chroot ? g_hash_table_lookup(z->named, path + chroot + 1) : NULL;
    if (link) {
        watch_look_again(z, link);
    }
}

void watch_look_all(struct zookeeper *z)
{
    for (GList *link = z->recent.head, *next; link; link = next) {
        next = link->next;
        watch_look_again(z, link);
    }
}
