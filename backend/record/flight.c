/* flight: sends the changes of a turn of the loop, and reads; see private.h.
 *
 * Rule 10: one change of a lock is in flight.  Ops that are called meanwhile go into the next one together, and the
 * changes of one turn leave in one request.  From the third conflict in a row on, the next attempt comes after a random
 * pause. (Else a hundred mounts that begin to wait at once repeat a hundred swaps for each that is done.)
 */
#include <string.h>

#include "backend/record/private.h"

enum { CONFLICTS_FREE = 2, CONFLICT_PAUSE = 4, AGAIN_PAUSE = 5, OPS_MAX = 256 };

struct flight {
    struct store_change change; /* first */
    struct engine *engine;
    struct lock *lock[2];
    unsigned locks;
    GPtrArray *ops; /* struct op, those that were applied */
    GArray *ended;  /* struct scratch_end: of this mount's tickets */
    clock_ms sent;
    uint64_t serial; /* ops before it are answered by what its answer brings */
};

struct reading {
    struct engine *engine;
    GPtrArray *locks;
    GArray *counts; /* guint: keys of each */
    uint64_t serial;
    clock_ms sent;
};

struct extending {
    struct engine *engine;
    GArray *extensions;    /* struct store_extension */
    struct record_id *ids; /* of the tickets */
    clock_ms sent;
};

/* --- pending requests --- */

static void flight_free(gpointer data)
{
    struct flight *flight = data;
    change_clear(&flight->change);
    g_ptr_array_unref(flight->ops);
    g_array_unref(flight->ended);
    g_free(flight);
}

static void flight_free_reading(gpointer data)
{
    struct reading *reading = data;
    g_ptr_array_unref(reading->locks);
    g_array_unref(reading->counts);
    g_free(reading);
}

static void flight_free_extending(gpointer data)
{
    struct extending *extending = data;
    for (guint i = 0; i < extending->extensions->len; i++) {
        g_free((char *)g_array_index(extending->extensions, struct store_extension, i).key.name);
    }
    g_array_unref(extending->extensions);
    g_free(extending->ids);
    g_free(extending);
}

/* --- what is known --- */

static void flight_forget(struct lock *lock)
{
    lock->known = lock->parent_known = false;
    store_value_clear(&lock->lock);
    store_value_clear(&lock->queue);
    store_value_clear(&lock->directory);
    store_value_clear(&lock->parent);
    lock->in_lock = false;
    lock_decode(lock);
}

void flight_forget_all(struct engine *e)
{
    GList *locks = g_hash_table_get_values(e->locks);
    for (GList *each = locks; each; each = each->next) {
        struct lock *lock = each->data;
        flight_forget(lock);
        lock->look = !LIST_EMPTY(&lock->tickets) || !TAILQ_EMPTY(&lock->ops);
        lock_make_ready(lock);
    }
    g_list_free(locks);
}

/* The request is answered: the lock can have the next one. */
static void flight_land(struct lock *lock)
{
    struct engine *e = lock->engine;
    lock->busy = false;
    for (guint i = 0; i < e->blocked->len; i++) {
        lock_make_ready(e->blocked->pdata[i]);
    }
    g_ptr_array_set_size(e->blocked, 0);
    if (!TAILQ_EMPTY(&lock->ops) || lock->look) {
        lock_make_ready(lock);
    } else {
        lock_drop(lock);
    }
}

static void flight_pause(struct lock *lock, int64_t ms)
{
    lock->pause = clock_now() + ms;
}

/* --- reads --- */

static void flight_add_key(GArray *keys, enum store_space space, const char *name)
{
    struct store_key key = {.space = space, .name = g_strdup(name)};
    g_array_append_val(keys, key);
}

/* The name as a lock, a queue and a directory, its parent, and what is above that as locks. */
static guint flight_add_keys(GArray *keys, const struct lock *lock)
{
    guint before = keys->len;
    const char *leaf;
    g_autofree char *above = engine_parent(lock->name, &leaf);
    flight_add_key(keys, STORE_DIRECTORY, lock->name);
    if (!*lock->name) {
        return 1;
    }
    flight_add_key(keys, STORE_LOCK, lock->name);
    flight_add_key(keys, STORE_QUEUE, lock->name);
    flight_add_key(keys, STORE_DIRECTORY, above);
    while (*above) {
        flight_add_key(keys, STORE_LOCK, above);
        char *next = engine_parent(above, &leaf);
        g_free(above);
        above = next;
    }
    return keys->len - before;
}

