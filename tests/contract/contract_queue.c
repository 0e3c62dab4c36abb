/* contract_queue: byte ranges of lock owners, and directories of sequence tickets. */
#include "tests/contract/contract.h"

#include <string.h>

/* --- byte ranges --- */

static struct backend_claim range(struct contract_log *log, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, log);

    claim.lock_owner = lock_owner;
    claim.start = start;
    claim.end = end;
    return claim;
}

static struct backend_ticket *owned[4]; /* by lock owner */

static enum backend_result lock_range(struct contract_log *log, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    struct backend_claim claim = range(log, lock_owner, start, end);
    struct contract_acquired acquired = contract_acquire("a", &claim);

    if (acquired.result == BACKEND_OK)
        owned[lock_owner] = acquired.ticket;
    return acquired.result;
}

static enum backend_result unlock(uint64_t lock_owner, uint64_t start, uint64_t end)
{
    if (start == 0 && end == BACKEND_RANGE_MAX)
        return contract_release(owned[lock_owner]);
    return contract_release_range(owned[lock_owner], start, end);
}

/* The lock owner that holds a byte, of two whose logs these are; 0: none. */
static uint64_t lock_owner_at(uint64_t byte, struct contract_log *first)
{
    struct backend_claim claim = range(NULL, 99, byte, byte);
    struct backend_info info = contract_test("a", &claim);

    if (info.type == BACKEND_NOTHING)
        return 0;
    ck_assert_uint_le(info.start, byte);
    ck_assert_uint_ge(info.end, byte);
    return info.ticket->user == first ? 1 : 2;
}

START_TEST(test_shows_the_lowest_range_of_several)
{
    struct contract_log log[4] = {{0}};
    struct backend_claim claim = range(NULL, 99, 0, BACKEND_RANGE_MAX);
    struct backend_info info;

    ck_assert_int_eq(lock_range(&log[0], 1, 50, 59), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[1], 2, 70, 79), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[2], 3, 20, 29), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[1], 2, 10, 15), BACKEND_OK);
    info = contract_test("a", &claim);
    ck_assert_uint_eq(info.start, 10);
    ck_assert_uint_eq(info.end, 15);
    ck_assert_ptr_eq(info.ticket->user, &log[1]);
    claim.start = 16;
    info = contract_test("a", &claim);
    ck_assert_uint_eq(info.start, 20);
    ck_assert_ptr_eq(info.ticket->user, &log[2]);
    claim.start = 80;
    ck_assert_int_eq(contract_test("a", &claim).type, BACKEND_NOTHING);
    claim.start = 55;
    claim.mode = BACKEND_SHARED;
    ck_assert_uint_eq(contract_test("a", &claim).start, 50);
}
END_TEST

START_TEST(test_that_crosses_a_release_shows_the_next_range)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = range(NULL, 99, 0, BACKEND_RANGE_MAX);
    struct backend_info info;

    ck_assert_int_eq(lock_range(&log[0], 1, 10, 15), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[1], 2, 20, 29), BACKEND_OK);
    info = contract_test_and_release("a", &claim, owned[1]);
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert(info.start == 20 || info.start == 10); /* as it was before, or behind it */
}
END_TEST

START_TEST(ranges_that_do_not_overlap_hold_together)
{
    struct contract_log log[2] = {{0}};

    ck_assert_int_eq(lock_range(&log[0], 1, 0, 9), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[1], 2, 10, 19), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[1], 2, 9, 9), BACKEND_BUSY);
    ck_assert_int_eq(lock_range(&log[0], 1, 19, BACKEND_RANGE_MAX), BACKEND_BUSY);
    ck_assert_int_eq(lock_range(&log[0], 1, 20, BACKEND_RANGE_MAX), BACKEND_OK);
    ck_assert(contract_is_busy("a"));
}
END_TEST

