/* leaserun: runs a command while holding locks of a leasefs; leaserun(1).
 *
 * It promises: the command runs only while the locks are held.  When one is
 * about to be lost, the command and all that it has started are dead before
 * anybody else can hold it.  It is a client like any other: everything is
 * done by system calls on the mount.
 *
 *     options             the command line
 *     lock                which locks, in which order; mount: of which mount
 *     queue               -N: a queue that is made on the way
 *     wait                acquires them
 *     keeper              the process that has one open, and watches it; set: all of them
 *     run                 the command's life; terms: how much time there is
 *     sentry              -F: the command takes the place of leaserun
 *     watchdog            kills the command in time when leaserun cannot
 *     command             the command as a job
 *     target              all that it has started; cgroup: as a control group
 *
 * What runs no command:
 *
 *     lease               --get and --put
 *     status              --status; report: how it is told; text: as JSON, and escaped
 *     top                 --top; table: what .leasefs tells
 */
#include "config.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/param.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/lease.h"
#include "fs/leaserun/lock.h"
#include "fs/leaserun/options.h"
#include "fs/leaserun/queue.h"
#include "fs/leaserun/run.h"
#include "fs/leaserun/sentry.h"
#include "fs/leaserun/status.h"
#include "fs/leaserun/terms.h"
#include "fs/leaserun/top.h"
#include "fs/leaserun/wait.h"

static double seconds(int64_t ms)
{
    return (double)ms / 1000;
}

static int check_grace(const struct leaserun_options *options, const struct leaserun_lock *lock)
{
    int64_t ttl = options->ttl ? options->ttl : lock->ttl, limit = leaserun_grace_limit(ttl);
    if (options->grace <= limit) {
        return 0;
    }
    warnx("-k %g does not fit into a lease of %gs, which is renewed every third of that: use at most -k %g, or a "
          "longer lease (-t)",
          seconds(options->grace), seconds(ttl), seconds(limit));
    return EX_USAGE;
}

/* --- which locks ------------------------------------------------------------------- */

static int find_one(const struct leaserun_options *options, struct leaserun_lock *lock, size_t place)
{
    int status = options->width ? leaserun_queue_make(options, options->locks[place]) : 0;
    status = status ? status : leaserun_lock_find(lock, options->locks[place]);
    status = status ? status : check_grace(options, lock);
    lock->place = place;
    return status;
}

/* Those that are to be taken come first, in their order; then those that a leaserun
 * around this one holds. */
static int find_locks(const struct leaserun_options *options, struct leaserun_lock *locks, size_t *ret_taken,
                      size_t *ret_count)
{
    size_t taken = 0, held = options->count;
    for (size_t i = 0; i < options->count; i++) {
        struct leaserun_lock *lock = &locks[taken];
        int status = find_one(options, lock, i);
        if (status) {
            return status;
        }
        switch (leaserun_lock_inherited(lock, options->shared)) {
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
    memmove(locks + *ret_taken, locks + held, (options->count - held) * sizeof *locks);
    *ret_count = *ret_taken + options->count - held;
    return 0;
}

/* --- running ------------------------------------------------------------------------ */

static void tell_waited(const struct leaserun_options *options, const struct leaserun_lock *locks, size_t count,
                        int64_t waited)
{
    for (size_t i = 0; i < count && options->verbose; i++) {
        warnx("holding %s; its token is %llu", locks[i].held, (unsigned long long)locks[i].token);
    }
    if (options->verbose) {
        warnx("getting %s took %.3f seconds; executing %s", count == 1 ? "it" : "them", seconds(waited),
              options->command[0]);
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

static int execute(const struct leaserun_options *options)
{
    execvp(options->command[0], options->command);
    int error = errno;
    warn("failed to execute %s", options->command[0]);
    return error == ENOENT ? 127 : 126;
}

static int run_at_once(const struct leaserun_options *options, const struct leaserun_lock *locks, size_t count)
{
    if (options->verbose) {
        warnx("%s held already, by the leaserun around this one; executing %s",
              count == 1 ? "the lock is" : "the locks are", options->command[0]);
    }
    int status = export(locks, count);
    return status ? status : execute(options);
}

static int run_held(const struct leaserun_options *options, struct leaserun_set *set, size_t count,
                    const sigset_t *mask)
{
    int status = export(set->locks, count);
    if (status) {
        leaserun_set_kill(set);
        return status;
    }
    return leaserun_run(options, set, mask);
}

/* The first `taken` of the locks are to be acquired; the others are held already. */
static int acquire(const struct leaserun_options *options, struct leaserun_set *set, size_t taken, size_t count)
{
    sigset_t mask;
    clock_ms began = clock_now();
    int status =
        options->no_fork ? leaserun_sentry_start(options, set, taken) : leaserun_wait(options, set, taken, -1, &mask);
    if (status != LEASERUN_WAIT_HELD) {
        return status;
    }
    tell_waited(options, set->locks, taken, clock_now() - began);
    if (!options->no_fork) {
        return run_held(options, set, count, &mask);
    }
    status = export(set->locks, count);
    return status ? status : execute(options);
}

static int run(struct leaserun_options *options)
{
    size_t taken = 0, count = 0;
    clock_ms began = clock_now();
    struct leaserun_set set;
    struct leaserun_lock *locks = calloc(options->count, sizeof *locks);
    int status = locks && leaserun_set_init(&set, locks) == 0 ? find_locks(options, locks, &taken, &count) : EX_OSERR;
    if (options->wait > 0) {
        options->wait -= MIN(options->wait, clock_now() - began);
    }
    if (status == 0) {
        status = taken ? acquire(options, &set, taken, count) : run_at_once(options, locks, count);
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

/* What is opened later must not be taken for one of the standard files.  The command
 * finds closed what was closed, and writing fails all the same. */
static void fill_standard_files(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && fd <= STDERR_FILENO) {
    }
    close(fd);
}

int main(int argc, char **argv)
{
    struct leaserun_options options;
    int status = leaserun_options_parse(&options, argc, argv);
    if (status >= 0) {
        return status;
    }
    if (options.action == LEASERUN_UNLOCK) {
        return unlock(options.locks[0]);
    }
    fill_standard_files();
    switch (options.action) {
    case LEASERUN_STATUS:
        return leaserun_status(&options);
    case LEASERUN_GET:
        return leaserun_lease_get(&options);
    case LEASERUN_PUT:
        return leaserun_lease_put(&options);
    case LEASERUN_TOP:
        return leaserun_top(&options);
    default:
        return run(&options);
    }
}
