/* leaserun: runs a command while holding locks of a leasefs; leaserun(1).
 *
 * It promises: the command runs only while the locks are held.  When one is
 * about to be lost, the command and all that it has started are dead before
 * anybody else can hold it.  It is a client like any other: everything is
 * done by system calls on the mount.
 *
 *     arguments             the command line
 *     lock                the locks, in order; mount: their mount
 *     queue               -N: makes a queue if it is missing
 *     wait                acquires them
 *     keeper              the process that has one open, and watches it; set: all of them
 *     run                 the command's life; terms: how much time there is
 *     sentry              -F: the command takes the place of leaserun
 *     watchdog            kills the command in time when leaserun cannot
 *     once                --once: has it succeeded already?  loop: --loop
 *     command             the command as a job
 *     target              all that it has started; cgroup: as a control group
 *
 * Without a command:
 *
 *     lease               --get and --put; break: --break
 *     status              --status; report: its output; text: JSON and escapes;
 *                         holder: who holds a lock that was not free in time
 *     failure             what an error of the mount means
 *     top                 --top; table: reads the tables of .leasefs
 *     mounts              --mounts
 */
#include "config.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/break.h"
#include "fs/leaserun/failure.h"
#include "fs/leaserun/lease.h"
#include "fs/leaserun/lock.h"
#include "fs/leaserun/loop.h"
#include "fs/leaserun/mounts.h"
#include "fs/leaserun/once.h"
#include "fs/leaserun/queue.h"
#include "fs/leaserun/run.h"
#include "fs/leaserun/sentry.h"
#include "fs/leaserun/status.h"
#include "fs/leaserun/terms.h"
#include "fs/leaserun/top.h"
#include "fs/leaserun/wait.h"

#define LEASERUN_ONCE_DONE (-2)

static double seconds(int64_t ms)
{
    return (double)ms / 1000;
}

static int check_grace(const struct leaserun_arguments *arguments, const struct leaserun_lock *lock)
{
    int64_t ttl = arguments->ttl ? arguments->ttl : lock->ttl, limit = leaserun_grace_limit(ttl);
    if (arguments->grace <= limit) {
        return 0;
    }
    warnx("-k %g does not fit into a lease of %gs, which is renewed every third of that: use at most -k %g, or a "
          "longer lease (-t)",
          seconds(arguments->grace), seconds(ttl), seconds(limit));
    return EX_USAGE;
}

/* --- which locks ------------------------------------------------------------------- */

static int check_once_lock(const struct leaserun_lock *lock)
{
    if (lock->name[strlen(lock->name) - 1] == '-') {
        warnx("%s: it is a queue: --once is for a lock", lock->directory);
        return EX_USAGE;
    }
    return 0;
}

static int find_one(const struct leaserun_arguments *arguments, struct leaserun_lock *lock, size_t position)
{
    int status = arguments->width ? leaserun_queue_make(arguments, arguments->locks[position]) : 0;
    status = status ? status : leaserun_lock_find(lock, arguments->locks[position]);
    status = status ? status : check_grace(arguments, lock);
    status = status || !arguments->once ? status : check_once_lock(lock);
    lock->position = position;
    return status;
}

/* First the locks to acquire, in order; then those that an enclosing leaserun holds. */
static int find_locks(const struct leaserun_arguments *arguments, struct leaserun_lock *locks, size_t *ret_taken,
                      size_t *ret_count)
{
    size_t taken = 0, held = arguments->count;
    for (size_t i = 0; i < arguments->count; i++) {
        struct leaserun_lock *lock = &locks[taken];
        int status = find_one(arguments, lock, i);
        if (status) {
            return status;
        }
        switch (leaserun_lock_inherited(lock, arguments->shared)) {
        case LEASERUN_LOCK_INHERITED:
            locks[--held] = *lock; /* a place that none to be taken needs */
            break;
        case LEASERUN_LOCK_SHARED:
            warnx("%s is held, but shared, by the leaserun around this one: use -s here, or not there", lock->name);
            return EX_USAGE;
        default:
            taken++;
            break;
        }
    }
    *ret_taken = leaserun_lock_sort(locks, taken);
    memmove(locks + *ret_taken, locks + held, (arguments->count - held) * sizeof *locks);
    *ret_count = *ret_taken + arguments->count - held;
    return 0;
}

/* --- running ------------------------------------------------------------------------ */

static void print_waited(const struct leaserun_arguments *arguments, const struct leaserun_lock *locks, size_t count,
                         int64_t waited)
{
    for (size_t i = 0; i < count && arguments->verbose; i++) {
        warnx("holding %s; its token is %llu", locks[i].held, (unsigned long long)locks[i].token);
    }
    if (arguments->verbose) {
        warnx("getting %s took %.3f seconds; executing %s", count == 1 ? "it" : "them", seconds(waited),
              arguments->command[0]);
    }
}

static int export(const struct leaserun_lock *locks, size_t count)
{
    int result = leaserun_lock_export(locks, count);
    if (result == 0) {
        return 0;
    }
    errno = -result;
    warn("cannot set the environment");
    return EX_OSERR;
}

