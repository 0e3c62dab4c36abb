/* Opening and closing: the provisional second, the calls that decide it, and the opens that wait for it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"
#include "tests/support/heap.h"

/* --- what decides the provisional second ------------------------------------- */

START_TEST(open_for_writing_takes_the_name_provisionally)
{
    wire_created(w, "L", O_WRONLY);
    ck_assert(held_as("L", BACKEND_PROVISIONAL));
    ck_assert(wire_exists(w, "L"));
    wire_advance(w, SECOND);
    ck_assert_ptr_null(holder("L"));
    ck_assert(!wire_exists(w, "L"));
}
END_TEST

START_TEST(open_for_reading_acquires_nothing)
{
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    ck_assert_ptr_null(holder("L"));
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(explicit_close_by_the_opener_makes_a_lease)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), 0);
    ck_assert(held_as("L", BACKEND_PROVISIONAL)); /* a dup may be open still */
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
    wire_advance(w, 5 * SECOND);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(exit_without_closing_gives_back)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_kill(w, alice);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(closing_an_earlier_handle_decides_the_present_second)
{
    struct wire_file first = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    ck_assert_ptr_null(holder("L"));
    wire_opened(w, first.node, O_WRONLY);
    ck_assert_int_eq(wire_close(w, first), 0);
    wire_advance(w, 2 * SECOND);
    ck_assert(held_as("L", BACKEND_LEASE)); /* as the close reported */
}
END_TEST

START_TEST(exit_after_closing_a_duplicate_gives_back)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), 0); /* exec 9>L: open, dup2, close */
    ck_assert(held_as("L", BACKEND_PROVISIONAL));
    wire_kill(w, alice);
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), 0);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(flush_of_a_child_decides_nothing)
{
    pid_t family[2];
    wire_chain(w, family, 2);
    w->pid = family[0];
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    w->pid = family[1];
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 2)), 0);
    w->pid = family[0];
    wire_kill(w, family[0]);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(close_after_the_lapse_acquires_a_free_name_again)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    ck_assert_ptr_null(holder("L"));
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), 0);
    ck_assert(held_as("L", BACKEND_PROVISIONAL));
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(close_after_the_lapse_is_busy_when_another_holds)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    w->pid = bob;
    wire_created(w, "L", O_WRONLY | O_EXCL);
    w->pid = alice;
    ck_assert_int_eq(wire_close(w, file), EBUSY);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(close_after_the_lapse_is_busy_when_another_mount_holds)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    fake_backend_occupy(w->fake, "L", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(wire_close(w, file), EBUSY);
}
END_TEST

START_TEST(close_of_a_handle_used_for_flock_acquires_nothing)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX | LOCK_NB)), 0);
    ck_assert(held_as("L", BACKEND_FLOCK));
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0);
    ck_assert_ptr_null(holder("L"));
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(close_of_a_handle_used_for_fcntl_acquires_nothing)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 7, F_WRLCK, 0, 9, false)), 0);
    ck_assert(held_as("L", BACKEND_FCNTL));
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(refused_flock_keeps_close_from_acquiring)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    w->pid = bob;
    struct wire_file other = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, other, LOCK_EX | LOCK_NB)), 0);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX | LOCK_NB)), EAGAIN);
    w->pid = bob;
    ck_assert_int_eq(wire_close(w, other), 0);
    w->pid = alice;
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

/* The ways to be refused. */
enum refusal { BY_TIMES, BY_TIMES_OF_THE_PATH, BY_WRITE, BY_CUT, BY_CLOSE, BY_WRITE_OF_A_CHILD, REFUSALS };

static uint64_t ask(enum refusal way, struct wire_file file)
{
    struct fuse_setattr_in cut = {.valid = FATTR_SIZE, .size = 1};
    switch (way) {
    case BY_TIMES:
    case BY_TIMES_OF_THE_PATH:
        return wire_touch(w, file.node, way == BY_TIMES ? &file : NULL);
    case BY_CUT:
        return wire_setattr(w, file.node, &file, cut);
    case BY_CLOSE:
        return wire_flush(w, file, 1);
    default:
        w->pid = way == BY_WRITE ? alice : carol;
        return wire_write(w, file, 0, "x", 1);
    }
}

