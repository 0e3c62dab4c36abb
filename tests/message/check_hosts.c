/* Two mounts of one store, on two hosts: which of them gets a lock, and what each shows of the other's. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "fs/hold/quota.h"
#include "tests/message/wire.h"
#include "tests/support/check_main.h"

static struct wire *here, *there; /* the mounts */
static pid_t alice, bob;          /* on here, unrelated */
static pid_t carol, dave;         /* on there */

static void set_up(void)
{
    here = wire_new(BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE);
    there = wire_new_beside(here);
    alice = here->pid = wire_child(here);
    bob = wire_child(here);
    carol = there->pid = wire_child(there);
    dave = wire_child(there);
}

static void tear_down(void)
{
    wire_free(here);
}

/* The kind of what holds the name, whoever does; -1: nothing. */
static int held_as(const char *name)
{
    const struct backend_ticket *ticket = fake_backend_holder(here->fake, name);
    return ticket ? ticket->kind : -1;
}

/* --- the provisional second of another mount ----------------------------------- */

/* Flock, and fcntl: an idle file here, and a mere open there. */
static uint64_t try_lock(int kind, struct wire_file file)
{
    return kind ? wire_setlk(here, file, 7, F_WRLCK, 0, INT64_MAX, false) : wire_flock(here, file, LOCK_EX | LOCK_NB);
}

static uint64_t tried_beside_an_open(int kind, struct wire_file *ret_file, struct wire_file *ret_there)
{
    *ret_file = wire_created(here, "L", O_RDONLY);
    *ret_there = wire_created(there, "L", O_WRONLY);
    uint64_t requested = try_lock(kind, *ret_file);
    ck_assert(wire_waits(here, requested));
    wire_advance(here, 300);
    ck_assert(wire_waits(here, requested));
    return requested;
}

START_TEST(try_lock_gets_what_was_only_open_elsewhere)
{
    struct wire_file file, other;
    uint64_t requested = tried_beside_an_open(_i, &file, &other);
    wire_advance(here, SECOND - 300 + 200);
    ck_assert_int_eq(wire_result(here, requested), 0);
    ck_assert_int_eq(held_as("L"), _i ? BACKEND_FCNTL : BACKEND_FLOCK);
}
END_TEST

START_TEST(try_lock_is_refused_for_the_lease_that_an_open_elsewhere_became)
{
    struct wire_file file, other;
    uint64_t requested = tried_beside_an_open(_i, &file, &other);
    ck_assert_int_eq(wire_close(there, other), 0);
    wire_advance(here, 200);
    ck_assert_int_eq(wire_result(here, requested), EAGAIN);
    ck_assert_int_eq(held_as("L"), BACKEND_LEASE);
}
END_TEST

/* A second open there, in the moment when the first ends, does not keep it waiting. */
START_TEST(try_lock_waits_for_one_open_elsewhere_at_most)
{
    struct wire_file file, other;
    uint64_t requested = tried_beside_an_open(_i, &file, &other);
    wire_kill(there, carol);
    ck_assert_int_eq(wire_close(there, other), 0);
    there->pid = dave;
    wire_created(there, "L", O_WRONLY);
    wire_advance(here, 200);
    ck_assert_int_eq(wire_result(here, requested), EAGAIN);
}
END_TEST

START_TEST(try_lock_that_waits_for_an_open_elsewhere_is_interruptible)
{
    struct wire_file file, other;
    uint64_t requested = tried_beside_an_open(_i, &file, &other);
    wire_interrupt(here, requested);
    ck_assert_int_eq(wire_result(here, requested), EINTR);
    wire_advance(here, 2 * SECOND);
    ck_assert_int_eq(held_as("L"), -1);
}
END_TEST

