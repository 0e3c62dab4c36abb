/* contract_faults: two mounts of a store across a network.  One loses the store for a while.
 *
 * That mount connects through relay.h, which cuts its connections, stops the server for it, loses what goes one way, or
 * makes it slow; the store's own `restart` is for both.
 */
#include <signal.h>

#include "tests/contract/contract_locks.h"
#include "tests/support/relay.h"

enum fault { TOO_SLOW, CUT, STOPPED, DEAF, MUTE, SLOW, RESTARTED, FORGOT };

enum { TERM = LOCK_TERM, MOMENT = 400, TICK = 20, LATE = 100, SOON = 1500, STARTS = 5000 };

static struct contract store;

/* --- faults --- */

static void strike(enum fault fault)
{
    switch (fault) {
    case TOO_SLOW: /* to renew within a term */
        relay_be_slow(TERM + MOMENT);
        break;
    case DEAF:
        relay_be_deaf();
        break;
    case MUTE:
        relay_be_mute();
        break;
    case CUT:
        relay_close();
        break;
    case STOPPED:
        relay_stop();
        break;
    case SLOW:
        relay_be_slow(LATE);
        break;
    default:
        store.restart(fault == FORGOT);
    }
}

/* The time after a fault in which a lock is granted, ms.  A server that was restarted may first wait for the holders.
 */
static int64_t soon(enum fault fault)
{
    return fault == RESTARTED ? SOON + STARTS + TERM : SOON;
}

static void repair(void)
{
    relay_continue();
    relay_reset();
}

/* lock_take with a term that outlasts the fault, for which the loop does not run: a server may take a while to start.
 */
static struct lock *take_before(enum fault fault, struct backend *mount, const char *name)
{
    struct backend_claim claim = lock_claim(BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    claim.ttl = fault == RESTARTED ? STARTS + TERM : TERM;
    struct lock *lock = lock_ask(mount, name, &claim);
    ck_assert(lock->result == BACKEND_OK || lock->result == BACKEND_QUEUED);
    return lock;
}

/* --- scenarios --- */

START_TEST(short_fault_loses_nothing)
{
    struct lock *holder = take_before((enum fault)_i, contract_one, "L"),
                *waiter = take_before((enum fault)_i, contract_other, "L");

    strike((enum fault)_i);
    lock_pass(MOMENT);
    ck_assert_uint_eq(holder->log.ended + waiter->log.granted + waiter->log.ended, 0);
    if (_i != SLOW)
        repair();
    lock_pass(TERM);
    ck_assert_uint_eq(holder->log.ended + waiter->log.granted + waiter->log.ended, 0);
    repair();
    lock_release(holder);
    LOCK_UNTIL(waiter->log.granted);
}
END_TEST

START_TEST(long_fault_loses_what_is_held_in_time_and_the_next_gets_it)
{
    struct lock *holder = lock_take(contract_one, "L"), *waiter = lock_take(contract_other, "L");
    clock_ms deadline = 0;

    strike((enum fault)_i);
    contract_restart_time_limit();
    while (!holder->log.ended) {
        deadline = holder->ticket->deadline;
        lock_turn();
    }
    ck_assert_int_eq(holder->log.why, BACKEND_LOST);
    ck_assert_int_ge(clock_now(), deadline);
    ck_assert_uint_eq(waiter->log.granted, 0); /* before the holder has heard */
    holder->ticket = NULL;
    LOCK_UNTIL(waiter->log.granted);
    repair();
    lock_pass(MOMENT);
    ck_assert_uint_eq(waiter->log.ended, 0);
    struct backend_claim claim = lock_claim(BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    LOCK_UNTIL(lock_ask(contract_one, "M", &claim)->result == BACKEND_OK); /* the mount is well again */
}
END_TEST

START_TEST(waiter_keeps_its_place)
{
    struct lock *holder = take_before((enum fault)_i, contract_other, "L"),
                *first = take_before((enum fault)_i, contract_one, "L"),
                *second = take_before((enum fault)_i, contract_other, "L");

    strike((enum fault)_i);
    lock_pass(MOMENT);
    repair();
    lock_pass(MOMENT);
    ck_assert_uint_eq(first->log.granted + second->log.granted, 0);
    lock_release(holder);
    LOCK_UNTIL(first->log.granted || second->log.granted);
    ck_assert_uint_eq(second->log.granted, 0);
    lock_release(first);
    LOCK_UNTIL(second->log.granted);
}
END_TEST

/* A lock that was released while the store was away is free at once, and not only after its term. */
START_TEST(release_during_a_fault_is_done_when_it_is_over)
{
    struct lock *holder = take_before((enum fault)_i, contract_one, "L"),
                *waiter = take_before((enum fault)_i, contract_other, "L");

    strike((enum fault)_i);
    lock_pass(TICK);
    lock_release(holder);
    lock_pass(TICK);
    repair();
    clock_ms repaired = clock_now();
    LOCK_UNTIL(waiter->log.granted);
    ck_assert_int_lt(clock_now() - repaired, soon((enum fault)_i));
}
END_TEST

START_TEST(grant_during_a_fault_is_found_when_it_is_over)
{
    struct lock *holder = take_before((enum fault)_i, contract_other, "L"),
                *waiter = take_before((enum fault)_i, contract_one, "L");

    strike((enum fault)_i);
    lock_pass(TICK);
    lock_release(holder);
    lock_pass(MOMENT / 2);
    if (_i < SLOW)
        ck_assert_uint_eq(waiter->log.granted, 0);
    repair();
    clock_ms repaired = clock_now();
    LOCK_UNTIL(waiter->log.granted);
    ck_assert_int_lt(clock_now() - repaired, soon((enum fault)_i));
    ck_assert(lock_is_busy_at(contract_other, "L"));
}
END_TEST

enum { UNCONTENDED, WITH_A_WAITER, IN_A_QUEUE, CASES };

/* Its process is dead, so nobody renews it; and each new connection verifies it. */
START_TEST(lease_that_nobody_renews_ends_while_the_connection_is_cut_again_and_again)
{
    struct backend_claim claim = lock_claim(BACKEND_LEASE, BACKEND_EXCLUSIVE);
    claim.sequence = _i == IN_A_QUEUE;
    const char *name = claim.sequence ? "q-" : "L";
    struct lock *holder = lock_ask(contract_one, name, &claim),
                *waiter = _i == UNCONTENDED ? NULL : lock_ask(contract_other, name, &claim);
    clock_ms taken = clock_now(), cut = taken;
    holder->fixed = true;
    while (waiter ? !waiter->log.granted : lock_stat_at(contract_other, name).type != BACKEND_NOTHING) {
        ck_assert_int_lt(clock_now() - taken, TERM + 2 * SOON);
        if (clock_now() - cut > MOMENT) {
            cut = clock_now();
            relay_reset();
        }
        lock_turn();
    }
    LOCK_UNTIL(holder->log.ended);
    ck_assert_int_ge(clock_now() - taken, TERM / 2);
}
END_TEST

/* The server has done what it was asked to, and the answer is lost. */
START_TEST(claim_that_is_never_answered_leaves_nothing)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);

