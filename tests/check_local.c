/* check_local: what the local backend promises beyond the contract: reboots,
 * fencing tokens over crashes, sync=always, disks that fail, and idleness.
 *
 * A crash is what a copy of the directory shows; disk.h makes writes and syncs
 * fail.  Calls go through the driver of the contract.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check_main.h"
#include "contract/contract.h"
#include "disk.h"
#include "journal.h"
#include "local.h"
#include "log.h"
#include "scratch.h"

static char *directory;
static struct local_options options;
static char error[512];

static struct backend *open_at(const char *where)
{
    struct local_options at = options;
    struct backend *b = NULL;

    at.directory = where;
    ck_assert_msg(local_new(&at, &b, error, sizeof(error)) == 0, "%s", error);
    return b;
}

static struct backend *open_new(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    directory = scratch_new();
    return open_at(directory);
}

static struct backend *open_new_synced(void)
{
    options.sync_always = true;
    return open_new();
}

static void clean(void)
{
    scratch_free(directory);
}

static const struct contract plain = {.open = open_new, .clean = clean};
static const struct contract synced = {.open = open_new_synced, .clean = clean};

static void setup(void)
{
    contract_use(&plain);
    contract_setup();
}

static void setup_synced(void)
{
    contract_use(&synced);
    contract_setup();
}

/* The backend as a daemon would find it that starts after this one was killed
 * now; the present one is ended. */
static void crash(void)
{
    char *copy = scratch_copy(directory);

    backend_free(contract_backend);
    scratch_free(directory);
    directory = copy;
    contract_start(open_at(directory));
}

static void restart(void)
{
    backend_free(contract_backend);
    contract_start(open_at(directory));
}

/* --- reboots --- */

START_TEST(reboot_gives_leases_a_full_term)
{
    struct contract_log log = {0}, marker = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &marker);
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    clock_ms acquired = ticket->acquired, deadline;
    struct backend_info info;

    claim.ttl = CONTRACT_SHORT;
    ck_assert_int_eq(contract_acquire("marker", &claim).result, BACKEND_OK);
    CONTRACT_UNTIL(marker.ended);
    options.boot_id = "another";
    restart();
    info = contract_stat("a");
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_int_eq(info.ttl, CONTRACT_LONG);
    ck_assert_int_gt(info.deadline, clock_now() + CONTRACT_LONG - CONTRACT_SHORT);
    /* the same moment by the wall clock, which here goes with the other */
    ck_assert_int_le(ABS(info.acquired - acquired), 1000);

    /* within that boot the deadline stays */
    deadline = info.deadline;
    crash();
    ck_assert_int_eq(contract_stat("a").deadline, deadline);
}
END_TEST

START_TEST(reboot_brings_back_what_would_have_expired)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    clock_ms deadline;

    claim.ttl = CONTRACT_SHORT;
    deadline = contract_acquire("a", &claim).ticket->deadline;
    backend_free(contract_backend);
    while (clock_now() < deadline)
        g_usleep(1000);
    options.boot_id = "another";
    contract_start(open_at(directory));
    ck_assert_int_eq(contract_stat("a").type, BACKEND_LOCK);
    CONTRACT_UNTIL(contract_stat("a").type == BACKEND_NOTHING);
}
END_TEST

START_TEST(what_was_found_expired_does_not_come_back_after_a_reboot)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    clock_ms deadline;

    claim.ttl = CONTRACT_SHORT;
    deadline = contract_acquire("a", &claim).ticket->deadline;
    backend_free(contract_backend);
    while (clock_now() < deadline)
        g_usleep(1000);
    contract_start(open_at(directory));
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    options.boot_id = "another";
    crash();
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(unknown_boot_counts_as_another)
{
    struct contract_log log = {0};
    clock_ms deadline;

    options.boot_id = "";
    restart();
    deadline = contract_get("a", BACKEND_LEASE, &log)->deadline;
    while (clock_now() == deadline - CONTRACT_LONG)
        g_usleep(100);
    restart();
    ck_assert_int_gt(contract_stat("a").deadline, deadline);
}
END_TEST

START_TEST(crash_while_the_journal_is_rewritten_after_a_reboot_loses_nothing)
{
    struct contract_log log = {0};
    char *copy;

    contract_get("a", BACKEND_LEASE, &log);
    backend_free(contract_backend);
    contract_start(open_at(directory));
    copy = scratch_copy(directory);
    scratch_write(copy, "journal.new", "half a jour", 11);
    backend_free(contract_backend);
    options.boot_id = "another";
    contract_start(open_at(copy));
    ck_assert_str_eq(contract_list("", 10), "a");
    scratch_free(directory);
    directory = copy;
}
END_TEST

