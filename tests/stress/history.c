/* history: many processes take and release locks at random while they are stopped, continued and killed; then their
 * records are judged.  See history.h.
 *
 *     history [OPTIONS] DIRECTORY     on an empty leasefs (or any filesystem: each kind
 *                                     of lock has names of its own then)
 *     history --self-test             judges histories with known faults
 *
 * Exit status: 0 if all is well; 3 if the history is impossible or a call had a forbidden result; 1 if it could not be
 * run.
 *
 * Each client has a keeper of its own, which starts, stops and kills it and ends with it.  So the lease of a client
 * that dies in its first second passes to a parent that is gone too, and runs out.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stress/history.h"

/* A call that takes longer than this is taken not to be answered at all. */
#define ANSWER_LIMIT (20 * STRESS_SECOND)

/* --- outcomes -------------------------------------------------------------------- */

/* What a call may fail with; anything else is a fault.  An open fails with ESTALE,
 * as do times, if renames have taken the file away twice in a row; a link with
 * ENOENT, if the kernel tells of the end of an earlier lock of that name at this
 * very moment; an open with ELOOP, if a symbolic link holds the name; a flock with
 * EDEADLK, if it and another are to become exclusive at once. */
static const int history_allowed[OPERATIONS][6] = {
    [OPERATION_EXCL] = {EEXIST, EINTR},
    [OPERATION_SYMLINK] = {EEXIST, EINTR},
    [OPERATION_OPEN] = {EBUSY, ELOOP, EINTR, ESTALE},
    [OPERATION_TIMES] = {EBUSY, EINTR, ESTALE},
    [OPERATION_CLOSE] = {EBUSY, EINTR},
    [OPERATION_WRITE] = {EBUSY, EINTR},
    [OPERATION_LINK] = {EEXIST, EINTR, ENOENT},
    [OPERATION_RENAME] = {EBUSY, EINTR},
    [OPERATION_UNLINK_OWN] = {0},
    [OPERATION_UNLINK_OTHER] = {EPERM, ENOENT},
    [OPERATION_TTL] = {EINTR},
    [OPERATION_FLOCK] = {EINTR, EDEADLK},
    [OPERATION_FLOCK_TRY] = {EAGAIN, EINTR},
    [OPERATION_FLOCK_UNLOCK] = {0},
    [OPERATION_FCNTL] = {EINTR, EDEADLK},
    [OPERATION_FCNTL_TRY] = {EAGAIN, EINTR},
    [OPERATION_FCNTL_UNLOCK] = {0},
    [OPERATION_CHECK] = {0},
    [OPERATION_LOOK] = {0},
    [OPERATION_RELEASE] = {0},
    [OPERATION_BREAK] = {0},
    [OPERATION_TICKET] = {EINTR},
};

bool history_allows(unsigned operation, int error)
{
    for (int i = 0; i < 6; i++) {
        if (history_allowed[operation][i] == error) {
            return true;
        }
    }
    return error == 0;
}

static uint64_t history_outcomes(const struct history *h, int operation, int error)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < h->options.clients; i++) {
        count += h->logs[i].outcome[operation][error];
    }
    return count;
}

/* Prints how often each call came out how; the number that must not be. */
static uint64_t history_print_outcomes(const struct history *h)
{
    uint64_t faults = 0;
    for (int operation = 0; operation < OPERATIONS; operation++) {
        printf("%-13s", history_operation_name((unsigned)operation));
        for (int error = 0; error < HISTORY_ERRNO_MAX; error++) {
            uint64_t count = history_outcomes(h, operation, error);
            bool fault = count && h->options.fuse && !history_allows((unsigned)operation, error);
            if (count) {
                const char *name = error ? strerrorname_np(error) : "ok";
                printf(" %s%s %" PRIu64, fault ? "FAULT: " : "", name ? name : "errno beyond all", count);
                faults += fault ? count : 0;
            }
        }
        putchar('\n');
    }
    return faults;
}

