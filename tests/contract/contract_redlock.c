/* contract_redlock: the contract for a majority of independent Redis servers; two mounts of them, beside other clients;
 * and servers that fail. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/redlock/redlock.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/redis_server.h"
#include "tests/support/relay.h"

static struct redis_server *servers[3]; /* each check has a prefix of its own in them */
static int64_t term =
    1; /* ms: for so long they are held off, and for a second, which is over when the first check begins */

static struct backend *open_mount_at(const uint16_t *ports, uint32_t seed, const char *identity)
{
    char error[256] = "", *prefix = g_strdup_printf("t%d:", contract_world());
    char *text = g_strdup_printf("redlock://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", ports[0], ports[1], ports[2]);
    struct redlock_uri uri;
    struct backend *b = NULL;

    ck_assert_msg(redlock_uri_parse(&uri, text, error, sizeof(error)) == 0, "%s", error);
    const struct redlock_options options = {
        .uri = &uri, .prefix = prefix, .ttl = CONTRACT_LONG, .identity = identity, .grace = term, .seed = seed};
    ck_assert_msg(redlock_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    redlock_uri_clear(&uri);
    g_free(prefix);
    g_free(text);
    return b;
}

static struct backend *open_mount_as(uint32_t seed, const char *identity)
{
    uint16_t ports[G_N_ELEMENTS(servers)];
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        ports[i] = redis_server_port(servers[i]);
    return open_mount_at(ports, seed, identity);
}

static struct backend *open_mount(uint32_t seed)
{
    return open_mount_as(seed, NULL);
}

/* The next daemon of a mount, which finds what the one before held. */
static struct backend *open_again(void)
{
    static uint32_t seed = 100;
    return open_mount_as(seed++, "host:/mnt/locks");
}

static void await_uptime(struct redis_server *server, long long seconds)
{
    static const char uptime[] = "return tonumber(redis.call('INFO', 'server'):match('uptime_in_seconds:(%d+)'))";

    while (redis_server_do(server, "EVAL %s 0", uptime) < seconds)
        g_usleep(10000);
}

static struct backend *open_redlock(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        await_uptime(servers[i], 2);
    return open_mount(1);
}

static struct backend *open_relayed(void)
{
    uint16_t ports[G_N_ELEMENTS(servers)];
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++) {
        await_uptime(servers[i], 2);
        ports[i] = relay_port(relay_to(contract_loop, redis_server_port(servers[i])));
    }
    return open_mount_at(ports, 1, NULL);
}

static struct backend *open_other(void)
{
    return open_mount(2);
}

/* --- two mounts --- */

/* A command with the key of the lock "a" behind its first word, and more behind that. */
static long long server_do(unsigned server, const char *word, const char *more)
{
    char *key = g_strdup_printf("t%d:a", contract_world());
    long long answer = more ? redis_server_do(servers[server], "%s %s %s", word, key, more)
                            : redis_server_do(servers[server], "%s %s", word, key);

    g_free(key);
    return answer;
}

/* On how many servers the key of "a" is there. */
static unsigned keys(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < G_N_ELEMENTS(servers); i++)
        count += server_do(i, "EXISTS", NULL) == 1;
    return count;
}

START_TEST(waiters_of_two_mounts_all_get_it_and_its_token_grows)
{
    enum { WAITERS = 6 };
    struct contract_log first = {0}, log[WAITERS] = {{0}};
    struct backend_ticket *holder = contract_get("a", BACKEND_FLOCK, &first), *waiter[WAITERS];
    struct backend *of = contract_one;

    for (int i = 0; i < WAITERS; i++) {
        contract_backend = i % 2 ? contract_one : contract_other;
        waiter[i] = contract_queue("a", BACKEND_EXCLUSIVE, &log[i]);
    }
    for (int i = 0; i < WAITERS; i++) {
        uint64_t fence = holder->fence;
        int granted = -1, many = 0;

        contract_backend = of;
        ck_assert_int_eq(contract_release(holder), BACKEND_OK);
        while (granted < 0) {
            contract_turn();
            for (int k = 0; k < WAITERS; k++)
                if (log[k].granted == 1)
                    granted = k;
        }
        for (int k = 0; k < WAITERS; k++)
            many += log[k].granted == 1;
        ck_assert_int_eq(many, 1); /* and no other */
        log[granted].granted = 2;
        holder = waiter[granted];
        of = granted % 2 ? contract_one : contract_other;
        ck_assert_uint_gt(holder->fence, fence);
    }
    ck_assert_uint_gt(first.wanted, 0);
}
END_TEST

START_TEST(token_grows_although_the_servers_forget_it)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    uint64_t fence = ticket->fence;

    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    for (unsigned i = 0; i < G_N_ELEMENTS(servers); i++) {
        char *key = g_strdup_printf("lfs:N:t%d:a", contract_world());

        CONTRACT_UNTIL(redis_server_do(servers[i], "DEL %s", key) == 1); /* a majority, and the third behind it */
        g_free(key);
    }
    contract_backend = contract_other;
    ck_assert_uint_gt(contract_get("a", BACKEND_LEASE, &log)->fence, fence);
}
END_TEST