/* --- numbers --- */

START_TEST(tokens_never_repeat_over_crashes_and_clean_ends)
{
    GRand *random = g_rand_new_with_seed(scratch_seed());
    uint64_t last = 0;

    for (int i = 0; i < 60; i++) {
        static const enum backend_kind kinds[] = {BACKEND_LEASE, BACKEND_FLOCK, BACKEND_PROVISIONAL};
        int given = g_rand_int_range(random, 0, 5);

        while (given--) {
            struct contract_log log = {0};
            struct backend_ticket *ticket = contract_get("a", kinds[g_rand_int_range(random, 0, 3)], &log);

            ck_assert_uint_gt(ticket->fence, last);
            last = ticket->fence;
            ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
        }
        switch (g_rand_int_range(random, 0, 3)) {
        case 0:
            restart();
            break;
        case 1:
            crash();
            break;
        default:
            options.boot_id = g_rand_int_range(random, 0, 2) ? "one" : "other";
            restart();
        }
    }
    g_rand_free(random);
}
END_TEST

START_TEST(numbers_of_a_queue_never_repeat_over_crashes)
{
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, NULL);
    char last[64] = "", name[64];

    claim.sequence = claim.wait = true;
    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    for (int i = 0; i < 20; i++) {
        struct contract_log log = {0};
        struct backend_ticket *ticket;

        claim.user = &log;
        ticket = contract_acquire("q/job-", &claim).ticket;
        ck_assert_ptr_nonnull(ticket);
        ck_assert(backend_name(contract_backend, ticket, name, sizeof(name)));
        ck_assert_str_gt(name, last);
        g_strlcpy(last, name, sizeof(last));
        ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
        if (i % 3 == 0)
            crash();
    }
}
END_TEST

static uint64_t take_tokens(int count)
{
    struct contract_log log = {0};
    uint64_t last = 0;

    while (count--) {
        struct backend_ticket *ticket = contract_get("a", BACKEND_FLOCK, &log);

        ck_assert_uint_gt(ticket->fence, last);
        last = ticket->fence;
        ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    }
    return last;
}

START_TEST(tokens_are_reserved_ahead_without_holding_anybody_up)
{
    uint64_t last;

    options.fence_step = 8192;
    restart();
    for (int i = 0; i < 3; i++) {
        disk_hold_syncs(true);
        take_tokens(6000); /* more than half a step: the next one is asked for, and does not come */
        disk_hold_syncs(false);
        last = take_tokens(6000);
        crash();
        ck_assert_uint_gt(take_tokens(1), last);
    }
}
END_TEST

START_TEST(tokens_that_could_not_be_reserved_are_not_given)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    struct contract_acquired acquired;
    uint64_t last = 0;

    options.fence_step = 8192;
    restart();
    disk_fail_syncs(EIO, 0);
    for (int i = 0; i < 10000; i++) {
        acquired = contract_acquire("a", &claim);
        if (acquired.result != BACKEND_OK)
            break;
        last = acquired.ticket->fence;
        ck_assert_int_eq(contract_release(acquired.ticket), BACKEND_OK);
    }
    ck_assert_int_eq(acquired.result, BACKEND_UNREACHABLE);
    disk_fail_syncs(0, 0);
    crash();
    ck_assert_uint_gt(take_tokens(1), last);
}
END_TEST

/* --- sync=always --- */

struct told {
    int count;
    enum backend_result result;
};

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    struct told *told = arg;

    (void)ticket, (void)holder;
    told->count++;
    told->result = result;
    contract_end_turn();
}

static void on_done(void *arg, enum backend_result result)
{
    struct told *told = arg;

    told->count++;
    told->result = result;
    contract_end_turn();
}

/* A turn of the loop with something in it: the end of a short lock that needs
 * no journal. */
static void let_time_pass(void)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);

    claim.ttl = 50;
    ck_assert_int_eq(contract_acquire("marker", &claim).result, BACKEND_OK);
    CONTRACT_UNTIL(log.ended);
}

