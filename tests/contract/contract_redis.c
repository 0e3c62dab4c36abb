/* contract_redis: the contract for a Redis server; and two mounts of one server, beside other clients.  CONTRACT_WAIT:
 * the server has a replica, which must confirm (wait=). */
#include <stdio.h>
#include <unistd.h>

#include "backend/redis/redis.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/redis_server.h"
#include "tests/support/relay.h"

#ifndef CONTRACT_WAIT
#define CONTRACT_WAIT 0
#endif

/* Each check has a prefix of its own in them. */
static struct redis_server *server, *replica;
static char prefix[16];

enum { RELAYED_TIMEOUT = 4000 };

static struct backend *open_with(struct redis_options options)
{
    char error[256] = "";
    struct backend *b = NULL;
    while (CONTRACT_WAIT && redis_server_do(server, "WAIT 1 1000") < 1) {
    }
    snprintf(prefix, sizeof prefix, "t%d:", contract_world());
    options.prefix = prefix;
    options.conn.wait = CONTRACT_WAIT;
    ck_assert_msg(redis_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    return b;
}

static struct backend *open_mount_of(uint32_t seed, const char *identity)
{
    struct redis_options options = {.seed = seed, .identity = identity};
    options.conn.timeout = options.conn.command_timeout = 20000; /* server and replica may be slow on a busy machine */
    options.conn.uri.path = (char *)redis_server_socket(server);
    return open_with(options);
}

static void start_servers(void)
{
    char port[8];
    const char *const arguments[] = {"--replicaof", "127.0.0.1", port, NULL};
    static const char *const at_once[] = {"--repl-diskless-sync-delay", "0", NULL};
    server = redis_server_start(at_once);
    g_snprintf(port, sizeof port, "%u", redis_server_port(server));
    replica = CONTRACT_WAIT ? redis_server_start(arguments) : NULL;
}

static struct backend *open_mount(uint32_t seed)
{
    return open_mount_of(seed, NULL);
}

static struct backend *open_again(void)
{
    static uint32_t seed = 3;
    return open_mount_of(seed++, "host:/mnt/locks");
}

static struct backend *open_redis(void)
{
    return open_mount(1);
}

static struct backend *open_relayed(void)
{
    struct redis_options options = {.seed = 1};
    options.conn.timeout = options.conn.command_timeout = RELAYED_TIMEOUT;
    options.conn.uri.host = (char *)"127.0.0.1";
    options.conn.uri.port = relay_port(relay_to(contract_loop, redis_server_port(server)));
    return open_with(options);
}

static struct backend *open_other(void)
{
    return open_mount(2);
}

static void free_servers(void)
{
    if (replica) {
        redis_server_free(replica);
    }
    redis_server_free(server);
}

static struct redis_server *shared[2]; /* those that the other checks have */

static void begin_own_servers(void)
{
    shared[0] = server;
    shared[1] = replica;
    start_servers();
}

static void end_own_servers(void)
{
    free_servers();
    server = shared[0];
    replica = shared[1];
}

static void restart(bool empty)
{
    redis_server_do(server, empty ? "FLUSHALL" : "SAVE");
    redis_server_stop(server);
    redis_server_again(server);
}

START_TEST(lock_that_another_mount_releases_by_its_token_ends_as_released)
{
    struct contract_log log = {0};
    uint64_t fence = contract_get("a", BACKEND_LEASE, &log)->fence;

    contract_backend = contract_other;
    ck_assert_int_eq(contract_revoke("a", fence), BACKEND_OK);
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_eq(log.why, BACKEND_RELEASED);
}
END_TEST

/* --- other clients --- */

/* A command with the key of the lock "a" behind its first word, and more behind that. */
static long long do_with_key(const char *word, const char *more)
{
    return more ? redis_server_do(server, "%s %sa %s", word, prefix, more)
                : redis_server_do(server, "%s %sa", word, prefix);
}

START_TEST(exclusive_lock_is_the_plain_key_of_other_clients)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);

    ck_assert_int_eq(do_with_key("SETNX", "foreign"), 0);
    ck_assert_int_gt(do_with_key("STRLEN", NULL), 0);
    ck_assert_int_gt(do_with_key("PTTL", NULL), CONTRACT_LONG / 2);
    ck_assert_int_le(do_with_key("PTTL", NULL), CONTRACT_LONG);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_int_eq(do_with_key("EXISTS", NULL), 0);
}
END_TEST

START_TEST(key_of_another_client_is_a_lock_and_its_end_lets_a_waiter_in)
{
    struct contract_log waiting = {0};

    do_with_key("SET", "foreign");
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(contract_stat("a").type, BACKEND_LOCK);
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    do_with_key("DEL", NULL);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_int_eq(do_with_key("SETNX", "foreign"), 0);
}
END_TEST

START_TEST(key_that_is_taken_away_ends_its_lock_as_lost_when_it_is_renewed)
{
    struct contract_log log = {0};
    struct backend_renewal renewal = {.ticket = contract_get("a", BACKEND_FLOCK, &log), .ttl = CONTRACT_LONG};

    do_with_key("SET", "foreign");
    backend_renew(contract_backend, &renewal, 1);
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_eq(log.why, BACKEND_LOST);
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(do_with_key("STRLEN", NULL), 7);
}
END_TEST

static TCase *redis_case(void)
{
    TCase *tcase = tcase_create("redis");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup_two, contract_teardown_two);
    tcase_add_test(tcase, lock_that_another_mount_releases_by_its_token_ends_as_released);
    tcase_add_test(tcase, exclusive_lock_is_the_plain_key_of_other_clients);
    tcase_add_test(tcase, key_of_another_client_is_a_lock_and_its_end_lets_a_waiter_in);
    tcase_add_test(tcase, key_that_is_taken_away_ends_its_lock_as_lost_when_it_is_renewed);
    return tcase;
}

int main(void)
{
    static const struct contract redis = {.name = "redis",
                                          .open = open_redis,
                                          .open_other = open_other,
                                          .open_again = open_again,
                                          .refuses_daemon_before = true,
                                          .open_relayed = open_relayed,
                                          .begin_own_servers = begin_own_servers,
                                          .end_own_servers = end_own_servers,
                                          .restart = CONTRACT_WAIT ? NULL : restart,
                                          .brief = CONTRACT_WAIT,
                                          .timeout = RELAYED_TIMEOUT};
    if (!redis_server_exists()) {
        puts("1..0 # skip there is no redis-server");
        return 0;
    }
    start_servers();
    Suite *suite = contract_suite(&redis);
    suite_add_tcase(suite, redis_case());
    int result = check_main(suite);
    free_servers();
    return result;
}
