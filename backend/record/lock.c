/* lock: the locks, tickets and ops of a mount; no requests. */
#include <string.h>
#include <sys/random.h>
#include <sys/timerfd.h>

#include "backend/record/private.h"

enum { NAME_MAX_BYTES = 255, DIGITS = 10 };

/* --- ids, names and times --- */

static void engine_random(const struct engine *e, void *bytes, size_t size)
{
    if (e->options.random) {
        e->options.random(bytes, size);
        return;
    }
    while (getrandom(bytes, size, 0) != (ssize_t)size) {
    }
}

struct record_id engine_new_id(struct engine *e)
{
    struct record_id id;
    do {
        engine_random(e, &id, sizeof id);
    } while (!record_id_is_set(id));
    return id;
}

char *record_id_text(struct record_id id)
{
    return g_strdup_printf("%016" G_GINT64_MODIFIER "x%016" G_GINT64_MODIFIER "x", id.half[0], id.half[1]);
}

uint64_t engine_identity(const struct engine *e, uint64_t number)
{
    uint64_t x = number + e->salt;
    if (!number) {
        return 0;
    }
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x ? x : 1;
}

/* A mount relies on a ticket from before it sent the request, less what clocks may differ by. */
clock_ms engine_deadline(clock_ms sent, int64_t ttl)
{
    return sent + ttl - (ttl / 100 + 2);
}

/* Rule 3: this is an estimate, by which a mount chooses what to try.  What it relies on never depends on it: a removal
 * names the deadline, and the store compares that with its own clock. */
void engine_note_time(struct engine *e, clock_ms time)
{
    if (time) {
        e->offset = time - clock_now();
    }
}

char *engine_parent(const char *name, const char **ret_leaf)
{
    const char *slash = strrchr(name, '/');
    *ret_leaf = slash ? slash + 1 : name;
    return g_strndup(name, slash ? (gsize)(slash - name) : 0);
}

bool engine_is_numbered(const char *leaf)
{
    size_t length = strlen(leaf);
    return length > DIGITS && leaf[length - DIGITS - 1] == '-' &&
           strspn(leaf + length - DIGITS, "0123456789") == DIGITS;
}

bool engine_allows_name(struct engine *e, const char *name)
{
    bool good = strlen(name) < ENGINE_NAME_MAX;
    for (const char *at = name; good && *at;) {
        size_t length = strcspn(at, "/");
        good = length > 0 && length <= NAME_MAX_BYTES && !(at[length] == '/' && !at[length + 1]) &&
               !(length == 1 && at[0] == '.') && !(length == 2 && at[0] == '.' && at[1] == '.');
        at += length + (at[length] == '/');
    }
    return good && e->store->operations->allows_name(e->store, name);
}

void engine_begin_request(struct engine *e, void *request, GDestroyNotify free)
{
    e->round_trips++;
    g_hash_table_insert(e->requests, request, (gpointer)(uintptr_t)free);
}

void engine_end_request(struct engine *e, void *request)
{
    GDestroyNotify free = (GDestroyNotify)(uintptr_t)g_hash_table_lookup(e->requests, request);
    g_hash_table_remove(e->requests, request);
    free(request);
}

static clock_ms engine_next(const struct engine *e)
{
    const struct ticket *t = sorted_item(sorted_first(&e->agenda));
    const struct lock *lock = sorted_item(sorted_first(&e->wakes));
    const struct op *op = TAILQ_FIRST(&e->pending);
    clock_ms next = MIN(t ? t->next : CLOCK_NEVER, lock ? lock->wake : CLOCK_NEVER);
    next = MIN(next, op ? op->until : CLOCK_NEVER);
    return MIN(next, MIN(e->next_heartbeat, e->next_poll));
}

void engine_set_alarm(struct engine *e)
{
    clock_ms next = engine_next(e);
    struct itimerspec at = {.it_value = clock_timespec(MAX(next, 1))};
    if (next >= e->armed) {
        return; /* a later time is set when the alarm has gone off */
    }
    if (timerfd_settime(e->alarm.fd, TFD_TIMER_ABSTIME, &at, NULL) == 0) {
        e->armed = next;
    }
}

/* --- values --- */

void store_value_clear(struct store_value *value)
{
    g_clear_pointer(&value->bytes, g_bytes_unref);
    *value = (struct store_value){.state = STORE_ABSENT};
}

