/* check_journal_errors: each system call of the journal fails once; see disk.h.  Everything that was confirmed is kept,
 * nothing else is confirmed, and a failed open has its reason. */
#include <dirent.h>
#include <errno.h>
#include <glib/gstdio.h>
#include <stdio.h>
#include <string.h>

#include "backend/crc32c.h"
#include "backend/journal/journal.h"
#include "backend/log.h"
#include "tests/support/check_main.h"
#include "tests/support/disk.h"
#include "tests/support/scratch.h"
#include "tests/unit/local_fixture.h"

static char *directory;
static char error[512];

static void setup(void)
{
    directory = scratch_new();
}

static void teardown(void)
{
    disk_happened();
    scratch_free(directory);
}

static int open_journal(GPtrArray *records, struct journal **ret_journal)
{
    uint64_t cut;
    *ret_journal = NULL;
    error[0] = '\0';
    return journal_open(directory, scratch_collect, records, ret_journal, &cut, error, sizeof error);
}

static struct journal *open_good(GPtrArray *records)
{
    struct journal *j;
    ck_assert_msg(open_journal(records, &j) == 0, "%s", error);
    return j;
}

static guint open_files(void)
{
    DIR *files = opendir("/proc/self/fd");
    guint count = 0;
    while (readdir(files)) {
        count++;
    }
    closedir(files);
    return count;
}

/* --- one call fails --- */

/* The changes, their confirmations, and the first reported error. */
struct story {
    GPtrArray *kept;
    int result;
};

static void story_tell(struct story *story, int result)
{
    if (result < 0 && story->result == 0) {
        story->result = result;
    }
}

static void story_put(struct story *story, struct journal *j, const char *text)
{
    int r = journal_append(j, 1, text, strlen(text));
    if (r == 0) {
        r = journal_commit(j);
    }
    if (r == 0) {
        scratch_collect(story->kept, 1, text, strlen(text));
    }
    story_tell(story, r);
}

static void story_compact(struct story *story, struct journal *j)
{
    int r = journal_compact_begin(j);
    for (guint i = 0; r == 0 && i < story->kept->len; i++) {
        gsize length;
        const char *record = g_bytes_get_data(story->kept->pdata[i], &length);
        r = journal_compact_append(j, 1, record + 1, length - 1);
    }
    story_put(story, j, "while it is copied");
    if (r == 0) {
        r = journal_compact_finish(j);
    }
    while (r == 0 && !journal_compact_ready(j)) {
        g_usleep(100);
    }
    if (r == 0) {
        r = journal_compact_swap(j);
    }
    if (r < 0) {
        journal_compact_abort(j);
    }
    story_tell(story, r);
}

static void story_tear(void)
{
    char *path = g_build_filename(directory, "journal", NULL);
    FILE *file = fopen(path, "a");
    fputs("a record that was cut short", file);
    fclose(file);
    g_free(path);
}

/* One daemon that uses all of a journal, and one that finds it with a torn tail. */
static void story_run(struct story *story)
{
    struct journal *j;
    int r = open_journal(story->kept, &j);
    story_tell(story, r);
    if (r == 0) {
        story_put(story, j, "one");
        story_tell(story, journal_make_room(j, 100, 1000));
        story_put(story, j, "two");
        story_tell(story, journal_sync_wait(j));
        journal_rest(j);
        story_compact(story, j);
        story_put(story, j, "three");
        story_tell(story, journal_sync_wait(j));
        journal_give_room_back(j, 0);
        journal_close(j);
        story_tear();
    }
    GPtrArray *found = scratch_records();
    r = r == 0 ? open_journal(found, &j) : r;
    story_tell(story, r);
    if (r == 0) {
        story_put(story, j, "four");
        journal_close(j);
    }
    g_ptr_array_unref(found);
}

static void assert_same(const GPtrArray *kept, const GPtrArray *found, const char *when, unsigned skip)
{
    ck_assert_msg(kept->len == found->len, "%s %u: %u records are there of %u", when, skip, found->len, kept->len);
    for (guint i = 0; i < kept->len; i++) {
        ck_assert_msg(g_bytes_equal(kept->pdata[i], found->pdata[i]), "%s %u: record %u is another", when, skip, i);
    }
}

