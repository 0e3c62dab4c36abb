/* check_lockspace_range: byte ranges, identities and deadlocks, as scenarios. */
#include "tests/unit/lock_world.h"

static struct lock_world world;
static struct lock_world *const w = &world;

static void setup(void)
{
    lock_world_init(w);
}

static void teardown(void)
{
    lock_world_clear(w);
}

static struct backend_claim ex(const char *who)
{
    return lock_world_claim(who, BACKEND_EXCLUSIVE);
}

static struct backend_claim with_handle(struct backend_claim claim, uint64_t handle)
{
    claim.handle = handle;
    return claim;
}

START_TEST(a_dead_waiter_in_another_range_holds_nobody_up)
{
    struct backend_claim longer = lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 5);
    longer.ttl = 10 * WORLD_TTL;
    lock_world_hold(w, "a", longer);
    longer = lock_world_range("D", BACKEND_EXCLUSIVE, 4, 50, 59);
    longer.ttl = 10 * WORLD_TTL;
    lock_world_hold(w, "a", longer);
    lock_world_wait(w, "a", lock_world_range("B", BACKEND_EXCLUSIVE, 2, 0, 20));
    w->now = 1;
    lock_world_wait(w, "a", lock_world_range("C", BACKEND_EXCLUSIVE, 3, 10, 20));
    g_string_truncate(w->log, 0);
    w->now = WORLD_TTL;
    lock_world_unlock(w, 1, 0, 5);
    lock_world_reported(w, "ended B expired; granted C; ");
}
END_TEST

START_TEST(a_handle_does_not_exclude_itself)
{
    lock_world_hold(w, "a", with_handle(ex("A"), 7));
    lock_world_refused(w, "a", with_handle(ex("B"), 8));
    struct backend_claim range = lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 9);
    lock_world_refused(w, "a", range);
    lock_world_hold(w, "a", with_handle(range, 7));
    ck_assert_uint_eq(lock_world_stat(w, "a").holders, 2);
}
END_TEST

START_TEST(a_holder_may_extend_what_another_waits_for)
{
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 9));
    struct backend_ticket *b = lock_world_wait(w, "a", lock_world_range("B", BACKEND_EXCLUSIVE, 2, 0, 20));
    lock_world_refused(w, "a", lock_world_range("C", BACKEND_EXCLUSIVE, 3, 15, 15));
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 5, 15));
    uint64_t fence = lock_world_stat(w, "a").fence;
    g_string_truncate(w->log, 0);
    lock_world_unlock(w, 1, 0, BACKEND_RANGE_MAX);
    lock_world_reported(w, "granted B; ");
    ck_assert(b->held);
    ck_assert_uint_gt(b->fence, fence);
}
END_TEST

START_TEST(grant_to_an_identity_can_move_a_waiter_past_another)
{
    /* B waits for both; C is only behind B, and passes it once its own lock owner holds what B waits for */
    lock_world_hold(w, "a", lock_world_range("H", BACKEND_EXCLUSIVE, 1, 50, 59));
    lock_world_wait(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 2, 50, 59));
    lock_world_wait(w, "a", lock_world_range("B", BACKEND_EXCLUSIVE, 3, 0, 99));
    lock_world_wait(w, "a", lock_world_range("C", BACKEND_EXCLUSIVE, 2, 0, 9));
    g_string_truncate(w->log, 0);
    lock_world_unlock(w, 1, 50, 59);
    lock_world_reported(w, "granted A; granted C; ");
}
END_TEST

START_TEST(a_lock_owner_keeps_its_first_handle)
{
    /* P passes B, which waits for it; C does not, whose handle is not the one by which P holds */
    lock_world_hold(w, "a", lock_world_range("H", BACKEND_SHARED, 1, 50, 59));
    lock_world_hold(w, "a", with_handle(lock_world_range("P", BACKEND_SHARED, 3, 30, 35), 6));
    lock_world_wait(w, "a", lock_world_range("B", BACKEND_EXCLUSIVE, 2, 10, 59));
    lock_world_wait(w, "a", with_handle(lock_world_claim("C", BACKEND_SHARED), 7));
    g_string_truncate(w->log, 0);
    lock_world_hold(w, "a", with_handle(lock_world_range("P", BACKEND_SHARED, 3, 40, 45), 7));
    lock_world_reported(w, "absorbed P; ");
    lock_world_hold(w, "a", with_handle(lock_world_claim("D", BACKEND_SHARED), 6));
}
END_TEST

