/* keeper: the process that has the lock's file open; see
 * keeper.h. */
#include "fs/leaserun/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/leaserun/detach.h"
#include "fs/leaserun/terms.h"
#include "fs/options/duration.h"

/* How long a keeper's end is awaited: it hangs when its daemon does. */
#define KEEPER_END_MS 1000

/* Between two looks whether the next mount is there. */
#define KEEPER_RETRY_MS 25

/* The next daemon may still be reading what its store kept.  Shorter than LEASERUN_BREAK_MARGIN. */
#define KEEPER_UNKNOWN_MS 1000

/* How often it looks at once for a new ttl: in all, for a quarter of a second. */
#define KEEPER_FIRST_LOOKS 8

/* A message to the keeper: the process to kill, in the form of kill(2); 0: release the lock. */
typedef pid_t keeper_order;

struct keeper {
    const struct leaserun_claim *claim;
    int fd;
    struct leaserun_view *view;
    int socket;
    pid_t target; /* 0: no command yet */
    clock_ms deadline;
    int64_t ttl;        /* see struct leaserun_view */
    int64_t wanted_ttl; /* the ttl that the lock has, or will have when the store has it too */
    unsigned looks;     /* since it was held */
    char token[32];
    char name[NAME_MAX + 1]; /* in its directory; of a ticket, its own */
    bool lost;
    int gone;         /* the error of a mount whose daemon has ended, while the next one is awaited; or 0 */
    clock_ms unknown; /* since when the next mount has not known the lock; 0: it has */
};

/* --- the lock's attributes ------------------------------------------------------- */

static int keeper_text(const struct keeper *k, const char *name, char *text, size_t size)
{
    ssize_t length = fgetxattr(k->fd, name, text, size - 1);
    if (length < 0) {
        return -errno;
    }
    text[length] = '\0';
    return 0;
}

static int keeper_time(const struct keeper *k, const char *name, int64_t *ret_ms)
{
    char text[64];
    int result = keeper_text(k, name, text, sizeof text);
    return result < 0 ? result : duration_parse(text, strlen(text), ret_ms);
}

/* --- reporting --------------------------------------------------------------------- */

