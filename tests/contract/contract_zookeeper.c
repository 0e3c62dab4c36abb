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

static struct backend *open_other(void)
{
    return open_mount(2);
}

/* The processes that took it may believe in it for its term. */
START_TEST(end_of_a_mount_keeps_what_it_held_and_nothing_else)
{
    struct contract_log log[2] = {{0}}, waiting = {0}, last = {0};

    contract_get("held", BACKEND_LEASE, &log[0]);
    backend_free(contract_one);
    contract_one = open_mount(3);
    contract_start(contract_one);
    ck_assert(contract_is_busy("held"));
    contract_backend = contract_other;
    ck_assert(contract_is_busy("held"));
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[1]);
    contract_backend = contract_one;
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    contract_backend = contract_other;
    contract_queue("a", BACKEND_EXCLUSIVE, &last);
    backend_free(contract_one);
    contract_one = open_mount(4);
    contract_start(contract_one);
    contract_backend = contract_other;
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(last.granted);
}
END_TEST

static TCase *zookeeper_case(void)
{
    TCase *tcase = tcase_create("zookeeper");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup_two, contract_teardown_two);
    tcase_add_test(tcase, end_of_a_mount_keeps_what_it_held_and_nothing_else);
    return tcase;
}

int main(void)
{
    static const struct contract zookeeper = {
        .name = "zookeeper", .open = open_zookeeper, .open_other = open_other, .pace = 30};

    if (!zookeeper_server_exists()) {
        puts("1..0 # skip there is no ZooKeeper server");
        return 0;
    }
    struct zookeeper_server *server = zookeeper_server_start();
    port = zookeeper_server_port(server);
    Suite *suite = contract_suite(&zookeeper);
    suite_add_tcase(suite, zookeeper_case());
    int result = check_main(suite);
    zookeeper_server_free(server);
    return result;
}
