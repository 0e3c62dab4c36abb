/* contract_upgrade: a holder that shares waits to become exclusive.
 *
 * Its claim is a second ticket of its identity, which waits for the other holders beside the one that holds.  Those
 * that wait for the holder do not stand in the way of the claim.
 */
#include "tests/contract/contract.h"

enum { HOLDER, SHARER, READER, WRITER, USERS };

static struct contract_log logs[2 * USERS];
static bool two; /* mounts: each user but the holder is on the other one, the writer on that of the holder */

static void use_mount_of(int user)
{
    contract_backend = two && user % USERS != HOLDER && user % USERS != WRITER ? contract_other : contract_one;
}

/* _i: flocks, or record locks of the whole lock. */
static struct backend_claim claim_of(int user, int records, enum backend_mode mode)
{
    struct backend_claim claim = contract_claim(records ? BACKEND_FCNTL : BACKEND_FLOCK, &logs[user]);
    claim.mode = mode;
    claim.handle = 1 + (uint64_t)user % USERS;
    claim.lock_owner = records ? claim.handle : 0;
    claim.end = BACKEND_RANGE_MAX;
    return claim;
}

static struct contract_acquired ask(int user, int records, enum backend_mode mode, bool wait)
{
    struct backend_claim claim = claim_of(user, records, mode);
    claim.wait = wait;
    use_mount_of(user);
    return contract_acquire("a", &claim);
}

static struct backend_ticket *share(int user, int records)
{
    struct contract_acquired acquired = ask(user, records, BACKEND_SHARED, false);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
    return acquired.ticket;
}

static struct backend_ticket *queue(int user, int records, enum backend_mode mode)
{
    struct contract_acquired acquired = ask(user, records, mode, true);
    ck_assert_int_eq(acquired.result, BACKEND_QUEUED);
    return acquired.ticket;
}

static void end(int user, struct backend_ticket *ticket)
{
    use_mount_of(user);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
}

/* Once the claim is granted its holder is made exclusive, and keeps its fencing token.  A record lock's claim has taken
 * over what its lock owner held. */
static struct backend_ticket *finish(struct backend_ticket *held, struct backend_ticket *claim, int records)
{
    if (records) {
        ck_assert(claim->joined);
        return claim;
    }
    uint64_t fence = held->fence;
    struct backend_claim exclusive = claim_of(HOLDER, 0, BACKEND_EXCLUSIVE);
    use_mount_of(HOLDER);
    ck_assert_int_eq(contract_convert(held, &exclusive), BACKEND_OK);
    ck_assert_uint_eq(held->fence, fence);
    end(HOLDER, claim);
    return held;
}

