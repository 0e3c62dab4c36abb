/* contract_mounts: two mounts of one store. */
#include "tests/contract/contract.h"

START_TEST(lock_of_another_mount_is_busy_and_shown)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct backend_info info;
    uint64_t fence;

    claim.content = contract_bytes("text");
    claim.meta = contract_bytes("me");
    fence = contract_acquire("a", &claim).ticket->fence;
    contract_backend = contract_other;
    ck_assert(contract_is_busy("a"));
    ck_assert_ptr_null(contract_acquire("a", &claim).holding);
    info = contract_stat("a");
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_ptr_null(info.ticket);
    ck_assert_uint_eq(info.fence, fence);
    ck_assert(contract_equal(info.content, "text"));
    ck_assert(contract_equal(info.meta, "me"));
    ck_assert_str_eq(contract_list("", 10), "a");
    ck_assert_int_eq(contract_revoke("a", fence), BACKEND_OK);
    CONTRACT_UNTIL(log.ended);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(waiters_of_two_mounts_are_granted_in_the_order_in_which_they_came)
{
    enum { WAITERS = 10 };
    struct contract_log first = {0}, log[WAITERS] = {{0}};
    struct backend_ticket *before = contract_get("a", BACKEND_FLOCK, &first), *waiter[WAITERS];

    for (int i = 0; i < WAITERS; i++) {
        contract_backend = i % 2 ? contract_one : contract_other;
        waiter[i] = contract_queue("a", BACKEND_EXCLUSIVE, &log[i]);
    }
    for (int i = 0; i < WAITERS; i++) {
        uint64_t fence = before->fence;

        contract_backend = i % 2 ? contract_other : contract_one; /* of the one before */
        ck_assert_int_eq(contract_release(before), BACKEND_OK);
        CONTRACT_UNTIL(log[i].granted);
        ck_assert_uint_gt(waiter[i]->fence, fence);
        for (int later = i + 1; later < WAITERS; later++)
            ck_assert_uint_eq(log[later].granted, 0);
        before = waiter[i];
    }
}
END_TEST

START_TEST(upgrade_is_busy_while_another_mount_shares)
{
    struct contract_log log = {0}, sharing = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);

    struct backend_ticket *ticket = contract_get_shared("a", BACKEND_FLOCK, &log), *its;
    contract_backend = contract_other;
    its = contract_get_shared("a", BACKEND_FLOCK, &sharing);
    contract_backend = contract_one;
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_BUSY);
    contract_backend = contract_other;
    ck_assert_int_eq(contract_convert(its, &claim), BACKEND_BUSY);
    ck_assert_int_eq(contract_release(its), BACKEND_OK);
    contract_backend = contract_one;
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    contract_backend = contract_other;
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
}
END_TEST

static void note_result(void *arg, enum backend_result result)
{
    *(int *)arg = (int)result;
    contract_end_turn();
}

/* Of two that share, and ask for it in the same moment, neither may have it while the other holds. */
START_TEST(two_upgrades_at_once_are_busy)
{
    struct contract_log log[2] = {{0}};
    struct backend_ticket *ticket[2];
    struct backend *const mount[2] = {contract_one, contract_other};

    for (int i = 0; i < 2; i++) {
        contract_backend = mount[i];
        ticket[i] = contract_get_shared("a", BACKEND_FLOCK, &log[i]);
    }
    for (int round = 0; round < 20; round++) {
        int result[2] = {-1, -1};
        for (int i = 0; i < 2; i++) {
            struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log[i]);
            backend_convert(mount[i], ticket[i], &claim, note_result, &result[i]);
        }
        CONTRACT_UNTIL(result[0] >= 0 && result[1] >= 0);
        ck_assert_int_eq(result[0], BACKEND_BUSY);
        ck_assert_int_eq(result[1], BACKEND_BUSY);
    }
    contract_backend = contract_one;
    ck_assert_int_eq(contract_release(ticket[0]), BACKEND_OK);
    contract_backend = contract_other;
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log[1]);
    ck_assert_int_eq(contract_convert(ticket[1], &claim), BACKEND_OK);
}
END_TEST