static void keeper_send(const struct keeper *k, const struct leaserun_report *report)
{
    /* a failure means that the reader is dead, which reading orders notices */
    send(k->socket, report, sizeof *report, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void keeper_report(const struct keeper *k, enum leaserun_report_kind kind, int error)
{
    keeper_send(k, &(struct leaserun_report){.kind = kind, .error = error});
}

static void keeper_show(struct keeper *k, clock_ms deadline, int64_t ttl)
{
    const uint64_t one = 1;
    bool earlier = deadline < k->deadline;
    k->deadline = deadline;
    k->ttl = ttl;
    atomic_store(&k->view->ttl, ttl);
    atomic_store(&k->view->deadline, deadline);
    while (earlier && write(k->claim->wake, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* A new ttl counts once the store has renewed the lock with it.  A renewed lock hardly ever has less than two thirds of
 * its ttl left. */
static int64_t keeper_effective_ttl(const struct keeper *k, int64_t remaining)
{
    int64_t seen = remaining > k->ttl ? remaining : k->ttl;
    return remaining >= k->wanted_ttl / 3 * 2 || seen > k->wanted_ttl ? k->wanted_ttl : seen;
}

static int64_t keeper_bound(const struct keeper *k, int64_t ms)
{
    return k->claim->max_outage && k->claim->max_outage < ms ? k->claim->max_outage : ms;
}

/* Until when it lasts: from before asking, so rather too early than too late. */
static int keeper_read(struct keeper *k, clock_ms *ret_deadline, int64_t *ret_remaining)
{
    clock_ms before = clock_now();
    int result = keeper_time(k, "user.lease.remaining", ret_remaining);
    result = result < 0 ? result : keeper_time(k, "user.lease.ttl", &k->wanted_ttl);
    if (result < 0) {
        return result;
    }
    k->wanted_ttl = keeper_bound(k, k->wanted_ttl);
    *ret_remaining = keeper_bound(k, *ret_remaining);
    *ret_deadline = before + *ret_remaining;
    return 0;
}

static int keeper_look(struct keeper *k)
{
    int64_t remaining;
    clock_ms deadline, before = k->deadline;
    int result = keeper_read(k, &deadline, &remaining);
    if (result == 0) {
        keeper_show(k, deadline, keeper_effective_ttl(k, remaining));
        if (deadline < before) {
            keeper_report(k, LEASERUN_SHORTENED, 0);
        }
    }
    return result;
}

static _Noreturn void keeper_refuse(const struct keeper *k, int error)
{
    keeper_report(k, LEASERUN_REFUSED, error);
    _exit(0);
}

/* --- acquiring ----------------------------------------------------------------------- */

static bool keeper_is_gone(int error)
{
    return error == ENOTCONN || error == ECONNABORTED;
}

/* 0 or -errno. */
static int keeper_lock(const struct keeper *k)
{
    int operation = (k->claim->shared ? LOCK_SH : LOCK_EX) | (k->claim->wait ? 0 : LOCK_NB);
    while (flock(k->fd, operation) != 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

/* The daemon ended while this waited.  Its file of the dead mount would count as one of the lock's. */
static void keeper_queue_again(struct keeper *k, int error)
{
    clock_ms until = clock_now() + k->claim->next_mount_wait;
    const char *name = strrchr(k->claim->lock->name, '/') + 1;
    close(k->fd);
    keeper_report(k, LEASERUN_RESTARTED, 0);
    while ((k->fd = leaserun_lock_reopen(k->claim->lock, name, true)) < 0) {
        if (!keeper_is_gone(-k->fd) && k->fd != -EINTR && k->fd != -EACCES) {
            keeper_refuse(k, -k->fd);
        }
        if (clock_now() >= until) {
            keeper_refuse(k, error);
        }
        poll(NULL, 0, KEEPER_RETRY_MS);
    }
}

static int keeper_set_time(const struct keeper *k, const char *name, int64_t ms)
{
    char text[32];
    int size = snprintf(text, sizeof text, "%lldms", (long long)ms);
    return fsetxattr(k->fd, name, text, (size_t)size, 0) == 0 ? 0 : -errno;
}

static void keeper_set_note(const struct keeper *k)
{
    const char *note = k->claim->note;
    if (note) {
        (void)!fsetxattr(k->fd, "user.lease.note", note, strlen(note), 0);
    }
}

static int keeper_try(struct keeper *k)
{
    int result = keeper_lock(k);
    if (result == 0 && k->claim->ttl) {
        result = keeper_set_time(k, "user.lease.ttl", k->claim->ttl);
    }
    if (result == 0) {
        keeper_set_time(k, "user.lease.guard", k->claim->guard); /* an older mount has no guards, and no notes */
        keeper_set_note(k);
        result = keeper_text(k, "user.lease.token", k->token, sizeof k->token);
    }
    return result < 0 ? result : keeper_look(k);
}

static void keeper_acquire(struct keeper *k)
{
    struct leaserun_report report = {.kind = LEASERUN_HELD};
    sigset_t all;
    int result;
    while ((result = keeper_try(k)) < 0) {
        if (!k->claim->wait || !keeper_is_gone(-result)) {
            keeper_refuse(k, -result);
        }
        keeper_queue_again(k, -result);
    }
    if (keeper_text(k, "user.lease.name", report.ticket, sizeof report.ticket) < 0) {
        report.ticket[0] = '\0';
    }
    report.token = strtoull(k->token, NULL, 10);
    snprintf(k->name, sizeof k->name, "%s", report.ticket[0] ? report.ticket : strrchr(k->claim->lock->name, '/') + 1);
    /* From here on it does not stop or end with the job. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_PDEATHSIG, 0);
    keeper_send(k, &report);
}

/* --- keeping --------------------------------------------------------------------------- */

/* leaserun and its watchdog were killed: the command goes first, then the lock. */
static _Noreturn void keeper_end_orphaned(const struct keeper *k)
{
    if (k->target) {
        kill(k->target, SIGKILL);
    }
    /* a zombie still exists for kill(2) */
    clock_ms until = clock_now() + leaserun_guard(k->ttl);
    while (k->target && kill(k->target, 0) == 0 && clock_now() < until) {
        poll(NULL, 0, 1);
    }
    _exit(0);
}

static void keeper_obey(struct keeper *k)
{
    keeper_order order;
    ssize_t size = recv(k->socket, &order, sizeof order, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) {
        return;
    }
    if (size != (ssize_t)sizeof order) {
        keeper_end_orphaned(k);
    }
    k->target = order ? order : k->target;
    if (!order) {
        flock(k->fd, LOCK_UN);
        close(k->fd); /* the end of a guard */
        keeper_report(k, LEASERUN_RELEASED, 0);
        _exit(0);
    }
}

static void keeper_lose(struct keeper *k, int error, clock_ms until)
{
    struct leaserun_report report = {.kind = LEASERUN_LOST, .error = error, .late = clock_now() >= k->deadline};
    k->lost = true;
    keeper_show(k, until + (error ? 0 : k->claim->delay), k->ttl);
    keeper_send(k, &report);
}

/* In memory the lock ended with its daemon. */
static void keeper_on_gone(struct keeper *k, int error)
{
    if (k->claim->resumes) {
        k->gone = error;
        k->unknown = 0;
    } else {
        keeper_lose(k, error, clock_now());
    }
}

/* Tries to move the lock to a file of the next mount: 0, or -errno. */
static int keeper_resume(struct keeper *k)
{
    int fd = leaserun_lock_reopen(k->claim->lock, k->name, false);
    if (fd < 0) {
        return fd == -ENOENT ? -ESTALE : fd;
    }
    if (fsetxattr(fd, "user.lease.resume", k->token, strlen(k->token), 0) != 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    close(k->fd);
    k->fd = fd;
    return 0;
}

static void keeper_return(struct keeper *k)
{
    int result = keeper_resume(k);
    clock_ms now = clock_now();
    if (result == 0) {
        k->gone = 0;
        return;
    }
    k->unknown = result != -ESTALE ? 0 : k->unknown ? k->unknown : now;
    if (k->unknown && now - k->unknown >= KEEPER_UNKNOWN_MS) {
        keeper_lose(k, 0, now);
    } else if (result == -EPERM || result == -EBUSY || result == -EINVAL || now >= k->deadline) {
        keeper_lose(k, k->gone, k->deadline);
    }
}

/* The lock is lost, or its daemon has ended.  A lock whose guard keeps it from others is shown with its token, and with
 * what is left of the guard. */
static void keeper_on_end(struct keeper *k)
{
    char token[sizeof k->token];
    clock_ms until;
    int64_t remaining;
    int result = keeper_read(k, &until, &remaining);
    bool guarded =
        result == 0 && keeper_text(k, "user.lease.token", token, sizeof token) == 0 && strcmp(token, k->token) == 0;
    bool lost = result == 0 || result == -ENODATA || result == -ESTALE;
    if (keeper_is_gone(-result)) {
        keeper_on_gone(k, -result);
        return;
    }
    until = !guarded ? clock_now() : until < k->deadline ? until : k->deadline;
    keeper_lose(k, lost ? 0 : -result, until);
}

/* When to look again: just after it should have been renewed; when it was not,
 * more and more often.  At first soon: a new ttl takes a round trip to the store. */
static int64_t keeper_pause(const struct keeper *k)
{
    if (k->gone) {
        return KEEPER_RETRY_MS;
    }
    if (k->ttl < k->wanted_ttl && k->looks < KEEPER_FIRST_LOOKS) {
        return 1 << k->looks;
    }
    int64_t beyond = k->deadline - k->ttl * 3 / 5 - clock_now();
    int64_t least = k->ttl / 20 > 5 ? k->ttl / 20 : 5, most = k->ttl / 3;
    return beyond < least ? least : beyond > most ? most : beyond;
}

static void keeper_await(struct keeper *k, int64_t pause)
{
    struct pollfd fds[2] = {{.fd = k->socket, .events = POLLIN}, {.fd = k->lost || k->gone ? -1 : k->fd}};
    int timeout = pause < 0 ? 0 : pause > INT_MAX ? INT_MAX : (int)pause;
    poll(fds, 2, timeout);
    if (fds[0].revents) {
        keeper_obey(k);
    }
    if (fds[1].revents & (POLLERR | POLLHUP)) {
        keeper_on_end(k);
    }
}

static _Noreturn void keeper_run(const struct leaserun_claim *claim, struct leaserun_view *view, int socket,
                                 pid_t parent)
{
    struct keeper k = {.claim = claim, .fd = claim->fd, .view = view, .socket = socket};
    if (claim->title && *claim->title) {
        prctl(PR_SET_NAME, claim->title); /* before the mount meets this process */
    }
    /* keep nothing of the caller: its pipes must end with the command, and its directory may be unmounted */
    leaserun_detach((int[]){claim->fd, claim->wake, socket}, 3);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(0);
    }
    keeper_acquire(&k);
    for (;;) {
        keeper_await(&k, k.lost ? INT_MAX : keeper_pause(&k));
        if (k.gone && !k.lost) {
            keeper_return(&k);
        }
        int result = k.lost || k.gone ? 0 : keeper_look(&k);
        k.looks++;
        if (result == -ENODATA) {
            keeper_lose(&k, 0, clock_now());
        } else if (keeper_is_gone(-result)) {
            keeper_on_gone(&k, -result);
        }
    }
}

/* --- leaserun's side ---------------------------------------------------------------------- */

int leaserun_keeper_start(struct leaserun_keeper *keeper, const struct leaserun_claim *claim)
{
    int sockets[2];
    pid_t parent = getpid();
    struct leaserun_view *view = mmap(NULL, sizeof *view, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (view == MAP_FAILED) {
        return -errno;
    }
    keeper->view = view;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return -errno;
    }
    keeper->pid = fork();
    if (keeper->pid < 0) {
        int error = errno;
        close(sockets[0]);
        close(sockets[1]);
        return -error;
    }
    if (keeper->pid == 0) {
        close(sockets[0]);
        keeper_run(claim, view, sockets[1], parent);
    }
    close(sockets[1]);
    keeper->socket = sockets[0];
    return 0;
}

int leaserun_keeper_read_report(struct leaserun_keeper *keeper, struct leaserun_report *report)
{
    ssize_t size = recv(keeper->socket, report, sizeof *report, MSG_DONTWAIT);
    if (size == (ssize_t)sizeof *report) {
        return 1;
    }
    return size < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -EPIPE;
}

static void keeper_send_order(const struct leaserun_keeper *keeper, keeper_order order)
{
    send(keeper->socket, &order, sizeof order, MSG_NOSIGNAL);
}

void leaserun_keeper_watch(struct leaserun_keeper *keeper, pid_t target)
{
    keeper_send_order(keeper, target);
}

void leaserun_keeper_release(struct leaserun_keeper *keeper)
{
    keeper_send_order(keeper, 0);
}

void leaserun_keeper_kill(struct leaserun_keeper *keeper)
{
    kill(keeper->pid, SIGKILL);
    /* What it had open is closed before a pidfd tells of its end (exit_files() before exit_notify(), Linux
     * kernel/exit.c). */
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, keeper->pid, 0), .events = POLLIN};
    if (end.fd >= 0) {
        poll(&end, 1, KEEPER_END_MS);
        close(end.fd);
    }
}
