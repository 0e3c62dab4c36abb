/* contract_wait: the queue of a lock. */
#include "tests/contract/contract.h"

/* It is granted by the end of what was in its way, not by a heartbeat, which comes 2 s after it queued. */
static void granted_at_once(const struct contract_log *waiting)
{
    enum { AT_ONCE = 1500 };
    clock_ms began = clock_now();
    CONTRACT_UNTIL(waiting->granted);
    if (contract_can(BACKEND_CAN_SEQUENCE)) /* else waiters are not served in order, and ask again and again */
        ck_assert_int_lt(clock_now() - began, AT_ONCE);
}

START_TEST(waiter_is_granted_when_the_holder_releases)
{
    struct contract_log log = {0}, waiting = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);
    struct backend_ticket *waiter = contract_queue("a", BACKEND_EXCLUSIVE, &waiting);

    ck_assert(!waiter->held);
    ck_assert_uint_gt(waiter->fence, ticket->fence);
    ck_assert_uint_eq(contract_stat("a").waiters, 1);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    granted_at_once(&waiting);
    ck_assert(waiter->held);
    ck_assert_ptr_eq(contract_stat("a").ticket, waiter);
    ck_assert_uint_eq(contract_stat("a").waiters, 0);
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(contract_release(waiter), BACKEND_OK);
    ck_assert(!contract_is_busy("a"));
    ck_assert_uint_eq(waiting.granted, 1);
}
END_TEST

START_TEST(waiters_are_granted_first_come_first_served)
{
    enum { WAITERS = 20 };
    struct contract_log first = {0}, log[WAITERS] = {{0}};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &first), *waiter[WAITERS];

    for (int i = 0; i < WAITERS; i++)
        waiter[i] = contract_queue("a", BACKEND_EXCLUSIVE, &log[i]);
    for (int i = 0; i < WAITERS; i++) {
        ck_assert_int_eq(contract_release(i ? waiter[i - 1] : ticket), BACKEND_OK);
        CONTRACT_UNTIL(log[i].granted);
        for (int later = i + 1; later < WAITERS; later++)
            ck_assert_uint_eq(log[later].granted, 0);
    }
}
END_TEST

START_TEST(shared_holders_hold_together)
{
    struct contract_log log[3] = {{0}};
    struct backend_ticket *ticket[3];

    for (int i = 0; i < 3; i++)
        ticket[i] = contract_get_shared("a", BACKEND_FLOCK, &log[i]);
    ck_assert_uint_eq(contract_stat("a").holders, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert(contract_is_busy("a"));
        ck_assert_int_eq(contract_release(ticket[i]), BACKEND_OK);
    }
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(shared_waiters_next_to_each_other_are_granted_together)
{
    struct contract_log log = {0}, shared[3] = {{0}}, exclusive = {0}, behind = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log), *sharing[3], *waiter;

    for (int i = 0; i < 3; i++)
        sharing[i] = contract_queue("a", BACKEND_SHARED, &shared[i]);
    waiter = contract_queue("a", BACKEND_EXCLUSIVE, &exclusive);
    contract_queue("a", BACKEND_SHARED, &behind);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(shared[0].granted && shared[1].granted && shared[2].granted);
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(exclusive.granted, 0);
        ck_assert_int_eq(contract_release(sharing[i]), BACKEND_OK);
    }
    CONTRACT_UNTIL(exclusive.granted);
    ck_assert_uint_eq(behind.granted, 0);
    ck_assert_int_eq(contract_release(waiter), BACKEND_OK);
    CONTRACT_UNTIL(behind.granted);
}
END_TEST

START_TEST(shared_claim_queues_behind_an_exclusive_waiter)
{
    struct contract_log log = {0}, waiting = {0}, late = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &late);

    contract_get_shared("a", BACKEND_FLOCK, &log);
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
}
END_TEST

START_TEST(released_waiter_is_never_granted)
{
    struct contract_log log = {0}, gone = {0}, next = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);
    struct backend_ticket *waiter = contract_queue("a", BACKEND_EXCLUSIVE, &gone);

    contract_queue("a", BACKEND_EXCLUSIVE, &next);
    ck_assert_int_eq(contract_release(waiter), BACKEND_OK);
    ck_assert_uint_eq(contract_stat("a").waiters, 1);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(next.granted);
    ck_assert_uint_eq(gone.granted + gone.ended, 0);
}
END_TEST

/* The grant crosses the release of the waiter: it is given back. */
START_TEST(waiter_released_before_its_grant_is_reported_passes_it_on)
{
    struct contract_log log = {0}, gone = {0}, next = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);
    struct backend_ticket *waiter = contract_queue("a", BACKEND_EXCLUSIVE, &gone);

    contract_queue("a", BACKEND_EXCLUSIVE, &next);
    backend_release(contract_backend, ticket, NULL, NULL);
    backend_release(contract_backend, waiter, NULL, NULL);
    CONTRACT_UNTIL(next.granted);
    ck_assert_uint_eq(gone.granted + gone.ended, 0);
}
END_TEST

