/* waiters: many processes that wait for one flock.
 *
 *     waiters order DIRECTORY [--waiters N] [--daemon PID]
 *         N processes wait; each comes when the one before is seen waiting.  After the
 *         release they must be served in that order, one at a time.  Prints the time
 *         for a hand-over, and the daemon's processor time for it.
 *     waiters leave DIRECTORY [--waiters N] [--limit MS]
 *         N processes wait and leave by `flock -w 1`, Ctrl-C, or kill -9: each must be
 *         gone from the queue within the limit, and never be granted the lock afterwards.
 *
 * Exit status: 0, 3 for a wrong behaviour, 1 if it could not be run.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stress/stress.h"

#define GRANTED 42

struct waiters {
    const char *directory;
    char path[4096];
    uint32_t count;
    pid_t daemon;
    int64_t limit;
    int holder; /* a descriptor that holds the lock */
    pid_t *children;
    bool wrong;
};

/* What the waiters note; shared. */
struct waiters_notes {
    _Atomic uint32_t served;
    _Atomic uint32_t inside;
    _Atomic uint32_t together; /* found another inside */
    _Atomic uint32_t refused;
    uint32_t order[1 << 16];
    int64_t granted[1 << 16];
};

static void waiters_wrong(struct waiters *w, const char *what)
{
    printf("WRONG: %s\n", what);
    w->wrong = true;
}

static void waiters_hold(struct waiters *w)
{
    snprintf(w->path, sizeof w->path, "%s/lock", w->directory);
    w->holder = open(w->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (w->holder < 0 || flock(w->holder, LOCK_EX) != 0) {
        stress_die("%s: %s", w->path, strerror(errno));
    }
}

/* The lock is free afterwards: on a leasefs the name is gone. */
static void waiters_expect_free(struct waiters *w)
{
    struct stat st;
    int fd = open(w->path, O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    if (stress_waiters(w->path) > 0) {
        waiters_wrong(w, "somebody is still queued");
    }
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        waiters_wrong(w, "the lock is not free afterwards");
    }
    close(fd);
    int64_t limit = stress_now() + 10 * STRESS_SECOND;
    while (stress_is_fuse(w->directory) && stat(w->path, &st) == 0) {
        if (stress_now() > limit) {
            waiters_wrong(w, "the name does not go");
            break;
        }
        stress_sleep(STRESS_MS);
    }
}

/* --- order ---------------------------------------------------------------------- */

_Noreturn static void waiters_wait(const struct waiters *w, struct waiters_notes *notes, uint32_t i, int end)
{
    char byte;
    int fd = open(w->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) != 0) {
        atomic_fetch_add(&notes->refused, 1);
        _exit(1);
    }
    int64_t now = stress_now();
    if (atomic_fetch_add(&notes->inside, 1) != 0) {
        atomic_fetch_add(&notes->together, 1);
    }
    uint32_t place = atomic_fetch_add(&notes->served, 1);
    notes->order[place] = i;
    notes->granted[place] = now;
    atomic_fetch_sub(&notes->inside, 1);
    flock(fd, LOCK_UN);
    if (read(end, &byte, 1) < 0) { /* so that nobody's end costs the others time */
        _exit(1);
    }
    _exit(0);
}

static void waiters_judge_order(struct waiters *w, const struct waiters_notes *notes)
{
    uint32_t served = atomic_load(&notes->served);
    if (served != w->count || atomic_load(&notes->refused)) {
        waiters_wrong(w, "not all were served");
    }
    if (atomic_load(&notes->together)) {
        waiters_wrong(w, "two held the lock at once");
    }
    for (uint32_t i = 0; i < served; i++) {
        if (notes->order[i] != i) {
            printf("WRONG: waiter %u was served as number %u\n", notes->order[i], i);
            w->wrong = true;
            return;
        }
    }
}

static void waiters_order(struct waiters *w)
{
    struct waiters_notes *notes = stress_share(sizeof *notes);
    int ends[2];
    if (pipe(ends) != 0) {
        stress_die("pipe: %s", strerror(errno));
    }
    waiters_hold(w);
    for (uint32_t i = 0; i < w->count; i++) {
        w->children[i] = stress_fork();
        if (w->children[i] == 0) {
            close(ends[1]);
            close(w->holder);
            waiters_wait(w, notes, i, ends[0]);
        }
        stress_await_waiters(w->path, i + 1);
    }
    struct stress_usage before = stress_usage(w->daemon);
    int64_t began = stress_now(), seen = began;
    flock(w->holder, LOCK_UN);
    for (uint32_t served = 0, last = 0; served < w->count && stress_now() < seen + 10 * STRESS_SECOND; last = served) {
        stress_sleep(STRESS_MS);
        served = atomic_load(&notes->served) + atomic_load(&notes->refused);
        seen = served != last ? stress_now() : seen;
    }
    int64_t cpu = stress_usage(w->daemon).cpu_ns - before.cpu_ns;
    waiters_judge_order(w, notes);
    if (!w->wrong) {
        printf("%u waiters: %.1f us for a hand-over", w->count,
               (double)(notes->granted[w->count - 1] - began) / w->count / 1000);
        printf(w->daemon ? ", %.1f us of the daemon's processor time\n" : "\n", (double)cpu / w->count / 1000);
    }
    close(ends[1]);
    for (uint32_t i = 0; i < w->count; i++) {
        stress_wait(w->children[i], 10 * STRESS_SECOND, NULL);
    }
    close(w->holder);
    waiters_expect_free(w);
}

