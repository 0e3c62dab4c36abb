/* check_redis_hosts: locks that go from one mount of a Redis server to another.
 *
 * Several mounts on one loop; a mount that dies is one that is freed without
 * releasing anything, as after kill -9.
 */
#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"

#define CLAIM 3000 /* ms that who was handed the lock has to claim it: see head.lua */

/* --- order --- */

START_TEST(waiters_get_it_in_the_order_of_their_claims)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG), *waiter[9];
    uint64_t fence = holder->ticket->fence;
    unsigned channels, heard = 0;

    hosts_spy();
    for (unsigned i = 0; i < G_N_ELEMENTS(waiter); i++)
        waiter[i] = hosts_queue((i * 2 + 1) % 5, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    ck_assert_int_eq(hosts_release(holder), BACKEND_OK);
    for (unsigned i = 0; i < G_N_ELEMENTS(waiter); i++) {
        HOSTS_UNTIL(waiter[i]->granted);
        for (unsigned later = i + 1; later < G_N_ELEMENTS(waiter); later++)
            ck_assert_msg(!waiter[later]->granted, "%u was granted before %u", later, i);
        heard += hosts_messages("g ", &channels);
        ck_assert_uint_eq(heard, i + 1); /* one message for one hand-over */
        ck_assert_uint_eq(channels, 1);
        ck_assert_uint_gt(waiter[i]->ticket->fence, fence);
        fence = waiter[i]->ticket->fence;
        ck_assert_int_eq(hosts_release(waiter[i]), BACKEND_OK);
    }
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

START_TEST(hand_over_reports_no_other_mount)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *first = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    struct hosts_record *second = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);

    HOSTS_UNTIL(holder->wanted >= 1);
    hosts_spy();
    hosts_release(holder);
    HOSTS_UNTIL(first->granted);
    ck_assert_uint_eq(hosts_messages("", NULL), 1);
    ck_assert_uint_eq(second->granted, 0);
}
END_TEST

START_TEST(run_of_shared_waiters_is_woken_together)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *one = hosts_queue(1, "L", BACKEND_SHARED, HOSTS_LONG);
    struct hosts_record *two = hosts_queue(2, "L", BACKEND_SHARED, HOSTS_LONG);
    struct hosts_record *by_itself = hosts_queue(3, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    struct hosts_record *last = hosts_queue(1, "L", BACKEND_SHARED, HOSTS_LONG);

    hosts_spy();
    hosts_release(holder);
    HOSTS_UNTIL(one->granted && two->granted);
    ck_assert_uint_eq(hosts_messages("g ", NULL), 2);
    hosts_release(two);
    ck_assert_uint_eq(by_itself->granted, 0);
    hosts_release(one);
    HOSTS_UNTIL(by_itself->granted);
    ck_assert_uint_eq(last->granted, 0);
    hosts_release(by_itself);
    HOSTS_UNTIL(last->granted);
}
END_TEST

START_TEST(no_new_claim_overtakes_those_that_wait)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *holder, *waiter, *barger;

    claim.mode = BACKEND_SHARED;
    holder = hosts_acquire(0, "L", &claim);
    waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    barger = hosts_acquire(2, "L", &claim); /* could hold beside the holder */
    ck_assert_int_eq(barger->result, BACKEND_BUSY);
    hosts_drop(holder);
    barger = hosts_acquire(2, "L", &claim); /* handed over, if not yet claimed */
    ck_assert_int_eq(barger->result, BACKEND_BUSY);
    HOSTS_UNTIL(waiter->granted);
}
END_TEST

/* Another mount that was refused has left the lock with more than uncontended_release.lua takes. */
START_TEST(request_behind_a_release_finds_it_done)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    struct hosts_record *holder = hosts_acquire(0, "L", &claim), *moved = hosts_get(0, "M", HOSTS_LONG);

    ck_assert_int_eq(hosts_acquire(1, "L", &claim)->result, BACKEND_BUSY);
    hosts_drop(holder);
    switch (_i) {
    case 0:
        ck_assert_int_eq(hosts_rename(moved, "L"), BACKEND_OK);
        return;
    case 1:
        claim.mode = BACKEND_SHARED;
        break;
    case 2:
        claim.kind = BACKEND_FCNTL;
        claim.lock_owner = 1;
        claim.end = BACKEND_RANGE_MAX;
        break;
    }
    ck_assert_int_eq(hosts_acquire(0, "L", &claim)->result, BACKEND_OK);
}
END_TEST