START_TEST(giving_back_the_middle_splits_a_range)
{
    struct contract_log log[2] = {{0}};

    ck_assert_int_eq(lock_range(&log[0], 1, 0, 99), BACKEND_OK);
    ck_assert_int_eq(unlock(1, 40, 59), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[1], 2, 40, 59), BACKEND_OK);
    ck_assert_uint_eq(lock_owner_at(39, &log[0]), 1);
    ck_assert_uint_eq(lock_owner_at(40, &log[0]), 2);
    ck_assert_uint_eq(lock_owner_at(59, &log[0]), 2);
    ck_assert_uint_eq(lock_owner_at(60, &log[0]), 1);
    ck_assert_uint_eq(lock_owner_at(100, &log[0]), 0);
    ck_assert_int_eq(unlock(1, 0, BACKEND_RANGE_MAX), BACKEND_OK);
    ck_assert_int_eq(unlock(2, 0, BACKEND_RANGE_MAX), BACKEND_OK);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(what_a_lock_owner_holds_is_one_ticket)
{
    struct contract_log log = {0};
    uint64_t fence;

    ck_assert_int_eq(lock_range(&log, 1, 0, 9), BACKEND_OK);
    ck_assert(!owned[1]->joined);
    fence = owned[1]->fence;
    ck_assert_int_eq(lock_range(&log, 1, 20, 29), BACKEND_OK);
    ck_assert(owned[1]->joined);
    ck_assert_uint_eq(owned[1]->fence, fence);
    ck_assert_uint_eq(contract_stat("a").holders, 1);
    ck_assert_int_eq(unlock(1, 0, 9), BACKEND_OK);
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(unlock(1, 15, 40), BACKEND_MISSING);
    ck_assert(!contract_is_busy("a"));
    ck_assert_uint_eq(log.ended, 0);
}
END_TEST

START_TEST(grant_that_crosses_its_release_gives_back_only_its_bytes)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = range(&log[1], 2, 0, 9);
    struct backend_ticket *waiting;

    ck_assert_int_eq(lock_range(&log[0], 1, 0, 9), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[1], 2, 50, 59), BACKEND_OK);
    claim.wait = true;
    waiting = contract_acquire("a", &claim).ticket;
    backend_release(contract_backend, owned[1], NULL, NULL);
    if (!log[1].granted)
        ck_assert_int_eq(contract_release(waiting), BACKEND_OK);
    else
        ck_assert_int_eq(contract_release_range(waiting, 0, 9), BACKEND_OK);
    ck_assert_uint_eq(lock_owner_at(5, &log[0]), 0);
    ck_assert_uint_eq(lock_owner_at(55, &log[0]), 2);
}
END_TEST

START_TEST(lock_owner_may_change_the_mode_of_a_part)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = range(&log[0], 1, 10, 19);

    ck_assert_int_eq(lock_range(&log[0], 1, 0, 99), BACKEND_OK);
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    claim = range(&log[1], 2, 10, 19);
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    claim.end = 20;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
}
END_TEST

static void on_weakened(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    (void)ticket, (void)holder;
    *(enum backend_result *)arg = result;
    contract_end_turn();
}

/* It is under way, and has let another in, when its user gives it up. */
START_TEST(weakening_that_is_given_up_loses_nothing)
{
    struct contract_log log = {0}, reader = {0};
    struct backend_claim claim = range(&reader, 2, 0, 9);
    enum backend_result result = BACKEND_QUEUED;
    struct backend_ticket *ticket;

    ck_assert_int_eq(lock_range(&log, 1, 0, 9), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log, 1, 20, 29), BACKEND_OK);
    claim.mode = BACKEND_SHARED;
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    claim.user = &log;
    claim.lock_owner = 1;
    ticket = backend_acquire(contract_backend, "a", &claim, on_weakened, &result);
    if (result != BACKEND_OK && !backend_cancel(contract_backend, ticket))
        CONTRACT_UNTIL(result != BACKEND_QUEUED);
    ck_assert_int_eq(result, BACKEND_OK); /* it has let the reader in, and cannot be undone */
    CONTRACT_UNTIL(reader.granted);
    ck_assert_uint_eq(lock_owner_at(25, &log), 1);
    ck_assert_uint_eq(log.ended, 0);
}
END_TEST

