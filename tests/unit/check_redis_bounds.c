/* check_redis_bounds: what a mount of a Redis server refuses without a request, how much it keeps in memory at most,
 * and answers that come too late to be of use. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "backend/redis/private.h"
#include "tests/support/check_main.h"
#include "tests/support/relay.h"
#include "tests/unit/fake_redis.h"
#include "tests/unit/hosts_fixture.h"

static struct redis *mounted(unsigned mount)
{
    return (struct redis *)hosts_mount(mount);
}

/* --- keys --- */

START_TEST(template_of_keys_that_no_lock_can_have_is_refused)
{
    static const struct {
        const char *uri, *prefix, *key, *why; /* NULL: it is taken */
    } cases[] = {
        {"redis://127.0.0.1:1", NULL, "lock:n", "must contain {n}"},
        {"redis://127.0.0.1:1", "lfs:", NULL, "begin with lfs:"},
        {"redis://127.0.0.1:1", NULL, "lfs:{n}", "begin with lfs:"},
        {"redis://127.0.0.1:1", "lf", "s:{n}", "begin with lfs:"},
        {"redis://127.0.0.1:1", "x", "lfs:{n}", NULL},
        {"redis+cluster://127.0.0.1:1,127.0.0.1:2", NULL, NULL, "has no {TAG}"},
        {"redis+cluster://127.0.0.1:1,127.0.0.1:2", "{}:", NULL, "has no {TAG}"},
        {"redis+cluster://127.0.0.1:1,127.0.0.1:2", "{tag:", NULL, "has no {TAG}"},
        {"redis+cluster://127.0.0.1:1,127.0.0.1:2", "}{tag:", NULL, "has no {TAG}"},
        {"redis+cluster://127.0.0.1:1,127.0.0.1:2", "a{tag}:", NULL, NULL},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        struct redis_options options = {.prefix = cases[i].prefix, .key = cases[i].key, .seed = 1};
        struct backend *b = NULL;
        char error[512] = "";
        ck_assert_int_eq(redis_uri_parse(&options.conn.uri, cases[i].uri, error, sizeof error), 0);
        int result = redis_new(&options, &b, error, sizeof error);
        ck_assert_msg(result == (cases[i].why ? -EINVAL : 0), "%zu: %d, %s", i, result, error);
        ck_assert_msg(!cases[i].why || strstr(error, cases[i].why), "%zu: %s", i, error);
        ck_assert(!b == !!cases[i].why);
        backend_free(b);
        redis_uri_clear(&options.conn.uri);
    }
}
END_TEST

START_TEST(store_names_only_components_and_paths)
{
    char longest[256], longer[257], path[4200];
    memset(longest, 'x', sizeof longest);
    memset(longer, 'x', sizeof longer);
    memset(path, 'x', sizeof path);
    for (size_t i = 100; i < sizeof path; i += 100) {
        path[i] = '/';
    }
    longest[255] = longer[256] = path[sizeof path - 1] = '\0';
    ck_assert(remote_is_component("a") && remote_is_component("...") && remote_is_component(longest));
    ck_assert(!remote_is_component("") && !remote_is_component(longer) && !remote_is_component("a/b"));
    ck_assert(!remote_is_component(".") && !remote_is_component(".."));
    ck_assert(remote_is_path("a") && remote_is_path("a/b"));
    ck_assert(!remote_is_path("") && !remote_is_path("a//b") && !remote_is_path("../b/c") && !remote_is_path(path));
    ck_assert(remote_is_numbered("x-0123456789") && remote_is_numbered("-0123456789"));
    ck_assert(!remote_is_numbered("0123456789") && !remote_is_numbered("x_0123456789") &&
              !remote_is_numbered("x-012345678a"));
}
END_TEST

START_TEST(words_that_are_not_in_an_answer_are_nothing)
{
    char word[] = "12";
    redisReply text = {.type = REDIS_REPLY_STRING, .str = word, .len = 2}, number = {.type = REDIS_REPLY_INTEGER};
    redisReply *elements[] = {&text, &number};
    redisReply array = {.type = REDIS_REPLY_ARRAY, .elements = 2, .element = elements};
    number.integer = 7;
    ck_assert_str_eq(redis_text(&array, 0), "12");
    ck_assert_str_eq(redis_text(&array, 1), "");
    ck_assert_str_eq(redis_text(&array, 2), "");
    ck_assert_str_eq(redis_text(NULL, 0), "");
    ck_assert_str_eq(redis_text(&text, 0), "12");
    ck_assert_str_eq(redis_text(&text, 1), "");
    ck_assert_int_eq(redis_number(&array, 0), 12);
    ck_assert_int_eq(redis_number(&array, 1), 7);
    ck_assert_int_eq(redis_number(&number, 0), 7);
    ck_assert_int_eq(redis_number(&number, 1), 0);
    ck_assert_int_eq(redis_number(NULL, 0), 0);
}
END_TEST

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    ck_assert_int_eq(result, BACKEND_OK);
    *(int *)arg = (int)info->type;
}