/* Once it is over, no confirmed change is missing and no refused one is there, whatever failed;
 * a failed call is reported, except those that the journal can do without. */
static const struct {
    const char *name;
    enum disk_call call;
    int number;
    unsigned times; /* that it is called, at least */
    bool harmless;  /* some of them, or all */
} cases[] = {
    {"write", DISK_WRITE, EIO, 8, false},
    {"write on a full disk", DISK_WRITE, ENOSPC, 8, false},
    {"write over quota", DISK_WRITE, EDQUOT, 8, false},
    {"interrupted write", DISK_WRITE, EINTR, 8, true},
    {"short write", DISK_WRITE, 0, 8, true},
    {"sync", DISK_SYNC, EIO, 8, false},
    {"room", DISK_ROOM, EIO, 2, true},
    {"room on a full disk", DISK_ROOM, ENOSPC, 2, true},
    {"room of a disk that has none to give", DISK_ROOM, EOPNOTSUPP, 2, true},
    {"room of a file that is too large", DISK_ROOM, EFBIG, 2, true},
    {"interrupted room", DISK_ROOM, EINTR, 2, true},
    {"open", DISK_OPEN, EIO, 4, false},
    {"openat", DISK_OPENAT, EACCES, 6, false},
    {"flock", DISK_LOCK, ENOLCK, 2, false},
    {"pread", DISK_PREAD, EIO, 2, false},
    {"interrupted pread", DISK_PREAD, EINTR, 2, true},
    {"pwrite", DISK_PWRITE, ENOSPC, 2, true},
    {"fstat", DISK_STAT, EIO, 5, false},
    {"fstatat", DISK_STATAT, EIO, 6, false},
    {"ftruncate", DISK_TRUNCATE, EIO, 4, true},
    {"renameat", DISK_RENAME, EIO, 2, false},
    {"getrandom", DISK_RANDOM, ENOSYS, 2, false},
    {"thread", DISK_THREAD, EAGAIN, 2, false},
};

START_TEST(call_that_fails_loses_nothing_that_was_confirmed)
{
    bool happened = true;
    unsigned skip;
    for (skip = 0; happened; skip++) {
        struct story story = {.kept = scratch_records()};
        GPtrArray *found = scratch_records();
        guint files = open_files();
        disk_plan(cases[_i].call, skip, cases[_i].number, NULL);
        story_run(&story);
        happened = disk_happened();
        ck_assert_msg(!happened || cases[_i].harmless || story.result < 0, "%s %u: nobody is told", cases[_i].name,
                      skip);
        ck_assert_msg(happened || story.result == 0, "%s %u: nothing failed", cases[_i].name, skip);
        ck_assert_msg(!error[0] || (strstr(error, directory) && !strchr(error, '\n')), "%s", error);
        ck_assert_uint_eq(open_files(), files);
        journal_close(open_good(found));
        assert_same(story.kept, found, cases[_i].name, skip);
        g_ptr_array_unref(story.kept);
        g_ptr_array_unref(found);
        scratch_free(directory);
        directory = scratch_new();
    }
    ck_assert_uint_gt(skip, cases[_i].times);
}
END_TEST

START_TEST(interrupted_call_is_made_again)
{
    static const enum disk_call calls[] = {DISK_WRITE, DISK_ROOM, DISK_PREAD};
    for (unsigned skip = 0, happened = 1; happened; skip++) {
        struct story story = {.kept = scratch_records()};
        disk_plan(calls[_i], skip, EINTR, NULL);
        story_run(&story);
        happened = disk_happened();
        ck_assert_int_eq(story.result, 0);
        ck_assert_uint_eq(story.kept->len, 5);
        g_ptr_array_unref(story.kept);
        scratch_free(directory);
        directory = scratch_new();
    }
}
END_TEST

