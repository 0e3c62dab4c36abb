/* check_redis_failures: a Redis server that is away, is full or refuses.
 *
 * Requests of the mounts here take at most 0.8 s, replies 0.3 s; a long pause is longer than both, a short one shorter.
 */
#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"

enum { SHORT = 100, LONG = 1000 };

static struct backend_claim lease;

static void setup(void)
{
    hosts_setup();
    hosts_hurry();
    lease = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    hosts_until_up(0);
    hosts_until_up(1);
}

/* The server is there again, and has done what it was asked to. */
static void resume(void)
{
    redis_server_resume(hosts_server);
    for (unsigned i = 0; i < 2; i++) {
        hosts_until_up(i);
        hosts_stat(i, "elsewhere");
    }
}

/* --- what is in flight --- */

/* The server may carry out the old connection's request when it continues, whatever was reported. */
START_TEST(rename_of_unknown_outcome_leaves_one_name_or_none)
{
    struct hosts_record *record = hosts_get(0, "L", HOSTS_LONG);

    redis_server_pause(hosts_server);
    ck_assert_int_eq(hosts_rename(record, "M"), BACKEND_UNREACHABLE);
    hosts_pass(_i == 0 ? 0 : LONG);
    resume();
    HOSTS_UNTIL(record->ended || hosts_exists("h:L"));
    if (record->ended) {
        ck_assert_int_eq(record->why, BACKEND_LOST);
        HOSTS_UNTIL(!hosts_exists("h:L"));
    } else {
        hosts_release(record);
    }
    HOSTS_UNTIL(!hosts_exists("h:M"));
}
END_TEST

/* Another may have the old name as soon as the server continues: neither of the two is relied on or left there. */
START_TEST(rename_over_a_lease_of_unknown_outcome_gives_both_back)
{
    struct hosts_record *record = hosts_get(0, "L", HOSTS_LONG), *replaced = hosts_get(0, "M", HOSTS_LONG);

    redis_server_pause(hosts_server);
    ck_assert_int_eq(hosts_rename_over(record, "M", replaced), BACKEND_UNREACHABLE);
    ck_assert_uint_eq(record->ended, 1);
    ck_assert_int_eq(record->why, BACKEND_LOST);
    ck_assert_uint_eq(replaced->ended, 1);
    ck_assert_int_eq(replaced->why, BACKEND_LOST);
    resume();
    HOSTS_UNTIL(!hosts_exists("h:L") && !hosts_exists("h:M"));
}
END_TEST

static void convert(struct hosts_record *record, enum backend_mode mode, struct hosts_done *done)
{
    struct backend_claim claim = lease;
    claim.mode = mode;
    claim.user = record;
    backend_convert(hosts_mount(0), record->ticket, &claim, hosts_on_done, done);
}

/* A provisional second becomes a lease of a shorter term, which is over when the answer comes: another may hold. */
START_TEST(convert_that_is_answered_after_its_term_is_stale)
{
    struct backend_claim provisional = hosts_claim(BACKEND_PROVISIONAL, HOSTS_LONG);
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, 100);
    struct hosts_done first = {0}, done = {0};
    struct hosts_record *other = hosts_get(0, "M", HOSTS_LONG), *record = hosts_acquire(0, "L", &provisional);
    convert(other, BACKEND_SHARED, &first); /* the server has the script from then on */
    HOSTS_UNTIL(first.called);
    claim.user = record;
    redis_server_pause(hosts_server);
    backend_convert(hosts_mount(0), record->ticket, &claim, hosts_on_done, &done);
    hosts_pass(200);
    ck_assert(!done.called);
    resume();
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_STALE);
    HOSTS_UNTIL(record->ended && !hosts_exists("h:L"));
}
END_TEST

/* Released while another request is in flight: which, and for how long. */
enum { ACQUIRE, QUEUE, RENAME, CONVERT, RENEW, IN_FLIGHT };

