/* flock and fcntl locks, against each other, against leases and with poll. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/xattr.h>

#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

/* --- flock --------------------------------------------------------------------------- */

/* By alice, bob or carol: who waits for itself is refused. */
static uint64_t flock_by_its_opener(struct wire_file file, int operation)
{
    pid_t before = w->pid;
    w->pid = file.fh == a.fh ? alice : file.fh == b.fh ? bob : carol;
    uint64_t requested = wire_flock(w, file, operation);
    w->pid = before;
    return requested;
}

START_TEST(shared_locks_stand_together_and_exclusive_waits)
{
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH | LOCK_NB)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(c, LOCK_EX | LOCK_NB)), EAGAIN);
    uint64_t waiting = flock_by_its_opener(c, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_UN)), 0);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
}
END_TEST

START_TEST(conversion_to_exclusive_is_refused_while_another_shares)
{
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, b, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX | LOCK_NB)), EAGAIN);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 2); /* unlike Linux, it goes on sharing */
    ck_assert_int_eq(wire_result(w, wire_flock(w, c, LOCK_EX | LOCK_NB)), EAGAIN);
    ck_assert_int_eq(wire_result(w, wire_flock(w, b, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, c, LOCK_EX | LOCK_NB)), EAGAIN);
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX | LOCK_NB)), 0);
}
END_TEST

/* It shares until then, and is the same lock after that. */
START_TEST(conversion_to_exclusive_waits_for_the_others)
{
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH)), 0);
    uint64_t token = fake_backend_holder(w->fake, "L")->fence;
    uint64_t waiting = flock_by_its_opener(a, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 2);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_uint_eq(fake_backend_holder(w->fake, "L")->fence, token);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH | LOCK_NB)), EAGAIN);
}
END_TEST

/* Those wait for what it has. */
START_TEST(conversion_to_exclusive_goes_before_all_that_wait)
{
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH)), 0);
    uint64_t writer = flock_by_its_opener(c, LOCK_EX);
    ck_assert(wire_waits(w, writer));
    w->pid = wire_child(w);
    struct wire_file d = wire_created(w, "L", O_RDONLY);
    uint64_t reader = wire_flock(w, d, LOCK_SH), waiting = flock_by_its_opener(a, LOCK_EX);
    ck_assert(wire_waits(w, reader));
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert(wire_waits(w, writer));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, writer), 0);
    ck_assert(wire_waits(w, reader));
}
END_TEST

/* Another thread gives up the lock while it waits to become exclusive, in the moment even when it could: then it is a
 * request for a lock like any other. */
START_TEST(conversion_whose_lock_is_given_up_meanwhile_is_a_new_lock)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH)), 0);
    uint64_t waiting = wire_flock(w, a, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    if (_i) {
        fake_backend_hold_events(w->fake, true);
    }
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_UN)), 0);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_UN)), 0);
    fake_backend_hold_events(w->fake, false);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH | LOCK_NB)), EAGAIN);
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_UN)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 0);
}
END_TEST

/* _i: the answer to the last step is that it failed, the lock is lost before it, or others share after all. */
START_TEST(conversion_whose_last_step_fails_leaves_the_lock_as_it_was)
{
    static const enum backend_result results[] = {BACKEND_UNREACHABLE, BACKEND_STALE, BACKEND_BUSY};
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH)), 0);
    uint64_t waiting = wire_flock(w, a, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_UN)), 0);
    ck_assert(wire_waits(w, waiting));
    ck_assert_uint_eq(fake_backend_held_back(w->fake, FAKE_CONVERT), 1);
    if (results[_i] == BACKEND_STALE) {
        fake_backend_end(w->fake, "L", BACKEND_BROKEN); /* and of what it waits with, too */
        wire_turn(w);
    }
    fake_backend_hold(w->fake, FAKE_CONVERT, false);
    fake_backend_refuse(w->fake, FAKE_CONVERT, 0, results[_i]);
    ck_assert_int_eq(wire_result(w, waiting), _i == 0 ? ENOLCK : 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH | LOCK_NB)), _i == 0 ? 0 : EAGAIN);
}
END_TEST

/* _i: how the lock ends.  The answer waits until the claim that waited for the others is released. */
START_TEST(lock_that_ends_between_its_conversion_and_the_answer_is_waited_for_again)
{
    static const enum backend_end ends[] = {BACKEND_BROKEN, BACKEND_RELEASED, BACKEND_LOST};
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH)), 0);
    uint64_t waiting = wire_flock(w, a, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    uint64_t left = flock_by_its_opener(b, LOCK_UN);
    ck_assert(wire_waits(w, waiting));
    ck_assert_uint_eq(fake_backend_held_back(w->fake, FAKE_RELEASE), 2);
    ck_assert_int_eq(fake_backend_holder(w->fake, "L")->mode, BACKEND_EXCLUSIVE);
    fake_backend_end(w->fake, "L", ends[_i]);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(c, LOCK_EX)), 0);
    fake_backend_hold(w->fake, FAKE_RELEASE, false);
    fake_backend_answer(w->fake, FAKE_RELEASE, 0);
    fake_backend_answer(w->fake, FAKE_RELEASE, 0);
    ck_assert_int_eq(wire_result(w, left), 0);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(c, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
}
END_TEST

/* The close would make a lease of what flock makes a handle's lock; that was asked for before it. */
START_TEST(close_of_another_handle_does_not_turn_a_lock_into_a_lease)
{
    struct wire_file first = wire_created(w, "M", O_RDWR);
    wire_advance(w, 2 * SECOND); /* idle by now */
    struct wire_file second = wire_opened(w, first.node, O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, second, 1)), 0);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    uint64_t locked = wire_flock(w, first, LOCK_EX);
    ck_assert(wire_waits(w, locked));
    uint64_t released = wire_release(w, second);
    wire_turn(w);
    fake_backend_hold(w->fake, FAKE_CONVERT, false);
    while (fake_backend_held_back(w->fake, FAKE_CONVERT)) {
        fake_backend_answer(w->fake, FAKE_CONVERT, 0);
    }
    ck_assert_int_eq(wire_result(w, locked), 0);
    ck_assert_int_eq(wire_result(w, released), 0);
    ck_assert_int_eq(fake_backend_holder(w->fake, "M")->kind, BACKEND_FLOCK);
    ck_assert_int_eq(wire_close(w, first), 0);
    ck_assert_ptr_null(fake_backend_holder(w->fake, "M"));
}
END_TEST

START_TEST(interrupted_conversion_goes_on_sharing)
{
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH)), 0);
    uint64_t waiting = flock_by_its_opener(a, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    wire_interrupt(w, waiting);
    ck_assert_int_eq(wire_result(w, waiting), EINTR);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 2);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
}
END_TEST

START_TEST(second_of_two_conversions_to_exclusive_is_refused)
{
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_SH)), 0);
    uint64_t first = flock_by_its_opener(a, LOCK_EX);
    ck_assert(wire_waits(w, first));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_EX)), EDEADLK);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_EX | LOCK_NB)), EAGAIN);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 2);
    ck_assert(wire_waits(w, first));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(b, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, first), 0);
}
END_TEST

START_TEST(conversion_to_shared_lets_waiting_readers_in)
{
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_EX)), 0);
    uint64_t waiting = flock_by_its_opener(b, LOCK_SH);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
}
END_TEST

