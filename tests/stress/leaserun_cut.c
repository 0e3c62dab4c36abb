/* leaserun_cut: is a command of leaserun dead before another can hold its lock?
 *
 *     leaserun_cut [-w WIDTH] [-u UID] [-k several|queue] LEASERUN DIRECTORY-A DIRECTORY-B RUNS TTL-MS FILE [HOW]
 *
 * Starts RUNS commands under leaserun through mount A, each with a lock of its own, and for each lock a waiter through
 * mount B of the same store.  Then something goes wrong:
 *
 *     cut      (default) it prints `ready`, and its caller cuts A off from the store, or stops its daemon
 *     stopped  every leaserun is stopped; then the same
 *     killed   every leaserun is killed
 *     broken   every lock is broken, through B
 *
 * The command ignores SIGTERM, and has WIDTH (1) children in sessions of their own that do too; all write the time into
 * FILE each millisecond.  A waiter that gets the lock through B writes the time of that.  No time of a command may be
 * later.
 *
 * -u: leaserun runs as that user.  -k: with two locks, one of them broken; or with a ticket in a queue.
 *
 * Exit status: 0; 3 if a command was alive when another held its lock, or its leaserun did not report the loss; 1 if it
 * could not be run.
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "tests/stress/stress.h"

#define STATUS_LOST 75
#define LIMIT (60 * STRESS_SECOND)
#define TIME_LIMIT (2 * STRESS_SECOND) /* with a leaserun whose lock is another's */

/* Times are nanoseconds of CLOCK_BOOTTIME, by which leases end. */
struct cut_run {
    _Atomic int64_t stamp; /* the last of any of its processes */
    atomic_int started;    /* processes */
    _Atomic int64_t granted;
    atomic_bool over; /* for those that are alive all the same */
    pid_t runner, waiter;
};

enum cut_how { CUT_OFF, CUT_STOPPED, CUT_KILLED, CUT_BROKEN, CUT_HOWS };
static const char *const cut_hows[CUT_HOWS] = {"cut", "stopped", "killed", "broken"};

