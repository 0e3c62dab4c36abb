/* check_redlock: a mount of several Redis servers: which servers it accepts, its status, what it refuses, and answers
 * that differ. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/log.h"
#include "backend/redlock/redlock.h"
#include "backend/redlock/script.h"
#include "config.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/redis_server.h"

enum { SERVERS = 3 };
static struct redis_server *servers[SERVERS]; /* of all checks; each check has a prefix of its own in them */
static struct redis_server *absent[2];        /* never started */
static char error[512];

static char *prefix(void)
{
    static char text[32];
    snprintf(text, sizeof text, "t%d:", contract_world());
    return text;
}

/* Of addresses with a port each. */
static struct redlock_uri uri_of(const char *format, unsigned a, unsigned b, unsigned c)
{
    struct redlock_uri uri;
    char *hosts = g_strdup_printf(format, a, b, c), *text = g_strconcat("redlock://", hosts, NULL);
    ck_assert_msg(redlock_uri_parse(&uri, text, error, sizeof error) == 0, "%s", error);
    g_free(hosts);
    g_free(text);
    return uri;
}

static unsigned port(unsigned server)
{
    return redis_server_port(servers[server]);
}

static struct backend *open_at(const char *format, unsigned a, unsigned b, unsigned c, const char *before,
                               int64_t grace)
{
    struct redlock_uri uri = uri_of(format, a, b, c);
    const struct redlock_options options = {
        .uri = &uri, .conn = {.timeout = 500}, .prefix = before, .ttl = CONTRACT_LONG, .grace = grace, .seed = 1};
    struct backend *opened = NULL;
    ck_assert_msg(redlock_new(&options, &opened, error, sizeof error) == 0, "%s", error);
    redlock_uri_clear(&uri);
    return opened;
}

#define PLAIN "127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u"

static struct backend *open_plain(void)
{
    static const char uptime[] = "return tonumber(redis.call('INFO', 'server'):match('uptime_in_seconds:(%d+)'))";

    for (unsigned i = 0; i < SERVERS; i++) { /* till then its vote does not count */
        while (redis_server_do(servers[i], "EVAL %s 0", uptime) < 2) {
            g_usleep(10000);
        }
    }
    log_set_level(LOG_LEVEL_ERROR);
    return open_at(PLAIN, port(0), port(1), port(2), prefix(), 1);
}

/* In the place of the mount that the fixture has opened. */
static void mount(struct backend *b)
{
    backend_free(contract_backend);
    contract_start(b);
}

/* A command with a key that belongs to the lock of this name, as "lfs:D:%s", behind its first word. */
static long long server_do(unsigned server, const char *word, const char *key, const char *name, const char *more)
{
    char *full = g_strconcat(prefix(), name, NULL), *of = g_strdup_printf(key, full);
    char *command = g_strdup_printf("%s %s %s", word, of, more);
    long long answer = redis_server_do(servers[server], command);
    g_free(command);
    g_free(of);
    g_free(full);
    return answer;
}

static bool has_line(const GPtrArray *lines, const char *part)
{
    for (guint i = 0; i < lines->len; i++) {
        if (strstr(lines->pdata[i], part)) {
            return true;
        }
    }
    return false;
}

/* --- the look at the servers before a mount --- */

static int check(const char *format, unsigned a, unsigned b, unsigned c, GPtrArray *warnings)
{
    struct redlock_uri uri = uri_of(format, a, b, c);
    const struct redlock_options options = {
        .uri = &uri, .conn = {.timeout = 2000}, .prefix = prefix(), .ttl = CONTRACT_LONG};
    error[0] = '\0';
    int result = redlock_check(&options, warnings, error, sizeof error);
    redlock_uri_clear(&uri);
    return result;
}

START_TEST(servers_that_are_there_are_taken)
{
    GPtrArray *warnings = g_ptr_array_new_with_free_func(g_free);
    ck_assert_msg(check(PLAIN, port(0), port(1), port(2), warnings) == 0, "%s", error);
    ck_assert(!has_line(warnings, "connect"));
    g_ptr_array_unref(warnings);
}
END_TEST

START_TEST(minority_that_is_away_is_a_warning_and_a_majority_an_error)
{
    GPtrArray *warnings = g_ptr_array_new_with_free_func(g_free);
    unsigned away[] = {redis_server_port(absent[0]), redis_server_port(absent[1])};
    char *where = g_strdup_printf("127.0.0.1:%u", away[0]);
    ck_assert_msg(check(PLAIN, port(0), away[0], port(2), warnings) == 0, "%s", error);
    ck_assert(has_line(warnings, where));
    ck_assert_int_eq(check(PLAIN, away[0], port(1), away[1], warnings), -EHOSTUNREACH);
    ck_assert_msg(strstr(error, "1 of 3 servers are there, and 2 are needed") != NULL, "%s", error);
    g_free(where);
    g_ptr_array_unref(warnings);
}
END_TEST

