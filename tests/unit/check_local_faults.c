/* check_local_faults: sync=always, and disks that fail, by disk.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "backend/journal/journal.h"
#include "backend/local/record.h"
#include "backend/log.h"
#include "tests/support/check_main.h"
#include "tests/support/disk.h"
#include "tests/support/scratch.h"
#include "tests/unit/local_fixture.h"

/* --- sync=always --- */

struct reported {
    int count;
    enum backend_result result;
};

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    struct reported *reported = arg;

    (void)ticket, (void)holder;
    reported->count++;
    reported->result = result;
    contract_end_turn();
}

static void on_done(void *arg, enum backend_result result)
{
    struct reported *reported = arg;

    reported->count++;
    reported->result = result;
    contract_end_turn();
}

START_TEST(synced_calls_complete_after_the_sync_and_not_before)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct reported acquired = {0}, set = {0}, released = {0};
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("text")};
    struct backend_ticket *ticket;

    disk_hold_syncs(true);
    ticket = backend_acquire(contract_backend, "a", &claim, on_acquired, &acquired);
    backend_set(contract_backend, ticket, &change, on_done, &set);
    local_let_time_pass();
    ck_assert_int_eq(acquired.count + set.count, 0);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(acquired.count && set.count);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
    ck_assert_int_eq(set.result, BACKEND_OK);

    disk_hold_syncs(true);
    backend_release(contract_backend, ticket, on_done, &released);
    local_let_time_pass();
    ck_assert_int_eq(released.count, 0);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(released.count);
    ck_assert_int_eq(released.result, BACKEND_OK);
}
END_TEST

START_TEST(ticket_released_before_its_sync_is_not_reported)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct reported acquired = {0}, released = {0};
    struct backend_ticket *ticket;

    disk_hold_syncs(true);
    ticket = backend_acquire(contract_backend, "a", &claim, on_acquired, &acquired);
    backend_release(contract_backend, ticket, on_done, &released);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(released.count);
    local_let_time_pass();
    ck_assert_int_eq(acquired.count, 0);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(grant_in_a_queue_is_reported_after_the_sync)
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
    local_let_time_pass();
    ck_assert_uint_eq(log[1].granted, 0);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(log[1].granted);
}
END_TEST

START_TEST(number_of_a_queue_is_reported_after_the_sync)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    struct reported acquired = {0};

    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    claim.sequence = claim.wait = true;
    disk_hold_syncs(true);
    backend_acquire(contract_backend, "q/job-", &claim, on_acquired, &acquired);
    local_let_time_pass();
    ck_assert_int_eq(acquired.count, 0);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(acquired.count);
    ck_assert_int_eq(acquired.result, BACKEND_OK);
}
END_TEST

START_TEST(failed_sync_refuses_what_waited_for_it)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct reported acquired = {0};

    disk_hold_syncs(true);
    disk_fail_syncs(EIO, 0);
    ck_assert_ptr_nonnull(backend_acquire(contract_backend, "a", &claim, on_acquired, &acquired));
    disk_hold_syncs(false);
    CONTRACT_UNTIL(acquired.count);
    disk_fail_syncs(0, 0);
    ck_assert_int_eq(acquired.result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
    claim.kind = BACKEND_FLOCK; /* which is to outlive the daemon, too */
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_UNREACHABLE);
}
END_TEST

/* --- disks that fail --- */

/* The sync serves the next start; the conversion counts now even if the sync fails. */
START_TEST(lease_that_became_a_handle_lock_is_one_also_when_the_sync_failed)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct backend_ticket *ticket = contract_acquire("a", &claim).ticket;
    struct reported converted = {0};

    claim.kind = BACKEND_FLOCK;
    disk_hold_syncs(true);
    disk_fail_syncs(EIO, 0);
    backend_convert(contract_backend, ticket, &claim, on_done, &converted);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(converted.count);
    disk_fail_syncs(0, 0);
    ck_assert_int_eq(ticket->kind, BACKEND_FLOCK);
    ck_assert_int_eq(converted.result, BACKEND_OK);
}
END_TEST

