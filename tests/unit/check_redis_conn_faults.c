/* check_redis_conn_faults: a redis_conn with a server that misbehaves. */
#include <stdio.h>
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/unit/conn_fixture.h"
#include "tests/unit/fake_redis.h"

#define ALWAYS FAKE_REDIS_ALWAYS

static struct fake_redis *fake;

static void setup(void)
{
    conn_setup();
    fake = fake_redis_new(conn_loop);
    conn_options.command_timeout = 300;
}

static void teardown(void)
{
    fake_redis_free(fake);
    conn_teardown();
}

static void open_fake(void)
{
    conn_open_host("127.0.0.1", fake_redis_port(fake));
}

static void open_up(void)
{
    open_fake();
    conn_until_up();
}

/* --- without memory: hiredis does not end the program then --- */

static unsigned none_left; /* the next calls of hiredis that have no memory */

redisContext *__real_redisConnectFd(int fd);
redisContext *__wrap_redisConnectFd(int fd);
int __real_redisAppendFormattedCommand(redisContext *c, const char *command, size_t length);
int __wrap_redisAppendFormattedCommand(redisContext *c, const char *command, size_t length);

redisContext *__wrap_redisConnectFd(int fd)
{
    if (none_left == 0)
        return __real_redisConnectFd(fd);
    none_left--;
    return NULL;
}

int __wrap_redisAppendFormattedCommand(redisContext *c, const char *command, size_t length)
{
    if (none_left == 0)
        return __real_redisAppendFormattedCommand(c, command, length);
    none_left--;
    c->err = REDIS_ERR_OOM;
    g_strlcpy(c->errstr, "Out of memory", sizeof c->errstr);
    return REDIS_ERR;
}

START_TEST(connection_that_there_is_no_memory_for_is_tried_again)
{
    none_left = 1;
    open_fake();
    CONN_UNTIL(strstr(redis_conn_error(conn), "Cannot allocate memory"));
    conn_until_up();
}
END_TEST

START_TEST(request_that_there_is_no_memory_for_ends_the_connection)
{
    struct conn_answer answer = {0};

    open_up();
    none_left = 1;
    conn_command(&answer, "INCR a");
    CONN_UNTIL(conn_reported.downs);
    ck_assert_str_eq(conn_reported.why, "Out of memory");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED); /* on the next */
}
END_TEST

/* --- replies that do not come --- */

static const char *const ends[] = {FAKE_REDIS_CLOSE, FAKE_REDIS_HALF, FAKE_REDIS_RESET, FAKE_REDIS_SILENT,
                                   "this is no reply\r\n"};

START_TEST(request_whose_reply_is_lost_is_repeated_and_says_so)
{
    struct conn_answer answer = {0};
    clock_ms requested;

    open_up();
    fake_redis_rule(fake, "INCR", ends[_i], 1);
    requested = clock_now();
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
    ck_assert(answer.repeated);
    ck_assert_int_eq(answer.integer, 2);
    ck_assert_int_ge(answer.sent, requested);
    ck_assert_str_eq(fake_redis_commands(fake), "INCR a;INCR a");
    ck_assert_uint_eq(conn_reported.downs, 1);
    ck_assert_str_ne(conn_reported.why, "");
    conn_get("PING");
    ck_assert_uint_eq(answer.times, 1);
}
END_TEST

/* Else what is on its way is carried out later, behind what is said on the next one. */
START_TEST(connection_that_is_given_up_is_reset)
{
    struct conn_answer answer = {0};
    open_up();
    fake_redis_rule(fake, "INCR", FAKE_REDIS_SILENT, 1);
    conn_command(&answer, "INCR a");
    CONN_UNTIL(conn_reported.downs);
    CONN_UNTIL(fake_redis_resets(fake) >= 2);
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
}
END_TEST

START_TEST(no_reply_at_all_is_unknown)
{
    struct conn_answer answer = {0};
    clock_ms requested;

    conn_options.timeout = 1000;
    open_up();
    fake_redis_rule(fake, "INCR", FAKE_REDIS_SILENT, ALWAYS);
    requested = clock_now();
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_UNKNOWN);
    ck_assert(answer.repeated);
    ck_assert_int_ge(clock_now(), requested + 1000);
    ck_assert_int_ge(answer.sent, requested);
    ck_assert_uint_gt(fake_redis_connections(fake), 2);
}
END_TEST