START_TEST(two_addresses_of_one_server_are_refused)
{
    GPtrArray *warnings = g_ptr_array_new_with_free_func(g_free);
    char *both = g_strdup_printf("127.0.0.1:%u and localhost:%u are the same server", port(0), port(0));
    ck_assert_int_eq(check("127.0.0.1:%u,127.0.0.1:%u,localhost:%u", port(0), port(1), port(0), warnings), -EINVAL);
    ck_assert_msg(strstr(error, both) != NULL, "%s", error);
    g_free(both);
    g_ptr_array_unref(warnings);
}
END_TEST

/* It would not pass by itself. */
START_TEST(server_that_cannot_be_used_is_an_error)
{
    GPtrArray *warnings = g_ptr_array_new_with_free_func(g_free);
    redis_server_do(servers[1], "REPLICAOF 127.0.0.1 1");
    int result = check(PLAIN, port(0), port(1), port(2), warnings);
    redis_server_do(servers[1], "REPLICAOF NO ONE");
    ck_assert_int_lt(result, 0);
    ck_assert_int_ne(result, -EHOSTUNREACH);
    ck_assert_msg(strstr(error, "the server is a replica") != NULL, "%s", error);
    g_ptr_array_unref(warnings);
}
END_TEST

/* One server of several suffices. */
START_TEST(data_of_a_higher_format_are_refused_by_the_name_of_what_made_them)
{
    GPtrArray *warnings = g_ptr_array_new_with_free_func(g_free);
    char *store = g_strdup_printf("lfs:S:lfs:%s/", prefix());
    redis_server_do(servers[1], "HSET %s format %s", store, "2 9.9.9 hostb");
    ck_assert_int_eq(check(PLAIN, port(0), port(1), port(2), warnings), -EPROTONOSUPPORT);
    ck_assert_msg(strstr(error,
                         "the store, made by leasefs 9.9.9 hostb, has format version 2, and leasefs " PACKAGE_VERSION
                         " knows format versions up to 1: upgrade leasefs on this host") != NULL,
                  "%s", error);
    redis_server_do(servers[1], "HSET %s format %s", store, "1 9.9.9 hostb");
    ck_assert_msg(check(PLAIN, port(0), port(1), port(2), warnings) == 0, "%s", error);
    g_free(store);
    g_ptr_array_unref(warnings);
}
END_TEST

START_TEST(mount_without_a_format_number_is_refused_while_it_is_there)
{
    GPtrArray *warnings = g_ptr_array_new_with_free_func(g_free);
    redisContext *redis = redisConnectUnix(redis_server_socket(servers[2]));
    redisReply *reply = redisCommand(redis, "SUBSCRIBE lfs:redlock:%s{n}", prefix());
    ck_assert(reply && reply->type == REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
    ck_assert_int_eq(check(PLAIN, port(0), port(1), port(2), warnings), -EPROTONOSUPPORT);
    ck_assert_msg(strstr(error, "is in use by a mount (channel lfs:redlock:") != NULL, "%s", error);
    redisFree(redis);
    while (check(PLAIN, port(0), port(1), port(2), warnings) != 0) { /* the server sees its end at some time */
    }
    g_ptr_array_unref(warnings);
}
END_TEST

START_TEST(keys_that_would_be_those_of_leasefs_are_refused)
{
    struct redlock_uri uri = uri_of(PLAIN, port(0), port(1), port(2));
    struct redlock_options options = {.uri = &uri, .key = "lock:n", .ttl = CONTRACT_LONG};
    struct backend *b = NULL;
    ck_assert_int_eq(redlock_new(&options, &b, error, sizeof error), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error, "has no {n}"));
    options.key = "s:{n}";
    options.prefix = "lfs:";
    ck_assert_int_eq(redlock_new(&options, &b, error, sizeof error), -EINVAL);
    ck_assert_ptr_nonnull(strstr(error, "begin with lfs:"));
    ck_assert_ptr_null(b);
    redlock_uri_clear(&uri);
}
END_TEST

/* --- status --- */

static struct backend_status status_of(struct backend *b)
{
    struct backend_status status;
    backend_status(b, &status);
    return status;
}

static void until_up(unsigned count)
{
    char *servers_up = g_strdup_printf("servers: 3, %u of them there, quorum 2", count);
    bool is = false;
    for (int i = 0; !is; i++) {
        struct backend_status status = status_of(contract_backend);
        is = has_line(status.details, servers_up);
        backend_status_clear(&status);
        if (!is) {
            contract_turn();
        }
    }
    g_free(servers_up);
}

START_TEST(status_shows_each_server)
{
    mount(open_at(PLAIN "/3", port(0), port(1), port(2), prefix(), 1));
    until_up(3);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    struct backend_status status = status_of(contract_backend);
    char *key = g_strdup_printf("key: %s{n}", prefix()),
         *address = g_strdup_printf("redlock://" PLAIN "/3", port(0), port(1), port(2));
    ck_assert(!status.away);
    ck_assert_ptr_null(status.why);
    ck_assert_str_eq(status.address, address);
    ck_assert(status.has_connections);
    ck_assert_uint_gt(status.round_trips, 0);
    ck_assert_uint_eq(status.reconnects, 0);
    ck_assert(has_line(status.details, key));
    ck_assert(has_line(status.details, "order: unfair"));
    for (unsigned i = 0; i < SERVERS; i++) {
        char *votes = g_strdup_printf("server: 127.0.0.1:%u votes", port(i));
        ck_assert(has_line(status.details, votes));
        g_free(votes);
    }
    backend_status_clear(&status);
    g_free(address);
    g_free(key);
}
END_TEST

