/* check_redis_wait: mounts whose locks a replica must confirm (wait=), and a replica that is stopped. */
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"

enum { GRACE = 1500, COMMAND_TIMEOUT = 3000 }; /* so WAIT takes half of that at most */

static struct redis_server *replica;

static void setup(void)
{
    char port[8];
    const char *const arguments[] = {"--replicaof", "127.0.0.1", port, NULL};
    static const char *const at_once[] = {"--repl-diskless-sync-delay", "0", NULL};
    hosts_setup_with(at_once);
    g_snprintf(port, sizeof port, "%u", redis_server_port(hosts_server));
    replica = redis_server_start(arguments);
    while (redis_server_do(hosts_server, "WAIT 1 1000") < 1) {
    }
    hosts_options.conn.wait = 1;
    hosts_options.conn.command_timeout = COMMAND_TIMEOUT;
    hosts_options.grace = GRACE;
    for (unsigned i = 0; i < 2; i++) {
        hosts_until_up(i);
    }
}

static void teardown(void)
{
    redis_server_resume(replica);
    redis_server_free(replica);
    hosts_teardown();
}

static bool is_there(unsigned mount, const char *begin)
{
    struct backend_status status;
    bool there = false;
    backend_status(hosts_mount(mount), &status);
    for (guint i = 0; i < status.details->len; i++) {
        there = there || g_str_has_prefix(status.details->pdata[i], begin);
    }
    backend_status_clear(&status);
    return there;
}

/* How often the replicas were. */
static uint64_t requested(unsigned mount)
{
    static const char begin[] = "wait: 1 replicas (asked ";
    struct backend_status status;
    uint64_t count = UINT64_MAX;
    backend_status(hosts_mount(mount), &status);
    for (guint i = 0; i < status.details->len; i++) {
        const char *line = status.details->pdata[i];
        count = g_str_has_prefix(line, begin) ? g_ascii_strtoull(line + strlen(begin), NULL, 10) : count;
    }
    backend_status_clear(&status);
    return count;
}

static enum backend_result result_of(unsigned mount, const char *name, enum backend_kind kind)
{
    struct backend_claim claim = hosts_claim(kind, HOSTS_LONG);
    struct hosts_record *record = hosts_acquire(mount, name, &claim);
    enum backend_result result = record->result;
    if (result == BACKEND_OK) {
        ck_assert_int_eq(hosts_release(record), BACKEND_OK);
    }
    return result;
}

START_TEST(who_is_granted_a_lock_finds_it_on_the_replica)
{
    for (unsigned i = 0; i < 50; i++) {
        char name[16];
        g_snprintf(name, sizeof name, "L%u", i);
        hosts_get(i % 2, name, HOSTS_LONG);
        char *key = g_strconcat("h:", name, NULL);
        ck_assert_int_eq(redis_server_do(replica, "EXISTS %s", key), 1);
        g_free(key);
    }
    ck_assert_uint_gt(requested(0), 25);
    ck_assert_uint_lt(requested(0), 100);
    ck_assert_str_eq(backend_safety_name(hosts_mount(0)->safety), "replicated");
}
END_TEST

static const enum backend_kind kinds[] = {BACKEND_LEASE, BACKEND_FLOCK, BACKEND_PROVISIONAL};

START_TEST(nothing_is_granted_and_nothing_left_while_the_replica_stands_still)
{
    redis_server_pause(replica);
    ck_assert_int_eq(result_of(0, "L", kinds[_i]), BACKEND_UNREACHABLE);
    HOSTS_UNTIL(!hosts_exists("h:L") && !hosts_exists("lfs:o:h:L"));
    struct backend_claim claim = hosts_claim(kinds[_i], HOSTS_LONG);
    claim.sequence = kinds[_i] == BACKEND_LEASE;
    claim.wait = !claim.sequence;
    ck_assert_int_eq(hosts_acquire(1, claim.sequence ? "q-" : "M", &claim)->result, BACKEND_UNREACHABLE);
    HOSTS_UNTIL(!hosts_exists("h:M") && !hosts_exists("lfs:o:h:M") && !hosts_exists("lfs:o:lfs:h:/"));
    redis_server_resume(replica);
    HOSTS_UNTIL(result_of(1, "L", kinds[_i]) == BACKEND_OK);
}
END_TEST

