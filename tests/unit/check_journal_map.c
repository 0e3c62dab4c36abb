/* check_journal_map: records that are written in memory.  When the daemon is killed the page cache has them; when the
 * host stops, each page of the file is on the disk in its present or its last synced state. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/journal/journal.h"
#include "tests/support/check_main.h"
#include "tests/support/disk.h"
#include "tests/support/scratch.h"

#define PAGE 4096
#define ROOM 4096

static char *directory;
static char error[512];

static void setup(void)
{
    directory = scratch_new();
    disk_remember("journal");
}

static void teardown(void)
{
    disk_happened();
    scratch_free(directory);
}

static int open_boot(const char *where, const char *boot, GPtrArray *records, struct journal **ret_journal,
                     uint64_t *ret_cut)
{
    *ret_cut = 0;
    return journal_open_in_boot(where, boot, NULL, scratch_collect, records, ret_journal, ret_cut, error, sizeof error);
}

static struct journal *open_good(const char *where, GPtrArray *records)
{
    struct journal *j = NULL;
    uint64_t cut;
    ck_assert_msg(open_boot(where, "now", records, &j, &cut) == 0, "%s", error);
    ck_assert_uint_eq(cut, 0);
    return j;
}

static int put(struct journal *j, const void *text, size_t length)
{
    int r = journal_make_room(j, length, ROOM);
    if (r >= 0) {
        r = journal_append(j, 1, text, length);
    }
    return r == 0 ? journal_commit(j) : r;
}

static void put_some(struct journal *j, unsigned count)
{
    char text[200];
    memset(text, 'x', sizeof text);
    for (unsigned i = 0; i < count; i++) {
        ck_assert_int_eq(put(j, text, sizeof text), 0);
    }
}

static uint64_t file_size(const char *where)
{
    g_autofree char *path = g_build_filename(where, "journal", NULL);
    struct stat st;
    ck_assert_int_eq(g_stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

static guint records_in(const char *where)
{
    GPtrArray *records = scratch_records();
    journal_close(open_good(where, records));
    guint count = records->len;
    g_ptr_array_unref(records);
    return count;
}

static bool is_mapped(struct journal *j)
{
    return file_size(directory) > journal_size(j);
}

/* --- in use -------------------------------------------------------------------------- */

START_TEST(zeros_behind_the_end_are_no_damage)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    put_some(j, 1000);
    ck_assert(is_mapped(j));
    char *copy = scratch_copy(directory); /* as after kill -9 */
    ck_assert_uint_eq(records_in(copy), 1000);
    scratch_free(copy);
    uint64_t size = journal_size(j);
    journal_close(j);
    for (guint i = 0; i < 3; i++) { /* and what follows is read back as well */
        g_ptr_array_set_size(records, 0);
        j = open_good(directory, records);
        ck_assert_uint_eq(records->len, 1000 + i);
        ck_assert_uint_eq(journal_size(j), size + i * 217);
        put_some(j, 1);
        journal_close(j);
    }
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(file_system_without_room_or_mapping_is_written_to)
{
    GPtrArray *records = scratch_records();
    if (_i == 1) {
        disk_plan(DISK_PWRITE, 1, ENOSPC, NULL); /* no mark, no mapping */
    }
    disk_fail_room(_i == 0 ? EOPNOTSUPP : 0);
    struct journal *j = open_good(directory, records);
    ck_assert_int_eq(journal_make_room(j, 1, ROOM), _i == 0 ? 1 : 0);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(journal_append(j, 1, "record", 6), 0);
        ck_assert_int_eq(journal_commit(j), 0);
        ck_assert_uint_eq(file_size(directory), journal_size(j));
    }
    disk_fail_room(0);
    journal_close(j);
    ck_assert_uint_eq(records_in(directory), 100);
    g_ptr_array_unref(records);
}
END_TEST

/* What an older leasefs has written has no mark. */
START_TEST(journal_without_a_mark_is_read_and_gets_one)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    ck_assert_int_eq(journal_append(j, 1, "old", 3), 0);
    ck_assert_int_eq(journal_commit(j), 0);
    journal_close(j);
    scratch_write(directory, "lock", "4711\n", 5);
    j = open_good(directory, records);
    ck_assert_uint_eq(records->len, 1);
    put_some(j, 10);
    ck_assert(is_mapped(j));
    journal_close(j);
    ck_assert_uint_eq(records_in(directory), 11);
    g_ptr_array_unref(records);
}
END_TEST