static int type_of_test(const char *name, const struct backend_claim *claim)
{
    int type = -1;
    backend_test(hosts_mount(0), name, claim, on_known, &type);
    HOSTS_UNTIL(type >= 0);
    return type;
}

static void on_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    (void)entries, (void)count;
    *(int *)arg = (int)result;
}

static int list_result(const char *name)
{
    int result = -1;
    backend_list(hosts_mount(0), name, "", 10, on_listed, &result);
    HOSTS_UNTIL(result >= 0);
    return result;
}

static void on_reported(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    (void)result, (void)entries, (void)count;
    ++*(unsigned *)arg;
}

START_TEST(listing_that_is_pending_when_its_mount_ends_completes_for_nobody)
{
    unsigned record = 0;
    hosts_get(0, "a", HOSTS_LONG);
    redis_server_pause(hosts_server);
    backend_list(hosts_mount(0), "", "", 10, on_reported, &record);
    hosts_pass(50);
    hosts_close(0);
    redis_server_resume(hosts_server);
    ck_assert_int_eq(hosts_stat(1, "a").type, BACKEND_LOCK);
    ck_assert_uint_eq(record, 0);
}
END_TEST

static void on_never(void *arg, enum backend_result result)
{
    (void)arg, (void)result;
    ck_abort();
}

START_TEST(break_that_is_pending_when_its_mount_ends_completes_for_nobody)
{
    struct hosts_record *held = hosts_get(1, "a", HOSTS_LONG);
    hosts_until_up(0);
    redis_server_pause(hosts_server);
    backend_revoke(hosts_mount(0), "a", held->ticket->fence, on_never, NULL);
    backend_revoke(hosts_mount(0), "b", 0, on_never, NULL);
    hosts_pass(50);
    hosts_close(0);
    redis_server_resume(hosts_server);
    ck_assert_int_eq(hosts_stat(1, "c").type, BACKEND_NOTHING);
}
END_TEST

/* As many as are kept in mind, and one more. */
START_TEST(directories_beyond_65536_are_looked_up_again)
{
    const struct remote_directory seen = {.attributes = {.width = 1}};
    char name[16];
    redis_server_do(hosts_server, "HSET lfs:d:h:%s made x ttl 0 width 1", "d0");
    redis_server_do(hosts_server, "HSET lfs:d:h:%s made x ttl 0 width 1", "d65536");
    for (int i = 0; i < 65536; i++) {
        snprintf(name, sizeof name, "d%d", i);
        remote_directory_cache_add(&mounted(0)->remote, name, &seen);
    }
    ck_assert_int_eq(hosts_stat(0, "d65536").type, BACKEND_DIRECTORY);
    ck_assert_uint_eq(g_hash_table_size(mounted(0)->remote.directories), 1);
    ck_assert_int_eq(hosts_stat(0, "d0").type, BACKEND_DIRECTORY);
}
END_TEST

static enum backend_result remove_directory(const char *name)
{
    struct hosts_done done = {0};
    backend_rmdir(hosts_mount(0), name, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    return done.result;
}

START_TEST(root_is_a_directory_and_stays)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *held = hosts_get(0, "a", HOSTS_LONG);
    ck_assert_int_eq(hosts_acquire(0, "", &claim)->result, BACKEND_IS_DIRECTORY);
    ck_assert_int_eq(type_of_test("", &claim), BACKEND_NOTHING);
    ck_assert_int_eq(hosts_revoke(0, "", 0), BACKEND_IS_DIRECTORY);
    ck_assert_int_eq(hosts_rename(held, ""), BACKEND_IS_DIRECTORY);
    ck_assert_int_eq(remove_directory(""), BACKEND_INVALID);
    ck_assert_int_eq(hosts_stat(0, "").type, BACKEND_DIRECTORY);
    ck_assert_int_eq(hosts_stat(0, "a").type, BACKEND_LOCK);
}
END_TEST

/* It would be a side key of another lock. */
START_TEST(name_that_no_lock_can_have_is_none)
{
    static const char name[] = "lfs:i:a";
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    hosts_options.prefix = NULL;
    struct hosts_record *held = hosts_get(0, "a", HOSTS_LONG);
    ck_assert_int_eq(hosts_acquire(0, name, &claim)->result, BACKEND_INVALID);
    ck_assert_int_eq(type_of_test(name, &claim), BACKEND_NOTHING);
    ck_assert_int_eq(list_result(name), BACKEND_MISSING);
    ck_assert_int_eq(hosts_mkdir(0, name, NULL), BACKEND_INVALID);
    ck_assert_int_eq(hosts_revoke(0, name, 0), BACKEND_MISSING);
    ck_assert_int_eq(hosts_rename(held, name), BACKEND_INVALID);
    ck_assert_int_eq(hosts_release(held), BACKEND_OK);
    ck_assert(!hosts_exists("lfs:i:a"));
}
END_TEST

