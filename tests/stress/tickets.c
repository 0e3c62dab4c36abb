/* tickets: many processes in the queue that a directory of a leasefs is.
 *
 *     tickets order DIRECTORY [--processes N] [--seed N]
 *         N processes race for tickets and wait for their turn: they must be served
 *         strictly in the order of the numbers, and no number is missing.
 *     tickets semaphore DIRECTORY [--processes N] [--width N] [--steps N] [--seed N]
 *         N processes in a directory of that width; holders and waiters leave on command or are killed: never more than
 * the width hold, and after each step soon as many as it allows. tickets depth DIRECTORY [--processes N] prints what
 * position and hand-over cost with N tickets in the queue.
 *
 * Exit status: 0, 3 for a behaviour that is wrong, 1 if it could not be run.
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/stress/stress.h"

#define SETTLE_LIMIT (5 * STRESS_SECOND)

enum state { OUTSIDE, WAITING, INSIDE };

struct stay {
    int64_t from, until; /* 0: not yet */
};

struct member {
    _Atomic int state;
    _Atomic bool leave;
    _Atomic uint32_t stays;
    struct stay *stay; /* shared */
};

struct tickets {
    char directory[4096], prefix[4200];
    uint32_t count, width, steps;
    uint64_t seed;
    struct stress_random random;
    pid_t *children;
    struct member *members; /* shared */
    struct tickets_notes {
        _Atomic uint32_t served;
        _Atomic uint32_t failed;
        long order[1 << 16];
    } * notes; /* shared */
    bool wrong;
};

/* Takes a ticket; its number. */
static long tickets_take(const struct tickets *t, int *ret_fd)
{
    char name[300];
    int fd = open(t->prefix, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    ssize_t size = fd < 0 ? -1 : read(fd, name, sizeof name - 1);
    if (size <= 0) {
        stress_die("%s: %s", t->prefix, strerror(errno));
    }
    name[size] = '\0';
    *ret_fd = fd;
    return strtol(strrchr(name, '-') + 1, NULL, 10);
}

static void tickets_expect_empty(struct tickets *t)
{
    int64_t limit = stress_now() + SETTLE_LIMIT;
    while (rmdir(t->directory) != 0) {
        if (errno != ENOTEMPTY || stress_now() > limit) {
            printf("WRONG: the queue is not empty in the end: %s\n", strerror(errno));
            t->wrong = true;
            return;
        }
        stress_sleep(STRESS_MS);
    }
}

/* --- order ------------------------------------------------------------------------ */

_Noreturn static void tickets_queue(const struct tickets *t, uint32_t i, int gate)
{
    struct stress_random random = stress_seed(t->seed, i);
    char byte;
    int fd;
    if (read(gate, &byte, 1) < 0) {
        _exit(1);
    }
    long number = tickets_take(t, &fd);
    stress_sleep(stress_below(&random, 5000) * 1000);
    if (flock(fd, LOCK_EX) == 0) {
        t->notes->order[atomic_fetch_add(&t->notes->served, 1)] = number;
    } else {
        atomic_fetch_add(&t->notes->failed, 1);
    }
    close(fd);
    _exit(0);
}

static void tickets_order(struct tickets *t)
{
    int gate[2];
    if (pipe(gate) != 0) {
        stress_die("pipe: %s", strerror(errno));
    }
    for (uint32_t i = 0; i < t->count; i++) {
        t->children[i] = stress_fork();
        if (t->children[i] == 0) {
            close(gate[1]);
            tickets_queue(t, i, gate[0]);
        }
    }
    int64_t began = stress_now();
    close(gate[1]);
    for (uint32_t i = 0; i < t->count; i++) {
        if (!stress_wait(t->children[i], 60 * STRESS_SECOND, NULL)) {
            printf("WRONG: a process is not served\n");
            t->wrong = true;
        }
    }
    uint32_t served = atomic_load(&t->notes->served);
    printf("%u tickets served in %.1f ms, numbers %ld to %ld\n", served, (double)(stress_now() - began) / STRESS_MS,
           t->notes->order[0], t->notes->order[t->count - 1]);
    if (served != t->count || atomic_load(&t->notes->failed)) {
        printf("WRONG: %u of %u were served\n", served, t->count);
        t->wrong = true;
    }
    for (uint32_t i = 1; i < served; i++) {
        if (t->notes->order[i] != t->notes->order[i - 1] + 1) {
            printf("WRONG: ticket %ld was served after ticket %ld\n", t->notes->order[i], t->notes->order[i - 1]);
            t->wrong = true;
        }
    }
}

/* --- semaphore ------------------------------------------------------------------------ */

_Noreturn static void tickets_member(const struct tickets *t, uint32_t i)
{
    struct member *m = &t->members[i];
    for (;;) {
        int fd;
        tickets_take(t, &fd);
        atomic_store(&m->state, WAITING);
        if (flock(fd, LOCK_EX) != 0) {
            stress_die("flock: %s", strerror(errno));
        }
        uint32_t n = atomic_load(&m->stays);
        m->stay[n].from = stress_now();
        atomic_store(&m->stays, n + 1);
        atomic_store(&m->state, INSIDE);
        while (!atomic_load(&m->leave)) {
            stress_sleep(STRESS_MS / 2);
        }
        m->stay[n].until = stress_now();
        atomic_store(&m->state, OUTSIDE);
        atomic_store(&m->leave, false);
        close(fd);
    }
}

static void tickets_join(struct tickets *t, uint32_t i)
{
    atomic_store(&t->members[i].state, OUTSIDE);
    atomic_store(&t->members[i].leave, false);
    t->children[i] = stress_fork();
    if (t->children[i] == 0) {
        tickets_member(t, i);
    }
}

static void tickets_kill(struct tickets *t, uint32_t i)
{
    struct member *m = &t->members[i];
    int64_t now = stress_now();
    kill(t->children[i], SIGKILL);
    waitpid(t->children[i], NULL, 0);
    uint32_t n = atomic_load(&m->stays);
    /* It may have been between its note of the time and the count. */
    for (uint32_t k = n ? n - 1 : 0; k <= n; k++) {
        if (m->stay[k].from && (!m->stay[k].until || m->stay[k].until > now)) {
            m->stay[k].until = now;
        }
    }
    atomic_store(&m->stays, n + (m->stay[n].from != 0));
    atomic_store(&m->state, OUTSIDE);
}

static uint32_t tickets_in_state(const struct tickets *t, enum state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        count += atomic_load(&t->members[i].state) == (int)state;
    }
    return count;
}

