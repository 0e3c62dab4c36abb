/* check_redis_lost: messages and answers of the Redis server that do not arrive.
 *
 * A mount repeats a request whose answer was lost; the server must not carry it out twice, and no lock may stay held
 * without a holder.
 */
#include "tests/support/check_main.h"
#include "tests/support/relay.h"
#include "tests/unit/hosts_fixture.h"

static struct relay *proxy;

/* Mount 0 is behind the proxy, the others are not. */
static void open_mounts(void)
{
    proxy = relay_to(hosts_loop, redis_server_port(hosts_server));
    hosts_reach_by(relay_port(proxy));
    hosts_until_up(0);
    hosts_reach_by(0);
    hosts_until_up(1);
}

static void setup(void)
{
    hosts_setup();
    open_mounts();
}

/* They give up soon. */
static void setup_in_a_hurry(void)
{
    hosts_setup();
    hosts_hurry();
    open_mounts();
}

static void teardown(void)
{
    hosts_close(0);
    relay_end();
    hosts_teardown();
}

START_TEST(lost_message_costs_each_waiter_no_more_than_a_heartbeat)
{
    static const char *const names[] = {"L", "M", "N", "O"};
    struct hosts_record *holders[G_N_ELEMENTS(names)], *waiters[G_N_ELEMENTS(names)];
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        holders[i] = hosts_get(1, names[i], HOSTS_LONG);
        waiters[i] = hosts_queue(0, names[i], BACKEND_EXCLUSIVE, HOSTS_LONG);
    }
    relay_lose(proxy, "\r\nmessage\r\n", UINT_MAX, false);
    clock_ms released = clock_now();
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        hosts_release(holders[i]);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        HOSTS_UNTIL(waiters[i]->granted);
        ck_assert_int_lt(waiters[i]->at - released, 2300);
    }
    ck_assert_uint_gt(relay_lost(proxy), 0);
}
END_TEST

START_TEST(claim_whose_answer_is_lost_is_granted_once)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG),
                        *waiter = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    uint64_t fence;

    relay_lose(proxy, "granted", 1, true);
    fence = holder->ticket->fence;
    hosts_release(holder);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_uint_eq(relay_lost(proxy), 1);
    ck_assert_uint_gt(waiter->ticket->fence, fence);
    hosts_pass(100);
    ck_assert_uint_eq(waiter->granted, 1);
    ck_assert_int_eq(hosts_stat(1, "L").holders, 1);
    hosts_release(waiter);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

/* It is listed to see whether something was left over, and what its names are: nobody knows then. */
static const char *const unheard[] = {"after", "names"};

START_TEST(removal_of_a_directory_without_a_listing_is_unknown)
{
    struct hosts_done done = {0};
    ck_assert_int_eq(hosts_mkdir(0, "d", NULL), BACKEND_OK);
    hosts_get(1, "d/a", HOSTS_LONG);
    relay_lose_answer(proxy, unheard[_i], UINT_MAX);
    backend_rmdir(hosts_mount(0), "d", hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_UNREACHABLE);
    relay_lose_answer(proxy, unheard[_i], 0);
}
END_TEST

/* Existing locks get it one part after the other. */
START_TEST(lock_delay_that_the_server_cannot_give_to_the_locks_of_a_directory_is_unknown)
{
    struct backend_directory directory = {.width = 1, .delay = 60000};
    struct hosts_done done = {0};
    hosts_get(1, "a", HOSTS_LONG);
    relay_lose_answer(proxy, "after", UINT_MAX);
    backend_set_directory(hosts_mount(0), "", &directory, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_UNREACHABLE);
    relay_lose_answer(proxy, "after", 0);
}
END_TEST

START_TEST(revocation_that_a_key_of_another_type_keeps_from_being_noted_ends_nobody)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG);

    redis_server_do(hosts_server, "SET lfs:e:h:L x");
    ck_assert_int_eq(hosts_revoke(0, "L", holder->ticket->fence), BACKEND_DAMAGED);
    ck_assert_uint_eq(holder->ended, 0);
    redis_server_do(hosts_server, "DEL lfs:e:h:L");
    ck_assert_int_eq(hosts_revoke(0, "L", holder->ticket->fence), BACKEND_OK);
    ck_assert_uint_eq(holder->ended, 1);
    ck_assert_int_gt(redis_server_do(hosts_server, "PTTL lfs:e:h:L"), 0);
}
END_TEST

static void take_over(void *arg, GString *piece)
{
    const struct hosts_record *holder = arg;
    if (strstr(piece->str, "ok") && holder->ended == 0) { /* it says who holds */
        redis_server_do(hosts_server, "SET h:L another PX 60000");
    }
}

START_TEST(revocation_ends_nobody_who_came_after_its_request)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG);

    relay_forge(proxy, take_over, holder);
    ck_assert_int_eq(hosts_revoke(0, "L", 0), BACKEND_OK);
    HOSTS_UNTIL(holder->ended);
    relay_forge(proxy, NULL, NULL);
    ck_assert(hosts_is("h:L", "another"));
    ck_assert_int_eq(hosts_revoke(0, "L", 0), BACKEND_OK);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