START_TEST(sequence_whose_names_would_be_too_long_is_refused)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    char longest[247], longer[248];
    memset(longest, 'x', sizeof longest);
    memset(longer, 'x', sizeof longer);
    longest[244] = longer[245] = '-';
    longest[245] = longer[246] = '\0';
    claim.sequence = claim.wait = true;
    ck_assert_int_eq(hosts_acquire(0, longer, &claim)->result, BACKEND_INVALID);
    ck_assert_int_eq(hosts_acquire(0, "job", &claim)->result, BACKEND_INVALID);
    ck_assert_int_eq(hosts_acquire(0, longest, &claim)->result, BACKEND_OK);
    ck_assert_int_eq(type_of_test(longest, &claim), BACKEND_NOTHING);
}
END_TEST

/* More than one request looks at, before those that there are. */
START_TEST(names_of_strangers_do_not_keep_a_lock_delay_from_locks)
{
    struct backend_directory directory = {.width = 1, .delay = 60000};
    hosts_options.prefix = NULL;
    struct hosts_record *held = hosts_get(0, "z", HOSTS_LONG);
    for (int i = 0; i < 200; i++) {
        redis_server_do(hosts_server, "ZADD lfs:l:lfs:/ 0 lfs:%03d", i);
    }
    ck_assert_int_eq(hosts_set_directory(0, "", &directory), BACKEND_OK);
    ck_assert_int_eq(hosts_revoke(1, "z", 0), BACKEND_OK);
    HOSTS_UNTIL(held->ended);
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    ck_assert_int_eq(hosts_acquire(0, "z", &claim)->result, BACKEND_BUSY); /* the delay runs */
}
END_TEST

/* --- how much is kept in mind --- */

enum { MANY = 1024 };

static bool is_gone(const char *name)
{
    return g_ptr_array_find_with_equal_func(hosts_gone, name, g_str_equal, NULL);
}

START_TEST(no_more_than_1024_names_are_watched_the_last_first)
{
    char name[16];
    struct hosts_record *first = hosts_get(0, "first", HOSTS_LONG), *second = hosts_get(0, "second", HOSTS_LONG);
    backend_watch(hosts_mount(1), "second");
    backend_watch(hosts_mount(1), "first");
    backend_watch(hosts_mount(1), "second"); /* again: it is the last now */
    redis_server_do(hosts_server, "EVAL %s 0",
                    "for i = 1, 1023 do redis.call('SET', 'h:n' .. i, 'theirs') end return 1");
    for (int i = 1; i < MANY; i++) {
        snprintf(name, sizeof name, "n%d", i);
        backend_watch(hosts_mount(1), name);
    }
    ck_assert_uint_eq(g_hash_table_size(mounted(1)->remote.watches), MANY);
    ck_assert(!remote_watches(&mounted(1)->remote, "first"));
    hosts_stat(1, "second"); /* behind what was asked of them */
    hosts_release(first);
    hosts_release(second);
    HOSTS_UNTIL(is_gone("second"));
    ck_assert(!is_gone("first"));
    ck_assert_uint_eq(hosts_gone->len, 1);
}
END_TEST

/* It has no key of its own. */
START_TEST(end_of_a_ticket_in_a_queue_is_reported_to_its_watcher)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    claim.sequence = claim.wait = true;
    struct hosts_record *first = hosts_acquire(0, "job-", &claim), *second = hosts_acquire(0, "job-", &claim);
    ck_assert_int_eq(first->result, BACKEND_OK);
    ck_assert_int_eq(second->result, BACKEND_QUEUED);
    backend_watch(hosts_mount(1), "job-0000000001"); /* which waits */
    hosts_stat(1, "job-0000000001");
    hosts_release(first);
    HOSTS_UNTIL(second->granted);
    hosts_pass(50);
    ck_assert_uint_eq(hosts_gone->len, 0);
    hosts_release(second);
    HOSTS_UNTIL(is_gone("job-0000000001"));
    ck_assert_uint_eq(hosts_gone->len, 1);
    backend_watch(hosts_mount(1), "job-0000000001"); /* there is none already */
    HOSTS_UNTIL(hosts_gone->len == 2);
}
END_TEST

/* --- what comes too late --- */

static void take_longer_than_the_term(void *arg, GString *piece)
{
    if (strstr(piece->str, "granted")) {
        g_usleep(150000);
        ++*(int *)arg;
    }
}

