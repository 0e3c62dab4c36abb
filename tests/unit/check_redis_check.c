/* The check of a Redis server before a mount: texts of INFO, and real servers with wrong settings. */
#include <arpa/inet.h>
#include <ev.h>
#include <glib.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/redis/conn/tls.h"
#include "backend/redis/info.h"
#include "backend/redis/preflight.h"
#include "backend/redis/script.h"
#include "tests/support/check_main.h"
#include "tests/support/child.h"
#include "tests/support/redis_server.h"
#include "tests/unit/fake_redis.h"

#define MANUAL "man/leasefs-redis.7"
#define PASSWORD "s3cret"

#define GOOD_SERVER "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nuptime_in_seconds:9999\r\n"
#define GOOD_MEMORY "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"
#define GOOD_PERSISTENCE                                                                                               \
    "# Persistence\r\nloading:0\r\nrdb_changes_since_last_save:3\r\nrdb_last_bgsave_status:ok\r\n"                     \
    "rdb_last_bgsave_time_sec:0\r\naof_enabled:1\r\naof_last_write_status:ok\r\n"
#define GOOD_REPLICATION "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"
#define GOOD GOOD_SERVER GOOD_MEMORY GOOD_PERSISTENCE GOOD_REPLICATION "# Cluster\r\ncluster_enabled:0\r\n"

static GPtrArray *errors, *warnings;
static char error[1024];

/* --- INFO --- */

static void begin_lines(void)
{
    errors = g_ptr_array_new_with_free_func(g_free);
    warnings = g_ptr_array_new_with_free_func(g_free);
}

static void end_lines(void)
{
    g_ptr_array_unref(errors);
    g_ptr_array_unref(warnings);
}

/* GOOD and what else (a later line replaces an earlier) gives this one line, or none. */
static void assert_info(const char *more, const char *expected_error, const char *expected_warning)
{
    char *info = g_strconcat(GOOD, more, NULL);
    begin_lines();
    redis_info_check(info, REDIS_SERVER, 0, errors, warnings);
    ck_assert_uint_eq(errors->len, expected_error ? 1 : 0);
    ck_assert_uint_eq(warnings->len, expected_warning ? 1 : 0);
    if (expected_error) {
        ck_assert_str_eq(errors->pdata[0], expected_error);
    }
    if (expected_warning) {
        ck_assert_str_eq(warnings->pdata[0], expected_warning);
    }
    end_lines();
    g_free(info);
}

START_TEST(replicas_that_are_too_few_or_too_many_are_a_warning)
{
    static const struct {
        const char *replicas;
        unsigned wait;
        const char *begin, *end; /* of the line; NULL: there is none */
    } cases[] = {
        {"0", 1, "the server has 0 replicas, fewer than wait=1 asks for", "nothing is granted until it has them"},
        {"1", 2, "the server has 1 replica, fewer than wait=2 asks for", "nothing is granted until it has them"},
        {"1", 1, NULL, NULL},
        {"2", 1, NULL, NULL},
        {"3", 1, "the server has 3 replicas, too many for wait=1", "mount with wait=2"},
        {"4", 2, NULL, NULL},
        {"5", 2, "the server has 5 replicas, too many for wait=2", "mount with wait=3"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        char *info = g_strconcat(GOOD, "connected_slaves:", cases[i].replicas, "\r\n", NULL);
        begin_lines();
        redis_info_check(info, REDIS_SERVER, cases[i].wait, errors, warnings);
        ck_assert_uint_eq(errors->len, 0);
        ck_assert_uint_eq(warnings->len, cases[i].begin ? 1 : 0);
        ck_assert(!cases[i].begin || g_str_has_prefix(warnings->pdata[0], cases[i].begin));
        ck_assert(!cases[i].end || g_str_has_suffix(warnings->pdata[0], cases[i].end));
        end_lines();
        g_free(info);
    }
}
END_TEST

START_TEST(good_server_gives_no_lines)
{
    assert_info("", NULL, NULL);
    assert_info("redis_version:5.0.0\r\n", NULL, NULL);
    assert_info("redis_version:255.255.255\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n", NULL, NULL);
}
END_TEST

START_TEST(what_is_not_reported_is_not_judged)
{
    static const char *const cases[] = {
        "", "\r\n", "nonsense", "# Server\r\n", ":\r\n:::\r\n", "role\r\nrole", "# role:slave\r\n"};
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        begin_lines();
        redis_info_check(cases[i], REDIS_SERVER, 0, errors, warnings);
        ck_assert_uint_eq(errors->len, 0);
        ck_assert_uint_eq(warnings->len, 0);
        end_lines();
    }
}
END_TEST