START_TEST(release_behind_another_request_leaves_nothing)
{
    int what = _i / 2, pause = _i % 2 ? LONG : SHORT;
    struct hosts_record *record = what == ACQUIRE || what == QUEUE ? NULL : hosts_get(0, "L", HOSTS_LONG),
                        *other = NULL;
    struct hosts_done done = {0};
    struct backend_claim claim = lease;

    if (what == QUEUE)
        other = hosts_get(1, "L", HOSTS_LONG);
    redis_server_pause(hosts_server);
    claim.wait = what == QUEUE;
    if (!record) {
        record = hosts_request(0, "L", &claim);
    } else if (what == RENAME) {
        backend_rename(hosts_mount(0), record->ticket, "M", NULL, hosts_on_done, &done);
    } else if (what == CONVERT) {
        claim.mode = BACKEND_SHARED;
        claim.user = record;
        backend_convert(hosts_mount(0), record->ticket, &claim, hosts_on_done, &done);
    } else {
        struct backend_renewal renewal = {.ticket = record->ticket, .ttl = HOSTS_LONG, .due = HOSTS_LONG / 3};

        backend_renew(hosts_mount(0), &renewal, 1);
    }
    if (_i % 2)
        hosts_pass(50); /* it is sent before the release is */
    hosts_drop(record);
    hosts_pass(pause);
    resume();
    if (what == ACQUIRE || what == QUEUE)
        ck_assert_msg(!record->answered, "an acquire that was released is answered");
    if (what == RENAME || what == CONVERT)
        HOSTS_UNTIL(done.called);
    if (other) {
        HOSTS_UNTIL(hosts_stat(1, "L").waiters == 0);
        hosts_release(other);
    }
    HOSTS_UNTIL(!hosts_exists("h:L") && !hosts_exists("h:M"));
    ck_assert_int_eq(hosts_stat(1, "M").type, BACKEND_NOTHING);
    hosts_release(hosts_get(1, "L", HOSTS_LONG));
    hosts_release(hosts_get(1, "M", HOSTS_LONG));
}
END_TEST

/* --- full --- */

static struct hosts_record *sequence(unsigned mount, int64_t ttl)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, ttl);

    claim.sequence = claim.wait = true;
    return hosts_acquire(mount, "d/s-", &claim);
}

START_TEST(full_server_grants_nothing_new_and_goes_on_with_the_rest)
{
    struct backend_directory directory = {.width = 1};
    struct hosts_record *holder, *waiter, *next, *first, *second, *shared;
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, 900);

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    holder = hosts_get(0, "L", 900);
    waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, 900);
    next = hosts_queue(2, "L", BACKEND_SHARED, 900);
    claim.mode = BACKEND_SHARED;
    shared = hosts_acquire(0, "M", &claim);
    first = sequence(0, 900);
    second = sequence(1, 900);
    redis_server_do(hosts_server, "CONFIG SET maxmemory-policy noeviction");
    redis_server_do(hosts_server, "CONFIG SET maxmemory 1");
    ck_assert_int_eq(hosts_acquire(0, "N", &lease)->result, BACKEND_FULL);
    ck_assert(!hosts_exists("h:N"));
    hosts_pass(2000); /* terms and lives run out unless they are extended */
    ck_assert_msg(!holder->ended, "the holder's: %d", holder->why);
    ck_assert_msg(!shared->ended, "the shared holder's: %d", shared->why);
    ck_assert_msg(!first->ended, "the sequence's: %d", first->why);
    ck_assert_uint_eq(waiter->granted + next->granted + second->granted, 0);
    hosts_release(holder);
    HOSTS_UNTIL(waiter->granted);
    hosts_release(waiter);
    HOSTS_UNTIL(next->granted);
    hosts_release(first);
    HOSTS_UNTIL(second->granted);
    hosts_pass(1200);
    ck_assert_uint_eq(next->ended + second->ended, 0);
    hosts_release(second);
    hosts_release(next);
    hosts_release(shared);
    ck_assert(!hosts_exists("h:L") && !hosts_exists("h:M"));
    redis_server_do(hosts_server, "CONFIG SET maxmemory 0");
    hosts_get(0, "N", HOSTS_LONG);
}
END_TEST

