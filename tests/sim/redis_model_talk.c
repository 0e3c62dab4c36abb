/* redis_model_talk: commands about the server, connections, channels and scripts. */
#include "tests/sim/redis_model_private.h"

/* --- connections --- */

static void run_ping(struct model_call *call)
{
    if (call->argc > 2) {
        model_say_error(call, "ERR wrong number of arguments for 'ping' command");
    } else if (g_hash_table_size(call->client->channels) > 0) {
        model_say_array(call, 2);
        model_say_text(call, "pong");
        model_say_bulk(call, call->argc > 1 ? call->argv[1].data : "", call->argc > 1 ? call->argv[1].length : 0);
    } else if (call->argc > 1) {
        model_say_bulk(call, call->argv[1].data, call->argv[1].length);
    } else {
        model_say(call, "+PONG");
    }
}

static void run_echo(struct model_call *call)
{
    model_say_bulk(call, call->argv[1].data, call->argv[1].length);
}

static void run_auth(struct model_call *call)
{
    const struct slice *password = &call->argv[call->argc - 1];
    if (call->argc > 3) {
        model_say_syntax(call);
    } else if (call->argc == 2 && !call->m->password) {
        model_say_error(call,
                        "ERR AUTH <password> called without any password configured for the default user. Are you "
                        "sure your configuration is correct?");
    } else if ((call->argc == 3 && !slice_is_exactly(&call->argv[1], "default")) ||
               (call->m->password && !slice_is_exactly(password, call->m->password))) {
        model_say_error(call, "WRONGPASS invalid username-password pair or user is disabled.");
    } else {
        call->client->authenticated = true;
        model_say(call, "+OK");
    }
}

static void run_select(struct model_call *call)
{
    int64_t db;
    if (!slice_number(&call->argv[1], &db) || db < INT32_MIN || db > INT32_MAX) {
        model_say_error(call, "ERR invalid DB index");
    } else if (db < 0 || db >= MODEL_DATABASES) {
        model_say_error(call, "ERR DB index is out of range");
    } else {
        call->client->db = (int)db;
        model_say(call, "+OK");
    }
}

static void run_client_id(struct model_call *call)
{
    model_say_number(call, (int64_t)call->client->id);
}

static char *address_of(const struct redis_client *client)
{
    return g_strdup_printf("127.0.0.1:%u", (unsigned)(client->id % 55536 + 10000));
}

static void run_client_info(struct model_call *call)
{
    char *address = address_of(call->client);
    char *text =
        g_strdup_printf("id=%" G_GUINT64_FORMAT " addr=%s laddr=127.0.0.1:6379 fd=8\n", call->client->id, address);
    model_say_text(call, text);
    g_free(text);
    g_free(address);
}

/* TYPE normal, and SKIPME yes: what a test says. */
static void kill_normal_clients(struct model_call *call)
{
    struct redis_client *client;
    int64_t killed = 0;
    TAILQ_FOREACH(client, &call->m->clients, link) {
        if (client != call->client && !client->closed && g_hash_table_size(client->channels) == 0) {
            redis_client_cut(client, client->out->len);
            killed++;
        }
    }
    model_say_number(call, killed);
}

/* By ID and ADDR: what a mount says. */
static void run_client_kill(struct model_call *call)
{
    int64_t id = 0;
    const struct slice *address = NULL;
    if (call->argc >= 4 && slice_is(&call->argv[2], "type") && slice_is(&call->argv[3], "normal")) {
        kill_normal_clients(call);
        return;
    }
    for (size_t i = 2; i < call->argc; i += 2) {
        if (i + 1 == call->argc || !(slice_is(&call->argv[i], "id") || slice_is(&call->argv[i], "addr"))) {
            model_say_syntax(call);
            return;
        }
        if (slice_is(&call->argv[i], "addr")) {
            address = &call->argv[i + 1];
        } else if (!slice_number(&call->argv[i + 1], &id)) {
            model_say_error(call, "ERR client-id should be greater than 0");
            return;
        }
    }
    struct redis_client *client = model_client_find(call->m, (uint64_t)id);
    char *own = client ? address_of(client) : NULL;
    bool found = own && (!address || slice_is_exactly(address, own));
    if (found) {
        redis_client_cut(client, client->out->len);
    }
    model_say_number(call, found);
    g_free(own);
}

