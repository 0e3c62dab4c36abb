/* check_redis_conn_wait: results are reported when the replicas have confirmed; with a server whose answers to WAIT the
 * check sets. */
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/unit/conn_fixture.h"
#include "tests/unit/fake_redis.h"

#define ALWAYS FAKE_REDIS_ALWAYS
#define REQUESTED "WAIT 2 150"
#define MARK "EVAL redis.call('DEL'" /* the write before it */

static struct fake_redis *fake;

static void setup(void)
{
    conn_setup();
    fake = fake_redis_new(conn_loop);
    conn_options.command_timeout = 300;
    conn_options.wait = 2;
}

static void teardown(void)
{
    fake_redis_free(fake);
    conn_teardown();
}

static void open_up(void)
{
    conn_open_host("127.0.0.1", fake_redis_port(fake));
    conn_until_up();
}

/* Of the commands so far: what was said, each by its first letter, in order. */
static const char *said(void)
{
    static char letters[256];
    char **commands = g_strsplit(fake_redis_commands(fake), ";", -1);
    size_t count = 0;
    for (; commands[count] && count + 1 < sizeof letters; count++) {
        ck_assert(*commands[count] != 'W' || strcmp(commands[count], REQUESTED) == 0);
        letters[count] = g_str_has_prefix(commands[count], MARK) ? 'M' : *commands[count];
    }
    letters[count] = '\0';
    g_strfreev(commands);
    return letters;
}

START_TEST(result_is_reported_when_the_replicas_have_it)
{
    struct conn_answer answer = {0};
    open_up();
    fake_redis_rule(fake, "WAIT", FAKE_REDIS_LATE, 1);
    conn_call(&answer, CONN_COUNT, "a", "");
    conn_pass(100);
    ck_assert_str_eq(said(), "EMW");
    ck_assert_uint_eq(answer.times, 0);
    fake_redis_say(fake, ":2\r\n");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
    ck_assert_int_eq(answer.integer, 1);
    ck_assert(!answer.repeated);
    ck_assert_uint_eq(redis_conn_counts(conn).waits, 1);
    ck_assert_uint_eq(redis_conn_counts(conn).shortfalls, 0);
    ck_assert_uint_eq(answer.times, 1);
}
END_TEST

START_TEST(more_replicas_than_requested_are_enough)
{
    struct conn_answer answer = {0};
    open_up();
    fake_redis_rule(fake, "WAIT", ":3\r\n", 1);
    conn_call(&answer, CONN_COUNT, "a", "");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_ANSWERED);
}
END_TEST

START_TEST(one_wait_closes_all_of_a_turn)
{
    struct conn_answer answers[10] = {0}, plain = {0};
    open_up();
    fake_redis_rule(fake, "WAIT", ":2\r\n", ALWAYS);
    for (size_t i = 0; i < 9; i++) {
        conn_call(&answers[i], CONN_COUNT, "a", "");
    }
    conn_command(&plain, "GET a");
    conn_call(&answers[9], CONN_COUNT, "a", "");
    CONN_UNTIL(answers[9].times);
    ck_assert_str_eq(said(), "EEEEEEEEEGEMW");
    for (unsigned i = 1; i < 10; i++) {
        ck_assert_uint_eq(answers[i].times, 1);
        ck_assert_uint_gt(answers[i].when, answers[i - 1].when);
        ck_assert_uint_gt(answers[i].when, plain.when);
    }
}
END_TEST

/* WAIT holds up what is behind it, and the next is to close as many as may be. */
START_TEST(requests_during_a_wait_for_replicas_leave_with_the_next)
{
    struct conn_answer first = {0}, second = {0}, third = {0};
    open_up();
    fake_redis_rule(fake, "WAIT", FAKE_REDIS_LATE, 1);
    fake_redis_rule(fake, "WAIT", ":2\r\n", 1);
    conn_call(&first, CONN_COUNT, "a", "");
    conn_pass(20);
    conn_call(&second, CONN_COUNT, "a", "");
    conn_pass(20);
    conn_command(&third, "GET a");
    conn_pass(50);
    ck_assert_str_eq(said(), "EMW");
    fake_redis_say(fake, ":2\r\n");
    CONN_UNTIL(second.times && third.times);
    ck_assert_uint_eq(first.times, 1);
    ck_assert_str_eq(said(), "EMWEGMW");
}
END_TEST

