/* setup: the commands on a new connection before it is up; a table says what becomes of each answer.
 *
 * All commands are sent at once; the answers come in the same order.  A server that
 * refuses an optional command is used without it; any other refusal ends this attempt.
 *
 * A request that was sent on a connection before may still be on its way: here, in the network, or in a proxy.  It is
 * sent again on the next one, so that what comes late would be done twice, and behind newer requests.  So the first
 * that is said on the next one ends the one before at the server.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/redis/conn/locate.h"
#include "backend/redis/conn/private.h"

static void setup_say(struct redis_peer *peer, enum redis_step step, int count, const char **words)
{
    const uint8_t byte = (uint8_t)step;
    size_t lengths[8];
    for (int i = 0; i < count; i++) {
        lengths[i] = strlen(words[i]);
    }
    redis_link_append(&peer->link, count, words, lengths);
    g_byte_array_append(peer->steps, &byte, 1);
}

#define SAY(peer, step, ...)                                                                                           \
    do {                                                                                                               \
        const char *words_[] = {__VA_ARGS__};                                                                          \
        setup_say(peer, step, (int)G_N_ELEMENTS(words_), words_);                                                      \
    } while (0)

static void setup_say_who(struct redis_peer *peer)
{
    const struct redis_conn_options *options = &peer->conn->options;
    if (options->user) { /* who may have no password */
        SAY(peer, REDIS_STEP_AUTH, "AUTH", options->user, options->password ? options->password : "");
    } else if (options->password) {
        SAY(peer, REDIS_STEP_AUTH, "AUTH", options->password);
    }
    if (peer->conn->events->refused) { /* every connection pings later, when it was silent */
        SAY(peer, REDIS_STEP_PING, "PING");
    }
    if (options->uri.kind == REDIS_SENTINEL) {
        SAY(peer, REDIS_STEP_ROLE, "ROLE");
    }
    SAY(peer, REDIS_STEP_NAME, "CLIENT", "SETNAME", "leasefs");
}

void redis_conn_greet(struct redis_conn *conn, size_t keys, const struct redis_argument *arguments, size_t count)
{
    const uint8_t byte = REDIS_STEP_GREET;
    char number[32];
    const char *words[8] = {"EVAL", conn->options.greet->text, number};
    size_t lengths[G_N_ELEMENTS(words)];
    g_snprintf(number, sizeof number, "%zu", keys);
    for (size_t i = 0; i < 3 + count; i++) {
        words[i] = i < 3 ? words[i] : arguments[i - 3].data;
        lengths[i] = i < 3 ? strlen(words[i]) : arguments[i - 3].length;
    }
    redis_link_append(&conn->command.link, (int)(3 + count), words, lengths);
    g_byte_array_append(conn->command.steps, &byte, 1);
}

/* Ends the connection before this one at the server, so that it carries out none of its requests any more.  A server
 * that was restarted counts its connections from 1 again, and over a Unix socket all have one address, so this could
 * end another mount's.  So not if greet has set another stamp: then the scripts refuse requests with the old one. */
static void setup_end_former(struct redis_peer *peer)
{
    struct redis_conn *conn = peer->conn;
    if (conn->former && strcmp(conn->stamp, conn->former_stamp) == 0) {
        SAY(peer, REDIS_STEP_KILL, "CLIENT", "KILL", "ID", conn->former[0], "ADDR", conn->former[1]);
    }
    SAY(peer, REDIS_STEP_INFO, "CLIENT", "INFO");
}

static void setup_say_for_commands(struct redis_peer *peer)
{
    struct redis_conn *conn = peer->conn;
    char number[32];
    g_strlcpy(conn->former_stamp, conn->stamp, sizeof conn->former_stamp);
    if (conn->options.uri.database) {
        g_snprintf(number, sizeof(number), "%d", conn->options.uri.database);
        SAY(peer, REDIS_STEP_SELECT, "SELECT", number);
    }
    for (size_t i = 0; i < conn->script_count; i++) {
        SAY(peer, REDIS_STEP_SCRIPT, "SCRIPT", "LOAD", conn->scripts[i].text);
    }
    if (conn->may_track) {
        g_snprintf(number, sizeof(number), "%lld", conn->pubsub_id);
        SAY(peer, REDIS_STEP_TRACK, "CLIENT", "TRACKING", "ON", "REDIRECT", number, "OPTIN");
    }
    if (conn->options.greet) {
        conn->events->greet(conn->context);
    } else {
        setup_end_former(peer);
    }
}

static void setup_say_for_pubsub(struct redis_peer *peer)
{
    SAY(peer, REDIS_STEP_ID, "CLIENT", "ID");
    SAY(peer, REDIS_STEP_SUBSCRIBE, "SUBSCRIBE", peer->conn->options.channel);
    SAY(peer, REDIS_STEP_SUBSCRIBE_INVALIDATE, "SUBSCRIBE", REDIS_INVALIDATE);
}

void redis_conn_setup_begin(struct redis_peer *peer)
{
    struct redis_conn *conn = peer->conn;
    g_byte_array_set_size(peer->steps, 0);
    peer->answered = 0;
    setup_say_who(peer);
    if (peer == &conn->pubsub) {
        conn->pubsub_id = 0;
        conn->may_track = false;
        setup_say_for_pubsub(peer);
    } else {
        conn->tracking = false;
        setup_say_for_commands(peer);
    }
    redis_link_flush(&peer->link);
}

bool redis_conn_setup_pending(const struct redis_peer *peer)
{
    return peer->answered < peer->steps->len;
}

/* --- answers --- */

