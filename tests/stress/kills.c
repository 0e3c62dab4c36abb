/* kills: the daemon is killed (-9) at random moments and started again after 100 ms, as the shipped unit does it, while
 * processes of two users and of two mount namespaces lock.  See kills.h.
 *
 *     kills [OPTIONS] MOUNTPOINT PROGRAM ARGUMENT…     which starts the daemon in the foreground
 *         --kills N (20)   --workers N (12)   --kinds A,B (all)   --ttl MS (1000)   --seed N
 *
 * Every fiftieth time, and at the end, the processes rest, and then no lock may be left a moment later.
 *
 * Exit status: 0 if all is well; 3 if two holds excluded each other, a lock was lost or left, or a call had a forbidden
 * error; 1 if it could not be run.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stress/kills.h"

#define RESTART (100 * STRESS_MS) /* RestartSec= of the unit */
#define START_LIMIT (20 * STRESS_SECOND)
#define ANSWER_LIMIT (30 * STRESS_SECOND)
#define GIVE_BACK_EVERY (200 * STRESS_MS)
#define REST_EVERY 50
#define CAPACITY 1000000

static struct kills k = {.workers = 12, .kills = 20, .kinds = (1U << KILLS_KINDS) - 1, .capacity = CAPACITY};
static int64_t ttl = STRESS_SECOND;
static char **daemon_command;
static pid_t daemon_pid, *workers;
static unsigned *incarnations, left;

/* --- the daemon ---------------------------------------------------------------------- */

static bool daemon_answers(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/.leasefs/status", k.mount);
    int fd = open(path, O_RDONLY);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static void daemon_fork(void)
{
    daemon_pid = stress_fork();
    if (daemon_pid == 0) {
        execv(daemon_command[0], daemon_command);
        stress_die("%s: %s", daemon_command[0], strerror(errno));
    }
}

/* As with Restart=on-failure, a start that fails, because the store does not answer in time, is repeated. */
static void daemon_start(void)
{
    int64_t limit = stress_now() + START_LIMIT;
    daemon_fork();
    while (!daemon_answers()) {
        if (stress_now() > limit) {
            stress_die("the daemon does not serve after %u kills", atomic_load(&k.shared->deaths));
        }
        if (waitpid(daemon_pid, NULL, WNOHANG) == daemon_pid) {
            stress_sleep(RESTART);
            daemon_fork();
        }
        stress_sleep(STRESS_MS);
    }
}

static void daemon_kill(void)
{
    kill(daemon_pid, SIGKILL);
    atomic_fetch_add(&k.shared->deaths, 1);
    waitpid(daemon_pid, NULL, 0);
}

/* --- the workers --------------------------------------------------------------------- */

static void worker_start(unsigned index)
{
    workers[index] = stress_fork();
    if (workers[index] == 0) {
        kills_work(&k, index, incarnations[index]);
    }
    incarnations[index]++;
}

/* Starts those again that have killed themselves, and looks whether any hangs. */
static void workers_look_after(void)
{
    for (unsigned i = 0; i < k.workers; i++) {
        int64_t since = atomic_load(&k.logs[i].since);
        int status;
        if (waitpid(workers[i], &status, WNOHANG) == workers[i]) {
            if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
                stress_die("worker %u ended with status %#x", i, (unsigned)status);
            }
            atomic_store(&k.logs[i].since, 0);
            worker_start(i);
        } else if (since && stress_now() - since > ANSWER_LIMIT) {
            stress_die("worker %u waits for an answer since %d s", i, (int)(ANSWER_LIMIT / STRESS_SECOND));
        }
    }
}

/* Leases of workers that died in the first second, which are then ours. */
static void give_leases_back(void)
{
    static int64_t next;
    if (stress_now() < next) {
        return;
    }
    next = stress_now() + GIVE_BACK_EVERY;
    for (unsigned i = 0; i < KILLS_NAMES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%u", i);
        stress_give_back(k.mount, name);
    }
}

static void pass_time(int64_t ns)
{
    int64_t end = stress_now() + ns;
    do {
        workers_look_after();
        give_leases_back();
        stress_sleep(STRESS_MS);
    } while (stress_now() < end);
}