/* The partial record cannot be taken back, and later records would not be found. */
START_TEST(journal_whose_torn_end_cannot_be_cut_off_has_failed)
{
    GPtrArray *records = scratch_records();
    struct story story = {.kept = scratch_records()};
    struct journal *j = open_good(records);
    story_put(&story, j, "kept");
    disk_plan(DISK_WRITE, 0, 0, NULL);
    ck_assert_int_eq(journal_append(j, 1, "torn", 4), 0);
    disk_plan(DISK_TRUNCATE, 0, EIO, NULL);
    disk_fail_writes(ENOSPC);
    ck_assert_int_eq(journal_commit(j), -EIO);
    disk_fail_writes(0);
    ck_assert(disk_happened());
    ck_assert_int_eq(journal_failed(j), EIO);
    ck_assert_int_eq(journal_append(j, 1, "after", 5), -EIO);
    journal_close(j);
    journal_close(open_good(records));
    assert_same(story.kept, records, "torn", 0);
    g_ptr_array_unref(story.kept);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(torn_end_that_is_cut_off_is_no_failure)
{
    static const int numbers[] = {ENOSPC, EDQUOT};
    GPtrArray *records = scratch_records();
    struct story story = {.kept = scratch_records()};
    struct journal *j = open_good(records);
    story_put(&story, j, "kept");
    disk_plan(DISK_WRITE, 0, 0, NULL);
    ck_assert_int_eq(journal_append(j, 1, "torn", 4), 0);
    disk_fail_writes(numbers[_i]);
    ck_assert_int_eq(journal_commit(j), -numbers[_i]);
    disk_fail_writes(0);
    ck_assert_int_eq(journal_failed(j), 0);
    story_put(&story, j, "after");
    journal_close(j);
    journal_close(open_good(records));
    ck_assert_uint_eq(records->len, 2);
    assert_same(story.kept, records, "torn", 0);
    g_ptr_array_unref(story.kept);
    g_ptr_array_unref(records);
}
END_TEST

/* --- opening --- */

static void assert_refused(enum disk_call call, unsigned skip, int number, const char *what)
{
    GPtrArray *records = scratch_records();
    struct journal *j;
    disk_plan(call, skip, number, NULL);
    ck_assert_int_eq(open_journal(records, &j), -number);
    ck_assert(disk_happened());
    ck_assert_ptr_null(j);
    ck_assert_msg(strstr(error, directory) && strstr(error, what) && strstr(error, g_strerror(number)), "%s", error);
    g_ptr_array_unref(records);
}

START_TEST(failed_open_is_reported_with_the_reason)
{
    assert_refused(DISK_OPEN, 0, ENOMEM, "cannot be used");
    assert_refused(DISK_STAT, 0, EIO, "cannot be used");
    assert_refused(DISK_OPENAT, 0, EACCES, "/lock cannot be opened");
    assert_refused(DISK_LOCK, 0, ENOLCK, "/lock cannot be opened");
    assert_refused(DISK_RANDOM, 0, ENOSYS, "/journal cannot be created");
    assert_refused(DISK_SYNC, 0, EIO, "/journal cannot be created");
    assert_refused(DISK_RENAME, 0, EROFS, "/journal cannot be created");
    assert_refused(DISK_SYNC, 1, EIO, "/journal cannot be created");
    assert_refused(DISK_OPENAT, 1, EMFILE, "/journal cannot be opened");
    assert_refused(DISK_PREAD, 0, EIO, "/journal cannot be read at offset 0");
    assert_refused(DISK_STAT, 3, EIO, "/journal cannot be read at offset 0");
}
END_TEST

START_TEST(second_opener_that_cannot_read_by_whom_is_refused_all_the_same)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(records), *second;
    disk_plan(DISK_PREAD, 0, EIO, NULL);
    ck_assert_int_eq(open_journal(records, &second), -EWOULDBLOCK);
    ck_assert(disk_happened());
    ck_assert_ptr_nonnull(strstr(error, "(pid unknown)"));
    journal_close(j);
    g_ptr_array_unref(records);
}
END_TEST

/* Another directory takes the name of ours, as if somebody restored a backup. */
static char *away;

static void replace_directory(void)
{
    away = g_strconcat(directory, ".away", NULL);
    ck_assert_int_eq(g_rename(directory, away), 0);
    ck_assert_int_eq(g_mkdir(directory, 0700), 0);
}