static int execute(const struct leaserun_arguments *arguments)
{
    execvp(arguments->command[0], arguments->command);
    int error = errno;
    leaserun_failure_to_execute(arguments->command[0], error);
    return error == ENOENT ? 127 : 126;
}

static int run_at_once(const struct leaserun_arguments *arguments, const struct leaserun_lock *locks, size_t count)
{
    if (arguments->once) {
        warnx("%s: the leaserun around this one holds it: --once is for the outermost", locks[0].name);
        return EX_USAGE;
    }
    if (arguments->verbose) {
        warnx("%s held already, by the leaserun around this one; executing %s",
              count == 1 ? "the lock is" : "the locks are", arguments->command[0]);
    }
    int status = export(locks, count);
    return status ? status : execute(arguments);
}

/* 0: it must run; LEASERUN_ONCE_DONE, or the exit status, with the lock released. */
static int check_once(const struct leaserun_arguments *arguments, struct leaserun_set *set)
{
    int done = leaserun_once_is_done(&set->locks[0]);
    if (done == 0) {
        return 0;
    }
    leaserun_set_kill(set);
    if (done < 0) {
        return leaserun_failure(set->locks[0].name, -done);
    }
    if (arguments->verbose) {
        warnx("%s: the command has succeeded within the period already", set->locks[0].name);
    }
    return LEASERUN_ONCE_DONE;
}

static int run_held(const struct leaserun_arguments *arguments, struct leaserun_set *set, size_t count,
                    const sigset_t *mask)
{
    int status = export(set->locks, count);
    if (status) {
        leaserun_set_kill(set);
        return status;
    }
    return leaserun_run(arguments, set, mask);
}

/* Acquires the first `taken` of the locks; the others are held already. */
static int acquire(const struct leaserun_arguments *arguments, struct leaserun_set *set, size_t taken, size_t count)
{
    sigset_t mask;
    clock_ms began = clock_now();
    int status = arguments->no_fork ? leaserun_sentry_start(arguments, set, taken)
                                    : leaserun_wait(arguments, set, taken, -1, &mask);
    if (status != LEASERUN_WAIT_HELD) {
        return status;
    }
    int64_t waited = clock_now() - began;
    status = arguments->once ? check_once(arguments, set) : 0;
    if (status) {
        return status == LEASERUN_ONCE_DONE ? 0 : status;
    }
    print_waited(arguments, set->locks, taken, waited);
    if (!arguments->no_fork) {
        return run_held(arguments, set, count, &mask);
    }
    status = export(set->locks, count);
    return status ? status : execute(arguments);
}

static int run(struct leaserun_arguments *arguments)
{
    size_t taken = 0, count = 0;
    clock_ms began = clock_now();
    struct leaserun_set set;
    if (!arguments->no_fork) { /* until it has opened the locks: a ticket shows this process as its holder */
        prctl(PR_SET_NAME, arguments->title);
    }
    struct leaserun_lock *locks = calloc(arguments->count, sizeof *locks);
    int status = locks && leaserun_set_init(&set, locks) == 0 ? find_locks(arguments, locks, &taken, &count) : EX_OSERR;
    if (arguments->wait > 0) {
        arguments->wait -= MIN(arguments->wait, clock_now() - began);
    }
    if (status == 0) {
        status = taken ? acquire(arguments, &set, taken, count) : run_at_once(arguments, locks, count);
    }
    free(locks);
    return status;
}

/* --- flock -u ------------------------------------------------------------------------ */

static int unlock(const char *number)
{
    char *end;
    long fd = strtol(number, &end, 10);
    if (end == number || *end || fd < 0 || fd > INT32_MAX) {
        warnx("-u %s: not the number of a descriptor; leaserun gives its own lock back when its command ends, and "
              "--put gives back what --get took",
              number);
        return EX_USAGE;
    }
    if (flock((int)fd, LOCK_UN) == 0) {
        return 0;
    }
    int error = errno;
    warn("%s", number);
    return error == EBADF ? EX_USAGE : EX_OSERR;
}

/* Keeps the numbers of closed standard files from being used again.  The command still
 * finds them closed. */
static void fill_standard_files(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && fd <= STDERR_FILENO) {
    }
    close(fd);
}

int main(int argc, char **argv)
{
    struct leaserun_arguments arguments;
    int status = leaserun_arguments_parse(&arguments, argc, argv);
    if (status >= 0) {
        return status;
    }
    if (arguments.action == LEASERUN_UNLOCK) {
        return unlock(arguments.locks[0]);
    }
    fill_standard_files();
    switch (arguments.action) {
    case LEASERUN_STATUS:
        return leaserun_status(&arguments);
    case LEASERUN_GET:
        return leaserun_lease_get(&arguments);
    case LEASERUN_PUT:
        return leaserun_lease_put(&arguments);
    case LEASERUN_BREAK:
        return leaserun_break(&arguments);
    case LEASERUN_TOP:
        return leaserun_top(&arguments);
    case LEASERUN_MOUNTS:
        return leaserun_mounts(&arguments);
    default:
        return arguments.loop ? leaserun_loop(&arguments, run) : run(&arguments);
    }
}
