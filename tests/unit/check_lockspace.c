/* check_lockspace: which ticket gets a lock when, as scenarios. */
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

START_TEST(a_lock_exists_exactly_while_it_is_held)
{
    ck_assert_int_eq(lock_world_stat(w, "a").type, BACKEND_NOTHING);
    struct backend_ticket *a = lock_world_hold(w, "a", ex("A"));
    ck_assert_uint_eq(a->fence, 1);
    ck_assert_int_eq(lock_world_stat(w, "a").type, BACKEND_LOCK);
    ck_assert_ptr_eq(lock_world_stat(w, "a").ticket, a);
    ck_assert_uint_eq(lockspace_counts(w->space).locks, 1);
    lock_world_release(w, a);
    ck_assert_int_eq(lock_world_stat(w, "a").type, BACKEND_NOTHING);
    ck_assert_uint_eq(lockspace_counts(w->space).locks, 0);
    ck_assert_str_eq(lock_world_list(w, ""), "");
    lock_world_reported(w, "");
}
END_TEST

START_TEST(a_refusal_names_the_holder)
{
    struct backend_claim claim = ex("B");
    struct backend_ticket *ticket = NULL;
    struct backend_info holder;
    GBytes *meta = g_bytes_new_static("host", 4), *content = g_bytes_new_static("hello", 5);
    struct backend_claim first = ex("A");
    first.kind = BACKEND_LEASE;
    first.meta = meta;
    first.content = content;
    struct backend_ticket *a = lock_world_hold(w, "a", first);
    g_bytes_unref(meta);
    g_bytes_unref(content);
    claim.wait = false;
    ck_assert_int_eq(lockspace_acquire(w->space, 0, "a", &claim, &ticket, &holder), BACKEND_BUSY);
    ck_assert_ptr_eq(holder.ticket, a);
    ck_assert_int_eq(holder.kind, BACKEND_LEASE);
    ck_assert_int_eq(holder.mode, BACKEND_EXCLUSIVE);
    ck_assert_uint_eq(holder.fence, a->fence);
    ck_assert_int_eq(holder.deadline, WORLD_TTL);
    ck_assert_uint_eq(holder.holders, 1);
    ck_assert_uint_eq(holder.end, BACKEND_RANGE_MAX);
    ck_assert_mem_eq(g_bytes_get_data(holder.meta, NULL), "host", 4);
    ck_assert_mem_eq(g_bytes_get_data(holder.content, NULL), "hello", 5);
}
END_TEST

START_TEST(a_writer_is_not_starved_by_readers)
{
    struct backend_ticket *r1 = lock_world_hold(w, "a", sh("R1"));
    struct backend_ticket *writer = lock_world_wait(w, "a", ex("W"));
    lock_world_reported(w, "wanted R1; ");
    lock_world_refused(w, "a", sh("R2"));
    lock_world_wait(w, "a", sh("R3"));
    lock_world_reported(w, "");
    lock_world_release(w, r1);
    lock_world_reported(w, "granted W; ");
    lock_world_release(w, writer);
    lock_world_reported(w, "granted R3; ");
}
END_TEST

START_TEST(a_run_of_shared_waiters_is_granted_together)
{
    struct backend_ticket *holder = lock_world_hold(w, "a", ex("X"));
    struct backend_ticket *r1 = lock_world_wait(w, "a", sh("R1"));
    struct backend_ticket *r2 = lock_world_wait(w, "a", sh("R2"));
    lock_world_wait(w, "a", ex("W"));
    lock_world_wait(w, "a", sh("R3"));
    g_string_truncate(w->log, 0);
    lock_world_release(w, holder);
    lock_world_reported(w, "granted R1; granted R2; ");
    ck_assert_uint_eq(lock_world_stat(w, "a").holders, 2);
    ck_assert_uint_eq(lock_world_stat(w, "a").waiters, 2);
    ck_assert_uint_eq(lockspace_counts(w->space).waiting, 2);
    lock_world_release(w, r1);
    lock_world_reported(w, "");
    lock_world_release(w, r2);
    lock_world_reported(w, "granted W; ");
}
END_TEST

