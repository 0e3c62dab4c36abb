/* check_journal: committed records are read back, a torn tail is cut off, and damage is found.  Failing disks are in
 * check_journal_faults. */
#include <errno.h>
#include <glib/gstdio.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/crc32c.h"
#include "backend/journal/journal.h"
#include "config.h"
#include "tests/support/check_main.h"
#include "tests/support/scratch.h"

static char *directory;
static char error[512];

static void setup(void)
{
    directory = scratch_new();
    error[0] = '\0';
}

static void teardown(void)
{
    scratch_free(directory);
}

static int open_at(const char *where, GPtrArray *records, struct journal **ret_journal, uint64_t *ret_cut)
{
    return journal_open(where, scratch_collect, records, ret_journal, ret_cut, error, sizeof(error));
}

static struct journal *open_good(const char *where, GPtrArray *records)
{
    struct journal *j = NULL;
    uint64_t cut = 1;

    ck_assert_msg(open_at(where, records, &j, &cut) == 0, "%s", error);
    ck_assert_uint_eq(cut, 0);
    return j;
}

/* Writes `count` records of different lengths; returns where each ends. */
static GArray *write_records(guint count)
{
    GPtrArray *none = scratch_records();
    GArray *ends = g_array_new(FALSE, FALSE, sizeof(uint64_t));
    struct journal *j = open_good(directory, none);
    uint64_t end = journal_size(j);

    g_array_append_val(ends, end);
    for (guint i = 0; i < count; i++) {
        char payload[64];
        int length = g_snprintf(payload, sizeof(payload), "record %u %.*s", i, (int)i, "..........");

        ck_assert_int_eq(journal_append(j, (uint8_t)(i + 1), payload, (size_t)length), 0);
        ck_assert_int_eq(journal_commit(j), 0);
        end = journal_size(j);
        g_array_append_val(ends, end);
    }
    journal_close(j);
    ck_assert_uint_eq(none->len, 0);
    g_ptr_array_unref(none);
    return ends;
}

#define END(ends, i) ((size_t)g_array_index(ends, uint64_t, i))

/* Opens a copy of the directory whose journal is these bytes. */
static int open_bytes(const void *data, size_t length, guint *ret_records, uint64_t *ret_cut)
{
    GPtrArray *records = scratch_records();
    char *copy = scratch_new();
    struct journal *j = NULL;
    int r;

    scratch_write(copy, "journal", data, length);
    *ret_cut = 0;
    r = open_at(copy, records, &j, ret_cut);
    *ret_records = records->len;
    if (r == 0) {
        /* what follows a cut is read back as well */
        ck_assert_int_eq(journal_append(j, 99, "after", 5), 0);
        ck_assert_int_eq(journal_commit(j), 0);
        journal_close(j);
        g_ptr_array_set_size(records, 0);
        j = open_good(copy, records);
        ck_assert_uint_eq(records->len, *ret_records + 1);
        journal_close(j);
    } else {
        GBytes *after = scratch_read(copy, "journal");

        ck_assert_msg(g_bytes_get_size(after) == length && memcmp(g_bytes_get_data(after, NULL), data, length) == 0,
                      "a refused journal was changed");
        g_bytes_unref(after);
    }
    scratch_free(copy);
    g_ptr_array_unref(records);
    return r;
}

START_TEST(checksum_is_crc32c_with_and_without_the_instruction)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    uint8_t data[300];

    ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(crc32c_portable(0, "123456789", 9), 0xe3069283);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)g_rand_int(random);
    for (size_t length = 0; length <= sizeof(data); length++) {
        size_t part = length / 3;

        ck_assert_uint_eq(crc32c(7, data, length), crc32c_portable(7, data, length));
        ck_assert_uint_eq(crc32c(crc32c(7, data, part), data + part, length - part), crc32c(7, data, length));
    }
    g_rand_free(random);
}
END_TEST