/* Until as many are inside as may be, everybody having come. */
static int64_t tickets_settle(struct tickets *t, uint32_t members)
{
    int64_t began = stress_now();
    uint32_t inside, expected = members < t->width ? members : t->width;
    while ((inside = tickets_in_state(t, INSIDE)) != expected || tickets_in_state(t, WAITING) != members - inside) {
        if (stress_now() > began + SETTLE_LIMIT) {
            printf("WRONG: %u are inside and %u wait, of %u with a width of %u\n", inside, tickets_in_state(t, WAITING),
                   members, t->width);
            t->wrong = true;
            break;
        }
        stress_sleep(STRESS_MS / 10);
    }
    return stress_now() - began;
}

static bool tickets_pick(struct tickets *t, enum state state, uint32_t *ret_member)
{
    uint32_t i = stress_below(&t->random, t->count);
    for (uint32_t n = 0; n < t->count; n++, i = (i + 1) % t->count) {
        if (atomic_load(&t->members[i].state) == (int)state) {
            *ret_member = i;
            return true;
        }
    }
    return false;
}

/* One leaves, or up to three are killed, which others replace. */
static bool tickets_step(struct tickets *t)
{
    uint32_t i, n = 1 + stress_below(&t->random, 3), dead[3];
    if (stress_chance(&t->random, 30)) {
        if (tickets_pick(t, INSIDE, &i)) {
            atomic_store(&t->members[i].leave, true);
            while (atomic_load(&t->members[i].leave)) {
                stress_sleep(STRESS_MS / 10);
            }
        }
        return false;
    }
    for (uint32_t k = 0; k < n; k++) {
        if (!tickets_pick(t, stress_chance(&t->random, 60) ? INSIDE : WAITING, &dead[k])) {
            n = k;
            break;
        }
        tickets_kill(t, dead[k]);
    }
    /* The others alone settle, before anybody comes instead. */
    tickets_settle(t, t->count - n);
    for (uint32_t k = 0; k < n; k++) {
        tickets_join(t, dead[k]);
    }
    return true;
}

static int tickets_by_time(const void *left, const void *right)
{
    const struct stay *a = left, *b = right;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* The most that were certainly inside at once. */
static uint32_t tickets_most(const struct tickets *t, size_t *ret_stays)
{
    size_t count = 0;
    struct stay *all = calloc((size_t)t->count * (t->steps + 2), sizeof *all);
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t n = atomic_load(&t->members[i].stays);
        memcpy(all + count, t->members[i].stay, n * sizeof *all);
        count += n;
    }
    qsort(all, count, sizeof *all, tickets_by_time);
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t inside = 0;
        for (size_t k = 0; k <= i; k++) {
            inside += all[k].until > all[i].from;
        }
        most = inside > most ? inside : most;
    }
    free(all);
    *ret_stays = count;
    return most;
}