START_TEST(conversion_whose_outcome_comes_after_the_loss_waits_again)
{
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    uint64_t requested = wire_flock(w, a, LOCK_SH);
    ck_assert(wire_waits(w, requested));
    fake_backend_end(w->fake, "L", BACKEND_BROKEN);
    wire_turn(w);
    fake_backend_hold(w->fake, FAKE_CONVERT, false);
    fake_backend_answer(w->fake, FAKE_CONVERT, 0);
    ck_assert_int_eq(wire_result(w, requested), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
}
END_TEST

START_TEST(owner_turns_its_lease_into_a_flock)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    uint64_t token = fake_backend_holder(w->fake, "M")->fence;
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX | LOCK_NB)), 0);
    ck_assert_int_eq(fake_backend_holder(w->fake, "M")->kind, BACKEND_FLOCK);
    ck_assert_uint_eq(fake_backend_holder(w->fake, "M")->fence, token);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "M"), 0);
}
END_TEST

START_TEST(flock_waits_for_the_end_of_anothers_lease)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", O_WRONLY);
    ck_assert_int_eq(wire_close(w, file), 0);
    w->pid = bob;
    struct wire_file reader = wire_opened(w, file.node, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, reader, LOCK_EX | LOCK_NB)), EAGAIN);
    uint64_t waiting = wire_flock(w, reader, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "M")), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert(wire_exists(w, "M"));
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "M")), file.node); /* never a second inode */
}
END_TEST

START_TEST(unlink_releases_all_that_its_caller_has_by_the_name_and_nothing_else)
{
    w->pid = alice;
    struct wire_file second = wire_opened(w, a.node, O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, second, LOCK_SH)), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_flock(w, b, LOCK_SH)), 0);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1); /* bob's */
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 0);
}
END_TEST

/* One of two may have run out in the store a moment before; of one whose end nobody knows nothing can be said. */
START_TEST(unlink_of_several_reports_a_failure_that_matters)
{
    static const struct {
        enum backend_result first, second;
        int error;
    } cases[] = {{BACKEND_STALE, BACKEND_OK, 0},
                 {BACKEND_OK, BACKEND_STALE, 0},
                 {BACKEND_STALE, BACKEND_STALE, ESTALE},
                 {BACKEND_UNREACHABLE, BACKEND_STALE, ENOLCK},
                 {BACKEND_OK, BACKEND_UNREACHABLE, ENOLCK}};
    w->pid = alice;
    struct wire_file second = wire_opened(w, a.node, O_RDWR);
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, second, LOCK_SH)), 0);
    uint64_t unlink = wire_unlink(w, "L");
    ck_assert(wire_waits(w, unlink));
    ck_assert_uint_eq(fake_backend_held_back(w->fake, FAKE_RELEASE), 2);
    fake_backend_refuse(w->fake, FAKE_RELEASE, 1, cases[_i].second);
    ck_assert(wire_waits(w, unlink));
    fake_backend_refuse(w->fake, FAKE_RELEASE, 0, cases[_i].first);
    ck_assert_int_eq(wire_result(w, unlink), cases[_i].error);
}
END_TEST

START_TEST(unlink_by_the_holder_of_a_flock_lets_waiters_on_to_the_same_name)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_EX)), 0);
    uint64_t waiting = flock_by_its_opener(b, LOCK_EX);
    ck_assert(wire_waits(w, waiting));
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), EPERM);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert_uint_eq(wire_node(w, wire_lookup(w, "L")), b.node);
}
END_TEST

/* _i: what has it by the first file is a flock, or record locks of the same lock owner; the other way round, too. */
START_TEST(process_whose_only_thread_would_wait_for_itself_is_refused)
{
    struct wire_file other = wire_created(w, "L", O_RDWR);
    wire_advance(w, 2 * SECOND); /* idle by now */
    uint64_t held = _i == 1 ? wire_setlk(w, c, 1, F_WRLCK, 0, 9, false) : wire_flock(w, c, LOCK_EX);
    ck_assert_int_eq(wire_result(w, held), 0);
    const struct backend_ticket *ticket = fake_backend_holder(w->fake, "L");
    uint64_t requested = _i == 2 ? wire_setlk(w, other, 1, F_WRLCK, 0, 9, true) : wire_flock(w, other, LOCK_EX);
    ck_assert_int_eq(wire_result(w, requested), EDEADLK);
    requested = _i == 2 ? wire_setlk(w, other, 1, F_WRLCK, 0, 9, false) : wire_flock(w, other, LOCK_EX | LOCK_NB);
    ck_assert_int_eq(wire_result(w, requested), EAGAIN);
    ck_assert_ptr_eq(fake_backend_holder(w->fake, "L"), ticket);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "L"), 0);
    uint64_t waits = wire_flock(w, b, LOCK_EX); /* opened by another, but asked by the same */
    ck_assert_int_eq(wire_result(w, waits), EDEADLK);
    waits = flock_by_its_opener(b, LOCK_EX);
    ck_assert(wire_waits(w, waits));
    ck_assert_int_eq(wire_close(w, c), 0);
    ck_assert_int_eq(wire_result(w, waits), 0);
}
END_TEST

/* The others may give it up, whatever comes after that. */
START_TEST(process_that_waits_for_others_too_waits)
{
    struct wire_file other = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, c, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_SH)), 0);
    uint64_t waits = wire_flock(w, other, LOCK_EX);
    ck_assert(wire_waits(w, waits));
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, c, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, waits), 0);
}
END_TEST

/* A conversion that would wait for itself leaves the lock as it was. */
START_TEST(conversion_that_would_wait_for_itself_is_refused)
{
    struct wire_file other = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, c, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, other, LOCK_SH)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, c, LOCK_EX)), EDEADLK);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 2);
}
END_TEST

START_TEST(two_flocks_at_once_on_one_handle_are_one_lock)
{
    ck_assert_int_eq(wire_result(w, wire_flock(w, b, LOCK_EX)), 0);
    w->pid = alice;
    uint64_t first = wire_flock(w, a, LOCK_EX), second = wire_flock(w, a, LOCK_SH);
    ck_assert(wire_waits(w, first));
    ck_assert(wire_waits(w, second));
    ck_assert_int_eq(wire_result(w, wire_flock(w, b, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(wire_result(w, second), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
    ck_assert_int_eq(wire_close(w, a), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 0);
}
END_TEST

/* --- fcntl ------------------------------------------------------------------------------ */

START_TEST(byte_ranges_exclude_only_where_they_overlap)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 2, F_WRLCK, 10, 19, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, c, 3, F_RDLCK, 9, 10, false)), EAGAIN);
    uint64_t waiting = wire_setlk(w, c, 3, F_RDLCK, 9, 10, true);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_UNLCK, 9, 9, false)), 0);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 2, F_UNLCK, 10, 10, false)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 2, F_WRLCK, 5, 5, false)), EAGAIN);
}
END_TEST

/* The kernel asks for none. */
START_TEST(range_that_ends_before_it_begins_is_refused)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 9, 7, false)), EINVAL);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, UINT64_MAX, 7, true)), EINVAL);
    ck_assert_int_eq(wire_result(w, wire_getlk(w, a, 1, F_WRLCK, 9, 7)), EINVAL);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 5, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 9, 7, false)), EINVAL);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_UNLCK, 9, 7, false)), EINVAL);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 2, F_WRLCK, 5, 5, false)), EAGAIN);
}
END_TEST

START_TEST(getlk_shows_the_conflicting_holder)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 10, 19, false)), 0);
    uint64_t requested = wire_getlk(w, b, 2, F_RDLCK, 0, INT64_MAX);
    ck_assert_int_eq(wire_result(w, requested), 0);
    const struct fuse_lk_out *out = wire_data(w, requested, NULL);
    ck_assert_uint_eq(out->lk.type, F_WRLCK);
    ck_assert_uint_eq(out->lk.start, 10);
    ck_assert_uint_eq(out->lk.end, 19);
    ck_assert_int_eq((pid_t)out->lk.pid, alice);
    requested = wire_getlk(w, b, 2, F_RDLCK, 0, 9);
    ck_assert_int_eq(wire_result(w, requested), 0);
    ck_assert_uint_eq(((const struct fuse_lk_out *)wire_data(w, requested, NULL))->lk.type, F_UNLCK);
}
END_TEST

