/* undo: see undo.h.
 *
 * It reads from the mount table which mounts were moved already, so it does not matter when the daemon is killed.
 */
#include "fs/daemon/undo.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/log.h"
#include "backend/system.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/sdnotify.h"
#include "fs/daemon/takeover.h"

#define UNDO_LIMIT 15000  /* milliseconds until a new daemon is killed that is stopped, or hangs */
#define UNDO_ANSWERS 5000 /* milliseconds without a call through the new mount, while a copy of it is left */
#define UNDO_BUFFER (1 << 17)
#define UNDO_CANCEL 'c'
#define UNDO_RUN 'u'

struct undo {
    pid_t child;
    int socket;
};

/* --- in the child ------------------------------------------------------------------- */

/* The old mount goes below the new one, which is then detached, so that there is always a mount. */
static int undo_move(const struct undo_mounts *m)
{
    g_autofree char *old = g_strdup_printf("/proc/self/fd/%d", m->root);
    if (!mountpoint_is_at(m->tree, m->path)) {
        return 0; /* it never got there */
    }
    if (mountpoint_is_top(m->root, m->path) && umount2(old, MNT_DETACH) < 0) {
        return -errno;
    }
    if (!mountpoint_is_at(m->root, m->path) &&
        move_mount(m->copy, "", AT_FDCWD, m->path, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_BENEATH) < 0) {
        return -errno;
    }
    return umount2(m->path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

static void undo_answer(int connection, const struct fuse_in_header *request)
{
    struct {
        struct fuse_out_header header;
        struct fuse_init_out init;
    } reply = {.header = {.unique = request->unique, .len = sizeof reply.header, .error = -ESTALE},
               .init = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096}};
    switch (request->opcode) {
    case FUSE_INIT: /* the others wait for it */
        reply.header.error = 0;
        reply.header.len = sizeof reply;
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    default:
        break;
    }
    ssize_t written = write(connection, &reply, reply.header.len);
    (void)written; /* the caller may be gone */
}

/* Until the new mount is gone: ENODEV. */
static void undo_serve(int connection)
{
    struct pollfd readable = {.fd = connection, .events = POLLIN};
    struct fuse_in_header *request = g_malloc(UNDO_BUFFER);
    ssize_t got = 1;
    while ((got > 0 || errno == EINTR || errno == EAGAIN || errno == ENOENT) && poll(&readable, 1, UNDO_ANSWERS) != 0) {
        got = read(connection, request, UNDO_BUFFER);
        if (got >= (ssize_t)sizeof *request) {
            undo_answer(connection, request);
        }
    }
    g_free(request);
}

static bool undo_has_ended(int daemon)
{
    struct pollfd ended = {.fd = daemon, .events = POLLIN};
    return poll(&ended, 1, 0) > 0;
}

/* Is it to be undone?  A new daemon that is stopped is killed: it must not go on later. */
static bool undo_await_order(const struct undo_mounts *m, int socket, pid_t daemon)
{
    struct pollfd readable = {.fd = socket, .events = POLLIN};
    char order = UNDO_RUN;
    int ready;
    do {
        ready = poll(&readable, 1, UNDO_LIMIT);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0 && !undo_has_ended(m->daemon)) {
        sdnotify_main_pid(m->manager, m->pid); /* before the manager sees its main process killed */
        kill(daemon, SIGKILL);
    }
    bool ordered = recv(socket, &order, 1, 0) == 1;
    bool undone = !undo_has_ended(m->daemon) && !(ordered && order == UNDO_CANCEL);
    if (undone) {
        sdnotify_main_pid(m->manager, m->pid);
    }
    return undone;
}

static void G_GNUC_NORETURN undo_child(const struct undo_mounts *m, int socket, pid_t daemon)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE};
    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++) {
        signal(signals[i], SIG_IGN);
    }
    if (!undo_await_order(m, socket, daemon)) {
        _exit(EXIT_SUCCESS);
    }
    int result = undo_move(m);
    if (result < 0) {
        log_error("cannot put the old mount back to %s: %s", m->path, g_strerror(-result));
    }
    syscall(SYS_pidfd_send_signal, m->daemon, TAKEOVER_UNDONE, NULL, 0);
    send(socket, "", 1, MSG_NOSIGNAL);
    close(m->lock); /* a caller with a directory of the new mount may keep us here */
    undo_serve(m->connection);
    _exit(EXIT_FAILURE);
}

/* --- in the new daemon ---------------------------------------------------------------- */

int undo_start(const struct undo_mounts *mounts, struct undo **ret_undo)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        return -errno;
    }
    pid_t daemon = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        undo_child(mounts, ends[1], daemon);
    }
    int error = errno;
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return -error;
    }
    *ret_undo = g_new(struct undo, 1);
    **ret_undo = (struct undo){.child = child, .socket = ends[0]};
    return 0;
}

/* Sends an order, awaits its effect, and frees `undo`. */
static void undo_order(struct undo *undo, char order)
{
    char answer;
    ssize_t got;
    if (!undo) {
        return;
    }
    send(undo->socket, &order, 1, MSG_NOSIGNAL);
    do {
        got = recv(undo->socket, &answer, 1, 0);
    } while (got < 0 && errno == EINTR);
    close(undo->socket);
    waitpid(undo->child, NULL, got > 0 ? WNOHANG : 0); /* it may have calls to answer */
    g_free(undo);
}

void undo_cancel(struct undo *undo)
{
    undo_order(undo, UNDO_CANCEL);
}

void undo_run(struct undo *undo)
{
    undo_order(undo, UNDO_RUN);
}
