/* tree: names and inodes; see tree.h. */
#include "fs/kernel/tree.h"

#include <glib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "fs/fs.h"
#include "fs/kernel/notify.h"

/* --- records ----------------------------------------------------------------------- */

struct node *tree_node(struct tree *tree, uint64_t id)
{
    const struct node_record *record = id == FUSE_ROOT_ID ? &tree->root_record : keep_record_find(tree->nodes, id);
    return record ? record->node : NULL;
}

/* 0 for the root, and for a node that found no record: the kernel does not get it. */
static uint64_t tree_number(const struct tree *tree, const struct node *node)
{
    return node == tree->root || !node->recorded ? 0 : keep_record_number(tree->nodes, node->record);
}

uint64_t tree_id(struct tree *tree, const struct node *node)
{
    return node == tree->root ? FUSE_ROOT_ID : tree_number(tree, node);
}

static void tree_take_spare(struct tree *tree)
{
    uint64_t number;
    tree->spare = keep_record_new(tree->nodes, &number);
}

static uint32_t tree_record_link(const struct tree *tree, const struct node *node)
{
    return node == tree->root || !node->recorded ? 0 : keep_record_index(tree->nodes, node->record) + 1;
}

static void tree_free_long_name(struct tree *tree, struct node_record *record)
{
    uint64_t next = record->long_name;
    record->long_name = 0;
    while (next) {
        struct node_name *piece = keep_record_at(tree->long_names, (uint32_t)next - 1);
        next = piece->next;
        keep_record_free(tree->long_names, piece);
    }
}

/* From the last piece to the first, so that none leads to one that is not there.  A piece that finds no room is left
 * out: the next daemon does not find the node by its name. */
static void tree_keep_long_name(struct tree *tree, struct node_record *record, const char *name)
{
    uint64_t number = keep_record_number(tree->nodes, record), next = 0;
    for (size_t at = (strlen(name) - 1) / NODE_NAME_PIECE + 1; at-- > 0;) {
        uint64_t piece_number;
        struct node_name *piece = keep_record_new(tree->long_names, &piece_number);
        if (!piece) {
            break;
        }
        piece->node = number;
        piece->next = next;
        memcpy(piece->piece, name + at * NODE_NAME_PIECE, strnlen(name + at * NODE_NAME_PIECE, NODE_NAME_PIECE));
        keep_record_commit(tree->long_names, piece);
        next = (uint32_t)piece_number + UINT64_C(1);
    }
    KEEP_STORE(record->long_name, (uint32_t)next);
}

/* A table that is full costs a directory its mtime when the next daemon begins. */
static struct node_directory *tree_directory_new(struct tree *tree, struct node_directory_record *record,
                                                 uint64_t number)
{
    struct node_directory *directory = g_new0(struct node_directory, 1);
    uint64_t ignored;
    directory->attributes.width = 1;
    directory->record = record ? record : keep_record_new(tree->directories, &ignored);
    directory->recorded = directory->record != NULL;
    if (!directory->recorded) {
        directory->record = g_new0(struct node_directory_record, 1);
    } else if (!record) {
        directory->record->node = number;
        keep_record_commit(tree->directories, directory->record);
    }
    return directory;
}

static bool tree_is_long(const char *name)
{
    return strlen(name) >= NODE_NAME_SHORT;
}

static struct node *tree_node_alloc(const char *name)
{
    struct node *node =
        backend_new0(MAX(sizeof *node, offsetof(struct node, made_as) + (tree_is_long(name) ? strlen(name) + 1 : 0)));
    if (tree_is_long(name)) {
        strcpy(node->made_as, name);
    }
    return node;
}

static uint64_t tree_next_ino(struct tree *tree)
{
    struct node_directory_record *root = tree->root->directory->record;
    KEEP_STORE(root->next_ino, root->next_ino + 1);
    return root->next_ino - 1;
}