static void count_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                           const struct backend_info *holder)
{
    (void)result, (void)ticket, (void)holder;
    ++*(int *)arg;
    contract_end_turn();
}

START_TEST(ticket_may_be_released_before_its_acquire_has_completed)
{
    struct contract_log log = {0}, other = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    int reported = 0, before;
    struct backend_ticket *ticket = backend_acquire(contract_backend, "a", &claim, count_acquired, &reported);

    ck_assert_ptr_nonnull(ticket);
    before = reported;
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    contract_get("b", BACKEND_LEASE, &other);
    ck_assert_int_eq(reported, before);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(waiter_is_reported_to_the_holder)
{
    struct contract_log log = {0}, waiting = {0};

    contract_get("a", BACKEND_FLOCK, &log);
    ck_assert_uint_eq(log.wanted, 0);
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    CONTRACT_UNTIL(log.wanted);
    ck_assert_uint_eq(waiting.wanted, 0);
}
END_TEST

START_TEST(waiter_gets_what_expired)
{
    struct contract_log log = {0}, waiting = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct backend_ticket *ticket;
    clock_ms deadline;

    claim.ttl = CONTRACT_TERM; /* it is queued before that has ended */
    ticket = contract_acquire("a", &claim).ticket;
    deadline = ticket->deadline;
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    CONTRACT_UNTIL(waiting.granted && log.ended);
    ck_assert_int_ge(clock_now(), deadline);
    ck_assert_int_eq(log.why, BACKEND_EXPIRED);
}
END_TEST

START_TEST(waiter_that_is_not_renewed_leaves_the_queue)
{
    struct contract_log log = {0}, dead = {0}, alive = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &dead);

    claim.wait = true;
    claim.ttl = CONTRACT_SHORT;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    contract_queue("a", BACKEND_EXCLUSIVE, &alive);
    CONTRACT_UNTIL(dead.ended);
    ck_assert_uint_eq(contract_stat("a").waiters, 1);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(alive.granted);
    ck_assert_uint_eq(dead.granted, 0);
}
END_TEST

START_TEST(waiter_whose_mount_stood_still_goes_on_waiting)
{
    struct contract_log log = {0}, waiting = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &waiting);
    struct backend_renewal renewal = {.ttl = CONTRACT_LONG};

    claim.wait = true;
    claim.ttl = CONTRACT_SHORT;
    claim.due = CONTRACT_SHORT / 3;
    renewal.ticket = contract_acquire("a", &claim).ticket;
    while (clock_now() <= renewal.ticket->deadline)
        g_usleep(1000);
    CONTRACT_UNTIL(waiting.due || waiting.ended);
    ck_assert_uint_eq(waiting.ended, 0);
    backend_renew(contract_backend, &renewal, 1);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted || waiting.ended);
    ck_assert_uint_eq(waiting.ended, 0);
}
END_TEST

START_TEST(downgrade_lets_shared_waiters_in)
{
    struct contract_log log = {0}, waiting[2] = {{0}};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);

    contract_queue("a", BACKEND_SHARED, &waiting[0]);
    contract_queue("a", BACKEND_SHARED, &waiting[1]);
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    granted_at_once(&waiting[0]);
    granted_at_once(&waiting[1]);
    ck_assert_uint_eq(contract_stat("a").holders, 3);
}
END_TEST

START_TEST(term_of_a_waiter_begins_again_with_its_grant)
{
    struct contract_log log = {0}, waiting = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);
    struct backend_ticket *waiter = contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    clock_ms queued_until = waiter->deadline;

    contract_pass(CONTRACT_SHORT);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_int_gt(waiter->deadline, queued_until);
}
END_TEST

TCase *contract_wait_case(void)
{
    TCase *tcase = tcase_create("wait");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup, contract_teardown);
    tcase_add_test(tcase, waiter_is_granted_when_the_holder_releases);
    tcase_add_test(tcase, waiters_are_granted_first_come_first_served);
    tcase_add_test(tcase, released_waiter_is_never_granted);
    tcase_add_test(tcase, waiter_released_before_its_grant_is_reported_passes_it_on);
    tcase_add_test(tcase, ticket_may_be_released_before_its_acquire_has_completed);
    tcase_add_test(tcase, waiter_is_reported_to_the_holder);
    tcase_add_test(tcase, waiter_gets_what_expired);
    tcase_add_test(tcase, waiter_that_is_not_renewed_leaves_the_queue);
    tcase_add_test(tcase, waiter_whose_mount_stood_still_goes_on_waiting);
    tcase_add_test(tcase, term_of_a_waiter_begins_again_with_its_grant);
    if (contract_has(BACKEND_CAN_SHARE)) {
        tcase_add_test(tcase, shared_holders_hold_together);
        tcase_add_test(tcase, shared_waiters_next_to_each_other_are_granted_together);
        tcase_add_test(tcase, shared_claim_queues_behind_an_exclusive_waiter);
        tcase_add_test(tcase, downgrade_lets_shared_waiters_in);
    }
    return tcase;
}