START_TEST(reply_after_its_time_is_passed_over)
{
    struct conn_answer late = {0}, next = {0};

    conn_options.timeout = 100;
    conn_options.command_timeout = 5000;
    open_up();
    fake_redis_rule(fake, "INCR a", FAKE_REDIS_LATE, 1);
    conn_command(&late, "INCR a");
    CONN_UNTIL(late.times);
    ck_assert_int_eq(late.outcome, REMOTE_UNKNOWN);
    ck_assert(!late.repeated);
    fake_redis_rule(fake, "INCR b", ":100\r\n:200\r\n", 1);
    conn_command(&next, "INCR b");
    CONN_UNTIL(next.times);
    ck_assert_int_eq(next.integer, 200);
    ck_assert_uint_eq(late.times, 1);
    ck_assert_uint_eq(conn_reported.downs, 0);
}
END_TEST

START_TEST(request_that_never_left_is_reported_as_not_sent)
{
    struct conn_answer answer = {0};

    conn_options.timeout = 200;
    fake_redis_rule(fake, "SCRIPT LOAD", FAKE_REDIS_CLOSE, ALWAYS);
    open_fake();
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_NOT_SENT);
    ck_assert(!answer.repeated);
    ck_assert_int_eq(answer.sent, 0);
    ck_assert_str_eq(fake_redis_commands(fake), "");
}
END_TEST

START_TEST(what_left_before_the_server_went_away_is_unknown)
{
    struct conn_answer answer = {0};

    conn_options.timeout = 500;
    open_up();
    fake_redis_rule(fake, "INCR", FAKE_REDIS_CLOSE, 1);
    fake_redis_rule(fake, "SCRIPT LOAD", FAKE_REDIS_CLOSE, ALWAYS);
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_UNKNOWN);
    ck_assert_str_eq(fake_redis_commands(fake), "INCR a");
}
END_TEST

/* --- errors that pass --- */

static const char *const passing[] = {
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-BUSY Redis is busy running a script\r\n",
    "-MASTERDOWN Link with MASTER is down\r\n",
    "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    "-NOREPLICAS Not enough good replicas to write.\r\n",
    "-CLUSTERDOWN The cluster is down\r\n",
    "-ERR Script killed by user with SCRIPT KILL... script: 0, on @user_script:1.\r\n",
    "-ASK 3999 127.0.0.1:6381\r\n"};

START_TEST(passing_error_is_tried_again)
{
    struct conn_answer answer = {0};

    open_up();
    fake_redis_rule(fake, "INCR", passing[_i], 3);
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
    ck_assert(!answer.repeated); /* it was refused */
    ck_assert_str_eq(fake_redis_commands(fake), "INCR a;INCR a;INCR a;INCR a");
    ck_assert_uint_eq(conn_reported.downs, 0);
}
END_TEST

START_TEST(passing_error_that_lasts_is_reported)
{
    struct conn_answer answer = {0};

    conn_options.timeout = 300;
    open_up();
    fake_redis_rule(fake, "INCR", passing[_i], ALWAYS);
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_REFUSED);
    ck_assert_msg(strstr(passing[_i], answer.text), "%s", answer.text);
}
END_TEST

START_TEST(passing_error_after_a_lost_reply_is_unknown)
{
    struct conn_answer answer = {0};

    conn_options.timeout = 300;
    open_up();
    fake_redis_rule(fake, "INCR", FAKE_REDIS_CLOSE, 1);
    fake_redis_rule(fake, "INCR", passing[0], ALWAYS);
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_UNKNOWN);
}
END_TEST

static const char *const elsewhere[] = {"-READONLY You can't write against a read only replica.\r\n",
                                        "-MOVED 3999 127.0.0.1:6381\r\n"};