START_TEST(changed_term_is_shown_on_another_mount)
{
    struct contract_log log = {0};
    struct backend_renewal renewal = {.ticket = contract_get("a", BACKEND_LEASE, &log), .ttl = 2 * CONTRACT_LONG};

    backend_renew(contract_backend, &renewal, 1);
    contract_backend = contract_other;
    CONTRACT_UNTIL(contract_stat("a").ttl == renewal.ttl);
}
END_TEST

/* Takes three locks, then changes the directory's lock-delay.  Two of the locks are broken, one of these is shared; the
 * third expires. */
static void lose_after_change(const struct backend_directory *before, const struct backend_directory *after)
{
    struct contract_log broken = {0}, shared = {0}, expired = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &expired);
    claim.ttl = CONTRACT_TERM;
    ck_assert_int_eq(contract_mkdir("d", before), BACKEND_OK);
    contract_get("d/broken", BACKEND_FLOCK, &broken);
    contract_get_shared("d/shared", BACKEND_FLOCK, &shared);
    contract_get_soon("d/expires", &claim);
    contract_backend = contract_other;
    ck_assert_int_eq(contract_set_directory("d", after), BACKEND_OK);
    ck_assert_int_eq(contract_revoke("d/broken", 0), BACKEND_OK);
    ck_assert_int_eq(contract_is_busy("d/broken"), after->delay > 0);
    ck_assert_int_eq(contract_revoke("d/shared", 0), BACKEND_OK);
    ck_assert_int_eq(contract_is_busy("d/shared"), after->delay > 0);
    CONTRACT_UNTIL(expired.ended);
    contract_pass(CONTRACT_SHORT); /* its release is on its way */
    ck_assert_int_eq(contract_is_busy("d/expires"), after->delay > 0);
}

static const struct backend_directory at_once = {.width = 1}, delayed = {.width = 1, .delay = 20 * CONTRACT_LONG};

START_TEST(delay_that_is_set_later_is_that_of_locks_that_were_taken_before)
{
    if (contract_can(BACKEND_CAN_SHARE)) /* or delay */
        lose_after_change(&at_once, &delayed);
}
END_TEST

START_TEST(delay_that_is_taken_back_is_not_that_of_locks_that_were_taken_before)
{
    if (contract_can(BACKEND_CAN_SHARE))
        lose_after_change(&delayed, &at_once);
}
END_TEST

/* --- directories, changed by both at once --- */

enum { MANY = 24 }; /* with the one begun a little later each time */

static const struct backend_directory longer = {.width = 1, .ttl = CONTRACT_LONG};

static void on_done(void *arg, enum backend_result result)
{
    *(int *)arg = (int)result;
    contract_end_turn();
}

static void proceed(int turns)
{
    for (int i = 0; i < turns; i++) {
        g_usleep(200);
        contract_poll();
    }
}

/* Of two calls that only one can do. */
static void one_is_done(const int result[2], enum backend_result other)
{
    CONTRACT_UNTIL(result[0] >= 0 && result[1] >= 0);
    ck_assert_int_eq(MIN(result[0], result[1]), BACKEND_OK);
    ck_assert_int_eq(MAX(result[0], result[1]), other);
}

START_TEST(directory_is_removed_beside_a_change_of_it)
{
    for (int i = 0; i < 2 * MANY; i++) {
        int set = -1, removed = -1;
        ck_assert_int_eq(contract_mkdir("d", &at_once), BACKEND_OK);
        if (i % 2) {
            backend_set_directory(contract_other, "d", &longer, on_done, &set);
            proceed(i / 2 % 8);
        }
        backend_rmdir(contract_one, "d", on_done, &removed);
        if (i % 2 == 0) {
            proceed(i / 2 % 8);
            backend_set_directory(contract_other, "d", &longer, on_done, &set);
        }
        CONTRACT_UNTIL(set >= 0 && removed >= 0);
        ck_assert_int_eq(removed, BACKEND_OK);
        ck_assert(set == BACKEND_OK || set == BACKEND_MISSING);
    }
}
END_TEST