/* After a failed rename its user looks for the lease by its old name.  _i: 1: another holds the old name by now; 2: the
 * lease has ended, and another holds the new name. */
START_TEST(rename_whose_sync_fails_leaves_the_old_name)
{
    struct contract_log log[2] = {{0}};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[0]), *flock = NULL;
    struct reported renamed = {0}, revoked = {0};
    const char *there = _i == 2 ? "b" : "a", *other = _i == 2 ? "a" : "b";
    uint64_t fence = 0;

    disk_hold_syncs(true);
    disk_fail_syncs(EIO, 0);
    backend_rename(contract_backend, ticket, "b", NULL, on_done, &renamed);
    if (_i == 2) {
        backend_revoke(contract_backend, "b", ticket->fence, on_done, &revoked);
    }
    if (_i) {
        flock = contract_get(there, BACKEND_FLOCK, &log[1]);
        fence = flock->fence;
    }
    disk_hold_syncs(false);
    CONTRACT_UNTIL(renamed.count);
    disk_fail_syncs(0, 0);
    ck_assert_int_eq(renamed.result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_stat(other).type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_stat(there).kind, _i ? BACKEND_FLOCK : BACKEND_LEASE);
    if (_i) {
        ck_assert_ptr_eq(contract_stat(there).ticket, flock);
        ck_assert_uint_eq(flock->fence, fence);
        CONTRACT_UNTIL(log[0].ended);
        ck_assert_int_eq(log[0].why, _i == 2 ? BACKEND_RELEASED : BACKEND_LOST);
    }
}
END_TEST

START_TEST(failed_disk_refuses_new_leases_and_keeps_what_is_held)
{
    struct contract_log log[4] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[3]);
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log[0]), *flock, *other;
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes("text")};
    struct backend_directory wide = {.width = 5};
    struct backend_renewal renewal = {.ticket = ticket, .ttl = 2 * CONTRACT_LONG};

    other = contract_get("b", BACKEND_LEASE, &log[1]);
    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    flock = contract_get("flock", BACKEND_FLOCK, &log[2]);
    log_set_level(LOG_LEVEL_ERROR);
    disk_fail_writes(EIO);
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE);
    disk_fail_writes(0); /* and it stays so: the journal cannot be trusted any more */
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE);
    claim.kind = BACKEND_PROVISIONAL; /* whose close could not be refused any more */
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE);
    claim.kind = BACKEND_LEASE;
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
    claim.kind = BACKEND_FLOCK;
    ck_assert_int_eq(contract_acquire("handle", &claim).result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_release(flock), BACKEND_OK);
    ck_assert_int_eq(contract_release(other), BACKEND_OK);
}
END_TEST

/* Takes leases until one is refused because the disk is full; how many. */
static int fill_up(void)
{
    static struct contract_log log;
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    struct contract_acquired acquired;
    char name[16];
    int taken = 0;

    claim.content = contract_bytes("some text that takes room");
    do {
        g_snprintf(name, sizeof(name), "fill%d", taken);
        acquired = contract_acquire(name, &claim);
        taken += acquired.result == BACKEND_OK;
    } while (acquired.result == BACKEND_OK);
    ck_assert_int_eq(acquired.result, BACKEND_FULL);
    return taken;
}

/* A reported number never comes again, even if its ticket was not kept. */
START_TEST(failed_disk_gives_no_number_that_it_cannot_keep)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    claim.sequence = claim.wait = true;
    log_set_level(LOG_LEVEL_ERROR);
    disk_fail_writes(EIO);
    ck_assert_int_eq(contract_acquire("q/job-", &claim).result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_acquire("q/job-", &claim).result, BACKEND_UNREACHABLE);
    disk_fail_writes(0);
    ck_assert_str_eq(contract_list("q", 10), "");
}
END_TEST