START_TEST(server_that_has_the_data_no_more_is_looked_for_and_connected_to_again)
{
    struct conn_answer answer = {0};

    open_up();
    fake_redis_rule(fake, "INCR", elsewhere[_i], 1);
    conn_command(&answer, "INCR a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
    ck_assert(!answer.repeated);
    ck_assert_uint_eq(conn_reported.downs, 1);
    ck_assert_uint_eq(fake_redis_connections(fake), 4);
}
END_TEST

START_TEST(script_that_the_server_lost_is_sent_with_its_text)
{
    struct conn_answer answer = {0};
    char *expected = g_strdup_printf("EVAL %s 1 a b ", CONN_COUNT->text);

    open_up();
    fake_redis_rule(fake, "EVALSHA", "-NOSCRIPT No matching script. Please use EVAL.\r\n", ALWAYS);
    conn_call(&answer, CONN_COUNT, "a", "b");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
    ck_assert(!answer.repeated);
    ck_assert(g_str_has_suffix(fake_redis_commands(fake), expected));
    g_free(expected);
    fake_redis_rule(fake, "EVAL ", "-NOSCRIPT No matching script. Please use EVAL.\r\n", ALWAYS);
    answer = (struct conn_answer){0};
    conn_call(&answer, CONN_COUNT, "a", "b");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_REFUSED);
}
END_TEST

/* --- order --- */

static struct conn_answer from_up;

static void ask_from_up(void)
{
    conn_command(&from_up, "UP");
}

START_TEST(after_a_reconnect_requests_of_up_go_first_and_the_rest_in_order)
{
    struct conn_answer answers[4] = {{0}};

    memset(&from_up, 0, sizeof(from_up));
    conn_reported.on_up = ask_from_up;
    open_up();
    CONN_UNTIL(from_up.times);
    fake_redis_clear(fake);
    fake_redis_rule(fake, "ONE", passing[0], 1);
    fake_redis_rule(fake, "TWO", FAKE_REDIS_SILENT, 1);
    fake_redis_rule(fake, "THREE", FAKE_REDIS_CLOSE, 1);
    conn_command(&answers[0], "ONE");
    conn_command(&answers[1], "TWO");
    conn_command(&answers[2], "THREE");
    CONN_UNTIL(strstr(fake_redis_commands(fake), "THREE"));
    fake_redis_clear(fake);
    CONN_UNTIL(conn_reported.downs);
    conn_command(&answers[3], "FOUR");
    CONN_UNTIL(answers[3].times);
    ck_assert_str_eq(fake_redis_commands(fake), "UP;ONE;TWO;THREE;FOUR");
    ck_assert(!answers[0].repeated);
    ck_assert(answers[1].repeated);
    ck_assert(answers[2].repeated);
    ck_assert(!answers[3].repeated);
}
END_TEST

START_TEST(forgotten_while_away_is_not_sent_again)
{
    struct conn_answer answers[3] = {{0}};
    uint64_t ids[3];

    open_up();
    fake_redis_rule(fake, "A", FAKE_REDIS_SILENT, 1);
    fake_redis_rule(fake, "B", FAKE_REDIS_CLOSE, 1);
    ids[0] = conn_command(&answers[0], "A");
    ids[1] = conn_command(&answers[1], "B");
    CONN_UNTIL(strstr(fake_redis_commands(fake), "B"));
    ck_assert(!redis_conn_forget(conn, ids[0]));
    CONN_UNTIL(conn_reported.downs);
    ids[2] = conn_command(&answers[2], "C");
    ck_assert(!redis_conn_forget(conn, ids[1])); /* perhaps it was carried out */
    ck_assert(redis_conn_forget(conn, ids[2]));
    conn_get("D");
    ck_assert_str_eq(fake_redis_commands(fake), "A;B;D");
    ck_assert_uint_eq(answers[0].times + answers[1].times + answers[2].times, 0);
}
END_TEST

START_TEST(reply_of_a_forgotten_request_is_not_given_to_the_next)
{
    struct conn_answer forgotten = {0};
    uint64_t id;

    open_up();
    id = conn_command(&forgotten, "A");
    CONN_UNTIL(redis_conn_counts(conn).requests == 1);
    redis_conn_forget(conn, id);
    ck_assert_int_eq(conn_get("B").integer, 2);
    ck_assert_uint_eq(forgotten.times, 0);
}
END_TEST

