/* check_redis_locate: a redis_conn that finds its server through Sentinels, or nodes of a Cluster. */
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/redis/conn/locate.h"
#include "tests/support/check_main.h"
#include "tests/unit/conn_fixture.h"
#include "tests/unit/fake_redis.h"

#define ALWAYS FAKE_REDIS_ALWAYS
#define ASK "SENTINEL GET-MASTER-ADDR-BY-NAME locks"

static struct fake_redis *tellers[3], *servers[2];
static char *hosts[4];
static uint16_t ports[3];
static char *texts[16]; /* of rules, which borrow them */
static unsigned text_count;

static void setup(void)
{
    conn_setup();
    for (size_t i = 0; i < G_N_ELEMENTS(tellers); i++) {
        tellers[i] = fake_redis_new(conn_loop);
        hosts[i] = (char *)"127.0.0.1";
        ports[i] = fake_redis_port(tellers[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++) {
        servers[i] = fake_redis_new(conn_loop);
    }
    text_count = 0;
    conn_options.command_timeout = 300;
    conn_options.uri =
        (struct redis_uri){.kind = REDIS_SENTINEL, .hosts = hosts, .ports = ports, .name = (char *)"locks"};
}

static void teardown(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(tellers); i++) {
        fake_redis_free(tellers[i]);
    }
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++) {
        fake_redis_free(servers[i]);
    }
    for (unsigned i = 0; i < text_count; i++) {
        g_free(texts[i]);
    }
    conn_teardown();
}

/* Kept until the end of the test. */
static const char *text(char *made)
{
    ck_assert_uint_lt(text_count, G_N_ELEMENTS(texts));
    return texts[text_count++] = made;
}

static const char *address_text(const char *host, uint16_t port)
{
    char *number = g_strdup_printf("%u", port);
    const char *reply =
        text(g_strdup_printf("*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(host), host, strlen(number), number));
    g_free(number);
    return reply;
}

/* That Sentinel names that server from now on. */
static void names(int sentinel, int server)
{
    fake_redis_behave(tellers[sentinel]);
    fake_redis_rule(tellers[sentinel], ASK, address_text("127.0.0.1", fake_redis_port(servers[server])), ALWAYS);
}

static void all_name(int server)
{
    for (int i = 0; i < 3; i++) {
        names(i, server);
    }
}

static bool is_at(int server)
{
    char *place = g_strdup_printf("127.0.0.1:%u", fake_redis_port(servers[server]));
    bool is = redis_conn_is_up(conn) && g_strcmp0(redis_conn_place(conn), place) == 0;
    g_free(place);
    return is;
}

/* --- names --- */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);

static pthread_mutex_t slowness = PTHREAD_MUTEX_INITIALIZER;

/* many.test has two addresses, and the first refuses; slow.test is not found while `slowness` is locked. */
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    bool many = strcmp(host, "many.test") == 0, slow = strcmp(host, "slow.test") == 0;
    if (hints->ai_flags & AI_NUMERICHOST || !(many || slow)) {
        return __real_getaddrinfo(host, port, hints, found);
    }
    if (slow) {
        pthread_mutex_lock(&slowness);
        pthread_mutex_unlock(&slowness);
        return __real_getaddrinfo("127.0.0.1", port, hints, found);
    }
    int r = __real_getaddrinfo("127.0.0.2", port, hints, found);
    return r ? r : __real_getaddrinfo("127.0.0.1", port, hints, &(*found)->ai_next);
}

/* --- asking --- */

START_TEST(first_that_answers_is_used_and_no_other_tried)
{
    all_name(1);
    conn_open_given();
    conn_until_up();
    ck_assert(is_at(1));
    ck_assert_str_eq(fake_redis_commands(tellers[0]), ASK);
    ck_assert_uint_eq(fake_redis_connections(tellers[1]) + fake_redis_connections(tellers[2]), 0);
    ck_assert_uint_eq(fake_redis_connections(servers[0]), 0);
}
END_TEST

