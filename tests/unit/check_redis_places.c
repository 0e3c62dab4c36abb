/* check_redis_places: names, keys, terms and identities, as several mounts of a
 * Redis server see them.
 */
#include <errno.h>
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"

static struct backend_claim lease;

static void setup(void)
{
    hosts_setup();
    lease = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
}

static bool is_cluster_ready(void)
{
    return redis_server_do(hosts_server, "EVAL %s 0",
                           "return redis.call('CLUSTER', 'INFO'):find('cluster_state:ok') and 1 or 0") == 1;
}

/* The server is a whole Redis Cluster by itself. */
static void setup_cluster(void)
{
    static const char *const arguments[] = {"--cluster-enabled", "yes", NULL};

    hosts_setup_with(arguments);
    redis_server_do(hosts_server, "CLUSTER ADDSLOTSRANGE 0 16383");
    HOSTS_UNTIL(is_cluster_ready());
    lease = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
}

/* --- names that would be keys of ours --- */

/* Nothing can be done with it, and it is not there, whatever the server has. */
static void refuse_name(unsigned mount, const char *name)
{
    struct backend_directory directory = {.width = 1};
    struct backend_claim handle = hosts_claim(BACKEND_FLOCK, HOSTS_LONG), ticket = lease;
    char *prefix = g_strconcat(name, "-", NULL);
    struct hosts_record *own = hosts_get(mount, "own", HOSTS_LONG);

    handle.wait = true;
    ticket.sequence = true;
    ck_assert_int_eq(hosts_acquire(mount, name, &lease)->result, BACKEND_INVALID);
    ck_assert_int_eq(hosts_acquire(mount, name, &handle)->result, BACKEND_INVALID);
    if (!g_str_has_suffix(name, "}"))
        ck_assert_int_eq(hosts_acquire(mount, prefix, &ticket)->result, BACKEND_INVALID);
    ck_assert_int_eq(hosts_mkdir(mount, name, &directory), BACKEND_INVALID);
    ck_assert_int_eq(hosts_set_directory(mount, name, &directory), BACKEND_INVALID);
    ck_assert_int_eq(hosts_rename(own, name), BACKEND_INVALID);
    ck_assert_int_eq(hosts_stat(mount, name).type, BACKEND_NOTHING);
    ck_assert_int_eq(hosts_revoke(mount, name, 0), BACKEND_MISSING);
    hosts_release(own);
    g_free(prefix);
}

START_TEST(name_that_would_be_a_key_of_ours_is_refused)
{
    static const char *const bad[] = {"lfs:f:build", "lfs:t:build", "lfs:o:build", "lfs:d:build",
                                      "lfs:d:lfs:/", "lfs:m:0123",  "lfs:",        "lfs:f:private/x"};
    struct hosts_record *build;

    hosts_options.prefix = NULL;
    build = hosts_get(0, "build", HOSTS_LONG);
    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++)
        refuse_name(1, bad[i]);
    hosts_release(build);
    hosts_release(hosts_get(1, "build", HOSTS_LONG));
    hosts_options.prefix = "l"; /* what counts is the key */
    hosts_options.key = "f{n}";
    refuse_name(2, "s:f:build");
    hosts_release(hosts_get(2, "lfs:f:build", HOSTS_LONG));
}
END_TEST

