/* directory: nodes that carry our mark.
 *
 * A directory is made empty and is marked in the same step, so what removes nodes that locks have left behind, by their
 * version, does not remove a directory that was made meanwhile.  What is written or removed has the version that was
 * looked at, so that a lock that has taken the name is neither; if it has another, the call looks again.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/zookeeper/private.h"

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
    const struct zk_reply *parent = call_reply(call, 1), *get = call_reply(call, 2);
    uint64_t nonce;
    bool in_directory = directory_is(parent, &nonce) || directory_is_root(call->z, call->after);
    if (!in_directory) {
        directory_tell(call,
                       parent->rc == ZOK && parent->stat.numChildren > 0 ? BACKEND_NOT_DIRECTORY : BACKEND_MISSING);
    } else if (directory_is(get, &nonce)) {
        directory_tell(call, call->was_sent && nonce == call->number ? BACKEND_OK : BACKEND_EXISTS);
    } else if (get->rc == ZOK && (get->stat.numChildren > 0 || get->stat.ephemeralOwner)) {
        directory_tell(call, BACKEND_EXISTS);
    } else {
        call_make(call, call->path, call->kept, get->rc == ZOK ? get->stat.version : -1);
        call_then(call, directory_on_made);
    }
}

static void directory_begin_make(struct zk_call *call)
{
    call_sync(call, call->path); /* as for all that looks before it writes: a follower may be late */
    call_get(call, call->after);
    call_get(call, call->path);
    call_then(call, directory_make);
}

static struct zk_call *directory_call(struct backend *b, const char *name, zk_step *begin, backend_done *done,
                                      void *arg)
{
    struct zookeeper *z = (struct zookeeper *)b;
    const char *leaf;
    if (!node_is_name(name)) {
        done(arg, BACKEND_INVALID);
        return NULL;
    }
    struct zk_call *call = call_new(z, remote_op_done(&z->remote, NULL, done, arg), begin, directory_failed);
    char *parent = remote_parent(name, &leaf);
    call->path = node_path(z, name);
    call->after = node_path(z, parent);
    g_free(parent);
    return call;
}

void zk_mkdir(struct backend *b, const char *name, const struct backend_directory *directory, backend_done *done,
              void *arg)
{
    int32_t number;
    struct zk_call *call = NULL;
    if (!*name || node_number(name, &number)) { /* which would be a ticket of its directory */
        done(arg, *name ? BACKEND_INVALID : BACKEND_EXISTS);
    } else {
        call = directory_call(b, name, directory_begin_make, done, arg);
    }
    if (call) {
        call->number = (uint64_t)g_random_int() << 32 | g_random_int();
        call->kept = node_encode_directory(directory, call->number);
        call_start(call, 0);
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
    for (guint i = 0; i < call->children->len; i++) {
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
    for (guint i = 0; i < call->children->len; i++) {
        call_delete(call, call->children->pdata[i], ((const struct zk_reply *)gets->pdata[i])->stat.version);
    }
    g_ptr_array_unref(gets);
    call_delete(call, call->path, call->stat.version);
    call_then(call, directory_on_removed_at_last);
}

static void directory_on_listed(struct zk_call *call)
{
    char **children = call_reply(call, 0)->children;
    g_clear_pointer(&call->children, g_ptr_array_unref);
    call->children = g_ptr_array_new_with_free_func(g_free);
    for (guint i = 0; children && children[i]; i++) {
        g_ptr_array_add(call->children, node_child(call->path, children[i]));
    }
    for (guint i = 0; i < call->children->len; i++) {
        call_get(call, call->children->pdata[i]);
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
        call->stat = get->stat;
        call_delete(call, call->path, call->stat.version);
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
    struct zk_call *call = directory_call(b, name, directory_begin_remove, done, arg);
    if (call) {
        call_start(call, 0);
    }
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
        struct zk_data data; /* its maker may still have to find out that it was made */
        node_decode(call->kept, &data);
        GBytes *bytes = node_encode_directory(&data.attributes, nonce);
        call_set(call, call->path, bytes, get->rc == ZOK ? get->stat.version : -1);
        call_then(call, directory_on_set);
        g_bytes_unref(bytes);
        node_data_clear(&data);
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
    struct zk_call *call = directory_call(b, name, directory_begin_set, done, arg);
    if (call) {
        call->kept = node_encode_directory(directory, 0);
        call_start(call, 0);
    }
}