START_TEST(node_of_a_cluster_is_none_of_a_server_and_right_for_a_cluster)
{
    static const char *const modes[] = {"cluster_enabled:1\r\n", "redis_mode:cluster\r\n"};
    for (size_t i = 0; i < G_N_ELEMENTS(modes); i++) {
        begin_lines();
        redis_info_check(modes[i], REDIS_CLUSTER, 1, errors, warnings);
        ck_assert_uint_eq(errors->len, 0);
        redis_info_check(modes[i], REDIS_SERVER, 0, errors, warnings);
        ck_assert_uint_eq(errors->len, 1);
        end_lines();
    }
}
END_TEST

START_TEST(server_that_cannot_keep_leases_is_an_error)
{
    assert_info("redis_version:4.0.14\r\n", "the server is Redis 4.0.14, which is too old: 5 or newer is needed", NULL);
    assert_info("role:slave\r\nmaster_host:10.0.0.7\r\nmaster_port:6380\r\n",
                "the server is a replica: mount its master, 10.0.0.7 port 6380", NULL);
    assert_info("role:slave\r\n", "the server's role is slave: mount a master", NULL);
    assert_info(
        "role:active-replica\r\nmaster_host:10.0.0.7\r\n",
        "the server is a KeyDB with active-replica, where two masters can give the same lock to two holders: mount a "
        "server with one master",
        NULL);
    assert_info(
        "cluster_enabled:1\r\n",
        "it belongs to a Redis Cluster: mount redis+cluster://HOST,HOST,HOST/?prefix={TAG}, or a server of its own",
        NULL);
    assert_info("redis_mode:sentinel\r\n",
                "the server is a Sentinel, which keeps no keys: mount redis+sentinel://HOST,HOST,HOST/NAME", NULL);
}
END_TEST

START_TEST(eviction_is_a_warning_only_when_memory_is_limited)
{
    static const char *const evicting[] = {"volatile-lru", "volatile-ttl", "volatile-random", "allkeys-lfu"};
    for (size_t i = 0; i < G_N_ELEMENTS(evicting); i++) {
        char *more = g_strdup_printf("maxmemory:1000000\r\nmaxmemory_policy:%s\r\n", evicting[i]);
        char *expected =
            g_strdup_printf("the server deletes locks that are held when its memory is full (maxmemory-policy "
                            "%s): set maxmemory-policy noeviction",
                            evicting[i]);
        assert_info(more, NULL, expected);
        g_free(expected);
        g_free(more);
    }
    assert_info("maxmemory:1000000\r\nmaxmemory_policy:noeviction\r\n", NULL, NULL);
    assert_info("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", NULL, NULL);
}
END_TEST

START_TEST(server_that_forgets_at_a_restart_is_a_warning)
{
    assert_info("aof_enabled:0\r\n", NULL,
                "a restart makes the server forget locks that are held: all since its last snapshot, if it makes any "
                "(appendonly no): set appendonly yes");
    assert_info("aof_enabled:0\r\nrdb_last_bgsave_time_sec:-1\r\n", NULL,
                "a restart makes the server forget locks that are held: it keeps nothing on disk (appendonly no): set "
                "appendonly yes");
    assert_info("aof_enabled:0\r\nrdb_last_bgsave_time_sec:-1\r\nuptime_in_seconds:60\r\n", NULL,
                "a restart makes the server forget locks that are held: all since its last snapshot, if it makes any "
                "(appendonly no): set appendonly yes");
    assert_info("rdb_last_bgsave_status:err\r\n", NULL,
                "the server's last snapshot failed, and it may refuse to write: see its log");
    assert_info("aof_last_write_status:err\r\n", NULL,
                "the server could not write to its append-only file, and may refuse to write: see its log");
}
END_TEST

START_TEST(replicas_that_need_not_follow_are_a_warning)
{
    assert_info(
        "connected_slaves:1\r\n", NULL,
        "the server has 1 replica but grants locks also when cut off from them, which another holder can get after a "
        "failover: set min-replicas-to-write");
    assert_info("connected_slaves:2\r\nmin_slaves_good_slaves:2\r\n", NULL, NULL);
}
END_TEST