static struct node *tree_node_new(struct tree *tree, struct node *parent, const char *name, mode_t type)
{
    struct node *node = tree_node_alloc(name);
    node->parent = tree_ref(parent);
    node->references = 1;
    node->recorded = tree->spare != NULL;
    node->record = tree->spare ? tree->spare : g_new0(struct node_record, 1);
    node->record->node = node;
    node->record->ino = tree_next_ino(tree);
    node->record->mode = (uint16_t)type;
    node->record->parent = tree_record_link(tree, parent);
    if (!tree_is_long(name)) {
        strcpy(node->record->name, name);
    } else if (node->recorded) {
        tree_keep_long_name(tree, node->record, name);
    } else {
        node->record->long_name = 1;
    }
    if (S_ISDIR(type)) {
        node->directory = tree_directory_new(tree, NULL, tree_number(tree, node));
    }
    if (node->recorded) {
        keep_record_commit(tree->nodes, node->record);
        tree_take_spare(tree);
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

void tree_set_notify(struct tree *tree, struct notify *notify)
{
    tree->notify = notify;
}

/* Not what is kept for the next daemon. */
static void tree_node_discard(struct node *node)
{
    if (node->directory && node->directory->attributes.meta) {
        g_bytes_unref(node->directory->attributes.meta);
    }
    if (node->directory && !node->directory->recorded) {
        g_free(node->directory->record);
    }
    g_free(node->directory);
    if (node->past) {
        g_free(node->past->name);
    }
    g_free(node->past);
    if (node->recorded) {
        node->record->node = NULL;
    } else if (node->parent) {
        g_free(node->record);
    }
    g_free(node);
}

static void tree_node_free(struct tree *tree, struct node *node)
{
    struct node_record *record = node->recorded ? node->record : NULL;
    struct node_directory_record *directory =
        node->directory && node->directory->recorded ? node->directory->record : NULL;
    tree_node_discard(node);
    if (record) {
        tree_free_long_name(tree, record);
        keep_record_free(tree->nodes, record);
    }
    if (directory) {
        keep_record_free(tree->directories, directory);
    }
    if (!tree->spare) {
        tree_take_spare(tree);
    }
}

static void tree_free_one(void *arg, struct node *node)
{
    (void)arg;
    tree_node_discard(node);
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
    g_hash_table_destroy(tree->links);
    g_hash_table_destroy(tree->displaced);
    g_ptr_array_free(tree->restored, TRUE);
    tree_node_discard(tree->root);
    if (tree->spare) {
        keep_record_free(tree->nodes, tree->spare);
    }
    g_free(tree);
}

/* --- what an earlier daemon has left ------------------------------------------------ */

/* Its whole name, as a new string; NULL: it is damaged. */
static char *tree_kept_name(struct tree *tree, const struct node_record *record)
{
    if (!record->long_name) {
        return memchr(record->name, '\0', sizeof record->name) ? g_strdup(record->name) : NULL;
    }
    GString *name = g_string_new(NULL);
    uint64_t number = keep_record_number(tree->nodes, record), next = record->long_name;
    while (next && name->len <= NAME_BYTES_MAX) {
        const struct node_name *piece = keep_record_at(tree->long_names, (uint32_t)next - 1);
        if (!piece || piece->node != number) {
            break;
        }
        g_string_append_len(name, piece->piece, (gssize)strnlen(piece->piece, sizeof piece->piece));
        next = piece->next;
    }
    return g_string_free(name, next || name->len > NAME_BYTES_MAX || name->len < NODE_NAME_SHORT);
}

static struct node *tree_restore(struct tree *tree, struct node_record *record)
{
    g_autofree char *name = tree_kept_name(tree, record);
    bool known = S_ISREG(record->mode) || S_ISLNK(record->mode) || S_ISDIR(record->mode);
    if (!name || !*name || strchr(name, '/') || !known || record->ino <= FUSE_ROOT_ID) {
        return NULL;
    }
    struct node *node = tree_node_alloc(name);
    node->recorded = true;
    node->record = record;
    node->references = 1;
    return node;
}

static struct node *tree_parent_of(struct tree *tree, const struct node_record *record)
{
    const struct node_record *parent = record->parent ? keep_record_at(tree->nodes, record->parent - 1) : NULL;
    struct node *node = !record->parent ? tree->root : parent ? parent->node : NULL;
    return node && S_ISDIR(node->record->mode) ? node : NULL;
}

/* Do its directories lead to the root? */
static bool tree_has_way(struct tree *tree, const struct node *node)
{
    const struct node *at = node;
    for (unsigned depth = 0; at && at != tree->root && depth < TREE_PATH_MAX; depth++) {
        at = tree_parent_of(tree, at->record);
    }
    return at == tree->root;
}

static void tree_set_links(struct tree *tree, uint64_t ino, unsigned links)
{
    int64_t *key = g_new(int64_t, 1);
    *key = (int64_t)ino;
    g_hash_table_replace(tree->links, key, GUINT_TO_POINTER(links));
}

static void tree_join(struct tree *tree, struct node *node)
{
    node->parent = tree_ref(tree_parent_of(tree, node->record));
    bool named = node->record->hashed && !nametable_find(&tree->names, node->parent, tree_name(node));
    node->record->hashed = named;
    if (named) {
        nametable_add(&tree->names, node);
    } else {
        nametable_add_nameless(&tree->unnamed, node);
    }
    if (node->record->linked) {
        uint64_t ino = node->record->ino;
        tree_set_links(tree, ino, GPOINTER_TO_UINT(g_hash_table_lookup(tree->links, &ino)) + 1);
    }
}

static void tree_restore_directories(struct tree *tree)
{
    struct node_directory_record *record, *next;
    for (record = keep_record_next(tree->directories, NULL); record; record = next) {
        next = keep_record_next(tree->directories, record);
        struct node *node = record->node ? tree_node(tree, record->node) : tree->root;
        if (node && S_ISDIR(node->record->mode) && !node->directory) {
            node->directory = tree_directory_new(tree, record, 0);
        } else {
            keep_record_free(tree->directories, record);
        }
    }
}

static void tree_restore_root(struct tree *tree)
{
    struct node *root = tree->root = g_new0(struct node, 1);
    root->references = 1;
    root->record = &tree->root_record;
    tree->root_record = (struct node_record){.node = root, .ino = FUSE_ROOT_ID, .mode = S_IFDIR};
    tree_restore_directories(tree);
    if (!root->directory) {
        root->directory = tree_directory_new(tree, NULL, 0);
    }
    root->directory->record->next_ino = MAX(root->directory->record->next_ino, FUSE_ROOT_ID + 1);
}

static void tree_forget_record(struct tree *tree, struct node_record *record)
{
    tree_free_long_name(tree, record);
    keep_record_free(tree->nodes, record);
}

static void tree_restore_all(struct tree *tree)
{
    struct node_record *record, *next;
    GPtrArray *nodes = g_ptr_array_new();
    for (record = keep_record_next(tree->nodes, NULL); record; record = keep_record_next(tree->nodes, record)) {
        record->node = tree_restore(tree, record);
    }
    tree_restore_root(tree);
    for (record = keep_record_next(tree->nodes, NULL); record; record = next) {
        next = keep_record_next(tree->nodes, record);
        struct node *node = record->node;
        if (!node) {
            tree_forget_record(tree, record);
        } else if (!tree_has_way(tree, node)) {
            g_ptr_array_add(nodes, node);
        } else {
            tree_join(tree, node);
            g_ptr_array_add(tree->restored, node);
        }
    }
    for (guint i = 0; i < nodes->len; i++) { /* now, because the others' ways have led through them */
        struct node *node = g_ptr_array_index(nodes, i);
        record = node->record;
        tree_node_discard(node);
        tree_forget_record(tree, record);
    }
    g_ptr_array_free(nodes, TRUE);
}

struct tree *tree_new(struct keep *keep)
{
    struct tree *tree = g_new0(struct tree, 1);
    nametable_init(&tree->names);
    tree->links = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL);
    nametable_init(&tree->unnamed);
    tree->displaced = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)g_ptr_array_unref);
    tree->nodes = keep_table(keep, KEEP_NODES);
    tree->long_names = keep_table(keep, KEEP_NAMES);
    tree->directories = keep_table(keep, KEEP_DIRECTORIES);
    tree->restored = g_ptr_array_new();
    tree_restore_all(tree);
    tree_take_spare(tree);
    return tree;
}

