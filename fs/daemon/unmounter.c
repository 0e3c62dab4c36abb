/* unmounter: see unmounter.h.
 *
 * A byte asks the child to unmount; the end of the stream ends it.  It answers
 * with the text of an error, empty if there was none.  A signal reports the daemon's
 * death, because the stream does not end while a thread of the daemon is stuck.
 */
#include "fs/daemon/unmounter.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/log.h"
#include "backend/system.h"
#include "fs/daemon/mountpoint.h"
#include "fs/process/walker.h"
#include "fs/sandbox/sandbox.h"

#define UNMOUNTER_NAME "leasefs-umount" /* as ps(1) shows it */
#define UNMOUNTER_TIMEOUT 10000         /* milliseconds */
#define UNMOUNTER_SOCKET (STDERR_FILENO + 1)
#define UNMOUNTER_WALKER (STDERR_FILENO + 2) /* the socket of walker.h */
#define UNMOUNTER_DEATH SIGRTMIN             /* queued, so that none is lost behind one of somebody else's */

struct unmounter {
    pid_t pid;
    int socket;
    int walker; /* -1: given away */
};

bool unmounter_may_look(void)
{
    return capng_get_caps_process() == 0 && capng_have_capability(CAPNG_EFFECTIVE, CAP_SYS_PTRACE) > 0;
}

/* --- in the child --------------------------------------------------------------- */

/* Of the daemon's descriptors it keeps two: a copy of any other would keep a lock
 * locked, a pipe or the mount alive. */
static void unmounter_drop_descriptors(int socket, int walker)
{
    int null = open("/dev/null", O_RDWR), aside = fcntl(walker, F_DUPFD, UNMOUNTER_WALKER + 1);
    dup2(socket, UNMOUNTER_SOCKET); /* open while fusermount3 runs */
    dup3(aside, UNMOUNTER_WALKER, O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++) {
        dup2(null, fd);
    }
    closefrom(UNMOUNTER_WALKER + 1);
    if (chdir("/") < 0) {
        return; /* it only keeps that directory busy */
    }
}

/* Of root's rights it needs three: to unmount, to find the way there, and to look into processes. */
static void unmounter_keep_rights(bool may_look)
{
    if (geteuid() != 0) {
        return;
    }
    capng_clear(CAPNG_SELECT_ALL);
    capng_updatev(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET, CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH,
                  may_look ? CAP_SYS_PTRACE : -1, -1);
    if (capng_apply(CAPNG_SELECT_ALL) != 0) {
        log_warning("the process that unmounts keeps all its capabilities");
    }
}

/* The kernel signals when the thread that made us has ended, also while another one of the daemon still waits in it.
 * Who sent the signal cannot be forged.  Returns what that is read from, or -1. */
static int unmounter_await_death(pid_t daemon)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, UNMOUNTER_DEATH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int deaths = signalfd(-1, &set, SFD_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, UNMOUNTER_DEATH);
    return getppid() == daemon ? deaths : -1; /* else it has ended already */
}

static bool unmounter_is_death(int deaths, pid_t daemon)
{
    struct signalfd_siginfo signal;
    return read(deaths, &signal, sizeof signal) == sizeof signal && signal.ssi_code == SI_USER &&
           signal.ssi_pid == (uint32_t)daemon;
}

/* A byte that comes with a descriptor says how to end the connection; any other asks to unmount. */
static ssize_t unmounter_receive(int *abort_fd)
{
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(UNMOUNTER_SOCKET, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    *abort_fd = -1;
    if (header && header->cmsg_type == SCM_RIGHTS) {
        memcpy(abort_fd, CMSG_DATA(header), sizeof *abort_fd);
    }
    return got;
}

static ssize_t unmounter_obey(const char *mountpoint, int *abort_fd)
{
    char error[1024] = "";
    int given;
    ssize_t got = unmounter_receive(&given);
    if (given >= 0) {
        *abort_fd = given;
    } else if (got > 0) {
        mountpoint_clear(mountpoint, error, sizeof error);
        got = write(UNMOUNTER_SOCKET, error, strlen(error) + 1);
    }
    return got < 0 && errno == EINTR ? 1 : got;
}

/* The end of the walker's socket ends nothing else. */
static void unmounter_walk(struct walker *walker, struct pollfd *receive, const struct pollfd *collect)
{
    if ((receive->revents && !walker_receive(walker)) || (collect->revents && !walker_collect(walker))) {
        close(UNMOUNTER_WALKER);
        receive->fd = -1;
    }
}

/* Until the daemon ends.  False after an error. */
static bool unmounter_serve(const char *mountpoint, struct walker *walker, int deaths, pid_t daemon)
{
    int abort_fd = -1;
    ssize_t got = 1;
    struct pollfd ready[] = {{.fd = deaths, .events = POLLIN},
                             {.fd = UNMOUNTER_SOCKET, .events = POLLIN},
                             {.fd = UNMOUNTER_WALKER, .events = POLLIN},
                             {.fd = -1, .events = POLLIN}};
    while (deaths >= 0 && got > 0) {
        ready[3].fd = walker_descriptor(walker);
        if (poll(ready, G_N_ELEMENTS(ready), -1) < 0) {
            continue;
        }
        if (ready[0].revents && unmounter_is_death(deaths, daemon)) {
            got = abort_fd < 0 ? 0 : write(abort_fd, "1", 1);
            break;
        }
        got = ready[1].revents ? unmounter_obey(mountpoint, &abort_fd) : 1;
        unmounter_walk(walker, &ready[2], &ready[3]);
    }
    return got >= 0;
}

static void G_GNUC_NORETURN unmounter_run(const char *mountpoint, int socket, int walker_socket, pid_t daemon)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    bool may_look = unmounter_may_look();
    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++) {
        signal(signals[i], SIG_IGN); /* meant for the daemon, sent to its group or service */
    }
    signal(SIGPIPE, SIG_IGN); /* the daemon may end while a walk is answered */
    prctl(PR_SET_NAME, UNMOUNTER_NAME);
    unmounter_drop_descriptors(socket, walker_socket);
    struct walker *walker = walker_new(UNMOUNTER_WALKER, !may_look);
    unmounter_keep_rights(may_look);
    int deaths = unmounter_await_death(daemon);
    if (geteuid() == 0 && sandbox_unmounter() < 0) { /* an ordinary user's needs fusermount3, which is setuid */
        _exit(EXIT_FAILURE);
    }
    _exit(unmounter_serve(mountpoint, walker, deaths, daemon) ? EXIT_SUCCESS : EXIT_FAILURE);
}

