/* ask: questions: who holds, and what is in a directory. */
#include <limits.h>
#include <string.h>

#include "backend/zookeeper/private.h"

#define ASK_PART 64 /* nodes that are looked at together */

/* Of a name: who holds it. */
struct ask_name_flow {
    struct zk_call call;
    char *name, *parent; /* parent: the node of the directory that it is in */
    bool tests;          /* whether the request's claim would be refused */
    guint queued;        /* tickets in its queue, of which only the first ASK_PART are read */
    struct Stat stat;    /* of a ticket: its node as it was read, */
    GBytes *data;        /* and its data */
};

/* Of a directory: the names in it. */
struct ask_list_flow {
    struct zk_call call;
    char *name;
    char *after; /* names up to this one are passed over */
    size_t max;
    GPtrArray *names;   /* of its nodes behind `after`, in order */
    guint looked_at;    /* so many of them */
    GPtrArray *entries; /* struct backend_entry, of those that are there */
};

static struct ask_name_flow *ask_name_of(struct zk_call *call)
{
    return (struct ask_name_flow *)call;
}

static struct ask_list_flow *ask_list_of(struct zk_call *call)
{
    return (struct ask_list_flow *)call;
}

static void ask_clear_name(struct zk_call *call)
{
    struct ask_name_flow *flow = ask_name_of(call);
    g_free(flow->name);
    g_free(flow->parent);
    g_clear_pointer(&flow->data, g_bytes_unref);
}

static void ask_clear_list(struct zk_call *call)
{
    struct ask_list_flow *flow = ask_list_of(call);
    g_free(flow->name);
    g_free(flow->after);
    g_clear_pointer(&flow->names, g_ptr_array_unref);
    g_clear_pointer(&flow->entries, g_ptr_array_unref);
}

static void ask_tell(struct zk_call *call, enum backend_result result, const struct backend_info *info)
{
    struct remote_op *op = call->op;
    call->op = NULL;
    op->known(op->arg, result, result == BACKEND_OK ? info : NULL);
    remote_op_free(op);
    call_end(call);
}

static void ask_failed(struct zk_call *call, enum remote_outcome outcome)
{
    struct remote_op *op = call->op;
    (void)outcome;
    if (op->known) {
        op->known(op->arg, BACKEND_UNREACHABLE, NULL);
    } else {
        op->listed(op->arg, BACKEND_UNREACHABLE, NULL, 0);
    }
    remote_op_free(op);
}

void ask_describe(struct zookeeper *z, const struct zk_data *data, const struct Stat *stat, struct backend_info *info)
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
    if (t && t->state != REMOTE_ASKED) {
        info->ticket = &t->head;
        info->acquired = t->head.acquired;
        info->deadline = t->head.deadline;
        info->ttl = t->head.ttl;
    }
}

/* --- a lock --- */

/* Who holds: the first and those that it does not exclude.  Behind ASK_PART that are shared, all are taken for
 * holders. */
static void ask_on_queue(struct zk_call *call)
{
    const struct ask_name_flow *flow = ask_name_of(call);
    struct backend_info info = {.type = BACKEND_NOTHING};
    const struct backend_claim *claim = &call->op->claim;
    struct backend_identity asker = BACKEND_IDENTITY(claim);
    asker.lock_owner = claim->kind == BACKEND_FCNTL ? claim->lock_owner : 0;
    GArray *holders = node_holders(call->replies);
    struct zk_data first = {0};
    bool all = true;
    for (guint i = 0; i < call->replies->len; i++) {
        const struct zk_reply *get = call_reply(call, i);
        bool holds = g_array_index(holders, bool, i);
        struct zk_data data;
        if (get->rc != ZOK) {
            continue;
        }
        node_decode(get->data, &data);
        bool shared = data.ours && data.mode == BACKEND_SHARED;
        const struct remote_ticket *t = node_ticket(call->z, &data, &get->stat);
        bool kin = t && backend_identity_matches(asker, BACKEND_IDENTITY(t));
        bool counts = !flow->tests || (holds && !kin && (claim->mode == BACKEND_EXCLUSIVE || !shared));
        if (counts && info.type == BACKEND_NOTHING) {
            ask_describe(call->z, &data, &get->stat, &info);
            first = data;
            data = (struct zk_data){0};
        }
        info.holders += holds;
        info.waiters += !holds;
        all = all && holds && shared;
        node_data_clear(&data);
    }
    g_array_unref(holders);
    *(all ? &info.holders : &info.waiters) += flow->queued - call->replies->len;
    ask_tell(call, BACKEND_OK, &info);
    node_data_clear(&first);
}

/* --- a ticket in its directory --- */