START_TEST(synced_calls_complete_after_the_sync_and_not_before)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct told acquired = {0}, set = {0}, released = {0};
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("text")};
    struct backend_ticket *ticket;

    disk_hold_syncs(true);
    ticket = backend_acquire(contract_backend, "a", &claim, on_acquired, &acquired);
    backend_set(contract_backend, ticket, &change, on_done, &set);
    let_time_pass();
    ck_assert_int_eq(acquired.count + set.count, 0);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(acquired.count && set.count);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
    ck_assert_int_eq(set.result, BACKEND_OK);

    disk_hold_syncs(true);
    backend_release(contract_backend, ticket, on_done, &released);
    let_time_pass();
    ck_assert_int_eq(released.count, 0);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(released.count);
    ck_assert_int_eq(released.result, BACKEND_OK);
}
END_TEST

START_TEST(ticket_released_before_its_sync_is_not_told)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct told acquired = {0}, released = {0};
    struct backend_ticket *ticket;

    disk_hold_syncs(true);
    ticket = backend_acquire(contract_backend, "a", &claim, on_acquired, &acquired);
    backend_release(contract_backend, ticket, on_done, &released);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(released.count);
    let_time_pass();
    ck_assert_int_eq(acquired.count, 0);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(turn_in_a_queue_is_told_after_the_sync)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);
    struct backend_ticket *ticket;

    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    claim.sequence = claim.wait = true;
    ticket = contract_acquire("q/job-", &claim).ticket;
    claim.user = &log[1];
    ck_assert_int_eq(contract_acquire("q/job-", &claim).result, BACKEND_QUEUED);
    disk_hold_syncs(true);
    backend_release(contract_backend, ticket, NULL, NULL);
    let_time_pass();
    ck_assert_uint_eq(log[1].granted, 0);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(log[1].granted);
}
END_TEST

START_TEST(failed_sync_refuses_what_waited_for_it)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct told acquired = {0};

    disk_hold_syncs(true);
    disk_fail_syncs(EIO, 0);
    ck_assert_ptr_nonnull(backend_acquire(contract_backend, "a", &claim, on_acquired, &acquired));
    disk_hold_syncs(false);
    CONTRACT_UNTIL(acquired.count);
    disk_fail_syncs(0, 0);
    ck_assert_int_eq(acquired.result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
    contract_get("a", BACKEND_FLOCK, &log);
}
END_TEST

/* --- disks that fail --- */

START_TEST(full_disk_refuses_new_leases_and_keeps_what_is_held)
{
    struct contract_log log[5] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[4]);
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[0]), *flock, *other;
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("text")};
    struct backend_directory wide = {.width = 5};
    struct backend_renewal renewal = {.ticket = ticket, .ttl = 2 * CONTRACT_LONG};

    other = contract_get("b", BACKEND_LEASE, &log[1]);
    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    flock = contract_get("flock", BACKEND_FLOCK, &log[2]);
    log_set_level(LOG_LEVEL_ERROR);
    disk_fail_writes(ENOSPC);
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE);
    disk_fail_writes(0); /* and it stays so: the journal cannot be trusted any more */
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_convert(flock, &claim), BACKEND_UNREACHABLE);
    ck_assert_int_eq(flock->kind, BACKEND_FLOCK);
    ck_assert_int_eq(contract_set(ticket, &change), BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_rename(ticket, "new"), BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_mkdir("e", NULL), BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_rmdir("d"), BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_set_directory("d", &wide), BACKEND_UNREACHABLE);
    ck_assert_str_eq(contract_list("", 10), "a b d/ flock");
    ck_assert_ptr_null(contract_stat("a").content);
    ck_assert_uint_eq(contract_stat("d").directory.width, 1);

    backend_renew(contract_backend, &renewal, 1);
    ck_assert_int_gt(ticket->deadline, clock_now() + CONTRACT_LONG);
    contract_get("handle", BACKEND_FLOCK, &log[3]);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_release(flock), BACKEND_OK);
    ck_assert_int_eq(contract_release(other), BACKEND_OK);
}
END_TEST