START_TEST(token_is_greater_than_one_that_only_one_server_of_a_majority_knows)
{
    struct contract_log log = {0};
    char *key = g_strdup_printf("lfs:N:t%d:a", contract_world());

    for (unsigned i = 0; i < 2; i++) /* the number that a majority has; the clock is below it */
        redis_server_do(servers[i], "SET %s 9000000000000000", key);
    ck_assert_uint_gt(contract_get("a", BACKEND_LEASE, &log)->fence, UINT64_C(9000000000000000));
    CONTRACT_UNTIL(redis_server_do(servers[2], "STRLEN %s", key) == 16); /* and it is written back, to each */
    g_free(key);
}
END_TEST

/* --- other clients --- */

START_TEST(lock_is_the_plain_key_of_other_clients_on_each_server)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);

    CONTRACT_UNTIL(keys() == 3);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(server_do(i, "SETNX", "foreign"), 0);
        ck_assert_int_eq(server_do(i, "STRLEN", NULL), 32);
        ck_assert_int_gt(server_do(i, "PTTL", NULL), CONTRACT_LONG / 2);
        ck_assert_int_le(server_do(i, "PTTL", NULL), CONTRACT_LONG);
    }
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(keys() == 0);
}
END_TEST

START_TEST(majority_of_another_client_is_a_lock_and_its_end_lets_a_waiter_in)
{
    struct contract_log waiting = {0};

    server_do(0, "SET", "foreign");
    server_do(1, "SET", "foreign");
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(contract_stat("a").type, BACKEND_LOCK);
    CONTRACT_UNTIL(keys() == 2); /* what was refused leaves nothing */
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    server_do(0, "DEL", NULL);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_int_eq(server_do(0, "SETNX", "foreign"), 0);
}
END_TEST

START_TEST(key_on_one_server_is_no_lock)
{
    struct contract_log log = {0};

    server_do(2, "SET", "foreign");
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    contract_get("a", BACKEND_LEASE, &log);
    ck_assert_int_eq(server_do(2, "STRLEN", NULL), 7);
}
END_TEST

START_TEST(lock_that_a_majority_has_given_to_another_is_lost_when_it_is_renewed)
{
    struct contract_log log = {0}, marker = {0};
    struct backend_renewal renewal = {.ticket = contract_get("a", BACKEND_FLOCK, &log), .ttl = CONTRACT_LONG};

    CONTRACT_UNTIL(keys() == 3);
    server_do(0, "SET", "foreign");
    backend_renew(contract_backend, &renewal, 1);
    contract_release(contract_get("b", BACKEND_FLOCK, &marker)); /* which goes behind that */
    ck_assert_uint_eq(log.ended, 0);
    server_do(1, "SET", "foreign");
    backend_renew(contract_backend, &renewal, 1);
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_eq(log.why, BACKEND_LOST);
    ck_assert(contract_is_busy("a"));
    ck_assert_int_eq(server_do(0, "STRLEN", NULL), 7);
}
END_TEST

START_TEST(key_that_was_deleted_on_all_servers_is_not_given_again)
{
    struct contract_log log = {0};
    struct backend_renewal renewal = {.ticket = contract_get("a", BACKEND_FLOCK, &log), .ttl = CONTRACT_LONG};

    CONTRACT_UNTIL(keys() == 3);
    for (unsigned i = 0; i < 3; i++)
        server_do(i, "DEL", NULL);
    backend_renew(contract_backend, &renewal, 1);
    CONTRACT_UNTIL(log.ended);
    ck_assert_int_eq(log.why, BACKEND_LOST);
    CONTRACT_UNTIL(keys() == 0);
}
END_TEST

/* As another mount's claim leaves it: a number is reported when a majority has it. */
static void claim_on(unsigned server, const char *number)
{
    char *record = g_strdup_printf("lfs:R:t%d:a", contract_world());

    server_do(server, "SET", "another");
    redis_server_do(servers[server], "HSET %s token another number %s", record, number);
    g_free(record);
}

/* Renews it, and waits until the servers have answered. */
static void renew(struct backend_ticket *ticket)
{
    struct backend_renewal renewal = {.ticket = ticket, .ttl = CONTRACT_LONG};

    backend_renew(contract_backend, &renewal, 1);
    contract_get("b", BACKEND_FLOCK, &(struct contract_log){0}); /* which goes behind that */
    ck_assert_int_eq(contract_release(contract_stat("b").ticket), BACKEND_OK);
}

START_TEST(claim_and_remains_of_an_earlier_lock_keep_no_holder_from_a_server)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);

    CONTRACT_UNTIL(keys() == 3);
    claim_on(2, "9000000000000000"); /* which was given later than ours */
    for (int i = 0; i < 3; i++)
        renew(ticket);
    ck_assert_int_eq(server_do(2, "STRLEN", NULL), 7);
    for (int i = 0; i < 2; i++) {
        claim_on(2, i == 0 ? "0" : "7");
        renew(ticket);
        CONTRACT_UNTIL(server_do(2, "STRLEN", NULL) == 32);
    }
    ck_assert_uint_eq(log.ended, 0);
}
END_TEST