static void run_client_setname(struct model_call *call)
{
    const struct slice *name = &call->argv[2];
    for (size_t i = 0; i < name->length; i++) {
        if (name->data[i] < '!' || name->data[i] > '~') {
            model_say_error(call, "ERR Client names cannot contain spaces, newlines or special characters.");
            return;
        }
    }
    g_string_truncate(call->client->name, 0);
    g_string_append_len(call->client->name, name->data, (gssize)name->length);
    model_say(call, "+OK");
}

static void run_client_getname(struct model_call *call)
{
    const GString *name = call->client->name;
    if (name->len) {
        model_say_bulk(call, name->str, name->len);
    } else {
        model_say_nil(call);
    }
}

/* ON and OFF, with REDIRECT and OPTIN: what a mount says. */
static void run_client_tracking(struct model_call *call)
{
    struct redis_client *client = call->client;
    int64_t redirect = 0;
    bool optin = false, on = slice_is(&call->argv[2], "on");
    for (size_t i = 3; i < call->argc; i++) {
        if (slice_is(&call->argv[i], "optin")) {
            optin = true;
        } else if (slice_is(&call->argv[i], "redirect") && i + 1 < call->argc) {
            if (!slice_number(&call->argv[++i], &redirect)) {
                model_say_error(call, "ERR value is not an integer or out of range");
                return;
            }
            if (!model_client_find(call->m, (uint64_t)redirect)) {
                model_say_error(call, "ERR The client ID you want redirect to does not exist");
                return;
            }
        } else {
            model_say_syntax(call);
            return;
        }
    }
    if (!on && !slice_is(&call->argv[2], "off")) {
        model_say_syntax(call);
        return;
    }
    client->tracking = on;
    client->optin = on && optin;
    client->redirect = on ? (uint64_t)redirect : 0;
    client->caching = on ? client->caching : 0;
    model_say(call, "+OK");
}

