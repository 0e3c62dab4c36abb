/* assertions: those of check(3), for shared test code outside of its runner: a failed one ends the program. */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void _mark_point(const char *file, int line)
{
    (void)file, (void)line;
}

void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
    va_list arguments;
    fprintf(stderr, "%s:%d: %s: ", file, line, expr);
    va_start(arguments, msg);
    if (msg) {
        vfprintf(stderr, msg, arguments);
    }
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}