static void history_print_faults(const struct history *h)
{
    for (uint32_t i = 0; i < h->options.clients; i++) {
        const struct history_log *log = &h->logs[i];
        for (uint32_t k = 0; k < log->faults && k < HISTORY_FAULTS_MAX; k++) {
            const struct history_fault *fault = &log->fault[k];
            printf("FAULT: client %u, %.6f s: %s of n%u: %s; it held %s\n", i, (double)fault->when / STRESS_SECOND,
                   history_operation_name(fault->operation), fault->name, strerror(fault->error),
                   history_kind_name(fault->kind));
        }
    }
}

/* --- keepers ----------------------------------------------------------------------- */

static int64_t history_next_time(struct stress_random *random, int64_t average)
{
    return average / 4 + (int64_t)stress_below(random, 1000) * average * 3 / 2000;
}

/* Mostly for a moment, sometimes for longer than a lease lasts without renewal. */
static void history_stop(const struct history *h, struct history_log *log, pid_t client, struct stress_random *random)
{
    int64_t pause = (1 + stress_below(random, 30)) * STRESS_MS;
    log->stops++;
    kill(client, SIGSTOP);
    stress_sleep(stress_chance(random, 5) ? h->options.ttl * 3 / 2 : pause);
    kill(client, SIGCONT);
}

static void history_keep(struct history *h, uint32_t index, uint32_t until)
{
    const struct history_options *o = &h->options;
    struct history_log *log = &h->logs[index];
    struct stress_random random = stress_seed(o->seed + 1, (uint64_t)atomic_load(&log->incarnations) << 16 | index);
    uint32_t first = atomic_load(&log->holds);
    int64_t stop_at = stress_now() + history_next_time(&random, o->stop_every);
    int64_t kill_at = stress_now() + history_next_time(&random, o->kill_every);
    int status;
    setpgid(0, 0); /* a client's lease passes on within its process group only: not to who started us */
    pid_t client = stress_fork();
    if (client == 0) {
        history_client_run(h, index, until);
        exit(0);
    }
    for (;;) {
        int64_t next = stop_at < kill_at ? stop_at : kill_at, now = stress_now();
        if (stress_wait(client, next > now ? next - now : 0, &status)) {
            exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
        }
        now = stress_now();
        if (now >= kill_at) {
            kill(client, SIGKILL);
            log->kills++;
            waitpid(client, &status, 0);
            history_end_holds(log, first, now);
            exit(0);
        }
        if (now >= stop_at) {
            history_stop(h, log, client, &random);
            stop_at = stress_now() + history_next_time(&random, o->stop_every);
        }
    }
}

static pid_t history_start_keeper(struct history *h, uint32_t index, uint32_t until)
{
    pid_t keeper = stress_fork();
    if (keeper == 0) {
        history_keep(h, index, until);
    }
    return keeper;
}

/* --- all of them --------------------------------------------------------------------- */

static void history_watch(const struct history *h)
{
    for (uint32_t i = 0; i < h->options.clients; i++) {
        struct history_log *log = &h->logs[i];
        int64_t since = atomic_load(&log->since);
        if (since && stress_now() - since > ANSWER_LIMIT) {
            printf("FAULT: client %u waits for the answer to %s of n%u for %.1f s\n", i,
                   history_operation_name(atomic_load(&log->doing)), atomic_load(&log->doing_name),
                   (double)(stress_now() - since) / STRESS_SECOND);
            exit(3);
        }
    }
}

/* Until every client has done that many operations. */
static void history_run(struct history *h, uint32_t until)
{
    uint32_t clients = h->options.clients, running = clients;
    pid_t *keepers = calloc(clients, sizeof *keepers);
    for (uint32_t i = 0; i < clients; i++) {
        keepers[i] = history_start_keeper(h, i, until);
    }
    while (running) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended == 0) {
            history_watch(h);
            stress_sleep(5 * STRESS_MS);
        }
        for (uint32_t i = 0; ended > 0 && i < clients; i++) {
            if (keepers[i] != ended) {
                continue;
            }
            if (!WIFEXITED(status) || WEXITSTATUS(status)) {
                stress_die("client %u ended with status %#x", i, status);
            }
            atomic_store(&h->logs[i].since, 0);
            bool done = atomic_load(&h->logs[i].operations) >= until;
            keepers[i] = done ? 0 : history_start_keeper(h, i, until);
            running -= done;
        }
    }
    free(keepers);
}