START_TEST(full_disk_refuses_new_leases_renews_and_releases_and_recovers)
{
    struct contract_log log[5] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[4]);
    struct backend_ticket *kept, *released, *flock;
    char *before, *text = g_strnfill(8192, 'x');
    struct backend_change change = {.set = BACKEND_SET_CONTENT, .content = contract_bytes(text)};
    struct backend_renewal renewal;

    claim.ttl = 2000;
    kept = contract_acquire("kept", &claim).ticket;
    renewal = (struct backend_renewal){.ticket = kept, .ttl = 2000};
    claim.ttl = CONTRACT_LONG;
    released = contract_get("released", BACKEND_LEASE, &log[1]);
    ck_assert_int_eq(contract_mkdir("d", NULL), BACKEND_OK);
    flock = contract_get("flock", BACKEND_FLOCK, &log[2]);
    log_set_level(LOG_LEVEL_ERROR);
    disk_fail_room(ENOSPC);
    ck_assert_int_gt(fill_up(), 100);
    before = g_strdup(contract_list("", 1000));

    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_FULL);
    claim.kind = BACKEND_PROVISIONAL;
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_FULL);
    claim.kind = BACKEND_LEASE;
    ck_assert_int_eq(contract_set(kept, &change), BACKEND_FULL);
    ck_assert_int_eq(contract_rename(kept, "new"), BACKEND_FULL);
    ck_assert_int_eq(contract_mkdir("e", NULL), BACKEND_FULL);
    ck_assert_str_eq(contract_list("", 1000), before);

    /* renewed past its first deadline; released: both as it is after a crash */
    for (clock_ms since = clock_now(); clock_now() < since + 2500; local_let_time_pass())
        backend_renew(contract_backend, &renewal, 1);
    ck_assert_uint_eq(log[4].ended, 0);
    renewal.ttl = CONTRACT_LONG; /* a longer term has no room */
    backend_renew(contract_backend, &renewal, 1);
    ck_assert_int_eq(kept->ttl, 2000);
    ck_assert_int_eq(contract_release(released), BACKEND_OK);
    ck_assert_int_eq(contract_release(flock), BACKEND_OK);
    local_crash();
    ck_assert_int_eq(contract_stat("released").type, BACKEND_NOTHING);
    ck_assert_int_eq(contract_stat("kept").type, BACKEND_LOCK);
    ck_assert_int_gt(contract_stat("kept").deadline, clock_now() + 1000);
    ck_assert_int_eq(contract_stat("fill7").type, BACKEND_LOCK);

    disk_fail_room(0);
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_OK);
    ck_assert_int_eq(contract_mkdir("e", NULL), BACKEND_OK);
    g_free(before);
    g_free(text);
}
END_TEST

/* Renewals are missing in the journal, so the start would write a new one. */
START_TEST(start_without_room_for_a_new_journal_goes_on_with_the_old_one)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    claim.ttl = 2000;
    struct backend_renewal renewal = {.ticket = contract_acquire("kept", &claim).ticket, .ttl = 2000};
    log_set_level(LOG_LEVEL_ERROR);
    disk_fail_room(ENOSPC);
    ck_assert_int_gt(fill_up(), 100);
    for (int i = 0; i < 1000; i++) { /* the first ones still have room */
        backend_renew(contract_backend, &renewal, 1);
    }
    backend_free(contract_backend);
    disk_plan(DISK_WRITE, 0, ENOSPC, NULL); /* the first of the new journal */
    contract_start(local_open_at(local_directory));
    ck_assert(disk_happened());
    ck_assert_int_eq(contract_stat("kept").type, BACKEND_LOCK);
    disk_fail_room(0);
}
END_TEST