START_TEST(handle_that_was_refused_acquires_nothing_by_closing)
{
    bool elsewhere = _i >= REFUSALS;
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    if (elsewhere) {
        fake_backend_occupy(w->fake, "L", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    } else {
        w->pid = bob;
        wire_created(w, "L", O_WRONLY | O_EXCL);
    }
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, ask((enum refusal)(_i % REFUSALS), file)), EBUSY);
    if (elsewhere) {
        fake_backend_vacate(w->fake, "L");
    } else {
        w->pid = bob;
        ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    }
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flush(w, file, 1)), EBUSY); /* a duplicate of it */
    ck_assert_int_eq(wire_close(w, file), EBUSY);                    /* it was refused, and that is still true */
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(handle_that_was_refused_does_not_change_another_of_the_process)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    w->pid = bob;
    wire_created(w, "L", O_WRONLY | O_EXCL);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), EBUSY);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    w->pid = alice;
    ck_assert_int_eq(wire_close(w, wire_created(w, "L", O_WRONLY)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
    ck_assert_int_eq(wire_close(w, file), 0); /* its process holds it by now */
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(handle_that_was_refused_may_still_acquire_by_asking_again)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    fake_backend_occupy(w->fake, "L", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), EBUSY);
    fake_backend_vacate(w->fake, "L");
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(handle_whose_write_failed_acquires_nothing_by_closing)
{
    char *large = g_malloc0(CONTENT_BYTES_MAX + 1);
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, large, CONTENT_BYTES_MAX + 1)), EFBIG);
    ck_assert_int_eq(wire_close(w, file), EFBIG);
    ck_assert_ptr_null(holder("L"));
    file = wire_created(w, "L", O_WRONLY);
    fake_backend_fail(w->fake, FAKE_CONVERT, BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), ENOLCK);
    fake_backend_fail(w->fake, FAKE_CONVERT, BACKEND_OK);
    ck_assert_int_eq(wire_close(w, file), ENOLCK);
    ck_assert_ptr_null(holder("L"));
    g_free(large);
}
END_TEST

/* The store is silent for longer than the provisional second.  _i: times set by file, by path, or a write decide it;
 * the name is then free, another mount's, or the store goes on being away.  The kernel asks again after ESTALE, and a
 * refused close says "held". */
START_TEST(change_acquires_although_the_provisional_second_ends_first)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    fake_backend_hold(w->fake, FAKE_CONVERT, true);
    uint64_t change = _i % 3 == 2 ? wire_write(w, file, 0, "x", 1) : wire_touch(w, file.node, _i % 3 ? NULL : &file);
    ck_assert(wire_waits(w, change));
    fake_backend_end(w->fake, "L", BACKEND_EXPIRED);
    wire_advance(w, 2 * SECOND);
    ck_assert(wire_waits(w, change));
    if (_i / 3 == 1) {
        fake_backend_occupy(w->fake, "L", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    } else if (_i / 3 == 2) {
        fake_backend_fail(w->fake, FAKE_ACQUIRE, BACKEND_UNREACHABLE);
    }
    int error = _i / 3 == 1 ? EBUSY : _i / 3 == 2 ? ENOLCK : 0;
    fake_backend_refuse(w->fake, FAKE_CONVERT, 0, _i % 2 ? BACKEND_STALE : BACKEND_UNREACHABLE);
    ck_assert_int_eq(wire_result(w, change), error);
    fake_backend_fail(w->fake, FAKE_ACQUIRE, BACKEND_OK);
    ck_assert_int_eq(wire_close(w, file), error);
    ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_LEASE), error ? 0 : 1);
}
END_TEST

