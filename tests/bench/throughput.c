/* throughput: how many locks several processes take and give back in a second, where the scheduler puts them.
 *
 *     throughput DIRECTORY CALLERS SECONDS WHAT [PROGRAMS]
 *         CALLERS processes, each with names of its own in DIRECTORY/NUMBER, which is made:
 *         lease    open(O_CREAT|O_EXCL), close, unlink
 *         flock    lock and unlock an open file
 *         beside PROGRAMS (default 0) processes that compute.
 *
 * Prints how many of all callers ended in a second.  A median would hide what it is for: a caller that shares the
 * daemon's processor is ten times as fast as one that does not, and may be either for seconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stress/stress.h"

#define MAX_CALLERS 256

static struct shared {
    int64_t begins, ends; /* the time in which cycles are counted, by stress_now() */
    uint64_t done[MAX_CALLERS];
} * shared;

static void throughput_demand(bool holds, const char *path)
{
    if (!holds) {
        stress_die("%s: %s", path, strerror(errno));
    }
}

static void throughput_lease(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    throughput_demand(fd >= 0 && close(fd) == 0 && unlink(path) == 0, path);
}

static void throughput_flock(const char *path)
{
    static int fd = -1;
    if (fd < 0) {
        fd = open(path, O_RDONLY | O_CREAT, 0666);
    }
    throughput_demand(fd >= 0 && flock(fd, LOCK_EX) == 0 && flock(fd, LOCK_UN) == 0, path);
}

static void throughput_call(int number, const char *directory, void (*cycle)(const char *path))
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", directory, number);
    if (mkdir(path, 0777) != 0 && errno != EEXIST) { /* a file system without directories */
        snprintf(path, sizeof path, "%s", directory);
    }
    snprintf(path + strlen(path), sizeof path - strlen(path), "/lock%d", number);
    for (int64_t now = 0; now < shared->ends; now = stress_now()) {
        cycle(path);
        shared->done[number] += now >= shared->begins;
    }
    exit(0);
}

static pid_t throughput_fork(void)
{
    pid_t pid = fork();
    throughput_demand(pid >= 0, "fork");
    return pid;
}

int main(int argc, char **argv)
{
    int callers = argc > 2 ? atoi(argv[2]) : 0, programs = argc > 5 ? atoi(argv[5]) : 0;
    double seconds = argc > 3 ? atof(argv[3]) : 0;
    if (argc < 5 || callers < 1 || callers > MAX_CALLERS || programs < 0 || programs > MAX_CALLERS || seconds <= 0) {
        stress_die("usage: throughput DIRECTORY CALLERS SECONDS lease|flock [PROGRAMS]");
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    throughput_demand(shared != MAP_FAILED, "mmap");
    shared->begins = stress_now() + 300 * INT64_C(1000000);
    shared->ends = shared->begins + (int64_t)(seconds * 1e9);
    pid_t computing[MAX_CALLERS];
    for (int i = 0; i < programs; i++) {
        computing[i] = throughput_fork();
        if (computing[i] == 0) {
            for (;;) {
            }
        }
    }
    for (int i = 0; i < callers; i++) {
        if (throughput_fork() == 0) {
            throughput_call(i, argv[1], strcmp(argv[4], "flock") == 0 ? throughput_flock : throughput_lease);
        }
    }
    uint64_t done = 0;
    bool failed = false;
    for (int i = 0, status; i < callers; i++) {
        failed |= wait(&status) < 0 || status != 0;
    }
    for (int i = 0; i < programs; i++) {
        kill(computing[i], SIGKILL);
    }
    for (int i = 0; i < callers; i++) {
        done += shared->done[i];
    }
    printf("%.0f\n", (double)done / seconds);
    return failed;
}
