/* check_main: the result of main() of every check program.
 *
 * Prints TAP, so that `make check` counts single cases.
 */
#ifndef TESTS_SUPPORT_CHECK_MAIN_H
#define TESTS_SUPPORT_CHECK_MAIN_H

#include <check.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK_TMPDIR_MAX 50 /* below it are sockets, whose names have at most 107 bytes, */
#define CHECK_TMPDIR_PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-" /* and for shells */

/* The suite is not about the umask and TMPDIR of whoever runs it. */
static inline void check_settle_environment(void)
{
    const char *directory = getenv("TMPDIR");
    if (directory &&
        (strlen(directory) > CHECK_TMPDIR_MAX || directory[strspn(directory, CHECK_TMPDIR_PLAIN)] != '\0')) {
        unsetenv("TMPDIR");
    }
    umask(022);
}

/* Whether this process has the capability; root in a container may lack it. */
static inline bool check_may(int capability)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    return syscall(SYS_capget, &header, data) == 0 && (data[capability / 32].effective >> capability % 32 & 1);
}

/* Registers cases `first` to `end` - 1 of a loop where they can run; else run.sh says what would run them. */
#define check_add_loop_where(can, need, tcase, name, first, end)                                                       \
    do {                                                                                                               \
        if (can) {                                                                                                     \
            tcase_add_loop_test(tcase, name, first, end);                                                              \
        } else {                                                                                                       \
            puts("# left out: " #name ": would run " need);                                                            \
        }                                                                                                              \
    } while (0)
#define check_add_where(can, need, tcase, name) check_add_loop_where(can, need, tcase, name, 0, 1)

/* Runs the suite; EXIT_SUCCESS only if no case failed. */
static inline int check_main(Suite *suite)
{
    check_settle_environment();
    SRunner *runner = srunner_create(suite);
    srunner_set_tap(runner, "-");
    srunner_run_all(runner, CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
