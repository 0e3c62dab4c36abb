/* The format number on a Redis server: a daemon uses no data of a higher one, and no server beside a mount that has
 * none. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "backend/redis/preflight.h"
#include "config.h"
#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"

#define STORE "lfs:s:lfs:h:/"
#define TERMS "lfs:g:lfs:h:/"
#define OLD_CHANNEL "lfs:0123456789abcdef" /* as a mount without a number has one */
#define UNTIL_LATER "9999999999999"

static redisContext *redis; /* another client */
static char error[1024];

static void begin(void)
{
    hosts_setup();
    redis = redisConnectUnix(redis_server_socket(hosts_server));
    ck_assert(redis && !redis->err);
}

static void end(void)
{
    redisFree(redis);
    hosts_teardown();
}

static int preflight(void)
{
    GPtrArray *warnings = g_ptr_array_new_with_free_func(g_free);
    struct redis_options options = hosts_options;
    options.conn.greet = NULL; /* which the fixture leaves there */
    error[0] = '\0';
    int result = redis_preflight(&options, warnings, error, sizeof error);
    g_ptr_array_unref(warnings);
    return result;
}

static void subscribe(const char *channel)
{
    redisReply *reply = redisCommand(redis, "SUBSCRIBE %s", channel);
    ck_assert(reply && reply->type == REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
}

static char *field(const char *name)
{
    redisReply *reply = redisCommand(redis, "HGET " STORE " %s", name);
    ck_assert_ptr_nonnull(reply);
    char *text = g_strdup(reply->type == REDIS_REPLY_STRING ? reply->str : "");
    freeReplyObject(reply);
    return text;
}

START_TEST(data_of_a_higher_format_are_refused_by_the_name_of_what_made_them)
{
    redis_server_do(hosts_server, "HSET " STORE " format %s", "2 9.9.9 hostb");
    ck_assert_int_eq(preflight(), -EPROTONOSUPPORT);
    ck_assert_msg(strstr(error,
                         "the store, made by leasefs 9.9.9 hostb, has format version 2, and leasefs " PACKAGE_VERSION
                         " knows format versions up to 1: upgrade leasefs on this host") != NULL,
                  "%s", error);
    redis_server_do(hosts_server, "HSET " STORE " format %s", "1 9.9.9 hostb");
    ck_assert_msg(preflight() == 0, "%s", error);
}
END_TEST

START_TEST(mount_whose_term_counts_and_that_has_no_number_is_refused_while_it_is_there)
{
    redis_server_do(hosts_server, "ZADD " TERMS " " UNTIL_LATER " %s", OLD_CHANNEL " 30000 0123456789abcdef");
    ck_assert_msg(preflight() == 0, "%s", error); /* it is gone */
    subscribe(OLD_CHANNEL);
    ck_assert_int_eq(preflight(), -EPROTONOSUPPORT);
    ck_assert_msg(strstr(error, "(channel " OLD_CHANNEL ") of a leasefs older than 1.0.0") != NULL, "%s", error);
    hosts_options.prefix = "another:";
    ck_assert_msg(preflight() == 0, "%s", error);
}
END_TEST

/* Which had other side keys, and no terms. */
START_TEST(mount_of_the_first_release_is_refused_while_it_is_there)
{
    redis_server_do(hosts_server, "ZADD lfs:l:{h:} " UNTIL_LATER " job");
    ck_assert_msg(preflight() == 0, "%s", error);
    subscribe(OLD_CHANNEL);
    ck_assert_int_eq(preflight(), -EPROTONOSUPPORT);
    ck_assert_msg(strstr(error, "(channel " OLD_CHANNEL ") of a leasefs older than 1.0.0") != NULL, "%s", error);
    hosts_options.prefix = "another:";
    ck_assert_msg(preflight() == 0, "%s", error);
}
END_TEST

START_TEST(mounts_of_this_version_share_a_server)
{
    hosts_until_up(1);
    hosts_release(hosts_get(1, "L", HOSTS_LONG));
    ck_assert_msg(preflight() == 0, "%s", error);
}
END_TEST

START_TEST(the_server_has_the_mounts_number_version_and_host)
{
    hosts_until_up(1);
    char *made = field("format"), *host = g_strdup(g_get_host_name()), *expected;
    expected = g_strdup_printf("1 " PACKAGE_VERSION " %s", host);
    ck_assert_str_eq(made, expected);
    redisReply *all = redisCommand(redis, "HVALS " STORE);
    ck_assert(all && all->type == REDIS_REPLY_ARRAY && all->elements == 2);
    unsigned mounts = 0;
    for (size_t i = 0; i < all->elements; i++) {
        const char *text = all->element[i]->str;
        mounts += g_str_has_prefix(text, expected) && strstr(text, " lfs:m") != NULL;
    }
    ck_assert_uint_eq(mounts, 1);
    freeReplyObject(all);
    g_free(made);
    g_free(host);
    g_free(expected);
}
END_TEST

static long long count_notes(void)
{
    return redis_server_do(hosts_server, "HLEN " STORE);
}

static void note_others(unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++) {
        char note[64];
        snprintf(note, sizeof note, "1 0.9.0 pod%u lfs:m%015u since 1", i, i);
        redis_server_do(hosts_server, "HSET " STORE " pod%u %s", i, note);
    }
}

