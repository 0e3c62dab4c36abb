/* stress: shared by the stress programs; see stress.h. */
#include "tests/stress/stress.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

int64_t stress_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * STRESS_SECOND + t.tv_nsec;
}

void stress_sleep(int64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / STRESS_SECOND), .tv_nsec = (long)(ns % STRESS_SECOND)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

void stress_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* xorshift64* */
static uint64_t stress_next(struct stress_random *random)
{
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return random->state * 0x2545F4914F6CDD1DULL;
}

struct stress_random stress_seed(uint64_t seed, uint64_t stream)
{
    struct stress_random random = {.state = (seed + 1) * 0x9E3779B97F4A7C15ULL ^ (stream + 1) * 0xD1B54A32D192ED03ULL};
    random.state |= 1;
    for (int i = 0; i < 8; i++) {
        stress_next(&random);
    }
    return random;
}

uint32_t stress_below(struct stress_random *random, uint32_t limit)
{
    return (uint32_t)((stress_next(random) >> 32) % limit);
}

bool stress_chance(struct stress_random *random, uint32_t percent)
{
    return stress_below(random, 100) < percent;
}

void *stress_share(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        stress_die("no %zu bytes of shared memory: %s", size, strerror(errno));
    }
    return memory;
}

pid_t stress_fork(void)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        stress_die("fork: %s", strerror(errno));
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
    }
    return child;
}

bool stress_wait(pid_t child, int64_t ns, int *ret_status)
{
    int status = 0;
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    struct pollfd ended = {.fd = fd, .events = POLLIN};
    struct timespec limit = {.tv_sec = (time_t)(ns / STRESS_SECOND), .tv_nsec = (long)(ns % STRESS_SECOND)};
    ppoll(&ended, 1, &limit, NULL);
    close(fd);
    if (waitpid(child, &status, WNOHANG) != child) {
        return false;
    }
    if (ret_status) {
        *ret_status = status;
    }
    return true;
}

int64_t stress_attribute(const char *path, const char *name)
{
    char attribute[64], value[64];
    snprintf(attribute, sizeof attribute, "user.lease.%s", name);
    ssize_t size = lgetxattr(path, attribute, value, sizeof value - 1);
    if (size < 0) {
        return -errno;
    }
    value[size] = '\0';
    return strtoll(value, NULL, 10);
}

/* The line of .leasefs/locks that begins with `name`: kind, mode, host, pid, uid, command, age, remaining, waiters. */
static bool stress_find_lock(const char *mount, const char *name, char *line, size_t size)
{
    char path[PATH_MAX];
    size_t length = strlen(name);
    bool found = false;
    snprintf(path, sizeof path, "%s/.leasefs/locks", mount);
    FILE *table = fopen(path, "r");
    while (table && !found && fgets(line, (int)size, table)) {
        found = strncmp(line, name, length) == 0 && line[length] == '\t';
    }
    if (table) {
        fclose(table);
    }
    return found;
}

bool stress_give_back(const char *mount, const char *name)
{
    char line[1024], path[PATH_MAX];
    long pid = 0;
    snprintf(path, sizeof path, "%s/%s", mount, name);
    return stress_find_lock(mount, name, line, sizeof line) &&
           sscanf(line + strlen(name), " %*s %*s %*s %ld", &pid) == 1 && pid == getpid() && unlink(path) == 0;
}

void stress_print_left(const char *mount, const char *name)
{
    char line[1024];
    bool found = stress_find_lock(mount, name, line, sizeof line);
    printf("FAULT: %s/%s is still held: %s", mount, name, found ? line : "not through this mount\n");
}

void stress_make_queue(const char *directory, int width)
{
    char path[4096], value[16];
    snprintf(path, sizeof path, "%s/q%d", directory, width);
    snprintf(value, sizeof value, "%d", width);
    if ((mkdir(path, 0777) != 0 && errno != EEXIST) ||
        setxattr(path, "user.lease.width", value, strlen(value), 0) != 0) {
        stress_die("%s: %s", path, strerror(errno));
    }
}