static uint64_t to_forget;

static void forget_other(void *arg, const struct redis_answer *answer)
{
    unsigned *times = arg;

    ck_assert_int_eq(answer->outcome, REMOTE_NOT_SENT);
    redis_conn_forget(conn, to_forget);
    (*times)++;
}

START_TEST(answer_may_forget_another_pending_one)
{
    const struct redis_argument word = {"A", 1};
    unsigned times = 0;
    struct conn_answer last = {0};

    fake_redis_rule(fake, "SCRIPT LOAD", FAKE_REDIS_CLOSE, ALWAYS);
    open_fake();
    redis_conn_command(conn, &word, 1, 50, forget_other, &times);
    to_forget = redis_conn_command(conn, &word, 1, 50, forget_other, &times);
    redis_conn_command(conn, &word, 1, 50, forget_other, &times);
    CONN_UNTIL(times == 2);
    fake_redis_behave(fake);
    conn_command(&last, "B");
    CONN_UNTIL(last.times);
    ck_assert_uint_eq(times, 2);
    ck_assert_str_eq(fake_redis_commands(fake), "B");
}
END_TEST

START_TEST(requests_of_one_turn_leave_in_one_write)
{
    struct conn_answer answers[100] = {{0}};
    unsigned reads;

    open_up();
    reads = fake_redis_reads(fake);
    for (int i = 0; i < 100; i++)
        conn_command(&answers[i], "INCR a");
    CONN_UNTIL(answers[99].times);
    ck_assert_uint_eq(fake_redis_reads(fake), reads + 1);
}
END_TEST

/* --- coming up --- */

START_TEST(server_that_loads_is_waited_for)
{
    fake_redis_rule(fake, "SCRIPT LOAD", passing[0], 4);
    open_fake();
    CONN_UNTIL(g_str_has_prefix(redis_conn_error(conn), "SCRIPT LOAD: LOADING "));
    ck_assert_uint_eq(conn_reported.ups, 0);
    conn_until_up();
    ck_assert_uint_eq(conn_reported.downs, 0);
}
END_TEST

START_TEST(silence_while_coming_up_is_an_end)
{
    fake_redis_rule(fake, "CLIENT ID", FAKE_REDIS_SILENT, 1);
    open_fake();
    CONN_UNTIL(g_str_has_prefix(redis_conn_error(conn), "no answer for 300 ms"));
    conn_until_up();
}
END_TEST

START_TEST(refusals_are_met_with_longer_and_longer_pauses)
{
    fake_redis_rule(fake, "SUBSCRIBE", "-NOPERM this user has no permissions\r\n", ALWAYS);
    open_fake();
    conn_pass(1000);
    ck_assert_str_eq(redis_conn_error(conn), "SUBSCRIBE: NOPERM this user has no permissions");
    ck_assert_uint_ge(fake_redis_connections(fake), 4);
    ck_assert_uint_le(fake_redis_connections(fake), 10); /* 20, 40, ... ms, each 50 % less at best */
}
END_TEST

START_TEST(connection_that_was_steady_is_made_again_at_once)
{
    clock_ms away = 0;

    open_up();
    fake_redis_rule(fake, "INCR", FAKE_REDIS_CLOSE, ALWAYS);
    for (unsigned i = 1; i <= 7; i++) {
        struct conn_answer answer = {0};
        uint64_t id;

        conn_pass(220);
        id = conn_command(&answer, "INCR a");
        CONN_UNTIL(conn_reported.downs == i);
        redis_conn_forget(conn, id);
        away -= clock_now();
        conn_until_up();
        away += clock_now();
    }
    ck_assert_int_lt(away, 700); /* pauses that grew would come to 1 s at least */
}
END_TEST

START_TEST(password_that_a_server_repeats_is_not_shown)
{
    conn_options.password = "secret";
    fake_redis_rule(fake, "AUTH", "-ERR unknown command 'AUTH', with args beginning with: 'secret'\r\n", ALWAYS);
    open_fake();
    CONN_UNTIL(g_str_has_prefix(redis_conn_error(conn), "AUTH: "));
    ck_assert_ptr_null(strstr(redis_conn_error(conn), "secret"));
}
END_TEST