/* Each time that it is granted, the answer is on its way for longer than the term. */
START_TEST(grant_that_always_comes_too_late_is_refused_and_given_back)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, 100);
    struct relay *proxy = relay_to(hosts_loop, redis_server_port(hosts_server));
    int late = 0;
    hosts_reach_by(relay_port(proxy));
    hosts_mount(0);
    relay_forge(proxy, take_longer_than_the_term, &late);
    struct hosts_record *record = hosts_acquire(0, "a", &claim);
    ck_assert_int_eq(record->result, BACKEND_UNREACHABLE);
    ck_assert_int_ge(late, 3);
    ck_assert_uint_eq(record->granted, 0);
    relay_forge(proxy, NULL, NULL);
    HOSTS_UNTIL(!hosts_exists("h:a"));
    hosts_get(0, "a", HOSTS_LONG);
    hosts_close(0);
    relay_end();
}
END_TEST

START_TEST(expired_lease_cannot_be_changed_before_its_end_is_reported)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    struct hosts_done converted = {0}, renamed = {0};
    struct hosts_record *record = hosts_get(0, "a", 100);
    struct backend_ticket *ticket = record->ticket;
    record->renews = false;
    while (clock_now() < ticket->deadline) {
        g_usleep(1000);
    }
    ck_assert_uint_eq(record->ended, 0);
    backend_convert(hosts_mount(0), ticket, &claim, hosts_on_done, &converted);
    backend_rename(hosts_mount(0), ticket, "b", NULL, hosts_on_done, &renamed);
    ck_assert(converted.called && renamed.called);
    ck_assert_int_eq(converted.result, BACKEND_STALE);
    ck_assert_int_eq(renamed.result, BACKEND_STALE);
    HOSTS_UNTIL(record->ended);
    ck_assert_int_eq(record->why, BACKEND_EXPIRED);
    ck_assert_int_eq(hosts_stat(1, "b").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(two_breaks_at_once_are_heard_each_for_itself)
{
    struct hosts_record *a = hosts_get(0, "a", HOSTS_LONG), *b = hosts_get(0, "b", HOSTS_LONG);
    struct hosts_done first = {0}, second = {0};
    hosts_mount(1);
    clock_ms before = clock_now();
    backend_revoke(hosts_mount(1), "a", 0, hosts_on_done, &first);
    backend_revoke(hosts_mount(1), "b", 0, hosts_on_done, &second);
    HOSTS_UNTIL(first.called && second.called);
    ck_assert_int_eq(first.result, BACKEND_OK);
    ck_assert_int_eq(second.result, BACKEND_OK);
    ck_assert_int_lt(clock_now() - before, 500); /* it is not what ends the wait for who does not hear */
    HOSTS_UNTIL(a->ended && b->ended);
    ck_assert_int_eq(a->why, BACKEND_BROKEN);
    ck_assert_int_eq(b->why, BACKEND_BROKEN);
}
END_TEST

/* Its user gives up before the answer; or so, and gives back what it had otherwise. */
START_TEST(claim_of_a_lock_owner_that_is_given_up_leaves_what_it_had_and_no_more)
{
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG), other = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    struct hosts_done unlocked = {0}, given_up = {0};
    claim.lock_owner = 5;
    claim.end = 9;
    struct hosts_record *had = hosts_acquire(0, "a", &claim);
    ck_assert_int_eq(had->result, BACKEND_OK);
    claim.start = 20;
    claim.end = 29;
    redis_server_pause(hosts_server);
    struct hosts_record *requested = hosts_request(0, "a", &claim);
    hosts_pass(50); /* it is sent */
    ck_assert(!requested->answered);
    struct backend_ticket *ticket = had->ticket;
    if (_i) {
        had->ticket = NULL;
        ck_assert(!backend_release_range(hosts_mount(0), ticket, 0, 9, hosts_on_done, &unlocked));
    }
    backend_release(hosts_mount(0), requested->ticket, hosts_on_done, &given_up);
    requested->ticket = NULL;
    redis_server_resume(hosts_server);
    HOSTS_UNTIL(given_up.called && (!_i || unlocked.called));
    ck_assert_int_eq(given_up.result, BACKEND_OK);
    claim.lock_owner = 6;
    ck_assert_int_eq(hosts_acquire(1, "a", &claim)->result, BACKEND_OK); /* beside it, or alone */
    ck_assert_int_eq(hosts_unlock(1, "a", 6, 20, 29), BACKEND_OK);
    ck_assert_int_eq(hosts_acquire(1, "a", &other)->result, _i ? BACKEND_OK : BACKEND_BUSY);
}
END_TEST

