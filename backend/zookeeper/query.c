/* query: the holder of a name, the names in a directory, and the mounts. */
#include <limits.h>
#include <string.h>

#include "backend/zookeeper/private.h"

#define QUERY_PART 64 /* nodes that are read together */

/* Finds the holder of a name. */
struct query_name_flow {
    struct zk_batch batch;
    char *name, *parent; /* parent: the node of the directory above */
    bool tests;          /* finds the holder that conflicts with the request's claim */
    guint queued;        /* tickets in its queue; only the first QUERY_PART are read */
    struct Stat stat;    /* of the node that is described */
    struct zk_data data; /* of the same */
    struct backend_info info;
};

static struct query_name_flow *query_name_of(struct zk_batch *batch)
{
    return (struct query_name_flow *)batch;
}

static void query_clear_name(struct zk_batch *batch)
{
    struct query_name_flow *flow = query_name_of(batch);
    g_free(flow->name);
    g_free(flow->parent);
    node_data_clear(&flow->data);
}

static void query_finish(struct zk_batch *batch, enum backend_result result, const struct backend_info *info)
{
    struct remote_request *request = batch->request;
    batch->request = NULL;
    request->on_answer(request, &(struct remote_answer){.result = result, .info = info});
    batch_end(batch);
}

static void query_failed(struct zk_batch *batch, enum remote_outcome outcome)
{
    batch->request->on_answer(batch->request,
                              &(struct remote_answer){.outcome = outcome, .result = BACKEND_UNREACHABLE});
}

void query_describe(struct zookeeper *z, const struct zk_data *data, const struct Stat *stat, struct backend_info *info)
{
    clock_ms now = clock_now(), made = stat->ctime - z->server_time, written = MIN(stat->mtime - z->server_time, now);
    struct remote_ticket *t = node_ticket(z, data, stat);
    made = data->guards ? data->granted - z->server_time : made;
    info->type = BACKEND_LOCK;
    info->kind = data->kind;
    info->mode = data->mode;
    info->acquired = MIN(made, now);
    info->deadline = CLOCK_NEVER;
    info->end = BACKEND_RANGE_MAX;
    info->guarded = data->guards;
    if (data->ours) {
        info->fence = node_fence(z, data, stat);
        info->meta = data->meta;
        info->content = data->content;
        info->ttl = data->ttl;
        info->deadline = MAX((data->automatic ? now : written) + data->ttl, now);
    }
    if (t && t->state != REMOTE_ACQUIRING) {
        remote_ticket_describe(t, info);
    }
}

/* --- when another mount's ticket ends --- */

/* A living mount ends its tickets itself, and sends a heartbeat every sixth of its session's timeout or sooner.  When
 * a heartbeat is missing, the tickets end with the session.  The session ends a timeout after the mount's last request,
 * which was before the missing heartbeat, plus a tick at most. */
static void query_on_session(struct zk_batch *batch)
{
    struct query_name_flow *flow = query_name_of(batch);
    const struct zk_reply *get = batch_reply(batch, 0);
    int64_t timeout = get->rc == ZOK ? node_session_timeout(get->data) : 0;
    clock_ms now = clock_now(), heartbeat = MIN(get->stat.mtime - batch->z->server_time, now);
    clock_ms missing = heartbeat + timeout / 6;
    if (timeout > 0 && (now > missing + ZOOKEEPER_MARGIN || now >= flow->info.deadline)) {
        flow->info.deadline = MAX(missing + timeout + 2 * ZOOKEEPER_MARGIN, now + ZOOKEEPER_MARGIN);
    }
    query_finish(batch, BACKEND_OK, &flow->info);
}

/* Answers with the flow's `info`, of the node with its `data` and `stat`. */
static void query_finish_ticket(struct zk_batch *batch)
{
    const struct query_name_flow *flow = query_name_of(batch);
    bool own = flow->stat.ephemeralOwner == zoo_client_id(batch->z->handle)->client_id;
    if (flow->tests || !flow->data.ours || own) {
        query_finish(batch, BACKEND_OK, &flow->info);
        return;
    }
    char *path = node_session_path(batch->z, flow->stat.ephemeralOwner);
    batch_get(batch, path);
    batch_then(batch, query_on_session);
    g_free(path);
}

/* --- a lock --- */

/* The first ticket holds, and those that are compatible with it.  Tickets after the first QUERY_PART shared ones count
 * as holders without a look. */