START_TEST(lock_is_never_free_during_a_hand_over)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);

    hosts_release(holder);
    if (!waiter->granted) /* a foreign client that polls */
        ck_assert(hosts_exists("h:L"));
    HOSTS_UNTIL(waiter->granted);
    ck_assert(hosts_exists("h:L"));
}
END_TEST

/* --- who died --- */

START_TEST(first_waiter_gets_what_a_dead_mount_held_at_its_deadline)
{
    struct hosts_record *holder = hosts_get(0, "L", 900), *first, *second;
    clock_ms taken = holder->at, late;

    first = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    second = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_close(0);
    HOSTS_UNTIL(first->granted);
    late = first->at - (taken + 900);
    ck_assert_msg(late >= -50 && late < 400, "%lld ms after the deadline", (long long)late);
    ck_assert_uint_eq(second->granted, 0);
}
END_TEST

START_TEST(waiter_that_has_become_the_first_gets_what_a_dead_mount_held)
{
    struct hosts_record *holder = hosts_get(0, "L", 5000), *first, *second; /* between two heartbeats */
    clock_ms deadline = holder->at + 5000;
    first = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    second = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_close(0);
    hosts_release(first);
    HOSTS_UNTIL(second->granted);
    ck_assert_int_ge(second->at - deadline, -50);
    ck_assert_int_lt(second->at - deadline, 800);
}
END_TEST

START_TEST(waiter_whose_mount_died_is_passed_over)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *dead = hosts_queue(1, "L", BACKEND_EXCLUSIVE, 600), *alive;
    clock_ms released;

    alive = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    dead->renews = false;
    hosts_close(1);
    HOSTS_UNTIL(hosts_stat(0, "L").waiters == 1); /* its liveness is over, and was noticed */
    released = clock_now();
    hosts_release(holder);
    HOSTS_UNTIL(alive->granted);
    ck_assert_int_lt(alive->at - released, 500);
}
END_TEST

START_TEST(dead_waiters_cost_no_more_than_one_claim)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG), *alive;
    clock_ms released, took;

    for (unsigned i = 0; i < 5; i++)
        hosts_queue(1, "L", BACKEND_EXCLUSIVE, 2000);
    alive = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_close(1);
    released = clock_now();
    hosts_release(holder); /* the first that is dead counts as alive still */
    HOSTS_UNTIL(alive->granted);
    took = alive->at - released;
    ck_assert_msg(took >= CLAIM - 50 && took < CLAIM + 1200, "it took %lld ms", (long long)took);
}
END_TEST

/* --- what crosses --- */

START_TEST(grant_that_crosses_a_cancel_goes_on_to_the_next)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *gone = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    struct hosts_record *next = hosts_queue(2, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    clock_ms now = clock_now();

    redis_server_pause(hosts_server);
    if (_i == 0) {
        hosts_drop(holder);
        hosts_pass(20); /* it is on its way */
        hosts_drop(gone);
    } else {
        hosts_drop(gone);
        hosts_pass(20);
        hosts_drop(holder);
    }
    hosts_pass(20);
    redis_server_resume(hosts_server);
    HOSTS_UNTIL(next->granted);
    ck_assert_int_lt(next->at - now, 1000);
    ck_assert_uint_eq(gone->granted, 0);
    hosts_release(next);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

START_TEST(message_that_it_holds_finds_nobody)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *gone = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);

    hosts_spy();
    hosts_drop(holder);
    while (hosts_messages("g ", NULL) == 0) /* sends the release; the message is read later */
        ev_run(hosts_loop, EVRUN_NOWAIT);
    if (gone->ticket)
        hosts_drop(gone);
    HOSTS_UNTIL(!hosts_exists("h:L"));
    hosts_get(2, "L", HOSTS_LONG);
}
END_TEST