START_TEST(many_of_one_turn_are_confirmed_in_one)
{
    enum { MANY = 100 };
    struct hosts_record *record[MANY];
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    hosts_get(0, "first", HOSTS_LONG);
    hosts_pass(500); /* its term is a new one to the server, so that mounts look at the version */
    uint64_t before = requested(0);
    for (unsigned i = 0; i < MANY; i++) {
        char name[16];
        g_snprintf(name, sizeof name, "L%u", i);
        record[i] = hosts_request(0, name, &claim);
    }
    for (unsigned i = 0; i < MANY; i++) {
        HOSTS_UNTIL(record[i]->answered);
        ck_assert_int_eq(record[i]->result, BACKEND_OK);
    }
    ck_assert_uint_eq(requested(0), before + 1);
}
END_TEST

START_TEST(what_is_held_outlasts_a_short_halt_and_ends_with_its_term_in_a_long_one)
{
    enum { TERM = 3000 };
    struct hosts_record *record = hosts_get(0, "L", TERM);
    redis_server_pause(replica);
    hosts_pass(TERM / 2);
    redis_server_resume(replica);
    hosts_pass(TERM);
    ck_assert_uint_eq(record->ended, 0);
    redis_server_pause(replica);
    clock_ms paused = clock_now();
    HOSTS_UNTIL(record->ended);
    ck_assert_int_eq(record->why, BACKEND_LOST);
    ck_assert_int_le(record->deadline, paused + TERM);
    HOSTS_UNTIL(!hosts_exists("h:L"));
}
END_TEST

START_TEST(who_is_handed_a_lock_has_it_when_the_replica_knows)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_record *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    redis_server_pause(replica);
    ck_assert_int_eq(hosts_release(holder), BACKEND_OK); /* needs nobody's consent */
    hosts_pass(COMMAND_TIMEOUT);
    ck_assert_uint_eq(waiter->granted + waiter->ended, 0);
    redis_server_resume(replica);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_int_eq(result_of(0, "L", BACKEND_LEASE), BACKEND_BUSY);
}
END_TEST

/* Another may be the master by then, on which its holder goes on. */
START_TEST(break_that_the_replica_lacks_is_not_confirmed)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    redis_server_pause(replica);
    ck_assert_int_eq(hosts_revoke(1, "L", _i ? holder->ticket->fence : 0), BACKEND_UNREACHABLE);
    redis_server_resume(replica);
    enum backend_result result;
    do {
        result = hosts_revoke(1, "L", 0);
    } while (result == BACKEND_UNREACHABLE);
    ck_assert(result == BACKEND_OK || result == BACKEND_MISSING);
    HOSTS_UNTIL(holder->ended);
}
END_TEST

START_TEST(conversion_that_the_replica_has_not_heard_of_is_undone)
{
    struct backend_claim shared = hosts_claim(BACKEND_FLOCK, HOSTS_LONG), exclusive = shared;
    struct hosts_done done = {0};
    shared.mode = BACKEND_SHARED;
    struct hosts_record *record = hosts_acquire(0, "L", &shared);
    exclusive.user = record;
    ck_assert_int_eq(record->result, BACKEND_OK);
    redis_server_pause(replica);
    backend_convert(hosts_mount(0), record->ticket, &exclusive, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(record->ticket->mode, BACKEND_SHARED);
    redis_server_resume(replica);
    struct hosts_record *other;
    do {
        other = hosts_acquire(1, "L", &shared);
    } while (other->result == BACKEND_BUSY || other->result == BACKEND_UNREACHABLE);
    ck_assert_int_eq(other->result, BACKEND_OK);
    ck_assert_uint_eq(record->ended, 0);
}
END_TEST

START_TEST(content_that_the_replica_has_not_is_not_set)
{
    struct hosts_record *record = hosts_get(0, "L", HOSTS_LONG);
    struct hosts_done done = {0};
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = g_bytes_new("text", 4)};
    redis_server_pause(replica);
    backend_set(hosts_mount(0), record->ticket, &change, hosts_on_done, &done);
    g_bytes_unref(change.content);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_UNREACHABLE);
}
END_TEST