static void ask_on_place(struct zk_call *call)
{
    const struct ask_name_flow *flow = ask_name_of(call);
    const struct zk_reply *list = call_reply(call, 0), *get = call_reply(call, 1);
    struct backend_info info = {.type = BACKEND_NOTHING};
    struct zk_data data, directory;
    GPtrArray *queue = node_queue(list->children);
    node_decode(get->data, &directory);
    node_decode(flow->data, &data);
    ask_describe(call->z, &data, &flow->stat, &info);
    for (info.position = 0; info.position < queue->len; info.position++) {
        if (strcmp(queue->pdata[info.position], strrchr(call->path, '/') + 1) == 0) {
            break;
        }
    }
    bool holds = info.ticket ? info.ticket->held : info.position < directory.attributes.width;
    info.holders = holds;
    g_ptr_array_unref(queue);
    ask_tell(call, BACKEND_OK, &info);
    node_data_clear(&data);
    node_data_clear(&directory);
}

static void ask_about_ticket(struct zk_call *call, const struct zk_reply *get)
{
    struct ask_name_flow *flow = ask_name_of(call);
    g_clear_pointer(&flow->data, g_bytes_unref);
    flow->data = g_bytes_ref(get->data);
    flow->stat = get->stat;
    call_children(call, flow->parent, false);
    call_get(call, flow->parent);
    call_then(call, ask_on_place);
}

static void ask_tell_directory(struct zk_call *call, const struct zk_data *data, guint queued)
{
    struct backend_info info = {.type = BACKEND_DIRECTORY, .directory = data->attributes};
    info.directory.width = MAX(info.directory.width, 1);
    info.waiters = queued > info.directory.width ? queued - info.directory.width : 0;
    ask_tell(call, BACKEND_OK, &info);
}

static void ask_on_node(struct zk_call *call)
{
    const struct zk_reply *get = call_reply(call, 1);
    GPtrArray *queue = node_queue(call_reply(call, 2)->children);
    struct zk_data data;
    node_decode(get->data, &data);
    if (get->rc != ZOK && get->rc != ZNONODE) {
        ask_tell(call, call_result(call, get->rc), NULL);
    } else if (!*ask_name_of(call)->name || data.directory) {
        ask_tell_directory(call, &data, queue->len);
    } else if (get->rc == ZOK && get->stat.ephemeralOwner) {
        ask_about_ticket(call, get);
    } else if (queue->len == 0) {
        ask_tell(call, BACKEND_OK, &(struct backend_info){.type = BACKEND_NOTHING});
    } else {
        ask_name_of(call)->queued = queue->len;
        for (guint i = 0; i < MIN(queue->len, ASK_PART); i++) {
            char *path = node_child(call->path, queue->pdata[i]);
            call_get(call, path);
            g_free(path);
        }
        call_then(call, ask_on_queue);
    }
    node_data_clear(&data);
    g_ptr_array_unref(queue);
}

static void ask_begin(struct zk_call *call)
{
    call_sync(call, call->path); /* a follower may not have heard yet of what another mount was told */
    call_get(call, call->path);
    call_children(call, call->path, false);
    call_then(call, ask_on_node);
}

static void ask_about(struct zookeeper *z, const char *name, const struct backend_claim *claim, backend_info_done *done,
                      void *arg)
{
    static const struct zk_flow ask = {sizeof(struct ask_name_flow), .begin = ask_begin, .failed = ask_failed,
                                       .clear = ask_clear_name};
    const char *leaf;
    if (!node_is_name(name)) {
        done(arg, BACKEND_OK, &(struct backend_info){.type = BACKEND_NOTHING});
        return;
    }
    remote_tell_expired(&z->remote, name);
    struct remote_op *op = remote_op_new(&z->remote, NULL);
    op->known = done;
    op->arg = arg;
    struct ask_name_flow *flow = call_new(z, &ask, op);
    char *parent = remote_parent(name, &leaf);
    flow->name = g_strdup(name);
    flow->call.path = node_path(z, name);
    flow->parent = node_path(z, parent);
    g_free(parent);
    if (claim) {
        flow->tests = true;
        op->claim = *claim;
        op->claim.meta = op->claim.content = NULL;
    }
    call_start(&flow->call, 0);
}

void zk_stat(struct backend *b, const char *name, backend_info_done *done, void *arg)
{
    ask_about((struct zookeeper *)b, name, NULL, done, arg);
}

void zk_test(struct backend *b, const char *name, const struct backend_claim *claim, backend_info_done *done, void *arg)
{
    ask_about((struct zookeeper *)b, name, claim, done, arg);
}

/* --- a directory's names --- */

static void ask_entry_free(gpointer data)
{
    struct backend_entry *entry = data;
    g_free((char *)entry->name);
    g_free(entry);
}

static void ask_tell_listed(struct zk_call *call, enum backend_result result)
{
    const struct ask_list_flow *flow = ask_list_of(call);
    struct remote_op *op = call->op;
    GArray *entries = g_array_new(FALSE, FALSE, sizeof(struct backend_entry));
    for (guint i = 0; i < flow->entries->len; i++) {
        g_array_append_val(entries, *(struct backend_entry *)flow->entries->pdata[i]);
    }
    call->op = NULL;
    op->listed(op->arg, result, (struct backend_entry *)entries->data, entries->len);
    g_array_unref(entries);
    remote_op_free(op);
    call_end(call);
}