/* --- what is not claimed --- */

START_TEST(pubsub_connection_that_is_killed_costs_no_hand_over)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    clock_ms released = clock_now();

    redis_server_do(hosts_server, "CLIENT KILL TYPE pubsub");
    hosts_release(holder);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_int_lt(waiter->at - released, 1000);
    ck_assert(hosts_exists("h:L"));
}
END_TEST

/* --- revoking --- */

/* How many ends had been reported when a revocation completed. */
struct seen {
    struct hosts_record *const *of;
    unsigned count, ended;
    bool called;
};

static void on_revoked(void *arg, enum backend_result result)
{
    struct seen *seen = arg;

    ck_assert_int_eq(result, BACKEND_OK);
    seen->called = true;
    for (unsigned i = 0; i < seen->count; i++)
        seen->ended += seen->of[i]->ended;
}

START_TEST(revoking_is_complete_when_holders_of_other_mounts_have_the_event)
{
    for (unsigned i = 0; i < 100; i++) {
        struct hosts_record *holder = hosts_get(i % 2, "L", HOSTS_LONG);
        struct seen seen = {.of = &holder, .count = 1};

        backend_revoke(hosts_mount(2), "L", i % 3 ? holder->ticket->fence : 0, on_revoked, &seen);
        HOSTS_UNTIL(seen.called);
        ck_assert_uint_eq(seen.ended, 1);
    }
}
END_TEST

START_TEST(breaking_is_complete_when_all_that_shared_have_the_event)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);

    claim.mode = BACKEND_SHARED;
    for (unsigned i = 0; i < 30; i++) {
        struct hosts_record *holder[6];
        struct seen seen = {.of = holder, .count = G_N_ELEMENTS(holder)};

        for (unsigned at = 0; at < G_N_ELEMENTS(holder); at++)
            holder[at] = hosts_acquire(at % 3, "L", &claim);
        backend_revoke(hosts_mount(i % 3), "L", 0, on_revoked, &seen);
        HOSTS_UNTIL(seen.called);
        ck_assert_uint_eq(seen.ended, G_N_ELEMENTS(holder));
    }
}
END_TEST

/* --- byte ranges --- */

static struct backend_claim range(uint64_t lock_owner, uint64_t start, uint64_t end, bool wait)
{
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);

    claim.lock_owner = lock_owner;
    claim.start = start;
    claim.end = end;
    claim.wait = wait;
    return claim;
}

static void unlock(unsigned mount, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    ck_assert_int_eq(hosts_unlock(mount, "L", lock_owner, start, end), BACKEND_OK);
}

