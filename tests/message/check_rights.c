/* Rights to change and release a lock and to set its times; the content and attributes of its file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

static pid_t family[2]; /* a parent and its child */

enum { ALICE = 1000, BOB = 1001, CAROL = 1002 };

static void set_up(void)
{
    wire_setup();
    wire_chain(w, family, G_N_ELEMENTS(family));
}

static int change_mode(uint64_t node, uint32_t mode)
{
    return wire_result(w, wire_setattr(w, node, NULL, (struct fuse_setattr_in){.valid = FATTR_MODE, .mode = mode}));
}

/* --- releasing ------------------------------------------------------------------ */

START_TEST(owner_unlinks_its_lease)
{
    lease_of(alice, "L");
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert_ptr_null(holder("L"));
    ck_assert(!wire_exists(w, "L"));
}
END_TEST

START_TEST(stranger_may_not_unlink_root_included)
{
    lease_of(alice, "L");
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->uid = 1000;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    ck_assert_ptr_nonnull(holder("L"));
    ck_assert(wire_exists(w, "L"));
}
END_TEST

START_TEST(descendant_unlinks)
{
    lease_of(family[0], "L");
    w->pid = family[1];
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(parent_may_not_unlink_its_childs)
{
    lease_of(family[1], "L");
    w->pid = family[0];
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
}
END_TEST

START_TEST(same_user_unlinks_when_the_owner_is_dead)
{
    w->uid = 1000;
    lease_of(alice, "L");
    wire_advance(w, SECOND);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    wire_kill(w, alice);
    w->uid = 1001;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->uid = 1000;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
}
END_TEST

START_TEST(unlink_of_another_mounts_lock_is_eperm_and_of_none_enoent)
{
    fake_backend_occupy(w->fake, "L", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "M")), ENOENT);
    fake_backend_fail(w->fake, FAKE_STAT, BACKEND_UNREACHABLE);
    ck_assert_int_ne(wire_result(w, wire_unlink(w, "M")), ENOENT);
}
END_TEST

START_TEST(slow_holder_cannot_remove_who_came_after_it)
{
    uint64_t node = lease_of(alice, "L");
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "5s")), 0);
    char *token = wire_xattr(w, node, "user.lease.token");
    wire_advance(w, 6 * SECOND);
    ck_assert_ptr_null(holder("L"));
    uint64_t next = lease_of(bob, "L");
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, next, "user.lease.check", token)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, next, "user.lease.release", token)), ESTALE);
    ck_assert_ptr_nonnull(holder("L"));
    g_free(token);
    token = wire_xattr(w, next, "user.lease.token");
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, next, "user.lease.check", token)), 0);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, next, "user.lease.release", token)), 0);
    g_free(token);
    wire_turn(w);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(break_is_for_root_and_the_files_user)
{
    w->uid = 1000;
    uint64_t node = lease_of(alice, "L");
    w->uid = 1001;
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.break", "1")), EPERM);
    w->uid = 0;
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.break", "1")), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(release_of_unknown_outcome_is_not_success)
{
    lease_of(alice, "L");
    fake_backend_fail(w->fake, FAKE_RELEASE, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), ENOLCK);
}
END_TEST

/* --- owning ------------------------------------------------------------------------ */

START_TEST(lease_is_renewed_while_its_owner_lives_and_runs_out_after)
{
    lease_of(alice, "L");
    wire_advance(w, 3600 * SECOND);
    ck_assert_ptr_nonnull(holder("L"));
    wire_kill(w, alice);
    wire_advance(w, LEASE_TTL_DEFAULT - 1000 - LEASE_TTL_DEFAULT / 3);
    ck_assert_ptr_nonnull(holder("L")); /* not before its deadline */
    wire_advance(w, LEASE_TTL_DEFAULT);
    ck_assert_ptr_null(holder("L"));
    ck_assert(!wire_exists(w, "L"));
}
END_TEST

START_TEST(helper_that_exits_hands_its_lease_to_its_parent)
{
    lease_of(family[1], "L");
    wire_kill(w, family[1]);
    wire_advance(w, 2 * SECOND);
    w->pid = family[0];
    ck_assert_int_eq(wire_result(w, wire_touch(w, wire_node(w, wire_lookup(w, "L")), NULL)), 0);
    wire_advance(w, 600 * SECOND);
    ck_assert_ptr_nonnull(holder("L"));
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
}
END_TEST

/* An heir, a process that takes a lease and exits, and its child. */
static void take_and_fork(pid_t *ret_family)
{
    wire_session(w, ret_family, 3);
    lease_of(ret_family[1], "L");
    wire_kill(w, ret_family[1]);
}

START_TEST(child_that_stays_releases_links_and_writes)
{
    pid_t job[3];
    take_and_fork(job);
    uint64_t node = wire_node(w, wire_lookup(w, "L"));
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->pid = job[2];
    ck_assert_int_eq(wire_result(w, wire_link(w, node, "M")), 0);
    struct wire_file file = wire_opened(w, node, O_WRONLY | O_TRUNC);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    w->uid = CAROL;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->uid = 0;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
}
END_TEST

START_TEST(lease_is_renewed_until_heir_and_child_have_ended)
{
    pid_t job[3];
    take_and_fork(job);
    wire_advance(w, 10 * LEASE_TTL_DEFAULT);
    wire_kill(w, job[_i ? 2 : 0]);
    wire_advance(w, 10 * LEASE_TTL_DEFAULT);
    ck_assert_ptr_nonnull(holder("L"));
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->pid = job[_i ? 0 : 2];
    ck_assert_int_eq(wire_result(w, wire_touch(w, wire_node(w, wire_lookup(w, "L")), NULL)), 0);
    wire_kill(w, job[_i ? 0 : 2]);
    wire_advance(w, 2 * LEASE_TTL_DEFAULT);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(child_of_a_process_that_exits_after_its_first_second_does_not_inherit)
{
    pid_t job[3];
    wire_session(w, job, 3);
    lease_of(job[1], "L");
    wire_advance(w, SECOND);
    wire_kill(w, job[1]);
    wire_advance(w, 2 * LEASE_TTL_DEFAULT);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(lease_of_a_helper_that_nobody_has_waited_for_is_no_strangers)
{
    w->uid = 1000;
    lease_of(family[1], "L");
    wire_kill(w, family[1]); /* a zombie: its exit status is known once it was waited for */
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->pid = family[0];
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
}
END_TEST

/* The kernel does not wait for RELEASE, and RELEASE does not wait for the store. */
START_TEST(lease_of_a_helper_is_no_strangers_while_the_store_has_not_answered)
{
    w->uid = 1000;
    w->pid = family[1];
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), 0);
    wire_kill(w, family[1]);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    wire_release(w, file);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    fake_backend_hold(w->fake, FAKE_CONVERT, false);
    fake_backend_answer(w->fake, FAKE_CONVERT, 0);
    ck_assert_int_eq(holder("L")->kind, BACKEND_LEASE);
}
END_TEST

