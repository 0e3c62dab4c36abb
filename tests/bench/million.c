/* million: the cost of very many leases, and of their end.
 *
 *     million DIRECTORY COUNT DAEMON-PID
 *         Acquires COUNT leases in an empty directory of a mount.  Prints the time of
 *         open(O_CREAT|O_EXCL) and close with a thousand held and with COUNT, on the
 *         same CPU as the daemon, and the daemon's memory for each; and how often its
 *         threads run in ten seconds while nobody asks for any.  Then sets a fixed
 *         TTL for all of them so that they end within one second, while another
 *         process makes cycles on any CPU and measures its slowest request.  If it
 *         may, it does so a second time with all of them ahead of other processes
 *         (SCHED_FIFO), as on an idle machine.
 *
 * Lines that begin with row= are for programs: words NAME=VALUE.
 *
 * The mount's own TTL should be long, so that no renewal happens meanwhile.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/bench/samples.h"
#include "tests/stress/stress.h"

#define FEW 1000
#define PROBES 20000
#define COUNT_MAX 9000000
#define WINDOW STRESS_SECOND /* in which they end */
#define PROBE_BEFORE (2 * STRESS_SECOND)
#define REST (10 * STRESS_SECOND)
#define SETTLING (2 * STRESS_SECOND) /* after it the owner of each lease is final */
#define PROBES_MAX 2000000
#define BEARABLE (10 * STRESS_MS)

struct million {
    const char *directory;
    uint32_t count;
    pid_t daemon;
    cpu_set_t all, one;
};

/* Where the program and the daemon may run. */
static void million_run_on(const struct million *m, const cpu_set_t *cpus)
{
    if (sched_setaffinity(0, sizeof *cpus, cpus) != 0 || sched_setaffinity(m->daemon, sizeof *cpus, cpus) != 0) {
        stress_die("sched_setaffinity: %s", strerror(errno));
    }
}

/* How often the daemon's threads began to run since each was made. */
static uint64_t million_runs(const struct million *m)
{
    char path[64];
    uint64_t runs = 0, of_one;
    snprintf(path, sizeof path, "/proc/%d/task", (int)m->daemon);
    DIR *tasks = opendir(path);
    if (!tasks) {
        stress_die("%s: %s", path, strerror(errno));
    }
    for (const struct dirent *task; (task = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)m->daemon, atoi(task->d_name));
        FILE *file = atoi(task->d_name) > 0 ? fopen(path, "r") : NULL; /* 0: . and .. */
        if (file && fscanf(file, "%*u %*u %" SCNu64, &of_one) == 1) {
            runs += of_one;
        }
        if (file) {
            fclose(file);
        }
    }
    closedir(tasks);
    return runs;
}

static void million_rest(const struct million *m)
{
    stress_sleep(SETTLING);
    uint64_t before = million_runs(m);
    stress_sleep(REST);
    uint64_t runs = million_runs(m) - before;
    printf("the daemon ran %" PRIu64 " times in 10 s while nobody asked\n", runs);
    printf("row=rest leases=%u runs=%" PRIu64 "\n", m->count, runs);
}

struct million_memory {
    int64_t pss, anonymous; /* bytes */
};

static void million_path(const struct million *m, char *path, size_t size, uint32_t number)
{
    snprintf(path, size, "%s/lease%07" PRIu32, m->directory, number);
}

static void million_acquire(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || close(fd) != 0) {
        stress_die("%s: %s", path, strerror(errno));
    }
}

static void million_release(const char *path)
{
    if (unlink(path) != 0) {
        stress_die("%s: %s", path, strerror(errno));
    }
}

/* From `from` up to `to`; returns how long it took. */
static int64_t million_fill(const struct million *m, uint32_t from, uint32_t to)
{
    char path[4096];
    int64_t began = stress_now();
    for (uint32_t i = from; i < to; i++) {
        million_path(m, path, sizeof path, i);
        million_acquire(path);
    }
    return stress_now() - began;
}

static struct million_memory million_memory(const struct million *m)
{
    char path[64], line[256];
    struct million_memory memory = {0, 0};
    long long kb;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)m->daemon);
    FILE *file = fopen(path, "r");
    if (!file) {
        stress_die("%s: %s", path, strerror(errno));
    }
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "Pss: %lld kB", &kb) == 1) {
            memory.pss = kb * 1024;
        } else if (sscanf(line, "Anonymous: %lld kB", &kb) == 1) {
            memory.anonymous = kb * 1024;
        }
    }
    fclose(file);
    return memory;
}

