/* check_redis_like: the simulator's Redis server against a real one.
 *
 * Both get the same input at the same time, and must give the same answers and keep the same data (see twin.h): random
 * commands, in all states of a real server, and what real mounts send, with the real scripts.
 *
 * REDIS_LIKE_COMMANDS is the number of random commands (default 20000), CHECK_SEED selects them.
 */
#include <check.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/redis/script.h"
#include "tests/sim/redis_model_private.h"
#include "tests/sim/twin.h"
#include "tests/support/check_main.h"
#include "tests/support/scratch.h"
#include "tests/unit/hosts_fixture.h"

enum { WORDS = 16, CLIENTS = 3, KEPT_CALLS = 200, CALL_WORDS = 1024 /* with the keys of many locks at once */ };

static GRand *source;
static struct twin *clients[CLIENTS];
static uint32_t seed = 1;

static unsigned dice(unsigned sides)
{
    return (unsigned)g_rand_int_range(source, 0, (gint32)sides);
}

#define PICK(array) (array)[dice(G_N_ELEMENTS(array))]

static void setup(void)
{
    const char *given = g_getenv("CHECK_SEED");
    seed = given ? (uint32_t)strtoul(given, NULL, 10) : 1;
    source = g_rand_new_with_seed(seed);
    twin_before_start();
    hosts_setup_with(twin_arguments);
    twin_begin(hosts_server);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = twin_connect();
    }
}

static void teardown(void)
{
    twin_end();
    hosts_teardown();
    g_rand_free(source);
}

static uint64_t wanted(uint64_t usual)
{
    const char *count = g_getenv("REDIS_LIKE_COMMANDS");
    return count ? g_ascii_strtoull(count, NULL, 10) * usual / 20000 : usual;
}

/* --- commands ------------------------------------------------------------------------- */

/* What may stand at a place: k a key, f a field or member, v a value, n a whole number, s a score, t a time, a a time
 * of the clock, c a condition, i a limit by score, x a limit by name, o an option; ? what is before it may be left out,
 * and what behind it.  Anything else stands for itself. */
static const char *const templates[] = {
    "append k v",
    "decr k",
    "del k ? k k",
    "exists k ? k k",
    "expire k t ? c c",
    "expireat k a ? c",
    "get k",
    "getdel k",
    "hdel k f ? f f",
    "hexists k f",
    "hget k f",
    "hgetall k",
    "hincrby k f n",
    "hkeys k",
    "hlen k",
    "hmget k f ? f f",
    "hmset k f v ? f v",
    "hset k f v ? f v f v",
    "hsetnx k f v",
    "hstrlen k f",
    "hvals k",
    "incr k",
    "incrby k n",
    "llen k",
    "lpush k v ? v",
    "lrange k n n",
    "mget k ? k k",
    "persist k",
    "pexpire k t ? c c",
    "pexpireat k a ? c c",
    "pexpiretime k",
    "psetex k t v",
    "pttl k",
    "rpush k v ? v",
    "sadd k f ? f f",
    "scard k",
    "set k v ? o o o",
    "set k v px t",
    "set k v px t nx",
    "setex k t v",
    "setnx k v",
    "setrange k 2 v",
    "sismember k f",
    "smembers k",
    "srem k f ? f f",
    "sscan k 0 count 1000",
    "strlen k",
    "ttl k",
    "type k",
    "unlink k ? k",
    "zadd k s f ? s f s f",
    "zadd k z s f",
    "zadd k z z s f ? s f",
    "zcard k",
    "zcount k i i",
    "zincrby k s f",
    "zadd lex 0 f ? 0 f 0 f",
    "zrem lex f",
    "zlexcount lex x x",
    "zmscore k f ? f",
    "zpopmin k ? n",
    "zrange k n n ? withscores",
    "zrange k n n rev ? withscores",
    "zrange k i i byscore ? limit n n withscores",
    "zrange k i i byscore rev ? withscores",
    "zrange lex x x bylex ? limit n n",
    "zrange lex x x bylex rev",
    "zrangebylex lex x x ? limit n n",
    "zrangebyscore k i i ? withscores limit n n",
    "zrank k f",
    "zrem k f ? f f",
    "zremrangebylex lex x x",
    "zremrangebyrank k n n",
    "zremrangebyscore k i i",
    "zrevrange k n n ? withscores",
    "zrevrangebylex lex x x",
    "zrevrangebyscore k i i ? withscores limit n n",
    "zrevrank k f",
    "zscore k f",
    "ping",
    "ping v",
    "echo v",
    "time",
    "dbsize",
    "publish h v",
    "client id",
    "client getname",
    "client setname v",
    "client tracking on optin",
    "client tracking off",
    "client caching yes",
    "client caching no",
    "client nonsense",
    "acl whoami",
    "script exists v v",
    "script flush",
    "script kill",
    "auth v",
    "auth default v",
    "nonsense v v",
};