START_TEST(range_of_a_child_is_no_strangers_when_who_took_another_by_the_same_file_has_died)
{
    w->uid = 1000;
    w->pid = family[0];
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 7, F_WRLCK, 0, 4, false)), 0);
    w->pid = family[1];
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 7, F_WRLCK, 5, 9, false)), 0);
    wire_kill(w, family[0]);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->pid = family[1];
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
}
END_TEST

START_TEST(helper_that_sets_times_behind_its_close_hands_its_lease_on)
{
    w->pid = family[1];
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), 0);
    ck_assert_int_eq(wire_result(w, wire_touch(w, file.node, NULL)), 0); /* ahead of RELEASE */
    wire_release(w, file);
    wire_kill(w, family[1]);
    wire_advance(w, 600 * SECOND);
    ck_assert_ptr_nonnull(holder("L"));
}
END_TEST

START_TEST(nobody_inherits_after_the_first_second)
{
    lease_of(family[1], "L");
    wire_advance(w, SECOND);
    wire_kill(w, family[1]);
    w->pid = family[0];
    w->uid = 1000;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    wire_advance(w, LEASE_TTL_DEFAULT + SECOND);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(open_handle_of_a_dead_owner_keeps_its_lease)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    wire_advance(w, SECOND);
    wire_kill(w, alice); /* a child has the descriptor still */
    wire_advance(w, 300 * SECOND);
    ck_assert_ptr_nonnull(holder("L"));
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    wire_advance(w, LEASE_TTL_DEFAULT + SECOND);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

/* A handle that was opened for one lease is no reason for the next. */
START_TEST(handle_of_an_earlier_leases_child_does_not_keep_the_next)
{
    w->pid = family[0];
    struct wire_file file = wire_created(w, "L", O_WRONLY | O_EXCL);
    w->pid = family[1];
    struct wire_file childs = wire_opened(w, file.node, O_RDONLY);
    w->pid = family[0];
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0);
    w->pid = alice;
    struct wire_file next = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_close(w, next), 0);
    ck_assert_int_eq(holder("L")->kind, BACKEND_LEASE);
    wire_kill(w, alice);
    wire_advance(w, 2 * LEASE_TTL_DEFAULT);
    ck_assert_ptr_null(holder("L"));
    ck_assert_int_eq(wire_close(w, childs), 0);
}
END_TEST

/* A waiter for a lock owner's bytes that gives up does not change the owner of the lease. */
START_TEST(waiter_that_gives_up_does_not_end_what_keeps_a_lease)
{
    w->pid = family[0];
    uint64_t node = lease_of(family[0], "L");
    wire_advance(w, 2 * SECOND);
    w->pid = family[1];
    struct wire_file childs = wire_opened(w, node, O_RDONLY);
    w->pid = bob;
    struct wire_file others = wire_opened(w, node, O_RDWR);
    uint64_t waits = wire_setlk(w, others, 7, F_WRLCK, 0, 10, true);
    ck_assert(wire_waits(w, waits));
    wire_interrupt(w, waits);
    ck_assert_int_eq(wire_result(w, waits), EINTR);
    wire_kill(w, family[0]);
    wire_advance(w, 3 * LEASE_TTL_DEFAULT);
    ck_assert_ptr_nonnull(holder("L"));
    w->pid = family[1];
    ck_assert_int_eq(wire_close(w, childs), 0);
    wire_advance(w, 2 * LEASE_TTL_DEFAULT);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(lease_without_an_owner_is_not_renewed)
{
    w->pid = 0; /* another pid namespace */
    struct wire_file file = wire_created(w, "L", O_WRONLY | O_EXCL);
    ck_assert_int_eq(wire_close(w, file), 0);
    wire_advance(w, LEASE_TTL_DEFAULT + 1);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

/* Of another pid namespace: only the handle is known. */
START_TEST(lease_without_an_owner_is_renewed_while_its_handle_is_open)
{
    w->pid = 0;
    struct wire_file file = wire_created(w, "L", O_WRONLY | O_EXCL), idle = wire_opened(w, file.node, O_RDONLY);
    wire_advance(w, 10 * LEASE_TTL_DEFAULT);
    ck_assert_ptr_nonnull(holder("L"));
    ck_assert_int_eq(wire_close(w, file), 0);
    wire_advance(w, LEASE_TTL_DEFAULT + 1);
    ck_assert_ptr_null(holder("L"));
    ck_assert_int_eq(wire_close(w, idle), 0);
}
END_TEST

START_TEST(touch_of_another_pid_namespace_takes_a_lease)
{
    w->pid = 0;
    struct wire_file gnu = wire_created(w, "gnu", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, gnu, 0)), 0); /* dup2 and close */
    ck_assert_int_eq(wire_result(w, wire_touch(w, gnu.node, &gnu)), 0);
    ck_assert_int_eq(wire_close(w, gnu), 0);
    struct wire_file path = wire_created(w, "path", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_touch(w, path.node, NULL)), 0);
    ck_assert_int_eq(wire_close(w, path), 0);
    struct wire_file busybox = wire_created(w, "busybox", O_RDWR);
    ck_assert_int_eq(wire_close(w, busybox), 0);
    wire_advance(w, 2 * SECOND);
    static const char *const names[] = {"gnu", "path", "busybox"};
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        ck_assert_msg(holder(names[i]) && holder(names[i])->kind == BACKEND_LEASE, "%s", names[i]);
    }
    /* Later they are refused. */
    struct wire_file late = wire_opened(w, gnu.node, O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_touch(w, gnu.node, &late)), EBUSY);
    ck_assert_int_eq(wire_result(w, wire_touch(w, gnu.node, NULL)), EBUSY);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "gnu")), 0);
    ck_assert_int_eq(wire_close(w, late), 0);
    ck_assert_ptr_null(holder("gnu"));
}
END_TEST

START_TEST(times_of_another_user_and_namespace_decide_nothing)
{
    w->pid = 0;
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    w->uid = 1234;
    ck_assert_int_ne(wire_result(w, wire_touch(w, file.node, NULL)), 0);
    w->uid = 0;
    wire_advance(w, 2 * SECOND);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(child_of_another_pid_namespace_that_ends_takes_nothing)
{
    w->pid = 0;
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 7)), 0);
    ck_assert_ptr_null(holder("L"));
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(fixed_term_is_not_renewed_until_it_is_automatic_again)
{
    uint64_t node = lease_of(alice, "L");
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "10s")), 0);
    wire_advance(w, 9 * SECOND);
    ck_assert_ptr_nonnull(holder("L"));
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "auto")), 0);
    wire_advance(w, 100 * SECOND);
    ck_assert_ptr_nonnull(holder("L"));
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "99ms")), EINVAL);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "11y")), EINVAL);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "1h")), EPERM);
}
END_TEST