START_TEST(break_of_a_lock_that_was_ended_elsewhere_ends_who_holds_now)
{
    struct contract_log log = {0};

    contract_get("a", BACKEND_LEASE, &log);
    CONTRACT_UNTIL(keys() == 3);
    for (unsigned i = 0; i < 3; i++)
        server_do(i, "SET", "foreign");
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    CONTRACT_UNTIL(keys() == 0);
    ck_assert_uint_eq(log.ended, 1);
}
END_TEST

/* --- what comes late --- */

/* Records all further requests to a server. */
static void note(unsigned server)
{
    redis_server_do(servers[server], "CONFIG SET slowlog-max-len 10000");
    redis_server_do(servers[server], "CONFIG SET slowlog-log-slower-than 0");
    redis_server_do(servers[server], "SLOWLOG RESET");
}

/* Sends all recorded scripts with that many keys again, like a closed connection whose data is late; returns how many.
 * `ttl`: in place of their second argument, or NULL. */
static unsigned say_again(unsigned server, const char *keys, const char *ttl)
{
    redisContext *context = redisConnectUnix(redis_server_socket(servers[server]));
    redisReply *log = redisCommand(context, "SLOWLOG GET 10000");
    unsigned said = 0;

    ck_assert(log && log->type == REDIS_REPLY_ARRAY);
    for (size_t i = 0; i < log->elements; i++) {
        const redisReply *words = log->element[i]->element[3];
        const char *argv[32];
        size_t lengths[32], second = 4 + (size_t)atoi(keys);

        if (words->elements <= second || strcmp(words->element[0]->str, "EVALSHA") != 0 ||
            strcmp(words->element[2]->str, keys) != 0)
            continue;
        for (size_t k = 0; k < words->elements; k++) {
            argv[k] = ttl && k == second ? ttl : words->element[k]->str;
            lengths[k] = strlen(argv[k]);
        }
        redisReply *reply = redisCommandArgv(context, (int)words->elements, argv, lengths);
        ck_assert(reply && reply->type == REDIS_REPLY_ARRAY);
        freeReplyObject(reply);
        said++;
    }
    freeReplyObject(log);
    redisFree(context);
    redis_server_do(servers[server], "CONFIG SET slowlog-log-slower-than -1");
    return said;
}

START_TEST(release_of_an_earlier_try_that_comes_late_lets_nothing_go)
{
    struct contract_log waiting = {0};

    server_do(0, "SET", "foreign");
    server_do(1, "SET", "foreign");
    note(2);
    contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    server_do(0, "DEL", NULL);
    CONTRACT_UNTIL(waiting.granted);
    ck_assert_uint_ge(say_again(2, "5", NULL), 1); /* releases, and what was kept */
    ck_assert_int_eq(server_do(2, "EXISTS", NULL), 1);
    contract_backend = contract_other;
    ck_assert(contract_is_busy("a"));
}
END_TEST

START_TEST(claim_that_is_repeated_late_shortens_nothing)
{
    struct contract_log log = {0};

    note(2);
    uint64_t fence = contract_get("a", BACKEND_LEASE, &log)->fence;
    CONTRACT_UNTIL(keys() == 3);
    ck_assert_uint_ge(say_again(2, "7", "1500"), 1);
    ck_assert_int_gt(server_do(2, "PTTL", NULL), CONTRACT_LONG / 2);
    contract_backend = contract_other;
    ck_assert_uint_eq(contract_stat("a").fence, fence);
}
END_TEST

START_TEST(lock_owner_does_not_join_the_flock_of_its_handle_beside_another_owner)
{
    struct contract_log log[3] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log[0]);

    claim.handle = 7;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    for (uint64_t owner = 1; owner <= 2; owner++) {
        claim = contract_claim(BACKEND_FCNTL, &log[owner]);
        claim.handle = 7;
        claim.lock_owner = owner;
        claim.end = BACKEND_RANGE_MAX;
        ck_assert_int_eq(contract_acquire("a", &claim).result, owner == 1 ? BACKEND_OK : BACKEND_BUSY);
    }
}
END_TEST

/* The claim of a lock owner of the handle 7, which may join its flock. */
static struct backend_claim join_claim(struct contract_log *log)
{
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, log);

    claim.handle = 7;
    claim.lock_owner = 1;
    claim.end = BACKEND_RANGE_MAX;
    return claim;
}

static struct backend_ticket *get_of_handle(struct contract_log *log)
{
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, log);

    claim.handle = 7;
    const struct contract_acquired of = contract_acquire("a", &claim);
    ck_assert_int_eq(of.result, BACKEND_OK);
    return of.ticket;
}

