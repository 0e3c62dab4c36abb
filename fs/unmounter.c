/* unmounter: see unmounter.h.
 *
 * A byte asks the child to unmount; the end of the stream ends it.  It answers
 * with the text of an error, empty if there was none.
 */
#include "unmounter.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mountpoint.h"

#define UNMOUNTER_NAME "leasefs-umount" /* as ps(1) shows it */
#define UNMOUNTER_PATIENCE 10000        /* milliseconds */
#define UNMOUNTER_SOCKET (STDERR_FILENO + 1)

struct unmounter {
    pid_t pid;
    int socket;
};

/* --- in the child --------------------------------------------------------------- */

/* Of the daemon's descriptors it keeps one: a copy of any other would keep a lock
 * locked, a pipe or the mount alive. */
static void unmounter_let_go(int socket)
{
    int null = open("/dev/null", O_RDWR);
    dup2(socket, UNMOUNTER_SOCKET); /* open while fusermount3 runs */
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++) {
        dup2(null, fd);
    }
    closefrom(UNMOUNTER_SOCKET + 1);
    if (chdir("/") < 0) {
        return; /* it keeps that directory busy, no more */
    }
}

/* Of root's rights it needs two: to unmount, and to find the way there. */
static void unmounter_keep_rights(void)
{
    if (geteuid() == 0) {
        capng_clear(CAPNG_SELECT_ALL);
        capng_updatev(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_BOUNDING_SET, CAP_SYS_ADMIN,
                      CAP_DAC_READ_SEARCH, -1);
        capng_apply(CAPNG_SELECT_ALL);
    }
}

static void G_GNUC_NORETURN unmounter_run(const char *mountpoint, int socket)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    char asked;
    ssize_t got;
    for (size_t i = 0; i < G_N_ELEMENTS(signals); i++) {
        signal(signals[i], SIG_IGN); /* meant for the daemon, sent to its group or service */
    }
    prctl(PR_SET_NAME, UNMOUNTER_NAME);
    unmounter_let_go(socket);
    unmounter_keep_rights();
    do {
        got = read(UNMOUNTER_SOCKET, &asked, 1);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        char error[1024] = "";
        mountpoint_clear(mountpoint, error, sizeof error);
        got = write(UNMOUNTER_SOCKET, error, strlen(error) + 1);
    }
    _exit(got < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* --- in the daemon -------------------------------------------------------------- */

int unmounter_start(const char *mountpoint, struct unmounter **ret_unmounter)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        return -errno;
    }
    pid_t pid = fork();
    if (pid == 0) {
        unmounter_run(mountpoint, ends[1]);
    }
    int error = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return -error;
    }
    struct unmounter *unmounter = g_new(struct unmounter, 1);
    *unmounter = (struct unmounter){.pid = pid, .socket = ends[0]};
    *ret_unmounter = unmounter;
    return 0;
}

int unmounter_unmount(struct unmounter *unmounter, char *error, size_t error_size)
{
    struct pollfd answer = {.fd = unmounter->socket, .events = POLLIN};
    int ready;
    while (send(unmounter->socket, "", 1, MSG_NOSIGNAL) < 0 && errno == EINTR) {
    }
    do {
        ready = poll(&answer, 1, UNMOUNTER_PATIENCE);
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
        close(unmounter->socket);
        waitpid(unmounter->pid, NULL, WNOHANG); /* if it has not ended yet, it will */
        g_free(unmounter);
    }
}