START_TEST(kernel_is_notified_of_expiry)
{
    uint64_t node = lease_of(alice, "L");
    ck_assert(wire_exists(w, "L"));
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "1s")), 0);
    wire_advance(w, 1001);
    while (!wire_has_notification(w, FUSE_NOTIFY_DELETE, "L")) {
    }
    const struct wire_notice *notice = &g_array_index(w->notices, struct wire_notice, w->notices->len - 1);
    ck_assert_uint_eq(notice->parent, FUSE_ROOT_ID);
    ck_assert_uint_eq(notice->child, node);
}
END_TEST

/* --- changing ------------------------------------------------------------------------ */

START_TEST(stranger_may_not_change_mode_owner_or_size)
{
    uint64_t node = lease_of(alice, "L");
    w->pid = bob;
    ck_assert_int_eq(change_mode(node, S_IFREG | 0600), EPERM);
    ck_assert_int_eq(
        wire_result(w, wire_setattr(w, node, NULL, (struct fuse_setattr_in){.valid = FATTR_UID, .uid = 5})), EPERM);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, (struct fuse_setattr_in){.valid = FATTR_SIZE})), EPERM);
    ck_assert_uint_eq(attributes(node).mode, S_IFREG | 0644);
    w->pid = alice;
    ck_assert_int_eq(change_mode(node, S_IFREG | 0600), 0);
    ck_assert_uint_eq(attributes(node).mode, S_IFREG | 0600);
}
END_TEST

START_TEST(stranger_may_not_change_the_mode_of_a_handle_lock)
{
    struct wire_file file = wire_created(w, "L", O_RDONLY), other;
    w->pid = bob;
    other = wire_created(w, "L", O_RDONLY);
    w->pid = alice;
    uint64_t requested = _i == 0 ? wire_setlk(w, file, 1, F_WRLCK, 0, 9, false) : wire_flock(w, file, LOCK_EX);
    ck_assert_int_eq(wire_result(w, requested), 0);
    w->pid = bob;
    ck_assert_int_eq(change_mode(file.node, S_IFREG | 0600), EPERM);
    if (_i == 0) {
        ck_assert_int_eq(wire_result(w, wire_setlk(w, other, 2, F_WRLCK, 20, 29, false)), 0);
        ck_assert_int_eq(change_mode(file.node, S_IFREG | 0640), EPERM); /* it has joined */
    }
    w->pid = alice;
    ck_assert_int_eq(change_mode(file.node, S_IFREG | 0600), 0);
}
END_TEST

START_TEST(setting_times_by_a_stranger_is_busy_also_by_path)
{
    uint64_t node = lease_of(alice, "L");
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_touch(w, node, NULL)), EBUSY);
    wire_advance(w, 2 * SECOND);
    struct fuse_attr before = attributes(node);
    struct wire_file idle = wire_opened(w, node, O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_touch(w, node, &idle)), EBUSY);
    ck_assert_int_eq(wire_result(w, wire_touch(w, node, NULL)), EBUSY);
    ck_assert_uint_eq(attributes(node).mtime, before.mtime);
}
END_TEST

/* The handle acquires nothing any more, because a lock was requested on it; but the call fails. */
START_TEST(setting_times_is_busy_where_another_has_records_and_a_lock_was_claimed)
{
    w->pid = alice;
    struct wire_file mine = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, mine, 1, F_RDLCK, 3, 7, false)), 0);
    wire_advance(w, 1500);
    w->pid = bob;
    struct wire_file other = wire_opened(w, mine.node, O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, other, LOCK_EX | LOCK_NB)), EAGAIN);
    ck_assert_int_eq(wire_result(w, wire_touch(w, other.node, &other)), EBUSY);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_touch(w, mine.node, &mine)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, mine, 1, F_UNLCK, 0, INT64_MAX, false)), 0);
}
END_TEST

/* The name has another node by now. */
START_TEST(handle_of_before_sets_neither_times_nor_size_where_another_holds)
{
    w->pid = bob;
    struct wire_file before = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, before, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, before, LOCK_UN)), 0);
    w->pid = alice;
    ck_assert_uint_ne(wire_node(w, wire_symlink(w, "L", "target")), before.node);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_touch(w, before.node, &before)), EBUSY);
    struct fuse_setattr_in cut = {.valid = FATTR_SIZE | FATTR_FH, .fh = before.fh};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, before.node, &before, cut)), EBUSY);
}
END_TEST

START_TEST(times_are_what_the_holder_set)
{
    uint64_t node = lease_of(alice, "L");
    struct fuse_setattr_in times = {.valid = FATTR_ATIME | FATTR_MTIME, .atime = 1000, .mtime = 2000, .mtimensec = 5};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, times)), 0);
    ck_assert_uint_eq(attributes(node).mtime, 2000);
    ck_assert_uint_eq(attributes(node).mtimensec, 5);
    ck_assert_uint_eq(attributes(node).atime, 1000);
    wire_advance(w, 100 * SECOND); /* renewals leave them alone */
    ck_assert_uint_eq(attributes(node).mtime, 2000);
    ck_assert_int_eq(wire_result(w, wire_touch(w, node, NULL)), 0);
    ck_assert_uint_ne(attributes(node).mtime, 2000);
}
END_TEST

START_TEST(setting_one_time_leaves_the_other)
{
    uint64_t node = lease_of(alice, "L");
    struct fuse_setattr_in both = {.valid = FATTR_ATIME | FATTR_MTIME, .atime = 1000, .mtime = 2000};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, both)), 0);
    struct fuse_setattr_in one = {.valid = FATTR_MTIME, .mtime = 3000};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, one)), 0);
    ck_assert_uint_eq(attributes(node).mtime, 3000);
    ck_assert_uint_eq(attributes(node).atime, 1000);
    struct fuse_setattr_in now = {.valid = FATTR_ATIME | FATTR_ATIME_NOW};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, now)), 0);
    ck_assert_uint_eq(attributes(node).mtime, 3000);
    ck_assert_uint_ne(attributes(node).atime, 1000);
}
END_TEST

START_TEST(setattr_of_nothing_answers_with_the_attributes)
{
    uint64_t node = lease_of(alice, "L");
    w->pid = bob;
    uint64_t requested = wire_setattr(w, node, NULL, (struct fuse_setattr_in){.valid = 0});
    ck_assert_int_eq(wire_result(w, requested), 0);
    ck_assert_uint_eq(((const struct fuse_attr_out *)wire_data(w, requested, NULL))->attr.mode, S_IFREG | 0644);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, FUSE_ROOT_ID, NULL, (struct fuse_setattr_in){.valid = 0})), 0);
}
END_TEST