START_TEST(words_of_the_server_are_escaped)
{
    assert_info("role:slave\r\nmaster_host:a\x1b[31mb\r\nmaster_port:1\r\n",
                "the server is a replica: mount its master, a\\x1b[31mb port 1", NULL);
}
END_TEST

/* --- real servers --- */

static struct redis_server *server;
static struct redis_options options;

static void begin_server(void)
{
    static const char *const arguments[] = {"--databases", "4", "--appendonly", "yes", NULL};
    begin_lines();
    server = redis_server_start(arguments);
    options = (struct redis_options){
        .conn = {.uri = {.path = (char *)redis_server_socket(server)}, .command_timeout = 5000},
    };
}

static void end_server(void)
{
    redis_server_free(server);
    end_lines();
}

static int check_server(void)
{
    error[0] = '\0';
    g_ptr_array_set_size(warnings, 0);
    return redis_preflight(&options, warnings, error, sizeof error);
}

static void assert_accepted(void)
{
    ck_assert_msg(check_server() == 0, "%s", error);
    ck_assert_msg(warnings->len == 0, "%s", warnings->len > 0 ? (const char *)warnings->pdata[0] : "");
    ck_assert_str_eq(error, "");
}

/* Refused, with these words in one line that names the server and no password. */
static void assert_refused(const char *words)
{
    ck_assert_int_lt(check_server(), 0);
    ck_assert_msg(strstr(error, words) != NULL, "not '%s': %s", words, error);
    ck_assert_msg(g_str_has_prefix(error, "redis"), "%s", error);
    ck_assert_ptr_null(strstr(error, PASSWORD));
    ck_assert_ptr_null(strchr(error, '\n'));
}

/* The words of the manual's ACL SETUSER, that follow the user's name. */
static char **manual_acl(void)
{
    const char *top = g_getenv("top_srcdir");
    char *name = g_build_filename(top ? top : ".", MANUAL, NULL), *text;
    ck_assert(g_file_get_contents(name, &text, NULL, NULL));
    char *begin = strstr(text, "\nACL SETUSER leasefs "), *end = begin ? strstr(begin, "\n.Ed") : NULL;
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    GPtrArray *words = g_ptr_array_new();
    for (char *word = strtok(begin + strlen("\nACL SETUSER leasefs "), " \n"); word; word = strtok(NULL, " \n")) {
        g_ptr_array_add(words, g_strdup(strcmp(word, ">PASSWORD") == 0 ? ">" PASSWORD : word));
    }
    g_ptr_array_add(words, NULL);
    g_free(text);
    g_free(name);
    return (char **)g_ptr_array_free(words, FALSE);
}

/* The user of the manual, but for one word (NULL: none). */
static void make_user(char **acl, const char *without)
{
    GString *command = g_string_new("ACL SETUSER ann reset");
    for (; *acl; acl++) {
        if (!without || strcmp(*acl, without) != 0) {
            g_string_append_printf(command, " %s", *acl);
        }
    }
    redis_server_do(server, command->str);
    g_string_free(command, TRUE);
    options.conn.user = "ann";
    options.conn.password = PASSWORD;
}

START_TEST(good_server_is_accepted_and_left_as_it_was)
{
    assert_accepted();
    options.conn.uri.database = 3;
    options.key = "lock:{{n}}";
    options.prefix = "a*b?";
    assert_accepted();
    ck_assert_int_eq(redis_server_do(server, "DBSIZE"), 0);
    ck_assert_int_eq(redis_server_do(server, "EVAL %s 0", "redis.call('SELECT', 3) return redis.call('DBSIZE')"), 0);
}
END_TEST

/* A server that checks how many words it is given, as Debian 13's and the simulator's do, understands each question. */
START_TEST(server_answers_questions_about_permissions)
{
    ck_assert_msg(check_server() == 0, "%s", error);
    for (guint i = 0; i < warnings->len; i++) {
        ck_assert_ptr_null(strstr(warnings->pdata[i], "is not understood"));
    }
}
END_TEST

START_TEST(wrong_password_or_user_is_reported)
{
    assert_accepted();
    options.conn.password = PASSWORD;
    assert_refused("the server's default user has no password: leave out credentials=, or write USER:PASSWORD");
    redis_server_do(server, "CONFIG SET requirepass " PASSWORD);
    assert_accepted();
    options.conn.password = NULL;
    assert_refused("the server requires a password");
    options.conn.password = "wrong";
    assert_refused("the server does not know this user with this password");
    options.conn.password = PASSWORD;
    options.conn.user = "nobody";
    assert_refused("the server does not know this user with this password");
    options.conn.user = NULL;
    options.conn.uri.user = (char *)"default";
    assert_accepted();
    options.conn.password = NULL;
    assert_refused("the server refuses this user without a password");
}
END_TEST

