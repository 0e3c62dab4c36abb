/* keeper: the daemon's side of it; see keeper.h. */
#include "fs/daemon/keeper.h"

#include <errno.h>
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/log.h"
#include "backend/system.h"
#include "fs/daemon/keeper_process.h"
#include "fs/daemon/link.h"
#include "fs/keep/memory.h"
#include "fs/options/options.h"

#define KEEPER_TIMEOUT 10000 /* milliseconds */

struct keeper {
    pid_t pid;
    int socket;
    int walker; /* -1: given away */
    bool lasts; /* longer than the daemon */
};

int keeper_start(const struct options *options, bool managed, struct keeper **ret_keeper)
{
    int ends[2], walker[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
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
        keeper_run(options, managed, ends[1], walker[1], daemon);
    }
    int error = errno;
    close(ends[1]);
    close(walker[1]);
    if (pid < 0) {
        close(ends[0]);
        close(walker[0]);
        return -error;
    }
    struct keeper *keeper = g_new(struct keeper, 1);
    *keeper = (struct keeper){.pid = pid, .socket = ends[0], .walker = walker[0], .lasts = options->keep > 0};
    *ret_keeper = keeper;
    return 0;
}

int keeper_take_walker(struct keeper *keeper)
{
    int walker = keeper->walker;
    keeper->walker = -1;
    return walker;
}

/* --- a daemon that crashes: its threads would be awaited before it is dead, for a core file --- */

static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGQUIT, SIGSEGV, SIGSYS, SIGTRAP};
static struct sigaction crash_actions[G_N_ELEMENTS(crashes)]; /* what else is to happen, as in a sanitizer */
static int crash_socket = -1;
static struct keep *crash_keep;
static pid_t crash_process;
static char crash_stack[65536]; /* the other one may be full */

/* The next daemon goes on as soon as the thread that reads the kernel's messages is in here for good. */
static void keeper_crashed(int number, siginfo_t *info, void *context)
{
    static const struct link_message crashed = {.version = LINK_VERSION, .kind = LINK_CRASHED};
    (void)context;
    if (gettid() != crash_process) {
        tgkill(crash_process, crash_process, number);
        for (;;) {
            pause();
        }
    }
    keep_unlock(crash_keep);
    ssize_t sent = send(crash_socket, &crashed, sizeof crashed, MSG_NOSIGNAL);
    (void)sent;
    for (size_t i = 0; i < G_N_ELEMENTS(crashes); i++) {
        sigaction(crashes[i], &crash_actions[i], NULL);
    }
    if (info->si_code <= 0) { /* sent: it does not come again by itself */
        raise(number);
    }
}

static void keeper_catch_crashes(int socket, struct keep *keep)
{
    struct sigaction action = {.sa_sigaction = keeper_crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    stack_t stack = {.ss_sp = crash_stack, .ss_size = sizeof crash_stack};
    crash_socket = socket;
    crash_keep = keep;
    crash_process = getpid();
    sigaltstack(&stack, NULL);
    for (size_t i = 0; i < G_N_ELEMENTS(crashes); i++) {
        sigaction(crashes[i], NULL, &crash_actions[i]);
        if (crash_actions[i].sa_handler != SIG_IGN) {
            sigaction(crashes[i], &action, NULL);
        }
    }
}

void keeper_give(struct keeper *keeper, const struct keeper_gift *gift)
{
    char error[1024] = "";
    struct link_message message = {.kind = LINK_GIVE};
    int listening = keeper->lasts ? link_listen(gift->device, error, sizeof error) : -1;
    const int descriptors[LINK_DESCRIPTORS] = {gift->connection, keep_fd(gift->keep), gift->store, listening,
                                               gift->abort};
    g_strlcpy(message.text, keep_options(gift->keep), sizeof message.text);
    if (listening < 0 && keeper->lasts) {
        log_warning("%s", error);
    }
    if (gift->abort < 0) {
        log_info("a mount whose daemon is gone ends later than it should, since its connection cannot be reached (%s): "
                 "is /sys/fs/fuse/connections mounted?",
                 g_strerror(-gift->abort));
    }
    int result = link_send(keeper->socket, &message, descriptors, LINK_DESCRIPTORS);
    if (result < 0) {
        log_warning("cannot reach the process that keeps the mount (%d): %s", (int)keeper->pid, g_strerror(-result));
    }
    if (listening >= 0) {
        close(listening);
    }
    keeper_catch_crashes(keeper->socket, gift->keep);
}

void keeper_publish(struct keeper *keeper)
{
    static const struct link_message serving = {.kind = LINK_SERVING};
    link_send(keeper->socket, &serving, NULL, 0);
}

int keeper_descriptor(const struct keeper *keeper)
{
    return keeper->socket;
}

bool keeper_must_end(struct keeper *keeper)
{
    struct link_message message;
    ssize_t got = link_receive(keeper->socket, &message, NULL);
    return got > 0 && message.kind == LINK_END;
}

int keeper_unmount(struct keeper *keeper, char *error, size_t error_size)
{
    struct link_message answer;
    int result = link_ask(keeper->socket, LINK_UNMOUNT, KEEPER_TIMEOUT, &answer, NULL);
    if (result == -ETIMEDOUT) {
        snprintf(error, error_size, "process %d was asked to unmount, and does not answer", (int)keeper->pid);
    } else if (result == -EPIPE || result == -ECONNRESET) {
        snprintf(error, error_size, "the process that unmounts (%d) is gone: use umount -l", (int)keeper->pid);
    } else if (result < 0) {
        g_strlcpy(error, answer.text, error_size);
    }
    return result;
}

void keeper_free(struct keeper *keeper)
{
    static const struct link_message bye = {.kind = LINK_BYE};
    if (keeper) {
        if (keeper->walker >= 0) {
            close(keeper->walker);
        }
        link_send(keeper->socket, &bye, NULL, 0);
        close(keeper->socket);
        waitpid(keeper->pid, NULL, WNOHANG); /* if it has not ended yet, it will */
        g_free(keeper);
    }
}
