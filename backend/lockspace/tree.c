/* tree: names and directories.
 *
 * Each directory has its entries in strcmp order; a path is looked up
 * a component at a time.  Walking the tree depth first gives the order of path
 * names in which '/' is below any other byte.  Nothing here recurses, for a tree
 * may be deeper than the stack.
 */
#include "backend/lockspace/private.h"

#include <string.h>

uint32_t lockspace_random(struct lockspace *space)
{
    uint32_t x = space->random += 0x9e3779b9u;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

static int tree_compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int tree_probe_leaf(const void *item, const void *key)
{
    const struct entry *entry = item;
    return strcmp(entry->name, key);
}

/* A path component: not terminated. */
struct component {
    const char *text;
    size_t length;
};

static int tree_probe_component(const void *item, const void *key)
{
    const struct entry *entry = item;
    const struct component *c = key;
    int order = strncmp(entry->name, c->text, c->length);
    return order ? order : entry->name[c->length] != '\0';
}

struct entry *lockspace_entry_find(struct directory *directory, const char *leaf)
{
    return sorted_find(&directory->entries, tree_probe_leaf, leaf);
}

struct sorted_position lockspace_entry_after(struct directory *directory, const char *leaf)
{
    return sorted_seek(&directory->entries, tree_probe_leaf, leaf, true);
}

enum backend_result lockspace_locate(const struct lockspace *space, const char *name, struct directory **ret_directory,
                                     const char **ret_leaf)
{
    struct directory *directory = space->root;
    const char *slash;
    for (; (slash = strchr(name, '/')); name = slash + 1) {
        struct component c = {.text = name, .length = (size_t)(slash - name)};
        if (c.length == 0) {
            return BACKEND_INVALID;
        }
        const struct entry *entry = sorted_find(&directory->entries, tree_probe_component, &c);
        if (!entry) {
            return BACKEND_MISSING;
        }
        if (entry->type != ENTRY_DIRECTORY) {
            return BACKEND_NOT_DIRECTORY;
        }
        directory = entry->directory;
    }
    if (*name == '\0') {
        return BACKEND_INVALID;
    }
    *ret_directory = directory;
    *ret_leaf = name;
    return BACKEND_OK;
}

enum backend_result lockspace_find(const struct lockspace *space, const char *name, struct entry **ret_entry)
{
    struct directory *directory = NULL;
    const char *leaf = NULL;
    if (*name == '\0') {
        *ret_entry = space->root->entry;
        return BACKEND_OK;
    }
    enum backend_result result = lockspace_locate(space, name, &directory, &leaf);
    if (result != BACKEND_OK) {
        return result;
    }
    struct entry *entry = lockspace_entry_find(directory, leaf);
    if (!entry) {
        return BACKEND_MISSING;
    }
    *ret_entry = entry;
    return BACKEND_OK;
}

static struct entry *tree_entry_alloc(struct directory *parent, const char *leaf, enum entry_type type)
{
    size_t size = strlen(leaf) + 1;
    struct entry *entry = g_malloc(offsetof(struct entry, name) + size);
    entry->parent = parent;
    entry->ticket = NULL;
    entry->type = (uint8_t)type;
    entry->counted = false;
    memcpy(entry->name, leaf, size);
    return entry;
}

struct entry *lockspace_entry_new(struct directory *directory, const char *leaf, enum entry_type type)
{
    struct entry *entry = tree_entry_alloc(directory, leaf, type);
    sorted_insert(&directory->entries, entry);
    return entry;
}

void lockspace_entry_free(struct lockspace *space, struct entry *entry)
{
    sorted_remove(&entry->parent->entries, entry);
    space->locks -= entry->counted;
    g_free(entry);
}

/* The bytes of an entry's whole path, without a NUL. */
static size_t tree_path_length(const struct entry *entry)
{
    size_t length = strlen(entry->name);
    for (const struct directory *d = entry->parent; d && d->entry->parent; d = d->entry->parent) {
        length += strlen(d->entry->name) + 1;
    }
    return length;
}

/* Writes the path, from its end to its beginning. */
static void tree_path_write(const struct entry *entry, char *path, size_t length)
{
    char *at = path + length;
    *at = '\0';
    for (;; entry = entry->parent->entry) {
        size_t size = strlen(entry->name);
        at -= size;
        memcpy(at, entry->name, size);
        if (at == path) {
            return;
        }
        *--at = '/';
    }
}

struct entry *lockspace_entry_ended(const struct entry *entry)
{
    size_t length = tree_path_length(entry);
    struct entry *ended = g_malloc(offsetof(struct entry, name) + length + 1);
    ended->parent = NULL;
    ended->ticket = NULL;
    ended->type = entry->type == ENTRY_SEQUENCE ? ENTRY_ENDED_SEQUENCE : ENTRY_ENDED;
    ended->counted = false;
    tree_path_write(entry, ended->name, length);
    return ended;
}

bool lockspace_ticket_name(const struct backend_ticket *ticket, char *buffer, size_t size)
{
    const struct entry *entry = ((const struct ticket *)ticket)->entry;
    size_t length = tree_path_length(entry);
    if (length >= size) {
        return false;
    }
    tree_path_write(entry, buffer, length);
    return true;
}

void lockspace_directory_raise_number(struct lockspace *space, struct directory *directory, uint64_t next)
{
    directory->attributes.sequence = MAX(directory->attributes.sequence, next);
    space->next_number = MAX(space->next_number, next);
}

void lockspace_directory_set(struct lockspace *space, struct directory *directory,
                             const struct backend_directory *attributes)
{
    struct backend_directory *own = &directory->attributes;
    GBytes *meta = attributes->meta ? g_bytes_ref(attributes->meta) : NULL;
    uint64_t sequence = own->sequence;
    if (own->meta) {
        g_bytes_unref(own->meta);
    }
    *own = *attributes;
    own->meta = meta;
    own->sequence = sequence;
    lockspace_directory_raise_number(space, directory, attributes->sequence);
    own->width = MAX(attributes->width, 1);
}

struct directory *lockspace_directory_new(struct lockspace *space, struct directory *parent, const char *leaf,
                                          const struct backend_directory *attributes)
{
    struct directory *directory = g_new0(struct directory, 1);
    directory->entry =
        parent ? lockspace_entry_new(parent, leaf, ENTRY_DIRECTORY) : tree_entry_alloc(NULL, leaf, ENTRY_DIRECTORY);
    directory->entry->directory = directory;
    sorted_init(&directory->entries, tree_compare, lockspace_random(space));
    lockspace_directory_set(space, directory, attributes);
    return directory;
}

void lockspace_directory_free(struct lockspace *space, struct directory *directory)
{
    if (directory->attributes.meta) {
        g_bytes_unref(directory->attributes.meta);
    }
    sorted_clear(&directory->entries);
    if (directory->entry->parent) {
        lockspace_entry_free(space, directory->entry);
    } else {
        g_free(directory->entry);
    }
    g_free(directory);
}

enum backend_result lockspace_directory_find(const struct lockspace *space, const char *name,
                                             struct directory **ret_directory)
{
    struct entry *entry = NULL;
    enum backend_result result = lockspace_find(space, name, &entry);
    if (result != BACKEND_OK) {
        return result;
    }
    if (entry->type != ENTRY_DIRECTORY) {
        return BACKEND_NOT_DIRECTORY;
    }
    *ret_directory = entry->directory;
    return BACKEND_OK;
}