static const char *const useless[] = {FAKE_REDIS_SILENT,
                                      FAKE_REDIS_CLOSE,
                                      FAKE_REDIS_RESET,
                                      FAKE_REDIS_HALF,
                                      "*-1\r\n",
                                      "$-1\r\n",
                                      "*0\r\n",
                                      "*1\r\n$9\r\n127.0.0.1\r\n",
                                      "*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0\r\n",
                                      "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536\r\n",
                                      "*2\r\n$9\r\n127.0.0.1\r\n$2\r\nxy\r\n",
                                      "*2\r\n$0\r\n\r\n$4\r\n6379\r\n",
                                      "*2\r\n$3\r\na b\r\n$4\r\n6379\r\n",
                                      "*2\r\n*0\r\n*0\r\n",
                                      "*2\r\n$-1\r\n$-1\r\n",
                                      ":7\r\n",
                                      "-ERR unknown command `SENTINEL`\r\n",
                                      "-NOAUTH Authentication required.\r\n",
                                      "what?\r\n"};

START_TEST(others_are_tried_where_one_is_of_no_use)
{
    clock_ms began = clock_now();
    fake_redis_rule(tellers[0], "SENTINEL", useless[_i], ALWAYS);
    names(1, 1);
    conn_open_given();
    conn_until_up();
    ck_assert(is_at(1));
    ck_assert_str_eq(fake_redis_commands(tellers[0]), ASK);
    ck_assert_int_lt(clock_now() - began, REDIS_LOCATE_TIMEOUT + 2000);
}
END_TEST

/* A port on which nobody listens, a name that is none, an address that cannot be reached. */
START_TEST(others_are_tried_where_one_is_not_there)
{
    struct fake_redis *gone = fake_redis_new(conn_loop);
    ports[0] = fake_redis_port(gone);
    fake_redis_free(gone);
    hosts[1] = (char *)"no-such-host.invalid";
    names(2, 0);
    conn_open_given();
    conn_until_up();
    ck_assert(is_at(0));
}
END_TEST

START_TEST(error_has_the_answer_of_each_of_them)
{
    struct fake_redis *gone = fake_redis_new(conn_loop);
    char *expected;
    ports[0] = fake_redis_port(gone);
    fake_redis_free(gone);
    fake_redis_rule(tellers[1], "SENTINEL", "*-1\r\n", ALWAYS);
    fake_redis_rule(tellers[2], "SENTINEL", "-NOAUTH Authentication required.\r\n", ALWAYS);
    conn_open_given();
    CONN_UNTIL(strstr(redis_conn_error(conn), "sentinel_credentials=FILE"));
    expected = g_strdup_printf("the Sentinel 127.0.0.1:%u: Connection refused; "
                               "the Sentinel 127.0.0.1:%u: it knows no master 'locks'; "
                               "the Sentinel 127.0.0.1:%u: the server requires a password: put it in a file with "
                               "mode 0600 and mount with -o sentinel_credentials=FILE",
                               ports[0], ports[1], ports[2]);
    ck_assert_str_eq(redis_conn_error(conn), expected);
    g_free(expected);
    all_name(0); /* it goes on asking */
    conn_until_up();
}
END_TEST

START_TEST(none_of_them_answers_within_a_bounded_time)
{
    clock_ms began = clock_now();
    for (int i = 0; i < 3; i++) {
        fake_redis_rule(tellers[i], "SENTINEL", FAKE_REDIS_SILENT, ALWAYS);
    }
    conn_open_given();
    CONN_UNTIL(strstr(redis_conn_error(conn), "no answer in time"));
    ck_assert_int_ge(clock_now() - began, 3 * REDIS_LOCATE_TIMEOUT);
    ck_assert_int_lt(clock_now() - began, 3 * REDIS_LOCATE_TIMEOUT + 2000);
}
END_TEST

