/* check_journal_faults: full disks, failing disks, crashes and power cuts.
 *
 * Linked with -Wl,--wrap for write, fdatasync and fsync, so that each can be
 * made to fail, and so that what a power cut would leave can be known: of each
 * file what it held when it was last synced, of the directory the names it had
 * when it was last synced.
 */
#include <errno.h>
#include <glib/gstdio.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check_main.h"
#include "journal.h"
#include "scratch.h"

ssize_t __real_write(int fd, const void *data, size_t length);
int __real_fdatasync(int fd);
int __real_fsync(int fd);
ssize_t __wrap_write(int fd, const void *data, size_t length);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);

static char *directory;
static char error[512];

static struct {
    pthread_mutex_t mutex;
    int write_error;      /* for the next write(s) */
    int sync_error;
    ino_t sync_error_on;  /* of this file alone, if not 0 */
    size_t write_at_most; /* short writes, if not 0 */
    GHashTable *durable;  /* inode -> its bytes when last synced; NULL: not recorded */
    ino_t durable_name;   /* the inode that is "journal" once the directory is synced */
    bool hold;            /* keep syncs waiting */
    pthread_cond_t held;
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .held = PTHREAD_COND_INITIALIZER};

ssize_t __wrap_write(int fd, const void *data, size_t length)
{
    if (disk.write_error) {
        errno = disk.write_error;
        return -1;
    }
    if (disk.write_at_most && length > disk.write_at_most)
        length = disk.write_at_most;
    return __real_write(fd, data, length);
}

/* Syncs of this inode (0: of all) fail with `number`; 0: none does. */
static void fail_syncs(int number, ino_t inode)
{
    pthread_mutex_lock(&disk.mutex);
    disk.sync_error = number;
    disk.sync_error_on = inode;
    pthread_mutex_unlock(&disk.mutex);
}

static void hold_syncs(bool hold)
{
    pthread_mutex_lock(&disk.mutex);
    disk.hold = hold;
    pthread_cond_broadcast(&disk.held);
    pthread_mutex_unlock(&disk.mutex);
}

static GBytes *bytes_of(int fd)
{
    struct stat st;
    uint8_t *data;
    ssize_t length;

    fstat(fd, &st);
    data = g_malloc((gsize)st.st_size);
    length = pread(fd, data, (size_t)st.st_size, 0);
    return g_bytes_new_take(data, (gsize)MAX(length, 0));
}

static int synced(int fd, int (*real)(int))
{
    struct stat st, name;
    GBytes *bytes = NULL;
    ino_t named = 0;

    fstat(fd, &st);
    pthread_mutex_lock(&disk.mutex);
    while (disk.hold)
        pthread_cond_wait(&disk.held, &disk.mutex);
    if (disk.sync_error && (!disk.sync_error_on || disk.sync_error_on == st.st_ino)) {
        errno = disk.sync_error;
        pthread_mutex_unlock(&disk.mutex);
        return -1;
    }
    pthread_mutex_unlock(&disk.mutex);

    /* as it is before the call: that much at least is safe after it */
    if (S_ISDIR(st.st_mode))
        named = fstatat(fd, "journal", &name, 0) == 0 ? name.st_ino : 0;
    else if (disk.durable)
        bytes = bytes_of(fd);
    if (real(fd) < 0)
        return -1;
    pthread_mutex_lock(&disk.mutex);
    if (bytes)
        g_hash_table_replace(disk.durable, GSIZE_TO_POINTER(st.st_ino), bytes);
    if (named)
        disk.durable_name = named;
    pthread_mutex_unlock(&disk.mutex);
    return 0;
}

int __wrap_fdatasync(int fd)
{
    return synced(fd, __real_fdatasync);
}

int __wrap_fsync(int fd)
{
    return synced(fd, __real_fsync);
}

static void setup(void)
{
    directory = scratch_new();
    disk.durable = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)g_bytes_unref);
}

static void teardown(void)
{
    g_hash_table_unref(disk.durable);
    scratch_free(directory);
}

static struct journal *open_good(const char *where, journal_replay *replay, void *arg)
{
    struct journal *j = NULL;
    uint64_t cut = 0;

    ck_assert_msg(journal_open(where, replay, arg, &j, &cut, error, sizeof(error)) == 0, "%s", error);
    return j;
}

static guint records_in(const char *where)
{
    GPtrArray *records = scratch_records();
    guint count;

    journal_close(open_good(where, scratch_collect, records));
    count = records->len;
    g_ptr_array_unref(records);
    return count;
}

