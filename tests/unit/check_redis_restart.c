/* check_redis_restart: a Redis server that was restarted with its data.  Nothing new is granted while a holder may
 * exist that has not restored its lock.
 */
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/support/relay.h"
#include "tests/unit/hosts_fixture.h"

enum {
    BASE = 7000,
    AT_ONCE = 5000,
    AWAY = 8000
}; /* AT_ONCE: until all mounts are connected again, and less than a term */
#define AN_HOUR 3600000

/* Mount 0 is behind it, where there is one. */
static struct relay *proxy;

static void setup(void)
{
    hosts_setup_aof();
    hosts_options.grace = 0; /* an hour at most */
    hosts_options.term = BASE;
    for (unsigned i = 1; i < 3; i++) {
        hosts_until_up(i);
        hosts_until_known(i, BASE);
    }
}

static void begin_mount_0(void)
{
    proxy = relay_to(hosts_loop, redis_server_port(hosts_server));
    hosts_reach_by(relay_port(proxy));
    hosts_until_up(0);
    hosts_until_known(0, BASE);
}

static void teardown(void)
{
    if (proxy) {
        hosts_close(0);
        relay_end();
    }
    hosts_teardown();
}

static void cut_off(void)
{
    relay_lose(proxy, "", UINT_MAX, true);
}

static void let_back(void)
{
    relay_lose(proxy, "", 0, false);
}

static void restart(void)
{
    redis_server_stop(hosts_server);
    redis_server_again(hosts_server);
}

static char *status_line(unsigned mount, const char *begin)
{
    struct backend_status status;
    char *line = NULL;
    backend_status(hosts_mount(mount), &status);
    for (guint i = 0; i < status.details->len && !line; i++) {
        line = g_str_has_prefix(status.details->pdata[i], begin) ? g_strdup(status.details->pdata[i]) : NULL;
    }
    backend_status_clear(&status);
    return line;
}

static bool is_closed(unsigned mount)
{
    char *line = status_line(mount, "grace period: no new lock for ");
    bool closed = line;
    g_free(line);
    return closed;
}

static bool has_epoch_other_than(unsigned mount, const char *before)
{
    char *line = status_line(mount, "epoch: ");
    bool other = strcmp(line, before) != 0;
    g_free(line);
    return other;
}

static enum backend_result result_of(unsigned mount, const char *name)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, BASE);
    struct hosts_record *record = hosts_acquire(mount, name, &claim);
    if (record->result == BACKEND_OK) {
        hosts_release(record);
    }
    return record->result;
}

/* Restarts it; what that mount is granted then, and when. */
static clock_ms granted_after_restart(unsigned mount, const char *name)
{
    char *before = status_line(mount, "epoch: ");
    clock_ms began = clock_now();
    restart();
    HOSTS_UNTIL(has_epoch_other_than(mount, before));
    while (result_of(mount, name) == BACKEND_GRACE) {
        hosts_pass(20);
    }
    g_free(before);
    return clock_now() - began;
}

START_TEST(long_lock_that_was_released_closes_nothing)
{
    hosts_release(hosts_get(1 + (unsigned)_i, "L", AN_HOUR));
    ck_assert_int_lt(granted_after_restart(1, "L"), AT_ONCE);
    ck_assert_int_lt(granted_after_restart(2, "M"), AT_ONCE);
}
END_TEST

START_TEST(long_lock_that_was_released_leaves_the_term_also_where_data_are_lost)
{
    struct hosts_record *record = hosts_get(2, "L", AN_HOUR);
    hosts_until_known(1, AN_HOUR);
    hosts_release(record);
    hosts_until_forgotten(1, BASE);
    hosts_until_forgotten(2, BASE);
    clock_ms began = clock_now();
    redis_server_do(hosts_server, "FLUSHALL");
    HOSTS_UNTIL(is_closed(2) && is_closed(1));
    char *line = status_line(1, "grace period: ");
    ck_assert_msg(g_str_has_suffix(line, " s, the server lost data"), "%s", line);
    g_free(line);
    ck_assert_int_eq(result_of(1, "M"), BACKEND_GRACE);
    HOSTS_UNTIL(!is_closed(2) && !is_closed(1));
    ck_assert_int_ge(clock_now(), began + BASE);
    ck_assert_int_lt(clock_now(), began + 3 * BASE);
}
END_TEST

/* The filesystem is called once more for such a lease, when its owner is final. */
START_TEST(fixed_term_closes_nothing_for_longer)
{
    static const char fixed[] = "1 2 3 4 5 6 7 1"; /* meta; the last number is BACKEND_FIXED */
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, BASE);
    claim.meta = g_bytes_new_static(fixed, strlen(fixed));
    struct hosts_record *record = hosts_acquire(2, "L", &claim);
    g_bytes_unref(claim.meta);
    record->renews = false;
    backend_renew(hosts_mount(2), &(struct backend_renewal){.ticket = record->ticket, .ttl = AN_HOUR, .due = 1000}, 1);
    HOSTS_UNTIL(record->ticket->deadline > clock_now() + 2 * BASE);
    redis_server_do(hosts_server, "FLUSHALL");
    HOSTS_UNTIL(is_closed(1));
    char *line = status_line(1, "grace period: no new lock for ");
    ck_assert_msg(g_ascii_strtoll(line + strlen("grace period: no new lock for "), NULL, 10) <= 2 * BASE / 1000, "%s",
                  line);
    g_free(line);
}
END_TEST