START_TEST(ticket_whose_write_failed_goes_with_its_close)
{
    char *large = g_malloc0(CONTENT_BYTES_MAX + 1);
    struct wire_file file = wire_created(w, "job-", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, large, CONTENT_BYTES_MAX + 1)), EFBIG);
    ck_assert_int_eq(wire_close(w, file), EFBIG);
    ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_LEASE), 0);
    ck_assert_uint_eq(fake_backend_tickets(w->fake, BACKEND_FLOCK), 0);
    g_free(large);
}
END_TEST

START_TEST(close_of_a_handle_that_was_only_probed_acquires_nothing)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    uint64_t requested = wire_getlk(w, file, 7, F_WRLCK, 0, 9);
    ck_assert_int_eq(wire_result(w, requested), 0);
    ck_assert(held_as("L", BACKEND_PROVISIONAL)); /* the second goes on: a write may decide it */
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_null(holder("L"));
    file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    requested = wire_getlk(w, file, 7, F_WRLCK, 0, 9);
    ck_assert_int_eq(wire_result(w, requested), 0);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_ptr_null(holder("L"));
}
END_TEST

START_TEST(write_makes_a_lease_with_its_content)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    uint64_t written = wire_write(w, file, 0, "mine\n", 5);
    ck_assert_int_eq(wire_result(w, written), 0);
    ck_assert_uint_eq(((const struct fuse_write_out *)wire_data(w, written, NULL))->size, 5);
    ck_assert(held_as("L", BACKEND_LEASE));
    uint64_t read = wire_read(w, file, 0, 4096);
    ck_assert_int_eq(wire_result(w, read), 0);
    size_t size;
    ck_assert_mem_eq(wire_data(w, read, &size), "mine\n", 5);
    ck_assert_uint_eq(size, 5);
}
END_TEST

START_TEST(touch_of_an_open_handle_makes_a_lease)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_touch(w, file.node, &file)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
    wire_kill(w, alice);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert(held_as("L", BACKEND_LEASE)); /* until its time has run out */
}
END_TEST

START_TEST(write_after_the_lapse_is_busy_when_another_holds)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    w->pid = bob;
    wire_created(w, "L", O_WRONLY | O_EXCL);
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), EBUSY);
}
END_TEST

START_TEST(write_after_the_lapse_takes_a_free_name)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    wire_advance(w, 2 * SECOND);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "x", 1)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

/* --- meeting another's ------------------------------------------------------------ */

START_TEST(exclusive_create_is_refused_when_held)
{
    wire_created(w, "L", O_WRONLY | O_EXCL);
    ck_assert(held_as("L", BACKEND_LEASE));
    ck_assert_int_eq(wire_result(w, wire_create(w, "L", O_WRONLY | O_EXCL)), EEXIST); /* by itself too */
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_create(w, "L", O_WRONLY | O_EXCL)), EEXIST);
    ck_assert_int_eq(wire_result(w, wire_symlink(w, "L", "target")), EEXIST);
}
END_TEST

START_TEST(exclusive_create_is_refused_when_another_mount_holds)
{
    fake_backend_occupy(w->fake, "L", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(wire_result(w, wire_create(w, "L", O_WRONLY | O_EXCL)), EEXIST);
}
END_TEST

START_TEST(open_of_anothers_lease_is_busy_in_its_first_second)
{
    wire_close(w, wire_created(w, "L", O_WRONLY));
    w->pid = bob;
    wire_advance(w, SECOND - 1);
    ck_assert_int_eq(wire_result(w, wire_create(w, "L", O_WRONLY)), EBUSY);
    wire_advance(w, 1);
    struct wire_file idle = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_close(w, idle), EBUSY);
}
END_TEST

START_TEST(open_of_another_mounts_lease_is_busy_in_its_first_second)
{
    fake_backend_occupy(w->fake, "L", BACKEND_LEASE, BACKEND_EXCLUSIVE);
    ck_assert_int_eq(wire_result(w, wire_create(w, "L", O_WRONLY)), EBUSY);
    wire_advance(w, SECOND);
    struct wire_file idle = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_write(w, idle, 0, "x", 1)), EBUSY);
}
END_TEST

