/* load: a record's tickets in a lockspace, and back; see record.h. */
#include <string.h>

#include "backend/lockspace/private.h"
#include "backend/lockspace/record.h"

_Static_assert((int)RECORD_DELAY == (int)LOCKSPACE_DELAY, "a record has the delays of the lockspace");

static struct ticket *load_ticket(const struct record_ticket *from)
{
    struct backend_claim claim = {.user = (void *)from,
                                  .kind = (enum backend_kind)from->kind,
                                  .mode = (enum backend_mode)from->mode,
                                  .sequence = from->sequence,
                                  .handle = from->handle,
                                  .lock_owner = from->lock_owner,
                                  .meta = from->meta,
                                  .content = from->content};
    struct ticket *t = lockspace_ticket_new(&claim);
    if (from->segments) {
        g_array_unref(t->scope->segments);
        t->scope->segments = g_array_copy(from->segments);
        t->scope->unclaimed = from->claim;
        t->head.mode = (uint8_t)backend_segments_mode(from->segments);
    }
    t->head.fence = from->fence;
    t->head.guarded = from->guarded;
    t->head.acquired = from->acquired;
    t->head.deadline = from->deadline;
    t->head.ttl = from->ttl;
    return t;
}

/* The entry of the ticket's name in that directory. */
static struct entry *load_entry(struct directory *directory, const struct record_ticket *from)
{
    if (from->sequence && from->kind == RECORD_DELAY) {
        return directory->entry;
    }
    const char *leaf = from->leaf ? from->leaf : RECORD_LEAF;
    struct entry *entry = lockspace_entry_find(directory, leaf);
    return entry ? entry : lockspace_entry_new(directory, leaf, from->sequence ? ENTRY_SEQUENCE : ENTRY_SINGLE);
}

static void load_join(struct lockspace *space, struct directory *directory, struct ticket *t,
                      const struct record_ticket *from)
{
    t->entry = load_entry(directory, from);
    if (from->sequence && from->kind != RECORD_DELAY) {
        t->entry->ticket = t;
        const char *dash = strrchr(from->leaf, '-');
        uint64_t number = dash ? g_ascii_strtoull(dash + 1, NULL, 10) : 0;
        lockspace_directory_raise_number(space, directory, MIN(number, INT64_MAX - 1) + 1);
    }
    lockspace_join(space, t, from->held);
}

static struct directory *load_directory(struct lockspace *space, const char *name)
{
    struct directory *directory = NULL;
    lockspace_directory_find(space, name, &directory);
    return directory;
}

void record_load(struct lockspace *space, const char *name, const struct record *record,
                 const struct backend_directory *attributes)
{
    lockspace_mkdir(space, name, attributes);
    struct directory *directory = load_directory(space, name);
    for (guint i = 0; i < record->tickets->len; i++) {
        const struct record_ticket *from = record->tickets->pdata[i];
        load_join(space, directory, load_ticket(from), from);
    }
    for (struct sorted_position p = sorted_first(&directory->entries); sorted_item(p); p = sorted_next(p)) {
        struct entry *entry = sorted_item(p);
        struct queue *q = lockspace_queue(entry);
        if (q) {
            q->granted = MAX(q->granted, record->granted);
        }
        if (entry->type != ENTRY_SEQUENCE) {
            lockspace_shrink(space, entry); /* counts it */
        }
    }
    if (directory->queue) {
        directory->queue->granted = MAX(directory->queue->granted, record->granted);
    }
    lockspace_raise_fence(space, RECORD_NEW_TOKENS);
    space->of_record = true;
}

/* --- back --- */

struct visit {
    void (*each)(void *arg, const char *leaf, struct backend_ticket *ticket);
    void *arg;
};

static void visit_list(const struct visit *v, const char *leaf, const struct skiplist *list)
{
    for (struct skiplist_node *node = skiplist_first(list); node; node = skiplist_next(node)) {
        struct ticket *t = lockspace_ticket(node);
        v->each(v->arg, leaf ? leaf : t->entry->type == ENTRY_SEQUENCE ? t->entry->name : "", &t->head);
    }
}

