/* directory: makes, removes and changes directories: nodes with a mark of ours.
 *
 * A directory is made and marked in one step, so the removal of nodes that locks have left behind, by their version,
 * never removes a directory that was made meanwhile.  Every write and removal names the version that was read, so it
 * never hits a lock that has taken the name; if the version is another one, the flow reads again.
 */
#include <string.h>

#include "backend/zookeeper/private.h"

struct directory_flow {
    struct zk_batch batch;
    char *parent;    /* the node of the directory above */
    uint64_t nonce;  /* of mkdir: marks the node that this flow made */
    int32_t version; /* of rmdir: the node's when it was read */
    GPtrArray *left; /* of rmdir: nodes in it that ended locks may have left */
};

static struct directory_flow *directory_of(struct zk_batch *batch)
{
    return (struct directory_flow *)batch;
}

static void directory_clear(struct zk_batch *batch)
{
    struct directory_flow *flow = directory_of(batch);
    g_free(flow->parent);
    g_clear_pointer(&flow->left, g_ptr_array_unref);
}

static void directory_finish(struct zk_batch *batch, enum backend_result result)
{
    struct remote_request *request = batch->request;
    batch->request = NULL;
    batch_end(batch);
    remote_request_answer(request, result, 0);
}

static void directory_failed(struct zk_batch *batch, enum remote_outcome outcome)
{
    (void)outcome;
    remote_request_answer(batch->request, BACKEND_UNREACHABLE, 0);
}

static bool directory_is(const struct zk_reply *get, uint64_t *ret_nonce)
{
    struct zk_data data;
    node_decode(get->data, &data);
    node_data_clear(&data);
    *ret_nonce = data.nonce;
    return get->rc == ZOK && data.directory;
}

static bool directory_is_root(const struct zookeeper *z, const char *path)
{
    return strcmp(path, *z->chroot ? z->chroot : "/") == 0;
}

/* --- mkdir --- */

static void directory_begin_make(struct zk_batch *batch);

static void directory_on_made(struct zk_batch *batch)
{
    int rc = batch_reply(batch, 0)->rc;
    if (rc == ZNONODE) { /* the node that a lock had left is removed, or the parent is */
        directory_begin_make(batch);
        return;
    }
    directory_finish(batch, rc == ZNOTEMPTY || rc == ZBADVERSION ? BACKEND_EXISTS : batch_result(batch, rc));
}

static void directory_make(struct zk_batch *batch)
{
    const struct directory_flow *flow = directory_of(batch);
    const struct zk_reply *parent = batch_reply(batch, 1), *get = batch_reply(batch, 2);
    uint64_t nonce;
    bool in_directory = directory_is(parent, &nonce) || directory_is_root(batch->z, flow->parent);
    if (!in_directory) {
        directory_finish(batch,
                         parent->rc == ZOK && parent->stat.numChildren > 0 ? BACKEND_NOT_DIRECTORY : BACKEND_MISSING);
    } else if (directory_is(get, &nonce)) {
        directory_finish(batch, batch->was_sent && nonce == flow->nonce ? BACKEND_OK : BACKEND_EXISTS);
    } else if (get->rc == ZOK && (get->stat.numChildren > 0 || get->stat.ephemeralOwner)) {
        directory_finish(batch, BACKEND_EXISTS);
    } else {
        GBytes *data = node_encode_directory(&batch->request->directory, flow->nonce, NULL);
        batch_replace(batch, batch->path, data, get->rc == ZOK ? get->stat.version : -1);
        batch_then(batch, directory_on_made);
        g_bytes_unref(data);
    }
}

static void directory_begin_make(struct zk_batch *batch)
{
    batch_sync(batch, batch->path); /* before each read that a write depends on: a follower may be late */
    batch_get(batch, directory_of(batch)->parent);
    batch_get(batch, batch->path);
    batch_then(batch, directory_make);
}

/* --- rmdir --- */

static void directory_begin_remove(struct zk_batch *batch);

static void directory_on_removed_at_last(struct zk_batch *batch)
{
    int rc = batch_reply(batch, batch->replies->len - 1)->rc;
    if (rc == ZBADVERSION) {
        directory_begin_remove(batch);
    } else {
        directory_finish(batch, batch_result(batch, rc));
    }
}

/* Removes nodes that locks have left behind: without data, children and session. */
static void directory_on_children(struct zk_batch *batch)
{
    const struct directory_flow *flow = directory_of(batch);
    for (guint i = 0; i < flow->left->len; i++) {
        const struct zk_reply *get = batch_reply(batch, i);
        struct zk_data data;
        node_decode(get->data, &data);
        node_data_clear(&data);
        bool left = (get->stat.version == 0 && get->stat.dataLength == 0) || *data.held;
        if (get->rc == ZOK && (get->stat.numChildren || get->stat.ephemeralOwner || !left)) {
            directory_finish(batch, BACKEND_NOT_EMPTY);
            return;
        }
    }
    GPtrArray *gets = g_ptr_array_ref(batch->replies);
    for (guint i = 0; i < flow->left->len; i++) {
        batch_delete(batch, flow->left->pdata[i], ((const struct zk_reply *)gets->pdata[i])->stat.version);
    }
    g_ptr_array_unref(gets);
    batch_delete(batch, batch->path, flow->version);
    batch_then(batch, directory_on_removed_at_last);
}

