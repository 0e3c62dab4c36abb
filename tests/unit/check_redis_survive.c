/* check_redis_survive: handle locks of a mount whose daemon has ended, on a real Redis server, as its next daemon finds
 * them; and late requests of the daemon before about them.
 */
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/unit/hosts_fixture.h"

#define IDENTITY "host:/mnt/locks"
#define META "host 4711 99 0 0 644 1 0 - boot -"

/* The locks that the next daemon found, in the order of names and bytes. */
struct found {
    char *name;
    struct backend_ticket *ticket;
};
static GArray *found;

static gint compare_found(gconstpointer a, gconstpointer b)
{
    const struct found *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : left->ticket->fence < right->ticket->fence ? -1 : 1;
}

static bool on_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    struct found one = {g_strdup(name), ticket};
    (void)arg, (void)content;
    ck_assert_uint_eq(g_bytes_get_size(meta), strlen(META));
    g_array_append_val(found, one);
    return true;
}

static void clear_found(gpointer data)
{
    g_free(((struct found *)data)->name);
}

static void setup(void)
{
    hosts_setup();
    found = g_array_new(FALSE, FALSE, sizeof(struct found));
    g_array_set_clear_func(found, clear_found);
    hosts_options.identity = IDENTITY;
    hosts_until_up(0);
    hosts_options.identity = NULL;
}

static void teardown(void)
{
    hosts_teardown();
    g_array_unref(found);
}

/* Another daemon of the same mount point. */
static unsigned restart_as(unsigned mount)
{
    hosts_options.identity = IDENTITY;
    hosts_until_up(mount);
    hosts_options.identity = NULL;
    backend_recover(hosts_mount(mount), on_found, NULL);
    g_array_sort(found, compare_found);
    return mount;
}

static struct found *nth(guint i)
{
    ck_assert_uint_lt(i, found->len);
    return &g_array_index(found, struct found, i);
}

static struct hosts_record *take(unsigned mount, const char *name, enum backend_kind kind, enum backend_mode mode)
{
    struct backend_claim claim = hosts_claim(kind, HOSTS_LONG);
    claim.mode = mode;
    claim.handle = 7;
    claim.sequence = g_str_has_suffix(name, "-");
    claim.meta = g_bytes_new_static(META, strlen(META));
    struct hosts_record *record = hosts_acquire(mount, name, &claim);
    g_bytes_unref(claim.meta);
    return record;
}

static struct hosts_record *take_range(unsigned mount, uint64_t lock_owner, uint64_t start, uint64_t end)
{
    struct backend_claim claim = hosts_claim(BACKEND_FCNTL, HOSTS_LONG);
    claim.lock_owner = lock_owner;
    claim.start = start;
    claim.end = end;
    claim.meta = g_bytes_new_static(META, strlen(META));
    struct hosts_record *record = hosts_acquire(mount, "L", &claim);
    g_bytes_unref(claim.meta);
    return record;
}

static void release_found(unsigned mount, guint i)
{
    struct hosts_done done = {0};
    backend_release(hosts_mount(mount), nth(i)->ticket, hosts_on_done, &done);
    HOSTS_UNTIL(done.called);
    ck_assert_int_eq(done.result, BACKEND_OK);
}

/* How many locks the server notes for the mount. */
static long long count_notes(void)
{
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, IDENTITY, -1);
    char *key = g_strdup_printf("lfs:m:h:%.32s", digest);
    long long notes =
        redis_server_do(hosts_server, "SCARD %s", key) - redis_server_do(hosts_server, "SISMEMBER %s %s", key, "");
    g_free(key);
    g_free(digest);
    return notes;
}