/* The compacted journal has a mark after the copied deadlines: a later deadline may be missing. */
START_TEST(lease_renewed_without_room_while_the_journal_is_compacted_has_a_full_term_after_a_crash)
{
    struct contract_log log = {0};
    struct backend_renewal renewal = {.ticket = contract_get("a", BACKEND_LEASE, &log), .ttl = CONTRACT_LONG};
    g_autofree char *new_file = g_build_filename(local_directory, "journal.new", NULL);

    log_set_level(LOG_LEVEL_ERROR);
    disk_fail_room(ENOSPC);
    ck_assert_int_gt(fill_up(), 600);      /* more than are copied in one turn */
    for (int turn = 0; turn < 2; turn++) { /* compaction begins, and copies the lease */
        contract_poll();
        g_usleep(5000);
        backend_renew(contract_backend, &renewal, 1);
    }
    ck_assert(g_file_test(new_file, G_FILE_TEST_EXISTS));
    CONTRACT_UNTIL(!g_file_test(new_file, G_FILE_TEST_EXISTS));
    clock_ms began = clock_now();
    local_crash();
    ck_assert_int_ge(contract_stat("a").deadline, began + CONTRACT_LONG);
    disk_fail_room(0);
}
END_TEST

/* All held locks can be released, and none comes back after a crash.  1: after compaction, which gives reserved room
 * back, has failed. */
START_TEST(everything_can_be_released_on_a_full_disk)
{
    struct contract_log log = {0};
    char name[16];
    ck_assert_int_eq(contract_release(contract_get("first", BACKEND_LEASE, &log)), BACKEND_OK); /* reserves room */
    log_set_level(LOG_LEVEL_ERROR);
    disk_fail_room(ENOSPC);
    int taken = fill_up();
    ck_assert_int_gt(taken, 100);
    disk_fail_writes(ENOSPC);
    if (_i) {
        local_let_time_pass();
    }
    for (int i = 0; i < taken; i++) {
        g_snprintf(name, sizeof(name), "fill%d", i);
        ck_assert_int_eq(contract_revoke(name, 0), BACKEND_OK);
    }
    disk_fail_writes(0);
    local_crash();
    ck_assert_msg(!*contract_list("", 10), "a released lock is back"); /* the list is too long for a message */
    disk_fail_room(0);
}
END_TEST

/* A close is answered before what it makes is written down. */
START_TEST(all_leases_that_closes_make_have_their_room_on_a_full_disk)
{
    enum { MANY = 4000 };
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(_i ? BACKEND_FLOCK : BACKEND_PROVISIONAL, &log);
    struct backend_ticket *tickets[MANY];
    char name[16];
    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    claim.sequence = claim.wait = _i;
    for (int i = 0; i < MANY; i++) {
        g_snprintf(name, sizeof(name), _i ? "q/job-" : "p%d", i);
        tickets[i] = contract_acquire(name, &claim).ticket;
        ck_assert_ptr_nonnull(tickets[i]);
    }
    disk_fail_room(ENOSPC);
    claim.kind = BACKEND_LEASE;
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(contract_convert(tickets[i], &claim), BACKEND_OK);
    }
    log_set_level(LOG_LEVEL_ERROR);
    claim = contract_claim(BACKEND_FLOCK, &log);
    claim.sequence = true;
    fill_up();
    ck_assert_int_eq(contract_acquire("q/late-", &claim).result, BACKEND_FULL);
    disk_fail_room(0);
}
END_TEST

/* Its lock owner's earlier ticket is gone: a failing journal must not take the lock away. */
START_TEST(record_lock_that_joins_another_as_the_journal_fails_leaves_both)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, &log);
    struct backend_ticket *ticket;

    claim.lock_owner = claim.handle = 7;
    claim.end = 9;
    ck_assert_int_eq(contract_acquire("a", &claim).result, BACKEND_OK);
    log_set_level(LOG_LEVEL_ERROR);
    disk_fail_writes(EIO);
    claim.start = 20;
    claim.end = 29;
    ticket = contract_acquire("a", &claim).ticket;
    disk_fail_writes(0);
    ck_assert_ptr_nonnull(ticket);
    ck_assert(ticket->joined);
    claim.lock_owner = claim.handle = 8;
    claim.start = 5;
    claim.end = 6;
    ck_assert_int_ne(contract_acquire("a", &claim).result, BACKEND_OK);
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
}
END_TEST