static int put(struct journal *j, const char *text)
{
    int r = journal_append(j, 1, text, strlen(text));

    return r == 0 ? journal_commit(j) : r;
}

static int ignore(void *arg, uint8_t type, const void *payload, size_t length)
{
    (void)arg, (void)type, (void)payload, (void)length;
    return 0;
}

/* --- writes that fail --- */

START_TEST(short_writes_are_carried_on)
{
    struct journal *j = open_good(directory, ignore, NULL);

    disk.write_at_most = 3;
    ck_assert_int_eq(put(j, "written three bytes at a time"), 0);
    disk.write_at_most = 0;
    journal_close(j);
    ck_assert_uint_eq(records_in(directory), 1);
}
END_TEST

START_TEST(failed_write_is_final_and_what_was_committed_stays)
{
    struct journal *j = open_good(directory, ignore, NULL);

    ck_assert_int_eq(put(j, "kept"), 0);
    disk.write_error = EIO;
    ck_assert_int_eq(put(j, "lost"), -EIO);
    disk.write_error = 0;
    ck_assert_int_eq(journal_failed(j), EIO);
    ck_assert_int_eq(journal_append(j, 1, "more", 4), -EIO);
    ck_assert_int_eq(journal_commit(j), -EIO);
    ck_assert_int_eq(journal_sync_wait(j), -EIO);
    ck_assert_int_eq(journal_compact_begin(j), -EIO);
    ck_assert_uint_eq(journal_sequence(j), 1);
    journal_close(j);
    ck_assert_uint_eq(records_in(directory), 1);
}
END_TEST

/* Fills the disk with records of many sizes, and opens it again. */
static void fill_disk(const char *where, int expected)
{
    struct journal *j = open_good(where, ignore, NULL);
    char payload[700];
    guint good = 0;
    uint64_t size;
    int r = 0;

    memset(payload, 'x', sizeof(payload));
    for (guint i = 0; i < 100000 && r == 0; i++) {
        size = journal_size(j);
        r = journal_append(j, 1, payload, i * 37 % sizeof(payload));
        if (r == 0)
            r = journal_commit(j);
        good += r == 0;
    }
    ck_assert_int_eq(r, -expected);
    ck_assert_int_eq(journal_failed(j), expected);
    ck_assert_uint_gt(good, 10);
    ck_assert_uint_eq(journal_size(j), size);
    ck_assert_uint_eq(journal_sequence(j), good);
    journal_close(j);
    ck_assert_uint_eq(records_in(where), good);
}

START_TEST(full_disk_fails_the_journal_and_loses_nothing_committed)
{
    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert_int_eq(mount("tmpfs", directory, "tmpfs", 0, "size=64k,mode=0700"), 0);
    fill_disk(directory, ENOSPC);
    ck_assert_int_eq(umount(directory), 0);
}
END_TEST

START_TEST(write_that_ends_in_the_middle_of_a_record_is_taken_back)
{
    struct rlimit limit = {50001, 50001};

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fill_disk(directory, EFBIG);
}
END_TEST

START_TEST(failed_batch_is_taken_back_whole)
{
    struct journal *j = open_good(directory, ignore, NULL);
    struct rlimit old, limit;

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    limit = (struct rlimit){(rlim_t)journal_size(j) + 100, old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int i = 0; i < 10; i++) /* some of them fit */
        ck_assert_int_eq(journal_append(j, 1, "x", 1), 0);
    ck_assert_int_eq(journal_commit(j), -EFBIG);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    journal_close(j);
    ck_assert_uint_eq(records_in(directory), 0);
}
END_TEST

START_TEST(journal_that_cannot_be_created_says_why)
{
    struct journal *j = NULL;
    uint64_t cut;

    disk.write_error = ENOSPC;
    ck_assert_int_eq(journal_open(directory, ignore, NULL, &j, &cut, error, sizeof(error)), -ENOSPC);
    disk.write_error = 0;
    ck_assert_ptr_nonnull(strstr(error, "No space left"));
    ck_assert_uint_eq(records_in(directory), 0);
}
END_TEST

/* --- syncs --- */

static void count_sync(void *arg)
{
    g_atomic_int_inc((gint *)arg);
}