START_TEST(records_are_read_back_in_order_as_they_were)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    size_t lengths[] = {0, 1, 8, 4096, 65536, 1000000, 3};
    uint8_t *data = g_malloc(1000000);

    for (size_t i = 0; i < 1000000; i++)
        data[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < G_N_ELEMENTS(lengths); i++)
        ck_assert_int_eq(journal_append(j, (uint8_t)(200 + i), data, lengths[i]), 0);
    ck_assert_uint_eq(journal_sequence(j), 0);
    ck_assert_int_eq(journal_commit(j), 0);
    ck_assert_uint_eq(journal_sequence(j), G_N_ELEMENTS(lengths));
    journal_close(j);

    j = open_good(directory, records);
    ck_assert_uint_eq(journal_sequence(j), G_N_ELEMENTS(lengths));
    ck_assert_uint_eq(records->len, G_N_ELEMENTS(lengths));
    for (size_t i = 0; i < records->len; i++) {
        gsize length;
        const uint8_t *record = g_bytes_get_data(records->pdata[i], &length);

        ck_assert_uint_eq(length, lengths[i] + 1);
        ck_assert_uint_eq(record[0], 200 + i);
        ck_assert_int_eq(memcmp(record + 1, data, lengths[i]), 0);
    }
    journal_close(j);
    g_free(data);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(what_was_not_committed_is_not_read_back)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);

    ck_assert_int_eq(journal_append(j, 1, "a", 1), 0);
    ck_assert_int_eq(journal_commit(j), 0);
    ck_assert_int_eq(journal_append(j, 2, "b", 1), 0);
    journal_close(j);
    journal_close(open_good(directory, records));
    ck_assert_uint_eq(records->len, 1);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(too_long_a_record_is_refused_and_harms_nothing)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records);
    size_t length = 16 * 1024 * 1024;
    void *data = g_malloc0(length);

    ck_assert_int_eq(journal_append(j, 1, data, length), -EMSGSIZE);
    ck_assert_int_eq(journal_append(j, 1, data, length - 9), 0);
    ck_assert_int_eq(journal_commit(j), 0);
    journal_close(j);
    journal_close(open_good(directory, records));
    ck_assert_uint_eq(records->len, 1);
    g_free(data);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(tail_torn_at_any_byte_is_cut_off_and_reported)
{
    GArray *ends = write_records(4);
    GBytes *whole = scratch_read(directory, "journal");
    const uint8_t *data = g_bytes_get_data(whole, NULL);
    size_t from = END(ends, 3), to = END(ends, 4);
    uint64_t cut;
    guint count;

    for (size_t length = from; length < to; length++) {
        ck_assert_msg(open_bytes(data, length, &count, &cut) == 0, "%s", error);
        ck_assert_uint_eq(count, 3);
        ck_assert_uint_eq(cut, length - from);
    }
    g_bytes_unref(whole);
    g_array_unref(ends);
}
END_TEST

START_TEST(tail_of_zeros_is_cut_off)
{
    GArray *ends = write_records(3);
    GBytes *whole = scratch_read(directory, "journal");
    size_t from = END(ends, 2), to = END(ends, 3);
    uint64_t cut;
    uint8_t *data = g_memdup2(g_bytes_get_data(whole, NULL), to);
    guint count;

    for (size_t zero = to; zero-- > from;) {
        data[zero] = 0;
        if (memcmp(data, g_bytes_get_data(whole, NULL), to) == 0)
            continue;
        ck_assert_msg(open_bytes(data, to, &count, &cut) == 0, "%s", error);
        ck_assert_uint_eq(count, 2);
        ck_assert_uint_eq(cut, to - from);
    }
    g_free(data);
    g_bytes_unref(whole);
    g_array_unref(ends);
}
END_TEST