START_TEST(lock_owner_has_a_thousand_ranges_at_most_and_keeps_them)
{
    enum { RANGES = 1000 }; /* SEGMENTS_MAX of common.lua */
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG), other = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);
    claim.lock_owner = 5;
    other.lock_owner = 6;
    for (uint64_t i = 0; i <= RANGES; i++) {
        claim.start = 4 * i;
        claim.end = 4 * i + 2;
        ck_assert_int_eq(hosts_acquire(0, "a", &claim)->result, i < RANGES ? BACKEND_OK : BACKEND_UNREACHABLE);
    }
    ck_assert_int_eq(hosts_unlock(0, "a", 5, 1, 1), BACKEND_UNREACHABLE); /* would leave one more */
    other.start = other.end = 4 * (RANGES - 1);
    ck_assert_int_eq(hosts_acquire(1, "a", &other)->result, BACKEND_BUSY);
    other.start = other.end = 4 * RANGES;
    ck_assert_int_eq(hosts_acquire(1, "a", &other)->result, BACKEND_OK);
    claim.start = claim.end = 3; /* joins two ranges */
    ck_assert_int_eq(hosts_acquire(0, "a", &claim)->result, BACKEND_OK);
    ck_assert_int_eq(hosts_unlock(0, "a", 5, 0, 6), BACKEND_OK);
    ck_assert_int_eq(hosts_acquire(0, "a", &claim)->result, BACKEND_OK);
}
END_TEST

/* A server that has lost a queue, and not the number of its data, may have given the name since. */
START_TEST(place_in_a_lost_queue_has_another_name_where_its_own_was_given_again)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, 1500);
    struct backend_directory plain = {.width = 1};
    struct hosts_record *others[2], *waiter;
    char name[64];
    claim.sequence = claim.wait = true;
    ck_assert_int_eq(hosts_mkdir(0, "d", &plain), BACKEND_OK);
    hosts_acquire(0, "d/s-", &claim);
    waiter = hosts_acquire(0, "d/s-", &claim);
    ck_assert_int_eq(waiter->result, BACKEND_QUEUED);
    redis_server_do(hosts_server, "EVAL %s 0",
                    "redis.call('HDEL', 'lfs:d:h:d', 'sequence')"
                    "for k in ('otwilx'):gmatch('.') do redis.call('DEL', 'lfs:' .. k .. ':h:d') end return 1");
    claim.ttl = HOSTS_LONG;
    for (int i = 0; i < 2; i++) {
        others[i] = hosts_acquire(1, "d/s-", &claim);
        ck_assert(backend_ticket_name(hosts_mount(1), others[i]->ticket, name, sizeof name));
        ck_assert_str_eq(name, i == 0 ? "d/s-0000000000" : "d/s-0000000001");
    }
    do {
        hosts_turn();
        ck_assert(waiter->ticket && backend_ticket_name(hosts_mount(0), waiter->ticket, name, sizeof name));
    } while (strcmp(name, "d/s-0000000002") != 0);
    hosts_release(others[0]);
    hosts_release(others[1]);
    HOSTS_UNTIL(waiter->granted);
}
END_TEST

/* They would be others': no mount gives so many away without using them. */
START_TEST(sequence_of_which_a_thousand_numbers_are_taken_is_refused_and_goes_on_after_them)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, HOSTS_LONG);
    struct backend_directory plain = {.width = 1};
    claim.sequence = claim.wait = true;
    ck_assert_int_eq(hosts_mkdir(0, "d", &plain), BACKEND_OK);
    struct hosts_record *held = hosts_acquire(0, "d/job-", &claim);
    ck_assert_int_eq(held->result, BACKEND_OK);
    redis_server_do(hosts_server, "EVAL %s 0",
                    "for i = 1, 1500 do redis.call('ZADD', 'lfs:l:h:d', 0, ('job-%010d'):format(i)) end return 1");
    ck_assert_int_eq(hosts_acquire(0, "d/job-", &claim)->result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(redis_server_do(hosts_server, "ZCARD lfs:o:h:d"), 1);
    struct hosts_record *next = hosts_acquire(0, "d/job-", &claim);
    ck_assert_int_eq(next->result, BACKEND_QUEUED);
    ck_assert_int_eq(hosts_stat(1, "d/job-0000001501").type, BACKEND_LOCK);
    hosts_release(held);
    HOSTS_UNTIL(next->granted);
}
END_TEST

/* --- what was held before --- */

static GString *found_names;

static bool on_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    (void)arg, (void)ticket, (void)meta, (void)content;
    g_string_append_printf(found_names, "%s;", name);
    return false;
}

