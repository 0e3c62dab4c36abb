/* contract_redis: the contract, kept by a Redis server; and what two mounts of
 * one server, and other clients of it, are to each other. */
#include <stdio.h>

#include "backend/redis/redis.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/redis_server.h"

static struct redis_server *server;

static struct backend *open_mount(uint32_t seed)
{
    char error[256] = "";
    struct redis_options options = {.prefix = "t:", .seed = seed};
    struct backend *b = NULL;

    options.conn.uri.path = (char *)redis_server_socket(server);
    ck_assert_msg(redis_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    return b;
}

static struct backend *open_redis(void)
{
    server = redis_server_start(NULL);
    return open_mount(1);
}

static void end_server(void)
{
    redis_server_free(server);
}

/* --- two mounts --- */

static struct backend *one, *other; /* `one` is what the fixture opened */

static void two_setup(void)
{
    contract_setup();
    one = contract_backend;
    other = open_mount(2);
    contract_start(other);
    contract_backend = one;
}

static void two_teardown(void)
{
    backend_free(other);
    contract_backend = one;
    contract_teardown();
}

START_TEST(lock_of_another_mount_is_busy_and_shown)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct backend_info info;
    uint64_t fence;

    claim.content = contract_bytes("text");
    claim.meta = contract_bytes("me");
    fence = contract_acquire("a", &claim).ticket->fence;
    contract_backend = other;
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
    ck_assert_int_eq(log.why, BACKEND_RELEASED);
    ck_assert(!contract_is_busy("a"));
}
END_TEST

START_TEST(waiters_of_two_mounts_are_granted_in_the_order_in_which_they_came)
{
    enum { WAITERS = 10 };
    struct contract_log first = {0}, log[WAITERS] = {{0}};
    struct backend_ticket *before = contract_get("a", BACKEND_FLOCK, &first), *waiter[WAITERS];

    for (int i = 0; i < WAITERS; i++) {
        contract_backend = i % 2 ? one : other;
        waiter[i] = contract_queue("a", BACKEND_EXCLUSIVE, &log[i]);
    }
    for (int i = 0; i < WAITERS; i++) {
        uint64_t fence = before->fence;

        contract_backend = i % 2 ? other : one; /* of the one before */
        ck_assert_int_eq(contract_release(before), BACKEND_OK);
        CONTRACT_UNTIL(log[i].granted);
        ck_assert_uint_gt(waiter[i]->fence, fence);
        for (int later = i + 1; later < WAITERS; later++)
            ck_assert_uint_eq(log[later].granted, 0);
        before = waiter[i];
    }
}
END_TEST

/* --- other clients --- */

START_TEST(exclusive_lock_is_the_plain_key_of_other_clients)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);

    ck_assert_int_eq(redis_server_do(server, "SETNX t:a foreign"), 0);
    ck_assert_int_gt(redis_server_do(server, "STRLEN t:a"), 0);
    ck_assert_int_gt(redis_server_do(server, "PTTL t:a"), CONTRACT_LONG / 2);
    ck_assert_int_le(redis_server_do(server, "PTTL t:a"), CONTRACT_LONG);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_int_eq(redis_server_do(server, "EXISTS t:a"), 0);
}
END_TEST

START_TEST(key_of_another_client_is_a_lock_and_its_end_lets_a_waiter_in)
{
    struct contract_log waiting = {0};

    redis_server_do(server, "SET t:a foreign");
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(contract_stat("a").type, BACKEND_LOCK);
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    redis_server_do(server, "DEL t:a");
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_int_eq(redis_server_do(server, "SETNX t:a foreign"), 0);
}
END_TEST

START_TEST(key_that_is_taken_away_ends_its_lock_as_lost_when_it_is_renewed)
{
    struct contract_log log = {0};
    struct backend_renewal renewal = {.ticket = contract_get("a", BACKEND_FLOCK, &log), .ttl = CONTRACT_LONG};

    redis_server_do(server, "SET t:a foreign");
    backend_renew(contract_backend, &renewal, 1);
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_eq(log.why, BACKEND_LOST);
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(redis_server_do(server, "STRLEN t:a"), 7);
}
END_TEST

static TCase *two_case(void)
{
    TCase *tcase = tcase_create("two mounts");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, two_setup, two_teardown);
    tcase_add_test(tcase, lock_of_another_mount_is_busy_and_shown);
    tcase_add_test(tcase, waiters_of_two_mounts_are_granted_in_the_order_in_which_they_came);
    tcase_add_test(tcase, exclusive_lock_is_the_plain_key_of_other_clients);
    tcase_add_test(tcase, key_of_another_client_is_a_lock_and_its_end_lets_a_waiter_in);
    tcase_add_test(tcase, key_that_is_taken_away_ends_its_lock_as_lost_when_it_is_renewed);
    return tcase;
}

int main(void)
{
    static const struct contract redis = {.name = "redis", .open = open_redis, .clean = end_server};
    Suite *suite = contract_suite(&redis);

    suite_add_tcase(suite, two_case());
    return check_main(suite);
}
