/* check_keep: what one daemon leaves in kept memory, the next one finds; and it refuses what is damaged. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/keep/memory.h"
#include "tests/support/check_main.h"

static struct keep *keep;
static struct keep_sizes sizes;
static char error[512];
static uint64_t found[16];
static int count;

static void setup(void)
{
    sizes = (struct keep_sizes){.small = 70, .large = 2, .tables = {{40, 4}, {8, 0}}};
    ck_assert_msg(keep_create(&sizes, &keep, error, sizeof error) == 0, "%s", error);
}

static void teardown(void)
{
    keep_free(keep);
}

/* The next daemon's. */
static struct keep *attach(void)
{
    struct keep *next = NULL;
    int fd = fcntl(keep_fd(keep), F_DUPFD_CLOEXEC, 3);
    ck_assert_msg(keep_attach(fd, &next, error, sizeof error) == 0, "%s", error);
    return next;
}

static struct keep_request *land(struct keep *k, uint64_t unique, size_t length)
{
    char *buffer = keep_request_buffer(k);
    struct fuse_in_header header = {.len = (uint32_t)length, .unique = unique};
    ck_assert_ptr_nonnull(buffer);
    memset(buffer, (int)(unique & 0x7f), length);
    memcpy(buffer, &header, sizeof header);
    struct keep_request *slot = keep_request_landed(k, length);
    ck_assert_ptr_nonnull(slot);
    ck_assert_ptr_eq(keep_request_take(k), slot);
    return slot;
}

static void collect(struct keep_request *slot, void *arg)
{
    ck_assert_int_lt(count, 16);
    found[count++] = keep_request_unique(arg, slot);
}

static void expect(struct keep *k, int n, const uint64_t *uniques)
{
    count = 0;
    keep_requests_pending(k, collect, k);
    ck_assert_int_eq(count, n);
    ck_assert_mem_eq(found, uniques, (size_t)n * sizeof *uniques);
}

START_TEST(requests_are_found_in_order)
{
    land(keep, 2, 100);
    struct keep_request *second = land(keep, 4, 200);
    land(keep, 6, 20000); /* large */
    keep_request_done(keep, second);
    land(keep, 8, 300); /* in the slot of the second */
    struct keep *next = attach();
    ck_assert_uint_eq(keep_nonce(next), keep_nonce(keep));
    expect(next, 3, (uint64_t[]){2, 6, 8});
    keep_free(next);
}
END_TEST

static void check_bytes(struct keep_request *slot, void *arg)
{
    const char *message = keep_request_message(arg, slot);
    for (uint32_t i = sizeof(struct fuse_in_header); i < slot->length; i++) {
        ck_assert_int_eq(message[i], (int)(keep_request_unique(arg, slot) & 0x7f));
    }
}

START_TEST(a_message_keeps_its_bytes)
{
    land(keep, 2, 700);
    land(keep, 4, KEEP_LANDING_SIZE);
    struct keep *next = attach();
    keep_requests_pending(next, check_bytes, next);
    expect(next, 2, (uint64_t[]){2, 4});
    keep_free(next);
}
END_TEST

START_TEST(a_message_that_only_landed_is_found)
{
    struct fuse_in_header header = {.len = 48, .unique = 12};
    land(keep, 2, 100);
    memcpy(keep_request_buffer(keep), &header, sizeof header);
    struct keep *next = attach();
    expect(next, 2, (uint64_t[]){2, 12});
    keep_free(next);
}
END_TEST

START_TEST(a_message_that_landed_and_was_copied_counts_once)
{
    char *buffer = keep_request_buffer(keep);
    land(keep, 2, 100);
    memcpy(buffer, &(struct fuse_in_header){.len = 100, .unique = 2}, sizeof(struct fuse_in_header));
    struct keep *next = attach();
    expect(next, 1, (uint64_t[]){2});
    keep_free(next);
}
END_TEST