START_TEST(waiter_for_a_range_is_granted_when_all_of_it_is_free)
{
    struct contract_log log[2] = {{0}}, waiting = {0};
    struct backend_claim claim = range(&waiting, 3, 5, 14);

    ck_assert_int_eq(lock_range(&log[0], 1, 0, 9), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[1], 2, 10, 19), BACKEND_OK);
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    ck_assert_int_eq(unlock(1, 0, 9), BACKEND_MISSING);
    ck_assert_uint_eq(waiting.granted, 0);
    ck_assert_int_eq(unlock(2, 10, 14), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted);
}
END_TEST

START_TEST(neighbours_that_are_granted_together_both_get_the_event)
{
    struct contract_log held = {0}, waiting = {0};
    struct backend_claim claim = range(&waiting, 2, 0, 9);

    ck_assert_int_eq(lock_range(&held, 1, 0, 99), BACKEND_OK);
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    claim.start = 10;
    claim.end = 19;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    /* the store has given both before anybody has heard of the first */
    ck_assert_int_eq(unlock(1, 0, BACKEND_RANGE_MAX), BACKEND_OK);
    CONTRACT_UNTIL(waiting.granted == 2);
    ck_assert_uint_eq(contract_stat("a").holders, 1);
}
END_TEST

START_TEST(grant_that_ends_before_it_is_reported_is_answered)
{
    struct contract_log held = {0}, waiting = {0};
    struct backend_claim claim = range(&waiting, 2, 0, 9);
    struct backend_ticket *ticket;

    ck_assert_int_eq(lock_range(&held, 1, 0, 99), BACKEND_OK);
    claim.wait = true;
    ticket = contract_acquire("a", &claim).ticket;
    ck_assert_int_eq(unlock(1, 0, BACKEND_RANGE_MAX), BACKEND_OK);
    contract_revoke("a", 0);
    CONTRACT_UNTIL(waiting.granted || waiting.ended); /* a request waits for it */
    if (!waiting.ended)
        ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(end_of_what_a_lock_owner_holds_is_reported_once)
{
    struct contract_log log = {0}, next = {0};
    struct backend_ticket *ticket;

    ck_assert_int_eq(lock_range(&log, 1, 0, 99), BACKEND_OK);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    ticket = contract_get("a", BACKEND_LEASE, &next);
    ck_assert_int_eq(contract_revoke("a", ticket->fence), BACKEND_OK);
    CONTRACT_UNTIL(next.ended);
    ck_assert_uint_eq(log.ended, 1);
    ck_assert_uint_eq(log.granted, 0);
}
END_TEST

START_TEST(cycle_of_lock_owners_is_found)
{
    struct contract_log log[2] = {{0}}, waiting = {0};
    struct backend_claim claim = range(&waiting, 1, 10, 10);

    ck_assert_int_eq(lock_range(&log[0], 1, 0, 0), BACKEND_OK);
    ck_assert_int_eq(lock_range(&log[1], 2, 10, 10), BACKEND_OK);
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED);
    claim = range(&log[1], 2, 0, 0);
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_DEADLOCK);
    ck_assert_int_eq(unlock(2, 10, 10), BACKEND_MISSING);
    CONTRACT_UNTIL(waiting.granted);
}
END_TEST

/* --- sequence tickets --- */

static struct backend_ticket *take(const char *prefix, enum backend_mode mode, enum backend_kind kind,
                                   struct contract_log *log)
{
    struct backend_claim claim = contract_claim(kind, log);
    struct contract_acquired acquired;

