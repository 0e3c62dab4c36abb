/* watchdog: the process that kills the command in time if nobody else does.
 *
 * It makes no call on the mount, which may block as long as a daemon does, and waits for no
 * message: it goes by the clock and by the deadlines that the keepers show.  So the command
 * dies in time also when leaserun is stopped or killed, and when the daemon does not answer
 * a keeper.
 *
 * The command is its child, and so are the orphans among the command's descendants: they
 * stay visible when leaserun is killed.  When the watchdog is killed, so is the command, and
 * its descendants become leaserun's.
 */
#ifndef FS_LEASERUN_WATCHDOG_H
#define FS_LEASERUN_WATCHDOG_H

#include "fs/leaserun/set.h"
#include "fs/leaserun/target.h"

enum leaserun_watchdog_report_kind {
    LEASERUN_STARTED, /* `value`: the command's process ID, or -errno */
    LEASERUN_STOPPED, /* `value`: the signal */
    LEASERUN_ENDED,   /* `value`: its wait status (waitpid(2)) */
};

struct leaserun_watchdog_report {
    enum leaserun_watchdog_report_kind kind;
    int value;
    bool killed; /* ENDED: the watchdog killed it */
};

struct leaserun_watchdog {
    pid_t pid;
    int socket; /* readable with a report, or after the watchdog was killed */
};

/* Becomes the command, in a child of `parent`. */
typedef void leaserun_watchdog_command(void *arg, pid_t parent);

/* Starts the watchdog and, as its child, the command (NULL: that of `target` runs already).  STARTED is the first
 * report, and `target->root` and `target->watchdog` are set then.  0 or -errno. */
int leaserun_watchdog_start(struct leaserun_watchdog *watchdog, struct leaserun_set *set,
                            struct leaserun_target *target, leaserun_watchdog_command *command, void *arg);

/* The next report: 1; 0: none yet; -EPIPE: the watchdog was killed. */
int leaserun_watchdog_read_report(const struct leaserun_watchdog *watchdog,
                                  struct leaserun_watchdog_report *ret_report);

/* The lock is lost, or will be: from now on the watchdog also kills what an ended command has left. */
void leaserun_watchdog_warn(const struct leaserun_watchdog *watchdog);

/* Continues it, if somebody has stopped it. */
void leaserun_watchdog_continue(const struct leaserun_watchdog *watchdog);

/* The locks are released: the watchdog ends, and kills nothing. */
void leaserun_watchdog_dismiss(const struct leaserun_watchdog *watchdog);

#endif