/* As an older leasefs reads it. */
START_TEST(zeros_without_a_mark_are_a_torn_tail)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    uint64_t cut;
    put_some(j, 10);
    uint64_t zeros = file_size(directory) - journal_size(j);
    journal_close(j);
    scratch_write(directory, "lock", "4711\n", 5);
    ck_assert_int_eq(open_boot(directory, "now", records, &j, &cut), 0);
    ck_assert_uint_eq(records->len, 10);
    ck_assert_uint_eq(cut, zeros);
    journal_close(j);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(copy_that_is_cut_at_any_byte_is_a_torn_tail)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    put_some(j, 2);
    uint64_t from = journal_size(j), cut;
    for (int i = 0; i < 3; i++) { /* one batch */
        ck_assert_int_eq(journal_append(j, 1, "three", 6), 0);
    }
    ck_assert_int_eq(journal_commit(j), 0);
    uint64_t to = journal_size(j), one = (to - from) / 3;
    journal_close(j);
    GBytes *whole = scratch_read(directory, "journal"), *lock = scratch_read(directory, "lock");
    gsize length = g_bytes_get_size(whole);
    for (uint64_t at = from; at <= to; at++) {
        char *copy = scratch_new();
        uint8_t *data = g_memdup2(g_bytes_get_data(whole, NULL), length);
        memset(data + at, 0, length - at);
        scratch_write(copy, "journal", data, length);
        scratch_write(copy, "lock", g_bytes_get_data(lock, NULL), g_bytes_get_size(lock));
        g_ptr_array_set_size(records, 0);
        ck_assert_msg(open_boot(copy, "now", records, &j, &cut) == 0, "%s", error);
        uint64_t whole_records = (at - from) / one;
        ck_assert_uint_ge(records->len, 2 + whole_records);
        ck_assert_uint_eq(cut > 0, records->len < 5 && at > from + one * whole_records);
        put_some(j, 1);
        journal_close(j);
        ck_assert_uint_eq(records_in(copy), records->len + 1);
        g_free(data);
        scratch_free(copy);
    }
    g_bytes_unref(whole);
    g_bytes_unref(lock);
    g_ptr_array_unref(records);
}
END_TEST

static char *snapshot;

static void take_snapshot(void)
{
    snapshot = scratch_copy(directory);
}

/* The copy of a record may be torn at any byte, in any order: none behind it may be there then. */
START_TEST(record_of_a_batch_is_copied_when_those_before_it_are)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    put_some(j, 2);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(journal_append(j, 1, "three", 6), 0);
    }
    disk_plan(DISK_WRITE, (unsigned)_i, 0, take_snapshot);
    ck_assert_int_eq(journal_commit(j), 0);
    ck_assert(disk_happened());
    ck_assert_uint_eq(records_in(snapshot), 2 + (guint)_i);
    scratch_free(snapshot);
    journal_close(j);
    g_ptr_array_unref(records);
}
END_TEST

/* --- SIGBUS -------------------------------------------------------------------------- */

static void cut_file(off_t length)
{
    g_autofree char *path = g_build_filename(directory, "journal", NULL);
    ck_assert_int_eq(truncate(path, length), 0);
}

START_TEST(page_that_is_gone_fails_the_journal_and_not_the_process)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    put_some(j, 100);
    cut_file(_i ? 0 : PAGE);
    int r = 0;
    for (int i = 0; r == 0 && i < 100; i++) {
        r = journal_append(j, 1, error, sizeof error);
        r = r == 0 ? journal_commit(j) : r;
    }
    ck_assert_int_eq(r, -EIO);
    ck_assert_int_eq(journal_failed(j), EIO);
    ck_assert_int_eq(put(j, "more", 4), -EIO);
    ck_assert_int_eq(journal_sync_wait(j), -EIO);
    ck_assert_int_eq(journal_compact_begin(j), -EIO);
    ck_assert(journal_in_place(j));
    journal_close(j);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(file_cut_within_a_page_fails_the_journal)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    put_some(j, 5);
    ck_assert(journal_in_place(j));
    ck_assert_int_eq(journal_failed(j), 0);
    cut_file(100);
    ck_assert(journal_in_place(j));
    ck_assert_int_eq(journal_failed(j), EIO);
    ck_assert_int_eq(put(j, "more", 4), -EIO);
    journal_close(j);
    g_ptr_array_unref(records);
}
END_TEST

/* The journal takes only its own. */
START_TEST(other_sigbus_kills_as_ever)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    put_some(j, 1);
    pid_t pid = fork();
    if (pid == 0) {
        if (_i) {
            raise(SIGBUS);
            _exit(0);
        }
        g_autofree char *path = g_build_filename(directory, "other", NULL);
        int fd = open(path, O_RDWR | O_CREAT, 0600);
        volatile char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        *page = 1;
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(!WIFEXITED(status) || WEXITSTATUS(status) != 0, "it lives on"); /* a sanitizer exits */
    journal_close(j);
    g_ptr_array_unref(records);
}
END_TEST