    claim.mode = mode;
    claim.wait = claim.sequence = true;
    acquired = contract_acquire(prefix, &claim);
    ck_assert_msg(acquired.result == BACKEND_OK || acquired.result == BACKEND_QUEUED, "%s",
                  backend_result_name(acquired.result));
    return acquired.ticket;
}

static uint64_t number_of(const struct backend_ticket *ticket)
{
    char name[64], *dash;

    ck_assert(backend_ticket_name(contract_backend, ticket, name, sizeof(name)));
    dash = strrchr(name, '-');
    ck_assert_ptr_nonnull(dash);
    ck_assert_uint_eq(strlen(dash + 1), 10);
    return g_ascii_strtoull(dash + 1, NULL, 10);
}

static void make_queue(uint32_t width)
{
    struct backend_directory directory = {.width = width};

    ck_assert_int_eq(contract_mkdir("q", &directory), BACKEND_OK);
}

START_TEST(tickets_are_numbered_upwards_and_hold_in_turn)
{
    struct contract_log log[5] = {{0}};
    struct backend_ticket *ticket[5];

    make_queue(1);
    for (int i = 0; i < 5; i++) {
        ticket[i] =
            take(i % 2 ? "q/job-" : "q/task-", BACKEND_EXCLUSIVE, i % 2 ? BACKEND_LEASE : BACKEND_FLOCK, &log[i]);
        ck_assert_int_eq(ticket[i]->held, i == 0);
        if (i) {
            ck_assert_uint_gt(number_of(ticket[i]), number_of(ticket[i - 1]));
            ck_assert_uint_gt(ticket[i]->fence, ticket[i - 1]->fence);
        }
    }
    /* the fourth goes before its turn */
    ck_assert_int_eq(contract_release(ticket[3]), BACKEND_OK);
    for (int i = 0; i < 4; i++) {
        static const int next[] = {1, 2, 4};

        ck_assert_int_eq(contract_release(ticket[i < 3 ? (i == 0 ? 0 : next[i - 1]) : 4]), BACKEND_OK);
        if (i < 3)
            CONTRACT_UNTIL(log[next[i]].granted);
    }
    ck_assert_uint_eq(log[3].granted, 0);
    ck_assert_str_eq(contract_list("q", 10), "");
}
END_TEST

START_TEST(position_in_the_queue_is_known)
{
    struct contract_log log[4] = {{0}};
    struct backend_ticket *ticket[4];
    char name[64];

    make_queue(1);
    for (int i = 0; i < 4; i++)
        ticket[i] = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_FLOCK, &log[i]);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert(backend_ticket_name(contract_backend, ticket[i], name, sizeof(name)));
        ck_assert_uint_eq(contract_stat(name).position, i);
        ck_assert_ptr_eq(contract_stat(name).ticket, ticket[i]);
    }
    ck_assert_uint_eq(contract_stat("q").waiters, 3);
    ck_assert_int_eq(contract_release(ticket[1]), BACKEND_OK);
    ck_assert_uint_eq(contract_stat(name).position, 2);
    ck_assert_int_eq(contract_stat("q/job-").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(as_many_hold_as_the_directory_is_wide)
{
    struct contract_log log[6] = {{0}};
    struct backend_ticket *ticket[6];
    struct backend_directory wider = {.width = 4};

    make_queue(2);
    for (int i = 0; i < 6; i++) {
        ticket[i] = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_FLOCK, &log[i]);
        ck_assert_int_eq(ticket[i]->held, i < 2);
    }
    ck_assert_int_eq(contract_release(ticket[0]), BACKEND_OK);
    CONTRACT_UNTIL(log[2].granted);
    ck_assert_uint_eq(log[3].granted, 0);
    ck_assert_int_eq(contract_set_directory("q", &wider), BACKEND_OK);
    CONTRACT_UNTIL(log[3].granted && log[4].granted);
    ck_assert_uint_eq(log[5].granted, 0);
    wider.width = 1;
    ck_assert_int_eq(contract_set_directory("q", &wider), BACKEND_OK);
    for (int i = 1; i <= 4; i++) {
        ck_assert_uint_eq(log[5].granted, 0);
        ck_assert_int_eq(contract_release(ticket[i]), BACKEND_OK);
    }
    CONTRACT_UNTIL(log[5].granted);
}
END_TEST

