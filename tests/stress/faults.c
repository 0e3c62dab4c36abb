/* faults: processes on several mounts of one store lock, work, and are stopped and killed; after SIGTERM all of it is
 * judged.  See faults.h.
 *
 *     faults [OPTIONS] SCRATCH MOUNT…     SCRATCH: an empty ordinary directory; the store has the
 *                                         queues q1 and q2 of these widths, unless it
 *                                         loses data, or has none
 *
 * Its caller meanwhile breaks daemons, connections and servers, and repairs them before SIGTERM.  Exit status: 0 if all
 * is well; 3 if the history is impossible; 4 if only no update of an unguarded file was lost, so that the faults had no
 * effect; 1 if it could not be run.
 *
 * Each client has a keeper of its own, which ends with it: see history.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stress/faults.h"

/* A call that takes longer than this is taken not to be answered at all. */
#define ANSWER_LIMIT (30 * STRESS_SECOND)

static volatile sig_atomic_t end_reported;

/* --- keepers -------------------------------------------------------------------- */

static int64_t next_time(struct stress_random *random, int64_t average)
{
    return stress_now() + average / 4 + (int64_t)stress_below(random, 1000) * average * 3 / 2000;
}

/* Mostly for a moment, every fourth time for longer than the TTL. */
static void stop(const struct faults *f, struct faults_log *log, pid_t client, struct stress_random *random)
{
    bool lasting = stress_chance(random, 25);
    kill(client, SIGSTOP);
    stress_sleep(lasting ? f->options.ttl * 3 / 2 : (1 + stress_below(random, 50)) * STRESS_MS);
    kill(client, SIGCONT);
    log->stops++;
    log->long_stops += lasting;
}

/* A promise to a process ends with it. */
static void cut_holds(struct faults_log *log, uint32_t first, int64_t now)
{
    for (uint32_t i = first; i < atomic_load(&log->holds); i++) {
        if (log->hold[i].released > now) {
            log->hold[i].released = now;
        }
    }
}

static void keep(struct faults *f, uint32_t index)
{
    struct faults_log *log = &f->logs[index];
    struct stress_random random = stress_seed(f->options.seed + 1, (uint64_t)log->incarnations << 16 | index);
    uint32_t first = atomic_load(&log->holds);
    int64_t stop_at = next_time(&random, f->options.stop_every), kill_at = next_time(&random, f->options.kill_every);
    int status;
    setpgid(0, 0);
    pid_t client = stress_fork();
    if (client == 0) {
        faults_client_run(f, index);
        exit(0);
    }
    for (;;) {
        int64_t next = stop_at < kill_at ? stop_at : kill_at, now = stress_now();
        if (stress_wait(client, next > now ? next - now : 0, &status)) {
            cut_holds(log, first, stress_now());
            exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
        }
        now = stress_now();
        if (now >= kill_at) {
            kill(client, SIGKILL);
            log->kills++;
            waitpid(client, &status, 0);
            cut_holds(log, first, now);
            exit(0);
        }
        if (now >= stop_at) {
            stop(f, log, client, &random);
            stop_at = next_time(&random, f->options.stop_every);
        }
    }
}

static pid_t start_keeper(struct faults *f, uint32_t index)
{
    pid_t keeper = stress_fork();
    if (keeper == 0) {
        signal(SIGTERM, SIG_DFL);
        keep(f, index);
    }
    return keeper;
}

/* --- all of them ------------------------------------------------------------------ */

static void watch(const struct faults *f)
{
    for (uint32_t i = 0; i < f->options.clients; i++) {
        int64_t since = atomic_load(&f->logs[i].since), now = stress_now();
        if (since && now - since > ANSWER_LIMIT) {
            printf("FAULT: client %u waits for the answer to %s of n%u for %.1f s\n", i,
                   faults_operation_name(f->logs[i].doing), f->logs[i].doing_name,
                   (double)(now - since) / STRESS_SECOND);
            exit(3);
        }
    }
}

