/* check_server: a mount's first look at its server; see check.h.
 *
 * It says what a mount will say, in a way that does nothing, and looks whether the server has, and this user may run,
 * each command that the scripts call.  What it may not is gathered, and told in one line, in the words of ACL SETUSER.
 * The keys are those of a lock that cannot be: names that begin with .leasefs/ are the daemon's own.
 */
#include <errno.h>
#include <ev.h>
#include <stdarg.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/check.h"
#include "backend/redis/conn/link.h"
#include "backend/redis/conn/locate.h"
#include "backend/redis/conn/tls.h"
#include "backend/redis/script.h"

#define PROBE "lfs:check"
#define PROBE_NAME ".leasefs/check"
#define ANSWER_MAX 256

/* For each command in the scripts, whose text is ARGV[1]: DISABLED if the server does not have it, '+name' if this user
 * may not run it (Redis 7 and later say so; with older ones it shows when it happens), and '?name error' if the
 * server's answer is not understood.  It asks with as many words as the command takes: some servers refuse to check a
 * command with fewer or more, and some of Redis 7 read past the end of what they are given.  Then, by deleting what is
 * not there, whether the server accepts writes. */
static const char check_script[] =
    "local result, seen = {}, {PUBLISH = true}\n" /* which is about a channel */
    "local bare = {INFO = true, TIME = true}\n"   /* these take no key, the others this many words behind it */
    "local behind = {HDEL = 1, HEXISTS = 1, HGET = 1, HMGET = 1, HSET = 2, PEXPIRE = 1, PEXPIREAT = 1, SADD = 1,\n"
    "  SET = 1, SETRANGE = 2, SISMEMBER = 1, SREM = 1, SSCAN = 1, ZADD = 2, ZCOUNT = 2, ZRANGE = 2, ZRANGEBYLEX = 2,\n"
    "  ZRANGEBYSCORE = 2, ZRANK = 1, ZREM = 1, ZREMRANGEBYSCORE = 2, ZSCORE = 1}\n"
    "for name in ARGV[1]:gmatch(\"call%('(%u+)'\") do\n"
    "  local answer = seen[name] or redis.pcall(name)\n" /* which is too short to do anything */
    "  if type(answer) == 'table' and answer.err and answer.err:find('Unknown', 1, true) then\n"
    "    return redis.error_reply('DISABLED ' .. name)\n"
    "  end\n"
    "  if not seen[name] and redis.acl_check_cmd then\n"
    "    local words = bare[name] and {name} or {name, KEYS[1]}\n"
    "    for i = 1, behind[name] or 0 do words[#words + 1] = '1' end\n"
    "    local understood, may = pcall(redis.acl_check_cmd, unpack(words))\n"
    "    if not understood then\n"
    "      result[#result + 1] = '?' .. name .. ' ' .. tostring(type(may) == 'table' and may.err or may)\n"
    "    elseif not may then\n"
    "      result[#result + 1] = '+' .. name:lower()\n"
    "    end\n"
    "  end\n"
    "  seen[name] = true\n"
    "end\n"
    "for _, word in ipairs(result) do if word:sub(1, 1) == '+' then return result end end\n"
    "local answer = redis.pcall('DEL', KEYS[1])\n"
    "return type(answer) == 'table' and answer or result\n";

struct probe {
    const struct redis_options *options;
    const struct redis_check_needs *needs; /* or NULL */
    char **info;
    redisContext *context;
    struct redis_cap cap;
    struct ev_loop *loop; /* on which it is asked where the server is */
    struct redis_locate *locate;
    struct ssl_ctx_st *tls_trust;
    char *host; /* there it is; NULL: nobody tells, or in a path */
    uint16_t port;
    char *silence;    /* why nobody tells */
    char *before;     /* what keys begin with */
    const char *user; /* as the server knows it */
    char *where;      /* for messages */
    GString *needed;  /* words of ACL SETUSER without which nothing works */
    GString *wanted;  /* and those without which keys are not watched */
    GPtrArray *warnings;
    bool unclear; /* one of them is that the server's answer about permissions is not understood */
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
    return (struct timeval){.tv_sec = clock_time(ms / 1000), .tv_usec = (long)(ms % 1000 * 1000)};
}

