/* check_journal_faults: full disks and failing disks, by disk.h.  Compaction and power cuts are in
 * check_journal_compact. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/journal/journal.h"
#include "tests/support/check_main.h"
#include "tests/support/disk.h"
#include "tests/support/scratch.h"

static char *directory;
static char error[512];

static void setup(void)
{
    directory = scratch_new();
}

static void teardown(void)
{
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

    disk_shorten_writes(3);
    ck_assert_int_eq(put(j, "written three bytes at a time"), 0);
    disk_shorten_writes(0);
    journal_close(j);
    ck_assert_uint_eq(records_in(directory), 1);
}
END_TEST

START_TEST(failed_write_is_final_and_what_was_committed_stays)
{
    struct journal *j = open_good(directory, ignore, NULL);

    ck_assert_int_eq(put(j, "kept"), 0);
    disk_fail_writes(EIO);
    ck_assert_int_eq(put(j, "lost"), -EIO);
    disk_fail_writes(0);
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
    ck_assert_int_eq(journal_failed(j), expected == ENOSPC ? 0 : expected);
    ck_assert_uint_gt(good, 10);
    ck_assert_uint_eq(journal_size(j), size);
    ck_assert_uint_eq(journal_sequence(j), good);
    journal_close(j);
    ck_assert_uint_eq(records_in(where), good);
}

START_TEST(full_disk_loses_nothing_committed_and_ends_nothing)
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
    int limited = setrlimit(RLIMIT_FSIZE, &limit),
        appended = 0;            /* no assertion till then: it writes into a file, too */
    for (int i = 0; i < 10; i++) /* some of them fit */
        appended |= journal_append(j, 1, "x", 1);
    int committed = journal_commit(j);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(limited, 0);
    ck_assert_int_eq(appended, 0);
    ck_assert_int_eq(committed, -EFBIG);
    journal_close(j);
    ck_assert_uint_eq(records_in(directory), 0);
}
END_TEST

START_TEST(record_that_found_no_room_may_be_written_later)
{
    struct journal *j = open_good(directory, ignore, NULL);

    ck_assert_int_eq(put(j, "one"), 0);
    disk_fail_writes(ENOSPC);
    ck_assert_int_eq(journal_append(j, 1, "two", 3), 0);
    ck_assert_int_eq(put(j, "three"), -ENOSPC);
    ck_assert_int_eq(put(j, "four"), -ENOSPC);
    ck_assert_uint_eq(journal_sequence(j), 1);
    disk_fail_writes(0);
    ck_assert_int_eq(journal_failed(j), 0);
    ck_assert_int_eq(put(j, "five"), 0);
    ck_assert_uint_eq(journal_sequence(j), 2);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    journal_close(j);
    ck_assert_uint_eq(records_in(directory), 2);
}
END_TEST

/* The spare room is there when another program has filled the disk. */
START_TEST(room_that_was_made_is_there_on_a_full_disk)
{
    struct journal *j;
    char *hog = g_build_filename(directory, "hog", NULL), block[4096] = {0};
    int fd, spare = 20 * 1024;

    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert_int_eq(mount("tmpfs", directory, "tmpfs", 0, "size=256k,mode=0700"), 0);
    j = open_good(directory, ignore, NULL);
    ck_assert_int_eq(journal_make_room(j, 100, (uint64_t)spare), 0);
    fd = open(hog, O_WRONLY | O_CREAT, 0600);
    while (write(fd, block, sizeof(block)) > 0)
        continue;
    ck_assert_int_eq(journal_make_room(j, 100000, (uint64_t)spare), -ENOSPC);
    for (int i = 0; i < spare / 32; i++)
        ck_assert_int_eq(put(j, "an end of a l."), 0);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    ck_assert_int_eq(journal_make_room(j, 100000, (uint64_t)spare), 0);
    close(fd);
    journal_close(j);
    ck_assert_uint_eq(records_in(directory), (guint)spare / 32);
    ck_assert_int_eq(umount(directory), 0);
    g_free(hog);
}
END_TEST

