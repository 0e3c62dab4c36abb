/* sdnotify: one datagram for each change of state; see sdnotify.h.
 *
 * By hand, since libsystemd would be one more library for thirty lines.
 */
#include "fs/daemon/sdnotify.h"

#include <errno.h>
#include <glib.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/log.h"

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