static void tickets_semaphore(struct tickets *t)
{
    char value[16];
    int64_t longest = 0, total = 0;
    uint32_t kills = 0;
    size_t stays;
    snprintf(value, sizeof value, "%u", t->width);
    if (setxattr(t->directory, "user.lease.width", value, strlen(value), 0) != 0) {
        stress_die("user.lease.width: %s", strerror(errno));
    }
    t->members = stress_share(t->count * sizeof *t->members);
    for (uint32_t i = 0; i < t->count; i++) {
        t->members[i].stay = stress_share((t->steps + 3) * sizeof *t->members[i].stay);
        tickets_join(t, i);
    }
    tickets_settle(t, t->count);
    for (uint32_t step = 0; step < t->steps && !t->wrong; step++) {
        kills += tickets_step(t);
        int64_t took = tickets_settle(t, t->count);
        longest = took > longest ? took : longest;
        total += took;
    }
    for (uint32_t i = t->count; i-- > 0;) {
        tickets_kill(t, i);
    }
    uint32_t most = tickets_most(t, &stays);
    printf(
        "%u steps, %u with kills; %zu stays, at most %u at once; settled after %.1f ms on average, %.1f ms at most\n",
        t->steps, kills, stays, most, (double)total / t->steps / STRESS_MS, (double)longest / STRESS_MS);
    if (most != t->width) {
        printf("WRONG: %u at once, not %u\n", most, t->width);
        t->wrong = true;
    }
}

/* --- depth --------------------------------------------------------------------------------- */

static void tickets_allow_files(uint32_t count)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < count + 64) {
        limit.rlim_max = count + 64; /* root may */
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < count + 64) {
        stress_die("no %u open files: %s", count, strerror(errno));
    }
}

static void tickets_depth(struct tickets *t)
{
    char path[4300];
    int *fds = calloc(t->count, sizeof *fds);
    uint32_t served = t->count / 10;
    long number = 0;
    tickets_allow_files(t->count);
    for (uint32_t i = 0; i < t->count; i++) {
        number = tickets_take(t, &fds[i]);
    }
    snprintf(path, sizeof path, "%s%010ld", t->prefix, number);
    int64_t began = stress_now();
    for (uint32_t i = 0; i < 1000; i++) {
        if (stress_attribute(path, "position") != t->count - 1) {
            printf("WRONG: the last of %u is at %lld\n", t->count, (long long)stress_attribute(path, "position"));
            t->wrong = true;
            break;
        }
    }
    double position = (double)(stress_now() - began) / 1000 / 1000;
    flock(fds[0], LOCK_EX); /* closed without having asked, a ticket would stay as a lease */
    began = stress_now();
    for (uint32_t i = 0; i < served; i++) {
        close(fds[i]);
        if (flock(fds[i + 1], LOCK_EX) != 0) {
            stress_die("flock: %s", strerror(errno));
        }
    }
    double handover = (double)(stress_now() - began) / served / 1000;
    printf("%u tickets: %.1f us for a position, %.1f us for a hand-over\n", t->count, position, handover);
    for (uint32_t i = served; i < t->count; i++) {
        flock(fds[i], LOCK_EX);
        close(fds[i]);
    }
    free(fds);
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"processes", required_argument, NULL, 'p'},
                                          {"width", required_argument, NULL, 'w'},
                                          {"steps", required_argument, NULL, 'n'},
                                          {"seed", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    struct tickets t = {.count = 50, .width = 3, .steps = 100, .seed = (uint64_t)stress_now()};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 'p':
            t.count = (uint32_t)atoi(optarg);
            break;
        case 'w':
            t.width = (uint32_t)atoi(optarg);
            break;
        case 'n':
            t.steps = (uint32_t)atoi(optarg);
            break;
        case 's':
            t.seed = strtoull(optarg, NULL, 10);
            break;
        default:
            return 1;
        }
    }
    const char *mode = optind + 2 == argc ? argv[optind] : "";
    void (*run)(struct tickets *) = strcmp(mode, "order") == 0       ? tickets_order
                                    : strcmp(mode, "semaphore") == 0 ? tickets_semaphore
                                    : strcmp(mode, "depth") == 0     ? tickets_depth
                                                                     : NULL;
    if (!run || t.count < 10 || t.count > 1 << 16) {
        stress_die("usage: tickets order|semaphore|depth DIRECTORY [--processes N] [--width N] [--steps N] [--seed N]");
    }
    snprintf(t.directory, sizeof t.directory, "%s/queue", argv[optind + 1]);
    snprintf(t.prefix, sizeof t.prefix, "%s/job-", t.directory);
    if (mkdir(t.directory, 0777) != 0) {
        stress_die("%s: %s", t.directory, strerror(errno));
    }
    t.random = stress_seed(t.seed, 99);
    t.notes = stress_share(sizeof *t.notes);
    t.children = calloc(t.count, sizeof *t.children);
    printf("seed %llu\n", (unsigned long long)t.seed);
    run(&t);
    free(t.children);
    tickets_expect_empty(&t);
    return t.wrong ? 3 : 0;
}
