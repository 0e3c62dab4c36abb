/* enter: a new connection, heartbeats, and the epoch of the store's data with the grace period after it has lost some.
 *
 * The store has a marker: the number of the epoch, whether it is closed, the longest term that a ticket may have, and
 * the store's `generation`, which changes where data may have been lost.  Every change carries the number that its
 * mount knows, and the store refuses it if the marker has another.  A mount that finds no marker, another generation,
 * or a new epoch while it holds something, closes the store: it writes a marker with a new number.  While the store is
 * closed nothing new is granted, and each mount puts back what its users rely on.  A mount that has known the store to
 * be closed for as long as the longest term opens it: by then the term of every holder that was cut off has run out. It
 * measures that time with its own clock, from when the store (with wait=, and its replicas) has confirmed the marker.
 *
 * Why that is safe with replicas: k of them confirm each change, and k is half of the data nodes, rounded down.  A
 * grant of an older master that somebody relies on and the closed marker share a node.  It had confirmed the grant
 * before it followed the new master, so the term began before this mount began to measure.  What the new master has of
 * the grant does not matter: each swap here is one that restores, which compares, or comes after the opening.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/record/private.h"

enum { MARKER_HEAD = 17, CLOSED_POLL = 200, TERM_SHOWN = 60000, HEARTBEAT_KEPT = 600000, GENERATION_MAX = 255 };

struct marker {
    uint64_t number;
    bool closed;
    int64_t longest;
    char *generation;
};

struct entering {
    struct engine *engine;
    uint64_t entry;
    clock_ms sent;
    uint64_t number; /* of the marker that is written */
    int64_t longest;
    bool closed;
    struct store_change change;
};

static void enter_begin(struct engine *e);
static void enter_read_marker(struct engine *e);

static void entering_free(gpointer data)
{
    struct entering *entering = data;
    change_clear(&entering->change);
    g_free(entering);
}

static struct entering *entering_new(struct engine *e)
{
    struct entering *entering = g_new0(struct entering, 1);
    entering->engine = e;
    entering->entry = e->entry;
    entering->sent = clock_now();
    engine_begin_request(e, entering, entering_free);
    return entering;
}

/* Is the answer about the connection that is there now?  Frees the request. */
static bool entering_end(struct entering *entering, const struct store_answer *answer)
{
    struct engine *e = entering->engine;
    bool present = entering->entry == e->entry && e->connected;
    engine_note_time(e, answer->time);
    engine_end_request(e, entering);
    return present;
}

static void enter_set_up(struct engine *e, bool up)
{
    if (e->up != up) {
        e->up = up;
        e->since = clock_now();
    }
}

/* --- the marker --- */

static GBytes *marker_write(const struct marker *marker)
{
    GByteArray *out = g_byte_array_new();
    uint64_t number = GUINT64_TO_LE(marker->number), longest = GUINT64_TO_LE((uint64_t)marker->longest);
    uint8_t closed = marker->closed;
    g_byte_array_append(out, (const guint8 *)&number, 8);
    g_byte_array_append(out, &closed, 1);
    g_byte_array_append(out, (const guint8 *)&longest, 8);
    g_byte_array_append(out, (const guint8 *)marker->generation, (guint)strlen(marker->generation));
    return g_byte_array_free_to_bytes(out);
}

static bool marker_read(const struct store_value *value, struct marker *ret)
{
    gsize size = 0;
    const uint8_t *data = value->state == STORE_PRESENT ? g_bytes_get_data(value->bytes, &size) : NULL;
    uint64_t number, longest;
    if (size < MARKER_HEAD || size > MARKER_HEAD + GENERATION_MAX || data[8] > 1) {
        return false;
    }
    memcpy(&number, data, 8);
    memcpy(&longest, data + 9, 8);
    ret->number = GUINT64_FROM_LE(number);
    ret->closed = data[8];
    ret->longest = (int64_t)MIN(GUINT64_FROM_LE(longest), (uint64_t)RECORD_FOREVER);
    ret->generation = g_strndup((const char *)data + MARKER_HEAD, size - MARKER_HEAD);
    return true;
}

static bool enter_holds(const struct engine *e)
{
    GHashTableIter each;
    const struct ticket *t;
    g_hash_table_iter_init(&each, e->tickets);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&t)) {
        if (t->state == TICKET_HOLDS && !ticket_is_expired(t)) {
            return true;
        }
    }
    return false;
}