START_TEST(a_cycle_of_waiting_lock_owners_is_a_deadlock)
{
    struct backend_ticket *ticket;
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 9));
    lock_world_hold(w, "b", lock_world_range("B", BACKEND_EXCLUSIVE, 2, 0, 9));
    lock_world_hold(w, "c", lock_world_range("C", BACKEND_EXCLUSIVE, 3, 0, 9));
    lock_world_wait(w, "b", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 0));
    struct backend_ticket *b = lock_world_wait(w, "c", lock_world_range("B", BACKEND_SHARED, 2, 9, 9));
    ck_assert_int_eq(lock_world_try(w, "a", lock_world_range("C", BACKEND_SHARED, 3, 5, 5), NULL), BACKEND_DEADLOCK);
    lock_world_wait(w, "b", lock_world_range("D", BACKEND_SHARED, 4, 9, 9));
    lock_world_release(w, b);
    ck_assert_int_eq(lock_world_try(w, "a", lock_world_range("C", BACKEND_SHARED, 3, 5, 5), &ticket), BACKEND_QUEUED);
}
END_TEST

START_TEST(a_cycle_through_the_order_of_waiting_is_a_deadlock)
{
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 0));
    lock_world_hold(w, "b", lock_world_range("B", BACKEND_EXCLUSIVE, 2, 0, 0));
    lock_world_wait(w, "a", lock_world_range("C", BACKEND_EXCLUSIVE, 3, 0, 9)); /* waits for A */
    lock_world_wait(w, "b", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 0)); /* A waits for B */
    ck_assert_int_eq(lock_world_try(w, "a", lock_world_range("B", BACKEND_EXCLUSIVE, 2, 5, 5), NULL), BACKEND_DEADLOCK);
}
END_TEST

START_TEST(a_thread_that_waits_is_no_cycle_for_another_of_its_lock_owner)
{
    lock_world_hold(w, "a", lock_world_range("H", BACKEND_EXCLUSIVE, 1, 50, 59));
    lock_world_wait(w, "a", lock_world_range("A1", BACKEND_EXCLUSIVE, 2, 50, 59));
    lock_world_wait(w, "a", lock_world_range("B", BACKEND_EXCLUSIVE, 3, 0, 99));
    lock_world_wait(w, "a", lock_world_range("A2", BACKEND_EXCLUSIVE, 2, 0, 9));
}
END_TEST

START_TEST(flocks_are_not_searched_for_deadlocks)
{
    lock_world_hold(w, "a", ex("A"));
    lock_world_hold(w, "b", ex("B"));
    lock_world_wait(w, "b", ex("A"));
    lock_world_wait(w, "a", ex("B"));
    lock_world_wait(w, "a", lock_world_range("C", BACKEND_EXCLUSIVE, 1, 0, 0));
}
END_TEST

/* What a lock owner holds, asked byte by byte: x exclusive, s shared, . nothing. */
static const char *bytes_held(const char *name, unsigned count)
{
    static char text[64];
    for (unsigned i = 0; i < count; i++) {
        struct backend_claim probe = lock_world_range("?", BACKEND_EXCLUSIVE, 99, i, i);
        struct backend_info info;
        lockspace_test(w->space, name, &probe, &info);
        text[i] = (char)(info.type == BACKEND_NOTHING ? '.' : info.mode == BACKEND_SHARED ? 's' : 'x');
    }
    text[count] = '\0';
    return text;
}