static const struct {
    const char *to, *answer;
} shortfalls[] = {{"WAIT", ":0\r\n"},          {"WAIT", ":1\r\n"},
                  {"WAIT", ":-1\r\n"},         {"WAIT", "-UNBLOCKED instance state changed\r\n"},
                  {"WAIT", "+OK\r\n"},         {"WAIT", "*0\r\n"},
                  {MARK, "-BUSY a script\r\n"}};

START_TEST(too_few_replicas_leave_the_outcome_unknown)
{
    struct conn_answer answers[2] = {0}, next = {0}, refused = {0};
    open_up();
    fake_redis_rule(fake, shortfalls[_i].to, shortfalls[_i].answer, 1);
    fake_redis_rule(fake, "WAIT", ":2\r\n", ALWAYS);
    fake_redis_rule(fake, "EVALSHA", ":7\r\n", 2);
    fake_redis_rule(fake, "EVALSHA", "-ERR no\r\n", 1);
    conn_call(&answers[0], CONN_COUNT, "a", "");
    conn_call(&answers[1], CONN_COUNT, "a", "");
    conn_call(&refused, CONN_COUNT, "a", "");
    CONN_UNTIL(answers[1].times);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(answers[i].outcome, REMOTE_UNKNOWN);
        ck_assert_int_eq(answers[i].type, 0);
        ck_assert(!answers[i].repeated);
    }
    ck_assert_int_eq(refused.outcome, REMOTE_REFUSED); /* has changed nothing */
    ck_assert_str_ne(redis_conn_error(conn), "");
    ck_assert_uint_eq(redis_conn_counts(conn).shortfalls, 1);
    ck_assert_uint_eq(conn_reported.downs, 0);
    conn_call(&next, CONN_COUNT, "a", "");
    CONN_UNTIL(next.times);
    ck_assert_int_eq(next.outcome, REMOTE_ANSWERED);
    ck_assert_str_eq(redis_conn_error(conn), "");
    ck_assert_str_eq(said(), "EEEMWEMW");
}
END_TEST

static const char *const ends[] = {FAKE_REDIS_CLOSE, FAKE_REDIS_HALF, FAKE_REDIS_SILENT};

START_TEST(connection_that_is_lost_before_the_replicas_answer_repeats_what_was_answered)
{
    struct conn_answer first = {0}, second = {0}, plain = {0};
    open_up();
    fake_redis_rule(fake, "WAIT", ends[_i], 1);
    fake_redis_rule(fake, "WAIT", ":2\r\n", ALWAYS);
    clock_ms requested = clock_now();
    conn_call(&first, CONN_COUNT, "a", "");
    conn_call(&second, CONN_COUNT, "a", "");
    conn_command(&plain, "GET a");
    CONN_UNTIL(conn_reported.downs);
    clock_ms lost = clock_now();
    ck_assert_uint_eq(first.times + second.times, 0);
    ck_assert_uint_eq(plain.times, 1);
    CONN_UNTIL(second.times);
    ck_assert_str_eq(said(), "EEGMWEEMW");
    ck_assert_uint_lt(first.when, second.when);
    ck_assert(first.repeated && second.repeated);
    ck_assert_int_eq(first.outcome, REMOTE_ANSWERED);
    ck_assert_int_ge(first.sent, MAX(requested, lost)); /* believed from the try that was confirmed */
    ck_assert_int_eq(second.outcome, REMOTE_ANSWERED);
    ck_assert_uint_eq(first.times + second.times, 2);
}
END_TEST

