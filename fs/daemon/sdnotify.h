/* sdnotify: tells the service manager how it goes, as sd_notify(3) does.
 *
 * The socket is opened once, before the daemon gives up what it would need to
 * reach it, and written to later on.  That nobody listens is never an error.
 */
#ifndef FS_DAEMON_SDNOTIFY_H
#define FS_DAEMON_SDNOTIFY_H

/* A descriptor of the socket that $NOTIFY_SOCKET names, or -1 if there is none;
 * then the functions below do nothing.  Close it with close(2). */
int sdnotify_open(void);

/* Printed is what systemctl(1) shows as the status. */
void sdnotify_ready(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sdnotify_stopping(int fd);

/* Seconds between two calls of sdnotify_alive, or 0 if nobody watches us. */
double sdnotify_watchdog(void);
void sdnotify_alive(int fd);

#endif
