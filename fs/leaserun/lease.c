/* lease: see lease.h.
 *
 * A lease goes over to the parent of a process that has closed the file and exits at
 * once.  So a child takes it, and exits with the file open: then it has no owner.  It
 * does so only when the token was printed, and gives the lease back if it was not.
 */
#include "fs/leaserun/lease.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <sysexits.h>
#include <unistd.h>

#include "backend/clock.h"
#include "fs/leaserun/failure.h"
#include "fs/leaserun/holder.h"
#include "fs/leaserun/lock.h"

#define LEASE_LOOK_AGAIN 1000 /* milliseconds: the end of another mount's lock may not be reported */
#define LEASE_TOKEN_SIZE 32

/* What a child reports. */
struct lease_answer {
    int error; /* 0: it is taken */
    char token[LEASE_TOKEN_SIZE];
};

struct lease_child {
    pid_t pid; /* the child */
    int socket;
    struct lease_answer answer;
};

/* --- taking ---------------------------------------------------------------------- */

static int lease_take(const char *name, int64_t ttl, char *token, size_t size)
{
    char term[32];
    int length = snprintf(term, sizeof term, "%" PRId64 "ms", ttl);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0666);
    if (fd < 0) {
        return errno;
    }
    ssize_t got = fgetxattr(fd, "user.lease.token", token, size - 1);
    if (got < 0 || fsetxattr(fd, "user.lease.ttl", term, (size_t)length, 0) != 0) {
        int error = errno;
        unlink(name); /* it is this process's */
        return error;
    }
    token[got] = '\0';
    return 0;
}

/* The child waits until the process that runs --get has the token: if that process dies
 * before, nobody could give it back. */
