/* check_local: the promises of the local backend beyond the contract: reboots, fencing tokens over crashes, and
 * idleness. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/journal/journal.h"
#include "backend/local/replay.h"
#include "tests/support/check_main.h"
#include "tests/support/disk.h"
#include "tests/support/scratch.h"
#include "tests/unit/local_fixture.h"

/* --- reboots --- */

START_TEST(reboot_gives_leases_a_full_term)
{
    struct contract_log log = {0};
    struct backend_ticket *ticket = contract_get("a", BACKEND_LEASE, &log);
    clock_ms acquired = ticket->acquired, deadline, rebooted;
    struct backend_info info;

    contract_pass(CONTRACT_SHORT);
    rebooted = clock_now();
    local_options.boot_id = "another";
    local_restart();
    info = contract_stat("a");
    ck_assert_int_eq(info.type, BACKEND_LOCK);
    ck_assert_int_eq(info.ttl, CONTRACT_LONG);
    ck_assert_int_ge(info.deadline, rebooted + CONTRACT_LONG);
    /* the same moment by the wall clock, which here goes with the other */
    ck_assert_int_le(ABS(info.acquired - acquired), 1000);

    /* within that boot the deadline stays */
    deadline = info.deadline;
    local_crash();
    ck_assert_int_eq(contract_stat("a").deadline, deadline);
}
END_TEST

START_TEST(term_that_was_set_is_there_after_a_crash)
{
    struct contract_log log = {0};
    struct backend_renewal renewal = {.ticket = contract_get("a", BACKEND_LEASE, &log), .ttl = 2 * CONTRACT_LONG};
    backend_renew(contract_backend, &renewal, 1);
    local_crash();
    ck_assert_int_eq(contract_stat("a").ttl, 2 * CONTRACT_LONG);
}
END_TEST

/* Less or more than by CLOCK_BOOTTIME alone. */
static int64_t wall_step;
static uint64_t wall_stands; /* what fencing tokens begin at; 0: the clock */

int64_t __real_clock_wall(void);
int64_t __wrap_clock_wall(void);
uint64_t __real_clock_wall_us(void);
uint64_t __wrap_clock_wall_us(void);

int64_t __wrap_clock_wall(void)
{
    return __real_clock_wall() + wall_step;
}

uint64_t __wrap_clock_wall_us(void)
{
    return wall_stands ? wall_stands : __real_clock_wall_us();
}

START_TEST(reboot_after_the_wall_clock_was_set_leaves_leases_their_age)
{
    static const int64_t hour = 3600 * 1000;
    struct contract_log log = {0};
    clock_ms before = contract_get("a", BACKEND_LEASE, &log)->acquired, after;

    wall_step = _i ? hour : -hour;
    after = contract_get("b", BACKEND_LEASE, &log)->acquired;
    local_options.boot_id = "another";
    local_crash();
    ck_assert_int_le(ABS(contract_stat("a").acquired - before), 1000);
    ck_assert_int_le(ABS(contract_stat("b").acquired - after), 1000);
    wall_step = 0;
}
END_TEST

START_TEST(handle_locks_end_with_their_host)
{
    struct contract_log log[2] = {{0}};

    contract_get("flock", BACKEND_FLOCK, &log[0]);
    contract_get("lease", BACKEND_LEASE, &log[1]);
    local_crash();
    ck_assert_str_eq(contract_list("", 10), "flock lease");
    local_options.boot_id = "another";
    local_crash();
    ck_assert_str_eq(contract_list("", 10), "lease");
}
END_TEST

/* A lease of "a" whose term ends while no daemon runs. */
static void expire_without_a_daemon(void)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    clock_ms deadline;

    claim.ttl = CONTRACT_SHORT;
    deadline = contract_acquire("a", &claim).ticket->deadline;
    backend_free(contract_backend);
    while (clock_now() < deadline)
        g_usleep(1000);
}