static int64_t check_command_timeout(const struct probe *p)
{
    int64_t given = p->options->conn.command_timeout;
    return given ? given : REDIS_COMMAND_TIMEOUT_DEFAULT;
}

static int64_t check_connect_timeout(const struct probe *p)
{
    int64_t given = p->options->conn.connect_timeout;
    return given ? given : REDIS_CONNECT_TIMEOUT_DEFAULT;
}

static void check_on_located(void *arg, const char *host, uint16_t port, const char *error)
{
    struct probe *p = arg;
    g_clear_pointer(&p->host, g_free);
    p->host = g_strdup(host);
    p->port = port;
    p->silence = g_strdup(error);
    ev_break(p->loop, EVBREAK_ONE);
}

/* Asks Sentinels, or nodes of a Cluster: others than the last time first. */
static int check_find(struct probe *p)
{
    const struct redis_conn_options *o = &p->options->conn;
    if (o->uri.path) {
        return 0;
    }
    g_clear_pointer(&p->host, g_free);
    redis_locate_ask(p->locate);
    while (!p->host && !p->silence) {
        ev_run(p->loop, 0);
    }
    if (p->silence) {
        return check_fail(p, -EHOSTUNREACH, "%s; or mount with the option background, which waits", p->silence);
    }
    if (o->uri.kind != REDIS_SERVER) {
        char *uri = redis_uri_show(&o->uri), *place = redis_uri_show_host(p->host, p->port);
        g_free(p->where);
        p->where = g_strdup_printf("%s: the master at %s", uri, place);
        g_free(place);
        g_free(uri);
    }
    return 0;
}