START_TEST(status_shows_why_nothing_is_granted)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    mount(open_at(PLAIN, redis_server_port(absent[0]), port(1), redis_server_port(absent[1]), prefix(), 1));
    until_up(1);
    struct backend_status status = status_of(contract_backend);
    ck_assert(status.away);
    ck_assert_str_eq(status.why, "1 of 3 servers are there, and 2 are needed");
    ck_assert(has_line(status.details, "away for 0 s: "));
    ck_assert(has_line(status.details, " votes"));
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
    backend_status_clear(&status);
}
END_TEST

START_TEST(status_shows_which_vote_does_not_count)
{
    mount(open_at(PLAIN, port(0), port(1), port(2), prefix(), 3600000));
    until_up(3);
    struct backend_status status = status_of(contract_backend);
    ck_assert(has_line(status.details, "started lately, its vote does not count for 3"));
    ck_assert(!has_line(status.details, " votes"));
    backend_status_clear(&status);
}
END_TEST

START_TEST(status_warns_of_a_server_that_may_delete_locks)
{
    redis_server_do(servers[1], "CONFIG SET maxmemory 1gb maxmemory-policy allkeys-lru");
    mount(open_at(PLAIN, port(0), port(1), port(2), prefix(), 1));
    until_up(3);
    redis_server_do(servers[1], "CONFIG SET maxmemory 0 maxmemory-policy noeviction");
    struct backend_status status = status_of(contract_backend);
    char *where = g_strdup_printf("127.0.0.1:%u: the server deletes locks", port(1));
    ck_assert(has_line(status.warnings, where));
    ck_assert_uint_eq(status.warnings->len, 1);
    backend_status_clear(&status);
    g_free(where);
}
END_TEST

/* Has the server the format number of the first mount, and no field of a host or mount, which nobody would remove? */
static bool has_number(unsigned server)
{
    return redis_server_do(servers[server], "EVAL %s 1 lfs:S:lfs:%s/",
                           "local made = redis.call('HGET', KEYS[1], 'format')"
                           "return made and made:match('^1 (%S+) ') == '" PACKAGE_VERSION
                           "' and redis.call('HLEN', KEYS[1]) == 1 and 1 or 0",
                           prefix()) == 1;
}

START_TEST(each_server_has_the_format_number_and_no_mounts)
{
    for (unsigned i = 0; i < SERVERS; i++) {
        CONTRACT_UNTIL(has_number(i));
    }
}
END_TEST

static bool status_says(const char *words)
{
    struct backend_status status = status_of(contract_backend);
    bool says = has_line(status.details, words);
    backend_status_clear(&status);
    return says;
}

START_TEST(server_whose_data_turn_out_to_be_of_a_higher_format_has_no_vote)
{
    until_up(3);
    redis_server_do(servers[1], "HSET lfs:S:lfs:%s/ format %s", prefix(), "2 9.9.9 hostb");
    redis_server_do(servers[1], "CLIENT KILL TYPE normal SKIPME yes");
    CONTRACT_UNTIL(status_says("knows format versions up to 1: upgrade leasefs on this host"));
}
END_TEST

START_TEST(server_that_is_another_one_of_them_has_no_vote)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    mount(
        open_at("127.0.0.1:%u,127.0.0.1:%u,localhost:%u", port(0), redis_server_port(absent[0]), port(0), prefix(), 1));
    until_up(1);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
    struct backend_status status = status_of(contract_backend);
    ck_assert(status.away);
    backend_status_clear(&status);
}
END_TEST

START_TEST(replica_has_no_vote)
{
    redis_server_do(servers[2], "REPLICAOF 127.0.0.1 1");
    mount(open_at(PLAIN, port(0), redis_server_port(absent[0]), port(2), prefix(), 1));
    until_up(1);
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    enum backend_result result = contract_acquire("a", &claim).result;
    redis_server_do(servers[2], "REPLICAOF NO ONE");
    ck_assert_int_eq(result, BACKEND_UNREACHABLE);
    until_up(2); /* and it has one when it is a master */
    struct backend_status status = status_of(contract_backend);
    ck_assert(!status.away);
    backend_status_clear(&status);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
}
END_TEST

/* --- what is refused --- */