    ck_assert(!contract_is_busy("elsewhere")); /* its mount is there */
    relay_be_deaf();
    ck_assert_int_eq(contract_acquire("L", &claim).result, BACKEND_UNREACHABLE);
    repair();
    LOCK_UNTIL(!lock_is_busy_at(contract_other, "L"));
}
END_TEST

/* A store of sessions promises nothing then, but goes on. */
START_TEST(server_that_forgot_has_lost_all_sessions)
{
    struct lock *holder = lock_take(contract_one, "L"), *waiter = lock_take(contract_other, "L");
    uint64_t fence = holder->ticket->fence;

    strike(FORGOT);
    LOCK_UNTIL(holder->log.ended && waiter->log.granted);
    ck_assert_int_eq(holder->log.why, BACKEND_LOST);
    ck_assert_uint_gt(waiter->ticket->fence, fence);
    LOCK_UNTIL(lock_is_reached_from(contract_one)); /* its session may begin later than the other's */
    ck_assert(lock_is_busy_at(contract_one, "L"));
}
END_TEST

START_TEST(server_that_forgot_gives_nobody_what_is_held)
{
    struct lock *holder = lock_take(contract_one, "L"), *waiter = lock_take(contract_other, "L");

    lock_pass(MOMENT); /* the server knows the term of what is held */
    strike(FORGOT);
    lock_pass(TERM + MOMENT);
    ck_assert_uint_eq(holder->log.ended + waiter->log.granted + waiter->log.ended, 0);
    lock_release(holder);
    LOCK_UNTIL(waiter->log.granted);
}
END_TEST

