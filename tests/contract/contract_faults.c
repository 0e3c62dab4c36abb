/* contract_faults: two mounts of a store across a network.  One loses the store for a while.
 *
 * That mount connects through relay.h, which cuts its connections, stops the server for it, or makes it slow; the
 * store's own `restart` is for both.  Each mount renews the locks that are due, as the file system does.
 */
#include <signal.h>

#include "tests/contract/contract.h"
#include "tests/support/relay.h"

enum fault { CUT, STOPPED, SLOW, RESTARTED, FORGOT };

enum { TERM = 2000, MOMENT = 400, TICK = 20, LATE = 100, SOON = 1500, LOCKS = 4 };

static struct contract store;

/* --- locks of either mount --- */

static struct lock {
    struct backend *mount;
    struct backend_ticket *ticket;
    struct contract_log log;
    unsigned renewed;
} locks[LOCKS];

static void on_tick(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)timer, (void)events;
}

static ev_timer tick;

static void turn(void)
{
    contract_turn();
    for (unsigned i = 0; i < LOCKS; i++) {
        struct lock *lock = &locks[i];
        if (lock->ticket && !lock->log.ended && lock->log.due > lock->renewed) {
            const struct backend_renewal renewal = {.ticket = lock->ticket, .ttl = TERM, .due = TERM / 3};
            lock->renewed = lock->log.due;
            backend_renew(lock->mount, &renewal, 1);
        }
    }
}

#define UNTIL(condition)                                                                                               \
    do {                                                                                                               \
        contract_restart_time_limit();                                                                                 \
        while (!(condition))                                                                                           \
            turn();                                                                                                    \
    } while (0)

static void pass(int64_t ms)
{
    clock_ms until = clock_now() + ms;
    UNTIL(clock_now() >= until);
}

/* Exclusive; it is granted, or waits behind another. */
static struct lock *take(struct backend *mount, const char *name)
{
    struct lock *lock = locks;
    while (lock->ticket)
        lock++;
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &lock->log);
    claim.ttl = TERM;
    claim.due = TERM / 3;
    claim.wait = true;
    contract_backend = mount;
    struct contract_acquired acquired = contract_acquire(name, &claim);
    contract_backend = contract_one;
    ck_assert(acquired.result == BACKEND_OK || acquired.result == BACKEND_QUEUED);
    lock->mount = mount;
    lock->ticket = acquired.ticket;
    return lock;
}

static void on_released(void *arg, enum backend_result result)
{
    (void)result;
    *(bool *)arg = true;
    contract_end_turn();
}

/* The answer may come much later, or never. */
static void release(struct lock *lock)
{
    static bool released;
    struct backend_ticket *ticket = lock->ticket;
    lock->ticket = NULL;
    backend_release(lock->mount, ticket, on_released, &released);
}

static bool others_are_refused(const char *name)
{
    contract_backend = contract_other;
    bool busy = contract_is_busy(name);
    contract_backend = contract_one;
    return busy;
}

/* --- faults --- */

/* False: this store has no such fault. */
static bool strike(enum fault fault)
{
    switch (fault) {
    case CUT:
        relay_close();
        return true;
    case STOPPED:
        relay_stop();
        return true;
    case SLOW:
        relay_be_slow(LATE);
        return true;
    default:
        return store.restart && store.restart(fault == FORGOT);
    }
}

/* The time after a fault in which a lock is granted, ms.  A server that was restarted may first wait for the holders.
 */
static int64_t soon(enum fault fault)
{
    return fault == RESTARTED ? SOON + TERM : SOON;
}

static void repair(void)
{
    relay_continue();
    relay_reset();
}

/* --- scenarios --- */

START_TEST(short_fault_loses_nothing)
{
    struct lock *holder = take(contract_one, "L"), *waiter = take(contract_other, "L");

    if (!strike((enum fault)_i))
        return;
    pass(MOMENT);
    ck_assert_uint_eq(holder->log.ended + waiter->log.granted + waiter->log.ended, 0);
    if (_i != SLOW)
        repair();
    pass(TERM);
    ck_assert_uint_eq(holder->log.ended + waiter->log.granted + waiter->log.ended, 0);
    repair();
    release(holder);
    UNTIL(waiter->log.granted);
}
END_TEST

START_TEST(long_fault_loses_what_is_held_in_time_and_the_next_gets_it)
{
    struct lock *holder = take(contract_one, "L"), *waiter = take(contract_other, "L");
    clock_ms deadline = 0;

    if (store.sessions || !strike((enum fault)_i))
        return;
    contract_restart_time_limit();
    while (!holder->log.ended) {
        deadline = holder->ticket->deadline;
        turn();
    }
    ck_assert_int_eq(holder->log.why, BACKEND_LOST);
    ck_assert_int_ge(clock_now(), deadline);
    ck_assert_uint_eq(waiter->log.granted, 0); /* before the holder has heard */
    holder->ticket = NULL;
    UNTIL(waiter->log.granted);
    repair();
    pass(MOMENT);
    ck_assert_uint_eq(waiter->log.ended, 0);
}
END_TEST

