/* scratch: a record in a lockspace, while ops are applied to it; see private.h. */
#include <string.h>

#include "backend/record/private.h"

static const char *const directories[] = {"0", "1"};

/* --- events of the lockspace --- */

static void scratch_on_granted(void *context, struct backend_ticket *ticket)
{
    struct scratch *s = context;
    g_ptr_array_add(s->granted, ticket);
}

static void scratch_on_due(void *context, struct backend_ticket *ticket)
{
    (void)context, (void)ticket;
}

void scratch_add_end(struct scratch *s, const struct record_ticket *tag, enum backend_end why)
{
    struct scratch_end end = {.id = tag->id, .mount = tag->mount, .why = (uint8_t)(1 + why)};
    g_array_append_val(s->ended, end);
}

/* The ticket has left: nothing refers to it any more. */
static void scratch_on_ended(void *context, struct backend_ticket *ticket, enum backend_end why)
{
    struct scratch *s = context;
    struct record_ticket *tag = ticket->user;
    bool guard = ticket->guarded;
    g_ptr_array_remove(s->granted, ticket);
    if (guard && s->guard) {
        s->guard->user = tag;
        s->guard = NULL;
    }
    if (tag) {
        s->needs_parent = s->needs_parent || why != BACKEND_RELEASED;
        scratch_add_end(s, tag, why);
        if (tag->content_apart && !guard) {
            scratch_add_content(s, tag->id, NULL);
        }
    }
    lockspace_ticket_free(ticket);
}

static void scratch_on_wanted(void *context, struct backend_ticket *ticket)
{
    struct scratch *s = context;
    const struct record_ticket *tag = ticket->user;
    if (tag && record_id_is_set(tag->mount)) {
        g_array_append_val(s->wanted, tag->mount);
    }
}

static void scratch_on_absorbed(void *context, struct backend_ticket *ticket)
{
    struct scratch *s = context;
    g_ptr_array_remove(s->granted, ticket);
    s->absorbed = ticket->user;
}

static void scratch_on_guarded(void *context, struct backend_ticket *ticket)
{
    struct scratch *s = context;
    s->guard = ticket;
}

static void scratch_on_unguarded(void *context, struct backend_ticket *ticket)
{
    struct scratch *s = context;
    const struct record_ticket *tag = ticket->user;
    s->needs_parent = true;
    if (tag && tag->content_apart) {
        scratch_add_content(s, tag->id, NULL);
    }
}

static const struct lockspace_listener scratch_listener = {
    .granted = scratch_on_granted,
    .due = scratch_on_due,
    .ended = scratch_on_ended,
    .wanted = scratch_on_wanted,
    .absorbed = scratch_on_absorbed,
    .guarded = scratch_on_guarded,
    .unguarded = scratch_on_unguarded,
};

/* --- beginning and end --- */

static void scratch_clear_content(gpointer data)
{
    g_clear_pointer(&((struct scratch_content *)data)->bytes, g_bytes_unref);
}

void scratch_init(struct scratch *s, struct engine *e, clock_ms now)
{
    *s = (struct scratch){.engine = e, .now = now};
    s->space = lockspace_new(&scratch_listener, s, 1);
    s->fresh = g_ptr_array_new_with_free_func(record_ticket_free);
    s->granted = g_ptr_array_new();
    s->ended = g_array_new(FALSE, FALSE, sizeof(struct scratch_end));
    s->wanted = g_array_new(FALSE, FALSE, sizeof(struct record_id));
    s->contents = g_array_new(FALSE, TRUE, sizeof(struct scratch_content));
    g_array_set_clear_func(s->contents, scratch_clear_content);
    if (e->closed) {
        record_close(s->space);
    }
}

void scratch_add(struct scratch *s, struct lock *lock)
{
    static const struct backend_directory plain = {.width = 1};
    const char *leaf;
    g_autofree char *parent = engine_parent(lock->name, &leaf);
    const struct backend_directory *above = engine_directory(s->engine, parent);
    bool directory = lock_is_directory(lock);
    s->lock[s->locks] = lock;
    s->before[s->locks] = record_copy(lock->record); /* ops change what stands beside the tickets */
    record_load(s->space, directories[s->locks], s->before[s->locks],
                directory ? &lock->record->attributes
                : above   ? above
                          : &plain);
    s->locks++;
}