START_TEST(cutting_through_an_idle_handle_is_busy)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "holder", 6)), 0);
    wire_advance(w, SECOND);
    w->pid = bob;
    struct wire_file idle = wire_opened(w, file.node, O_WRONLY | O_TRUNC);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, idle.node, &idle, (struct fuse_setattr_in){.valid = FATTR_SIZE})),
                     EBUSY);
    ck_assert_int_eq(wire_result(w, wire_write(w, idle, 0, "x", 1)), EBUSY);
    check_content(file, "holder");
}
END_TEST

static uint64_t cut(uint64_t node, const struct wire_file *file, uint64_t size)
{
    return wire_setattr(w, node, file, (struct fuse_setattr_in){.valid = FATTR_SIZE, .size = size});
}

START_TEST(child_writes_through_what_it_inherited_and_is_another_with_its_own)
{
    w->pid = family[0];
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "parent", 6)), 0);
    w->pid = family[1];
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "child", 5)), 0);
    check_content(file, "childt");
    ck_assert_int_eq(wire_result(w, wire_open(w, file.node, O_RDWR)), EBUSY); /* the second `touch` */
    wire_advance(w, SECOND);
    struct wire_file own = wire_opened(w, file.node, O_RDWR | O_TRUNC);
    ck_assert_int_eq(wire_result(w, wire_write(w, own, 0, "x", 1)), EBUSY);
    ck_assert_int_eq(wire_result(w, cut(file.node, &own, 1)), EBUSY);
    check_content(file, "childt");
    ck_assert_int_eq(wire_result(w, cut(file.node, &file, 5)), 0);
    ck_assert_int_eq(wire_result(w, cut(file.node, NULL, 4)), 0);
    check_content(file, "chil");
    ck_assert_int_eq(change_mode(file.node, S_IFREG | 0600), 0); /* but it may change what is there */
}
END_TEST

START_TEST(content_is_spliced_appended_and_cut)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "hello", 5)), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 1, "ipp", 3)), 0);
    check_content(file, "hippo");
    file.flags |= O_APPEND;
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "!", 1)), 0);
    check_content(file, "hippo!");
    struct fuse_setattr_in cut = {.valid = FATTR_SIZE, .size = 3};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, file.node, &file, cut)), 0);
    check_content(file, "hip");
    ck_assert_uint_eq(attributes(file.node).size, 3);
}
END_TEST

START_TEST(content_beyond_64_kib_is_efbig)
{
    char *data = g_malloc0(CONTENT_BYTES_MAX + 1);
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, data, CONTENT_BYTES_MAX + 1)), EFBIG);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, UINT64_MAX, "x", 1)), EFBIG);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, CONTENT_BYTES_MAX, "x", 1)), EFBIG);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, data, CONTENT_BYTES_MAX)), 0);
    ck_assert_uint_eq(attributes(file.node).size, CONTENT_BYTES_MAX);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, CONTENT_BYTES_MAX - 1, "xy", 2)), EFBIG);
    struct fuse_setattr_in cut = {.valid = FATTR_SIZE, .size = (uint64_t)INT64_MAX};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, file.node, &file, cut)), EFBIG);
    g_free(data);
}
END_TEST

/* --- whose it is ------------------------------------------------------------------ */

static void be(pid_t pid, uid_t uid, uint32_t mode)
{
    w->pid = pid;
    w->uid = uid;
    w->mode = mode;
}

static int break_lock(uint64_t node)
{
    return wire_result(w, wire_setxattr(w, node, "user.lease.break", "1"));
}

static void check_owner(uint64_t node, uid_t uid, uint32_t mode)
{
    struct fuse_attr seen = attributes(node);
    ck_assert_uint_eq(seen.uid, uid);
    ck_assert_uint_eq(seen.gid, uid);
    ck_assert_uint_eq(seen.mode, S_IFREG | mode);
}

START_TEST(who_shares_a_lock_does_not_become_the_files_owner)
{
    be(alice, ALICE, 0604);
    struct wire_file first = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_SH)), 0);
    be(bob, BOB, 0666);
    struct wire_file second = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, second, LOCK_SH)), 0);
    check_owner(first.node, ALICE, 0604);
    ck_assert_int_eq(break_lock(first.node), EPERM);
    ck_assert_int_eq(change_mode(first.node, S_IFREG | 0666), EPERM);
    be(alice, ALICE, 0604);
    ck_assert_int_eq(break_lock(first.node), EPERM);                    /* not all is hers */
    ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_SH)), 0); /* she has held it longest still */
    check_owner(first.node, ALICE, 0604);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 2);
    ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_UN)), 0);
    check_owner(first.node, BOB, 0666);
    ck_assert_int_eq(break_lock(first.node), EPERM);
    be(bob, BOB, 0666);
    ck_assert_int_eq(break_lock(first.node), 0);
}
END_TEST

START_TEST(who_locks_other_bytes_does_not_become_the_files_owner)
{
    be(alice, ALICE, 0604);
    struct wire_file first = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 7, F_WRLCK, 0, 9, false)), 0);
    be(bob, BOB, 0666);
    struct wire_file second = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, second, 8, F_WRLCK, 10, 19, false)), 0);
    check_owner(first.node, ALICE, 0604);
    ck_assert_int_eq(break_lock(first.node), EPERM);
    ck_assert_int_eq(change_mode(first.node, S_IFREG | 0666), EPERM);
    be(alice, ALICE, 0604);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 7, F_UNLCK, 0, 9, false)), 0);
    check_owner(first.node, BOB, 0666);
}
END_TEST

START_TEST(idle_handle_sets_no_mode)
{
    be(bob, BOB, 0666);
    struct wire_file idle = wire_created(w, "L", O_RDONLY);
    be(alice, ALICE, 0600);
    struct wire_file locked = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, locked, LOCK_EX)), 0);
    ck_assert_uint_eq(locked.node, idle.node);
    check_owner(locked.node, ALICE, 0600);
    be(bob, BOB, 0666);
    ck_assert_int_eq(change_mode(idle.node, S_IFREG | 0666), EPERM);
    be(alice, ALICE, 0600);
    ck_assert_int_eq(wire_result(w, wire_flock(w, locked, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, locked, 7, F_RDLCK, 0, 9, false)), 0);
    check_owner(locked.node, ALICE, 0600);
}
END_TEST

/* flock(1) only asks for who has opened the file, as it did. */
START_TEST(lock_belongs_to_its_opener_whichever_process_locks)
{
    be(alice, ALICE, 0600);
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    be(bob, 0, 0666);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    check_owner(file.node, ALICE, 0600);
}
END_TEST

