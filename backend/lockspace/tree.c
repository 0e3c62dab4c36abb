/* tree: names and directories.
 *
 * Each directory is a skiplist of entries in strcmp order; a path is looked up
 * a component at a time.  Walking the tree depth first gives the order of path
 * names in which '/' is below any other byte.  Nothing here recurses, for a tree
 * may be deeper than the stack.
 */
#include "backend/lockspace/private.h"

#include <string.h>

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int probe_leaf(const void *item, const void *key)
{
    const struct entry *entry = item;
    return strcmp(entry->name, key);
}

/* A path component: not terminated. */
struct component {
    const char *text;
    size_t length;
};

static int probe_component(const void *item, const void *key)
{
    const struct entry *entry = item;
    const struct component *c = key;
    int order = strncmp(entry->name, c->text, c->length);
    return order ? order : entry->name[c->length] != '\0';
}

struct entry *lockspace_entry_find(const struct directory *directory, const char *leaf)
{
    return skiplist_find(&directory->entries, probe_leaf, leaf);
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
        const struct entry *entry = skiplist_find(&directory->entries, probe_component, &c);
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

static struct entry *entry_alloc(struct directory *parent, const char *leaf, enum entry_type type)
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
    struct entry *entry = entry_alloc(directory, leaf, type);
    skiplist_insert(&directory->entries, entry);
    return entry;
}

void lockspace_entry_free(struct lockspace *space, struct entry *entry)
{
    skiplist_remove(&entry->parent->entries, entry);
    space->locks -= entry->counted;
    g_free(entry);
}

/* The bytes of an entry's whole path, without a NUL. */
static size_t path_length(const struct entry *entry)
{
    size_t length = strlen(entry->name);
    for (const struct directory *d = entry->parent; d && d->entry->parent; d = d->entry->parent) {
        length += strlen(d->entry->name) + 1;
    }
    return length;
}

/* Writes the path, from its end to its beginning. */
static void path_write(const struct entry *entry, char *path, size_t length)
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
    size_t length = path_length(entry);
    struct entry *ended = g_malloc(offsetof(struct entry, name) + length + 1);
    ended->parent = NULL;
    ended->ticket = NULL;
    ended->type = entry->type == ENTRY_SEQUENCE ? ENTRY_ENDED_SEQUENCE : ENTRY_ENDED;
    ended->counted = false;
    path_write(entry, ended->name, length);
    return ended;
}

bool lockspace_ticket_name(const struct backend_ticket *ticket, char *buffer, size_t size)
{
    const struct entry *entry = ((const struct ticket *)ticket)->entry;
    size_t length = path_length(entry);
    if (length >= size) {
        return false;
    }
    path_write(entry, buffer, length);
    return true;
}

/* Takes the attributes over, but for the number of the next ticket, which only grows. */
static void set_attributes(struct directory *directory, const struct backend_directory *attributes)
{
    struct backend_directory *own = &directory->attributes;
    GBytes *meta = attributes->meta ? g_bytes_ref(attributes->meta) : NULL;
    uint64_t sequence = MAX(own->sequence, attributes->sequence);
    if (own->meta) {
        g_bytes_unref(own->meta);
    }
    *own = *attributes;
    own->meta = meta;
    own->sequence = sequence;
    own->width = MAX(attributes->width, 1);
}

struct directory *lockspace_directory_new(struct lockspace *space, struct directory *parent, const char *leaf,
                                          const struct backend_directory *attributes)
{
    struct directory *directory = g_new0(struct directory, 1);
    directory->entry =
        parent ? lockspace_entry_new(parent, leaf, ENTRY_DIRECTORY) : entry_alloc(NULL, leaf, ENTRY_DIRECTORY);
    directory->entry->directory = directory;
    skiplist_init(&directory->entries, compare_entries, lockspace_random(space));
    set_attributes(directory, attributes);
    return directory;
}

