/* When the loop runs on its caller's processor, which the test says, by a clock of the test.  Where there is one
 * processor, or the priority may not be raised, nobody is followed, and that is what is tested. */
#include <linux/fuse.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fs/daemon/follow.h"
#include "tests/support/check_main.h"

#define US INT64_C(1000)
#define SLOW (30 * US)
#define FAST (5 * US)

#define CALLER 4711
#define OTHER 4712

static struct follow follow;
static int64_t now;
static cpu_set_t all;
static int cpus[2];
static int own_cpu, caller_cpu; /* where the loop runs while it is not bound, and the caller */
static int usual;               /* the priority that this test has, which a build may have lowered */
static bool can;
static unsigned looks;

int __wrap_sched_getcpu(void);
int __wrap_process_cpu(struct process_reader *reader, pid_t tid);

int __wrap_sched_getcpu(void)
{
    return own_cpu;
}

int __wrap_process_cpu(struct process_reader *reader, pid_t tid)
{
    (void)reader;
    ck_assert(tid == CALLER || tid == OTHER);
    looks++;
    return caller_cpu;
}

static void setup(void)
{
    int found = 0;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET((size_t)cpu, &all)) {
            cpus[found++] = cpu;
        }
    }
    usual = getpriority(PRIO_PROCESS, 0);
    can = found == 2 && setpriority(PRIO_PROCESS, 0, FOLLOW_NICE) == 0;
    setpriority(PRIO_PROCESS, 0, usual);
    follow_init(&follow, true);
    now = 1000 * US;
    own_cpu = cpus[0];
    caller_cpu = cpus[found - 1];
    looks = 0;
}

static void teardown(void)
{
    follow_free(&follow);
    sched_setaffinity(0, sizeof all, &all);
    setpriority(PRIO_PROCESS, 0, usual);
}

static void ask(pid_t tid, uint32_t opcode, int64_t gap, int times)
{
    while (times-- > 0) {
        follow_on_request(&follow, tid, opcode, now += gap);
        follow_on_reply(&follow, now += US);
    }
}

static void ask_until_followed(void)
{
    ask(CALLER, FUSE_SETLKW, SLOW, FOLLOW_STREAK + 1);
    ck_assert_int_eq(follow_is_active(&follow), can);
}

static void expect_bound_to(int cpu)
{
    cpu_set_t set;
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    ck_assert_int_eq(CPU_COUNT(&set), 1);
    ck_assert(CPU_ISSET((size_t)cpu, &set));
    ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), FOLLOW_NICE);
}

static void expect_free(void)
{
    cpu_set_t set;
    ck_assert(!follow_is_active(&follow));
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    ck_assert(CPU_EQUAL(&set, &all));
    ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), usual);
}

START_TEST(thread_that_sends_all_requests_is_followed)
{
    ask(CALLER, FUSE_SETLKW, SLOW, FOLLOW_STREAK);
    expect_free();
    ask(CALLER, FUSE_SETLKW, SLOW, 1);
    ck_assert_uint_eq(follow.followed, can);
    if (can) {
        expect_bound_to(cpus[1]);
        ask(CALLER, FUSE_SETLKW, FAST, 10000);
        expect_bound_to(cpus[1]);
        ck_assert_uint_eq(follow.moves, 1);
        ck_assert_uint_eq(looks, 1);
    }
}
END_TEST

START_TEST(caller_that_was_moved_is_followed_behind_its_answer)
{
    ask_until_followed();
    if (can) {
        caller_cpu = cpus[0];
        follow_on_request(&follow, CALLER, FUSE_SETLKW, now += SLOW);
        expect_bound_to(cpus[1]);
        follow_on_reply(&follow, now += US);
        expect_bound_to(cpus[0]);
    }
}
END_TEST

START_TEST(others_end_it)
{
    ask_until_followed();
    ask(OTHER, FUSE_SETLKW, FAST, FOLLOW_CREDIT / FOLLOW_COST);
    expect_free();
}
END_TEST

START_TEST(one_request_of_others_among_many_ends_nothing)
{
    ask_until_followed();
    for (int i = 0; i < 1000; i++) {
        ask(OTHER, FUSE_SETLKW, FAST, 1);
        ask(CALLER, FUSE_SETLKW, FAST, 2 * FOLLOW_COST);
    }
    ck_assert_int_eq(follow_is_active(&follow), can);
}
END_TEST

START_TEST(it_ends_where_it_does_not_help_and_then_waits)
{
    int64_t pause = FOLLOW_PAUSE;
    for (int i = 0; i < 20; i++) {
        ask_until_followed();
        ask(CALLER, FUSE_SETLKW, SLOW, FOLLOW_CREDIT / FOLLOW_COST);
        expect_free();
        if (can) {
            ck_assert_int_ge(follow.retry - now, pause - US);
            ck_assert_int_le(follow.retry - now, pause);
            pause = pause * 2 < FOLLOW_PAUSE_MAX ? pause * 2 : FOLLOW_PAUSE_MAX;
            ask(CALLER, FUSE_SETLKW, SLOW, FOLLOW_STREAK * 2);
            expect_free();
            now = follow.retry;
        }
    }
}
END_TEST

