/* connection: see connection.h. */
#include "fs/process/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend/system.h"

#define CONNECTION_FILE "waiting" /* which each connection has */

/* The same without a mount point. */
static int connection_mount(void)
{
    int control = fsopen("fusectl", FSOPEN_CLOEXEC);
    int tree = control >= 0 && fsconfig(control, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0
                   ? fsmount(control, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
                   : -1;
    int error = errno;
    if (control >= 0) {
        close(control);
    }
    return tree < 0 ? -error : tree;
}

/* An empty directory of that name is no mounted fusectl. */
static bool connection_is_mounted(void)
{
    struct statx all, parent;
    return statx(AT_FDCWD, CONNECTION_ALL, AT_STATX_DONT_SYNC, 0, &all) == 0 &&
           statx(AT_FDCWD, CONNECTION_ALL "/..", AT_STATX_DONT_SYNC, 0, &parent) == 0 &&
           (all.stx_dev_major != parent.stx_dev_major || all.stx_dev_minor != parent.stx_dev_minor);
}

int connection_open_all(void)
{
    if (!connection_is_mounted()) {
        return connection_mount();
    }
    int all = open(CONNECTION_ALL, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return all < 0 ? -errno : all;
}

int connection_open(int all, dev_t device)
{
    char name[16];
    snprintf(name, sizeof name, "%u", minor(device));
    int connection = openat(all, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return connection < 0 ? -errno : connection;
}

bool connection_is_gone(int connection)
{
    struct statx file;
    return statx(connection, CONNECTION_FILE, AT_STATX_DONT_SYNC, 0, &file) < 0 && errno == ENOENT;
}