START_TEST(names_that_differ_in_braces_are_different_locks)
{
    static const char *const others[] = {"{private/x}", "{private/x", "private/x}"};
    struct backend_directory directory = {.width = 1};
    struct hosts_record *hidden, *waiter, *other[G_N_ELEMENTS(others)];

    hosts_options.prefix = NULL;
    ck_assert_int_eq(hosts_mkdir(0, "private", &directory), BACKEND_OK);
    ck_assert_int_eq(hosts_mkdir(1, "{private", &directory), BACKEND_OK);
    hidden = hosts_get(0, "private/x", HOSTS_LONG);
    waiter = hosts_queue(0, "private/x", BACKEND_EXCLUSIVE, HOSTS_LONG);
    for (size_t i = 0; i < G_N_ELEMENTS(others); i++) {
        other[i] = hosts_get(1, others[i], HOSTS_LONG);
        ck_assert_uint_eq(hosts_stat(0, others[i]).fence, other[i]->ticket->fence);
        ck_assert_uint_eq(hosts_stat(0, others[i]).waiters, 0);
        ck_assert_int_eq(hosts_revoke(1, others[i], 0), BACKEND_OK);
    }
    ck_assert_uint_eq(waiter->granted, 0);
    hosts_release(hidden);
    HOSTS_UNTIL(waiter->granted);
    hosts_release(waiter);
    ck_assert_int_eq(redis_server_do(hosts_server, "EXISTS private/x {private/x} lfs:o:private/x lfs:o:{private/x}"),
                     0);
}
END_TEST

START_TEST(prefix_under_which_all_names_would_be_keys_of_ours_is_refused)
{
    static const struct {
        const char *prefix, *key, *error;
    } bad[] = {
        {"lfs:", NULL, "begin with lfs:"}, {"lfs:app:", NULL, "begin with lfs:"}, {"l", "fs:{n}", "begin with lfs:"}};

    for (size_t i = 0; i < G_N_ELEMENTS(bad); i++) {
        struct backend *backend;
        char error[256] = "";

        hosts_options.prefix = bad[i].prefix;
        hosts_options.key = bad[i].key;
        ck_assert_int_eq(redis_new(&hosts_options, &backend, error, sizeof(error)), -EINVAL);
        ck_assert_msg(strstr(error, bad[i].error), "%s", error);
    }
}
END_TEST

START_TEST(name_is_not_the_root_of_the_mount_whose_prefix_it_is)
{
    static const char *const prefixes[] = {"app:", "app/", "app", "{app}"};
    struct backend_directory wide = {.width = 9, .ttl = 1234};

    for (unsigned i = 0; i < G_N_ELEMENTS(prefixes); i++) {
        char *name = g_strdup(prefixes[i]);

        if (g_str_has_suffix(name, "/"))
            name[strlen(name) - 1] = '\0';
        hosts_options.prefix = prefixes[i];
        hosts_until_up(2 + i);
        hosts_options.prefix = NULL;
        hosts_mkdir(1, name, &wide); /* may be refused */
        hosts_set_directory(1, name, &wide);
        ck_assert_msg(hosts_stat(2 + i, "").directory.width == 1, "%s", prefixes[i]);
        ck_assert_int_eq(hosts_set_directory(2 + i, "", &wide), BACKEND_OK);
        ck_assert_uint_eq(hosts_stat(2 + i, "").directory.width, 9);
        ck_assert_uint_eq(hosts_stat(1, "").directory.width, 1);
        g_free(name);
    }
}
END_TEST

/* --- keys --- */

START_TEST(mounts_of_different_prefixes_do_not_see_each_other)
{
    struct hosts_record *waiter;

    hosts_until_up(0);
    hosts_options.prefix = "other:";
    hosts_until_up(1);
    hosts_get(0, "L", HOSTS_LONG);
    ck_assert_int_eq(hosts_stat(1, "L").type, BACKEND_NOTHING);
    hosts_get(1, "L", HOSTS_LONG);
    waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    ck_assert_int_eq(hosts_revoke(0, "L", 0), BACKEND_OK);
    hosts_pass(50);
    ck_assert_uint_eq(waiter->granted, 0);
    ck_assert(!hosts_exists("h:L"));
    ck_assert(hosts_exists("other:L"));
}
END_TEST

