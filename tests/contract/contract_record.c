/* contract_record: the contract for the engine of records on a model store, with several mounts and their faults. */
#include <stdio.h>

#include "backend/record/engine.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/record_model.h"
#include "tests/support/relay.h"

enum { TIMEOUT = 20000, RELAYED_TIMEOUT = 4000 };

static struct model *model;
static struct model_link *relayed;

static struct backend *open_with(uint32_t seed, int64_t timeout, const char *identity, struct model_link **ret_link)
{
    const struct engine_options options = {
        .timeout = timeout, .identity = identity, .text = "1 1.0.0 host", .address = "model:", .seed = seed};
    struct backend *b = NULL;
    model = model ? model : model_new();
    ck_assert_int_eq(engine_new(model_store(model, timeout, ret_link), &options, &b), 0);
    return b;
}

static struct backend *open_one(void)
{
    return open_with(1, TIMEOUT, NULL, NULL);
}

static struct backend *open_other(void)
{
    return open_with(2, RELAYED_TIMEOUT, NULL, relayed ? NULL : &relayed);
}

static struct backend *open_again(void)
{
    static uint32_t seed = 3;
    return open_with(seed++, TIMEOUT, "host:/mnt/locks", NULL);
}

static struct backend *open_relayed(void)
{
    return open_with(1, RELAYED_TIMEOUT, NULL, &relayed);
}

static void clean(void)
{
    model_free(model);
    model = NULL;
}

static void restart(bool empty)
{
    model_restart(model, empty);
}

/* --- faults of the relayed mount --- */

void relay_end(void)
{
    relayed = NULL;
}

void relay_be_deaf(void)
{
    link_be_deaf(relayed);
}

void relay_be_mute(void)
{
    link_be_mute(relayed);
}

void relay_cut(void)
{
    link_lose_next(relayed);
}

void relay_close(void)
{
    link_cut(relayed, true);
}

void relay_stop(void)
{
    link_stop(relayed);
}

void relay_continue(void)
{
    if (relayed) {
        link_continue(relayed);
        model_run_late(model);
    }
}

void relay_be_slow(int64_t ms)
{
    link_be_slow(relayed, ms);
}

void relay_reset(void)
{
    if (relayed) {
        link_cut(relayed, false);
    }
}

/* --- what only a store of records has --- */

static void pass(int64_t ms)
{
    clock_ms until = clock_now() + ms;
    CONTRACT_UNTIL(clock_now() >= until);
}

static void setup(void)
{
    contract_setup_two();
}

static void note_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                          const struct backend_info *holder)
{
    (void)ticket, (void)holder;
    *(int *)arg = (int)result;
    contract_end_turn();
}

/* Rule 1.  The other mount reads the record before the holder extends it, and writes it after that. */
START_TEST(extension_between_a_read_and_a_swap_is_not_lost)
{
    enum { TERM = 1500, SLOW = 200 };
    struct contract_log log = {0}, waiting = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    int result = -1;
    claim.ttl = TERM;
    struct backend_ticket *ticket = contract_acquire("L", &claim).ticket;
    ck_assert(!contract_is_busy("up"));
    link_be_slow(relayed, SLOW);
    claim.user = &waiting;
    claim.ttl = CONTRACT_LONG;
    claim.wait = true;
    backend_acquire(contract_other, "L", &claim, note_acquired, &result);
    pass(2 * SLOW + SLOW / 2); /* its first attempt is answered, and its second one under way */
    backend_renew(contract_one, &(struct backend_renewal){.ticket = ticket, .ttl = TERM}, 1);
    clock_ms renewed = clock_now();
    CONTRACT_UNTIL(result >= 0);
    link_continue(relayed);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_int_ge(clock_now() - renewed, TERM - TERM / 100 - 2);
}
END_TEST

/* Rule 4.  Its mount is cut off for longer than its waiters would live. */
START_TEST(holder_without_a_heartbeat_holds_until_its_deadline)
{
    enum { CUT = 9000 };
    struct contract_log log = {0}, waiting = {0};
    contract_backend = contract_other;
    contract_get("L", BACKEND_FLOCK, &log);
    link_stop(relayed);
    contract_backend = contract_one;
    contract_queue("L", BACKEND_EXCLUSIVE, &waiting);
    pass(CUT);
    ck_assert_uint_eq(waiting.granted + log.ended, 0);
}
END_TEST

