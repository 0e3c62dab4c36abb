/* check_server: a mount's first look at its server; see check.h.
 *
 * What a user of the server may not do is gathered, and told in one line, in the
 * words of ACL SETUSER.  The keys that it tries are those of a lock that cannot
 * be: names that begin with .leasefs/ are the daemon's own.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/check.h"
#include "backend/redis/conn/link.h"
#include "backend/redis/conn/tls.h"
#include "backend/redis/script.h"

#define PROBE "lfs:check"
#define PROBE_NAME ".leasefs/check"
#define ANSWER_MAX 256

/* Tells which of the commands in ARGV this user may not (from Redis 7 on, older ones tell when it happens), and, by a
 * deletion of what is not there, whether the server accepts writes. */
static const char probe_script[] =
    "local refused = {}\n"
    "for command in (redis.acl_check_cmd and ARGV[1] or ''):gmatch('%S+') do\n"
    "  if not redis.acl_check_cmd(command, KEYS[1]) then refused[#refused + 1] = '+' .. command:lower() end\n"
    "end\n"
    "if #refused > 0 then return refused end\n"
    "local answer = redis.pcall('DEL', KEYS[1])\n"
    "return type(answer) == 'table' and answer or refused\n";

struct probe {
    const struct redis_options *options;
    redisContext *context;
    struct redis_cap cap;
    const char *user; /* as the server knows it */
    char *where;      /* for messages */
    GString *needed;  /* words of ACL SETUSER without which nothing works */
    GString *wanted;  /* and those without which keys are not watched */
    char *error;
    size_t error_size;
};

static int __attribute__((format(printf, 3, 4))) check_fail(struct probe *p, int result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_snprintf(p->error, p->error_size, "%s: %s", p->where, text);
    g_free(text);
    return result;
}