START_TEST(reboot_brings_back_what_would_have_expired)
{
    expire_without_a_daemon();
    local_options.boot_id = "another";
    contract_start(local_open_at(local_directory));
    ck_assert_int_eq(contract_stat("a").type, BACKEND_LOCK);
    CONTRACT_UNTIL(contract_stat("a").type == BACKEND_NOTHING);
}
END_TEST

START_TEST(what_was_found_expired_does_not_come_back_after_a_reboot)
{
    expire_without_a_daemon();
    contract_start(local_open_at(local_directory));
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
    local_options.boot_id = "another";
    local_crash();
    ck_assert_int_eq(contract_stat("a").type, BACKEND_NOTHING);
}
END_TEST

START_TEST(unknown_boot_counts_as_another)
{
    struct contract_log log = {0};
    clock_ms deadline;

    local_options.boot_id = "";
    local_restart();
    deadline = contract_get("a", BACKEND_LEASE, &log)->deadline;
    while (clock_now() == deadline - CONTRACT_LONG)
        g_usleep(100);
    local_restart();
    ck_assert_int_gt(contract_stat("a").deadline, deadline);
}
END_TEST

START_TEST(crash_while_the_journal_is_rewritten_after_a_reboot_loses_nothing)
{
    struct contract_log log = {0};
    char *copy;

    contract_get("a", BACKEND_LEASE, &log);
    backend_free(contract_backend);
    contract_start(local_open_at(local_directory));
    copy = scratch_copy(local_directory);
    scratch_write(copy, "journal.new", "half a jour", 11);
    backend_free(contract_backend);
    local_options.boot_id = "another";
    contract_start(local_open_at(copy));
    ck_assert_str_eq(contract_list("", 10), "a");
    scratch_free(local_directory);
    local_directory = copy;
}
END_TEST

static void ignore(void *context, struct backend_ticket *ticket)
{
    (void)context, (void)ticket;
}

/* A replay of COUNT leases that all end `left` milliseconds after the start. */
static struct lockspace *replayed(unsigned count, int64_t left)
{
    static const struct lockspace_listener nobody = {.due = ignore}; /* no other event of restored leases */
    struct lockspace *space = lockspace_new(&nobody, NULL, 1);
    struct local_session session = {.boot_id = "here"};
    struct local_replay *replay = local_replay_new();
    struct local_restored restored;
    GByteArray *record = g_byte_array_new();
    local_record_session(record, &session);
    ck_assert_int_eq(local_replay_record(replay, LOCAL_SESSION, record->data, record->len), 0);
    for (unsigned i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "lease%u", i);
        g_byte_array_set_size(record, 0);
        local_record_lease(
            record,
            &(struct local_lease){
                .name = name, .fence = i + 1, .flags = LOCAL_LEASE_HELD, .ttl = CONTRACT_LONG, .deadline = left});
        ck_assert_int_eq(local_replay_record(replay, LOCAL_LEASE, record->data, record->len), 0);
    }
    local_replay_restore(replay, space, &session, &restored);
    ck_assert_uint_eq(restored.leases, count);
    g_ptr_array_unref(restored.granted);
    g_array_unref(restored.gone);
    g_byte_array_unref(record);
    local_replay_free(replay);
    return space;
}

/* Otherwise all of them would be reported before the next answer. */
START_TEST(very_many_leases_are_due_one_after_the_other_but_in_time)
{
    struct lockspace *space = replayed(1000, CONTRACT_LONG);
    for (int ms = 1; ms <= 20; ms++) {
        ck_assert_uint_eq(lockspace_tick(space, ms, SIZE_MAX), 50);
    }
    ck_assert_uint_eq(lockspace_tick(space, 21, SIZE_MAX), 0);
    lockspace_free(space);
    space = replayed(1000, 20); /* they must be renewed before they end */
    ck_assert_uint_eq(lockspace_tick(space, 11, SIZE_MAX), 1000);
    lockspace_free(space);
}
END_TEST