static void flight_take_read(struct lock *lock, const struct store_value *values, guint count, uint64_t serial)
{
    store_value_set(&lock->directory, &values[0]);
    lock->in_lock = false;
    if (count > 1) {
        store_value_set(&lock->lock, &values[1]);
        store_value_set(&lock->queue, &values[2]);
        store_value_set(&lock->parent, &values[3]);
    }
    for (guint i = 4; i < count; i++) {
        lock->in_lock = lock->in_lock || values[i].state != STORE_ABSENT;
    }
    lock->known = lock->parent_known = true;
    lock->seen = MAX(lock->seen, serial);
    lock->look = false;
    lock_decode(lock);
}

static void flight_on_read(void *arg, const struct store_answer *answer)
{
    struct reading *reading = arg;
    struct engine *e = reading->engine;
    const struct store_value *values = answer->keys;
    engine_note_time(e, answer->time);
    for (guint i = 0; i < reading->locks->len; i++) {
        struct lock *lock = reading->locks->pdata[i];
        guint count = g_array_index(reading->counts, guint, i);
        if (answer->result == STORE_DONE) {
            flight_take_read(lock, values, count, reading->serial);
            values += count;
            e->observe(lock, false, reading->sent);
        } else {
            lock->look = true;
            flight_pause(lock, ENGINE_RETRY);
        }
        flight_land(lock);
    }
    engine_end_request(e, reading);
}

static void flight_send_reads(struct engine *e, const GPtrArray *locks)
{
    struct reading *reading = g_new0(struct reading, 1);
    GArray *keys = g_array_new(FALSE, FALSE, sizeof(struct store_key));
    reading->engine = e;
    reading->locks = g_ptr_array_new();
    reading->counts = g_array_new(FALSE, FALSE, sizeof(guint));
    reading->serial = ++e->serials;
    reading->sent = clock_now();
    for (guint i = 0; i < locks->len; i++) {
        guint count = flight_add_keys(keys, locks->pdata[i]);
        g_ptr_array_add(reading->locks, locks->pdata[i]);
        g_array_append_val(reading->counts, count);
    }
    engine_begin_request(e, reading, flight_free_reading);
    e->store->operations->read(e->store, (struct store_key *)(void *)keys->data, keys->len, flight_on_read, reading);
    for (guint i = 0; i < keys->len; i++) {
        g_free((char *)g_array_index(keys, struct store_key, i).name);
    }
    g_array_unref(keys);
}

/* --- answers to changes --- */

static struct store_value *flight_value(struct lock *lock, const struct store_key *key)
{
    switch (key->space) {
    case STORE_LOCK:
        return strcmp(key->name, lock->name) == 0 ? &lock->lock : NULL;
    case STORE_QUEUE:
        return strcmp(key->name, lock->name) == 0 ? &lock->queue : NULL;
    case STORE_DIRECTORY:
        return strcmp(key->name, lock->name) == 0 ? &lock->directory : &lock->parent;
    default:
        return NULL;
    }
}

/* Which of its locks a put is about. */
static struct lock *flight_lock_of(const struct flight *flight, unsigned put)
{
    if (flight->locks == 1 || put == 0) {
        return flight->lock[0];
    }
    for (unsigned i = 1; i <= put; i++) {
        if (flight->change.puts[i].key.space == STORE_LOCK) {
            return flight->lock[1]; /* the puts of the second begin here */
        }
    }
    return flight->lock[0];
}