START_TEST(a_writer_that_gives_up_lets_the_readers_behind_it_in)
{
    lock_world_hold(w, "a", sh("R1"));
    struct backend_ticket *writer = lock_world_wait(w, "a", ex("W1"));
    lock_world_wait(w, "a", sh("R2"));
    lock_world_wait(w, "a", sh("R3"));
    lock_world_wait(w, "a", ex("W2"));
    lock_world_wait(w, "a", sh("R4"));
    g_string_truncate(w->log, 0);
    lock_world_release(w, writer);
    lock_world_reported(w, "granted R2; granted R3; ");
}
END_TEST

START_TEST(waiters_are_served_in_their_order)
{
    enum { CROWD = 500 };
    static char names[CROWD][8];
    struct backend_ticket *tickets[CROWD];
    tickets[0] = lock_world_hold(w, "a", ex("0"));
    for (int i = 1; i < CROWD; i++) {
        g_snprintf(names[i], sizeof(names[i]), "%d", i);
        tickets[i] = lock_world_wait(w, "a", ex(names[i]));
    }
    g_string_truncate(w->log, 0);
    for (int i = 1; i < CROWD; i++) {
        char expected[32];
        g_snprintf(expected, sizeof(expected), "granted %d; ", i);
        lock_world_release(w, tickets[i - 1]);
        lock_world_reported(w, expected);
        ck_assert_uint_gt(tickets[i]->fence, 1);
    }
}
END_TEST

START_TEST(an_upgrade_is_refused_while_another_shares)
{
    struct backend_ticket *a = lock_world_hold(w, "a", sh("A"));
    struct backend_ticket *b = lock_world_hold(w, "a", sh("B"));
    uint64_t fence = a->fence;
    ck_assert_int_eq(convert(a, ex("A")), BACKEND_BUSY);
    ck_assert_int_eq(a->mode, BACKEND_SHARED);
    lock_world_release(w, b);
    ck_assert_int_eq(convert(a, ex("A")), BACKEND_OK);
    ck_assert_int_eq(a->mode, BACKEND_EXCLUSIVE);
    ck_assert_uint_eq(a->fence, fence);
    lock_world_refused(w, "a", sh("B"));
}
END_TEST

START_TEST(a_downgrade_lets_in_the_readers_up_to_the_next_writer)
{
    struct backend_ticket *a = lock_world_hold(w, "a", ex("A"));
    lock_world_wait(w, "a", sh("R1"));
    lock_world_wait(w, "a", sh("R2"));
    lock_world_wait(w, "a", ex("W"));
    lock_world_wait(w, "a", sh("R3"));
    g_string_truncate(w->log, 0);
    ck_assert_int_eq(convert(a, sh("A")), BACKEND_OK);
    lock_world_reported(w, "granted R1; granted R2; ");
}
END_TEST

START_TEST(a_waiter_that_is_converted_keeps_its_place)
{
    struct backend_ticket *a = lock_world_hold(w, "a", sh("A"));
    struct backend_ticket *b = lock_world_wait(w, "a", ex("B"));
    lock_world_wait(w, "a", sh("C"));
    g_string_truncate(w->log, 0);
    ck_assert_int_eq(convert(b, ex("B2")), BACKEND_OK);
    lock_world_reported(w, "");
    ck_assert_int_eq(convert(b, sh("B3")), BACKEND_OK);
    lock_world_reported(w, "granted B3; granted C; ");
    ck_assert_uint_lt(a->fence, b->fence);
}
END_TEST

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

START_TEST(what_is_set_is_replaced)
{
    GBytes *text = g_bytes_new_static("text", 4);
    struct backend_claim claim = ex("A");
    claim.meta = claim.content = text;
    struct backend_ticket *a = lock_world_hold(w, "a", claim);
    struct backend_change change = {.set = BACKEND_SET_META};
    lockspace_set(a, &change);
    ck_assert_ptr_null(lockspace_ticket_meta(a));
    ck_assert_ptr_eq(a->content, text);
    change.set = BACKEND_SET_CONTENT;
    lockspace_set(a, &change);
    ck_assert_ptr_null(a->content);
    g_bytes_unref(text);
}
END_TEST

