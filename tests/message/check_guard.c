/* Guards and the files of a holder: a broken lock is lost for all of them at once, and the store keeps it until the
 * last of them is closed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>

#include "fs/hold/hold.h"
#include "fs/hold/quota.h"
#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

static void set_up(void)
{
    wire_setup_with(BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE | BACKEND_CAN_SHARE);
}

static int set_guard(uint64_t node, const char *value)
{
    return wire_result(w, wire_setxattr(w, node, "user.lease.guard", value));
}

static int force_break(uint64_t node)
{
    return wire_result(w, wire_setxattr(w, node, "user.lease.break", "2"));
}

static int break_lock(uint64_t node)
{
    return wire_result(w, wire_setxattr(w, node, "user.lease.break", "1"));
}

/* With a flock of alice's, and a guard. */
static struct wire_file guarded(const char *name)
{
    struct wire_file file = wire_created(w, name, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_int_eq(set_guard(file.node, "30"), 0);
    return file;
}

static void check_held(const char *name, unsigned holders)
{
    wire_turn(w);
    ck_assert_uint_eq(fake_backend_holders(w->fake, name), holders);
    ck_assert(wire_exists(w, name) == (holders > 0));
}

START_TEST(what_is_broken_is_held_until_its_file_is_closed)
{
    struct wire_file file = guarded("L");
    char *token = wire_xattr(w, file.node, "user.lease.token");
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, file.node, "user.lease.check", token)), 0);
    ck_assert_int_eq(break_lock(file.node), 0);
    /* a resource that it protects refuses the old holder at once */
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, file.node, "user.lease.check", token)), ESTALE);
    g_free(token);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_fsync(w, file)), ESTALE);
    char *state = wire_xattr(w, file.node, "user.lease.state"), *guard = wire_xattr(w, file.node, "user.lease.guard");
    ck_assert_str_eq(state, "lost");
    ck_assert_str_eq(guard, "30");
    g_free(state);
    g_free(guard);
    check_held("L", 1);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0); /* it has nothing to give up */
    check_held("L", 1);
    wire_close(w, file);
    check_held("L", 0);
}
END_TEST

static unsigned deletions_of(const char *name)
{
    unsigned count = 0;
    for (guint i = 0; i < w->notices->len; i++) {
        const struct wire_notice *notice = &g_array_index(w->notices, struct wire_notice, i);
        count += notice->code == FUSE_NOTIFY_DELETE && strcmp(notice->name, name) == 0;
    }
    return count;
}

/* The kernel gets the notifications in this order. */
static void await_deletion_of_another(const char *name)
{
    struct wire_file file = wire_created(w, name, O_WRONLY | O_EXCL);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_int_eq(break_lock(file.node), 0);
    while (!wire_has_notification(w, FUSE_NOTIFY_DELETE, name)) {
    }
}

/* If the store does not report the end, each look-up of the name asks the store. */
START_TEST(name_is_gone_for_the_kernel_when_the_store_reports_the_end_of_the_guard)
{
    bool reports = _i;
    fake_backend_head(w->fake)->features |= reports ? BACKEND_CAN_WATCH : 0;
    struct wire_file file = guarded("L");
    ck_assert(wire_exists(w, "L"));
    ck_assert_int_eq(break_lock(file.node), 0);
    await_deletion_of_another("M");
    ck_assert_uint_eq(deletions_of("L"), !reports);
    wire_close(w, file);
    hold_events.gone(w->fs, "L");
    await_deletion_of_another("N");
    ck_assert_uint_eq(deletions_of("L"), 1);
}
END_TEST

START_TEST(waiter_is_granted_when_the_file_is_closed)
{
    struct wire_file file = guarded("L");
    w->pid = bob;
    struct wire_file other = wire_created(w, "L", O_RDONLY);
    uint64_t wait = wire_flock(w, other, LOCK_EX);
    ck_assert(wire_waits(w, wait));
    ck_assert_int_eq(break_lock(file.node), 0);
    ck_assert(wire_waits(w, wait));
    w->pid = alice;
    wire_close(w, file);
    ck_assert_int_eq(wire_result(w, wait), 0);
    ck_assert_int_eq(wire_result(w, wire_fsync(w, other)), 0);
}
END_TEST