START_TEST(claim_that_would_join_what_is_lost_takes_the_lock_for_itself)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = join_claim(&log[1]);
    const struct backend_ticket *ticket = get_of_handle(&log[0]);
    uint64_t fence = ticket->fence;

    CONTRACT_UNTIL(keys() == 3);
    for (unsigned i = 0; i < 3; i++)
        server_do(i, "DEL", NULL);
    const struct contract_acquired joined = contract_acquire("a", &claim);
    ck_assert_int_eq(joined.result, BACKEND_OK);
    ck_assert_uint_gt(joined.ticket->fence, fence);
    ck_assert_uint_eq(log[0].ended, 1);
    ck_assert_int_eq(log[0].why, BACKEND_LOST);
    renew(joined.ticket);
    ck_assert_uint_eq(log[1].ended, 0);
}
END_TEST

static void on_joined(void *arg, enum backend_result result, struct backend_ticket *ticket,
                      const struct backend_info *holder)
{
    struct backend_ticket **joined = arg;

    (void)holder;
    ck_assert_int_eq(result, BACKEND_OK);
    *joined = ticket;
}

START_TEST(claim_does_not_join_what_is_broken_before_it_is_answered)
{
    static const char tell[] = "return redis.call('PUBLISH', KEYS[2], 'e ' .. redis.call('GET', KEYS[1]) .. ' broken')";
    char *key = g_strdup_printf("t%d:a", contract_world()),
         *channel = g_strdup_printf("lfs:redlock1:t%d:{n}", contract_world());
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = join_claim(&log[1]);
    struct backend_ticket *joined = NULL;
    uint64_t fence = get_of_handle(&log[0])->fence;

    CONTRACT_UNTIL(keys() == 3);
    CONTRACT_UNTIL(redis_server_do(servers[0], "PUBLISH %s nothing", channel) == 2); /* both mounts hear it */
    backend_acquire(contract_backend, "a", &claim, on_joined, &joined);
    redis_server_do(servers[0], "EVAL %s 2 %s %s", tell, key, channel);
    redis_server_do(servers[0], "PING"); /* by now the message is there, before an answer to the claim */
    CONTRACT_UNTIL(joined);
    ck_assert_int_eq(log[0].why, BACKEND_BROKEN);
    ck_assert_uint_gt(joined->fence, fence);
    renew(joined);
    ck_assert_uint_eq(log[1].ended, 0);
    g_free(key);
    g_free(channel);
}
END_TEST

START_TEST(kind_is_that_of_the_remaining_ticket_of_a_handle)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log[0]);
    struct contract_acquired first;

    claim.handle = 7;
    first = contract_acquire("a", &claim);
    ck_assert_int_eq(first.result, BACKEND_OK);
    claim = contract_claim(BACKEND_FCNTL, &log[1]);
    claim.handle = 7;
    claim.lock_owner = 1;
    claim.end = BACKEND_RANGE_MAX;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    ck_assert_int_eq(contract_release(first.ticket), BACKEND_OK);
    contract_backend = contract_other;
    ck_assert_int_eq(contract_stat("a").kind, BACKEND_FCNTL);
    ck_assert_int_eq(log[1].ended, 0);
}
END_TEST

static TCase *two_case(void)
{
    TCase *tcase = tcase_create("two mounts");

    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup_two, contract_teardown_two);
    tcase_add_test(tcase, waiters_of_two_mounts_all_get_it_and_its_token_grows);
    tcase_add_test(tcase, token_grows_although_the_servers_forget_it);
    tcase_add_test(tcase, token_is_greater_than_one_that_only_one_server_of_a_majority_knows);
    tcase_add_test(tcase, lock_is_the_plain_key_of_other_clients_on_each_server);
    tcase_add_test(tcase, majority_of_another_client_is_a_lock_and_its_end_lets_a_waiter_in);
    tcase_add_test(tcase, key_on_one_server_is_no_lock);
    tcase_add_test(tcase, lock_that_a_majority_has_given_to_another_is_lost_when_it_is_renewed);
    tcase_add_test(tcase, key_that_was_deleted_on_all_servers_is_not_given_again);
    tcase_add_test(tcase, claim_and_remains_of_an_earlier_lock_keep_no_holder_from_a_server);
    tcase_add_test(tcase, break_of_a_lock_that_was_ended_elsewhere_ends_who_holds_now);
    tcase_add_test(tcase, release_of_an_earlier_try_that_comes_late_lets_nothing_go);
    tcase_add_test(tcase, claim_that_is_repeated_late_shortens_nothing);
    tcase_add_test(tcase, lock_owner_does_not_join_the_flock_of_its_handle_beside_another_owner);
    tcase_add_test(tcase, claim_that_would_join_what_is_lost_takes_the_lock_for_itself);
    tcase_add_test(tcase, claim_does_not_join_what_is_broken_before_it_is_answered);
    tcase_add_test(tcase, kind_is_that_of_the_remaining_ticket_of_a_handle);
    return tcase;
}

/* --- servers that fail --- */

#define HELD_OFF 2000 /* ms */

