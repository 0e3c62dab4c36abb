/* Answers of the backend that are late, in another order, or of unknown outcome: no program gets a false answer. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "fs/daemon/restart.h"
#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

START_TEST(acquiring_without_the_service_is_enolck)
{
    fake_backend_fail(w->fake, FAKE_ACQUIRE, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, wire_create(w, "L", O_WRONLY)), ENOLCK);
    ck_assert_int_eq(wire_result(w, wire_create(w, "L", O_WRONLY | O_EXCL)), ENOLCK);
    ck_assert_int_eq(wire_result(w, wire_symlink(w, "L", "t")), ENOLCK);
    struct wire_file reader = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, reader, LOCK_EX)), ENOLCK);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, reader, 3, F_WRLCK, 0, 1, true)), ENOLCK);
}
END_TEST

START_TEST(looking_up_without_the_service_is_eio_never_enoent)
{
    fake_backend_fail(w->fake, FAKE_STAT, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, wire_lookup(w, "L")), EIO);
    fake_backend_hold(w->fake, FAKE_STAT, true);
    uint64_t late = wire_lookup(w, "L");
    ck_assert(wire_waits(w, late));
    fake_backend_refuse(w->fake, FAKE_STAT, 0, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, late), EIO);
}
END_TEST

START_TEST(unlink_waits_for_the_answer_to_the_claim)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND); /* it is idle now, and its close acquires L again */
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t closed = wire_flush(w, file, 0);
    ck_assert(wire_waits(w, closed));
    fake_backend_carry_out(w->fake);
    uint64_t removed = wire_unlink(w, "L");
    ck_assert(wire_waits(w, removed));
    ck_assert(wire_waits(w, closed));
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    ck_assert_int_eq(wire_result(w, closed), 0);
    ck_assert_int_eq(wire_result(w, removed), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(unlink_refuses_what_was_granted_since_the_store_saw_nothing)
{
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    fake_backend_hold(w->fake, FAKE_STAT, true);
    w->pid = bob;
    uint64_t removed = wire_unlink(w, "L");
    ck_assert(wire_waits(w, removed));
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    fake_backend_refuse(w->fake, FAKE_STAT, 0, BACKEND_OK);
    ck_assert_int_eq(wire_result(w, removed), EPERM);
    ck_assert(held_as("L", BACKEND_FLOCK));
}
END_TEST

START_TEST(answers_may_come_in_another_order)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t first = wire_create(w, "L", O_WRONLY | O_EXCL);
    wire_turn(w);
    w->pid = bob;
    uint64_t second = wire_create(w, "M", O_WRONLY | O_EXCL);
    ck_assert(wire_waits(w, first));
    ck_assert(wire_waits(w, second));
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 1);
    ck_assert_int_eq(wire_result(w, second), 0);
    ck_assert(wire_waits(w, first));
    fake_backend_refuse(w->fake, FAKE_ACQUIRE, 0, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, first), ENOLCK);
}
END_TEST

START_TEST(exclusive_creates_that_race_have_one_winner)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t first = wire_create(w, "L", O_WRONLY | O_EXCL);
    wire_turn(w);
    w->pid = bob;
    uint64_t second = wire_create(w, "L", O_WRONLY | O_EXCL);
    wire_turn(w);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    while (fake_backend_held_back(w->fake, FAKE_ACQUIRE)) {
        fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    }
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(wire_result(w, second), EEXIST);
}
END_TEST

START_TEST(open_waits_for_a_lease_that_is_not_answered)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t first = wire_create(w, "L", O_WRONLY | O_EXCL);
    ck_assert(wire_waits(w, first));
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    w->pid = bob;
    uint64_t second = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, second));
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(wire_result(w, second), EBUSY); /* it looked before the lease was there */
}
END_TEST

START_TEST(open_goes_on_when_a_lease_was_not_granted)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t first = wire_create(w, "L", O_WRONLY | O_EXCL);
    ck_assert(wire_waits(w, first));
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    w->pid = bob;
    uint64_t second = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, second));
    fake_backend_refuse(w->fake, FAKE_ACQUIRE, 0, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, first), ENOLCK);
    ck_assert_int_eq(wire_result(w, second), 0);
    ck_assert(held_as("L", BACKEND_PROVISIONAL));
}
END_TEST