/* Frees a directory that has no entries. */
static void directory_free(struct lockspace *space, struct directory *directory)
{
    lockspace_queue_free(directory->queue);
    if (directory->attributes.meta) {
        g_bytes_unref(directory->attributes.meta);
    }
    if (directory->entry->parent) {
        lockspace_entry_free(space, directory->entry);
    } else {
        g_free(directory->entry);
    }
    g_free(directory);
}

static void free_tickets(struct skiplist *list)
{
    for (struct skiplist_node *node = skiplist_first(list); node; node = skiplist_next(node)) {
        struct ticket *t = lockspace_ticket(node);
        t->entry = NULL;
        lockspace_ticket_free(&t->head);
    }
}

void lockspace_tree_free(struct lockspace *space)
{
    struct directory *directory = space->root;
    while (directory) {
        struct entry *entry = skiplist_item(skiplist_last(&directory->entries));
        if (entry && entry->type == ENTRY_DIRECTORY) {
            directory = entry->directory;
        } else if (entry) {
            if (entry->type == ENTRY_QUEUE) {
                free_tickets(&entry->queue->holders);
                free_tickets(&entry->queue->waiters);
                lockspace_queue_free(entry->queue);
            } else if (entry->type == ENTRY_SINGLE) {
                entry->ticket->entry = NULL;
                lockspace_ticket_free(&entry->ticket->head);
            }
            lockspace_entry_free(space, entry);
        } else {
            struct directory *parent = directory->entry->parent;
            if (directory->queue) {
                free_tickets(&directory->queue->holders);
                free_tickets(&directory->queue->waiters);
            }
            directory_free(space, directory);
            directory = parent;
        }
    }
    space->root = NULL;
}

enum backend_result lockspace_mkdir(struct lockspace *space, const char *name,
                                    const struct backend_directory *attributes)
{
    struct directory *parent = NULL;
    const char *leaf = NULL;
    enum backend_result result = lockspace_locate(space, name, &parent, &leaf);
    if (result != BACKEND_OK) {
        return *name ? result : BACKEND_EXISTS;
    }
    if (lockspace_entry_find(parent, leaf)) {
        return BACKEND_EXISTS;
    }
    lockspace_directory_new(space, parent, leaf, attributes);
    return BACKEND_OK;
}

/* OK and the directory, or why there is none. */
static enum backend_result find_directory(const struct lockspace *space, const char *name,
                                          struct directory **ret_directory)
{
    struct directory *parent = NULL;
    const char *leaf = NULL;
    if (*name == '\0') {
        *ret_directory = space->root;
        return BACKEND_OK;
    }
    enum backend_result result = lockspace_locate(space, name, &parent, &leaf);
    if (result != BACKEND_OK) {
        return result;
    }
    struct entry *entry = lockspace_entry_find(parent, leaf);
    if (!entry) {
        return BACKEND_MISSING;
    }
    if (entry->type != ENTRY_DIRECTORY) {
        return BACKEND_NOT_DIRECTORY;
    }
    *ret_directory = entry->directory;
    return BACKEND_OK;
}

/* An entry that a listing tells of: not one that is only refused for a delay. */
static bool is_visible(const struct entry *entry)
{
    return entry->type == ENTRY_DIRECTORY || entry->type == ENTRY_SEQUENCE || entry->counted;
}

static struct skiplist_node *next_visible(struct skiplist_node *node)
{
    while (node && !is_visible(skiplist_item(node))) {
        node = skiplist_next(node);
    }
    return node;
}

static void free_blocker(struct lockspace *space, struct entry *place)
{
    struct queue *q = lockspace_queue(place);
    struct ticket *t = q ? lockspace_ticket(skiplist_first(&q->holders)) : place->ticket;
    lockspace_finish(space, t);
    lockspace_settle(space, place);
}