static _Noreturn void lease_run_child(const char *name, int64_t ttl, int socket)
{
    char byte;
    sigset_t all;
    struct lease_answer answer = {0};
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    answer.error = lease_take(name, ttl, answer.token, sizeof answer.token);
    bool wanted = send(socket, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer &&
                  recv(socket, &byte, sizeof byte, 0) == (ssize_t)sizeof byte;
    if (answer.error == 0 && !wanted) {
        unlink(name);
    }
    _exit(0);
}

/* Tells the child whether its lease is wanted, and waits for its end. */
static void lease_end_child(const struct lease_child *child, bool wanted)
{
    if (wanted) {
        send(child->socket, "", 1, MSG_NOSIGNAL);
    }
    close(child->socket);
    while (waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

static bool lease_await_answer(const struct lease_child *child, clock_ms until)
{
    struct pollfd answer = {.fd = child->socket, .events = POLLIN};
    int ready = 0;
    do {
        clock_ms left = until == CLOCK_NEVER ? -1 : until - clock_now();
        ready = poll(&answer, 1, left < 0 ? (until == CLOCK_NEVER ? -1 : 0) : left > INT_MAX ? INT_MAX : (int)left);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* 0: the lease is taken, and must be settled; else the error. */
static int lease_start_child(const char *name, int64_t ttl, clock_ms until, struct lease_child *child)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return errno;
    }
    child->pid = fork();
    if (child->pid == 0) {
        close(sockets[0]);
        lease_run_child(name, ttl, sockets[1]);
    }
    int error = errno;
    close(sockets[1]);
    child->socket = sockets[0];
    if (child->pid < 0) {
        close(sockets[0]);
        return error;
    }
    ssize_t size;
    if (!lease_await_answer(child, until)) {
        kill(child->pid, SIGKILL);
        close(child->socket);
        return ETIMEDOUT;
    }
    while ((size = recv(child->socket, &child->answer, sizeof child->answer, 0)) < 0 && errno == EINTR) {
    }
    error = size == (ssize_t)sizeof child->answer ? child->answer.error : EIO;
    if (error) {
        lease_end_child(child, false);
    }
    return error;
}

int leaserun_lease_take(const char *name, int64_t ttl, clock_ms until)
{
    struct lease_child child;
    int error = lease_start_child(name, ttl, until, &child);
    if (error == 0) {
        lease_end_child(&child, true);
    }
    return error;
}

/* Until it may be free: its file is gone, or enough time has passed. */
static void lease_await(const char *name, clock_ms until)
{
    clock_ms left = until - clock_now();
    int notes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    int pause = left < LEASE_LOOK_AGAIN ? (int)(left < 0 ? 0 : left) : LEASE_LOOK_AGAIN;
    bool watches = notes >= 0 && inotify_add_watch(notes, name, IN_DELETE_SELF | IN_DONT_FOLLOW) >= 0;
    if (watches || errno != ENOENT) {
        struct pollfd fd = {.fd = watches ? notes : -1, .events = POLLIN};
        poll(&fd, 1, pause);
    }
    if (notes >= 0) {
        close(notes);
    }
}

static int lease_refused(const struct leaserun_arguments *arguments, const struct leaserun_lock *lock, int error)
{
    return error == EEXIST ? leaserun_holder_refuse(arguments, lock) : leaserun_failure(lock->name, error);
}

static int lease_get(const struct leaserun_arguments *arguments, const struct leaserun_lock *lock)
{
    int error;
    struct lease_child child;
    int64_t ttl = arguments->ttl ? arguments->ttl : lock->ttl;
    clock_ms until = arguments->wait < 0 ? CLOCK_NEVER : clock_now() + arguments->wait;
    while ((error = lease_start_child(lock->name, ttl, CLOCK_NEVER, &child)) == EEXIST && clock_now() < until) {
        lease_await(lock->name, until);
    }
    if (error) {
        return lease_refused(arguments, lock, error);
    }
    bool printed = puts(child.answer.token) >= 0 && fflush(stdout) == 0;
    if (!printed) {
        warn("standard output");
    }
    lease_end_child(&child, printed);
    return printed ? 0 : EX_IOERR;
}

/* Finds the lock, which must not be a queue. */
static int lease_find(struct leaserun_lock *lock, const char *path)
{
    int status = leaserun_lock_find(lock, path);
    if (status == 0 && lock->name[strlen(lock->name) - 1] == '-') {
        warnx("%s is a queue: --get and --put are for a lock", path);
        status = EX_USAGE;
    }
    return status;
}

int leaserun_lease_get(const struct leaserun_arguments *arguments)
{
    struct leaserun_lock *lock = calloc(1, sizeof *lock);
    int status = lock ? lease_find(lock, arguments->locks[0]) : EX_OSERR;
    status = status ? status : lease_get(arguments, lock);
    free(lock);
    return status;
}

/* --- giving back ------------------------------------------------------------------- */

static bool lease_read_token(const struct leaserun_arguments *arguments, char *token, size_t size)
{
    if (arguments->token) {
        snprintf(token, size, "%s", arguments->token);
        if (strlen(arguments->token) >= size) {
            token[0] = '\0';
        }
    } else if (!fgets(token, (int)size, stdin)) {
        token[0] = '\0';
    }
    size_t digits = strspn(token, "0123456789");
    bool ends = token[digits] == '\0' || (token[digits] == '\n' && !arguments->token);
    token[digits] = '\0';
    return digits > 0 && ends;
}

int leaserun_lease_put(const struct leaserun_arguments *arguments)
{
    char token[LEASE_TOKEN_SIZE];
    const char *name = arguments->locks[0];
    struct leaserun_lock *lock = calloc(1, sizeof *lock);
    int status = lock ? lease_find(lock, name) : EX_OSERR;
    free(lock);
    if (status) {
        return status;
    }
    if (!lease_read_token(arguments, token, sizeof token)) {
        warnx(
            "%s: the token, a number as --get prints it, is missing or wrong: it is an argument or a line of standard "
            "input",
            name);
        return EX_USAGE;
    }
    if (setxattr(name, "user.lease.release", token, strlen(token), 0) == 0) {
        return 0;
    }
    if (errno == ESTALE || errno == ENOENT || errno == ENODATA) {
        warnx("%s is not held with the token %s: it has run out, was given back, or is another's", name, token);
        return EX_TEMPFAIL;
    }
    return leaserun_failure(name, errno);
}