START_TEST(a_lease_ends_at_its_deadline_and_not_before)
{
    lock_world_hold(w, "a", ex("A"));
    lock_world_wait(w, "a", ex("B"));
    g_string_truncate(w->log, 0);
    ck_assert_int_eq(lockspace_next(w->space), WORLD_TTL);
    w->now = WORLD_TTL - 1;
    struct backend_claim longer = ex("C");
    longer.ttl = 10 * WORLD_TTL;
    lock_world_wait(w, "a", longer);
    lock_world_reported(w, "wanted A; ");
    lock_world_tick(w, WORLD_TTL - 1);
    lock_world_reported(w, "");
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "ended A expired; ended B expired; granted C; ");
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "");
}
END_TEST

START_TEST(a_grant_starts_a_new_term)
{
    struct backend_ticket *a = lock_world_hold(w, "a", ex("A"));
    struct backend_claim claim = ex("B");
    claim.due = 100;
    struct backend_ticket *b = lock_world_wait(w, "a", claim);
    g_string_truncate(w->log, 0);
    lock_world_tick(w, 100);
    lock_world_reported(w, "due B; ");
    w->now = 700;
    lock_world_release(w, a);
    ck_assert(b->held);
    ck_assert_int_eq(b->acquired, 700);
    ck_assert_int_eq(b->deadline, 700 + WORLD_TTL);
    ck_assert_int_eq(lockspace_next(w->space), 800);
}
END_TEST

START_TEST(due_is_reported_once_until_renewed)
{
    struct backend_claim claim = ex("A");
    claim.due = 300;
    struct backend_ticket *a = lock_world_hold(w, "a", claim);
    ck_assert_int_eq(lockspace_next(w->space), 300);
    lock_world_tick(w, 299);
    lock_world_reported(w, "");
    lock_world_tick(w, 300);
    lock_world_reported(w, "due A; ");
    lock_world_tick(w, 900);
    lock_world_reported(w, "");
    ck_assert_int_eq(lockspace_next(w->space), WORLD_TTL);
    lockspace_renew(w->space, 900, a, WORLD_TTL, 300);
    ck_assert_int_eq(a->deadline, 900 + WORLD_TTL);
    lock_world_tick(w, 1200);
    lock_world_reported(w, "due A; ");
    lockspace_renew(w->space, 1200, a, WORLD_TTL, 0);
    ck_assert_int_eq(lockspace_next(w->space), 1200 + WORLD_TTL);
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

START_TEST(a_claim_does_not_count_what_has_expired)
{
    lock_world_hold(w, "a", ex("A"));
    w->now = WORLD_TTL;
    lock_world_hold(w, "a", ex("B"));
    lock_world_reported(w, "ended A expired; ");
    lock_world_tick(w, WORLD_TTL);
    lock_world_reported(w, "");
}
END_TEST

START_TEST(what_has_expired_can_be_neither_renewed_nor_changed)
{
    struct backend_ticket *a = lock_world_hold(w, "a", ex("A"));
    w->now = WORLD_TTL;
    ck_assert_int_eq(convert(a, ex("A")), BACKEND_STALE);
    ck_assert_int_eq(lockspace_rename(w->space, w->now, a, "b", NULL), BACKEND_STALE);
    lock_world_reported(w, "");
    lockspace_renew(w->space, w->now, a, WORLD_TTL, 0);
    lock_world_reported(w, "ended A lost; ");
    ck_assert_int_eq(lock_world_stat(w, "a").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(a_dead_waiter_is_not_granted_and_holds_nobody_up)
{
    struct backend_claim longer = ex("A");
    longer.ttl = 10 * WORLD_TTL;
    struct backend_ticket *a = lock_world_hold(w, "a", longer);
    lock_world_wait(w, "a", ex("B"));
    w->now = 1;
    lock_world_wait(w, "a", ex("C"));
    g_string_truncate(w->log, 0);
    w->now = WORLD_TTL;
    lock_world_release(w, a);
    lock_world_reported(w, "ended B expired; granted C; ");
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

START_TEST(a_revocation_needs_the_token_or_ends_all)
{
    struct backend_ticket *a = lock_world_hold(w, "a", sh("A"));
    lock_world_hold(w, "a", sh("B"));
    lock_world_wait(w, "a", ex("C"));
    g_string_truncate(w->log, 0);
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "a", 99), BACKEND_STALE);
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "b", 1), BACKEND_MISSING);
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "a", a->fence), BACKEND_OK);
    lock_world_reported(w, "ended A released; ");
    lock_world_hold(w, "b", sh("A"));
    lock_world_hold(w, "b", sh("B"));
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "a", 0), BACKEND_OK);
    lock_world_reported(w, "ended B broken; granted C; ");
    ck_assert_int_eq(lockspace_revoke(w->space, 0, "b", 0), BACKEND_OK);
    lock_world_reported(w, "ended A broken; ended B broken; ");
}
END_TEST