static bool workers_are_idle(void)
{
    for (unsigned i = 0; i < k.workers; i++) {
        if (!atomic_load(&k.logs[i].idle)) {
            return false;
        }
    }
    return true;
}

/* Locks that are left in a directory; prints them if asked to. */
static unsigned locks_in(const char *directory, bool print)
{
    char path[4096];
    unsigned count = 0;
    snprintf(path, sizeof path, "%s/%s", k.mount, directory);
    DIR *entries = opendir(path);
    if (!entries && errno == ENOENT) { /* a store in memory has lost the queue */
        return 0;
    }
    if (!entries) {
        stress_die("%s: %s", path, strerror(errno));
    }
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "q1") == 0) {
            continue;
        }
        count++;
        if (print) {
            snprintf(path, sizeof path, "%s%s%s", directory, *directory ? "/" : "", entry->d_name);
            stress_print_left(k.mount, path);
        }
    }
    closedir(entries);
    return count;
}

/* Nobody has a file open now: no lock may be left, but for a lease of a dead process in its last term. */
static void rest(void)
{
    int64_t limit = stress_now() + ANSWER_LIMIT;
    atomic_store(&k.shared->rest, true);
    while (!workers_are_idle()) {
        if (stress_now() > limit) {
            stress_die("the workers do not come to rest");
        }
        pass_time(STRESS_MS);
    }
    limit = stress_now() + 2 * ttl + 3 * STRESS_SECOND;
    while (locks_in("", false) + locks_in("q1", false) && stress_now() < limit) {
        pass_time(10 * STRESS_MS);
    }
    left += locks_in("", true) + locks_in("q1", true);
    atomic_store(&k.shared->rest, false);
}

/* --- judgement ----------------------------------------------------------------------- */

static bool judge_counters(void)
{
    bool well = true;
    for (unsigned c = 0; c < KILLS_COUNTERS; c++) {
        uint64_t added = 0;
        for (unsigned i = 0; i < k.workers; i++) {
            added += k.logs[i].added[c];
        }
        if (added != k.shared->counter[c]) {
            printf("counter %u: %" PRIu64 " of %" PRIu64 " are lost\n", c, added - k.shared->counter[c], added);
            well = false;
        }
    }
    return well;
}

static bool judge_calls(void)
{
    unsigned lost = 0, faults = 0, unused = 0, outlived = 0;
    for (unsigned i = 0; i < k.workers; i++) {
        lost += k.logs[i].lost;
        faults += k.logs[i].faults;
        if (k.logs[i].faults) {
            printf("worker %u: %u calls failed, the last for a lock of kind %s: %s\n", i, k.logs[i].faults,
                   kills_kind_names[k.logs[i].fault_kind], strerror(k.logs[i].fault_error));
        }
    }
    for (unsigned kind = 0; kind < KILLS_KINDS; kind++) {
        unsigned taken = 0, survived = 0;
        for (unsigned i = 0; i < k.workers; i++) {
            taken += k.logs[i].taken[kind];
            survived += k.logs[i].survived[kind];
        }
        outlived += survived;
        if (k.kinds & 1U << kind) {
            unused += !taken;
            printf("%s: %u were held, %u of them while a daemon died\n", kills_kind_names[kind], taken, survived);
        }
    }
    printf("%u leases were lost, %u locks were left, %u calls failed\n", lost, left, faults);
    if (unused || !outlived) {
        printf("too little was held to judge by\n");
    }
    return !lost && !left && !faults && !unused && outlived;
}

static bool judge_history(void)
{
    size_t count = 0, n = 0;
    for (unsigned i = 0; i < k.workers; i++) {
        count += atomic_load(&k.logs[i].holds);
    }
    struct history_hold *holds = calloc(count + 1, sizeof *holds);
    for (unsigned i = 0; i < k.workers; i++) {
        uint32_t own = atomic_load(&k.logs[i].holds);
        memcpy(holds + n, k.logs[i].hold, own * sizeof *holds);
        n += own;
    }
    struct history_verdict verdict = history_check(holds, count, stdout);
    free(holds);
    printf("%u kills, %zu holds, %zu overlaps, %zu tokens went back\n", atomic_load(&k.shared->deaths), verdict.certain,
           verdict.overlaps, verdict.tokens);
    return verdict.overlaps == 0 && verdict.tokens == 0;
}

