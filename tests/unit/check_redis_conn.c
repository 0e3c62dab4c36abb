/* check_redis_conn: a redis_conn with a real server.  What a real one does not do on demand is in
 * check_redis_conn_faults. */
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/check_main.h"
#include "tests/support/redis_server.h"
#include "tests/unit/conn_fixture.h"

static struct redis_server *server;

static void setup(void)
{
    conn_setup();
    server = redis_server_start(NULL);
}

static void teardown(void)
{
    conn_teardown();
    redis_server_free(server);
}

static void open_up(void)
{
    conn_open(redis_server_socket(server));
    conn_until_up();
}

/* --- coming up --- */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found);

static pthread_mutex_t slowness = PTHREAD_MUTEX_INITIALIZER;

/* A host with two addresses that refuse before the one that is the server's. */
static int find_many(const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    static const char *const addresses[] = {"127.0.0.2", "::1", "127.0.0.1"};

    for (size_t i = 0; i < G_N_ELEMENTS(addresses); i++) {
        int r = __real_getaddrinfo(addresses[i], port, hints, found);

        if (r)
            return r;
        found = &(*found)->ai_next;
    }
    return 0;
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **found)
{
    if ((hints->ai_flags & AI_NUMERICHOST) || !g_str_has_suffix(host, ".test"))
        return __real_getaddrinfo(host, port, hints, found);
    if (strcmp(host, "slow.test") == 0) {
        pthread_mutex_lock(&slowness);
        pthread_mutex_unlock(&slowness);
        return __real_getaddrinfo("127.0.0.1", port, hints, found);
    }
    return strcmp(host, "many.test") == 0 ? find_many(port, hints, found) : EAI_NONAME;
}

static unsigned count_threads(void)
{
    GDir *tasks = g_dir_open("/proc/self/task", 0, NULL);
    unsigned count = 0;

    while (g_dir_read_name(tasks))
        count++;
    g_dir_close(tasks);
    return count;
}

START_TEST(comes_up_over_a_socket)
{
    conn_open(redis_server_socket(server));
    ck_assert_uint_eq(conn_reported.ups, 0); /* from the loop */
    conn_until_up();
    ck_assert_uint_eq(conn_reported.ups, 1);
    ck_assert_int_gt(redis_conn_counts(conn).since, 0);
    ck_assert_str_eq(conn_get("ECHO a").text, "a");
}
END_TEST

START_TEST(comes_up_over_a_port)
{
    conn_open_host("127.0.0.1", redis_server_port(server));
    conn_until_up();
    ck_assert_str_eq(conn_get("ECHO a").text, "a");
}
END_TEST

START_TEST(tries_all_addresses_of_a_name)
{
    conn_open_host("many.test", redis_server_port(server));
    conn_until_up();
    ck_assert_str_eq(conn_get("ECHO a").text, "a");
}
END_TEST

START_TEST(unknown_host_is_reported_and_tried_again)
{
    conn_open_host("nowhere.test", 1);
    CONN_UNTIL(g_str_has_prefix(redis_conn_error(conn), "cannot find the host: "));
    ck_assert_uint_eq(conn_reported.downs, 0);
}
END_TEST

START_TEST(slow_look_up_does_not_hold_up_the_loop)
{
    struct conn_answer answer = {0};

    conn_options.timeout = 100;
    pthread_mutex_lock(&slowness);
    conn_open_host("slow.test", redis_server_port(server));
    conn_command(&answer, "PING");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_NOT_SENT);
    pthread_mutex_unlock(&slowness);
    conn_until_up();
}
END_TEST

START_TEST(free_does_not_wait_for_a_slow_look_up)
{
    unsigned before = count_threads(), during; /* ThreadSanitizer has one of its own, from the first of ours on */

    pthread_mutex_lock(&slowness);
    conn_open_host("slow.test", 1);
    while (count_threads() == before)
        ev_run(conn_loop, EVRUN_NOWAIT);
    during = count_threads();
    redis_conn_free(conn);
    conn = NULL;
    ck_assert_uint_eq(count_threads(), during);
    pthread_mutex_unlock(&slowness);
    while (count_threads() == during)
        g_usleep(1000);
}
END_TEST