START_TEST(user_without_a_password_is_let_in)
{
    redis_server_do(server, "ACL SETUSER ann on nopass ~* &* +@all -select");
    options.conn.uri.user = (char *)"ann";
    assert_accepted(); /* in database 0 nothing is selected */
    options.conn.uri.database = 1;
    assert_refused("run there ACL SETUSER ann +select (see");
}
END_TEST

START_TEST(wrong_database_is_reported)
{
    options.conn.uri.database = 4;
    assert_refused("the server has no database of this number");
}
END_TEST

START_TEST(user_of_the_manual_is_accepted)
{
    char **acl = manual_acl();
    make_user(acl, NULL);
    options.prefix = "app:";
    assert_accepted();
    options.conn.wait = 1;
    assert_refused("the user ann lacks permissions: run there ACL SETUSER ann +wait (see");
    g_strfreev(acl);
}
END_TEST

/* Permissions that leases do not need: for watching keys, for naming the connection, and those that Redis grants to
 * everybody. */
static bool is_optional(const char *word)
{
    static const char *const optional[] = {
        "+client|id", "+client|info", "+client|kill", "+client|tracking", "+client|caching", "&__redis__:invalidate",
        NULL};
    return g_strv_contains(optional, word);
}

/* The commands of all scripts, as permissions. */
START_TEST(manual_permits_what_the_scripts_call)
{
    char **acl = manual_acl();
    GRegex *call = g_regex_new("\\bp?call\\('([A-Z]+)'", 0, 0, NULL);
    size_t calls = 0;
    for (size_t i = 0; i < REDIS_SCRIPTS; i++) {
        GMatchInfo *match;
        g_regex_match(call, redis_scripts[i].text, 0, &match);
        for (; g_match_info_matches(match); g_match_info_next(match, NULL), calls++) {
            char *name = g_match_info_fetch(match, 1), *lower = g_ascii_strdown(name, -1);
            char *permission = g_strconcat("+", lower, NULL);
            ck_assert_msg(g_strv_contains((const char *const *)acl, permission), "%s is not permitted", name);
            g_free(permission);
            g_free(lower);
            g_free(name);
        }
        g_match_info_free(match);
    }
    ck_assert_uint_gt(calls, 20);
    g_regex_unref(call);
    g_strfreev(acl);
}
END_TEST

START_TEST(every_permission_of_the_manual_is_needed_and_named)
{
    static const char *const untried[] = {"on",       "resetchannels", "resetkeys", "+client|setname", "+auth", "+info",
                                          "+hgetall", "+hlen",         NULL}; /* mounts work without */
    char **acl = manual_acl();
    options.prefix = "app:";
    options.conn.uri.database = 1;
    for (char **word = acl; *word; word++) {
        if (**word == '>' || g_strv_contains(untried, *word)) {
            continue;
        }
        make_user(acl, *word);
        if (is_optional(*word)) {
            ck_assert_msg(check_server() == 0, "%s: %s", *word, error);
            ck_assert_uint_eq(warnings->len, 1);
            char *end = g_strdup_printf("run there ACL SETUSER ann %s", *word);
            ck_assert_msg(g_str_has_suffix(warnings->pdata[0], end), "%s: %s", *word, (char *)warnings->pdata[0]);
            g_free(end);
        } else {
            char *advice = g_strdup_printf("run there ACL SETUSER ann %s (see leasefs-redis(7))", *word);
            assert_refused(advice);
            g_free(advice);
        }
    }
    g_strfreev(acl);
}
END_TEST

START_TEST(all_missing_permissions_are_named_in_one_line_that_can_be_run)
{
    redis_server_do(server, "ACL SETUSER ann on >" PASSWORD);
    options.conn.user = "ann";
    options.conn.password = PASSWORD;
    for (int tries = 0; check_server() < 0; tries++) { /* what a script lacks is known when it may run */
        char *begin = strstr(error, "ACL SETUSER "), *end = strstr(error, " (see");
        ck_assert_int_lt(tries, 3);
        ck_assert_msg(begin && end, "%s", error);
        *end = '\0';
        redis_server_do(server, begin);
    }
    ck_assert_uint_eq(warnings->len, 1);
    ck_assert_ptr_nonnull(strstr(warnings->pdata[0], "+info"));
}
END_TEST