START_TEST(tokens_grow_whatever_happens_to_the_name)
{
    struct backend_ticket *a = lock_world_hold(w, "a", ex("A"));
    ck_assert_uint_eq(a->fence, 1);
    lock_world_release(w, a);
    a = lock_world_hold(w, "a", ex("A"));
    ck_assert_uint_gt(a->fence, 1);
    lockspace_raise_fence(w->space, 1000);
    lockspace_raise_fence(w->space, 10);
    ck_assert_uint_eq(lockspace_next_fence(w->space), 1000);
    struct backend_ticket *b = lock_world_hold(w, "b", ex("B"));
    ck_assert_uint_eq(b->fence, 1000);
    lock_world_release(w, b);
    ck_assert_int_eq(lockspace_rename(w->space, 0, a, "b", NULL), BACKEND_OK);
    ck_assert_uint_gt(a->fence, 1000);
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

#define SCENARIO(name) tcase_add_test(tcase, name)

int main(void)
{
    Suite *suite = suite_create("lockspace");
    TCase *tcase = tcase_create("lockspace");
    tcase_add_checked_fixture(tcase, setup, teardown);
    SCENARIO(a_lock_exists_exactly_while_it_is_held);
    SCENARIO(a_refusal_names_the_holder);
    SCENARIO(a_writer_is_not_starved_by_readers);
    SCENARIO(a_run_of_shared_waiters_is_granted_together);
    SCENARIO(a_writer_that_gives_up_lets_the_readers_behind_it_in);
    SCENARIO(waiters_are_served_in_their_order);
    SCENARIO(an_upgrade_is_refused_while_another_shares);
    SCENARIO(a_downgrade_lets_in_the_readers_up_to_the_next_writer);
    SCENARIO(a_waiter_that_is_converted_keeps_its_place);
    SCENARIO(a_conversion_keeps_the_token_and_what_is_not_given);
    SCENARIO(what_is_set_is_replaced);
    SCENARIO(a_lease_ends_at_its_deadline_and_not_before);
    SCENARIO(a_grant_starts_a_new_term);
    SCENARIO(due_is_reported_once_until_renewed);
    SCENARIO(holder_that_renews_loses_nothing_to_a_late_tick);
    SCENARIO(holder_that_does_not_renew_ends_when_that_is_known);
    SCENARIO(a_tick_handles_at_most_its_limit);
    SCENARIO(a_claim_does_not_count_what_has_expired);
    SCENARIO(what_has_expired_can_be_neither_renewed_nor_changed);
    SCENARIO(a_dead_waiter_is_not_granted_and_holds_nobody_up);
    SCENARIO(an_ended_ticket_keeps_its_data);
    SCENARIO(wanted_is_reported_to_blockers_and_to_not_too_many);
    SCENARIO(a_revocation_needs_the_token_or_ends_all);
    SCENARIO(tokens_grow_whatever_happens_to_the_name);
    tcase_add_loop_test(tcase, a_lease_among_very_many_takes_few_bytes, 0, 2);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
