/* redis: leases in a Redis server.
 *
 * The server decides, in scripts (script/); this mount keeps what it needs
 * to know of its own tickets, and when each needs attention.  A message on this
 * mount's channel says that a waiter holds; the mount then claims.  A lost
 * message costs it REMOTE_HEARTBEAT at most.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "backend/format.h"
#include "backend/log.h"
#include "backend/redis/info.h"
#include "backend/redis/pack.h"
#include "backend/redis/private.h"

/* --- the connection --- */

static void redis_on_info(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    GPtrArray *problems, *warnings;
    remote_request_free(request);
    if (answer->outcome != REMOTE_ANSWERED || !answer->reply->str) {
        return; /* INFO may not be permitted: the preflight has warned */
    }
    problems = g_ptr_array_new_with_free_func(g_free);
    warnings = g_ptr_array_new_with_free_func(g_free);
    redis_info_check(answer->reply->str, r->kind, r->wait, problems, warnings);
    g_ptr_array_extend_and_steal(problems, warnings);
    for (guint i = 0; r->warned && i < problems->len; i++) {
        if (!g_ptr_array_find_with_equal_func(r->warnings, problems->pdata[i], g_str_equal, NULL)) {
            log_warning("the Redis server: %s", (const char *)problems->pdata[i]);
        }
    }
    g_ptr_array_unref(r->warnings);
    r->warnings = problems;
    r->warned = true;
}

/* It may be another server, or another configuration, than before. */
static void redis_ask_info(struct redis *r)
{
    const struct redis_argument info = {.data = "INFO", .length = strlen("INFO")};
    redis_conn_command(r->conn, &info, 1, 0, redis_on_info,
                       remote_request_new(&r->remote, REMOTE_NO_PROCEDURE, NULL, NULL));
}

static void redis_on_up(void *context)
{
    struct redis *r = context;
    if (r->was_up) {
        log_info("the Redis server is there again");
    }
    r->was_up = true;
    r->uncontended.leases_noted = 0;
    epoch_restore(&r->epoch);
    remote_on_up(&r->remote);
    redis_marker_watch(r);
    redis_ask_info(r);
}

static void redis_on_down(void *context, const char *why)
{
    (void)context;
    log_warning("the Redis server is away: %s", why);
}

/* See remote_on_message; besides "s MOUNT SERIAL": confirm to that mount that this was read. */
static void redis_on_message(void *context, const char *data, size_t length)
{
    struct redis *r = context;
    char *text = g_strndup(data, length), **words = g_strsplit(text, " ", 3);
    remote_on_message(&r->remote, words);
    if (g_strv_length(words) > 2 && strcmp(words[0], "s") == 0) {
        redis_revoke_confirm(r, words[1], words[2]);
    }
    g_strfreev(words);
    g_free(text);
}

static void redis_on_changed(void *context, const char *key, size_t length)
{
    struct redis *r = context;
    if (!key) {
        remote_watch_changed(&r->remote, NULL);
        remote_retry_waiter(&r->remote, NULL);
    }
    if (!key || redis_marker_is_key(r, key, length)) {
        redis_marker_watch(r);
        return;
    }
    redis_watch_side_changed(r, key, length);
    char *name = redis_key_name(&r->keys, key, length);
    if (!name) {
        return;
    }
    struct remote_lock *lock = redis_key_is_side(key) ? NULL : g_hash_table_lookup(r->remote.locks, name);
    if (lock && lock->watched) { /* else it is watched for the filesystem, and whoever waits gets a message */
        remote_retry_waiter(&r->remote, lock);
    }
    if (!redis_key_is_side(key)) {
        remote_watch_changed(&r->remote, name);
    }
    g_free(name);
}

static clock_ms redis_needed(void *context)
{
    const struct redis *r = context;
    return remote_first_deadline(&r->remote);
}

static const struct redis_conn_events conn_events = {.greet = redis_marker_greet,
                                                     .greeted = redis_marker_greeted,
                                                     .up = redis_on_up,
                                                     .down = redis_on_down,
                                                     .message = redis_on_message,
                                                     .changed = redis_on_changed,
                                                     .needed = redis_needed};

/* --- the backend --- */

static void redis_start(struct remote *remote)
{
    struct redis *r = (struct redis *)remote;
    redis_conn_start(r->conn, remote->loop, &conn_events, r);
}

static void redis_free(struct remote *remote, bool holds)
{
    struct redis *r = (struct redis *)remote;
    (void)holds;
    redis_recover_stop(r);
    redis_directory_end_all(r);
    epoch_clear(&r->epoch);
    redis_conn_free(r->conn);
    redis_uncontended_clear(r);
    redis_keys_clear(&r->keys);
    g_string_chunk_free(r->arena);
    g_array_unref(r->arguments);
    g_byte_array_unref(r->packed);
    g_free(r->address);
    g_free(r->about);
    g_ptr_array_unref(r->warnings);
    g_free(r);
}