START_TEST(notes_of_leases_that_cannot_be_are_passed_over)
{
    static const char *const notes[] = {"theirs",
                                        "0123456789abcdef0123456789abcdef n",
                                        "short n a",
                                        "0123456789abcdef0123456789abcdef s q",
                                        "0123456789abcdef0123456789abcdef n a//b",
                                        "0123456789abcdef0123456789abcdef n lfs:i:a",
                                        "0123456789abcdef0123456789abcdef n a",
                                        "0123456789abcdef0123456789abcdeX n a"};
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "me", -1);
    char *key = g_strdup_printf("lfs:m:%.32s", digest);
    found_names = g_string_new(NULL);
    hosts_options.prefix = NULL;
    hosts_options.identity = "me";
    hosts_get(0, "a", HOSTS_LONG);
    ck_assert_int_eq(redis_server_do(hosts_server, "SCARD %s", key), 2); /* with '', by which it is kept */
    for (size_t i = 0; i < G_N_ELEMENTS(notes); i++) {
        ck_assert_int_eq(redis_server_do(hosts_server, "SADD %s %s", key, notes[i]), 1);
    }
    hosts_close(0);
    backend_recover(hosts_mount(0), on_found, NULL);
    ck_assert_str_eq(found_names->str, "a;");
    g_string_free(found_names, TRUE);
    g_free(key);
    g_free(digest);
}
END_TEST

/* More than one listing returns; of a sequence also one that waits. */
START_TEST(leases_of_many_parts_are_found_again)
{
    enum { LEASES = 600 };
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    char name[16];
    found_names = g_string_new(NULL);
    hosts_options.identity = "me";
    for (int i = 0; i < LEASES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        hosts_get(0, name, HOSTS_LONG);
    }
    claim.sequence = claim.wait = true;
    ck_assert_int_eq(hosts_acquire(0, "job-", &claim)->result, BACKEND_OK);
    ck_assert_int_eq(hosts_acquire(0, "job-", &claim)->result, BACKEND_QUEUED);
    ck_assert_int_eq(hosts_mkdir(0, "q", NULL), BACKEND_OK);
    ck_assert_int_eq(hosts_acquire(0, "q/job-", &claim)->result, BACKEND_OK);
    hosts_close(0);
    backend_recover(hosts_mount(0), on_found, NULL);
    char **names = g_strsplit(found_names->str, ";", -1);
    ck_assert_uint_eq(g_strv_length(names), LEASES + 3 + 1); /* and what is behind the last */
    unsigned tickets = 0;
    for (char **found = names; *found; found++) {
        tickets += strstr(*found, "job-") != NULL;
    }
    ck_assert_uint_eq(tickets, 3);
    g_strfreev(names);
    g_string_free(found_names, TRUE);
}
END_TEST

/* As a Sentinel says. */
START_TEST(status_shows_the_master_that_was_named)
{
    char *hosts[] = {(char *)"127.0.0.1", NULL}, *port = g_strdup_printf("%u", redis_server_port(hosts_server));
    char *answer = g_strdup_printf("*2\r\n$9\r\n127.0.0.1\r\n$%zu\r\n%s\r\n", strlen(port), port);
    char *master = g_strdup_printf("master: 127.0.0.1:%s", port);
    struct fake_redis *sentinel = fake_redis_new(hosts_loop);
    uint16_t ports[] = {fake_redis_port(sentinel)};
    fake_redis_rule(sentinel, "SENTINEL GET-MASTER-ADDR-BY-NAME locks", answer, FAKE_REDIS_ALWAYS);
    hosts_options.conn.uri =
        (struct redis_uri){.kind = REDIS_SENTINEL, .hosts = hosts, .ports = ports, .name = (char *)"locks"};
    struct backend_status status;
    backend_status(hosts_mount(0), &status);
    ck_assert(g_ptr_array_find_with_equal_func(status.details, master, g_str_equal, NULL));
    backend_status_clear(&status);
    hosts_close(0);
    fake_redis_free(sentinel);
    g_free(master);
    g_free(answer);
    g_free(port);
}
END_TEST

/* --- a full server, a late request, a newer format --- */

/* A place in the queue of d; it must have that name. */
static struct hosts_record *take_place(unsigned mount, int64_t ttl, enum backend_result result, const char *name)
{
    struct backend_claim claim = hosts_claim(BACKEND_FLOCK, ttl);
    struct hosts_record *record;
    char given[64];

    claim.sequence = claim.wait = true;
    record = hosts_acquire(mount, "d/s-", &claim);
    ck_assert_int_eq(record->result, result);
    ck_assert(backend_ticket_name(hosts_mount(mount), record->ticket, given, sizeof(given)));
    ck_assert_str_eq(given, name);
    return record;
}

START_TEST(place_in_a_queue_is_renewed_by_a_full_server)
{
    enum { TTL = 1500 };
    struct backend_directory directory = {.width = 1};
    struct hosts_record *record;
    clock_ms begun;

    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    record = take_place(0, TTL, BACKEND_OK, "d/s-0000000000");
    redis_server_do(hosts_server, "CONFIG SET maxmemory 1");
    begun = clock_now();
    while (clock_now() - begun < 2 * TTL) {
        struct backend_renewal renewal = {.ticket = record->ticket, .ttl = TTL};

        ck_assert_msg(record->ended == 0, "lost after %d ms", (int)(clock_now() - begun));
        backend_renew(hosts_mount(0), &renewal, 1);
        hosts_pass(TTL / 3);
    }
    ck_assert_uint_eq(record->ended, 0);
}
END_TEST