START_TEST(template_makes_the_keys_of_another_client)
{
    struct hosts_record *waiter, *holder;

    hosts_options.prefix = NULL;
    hosts_options.key = "redlock:{app}:{n}:lock";
    redis_server_do(hosts_server, "SET redlock:{app}:L:lock theirs");
    waiter = hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_pass(50);
    redis_server_do(hosts_server, "DEL redlock:{app}:L:lock");
    HOSTS_UNTIL(waiter->granted);
    ck_assert(hosts_exists("redlock:{app}:L:lock"));
    ck_assert(hosts_exists("lfs:o:redlock:{app}:L:lock"));
    holder = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_release(waiter);
    HOSTS_UNTIL(holder->granted);
}
END_TEST

/* --- fencing --- */

START_TEST(fencing_tokens_are_whole_numbers_to_the_last_digit)
{
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    uint64_t fence = holder->ticket->fence;
    char number[24];

    ck_assert_uint_gt(fence, UINT64_C(1000000000000000));
    g_snprintf(number, sizeof(number), "%" G_GUINT64_FORMAT, fence);
    ck_assert_uint_eq(hosts_stat(1, "L").fence, fence);
    ck_assert_uint_eq(hosts_acquire(1, "L", &lease)->holder.fence, fence);
    ck_assert_msg(hosts_is("lfs:f:h:L", number), "not kept as %s", number);
    ck_assert_int_eq(hosts_revoke(1, "L", fence - 1), BACKEND_STALE);
    ck_assert_int_eq(hosts_revoke(1, "L", fence), BACKEND_OK);
    HOSTS_UNTIL(holder->ended);
    ck_assert_int_eq(holder->why, BACKEND_RELEASED);
    /* a number that is far ahead, as of a server whose clock was */
    redis_server_do(hosts_server, "SET lfs:f:h:L 8999999999999998");
    holder = hosts_get(1, "L", HOSTS_LONG);
    ck_assert_uint_eq(holder->ticket->fence, UINT64_C(8999999999999999));
    ck_assert_uint_eq(hosts_stat(0, "L").fence, UINT64_C(8999999999999999));
    hosts_release(holder);
    ck_assert_uint_eq(hosts_get(0, "L", HOSTS_LONG)->ticket->fence, UINT64_C(9000000000000000));
}
END_TEST

#define WEEK (7 * 24 * 3600 * INT64_C(1000))

START_TEST(number_is_kept_for_a_week_from_when_it_was_given)
{
    for (unsigned i = 0; i < 3; i++) {
        hosts_release(hosts_get(i % 2, "L", HOSTS_LONG));
        ck_assert_int_gt(redis_server_do(hosts_server, "PTTL lfs:f:h:L"), WEEK);
    }
    redis_server_do(hosts_server, "SETRANGE lfs:f:h:L 0 1700000000000000"); /* as if that had been long ago */
    redis_server_do(hosts_server, "PEXPIRE lfs:f:h:L 1000000");
    struct hosts_record *holder = hosts_get(0, "L", HOSTS_LONG);
    ck_assert_int_gt(redis_server_do(hosts_server, "PTTL lfs:f:h:L"), WEEK);
    redis_server_do(hosts_server, "DEL lfs:f:h:L"); /* it has run out while the lock was held */
    hosts_release(holder);
    ck_assert_int_gt(redis_server_do(hosts_server, "PTTL lfs:f:h:L"), WEEK);
}
END_TEST

START_TEST(what_is_kept_of_a_mount_without_leases_runs_out)
{
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "me", -1);
    char *key = g_strdup_printf("lfs:m:h:%.32s", digest);

    hosts_close(0);
    hosts_options.identity = "me";
    for (unsigned i = 0; i < 3; i++) {
        hosts_release(hosts_get(0, "L", HOSTS_LONG));
        ck_assert_int_eq(redis_server_do(hosts_server, "SCARD %s", key), 1);
        ck_assert_int_gt(redis_server_do(hosts_server, "PTTL %s", key), WEEK);
    }
    redis_server_do(hosts_server, "FLUSHALL");
    hosts_pass(100); /* for the mounts' reports */
    hosts_until_open(0);
    hosts_get(0, "L", HOSTS_LONG);
    ck_assert_int_gt(redis_server_do(hosts_server, "PTTL %s", key), WEEK);
    g_free(key);
    g_free(digest);
}
END_TEST