static void ask_on_part(struct zk_call *call);

/* The names that are left, some at a time, until there are as many as were asked for. */
static void ask_next_part(struct zk_call *call)
{
    const struct ask_list_flow *flow = ask_list_of(call);
    if (flow->looked_at >= flow->names->len || flow->entries->len >= flow->max) {
        ask_tell_listed(call, BACKEND_OK);
        return;
    }
    for (guint i = 0; i < ASK_PART && flow->looked_at + i < flow->names->len; i++) {
        const char *leaf = flow->names->pdata[flow->looked_at + i];
        char *path = node_child(call->path, leaf);
        int32_t number;
        if (node_number(leaf, &number)) {
            call_exists(call, path);
        } else {
            call_get(call, path);
            call_children(call, path, false);
        }
        g_free(path);
    }
    call_then(call, ask_on_part);
}

/* Whether tickets stand there. */
static bool ask_is_lock(const struct zk_reply *list)
{
    GPtrArray *queue = node_queue(list->children);
    bool is = queue->len > 0;
    g_ptr_array_unref(queue);
    return is;
}

static void ask_on_part(struct zk_call *call)
{
    struct ask_list_flow *flow = ask_list_of(call);
    guint answer = 0;
    while (answer < call->replies->len && flow->entries->len < flow->max) {
        const struct zk_reply *reply = call_reply(call, answer++);
        const char *leaf = flow->names->pdata[flow->looked_at++];
        struct zk_data data;
        int32_t number;
        bool queues = !node_number(leaf, &number) && ask_is_lock(call_reply(call, answer++));
        node_decode(reply->data, &data);
        bool is_there = reply->rc == ZOK && (data.directory || reply->stat.ephemeralOwner || queues);
        if (is_there) {
            struct backend_entry *entry = g_new(struct backend_entry, 1);
            *entry = (struct backend_entry){.name = g_strdup(leaf),
                                            .type = data.directory ? BACKEND_DIRECTORY : BACKEND_LOCK};
            g_ptr_array_add(flow->entries, entry);
        }
        node_data_clear(&data);
    }
    ask_next_part(call);
}

static int ask_compare(gconstpointer a, gconstpointer b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void ask_on_children(struct zk_call *call)
{
    struct ask_list_flow *flow = ask_list_of(call);
    const struct zk_reply *list = call_reply(call, 1), *get = call_reply(call, 2);
    struct zk_data data;
    node_decode(get->data, &data);
    bool directory = data.directory || !*flow->name;
    node_data_clear(&data);
    g_clear_pointer(&flow->names, g_ptr_array_unref);
    g_clear_pointer(&flow->entries, g_ptr_array_unref);
    flow->names = g_ptr_array_new_with_free_func(g_free);
    flow->entries = g_ptr_array_new_with_free_func(ask_entry_free);
    flow->looked_at = 0;
    if (list->rc != ZOK || !directory) {
        bool held = list->rc == ZOK && (list->stat.numChildren > 0 || list->stat.ephemeralOwner);
        ask_tell_listed(call, list->rc != ZOK ? call_result(call, list->rc)
                              : held          ? BACKEND_NOT_DIRECTORY
                                              : BACKEND_MISSING);
        return;
    }
    for (guint i = 0; list->children[i]; i++) {
        bool hidden = !*flow->name && node_is_hidden(call->z, list->children[i]);
        bool nameable = strlen(list->children[i]) <= NAME_MAX && node_is_name(list->children[i]);
        if (!hidden && nameable && strcmp(list->children[i], flow->after) > 0) {
            g_ptr_array_add(flow->names, g_strdup(list->children[i]));
        }
    }
    g_ptr_array_sort(flow->names, ask_compare);
    ask_next_part(call);
}

static void ask_begin_list(struct zk_call *call)
{
    call_sync(call, call->path);
    call_children(call, call->path, false);
    call_get(call, call->path);
    call_then(call, ask_on_children);
}

void zk_list(struct backend *b, const char *directory, const char *after, size_t max, backend_list_done *done,
             void *arg)
{
    static const struct zk_flow list = {sizeof(struct ask_list_flow), .begin = ask_begin_list, .failed = ask_failed,
                                        .clear = ask_clear_list};
    struct zookeeper *z = (struct zookeeper *)b;
    if (!node_is_name(directory)) {
        done(arg, BACKEND_MISSING, NULL, 0);
        return;
    }
    struct remote_op *op = remote_op_new(&z->remote, NULL);
    op->listed = done;
    op->arg = arg;
    struct ask_list_flow *flow = call_new(z, &list, op);
    flow->name = g_strdup(directory);
    flow->call.path = node_path(z, directory);
    flow->after = g_strdup(after);
    flow->max = max;
    call_start(&flow->call, 0);
}