struct line {
    struct twin_word words[WORDS];
    size_t count;
    GPtrArray *texts;
};

static const char *const keys[] = {"string", "string", "number", "hash", "hash", "zset", "zset",
                                   "zset",   "zset",   "set",    "set",  "list", "other"};
static const char *const fields[] = {"a", "b", "c", "d", "e", "f", "", "a longer name", "1", "-7"};

static char *make_word(char kind)
{
    static const char *const values[] = {"", "1", "-1", "12", "x", "value", "9223372036854775807", "3.5", " 1", "007"};
    static const char *const scores[] = {"0", "1", "2", "-1", "1.5", "inf", "-inf", "0.1", "1e300", "1600000000000001",
                                         "x"};
    static const char *const limits[] = {"-inf", "+inf", "0", "1", "(1", "(0.1", "2", "1600000000000001",
                                         "-1",   "(inf", "y"};
    static const char *const names[] = {"-", "+", "[a", "(a", "[c", "(c", "(e", "[", "z"};
    static const char *const options[] = {"nx", "xx", "get", "keepttl", "px", "ex", "1000", "10", "pxat", "GET"};
    static const char *const adding[] = {"nx", "xx", "gt", "lt", "ch", "incr"};
    static const char *const conditions[] = {"nx", "xx", "gt", "lt", "what"};
    static const char *const channels[] = {"news", "sport"};
    switch (kind) {
    case 'k':
        return g_strdup(PICK(keys));
    case 'f':
        return g_strdup(PICK(fields));
    case 'v':
        return g_strdup(PICK(values));
    case 'n':
        return g_strdup_printf("%d", (int)dice(12) - 4);
    case 's':
        return g_strdup(PICK(scores));
    case 't':
        return g_strdup_printf("%d", dice(8) ? (int)dice(3000) : (int)dice(9) - 4);
    case 'a':
        return g_strdup_printf("%" G_GINT64_FORMAT,
                               redis_model_wall(twin_model) / (dice(2) ? 1000 : 1000000) + dice(3000) - 200);
    case 'i':
        return g_strdup(PICK(limits));
    case 'x':
        return g_strdup(PICK(names));
    case 'o':
        return g_strdup(PICK(options));
    case 'z':
        return g_strdup(PICK(adding));
    case 'c':
        return g_strdup(PICK(conditions));
    default:
        return g_strdup(PICK(channels));
    }
}

static void add_word(struct line *line, char *text)
{
    if (line->count == WORDS) {
        g_free(text);
        return;
    }
    g_ptr_array_add(line->texts, text);
    line->words[line->count++] = (struct twin_word){text, strlen(text)};
}

static void make_line(struct line *line, const char *template)
{
    char **parts = g_strsplit(template, " ", -1);
    *line = (struct line){.texts = g_ptr_array_new_with_free_func(g_free)};
    for (char **part = parts; *part; part++) {
        if (strcmp(*part, "?") == 0) {
            if (dice(2)) {
                break;
            }
        } else if (strlen(*part) == 1) {
            add_word(line, make_word(**part));
        } else {
            add_word(line, dice(4) ? g_strdup(*part) : g_ascii_strup(*part, -1));
        }
    }
    if (dice(50) == 0 && line->count > 1) {
        line->count--;
    } else if (dice(50) == 0) {
        add_word(line, make_word("kfvnsoc"[dice(7)]));
    }
    g_strfreev(parts);
}

static void free_line(struct line *line)
{
    g_ptr_array_unref(line->texts);
}

static void let_time_pass(void)
{
    if (dice(4) == 0) {
        twin_pass(dice(10) ? (int64_t)dice(200000) : (int64_t)dice(20000000));
    }
    if (dice(500) == 0) {
        twin_step((int64_t)dice(20000000) - 10000000);
    }
}

/* To the very ms in which a key expires: it is there still, and in the next it is not. */
static void pass_to_deadline(struct twin *twin)
{
    const char *key = PICK(keys);
    int64_t left = g_ascii_strtoll(twin_do(twin, "PTTL", key, NULL)->str + 1, NULL, 10);
    if (left > 0 && left < 1000000) {
        twin_pass(left * 1000 - redis_model_wall(twin_model) % 1000);
        twin_do(twin, "EXISTS", key, NULL);
        twin_pass(1000);
        twin_do(twin, "EXISTS", key, NULL);
    }
}