START_TEST(directory_is_changed_by_both_at_once)
{
    ck_assert_int_eq(contract_mkdir("d", &at_once), BACKEND_OK);
    for (int i = 0; i < MANY; i++) {
        int set[2] = {-1, -1};
        backend_set_directory(contract_one, "d", &at_once, on_done, &set[0]);
        proceed(i % 8);
        backend_set_directory(contract_other, "d", &longer, on_done, &set[1]);
        CONTRACT_UNTIL(set[0] >= 0 && set[1] >= 0);
        ck_assert_int_eq(set[0], BACKEND_OK);
        ck_assert_int_eq(set[1], BACKEND_OK);
    }
}
END_TEST

START_TEST(directory_that_had_a_lock_is_removed_by_only_one)
{
    for (int i = 0; i < MANY; i++) {
        struct contract_log log = {0};
        int removed[2] = {-1, -1};
        ck_assert_int_eq(contract_mkdir("d", &at_once), BACKEND_OK);
        ck_assert_int_eq(contract_release(contract_get("d/a", BACKEND_FLOCK, &log)), BACKEND_OK);
        backend_rmdir(contract_one, "d", on_done, &removed[0]);
        proceed(i % 8);
        backend_rmdir(contract_other, "d", on_done, &removed[1]);
        one_is_done(removed, BACKEND_MISSING);
    }
}
END_TEST

START_TEST(directory_is_made_by_only_one_where_a_lock_was_lost)
{
    struct backend_directory shortly = {.width = 1, .delay = 1};
    for (int i = 0; i < MANY / 4 && contract_can(BACKEND_CAN_SHARE); i++) {
        struct contract_log log = {0};
        int made[2] = {-1, -1};
        ck_assert_int_eq(contract_mkdir("d", &shortly), BACKEND_OK);
        contract_get("d/a", BACKEND_FLOCK, &log);
        ck_assert_int_eq(contract_revoke("d/a", 0), BACKEND_OK);
        contract_pass(CONTRACT_SHORT); /* and with that the delay */
        backend_mkdir(contract_one, "d/a", &at_once, on_done, &made[0]);
        proceed(i % 8);
        backend_mkdir(contract_other, "d/a", &at_once, on_done, &made[1]);
        one_is_done(made, BACKEND_EXISTS);
        ck_assert_int_eq(contract_rmdir("d/a"), BACKEND_OK);
        ck_assert_int_eq(contract_rmdir("d"), BACKEND_OK);
    }
}
END_TEST

TCase *contract_mounts_case(void)
{
    TCase *tcase = tcase_create("two mounts");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup_two, contract_teardown_two);
    tcase_add_test(tcase, lock_of_another_mount_is_busy_and_shown);
    tcase_add_test(tcase, changed_term_is_shown_on_another_mount);
    tcase_add_test(tcase, delay_that_is_set_later_is_that_of_locks_that_were_taken_before);
    tcase_add_test(tcase, delay_that_is_taken_back_is_not_that_of_locks_that_were_taken_before);
    tcase_add_test(tcase, directory_is_removed_beside_a_change_of_it);
    tcase_add_test(tcase, directory_is_changed_by_both_at_once);
    tcase_add_test(tcase, directory_that_had_a_lock_is_removed_by_only_one);
    tcase_add_test(tcase, directory_is_made_by_only_one_where_a_lock_was_lost);
    if (contract_has(BACKEND_CAN_SEQUENCE)) {
        tcase_add_test(tcase, waiters_of_two_mounts_are_granted_in_the_order_in_which_they_came);
    }
    if (contract_has(BACKEND_CAN_SHARE)) {
        tcase_add_test(tcase, upgrade_is_busy_while_another_mount_shares);
        tcase_add_test(tcase, two_upgrades_at_once_are_busy);
    }
    return tcase;
}