START_TEST(mode_of_a_lock_has_permissions_only)
{
    be(alice, ALICE, 06755);
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    ck_assert_uint_eq(attributes(file.node).mode, S_IFREG | 0755);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_uint_eq(attributes(file.node).mode, S_IFREG | 0755);
    ck_assert_int_eq(change_mode(file.node, S_IFREG | 07755), 0);
    ck_assert_uint_eq(attributes(file.node).mode, S_IFREG | 0755);
    file = wire_created(w, "M", O_WRONLY | O_EXCL);
    ck_assert_uint_eq(attributes(file.node).mode, S_IFREG | 0755);
}
END_TEST

START_TEST(lock_of_a_handle_that_made_nothing_has_its_openers_umask)
{
    be(bob, BOB, 0666);
    struct wire_file holder = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, holder, LOCK_EX)), 0);
    mode_t before = umask(027);
    be(wire_child(w), ALICE, 0666);
    umask(before);
    struct wire_file file = wire_opened(w, holder.node, O_RDONLY);
    uint64_t waits = wire_flock(w, file, LOCK_EX);
    ck_assert(wire_waits(w, waits));
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_flock(w, holder, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, waits), 0);
    check_owner(file.node, ALICE, 0640);
}
END_TEST

/* Nobody holds, or a server that lost the lock says so. */
START_TEST(another_user_may_not_change_the_mode_of_what_nobody_holds)
{
    w->uid = 1000;
    struct wire_file idle = wire_created(w, "L", O_RDONLY);
    w->pid = bob;
    ck_assert_int_eq(change_mode(idle.node, S_IFREG | 0600), 0);
    w->uid = 1001;
    ck_assert_int_eq(change_mode(idle.node, S_IFREG | 0600), EPERM);
    w->uid = 0;
    ck_assert_int_eq(change_mode(idle.node, S_IFREG | 0600), 0);
}
END_TEST

START_TEST(mode_changed_through_an_idle_handle_is_its_own)
{
    be(bob, BOB, 0666);
    struct wire_file others = wire_created(w, "L", O_RDONLY);
    be(alice, ALICE, 0644);
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(change_mode(file.node, S_IFREG | 0600), 0);
    check_owner(file.node, ALICE, 0600);
    be(bob, BOB, 0666);
    check_owner(file.node, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_flock(w, others, LOCK_EX)), 0);
    check_owner(file.node, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_flock(w, others, LOCK_UN)), 0);
    be(alice, ALICE, 0644);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    check_owner(file.node, ALICE, 0600);
}
END_TEST

START_TEST(descendant_of_another_user_is_a_stranger)
{
    uint64_t node = lease_of(family[0], "L");
    be(family[1], CAROL, 0600);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "L", "M", 0)), EPERM);
    ck_assert_int_eq(wire_result(w, wire_link(w, node, "M")), EPERM);
    ck_assert_int_eq(wire_result(w, cut(node, NULL, 0)), EPERM);
    ck_assert_int_eq(change_mode(node, S_IFREG | 0666), EPERM);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.note", "mine")), EPERM);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "1s")), EPERM);
    w->pid = family[0];
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0); /* the owner itself, with whatever uid */
}
END_TEST

START_TEST(file_that_a_descendant_of_another_user_opened_does_not_keep_a_lease)
{
    uint64_t node = lease_of(family[0], "L");
    wire_advance(w, SECOND);
    be(family[1], CAROL, 0600);
    wire_opened(w, node, O_RDONLY);
    wire_kill(w, family[0]);
    wire_advance(w, 2 * LEASE_TTL_DEFAULT);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(lock_of_an_opener_is_not_released_by_its_descendant_of_another_user)
{
    w->pid = family[0];
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    be(family[1], CAROL, 0600);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->uid = 0;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
}
END_TEST

START_TEST(older_handle_reads_only_what_its_opener_may)
{
    be(bob, BOB, 0666);
    struct wire_file old = wire_created(w, "L", O_RDONLY);
    be(bob, 0, 0666);
    struct wire_file roots = wire_created(w, "L", O_RDONLY);
    be(alice, ALICE, 0600);
    struct wire_file before = wire_created(w, "L", O_RDONLY);
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "secret", 6)), 0);
    be(alice, BOB, 0600); /* whoever reads: the handle counts */
    ck_assert_int_eq(wire_result(w, wire_read(w, old, 0, 100)), EACCES);
    check_content(file, "secret");
    check_content(before, "secret");
    check_content(roots, "secret");
    be(alice, ALICE, 0600);
    ck_assert_int_eq(change_mode(file.node, S_IFREG | 0604), 0);
    check_content(old, "secret");
    ck_assert_int_eq(change_mode(file.node, S_IFREG | 0000), 0);
    check_content(file, "secret");
    ck_assert_int_eq(wire_result(w, wire_read(w, old, 0, 100)), EACCES);
}
END_TEST

START_TEST(byte_range_is_read_through_its_own_handle)
{
    be(alice, ALICE, 0);
    struct wire_file file = wire_created(w, "L", O_RDWR);
    be(bob, ALICE, 0); /* a child, which asks through what it inherited */
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 7, F_WRLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    check_content(file, "x");
}
END_TEST

START_TEST(token_releases_only_what_the_caller_may_write)
{
    be(bob, BOB, 0666);
    struct wire_file idle = wire_created(w, "L", O_RDONLY);
    be(alice, ALICE, 0644);
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    char *token = wire_xattr(w, file.node, "user.lease.token");
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, idle.node, "user.lease.release", token)), EACCES);
    ck_assert_ptr_nonnull(holder("L"));
    be(alice, ALICE, 0644);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, file.node, "user.lease.release", token)), 0);
    g_free(token);
}
END_TEST

START_TEST(token_of_who_joined_is_not_released_by_whose_file_it_is)
{
    be(bob, BOB, 0666);
    struct wire_file first = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_SH)), 0);
    be(alice, ALICE, 0644);
    struct wire_file second = wire_opened(w, first.node, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, second, LOCK_SH)), 0);
    char *token = wire_xattr(w, second.node, "user.lease.token");
    be(bob, BOB, 0666);
    check_owner(first.node, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, first.node, "user.lease.release", token)), EPERM);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 2);
    be(alice, ALICE, 0644);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, first.node, "user.lease.release", token)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    g_free(token);
}
END_TEST

/* Bytes that were released have no owner. */
START_TEST(bytes_given_back_do_not_keep_others_from_breaking_their_own)
{
    be(bob, BOB, 0666);
    struct wire_file first = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 8, F_WRLCK, 0, 9, false)), 0);
    be(alice, ALICE, 0644);
    struct wire_file second = wire_opened(w, first.node, O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, second, 7, F_WRLCK, 10, 19, false)), 0);
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 8, F_UNLCK, 0, 9, false)), 0);
    be(alice, ALICE, 0644);
    ck_assert_int_eq(break_lock(second.node), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 0);
}
END_TEST