/* All that were open by what is lost, and no others. */
START_TEST(last_of_several_files_ends_the_guard)
{
    struct wire_file file = wire_created(w, "L", O_RDWR | O_EXCL), second = wire_opened(w, file.node, O_RDWR);
    w->pid = bob;
    struct wire_file bobs = wire_opened(w, file.node, O_RDONLY);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    ck_assert_int_eq(set_guard(file.node, "30"), 0);
    ck_assert_int_eq(break_lock(file.node), 0);
    w->pid = bob;
    wire_close(w, bobs);
    w->pid = alice;
    wire_close(w, file);
    check_held("L", 1);
    wire_close(w, second);
    check_held("L", 0);
}
END_TEST

/* There is no file whose close could end it. */
START_TEST(guard_of_a_lease_without_an_open_file_lasts_its_time)
{
    struct wire_file file = wire_created(w, "L", O_RDWR | O_EXCL);
    wire_close(w, file);
    ck_assert_int_eq(set_guard(file.node, "30"), 0);
    ck_assert_int_eq(break_lock(file.node), 0);
    check_held("L", 1);
    ck_assert_int_eq(force_break(file.node), 0);
    check_held("L", 0);
}
END_TEST

/* The store has ended it. */
START_TEST(close_after_the_time_of_a_guard_sends_no_request)
{
    for (unsigned late = 0; late <= 1; late++) {
        struct wire_file file = guarded(late ? "L" : "M");
        ck_assert_int_eq(break_lock(file.node), 0);
        unsigned revoked = fake_backend_count(w->fake, FAKE_REVOKE);
        wire_advance(w, late ? 30000 : 29000);
        wire_close(w, file);
        ck_assert_uint_eq(fake_backend_count(w->fake, FAKE_REVOKE), revoked + !late);
    }
}
END_TEST

START_TEST(second_break_needs_force)
{
    struct wire_file file = guarded("L");
    w->pid = bob;
    ck_assert_int_eq(break_lock(file.node), 0);
    char *state = wire_xattr(w, file.node, "user.lease.state");
    ck_assert_str_eq(state, "broken");
    g_free(state);
    ck_assert_int_eq(break_lock(file.node), EBUSY);
    check_held("L", 1);
    w->uid = 1000;
    ck_assert_int_eq(force_break(file.node), EPERM);
    w->uid = 0;
    ck_assert_int_eq(force_break(file.node), 0);
    check_held("L", 0);
    w->pid = alice;
}
END_TEST

/* T1 holds bytes and sets a guard; T2 of the same process waits for others; T1 unlocks. */
START_TEST(guard_ends_with_the_hold_of_a_lock_owner)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 7, F_WRLCK, 0, 9, false)), 0);
    w->pid = bob;
    struct wire_file other = wire_opened(w, file.node, O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, other, 8, F_WRLCK, 20, 29, false)), 0);
    w->pid = alice;
    ck_assert_int_eq(set_guard(file.node, "30"), 0);
    uint64_t waits = wire_setlk(w, file, 7, F_WRLCK, 20, 29, true);
    ck_assert(wire_waits(w, waits));
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 7, F_UNLCK, 0, 9, false)), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, other, 8, F_UNLCK, 20, 29, false)), 0);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, waits), 0);
    w->pid = bob;
    ck_assert_int_eq(break_lock(file.node), 0);
    check_held("L", 0);
    w->pid = alice;
}
END_TEST

START_TEST(nobody_but_root_ends_a_guard)
{
    w->uid = 1000;
    struct wire_file file = guarded("L");
    w->pid = bob;
    char *token = wire_xattr(w, file.node, "user.lease.token");
    ck_assert_int_eq(break_lock(file.node), 0);
    ck_assert_int_eq(break_lock(file.node), EBUSY);
    ck_assert_int_eq(force_break(file.node), EPERM);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, file.node, "user.lease.release", token)), EPERM);
    check_held("L", 1);
    w->uid = 0;
    ck_assert_int_eq(force_break(file.node), 0);
    check_held("L", 0);
    g_free(token);
    unsigned revoked = fake_backend_count(w->fake, FAKE_REVOKE);
    w->pid = alice;
    wire_close(w, file); /* that was all there was, for all it knows: it is asked by its token, which nobody has */
    ck_assert_uint_le(fake_backend_count(w->fake, FAKE_REVOKE), revoked + 1);
    check_held("L", 0);
}
END_TEST

START_TEST(guard_is_set_by_its_holder_to_a_time_of_at_most_a_minute)
{
    static const char *const wrong[] = {"", "60.001", "61", "1h", "-1", "99ms", "x", "auto"};
    struct wire_file file = guarded("L");
    for (size_t i = 0; i < G_N_ELEMENTS(wrong); i++) {
        ck_assert_int_eq(set_guard(file.node, wrong[i]), EINVAL);
    }
    w->pid = bob;
    ck_assert_int_eq(set_guard(file.node, "1"), EPERM);
    w->pid = alice;
    char *guard = wire_xattr(w, file.node, "user.lease.guard");
    ck_assert_str_eq(guard, "30");
    g_free(guard);
    ck_assert_int_eq(set_guard(file.node, "0"), 0);
    ck_assert_int_eq(wire_result(w, wire_getxattr(w, file.node, "user.lease.guard")), ENODATA);
    ck_assert_int_eq(break_lock(file.node), 0);
    check_held("L", 0);
}
END_TEST