static void flight_take_done(struct flight *flight, const struct store_answer *answer)
{
    for (unsigned i = 0; i < flight->change.count; i++) {
        const struct store_put *put = &flight->change.puts[i];
        struct lock *lock = flight_lock_of(flight, i);
        struct store_value *value = flight_value(lock, &put->key);
        if (value && put->action == STORE_WRITE) {
            struct store_value written = answer->keys[i];
            written.bytes = put->bytes;
            written.state = STORE_PRESENT;
            store_value_set(value, &written);
        } else if (value && (put->action == STORE_REMOVE || put->expect == STORE_IS_ABSENT)) {
            store_value_clear(value);
        }
    }
    for (unsigned i = 0; i < flight->locks; i++) {
        flight->lock[i]->known = true;
        flight->lock[i]->seen = MAX(flight->lock[i]->seen, flight->serial);
        flight->lock[i]->look = false;
        flight->lock[i]->conflicts = 0;
        lock_decode(flight->lock[i]);
    }
}

static void flight_take_changed(struct flight *flight, const struct store_answer *answer)
{
    bool whole[2] = {false, false};
    for (unsigned i = 0; i < flight->change.count; i++) {
        const struct store_put *put = &flight->change.puts[i];
        struct lock *lock = flight_lock_of(flight, i);
        struct store_value *value = flight_value(lock, &put->key);
        if (!value) {
            continue;
        }
        store_value_set(value, &answer->keys[i]);
        lock->parent_known = lock->parent_known || value == &lock->parent;
        whole[lock != flight->lock[0]] |= put->key.space == STORE_QUEUE || value->state == STORE_PRESENT;
        if (value == &lock->parent && value->state == STORE_ABSENT) {
            lock->look = true; /* whether what is above is a lock */
        }
    }
    for (unsigned i = 0; i < flight->locks; i++) {
        struct lock *lock = flight->lock[i];
        lock->known = true;
        lock->seen = MAX(lock->seen, flight->serial);
        if (!whole[i] && lock->lock.state == STORE_ABSENT && *lock->name && !lock_is_directory(lock)) {
            flight_forget(lock); /* it has ended; what may stand beside it now was not in the answer */
        }
        lock_decode(lock);
        if (++lock->conflicts > CONFLICTS_FREE) {
            int most = CONFLICT_PAUSE * (int)MIN(lock->conflicts, 8);
            flight_pause(lock, g_rand_int_range(lock->engine->chance, 0, most) + 1);
        }
    }
}

static void flight_settle(const struct flight *flight, bool late)
{
    for (guint i = 0; i < flight->ops->len; i++) {
        struct op *op = flight->ops->pdata[i];
        if (op && op->type->is_late == late) {
            flight->ops->pdata[i] = NULL;
            op->sent = flight->sent;
            op->type->settle(op);
            op_free(op);
        }
    }
}

/* Nothing has changed; they get this result. */
static void flight_fail(struct flight *flight, enum backend_result result)
{
    for (guint i = 0; i < flight->ops->len; i++) {
        struct op *op = flight->ops->pdata[i];
        if (!op->type->is_lasting) {
            op->result = result;
            op->type->settle(op);
            op_free(op);
        }
    }
}

static void flight_note_ends(const struct flight *flight)
{
    for (guint i = 0; i < flight->ended->len; i++) {
        const struct scratch_end *end = &g_array_index(flight->ended, struct scratch_end, i);
        struct ticket *t = ticket_find(flight->engine, end->id);
        if (t) {
            t->why = end->why;
        }
    }
}