/* A request is read between two turns. */
START_TEST(very_many_leases_that_end_together_end_in_many_turns)
{
    enum { COUNT = 2000, AT_ONCE = 128 };
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    char name[32];

    claim.ttl = CONTRACT_SHORT;
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "lease%d", i);
        ck_assert_int_eq(contract_acquire(name, &claim).result, BACKEND_OK);
    }
    g_usleep(2 * CONTRACT_SHORT * 1000);
    ck_assert_int_eq(contract_test(name, &claim).type, BACKEND_NOTHING); /* it has expired, and has not ended yet */
    while (log.ended < COUNT) {
        unsigned before = log.ended;
        contract_turn();
        ck_assert_uint_le(log.ended - before, AT_ONCE);
    }
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
            local_restart();
            break;
        case 1:
            local_crash();
            break;
        default:
            local_options.boot_id = g_rand_int_range(random, 0, 2) ? "one" : "other";
            local_restart();
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
        ck_assert(backend_ticket_name(contract_backend, ticket, name, sizeof(name)));
        ck_assert_str_gt(name, last);
        g_strlcpy(last, name, sizeof(last));
        ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
        if (i % 3 == 0)
            local_crash();
    }
}
END_TEST

static void take_number(const char *prefix, char name[64])
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_FLOCK, &log);
    claim.sequence = claim.wait = true;
    struct backend_ticket *ticket = contract_acquire(prefix, &claim).ticket;
    ck_assert_ptr_nonnull(ticket);
    ck_assert(backend_ticket_name(contract_backend, ticket, name, 64));
    ck_assert_int_eq(contract_release(ticket), BACKEND_OK);
}

START_TEST(numbers_of_a_queue_never_repeat_over_power_cuts)
{
    char last[64], name[64];
    const char *prefix = _i ? "q/job-" : "job-";
    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    local_restart();
    for (int cut = 0; cut < 3; cut++) {
        char *durable = scratch_copy(local_directory);
        for (int i = 0; i < 3; i++) {
            take_number(prefix, last);
        }
        backend_free(contract_backend);
        scratch_free(local_directory);
        local_directory = durable;
        local_options.boot_id = cut % 2 ? "one" : "other";
        contract_start(local_open_at(local_directory));
        take_number(prefix, name);
        ck_assert_str_gt(name, last);
        ck_assert_uint_eq(strlen(name), strlen(last)); /* ten digits: they do not follow the clock */
    }
}
END_TEST

