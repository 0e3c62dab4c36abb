/* conn: the states of the two connections, and time.
 *
 *   NEW ─start─▶ RESOLVE ─▶ SUBSCRIBE ─▶ PREPARE ─▶ UP
 *                   ▲           │           │        │
 *                   └── PAUSE ◀─┴───────────┴────────┘ fail
 *
 * The connection for Pub/Sub is made first; SUBSCRIBE ends when its set-up was
 * answered, PREPARE when that of the connection for commands was.  Whatever fails
 * ends both.  An attempt is made on each address of the host, then there is a
 * pause, then it is asked where the server is (locate.h), and the host looked up again.
 *
 * All work is done in `conn_on_work`, which is fed to the loop so that it
 * runs behind all other events of a turn: there requests are sent, timeouts found
 * and the one timer set.
 */
#include "backend/redis/conn/conn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/conn/locate.h"
#include "backend/redis/conn/private.h"
#include "backend/redis/conn/tls.h"
#include "backend/remote/resolve.h"

/* --- failing --- */

/* How long there is until the connection is needed. */
static int64_t conn_time_left(struct redis_conn *conn, clock_ms now)
{
    if (conn->events->needed && (conn->needed_by <= now || conn->needed_by == CLOCK_NEVER)) {
        conn->needed_by = conn->events->needed(conn->context);
    }
    return conn->events->needed ? conn->needed_by - now : CLOCK_NEVER;
}

/* The longest pause. */
static int64_t conn_pause_max(struct redis_conn *conn, clock_ms now)
{
    int64_t most = conn->options.retry_max ? conn->options.retry_max : REDIS_RETRY_MAX;
    return MIN(most, MAX(conn_time_left(conn, now) / 8, REDIS_RETRY_SOON));
}

/* How long an attempt may take, at most `most`: another one must still be possible in time. */
static int64_t conn_attempt_max(struct redis_conn *conn, clock_ms now, int64_t most)
{
    return MIN(most, MAX(conn_time_left(conn, now) / 2, REDIS_CONNECT_SOON));
}

/* How long to wait after this many rounds that failed. */
static int64_t conn_pause_after(struct redis_conn *conn, clock_ms now)
{
    if (conn->attempts == 0) {
        return 0;
    }
    int64_t pause = REDIS_RETRY_MIN, most = conn_pause_max(conn, now);
    for (unsigned i = 1; i < conn->attempts && pause < most; i++) {
        pause *= 2;
    }
    return (int64_t)((double)MIN(pause, most) * g_rand_double_range(conn->random, 0.5, 1.5));
}

static void conn_log_failure(struct redis_conn *conn, bool was_up)
{
    if (was_up) {
        log_warning("%s: connection lost: %s", conn->where, conn->error);
    } else if (strcmp(conn->error, conn->logged) != 0) {
        log_warning("%s: %s; trying again", conn->where, conn->error);
    }
    g_strlcpy(conn->logged, conn->error, sizeof(conn->logged));
}

/* When and where the next attempt is made.  False: on another address, at once. */
static bool conn_plan_attempt(struct redis_conn *conn, bool was_up, clock_ms now)
{
    if (was_up && now - conn->counts.since >= REDIS_STEADY) {
        conn->attempts = 0;
    }
    conn->retry_at = now;
    if (!was_up && conn->addresses && ++conn->address < conn->addresses->len) {
        return false;
    }
    conn->retry_at += conn_pause_after(conn, now);
    conn->attempts++;
    if (conn->addresses) {
        g_array_unref(conn->addresses);
    }
    conn->addresses = NULL;
    return true;
}

static const char *conn_begin_reason(enum redis_failure failure)
{
    switch (failure) {
    case REDIS_NOT_RESOLVED:
        return "cannot find the host: ";
    case REDIS_NOT_CONNECTED:
    case REDIS_NO_MEMORY:
        return "cannot connect: ";
    default:
        return "";
    }
}