/* Rule 5.  The holder's mount is gone, so only the store ends its lock. */
START_TEST(client_that_polls_does_not_come_before_a_waiter)
{
    struct contract_log log = {0}, waiting = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    claim.ttl = 600;
    contract_backend = contract_other;
    ck_assert_int_eq(contract_acquire("L", &claim).result, BACKEND_OK);
    link_stop(relayed);
    contract_backend = contract_one;
    contract_queue("L", BACKEND_EXCLUSIVE, &waiting);
    contract_restart_time_limit();
    while (!waiting.granted) {
        ck_assert(!model_foreign_take(model, "L", 1000));
        contract_poll();
    }
}
END_TEST

/* Rule 6. */
START_TEST(queue_stands_beside_the_lock_of_another_client)
{
    struct contract_log waiting[2] = {{0}};
    ck_assert(model_foreign_take(model, "L", 0));
    ck_assert(contract_is_busy("L"));
    ck_assert_int_eq(contract_stat("L").type, BACKEND_LOCK);
    struct backend_ticket *first = contract_queue("L", BACKEND_EXCLUSIVE, &waiting[0]);
    contract_backend = contract_other;
    contract_queue("L", BACKEND_EXCLUSIVE, &waiting[1]);
    ck_assert_uint_eq(model_count(model, STORE_QUEUE), 1);
    ck_assert(!model_foreign_take(model, "L", 0)); /* it is still there */
    pass(100);
    ck_assert_uint_eq(waiting[0].granted + waiting[1].granted, 0);
    model_foreign_release(model, "L");
    CONTRACT_UNTIL(waiting[0].granted);
    ck_assert_uint_eq(waiting[1].granted, 0);
    ck_assert_uint_eq(model_count(model, STORE_QUEUE), 0);
    ck_assert(!model_foreign_take(model, "L", 0));
    contract_backend = contract_one;
    ck_assert_int_eq(contract_release(first), BACKEND_OK);
    CONTRACT_UNTIL(waiting[1].granted);
}
END_TEST

START_TEST(lock_of_another_client_is_broken_without_conditions_only)
{
    struct contract_log log = {0};
    ck_assert(model_foreign_take(model, "L", 0));
    ck_assert_int_eq(contract_revoke("L", 1), BACKEND_STALE);
    ck_assert_int_eq(contract_revoke_matching("L", 0, 5, "7"), BACKEND_BUSY);
    ck_assert(contract_is_busy("L"));
    ck_assert_int_eq(contract_revoke("L", 0), BACKEND_OK);
    contract_get("L", BACKEND_LEASE, &log);
}
END_TEST

/* Rule 7.  A frozen server carries the swap out when its mount has a new connection, and has answered its caller. */
START_TEST(swap_of_an_earlier_connection_is_refused)
{
    struct contract_log log = {0}, other = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    contract_backend = contract_other;
    ck_assert(!contract_is_busy("up"));
    link_stop(relayed);
    ck_assert_int_eq(contract_acquire("L", &claim).result, BACKEND_UNREACHABLE);
    CONTRACT_UNTIL(!link_is_up(relayed));
    link_continue(relayed);
    pass(300);
    ck_assert(!contract_is_busy("up"));
    model_run_late(model);
    contract_backend = contract_one;
    contract_get("L", BACKEND_LEASE, &other);
}
END_TEST

/* Rule 11. */
START_TEST(plain_lock_of_the_name_of_a_ticket_excludes_it)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log[1]);
    char name[64];
    contract_get("t-0000000000", BACKEND_LEASE, &log[0]);
    contract_backend = contract_other;
    claim.sequence = claim.wait = true;
    struct contract_acquired acquired = contract_acquire("t-", &claim);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
    ck_assert(backend_ticket_name(contract_other, acquired.ticket, name, sizeof name));
    ck_assert_str_eq(name, "t-0000000001");
    ck_assert(contract_is_busy("t-0000000001"));
    ck_assert_str_eq(contract_list("", 10), "t-0000000000 t-0000000001");
}
END_TEST