static void run(struct faults *f)
{
    uint32_t clients = f->options.clients, running = clients;
    pid_t *keepers = calloc(clients, sizeof *keepers);
    for (uint32_t i = 0; i < clients; i++) {
        keepers[i] = start_keeper(f, i);
    }
    while (running) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (end_reported) {
            atomic_store(f->ending, 1);
        }
        if (ended == 0) {
            watch(f);
            stress_sleep(5 * STRESS_MS);
        }
        for (uint32_t i = 0; ended > 0 && i < clients; i++) {
            if (keepers[i] != ended) {
                continue;
            }
            if (!WIFEXITED(status) || WEXITSTATUS(status)) {
                stress_die("client %u ended with status %#x", i, (unsigned)status);
            }
            atomic_store(&f->logs[i].since, 0);
            keepers[i] = end_reported ? 0 : start_keeper(f, i);
            running -= keepers[i] == 0;
        }
    }
    free(keepers);
}

/* --- what is left ------------------------------------------------------------------- */

/* Locks (n0, n1, …) or, in a queue, tickets (job-0000000000, …). */
static int count_held_in(const char *mount, const char *below, bool print)
{
    int count = 0;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", mount, below);
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory && (errno = 0, entry = readdir(directory))) {
        bool is_held = entry->d_name[0] == 'n' || entry->d_name[0] == 'j';
        char name[512];
        snprintf(name, sizeof name, "%s%s", below, entry->d_name);
        is_held = is_held && !stress_give_back(mount, name);
        count += is_held;
        if (print && is_held) {
            stress_print_left(mount, name);
        }
    }
    if (!directory || errno) {
        count++;
    }
    if (directory) {
        closedir(directory);
    }
    return count;
}

static int count_held(const struct faults_options *o, const char *mount, bool print)
{
    int count = count_held_in(mount, "", print);
    for (int width = 1; width <= FAULTS_QUEUES && faults_queues(o); width++) {
        char queue[32];
        snprintf(queue, sizeof queue, "q%d/", width);
        count += count_held_in(mount, queue, print);
    }
    return count;
}

static int count_held_at_all(const struct faults_options *o, bool print)
{
    int count = 0;
    for (uint32_t i = 0; i < o->mount_count; i++) {
        count += count_held(o, o->mounts[i], print);
    }
    return count;
}

static bool can_lock(const char *mount, uint32_t name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/n%u", mount, name);
    int fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (!locked) {
        printf("FAULT: %s cannot be locked: %m\n", path);
    }
    if (fd >= 0) {
        close(fd);
    }
    return locked;
}

/* All clients are gone: all becomes free, at every mount, and can be had there. */
static uint64_t settle(const struct faults *f)
{
    const struct faults_options *o = &f->options;
    int64_t began = stress_now(), limit = began + o->ttl + 8 * STRESS_SECOND;
    while (count_held_at_all(o, false) && stress_now() < limit) {
        stress_sleep(10 * STRESS_MS);
    }
    uint64_t left = (uint64_t)count_held_at_all(o, true);
    printf("%" PRIu64 " names held %.3f s after the last client\n", left,
           (double)(stress_now() - began) / STRESS_SECOND);
    for (uint32_t i = 0; left == 0 && i < o->mount_count; i++) {
        for (uint32_t name = 0; name < o->names; name++) {
            /* the mount before may still be giving it up */
            while (count_held(o, o->mounts[i], false) && stress_now() < limit) {
                stress_sleep(STRESS_MS);
            }
            left += !can_lock(o->mounts[i], name);
        }
    }
    return left;
}

/* --- judgement ------------------------------------------------------------------------ */

static void print_outcomes(const struct faults *f)
{
    for (unsigned operation = 0; operation < FAULTS_OPERATIONS; operation++) {
        printf("%-17s", faults_operation_name(operation));
        for (int error = 0; error < HISTORY_ERRNO_MAX; error++) {
            uint64_t count = 0;
            for (uint32_t i = 0; i < f->options.clients; i++) {
                count += f->logs[i].outcome[operation][error];
            }
            const char *name = error ? strerrorname_np(error) : "ok";
            if (count) {
                printf(" %s %" PRIu64, name ? name : "errno beyond all", count);
            }
        }
        putchar('\n');
    }
}