START_TEST(open_of_a_flocked_name_is_idle)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    w->pid = bob;
    struct wire_file idle = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_write(w, idle, 0, "x", 1)), EBUSY);
    ck_assert_int_eq(wire_close(w, idle), EBUSY);
}
END_TEST

START_TEST(owner_opens_and_writes_its_lease_again)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_close(w, file), 0);
    uint64_t token = holder("L")->fence;
    struct wire_file again = wire_created(w, "L", O_WRONLY | O_TRUNC);
    ck_assert_int_eq(wire_result(w, wire_write(w, again, 0, "1\n", 2)), 0);
    ck_assert_int_eq(wire_close(w, again), 0);
    ck_assert_uint_eq(holder("L")->fence, token);
}
END_TEST

START_TEST(writing_again_from_the_start_cuts_nothing_of_anothers)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "content", 7)), 0);
    ck_assert_int_eq(wire_close(w, file), 0);
    wire_advance(w, SECOND);
    w->pid = bob;
    struct wire_file idle = wire_opened(w, file.node, O_RDWR | O_TRUNC);
    uint64_t read = wire_read(w, idle, 0, 100);
    ck_assert_int_eq(wire_result(w, read), 0);
    size_t size;
    wire_data(w, read, &size);
    ck_assert_uint_eq(size, 7);
    ck_assert_int_eq(wire_result(w, wire_setattr(w, idle.node, &idle, (struct fuse_setattr_in){.valid = FATTR_SIZE})),
                     EBUSY);
}
END_TEST

START_TEST(owner_cuts_its_content_by_opening)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 0, "content", 7)), 0);
    ck_assert_int_eq(wire_close(w, file), 0);
    struct wire_file again = wire_opened(w, file.node, O_RDWR | O_TRUNC);
    uint64_t read = wire_read(w, again, 0, 100);
    ck_assert_int_eq(wire_result(w, read), 0);
    size_t size;
    wire_data(w, read, &size);
    ck_assert_uint_eq(size, 0);
}
END_TEST

/* --- waiting for the outcome --------------------------------------------------------- */

START_TEST(open_that_waited_is_busy_when_it_became_a_lease)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    w->pid = bob;
    uint64_t waiting = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, waiting));
    w->pid = alice;
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_int_eq(wire_result(w, waiting), EBUSY);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(open_that_waited_is_idle_when_it_became_a_flock)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    w->pid = bob;
    uint64_t waiting = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, waiting));
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    struct wire_file idle = wire_file(w, waiting);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_flock(w, idle, LOCK_EX | LOCK_NB)), EAGAIN);
}
END_TEST

START_TEST(open_that_waited_is_idle_when_it_became_an_fcntl_lock)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    w->pid = bob;
    uint64_t waiting = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, waiting));
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, 7, F_WRLCK, 0, INT64_MAX, false)), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    struct wire_file idle = wire_file(w, waiting);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_setlk(w, idle, 8, F_WRLCK, 0, 0, false)), EAGAIN);
}
END_TEST

START_TEST(opens_that_waited_continue_when_it_lapses_the_first_provisionally)
{
    wire_created(w, "L", O_WRONLY);
    w->pid = bob;
    uint64_t first = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, first));
    w->pid = carol;
    uint64_t second = wire_create(w, "L", O_WRONLY);
    uint64_t third = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, second));
    wire_advance(w, SECOND);
    ck_assert_int_eq(wire_result(w, first), 0);
    ck_assert_int_eq(wire_result(w, second), 0);
    ck_assert_int_eq(wire_result(w, third), 0);
    ck_assert(held_as("L", BACKEND_PROVISIONAL));
    w->pid = carol;
    ck_assert_int_eq(wire_result(w, wire_write(w, wire_file(w, second), 0, "x", 1)), EBUSY);
    w->pid = bob;
    ck_assert_int_eq(wire_result(w, wire_write(w, wire_file(w, first), 0, "x", 1)), 0);
}
END_TEST