START_TEST(own_further_open_waits_for_the_answer_only)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t first = wire_create(w, "L", O_WRONLY), second = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, first));
    ck_assert(wire_waits(w, second));
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(wire_result(w, second), 0);
    ck_assert_int_eq(wire_close(w, wire_file(w, first)), 0);
    ck_assert_int_eq(wire_close(w, wire_file(w, second)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(nonblocking_flock_awaits_the_outcome_of_an_open_that_is_not_answered)
{
    struct wire_file reader = wire_created(w, "L", O_RDONLY);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    w->pid = bob;
    uint64_t opening = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, opening));
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    w->pid = alice;
    uint64_t waiting = wire_flock(w, reader, LOCK_EX | LOCK_NB);
    ck_assert(wire_waits(w, waiting));
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    ck_assert(wire_waits(w, waiting));
    wire_advance(w, SECOND);
    ck_assert_int_eq(wire_result(w, waiting), 0);
}
END_TEST

START_TEST(open_meets_one_that_is_not_answered)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t first = wire_create(w, "L", O_WRONLY);
    wire_turn(w);
    w->pid = bob;
    uint64_t second = wire_create(w, "L", O_WRONLY);
    wire_turn(w);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    while (fake_backend_held_back(w->fake, FAKE_ACQUIRE)) {
        fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    }
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert(wire_waits(w, second)); /* for the provisional second */
    wire_advance(w, SECOND);
    ck_assert_int_eq(wire_result(w, second), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_close(w, wire_file(w, second)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(open_whose_caller_is_gone_holds_nothing)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t unique = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, unique));
    wire_lose_caller(w, unique);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    wire_turn(w);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(release_that_lapses_in_the_backend_is_answered)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), 0);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    uint64_t release = wire_release(w, file);
    ck_assert(wire_waits(w, release));
    wire_advance(w, 2 * SECOND);
    fake_backend_answer(w->fake, FAKE_CONVERT, 0);
    ck_assert_int_eq(wire_result(w, release), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(close_after_the_daemon_stood_still_acquires_a_free_name_again)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    fake_backend_hold_events(w->fake, true);
    wire_advance(w, 2 * SECOND); /* `due` and `ended` are reported after the FLUSH */
    uint64_t flush = wire_flush(w, file, 1);
    wire_take(w);
    fake_backend_hold_events(w->fake, false);
    ck_assert_int_eq(wire_result(w, flush), 0);
    ck_assert(held_as("L", BACKEND_PROVISIONAL));
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(close_after_the_daemon_stood_still_is_busy_when_another_holds)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    fake_backend_hold_events(w->fake, true);
    wire_advance(w, 2 * SECOND);
    fake_backend_occupy(w->fake, "L", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    uint64_t flush = wire_flush(w, file, 1);
    wire_take(w);
    fake_backend_hold_events(w->fake, false);
    ck_assert_int_eq(wire_result(w, flush), EBUSY);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_PROVISIONAL), 0);
}
END_TEST

START_TEST(write_decides_while_the_second_lapses)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    uint64_t written = wire_write(w, file, 0, "x", 1);
    ck_assert(wire_waits(w, written));
    w->pid = bob;
    uint64_t waiting = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, waiting));
    wire_advance(w, SECOND); /* due comes while the outcome is on its way */
    fake_backend_hold(w->fake, FAKE_CONVERT, false);
    if (fake_backend_held_back(w->fake, FAKE_CONVERT)) {
        fake_backend_answer(w->fake, FAKE_CONVERT, 0);
    }
    /* Exactly the process that reports the lock has it. */
    int error = wire_result(w, written);
    ck_assert_int_eq(error == 0, held_as("L", BACKEND_LEASE));
    ck_assert_int_eq(wire_result(w, waiting), error == 0 ? EBUSY : 0);
}
END_TEST