START_TEST(holder_keeps_its_lock_while_it_waits_to_become_exclusive)
{
    struct backend_ticket *held = share(HOLDER, _i), *its = share(SHARER, _i);
    struct backend_ticket *claim = queue(USERS + HOLDER, _i, BACKEND_EXCLUSIVE);
    ck_assert(held->held && !claim->held);
    ck_assert_uint_eq(contract_stat("a").holders, 2);
    ck_assert_int_eq(ask(READER, _i, BACKEND_SHARED, false).result, BACKEND_BUSY); /* behind the claim */
    end(HOLDER, claim);                                                            /* it gives up */
    end(READER, share(READER, _i));
    ck_assert_uint_eq(contract_stat("a").holders, 2);
    claim = queue(USERS + HOLDER, _i, BACKEND_EXCLUSIVE);
    end(SHARER, its);
    CONTRACT_UNTIL(logs[USERS + HOLDER].granted);
    held = finish(held, claim, _i);
    ck_assert_int_eq(ask(READER, _i, BACKEND_SHARED, false).result, BACKEND_BUSY);
    struct backend_ticket *waits = queue(READER, _i, BACKEND_SHARED);
    end(HOLDER, held);
    CONTRACT_UNTIL(logs[READER].granted);
    end(READER, waits);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(holder_becomes_exclusive_before_those_that_wait_for_it)
{
    struct backend_ticket *held = share(HOLDER, _i), *its = share(SHARER, _i);
    struct backend_ticket *writer = queue(WRITER, _i, BACKEND_EXCLUSIVE), *reader = queue(READER, _i, BACKEND_SHARED);
    struct backend_ticket *claim = queue(USERS + HOLDER, _i, BACKEND_EXCLUSIVE);
    end(SHARER, its);
    CONTRACT_UNTIL(logs[USERS + HOLDER].granted);
    held = finish(held, claim, _i);
    ck_assert_uint_eq(logs[WRITER].granted + logs[READER].granted, 0);
    end(HOLDER, held);
    CONTRACT_UNTIL(logs[WRITER].granted);
    ck_assert_uint_eq(logs[READER].granted, 0);
    end(WRITER, writer);
    CONTRACT_UNTIL(logs[READER].granted);
    end(READER, reader);
}
END_TEST

/* The same without waiting. */
START_TEST(holder_that_shares_with_nobody_becomes_exclusive_at_once)
{
    struct backend_ticket *held = share(HOLDER, _i);
    struct backend_ticket *writer = queue(WRITER, _i, BACKEND_EXCLUSIVE), *reader = queue(READER, _i, BACKEND_SHARED);
    struct contract_acquired claim = ask(USERS + HOLDER, _i, BACKEND_EXCLUSIVE, false);
    ck_assert_int_eq(claim.result, BACKEND_OK);
    held = finish(held, claim.ticket, _i);
    ck_assert_uint_eq(logs[WRITER].granted + logs[READER].granted, 0);
    end(HOLDER, held);
    CONTRACT_UNTIL(logs[WRITER].granted);
    end(WRITER, writer);
    CONTRACT_UNTIL(logs[READER].granted);
    end(READER, reader);
}
END_TEST

START_TEST(second_of_two_that_wait_to_become_exclusive_is_refused)
{
    struct backend_ticket *held = share(HOLDER, _i), *its = share(SHARER, _i);
    struct backend_ticket *claim = queue(USERS + HOLDER, _i, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(ask(USERS + SHARER, _i, BACKEND_EXCLUSIVE, true).result, BACKEND_DEADLOCK);
    ck_assert_int_eq(ask(USERS + SHARER, _i, BACKEND_EXCLUSIVE, false).result, BACKEND_BUSY);
    ck_assert(its->held && held->held);
    ck_assert_uint_eq(contract_stat("a").holders, 2);
    ck_assert_uint_eq(contract_stat("a").waiters, 1);
    end(HOLDER, claim); /* the first gives up, so the other may wait */
    logs[USERS + SHARER] = (struct contract_log){0};
    claim = queue(USERS + SHARER, _i, BACKEND_EXCLUSIVE);
    end(HOLDER, held);
    CONTRACT_UNTIL(logs[USERS + SHARER].granted);
    end(SHARER, claim);
    if (!_i)
        end(SHARER, its);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

/* --- a ticket of a queue --- */

static struct backend_ticket *take(int user, enum backend_mode mode, enum backend_result expected)
{
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &logs[user]);
    logs[user] = (struct contract_log){0};
    claim.mode = mode;
    claim.sequence = claim.wait = true;
    use_mount_of(user);
    struct contract_acquired acquired = contract_acquire("q/t-", &claim);
    ck_assert_int_eq(acquired.result, expected);
    return acquired.ticket;
}

static void note_result(void *arg, enum backend_result result)
{
    *(int *)arg = (int)result;
    contract_end_turn();
}

/* It waits, and shares: it is made exclusive in the moment in which it may hold beside another that shares. */
START_TEST(ticket_made_exclusive_as_its_turn_comes_never_shares)
{
    enum { TIMES = 60, TURNS = 12 };
    struct backend_directory plain = {.width = 1};

    use_mount_of(HOLDER);
    ck_assert_int_eq(contract_mkdir("q", &plain), BACKEND_OK);
    for (int i = 0; i < TIMES; i++) {
        struct backend_ticket *sharer = take(SHARER, BACKEND_SHARED, BACKEND_OK);
        struct backend_ticket *between = take(READER, BACKEND_EXCLUSIVE, BACKEND_QUEUED);
        struct backend_ticket *ticket = take(HOLDER, BACKEND_SHARED, BACKEND_QUEUED);
        struct backend_claim claim = contract_claim(BACKEND_FLOCK, &logs[HOLDER]);
        int released = -1, result = -1;
        use_mount_of(READER);
        backend_release(contract_backend, between, note_result, &released);
        for (int turn = 0; turn < i % TURNS && !ticket->held; turn++)
            contract_turn();
        backend_convert(contract_one, ticket, &claim, note_result, &result);
        CONTRACT_UNTIL(released >= 0 && result >= 0);
        contract_backend = contract_one;
        for (int turn = 0; turn < 3; turn++) /* what is still under way */
            ck_assert_int_eq(contract_stat("q").type, BACKEND_DIRECTORY);
        ck_assert_msg(!ticket->held || ticket->mode == BACKEND_SHARED, "%d: exclusive beside one that shares", i);
        ck_assert_int_eq(result, ticket->held ? BACKEND_BUSY : BACKEND_OK);
        end(SHARER, sharer);
        CONTRACT_UNTIL(ticket->held);
        end(HOLDER, ticket);
    }
}
END_TEST

static void setup_one(void)
{
    memset(logs, 0, sizeof logs);
    two = false;
    contract_setup();
    contract_one = contract_backend;
}

static void teardown_one(void)
{
    contract_backend = contract_one;
    contract_teardown();
}

static void setup_two(void)
{
    memset(logs, 0, sizeof logs);
    two = true;
    contract_setup_two();
}

static void add_tests(TCase *tcase)
{
    tcase_set_timeout(tcase, 60);
    if (contract_has(BACKEND_CAN_SHARE)) {
        tcase_add_loop_test(tcase, holder_keeps_its_lock_while_it_waits_to_become_exclusive, 0, 2);
        tcase_add_loop_test(tcase, holder_becomes_exclusive_before_those_that_wait_for_it, 0, 2);
        tcase_add_loop_test(tcase, holder_that_shares_with_nobody_becomes_exclusive_at_once, 0, 2);
        tcase_add_loop_test(tcase, second_of_two_that_wait_to_become_exclusive_is_refused, 0, 2);
    }
    if (contract_has(BACKEND_CAN_SHARE) && contract_has(BACKEND_CAN_SEQUENCE)) {
        tcase_add_test(tcase, ticket_made_exclusive_as_its_turn_comes_never_shares);
    }
}

TCase *contract_upgrade_case(void)
{
    TCase *tcase = tcase_create("upgrades");
    tcase_add_checked_fixture(tcase, setup_one, teardown_one);
    add_tests(tcase);
    return tcase;
}

TCase *contract_upgrade_mounts_case(void)
{
    TCase *tcase = tcase_create("upgrades of two mounts");
    tcase_add_checked_fixture(tcase, setup_two, contract_teardown_two);
    add_tests(tcase);
    return tcase;
}