/* --- power --------------------------------------------------------------------------- */

/* Pages behind the last sync are zeros; the last of all is there. */
static void lose_pages(uint64_t synced, GRand *random)
{
    GBytes *whole = scratch_read(directory, "journal");
    gsize length = g_bytes_get_size(whole), end = length;
    uint8_t *data = g_memdup2(g_bytes_get_data(whole, NULL), length);
    while (!data[end - 1]) {
        end--;
    }
    gsize last = (end - 1) / PAGE, lost = 0;
    for (gsize page = synced / PAGE + 1; page < last; page++) {
        if (g_rand_boolean(random) || (!lost && page == last - 1)) {
            memset(data + page * PAGE, 0, PAGE);
            lost++;
        }
    }
    ck_assert_uint_gt(lost, 0);
    scratch_write(directory, "journal", data, length);
    g_free(data);
    g_bytes_unref(whole);
}

START_TEST(pages_lost_with_the_power_end_the_journal_behind_the_last_sync)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    uint64_t cut;
    put_some(j, 100);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    uint64_t synced = journal_size(j);
    put_some(j, 300);
    journal_close(j);
    lose_pages(synced, random);

    /* within one boot nothing loses pages but damage */
    ck_assert_int_eq(open_boot(directory, "now", records, &j, &cut), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(error, "is damaged at offset"));
    ck_assert_int_eq(open_boot(directory, "", records, &j, &cut), -EBADMSG);

    g_ptr_array_set_size(records, 0);
    ck_assert_msg(open_boot(directory, "later", records, &j, &cut) == 0, "%s", error);
    ck_assert_uint_ge(records->len, 100);
    ck_assert_uint_lt(records->len, 400);
    ck_assert_uint_gt(cut, 0);
    put_some(j, 300);
    journal_close(j);
    g_autofree char *after = scratch_copy(directory);
    g_ptr_array_set_size(records, 0);
    ck_assert_int_eq(open_boot(after, "later", records, &j, &cut), 0);
    ck_assert_uint_eq(cut, 0);
    journal_close(j);
    g_ptr_array_unref(records);
    g_rand_free(random);
}
END_TEST

START_TEST(damage_before_the_last_sync_is_damage_in_any_boot)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    uint64_t cut;
    put_some(j, 100);
    ck_assert_int_eq(journal_sync_wait(j), 0);
    put_some(j, 10);
    journal_close(j);
    GBytes *whole = scratch_read(directory, "journal");
    uint8_t *data = g_memdup2(g_bytes_get_data(whole, NULL), g_bytes_get_size(whole));
    data[PAGE] ^= 1;
    scratch_write(directory, "journal", data, g_bytes_get_size(whole));
    ck_assert_int_eq(open_boot(directory, "later", records, &j, &cut), -EBADMSG);
    g_free(data);
    g_bytes_unref(whole);
    g_ptr_array_unref(records);
}
END_TEST

/* Each page of the file as it is or as it was last synced, and so the lock with its marks, and the name. */
static GBytes *mix_pages(GBytes *now, GBytes *durable, GRand *random)
{
    gsize size, kept;
    const uint8_t *from = g_bytes_get_data(now, &size), *old = g_bytes_get_data(durable, &kept);
    uint8_t *mixed = g_memdup2(from, size);
    for (gsize at = 0; at < size; at += PAGE) {
        gsize part = MIN(PAGE, size - at), there = at < kept ? MIN(part, kept - at) : 0;
        if (g_rand_boolean(random)) {
            memset(mixed + at + there, 0, part - there);
            if (there) {
                memcpy(mixed + at, old + at, there);
            }
        }
    }
    return g_bytes_new_take(mixed, size);
}