/* What F_GETLK tells. */
static struct fuse_file_lock reported(struct wire_file file, uint64_t owner, uint32_t type, uint64_t start,
                                      uint64_t end)
{
    uint64_t requested = wire_getlk(w, file, owner, type, start, end);
    ck_assert_int_eq(wire_result(w, requested), 0);
    return ((const struct fuse_lk_out *)wire_data(w, requested, NULL))->lk;
}

START_TEST(getlk_shows_the_lowest_range)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 50, 59, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_RDLCK, 30, 39, false)), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 2, F_WRLCK, 20, 29, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 2, F_WRLCK, 90, 99, false)), 0);
    struct fuse_file_lock lock = reported(c, 3, F_WRLCK, 0, INT64_MAX);
    ck_assert_uint_eq(lock.start, 20);
    ck_assert_uint_eq(lock.end, 29);
    ck_assert_int_eq((pid_t)lock.pid, bob);
    lock = reported(c, 3, F_WRLCK, 30, INT64_MAX);
    ck_assert_uint_eq(lock.start, 30);
    ck_assert_uint_eq(lock.type, F_RDLCK);
    ck_assert_int_eq((pid_t)lock.pid, alice);
    lock = reported(c, 3, F_RDLCK, 30, INT64_MAX);
    ck_assert_uint_eq(lock.start, 50);
}
END_TEST

START_TEST(getlk_ignores_locks_of_its_own)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", O_WRONLY), reader = wire_opened(w, file.node, O_RDONLY);
    ck_assert_uint_eq(reported(file, 1, F_WRLCK, 0, 9).type, F_UNLCK); /* provisional */
    ck_assert_uint_eq(reported(reader, 1, F_WRLCK, 0, 9).type, F_UNLCK);
    w->pid = bob;
    struct fuse_file_lock lock = reported(wire_opened(w, file.node, O_RDONLY), 2, F_RDLCK, 0, 9);
    ck_assert_uint_eq(lock.type, F_WRLCK);
    ck_assert_int_eq((pid_t)lock.pid, alice);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    ck_assert_uint_eq(reported(file, 1, F_WRLCK, 0, 9).type, F_UNLCK); /* a lease */
    ck_assert_uint_eq(reported(reader, 1, F_WRLCK, 0, 9).type, F_UNLCK);
    w->pid = bob;
    ck_assert_uint_eq(reported(file, 2, F_WRLCK, 0, 9).type, F_UNLCK); /* through what it inherited: as F_SETLK */
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 2, F_WRLCK, 0, 9, false)), 0);
    ck_assert_uint_eq(reported(file, 2, F_WRLCK, 0, INT64_MAX).type, F_UNLCK);
    ck_assert_uint_eq(reported(file, 1, F_WRLCK, 0, INT64_MAX).type, F_WRLCK);
}
END_TEST

START_TEST(getlk_of_a_ticket_shows_whether_it_holds)
{
    w->pid = alice;
    struct wire_file first = wire_created(w, "job-", O_RDWR), second = wire_created(w, "job-", O_RDWR);
    ck_assert_uint_eq(reported(first, 1, F_WRLCK, 0, INT64_MAX).type, F_UNLCK);
    struct fuse_file_lock before = reported(second, 1, F_WRLCK, 0, INT64_MAX);
    ck_assert_uint_eq(before.type, F_WRLCK);
    ck_assert_int_eq((pid_t)before.pid, -1); /* it may be of another host */
    ck_assert_int_eq(wire_result(w, wire_release(w, first)), 0);
    ck_assert_uint_eq(reported(second, 1, F_WRLCK, 0, INT64_MAX).type, F_UNLCK);
}
END_TEST

/* No other shares it: the store only waits for what may be put back. */
START_TEST(shared_ticket_waits_to_be_exclusive_while_its_store_grants_nothing)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "job-", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_SH)), 0);
    fake_backend_fail(w->fake, FAKE_CONVERT, BACKEND_GRACE);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX | LOCK_NB)), ENOLCK);
    uint64_t waits = wire_flock(w, file, LOCK_EX);
    wire_advance(w, SECOND);
    ck_assert(wire_waits(w, waits));
    wire_interrupt(w, waits);
    ck_assert_int_eq(wire_result(w, waits), EINTR);
    waits = wire_flock(w, file, LOCK_EX);
    ck_assert(wire_waits(w, waits));
    fake_backend_fail(w->fake, FAKE_CONVERT, _i ? BACKEND_BUSY : BACKEND_OK);
    wire_advance(w, SECOND);
    ck_assert_int_eq(wire_result(w, waits), _i ? EDEADLK : 0);
}
END_TEST

START_TEST(ticket_that_ends_while_its_store_grants_nothing_is_stale)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "job-", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_SH)), 0);
    fake_backend_fail(w->fake, FAKE_CONVERT, BACKEND_GRACE);
    uint64_t waits = wire_flock(w, file, LOCK_EX);
    ck_assert(wire_waits(w, waits));
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "job-0000000001")), 0);
    wire_advance(w, SECOND);
    ck_assert_int_eq(wire_result(w, waits), ESTALE);
}
END_TEST

START_TEST(lock_through_the_handle_of_a_closed_tickets_owner_waits_for_its_turn)
{
    w->pid = alice;
    struct wire_file first = wire_created(w, "job-", O_RDWR);
    struct wire_file before = wire_created(w, "job-0000000002", O_RDONLY);
    struct wire_file second = wire_created(w, "job-", O_RDWR);
    ck_assert_int_eq(wire_close(w, second), 0);
    uint64_t node = wire_node(w, wire_lookup(w, "job-0000000002"));
    ck_assert_uint_ne(node, before.node);
    w->pid = bob; /* has it from alice */
    w->uid = 1000;
    uint64_t turn = wire_flock(w, before, LOCK_EX);
    ck_assert(wire_waits(w, turn));
    ck_assert_int_eq(wire_result(w, wire_release(w, first)), 0);
    ck_assert_int_eq(wire_result(w, turn), 0);
    char *kind = wire_xattr(w, node, "user.lease.kind");
    ck_assert_str_eq(kind, "ticket");
    g_free(kind);
}
END_TEST

static void check_owner(uint64_t node, pid_t pid)
{
    char *owner = wire_xattr(w, node, "user.lease.owner"), *expected = g_strdup_printf("* %d * *", pid);
    ck_assert_msg(g_pattern_match_simple(expected, owner), "owner: %s, not %s", owner, expected);
    g_free(expected);
    g_free(owner);
}

/* Of a handle that alice opened: before it is asked for, while it is provisional, or a lease. */
START_TEST(getlk_shows_who_locked_not_who_opened_the_handle)
{
    pid_t child = wire_child(w);
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", _i == 0 ? O_RDONLY : O_WRONLY);
    if (_i == 2) {
        ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    }
    w->pid = child;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 2, F_WRLCK, 0, 9, false)), 0);
    check_owner(file.node, child);
    w->pid = bob;
    ck_assert_int_eq((pid_t)reported(file, 3, F_WRLCK, 0, 9).pid, child);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "M")), EPERM);
    w->pid = child;
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "y", 1)), 0); /* what it holds is its own */
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "M")), 0); /* it opened the handle */
}
END_TEST

START_TEST(flock_is_of_who_took_it_and_then_of_who_opened_the_handle)
{
    pid_t child = wire_child(w);
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", _i == 0 ? O_RDONLY : O_WRONLY);
    if (_i == 2) {
        ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    }
    w->pid = child;
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    check_owner(file.node, child);
    wire_kill(w, child);
    check_owner(file.node, alice); /* flock(1) has asked for its shell */
    wire_advance(w, LEASE_TTL_DEFAULT);
    check_owner(file.node, alice);
    w->pid = bob;
    ck_assert_int_eq((pid_t)reported(wire_opened(w, file.node, O_RDONLY), 3, F_WRLCK, 0, 9).pid, alice);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "M")), EPERM);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "M")), 0);
}
END_TEST

