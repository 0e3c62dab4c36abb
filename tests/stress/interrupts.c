/* interrupts: waits for one lock that are interrupted all the time.
 *
 *     interrupts DIRECTORY [--count N] [--processes N] [--threads N] [--seed N]
 *
 * Every thread has a file description and a timer of its own, whose signal has a
 * handler without SA_RESTART, and waits with flock or fcntl: until N waits were
 * interrupted in all.  Each wait must end with success or EINTR (never errno 512,
 * which is the kernel's own), one at a time may hold, and a grant that crosses an
 * interrupt is given back: nothing is held or queued at the end.
 *
 * Exit status: 0, 3 for a behaviour that is wrong, 1 if it could not be run.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/stress/stress.h"

#define ERRNO_MAX 1024

struct interrupts {
    char path[4096];
    uint32_t count, processes, threads;
    uint64_t seed;
    bool fuse;
    struct interrupts_notes {
        _Atomic uint32_t interrupted, granted, inside, together;
        _Atomic uint32_t other[ERRNO_MAX];
    } * notes; /* shared */
};

struct interrupts_thread {
    const struct interrupts *run;
    pthread_t id;
    struct stress_random random;
    uint32_t process, number;
};

enum way { BY_FLOCK, BY_OFD, BY_POSIX };

static void interrupts_wake(int signal)
{
    (void)signal;
}

/* Signals come at random times, again and again, so that none is missed. */
static void interrupts_set_timer(timer_t timer, int64_t ns)
{
    struct timespec t = {.tv_nsec = (long)ns};
    struct itimerspec spec = {.it_value = t, .it_interval = t};
    timer_settime(timer, 0, &spec, NULL);
}

static int interrupts_lock(int fd, enum way way, bool lock)
{
    struct flock range = {.l_type = lock ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET};
    if (way == BY_FLOCK) {
        return flock(fd, lock ? LOCK_EX : LOCK_UN);
    }
    return fcntl(fd, way == BY_OFD ? F_OFD_SETLKW : F_SETLKW, &range);
}

static void interrupts_hold(struct interrupts_thread *t)
{
    struct interrupts_notes *notes = t->run->notes;
    atomic_fetch_add(&notes->granted, 1);
    if (atomic_fetch_add(&notes->inside, 1) != 0) {
        atomic_fetch_add(&notes->together, 1);
    }
    /* Long enough for those who wait to be interrupted, now and then short
     * enough for grants to cross interrupts. */
    stress_sleep(stress_chance(&t->random, 50) ? stress_below(&t->random, 3000) * 1000 : 0);
    atomic_fetch_sub(&notes->inside, 1);
}

/* The kinds do not exclude each other except on a leasefs; and record locks are a
 * process's, so that one thread has them. */
static enum way interrupts_way(const struct interrupts_thread *t)
{
    if (!t->run->fuse) {
        return BY_FLOCK;
    }
    return t->number == 0 ? BY_POSIX : t->number % 2 ? BY_FLOCK : BY_OFD;
}

static void *interrupts_thread(void *arg)
{
    struct interrupts_thread *t = arg;
    struct interrupts_notes *notes = t->run->notes;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    enum way way = interrupts_way(t);
    timer_t timer;
    int fd = open(t->run->path, O_RDWR | O_CLOEXEC);
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (fd < 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) {
        stress_die("%s: %s", t->run->path, strerror(errno));
    }
    while (atomic_load(&notes->interrupted) < t->run->count) {
        interrupts_set_timer(timer, (20 + stress_below(&t->random, 800)) * 1000);
        int result = interrupts_lock(fd, way, true), error = errno;
        interrupts_set_timer(timer, 0);
        if (result == 0) {
            interrupts_hold(t);
            interrupts_lock(fd, way, false);
        } else if (error == EINTR) {
            atomic_fetch_add(&notes->interrupted, 1);
        } else {
            atomic_fetch_add(&notes->other[error < ERRNO_MAX ? error : ERRNO_MAX - 1], 1);
            stress_sleep(STRESS_MS);
        }
    }
    timer_delete(timer);
    return NULL; /* not closed here: that would end the record lock that thread 0 may hold */
}