/* Errors that no fault explains: a call must not return them. */
static uint64_t strange_outcomes(const struct faults *f)
{
    static const int known[] = {0,      EEXIST, EBUSY,   EAGAIN, EINTR,    ENOLCK,       EIO,
                                ESTALE, ENOENT, ENODATA, EPERM,  ENOTCONN, ECONNABORTED, ENODEV};
    uint64_t strange = 0;
    for (uint32_t i = 0; i < f->options.clients; i++) {
        for (unsigned operation = 0; operation < FAULTS_OPERATIONS; operation++) {
            for (int error = 0; error < HISTORY_ERRNO_MAX; error++) {
                bool is_known = error == ENOSPC && f->options.full;
                for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
                    is_known = is_known || error == known[k];
                }
                strange += is_known ? 0 : f->logs[i].outcome[operation][error];
            }
        }
    }
    printf("%" PRIu64 " calls with an error that no fault explains\n", strange);
    return strange;
}

static uint64_t judge_holds(const struct faults *f)
{
    size_t count = 0;
    for (uint32_t i = 0; i < f->options.clients; i++) {
        count += f->logs[i].holds;
    }
    struct history_hold *holds = calloc(count + 1, sizeof *holds), *next = holds;
    for (uint32_t i = 0; i < f->options.clients; i++) {
        memcpy(next, f->logs[i].hold, f->logs[i].holds * sizeof *next);
        next += f->logs[i].holds;
    }
    struct history_verdict verdict = history_check(holds, count, stdout);
    printf("%zu holds, %zu of them certain, %zu passed on exclusively, %zu at the full width of a queue\n", count,
           verdict.certain, verdict.handovers, verdict.full);
    printf("%zu overlaps, %zu fencing tokens that went back\n", verdict.overlaps, verdict.tokens);
    free(holds);
    return verdict.tokens + (f->options.forgetful ? 0 : verdict.overlaps) + (verdict.handovers == 0);
}

/* Of the guarded files; *ret_bites: how many updates the unguarded ones have lost. */
static uint64_t judge_files(const struct faults *f, int64_t *ret_bites)
{
    uint64_t accepted = 0, stale = 0, refused = 0, reused = 0;
    int64_t guarded = 0, plain = 0, total = 0;
    for (uint32_t i = 0; i < f->options.clients; i++) {
        accepted += f->logs[i].accepted;
        stale += f->logs[i].stale;
        refused += f->logs[i].refused;
        reused += f->logs[i].reused;
    }
    for (uint32_t name = 0; name < faults_names(&f->options); name++) {
        int64_t lost = guard_plain_lost(f, name);
        guarded += guard_lost(f, name);
        plain += lost > 0 ? lost : 0;
        total += (int64_t)atomic_load(&f->unguarded[name]);
    }
    printf("guarded files: %" PRIu64 " writes accepted, %" PRIu64 " with stale tokens refused, %" PRId64
           " updates lost, %" PRIu64 " refused to holders, %" PRIu64 " tokens used twice\n",
           accepted, stale, guarded, refused, reused);
    printf("unguarded files: %" PRId64 " of %" PRId64 " updates lost\n", plain, total);
    *ret_bites = plain;
    return (f->options.forgetful ? 0 : refused) + reused + (guarded != 0) + (accepted == 0);
}

static void print_events(const struct faults *f, int64_t began)
{
    struct faults_log sum = {0};
    for (uint32_t i = 0; i < f->options.clients; i++) {
        sum.kills += f->logs[i].kills;
        sum.stops += f->logs[i].stops;
        sum.long_stops += f->logs[i].long_stops;
        sum.acquired += f->logs[i].acquired;
        sum.open += f->logs[i].open;
        sum.lost += f->logs[i].lost;
    }
    printf("%u processes on %u mounts for %.1f s: %u kills, %u stops, %u of them longer than the TTL\n",
           f->options.clients, f->options.mount_count, (double)(stress_now() - began) / STRESS_SECOND, sum.kills,
           sum.stops, sum.long_stops);
    printf("%u locks acquired, %u found lost, %u acquires with an outcome that is not known\n", sum.acquired, sum.lost,
           sum.open);
}

