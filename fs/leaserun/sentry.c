/* sentry: see sentry.h.
 *
 * The sentry is a grandchild, so that the command never meets a child that it does
 * not know.  It stays in reach by a pidfd only, and a message tells how waiting
 * ended: the exit status, then each lock.
 */
#include "fs/leaserun/sentry.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "backend/system.h"
#include "fs/leaserun/run.h"
#include "fs/leaserun/wait.h"

struct sentry_held {
    char name[sizeof((struct leaserun_lock *)0)->held];
    uint64_t token;
};

/* --- the sentry's side ---------------------------------------------------------- */

/* Nothing of the command's is kept but standard error, for complaints. */
static void sentry_detach(int socket)
{
    int null = open("/dev/null", O_RDWR);
    setsid();
    for (int fd = 0; fd <= 1 && null >= 0; fd++) {
        dup2(null, fd);
    }
    dup2(socket, 3);
    close_range(4, ~0U, 0);
    fcntl(3, F_SETFD, FD_CLOEXEC);
}

static void sentry_send(int socket, const struct leaserun_set *set, int status)
{
    struct sentry_held held;
    memset(&held, 0, sizeof held);
    send(socket, &status, sizeof status, MSG_NOSIGNAL);
    for (size_t i = 0; i < set->count && status == LEASERUN_WAIT_HELD; i++) {
        memcpy(held.name, set->locks[i].held, sizeof held.name);
        held.token = set->locks[i].token;
        send(socket, &held, sizeof held, MSG_NOSIGNAL);
    }
}

struct sentry {
    const struct leaserun_set *set;
    int socket;
};

static void sentry_on_ready(void *arg)
{
    const struct sentry *sentry = arg;
    sentry_send(sentry->socket, sentry->set, LEASERUN_WAIT_HELD);
    close(sentry->socket);
}

static _Noreturn void sentry_run(const struct leaserun_arguments *arguments, struct leaserun_set *set, size_t count,
                                 pid_t command, int socket)
{
    sigset_t mask;
    sentry_detach(socket);
    socket = 3;
    /* Signals are for the command. */
    sigfillset(&mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    /* Its other end tells whether that is still the process that asks. */
    int pidfd = (int)syscall(SYS_pidfd_open, command, 0);
    int status = EX_OSERR;
    if (pidfd < 0) {
        warn("cannot watch the command");
    } else if (send(socket, "", 1, MSG_NOSIGNAL) == 1) {
        status = leaserun_wait(arguments, set, count, pidfd, &mask);
    }
    if (status == LEASERUN_WAIT_HELD) {
        status = leaserun_run_other(arguments, set, command, pidfd, sentry_on_ready,
                                    &(struct sentry){.set = set, .socket = socket});
    }
    if (status != 0) {
        sentry_send(socket, set, status);
    }
    _exit(0);
}

/* --- leaserun's side ------------------------------------------------------------ */

static bool sentry_receive(int socket, void *data, size_t size)
{
    ssize_t got;
    while ((got = recv(socket, data, size, 0)) < 0 && errno == EINTR) {
    }
    return got == (ssize_t)size;
}

static int sentry_read_answer(int socket, struct leaserun_set *set, size_t count)
{
    int status;
    char here;
    struct sentry_held held;
    if (!sentry_receive(socket, &here, sizeof here) || !sentry_receive(socket, &status, sizeof status)) {
        warnx("the process that asks for the lock was killed");
        return EX_OSERR;
    }
    for (size_t i = 0; i < count && status == LEASERUN_WAIT_HELD; i++) {
        if (!sentry_receive(socket, &held, sizeof held)) {
            warnx("the process that keeps the lock was killed");
            return EX_OSERR;
        }
        memcpy(set->locks[i].held, held.name, sizeof held.name);
        set->locks[i].token = held.token;
    }
    return status;
}

int leaserun_sentry_start(const struct leaserun_arguments *arguments, struct leaserun_set *set, size_t count)
{
    int sockets[2];
    pid_t command = getpid();
    pid_t between = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) == 0 ? fork() : -1;
    if (between < 0) {
        warn("cannot ask for the lock");
        return EX_OSERR;
    }
    if (between == 0) {
        pid_t sentry = fork();
        if (sentry == 0) {
            sentry_run(arguments, set, count, command, sockets[1]);
        }
        _exit(sentry < 0);
    }
    close(sockets[1]);
    while (waitpid(between, NULL, 0) < 0 && errno == EINTR) {
    }
    int status = sentry_read_answer(sockets[0], set, count);
    close(sockets[0]);
    return status;
}