START_TEST(time_that_is_up_before_the_replicas_answer_is_unknown)
{
    struct conn_answer answer = {0};
    conn_options.timeout = 100;
    open_up();
    fake_redis_rule(fake, "WAIT", FAKE_REDIS_LATE, 1);
    conn_call(&answer, CONN_COUNT, "a", "");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_UNKNOWN);
    fake_redis_say(fake, ":2\r\n");
    conn_pass(50);
    ck_assert_uint_eq(answer.times, 1);
    ck_assert_uint_eq(conn_reported.downs, 0);
}
END_TEST

START_TEST(replicas_that_are_never_heard_of_end_the_connection_and_then_the_request)
{
    struct conn_answer answer = {0};
    conn_options.timeout = 1000;
    open_up();
    fake_redis_rule(fake, "WAIT", FAKE_REDIS_SILENT, ALWAYS);
    conn_call(&answer, CONN_COUNT, "a", "");
    CONN_UNTIL(answer.times);
    ck_assert_int_eq(answer.outcome, REMOTE_UNKNOWN);
    ck_assert(answer.repeated);
    ck_assert_uint_ge(conn_reported.downs, 2);
}
END_TEST

START_TEST(request_forgotten_before_the_replicas_answer_is_not_answered)
{
    struct conn_answer answer = {0}, next = {0};
    open_up();
    fake_redis_rule(fake, "WAIT", FAKE_REDIS_LATE, 1);
    fake_redis_rule(fake, "WAIT", ":2\r\n", 1);
    uint64_t id = conn_call(&answer, CONN_COUNT, "a", "");
    conn_pass(50);
    ck_assert_str_eq(said(), "EMW");
    ck_assert(!redis_conn_forget(conn, id)); /* it was carried out */
    conn_call(&next, CONN_COUNT, "a", "");
    fake_redis_say(fake, ":2\r\n");
    CONN_UNTIL(next.times);
    ck_assert_int_eq(next.integer, 4); /* of its scripts, with the mark */ /* the second is WAIT's */
    ck_assert_uint_eq(answer.times, 0);
}
END_TEST

START_TEST(reads_and_mounts_without_wait_ask_no_replicas)
{
    struct conn_answer answer = {0}, other = {0};
    conn_options.wait = _i ? 0 : 2;
    open_up();
    conn_call(&answer, _i ? CONN_COUNT : CONN_ECHO, "a", "");
    conn_command(&other, "INCR a");
    CONN_UNTIL(other.times);
    ck_assert_uint_eq(answer.times, 1);
    ck_assert_str_eq(said(), "EI");
    ck_assert_uint_eq(redis_conn_counts(conn).waits, 0);
}
END_TEST

static Suite *wait_suite(void)
{
    const struct {
        const TTest *test;
        size_t times;
    } tests[] = {
        {result_is_reported_when_the_replicas_have_it, 1},
        {more_replicas_than_requested_are_enough, 1},
        {one_wait_closes_all_of_a_turn, 1},
        {requests_during_a_wait_for_replicas_leave_with_the_next, 1},
        {too_few_replicas_leave_the_outcome_unknown, G_N_ELEMENTS(shortfalls)},
        {connection_that_is_lost_before_the_replicas_answer_repeats_what_was_answered, G_N_ELEMENTS(ends)},
        {time_that_is_up_before_the_replicas_answer_is_unknown, 1},
        {replicas_that_are_never_heard_of_end_the_connection_and_then_the_request, 1},
        {request_forgotten_before_the_replicas_answer_is_not_answered, 1},
        {reads_and_mounts_without_wait_ask_no_replicas, 2},
    };
    Suite *suite = suite_create("redis_conn_wait");
    TCase *tcase = tcase_create("wait");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    for (size_t i = 0; i < G_N_ELEMENTS(tests); i++) {
        tcase_add_loop_test(tcase, tests[i].test, 0, (int)tests[i].times);
    }
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return check_main(wait_suite());
}
