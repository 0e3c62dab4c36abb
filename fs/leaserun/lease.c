/* lease: see lease.h.
 *
 * A lease goes over to the parent of a process that has closed the file and exits at
 * once.  So a child takes it, and exits with the file open: then it has no owner.
 */
#include "fs/leaserun/lease.h"

#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <sysexits.h>
#include <unistd.h>

#include "backend/clock.h"
#include "fs/leaserun/lock.h"

#define LEASE_LOOK_AGAIN 1000 /* milliseconds: the end of another mount's lock may not be told */
#define LEASE_TOKEN_SIZE 32

/* What a child has to tell. */
struct lease_answer {
    int error; /* 0: it is taken */
    char token[LEASE_TOKEN_SIZE];
};

static int lease_failed(const char *name, int error)
{
    errno = error;
    warn("%s", name);
    switch (error) {
    case ENOLCK:
    case EIO:
    case ENOTCONN:
    case ECONNABORTED:
        return EX_UNAVAILABLE;
    case ENOSPC:
    case EDQUOT:
        return EX_CANTCREAT;
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EROFS:
        return EX_NOINPUT;
    default:
        return EX_OSERR;
    }
}

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

static int lease_try(const struct leaserun_lock *lock, int64_t ttl, struct lease_answer *answer)
{
    int fds[2];
    *answer = (struct lease_answer){.error = EIO};
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return errno;
    }
    pid_t pid = fork();
    if (pid == 0) {
        answer->error = lease_take(lock->name, ttl, answer->token, sizeof answer->token);
        ssize_t size = write(fds[1], answer, sizeof *answer);
        _exit(size < 0);
    }
    int error = errno;
    close(fds[1]);
    ssize_t size = pid < 0 ? -1 : read(fds[0], answer, sizeof *answer);
    close(fds[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
    return pid < 0 ? error : size == (ssize_t)sizeof *answer ? answer->error : EIO;
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

int leaserun_lease_get(const struct leaserun_options *options)
{
    struct lease_answer answer;
    struct leaserun_lock *lock = calloc(1, sizeof *lock);
    int status = lock ? leaserun_lock_find(lock, options->locks[0]) : EX_OSERR, error;
    if (status == 0 && lock->name[strlen(lock->name) - 1] == '-') {
        warnx("%s is a queue, where --get could only wait: name a lock", options->locks[0]);
        status = EX_USAGE;
    }
    if (status) {
        free(lock);
        return status;
    }
    int64_t ttl = options->ttl ? options->ttl : lock->ttl;
    clock_ms until = options->wait < 0 ? CLOCK_NEVER : clock_now() + options->wait;
    while ((error = lease_try(lock, ttl, &answer)) == EEXIST && clock_now() < until) {
        lease_await(lock->name, until);
    }
    if (error == 0) {
        puts(answer.token);
        if (fflush(stdout) != 0) {
            warn("standard output"); /* nobody would know how to give it back */
            setxattr(lock->name, "user.lease.release", answer.token, strlen(answer.token), 0);
            status = EX_IOERR;
        }
    } else if (error == EEXIST) {
        if (options->verbose) {
            warnx("%s is held by another", lock->name);
        }
        status = options->conflict;
    } else {
        status = lease_failed(lock->name, error);
    }
    free(lock);
    return status;
}

/* --- giving back ------------------------------------------------------------------- */

static bool lease_read_token(const struct leaserun_options *options, char *token, size_t size)
{
    if (options->token) {
        snprintf(token, size, "%s", options->token);
        if (strlen(options->token) >= size) {
            token[0] = '\0';
        }
    } else if (!fgets(token, (int)size, stdin)) {
        token[0] = '\0';
    }
    size_t digits = strspn(token, "0123456789");
    bool ends = token[digits] == '\0' || (token[digits] == '\n' && !options->token);
    token[digits] = '\0';
    return digits > 0 && ends;
}

int leaserun_lease_put(const struct leaserun_options *options)
{
    char token[LEASE_TOKEN_SIZE];
    const char *name = options->locks[0];
    struct leaserun_lock *lock = calloc(1, sizeof *lock);
    int status = lock ? leaserun_lock_find(lock, name) : EX_OSERR;
    if (status == 0 && lock->name[strlen(lock->name) - 1] == '-') {
        warnx("%s is a queue, not a lock", name);
        status = EX_USAGE;
    }
    free(lock);
    if (status) {
        return status;
    }
    if (!lease_read_token(options, token, sizeof token)) {
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
    return lease_failed(name, errno);
}