void store_value_set(struct store_value *value, const struct store_value *from)
{
    GBytes *bytes = from->bytes ? g_bytes_ref(from->bytes) : NULL;
    store_value_clear(value);
    *value = *from;
    value->bytes = bytes;
}

/* --- locks --- */

bool lock_is_directory(const struct lock *lock)
{
    return !*lock->name || lock->directory.state == STORE_PRESENT;
}

struct lock *lock_find(struct engine *e, const char *name)
{
    return g_hash_table_lookup(e->locks, name);
}

struct lock *lock_obtain_named(struct engine *e, const char *name)
{
    struct lock *lock = lock_find(e, name);
    if (!lock) {
        lock = g_new0(struct lock, 1);
        lock->engine = e;
        lock->name = g_strdup(name);
        lock->record = record_new(lock_is_directory(lock));
        lock->wake = CLOCK_NEVER;
        lock->serial = ++e->serials;
        TAILQ_INIT(&lock->ops);
        g_hash_table_insert(e->locks, lock->name, lock);
    }
    return lock;
}

/* Rule 11: a name "prefix-NNNNNNNNNN" stands in its directory's record, whoever has it.  (Else a plain lock of the name
 * of a sequence ticket would be in another record, and both could hold.) */
struct lock *lock_obtain(struct engine *e, const char *name, const char **ret_leaf)
{
    const char *leaf;
    g_autofree char *parent = engine_parent(name, &leaf);
    *ret_leaf = engine_is_numbered(leaf) ? leaf : NULL;
    return lock_obtain_named(e, *ret_leaf ? parent : name);
}

void lock_free(struct lock *lock)
{
    struct engine *e = lock->engine;
    lock_schedule(lock, CLOCK_NEVER);
    if (lock->ready) {
        TAILQ_REMOVE(&e->ready, lock, link);
    }
    g_hash_table_remove(e->locks, lock->name);
    store_value_clear(&lock->lock);
    store_value_clear(&lock->queue);
    store_value_clear(&lock->directory);
    store_value_clear(&lock->parent);
    record_free(lock->record);
    g_free(lock->name);
    g_free(lock);
}

void lock_drop(struct lock *lock)
{
    if (LIST_EMPTY(&lock->tickets) && TAILQ_EMPTY(&lock->ops) && !lock->busy && !lock->look && !lock->pins &&
        !lock->engine->freeing) {
        lock_free(lock);
    }
}

void lock_make_ready(struct lock *lock)
{
    struct engine *e = lock->engine;
    if (!lock->ready) {
        lock->ready = true;
        TAILQ_INSERT_TAIL(&e->ready, lock, link);
    }
    if (e->loop) {
        ev_feed_event(e->loop, &e->flush, EV_PREPARE);
    }
}

void lock_schedule(struct lock *lock, clock_ms at)
{
    struct engine *e = lock->engine;
    if (lock->wake != CLOCK_NEVER) {
        sorted_remove(&e->wakes, lock);
    }
    lock->wake = at;
    if (at != CLOCK_NEVER) {
        sorted_insert(&e->wakes, lock);
        engine_set_alarm(e);
    }
}

const struct backend_directory *engine_directory(const struct engine *e, const char *name)
{
    return g_hash_table_lookup(e->directories, name);
}

void engine_free_directory(gpointer data)
{
    struct backend_directory *directory = data;
    g_clear_pointer(&directory->meta, g_bytes_unref);
    g_free(directory);
}

void engine_set_directory(struct engine *e, const char *name, const struct backend_directory *directory)
{
    struct backend_directory *known = g_new0(struct backend_directory, 1);
    *known = *directory;
    known->meta = directory->meta ? g_bytes_ref(directory->meta) : NULL;
    g_hash_table_replace(e->directories, g_strdup(name), known);
}

/* Another client's lock, as a holder that excludes all. */
static struct record_ticket *lock_foreign_holder(void)
{
    struct record_ticket *t = backend_new0(sizeof *t);
    t->kind = RECORD_FOREIGN_HOLDER;
    t->held = true;
    t->fence = 1;
    t->deadline = CLOCK_NEVER;
    return t;
}

static struct record *lock_read(const struct store_value *value, bool directory)
{
    return record_read(value->bytes, directory, value->stamp, value->time, value->end);
}