static void query_on_queue(struct zk_batch *batch)
{
    struct query_name_flow *flow = query_name_of(batch);
    struct backend_info *info = &flow->info;
    const struct backend_claim *claim = &batch->request->claim;
    struct backend_identity asker = BACKEND_IDENTITY(claim);
    GArray *holders = node_holders(batch->replies);
    bool all = true;
    for (guint i = 0; i < batch->replies->len; i++) {
        const struct zk_reply *get = batch_reply(batch, i);
        bool holds = g_array_index(holders, bool, i);
        struct zk_data data;
        if (get->rc != ZOK) {
            continue;
        }
        node_decode(get->data, &data);
        bool shared = data.ours && data.mode == BACKEND_SHARED;
        const struct remote_ticket *t = node_ticket(batch->z, &data, &get->stat);
        bool compatible = t && backend_identity_matches(asker, BACKEND_IDENTITY(t));
        bool counts = !flow->tests || (holds && !compatible && (claim->mode == BACKEND_EXCLUSIVE || !shared));
        if (counts && info->type == BACKEND_NOTHING) {
            query_describe(batch->z, &data, &get->stat, info);
            flow->stat = get->stat;
            flow->data = data;
            data = (struct zk_data){0};
        }
        info->holders += holds;
        info->waiters += !holds;
        all = all && holds && shared;
        node_data_clear(&data);
    }
    g_array_unref(holders);
    *(all ? &info->holders : &info->waiters) += flow->queued - batch->replies->len;
    query_finish_ticket(batch);
}

/* --- a ticket in its directory --- */

static void query_on_place(struct zk_batch *batch)
{
    struct query_name_flow *flow = query_name_of(batch);
    struct backend_info *info = &flow->info;
    struct zk_data directory;
    GPtrArray *queue = node_queue(batch_reply(batch, 0)->children);
    node_decode(batch_reply(batch, 1)->data, &directory);
    query_describe(batch->z, &flow->data, &flow->stat, info);
    for (info->position = 0; info->position < queue->len; info->position++) {
        if (strcmp(queue->pdata[info->position], strrchr(batch->path, '/') + 1) == 0) {
            break;
        }
    }
    info->holders = info->ticket ? info->ticket->held : info->position < directory.attributes.width;
    g_ptr_array_unref(queue);
    node_data_clear(&directory);
    query_finish_ticket(batch);
}

static void query_about_ticket(struct zk_batch *batch, const struct zk_reply *get)
{
    struct query_name_flow *flow = query_name_of(batch);
    node_decode(get->data, &flow->data);
    flow->stat = get->stat;
    batch_children(batch, flow->parent, false);
    batch_get(batch, flow->parent);
    batch_then(batch, query_on_place);
}

static void query_finish_directory(struct zk_batch *batch, const struct zk_data *data, guint queued)
{
    struct backend_info info = {.type = BACKEND_DIRECTORY, .directory = data->attributes};
    info.directory.width = MAX(info.directory.width, 1);
    info.waiters = queued > info.directory.width ? queued - info.directory.width : 0;
    query_finish(batch, BACKEND_OK, &info);
}

static void query_on_node(struct zk_batch *batch)
{
    const struct zk_reply *get = batch_reply(batch, 1);
    GPtrArray *queue = node_queue(batch_reply(batch, 2)->children);
    struct zk_data data;
    node_decode(get->data, &data);
    if (get->rc != ZOK && get->rc != ZNONODE) {
        query_finish(batch, batch_result(batch, get->rc), NULL);
    } else if (!*query_name_of(batch)->name || data.directory) {
        query_finish_directory(batch, &data, queue->len);
    } else if (get->rc == ZOK && get->stat.ephemeralOwner) {
        query_about_ticket(batch, get);
    } else if (queue->len == 0) {
        query_finish(batch, BACKEND_OK, &(struct backend_info){.type = BACKEND_NOTHING});
    } else {
        query_name_of(batch)->queued = queue->len;
        for (guint i = 0; i < MIN(queue->len, QUERY_PART); i++) {
            char *path = node_child(batch->path, queue->pdata[i]);
            batch_get(batch, path);
            g_free(path);
        }
        batch_then(batch, query_on_queue);
    }
    node_data_clear(&data);
    g_ptr_array_unref(queue);
}