void scratch_clear(struct scratch *s)
{
    lockspace_free(s->space);
    g_ptr_array_unref(s->fresh);
    g_ptr_array_unref(s->granted);
    g_array_unref(s->ended);
    g_array_unref(s->wanted);
    g_array_unref(s->contents);
    record_free(s->made);
    record_free(s->before[0]);
    record_free(s->before[1]);
}

/* --- help for ops --- */

const char *scratch_directory(const struct scratch *s, const struct lock *lock)
{
    return directories[s->lock[0] != lock];
}

char *scratch_path(const struct scratch *s, const struct lock *lock, const char *leaf)
{
    return g_strdup_printf("%s/%s", scratch_directory(s, lock), lock_is_directory(lock) && leaf ? leaf : RECORD_LEAF);
}

struct backend_ticket *scratch_find(struct scratch *s, const struct lock *lock, struct record_id id)
{
    return record_ticket_find(s->space, scratch_directory(s, lock), id);
}

struct record_ticket *scratch_tag(struct scratch *s, struct backend_ticket *ticket, struct record_id id)
{
    struct record_ticket *tag = backend_new0(sizeof *tag);
    tag->id = id;
    tag->mount = s->engine->store->mount;
    ticket->user = tag;
    g_ptr_array_add(s->fresh, tag);
    return tag;
}

enum backend_result scratch_check_name(const struct scratch *s, const struct op *op)
{
    const struct lock *lock = op->lock;
    bool below_root = strchr(lock->name, '/') != NULL;
    (void)s;
    if (lock->damaged) {
        return BACKEND_DAMAGED;
    }
    if (lock->in_lock) {
        return BACKEND_NOT_DIRECTORY;
    }
    if (lock->known && below_root && lock->parent.state == STORE_ABSENT && lock->lock.state == STORE_ABSENT &&
        lock->directory.state == STORE_ABSENT) {
        return BACKEND_MISSING;
    }
    if (op->leaf && !lock_is_directory(lock)) {
        return !lock->known ? BACKEND_OK : lock->lock.state != STORE_ABSENT ? BACKEND_NOT_DIRECTORY : BACKEND_MISSING;
    }
    return !op->leaf && lock_is_directory(lock) ? BACKEND_IS_DIRECTORY : BACKEND_OK;
}

void scratch_add_content(struct scratch *s, struct record_id id, GBytes *bytes)
{
    const struct scratch_content content = {.id = id, .bytes = bytes ? g_bytes_ref(bytes) : NULL};
    for (guint i = 0; i < s->contents->len; i++) {
        if (record_id_equal(g_array_index(s->contents, struct scratch_content, i).id, id)) {
            g_array_remove_index(s->contents, i);
            break;
        }
    }
    g_array_append_val(s->contents, content);
}

static void scratch_remove(struct scratch *s, struct backend_ticket *ticket, clock_ms at)
{
    const struct record_ticket *tag = ticket->user;
    g_ptr_array_remove(s->granted, ticket);
    if (tag && tag->content_apart) {
        scratch_add_content(s, tag->id, NULL);
    }
    lockspace_release(s->space, at, ticket);
    s->dirty = true;
}

void scratch_release(struct scratch *s, struct backend_ticket *ticket)
{
    scratch_remove(s, ticket, s->now);
    scratch_settle_grants(s);
}

/* --- grants --- */

/* Rule 8: a ticket of another mount is granted for a short time, in which its mount must claim it: the mount may be
 * gone, or the ticket's caller.  (Else a grant to a mount that has died keeps the lock for a whole term, and a grant
 * that crosses a cancel is held by nobody.)  A byte range is claimed by its own mount, too: it then joins what its lock
 * owner holds. */
static void scratch_settle_grant(struct scratch *s, struct backend_ticket *ticket, clock_ms at)
{
    const struct engine *e = s->engine;
    struct record_ticket *tag = ticket->user;
    bool own = record_id_equal(tag->mount, e->store->mount);
    const struct ticket *t = own ? ticket_find(e, tag->id) : NULL;
    bool full = t && t->state != TICKET_HOLDS && ticket->kind != BACKEND_FCNTL;
    s->dirty = true;
    tag->claim = !full;
    if (!full) {
        record_set_deadline(s->space, ticket, at + ENGINE_CLAIM);
        g_array_append_val(s->wanted, tag->mount);
    } else if (t->sequence && t->state == TICKET_WAITING) {
        record_set_deadline(s->space, ticket, s->now + MAX(t->head.deadline - clock_now(), 1));
    } else {
        record_set_deadline(s->space, ticket, s->now + ticket->ttl);
    }
}