static int judge(struct faults *f, int64_t began)
{
    int64_t bites;
    uint64_t faults = settle(f);
    print_events(f, began);
    print_outcomes(f);
    faults += strange_outcomes(f);
    faults += judge_holds(f);
    faults += judge_files(f, &bites);
    return faults ? 3 : bites ? 0 : 4;
}

/* --- options ---------------------------------------------------------------------------- */

static void on_signal(int signal)
{
    (void)signal;
    end_reported = 1;
}

static uint64_t number_of(const char *text)
{
    char *rest;
    unsigned long long number = strtoull(text, &rest, 10);
    if (rest == text || *rest) {
        stress_die("not a number: %s", text);
    }
    return number;
}

static struct faults_options read_options(int argc, char **argv)
{
    static const struct option known[] = {{"clients", required_argument, NULL, 'c'},
                                          {"names", required_argument, NULL, 'n'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"ttl", required_argument, NULL, 't'},
                                          {"kill-every", required_argument, NULL, 'k'},
                                          {"stop-every", required_argument, NULL, 'p'},
                                          {"forgetful", no_argument, NULL, 'f'},
                                          {"exclusive", no_argument, NULL, 'x'},
                                          {"full", no_argument, NULL, 'd'},
                                          {NULL, 0, NULL, 0}};
    struct faults_options o = {.clients = 16,
                               .names = 6,
                               .ttl = STRESS_SECOND,
                               .kill_every = 10 * STRESS_SECOND,
                               .stop_every = 5 * STRESS_SECOND,
                               .seed = (uint64_t)stress_now()};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        uint64_t number = optarg ? number_of(optarg) : 0;
        o.clients = option == 'c' ? (uint32_t)number : o.clients;
        o.names = option == 'n' ? (uint32_t)number : o.names;
        o.seed = option == 's' ? number : o.seed;
        o.ttl = option == 't' ? (int64_t)number * STRESS_MS : o.ttl;
        o.kill_every = option == 'k' ? (int64_t)number * STRESS_MS : o.kill_every;
        o.stop_every = option == 'p' ? (int64_t)number * STRESS_MS : o.stop_every;
        o.forgetful = o.forgetful || option == 'f';
        o.exclusive = o.exclusive || option == 'x';
        o.full = o.full || option == 'd';
        if (option == '?') {
            optind = argc;
            break;
        }
    }
    int left = argc - optind;
    if (left < 2 || left > FAULTS_MOUNTS_MAX + 1 || !o.clients || !o.names) {
        stress_die("usage: faults [--clients N] [--names N] [--seed N] [--ttl MS] [--kill-every MS] [--stop-every MS]\n"
                   "              [--forgetful] [--exclusive] [--full] SCRATCH MOUNT…");
    }
    o.scratch = argv[optind];
    for (int i = optind + 1; i < argc; i++) {
        o.mounts[o.mount_count++] = argv[i];
    }
    return o;
}

int main(int argc, char **argv)
{
    struct faults f = {.options = read_options(argc, argv)};
    struct sigaction action = {.sa_handler = on_signal};
    int64_t began = stress_now();
    sigaction(SIGTERM, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    umask(0);
    f.logs = stress_share(f.options.clients * sizeof *f.logs);
    f.ending = stress_share(sizeof *f.ending);
    f.unguarded = stress_share(faults_names(&f.options) * sizeof *f.unguarded);
    for (uint32_t i = 0; i < f.options.clients; i++) {
        f.logs[i].hold = stress_share(FAULTS_HOLDS_MAX * sizeof *f.logs[i].hold);
    }
    printf("seed %" PRIu64 "\n", f.options.seed);
    run(&f);
    return judge(&f, began);
}