/* Rule 12. */
START_TEST(one_user_has_a_quarter_of_a_record)
{
    enum { QUARTER = 1024 };
    static struct contract_log logs[QUARTER + 2];
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, NULL);
    static const char *const metas[] = {"1 h 1 1 7 7 100644 0 - b - c", "1 h 1 1 8 8 100644 0 - b - c"};
    int results[QUARTER];
    claim.mode = BACKEND_SHARED;
    claim.meta = contract_bytes(metas[0]);
    for (unsigned i = 0; i < QUARTER; i++) {
        claim.user = &logs[i];
        claim.handle = i + 1;
        results[i] = -1;
        backend_acquire(contract_one, "L", &claim, note_acquired, &results[i]);
    }
    for (unsigned i = 0; i < QUARTER; i++) {
        CONTRACT_UNTIL(results[i] >= 0);
        ck_assert_int_eq(results[i], BACKEND_OK);
    }
    claim.user = &logs[QUARTER];
    claim.handle = QUARTER + 1;
    ck_assert_int_eq(contract_acquire("L", &claim).result, BACKEND_QUOTA);
    claim.meta = contract_bytes(metas[1]);
    claim.user = &logs[QUARTER + 1];
    ck_assert_int_eq(contract_acquire("L", &claim).result, BACKEND_OK);
}
END_TEST

START_TEST(full_store_refuses_new_locks_and_goes_on_releasing)
{
    struct contract_log log = {0}, other = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &other);
    model_set_room(model, 1);
    ck_assert_int_eq(contract_acquire("b", &claim).result, BACKEND_FULL);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    model_set_room(model, 0);
    ck_assert_int_eq(contract_acquire("b", &claim).result, BACKEND_OK);
}
END_TEST

START_TEST(name_that_is_free_costs_the_store_nothing)
{
    for (int i = 0; i < 100; i++) {
        struct contract_log log = {0};
        struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = g_bytes_new_take(g_malloc0(5000), 5000)};
        g_autofree char *name = g_strdup_printf("n%d", i);
        struct backend_ticket *ticket = contract_get(name, BACKEND_LEASE, &log);
        ck_assert_int_eq(contract_set(ticket, &change), BACKEND_OK);
        ck_assert_uint_eq(model_count(model, STORE_CONTENT), 1);
        ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
        g_bytes_unref(change.content);
    }
    ck_assert_uint_eq(model_count(model, STORE_LOCK) + model_count(model, STORE_CONTENT), 0);
}
END_TEST

START_TEST(uncontended_cycle_is_two_changes)
{
    struct contract_log log = {0};
    ck_assert_int_eq(contract_release(contract_get("a", BACKEND_LEASE, &log)), BACKEND_OK);
    uint64_t before = model_changes(model), requests = model_requests(model);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(contract_release(contract_get("a", BACKEND_LEASE, &log)), BACKEND_OK);
    }
    ck_assert_uint_eq(model_changes(model) - before, 100);
    ck_assert_uint_le(model_requests(model) - requests, 105); /* with heartbeats */
}
END_TEST

static TCase *record_case(void)
{
    TCase *tcase = tcase_create("record");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, contract_teardown_two);
    tcase_add_test(tcase, extension_between_a_read_and_a_swap_is_not_lost);
    tcase_add_test(tcase, holder_without_a_heartbeat_holds_until_its_deadline);
    tcase_add_test(tcase, client_that_polls_does_not_come_before_a_waiter);
    tcase_add_test(tcase, queue_stands_beside_the_lock_of_another_client);
    tcase_add_test(tcase, lock_of_another_client_is_broken_without_conditions_only);
    tcase_add_test(tcase, swap_of_an_earlier_connection_is_refused);
    tcase_add_test(tcase, plain_lock_of_the_name_of_a_ticket_excludes_it);
    tcase_add_test(tcase, one_user_has_a_quarter_of_a_record);
    tcase_add_test(tcase, full_store_refuses_new_locks_and_goes_on_releasing);
    tcase_add_test(tcase, name_that_is_free_costs_the_store_nothing);
    tcase_add_test(tcase, uncontended_cycle_is_two_changes);
    return tcase;
}

int main(void)
{
    static const struct contract record = {.name = "record",
                                           .open = open_one,
                                           .clean = clean,
                                           .open_other = open_other,
                                           .open_again = open_again,
                                           .refuses_daemon_before = true,
                                           .open_relayed = open_relayed,
                                           .restart = restart,
                                           .timeout = RELAYED_TIMEOUT};
    Suite *suite = contract_suite(&record);
    suite_add_tcase(suite, record_case());
    return check_main(suite);
}