struct node *tree_restored_control(struct tree *tree, uint8_t control)
{
    for (guint i = 0; i < tree->restored->len; i++) {
        struct node *node = g_ptr_array_index(tree->restored, i);
        if (node->record->control == control) {
            return tree_ref(node);
        }
    }
    return NULL;
}

static bool tree_is_used(const struct node *node);
static void tree_set_displaced(struct tree *tree, struct node *node, bool displaced);

void tree_drop_unknown(struct tree *tree)
{
    for (guint i = 0; i < tree->restored->len; i++) {
        struct node *node = g_ptr_array_index(tree->restored, i);
        if (!node->record->hashed && tree_is_used(node)) {
            tree_set_displaced(tree, node, true);
        }
        tree_unref(tree, node);
    }
    g_ptr_array_set_size(tree->restored, 0);
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
    unsigned at = 0;
    if (!node) {
        do { /* one that is only open has had its lock: the next is another file */
            node = tree_next_displaced(tree, parent, name, &at);
        } while (node && LIST_EMPTY(&node->holds) && LIST_EMPTY(&node->waiting));
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
    if (node == tree->root || (parent == node->parent && node->record->hashed)) {
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
    if (node && (node->record->mode & S_IFMT) == (type & S_IFMT)) {
        return tree_ref(node);
    }
    if (node) {
        tree_detach(tree, node);
    }
    node = tree_node_new(tree, parent, name, type);
    node->record->hashed = true;
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

void tree_reap(struct tree *tree, struct node *node)
{
    while (node->references == 0 && node->record->lookups == 0 && node != tree->root) {
        struct node *parent = node->parent;
        nametable_remove(node->record->hashed ? &tree->names : &tree->unnamed, node);
        tree_set_displaced(tree, node, false);
        tree_unlink(tree, node);
        tree_node_free(tree, node);
        parent->references--;
        node = parent;
    }
}

void tree_forget(struct tree *tree, struct node *node, uint64_t count)
{
    uint32_t lookups = node->record->lookups;
    if (lookups < UINT32_MAX) {
        KEEP_STORE(node->record->lookups, lookups - (uint32_t)MIN(count, lookups));
    }
    tree_reap(tree, node);
}

void tree_detach(struct tree *tree, struct node *node)
{
    if (node->record->hashed) {
        nametable_remove(&tree->names, node);
        nametable_add_nameless(&tree->unnamed, node);
        node->record->hashed = false;
        tree_set_displaced(tree, node, tree_is_used(node));
    }
}

void tree_attach(struct tree *tree, struct node *node)
{
    if (!node->record->hashed && node->parent && !nametable_find(&tree->names, node->parent, tree_name(node))) {
        nametable_remove(&tree->unnamed, node);
        nametable_add(&tree->names, node);
        node->record->hashed = true;
        tree_set_displaced(tree, node, false);
    }
}

/* For the next daemon. */
static void tree_keep_place(struct tree *tree, struct node *node)
{
    struct node_record *record = node->record;
    const char *name = tree_name(node);
    record->parent = tree_record_link(tree, node->parent);
    if (node->recorded) {
        tree_free_long_name(tree, record);
        record->name[0] = '\0';
        if (tree_is_long(name)) {
            tree_keep_long_name(tree, record, name);
        } else {
            strcpy(record->name, name);
        }
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
    tree_keep_place(tree, node);
    tree_unref(tree, before);
    tree_attach(tree, node);
}

void tree_touch(struct node *directory)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    tree_set_changed(directory, now);
}

struct timespec tree_changed(const struct node *directory)
{
    const struct node_directory_record *record = directory->directory->record;
    return (struct timespec){.tv_sec = clock_time(record->seconds), .tv_nsec = (long)record->nanoseconds};
}

void tree_set_changed(struct node *directory, struct timespec when)
{
    KEEP_STORE(directory->directory->record->seconds, when.tv_sec);
    KEEP_STORE(directory->directory->record->nanoseconds, when.tv_nsec);
}

void tree_invalidate(struct tree *tree, struct node *node)
{
    if (node->record->shown) {
        node->record->shown = false;
        tree_ensure_past(node)->expired = notify_invalidate(tree->notify, tree_id(tree, node));
    }
}

void tree_link(struct tree *tree, struct node *node, struct node *other)
{
    unsigned links = tree_links(tree, other);
    node->record->ino = other->record->ino;
    node->record->linked = other->record->linked = true;
    tree_set_links(tree, other->record->ino, links + 1);
    if (other->record->shown || other->record->made) { /* who asked looks next at how many links there are */
        other->record->shown = other->record->made = false;
        notify_invalidate_now(tree->notify, tree_id(tree, other));
    }
}

void tree_unlink(struct tree *tree, struct node *node)
{
    if (!node->record->linked) {
        return;
    }
    int64_t key = (int64_t)node->record->ino;
    unsigned links = GPOINTER_TO_UINT(g_hash_table_lookup(tree->links, &key));
    if (links > 1) {
        tree_set_links(tree, node->record->ino, links - 1);
    } else {
        g_hash_table_remove(tree->links, &key);
    }
    node->record->linked = false;
    if (LIST_EMPTY(&node->handles)) { /* else the kernel knows that file by its number, also when we have ended */
        node->record->ino = tree_next_ino(tree); /* the next lock of this name is another file */
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