/* The store has granted it, and the mount is not told yet. */
START_TEST(owner_is_read_between_a_grant_and_its_event)
{
    be(bob, BOB, 0666);
    struct wire_file first = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 8, F_WRLCK, 0, 9, false)), 0);
    be(alice, ALICE, 0644);
    struct wire_file second = wire_opened(w, first.node, O_RDWR);
    uint64_t waits = wire_setlk(w, second, 7, F_WRLCK, 0, 9, true);
    ck_assert(wire_waits(w, waits));
    fake_backend_hold_events(w->fake, true);
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 8, F_UNLCK, 0, UINT64_MAX, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_getattr(w, second.node)), 0);
    fake_backend_hold_events(w->fake, false);
    ck_assert_int_eq(wire_result(w, waits), 0);
    check_owner(second.node, ALICE, 0644);
}
END_TEST

START_TEST(content_under_a_byte_range_is_not_linked_by_a_stranger)
{
    be(alice, ALICE, 0600);
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 7, F_WRLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "secret", 6)), 0);
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_link(w, file.node, "M")), EPERM);
    ck_assert(!wire_exists(w, "M"));
}
END_TEST

START_TEST(directory_is_removed_by_its_owner_and_root)
{
    be(alice, ALICE, 0600);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "d")), 0);
    ck_assert_int_eq(wire_result(w, wire_mkdir(w, "e")), 0);
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, "d")), EPERM);
    ck_assert(wire_exists(w, "d"));
    fake_backend_fail(w->fake, FAKE_STAT, BACKEND_UNREACHABLE);
    ck_assert_int_ne(wire_result(w, wire_rmdir(w, "d")), 0);
    fake_backend_fail(w->fake, FAKE_STAT, BACKEND_OK);
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, "none")), ENOENT);
    be(alice, ALICE, 0600);
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, "d")), 0);
    be(bob, 0, 0666);
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, "e")), 0);
}
END_TEST

START_TEST(who_shares_a_lock_builds_nothing_on_the_firsts_content)
{
    be(bob, BOB, 0666);
    struct wire_file second = wire_created(w, "L", O_RDWR);
    wire_advance(w, SECOND); /* idle from now on */
    be(alice, ALICE, 0600);
    struct wire_file first = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, first, 0, "secret", 6)), 0);
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_flock(w, second, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, second, 1, "x", 1)), 0);
    ck_assert_int_eq(wire_result(w, wire_read(w, second, 0, 100)), EACCES);
    check_content(first, "secret");
    be(alice, ALICE, 0600);
    ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_UN)), 0);
    be(bob, BOB, 0666);
    uint64_t read = wire_read(w, second, 0, 100);
    size_t size;
    ck_assert_int_eq(wire_result(w, read), 0);
    ck_assert_mem_eq(wire_data(w, read, &size), "\0x", 2);
    ck_assert_uint_eq(size, 2);
}
END_TEST

/* `touch "DIRECTORY/$NAME"` with an empty NAME would take nothing, and succeed for everybody. */
/* So touch of an empty name fails, and mkdir-locks such as proper-lockfile's, cp -a, rsync and tar work. */
START_TEST(times_of_a_directory_are_set_only_by_the_process_that_made_it)
{
    struct fuse_setattr_in now = {.valid = FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW};
    struct fuse_setattr_in then = {.valid = FATTR_MTIME, .mtime = 12345},
                           mode = {.valid = FATTR_MODE, .mode = S_IFDIR | 0700};
    be(alice, ALICE, 0600);
    uint64_t node = wire_node(w, wire_mkdir(w, "d"));
    be(bob, ALICE, 0600);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, then)), EISDIR);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, mode)), 0); /* which does not change the maker */
    be(alice, ALICE, 0600);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, then)), 0);
    ck_assert_uint_eq(attributes(node).mtime, 12345);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, now)), 0);
    ck_assert_uint_ne(attributes(node).mtime, 12345);
    ck_assert_uint_eq(attributes(node).mode, S_IFDIR | 0700);
}
END_TEST

START_TEST(times_of_a_directory_of_others_are_set_by_nobody)
{
    struct fuse_setattr_in in[] = {{.valid = FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW},
                                   {.valid = FATTR_MTIME | FATTR_MODE, .mtime = 12345, .mode = S_IFDIR | 0700}};
    be(bob, ALICE, 0600);
    wire_node(w, wire_mkdir(w, "d"));
    for (unsigned i = 0; i < 4; i++) {
        be(alice, i % 2 ? 0 : ALICE, 0600);
        uint64_t node = i < 2 ? FUSE_ROOT_ID : wire_node(w, wire_lookup(w, "d"));
        struct fuse_attr before = attributes(node);
        ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, in[_i])), EISDIR);
        struct fuse_attr after = attributes(node);
        ck_assert_uint_eq(after.mtime, before.mtime);
        ck_assert_uint_eq(after.mode, before.mode);
    }
}
END_TEST

START_TEST(directory_is_as_it_was_when_the_backend_does_not_take_a_change)
{
    be(alice, ALICE, 0600);
    uint64_t node = wire_node(w, wire_mkdir(w, "d"));
    fake_backend_fail(w->fake, FAKE_SET_DIRECTORY, BACKEND_FULL);
    ck_assert_int_eq(change_mode(node, S_IFDIR | 0777), ENOSPC);
    ck_assert_uint_eq(attributes(node).mode, S_IFDIR | 0755);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, node, "user.lease.ttl", "7s")), ENOSPC);
    w->directory = node;
    struct wire_file file = wire_created(w, "L", O_WRONLY | O_EXCL);
    char *ttl = wire_xattr(w, file.node, "user.lease.ttl");
    ck_assert_str_eq(ttl, "30");
    g_free(ttl);
}
END_TEST

static struct wire_file locked_by(pid_t pid, uid_t uid, uint32_t mode)
{
    be(pid, uid, mode);
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    return file;
}

/* After ESTALE the kernel looks a name up once more. */
START_TEST(lock_that_ends_before_it_is_looked_at_shows_whose_it_was)
{
    struct wire_file file = locked_by(alice, ALICE, 0666);
    be(bob, BOB, 0600);
    uint64_t node = wire_node(w, wire_lookup(w, "L"));
    struct wire_file other = _i ? wire_opened(w, node, O_RDONLY) : file; /* a third process has it open */
    be(alice, ALICE, 0666);
    ck_assert_int_eq(wire_close(w, file), 0);
    be(carol, CAROL, 0600);
    ck_assert_int_eq(wire_result(w, wire_getattr(w, node)), ESTALE);
    file = locked_by(alice, ALICE, 0666);
    be(carol, CAROL, 0600);
    node = wire_node(w, wire_lookup(w, "L"));
    be(alice, ALICE, 0666);
    ck_assert_int_eq(wire_close(w, file), 0);
    be(carol, CAROL, 0600);
    wire_advance(w, 200); /* the machine is busy */
    struct fuse_attr seen = attributes(node);
    ck_assert_uint_eq(seen.mode, S_IFREG | 0666);
    ck_assert_uint_eq(seen.uid, ALICE);
    if (_i) {
        be(bob, BOB, 0600);
        ck_assert_int_eq(wire_close(w, other), 0);
        be(carol, CAROL, 0600);
    }
    ck_assert_int_eq(wire_result(w, wire_touch(w, node, NULL)), ENOENT);
}
END_TEST