START_TEST(write_open_waits_for_the_outcome_elsewhere)
{
    struct wire_file first = wire_created(there, "L", O_WRONLY);
    uint64_t second = wire_create(here, "L", O_WRONLY);
    ck_assert(wire_waits(here, second));
    wire_advance(here, 300);
    ck_assert(wire_waits(here, second));
    ck_assert_int_eq(wire_close(there, first), 0);
    wire_advance(here, 200);
    ck_assert_int_eq(wire_result(here, second), EBUSY);
    ck_assert_int_eq(held_as("L"), BACKEND_LEASE);
}
END_TEST

/* Told so though the lease is older than a second by then: its age counts from the grant. */
START_TEST(write_open_that_waited_is_busy_however_late_it_was_decided)
{
    struct wire_file first = wire_created(there, "L", O_WRONLY);
    uint64_t second = wire_create(here, "L", O_WRONLY);
    wire_advance(here, SECOND - 2);
    ck_assert(wire_waits(here, second));
    ck_assert_int_eq(wire_close(there, first), 0);
    wire_advance(here, 200);
    ck_assert_int_eq(wire_result(here, second), EBUSY);
}
END_TEST

START_TEST(write_open_goes_on_provisionally_when_it_lapses_elsewhere)
{
    wire_created(there, "L", O_WRONLY);
    uint64_t second = wire_create(here, "L", O_WRONLY);
    ck_assert(wire_waits(here, second));
    wire_advance(here, SECOND + 200);
    struct wire_file file = wire_file(here, second);
    ck_assert_int_eq(held_as("L"), BACKEND_PROVISIONAL);
    ck_assert_int_eq(wire_close(here, file), 0);
    ck_assert_int_eq(held_as("L"), BACKEND_LEASE);
}
END_TEST

START_TEST(write_open_meets_a_handle_lock_as_the_outcome)
{
    struct wire_file first = wire_created(there, "L", O_WRONLY);
    uint64_t second = wire_create(here, "L", O_WRONLY);
    ck_assert(wire_waits(here, second));
    ck_assert_int_eq(wire_result(there, wire_flock(there, first, LOCK_EX | LOCK_NB)), 0);
    wire_advance(here, 200);
    struct wire_file idle = wire_file(here, second);
    ck_assert_int_eq(wire_result(here, wire_flock(here, idle, LOCK_EX | LOCK_NB)), EAGAIN);
}
END_TEST

START_TEST(all_waiters_continue_when_it_lapses)
{
    wire_created(there, "L", O_WRONLY);
    uint64_t second = wire_create(here, "L", O_WRONLY);
    here->pid = bob;
    uint64_t third = wire_create(here, "L", O_WRONLY);
    ck_assert(wire_waits(here, second) && wire_waits(here, third));
    wire_advance(here, SECOND + 200);
    ck_assert_int_eq(wire_result(here, second), 0);
    ck_assert_int_eq(wire_result(here, third), 0);
    ck_assert_int_eq(held_as("L"), BACKEND_PROVISIONAL);
}
END_TEST

START_TEST(wait_for_another_mount_that_is_gone_ends)
{
    fake_backend_occupy(here->fake, "L", BACKEND_PROVISIONAL, BACKEND_EXCLUSIVE);
    uint64_t second = wire_create(here, "L", O_WRONLY);
    for (int i = 0; i < 20; i++) {
        wire_advance(here, 100);
    }
    ck_assert_int_eq(wire_result(here, second), 0);
}
END_TEST

START_TEST(wait_for_another_mount_is_interruptible)
{
    wire_created(there, "L", O_WRONLY);
    uint64_t second = wire_create(here, "L", O_WRONLY);
    here->pid = bob;
    uint64_t third = wire_create(here, "L", O_WRONLY);
    ck_assert(wire_waits(here, second) && wire_waits(here, third));
    wire_interrupt(here, second);
    ck_assert_int_eq(wire_result(here, second), EINTR);
    ck_assert(wire_waits(here, third));
    wire_interrupt(here, third);
    ck_assert_int_eq(wire_result(here, third), EINTR);
}
END_TEST