static bool judge(void)
{
    bool history = judge_history(), counters = judge_counters(), calls = judge_calls();
    return history && counters && calls;
}

/* --- */

static void parse_kinds(char *text)
{
    k.kinds = 0;
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        unsigned kind = 0;
        while (kind < KILLS_KINDS && strcmp(word, kills_kind_names[kind]) != 0) {
            kind++;
        }
        if (kind == KILLS_KINDS) {
            stress_die("no kind %s", word);
        }
        k.kinds |= 1U << kind;
    }
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"kills", required_argument, NULL, 'k'},
        {"workers", required_argument, NULL, 'w'},
        {"kinds", required_argument, NULL, 'i'},
        {"ttl", required_argument, NULL, 't'},
        {"seed", required_argument, NULL, 's'},
        {"exclusive", no_argument, NULL, 'x'},
        {NULL, 0, NULL, 0},
    };
    k.seed = (uint64_t)stress_now();
    for (int c; (c = getopt_long(argc, argv, "+", options, NULL)) != -1;) {
        switch (c) {
        case 'k':
            k.kills = (unsigned)atoi(optarg);
            break;
        case 'w':
            k.workers = (unsigned)atoi(optarg);
            break;
        case 'i':
            parse_kinds(optarg);
            break;
        case 't':
            ttl = atoi(optarg) * STRESS_MS;
            break;
        case 's':
            k.seed = strtoull(optarg, NULL, 10);
            break;
        case 'x':
            k.exclusive = true;
            break;
        default:
            stress_die("usage: kills [OPTIONS] MOUNTPOINT PROGRAM ARGUMENT…");
        }
    }
    if (argc - optind < 2 || !k.workers || k.workers > UINT16_MAX) {
        stress_die("usage: kills [OPTIONS] MOUNTPOINT PROGRAM ARGUMENT…");
    }
    k.mount = argv[optind];
    daemon_command = argv + optind + 1;
}

static void make_workers(void)
{
    k.shared = stress_share(sizeof *k.shared);
    k.logs = stress_share(k.workers * sizeof *k.logs);
    workers = calloc(k.workers, sizeof *workers);
    incarnations = calloc(k.workers, sizeof *incarnations);
    for (unsigned i = 0; i < k.workers; i++) {
        k.logs[i].hold = stress_share(k.capacity * sizeof *k.logs[i].hold);
    }
    daemon_start();
    stress_make_queue(k.mount, 1);
    char path[4096];
    snprintf(path, sizeof path, "%s/q1", k.mount);
    chmod(path, 0777);
    for (unsigned i = 0; i < k.workers; i++) {
        worker_start(i);
    }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    printf("seed %" PRIu64 "\n", k.seed);
    int64_t began = stress_now();
    make_workers();
    struct stress_random random = stress_seed(k.seed, UINT32_MAX);
    for (unsigned i = 1; i <= k.kills; i++) {
        /* half of them are killed before they can have looked twice who has a file open */
        pass_time((20 + stress_below(&random, stress_chance(&random, 50) ? 300 : 1500)) * STRESS_MS);
        daemon_kill();
        pass_time(RESTART);
        daemon_start();
        if (i % REST_EVERY == 0) {
            printf("%u kills at %.0f s\n", i, (double)(stress_now() - began) / STRESS_SECOND);
            rest();
        }
    }
    rest();
    atomic_store(&k.shared->over, true);
    for (unsigned i = 0; i < k.workers; i++) {
        if (!stress_wait(workers[i], ANSWER_LIMIT, NULL)) {
            stress_die("worker %u does not end", i);
        }
    }
    kill(daemon_pid, SIGTERM);
    stress_wait(daemon_pid, START_LIMIT, NULL);
    return judge() ? 0 : 3;
}
