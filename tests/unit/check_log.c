/* The log: levels, what is left out when lines repeat, and the journal's prefixes. */
#include <fcntl.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/clock.h"
#include "backend/log.h"
#include "tests/support/check_main.h"

static clock_ms now = 1000000;
static char path[] = "/tmp/check_log.XXXXXX";
static int before = -1, file = -1;

/* The whole program's: the log has no other way to it. */
clock_ms clock_now(void)
{
    return now;
}

int64_t clock_wall(void)
{
    return now;
}

static void set_up(void)
{
    before = dup(STDERR_FILENO);
    file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
    unsetenv("JOURNAL_STREAM");
    log_to_stderr();
    log_set_level(LOG_LEVEL_INFO);
}

static void tear_down(void)
{
    dup2(before, STDERR_FILENO);
    close(before);
    close(file);
    unlink(path);
}

static char *reported(void)
{
    char *text;
    fflush(stderr);
    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    return text;
}

static unsigned count(const char *text, const char *part)
{
    unsigned n = 0;
    while ((text = strstr(text, part))) {
        n++;
        text++;
    }
    return n;
}

START_TEST(levels_are_reported_up_to_the_one_that_is_set)
{
    enum log_level level;
    ck_assert(log_parse_level("warning", &level));
    log_set_level(level);
    ck_assert(log_wants(LOG_LEVEL_ERROR) && log_wants(LOG_LEVEL_WARNING) && !log_wants(LOG_LEVEL_INFO));
    log_error("e");
    log_warning("w");
    log_audit("a");
    log_notice("n");
    log_info("i");
    log_debug("d");
    g_autofree char *text = reported();
    ck_assert_str_eq(text, "leasefs: error: e\nleasefs: warning: w\nleasefs: warning: a\n");
    ck_assert(log_parse_level("notice", &level) && level > LOG_LEVEL_WARNING && level < LOG_LEVEL_INFO);
    ck_assert(!log_parse_level("loud", &level) && !log_parse_level("", &level));
}
END_TEST

START_TEST(repeated_lines_are_left_out_and_counted)
{
    for (int i = 0; i < 1000; i++) {
        log_info("lock %d has ended", i);
    }
    log_warning("something else");
    g_autofree char *text = reported();
    ck_assert_uint_eq(count(text, "has ended\n"), 100);
    ck_assert_uint_eq(count(text, "more lines like \"lock 100 has ended\" are left out for up to 10 seconds"), 1);
    ck_assert_uint_eq(count(text, "something else"), 1);
    now += 10001;
    log_warning("something else");
    g_autofree char *later = reported();
    ck_assert_uint_eq(count(later, "lines like \"lock 100 has ended\" that were left out: 900\n"), 1);
    for (int i = 0; i < 101; i++) {
        log_info("lock %d has ended", i);
    }
    log_flush();
    log_flush();
    g_autofree char *end = reported();
    ck_assert_uint_eq(count(end, "has ended\n"), 200);
}
END_TEST

START_TEST(each_kind_of_line_is_counted)
{
    for (int i = 0; i < 1000; i++) {
        log_info("lock %d has ended", i);
        log_info("lock %d has begun", i);
    }
    g_autofree char *text = reported();
    ck_assert_uint_eq(count(text, "has ended\n"), 100);
    ck_assert_uint_eq(count(text, "has begun\n"), 100);
}
END_TEST

START_TEST(new_kind_replaces_the_oldest)
{
    char formats[33][16];
    for (size_t kind = 0; kind < G_N_ELEMENTS(formats); kind++) {
        g_snprintf(formats[kind], sizeof formats[kind], "kind %zu: %%d", kind);
        for (int i = 0; i < 102; i++) {
            log_info(formats[kind], i);
        }
        now++;
    }
    log_info(formats[1], 0);
    g_autofree char *text = reported();
    ck_assert_uint_eq(count(text, "that were left out"), 1);
    ck_assert_uint_eq(count(text, "lines like \"kind 0: 100\" that were left out: 2\n"), 1);
    ck_assert_uint_eq(count(text, "kind 1: "), 101);
}
END_TEST

START_TEST(audit_and_debug_are_never_left_out)
{
    log_set_level(LOG_LEVEL_DEBUG);
    for (int i = 0; i < 300; i++) {
        log_audit("broken %d", i);
        log_debug("detail %d", i);
    }
    g_autofree char *text = reported();
    ck_assert_uint_eq(count(text, "broken "), 300);
    ck_assert_uint_eq(count(text, "detail "), 300);
}
END_TEST

START_TEST(journal_gets_the_level_as_a_prefix)
{
    struct stat st;
    ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
    g_autofree char *stream =
        g_strdup_printf("%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    g_autofree char *other =
        g_strdup_printf("%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino + 1);
    g_setenv("JOURNAL_STREAM", stream, TRUE);
    log_to_stderr();
    log_error("e");
    log_warning("w");
    log_notice("n");
    log_info("i");
    g_setenv("JOURNAL_STREAM", other, TRUE);
    log_to_stderr();
    log_info("plain");
    g_autofree char *text = reported();
    ck_assert_str_eq(text, "<3>e\n<4>w\n<5>n\n<6>i\nleasefs: plain\n");
}
END_TEST

static Suite *log_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *lines = tcase_create("lines");
    tcase_add_checked_fixture(lines, set_up, tear_down);
    tcase_add_test(lines, levels_are_reported_up_to_the_one_that_is_set);
    tcase_add_test(lines, repeated_lines_are_left_out_and_counted);
    tcase_add_test(lines, each_kind_of_line_is_counted);
    tcase_add_test(lines, new_kind_replaces_the_oldest);
    tcase_add_test(lines, audit_and_debug_are_never_left_out);
    tcase_add_test(lines, journal_gets_the_level_as_a_prefix);
    suite_add_tcase(suite, lines);
    return suite;
}

int main(void)
{
    return check_main(log_suite());
}