static void say_something(struct twin *twin)
{
    struct line line;
    make_line(&line, PICK(templates));
    let_time_pass();
    twin_say(twin, line.words, line.count);
    free_line(&line);
}

START_TEST(random_commands_are_answered_as_a_real_server_does)
{
    for (uint64_t i = 0, count = wanted(14000); i < count; i++) {
        say_something(PICK(clients));
        if (dice(20) == 0) {
            pass_to_deadline(PICK(clients));
        }
        if (i % 2000 == 0) {
            twin_compare_keys();
            hosts_restart_time_limit();
        }
    }
    twin_compare_keys();
}
END_TEST

/* --- what a table says ------------------------------------------------------------------ */

static bool has_flag(const redisReply *flags, const char *flag)
{
    for (size_t i = 0; i < flags->elements; i++) {
        if (strcmp(flags->element[i]->str, flag) == 0) {
            return true;
        }
    }
    return false;
}

static void compare_entry(redisContext *context, const struct model_command *command)
{
    static const struct {
        unsigned flag;
        const char *name;
    } flags[] = {{MODEL_WRITE, "write"},    {MODEL_DENYOOM, "denyoom"},   {MODEL_LOADING, "loading"},
                 {MODEL_STALE, "stale"},    {MODEL_NOSCRIPT, "noscript"}, {MODEL_ALLOW_BUSY, "allow_busy"},
                 {MODEL_NO_AUTH, "no_auth"}};
    redisReply *reply = redisCommand(context, "COMMAND INFO %s", command->name), *entry = reply->element[0];
    ck_assert_msg(entry->type == REDIS_REPLY_ARRAY, "a server does not know %s", command->name);
    ck_assert_msg(entry->element[1]->integer == command->arity, "arity of %s", command->name);
    for (size_t i = 0; i < G_N_ELEMENTS(flags); i++) {
        bool has = has_flag(entry->element[2], flags[i].name);
        ck_assert_msg(has == ((command->flags & flags[i].flag) != 0), "%s is %s%s", command->name, has ? "" : "not ",
                      flags[i].name);
    }
    if (command->first >= 0) {
        ck_assert_msg(has_flag(entry->element[2], "readonly") == ((command->flags & MODEL_READ) != 0), "%s reads",
                      command->name);
        ck_assert_msg(entry->element[3]->integer == command->first && entry->element[4]->integer == command->last &&
                          entry->element[5]->integer == command->step,
                      "keys of %s", command->name);
    }
    freeReplyObject(reply);
}

START_TEST(commands_have_the_flags_of_a_real_server)
{
    const struct model_command *const tables[] = {model_key_commands, model_zset_commands, model_talk_commands};
    redisContext *context = redisConnectUnix(redis_server_socket(hosts_server));
    for (size_t i = 0; i < G_N_ELEMENTS(tables); i++) {
        for (const struct model_command *command = tables[i]; command->name; command++) {
            compare_entry(context, command);
        }
    }
    redisFree(context);
}
END_TEST

/* What a mount reads of INFO must be there as a server says it. */
START_TEST(info_has_lines_of_a_real_server)
{
    redisContext *context = redisConnectUnix(redis_server_socket(hosts_server));
    redisReply *reply = redisCommand(context, "INFO everything");
    char **lines = g_strsplit(redis_model_do(twin_model, "INFO", NULL), "\r\n", -1);
    for (char **line = lines + 1; *line; line++) {
        char *colon = strchr(*line, ':'),
             *name = colon ? g_strdup_printf("\n%.*s:", (int)(colon - *line), *line) : NULL;
        ck_assert_msg(!name || strstr(reply->str, name), "INFO has no %s", name);
        g_free(name);
    }
    g_strfreev(lines);
    freeReplyObject(reply);
    redisFree(context);
}
END_TEST

/* --- states ------------------------------------------------------------------------------ */

static const enum redis_model_state states[][2] = {
    {REDIS_MODEL_FULL, REDIS_MODEL_FULL},
    {REDIS_MODEL_REPLICA, REDIS_MODEL_REPLICA},
    {REDIS_MODEL_REPLICA, REDIS_MODEL_STALE},
    {REDIS_MODEL_LONELY, REDIS_MODEL_LONELY},
};

static const char *const state_scripts[] = {
    "return redis.call('GET', KEYS[1])",
    "return redis.call('SET', KEYS[1], 'x')",
    "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], 'x')",
    "redis.call('ZREM', KEYS[1], '') redis.call('HSET', KEYS[2], 'a', 'b') return 1",
    "return redis.pcall('SADD', KEYS[1], 'x')",
    "return {redis.pcall('HSET', KEYS[1], 'x', 'y'), redis.call('EXISTS', KEYS[1])}",
    "return redis.call('PUBLISH', 'news', 'x')",
    "return redis.call('TIME')",
};

