/* starter: starts the next daemon; see starter.h. */
#include "fs/daemon/starter.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/system.h"

#define STARTER_NAME "leasefs-starter" /* as ps(1) shows it */
#define STARTER_SOCKET (STDERR_FILENO + 1)
#define STARTER_PROGRAM (STDERR_FILENO + 2) /* the program's file: its name may be gone */

extern char **environ;

struct starter {
    char *program; /* its name */
    char *directory;
    char *const *arguments;
};

static void G_GNUC_NORETURN starter_execute(const struct starter *s)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 1; i < SIGRTMAX; i++) {
        signal(i, SIG_DFL);
    }
    int moved = chdir(s->directory);
    (void)moved; /* if the directory is gone, no argument can refer to it */
    g_setenv(STARTER_ENVIRONMENT, "1", TRUE);
    execv(s->program, s->arguments);
    fexecve(STARTER_PROGRAM, s->arguments, environ);
    _exit(EXIT_FAILURE);
}

/* Reports when the program has ended. */
static bool starter_reap(int children)
{
    struct signalfd_siginfo signal;
    bool ended = false;
    if (read(children, &signal, sizeof signal) < 0 && errno != EAGAIN) {
        return false;
    }
    while (waitpid(-1, NULL, WNOHANG) > 0) {
        ended = true;
    }
    return !ended || send(STARTER_SOCKET, "", 1, MSG_NOSIGNAL) == 1;
}

static bool starter_obey(const struct starter *s)
{
    char byte;
    ssize_t got = recv(STARTER_SOCKET, &byte, 1, 0);
    if (got > 0 && fork() == 0) {
        starter_execute(s);
    }
    return got > 0 || (got < 0 && errno == EINTR);
}

static void G_GNUC_NORETURN starter_run(const struct starter *s, int socket, int program)
{
    sigset_t set;
    int aside = fcntl(program, F_DUPFD, STARTER_PROGRAM + 1), other = fcntl(socket, F_DUPFD, STARTER_PROGRAM + 1);
    dup3(other, STARTER_SOCKET, O_CLOEXEC);
    dup3(aside, STARTER_PROGRAM, O_CLOEXEC);
    closefrom(STARTER_PROGRAM + 1);
    prctl(PR_SET_NAME, STARTER_NAME);
    if (chdir("/") < 0) {
        _exit(EXIT_FAILURE);
    }
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int children = signalfd(-1, &set, SFD_CLOEXEC);
    struct pollfd ready[] = {{.fd = STARTER_SOCKET, .events = POLLIN}, {.fd = children, .events = POLLIN}};
    bool more = children >= 0;
    while (more) {
        if (poll(ready, G_N_ELEMENTS(ready), -1) > 0) {
            more = (!ready[1].revents || starter_reap(children)) && (!ready[0].revents || starter_obey(s));
        }
    }
    _exit(EXIT_SUCCESS);
}

int starter_start(char *const *arguments)
{
    int ends[2];
    struct starter s = {
        .program = g_file_read_link("/proc/self/exe", NULL), .directory = g_get_current_dir(), .arguments = arguments};
    int program = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    int result = !s.program || program < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0 ? -errno : 0;
    pid_t pid = result < 0 ? -1 : fork();
    if (pid == 0) {
        starter_run(&s, ends[1], program);
    }
    if (result == 0) {
        result = pid < 0 ? -errno : ends[0];
        close(ends[1]);
    }
    if (program >= 0) {
        close(program);
    }
    g_free(s.program);
    g_free(s.directory);
    return result;
}