static struct redis_server *shared[G_N_ELEMENTS(servers)]; /* that the other checks have */

static void begin_own_servers(void)
{
    memcpy(shared, servers, sizeof(shared));
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        servers[i] = redis_server_start(NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        await_uptime(servers[i], (HELD_OFF + HELD_OFF / 100 + 2 + 1000) / 1000 + 1);
    term = HELD_OFF;
}

static void end_own_servers(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        redis_server_free(servers[i]);
    memcpy(servers, shared, sizeof(shared));
}

/* Each of these checks ends servers, and has its own. */
static void restarting_setup(void)
{
    begin_own_servers();
    contract_setup_two();
}

static void restarting_teardown(void)
{
    contract_teardown_two();
    end_own_servers();
}

/* These pause servers. */
static void failing_teardown(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        redis_server_resume(servers[i]);
    contract_teardown_two();
}

static void restart(unsigned server)
{
    redis_server_stop(servers[server]);
    redis_server_again(servers[server]); /* it keeps nothing on disk */
}

/* One of the servers is restarted, or with `empty` a majority. */
static void restart_servers(bool empty)
{
    restart(2);
    if (empty)
        restart(1);
}

START_TEST(server_that_lost_a_lock_grants_it_to_nobody_else_during_its_holders_term)
{
    struct contract_log log = {0}, late = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &late);

    redis_server_stop(servers[2]);
    contract_get("a", BACKEND_LEASE, &log);
    backend_free(contract_one); /* its holder may live, and believe in it */
    redis_server_again(servers[2]);
    restart(1);
    ck_assert_uint_eq(keys(), 1);
    contract_one = open_mount(3);
    contract_start(contract_one);
    contract_backend = contract_other;
    ck_assert_int_ne(contract_acquire("a", &claim).result, BACKEND_OK);
    contract_backend = contract_one;
    ck_assert_int_ne(contract_acquire("a", &claim).result, BACKEND_OK);
    claim.wait = true;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_QUEUED); /* and is granted when that is over */
    CONTRACT_UNTIL(late.granted);
}
END_TEST

START_TEST(server_that_was_restarted_gets_held_locks_with_the_same_token)
{
    struct contract_log log = {0};

    contract_get("a", BACKEND_FLOCK, &log);
    CONTRACT_UNTIL(keys() == 3);
    for (unsigned i = 0; i < 3; i++) { /* one after the other, so that in the end none has it from the beginning */
        restart(i);
        CONTRACT_UNTIL(keys() == 3);
        ck_assert_int_eq(server_do(i, "STRLEN", NULL), 32);
        contract_backend = contract_other;
        ck_assert(contract_is_busy("a"));
        contract_backend = contract_one;
    }
    ck_assert_uint_eq(log.ended, 0);
    redis_server_do(servers[1], "FLUSHALL");
    CONTRACT_UNTIL(keys() == 3);
    ck_assert_uint_eq(log.ended, 0);
    ck_assert_int_eq(contract_release(contract_stat("a").ticket), BACKEND_OK);
    CONTRACT_UNTIL(keys() == 0);
}
END_TEST

/* How often a server was asked to do that, by scripts, too. */
static long long calls(unsigned server, const char *command)
{
    static const char count[] =
        "return tonumber(redis.call('INFO', 'commandstats'):match('cmdstat_' .. ARGV[1] .. ':calls=(%d+)') or 0)";

    return redis_server_do(servers[server], "EVAL %s 0 %s", count, command);
}

START_TEST(server_that_was_restarted_grants_nothing_before_a_holder_restores_its_lock)
{
    server_do(0, "SET", "foreign");
    server_do(1, "SET", "foreign");
    restart(2);
    do {
        ck_assert(contract_is_busy("a"));
    } while (calls(2, "get") == 0);
    ck_assert_int_eq(calls(2, "set"), 0);
}
END_TEST

START_TEST(server_that_comes_back_extends_no_term)
{
    struct contract_log log = {0};
    const struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    clock_ms deadline = ticket->deadline;

    CONTRACT_UNTIL(keys() == 3);
    g_usleep(500000);
    restart(2);
    CONTRACT_UNTIL(keys() == 3);
    for (unsigned i = 0; i < 3; i++)
        CONTRACT_UNTIL(server_do(i, "PTTL", NULL) < CONTRACT_LONG - 500);
    ck_assert_int_le(ticket->deadline, deadline + 5);
}
END_TEST

START_TEST(without_a_majority_nothing_is_granted_and_with_one_it_goes_on)
{
    struct contract_log log = {0}, next = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &next);

    redis_server_stop(servers[0]);
    ck_assert_int_eq(contract_release(contract_get("a", BACKEND_LEASE, &log)), BACKEND_OK);
    redis_server_pause(servers[1]);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(server_do(2, "EXISTS", NULL), 0); /* what was refused leaves nothing */
    redis_server_resume(servers[1]);
    while (contract_acquire("a", &claim).result != BACKEND_OK)
        contract_poll();
    ck_assert_int_eq(server_do(2, "EXISTS", NULL), 1);
}
END_TEST