/* --- what is left ---------------------------------------------------------------------- */

static size_t history_list(const struct history *h, bool print)
{
    size_t count = 0;
    DIR *directory = opendir(h->options.directory);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        if (entry->d_name[0] == 'n' && !stress_give_back(h->options.directory, entry->d_name)) {
            count++;
            if (print) {
                stress_print_left(h->options.directory, entry->d_name);
            }
        }
    }
    if (directory) {
        closedir(directory);
    }
    return count;
}

/* Names held, as the store counts them. */
static uint64_t history_counted(const struct history *h)
{
    struct statvfs st;
    return statvfs(h->options.directory, &st) == 0 ? st.f_files - st.f_ffree : 0;
}

/* All clients are gone: within one TTL all that they held is free. */
static uint64_t history_settle(const struct history *h)
{
    int64_t begin = stress_now(), limit = begin + h->options.ttl + 2 * STRESS_SECOND;
    if (!h->options.fuse) {
        return 0;
    }
    while ((history_list(h, false) || history_counted(h)) && stress_now() < limit) {
        stress_sleep(5 * STRESS_MS);
    }
    uint64_t left = history_list(h, true), counted = history_counted(h);
    printf("%" PRIu64 " names held %.3f s after the last client, the store counts %" PRIu64 "\n", left,
           (double)(stress_now() - begin) / STRESS_SECOND, counted);
    return left + counted;
}

/* Descriptors of processes that the daemon may keep beyond those it must: of 256 that
 * were here lately and their parents, and 64 more. */
#define RECENT_MAX 576

/* Level: but for what it may keep of names and processes. */
static uint64_t history_compare(struct stress_usage before, struct stress_usage after, int64_t slack_kb)
{
    int64_t grown = after.resident_kb - before.resident_kb;
    if (after.descriptors == 0) {
        return 0; /* there is no daemon to look at */
    }
    printf("the daemon's memory %" PRId64 " -> %" PRId64 " kB, descriptors %" PRId64 " -> %" PRId64 "\n",
           before.resident_kb, after.resident_kb, before.descriptors, after.descriptors);
    uint64_t faults = 0;
    if (grown > before.resident_kb / 4 + slack_kb) {
        printf("FAULT: its memory has grown by %" PRId64 " kB\n", grown);
        faults++;
    }
    if (after.descriptors > before.descriptors + RECENT_MAX) {
        printf("FAULT: it has more descriptors open\n");
        faults++;
    }
    return faults;
}

/* --- judgement -------------------------------------------------------------------------- */

static struct history_hold *history_gather(const struct history *h, size_t *ret_count)
{
    size_t count = 0;
    for (uint32_t i = 0; i < h->options.clients; i++) {
        count += atomic_load(&h->logs[i].holds);
    }
    struct history_hold *all = calloc(count + 1, sizeof *all), *next = all;
    for (uint32_t i = 0; i < h->options.clients; i++) {
        uint32_t holds = atomic_load(&h->logs[i].holds);
        memcpy(next, h->logs[i].hold, holds * sizeof *next);
        next += holds;
    }
    *ret_count = count;
    return all;
}

static uint64_t history_judge(const struct history *h)
{
    size_t count;
    struct history_hold *holds = history_gather(h, &count);
    struct history_verdict verdict = history_check(holds, count, stdout);
    printf("%zu holds, %zu of them certain, %zu passed on exclusively, %zu at the full width of a queue\n", count,
           verdict.certain, verdict.handovers, verdict.full);
    printf("%zu overlaps, %zu fencing tokens that went back\n", verdict.overlaps, verdict.tokens);
    free(holds);
    return verdict.overlaps + verdict.tokens + (verdict.handovers == 0);
}

static struct history history_new(const struct history_options *options)
{
    struct history h = {.options = *options, .capacity = options->operations * 3 + 64};
    h.logs = stress_share(options->clients * sizeof *h.logs);
    for (uint32_t i = 0; i < options->clients; i++) {
        h.logs[i].hold = stress_share(h.capacity * sizeof *h.logs[i].hold);
    }
    return h;
}