/* A filesystem that gives no room ahead: the ends follow when there is room again. */
START_TEST(release_that_found_no_room_is_written_later)
{
    struct contract_log log[3] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[2]);
    struct backend_ticket *ticket[2];
    struct backend_status status;

    disk_fail_room(EOPNOTSUPP);
    for (int i = 0; i < 2; i++)
        ticket[i] = contract_get(i ? "b" : "a", BACKEND_LEASE, &log[i]);
    log_set_level(LOG_LEVEL_ERROR);
    disk_fail_writes(ENOSPC);
    ck_assert_int_eq(contract_release(ticket[0]), BACKEND_OK);
    ck_assert_int_eq(contract_release(ticket[1]), BACKEND_OK);
    ck_assert_int_eq(contract_acquire("c", &claim).result, BACKEND_FULL);
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    backend_status(contract_backend, &status);
    ck_assert_uint_eq(status.warnings->len, 1);
    ck_assert_ptr_nonnull(strstr(g_ptr_array_index(status.warnings, 0), "come back after a crash"));
    backend_status_clear(&status);
    disk_fail_writes(0);
    ck_assert_int_eq(contract_acquire("c", &claim).result, BACKEND_OK);
    local_crash();
    ck_assert_str_eq(contract_list("", 10), "c");
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
    local_crash();
    ck_assert_str_eq(contract_list("", 10), "a d/ flock");
    ck_assert_int_eq(contract_stat("flock").kind, BACKEND_FLOCK);
}
END_TEST

START_TEST(grant_that_cannot_be_written_is_lost)
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

START_TEST(status_shows_the_journal_and_since_when_and_why_it_failed)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);
    struct backend_status status;
    uint64_t bytes, records;
    clock_ms began;

    backend_status(contract_backend, &status);
    ck_assert(!status.away && status.has_journal && !status.has_connections);
    ck_assert_ptr_null(status.why);
    ck_assert_int_le(status.since, clock_now());
    ck_assert_int_eq(strncmp(status.address, "local:/", 7), 0);
    ck_assert_str_eq(status.address + 6, local_directory);
    ck_assert_uint_eq(status.details->len, 1);
    ck_assert_str_eq(g_ptr_array_index(status.details, 0), "sync: no");
    bytes = status.journal_bytes;
    records = status.journal_records;
    began = status.since;
    backend_status_clear(&status);

    contract_get("a", BACKEND_LEASE, &log[1]);
    backend_status(contract_backend, &status);
    ck_assert_uint_gt(status.journal_bytes, bytes);
    ck_assert_uint_gt(status.journal_records, records);
    backend_status_clear(&status);

    disk_fail_room(ENOSPC);
    fill_up();
    backend_status(contract_backend, &status);
    ck_assert(!status.away);
    ck_assert_uint_eq(status.warnings->len, 1);
    ck_assert_ptr_nonnull(strstr(g_ptr_array_index(status.warnings, 0), "the disk is full"));
    backend_status_clear(&status);
    disk_fail_room(0);
    backend_status(contract_backend, &status);
    ck_assert_uint_eq(status.warnings->len, 0);
    backend_status_clear(&status);

    disk_fail_writes(EIO);
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE);
    disk_fail_writes(0);
    backend_status(contract_backend, &status);
    ck_assert(status.away);
    ck_assert_int_ge(status.since, began);
    ck_assert_ptr_nonnull(strstr(status.why, "Input/output error"));
    backend_status_clear(&status);
}
END_TEST

START_TEST(start_on_a_full_disk_says_so)
{
    struct local_options at = local_options;
    char *empty = scratch_new();
    struct backend *b;

    at.directory = empty;
    disk_fail_writes(ENOSPC);
    ck_assert_int_eq(local_new(&at, &b, local_error, sizeof(local_error)), -ENOSPC);
    disk_fail_writes(0);
    ck_assert_ptr_nonnull(strstr(local_error, "No space left"));
    ck_assert_ptr_null(strchr(local_error, '\n'));
    scratch_free(empty);
}
END_TEST

