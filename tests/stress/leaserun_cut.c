/* leaserun_cut: is a command of leaserun dead before another can hold its lock?
 *
 *     leaserun_cut LEASERUN DIRECTORY-A DIRECTORY-B RUNS TTL-MS FILE
 *
 * Starts RUNS commands under leaserun through mount A, each with a lock of its own,
 * and for each lock one that waits for it through mount B of the same store.  Then
 * it prints `ready`: now A is to be cut off from the store.  The command ignores
 * SIGTERM, and has a child in another session that does too; both write the time
 * into FILE each millisecond.  Whoever is granted the lock through B writes the time
 * of that.  No stamp of a command may be later.
 *
 * Exit status: 0; 3 if a command was alive when its lock was another's, or its
 * leaserun did not tell that the lock was lost; 1 if it could not be run.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/stress/stress.h"

#define STATUS_LOST 75
#define LIMIT (60 * STRESS_SECOND)
#define PATIENCE (2 * STRESS_SECOND) /* with a leaserun whose lock is another's */

/* Times are nanoseconds of CLOCK_BOOTTIME, by which leases end. */
struct cut_run {
    _Atomic int64_t stamp[2]; /* of the command, and of its child */
    _Atomic int64_t granted;
    atomic_bool over; /* for those that are alive all the same */
    pid_t runner, waiter;
};

struct cut {
    char self[4096];
    const char *leaserun, *held, *wanted, *ttl, *file;
    int count;
    struct cut_run *runs;
};

static int64_t cut_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec * STRESS_SECOND + t.tv_nsec;
}

static struct cut_run *cut_map(const char *file, int count)
{
    size_t size = (size_t)count * sizeof(struct cut_run);
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) {
        stress_die("%s: %s", file, strerror(errno));
    }
    struct cut_run *runs = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (runs == MAP_FAILED) {
        stress_die("%s: %s", file, strerror(errno));
    }
    close(fd);
    return runs;
}

/* --- what leaserun runs: leaserun_cut stamp FILE RUNS NUMBER ------------------------ */

static _Noreturn void cut_stamp(char **argv)
{
    struct cut_run *run = &cut_map(argv[2], atoi(argv[3]))[atoi(argv[4])];
    signal(SIGTERM, SIG_IGN);
    bool child = fork() == 0;
    if (child) {
        setsid();
    }
    for (int64_t end = stress_now() + 2 * LIMIT; !atomic_load(&run->over) && stress_now() < end;) {
        atomic_store(&run->stamp[child], cut_now());
        stress_sleep(STRESS_MS);
    }
    _exit(0);
}

/* --- the runs ----------------------------------------------------------------------- */

static void cut_start(const struct cut *cut, int number)
{
    char lock[4096], runs[16], which[16];
    snprintf(lock, sizeof lock, "%s/cut-%d", cut->held, number);
    snprintf(runs, sizeof runs, "%d", cut->count);
    snprintf(which, sizeof which, "%d", number);
    pid_t pid = stress_fork();
    if (pid == 0) {
        execl(cut->leaserun, "leaserun", "-t", cut->ttl, lock, "--", cut->self, "stamp", cut->file, runs, which,
              (char *)NULL);
        _exit(1);
    }
    cut->runs[number].runner = pid; /* not in the child: it is shared */
}

static void cut_want(const struct cut *cut, int number)
{
    char lock[4096];
    struct cut_run *run = &cut->runs[number];
    snprintf(lock, sizeof lock, "%s/cut-%d", cut->wanted, number);
    pid_t pid = stress_fork();
    if (pid == 0) {
        int fd = open(lock, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || flock(fd, LOCK_EX) != 0) {
            stress_die("%s: %s", lock, strerror(errno));
        }
        atomic_store(&run->granted, cut_now());
        _exit(0);
    }
    run->waiter = pid;
}