static void setup_log_no_tracking(struct redis_conn *conn, const char *why)
{
    char text[256];
    if (!conn->tracking_logged) {
        log_warning("%s: cannot watch keys, so locks that other programs release are noticed late: %s", conn->where,
                    log_escape(text, sizeof(text), why));
    }
    conn->tracking_logged = true;
}

static void setup_log_no_killing(struct redis_conn *conn, const char *why)
{
    char text[256];
    if (!conn->killing_logged) {
        log_warning("%s: cannot end connections that were lost, so what was sent on them may be done late: %s",
                    conn->where, log_escape(text, sizeof(text), why));
    }
    conn->killing_logged = true;
}

static const char *setup_read_role(struct redis_peer *peer, const redisReply *reply)
{
    (void)peer;
    return redis_locate_is_master(reply) ? NULL : REDIS_NO_MASTER; /* a Sentinel's answer may be old */
}

static const char *setup_read_id(struct redis_peer *peer, const redisReply *reply)
{
    peer->conn->pubsub_id = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    return NULL;
}

static const char *setup_read_invalidations(struct redis_peer *peer, const redisReply *reply)
{
    (void)reply;
    peer->conn->may_track = peer->conn->pubsub_id;
    return NULL;
}

static const char *setup_read_tracking(struct redis_peer *peer, const redisReply *reply)
{
    (void)reply;
    peer->conn->tracking = true;
    return NULL;
}

static const char *setup_read_greeting(struct redis_peer *peer, const redisReply *reply)
{
    struct redis_conn *conn = peer->conn;
    if (!conn->events->greeted(conn->context, reply)) {
        return "an answer that cannot be";
    }
    setup_end_former(peer);
    redis_link_flush(&peer->link);
    return NULL;
}

/* "id=3 addr=127.0.0.1:1234 …": the number alone may be another's, at another server or after a restart. */
static const char *setup_read_identity(struct redis_peer *peer, const redisReply *reply)
{
    struct redis_conn *conn = peer->conn;
    char **words = g_strsplit(reply->type == REDIS_REPLY_STRING ? reply->str : "", " ", 3);
    g_clear_pointer(&conn->former, g_strfreev);
    if (g_strv_length(words) == 3 && g_str_has_prefix(words[0], "id=") && g_str_has_prefix(words[1], "addr=")) {
        conn->former = g_new0(char *, 3);
        conn->former[0] = g_strdup(words[0] + strlen("id="));
        conn->former[1] = g_strdup(words[1] + strlen("addr="));
    }
    g_strfreev(words);
    return NULL;
}

static const struct setup_step {
    const char *command;
    /* Takes an answer that is no error → why the connection is useless, or NULL. */
    const char *(*read)(struct redis_peer *peer, const redisReply *reply);
    bool optional; /* a server that cannot do it, or does not permit it, is used without */
    void (*log_without)(struct redis_conn *conn, const char *why);
} setup_steps[] = {
    [REDIS_STEP_AUTH] = {"AUTH"},
    [REDIS_STEP_PING] = {"PING"},
    [REDIS_STEP_ROLE] = {"ROLE", setup_read_role},
    [REDIS_STEP_NAME] = {"CLIENT SETNAME", NULL, true},
    [REDIS_STEP_ID] = {"CLIENT ID", setup_read_id, true, setup_log_no_tracking},
    [REDIS_STEP_SUBSCRIBE] = {"SUBSCRIBE"},
    [REDIS_STEP_SUBSCRIBE_INVALIDATE] = {"SUBSCRIBE " REDIS_INVALIDATE, setup_read_invalidations, true,
                                         setup_log_no_tracking},
    [REDIS_STEP_SELECT] = {"SELECT"},
    [REDIS_STEP_SCRIPT] = {"SCRIPT LOAD"},
    [REDIS_STEP_TRACK] = {"CLIENT TRACKING", setup_read_tracking, true, setup_log_no_tracking},
    [REDIS_STEP_GREET] = {"EVAL", setup_read_greeting},
    [REDIS_STEP_KILL] = {"CLIENT KILL", NULL, true, setup_log_no_killing},
    [REDIS_STEP_INFO] = {"CLIENT INFO", setup_read_identity, true, setup_log_no_killing},
};

/* May the connection be used although the server refused this step?  Other errors than those two are those of a server
 * that refuses everything: before a password was given, while it loads, while it has no master. */
static bool setup_goes_without(struct redis_conn *conn, const struct setup_step *step, const char *why)
{
    bool can = step->optional && (g_str_has_prefix(why, "NOPERM") || g_str_has_prefix(why, "ERR "));
    if (conn->events->refused) {
        return conn->events->refused(conn->context, step->command, why) || can;
    }
    if (can && step->log_without) {
        step->log_without(conn, why);
    }
    return can;
}

bool redis_conn_setup_answer(struct redis_peer *peer, const redisReply *reply, char *error)
{
    struct redis_conn *conn = peer->conn;
    const struct setup_step *step = &setup_steps[peer->steps->data[peer->answered++]];
    const char *password = conn->options.password;
    const char *why = reply->type == REDIS_REPLY_ERROR ? reply->str : step->read ? step->read(peer, reply) : NULL;
    if (!why || setup_goes_without(conn, step, why)) {
        return true;
    }
    /* servers repeat the arguments of a command that they do not know */
    if (step == &setup_steps[REDIS_STEP_AUTH] && password && strstr(why, password)) {
        why = "the server refused it";
    }
    g_snprintf(error, REDIS_ERROR_SIZE, "%s: %s", step->command, why);
    return false;
}
