/* watchdog: see watchdog.h.
 *
 *     WATCHES --leaserun or a keeper was killed, or it is time--> KILLS
 *     WATCHES --the command has ended--> IDLE --leaserun ends others too--> WATCHES
 *
 * In KILLS it kills until nothing is left.  When leaserun was killed it gives the locks
 * back then, and ends.
 */
#include "fs/leaserun/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/leaserun/detach.h"

#define WATCHDOG_AGAIN 10    /* milliseconds, between two kills */
#define WATCHDOG_LIMIT 10000 /* then what cannot be killed is left */
#define WATCHDOG_PRIORITY (-20)

enum watchdog_order { WATCHDOG_WARN = 'w', WATCHDOG_DISMISS = 'd' };

enum watchdog_phase { WATCHDOG_WATCHES, WATCHDOG_IDLE, WATCHDOG_KILLS };

struct watchdog {
    struct leaserun_set *set;
    struct leaserun_target *target;
    int socket, signals;
    enum watchdog_phase phase;
    bool orphaned;     /* leaserun was killed */
    bool keeper_ended; /* and its lock with it */
    bool killed;       /* because the time had come */
    bool ended;        /* the command has, which is no child of this process */
    clock_ms wakes;    /* when it meant to look again */
    clock_ms since;    /* KILLS */
};

static void watchdog_report(const struct watchdog *w, enum leaserun_watchdog_report_kind kind, int value)
{
    struct leaserun_watchdog_report report = {.kind = kind, .value = value, .killed = w->killed};
    /* a failure means that the reader is dead, which reading orders notices */
    send(w->socket, &report, sizeof report, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* --- what it does ------------------------------------------------------------------------ */

static void watchdog_kill(struct watchdog *w)
{
    if (w->phase != WATCHDOG_KILLS) {
        w->phase = WATCHDOG_KILLS;
        w->since = clock_now();
        w->killed = true;
    }
    leaserun_target_kill(w->target);
}

static void watchdog_reap(struct watchdog *w)
{
    struct signalfd_siginfo info;
    int status;
    pid_t pid;
    while (read(w->signals, &info, sizeof info) > 0) {
    }
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid != w->target->command) {
            continue; /* an orphan of the command's */
        }
        if (WIFSTOPPED(status)) {
            watchdog_report(w, LEASERUN_STOPPED, WSTOPSIG(status));
            continue;
        }
        w->phase = w->phase == WATCHDOG_WATCHES ? WATCHDOG_IDLE : w->phase;
        watchdog_report(w, LEASERUN_ENDED, status);
    }
}

static _Noreturn void watchdog_end(struct watchdog *w)
{
    if (w->orphaned) {
        leaserun_cgroup_remove(&w->target->cgroup);
        leaserun_set_release(w->set);
    }
    _exit(0);
}

static void watchdog_obey(struct watchdog *w)
{
    char order;
    ssize_t size = recv(w->socket, &order, sizeof order, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (size == 1 && order == WATCHDOG_DISMISS) {
        watchdog_end(w);
    }
    if (size == 1) {
        w->phase = w->phase == WATCHDOG_IDLE ? WATCHDOG_WATCHES : w->phase;
        return;
    }
    w->orphaned = true;
    if (w->phase == WATCHDOG_IDLE) {
        watchdog_end(w);
    }
}

/* --- when ----------------------------------------------------------------------------------- */

static clock_ms watchdog_moment(const struct watchdog *w)
{
    return w->orphaned || w->keeper_ended ? 0 : leaserun_set_last_moment(w->set);
}

static void watchdog_check(struct watchdog *w)
{
    clock_ms now = clock_now();
    if (w->phase == WATCHDOG_IDLE) {
        w->wakes = CLOCK_NEVER;
        return;
    }
    if (w->phase != WATCHDOG_KILLS && now < watchdog_moment(w)) { /* later there is no time to measure */
        leaserun_set_measure(w->set, w->target, now - w->wakes);
        now = clock_now();
    }
    clock_ms moment = watchdog_moment(w);
    if (w->phase == WATCHDOG_KILLS || now >= moment) {
        watchdog_kill(w);
        now = clock_now();
        w->wakes = now + WATCHDOG_AGAIN;
    } else {
        clock_ms next = now + leaserun_set_measure_pause(w->set);
        w->wakes = moment < next ? moment : next;
    }
    bool through =
        w->phase == WATCHDOG_KILLS && (leaserun_target_count(w->target) == 0 || now - w->since > WATCHDOG_LIMIT);
    if (through && w->orphaned) {
        watchdog_end(w);
    }
    if (through) {
        w->phase = WATCHDOG_IDLE;
    }
}

static void watchdog_await(struct watchdog *w)
{
    uint64_t rings;
    struct pollfd fds[LEASERUN_SET_FDS_MAX];
    size_t keepers = leaserun_set_poll(w->set, fds);
    for (size_t i = 0; i < keepers; i++) {
        fds[i].events = 0; /* only its end: what it reports is for leaserun */
    }
    fds[keepers] = (struct pollfd){.fd = w->socket, .events = POLLIN};
    fds[keepers + 1] = (struct pollfd){.fd = w->signals, .events = POLLIN};
    fds[keepers + 2] = (struct pollfd){.fd = w->set->wake, .events = POLLIN};
    fds[keepers + 3] = (struct pollfd){.fd = w->ended ? -1 : w->target->pidfd, .events = POLLIN};
    clock_ms left = w->wakes == CLOCK_NEVER ? -1 : w->wakes - clock_now();
    int timeout = w->wakes == CLOCK_NEVER ? -1 : left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
    poll(fds, keepers + 4, timeout);
    for (size_t i = 0; i < keepers; i++) {
        w->keeper_ended = w->keeper_ended || (fds[i].revents & POLLHUP);
    }
    while (fds[keepers + 2].revents && read(w->set->wake, &rings, sizeof rings) < 0 && errno == EINTR) {
    }
    watchdog_reap(w);
    w->ended = w->ended || fds[keepers + 3].revents;
    if (fds[keepers + 3].revents && w->phase == WATCHDOG_WATCHES) {
        w->phase = WATCHDOG_IDLE;
    }
    if (fds[keepers].revents) {
        watchdog_obey(w);
    }
}

/* --- the process ------------------------------------------------------------------------------ */

/* Keeps nothing of the command: its pipes must end with it, and its directory may be unmounted. */
static void watchdog_detach(const struct watchdog *w)
{
    int keep[LEASERUN_SET_FDS_MAX + 8];
    size_t count = w->set->count;
    for (size_t i = 0; i < count; i++) {
        keep[i] = w->set->keepers[i].socket; /* a keeper lives until this end is closed, too */
    }
    const int own[] = {w->socket,
                       w->signals,
                       w->set->wake,
                       w->target->pidfd,
                       w->target->cgroup.parent,
                       w->target->cgroup.directory,
                       w->target->cgroup.kill};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        keep[count++] = own[i];
    }
    leaserun_detach(keep, count);
}