START_TEST(rename_that_the_replica_has_not_heard_of_leaves_neither_name)
{
    struct hosts_record *record = hosts_get(0, "L", HOSTS_LONG);
    redis_server_pause(replica);
    ck_assert_int_eq(hosts_rename(record, "M"), BACKEND_UNREACHABLE);
    HOSTS_UNTIL(record->ended);
    ck_assert_int_eq(record->why, BACKEND_LOST);
    HOSTS_UNTIL(!hosts_exists("h:L") && !hosts_exists("h:M"));
}
END_TEST

/* A mount that an older master granted a lock shares a node with one that knows of the grace period, not before. */
START_TEST(pause_begins_when_the_replica_has_heard_of_it)
{
    struct hosts_record *record = hosts_get(0, "L", HOSTS_LONG);
    for (unsigned i = 0; i < 2; i++) {
        hosts_until_known(i, GRACE);
    }
    redis_server_pause(replica);
    redis_server_do(hosts_server, "FLUSHALL");
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(result_of(i, "M", BACKEND_LEASE), BACKEND_UNREACHABLE);
    }
    HOSTS_UNTIL(is_there(0, "grace period: ") && is_there(1, "grace period: "));
    hosts_pass(2 * GRACE);
    ck_assert(is_there(0, "grace period: ") && is_there(1, "grace period: "));
    redis_server_resume(replica);
    clock_ms resumed = clock_now();
    HOSTS_UNTIL(!is_there(0, "grace period: ") || !is_there(1, "grace period: "));
    ck_assert_int_ge(clock_now(), resumed + GRACE);
    HOSTS_UNTIL(!is_there(0, "grace period: ") && !is_there(1, "grace period: "));
    ck_assert_uint_eq(record->ended, 0);
    ck_assert_int_eq(result_of(1, "L", BACKEND_LEASE), BACKEND_BUSY);
    ck_assert_int_eq(result_of(1, "M", BACKEND_LEASE), BACKEND_OK);
}
END_TEST

static bool on_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    (void)name, (void)ticket, (void)meta, (void)content;
    ++*(unsigned *)arg;
    return false;
}

/* Its predecessor may not have relied on what it was granted. */
START_TEST(mount_that_starts_again_recovers_what_the_replica_has)
{
    unsigned found = 0;
    hosts_options.identity = "host";
    hosts_get(2, "L", HOSTS_LONG);
    hosts_close(2);
    hosts_mount(2);
    redis_server_pause(replica);
    backend_recover(hosts_mount(2), on_found, &found);
    ck_assert_uint_eq(found, 0);
    hosts_close(2);
    redis_server_resume(replica);
    hosts_mount(2);
    backend_recover(hosts_mount(2), on_found, &found);
    ck_assert_uint_eq(found, 1);
}
END_TEST

static Suite *wait_suite(void)
{
    const struct {
        const TTest *test;
        size_t times;
    } tests[] = {
        {who_is_granted_a_lock_finds_it_on_the_replica, 1},
        {nothing_is_granted_and_nothing_left_while_the_replica_stands_still, G_N_ELEMENTS(kinds)},
        {many_of_one_turn_are_confirmed_in_one, 1},
        {what_is_held_outlasts_a_short_halt_and_ends_with_its_term_in_a_long_one, 1},
        {who_is_handed_a_lock_has_it_when_the_replica_knows, 1},
        {break_that_the_replica_lacks_is_not_confirmed, 2},
        {conversion_that_the_replica_has_not_heard_of_is_undone, 1},
        {content_that_the_replica_has_not_is_not_set, 1},
        {rename_that_the_replica_has_not_heard_of_leaves_neither_name, 1},
        {pause_begins_when_the_replica_has_heard_of_it, 1},
        {mount_that_starts_again_recovers_what_the_replica_has, 1},
    };
    Suite *suite = suite_create("redis_wait");
    TCase *tcase = tcase_create("wait");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    for (size_t i = 0; i < G_N_ELEMENTS(tests); i++) {
        tcase_add_loop_test(tcase, tests[i].test, 0, (int)tests[i].times);
    }
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return check_main(wait_suite());
}
