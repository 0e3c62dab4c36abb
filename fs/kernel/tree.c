/* tree: names and inodes; see tree.h. */
#include "fs/kernel/tree.h"

#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/fs.h"
#include "fs/kernel/notify.h"

static struct node *tree_node_new(struct tree *tree, struct node *parent, const char *name, mode_t type)
{
    size_t length = strlen(name) + 1;
    struct node *node = backend_new0(MAX(sizeof *node, offsetof(struct node, made_as) + length));
    memcpy(node->made_as, name, length);
    node->parent = parent ? tree_ref(parent) : NULL;
    node->ino = tree->next_ino++;
    node->references = 1;
    node->mode = (uint16_t)type;
    if (S_ISDIR(type)) {
        node->directory = g_new0(struct node_directory, 1);
        node->directory->attributes.width = 1;
    }
    return node;
}

struct node_past *tree_ensure_past(struct node *node)
{
    if (!node->past) {
        node->past = g_new0(struct node_past, 1);
    }
    return node->past;
}

void tree_note_ended(struct node *node)
{
    tree_ensure_past(node)->lock_ended = (uint32_t)clock_now();
}

bool tree_ended_within(const struct node *node, uint32_t within)
{
    return node->past && node->past->lock_ended && (uint32_t)clock_now() - node->past->lock_ended < within;
}

struct tree *tree_new(void)
{
    struct tree *tree = g_new0(struct tree, 1);
    nametable_init(&tree->names);
    tree->links = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    nametable_init(&tree->unnamed);
    tree->displaced = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)g_ptr_array_unref);
    tree->next_ino = FUSE_ROOT_ID;
    tree->root = tree_node_new(tree, NULL, "", S_IFDIR);
    return tree;
}

void tree_set_notify(struct tree *tree, struct notify *notify)
{
    tree->notify = notify;
}

static void tree_node_free(struct node *node)
{
    if (node->directory && node->directory->attributes.meta) {
        g_bytes_unref(node->directory->attributes.meta);
    }
    if (node->past) {
        g_free(node->past->name);
    }
    g_free(node->past);
    g_free(node->directory);
    g_free(node);
}

static void tree_free_one(void *arg, struct node *node)
{
    (void)arg;
    tree_node_free(node);
}

void tree_free(struct tree *tree)
{
    if (!tree) {
        return;
    }
    nametable_each(&tree->names, tree_free_one, NULL);
    nametable_clear(&tree->names);
    nametable_each(&tree->unnamed, tree_free_one, NULL);
    nametable_clear(&tree->unnamed);
    while (!g_queue_is_empty(&tree->deferred)) {
        tree_node_free(g_queue_pop_head(&tree->deferred));
    }
    g_hash_table_destroy(tree->links);
    g_hash_table_destroy(tree->displaced);
    tree_node_free(tree->root);
    g_free(tree);
}

static gpointer tree_displaced_key(const struct tree *tree, const struct node *parent, const char *name)
{
    return GUINT_TO_POINTER(nametable_hash(&tree->names, parent, name));
}

static void tree_set_displaced(struct tree *tree, struct node *node, bool displaced)
{
    if (displaced == node->displaced) {
        return;
    }
    gpointer key = tree_displaced_key(tree, node->parent, tree_name(node));
    GPtrArray *nodes = g_hash_table_lookup(tree->displaced, key);
    if (displaced && !nodes) {
        nodes = g_ptr_array_new();
        g_hash_table_insert(tree->displaced, key, nodes);
    }
    if (displaced) {
        g_ptr_array_add(nodes, node);
    } else if (g_ptr_array_remove_fast(nodes, node) && nodes->len == 0) {
        g_hash_table_remove(tree->displaced, key);
    }
    node->displaced = displaced;
}

static bool tree_is_used(const struct node *node)
{
    return !LIST_EMPTY(&node->handles) || !LIST_EMPTY(&node->holds) || !LIST_EMPTY(&node->waiting);
}

