/* names: operations on names and directories. */
#include "backend/lockspace/private.h"

static void names_free_tickets(struct skiplist *list)
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
        struct entry *entry = sorted_last(&directory->entries);
        if (entry && entry->type == ENTRY_DIRECTORY) {
            directory = entry->directory;
        } else if (entry) {
            if (entry->type == ENTRY_QUEUE) {
                names_free_tickets(&entry->queue->holders);
                names_free_tickets(&entry->queue->waiters);
                lockspace_queue_free(entry->queue);
            } else if (entry->type == ENTRY_SINGLE) {
                entry->ticket->entry = NULL;
                lockspace_ticket_free(&entry->ticket->head);
            }
            lockspace_entry_free(space, entry);
        } else {
            struct directory *parent = directory->entry->parent;
            if (directory->queue) {
                names_free_tickets(&directory->queue->holders);
                names_free_tickets(&directory->queue->waiters);
                lockspace_queue_free(directory->queue);
            }
            lockspace_directory_free(space, directory);
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

/* Does a listing show it?  Not if only a delay is left. */
static bool names_is_visible(const struct entry *entry)
{
    return entry->type == ENTRY_DIRECTORY || entry->type == ENTRY_SEQUENCE || entry->counted;
}

/* The first such entry at *position or behind it, or NULL; moves *position to it. */
static const struct entry *names_next_visible(struct sorted_position *position)
{
    const struct entry *entry;
    while ((entry = sorted_item(*position)) && !names_is_visible(entry)) {
        *position = sorted_next(*position);
    }
    return entry;
}

enum backend_result lockspace_rmdir(struct lockspace *space, const char *name)
{
    struct directory *directory = NULL;
    enum backend_result result = lockspace_directory_find(space, name, &directory);
    if (result != BACKEND_OK) {
        return result;
    }
    if (directory == space->root) {
        return BACKEND_INVALID;
    }
    if (!sorted_is_empty(&directory->entries) || directory->queue) { /* perhaps of what is only refused for a delay */
        return BACKEND_NOT_EMPTY;
    }
    lockspace_directory_free(space, directory);
    return BACKEND_OK;
}

enum backend_result lockspace_set_directory(struct lockspace *space, clock_ms now, const char *name,
                                            const struct backend_directory *attributes)
{
    struct directory *directory = NULL;
    enum backend_result result = lockspace_directory_find(space, name, &directory);
    if (result == BACKEND_OK) {
        lockspace_directory_set(space, directory, attributes);
        lockspace_grant_waiters(space, now, directory->entry, 0, BACKEND_RANGE_MAX);
    }
    return result;
}

void lockspace_describe(const struct ticket *t, const struct ticket *claimant, struct backend_info *ret_info)
{
    struct backend_segment segment = lockspace_blocking_segment(t, claimant);
    const struct entry *lock = lockspace_lock_of(t);
    const struct queue *q = lockspace_queue(lock);
    bool delay = t->head.kind == LOCKSPACE_DELAY;
    *ret_info = (struct backend_info){
        .type = BACKEND_LOCK,
        .kind = delay ? BACKEND_LEASE : t->head.kind,
        .mode = segment.mode,
        .fence = t->head.fence,
        .acquired = t->head.acquired,
        .deadline = t->head.deadline,
        .ttl = t->head.ttl,
        .start = segment.start,
        .end = segment.end,
        .meta = t->meta,
        .content = t->head.content,
        .ticket = lockspace_is_ownerless(&t->head) ? NULL : (struct backend_ticket *)&t->head,
        .guarded = t->head.guarded,
        .holders = !delay && t->head.held,
    };
    if (lock->type == ENTRY_DIRECTORY) {
        ret_info->position = lockspace_position(t);
    } else if (q) {
        ret_info->holders = skiplist_length(&q->holders) - !!q->delay;
        ret_info->waiters = skiplist_length(&q->waiters);
    }
}

static void names_describe_directory(const struct directory *directory, struct backend_info *ret_info)
{
    const struct queue *q = directory->queue;
    *ret_info = (struct backend_info){
        .type = BACKEND_DIRECTORY,
        .holders = q ? skiplist_length(&q->holders) - !!q->delay : 0,
        .waiters = directory->waiting,
        .directory = directory->attributes,
    };
}

void lockspace_stat(struct lockspace *space, const char *name, struct backend_info *ret_info)
{
    struct entry *entry = NULL;
    *ret_info = (struct backend_info){.type = BACKEND_NOTHING};
    if (lockspace_find(space, name, &entry) != BACKEND_OK || !names_is_visible(entry)) {
        return;
    }
    if (entry->type == ENTRY_DIRECTORY) {
        names_describe_directory(entry->directory, ret_info);
    } else {
        lockspace_describe(entry->type == ENTRY_SEQUENCE ? entry->ticket : lockspace_first_holder(entry), NULL,
                           ret_info);
    }
}

int lockspace_list(struct lockspace *space, const char *name, const char *after, size_t max,
                   struct backend_entry *ret_entries)
{
    struct directory *directory = NULL;
    enum backend_result result = lockspace_directory_find(space, name, &directory);
    if (result != BACKEND_OK) {
        return -(int)result;
    }
    int count = 0;
    struct sorted_position position = lockspace_entry_after(directory, after);
    const struct entry *entry;
    for (; (size_t)count < max && (entry = names_next_visible(&position)); position = sorted_next(position)) {
        ret_entries[count++] = (struct backend_entry){
            .name = entry->name,
            .type = entry->type == ENTRY_DIRECTORY ? BACKEND_DIRECTORY : BACKEND_LOCK,
        };
    }
    return count;
}

#define NAMES_LOOKED_AT 10000 /* in one call; takes about a millisecond */

int lockspace_tickets(struct lockspace *space, const char *name, const char *after, size_t max,
                      struct backend_entry *ret_entries, struct backend_info *ret_infos)
{
    struct directory *directory = NULL;
    enum backend_result result = lockspace_directory_find(space, name, &directory);
    if (result != BACKEND_OK) {
        return -(int)result;
    }
    size_t count = 0, looked_at = 0;
    const struct entry *entry;
    struct sorted_position position = lockspace_entry_after(directory, after);
    for (; directory->queue && count < max && (entry = sorted_item(position)); position = sorted_next(position)) {
        bool ticket = entry->type == ENTRY_SEQUENCE, last = ++looked_at == NAMES_LOOKED_AT;
        if (ticket) {
            lockspace_describe(entry->ticket, NULL, &ret_infos[count]);
        } else if (last) {
            ret_infos[count] = (struct backend_info){.type = BACKEND_NOTHING};
        }
        if (ticket || last) {
            ret_entries[count] =
                (struct backend_entry){.name = entry->name, .type = BACKEND_LOCK, .info = &ret_infos[count]};
            count++;
        }
        if (last) {
            break;
        }
    }
    return (int)count;
}