START_TEST(numbers_of_a_queue_continue_without_a_gap_over_clean_ends)
{
    char name[64];
    ck_assert_int_eq(contract_mkdir("q", NULL), BACKEND_OK);
    for (int i = 0; i < 4; i++) {
        char *expected = g_strdup_printf("q/job-%010d", i);
        take_number("q/job-", name);
        ck_assert_str_eq(name, expected);
        g_free(expected);
        local_options.boot_id = i % 2 ? "one" : "other";
        local_restart();
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

#define STEP 65536

static void reserve_in_steps_of(uint32_t step)
{
    wall_stands = __real_clock_wall_us() + 1000000;
    local_options.fence_step = step;
    local_restart();
}

START_TEST(tokens_are_the_clock_or_behind_the_last)
{
    uint64_t last;

    wall_stands = __real_clock_wall_us() + 1000000;
    ck_assert_uint_eq(take_tokens(1), wall_stands);
    ck_assert_uint_eq(take_tokens(9), wall_stands + 9);
    wall_stands += 3600 * UINT64_C(1000000);
    ck_assert_uint_eq(last = take_tokens(1), wall_stands);
    wall_stands -= 1800 * UINT64_C(1000000); /* it was set */
    ck_assert_uint_eq(take_tokens(1), last + 1);
    local_restart();
    ck_assert_uint_eq(take_tokens(1), last + 2);
    wall_stands += 3600 * UINT64_C(1000000);
    ck_assert_uint_eq(take_tokens(1), wall_stands);
}
END_TEST

START_TEST(tokens_are_the_clock_after_a_crash_though_it_went_on)
{
    uint64_t last = take_tokens(1);

    wall_stands = last + 3600 * UINT64_C(1000000);
    local_crash();
    ck_assert_uint_eq(take_tokens(1), wall_stands);
}
END_TEST

START_TEST(tokens_never_go_back_if_the_clock_does_with_a_power_cut)
{
    uint64_t last;

    reserve_in_steps_of(0);
    last = take_tokens(1);
    for (int cut = 0; cut < 5; cut++) {
        char *durable = scratch_copy(local_directory);
        wall_stands = last + 9 * UINT64_C(1000000) + 900000; /* within what was reserved */
        disk_hold_syncs(true);
        last = take_tokens(3);
        disk_hold_syncs(false);
        backend_free(contract_backend);
        scratch_free(local_directory);
        local_directory = durable;
        local_options.boot_id = cut % 2 ? "one" : "other";
        wall_stands -= 3600 * UINT64_C(1000000);
        contract_start(local_open_at(local_directory));
        ck_assert_uint_gt(take_tokens(1), last);
        last = take_tokens(1);
    }
}
END_TEST

START_TEST(tokens_are_reserved_ahead_without_holding_anybody_up)
{
    uint64_t last;

    reserve_in_steps_of(STEP);
    for (int i = 0; i < 3; i++) {
        disk_hold_syncs(true);
        wall_stands += 40000; /* more than half a step: the next one is asked for, and does not come */
        take_tokens(100);
        disk_hold_syncs(false);
        wall_stands += 40000;
        last = take_tokens(100);
        local_crash();
        ck_assert_uint_gt(take_tokens(1), last);
    }
}
END_TEST

static void on_token(void *arg, enum backend_result result, struct backend_ticket *ticket,
                     const struct backend_info *holder)
{
    (void)ticket, (void)holder;
    ck_assert_int_eq(result, BACKEND_OK);
    *(bool *)arg = true;
    contract_end_turn();
}

/* After a pause nothing is reserved any more. */
START_TEST(token_is_reported_when_it_can_not_come_again)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_PROVISIONAL, &log); /* which is not there after the crash */
    bool reported = false;
    uint64_t fence;

    reserve_in_steps_of(STEP);
    disk_hold_syncs(true);
    wall_stands += 3 * STEP;
    struct backend_ticket *ticket = backend_acquire(contract_backend, "a", &claim, on_token, &reported);
    for (int i = 0; i < 20; i++) {
        contract_poll();
    }
    ck_assert(!reported);
    ck_assert_uint_eq(fence = ticket->fence, wall_stands);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(reported);
    local_crash();
    wall_stands -= 3600 * UINT64_C(1000000);
    ck_assert_uint_gt(take_tokens(1), fence);
}
END_TEST

static int ignore_record(void *arg, uint8_t type, const void *payload, size_t length)
{
    (void)arg, (void)type, (void)payload, (void)length;
    return 0;
}

/* Older versions counted tokens from 1, and a queue's numbers were not above them. */
START_TEST(journal_of_an_older_version_gives_tokens_of_the_clock_and_short_numbers)
{
    GByteArray *session = g_byte_array_new();
    uint64_t next = GUINT64_TO_LE(41), cut;
    struct journal *journal;
    char name[64];

    backend_free(contract_backend);
    scratch_free(local_directory);
    local_directory = scratch_new();
    ck_assert_int_eq(
        journal_open(local_directory, ignore_record, NULL, &journal, &cut, local_error, sizeof local_error), 0);
    local_record_session(session, &(struct local_session){.boottime = 1, .wall = 2, .boot_id = "before"});
    ck_assert_int_eq(journal_append(journal, LOCAL_SESSION, session->data, session->len), 0);
    ck_assert_int_eq(journal_append(journal, LOCAL_FENCE, &next, sizeof next), 0);
    ck_assert_int_eq(journal_commit(journal), 0);
    journal_close(journal);
    g_byte_array_unref(session);
    contract_start(local_open_at(local_directory));
    ck_assert_uint_ge(take_tokens(1), contract_began);
    take_number("job-", name);
    ck_assert_str_eq(name, "job-0000000041");
}
END_TEST

