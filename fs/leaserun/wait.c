/* wait: waiting for locks; see wait.h. */
#include "fs/leaserun/wait.h"

#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/failure.h"
#include "fs/leaserun/holder.h"
#include "fs/leaserun/terms.h"

struct wait {
    const struct leaserun_arguments *arguments;
    struct leaserun_set *set;
    const struct leaserun_lock *lock; /* that is asked for */
    sigset_t before;                  /* the signal mask of the caller */
    bool others;                      /* it waits for another process */
    int ending;                       /* readable when the wait is to end: signals, or that process */
    int timer;
};

int leaserun_timer(void)
{
    return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
}

void leaserun_timer_set(int timer, clock_ms when)
{
    struct itimerspec at = {0};
    if (when != CLOCK_NEVER) {
        at.it_value = clock_timespec(when);
        at.it_value.tv_nsec = when > 0 ? at.it_value.tv_nsec : 1;
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static int wait_refused(const struct wait *w, int error)
{
    switch (error) {
    case EAGAIN:
        return leaserun_holder_refuse(w->arguments, w->lock);
    case ENODATA:
    case ESTALE:
        warnx("%s: the lock is lost: it was broken or removed as soon as it was granted", w->lock->name);
        return EX_TEMPFAIL;
    default:
        return leaserun_failure(w->lock->name, error);
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
    w->ending = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return w->ending < 0 ? -errno : 0;
}

/* Ends this process by the signal that has come, if one has, after all is given back. */
static void wait_end_by_signal(struct wait *w)
{
    struct signalfd_siginfo info;
    if (read(w->ending, &info, sizeof info) == (ssize_t)sizeof info) {
        leaserun_set_kill(w->set);
        raise((int)info.ssi_signo);
        sigprocmask(SIG_SETMASK, &w->before, NULL);
    }
}

/* Of the locks that are held already. */
static int wait_lost(const struct wait *w)
{
    warnx("%s: the lock is lost, while waiting for %s", w->set->locks[w->set->first].name, w->lock->name);
    return EX_TEMPFAIL;
}

static void wait_take(struct leaserun_lock *lock, const struct leaserun_report *report)
{
    const char *name = report->ticket[0] ? report->ticket : strrchr(lock->name, '/') + 1;
    size_t length = strlen(lock->directory);
    memcpy(lock->held, lock->directory, length);
    snprintf(lock->held + length, sizeof lock->held - length, "/%s", name);
    lock->token = report->token;
}

/* The next report of the last keeper, as leaserun_keeper_read_report; closes the file that keeper queues no longer by.
 */
static int wait_read_report(struct leaserun_keeper *keeper, struct leaserun_report *report, int *fd)
{
    int result = leaserun_keeper_read_report(keeper, report);
    if (result > 0 && report->kind == LEASERUN_RESTARTED) {
        close(*fd);
        *fd = -1;
        return 0;
    }
    return result;
}

/* Until the last keeper tells: WAIT_HELD, or the exit status. */
static int wait_for_keeper(struct wait *w, int *fd)
{
    struct leaserun_set *set = w->set;
    struct leaserun_keeper *keeper = &set->keepers[set->count];
    struct leaserun_report report;
    int result;
    while ((result = wait_read_report(keeper, &report, fd)) == 0) {
        struct pollfd fds[LEASERUN_SET_FDS_MAX];
        size_t count = leaserun_set_poll(set, fds);
        fds[count] = (struct pollfd){.fd = keeper->socket, .events = POLLIN};
        fds[count + 1] = (struct pollfd){.fd = w->timer, .events = POLLIN};
        fds[count + 2] = (struct pollfd){.fd = w->ending, .events = POLLIN};
        poll(fds, count + 3, -1);
        leaserun_set_read_reports(set);
        if (fds[count + 2].revents && w->others) {
            return EX_OSERR;
        }
        wait_end_by_signal(w);
        if (set->lost) {
            return wait_lost(w);
        }
        if (fds[count + 1].revents && !fds[count].revents) {
            return leaserun_holder_refuse(w->arguments, w->lock);
        }
    }
    if (result < 0) {
        warnx("%s: the process that asks for the lock was killed", w->lock->name);
        return EX_OSERR;
    }
    if (report.kind != LEASERUN_HELD) {
        return wait_refused(w, report.error);
    }
    wait_take(&set->locks[set->count], &report);
    return LEASERUN_WAIT_HELD;
}

static int wait_acquire(struct wait *w)
{
    int status = EX_OSERR;
    const struct leaserun_arguments *arguments = w->arguments;
    struct leaserun_claim claim = {
        .lock = w->lock,
        .resumes = w->lock->mount.store[0] != '\0', /* one in memory has no address */
        .next_mount_wait = w->lock->ttl,
        .wake = w->set->wake,
        .title = arguments->title,
        .note = *arguments->note ? arguments->note : NULL,
        .shared = arguments->shared,
        .wait = arguments->wait != 0,
        .ttl = arguments->ttl,
        .delay = w->lock->delay,
        .max_outage = w->lock->mount.max_outage,
        .guard = leaserun_break_guard(arguments->ttl ? arguments->ttl : w->lock->ttl, arguments->grace)};
    if (claim.max_outage && claim.ttl > claim.max_outage) {
        warnx("%s: the store keeps a lock for %gs when it cannot be renewed, not for the %gs of -t", w->lock->name,
              (double)claim.max_outage / 1000, (double)claim.ttl / 1000);
    }
    claim.fd = leaserun_lock_open(w->lock, claim.wait, arguments->conflict, &status);
    prctl(PR_SET_NAME, program_invocation_short_name);
    if (claim.fd < 0) {
        return status;
    }
    int result = leaserun_keeper_start(&w->set->keepers[w->set->count], &claim);
    if (result < 0) {
        errno = -result;
        warn("cannot ask for the lock");
        close(claim.fd);
        return EX_OSERR;
    }
    status = wait_for_keeper(w, &claim.fd);
    if (claim.fd >= 0) {
        close(claim.fd); /* the keeper has it */
    }
    if (status != LEASERUN_WAIT_HELD) {
        leaserun_keeper_kill(&w->set->keepers[w->set->count]);
    }
    return status;
}

/* Releases the locks acquired so far; they are free when this returns, unless a leasefs hangs. */
static void wait_give_back(struct wait *w)
{
    leaserun_set_release(w->set);
    leaserun_timer_set(w->timer, leaserun_set_deadline(w->set));
    bool over = false;
    while (!leaserun_set_released(w->set) && !over) {
        struct pollfd fds[LEASERUN_SET_FDS_MAX];
        size_t count = leaserun_set_poll(w->set, fds);
        fds[count] = (struct pollfd){.fd = w->timer, .events = POLLIN};
        fds[count + 1] = (struct pollfd){.fd = w->others ? -1 : w->ending, .events = POLLIN};
        poll(fds, count + 2, -1);
        leaserun_set_read_reports(w->set);
        over = fds[count].revents || fds[count + 1].revents;
    }
}

int leaserun_wait(const struct leaserun_arguments *arguments, struct leaserun_set *set, size_t count, int whom,
                  sigset_t *ret_mask)
{
    struct wait w = {
        .arguments = arguments, .set = set, .others = whom >= 0, .ending = whom, .timer = leaserun_timer()};
    int result = w.timer < 0 ? -errno : w.others ? 0 : wait_block_signals(&w);
    if (result < 0) {
        errno = -result;
        warn("cannot ask for the lock");
        return EX_OSERR;
    }
    leaserun_timer_set(w.timer, arguments->wait > 0 ? clock_now() + arguments->wait : CLOCK_NEVER);
    int status = LEASERUN_WAIT_HELD;
    for (set->count = 0; set->count < count && status == LEASERUN_WAIT_HELD;) {
        w.lock = &set->locks[set->count];
        status = wait_acquire(&w);
        set->count += status == LEASERUN_WAIT_HELD;
    }
    if (status != LEASERUN_WAIT_HELD) {
        wait_give_back(&w);
    }
    if (!w.others) {
        close(w.ending);
    }
    close(w.timer);
    *ret_mask = w.before;
    return status;
}