START_TEST(second_user_of_a_directory_learns_who_has_it)
{
    struct local_options at = local_options;
    struct backend *b;

    at.directory = local_directory;
    ck_assert_int_eq(local_new(&at, &b, local_error, sizeof(local_error)), -EWOULDBLOCK);
    ck_assert_ptr_nonnull(strstr(local_error, "in use by another leasefs (pid "));
    ck_assert_ptr_nonnull(strstr(local_error, "give another directory"));
}
END_TEST

static void rename_in(const char *directory, const char *from, const char *to)
{
    char *old = g_build_filename(directory, from, NULL), *new = g_build_filename(directory, to, NULL);

    ck_assert_int_eq(rename(old, new), 0);
    g_free(old);
    g_free(new);
}

static void remove_in(const char *directory, const char *name)
{
    char *path = g_build_filename(directory, name, NULL);

    ck_assert_int_eq(unlink(path), 0);
    g_free(path);
}

/* As an administrator's mistake, or a second daemon behind it, leaves the files. */
static void displace(int how, const char *aside)
{
    struct local_options at = local_options;
    struct backend *second;

    at.directory = local_directory;
    switch (how) {
    case 0: /* removed */
        ck_assert_int_eq(rename(local_directory, aside), 0);
        break;
    case 1: /* replaced, and used by another */
        ck_assert_int_eq(rename(local_directory, aside), 0);
        ck_assert_int_eq(local_new(&at, &second, local_error, sizeof(local_error)), 0);
        backend_free(second);
        break;
    case 2: /* the lock file removed, and used by another */
        remove_in(local_directory, "lock");
        ck_assert_int_eq(local_new(&at, &second, local_error, sizeof(local_error)), 0);
        backend_free(second);
        break;
    case 3: /* the journal removed */
        remove_in(local_directory, "journal");
        break;
    default: /* the journal replaced */
        scratch_write(local_directory, "other", "", 0);
        rename_in(local_directory, "other", "journal");
    }
}

static bool read_only; /* the file system of the journal */

int fstatfs(int fd, struct statfs *fs)
{
    int result = (int)syscall(SYS_fstatfs, fd, fs);
    fs->f_flags |= read_only ? ST_RDONLY : 0;
    return result;
}

/* After an error of the disk the kernel makes the file system read-only.  Without a sync no write fails: it stays in
 * memory. */
START_TEST(store_whose_file_system_became_read_only_grants_nothing_more)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);
    struct backend_ticket *lease = contract_get("a", BACKEND_LEASE, &log[1]);
    struct backend_status status;
    clock_ms began = clock_now();
    while (clock_now() == began)
        continue;
    read_only = true;
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE);
    backend_status(contract_backend, &status);
    ck_assert(status.away);
    ck_assert_ptr_nonnull(strstr(status.why, "Read-only file system"));
    backend_status_clear(&status);
    ck_assert_int_eq(contract_release(lease), BACKEND_OK);
    read_only = false;
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE); /* the journal has a gap */
}
END_TEST

