/* An answer comes after its effect: the store has done what a program's call returned for, and this mount knows it. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/file.h>

#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

#define ALICE_FILES 7 /* her lock owner, as the kernel names it */
#define TO_THE_END INT64_MAX

static void set_up(void)
{
    wire_setup_with(BACKEND_CAN_RANGE | BACKEND_CAN_SEQUENCE);
}

/* A file with a record lock of alice's. */
static struct wire_file locked(const char *name)
{
    struct wire_file file = wire_created(w, name, O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_setlk(w, file, ALICE_FILES, F_WRLCK, 0, TO_THE_END, false)), 0);
    return file;
}

/* It is answered when the store has answered its release, and not before; with this error if it was that result. */
static void check_release_is_awaited(uint64_t unique, enum fake_call call, enum backend_result result, int error)
{
    ck_assert(wire_waits(w, unique));
    fake_backend_hold(w->fake, call, false);
    ck_assert_uint_eq(fake_backend_held_back(w->fake, call), 1);
    if (result == BACKEND_OK) {
        fake_backend_answer(w->fake, call, 0);
    } else {
        fake_backend_refuse(w->fake, call, 0, result);
    }
    ck_assert_int_eq(wire_result(w, unique), error);
}

START_TEST(unlocking_a_whole_file_waits_for_the_store)
{
    struct wire_file file = locked("L");
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    uint64_t unlock = wire_setlk(w, file, ALICE_FILES, F_UNLCK, 0, TO_THE_END, false);
    check_release_is_awaited(unlock, FAKE_RELEASE, BACKEND_OK, 0);
}
END_TEST

START_TEST(unlocking_a_range_waits_for_the_store)
{
    struct wire_file file = locked("L");
    fake_backend_hold(w->fake, FAKE_RELEASE_RANGE, true);
    uint64_t unlock = wire_setlk(w, file, ALICE_FILES, F_UNLCK, 5, 9, false);
    check_release_is_awaited(unlock, FAKE_RELEASE_RANGE, BACKEND_OK, 0);
}
END_TEST

START_TEST(closing_a_file_with_record_locks_waits_for_the_store)
{
    struct wire_file file = locked("L");
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    check_release_is_awaited(wire_flush(w, file, ALICE_FILES), FAKE_RELEASE, BACKEND_OK, 0);
}
END_TEST

START_TEST(closing_another_handle_of_the_lock_owner_waits_for_the_store)
{
    struct wire_file file = locked("L"), other = wire_opened(w, file.node, O_RDONLY);
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    check_release_is_awaited(wire_flush(w, other, ALICE_FILES), FAKE_RELEASE, BACKEND_OK, 0);
}
END_TEST

START_TEST(closing_a_file_without_locks_waits_for_nothing)
{
    struct wire_file file = locked("L");
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    w->pid = bob;
    struct wire_file other = wire_opened(w, file.node, O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_flush(w, other, ALICE_FILES + 1)), 0);
    fake_backend_hold(w->fake, FAKE_RELEASE, false);
}
END_TEST

START_TEST(removing_a_name_waits_for_the_store)
{
    locked("L");
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    check_release_is_awaited(wire_unlink(w, "L"), FAKE_RELEASE, BACKEND_OK, 0);
    wire_created(w, "M", O_RDWR | O_EXCL);
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    check_release_is_awaited(wire_unlink(w, "M"), FAKE_RELEASE, BACKEND_OK, 0);
}
END_TEST

START_TEST(unlocking_a_flock_waits_for_the_store)
{
    struct wire_file file = wire_created(w, "L", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    check_release_is_awaited(wire_flock(w, file, LOCK_UN), FAKE_RELEASE, BACKEND_OK, 0);
}
END_TEST

/* Another mount may find it held for a while: that is not silently 0. */
START_TEST(a_release_whose_outcome_is_unknown_is_enolck)
{
    struct wire_file file = locked("L");
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    uint64_t unlock = wire_setlk(w, file, ALICE_FILES, F_UNLCK, 0, TO_THE_END, false);
    check_release_is_awaited(unlock, FAKE_RELEASE, BACKEND_UNREACHABLE, ENOLCK);
    file = locked("M");
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    check_release_is_awaited(wire_flush(w, file, ALICE_FILES), FAKE_RELEASE, BACKEND_UNREACHABLE, ENOLCK);
    file = wire_created(w, "N", O_RDWR);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_EX)), 0);
    fake_backend_hold(w->fake, FAKE_RELEASE, true);
    check_release_is_awaited(wire_flock(w, file, LOCK_UN), FAKE_RELEASE, BACKEND_UNREACHABLE, ENOLCK);
    ck_assert_int_eq(wire_result(w, wire_flock(w, file, LOCK_UN)), 0); /* it holds nothing now */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fs: an answer comes after its effect");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, set_up, wire_teardown);
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, unlocking_a_whole_file_waits_for_the_store);
    tcase_add_test(cases, unlocking_a_range_waits_for_the_store);
    tcase_add_test(cases, closing_a_file_with_record_locks_waits_for_the_store);
    tcase_add_test(cases, closing_another_handle_of_the_lock_owner_waits_for_the_store);
    tcase_add_test(cases, closing_a_file_without_locks_waits_for_nothing);
    tcase_add_test(cases, removing_a_name_waits_for_the_store);
    tcase_add_test(cases, unlocking_a_flock_waits_for_the_store);
    tcase_add_test(cases, a_release_whose_outcome_is_unknown_is_enolck);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