static void query_begin(struct zk_batch *batch)
{
    struct query_name_flow *flow = query_name_of(batch);
    node_data_clear(&flow->data);
    flow->stat = (struct Stat){0};
    flow->info = (struct backend_info){.type = BACKEND_NOTHING};
    batch_sync(batch, batch->path); /* a follower may lack a change that another mount has seen */
    batch_get(batch, batch->path);
    batch_children(batch, batch->path, false);
    batch_then(batch, query_on_node);
}

void query_start_about(struct remote_request *request)
{
    static const struct zk_flow ask = {sizeof(struct query_name_flow), .begin = query_begin, .failed = query_failed,
                                       .clear = query_clear_name};
    struct zookeeper *z = (struct zookeeper *)request->r;
    struct query_name_flow *flow = batch_new(z, &ask, request);
    const char *leaf;
    char *parent = remote_parent(request->name, &leaf);
    flow->name = g_strdup(request->name);
    flow->batch.path = node_path(z, request->name);
    flow->parent = node_path(z, parent);
    g_free(parent);
    flow->tests = request->procedure == REMOTE_TEST;
    batch_start(&flow->batch, 0);
}

/* --- a directory's names --- */

static void query_finish_list(struct zk_batch *batch, enum backend_result result)
{
    struct remote_request *request = batch->request;
    batch->request = NULL;
    remote_request_answer(request, result, batch->begun);
    batch_end(batch);
}

/* Does this node have tickets? */
static bool query_is_lock(const struct zk_reply *list)
{
    GPtrArray *queue = node_queue(list->children);
    bool is = queue->len > 0;
    g_ptr_array_unref(queue);
    return is;
}

/* Completes the info of a ticket, whose `holders` is known. */
static void query_describe_ticket(struct zk_batch *batch, const struct zk_data *data, const struct Stat *stat,
                                  struct backend_info *info)
{
    query_describe(batch->z, data, stat, info);
    info->meta = info->meta ? g_bytes_ref(info->meta) : NULL;
    info->content = NULL;
    info->holders = info->ticket ? info->ticket->held : info->holders;
}

static void query_on_part(struct zk_batch *batch)
{
    struct remote_request *request = batch->request;
    const struct backend_entry *entry;
    for (guint i = 0; i < batch->replies->len && (entry = remote_listing_undescribed(request, 0));) {
        const struct zk_reply *reply = batch_reply(batch, i++);
        struct zk_data data;
        int32_t number;
        bool queues =
            !entry->info && !node_parse_number(entry->name, &number) && query_is_lock(batch_reply(batch, i++));
        node_decode(reply->data, &data);
        bool is_there = reply->rc == ZOK && (data.directory || reply->stat.ephemeralOwner || queues);
        if (is_there && entry->info) {
            query_describe_ticket(batch, &data, &reply->stat, (struct backend_info *)entry->info);
        }
        remote_listing_describe(request, !is_there        ? BACKEND_NOTHING
                                         : data.directory ? BACKEND_DIRECTORY
                                                          : BACKEND_LOCK);
        node_data_clear(&data);
    }
    query_finish_list(batch, BACKEND_OK);
}

/* Reads the next names. */
static void query_read_part(struct zk_batch *batch)
{
    const struct backend_entry *entry;
    for (guint i = 0; i < QUERY_PART && (entry = remote_listing_undescribed(batch->request, i)); i++) {
        char *path = node_child(batch->path, entry->name);
        int32_t number;
        if (!entry->info && node_parse_number(entry->name, &number)) {
            batch_exists(batch, path);
        } else {
            batch_get(batch, path);
            if (!entry->info) {
                batch_children(batch, path, false);
            }
        }
        g_free(path);
    }
    batch_then(batch, query_on_part);
}

