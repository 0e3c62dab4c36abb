/* redlock: opens and closes the backend; servers up and down, messages, status. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/format.h"
#include "backend/log.h"
#include "backend/redlock/private.h"

#define SHARE 5 /* one server may take this part of a term */
#define TIMEOUT_MIN 100
#define TIMEOUT_MAX 2000

/* --- servers --- */

static void redlock_greet(void *context)
{
    const struct redlock_node *node = context;
    const struct redlock *r = node->r;
    char *store = redis_key(&node->r->keys, 'S', "");
    const struct redis_argument arguments[] = {{store, strlen(store)}, {r->about, strlen(r->about)}};
    redis_conn_greet(node->conn, 1, arguments, G_N_ELEMENTS(arguments));
    g_free(store);
}

static bool redlock_greeted(void *context, const redisReply *reply)
{
    return redlock_node_greeted(context, reply);
}

/* A server that is back may lack directories and held locks. */
static void redlock_on_up(void *context)
{
    struct redlock_node *node = context;
    struct redlock *r = node->r;
    unsigned up = redlock_nodes_up(r);
    redlock_node_up(node);
    if (!r->up && up >= vote_majority(r->count)) {
        if (r->was_up) {
            log_info("a majority of the servers is there again: %u of %u", up, r->count);
        }
        r->up = r->was_up = true;
        r->changed = clock_now();
    }
    redlock_directory_restore_all(r);
    if (r->up) {
        remote_on_up(&r->remote);
    }
}

static void redlock_on_down(void *context, const char *why)
{
    struct redlock_node *node = context;
    struct redlock *r = node->r;
    unsigned up = redlock_nodes_up(r);
    node->changed = clock_now();
    if (r->up && up < vote_majority(r->count)) {
        log_warning("only %u of %u servers are there, and %u are needed; the last that went is %s: %s", up, r->count,
                    vote_majority(r->count), node->where, why);
        r->up = false;
        r->changed = clock_now();
    }
}

static void redlock_on_revoked(struct redlock *r, const char *id, enum backend_end why)
{
    if (redlock_hold_report(r, id, REMOTE_ENDED, why)) {
        char *text = g_strconcat("h ", id, NULL);
        for (unsigned i = 0; i < r->count; i++) {
            redlock_node_publish(&r->nodes[i], text);
        }
        g_free(text);
    }
}

/* A message to all mounts, which each server sends.  "w TOKEN": another waits for this holder's lock; "e TOKEN WHY":
 * the holder was revoked; "h TOKEN": its mount has read that; of "m" and "i" see mounts.c. */
static void redlock_on_message(void *context, const char *data, size_t length)
{
    struct redlock_node *node = context;
    char *text = g_strndup(data, length), **words = g_strsplit(text, " ", 3);
    guint count = g_strv_length(words);
    if (count == 2 && strcmp(words[0], "w") == 0) {
        redlock_hold_report(node->r, words[1], REMOTE_WANTED, BACKEND_LOST);
    } else if (count == 3 && strcmp(words[0], "e") == 0) {
        redlock_on_revoked(node->r, words[1], strcmp(words[2], "released") == 0 ? BACKEND_RELEASED : BACKEND_BROKEN);
    } else if (count == 2 && strcmp(words[0], "h") == 0) {
        redlock_revoke_confirmed(node->r, words[1]);
    } else if (count == 2 && strcmp(words[0], "m") == 0) {
        redlock_mounts_question(node, words[1]);
    } else if (count == 3 && strcmp(words[0], "i") == 0) {
        redlock_mounts_answer(node->r, words[1], words[2]);
    }
    g_strfreev(words);
    g_free(text);
}

static void redlock_on_changed(void *context, const char *key, size_t length)
{
    struct redlock_node *node = context;
    struct redlock *r = node->r;
    if (!key) { /* the server may have lost all keys */
        if (r->up) {
            remote_on_up(&r->remote);
        }
        return;
    }
    char *name = redis_key_name(&r->keys, key, length);
    if (name) {
        redlock_acquire_changed(node, name);
        g_free(name);
    }
}

static clock_ms redlock_needed(void *context)
{
    const struct redlock_node *node = context;
    return remote_first_deadline(&node->r->remote);
}