static void on_content(void *arg, enum backend_result result, const struct backend_info *info)
{
    char **content = arg;
    gsize size = 0;
    const char *data = info->content ? g_bytes_get_data(info->content, &size) : NULL;

    ck_assert_int_eq(result, BACKEND_OK);
    *content = g_strndup(data ? data : "", size);
}

static void check_content(const char *expected)
{
    char *content = NULL;

    backend_stat(hosts_mount(1), "L", on_content, &content);
    HOSTS_UNTIL(content);
    ck_assert_str_eq(content, expected);
    g_free(content);
}

/* As where a lock's content goes on with another of its process; _i: it is alone. */
START_TEST(full_server_takes_what_nobody_would_hear_that_it_refused)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    struct backend_change change = {.set = BACKEND_SET_META | BACKEND_SET_CONTENT};
    struct hosts_done done = {0};
    struct hosts_record *record;

    claim.mode = _i ? BACKEND_EXCLUSIVE : BACKEND_SHARED;
    record = hosts_acquire(0, "L", &claim);
    if (!_i)
        hosts_acquire(0, "L", &claim);
    redis_server_do(hosts_server, "CONFIG SET maxmemory-policy noeviction");
    redis_server_do(hosts_server, "CONFIG SET maxmemory 1");
    change.meta = change.content = g_bytes_new_static("text", 4);
    backend_set(hosts_mount(0), record->ticket, &change, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_FULL);
    check_content("");
    backend_set(hosts_mount(0), record->ticket, &change, NULL, NULL);
    HOSTS_UNTIL(record->ticket->content);
    check_content("text");
    g_bytes_unref(change.content);
}
END_TEST

/* --- conversions --- */

static struct hosts_record *get_shared(int64_t ttl)
{
    struct backend_claim shared = hosts_claim(BACKEND_LEASE, ttl);

    shared.mode = BACKEND_SHARED;
    return hosts_acquire(0, "L", &shared);
}

/* Sent, not answered. */
static void begin_exclusive(struct hosts_record *record, struct hosts_done *done)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, record->ticket->ttl);

    claim.user = record;
    backend_convert(hosts_mount(0), record->ticket, &claim, hosts_on_done, done);
}