START_TEST(journal_that_cannot_be_created_says_why)
{
    struct journal *j = NULL;
    uint64_t cut;

    disk_fail_writes(ENOSPC);
    ck_assert_int_eq(journal_open(directory, ignore, NULL, &j, &cut, error, sizeof(error)), -ENOSPC);
    disk_fail_writes(0);
    ck_assert_ptr_nonnull(strstr(error, "No space left"));
    ck_assert_uint_eq(records_in(directory), 0);
}
END_TEST

/* --- syncs --- */

static void count_sync(void *arg)
{
    g_atomic_int_inc((gint *)arg);
}

START_TEST(sync_is_reported_from_the_thread_and_covers_what_was_committed)
{
    struct journal *j = open_good(directory, ignore, NULL);
    gint reported = 0;

    journal_on_synced(j, count_sync, &reported);
    ck_assert_int_eq(put(j, "one"), 0);
    ck_assert_int_eq(put(j, "two"), 0);
    ck_assert_uint_eq(journal_synced(j), 0);
    journal_sync(j);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    ck_assert_uint_eq(journal_synced(j), 2);
    journal_close(j);
    ck_assert_int_ge(reported, 1);
}
END_TEST

START_TEST(commits_made_during_a_sync_share_the_next_one)
{
    struct journal *j = open_good(directory, ignore, NULL);
    gint reported = 0;

    journal_on_synced(j, count_sync, &reported);
    disk_hold_syncs(true);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(put(j, "x"), 0);
        journal_sync(j);
    }
    ck_assert_uint_eq(journal_synced(j), 0);
    disk_hold_syncs(false);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    ck_assert_uint_eq(journal_synced(j), 100);
    journal_close(j);
    ck_assert_int_le(reported, 2);
}
END_TEST

START_TEST(failed_sync_fails_the_journal_and_is_reported)
{
    struct journal *j = open_good(directory, ignore, NULL);
    gint reported = 0;

    journal_on_synced(j, count_sync, &reported);
    ck_assert_int_eq(put(j, "one"), 0);
    disk_fail_syncs(EIO, 0);
    ck_assert_int_eq(journal_sync_wait(j), -EIO);
    disk_fail_syncs(0, 0);
    ck_assert_uint_eq(journal_synced(j), 0);
    ck_assert_int_eq(journal_failed(j), EIO);
    ck_assert_int_eq(put(j, "two"), -EIO);
    journal_close(j);
    ck_assert_int_eq(reported, 1);
}
END_TEST

static Suite *faults_suite(void)
{
    Suite *suite = suite_create("journal faults");
    TCase *writes = tcase_create("writes"), *syncs = tcase_create("syncs");

    tcase_add_checked_fixture(writes, setup, teardown);
    tcase_add_test(writes, short_writes_are_carried_on);
    tcase_add_test(writes, failed_write_is_final_and_what_was_committed_stays);
    tcase_add_test(writes, write_that_ends_in_the_middle_of_a_record_is_taken_back);
    tcase_add_test(writes, failed_batch_is_taken_back_whole);
    tcase_add_test(writes, record_that_found_no_room_may_be_written_later);
    check_add_where(check_may(CAP_SYS_ADMIN), "with CAP_SYS_ADMIN", writes, room_that_was_made_is_there_on_a_full_disk);
    tcase_add_test(writes, journal_that_cannot_be_created_says_why);
    check_add_where(check_may(CAP_SYS_ADMIN), "with CAP_SYS_ADMIN", writes,
                    full_disk_loses_nothing_committed_and_ends_nothing);
    suite_add_tcase(suite, writes);

    tcase_add_checked_fixture(syncs, setup, teardown);
    tcase_add_test(syncs, sync_is_reported_from_the_thread_and_covers_what_was_committed);
    tcase_add_test(syncs, commits_made_during_a_sync_share_the_next_one);
    tcase_add_test(syncs, failed_sync_fails_the_journal_and_is_reported);
    suite_add_tcase(suite, syncs);
    return suite;
}

int main(void)
{
    return check_main(faults_suite());
}