START_TEST(directory_replaced_before_it_is_locked_is_not_taken)
{
    GPtrArray *records = scratch_records();
    struct journal *j;
    disk_plan(_i ? DISK_OPENAT : DISK_LOCK, 0, 0, replace_directory);
    ck_assert_int_eq(open_journal(records, &j), -ESTALE);
    ck_assert(disk_happened());
    ck_assert_ptr_nonnull(strstr(error, "was replaced by somebody while it was opened"));
    ck_assert_int_eq(g_rmdir(directory), 0); /* nothing was made there */
    ck_assert_int_eq(g_mkdir(directory, 0700), 0);
    scratch_free(away);
    g_ptr_array_unref(records);
}
END_TEST

/* It is locked, but not where the next one looks. */
START_TEST(directory_replaced_after_it_was_locked_is_not_in_place)
{
    GPtrArray *records = scratch_records();
    disk_plan(DISK_OPENAT, 1, 0, replace_directory);
    struct journal *j = open_good(records);
    ck_assert(disk_happened());
    ck_assert(!journal_in_place(j));
    journal_close(j);
    scratch_free(away);
    g_ptr_array_unref(records);
}
END_TEST

/* A journal that cannot open its directory must not conclude that it was moved: that would end the mount for want of a
 * descriptor. */
START_TEST(directory_that_cannot_be_looked_at_for_want_of_files_is_in_place)
{
    static const int numbers[] = {EMFILE, ENFILE, ENOMEM};
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(records);
    for (size_t i = 0; i < G_N_ELEMENTS(numbers); i++) {
        disk_plan(DISK_OPEN, 0, numbers[i], NULL);
        ck_assert(journal_in_place(j));
        ck_assert(disk_happened());
    }
    disk_plan(DISK_OPEN, 0, EIO, NULL);
    ck_assert(!journal_in_place(j));
    disk_plan(DISK_OPEN, 1, ENOENT, NULL);
    ck_assert(!journal_in_place(j));
    ck_assert(journal_in_place(j));
    journal_close(j);
    g_ptr_array_unref(records);
}
END_TEST

/* Its checksum is right; nobody writes such a thing. */
START_TEST(record_with_a_number_of_its_own_is_not_read)
{
    GPtrArray *records = scratch_records();
    journal_close(open_good(records));
    GBytes *bytes = scratch_read(directory, "journal");
    uint8_t data[37] = {0};
    uint32_t salt, chain;
    memcpy(data, g_bytes_get_data(bytes, NULL), 20);
    memcpy(&salt, data + 12, 4);
    memcpy(&chain, data + 16, 4);
    data[20] = 9; /* length */
    data[24] = 1; /* type */
    for (uint8_t number = 1; number < 3; number++) {
        data[25] = number;
        uint32_t sum = GUINT32_TO_LE(crc32c(GUINT32_FROM_LE(chain) ^ GUINT32_FROM_LE(salt), data + 20, 13));
        memcpy(data + 33, &sum, 4);
        scratch_write(directory, "journal", data, sizeof data);
        g_ptr_array_set_size(records, 0);
        journal_close(open_good(records));
        ck_assert_uint_eq(records->len, number == 1 ? 1 : 0);
    }
    g_bytes_unref(bytes);
    g_ptr_array_unref(records);
}
END_TEST

static int refuse(void *arg, uint8_t type, const void *payload, size_t length)
{
    (void)arg, (void)type, (void)payload, (void)length;
    return 1;
}

START_TEST(reader_that_refuses_without_an_errno_refuses_the_start)
{
    GPtrArray *records = scratch_records();
    struct story story = {.kept = records};
    struct journal *j = open_good(records);
    uint64_t cut;
    story_put(&story, j, "one");
    journal_close(j);
    ck_assert_int_eq(journal_open(directory, refuse, NULL, &j, &cut, error, sizeof error), -EPROTO);
    ck_assert_ptr_nonnull(strstr(error, g_strerror(EPROTO)));
    g_ptr_array_unref(records);
}
END_TEST