/* Rule 6: while another client has the key, the queue is a value beside it.  (Else a mount would write our queue over
 * the lock of a client that does not know of queues, or a ticket for that client would outlive its lock.) */
void lock_decode(struct lock *lock)
{
    bool directory = lock_is_directory(lock);
    const struct store_value *value = directory                           ? &lock->directory
                                      : lock->lock.state == STORE_PRESENT ? &lock->lock
                                                                          : &lock->queue;
    struct record *record = value->state == STORE_PRESENT ? lock_read(value, directory) : record_new(directory);
    lock->damaged = !record;
    record_free(lock->record);
    lock->record = record ? record : record_new(directory);
    if (!directory && lock->lock.state == STORE_FOREIGN) {
        g_ptr_array_insert(lock->record->tickets, 0, lock_foreign_holder());
    }
    if (directory) {
        engine_set_directory(lock->engine, lock->name, &lock->record->attributes);
    }
    if (*lock->name && (lock->parent.state == STORE_PRESENT || lock->parent_known)) {
        const char *leaf;
        g_autofree char *parent = engine_parent(lock->name, &leaf);
        struct record *above = lock->parent.state == STORE_PRESENT ? lock_read(&lock->parent, true)
                               : !*parent                          ? record_new(true)
                                                                   : NULL;
        if (above) {
            engine_set_directory(lock->engine, parent, &above->attributes);
        }
        record_free(above);
    }
}

/* --- tickets --- */

struct ticket *ticket_find(const struct engine *e, struct record_id id)
{
    return g_hash_table_lookup(e->tickets, &id);
}

static clock_ms ticket_next(const struct ticket *t)
{
    return t->state == TICKET_ACQUIRING ? CLOCK_NEVER : MIN(MIN(t->due, t->retry), t->head.deadline);
}

void ticket_schedule(struct ticket *t)
{
    struct engine *e = t->lock->engine;
    if (t->next != CLOCK_NEVER) {
        sorted_remove(&e->agenda, t);
    }
    t->next = ticket_next(t);
    if (t->next != CLOCK_NEVER) {
        sorted_insert(&e->agenda, t);
        engine_set_alarm(e);
    }
}

struct ticket *ticket_new(struct engine *e, struct lock *lock, const char *leaf, const struct backend_claim *claim)
{
    struct ticket *t = backend_new0(sizeof *t);
    t->head.user = claim->user;
    t->head.kind = (uint8_t)claim->kind;
    t->head.mode = (uint8_t)claim->mode;
    t->head.ttl = claim->ttl;
    t->head.content = claim->content ? g_bytes_ref(claim->content) : NULL;
    t->meta = claim->meta ? g_bytes_ref(claim->meta) : NULL;
    t->lock = lock;
    t->leaf = g_strdup(leaf);
    t->sequence = claim->sequence;
    t->handle = claim->handle;
    t->lock_owner = claim->lock_owner;
    t->start = claim->kind == BACKEND_FCNTL ? claim->start : 0;
    t->end = claim->kind == BACKEND_FCNTL ? claim->end : BACKEND_RANGE_MAX;
    t->due_after = claim->due;
    t->due = t->retry = t->next = CLOCK_NEVER;
    t->serial = ++e->serials;
    t->id = engine_new_id(e);
    g_hash_table_insert(e->tickets, &t->id, t);
    LIST_INSERT_HEAD(&lock->tickets, t, link);
    return t;
}

void ticket_set_state(struct ticket *t, enum ticket_state state)
{
    struct engine *e = t->lock->engine;
    e->waiting += (uint64_t)(state == TICKET_WAITING) - (uint64_t)(t->state == TICKET_WAITING);
    t->state = state;
    t->head.held = state == TICKET_HOLDS;
}

void ticket_set_id(struct ticket *t, struct record_id id)
{
    GHashTable *tickets = t->lock->engine->tickets;
    g_hash_table_remove(tickets, &t->id);
    t->id = id;
    g_hash_table_insert(tickets, &t->id, t);
}

void ticket_move(struct ticket *t, struct lock *lock, const char *leaf)
{
    LIST_REMOVE(t, link);
    t->lock = lock;
    LIST_INSERT_HEAD(&lock->tickets, t, link);
    char *name = g_strdup(leaf);
    g_free(t->leaf);
    t->leaf = name;
}

