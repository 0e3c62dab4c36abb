/* zookeeper_tree: the nodes of a ZooKeeper server; see zookeeper_tree.h. */
#include "tests/sim/zookeeper_tree.h"

#include <string.h>

struct node {
    GBytes *data;
    struct Stat stat;     /* but numChildren and cversion */
    GHashTable *children; /* names */
    int32_t made;         /* children, ever */
    bool container;
};

struct zktree {
    GHashTable *nodes; /* path → struct node */
    void (*changed)(void *arg, const char *path, int event);
    void *arg;
};

static void node_free(void *data)
{
    struct node *node = data;
    g_bytes_unref(node->data);
    g_hash_table_unref(node->children);
    g_free(node);
}

static struct node *node_new(struct zktree *tree, const char *path, GBytes *data)
{
    struct node *node = g_new0(struct node, 1);
    node->data = data ? g_bytes_ref(data) : g_bytes_new("", 0);
    node->children = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_hash_table_insert(tree->nodes, g_strdup(path), node);
    return node;
}

static struct node *node_at(const struct zktree *tree, const char *path)
{
    return g_hash_table_lookup(tree->nodes, path);
}

static struct node *node_parent(const struct zktree *tree, const char *path, const char **ret_leaf, char **ret_path)
{
    const char *slash = strrchr(path, '/');
    *ret_leaf = slash + 1;
    *ret_path = slash == path ? g_strdup("/") : g_strndup(path, (gsize)(slash - path));
    return node_at(tree, *ret_path);
}

struct zktree *zktree_new(void)
{
    struct zktree *tree = g_new0(struct zktree, 1);
    tree->nodes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, node_free);
    node_new(tree, "/", NULL);
    return tree;
}

void zktree_free(struct zktree *tree)
{
    g_hash_table_unref(tree->nodes);
    g_free(tree);
}

static void tree_tell(const struct zktree *tree, const char *path, int event)
{
    if (tree->changed) {
        tree->changed(tree->arg, path, event);
    }
}

static struct Stat node_stat(const struct node *node)
{
    struct Stat stat = node->stat;
    stat.numChildren = (int32_t)g_hash_table_size(node->children);
    stat.cversion = 2 * node->made - stat.numChildren;
    stat.dataLength = (int32_t)g_bytes_get_size(node->data);
    return stat;
}

/* --- writing: what cannot be done is found out before anything is ------------------------- */

static int tree_create(struct zktree *tree, const struct zktree_request *q, int64_t zxid, int64_t time,
                       struct zktree_answer *answer)
{
    bool sequential = q->mode == ZOO_EPHEMERAL_SEQUENTIAL || q->mode == ZOO_PERSISTENT_SEQUENTIAL;
    bool ephemeral = q->mode == ZOO_EPHEMERAL || q->mode == ZOO_EPHEMERAL_SEQUENTIAL;
    g_autofree char *parent_path = NULL;
    const char *leaf;
    struct node *parent = node_parent(tree, q->path, &leaf, &parent_path);
    if (!parent) {
        return ZNONODE;
    }
    g_autofree char *path = sequential ? g_strdup_printf("%s%010d", q->path, parent->made) : g_strdup(q->path);
    if (node_at(tree, path)) {
        return ZNODEEXISTS;
    }
    if (parent->stat.ephemeralOwner) {
        return ZNOCHILDRENFOREPHEMERALS;
    }
    struct node *node = node_new(tree, path, q->data);
    node->stat = (struct Stat){.czxid = zxid,
                               .mzxid = zxid,
                               .pzxid = zxid,
                               .ctime = time,
                               .mtime = time,
                               .ephemeralOwner = ephemeral ? q->session : 0};
    node->container = q->mode == ZOO_CONTAINER;
    parent->made++;
    parent->stat.pzxid = zxid;
    g_hash_table_add(parent->children, g_strdup(strrchr(path, '/') + 1));
    answer->stat = node_stat(node);
    tree_tell(tree, path, ZOO_CREATED_EVENT);
    tree_tell(tree, parent_path, ZOO_CHILD_EVENT);
    g_free(answer->path);
    answer->path = g_steal_pointer(&path);
    return ZOK;
}