static void flight_on_done(struct store_change *change, const struct store_answer *answer)
{
    struct flight *flight = (struct flight *)change;
    struct engine *e = flight->engine;
    engine_note_time(e, answer->time);
    switch (answer->result) {
    case STORE_DONE:
        flight_take_done(flight, answer);
        flight_note_ends(flight);
        flight_settle(flight, false);
        for (unsigned i = 0; i < flight->locks; i++) {
            e->observe(flight->lock[i], true, flight->sent);
        }
        flight_settle(flight, true);
        break;
    case STORE_CHANGED:
        flight_take_changed(flight, answer);
        for (unsigned i = 0; i < flight->locks; i++) {
            if (flight->lock[i]->known) {
                e->observe(flight->lock[i], false, flight->sent);
            }
        }
        break;
    case STORE_NOT_EMPTY:
        flight_fail(flight, BACKEND_NOT_EMPTY);
        break;
    case STORE_FULL:
        flight_fail(flight, BACKEND_FULL);
        flight_pause(flight->lock[0], ENGINE_RETRY);
        break;
    case STORE_REFUSED:
        flight_fail(flight, BACKEND_DAMAGED);
        flight_pause(flight->lock[0], ENGINE_RETRY);
        break;
    case STORE_AGAIN:
        flight_pause(flight->lock[0], g_rand_int_range(e->chance, 1, AGAIN_PAUSE));
        break;
    case STORE_EARLY:
        break;
    case STORE_OTHER_EPOCH:
    case STORE_OTHER_CONNECTION:
        e->enter(e);
        break;
    case STORE_UNKNOWN:
        for (guint i = 0; i < flight->ops->len; i++) {
            ((struct op *)flight->ops->pdata[i])->tried = true;
        }
        for (unsigned i = 0; i < flight->locks; i++) {
            flight_forget(flight->lock[i]);
            flight->lock[i]->look = true;
        }
        flight_pause(flight->lock[0], ENGINE_RETRY);
        break;
    }
    for (unsigned i = 0; i < flight->locks; i++) {
        flight_land(flight->lock[i]);
    }
    engine_end_request(e, flight);
}

/* --- changes --- */

static bool flight_is_blind(const struct lock *lock, const struct op *op)
{
    const char *leaf;
    g_autofree char *parent = engine_parent(lock->name, &leaf);
    return op->type->is_blind && !op->tried && (op->leaf == NULL) && engine_directory(lock->engine, parent);
}

/* Applies ops of the first lock; at most `max`. */
static void flight_apply(struct flight *flight, struct scratch *s, unsigned max)
{
    struct op *op;
    scratch_init(s, flight->engine, engine_store_now(flight->engine, clock_now()));
    for (unsigned i = 0; i < flight->locks; i++) {
        scratch_add(s, flight->lock[i]);
    }
    scratch_advance(s);
    g_ptr_array_set_size(flight->ops, 0);
    TAILQ_FOREACH(op, &flight->lock[0]->ops, link) {
        if (flight->ops->len == max || (op->type->is_single && flight->ops->len > 0)) {
            break;
        }
        if (op->abandoned && !op->type->abandon) {
            op->result = BACKEND_UNREACHABLE; /* its caller has been answered: it is not done later */
        } else {
            op->type->apply(op, s);
        }
        g_ptr_array_add(flight->ops, op);
        if (op->type->is_single || s->contents->len >= STORE_PUTS_MAX / 2) {
            break;
        }
    }
}

/* The ops change nothing.  Are their results newer than their calls? */
static bool flight_is_fresh(const struct flight *flight)
{
    for (guint i = 0; i < flight->ops->len; i++) {
        const struct op *op = flight->ops->pdata[i];
        for (unsigned k = 0; k < flight->locks; k++) {
            if (!flight->lock[k]->known || flight->lock[k]->seen < op->serial) {
                return false;
            }
        }
    }
    return true;
}

static void flight_take_off(struct flight *flight)
{
    for (unsigned i = 0; i < flight->locks; i++) {
        flight->lock[i]->busy = true;
    }
}

/* Rule 13: the marker knows a term before a ticket has it. */
static bool flight_terms_are_allowed(struct lock *lock)
{
    struct engine *e = lock->engine;
    const struct op *op;
    int64_t longest = 0;
    TAILQ_FOREACH(op, &lock->ops, link) {
        longest = MAX(longest, MAX(op->claim.ttl, op->ticket ? op->ticket->head.ttl : 0));
    }
    return longest <= e->longest || e->allows_term(e, longest);
}