/* This mount goes on in the epoch that the marker says. */
static void enter_take_marker(struct engine *e, const struct marker *marker, const struct store_value *value,
                              clock_ms sent)
{
    bool was_closed = e->closed, other = e->epoch != marker->number;
    store_value_set(&e->marker, value);
    e->longest = marker->longest;
    e->must_restore = marker->closed && (e->must_restore || (other && e->epoch != 0) || was_closed);
    e->closed_since = !marker->closed ? 0 : was_closed && !other ? e->closed_since : clock_now();
    e->epoch = e->store->epoch = marker->number;
    e->closed = marker->closed;
    (void)sent;
    if (e->closed && (!was_closed || other)) {
        g_autofree char *text = g_strdup_printf("grace period: no new lock for %" G_GINT64_FORMAT " s, %s",
                                                (MIN(e->longest, e->options.grace) + 999) / 1000,
                                                other ? "the server lost data" : "the server was restarted");
        log_warning("%s: %s; mounts that are there restore the locks that they hold", e->options.address, text);
    } else if (!e->closed && was_closed) {
        log_info("%s: the grace period is over: locks are granted again", e->options.address);
    }
    if (!e->up || other || (was_closed && !e->closed)) {
        enter_set_up(e, true);
        e->judges_from = clock_now() + ENGINE_LIVENESS;
        flight_forget_all(e);
        if (e->must_restore && other) {
            engine_restore_directories(e);
        }
    }
    if (e->next_heartbeat == CLOCK_NEVER || e->closed) {
        e->next_heartbeat = clock_now() + (e->closed ? CLOSED_POLL : ENGINE_HEARTBEAT);
    }
    for (guint i = 0; i < e->blocked->len; i++) {
        lock_make_ready(e->blocked->pdata[i]); /* they may have waited for a longer term */
    }
    g_ptr_array_set_size(e->blocked, 0);
    engine_set_alarm(e);
    recover_begin(e);
}

static void marker_on_written(struct store_change *change, const struct store_answer *answer)
{
    struct entering *entering = (struct entering *)((char *)change - offsetof(struct entering, change));
    struct engine *e = entering->engine;
    struct store_value written = {.state = STORE_PRESENT};
    struct marker marker = {.number = entering->number, .closed = entering->closed, .longest = entering->longest};
    enum store_result result = answer->result;
    if (result == STORE_DONE) {
        written = answer->keys[0];
        written.state = STORE_PRESENT;
        written.bytes = g_bytes_ref(change->puts[0].bytes);
    }
    clock_ms sent = entering->sent;
    e->marking = false;
    bool present = entering_end(entering, answer);
    if (present && result == STORE_DONE) {
        enter_take_marker(e, &marker, &written, sent);
    } else if (present && result == STORE_OTHER_CONNECTION) {
        enter_begin(e);
    } else if (present && result == STORE_CHANGED) {
        enter_read_marker(e);
    } else if (present) {
        e->next_heartbeat = clock_now() + CLOSED_POLL;
        engine_set_alarm(e);
    }
    g_clear_pointer(&written.bytes, g_bytes_unref);
}

static void enter_write_marker(struct engine *e, uint64_t number, bool closed, int64_t longest)
{
    struct marker marker = {.number = number, .closed = closed, .longest = longest, .generation = e->generation};
    struct entering *entering = entering_new(e);
    struct store_change *change = &entering->change;
    struct store_put *put = &change->puts[0];
    entering->number = number;
    entering->closed = closed;
    entering->longest = longest;
    change->count = 1;
    change->marker = true;
    change->done = marker_on_written;
    *put = (struct store_put){.key = {.space = STORE_MARKER, .name = g_strdup("")},
                              .expect = e->marker.state == STORE_PRESENT ? STORE_IS_SAME : STORE_IS_ABSENT,
                              .stamp = e->marker.stamp,
                              .end = e->marker.end,
                              .action = STORE_WRITE,
                              .bytes = marker_write(&marker),
                              .until = RECORD_FOREVER};
    e->marking = true;
    e->store->operations->swap(e->store, (struct store_change *const[]){change}, 1);
}

static uint64_t enter_new_number(struct engine *e)
{
    uint64_t number;
    do {
        number = engine_new_id(e).half[0];
    } while (!number);
    return number;
}

/* Rule 13. */
static void marker_decide(struct engine *e, const struct store_value *value, clock_ms sent)
{
    struct marker marker = {0};
    int64_t longest = MAX(e->longest, e->options.term);
    store_value_set(&e->marker, value);
    if (!marker_read(value, &marker)) {
        /* A fresh store costs nobody a wait.  (But if this mount has known an epoch, the store has forgotten it, and
         * others may hold.) */
        enter_write_marker(e, enter_new_number(e), e->epoch != 0, longest);
        return;
    }
    longest = MAX(longest, marker.longest);
    bool lost = strcmp(marker.generation, e->generation) != 0;
    bool opened_by_others = e->epoch != 0 && marker.number != e->epoch && !marker.closed && enter_holds(e);
    if (lost || opened_by_others) {
        enter_write_marker(e, enter_new_number(e), true, longest);
    } else if (marker.longest < e->options.term && !marker.closed) {
        enter_write_marker(e, marker.number, false, longest);
    } else {
        enter_take_marker(e, &marker, value, sent);
    }
    g_free(marker.generation);
}

