/* preflight: tries a server before a mount; see preflight.h.
 *
 * It runs the connection of a mount (conn/), and collects the refusals of its set-up.  When it is up, probes that
 * change nothing show whether the server has, and this user may run, each command that the scripts call.  Missing
 * permissions are listed in one line, as words of ACL SETUSER.  The probes' keys are those of a lock that cannot exist:
 * names that begin with .leasefs/ are the daemon's own.
 */
#include "backend/redis/preflight.h"

#include <errno.h>
#include <ev.h>
#include <stdarg.h>
#include <string.h>

#include "backend/format.h"
#include "backend/log.h"
#include "backend/redis/info.h"
#include "backend/redis/private.h"
#include "backend/redis/script.h"

#define PREFLIGHT_LIMIT 10000 /* ms, until the connection is up */
#define PREFLIGHT_CHANNEL "lfs:check"
#define PREFLIGHT_NAME ".leasefs/check"
#define PREFLIGHT_WORDS 8
#define ANSWER_MAX 256

struct preflight;

/* One command of a mount: of the set-up of its connection, or a probe. */
struct preflight_command {
    const char *text;       /* of the set-up: as struct redis_conn_events names it */
    const char *permission; /* to run it; NULL: another command names it */
    enum { NO_OBJECT, LOCK_KEYS, SIDE_KEYS, CHANNELS, INVALIDATIONS } object; /* which ACL can forbid, too */
    bool optional; /* without it keys are not watched; that is all */
    bool vital;    /* every error ends the preflight, not only a missing permission or command */
    bool lenient;  /* except for errors that nobody knows, which are a warning */
    bool (*read)(struct preflight *p, const redisReply *reply); /* an answer; false: the preflight has ended */
    const char *arguments[PREFLIGHT_WORDS];                     /* of a probe */
};

struct preflight_probe {
    struct preflight *p;
    const struct preflight_command *command;
    uint64_t id; /* of the request */
};

struct preflight {
    const struct redis_options *options;
    bool is_one_of_many;
    struct redis_meeting meeting;
    struct ev_loop *loop;
    struct ev_timer limit;
    struct redis_conn *conn;
    guint rounds; /* of attempts that are left */
    int64_t command_timeout, limit_ms;

    char *pattern;                     /* ACL's for the keys of locks */
    const char *user;                  /* as the server knows it */
    const char *key;                   /* of the probes' lock */
    const char *side;                  /* its side key */
    const char *script;                /* the text of all scripts */
    const char *store, *terms, *names; /* keys of meet.lua */
    char *about;                       /* and how the mount describes itself */
    GArray *probes;                    /* struct preflight_probe */
    guint answered;                    /* of them */

    GString *needed; /* words of ACL SETUSER without which no lock can be taken */
    GString *wanted; /* words without which keys are not watched */
    char *missing;   /* a command that the server does not have: INFO may know why */
    bool unclear;    /* there is a warning that the server's answer about permissions is not understood */
    GPtrArray *warnings;
    guint given; /* of them, before the preflight */
    char **ret_info;

    bool ended;
    int result;
    char *error;
    size_t error_size;
};

/* --- ends --- */

static void preflight_end(struct preflight *p)
{
    p->ended = true;
    ev_break(p->loop, EVBREAK_ALL);
}

/* Notes what is wrong, in one line.  False, for callers that have ended with it. */
static bool __attribute__((format(printf, 3, 4)))
preflight_note(struct preflight *p, int result, const char *format, ...)
{
    const char *lock = p->conn ? redis_conn_place(p->conn) : NULL;
    g_autofree char *uri = redis_uri_show(&p->options->conn.uri);
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_snprintf(p->error, p->error_size, "%s%s%s: %s", uri, lock ? ": the master at " : "", lock ? lock : "", text);
    p->result = result;
    return false;
}

static void preflight_append_word(GString *list, const char *word)
{
    g_auto(GStrv) words = g_strsplit(list->str, " ", -1);
    if (!g_strv_contains((const char *const *)words, word)) {
        g_string_append_printf(list, " %s", word);
    }
}