/* Where all stand still for longer than a lease, leaserun does not begin, or ends its command, and tells so. */
static void cut_await_stamps(const struct cut *cut, int number)
{
    const struct cut_run *run = &cut->runs[number];
    int64_t limit = stress_now() + LIMIT;
    while (!atomic_load(&run->stamp[0]) || !atomic_load(&run->stamp[1])) {
        int status = 0;
        bool ended = stress_wait(run->runner, STRESS_MS, &status);
        if (stress_now() > limit) {
            stress_die("command %d did not start: its leaserun, process %d, %s", number, run->runner,
                       ended ? "has ended" : "is there");
        }
        if (ended && (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS_LOST)) {
            stress_die("leaserun %d ended ahead of the cut, with status %#x", number, (unsigned)status);
        }
        if (ended) {
            cut_start(cut, number);
        }
    }
}

static void cut_await_waiter(const struct cut *cut, int number)
{
    char lock[4096];
    int64_t limit = stress_now() + LIMIT;
    snprintf(lock, sizeof lock, "%s/cut-%d", cut->wanted, number);
    while (stress_waiters(lock) < 1 && !atomic_load(&cut->runs[number].granted)) {
        if (stress_now() > limit) {
            stress_die("nobody waits for lock %d", number);
        }
        stress_sleep(STRESS_MS);
    }
}

static void cut_prepare(const struct cut *cut)
{
    for (int i = 0; i < cut->count; i++) {
        cut_start(cut, i);
        stress_sleep(7 * STRESS_MS); /* so that they are renewed at different times */
    }
    for (int i = 0; i < cut->count; i++) {
        cut_await_stamps(cut, i);
        cut_want(cut, i);
    }
    for (int i = 0; i < cut->count; i++) {
        cut_await_waiter(cut, i);
    }
}

/* By how much the last stamp was earlier than the grant. */
static int64_t cut_judge(const struct cut *cut, int number, bool *ret_told)
{
    struct cut_run *run = &cut->runs[number];
    int status = 0;
    if (!stress_wait(run->waiter, LIMIT, &status) || status != 0) {
        stress_die("lock %d was never granted through the other mount", number);
    }
    bool ended = stress_wait(run->runner, PATIENCE, &status);
    stress_sleep(5 * STRESS_MS); /* for the stamps of one that lives */
    atomic_store(&run->over, true);
    int64_t first = atomic_load(&run->stamp[0]), second = atomic_load(&run->stamp[1]);
    *ret_told = ended && WIFEXITED(status) && WEXITSTATUS(status) == STATUS_LOST;
    return atomic_load(&run->granted) - (first > second ? first : second);
}

int main(int argc, char **argv)
{
    int alive = 0, silent = 0;
    int64_t least = INT64_MAX, most = INT64_MIN;
    if (argc == 5 && strcmp(argv[1], "stamp") == 0) {
        cut_stamp(argv);
    }
    if (argc != 7 || atoi(argv[4]) < 1) {
        stress_die("usage: leaserun_cut LEASERUN DIRECTORY-A DIRECTORY-B RUNS TTL-MS FILE");
    }
    char ttl[32];
    snprintf(ttl, sizeof ttl, "%sms", argv[5]);
    struct cut cut = {.leaserun = argv[1], .held = argv[2], .wanted = argv[3], .ttl = ttl, .file = argv[6]};
    cut.count = atoi(argv[4]);
    cut.runs = cut_map(cut.file, cut.count);
    if (readlink("/proc/self/exe", cut.self, sizeof cut.self - 1) < 0) {
        stress_die("/proc/self/exe: %s", strerror(errno));
    }
    cut_prepare(&cut);
    puts("ready");
    fflush(stdout);
    for (int i = 0; i < cut.count; i++) {
        bool told;
        int64_t margin = cut_judge(&cut, i, &told);
        alive += margin <= 0;
        silent += !told;
        least = margin < least ? margin : least;
        most = margin > most ? margin : most;
    }
    printf("%d runs: %d alive too long, %d not told; dead %.1f to %.1f ms before the grant\n", cut.count, alive, silent,
           (double)least / STRESS_MS, (double)most / STRESS_MS);
    return alive || silent ? 3 : 0;
}