START_TEST(what_several_masters_cannot_have_is_refused)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log[0]);
    const struct backend_directory wide = {.width = 2}, delayed = {.delay = 1000}, plain = {.width = 1};
    struct backend_ticket *held = contract_get("held", BACKEND_FLOCK, &log[1]);

    claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNSUPPORTED);
    ck_assert_int_eq(contract_convert(held, &claim), BACKEND_UNSUPPORTED);
    ck_assert_int_eq(held->mode, BACKEND_EXCLUSIVE);
    claim.mode = BACKEND_EXCLUSIVE;
    claim.sequence = true;
    ck_assert_int_eq(contract_acquire("job-", &claim).result, BACKEND_UNSUPPORTED);
    ck_assert_int_eq(contract_rename(held, "b"), BACKEND_UNSUPPORTED);
    ck_assert_int_eq(contract_mkdir("d", &wide), BACKEND_UNSUPPORTED);
    ck_assert_int_eq(contract_mkdir("d", &delayed), BACKEND_UNSUPPORTED);
    ck_assert_int_eq(contract_set_directory("", &delayed), BACKEND_UNSUPPORTED);
    ck_assert_int_eq(contract_mkdir("d", &plain), BACKEND_OK);
    ck_assert_str_eq(contract_list("", 10), "d/ held");
    ck_assert_uint_eq(log[1].ended, 0);
}
END_TEST

START_TEST(root_is_a_directory_and_stays)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    ck_assert_int_eq(contract_acquire("", &claim).result, BACKEND_IS_DIRECTORY);
    ck_assert_int_eq(contract_mkdir("", NULL), BACKEND_EXISTS);
    ck_assert_int_eq(contract_rmdir(""), BACKEND_NOT_EMPTY);
    ck_assert_int_eq(contract_revoke("", 0), BACKEND_MISSING);
    ck_assert_int_eq(contract_stat("").type, BACKEND_DIRECTORY);
}
END_TEST

/* It would be a side key of another lock. */
START_TEST(name_that_no_lock_can_have_is_none)
{
    static const char name[] = "lfs:R:a";
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    const struct backend_directory plain = {.width = 1};
    mount(open_at(PLAIN, port(0), port(1), port(2), NULL, 1));
    ck_assert_int_eq(contract_acquire(name, &claim).result, BACKEND_INVALID);
    ck_assert_int_eq(contract_stat(name).type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_test(name, &claim).type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_list_result(name), BACKEND_MISSING);
    ck_assert_int_eq(contract_mkdir(name, NULL), BACKEND_INVALID);
    ck_assert_int_eq(contract_rmdir(name), BACKEND_INVALID);
    ck_assert_int_eq(contract_set_directory(name, &plain), BACKEND_INVALID);
    ck_assert_int_eq(contract_revoke(name, 0), BACKEND_MISSING);
}
END_TEST

static void let_fill(unsigned server, bool full)
{
    redis_server_do(servers[server], full ? "CONFIG SET maxmemory 1" : "CONFIG SET maxmemory 0");
}

START_TEST(majority_that_is_full_refuses_what_is_new_and_releases)
{
    struct contract_log log[3] = {{0}};
    struct backend_ticket *held = contract_get("held", BACKEND_LEASE, &log[0]);
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[1]);
    let_fill(0, true);
    ck_assert_int_eq(contract_acquire("b", &claim).result, BACKEND_OK); /* the others are a majority */
    let_fill(1, true);
    enum backend_result taken = contract_acquire("a", &claim).result, made = contract_mkdir("d", NULL);
    enum backend_result released = contract_release(held);
    let_fill(0, false);
    let_fill(1, false);
    ck_assert_int_eq(taken, BACKEND_FULL);
    ck_assert_int_eq(made, BACKEND_FULL);
    ck_assert_int_eq(released, BACKEND_OK);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_stat("d").type, BACKEND_NOTHING);
    contract_get("held", BACKEND_LEASE, &log[2]);
}
END_TEST

/* --- answers that differ --- */

START_TEST(name_that_each_server_has_given_to_another_is_held)
{
    static const char *const foreign[] = {"one", "two", "three"};
    struct contract_log log[2] = {{0}};
    for (unsigned i = 0; i < SERVERS; i++) {
        server_do(i, "SET", "%s", "a", foreign[i]);
    }
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    for (unsigned i = 0; i < SERVERS; i++) {
        ck_assert_int_eq(server_do(i, "STRLEN", "%s", "a", ""), (long long)strlen(foreign[i]));
    }
    contract_queue("a", BACKEND_EXCLUSIVE, &log[1]);
    server_do(0, "DEL", "%s", "a", "");
    server_do(2, "DEL", "%s", "a", "");
    CONTRACT_UNTIL(log[1].granted);
    ck_assert_int_eq(server_do(1, "STRLEN", "%s", "a", ""), 3);
}
END_TEST

/* A key of another type is a stranger's, whoever that is; to break it is to delete it. */
START_TEST(key_of_another_type_is_held_by_a_stranger)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);
    for (unsigned i = 0; i < SERVERS; i++) {
        server_do(i, "RPUSH", "%s", "a", "x");
    }
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    struct backend_info info = contract_stat("a");
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_uint_eq(info.fence, 0);
    ck_assert_int_eq(contract_revoke("a", 7), BACKEND_STALE);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    contract_get("a", BACKEND_LEASE, &log[1]);
}
END_TEST