/* The store may have it or not: then it is as it was. */
START_TEST(guard_that_is_refused_is_not_there)
{
    struct wire_file file = guarded("L");
    fake_backend_fail(w->fake, FAKE_SET, BACKEND_FULL);
    ck_assert_int_eq(set_guard(file.node, "60"), ENOSPC);
    fake_backend_fail(w->fake, FAKE_SET, BACKEND_OK);
    char *guard = wire_xattr(w, file.node, "user.lease.guard");
    ck_assert_str_eq(guard, "30");
    g_free(guard);
}
END_TEST

START_TEST(note_that_is_refused_leaves_the_one_before)
{
    struct wire_file file = guarded("L");
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, file.node, "user.lease.note", "first")), 0);
    fake_backend_fail(w->fake, FAKE_SET, BACKEND_FULL);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, file.node, "user.lease.note", "second")), ENOSPC);
    fake_backend_fail(w->fake, FAKE_SET, BACKEND_OK);
    g_autofree char *note = wire_xattr(w, file.node, "user.lease.note");
    ck_assert_str_eq(note, "first");
}
END_TEST

START_TEST(guard_stays_when_the_lock_becomes_another_kind)
{
    struct wire_file file = wire_created(w, "L", O_RDWR | O_EXCL);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    ck_assert_int_eq(set_guard(file.node, "30"), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_SH)), 0);
    ck_assert_int_eq(break_lock(file.node), 0);
    check_held("L", 1);
    wire_close(w, file);
    check_held("L", 0);
}
END_TEST

START_TEST(what_runs_out_or_is_given_up_has_no_guard)
{
    struct wire_file file = guarded("L");
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0);
    check_held("L", 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_getxattr(w, file.node, "user.lease.guard")), ENODATA); /* of another hold */
    ck_assert_int_eq(set_guard(file.node, "30"), 0);
    fake_backend_end(w->fake, "L", BACKEND_EXPIRED);
    check_held("L", 0);
    ck_assert_int_eq(wire_result(w, wire_fsync(w, file)), ESTALE);
}
END_TEST

/* Makes `count` guards, of names with numbers from `first` on; their files are closed. */
static void make_guards(int first, int count)
{
    for (int i = first; i < first + count; i++) {
        g_autofree char *name = g_strdup_printf("%d", i);
        struct wire_file file = wire_created(w, name, O_WRONLY | O_EXCL);
        ck_assert_int_eq(set_guard(file.node, "30"), 0);
        ck_assert_int_eq(wire_close(w, file), 0);
        ck_assert_int_eq(break_lock(file.node), 0);
    }
}

START_TEST(guards_that_expired_are_freed_as_others_begin)
{
    make_guards(0, 100);
    wire_advance(w, 30000);
    make_guards(100, GUARD_BUCKETS);
    ck_assert_uint_eq(w->fs->guarded, GUARD_BUCKETS);
}
END_TEST

START_TEST(table_of_guards_is_written_a_slice_at_a_time)
{
    uint64_t top = w->directory, table;
    make_guards(0, 1000);
    w->directory = wire_node(w, wire_lookup(w, ".leasefs"));
    table = wire_node(w, wire_lookup(w, "locks"));
    w->directory = top;
    struct wire_file file = wire_opened(w, table, O_RDONLY);
    uint64_t far = wire_read(w, file, 1 << 30, 10);
    wire_take(w);
    ck_assert_uint_eq(w->fs->requests, 1); /* the loop has not run, so not all lines are written */
    for (int i = 0; i < 1000 && w->fs->requests; i++) {
        wire_turn(w);
    }
    ck_assert_int_eq(wire_result(w, far), 0);
}
END_TEST

static void limit_locks(uint64_t locks)
{
    quota_free(w->fs->quota);
    w->fs->quota = quota_new(&(struct quota_limits){.user_locks = locks});
    w->uid = 1000;
}

static uint64_t locks_left(void)
{
    return quota_left(w->fs->quota, w->uid).locks;
}

static void add_locks(void *arg, const struct quota_used *used)
{
    *(uint64_t *)arg += used->locks;
}