static void directory_on_listed(struct zk_batch *batch)
{
    struct directory_flow *flow = directory_of(batch);
    char **children = batch_reply(batch, 0)->children;
    g_clear_pointer(&flow->left, g_ptr_array_unref);
    flow->left = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; children && children[i]; i++) {
        g_ptr_array_add(flow->left, node_child(batch->path, children[i]));
    }
    for (guint i = 0; i < flow->left->len; i++) {
        batch_get(batch, flow->left->pdata[i]);
    }
    batch_then(batch, directory_on_children);
}

static void directory_on_removed(struct zk_batch *batch)
{
    if (batch_reply(batch, 0)->rc == ZNOTEMPTY) {
        batch_children(batch, batch->path, false);
        batch_then(batch, directory_on_listed);
    } else {
        directory_on_removed_at_last(batch);
    }
}

static void directory_remove(struct zk_batch *batch)
{
    const struct zk_reply *get = batch_reply(batch, 1);
    uint64_t nonce;
    if (directory_is(get, &nonce)) {
        directory_of(batch)->version = get->stat.version;
        batch_delete(batch, batch->path, get->stat.version);
        batch_then(batch, directory_on_removed);
    } else if (get->rc == ZNONODE && batch->was_sent) {
        directory_finish(batch, BACKEND_OK); /* by an earlier try */
    } else {
        directory_finish(batch, get->rc == ZOK && (get->stat.numChildren > 0 || get->stat.ephemeralOwner)
                                    ? BACKEND_NOT_DIRECTORY
                                    : BACKEND_MISSING);
    }
}

static void directory_begin_remove(struct zk_batch *batch)
{
    batch_sync(batch, batch->path);
    batch_get(batch, batch->path);
    batch_then(batch, directory_remove);
}

/* --- attributes --- */

static void directory_begin_set(struct zk_batch *batch);

static void directory_on_set(struct zk_batch *batch)
{
    int rc = batch_reply(batch, 0)->rc;
    if (rc == ZBADVERSION) {
        directory_begin_set(batch);
    } else {
        directory_finish(batch, batch_result(batch, rc));
    }
}

static void directory_set(struct zk_batch *batch)
{
    const struct zk_reply *get = batch_reply(batch, 1);
    struct zk_data data;
    node_decode(get->data, &data);
    if ((get->rc == ZOK && data.directory) || directory_is_root(batch->z, batch->path)) {
        /* keeps the nonce, by which a repeated mkdir recognises its node */
        GBytes *bytes = node_encode_directory(&batch->request->directory, data.nonce, data.further);
        batch_set(batch, batch->path, bytes, get->rc == ZOK ? get->stat.version : -1);
        batch_then(batch, directory_on_set);
        g_bytes_unref(bytes);
    } else {
        directory_finish(batch, BACKEND_MISSING);
    }
    node_data_clear(&data);
}

static void directory_begin_set(struct zk_batch *batch)
{
    batch_sync(batch, batch->path);
    batch_get(batch, batch->path);
    batch_then(batch, directory_set);
}

void directory_start(struct remote_request *request)
{
#define DIRECTORY_FLOW(step)                                                                                           \
    {                                                                                                                  \
        sizeof(struct directory_flow), .begin = step, .failed = directory_failed, .clear = directory_clear             \
    }
    static const struct zk_flow flows[REMOTE_PROCEDURES] = {
        [REMOTE_MKDIR] = DIRECTORY_FLOW(directory_begin_make),
        [REMOTE_RMDIR] = DIRECTORY_FLOW(directory_begin_remove),
        [REMOTE_SET_DIRECTORY] = DIRECTORY_FLOW(directory_begin_set),
    };
    struct zookeeper *z = (struct zookeeper *)request->r;
    const char *leaf;
    int32_t number;
    if (request->procedure == REMOTE_MKDIR && node_parse_number(request->name, &number)) {
        remote_request_answer(request, BACKEND_INVALID, 0); /* such a name would be a ticket of its directory */
        return;
    }
    struct directory_flow *flow = batch_new(z, &flows[request->procedure], request);
    char *parent = remote_parent(request->name, &leaf);
    flow->batch.path = node_path(z, request->name);
    flow->parent = node_path(z, parent);
    g_free(parent);
    flow->nonce = (uint64_t)g_random_int() << 32 | g_random_int();
    batch_start(&flow->batch, 0);
}
