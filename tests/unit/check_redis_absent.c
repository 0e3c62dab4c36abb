/* check_redis_absent: look-ups that a mount with lookup=told answers without asking the server; see
 * backend/redis/absent.c.
 *
 * A busy machine may take longer for a cycle than such an answer is kept, so what shows that it was used is tried
 * again.
 */
#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"
#include "tests/unit/redis_proxy.h"

#define KEPT 100 /* ms, as leasefs(7) says */

static struct redis_proxy *proxy;

/* Mounts 0 and 1 look up as told, 0 behind the proxy; 2 asks. */
static void setup(void)
{
    hosts_setup();
    hosts_options.lookup_told = true;
    proxy = redis_proxy_new(hosts_loop, redis_server_socket(hosts_server));
    hosts_options.conn.uri.path = (char *)redis_proxy_socket(proxy);
    hosts_until_up(0);
    hosts_options.conn.uri.path = (char *)redis_server_socket(hosts_server);
    hosts_until_up(1);
    hosts_options.lookup_told = false;
    hosts_until_up(2);
}

static void teardown(void)
{
    hosts_close(0);
    redis_proxy_free(proxy);
    hosts_teardown();
}

static uint64_t requests(unsigned mount)
{
    struct backend_status status;
    backend_status(hosts_mount(mount), &status);
    uint64_t count = status.round_trips;
    backend_status_clear(&status);
    return count;
}

static void cycle(unsigned mount, const char *name)
{
    ck_assert_int_eq(hosts_stat(mount, name).type, BACKEND_NOTHING);
    ck_assert_int_eq(hosts_release(hosts_get(mount, name, HOSTS_LONG)), BACKEND_OK);
}

/* Whether it is looked up without a request, which it then was. */
static bool is_known(unsigned mount, const char *name)
{
    uint64_t before = requests(mount);
    ck_assert_int_eq(hosts_stat(mount, name).type, BACKEND_NOTHING);
    return requests(mount) == before;
}

/* Until the next look-up would be answered here. */
static void make_known(unsigned mount, const char *name)
{
    do {
        cycle(mount, name);
    } while (!is_known(mount, name));
    ck_assert_int_eq(hosts_release(hosts_get(mount, name, HOSTS_LONG)), BACKEND_OK);
}

/* What the server has told is at the mounts, read or not. */
static void let_tell(void)
{
    hosts_exists("h:other");
    hosts_exists("h:other");
}

START_TEST(cycle_takes_two_round_trips_and_three_where_each_look_up_asks)
{
    for (uint64_t took = 0; took != 20;) {
        uint64_t before = requests(1);
        for (unsigned i = 0; i < 10; i++) {
            cycle(1, "L");
        }
        took = requests(1) - before;
        ck_assert_uint_le(took, 30);
    }
    cycle(2, "L");
    uint64_t before = requests(2);
    for (unsigned i = 0; i < 10; i++) {
        cycle(2, "L");
    }
    ck_assert_uint_eq(requests(2) - before, 30);
}
END_TEST

START_TEST(answers_one_look_up_and_none_that_comes_late)
{
    make_known(1, "L");
    is_known(1, "L");
    ck_assert(!is_known(1, "L"));
    make_known(1, "L");
    hosts_pass(KEPT);
    ck_assert(!is_known(1, "L"));
}
END_TEST

enum { BY_MOUNT, BY_STRANGER, AS_QUEUE, AS_DIRECTORY, BY_RENAME, TAKERS };

static void take(int how, const char *name)
{
    struct backend_directory directory = {.width = 1};
    switch (how) {
    case BY_MOUNT:
        hosts_get(2, name, HOSTS_LONG);
        break;
    case BY_STRANGER:
        redis_server_do(hosts_server, "SETNX h:%s foreign", name);
        break;
    case AS_QUEUE: {
        struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
        claim.mode = BACKEND_SHARED;
        ck_assert_int_eq(hosts_acquire(2, name, &claim)->result, BACKEND_OK);
        break;
    }
    case AS_DIRECTORY:
        ck_assert_int_eq(hosts_mkdir(2, name, &directory), BACKEND_OK);
        break;
    case BY_RENAME:
        ck_assert_int_eq(hosts_rename(hosts_get(2, "from", HOSTS_LONG), name), BACKEND_OK);
        break;
    default:
        ck_abort();
    }
}