/* The other way to lose it: the first is refused and the second gets nothing. */
START_TEST(exclusive_create_waits_for_one_that_is_not_answered)
{
    fake_backend_hold(w->fake, FAKE_ACQUIRE, true);
    uint64_t first = wire_create(w, "L", O_WRONLY | O_EXCL);
    wire_turn(w);
    w->pid = bob;
    uint64_t second = wire_create(w, "L", O_WRONLY | O_EXCL);
    wire_turn(w);
    fake_backend_refuse(w->fake, FAKE_ACQUIRE, 0, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, first), ENOLCK);
    fake_backend_hold(w->fake, FAKE_ACQUIRE, false);
    while (fake_backend_held_back(w->fake, FAKE_ACQUIRE)) {
        fake_backend_answer(w->fake, FAKE_ACQUIRE, 0);
    }
    ck_assert_int_eq(wire_result(w, second), 0);
}
END_TEST

static struct fuse_attr shown(uint64_t node)
{
    uint64_t requested = wire_getattr(w, node);
    ck_assert_int_eq(wire_result(w, requested), 0);
    return ((const struct fuse_attr_out *)wire_data(w, requested, NULL))->attr;
}

/* Mode, owner and times: told when the store has them, and as before when it does not take them. */
START_TEST(attributes_are_answered_by_the_store)
{
    static const struct fuse_setattr_in changes[] = {
        {.valid = FATTR_MODE, .mode = S_IFREG | 0600},
        {.valid = FATTR_UID, .uid = 12},
        {.valid = FATTR_ATIME | FATTR_MTIME, .atime = 12345, .mtime = 54321},
    };
    struct wire_file file = wire_created(w, "L", O_WRONLY | O_EXCL);
    wire_advance(w, 2 * SECOND);
    struct fuse_attr before = shown(file.node);
    fake_backend_fail(w->fake, FAKE_SET, BACKEND_FULL);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, file.node, &file, changes[_i])), ENOSPC);
    struct fuse_attr after = shown(file.node);
    ck_assert_uint_eq(after.mode, before.mode);
    ck_assert_uint_eq(after.uid, before.uid);
    ck_assert(after.mtime != changes[_i].mtime);
    fake_backend_fail(w->fake, FAKE_SET, BACKEND_OK);
    fake_backend_hold(w->fake, FAKE_SET, true);
    uint64_t requested = wire_setattr(w, file.node, &file, changes[_i]);
    ck_assert(wire_waits(w, requested));
    fake_backend_answer(w->fake, FAKE_SET, 0);
    ck_assert_int_eq(wire_result(w, requested), 0);
    fake_backend_hold(w->fake, FAKE_SET, false);
    after = shown(file.node);
    ck_assert_uint_eq(after.mode, _i == 0 ? changes[0].mode : before.mode);
    ck_assert_uint_eq(after.uid, _i == 1 ? changes[1].uid : before.uid);
    ck_assert(_i < 2 || after.mtime == changes[2].mtime);
}
END_TEST

/* Nor can the store say what it has, in the second half. */
START_TEST(attributes_of_a_directory_that_the_store_does_not_take_are_as_before)
{
    struct fuse_setattr_in change = {.valid = FATTR_MODE | FATTR_UID | (_i % 2 ? FATTR_MTIME : 0),
                                     .mode = S_IFDIR | 0700,
                                     .uid = 12,
                                     .mtime = 12345};
    uint64_t node = _i % 2 ? wire_node(w, wire_mkdir(w, "d")) : FUSE_ROOT_ID;
    struct fuse_attr before = shown(node);
    char *ttl = wire_xattr(w, node, "user.lease.ttl");
    fake_backend_fail(w->fake, FAKE_SET_DIRECTORY, BACKEND_FULL);
    fake_backend_hold(w->fake, FAKE_STAT, true);
    uint64_t requested[] = {wire_setattr(w, node, NULL, change), 0};
    for (unsigned i = 0; i < 2; i++) {
        requested[i] = i ? wire_setxattr(w, node, "user.lease.ttl", "7s") : requested[0];
        while (wire_waits(w, requested[i])) {
            if (_i < 2 || fake_backend_count(w->fake, FAKE_SET_DIRECTORY) == i)
                fake_backend_answer(w->fake, FAKE_STAT, 0);
            else
                fake_backend_refuse(w->fake, FAKE_STAT, 0, BACKEND_UNREACHABLE);
        }
        ck_assert_int_eq(wire_result(w, requested[i]), ENOSPC);
    }
    fake_backend_hold(w->fake, FAKE_STAT, false);
    struct fuse_attr after = shown(node);
    ck_assert_uint_eq(after.mode, before.mode);
    ck_assert_uint_eq(after.uid, before.uid);
    ck_assert_uint_eq(after.mtime, before.mtime);
    char *now = wire_xattr(w, node, "user.lease.ttl");
    ck_assert_str_eq(now, ttl);
    g_free(now);
    g_free(ttl);
}
END_TEST