static void redis_status(struct remote *remote, struct backend_status *status)
{
    struct redis *r = (struct redis *)remote;
    struct redis_conn_counts counts = redis_conn_counts(r->conn);
    const char *why = redis_conn_error(r->conn);
    status->away = *why;
    status->since = !status->away ? counts.since : counts.since ? counts.refused : counts.silent;
    status->why = status->away ? g_strdup(why) : NULL;
    status->address = g_strdup(r->address);
    status->round_trips = counts.requests;
    status->reconnects = counts.reconnects;
    for (guint i = 0; i < r->warnings->len; i++) {
        g_ptr_array_add(status->warnings, g_strdup(r->warnings->pdata[i]));
    }
    if (r->full && clock_now() - r->full < REDIS_FULL_SHOWN) {
        g_ptr_array_add(status->warnings, g_strdup(REDIS_FULL));
    }
    if (redis_conn_place(r->conn)) {
        g_ptr_array_add(status->details, g_strdup_printf("master: %s", redis_conn_place(r->conn)));
    }
    g_ptr_array_add(status->details, g_strdup_printf("key: %s{n}%s", r->keys.before, r->keys.behind));
    if (r->wait > 0) {
        g_ptr_array_add(status->details, g_strdup_printf("wait: %u replicas (asked %" G_GUINT64_FORMAT
                                                         " times, %" G_GUINT64_FORMAT " not met)",
                                                         r->wait, counts.waits, counts.shortfalls));
    }
    epoch_fill_status(&r->epoch, status);
}

static bool redis_is_up(const struct remote *r)
{
    return redis_conn_is_up(((const struct redis *)r)->conn);
}

/* While one waits, a message may come at any time. */
static void redis_waits(struct remote *remote, struct remote_ticket *t, enum remote_state to)
{
    (void)t;
    redis_conn_keep(((struct redis *)remote)->conn, remote_state_waits(to) ? 1 : -1);
}

static void redis_watching(struct remote *remote, bool any)
{
    redis_conn_keep(((struct redis *)remote)->conn, any ? 1 : -1);
}

static void redis_forget(struct remote *r, uint64_t call)
{
    redis_conn_forget(((struct redis *)r)->conn, call);
}

static bool redis_allows_name(struct remote *r, const char *name)
{
    return redis_key_allowed(&((struct redis *)r)->keys, name);
}

static bool redis_is_recovering(const struct remote *r)
{
    return ((const struct redis *)r)->recovery;
}

static const struct remote_store store = {
    .name = "redis",
    .features = BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | BACKEND_CAN_RENAME | BACKEND_CAN_REPLACE | BACKEND_CAN_SHARE,
    .revoke_root = BACKEND_IS_DIRECTORY,
    .rmdir_root = BACKEND_INVALID,
    .start = redis_start,
    .free = redis_free,
    .is_up = redis_is_up,
    .allows_name = redis_allows_name,
    .send = redis_send_request,
    .renew = redis_uncontended_renew,
    .forget = redis_forget,
    .heartbeat = redis_send_heartbeat,
    .on_waiting = redis_waits,
    .watch_lock = redis_watch_lock,
    .watch_name = redis_watch_name,
    .on_watching = redis_watching,
    .recover = redis_recover,
    .is_recovering = redis_is_recovering,
    .status = redis_status,
};

int redis_new(const struct redis_options *options, struct backend **ret, char *error, size_t error_size)
{
    struct redis_conn_options conn = options->conn;
    struct redis_keys keys;
    guint64 random;
    int result = redis_keys_init(&keys, options->prefix, options->key, error, error_size);
    if (result == 0 && conn.uri.kind == REDIS_CLUSTER && !redis_key_has_tag(keys.before)) {
        snprintf(
            error, error_size,
            "prefix=%s has no {TAG}: all locks of a mount of a Redis Cluster are kept in one hash slot, on one "
            "master, which is chosen by what stands in braces: write redis+cluster://HOST,HOST,HOST/?prefix={TAG}; "
            "where one master is not enough, make several mounts with tags of their own",
            options->prefix ? options->prefix : "");
        result = -EINVAL;
    }
    if (result < 0) {
        redis_keys_clear(&keys);
        return result;
    }
    struct redis *r = g_new0(struct redis, 1);
    result = remote_init(&r->remote, &store, options->seed);
    if (result < 0) {
        redis_keys_clear(&keys);
        g_free(r);
        snprintf(error, error_size, "cannot make a timer: %s", g_strerror(-result));
        return result;
    }
    while (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
    }
    r->remote.backend.safety = conn.wait > 0 ? BACKEND_REPLICATED : BACKEND_SINGLE;
    r->keys = keys;
    g_snprintf(r->mount, sizeof r->mount, "lfs:m%015" G_GINT64_MODIFIER "x", random >> 4);
    r->about = format_describe_mount(REDIS_FORMAT);
    r->started = clock_now();
    redis_uncontended_init(r);
    LIST_INIT(&r->directory_flows);
    r->arena = g_string_chunk_new(4096);
    r->arguments = g_array_new(FALSE, FALSE, sizeof(struct redis_argument));
    r->packed = g_byte_array_new();
    pack_map(r->packed);
    redis_keys_set_identity(&r->keys, options->identity ? options->identity : r->mount);
    r->address = redis_uri_show(&conn.uri);
    r->kind = conn.uri.kind;
    r->warned = !options->checked;
    r->remote.timeout = conn.timeout ? conn.timeout : REDIS_TIMEOUT_DEFAULT;
    r->warnings = g_ptr_array_new_with_free_func(g_free);
    conn.channel = r->mount;
    conn.prefix = r->keys.before;
    conn.greet = &redis_scripts[REDIS_ENTER];
    r->wait = conn.wait;
    epoch_init(&r->epoch, &r->remote, &redis_epoch_store, r->address, options->term,
               options->grace ? options->grace : EPOCH_GRACE_MAX, options->strict);
    char *mark = redis_key(&r->keys, 'a', "");
    conn.mark = mark;
    r->conn = redis_conn_new(&conn, redis_scripts, REDIS_SCRIPTS);
    g_free(mark);
    *ret = &r->remote.backend;
    return 0;
}