START_TEST(shared_tickets_hold_while_only_shared_ones_stand_before)
{
    struct contract_log log[4] = {{0}};
    struct backend_ticket *ticket[4];

    make_queue(1);
    ticket[0] = take("q/job-", BACKEND_SHARED, BACKEND_FLOCK, &log[0]);
    ticket[1] = take("q/job-", BACKEND_SHARED, BACKEND_FLOCK, &log[1]);
    ticket[2] = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_FLOCK, &log[2]);
    ticket[3] = take("q/job-", BACKEND_SHARED, BACKEND_FLOCK, &log[3]);
    ck_assert(ticket[0]->held && ticket[1]->held && !ticket[2]->held && !ticket[3]->held);
    ck_assert_int_eq(contract_release(ticket[0]), BACKEND_OK);
    ck_assert_int_eq(contract_release(ticket[1]), BACKEND_OK);
    CONTRACT_UNTIL(log[2].granted);
    ck_assert_uint_eq(log[3].granted, 0);
    ck_assert_int_eq(contract_release(ticket[2]), BACKEND_OK);
    CONTRACT_UNTIL(log[3].granted);
}
END_TEST

static enum backend_result turn(struct backend_ticket *ticket, enum backend_mode mode)
{
    const struct backend_claim claim = {
        .user = ticket->user, .kind = BACKEND_FLOCK, .mode = mode, .ttl = CONTRACT_LONG, .due = CONTRACT_LONG / 3};
    return contract_convert(ticket, &claim);
}

/* Each was made exclusive, as a ticket is that is taken by opening its file. */
START_TEST(tickets_that_become_shared_let_in_and_are_let_in)
{
    struct contract_log log[4] = {{0}};
    struct backend_ticket *ticket[4];

    make_queue(1);
    for (int i = 0; i < 4; i++) {
        ticket[i] = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_FLOCK, &log[i]);
    }
    ck_assert_int_eq(turn(ticket[1], BACKEND_SHARED), BACKEND_OK); /* waits behind an exclusive one */
    ck_assert_int_eq(turn(ticket[0], BACKEND_SHARED), BACKEND_OK);
    CONTRACT_UNTIL(log[1].granted);
    ck_assert_int_eq(turn(ticket[2], BACKEND_SHARED), BACKEND_OK); /* only shared ones stand before it */
    CONTRACT_UNTIL(log[2].granted);
    ck_assert_uint_eq(log[3].granted, 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(contract_release(ticket[i]), BACKEND_OK);
    }
    CONTRACT_UNTIL(log[3].granted);
}
END_TEST

START_TEST(shared_ticket_becomes_exclusive_only_where_no_other_holds)
{
    struct contract_log log[3] = {{0}};
    struct backend_ticket *ticket[3];

    make_queue(1);
    for (int i = 0; i < 3; i++) {
        ticket[i] = take("q/job-", BACKEND_SHARED, BACKEND_FLOCK, &log[i]);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(turn(ticket[i], BACKEND_EXCLUSIVE), BACKEND_BUSY);
        ck_assert(ticket[i]->held && ticket[i]->mode == BACKEND_SHARED);
    }
    ck_assert_int_eq(contract_release(ticket[0]), BACKEND_OK);
    ck_assert_int_eq(contract_release(ticket[2]), BACKEND_OK);
    ck_assert_int_eq(turn(ticket[1], BACKEND_EXCLUSIVE), BACKEND_OK);
    ticket[0] = take("q/job-", BACKEND_SHARED, BACKEND_FLOCK, &log[0]);
    ck_assert(!ticket[0]->held);
    ck_assert_int_eq(turn(ticket[1], BACKEND_SHARED), BACKEND_OK);
    CONTRACT_UNTIL(log[0].granted);
}
END_TEST