static uint64_t locks_shown(void)
{
    uint64_t locks = 0;
    quota_each(w->fs->quota, add_locks, &locks);
    return locks;
}

static void set_delay(const char *delay)
{
    w->uid = 0;
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, FUSE_ROOT_ID, "user.lease.delay", delay)), 0);
    w->uid = 1000;
}

START_TEST(name_that_stays_refused_counts_for_its_user_until_it_is_free)
{
    limit_locks(3);
    set_delay("10");
    for (int i = 0; i < 3; i++) {
        struct wire_file file = wire_created(w, (char[]){(char)('A' + i), '\0'}, O_WRONLY | O_EXCL);
        ck_assert_int_eq(wire_close(w, file), 0);
        ck_assert_int_eq(i == 0 ? break_lock(file.node) : 0, 0);
    }
    ck_assert_uint_eq(locks_left(), 0);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), EDQUOT);
    wire_advance(w, 9999);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), EDQUOT);
    wire_advance(w, 1);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "D")), 0);
    ck_assert_uint_eq(locks_shown(), 3);
}
END_TEST

/* Also if no lock was requested since the refusals ended. */
START_TEST(locks_that_are_left_do_not_count_refusals_of_before)
{
    limit_locks(10);
    struct wire_file file = guarded("L");
    ck_assert_int_eq(break_lock(file.node), 0);
    ck_assert_uint_eq(locks_left(), 9);
    ck_assert_uint_eq(locks_shown(), 1);
    wire_advance(w, 30000);
    ck_assert_uint_eq(locks_left(), 10);
    ck_assert_uint_eq(locks_shown(), 0);
}
END_TEST

/* Its holder ends it by closing the file, or the store reports its end. */
START_TEST(guard_that_ends_early_counts_for_its_lock_delay_only)
{
    limit_locks(10);
    for (int delayed = 0; delayed <= 1; delayed++) {
        for (int reported = 0; reported <= 1; reported++) {
            struct wire_file file = guarded("L"), other = guarded("M");
            wire_advance(w, 1000);
            ck_assert_int_eq(break_lock(other.node), 0);
            wire_advance(w, 1000);
            ck_assert_int_eq(break_lock(file.node), 0);
            ck_assert_uint_eq(locks_left(), 8);
            if (reported) {
                fake_backend_vacate(w->fake, "L");
                hold_events.gone(w->fs, "L");
            } else {
                wire_close(w, file);
            }
            ck_assert_uint_eq(locks_left(), delayed ? 8 : 9);
            wire_advance(w, 10000);
            ck_assert_uint_eq(locks_left(), 9);
            wire_close(w, other);
            ck_assert_uint_eq(locks_left(), delayed ? 9 : 10);
            if (reported) {
                wire_close(w, file);
            }
            wire_advance(w, 10000);
            ck_assert_uint_eq(locks_left(), 10);
        }
        set_delay("10");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: guards");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, set_up, wire_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, what_is_broken_is_held_until_its_file_is_closed);
    tcase_add_loop_test(cases, name_is_gone_for_the_kernel_when_the_store_reports_the_end_of_the_guard, 0, 2);
    tcase_add_test(cases, waiter_is_granted_when_the_file_is_closed);
    tcase_add_test(cases, last_of_several_files_ends_the_guard);
    tcase_add_test(cases, guard_of_a_lease_without_an_open_file_lasts_its_time);
    tcase_add_test(cases, close_after_the_time_of_a_guard_sends_no_request);
    tcase_add_test(cases, second_break_needs_force);
    tcase_add_test(cases, guard_ends_with_the_hold_of_a_lock_owner);
    tcase_add_test(cases, nobody_but_root_ends_a_guard);
    tcase_add_test(cases, guard_is_set_by_its_holder_to_a_time_of_at_most_a_minute);
    tcase_add_test(cases, guard_that_is_refused_is_not_there);
    tcase_add_test(cases, note_that_is_refused_leaves_the_one_before);
    tcase_add_test(cases, guard_stays_when_the_lock_becomes_another_kind);
    tcase_add_test(cases, what_runs_out_or_is_given_up_has_no_guard);
    tcase_add_test(cases, guards_that_expired_are_freed_as_others_begin);
    tcase_add_test(cases, table_of_guards_is_written_a_slice_at_a_time);
    tcase_add_test(cases, name_that_stays_refused_counts_for_its_user_until_it_is_free);
    tcase_add_test(cases, locks_that_are_left_do_not_count_refusals_of_before);
    tcase_add_test(cases, guard_that_ends_early_counts_for_its_lock_delay_only);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