START_TEST(lock_through_the_owners_handle_converts_its_lease_for_any_process)
{
    pid_t child = wire_child(w);
    bool record = _i == 1;
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", O_WRONLY | O_EXCL), reader = wire_opened(w, file.node, O_RDONLY);
    uint64_t token = fake_backend_holder(w->fake, "M")->fence;
    w->pid = bob;
    struct wire_file other = wire_opened(w, file.node, O_RDONLY);
    uint64_t queued = wire_flock(w, other, LOCK_EX);
    ck_assert(wire_waits(w, queued));
    w->pid = child;
    struct wire_file own = wire_opened(w, file.node, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, own, LOCK_EX | LOCK_NB)), EAGAIN); /* its own: a contender */
    uint64_t requested =
        record ? wire_setlk(w, reader, 2, F_WRLCK, 0, INT64_MAX, true) : wire_flock(w, reader, LOCK_EX);
    ck_assert_int_eq(wire_result(w, requested), 0);
    ck_assert_int_eq(fake_backend_holder(w->fake, "M")->kind, record ? BACKEND_FCNTL : BACKEND_FLOCK);
    ck_assert_uint_eq(fake_backend_holder(w->fake, "M")->fence, token);
    ck_assert(wire_waits(w, queued));
    w->pid = alice;
    ck_assert_int_eq(wire_close(w, file), 0); /* the lease has become a handle lock, and nothing else */
    ck_assert(wire_waits(w, queued));
    w->pid = child;
    requested = record ? wire_flush(w, reader, 2) : wire_flock(w, reader, LOCK_UN);
    ck_assert_int_eq(wire_result(w, requested), 0);
    ck_assert_int_eq(wire_result(w, queued), 0);
}
END_TEST

START_TEST(lock_through_a_handle_of_another_pid_namespace_turns_the_lease_it_made)
{
    w->pid = 0;
    struct wire_file file = wire_created(w, "M", O_WRONLY | O_EXCL), other = wire_opened(w, file.node, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, other, LOCK_EX | LOCK_NB)), EAGAIN);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_int_eq(fake_backend_holder(w->fake, "M")->kind, BACKEND_FLOCK);
}
END_TEST

START_TEST(two_threads_that_wait_for_one_owner_are_both_answered)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 99, false)), 0);
    uint64_t first = wire_setlk(w, b, 2, F_WRLCK, 0, 9, true), second = wire_setlk(w, b, 2, F_WRLCK, 50, 59, true);
    ck_assert(wire_waits(w, first));
    ck_assert(wire_waits(w, second));
    wire_interrupt(w, first);
    ck_assert_int_eq(wire_result(w, first), EINTR);
    ck_assert(wire_waits(w, second));
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_UNLCK, 0, 99, false)), 0);
    ck_assert_int_eq(wire_result(w, second), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 49, false)), 0);
}
END_TEST

START_TEST(close_while_another_thread_waits_leaves_no_lock_owner_behind)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 2, F_WRLCK, 50, 59, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 9, false)), 0);
    w->pid = bob;
    uint64_t waiting = wire_setlk(w, b, 2, F_WRLCK, 0, 9, true);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, wire_flush(w, b, 2)), 0);
    wire_interrupt(w, waiting);
    ck_assert_int_eq(wire_result(w, waiting), EINTR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_UNLCK, 0, INT64_MAX, false)), 0);
    char *owner = wire_xattr(w, b.node, "user.lease.owner");
    ck_assert_str_eq(owner, ""); /* nobody is said to have it */
    g_free(owner);
}
END_TEST

START_TEST(lock_owner_that_locks_while_its_open_is_converted_is_one_owner)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", O_RDWR), reader = wire_opened(w, file.node, O_RDONLY);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    uint64_t first = wire_setlk(w, file, 1, F_WRLCK, 0, 9, true);
    ck_assert(wire_waits(w, first));
    uint64_t second = wire_setlk(w, reader, 1, F_WRLCK, 20, 29, true);
    wire_turn(w);
    fake_backend_hold(w->fake, FAKE_CONVERT, false);
    while (fake_backend_held_back(w->fake, FAKE_CONVERT)) {
        fake_backend_answer(w->fake, FAKE_CONVERT, 0);
    }
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(wire_result(w, second), 0);
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "M"), 0);
    char *owner = wire_xattr(w, file.node, "user.lease.owner");
    ck_assert_str_eq(owner, "");
    g_free(owner);
}
END_TEST

START_TEST(lock_owner_that_locks_while_a_write_decides_keeps_its_lock)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", O_RDWR);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    uint64_t written = wire_write(w, file, 0, "x", 1), range = wire_setlk(w, file, 1, F_WRLCK, 0, 9, true);
    ck_assert(wire_waits(w, written));
    ck_assert(wire_waits(w, range));
    fake_backend_hold(w->fake, FAKE_CONVERT, false);
    fake_backend_answer(w->fake, FAKE_CONVERT, 0);
    ck_assert_int_eq(wire_result(w, written), 0);
    ck_assert_int_eq(wire_result(w, range), 0);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "M"), 0);
}
END_TEST

START_TEST(flock_and_fcntl_that_convert_one_lease_at_once_are_distinguished)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    uint64_t range = wire_setlk(w, file, 1, F_WRLCK, 0, 9, true), whole = wire_flock(w, file, LOCK_EX);
    uint64_t written = wire_write(w, file, 1, "y", 1), dated = wire_touch(w, file.node, NULL);
    ck_assert(wire_waits(w, range));
    ck_assert(wire_waits(w, whole));
    fake_backend_hold(w->fake, FAKE_CONVERT, false);
    while (fake_backend_held_back(w->fake, FAKE_CONVERT)) {
        fake_backend_answer(w->fake, FAKE_CONVERT, 0);
    }
    ck_assert_int_eq(wire_result(w, range), 0);
    ck_assert_int_eq(wire_result(w, whole), 0);
    ck_assert_int_eq(wire_result(w, written), 0);
    wire_result(w, dated);
    ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_LEASE), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0);
    ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_FLOCK), 0);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "M"), 0);
}
END_TEST

START_TEST(grant_that_ends_before_it_is_reported_while_another_thread_closes_is_answered)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 9, false)), 0);
    w->pid = bob;
    uint64_t waiting = wire_setlk(w, b, 2, F_WRLCK, 0, 9, true);
    ck_assert(wire_waits(w, waiting));
    fake_backend_hold_events(w->fake, true);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_UNLCK, 0, INT64_MAX, false)), 0);
    fake_backend_end(w->fake, "L", BACKEND_BROKEN);
    ck_assert_int_eq(wire_result(w, wire_flush(w, b, 2)), 0);
    ck_assert(wire_waits(w, waiting));
    fake_backend_hold_events(w->fake, false);
    ck_assert_int_eq(wire_result(w, waiting), 0); /* by another grant: the first has ended */
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 1);
}
END_TEST

START_TEST(owner_of_open_file_description_lets_go_at_release)
{
    /* FLUSH carries the process's owner, the lock the description's. */
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1001, F_WRLCK, 0, 9, false)), 0);
    uint64_t waiting = wire_setlk(w, b, 1002, F_WRLCK, 0, 9, true);
    ck_assert(wire_waits(w, waiting));
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flush(w, a, 5)), 0);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, wire_release(w, a)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
}
END_TEST

START_TEST(any_close_by_the_process_gives_back_its_fcntl_locks)
{
    w->pid = alice;
    struct wire_file other = wire_opened(w, a.node, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_flush(w, other, 1)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "L"), 0);
}
END_TEST