/* It is lost with the term of its mount, which was away; until then nobody else gets it. */
START_TEST(server_that_forgot_while_the_holder_was_away_waits_for_its_term)
{
    struct lock *holder = lock_take(contract_one, "L");

    lock_pass(MOMENT);
    relay_stop();
    strike(FORGOT);
    struct lock *waiter = lock_take(contract_other, "L");
    LOCK_UNTIL(holder->log.ended);
    ck_assert_int_eq(holder->log.why, BACKEND_LOST);
    ck_assert_uint_eq(waiter->log.granted, 0);
    holder->ticket = NULL;
    LOCK_UNTIL(waiter->log.granted);
}
END_TEST

/* The holder's mount is stopped, deaf, mute or slow: it hears of the break if reports reach it. */
START_TEST(break_through_the_other_mount_waits_for_that_of_the_holder_for_a_while)
{
    struct lock *holder = lock_take(contract_one, "L");

    lock_pass(MOMENT); /* PostgreSQL knows the mount by its first heartbeat */
    strike((enum fault)_i);
    clock_ms begun = clock_now();
    contract_backend = contract_other;
    ck_assert_int_eq(contract_revoke("L", 0), BACKEND_OK);
    contract_backend = contract_one;
    if (_i != MUTE) { /* a store without reports does not tell it */
        ck_assert_uint_eq(holder->log.ended, _i == SLOW);
    }
    ck_assert_int_lt(clock_now() - begun, SOON);
    repair();
    LOCK_UNTIL(holder->log.ended);
}
END_TEST

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    contract_use(&store);
    contract_setup_two();
}

static void setup_restarts(void)
{
    if (store.begin_own_servers)
        store.begin_own_servers();
    setup();
}

static void teardown(void)
{
    relay_end();
    lock_teardown();
}

static void teardown_restarts(void)
{
    teardown();
    if (store.end_own_servers)
        store.end_own_servers();
}

TCase *contract_faults_case(const struct contract *subject)
{
    store = *subject;
    store.open = store.open_relayed;

    TCase *tcase = tcase_create("faults");
    tcase_set_timeout(tcase, 60);
    tcase_set_tags(tcase, "faults");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, short_fault_loses_nothing, CUT, SLOW + 1);
    if (!store.sessions) { /* which last longer */
        tcase_add_loop_test(tcase, long_fault_loses_what_is_held_in_time_and_the_next_gets_it, TOO_SLOW, MUTE + 1);
    }
    if (contract_has(BACKEND_CAN_SEQUENCE)) {
        tcase_add_loop_test(tcase, waiter_keeps_its_place, CUT, SLOW + 1);
    }
    tcase_add_loop_test(tcase, release_during_a_fault_is_done_when_it_is_over, CUT, SLOW + 1);
    tcase_add_loop_test(tcase, grant_during_a_fault_is_found_when_it_is_over, CUT, SLOW + 1);
    tcase_add_loop_test(tcase, lease_that_nobody_renews_ends_while_the_connection_is_cut_again_and_again, UNCONTENDED,
                        contract_has(BACKEND_CAN_SEQUENCE) ? CASES : IN_A_QUEUE);
    tcase_add_test(tcase, claim_that_is_never_answered_leaves_nothing);
    if (!store.sessions) { /* ZooKeeper tells the holder's mount a moment later */
        tcase_add_loop_test(tcase, break_through_the_other_mount_waits_for_that_of_the_holder_for_a_while, STOPPED,
                            SLOW + 1);
    }
    return tcase;
}

TCase *contract_restarts_case(const struct contract *subject)
{
    store = *subject;
    store.open = store.open_relayed;

    TCase *tcase = tcase_create("restarts");
    tcase_set_timeout(tcase, 60);
    tcase_set_tags(tcase, "faults");
    tcase_add_checked_fixture(tcase, setup_restarts, teardown_restarts);
    tcase_add_loop_test(tcase, short_fault_loses_nothing, RESTARTED, RESTARTED + 1);
    if (contract_has(BACKEND_CAN_SEQUENCE)) {
        tcase_add_loop_test(tcase, waiter_keeps_its_place, RESTARTED, RESTARTED + 1);
    }
    tcase_add_loop_test(tcase, release_during_a_fault_is_done_when_it_is_over, RESTARTED, RESTARTED + 1);
    tcase_add_loop_test(tcase, grant_during_a_fault_is_found_when_it_is_over, RESTARTED, RESTARTED + 1);
    if (store.sessions) {
        tcase_add_test(tcase, server_that_forgot_has_lost_all_sessions);
    } else {
        tcase_add_test(tcase, server_that_forgot_gives_nobody_what_is_held);
        tcase_add_test(tcase, server_that_forgot_while_the_holder_was_away_waits_for_its_term);
    }
    return tcase;
}