static void tree_remove(struct zktree *tree, const char *path, int64_t zxid)
{
    g_autofree char *parent_path = NULL, *copy = g_strdup(path);
    const char *leaf;
    struct node *parent = node_parent(tree, copy, &leaf, &parent_path);
    g_hash_table_remove(parent->children, leaf);
    parent->stat.pzxid = zxid;
    g_hash_table_remove(tree->nodes, path);
    tree_tell(tree, copy, ZOO_DELETED_EVENT);
    tree_tell(tree, parent_path, ZOO_CHILD_EVENT);
}

static int tree_delete(struct zktree *tree, const struct zktree_request *q, int64_t zxid)
{
    const struct node *node = node_at(tree, q->path);
    if (!node) {
        return ZNONODE;
    }
    if (q->version >= 0 && q->version != node->stat.version) {
        return ZBADVERSION;
    }
    if (g_hash_table_size(node->children)) {
        return ZNOTEMPTY;
    }
    tree_remove(tree, q->path, zxid);
    return ZOK;
}

static int tree_set(struct zktree *tree, const struct zktree_request *q, int64_t zxid, int64_t time,
                    struct zktree_answer *answer)
{
    struct node *node = node_at(tree, q->path);
    if (!node) {
        return ZNONODE;
    }
    if (q->version >= 0 && q->version != node->stat.version) {
        return ZBADVERSION;
    }
    g_bytes_unref(node->data);
    node->data = q->data ? g_bytes_ref(q->data) : g_bytes_new("", 0);
    node->stat.version++;
    node->stat.mzxid = zxid;
    node->stat.mtime = time;
    answer->stat = node_stat(node);
    tree_tell(tree, q->path, ZOO_CHANGED_EVENT);
    return ZOK;
}

static int tree_check(const struct zktree *tree, const struct zktree_request *q)
{
    const struct node *node = node_at(tree, q->path);
    return !node ? ZNONODE : q->version >= 0 && q->version != node->stat.version ? ZBADVERSION : ZOK;
}

static struct zktree *tree_copy(const struct zktree *tree)
{
    struct zktree *copy = g_new0(struct zktree, 1);
    GHashTableIter each, children;
    void *path, *value, *name;
    copy->nodes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, node_free);
    g_hash_table_iter_init(&each, tree->nodes);
    while (g_hash_table_iter_next(&each, &path, &value)) {
        const struct node *from = value;
        struct node *to = node_new(copy, path, from->data);
        to->stat = from->stat;
        to->made = from->made;
        to->container = from->container;
        g_hash_table_iter_init(&children, from->children);
        while (g_hash_table_iter_next(&children, &name, NULL)) {
            g_hash_table_add(to->children, g_strdup(name));
        }
    }
    return copy;
}

static int tree_write(struct zktree *tree, const struct zktree_request *q, int64_t zxid, int64_t time,
                      struct zktree_answer *answer)
{
    return q->kind == ZKTREE_CREATE   ? tree_create(tree, q, zxid, time, answer)
           : q->kind == ZKTREE_DELETE ? tree_delete(tree, q, zxid)
           : q->kind == ZKTREE_CHECK  ? tree_check(tree, q)
                                      : tree_set(tree, q, zxid, time, answer);
}

/* All parts or none: it is tried on a copy. */
static int tree_multi(struct zktree *tree, const struct zktree_request *q, int64_t zxid, int64_t time,
                      struct zktree_answer *answer)
{
    struct zktree *copy = tree_copy(tree);
    int rc = ZOK;
    for (unsigned i = 0; i < q->count; i++) {
        answer->parts[i] = rc == ZOK ? tree_write(copy, q->parts[i], zxid, time, answer) : ZRUNTIMEINCONSISTENCY;
        rc = rc == ZOK ? answer->parts[i] : rc;
    }
    zktree_free(copy);
    for (unsigned i = 0; i < q->count && rc == ZOK; i++) {
        tree_write(tree, q->parts[i], zxid, time, answer);
    }
    return rc;
}