START_TEST(states_refuse_what_a_real_server_refuses)
{
    for (int i = 0; i < 300; i++) { /* so that there is something */
        say_something(clients[0]);
    }
    twin_set(states[_i][0], true);
    if (states[_i][1] != states[_i][0]) {
        twin_set(states[_i][1], true);
    }
    for (int i = 0; i < 1500; i++) {
        if (dice(3)) {
            say_something(clients[0]);
        } else {
            twin_do(clients[0], "EVAL", PICK(state_scripts), "2", PICK(keys), PICK(keys), NULL);
        }
    }
    if (states[_i][1] != states[_i][0]) {
        twin_set(states[_i][1], false);
    }
    twin_set(states[_i][0], false);
    twin_compare_keys();
}
END_TEST

/* --- scripts of all kinds ---------------------------------------------------------------- */

static const char *const scripts[] = {
    "return 1",
    "return nil",
    "return true",
    "return false",
    "return 3.99",
    "return -3.99",
    "return 'text'",
    "return {1, 2, {3, 'four', false}, nil, 5}",
    "return {}",
    "return {ok = 'fine'}",
    "return {err = 'WORD and more'}",
    "return redis.error_reply('TRYAGAIN later')",
    "return redis.error_reply('alone')",
    "return redis.error_reply('-MOVED on')",
    "return redis.status_reply('good')",
    "return {KEYS, ARGV}",
    "return ARGV[1]",
    "return #KEYS",
    "return redis.call('GET', KEYS[1])",
    "return redis.call('SET', KEYS[1], ARGV[1])",
    "return redis.call('SET', KEYS[1], ARGV[1], 'PX', 1000)",
    "return redis.pcall('HSET', KEYS[1], 'f', ARGV[1])",
    "return redis.call('HSET', KEYS[1], 'f', ARGV[1])",
    "return redis.call('ZADD', KEYS[1], 1.5, ARGV[1])",
    "return redis.call('ZADD', KEYS[1], 1600000000000001, ARGV[1])",
    "return redis.call('ZSCORE', KEYS[1], ARGV[1])",
    "return tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0) + 1",
    "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
    "return {redis.call('HMGET', KEYS[1], 'f', 'g')}",
    "return redis.call('DEL', KEYS[1])",
    "local a = redis.call('INCR', 'number') return {a, a + 0.5, tostring(a)}",
    "return redis.call('EXISTS', KEYS[1], KEYS[2])",
    "return redis.call('TYPE', KEYS[1])",
    "return redis.call('TYPE', KEYS[1]).ok",
    "return redis.call('PTTL', KEYS[1])",
    "return redis.call('TIME')",
    "return redis.call('nonsense', 1)",
    "return redis.call('GET')",
    "return redis.call()",
    "return redis.call({})",
    "return redis.call('SUBSCRIBE', 'x')",
    "return redis.pcall('GET').err",
    "error('what')",
    "error({err = 'MINE'})",
    "error()",
    "local x = nil; return x.y",
    "return undefined",
    "undefined = 1",
    "return redis.sha1hex('x')",
    "return string.format('%.0f', 1600000000000001)",
    "return redis.acl_check_cmd('SET', KEYS[1], 1)",
    "return cmsgpack.pack({1, 2, 3})",
    "return cmsgpack.pack({a = 1, b = 'x', c = {1, 2}, d = 1.5, e = false})",
    "return cmsgpack.pack({m = 'lfs:0123456789abcdef', k = 1, x = 0, l = 30000, a = 1700000000000, d = 0, i = ARGV[1], "
    "c = 1})",
    "return cmsgpack.pack(1, 'a', nil, true, -1, -33, -129, -32769, -2147483649, 255, 256, 65536, 4294967296, 0.1, "
    "2.5)",
    "return cmsgpack.pack({[1] = 1, [3] = 3})",
    "return cmsgpack.pack({})",
    "return cmsgpack.pack(string.rep('x', 31)) .. cmsgpack.pack(string.rep('x', 32)) .. cmsgpack.pack(string.rep('x', "
    "300))",
    "return cmsgpack.pack(string.rep('x', 70000)):sub(1, 9)",
    "local t = {} for i = 1, 20 do t[i] = i end return cmsgpack.pack(t)",
    "local t = {} for i = 1, 40 do t['k' .. i] = i end return cmsgpack.pack(cmsgpack.unpack(cmsgpack.pack(t)))",
    "local t = {} for i = 1, 20 do t = {t} end return cmsgpack.pack(t)",
    "return {cmsgpack.unpack(cmsgpack.pack(1, 'a', true, -1, -33, -129, -32769, -2147483649, 255, 65536, {1, {x = "
    "2}}))}",
    "return {cmsgpack.unpack(ARGV[1])}",
    "return cmsgpack.pack(function() end)",
    "return cmsgpack.pack()",
    "return cmsgpack.unpack(1)",
    "return {tostring(1e15), tostring(2^53), tostring(0.1), 2^53 .. ''}",
    "local t = {} for w in ('a b c'):gmatch('%S+') do t[#t + 1] = w end return t",
    "return unpack({1, 2, 3})",
    "return {math.floor(1.5), math.max(1, 2), math.huge, -math.huge}",
    "return loadstring('return 1')()",
    "return pcall(redis.call, 'GET')",
    "local ok, e = pcall(redis.call, 'GET') return {tostring(ok), e.err}",
    "return select('#', unpack(ARGV))",
    "return 'unfinished",
    "this is no Lua",
};

