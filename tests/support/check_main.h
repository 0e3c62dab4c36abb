/* check_main: the result of main() of every check program.
 *
 * Prints TAP, so that `make check` counts single cases.
 */
#ifndef TESTS_SUPPORT_CHECK_MAIN_H
#define TESTS_SUPPORT_CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