START_TEST(descriptor_of_an_ancestor_is_looked_at_when_the_lock_has_just_ended)
{
    struct wire_file file = locked_by(family[0], ALICE, 0640);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0);
    be(family[1], BOB, 0666);
    ck_assert_uint_eq(attributes(file.node).mode, S_IFREG | 0640);
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_getattr(w, file.node)), ESTALE); /* he comes by the name */
}
END_TEST

static void check_state(uint64_t node, const char *expected)
{
    char *state = wire_xattr(w, node, "user.lease.state");
    ck_assert_str_eq(state, expected);
    g_free(state);
}

START_TEST(state_of_a_lock_that_the_caller_released_is_free)
{
    struct wire_file file = locked_by(alice, ALICE, 0666);
    check_state(file.node, "held");
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0);
    check_state(file.node, "free");
    struct wire_file other = locked_by(bob, BOB, 0666);
    ck_assert_uint_eq(other.node, file.node);
    check_state(file.node, "held");
    be(alice, ALICE, 0666);
    check_state(file.node, "free");
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX | LOCK_NB)), EAGAIN);
    check_state(file.node, "free");
    uint64_t waiting = wire_flock(w, file, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    check_state(file.node, "waiting");
    be(wire_child(w), CAROL, 0600);
    struct wire_file reader = wire_opened(w, file.node, O_RDONLY);
    check_state(file.node, "held"); /* who only reads asks about the name */
    ck_assert_int_eq(wire_close(w, reader), 0);
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_close(w, other), 0);
    be(alice, ALICE, 0666);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    check_state(file.node, "held");
}
END_TEST

START_TEST(state_of_records_that_the_caller_released_is_free)
{
    be(alice, ALICE, 0666);
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 1, F_WRLCK, 0, 9, false)), 0);
    be(bob, BOB, 0666);
    struct wire_file other = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, other, 2, F_WRLCK, 10, 19, false)), 0);
    be(alice, ALICE, 0666);
    check_state(file.node, "held");
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 1, F_UNLCK, 0, 9, false)), 0);
    check_state(file.node, "free");
    be(bob, BOB, 0666);
    check_state(file.node, "held");
}
END_TEST

START_TEST(removed_directory_does_not_change_the_next_of_its_name)
{
    be(bob, BOB, 0666);
    uint64_t old = wire_node(w, wire_mkdir(w, "d"));
    ck_assert_int_eq(wire_result(w, wire_rmdir(w, "d")), 0);
    be(alice, ALICE, 0600);
    uint64_t node = wire_node(w, wire_mkdir(w, "d"));
    be(bob, BOB, 0666);
    struct fuse_setattr_in in = {.valid = FATTR_MODE, .mode = S_IFDIR | 0777};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, old, NULL, in)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, old, "user.lease.ttl", "1s")), ESTALE);
    be(alice, 0, 0600); /* who may change both */
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, old, "user.lease.width", "7")), ESTALE);
    be(alice, ALICE, 0600);
    char *width = wire_xattr(w, node, "user.lease.width");
    ck_assert_str_eq(width, "1");
    g_free(width);
    be(bob, BOB, 0666);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, in)), EPERM);
    ck_assert_uint_eq(attributes(node).mode, S_IFDIR | 0755);
    ck_assert_uint_eq(attributes(node).uid, ALICE);
    be(alice, ALICE, 0600);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, node, NULL, in)), 0);
}
END_TEST

/* --- losing ------------------------------------------------------------------------------ */

START_TEST(lost_lease_is_stale_to_its_handle)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    fake_backend_end(w->fake, "L", BACKEND_LOST);
    wire_turn(w);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "y", 1)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_read(w, file, 0, 1)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_fsync(w, file)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_touch(w, file.node, &file)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_null(holder("L")); /* closing acquires nothing again */
}
END_TEST

/* A refused mode says nothing about the lock; a loss was reported once. */
START_TEST(close_fails_for_nothing_but_a_lock_that_another_has)
{
    lease_of(bob, "L");
    wire_advance(w, 2 * SECOND);
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = S_IFREG | 0600};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, file.node, &file, mode)), EPERM);
    ck_assert_int_eq(wire_close(w, file), EBUSY);
    file = wire_created(w, "M", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    fake_backend_end(w->fake, "M", BACKEND_EXPIRED);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), ESTALE);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_null(holder("M"));
}
END_TEST

START_TEST(lost_handle_does_not_write_to_the_next_holder)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    fake_backend_end(w->fake, "L", BACKEND_LOST);
    wire_turn(w);
    lease_of(bob, "L");
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "y", 1)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_touch(w, file.node, &file)), ESTALE);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_nonnull(holder("L"));
}
END_TEST

START_TEST(flock_starts_afresh_after_a_loss)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    fake_backend_end(w->fake, "L", BACKEND_LOST);
    wire_turn(w);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX | LOCK_NB)), 0);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "y", 1)), 0);
    check_content(file, "y");
}
END_TEST

START_TEST(write_whose_lease_ends_meanwhile_is_stale)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    fake_backend_hold(w->fake, FAKE_SET, true);
    uint64_t written = wire_write(w, file, 0, "y", 1);
    ck_assert(wire_waits(w, written));
    fake_backend_end(w->fake, "L", BACKEND_LOST);
    wire_turn(w);
    fake_backend_hold(w->fake, FAKE_SET, false);
    fake_backend_answer(w->fake, FAKE_SET, 0);
    ck_assert_int_eq(wire_result(w, written), ESTALE);
}
END_TEST

