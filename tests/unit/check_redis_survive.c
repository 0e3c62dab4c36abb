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

int main(void)
{
    Suite *suite = suite_create("redis survive");
    TCase *tcase = tcase_create("survive");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, uncontended_flock_is_recovered);
    tcase_add_test(tcase, recovered_lock_is_renewed);
    tcase_add_test(tcase, lock_that_has_run_out_is_not_recovered);
    tcase_add_test(tcase, locks_that_end_leave_no_notes);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
