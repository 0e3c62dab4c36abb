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
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/command.h"
#include "fs/leaserun/processes.h"
#include "fs/leaserun/terms.h"

#define KILL_AGAIN 10    /* milliseconds */
#define KILL_LIMIT 10000 /* then what cannot be killed is left */

/* What is passed on to the command; SIGTSTP comes back as the command's stop. */
static const int passed_on[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1,
                                SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP};

enum run_phase { RUN_HOLDS, RUN_ENDS, RUN_KILLS };

struct run {
    const struct leaserun_options *options;
    const char *name;
    struct leaserun_keeper *keeper;
    struct leaserun_command command;
    int signals;
    int timer;
    enum run_phase phase;
    clock_ms kill_at; /* ENDS: when to kill; KILLS: since when */
    bool alone;       /* the keeper has ended */
    bool lost;
    int error; /* the mount's, when its daemon is gone */
    bool interrupted;
    bool released;
};

int leaserun_timer(void)
{
    return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
}

void leaserun_timer_set(int timer, clock_ms when)
{
    struct itimerspec at = {0};
    if (when != CLOCK_NEVER) {
        at.it_value.tv_sec = when / 1000;
        at.it_value.tv_nsec = when > 0 ? when % 1000 * 1000000 : 1;
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

/* --- when to do what ------------------------------------------------------------- */

/* When everything must be dead, less what dying takes. */
static clock_ms run_last_moment(const struct run *r)
{
    return r->alone ? 0 : atomic_load(&r->keeper->view->deadline) - leaserun_guard(atomic_load(&r->keeper->view->ttl));
}

static int64_t run_grace(const struct run *r)
{
    int64_t ttl = atomic_load(&r->keeper->view->ttl), limit = leaserun_grace_limit(ttl);
    if (r->options->grace < 0) {
        return leaserun_grace(ttl);
    }
    return r->options->grace < limit ? r->options->grace : limit;
}

static void run_complain(const struct run *r)
{
    if (r->alone) {
        warnx("%s: the lock is lost: the process that kept it was killed; ending the command", r->name);
    } else if (r->lost && r->error) {
        warnx("%s: the lock is lost: the daemon of the leasefs has ended; ending the command", r->name);
    } else if (r->lost) {
        warnx("%s: the lock is lost: it was broken, removed or not renewed; ending the command", r->name);
    } else {
        warnx("%s: the lock is about to be lost: it is not renewed; ending the command", r->name);
    }
}

static void run_signal_all(struct run *r, int signal)
{
    leaserun_command_signal(&r->command, signal);
    leaserun_processes_signal(r->keeper->pid, r->command.pid, signal);
}

static void run_kill(struct run *r)
{
    r->phase = RUN_KILLS;
    r->kill_at = clock_now();
    run_signal_all(r, SIGKILL);
}

/* The lock is lost, or will be. */
static void run_end(struct run *r)
{
    clock_ms now = clock_now(), last = run_last_moment(r);
    run_complain(r);
    r->kill_at = now + run_grace(r) < last ? now + run_grace(r) : last;
    if (r->kill_at <= now) {
        run_kill(r);
    } else {
        r->phase = RUN_ENDS;
        run_signal_all(r, SIGTERM);
        run_signal_all(r, SIGCONT); /* what is stopped could not obey */
    }
}

/* Does what the time calls for, and sets the timer for the next. */
static void run_check(struct run *r)
{
    clock_ms now = clock_now(), last = run_last_moment(r), next;
    if (r->phase == RUN_HOLDS && (r->lost || r->alone || now >= last - run_grace(r))) {
        run_end(r);
    } else if (r->phase == RUN_ENDS && (now >= last || now >= r->kill_at)) {
        run_kill(r);
    } else if (r->phase == RUN_KILLS) {
        run_signal_all(r, SIGKILL);
    }
    last = run_last_moment(r);
    if (r->phase == RUN_HOLDS) {
        next = last - run_grace(r);
    } else if (r->phase == RUN_ENDS) {
        next = last < r->kill_at ? last : r->kill_at;
    } else {
        next = now + KILL_AGAIN;
    }
    leaserun_timer_set(r->timer, next);
}

static bool run_is_over(const struct run *r)
{
    if (!r->command.ended || r->phase == RUN_HOLDS) {
        return r->command.ended;
    }
    size_t left = leaserun_processes_signal(r->keeper->pid, 0, 0);
    if (left && r->phase == RUN_KILLS && clock_now() - r->kill_at > KILL_LIMIT) {
        warnx("%s: processes of the command that could not be killed: %zu", r->name, left);
        return true;
    }
    return left == 0;
}

/* --- what happens -------------------------------------------------------------------- */

static void run_hear(struct run *r)
{
    struct leaserun_report report;
    int result;
    while ((result = leaserun_keeper_hear(r->keeper, &report)) > 0) {
        if (report.word == LEASERUN_LOST) {
            r->lost = true;
            r->error = report.error;
        }
        r->released = r->released || report.word == LEASERUN_RELEASED;
    }
    r->alone = r->alone || result < 0;
}

static void run_stopped(struct run *r, int signal)
{
    if (leaserun_command_stopped(&r->command, signal)) {
        run_hear(r); /* it may have taken long */
        run_check(r);
        leaserun_command_continue(&r->command);
    }
}

static void run_reap(struct run *r)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid != r->command.pid) {
            continue; /* an orphan of the command's, or the keeper, which is heard otherwise */
        }
        if (WIFSTOPPED(status)) {
            run_stopped(r, WSTOPSIG(status));
        } else {
            r->command.ended = true;
            r->command.status = status;
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
            leaserun_command_signal(&r->command, signal);
        }
        r->interrupted = r->interrupted || signal == SIGINT;
    }
    run_reap(r);
}