static void enter_on_marker(void *arg, const struct store_answer *answer)
{
    struct entering *entering = arg;
    struct engine *e = entering->engine;
    struct store_value value = {0};
    bool good = answer->result == STORE_DONE;
    clock_ms sent = entering->sent;
    if (good) {
        store_value_set(&value, &answer->keys[0]);
    }
    bool present = entering_end(entering, answer);
    if (present && good) {
        marker_decide(e, &value, sent);
    }
    store_value_clear(&value);
}

static void enter_read_marker(struct engine *e)
{
    const struct store_key key = {.space = STORE_MARKER, .name = ""};
    e->store->operations->read(e->store, &key, 1, enter_on_marker, entering_new(e));
}

bool enter_allows_term(struct engine *e, int64_t term)
{
    if (term <= e->longest) {
        return true;
    }
    if (!e->marking) {
        enter_write_marker(e, e->epoch, e->closed, term);
    }
    return false;
}

/* --- a connection --- */

/* Another daemon has taken this mount's identity over: what it held is that daemon's. */
static void enter_lose_all(struct engine *e)
{
    GList *tickets = g_hash_table_get_values(e->tickets);
    GArray *ids = g_array_new(FALSE, FALSE, sizeof(struct record_id));
    for (GList *each = tickets; each; each = each->next) {
        g_array_append_val(ids, ((struct ticket *)each->data)->id);
    }
    g_list_free(tickets);
    GList *locks = g_hash_table_get_values(e->locks);
    for (GList *each = locks; each; each = each->next) {
        struct op *op;
        TAILQ_FOREACH(op, &((struct lock *)each->data)->ops, link) {
            op->id = (struct record_id){{0}}; /* what is still to be sent finds no ticket */
        }
    }
    g_list_free(locks);
    e->store->mount = engine_new_id(e);
    e->store->connection = 0;
    e->incarnation = engine_new_id(e).half[0];
    for (guint i = 0; i < ids->len; i++) {
        struct ticket *t = ticket_find(e, g_array_index(ids, struct record_id, i));
        if (t && t->state != TICKET_ACQUIRING) {
            ticket_end(t, BACKEND_LOST);
        }
    }
    g_array_unref(ids);
}

static void enter_on_number(void *arg, const struct store_answer *answer, const struct store_heartbeat *heartbeat)
{
    struct entering *entering = arg;
    struct engine *e = entering->engine;
    bool good = answer->result == STORE_DONE, superseded = answer->result == STORE_OTHER_CONNECTION;
    if (!entering_end(entering, answer)) {
        return;
    }
    if (superseded) {
        enter_lose_all(e);
        enter_begin(e);
    } else if (!good) {
        e->next_heartbeat = clock_now() + ENGINE_RETRY;
        engine_set_alarm(e);
    } else {
        e->store->connection = heartbeat->connection;
        g_free(e->generation);
        e->generation = g_strndup(heartbeat->generation, GENERATION_MAX);
        enter_read_marker(e);
    }
}

static void enter_send_heartbeat(struct engine *e, uint64_t connection,
                                 void (*done)(void *, const struct store_answer *, const struct store_heartbeat *))
{
    const struct store_heartbeat heartbeat = {.connection = connection,
                                              .again = e->store->connection != 0,
                                              .incarnation = e->incarnation,
                                              .term = HEARTBEAT_KEPT,
                                              .text = e->options.text ? e->options.text : "",
                                              .generation = ""};
    e->store->operations->heartbeat(e->store, &heartbeat, done, entering_new(e));
}

/* Rule 7: a connection has a number above every earlier one of the mount, and the store refuses a change with another.
 * (A server that was frozen carries out, minutes later, a swap of a connection that is gone: the mount has read
 * meanwhile that its ticket is not there, and has told its caller so.) */
static void enter_begin(struct engine *e)
{
    enter_set_up(e, false);
    e->entry++;
    if (e->connected) {
        enter_send_heartbeat(e, 0, enter_on_number);
    }
}

void enter_again(struct engine *e)
{
    if (e->up) {
        enter_begin(e);
    }
}

void enter_on_up(void *context)
{
    struct engine *e = context;
    e->reconnects += e->entry > 0;
    e->connected = true;
    enter_begin(e);
}

