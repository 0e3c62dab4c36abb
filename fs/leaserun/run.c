/* run: the command, from its start to its end; see run.h.
 *
 *     HOLDS --lost, or about to be--> ENDS --no time left--> KILLS
 *
 * In HOLDS, the command's own end is the end.  From ENDS on, nothing that it has
 * started may be left: all have got SIGTERM, and in KILLS get SIGKILL until they
 * are gone.  No call here touches the mount: the keeper does that.
 */
#include "fs/leaserun/run.h"

#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/command.h"
#include "fs/leaserun/failure.h"
#include "fs/leaserun/once.h"
#include "fs/leaserun/wait.h"

#define KILL_AGAIN 10    /* milliseconds */
#define KILL_LIMIT 10000 /* then what cannot be killed is left */

/* Signals that are passed on to the command; after SIGTSTP the command's stop stops this process. */
static const int passed_on[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1,
                                SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP};

enum run_phase { RUN_HOLDS, RUN_ENDS, RUN_KILLS };

struct run {
    const struct leaserun_arguments *arguments;
    struct leaserun_set *set;
    struct leaserun_command command;
    int signals;
    int timer;
    enum run_phase phase;
    clock_ms kill_at; /* ENDS: when to kill; KILLS: since when */
    bool interrupted;
    bool unwatched;       /* the watchdog was killed */
    bool watchdog_killed; /* it has killed the command: this process came too late */
    clock_ms next;        /* for which the timer is set */
};

/* --- when to do what ------------------------------------------------------------- */

static int64_t run_grace(const struct run *r)
{
    return leaserun_set_grace(r->set, r->arguments->grace);
}

static void run_complain(const struct run *r)
{
    const struct leaserun_set *set = r->set;
    const char *name = set->locks[set->lost ? set->first : leaserun_set_next(set)].held;
    if (r->unwatched) {
        warnx("%s: the process that watches over the command was killed; ending the command", name);
    } else if (set->keeper_killed) {
        warnx("%s: the lock is lost: the process that kept it was killed; ending the command", name);
    } else if (set->lost && set->error) {
        warnx("%s: the lock is lost: the daemon of the leasefs has ended; ending the command", name);
    } else if (set->lost) {
        warnx("%s: the lock is lost: it was %s; ending the command", name,
              set->late ? "not renewed in time" : "broken or removed");
    } else {
        warnx("%s: the lock is about to be lost: it is not renewed; ending the command", name);
    }
}

static void run_kill(struct run *r)
{
    r->phase = RUN_KILLS;
    r->kill_at = clock_now();
    leaserun_target_kill(&r->command.target);
}

/* The lock is lost, or will be. */
static void run_end(struct run *r)
{
    clock_ms now = clock_now(), last = leaserun_set_last_moment(r->set);
    run_complain(r);
    leaserun_watchdog_warn(&r->command.watchdog);
    r->kill_at = now + run_grace(r) < last ? now + run_grace(r) : last;
    if (r->kill_at <= now || r->unwatched) {
        run_kill(r);
    } else {
        r->phase = RUN_ENDS;
        leaserun_target_signal(&r->command.target, SIGTERM);
        leaserun_target_signal(&r->command.target, SIGCONT); /* what is stopped could not obey */
    }
}

/* When to act next, or to measure again how long that takes. */
static clock_ms run_next(struct run *r)
{
    clock_ms now = clock_now(), last = leaserun_set_last_moment(r->set);
    if (r->phase == RUN_KILLS) {
        return now + KILL_AGAIN;
    }
    clock_ms next = r->phase == RUN_HOLDS ? last - run_grace(r) : last < r->kill_at ? last : r->kill_at;
    clock_ms measure = now + leaserun_set_measure_pause(r->set);
    return next < measure ? next : measure;
}

