/* engine: begins and ends, and the table of operations; see private.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/record/private.h"

enum { GRACE_MAX = 3600000 };

static struct engine *engine_of(struct backend *b)
{
    return (struct engine *)b;
}

static void engine_on_changed(void *context, const struct store_key *key)
{
    struct lock *lock = lock_find(context, key->name);
    if (lock) {
        lock->look = true;
        lock_make_ready(lock);
    }
}

static void engine_start(struct backend *b, struct ev_loop *loop, const struct backend_events *events, void *context)
{
    static const struct store_events store_events = {
        .up = enter_on_up, .down = enter_on_down, .message = engine_on_message, .changed = engine_on_changed};
    struct engine *e = engine_of(b);
    e->loop = loop;
    e->events = events;
    e->context = context;
    ev_prepare_start(loop, &e->flush);
    ev_io_start(loop, &e->alarm);
    enter_start(e);
    e->store->operations->start(e->store, loop, &store_events, e);
}

static void engine_free(struct backend *b)
{
    struct engine *e = engine_of(b);
    GHashTableIter each;
    gpointer request, free_request;
    e->freeing = true;
    if (e->loop) {
        ev_prepare_stop(e->loop, &e->flush);
    }
    e->store->operations->free(e->store);
    watch_clear(e);
    if (e->loop) {
        revoke_clear(e);
    }
    GList *locks = g_hash_table_get_values(e->locks);
    for (GList *at = locks; at; at = at->next) {
        struct lock *lock = at->data;
        while (!TAILQ_EMPTY(&lock->ops)) {
            op_free(TAILQ_FIRST(&lock->ops));
        }
        while (!LIST_EMPTY(&lock->tickets)) {
            ticket_free(LIST_FIRST(&lock->tickets));
        }
    }
    for (GList *at = locks; at; at = at->next) {
        lock_free(at->data);
    }
    g_list_free(locks);
    g_hash_table_iter_init(&each, e->requests);
    while (g_hash_table_iter_next(&each, &request, &free_request)) {
        ((GDestroyNotify)(uintptr_t)free_request)(request);
    }
    time_clear(e);
    g_hash_table_unref(e->requests);
    g_hash_table_unref(e->locks);
    g_hash_table_unref(e->tickets);
    g_hash_table_unref(e->directories);
    g_ptr_array_unref(e->extending);
    g_ptr_array_unref(e->blocked);
    g_clear_pointer(&e->mounts, g_array_unref);
    store_value_clear(&e->marker);
    g_free(e->generation);
    g_rand_free(e->chance);
    g_free((char *)e->options.identity);
    g_free((char *)e->options.text);
    g_free((char *)e->options.address);
    g_free(e);
}

static struct backend_counts engine_counts(struct backend *b)
{
    const struct engine *e = engine_of(b);
    struct backend_counts counts = {.waiting = e->waiting, .recovering = e->recovering};
    GHashTableIter each;
    const struct lock *lock;
    g_hash_table_iter_init(&each, e->locks);
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&lock)) {
        const struct ticket *t;
        uint64_t held = 0;
        LIST_FOREACH(t, &lock->tickets, link) {
            held += t->state == TICKET_HOLDS;
        }
        counts.locks += lock_is_directory(lock) ? held : held > 0;
    }
    return counts;
}

static bool engine_name(struct backend *b, const struct backend_ticket *ticket, char *buffer, size_t size)
{
    const struct ticket *t = (const struct ticket *)ticket;
    const char *directory = t->lock->name;
    int length = !t->leaf ? snprintf(buffer, size, "%s", directory)
                          : snprintf(buffer, size, "%s%s%s", directory, *directory ? "/" : "", t->leaf);
    (void)b;
    return length >= 0 && (size_t)length < size;
}

static void engine_status(struct backend *b, struct backend_status *status)
{
    struct engine *e = engine_of(b);
    status->away = !e->up;
    status->since = e->since;
    status->has_connections = true;
    status->round_trips = e->round_trips;
    status->reconnects = e->reconnects;
    status->address = g_strdup(e->options.address);
    if (e->closed) {
        int64_t term = MIN(e->longest, e->options.grace);
        status->grace = MAX(e->closed_since + term - clock_now(), 1);
    }
    if (e->restored || e->lost) {
        g_ptr_array_add(status->details, g_strdup_printf("restored: %" G_GUINT64_FORMAT, e->restored));
        g_ptr_array_add(status->details, g_strdup_printf("lost: %" G_GUINT64_FORMAT, e->lost));
    }
    if (e->store->operations->status) {
        e->store->operations->status(e->store, status);
    }
}

static const struct backend_operations operations = {
    .start = engine_start,
    .free = engine_free,
    .acquire = engine_acquire,
    .release = engine_release,
    .cancel = engine_cancel,
    .release_range = engine_release_range,
    .convert = engine_convert,
    .renew = engine_renew,
    .set = engine_set,
    .revoke = engine_revoke,
    .rename = engine_rename,
    .test = engine_test,
    .stat = engine_stat,
    .list = engine_list,
    .tickets = engine_tickets,
    .mounts = engine_mounts,
    .mkdir = engine_mkdir,
    .rmdir = engine_rmdir,
    .set_directory = engine_set_directory_op,
    .watch = engine_watch,
    .recover = engine_recover,
    .identify = engine_identify,
    .counts = engine_counts,
    .name = engine_name,
    .status = engine_status,
};

static guint engine_hash_id(gconstpointer id)
{
    return (guint)((const struct record_id *)id)->half[0];
}

static gboolean engine_equal_ids(gconstpointer a, gconstpointer b)
{
    return record_id_equal(*(const struct record_id *)a, *(const struct record_id *)b);
}

/* The same for each daemon of a mount. */
static struct record_id engine_mount_id(struct engine *e)
{
    struct record_id id = {{0}};
    if (!e->options.identity) {
        return engine_new_id(e);
    }
    GChecksum *sum = g_checksum_new(G_CHECKSUM_SHA256);
    guint8 digest[32];
    gsize size = sizeof digest;
    g_checksum_update(sum, (const guchar *)e->options.identity, (gssize)strlen(e->options.identity));
    g_checksum_get_digest(sum, digest, &size);
    g_checksum_free(sum);
    memcpy(&id, digest, sizeof id);
    return id;
}