static void history_print_events(const struct history *h, int64_t began)
{
    uint64_t kills = 0, stops = 0, operations = 0;
    for (uint32_t i = 0; i < h->options.clients; i++) {
        kills += h->logs[i].kills;
        stops += h->logs[i].stops;
        operations += atomic_load(&h->logs[i].operations);
    }
    printf("%" PRIu64 " operations by %u processes in %.1f s, %" PRIu64 " kills, %" PRIu64 " stops\n", operations,
           h->options.clients, (double)(stress_now() - began) / STRESS_SECOND, kills, stops);
}

/* A tenth of it first, so that memory and descriptors are compared in the swing. */
static int history_main(const struct history_options *options, pid_t daemon, int64_t slack_kb)
{
    struct history h = history_new(options);
    int64_t began = stress_now();
    printf("seed %" PRIu64 "\n", options->seed);
    for (int width = 1; options->fuse && width <= HISTORY_QUEUES; width++) {
        stress_make_queue(options->directory, width);
    }
    history_run(&h, options->operations / 10);
    uint64_t faults = history_settle(&h);
    struct stress_usage before = stress_usage(daemon);
    history_run(&h, options->operations);
    faults += history_settle(&h);
    faults += history_compare(before, stress_usage(daemon), slack_kb);
    history_print_events(&h, began);
    faults += history_print_outcomes(&h);
    history_print_faults(&h);
    faults += history_judge(&h);
    return faults ? 3 : 0;
}

static long long history_number(const char *text)
{
    char *end;
    long long number = strtoll(text, &end, 10);
    if (*end || end == text || number < 0) {
        stress_die("not a number: %s", text);
    }
    return number;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"clients", required_argument, NULL, 'c'},    {"operations", required_argument, NULL, 'o'},
        {"names", required_argument, NULL, 'n'},      {"seed", required_argument, NULL, 's'},
        {"ttl", required_argument, NULL, 't'},        {"kill-every", required_argument, NULL, 'k'},
        {"stop-every", required_argument, NULL, 'p'}, {"daemon", required_argument, NULL, 'd'},
        {"slack", required_argument, NULL, 'm'},      {"unfenced", no_argument, NULL, 'u'},
        {"self-test", no_argument, NULL, 'S'},        {NULL, 0, NULL, 0}};
    struct history_options o = {.clients = 64,
                                .operations = 10000,
                                .names = 100,
                                .kill_every = 5 * STRESS_SECOND,
                                .stop_every = 200 * STRESS_MS,
                                .ttl = STRESS_SECOND,
                                .seed = (uint64_t)stress_now()};
    pid_t daemon = 0;
    int64_t slack_kb = 4096;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        long long number = optarg ? history_number(optarg) : 0;
        switch (option) {
        case 'c':
            o.clients = (uint32_t)number;
            break;
        case 'o':
            o.operations = (uint32_t)number;
            break;
        case 'n':
            o.names = (uint32_t)number;
            break;
        case 's':
            o.seed = (uint64_t)number;
            break;
        case 't':
            o.ttl = number * STRESS_MS;
            break;
        case 'k':
            o.kill_every = number * STRESS_MS;
            break;
        case 'p':
            o.stop_every = number * STRESS_MS;
            break;
        case 'd':
            daemon = (pid_t)number;
            break;
        case 'm':
            slack_kb = number;
            break;
        case 'u':
            o.unfenced = true;
            break;
        case 'S':
            return history_self_test();
        default:
            return 1;
        }
    }
    if (optind + 1 != argc || !o.clients || !o.names) {
        stress_die("usage: history [--clients N] [--operations N] [--names N] [--seed N] [--ttl MS] [--kill-every MS]\n"
                   "               [--stop-every MS] [--daemon PID] [--slack KB] [--unfenced] DIRECTORY\n"
                   "       history --self-test");
    }
    o.directory = argv[optind];
    o.fuse = stress_is_fuse(o.directory);
    setvbuf(stdout, NULL, _IOLBF, 0);
    return history_main(&o, daemon, slack_kb);
}
