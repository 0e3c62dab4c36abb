/* check_lockspace: scenarios that the random operations of check_lockspace_model and the contract do not have: late
 * ticks, limits, what many locks cost, and some of identities and deadlocks. */
#include "tests/support/heap.h"
#include "tests/unit/lock_world.h"

#include <stdio.h>
#include <string.h>

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

static struct backend_claim sh(const char *who)
{
    return lock_world_claim(who, BACKEND_SHARED);
}

static enum backend_result convert(struct backend_ticket *ticket, struct backend_claim claim)
{
    return lockspace_convert(w->space, w->now, ticket, &claim);
}

START_TEST(a_conversion_keeps_the_token_and_what_is_not_given)
{
    GBytes *meta = g_bytes_new_static("meta", 4), *content = g_bytes_new_static("text", 4);
    struct backend_claim claim = ex("A");
    claim.kind = BACKEND_PROVISIONAL;
    claim.meta = meta;
    struct backend_ticket *a = lock_world_hold(w, "a", claim);
    claim = ex("A");
    claim.kind = BACKEND_LEASE;
    claim.content = content;
    claim.ttl = 5000;
    w->now = 10;
    ck_assert_int_eq(convert(a, claim), BACKEND_OK);
    ck_assert_uint_eq(a->fence, 1);
    ck_assert_int_eq(a->kind, BACKEND_LEASE);
    ck_assert_int_eq(a->acquired, 0);
    ck_assert_int_eq(a->deadline, 5010);
    ck_assert_ptr_eq(lockspace_ticket_meta(a), meta);
    ck_assert_ptr_eq(a->content, content);
    g_bytes_unref(meta);
    g_bytes_unref(content);
}
END_TEST

/* As after a SIGSTOP, or on a machine that has much else to do. */
START_TEST(holder_that_renews_loses_nothing_to_a_late_tick)
{
    struct backend_claim claim = ex("A");
    struct backend_info info;
    claim.due = 300;
    struct backend_ticket *a = lock_world_hold(w, "a", claim);
    w->now = 5000;
    ck_assert(!lockspace_ticket_is_expired(a, w->now));
    claim = ex("B");
    claim.wait = false;
    ck_assert_int_eq(lockspace_acquire(w->space, w->now, "a", &claim, &(struct backend_ticket *){NULL}, &info),
                     BACKEND_BUSY);
    struct backend_ticket *b = lock_world_hold(w, "b", claim);
    ck_assert_int_eq(lockspace_rename(w->space, w->now, b, "a", NULL), BACKEND_BUSY);
    ck_assert_int_eq(lockspace_rename(w->space, w->now, a, "c", NULL), BACKEND_OK);
    ck_assert_uint_eq(lockspace_tick(w->space, w->now, SIZE_MAX), 1);
    lock_world_reported(w, "due A; ");
    w->now = 9000; /* its user hears of it still later */
    ck_assert_int_eq(lockspace_next(w->space), b->deadline);
    ck_assert(!lockspace_ticket_is_expired(a, w->now));
    lockspace_renew(w->space, w->now, a, WORLD_TTL, 300);
    lock_world_answer(w);
    ck_assert_int_eq(a->deadline, 9000 + WORLD_TTL);
    w->now = 9000 + WORLD_TTL - 1;
    lockspace_tick(w->space, w->now, SIZE_MAX);
    lock_world_reported(w, "ended B expired; due A; ");
    lock_world_answer(w);
    lockspace_stat(w->space, "c", &info);
    ck_assert_ptr_eq(info.ticket, a);
}
END_TEST

START_TEST(holder_that_does_not_renew_ends_when_that_is_known)
{
    struct backend_claim claim = ex("A");
    claim.due = 300;
    struct backend_ticket *a = lock_world_hold(w, "a", claim);
    claim = ex("B");
    claim.ttl = 2 * WORLD_TTL;
    lock_world_wait(w, "a", claim);
    g_string_truncate(w->log, 0);
    w->now = WORLD_TTL;
    lockspace_tick(w->space, w->now, SIZE_MAX);
    lockspace_tick(w->space, w->now, SIZE_MAX);
    lock_world_reported(w, "due A; ");
    ck_assert(!lockspace_ticket_is_expired(a, w->now));
    lock_world_answer(w);
    ck_assert(lockspace_ticket_is_expired(a, w->now));
    lockspace_tick(w->space, w->now, SIZE_MAX);
    lock_world_reported(w, "ended A expired; granted B; ");
}
END_TEST