START_TEST(free_ends_a_look_up_whose_result_was_not_reported_yet)
{
    unsigned before = count_threads();

    pthread_mutex_lock(&slowness);
    conn_open_host("slow.test", 1);
    while (count_threads() == before)
        ev_run(conn_loop, EVRUN_NOWAIT);
    unsigned during = count_threads();
    pthread_mutex_unlock(&slowness);
    while (count_threads() == during)
        g_usleep(1000);
    redis_conn_free(conn);
    conn = NULL;
}
END_TEST

START_TEST(comes_up_when_the_server_appears)
{
    struct conn_answer answer = {0};

    redis_server_stop(server);
    conn_open(redis_server_socket(server));
    conn_command(&answer, "ECHO early");
    CONN_UNTIL(g_str_has_prefix(redis_conn_error(conn), "cannot connect: "));
    redis_server_again(server);
    CONN_UNTIL(answer.times);
    ck_assert_str_eq(answer.text, "early");
    ck_assert(!answer.repeated);
    ck_assert_uint_eq(redis_conn_counts(conn).reconnects, 0);
}
END_TEST

START_TEST(attempts_come_more_often_towards_the_time_by_which_it_is_needed)
{
    conn_options.retry_max = 60000;
    conn_reported.needed = clock_now() + 5000;
    redis_server_stop(server);
    conn_open(redis_server_socket(server));
    conn_pass(4000);
    redis_server_again(server);
    conn_until_up();
    ck_assert_int_lt(clock_now(), conn_reported.needed);
}
END_TEST

/* Of a host that accepts connections and is silent, or drops what it is sent. */
static void assert_given_up_in_time(bool accepts)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fillers[4];
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(listener, accepts ? 16 : 0), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    for (unsigned i = 0; i < G_N_ELEMENTS(fillers); i++) { /* its queue is full then, and more is dropped */
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (!accepts)
            connect(fillers[i], (struct sockaddr *)&address, length);
    }
    conn_options.connect_timeout = conn_options.command_timeout = 10000;
    conn_reported.needed = clock_now() + 3000;
    conn_open_host("127.0.0.1", ntohs(address.sin_port));
    CONN_UNTIL(strstr(redis_conn_error(conn), "no answer for "));
    ck_assert_int_le(clock_now(), conn_reported.needed - 1000);
    for (unsigned i = 0; i < G_N_ELEMENTS(fillers); i++)
        close(fillers[i]);
    close(listener);
}

START_TEST(attempt_to_connect_is_given_up_in_time_for_another)
{
    assert_given_up_in_time(false);
}
END_TEST

START_TEST(attempt_that_is_not_answered_is_given_up_in_time_for_another)
{
    assert_given_up_in_time(true);
}
END_TEST

START_TEST(selects_its_database)
{
    conn_options.uri.database = 3;
    open_up();
    ck_assert_int_eq(conn_get("SET a b").type, REDIS_REPLY_STATUS);
    redis_server_do(server, "SWAPDB 0 3");
    ck_assert_int_eq(redis_server_do(server, "EXISTS a"), 1);
}
END_TEST

START_TEST(waits_while_the_password_is_wrong)
{
    redis_server_do(server, "CONFIG SET requirepass right");
    redis_server_use_password(server, "right");
    conn_options.password = "other";
    conn_open(redis_server_socket(server));
    CONN_UNTIL(strstr(redis_conn_error(conn), "WRONGPASS"));
    ck_assert_ptr_null(strstr(redis_conn_error(conn), "other"));
    ck_assert_uint_eq(conn_reported.ups + conn_reported.downs, 0);
    redis_server_do(server, "CONFIG SET requirepass other");
    conn_until_up();
}
END_TEST

START_TEST(missing_password_is_reported)
{
    redis_server_do(server, "CONFIG SET requirepass right");
    conn_open(redis_server_socket(server));
    CONN_UNTIL(strstr(redis_conn_error(conn), "NOAUTH"));
    ck_assert_uint_eq(conn_reported.ups, 0);
}
END_TEST

START_TEST(goes_by_a_user)
{
    redis_server_do(server, "ACL SETUSER me on >word ~* &* +@all");
    conn_options.user = "me";
    conn_options.password = "word";
    open_up();
    ck_assert_str_eq(conn_get("ACL WHOAMI").text, "me");
}
END_TEST