START_TEST(flock_is_recovered_with_its_token)
{
    uint64_t fence = take(0, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->ticket->fence;
    struct hosts_record *waiter = hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    if (_i == 1) {
        hosts_drop(waiter); /* the lock is in the long form */
    }
    hosts_close(0);
    restart_as(2);
    ck_assert_uint_eq(found->len, 1);
    ck_assert_str_eq(nth(0)->name, "L");
    ck_assert_uint_eq(nth(0)->ticket->fence, fence);
    ck_assert_int_eq(nth(0)->ticket->kind, BACKEND_FLOCK);
    ck_assert(nth(0)->ticket->held);
    ck_assert_int_eq(take(2, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result,
                     BACKEND_BUSY); /* of the same handle, too */
    ck_assert_int_eq(take(1, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_BUSY);
    release_found(2, 0);
    if (_i == 0) {
        HOSTS_UNTIL(waiter->granted);
    }
    ck_assert_int_eq(count_notes(), 0);
}
END_TEST

START_TEST(uncontended_flock_is_recovered)
{
    uint64_t fence = take(0, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->ticket->fence;
    hosts_close(0);
    restart_as(2);
    ck_assert_uint_eq(found->len, 1);
    ck_assert_uint_eq(nth(0)->ticket->fence, fence);
    ck_assert_int_eq(nth(0)->ticket->kind, BACKEND_FLOCK);
    ck_assert_int_eq(take(2, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_BUSY);
    release_found(2, 0);
    ck_assert_int_eq(take(1, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_OK);
}
END_TEST

START_TEST(shared_flocks_are_recovered)
{
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(take(0, "L", BACKEND_FLOCK, BACKEND_SHARED)->result, BACKEND_OK);
    }
    hosts_close(0);
    restart_as(2);
    ck_assert_uint_eq(found->len, 2);
    for (guint i = 0; i < 2; i++) {
        ck_assert_int_eq(nth(i)->ticket->mode, BACKEND_SHARED);
        ck_assert_int_eq(take(1, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_BUSY);
        release_found(2, i);
    }
    ck_assert_int_eq(take(1, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_OK);
}
END_TEST

START_TEST(ticket_of_a_queue_is_recovered)
{
    ck_assert_int_eq(take(0, "s-", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_OK);
    hosts_close(0);
    restart_as(2);
    ck_assert_uint_eq(found->len, 1);
    ck_assert(g_str_has_prefix(nth(0)->name, "s-00"));
    ck_assert_int_eq(nth(0)->ticket->kind, BACKEND_FLOCK);
    release_found(2, 0);
    ck_assert_int_eq(count_notes(), 0);
}
END_TEST

START_TEST(ranges_are_recovered_without_their_lock_owner)
{
    ck_assert_int_eq(take_range(0, 5, 0, 9)->result, BACKEND_OK);
    ck_assert_int_eq(take_range(0, 5, 20, 29)->result, BACKEND_OK);
    ck_assert_int_eq(take_range(0, 6, 40, 49)->result, BACKEND_OK);
    ck_assert_int_eq(count_notes(), 2);
    hosts_close(0);
    restart_as(2);
    ck_assert_uint_eq(found->len, 2);
    for (unsigned mount = 1; mount <= 2; mount++) {
        ck_assert_int_eq(take_range(mount, 5, 5, 15)->result, BACKEND_BUSY);
        ck_assert_int_eq(take_range(mount, 5, 25, 25)->result, BACKEND_BUSY);
        ck_assert_int_eq(take_range(mount, 6, 49, 60)->result, BACKEND_BUSY);
        struct hosts_record *between = take_range(mount, 5, 10, 19);
        ck_assert_int_eq(between->result, BACKEND_OK);
        ck_assert_int_eq(hosts_release(between), BACKEND_OK);
    }
    release_found(2, 0);
    ck_assert_int_eq(take_range(1, 5, 0, 29)->result, BACKEND_OK);
    ck_assert_int_eq(take_range(1, 5, 40, 40)->result, BACKEND_BUSY);
    release_found(2, 1);
    ck_assert_int_eq(take_range(1, 5, 40, 40)->result, BACKEND_OK);
}
END_TEST

START_TEST(recovered_lock_is_renewed)
{
    take(0, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    hosts_close(0);
    restart_as(2);
    struct backend_renewal renewal = {.ticket = nth(0)->ticket, .ttl = 3 * HOSTS_LONG};
    backend_renew(hosts_mount(2), &renewal, 1);
    HOSTS_UNTIL(redis_server_do(hosts_server, "PTTL h:L") > 2 * HOSTS_LONG);
    ck_assert_int_eq(take(1, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_BUSY);
}
END_TEST

/* Its handle is closed, so that nobody would ever release it. */
START_TEST(lock_that_was_waited_for_is_not_recovered)
{
    struct hosts_record *holder = hosts_get(1, "L", HOSTS_LONG);
    hosts_queue(0, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    struct hosts_record *next = hosts_queue(3, "L", BACKEND_EXCLUSIVE, HOSTS_LONG);
    hosts_close(0);
    restart_as(2);
    ck_assert_uint_eq(found->len, 0);
    ck_assert_int_eq(hosts_release(holder), BACKEND_OK);
    HOSTS_UNTIL(next->granted);
    ck_assert_int_eq(count_notes(), 0);
}
END_TEST

START_TEST(lock_that_has_run_out_is_not_recovered)
{
    take(0, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(count_notes(), 1);
    hosts_close(0);
    ck_assert_int_eq(redis_server_do(hosts_server, "PEXPIRE h:L 1"), 1);
    HOSTS_UNTIL(!hosts_exists("h:L"));
    struct hosts_record *other = take(1, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(other->result, BACKEND_OK);
    restart_as(2);
    ck_assert_uint_eq(found->len, 0);
    ck_assert_int_eq(count_notes(), 0);
    ck_assert_int_eq(take(2, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_BUSY);
    ck_assert_ptr_nonnull(other->ticket);
}
END_TEST

START_TEST(locks_that_end_leave_no_notes)
{
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(hosts_release(take(0, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)), BACKEND_OK);
        ck_assert_int_eq(hosts_release(take(0, "s-", BACKEND_FLOCK, BACKEND_EXCLUSIVE)), BACKEND_OK);
        for (uint64_t at = 0; at < 100; at += 10) {
            ck_assert_int_eq(take_range(0, 5, at, at + 5)->result, BACKEND_OK);
        }
        ck_assert_int_eq(count_notes(), 1);
        ck_assert_int_eq(hosts_unlock(0, "L", 5, 0, BACKEND_RANGE_MAX), BACKEND_OK);
        ck_assert_int_eq(count_notes(), 0);
    }
}
END_TEST

/* The daemon before was only stopped, and goes on.  _i: the lock is held alone, or in the long form. */
START_TEST(daemon_before_cannot_renew_or_release)
{
    struct hosts_record *before = take(0, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    struct hosts_record *waiter = _i == 1 ? hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG) : NULL;
    restart_as(2);
    ck_assert_uint_eq(found->len, 1);
    struct backend_renewal renewal = {.ticket = before->ticket, .ttl = 3 * HOSTS_LONG};
    backend_renew(hosts_mount(0), &renewal, 1);
    HOSTS_UNTIL(before->ended);
    ck_assert_int_lt(redis_server_do(hosts_server, "PTTL h:L"), 2 * HOSTS_LONG);
    hosts_pass(100); /* and what it releases then */
    ck_assert_int_eq(take(3, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_BUSY);
    ck_assert(!waiter || !waiter->granted);
    release_found(2, 0);
    HOSTS_UNTIL(!waiter || waiter->granted);
}
END_TEST

START_TEST(release_of_the_daemon_before_changes_nothing)
{
    struct hosts_record *before = take(0, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    struct hosts_record *waiter = _i == 1 ? hosts_queue(1, "L", BACKEND_EXCLUSIVE, HOSTS_LONG) : NULL;
    restart_as(2);
    hosts_release(before);
    ck_assert_int_eq(take(3, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_BUSY);
    ck_assert(!waiter || !waiter->granted);
    release_found(2, 0);
    HOSTS_UNTIL(!waiter || waiter->granted);
}
END_TEST

START_TEST(daemon_before_cannot_change_a_lock)
{
    struct hosts_record *before = take(0, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE);
    struct hosts_done set = {0}, moved = {0};
    restart_as(2);
    GBytes *meta = g_bytes_new_static(META, strlen(META));
    backend_set(hosts_mount(0), before->ticket, &(struct backend_change){.set = BACKEND_SET_META, .meta = meta},
                hosts_on_done, &set);
    HOSTS_UNTIL(set.called);
    ck_assert_int_eq(set.result, BACKEND_STALE);
    g_bytes_unref(meta);
    if (before->ticket) {
        backend_rename(hosts_mount(0), before->ticket, "M", NULL, hosts_on_done, &moved);
        HOSTS_UNTIL(moved.called);
        ck_assert_int_ne(moved.result, BACKEND_OK);
    }
    ck_assert_int_eq(take(3, "L", BACKEND_FLOCK, BACKEND_EXCLUSIVE)->result, BACKEND_BUSY);
    ck_assert(!hosts_exists("h:M"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis survive");
    TCase *tcase = tcase_create("survive");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, flock_is_recovered_with_its_token, 0, 2);
    tcase_add_test(tcase, uncontended_flock_is_recovered);
    tcase_add_test(tcase, shared_flocks_are_recovered);
    tcase_add_test(tcase, ticket_of_a_queue_is_recovered);
    tcase_add_test(tcase, ranges_are_recovered_without_their_lock_owner);
    tcase_add_test(tcase, recovered_lock_is_renewed);
    tcase_add_test(tcase, lock_that_was_waited_for_is_not_recovered);
    tcase_add_test(tcase, lock_that_has_run_out_is_not_recovered);
    tcase_add_test(tcase, locks_that_end_leave_no_notes);
    tcase_add_loop_test(tcase, daemon_before_cannot_renew_or_release, 0, 2);
    tcase_add_loop_test(tcase, release_of_the_daemon_before_changes_nothing, 0, 2);
    tcase_add_test(tcase, daemon_before_cannot_change_a_lock);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