static int query_compare(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The first tickets of a queue, as many as its width: they hold.  Borrows the names. */
static GHashTable *query_first(GPtrArray *queue, uint32_t width)
{
    GHashTable *first = g_hash_table_new(g_str_hash, g_str_equal);
    for (guint i = 0; i < MIN(queue->len, MAX(width, 1)); i++) {
        g_hash_table_add(first, queue->pdata[i]);
    }
    return first;
}

/* The names, without their types. */
static void query_add_names(struct remote_request *request, char **children, uint32_t width)
{
    GPtrArray *queue = node_queue(children);
    GHashTable *first = query_first(queue, width);
    qsort(children, g_strv_length(children), sizeof *children, query_compare);
    for (char **child = children; *child; child++) {
        struct backend_info ticket = {.holders = g_hash_table_contains(first, *child) ? 1 : 0};
        if (*request->name || !node_is_hidden((struct zookeeper *)request->r, *child)) {
            remote_listing_add(request, *child, BACKEND_NOTHING, request->procedure == REMOTE_TICKETS ? &ticket : NULL);
        }
    }
    g_hash_table_unref(first);
    g_ptr_array_unref(queue);
}

static void query_on_children(struct zk_batch *batch)
{
    struct remote_request *request = batch->request;
    const struct zk_reply *list = batch_reply(batch, 1), *get = batch_reply(batch, 2);
    struct zk_data data;
    node_decode(get->data, &data);
    bool directory = data.directory || !*request->name;
    bool held = list->rc == ZOK && (list->stat.numChildren > 0 || list->stat.ephemeralOwner);
    if (list->rc == ZOK && directory) {
        query_add_names(request, list->children, data.attributes.width);
    }
    query_finish_list(batch, list->rc != ZOK ? batch_result(batch, list->rc)
                             : directory     ? BACKEND_OK
                             : held          ? BACKEND_NOT_DIRECTORY
                                             : BACKEND_MISSING);
    node_data_clear(&data);
}

static void query_begin_list(struct zk_batch *batch)
{
    if (remote_listing_undescribed(batch->request, 0)) {
        query_read_part(batch);
        return;
    }
    batch_sync(batch, batch->path);
    batch_children(batch, batch->path, false);
    batch_get(batch, batch->path);
    batch_then(batch, query_on_children);
}

void query_start_list(struct remote_request *request)
{
    static const struct zk_flow list = {sizeof(struct zk_batch), .begin = query_begin_list, .failed = query_failed};
    struct zk_batch *batch = batch_new((struct zookeeper *)request->r, &list, request);
    batch->path = node_path((struct zookeeper *)request->r, request->name);
    batch_start(batch, request->listing->timeout);
}

/* --- the mounts: each has a session, whose node names its version and host --- */

static void query_add_mount(GString *text, const struct zookeeper *z, const struct zk_reply *reply)
{
    gsize size = 0;
    const char *bytes = reply->data ? g_bytes_get_data(reply->data, &size) : NULL;
    char *about = g_strndup(bytes, MIN(size, 512)), version[64], host[256];
    if (reply->rc == ZOK && sscanf(about, "%*u %63s %255s", version, host) == 2) {
        g_string_append_printf(text, "%s\t%s\t%" G_GINT64_FORMAT "\n", version, host,
                               MAX(clock_now() - (reply->stat.ctime - z->server_time), 0));
    }
    g_free(about);
}

static void query_on_sessions(struct zk_batch *batch)
{
    GString *text = g_string_new(NULL);
    for (guint i = 0; i < batch->replies->len; i++) {
        query_add_mount(text, batch->z, batch_reply(batch, i));
    }
    struct backend_info info = {.type = BACKEND_DIRECTORY, .content = g_string_free_to_bytes(text)};
    query_finish(batch, BACKEND_OK, &info);
    remote_info_clear(&info);
}

/* The sessions of mounts have names of 16 digits. */
static void query_on_mounts(struct zk_batch *batch)
{
    const struct zk_reply *list = batch_reply(batch, 1);
    if (list->rc != ZOK) {
        query_finish(batch, batch_result(batch, list->rc), NULL);
        return;
    }
    for (char **name = list->children; *name; name++) {
        char *path = strlen(*name) == 16 ? node_child(batch->path, *name) : NULL;
        if (path) {
            batch_get(batch, path);
        }
        g_free(path);
    }
    batch_then(batch, query_on_sessions);
}

static void query_begin_mounts(struct zk_batch *batch)
{
    batch_sync(batch, batch->path);
    batch_children(batch, batch->path, false);
    batch_then(batch, query_on_mounts);
}

void query_start_mounts(struct remote_request *request)
{
    static const struct zk_flow ask = {sizeof(struct zk_batch), .begin = query_begin_mounts, .failed = query_failed};
    struct zookeeper *z = (struct zookeeper *)request->r;
    struct zk_batch *batch = batch_new(z, &ask, request);
    batch->path = node_child(z->chroot, ZOOKEEPER_HIDDEN);
    batch_start(batch, 0);
}
