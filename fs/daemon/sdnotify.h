/* sdnotify: reports the daemon's state to the service manager, as sd_notify(3) does.
 *
 * The socket is opened once, before the daemon gives up the rights to reach it.  It is
 * no error if nobody listens.
 */
#ifndef FS_DAEMON_SDNOTIFY_H
#define FS_DAEMON_SDNOTIFY_H

#include <sys/types.h>

/* A descriptor of the socket that $NOTIFY_SOCKET names; the caller closes it.  -1 if there is none: then the functions
 * below do nothing. */
int sdnotify_open(void);

/* The text is the status that systemctl(1) shows. */
void sdnotify_ready(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sdnotify_stopping(int fd);

/* The manager keeps a copy of the descriptor for the service's next process, which finds it by that name with
 * sdnotify_take.  Removed if the service ends, or by sdnotify_drop. */
void sdnotify_store(int fd, const char *name, int descriptor);
void sdnotify_drop(int fd, const char *name);
/* Once for each name.  -1: there is none. */
int sdnotify_take(const char *name);

/* The service's main process is this one from now on. */
void sdnotify_main_pid(int fd, pid_t pid);

/* Seconds between two calls of sdnotify_alive; 0: no watchdog. */
double sdnotify_watchdog(void);
void sdnotify_alive(int fd);

#endif