START_TEST(sync_is_told_from_the_thread_and_covers_what_was_committed)
{
    struct journal *j = open_good(directory, ignore, NULL);
    gint told = 0;

    journal_on_synced(j, count_sync, &told);
    ck_assert_int_eq(put(j, "one"), 0);
    ck_assert_int_eq(put(j, "two"), 0);
    ck_assert_uint_eq(journal_synced(j), 0);
    journal_sync(j);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    ck_assert_uint_eq(journal_synced(j), 2);
    journal_close(j);
    ck_assert_int_ge(told, 1);
}
END_TEST

START_TEST(commits_made_during_a_sync_share_the_next_one)
{
    struct journal *j = open_good(directory, ignore, NULL);
    gint told = 0;

    journal_on_synced(j, count_sync, &told);
    hold_syncs(true);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(put(j, "x"), 0);
        journal_sync(j);
    }
    ck_assert_uint_eq(journal_synced(j), 0);
    hold_syncs(false);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    ck_assert_uint_eq(journal_synced(j), 100);
    journal_close(j);
    ck_assert_int_le(told, 2);
}
END_TEST

START_TEST(failed_sync_fails_the_journal_and_is_told)
{
    struct journal *j = open_good(directory, ignore, NULL);
    gint told = 0;

    journal_on_synced(j, count_sync, &told);
    ck_assert_int_eq(put(j, "one"), 0);
    fail_syncs(EIO, 0);
    ck_assert_int_eq(journal_sync_wait(j), -EIO);
    fail_syncs(0, 0);
    ck_assert_uint_eq(journal_synced(j), 0);
    ck_assert_int_eq(journal_failed(j), EIO);
    ck_assert_int_eq(put(j, "two"), -EIO);
    journal_close(j);
    ck_assert_int_eq(told, 1);
}
END_TEST

/* --- compaction --- */

/* A state: which of 64 keys are set, to what.  Record type 1 sets, 2 removes. */
enum { KEYS = 64 };

struct state {
    uint32_t value[KEYS]; /* 0: not set */
};

static int apply(void *arg, uint8_t type, const void *payload, size_t length)
{
    struct state *state = arg;
    uint32_t words[2];

    if (length != sizeof(words))
        return -EPROTO;
    memcpy(words, payload, sizeof(words));
    state->value[words[0]] = type == 1 ? words[1] : 0;
    return 0;
}

static void change(struct journal *j, struct state *state, GRand *random)
{
    uint32_t words[2] = {(uint32_t)g_rand_int_range(random, 0, KEYS), g_rand_int(random) | 1};
    uint8_t type = g_rand_int_range(random, 0, 3) ? 1 : 2;

    ck_assert_int_eq(journal_append(j, type, words, sizeof(words)), 0);
    ck_assert_int_eq(journal_commit(j), 0);
    apply(state, type, words, sizeof(words));
}

/* What a daemon would find that starts after this one was killed now. */
static void check_after_crash(const struct state *expected, const char *when)
{
    char *copy = scratch_copy(directory);
    struct state found = {{0}};
    struct journal *j = open_good(copy, apply, &found);

    ck_assert_msg(memcmp(&found, expected, sizeof(found)) == 0, "other state after a crash %s", when);
    journal_close(j);
    scratch_free(copy);
}

/* Copies a part of the state; the next key, or KEYS at the end. */
static uint32_t copy_part(struct journal *j, const struct state *state, uint32_t key, uint32_t count)
{
    for (; key < KEYS && count--; key++) {
        uint32_t words[2] = {key, state->value[key]};

        if (words[1])
            ck_assert_int_eq(journal_compact_append(j, 1, words, sizeof(words)), 0);
    }
    ck_assert_int_eq(journal_commit(j), 0);
    return key;
}

static void wait_ready(struct journal *j)
{
    while (!journal_compact_ready(j))
        g_usleep(100);
}

START_TEST(crash_at_any_step_of_compaction_finds_the_same_state)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    uint64_t before;

    for (int i = 0; i < 500; i++)
        change(j, &state, random);
    before = journal_size(j);
    ck_assert_int_eq(journal_compact_begin(j), 0);
    ck_assert_int_eq(journal_compact_begin(j), -EALREADY);
    check_after_crash(&state, "when compaction has begun");
    for (uint32_t key = 0; key < KEYS;) {
        key = copy_part(j, &state, key, 7);
        check_after_crash(&state, "after a part");
        change(j, &state, random);
        check_after_crash(&state, "after a change between two parts");
    }
    ck_assert_int_eq(journal_compact_swap(j), -EAGAIN);
    ck_assert_int_eq(journal_compact_begin(j), 0);
    copy_part(j, &state, 0, KEYS);
    ck_assert_int_eq(journal_compact_finish(j), 0);
    check_after_crash(&state, "before the sync");
    change(j, &state, random);
    wait_ready(j);
    check_after_crash(&state, "when it is ready");
    change(j, &state, random);
    check_after_crash(&state, "after a change when it is ready");
    ck_assert_int_eq(journal_compact_swap(j), 0);
    check_after_crash(&state, "after the swap");
    ck_assert_uint_lt(journal_size(j), before);
    change(j, &state, random);
    check_after_crash(&state, "after a change after the swap");
    journal_close(j);
    check_after_crash(&state, "at the end");
    g_rand_free(random);
}
END_TEST