static void scratch_settle_grants_at(struct scratch *s, clock_ms at)
{
    for (guint i = 0; i < s->granted->len; i++) {
        scratch_settle_grant(s, s->granted->pdata[i], at);
    }
    g_ptr_array_set_size(s->granted, 0);
}

void scratch_settle_grants(struct scratch *s)
{
    scratch_settle_grants_at(s, s->now);
}

/* --- time --- */

struct due {
    clock_ms at;
    struct record_id mount;
    struct backend_ticket *claim;
    GPtrArray *waiters;
};

static void scratch_find_claim(void *arg, const char *leaf, struct backend_ticket *ticket)
{
    struct due *due = arg;
    const struct record_ticket *tag = ticket->user;
    (void)leaf;
    if (tag && tag->claim && ticket->held && ticket->deadline <= due->at) {
        due->claim = ticket;
    }
}

static void scratch_find_waiters(void *arg, const char *leaf, struct backend_ticket *ticket)
{
    struct due *due = arg;
    const struct record_ticket *tag = ticket->user;
    (void)leaf;
    if (tag && !ticket->held && record_id_equal(tag->mount, due->mount)) {
        g_ptr_array_add(due->waiters, ticket);
    }
}

/* A claim that nobody has confirmed: its mount does not answer, so its other tickets stop waiting here, too.  (They
 * would cost those behind them a claim each.)  If it is alive, it queues again. */
static void scratch_drop_claim(struct scratch *s, struct due *due, const char *directory)
{
    const struct record_ticket *tag = due->claim->user;
    due->mount = tag->mount;
    due->waiters = g_ptr_array_new();
    record_visit(s->space, directory, scratch_find_waiters, due);
    for (guint i = 0; i < due->waiters->len; i++) {
        scratch_remove(s, due->waiters->pdata[i], due->at);
    }
    g_ptr_array_unref(due->waiters);
    scratch_remove(s, due->claim, due->at);
    g_array_append_val(s->wanted, due->mount);
}

void scratch_advance(struct scratch *s)
{
    clock_ms next;
    while (!s->engine->closed && (next = lockspace_next(s->space)) <= s->now) {
        struct due due = {.at = next};
        for (unsigned i = 0; i < s->locks && !due.claim; i++) {
            record_visit(s->space, directories[i], scratch_find_claim, &due);
            if (due.claim) {
                scratch_drop_claim(s, &due, directories[i]);
            }
        }
        if (!due.claim) {
            lockspace_tick(s->space, next, 1);
        }
        /* Rule 3: the store refuses this while its own clock is before that deadline.  (A mount whose clock runs ahead
         * would end a lock in whose holder's time it is not over.) */
        s->not_before = MAX(s->not_before, next);
        s->dirty = true;
        scratch_settle_grants_at(s, next);
    }
}

/* --- writing --- */

GBytes *scratch_message(const struct scratch *s, struct record_id mount)
{
    GByteArray *out = g_byte_array_new();
    uint64_t ack = GUINT64_TO_LE(s->ack);
    g_byte_array_append(out, (const guint8 *)&ack, sizeof ack);
    g_byte_array_append(out, (const guint8 *)&s->engine->store->mount, sizeof mount);
    for (guint i = 0; i < s->ended->len; i++) {
        const struct scratch_end *end = &g_array_index(s->ended, struct scratch_end, i);
        if (record_id_equal(end->mount, mount)) {
            g_byte_array_append(out, (const guint8 *)&end->id, sizeof end->id);
            g_byte_array_append(out, &end->why, 1);
        }
    }
    return g_byte_array_free_to_bytes(out);
}

static void scratch_write_messages(struct scratch *s, struct store_change *change)
{
    for (guint i = 0; i < s->ended->len; i++) {
        struct record_id mount = g_array_index(s->ended, struct scratch_end, i).mount;
        g_array_append_val(s->wanted, mount);
    }
    for (guint i = 0; i < s->wanted->len; i++) {
        struct record_id to = g_array_index(s->wanted, struct record_id, i);
        bool there = record_id_equal(to, s->engine->store->mount) || !record_id_is_set(to);
        for (guint k = 0; k < i && !there; k++) {
            there = record_id_equal(g_array_index(s->wanted, struct record_id, k), to);
        }
        if (!there) {
            struct store_message message = {.to = to, .text = scratch_message(s, to)};
            g_array_append_val(change->messages, message);
        }
    }
}

