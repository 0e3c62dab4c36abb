/* contract_time: terms, renewals, and what happens at their end. */
#include "tests/contract/contract.h"

static struct backend_ticket *get_for(const char *name, int64_t ttl, int64_t due, struct contract_log *log)
{
    struct backend_claim claim = contract_claim(BACKEND_LEASE, log);

    claim.ttl = ttl;
    claim.due = due;
    return contract_get_soon(name, &claim);
}

static struct backend_ticket *get_short(const char *name, struct contract_log *log)
{
    return get_for(name, CONTRACT_SHORT, 0, log);
}

static void renew(struct backend_ticket *ticket, int64_t ttl, int64_t due)
{
    struct backend_renewal renewal = {.ticket = ticket, .ttl = ttl, .due = due};

    backend_renew(contract_backend, &renewal, 1);
}

START_TEST(lease_ends_at_its_deadline_and_not_before)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = get_short("a", &log);
    clock_ms deadline = ticket->deadline;

    for (;;) {
        bool busy = contract_is_busy("a");

        if (!busy || log.ended)
            break;
        contract_turn();
    }
    ck_assert_int_ge(clock_now(), deadline);
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_eq(log.why, BACKEND_EXPIRED);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert_str_eq(contract_list("", 10), "");
    ck_assert_uint_eq(log.ended, 1);
}
END_TEST

START_TEST(expired_name_has_a_greater_token_when_taken_again)
{
    struct contract_log log = {0}, again = {0};
    uint64_t fence = get_short("a", &log)->fence;

    CONTRACT_UNTIL(log.ended);
    ck_assert_uint_gt(contract_get("a", BACKEND_LEASE, &again)->fence, fence);
}
END_TEST

START_TEST(renewed_lease_outlives_its_first_deadline)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = get_for("a", CONTRACT_TERM, 0, &log);
    clock_ms first = ticket->deadline, acquired = ticket->acquired;

    renew(ticket, CONTRACT_LONG, 0);
    contract_pass(CONTRACT_TERM);
    ck_assert_int_ge(clock_now(), first);
    ck_assert(contract_is_busy("a"));
    ck_assert_uint_eq(log.ended, 0);
    ck_assert_int_eq(ticket->ttl, CONTRACT_LONG);
    ck_assert_int_gt(ticket->deadline, first);
    ck_assert_int_eq(ticket->acquired, acquired);
    ck_assert_int_eq(contract_stat("a").deadline, ticket->deadline);
}
END_TEST

START_TEST(renewal_may_shorten_a_term)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);

    renew(ticket, CONTRACT_TERM, 0);
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_eq(log.why, BACKEND_EXPIRED);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

/* Terms are short when the call is made, however long it took to take so many. */
START_TEST(many_are_renewed_in_one_call)
{
    const unsigned many = contract_many(600);
    static struct contract_log log[600];
    struct backend_renewal *renewals = g_new0(struct backend_renewal, many);
    char name[16];

    for (unsigned i = 0; i < many; i++) {
        struct backend_claim claim = contract_claim(i % 2 ? BACKEND_LEASE : BACKEND_FLOCK, &log[i]);

        g_snprintf(name, sizeof(name), "m%u", i);
        renewals[i] = (struct backend_renewal){.ticket = contract_acquire(name, &claim).ticket, .ttl = CONTRACT_TERM};
        ck_assert_ptr_nonnull(renewals[i].ticket);
    }
    backend_renew(contract_backend, renewals, many);
    for (unsigned i = 0; i < many; i++) {
        ck_assert_int_le(renewals[i].ticket->deadline, clock_now() + CONTRACT_TERM);
        renewals[i].ttl = CONTRACT_LONG;
    }
    backend_renew(contract_backend, renewals, many);
    for (unsigned i = 0; i < many; i++)
        ck_assert_uint_eq(log[i].ended, 0);
    g_free(renewals);
    contract_pass(CONTRACT_TERM);
    for (unsigned i = 0; i < many; i++)
        ck_assert_uint_eq(log[i].ended, 0);
    ck_assert_uint_eq(backend_counts(contract_backend).locks, many);
}
END_TEST