START_TEST(deadlock_is_reported)
{
    fake_backend_fail(w->fake, FAKE_ACQUIRE, BACKEND_DEADLOCK);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 9, true)), EDEADLK);
}
END_TEST

START_TEST(flock_and_fcntl_of_one_handle_do_not_exclude_each_other)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, INT64_MAX, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, b, 2, F_WRLCK, 0, 0, false)), EAGAIN);
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_UN)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, b, LOCK_SH | LOCK_NB)), EAGAIN);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_UNLCK, 0, INT64_MAX, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, b, LOCK_SH | LOCK_NB)), 0);
}
END_TEST

/* A child that was forked has it on the same handle, under a lock owner of its own. */
START_TEST(fcntl_locks_of_two_owners_on_one_handle_exclude_each_other)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 2, F_WRLCK, 5, 14, false)), EAGAIN);
    uint64_t waiting = wire_setlk(w, a, 2, F_WRLCK, 5, 14, true);
    ck_assert(wire_waits(w, waiting));
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_UNLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
}
END_TEST

START_TEST(fcntl_conversion_of_a_provisional_open_interrupted_or_not_is_answered_once)
{
    w->pid = alice;
    struct wire_file file = wire_created(w, "M", O_RDWR);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    uint64_t requested = wire_setlk(w, file, 1, F_WRLCK, 0, 9, true);
    ck_assert(wire_waits(w, requested));
    wire_interrupt(w, requested);
    ck_assert(wire_waits(w, requested)); /* it has no wait to interrupt */
    fake_backend_hold(w->fake, FAKE_CONVERT, false);
    fake_backend_answer(w->fake, FAKE_CONVERT, 0);
    ck_assert_int_eq(wire_result(w, requested), 0);
    wire_advance(w, 2 * SECOND);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "M"), 1);
}
END_TEST

/* --- poll --------------------------------------------------------------------------------- */

static unsigned poll_events(struct wire_file file, uint64_t handle)
{
    uint64_t requested = wire_poll(w, file, handle);
    ck_assert_int_eq(wire_result(w, requested), 0);
    return ((const struct fuse_poll_out *)wire_data(w, requested, NULL))->revents;
}

START_TEST(poll_reports_a_waiter_to_the_holder)
{
    ck_assert_int_eq(wire_result(w, flock_by_its_opener(a, LOCK_EX)), 0);
    ck_assert_uint_eq(poll_events(a, 77) & (POLLPRI | POLLERR | POLLHUP), 0);
    ck_assert(wire_waits(w, flock_by_its_opener(b, LOCK_EX)));
    ck_assert(wire_has_notification(w, FUSE_NOTIFY_POLL, NULL));
    ck_assert_uint_eq(g_array_index(w->notices, struct wire_notice, w->notices->len - 1).poll, 77);
    ck_assert_uint_eq(poll_events(a, 77) & (POLLPRI | POLLERR | POLLHUP), POLLPRI);
}
END_TEST

START_TEST(poll_reports_a_loss_to_the_holder)
{
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    ck_assert_uint_eq(poll_events(a, 78) & (POLLPRI | POLLERR | POLLHUP), 0);
    fake_backend_end(w->fake, "L", BACKEND_LOST);
    ck_assert(wire_has_notification(w, FUSE_NOTIFY_POLL, NULL));
    ck_assert_uint_eq(poll_events(a, 78) & (POLLERR | POLLHUP), POLLERR | POLLHUP);
}
END_TEST

START_TEST(poll_of_an_fcntl_lock_reports_the_same)
{
    ck_assert_int_eq(wire_result(w, wire_setlk(w, a, 1, F_WRLCK, 0, 9, false)), 0);
    ck_assert_uint_eq(poll_events(a, 79) & (POLLPRI | POLLERR | POLLHUP), 0);
    ck_assert(wire_waits(w, wire_setlk(w, b, 2, F_WRLCK, 0, 9, true)));
    ck_assert_uint_eq(poll_events(a, 79) & (POLLPRI | POLLERR | POLLHUP), POLLPRI);
    fake_backend_end(w->fake, "L", BACKEND_BROKEN);
    ck_assert(wire_has_notification(w, FUSE_NOTIFY_POLL, NULL));
    ck_assert_uint_eq(poll_events(a, 79) & (POLLERR | POLLHUP), POLLERR | POLLHUP);
}
END_TEST

START_TEST(poll_reports_a_lock_that_was_removed)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    ck_assert_uint_eq(poll_events(a, 80) & (POLLPRI | POLLERR | POLLHUP), 0);
    if (_i) {
        ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    } else {
        char *token = wire_xattr(w, a.node, "user.lease.token");
        ck_assert_int_eq(wire_result(w, wire_setxattr(w, a.node, "user.lease.release", token)), 0);
        g_free(token);
    }
    ck_assert(wire_has_notification(w, FUSE_NOTIFY_POLL, NULL));
    ck_assert_uint_eq(poll_events(a, 80) & (POLLERR | POLLHUP), POLLERR | POLLHUP);
}
END_TEST

START_TEST(poll_is_silent_about_a_lock_that_its_holder_gave_back)
{
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_UN)), 0);
    ck_assert_uint_eq(poll_events(a, 81) & (POLLPRI | POLLERR | POLLHUP), 0);
}
END_TEST

/* --- what a holder sees of its lock ------------------------------------------------------ */

static uint64_t number(uint64_t node, const char *name)
{
    char *text = wire_xattr(w, node, name);
    uint64_t value = g_ascii_strtoull(text, NULL, 10);
    g_free(text);
    return value;
}

START_TEST(holder_sees_its_lock_while_the_backend_is_away)
{
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    uint64_t token = number(a.node, "user.lease.token");
    fake_backend_fail(w->fake, FAKE_STAT, BACKEND_UNREACHABLE);
    ck_assert_uint_eq(number(a.node, "user.lease.token"), token);
    ck_assert_uint_eq(number(a.node, "user.lease.remaining") * 1000, LEASE_TTL_DEFAULT);
    wire_advance(w, SECOND);
    ck_assert_uint_eq(number(a.node, "user.lease.remaining") * 1000, LEASE_TTL_DEFAULT - SECOND);
    char *text = g_strdup_printf("%" G_GUINT64_FORMAT, token);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, a.node, "user.lease.check", text)), 0);
    g_free(text);
}
END_TEST

START_TEST(each_that_shares_sees_its_own)
{
    uint64_t tokens[2];
    const struct wire_file files[2] = {a, b};
    const pid_t pids[2] = {alice, bob};
    for (int i = 0; i < 2; i++) {
        w->pid = pids[i];
        ck_assert_int_eq(wire_result(w, wire_flock(w, files[i], LOCK_SH)), 0);
        tokens[i] = number(files[i].node, "user.lease.token");
        wire_advance(w, SECOND);
    }
    ck_assert_uint_ne(tokens[0], tokens[1]);
    ck_assert_uint_eq(number(b.node, "user.lease.remaining") * 1000, LEASE_TTL_DEFAULT - SECOND);
    w->pid = alice;
    ck_assert_uint_eq(number(a.node, "user.lease.token"), tokens[0]);
    ck_assert_uint_eq(number(a.node, "user.lease.remaining") * 1000, LEASE_TTL_DEFAULT - 2 * SECOND);
    for (int i = 0; i < 2; i++) {
        char *text = g_strdup_printf("%" G_GUINT64_FORMAT, tokens[i]);
        ck_assert_int_eq(wire_result(w, wire_setxattr(w, a.node, "user.lease.check", text)), 0);
        g_free(text);
    }
}
END_TEST

