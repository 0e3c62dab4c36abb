/* directory: nodes that carry our mark.
 *
 * A directory is made empty and is marked in the same step, so what removes nodes that locks have left behind, by their
 * version, does not remove a directory that was made meanwhile.  What is written or removed has the version that was
 * looked at, so that a lock that has taken the name is neither; if it has another, the call looks again.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

struct directory_flow {
    struct zk_call call;
    char *parent;                        /* the node of the directory that it is in */
    uint64_t nonce;                      /* of mkdir: marks the node that this call made */
    struct backend_directory attributes; /* of mkdir and set_directory; meta is owned */
    int32_t version;                     /* of rmdir: the node's when it was read */
    GPtrArray *left;                     /* of rmdir: nodes in it that locks may have left behind */
};

static struct directory_flow *directory_of(struct zk_call *call)
{
    return (struct directory_flow *)call;
}

static void directory_clear(struct zk_call *call)
{
    struct directory_flow *flow = directory_of(call);
    g_free(flow->parent);
    g_clear_pointer(&flow->attributes.meta, g_bytes_unref);
    g_clear_pointer(&flow->left, g_ptr_array_unref);
}

static void directory_tell(struct zk_call *call, enum backend_result result)
{
    struct remote_op *op = call->op;
    call->op = NULL;
    call_end(call);
    remote_op_finish(op, result);
}

static void directory_failed(struct zk_call *call, enum remote_outcome outcome)
{
    (void)outcome;
    remote_op_finish(call->op, BACKEND_UNREACHABLE);
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

static void directory_begin_make(struct zk_call *call);

static void directory_on_made(struct zk_call *call)
{
    int rc = call_reply(call, 0)->rc;
    if (rc == ZNONODE) { /* what a lock had left is gone, or the parent is */
        directory_begin_make(call);
        return;
    }
    directory_tell(call, rc == ZNOTEMPTY || rc == ZBADVERSION ? BACKEND_EXISTS : call_result(call, rc));
}

static void directory_make(struct zk_call *call)
{
    const struct directory_flow *flow = directory_of(call);
    const struct zk_reply *parent = call_reply(call, 1), *get = call_reply(call, 2);
    uint64_t nonce;
    bool in_directory = directory_is(parent, &nonce) || directory_is_root(call->z, flow->parent);
    if (!in_directory) {
        directory_tell(call,
                       parent->rc == ZOK && parent->stat.numChildren > 0 ? BACKEND_NOT_DIRECTORY : BACKEND_MISSING);
    } else if (directory_is(get, &nonce)) {
        directory_tell(call, call->was_sent && nonce == flow->nonce ? BACKEND_OK : BACKEND_EXISTS);
    } else if (get->rc == ZOK && (get->stat.numChildren > 0 || get->stat.ephemeralOwner)) {
        directory_tell(call, BACKEND_EXISTS);
    } else {
        GBytes *data = node_encode_directory(&flow->attributes, flow->nonce);
        call_make(call, call->path, data, get->rc == ZOK ? get->stat.version : -1);
        call_then(call, directory_on_made);
        g_bytes_unref(data);
    }
}

static void directory_begin_make(struct zk_call *call)
{
    call_sync(call, call->path); /* as for all that looks before it writes: a follower may be late */
    call_get(call, directory_of(call)->parent);
    call_get(call, call->path);
    call_then(call, directory_make);
}

/* `directory` NULL: it has no attributes. */
static void directory_start(struct backend *b, const struct zk_flow *kind, const char *name,
                            const struct backend_directory *directory, backend_done *done, void *arg)
{
    struct zookeeper *z = (struct zookeeper *)b;
    const char *leaf;
    if (!node_is_name(name)) {
        done(arg, BACKEND_INVALID);
        return;
    }
    struct directory_flow *flow = call_new(z, kind, remote_op_done(&z->remote, NULL, done, arg));
    char *parent = remote_parent(name, &leaf);
    flow->call.path = node_path(z, name);
    flow->parent = node_path(z, parent);
    g_free(parent);
    if (directory) {
        flow->attributes = *directory;
        flow->attributes.meta = directory->meta ? g_bytes_ref(directory->meta) : NULL;
    }
    flow->nonce = (uint64_t)g_random_int() << 32 | g_random_int();
    call_start(&flow->call, 0);
}

void zk_mkdir(struct backend *b, const char *name, const struct backend_directory *directory, backend_done *done,
              void *arg)
{
    static const struct zk_flow make = {sizeof(struct directory_flow), .begin = directory_begin_make,
                                        .failed = directory_failed, .clear = directory_clear};
    int32_t number;
    if (!*name || node_number(name, &number)) { /* which would be a ticket of its directory */
        done(arg, *name ? BACKEND_INVALID : BACKEND_EXISTS);
    } else {
        directory_start(b, &make, name, directory, done, arg);
    }
}

/* --- rmdir --- */

static void directory_begin_remove(struct zk_call *call);

static void directory_on_removed_at_last(struct zk_call *call)
{
    int rc = call_reply(call, call->replies->len - 1)->rc;
    if (rc == ZBADVERSION) {
        directory_begin_remove(call);
    } else {
        directory_tell(call, call_result(call, rc));
    }
}

/* What locks have left behind is removed: nodes without data, children and session. */
static void directory_on_children(struct zk_call *call)
{
    const struct directory_flow *flow = directory_of(call);
    for (guint i = 0; i < flow->left->len; i++) {
        const struct zk_reply *get = call_reply(call, i);
        struct zk_data data;
        node_decode(get->data, &data);
        node_data_clear(&data);
        bool left = (get->stat.version == 0 && get->stat.dataLength == 0) || *data.held;
        if (get->rc == ZOK && (get->stat.numChildren || get->stat.ephemeralOwner || !left)) {
            directory_tell(call, BACKEND_NOT_EMPTY);
            return;
        }
    }
    GPtrArray *gets = g_ptr_array_ref(call->replies);
    for (guint i = 0; i < flow->left->len; i++) {
        call_delete(call, flow->left->pdata[i], ((const struct zk_reply *)gets->pdata[i])->stat.version);
    }
    g_ptr_array_unref(gets);
    call_delete(call, call->path, flow->version);
    call_then(call, directory_on_removed_at_last);
}

static void directory_on_listed(struct zk_call *call)
{
    struct directory_flow *flow = directory_of(call);
    char **children = call_reply(call, 0)->children;
    g_clear_pointer(&flow->left, g_ptr_array_unref);
    flow->left = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; children && children[i]; i++) {
        g_ptr_array_add(flow->left, node_child(call->path, children[i]));
    }
    for (guint i = 0; i < flow->left->len; i++) {
        call_get(call, flow->left->pdata[i]);
    }
    call_then(call, directory_on_children);
}