START_TEST(scripts_run_as_in_a_real_server)
{
    for (unsigned i = 0; i < 12 * G_N_ELEMENTS(scripts); i++) {
        const char *script = i < G_N_ELEMENTS(scripts) ? scripts[i] : PICK(scripts);
        char *hash = g_compute_checksum_for_string(G_CHECKSUM_SHA1, script, -1);
        static const char *const numbers[] = {"2", "2", "2", "2", "2", "1", "0", "9", "-1", "x"};
        if (dice(3)) {
            twin_do(PICK(clients), "EVAL", script, PICK(numbers), PICK(keys), PICK(keys), PICK(fields), PICK(fields),
                    NULL);
        } else {
            twin_do(PICK(clients), "EVALSHA", hash, PICK(numbers), PICK(keys), PICK(keys), PICK(fields), NULL);
        }
        if (dice(4) == 0) {
            twin_do(PICK(clients), "SCRIPT", "LOAD", script, NULL);
            twin_do(PICK(clients), "SCRIPT", "EXISTS", hash, "x", NULL);
        }
        g_free(hash);
    }
    twin_compare_keys();
}
END_TEST

/* --- channels and keys that are watched -------------------------------------------------- */

START_TEST(messages_and_changes_are_sent_as_by_a_real_server)
{
    struct twin *listener = twin_connect(), *watcher = clients[0], *other = clients[1];
    const GString *id = twin_do(listener, "CLIENT", "ID", NULL);
    char *number = g_strndup(id->str + 1, id->len - 3);
    twin_do(listener, "SUBSCRIBE", "news", "__redis__:invalidate", NULL);
    twin_do(watcher, "CLIENT", "TRACKING", "ON", "REDIRECT", number, "OPTIN", NULL);
    twin_do(watcher, "CLIENT", "TRACKING", "ON", "REDIRECT", "999", "OPTIN", NULL);
    twin_do(watcher, "CLIENT", "TRACKING", "ON", "REDIRECT", number, "OPTIN", NULL);
    for (int i = 0; i < 2500; i++) {
        if (dice(3) == 0) {
            twin_do(watcher, "CLIENT", "CACHING", "YES", NULL);
            if (dice(4)) {
                twin_do(watcher, "EXISTS", PICK(keys), NULL);
            } else {
                twin_do(watcher, "EVAL", "return redis.call('EXISTS', KEYS[1])", "1", PICK(keys), NULL);
            }
        } else if (dice(10) == 0) {
            twin_do(other, "PUBLISH", dice(2) ? "news" : "sport", "something", NULL);
        } else if (dice(20) == 0) {
            twin_do(other, "EVAL",
                    "redis.call('PUBLISH', 'news', 'x') redis.call('SET', KEYS[1], 1) return redis.call('PUBLISH', "
                    "'news', 'y')",
                    "1", PICK(keys), NULL);
        } else if (dice(60) == 0) {
            twin_do(listener, dice(2) ? "PING" : "GET", "x", NULL);
        } else if (dice(100) == 0) {
            twin_do(other, "FLUSHALL", NULL);
        } else {
            say_something(dice(2) ? other : clients[2]);
        }
    }
    twin_do(listener, "UNSUBSCRIBE", "news", NULL);
    g_free(number);
}
END_TEST

/* --- real mounts -------------------------------------------------------------------------- */

/* What a mount says goes to both, one command after the other, and what the server says to the mount. */
struct relayed {
    ev_io reading;
    struct twin *twin;
    redisReader *reader;
};

static char *relay_directory, *relay_socket;
static ev_io relay_listening;
static GPtrArray *relayed;
static GPtrArray *kept; /* calls of scripts that mounts have made: redisReply */

