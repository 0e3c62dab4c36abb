/* store: for a store that writes itself out and reads itself back.
 *
 * The walk through the tree goes in steps, while the space goes on changing.  Its
 * cursor is the path of the entry that was visited last; it is found again
 * by name, so it does not matter whether that entry still exists.
 */
#include "backend/lockspace/private.h"

#include <string.h>

struct visit {
    struct directory *directory;
    struct sorted_position position; /* of the next entry in it */
    char *path;                      /* of what was visited last; begins with the directory's */
    size_t length;                   /* of the directory's */
    size_t size;
    void (*tell_directory)(void *arg, const char *name, const struct backend_directory *directory);
    void (*tell_ticket)(void *arg, const char *name, struct backend_ticket *ticket);
    void *arg;
};

static void visit_enter(struct visit *v, struct directory *directory, size_t length)
{
    v->directory = directory;
    v->position = sorted_first(&directory->entries);
    v->length = length;
}

/* Goes to the first entry after the path: into it, if it is a directory. */
static void visit_resume(struct lockspace *space, struct visit *v)
{
    char *component = v->path;
    visit_enter(v, space->root, 0);
    while (*component) {
        char *end = component + strcspn(component, "/");
        bool last = *end == '\0';
        *end = '\0';
        struct entry *entry = lockspace_entry_find(v->directory, component);
        if (!entry || entry->type != ENTRY_DIRECTORY) {
            v->position = lockspace_entry_after(v->directory, component);
            return;
        }
        visit_enter(v, entry->directory, (size_t)(end - v->path));
        if (last) {
            return;
        }
        *end = '/';
        component = end + 1;
    }
}

/* Back to the parent, behind the directory that is done. */
static void visit_ascend(struct visit *v)
{
    const struct entry *done = v->directory->entry;
    v->directory = done->parent;
    v->position = lockspace_entry_after(v->directory, done->name);
    size_t name = strlen(done->name);
    v->length -= v->length > name ? name + 1 : name;
}

/* The path becomes that of an entry in the directory; its length, or 0 if there is no room. */
static size_t visit_append(struct visit *v, const struct entry *entry)
{
    size_t slash = v->length > 0, name = strlen(entry->name), length = v->length + slash + name;
    if (length >= v->size) {
        return 0;
    }
    if (slash) {
        v->path[v->length] = '/';
    }
    memcpy(v->path + v->length + slash, entry->name, name + 1);
    return length;
}

static void visit_ticket(struct visit *v, struct ticket *t)
{
    bool handle_lock = t->head.kind == BACKEND_FLOCK || t->head.kind == BACKEND_FCNTL;
    if (t->head.kind == BACKEND_LEASE || (handle_lock && (t->head.held || t->entry->type == ENTRY_SEQUENCE))) {
        v->tell_ticket(v->arg, v->path, &t->head);
    }
}

static void visit_entry(struct visit *v, struct entry *entry, size_t length)
{
    switch ((enum entry_type)entry->type) {
    case ENTRY_DIRECTORY:
        v->tell_directory(v->arg, v->path, &entry->directory->attributes);
        visit_enter(v, entry->directory, length);
        break;
    case ENTRY_QUEUE:
        for (struct skiplist_node *n = skiplist_first(&entry->queue->holders); n; n = skiplist_next(n)) {
            visit_ticket(v, lockspace_ticket(n));
        }
        for (struct skiplist_node *n = skiplist_first(&entry->queue->waiters); n; n = skiplist_next(n)) {
            visit_ticket(v, lockspace_ticket(n));
        }
        break;
    default:
        visit_ticket(v, entry->ticket);
    }
}

size_t lockspace_visit(struct lockspace *space, char *cursor, size_t cursor_size, size_t max,
                       void (*directory)(void *arg, const char *name, const struct backend_directory *directory),
                       void (*ticket)(void *arg, const char *name, struct backend_ticket *ticket), void *arg)
{
    struct visit v = {
        .path = cursor, .size = cursor_size, .tell_directory = directory, .tell_ticket = ticket, .arg = arg};
    size_t count = 0;
    if (*cursor == '\0') {
        directory(arg, "", &space->root->attributes);
    }
    visit_resume(space, &v);
    while (count < max) {
        struct entry *entry;
        while (!(entry = sorted_item(v.position)) && v.directory != space->root) {
            visit_ascend(&v);
        }
        if (!entry) {
            break;
        }
        v.position = sorted_next(v.position);
        size_t length = visit_append(&v, entry);
        if (length > 0) {
            visit_entry(&v, entry, length);
            count++;
        }
    }
    return count;
}

