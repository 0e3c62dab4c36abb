/* failure: see failure.h. */
#include "fs/leaserun/failure.h"

#include <err.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/mount.h"

/* Finds the mount by the nearest directory that it still knows without its store. */
static bool failure_find_mount(struct leaserun_mount *mount, const char *name)
{
    char directory[PATH_MAX];
    bool found = false;
    bool relative = name[0] != '/' && getcwd(directory, sizeof directory);
    size_t length = relative ? strlen(directory) : 0;
    snprintf(directory + length, sizeof directory - length, "%s%s", relative ? "/" : "", name);
    for (char *slash; !found && (slash = strrchr(directory, '/')) && slash > directory;) {
        found = leaserun_mount_find(mount, directory) == 0 && mount->readable;
        *slash = '\0';
    }
    return found;
}

/* The store does not answer, or grants nothing at present. */
static int failure_of_store(const char *name)
{
    struct leaserun_mount *mount = malloc(sizeof *mount);
    bool found = mount && failure_find_mount(mount, name);
    if (found && mount->grace[0]) {
        warnx("%s: the store grants no new lock at present: %s", name, mount->grace);
    } else if (found && mount->away) {
        warnx("%s: the store is away: %s, since %s; see %s/.leasefs/status", name,
              mount->reason[0] ? mount->reason : "not connected", mount->since, mount->root);
    } else {
        warnx("%s: the store does not answer, or cannot give such a lock; see .leasefs/status of the mount", name);
    }
    free(mount);
    return EX_UNAVAILABLE;
}

int leaserun_failure(const char *name, int error)
{
    switch (error) {
    case ENOLCK:
    case EIO:
        return failure_of_store(name);
    case ENOTCONN:
    case ECONNABORTED:
        warnx("%s: the daemon of the leasefs has ended: mount it again", name);
        return LEASERUN_EXIT_DAEMON;
    case EPERM:
        warnx("%s: the lock is another's, and only its holder can change it", name);
        return EX_NOPERM;
    case ENOSPC:
    case EDQUOT:
        errno = error;
        warn("%s", name);
        return EX_CANTCREAT;
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EROFS:
    case ENAMETOOLONG:
        errno = error;
        warn("%s", name);
        return EX_NOINPUT;
    default:
        errno = error;
        warn("%s", name);
        return EX_OSERR;
    }
}

void leaserun_failure_to_execute(const char *command, int error)
{
    if (*command == '-' && error == ENOENT) {
        warnx("failed to execute %s: there is no such command; options stand before the lock", command);
    } else {
        warnx("failed to execute %s: %s", command, strerror(error));
    }
}