struct node *tree_next_displaced(struct tree *tree, const struct node *parent, const char *name, unsigned *at)
{
    const GPtrArray *nodes = g_hash_table_lookup(tree->displaced, tree_displaced_key(tree, parent, name));
    while (nodes && *at < nodes->len) {
        struct node *node = g_ptr_array_index(nodes, (*at)++);
        if (tree_is_used(node) && node->parent == parent && strcmp(tree_name(node), name) == 0) {
            return node;
        }
    }
    return NULL;
}

struct node *tree_find(struct tree *tree, const struct node *parent, const char *name)
{
    struct node *node = nametable_find(&tree->names, parent, name);
    if (!node) {
        node = tree_next_displaced(tree, parent, name, &(unsigned){0});
        if (node) {
            tree_attach(tree, node);
        }
    }
    return node;
}

struct node *tree_find_path(struct tree *tree, const char *path)
{
    struct node *node = tree->root;
    char **names = g_strsplit(path, "/", -1);
    for (size_t i = 0; node && names[i]; i++) {
        node = tree_find(tree, node, names[i]);
    }
    g_strfreev(names);
    return node;
}

bool tree_same_path(const struct node *a, const struct node *b)
{
    while (a != b && a && b && strcmp(tree_name(a), tree_name(b)) == 0) {
        a = a->parent;
        b = b->parent;
    }
    return a == b;
}

static struct node *tree_found_by_path(struct tree *tree, struct node *node)
{
    const struct node *parent = node->parent ? tree_found_by_path(tree, node->parent) : NULL;
    if (node == tree->root || (parent == node->parent && node->hashed)) {
        return node;
    }
    return parent ? tree_find(tree, parent, tree_name(node)) : NULL;
}

struct node *tree_current_node(struct tree *tree, struct node *node)
{
    struct node *found = tree_found_by_path(tree, node);
    return found ? found : node;
}

struct node *tree_get(struct tree *tree, struct node *node, struct node *parent, const char *name, mode_t type)
{
    if (node && (node->mode & S_IFMT) == (type & S_IFMT)) {
        return tree_ref(node);
    }
    if (node) {
        tree_detach(tree, node);
    }
    node = tree_node_new(tree, parent, name, type);
    node->hashed = true;
    nametable_add(&tree->names, node);
    return node;
}

struct node *tree_make(struct tree *tree, struct node *parent, const char *name, mode_t type)
{
    struct node *node = tree_node_new(tree, parent, name, type);
    nametable_add_nameless(&tree->unnamed, node);
    return node;
}

static void tree_take_one(void *all, struct node *node)
{
    g_ptr_array_add(all, tree_ref(node));
}

GPtrArray *tree_all(struct tree *tree)
{
    GPtrArray *all = g_ptr_array_new();
    nametable_each(&tree->names, tree_take_one, all);
    nametable_each(&tree->unnamed, tree_take_one, all);
    return all;
}

static void tree_defer_free(struct tree *tree, struct node *node)
{
    uint64_t sent = tree->notify ? notify_last_sent(tree->notify) : UINT64_MAX;
    struct node *first;
    if (node->past && node->past->deleted > sent) {
        g_queue_push_tail(&tree->deferred, node);
    } else {
        tree_node_free(node);
    }
    while ((first = g_queue_peek_head(&tree->deferred)) && first->past->deleted <= sent) {
        tree_node_free(g_queue_pop_head(&tree->deferred));
    }
}

void tree_reap(struct tree *tree, struct node *node)
{
    while (node->references == 0 && node->lookups == 0 && node != tree->root) {
        struct node *parent = node->parent;
        nametable_remove(node->hashed ? &tree->names : &tree->unnamed, node);
        tree_set_displaced(tree, node, false);
        tree_unlink(tree, node);
        tree_defer_free(tree, node);
        parent->references--;
        node = parent;
    }
}

void tree_forget(struct tree *tree, struct node *node, uint64_t count)
{
    node->lookups -= count < node->lookups ? count : node->lookups;
    tree_reap(tree, node);
}