START_TEST(name_of_a_host_is_looked_up_wherever_it_stands)
{
    hosts[0] = (char *)"localhost";
    fake_redis_rule(tellers[0], ASK, address_text("localhost", fake_redis_port(servers[0])), ALWAYS);
    conn_open_given();
    conn_until_up();
    ck_assert_uint_gt(fake_redis_connections(servers[0]), 0);
    ck_assert_uint_eq(fake_redis_connections(tellers[1]), 0);
}
END_TEST

START_TEST(every_address_of_a_name_is_tried)
{
    hosts[0] = (char *)"many.test";
    all_name(0);
    conn_open_given();
    conn_until_up();
    ck_assert_uint_eq(fake_redis_connections(tellers[0]), 1);
    ck_assert_uint_eq(fake_redis_connections(tellers[1]), 0);
}
END_TEST

START_TEST(others_are_tried_where_a_name_is_not_found_in_time)
{
    hosts[0] = (char *)"slow.test";
    all_name(0);
    pthread_mutex_lock(&slowness);
    conn_open_given();
    conn_until_up();
    pthread_mutex_unlock(&slowness);
    ck_assert_uint_eq(fake_redis_connections(tellers[0]), 0);
    ck_assert_uint_eq(fake_redis_connections(tellers[1]), 1);
}
END_TEST

START_TEST(others_are_tried_where_an_address_cannot_be_connected_to)
{
    hosts[0] = (char *)"255.255.255.255";
    all_name(0);
    conn_open_given();
    conn_until_up();
    ck_assert_uint_eq(fake_redis_connections(tellers[1]), 1);
}
END_TEST

START_TEST(user_of_the_sentinels_may_have_no_password)
{
    conn_options.sentinel_user = "watcher";
    all_name(0);
    conn_open_given();
    conn_until_up();
}
END_TEST

START_TEST(password_of_the_sentinels_is_not_that_of_the_server)
{
    all_name(0);
    conn_options.sentinel_user = "watcher";
    conn_options.sentinel_password = "low";
    conn_options.password = "high";
    fake_redis_rule(tellers[0], "AUTH watcher low", "+OK\r\n", 1);
    fake_redis_rule(tellers[0], "AUTH", "-WRONGPASS\r\n", ALWAYS);
    fake_redis_rule(servers[0], "AUTH high", "+OK\r\n", 2);
    fake_redis_rule(servers[0], "AUTH", "-WRONGPASS\r\n", ALWAYS);
    conn_open_given();
    conn_until_up();
    ck_assert_uint_eq(fake_redis_connections(tellers[1]), 0);
}
END_TEST

START_TEST(password_is_not_repeated_by_an_error)
{
    conn_options.sentinel_password = "s3cret";
    for (int i = 0; i < 3; i++) {
        fake_redis_rule(tellers[i], "AUTH", "-ERR unknown command `AUTH`, with args beginning with: `s3cret`\r\n",
                        ALWAYS);
    }
    conn_open_given();
    CONN_UNTIL(strstr(redis_conn_error(conn), "correct or leave out sentinel_credentials="));
    ck_assert_ptr_null(strstr(redis_conn_error(conn), "s3cret"));
}
END_TEST

/* --- what they say may be wrong --- */

static const char *const roles[] = {"*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:7\r\n", "*0\r\n",
                                    "+OK\r\n", "$6\r\nmaster\r\n", "-NOPERM this user has no permissions\r\n"};

START_TEST(server_that_is_no_master_is_not_used)
{
    names(0, 0);
    names(1, 1);
    names(2, 1);
    fake_redis_rule(servers[0], "ROLE", roles[_i], ALWAYS);
    conn_open_given();
    conn_until_up();
    ck_assert(is_at(1));
    ck_assert_str_eq(fake_redis_commands(servers[0]), "");
}
END_TEST

START_TEST(master_that_is_not_one_yet_is_tried_again)
{
    all_name(0);
    fake_redis_rule(servers[0], "ROLE", roles[0], 3);
    conn_open_given();
    CONN_UNTIL(strstr(redis_conn_error(conn), "it is not the master"));
    conn_until_up();
    ck_assert(is_at(0));
}
END_TEST