struct cut {
    char self[4096];
    const char *leaserun, *held, *wanted, *ttl, *file;
    enum cut_how how;
    bool several, queue;
    int count, width;
    long uid; /* -1: as this process */
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
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
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

/* --- what leaserun runs: leaserun_cut stamp FILE RUNS NUMBER WIDTH ------------------- */

static void cut_stamp_once(struct cut_run *run)
{
    int64_t now = cut_now(), before = atomic_load(&run->stamp);
    while (before < now && !atomic_compare_exchange_weak(&run->stamp, &before, now)) {
    }
}

static _Noreturn void cut_stamp(char **argv)
{
    struct cut_run *run = &cut_map(argv[2], atoi(argv[3]))[atoi(argv[4])];
    signal(SIGTERM, SIG_IGN);
    bool child = false;
    for (int i = atoi(argv[5]); i > 0 && !child; i--) {
        child = fork() == 0;
    }
    if (child) {
        setsid();
    }
    atomic_fetch_add(&run->started, 1);
    for (int64_t end = stress_now() + 2 * LIMIT; !atomic_load(&run->over) && stress_now() < end;) {
        cut_stamp_once(run);
        stress_sleep(STRESS_MS);
    }
    _exit(0);
}

/* --- the runs ----------------------------------------------------------------------- */

static char *cut_name(const struct cut *cut, const char *directory, int number, char name[4096])
{
    snprintf(name, 4096, "%s/cut-%d%s", directory, number, cut->queue ? "q" : "");
    return name;
}

static _Noreturn void cut_execute(const struct cut *cut, int number)
{
    char lock[4096], more[4200], runs[16], which[16], width[16];
    snprintf(more, sizeof more, "%s.more", cut_name(cut, cut->held, number, lock));
    snprintf(runs, sizeof runs, "%d", cut->count);
    snprintf(which, sizeof which, "%d", number);
    snprintf(width, sizeof width, "%d", cut->width);
    const char *argv[20] = {"leaserun", "-t", cut->ttl};
    size_t count = 3;
    const char *const several[] = {"-l", more, "-l"}, *const queue[] = {"-N", "1"};
    for (size_t i = 0; i < 3 && cut->several; i++) {
        argv[count++] = several[i];
    }
    for (size_t i = 0; i < 2 && cut->queue; i++) {
        argv[count++] = queue[i];
    }
    const char *const command[] = {lock, "--", cut->self, "stamp", cut->file, runs, which, width};
    for (size_t i = 0; i < sizeof command / sizeof command[0]; i++) {
        argv[count++] = command[i];
    }
    if (cut->uid < 0 || (setgid((gid_t)cut->uid) == 0 && setuid((uid_t)cut->uid) == 0)) {
        execv(cut->leaserun, (char *const *)(uintptr_t)argv);
    }
    _exit(1);
}

static void cut_start(const struct cut *cut, int number)
{
    pid_t pid = stress_fork();
    if (pid == 0) {
        cut_execute(cut, number);
    }
    cut->runs[number].runner = pid; /* not in the child: it is shared */
}

static void cut_want(const struct cut *cut, int number)
{
    char lock[4096], ticket[4200];
    struct cut_run *run = &cut->runs[number];
    snprintf(ticket, sizeof ticket, "%s%s", cut_name(cut, cut->wanted, number, lock), cut->queue ? "/want-" : "");
    pid_t pid = stress_fork();
    if (pid == 0) {
        int fd = open(ticket, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || flock(fd, LOCK_EX) != 0) {
            stress_die("%s: %s", ticket, strerror(errno));
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
    while (atomic_load(&run->started) <= cut->width) {
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
            atomic_store(&cut->runs[number].started, 0);
            cut_start(cut, number);
        }
    }
}

static void cut_await_waiter(const struct cut *cut, int number)
{
    char lock[4096];
    int64_t limit = stress_now() + LIMIT;
    cut_name(cut, cut->wanted, number, lock);
    while (stress_attribute(lock, "waiters") < 1 && !atomic_load(&cut->runs[number].granted)) {
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

/* --- what goes wrong ------------------------------------------------------------------ */

static void cut_break(const struct cut *cut, int number)
{
    char lock[4096], ticket[4200];
    snprintf(ticket, sizeof ticket, "%s%s", cut_name(cut, cut->wanted, number, lock),
             cut->queue ? "/run-0000000000" : "");
    /* On a busy machine it may have run out before. */
    if (setxattr(ticket, "user.lease.break", "1", 1, 0) != 0 && errno != ENOENT && errno != ESTALE) {
        stress_die("%s: cannot be broken: %s", ticket, strerror(errno));
    }
}

static void cut_go_wrong(const struct cut *cut)
{
    for (int i = 0; i < cut->count; i++) {
        if (cut->how == CUT_STOPPED) {
            kill(cut->runs[i].runner, SIGSTOP);
        } else if (cut->how == CUT_KILLED) {
            kill(cut->runs[i].runner, SIGKILL);
        } else if (cut->how == CUT_BROKEN) {
            cut_break(cut, i);
        }
    }
    puts("ready");
    fflush(stdout);
}

/* --- what came of it ------------------------------------------------------------------ */

/* Has leaserun told what has happened? */
static bool cut_is_reported(const struct cut *cut, bool ended, int status)
{
    if (cut->how == CUT_KILLED) {
        return ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    return ended && WIFEXITED(status) && WEXITSTATUS(status) == STATUS_LOST;
}

/* By how much the last stamp was earlier than the grant. */
static int64_t cut_judge(const struct cut *cut, int number, bool *ret_reported)
{
    struct cut_run *run = &cut->runs[number];
    int status = 0;
    if (!stress_wait(run->waiter, LIMIT, &status) || status != 0) {
        stress_die("lock %d was never granted through the other mount", number);
    }
    stress_sleep(5 * STRESS_MS); /* for the stamps of one that lives */
    int64_t last = atomic_load(&run->stamp);
    if (cut->how == CUT_STOPPED) {
        kill(run->runner, SIGCONT);
    }
    bool ended = stress_wait(run->runner, TIME_LIMIT, &status);
    last = atomic_load(&run->stamp) > last ? atomic_load(&run->stamp) : last;
    atomic_store(&run->over, true);
    *ret_reported = cut_is_reported(cut, ended, status);
    return atomic_load(&run->granted) - last;
}

static int cut_judge_all(const struct cut *cut)
{
    int alive = 0, silent = 0;
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int i = 0; i < cut->count; i++) {
        bool reported;
        int64_t margin = cut_judge(cut, i, &reported);
        alive += margin <= 0;
        silent += !reported;
        least = margin < least ? margin : least;
        most = margin > most ? margin : most;
    }
    printf("%d runs: %d alive too long, %d not told; dead %.1f to %.1f ms before the grant\n", cut->count, alive,
           silent, (double)least / STRESS_MS, (double)most / STRESS_MS);
    return alive || silent ? 3 : 0;
}

/* --- the command line ------------------------------------------------------------------- */

static enum cut_how cut_find_how(const char *name)
{
    for (int how = 0; how < CUT_HOWS; how++) {
        if (strcmp(cut_hows[how], name) == 0) {
            return (enum cut_how)how;
        }
    }
    stress_die("what goes wrong is one of cut, stopped, killed and broken, not %s", name);
}

static void cut_parse(struct cut *cut, int argc, char **argv)
{
    int letter;
    *cut = (struct cut){.width = 1, .uid = -1};
    while ((letter = getopt(argc, argv, "w:u:k:")) != -1) {
        if (letter == 'w') {
            cut->width = atoi(optarg);
        } else if (letter == 'u') {
            cut->uid = atol(optarg);
        } else if (letter == 'k') {
            cut->several = strcmp(optarg, "several") == 0;
            cut->queue = strcmp(optarg, "queue") == 0;
        }
    }
    argv += optind;
    argc -= optind;
    if (argc < 6 || argc > 7 || atoi(argv[3]) < 1) {
        stress_die("usage: leaserun_cut [-w WIDTH] [-u UID] [-k several|queue] LEASERUN DIRECTORY-A DIRECTORY-B RUNS "
                   "TTL-MS FILE [HOW]");
    }
    cut->leaserun = argv[0];
    cut->held = argv[1];
    cut->wanted = argv[2];
    cut->count = atoi(argv[3]);
    cut->file = argv[5];
    cut->how = argc == 7 ? cut_find_how(argv[6]) : CUT_OFF;
}

int main(int argc, char **argv)
{
    struct cut cut;
    char ttl[32];
    if (argc == 6 && strcmp(argv[1], "stamp") == 0) {
        cut_stamp(argv);
    }
    cut_parse(&cut, argc, argv);
    snprintf(ttl, sizeof ttl, "%sms", argv[optind + 4]);
    cut.ttl = ttl;
    umask(0);
    cut.runs = cut_map(cut.file, cut.count);
    if (readlink("/proc/self/exe", cut.self, sizeof cut.self - 1) < 0) {
        stress_die("/proc/self/exe: %s", strerror(errno));
    }
    cut_prepare(&cut);
    cut_go_wrong(&cut);
    return cut_judge_all(&cut);
}