START_TEST(open_that_waited_takes_the_name_when_it_is_given_back)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    w->pid = bob;
    uint64_t waiting = wire_create(w, "L", O_WRONLY);
    ck_assert(wire_waits(w, waiting));
    wire_kill(w, alice);
    w->pid = alice;
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    w->pid = bob;
    ck_assert_int_eq(wire_close(w, wire_file(w, waiting)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(own_further_opens_do_not_wait)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    struct wire_file second = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_close(w, second), 0);
    ck_assert(held_as("L", BACKEND_LEASE)); /* close said so */
    wire_advance(w, 2 * SECOND);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(one_of_two_own_handles_decides_for_both)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    struct wire_file second = wire_created(w, "L", O_WRONLY);
    ck_assert_int_eq(wire_result(w, wire_write(w, second, 0, "x", 1)), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
    ck_assert_int_eq(wire_result(w, wire_write(w, file, 1, "y", 1)), 0);
    ck_assert_int_eq(wire_close(w, file), 0);
    ck_assert_int_eq(wire_close(w, second), 0);
    ck_assert(held_as("L", BACKEND_LEASE));
}
END_TEST

START_TEST(opens_for_reading_do_not_wait)
{
    struct wire_file file = wire_created(w, "L", O_WRONLY);
    w->pid = bob;
    struct wire_file reader = wire_opened(w, file.node, O_RDONLY);
    ck_assert_int_eq(wire_close(w, reader), 0);
    ck_assert(held_as("L", BACKEND_PROVISIONAL));
}
END_TEST

START_TEST(nonblocking_flock_awaits_a_provisional_outcome)
{
    struct wire_file reader = wire_created(w, "L", O_RDONLY);
    w->pid = bob;
    wire_created(w, "L", O_WRONLY);
    w->pid = alice;
    uint64_t waiting = wire_flock(w, reader, LOCK_EX | LOCK_NB);
    ck_assert(wire_waits(w, waiting));
    wire_advance(w, SECOND);
    ck_assert_int_eq(wire_result(w, waiting), 0);
    ck_assert(held_as("L", BACKEND_FLOCK));
}
END_TEST

START_TEST(nonblocking_flock_is_refused_when_the_outcome_is_a_lease)
{
    struct wire_file reader = wire_created(w, "L", O_RDONLY);
    w->pid = bob;
    struct wire_file writer = wire_created(w, "L", O_WRONLY);
    w->pid = alice;
    uint64_t flock_waits = wire_flock(w, reader, LOCK_EX | LOCK_NB);
    uint64_t fcntl_waits = wire_setlk(w, reader, 5, F_WRLCK, 0, 1, false);
    ck_assert(wire_waits(w, flock_waits));
    ck_assert(wire_waits(w, fcntl_waits));
    w->pid = bob;
    ck_assert_int_eq(wire_close(w, writer), 0);
    ck_assert_int_eq(wire_result(w, flock_waits), EAGAIN);
    ck_assert_int_eq(wire_result(w, fcntl_waits), EAGAIN);
}
END_TEST

/* --- notices ------------------------------------------------------------------------------- */

START_TEST(kernel_is_notified_when_the_second_lapses)
{
    wire_created(w, "L", O_WRONLY);
    ck_assert(wire_exists(w, "L"));
    wire_advance(w, SECOND);
    while (!wire_has_notification(w, FUSE_NOTIFY_DELETE, "L")) {
    }
}
END_TEST

/* Its heirs, which all of a process share, and room for who waits for its outcome. */
START_TEST(a_lease_needs_no_more_memory_in_its_first_second)
{
    enum { MANY = 1000, BYTES = 8 };
    for (unsigned i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "lease%07u", i);
        ck_assert_int_eq(wire_close(w, wire_created(w, name, O_WRONLY)), 0);
    }
    size_t before = heap_bytes();
    wire_advance(w, SECOND);
    if (HEAP_IS_MEASURED) {
        ck_assert_uint_le(before, heap_bytes() + (size_t)MANY * BYTES);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: opening and closing");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, wire_setup, wire_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, open_for_writing_takes_the_name_provisionally);
    tcase_add_test(cases, open_for_reading_acquires_nothing);
    tcase_add_test(cases, explicit_close_by_the_opener_makes_a_lease);
    tcase_add_test(cases, exit_without_closing_gives_back);
    tcase_add_test(cases, closing_an_earlier_handle_decides_the_present_second);
    tcase_add_test(cases, exit_after_closing_a_duplicate_gives_back);
    tcase_add_test(cases, flush_of_a_child_decides_nothing);
    tcase_add_test(cases, close_after_the_lapse_acquires_a_free_name_again);
    tcase_add_test(cases, close_after_the_lapse_is_busy_when_another_holds);
    tcase_add_test(cases, close_after_the_lapse_is_busy_when_another_mount_holds);
    tcase_add_test(cases, close_of_a_handle_used_for_flock_acquires_nothing);
    tcase_add_test(cases, close_of_a_handle_used_for_fcntl_acquires_nothing);
    tcase_add_test(cases, refused_flock_keeps_close_from_acquiring);
    tcase_add_loop_test(cases, handle_that_was_refused_acquires_nothing_by_closing, 0, 2 * REFUSALS);
    tcase_add_test(cases, handle_that_was_refused_does_not_change_another_of_the_process);
    tcase_add_test(cases, handle_that_was_refused_may_still_acquire_by_asking_again);
    tcase_add_test(cases, handle_whose_write_failed_acquires_nothing_by_closing);
    tcase_add_loop_test(cases, change_acquires_although_the_provisional_second_ends_first, 0, 9);
    tcase_add_test(cases, ticket_whose_write_failed_goes_with_its_close);
    tcase_add_test(cases, close_of_a_handle_that_was_only_probed_acquires_nothing);
    tcase_add_test(cases, write_makes_a_lease_with_its_content);
    tcase_add_test(cases, touch_of_an_open_handle_makes_a_lease);
    tcase_add_test(cases, write_after_the_lapse_is_busy_when_another_holds);
    tcase_add_test(cases, write_after_the_lapse_takes_a_free_name);
    tcase_add_test(cases, exclusive_create_is_refused_when_held);
    tcase_add_test(cases, exclusive_create_is_refused_when_another_mount_holds);
    tcase_add_test(cases, open_of_anothers_lease_is_busy_in_its_first_second);
    tcase_add_test(cases, open_of_another_mounts_lease_is_busy_in_its_first_second);
    tcase_add_test(cases, open_of_a_flocked_name_is_idle);
    tcase_add_test(cases, owner_opens_and_writes_its_lease_again);
    tcase_add_test(cases, writing_again_from_the_start_cuts_nothing_of_anothers);
    tcase_add_test(cases, owner_cuts_its_content_by_opening);
    tcase_add_test(cases, open_that_waited_is_busy_when_it_became_a_lease);
    tcase_add_test(cases, open_that_waited_is_idle_when_it_became_a_flock);
    tcase_add_test(cases, open_that_waited_is_idle_when_it_became_an_fcntl_lock);
    tcase_add_test(cases, opens_that_waited_continue_when_it_lapses_the_first_provisionally);
    tcase_add_test(cases, open_that_waited_takes_the_name_when_it_is_given_back);
    tcase_add_test(cases, own_further_opens_do_not_wait);
    tcase_add_test(cases, one_of_two_own_handles_decides_for_both);
    tcase_add_test(cases, opens_for_reading_do_not_wait);
    tcase_add_test(cases, nonblocking_flock_awaits_a_provisional_outcome);
    tcase_add_test(cases, nonblocking_flock_is_refused_when_the_outcome_is_a_lease);
    tcase_add_test(cases, kernel_is_notified_when_the_second_lapses);
    tcase_add_test(cases, a_lease_needs_no_more_memory_in_its_first_second);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