START_TEST(vote_that_comes_late_is_settled)
{
    struct contract_log log = {0};

    redis_server_pause(servers[2]);
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    redis_server_resume(servers[2]);
    CONTRACT_UNTIL(keys() == 3);
    redis_server_pause(servers[0]);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    redis_server_resume(servers[0]);
    CONTRACT_UNTIL(keys() == 0);
}
END_TEST

/* As a break of "a" with that number does. */
static void set_number(unsigned server, uint64_t number)
{
    redis_server_do(servers[server], "SET lfs:N:t%d:a %llu", contract_world(), (unsigned long long)number + 1);
}

START_TEST(server_that_lacks_a_lock_makes_a_majority_with_one_that_has_it)
{
    struct contract_log log = {0};
    struct backend_renewal renewal = {.ticket = contract_get("a", BACKEND_FLOCK, &log), .ttl = CONTRACT_LONG};
    clock_ms deadline = renewal.ticket->deadline;

    CONTRACT_UNTIL(keys() == 3);
    server_do(2, "DEL", NULL); /* as one that was away when it was taken */
    redis_server_pause(servers[1]);
    g_usleep(100000); /* longer than what rounding makes of a term */
    backend_renew(contract_backend, &renewal, 1);
    CONTRACT_UNTIL(renewal.ticket->deadline > deadline + 50);
    ck_assert_int_eq(server_do(2, "STRLEN", NULL), 32);
    redis_server_resume(servers[1]);
}
END_TEST

START_TEST(server_that_knows_a_greater_number_is_not_given_a_lock)
{
    struct contract_log log = {0};
    struct backend_renewal renewal = {.ticket = contract_get("a", BACKEND_FLOCK, &log), .ttl = CONTRACT_LONG};
    clock_ms deadline = renewal.ticket->deadline;

    CONTRACT_UNTIL(keys() == 3);
    server_do(2, "DEL", NULL); /* as by who breaks it, and reaches 1 and 2 only */
    set_number(2, renewal.ticket->fence);
    redis_server_pause(servers[1]);
    g_usleep(100000);
    backend_renew(contract_backend, &renewal, 1);
    long long requested = calls(2, "evalsha");
    CONTRACT_UNTIL(calls(2, "evalsha") >= requested + 5);
    ck_assert_int_le(renewal.ticket->deadline, deadline + 50); /* as rounding makes it */
    ck_assert_int_eq(server_do(2, "EXISTS", NULL), 0);
    redis_server_resume(servers[1]);
    CONTRACT_UNTIL(renewal.ticket->deadline > deadline + 50);
}
END_TEST

START_TEST(break_leaves_a_greater_number)
{
    struct contract_log log = {0};
    uint64_t fence = contract_get("a", BACKEND_LEASE, &log)->fence;

    CONTRACT_UNTIL(keys() == 3);
    contract_backend = contract_other;
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    contract_backend = contract_one;
    CONTRACT_UNTIL(keys() == 0 && log.ended == 1);
    for (unsigned i = 0; i < 3; i++)
        CONTRACT_UNTIL(redis_server_do(servers[i], "EVAL %s 1 lfs:N:t%d:a",
                                       "return tonumber(redis.call('GET', KEYS[1]))",
                                       contract_world()) > (long long)fence);
    ck_assert_uint_gt(contract_get("a", BACKEND_LEASE, &log)->fence, fence + 1);
}
END_TEST

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    int *reported = arg;

    *reported = result == BACKEND_OK ? (int)info->type : -1;
    contract_end_turn();
}

START_TEST(name_is_not_free_because_most_have_forgotten_it)
{
    enum { NOT_CALLED = 1000 };
    struct contract_log log = {0};
    int reported = NOT_CALLED;

    contract_get("a", BACKEND_LEASE, &log);
    CONTRACT_UNTIL(keys() == 3);
    backend_free(contract_one); /* so that nobody gives it again */
    restart(1);
    restart(2);
    ck_assert_uint_eq(keys(), 1);
    contract_one = open_mount(3);
    contract_start(contract_one);
    contract_backend = contract_one;
    for (int i = 0; i < 3; i++) { /* also while not all are connected to */
        reported = NOT_CALLED;
        backend_stat(contract_one, "a", on_known, &reported);
        CONTRACT_UNTIL(reported != NOT_CALLED);
        ck_assert_int_eq(reported, -1);
    }
    reported = NOT_CALLED;
    backend_stat(contract_one, "b", on_known, &reported); /* that no mount knows */
    CONTRACT_UNTIL(reported != NOT_CALLED);
    ck_assert_int_eq(reported, BACKEND_NOTHING);
}
END_TEST

static void on_never(void *arg, enum backend_result result, struct backend_ticket *ticket,
                     const struct backend_info *holder)
{
    (void)arg, (void)result, (void)ticket, (void)holder;
    ck_abort();
}