int engine_new(struct store *store, const struct engine_options *options, struct backend **ret_backend)
{
    struct engine *e = g_new0(struct engine, 1);
    e->store = store;
    e->options = *options;
    int r = time_init(e);
    if (r < 0) {
        store->operations->free(store);
        g_free(e);
        return r;
    }
    e->options.identity = g_strdup(options->identity);
    e->options.text = g_strdup(options->text);
    e->options.address = g_strdup(options->address);
    e->options.grace = options->grace > 0 ? options->grace : GRACE_MAX;
    e->backend = (struct backend){.operations = &operations,
                                  .name = store->operations->name,
                                  .features = BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | BACKEND_CAN_RENAME |
                                              BACKEND_CAN_REPLACE | BACKEND_CAN_SHARE | BACKEND_CAN_WATCH,
                                  .safety = store->operations->safety};
    e->chance = g_rand_new_with_seed(options->seed);
    e->locks = g_hash_table_new(g_str_hash, g_str_equal);
    e->tickets = g_hash_table_new(engine_hash_id, engine_equal_ids);
    e->directories = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, engine_free_directory);
    e->requests = g_hash_table_new(NULL, NULL);
    e->watched = g_hash_table_new(g_str_hash, g_str_equal);
    e->extending = g_ptr_array_new();
    e->blocked = g_ptr_array_new();
    TAILQ_INIT(&e->ready);
    TAILQ_INIT(&e->pending);
    TAILQ_INIT(&e->watches);
    LIST_INIT(&e->revocations);
    ev_prepare_init(&e->flush, flight_on_flush);
    e->flush.data = e;
    e->observe = engine_observe;
    e->enter = enter_again;
    e->allows_term = enter_allows_term;
    e->heartbeat = enter_heartbeat;
    e->poll = watch_poll;
    e->salt = engine_new_id(e).half[0];
    store->mount = engine_mount_id(e);
    *ret_backend = &e->backend;
    return 0;
}
