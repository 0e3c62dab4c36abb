/* contract_guard: guards.  A lock that was broken, or released by its token, is lost for its holder at once, and nobody
 * else gets it yet. */
#include <stdio.h>

#include "tests/contract/contract.h"

/* Of a process 1 of user 7, with a guard of so many ms. */
static GBytes *guard_meta(int64_t guard)
{
    char text[128];

    snprintf(text, sizeof text, "1 host 1 1 7 7 100644 %lld - boot - command", (long long)(guard * BACKEND_GUARD_UNIT));
    return contract_bytes(text);
}

static struct backend_claim guard_claim(enum backend_kind kind, int64_t guard, struct contract_log *log)
{
    struct backend_claim claim = contract_claim(kind, log);

    claim.meta = guard_meta(guard);
    return claim;
}

static struct backend_ticket *guard_get(const char *name, enum backend_kind kind, int64_t guard,
                                        struct contract_log *log)
{
    struct backend_claim claim = guard_claim(kind, guard, log);
    struct contract_acquired acquired = contract_acquire(name, &claim);

    ck_assert_msg(acquired.result == BACKEND_OK, "%s: %s", name, backend_result_name(acquired.result));
    return acquired.ticket;
}

/* It waits; a store without an order of waiters may report that later. */
static struct backend_ticket *guard_queue(const char *name, struct contract_log *log)
{
    return contract_queue(name, BACKEND_EXCLUSIVE, log);
}

/* Loop: 0 a break, 1 by token; + 2 for a lease, which has no waiter. */
START_TEST(what_is_revoked_is_lost_at_once_and_refused_until_it_is_revoked_again)
{
    struct contract_log log = {0}, waiting = {0};
    enum backend_kind kind = _i & 2 ? BACKEND_LEASE : BACKEND_FLOCK;
    struct backend_claim claim = guard_claim(kind, BACKEND_GUARD_MAX, &log);
    uint64_t fence;
    struct backend_info info;

    claim.content = contract_bytes("text");
    fence = contract_acquire("a", &claim).ticket->fence;
    guard_queue("a", &waiting);
    ck_assert_int_eq(contract_revoke("a", _i & 1 ? fence : 0), BACKEND_OK);
    ck_assert_uint_eq(log.ended, 1);
    ck_assert_int_eq(log.why, _i & 1 ? BACKEND_RELEASED : BACKEND_BROKEN);
    ck_assert(log.guarded);
    contract_pass(CONTRACT_SHORT);
    ck_assert_uint_eq(waiting.granted, 0);
    ck_assert(contract_is_busy("a"));
    info = contract_stat("a");
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_ptr_null(info.ticket);
    ck_assert(info.guarded);
    ck_assert_int_eq(info.kind, kind);
    ck_assert_uint_eq(info.fence, fence);
    ck_assert_uint_eq(info.holders, 1);
    ck_assert(contract_equal(info.content, "text"));
    ck_assert(info.meta && g_bytes_equal(info.meta, claim.meta));
    ck_assert_str_eq(contract_list("", 10), "a");

    ck_assert_int_eq(contract_revoke_matching("a", 0, 5, "7"), BACKEND_BUSY);
    ck_assert_int_eq(contract_revoke_matching("a", fence, 0, ""), BACKEND_BUSY);
    ck_assert_int_eq(contract_revoke("a", fence + 1000), BACKEND_STALE);
    ck_assert_uint_eq(waiting.granted, 0);
    ck_assert_int_eq(contract_revoke("a", _i & 1 ? 0 : fence), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_uint_eq(log.ended, 1);
    ck_assert_uint_eq(waiting.ended, 0);
}
END_TEST

START_TEST(guard_ends_with_its_time)
{
    struct contract_log log = {0}, waiting = {0};
    clock_ms since;

    guard_get("a", BACKEND_FLOCK, 4 * CONTRACT_SHORT, &log);
    guard_queue("a", &waiting);
    since = clock_now();
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_int_ge(clock_now() - since, 4 * CONTRACT_SHORT);
    ck_assert_int_lt(clock_now() - since, CONTRACT_LONG / 4);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_LOCK);
}
END_TEST

START_TEST(guard_of_what_nobody_waits_for_ends_with_its_time)
{
    struct contract_log log = {0};

    guard_get("a", BACKEND_LEASE, CONTRACT_SHORT, &log);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    contract_pass(2 * CONTRACT_SHORT);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert(!contract_is_busy("a"));
    ck_assert_str_eq(contract_list("", 10), "");
}
END_TEST

START_TEST(guard_ends_with_the_term_as_it_was)
{
    struct contract_log log = {0};
    struct backend_claim claim = guard_claim(BACKEND_LEASE, BACKEND_GUARD_MAX, &log);

    claim.ttl = CONTRACT_TERM;
    contract_get_soon("a", &claim);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    ck_assert(contract_is_busy("a"));
    contract_pass(CONTRACT_TERM + CONTRACT_SHORT);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(guard_can_be_set_later_changed_and_taken_back)
{
    struct contract_log log = {0}, other = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    struct backend_change change = {.set = BACKEND_SET_META, .meta = guard_meta(BACKEND_GUARD_MAX)};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);

    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_OK);
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK); /* without meta: that stays */
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    ck_assert(!contract_is_busy("a"));

    ticket = guard_get("b", BACKEND_FLOCK, BACKEND_GUARD_MAX, &other);
    change.meta = guard_meta(0);
    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_OK);
    ck_assert_int_eq(contract_revoke("b", 0), BACKEND_OK);
    ck_assert(!other.guarded);
    ck_assert(!contract_is_busy("b"));
}
END_TEST