static _Noreturn void watchdog_run(struct watchdog *w, leaserun_watchdog_command *command, void *arg)
{
    sigset_t set;
    pid_t self = getpid();
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    setpgid(0, 0); /* what is sent to leaserun's job is not for it; in its session the command keeps the terminal */
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    w->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (command) {
        leaserun_target_adopt_orphans();
        pid_t pid = leaserun_cgroup_fork(&w->target->cgroup);
        if (pid == 0) {
            command(arg, self);
        }
        int error = errno;
        setpgid(pid, pid); /* here too: it is signalled from now on */
        w->target->root = self;
        w->target->command = pid;
        watchdog_report(w, LEASERUN_STARTED, pid < 0 ? -error : pid);
        if (pid < 0) {
            _exit(0);
        }
    }
    watchdog_detach(w);
    setpriority(PRIO_PROCESS, 0, WATCHDOG_PRIORITY); /* where it may: it acts when the machine is busiest */
    w->wakes = clock_now();
    for (;;) {
        watchdog_check(w);
        watchdog_await(w);
    }
}

/* --- leaserun's side ------------------------------------------------------------------------- */

static int watchdog_await_start(const struct leaserun_watchdog *watchdog, struct leaserun_target *target)
{
    struct leaserun_watchdog_report report;
    ssize_t size;
    while ((size = recv(watchdog->socket, &report, sizeof report, 0)) < 0 && errno == EINTR) {
    }
    if (size != (ssize_t)sizeof report || report.value <= 0) {
        return size == (ssize_t)sizeof report ? report.value : -EPIPE;
    }
    target->command = report.value;
    target->root = getpid();
    return 0;
}

int leaserun_watchdog_start(struct leaserun_watchdog *watchdog, struct leaserun_set *set,
                            struct leaserun_target *target, leaserun_watchdog_command *command, void *arg)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return -errno;
    }
    watchdog->pid = fork();
    if (watchdog->pid == 0) {
        close(sockets[0]);
        watchdog_run(&(struct watchdog){.set = set, .target = target, .socket = sockets[1]}, command, arg);
    }
    int error = errno;
    close(sockets[1]);
    watchdog->socket = sockets[0];
    target->watchdog = watchdog->pid;
    int result = watchdog->pid < 0 ? -error : command ? watchdog_await_start(watchdog, target) : 0;
    if (result < 0) {
        close(watchdog->socket);
        watchdog->socket = -1;
    }
    return result;
}

int leaserun_watchdog_read_report(const struct leaserun_watchdog *watchdog, struct leaserun_watchdog_report *report)
{
    ssize_t size = recv(watchdog->socket, report, sizeof *report, MSG_DONTWAIT);
    if (size == (ssize_t)sizeof *report) {
        return 1;
    }
    return size < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -EPIPE;
}

static void watchdog_send_order(const struct leaserun_watchdog *watchdog, enum watchdog_order order)
{
    char byte = (char)order;
    send(watchdog->socket, &byte, sizeof byte, MSG_NOSIGNAL);
}

void leaserun_watchdog_warn(const struct leaserun_watchdog *watchdog)
{
    watchdog_send_order(watchdog, WATCHDOG_WARN);
}

void leaserun_watchdog_continue(const struct leaserun_watchdog *watchdog)
{
    kill(watchdog->pid, SIGCONT);
}

void leaserun_watchdog_dismiss(const struct leaserun_watchdog *watchdog)
{
    watchdog_send_order(watchdog, WATCHDOG_DISMISS);
}