/* All was answered. */
static void preflight_finish(struct preflight *p)
{
    p->result = 0;
    *p->error = '\0';
    if (p->needed->len > 0) {
        preflight_note(p, -EACCES, "the user %s lacks permissions: run there ACL SETUSER %s%s%s (see leasefs-redis(7))",
                       p->user, p->user, p->needed->str, p->wanted->str);
    } else if (p->wanted->len > 0) {
        g_ptr_array_add(
            p->warnings,
            g_strdup_printf("the user %s lacks optional permissions, so locks that other programs release are noticed "
                            "late, or what was sent on a lost connection may be done late: run there ACL SETUSER %s%s",
                            p->user, p->user, p->wanted->str));
    }
    preflight_end(p);
}

/* --- errors of the server --- */

static bool preflight_lacks_command(const char *why)
{
    return g_str_has_prefix(why, "ERR unknown command");
}

static bool preflight_note_missing(struct preflight *p, const char *command)
{
    return preflight_note(p, -EACCES, "the server has no command %s: see its setting rename-command", command);
}

/* What the server says, in words that say what to do. */
static bool preflight_note_error(struct preflight *p, const char *command, const char *why)
{
    const struct redis_conn_options *o = &p->options->conn;
    char text[ANSWER_MAX];
    if (g_str_has_prefix(why, "DISABLED ")) {
        return preflight_note_missing(p, why + strlen("DISABLED "));
    }
    if (g_str_has_prefix(why, "MOVED ") && o->uri.kind == REDIS_CLUSTER) {
        return preflight_note(p, -ESTALE, "the server has not the slot of the prefix any more: try again");
    }
    if (g_str_has_prefix(why, "WRONGPASS") && !o->password) {
        return preflight_note(p, -EACCES,
                              "the server refuses this user without a password: put USER:PASSWORD in a file with mode "
                              "0600 and mount with -o credentials=FILE");
    }
    if (redis_info_advice(why)) {
        return preflight_note(p, g_str_has_prefix(why, REDIS_NO_MASTER) ? -ESTALE : -EACCES, "%s",
                              redis_info_advice(why));
    }
    if (strcmp(command, "AUTH") == 0) { /* servers repeat the arguments of a command that they do not know */
        return preflight_note(p, -EACCES, "the server refuses the command AUTH");
    }
    return preflight_note(p, -EACCES, "the server refuses the command %s: %s", command,
                          log_escape(text, sizeof text, why));
}

static void preflight_warn_unclear(struct preflight *p, const char *command, const char *why)
{
    char text[ANSWER_MAX];
    if (!p->unclear) {
        g_ptr_array_add(p->warnings,
                        g_strdup_printf("the server's answer about permissions for %s is not understood, so a missing "
                                        "permission shows only when a lock needs it: %s",
                                        command, log_escape(text, sizeof text, why)));
    }
    p->unclear = true;
}

static const char *preflight_object_word(const struct preflight *p, const struct preflight_command *command)
{
    switch (command->object) {
    case LOCK_KEYS:
        return p->pattern;
    case SIDE_KEYS: /* ACL SETUSER takes no pattern after ~* */
        return strcmp(p->pattern, "~*") == 0 ? "~*" : "~lfs:*";
    case CHANNELS:
        return "&lfs:*";
    case INVALIDATIONS:
        return "&" REDIS_INVALIDATE;
    default:
        return NULL;
    }
}

static void preflight_lack(struct preflight *p, const struct preflight_command *command, const char *why)
{
    const char *object = preflight_object_word(p, command);
    const char *word = object && !strstr(why, "permissions to run") ? object : command->permission;
    if (word) {
        preflight_append_word(command->optional ? p->wanted : p->needed, word);
    }
}

/* The server refuses a command.  False: the mount cannot do without it, and why is noted. */
static bool preflight_refused(struct preflight *p, const struct preflight_command *command, const char *why)
{
    g_auto(GStrv) words = g_strsplit(command->text, " ", 2);
    if (g_str_has_prefix(why, "NOPERM")) {
        preflight_lack(p, command, why);
        return true;
    }
    if (!command->vital) {
        return command->optional || !preflight_lacks_command(why) || preflight_note_missing(p, words[0]);
    }
    if (command->lenient && !redis_info_advice(why) && !g_str_has_prefix(why, "DISABLED ") &&
        !preflight_lacks_command(why)) {
        preflight_warn_unclear(p, words[0], why);
        return true;
    }
    return preflight_note_error(p, words[0], why);
}

/* --- probes --- */