_Noreturn static void interrupts_process(const struct interrupts *run, uint32_t process)
{
    struct sigaction action = {.sa_handler = interrupts_wake};
    struct interrupts_thread *threads = calloc(run->threads, sizeof *threads);
    sigaction(SIGUSR1, &action, NULL);
    for (uint32_t i = 0; i < run->threads; i++) {
        threads[i] = (struct interrupts_thread){
            .run = run, .process = process, .number = i, .random = stress_seed(run->seed, process << 16 | i)};
        if (pthread_create(&threads[i].id, NULL, interrupts_thread, &threads[i]) != 0) {
            stress_die("no thread");
        }
    }
    for (uint32_t i = 0; i < run->threads; i++) {
        pthread_join(threads[i].id, NULL);
    }
    free(threads);
    fflush(NULL);
    _exit(0); /* what the parent allocated is the parent's to free */
}

static bool interrupts_judge(const struct interrupts *run)
{
    struct interrupts_notes *notes = run->notes;
    bool wrong = false;
    for (int error = 0; error < ERRNO_MAX; error++) {
        uint32_t count = atomic_load(&notes->other[error]);
        if (count) {
            printf("WRONG: %u waits ended with errno %d (%s)\n", count, error, strerror(error));
            wrong = true;
        }
    }
    if (atomic_load(&notes->together)) {
        printf("WRONG: two held the lock at once, %u times\n", atomic_load(&notes->together));
        wrong = true;
    }
    if (!atomic_load(&notes->granted)) {
        printf("WRONG: no wait was granted\n");
        wrong = true;
    }
    int fd = open(run->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (stress_waiters(run->path) > 0 || fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) {
        printf("WRONG: the lock is not free afterwards\n");
        wrong = true;
    }
    close(fd);
    return wrong;
}

static bool interrupts_run(const struct interrupts *run)
{
    pid_t *children = calloc(run->processes, sizeof *children);
    int64_t began = stress_now();
    bool wrong = false;
    int fd = open(run->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666); /* so that the name stays */
    if (fd < 0 || flock(fd, LOCK_EX) != 0) {
        stress_die("%s: %s", run->path, strerror(errno));
    }
    for (uint32_t i = 0; i < run->processes; i++) {
        children[i] = stress_fork();
        if (children[i] == 0) {
            close(fd);
            interrupts_process(run, i);
        }
    }
    stress_sleep(20 * STRESS_MS);
    flock(fd, LOCK_UN);
    for (uint32_t i = 0; i < run->processes; i++) {
        int status = 0;
        if (!stress_wait(children[i], 600 * STRESS_SECOND, &status) || status != 0) {
            printf("WRONG: a process does not end, or with status %#x\n", status);
            wrong = true;
        }
    }
    close(fd);
    free(children);
    printf("seed %llu: %u interrupted waits, %u granted, in %.1f s\n", (unsigned long long)run->seed,
           atomic_load(&run->notes->interrupted), atomic_load(&run->notes->granted),
           (double)(stress_now() - began) / STRESS_SECOND);
    return interrupts_judge(run) || wrong;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"count", required_argument, NULL, 'c'},
                                          {"processes", required_argument, NULL, 'p'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"seed", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    struct interrupts run = {.count = 1000, .processes = 4, .threads = 4, .seed = (uint64_t)stress_now()};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'c':
            run.count = (uint32_t)atoi(optarg);
            break;
        case 'p':
            run.processes = (uint32_t)atoi(optarg);
            break;
        case 't':
            run.threads = (uint32_t)atoi(optarg);
            break;
        case 's':
            run.seed = strtoull(optarg, NULL, 10);
            break;
        default:
            return 1;
        }
    }
    if (optind + 1 != argc) {
        stress_die("usage: interrupts DIRECTORY [--count N] [--processes N] [--threads N] [--seed N]");
    }
    snprintf(run.path, sizeof run.path, "%s/lock", argv[optind]);
    run.fuse = stress_is_fuse(argv[optind]);
    run.notes = stress_share(sizeof *run.notes);
    return interrupts_run(&run) ? 3 : 0;
}