void ticket_free(struct ticket *t)
{
    struct engine *e = t->lock->engine;
    struct op *op;
    TAILQ_FOREACH(op, &t->lock->ops, link) {
        op->ticket = op->ticket == t ? NULL : op->ticket;
    }
    ticket_set_state(t, TICKET_ACQUIRING);
    if (t->next != CLOCK_NEVER) {
        sorted_remove(&e->agenda, t);
    }
    if (e->extending) {
        g_ptr_array_remove(e->extending, t);
    }
    g_hash_table_remove(e->tickets, &t->id);
    LIST_REMOVE(t, link);
    lock_drop(t->lock);
    g_clear_pointer(&t->head.content, g_bytes_unref);
    g_clear_pointer(&t->meta, g_bytes_unref);
    g_clear_pointer(&t->segments, g_array_unref);
    g_free(t->leaf);
    g_free(t);
}

/* If the answer came so late that little of the term is left, it is due after a third of that. */
void ticket_start_term(struct ticket *t, clock_ms now, clock_ms deadline)
{
    int64_t left = deadline - now;
    t->head.deadline = deadline;
    t->due = t->due_after <= 0 ? CLOCK_NEVER : now + (t->due_after < left ? t->due_after : MAX(left / 3, 0));
    t->retry = CLOCK_NEVER;
    ticket_schedule(t);
}

void ticket_change(struct ticket *t, const struct backend_change *change)
{
    if (change->set & BACKEND_SET_META) {
        GBytes *old = t->meta;
        t->meta = change->meta ? g_bytes_ref(change->meta) : NULL;
        g_clear_pointer(&old, g_bytes_unref);
    }
    if (change->set & BACKEND_SET_CONTENT) {
        GBytes *old = t->head.content;
        t->head.content = change->content ? g_bytes_ref(change->content) : NULL;
        t->content_unknown = false;
        g_clear_pointer(&old, g_bytes_unref);
    }
}

void ticket_set_segments(struct ticket *t, const GArray *segments)
{
    g_clear_pointer(&t->segments, g_array_unref);
    t->segments = segments ? g_array_copy((GArray *)segments) : NULL;
}

void ticket_end(struct ticket *t, enum backend_end why)
{
    struct engine *e = t->lock->engine;
    struct lock *lock = t->lock;
    bool busy = lock->busy;
    lock->busy = true; /* it stays until this returns */
    e->lost += why == BACKEND_LOST;
    t->head.held = t->state == TICKET_HOLDS;
    struct record_id id = t->id;
    if (t->next != CLOCK_NEVER) {
        sorted_remove(&e->agenda, t);
        t->next = CLOCK_NEVER;
    }
    e->events->ended(e->context, &t->head, why);
    t = ticket_find(e, id);
    if (t) {
        ticket_free(t);
    }
    lock->busy = busy;
    lock_drop(lock);
}

bool ticket_is_expired(const struct ticket *t)
{
    return t->state == TICKET_HOLDS && t->head.deadline <= clock_now();
}

struct record_ticket *ticket_describe(const struct ticket *t)
{
    const struct engine *e = t->lock->engine;
    struct record_ticket *to = backend_new0(sizeof *to);
    bool ranged = t->head.kind == BACKEND_FCNTL && !t->sequence;
    to->id = t->id;
    to->mount = e->store->mount;
    to->leaf = g_strdup(t->leaf);
    to->sequence = t->sequence;
    to->held = t->state == TICKET_HOLDS;
    to->kind = t->head.kind;
    to->mode = t->head.mode;
    to->fence = t->head.fence;
    to->handle = engine_identity(e, t->handle);
    to->lock_owner = engine_identity(e, t->lock_owner);
    to->ttl = t->head.ttl;
    to->deadline = to->held ? 0 : CLOCK_NEVER; /* the op sets it */
    to->acquired = MAX(engine_store_now(e, t->head.acquired), 0);
    if (ranged && t->segments && to->held) {
        to->segments = g_array_copy(t->segments);
    } else if (ranged) {
        to->segments = backend_segments_new(t->start, t->end, (enum backend_mode)t->head.mode);
    }
    to->meta = t->meta ? g_bytes_ref(t->meta) : NULL;
    to->content = t->head.content ? g_bytes_ref(t->head.content) : NULL;
    return to;
}

