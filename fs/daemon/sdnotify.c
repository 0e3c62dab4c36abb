/* sdnotify: one datagram for each change of state; see sdnotify.h.
 *
 * By hand, since libsystemd would be one more library for thirty lines.
 */
#include "fs/daemon/sdnotify.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/log.h"

#define SDNOTIFY_FIRST 3 /* the first descriptor of a service manager, see sd_listen_fds(3) */

int sdnotify_open(void)
{
    const char *name = g_getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = name ? strlen(name) : 0;
    if (length == 0) {
        return -1;
    }
    if ((name[0] != '/' && name[0] != '@') || length >= sizeof address.sun_path) {
        log_warning("NOTIFY_SOCKET is neither a path nor an abstract socket: nobody is told of the start");
        return -1;
    }
    memcpy(address.sun_path, name, length);
    if (name[0] == '@') {
        address.sun_path[0] = '\0'; /* abstract: counted, not terminated */
    }
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, size) < 0) {
        log_warning("cannot reach NOTIFY_SOCKET %s: %s", name, g_strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

static void sdnotify_send(int fd, const char *text)
{
    ssize_t sent;
    do {
        sent = fd < 0 ? 0 : write(fd, text, strlen(text));
    } while (sent < 0 && errno == EINTR);
}

void sdnotify_store(int fd, const char *name, int descriptor)
{
    g_autofree char *text = g_strdup_printf("FDSTORE=1\nFDNAME=%s", name);
    char control[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec data = {.iov_base = text, .iov_len = strlen(text)};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof descriptor)};
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    ssize_t sent;
    do {
        sent = fd < 0 || descriptor < 0 ? 0 : sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
}

void sdnotify_drop(int fd, const char *name)
{
    g_autofree char *text = g_strdup_printf("FDSTOREREMOVE=1\nFDNAME=%s", name);
    sdnotify_send(fd, text);
}

int sdnotify_take(const char *name)
{
    const char *pid = g_getenv("LISTEN_PID"), *names = g_getenv("LISTEN_FDNAMES");
    if (!names || !pid || g_ascii_strtoll(pid, NULL, 10) != getpid()) {
        return -1;
    }
    g_auto(GStrv) all = g_strsplit(names, ":", -1);
    int count = 0;
    while (all[count] && strcmp(all[count], name) != 0) {
        count++;
    }
    int fd = all[count] ? SDNOTIFY_FIRST + count : -1;
    return fd < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -1 : fd;
}

void sdnotify_ready(int fd, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_autofree char *status = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    g_autofree char *text = g_strconcat("READY=1\nSTATUS=", g_strdelimit(status, "\n", ' '), NULL);
    sdnotify_send(fd, text);
}

double sdnotify_watchdog(void)
{
    const char *interval = g_getenv("WATCHDOG_USEC"), *pid = g_getenv("WATCHDOG_PID");
    if (!interval || (pid && g_ascii_strtoll(pid, NULL, 10) != getpid())) {
        return 0;
    }
    return (double)g_ascii_strtoull(interval, NULL, 10) / 1e6 / 2; /* one that comes late is still in time */
}

void sdnotify_alive(int fd)
{
    sdnotify_send(fd, "WATCHDOG=1");
}

void sdnotify_stopping(int fd)
{
    sdnotify_send(fd, "STOPPING=1\nSTATUS=Ending");
}

void sdnotify_main_pid(int fd, pid_t pid)
{
    g_autofree char *text = g_strdup_printf("MAINPID=%d", (int)pid);
    sdnotify_send(fd, text);
}