/* The hold ends while its new mode is on the way. */
/* Two threads of a process lock ranges of one name, each through a file of its own. */
START_TEST(change_goes_on_with_another_lock_of_the_process_when_the_first_ends_meanwhile)
{
    struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = S_IFREG | 0600};
    struct fuse_setattr_in times = {.valid = FATTR_MTIME | FATTR_ATIME, .mtime = 12345, .atime = 54321};
    struct wire_file first = wire_created(w, "L", O_RDWR), second = wire_opened(w, first.node, O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 1, F_WRLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, second, 2, F_WRLCK, 10, 19, false)), 0);
    enum fake_call call = _i == 0 ? FAKE_STAT : FAKE_SET;
    fake_backend_hold(w->fake, call, true);
    uint64_t requested = _i < 2    ? wire_write(w, second, 0, "text", 4)
                         : _i == 2 ? wire_setattr(w, second.node, &second, mode)
                                   : wire_setattr(w, second.node, &second, times);
    ck_assert(wire_waits(w, requested));
    fake_backend_hold(w->fake, call, false);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 1, F_UNLCK, 0, INT64_MAX, false)), 0);
    if (call == FAKE_SET) {
        fake_backend_refuse(w->fake, FAKE_SET, 0, BACKEND_STALE);
    } else {
        fake_backend_answer(w->fake, FAKE_STAT, 0);
    }
    ck_assert_int_eq(wire_result(w, requested), 0);
    uint64_t looked = wire_getattr(w, second.node);
    ck_assert_int_eq(wire_result(w, looked), 0);
    const struct fuse_attr *seen = &((const struct fuse_attr_out *)wire_data(w, looked, NULL))->attr;
    ck_assert_uint_eq(_i < 2    ? seen->size
                      : _i == 2 ? seen->mode
                                : seen->mtime,
                      _i < 2    ? 4
                      : _i == 2 ? S_IFREG | 0600
                                : 12345);
}
END_TEST

START_TEST(attributes_of_a_lock_that_ends_meanwhile_are_estale)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY | O_EXCL);
    struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = S_IFREG | 0600};
    fake_backend_hold(w->fake, FAKE_SET, true);
    uint64_t requested = wire_setattr(w, file.node, &file, mode);
    ck_assert(wire_waits(w, requested));
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    fake_backend_refuse(w->fake, FAKE_SET, 0, BACKEND_STALE);
    ck_assert_int_eq(wire_result(w, requested), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0); /* the kernel keeps the file open for a call */
}
END_TEST

/* The store carried it out while the lock was held, and its answer comes after the loss. */
START_TEST(change_that_is_answered_after_its_lock_was_lost_is_estale)
{
    struct fuse_setattr_in mode = {.valid = FATTR_MODE, .mode = S_IFREG | 0600};
    struct fuse_setattr_in times = {.valid = FATTR_MTIME | FATTR_ATIME, .mtime = 12345, .atime = 54321};
    struct fuse_setattr_in size = {.valid = FATTR_SIZE, .size = 2};
    struct wire_file file = wire_created(w, "L", O_WRONLY | O_EXCL);
    fake_backend_hold(w->fake, FAKE_SET, true);
    uint64_t requested = _i == 0   ? wire_write(w, file, 0, "text", 4)
                         : _i == 1 ? wire_setattr(w, file.node, &file, mode)
                         : _i == 2 ? wire_setattr(w, file.node, &file, times)
                                   : wire_setattr(w, file.node, &file, size);
    ck_assert(wire_waits(w, requested));
    fake_backend_end(w->fake, "L", BACKEND_LOST);
    wire_turn(w);
    fake_backend_refuse(w->fake, FAKE_SET, 0, BACKEND_OK);
    ck_assert_int_eq(wire_result(w, requested), ESTALE);
}
END_TEST