/* Whether it holds by then or not. */
START_TEST(ticket_that_has_just_become_shared_is_exclusive_only_where_no_other_holds)
{
    struct contract_log log[2] = {{0}};
    struct backend_ticket *ticket[2];

    for (int i = 0; i < 10; i++) {
        make_queue(1);
        ticket[0] = take("q/job-", BACKEND_SHARED, BACKEND_FLOCK, &log[0]);
        ticket[1] = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_FLOCK, &log[1]);
        ck_assert_int_eq(turn(ticket[1], BACKEND_SHARED), BACKEND_OK);
        enum backend_result result = turn(ticket[1], BACKEND_EXCLUSIVE);
        ck_assert(result == BACKEND_BUSY || result == BACKEND_OK);
        contract_pass(CONTRACT_SHORT);
        ck_assert(!ticket[1]->held || ticket[1]->mode == BACKEND_SHARED);
        ck_assert_int_eq(contract_release(ticket[1]), BACKEND_OK);
        ck_assert_int_eq(contract_release(ticket[0]), BACKEND_OK);
        ck_assert_int_eq(contract_rmdir("q"), BACKEND_OK);
    }
}
END_TEST

START_TEST(ticket_that_expires_in_the_queue_is_passed_over)
{
    struct contract_log log = {0}, dead = {0}, next = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &dead);
    struct backend_ticket *ticket;

    make_queue(1);
    ticket = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_LEASE, &log);
    claim.wait = claim.sequence = true;
    claim.ttl = CONTRACT_SHORT;
    ck_assert_int_eq(contract_acquire("q/job-", &claim).result, BACKEND_QUEUED);
    take("q/job-", BACKEND_EXCLUSIVE, BACKEND_LEASE, &next);
    CONTRACT_UNTIL(dead.ended);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(next.granted);
}
END_TEST

/* Dead ones would cost who waits behind them a term each. */
START_TEST(term_of_a_ticket_runs_while_it_waits)
{
    struct contract_log first = {0}, next = {0};
    make_queue(1);
    struct backend_ticket *ticket = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_LEASE, &first);
    const struct backend_ticket *waits = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_LEASE, &next);
    clock_ms deadline = waits->deadline;
    contract_pass(CONTRACT_SHORT);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(next.granted);
    ck_assert_int_le(waits->deadline, deadline);
}
END_TEST

START_TEST(ticket_that_waits_is_broken_by_its_name)
{
    struct contract_log log[3] = {{0}};
    struct backend_ticket *ticket[3];
    char name[64];

    make_queue(1);
    for (int i = 0; i < 3; i++)
        ticket[i] = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_LEASE, &log[i]);
    ck_assert(backend_ticket_name(contract_backend, ticket[1], name, sizeof(name)));
    ck_assert_int_eq(contract_revoke(name, 0), BACKEND_OK);
    CONTRACT_UNTIL(log[1].ended);
    ck_assert(ticket[0]->held);
    ck_assert_int_eq(contract_release(ticket[0]), BACKEND_OK);
    CONTRACT_UNTIL(log[2].granted);
}
END_TEST

START_TEST(tickets_of_a_queue_are_listed_with_their_info)
{
    struct contract_log logs[4] = {{0}};
    struct backend_ticket *first = NULL;

    make_queue(2);
    ck_assert_str_eq(contract_tickets("q", 10), "");
    for (unsigned i = 0; i < G_N_ELEMENTS(logs); i++) {
        struct backend_ticket *ticket = take("q/job-", BACKEND_EXCLUSIVE, BACKEND_FLOCK, &logs[i]);
        struct backend_change change = {.set = BACKEND_SET_META, .meta = g_bytes_new_static("meta", 4)};
        ck_assert_int_eq(contract_set(ticket, &change), BACKEND_OK);
        g_bytes_unref(change.meta);
        first = first ? first : ticket;
    }
    ck_assert_str_eq(contract_tickets("q", 10), "job-0000000000 held, job-0000000001 held, "
                                                "job-0000000002 waits, job-0000000003 waits");
    ck_assert_int_eq(contract_release(first), BACKEND_OK);
    CONTRACT_UNTIL(logs[2].granted);
    ck_assert_str_eq(contract_tickets("q", 2), "job-0000000001 held, job-0000000002 held, job-0000000003 waits");
}
END_TEST