/* --- leaving ---------------------------------------------------------------------- */

static pid_t waiters_start_flock(const struct waiters *w, const char *const options[2])
{
    char granted[32];
    snprintf(granted, sizeof granted, "exit %d", GRANTED);
    pid_t child = stress_fork();
    if (child == 0) {
        const char *arguments[8] = {"flock"};
        int n = 1;
        for (int i = 0; i < 2 && options[i]; i++) {
            arguments[n++] = options[i];
        }
        arguments[n++] = w->path;
        arguments[n++] = "-c";
        arguments[n++] = granted;
        signal(SIGINT, SIG_DFL);
        execvp("flock", (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    return child;
}

static void waiters_start_all(struct waiters *w, const char *const options[2])
{
    for (uint32_t i = 0; i < w->count; i++) {
        w->children[i] = waiters_start_flock(w, options);
    }
}

/* From `began` until at most `count` wait. */
static int64_t waiters_time_to(const struct waiters *w, int64_t count, int64_t began)
{
    while (stress_waiters(w->path) > count && stress_now() < began + 10 * STRESS_SECOND) {
        stress_sleep(STRESS_MS / 20);
    }
    return stress_now() - began;
}

static void waiters_tell_leave(struct waiters *w, const char *how, int64_t longest)
{
    printf("%s: gone after %.1f ms at the longest, of %u\n", how, (double)longest / STRESS_MS, w->count);
    if (longest > w->limit) {
        waiters_wrong(w, "too long");
    }
}

static void waiters_expect_end(struct waiters *w, int signal)
{
    for (uint32_t i = 0; i < w->count; i++) {
        int status = 0;
        if (!stress_wait(w->children[i], 10 * STRESS_SECOND, &status)) {
            waiters_wrong(w, "a waiter does not end");
        } else if (WIFEXITED(status) && WEXITSTATUS(status) == GRANTED) {
            waiters_wrong(w, "a waiter that had left was granted the lock");
        } else if (signal ? !WIFSIGNALED(status) || WTERMSIG(status) != signal
                          : !WIFEXITED(status) || WEXITSTATUS(status) != 1) {
            printf("status %#x of a waiter\n", status);
            waiters_wrong(w, "a waiter ended otherwise than by what was done to it");
        }
    }
}

/* In any order, the first and the last of the queue too. */
static void waiters_leave_by_signal(struct waiters *w, const char *how, int signal)
{
    int64_t longest = 0;
    waiters_start_all(w, (const char *const[2]){NULL, NULL});
    stress_await_waiters(w->path, w->count);
    for (uint32_t i = 0; i < w->count; i++) {
        int64_t began = stress_now();
        kill(w->children[(i * 7 + 3) % w->count], signal);
        int64_t took = waiters_time_to(w, w->count - i - 1, began);
        longest = took > longest ? took : longest;
    }
    waiters_expect_end(w, signal);
    waiters_tell_leave(w, how, longest);
}

/* The first may have left before the last has come: how long that takes is the machine's affair. */
static void waiters_leave_by_time(struct waiters *w)
{
    waiters_start_all(w, (const char *const[2]){"-w", "1"});
    waiters_expect_end(w, 0);
    waiters_tell_leave(w, "flock -w 1", waiters_time_to(w, 0, stress_now()));
}

static void waiters_leave(struct waiters *w)
{
    waiters_hold(w);
    waiters_leave_by_time(w);
    waiters_leave_by_signal(w, "Ctrl-C", SIGINT);
    waiters_leave_by_signal(w, "kill -9", SIGKILL);
    close(w->holder);
    waiters_expect_free(w);
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"waiters", required_argument, NULL, 'w'},
                                          {"daemon", required_argument, NULL, 'd'},
                                          {"limit", required_argument, NULL, 'l'},
                                          {NULL, 0, NULL, 0}};
    struct waiters w = {.count = 10, .limit = STRESS_SECOND};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'w':
            w.count = (uint32_t)atoi(optarg);
            break;
        case 'd':
            w.daemon = atoi(optarg);
            break;
        case 'l':
            w.limit = atoi(optarg) * STRESS_MS;
            break;
        default:
            return 1;
        }
    }
    bool order = optind + 2 == argc && strcmp(argv[optind], "order") == 0;
    bool leave = optind + 2 == argc && strcmp(argv[optind], "leave") == 0;
    if ((!order && !leave) || w.count < 1 || w.count > 1 << 16) {
        stress_die("usage: waiters order|leave DIRECTORY [--waiters N] [--daemon PID] [--limit MS]");
    }
    w.directory = argv[optind + 1];
    w.children = calloc(w.count, sizeof *w.children);
    (order ? waiters_order : waiters_leave)(&w);
    free(w.children);
    return w.wrong ? 3 : 0;
}