/* Flips each bit of record `record` (from 0) of `count`. */
static void flip_each_bit(guint count, guint record)
{
    GArray *ends = write_records(count);
    GBytes *whole = scratch_read(directory, "journal");
    size_t from = END(ends, record), to = END(ends, record + 1), end = END(ends, count);
    uint64_t cut;
    uint8_t *data = g_memdup2(g_bytes_get_data(whole, NULL), end);
    char *where = g_strdup_printf("offset %zu ", from);
    guint replayed;

    for (size_t bit = from * 8; bit < to * 8; bit++) {
        int r;

        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        r = open_bytes(data, end, &replayed, &cut);
        ck_assert_uint_eq(replayed, record);
        if (record + 1 == count) {
            ck_assert_msg(r == 0, "%s", error);
            ck_assert_uint_eq(cut, end - from);
        } else {
            ck_assert_msg(r == -EBADMSG, "bit %zu of byte %zu: %d", bit % 8, bit / 8, r);
            ck_assert_ptr_nonnull(strstr(error, where));
            ck_assert_ptr_null(strchr(error, '\n'));
        }
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    g_free(where);
    g_free(data);
    g_bytes_unref(whole);
    g_array_unref(ends);
}

START_TEST(flipped_bit_in_the_middle_refuses_with_the_offset)
{
    flip_each_bit(4, 1);
}
END_TEST

START_TEST(flipped_bit_in_the_last_but_one_refuses_with_the_offset)
{
    flip_each_bit(3, 1);
}
END_TEST

START_TEST(flipped_bit_in_the_last_record_is_a_torn_tail)
{
    flip_each_bit(3, 2);
}
END_TEST

START_TEST(flipped_bit_in_the_header_refuses)
{
    GArray *ends = write_records(2);
    GBytes *whole = scratch_read(directory, "journal");
    gsize length = g_bytes_get_size(whole);
    uint8_t *data = g_memdup2(g_bytes_get_data(whole, NULL), length);
    uint64_t cut;
    guint count;

    for (uint64_t bit = 0; bit < END(ends, 0) * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert_int_eq(open_bytes(data, length, &count, &cut), -EBADMSG);
        ck_assert_uint_eq(count, 0);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    data[8]++; /* as a later leasefs would have it */
    uint32_t sum = GUINT32_TO_LE(crc32c(0, data, 16));
    memcpy(data + 16, &sum, sizeof sum);
    ck_assert_int_eq(open_bytes(data, length, &count, &cut), -EBADMSG);
    ck_assert_msg(strstr(error, "format version") != NULL, "%s", error);
    ck_assert_msg(strstr(error, "has format version 2, and leasefs " PACKAGE_VERSION
                                " knows format versions up to 1: upgrade leasefs on this host") != NULL,
                  "%s", error);
    ck_assert_int_eq(open_bytes(data, 5, &count, &cut), -EBADMSG);
    ck_assert_int_eq(open_bytes("#!/bin/sh\nexit 0 # no journal at all\n", 37, &count, &cut), -EBADMSG);
    g_free(data);
    g_bytes_unref(whole);
    g_array_unref(ends);
}
END_TEST

/* Builds a journal from records of this one, by number, after its header. */
static int open_rearranged(const GArray *ends, const uint8_t *data, const char *order, guint *ret_count,
                           uint64_t *ret_cut)
{
    GByteArray *bytes = g_byte_array_new();
    int r;

    g_byte_array_append(bytes, data, (guint)END(ends, 0));
    for (; *order; order++) {
        guint i = (guint)(*order - '0');

        g_byte_array_append(bytes, data + END(ends, i), (guint)(END(ends, i + 1) - END(ends, i)));
    }
    r = open_bytes(bytes->data, bytes->len, ret_count, ret_cut);
    g_byte_array_unref(bytes);
    return r;
}

START_TEST(chain_finds_records_left_out_doubled_or_moved)
{
    GArray *ends = write_records(5);
    GBytes *whole = scratch_read(directory, "journal");
    const uint8_t *data = g_bytes_get_data(whole, NULL);
    static const struct {
        const char *order;
        guint good;
        int result;
    } cases[] = {
        {"01234", 5, 0},
        {"0234", 1, -EBADMSG}, /* left out */
        {"1234", 0, -EBADMSG},
        {"011234", 2, -EBADMSG}, /* doubled */
        {"02134", 1, -EBADMSG},  /* changed places */
        {"0123401234", 5, -EBADMSG},
        {"01233", 4, 0}, /* the last twice: nothing good follows, so it is cut off */
        {"0124", 3, 0},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        uint64_t cut;
        guint count;
        int r = open_rearranged(ends, data, cases[i].order, &count, &cut);

        ck_assert_msg(r == cases[i].result && count == cases[i].good, "%s: %d, %u good", cases[i].order, r, count);
    }
    g_bytes_unref(whole);
    g_array_unref(ends);
}
END_TEST

START_TEST(record_of_another_journal_is_not_taken)
{
    GArray *ends = write_records(3);
    GBytes *first = scratch_read(directory, "journal"), *second;
    GByteArray *mixed = g_byte_array_new();
    uint64_t cut;
    guint count;

    g_array_unref(ends);
    scratch_free(directory);
    directory = scratch_new();
    ends = write_records(3);
    second = scratch_read(directory, "journal");
    /* the same records, but for the random number in the header */
    g_byte_array_append(mixed, g_bytes_get_data(first, NULL), (guint)END(ends, 1));
    g_byte_array_append(mixed, (const uint8_t *)g_bytes_get_data(second, NULL) + END(ends, 1),
                        (guint)(END(ends, 3) - END(ends, 1)));
    ck_assert_int_eq(open_bytes(mixed->data, mixed->len, &count, &cut), 0);
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_eq(cut, END(ends, 3) - END(ends, 1));
    g_byte_array_unref(mixed);
    g_bytes_unref(first);
    g_bytes_unref(second);
    g_array_unref(ends);
}
END_TEST

static int refuse_second(void *arg, uint8_t type, const void *payload, size_t length)
{
    (void)arg, (void)payload, (void)length;
    return type == 2 ? -EPROTO : 0;
}

START_TEST(record_that_the_reader_refuses_refuses_the_start)
{
    GArray *ends = write_records(3);
    char *where = g_strdup_printf("offset %zu", END(ends, 1));
    struct journal *j;
    uint64_t cut;

    ck_assert_int_eq(journal_open(directory, refuse_second, NULL, &j, &cut, error, sizeof(error)), -EPROTO);
    ck_assert_ptr_nonnull(strstr(error, where));
    g_free(where);
    g_array_unref(ends);
}
END_TEST

START_TEST(second_opener_is_refused_with_the_name_of_the_first)
{
    GPtrArray *records = scratch_records();
    struct journal *j = open_good(directory, records), *second = NULL;
    char *pid = g_strdup_printf("(pid %d)", (int)getpid());
    uint64_t cut;

    ck_assert_int_eq(open_at(directory, records, &second, &cut), -EWOULDBLOCK);
    ck_assert_ptr_nonnull(strstr(error, pid));
    ck_assert_ptr_nonnull(strstr(error, directory));
    ck_assert_ptr_null(strchr(error, '\n'));
    ck_assert_ptr_null(second);
    journal_close(j);
    journal_close(open_good(directory, records));
    g_free(pid);
    g_ptr_array_unref(records);
}
END_TEST

static mode_t mode_of(const char *where, const char *name)
{
    char *path = g_build_filename(where, name, NULL);
    struct stat st;

    ck_assert_int_eq(g_stat(path, &st), 0);
    g_free(path);
    return st.st_mode & 07777;
}

START_TEST(nobody_else_can_read_it)
{
    GPtrArray *records = scratch_records();
    char *deep = g_build_filename(directory, "a", "b", "c", NULL);
    mode_t old = umask(0);
    struct journal *j = open_good(deep, records);

    ck_assert_uint_eq(mode_of(directory, "a"), 0700);
    ck_assert_uint_eq(mode_of(directory, "a/b/c"), 0700);
    ck_assert_uint_eq(mode_of(deep, "journal"), 0600);
    ck_assert_uint_eq(mode_of(deep, "lock"), 0600);
    ck_assert_int_eq(journal_compact_begin(j), 0);
    ck_assert_uint_eq(mode_of(deep, "journal.new"), 0600);
    journal_close(j);
    umask(old);
    g_free(deep);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(directory_that_others_may_write_is_refused)
{
    GPtrArray *records = scratch_records();
    struct journal *j;
    uint64_t cut;

    ck_assert_int_eq(g_chmod(directory, 0770), 0);
    ck_assert_int_eq(open_at(directory, records, &j, &cut), -EACCES);
    ck_assert_ptr_nonnull(strstr(error, "chmod 700"));
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(directory_of_another_user_is_refused)
{
    GPtrArray *records = scratch_records();
    struct journal *j;
    uint64_t cut;

    ck_assert_int_eq(chown(directory, 65534, 65534), 0);
    ck_assert_int_eq(open_at(directory, records, &j, &cut), -EACCES);
    ck_assert_ptr_nonnull(strstr(error, "belongs to user 65534"));
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(directory_that_is_a_link_is_refused)
{
    GPtrArray *records = scratch_records();
    char *target = g_build_filename(directory, "target", NULL), *link = g_build_filename(directory, "link", NULL);
    struct journal *j;
    uint64_t cut;

    ck_assert_int_eq(g_mkdir(target, 0700), 0);
    ck_assert_int_eq(symlink(target, link), 0);
    ck_assert_int_lt(open_at(link, records, &j, &cut), 0);
    ck_assert_ptr_nonnull(strstr(error, "symbolic link"));
    ck_assert_int_eq(unlink(link), 0);
    ck_assert_int_eq(g_rmdir(target), 0);
    g_free(link);
    g_free(target);
    g_ptr_array_unref(records);
}
END_TEST

/* A link, a pipe, a directory or a file of somebody else where one of ours should be. */
START_TEST(what_is_no_regular_file_of_ours_is_refused)
{
    static const char *const names[] = {"lock", "journal", "journal.new"};
    GPtrArray *records = scratch_records();
    char *path = g_build_filename(directory, names[_i], NULL), *other = g_build_filename(directory, "other", NULL);
    struct journal *j;
    uint64_t cut;

    ck_assert_int_eq(symlink(other, path), 0);
    ck_assert_int_eq(open_at(directory, records, &j, &cut), -EACCES);
    ck_assert_ptr_nonnull(strstr(error, path));
    ck_assert(!g_file_test(other, G_FILE_TEST_EXISTS));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(open_at(directory, records, &j, &cut), -EACCES);
    ck_assert_ptr_nonnull(strstr(error, "not a regular file"));
    ck_assert_int_eq(unlink(path), 0);
    if (geteuid() == 0) {
        scratch_write(directory, names[_i], "", 0);
        ck_assert_int_eq(chown(path, 65534, 65534), 0);
        ck_assert_int_eq(open_at(directory, records, &j, &cut), -EACCES);
        ck_assert_int_eq(unlink(path), 0);
    }
    g_free(other);
    g_free(path);
    g_ptr_array_unref(records);
}
END_TEST

START_TEST(path_through_a_file_is_refused)
{
    GPtrArray *records = scratch_records();
    char *through;
    struct journal *j;
    uint64_t cut;

    scratch_write(directory, "file", "", 0);
    through = g_build_filename(directory, "file", "below", NULL);
    ck_assert_int_eq(open_at(through, records, &j, &cut), -ENOTDIR);
    ck_assert_ptr_nonnull(strstr(error, through));
    g_free(through);
    g_ptr_array_unref(records);
}
END_TEST

static Suite *journal_suite(void)
{
    Suite *suite = suite_create("journal");
    TCase *reading = tcase_create("reading"), *damage = tcase_create("damage"), *access = tcase_create("access");

    tcase_add_checked_fixture(reading, setup, teardown);
    tcase_add_test(reading, checksum_is_crc32c_with_and_without_the_instruction);
    tcase_add_test(reading, records_are_read_back_in_order_as_they_were);
    tcase_add_test(reading, what_was_not_committed_is_not_read_back);
    tcase_add_test(reading, too_long_a_record_is_refused_and_harms_nothing);
    tcase_add_test(reading, record_that_the_reader_refuses_refuses_the_start);
    suite_add_tcase(suite, reading);

    tcase_add_checked_fixture(damage, setup, teardown);
    tcase_set_timeout(damage, 120);
    tcase_add_test(damage, tail_torn_at_any_byte_is_cut_off_and_reported);
    tcase_add_test(damage, tail_of_zeros_is_cut_off);
    tcase_add_test(damage, flipped_bit_in_the_middle_refuses_with_the_offset);
    tcase_add_test(damage, flipped_bit_in_the_last_but_one_refuses_with_the_offset);
    tcase_add_test(damage, flipped_bit_in_the_last_record_is_a_torn_tail);
    tcase_add_test(damage, flipped_bit_in_the_header_refuses);
    tcase_add_test(damage, chain_finds_records_left_out_doubled_or_moved);
    tcase_add_test(damage, record_of_another_journal_is_not_taken);
    suite_add_tcase(suite, damage);

    tcase_add_checked_fixture(access, setup, teardown);
    tcase_add_test(access, second_opener_is_refused_with_the_name_of_the_first);
    tcase_add_test(access, nobody_else_can_read_it);
    tcase_add_test(access, directory_that_others_may_write_is_refused);
    check_add_where(check_may(CAP_CHOWN), "with CAP_CHOWN", access, directory_of_another_user_is_refused);
    tcase_add_test(access, directory_that_is_a_link_is_refused);
    tcase_add_loop_test(access, what_is_no_regular_file_of_ours_is_refused, 0, 3);
    tcase_add_test(access, path_through_a_file_is_refused);
    suite_add_tcase(suite, access);
    return suite;
}

int main(void)
{
    return check_main(journal_suite());
}