START_TEST(server_without_tracking_and_names_is_used_all_the_same)
{
    struct conn_answer answer = {0};

    fake_redis_rule(fake, "CLIENT CACHING", FAKE_REDIS_CLOSE, ALWAYS); /* is not asked for */
    fake_redis_rule(fake, "CLIENT", "-ERR Syntax error, try CLIENT (LIST | KILL)\r\n", ALWAYS);
    open_up();
    conn_watch(&answer, "a");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
    ck_assert_str_eq(fake_redis_commands(fake), "EXISTS a");
    ck_assert_uint_eq(conn_reported.downs, 0);
}
END_TEST

static const char *const replies_to_info[] = {
    "$20\r\nid=3 addr=x:1 name=a\r\n", "$4\r\nid=3\r\n", "$9\r\nid=3 ad b\r\n", "$6\r\ni ad b\r\n",
    "-NOPERM no permissions\r\n",      ":1\r\n"};

START_TEST(refusal_of_an_optional_command_is_reported_once)
{
    fake_redis_rule(fake, "CLIENT KILL", "-ERR no such client\r\n", ALWAYS);
    fake_redis_rule(fake, "CLIENT INFO", replies_to_info[_i], ALWAYS);
    fake_redis_rule(fake, "INCR", FAKE_REDIS_CLOSE, 2);
    open_up();
    ck_assert_int_eq(conn_get("INCR a").outcome, REMOTE_ANSWERED);
    ck_assert_uint_eq(conn_reported.downs, 2);
}
END_TEST

static const struct {
    const char *command, *error, *words;
} refused[] = {{"CLIENT SETNAME", "-NOAUTH Authentication required.\r\n", "CLIENT SETNAME: NOAUTH"},
               {"CLIENT SETNAME", "-MASTERDOWN Link with MASTER is down\r\n", "CLIENT SETNAME: MASTERDOWN"},
               {"CLIENT ID", "-LOADING Redis is loading\r\n", "CLIENT ID: LOADING"},
               {"CLIENT INFO", "-LOADING Redis is loading\r\n", "CLIENT INFO: LOADING"}};

START_TEST(refusal_of_all_while_coming_up_is_waited_for)
{
    fake_redis_rule(fake, refused[_i].command, refused[_i].error, 1);
    open_fake();
    CONN_UNTIL(strstr(redis_conn_error(conn), refused[_i].words));
    conn_until_up();
}
END_TEST

START_TEST(message_in_the_midst_of_the_set_up_does_no_harm)
{
    fake_redis_rule(fake, "SUBSCRIBE lfs:me",
                    "*3\r\n$9\r\nsubscribe\r\n$6\r\nlfs:me\r\n:1\r\n"
                    "*3\r\n$7\r\nmessage\r\n$6\r\nlfs:me\r\n$3\r\ntoo\r\n",
                    1);
    open_up();
    ck_assert_uint_eq(conn_reported.messages, 0);
    fake_redis_push(fake, "*3\r\n$7\r\nmessage\r\n$6\r\nlfs:me\r\n$4\r\nthis\r\n");
    CONN_UNTIL(conn_reported.messages);
    ck_assert_str_eq(conn_reported.message, "this");
}
END_TEST

START_TEST(unrequested_reply_ends_the_connection)
{
    struct conn_answer answer = {0};

    open_up();
    fake_redis_rule(fake, "INCR", ":1\r\n-ERR max number of clients\x07 reached\r\n", 1);
    conn_command(&answer, "INCR a");
    CONN_UNTIL(conn_reported.downs);
    ck_assert_str_eq(conn_reported.why, "ERR max number of clients\\x07 reached");
    ck_assert_uint_eq(answer.times, 1);
    conn_until_up();
}
END_TEST