static void pass_on(void *arg, const char *data, size_t length)
{
    const struct relayed *r = arg;
    for (size_t at = 0; at < length;) {
        ssize_t sent = send(r->reading.fd, data + at, length - at, MSG_NOSIGNAL);
        if (sent <= 0) {
            return; /* the mount has gone */
        }
        at += (size_t)sent;
    }
}

static void end_relayed(struct relayed *r)
{
    ev_io_stop(hosts_loop, &r->reading);
    close(r->reading.fd);
    twin_close(r->twin);
    redisReaderFree(r->reader);
    g_ptr_array_remove(relayed, r);
    g_free(r);
}

static void keep_call(redisReply *command)
{
    bool is_script = command->elements > 3 && g_ascii_strncasecmp(command->element[0]->str, "EVAL", 4) == 0;
    if (!is_script || (kept->len >= KEPT_CALLS && dice(4))) {
        freeReplyObject(command);
        return;
    }
    if (kept->len >= KEPT_CALLS) {
        g_ptr_array_remove_index_fast(kept, dice(kept->len));
    }
    g_ptr_array_add(kept, command);
}

static size_t words_of(const redisReply *command, struct twin_word *words, size_t most)
{
    size_t count = command->elements;
    ck_assert_uint_le(count, most);
    for (size_t i = 0; i < count; i++) {
        words[i] = (struct twin_word){command->element[i]->str, (size_t)command->element[i]->len};
    }
    return count;
}

static void on_said(struct ev_loop *loop, ev_io *watcher, int events)
{
    struct relayed *r = watcher->data;
    struct twin_word words[CALL_WORDS];
    char data[65536];
    void *command = NULL;
    ssize_t length = read(watcher->fd, data, sizeof data);
    (void)loop, (void)events;
    if (length <= 0) {
        end_relayed(r);
        return;
    }
    redisReaderFeed(r->reader, data, (size_t)length);
    while (redisReaderGetReply(r->reader, &command) == REDIS_OK && command) {
        let_time_pass();
        const GString *reply = twin_say(r->twin, words, words_of(command, words, G_N_ELEMENTS(words)));
        pass_on(r, reply->str, reply->len);
        keep_call(command);
    }
}

static void on_connected(struct ev_loop *loop, ev_io *watcher, int events)
{
    int fd = accept4(watcher->fd, NULL, NULL, SOCK_CLOEXEC);
    struct relayed *r = g_new0(struct relayed, 1);
    (void)events;
    r->twin = twin_connect();
    twin_listen(r->twin, pass_on, r);
    r->reader = redisReaderCreate();
    ev_io_init(&r->reading, on_said, fd, EV_READ);
    r->reading.data = r;
    ev_io_start(loop, &r->reading);
    g_ptr_array_add(relayed, r);
}

static void free_reply(gpointer reply)
{
    freeReplyObject(reply);
}

static void setup_relay(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setup();
    relay_directory = scratch_new();
    relay_socket = g_build_filename(relay_directory, "socket", NULL);
    relayed = g_ptr_array_new();
    kept = g_ptr_array_new_with_free_func(free_reply);
    g_strlcpy(address.sun_path, relay_socket, sizeof address.sun_path);
    ck_assert(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 8) == 0);
    ev_io_init(&relay_listening, on_connected, fd, EV_READ);
    ev_io_start(hosts_loop, &relay_listening);
    hosts_options.conn.uri.path = relay_socket;
}

static void teardown_relay(void)
{
    for (unsigned i = 0; i < HOSTS; i++) {
        hosts_close(i);
    }
    while (relayed->len) {
        end_relayed(relayed->pdata[0]);
    }
    ev_io_stop(hosts_loop, &relay_listening);
    close(relay_listening.fd);
    g_ptr_array_unref(relayed);
    g_ptr_array_unref(kept);
    scratch_free(relay_directory);
    g_free(relay_socket);
    teardown();
}

enum { MOUNTS = 3, TICKETS = 16, PARTIES = 4 };

static const char *const names[] = {"a", "b", "d/a", "d/b", "e/f", "{t}x"};
static struct hosts_record *tickets[TICKETS];
static unsigned open_calls;

static void on_done(void *arg, enum backend_result result)
{
    (void)arg, (void)result;
    open_calls--;
}

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    (void)arg, (void)result, (void)info;
    open_calls--;
}

static void on_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    (void)arg, (void)result, (void)entries, (void)count;
    open_calls--;
}