/* What the lock needs next: a change goes to `changes`, locks that must be read to `reads`. */
static void flight_prepare(struct lock *lock, GPtrArray *changes, GPtrArray *reads)
{
    struct engine *e = lock->engine;
    struct op *first = TAILQ_FIRST(&lock->ops);
    struct scratch s;
    if (lock->look || (first && !lock->known && !flight_is_blind(lock, first))) {
        lock->busy = true;
        g_ptr_array_add(reads, lock);
        return;
    }
    if (!first) {
        lock_drop(lock);
        return;
    }
    if ((first->target && first->target->busy) || !flight_terms_are_allowed(lock)) {
        g_ptr_array_add(e->blocked, lock);
        return;
    }
    struct flight *flight = g_new0(struct flight, 1);
    flight->change.done = flight_on_done;
    flight->engine = e;
    flight->lock[0] = lock;
    flight->lock[1] = first->target;
    flight->locks = first->target && first->target != lock ? 2 : 1;
    flight->ops = g_ptr_array_new();
    flight->ended = g_array_new(FALSE, FALSE, sizeof(struct scratch_end));
    flight->sent = clock_now();
    flight->serial = ++e->serials;
    flight_apply(flight, &s, OPS_MAX);
    bool stale = s.needs_parent && !lock_is_directory(lock) && !lock->parent_known;
    bool good = s.dirty && !stale && scratch_write(&s, &flight->change);
    if (s.dirty && !stale && !good && flight->ops->len > 1) {
        scratch_clear(&s);
        change_clear(&flight->change);
        flight_apply(flight, &s, 1);
        good = scratch_write(&s, &flight->change);
    }
    g_array_append_vals(flight->ended, s.ended->data, s.ended->len);
    bool dirty = s.dirty;
    scratch_clear(&s);
    flight_take_off(flight);
    if (good) {
        engine_begin_request(e, flight, flight_free);
        g_ptr_array_add(changes, &flight->change);
    } else if (!stale && (dirty || flight_is_fresh(flight))) {
        if (dirty) {
            flight_fail(flight, BACKEND_FULL);
            flight_pause(lock, ENGINE_RETRY);
        } else {
            flight_settle(flight, false);
            flight_settle(flight, true);
        }
        for (unsigned i = 0; i < flight->locks; i++) {
            e->observe(flight->lock[i], false, flight->sent);
        }
        for (unsigned i = 0; i < flight->locks; i++) {
            flight_land(flight->lock[i]);
        }
        flight_free(flight);
    } else {
        for (unsigned i = 0; i < flight->locks; i++) {
            g_ptr_array_add(reads, flight->lock[i]);
        }
        flight_free(flight);
    }
}

/* --- extensions --- */

static void flight_on_extended(void *arg, const struct store_answer *answer)
{
    struct extending *extending = arg;
    struct engine *e = extending->engine;
    clock_ms now = clock_now();
    engine_note_time(e, answer->time);
    for (guint i = 0; i < extending->extensions->len; i++) {
        struct store_extension *x = &g_array_index(extending->extensions, struct store_extension, i);
        struct lock *lock = lock_find(e, x->key.name);
        struct ticket *t = ticket_find(e, extending->ids[i]);
        enum store_result result = answer->result == STORE_DONE ? x->result : answer->result;
        if (t) {
            t->renewing = false;
        }
        if (result == STORE_DONE && lock->lock.state == STORE_PRESENT) {
            lock->lock.end = x->end;
            ((struct record_ticket *)lock->record->tickets->pdata[0])->deadline = x->end - lock->record->after;
        } else {
            flight_forget(lock);
            lock->look = true;
        }
        if (t && t->state == TICKET_HOLDS && result == STORE_DONE) {
            clock_ms deadline = engine_deadline(extending->sent, t->head.ttl);
            t->head.deadline = MAX(t->head.deadline, deadline);
            t->retry = CLOCK_NEVER;
            ticket_schedule(t);
        } else if (t && t->state == TICKET_HOLDS && result == STORE_CHANGED) {
            ticket_push_renewal(t);
        } else if (t && t->state == TICKET_HOLDS) {
            t->retry = now + ENGINE_RETRY;
            ticket_schedule(t);
        }
        flight_land(lock);
    }
    engine_end_request(e, extending);
}

static bool flight_may_extend(const struct ticket *t)
{
    const struct lock *lock = t->lock;
    const struct record_ticket *only = lock->record->tickets->len ? lock->record->tickets->pdata[0] : NULL;
    return lock->known && !lock->busy && !lock->look && TAILQ_EMPTY(&lock->ops) && lock->record->ends_with_record &&
           lock->lock.state == STORE_PRESENT && only && record_id_equal(only->id, t->id) && only->ttl == t->head.ttl &&
           !only->content_apart;
}