START_TEST(ranges_of_a_lock_owner_split_and_merge)
{
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 9));
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_SHARED, 1, 3, 5));
    ck_assert_str_eq(bytes_held("a", 12), "xxxsssxxxx..");
    ck_assert_uint_eq(lock_world_stat(w, "a").holders, 1);
    lock_world_reported(w, "absorbed A; ");
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_SHARED, 1, 6, 6)); /* adjacent: one segment */
    ck_assert_str_eq(bytes_held("a", 12), "xxxssssxxx..");
    ck_assert_uint_eq(lock_world_stat(w, "a").holders, 1);
    lock_world_reported(w, "absorbed A; ");
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 2, 7));
    ck_assert_str_eq(bytes_held("a", 12), "xxxxxxxxxx..");
    ck_assert_uint_eq(lock_world_stat(w, "a").holders, 1);
    ck_assert_uint_eq(lock_world_stat(w, "a").start, 0);
    ck_assert_uint_eq(lock_world_stat(w, "a").end, 9);
    g_string_truncate(w->log, 0);
    lock_world_unlock(w, 1, 4, BACKEND_RANGE_MAX);
    ck_assert_str_eq(bytes_held("a", 12), "xxxx........");
    lock_world_reported(w, "");
    lock_world_unlock(w, 1, 0, 3);
    ck_assert_int_eq(lock_world_stat(w, "a").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(the_pieces_of_a_range_are_one_ticket)
{
    struct backend_info left, right;
    struct backend_claim probe = lock_world_range("?", BACKEND_EXCLUSIVE, 99, 0, 0);
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, BACKEND_RANGE_MAX));
    lock_world_unlock(w, 1, 5, 5);
    lockspace_test(w->space, "a", &probe, &left);
    probe.start = probe.end = BACKEND_RANGE_MAX;
    lockspace_test(w->space, "a", &probe, &right);
    ck_assert_uint_eq(left.fence, right.fence);
    ck_assert_int_eq(left.deadline, right.deadline);
    ck_assert_uint_eq(left.end, 4);
    ck_assert_uint_eq(right.start, 6);
    ck_assert_ptr_eq(left.ticket, right.ticket);
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "ended A expired; ");
}
END_TEST

START_TEST(a_lock_owner_keeps_what_it_holds_until_its_claim_is_granted)
{
    uint64_t fence = lock_world_hold(w, "a", lock_world_range("A", BACKEND_SHARED, 1, 0, 9))->fence;
    lock_world_hold(w, "a", lock_world_range("B", BACKEND_SHARED, 2, 0, 9));
    struct backend_ticket *more = lock_world_wait(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 4));
    ck_assert_str_eq(bytes_held("a", 10), "ssssssssss");
    lock_world_reported(w, "wanted B; ");
    lock_world_unlock(w, 2, 0, 9);
    lock_world_reported(w, "granted A; ");
    ck_assert_uint_eq(lock_world_stat(w, "a").holders, 2);
    lockspace_claim(w->space, 0, more);
    lock_world_reported(w, "absorbed A; ");
    ck_assert_uint_eq(lock_world_stat(w, "a").holders, 1);
    ck_assert_uint_eq(lock_world_stat(w, "a").fence, fence);
    ck_assert_str_eq(bytes_held("a", 10), "xxxxxsssss");
}
END_TEST

START_TEST(a_grant_that_was_not_reported_is_given_back_by_itself)
{
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_SHARED, 1, 0, 9));
    struct backend_ticket *b = lock_world_hold(w, "a", lock_world_range("B", BACKEND_EXCLUSIVE, 2, 20, 29));
    struct backend_ticket *more = lock_world_wait(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 5, 24));
    lock_world_release(w, b);
    ck_assert(more->held);
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_SHARED, 1, 40, 49)); /* another thread of A */
    ck_assert(more->held);
    lock_world_release(w, more);
    ck_assert_str_eq(bytes_held("a", 52), "ssssssssss..............................ssssssssss..");
}
END_TEST

START_TEST(a_range_that_is_downgraded_or_given_back_lets_others_in)
{
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 0, 9));
    lock_world_wait(w, "a", lock_world_range("B", BACKEND_SHARED, 2, 2, 3));
    lock_world_wait(w, "a", lock_world_range("C", BACKEND_EXCLUSIVE, 3, 8, 8));
    g_string_truncate(w->log, 0);
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_SHARED, 1, 0, 5));
    lock_world_reported(w, "absorbed A; granted B; ");
    lock_world_unlock(w, 1, 7, 8);
    lock_world_reported(w, "granted C; ");
}
END_TEST