static int check_connect_to(struct probe *p)
{
    const struct redis_uri *uri = &p->options->conn.uri;
    struct timeval limit = check_duration(check_connect_timeout(p));
    g_clear_pointer(&p->context, redisFree);
    p->context =
        uri->path ? redisConnectUnixWithTimeout(uri->path, limit) : redisConnectWithTimeout(p->host, p->port, limit);
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
    if (uri->tls && redis_tls_start(p->context, p->tls_trust, p->host, &tls) < 0) {
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

/* What to do about an error of the server; NULL: it is none of these. */
static const char *check_advice(const char *answer)
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
        {"CLUSTERDOWN", "its Cluster is down: see redis-cli CLUSTER INFO"},
        {"TRYAGAIN", "the slot of the prefix is being moved: try again when it is, or use the option background"},
        {"ASK ", "the slot of the prefix is being moved: try again when it is, or use the option background"},
        {"MOVED", REDIS_CHECK_IS_CLUSTER},
        {"ERR SELECT is not allowed in cluster mode", REDIS_CHECK_IS_CLUSTER},
        {"ERR DB index is out of range", "it has no database of this number: see its setting databases"},
        {"ERR invalid DB index", "it has no database of this number: see its setting databases"},
        {"ERR max number of clients", "it has as many clients as it allows: raise its setting maxclients"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(known); i++) {
        if (g_str_has_prefix(answer, known[i].begin)) {
            return known[i].words;
        }
    }
    return NULL;
}

/* What the server says, in words that say what to do. */
static int check_complain_of(struct probe *p, const char *command, const char *answer)
{
    char text[ANSWER_MAX];
    if (g_str_has_prefix(answer, "DISABLED ")) {
        return check_fail(p, -EACCES, "it has no command %s: see its setting rename-command",
                          answer + strlen("DISABLED "));
    }
    if (g_str_has_prefix(answer, "MOVED ") && p->options->conn.uri.kind == REDIS_CLUSTER) {
        return check_fail(p, -ESTALE, "it has not the slot of the prefix any more: try again");
    }
    if (g_str_has_prefix(answer, "WRONGPASS") && !p->options->conn.password) {
        return check_fail(p, -EACCES,
                          "it does not let this user in without a password: use the option credentials=FILE");
    }
    if (check_advice(answer)) {
        return check_fail(p, -EACCES, "%s", check_advice(answer));
    }
    if (strcmp(command, "AUTH") == 0) { /* servers repeat what they do not know: here a password */
        return check_fail(p, -EACCES, "it refuses the command AUTH");
    }
    return check_fail(p, -EACCES, "it refuses the command %s: %s", command, log_escape(text, sizeof text, answer));
}

/* One thing that a mount says to its server. */
struct check_step {
    GString *list;                                         /* of what is lacking: p->needed or p->wanted */
    const char *permission;                                /* the command's; NULL: another step has told */
    const char *about;                                     /* that of its key or channel; or NULL */
    bool vital;                                            /* whatever else it is refused for is the end */
    bool is_probe;                                         /* but not an error that nobody knows */
    int (*take)(struct probe *p, const redisReply *reply); /* its answer, if it is worth something */
    const char *words[6];
};

static void check_lack(GString *list, const char *word)
{
    char **words = g_strsplit(list->str, " ", -1);
    if (!g_strv_contains((const char *const *)words, word)) {
        g_string_append_printf(list, " %s", word);
    }
    g_strfreev(words);
}

/* What nobody has looked at is no reason not to mount. */
static void check_tell_unclear(struct probe *p, const char *command, const char *why)
{
    char text[ANSWER_MAX];
    if (!p->unclear) {
        g_ptr_array_add(p->warnings,
                        g_strdup_printf("the server's answer about permissions for %s is not understood, so missing "
                                        "ones show only when they are needed: %s",
                                        command, log_escape(text, sizeof text, why)));
    }
    p->unclear = true;
}

static int check_refused(struct probe *p, const struct check_step *step, const char *why)
{
    bool is_command = !step->about || strstr(why, "permissions to run");
    if (g_str_has_prefix(why, "NOPERM")) {
        if (!is_command || step->permission) {
            check_lack(step->list, is_command ? step->permission : step->about);
        }
        return 0;
    }
    if (!step->vital && step->list == p->needed && g_str_has_prefix(why, "ERR unknown command")) {
        char *text = g_strconcat("DISABLED ", step->words[0], NULL);
        int result = check_complain_of(p, step->words[0], text);
        g_free(text);
        return result;
    }
    if (step->is_probe && !check_advice(why) && !g_str_has_prefix(why, "DISABLED ") &&
        !g_str_has_prefix(why, "ERR unknown command")) {
        check_tell_unclear(p, step->words[0], why);
        return 0;
    }
    return step->vital ? check_complain_of(p, step->words[0], why) : 0;
}

static int check_say(struct probe *p, const struct check_step *step)
{
    const char *words[G_N_ELEMENTS(step->words)];
    size_t lengths[G_N_ELEMENTS(step->words)], count = 0;
    while (count < G_N_ELEMENTS(words) && step->words[count]) {
        words[count] = step->words[count];
        lengths[count] = strlen(words[count]);
        count++;
    }
    errno = 0;
    redis_cap_renew(&p->cap);
    redisReply *reply = redisCommandArgv(p->context, (int)count, words, lengths);
    if (!reply) {
        return check_complain_of_silence(p);
    }
    int result = 0;
    if (step->list && reply->type == REDIS_REPLY_ERROR) {
        result = check_refused(p, step, reply->str);
    } else if (step->take) {
        result = step->take(p, reply);
    }
    freeReplyObject(reply);
    return result;
}

static int check_take_info(struct probe *p, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_STRING) {
        g_ptr_array_add(p->warnings, g_strdup("this user may not ask for INFO, so nobody has looked whether it evicts "
                                              "locks, and whether it keeps them on disk: permit +info"));
        return 0;
    }
    GPtrArray *errors = g_ptr_array_new_with_free_func(g_free);
    if (p->needs) {
        redis_check_master(reply->str, p->options->conn.uri.kind, errors, p->warnings);
    } else {
        redis_check_info(reply->str, p->options->conn.uri.kind, p->options->conn.wait, errors, p->warnings);
    }
    if (p->info) {
        *p->info = g_strdup(reply->str);
    }
    /* the first is the one to begin with */
    int result = errors->len > 0 ? check_fail(p, -EOPNOTSUPP, "%s", (const char *)errors->pdata[0]) : 0;
    g_ptr_array_unref(errors);
    return result;
}