/* --- in the daemon -------------------------------------------------------------- */

int unmounter_start(const char *mountpoint, struct unmounter **ret_unmounter)
{
    int ends[2], walker[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        return -errno;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, walker) < 0) {
        int error = errno;
        close(ends[0]);
        close(ends[1]);
        return -error;
    }
    pid_t daemon = getpid(), pid = fork();
    if (pid == 0) {
        unmounter_run(mountpoint, ends[1], walker[1], daemon);
    }
    int error = errno;
    close(ends[1]);
    close(walker[1]);
    if (pid < 0) {
        close(ends[0]);
        close(walker[0]);
        return -error;
    }
    struct unmounter *unmounter = g_new(struct unmounter, 1);
    *unmounter = (struct unmounter){.pid = pid, .socket = ends[0], .walker = walker[0]};
    *ret_unmounter = unmounter;
    return 0;
}

int unmounter_take_walker(struct unmounter *unmounter)
{
    int walker = unmounter->walker;
    unmounter->walker = -1;
    return walker;
}

/* --- a daemon that crashes: its threads would be awaited before it is dead, for a core file --- */

static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGQUIT, SIGSEGV, SIGSYS, SIGTRAP};
static struct sigaction crash_actions[G_N_ELEMENTS(crashes)]; /* what else is to happen, as in a sanitizer */
static int crash_abort = -1;
static char crash_stack[65536]; /* the other one may be full */

static void unmounter_crashed(int number, siginfo_t *info, void *context)
{
    (void)context;
    ssize_t written = write(crash_abort, "1", 1);
    (void)written;
    for (size_t i = 0; i < G_N_ELEMENTS(crashes); i++) {
        sigaction(crashes[i], &crash_actions[i], NULL);
    }
    if (info->si_code <= 0) { /* sent: it does not come again by itself */
        raise(number);
    }
}

static void unmounter_catch_crashes(int abort_fd)
{
    struct sigaction action = {.sa_sigaction = unmounter_crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    stack_t stack = {.ss_sp = crash_stack, .ss_size = sizeof crash_stack};
    crash_abort = abort_fd;
    sigaltstack(&stack, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(crashes); i++) {
        sigaction(crashes[i], NULL, &crash_actions[i]);
        if (crash_actions[i].sa_handler != SIG_IGN) {
            sigaction(crashes[i], &action, NULL);
        }
    }
}

void unmounter_watch(struct unmounter *unmounter, int abort_fd)
{
    char byte = 0, control[CMSG_SPACE(sizeof abort_fd)] = {0};
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof abort_fd)};
    memcpy(CMSG_DATA(header), &abort_fd, sizeof abort_fd);
    int result = abort_fd < 0 ? abort_fd : 0;
    if (result == 0 && sendmsg(unmounter->socket, &message, MSG_NOSIGNAL) < 0) {
        result = -errno;
    }
    if (result < 0) {
        log_info(
            "a daemon that is killed may leave a mount that hangs, since its connection cannot be reached (%s): is "
            "/sys/fs/fuse/connections mounted?",
            g_strerror(-result));
    }
    if (abort_fd >= 0) {
        unmounter_catch_crashes(abort_fd);
    }
}

int unmounter_unmount(struct unmounter *unmounter, char *error, size_t error_size)
{
    struct pollfd answer = {.fd = unmounter->socket, .events = POLLIN};
    int ready;
    while (send(unmounter->socket, "", 1, MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
    do {
        ready = poll(&answer, 1, UNMOUNTER_TIMEOUT);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        snprintf(error, error_size, "process %d was asked to unmount, and does not answer", (int)unmounter->pid);
        return -ETIMEDOUT;
    }
    ssize_t length = read(unmounter->socket, error, error_size - 1);
    if (length <= 0) {
        snprintf(error, error_size, "the process that unmounts (%d) is gone: use umount -l", (int)unmounter->pid);
        return -ESRCH;
    }
    error[length] = '\0';
    return error[0] ? -EIO : 0;
}

void unmounter_free(struct unmounter *unmounter)
{
    if (unmounter) {
        if (unmounter->walker >= 0) {
            close(unmounter->walker);
        }
        close(unmounter->socket);
        waitpid(unmounter->pid, NULL, WNOHANG); /* if it has not ended yet, it will */
        g_free(unmounter);
    }
}