/* The number of locks that the server has listed for the mount with this identity. */
static long long count_notes(const char *identity)
{
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, identity, -1);
    char *key = g_strdup_printf("lfs:m:h:%.32s", digest);
    long long notes =
        redis_server_do(hosts_server, "SCARD %s", key) - redis_server_do(hosts_server, "SISMEMBER %s %s", key, "");
    g_free(key);
    g_free(digest);
    return notes;
}

START_TEST(locks_that_end_leave_no_notes)
{
    struct backend_claim flock = hosts_claim(BACKEND_FLOCK, HOSTS_LONG), ticket = flock,
                         range = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);

    hosts_options.identity = "me";
    ticket.sequence = true;
    range.lock_owner = 5;
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(hosts_release(hosts_acquire(0, "L", &flock)), BACKEND_OK);
        ck_assert_int_eq(hosts_release(hosts_acquire(0, "s-", &ticket)), BACKEND_OK);
        for (range.start = 0; range.start < 100; range.start += 10) {
            range.end = range.start + 5;
            ck_assert_int_eq(hosts_acquire(0, "L", &range)->result, BACKEND_OK);
        }
        ck_assert_int_eq(count_notes("me"), 1);
        ck_assert_int_eq(hosts_unlock(0, "L", 5, 0, BACKEND_RANGE_MAX), BACKEND_OK);
        ck_assert_int_eq(count_notes("me"), 0);
    }
}
END_TEST

static GString *found_names;

static bool on_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    (void)arg, (void)meta, (void)content;
    ck_assert(ticket->held);
    ck_assert_int_eq(ticket->kind, strcmp(name, "flock") == 0 ? BACKEND_FLOCK : BACKEND_LEASE);
    g_string_append_printf(found_names, "%s;", name);
    return false;
}

static const char *recover(unsigned mount)
{
    hosts_until_up(mount);
    g_string_truncate(found_names, 0);
    backend_recover(hosts_mount(mount), on_found, NULL);
    return found_names->str;
}

/* --- the lock-delay --- */

/* The server ends it in the script of another; its own mount gives it up a moment later. */
START_TEST(lock_delay_of_a_ticket_outlives_what_its_mount_gives_up)
{
    struct backend_directory directory = {.width = 1, .delay = 500};
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, 600), next = hosts_claim(BACKEND_LEASE, HOSTS_LONG);
    struct hosts_record *holder, *waiter;
    clock_ms requested;

    ck_assert_int_eq(hosts_mkdir(1, "d", &directory), BACKEND_OK);
    claim.sequence = next.sequence = true;
    next.wait = true;
    requested = clock_now();
    holder = hosts_acquire(0, "d/s-", &claim);
    ck_assert_int_eq(holder->result, BACKEND_OK);
    holder->renews = false;
    waiter = hosts_acquire(1, "d/s-", &next);
    ck_assert_int_eq(waiter->result, BACKEND_QUEUED);
    g_usleep((gulong)MAX(requested + 650 - clock_now(), 1) * 1000); /* now neither has looked at the time */
    hosts_request(1, "d/s-", &next);
    HOSTS_UNTIL(holder->ended && waiter->granted);
    ck_assert_int_ge(waiter->at - requested, 600 + 500);
}
END_TEST