/* --- another machine's journal --- */

/* What `ln -s "content of amd64" job`, mkdir queue, and a width of 3 for that left on amd64. */
static const char amd64_journal[] =
    "4c4541534546530a01000000870600b6fadeaa1d420000000101000000000000001c614f02000000007313cb16a201000025"
    "00000063333138393363352d656632642d343533392d393130352d3236306435303865326239310073575555190000000202"
    "000000000000005291dc09296106000000010000000000a497c56fc400000003030000000000000088244409296106000000"
    "00000000000001400d03000000000027614f0200000000676e520200000000040000006a6f6200720000003120766d203135"
    "393739203735333836373820302030203132303737372030202d2063333138393363352d656632642d343533392d39313035"
    "2d3236306435303865326239312031353936353a373533383636342c31353936343a373533383636332c333438333a373034"
    "30333830206c6e10000000636f6e74656e74206f6620616d64363464c7d9da9a000000070400000000000000060000007175"
    "6575650000000000000000000100000000000000000000000000000000000000670000003120766d20302030203020302034"
    "30373535203020313739353637383733372e3238373636373337382c313739353637383733372e3238373636373337382063"
    "333138393363352d656632642d343533392d393130352d323630643530386532623931202d202d1efa68349a000000070500"
    "0000000000000600000071756575650000000000000000000300000000000000000000000000000000000000670000003120"
    "766d2030203020302030203430373535203020313739353637383733372e3238373636373337382c31373935363738373337"
    "2e3238373636373337382063333138393363352d656632642d343533392d393130352d323630643530386532623931202d20"
    "2d917ce43c";
#define AMD64_TOKEN UINT64_C(0x0006612909442488)

START_TEST(journal_of_a_machine_with_another_byte_order_is_read)
{
    g_autofree char *name = g_build_filename(local_directory, "journal", NULL);
    GByteArray *bytes = g_byte_array_new();
    struct contract_log log = {0};

    for (const char *hex = amd64_journal; *hex; hex += 2) {
        g_byte_array_append(bytes,
                            &(uint8_t){(uint8_t)(g_ascii_xdigit_value(hex[0]) << 4 | g_ascii_xdigit_value(hex[1]))}, 1);
    }
    backend_free(contract_backend);
    local_options.boot_id = "of this machine";
    ck_assert(g_file_set_contents(name, (char *)bytes->data, (gssize)bytes->len, NULL));
    g_byte_array_unref(bytes);
    contract_start(local_open_at(local_directory));
    for (int i = 0; i < 2; i++) { /* the second reads what this machine has written */
        struct backend_info info = contract_stat("job");
        ck_assert_int_eq(info.type, BACKEND_LOCK);
        ck_assert_uint_eq(info.fence, AMD64_TOKEN);
        ck_assert_int_eq(info.ttl, 200 * 1000);
        ck_assert(contract_equal(info.content, "content of amd64"));
        ck_assert_int_eq(contract_stat("queue").type, BACKEND_DIRECTORY);
        ck_assert_uint_eq(contract_stat("queue").directory.width, 3);
        local_restart();
    }
    ck_assert_uint_gt(contract_get("later", BACKEND_LEASE, &log)->fence, AMD64_TOKEN);
}
END_TEST

/* Until it is reported, its lock owner's earlier lock is a ticket of its own. */
START_TEST(record_lock_that_is_reported_later_joins_then)
{
    struct contract_log log[2] = {{0}};
    struct backend_claim claim = contract_claim(BACKEND_FCNTL, &log[0]);
    bool reported = false;

    reserve_in_steps_of(STEP);
    claim.lock_owner = 7;
    claim.end = 9;
    struct backend_ticket *held = contract_acquire("a", &claim).ticket;
    uint64_t fence = held->fence;
    disk_hold_syncs(true);
    wall_stands += 3 * STEP;
    claim.user = &log[1];
    claim.start = 20;
    claim.end = 29;
    struct backend_ticket *ticket = backend_acquire(contract_backend, "a", &claim, on_token, &reported);
    ck_assert_int_eq(contract_release_range(held, 0, 4), BACKEND_OK);
    ck_assert(!reported && !ticket->joined);
    disk_hold_syncs(false);
    CONTRACT_UNTIL(reported);
    ck_assert(ticket->joined);
    ck_assert_uint_eq(ticket->fence, fence);
    ck_assert_int_eq(contract_release_range(ticket, 5, 9), BACKEND_OK);
    ck_assert_int_eq(contract_release_range(ticket, 20, 29), BACKEND_MISSING);
}
END_TEST