START_TEST(nothing_is_read_while_no_slot_is_free)
{
    struct keep_request *first = land(keep, 2, 20000), *third;
    land(keep, 4, 20000);
    third = land(keep, 6, 20000); /* stays where it landed */
    ck_assert_ptr_null(keep_request_buffer(keep));
    struct keep *next = attach();
    expect(next, 3, (uint64_t[]){2, 4, 6});
    ck_assert_ptr_null(keep_request_buffer(next));
    keep_free(next);
    keep_request_done(keep, first);
    ck_assert_ptr_null(keep_request_buffer(keep));
    keep_request_done(keep, third);
    land(keep, 8, 20000);
    expect(keep, 2, (uint64_t[]){4, 8});
}
END_TEST

START_TEST(the_last_slots_are_not_for_requests_that_wait)
{
    for (uint64_t i = 1; i < 6; i++) {
        land(keep, 2 * i, 100);
        ck_assert(!keep_is_crowded(keep));
    }
    struct keep_request *sixth = land(keep, 12, 100);
    ck_assert(keep_is_crowded(keep));
    keep_request_done(keep, sixth);
    ck_assert(!keep_is_crowded(keep));
}
END_TEST

START_TEST(what_nobody_takes_is_done)
{
    char *buffer = keep_request_buffer(keep);
    memcpy(buffer, &(struct fuse_in_header){.len = 48, .unique = 2}, sizeof(struct fuse_in_header));
    ck_assert_ptr_nonnull(keep_request_landed(keep, 48));
    keep_request_settle(keep);
    expect(keep, 0, NULL);
    ck_assert_ptr_null(keep_request_landed(keep, 48));
}
END_TEST

static uint32_t deaths, interrupted;

static void look(struct keep_request *slot, void *arg)
{
    deaths = slot->deaths;
    interrupted = slot->interrupted;
    (void)arg;
}

START_TEST(a_death_counts_for_what_was_under_way)
{
    keep_begin(keep);
    struct keep_request *slot = land(keep, 2, 100);
    keep_request_interrupt(keep, 2);
    keep_request_interrupt(keep, 4);
    struct keep *next = attach();
    keep_begin(next);
    ck_assert_uint_eq(keep_generation(next), 2);
    keep_requests_pending(next, look, NULL);
    ck_assert_uint_eq(deaths, 1);
    ck_assert_uint_eq(interrupted, 1);
    keep_request_set_waiting(slot, true);
    keep_begin(next);
    keep_requests_pending(next, look, NULL);
    ck_assert_uint_eq(deaths, 1);
    keep_request_set_waiting(slot, false);
    keep_end(next);
    keep_begin(next); /* the one before has not died */
    keep_requests_pending(next, look, NULL);
    ck_assert_uint_eq(deaths, 1);
    keep_free(next);
}
END_TEST

START_TEST(numbers_are_never_used_twice)
{
    struct keep_table *t = keep_table(keep, KEEP_NODES);
    uint64_t a, b, c, number;
    char *record = keep_record_new(t, &a);
    ck_assert_uint_eq(keep_table_record_size(t), 40);
    memset(record, 7, 40);
    ck_assert_ptr_null(keep_record_find(t, a)); /* not yet */
    keep_record_commit(t, record);
    ck_assert_ptr_eq(keep_record_find(t, a), record);
    ck_assert_uint_eq(keep_record_number(t, record), a);
    keep_record_free(t, record);
    record = keep_record_new(t, &b);
    ck_assert_uint_ne(a, b);
    ck_assert_uint_ge(b, UINT64_C(1) << 32);
    ck_assert_int_eq(record[0], 0);
    keep_record_commit(t, record);
    ck_assert_ptr_null(keep_record_find(t, a));
    ck_assert_ptr_nonnull(keep_record_new(t, &c)); /* not committed */
    struct keep *next = attach();
    t = keep_table(next, KEEP_NODES);
    record = keep_record_next(t, NULL);
    ck_assert_ptr_nonnull(record);
    ck_assert_uint_eq(keep_record_number(t, record), b);
    ck_assert_ptr_null(keep_record_next(t, record));
    for (int i = 0; i < 3; i++) {
        ck_assert_ptr_nonnull(keep_record_new(t, &number));
        ck_assert_uint_ne(number, c);
    }
    ck_assert_ptr_null(keep_record_new(t, &number));
    ck_assert_ptr_null(keep_record_new(keep_table(next, KEEP_HANDLES), &number));
    keep_free(next);
}
END_TEST