START_TEST(conversion_that_a_failed_server_lost_ends_what_was_converted)
{
    static const char shared_again[] = "for _, id in ipairs(redis.call('ZRANGE', 'lfs:o:h:L', 0, -1)) do "
                                       "local t = cmsgpack.unpack(redis.call('HGET', 'lfs:i:h:L', id)) t.x = 1 "
                                       "redis.call('HSET', 'lfs:i:h:L', id, cmsgpack.pack(t)) end "
                                       "redis.call('SET', 'h:L', 'leasefs:held', 'KEEPTTL') return 1";
    struct hosts_record *record = get_shared(HOSTS_LONG);
    struct backend_renewal renewal = {.ticket = record->ticket, .ttl = HOSTS_LONG};
    struct hosts_done done = {0};

    begin_exclusive(record, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
    ck_assert_int_eq(redis_server_do(hosts_server, "EVAL %s 0", shared_again), 1);
    backend_renew(hosts_mount(0), &renewal, 1);
    HOSTS_UNTIL(record->ended);
    ck_assert_int_eq(record->why, BACKEND_LOST);
    HOSTS_UNTIL(!hosts_exists("h:L"));
}
END_TEST

START_TEST(renewal_that_crosses_a_conversion_loses_nothing)
{
    struct hosts_record *record = get_shared(HOSTS_LONG);
    struct backend_renewal renewal = {.ticket = record->ticket, .ttl = HOSTS_LONG};
    struct hosts_done done = {0};

    if (_i == 0)
        backend_renew(hosts_mount(0), &renewal, 1);
    begin_exclusive(record, &done);
    if (_i == 1)
        backend_renew(hosts_mount(0), &renewal, 1);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
    hosts_pass(LONG);
    ck_assert_uint_eq(record->ended, 0);
    ck_assert(!hosts_is("h:L", "leasefs:held"));
    hosts_release(record);
}
END_TEST

/* --- ranges that are not what the mount believes --- */

/* A lock owner with 10 to 19 and 30 to 39, each exclusive. */
static struct hosts_record *get_ranges(void)
{
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);
    struct hosts_done done = {0};
    struct hosts_record *record;

    claim.lock_owner = 1;
    claim.start = 10;
    claim.end = 39;
    record = hosts_acquire(0, "L", &claim);
    ck_assert_int_eq(record->result, BACKEND_OK);
    backend_release_range(hosts_mount(0), record->ticket, 20, 29, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
    return record;
}

#define HEX(number) "'00000000000000" number "', "

START_TEST(renewal_ends_a_lock_owner_of_which_the_server_has_less)
{
    static const struct {
        const char *has;
        bool enough;
    } cases[] = {
        {HEX("0a") HEX("13") "0, " HEX("1e") HEX("27") "0", true},
        {HEX("00") HEX("ff") "0", true},
        {HEX("0a") HEX("0e") "0, " HEX("0f") HEX("13") "0, " HEX("1e") HEX("ff") "0", true},
        {HEX("0a") HEX("13") "0", false},
        {HEX("1e") HEX("27") "0", false},
        {HEX("0a") HEX("13") "0, " HEX("1e") HEX("26") "0", false},
        {HEX("0a") HEX("13") "0, " HEX("1f") HEX("27") "0", false},
        {HEX("0a") HEX("13") "1, " HEX("1e") HEX("27") "0", false},
        {HEX("0a") HEX("0e") "0, " HEX("10") HEX("13") "0, " HEX("1e") HEX("27") "0", false},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct hosts_record *record = get_ranges();
        struct backend_renewal renewal = {.ticket = record->ticket, .ttl = HOSTS_LONG};
        clock_ms deadline = record->ticket->deadline;
        char *script = g_strdup_printf("for _, id in ipairs(redis.call('ZRANGE', 'lfs:o:h:L', 0, -1)) do "
                                       "local t = cmsgpack.unpack(redis.call('HGET', 'lfs:i:h:L', id)) t.s = {%s} "
                                       "redis.call('HSET', 'lfs:i:h:L', id, cmsgpack.pack(t)) end return 1",
                                       cases[i].has);

        ck_assert_int_eq(redis_server_do(hosts_server, "EVAL %s 0", script), 1);
        hosts_pass(2);
        backend_renew(hosts_mount(0), &renewal, 1);
        HOSTS_UNTIL(record->ended || record->ticket->deadline > deadline);
        ck_assert_msg(!record->ended == cases[i].enough, "%s", cases[i].has);
        ck_assert_int_eq(record->why, record->ended ? BACKEND_LOST : record->why);
        if (!record->ended)
            hosts_release(record);
        HOSTS_UNTIL(!hosts_exists("h:L"));
        g_free(script);
    }
}
END_TEST

/* _i: the renewal is sent before, after, or when nobody knows whether a part was given back. */
START_TEST(renewal_that_crosses_a_change_of_ranges_loses_nothing)
{
    struct hosts_record *record = get_ranges();
    struct backend_renewal renewal = {.ticket = record->ticket, .ttl = HOSTS_LONG};
    struct hosts_done done = {0};

    if (_i == 2)
        redis_server_pause(hosts_server);
    if (_i == 0)
        backend_renew(hosts_mount(0), &renewal, 1);
    backend_release_range(hosts_mount(0), record->ticket, 30, 34, hosts_on_done, &done);
    if (_i == 1)
        backend_renew(hosts_mount(0), &renewal, 1);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, _i == 2 ? BACKEND_UNREACHABLE : BACKEND_OK);
    if (_i == 2) {
        redis_server_resume(hosts_server);
        hosts_until_up(0);
    }
    hosts_pass(LONG);
    ck_assert_uint_eq(record->ended, 0);
    hosts_release(record);
}
END_TEST