START_TEST(server_that_hides_info_is_only_a_warning)
{
    redis_server_do(server, "ACL SETUSER default -info");
    ck_assert_int_eq(check_server(), 0);
    ck_assert_uint_eq(warnings->len, 1);
    ck_assert_ptr_nonnull(strstr(warnings->pdata[0], "permit +info"));
}
END_TEST

/* The commands of scripts, and those that a mount sends itself. */
START_TEST(command_that_the_server_does_not_have_is_named)
{
    static const char *const commands[] = {"ZRANGEBYLEX", "PEXPIREAT", "SADD", "PUBLISH", "SUBSCRIBE", "EVALSHA"};

    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        const char *const arguments[] = {"--appendonly", "yes", "--rename-command", commands[i], "", NULL};
        char *expected = g_strdup_printf("the server has no command %s: see its setting rename-command", commands[i]);
        redis_server_free(server);
        server = redis_server_start(arguments);
        options.conn.uri.path = (char *)redis_server_socket(server);
        assert_refused(expected);
        g_free(expected);
    }
}
END_TEST

START_TEST(replica_is_refused_also_when_it_hides_info)
{
    redis_server_do(server, "REPLICAOF 127.0.0.1 1");
    assert_refused("the server is a replica: mount its master, 127.0.0.1 port 1");
    redis_server_do(server, "ACL SETUSER default -info");
    assert_refused("the server is a read-only replica: mount its master");
}
END_TEST

START_TEST(server_with_too_few_replicas_is_reported)
{
    redis_server_do(server, "CONFIG SET min-replicas-to-write 1");
    assert_refused("too few replicas");
}
END_TEST

START_TEST(warnings_come_with_what_is_accepted)
{
    redis_server_do(server, "CONFIG SET maxmemory 100mb");
    redis_server_do(server, "CONFIG SET maxmemory-policy allkeys-lru");
    redis_server_do(server, "CONFIG SET appendonly no");
    ck_assert_int_eq(check_server(), 0);
    ck_assert_uint_eq(warnings->len, 2);
}
END_TEST

START_TEST(template_without_a_name_is_reported)
{
    options.key = "lock";
    assert_refused("the template of keys has no {n}");
}
END_TEST

START_TEST(socket_that_is_not_there_is_reported)
{
    options.conn.uri.path = (char *)"/nowhere/socket";
    assert_refused("cannot connect: No such file or directory");
}
END_TEST

/* A port of 127.0.0.1 that is ours; nobody listens there yet. */
static int own_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    options = (struct redis_options){.conn = {.uri = {.host = (char *)"127.0.0.1", .port = ntohs(address.sin_port)}}};
    return fd;
}

START_TEST(refused_port_is_reported)
{
    int fd = own_port();
    assert_refused("cannot connect: Connection refused");
    ck_assert_ptr_nonnull(strstr(error, "redis://127.0.0.1:"));
    close(fd);
}
END_TEST

START_TEST(silent_listener_is_given_up)
{
    int fd = own_port();
    ck_assert_int_eq(listen(fd, 5), 0);
    options.conn.command_timeout = 50;
    assert_refused("no answer within 50 ms");
    close(fd);
}
END_TEST

/* Answers every connection with this text, until it is killed. */
static pid_t answer_all(int fd, const char *text)
{
    ck_assert_int_eq(listen(fd, 5), 0);
    pid_t child = fork();
    if (child < 0) /* and no assertion of the child: it would write among our messages */
        ck_abort_msg("cannot fork");
    if (child == 0) {
        char buffer[512];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int peer = accept(fd, NULL, NULL); peer >= 0; peer = accept(fd, NULL, NULL)) {
            if (read(peer, buffer, sizeof buffer) > 0 && write(peer, text, strlen(text)) < 0) {
                _exit(1);
            }
            close(peer);
        }
        _exit(0);
    }
    return child;
}

static void assert_answer_is_refused(const char *answer, const char *words)
{
    int fd = own_port();
    pid_t child = answer_all(fd, answer);
    options.conn.password = strstr(words, "AUTH") ? PASSWORD : NULL;
    assert_refused(words);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(fd);
}