START_TEST(byte_ranges_exclude_across_mounts)
{
    struct backend_claim low = range(1, 0, 9, false), high = range(1, 10, 19, false);
    struct backend_claim both = range(2, 5, 14, true), middle = range(1, 7, 12, false);
    struct hosts_record *zero, *one, *waiter;

    zero = hosts_acquire(0, "L", &low);
    one = hosts_acquire(1, "L", &high); /* the same lock owner number is another lock owner on another mount */
    ck_assert_int_eq(zero->result, BACKEND_OK);
    ck_assert_int_eq(one->result, BACKEND_OK);
    ck_assert_int_eq(hosts_acquire(1, "L", &middle)->result, BACKEND_BUSY);
    waiter = hosts_acquire(2, "L", &both);
    ck_assert_int_eq(waiter->result, BACKEND_QUEUED);
    unlock(0, 1, 5, 9);
    unlock(1, 1, 15, 19);
    hosts_pass(50);
    ck_assert_uint_eq(waiter->granted, 0);
    unlock(1, 1, 10, 14);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_int_eq(hosts_acquire(1, "L", &high)->result, BACKEND_BUSY);
    unlock(2, 2, 0, BACKEND_RANGE_MAX);
    ck_assert_int_eq(hosts_acquire(1, "L", &high)->result, BACKEND_OK);
    unlock(1, 1, 0, BACKEND_RANGE_MAX);
    unlock(0, 1, 0, BACKEND_RANGE_MAX);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

/* --- sequences --- */

START_TEST(wider_directory_lets_those_in_who_wait_elsewhere)
{
    struct backend_directory directory = {.width = 1};
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *record[4];

    claim.sequence = claim.wait = true;
    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    for (unsigned i = 0; i < G_N_ELEMENTS(record); i++)
        record[i] = hosts_acquire(i, "d/s-", &claim);
    ck_assert_int_eq(record[0]->result, BACKEND_OK);
    ck_assert_int_eq(record[1]->result, BACKEND_QUEUED);
    directory.width = 3;
    ck_assert_int_eq(hosts_set_directory(3, "d", &directory), BACKEND_OK);
    HOSTS_UNTIL(record[1]->granted && record[2]->granted);
    ck_assert_uint_eq(record[3]->granted, 0);
    directory.width = 1;
    ck_assert_int_eq(hosts_set_directory(2, "d", &directory), BACKEND_OK);
    hosts_release(record[1]);
    hosts_release(record[0]); /* those that hold stay; nobody new comes before there is room */
    hosts_pass(50);
    ck_assert_uint_eq(record[3]->granted, 0);
    hosts_release(record[2]);
    HOSTS_UNTIL(record[3]->granted);
}
END_TEST

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    ck_assert_int_eq(result, BACKEND_OK);
    *(enum backend_type *)arg = info->type;
}

START_TEST(shared_lock_is_there_while_one_of_its_holders_lets_go)
{
    struct hosts_record *holders[2];
    enum backend_type type = BACKEND_DIRECTORY;
    for (unsigned i = 0; i < G_N_ELEMENTS(holders); i++) {
        struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
        claim.mode = BACKEND_SHARED;
        holders[i] = hosts_acquire(i, "L", &claim);
        ck_assert_int_eq(holders[i]->result, BACKEND_OK);
    }
    backend_stat(hosts_mount(0), "L", on_known, &type);
    hosts_drop(holders[0]);
    HOSTS_UNTIL(type != BACKEND_DIRECTORY);
    ck_assert_int_eq(type, BACKEND_LOCK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_hosts");
    TCase *tcase = tcase_create("hosts");

    tcase_set_timeout(tcase, 40);
    tcase_add_checked_fixture(tcase, hosts_setup, hosts_teardown);
    tcase_add_test(tcase, waiters_get_it_in_the_order_of_their_claims);
    tcase_add_test(tcase, hand_over_reports_no_other_mount);
    tcase_add_test(tcase, run_of_shared_waiters_is_woken_together);
    tcase_add_test(tcase, no_new_claim_overtakes_those_that_wait);
    tcase_add_loop_test(tcase, request_behind_a_release_finds_it_done, 0, 4);
    tcase_add_test(tcase, lock_is_never_free_during_a_hand_over);
    tcase_add_test(tcase, first_waiter_gets_what_a_dead_mount_held_at_its_deadline);
    tcase_add_test(tcase, waiter_that_has_become_the_first_gets_what_a_dead_mount_held);
    tcase_add_test(tcase, waiter_whose_mount_died_is_passed_over);
    tcase_add_test(tcase, dead_waiters_cost_no_more_than_one_claim);
    tcase_add_loop_test(tcase, grant_that_crosses_a_cancel_goes_on_to_the_next, 0, 2);
    tcase_add_test(tcase, message_that_it_holds_finds_nobody);
    tcase_add_test(tcase, pubsub_connection_that_is_killed_costs_no_hand_over);
    tcase_add_test(tcase, revoking_is_complete_when_holders_of_other_mounts_have_the_event);
    tcase_add_test(tcase, breaking_is_complete_when_all_that_shared_have_the_event);
    tcase_add_test(tcase, byte_ranges_exclude_across_mounts);
    tcase_add_test(tcase, wider_directory_lets_those_in_who_wait_elsewhere);
    tcase_add_test(tcase, shared_lock_is_there_while_one_of_its_holders_lets_go);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