/* Does what the time calls for, and sets the timer for the next. */
static void run_check(struct run *r)
{
    clock_ms now = clock_now(), last = leaserun_set_last_moment(r->set);
    if (!r->unwatched && now >= r->next) {
        leaserun_watchdog_continue(&r->command.watchdog);
    }
    if (now >= r->next && now < last && r->phase != RUN_KILLS) { /* later there is no time to measure */
        leaserun_set_measure(r->set, &r->command.target, now - r->next);
        now = clock_now();
        last = leaserun_set_last_moment(r->set);
    }
    bool lost = r->set->lost || r->unwatched || r->watchdog_killed;
    if (r->phase == RUN_HOLDS && (lost || (!r->command.ended && now >= last - run_grace(r)))) {
        run_end(r);
    } else if (r->phase == RUN_ENDS && (now >= last || now >= r->kill_at)) {
        run_kill(r);
    } else if (r->phase == RUN_KILLS) {
        leaserun_target_kill(&r->command.target);
    }
    r->next = run_next(r);
    leaserun_timer_set(r->timer, r->next);
}

static bool run_is_over(const struct run *r)
{
    if (!r->command.ended || r->phase == RUN_HOLDS) {
        return r->command.ended;
    }
    size_t left = leaserun_target_count(&r->command.target);
    if (left && r->phase == RUN_KILLS && clock_now() - r->kill_at > KILL_LIMIT) {
        warnx("processes of the command that could not be killed: %zu", left);
        return true;
    }
    return left == 0;
}

/* --- what happens -------------------------------------------------------------------- */

static void run_stopped(struct run *r, int signal)
{
    if (leaserun_command_stopped(&r->command, signal)) {
        leaserun_set_read_reports(r->set); /* it may have taken long */
        run_check(r);
        leaserun_command_continue(&r->command);
    }
}

static void run_ended(struct run *r, int status)
{
    r->command.ended = true;
    r->command.status = status;
}

/* What the watchdog has to tell. */
static void run_read_reports(struct run *r)
{
    struct leaserun_watchdog_report report;
    int result = 0;
    while (!r->unwatched && (result = leaserun_watchdog_read_report(&r->command.watchdog, &report)) > 0) {
        if (report.kind == LEASERUN_STOPPED) {
            run_stopped(r, report.value);
        } else if (report.kind == LEASERUN_ENDED) {
            r->watchdog_killed = report.killed;
            run_ended(r, report.value);
        }
    }
    r->unwatched = r->unwatched || result < 0;
}

static void run_reap(struct run *r)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        /* The others are keepers, the watchdog, and orphans of the command's if that was killed. */
        if (pid == r->command.target.command) {
            run_ended(r, status);
        }
    }
}