/* The store has made it a handle's lock before that is known here. */
START_TEST(lease_is_not_made_a_lock_while_its_term_is_set)
{
    for (int by_record = 0; by_record < 2; by_record++) {
        w->pid = alice;
        struct wire_file file = wire_created(w, "M", O_RDWR | O_EXCL);
        fake_backend_hold(w->fake, FAKE_SET, true);
        uint64_t set = wire_setxattr(w, file.node, "user.lease.ttl", "500ms");
        uint64_t lock = by_record ? wire_setlk(w, file, 1, F_WRLCK, 0, 9, true) : wire_flock(w, file, LOCK_EX);
        ck_assert(wire_waits(w, lock));
        ck_assert_int_eq(fake_backend_holder(w->fake, "M")->kind, BACKEND_LEASE);
        fake_backend_answer(w->fake, FAKE_SET, 0);
        fake_backend_hold(w->fake, FAKE_SET, false);
        ck_assert_int_eq(wire_result(w, set), 0);
        ck_assert_int_eq(wire_result(w, lock), 0);
        for (int i = 0; i < 10; i++) {
            wire_advance(w, LEASE_TTL_DEFAULT / 3 + 1);
        }
        ck_assert_int_eq(fake_backend_holder(w->fake, "M")->kind, by_record ? BACKEND_FCNTL : BACKEND_FLOCK);
        ck_assert_int_eq(wire_result(w, wire_unlink(w, "M")), 0);
    }
}
END_TEST

START_TEST(ttl_of_a_handle_lock_is_its_remaining_time_when_renewing_stops)
{
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, a.node, "user.lease.ttl", "3s")), 0);
    ck_assert_uint_eq(number(a.node, "user.lease.ttl"), 3);
    ck_assert_uint_eq(number(a.node, "user.lease.remaining"), 3);
    for (int i = 0; i < 100; i++) {
        wire_advance(w, 999);
        ck_assert_uint_ge(number(a.node, "user.lease.remaining"), 2);
    }
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, a.node, "user.lease.ttl", "5s")), EPERM);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_setxattr(w, a.node, "user.lease.ttl", "auto")), 0);
    ck_assert_uint_eq(number(a.node, "user.lease.ttl") * 1000, LEASE_TTL_DEFAULT);
}
END_TEST

static int set_if(uint64_t node, const char *name, const char *value, uint32_t flags)
{
    return wire_result(w, wire_setxattr_if(w, node, name, value, flags));
}

START_TEST(attribute_is_set_only_if_it_is_there_or_is_not)
{
    ck_assert_int_eq(set_if(a.node, "user.lease.ttl", "3s", XATTR_REPLACE), ENODATA); /* nobody holds it */
    ck_assert_int_eq(wire_result(w, wire_flock(w, a, LOCK_EX)), 0);
    ck_assert_int_eq(set_if(a.node, "user.lease.ttl", "3s", XATTR_CREATE), EEXIST);
    ck_assert_uint_eq(number(a.node, "user.lease.ttl") * 1000, LEASE_TTL_DEFAULT);
    ck_assert_int_eq(set_if(a.node, "user.lease.ttl", "3s", XATTR_REPLACE), 0);
    ck_assert_uint_eq(number(a.node, "user.lease.ttl"), 3);
    ck_assert_int_eq(set_if(a.node, "user.lease.break", "1", XATTR_REPLACE), ENODATA);
    ck_assert_int_eq(set_if(a.node, "user.lease.check", "7", XATTR_CREATE), ESTALE);
    ck_assert_int_eq(set_if(a.node, "user.lease.kind", "lease", XATTR_CREATE), EPERM);

    uint64_t directory = wire_node(w, wire_mkdir(w, "D"));
    static const char *const names[] = {"user.lease.ttl", "user.lease.width", "user.lease.delay"};
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        ck_assert_int_eq(set_if(directory, names[i], "7", XATTR_CREATE), EEXIST);
        ck_assert_uint_ne(number(directory, names[i]), 7);
        ck_assert_int_eq(set_if(directory, names[i], "7", XATTR_REPLACE), 0);
        ck_assert_uint_eq(number(directory, names[i]), 7);
    }
    fake_backend_fail(w->fake, FAKE_STAT, BACKEND_UNREACHABLE);
    ck_assert_int_eq(set_if(directory, "user.lease.width", "8", XATTR_REPLACE), ENOLCK);
}
END_TEST

/* A lease was renamed to a name that an older handle has open.  For the store it is one lock, and one lock owner. */
START_TEST(lock_owner_whose_handles_have_two_nodes_of_one_name_has_one_ticket)
{
    const uint64_t owner = 7;
    w->pid = alice;
    struct wire_file before = wire_created(w, "N", O_RDONLY), moved = wire_created(w, "M", O_RDWR | O_EXCL);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "M", "N", 0)), 0);
    ck_assert_uint_ne(before.node, moved.node);
    struct wire_file first = _i ? before : moved, second = _i ? moved : before;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, moved, owner, F_RDLCK, 0, 0, false)), 0); /* of the lease */
    ck_assert_int_eq(wire_result(w, wire_setlk(w, moved, owner, F_UNLCK, 0, 0, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, owner, F_RDLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, second, owner, F_RDLCK, 20, 29, false)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "N"), 1);
    ck_assert(wire_exists(w, "N"));
    ck_assert_int_eq(wire_result(w, wire_setlk(w, second, owner, F_UNLCK, 0, 29, false)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "N"), 0);
    ck_assert(!wire_exists(w, "N"));
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, owner, F_RDLCK, 0, 9, false)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "N"), 1);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, first, owner, F_UNLCK, 0, 9, false)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "N"), 0);
}
END_TEST

/* Two handles of one name that have two nodes: of before its owner moved its lease there, and of after.  Or of before
 * and after its directory was removed and made again. */
static void open_two_nodes(struct wire_file *ret_first, struct wire_file *ret_second, bool swapped, bool removed)
{
    w->pid = alice;
    struct wire_file before, now;
    if (removed) {
        w->directory = wire_node(w, wire_mkdir(w, "D"));
        before = wire_created(w, "N", O_RDWR | O_EXCL);
        ck_assert_int_eq(wire_result(w, wire_unlink(w, "N")), 0);
        w->directory = FUSE_ROOT_ID;
        ck_assert_int_eq(wire_result(w, wire_rmdir(w, "D")), 0);
        w->directory = wire_node(w, wire_mkdir(w, "D"));
        now = wire_created(w, "N", O_RDWR | O_EXCL);
    } else {
        before = wire_created(w, "N", O_RDONLY);
        now = wire_created(w, "M", O_RDWR | O_EXCL);
        ck_assert_int_eq(wire_result(w, wire_rename(w, "M", "N", 0)), 0);
    }
    ck_assert_uint_ne(before.node, now.node);
    *ret_first = swapped ? now : before;
    *ret_second = swapped ? before : now;
}

static const char *name_of_two(void)
{
    return w->directory == FUSE_ROOT_ID ? "N" : "D/N";
}

static void assert_gone(void)
{
    ck_assert_uint_eq(fake_backend_holders(w->fake, name_of_two()), 0);
    ck_assert(!wire_exists(w, "N"));
}

START_TEST(lock_owner_gives_back_through_any_node_of_the_name)
{
    const uint64_t owner = 7;
    struct wire_file first, second;
    open_two_nodes(&first, &second, _i & 1, _i & 2);
    for (int way = 0; way < 3; way++) {
        ck_assert_int_eq(wire_result(w, wire_setlk(w, first, owner, F_WRLCK, 0, 29, false)),
                         0); /* first of the lease */
        ck_assert_uint_eq(fake_backend_holders(w->fake, name_of_two()), 1);
        if (way == 0) {
            ck_assert_int_eq(wire_result(w, wire_setlk(w, second, owner, F_UNLCK, 0, 0, false)), 0);
            ck_assert_int_eq(wire_result(w, wire_setlk(w, second, owner, F_UNLCK, 1, 29, false)), 0);
        } else if (way == 1) {
            ck_assert_int_eq(wire_result(w, wire_setlk(w, second, owner, F_UNLCK, 0, INT64_MAX, false)), 0);
        } else {
            ck_assert_int_eq(wire_result(w, wire_flush(w, second, owner)), 0);
        }
        assert_gone();
    }
}
END_TEST

