/* once: see once.h. */
#include "fs/leaserun/once.h"

#include <err.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/leaserun/lease.h"

#define ONCE_TERM_MIN 100 /* milliseconds, as leasefs has it */

static void once_name(const struct leaserun_lock *lock, char name[PATH_MAX + sizeof LEASERUN_ONCE_SUFFIX])
{
    snprintf(name, PATH_MAX + sizeof LEASERUN_ONCE_SUFFIX, "%s" LEASERUN_ONCE_SUFFIX, lock->name);
}

int leaserun_once_is_done(const struct leaserun_lock *lock)
{
    char name[PATH_MAX + sizeof LEASERUN_ONCE_SUFFIX];
    struct stat st;
    once_name(lock, name);
    if (lstat(name, &st) != 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    return st.st_uid == geteuid() || st.st_uid == 0; /* another user's says nothing of this user's command */
}

void leaserun_once_remember(const struct leaserun_arguments *arguments, const struct leaserun_lock *lock,
                            clock_ms began, clock_ms until)
{
    char name[PATH_MAX + sizeof LEASERUN_ONCE_SUFFIX];
    int64_t left = arguments->once - (clock_now() - began);
    once_name(lock, name);
    int error = left < ONCE_TERM_MIN ? 0 : leaserun_lease_take(name, left, until);
    if (error) {
        errno = error;
        warn("%s: the command has succeeded, but that could not be stored, so it may run again within the period",
             name);
    }
}