/* The medians of acquire, at names among the others and at the end of them. */
struct million_cost {
    int64_t among, after;
};

static int64_t million_probe(const struct million *m, uint32_t held, bool among)
{
    char path[4096];
    struct samples samples = samples_new(PROBES);
    struct stress_random random = stress_seed(1, 1);
    for (uint32_t i = 0; i < PROBES; i++) {
        if (among) {
            snprintf(path, sizeof path, "%s/lease%07" PRIu32 "x", m->directory, stress_below(&random, held));
        } else {
            million_path(m, path, sizeof path, held + i);
        }
        int64_t began = stress_now();
        million_acquire(path);
        samples_add(&samples, stress_now() - began);
        million_release(path);
    }
    int64_t median = samples_quantile(&samples, 500);
    samples_free(&samples);
    return median;
}

static struct million_cost million_measure(const struct million *m, uint32_t held)
{
    return (struct million_cost){.among = million_probe(m, held, true), .after = million_probe(m, held, false)};
}

static void million_compare(const struct million *m, const char *where, int64_t few, int64_t many)
{
    printf("acquire %-18s %.2f us with %u held, %.2f us with %u: %.2f\n", where, (double)few / 1000, FEW,
           (double)many / 1000, m->count, (double)many / (double)few);
    printf("row=acquire_%.5s leases=%u us=%.2f reference=%u reference_us=%.2f ratio=%.2f\n", where, m->count,
           (double)many / 1000, FEW, (double)few / 1000, (double)many / (double)few);
}

/* --- how they end ---------------------------------------------------------------- */

static uint64_t million_held(const struct million *m)
{
    struct statvfs st;
    if (statvfs(m->directory, &st) != 0) {
        stress_die("%s: %s", m->directory, strerror(errno));
    }
    return st.f_files - st.f_ffree;
}

static void million_set_ttl(const struct million *m, uint32_t number, int64_t end)
{
    char path[4096], value[32];
    million_path(m, path, sizeof path, number);
    int64_t ttl = (end - stress_now()) / STRESS_MS;
    int length = snprintf(value, sizeof value, "%" PRId64 "ms", ttl);
    if (lsetxattr(path, "user.lease.ttl", value, (size_t)length, 0) != 0) {
        stress_die("%s: user.lease.ttl=%s: %s", path, value, strerror(errno));
    }
}

/* Sets the end of every lease, so that all end within one second from `first` on.  False if `first` is too near: then
 * none has ended yet, and the caller can set all ends again. */
static bool million_fix_from(const struct million *m, int64_t first)
{
    int64_t began = stress_now();
    for (uint32_t i = 0; i < m->count; i++) {
        int64_t now = stress_now();
        if (now + (now - began) > first - PROBE_BEFORE) {
            return false;
        }
        million_set_ttl(m, i, first + WINDOW * i / m->count);
    }
    return true;
}

/* Sets the end of every lease; returns the first end. */
static int64_t million_fix(const struct million *m)
{
    uint32_t trial = m->count < FEW ? m->count : FEW;
    million_run_on(m, &m->one); /* on one processor, setting the ends is several times as quick */
    int64_t began = stress_now();
    for (uint32_t i = 0; i < trial; i++) {
        million_set_ttl(m, i * (m->count / trial), began + 3600 * STRESS_SECOND);
    }
    int64_t each = (stress_now() - began) / trial, first;
    do { /* other programs may have slowed it down meanwhile */
        each *= 2;
        first = stress_now() + 2 * each * m->count + PROBE_BEFORE + 2 * STRESS_SECOND;
    } while (!million_fix_from(m, first));
    million_run_on(m, &m->all);
    return first;
}

static void million_tell(const char *when, struct samples *samples)
{
    printf("%-24s %8zu requests, median %6.1f us, 99.9%% %8.1f us, longest %8.2f ms, over 10 ms: %zu\n", when,
           samples->count, (double)samples_quantile(samples, 500) / 1000, (double)samples_quantile(samples, 999) / 1000,
           (double)samples_quantile(samples, 1000) / STRESS_MS, samples_above(samples, BEARABLE));
    printf("row=wait leases_end=%s requests=%zu median_us=%.1f longest_ms=%.2f over_10_ms=%zu\n",
           strstr(when, "none") ? "no" : "yes", samples->count, (double)samples_quantile(samples, 500) / 1000,
           (double)samples_quantile(samples, 1000) / STRESS_MS, samples_above(samples, BEARABLE));
    fflush(stdout);
}