static struct timeval check_duration(int64_t ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

static int64_t check_command_timeout(const struct probe *p)
{
    int64_t given = p->options->conn.command_timeout;
    return given ? given : REDIS_COMMAND_TIMEOUT_DEFAULT;
}

static int check_connect_to(struct probe *p)
{
    const struct redis_uri *uri = &p->options->conn.uri;
    int64_t given = p->options->conn.connect_timeout;
    struct timeval limit = check_duration(given ? given : REDIS_CONNECT_TIMEOUT_DEFAULT);
    p->context = uri->path ? redisConnectUnixWithTimeout(uri->path, limit)
                           : redisConnectWithTimeout(uri->host, uri->port, limit);
    if (!p->context) {
        return check_fail(p, -ENOMEM, "out of memory");
    }
    redis_cap(&p->cap, p->context);
    if (p->context->err == REDIS_ERR_OTHER) { /* of getaddrinfo(3) */
        return check_fail(p, -EHOSTUNREACH, "the host's address cannot be found: %s", p->context->errstr);
    }
    if (p->context->err) {
        return check_fail(
            p, -ECONNREFUSED,
            "cannot connect: %s: see that the server runs and can be reached there, or mount with the option "
            "background, which waits for it",
            p->context->errstr);
    }
    if (redisSetTimeout(p->context, check_duration(check_command_timeout(p))) != REDIS_OK) {
        return check_fail(p, -EIO, "cannot set a timeout: %s", p->context->errstr);
    }
    struct ssl_st *tls; /* of the context, which frees it */
    if (uri->tls && redis_tls_start(p->context, uri->host, &tls) < 0) {
        return check_fail(
            p, -EPROTO,
            "no connection with TLS: %s: see that the server speaks it, and for which name and by whom its "
            "certificate is signed",
            p->context->errstr);
    }
    return 0;
}

static int check_complain_of_silence(struct probe *p)
{
    switch (p->context->err) {
    case REDIS_ERR_PROTOCOL:
        return check_fail(p, -EPROTO, "what answers there is not a Redis server");
    case REDIS_ERR_EOF:
        return check_fail(p, -ECONNRESET, "the server ended the connection: see its log, and whether it expects TLS");
    default: /* hiredis has left errno as it was */
        if (errno == EAGAIN || errno == ETIMEDOUT) {
            return check_fail(p, -ETIMEDOUT,
                              "no answer within %" G_GINT64_FORMAT
                              " ms: see what listens there, or raise command_timeout=",
                              check_command_timeout(p));
        }
        return check_fail(p, -EIO, "the connection failed: %s", p->context->errstr);
    }
}

/* What the server says, in words that say what to do. */
static int check_complain_of(struct probe *p, const char *command, const char *answer)
{
    static const struct {
        const char *begin, *words;
    } known[] = {
        {"NOAUTH", "it asks for a password: write it to a file of mode 0600, and use the option credentials=FILE"},
        {"WRONGPASS", "it does not know this user with this password: correct the file that credentials= names"},
        {"ERR invalid password", "it has another password: correct the file that credentials= names"},
        {"ERR Client sent AUTH", "it has no password: leave out credentials="},
        {"ERR AUTH <password> called",
         "its default user has no password: leave out credentials=, or write USER:PASSWORD to that file"},
        {"ERR wrong number of arguments for 'auth'",
         "it has no users, which came with Redis 6: give only the password, and no user"},
        {"DENIED", "it is in protected mode: give it a password (requirepass), or an address to listen on (bind)"},
        {"LOADING", "it is still reading its data: try again when it has, or use the option background"},
        {"MASTERDOWN", "it is a replica without its master: mount a master"},
        {"READONLY", "it is a read-only replica: mount its master"},
        {"MISCONF", "it refuses to write because it cannot save to its disk: see its log"},
        {"NOREPLICAS", "it refuses to write while it has too few replicas (min-replicas-to-write)"},
        {"CLUSTERDOWN", "it belongs to a Redis Cluster, which is not supported: mount a server of its own"},
        {"MOVED", "it belongs to a Redis Cluster, which is not supported: mount a server of its own"},
        {"ERR SELECT is not allowed in cluster mode",
         "it belongs to a Redis Cluster, which is not supported: mount a server of its own"},
        {"ERR DB index is out of range", "it has no database of this number: see its setting databases"},
        {"ERR invalid DB index", "it has no database of this number: see its setting databases"},
        {"ERR max number of clients", "it has as many clients as it allows: raise its setting maxclients"},
    };
    char text[ANSWER_MAX];
    if (g_str_has_prefix(answer, "WRONGPASS") && !p->options->conn.password) {
        return check_fail(p, -EACCES,
                          "it does not let this user in without a password: use the option credentials=FILE");
    }
    for (size_t i = 0; i < G_N_ELEMENTS(known); i++) {
        if (g_str_has_prefix(answer, known[i].begin)) {
            return check_fail(p, -EACCES, "%s", known[i].words);
        }
    }
    if (strcmp(command, "AUTH") == 0) { /* servers repeat what they do not know: here a password */
        return check_fail(p, -EACCES, "it refuses the command AUTH");
    }
    return check_fail(p, -EACCES, "it refuses the command %s: %s", command, log_escape(text, sizeof text, answer));
}

/* One command and its answer, to be freed; NULL when the connection has failed,
 * with the error written. */
static redisReply *check_ask(struct probe *p, size_t count, const char **words)
{
    size_t lengths[8];
    g_assert(count <= G_N_ELEMENTS(lengths));
    for (size_t i = 0; i < count; i++) {
        lengths[i] = strlen(words[i]);
    }
    errno = 0;
    redis_cap_renew(&p->cap);
    redisReply *reply = redisCommandArgv(p->context, (int)count, words, lengths);
    if (!reply) {
        check_complain_of_silence(p);
    }
    return reply;
}

#define ASK(p, ...) check_ask(p, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

static bool check_is_error(const redisReply *reply, const char *begin)
{
    return reply->type == REDIS_REPLY_ERROR && g_str_has_prefix(reply->str, begin);
}

static void check_need(GString *list, const char *word)
{
    char **words = g_strsplit(list->str, " ", -1);
    if (!g_strv_contains((const char *const *)words, word)) {
        g_string_append_printf(list, " %s", word);
    }
    g_strfreev(words);
}

/* What a command that was refused with NOPERM lacks: itself, or what it is about. */
static void check_note_permission(GString *list, const char *answer, const char *command, const char *about)
{
    const char *word = strstr(answer, "permissions to run") || !about ? command : about;
    if (word) {
        check_need(list, word);
    }
}

/* A command on the way to the first that needs permissions. */
static int check_introduce(struct probe *p, redisReply *reply, const char *command, const char *permission)
{
    int result = 0;
    if (!reply) {
        return -EIO;
    }
    if (check_is_error(reply, "NOPERM")) {
        check_need(p->needed, permission);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        result = check_complain_of(p, command, reply->str);
    }
    freeReplyObject(reply);
    return result;
}

/* As redis_conn does it. */
static int check_log_in(struct probe *p)
{
    const struct redis_conn_options *o = &p->options->conn;
    const char *user = o->user ? o->user : o->uri.user, *password = o->password ? o->password : "";
    char database[16];
    int result = 0;
    if (user) {
        result = check_introduce(p, ASK(p, "AUTH", user, password), "AUTH", "+auth");
    } else if (o->password) {
        result = check_introduce(p, ASK(p, "AUTH", password), "AUTH", "+auth");
    }
    if (result == 0) {
        result = check_introduce(p, ASK(p, "PING"), "PING", "+ping");
    }
    if (result == 0 && o->uri.database) {
        g_snprintf(database, sizeof database, "%d", o->uri.database);
        result = check_introduce(p, ASK(p, "SELECT", database), "SELECT", "+select");
    }
    return result;
}

static int check_judge(struct probe *p, const char *info, GPtrArray *warnings)
{
    GPtrArray *errors = g_ptr_array_new_with_free_func(g_free);
    int result = 0;
    redis_check_info(info, errors, warnings);
    if (errors->len > 0) { /* the first is the one to begin with */
        result = check_fail(p, -EOPNOTSUPP, "%s", (const char *)errors->pdata[0]);
    }
    g_ptr_array_unref(errors);
    return result;
}

static int check_look_at_info(struct probe *p, GPtrArray *warnings)
{
    redisReply *reply = ASK(p, "INFO");
    int result = 0;
    if (!reply) {
        return -EIO;
    }
    if (reply->type == REDIS_REPLY_STRING) {
        result = check_judge(p, reply->str, warnings);
    } else {
        g_ptr_array_add(warnings, g_strdup("this user may not ask for INFO, so nobody has looked whether it evicts "
                                           "locks, and whether it keeps them on disk: permit +info"));
    }
    freeReplyObject(reply);
    return result;
}

/* What the scripts call, PUBLISH aside, which is about a channel: their text says it, as call('NAME', KEY, ...). */
static char *check_commands_of_scripts(void)
{
    GString *commands = g_string_new(NULL);
    for (size_t i = 0; i < REDIS_SCRIPTS; i++) {
        for (const char *at = redis_scripts[i].text; (at = strstr(at, "call('"));) {
            at += strlen("call('");
            char *name = g_strndup(at, strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
            if (*name && strcmp(name, "PUBLISH") != 0) {
                check_need(commands, name);
            }
            g_free(name);
        }
    }
    return g_string_free(commands, FALSE);
}

/* The script's answer: the permissions that it lacks, or why it cannot write. */
static int check_try_script(struct probe *p, const char *key, const char *pattern)
{
    char *commands = check_commands_of_scripts();
    redisReply *reply = ASK(p, "EVAL", probe_script, "1", key, commands);
    int result = 0;
    g_free(commands);
    if (!reply) {
        return -EIO;
    }
    if (check_is_error(reply, "NOPERM")) {
        check_note_permission(p->needed, reply->str, "+eval", pattern);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        result = check_complain_of(p, "EVAL", reply->str);
    } else if (reply->type == REDIS_REPLY_ARRAY) {
        for (size_t i = 0; i < reply->elements; i++) {
            if (reply->element[i]->type == REDIS_REPLY_STRING) {
                check_need(p->needed, reply->element[i]->str);
            }
        }
    }
    freeReplyObject(reply);
    return result;
}

/* Commands whose refusal, for whatever other reason, is no harm here: they are
 * asked in a way that does nothing. */
static int check_try_commands(struct probe *p, const char *key, const char *pattern)
{
    const struct {
        GString *list;
        const char *permission, *about;
        const char *words[4];
    } commands[] = {
        {p->needed, "+script|load", NULL, {"SCRIPT", "LOAD", "return 1"}},
        {p->needed, "+evalsha", NULL, {"EVALSHA", "0000000000000000000000000000000000000000", "0"}},
        {p->needed, "+exists", pattern, {"EXISTS", key}},
        {p->needed, "+publish", "&lfs:*", {"PUBLISH", PROBE, ""}},
        {p->wanted, "+client|id", NULL, {"CLIENT", "ID"}},
        {p->wanted, "+client|tracking", NULL, {"CLIENT", "TRACKING", "OFF"}},
        {p->wanted, "+client|caching", NULL, {"CLIENT", "CACHING", "NO"}},
        {p->needed, "+subscribe", "&lfs:*", {"SUBSCRIBE", PROBE}},
        {p->wanted, NULL, "&__redis__:invalidate", {"SUBSCRIBE", "__redis__:invalidate"}},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        const char *words[G_N_ELEMENTS(commands[i].words)];
        size_t count = 0;
        while (count < G_N_ELEMENTS(words) && commands[i].words[count]) {
            words[count] = commands[i].words[count];
            count++;
        }
        redisReply *reply = check_ask(p, count, words);
        if (!reply) {
            return -EIO;
        }
        if (check_is_error(reply, "NOPERM")) {
            check_note_permission(commands[i].list, reply->str, commands[i].permission, commands[i].about);
        }
        freeReplyObject(reply);
    }
    return 0;
}

/* A pattern of keys that has this text in it as it stands. */
static void check_append_pattern(GString *pattern, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr("*?[]\\^", text[i])) {
            g_string_append_c(pattern, '\\');
        }
        g_string_append_c(pattern, text[i]);
    }
}

