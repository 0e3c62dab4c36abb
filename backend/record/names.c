/* names: listings, stat and test; see private.h. */
#include <string.h>

#include "backend/record/private.h"

enum { LIST_MAX = 1024 };

static struct engine *engine_of(struct backend *b)
{
    return (struct engine *)b;
}

/* --- stat and test --- */

static void stat_apply(struct op *op, struct scratch *s)
{
    const struct lock *lock = op->lock;
    struct backend_info info = {.type = BACKEND_NOTHING};
    bool directory = lock_is_directory(lock);
    if (directory || !op->leaf) {
        g_autofree char *path = scratch_path(s, lock, op->leaf);
        lockspace_stat(s->space, directory && !op->leaf ? scratch_directory(s, lock) : path, &info);
    }
    op->result = lock->damaged ? BACKEND_DAMAGED : BACKEND_OK;
    op_describe(op, &info);
}

static void test_apply(struct op *op, struct scratch *s)
{
    struct backend_info info = {.type = BACKEND_NOTHING};
    struct backend_claim claim = op->claim;
    g_autofree char *path = scratch_path(s, op->lock, op->leaf);
    claim.handle = engine_identity(s->engine, claim.handle);
    claim.lock_owner = engine_identity(s->engine, claim.lock_owner);
    if (scratch_check_name(s, op) == BACKEND_OK) {
        lockspace_test(s->space, path, &claim, &info);
    }
    op->result = op->lock->damaged ? BACKEND_DAMAGED : BACKEND_OK;
    op_describe(op, &info);
}

struct content_read {
    struct engine *engine;
    struct backend_info info;
    backend_info_done *done;
    void *arg;
};

static void content_free(gpointer data)
{
    struct content_read *read = data;
    g_clear_pointer(&read->info.meta, g_bytes_unref);
    g_clear_pointer(&read->info.content, g_bytes_unref);
    g_free(read);
}

static void content_on_read(void *arg, const struct store_answer *answer)
{
    struct content_read *read = arg;
    if (answer->result == STORE_DONE) {
        GBytes *content = answer->keys[0].state == STORE_PRESENT ? answer->keys[0].bytes : NULL;
        g_clear_pointer(&read->info.content, g_bytes_unref);
        read->info.content = content ? g_bytes_ref(content) : NULL;
        read->done(read->arg, BACKEND_OK, &read->info);
    } else {
        read->done(read->arg, BACKEND_UNREACHABLE, NULL);
    }
    engine_end_request(read->engine, read);
}

/* The content is a value of its own. */
static void stat_read_content(struct op *op)
{
    struct engine *e = op->lock->engine;
    struct content_read *read = g_new0(struct content_read, 1);
    g_autofree char *name = record_id_text(op->holder);
    struct store_key key = {.space = STORE_CONTENT, .name = name};
    *read = (struct content_read){.engine = e, .info = op->info, .done = op->known, .arg = op->arg};
    read->info.meta = op->info.meta ? g_bytes_ref(op->info.meta) : NULL;
    read->info.content = NULL;
    read->info.ticket = NULL;
    op->known = NULL;
    engine_begin_request(e, read, content_free);
    e->store->operations->read(e->store, &key, 1, content_on_read, read);
}

static void stat_settle(struct op *op)
{
    const struct engine *e = op->lock->engine;
    const struct ticket *t = record_id_is_set(op->holder) ? ticket_find(e, op->holder) : NULL;
    if (op->info.type == BACKEND_LOCK && t && ticket_is_expired(t)) {
        op_describe(op, &(struct backend_info){.type = BACKEND_NOTHING});
    } else if (op->info.type == BACKEND_LOCK) {
        op_finish_info(op);
    }
    if (op->apart && t && t->head.content) {
        op->info.content = g_bytes_ref(t->head.content);
    } else if (op->apart && op->known && op->result == BACKEND_OK) {
        stat_read_content(op);
    }
    op_answer(op, op->result);
}

static const struct op_type op_stat = {.apply = stat_apply, .settle = stat_settle};
static const struct op_type op_test = {.apply = test_apply, .settle = stat_settle};

static void names_push_question(struct engine *e, const struct op_type *type, const char *name,
                                const struct backend_claim *claim, backend_info_done *done, void *arg)
{
    const char *leaf;
    struct backend_info none = {.type = BACKEND_NOTHING};
    if (!engine_allows_name(e, name)) {
        done(arg, BACKEND_OK, &none);
        return;
    }
    struct lock *lock = lock_obtain(e, name, &leaf);
    lock_end_expired(lock);
    struct op *op = op_new(e, type, lock, NULL);
    op->leaf = g_strdup(leaf);
    if (claim) {
        op_set_claim(op, claim);
    }
    op->known = done;
    op->arg = arg;
    op_push(op);
}

