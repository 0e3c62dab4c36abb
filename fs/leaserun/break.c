/* break: see break.h. */
#include "fs/leaserun/break.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <sysexits.h>

#include "fs/leaserun/failure.h"
#include "fs/leaserun/holder.h"
#include "fs/leaserun/status.h"

static int break_free(const char *name)
{
    warnx("%s: nobody holds it", name);
    return LEASERUN_EXIT_FREE;
}

static int break_lock(const struct leaserun_lock *lock, bool force)
{
    char holder[1024];
    struct leaserun_report_lock report;
    int result = leaserun_status_read(lock, &report);
    leaserun_holder_describe(&report, holder, sizeof holder);
    leaserun_status_clear(&report);
    if (result < 0) {
        return leaserun_failure(lock->name, -result);
    }
    if (!report.held) {
        return break_free(lock->name);
    }
    if (lsetxattr(lock->name, "user.lease.break", force ? "2" : "1", 1, 0) != 0) {
        if (errno == EBUSY) {
            warnx("%s: %s; root may take that time from it with --force", lock->name,
                  report.broken ? holder : "broken already");
            return EX_NOPERM;
        }
        if (errno == EPERM || errno == EACCES) {
            warnx("%s: only root, or the user that all holders have, can break it: %s", lock->name, holder);
            return EX_NOPERM;
        }
        return errno == ENODATA || errno == ESTALE || errno == ENOENT ? break_free(lock->name)
                                                                      : leaserun_failure(lock->name, errno);
    }
    bool again = report.broken;
    if (leaserun_status_read(lock, &report) == 0 && report.broken && report.holder_count > 0) {
        leaserun_holder_describe(&report, holder, sizeof holder);
        printf("%s: %s\n", lock->name, holder);
    } else {
        printf("%s: broken; it was %s\n", lock->name, again ? "broken before" : holder);
    }
    leaserun_status_clear(&report);
    return fflush(stdout) == 0 ? 0 : EX_IOERR;
}

int leaserun_break(const struct leaserun_arguments *arguments)
{
    struct leaserun_lock *lock = calloc(1, sizeof *lock);
    int status = lock ? leaserun_lock_find(lock, arguments->locks[0]) : EX_OSERR;
    if (status == 0 && lock->name[strlen(lock->name) - 1] == '-') {
        warnx("%s: it is a queue: name the ticket in it to break", arguments->locks[0]);
        status = EX_USAGE;
    }
    if (status == 0) {
        leaserun_mount_find(&lock->mount, lock->directory);
        status = break_lock(lock, arguments->force);
    }
    free(lock);
    return status;
}