/* The other process: requests until `end`, those before `first` apart. */
static void million_watch(const struct million *m, int64_t first, int64_t end)
{
    char path[4096];
    struct samples before = samples_new(PROBES_MAX), during = samples_new(PROBES_MAX);
    snprintf(path, sizeof path, "%s/other", m->directory);
    stress_sleep(first - PROBE_BEFORE - stress_now());
    for (int64_t now = stress_now(); now < end;) {
        struct samples *samples = now < first ? &before : &during;
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        int64_t opened = stress_now();
        int closed = close(fd);
        int64_t then = stress_now();
        million_release(path);
        samples_add(samples, opened - now);
        samples_add(samples, then - opened);
        now = stress_now();
        samples_add(samples, now - then);
        if (fd < 0 || closed != 0) {
            stress_die("%s: %s", path, strerror(errno));
        }
    }
    million_tell("while none ends:", &before);
    million_tell("while they end:", &during);
}

/* This process and all threads of the daemon go ahead of other programs; false if that is not allowed. */
static bool million_go_ahead(const struct million *m)
{
    const struct sched_param first = {.sched_priority = 1};
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)m->daemon);
    DIR *tasks = opendir(path);
    bool well = tasks && sched_setscheduler(0, SCHED_FIFO, &first) == 0;
    for (const struct dirent *task; well && (task = readdir(tasks));) {
        pid_t thread = atoi(task->d_name); /* 0: . and .. */
        well = thread == 0 || sched_setscheduler(thread, SCHED_FIFO, &first) == 0;
    }
    if (tasks) {
        closedir(tasks);
    }
    return well;
}

static void million_expire(const struct million *m)
{
    int64_t first = million_fix(m);
    pid_t other = stress_fork();
    if (other == 0) {
        million_watch(m, first, first + 2 * WINDOW);
        exit(0);
    }
    stress_sleep(first + WINDOW - stress_now());
    while (million_held(m) > 1) { /* the other's */
        if (stress_now() > first + 120 * STRESS_SECOND) {
            stress_die("%" PRIu64 " do not end", million_held(m));
        }
        stress_sleep(STRESS_MS);
    }
    printf("all had ended %.0f ms after the last deadline\n", (double)(stress_now() - first - WINDOW) / STRESS_MS);
    fflush(stdout);
    if (!stress_wait(other, 60 * STRESS_SECOND, NULL)) {
        stress_die("the other process does not end");
    }
}

int main(int argc, char **argv)
{
    if (argc != 4 || atol(argv[2]) < 2 * FEW || atol(argv[2]) > COUNT_MAX) {
        stress_die("usage: million DIRECTORY COUNT DAEMON-PID (COUNT: %d to %d)", 2 * FEW, COUNT_MAX);
    }
    struct million m = {.directory = argv[1], .count = (uint32_t)atol(argv[2]), .daemon = atoi(argv[3])};
    CPU_SET((size_t)sched_getcpu(), &m.one);
    if (sched_getaffinity(0, sizeof m.all, &m.all) != 0) {
        stress_die("sched_getaffinity: %s", strerror(errno));
    }
    million_run_on(&m, &m.one);
    million_fill(&m, 0, FEW);
    million_measure(&m, FEW); /* to warm up */
    struct million_memory few = million_memory(&m);
    struct million_cost cost_few = million_measure(&m, FEW);
    int64_t took = million_fill(&m, FEW, m.count);
    struct million_memory many = million_memory(&m);
    struct million_cost cost_many = million_measure(&m, m.count);
    printf("%u acquired in %.1f s\n", m.count, (double)took / STRESS_SECOND);
    printf("daemon's memory for each: %.0f bytes (PSS), %.0f (anonymous)\n",
           (double)(many.pss - few.pss) / (m.count - FEW), (double)(many.anonymous - few.anonymous) / (m.count - FEW));
    printf("row=bytes leases=%u bytes=%.0f\n", m.count, (double)(many.anonymous - few.anonymous) / (m.count - FEW));
    million_compare(&m, "among the others:", cost_few.among, cost_many.among);
    million_compare(&m, "after the others:", cost_few.after, cost_many.after);
    fflush(stdout);
    million_run_on(&m, &m.all);
    million_rest(&m);
    million_expire(&m);
    if (million_go_ahead(&m)) {
        printf("the same ahead of other programs:\n");
        million_fill(&m, 0, m.count);
        million_expire(&m);
    }
    return 0;
}