/* All that needs permissions: with the keys of a lock that cannot be. */
static int check_try_permissions(struct probe *p)
{
    const char *prefix = p->options->prefix ? p->options->prefix : "";
    const char *template = p->options->key ? p->options->key : REDIS_KEY_DEFAULT, *name = strstr(template, "{n}");
    if (!name) {
        return check_fail(p, -EINVAL, "the template of keys has no {n}");
    }
    const char *rest = name + strlen("{n}");
    char *key = g_strdup_printf("%s%.*s" PROBE_NAME "%s", prefix, (int)(name - template), template, rest);
    char *side = g_strconcat("lfs:f:", key, NULL);
    GString *pattern = g_string_new("~");
    check_append_pattern(pattern, prefix, strlen(prefix));
    check_append_pattern(pattern, template, (size_t)(name - template));
    g_string_append_c(pattern, '*');
    check_append_pattern(pattern, rest, strlen(rest));

    int result = check_try_script(p, key, pattern->str);
    if (result == 0) { /* ACL SETUSER takes no pattern after ~* */
        result = check_try_script(p, side, strcmp(pattern->str, "~*") == 0 ? "~*" : "~lfs:*");
    }
    if (result == 0) {
        result = check_try_commands(p, key, pattern->str);
    }
    g_string_free(pattern, TRUE);
    g_free(side);
    g_free(key);
    return result;
}