void tree_detach(struct tree *tree, struct node *node)
{
    if (node->hashed) {
        nametable_remove(&tree->names, node);
        nametable_add_nameless(&tree->unnamed, node);
        node->hashed = false;
        tree_set_displaced(tree, node, tree_is_used(node));
    }
}

void tree_attach(struct tree *tree, struct node *node)
{
    if (!node->hashed && node->parent && !nametable_find(&tree->names, node->parent, tree_name(node))) {
        nametable_remove(&tree->unnamed, node);
        nametable_add(&tree->names, node);
        node->hashed = true;
        tree_set_displaced(tree, node, false);
    }
}

void tree_rename(struct tree *tree, struct node *node, struct node *parent, const char *name)
{
    struct node *there = tree_find(tree, parent, name);
    struct node *before = node->parent;
    if (there && there != node) {
        tree_detach(tree, there);
    }
    tree_detach(tree, node);
    tree_set_displaced(tree, node, false); /* a look-up of its new name finds it */
    char *old = tree_ensure_past(node)->name;
    node->past->name = g_strdup(name);
    g_free(old);
    node->parent = tree_ref(parent);
    tree_unref(tree, before);
    tree_attach(tree, node);
}

void tree_invalidate(struct tree *tree, struct node *node)
{
    if (node->shown) {
        node->shown = false;
        tree_ensure_past(node)->expired = notify_invalidate(tree->notify, tree_id(tree, node));
    }
}

void tree_link(struct tree *tree, struct node *node, struct node *other)
{
    unsigned links = tree_links(tree, other);
    int64_t *key = g_new(int64_t, 1);
    *key = (int64_t)other->ino;
    node->ino = other->ino;
    node->linked = other->linked = true;
    g_hash_table_replace(tree->links, key, GUINT_TO_POINTER(links + 1));
    if (other->shown || other->made) { /* who asked looks next at how many links there are */
        other->shown = other->made = false;
        notify_invalidate_now(tree->notify, tree_id(tree, other));
    }
}

void tree_unlink(struct tree *tree, struct node *node)
{
    if (!node->linked) {
        return;
    }
    int64_t key = (int64_t)node->ino;
    unsigned links = GPOINTER_TO_UINT(g_hash_table_lookup(tree->links, &key));
    if (links > 2) {
        int64_t *copy = g_memdup2(&key, sizeof key);
        g_hash_table_replace(tree->links, copy, GUINT_TO_POINTER(links - 1));
    } else {
        g_hash_table_remove(tree->links, &key);
    }
    node->linked = false;
    if (LIST_EMPTY(&node->handles)) { /* else the kernel knows that file by its number, also when we have ended */
        node->ino = tree->next_ino++; /* the next lock of this name is another file */
    }
}

bool tree_path(const struct node *node, char *buffer, size_t size)
{
    size_t length = 0;
    for (const struct node *at = node; at->parent; at = at->parent) {
        length += strlen(tree_name(at)) + (at->parent->parent ? 1 : 0);
    }
    if (length >= size) {
        return false;
    }
    buffer[length] = '\0';
    for (const struct node *at = node; at->parent; at = at->parent) {
        size_t part = strlen(tree_name(at));
        length -= part;
        memcpy(buffer + length, tree_name(at), part);
        if (at->parent->parent) {
            buffer[--length] = '/';
        }
    }
    return true;
}

bool tree_child_path(const struct node *parent, const char *name, char *buffer, size_t size)
{
    size_t part = strlen(name) + 1;
    if (!parent->parent) {
        if (part > size) {
            return false;
        }
        memcpy(buffer, name, part);
        return true;
    }
    if (!tree_path(parent, buffer, size)) {
        return false;
    }
    size_t length = strlen(buffer);
    if (length + 1 + part > size) {
        return false;
    }
    buffer[length] = '/';
    memcpy(buffer + length + 1, name, part);
    return true;
}