static void take(struct hosts_record **slot)
{
    static const enum backend_kind kinds[] = {BACKEND_PROVISIONAL, BACKEND_LEASE, BACKEND_FLOCK, BACKEND_FCNTL};
    struct backend_claim claim = hosts_claim(PICK(kinds), 1000 + dice(20000));
    const char *name = PICK(names);
    claim.mode = dice(2) ? BACKEND_EXCLUSIVE : BACKEND_SHARED;
    claim.wait = dice(2);
    claim.handle = dice(3);
    if (claim.kind == BACKEND_FCNTL) {
        claim.lock_owner = 1 + dice(PARTIES);
        claim.handle = 0;
        claim.start = dice(10);
        claim.end = claim.start + dice(10);
    } else if (dice(3) == 0) {
        claim.sequence = true;
        claim.wait = true;
        name = dice(2) ? "d/s-" : "s-";
    }
    *slot = hosts_request(dice(MOUNTS), name, &claim);
    if (claim.kind == BACKEND_FCNTL) { /* the lock owner keeps it */
        (*slot)->renews = false;
        *slot = NULL;
    }
}

static void change_ticket(struct hosts_record **slot)
{
    struct hosts_record *record = *slot;
    struct backend_ticket *ticket = record->ticket;
    struct backend *b = hosts_mount(record->mount);
    struct backend_claim claim = hosts_claim(dice(2) ? BACKEND_LEASE : BACKEND_FLOCK, 10000);
    struct backend_change what = {.set = BACKEND_SET_CONTENT};
    struct backend_renewal renewal = {.ticket = ticket, .ttl = 5000 + dice(5000), .due = 1000};
    if (!ticket) {
        *slot = NULL; /* refused, or ended */
        return;
    }
    if (!record->answered) {
        return;
    }
    switch (dice(6)) {
    case 0:
    case 1:
        record->ticket = NULL;
        open_calls++;
        backend_release(b, ticket, on_done, NULL);
        *slot = NULL;
        break;
    case 2:
        if (ticket->held) {
            claim.user = record;
            claim.mode = dice(2) ? BACKEND_EXCLUSIVE : BACKEND_SHARED;
            open_calls++;
            backend_convert(b, ticket, &claim, on_done, NULL);
        }
        break;
    case 3:
        what.content = g_bytes_new_static("content\0\xff", 9);
        open_calls++;
        backend_set(b, ticket, &what, on_done, NULL);
        g_bytes_unref(what.content);
        break;
    case 4:
        backend_renew(b, &renewal, 1);
        break;
    default:
        if (ticket->held) {
            open_calls++;
            backend_rename(b, ticket, PICK(names), NULL, on_done, NULL);
        }
    }
}

static void ask_something(void)
{
    unsigned mount = dice(MOUNTS);
    struct backend *b = hosts_mount(mount);
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, 2000);
    struct backend_directory directory = {.width = 1 + dice(3), .delay = dice(2) ? 0 : 500};
    const char *name = PICK(names);
    claim.lock_owner = 1 + dice(PARTIES);
    struct hosts_record *holder = hosts_of_lock_owner(mount, name, claim.lock_owner);
    struct backend_ticket *ticket;
    open_calls++;
    switch (dice(10)) {
    case 0:
        backend_test(b, name, &claim, on_known, NULL);
        break;
    case 1:
        backend_list(b, dice(2) ? "d" : "", "", 10, on_listed, NULL);
        break;
    case 2:
        backend_revoke(b, name, 0, on_done, NULL);
        break;
    case 3:
        backend_set_directory(b, dice(2) ? "d" : "", &directory, on_done, NULL);
        break;
    case 4:
        if (holder) {
            uint64_t first = dice(8), last = 8 + dice(8);
            if (!backend_release_range(b, holder->ticket, first, last, on_done, NULL)) {
                holder->ticket = NULL;
            }
            break;
        }
        G_GNUC_FALLTHROUGH;
    case 5:
        if (holder) {
            ticket = holder->ticket;
            holder->ticket = NULL;
            backend_release(b, ticket, on_done, NULL);
            break;
        }
        G_GNUC_FALLTHROUGH;
    case 6:
        backend_mkdir(b, dice(2) ? "d" : "e", &directory, on_done, NULL);
        break;
    case 7:
        backend_rmdir(b, dice(2) ? "d" : "e", on_done, NULL);
        break;
    default:
        backend_stat(b, dice(4) ? name : "s-0000000000", on_known, NULL);
    }
}