START_TEST(what_its_holder_gives_back_or_what_expires_has_no_guard)
{
    struct contract_log log = {0}, expired = {0};
    struct backend_claim claim = guard_claim(BACKEND_LEASE, BACKEND_GUARD_MAX, &expired);

    ck_assert_int_eq(contract_release(guard_get("a", BACKEND_FLOCK, BACKEND_GUARD_MAX, &log)), BACKEND_OK);
    ck_assert(!contract_is_busy("a"));
    claim.ttl = CONTRACT_SHORT;
    contract_get_soon("b", &claim);
    CONTRACT_UNTIL(expired.ended);
    ck_assert(!expired.guarded);
    contract_pass(CONTRACT_SHORT);
    ck_assert(!contract_is_busy("b"));
}
END_TEST

START_TEST(revoking_one_that_shares_leaves_its_guard_beside_the_others)
{
    struct contract_log log[3] = {{0}}, waiting = {0};
    struct backend_claim claim = guard_claim(BACKEND_FLOCK, BACKEND_GUARD_MAX, &log[0]);
    uint64_t fence;

    claim.mode = BACKEND_SHARED;
    fence = contract_acquire("a", &claim).ticket->fence;
    contract_get_shared("a", BACKEND_FLOCK, &log[1]);
    ck_assert_int_eq(contract_revoke("a", fence), BACKEND_OK);
    ck_assert_uint_eq(log[0].ended, 1);
    ck_assert_uint_eq(log[1].ended, 0);
    contract_get_shared("a", BACKEND_FLOCK, &log[2]); /* what it could have been beside */
    guard_queue("a", &waiting);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK); /* the others, which have no guard */
    ck_assert_uint_eq(log[1].ended, 1);
    ck_assert_uint_eq(log[2].ended, 1);
    ck_assert_uint_eq(waiting.granted, 0);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
}
END_TEST

START_TEST(guard_of_a_byte_range_is_of_that_range)
{
    struct contract_log log = {0}, other = {0}, waiting = {0}, again = {0};
    struct backend_claim claim = guard_claim(BACKEND_FCNTL, BACKEND_GUARD_MAX, &log);
    uint64_t fence;

    claim.lock_owner = 1;
    claim.handle = 1;
    claim.end = 9;
    fence = contract_acquire("a", &claim).ticket->fence;
    ck_assert_int_eq(contract_revoke("a", fence), BACKEND_OK);
    ck_assert_uint_eq(log.ended, 1);

    claim.user = &other;
    claim.lock_owner = 2;
    claim.handle = 2;
    claim.start = 10;
    claim.end = 19;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    claim.user = &waiting;
    claim.start = 0;
    claim.end = 9;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    claim.user = &again;
    claim.lock_owner = 1; /* not its own any more */
    claim.handle = 1;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    ck_assert_int_eq(contract_revoke("a", fence), BACKEND_OK);
    CONTRACT_UNTIL(again.granted);
    ck_assert_uint_eq(other.ended, 0);
}
END_TEST

START_TEST(guard_of_a_sequence_ticket_keeps_its_name_and_its_place)
{
    struct contract_log log[3] = {{0}};
    struct backend_ticket *ticket[3];
    struct backend_claim claim = guard_claim(BACKEND_FLOCK, BACKEND_GUARD_MAX, NULL);
    char name[64];

    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    claim.sequence = claim.wait = true;
    for (int i = 0; i < 3; i++) {
        claim.user = &log[i];
        ticket[i] = contract_acquire("q/job-", &claim).ticket;
    }
    ck_assert(backend_ticket_name(contract_backend, ticket[0], name, sizeof name));
    ck_assert_int_eq(contract_revoke(name, 0), BACKEND_OK);
    ck_assert_uint_eq(log[0].ended, 1);
    contract_pass(CONTRACT_SHORT);
    ck_assert_uint_eq(log[1].granted, 0);
    ck_assert_int_eq(contract_stat(name).type, BACKEND_LOCK);
    ck_assert_uint_eq(contract_stat(name).holders, 1);
    ck_assert_int_eq(contract_revoke(name, 0), BACKEND_OK);
    CONTRACT_UNTIL(log[1].granted);
    ck_assert_int_eq(contract_stat(name).type, BACKEND_NOTHING);
    ck_assert_uint_eq(log[2].granted, 0);

    ck_assert(
        backend_ticket_name(contract_backend, ticket[2], name, sizeof name)); /* one that waits has nothing to guard */
    ck_assert_int_eq(contract_revoke(name, 0), BACKEND_OK);
    CONTRACT_UNTIL(log[2].ended);
    ck_assert_int_eq(contract_stat(name).type, BACKEND_NOTHING);
}
END_TEST