void lockspace_restore_guard(struct backend_ticket *ticket, enum backend_end why)
{
    ticket->guarded = (uint8_t)(1 + why);
}

void lockspace_revive(struct lockspace *space, clock_ms now, struct backend_ticket *ticket)
{
    struct ticket *t = (struct ticket *)ticket;
    sorted_remove(&space->agenda, t);
    t->due = now;
    sorted_insert(&space->agenda, t);
    if (!t->head.held) { /* it could not be granted before */
        lockspace_grant_waiters(space, now, lockspace_lock_of(t), 0, BACKEND_RANGE_MAX);
    }
}

/* The number in the name of a sequence ticket; false if it has none. */
static bool restore_number(const char *leaf, uint64_t *ret_number)
{
    const char *dash = strrchr(leaf, '-');
    return dash && dash[1] && strspn(dash + 1, "0123456789") == strlen(dash + 1) &&
           g_ascii_string_to_unsigned(dash + 1, 10, 0, UINT64_MAX - 1, ret_number, NULL);
}

static void restore_segments(struct ticket *t, const GArray *segments)
{
    g_array_unref(t->scope->segments);
    t->scope->segments = g_array_copy((GArray *)segments);
    t->head.mode = (uint8_t)backend_segments_mode(segments);
}

enum backend_result lockspace_restore(struct lockspace *space, clock_ms now, const char *name,
                                      const struct backend_claim *claim, const GArray *segments, uint64_t fence,
                                      clock_ms acquired, clock_ms deadline, struct backend_ticket **ret_ticket)
{
    struct directory *directory = NULL;
    const char *leaf = NULL;
    uint64_t number = 0;
    enum backend_result result = lockspace_locate(space, name, &directory, &leaf);
    if (result != BACKEND_OK || (claim->sequence && !restore_number(leaf, &number))) {
        return result == BACKEND_OK ? BACKEND_INVALID : result;
    }
    struct entry *entry = lockspace_entry_find(directory, leaf);
    if (entry && (claim->sequence || (entry->type != ENTRY_SINGLE && entry->type != ENTRY_QUEUE))) {
        return entry->type == ENTRY_DIRECTORY ? BACKEND_IS_DIRECTORY : BACKEND_BUSY;
    }
    struct ticket *t = lockspace_ticket_new(claim);
    t->head.fence = fence;
    if (segments) {
        restore_segments(t, segments);
    }
    if (claim->sequence) {
        t->entry = lockspace_entry_new(directory, leaf, ENTRY_SEQUENCE);
        t->entry->ticket = t;
        lockspace_directory_raise_number(space, directory, number + 1);
    } else if (entry && !claim->wait && claim->kind == BACKEND_LEASE && lockspace_blocker(space, entry, t)) {
        lockspace_ticket_free(&t->head);
        return BACKEND_BUSY;
    } else {
        t->entry = entry ? entry : lockspace_entry_new(directory, leaf, ENTRY_SINGLE);
    }
    bool granted = claim->wait && deadline > now && !lockspace_blocker(space, lockspace_lock_of(t), t);
    t->head.held = granted || !claim->wait;
    t->head.acquired = granted ? now : acquired;
    lockspace_start_term(t, now, claim->ttl, claim->due);
    t->head.deadline = granted ? t->head.deadline : deadline;
    lockspace_join(space, t, t->head.held);
    lockspace_shrink(space, lockspace_lock_of(t));
    lockspace_raise_fence(space, fence + 1);
    *ret_ticket = &t->head;
    return t->head.held ? BACKEND_OK : BACKEND_QUEUED;
}

void lockspace_identify(struct lockspace *space, struct backend_ticket *ticket, struct backend_identity identity)
{
    struct ticket *t = (struct ticket *)ticket;
    lockspace_unlink(space, t);
    if (!t->scope) {
        t->scope = backend_new0(sizeof(struct scope));
    }
    t->scope->handle = identity.handle;
    t->scope->lock_owner = identity.lock_owner;
    lockspace_trim_scope(t);
    lockspace_link(space, t);
}