START_TEST(queue_is_listed_in_order)
{
    struct contract_log log = {0};
    GString *expected = g_string_new(NULL);

    make_queue(1);
    for (int i = 0; i < 12; i++) {
        char name[64];

        ck_assert(backend_ticket_name(contract_backend, take("q/job-", BACKEND_EXCLUSIVE, BACKEND_FLOCK, &log), name,
                                      sizeof(name)));
        g_string_append_printf(expected, "%s%s", i ? " " : "", name + strlen("q/"));
    }
    ck_assert_str_eq(contract_list("q", 5), expected->str);
    g_string_free(expected, TRUE);
}
END_TEST

TCase *contract_range_case(void)
{
    TCase *tcase = tcase_create("range");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup, contract_teardown);
    if (contract_has(BACKEND_CAN_RANGE)) {
        tcase_add_test(tcase, test_shows_the_lowest_range_of_several);
        tcase_add_test(tcase, test_that_crosses_a_release_shows_the_next_range);
        tcase_add_test(tcase, ranges_that_do_not_overlap_hold_together);
        tcase_add_test(tcase, giving_back_the_middle_splits_a_range);
        tcase_add_test(tcase, what_a_lock_owner_holds_is_one_ticket);
        tcase_add_test(tcase, grant_that_crosses_its_release_gives_back_only_its_bytes);
        tcase_add_test(tcase, lock_owner_may_change_the_mode_of_a_part);
        tcase_add_test(tcase, weakening_that_is_given_up_loses_nothing);
        tcase_add_test(tcase, waiter_for_a_range_is_granted_when_all_of_it_is_free);
        tcase_add_test(tcase, neighbours_that_are_granted_together_both_get_the_event);
        tcase_add_test(tcase, grant_that_ends_before_it_is_reported_is_answered);
        tcase_add_test(tcase, end_of_what_a_lock_owner_holds_is_reported_once);
        tcase_add_test(tcase, cycle_of_lock_owners_is_found);
    }
    return tcase;
}

TCase *contract_sequence_case(void)
{
    TCase *tcase = tcase_create("sequence");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup, contract_teardown);
    if (contract_has(BACKEND_CAN_SEQUENCE)) {
        tcase_add_test(tcase, tickets_are_numbered_upwards_and_hold_in_turn);
        tcase_add_test(tcase, position_in_the_queue_is_known);
        tcase_add_test(tcase, as_many_hold_as_the_directory_is_wide);
        tcase_add_test(tcase, shared_tickets_hold_while_only_shared_ones_stand_before);
        tcase_add_test(tcase, tickets_that_become_shared_let_in_and_are_let_in);
        tcase_add_test(tcase, shared_ticket_becomes_exclusive_only_where_no_other_holds);
        tcase_add_test(tcase, ticket_that_has_just_become_shared_is_exclusive_only_where_no_other_holds);
        tcase_add_test(tcase, ticket_that_expires_in_the_queue_is_passed_over);
        tcase_add_test(tcase, term_of_a_ticket_runs_while_it_waits);
        tcase_add_test(tcase, ticket_that_waits_is_broken_by_its_name);
        tcase_add_test(tcase, queue_is_listed_in_order);
        tcase_add_test(tcase, tickets_of_a_queue_are_listed_with_their_info);
    }
    return tcase;
}