/* In the middle, and where records behind a bad one are looked for: nothing is taken for the end, or cut off. */
START_TEST(journal_that_cannot_be_read_to_its_end_is_not_cut_off)
{
    enum { RECORDS = 300, LENGTH = 2000 };
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(records);
    char text[LENGTH] = {0};
    for (int i = 0; i < RECORDS; i++) {
        ck_assert_int_eq(journal_append(j, 1, text, sizeof text), 0);
    }
    ck_assert_int_eq(journal_commit(j), 0);
    journal_close(j);
    GBytes *whole = scratch_read(directory, "journal");
    char *data = g_memdup2(g_bytes_get_data(whole, NULL), g_bytes_get_size(whole));
    for (int i = 0; i < RECORDS - 1; i++) { /* all but the last */
        data[100 + i * (LENGTH + 17)] ^= (char)_i;
    }
    scratch_write(directory, "journal", data, g_bytes_get_size(whole));
    unsigned failed = 0;
    for (bool happened = true; happened; failed += happened) {
        disk_plan(DISK_PREAD, failed, EIO, NULL);
        int r = open_journal(records, &j);
        happened = disk_happened();
        ck_assert_int_eq(r, happened ? -EIO : _i ? -EBADMSG : 0);
        ck_assert(r == 0 || strstr(error, happened ? "cannot be read at offset" : "is damaged at offset 20 "));
        if (r == 0) {
            journal_close(j);
        }
        GBytes *after = scratch_read(directory, "journal");
        ck_assert_uint_eq(g_bytes_get_size(after), g_bytes_get_size(whole));
        g_bytes_unref(after);
    }
    ck_assert_uint_ge(failed, 3);
    g_free(data);
    g_bytes_unref(whole);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(path_that_is_none_is_refused)
{
    struct journal *j;
    uint64_t cut;
    char *path = g_build_filename(directory, "file", "below", "it", NULL);
    ck_assert_int_eq(journal_open("", refuse, NULL, &j, &cut, error, sizeof error), -ENOENT);
    ck_assert_ptr_nonnull(strstr(error, g_strerror(ENOENT)));
    scratch_write(directory, "file", "", 0);
    ck_assert_int_eq(journal_open(path, refuse, NULL, &j, &cut, error, sizeof error), -ENOTDIR);
    ck_assert_ptr_nonnull(strstr(error, path));
    g_free(path);
}
END_TEST

/* --- in use --- */

START_TEST(unsupported_reservation_is_tried_once)
{
    GPtrArray *records = scratch_records();
    struct story story = {.kept = scratch_records()};
    struct journal *j = open_good(records);
    disk_plan(DISK_ROOM, 0, EOPNOTSUPP, NULL);
    ck_assert_int_eq(journal_make_room(j, 100, 1000), 1);
    disk_plan(DISK_ROOM, 0, EIO, NULL);
    ck_assert_int_eq(journal_make_room(j, 100, 1000), 1);
    story_compact(&story, j);
    ck_assert(!disk_happened());
    ck_assert_int_eq(story.result, 0);
    journal_close(j);
    g_ptr_array_unref(story.kept);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(file_that_may_grow_no_more_has_no_room_and_has_not_failed)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(records);
    disk_plan(DISK_ROOM, 0, EFBIG, NULL);
    ck_assert_int_eq(journal_make_room(j, 100, 1000), -EFBIG);
    ck_assert_int_eq(journal_failed(j), 0);
    ck_assert_int_eq(journal_make_room(j, 100, 1000), 0);
    disk_plan(DISK_ROOM, 0, EIO, NULL);
    ck_assert_int_eq(journal_make_room(j, 1000000, 1000), -EIO);
    ck_assert_int_eq(journal_make_room(j, 100, 1000), -EIO);
    ck_assert_int_eq(journal_failed(j), EIO);
    journal_close(j);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(compaction_that_has_not_begun_takes_nothing)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(records);
    ck_assert_int_eq(journal_compact_append(j, 1, "x", 1), -EINVAL);
    ck_assert_int_eq(journal_compact_finish(j), -EINVAL);
    ck_assert(!journal_compact_ready(j));
    ck_assert_int_eq(journal_compact_swap(j), -EINVAL);
    journal_close(j);
    journal_close(open_good(records));
    ck_assert_uint_eq(records->len, 0);
    g_ptr_array_unref(records);
}
END_TEST

/* --- the store --- */

START_TEST(store_without_a_thread_for_its_syncs_does_not_start)
{
    struct local_options options = {.directory = directory};
    struct backend *b = NULL;
    disk_plan(DISK_THREAD, 0, EAGAIN, NULL);
    ck_assert_int_eq(local_new(&options, &b, local_error, sizeof local_error), -EAGAIN);
    ck_assert(disk_happened());
    ck_assert_ptr_null(b);
    ck_assert_msg(strstr(local_error, directory) && strstr(local_error, g_strerror(EAGAIN)), "%s", local_error);
}
END_TEST

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    (void)ticket, (void)holder;
    *(int *)arg = (int)result;
    contract_end_turn();
}