START_TEST(lock_delay_begins_when_the_guard_ends)
{
    struct contract_log log = {0};
    struct backend_directory delayed = {.width = 1, .delay = CONTRACT_TERM};

    ck_assert_int_eq(contract_mkdir("d", &delayed), BACKEND_OK);
    guard_get("d/a", BACKEND_FLOCK, BACKEND_GUARD_MAX, &log);
    ck_assert_int_eq(contract_revoke("d/a", 0), BACKEND_OK);
    ck_assert_int_eq(contract_stat("d/a").type, BACKEND_LOCK);
    ck_assert_int_eq(contract_revoke("d/a", 0), BACKEND_OK);
    ck_assert_int_eq(contract_stat("d/a").type, BACKEND_NOTHING);
    ck_assert(contract_is_busy("d/a"));
    contract_pass(CONTRACT_TERM + CONTRACT_SHORT);
    ck_assert(!contract_is_busy("d/a"));
}
END_TEST

START_TEST(nothing_is_renamed_over_a_guard)
{
    struct contract_log log[2] = {{0}};
    struct backend_ticket *ticket;

    guard_get("a", BACKEND_LEASE, BACKEND_GUARD_MAX, &log[0]);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    ticket = contract_get("b", BACKEND_LEASE, &log[1]);
    ck_assert_int_eq(contract_rename(ticket, "a"), BACKEND_BUSY);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    ck_assert_int_eq(contract_rename(ticket, "a"), BACKEND_OK);
}
END_TEST

TCase *contract_guard_case(void)
{
    TCase *tcase = tcase_create("guard");

    tcase_add_checked_fixture(tcase, contract_setup, contract_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, what_is_revoked_is_lost_at_once_and_refused_until_it_is_revoked_again, 0, 4);
    tcase_add_test(tcase, guard_ends_with_its_time);
    tcase_add_test(tcase, guard_of_what_nobody_waits_for_ends_with_its_time);
    tcase_add_test(tcase, guard_ends_with_the_term_as_it_was);
    tcase_add_test(tcase, guard_can_be_set_later_changed_and_taken_back);
    tcase_add_test(tcase, what_its_holder_gives_back_or_what_expires_has_no_guard);
    if (contract_has(BACKEND_CAN_SHARE)) {
        tcase_add_test(tcase, revoking_one_that_shares_leaves_its_guard_beside_the_others);
        tcase_add_test(tcase, lock_delay_begins_when_the_guard_ends);
    }
    if (contract_has(BACKEND_CAN_RANGE)) {
        tcase_add_test(tcase, guard_of_a_byte_range_is_of_that_range);
    }
    if (contract_has(BACKEND_CAN_SEQUENCE)) {
        tcase_add_test(tcase, guard_of_a_sequence_ticket_keeps_its_name_and_its_place);
    }
    if (contract_has(BACKEND_CAN_RENAME)) {
        tcase_add_test(tcase, nothing_is_renamed_over_a_guard);
    }
    return tcase;
}

START_TEST(guard_keeps_off_other_mounts_and_may_be_ended_by_them)
{
    struct contract_log log = {0}, waiting = {0};
    uint64_t fence = guard_get("a", BACKEND_FLOCK, BACKEND_GUARD_MAX, &log)->fence;

    contract_backend = contract_other;
    guard_queue("a", &waiting);
    contract_backend = _i & 1 ? contract_one : contract_other;
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_eq(log.why, BACKEND_BROKEN);
    ck_assert(log.guarded);
    contract_pass(CONTRACT_SHORT);
    ck_assert_uint_eq(waiting.granted, 0);
    contract_backend = contract_other;
    ck_assert(contract_is_busy("a"));
    ck_assert_uint_eq(contract_stat("a").fence, fence);
    contract_backend = contract_one;
    ck_assert(contract_is_busy("a"));
    ck_assert_ptr_null(contract_stat("a").ticket);
    contract_backend = _i & 2 ? contract_one : contract_other;
    ck_assert_int_eq(contract_revoke("a", fence), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_uint_eq(log.ended, 1);
}
END_TEST

START_TEST(guard_ends_with_its_time_on_other_mounts)
{
    struct contract_log log = {0}, waiting = {0};
    clock_ms since;

    guard_get("a", BACKEND_LEASE, 4 * CONTRACT_SHORT, &log);
    contract_backend = contract_other;
    guard_queue("a", &waiting);
    since = clock_now();
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_int_ge(clock_now() - since, 4 * CONTRACT_SHORT);
    ck_assert_int_lt(clock_now() - since, CONTRACT_LONG / 4);
}
END_TEST

TCase *contract_guard_mounts_case(void)
{
    TCase *tcase = tcase_create("guard over mounts");

    tcase_add_checked_fixture(tcase, contract_setup_two, contract_teardown_two);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, guard_keeps_off_other_mounts_and_may_be_ended_by_them, 0, 4);
    tcase_add_test(tcase, guard_ends_with_its_time_on_other_mounts);
    return tcase;
}