void record_visit(struct lockspace *space, const char *name,
                  void (*each)(void *arg, const char *leaf, struct backend_ticket *ticket), void *arg)
{
    const struct visit v = {each, arg};
    const struct directory *directory = load_directory(space, name);
    for (struct sorted_position p = sorted_first(&directory->entries); sorted_item(p); p = sorted_next(p)) {
        const struct entry *entry = sorted_item(p);
        if (entry->type == ENTRY_QUEUE) {
            visit_list(&v, entry->name, &entry->queue->holders);
            visit_list(&v, entry->name, &entry->queue->waiters);
        } else if (entry->type == ENTRY_SINGLE && entry->ticket) {
            each(arg, entry->name, &entry->ticket->head);
        }
    }
    if (directory->queue) {
        visit_list(&v, NULL, &directory->queue->holders);
        visit_list(&v, NULL, &directory->queue->waiters);
    }
}

static void save_ticket(void *arg, const char *leaf, struct backend_ticket *head)
{
    struct record *record = arg;
    const struct ticket *t = (const struct ticket *)head;
    const struct record_ticket *known = head->user;
    struct record_ticket *to = backend_new0(sizeof *to);
    const GArray *segments = lockspace_segments(t);
    if (known) {
        to->id = known->id;
        to->mount = known->mount;
        to->claim = known->claim && head->held && !head->guarded;
        to->content_apart = known->content_apart;
    }
    to->leaf = record->directory ? g_strdup(leaf) : NULL;
    to->sequence = lockspace_lock_of(t)->type == ENTRY_DIRECTORY;
    to->held = head->held;
    to->kind = head->kind;
    to->mode = head->mode;
    to->guarded = head->guarded;
    to->fence = head->fence;
    to->handle = t->scope ? t->scope->handle : 0;
    to->lock_owner = lockspace_lock_owner(t);
    to->acquired = head->acquired;
    to->acquired_new = !known || known->acquired != head->acquired;
    to->deadline = head->deadline;
    to->deadline_new = head->held && (!known || known->deadline != head->deadline);
    to->ttl = head->ttl;
    to->segments = segments ? g_array_copy((GArray *)segments) : NULL;
    to->meta = t->meta ? g_bytes_ref(t->meta) : NULL;
    to->content = head->content ? g_bytes_ref(head->content) : NULL;
    g_ptr_array_add(record->tickets, to);
}

static gint save_compare(gconstpointer a, gconstpointer b)
{
    const struct record_ticket *x = *(struct record_ticket *const *)a, *y = *(struct record_ticket *const *)b;
    return (x->fence > y->fence) - (x->fence < y->fence);
}

struct record *record_save(struct lockspace *space, const char *name, const struct record *before)
{
    const struct directory *directory = load_directory(space, name);
    struct record *record = record_new(before->directory);
    if (before->directory) {
        record->attributes = directory->attributes;
        record->attributes.meta = directory->attributes.meta ? g_bytes_ref(directory->attributes.meta) : NULL;
        record->made = before->made;
    }
    record->granted = before->granted;
    record_visit(space, name, save_ticket, record);
    g_ptr_array_sort(record->tickets, save_compare);
    for (guint i = 0; i < record->tickets->len; i++) {
        const struct record_ticket *t = record->tickets->pdata[i];
        record->granted = t->held ? MAX(record->granted, t->fence) : record->granted;
    }
    record->tokens = (uint32_t)(lockspace_next_fence(space) - RECORD_NEW_TOKENS);
    return record;
}

/* --- steps --- */

void record_close(struct lockspace *space)
{
    space->grants_nothing = true;
}

void record_set_deadline(struct lockspace *space, struct backend_ticket *ticket, clock_ms deadline)
{
    struct ticket *t = (struct ticket *)ticket;
    struct record_ticket *known = ticket->user;
    sorted_remove(&space->agenda, t);
    t->head.deadline = deadline;
    sorted_insert(&space->agenda, t);
    if (known) {
        known->deadline = 0; /* it is new, also if the time happens to be the same */
    }
}

void record_grant(struct lockspace *space, clock_ms now, const char *name)
{
    struct directory *directory = load_directory(space, name);
    GPtrArray *locks = g_ptr_array_new();
    for (struct sorted_position p = sorted_first(&directory->entries); sorted_item(p); p = sorted_next(p)) {
        struct entry *entry = sorted_item(p);
        if (entry->type == ENTRY_QUEUE || entry->type == ENTRY_SINGLE) {
            g_ptr_array_add(locks, entry);
        }
    }
    g_ptr_array_add(locks, directory->entry);
    for (guint i = 0; i < locks->len; i++) {
        lockspace_grant_waiters(space, now, locks->pdata[i], 0, BACKEND_RANGE_MAX);
    }
    g_ptr_array_free(locks, TRUE);
}