static void run_await(struct run *r)
{
    struct pollfd fds[4] = {{.fd = r->signals, .events = POLLIN},
                            {.fd = r->timer, .events = POLLIN},
                            {.fd = r->alone ? -1 : r->keeper->socket, .events = POLLIN},
                            {.fd = r->command.failure, .events = POLLIN}};
    poll(fds, 4, -1);
    if (fds[3].revents) {
        leaserun_command_executed(&r->command);
    }
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

/* Returns when the lock is released, or has ended, or whoever waits has had
 * enough: a daemon that hangs answers to nothing. */
static void run_release(struct run *r)
{
    int signal = 0;
    leaserun_keeper_let_go(r->keeper);
    leaserun_timer_set(r->timer, r->lost ? 0 : atomic_load(&r->keeper->view->deadline));
    do {
        struct pollfd fds[3] = {{.fd = r->signals, .events = POLLIN},
                                {.fd = r->timer, .events = POLLIN},
                                {.fd = r->alone ? -1 : r->keeper->socket, .events = POLLIN}};
        run_hear(r);
        if (!r->released && !r->alone) {
            poll(fds, 3, -1);
            signal = run_next_signal(r);
            r->alone = fds[1].revents != 0 && !fds[2].revents;
        }
    } while (!r->released && !r->alone && signal != SIGINT && signal != SIGTERM);
}

static int run_supervise(struct run *r)
{
    leaserun_keeper_watch(r->keeper, r->command.pid);
    do {
        run_hear(r);
        run_check(r);
        run_take_signals(r);
        if (!run_is_over(r)) {
            run_await(r);
        }
    } while (!run_is_over(r));
    if (r->command.failure >= 0) {
        leaserun_command_executed(&r->command);
    }
    leaserun_command_leave_terminal(&r->command, r->phase != RUN_HOLDS);
    if (r->command.error) {
        warnx("failed to execute %s: %s", r->options->command[0], strerror(r->command.error));
    }
    return r->phase == RUN_HOLDS ? leaserun_command_exit_status(&r->command) : LEASERUN_EXIT_LOST;
}

int leaserun_run(const struct leaserun_options *options, const char *name, struct leaserun_keeper *keeper,
                 const sigset_t *mask)
{
    struct run r = {.options = options, .name = name, .keeper = keeper};
    int status = EX_OSERR;
    signal(SIGCHLD, SIG_DFL);
    run_block_signals(&r);
    r.timer = leaserun_timer();
    if (r.signals < 0 || r.timer < 0) {
        warn("cannot watch the lock");
        leaserun_keeper_kill(keeper);
        return status;
    }
    leaserun_processes_adopt();
    int result = leaserun_command_start(&r.command, options->command, mask);
    if (result == 0) {
        status = run_supervise(&r);
    } else {
        errno = -result;
        warn("cannot start %s", options->command[0]);
    }
    run_release(&r);
    if (r.phase == RUN_HOLDS && result == 0) {
        leaserun_command_pass_interrupt(&r.command, r.interrupted);
    }
    return status;
}
