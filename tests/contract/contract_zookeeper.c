/* contract_zookeeper: the contract, kept by a ZooKeeper server; and what two mounts of one are to each other. */
#include <stdio.h>
#include <unistd.h>

#include "backend/zookeeper/zookeeper.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/zookeeper_server.h"

static uint16_t port; /* of the one server; each check has a root of its own in it */

static struct backend *open_mount(uint32_t seed)
{
    char error[256] = "", *text = g_strdup_printf("zookeeper://127.0.0.1:%u/check/%d", port, getpid());
    struct zookeeper_uri uri;
    struct backend *b = NULL;

    ck_assert_msg(zookeeper_uri_parse(&uri, text, error, sizeof(error)) == 0, "%s", error);
    const struct zookeeper_options options = {.uri = &uri, .ttl = CONTRACT_LONG / 2, .seed = seed};
    ck_assert_msg(zookeeper_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    zookeeper_uri_clear(&uri);
    g_free(text);
    return b;
}

static struct backend *open_zookeeper(void)
{
    return open_mount(1);
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

START_TEST(upgrade_is_busy_while_another_mount_shares)
{
    struct contract_log log = {0}, sharing = {0};
    struct backend_ticket *ticket = contract_get_shared("a", BACKEND_FLOCK, &log), *its;
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);

    contract_backend = other;
    its = contract_get_shared("a", BACKEND_FLOCK, &sharing);
    contract_backend = one;
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_BUSY);
    contract_backend = other;
    ck_assert_int_eq(contract_convert(its, &claim), BACKEND_BUSY);
    ck_assert_int_eq(contract_release(its), BACKEND_OK);
    contract_backend = one;
    ck_assert_int_eq(contract_convert(ticket, &claim), BACKEND_OK);
    contract_backend = other;
    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
}
END_TEST

/* The processes that took it may believe in it for its term. */
START_TEST(end_of_a_mount_keeps_what_it_held_and_nothing_else)
{
    struct contract_log log[2] = {{0}}, waiting = {0}, last = {0};

    contract_get("held", BACKEND_LEASE, &log[0]);
    backend_free(one);
    one = open_mount(3);
    contract_start(one);
    ck_assert(contract_is_busy("held"));
    contract_backend = other;
    ck_assert(contract_is_busy("held"));
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[1]);
    contract_backend = one;
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    contract_backend = other;
    contract_queue("a", BACKEND_EXCLUSIVE, &last);
    backend_free(one);
    one = open_mount(4);
    contract_start(one);
    contract_backend = other;
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(last.granted);
}
END_TEST

static TCase *two_case(void)
{
    TCase *tcase = tcase_create("two mounts");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, two_setup, two_teardown);
    tcase_add_test(tcase, lock_of_another_mount_is_busy_and_shown);
    tcase_add_test(tcase, waiters_of_two_mounts_are_granted_in_the_order_in_which_they_came);
    tcase_add_test(tcase, upgrade_is_busy_while_another_mount_shares);
    tcase_add_test(tcase, end_of_a_mount_keeps_what_it_held_and_nothing_else);
    return tcase;
}

int main(void)
{
    static const struct contract zookeeper = {.name = "zookeeper", .open = open_zookeeper, .pace = 30};

    if (!zookeeper_server_exists()) {
        puts("1..0 # skip there is no ZooKeeper server");
        return 0;
    }
    struct zookeeper_server *server = zookeeper_server_start();
    port = zookeeper_server_port(server);
    Suite *suite = contract_suite(&zookeeper);
    suite_add_tcase(suite, two_case());
    int result = check_main(suite);
    zookeeper_server_free(server);
    return result;
}