#define TOKEN "0123456789abcdef0123456789abcdef"

START_TEST(impossible_record_shows_nothing_impossible)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    static const char *const records[] = {
        "token " TOKEN " number -7 kind -9 since 99999999999999 ttl -5 revision 1 meta m content c",
        "token " TOKEN
        " number 99999999999999999 kind 99 since -99999999999999 ttl 99999999999999999 revision 1 meta m "
        "content c",
    };
    for (unsigned i = 0; i < 2; i++) { /* and without an end */
        server_do(i, "SET", "%s", "a", TOKEN);
        server_do(i, "HSET", "lfs:R:%s", "a", records[_i]);
    }
    struct backend_info info = contract_stat("a");
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_int_eq(info.kind, _i ? BACKEND_FCNTL : BACKEND_PROVISIONAL);
    ck_assert_uint_le(info.fence, UINT64_C(1) << 53);
    ck_assert_int_ge(info.ttl, 0);
    ck_assert_int_le(info.acquired, clock_now());
    ck_assert_int_eq(info.deadline, CLOCK_NEVER);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
}
END_TEST

START_TEST(names_that_cannot_be_are_not_listed)
{
    char *longer = g_strnfill(256, 'x'), *longest = g_strnfill(255, 'y'), *all = g_strconcat("a ", longest, NULL);
    struct contract_log log = {0};
    contract_get("a", BACKEND_LEASE, &log);
    for (unsigned i = 0; i < SERVERS; i++) {
        char *list = g_strdup_printf("lfs:L:lfs:%s/", prefix());
        redis_server_do(servers[i], "ZADD %s 0 %s 0 %s 0 %s 0 %s", list, longer, longest, "", "b/c");
        server_do(i, "SET", "%s", longer, "x");
        server_do(i, "SET", "%s", longest, "x");
        server_do(i, "SET", "%s", "", "x");
        server_do(i, "SET", "%s", "b/c", "x");
        g_free(list);
    }
    ck_assert_str_eq(contract_list("", 10), all);
    g_free(all);
    g_free(longest);
    g_free(longer);
}
END_TEST

static void on_part(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    GString *part = arg;
    ck_assert_int_eq(result, BACKEND_OK);
    for (size_t i = 0; i < count; i++) {
        g_string_append_printf(part, "%s%s ", entries[i].name, entries[i].type == BACKEND_DIRECTORY ? "/" : "");
    }
}

START_TEST(part_of_a_listing_has_as_many_names_as_requested_despite_expired_locks)
{
    struct contract_log log[2] = {{0}};
    GString *part = g_string_new(NULL);
    char *list = g_strdup_printf("lfs:L:lfs:%s/", prefix());
    contract_get("a", BACKEND_LEASE, &log[0]);
    contract_get("c", BACKEND_LEASE, &log[1]);
    ck_assert_int_eq(contract_mkdir("e", NULL), BACKEND_OK);
    for (unsigned i = 0; i < SERVERS; i++) {
        redis_server_do(servers[i], "ZADD %s 0 b 0 d", list);
    }
    backend_list(contract_backend, "", "", 3, on_part, part);
    CONTRACT_UNTIL(part->len);
    ck_assert_str_eq(part->str, "a c e/ ");
    g_string_free(part, TRUE);
    g_free(list);
}
END_TEST

START_TEST(directory_that_each_server_has_of_another_exists)
{
    static const char *const made[] = {"made one", "made two", "made three"};
    for (unsigned i = 0; i < SERVERS; i++) {
        server_do(i, "HSET", "lfs:D:%s", "d", made[i]);
        server_do(i, "HSET", "lfs:D:%s", "d", "ttl 99999999999999999 revision 1 meta m");
    }
    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_EXISTS);
    for (unsigned i = 0; i < SERVERS; i++) {
        ck_assert_int_eq(server_do(i, "HSTRLEN", "lfs:D:%s", "d", "made"), (long long)strlen(made[i] + 5));
    }
    struct backend_info info = contract_stat("d");
    ck_assert_int_eq(info.type, BACKEND_DIRECTORY);
    ck_assert_int_le(info.directory.ttl, INT64_C(315576000000));
}
END_TEST

/* Another mount has removed it while a server was away; who still knows it makes nothing of it again. */
START_TEST(directory_that_a_majority_has_not_is_gone)
{
    until_up(3);
    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    ck_assert_int_eq(contract_stat("d").type, BACKEND_DIRECTORY);
    for (unsigned i = 0; i < 2; i++) {
        while (server_do(i, "DEL", "lfs:D:%s", "d", "") == 0) { /* its part comes behind the majority */
            contract_poll();
        }
    }
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_MISSING);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_MISSING);
    ck_assert_int_eq(contract_stat("d").type, BACKEND_NOTHING);
    ck_assert_str_eq(contract_list("", 10), "");
}
END_TEST