START_TEST(tokens_that_could_not_be_reserved_are_not_given)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_PROVISIONAL, &log); /* the journal forgets no end of it */
    struct contract_acquired acquired;
    uint64_t last = 0;

    reserve_in_steps_of(STEP);
    disk_fail_syncs(EIO, 0);
    for (int i = 0; i < 200000; i++) {
        acquired = contract_acquire("a", &claim);
        if (acquired.result != BACKEND_OK)
            break;
        last = acquired.ticket->fence;
        ck_assert_int_eq(contract_release(acquired.ticket), BACKEND_OK);
        wall_stands += 10;
    }
    ck_assert_int_eq(acquired.result, BACKEND_UNREACHABLE);
    disk_fail_syncs(0, 0);
    local_crash();
    ck_assert_uint_gt(take_tokens(1), last);
}
END_TEST

/* --- size --- */

static uint64_t journal_bytes(void)
{
    struct backend_status status;
    uint64_t bytes;

    backend_status(contract_backend, &status);
    bytes = status.journal_bytes;
    backend_status_clear(&status);
    return bytes;
}

START_TEST(journal_shrinks_when_most_was_released)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    char *text = g_strnfill(16384, 'x'), name[16];
    struct backend_ticket *tickets[400];

    if (_i == 1) { /* as a daemon that did not do so may leave it to the next */
        local_options.compact_min = UINT64_C(1) << 30;
        local_restart();
    }
    claim.content = contract_bytes(text);
    for (size_t i = 0; i < G_N_ELEMENTS(tickets); i++) {
        g_snprintf(name, sizeof(name), "n%zu", i);
        tickets[i] = contract_acquire(name, &claim).ticket;
    }
    ck_assert_uint_gt(journal_bytes(), G_N_ELEMENTS(tickets) * 16384);
    for (size_t i = 1; i < G_N_ELEMENTS(tickets); i++)
        ck_assert_int_eq(contract_release(tickets[i]), BACKEND_OK);
    if (_i == 1) {
        local_options.compact_min = 0;
        local_restart();
    }
    while (journal_bytes() > 4 * 16384)
        local_let_time_pass();
    local_restart();
    ck_assert_str_eq(contract_list("", 10), "n0");
    g_free(text);
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
    local_let_time_pass();
    ck_assert(alarm_in() > CONTRACT_LONG / 2000.0);
    ck_assert_int_eq(contract_revoke("a", 0), BACKEND_OK);
    CONTRACT_UNTIL(log[1].ended);
    claim.ttl = 1;
    log[0].ended = 0;
    local_restart();
    ck_assert(alarm_in() == 0);
    ck_assert_int_eq(contract_acquire("b", &claim).result, BACKEND_OK);
    CONTRACT_UNTIL(log[0].ended);
    contract_list("", 10);
    ck_assert(alarm_in() == 0);
}
END_TEST

/* Rests on this keeper. */
static void rest(struct backend_ticket *ticket, uint32_t keeper)
{
    backend_renew(contract_backend,
                  &(struct backend_renewal){.ticket = ticket, .ttl = CONTRACT_SHORT, .due = 1, .keeper = keeper}, 1);
}