START_TEST(write_whose_lease_ends_while_it_reads_is_stale)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    fake_backend_hold(w->fake, FAKE_STAT, true);
    uint64_t written = wire_write(w, file, 0, "y", 1);
    ck_assert(wire_waits(w, written));
    fake_backend_end(w->fake, "L", BACKEND_LOST);
    wire_turn(w);
    fake_backend_hold(w->fake, FAKE_STAT, false);
    fake_backend_occupy(w->fake, "L", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    fake_backend_answer(w->fake, FAKE_STAT, 0);
    ck_assert_int_eq(wire_result(w, written), ESTALE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: rights and contents");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, set_up, wire_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, owner_unlinks_its_lease);
    tcase_add_test(cases, stranger_may_not_unlink_root_included);
    tcase_add_test(cases, descendant_unlinks);
    tcase_add_test(cases, parent_may_not_unlink_its_childs);
    tcase_add_test(cases, same_user_unlinks_when_the_owner_is_dead);
    tcase_add_test(cases, unlink_of_another_mounts_lock_is_eperm_and_of_none_enoent);
    tcase_add_test(cases, slow_holder_cannot_remove_who_came_after_it);
    tcase_add_test(cases, break_is_for_root_and_the_files_user);
    tcase_add_test(cases, release_of_unknown_outcome_is_not_success);
    tcase_add_test(cases, lease_is_renewed_while_its_owner_lives_and_runs_out_after);
    tcase_add_test(cases, helper_that_exits_hands_its_lease_to_its_parent);
    tcase_add_test(cases, child_that_stays_releases_links_and_writes);
    tcase_add_loop_test(cases, lease_is_renewed_until_heir_and_child_have_ended, 0, 2);
    tcase_add_test(cases, child_of_a_process_that_exits_after_its_first_second_does_not_inherit);
    tcase_add_test(cases, lease_of_a_helper_that_nobody_has_waited_for_is_no_strangers);
    tcase_add_test(cases, lease_of_a_helper_is_no_strangers_while_the_store_has_not_answered);
    tcase_add_test(cases, range_of_a_child_is_no_strangers_when_who_took_another_by_the_same_file_has_died);
    tcase_add_test(cases, helper_that_sets_times_behind_its_close_hands_its_lease_on);
    tcase_add_test(cases, nobody_inherits_after_the_first_second);
    tcase_add_test(cases, open_handle_of_a_dead_owner_keeps_its_lease);
    tcase_add_test(cases, handle_of_an_earlier_leases_child_does_not_keep_the_next);
    tcase_add_test(cases, waiter_that_gives_up_does_not_end_what_keeps_a_lease);
    tcase_add_test(cases, lease_without_an_owner_is_not_renewed);
    tcase_add_test(cases, lease_without_an_owner_is_renewed_while_its_handle_is_open);
    tcase_add_test(cases, touch_of_another_pid_namespace_takes_a_lease);
    tcase_add_test(cases, times_of_another_user_and_namespace_decide_nothing);
    tcase_add_test(cases, child_of_another_pid_namespace_that_ends_takes_nothing);
    tcase_add_test(cases, fixed_term_is_not_renewed_until_it_is_automatic_again);
    tcase_add_test(cases, kernel_is_notified_of_expiry);
    tcase_add_test(cases, stranger_may_not_change_mode_owner_or_size);
    tcase_add_loop_test(cases, stranger_may_not_change_the_mode_of_a_handle_lock, 0, 2);
    tcase_add_test(cases, setting_times_by_a_stranger_is_busy_also_by_path);
    tcase_add_test(cases, setting_times_is_busy_where_another_has_records_and_a_lock_was_claimed);
    tcase_add_test(cases, handle_of_before_sets_neither_times_nor_size_where_another_holds);
    tcase_add_test(cases, times_are_what_the_holder_set);
    tcase_add_test(cases, setting_one_time_leaves_the_other);
    tcase_add_test(cases, setattr_of_nothing_answers_with_the_attributes);
    tcase_add_test(cases, cutting_through_an_idle_handle_is_busy);
    tcase_add_test(cases, child_writes_through_what_it_inherited_and_is_another_with_its_own);
    tcase_add_test(cases, content_is_spliced_appended_and_cut);
    tcase_add_test(cases, content_beyond_64_kib_is_efbig);
    tcase_add_test(cases, who_shares_a_lock_does_not_become_the_files_owner);
    tcase_add_test(cases, who_locks_other_bytes_does_not_become_the_files_owner);
    tcase_add_test(cases, idle_handle_sets_no_mode);
    tcase_add_test(cases, lock_belongs_to_its_opener_whichever_process_locks);
    tcase_add_test(cases, mode_of_a_lock_has_permissions_only);
    tcase_add_test(cases, lock_of_a_handle_that_made_nothing_has_its_openers_umask);
    tcase_add_test(cases, another_user_may_not_change_the_mode_of_what_nobody_holds);
    tcase_add_test(cases, mode_changed_through_an_idle_handle_is_its_own);
    tcase_add_test(cases, descendant_of_another_user_is_a_stranger);
    tcase_add_test(cases, file_that_a_descendant_of_another_user_opened_does_not_keep_a_lease);
    tcase_add_test(cases, lock_of_an_opener_is_not_released_by_its_descendant_of_another_user);
    tcase_add_test(cases, older_handle_reads_only_what_its_opener_may);
    tcase_add_test(cases, byte_range_is_read_through_its_own_handle);
    tcase_add_test(cases, token_releases_only_what_the_caller_may_write);
    tcase_add_test(cases, token_of_who_joined_is_not_released_by_whose_file_it_is);
    tcase_add_test(cases, bytes_given_back_do_not_keep_others_from_breaking_their_own);
    tcase_add_test(cases, owner_is_read_between_a_grant_and_its_event);
    tcase_add_test(cases, content_under_a_byte_range_is_not_linked_by_a_stranger);
    tcase_add_test(cases, directory_is_removed_by_its_owner_and_root);
    tcase_add_test(cases, who_shares_a_lock_builds_nothing_on_the_firsts_content);
    tcase_add_test(cases, times_of_a_directory_are_set_only_by_the_process_that_made_it);
    tcase_add_loop_test(cases, times_of_a_directory_of_others_are_set_by_nobody, 0, 2);
    tcase_add_test(cases, directory_is_as_it_was_when_the_backend_does_not_take_a_change);
    tcase_add_loop_test(cases, lock_that_ends_before_it_is_looked_at_shows_whose_it_was, 0, 2);
    tcase_add_test(cases, descriptor_of_an_ancestor_is_looked_at_when_the_lock_has_just_ended);
    tcase_add_test(cases, state_of_a_lock_that_the_caller_released_is_free);
    tcase_add_test(cases, state_of_records_that_the_caller_released_is_free);
    tcase_add_test(cases, removed_directory_does_not_change_the_next_of_its_name);
    tcase_add_test(cases, lost_lease_is_stale_to_its_handle);
    tcase_add_test(cases, close_fails_for_nothing_but_a_lock_that_another_has);
    tcase_add_test(cases, lost_handle_does_not_write_to_the_next_holder);
    tcase_add_test(cases, flock_starts_afresh_after_a_loss);
    tcase_add_test(cases, write_whose_lease_ends_meanwhile_is_stale);
    tcase_add_test(cases, write_whose_lease_ends_while_it_reads_is_stale);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