void engine_stat(struct backend *b, const char *name, backend_info_done *done, void *arg)
{
    names_push_question(engine_of(b), &op_stat, name, NULL, done, arg);
}

void engine_test(struct backend *b, const char *name, const struct backend_claim *claim, backend_info_done *done,
                 void *arg)
{
    names_push_question(engine_of(b), &op_test, name, claim, done, arg);
}

/* --- listings --- */

struct found {
    char *name;
    enum backend_type type;
    struct backend_info info;
};

struct listing {
    struct engine *engine;
    char *directory, *after, *cursor;
    size_t max, from_store;
    bool tickets;
    GArray *found; /* struct found */
    backend_list_done *done;
    void *arg;
};

static void found_clear(gpointer data)
{
    struct found *found = data;
    g_free(found->name);
    g_clear_pointer(&found->info.meta, g_bytes_unref);
}

static void listing_free(gpointer data)
{
    struct listing *l = data;
    g_array_unref(l->found);
    g_free(l->directory);
    g_free(l->after);
    g_free(l->cursor);
    g_free(l);
}

static gint found_compare(gconstpointer a, gconstpointer b)
{
    return strcmp(((const struct found *)a)->name, ((const struct found *)b)->name);
}

static void listing_finish(struct listing *l, enum backend_result result)
{
    GArray *entries = g_array_new(FALSE, FALSE, sizeof(struct backend_entry));
    g_array_sort(l->found, found_compare);
    for (guint i = 0; i < l->found->len && entries->len < l->max && result == BACKEND_OK; i++) {
        const struct found *f = &g_array_index(l->found, struct found, i);
        struct backend_entry entry = {.name = f->name, .type = f->type, .info = l->tickets ? &f->info : NULL};
        g_array_append_val(entries, entry);
    }
    l->done(l->arg, result, (const struct backend_entry *)(const void *)entries->data, entries->len);
    g_array_unref(entries);
}

static void listing_add(struct listing *l, const char *name, enum backend_type type, const struct backend_info *info)
{
    struct found found = {.name = g_strdup(name), .type = type};
    if (info) {
        found.info = *info;
        found.info.meta = info->meta ? g_bytes_ref(info->meta) : g_bytes_new(NULL, 0);
        found.info.content = NULL;
    }
    g_array_append_val(l->found, found);
}

/* Is it shown?  Not if only a lock-delay is left. */
static bool listing_is_visible(const struct engine *e, const struct store_value *value)
{
    struct record *record =
        value->bytes ? record_read(value->bytes, false, value->stamp, value->time, value->end) : NULL;
    clock_ms now = engine_store_now(e, clock_now());
    bool visible = !record;
    for (guint i = 0; record && i < record->tickets->len; i++) {
        const struct record_ticket *t = record->tickets->pdata[i];
        visible = visible || (t->held && t->kind != RECORD_DELAY && t->deadline > now);
    }
    record_free(record);
    return visible;
}

static void listing_read(struct listing *l);

static void listing_on_names(void *arg, const struct store_answer *answer, const struct store_name *names, size_t count)
{
    struct listing *l = arg;
    struct engine *e = l->engine;
    for (size_t i = 0; i < count; i++) {
        if (names[i].directory || listing_is_visible(e, &names[i].value)) {
            listing_add(l, names[i].leaf, names[i].directory ? BACKEND_DIRECTORY : BACKEND_LOCK, NULL);
            l->from_store++;
        }
    }
    if (answer->result != STORE_DONE) {
        listing_finish(l, BACKEND_UNREACHABLE);
    } else if (count > 0 && l->from_store < l->max) {
        g_free(l->cursor);
        l->cursor = g_strdup(names[count - 1].leaf);
        listing_read(l);
        return;
    } else {
        listing_finish(l, BACKEND_OK);
    }
    engine_end_request(e, l);
}

static void listing_read(struct listing *l)
{
    l->engine->round_trips++;
    l->engine->store->operations->list(l->engine->store, l->directory, l->cursor, MIN(l->max, LIST_MAX),
                                       listing_on_names, l);
}

/* The names in the directory's own record. */
static void listing_visit(void *arg, const char *leaf, struct backend_ticket *ticket)
{
    struct op *op = arg;
    struct listing *l = op->arg;
    bool sequence = lockspace_ticket_sequence(ticket);
    if (!*leaf || strcmp(leaf, l->after) <= 0 || (!sequence && (l->tickets || !ticket->held))) {
        return;
    }
    if (ticket->kind != RECORD_DELAY) {
        const struct backend_info info = {.type = BACKEND_LOCK,
                                          .kind = (enum backend_kind)ticket->kind,
                                          .mode = (enum backend_mode)ticket->mode,
                                          .fence = ticket->fence,
                                          .acquired = ticket->acquired - op->lock->engine->offset,
                                          .ttl = ticket->ttl,
                                          .meta = lockspace_ticket_meta(ticket),
                                          .guarded = ticket->guarded,
                                          .holders = ticket->held};
        bool last = l->found->len && strcmp(g_array_index(l->found, struct found, l->found->len - 1).name, leaf) == 0;
        if (!last) {
            listing_add(l, leaf, BACKEND_LOCK, &info);
        }
    }
}