/* _i: what comes too late, with the lock-delay: a renewal, a change, a conversion, a mount that starts again. */
START_TEST(lease_whose_term_is_over_is_not_revived_in_its_delay)
{
    struct backend_directory directory = {.width = 1, .delay = HOSTS_LONG};
    struct hosts_record *holder;
    struct hosts_done done = {0};
    struct backend_renewal renewal = {.ttl = HOSTS_LONG};

    found_names = g_string_new(NULL);
    hosts_options.identity = "host:/mnt/locks";
    ck_assert_int_eq(hosts_mkdir(1, "d", &directory), BACKEND_OK);
    holder = hosts_get(0, "d/L", HOSTS_LONG);
    /* the server's clock: what is left is the delay, or a little less */
    ck_assert_int_eq(redis_server_do(hosts_server, "PEXPIRE h:d/L %d", HOSTS_LONG - 1), 1);
    ck_assert_int_eq(hosts_stat(1, "d/L").type, BACKEND_NOTHING);
    if (_i == 3) {
        hosts_close(0);
        hosts_options.identity = "host:/mnt/locks";
        ck_assert_str_eq(recover(0), "");
    } else if (_i == 0) {
        renewal.ticket = holder->ticket;
        backend_renew(hosts_mount(0), &renewal, 1);
    } else if (_i == 1) {
        backend_set(hosts_mount(0), holder->ticket, &(struct backend_change){.set = BACKEND_SET_CONTENT}, hosts_on_done,
                    &done);
        HOSTS_UNTIL(done.called);
        ck_assert_int_eq(done.result, BACKEND_STALE);
    } else {
        lease.user = holder;
        backend_convert(hosts_mount(0), holder->ticket, &lease, hosts_on_done, &done);
        HOSTS_UNTIL(done.called);
        ck_assert_int_eq(done.result, BACKEND_STALE);
    }
    HOSTS_UNTIL(_i == 3 || holder->ended);
    ck_assert_int_eq(hosts_acquire(1, "d/L", &lease)->result, BACKEND_BUSY); /* the delay goes on */
    ck_assert_int_eq(hosts_stat(1, "d/L").type, BACKEND_NOTHING);
    g_string_free(found_names, TRUE);
}
END_TEST

/* Its mount dies, and nobody looks before its term is over: the key of the lock lasts as long as it should. */
START_TEST(lock_delay_that_is_set_later_outlives_a_holder_at_whom_nobody_looks)
{
    struct backend_directory directory = {.width = 1}, delayed = {.width = 1, .delay = HOSTS_LONG};
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, 600);
    clock_ms requested;

    if (_i)
        claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(hosts_mkdir(1, "d", &directory), BACKEND_OK);
    requested = clock_now();
    ck_assert_int_eq(hosts_acquire(0, "d/L", &claim)->result, BACKEND_OK);
    ck_assert_int_eq(hosts_set_directory(1, "d", &delayed), BACKEND_OK);
    hosts_close(0);
    hosts_pass(MAX(requested + 700 - clock_now(), 1));
    ck_assert_int_gt(redis_server_do(hosts_server, "PTTL h:d/L"), HOSTS_LONG / 2);
    ck_assert_int_eq(hosts_acquire(1, "d/L", &lease)->result, BACKEND_BUSY);
    ck_assert_int_eq(hosts_stat(1, "d/L").type, BACKEND_NOTHING);
}
END_TEST

/* More of them than one request tells. */
START_TEST(lock_delay_that_is_set_later_is_for_all_locks)
{
    struct backend_directory directory = {.width = 1}, delayed = {.width = 1, .delay = HOSTS_LONG};
    char name[16];

    ck_assert_int_eq(hosts_mkdir(1, "d", &directory), BACKEND_OK);
    for (int i = 0; i < 150; i++) {
        snprintf(name, sizeof name, "d/%d", i);
        hosts_get(0, name, HOSTS_LONG);
    }
    ck_assert_int_eq(hosts_set_directory(1, "d", &delayed), BACKEND_OK);
    for (int i = 0; i < 150; i++)
        ck_assert_int_gt(redis_server_do(hosts_server, "PTTL h:d/%d", i), HOSTS_LONG);
}
END_TEST