START_TEST(server_that_is_no_redis_is_reported)
{
    static const struct {
        const char *answer, *words;
    } cases[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n",
         "the program at this address is not a Redis server: correct the host and port"},
        {"", "the server ended the connection"},
        {"-LOADING Redis is loading the dataset in memory\r\n", "the server is still reading its data"},
        {"-DENIED Redis is running in protected mode\r\n", "the server is in protected mode"},
        {"-ERR max number of clients reached\r\n", "raise its setting maxclients"},
        {"-ERR \x1b[31m"
         "strange\r\n",
         "the server refuses the command PING: ERR \\x1b[31mstrange"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        assert_answer_is_refused(cases[i].answer, cases[i].words);
    }
}
END_TEST

/* hiredis has no memory for a connection. */
static bool fails_to_connect;

redisContext *__real_redisConnectFd(int fd);
redisContext *__wrap_redisConnectFd(int fd);

redisContext *__wrap_redisConnectFd(int fd)
{
    return fails_to_connect ? NULL : __real_redisConnectFd(fd);
}

START_TEST(lack_of_memory_is_reported)
{
    int fd = own_port();
    ck_assert_int_eq(listen(fd, 5), 0);
    fails_to_connect = true;
    assert_refused("out of memory");
    fails_to_connect = false;
    close(fd);
}
END_TEST

#ifndef HAVE_HIREDIS_SSL
START_TEST(tls_that_is_not_built_in_is_reported)
{
    int fd = own_port();
    ck_assert_int_eq(listen(fd, 5), 0);
    options.conn.uri.tls = true; /* which redis_uri_parse refuses */
    assert_refused("no connection with TLS");
    ck_assert(!redis_tls_wants_input(NULL));
    ck_assert_ptr_null(redis_tls_error(NULL));
    close(fd);
}
END_TEST
#endif

/* Resets every connection that has said something, until it is killed. */
static pid_t reset_all(int fd)
{
    static const struct linger hard = {1, 0};
    ck_assert_int_eq(listen(fd, 5), 0);
    pid_t child = fork();
    if (child < 0)
        ck_abort_msg("cannot fork");
    if (child == 0) {
        char buffer[512];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int peer = accept(fd, NULL, NULL); peer >= 0; peer = accept(fd, NULL, NULL)) {
            if (read(peer, buffer, sizeof buffer) > 0) {
                setsockopt(peer, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
            }
            close(peer);
        }
        _exit(0);
    }
    return child;
}

START_TEST(connection_that_is_reset_is_reported)
{
    int fd = own_port();
    pid_t child = reset_all(fd);
    options.conn.connect_timeout = 3000;
    assert_refused("the connection failed: Connection reset by peer");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(fd);
}
END_TEST

START_TEST(password_is_not_repeated_when_auth_is_unknown)
{
    assert_answer_is_refused("-ERR unknown command `AUTH`, with args beginning with: `" PASSWORD "`,\r\n",
                             "the server refuses the command AUTH");
}
END_TEST

START_TEST(unknown_host_is_reported)
{
    options = (struct redis_options){.conn = {.uri = {.host = (char *)"nowhere.invalid", .port = 6379}}};
    assert_refused("redis://nowhere.invalid:6379/0: the host's address cannot be found: ");
    assert_refused("correct the name, or see /etc/hosts and DNS");
}
END_TEST

/* --- masters that a Sentinel names --- */

static pid_t sentinel;

