/* command: the command as a job; see command.h.
 *
 * The job-control signals are blocked in leaserun; so SIGTTOU does not keep it
 * from giving the terminal and taking it back (tcsetpgrp(3)).
 */
#include "fs/leaserun/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

/* The arguments of the new process. */
struct command_execution {
    const struct leaserun_command *command;
    char **argv;
    const sigset_t *mask;
    int failure;
};

static bool command_in_foreground(const struct leaserun_command *c)
{
    return c->terminal >= 0 && tcgetpgrp(c->terminal) == getpgrp();
}

static void command_find_terminal(struct leaserun_command *c)
{
    c->terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (command_in_foreground(c)) {
        c->has_modes = tcgetattr(c->terminal, &c->modes) == 0;
        /* These fail for any other than the controlling terminal. */
        c->owns = tcgetpgrp(STDIN_FILENO) == getpgrp() && tcgetpgrp(STDOUT_FILENO) == getpgrp();
    }
}

static void command_execute(void *arg, pid_t parent)
{
    const struct command_execution *e = arg;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    if (getppid() != parent) {
        _exit(EX_OSERR);
    }
    if (e->command->owns) {
        tcsetpgrp(e->command->terminal, getpid());
    }
    sigprocmask(SIG_SETMASK, e->mask, NULL);
    execvp(e->argv[0], e->argv);
    int error = errno;
    while (write(e->failure, &error, sizeof error) < 0 && errno == EINTR) {
    }
    _exit(error == ENOENT ? 127 : 126);
}

int leaserun_command_start(struct leaserun_command *c, char **argv, const sigset_t *mask, struct leaserun_set *set)
{
    int failure[2];
    *c = (struct leaserun_command){
        .failure = -1, .terminal = -1, .target = {.pidfd = -1, .cgroup = {.parent = -1}}, .watchdog = {.socket = -1}};
    if (pipe2(failure, O_CLOEXEC) != 0) {
        return -errno;
    }
    c->target.exceptions = leaserun_set_pids(set, c->target.except);
    leaserun_cgroup_make(&c->target.cgroup);
    command_find_terminal(c);
    struct command_execution execution = {.command = c, .argv = argv, .mask = mask, .failure = failure[1]};
    int result = leaserun_watchdog_start(&c->watchdog, set, &c->target, command_execute, &execution);
    close(failure[1]);
    c->failure = failure[0];
    if (result < 0) {
        leaserun_cgroup_remove(&c->target.cgroup);
        close(failure[0]);
    }
    return result;
}

int leaserun_command_adopt(struct leaserun_command *c, pid_t pid, int pidfd, struct leaserun_set *set)
{
    *c = (struct leaserun_command){
        .failure = -1, .terminal = -1, .target = {.pidfd = -1, .cgroup = {.parent = -1}}, .watchdog = {.socket = -1}};
    c->target.command = c->target.root = pid;
    c->target.pidfd = pidfd;
    leaserun_cgroup_make(&c->target.cgroup);
    leaserun_cgroup_enter(&c->target.cgroup, pid);
    int result = leaserun_watchdog_start(&c->watchdog, set, &c->target, NULL, NULL);
    if (result < 0) {
        leaserun_cgroup_remove(&c->target.cgroup);
    }
    return result;
}

void leaserun_command_executed(struct leaserun_command *c)
{
    if (read(c->failure, &c->error, sizeof c->error) != (ssize_t)sizeof c->error) {
        c->error = 0;
    }
    close(c->failure);
    c->failure = -1;
}

/* --- stopping ------------------------------------------------------------------- */

/* Stops this job.  False: nobody controls it, so that it could not be stopped. */
static bool command_stop_job(int signal)
{
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGCONT); /* is blocked: left over from before */
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) == SIGCONT) {
    }
    sigemptyset(&set);
    sigaddset(&set, signal);
    kill(0, signal);
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* here it stops */
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigpending(&pending);
    return sigismember(&pending, SIGCONT) == 1;
}

bool leaserun_command_stopped(struct leaserun_command *c, int signal)
{
    bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
    if (c->terminal < 0 || (signal != SIGTSTP && !wants_terminal)) {
        return false; /* whoever stopped it will let it go on */
    }
    if (wants_terminal && command_in_foreground(c)) {
        c->owns = true;
        return true;
    }
    if (tcgetpgrp(c->terminal) == c->target.command) {
        tcsetpgrp(c->terminal, getpgrp());
    }
    if (!command_stop_job(signal) && wants_terminal) {
        leaserun_target_signal_command(&c->target, SIGHUP); /* it would wait for the terminal for ever */
    }
    return true;
}

void leaserun_command_continue(struct leaserun_command *c)
{
    if (c->owns && command_in_foreground(c)) {
        tcsetpgrp(c->terminal, c->target.command);
    }
    leaserun_target_signal_command(&c->target, SIGCONT);
}

/* --- the end ---------------------------------------------------------------------- */

void leaserun_command_leave_terminal(struct leaserun_command *c, bool killed)
{
    if (c->terminal >= 0 && tcgetpgrp(c->terminal) == c->target.command) {
        tcsetpgrp(c->terminal, getpgrp());
    }
    if (killed && c->has_modes && command_in_foreground(c)) {
        tcsetattr(c->terminal, TCSADRAIN, &c->modes);
    }
}

int leaserun_command_exit_status(const struct leaserun_command *c)
{
    if (c->error) {
        return c->error == ENOENT ? 127 : 126;
    }
    return WIFEXITED(c->status) ? WEXITSTATUS(c->status) : 128 + WTERMSIG(c->status);
}

void leaserun_command_pass_interrupt(const struct leaserun_command *c, bool interrupted)
{
    sigset_t set;
    if (!WIFSIGNALED(c->status) || WTERMSIG(c->status) != SIGINT || !(c->owns || interrupted)) {
        return;
    }
    signal(SIGINT, SIG_DFL);
    if (c->owns && command_in_foreground(c)) {
        kill(0, SIGINT);
    } else {
        raise(SIGINT);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}