START_TEST(sequence_grows_across_compaction)
{
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    GRand *random = g_rand_new_with_seed(1);

    for (int i = 0; i < 10; i++)
        change(j, &state, random);
    ck_assert_int_eq(journal_compact_begin(j), 0);
    ck_assert_int_eq(journal_compact_finish(j), 0);
    wait_ready(j);
    ck_assert_int_eq(journal_compact_swap(j), 0);
    change(j, &state, random);
    ck_assert_uint_eq(journal_sequence(j), 11);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    ck_assert_uint_eq(journal_synced(j), 11);
    journal_close(j);
    g_rand_free(random);
}
END_TEST

START_TEST(compaction_that_cannot_write_leaves_the_journal_in_use)
{
    GRand *random = g_rand_new_with_seed(2);
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    struct stat st;
    char *path = g_build_filename(directory, "journal.new", NULL);

    change(j, &state, random);
    disk.write_error = ENOSPC;
    ck_assert_int_eq(journal_compact_begin(j), -ENOSPC);
    disk.write_error = 0;
    ck_assert_int_eq(g_stat(path, &st), -1);
    change(j, &state, random);

    ck_assert_int_eq(journal_compact_begin(j), 0);
    ck_assert_int_eq(g_stat(path, &st), 0);
    copy_part(j, &state, 0, KEYS);
    fail_syncs(EIO, st.st_ino);
    ck_assert_int_eq(journal_compact_finish(j), 0);
    wait_ready(j);
    ck_assert_int_eq(journal_compact_swap(j), -EIO);
    fail_syncs(0, 0);
    ck_assert_int_eq(g_stat(path, &st), -1);

    change(j, &state, random);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    check_after_crash(&state, "after compactions that failed");
    journal_close(j);
    g_free(path);
    g_rand_free(random);
}
END_TEST

/* What a power cut would leave now, under the name as it was last synced or as
 * it is: either may be found. */
static void check_after_power_cut(uint64_t told_synced, const GArray *history)
{
    char *path = g_build_filename(directory, "journal", NULL);
    struct stat st;
    ino_t names[2];

    ck_assert_int_eq(g_stat(path, &st), 0);
    names[1] = st.st_ino;
    pthread_mutex_lock(&disk.mutex);
    names[0] = disk.durable_name;
    for (int i = 0; i < 2; i++) {
        GBytes *bytes = g_hash_table_lookup(disk.durable, GSIZE_TO_POINTER(names[i]));
        char *after = scratch_new();
        struct state found = {{0}};
        uint64_t cut;
        struct journal *j;
        bool some = false;

        ck_assert_ptr_nonnull(bytes);
        scratch_write(after, "journal", g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes));
        pthread_mutex_unlock(&disk.mutex);
        ck_assert_msg(journal_open(after, apply, &found, &j, &cut, error, sizeof(error)) == 0, "%s", error);
        journal_close(j);
        pthread_mutex_lock(&disk.mutex);
        /* it is the state after some change, none older than what was told */
        for (guint k = (guint)told_synced; k < history->len && !some; k++)
            some = memcmp(&g_array_index(history, struct state, k), &found, sizeof(found)) == 0;
        ck_assert_msg(some, "a power cut loses what was told to be synced (%s name)", i ? "new" : "synced");
        scratch_free(after);
    }
    pthread_mutex_unlock(&disk.mutex);
    g_free(path);
}