static void run_client_caching(struct model_call *call)
{
    if (!call->client->tracking) {
        model_say_error(call, "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or "
                              "OPTOUT mode enabled");
    } else if (slice_is(&call->argv[2], "yes")) {
        if (!call->client->optin) {
            model_say_error(call, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
            return;
        }
        call->client->caching = 1;
        model_say(call, "+OK");
    } else if (slice_is(&call->argv[2], "no")) {
        model_say_error(call, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
    } else {
        model_say_syntax(call);
    }
}

/* --- channels --- */

static void say_subscription(struct model_call *call, const char *kind, const struct slice *channel)
{
    model_say_array(call, 3);
    model_say_text(call, kind);
    if (channel) {
        model_say_bulk(call, channel->data, channel->length);
    } else {
        model_say_nil(call);
    }
    model_say_number(call, g_hash_table_size(call->client->channels));
}

static void run_subscribe(struct model_call *call)
{
    for (size_t i = 1; i < call->argc; i++) {
        const struct slice *channel = &call->argv[i];
        if (!g_hash_table_contains(call->client->channels, channel)) {
            struct slice *copy = g_malloc(sizeof *copy + channel->length);
            *copy = (struct slice){(char *)(copy + 1), channel->length};
            memcpy(copy + 1, channel->data, channel->length);
            g_hash_table_add(call->client->channels, copy);
        }
        say_subscription(call, "subscribe", channel);
    }
}

static void run_unsubscribe(struct model_call *call)
{
    for (size_t i = 1; i < call->argc; i++) {
        g_hash_table_remove(call->client->channels, &call->argv[i]);
        say_subscription(call, "unsubscribe", &call->argv[i]);
    }
    if (call->argc > 1) {
        return;
    }
    GHashTableIter at;
    gpointer channel;
    g_hash_table_iter_init(&at, call->client->channels);
    bool any = false;
    while (g_hash_table_iter_next(&at, &channel, NULL)) {
        struct slice name = *(const struct slice *)channel;
        char *data = g_strndup(name.data, name.length);
        g_hash_table_iter_remove(&at);
        say_subscription(call, "unsubscribe", &(struct slice){data, name.length});
        g_free(data);
        any = true;
    }
    if (!any) {
        say_subscription(call, "unsubscribe", NULL);
    }
}

static void run_publish(struct model_call *call)
{
    const struct slice *channel = &call->argv[1], *data = &call->argv[2];
    struct redis_client *client;
    int64_t count = 0;
    GString *text = g_string_new(NULL);
    g_string_printf(text, "*3\r\n$7\r\nmessage\r\n$%zu\r\n", channel->length);
    g_string_append_len(text, channel->data, (gssize)channel->length);
    g_string_append_printf(text, "\r\n$%zu\r\n", data->length);
    g_string_append_len(text, data->data, (gssize)data->length);
    g_string_append(text, "\r\n");
    TAILQ_FOREACH(client, &call->m->clients, link) {
        if (!client->closed && g_hash_table_contains(client->channels, channel)) {
            model_deliver(client, text->str, text->len);
            count++;
        }
    }
    g_string_free(text, TRUE);
    call->m->counts.messages += (uint64_t)count;
    call->m->counts.unheard += count == 0;
    model_say_number(call, count);
}

/* --- the server --- */

static void run_time(struct model_call *call)
{
    int64_t wall = redis_model_wall(call->m);
    char text[24];
    model_say_array(call, 2);
    g_snprintf(text, sizeof text, "%" G_GINT64_FORMAT, wall / 1000000);
    model_say_text(call, text);
    g_snprintf(text, sizeof text, "%" G_GINT64_FORMAT, wall % 1000000);
    model_say_text(call, text);
}

static void run_dbsize(struct model_call *call)
{
    model_say_number(call, g_hash_table_size(call->m->data.keys[call->client->db]));
}

static void flush(struct model_call *call, int db)
{
    if (call->argc > 2 ||
        (call->argc == 2 && !slice_is(&call->argv[1], "sync") && !slice_is(&call->argv[1], "async"))) {
        model_say_syntax(call);
        return;
    }
    model_data_flush(&call->m->data, db);
    model_flush_watched(call->m);
    model_say(call, "+OK");
}

static void run_flushall(struct model_call *call)
{
    flush(call, -1);
}

static void run_flushdb(struct model_call *call)
{
    flush(call, call->client->db);
}

static unsigned clients_of(const struct redis_model *m)
{
    const struct redis_client *client;
    unsigned count = 0;
    TAILQ_FOREACH(client, &m->clients, link) {
        count += !client->closed;
    }
    return count;
}

/* The fields that a mount reads when it comes up; sections are not distinguished. */
static void run_info(struct model_call *call)
{
    const struct redis_model *m = call->m;
    int64_t up = (m->options.now(m->options.arg) - m->started) / 1000000;
    GString *text = g_string_new("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n");
    g_string_append_printf(text, "run_id:%s\r\nuptime_in_seconds:%" G_GINT64_FORMAT "\r\n\r\n", m->runid, up);
    g_string_append_printf(text, "# Clients\r\nconnected_clients:%u\r\n\r\n", clients_of(m));
    g_string_append_printf(text, "# Memory\r\nmaxmemory:%d\r\nmaxmemory_policy:noeviction\r\n\r\n",
                           m->state[REDIS_MODEL_FULL] ? 1 : 0);
    g_string_append_printf(text,
                           "# Persistence\r\nloading:%d\r\nrdb_changes_since_last_save:%u\r\n"
                           "rdb_last_bgsave_status:%s\r\nrdb_last_bgsave_time_sec:-1\r\naof_enabled:1\r\n"
                           "aof_last_write_status:ok\r\n\r\n",
                           m->state[REDIS_MODEL_LOADING], m->data.units.length,
                           m->state[REDIS_MODEL_DISKLESS] ? "err" : "ok");
    if (m->state[REDIS_MODEL_REPLICA]) {
        g_string_append_printf(text, "# Replication\r\nrole:slave\r\nmaster_host:127.0.0.1\r\nmaster_port:1\r\n"
                                     "master_link_status:down\r\nslave_read_only:1\r\n");
    } else {
        g_string_append_printf(text, "# Replication\r\nrole:master\r\n");
    }
    g_string_append_printf(text, "connected_slaves:%u\r\n", model_replica_count(m, 0));
    if (m->state[REDIS_MODEL_LONELY]) {
        g_string_append_printf(text, "min_slaves_good_slaves:0\r\n");
    }
    g_string_append_printf(text, "master_replid:%s\r\nmaster_replid2:%s\r\n\r\n# Cluster\r\ncluster_enabled:%d\r\n",
                           m->replid, m->former_replid ? m->former_replid : "0000000000000000000000000000000000000000",
                           m->state[REDIS_MODEL_CLUSTER]);
    model_say_bulk(call, text->str, text->len);
    g_string_free(text, TRUE);
}

static void run_acl_whoami(struct model_call *call)
{
    model_say_text(call, "default");
}

/* --- scripts --- */

static void run_script_load(struct model_call *call)
{
    const char *hash = model_lua_load(call, &call->argv[2]);
    if (hash) {
        model_say_text(call, hash);
    }
}

static void run_script_exists(struct model_call *call)
{
    model_say_array(call, call->argc - 2);
    for (size_t i = 2; i < call->argc; i++) {
        model_say_number(call, model_lua_knows(call->m->lua, &call->argv[i]));
    }
}

static void run_script_flush(struct model_call *call)
{
    if (call->argc > 3 ||
        (call->argc == 3 && !slice_is(&call->argv[2], "sync") && !slice_is(&call->argv[2], "async"))) {
        model_say_error(call, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    model_forget_scripts(call->m);
    model_say(call, "+OK");
}

static void run_script_kill(struct model_call *call)
{
    if (redis_model_is(call->m, REDIS_MODEL_BUSY)) {
        redis_model_set(call->m, REDIS_MODEL_BUSY, false);
        model_say(call, "+OK");
    } else {
        model_say_error(call, "NOTBUSY No scripts in execution right now.");
    }
}

static bool read_keys(struct model_call *call, size_t *ret_keys)
{
    int64_t keys;
    if (!slice_number(&call->argv[2], &keys)) {
        model_say_error(call, "ERR value is not an integer or out of range");
    } else if (keys > (int64_t)call->argc - 3) {
        model_say_error(call, "ERR Number of keys can't be greater than number of args");
    } else if (keys < 0) {
        model_say_error(call, "ERR Number of keys can't be negative");
    } else {
        *ret_keys = (size_t)keys;
        return true;
    }
    return false;
}

static void run_eval(struct model_call *call)
{
    size_t keys;
    const char *hash = read_keys(call, &keys) ? model_lua_load(call, &call->argv[1]) : NULL;
    if (hash) {
        model_lua_run(call, hash, keys, call->argv + 3, call->argc - 3);
    }
}

static void run_evalsha(struct model_call *call)
{
    size_t keys;
    if (!read_keys(call, &keys)) {
        return;
    }
    if (!model_lua_knows(call->m->lua, &call->argv[1])) {
        model_say_error(call, "NOSCRIPT No matching script. Please use EVAL.");
        return;
    }
    char *hash = g_ascii_strdown(call->argv[1].data, (gssize)call->argv[1].length);
    model_lua_run(call, hash, keys, call->argv + 3, call->argc - 3);
    g_free(hash);
}

#define ANYTIME (MODEL_LOADING | MODEL_STALE)

const struct model_command model_talk_commands[] = {
    {"acl|whoami", 2, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_acl_whoami},
    {"auth", -2, MODEL_NOSCRIPT | ANYTIME | MODEL_ALLOW_BUSY | MODEL_NO_AUTH, 0, 0, 0, run_auth},
    {"client|caching", 3, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_client_caching},
    {"client|getname", 2, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_client_getname},
    {"client|id", 2, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_client_id},
    {"client|info", 2, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_client_info},
    {"client|kill", -3, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_client_kill},
    {"client|setname", 3, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_client_setname},
    {"client|tracking", -3, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_client_tracking},
    {"dbsize", 1, MODEL_READ, 0, 0, 0, run_dbsize},
    {"echo", 2, ANYTIME, 0, 0, 0, run_echo},
    {"eval", -3, MODEL_NOSCRIPT | MODEL_STALE, MODEL_NUMBERED, 0, 0, run_eval},
    {"evalsha", -3, MODEL_NOSCRIPT | MODEL_STALE, MODEL_NUMBERED, 0, 0, run_evalsha},
    {"flushall", -1, MODEL_WRITE, 0, 0, 0, run_flushall},
    {"flushdb", -1, MODEL_WRITE, 0, 0, 0, run_flushdb},
    {"info", -1, ANYTIME, 0, 0, 0, run_info},
    {"ping", -1, 0, 0, 0, 0, run_ping},
    {"publish", 3, ANYTIME, 0, 0, 0, run_publish},
    {"script|exists", -3, MODEL_NOSCRIPT, 0, 0, 0, run_script_exists},
    {"script|flush", -2, MODEL_NOSCRIPT, 0, 0, 0, run_script_flush},
    {"script|kill", 2, MODEL_NOSCRIPT | MODEL_ALLOW_BUSY, 0, 0, 0, run_script_kill},
    {"script|load", 3, MODEL_NOSCRIPT | MODEL_STALE, 0, 0, 0, run_script_load},
    {"select", 2, ANYTIME, 0, 0, 0, run_select},
    {"subscribe", -2, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_subscribe},
    {"time", 1, ANYTIME, 0, 0, 0, run_time},
    {"unsubscribe", -1, MODEL_NOSCRIPT | ANYTIME, 0, 0, 0, run_unsubscribe},
    {NULL, 0, 0, 0, 0, 0, NULL},
};