/* The store says that it was gone: broken elsewhere, which this mount has not heard of. */
START_TEST(unlocking_and_closing_succeed_when_the_lock_was_lost_and_rm_does_not)
{
    struct wire_file file = wire_created(w, "L", _i == 3 ? O_WRONLY | O_EXCL : O_RDWR);
    uint64_t owner = (uint64_t)w->pid, requested;
    if (_i == 0)
        ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    else if (_i < 3)
        ck_assert_int_eq(wire_result(w, wire_setlk(w, file, owner, F_WRLCK, 0, 9, false)), 0);
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    requested = _i == 0   ? wire_flock(w, file, LOCK_UN)
                : _i == 1 ? wire_setlk(w, file, owner, F_UNLCK, 0, INT64_MAX, false)
                : _i == 2 ? wire_flush(w, file, owner)
                          : wire_unlink(w, "L");
    ck_assert(wire_waits(w, requested));
    fake_backend_hold(w->fake, FAKE_RELEASE, false);
    fake_backend_refuse(w->fake, FAKE_RELEASE, 0, BACKEND_STALE);
    ck_assert_int_eq(wire_result(w, requested), _i == 3 ? ESTALE : 0);
}
END_TEST

START_TEST(mount_that_ends_answers_what_the_store_has_not)
{
    struct wire_file lease = wire_created(w, "written", O_WRONLY | O_EXCL),
                     second = wire_created(w, "second", O_WRONLY);
    struct wire_file shared = wire_created(w, "shared", O_RDONLY), other = wire_opened(w, shared.node, O_RDONLY);
    wire_created(w, "from", O_WRONLY | O_EXCL);
    wire_created(w, "to", O_WRONLY | O_EXCL);
    wire_created(w, "removed", O_WRONLY | O_EXCL);
    ck_assert_int_eq(wire_result(w, wire_flock(w, shared, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_flush(w, second, 0)), 0);
    for (int call = 0; call < FAKE_CALLS; call++) {
        fake_backend_hold(w->fake, (enum fake_call)call, true);
    }
    const uint64_t requested[] = {
        wire_lookup(w, "looked up"),    wire_create(w, "L", O_WRONLY | O_EXCL),
        wire_symlink(w, "S", "target"), wire_write(w, lease, 0, "x", 1),
        wire_release(w, second),        wire_rename(w, "from", "to", 0),
        wire_unlink(w, "removed"),      wire_mkdir(w, "D"),
        wire_flock(w, other, LOCK_EX),  wire_setlk(w, other, 3, F_WRLCK, 0, 1, true),
        wire_flock(w, shared, LOCK_UN),
    };
    for (size_t i = 0; i < G_N_ELEMENTS(requested); i++) {
        ck_assert_msg(wire_waits(w, requested[i]), "request %zu does not wait", i);
    }
    wire_end(w);
    wire_setup();
}
END_TEST

/* What the store was asked about what the daemon before has left, too. */
START_TEST(mount_that_ends_lets_go_of_what_it_was_taking_over)
{
    fake_backend_keep(w->fake, "kept", "content");
    fake_backend_keep(w->fake, "lost", "content");
    fake_backend_hold(w->fake, FAKE_STAT, true);
    recover_stop(w->fs); /* what fs_start has recovered */
    recover_leases(w->fs);
    ck_assert_uint_eq(fake_backend_held_back(w->fake, FAKE_STAT), 3); /* the root, and these */
    fake_backend_end(w->fake, "lost", BACKEND_BROKEN);
    wire_turn(w);
    wire_end(w);
    wire_setup();
}
END_TEST

START_TEST(size_of_joined_content_is_that_of_the_store)
{
    fake_backend_keep(w->fake, "L", "content");
    fake_backend_hold(w->fake, FAKE_STAT, true);
    recover_stop(w->fs); /* what fs_start has recovered */
    recover_leases(w->fs);
    fake_backend_hold(w->fake, FAKE_STAT, false);
    fake_backend_answer(w->fake, FAKE_STAT, 1);
    fake_backend_refuse(w->fake, FAKE_STAT, 0, BACKEND_UNREACHABLE);
    uint64_t found = wire_lookup(w, "L");
    ck_assert_int_eq(wire_result(w, found), 0);
    ck_assert_uint_eq(((const struct fuse_entry_out *)wire_data(w, found, NULL))->attr.size, strlen("content"));
}
END_TEST

START_TEST(mount_that_ends_frees_what_ended_during_a_request)
{
    struct wire_file written = wire_created(w, "written", O_WRONLY | O_EXCL);
    struct wire_file decided = wire_created(w, "decided", O_WRONLY);
    wire_created(w, "moved", O_WRONLY | O_EXCL);
    wire_created(w, "replaced", O_WRONLY | O_EXCL);
    for (int call = 0; call < FAKE_CALLS; call++) {
        fake_backend_hold(w->fake, (enum fake_call)call, true);
    }
    const uint64_t requested[] = {
        wire_write(w, written, 0, "x", 1),
        wire_write(w, decided, 0, "x", 1),
        wire_rename(w, "moved", "replaced", 0),
    };
    for (size_t i = 0; i < G_N_ELEMENTS(requested); i++) {
        ck_assert_msg(wire_waits(w, requested[i]), "request %zu does not wait", i);
    }
    static const char *const names[] = {"written", "decided", "moved", "replaced"};
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        fake_backend_end(w->fake, names[i], BACKEND_BROKEN);
    }
    wire_turn(w);
    wire_end(w);
    wire_setup();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: unknown outcomes");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, wire_setup, wire_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, acquiring_without_the_service_is_enolck);
    tcase_add_test(cases, looking_up_without_the_service_is_eio_never_enoent);
    tcase_add_test(cases, unlink_waits_for_the_answer_to_the_claim);
    tcase_add_test(cases, unlink_refuses_what_was_granted_since_the_store_saw_nothing);
    tcase_add_test(cases, answers_may_come_in_another_order);
    tcase_add_test(cases, exclusive_creates_that_race_have_one_winner);
    tcase_add_test(cases, open_waits_for_a_lease_that_is_not_answered);
    tcase_add_test(cases, open_goes_on_when_a_lease_was_not_granted);
    tcase_add_test(cases, own_further_open_waits_for_the_answer_only);
    tcase_add_test(cases, nonblocking_flock_awaits_the_outcome_of_an_open_that_is_not_answered);
    tcase_add_test(cases, open_meets_one_that_is_not_answered);
    tcase_add_test(cases, open_whose_caller_is_gone_holds_nothing);
    tcase_add_test(cases, release_that_lapses_in_the_backend_is_answered);
    tcase_add_test(cases, close_after_the_daemon_stood_still_acquires_a_free_name_again);
    tcase_add_test(cases, close_after_the_daemon_stood_still_is_busy_when_another_holds);
    tcase_add_test(cases, write_decides_while_the_second_lapses);
    tcase_add_test(cases, exclusive_create_waits_for_one_that_is_not_answered);
    tcase_add_loop_test(cases, attributes_are_answered_by_the_store, 0, 3);
    tcase_add_loop_test(cases, attributes_of_a_directory_that_the_store_does_not_take_are_as_before, 0, 4);
    tcase_add_loop_test(cases, unlocking_and_closing_succeed_when_the_lock_was_lost_and_rm_does_not, 0, 4);
    tcase_add_loop_test(cases, change_that_is_answered_after_its_lock_was_lost_is_estale, 0, 4);
    tcase_add_loop_test(cases, change_goes_on_with_another_lock_of_the_process_when_the_first_ends_meanwhile, 0, 4);
    tcase_add_test(cases, attributes_of_a_lock_that_ends_meanwhile_are_estale);
    tcase_add_test(cases, mount_that_ends_answers_what_the_store_has_not);
    tcase_add_test(cases, mount_that_ends_lets_go_of_what_it_was_taking_over);
    tcase_add_test(cases, size_of_joined_content_is_that_of_the_store);
    tcase_add_test(cases, mount_that_ends_frees_what_ended_during_a_request);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