/* A Sentinel that names that port of 127.0.0.1, in a process of its own: the check waits for it. */
static void begin_sentinel(uint16_t master)
{
    static char *hosts[] = {(char *)"127.0.0.1", NULL};
    static uint16_t ports[1];
    char *port = g_strdup_printf("%u", master);
    char *answer = g_strdup_printf("*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct fake_redis *fake = fake_redis_new(loop);
    fake_redis_rule(fake, "SENTINEL GET-MASTER-ADDR-BY-NAME locks", answer, FAKE_REDIS_ALWAYS);
    ports[0] = fake_redis_port(fake);
    sentinel = child_fork();
    if (sentinel == 0) {
        ev_loop_fork(loop);
        ev_run(loop, 0);
        _exit(0);
    }
    options = (struct redis_options){
        .conn = {.uri = {.kind = REDIS_SENTINEL, .hosts = hosts, .ports = ports, .name = (char *)"locks"},
                 .command_timeout = 5000}};
    fake_redis_free(fake);
    ev_loop_destroy(loop);
    g_free(answer);
    g_free(port);
}

static void end_sentinel(void)
{
    kill(sentinel, SIGKILL);
    waitpid(sentinel, NULL, 0);
}

START_TEST(master_that_a_sentinel_names_is_accepted_with_a_word_about_failovers)
{
    begin_sentinel(redis_server_port(server));
    ck_assert_msg(check_server() == 0, "%s", error);
    ck_assert_uint_eq(warnings->len, 1);
    ck_assert_ptr_nonnull(strstr(warnings->pdata[0], "mount with wait=1"));
    end_sentinel();
}
END_TEST

START_TEST(server_that_a_sentinel_names_and_is_no_master_is_reported)
{
    redis_server_do(server, "REPLICAOF 127.0.0.1 1");
    begin_sentinel(redis_server_port(server));
    assert_refused("it is not the master (any more, or yet): try again");
    ck_assert_ptr_nonnull(strstr(error, "redis+sentinel://127.0.0.1:"));
    ck_assert_ptr_nonnull(strstr(error, ": the master at 127.0.0.1:"));
    end_sentinel();
}
END_TEST

START_TEST(master_that_refuses_is_reported_with_its_sentinel)
{
    int fd = own_port();
    begin_sentinel(options.conn.uri.port);
    assert_refused("cannot connect: Connection refused");
    ck_assert_ptr_nonnull(strstr(error, ": the master at 127.0.0.1:"));
    end_sentinel();
    close(fd);
}
END_TEST

START_TEST(sentinels_that_do_not_answer_are_reported)
{
    begin_sentinel(1);
    end_sentinel();
    assert_refused("; or mount with the option background, which waits for the servers");
    ck_assert_ptr_nonnull(strstr(error, "redis+sentinel://127.0.0.1:"));
}
END_TEST

/* A server that answers the probe of permissions so, in a process of its own; what comes of it. */
static int check_server_that_answers_a_probe(const char *answer)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct fake_redis *fake = fake_redis_new(loop);
    fake_redis_rule(fake, "EVAL ", answer, FAKE_REDIS_ALWAYS);
    options = (struct redis_options){
        .conn = {.uri = {.host = (char *)"127.0.0.1", .port = fake_redis_port(fake)}, .command_timeout = 5000}};
    pid_t node = child_fork();
    if (node == 0) {
        ev_loop_fork(loop);
        ev_run(loop, 0);
        _exit(0);
    }
    int result = check_server();
    kill(node, SIGKILL);
    waitpid(node, NULL, 0);
    fake_redis_free(fake);
    ev_loop_destroy(loop);
    return result;
}

START_TEST(answer_about_permissions_that_is_not_understood_is_only_a_warning)
{
    static const char *const answers[] = {
        "-ERR Wrong number of args for redis.acl_check_cmd() script: 4d, on @user_script:9.\r\n",
        "*2\r\n$13\r\n?GET ERR what\r\n$13\r\n?SET ERR what\r\n",
        "-NEWS from a later version\r\n",
    };
    for (size_t i = 0; i < G_N_ELEMENTS(answers); i++) {
        guint reported = 0;
        ck_assert_msg(check_server_that_answers_a_probe(answers[i]) == 0, "%s", error);
        for (guint k = 0; k < warnings->len; k++) {
            reported += strstr(warnings->pdata[k], "is not understood") != NULL;
        }
        ck_assert_uint_eq(reported, 1);
    }
    ck_assert_int_lt(check_server_that_answers_a_probe("-ERR unknown command 'EVAL'\r\n"), 0);
    ck_assert_int_lt(check_server_that_answers_a_probe("*2\r\n$4\r\n+get\r\n$13\r\n?SET ERR what\r\n"), 0);
    ck_assert_ptr_nonnull(strstr(error, "ACL SETUSER default +get (see"));
}
END_TEST