static struct store_put *scratch_put(struct store_change *change, enum store_space space, const char *name,
                                     const struct store_value *seen)
{
    struct store_put *put = &change->puts[change->count++];
    g_assert(change->count <= STORE_PUTS_MAX);
    *put = (struct store_put){.key = {.space = space, .name = g_strdup(name)}, .expect = STORE_IS_ABSENT};
    /* Rule 1: stamp and end.  (B reads a record with 20 s left, A extends it to 30 s, B's swap writes A's old end, and
     * A relies on 10 s too much.) */
    if (seen && seen->state == STORE_PRESENT) {
        put->expect = STORE_IS_SAME;
        put->stamp = seen->stamp;
        put->end = seen->end;
    } else if (seen && seen->state == STORE_FOREIGN) {
        put->expect = STORE_IS_FOREIGN;
        put->stamp = seen->stamp;
    }
    return put;
}

/* How long the record lasts in the store. */
static void scratch_set_end(const struct scratch *s, struct record *record, int64_t delay, struct store_put *put)
{
    bool holders = false, waiters = false;
    for (guint i = 0; i < record->tickets->len; i++) {
        const struct record_ticket *t = record->tickets->pdata[i];
        int64_t after = t->kind == RECORD_DELAY || t->kind == BACKEND_PROVISIONAL ? 0 : delay;
        waiters = waiters || !t->held;
        holders = holders || t->held;
        if (t->held && t->deadline_new) {
            put->term = MAX(put->term, t->deadline - s->now + after);
        } else if (t->held) {
            put->until = MAX(put->until, t->deadline + after);
        }
    }
    /* Rule 5: with waiters the record outlasts its holders by a heartbeat and a claim.  (Else the store removes it at
     * the holder's deadline, and a client that polls takes the lock before the first waiter does.) */
    int64_t more = waiters ? ENGINE_LIVENESS + ENGINE_CLAIM : 0;
    put->until += put->until ? more : 0;
    put->term += holders ? more : 10 * ENGINE_LIVENESS;
    const struct record_ticket *only = record->tickets->pdata[0];
    if (record->tickets->len == 1 && only->held && !only->claim && !only->guarded && only->kind <= BACKEND_FCNTL) {
        /* Rule 9: the only holder is renewed by moving the record's end, many in one request, and when its mount is
         * gone the store itself ends it.  Holders beside others have their deadlines in the bytes.  (If a heartbeat
         * renewed them, a swap that removes one because its heartbeat was old could run right behind a newer heartbeat:
         * the compare does not see it, and its mount relies on it.) */
        record->ends_with_record = true;
        record->after = only->kind == BACKEND_PROVISIONAL ? 0 : delay;
    }
}

/* Above every token of the record, also of one that came from another name. */
static uint64_t scratch_floor(const struct record *record)
{
    uint64_t floor = record->granted < RECORD_NEW_TOKENS ? record->granted : 0;
    for (guint i = 0; i < record->tickets->len; i++) {
        const struct record_ticket *t = record->tickets->pdata[i];
        floor = t->fence < RECORD_NEW_TOKENS ? MAX(floor, t->fence) : floor;
    }
    return floor;
}

static bool scratch_fill_put(const struct scratch *s, struct record *record, struct store_put *put)
{
    put->tokens = record->tokens;
    put->floor = scratch_floor(record);
    put->bytes = record_write(record, s->now);
    put->action = STORE_WRITE;
    return put->bytes;
}

static bool scratch_write_lock(struct scratch *s, const struct lock *lock, struct record *record, int64_t delay,
                               struct store_change *change)
{
    const struct store_value none = {.state = STORE_ABSENT};
    bool foreign = lock->lock.state == STORE_FOREIGN && !s->foreign_broken, good = true;
    bool empty = record->tickets->len == 0;
    struct store_put *put = scratch_put(change, STORE_LOCK, lock->name, &lock->lock);
    struct store_put *queue =
        lock->lock.state != STORE_PRESENT ? scratch_put(change, STORE_QUEUE, lock->name, &lock->queue) : NULL;
    struct store_put *written = foreign ? queue : put;
    if (!empty) {
        scratch_set_end(s, record, delay, written);
        good = scratch_fill_put(s, record, written);
    } else if (written->expect != STORE_IS_ABSENT) {
        written->action = STORE_REMOVE;
    }
    if (!foreign && queue && queue->expect == STORE_IS_SAME) {
        queue->action = STORE_REMOVE; /* the other client is gone: the queue becomes the lock */
    }
    const char *leaf;
    g_autofree char *parent = engine_parent(lock->name, &leaf);
    if (s->needs_parent) {
        scratch_put(change, STORE_DIRECTORY, parent, &lock->parent);
    } else if (*parent && lock->lock.state == STORE_ABSENT && !empty) {
        scratch_put(change, STORE_DIRECTORY, parent, NULL)->expect = STORE_IS_THERE;
    }
    if (lock->lock.state == STORE_ABSENT && !empty) {
        scratch_put(change, STORE_DIRECTORY, lock->name, &none);
    }
    return good;
}

