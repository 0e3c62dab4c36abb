/* check_keep_deaths: a daemon that dies before any of its stores into kept memory loses no request and no record. */
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/keep/memory.h"
#include "tests/support/check_main.h"

#define STORES_MAX 200

static struct keep *keep;
static char error[512];
static int reports[2]; /* a byte for each step that the dying process has finished */

static void report(void)
{
    ssize_t written = write(reports[1], "", 1);
    (void)written;
}

static void land(uint64_t unique, size_t length)
{
    char *buffer = keep_request_buffer(keep);
    struct fuse_in_header header = {.len = (uint32_t)length, .unique = unique};
    memcpy(buffer, &header, sizeof header);
    report(); /* read(2) has returned */
}

/* Reports: 1 landed, 2 landed, 3 the first is done, 4 the third landed, 5 a record is there, 6 it is gone. */
static void live(void)
{
    uint64_t number;
    keep_begin(keep);
    land(2, 100);
    struct keep_request *first = keep_request_landed(keep, 100);
    keep_request_take(keep);
    land(4, 20000);
    keep_request_landed(keep, 20000);
    keep_request_take(keep);
    keep_request_done(keep, first);
    report();
    land(6, 60);
    keep_request_landed(keep, 60);
    keep_request_take(keep);
    struct keep_table *nodes = keep_table(keep, KEEP_NODES);
    uint64_t *record = keep_record_new(nodes, &number);
    KEEP_STORE(*record, number);
    keep_record_commit(nodes, record);
    report();
    keep_record_free(nodes, record);
    report();
}

static int seen[8];

static void see(struct keep_request *slot, void *arg)
{
    struct keep *next = arg;
    uint64_t unique = keep_request_unique(next, slot);
    ck_assert_uint_lt(unique, 8);
    ck_assert_int_eq(seen[unique]++, 0);
    ck_assert_uint_eq(((const struct fuse_in_header *)keep_request_message(next, slot))->len, slot->length);
}

/* What must be there after so many reports; the step under way may have its effect or not. */
static void check_next(int steps)
{
    struct keep *next = NULL;
    ck_assert_msg(keep_attach(fcntl(keep_fd(keep), F_DUPFD_CLOEXEC, 3), &next, error, sizeof error) == 0, "%s", error);
    memset(seen, 0, sizeof seen);
    keep_requests_pending(next, see, next);
    ck_assert(steps != 1 || seen[2]);
    ck_assert(steps < 3 || !seen[2]);
    ck_assert(steps < 2 || seen[4]);
    ck_assert(steps < 4 || seen[6]);
    const uint64_t *record = keep_record_next(keep_table(next, KEEP_NODES), NULL);
    if (record) {
        ck_assert_uint_eq(*record, keep_record_number(keep_table(next, KEEP_NODES), record));
    }
    ck_assert(steps < 6 || !record);
    keep_begin(next);
    keep_free(next);
}

static int stores_left;

static void count_store(void)
{
    if (--stores_left == 0) {
        kill(getpid(), SIGKILL);
    }
}

/* False if the process did not die. */
static bool die_at(int store)
{
    struct keep_sizes sizes = {.small = 70, .large = 2, .tables = {{8, 4}, {8, 4}}};
    char bytes[16];
    int status;
    ck_assert_msg(keep_create(&sizes, &keep, error, sizeof error) == 0, "%s", error);
    ck_assert_int_eq(pipe(reports), 0);
    pid_t child = fork();
    if (child == 0) {
        stores_left = store;
        keep_on_store = count_store;
        live();
        _exit(0);
    }
    close(reports[1]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ssize_t steps = read(reports[0], bytes, sizeof bytes);
    close(reports[0]);
    check_next((int)steps);
    keep_free(keep);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

START_TEST(no_store_is_a_bad_moment_to_die)
{
    int store = 1;
    while (store < STORES_MAX && die_at(store)) {
        store++;
    }
    ck_assert_int_gt(store, 20);
    ck_assert_int_lt(store, STORES_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("keep_deaths");
    TCase *cases = tcase_create("keep_deaths");
    tcase_add_test(cases, no_store_is_a_bad_moment_to_die);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