START_TEST(store_that_was_removed_or_replaced_grants_nothing_more)
{
    struct contract_log log[5] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log[0]);
    struct backend_claim range = contract_claim(BACKEND_FCNTL, &log[0]);
    struct backend_ticket *lease = contract_get("a", BACKEND_LEASE, &log[1]);
    struct backend_ticket *flock = contract_get("flock", BACKEND_FLOCK, &log[2]);
    struct backend_renewal renewal = {.ticket = lease, .ttl = 2 * CONTRACT_LONG};
    struct backend_status status;
    char *aside = scratch_new();
    clock_ms began = clock_now();

    contract_queue("flock", BACKEND_EXCLUSIVE, &log[3]);
    displace(_i, aside);
    while (clock_now() == began)
        continue;
    range.end = 9;
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE);
    claim.kind = BACKEND_FLOCK;
    ck_assert_int_eq(contract_acquire("new", &claim).result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_acquire("new", &range).result, BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_convert(lease, &claim), BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_rename(lease, "new"), BACKEND_UNREACHABLE);
    ck_assert_int_eq(contract_mkdir("new", NULL), BACKEND_UNREACHABLE);

    backend_status(contract_backend, &status);
    ck_assert(status.away);
    ck_assert_int_ge(status.since, began);
    ck_assert_ptr_nonnull(strstr(status.why, "removed or replaced"));
    backend_status_clear(&status);

    /* what is held stays so, but nobody follows */
    backend_renew(contract_backend, &renewal, 1);
    ck_assert_int_gt(lease->deadline, clock_now() + CONTRACT_LONG);
    ck_assert_int_eq(contract_release(flock), BACKEND_OK);
    CONTRACT_UNTIL(log[3].ended);
    ck_assert_int_eq(log[3].why, BACKEND_LOST);
    ck_assert_uint_eq(log[3].granted, 0);
    ck_assert_str_eq(contract_list("", 10), "a");
    ck_assert_int_eq(contract_release(lease), BACKEND_OK);
    scratch_free(aside);
}
END_TEST

START_TEST(record_of_another_version_is_refused)
{
    struct local_options at = local_options;
    struct backend *b;
    struct journal *j;
    uint64_t cut;
    char *other = scratch_new();

    ck_assert_int_eq(journal_open(other, scratch_collect, NULL, &j, &cut, local_error, sizeof(local_error)), 0);
    ck_assert_int_eq(journal_append(j, 77, "?", 1), 0);
    ck_assert_int_eq(journal_commit(j), 0);
    journal_close(j);
    at.directory = other;
    ck_assert_int_eq(local_new(&at, &b, local_error, sizeof(local_error)), -EPROTO);
    ck_assert_ptr_nonnull(strstr(local_error, "offset 20"));
    scratch_free(other);
}
END_TEST

/* The start of a store whose journal has these two records. */
static int start_with(const struct local_session *session, const GByteArray *lease)
{
    struct local_options at = local_options;
    struct backend *b;
    struct journal *j;
    uint64_t cut;
    char *other = scratch_new();
    GByteArray *record = g_byte_array_new();

    ck_assert_int_eq(journal_open(other, scratch_collect, NULL, &j, &cut, local_error, sizeof(local_error)), 0);
    local_record_session(record, session);
    ck_assert_int_eq(journal_append(j, LOCAL_SESSION, record->data, record->len), 0);
    ck_assert_int_eq(journal_append(j, LOCAL_LEASE, lease->data, lease->len), 0);
    ck_assert_int_eq(journal_commit(j), 0);
    journal_close(j);
    at.directory = other;
    int result = local_new(&at, &b, local_error, sizeof(local_error));
    if (result == 0)
        backend_free(b);
    g_byte_array_unref(record);
    scratch_free(other);
    return result;
}

/* With these the deadlines after a reboot would be no numbers. */
START_TEST(record_with_a_time_that_no_clock_shows_is_refused)
{
    static const struct local_session sessions[] = {
        {INT64_MAX, 1, "x"}, {1, INT64_MAX, "x"}, {1, INT64_MIN, "x"}, {1, 1, "x"}};
    static const struct local_lease leases[] = {
        {.name = "l", .fence = 7, .flags = LOCAL_LEASE_HELD, .ttl = 1000, .acquired = 1, .deadline = 2000},
        {.name = "l", .fence = 7, .flags = LOCAL_LEASE_HELD, .ttl = INT64_MAX, .acquired = 1, .deadline = 2000},
        {.name = "l", .fence = 7, .flags = LOCAL_LEASE_HELD, .ttl = 1000, .acquired = INT64_MIN, .deadline = 2000},
    };
    bool good_session = _i == G_N_ELEMENTS(sessions) - 1;

    for (size_t i = 0; i < G_N_ELEMENTS(leases); i++) {
        GByteArray *record = g_byte_array_new();
        local_record_lease(record, &leases[i]);
        ck_assert_int_eq(start_with(&sessions[_i], record), good_session && i == 0 ? 0 : -EPROTO);
        g_byte_array_unref(record);
    }
}
END_TEST