static bool scratch_write_directory(struct scratch *s, const struct lock *lock, struct record *record,
                                    struct store_change *change)
{
    struct store_put *put = scratch_put(change, STORE_DIRECTORY, lock->name, &lock->directory);
    if (s->remove) {
        put->action = STORE_REMOVE;
        put->must_be_empty = true;
        return true;
    }
    put->until = RECORD_FOREVER;
    return scratch_fill_put(s, record, put);
}

static bool scratch_write_new_directory(struct scratch *s, const struct lock *lock, struct store_change *change)
{
    const struct store_value none = {.state = STORE_ABSENT};
    const char *leaf;
    g_autofree char *parent = engine_parent(lock->name, &leaf);
    struct store_put *put = scratch_put(change, STORE_DIRECTORY, lock->name, &none);
    put->until = RECORD_FOREVER;
    scratch_put(change, STORE_LOCK, lock->name, &lock->lock)->action =
        lock->lock.state == STORE_PRESENT ? STORE_REMOVE : STORE_KEEP;
    scratch_put(change, STORE_QUEUE, lock->name, &none);
    if (*parent) {
        scratch_put(change, STORE_DIRECTORY, parent, NULL)->expect = STORE_IS_THERE;
    }
    return scratch_fill_put(s, s->made, put);
}

static void scratch_write_contents(struct scratch *s, struct store_change *change)
{
    const struct store_put *first = &change->puts[0];
    for (guint i = 0; i < s->contents->len && change->count < STORE_PUTS_MAX; i++) {
        const struct scratch_content *content = &g_array_index(s->contents, struct scratch_content, i);
        g_autofree char *name = record_id_text(content->id);
        struct store_put *put = scratch_put(change, STORE_CONTENT, name, NULL);
        put->expect = STORE_IS_ANY;
        put->action = content->bytes ? STORE_WRITE : STORE_REMOVE;
        put->bytes = content->bytes ? g_bytes_ref(content->bytes) : NULL;
        put->term = first->term;
        put->until = first->until;
    }
}

static void scratch_drop_foreign(struct record *record)
{
    const struct record_ticket *first = record->tickets->len ? record->tickets->pdata[0] : NULL;
    if (first && first->kind == RECORD_FOREIGN_HOLDER) {
        g_ptr_array_remove_index(record->tickets, 0);
    }
}

void change_clear(struct store_change *change)
{
    for (unsigned i = 0; i < change->count; i++) {
        g_free((char *)change->puts[i].key.name);
        g_clear_pointer(&change->puts[i].bytes, g_bytes_unref);
    }
    for (guint i = 0; change->messages && i < change->messages->len; i++) {
        g_bytes_unref(g_array_index(change->messages, struct store_message, i).text);
    }
    g_clear_pointer(&change->messages, g_array_unref);
    change->count = 0;
}

/* `change` is empty. */
bool scratch_write(struct scratch *s, struct store_change *change)
{
    bool good = !s->make || scratch_write_new_directory(s, s->lock[0], change);
    change->not_before = s->not_before;
    change->messages = g_array_new(FALSE, FALSE, sizeof(struct store_message));
    for (unsigned i = 0; i < s->locks && !s->make; i++) {
        const struct lock *lock = s->lock[i];
        struct record *record = record_save(s->space, directories[i], s->before[i]);
        const char *leaf;
        g_autofree char *parent = engine_parent(lock->name, &leaf);
        const struct backend_directory *above = engine_directory(s->engine, parent);
        scratch_drop_foreign(record);
        good = (lock_is_directory(lock) ? scratch_write_directory(s, lock, record, change)
                                        : scratch_write_lock(s, lock, record, above ? above->delay : 0, change)) &&
               good;
        record_free(record);
    }
    scratch_write_contents(s, change);
    scratch_write_messages(s, change);
    return good;
}