START_TEST(holder_that_is_there_keeps_a_long_lock_and_others_are_served_at_once)
{
    struct hosts_record *record = hosts_get(2, "L", AN_HOUR);
    uint64_t fence = record->ticket->fence;
    ck_assert_int_lt(granted_after_restart(1, "M"), AT_ONCE);
    ck_assert_int_eq(result_of(1, "L"), BACKEND_BUSY);
    ck_assert_uint_eq(record->ended, 0);
    ck_assert_uint_eq(record->ticket->fence, fence);
    hosts_release(record);
    ck_assert_int_eq(result_of(1, "L"), BACKEND_OK);
}
END_TEST

/* Of the server's data only L is gone. */
START_TEST(lock_of_a_mount_that_is_away_is_given_to_nobody_until_its_term_is_over)
{
    begin_mount_0();
    struct hosts_record *away = hosts_get(0, "L", AWAY);
    clock_ms deadline = away->ticket->deadline;
    cut_off();
    char *before = status_line(1, "epoch: ");
    restart();
    HOSTS_UNTIL(has_epoch_other_than(1, before));
    redis_server_do(hosts_server, "DEL h:L");
    ck_assert_int_eq(result_of(1, "L"), BACKEND_GRACE);
    char *line = status_line(1, "grace period: no new lock for ");
    ck_assert_msg(g_str_has_suffix(line, " s, the server was restarted"), "%s", line);
    ck_assert_int_le(atoi(line + strlen("grace period: no new lock for ")), AWAY / 1000 + 1);
    HOSTS_UNTIL(!is_closed(1));
    ck_assert_int_ge(clock_now(), deadline);
    ck_assert_int_eq(result_of(1, "L"), BACKEND_OK);
    g_free(before);
    g_free(line);
}
END_TEST

START_TEST(mount_that_comes_back_ends_the_grace_period)
{
    begin_mount_0();
    struct hosts_record *away = hosts_get(0, "L", AN_HOUR);
    cut_off();
    char *before = status_line(1, "epoch: ");
    restart();
    HOSTS_UNTIL(has_epoch_other_than(1, before));
    ck_assert_int_eq(result_of(1, "M"), BACKEND_GRACE);
    let_back();
    HOSTS_UNTIL(!is_closed(1));
    ck_assert_int_eq(result_of(1, "M"), BACKEND_OK);
    ck_assert_int_eq(result_of(1, "L"), BACKEND_BUSY);
    ck_assert_uint_eq(away->ended, 0);
    g_free(before);
}
END_TEST

/* Mount 0 has begun since: the server does not know of it any more, but mount 1 does. */
START_TEST(mount_that_older_data_know_nothing_of_is_waited_for)
{
    redis_server_do(hosts_server, "CONFIG SET appendonly no");
    redis_server_do(hosts_server, "SAVE");
    begin_mount_0();
    struct hosts_record *away = hosts_get(0, "L", AWAY);
    clock_ms deadline = away->ticket->deadline;
    hosts_until_known(1, AWAY);
    cut_off();
    restart();
    HOSTS_UNTIL(is_closed(1));
    ck_assert(!hosts_exists("h:L"));
    ck_assert_int_eq(result_of(1, "L"), BACKEND_GRACE);
    HOSTS_UNTIL(!is_closed(1));
    ck_assert_int_ge(clock_now(), deadline);
    ck_assert_int_eq(result_of(1, "L"), BACKEND_OK);
}
END_TEST

START_TEST(who_waits_for_a_lock_gets_it_after_the_grace_period)
{
    begin_mount_0();
    struct hosts_record *away = hosts_get(0, "L", AWAY);
    clock_ms deadline = away->ticket->deadline;
    cut_off();
    char *before = status_line(1, "epoch: ");
    restart();
    HOSTS_UNTIL(has_epoch_other_than(1, before));
    redis_server_do(hosts_server, "DEL h:L");
    struct hosts_record *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, BASE);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_int_ge(waiter->at, deadline);
    g_free(before);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_restart");
    TCase *tcase = tcase_create("restart");

    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, long_lock_that_was_released_closes_nothing, 0, 2);
    tcase_add_test(tcase, long_lock_that_was_released_leaves_the_term_also_where_data_are_lost);
    tcase_add_test(tcase, fixed_term_closes_nothing_for_longer);
    tcase_add_test(tcase, holder_that_is_there_keeps_a_long_lock_and_others_are_served_at_once);
    tcase_add_test(tcase, lock_of_a_mount_that_is_away_is_given_to_nobody_until_its_term_is_over);
    tcase_add_test(tcase, mount_that_comes_back_ends_the_grace_period);
    tcase_add_test(tcase, mount_that_older_data_know_nothing_of_is_waited_for);
    tcase_add_test(tcase, who_waits_for_a_lock_gets_it_after_the_grace_period);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
