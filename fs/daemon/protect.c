/* protect: what `leasefs --protect DIRECTORY` does; see protect.h. */
#include "config.h"

#include "fs/daemon/protect.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/log.h"
#include "backend/system.h"
#include "fs/daemon/mountpoint.h"

/* Asks nothing of a daemon. */
static bool protect_is_mounted(int fd)
{
    struct statx entry;
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &entry) == 0 &&
           entry.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

static int protect_directory(int fd, const char *path)
{
    int flags = 0;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0) {
        log_warning("%s: its filesystem has no immutable flag (%s), so root can still make files in it", path,
                    g_strerror(errno));
        return fchmod(fd, 0555) < 0 ? -errno : 0;
    }
    if (flags & FS_IMMUTABLE_FL) {
        return 0;
    }
    flags |= FS_IMMUTABLE_FL;
    return fchmod(fd, 0555) < 0 || ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0 ? -errno : 0;
}

static int protect_fail(const char *path, int result, const char *reason, char *error, size_t error_size)
{
    snprintf(error, error_size, "cannot protect '%s': %s", path, reason ? reason : g_strerror(-result));
    return result;
}

int protect_mountpoint(const char *path, char *error, size_t error_size)
{
    if (geteuid() != 0) {
        return protect_fail(path, -EPERM, "run as root: an ordinary user needs a mount point that is writable", error,
                            error_size);
    }
    int top = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) {
        return protect_fail(path, -errno, NULL, error, error_size);
    }
    g_autofree char *same = g_strdup_printf("/proc/self/fd/%d", top); /* whatever the path leads to meanwhile */
    const char *reason = NULL;
    int result;
    if (protect_is_mounted(top)) {
        result = -EBUSY;
        reason = "it is mounted: unmount it first";
    } else if (!mountpoint_is_empty(same)) {
        result = -ENOTEMPTY;
        reason = "it is not empty: remove what is in it, which is no lock";
    } else {
        int fd = open(same, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        result = fd < 0 ? -errno : protect_directory(fd, path);
        if (fd >= 0) {
            close(fd);
        }
    }
    close(top);
    return result < 0 ? protect_fail(path, result, reason, error, error_size) : 0;
}