START_TEST(mount_ends_with_a_pending_request)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);

    for (unsigned i = 0; i < 3; i++)
        redis_server_pause(servers[i]);
    backend_acquire(contract_one, "a", &claim, on_never, NULL);
    contract_poll();
    backend_free(contract_one);
    for (unsigned i = 0; i < 3; i++)
        redis_server_resume(servers[i]);
    contract_one = open_mount(3);
    contract_start(contract_one);
}
END_TEST

/* --- the next daemon of a mount --- */

static unsigned found;
static struct backend_ticket *recovered;

static bool on_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    (void)arg, (void)meta, (void)content;
    ck_assert_str_eq(name, "a");
    ck_assert_int_eq(ticket->kind, BACKEND_FLOCK);
    found++;
    recovered = ticket;
    return true;
}

/* contract_one becomes a mount that notes what it holds. */
static void begin_noting(void)
{
    backend_free(contract_one);
    contract_backend = contract_one = open_again();
    contract_start(contract_one);
    found = 0;
}

static void restart_daemon(void)
{
    backend_free(contract_one);
    contract_backend = contract_one = open_again();
    contract_start(contract_one);
    backend_recover(contract_one, on_found, NULL);
    ck_assert_int_eq(contract_stat("b").type, BACKEND_NOTHING); /* by then it would have found more */
}

/* The key of that mount's notes, a new string. */
static char *notes_key(void)
{
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "redlock host:/mnt/locks", -1);
    char *key = g_strdup_printf("lfs:m:t%d:%.32s", contract_world(), digest);

    g_free(digest);
    return key;
}

/* A command on the server's notes of that mount. */
static long long notes_do(unsigned server, const char *word, const char *score, const char *note)
{
    char *key = notes_key();
    long long answer = note ? redis_server_do(servers[server], "%s %s %s %s", word, key, score, note)
                            : redis_server_do(servers[server], "%s %s", word, key);

    g_free(key);
    return answer;
}

/* How many locks of that mount the server has noted. */
static long long noted(unsigned server)
{
    return notes_do(server, "ZCARD", NULL, NULL);
}

START_TEST(lock_that_one_server_lacks_is_recovered_and_given_to_it_again)
{
    struct contract_log log = {0};

    begin_noting();
    uint64_t fence = contract_get("a", BACKEND_FLOCK, &log)->fence;
    CONTRACT_UNTIL(keys() == 3);
    server_do((unsigned)_i, "DEL", NULL);
    restart_daemon();
    CONTRACT_UNTIL(found == 1);
    backend_renew(contract_one, &(struct backend_renewal){.ticket = recovered, .ttl = CONTRACT_LONG}, 1);
    CONTRACT_UNTIL(keys() == 3);
    ck_assert_uint_eq(contract_stat("a").fence, fence);
    CONTRACT_UNTIL(noted(0) == 1 && noted(1) == 1 && noted(2) == 1);
    contract_backend = contract_other;
    ck_assert(contract_is_busy("a"));
}
END_TEST

START_TEST(lock_is_recovered_while_one_server_does_not_answer)
{
    struct contract_log log = {0};

    begin_noting();
    contract_get("a", BACKEND_FLOCK, &log);
    CONTRACT_UNTIL(keys() == 3);
    redis_server_pause(servers[_i]);
    restart_daemon();
    CONTRACT_UNTIL(found == 1);
    contract_backend = contract_other;
    ck_assert(contract_is_busy("a"));
    redis_server_resume(servers[_i]);
}
END_TEST

START_TEST(lock_that_most_servers_have_lost_is_not_recovered)
{
    struct contract_log log = {0};

    begin_noting();
    contract_get("a", BACKEND_FLOCK, &log);
    CONTRACT_UNTIL(keys() == 3);
    server_do(0, "DEL", NULL);
    server_do(1, "DEL", NULL);
    restart_daemon();
    CONTRACT_UNTIL(keys() == 0 && noted(0) + noted(1) + noted(2) == 0);
    ck_assert_uint_eq(found, 0);
}
END_TEST

/* The servers return notes in parts, and the lock is in the last part. */
START_TEST(lock_is_recovered_behind_many_notes)
{
    static const char fill[] =
        "for i = 1, 1200 do redis.call('ZADD', KEYS[1], -2, ('%032x n%d'):format(i, i)) end return 1";
    struct contract_log log = {0};

    begin_noting();
    contract_get("a", BACKEND_FLOCK, &log);
    CONTRACT_UNTIL(keys() == 3);
    for (unsigned i = 0; i < 3; i++) {
        char *key = notes_key();

        redis_server_do(servers[i], "EVAL %s 1 %s", fill, key);
        g_free(key);
        ck_assert_int_eq(noted(i), 1201);
    }
    restart_daemon();
    CONTRACT_UNTIL(found == 1);
    CONTRACT_UNTIL(noted(0) == 1 && noted(1) == 1 && noted(2) == 1);
}
END_TEST