/* Another client at the keys of locks. */
static void meddle(void)
{
    char **present = redis_model_keys(twin_model);
    guint count = g_strv_length(present);
    const char *key = count ? present[dice(count)] : "h:a";
    switch (dice(6)) {
    case 0:
        twin_do(clients[0], "DEL", key, NULL);
        break;
    case 1:
        twin_do(clients[0], "SET", key, "stranger", "PX", "700", NULL);
        break;
    case 2:
        twin_do(clients[0], "PERSIST", key, NULL);
        break;
    case 3:
        twin_do(clients[0], "PEXPIRE", key, "1", NULL);
        break;
    case 4:
        twin_do(clients[0], "RPUSH", key, "x", NULL);
        break;
    default:
        twin_do(clients[0], "SET", "h:a", "stranger", "NX", "PX", "700", NULL);
    }
    g_strfreev(present);
}

/* A call that a mount has made, once more, as it was or with a word changed. */
static void repeat_call(void)
{
    struct twin_word words[CALL_WORDS];
    const redisReply *call = kept->len ? kept->pdata[dice(kept->len)] : NULL;
    const redisReply *other = kept->len ? kept->pdata[dice(kept->len)] : NULL;
    char *text = NULL;
    if (!call) {
        return;
    }
    size_t count = words_of(call, words, G_N_ELEMENTS(words)), at = 3 + dice((unsigned)count - 3);
    switch (count > 3 ? dice(5) : 0) {
    case 1: {
        const redisReply *word = other->element[dice((unsigned)other->elements)];
        words[at] = (struct twin_word){word->str, (size_t)word->len};
        break;
    }
    case 2:
        text = make_word("vnsk"[dice(4)]);
        words[at] = (struct twin_word){text, strlen(text)};
        break;
    case 3:
        count = MAX(at, 3 + (size_t)strtoull(call->element[2]->str, NULL, 10));
        break;
    default:
        break;
    }
    twin_say(clients[1], words, count);
    g_free(text);
}

static void act(void)
{
    struct hosts_record **slot = &tickets[dice(TICKETS)];
    unsigned kind = dice(100);
    if (kind < 2) {
        meddle();
    } else if (kind < 30) {
        repeat_call();
    } else if (kind < 50) {
        ask_something();
    } else if (*slot) {
        change_ticket(slot);
    } else {
        take(slot);
    }
}

START_TEST(what_mounts_say_is_answered_as_a_real_server_does)
{
    uint64_t until = twin_commands() + wanted(6000), compared = 0;
    hosts_options.identity = "somebody";
    for (uint64_t i = 0; twin_commands() < until; i++) {
        act();
        if (dice(3) == 0) {
            hosts_turn();
        }
        if (i % 100 == 0) {
            hosts_restart_time_limit(); /* one that is slow is not stuck */
        }
        if (twin_commands() / 1000 != compared) {
            compared = twin_commands() / 1000;
            twin_compare_keys();
        }
        if (dice(2000) == 0) {
            unsigned mount = dice(MOUNTS);
            for (int t = 0; t < TICKETS; t++) {
                tickets[t] = tickets[t] && tickets[t]->mount == mount ? NULL : tickets[t];
            }
            hosts_close(mount);
        }
    }
    twin_compare_keys();
}
END_TEST

/* Others say some things in other words. */
static bool is_of_the_version(void)
{
    char *text = NULL;
    g_spawn_command_line_sync("redis-server --version", &text, NULL, NULL, NULL);
    bool is = text && strstr(text, " v=7.0.");
    g_free(text);
    return is;
}

int main(void)
{
    if (!redis_server_exists() || !is_of_the_version()) {
        puts("1..0 # SKIP there is no redis-server 7.0, which the model is like");
        return 0;
    }
    Suite *suite = suite_create("the model of Redis");
    TCase *by_itself = tcase_create("commands"), *mounted = tcase_create("mounts");
    tcase_add_checked_fixture(by_itself, setup, teardown);
    tcase_set_timeout(by_itself, 3600);
    tcase_add_test(by_itself, commands_have_the_flags_of_a_real_server);
    tcase_add_test(by_itself, info_has_lines_of_a_real_server);
    tcase_add_test(by_itself, random_commands_are_answered_as_a_real_server_does);
    tcase_add_test(by_itself, scripts_run_as_in_a_real_server);
    tcase_add_test(by_itself, messages_and_changes_are_sent_as_by_a_real_server);
    tcase_add_loop_test(by_itself, states_refuse_what_a_real_server_refuses, 0, G_N_ELEMENTS(states));
    tcase_add_checked_fixture(mounted, setup_relay, teardown_relay);
    tcase_set_timeout(mounted, 3600);
    tcase_add_test(mounted, what_mounts_say_is_answered_as_a_real_server_does);
    suite_add_tcase(suite, by_itself);
    suite_add_tcase(suite, mounted);
    return check_main(suite);
}