/* A waiter for a lock whose holder is gone gets it after the present delay. */
START_TEST(lock_delay_that_is_taken_back_keeps_nobody_waiting)
{
    struct backend_directory delayed = {.width = 1, .delay = HOSTS_LONG}, directory = {.width = 1};
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, 1500);
    struct hosts_record *waiter;

    if (_i)
        claim.mode = BACKEND_SHARED;
    ck_assert_int_eq(hosts_mkdir(1, "d", &delayed), BACKEND_OK);
    ck_assert_int_eq(hosts_acquire(0, "d/L", &claim)->result, BACKEND_OK);
    waiter = hosts_queue(1, "d/L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    ck_assert_int_eq(hosts_set_directory(1, "d", &directory), BACKEND_OK);
    hosts_close(0);
    HOSTS_UNTIL(waiter->granted);
}
END_TEST

START_TEST(ticket_whose_name_is_claimed_stays_in_the_list)
{
    struct backend_directory directory = {.width = 1};
    struct backend_claim claim = lease;

    ck_assert_int_eq(hosts_mkdir(1, "d", &directory), BACKEND_OK);
    claim.sequence = true;
    ck_assert_int_eq(hosts_acquire(0, "d/s-", &claim)->result, BACKEND_OK);
    ck_assert_int_eq(hosts_acquire(1, "d/s-0000000000", &lease)->result, BACKEND_BUSY);
    ck_assert_int_eq(redis_server_do(hosts_server, "ZCARD lfs:l:h:d"), 1);
}
END_TEST

/* One that queued again, with its old number, is let in with a new one: of the queue, whose server's clock was ahead.
 */
START_TEST(break_of_a_ticket_keeps_the_numbers_of_its_queue)
{
    struct backend_directory directory = {.width = 1};
    struct backend_claim claim = lease;
    struct hosts_record *waiter;
    uint64_t number;

    ck_assert_int_eq(hosts_mkdir(1, "d", &directory), BACKEND_OK);
    redis_server_do(hosts_server, "SET lfs:f:h:d 8000000000000000");
    claim.sequence = claim.wait = true;
    hosts_acquire(0, "d/s-", &claim);
    claim.ttl = 600; /* spoken for every 200 ms */
    waiter = hosts_acquire(1, "d/s-", &claim);
    number = waiter->ticket->fence;
    ck_assert_int_eq(redis_server_do(hosts_server, "EVAL %s 0",
                                     "local id = redis.call('ZRANGE', 'lfs:w:h:d', 0, 0)[1] "
                                     "return redis.call('ZADD', 'lfs:t:h:d', 1, id)"),
                     0);
    HOSTS_UNTIL(redis_server_do(hosts_server, "ZCOUNT lfs:t:h:d 1 1") == 0 && hosts_stat(0, "d").waiters == 1);
    ck_assert_int_eq(hosts_revoke(1, "d/s-0000000000", 0), BACKEND_OK);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_uint_gt(waiter->ticket->fence, number);
}
END_TEST

/* --- mounts that start again --- */

START_TEST(keys_of_a_prefix_with_a_tag_are_in_one_slot_and_leases_are_found_by_them)
{
    static const char elsewhere[] = "local n = 0 for _, key in ipairs(redis.call('KEYS', '*')) do "
                                    "if key:match('{(.-)}') ~= 'app' then n = n + 1 end end return n";
    struct backend_directory directory = {.width = 1};

    found_names = g_string_new(NULL);
    hosts_options.prefix = "{app}:";
    hosts_options.identity = "host:/mnt/locks";
    hosts_until_up(0);
    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    hosts_get(0, "d/L", HOSTS_LONG);
    hosts_get(0, "M", HOSTS_LONG);
    hosts_queue(1, "M", BACKEND_EXCLUSIVE, HOSTS_LONG);
    ck_assert_int_gt(redis_server_do(hosts_server, "DBSIZE"), 10);
    ck_assert_int_eq(redis_server_do(hosts_server, "EVAL %s 0", elsewhere), 0);
    hosts_close(0);
    ck_assert_uint_eq(strlen(recover(0)), strlen("d/L;M;"));
    g_string_free(found_names, TRUE);
}
END_TEST