START_TEST(lease_is_turned_through_an_older_handle_of_its_name)
{
    struct wire_file first, second;
    open_two_nodes(&first, &second, false, _i & 2);
    if (_i & 1) {
        ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 7, F_WRLCK, 0, INT64_MAX, true)), 0);
        ck_assert_int_eq(wire_result(w, wire_setlk(w, first, 7, F_UNLCK, 0, INT64_MAX, false)), 0);
    } else {
        ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_EX)), 0);
        ck_assert_int_eq(wire_result(w, wire_flock(w, second, LOCK_EX | LOCK_NB)), EAGAIN); /* it is first's now */
        fake_backend_end(w->fake, name_of_two(), BACKEND_BROKEN);
        wire_turn(w);
        ck_assert_int_eq(wire_result(w, wire_fsync(w, first)), ESTALE);
        ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_EX)), 0);
        ck_assert_int_eq(wire_result(w, wire_flock(w, first, LOCK_UN)), 0);
    }
    assert_gone();
}
END_TEST

/* One lock owner reads through both. */
static void lock_two_nodes(struct wire_file *first, struct wire_file *second, int variant)
{
    open_two_nodes(first, second, variant & 1, variant & 2);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, *first, 7, F_RDLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, *second, 7, F_RDLCK, 20, 29, false)), 0);
}

START_TEST(lost_record_locks_are_lost_to_each_handle_of_their_lock_owner)
{
    struct wire_file first, second;
    lock_two_nodes(&first, &second, _i);
    fake_backend_end(w->fake, name_of_two(), BACKEND_BROKEN);
    wire_turn(w);
    ck_assert_int_eq(wire_result(w, wire_fsync(w, first)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_fsync(w, second)), ESTALE);
    assert_gone();
}
END_TEST

START_TEST(late_release_leaves_what_its_lock_owner_has_taken_since)
{
    struct wire_file first, second;
    lock_two_nodes(&first, &second, _i);
    ck_assert_int_eq(wire_result(w, wire_flush(w, first, 7)), 0);
    assert_gone();
    ck_assert_int_eq(wire_result(w, wire_setlk(w, second, 7, F_RDLCK, 0, 9, false)), 0);
    ck_assert_int_eq(wire_result(w, wire_release(w, first)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, name_of_two()), 1);
    ck_assert_int_eq(wire_result(w, wire_release(w, second)), 0);
    assert_gone();
}
END_TEST

START_TEST(owner_changes_its_lease_through_a_handle_of_before)
{
    w->pid = alice;
    struct wire_file before = wire_created(w, "N", O_RDWR), idle = wire_opened(w, before.node, O_RDWR);
    wire_advance(w, 2 * SECOND);
    struct wire_file now = wire_created(w, "M", O_RDWR | O_EXCL);
    ck_assert_int_eq(wire_result(w, wire_rename(w, "M", "N", 0)), 0);
    ck_assert_uint_ne(before.node, now.node);
    ck_assert_int_eq(wire_result(w, wire_write(w, before, 0, "written", 7)), 0);
    struct fuse_setattr_in cut = {.valid = FATTR_SIZE | FATTR_FH, .fh = before.fh, .size = 4};
    ck_assert_int_eq(wire_result(w, wire_setattr(w, before.node, &before, cut)), 0);
    ck_assert_int_eq(wire_result(w, wire_touch(w, before.node, &before)), 0);
    size_t size;
    uint64_t read = wire_read(w, now, 0, 100);
    ck_assert_int_eq(wire_result(w, read), 0);
    const void *content = wire_data(w, read, &size);
    ck_assert_uint_eq(size, 4);
    ck_assert_mem_eq(content, "writ", 4);
    ck_assert_int_eq(wire_close(w, before), 0);
    ck_assert_int_eq(wire_close(w, idle), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "N"), 1);
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "N")), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "N"), 0);
}
END_TEST

START_TEST(lock_claimed_while_the_name_moves_has_the_new_name)
{
    bool record = _i == 1;
    pid_t family[2]; /* a child's handle does not keep its parent from moving its lease */
    wire_chain(w, family, 2);
    w->pid = family[0];
    struct wire_file moved = wire_created(w, "M", O_RDWR | O_EXCL);
    wire_advance(w, 2 * SECOND);
    w->pid = family[1];
    struct wire_file his = wire_opened(w, moved.node, O_RDWR);
    w->pid = family[0];
    fake_backend_hold(w->fake, FAKE_RENAME, true);
    uint64_t rename = wire_rename(w, "M", "N", 0);
    ck_assert(wire_waits(w, rename));
    w->pid = family[1];
    uint64_t lock = record ? wire_setlk(w, his, 7, F_WRLCK, 0, INT64_MAX, true) : wire_flock(w, his, LOCK_EX);
    ck_assert(wire_waits(w, lock));
    uint64_t at_once = record ? wire_getlk(w, his, 7, F_WRLCK, 0, INT64_MAX) : wire_flock(w, his, LOCK_SH | LOCK_NB);
    ck_assert(wire_waits(w, at_once));
    fake_backend_hold(w->fake, FAKE_RENAME, false);
    fake_backend_answer(w->fake, FAKE_RENAME, 0);
    ck_assert_int_eq(wire_result(w, rename), 0);
    ck_assert_int_eq(wire_result(w, at_once), record ? 0 : EAGAIN);
    if (record) {
        const struct fuse_lk_out *found = wire_data(w, at_once, NULL);
        ck_assert_uint_eq(found->lk.type, F_WRLCK);
    }
    ck_assert(wire_waits(w, lock));
    ck_assert_uint_eq(fake_backend_holders(w->fake, "M"), 0);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "M"), 0);
    ck_assert_uint_eq(fake_backend_waiters(w->fake, "N"), 1);
    w->pid = family[0];
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "N")), 0);
    ck_assert_int_eq(wire_result(w, lock), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "N"), 1);
}
END_TEST

START_TEST(lock_claimed_while_the_name_moves_is_answered_and_given_back)
{
    pid_t family[2];
    wire_chain(w, family, 2);
    w->pid = family[0];
    struct wire_file moved = wire_created(w, "M", O_RDWR | O_EXCL);
    w->pid = family[1];
    struct wire_file his = wire_opened(w, moved.node, O_RDONLY);
    w->pid = family[0];
    fake_backend_hold(w->fake, FAKE_RENAME, true);
    uint64_t rename = wire_rename(w, "M", "N", 0);
    ck_assert(wire_waits(w, rename));
    w->pid = family[1];
    uint64_t lock = wire_setlk(w, his, 7, F_RDLCK, 0, INT64_MAX, true);
    ck_assert(wire_waits(w, lock));
    fake_backend_hold(w->fake, FAKE_RENAME, false);
    fake_backend_answer(w->fake, FAKE_RENAME, 0);
    ck_assert_int_eq(wire_result(w, rename), 0);
    w->pid = family[0];
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "N")), 0);
    ck_assert_int_eq(wire_result(w, lock), 0);
    w->pid = family[1];
    ck_assert_int_eq(wire_result(w, wire_setlk(w, his, 7, F_UNLCK, 0, INT64_MAX, false)), 0);
    ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_FCNTL), 0);
}
END_TEST