/* Of one that could not be removed everything is there again. */
START_TEST(directory_in_which_a_majority_has_something_is_put_back)
{
    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    for (unsigned i = 0; i < SERVERS; i++) {
        while (server_do(i, "EXISTS", "lfs:D:%s", "d", "") == 0) {
            contract_poll();
        }
    }
    for (unsigned i = 0; i < 2; i++) { /* what a listing does not see */
        server_do(i, "ZADD", "lfs:L:%s", "d", "0 hidden");
        redis_server_do(servers[i], "ACL SETUSER default -zrem");
    }
    enum backend_result result = contract_rmdir("d");
    for (unsigned i = 0; i < 2; i++) {
        redis_server_do(servers[i], "ACL SETUSER default +@all");
    }
    ck_assert_int_eq(result, BACKEND_NOT_EMPTY);
    while (server_do(2, "EXISTS", "lfs:D:%s", "d", "") == 0) {
        contract_poll();
    }
    ck_assert_int_eq(contract_stat("d").type, BACKEND_DIRECTORY);
}
END_TEST

/* What the first server answers to a request of any mount. */
static void request_directory(const char *what, const char *id)
{
    char *d = g_strconcat(prefix(), "d", NULL), *keys[7], *top = g_strconcat("lfs:", prefix(), "/", NULL);
    const char *const forms[] = {"lfs:D:%s", "lfs:L:%s", "%s", "lfs:D:%s", "%s", "lfs:L:%s", "lfs:G:%s"};
    for (unsigned i = 0; i < G_N_ELEMENTS(keys); i++) {
        keys[i] = g_strdup_printf(forms[i], i >= 3 && i < 6 ? top : d);
    }
    redis_server_do(servers[0], "EVAL %s 7 %s %s %s %s %s %s %s %s %s d 0 5000 1 meta",
                    redlock_scripts[REDLOCK_DIRECTORY].text, keys[0], keys[1], keys[2], keys[3], keys[4], keys[5],
                    keys[6], what, id);
    for (unsigned i = 0; i < G_N_ELEMENTS(keys); i++) {
        g_free(keys[i]);
    }
    g_free(top);
    g_free(d);
}

static long long has_directory(void)
{
    return server_do(0, "EXISTS", "lfs:D:%s", "d", "");
}

START_TEST(directory_is_made_again_only_by_the_removal_that_is_undone)
{
    request_directory("make", "m1");
    request_directory("remove", "r1");
    ck_assert_int_eq(has_directory(), 0);
    request_directory("undo", "r2"); /* a removal by another mount, which came too late here */
    request_directory("make", "m1"); /* by a mount that restores it to servers that came back */
    ck_assert_int_eq(has_directory(), 0);
    request_directory("undo", "r1");
    ck_assert_int_eq(has_directory(), 1);
    ck_assert_int_eq(server_do(0, "HLEN", "lfs:D:%s", "d", ""), 4);
    request_directory("remove", "r1");
    request_directory("make", "m2");
    request_directory("undo", "r1");
    ck_assert_int_eq(has_directory(), 1);
}
END_TEST

/* The connection to a server is made again, as if the server had been away. */
static void come_back(unsigned server)
{
    for (bool back = false; !back;) {
        if (redis_server_do(servers[server], "CLIENT KILL TYPE normal") > 0) {
            until_up(2);
        }
        until_up(3);
        struct backend_status status = status_of(contract_backend);
        back = status.reconnects > 0;
        backend_status_clear(&status);
    }
    for (int i = 0; i < 3; i++) { /* these go behind what is said then */
        contract_stat("another");
    }
}

static void make_directory(void)
{
    const struct backend_directory plain = {.ttl = 5000, .width = 1};
    until_up(3); /* who comes later is given it again */
    ck_assert_int_eq(contract_mkdir("d", &plain), BACKEND_OK);
    for (unsigned i = 0; i < SERVERS; i++) {
        while (server_do(i, "EXISTS", "lfs:D:%s", "d", "") == 0) {
            contract_poll();
        }
    }
}

START_TEST(directory_is_given_to_a_server_that_comes_back_without_it)
{
    make_directory();
    server_do(1, "DEL", "lfs:D:%s", "d", "");
    come_back(1);
    while (server_do(1, "HSTRLEN", "lfs:D:%s", "d", "ttl") != 4) { /* the others' answers may do to look it up */
        contract_poll();
    }
}
END_TEST

START_TEST(directory_that_was_removed_elsewhere_is_not_made_again_when_a_server_comes_back)
{
    make_directory();
    for (unsigned i = 0; i < SERVERS; i++) {
        server_do(i, "DEL", "lfs:D:%s", "d", "");
    }
    come_back(1);
    ck_assert_int_eq(contract_stat("d").type, BACKEND_NOTHING);
    for (unsigned i = 0; i < SERVERS; i++) {
        ck_assert_int_eq(server_do(i, "EXISTS", "lfs:D:%s", "d", ""), 0);
    }
}
END_TEST