static bool preflight_read_info(struct preflight *p, const redisReply *reply)
{
    const struct redis_conn_options *o = &p->options->conn;
    GPtrArray *errors = g_ptr_array_new_with_free_func(g_free);
    if (reply->type != REDIS_REPLY_STRING) {
        g_ptr_array_add(p->warnings,
                        g_strdup("this user may not run INFO, so leasefs cannot check whether the server evicts "
                                 "locks, and whether it keeps them on disk: permit +info"));
    } else if (p->is_one_of_many) {
        redis_info_check_master(reply->str, o->uri.kind, errors, p->warnings);
    } else {
        redis_info_check(reply->str, o->uri.kind, o->wait, errors, p->warnings);
    }
    if (reply->type == REDIS_REPLY_STRING && p->ret_info) {
        g_free(*p->ret_info);
        *p->ret_info = g_strdup(reply->str);
    }
    bool usable = errors->len == 0 || preflight_note(p, -EOPNOTSUPP, "%s", (const char *)errors->pdata[0]);
    g_ptr_array_unref(errors);
    return usable && (!p->missing || preflight_note_missing(p, p->missing));
}

/* The answer of permissions.lua. */
static bool preflight_read_permissions(struct preflight *p, const redisReply *reply)
{
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        const char *word = reply->element[i]->type == REDIS_REPLY_STRING ? reply->element[i]->str : "";
        if (*word == '+') {
            preflight_append_word(p->needed, word);
        } else if (*word == '?') {
            g_auto(GStrv) parts = g_strsplit(word + 1, " ", 2);
            preflight_warn_unclear(p, parts[0], parts[0] && parts[1] ? parts[1] : "");
        }
    }
    return true;
}

/* What meet.lua answers. */
static bool preflight_read_meeting(struct preflight *p, const redisReply *reply)
{
    const char *words[2] = {"", ""};
    char text[ANSWER_MAX];
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < MIN(reply->elements, G_N_ELEMENTS(words)); i++) {
        words[i] = reply->element[i]->type == REDIS_REPLY_STRING ? reply->element[i]->str : "";
    }
    if (strcmp(words[0], "newer") == 0) {
        const char *of = strchr(words[1], ' ');
        g_autofree char *store =
            g_strdup_printf("the store, made by leasefs%s,", log_escape(text, sizeof text, of ? of : ""));
        preflight_note(p, -EPROTONOSUPPORT, FORMAT_TOO_NEW, store, format_read_number(words[1]), p->meeting.format);
    } else if (strcmp(words[0], "unnumbered") == 0) {
        g_autofree char *mount = g_strdup_printf("a mount (channel %s)", log_escape(text, sizeof text, words[1]));
        preflight_note(p, -EPROTONOSUPPORT, FORMAT_MISSING, "the store", mount);
    }
    return p->result != -EPROTONOSUPPORT;
}

/* Stand for what each preflight has of its own. */
static const char arg_key[] = "key", arg_side[] = "side", arg_script[] = "script", arg_store[] = "store",
                  arg_terms[] = "terms", arg_names[] = "names", arg_about[] = "about", arg_channel[] = "channel";

/* Those of the set-up.  The server may refuse others: CLIENT SETNAME, and what the probes ask again. */
static const struct preflight_command preflight_commands[] = {
    {"AUTH", "+auth", .vital = true},
    {"PING", "+ping", .vital = true},
    {"ROLE", "+role", .vital = true},
    {"SELECT", "+select", .vital = true},
    {"SCRIPT LOAD", "+script|load", .vital = false},
    {"SUBSCRIBE", "+subscribe", CHANNELS, .vital = false},
    {"SUBSCRIBE " REDIS_INVALIDATE, NULL, INVALIDATIONS, .optional = true},
    {"CLIENT ID", "+client|id", .optional = true},
    {"CLIENT INFO", "+client|info", .optional = true},
};

