/* leaserun: runs a command while holding a lock of a leasefs; leaserun(1).
 *
 * It promises: the command runs only while the lock is held.  When the lock is
 * about to be lost, the command and all that it has started are dead before
 * anybody else can hold the lock.  It is a client like any other: everything is
 * done by system calls on the mount.
 *
 *     leaserun_options    the command line
 *     leaserun_lock       which lock; is it held by an enclosing leaserun
 *     leaserun_keeper     the process that has it open, and watches it
 *     leaserun_run        the command's life; leaserun_terms: how much time there is
 *     leaserun_command    the command as a job; leaserun_processes: its descendants
 */
#include "config.h"

#include <err.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/keeper.h"
#include "fs/leaserun/lock.h"
#include "fs/leaserun/options.h"
#include "fs/leaserun/run.h"
#include "fs/leaserun/terms.h"

#define HELD (-1)

/* Waiting for the lock. */
struct wait {
    const struct leaserun_options *options;
    const struct leaserun_lock *lock;
    struct leaserun_keeper keeper;
    struct leaserun_report report; /* when it is held */
    sigset_t before;               /* the signal mask of the caller */
    int signals;
    int timer;
};

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

/* --- inside another leaserun ----------------------------------------------------- */

static int run_at_once(const struct leaserun_options *options)
{
    if (options->verbose) {
        warnx("the lock is held already, by the leaserun around this one; executing %s", options->command[0]);
    }
    execvp(options->command[0], options->command);
    int error = errno;
    warn("failed to execute %s", options->command[0]);
    return error == ENOENT ? 127 : 126;
}

/* --- acquiring ---------------------------------------------------------------------- */

static int wait_refused(const struct wait *w, int error)
{
    switch (error) {
    case EAGAIN:
        if (w->options->verbose) {
            warnx("%s is held by another", w->lock->name);
        }
        return w->options->conflict;
    case ENOLCK:
        warnx("%s: the lock service cannot be reached, or cannot give such a lock", w->lock->name);
        return EX_UNAVAILABLE;
    case EIO:
    case ENOTCONN:
    case ECONNABORTED:
    case ESTALE:
        errno = error;
        warn("%s: the leasefs does not answer", w->lock->name);
        return EX_UNAVAILABLE;
    default:
        errno = error;
        warn("%s", w->lock->name);
        return EX_OSERR;
    }
}

/* The signals that end waiting, unless they are ignored. */
static int wait_block_signals(struct wait *w)
{
    static const int ending[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    struct sigaction action;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        if (sigaction(ending[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(&set, ending[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &set, &w->before);
    w->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return w->signals < 0 ? -errno : 0;
}

static void wait_end_by_signal(struct wait *w)
{
    struct signalfd_siginfo info;
    if (read(w->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        leaserun_keeper_kill(&w->keeper);
        raise((int)info.ssi_signo);
        sigprocmask(SIG_SETMASK, &w->before, NULL);
    }
}

/* HELD, or the exit status. */
static int wait_for_keeper(struct wait *w)
{
    struct pollfd fds[3] = {{.fd = w->keeper.socket, .events = POLLIN},
                            {.fd = w->timer, .events = POLLIN},
                            {.fd = w->signals, .events = POLLIN}};
    int result;
    while ((result = leaserun_keeper_hear(&w->keeper, &w->report)) == 0) {
        poll(fds, 3, -1);
        wait_end_by_signal(w);
        if (fds[1].revents && !fds[0].revents) {
            leaserun_keeper_kill(&w->keeper);
            if (w->options->verbose) {
                warnx("%s was not free in time", w->lock->name);
            }
            return w->options->conflict;
        }
    }
    if (result < 0) {
        warnx("%s: the process that asks for the lock was killed", w->lock->name);
        return EX_OSERR;
    }
    return w->report.word == LEASERUN_HELD ? HELD : wait_refused(w, w->report.error);
}

static int wait_acquire(struct wait *w)
{
    int status = EX_OSERR;
    const struct leaserun_options *options = w->options;
    struct leaserun_claim claim = {
        .shared = options->shared, .wait = options->wait != 0, .ttl = options->ttl, .delay = w->lock->delay};
    claim.fd = leaserun_lock_open(w->lock, claim.wait, options->conflict, &status);
    if (claim.fd < 0) {
        return status;
    }
    w->timer = leaserun_timer();
    leaserun_timer_set(w->timer, options->wait > 0 ? clock_now() + options->wait : CLOCK_NEVER);
    int result = w->timer < 0 ? -errno : wait_block_signals(w);
    result = result < 0 ? result : leaserun_keeper_start(&w->keeper, &claim);
    if (result < 0) {
        errno = -result;
        warn("cannot ask for the lock");
        return EX_OSERR;
    }
    status = wait_for_keeper(w);
    close(claim.fd); /* the keeper has it */
    close(w->signals);
    close(w->timer);
    return status;
}

static int run_held(struct wait *w, int64_t waited)
{
    char name[sizeof w->lock->directory + sizeof w->report.ticket];
    const struct leaserun_options *options = w->options;
    if (w->report.ticket[0]) {
        snprintf(name, sizeof name, "%s/%s", w->lock->directory, w->report.ticket);
    } else {
        snprintf(name, sizeof name, "%s", w->lock->name);
    }
    if (options->verbose) {
        warnx("getting %s took %.3f seconds; its token is %llu; executing %s", name, seconds(waited),
              (unsigned long long)w->report.token, options->command[0]);
    }
    int result = leaserun_lock_export(name, w->report.token);
    if (result < 0) {
        leaserun_keeper_kill(&w->keeper);
        errno = -result;
        warn("cannot set the environment");
        return EX_OSERR;
    }
    return leaserun_run(options, name, &w->keeper, &w->before);
}

int main(int argc, char **argv)
{
    struct leaserun_options options;
    struct leaserun_lock lock;
    struct wait w = {.options = &options, .lock = &lock};
    int status = leaserun_options_parse(&options, argc, argv);
    if (status >= 0) {
        return status;
    }
    status = leaserun_lock_find(&lock, options.lock);
    status = status ? status : check_grace(&options, &lock);
    if (status) {
        return status;
    }
    switch (leaserun_lock_inherited(&lock, options.shared)) {
    case LEASERUN_LOCK_INHERITED:
        return run_at_once(&options);
    case LEASERUN_LOCK_SHARED:
        warnx("%s is held, but shared, by the leaserun around this one: use -s here, or not there", lock.name);
        return EX_USAGE;
    default:
        break;
    }
    clock_ms began = clock_now();
    status = wait_acquire(&w);
    return status == HELD ? run_held(&w, clock_now() - began) : status;
}