START_TEST(waiter_keeps_its_place)
{
    struct lock *holder = take(contract_other, "L"), *first = take(contract_one, "L"),
                *second = take(contract_other, "L");

    if (!contract_can(BACKEND_CAN_SEQUENCE) || !strike((enum fault)_i))
        return;
    pass(MOMENT);
    repair();
    pass(MOMENT);
    ck_assert_uint_eq(first->log.granted + second->log.granted, 0);
    release(holder);
    UNTIL(first->log.granted || second->log.granted);
    ck_assert_uint_eq(second->log.granted, 0);
    release(first);
    UNTIL(second->log.granted);
}
END_TEST

/* A lock that was released while the store was away is free at once, and not only after its term. */
START_TEST(release_during_a_fault_is_done_when_it_is_over)
{
    struct lock *holder = take(contract_one, "L"), *waiter = take(contract_other, "L");

    if (!strike((enum fault)_i))
        return;
    pass(TICK);
    release(holder);
    pass(TICK);
    repair();
    clock_ms repaired = clock_now();
    UNTIL(waiter->log.granted);
    ck_assert_int_lt(clock_now() - repaired, soon((enum fault)_i));
}
END_TEST

START_TEST(grant_during_a_fault_is_found_when_it_is_over)
{
    struct lock *holder = take(contract_other, "L"), *waiter = take(contract_one, "L");

    if (!strike((enum fault)_i))
        return;
    pass(TICK);
    release(holder);
    pass(MOMENT / 2);
    if (_i < SLOW)
        ck_assert_uint_eq(waiter->log.granted, 0);
    repair();
    clock_ms repaired = clock_now();
    UNTIL(waiter->log.granted);
    ck_assert_int_lt(clock_now() - repaired, soon((enum fault)_i));
    ck_assert(others_are_refused("L"));
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
    UNTIL(!others_are_refused("L"));
}
END_TEST

START_TEST(server_that_forgot_gives_nobody_what_is_held)
{
    struct lock *holder = take(contract_one, "L"), *waiter = take(contract_other, "L");

    pass(MOMENT); /* the server knows the term of what is held */
    if (!strike(FORGOT))
        return;
    pass(TERM + MOMENT);
    ck_assert_uint_eq(holder->log.ended + waiter->log.granted + waiter->log.ended, 0);
    release(holder);
    UNTIL(waiter->log.granted);
}
END_TEST

/* It is lost with the term of its mount, which was away; until then nobody else gets it. */
START_TEST(server_that_forgot_while_the_holder_was_away_waits_for_its_term)
{
    struct lock *holder = take(contract_one, "L");

    pass(MOMENT);
    relay_stop();
    if (!strike(FORGOT))
        return;
    struct lock *waiter = take(contract_other, "L");
    UNTIL(holder->log.ended);
    ck_assert_int_eq(holder->log.why, BACKEND_LOST);
    ck_assert_uint_eq(waiter->log.granted, 0);
    holder->ticket = NULL;
    UNTIL(waiter->log.granted);
}
END_TEST

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    contract_use(&store);
    contract_setup_two();
    ev_timer_init(&tick, on_tick, TICK / 1e3, TICK / 1e3);
    ev_timer_start(contract_loop, &tick);
}

static void teardown(void)
{
    ev_timer_stop(contract_loop, &tick);
    backend_free(contract_other);
    contract_backend = contract_one;
    relay_end();
    contract_teardown();
}

TCase *contract_faults_case(const struct contract *subject)
{
    store = *subject;
    store.open = store.open_relayed;

    TCase *tcase = tcase_create("faults");
    tcase_set_timeout(tcase, 60);
    tcase_set_tags(tcase, "faults");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, short_fault_loses_nothing, CUT, RESTARTED + 1);
    tcase_add_loop_test(tcase, long_fault_loses_what_is_held_in_time_and_the_next_gets_it, CUT, STOPPED + 1);
    tcase_add_loop_test(tcase, waiter_keeps_its_place, CUT, RESTARTED + 1);
    tcase_add_loop_test(tcase, release_during_a_fault_is_done_when_it_is_over, CUT, RESTARTED + 1);
    tcase_add_loop_test(tcase, grant_during_a_fault_is_found_when_it_is_over, CUT, RESTARTED + 1);
    tcase_add_test(tcase, claim_that_is_never_answered_leaves_nothing);
    tcase_add_test(tcase, server_that_forgot_gives_nobody_what_is_held);
    tcase_add_test(tcase, server_that_forgot_while_the_holder_was_away_waits_for_its_term);
    return tcase;
}
