/* watchdog: the process that kills the command in time when nobody else does.
 *
 * It makes no call on the mount, which may block for as long as a daemon does, and needs
 * nobody to tell it anything: it goes by the clock and by the deadlines that the keepers
 * show.  So the command dies in time also when leaserun is stopped or killed, and when a
 * keeper hears nothing from its daemon.
 *
 * The command is its child, and so are the orphans among the command's descendants: when
 * leaserun is killed they are still in sight.  When the watchdog is killed the command is
 * too, and its descendants become leaserun's.
 */
#ifndef FS_LEASERUN_WATCHDOG_H
#define FS_LEASERUN_WATCHDOG_H

#include "fs/leaserun/set.h"
#include "fs/leaserun/target.h"

enum leaserun_watchdog_report_kind {
    LEASERUN_STARTED, /* `value`: the command's process ID, or -errno */
    LEASERUN_STOPPED, /* `value`: by this signal */
    LEASERUN_ENDED,   /* `value`: as waitpid(2) tells */
};

struct leaserun_watchdog_report {
    enum leaserun_watchdog_report_kind kind;
    int value;
    bool killed; /* ENDED: by the watchdog, whose time had come */
};

struct leaserun_watchdog {
    pid_t pid;
    int socket; /* readable with a report, or when the watchdog was killed */
};

/* What the command does, as a child of `parent`. */
typedef void leaserun_watchdog_command(void *arg, pid_t parent);

/* Starts it, and as its child the command (NULL: that of `target` is there already).
 * STARTED is its first report; then `target->root` and `target->watchdog` are set.
 * -errno. */
int leaserun_watchdog_start(struct leaserun_watchdog *watchdog, struct leaserun_set *set,
                            struct leaserun_target *target, leaserun_watchdog_command *command, void *arg);

/* The next report: 1; 0: there is none yet; -EPIPE: it was killed. */
int leaserun_watchdog_read_report(const struct leaserun_watchdog *watchdog,
                                  struct leaserun_watchdog_report *ret_report);

/* The lock is lost, or will be: from now on it kills also what an ended command has left. */
void leaserun_watchdog_warn(const struct leaserun_watchdog *watchdog);

/* If somebody has stopped it, it goes on. */
void leaserun_watchdog_continue(const struct leaserun_watchdog *watchdog);

/* The locks are given back: it ends, and kills nothing. */
void leaserun_watchdog_dismiss(const struct leaserun_watchdog *watchdog);

#endif
