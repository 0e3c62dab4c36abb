/* holder: see holder.h.
 *
 * A child asks the mount: any call on a mount can block as long as its daemon does, and the time to wait is over.
 */
#include "fs/leaserun/holder.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fs/leaserun/detach.h"
#include "fs/leaserun/status.h"
#include "fs/leaserun/text.h"

#define HOLDER_ASK_MS 500
#define HOLDER_TEXT_MAX 1024

/* For how long, by this host's clock; negative: not known. */
static double holder_seconds(const struct leaserun_process *who)
{
    struct tm utc = {0};
    double seconds;
    struct timespec now;
    if (sscanf(who->since, "%d-%d-%dT%d:%d:%lfZ", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour, &utc.tm_min,
               &seconds) != 6) {
        return who->seconds;
    }
    utc.tm_year -= 1900;
    utc.tm_mon -= 1;
    clock_gettime(CLOCK_REALTIME, &now);
    double held = (double)(now.tv_sec - timegm(&utc)) + (double)now.tv_nsec / 1e9 - seconds;
    return held < 0 ? 0 : held;
}

static void holder_print(FILE *file, const struct leaserun_report_lock *report)
{
    char age[32];
    const struct leaserun_process *who = &report->holders[0];
    const char *note = *who->note ? who->note : report->note;
    double seconds = report->broken ? -1 : holder_seconds(who);
    fputs(report->broken ? "broken; its holder " : "held by ", file);
    leaserun_text_put(file, who->host);
    fprintf(file, ":%ld ", who->pid);
    leaserun_text_put(file, who->command);
    if (*note) {
        fputs(" (", file);
        leaserun_text_put(file, note);
        fputc(')', file);
    }
    if (report->holder_count > 1) {
        fprintf(file, " and %zu more", report->holder_count - 1);
    }
    if (report->broken) {
        fprintf(file, " has until %s to end", leaserun_text_until(report->left, age, sizeof age));
    } else if (seconds >= 0) {
        fprintf(file, ", for %s", leaserun_text_duration(seconds, age, sizeof age));
    }
}

void leaserun_holder_describe(const struct leaserun_report_lock *report, char *text, size_t size)
{
    FILE *file = report->holder_count ? fmemopen(text, size, "w") : NULL;
    text[0] = '\0';
    if (file) {
        holder_print(file, report);
        fclose(file);
        text[size - 1] = '\0';
    }
}

static _Noreturn void holder_run_child(const struct leaserun_lock *lock, int fd)
{
    char text[HOLDER_TEXT_MAX];
    struct leaserun_report_lock report;
    leaserun_detach((int[]){fd}, 1); /* may outlive leaserun, whose end must close the lock files */
    signal(SIGPIPE, SIG_DFL);
    if (leaserun_status_read(lock, &report) == 0) {
        leaserun_holder_describe(&report, text, sizeof text);
        (void)!write(fd, text, strlen(text));
    }
    _exit(0);
}

/* "": it is not known, or nobody. */
static void holder_ask(const struct leaserun_lock *lock, char *text, size_t size)
{
    int ends[2];
    ssize_t got = 0;
    pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    text[0] = '\0';
    if (child == 0) {
        holder_run_child(lock, ends[1]);
    }
    if (child < 0) {
        return;
    }
    close(ends[1]);
    struct pollfd answer = {.fd = ends[0], .events = POLLIN};
    if (poll(&answer, 1, HOLDER_ASK_MS) > 0) {
        got = read(ends[0], text, size - 1);
    }
    text[got > 0 ? got : 0] = '\0';
    close(ends[0]);
    kill(child, SIGKILL); /* init reaps it: it may hang as its daemon does */
}

int leaserun_holder_refuse(const struct leaserun_arguments *arguments, const struct leaserun_lock *lock)
{
    char text[HOLDER_TEXT_MAX];
    if (arguments->conflict == 0 && !arguments->verbose) {
        return arguments->conflict;
    }
    holder_ask(lock, text, sizeof text);
    bool waited = arguments->wait > 0, queue = lock->name[strlen(lock->name) - 1] == '-';
    warnx("%s: %s%s%s", queue ? lock->directory : lock->name,
          waited  ? "not free in time"
          : *text ? ""
                  : "it is held",
          waited && *text ? ": " : "", text);
    return arguments->conflict;
}