static int check_tell_permissions(struct probe *p, GPtrArray *warnings)
{
    if (p->needed->len > 0) {
        return check_fail(p, -EACCES, "the user %s lacks permissions: run there ACL SETUSER %s%s%s (see leasefs(8))",
                          p->user, p->user, p->needed->str, p->wanted->str);
    }
    if (p->wanted->len > 0) {
        g_ptr_array_add(warnings, g_strdup_printf("the user %s may not watch keys, so locks that other programs "
                                                  "release are noticed late: run there ACL SETUSER %s%s",
                                                  p->user, p->user, p->wanted->str));
    }
    return 0;
}

int redis_check_server(const struct redis_options *options, GPtrArray *warnings, char *error, size_t error_size)
{
    const char *user = options->conn.user ? options->conn.user : options->conn.uri.user;
    struct probe p = {
        .options = options,
        .user = user ? user : "default",
        .where = redis_uri_show(&options->conn.uri),
        .needed = g_string_new(NULL),
        .wanted = g_string_new(NULL),
        .error = error,
        .error_size = error_size,
    };
    int result = check_connect_to(&p);
    if (result == 0) {
        result = check_log_in(&p);
    }
    if (result == 0) {
        result = check_look_at_info(&p, warnings);
    }
    if (result == 0) {
        result = check_try_permissions(&p);
    }
    if (result == 0) {
        result = check_tell_permissions(&p, warnings);
    }
    if (p.context) {
        redisFree(p.context);
    }
    g_string_free(p.needed, TRUE);
    g_string_free(p.wanted, TRUE);
    g_free(p.where);
    return result;
}