START_TEST(directory_that_was_changed_elsewhere_stays_so_when_a_server_comes_back)
{
    if (_i) {
        make_directory();
    } else {
        const struct backend_directory plain = {.ttl = 5000, .width = 1};
        until_up(3);
        ck_assert_int_eq(contract_set_directory("", &plain), BACKEND_OK);
        ck_assert_int_eq(contract_stat("").directory.ttl, 5000);
    }
    for (unsigned i = 0; i < SERVERS; i++) {
        char *root = g_strdup_printf("lfs:D:lfs:%s/", prefix());
        if (_i) {
            server_do(i, "HSET", "lfs:D:%s", "d", "ttl 7000 revision 9000000000000000");
        } else {
            redis_server_do(servers[i], "HSET %s ttl 7000 revision 9000000000000000", root);
        }
        g_free(root);
    }
    come_back(1);
    ck_assert_int_eq(contract_stat(_i ? "d" : "").directory.ttl, 7000);
}
END_TEST

static void on_set(void *arg, enum backend_result result)
{
    *(int *)arg = (int)result;
}

/* The others' earlier answers are not restored to the server that lacks it. */
START_TEST(directory_that_is_changed_while_a_server_comes_back_stays_so)
{
    const struct backend_directory changed = {.ttl = 7000, .width = 1};
    int result = -1;
    make_directory();
    server_do(2, "DEL", "lfs:D:%s", "d", "");
    redis_server_do(servers[0], "CLIENT PAUSE 300"); /* so that for a while nobody knows whether a majority has it */
    come_back(2);
    backend_set_directory(contract_backend, "d", &changed, on_set, &result);
    CONTRACT_UNTIL(result >= 0);
    ck_assert_int_eq(result, BACKEND_OK);
    ck_assert_int_eq(contract_stat("d").directory.ttl, 7000);
    while (server_do(2, "EXISTS", "lfs:D:%s", "d", "") == 0) {
        contract_poll();
    }
    ck_assert_int_eq(contract_stat("d").directory.ttl, 7000);
}
END_TEST

static long long calls(unsigned server)
{
    return redis_server_do(
        servers[server], "EVAL %s 0",
        "return tonumber(redis.call('INFO', 'commandstats'):match('cmdstat_evalsha:calls=(%d+)') or 0)");
}

/* One server has it, and two have given it away, but not to the same: none is a majority, and it is asked again. */
START_TEST(change_of_which_no_two_servers_say_the_same_is_unknown)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    const struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("text")};
    for (unsigned i = 0; i < SERVERS; i++) {
        while (server_do(i, "EXISTS", "%s", "a", "") == 0) {
            contract_poll();
        }
    }
    server_do(0, "SET", "%s", "a", "foreign");
    server_do(1, "SET", "%s", "a", "stranger");
    long long requested = calls(2);
    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_UNREACHABLE);
    ck_assert_int_ge(calls(2), requested + 3);
    ck_assert(!contract_equal(contract_stat("a").content, "text"));
    ck_assert_int_eq(server_do(0, "STRLEN", "%s", "a", ""), 7);
    ck_assert_int_eq(server_do(1, "STRLEN", "%s", "a", ""), 8);
}
END_TEST

/* --- lock owners --- */

START_TEST(bytes_of_a_lock_owner_are_given_back_one_after_the_other)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, &log), other = contract_claim(BACKEND_FLOCK, &log);
    claim.lock_owner = 5;
    claim.start = 10;
    claim.end = 99;
    struct backend_ticket *ticket = contract_acquire("a", &claim).ticket;
    ck_assert_ptr_nonnull(ticket);
    ck_assert_int_eq(contract_release_range(ticket, 0, 49), BACKEND_OK);
    ck_assert_int_eq(contract_acquire("a", &other).result, BACKEND_BUSY);
    ck_assert_int_eq(contract_release_range(ticket, 50, BACKEND_RANGE_MAX), BACKEND_MISSING);
    ck_assert_int_eq(contract_acquire("a", &other).result, BACKEND_OK);
}
END_TEST

/* Its mount does not know yet that it has lost it. */
START_TEST(compatible_claim_is_refused_when_a_majority_has_another_holder)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log[0]);
    claim.handle = 7;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    for (unsigned i = 0; i < SERVERS; i++) {
        while (server_do(i, "EXISTS", "%s", "a", "") == 0) {
            contract_poll();
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        server_do(i, "SET", "%s", "a", "foreign");
    }
    claim = contract_claim(BACKEND_FCNTL, &log[1]);
    claim.handle = 7;
    claim.lock_owner = 5;
    claim.end = BACKEND_RANGE_MAX;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_BUSY);
    ck_assert_uint_eq(log[0].ended, 1); /* which is known now */
    ck_assert_int_eq(log[0].why, BACKEND_LOST);
    ck_assert_int_eq(server_do(0, "STRLEN", "%s", "a", ""), 7);
    ck_assert_int_eq(server_do(1, "STRLEN", "%s", "a", ""), 7);
}
END_TEST

/* --- messages --- */