START_TEST(lease_that_rests_has_no_alarm_and_ends_when_its_keeper_is_woken)
{
    struct contract_log log[3] = {{0}};
    struct backend_ticket *ticket[3];
    const char *const names[] = {"a", "b", "c"};

    for (int i = 0; i < 3; i++) {
        ticket[i] = contract_get(names[i], BACKEND_LEASE, &log[i]);
        rest(ticket[i], i < 2 ? 7 : 8);
    }
    local_let_time_pass();
    ck_assert(alarm_in() == 0 || alarm_in() > CONTRACT_LONG / 2000.0);
    g_usleep(2 * CONTRACT_SHORT * 1000);
    ck_assert_str_eq(contract_list("", 10), "a b c");
    for (int i = 0; i < 3; i++) { /* as if it were renewed */
        clock_ms now = clock_now(), deadline = backend_ticket_deadline(ticket[i], now);
        ck_assert_int_gt(deadline - now, CONTRACT_SHORT * 2 / 3 - 10);
        ck_assert_int_le(deadline - now, CONTRACT_SHORT);
        clock_ms shown = contract_stat(names[i]).deadline; /* it moves with the time */
        ck_assert_int_ge(shown, deadline);
        ck_assert_int_le(shown, backend_ticket_deadline(ticket[i], clock_now()));
        ck_assert_uint_eq(log[i].due, 0);
    }
    backend_wake(contract_backend, 7);
    clock_ms woken = clock_now();
    CONTRACT_UNTIL(log[0].ended && log[1].ended);
    ck_assert_int_ge(clock_now() - woken, CONTRACT_SHORT);
    ck_assert_uint_eq(log[0].due, 1);
    ck_assert_uint_eq(log[2].ended, 0);
    ck_assert_str_eq(contract_list("", 10), "c");
    backend_wake(contract_backend, 8);
    CONTRACT_UNTIL(log[2].due); /* its user may renew it then */
    backend_renew(contract_backend, &(struct backend_renewal){.ticket = ticket[2], .ttl = CONTRACT_LONG}, 1);
    g_usleep(2 * CONTRACT_SHORT * 1000);
    ck_assert_str_eq(contract_list("", 10), "c");
}
END_TEST

START_TEST(lease_that_rested_has_a_full_term_after_a_restart)
{
    struct contract_log log = {0};
    clock_ms began;

    rest(contract_get("a", BACKEND_LEASE, &log), 7);
    g_usleep(2 * CONTRACT_SHORT * 1000);
    began = clock_now();
    local_crash();
    ck_assert_int_ge(contract_stat("a").deadline, began + CONTRACT_SHORT);
    CONTRACT_UNTIL(contract_stat("a").type == BACKEND_NOTHING);
}
END_TEST

START_TEST(memory_keeps_nothing)
{
    struct backend *b;

    local_options.directory = NULL;
    ck_assert_int_eq(local_new(&local_options, &b, local_error, sizeof(local_error)), 0);
    ck_assert_str_eq(b->name, "memory");
    ck_assert_str_eq(contract_backend->name, "local");
    backend_free(b);
}
END_TEST