/* Gives up both connections, and tries again (later).  Safe in events of links. */
static void __attribute__((format(printf, 3, 4)))
conn_fail(struct redis_conn *conn, enum redis_failure failure, const char *format, ...)
{
    bool was_up = conn->state == REDIS_CONN_UP;
    char text[sizeof(conn->error)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    const int head = g_snprintf(conn->error, sizeof(conn->error), "%s%s%s", conn->place ? conn->place : "",
                                conn->place ? ": " : "", conn_begin_reason(failure));
    log_escape(conn->error + head, sizeof(conn->error) - (size_t)head, text);
    remote_resolve_cancel(conn->resolve);
    conn->resolve = NULL;
    redis_link_abandon(&conn->pubsub.link);
    redis_link_abandon(&conn->command.link);
    redis_conn_request_lost(conn);
    bool round_failed = conn_plan_attempt(conn, was_up, clock_now());
    if (round_failed && !conn->events->failed) {
        conn_log_failure(conn, was_up);
    }
    conn->state = REDIS_CONN_PAUSE;
    conn->counts.since = 0;
    if (was_up) {
        conn->counts.silent = clock_now() - (failure == REDIS_SILENT ? conn->options.command_timeout : 0);
    }
    conn->probing = conn->tracking = false;
    redis_conn_wake(conn);
    if (was_up) {
        conn->events->down(conn->context, conn->error);
    }
    if (round_failed && conn->events->failed) {
        conn->events->failed(conn->context, failure, conn->error + head);
    }
}

/* --- connecting --- */

static void connect_peer(struct redis_peer *peer)
{
    struct redis_conn *conn = peer->conn;
    const struct remote_address *address = &g_array_index(conn->addresses, struct remote_address, conn->address);
    const char *tls_name = conn->options.uri.tls ? conn->host : NULL;
    int r = redis_link_open(&peer->link, address, conn->tls_trust, tls_name, conn->options.keepalive);
    conn->state = peer == &conn->pubsub ? REDIS_CONN_SUBSCRIBE : REDIS_CONN_PREPARE;
    peer->last_reply = 0;
    clock_ms now = clock_now();
    peer->connect_timeout = conn_attempt_max(conn, now, conn->options.connect_timeout);
    peer->setup_timeout = conn_attempt_max(conn, now, conn->options.command_timeout);
    peer->connect_by = now + peer->connect_timeout;
    g_byte_array_set_size(peer->steps, 0);
    peer->answered = 0;
    if (r < 0) {
        conn_fail(conn, r == -ENOMEM ? REDIS_NO_MEMORY : REDIS_NOT_CONNECTED, "%s", g_strerror(-r));
    }
}

static void conn_take_addresses(struct redis_conn *conn, GArray *addresses)
{
    conn->addresses = addresses;
    conn->address = 0;
    connect_peer(&conn->pubsub);
    redis_conn_wake(conn);
}

static void conn_on_resolved(void *arg, GArray *addresses, const char *error)
{
    struct redis_conn *conn = arg;
    conn->resolve = NULL;
    if (addresses) {
        conn_take_addresses(conn, addresses);
    } else {
        conn_fail(conn, REDIS_NOT_RESOLVED, "%s", error);
    }
}

static void conn_resolve(struct redis_conn *conn)
{
    GArray *addresses = remote_resolve_numeric(conn->host, conn->port);
    if (addresses) {
        conn_take_addresses(conn, addresses);
        return;
    }
    conn->resolve = remote_resolve_start(conn->loop, conn->host, conn->port, 0, conn_on_resolved, conn);
    if (!conn->resolve) {
        conn_fail(conn, REDIS_NOT_RESOLVED, "no thread can be started to look it up");
    }
}

static bool conn_is_at(const struct redis_conn *conn, const char *host, uint16_t port)
{
    return conn->host && strcmp(conn->host, host) == 0 && conn->port == port;
}

/* A result of locate.c, also one that was not requested: the master has changed. */
static void conn_on_located(void *arg, const char *host, uint16_t port, const char *error)
{
    struct redis_conn *conn = arg;
    if (conn->state == REDIS_CONN_PAUSE && host) {
        conn->retry_at = clock_now();
        redis_conn_wake(conn);
    }
    if (conn->state != REDIS_CONN_RESOLVE || conn->resolve) {
        if (conn->state != REDIS_CONN_PAUSE && host && !conn_is_at(conn, host, port)) {
            conn_fail(conn, REDIS_NOT_LOCATED, "the master is %s port %u now", host, port);
        }
        return;
    }
    g_free(conn->host);
    conn->host = g_strdup(host);
    conn->port = port;
    g_clear_pointer(&conn->place, g_free);
    if (!host) {
        conn_fail(conn, REDIS_NOT_LOCATED, "%s", error);
        return;
    }
    conn->place = conn->options.uri.kind == REDIS_SERVER ? NULL : redis_uri_show_host(host, port);
    conn_resolve(conn);
}

static void conn_locate(struct redis_conn *conn)
{
    conn->state = REDIS_CONN_RESOLVE;
    if (conn->options.uri.path) {
        conn_take_addresses(conn, remote_resolve_path(conn->options.uri.path));
    } else {
        redis_locate_ask(conn->locate);
    }
}

static void conn_attempt(struct redis_conn *conn)
{
    if (conn->addresses) {
        connect_peer(&conn->pubsub);
    } else {
        conn_locate(conn);
    }
}

static void conn_come_up(struct redis_conn *conn)
{
    bool changed = conn->watched;
    if (conn->was_up) {
        conn->counts.reconnects++;
    }
    if (!conn->events->failed && (conn->was_up || conn->logged[0] || conn->place)) {
        log_info("%s: connected%s%s", conn->where, conn->place ? " to " : "", conn->place ? conn->place : "");
    }
    conn->was_up = true;
    conn->watched = false;
    conn->needed_by = 0;
    conn->error[0] = conn->logged[0] = '\0';
    conn->counts.since = clock_now();
    conn->counts.silent = 0;
    conn->state = REDIS_CONN_UP;
    redis_conn_request_resume(conn);
    if (changed) { /* watched keys may have changed meanwhile */
        conn->events->changed(conn->context, NULL, 0);
    }
}

/* --- events of the connections --- */

static void conn_on_opened(void *arg)
{
    struct redis_peer *peer = arg;
    peer->sent = peer->last_reply = clock_now();
    redis_conn_setup_begin(peer);
    redis_conn_wake(peer->conn);
}

static void conn_on_closed(void *arg, enum redis_failure failure, const char *why)
{
    struct redis_peer *peer = arg;
    conn_fail(peer->conn, failure, "%s", why);
}

static bool conn_is_string(const redisReply *reply, const char *text)
{
    return reply->type == REDIS_REPLY_STRING && reply->len == strlen(text) && memcmp(reply->str, text, reply->len) == 0;
}

static bool conn_is_message(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 && conn_is_string(reply->element[0], "message");
}

static void conn_tell_message(struct redis_conn *conn, const redisReply *channel, const redisReply *data)
{
    if (conn->state != REDIS_CONN_UP) {
        return; /* once it is up, everything is requested again */
    }
    if (conn_is_string(channel, REDIS_INVALIDATE)) {
        if (data->type != REDIS_REPLY_ARRAY) { /* FLUSHALL and the like: a null */
            conn->events->changed(conn->context, NULL, 0);
        }
        for (size_t i = 0; data->type == REDIS_REPLY_ARRAY && i < data->elements; i++) {
            if (data->element[i]->type == REDIS_REPLY_STRING) {
                conn->events->changed(conn->context, data->element[i]->str, data->element[i]->len);
            }
        }
    } else if (conn_is_string(channel, conn->options.channel) && data->type == REDIS_REPLY_STRING) {
        conn->events->message(conn->context, data->str, data->len);
    }
}

static void conn_on_set_up(struct redis_peer *peer)
{
    struct redis_conn *conn = peer->conn;
    if (peer == &conn->pubsub) {
        connect_peer(&conn->command);
    } else {
        conn_come_up(conn);
    }
    redis_conn_wake(conn);
}

static void conn_on_replied(void *arg, redisReply *reply)
{
    struct redis_peer *peer = arg;
    struct redis_conn *conn = peer->conn;
    char error[REDIS_ERROR_SIZE];
    peer->last_reply = clock_now();
    if (peer == &conn->pubsub && conn_is_message(reply)) {
        conn_tell_message(conn, reply->element[1], reply->element[2]);
    } else if (redis_conn_setup_pending(peer)) {
        if (!redis_conn_setup_answer(peer, reply, error)) {
            conn_fail(conn, REDIS_REFUSED, "%s", error);
        } else if (!redis_conn_setup_pending(peer)) {
            conn_on_set_up(peer);
        }
    } else if (peer == &conn->command) {
        if (!redis_conn_request_replied(conn, reply, error)) {
            conn_fail(conn, REDIS_REFUSED, "%s", error);
        }
        return;
    } else if (conn->probing) {
        conn->probing = false; /* whatever it says, it is an answer to PING */
    } else if (reply->type == REDIS_REPLY_ERROR) {
        conn_fail(conn, REDIS_REFUSED, "%s", reply->str);
    }
    freeReplyObject(reply);
}

static const struct redis_link_events link_events = {conn_on_opened, conn_on_replied, conn_on_closed};

/* --- time --- */

/* When a connection is given up unless something is heard; CLOCK_NEVER. */
static clock_ms conn_reply_due(const struct redis_peer *peer)
{
    const struct redis_conn *conn = peer->conn;
    clock_ms sent = CLOCK_NEVER;
    if (peer->link.state == REDIS_LINK_CONNECTING) {
        return peer->connect_by;
    }
    if (peer->link.state == REDIS_LINK_CLOSED) {
        return CLOCK_NEVER;
    }
    if (redis_conn_setup_pending(peer)) {
        return MAX(peer->sent, peer->last_reply) + peer->setup_timeout;
    }
    if (peer == &conn->pubsub && conn->probing) {
        sent = peer->sent;
    } else if (peer == &conn->command) {
        sent = redis_conn_request_oldest(conn);
    }
    return sent == CLOCK_NEVER ? CLOCK_NEVER : MAX(sent, peer->last_reply) + conn->options.command_timeout;
}

static clock_ms conn_probe_due(const struct redis_conn *conn)
{
    if (conn->state != REDIS_CONN_UP || conn->keep == 0 || conn->probing) {
        return CLOCK_NEVER;
    }
    return conn->pubsub.last_reply + 2 * conn->options.command_timeout;
}

static void conn_probe(struct redis_conn *conn, clock_ms now)
{
    const char *ping = "PING";
    const size_t length = 4;
    conn->probing = true;
    conn->pubsub.sent = now;
    redis_link_append(&conn->pubsub.link, 1, &ping, &length);
    redis_link_flush(&conn->pubsub.link);
}

static void conn_check_connections(struct redis_conn *conn, clock_ms now)
{
    struct redis_peer *peers[] = {&conn->pubsub, &conn->command};
    for (size_t i = 0; i < G_N_ELEMENTS(peers); i++) {
        if (conn_reply_due(peers[i]) > now) {
            continue;
        }
        if (peers[i]->link.state == REDIS_LINK_CONNECTING) {
            conn_fail(conn, REDIS_NOT_CONNECTED, "no answer for %lld ms", (long long)peers[i]->connect_timeout);
        } else {
            bool setup = redis_conn_setup_pending(peers[i]);
            conn_fail(conn, redis_link_in_handshake(&peers[i]->link) ? REDIS_NO_TLS : REDIS_SILENT,
                      "no answer for %lld ms",
                      (long long)(setup ? peers[i]->setup_timeout : conn->options.command_timeout));
        }
    }
    if (conn_probe_due(conn) <= now) {
        conn_probe(conn, now);
    }
    if (conn->state == REDIS_CONN_PAUSE && conn->retry_at <= now) {
        conn_attempt(conn);
    }
}

static void conn_set_alarm(struct redis_conn *conn)
{
    clock_ms now = clock_now(), due = redis_conn_request_due(conn);
    due = MIN(due, conn_reply_due(&conn->pubsub));
    due = MIN(due, conn_reply_due(&conn->command));
    due = MIN(due, conn_probe_due(conn));
    if (conn->state == REDIS_CONN_PAUSE) {
        due = MIN(due, conn->retry_at);
    }
    ev_timer_stop(conn->loop, &conn->alarm);
    if (due == CLOCK_NEVER) {
        return;
    }
    ev_timer_set(&conn->alarm, (double)MAX(due - now, 1) / 1000, 0);
    ev_timer_start(conn->loop, &conn->alarm);
}

static void conn_on_work(struct ev_loop *loop, struct ev_prepare *watcher, int events)
{
    struct redis_conn *conn = watcher->data;
    clock_ms now = clock_now();
    (void)loop, (void)events;
    conn_check_connections(conn, now);
    redis_conn_request_work(conn, now);
    conn_set_alarm(conn);
}

static void conn_on_alarm(struct ev_loop *loop, struct ev_timer *watcher, int events)
{
    (void)loop, (void)events;
    redis_conn_wake(watcher->data);
}

/* --- from outside --- */

static struct redis_conn_options conn_copy_options(const struct redis_conn_options *given)
{
    struct redis_conn_options options = *given;
    options.uri = redis_uri_copy(&given->uri);
    options.sentinel_user = g_strdup(given->sentinel_user);
    options.sentinel_password = g_strdup(given->sentinel_password);
    options.prefix = g_strdup(given->prefix);
    options.user = g_strdup(given->user ? given->user : given->uri.user);
    options.password = g_strdup(given->password);
    options.channel = g_strdup(given->channel);
    options.mark = g_strdup(given->mark);
    if (!options.timeout) {
        options.timeout = REDIS_TIMEOUT_DEFAULT;
    }
    if (!options.command_timeout) {
        options.command_timeout = REDIS_COMMAND_TIMEOUT_DEFAULT;
    }
    if (!options.connect_timeout) {
        options.connect_timeout = REDIS_CONNECT_TIMEOUT_DEFAULT;
    }
    return options;
}

struct redis_conn *redis_conn_new(const struct redis_conn_options *options, const struct redis_script *scripts,
                                  size_t script_count)
{
    struct redis_conn *conn = g_new0(struct redis_conn, 1);
    conn->options = conn_copy_options(options);
    conn->where = redis_uri_show(&options->uri);
    conn->tls_trust = options->uri.tls ? redis_tls_trust_new() : NULL;
    conn->scripts = scripts;
    conn->script_count = script_count;
    conn->hashes = g_new0(char *, script_count + 1);
    for (size_t i = 0; i < script_count; i++) {
        conn->hashes[i] = g_compute_checksum_for_string(G_CHECKSUM_SHA1, scripts[i].text, -1);
    }
    conn->random = g_rand_new_with_seed(options->seed);
    g_strlcpy(conn->error, "not connected yet", sizeof(conn->error));
    conn->pubsub.conn = conn->command.conn = conn;
    conn->pubsub.steps = g_byte_array_new();
    conn->command.steps = g_byte_array_new();
    redis_conn_request_init(conn);
    return conn;
}

void redis_conn_start(struct redis_conn *conn, struct ev_loop *loop, const struct redis_conn_events *events,
                      void *context)
{
    conn->loop = loop;
    conn->events = events;
    conn->context = context;
    const struct redis_conn_options *o = &conn->options;
    bool by_sentinels = o->uri.kind == REDIS_SENTINEL;
    const struct redis_locate_options ask = {
        .uri = &o->uri,
        .user = by_sentinels ? o->sentinel_user : o->user,
        .password = by_sentinels ? o->sentinel_password : o->password,
        .prefix = o->prefix,
        .resolve_timeout = o->connect_timeout,
        .tls_trust = conn->tls_trust,
    };
    conn->locate = redis_locate_new(&ask, loop, conn_on_located, conn);
    redis_link_init(&conn->pubsub.link, loop, &link_events, &conn->pubsub);
    redis_link_init(&conn->command.link, loop, &link_events, &conn->command);
    ev_timer_init(&conn->alarm, conn_on_alarm, 0, 0);
    ev_prepare_init(&conn->work, conn_on_work);
    ev_set_priority(&conn->work, EV_MINPRI);
    conn->alarm.data = conn->work.data = conn;
    conn->state = REDIS_CONN_PAUSE;
    conn->counts.silent = clock_now();
    redis_conn_wake(conn);
}

static void conn_forget_password(char *password)
{
    if (password) {
        explicit_bzero(password, strlen(password));
    }
    g_free(password);
}

void redis_conn_free(struct redis_conn *conn)
{
    if (!conn) {
        return;
    }
    if (conn->loop) {
        redis_link_close(&conn->pubsub.link);
        redis_link_close(&conn->command.link);
        remote_resolve_cancel(conn->resolve);
        redis_locate_free(conn->locate);
        ev_timer_stop(conn->loop, &conn->alarm);
        ev_clear_pending(conn->loop, &conn->work);
    }
    redis_conn_request_free(conn);
    if (conn->addresses) {
        g_array_unref(conn->addresses);
    }
    g_byte_array_unref(conn->pubsub.steps);
    g_byte_array_unref(conn->command.steps);
    g_rand_free(conn->random);
    g_free(conn->where);
    redis_tls_trust_free(conn->tls_trust);
    g_strfreev(conn->hashes);
    g_strfreev(conn->former);
    g_free(conn->host);
    g_free(conn->place);
    redis_uri_clear(&conn->options.uri);
    g_free((char *)conn->options.user);
    g_free((char *)conn->options.sentinel_user);
    g_free((char *)conn->options.prefix);
    conn_forget_password((char *)conn->options.password);
    conn_forget_password((char *)conn->options.sentinel_password);
    g_free((char *)conn->options.channel);
    g_free((char *)conn->options.mark);
    g_free(conn);
}

bool redis_conn_is_up(const struct redis_conn *conn)
{
    return conn->state == REDIS_CONN_UP;
}

const char *redis_conn_error(const struct redis_conn *conn)
{
    return redis_conn_is_away(conn) ? conn->error : "";
}

const char *redis_conn_place(const struct redis_conn *conn)
{
    return conn->place;
}

struct redis_conn_counts redis_conn_counts(const struct redis_conn *conn)
{
    struct redis_conn_counts counts = conn->counts;
    clock_ms oldest = redis_conn_request_oldest(conn);
    if (counts.silent == 0 && oldest != CLOCK_NEVER) {
        counts.silent = MAX(oldest, conn->command.last_reply);
    }
    return counts;
}

void redis_conn_keep(struct redis_conn *conn, int more)
{
    conn->keep += more;
    if (conn->keep == 1 && more > 0) {
        redis_conn_wake(conn);
    }
}