START_TEST(wait_for_another_mount_ends_with_the_mount)
{
    wire_created(there, "L", O_WRONLY);
    uint64_t second = wire_create(here, "L", O_WRONLY);
    ck_assert(wire_waits(here, second));
    fs_stop(here->fs);
    ck_assert_int_eq(wire_result(here, second), ENOLCK);
}
END_TEST

START_TEST(one_mount_sends_one_request_however_many_wait)
{
    wire_created(there, "L", O_WRONLY);
    uint64_t requested[20];
    for (int i = 0; i < 20; i++) {
        here->pid = wire_child(here);
        requested[i] = wire_create(here, "L", O_WRONLY);
    }
    wire_turn(here);
    unsigned before = fake_backend_count(here->fake, FAKE_ACQUIRE);
    for (int i = 0; i < 9; i++) {
        wire_advance(here, 100);
    }
    ck_assert_uint_le(fake_backend_count(here->fake, FAKE_ACQUIRE) - before, 12);
    wire_advance(here, SECOND);
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(wire_result(here, requested[i]), 0);
    }
}
END_TEST

/* --- racing touches ---------------------------------------------------------------- */

#define RACERS 20 /* on each mount */

struct racer {
    struct wire *w;
    pid_t pid;
    uint64_t open;
    int error;
    bool uutils, done;
};

/* touch(1) of busybox, open and close; or of uutils, which looks at open only. */
static void race_on(struct racer *racer)
{
    struct wire *w = racer->w;
    const struct wire_exchange *e = g_hash_table_lookup(w->exchanges, GSIZE_TO_POINTER(racer->open));
    w->pid = racer->pid;
    if (racer->done || !e->answered) {
        return;
    }
    if (e->error) {
        racer->error = e->error;
    } else {
        int error = wire_close(w, wire_file(w, racer->open));
        racer->error = racer->uutils ? 0 : error;
    }
    racer->done = true;
}

START_TEST(racing_touches_on_two_mounts_have_one_winner)
{
    struct racer racers[2 * RACERS] = {{0}};
    unsigned winners = 0, done = 0;
    for (int i = 0; i < 2 * RACERS; i++) {
        struct racer *racer = &racers[i];
        racer->w = (i + _i) % 2 ? here : there;
        racer->pid = racer->w->pid = wire_child(racer->w);
        racer->uutils = _i & 2;
        racer->open = wire_create(racer->w, "L", O_WRONLY | (racer->uutils ? O_TRUNC : 0));
    }
    for (int round = 0; done < 2 * RACERS && round < 100; round++) {
        wire_turn(here);
        done = 0;
        for (int i = 0; i < 2 * RACERS; i++) {
            race_on(&racers[i]);
            done += racers[i].done;
        }
        wire_advance(here, 20 + 17 * _i);
    }
    ck_assert_uint_eq(done, 2 * RACERS);
    for (int i = 0; i < 2 * RACERS; i++) {
        winners += racers[i].error == 0;
        ck_assert(racers[i].error == 0 || racers[i].error == EBUSY);
    }
    ck_assert_uint_eq(winners, 1);
    ck_assert_int_eq(held_as("L"), BACKEND_LEASE);
}
END_TEST

/* --- directories ------------------------------------------------------------------ */

static void set_ttl(struct wire *w, uint64_t directory, const char *ttl)
{
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, directory, "user.lease.ttl", ttl)), 0);
}

static void check_ttl(struct wire *w, const char *name, const char *expected)
{
    char *ttl = wire_xattr(w, wire_created(w, name, O_WRONLY | O_EXCL).node, "user.lease.ttl");
    ck_assert_str_eq(ttl, expected);
    g_free(ttl);
}