static int threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;

    ck_assert_ptr_nonnull(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

START_TEST(no_thread_runs_before_it_is_started)
{
    char *new = scratch_new();
    const char *const boots[] = {"one", "one", "another"};

    backend_free(contract_backend);
    int before = threads(); /* ThreadSanitizer has its own */
    for (size_t i = 0; i < G_N_ELEMENTS(boots); i++) {
        struct backend *b;

        local_options.boot_id = boots[i];
        b = local_open_at(new);
        ck_assert_int_eq(threads(), before);
        backend_free(b);
    }
    scratch_free(new);
    contract_start(local_open_at(local_directory));
}
END_TEST

static void revoked(void *arg, enum backend_result result)
{
    *(int *)arg = result == BACKEND_OK;
}

/* As where a daemon stood still: one after the other has its turn, and runs out, before anybody hears of it. */
START_TEST(grant_of_an_ended_ticket_is_not_reported)
{
    struct contract_log held = {0}, waiting = {0}, next = {0};
    struct backend_ticket *holder = contract_get("a", BACKEND_FLOCK, &held);
    struct backend_ticket *waiter = contract_queue("a", BACKEND_EXCLUSIVE, &waiting);
    int done = 0;

    contract_queue("a", BACKEND_EXCLUSIVE, &next);
    backend_release(contract_backend, holder, NULL, NULL);
    backend_revoke(contract_backend, "a", waiter->fence, revoked, &done);
    CONTRACT_UNTIL(done && waiting.ended && next.granted);
    ck_assert_uint_eq(waiting.granted, 0);
}
END_TEST

static Suite *local_suite(void)
{
    Suite *suite = suite_create("local");
    TCase *boots = tcase_create("boots"), *numbers = tcase_create("numbers"), *idle = tcase_create("idle");

    tcase_add_checked_fixture(boots, local_setup, contract_teardown);
    tcase_set_timeout(boots, 30);
    tcase_add_test(boots, reboot_gives_leases_a_full_term);
    tcase_add_test(boots, term_that_was_set_is_there_after_a_crash);
    tcase_add_loop_test(boots, reboot_after_the_wall_clock_was_set_leaves_leases_their_age, 0, 2);
    tcase_add_test(boots, handle_locks_end_with_their_host);
    tcase_add_test(boots, reboot_brings_back_what_would_have_expired);
    tcase_add_test(boots, what_was_found_expired_does_not_come_back_after_a_reboot);
    tcase_add_test(boots, unknown_boot_counts_as_another);
    tcase_add_test(boots, crash_while_the_journal_is_rewritten_after_a_reboot_loses_nothing);
    tcase_add_test(boots, very_many_leases_are_due_one_after_the_other_but_in_time);
    tcase_add_test(boots, very_many_leases_that_end_together_end_in_many_turns);
    suite_add_tcase(suite, boots);

    tcase_add_checked_fixture(numbers, local_setup, contract_teardown);
    tcase_set_timeout(numbers, 60);
    tcase_add_test(numbers, tokens_never_repeat_over_crashes_and_clean_ends);
    tcase_add_test(numbers, numbers_of_a_queue_never_repeat_over_crashes);
    tcase_add_loop_test(numbers, numbers_of_a_queue_never_repeat_over_power_cuts, 0, 2);
    tcase_add_test(numbers, numbers_of_a_queue_continue_without_a_gap_over_clean_ends);
    tcase_add_test(numbers, tokens_are_the_clock_or_behind_the_last);
    tcase_add_test(numbers, tokens_are_the_clock_after_a_crash_though_it_went_on);
    tcase_add_test(numbers, tokens_never_go_back_if_the_clock_does_with_a_power_cut);
    tcase_add_test(numbers, token_is_reported_when_it_can_not_come_again);
    tcase_add_test(numbers, record_lock_that_is_reported_later_joins_then);
    tcase_add_test(numbers, journal_of_an_older_version_gives_tokens_of_the_clock_and_short_numbers);
    tcase_add_test(numbers, journal_of_a_machine_with_another_byte_order_is_read);
    tcase_add_test(numbers, tokens_are_reserved_ahead_without_holding_anybody_up);
    tcase_add_test(numbers, tokens_that_could_not_be_reserved_are_not_given);
    suite_add_tcase(suite, numbers);

    tcase_add_checked_fixture(idle, local_setup, contract_teardown);
    tcase_set_timeout(idle, 30);
    tcase_add_loop_test(idle, journal_shrinks_when_most_was_released, 0, 2);
    tcase_add_test(idle, alarm_is_set_for_the_earliest_deadline_and_off_when_nothing_is_held);
    tcase_add_test(idle, lease_that_rests_has_no_alarm_and_ends_when_its_keeper_is_woken);
    tcase_add_test(idle, lease_that_rested_has_a_full_term_after_a_restart);
    tcase_add_test(idle, memory_keeps_nothing);
    tcase_add_test(idle, no_thread_runs_before_it_is_started);
    tcase_add_test(idle, grant_of_an_ended_ticket_is_not_reported);
    suite_add_tcase(suite, idle);
    return suite;
}

int main(void)
{
    return check_main(local_suite());
}