static int check_take_role(struct probe *p, const redisReply *reply)
{
    return redis_locate_is_master(reply)
               ? 0
               : check_fail(p, -ESTALE,
                            "it is not the master (any more, or yet): try again, or use the option background");
}

static int check_take_refused(struct probe *p, const redisReply *reply)
{
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
        const char *word = reply->element[i]->type == REDIS_REPLY_STRING ? reply->element[i]->str : "";
        if (*word == '+') {
            check_lack(p->needed, word);
        } else if (*word == '?') {
            char **parts = g_strsplit(word + 1, " ", 2);
            check_tell_unclear(p, parts[0], parts[0] && parts[1] ? parts[1] : "");
            g_strfreev(parts);
        }
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

static int check_say_all(struct probe *p)
{
    const struct redis_conn_options *o = &p->options->conn;
    const char *user = o->user ? o->user : o->uri.user, *password = o->password ? o->password : "";
    const char *prefix = p->options->prefix ? p->options->prefix : "";
    const char *template = p->options->key ? p->options->key : REDIS_KEY_DEFAULT, *name = strstr(template, "{n}");
    const char *rest = name + strlen("{n}");
    char *key = g_strconcat(p->before, PROBE_NAME, rest, NULL);
    char *side = g_strconcat("lfs:f:", key, NULL), database[16];
    g_snprintf(database, sizeof database, "%d", o->uri.database);
    GString *pattern = g_string_new("~"), *scripts = g_string_new(NULL);
    check_append_pattern(pattern, prefix, strlen(prefix));
    check_append_pattern(pattern, template, (size_t)(name - template));
    g_string_append_c(pattern, '*');
    check_append_pattern(pattern, rest, strlen(rest));
    const char *sides = strcmp(pattern->str, "~*") == 0 ? "~*" : "~lfs:*"; /* ACL SETUSER takes none after ~* */
    for (size_t i = 0; i < (p->needs ? p->needs->script_count : REDIS_SCRIPTS); i++) {
        g_string_append(scripts, (p->needs ? p->needs->scripts : redis_scripts)[i].text);
    }
    const struct check_step steps[] = {
        {p->needed, "+auth", NULL, true, false, NULL, {"AUTH", user ? user : password, user ? password : NULL}},
        {p->needed, "+role", NULL, true, false, check_take_role, {"ROLE"}},
        {p->needed, "+ping", NULL, true, false, NULL, {"PING"}},
        {p->needed, "+select", NULL, true, false, NULL, {"SELECT", database}},
        {NULL, NULL, NULL, false, false, check_take_info, {"INFO"}},
        {p->needed,
         "+eval",
         pattern->str,
         true,
         true,
         check_take_refused,
         {"EVAL", check_script, "1", key, scripts->str}},
        {p->needed, "+eval", sides, true, true, check_take_refused, {"EVAL", check_script, "1", side, scripts->str}},
        {p->needed, "+script|load", NULL, false, false, NULL, {"SCRIPT", "LOAD", "return 1"}},
        {p->needed, "+evalsha", NULL, false, false, NULL, {"EVALSHA", "0000000000000000000000000000000000000000", "0"}},
        {p->needed, "+exists", pattern->str, false, false, NULL, {"EXISTS", key}},
        {p->needed, "+publish", "&lfs:*", false, false, NULL, {"PUBLISH", PROBE, ""}},
        {p->needed, "+wait", NULL, false, false, NULL, {"WAIT", "0", "1"}},
        {p->wanted, "+client|id", NULL, false, false, NULL, {"CLIENT", "ID"}},
        {p->wanted, "+client|info", NULL, false, false, NULL, {"CLIENT", "INFO"}},
        {p->wanted, "+client|kill", NULL, false, false, NULL, {"CLIENT", "KILL", "ID", "0"}},
        {p->wanted, "+client|tracking", NULL, false, false, NULL, {"CLIENT", "TRACKING", "OFF"}},
        {p->wanted, "+client|caching", NULL, false, false, NULL, {"CLIENT", "CACHING", "NO"}},
        {p->needed, "+subscribe", "&lfs:*", false, false, NULL, {"SUBSCRIBE", PROBE}},
        {p->wanted, NULL, "&__redis__:invalidate", false, false, NULL, {"SUBSCRIBE", "__redis__:invalidate"}},
    };
    int result = 0;
    for (size_t i = 0; result == 0 && i < G_N_ELEMENTS(steps); i++) {
        bool skipped = (i == 0 && !user && !o->password) || (i == 1 && o->uri.kind != REDIS_SENTINEL) ||
                       (i == 3 && !o->uri.database) || (strcmp(steps[i].words[0], "WAIT") == 0 && o->wait == 0);
        result = skipped ? 0 : check_say(p, &steps[i]);
    }
    g_string_free(scripts, TRUE);
    g_string_free(pattern, TRUE);
    g_free(side);
    g_free(key);
    return result;
}

static int check_tell_permissions(struct probe *p)
{
    if (p->needed->len > 0) {
        return check_fail(p, -EACCES, "the user %s lacks permissions: run there ACL SETUSER %s%s%s (see leasefs(8))",
                          p->user, p->user, p->needed->str, p->wanted->str);
    }
    if (p->wanted->len > 0) {
        g_ptr_array_add(p->warnings, g_strdup_printf("the user %s may not watch keys, so locks that other programs "
                                                     "release are noticed late: run there ACL SETUSER %s%s",
                                                     p->user, p->user, p->wanted->str));
    }
    return 0;
}

/* One attempt.  -ESTALE: who was asked where the server is may not know. */
static int check_once(struct probe *p)
{
    g_string_truncate(p->needed, 0);
    g_string_truncate(p->wanted, 0);
    p->unclear = false;
    int result = check_find(p);
    if (result == 0) {
        result = check_connect_to(p);
        if (result < 0 && p->options->conn.uri.kind != REDIS_SERVER) {
            return -ESTALE;
        }
    }
    if (result == 0) {
        result = check_say_all(p);
    }
    return result == 0 ? check_tell_permissions(p) : result;
}

int redis_check_server(const struct redis_options *options, const struct redis_check_needs *needs, char **ret_info,
                       GPtrArray *warnings, char *error, size_t error_size)
{
    const struct redis_conn_options *o = &options->conn;
    const char *user = o->user ? o->user : o->uri.user, *template = options->key ? options->key : REDIS_KEY_DEFAULT;
    const char *name = strstr(template, "{n}");
    struct probe p = {
        .options = options,
        .loop = ev_loop_new(EVFLAG_AUTO),
        .before = g_strdup_printf("%s%.*s", options->prefix ? options->prefix : "", name ? (int)(name - template) : 0,
                                  template),
        .needs = needs,
        .info = ret_info,
        .user = user ? user : "default",
        .where = redis_uri_show(&o->uri),
        .needed = g_string_new(NULL),
        .wanted = g_string_new(NULL),
        .warnings = warnings,
        .error = error,
        .error_size = error_size,
    };
    p.tls_trust = o->uri.tls ? redis_tls_trust_new() : NULL;
    const struct redis_locate_options ask = {
        .uri = &o->uri,
        .user = o->uri.kind == REDIS_SENTINEL ? o->sentinel_user : user,
        .password = o->uri.kind == REDIS_SENTINEL ? o->sentinel_password : o->password,
        .prefix = p.before,
        .resolve_timeout = check_connect_timeout(&p),
        .tls_trust = p.tls_trust,
    };
    p.locate = redis_locate_new(&ask, p.loop, check_on_located, &p);
    int result = name ? -ESTALE : check_fail(&p, -EINVAL, "the template of keys has no {n}");
    guint tries = o->uri.hosts ? g_strv_length(o->uri.hosts) : 1, told = warnings->len;
    while (result == -ESTALE && tries-- > 0) {
        g_ptr_array_set_size(warnings, (gint)told);
        result = check_once(&p);
    }
    redis_locate_free(p.locate);
    ev_loop_destroy(p.loop);
    if (p.context) {
        redisFree(p.context);
    }
    redis_tls_trust_free(p.tls_trust);
    g_string_free(p.needed, TRUE);
    g_string_free(p.wanted, TRUE);
    g_free(p.silence);
    g_free(p.host);
    g_free(p.before);
    g_free(p.where);
    return result;
}
