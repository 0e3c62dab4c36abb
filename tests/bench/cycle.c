/* cycle: the time to acquire and release a lock, and of calls around that.
 *
 *     cycle FILE COUNT [WHAT]
 *         COUNT times, after some to warm up:
 *         lease    open(O_CREAT|O_EXCL), close, unlink (default)
 *         flock    lock and unlock an open file
 *         touch    like touch(1), on a file that another holds: refused
 *         held     stat of an existing file
 *         free     stat of a missing one
 *         ticket   open(O_CREAT), flock, close: FILE ends in '-'
 *
 * Prints the median, 90 and 99 percent in nanoseconds, and for a lease the medians
 * of the three calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/samples.h"
#include "tests/stress/stress.h"

#define WARM_UP 200

/* When the first call had ended, and the second. */
struct marks {
    int64_t opened, closed;
};

static void cycle_demand(bool holds, const char *path)
{
    if (!holds) {
        stress_die("%s: %s", path, strerror(errno));
    }
}

static void cycle_lease(const char *path, struct marks *marks)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    marks->opened = stress_now();
    cycle_demand(fd >= 0 && close(fd) == 0, path);
    marks->closed = stress_now();
    cycle_demand(unlink(path) == 0, path);
}

static void cycle_flock(const char *path, struct marks *marks)
{
    static int fd = -1;
    if (fd < 0) {
        fd = open(path, O_RDONLY | O_CREAT, 0666);
    }
    cycle_demand(fd >= 0 && flock(fd, LOCK_EX) == 0, path);
    marks->opened = stress_now();
    cycle_demand(flock(fd, LOCK_UN) == 0, path);
}

static void cycle_touch(const char *path, struct marks *marks)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY, 0666);
    marks->opened = stress_now();
    cycle_demand(fd >= 0, path);
    if (futimens(fd, NULL) == 0 || errno != EBUSY) {
        stress_die("%s: not refused", path);
    }
    close(fd);
}

static void cycle_held(const char *path, struct marks *marks)
{
    struct stat st;
    (void)marks;
    cycle_demand(stat(path, &st) == 0, path);
}

static void cycle_free(const char *path, struct marks *marks)
{
    struct stat st;
    (void)marks;
    cycle_demand(stat(path, &st) != 0 && errno == ENOENT, path);
}

static void cycle_ticket(const char *path, struct marks *marks)
{
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    marks->opened = stress_now();
    cycle_demand(fd >= 0 && flock(fd, LOCK_EX) == 0, path);
    marks->closed = stress_now();
    cycle_demand(close(fd) == 0, path);
}

static const struct {
    const char *name;
    void (*once)(const char *path, struct marks *marks);
} kinds[] = {{"lease", cycle_lease}, {"flock", cycle_flock}, {"touch", cycle_touch},
             {"held", cycle_held},   {"free", cycle_free},   {"ticket", cycle_ticket}};

int main(int argc, char **argv)
{
    const char *what = argc == 4 ? argv[3] : "lease";
    size_t kind = 0;
    while (kind < sizeof kinds / sizeof *kinds && strcmp(kinds[kind].name, what) != 0) {
        kind++;
    }
    if (argc < 3 || argc > 4 || kind == sizeof kinds / sizeof *kinds || atol(argv[2]) < 1) {
        stress_die("usage: cycle FILE COUNT [lease|flock|touch|held|free|ticket]");
    }
    const char *path = argv[1];
    size_t count = (size_t)atol(argv[2]);
    struct samples cycles = samples_new(count), opens = samples_new(count);
    struct samples closes = samples_new(count), unlinks = samples_new(count);
    for (size_t i = 0; i < count + WARM_UP; i++) {
        struct marks marks = {0};
        int64_t began = stress_now();
        kinds[kind].once(path, &marks);
        int64_t ended = stress_now();
        if (i >= WARM_UP) {
            samples_add(&cycles, ended - began);
            samples_add(&opens, marks.opened - began);
            samples_add(&closes, marks.closed - marks.opened);
            samples_add(&unlinks, ended - marks.closed);
        }
    }
    printf("%" PRId64 " %" PRId64 " %" PRId64, samples_quantile(&cycles, 500), samples_quantile(&cycles, 900),
           samples_quantile(&cycles, 990));
    if (kind == 0) {
        printf(" %" PRId64 " %" PRId64 " %" PRId64, samples_quantile(&opens, 500), samples_quantile(&closes, 500),
               samples_quantile(&unlinks, 500));
    }
    putchar('\n');
    samples_free(&cycles);
    samples_free(&opens);
    samples_free(&closes);
    samples_free(&unlinks);
    return 0;
}