static void tree_close(struct zktree *tree, int64_t session, int64_t zxid)
{
    GPtrArray *paths = zktree_paths(tree);
    for (guint i = 0; i < paths->len; i++) {
        if (session && node_at(tree, paths->pdata[i])->stat.ephemeralOwner == session) {
            tree_remove(tree, paths->pdata[i], zxid);
        }
    }
    g_ptr_array_unref(paths);
}

/* --- looking ---------------------------------------------------------------------------------- */

static int tree_look(const struct zktree *tree, const struct zktree_request *q, struct zktree_answer *answer)
{
    const struct node *node = node_at(tree, q->path);
    if (!node) {
        return ZNONODE;
    }
    answer->stat = node_stat(node);
    if (q->kind == ZKTREE_GET) {
        answer->data = g_bytes_ref(node->data);
    } else if (q->kind == ZKTREE_CHILDREN) {
        GPtrArray *names = g_ptr_array_new();
        GHashTableIter each;
        void *name;
        g_hash_table_iter_init(&each, node->children);
        while (g_hash_table_iter_next(&each, &name, NULL)) {
            g_ptr_array_add(names, g_strdup(name));
        }
        g_ptr_array_add(names, NULL);
        answer->children = (char **)g_ptr_array_free(names, FALSE);
    }
    return ZOK;
}

void zktree_do(struct zktree *tree, const struct zktree_request *q, int64_t zxid, int64_t time,
               void (*changed)(void *arg, const char *path, int event), void *arg, struct zktree_answer *answer)
{
    memset(answer, 0, sizeof *answer);
    tree->changed = changed;
    tree->arg = arg;
    if (q->kind >= ZKTREE_EXISTS) {
        answer->rc = tree_look(tree, q, answer);
    } else if (q->kind == ZKTREE_CLOSE) {
        tree_close(tree, q->session, zxid);
    } else if (q->kind == ZKTREE_MULTI) {
        answer->rc = tree_multi(tree, q, zxid, time, answer);
    } else if (q->kind != ZKTREE_NOTHING) {
        answer->rc = tree_write(tree, q, zxid, time, answer);
    }
}

void zktree_answer_clear(struct zktree_answer *answer)
{
    g_clear_pointer(&answer->path, g_free);
    g_clear_pointer(&answer->children, g_strfreev);
    g_clear_pointer(&answer->data, g_bytes_unref);
}

void zktree_request_free(struct zktree_request *request)
{
    for (unsigned i = 0; i < request->count; i++) {
        zktree_request_free(request->parts[i]);
    }
    g_clear_pointer(&request->data, g_bytes_unref);
    g_free(request->path);
    g_free(request);
}

static int tree_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

GPtrArray *zktree_paths(const struct zktree *tree)
{
    GPtrArray *paths = g_ptr_array_new_with_free_func(g_free);
    GHashTableIter each;
    void *path;
    g_hash_table_iter_init(&each, tree->nodes);
    while (g_hash_table_iter_next(&each, &path, NULL)) {
        g_ptr_array_add(paths, g_strdup(path));
    }
    g_ptr_array_sort(paths, tree_compare);
    return paths;
}

GPtrArray *zktree_empty_containers(const struct zktree *tree)
{
    GPtrArray *paths = zktree_paths(tree);
    for (guint i = paths->len; i-- > 0;) {
        const struct node *node = node_at(tree, paths->pdata[i]);
        if (!node->container || node->made == 0 || g_hash_table_size(node->children)) {
            g_ptr_array_remove_index(paths, i);
        }
    }
    return paths;
}