START_TEST(master_is_sought_when_a_server_answers_read_only)
{
    struct conn_answer answer = {0};
    names(0, 0);
    names(1, 1);
    conn_open_given();
    conn_until_up();
    ck_assert(is_at(0));
    fake_redis_rule(servers[0], "INCR", "-READONLY You can't write against a read only replica.\r\n", ALWAYS);
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
    ck_assert(is_at(1));
    ck_assert_uint_eq(conn_reported.downs, 1);
}
END_TEST

/* --- what they tell later --- */

static void push(int sentinel, const char *what)
{
    const char *channel = "+switch-master";
    fake_redis_push(tellers[sentinel], text(g_strdup_printf("*3\r\n$7\r\nmessage\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                                                            strlen(channel), channel, strlen(what), what)));
}

static const char *switched(const char *name, int server)
{
    return text(g_strdup_printf("%s 127.0.0.1 1 127.0.0.1 %u", name, fake_redis_port(servers[server])));
}

/* It may be frozen, or cut off, and not know it. */
START_TEST(connection_moves_as_soon_as_a_sentinel_reports_another_master)
{
    struct conn_answer answer = {0};
    all_name(0);
    conn_open_given();
    conn_until_up();
    fake_redis_rule(servers[0], "INCR", FAKE_REDIS_LATE, ALWAYS);
    conn_command(&answer, "INCR a");
    conn_pass(50);
    all_name(1);
    push(0, switched("locks", 1));
    CONN_UNTIL(answer.times);
    ck_assert(is_at(1));
    ck_assert(answer.repeated);
    ck_assert_uint_eq(conn_reported.downs, 1);
    ck_assert_ptr_nonnull(strstr(conn_reported.why, "the master is 127.0.0.1 port"));
}
END_TEST

START_TEST(master_that_a_sentinel_reports_is_connected_to_at_once)
{
    all_name(0);
    fake_redis_rule(servers[0], "CLIENT", FAKE_REDIS_CLOSE, ALWAYS);
    conn_options.retry_max = 60000;
    conn_open_given();
    unsigned made = 0;
    for (int quiet = 0; quiet < 3; quiet++) { /* until the pauses are long */
        CONN_UNTIL(fake_redis_connections(servers[0]) > made);
        made = fake_redis_connections(servers[0]);
    }
    all_name(1);
    push(0, switched("locks", 1));
    push(1, switched("locks", 1));
    push(2, switched("locks", 1));
    conn_until_up();
    ck_assert(is_at(1));
}
END_TEST

START_TEST(master_whose_name_is_still_looked_up_is_dropped_for_another)
{
    names(0, 0);
    fake_redis_behave(tellers[0]);
    fake_redis_rule(tellers[0], ASK, address_text("slow.test", fake_redis_port(servers[0])), 1);
    fake_redis_rule(tellers[0], ASK, address_text("127.0.0.1", fake_redis_port(servers[1])), ALWAYS);
    names(1, 1);
    pthread_mutex_lock(&slowness);
    conn_open_given();
    CONN_UNTIL(fake_redis_connections(tellers[0]) == 1);
    CONN_UNTIL(redis_conn_place(conn));
    push(0, text(g_strdup_printf("locks 127.0.0.1 1 slow.test %u", fake_redis_port(servers[0])))); /* the same */
    push(0, switched("locks", 1));
    conn_until_up();
    pthread_mutex_unlock(&slowness);
    ck_assert(is_at(1));
    ck_assert_uint_eq(fake_redis_connections(servers[0]), 0);
}
END_TEST

START_TEST(messages_about_others_change_nothing)
{
    all_name(0);
    conn_open_given();
    conn_until_up();
    push(0, switched("other", 1));
    push(0, switched("locks", 0));
    push(0, switched("locks\xff", 1));
    push(0, "locks");
    push(0, "locks 127.0.0.1 1 127.0.0.1 0");
    push(0, "locks 127.0.0.1 1 a/b 1");
    fake_redis_push(tellers[0],
                    "*3\r\n$7\r\nmessage\r\n$5\r\n+sdown\r\n$1\r\nx\r\n*0\r\n:1\r\n-ERR\r\n*3\r\n:1\r\n:1\r\n:1\r\n"
                    "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n:1\r\n"
                    "*2\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n");
    conn_pass(200);
    ck_assert_uint_eq(conn_reported.downs, 0);
    ck_assert(is_at(0));
}
END_TEST

START_TEST(another_sentinel_reports_when_the_first_is_gone)
{
    all_name(0);
    conn_open_given();
    conn_until_up();
    fake_redis_free(tellers[0]);
    tellers[0] = fake_redis_new(conn_loop); /* on another port */
    CONN_UNTIL(fake_redis_connections(tellers[1]) == 1);
    conn_pass(100);
    ck_assert_uint_eq(conn_reported.downs, 0);
    names(2, 1); /* a switch that nobody has heard of: the next one is asked */
    fake_redis_free(tellers[1]);
    tellers[1] = fake_redis_new(conn_loop);
    CONN_UNTIL(is_at(1));
    ck_assert_uint_eq(conn_reported.downs, 1);
}
END_TEST

START_TEST(none_of_them_is_needed_once_it_is_up)
{
    all_name(0);
    conn_open_given();
    conn_until_up();
    for (int i = 0; i < 3; i++) {
        fake_redis_free(tellers[i]);
        tellers[i] = fake_redis_new(conn_loop);
    }
    conn_pass(REDIS_LOCATE_RETRY + 500);
    ck_assert_uint_eq(conn_reported.downs, 0);
    ck_assert_int_eq(conn_get("INCR a").outcome, REMOTE_ANSWERED);
}
END_TEST

/* It may not be permitted. */
START_TEST(mount_without_messages_polls_the_sentinel)
{
    names(0, 0);
    fake_redis_rule(tellers[0], "SUBSCRIBE", "-NOPERM this user has no permissions\r\n", ALWAYS);
    conn_open_given();
    conn_until_up();
    ck_assert(is_at(0));
}
END_TEST

/* --- a Cluster --- */

static void cluster_setup(void)
{
    setup();
    conn_options.uri.kind = REDIS_CLUSTER;
    conn_options.prefix = "{locks}";
    for (int i = 0; i < 3; i++) {
        fake_redis_rule(tellers[i], "CLUSTER KEYSLOT {locks}", ":7\r\n", ALWAYS);
    }
}

/* Slots 0 to 6 are another's, 7 and more of that host and port; replicas stand behind. */
static const char *slots_text(const char *host, uint16_t port)
{
    return text(g_strdup_printf("*3\r\n"
                                "*3\r\n:0\r\n:6\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n"
                                "*4\r\n:7\r\n:9000\r\n*4\r\n%s:%u\r\n$1\r\nx\r\n*0\r\n*2\r\n$9\r\n127.0.0.1\r\n:2\r\n"
                                "*3\r\n:9001\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:3\r\n",
                                host, port));
}

START_TEST(node_with_the_slot_of_the_prefix_is_used)
{
    fake_redis_rule(tellers[0], "CLUSTER SLOTS", slots_text("$9\r\n127.0.0.1\r\n", fake_redis_port(servers[1])),
                    ALWAYS);
    conn_open_given();
    conn_until_up();
    ck_assert(is_at(1));
    ck_assert_str_eq(fake_redis_commands(tellers[0]), "CLUSTER KEYSLOT {locks};CLUSTER SLOTS");
    ck_assert_uint_eq(fake_redis_connections(tellers[1]), 0);
}
END_TEST

static const char *const same[] = {"$0\r\n\r\n", "$-1\r\n"};

START_TEST(node_without_an_address_is_the_one_that_answered)
{
    hosts[0] = (char *)"localhost";
    fake_redis_rule(tellers[0], "CLUSTER SLOTS", slots_text(same[_i], fake_redis_port(servers[0])), ALWAYS);
    conn_open_given();
    conn_until_up();
    ck_assert(g_str_has_prefix(redis_conn_place(conn), "localhost:"));
    ck_assert_uint_gt(fake_redis_connections(servers[0]), 0);
}
END_TEST

static const char *const useless_slots[] = {FAKE_REDIS_SILENT,
                                            FAKE_REDIS_CLOSE,
                                            "*0\r\n",
                                            "*1\r\n*0\r\n",
                                            "*1\r\n*3\r\n:0\r\n:6\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
                                            "*1\r\n*2\r\n:0\r\n:16383\r\n",
                                            "*1\r\n*3\r\n:0\r\n:16383\r\n:1\r\n",
                                            "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\n?\r\n:6379\r\n",
                                            "*1\r\n*3\r\n$1\r\n0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n",
                                            "*1\r\n:7\r\n",
                                            "+OK\r\n",
                                            "-NOPERM this user has no permissions\r\n",
                                            "-ERR This instance has cluster support disabled\r\n"};

START_TEST(others_are_tried_where_a_node_does_not_know)
{
    fake_redis_rule(tellers[0], "CLUSTER SLOTS", useless_slots[_i], ALWAYS);
    fake_redis_rule(tellers[1], "CLUSTER SLOTS", slots_text("$9\r\n127.0.0.1\r\n", fake_redis_port(servers[0])),
                    ALWAYS);
    conn_open_given();
    conn_until_up();
    ck_assert(is_at(0));
}
END_TEST

START_TEST(server_that_is_in_no_cluster_is_reported)
{
    for (int i = 0; i < 3; i++) {
        fake_redis_behave(tellers[i]);
        fake_redis_rule(tellers[i], "CLUSTER", "-ERR This instance has cluster support disabled\r\n", ALWAYS);
    }
    conn_open_given();
    CONN_UNTIL(strstr(redis_conn_error(conn), "the server belongs to no Cluster: mount redis://HOST"));
}
END_TEST

START_TEST(node_that_does_not_tell_the_slot_is_passed_over)
{
    fake_redis_behave(tellers[0]);
    fake_redis_rule(tellers[0], "CLUSTER KEYSLOT", "+OK\r\n", ALWAYS);
    fake_redis_rule(tellers[0], "CLUSTER SLOTS", slots_text("$9\r\n127.0.0.1\r\n", fake_redis_port(servers[0])),
                    ALWAYS);
    fake_redis_rule(tellers[1], "CLUSTER SLOTS", slots_text("$9\r\n127.0.0.1\r\n", fake_redis_port(servers[1])),
                    ALWAYS);
    conn_open_given();
    conn_until_up();
    ck_assert(is_at(1));
}
END_TEST

/* By the option of the server, as its nodes are the servers. */
START_TEST(password_that_a_node_needs_is_reported)
{
    for (int i = 0; i < 3; i++) {
        fake_redis_behave(tellers[i]);
        fake_redis_rule(tellers[i], "AUTH", "-WRONGPASS invalid username-password pair\r\n", ALWAYS);
        fake_redis_rule(tellers[i], "CLUSTER", "-NOAUTH Authentication required.\r\n", ALWAYS);
    }
    conn_options.password = _i == 0 ? NULL : "wrong";
    conn_open_given();
    CONN_UNTIL(strstr(redis_conn_error(conn),
                      _i == 0 ? "mount with -o credentials=FILE"
                              : "the server refuses this password: correct or leave out credentials="));
}
END_TEST

START_TEST(slot_that_has_moved_is_followed_and_the_request_repeated)
{
    struct conn_answer answer = {0};
    fake_redis_rule(tellers[0], "CLUSTER SLOTS", slots_text("$9\r\n127.0.0.1\r\n", fake_redis_port(servers[0])),
                    ALWAYS);
    fake_redis_rule(tellers[1], "CLUSTER SLOTS", slots_text("$9\r\n127.0.0.1\r\n", fake_redis_port(servers[1])),
                    ALWAYS);
    conn_open_given();
    conn_until_up();
    fake_redis_rule(servers[0], "INCR", "-ASK 7 127.0.0.1:1\r\n", 1);
    fake_redis_rule(servers[0], "INCR", "-TRYAGAIN Multiple keys request during rehashing of slot\r\n", 1);
    fake_redis_rule(servers[0], "INCR", "-MOVED 7 127.0.0.1:1\r\n", ALWAYS);
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
    ck_assert(!answer.repeated); /* nobody has carried it out before */
    ck_assert(is_at(1));
    ck_assert_str_eq(fake_redis_commands(servers[0]), "INCR a;INCR a;INCR a");
    ck_assert_uint_eq(conn_reported.downs, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_locate");
    TCase *asking = tcase_create("asking");
    TCase *later = tcase_create("what is said");
    tcase_add_checked_fixture(asking, setup, teardown);
    tcase_add_checked_fixture(later, setup, teardown);
    tcase_set_timeout(asking, 30);
    tcase_set_timeout(later, 30);
    tcase_add_test(asking, first_that_answers_is_used_and_no_other_tried);
    tcase_add_loop_test(asking, others_are_tried_where_one_is_of_no_use, 0, G_N_ELEMENTS(useless));
    tcase_add_test(asking, others_are_tried_where_one_is_not_there);
    tcase_add_test(asking, error_has_the_answer_of_each_of_them);
    tcase_add_test(asking, none_of_them_answers_within_a_bounded_time);
    tcase_add_test(asking, name_of_a_host_is_looked_up_wherever_it_stands);
    tcase_add_test(asking, every_address_of_a_name_is_tried);
    tcase_add_test(asking, others_are_tried_where_a_name_is_not_found_in_time);
    tcase_add_test(asking, others_are_tried_where_an_address_cannot_be_connected_to);
    tcase_add_test(asking, user_of_the_sentinels_may_have_no_password);
    tcase_add_test(asking, password_of_the_sentinels_is_not_that_of_the_server);
    tcase_add_test(asking, password_is_not_repeated_by_an_error);
    tcase_add_loop_test(later, server_that_is_no_master_is_not_used, 0, G_N_ELEMENTS(roles));
    tcase_add_test(later, master_that_is_not_one_yet_is_tried_again);
    tcase_add_test(later, master_is_sought_when_a_server_answers_read_only);
    tcase_add_test(later, connection_moves_as_soon_as_a_sentinel_reports_another_master);
    tcase_add_test(later, master_that_a_sentinel_reports_is_connected_to_at_once);
    tcase_add_test(later, master_whose_name_is_still_looked_up_is_dropped_for_another);
    tcase_add_test(later, messages_about_others_change_nothing);
    tcase_add_test(later, another_sentinel_reports_when_the_first_is_gone);
    tcase_add_test(later, none_of_them_is_needed_once_it_is_up);
    tcase_add_test(later, mount_without_messages_polls_the_sentinel);
    TCase *cluster = tcase_create("Cluster");
    tcase_add_checked_fixture(cluster, cluster_setup, teardown);
    tcase_set_timeout(cluster, 30);
    tcase_add_test(cluster, node_with_the_slot_of_the_prefix_is_used);
    tcase_add_loop_test(cluster, node_without_an_address_is_the_one_that_answered, 0, G_N_ELEMENTS(same));
    tcase_add_loop_test(cluster, others_are_tried_where_a_node_does_not_know, 0, G_N_ELEMENTS(useless_slots));
    tcase_add_test(cluster, server_that_is_in_no_cluster_is_reported);
    tcase_add_test(cluster, node_that_does_not_tell_the_slot_is_passed_over);
    tcase_add_loop_test(cluster, password_that_a_node_needs_is_reported, 0, 2);
    tcase_add_test(cluster, slot_that_has_moved_is_followed_and_the_request_repeated);
    suite_add_tcase(suite, asking);
    suite_add_tcase(suite, later);
    suite_add_tcase(suite, cluster);
    return check_main(suite);
}