/* --- refusing --- */

START_TEST(server_that_became_a_replica_is_unreachable_until_it_is_none)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);

    redis_server_do(hosts_server, "REPLICAOF 127.0.0.1 1");
    ck_assert_int_eq(hosts_acquire(1, "M", &lease)->result, BACKEND_UNREACHABLE);
    redis_server_do(hosts_server, "REPLICAOF NO ONE");
    hosts_until_up(1);
    hosts_until_open(1);
    hosts_release(hosts_get(1, "M", HOSTS_LONG));
    ck_assert_uint_eq(holder->ended, 0);
    hosts_until_up(0);
    ck_assert_int_eq(hosts_release(holder), BACKEND_OK);
    ck_assert(!hosts_exists("h:L"));
}
END_TEST

static bool is_away(unsigned mount)
{
    struct backend_status status;
    bool away;

    backend_status(hosts_mount(mount), &status);
    away = status.away && strstr(status.why, "NOREPLICAS");
    ck_assert(away || !status.away);
    backend_status_clear(&status);
    return away;
}

START_TEST(server_with_too_few_replicas_is_away_until_it_has_them)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG), *requested;

    hosts_until_up(1);
    ck_assert(!is_away(1));
    redis_server_do(hosts_server, "CONFIG SET min-replicas-to-write 1");
    ck_assert_int_eq(hosts_acquire(1, "M", &lease)->result, BACKEND_UNREACHABLE);
    ck_assert(is_away(1));
    requested = hosts_request(1, "M", &lease);
    redis_server_do(hosts_server, "CONFIG SET min-replicas-to-write 0");
    HOSTS_UNTIL(requested->answered);
    ck_assert_int_eq(requested->result, BACKEND_OK);
    HOSTS_UNTIL(!is_away(1));
    hosts_release(requested);
    ck_assert_int_eq(hosts_release(holder), BACKEND_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_failures");
    TCase *tcase = tcase_create("failures"), *conversions = tcase_create("conversions");

    tcase_set_timeout(tcase, 40);
    tcase_add_checked_fixture(tcase, setup, hosts_teardown);
    tcase_add_loop_test(tcase, rename_of_unknown_outcome_leaves_one_name_or_none, 0, 2);
    tcase_add_test(tcase, rename_over_a_lease_of_unknown_outcome_gives_both_back);
    tcase_add_test(tcase, convert_that_is_answered_after_its_term_is_stale);
    tcase_add_loop_test(tcase, release_behind_another_request_leaves_nothing, 0, 2 * IN_FLIGHT);
    tcase_add_test(tcase, full_server_grants_nothing_new_and_goes_on_with_the_rest);
    tcase_add_loop_test(tcase, full_server_takes_what_nobody_would_hear_that_it_refused, 0, 2);
    tcase_add_test(tcase, server_that_became_a_replica_is_unreachable_until_it_is_none);
    tcase_add_test(tcase, server_with_too_few_replicas_is_away_until_it_has_them);
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(conversions, 40);
    tcase_add_checked_fixture(conversions, setup, hosts_teardown);
    tcase_add_test(conversions, conversion_that_a_failed_server_lost_ends_what_was_converted);
    tcase_add_test(conversions, renewal_ends_a_lock_owner_of_which_the_server_has_less);
    tcase_add_loop_test(conversions, renewal_that_crosses_a_change_of_ranges_loses_nothing, 0, 3);
    tcase_add_loop_test(conversions, renewal_that_crosses_a_conversion_loses_nothing, 0, 2);
    suite_add_tcase(suite, conversions);
    return check_main(suite);
}