enum backend_result lockspace_rmdir(struct lockspace *space, const char *name)
{
    struct directory *directory = NULL;
    enum backend_result result = find_directory(space, name, &directory);
    if (result != BACKEND_OK) {
        return result;
    }
    if (directory == space->root) {
        return BACKEND_INVALID;
    }
    if (next_visible(skiplist_first(&directory->entries))) {
        return BACKEND_NOT_EMPTY;
    }
    while (skiplist_length(&directory->entries) > 0) {
        free_blocker(space, skiplist_item(skiplist_first(&directory->entries)));
    }
    while (directory->queue) {
        free_blocker(space, directory->entry);
    }
    directory_free(space, directory);
    return BACKEND_OK;
}

enum backend_result lockspace_set_directory(struct lockspace *space, clock_ms now, const char *name,
                                            const struct backend_directory *attributes)
{
    struct directory *directory = NULL;
    enum backend_result result = find_directory(space, name, &directory);
    if (result == BACKEND_OK) {
        set_attributes(directory, attributes);
        lockspace_update(space, now, directory->entry, 0, BACKEND_RANGE_MAX);
    }
    return result;
}

void lockspace_describe(const struct ticket *t, struct backend_info *ret_info)
{
    const struct entry *place = lockspace_place(t);
    const struct queue *q = lockspace_queue(place);
    bool blocker = t->head.kind == LOCKSPACE_BLOCKER;
    *ret_info = (struct backend_info){
        .type = BACKEND_LOCK,
        .kind = blocker ? BACKEND_LEASE : t->head.kind,
        .mode = t->head.mode,
        .fence = t->head.fence,
        .acquired = t->head.acquired,
        .deadline = t->head.deadline,
        .ttl = t->head.ttl,
        .start = lockspace_start(t),
        .end = lockspace_end(t),
        .meta = t->meta,
        .content = t->content,
        .ticket = blocker ? NULL : (struct backend_ticket *)&t->head,
        .holders = !blocker && t->head.held,
    };
    if (place->type == ENTRY_DIRECTORY) {
        ret_info->position = lockspace_position(t);
    } else if (q) {
        ret_info->holders = skiplist_length(&q->holders) - q->blockers;
        ret_info->waiters = skiplist_length(&q->waiters);
    }
}

static void describe_directory(const struct directory *directory, struct backend_info *ret_info)
{
    const struct queue *q = directory->queue;
    *ret_info = (struct backend_info){
        .type = BACKEND_DIRECTORY,
        .holders = q ? skiplist_length(&q->holders) - q->blockers : 0,
        .waiters = directory->waiting,
        .directory = directory->attributes,
    };
}

void lockspace_stat(struct lockspace *space, const char *name, struct backend_info *ret_info)
{
    struct directory *directory = space->root;
    const char *leaf = NULL;
    struct entry *entry = NULL;
    if (*name == '\0') {
        entry = space->root->entry;
    } else if (lockspace_locate(space, name, &directory, &leaf) == BACKEND_OK) {
        entry = lockspace_entry_find(directory, leaf);
    }
    *ret_info = (struct backend_info){.type = BACKEND_NOTHING};
    if (!entry || !is_visible(entry)) {
        return;
    }
    if (entry->type == ENTRY_DIRECTORY) {
        describe_directory(entry->directory, ret_info);
    } else {
        lockspace_describe(entry->type == ENTRY_SEQUENCE ? entry->ticket : lockspace_first_holder(entry), ret_info);
    }
}

int lockspace_list(struct lockspace *space, const char *name, const char *after, size_t max,
                   struct backend_entry *ret_entries)
{
    struct directory *directory = NULL;
    enum backend_result result = find_directory(space, name, &directory);
    if (result != BACKEND_OK) {
        return -(int)result;
    }
    int count = 0;
    struct skiplist_node *node = next_visible(skiplist_seek(&directory->entries, probe_leaf, after, true));
    for (; node && (size_t)count < max; node = next_visible(skiplist_next(node))) {
        const struct entry *entry = skiplist_item(node);
        ret_entries[count++] = (struct backend_entry){
            .name = entry->name,
            .type = entry->type == ENTRY_DIRECTORY ? BACKEND_DIRECTORY : BACKEND_LOCK,
        };
    }
    return count;
}