static void on_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    struct hosts_done *done = arg;

    ck_assert_uint_eq(count, 4);
    ck_assert_str_eq(entries[0].name, "L");
    hosts_on_done(done, result);
}

/* A server of a Cluster refuses each script whose keys are in different slots. */
START_TEST(mount_of_a_prefix_with_a_tag_lives_in_one_slot_of_a_cluster)
{
    struct backend_directory directory = {.width = 1, .ttl = 1000};
    struct backend_claim claim = lease;
    struct hosts_record *holder, *waiter, *ticket;
    struct hosts_done listed = {0}, removed = {0};

    found_names = g_string_new(NULL);
    hosts_options.prefix = "{app}:";
    hosts_options.identity = "host:/mnt/locks";
    ck_assert_int_eq(hosts_mkdir(0, "d", &directory), BACKEND_OK);
    ck_assert_int_eq(hosts_mkdir(0, "d/{e}", &directory), BACKEND_OK);
    ck_assert_int_eq(hosts_set_directory(0, "", &directory), BACKEND_OK);
    hosts_options.identity = "another:/mnt/locks";
    hosts_until_up(1);
    hosts_options.identity = "host:/mnt/locks";
    holder = hosts_get(0, "d/L", HOSTS_LONG);
    waiter = hosts_queue(1, "d/L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    ck_assert_int_eq(hosts_rename(holder, "d/{M}"), BACKEND_OK);
    HOSTS_UNTIL(waiter->granted);
    ck_assert_int_eq(hosts_stat(1, "d/{M}").type, BACKEND_LOCK);
    claim.sequence = claim.wait = true;
    ticket = hosts_acquire(1, "d/s-", &claim);
    ck_assert_int_eq(ticket->result, BACKEND_OK);
    backend_list(hosts_mount(1), "d", "", 100, on_listed, &listed);
    HOSTS_UNTIL(listed.called);
    ck_assert_int_eq(listed.result, BACKEND_OK);
    ck_assert_int_eq(hosts_revoke(1, "d/s-0000000000", 0), BACKEND_OK);
    hosts_close(0);
    ck_assert_str_eq(recover(0), "d/{M};");
    ck_assert_int_eq(hosts_revoke(0, "d/{M}", 0), BACKEND_OK);
    hosts_release(waiter);
    backend_rmdir(hosts_mount(0), "d/{e}", hosts_on_done, &removed);
    HOSTS_UNTIL(removed.called);
    ck_assert_int_eq(removed.result, BACKEND_OK);
    g_string_free(found_names, TRUE);
}
END_TEST

START_TEST(leases_are_found_again_by_the_mount_of_the_same_identity)
{
    found_names = g_string_new(NULL);
    hosts_options.identity = "host:/mnt/locks";
    hosts_until_up(0);
    hosts_options.identity = "another:/mnt/locks";
    hosts_until_up(1);
    struct hosts_record *renamed = hosts_get(0, "old", HOSTS_LONG), *released = hosts_get(0, "released", HOSTS_LONG);
    ck_assert_int_eq(hosts_rename(renamed, "new\nname"), BACKEND_OK);
    hosts_release(released);
    hosts_get(1, "other", HOSTS_LONG);
    hosts_close(0);
    hosts_options.identity = "third:/mnt/locks";
    ck_assert_str_eq(recover(2), "");
    hosts_options.identity = "host:/mnt/locks";
    ck_assert_str_eq(recover(0), "new\nname;");
    g_string_free(found_names, TRUE);
}
END_TEST

START_TEST(recovered_lease_ends_when_another_takes_it)
{
    found_names = g_string_new(NULL);
    hosts_options.identity = "host:/mnt/locks";
    hosts_get(0, "L", HOSTS_LONG);
    hosts_close(0);
    ck_assert_str_eq(recover(0), "L;");
    redis_server_do(hosts_server, "DEL h:L");
    hosts_get(1, "L", HOSTS_LONG);
    HOSTS_UNTIL(backend_counts(hosts_mount(0)).locks == 0);
    g_string_free(found_names, TRUE);
}
END_TEST

START_TEST(lease_that_ran_out_is_not_found_again)
{
    struct hosts_record *record;

    found_names = g_string_new(NULL);
    hosts_options.identity = "host:/mnt/locks";
    record = hosts_get(0, "L", 300);
    ck_assert_int_eq(count_notes("host:/mnt/locks"), 1);
    hosts_close(0);
    HOSTS_UNTIL(!hosts_exists("h:L"));
    hosts_get(1, "L", HOSTS_LONG);
    hosts_close(1); /* of the same identity: this one is */
    ck_assert_str_eq(recover(0), "L;");
    ck_assert_ptr_null(record->ticket);
    g_string_free(found_names, TRUE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_places");
    TCase *tcase = tcase_create("places"), *cluster = tcase_create("cluster"), *slots = tcase_create("slots");

    tcase_set_timeout(tcase, 40);
    tcase_add_checked_fixture(tcase, setup, hosts_teardown);
    tcase_add_test(tcase, name_that_would_be_a_key_of_ours_is_refused);
    tcase_add_test(tcase, names_that_differ_in_braces_are_different_locks);
    tcase_add_test(tcase, prefix_under_which_all_names_would_be_keys_of_ours_is_refused);
    tcase_add_test(tcase, name_is_not_the_root_of_the_mount_whose_prefix_it_is);
    tcase_add_test(tcase, mounts_of_different_prefixes_do_not_see_each_other);
    tcase_add_test(tcase, template_makes_the_keys_of_another_client);
    tcase_add_test(tcase, fencing_tokens_are_whole_numbers_to_the_last_digit);
    tcase_add_test(tcase, number_is_kept_for_a_week_from_when_it_was_given);
    tcase_add_test(tcase, what_is_kept_of_a_mount_without_leases_runs_out);
    tcase_add_test(tcase, locks_that_end_leave_no_notes);
    tcase_add_test(tcase, lock_delay_of_a_ticket_outlives_what_its_mount_gives_up);
    tcase_add_loop_test(tcase, lock_delay_that_is_set_later_outlives_a_holder_at_whom_nobody_looks, 0, 2);
    tcase_add_test(tcase, lock_delay_that_is_set_later_is_for_all_locks);
    tcase_add_loop_test(tcase, lock_delay_that_is_taken_back_keeps_nobody_waiting, 0, 2);
    tcase_add_loop_test(tcase, lease_whose_term_is_over_is_not_revived_in_its_delay, 0, 4);
    tcase_add_test(tcase, ticket_whose_name_is_claimed_stays_in_the_list);
    tcase_add_test(tcase, leases_are_found_again_by_the_mount_of_the_same_identity);
    tcase_add_test(tcase, recovered_lease_ends_when_another_takes_it);
    tcase_add_test(tcase, break_of_a_ticket_keeps_the_numbers_of_its_queue);
    tcase_add_test(tcase, lease_that_ran_out_is_not_found_again);
    suite_add_tcase(suite, tcase);

    tcase_set_timeout(cluster, 40);
    tcase_add_checked_fixture(cluster, setup_cluster, hosts_teardown);
    tcase_add_test(slots, keys_of_a_prefix_with_a_tag_are_in_one_slot_and_leases_are_found_by_them);
    tcase_add_test(cluster, mount_of_a_prefix_with_a_tag_lives_in_one_slot_of_a_cluster);
    suite_add_tcase(suite, cluster);
    tcase_set_timeout(slots, 40);
    tcase_add_checked_fixture(slots, setup, hosts_teardown);
    suite_add_tcase(suite, slots);
    return check_main(suite);
}