START_TEST(the_lock_ends_with_its_process)
{
    int ends[2];
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        _exit(keep_lock(keep) == 0 && write(ends[1], "", 1) == 1 ? pause() : 1);
    }
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    ck_assert_int_eq(keep_try_lock(keep), -EBUSY);
    kill(child, SIGKILL);
    ck_assert_int_eq(keep_lock(keep), 0);
    waitpid(child, NULL, 0);
    keep_unlock(keep);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(the_head_is_kept)
{
    struct keep_init init = {.length = 5, .want = 1234, .message = "INIT"};
    ck_assert_ptr_null(keep_init(keep));
    keep_set_init(keep, &init);
    keep_set_term(keep, 2000);
    ck_assert(keep_set_options(keep, "allow_other"));
    struct keep *next = attach();
    ck_assert_uint_eq(keep_init(next)->want, 1234);
    ck_assert_str_eq(keep_init(next)->message, "INIT");
    ck_assert_int_eq(keep_term(next), 2000);
    ck_assert_str_eq(keep_options(next), "allow_other");
    keep_free(next);
}
END_TEST

/* Writes to `offset` of the head; the next daemon then refuses it with this reason. */
static void expect_refused(size_t offset, const char *reason)
{
    struct keep *next = NULL;
    char *head = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, keep_fd(keep), 0), was = head[offset];
    head[offset] = (char)(was + 9);
    ck_assert_int_lt(keep_attach(keep_fd(keep), &next, error, sizeof error), 0);
    ck_assert_msg(strstr(error, reason) != NULL, "%s", error);
    head[offset] = was;
    munmap(head, 4096);
}

START_TEST(another_format_is_refused)
{
    expect_refused(0, "another file");
    expect_refused(8, "has format 10, and this version reads format 1");
    expect_refused(32, "damaged"); /* the size */
}
END_TEST

START_TEST(another_file_is_refused)
{
    struct keep *next = NULL;
    int fd = memfd_create("other", MFD_CLOEXEC), null = open("/dev/null", O_RDWR);
    ck_assert_int_eq(ftruncate(fd, 1 << 20), 0);
    ck_assert_int_eq(keep_attach(fd, &next, error, sizeof error), -EINVAL);
    ck_assert_int_eq(keep_attach(null, &next, error, sizeof error), -EINVAL);
    close(fd);
    close(null);
}
END_TEST

START_TEST(a_damaged_request_is_refused)
{
    struct keep *next = NULL;
    struct keep_request *slot = land(keep, 2, 100);
    slot->large = 2;
    ck_assert_int_eq(keep_attach(keep_fd(keep), &next, error, sizeof error), -EIO);
    slot->large = 0;
    slot->length = 5000;
    ck_assert_int_eq(keep_attach(keep_fd(keep), &next, error, sizeof error), -EIO);
    slot->length = 100;
    struct keep *good = attach();
    keep_free(good);
}
END_TEST

START_TEST(the_default_sizes_cost_nothing)
{
    struct keep_sizes plenty;
    struct keep *big = NULL;
    keep_default_sizes(&plenty);
    ck_assert_msg(keep_create(&plenty, &big, error, sizeof error) == 0, "%s", error);
    keep_free(big);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("keep");
    TCase *cases = tcase_create("keep");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, requests_are_found_in_order);
    tcase_add_test(cases, a_message_keeps_its_bytes);
    tcase_add_test(cases, a_message_that_only_landed_is_found);
    tcase_add_test(cases, a_message_that_landed_and_was_copied_counts_once);
    tcase_add_test(cases, nothing_is_read_while_no_slot_is_free);
    tcase_add_test(cases, the_last_slots_are_not_for_requests_that_wait);
    tcase_add_test(cases, what_nobody_takes_is_done);
    tcase_add_test(cases, a_death_counts_for_what_was_under_way);
    tcase_add_test(cases, numbers_are_never_used_twice);
    tcase_add_test(cases, the_lock_ends_with_its_process);
    tcase_add_test(cases, the_head_is_kept);
    tcase_add_test(cases, another_format_is_refused);
    tcase_add_test(cases, another_file_is_refused);
    tcase_add_test(cases, a_damaged_request_is_refused);
    tcase_add_test(cases, the_default_sizes_cost_nothing);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