/* One server or all have the note of a lock that nobody holds. */
START_TEST(lock_is_reported_lost_only_if_a_majority_has_noted_it)
{
    char text[4096] = "";
    FILE *log = tmpfile();

    begin_noting();
    for (int i = 0; i < 3; i++)
        if (_i == i || _i == 3)
            notes_do((unsigned)i, "ZADD", "4711", "0123456789abcdef0123456789abcdef a");
    ck_assert_int_ge(dup2(fileno(log), STDERR_FILENO), 0);
    restart_daemon();
    contract_pass(500);
    rewind(log);
    text[fread(text, 1, sizeof text - 1, log)] = '\0';
    fclose(log);
    ck_assert_int_eq(strstr(text, "the lock of process 4711 is lost") != NULL, _i == 3);
    ck_assert_uint_eq(found, 0);
}
END_TEST

/* Its daemon reads the notes only after it has granted. */
START_TEST(lock_that_is_granted_before_the_notes_are_read_keeps_its_key)
{
    struct contract_log log = {0};

    begin_noting();
    restart_daemon();
    redis_server_pause(servers[0]);
    redis_server_pause(servers[1]);
    backend_recover(contract_one, on_found, NULL);
    redis_server_resume(servers[0]);
    redis_server_resume(servers[1]);
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);
    contract_pass(2000);
    backend_renew(contract_one, &(struct backend_renewal){.ticket = ticket, .ttl = CONTRACT_LONG}, 1);
    contract_pass(500);
    ck_assert_uint_eq(found, 0);
    ck_assert_uint_eq(log.ended, 0);
}
END_TEST

START_TEST(lock_that_was_released_or_broken_is_not_noted_any_more)
{
    struct contract_log log = {0};

    begin_noting();
    struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);
    CONTRACT_UNTIL(noted(0) == 1 && noted(1) == 1 && noted(2) == 1);
    if (_i == 0) {
        ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    } else {
        contract_backend = contract_other;
        ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    }
    CONTRACT_UNTIL(noted(0) + noted(1) + noted(2) == 0);
}
END_TEST

static TCase *restarting_case(void)
{
    TCase *tcase = tcase_create("servers that are restarted");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, restarting_setup, restarting_teardown);
    tcase_add_test(tcase, server_that_lost_a_lock_grants_it_to_nobody_else_during_its_holders_term);
    tcase_add_test(tcase, server_that_was_restarted_gets_held_locks_with_the_same_token);
    tcase_add_test(tcase, server_that_was_restarted_grants_nothing_before_a_holder_restores_its_lock);
    tcase_add_test(tcase, server_that_comes_back_extends_no_term);
    tcase_add_test(tcase, without_a_majority_nothing_is_granted_and_with_one_it_goes_on);
    tcase_add_test(tcase, name_is_not_free_because_most_have_forgotten_it);
    return tcase;
}

static TCase *failing_case(void)
{
    TCase *tcase = tcase_create("servers that fail");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, contract_setup_two, failing_teardown);
    tcase_add_test(tcase, vote_that_comes_late_is_settled);
    tcase_add_test(tcase, server_that_lacks_a_lock_makes_a_majority_with_one_that_has_it);
    tcase_add_test(tcase, server_that_knows_a_greater_number_is_not_given_a_lock);
    tcase_add_test(tcase, break_leaves_a_greater_number);
    tcase_add_test(tcase, mount_ends_with_a_pending_request);
    tcase_add_loop_test(tcase, lock_that_one_server_lacks_is_recovered_and_given_to_it_again, 0, 3);
    tcase_add_loop_test(tcase, lock_is_recovered_while_one_server_does_not_answer, 0, 3);
    tcase_add_test(tcase, lock_that_most_servers_have_lost_is_not_recovered);
    tcase_add_test(tcase, lock_is_recovered_behind_many_notes);
    tcase_add_loop_test(tcase, lock_is_reported_lost_only_if_a_majority_has_noted_it, 0, 4);
    tcase_add_test(tcase, lock_that_is_granted_before_the_notes_are_read_keeps_its_key);
    tcase_add_loop_test(tcase, lock_that_was_released_or_broken_is_not_noted_any_more, 0, 2);
    return tcase;
}

int main(void)
{
    static const struct contract redlock = {.name = "redlock",
                                            .open = open_redlock,
                                            .open_other = open_other,
                                            .open_again = open_again,
                                            .refuses_daemon_before = true,
                                            .open_relayed = open_relayed,
                                            .lacks = CONTRACT_FEATURES,
                                            .begin_own_servers = begin_own_servers,
                                            .end_own_servers = end_own_servers,
                                            .restart = restart_servers,
                                            .timeout = 5000,
                                            .pace = 10};

    if (!redis_server_exists()) {
        puts("1..0 # skip there is no redis-server");
        return 0;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        servers[i] = redis_server_start(NULL);
    Suite *suite = contract_suite(&redlock);
    suite_add_tcase(suite, two_case());
    suite_add_tcase(suite, restarting_case());
    suite_add_tcase(suite, failing_case());
    int result = check_main(suite);
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        redis_server_free(servers[i]);
    return result;
}