/* Of the next signal that came, its number; 0: none. */
static int run_next_signal(const struct run *r)
{
    struct signalfd_siginfo info;
    return read(r->signals, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

static void run_take_signals(struct run *r)
{
    int signal;
    while ((signal = run_next_signal(r))) {
        if (signal != SIGCHLD && !r->command.ended) {
            leaserun_target_signal_command(&r->command.target, signal);
        }
        r->interrupted = r->interrupted || signal == SIGINT;
    }
    run_reap(r);
}

static void run_await(struct run *r)
{
    struct pollfd fds[LEASERUN_SET_FDS_MAX];
    size_t count = leaserun_set_poll(r->set, fds);
    fds[count] = (struct pollfd){.fd = r->signals, .events = POLLIN};
    fds[count + 1] = (struct pollfd){.fd = r->timer, .events = POLLIN};
    fds[count + 2] = (struct pollfd){.fd = r->command.failure, .events = POLLIN};
    fds[count + 3] = (struct pollfd){.fd = r->command.ended ? -1 : r->command.target.pidfd, .events = POLLIN};
    fds[count + 4] = (struct pollfd){.fd = r->unwatched ? -1 : r->command.watchdog.socket, .events = POLLIN};
    poll(fds, count + 5, -1);
    if (fds[count + 2].revents) {
        leaserun_command_executed(&r->command);
    }
    r->command.ended = r->command.ended || fds[count + 3].revents;
}

/* --- beginning and end ------------------------------------------------------------------ */

/* Ignored signals stay so, for the command too. */
static void run_block_signals(struct run *r)
{
    sigset_t set, blocked;
    struct sigaction action;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++) {
        if (sigaction(passed_on[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(&set, passed_on[i]);
        }
    }
    blocked = set;
    sigaddset(&blocked, SIGTTIN);
    sigaddset(&blocked, SIGTTOU);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Returns when the locks are released, or have ended, or whoever waits has had
 * enough: a daemon that hangs answers to nothing. */
static void run_release(struct run *r)
{
    int signal = 0;
    bool over = false;
    leaserun_cgroup_remove(&r->command.target.cgroup);
    leaserun_set_release(r->set);
    leaserun_timer_set(r->timer, leaserun_set_deadline(r->set));
    while (leaserun_set_read_reports(r->set), !leaserun_set_released(r->set) && !over) {
        struct pollfd fds[LEASERUN_SET_FDS_MAX];
        size_t count = leaserun_set_poll(r->set, fds);
        fds[count] = (struct pollfd){.fd = r->signals, .events = POLLIN};
        fds[count + 1] = (struct pollfd){.fd = r->timer, .events = POLLIN};
        int ready = poll(fds, count + 2, -1);
        signal = run_next_signal(r);
        bool late = fds[count + 1].revents && ready == 1;
        over = late || signal == SIGINT || signal == SIGTERM;
    }
    leaserun_watchdog_dismiss(&r->command.watchdog);
}

static int run_supervise(struct run *r)
{
    const struct leaserun_target *target = &r->command.target;
    leaserun_set_watch(r->set, target->pidfd < 0 ? -target->command : target->command);
    leaserun_set_read_reports(r->set);
    r->next = clock_now();
    run_check(r);
    while (!run_is_over(r)) {
        run_await(r);
        run_take_signals(r);
        run_read_reports(r);
        /* After the signals: a keeper first tells that the lock is lost, then it kills. */
        leaserun_set_read_reports(r->set);
        run_check(r);
    }
    if (r->command.failure >= 0) {
        leaserun_command_executed(&r->command);
    }
    leaserun_command_leave_terminal(&r->command, r->phase != RUN_HOLDS);
    if (r->command.error) {
        leaserun_failure_to_execute(r->arguments->command[0], r->command.error);
    }
    return r->phase == RUN_HOLDS ? leaserun_command_exit_status(&r->command) : LEASERUN_EXIT_LOST;
}

static bool run_begin(struct run *r)
{
    signal(SIGCHLD, SIG_DFL);
    run_block_signals(r);
    r->timer = leaserun_timer();
    if (r->signals >= 0 && r->timer >= 0) {
        return true;
    }
    warn("cannot watch the lock");
    leaserun_set_kill(r->set);
    return false;
}

int leaserun_run(const struct leaserun_arguments *arguments, struct leaserun_set *set, const sigset_t *mask)
{
    struct run r = {.arguments = arguments, .set = set};
    int status = EX_OSERR;
    clock_ms began = clock_now();
    if (!run_begin(&r)) {
        return status;
    }
    if (arguments->began) {
        atomic_store(arguments->began, began);
    }
    leaserun_target_adopt_orphans();
    int result = leaserun_command_start(&r.command, arguments->command, mask, set);
    if (result == 0) {
        status = run_supervise(&r);
    } else {
        errno = -result;
        warn("cannot start %s", arguments->command[0]);
    }
    if (arguments->once && result == 0 && status == 0 && r.phase == RUN_HOLDS) {
        leaserun_once_remember(arguments, &set->locks[0], began, leaserun_set_deadline(set));
    }
    run_release(&r);
    if (r.phase == RUN_HOLDS && result == 0) {
        leaserun_command_pass_interrupt(&r.command, r.interrupted);
    }
    return status;
}

int leaserun_run_other(const struct leaserun_arguments *arguments, struct leaserun_set *set, pid_t pid, int pidfd,
                       void (*ready)(void *arg), void *arg)
{
    struct run r = {.arguments = arguments, .set = set};
    if (!run_begin(&r)) {
        return EX_OSERR;
    }
    int result = leaserun_command_adopt(&r.command, pid, pidfd, set);
    if (result < 0) {
        errno = -result;
        warn("cannot watch the lock");
        leaserun_set_kill(set);
        return EX_OSERR;
    }
    ready(arg);
    run_supervise(&r);
    run_release(&r);
    return 0;
}