static void check_after_power_cut(uint64_t synced, uint64_t written, GRand *random)
{
    g_autofree char *path = g_build_filename(directory, "journal", NULL);
    g_autofree char *lock = g_build_filename(directory, "lock", NULL);
    struct stat named, locked;
    ck_assert_int_eq(g_stat(path, &named), 0);
    ck_assert_int_eq(g_stat(lock, &locked), 0);
    for (int i = 0; i < 4; i++) {
        char *after = scratch_new(); /* a sync may end meanwhile: the older things first */
        GBytes *marks = i & 2 ? disk_durable(locked.st_ino) : scratch_read(directory, "lock");
        ino_t inode = i & 1 ? named.st_ino : disk_durable_name();
        GBytes *durable = disk_durable(inode);
        GBytes *now = inode == named.st_ino ? scratch_read(directory, "journal") : g_bytes_ref(durable);
        GBytes *mixed = mix_pages(now, durable, random);
        scratch_write(after, "journal", g_bytes_get_data(mixed, NULL), g_bytes_get_size(mixed));
        scratch_write(after, "lock", g_bytes_get_data(marks, NULL), g_bytes_get_size(marks));
        GPtrArray *records = scratch_records();
        struct journal *j;
        uint64_t cut, last = 0;
        ck_assert_msg(open_boot(after, "later", records, &j, &cut) == 0, "%s", error);
        journal_close(j);
        if (records->len) {
            memcpy(&last, (const uint8_t *)g_bytes_get_data(records->pdata[records->len - 1], NULL) + 1, sizeof last);
        }
        ck_assert_msg(last >= synced && last <= written,
                      "%" G_GUINT64_FORMAT " is the last, %" G_GUINT64_FORMAT " was synced", last, synced);
        g_ptr_array_unref(records);
        g_bytes_unref(now);
        g_bytes_unref(durable);
        g_bytes_unref(mixed);
        g_bytes_unref(marks);
        scratch_free(after);
    }
}

static void put_number(struct journal *j, uint64_t number)
{
    uint64_t payload[40] = {number};
    ck_assert_int_eq(put(j, payload, sizeof payload), 0);
}

START_TEST(power_cut_in_any_order_of_pages_loses_nothing_synced)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    uint64_t number = 0;
    enum { IDLE, FINISHING } step = IDLE;
    guint swaps = 0;
    ck_assert_int_eq(journal_sync_wait(j), 0);
    for (int i = 0; i < 3000; i++) {
        int choice = g_rand_int_range(random, 0, 100);
        if (choice < 80) {
            put_number(j, ++number);
        } else if (choice < 84) {
            journal_sync(j);
        } else if (choice < 88) {
            ck_assert_int_eq(journal_sync_wait(j), 0);
        } else if (choice < 92) {
            check_after_power_cut(journal_synced(j), number, random);
        } else if (step == IDLE && number) {
            uint64_t payload[40] = {number};
            ck_assert_int_eq(journal_compact_begin(j), 0);
            ck_assert_int_eq(journal_compact_append(j, 1, payload, sizeof payload), 0);
            ck_assert_int_eq(journal_compact_finish(j), 0);
            step = FINISHING;
        } else if (step == FINISHING && journal_compact_ready(j)) {
            ck_assert_int_eq(journal_compact_swap(j), 0);
            put_number(j, ++number);
            ck_assert(is_mapped(j));
            check_after_power_cut(journal_synced(j), number, random);
            step = IDLE;
            swaps++;
        }
    }
    ck_assert_uint_gt(swaps, 5);
    journal_close(j);
    g_ptr_array_unref(records);
    g_rand_free(random);
}
END_TEST

static Suite *map_suite(void)
{
    Suite *suite = suite_create("journal map");
    TCase *use = tcase_create("use"), *bus = tcase_create("sigbus"), *power = tcase_create("power");

    tcase_add_checked_fixture(use, setup, teardown);
    tcase_add_test(use, zeros_behind_the_end_are_no_damage);
    tcase_add_loop_test(use, file_system_without_room_or_mapping_is_written_to, 0, 2);
    tcase_add_test(use, journal_without_a_mark_is_read_and_gets_one);
    tcase_add_test(use, zeros_without_a_mark_are_a_torn_tail);
    tcase_add_test(use, copy_that_is_cut_at_any_byte_is_a_torn_tail);
    tcase_add_loop_test(use, record_of_a_batch_is_copied_when_those_before_it_are, 0, 3);
    suite_add_tcase(suite, use);

    tcase_add_checked_fixture(bus, setup, teardown);
    tcase_add_loop_test(bus, page_that_is_gone_fails_the_journal_and_not_the_process, 0, 2);
    tcase_add_test(bus, file_cut_within_a_page_fails_the_journal);
    tcase_add_loop_test(bus, other_sigbus_kills_as_ever, 0, 2);
    suite_add_tcase(suite, bus);

    tcase_add_checked_fixture(power, setup, teardown);
    tcase_set_timeout(power, 120);
    tcase_add_test(power, pages_lost_with_the_power_end_the_journal_behind_the_last_sync);
    tcase_add_test(power, damage_before_the_last_sync_is_damage_in_any_boot);
    tcase_add_test(power, power_cut_in_any_order_of_pages_loses_nothing_synced);
    suite_add_tcase(suite, power);
    return suite;
}

int main(void)
{
    return check_main(map_suite());
}