/* Its close has been answered by then.  Alone, and where another waits; a new content finds no room. */
START_TEST(what_is_undecided_becomes_a_lease_or_a_handles_lock_on_a_full_server)
{
    enum { TTL = 1500 };
    bool waited_for = _i & 1;
    struct backend_claim becomes = hosts_claim(_i & 2 ? BACKEND_FLOCK : BACKEND_LEASE, HOSTS_LONG),
                         provisional = hosts_claim(BACKEND_PROVISIONAL, TTL);
    struct hosts_done done = {0}, written = {0};
    struct hosts_record *record = hosts_acquire(0, "L", &provisional);

    ck_assert_int_eq(record->result, BACKEND_OK);
    if (waited_for) {
        hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    }
    redis_server_do(hosts_server, "CONFIG SET maxmemory 1");
    becomes.user = record;
    if (!waited_for) {
        becomes.content = g_bytes_new_static("some text", strlen("some text"));
        backend_convert(hosts_mount(0), record->ticket, &becomes, hosts_on_done, &written);
        HOSTS_UNTIL(written.called);
        ck_assert_int_eq(written.result, BACKEND_FULL);
        g_clear_pointer(&becomes.content, g_bytes_unref);
    }
    backend_convert(hosts_mount(0), record->ticket, &becomes, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
    hosts_pass(TTL + TTL / 3);
    ck_assert_uint_eq(record->ended, 0);
    ck_assert_int_eq(hosts_stat(2, "L").kind, becomes.kind);
}
END_TEST

static struct hosts_record *take_range(unsigned mount, uint64_t lock_owner)
{
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);
    claim.lock_owner = lock_owner;
    claim.start = 10;
    claim.end = 19;
    return hosts_acquire(mount, "R", &claim);
}

START_TEST(request_of_a_connection_that_was_given_up_is_not_done_late)
{
    struct relay *proxy = relay_to(hosts_loop, redis_server_port(hosts_server));
    hosts_reach_by(relay_port(proxy));
    ck_assert_int_eq(take_range(0, 1)->result, BACKEND_OK);
    relay_hold_back(proxy, "EVALSHA");
    ck_assert_int_eq(hosts_unlock(0, "R", 1, 10, 19), BACKEND_OK);
    ck_assert_int_eq(take_range(0, 1)->result, BACKEND_OK);
    relay_forward_held(proxy);
    hosts_pass(100);
    hosts_reach_by(0);
    ck_assert_int_eq(take_range(1, 2)->result, BACKEND_BUSY);
    hosts_close(0);
    relay_end();
}
END_TEST

/* The server is busy with a script, until the claim is given up. */
START_TEST(claim_that_was_refused_for_the_time_being_and_given_up_is_not_made)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    redisContext *context, *second;
    struct hosts_record *record;

    hosts_until_up(0);
    redis_server_do(hosts_server, "CONFIG SET lua-time-limit 1");
    context = redisConnectUnix(redis_server_socket(hosts_server));
    second = redisConnectUnix(redis_server_socket(hosts_server));
    ck_assert(context && !context->err && second && !second->err);
    redisAppendCommand(context, "EVAL %s 0", "while true do end");
    for (int done = 0; !done;)
        ck_assert_int_eq(redisBufferWrite(context, &done), REDIS_OK);
    hosts_pass(20);
    record = hosts_request(0, "L", &claim);
    hosts_pass(20);
    freeReplyObject(redisCommand(second, "SCRIPT KILL"));
    hosts_drop(record);
    hosts_pass(200);
    ck_assert(!hosts_exists("h:L"));
    redisFree(context);
    redisFree(second);
}
END_TEST

START_TEST(mount_that_meets_a_higher_format_when_it_connects_again_stays_away)
{
    struct backend_status status;
    hosts_until_up(1);
    redis_server_do(hosts_server, "HSET lfs:s:lfs:h:/ format %s", "2 9.9.9 hostb");
    redis_server_do(hosts_server, "CLIENT KILL TYPE normal SKIPME yes");
    hosts_pass(1000);
    backend_status(hosts_mount(1), &status);
    ck_assert(status.away);
    ck_assert_msg(strstr(status.why, "format version 2 of leasefs 9.9.9 on hostb") != NULL, "%s", status.why);
    backend_status_clear(&status);
    redis_server_do(hosts_server, "HSET lfs:s:lfs:h:/ format %s", "1 9.9.9 hostb");
    hosts_until_up(1);
}
END_TEST