START_TEST(power_cut_loses_nothing_that_was_told_to_be_synced)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    GArray *history = g_array_new(FALSE, FALSE, sizeof(struct state)); /* state by sequence */
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    enum { IDLE, COPYING, FINISHING } step = IDLE;
    uint32_t key = 0;
    guint swaps = 0;

    g_array_append_val(history, state);
    for (int i = 0; i < 4000; i++) {
        int choice = g_rand_int_range(random, 0, 100);

        if (choice < 50) {
            change(j, &state, random);
            g_array_append_val(history, state);
        } else if (choice < 60) {
            journal_sync(j);
        } else if (choice < 65) {
            ck_assert_int_eq(journal_sync_wait(j), 0);
        } else if (choice < 70) {
            check_after_power_cut(journal_synced(j), history);
        } else if (step == IDLE) {
            ck_assert_int_eq(journal_compact_begin(j), 0);
            key = 0;
            step = COPYING;
        } else if (step == COPYING && key < KEYS) {
            key = copy_part(j, &state, key, 20);
        } else if (step == COPYING) {
            ck_assert_int_eq(journal_compact_finish(j), 0);
            step = FINISHING;
        } else if (journal_compact_ready(j)) {
            ck_assert_int_eq(journal_compact_swap(j), 0);
            check_after_power_cut(journal_synced(j), history);
            swaps++;
            step = IDLE;
        }
    }
    ck_assert_uint_gt(swaps, 10);
    journal_close(j);
    g_array_unref(history);
    g_rand_free(random);
}
END_TEST

START_TEST(random_use_with_crashes_agrees_with_a_plain_model)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    struct state state = {{0}};
    struct journal *j = open_good(directory, apply, &state);
    bool compacting = false;

    for (int i = 0; i < 20000; i++) {
        int choice = g_rand_int_range(random, 0, 1000);

        if (choice < 950) {
            change(j, &state, random);
        } else if (choice < 970 && !compacting) {
            ck_assert_int_eq(journal_compact_begin(j), 0);
            copy_part(j, &state, 0, KEYS);
            ck_assert_int_eq(journal_compact_finish(j), 0);
            compacting = true;
        } else if (choice < 980 && compacting && journal_compact_ready(j)) {
            ck_assert_int_eq(journal_compact_swap(j), 0);
            compacting = false;
        } else if (choice < 983 && compacting) {
            journal_compact_abort(j);
            compacting = false;
        } else if (choice >= 990) {
            struct state found = {{0}};
            uint32_t never_committed[2] = {1, 1};

            journal_append(j, 1, never_committed, sizeof(never_committed));
            journal_close(j);
            j = open_good(directory, apply, &found);
            ck_assert_msg(memcmp(&found, &state, sizeof(state)) == 0, "other state after %d operations", i);
            compacting = false;
        }
    }
    journal_close(j);
    g_rand_free(random);
}
END_TEST

static Suite *faults_suite(void)
{
    Suite *suite = suite_create("journal faults");
    TCase *writes = tcase_create("writes"), *syncs = tcase_create("syncs"), *compaction = tcase_create("compaction");

    tcase_add_checked_fixture(writes, setup, teardown);
    tcase_add_test(writes, short_writes_are_carried_on);
    tcase_add_test(writes, failed_write_is_final_and_what_was_committed_stays);
    tcase_add_test(writes, write_that_ends_in_the_middle_of_a_record_is_taken_back);
    tcase_add_test(writes, failed_batch_is_taken_back_whole);
    tcase_add_test(writes, journal_that_cannot_be_created_says_why);
    if (geteuid() == 0)
        tcase_add_test(writes, full_disk_fails_the_journal_and_loses_nothing_committed);
    suite_add_tcase(suite, writes);

    tcase_add_checked_fixture(syncs, setup, teardown);
    tcase_add_test(syncs, sync_is_told_from_the_thread_and_covers_what_was_committed);
    tcase_add_test(syncs, commits_made_during_a_sync_share_the_next_one);
    tcase_add_test(syncs, failed_sync_fails_the_journal_and_is_told);
    suite_add_tcase(suite, syncs);

    tcase_add_checked_fixture(compaction, setup, teardown);
    tcase_set_timeout(compaction, 120);
    tcase_add_test(compaction, crash_at_any_step_of_compaction_finds_the_same_state);
    tcase_add_test(compaction, sequence_grows_across_compaction);
    tcase_add_test(compaction, compaction_that_cannot_write_leaves_the_journal_in_use);
    tcase_add_test(compaction, power_cut_loses_nothing_that_was_told_to_be_synced);
    tcase_add_test(compaction, random_use_with_crashes_agrees_with_a_plain_model);
    suite_add_tcase(suite, compaction);
    return suite;
}

int main(void)
{
    return check_main(faults_suite());
}