static const struct preflight_command preflight_probes[] = {
    {"INFO", .read = preflight_read_info, .arguments = {"INFO"}},
    {"EVAL", "+eval", LOCK_KEYS, .vital = true, .lenient = true, .read = preflight_read_permissions,
     .arguments = {"EVAL", redis_permissions_script, "1", arg_key, arg_script}},
    {"EVAL", "+eval", SIDE_KEYS, .vital = true, .lenient = true, .read = preflight_read_permissions,
     .arguments = {"EVAL", redis_permissions_script, "1", arg_side, arg_script}},
    {"EVALSHA", "+evalsha", .arguments = {"EVALSHA", "0000000000000000000000000000000000000000", "0"}},
    {"EXISTS", "+exists", LOCK_KEYS, .arguments = {"EXISTS", arg_key}},
    {"PUBLISH", "+publish", CHANNELS, .arguments = {"PUBLISH", PREFLIGHT_CHANNEL, ""}},
    {"WAIT", "+wait", .arguments = {"WAIT", "0", "1"}},
    {"CLIENT KILL", "+client|kill", .optional = true, .arguments = {"CLIENT", "KILL", "ID", "0"}},
    {"CLIENT TRACKING", "+client|tracking", .optional = true, .arguments = {"CLIENT", "TRACKING", "OFF"}},
    {"CLIENT CACHING", "+client|caching", .optional = true, .arguments = {"CLIENT", "CACHING", "NO"}},
    {"EVAL", "+eval", SIDE_KEYS, .read = preflight_read_meeting,
     .arguments = {"EVAL", redis_meet_script, "3", arg_store, arg_terms, arg_names, arg_about, arg_channel}},
};

static void preflight_on_answer(void *arg, const struct redis_answer *answer)
{
    struct preflight_probe *probe = arg;
    struct preflight *p = probe->p;
    bool refused = answer->outcome == REMOTE_REFUSED, usable = true;
    if (p->ended) {
        return;
    }
    probe->id = 0;
    p->answered++;
    if (!answer->reply) {
        usable = preflight_note(p, -ETIMEDOUT, "no answer within %" G_GINT64_FORMAT " ms", p->limit_ms);
    } else if (refused && probe->command->read != preflight_read_info) {
        usable = preflight_refused(p, probe->command, answer->reply->str);
    } else if (probe->command->read) {
        usable = probe->command->read(p, answer->reply);
    }
    if (!usable) {
        preflight_end(p);
    } else if (p->answered == p->probes->len) {
        preflight_finish(p);
    }
}

static void preflight_send(struct preflight *p, struct preflight_probe *probe)
{
    const struct {
        const char *stands, *text;
    } own[] = {
        {arg_key, p->key},     {arg_side, p->side},   {arg_script, p->script}, {arg_store, p->store},
        {arg_terms, p->terms}, {arg_names, p->names}, {arg_about, p->about},   {arg_channel, p->meeting.channel}};
    struct redis_argument arguments[PREFLIGHT_WORDS];
    size_t count = 0;
    for (; count < PREFLIGHT_WORDS && probe->command->arguments[count]; count++) {
        const char *word = probe->command->arguments[count];
        for (size_t i = 0; i < G_N_ELEMENTS(own); i++) {
            word = word == own[i].stands ? own[i].text : word;
        }
        arguments[count] = (struct redis_argument){word, strlen(word)};
    }
    probe->id = redis_conn_try(p->conn, arguments, count, p->limit_ms, preflight_on_answer, probe);
}

/* --- the connection --- */

static void preflight_on_up(void *context)
{
    struct preflight *p = context;
    ev_timer_stop(p->loop, &p->limit);
    p->answered = 0;
    for (guint i = 0; i < p->probes->len && !p->ended; i++) {
        preflight_send(p, &g_array_index(p->probes, struct preflight_probe, i));
    }
}

static void preflight_on_down(void *context, const char *why)
{
    (void)context, (void)why; /* preflight_on_failed comes next */
}

static bool preflight_on_refused(void *context, const char *command, const char *why)
{
    struct preflight *p = context;
    for (size_t i = 0; i < G_N_ELEMENTS(preflight_commands) && !p->ended; i++) {
        const struct preflight_command *known = &preflight_commands[i];
        if (strcmp(known->text, command) != 0) {
            continue;
        }
        if (!known->vital && !known->optional && preflight_lacks_command(why)) {
            p->missing = p->missing ? p->missing : g_strndup(command, strcspn(command, " "));
            return true;
        }
        if (preflight_refused(p, known, why)) {
            return true;
        }
        if (p->result != -ESTALE) {
            preflight_end(p);
        }
        return false;
    }
    return true; /* a mount does as well without */
}