static const struct redis_conn_events conn_events = {.greet = redlock_greet,
                                                     .greeted = redlock_greeted,
                                                     .up = redlock_on_up,
                                                     .down = redlock_on_down,
                                                     .message = redlock_on_message,
                                                     .changed = redlock_on_changed,
                                                     .needed = redlock_needed};

/* --- the backend --- */

static void redlock_start(struct remote *remote)
{
    struct redlock *r = (struct redlock *)remote;
    for (unsigned i = 0; i < r->count; i++) {
        r->nodes[i].changed = clock_now();
        redis_conn_start(r->nodes[i].conn, remote->loop, &conn_events, &r->nodes[i]);
    }
}

static void redlock_free(struct remote *remote, bool holds)
{
    struct redlock *r = (struct redlock *)remote;
    (void)holds;
    redlock_recover_stop(r);
    redlock_flow_end_all(r);
    redlock_poll_end_all(r);
    for (unsigned i = 0; i < r->count; i++) {
        redis_conn_free(r->nodes[i].conn);
        g_ptr_array_unref(r->nodes[i].warnings);
        g_free(r->nodes[i].where);
        g_free(r->nodes[i].run_id);
    }
    g_free(r->nodes);
    g_hash_table_unref(r->holds);
    g_hash_table_unref(r->tries);
    g_hash_table_unref(r->changes);
    g_string_chunk_free(r->arena);
    g_array_unref(r->arguments);
    g_rand_free(r->random);
    redis_keys_clear(&r->keys);
    g_free(r->channel);
    g_free(r->about);
    g_free(r->address);
    g_free(r);
}

static char *redlock_node_state(const struct redlock_node *node)
{
    int64_t left = redlock_node_held_off(node);
    if (!redlock_node_is_up(node)) {
        return g_strdup_printf("away for %" G_GINT64_FORMAT " s: %s", (clock_now() - node->changed) / 1000,
                               redis_conn_error(node->conn));
    }
    return left > 0 ? g_strdup_printf("started lately, its vote does not count for %" G_GINT64_FORMAT " s",
                                      (left + 999) / 1000)
                    : g_strdup("votes");
}

static void redlock_status(struct remote *remote, struct backend_status *status)
{
    struct redlock *r = (struct redlock *)remote;
    unsigned up = redlock_nodes_up(r);
    status->away = !r->up;
    status->since = r->changed;
    status->why =
        r->up ? NULL
              : g_strdup_printf("%u of %u servers are there, and %u are needed", up, r->count, vote_majority(r->count));
    status->address = g_strdup(r->address);
    g_ptr_array_add(status->details,
                    g_strdup_printf("servers: %u, %u of them there, quorum %u", r->count, up, vote_majority(r->count)));
    for (unsigned i = 0; i < r->count; i++) {
        const struct redlock_node *node = &r->nodes[i];
        struct redis_conn_counts counts = redis_conn_counts(node->conn);
        char *state = redlock_node_state(node);
        status->round_trips += counts.requests;
        status->reconnects += counts.reconnects;
        g_ptr_array_add(status->details, g_strdup_printf("server: %s %s", node->where, state));
        for (guint k = 0; k < node->warnings->len; k++) {
            g_ptr_array_add(status->warnings,
                            g_strdup_printf("%s: %s", node->where, (const char *)node->warnings->pdata[k]));
        }
        if (redlock_node_is_full(node)) {
            g_ptr_array_add(status->warnings, g_strdup_printf("%s: %s", node->where, REDIS_FULL));
        }
        g_free(state);
    }
    g_ptr_array_add(status->details, g_strdup("order: unfair"));
    g_ptr_array_add(status->details, g_strdup_printf("key: %s{n}%s", r->keys.before, r->keys.behind));
}

static bool redlock_is_up(const struct remote *remote)
{
    return ((const struct redlock *)remote)->up;
}

static bool redlock_allows_name(struct remote *remote, const char *name)
{
    return redis_key_allowed(&((struct redlock *)remote)->keys, name);
}

static void redlock_on_waiting(struct remote *remote, struct remote_ticket *t, enum remote_state to)
{
    struct redlock *r = (struct redlock *)remote;
    (void)t;
    for (unsigned i = 0; i < r->count; i++) {
        redis_conn_keep(r->nodes[i].conn, remote_state_waits(to) ? 1 : -1);
    }
}

static bool redlock_is_recovering(const struct remote *r)
{
    return ((const struct redlock *)r)->recovery;
}