void enter_on_down(void *context)
{
    struct engine *e = context;
    e->connected = false;
    e->marking = false;
    e->entry++;
    enter_set_up(e, false);
}

/* --- heartbeats --- */

/* Messages may be lost: a waiter's lock is read with each heartbeat. */
static void heartbeat_look(struct engine *e)
{
    GHashTableIter each;
    struct lock *lock;
    g_hash_table_iter_init(&each, e->locks);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&lock)) {
        const struct ticket *t;
        bool waits = false;
        LIST_FOREACH(t, &lock->tickets, link) {
            waits = waits || t->state == TICKET_WAITING;
        }
        if (waits && !lock->busy) {
            lock->look = true;
            lock_make_ready(lock);
        }
    }
}

static bool heartbeat_is_alive(const struct engine *e, struct record_id mount)
{
    for (guint i = 0; i < e->mounts->len; i++) {
        if (record_id_equal(g_array_index(e->mounts, struct record_id, i), mount)) {
            return true;
        }
    }
    return false;
}

/* Looks for waiters of mounts that are gone, before our own. */
static void heartbeat_judge(struct engine *e)
{
    GList *locks = g_hash_table_get_values(e->locks);
    for (GList *each = locks; each; each = each->next) {
        struct lock *lock = each->data;
        bool dead = false;
        for (guint i = 0; i < lock->record->tickets->len && !LIST_EMPTY(&lock->tickets); i++) {
            const struct record_ticket *t = lock->record->tickets->pdata[i];
            bool judged = record_id_is_set(t->mount) && (!t->held || t->claim);
            dead = dead || (judged && !heartbeat_is_alive(e, t->mount));
        }
        if (dead && !lock_has_op(lock, &op_touch)) {
            op_push(op_new(e, &op_touch, lock, NULL));
        }
    }
    g_list_free(locks);
}

static void heartbeat_on_mounts(void *arg, const struct store_answer *answer, const struct store_mount *mounts,
                                size_t count)
{
    struct entering *entering = arg;
    struct engine *e = entering->engine;
    bool good = answer->result == STORE_DONE;
    clock_ms time = answer->time;
    if (!entering_end(entering, answer) || !good) {
        return;
    }
    g_clear_pointer(&e->mounts, g_array_unref);
    e->mounts = g_array_new(FALSE, FALSE, sizeof(struct record_id));
    g_array_append_val(e->mounts, e->store->mount);
    for (size_t i = 0; i < count; i++) {
        if (time - mounts[i].heartbeat < ENGINE_LIVENESS) {
            g_array_append_val(e->mounts, mounts[i].mount);
        }
    }
    if (clock_now() >= e->judges_from) {
        heartbeat_judge(e);
    }
}

static void heartbeat_on_answer(void *arg, const struct store_answer *answer, const struct store_heartbeat *heartbeat)
{
    struct entering *entering = arg;
    struct engine *e = entering->engine;
    enum store_result result = answer->result;
    (void)heartbeat;
    if (entering_end(entering, answer) && result == STORE_OTHER_CONNECTION) {
        enter_begin(e);
    }
}

/* Is something still to be put back? */
static bool heartbeat_restores(const struct engine *e)
{
    GHashTableIter each;
    const struct lock *lock;
    g_hash_table_iter_init(&each, e->locks);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&lock)) {
        if (!LIST_EMPTY(&lock->tickets) && (lock->look || lock->busy || !lock->known || !TAILQ_EMPTY(&lock->ops))) {
            return true;
        }
    }
    return false;
}

static void heartbeat_open(struct engine *e)
{
    int64_t closed_for = clock_now() - e->closed_since, term = MIN(e->longest, e->options.grace);
    if (closed_for > term + term / 100 + 2 && !e->marking && !heartbeat_restores(e)) {
        enter_write_marker(e, e->epoch, false, e->longest);
    } else if (!e->marking) {
        enter_read_marker(e);
    }
}

void enter_heartbeat(struct engine *e)
{
    clock_ms now = clock_now();
    e->next_heartbeat = now + (e->closed ? CLOSED_POLL : ENGINE_HEARTBEAT);
    if (!e->connected) {
        e->next_heartbeat = CLOCK_NEVER;
    } else if (!e->up) {
        enter_begin(e);
    } else {
        if (e->closed) {
            heartbeat_open(e);
        }
        enter_send_heartbeat(e, e->store->connection, heartbeat_on_answer);
        if (e->waiting && !e->closed) {
            e->store->operations->mounts(e->store, heartbeat_on_mounts, entering_new(e));
            heartbeat_look(e);
        }
    }
}

void enter_start(struct engine *e)
{
    e->incarnation = engine_new_id(e).half[0];
    e->since = clock_now();
}