static void listing_apply(struct op *op, struct scratch *s)
{
    struct listing *l = op->arg;
    const struct lock *lock = op->lock;
    bool is_lock = lock->in_lock || lock->lock.state != STORE_ABSENT;
    op->result = lock_is_directory(lock) ? BACKEND_OK : is_lock ? BACKEND_NOT_DIRECTORY : BACKEND_MISSING;
    g_array_set_size(l->found, 0);
    if (op->result == BACKEND_OK) {
        record_visit(s->space, scratch_directory(s, lock), listing_visit, op);
    }
}

static void listing_settle(struct op *op)
{
    struct listing *l = op->arg;
    if (op->abandoned) {
        engine_end_request(l->engine, l);
        return;
    }
    if (op->result != BACKEND_OK || l->tickets) {
        listing_finish(l, op->result);
        engine_end_request(l->engine, l);
        return;
    }
    g_array_sort(l->found, found_compare);
    listing_read(l);
}

static void listing_abandon(struct op *op)
{
    struct listing *l = op->arg;
    if (!op->abandoned) {
        listing_finish(l, BACKEND_UNREACHABLE);
        op->abandoned = true; /* `l` stays with the op until that is applied */
    }
}

static const struct op_type op_list = {.apply = listing_apply, .settle = listing_settle, .abandon = listing_abandon};

static void names_push_listing(struct engine *e, const char *directory, const char *after, size_t max, bool tickets,
                               backend_list_done *done, void *arg)
{
    if (!engine_allows_name(e, directory)) {
        done(arg, BACKEND_MISSING, NULL, 0);
        return;
    }
    struct listing *l = g_new0(struct listing, 1);
    *l = (struct listing){.engine = e,
                          .directory = g_strdup(directory),
                          .after = g_strdup(after),
                          .cursor = g_strdup(after),
                          .max = max,
                          .tickets = tickets,
                          .found = g_array_new(FALSE, TRUE, sizeof(struct found)),
                          .done = done,
                          .arg = arg};
    g_array_set_clear_func(l->found, found_clear);
    engine_begin_request(e, l, listing_free);
    e->round_trips--; /* it is not sent yet */
    struct op *op = op_new(e, &op_list, lock_obtain_named(e, directory), NULL);
    op->arg = l;
    op_push(op);
}

void engine_list(struct backend *b, const char *directory, const char *after, size_t max, backend_list_done *done,
                 void *arg)
{
    names_push_listing(engine_of(b), directory, after, max, false, done, arg);
}

void engine_tickets(struct backend *b, const char *directory, const char *after, size_t max, backend_list_done *done,
                    void *arg)
{
    names_push_listing(engine_of(b), directory, after, max, true, done, arg);
}

/* --- mounts --- */

struct mounts {
    struct engine *engine;
    backend_info_done *done;
    void *arg;
};

static void mounts_on_answer(void *arg, const struct store_answer *answer, const struct store_mount *mounts,
                             size_t count)
{
    struct mounts *m = arg;
    GString *text = g_string_new(NULL);
    for (size_t i = 0; i < count; i++) {
        char **words = g_strsplit(mounts[i].text, " ", 3); /* format, version, host */
        if (answer->time - mounts[i].heartbeat < ENGINE_LIVENESS && g_strv_length(words) == 3) {
            g_string_append_printf(text, "%s\t%s\t-\n", words[1], words[2]);
        }
        g_strfreev(words);
    }
    struct backend_info info = {.type = BACKEND_LOCK};
    info.content = g_string_free_to_bytes(text);
    bool good = answer->result == STORE_DONE;
    m->done(m->arg, good ? BACKEND_OK : BACKEND_UNREACHABLE, good ? &info : NULL);
    g_bytes_unref(info.content);
    engine_end_request(m->engine, m);
}

void engine_mounts(struct backend *b, backend_info_done *done, void *arg)
{
    struct engine *e = engine_of(b);
    if (!e->up) {
        done(arg, BACKEND_UNREACHABLE, NULL);
        return;
    }
    struct mounts *m = g_new0(struct mounts, 1);
    *m = (struct mounts){.engine = e, .done = done, .arg = arg};
    engine_begin_request(e, m, g_free);
    e->store->operations->mounts(e->store, mounts_on_answer, m);
}