START_TEST(message_of_another_form_is_ignored)
{
    static const char *const texts[] = {"", "w", "e", "w x y", "e " TOKEN, "e " TOKEN " broken", "x " TOKEN};
    struct contract_log log = {0};
    char *channel = g_strdup_printf("lfs:redlock1:%s{n}", prefix());
    contract_get("a", BACKEND_LEASE, &log);
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        ck_assert_int_eq(redis_server_do(servers[0], "PUBLISH %s %s", channel, texts[i]), 1);
    }
    contract_release(contract_get("b", BACKEND_LEASE, &(struct contract_log){0})); /* which goes behind them */
    ck_assert_uint_eq(log.ended + log.wanted, 0);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_LOCK);
    g_free(channel);
}
END_TEST

static Suite *redlock_suite(void)
{
    Suite *suite = suite_create("redlock");
    TCase *before = tcase_create("before"), *mounted = tcase_create("mounted"),
          *configured = tcase_create("configured"); /* of servers that get more than the simulator's understands */

    tcase_set_timeout(before, 30);
    tcase_add_test(before, servers_that_are_there_are_taken);
    tcase_add_test(before, minority_that_is_away_is_a_warning_and_a_majority_an_error);
    tcase_add_test(before, two_addresses_of_one_server_are_refused);
    tcase_add_test(before, server_that_cannot_be_used_is_an_error);
    tcase_add_test(before, data_of_a_higher_format_are_refused_by_the_name_of_what_made_them);
    tcase_add_test(before, mount_without_a_format_number_is_refused_while_it_is_there);
    tcase_add_test(before, keys_that_would_be_those_of_leasefs_are_refused);
    suite_add_tcase(suite, before);

    tcase_set_timeout(mounted, 30);
    tcase_add_checked_fixture(mounted, contract_setup, contract_teardown);
    tcase_add_test(mounted, status_shows_each_server);
    tcase_add_test(mounted, status_shows_why_nothing_is_granted);
    tcase_add_test(mounted, status_shows_which_vote_does_not_count);
    tcase_add_test(mounted, each_server_has_the_format_number_and_no_mounts);
    tcase_add_test(mounted, server_whose_data_turn_out_to_be_of_a_higher_format_has_no_vote);
    tcase_add_test(mounted, server_that_is_another_one_of_them_has_no_vote);
    tcase_add_test(mounted, what_several_masters_cannot_have_is_refused);
    tcase_add_test(mounted, root_is_a_directory_and_stays);
    tcase_add_test(mounted, name_that_no_lock_can_have_is_none);
    tcase_add_test(mounted, name_that_each_server_has_given_to_another_is_held);
    tcase_add_test(mounted, key_of_another_type_is_held_by_a_stranger);
    tcase_add_loop_test(mounted, impossible_record_shows_nothing_impossible, 0, 2);
    tcase_add_test(mounted, names_that_cannot_be_are_not_listed);
    tcase_add_test(mounted, part_of_a_listing_has_as_many_names_as_requested_despite_expired_locks);
    tcase_add_test(mounted, directory_that_each_server_has_of_another_exists);
    tcase_add_test(mounted, directory_that_a_majority_has_not_is_gone);
    tcase_add_test(mounted, bytes_of_a_lock_owner_are_given_back_one_after_the_other);
    tcase_add_test(mounted, compatible_claim_is_refused_when_a_majority_has_another_holder);
    tcase_add_test(mounted, message_of_another_form_is_ignored);
    suite_add_tcase(suite, mounted);

    tcase_set_timeout(configured, 30);
    tcase_add_checked_fixture(configured, contract_setup, contract_teardown);
    tcase_add_test(configured, status_warns_of_a_server_that_may_delete_locks);
    tcase_add_test(configured, replica_has_no_vote);
    tcase_add_test(configured, majority_that_is_full_refuses_what_is_new_and_releases);
    tcase_add_test(configured, directory_in_which_a_majority_has_something_is_put_back);
    tcase_add_test(configured, directory_is_made_again_only_by_the_removal_that_is_undone);
    tcase_add_test(configured, directory_is_given_to_a_server_that_comes_back_without_it);
    tcase_add_test(configured, directory_that_was_removed_elsewhere_is_not_made_again_when_a_server_comes_back);
    tcase_add_test(configured, directory_that_is_changed_while_a_server_comes_back_stays_so);
    tcase_add_loop_test(configured, directory_that_was_changed_elsewhere_stays_so_when_a_server_comes_back, 0, 2);
    tcase_add_test(configured, change_of_which_no_two_servers_say_the_same_is_unknown);
    suite_add_tcase(suite, configured);
    return suite;
}

int main(void)
{
    static const struct contract redlock = {.name = "redlock", .open = open_plain, .lacks = CONTRACT_FEATURES};

    if (!redis_server_exists()) {
        puts("1..0 # skip there is no redis-server");
        return 0;
    }
    for (unsigned i = 0; i < SERVERS; i++) {
        servers[i] = redis_server_start(NULL);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(absent); i++) {
        absent[i] = redis_server_new(NULL);
    }
    contract_use(&redlock);
    int result = check_main(redlock_suite());
    for (unsigned i = 0; i < SERVERS; i++) {
        redis_server_free(servers[i]);
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(absent); i++) {
        redis_server_free(absent[i]);
    }
    return result;
}
