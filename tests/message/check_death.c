/* Numbers that the kernel has for nodes and files: they mean nothing else when what they named is gone. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "tests/message/wire_fixture.h"
#include "tests/support/check_main.h"

START_TEST(number_of_a_node_that_was_forgotten_is_stale_for_ever)
{
    struct fuse_getattr_in in = {0};
    uint64_t node = lease_of(alice, "L");
    w->pid = alice;
    ck_assert_int_eq(wire_result(w, wire_unlink(w, "L")), 0);
    wire_forget(w, node, 1);
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_GETATTR, node, &in, sizeof in, NULL, 0)), ESTALE);
    ck_assert_uint_ne(lease_of(alice, "L"), node);
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_GETATTR, node, &in, sizeof in, NULL, 0)), ESTALE);
    ck_assert_int_eq(wire_result(w, wire_send(w, FUSE_LOOKUP, node, "x", 2, NULL, 0)), ESTALE);
}
END_TEST

START_TEST(number_of_a_file_that_was_closed_is_bad)
{
    struct wire_file file = wire_created(w, "L", O_RDONLY);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    ck_assert_int_eq(wire_result(w, wire_read(w, file, 0, 10)), EBADF);
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    struct wire_file next = wire_created(w, "L", O_RDONLY);
    ck_assert_uint_ne(next.fh, file.fh);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("death");
    TCase *cases = tcase_create("numbers");
    tcase_add_checked_fixture(cases, wire_setup, wire_teardown);
    tcase_add_test(cases, number_of_a_node_that_was_forgotten_is_stale_for_ever);
    tcase_add_test(cases, number_of_a_file_that_was_closed_is_bad);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