void record_end(struct lockspace *space, clock_ms now, struct backend_ticket *ticket, enum backend_end why)
{
    lockspace_end_ticket(space, now, (struct ticket *)ticket, why);
}

void record_identify(struct lockspace *space, struct backend_ticket *ticket, struct backend_identity identity)
{
    struct ticket *t = (struct ticket *)ticket;
    bool held = ticket->held;
    lockspace_leave(space, t);
    if (!t->scope) {
        t->scope = backend_new0(sizeof *t->scope);
    }
    t->scope->handle = identity.handle;
    t->scope->lock_owner = identity.lock_owner;
    lockspace_trim_scope(t);
    lockspace_join(space, t, held);
}

GPtrArray *record_revoked(struct lockspace *space, const char *name, uint64_t fence)
{
    struct entry *entry = NULL;
    bool lock = lockspace_find(space, name, &entry) == BACKEND_OK && entry->type != ENTRY_DIRECTORY;
    return lock ? lockspace_revoked(entry, fence) : g_ptr_array_new();
}

void record_revoke(struct lockspace *space, clock_ms now, struct backend_ticket *ticket, enum backend_end why)
{
    lockspace_expel_revoked(space, now, (struct ticket *)ticket, why);
}

/* Does a holder exclude `t`, which is not in the queue?  As many exclusive tickets as are let in hold in a queue. */
static bool put_is_excluded(const struct entry *lock, const struct ticket *t)
{
    const struct queue *q = lockspace_queue(lock);
    if (lock->type == ENTRY_DIRECTORY) {
        uint32_t holders = q ? skiplist_length(&q->holders) : 0, exclusive = q ? q->exclusive : 0;
        bool mixed = lockspace_shared(t) ? exclusive > 0 : holders > exclusive;
        return mixed || (!lockspace_shared(t) && holders >= lock->directory->attributes.width);
    }
    if (!q) {
        return lock->type == ENTRY_SINGLE && lock->ticket && lockspace_conflict(lock, lock->ticket, t);
    }
    for (struct skiplist_node *node = skiplist_first(&q->holders); node; node = skiplist_next(node)) {
        if (lockspace_conflict(lock, lockspace_ticket(node), t)) {
            return true;
        }
    }
    return false;
}

enum backend_result record_put(struct lockspace *space, clock_ms now, const char *name, struct record_ticket *ticket,
                               struct backend_ticket *present)
{
    struct directory *directory = load_directory(space, name);
    struct ticket *old = (struct ticket *)present, *t = load_ticket(ticket);
    struct entry *file = load_entry(directory, ticket);
    struct entry *lock = ticket->sequence ? directory->entry : file;
    bool old_held = old && old->head.held;
    if (!ticket->fence) {
        t->head.fence = space->next_fence++;
    }
    if (old) {
        lockspace_leave(space, old);
    }
    if (ticket->held && put_is_excluded(lock, t)) {
        if (old) {
            lockspace_join(space, old, old_held);
        }
        lockspace_ticket_free(&t->head);
        if (!old && ticket->sequence) {
            lockspace_entry_free(space, file);
        } else {
            lockspace_shrink(space, lock);
        }
        return BACKEND_BUSY;
    }
    if (old) {
        old->entry = NULL;
        lockspace_ticket_free(&old->head);
    }
    load_join(space, directory, t, ticket);
    lockspace_grant_waiters(space, now, lock, 0, BACKEND_RANGE_MAX);
    return BACKEND_OK;
}

struct finding {
    struct record_id id;
    struct backend_ticket *found;
};

static void find_ticket(void *arg, const char *leaf, struct backend_ticket *ticket)
{
    struct finding *finding = arg;
    const struct record_ticket *known = ticket->user;
    (void)leaf;
    if (known && record_id_equal(known->id, finding->id)) {
        finding->found = ticket;
    }
}

struct backend_ticket *record_ticket_find(struct lockspace *space, const char *name, struct record_id id)
{
    struct finding finding = {.id = id};
    record_visit(space, name, find_ticket, &finding);
    return finding.found;
}