/* --- a clock that is slow by 1 %, as much as is promised --- */

static bool slow;

clock_ms __real_clock_now(void);
clock_ms __wrap_clock_now(void);

clock_ms __wrap_clock_now(void)
{
    clock_ms now = __real_clock_now();
    return slow ? now - now / 100 : now;
}

static void setup_slow(void)
{
    slow = true;
    hosts_setup();
}

START_TEST(slow_clock_relies_on_no_lock_for_longer_than_the_server_has_it)
{
    struct hosts_record *record = hosts_get(0, "L", HOSTS_LONG);
    for (int i = 0; i < 3; i++) {
        int64_t kept = redis_server_do(hosts_server, "PTTL h:L"), left = record->ticket->deadline - clock_now();
        ck_assert_int_le(left * 100 / 99, kept);
        ck_assert_int_ge(left, kept - kept / 40); /* and for not much less */
        backend_renew(hosts_mount(0), &(struct backend_renewal){.ticket = record->ticket, .ttl = HOSTS_LONG}, 1);
        hosts_pass(300);
    }
}
END_TEST

static Suite *bounds_suite(void)
{
    Suite *suite = suite_create("bounds of a mount of Redis");
    TCase *by_itself = tcase_create("alone"), *tcase = tcase_create("mounts");

    tcase_add_test(by_itself, template_of_keys_that_no_lock_can_have_is_refused);
    tcase_add_test(by_itself, store_names_only_components_and_paths);
    tcase_add_test(by_itself, words_that_are_not_in_an_answer_are_nothing);
    suite_add_tcase(suite, by_itself);

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, hosts_setup, hosts_teardown);
    tcase_add_test(tcase, root_is_a_directory_and_stays);
    tcase_add_test(tcase, listing_that_is_pending_when_its_mount_ends_completes_for_nobody);
    tcase_add_test(tcase, break_that_is_pending_when_its_mount_ends_completes_for_nobody);
    tcase_add_test(tcase, directories_beyond_65536_are_looked_up_again);
    tcase_add_test(tcase, name_that_no_lock_can_have_is_none);
    tcase_add_test(tcase, sequence_whose_names_would_be_too_long_is_refused);
    tcase_add_test(tcase, names_of_strangers_do_not_keep_a_lock_delay_from_locks);
    tcase_add_test(tcase, no_more_than_1024_names_are_watched_the_last_first);
    tcase_add_test(tcase, end_of_a_ticket_in_a_queue_is_reported_to_its_watcher);
    tcase_add_test(tcase, grant_that_always_comes_too_late_is_refused_and_given_back);
    tcase_add_test(tcase, expired_lease_cannot_be_changed_before_its_end_is_reported);
    tcase_add_test(tcase, two_breaks_at_once_are_heard_each_for_itself);
    tcase_add_loop_test(tcase, claim_of_a_lock_owner_that_is_given_up_leaves_what_it_had_and_no_more, 0, 2);
    tcase_add_test(tcase, lock_owner_has_a_thousand_ranges_at_most_and_keeps_them);
    tcase_add_test(tcase, place_in_a_lost_queue_has_another_name_where_its_own_was_given_again);
    tcase_add_test(tcase, sequence_of_which_a_thousand_numbers_are_taken_is_refused_and_goes_on_after_them);
    tcase_add_test(tcase, notes_of_leases_that_cannot_be_are_passed_over);
    tcase_add_test(tcase, leases_of_many_parts_are_found_again);
    tcase_add_test(tcase, place_in_a_queue_is_renewed_by_a_full_server);
    tcase_add_loop_test(tcase, what_is_undecided_becomes_a_lease_or_a_handles_lock_on_a_full_server, 0, 4);
    tcase_add_test(tcase, request_of_a_connection_that_was_given_up_is_not_done_late);
    tcase_add_test(tcase, claim_that_was_refused_for_the_time_being_and_given_up_is_not_made);
    tcase_add_test(tcase, mount_that_meets_a_higher_format_when_it_connects_again_stays_away);
    suite_add_tcase(suite, tcase);

    TCase *slowly = tcase_create("slow clock");
    tcase_add_checked_fixture(slowly, setup_slow, hosts_teardown);
    tcase_add_test(slowly, slow_clock_relies_on_no_lock_for_longer_than_the_server_has_it);
    suite_add_tcase(suite, slowly);

    TCase *named = tcase_create("named");
    tcase_add_checked_fixture(named, hosts_setup, hosts_teardown);
    tcase_add_test(named, status_shows_the_master_that_was_named);
    suite_add_tcase(suite, named);
    return suite;
}

int main(void)
{
    if (!redis_server_exists()) {
        puts("1..0 # skip there is no redis-server");
        return 0;
    }
    return check_main(bounds_suite());
}