/* --- ops --- */

struct op *op_new(struct engine *e, const struct op_type *type, struct lock *lock, struct ticket *t)
{
    struct op *op = g_new0(struct op, 1);
    op->type = type;
    op->lock = lock;
    op->ticket = t;
    op->serial = ++e->serials;
    op->until = clock_now() + e->options.timeout;
    if (t) {
        op->id = t->id;
        op->leaf = g_strdup(t->leaf);
    }
    return op;
}

void op_push(struct op *op)
{
    struct engine *e = op->lock->engine;
    TAILQ_INSERT_TAIL(&op->lock->ops, op, link);
    TAILQ_INSERT_TAIL(&e->pending, op, pending);
    op->pends = true;
    engine_set_alarm(e);
    if (op->changes && op->ticket) {
        op->ticket->changing++;
    }
    lock_make_ready(op->lock);
}

bool op_postpone(struct op *op, int64_t ms)
{
    struct engine *e = op->lock->engine;
    struct op *each;
    if (!op->tried && !op->lock->busy) {
        return false;
    }
    op->until = clock_now() + ms;
    op->pends = true;
    TAILQ_FOREACH(each, &e->pending, pending) {
        if (each->until > op->until) {
            TAILQ_INSERT_BEFORE(each, op, pending);
            return true;
        }
    }
    TAILQ_INSERT_TAIL(&e->pending, op, pending);
    return true;
}

bool lock_has_op(const struct lock *lock, const struct op_type *type)
{
    const struct op *op;
    TAILQ_FOREACH(op, &lock->ops, link) {
        if (op->type == type) {
            return true;
        }
    }
    return false;
}

void op_set_claim(struct op *op, const struct backend_claim *claim)
{
    op->claim = *claim;
    op->claim.meta = claim->meta ? g_bytes_ref(claim->meta) : NULL;
    op->claim.content = claim->content ? g_bytes_ref(claim->content) : NULL;
}

void op_set_info(struct op *op, const struct backend_info *info)
{
    GBytes *meta = info->meta ? g_bytes_ref(info->meta) : NULL;
    GBytes *content = info->content ? g_bytes_ref(info->content) : NULL;
    GBytes *directory = info->directory.meta ? g_bytes_ref(info->directory.meta) : NULL;
    g_clear_pointer(&op->info.meta, g_bytes_unref);
    g_clear_pointer(&op->info.content, g_bytes_unref);
    g_clear_pointer(&op->info.directory.meta, g_bytes_unref);
    op->info = *info;
    op->info.meta = meta;
    op->info.content = content;
    op->info.directory.meta = directory;
}

void op_answer(struct op *op, enum backend_result result)
{
    backend_done *done = op->done;
    backend_info_done *known = op->known;
    backend_acquire_done *acquired = op->acquired;
    op->done = NULL;
    op->known = NULL;
    op->acquired = NULL;
    if (done) {
        done(op->arg, result);
    } else if (known) {
        known(op->arg, result, result == BACKEND_OK ? &op->info : NULL);
    } else if (acquired) {
        bool granted = result == BACKEND_OK || result == BACKEND_QUEUED;
        acquired(op->arg, result, granted ? &op->ticket->head : NULL, result == BACKEND_BUSY ? &op->info : NULL);
    }
}

void op_free(struct op *op)
{
    struct lock *lock = op->lock;
    if (op->target) {
        op->target->pins--;
    }
    TAILQ_REMOVE(&lock->ops, op, link);
    if (op->pends) {
        TAILQ_REMOVE(&lock->engine->pending, op, pending);
    }
    if (op->changes && op->ticket) {
        op->ticket->changing--;
    }
    op_set_info(op, &(struct backend_info){.type = BACKEND_NOTHING});
    g_clear_pointer(&op->claim.meta, g_bytes_unref);
    g_clear_pointer(&op->claim.content, g_bytes_unref);
    g_clear_pointer(&op->change.meta, g_bytes_unref);
    g_clear_pointer(&op->change.content, g_bytes_unref);
    g_clear_pointer(&op->directory.meta, g_bytes_unref);
    g_clear_pointer(&op->targets, g_array_unref);
    g_free(op->match);
    g_free(op->target_leaf);
    g_free(op->leaf);
    g_free(op);
}