START_TEST(notes_of_mounts_that_are_gone_are_removed_each_time_their_number_has_doubled)
{
    hosts_until_up(0); /* it writes the number, and its note */
    note_others(0, 12);
    subscribe("lfs:m000000000000007"); /* this mount is there */
    hosts_until_up(1);
    ck_assert_int_eq(count_notes(), 15);
    hosts_until_up(2);
    ck_assert_int_eq(count_notes(), 5); /* of three mounts here, of that one, and the number */
    note_others(100, 26);
    hosts_until_up(3);
    ck_assert_int_eq(count_notes(), 5 + 1);
}
END_TEST

static int64_t since(void)
{
    redisReply *all = redisCommand(redis, "HVALS " STORE);
    int64_t time = -1;
    ck_assert(all && all->type == REDIS_REPLY_ARRAY);
    for (size_t i = 0; i < all->elements; i++) {
        const char *at = strstr(all->element[i]->str, " since ");
        time = at ? g_ascii_strtoll(at + strlen(" since "), NULL, 10) : time;
    }
    freeReplyObject(all);
    return time;
}

START_TEST(mount_whose_note_was_removed_while_it_was_away_has_been_there_as_long_as_before)
{
    hosts_until_up(1);
    hosts_pass(1500);
    int64_t before = since();
    redis_server_do(hosts_server, "DEL " STORE);
    redis_server_do(hosts_server, "CLIENT KILL TYPE normal SKIPME yes");
    redisFree(redis);
    redis = redisConnectUnix(redis_server_socket(hosts_server));
    HOSTS_UNTIL(since() > 0);
    ck_assert_int_ge(since(), before - 1000); /* the clocks differ a little */
    ck_assert_int_le(since(), before + 1000);
}
END_TEST

START_TEST(mount_that_meets_a_higher_format_when_it_connects_again_stays_away)
{
    struct backend_status status;
    hosts_until_up(1);
    redis_server_do(hosts_server, "HSET " STORE " format %s", "2 9.9.9 hostb");
    redis_server_do(hosts_server, "CLIENT KILL TYPE normal SKIPME yes");
    hosts_pass(1000);
    backend_status(hosts_mount(1), &status);
    ck_assert(status.away);
    ck_assert_msg(strstr(status.why, "format version 2 of leasefs 9.9.9 on hostb, and leasefs " PACKAGE_VERSION
                                     " knows format versions up to 1: upgrade leasefs on this host") != NULL,
                  "%s", status.why);
    backend_status_clear(&status);
    redis_server_do(hosts_server, "HSET " STORE " format %s", "1 9.9.9 hostb");
    hosts_until_up(1);
}
END_TEST

START_TEST(store_that_another_program_has_overwritten_is_written_again)
{
    redis_server_do(hosts_server, "SET " STORE " stranger");
    hosts_until_up(1);
    char *made = field("format");
    ck_assert_msg(g_str_has_prefix(made, "1 " PACKAGE_VERSION), "%s", made);
    g_free(made);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_format");
    TCase *format = tcase_create("format");
    tcase_add_checked_fixture(format, begin, end);
    tcase_add_test(format, data_of_a_higher_format_are_refused_by_the_name_of_what_made_them);
    tcase_add_test(format, mount_whose_term_counts_and_that_has_no_number_is_refused_while_it_is_there);
    tcase_add_test(format, mount_of_the_first_release_is_refused_while_it_is_there);
    tcase_add_test(format, mounts_of_this_version_share_a_server);
    tcase_add_test(format, the_server_has_the_mounts_number_version_and_host);
    tcase_add_test(format, notes_of_mounts_that_are_gone_are_removed_each_time_their_number_has_doubled);
    tcase_add_test(format, mount_whose_note_was_removed_while_it_was_away_has_been_there_as_long_as_before);
    tcase_add_test(format, mount_that_meets_a_higher_format_when_it_connects_again_stays_away);
    tcase_add_test(format, store_that_another_program_has_overwritten_is_written_again);
    tcase_set_timeout(format, 60);
    suite_add_tcase(suite, format);
    return check_main(suite);
}