/* The write fails under the call itself, so that what it did must be undone. */
START_TEST(call_under_which_the_write_fails_changes_nothing)
{
    enum { ACQUIRE, CONVERT, SET, RENAME, MKDIR, RMDIR, SET_DIRECTORY };
    struct contract_log log[3] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[1]);
    struct backend_ticket *flock = contract_get("flock", BACKEND_FLOCK, &log[2]);
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("text")};
    struct backend_directory wide = {.width = 5};
    enum backend_result result = BACKEND_OK;

    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    disk_fail_writes(EIO);
    switch (_i) {
    case ACQUIRE:
        result = contract_acquire("new", &claim).result;
        break;
    case CONVERT:
        result = contract_convert(flock, &claim);
        break;
    case SET:
        result = contract_set(ticket, &change);
        break;
    case RENAME:
        result = contract_rename(ticket, "new");
        break;
    case MKDIR:
        result = contract_mkdir("e", NULL);
        break;
    case RMDIR:
        result = contract_rmdir("d");
        break;
    case SET_DIRECTORY:
        result = contract_set_directory("d", &wide);
        break;
    default:
        ck_abort();
    }
    disk_fail_writes(0);
    ck_assert_int_eq(result, BACKEND_UNREACHABLE);
    ck_assert_str_eq(contract_list("", 10), "a d/ flock");
    ck_assert_ptr_eq(contract_stat("a").ticket, ticket);
    ck_assert_ptr_null(contract_stat("a").content);
    ck_assert_int_eq(contract_stat("flock").kind, BACKEND_FLOCK);
    ck_assert_uint_eq(contract_stat("d").directory.width, 1);
    crash();
    ck_assert_str_eq(contract_list("", 10), "a d/");
}
END_TEST

START_TEST(turn_that_cannot_be_written_is_lost_not_believed)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);
    struct backend_ticket *ticket;

    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    claim.sequence = claim.wait = true;
    ticket = contract_acquire("q/job-", &claim).ticket;
    claim.user = &log[1];
    ck_assert_int_eq(contract_acquire("q/job-", &claim).result, BACKEND_QUEUED);
    disk_fail_writes(EIO);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    CONTRACT_UNTIL(log[1].ended);
    disk_fail_writes(0);
    ck_assert_int_eq(log[1].why, BACKEND_LOST);
    ck_assert_uint_eq(log[1].granted, 0);
}
END_TEST

START_TEST(start_on_a_full_disk_says_so)
{
    struct local_options at = options;
    char *empty = scratch_new();
    struct backend *b;

    at.directory = empty;
    disk_fail_writes(ENOSPC);
    ck_assert_int_eq(local_new(&at, &b, error, sizeof(error)), -ENOSPC);
    disk_fail_writes(0);
    ck_assert_ptr_nonnull(strstr(error, "No space left"));
    ck_assert_ptr_null(strchr(error, '\n'));
    scratch_free(empty);
}
END_TEST

START_TEST(second_user_of_a_directory_is_told_who_has_it)
{
    struct local_options at = options;
    struct backend *b;

    at.directory = directory;
    ck_assert_int_eq(local_new(&at, &b, error, sizeof(error)), -EWOULDBLOCK);
    ck_assert_ptr_nonnull(strstr(error, "in use by another leasefs (pid "));
    ck_assert_ptr_nonnull(strstr(error, "local:DIR"));
}
END_TEST

START_TEST(record_of_another_version_is_refused)
{
    struct local_options at = options;
    struct backend *b;
    struct journal *j;
    uint64_t cut;
    char *other = scratch_new();

    ck_assert_int_eq(journal_open(other, scratch_collect, NULL, &j, &cut, error, sizeof(error)), 0);
    ck_assert_int_eq(journal_append(j, 77, "?", 1), 0);
    ck_assert_int_eq(journal_commit(j), 0);
    journal_close(j);
    at.directory = other;
    ck_assert_int_eq(local_new(&at, &b, error, sizeof(error)), -EPROTO);
    ck_assert_ptr_nonnull(strstr(error, "offset 20"));
    scratch_free(other);
}
END_TEST

/* --- idleness --- */

/* When the process's only timerfd goes off, from /proc: seconds; 0: never. */
static double alarm_in(void)
{
    DIR *dir = opendir("/proc/self/fdinfo");
    struct dirent *entry;
    double found = -1;

    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir))) {
        char *path = g_build_filename("/proc/self/fdinfo", entry->d_name, NULL), *text = NULL;
        const char *value;
        long seconds, nanoseconds;

        if (g_file_get_contents(path, &text, NULL, NULL) && (value = strstr(text, "it_value: (")) &&
            sscanf(value, "it_value: (%ld, %ld)", &seconds, &nanoseconds) == 2)
            found = (double)seconds + (double)nanoseconds / 1e9;
        g_free(text);
        g_free(path);
    }
    closedir(dir);
    ck_assert(found >= 0);
    return found;
}