static struct hosts_record *ask_range(unsigned mount, uint64_t lock_owner, enum backend_mode mode, uint64_t start,
                                      uint64_t end)
{
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);

    claim.lock_owner = lock_owner;
    claim.mode = mode;
    claim.start = start;
    claim.end = end;
    return hosts_request(mount, "R", &claim);
}

static enum backend_result range_result(uint64_t lock_owner, enum backend_mode mode, uint64_t start, uint64_t end)
{
    struct hosts_record *record = ask_range(1, lock_owner, mode, start, end);

    HOSTS_UNTIL(record->answered);
    return record->result;
}

/* _i: the answers are lost for good, or until others share it: then it stands. */
START_TEST(range_that_cannot_be_exclusive_again_is_shared_or_lost)
{
    struct hosts_record *record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 19), *next;

    HOSTS_UNTIL(record->answered);
    relay_lose(proxy, "granted", UINT_MAX, true);
    next = ask_range(0, 1, BACKEND_SHARED, 10, 19);
    HOSTS_UNTIL(relay_lost(proxy) > 0);
    ck_assert_int_eq(range_result(2, BACKEND_SHARED, 10, 19), BACKEND_OK);
    hosts_pass(HOSTS_HURRY / 2);
    ck_assert(!next->answered);
    if (_i) {
        relay_lose(proxy, "granted", 0, false);
    }
    HOSTS_UNTIL(next->answered);
    ck_assert_int_eq(next->result, _i ? BACKEND_OK : BACKEND_UNREACHABLE);
    ck_assert_uint_eq(record->ended, _i ? 0 : 1);
    if (_i) {
        ck_assert_int_eq(next->ticket->mode, BACKEND_SHARED);
    } else {
        ck_assert_int_eq(record->why, BACKEND_LOST);
        ck_assert_uint_lt(record->when, next->when);
    }
    relay_lose(proxy, "granted", 0, false);
    ck_assert_int_eq(range_result(3, BACKEND_EXCLUSIVE, 10, 19), BACKEND_BUSY);
}
END_TEST

/* _i: it gives back all that it has, or a part, while more is asked for. */
START_TEST(claim_that_crosses_an_unlock_of_its_lock_owner_holds_what_is_reported)
{
    struct hosts_record *record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 29), *next;
    HOSTS_UNTIL(record->answered);
    next = ask_range(0, 1, BACKEND_EXCLUSIVE, 15, 34);
    if (_i == 0) {
        hosts_drop(record);
    } else {
        ck_assert(backend_release_range(hosts_mount(0), record->ticket, 10, 19, NULL, NULL));
    }
    HOSTS_UNTIL(next->answered);
    ck_assert_int_eq(next->result, BACKEND_OK);
    ck_assert_int_eq(range_result(2, BACKEND_SHARED, 10, 14), BACKEND_OK);
    ck_assert_int_eq(range_result(2, BACKEND_SHARED, 15, 15), BACKEND_BUSY);
    ck_assert_int_eq(range_result(2, BACKEND_SHARED, 34, 34), BACKEND_BUSY);
    ck_assert_uint_eq(next->ended, 0);
}
END_TEST

START_TEST(request_of_a_connection_that_was_given_up_is_not_done_late)
{
    struct hosts_record *record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 19);

    HOSTS_UNTIL(record->answered);
    relay_hold_back(proxy, "EVALSHA");
    ck_assert_int_eq(hosts_unlock(0, "R", 1, 10, 19), BACKEND_OK);
    record = ask_range(0, 1, BACKEND_EXCLUSIVE, 10, 19);
    HOSTS_UNTIL(record->answered);
    ck_assert_int_eq(record->result, BACKEND_OK);
    relay_forward_held(proxy);
    hosts_pass(100);
    ck_assert_int_eq(range_result(2, BACKEND_EXCLUSIVE, 10, 19), BACKEND_BUSY);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_lost");
    TCase *tcase = tcase_create("lost"), *never = tcase_create("never answered");

    tcase_set_timeout(tcase, 40);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, lost_message_costs_each_waiter_no_more_than_a_heartbeat);
    tcase_add_test(tcase, claim_whose_answer_is_lost_is_granted_once);
    tcase_add_test(tcase, revocation_that_a_key_of_another_type_keeps_from_being_noted_ends_nobody);
    tcase_add_test(tcase, revocation_ends_nobody_who_came_after_its_request);
    tcase_add_loop_test(tcase, claim_that_crosses_an_unlock_of_its_lock_owner_holds_what_is_reported, 0, 2);
    tcase_add_test(tcase, request_of_a_connection_that_was_given_up_is_not_done_late);
    suite_add_tcase(suite, tcase);

    tcase_set_timeout(never, 40);
    tcase_add_checked_fixture(never, setup_in_a_hurry, teardown);
    tcase_add_loop_test(never, removal_of_a_directory_without_a_listing_is_unknown, 0, G_N_ELEMENTS(unheard));
    tcase_add_test(never, lock_delay_that_the_server_cannot_give_to_the_locks_of_a_directory_is_unknown);
    tcase_add_loop_test(never, range_that_cannot_be_exclusive_again_is_shared_or_lost, 0, 2);
    suite_add_tcase(suite, never);
    return check_main(suite);
}
