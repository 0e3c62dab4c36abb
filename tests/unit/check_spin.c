/* When the loop actively waits for the next request, by a clock of the test. */
#include "fs/daemon/spin.h"
#include "tests/support/check_main.h"

#define US 1e-6
#define LIMIT (25 * US)

static struct ev_loop *loop;
static struct spin spin;
static ev_tstamp now;
static unsigned tries, hits;

static void setup(void)
{
    loop = ev_loop_new(0);
    spin_init(&spin, loop, 0);
    spin.limit = LIMIT; /* on a machine with one processor, too */
    now = 1000;
    tries = hits = 0;
}

static void teardown(void)
{
    spin_stop(&spin);
    ev_loop_destroy(loop);
}

/* An answer, and after that time the next request; the loop polls each microsecond while it does not sleep. */
static void ask_after(ev_tstamp gap)
{
    ev_tstamp then = now + gap;
    tries += spin_on_reply(&spin, now);
    while (ev_is_active(&spin.idle) && now + US < then) {
        now += US;
        spin_on_poll(&spin, now);
    }
    now = then;
    hits += spin_on_request(&spin, now);
}

static void ask_often(ev_tstamp gap, int times)
{
    while (times-- > 0) {
        ask_after(gap);
    }
}

START_TEST(requests_that_come_soon_are_awaited_awake)
{
    ask_after(60 * US); /* asleep, and woken */
    ck_assert_uint_eq(tries, 0);
    ask_often(12 * US, 100);
    ck_assert_uint_eq(tries, 100);
    ck_assert_uint_eq(hits, 100);
}
END_TEST

START_TEST(requests_that_come_at_once_or_late_are_not)
{
    ask_often(4 * US, 1000);
    ask_often(1000 * US, 1000);
    ask_often(1, 1000);
    ck_assert_uint_eq(tries, 0);
}
END_TEST

START_TEST(it_gives_up_where_it_is_in_vain)
{
    ask_often(60 * US, 10 * SPIN_DEBT); /* soon, but later than it spins */
    ck_assert_uint_eq(hits, 0);
    ck_assert_uint_ge(tries, 2);
    ck_assert_uint_le(tries, 11);
}
END_TEST

START_TEST(a_single_miss_among_hits_ends_nothing)
{
    ask_after(60 * US);
    for (int i = 0; i < 20; i++) {
        ask_often(12 * US, 9);
        ask_after(1); /* the process is done, the next one begins */
    }
    ck_assert_uint_eq(tries, 200);
    ck_assert_uint_eq(hits, 180);
}
END_TEST

START_TEST(it_spins_no_longer_than_it_may)
{
    ask_after(60 * US);
    ck_assert(spin_on_reply(&spin, now));
    ck_assert(ev_is_active(&spin.idle));
    spin_on_poll(&spin, now + LIMIT - US);
    ck_assert(ev_is_active(&spin.idle));
    spin_on_poll(&spin, now + LIMIT + US);
    ck_assert(!ev_is_active(&spin.idle));
}
END_TEST

START_TEST(a_second_answer_is_no_second_try)
{
    ask_after(60 * US);
    ck_assert(spin_on_reply(&spin, now));
    ck_assert(!spin_on_reply(&spin, now + US));
    ck_assert(spin_on_request(&spin, now + 2 * US));
    ck_assert(!spin_on_request(&spin, now + 3 * US));
}
END_TEST

START_TEST(where_it_may_not_it_never_spins)
{
    spin.limit = 0;
    ask_often(60 * US, 100);
    ask_often(12 * US, 100);
    ck_assert_uint_eq(tries, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("spin");
    TCase *cases = tcase_create("spin");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, requests_that_come_soon_are_awaited_awake);
    tcase_add_test(cases, requests_that_come_at_once_or_late_are_not);
    tcase_add_test(cases, it_gives_up_where_it_is_in_vain);
    tcase_add_test(cases, a_single_miss_among_hits_ends_nothing);
    tcase_add_test(cases, it_spins_no_longer_than_it_may);
    tcase_add_test(cases, a_second_answer_is_no_second_try);
    tcase_add_test(cases, where_it_may_not_it_never_spins);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