static void flight_send_extending(struct extending *extending)
{
    struct engine *e = extending->engine;
    GArray *extensions = extending->extensions;
    engine_begin_request(e, extending, flight_free_extending);
    e->store->operations->extend(e->store, (struct store_extension *)(void *)extensions->data, extensions->len,
                                 flight_on_extended, extending);
}

static void flight_send_extensions(struct engine *e)
{
    struct extending *extending = NULL;
    while (e->extending->len) {
        struct ticket *t = g_ptr_array_steal_index_fast(e->extending, e->extending->len - 1);
        if (!flight_may_extend(t)) {
            ticket_push_renewal(t);
            continue;
        }
        if (!extending) {
            extending = g_new0(struct extending, 1);
            extending->engine = e;
            extending->extensions = g_array_new(FALSE, FALSE, sizeof(struct store_extension));
            extending->ids = g_new0(struct record_id, ENGINE_EXTEND_MAX);
            extending->sent = clock_now();
        }
        struct store_extension x = {.key = {.space = STORE_LOCK, .name = g_strdup(t->lock->name)},
                                    .stamp = t->lock->lock.stamp,
                                    .term = t->head.ttl + t->lock->record->after};
        extending->ids[extending->extensions->len] = t->id;
        g_array_append_val(extending->extensions, x);
        t->lock->busy = true;
        if (extending->extensions->len == ENGINE_EXTEND_MAX) {
            flight_send_extending(extending);
            extending = NULL;
        }
    }
    if (extending) {
        flight_send_extending(extending);
    }
}

/* --- the turn --- */

static void flight_flush(struct engine *e)
{
    GPtrArray *changes = g_ptr_array_new(), *reads = g_ptr_array_new();
    clock_ms now = clock_now();
    struct lock *lock;
    flight_send_extensions(e);
    TAILQ_HEAD(, lock) ready = TAILQ_HEAD_INITIALIZER(ready);
    TAILQ_CONCAT(&ready, &e->ready, link);
    while ((lock = TAILQ_FIRST(&ready))) {
        TAILQ_REMOVE(&ready, lock, link);
        lock->ready = false;
        if (lock->busy) {
            continue;
        }
        if (lock->pause > now) {
            lock_schedule(lock, lock->pause);
            continue;
        }
        flight_prepare(lock, changes, reads);
    }
    if (changes->len) {
        e->store->operations->swap(e->store, (struct store_change *const *)changes->pdata, changes->len);
    }
    if (reads->len) {
        flight_send_reads(e, reads);
    }
    g_ptr_array_unref(changes);
    g_ptr_array_unref(reads);
    engine_set_alarm(e);
}

void flight_on_flush(struct ev_loop *loop, ev_prepare *watcher, int events)
{
    struct engine *e = watcher->data;
    (void)loop, (void)events;
    if (e->up && !e->recovering && (!TAILQ_EMPTY(&e->ready) || e->extending->len)) {
        flight_flush(e);
    }
}

void flight_check_time(struct engine *e, clock_ms now)
{
    struct op *op;
    while ((op = TAILQ_FIRST(&e->pending)) && op->until <= now) {
        TAILQ_REMOVE(&e->pending, op, pending);
        op->pends = false;
        if (op->type->abandon) {
            op->type->abandon(op);
        } else {
            op->abandoned = !op->type->is_lasting;
            op_answer(op, BACKEND_UNREACHABLE);
        }
    }
}

void flight_take_value(struct lock *lock, const struct store_value *value)
{
    struct store_value *present = lock_is_directory(lock) ? &lock->directory : &lock->lock;
    bool known = lock->known && present->state == STORE_PRESENT;
    if (lock->busy || (known && value->stamp <= present->stamp)) {
        return; /* the pending answer is newer, or this is old */
    }
    if (!value->bytes || !known) {
        lock->look = true;
        lock_make_ready(lock);
        return;
    }
    store_value_set(present, value);
    if (!lock_is_directory(lock)) {
        store_value_clear(&lock->queue);
    }
    lock_decode(lock);
    lock->busy = true;
    lock->engine->observe(lock, false, 0);
    flight_land(lock);
}