START_TEST(success_forgets_earlier_failures)
{
    ask_until_followed();
    ask(CALLER, FUSE_SETLKW, SLOW, FOLLOW_CREDIT / FOLLOW_COST);
    now += FOLLOW_PAUSE_MAX;
    ask_until_followed();
    ask(CALLER, FUSE_SETLKW, FAST, FOLLOW_LONG / FAST);
    ask(CALLER, FUSE_SETLKW, SLOW, FOLLOW_CREDIT / FOLLOW_COST);
    expect_free();
    ck_assert(!can || follow.retry - now <= FOLLOW_PAUSE);
}
END_TEST

/* Two callers beside programs that compute: each runs for some milliseconds, in turn. */
START_TEST(callers_in_turn_are_followed_ever_more_rarely)
{
    int64_t end = now + 10 * INT64_C(1000000000);
    for (pid_t caller = CALLER; now < end; caller = caller == CALLER ? OTHER : CALLER) {
        ask(caller, FUSE_SETLKW, FAST, 3000 * US / FAST);
    }
    ck_assert_uint_eq(follow.followed > 0, can);
    ck_assert_uint_le(follow.followed, 20);
}
END_TEST

START_TEST(late_requests_say_nothing)
{
    ask(CALLER, FUSE_SETLKW, FOLLOW_SOON + US, 1000);
    expect_free();
    ck_assert_uint_eq(looks, 0);
    ask_until_followed();
    ask(CALLER, FUSE_SETLKW, FOLLOW_SOON + US, 1000);
    ck_assert_int_eq(follow_is_active(&follow), can);
}
END_TEST

/* An execve(2), for which the reader of /proc/PID/stat waits, may wait for the answer: it closes files, and ends
 * asynchronous reads and writes. */
static const uint32_t opcodes_of_execve[] = {FUSE_FLUSH, FUSE_READ, FUSE_WRITE};

START_TEST(nobody_is_looked_at_while_execve_may_wait)
{
    uint32_t opcode = opcodes_of_execve[_i];
    ask(CALLER, opcode, SLOW, 1000);
    ck_assert_uint_eq(looks, 0);
    ask(CALLER, FUSE_SETLKW, SLOW, 1);
    ck_assert_uint_eq(looks, 1);
    if (can) {
        ask(CALLER, opcode, SLOW, 1);
        ck_assert_uint_eq(looks, 1);
    }
}
END_TEST

START_TEST(requests_that_nobody_waits_for_do_not_count)
{
    ask(CALLER, FUSE_RELEASE, SLOW, 1000);
    ask(0, FUSE_SETLKW, SLOW, 1000);
    expect_free();
    ask_until_followed();
    for (int i = 0; i < 1000; i++) { /* what comes behind them is late by their work */
        ask(CALLER, FUSE_RELEASE, SLOW, 1);
        follow_on_request(&follow, CALLER, FUSE_SETLKW, now += FAST);
        follow_on_reply(&follow, now += US);
    }
    ck_assert_int_eq(follow_is_active(&follow), can);
}
END_TEST

START_TEST(caller_on_the_same_processor_is_not)
{
    caller_cpu = own_cpu;
    ask(CALLER, FUSE_SETLKW, SLOW, FOLLOW_STREAK + 1);
    expect_free();
    ck_assert_uint_eq(looks, 1);
    ask(CALLER, FUSE_SETLKW, SLOW, FOLLOW_STREAK * 2); /* and not looked at again at once */
    ck_assert_uint_eq(looks, 1);
}
END_TEST

START_TEST(nobody_is_followed_to_where_the_daemon_may_not_run)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpus[0], &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ask(CALLER, FUSE_SETLKW, SLOW, 1000);
    ck_assert(!follow_is_active(&follow));
    ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), usual);
}
END_TEST

START_TEST(nobody_is_followed_to_a_processor_that_is_not_there)
{
    caller_cpu = CPU_SETSIZE - 1;
    ask(CALLER, FUSE_SETLKW, SLOW, 1000);
    expect_free();
}
END_TEST

START_TEST(nobody_is_followed_unless_wanted)
{
    follow_free(&follow);
    follow_init(&follow, false);
    ask(CALLER, FUSE_SETLKW, SLOW, 1000);
    expect_free();
    ck_assert_uint_eq(looks, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("follow");
    TCase *cases = tcase_create("follow");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, thread_that_sends_all_requests_is_followed);
    tcase_add_test(cases, caller_that_was_moved_is_followed_behind_its_answer);
    tcase_add_test(cases, others_end_it);
    tcase_add_test(cases, one_request_of_others_among_many_ends_nothing);
    tcase_add_test(cases, it_ends_where_it_does_not_help_and_then_waits);
    tcase_add_test(cases, success_forgets_earlier_failures);
    tcase_add_test(cases, callers_in_turn_are_followed_ever_more_rarely);
    tcase_add_test(cases, late_requests_say_nothing);
    tcase_add_loop_test(cases, nobody_is_looked_at_while_execve_may_wait, 0, 3);
    tcase_add_test(cases, requests_that_nobody_waits_for_do_not_count);
    tcase_add_test(cases, caller_on_the_same_processor_is_not);
    tcase_add_test(cases, nobody_is_followed_to_where_the_daemon_may_not_run);
    tcase_add_test(cases, nobody_is_followed_to_a_processor_that_is_not_there);
    tcase_add_test(cases, nobody_is_followed_unless_wanted);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