static void preflight_note_failure(struct preflight *p, enum redis_failure failure, const char *why)
{
    static const struct {
        int result;
        const char *before; /* what the failure was about; */
        const char *after;  /* what to do; NULL: without what happened */
    } known[] = {
        [REDIS_NOT_LOCATED] = {-EHOSTUNREACH, "", "; or mount with the option background, which waits for the servers"},
        [REDIS_NOT_RESOLVED] = {-EHOSTUNREACH, "the host's address cannot be found: ",
                                ": correct the name, or see /etc/hosts and DNS"},
        [REDIS_NOT_CONNECTED] = {-ECONNREFUSED, "cannot connect: ",
                                 ": check that the server runs and can be reached, or mount with the option "
                                 "background, which waits for the server"},
        [REDIS_NO_MEMORY] = {-ENOMEM, "out of memory", NULL},
        [REDIS_NO_TLS] = {-EPROTO, "no connection with TLS: ",
                          ": check that the server's port uses TLS, and the name and the signer of its certificate"},
        [REDIS_NO_REDIS] = {-EPROTO, "the program at this address is not a Redis server: correct the host and port",
                            NULL},
        [REDIS_CLOSED] = {-ECONNRESET,
                          "the server ended the connection: see its log; if its port expects TLS, write rediss://",
                          NULL},
        [REDIS_BROKEN] = {-EIO, "the connection failed: ",
                          ": see the server's log; if its port expects TLS, write rediss://"},
    };
    if (failure == REDIS_SILENT) {
        preflight_note(p, -ETIMEDOUT,
                       "no answer within %" G_GINT64_FORMAT " ms: see what listens there, or raise command_timeout=",
                       p->command_timeout);
    } else if (failure != REDIS_REFUSED) {
        const char *after = known[failure].after;
        preflight_note(p, known[failure].result, "%s%s%s", known[failure].before, after ? why : "", after ? after : "");
    } else if (p->result != -ESTALE) { /* else it is noted */
        preflight_note_error(p, "EVAL", why);
    }
}

/* Sentinels and nodes of a Cluster may name a server that is not the master any more: the next one is asked. */
static void preflight_on_failed(void *context, enum redis_failure failure, const char *why)
{
    struct preflight *p = context;
    if (p->ended) {
        return;
    }
    preflight_note_failure(p, failure, why);
    if (failure == REDIS_NOT_LOCATED || --p->rounds == 0) {
        preflight_end(p);
        return;
    }
    for (guint i = 0; i < p->probes->len; i++) {
        redis_conn_forget(p->conn, g_array_index(p->probes, struct preflight_probe, i).id);
    }
    g_string_truncate(p->needed, 0);
    g_string_truncate(p->wanted, 0);
    g_clear_pointer(&p->missing, g_free);
    g_ptr_array_set_size(p->warnings, (gint)p->given);
    p->unclear = false;
    p->result = 0;
}

static void preflight_on_limit(struct ev_loop *loop, struct ev_timer *timer, int events)
{
    struct preflight *p = timer->data;
    (void)loop, (void)events;
    if (!*p->error) {
        preflight_note(p, -ETIMEDOUT,
                       "the connection is not up after %" G_GINT64_FORMAT
                       " ms: see the server's log and the network, or use the option background",
                       p->limit_ms);
    }
    p->result = -ETIMEDOUT;
    preflight_end(p);
}

static void preflight_on_message(void *context, const char *data, size_t length)
{
    (void)context, (void)data, (void)length;
}

static const struct redis_conn_events preflight_events = {
    .up = preflight_on_up,
    .down = preflight_on_down,
    .message = preflight_on_message,
    .changed = preflight_on_message,
    .failed = preflight_on_failed,
    .refused = preflight_on_refused,
};

static void preflight_run(struct preflight *p, const struct redis_conn_options *options,
                          const struct redis_script *scripts, size_t script_count)
{
    p->loop = ev_loop_new(EVFLAG_AUTO);
    p->conn = redis_conn_new(options, scripts, script_count);
    ev_timer_init(&p->limit, preflight_on_limit, (double)p->limit_ms / 1000, 0);
    p->limit.data = p;
    ev_timer_start(p->loop, &p->limit);
    redis_conn_start(p->conn, p->loop, &preflight_events, p);
    while (!p->ended) {
        ev_run(p->loop, 0);
    }
    ev_timer_stop(p->loop, &p->limit);
    redis_conn_free(p->conn);
    ev_loop_destroy(p->loop);
}

/* --- the keys of the probes --- */

/* A pattern of keys that has this text in it as it stands. */
static void preflight_append_pattern(GString *pattern, const char *text)
{
    for (; *text; text++) {
        if (strchr("*?[]\\^", *text)) {
            g_string_append_c(pattern, '\\');
        }
        g_string_append_c(pattern, *text);
    }
}