START_TEST(alarm_is_set_for_the_earliest_deadline_and_off_when_nothing_is_held)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);

    ck_assert(alarm_in() == 0);
    contract_get("a", BACKEND_LEASE, &log[1]);
    claim.ttl = CONTRACT_SHORT;
    ck_assert_int_eq(contract_acquire("b", &claim).result, BACKEND_OK);
    CONTRACT_UNTIL(log[0].ended);
    let_time_pass();
    ck_assert(alarm_in() > CONTRACT_LONG / 2000.0);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    CONTRACT_UNTIL(log[1].ended);
    claim.ttl = 1;
    log[0].ended = 0;
    restart();
    ck_assert(alarm_in() == 0);
    ck_assert_int_eq(contract_acquire("b", &claim).result, BACKEND_OK);
    CONTRACT_UNTIL(log[0].ended);
    contract_list("", 10);
    ck_assert(alarm_in() == 0);
}
END_TEST

START_TEST(memory_keeps_nothing)
{
    struct backend *b;

    options.directory = NULL;
    ck_assert_int_eq(local_new(&options, &b, error, sizeof(error)), 0);
    ck_assert_str_eq(b->name, "memory");
    ck_assert_str_eq(contract_backend->name, "local");
    backend_free(b);
}
END_TEST

static Suite *local_suite(void)
{
    Suite *suite = suite_create("local");
    TCase *boots = tcase_create("boots"), *numbers = tcase_create("numbers"), *sync = tcase_create("sync");
    TCase *faults = tcase_create("faults"), *idle = tcase_create("idle");

    tcase_add_checked_fixture(boots, setup, contract_teardown);
    tcase_set_timeout(boots, 30);
    tcase_add_test(boots, reboot_gives_leases_a_full_term);
    tcase_add_test(boots, reboot_brings_back_what_would_have_expired);
    tcase_add_test(boots, what_was_found_expired_does_not_come_back_after_a_reboot);
    tcase_add_test(boots, unknown_boot_counts_as_another);
    tcase_add_test(boots, crash_while_the_journal_is_rewritten_after_a_reboot_loses_nothing);
    suite_add_tcase(suite, boots);

    tcase_add_checked_fixture(numbers, setup, contract_teardown);
    tcase_set_timeout(numbers, 60);
    tcase_add_test(numbers, tokens_never_repeat_over_crashes_and_clean_ends);
    tcase_add_test(numbers, numbers_of_a_queue_never_repeat_over_crashes);
    tcase_add_test(numbers, tokens_are_reserved_ahead_without_holding_anybody_up);
    tcase_add_test(numbers, tokens_that_could_not_be_reserved_are_not_given);
    suite_add_tcase(suite, numbers);

    tcase_add_checked_fixture(sync, setup_synced, contract_teardown);
    tcase_set_timeout(sync, 30);
    tcase_add_test(sync, synced_calls_complete_after_the_sync_and_not_before);
    tcase_add_test(sync, ticket_released_before_its_sync_is_not_told);
    tcase_add_test(sync, turn_in_a_queue_is_told_after_the_sync);
    tcase_add_test(sync, failed_sync_refuses_what_waited_for_it);
    suite_add_tcase(suite, sync);

    tcase_add_checked_fixture(faults, setup, contract_teardown);
    tcase_set_timeout(faults, 30);
    tcase_add_test(faults, full_disk_refuses_new_leases_and_keeps_what_is_held);
    tcase_add_loop_test(faults, call_under_which_the_write_fails_changes_nothing, 0, 7);
    tcase_add_test(faults, turn_that_cannot_be_written_is_lost_not_believed);
    tcase_add_test(faults, start_on_a_full_disk_says_so);
    tcase_add_test(faults, second_user_of_a_directory_is_told_who_has_it);
    tcase_add_test(faults, record_of_another_version_is_refused);
    suite_add_tcase(suite, faults);

    tcase_add_checked_fixture(idle, setup, contract_teardown);
    tcase_set_timeout(idle, 30);
    tcase_add_test(idle, alarm_is_set_for_the_earliest_deadline_and_off_when_nothing_is_held);
    tcase_add_test(idle, memory_keeps_nothing);
    suite_add_tcase(suite, idle);
    return suite;
}

int main(void)
{
    return check_main(local_suite());
}