START_TEST(goes_by_a_user_without_a_password)
{
    redis_server_do(server, "ACL SETUSER me on nopass ~* &* +@all");
    conn_options.uri.user = "me";
    open_up();
    ck_assert_str_eq(conn_get("ACL WHOAMI").text, "me");
}
END_TEST

START_TEST(does_without_tracking_where_it_is_not_permitted)
{
    struct conn_answer answer = {0};

    redis_server_do(server, "ACL SETUSER me on >word ~* &lfs:* +@all -client|tracking -client|caching");
    conn_options.user = "me";
    conn_options.password = "word";
    open_up();
    conn_watch(&answer, "a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
    ck_assert_int_eq(answer.integer, 0);
}
END_TEST

/* --- requests --- */

START_TEST(calls_scripts)
{
    struct conn_answer count = {0}, echo = {0};

    open_up();
    conn_call(&count, CONN_COUNT, "a", "");
    conn_call(&echo, CONN_ECHO, "a", "text");
    ck_assert_uint_eq(count.times + echo.times, 0); /* from the loop */
    CONN_UNTIL(echo.times);
    ck_assert_int_eq(count.integer, 1);
    ck_assert_str_eq(echo.text, "text");
    ck_assert_int_gt(count.sent, 0);
}
END_TEST

START_TEST(scripts_that_the_server_lost_are_sent_again)
{
    struct conn_answer first = {0}, second = {0};

    open_up();
    redis_server_do(server, "SCRIPT FLUSH");
    conn_call(&first, CONN_COUNT, "a", "");
    CONN_UNTIL(first.times);
    conn_call(&second, CONN_COUNT, "a", "");
    CONN_UNTIL(second.times);
    ck_assert_int_eq(first.integer, 1);
    ck_assert(!first.repeated);
    ck_assert_int_eq(second.integer, 2);
    ck_assert_uint_eq(conn_reported.downs, 0);
}
END_TEST

START_TEST(errors_are_answers)
{
    struct conn_answer answer;

    open_up();
    ck_assert_int_eq(conn_get("SET a b").outcome, REMOTE_ANSWERED);
    answer = conn_get("INCR a");
    ck_assert_int_eq(answer.outcome, REMOTE_REFUSED);
    ck_assert(g_str_has_prefix(answer.text, "ERR "));
}
END_TEST

START_TEST(ten_thousand_requests_are_answered_once_and_in_order)
{
    enum { COUNT = 10000 };
    struct conn_answer *all = g_new0(struct conn_answer, COUNT);

    open_up();
    for (int i = 0; i < COUNT; i++)
        conn_call(&all[i], CONN_COUNT, "a", "");
    CONN_UNTIL(all[COUNT - 1].times);
    conn_get("PING");
    for (int i = 0; i < COUNT; i++) {
        ck_assert_uint_eq(all[i].times, 1);
        ck_assert_int_eq(all[i].integer, i + 1);
        ck_assert_uint_eq(all[i].when, (unsigned)i + 1);
    }
    g_free(all);
}
END_TEST

/* None of them is too long for itself. */
START_TEST(strings_that_are_too_much_together_end_the_connection)
{
    struct conn_answer answer = {0};

    conn_options.timeout = conn_options.command_timeout =
        10000; /* a busy machine takes longer for it than for others */
    open_up();
    uint64_t id = conn_command(&answer, "EVAL return{('x'):rep(3e6),('x'):rep(3e6),('x'):rep(3e6)} 0");
    CONN_UNTIL(conn_reported.downs);
    ck_assert_str_eq(conn_reported.why, "a reply that is too large");
    redis_conn_forget(conn, id);
    conn_until_up();
    ck_assert_uint_eq(answer.times, 0);
}
END_TEST

START_TEST(forgotten_before_it_is_sent_is_not_carried_out)
{
    struct conn_answer answer = {0};
    uint64_t id;

    open_up();
    id = conn_command(&answer, "SET a b");
    ck_assert(redis_conn_forget(conn, id));
    ck_assert(!redis_conn_forget(conn, id));
    ck_assert_int_eq(conn_get("EXISTS a").integer, 0);
    ck_assert_uint_eq(answer.times, 0);
}
END_TEST

START_TEST(forgotten_after_it_was_sent_is_carried_out)
{
    struct conn_answer answer = {0};
    uint64_t id;

    open_up();
    redis_server_pause(server);
    id = conn_command(&answer, "SET a b");
    CONN_UNTIL(redis_conn_counts(conn).requests == 1);
    ck_assert(!redis_conn_forget(conn, id));
    redis_server_resume(server);
    ck_assert_int_eq(conn_get("EXISTS a").integer, 1);
    ck_assert_uint_eq(answer.times, 0);
}
END_TEST

/* --- being told --- */

START_TEST(messages_are_reported)
{
    open_up();
    ck_assert_int_eq(redis_server_do(server, "PUBLISH lfs:me hello"), 1);
    ck_assert_int_eq(redis_server_do(server, "PUBLISH lfs:you hello"), 0);
    CONN_UNTIL(conn_reported.messages);
    ck_assert_str_eq(conn_reported.message, "hello");
}
END_TEST

START_TEST(watched_keys_are_reported_once)
{
    struct conn_answer answer = {0};

    open_up();
    redis_server_do(server, "SET a b");
    redis_server_do(server, "SET other b");
    conn_watch(&answer, "a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.integer, 1);
    ck_assert_int_eq(conn_get("GET other").type, REDIS_REPLY_STRING); /* is not watched */
    redis_server_do(server, "DEL other");
    redis_server_do(server, "DEL a");
    CONN_UNTIL(conn_reported.changes);
    ck_assert_str_eq(conn_reported.key, "a");
    redis_server_do(server, "SET a c");
    redis_server_do(server, "PUBLISH lfs:me done");
    CONN_UNTIL(conn_reported.messages);
    ck_assert_uint_eq(conn_reported.changes, 1);
}
END_TEST

START_TEST(expiry_of_a_watched_key_is_reported)
{
    struct conn_answer answer = {0};

    open_up();
    redis_server_do(server, "SET a b PX 200");
    conn_watch(&answer, "a");
    CONN_UNTIL(conn_reported.changes);
    ck_assert_str_eq(conn_reported.key, "a");
    ck_assert_int_eq(answer.integer, 1);
}
END_TEST

START_TEST(flushed_keys_are_reported_as_any)
{
    struct conn_answer answer = {0};

    open_up();
    conn_watch(&answer, "a");
    CONN_UNTIL(answer.times);
    redis_server_do(server, "FLUSHALL");
    CONN_UNTIL(conn_reported.all_changes);
}
END_TEST

START_TEST(what_is_watched_may_have_changed_after_a_reconnect)
{
    struct conn_answer answer = {0};

    open_up();
    conn_watch(&answer, "a");
    CONN_UNTIL(answer.times);
    ck_assert_uint_eq(conn_reported.all_changes, 0);
    redis_server_do(server, "CLIENT KILL TYPE normal");
    CONN_UNTIL(conn_reported.all_changes);
    ck_assert_uint_eq(conn_reported.ups, 2);
}
END_TEST

/* --- losing it --- */

START_TEST(both_connections_are_made_again_when_that_of_messages_is_lost)
{
    open_up();
    redis_server_do(server, "CLIENT KILL TYPE pubsub");
    CONN_UNTIL(conn_reported.downs);
    conn_until_up();
    ck_assert_uint_eq(redis_conn_counts(conn).reconnects, 1);
    redis_server_do(server, "PUBLISH lfs:me again");
    CONN_UNTIL(conn_reported.messages);
}
END_TEST

START_TEST(requests_outlast_a_restart_of_the_server)
{
    struct conn_answer answer = {0};

    open_up();
    redis_server_stop(server);
    conn_call(&answer, CONN_ECHO, "", "text");
    CONN_UNTIL(conn_reported.downs);
    redis_server_again(server);
    CONN_UNTIL(answer.times);
    ck_assert_str_eq(answer.text, "text");
    ck_assert_uint_eq(conn_reported.ups, 2);
}
END_TEST

START_TEST(server_that_hangs_is_given_up_and_found_again)
{
    struct conn_answer answer = {0};
    clock_ms requested;

    conn_options.timeout = 1200;
    open_up();
    redis_server_pause(server);
    requested = clock_now();
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_UNKNOWN);
    ck_assert_int_ge(clock_now(), requested + 1200);
    ck_assert_uint_eq(conn_reported.downs, 1);
    ck_assert(g_str_has_prefix(conn_reported.why, "no answer for 500 ms"));
    redis_server_resume(server);
    conn_until_up();
    conn_pass(100);
    ck_assert_uint_eq(answer.times, 1);
}
END_TEST

START_TEST(free_with_requests_under_way)
{
    struct conn_answer answers[3] = {{0}};

    open_up();
    redis_server_pause(server);
    conn_command(&answers[0], "PING");
    CONN_UNTIL(redis_conn_counts(conn).requests == 1);
    conn_command(&answers[1], "PING");
    conn_watch(&answers[2], "a");
    redis_conn_free(conn);
    conn = NULL;
    ck_assert_uint_eq(answers[0].times + answers[1].times + answers[2].times, 0);
    redis_server_resume(server);
}
END_TEST

START_TEST(idle_connection_never_wakes_the_loop)
{
    unsigned turns;

    conn_options.timeout = conn_options.command_timeout = 300;
    open_up();
    ck_assert_int_eq(conn_get("PING").outcome, REMOTE_ANSWERED);
    conn_pass(400); /* the alarm of that request finds that it is answered */
    turns = ev_iteration(conn_loop);
    conn_pass(3000);
    ck_assert_uint_le(ev_iteration(conn_loop) - turns, 3); /* the check's own timer */
}
END_TEST

START_TEST(idle_connection_is_pinged_while_a_reply_is_pending)
{
    conn_options.command_timeout = 200;
    open_up();
    redis_conn_keep(conn, 1);
    conn_pass(1000);
    ck_assert_uint_eq(conn_reported.downs, 0); /* it gave them */
    redis_server_pause(server);
    CONN_UNTIL(conn_reported.downs);
    redis_server_resume(server);
    conn_until_up();
    redis_conn_keep(conn, -1);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *const *tests, size_t count)
{
    TCase *tcase = tcase_create(name);

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    for (size_t i = 0; i < count; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
}

static Suite *conn_suite(void)
{
    const TTest *const up[] = {
        comes_up_over_a_socket,
        comes_up_over_a_port,
        tries_all_addresses_of_a_name,
        unknown_host_is_reported_and_tried_again,
        slow_look_up_does_not_hold_up_the_loop,
        free_does_not_wait_for_a_slow_look_up,
        free_ends_a_look_up_whose_result_was_not_reported_yet,
        comes_up_when_the_server_appears,
        attempts_come_more_often_towards_the_time_by_which_it_is_needed,
        attempt_to_connect_is_given_up_in_time_for_another,
        attempt_that_is_not_answered_is_given_up_in_time_for_another,
        selects_its_database,
        waits_while_the_password_is_wrong,
        missing_password_is_reported,
        goes_by_a_user,
        goes_by_a_user_without_a_password,
        does_without_tracking_where_it_is_not_permitted,
    };
    const TTest *const requests[] = {
        calls_scripts,
        scripts_that_the_server_lost_are_sent_again,
        errors_are_answers,
        ten_thousand_requests_are_answered_once_and_in_order,
        strings_that_are_too_much_together_end_the_connection,
        forgotten_before_it_is_sent_is_not_carried_out,
        forgotten_after_it_was_sent_is_carried_out,
    };
    const TTest *const reported[] = {
        messages_are_reported,
        watched_keys_are_reported_once,
        expiry_of_a_watched_key_is_reported,
        flushed_keys_are_reported_as_any,
        what_is_watched_may_have_changed_after_a_reconnect,
    };
    const TTest *const lost[] = {
        both_connections_are_made_again_when_that_of_messages_is_lost,
        requests_outlast_a_restart_of_the_server,
        server_that_hangs_is_given_up_and_found_again,
        free_with_requests_under_way,
        idle_connection_never_wakes_the_loop,
        idle_connection_is_pinged_while_a_reply_is_pending,
    };
    Suite *suite = suite_create("redis_conn");

    add(suite, "up", up, G_N_ELEMENTS(up));
    add(suite, "requests", requests, G_N_ELEMENTS(requests));
    add(suite, "told", reported, G_N_ELEMENTS(reported));
    add(suite, "lost", lost, G_N_ELEMENTS(lost));
    return suite;
}

int main(void)
{
    if (!redis_server_exists()) {
        puts("1..0 # SKIP no redis-server");
        return 0;
    }
    return check_main(conn_suite());
}