/* The top directory, and one that a process works in: the kernel looks up neither. */
START_TEST(setting_of_a_directory_reaches_another_mount)
{
    uint64_t directory = _i ? wire_node(here, wire_mkdir(here, "d")) : FUSE_ROOT_ID;
    here->directory = directory;
    wire_advance(here, 2 * SECOND);
    ck_assert(!wire_exists(here, "before")); /* an ordinary look-up reads them again */
    wire_advance(here, SECOND);
    set_ttl(there, _i ? wire_node(there, wire_lookup(there, "d")) : FUSE_ROOT_ID, "7s");
    ck_assert(!wire_exists(here, "L"));
    check_ttl(here, "L", "7");
    unsigned requested = fake_backend_count(here->fake, FAKE_STAT);
    ck_assert(!wire_exists(here, "M"));
    ck_assert_uint_eq(fake_backend_count(here->fake, FAKE_STAT), requested + 1); /* not the directory */
    here->directory = FUSE_ROOT_ID;
}
END_TEST

START_TEST(setting_is_not_undone_by_an_answer_from_before)
{
    wire_advance(here, 2 * SECOND);
    fake_backend_hold(here->fake, FAKE_STAT, true);
    uint64_t looked = wire_lookup(here, "L");
    wire_let_time_pass(1);
    uint64_t set = wire_setxattr(here, FUSE_ROOT_ID, "user.lease.ttl", "7s");
    while (wire_waits(here, looked) || wire_waits(here, set)) {
        fake_backend_answer(here->fake, FAKE_STAT, 0);
    }
    fake_backend_hold(here->fake, FAKE_STAT, false);
    check_ttl(here, "L", "7");
}
END_TEST

START_TEST(directory_that_another_mount_removed_is_not_charged)
{
    quota_free(here->fs->quota);
    here->fs->quota = quota_new(&(struct quota_limits){.user_locks = 2});
    here->uid = 1000;
    wire_node(here, wire_mkdir(here, "a"));
    wire_node(here, wire_mkdir(here, "b"));
    ck_assert_int_eq(wire_result(here, wire_mkdir(here, "c")), EDQUOT);
    ck_assert_int_eq(wire_result(there, wire_rmdir(there, _i ? "a" : "b")), 0);
    wire_node(here, wire_mkdir(here, "c"));
    ck_assert_int_eq(wire_result(here, wire_mkdir(here, "d")), EDQUOT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: two hosts");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 60);
    tcase_add_loop_test(cases, setting_of_a_directory_reaches_another_mount, 0, 2);
    tcase_add_test(cases, setting_is_not_undone_by_an_answer_from_before);
    tcase_add_loop_test(cases, directory_that_another_mount_removed_is_not_charged, 0, 2);
    tcase_add_loop_test(cases, try_lock_gets_what_was_only_open_elsewhere, 0, 2);
    tcase_add_loop_test(cases, try_lock_is_refused_for_the_lease_that_an_open_elsewhere_became, 0, 2);
    tcase_add_loop_test(cases, try_lock_waits_for_one_open_elsewhere_at_most, 0, 2);
    tcase_add_loop_test(cases, try_lock_that_waits_for_an_open_elsewhere_is_interruptible, 0, 2);
    tcase_add_test(cases, write_open_waits_for_the_outcome_elsewhere);
    tcase_add_test(cases, write_open_that_waited_is_busy_however_late_it_was_decided);
    tcase_add_test(cases, write_open_goes_on_provisionally_when_it_lapses_elsewhere);
    tcase_add_test(cases, write_open_meets_a_handle_lock_as_the_outcome);
    tcase_add_test(cases, all_waiters_continue_when_it_lapses);
    tcase_add_test(cases, wait_for_another_mount_that_is_gone_ends);
    tcase_add_test(cases, wait_for_another_mount_is_interruptible);
    tcase_add_test(cases, wait_for_another_mount_ends_with_the_mount);
    tcase_add_test(cases, one_mount_sends_one_request_however_many_wait);
    tcase_add_loop_test(cases, racing_touches_on_two_mounts_have_one_winner, 0, 4);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