START_TEST(a_range_is_tested_without_asking_for_it)
{
    struct backend_info info;
    struct backend_claim probe = lock_world_range("?", BACKEND_EXCLUSIVE, 2, 3, 20);
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_SHARED, 1, 5, 9));
    lockspace_test(w->space, "a", &probe, &info);
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_int_eq(info.kind, BACKEND_FCNTL);
    ck_assert_int_eq(info.mode, BACKEND_SHARED);
    ck_assert_uint_eq(info.start, 5);
    ck_assert_uint_eq(info.end, 9);
    probe.mode = BACKEND_SHARED;
    lockspace_test(w->space, "a", &probe, &info);
    ck_assert_int_eq(info.type, BACKEND_NOTHING);
    lockspace_test(w->space, "b", &probe, &info);
    ck_assert_int_eq(info.type, BACKEND_NOTHING);
    ck_assert_uint_eq(lockspace_next_fence(w->space), 2);
}
END_TEST

START_TEST(a_lock_owner_has_a_limited_number_of_ranges)
{
    struct backend_claim one = lock_world_range("A", BACKEND_SHARED, 1, 0, 0);
    uint64_t count = 0;
    while (lock_world_try(w, "a", one, NULL) == BACKEND_OK) {
        ck_assert_uint_le(++count, 100000);
        one.start = one.end += 10;
    }
    ck_assert_uint_ge(count, 1000);
    ck_assert_int_eq(lock_world_try(w, "a", one, NULL), BACKEND_QUOTA);
    lock_world_hold(w, "a", lock_world_range("B", BACKEND_SHARED, 2, 0, 9));
    /* what is given back may be had again, in as many parts */
    lock_world_unlock(w, 1, 0, 100);
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_SHARED, 1, 0, 100));
    while (lock_world_try(w, "a", one, NULL) == BACKEND_OK) {
        one.start = one.end += 10;
    }
    ck_assert_int_eq(lockspace_release_range(w->space, 0, lock_world_of(w, 1), 50, 50), BACKEND_QUOTA);
    lock_world_unlock(w, 1, 0, BACKEND_RANGE_MAX);
    lock_world_hold(w, "a", lock_world_range("A", BACKEND_EXCLUSIVE, 1, 10, BACKEND_RANGE_MAX));
}
END_TEST

#define SCENARIO(name) tcase_add_test(tcase, name)

int main(void)
{
    Suite *suite = suite_create("lockspace_range");
    TCase *tcase = tcase_create("range");
    tcase_add_checked_fixture(tcase, setup, teardown);
    SCENARIO(a_dead_waiter_in_another_range_holds_nobody_up);
    SCENARIO(a_handle_does_not_exclude_itself);
    SCENARIO(a_holder_may_extend_what_another_waits_for);
    SCENARIO(grant_to_an_identity_can_move_a_waiter_past_another);
    SCENARIO(a_lock_owner_keeps_its_first_handle);
    SCENARIO(a_cycle_of_waiting_lock_owners_is_a_deadlock);
    SCENARIO(a_cycle_through_the_order_of_waiting_is_a_deadlock);
    SCENARIO(flocks_are_not_searched_for_deadlocks);
    SCENARIO(ranges_of_a_lock_owner_split_and_merge);
    SCENARIO(the_pieces_of_a_range_are_one_ticket);
    SCENARIO(a_lock_owner_keeps_what_it_holds_until_its_claim_is_granted);
    SCENARIO(a_grant_that_was_not_reported_is_given_back_by_itself);
    SCENARIO(a_range_that_is_downgraded_or_given_back_lets_others_in);
    SCENARIO(a_range_is_tested_without_asking_for_it);
    SCENARIO(a_lock_owner_has_a_limited_number_of_ranges);
    SCENARIO(a_thread_that_waits_is_no_cycle_for_another_of_its_lock_owner);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