START_TEST(a_tick_handles_at_most_its_limit)
{
    char name[] = "a";
    for (; name[0] < 'h'; name[0]++) {
        lock_world_hold(w, name, ex("A"));
    }
    ck_assert_uint_eq(lockspace_tick(w->space, WORLD_TTL, 3), 3);
    ck_assert_uint_eq(lockspace_counts(w->space).locks, 4);
    ck_assert_uint_eq(lockspace_tick(w->space, WORLD_TTL, 10), 4);
    ck_assert_int_eq(lockspace_next(w->space), CLOCK_NEVER);
}
END_TEST

START_TEST(an_ended_ticket_keeps_its_data)
{
    GBytes *meta = g_bytes_new_static("meta", 4);
    char name[16];
    struct backend_claim claim = ex("A");
    claim.meta = meta;
    lock_world_mkdir(w, "d");
    lock_world_hold(w, "d/a", claim);
    lock_world_tick(w, WORLD_TTL);
    ck_assert_int_eq(lockspace_rmdir(w->space, "d"), BACKEND_OK);
    ck_assert(lockspace_ticket_name(w->ended, name, sizeof(name)));
    ck_assert_str_eq(name, "d/a");
    ck_assert(!lockspace_ticket_name(w->ended, name, 3));
    ck_assert(!lockspace_ticket_sequence(w->ended));
    ck_assert_ptr_eq(lockspace_ticket_meta(w->ended), meta);
    g_bytes_unref(meta);
}
END_TEST

START_TEST(wanted_is_reported_to_blockers_and_to_not_too_many)
{
    static struct backend_claim claim;
    lock_world_hold(w, "b", lock_world_range("A", BACKEND_SHARED, 1, 0, 9));
    lock_world_hold(w, "b", lock_world_range("B", BACKEND_SHARED, 2, 10, 19));
    lock_world_wait(w, "b", lock_world_range("C", BACKEND_EXCLUSIVE, 3, 15, 30));
    lock_world_reported(w, "wanted B; ");
    for (int i = 0; i < 100; i++) {
        claim = sh("R");
        lock_world_hold(w, "a", claim);
    }
    lock_world_wait(w, "a", ex("W"));
    ck_assert_uint_eq(strlen(w->log->str), 64 * strlen("wanted R; "));
}
END_TEST

/* Acquired in order, or scattered: 7919 has no divisor in common with MANY. */
START_TEST(a_lease_among_very_many_takes_few_bytes)
{
    enum { MANY = 100000, BYTES = 172 };
    size_t before = heap_bytes();
    for (unsigned i = 0; i < MANY; i++) {
        char name[32];
        struct backend_claim claim = {.kind = BACKEND_LEASE, .ttl = 30000, .due = 10000};
        struct backend_ticket *ticket = NULL;
        snprintf(name, sizeof(name), "lease%07u", _i ? i * 7919u % MANY : i);
        ck_assert_int_eq(lockspace_acquire(w->space, i / 100, name, &claim, &ticket, NULL), BACKEND_OK);
    }
    if (HEAP_IS_MEASURED) {
        ck_assert_uint_le((heap_bytes() - before) / MANY, BYTES);
    }
}
END_TEST

/* --- byte ranges, identities and deadlocks --- */

static struct backend_claim with_handle(struct backend_claim claim, uint64_t handle)
{
    claim.handle = handle;
    return claim;
}

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
    /* a claim with the handle of P passes B, which waits for P; C has another handle, so it does not */
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
    /* after an unlock the owner may lock as many parts again */
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
    Suite *suite = suite_create("lockspace");
    TCase *tcase = tcase_create("lockspace");
    tcase_add_checked_fixture(tcase, setup, teardown);
    SCENARIO(a_conversion_keeps_the_token_and_what_is_not_given);
    SCENARIO(holder_that_renews_loses_nothing_to_a_late_tick);
    SCENARIO(holder_that_does_not_renew_ends_when_that_is_known);
    SCENARIO(a_tick_handles_at_most_its_limit);
    SCENARIO(an_ended_ticket_keeps_its_data);
    SCENARIO(wanted_is_reported_to_blockers_and_to_not_too_many);
    tcase_add_loop_test(tcase, a_lease_among_very_many_takes_few_bytes, 0, 2);
    SCENARIO(grant_to_an_identity_can_move_a_waiter_past_another);
    SCENARIO(a_lock_owner_keeps_its_first_handle);
    SCENARIO(a_cycle_of_waiting_lock_owners_is_a_deadlock);
    SCENARIO(a_cycle_through_the_order_of_waiting_is_a_deadlock);
    SCENARIO(a_thread_that_waits_is_no_cycle_for_another_of_its_lock_owner);
    SCENARIO(flocks_are_not_searched_for_deadlocks);
    SCENARIO(a_lock_owner_has_a_limited_number_of_ranges);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