START_TEST(due_is_reported_once_and_before_the_deadline)
{
    struct contract_log log = {0};

    get_for("a", CONTRACT_TERM, CONTRACT_SHORT / 2, &log);
    CONTRACT_UNTIL(log.due);
    ck_assert_uint_eq(log.ended, 0);
    CONTRACT_UNTIL(log.ended);
    ck_assert_uint_eq(log.due, 1);
}
END_TEST

START_TEST(renewal_sets_due_again)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct backend_ticket *ticket;

    claim.due = CONTRACT_SHORT / 4;
    ticket = contract_acquire("a", &claim).ticket;
    for (unsigned i = 1; i <= 3; i++) {
        CONTRACT_UNTIL(log.due == i);
        renew(ticket, CONTRACT_LONG, CONTRACT_SHORT / 4);
    }
    CONTRACT_UNTIL(log.due == 4);
    ck_assert_uint_eq(log.ended, 0);
}
END_TEST

START_TEST(released_lease_reports_nothing_more)
{
    struct contract_log log = {0};

    ck_assert_int_eq(contract_release(get_for("a", CONTRACT_TERM, CONTRACT_TERM / 2, &log)), BACKEND_OK);
    contract_pass(CONTRACT_TERM);
    ck_assert_uint_eq(log.due + log.ended, 0);
}
END_TEST

START_TEST(late_renewal_ends_the_lease_exactly_once)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = get_short("a", &log);

    while (clock_now() < ticket->deadline)
        g_usleep(1000); /* the loop stands still, as after a SIGSTOP */
    renew(ticket, CONTRACT_LONG, 0);
    CONTRACT_UNTIL(log.ended);
    ck_assert(log.why == BACKEND_LOST || log.why == BACKEND_EXPIRED);
    ck_assert(!contract_is_busy("a"));
    ck_assert_uint_eq(log.ended, 1);
}
END_TEST

START_TEST(expired_lease_is_hidden_before_its_end_is_reported)
{
    struct contract_log log = {0}, next = {0};
    struct backend_ticket *ticket = get_short("a", &log);
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("late")};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, NULL);

    while (clock_now() < ticket->deadline)
        g_usleep(1000);
    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_STALE);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_test("a", &claim).type, BACKEND_NOTHING);
    contract_get("a", BACKEND_LEASE, &next);
    CONTRACT_UNTIL(log.ended);
    ck_assert_uint_eq(next.ended, 0);
}
END_TEST

START_TEST(many_that_expire_together_are_all_reported)
{
    const unsigned many = contract_many(2000);
    static struct contract_log log[2000];
    struct contract_log waiting = {0};
    char name[16];

    for (unsigned i = 0; i < many; i++) {
        g_snprintf(name, sizeof(name), "m%u", i);
        get_for(name, CONTRACT_TERM, 0, &log[i]);
    }
    contract_queue(name, BACKEND_EXCLUSIVE, &waiting);
    for (unsigned i = 0; i < many; i++)
        CONTRACT_UNTIL(log[i].ended);
    CONTRACT_UNTIL(waiting.granted);
    for (unsigned i = 0; i < many; i++)
        ck_assert_uint_eq(log[i].ended, 1);
    ck_assert_uint_eq(backend_counts(contract_backend).locks, 1);
}
END_TEST

TCase *contract_time_case(void)
{
    TCase *tcase = tcase_create("time");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup, contract_teardown);
    tcase_add_test(tcase, lease_ends_at_its_deadline_and_not_before);
    tcase_add_test(tcase, expired_name_has_a_greater_token_when_taken_again);
    tcase_add_test(tcase, renewed_lease_outlives_its_first_deadline);
    tcase_add_test(tcase, renewal_may_shorten_a_term);
    if (contract_has(BACKEND_CAN_SHARE)) { /* Redlock loses a lock whose term is shortened and lengthened in one turn */
        tcase_add_test(tcase, many_are_renewed_in_one_call);
    }
    tcase_add_test(tcase, due_is_reported_once_and_before_the_deadline);
    tcase_add_test(tcase, renewal_sets_due_again);
    tcase_add_test(tcase, released_lease_reports_nothing_more);
    tcase_add_test(tcase, late_renewal_ends_the_lease_exactly_once);
    tcase_add_test(tcase, expired_lease_is_hidden_before_its_end_is_reported);
    tcase_add_test(tcase, many_that_expire_together_are_all_reported);
    return tcase;
}
