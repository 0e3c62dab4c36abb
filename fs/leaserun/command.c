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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/processes.h"

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

static _Noreturn void command_execute(const struct leaserun_command *c, char **argv, const sigset_t *mask, pid_t parent,
                                      int failure)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    if (getppid() != parent) {
        _exit(EX_OSERR);
    }
    if (c->owns) {
        tcsetpgrp(c->terminal, getpid());
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(argv[0], argv);
    int error = errno;
    while (write(failure, &error, sizeof error) < 0 && errno == EINTR) {
    }
    _exit(error == ENOENT ? 127 : 126);
}

int leaserun_command_start(struct leaserun_command *c, char **argv, const sigset_t *mask)
{
    int failure[2];
    pid_t parent = getpid();
    *c = (struct leaserun_command){.pidfd = -1, .failure = -1, .terminal = -1};
    if (pipe2(failure, O_CLOEXEC) != 0) {
        return -errno;
    }
    command_find_terminal(c);
    c->pid = fork();
    if (c->pid == 0) {
        command_execute(c, argv, mask, parent, failure[1]);
    }
    int error = errno;
    close(failure[1]);
    c->failure = failure[0];
    if (c->pid < 0) {
        close(failure[0]);
        return -error;
    }
    setpgid(c->pid, c->pid); /* here too: it is signalled from now on */
    c->target = -c->pid;
    return 0;
}

void leaserun_command_adopt(struct leaserun_command *c, pid_t pid, int pidfd)
{
    *c = (struct leaserun_command){.pid = pid, .target = pid, .pidfd = pidfd, .failure = -1, .terminal = -1};
}

void leaserun_command_executed(struct leaserun_command *c)
{
    if (read(c->failure, &c->error, sizeof c->error) != (ssize_t)sizeof c->error) {
        c->error = 0;
    }
    close(c->failure);
    c->failure = -1;
}

void leaserun_command_signal(const struct leaserun_command *c, int signal)
{
    if (c->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, c->pidfd, signal, NULL, 0);
    } else {
        kill(c->target, signal);
    }
}

size_t leaserun_command_signal_others(const struct leaserun_command *c, const struct leaserun_set *set, int signal)
{
    if (c->pidfd >= 0) {
        return c->ended ? 0 : leaserun_processes_signal(c->pid, NULL, 0, 0, signal);
    }
    pid_t keepers[LEASERUN_LOCKS_MAX];
    size_t count = leaserun_set_pids(set, keepers);
    return leaserun_processes_signal(getpid(), keepers, count, signal ? c->pid : 0, signal);
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
    if (tcgetpgrp(c->terminal) == c->pid) {
        tcsetpgrp(c->terminal, getpgrp());
    }
    if (!command_stop_job(signal) && wants_terminal) {
        leaserun_command_signal(c, SIGHUP); /* it would wait for the terminal for ever */
    }
    return true;
}

void leaserun_command_continue(struct leaserun_command *c)
{
    if (c->owns && command_in_foreground(c)) {
        tcsetpgrp(c->terminal, c->pid);
    }
    leaserun_command_signal(c, SIGCONT);
}

/* --- the end ---------------------------------------------------------------------- */

void leaserun_command_leave_terminal(struct leaserun_command *c, bool killed)
{
    if (c->terminal >= 0 && tcgetpgrp(c->terminal) == c->pid) {
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
