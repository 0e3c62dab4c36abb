/* loop: see loop.h.
 *
 * A round is a child, so that it leaves nothing behind.  It is in this process's group, and so sees the terminal as
 * this process does.  Signals that this process gets alone are passed on to it.
 */
#include "fs/leaserun/loop.h"

#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define LOOP_PAUSE_MIN 1000 /* milliseconds */
#define LOOP_PAUSE_MAX 60000
#define LOOP_LONG_RUN 60000 /* after one of these the pause is short again */

struct loop {
    struct leaserun_arguments *arguments;
    int (*run)(struct leaserun_arguments *arguments);
    sigset_t mask, signals; /* the caller's mask; what this process waits for */
    int64_t pause;
    int ending; /* the signal that ends the loop; 0: none yet */
    bool ran;   /* a command has run in some round */
};

static bool loop_is_ending(int signal)
{
    return signal == SIGHUP || signal == SIGINT || signal == SIGQUIT || signal == SIGTERM;
}

static void loop_block_signals(struct loop *l)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM};
    struct sigaction action;
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&l->signals);
    sigaddset(&l->signals, SIGCHLD);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (sigaction(numbers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN) {
            sigaddset(&l->signals, numbers[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &l->signals, &l->mask);
}

static _Noreturn void loop_run_child(struct loop *l, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(EX_OSERR);
    }
    sigprocmask(SIG_SETMASK, &l->mask, NULL);
    exit(l->run(l->arguments));
}

/* The wait status of a round. */
static int loop_run_round(struct loop *l, clock_ms *ret_ran)
{
    int status = EX_OSERR << 8;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        loop_run_child(l, parent);
    }
    if (child < 0) {
        warn("cannot start a round");
    }
    while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
        int number = sigwaitinfo(&l->signals, NULL);
        if (number > 0 && number != SIGCHLD) {
            l->ending = l->ending || !loop_is_ending(number) ? l->ending : number;
            kill(child, number);
        }
    }
    clock_ms began = atomic_exchange(l->arguments->began, 0);
    *ret_ran = began ? clock_now() - began : 0;
    l->ran = l->ran || began;
    return status;
}

/* Does no further round make sense? */
static bool loop_is_over(const struct loop *l, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    bool interrupted = WIFSIGNALED(status) && WTERMSIG(status) == SIGINT; /* from the terminal, to the command */
    bool wrong = code == EX_USAGE || code == 126 || code == 127;
    return l->ending || interrupted || wrong || (!l->ran && (code == EX_NOINPUT || code == EX_DATAERR));
}

static void loop_pause(struct loop *l, clock_ms ran)
{
    l->pause = ran >= LOOP_LONG_RUN || !l->pause ? LOOP_PAUSE_MIN : l->pause * 2;
    l->pause = l->pause < LOOP_PAUSE_MAX ? l->pause : LOOP_PAUSE_MAX;
    if (l->arguments->verbose) {
        warnx("queueing again in %g seconds", (double)l->pause / 1000);
    }
    clock_ms until = clock_now() + l->pause;
    for (clock_ms left; !l->ending && (left = until - clock_now()) > 0;) {
        struct timespec time = clock_timespec(left);
        int number = sigtimedwait(&l->signals, NULL, &time);
        l->ending = number > 0 && loop_is_ending(number) ? number : 0;
    }
}

/* As a command that this signal ended: a shell then ends its loop too. */
static void loop_end_by_signal(const struct loop *l, int number)
{
    signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_SETMASK, &l->mask, NULL);
}

int leaserun_loop(struct leaserun_arguments *arguments, int (*run)(struct leaserun_arguments *arguments))
{
    struct loop l = {.arguments = arguments, .run = run};
    int status;
    clock_ms ran;
    arguments->began = mmap(NULL, sizeof *arguments->began, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (arguments->began == MAP_FAILED) {
        warn("cannot start a round");
        return EX_OSERR;
    }
    loop_block_signals(&l);
    while (status = loop_run_round(&l, &ran), !loop_is_over(&l, status)) {
        loop_pause(&l, ran);
        if (l.ending) {
            loop_end_by_signal(&l, l.ending);
        }
    }
    if (WIFSIGNALED(status)) {
        loop_end_by_signal(&l, WTERMSIG(status));
    }
    sigprocmask(SIG_SETMASK, &l.mask, NULL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