START_TEST(strange_messages_are_passed_over)
{
    open_up();
    fake_redis_push(fake, "*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n");
    fake_redis_push(fake, "*3\r\n$7\r\nmessage\r\n$6\r\nlfs:me\r\n*0\r\n");
    fake_redis_push(fake, "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*2\r\n:1\r\n$1\r\na\r\n");
    fake_redis_push(fake, "*0\r\n:7\r\n+OK\r\n*-1\r\n$-1\r\n");
    fake_redis_push(fake, "*3\r\n$7\r\nmessage\r\n$6\r\nlfs:me\r\n$4\r\nlast\r\n");
    CONN_UNTIL(conn_reported.messages);
    ck_assert_str_eq(conn_reported.message, "last");
    ck_assert_str_eq(conn_reported.key, "a");
    ck_assert_uint_eq(conn_reported.downs, 0);
}
END_TEST

START_TEST(silent_connection_of_messages_is_given_up_only_if_waited_on)
{
    conn_options.command_timeout = 100;
    open_up();
    fake_redis_rule(fake, "PING", FAKE_REDIS_SILENT, ALWAYS);
    conn_pass(600);
    ck_assert_uint_eq(conn_reported.downs, 0);
    redis_conn_keep(conn, 1);
    CONN_UNTIL(conn_reported.downs);
    ck_assert_str_eq(conn_reported.why, "no answer for 100 ms");
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *const *tests, const size_t *loops, size_t count)
{
    TCase *tcase = tcase_create(name);

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    for (size_t i = 0; i < count; i++)
        tcase_add_loop_test(tcase, tests[i], 0, loops && loops[i] ? (int)loops[i] : 1);
    suite_add_tcase(suite, tcase);
}

static Suite *faults_suite(void)
{
    const TTest *const replies[] = {
        request_whose_reply_is_lost_is_repeated_and_says_so,
        passing_error_is_tried_again,
        passing_error_that_lasts_is_reported,
        server_that_has_the_data_no_more_is_looked_for_and_connected_to_again,
        connection_that_is_given_up_is_reset,
        no_reply_at_all_is_unknown,
        reply_after_its_time_is_passed_over,
        request_that_never_left_is_reported_as_not_sent,
        what_left_before_the_server_went_away_is_unknown,
        passing_error_after_a_lost_reply_is_unknown,
        script_that_the_server_lost_is_sent_with_its_text,
    };
    const size_t loops[G_N_ELEMENTS(replies)] = {G_N_ELEMENTS(ends), G_N_ELEMENTS(passing), G_N_ELEMENTS(passing),
                                                 G_N_ELEMENTS(elsewhere)};
    const TTest *const order[] = {
        after_a_reconnect_requests_of_up_go_first_and_the_rest_in_order,
        forgotten_while_away_is_not_sent_again,
        reply_of_a_forgotten_request_is_not_given_to_the_next,
        answer_may_forget_another_pending_one,
        requests_of_one_turn_leave_in_one_write,
    };
    const TTest *const up[] = {
        refusal_of_an_optional_command_is_reported_once,
        refusal_of_all_while_coming_up_is_waited_for,
        connection_that_there_is_no_memory_for_is_tried_again,
        request_that_there_is_no_memory_for_ends_the_connection,
        server_that_loads_is_waited_for,
        silence_while_coming_up_is_an_end,
        refusals_are_met_with_longer_and_longer_pauses,
        connection_that_was_steady_is_made_again_at_once,
        password_that_a_server_repeats_is_not_shown,
        server_without_tracking_and_names_is_used_all_the_same,
        message_in_the_midst_of_the_set_up_does_no_harm,
        unrequested_reply_ends_the_connection,
        strange_messages_are_passed_over,
        silent_connection_of_messages_is_given_up_only_if_waited_on,
    };
    const size_t up_loops[G_N_ELEMENTS(up)] = {G_N_ELEMENTS(replies_to_info), G_N_ELEMENTS(refused)};
    Suite *suite = suite_create("redis_conn_faults");

    add(suite, "replies", replies, loops, G_N_ELEMENTS(replies));
    add(suite, "order", order, NULL, G_N_ELEMENTS(order));
    add(suite, "up", up, up_loops, G_N_ELEMENTS(up));
    return suite;
}

int main(void)
{
    return check_main(faults_suite());
}
