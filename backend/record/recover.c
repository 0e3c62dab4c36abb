/* recover: the tickets of the daemon before this one, found by the mount's identity in the records of all names.
 *
 * Until all directories were read no other request is sent.  Changes of the daemon before are refused from the moment
 * when this one has its connection's number (Rule 7).
 */
#include <string.h>

#include "backend/record/private.h"

enum { PAGE = 500 };

struct recovery {
    struct engine *engine;
    GQueue directories; /* char *: still to be read */
    char *directory, *cursor;
    clock_ms sent;
    GArray *removed; /* struct removal */
};

struct removal {
    char *name, *leaf;
    struct record_id id;
};

static void recovery_clear_removal(gpointer data)
{
    struct removal *removal = data;
    g_free(removal->name);
    g_free(removal->leaf);
}

static void recovery_free(gpointer data)
{
    struct recovery *r = data;
    g_queue_clear_full(&r->directories, g_free);
    g_free(r->directory);
    g_free(r->cursor);
    g_array_unref(r->removed);
    g_free(r);
}

static void recovery_next(struct recovery *r);

/* A wait has ended with its call, and a provisional lock with its file; a ticket of a queue goes on. */
static void recovery_remove(struct recovery *r, const char *name, const struct record_ticket *from)
{
    struct removal removal = {.name = g_strdup(name), .leaf = g_strdup(from->leaf), .id = from->id};
    g_array_append_val(r->removed, removal);
}

static void recovery_adopt(struct recovery *r, struct lock *lock, const char *path, const struct record_ticket *from,
                           clock_ms time)
{
    struct engine *e = r->engine;
    const struct backend_claim claim = {.kind = (enum backend_kind)from->kind,
                                        .mode = (enum backend_mode)from->mode,
                                        .sequence = from->sequence,
                                        .ttl = from->ttl,
                                        .end = BACKEND_RANGE_MAX,
                                        .meta = from->meta,
                                        .content = from->content};
    struct ticket *t = ticket_new(e, lock, from->leaf, &claim);
    GBytes *empty = g_bytes_new(NULL, 0);
    ticket_set_id(t, from->id);
    ticket_set_segments(t, from->segments);
    t->head.fence = from->fence;
    t->head.acquired = from->acquired - e->offset;
    t->content_unknown = from->content_apart;
    bool holds = from->held && !from->claim;
    ticket_set_state(t, holds ? TICKET_HOLDS : TICKET_WAITING);
    /* The store's clock was `time` after we sent the request: counted from then, the term ends earlier. */
    clock_ms began = holds ? r->sent + (from->deadline - time) - from->ttl : r->sent;
    t->head.deadline = engine_deadline(began, from->ttl);
    GBytes *content = t->content_unknown ? NULL : from->content ? from->content : empty;
    bool renewed = e->found(e->found_arg, path, &t->head, from->meta, content);
    t->due = renewed ? clock_now() : CLOCK_NEVER;
    ticket_schedule(t);
    g_bytes_unref(empty);
}

static void recovery_look(struct recovery *r, const char *name, const struct record *record, clock_ms time)
{
    struct engine *e = r->engine;
    for (guint i = 0; record && i < record->tickets->len; i++) {
        const struct record_ticket *t = record->tickets->pdata[i];
        if (!record_id_equal(t->mount, e->store->mount) || t->guarded || ticket_find(e, t->id)) {
            continue;
        }
        bool keeps = ((t->held && !t->claim) || t->sequence) && t->kind != BACKEND_PROVISIONAL;
        g_autofree char *path = !t->leaf ? g_strdup(name)
                                : *name  ? g_strdup_printf("%s/%s", name, t->leaf)
                                         : g_strdup(t->leaf);
        if (keeps) {
            recovery_adopt(r, lock_obtain_named(e, name), path, t, time);
        } else {
            recovery_remove(r, name, t);
        }
    }
}

static void recovery_finish(struct recovery *r)
{
    struct engine *e = r->engine;
    e->recovering = false;
    for (guint i = 0; i < r->removed->len; i++) {
        const struct removal *removal = &g_array_index(r->removed, struct removal, i);
        struct op *op = op_new(e, &op_remove, lock_obtain_named(e, removal->name), NULL);
        op->id = removal->id;
        op->leaf = g_strdup(removal->leaf);
        op_push(op);
    }
    ev_feed_event(e->loop, &e->flush, EV_PREPARE);
    engine_end_request(e, r);
}

/* The connection has gone: the next one begins again. */
static void recovery_fail(struct recovery *r)
{
    engine_end_request(r->engine, r);
}

static void recovery_on_names(void *arg, const struct store_answer *answer, const struct store_name *names,
                              size_t count)
{
    struct recovery *r = arg;
    engine_note_time(r->engine, answer->time);
    if (answer->result != STORE_DONE) {
        recovery_fail(r);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        char *name = *r->directory ? g_strdup_printf("%s/%s", r->directory, names[i].leaf) : g_strdup(names[i].leaf);
        const struct store_value *value = &names[i].value;
        if (names[i].directory) {
            g_queue_push_tail(&r->directories, g_strdup(name));
        } else if (value->bytes && value->state == STORE_PRESENT) {
            struct record *record = record_read(value->bytes, false, value->stamp, value->time, value->end);
            recovery_look(r, name, record, answer->time);
            record_free(record);
        }
        g_free(name);
    }
    g_free(r->cursor);
    r->cursor = count > 0 ? g_strdup(names[count - 1].leaf) : NULL;
    recovery_next(r);
}

static void recovery_on_directory(void *arg, const struct store_answer *answer)
{
    struct recovery *r = arg;
    const struct store_value *value = &answer->keys[0];
    engine_note_time(r->engine, answer->time);
    if (answer->result != STORE_DONE) {
        recovery_fail(r);
        return;
    }
    if (value->state == STORE_PRESENT) {
        struct record *record = record_read(value->bytes, true, value->stamp, value->time, value->end);
        recovery_look(r, r->directory, record, answer->time);
        record_free(record);
    }
    r->cursor = g_strdup("");
    recovery_next(r);
}

/* The next page of the directory, or the next directory. */
static void recovery_next(struct recovery *r)
{
    struct engine *e = r->engine;
    r->sent = clock_now();
    e->round_trips++;
    if (r->cursor) {
        e->store->operations->list(e->store, r->directory, r->cursor, PAGE, recovery_on_names, r);
        return;
    }
    g_free(r->directory);
    r->directory = g_queue_pop_head(&r->directories);
    if (!r->directory) {
        recovery_finish(r);
        return;
    }
    const struct store_key key = {.space = STORE_DIRECTORY, .name = r->directory};
    e->store->operations->read(e->store, &key, 1, recovery_on_directory, r);
}

void recover_begin(struct engine *e)
{
    if (!e->recovering || !e->up) {
        return;
    }
    struct recovery *r = g_new0(struct recovery, 1);
    r->engine = e;
    r->removed = g_array_new(FALSE, TRUE, sizeof(struct removal));
    g_array_set_clear_func(r->removed, recovery_clear_removal);
    g_queue_init(&r->directories);
    g_queue_push_tail(&r->directories, g_strdup(""));
    engine_begin_request(e, r, recovery_free);
    recovery_next(r);
}

void engine_recover(struct backend *b, backend_recover_each *found, void *arg)
{
    struct engine *e = (struct engine *)b;
    e->found = found;
    e->found_arg = arg;
    e->recovering = e->options.identity != NULL;
    recover_begin(e);
}