/* The node that says who has the slot names itself, and then another, as it is moved. */
START_TEST(slot_that_moves_during_the_check_is_reported)
{
    static char *hosts[] = {(char *)"127.0.0.1", (char *)"127.0.0.1", NULL};
    static uint16_t ports[2];
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct fake_redis *fake = fake_redis_new(loop);
    char *slots =
        g_strdup_printf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%u\r\n", fake_redis_port(fake));
    ports[0] = ports[1] = fake_redis_port(fake);
    fake_redis_rule(fake, "CLUSTER SLOTS", slots, FAKE_REDIS_ALWAYS);
    fake_redis_rule(fake, "PING", "-MOVED 7 127.0.0.1:1\r\n", FAKE_REDIS_ALWAYS);
    pid_t node = child_fork();
    if (node == 0) {
        ev_loop_fork(loop);
        ev_run(loop, 0);
        _exit(0);
    }
    options = (struct redis_options){
        .conn = {.uri = {.kind = REDIS_CLUSTER, .hosts = hosts, .ports = ports}, .command_timeout = 5000},
        .prefix = "{a}"};
    assert_refused("the server has not the slot of the prefix any more: try again");
    kill(node, SIGKILL);
    waitpid(node, NULL, 0);
    fake_redis_free(fake);
    ev_loop_destroy(loop);
    g_free(slots);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_check");
    signal(SIGPIPE, SIG_IGN); /* as the daemon does */
    TCase *info = tcase_create("INFO");
    TCase *real = tcase_create("servers");
    TCase *other = tcase_create("no servers");
    TCase *probe = tcase_create("probe");
    tcase_add_test(info, good_server_gives_no_lines);
    tcase_add_test(info, replicas_that_are_too_few_or_too_many_are_a_warning);
    tcase_add_test(info, what_is_not_reported_is_not_judged);
    tcase_add_test(info, node_of_a_cluster_is_none_of_a_server_and_right_for_a_cluster);
    tcase_add_test(info, server_that_cannot_keep_leases_is_an_error);
    tcase_add_test(info, eviction_is_a_warning_only_when_memory_is_limited);
    tcase_add_test(info, server_that_forgets_at_a_restart_is_a_warning);
    tcase_add_test(info, replicas_that_need_not_follow_are_a_warning);
    tcase_add_test(info, words_of_the_server_are_escaped);
    suite_add_tcase(suite, info);

    tcase_add_checked_fixture(real, begin_server, end_server);
    tcase_set_timeout(real, 60);
    tcase_add_test(real, good_server_is_accepted_and_left_as_it_was);
    tcase_add_test(real, wrong_password_or_user_is_reported);
    tcase_add_test(real, user_without_a_password_is_let_in);
    tcase_add_test(real, wrong_database_is_reported);
    tcase_add_test(real, user_of_the_manual_is_accepted);
    tcase_add_test(other, manual_permits_what_the_scripts_call);
    tcase_add_test(real, every_permission_of_the_manual_is_needed_and_named);
    tcase_add_test(real, all_missing_permissions_are_named_in_one_line_that_can_be_run);
    tcase_add_test(real, server_that_hides_info_is_only_a_warning);
    tcase_add_test(real, command_that_the_server_does_not_have_is_named);
    tcase_add_test(real, replica_is_refused_also_when_it_hides_info);
    tcase_add_test(real, server_with_too_few_replicas_is_reported);
    tcase_add_test(real, warnings_come_with_what_is_accepted);
    tcase_add_test(real, template_without_a_name_is_reported);
    tcase_add_test(real, socket_that_is_not_there_is_reported);
    tcase_add_test(real, master_that_a_sentinel_names_is_accepted_with_a_word_about_failovers);
    tcase_add_test(real, server_that_a_sentinel_names_and_is_no_master_is_reported);
    tcase_add_checked_fixture(probe, begin_server, end_server);
    tcase_add_test(probe, server_answers_questions_about_permissions);
    if (redis_server_exists() || g_getenv("CI")) { /* where it must not be missing */
        suite_add_tcase(suite, probe);
        suite_add_tcase(suite, real);
    }

    tcase_add_checked_fixture(other, begin_lines, end_lines);
    tcase_set_timeout(other, 60);
    tcase_add_test(other, refused_port_is_reported);
    tcase_add_test(other, silent_listener_is_given_up);
    tcase_add_test(other, server_that_is_no_redis_is_reported);
    tcase_add_test(other, lack_of_memory_is_reported);
#ifndef HAVE_HIREDIS_SSL
    tcase_add_test(other, tls_that_is_not_built_in_is_reported);
#endif
    tcase_add_test(other, connection_that_is_reset_is_reported);
    tcase_add_test(other, password_is_not_repeated_when_auth_is_unknown);
    tcase_add_test(other, unknown_host_is_reported);
    tcase_add_test(other, master_that_refuses_is_reported_with_its_sentinel);
    tcase_add_test(other, sentinels_that_do_not_answer_are_reported);
    tcase_add_test(other, slot_that_moves_during_the_check_is_reported);
    tcase_add_test(other, answer_about_permissions_that_is_not_understood_is_only_a_warning);
    suite_add_tcase(suite, other);
    return check_main(suite);
}