START_TEST(who_opens_a_name_while_its_lease_is_renamed_means_that_name)
{
    bool creates = _i == 1;
    w->pid = alice;
    struct wire_file moved = wire_created(w, "M", O_RDWR | O_EXCL);
    wire_advance(w, 2 * SECOND);
    fake_backend_hold(w->fake, FAKE_RENAME, true);
    uint64_t rename = wire_rename(w, "M", "N", 0);
    ck_assert(wire_waits(w, rename));
    w->pid = bob;
    uint64_t opening = creates ? wire_create(w, "M", O_RDONLY | O_CREAT) : wire_open(w, moved.node, O_RDONLY);
    ck_assert(wire_waits(w, opening));
    fake_backend_hold(w->fake, FAKE_RENAME, false);
    fake_backend_answer(w->fake, FAKE_RENAME, 0);
    ck_assert_int_eq(wire_result(w, rename), 0);
    ck_assert_int_eq(wire_result(w, opening), creates ? 0 : ESTALE); /* and then the kernel looks the name up again */
    struct wire_file his = wire_created(w, "M", O_RDONLY);
    ck_assert_uint_ne(his.node, moved.node);
    ck_assert_int_eq(wire_result(w, wire_flock(w, his, LOCK_EX | LOCK_NB)), 0);
    ck_assert_uint_eq(fake_backend_holders(w->fake, "M"), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: handle locks");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, wire_setup_files, wire_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, shared_locks_stand_together_and_exclusive_waits);
    tcase_add_test(cases, conversion_to_exclusive_is_refused_while_another_shares);
    tcase_add_test(cases, conversion_to_exclusive_waits_for_the_others);
    tcase_add_test(cases, conversion_to_exclusive_goes_before_all_that_wait);
    tcase_add_loop_test(cases, conversion_whose_lock_is_given_up_meanwhile_is_a_new_lock, 0, 2);
    tcase_add_loop_test(cases, conversion_whose_last_step_fails_leaves_the_lock_as_it_was, 0, 3);
    tcase_add_loop_test(cases, lock_that_ends_between_its_conversion_and_the_answer_is_waited_for_again, 0, 3);
    tcase_add_test(cases, close_of_another_handle_does_not_turn_a_lock_into_a_lease);
    tcase_add_test(cases, interrupted_conversion_goes_on_sharing);
    tcase_add_test(cases, second_of_two_conversions_to_exclusive_is_refused);
    tcase_add_test(cases, conversion_to_shared_lets_waiting_readers_in);
    tcase_add_test(cases, conversion_whose_outcome_comes_after_the_loss_waits_again);
    tcase_add_test(cases, owner_turns_its_lease_into_a_flock);
    tcase_add_test(cases, flock_waits_for_the_end_of_anothers_lease);
    tcase_add_test(cases, unlink_releases_all_that_its_caller_has_by_the_name_and_nothing_else);
    tcase_add_loop_test(cases, unlink_of_several_reports_a_failure_that_matters, 0, 5);
    tcase_add_test(cases, unlink_by_the_holder_of_a_flock_lets_waiters_on_to_the_same_name);
    tcase_add_loop_test(cases, process_whose_only_thread_would_wait_for_itself_is_refused, 0, 3);
    tcase_add_test(cases, process_that_waits_for_others_too_waits);
    tcase_add_test(cases, conversion_that_would_wait_for_itself_is_refused);
    tcase_add_test(cases, two_flocks_at_once_on_one_handle_are_one_lock);
    tcase_add_test(cases, byte_ranges_exclude_only_where_they_overlap);
    tcase_add_loop_test(cases, lock_owner_whose_handles_have_two_nodes_of_one_name_has_one_ticket, 0, 2);
    tcase_add_loop_test(cases, lock_owner_gives_back_through_any_node_of_the_name, 0, 4);
    tcase_add_loop_test(cases, lease_is_turned_through_an_older_handle_of_its_name, 0, 4);
    tcase_add_loop_test(cases, lost_record_locks_are_lost_to_each_handle_of_their_lock_owner, 0, 4);
    tcase_add_loop_test(cases, late_release_leaves_what_its_lock_owner_has_taken_since, 0, 4);
    tcase_add_test(cases, lock_claimed_while_the_name_moves_is_answered_and_given_back);
    tcase_add_loop_test(cases, lock_claimed_while_the_name_moves_has_the_new_name, 0, 2);
    tcase_add_loop_test(cases, who_opens_a_name_while_its_lease_is_renamed_means_that_name, 0, 2);
    tcase_add_test(cases, owner_changes_its_lease_through_a_handle_of_before);
    tcase_add_test(cases, getlk_shows_the_conflicting_holder);
    tcase_add_test(cases, range_that_ends_before_it_begins_is_refused);
    tcase_add_test(cases, getlk_shows_the_lowest_range);
    tcase_add_test(cases, getlk_ignores_locks_of_its_own);
    tcase_add_test(cases, getlk_of_a_ticket_shows_whether_it_holds);
    tcase_add_loop_test(cases, shared_ticket_waits_to_be_exclusive_while_its_store_grants_nothing, 0, 2);
    tcase_add_test(cases, ticket_that_ends_while_its_store_grants_nothing_is_stale);
    tcase_add_test(cases, lock_through_the_handle_of_a_closed_tickets_owner_waits_for_its_turn);
    tcase_add_loop_test(cases, getlk_shows_who_locked_not_who_opened_the_handle, 0, 3);
    tcase_add_loop_test(cases, flock_is_of_who_took_it_and_then_of_who_opened_the_handle, 0, 3);
    tcase_add_loop_test(cases, lock_through_the_owners_handle_converts_its_lease_for_any_process, 0, 2);
    tcase_add_test(cases, lock_through_a_handle_of_another_pid_namespace_turns_the_lease_it_made);
    tcase_add_test(cases, two_threads_that_wait_for_one_owner_are_both_answered);
    tcase_add_test(cases, close_while_another_thread_waits_leaves_no_lock_owner_behind);
    tcase_add_test(cases, lock_owner_that_locks_while_its_open_is_converted_is_one_owner);
    tcase_add_test(cases, lock_owner_that_locks_while_a_write_decides_keeps_its_lock);
    tcase_add_test(cases, flock_and_fcntl_that_convert_one_lease_at_once_are_distinguished);
    tcase_add_test(cases, grant_that_ends_before_it_is_reported_while_another_thread_closes_is_answered);
    tcase_add_test(cases, owner_of_open_file_description_lets_go_at_release);
    tcase_add_test(cases, any_close_by_the_process_gives_back_its_fcntl_locks);
    tcase_add_test(cases, deadlock_is_reported);
    tcase_add_test(cases, flock_and_fcntl_of_one_handle_do_not_exclude_each_other);
    tcase_add_test(cases, fcntl_locks_of_two_owners_on_one_handle_exclude_each_other);
    tcase_add_test(cases, fcntl_conversion_of_a_provisional_open_interrupted_or_not_is_answered_once);
    tcase_add_test(cases, poll_reports_a_waiter_to_the_holder);
    tcase_add_test(cases, poll_reports_a_loss_to_the_holder);
    tcase_add_test(cases, poll_of_an_fcntl_lock_reports_the_same);
    tcase_add_loop_test(cases, poll_reports_a_lock_that_was_removed, 0, 2);
    tcase_add_test(cases, poll_is_silent_about_a_lock_that_its_holder_gave_back);
    tcase_add_test(cases, holder_sees_its_lock_while_the_backend_is_away);
    tcase_add_test(cases, each_that_shares_sees_its_own);
    tcase_add_test(cases, lease_is_not_made_a_lock_while_its_term_is_set);
    tcase_add_test(cases, ttl_of_a_handle_lock_is_its_remaining_time_when_renewing_stops);
    tcase_add_test(cases, attribute_is_set_only_if_it_is_there_or_is_not);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