START_TEST(what_others_take_is_seen_when_the_server_has_told)
{
    int how = _i % TAKERS;
    make_known(1, "L");
    take(how, "L");
    let_tell();
    if (_i >= TAKERS) {
        hosts_pass(10); /* and it is read */
    }
    ck_assert_int_eq(hosts_stat(1, "L").type, how == AS_DIRECTORY ? BACKEND_DIRECTORY : BACKEND_LOCK);
}
END_TEST

START_TEST(what_this_mount_takes_is_seen_at_once)
{
    struct backend_directory directory = {.width = 1};
    make_known(1, "L");
    make_known(1, "D");
    make_known(1, "R");
    hosts_get(1, "L", HOSTS_LONG);
    ck_assert_int_eq(hosts_stat(1, "L").type, BACKEND_LOCK);
    ck_assert_int_eq(hosts_mkdir(1, "D", &directory), BACKEND_OK);
    ck_assert_int_eq(hosts_stat(1, "D").type, BACKEND_DIRECTORY);
    ck_assert_int_eq(hosts_rename(hosts_get(1, "from", HOSTS_LONG), "R"), BACKEND_OK);
    ck_assert_int_eq(hosts_stat(1, "R").type, BACKEND_LOCK);
}
END_TEST

START_TEST(what_is_refused_here_is_seen_at_once)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    make_known(0, "L");
    redis_proxy_lose(proxy, "invalidate", UINT_MAX, false);
    take(BY_STRANGER, "L");
    ck_assert_int_eq(hosts_acquire(0, "L", &claim)->result, BACKEND_BUSY);
    ck_assert_int_eq(hosts_stat(0, "L").type, BACKEND_LOCK);
}
END_TEST

/* The one time that is late is that of which leasefs(7) tells. */
START_TEST(where_nothing_is_told_one_look_up_is_late_and_none_after_that_time)
{
    for (bool late = false; !late;) {
        make_known(0, "L");
        redis_proxy_lose(proxy, "invalidate", UINT_MAX, false);
        take(BY_STRANGER, "L");
        late = hosts_stat(0, "L").type == BACKEND_NOTHING;
        ck_assert_int_eq(hosts_stat(0, "L").type, BACKEND_LOCK);
        redis_proxy_lose(proxy, "", 0, false);
        redis_server_do(hosts_server, "DEL h:L");
    }
    make_known(0, "L");
    redis_proxy_lose(proxy, "invalidate", UINT_MAX, false);
    take(BY_STRANGER, "L");
    hosts_pass(KEPT);
    ck_assert_int_eq(hosts_stat(0, "L").type, BACKEND_LOCK);
}
END_TEST

START_TEST(nothing_is_believed_over_a_connection_that_ends)
{
    make_known(1, "L");
    redis_server_do(hosts_server, "CLIENT KILL TYPE pubsub");
    take(BY_STRANGER, "L");
    let_tell();
    ck_assert_int_eq(hosts_stat(1, "L").type, BACKEND_LOCK);
}
END_TEST

START_TEST(server_that_may_not_tell_is_asked)
{
    redis_server_do(hosts_server, "ACL SETUSER me on >word ~* &* +@all -client|%s", _i ? "caching" : "tracking");
    hosts_close(1);
    hosts_options.lookup_told = true;
    hosts_options.conn.user = "me";
    hosts_options.conn.password = "word";
    hosts_until_up(1);
    for (unsigned i = 0; i < 5; i++) {
        uint64_t before = requests(1);
        cycle(1, "L");
        ck_assert_uint_eq(requests(1) - before, 3);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_absent");
    TCase *tcase = tcase_create("absent");

    tcase_set_timeout(tcase, 40);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, cycle_takes_two_round_trips_and_three_where_each_look_up_asks);
    tcase_add_test(tcase, answers_one_look_up_and_none_that_comes_late);
    tcase_add_loop_test(tcase, what_others_take_is_seen_when_the_server_has_told, 0, 2 * TAKERS);
    tcase_add_test(tcase, what_this_mount_takes_is_seen_at_once);
    tcase_add_test(tcase, what_is_refused_here_is_seen_at_once);
    tcase_add_test(tcase, where_nothing_is_told_one_look_up_is_late_and_none_after_that_time);
    tcase_add_test(tcase, nothing_is_believed_over_a_connection_that_ends);
    tcase_add_loop_test(tcase, server_that_may_not_tell_is_asked, 0, 2);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
