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
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/command.h"
#include "fs/leaserun/processes.h"
#include "fs/leaserun/terms.h"
#include "fs/leaserun/wait.h"

#define KILL_AGAIN 10    /* milliseconds */
#define KILL_LIMIT 10000 /* then what cannot be killed is left */

/* What is passed on to the command; SIGTSTP comes back as the command's stop. */
static const int passed_on[] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1,
                                SIGUSR2, SIGALRM, SIGWINCH, SIGCONT, SIGTSTP};

enum run_phase { RUN_HOLDS, RUN_ENDS, RUN_KILLS };

struct run {
    const struct leaserun_options *options;
    struct leaserun_set *set;
    struct leaserun_command command;
    int signals;
    int timer;
    enum run_phase phase;
    clock_ms kill_at; /* ENDS: when to kill; KILLS: since when */
    bool interrupted;
};

/* --- when to do what ------------------------------------------------------------- */

static int64_t run_grace(const struct run *r)
{
    int64_t ttl = leaserun_set_ttl(r->set), limit = leaserun_grace_limit(ttl);
    if (r->options->grace < 0) {
        return leaserun_grace(ttl);
    }
    return r->options->grace < limit ? r->options->grace : limit;
}

static void run_complain(const struct run *r)
{
    const struct leaserun_set *set = r->set;
    const char *name = set->locks[set->lost ? set->first : leaserun_set_next(set)].held;
    if (set->alone) {
        warnx("%s: the lock is lost: the process that kept it was killed; ending the command", name);
    } else if (set->lost && set->error) {
        warnx("%s: the lock is lost: the daemon of the leasefs has ended; ending the command", name);
    } else if (set->lost) {
        warnx("%s: the lock is lost: it was broken, removed or not renewed; ending the command", name);
    } else {
        warnx("%s: the lock is about to be lost: it is not renewed; ending the command", name);
    }
}

static void run_signal_all(struct run *r, int signal)
{
    /* Those of an adopted command are out of sight when it is dead. */
    leaserun_command_signal_others(&r->command, r->set, signal);
    leaserun_command_signal(&r->command, signal);
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
    clock_ms now = clock_now(), last = leaserun_set_last_moment(r->set);
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
    clock_ms now = clock_now(), last = leaserun_set_last_moment(r->set), next;
    if (r->phase == RUN_HOLDS && (r->set->lost || (!r->command.ended && now >= last - run_grace(r)))) {
        run_end(r);
    } else if (r->phase == RUN_ENDS && (now >= last || now >= r->kill_at)) {
        run_kill(r);
    } else if (r->phase == RUN_KILLS) {
        run_signal_all(r, SIGKILL);
    }
    last = leaserun_set_last_moment(r->set);
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
    size_t left = leaserun_command_signal_others(&r->command, r->set, 0);
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
        leaserun_set_hear(r->set); /* it may have taken long */
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
            continue; /* an orphan of the command's, or a keeper, which is heard otherwise */
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
    struct pollfd fds[LEASERUN_SET_FDS_MAX];
    size_t count = leaserun_set_poll(r->set, fds);
    fds[count] = (struct pollfd){.fd = r->signals, .events = POLLIN};
    fds[count + 1] = (struct pollfd){.fd = r->timer, .events = POLLIN};
    fds[count + 2] = (struct pollfd){.fd = r->command.failure, .events = POLLIN};
    fds[count + 3] = (struct pollfd){.fd = r->command.pidfd, .events = POLLIN};
    poll(fds, count + 4, -1);
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
    leaserun_set_let_go(r->set);
    leaserun_timer_set(r->timer, leaserun_set_deadline(r->set));
    while (leaserun_set_hear(r->set), !leaserun_set_released(r->set) && !over) {
        struct pollfd fds[LEASERUN_SET_FDS_MAX];
        size_t count = leaserun_set_poll(r->set, fds);
        fds[count] = (struct pollfd){.fd = r->signals, .events = POLLIN};
        fds[count + 1] = (struct pollfd){.fd = r->timer, .events = POLLIN};
        int ready = poll(fds, count + 2, -1);
        signal = run_next_signal(r);
        bool late = fds[count + 1].revents && ready == 1;
        over = late || signal == SIGINT || signal == SIGTERM;
    }
}

static int run_supervise(struct run *r)
{
    leaserun_set_watch(r->set, r->command.target);
    leaserun_set_hear(r->set);
    run_check(r);
    while (!run_is_over(r)) {
        run_await(r);
        run_take_signals(r);
        /* After the signals: a keeper first tells that the lock is lost, then it kills. */
        leaserun_set_hear(r->set);
        run_check(r);
    }
    if (r->command.failure >= 0) {
        leaserun_command_executed(&r->command);
    }
    leaserun_command_leave_terminal(&r->command, r->phase != RUN_HOLDS);
    if (r->command.error) {
        warnx("failed to execute %s: %s", r->options->command[0], strerror(r->command.error));
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

int leaserun_run(const struct leaserun_options *options, struct leaserun_set *set, const sigset_t *mask)
{
    struct run r = {.options = options, .set = set};
    int status = EX_OSERR;
    if (!run_begin(&r)) {
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

void leaserun_run_other(const struct leaserun_options *options, struct leaserun_set *set, pid_t pid, int pidfd)
{
    struct run r = {.options = options, .set = set};
    if (run_begin(&r)) {
        leaserun_command_adopt(&r.command, pid, pidfd);
        run_supervise(&r);
        run_release(&r);
    }
}
