/* query: the holder of a name, and the names in a directory. */
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

/* Lists the names in a directory. */
struct query_list_flow {
    struct zk_batch batch;
    char *name;
    char *after; /* skips names up to this one */
    size_t max;
    bool tickets;       /* only those of the queue, each with its info */
    GHashTable *first;  /* the first tickets of its queue, as many as its width: they hold */
    GPtrArray *names;   /* its nodes after `after`, in order */
    guint looked_at;    /* how many of `names` are done */
    GPtrArray *entries; /* struct backend_entry */
};

static struct query_name_flow *query_name_of(struct zk_batch *batch)
{
    return (struct query_name_flow *)batch;
}

static struct query_list_flow *query_list_of(struct zk_batch *batch)
{
    return (struct query_list_flow *)batch;
}

static void query_clear_name(struct zk_batch *batch)
{
    struct query_name_flow *flow = query_name_of(batch);
    g_free(flow->name);
    g_free(flow->parent);
    node_data_clear(&flow->data);
}

static void query_clear_list(struct zk_batch *batch)
{
    struct query_list_flow *flow = query_list_of(batch);
    g_free(flow->name);
    g_free(flow->after);
    g_clear_pointer(&flow->first, g_hash_table_unref);
    g_clear_pointer(&flow->names, g_ptr_array_unref);
    g_clear_pointer(&flow->entries, g_ptr_array_unref);
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

static void query_entry_free(gpointer data)
{
    struct backend_entry *entry = data;
    if (entry->info) {
        g_bytes_unref(entry->info->meta);
        g_free((struct backend_info *)entry->info);
    }
    g_free((char *)entry->name);
    g_free(entry);
}

static void query_finish_list(struct zk_batch *batch, enum backend_result result)
{
    const struct query_list_flow *flow = query_list_of(batch);
    struct remote_request *request = batch->request;
    GArray *entries = g_array_new(FALSE, FALSE, sizeof(struct backend_entry));
    for (guint i = 0; i < flow->entries->len; i++) {
        g_array_append_val(entries, *(struct backend_entry *)flow->entries->pdata[i]);
    }
    batch->request = NULL;
    request->on_answer(request, &(struct remote_answer){.result = result,
                                                        .entries = (struct backend_entry *)entries->data,
                                                        .entry_count = entries->len});
    g_array_unref(entries);
    batch_end(batch);
}

static void query_on_part(struct zk_batch *batch);

/* Reads the next names, QUERY_PART at a time, until there are `max`. */
static void query_next_part(struct zk_batch *batch)
{
    const struct query_list_flow *flow = query_list_of(batch);
    if (flow->looked_at >= flow->names->len || flow->entries->len >= flow->max) {
        query_finish_list(batch, BACKEND_OK);
        return;
    }
    for (guint i = 0; i < QUERY_PART && flow->looked_at + i < flow->names->len; i++) {
        const char *leaf = flow->names->pdata[flow->looked_at + i];
        char *path = node_child(batch->path, leaf);
        int32_t number;
        if (flow->tickets) {
            batch_get(batch, path);
        } else if (node_parse_number(leaf, &number)) {
            batch_exists(batch, path);
        } else {
            batch_get(batch, path);
            batch_children(batch, path, false);
        }
        g_free(path);
    }
    batch_then(batch, query_on_part);
}

/* Does this node have tickets? */
static bool query_is_lock(const struct zk_reply *list)
{
    GPtrArray *queue = node_queue(list->children);
    bool is = queue->len > 0;
    g_ptr_array_unref(queue);
    return is;
}

/* The info of a ticket, for its entry. */
static struct backend_info *query_ticket_info(struct zk_batch *batch, const char *leaf, const struct zk_data *data,
                                              const struct Stat *stat)
{
    struct backend_info *info = g_new0(struct backend_info, 1);
    query_describe(batch->z, data, stat, info);
    info->meta = info->meta ? g_bytes_ref(info->meta) : NULL;
    info->content = NULL;
    info->holders =
        (info->ticket ? info->ticket->held : g_hash_table_contains(query_list_of(batch)->first, leaf)) ? 1 : 0;
    return info;
}

static void query_on_part(struct zk_batch *batch)
{
    struct query_list_flow *flow = query_list_of(batch);
    guint answer = 0;
    while (answer < batch->replies->len && flow->entries->len < flow->max) {
        const struct zk_reply *reply = batch_reply(batch, answer++);
        const char *leaf = flow->names->pdata[flow->looked_at++];
        struct zk_data data;
        int32_t number;
        bool queues =
            !flow->tickets && !node_parse_number(leaf, &number) && query_is_lock(batch_reply(batch, answer++));
        node_decode(reply->data, &data);
        bool is_there = reply->rc == ZOK && (data.directory || reply->stat.ephemeralOwner || queues);
        if (is_there) {
            struct backend_entry *entry = g_new(struct backend_entry, 1);
            *entry = (struct backend_entry){.name = g_strdup(leaf),
                                            .type = data.directory ? BACKEND_DIRECTORY : BACKEND_LOCK};
            if (flow->tickets) {
                entry->info = query_ticket_info(batch, leaf, &data, &reply->stat);
            }
            g_ptr_array_add(flow->entries, entry);
        }
        node_data_clear(&data);
    }
    query_next_part(batch);
}

static int query_compare(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void query_note_first(struct query_list_flow *flow, char *const *children, uint32_t width)
{
    GPtrArray *queue = node_queue(children);
    g_clear_pointer(&flow->first, g_hash_table_unref);
    flow->first = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    for (guint i = 0; i < MIN(queue->len, MAX(width, 1)); i++) {
        g_hash_table_add(flow->first, g_strdup(queue->pdata[i]));
    }
    g_ptr_array_unref(queue);
}

static void query_on_children(struct zk_batch *batch)
{
    struct query_list_flow *flow = query_list_of(batch);
    const struct zk_reply *list = batch_reply(batch, 1), *get = batch_reply(batch, 2);
    struct zk_data data;
    node_decode(get->data, &data);
    bool directory = data.directory || !*flow->name;
    uint32_t width = data.attributes.width;
    node_data_clear(&data);
    g_clear_pointer(&flow->names, g_ptr_array_unref);
    g_clear_pointer(&flow->entries, g_ptr_array_unref);
    flow->names = g_ptr_array_new_with_free_func(g_free);
    flow->entries = g_ptr_array_new_with_free_func(query_entry_free);
    flow->looked_at = 0;
    if (list->rc != ZOK || !directory) {
        bool held = list->rc == ZOK && (list->stat.numChildren > 0 || list->stat.ephemeralOwner);
        query_finish_list(batch, list->rc != ZOK ? batch_result(batch, list->rc)
                                 : held          ? BACKEND_NOT_DIRECTORY
                                                 : BACKEND_MISSING);
        return;
    }
    query_note_first(flow, list->children, width);
    for (guint i = 0; list->children[i]; i++) {
        int32_t number;
        bool hidden = !*flow->name && node_is_hidden(batch->z, list->children[i]);
        bool nameable = strlen(list->children[i]) <= NAME_MAX && node_is_name(list->children[i]);
        bool wanted = !flow->tickets || node_parse_number(list->children[i], &number);
        if (!hidden && nameable && wanted && strcmp(list->children[i], flow->after) > 0) {
            g_ptr_array_add(flow->names, g_strdup(list->children[i]));
        }
    }
    g_ptr_array_sort(flow->names, query_compare);
    query_next_part(batch);
}

static void query_begin_list(struct zk_batch *batch)
{
    batch_sync(batch, batch->path);
    batch_children(batch, batch->path, false);
    batch_get(batch, batch->path);
    batch_then(batch, query_on_children);
}

void query_start_list(struct remote_request *request)
{
    static const struct zk_flow list = {sizeof(struct query_list_flow), .begin = query_begin_list,
                                        .failed = query_failed, .clear = query_clear_list};
    struct zookeeper *z = (struct zookeeper *)request->r;
    struct query_list_flow *flow = batch_new(z, &list, request);
    flow->name = g_strdup(request->name);
    flow->batch.path = node_path(z, request->name);
    flow->after = g_strdup(request->after);
    flow->max = request->max;
    flow->tickets = request->procedure == REMOTE_TICKETS;
    batch_start(&flow->batch, 0);
}