static const struct remote_store store = {
    .name = "redlock",
    .safety = BACKEND_QUORUM,
    .no_range = "a lock of a range of bytes covers the whole lock on redlock",
    .no_share = "several masters have no common order: there are no shared locks and no sequence files on redlock",
    .no_width = "several masters have no common order: a directory has no width and no lock-delay on redlock",
    .no_rename =
        "a lock cannot be renamed on redlock: servers that know nothing of each other cannot do it in one step",
    .revoke_root = BACKEND_MISSING,
    .rmdir_root = BACKEND_NOT_EMPTY,
    .start = redlock_start,
    .free = redlock_free,
    .is_up = redlock_is_up,
    .allows_name = redlock_allows_name,
    .send = redlock_tickets_send,
    .renew = redlock_tickets_renew,
    .forget = redlock_tickets_forget,
    .heartbeat = redlock_acquire_heartbeat,
    .on_waiting = redlock_on_waiting,
    .watch_lock = redlock_acquire_watch,
    .recover = redlock_recover,
    .is_recovering = redlock_is_recovering,
    .status = redlock_status,
};

static void redlock_add_nodes(struct redlock *r, const struct redlock_options *options)
{
    GString *address = g_string_new("redlock://");
    r->count = options->uri->count;
    r->nodes = g_new0(struct redlock_node, r->count);
    for (unsigned i = 0; i < r->count; i++) {
        const struct redis_uri *uri = &options->uri->servers[i];
        struct redis_conn_options conn = options->conn;
        conn.uri = *uri;
        conn.channel = r->channel;
        conn.greet = &redlock_scripts[REDLOCK_GREET];
        conn.timeout = r->remote.timeout;
        conn.seed = options->seed + i;
        r->nodes[i] = (struct redlock_node){
            .r = r,
            .conn = redis_conn_new(&conn, redlock_scripts, REDLOCK_SCRIPTS),
            .where = g_strdup_printf(strchr(uri->host, ':') ? "[%s]:%u" : "%s:%u", uri->host, uri->port),
            .born = clock_now(),
            .warnings = g_ptr_array_new_with_free_func(g_free),
        };
        g_string_append_printf(address, "%s%s", i ? "," : "", r->nodes[i].where);
    }
    if (options->uri->servers[0].database) {
        g_string_append_printf(address, "/%d", options->uri->servers[0].database);
    }
    r->address = g_string_free(address, FALSE);
}

int redlock_new(const struct redlock_options *options, struct backend **ret, char *error, size_t error_size)
{
    struct redis_keys keys;
    int result = redis_keys_init(&keys, options->prefix, options->key, error, error_size);
    if (result < 0) {
        redis_keys_clear(&keys);
        return result;
    }
    struct redlock *r = g_new0(struct redlock, 1);
    result = remote_init(&r->remote, &store, options->seed);
    if (result < 0) {
        snprintf(error, error_size, "cannot make a timer: %s", g_strerror(-result));
        redis_keys_clear(&keys);
        g_free(r);
        return result;
    }
    r->keys = keys;
    r->channel = redlock_channel(REDLOCK_CHANNEL, options->prefix, options->key);
    r->about = format_describe_mount(REDLOCK_FORMAT);
    r->started = clock_now();
    remote_make_id(r->id);
    r->notes = options->identity;
    char *identity =
        g_strconcat("redlock ", options->identity, NULL); /* none of redis://, which notes in another way */
    redis_keys_set_identity(&r->keys, identity);
    g_free(identity);
    r->holds = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, redlock_hold_free);
    r->tries = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    r->changes = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    LIST_INIT(&r->polls);
    LIST_INIT(&r->flows);
    r->arena = g_string_chunk_new(4096);
    r->arguments = g_array_new(FALSE, FALSE, sizeof(struct redis_argument));
    r->random = g_rand_new_with_seed(options->seed);
    r->remote.timeout =
        options->conn.timeout ? options->conn.timeout : CLAMP(options->ttl / SHARE, TIMEOUT_MIN, TIMEOUT_MAX);
    r->longest = MIN(options->ttl, REDLOCK_LONGEST);
    r->grace = options->grace;
    r->changed = clock_now();
    redlock_add_nodes(r, options);
    *ret = &r->remote.backend;
    return 0;
}