/* _i: 1: the name has no NUL at its end; 2: it has two. */
START_TEST(record_whose_name_does_not_end_where_it_should_is_refused)
{
    static const struct local_session session = {1, 1, "x"};
    static const struct local_lease lease = {
        .name = "name", .flags = LOCAL_LEASE_HELD, .ttl = 1000, .acquired = 1, .deadline = 2000};
    GByteArray *record = g_byte_array_new();

    local_record_lease(record, &lease);
    char *name = memmem(record->data, record->len, "name", sizeof("name"));
    name[4] = _i == 1 ? 'x' : '\0';
    name[1] = _i == 2 ? '\0' : 'a';
    ck_assert_int_eq(start_with(&session, record), _i == 0 ? 0 : -EPROTO);
    g_byte_array_unref(record);
}
END_TEST

static Suite *local_faults_suite(void)
{
    Suite *suite = suite_create("local faults");
    TCase *sync = tcase_create("sync"), *faults = tcase_create("faults");

    tcase_add_checked_fixture(sync, local_setup_synced, contract_teardown);
    tcase_set_timeout(sync, 30);
    tcase_add_test(sync, synced_calls_complete_after_the_sync_and_not_before);
    tcase_add_test(sync, ticket_released_before_its_sync_is_not_reported);
    tcase_add_test(sync, grant_in_a_queue_is_reported_after_the_sync);
    tcase_add_test(sync, number_of_a_queue_is_reported_after_the_sync);
    tcase_add_test(sync, failed_sync_refuses_what_waited_for_it);
    tcase_add_test(sync, lease_that_became_a_handle_lock_is_one_also_when_the_sync_failed);
    tcase_add_loop_test(sync, rename_whose_sync_fails_leaves_the_old_name, 0, 3);
    suite_add_tcase(suite, sync);

    tcase_add_checked_fixture(faults, local_setup, contract_teardown);
    tcase_set_timeout(faults, 30);
    tcase_add_test(faults, failed_disk_refuses_new_leases_and_keeps_what_is_held);
    tcase_add_test(faults, failed_disk_gives_no_number_that_it_cannot_keep);
    tcase_add_test(faults, full_disk_refuses_new_leases_renews_and_releases_and_recovers);
    tcase_add_test(faults, start_without_room_for_a_new_journal_goes_on_with_the_old_one);
    tcase_add_test(faults, lease_renewed_without_room_while_the_journal_is_compacted_has_a_full_term_after_a_crash);
    tcase_add_loop_test(faults, everything_can_be_released_on_a_full_disk, 0, 2);
    tcase_add_loop_test(faults, all_leases_that_closes_make_have_their_room_on_a_full_disk, 0, 2);
    tcase_add_test(faults, record_lock_that_joins_another_as_the_journal_fails_leaves_both);
    tcase_add_test(faults, release_that_found_no_room_is_written_later);
    tcase_add_loop_test(faults, call_under_which_the_write_fails_changes_nothing, 0, 7);
    tcase_add_test(faults, grant_that_cannot_be_written_is_lost);
    tcase_add_test(faults, status_shows_the_journal_and_since_when_and_why_it_failed);
    tcase_add_test(faults, start_on_a_full_disk_says_so);
    tcase_add_test(faults, second_user_of_a_directory_learns_who_has_it);
    tcase_add_test(faults, store_whose_file_system_became_read_only_grants_nothing_more);
    tcase_add_loop_test(faults, store_that_was_removed_or_replaced_grants_nothing_more, 0, 5);
    tcase_add_test(faults, record_of_another_version_is_refused);
    tcase_add_loop_test(faults, record_with_a_time_that_no_clock_shows_is_refused, 0, 4);
    tcase_add_loop_test(faults, record_whose_name_does_not_end_where_it_should_is_refused, 0, 3);
    suite_add_tcase(suite, faults);
    return suite;
}

int main(void)
{
    return check_main(local_faults_suite());
}
