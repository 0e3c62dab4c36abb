/* report: see report.h. */
#include "fs/leaserun/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/leaserun/once.h"
#include "fs/leaserun/text.h"

/* --- for people ------------------------------------------------------------------ */

static void report_fact(const char *key, const char *value, const char *unit)
{
    if (*value) {
        printf("  %s: %s%s\n", key, value, unit);
    }
}

static void report_process(const char *key, const struct leaserun_process *who)
{
    printf("  %s: ", key);
    if (*who->ticket) {
        leaserun_text_put(stdout, who->ticket);
        fputs(" of ", stdout);
    }
    printf("pid %ld (", who->pid);
    leaserun_text_put(stdout, who->command);
    printf(") of uid %ld on ", who->uid);
    leaserun_text_put(stdout, who->host);
    if (*who->since) {
        printf(" since %s", who->since);
    } else if (who->seconds >= 0) {
        printf(" for %.1f s", who->seconds);
    }
    if (*who->note) {
        fputs(", note: ", stdout);
        leaserun_text_put(stdout, who->note);
    }
    putchar('\n');
}

/* Is this lock the lease in which --once remembers a success? */
static bool report_is_success(const struct leaserun_report_lock *report)
{
    size_t length = strlen(report->name), suffix = strlen(LEASERUN_ONCE_SUFFIX);
    return report->held && length > suffix && strcmp(report->name + length - suffix, LEASERUN_ONCE_SUFFIX) == 0;
}

static void report_text(const struct leaserun_report_lock *report)
{
    bool success = report_is_success(report);
    leaserun_text_put(stdout, report->name);
    if (report->broken) {
        char until[16];
        printf(": broken; its holder has until %s to end\n", leaserun_text_until(report->left, until, sizeof until));
    } else {
        printf(": %s\n", report->held ? "held" : "free");
    }
    if (success) {
        puts("  once: a command of leaserun --once has succeeded; it runs again when this lease has ended");
    }
    if (*report->grace) {
        printf("  %s\n", report->grace);
    }
    report_fact("kind", report->kind, "");
    report_fact("mode", report->mode, "");
    if (*report->note) {
        fputs("  note: ", stdout);
        leaserun_text_put(stdout, report->note);
        putchar('\n');
    }
    report_fact("width", report->width, "");
    report_fact("token", report->token, "");
    report_fact("since", report->since, "");
    report_fact("left", report->left, " s");
    report_fact("ttl", report->ttl, " s");
    for (size_t i = 0; i < report->holder_count; i++) {
        report_process(success ? "success of" : "holder", &report->holders[i]);
    }
    report_fact("waiters", report->waiters, "");
    for (size_t i = 0; i < report->waiting_count; i++) {
        report_process("waiting", &report->waiting[i]);
    }
    size_t all = strtoul(report->waiters, NULL, 10);
    if (all > report->waiting_count) {
        printf("  waiting: %zu through other mounts\n", all - report->waiting_count);
    }
}

/* --- for programs ------------------------------------------------------------------ */

static void report_json_text(const char *key, const char *value)
{
    printf(",\"%s\":", key);
    if (*value) {
        leaserun_text_put_json(stdout, value);
    } else {
        fputs("null", stdout);
    }
}

static void report_json_number(const char *key, const char *digits)
{
    printf(",\"%s\":%s", key, *digits ? digits : "null");
}

static void report_json_list(const char *key, const struct leaserun_process *list, size_t count)
{
    printf(",\"%s\":[", key);
    for (size_t i = 0; i < count; i++) {
        const struct leaserun_process *who = &list[i];
        printf("%s{\"pid\":%ld,\"uid\":%ld", i ? "," : "", who->pid, who->uid);
        report_json_text("command", who->command);
        report_json_text("host", who->host);
        report_json_text("ticket", who->ticket);
        report_json_text("note", who->note);
        report_json_text("since", who->since);
        if (who->seconds >= 0) {
            printf(",\"seconds\":%.3f", who->seconds);
        } else {
            fputs(",\"seconds\":null", stdout);
        }
        putchar('}');
    }
    putchar(']');
}

static void report_json_members(const struct leaserun_report_lock *report)
{
    fputs("\"name\":", stdout);
    leaserun_text_put_json(stdout, report->name);
    printf(",\"held\":%s,\"broken\":%s", report->held ? "true" : "false", report->broken ? "true" : "false");
    report_json_text("grace", report->grace);
    report_json_text("kind", report->kind);
    report_json_text("mode", report->mode);
    report_json_text("note", report->note);
    report_json_number("width", report->width);
    report_json_number("token", report->token);
    report_json_text("since", report->since);
    report_json_number("left", report->left);
    report_json_number("ttl", report->ttl);
    report_json_list("holders", report->holders, report->holder_count);
    report_json_number("waiters", *report->waiters ? report->waiters : "0");
    report_json_list("waiting", report->waiting, report->waiting_count);
}

static void report_json(const struct leaserun_report_lock *report, bool directory,
                        const struct leaserun_report_lock *below, size_t count)
{
    putchar('{');
    report_json_members(report);
    if (directory) {
        fputs(",\"locks\":[", stdout);
        for (size_t i = 0; i < count; i++) {
            fputs(i ? ",{" : "{", stdout);
            report_json_members(&below[i]);
            putchar('}');
        }
        putchar(']');
    }
    puts("}");
}

void leaserun_report_print(const struct leaserun_report_lock *report, bool directory,
                           const struct leaserun_report_lock *below, size_t count, bool json)
{
    if (json) {
        report_json(report, directory, below, count);
        return;
    }
    report_text(report);
    for (size_t i = 0; i < count; i++) {
        report_text(&below[i]);
    }
}