/* ACL's pattern for the keys of all locks. */
static char *preflight_key_pattern(const struct redis_keys *keys)
{
    GString *pattern = g_string_new("~");
    preflight_append_pattern(pattern, keys->before);
    g_string_append_c(pattern, '*');
    preflight_append_pattern(pattern, keys->behind);
    return g_string_free(pattern, FALSE);
}

static void preflight_add_probes(struct preflight *p)
{
    for (size_t i = 0; i < G_N_ELEMENTS(preflight_probes); i++) {
        const struct preflight_probe probe = {.p = p, .command = &preflight_probes[i]};
        if (p->options->conn.wait > 0 || strcmp(probe.command->text, "WAIT") != 0) {
            g_array_append_val(p->probes, probe);
        }
    }
}

/* Tries the server with all but the key set. */
static void preflight_try(struct preflight *p, const struct redis_script *scripts, size_t script_count,
                          struct redis_keys *keys)
{
    struct redis_conn_options options = p->options->conn;
    g_autofree char *key = redis_key(keys, 0, PREFLIGHT_NAME), *side = redis_key(keys, 'f', PREFLIGHT_NAME);
    g_autofree char *store = redis_key(keys, p->meeting.letter, ""), *terms = redis_key(keys, 'g', "");
    g_autofree char *old_root = g_strconcat(keys->before, keys->behind, NULL); /* of 0.1.0 */
    g_autofree char *about = format_describe_mount(p->meeting.format);
    g_autofree char *names = g_strdup_printf(redis_key_has_tag(old_root) ? "lfs:l:%s" : "lfs:l:{%s}", old_root);
    GString *text = g_string_new(NULL);
    for (size_t i = 0; i < script_count; i++) {
        g_string_append(text, scripts[i].text);
    }
    p->key = key;
    p->side = side;
    p->about = about;
    p->store = store;
    p->terms = terms;
    p->names = names;
    p->script = text->str;
    p->pattern = preflight_key_pattern(keys);
    p->probes = g_array_new(FALSE, FALSE, sizeof(struct preflight_probe));
    p->needed = g_string_new(NULL);
    p->wanted = g_string_new(NULL);
    preflight_add_probes(p);
    options.prefix = keys->before;
    options.channel = PREFLIGHT_CHANNEL;
    preflight_run(p, &options, scripts, script_count);
    g_string_free(p->needed, TRUE);
    g_string_free(p->wanted, TRUE);
    g_array_unref(p->probes);
    g_free(p->pattern);
    g_free(p->missing);
    g_string_free(text, TRUE);
}

static int preflight_check(struct preflight *p, const struct redis_script *scripts, size_t script_count)
{
    const struct redis_conn_options *o = &p->options->conn;
    char why[ANSWER_MAX];
    struct redis_keys keys;
    const char *user = o->user ? o->user : o->uri.user;
    *p->error = '\0';
    p->user = user ? user : "default";
    p->rounds = o->uri.hosts ? g_strv_length(o->uri.hosts) : 1;
    p->command_timeout = o->command_timeout ? o->command_timeout : REDIS_COMMAND_TIMEOUT_DEFAULT;
    p->limit_ms = MAX(PREFLIGHT_LIMIT, p->command_timeout);
    p->given = p->warnings->len;
    if (redis_keys_init(&keys, p->options->prefix, p->options->key, why, sizeof why) == 0) {
        preflight_try(p, scripts, script_count, &keys);
    } else {
        preflight_note(p, -EINVAL, "%s", why);
    }
    redis_keys_clear(&keys);
    return p->result;
}

int redis_preflight(const struct redis_options *options, GPtrArray *warnings, char *error, size_t error_size)
{
    struct preflight p = {
        .options = options,
        .meeting = {.format = REDIS_FORMAT, .letter = 's', .channel = ""},
        .warnings = warnings,
        .error = error,
        .error_size = error_size,
    };
    return preflight_check(&p, redis_scripts, REDIS_SCRIPTS);
}

int redis_preflight_master(const struct redis_options *options, const struct redis_script *scripts, size_t script_count,
                           const struct redis_meeting *meeting, char **ret_info, GPtrArray *warnings, char *error,
                           size_t error_size)
{
    struct preflight p = {
        .options = options,
        .is_one_of_many = true,
        .meeting = *meeting,
        .ret_info = ret_info,
        .warnings = warnings,
        .error = error,
        .error_size = error_size,
    };
    return preflight_check(&p, scripts, script_count);
}