static void directory_on_removed(struct zk_call *call)
{
    if (call_reply(call, 0)->rc == ZNOTEMPTY) {
        call_children(call, call->path, false);
        call_then(call, directory_on_listed);
    } else {
        directory_on_removed_at_last(call);
    }
}

static void directory_remove(struct zk_call *call)
{
    const struct zk_reply *get = call_reply(call, 1);
    uint64_t nonce;
    if (directory_is(get, &nonce)) {
        directory_of(call)->version = get->stat.version;
        call_delete(call, call->path, get->stat.version);
        call_then(call, directory_on_removed);
    } else if (get->rc == ZNONODE && call->was_sent) {
        directory_tell(call, BACKEND_OK); /* by an earlier try */
    } else {
        directory_tell(call, get->rc == ZOK && (get->stat.numChildren > 0 || get->stat.ephemeralOwner)
                                 ? BACKEND_NOT_DIRECTORY
                                 : BACKEND_MISSING);
    }
}

static void directory_begin_remove(struct zk_call *call)
{
    call_sync(call, call->path);
    call_get(call, call->path);
    call_then(call, directory_remove);
}

void zk_rmdir(struct backend *b, const char *name, backend_done *done, void *arg)
{
    if (!*name) {
        done(arg, BACKEND_INVALID);
        return;
    }
    static const struct zk_flow remove = {sizeof(struct directory_flow), .begin = directory_begin_remove,
                                          .failed = directory_failed, .clear = directory_clear};
    directory_start(b, &remove, name, NULL, done, arg);
}

/* --- attributes --- */

static void directory_begin_set(struct zk_call *call);

static void directory_on_set(struct zk_call *call)
{
    int rc = call_reply(call, 0)->rc;
    if (rc == ZBADVERSION) {
        directory_begin_set(call);
    } else {
        directory_tell(call, call_result(call, rc));
    }
}

static void directory_set(struct zk_call *call)
{
    const struct zk_reply *get = call_reply(call, 1);
    uint64_t nonce;
    if (directory_is(get, &nonce) || directory_is_root(call->z, call->path)) {
        /* with the nonce of its maker, which may still have to find out that it was made */
        GBytes *bytes = node_encode_directory(&directory_of(call)->attributes, nonce);
        call_set(call, call->path, bytes, get->rc == ZOK ? get->stat.version : -1);
        call_then(call, directory_on_set);
        g_bytes_unref(bytes);
    } else {
        directory_tell(call, BACKEND_MISSING);
    }
}

static void directory_begin_set(struct zk_call *call)
{
    call_sync(call, call->path);
    call_get(call, call->path);
    call_then(call, directory_set);
}

void zk_set_directory(struct backend *b, const char *name, const struct backend_directory *directory,
                      backend_done *done, void *arg)
{
    static const struct zk_flow set = {sizeof(struct directory_flow), .begin = directory_begin_set,
                                       .failed = directory_failed, .clear = directory_clear};
    directory_start(b, &set, name, directory, done, arg);
}