/* The first sync after the start has its thread to make again. */
START_TEST(lease_that_no_thread_can_sync_is_not_granted)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    int result = -1;
    log_set_level(LOG_LEVEL_ERROR);
    disk_plan(DISK_THREAD, 0, EAGAIN, NULL);
    backend_acquire(contract_backend, "a", &claim, on_acquired, &result);
    CONTRACT_UNTIL(result >= 0);
    ck_assert(disk_happened());
    ck_assert_int_eq(result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
}
END_TEST

START_TEST(directory_replaced_as_the_store_starts_grants_nothing)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(_i ? BACKEND_FLOCK : BACKEND_LEASE, &log);
    log_set_level(LOG_LEVEL_ERROR);
    directory = local_directory;
    backend_free(contract_backend);
    disk_plan(DISK_OPENAT, 1, 0, replace_directory);
    contract_start(local_open_at(local_directory));
    ck_assert(disk_happened());
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    scratch_free(away);
}
END_TEST

static Suite *errors_suite(void)
{
    Suite *suite = suite_create("journal errors");
    TCase *calls = tcase_create("calls"), *opening = tcase_create("opening"), *use = tcase_create("use");
    TCase *store = tcase_create("store"), *started = tcase_create("started");

    tcase_add_checked_fixture(calls, setup, teardown);
    tcase_add_loop_test(calls, call_that_fails_loses_nothing_that_was_confirmed, 0, G_N_ELEMENTS(cases));
    tcase_add_loop_test(calls, interrupted_call_is_made_again, 0, 3);
    tcase_add_test(calls, journal_whose_torn_end_cannot_be_cut_off_has_failed);
    tcase_add_loop_test(calls, torn_end_that_is_cut_off_is_no_failure, 0, 2);
    suite_add_tcase(suite, calls);

    tcase_add_checked_fixture(opening, setup, teardown);
    tcase_add_test(opening, failed_open_is_reported_with_the_reason);
    tcase_add_test(opening, second_opener_that_cannot_read_by_whom_is_refused_all_the_same);
    tcase_add_loop_test(opening, directory_replaced_before_it_is_locked_is_not_taken, 0, 2);
    tcase_add_test(opening, directory_replaced_after_it_was_locked_is_not_in_place);
    tcase_add_test(opening, directory_that_cannot_be_looked_at_for_want_of_files_is_in_place);
    tcase_add_test(opening, record_with_a_number_of_its_own_is_not_read);
    tcase_add_test(opening, reader_that_refuses_without_an_errno_refuses_the_start);
    tcase_add_loop_test(opening, journal_that_cannot_be_read_to_its_end_is_not_cut_off, 0, 2);
    tcase_add_test(opening, path_that_is_none_is_refused);
    suite_add_tcase(suite, opening);

    tcase_add_checked_fixture(use, setup, teardown);
    tcase_add_test(use, unsupported_reservation_is_tried_once);
    tcase_add_test(use, file_that_may_grow_no_more_has_no_room_and_has_not_failed);
    tcase_add_test(use, compaction_that_has_not_begun_takes_nothing);
    suite_add_tcase(suite, use);

    tcase_add_checked_fixture(store, setup, teardown);
    tcase_add_test(store, store_without_a_thread_for_its_syncs_does_not_start);
    suite_add_tcase(suite, store);

    tcase_add_checked_fixture(started, local_setup_synced, contract_teardown);
    tcase_add_test(started, lease_that_no_thread_can_sync_is_not_granted);
    tcase_add_loop_test(started, directory_replaced_as_the_store_starts_grants_nothing, 0, 2);
    suite_add_tcase(suite, started);
    return suite;
}

int main(void)
{
    return check_main(errors_suite());
}
