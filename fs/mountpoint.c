/* mountpoint: what is mounted where we are to mount; see mountpoint.h.
 *
 * A mount whose daemon was killed answers everything with ENOTCONN.  The kernel
 * tells of it nowhere, so it has to be asked something that it cannot know by
 * itself: statfs(2).  A daemon that is merely stopped would keep the caller for
 * ever, so a child asks, and is left behind when no answer comes.
 *
 * The mount is known by its id, read from a descriptor with O_PATH (which needs
 * no answer either), not by its path: what was looked at is what is detached.
 */
#include "mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backend/log.h"

#define LEASEFS_TYPE "fuse.leasefs"
#define PROBE_LIMIT 5000 /* milliseconds until a mount is said not to answer */
#define LAYERS_MAX 16    /* dead mounts on top of each other */

/* The fields of a line of /proc/self/mountinfo up to the optional ones, and those after the dash. */
enum { MOUNTINFO_ID, MOUNTINFO_POINT = 4, MOUNTINFO_FIXED = 6 };
enum { MOUNTINFO_TYPE = 1, MOUNTINFO_SUPER = 3, MOUNTINFO_AFTER };

enum mountpoint_state { MOUNTPOINT_ALIVE, MOUNTPOINT_DEAD, MOUNTPOINT_SILENT };

static char *mountpoint_descriptor(int fd, const char *kind)
{
    return g_strdup_printf("/proc/self/%s/%d", kind, fd);
}

char *mountpoint_resolve(const char *given, char *error, size_t error_size)
{
    int fd = open(given, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT) {
            snprintf(error, error_size, "mount point '%s' does not exist: make it with mkdir", given);
        } else if (errno == ENOTDIR) {
            snprintf(error, error_size, "mount point '%s' is not a directory", given);
        } else {
            snprintf(error, error_size, "mount point '%s': %s", given, g_strerror(errno));
        }
        return NULL;
    }
    g_autofree char *link = mountpoint_descriptor(fd, "fd");
    char *path = g_file_read_link(link, NULL);
    close(fd);
    if (!path) {
        snprintf(error, error_size, "cannot read %s: is /proc mounted?", link);
    }
    return path;
}

/* The id of the mount that a descriptor is on, or -1. */
static long mountpoint_id(int fd)
{
    g_autofree char *name = mountpoint_descriptor(fd, "fdinfo");
    g_autofree char *text = NULL;
    if (!g_file_get_contents(name, &text, NULL, NULL)) {
        return -1;
    }
    const char *field = strstr(text, "mnt_id:");
    return field ? strtol(field + strlen("mnt_id:"), NULL, 10) : -1;
}

/* Is the mount with this id one of leasefs, and `path` its top?  Its user, then. */
static bool mountpoint_is_leasefs(long id, const char *path, uid_t *ret_user)
{
    g_autofree char *text = NULL;
    if (!g_file_get_contents("/proc/self/mountinfo", &text, NULL, NULL)) {
        return false;
    }
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (size_t i = 0; lines[i]; i++) {
        char *dash = strstr(lines[i], " - ");
        if (!dash || strtol(lines[i], NULL, 10) != id) {
            continue;
        }
        g_auto(GStrv) before = g_strsplit(lines[i], " ", MOUNTINFO_FIXED);
        g_auto(GStrv) after = g_strsplit(dash + 1, " ", MOUNTINFO_AFTER);
        if (g_strv_length(before) < MOUNTINFO_FIXED || g_strv_length(after) < MOUNTINFO_AFTER) {
            return false;
        }
        g_autofree char *point = g_strcompress(before[MOUNTINFO_POINT]); /* \040 and the like */
        const char *user = strstr(after[MOUNTINFO_SUPER], "user_id=");
        *ret_user = user ? (uid_t)strtoul(user + strlen("user_id="), NULL, 10) : 0;
        return strcmp(point, path) == 0 && strcmp(after[MOUNTINFO_TYPE], LEASEFS_TYPE) == 0;
    }
    return false;
}

/* Asks for what only the daemon knows; in a child, which may never come back. */
static enum mountpoint_state mountpoint_probe(const char *link)
{
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return MOUNTPOINT_SILENT;
    }
    pid_t child = fork();
    if (child == 0) {
        struct statfs told;
        bool dead = statfs(link, &told) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
        _exit(dead ? MOUNTPOINT_DEAD : MOUNTPOINT_ALIVE);
    }
    close(ends[1]);
    struct pollfd ended = {.fd = ends[0], .events = POLLIN}; /* POLLHUP when the child is gone */
    int events;
    do {
        events = child < 0 ? 0 : poll(&ended, 1, PROBE_LIMIT);
    } while (events < 0 && errno == EINTR);
    close(ends[0]);
    if (events <= 0) {
        if (child > 0) {
            kill(child, SIGKILL);
        }
        return MOUNTPOINT_SILENT;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? (enum mountpoint_state)WEXITSTATUS(status) : MOUNTPOINT_SILENT;
}

/* Root detaches the very mount that was looked at; an ordinary user has
 * fusermount3, which sees for itself whose mount it is. */
static int mountpoint_detach(const char *path, const char *link, char *error, size_t error_size)
{
    g_autofree char *told = NULL;
    char *arguments[] = {"fusermount3", "-u", "-q", "-z", "--", (char *)path, NULL};
    int status = 0;
    if (geteuid() == 0) {
        status = umount2(link, MNT_DETACH);
    } else if (!g_spawn_sync(NULL, arguments, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, &told, &status, NULL)) {
        errno = ENOENT;
        status = -1;
    } else if (status) {
        errno = EPERM;
    }
    if (status == 0) {
        return 0;
    }
    int result = -errno;
    snprintf(error, error_size, "mount point '%s' has a mount without its daemon, and it cannot be unmounted: %s", path,
             told && *told ? g_strchomp(told) : g_strerror(-result));
    return result;
}

/* A leasefs at `path`, by its link in /proc: 1 if it was dead and is detached. */
static int mountpoint_remove(const char *path, const char *link, char *error, size_t error_size)
{
    int result;
    switch (mountpoint_probe(link)) {
    case MOUNTPOINT_DEAD:
        result = mountpoint_detach(path, link, error, error_size);
        if (result == 0) {
            log_info("detached the mount at %s, whose daemon had been killed", path);
            result = 1;
        }
        return result;
    case MOUNTPOINT_SILENT:
        snprintf(error, error_size, "the leasefs mounted at '%s' does not answer: is its daemon stopped?", path);
        return -ETIMEDOUT;
    default:
        snprintf(error, error_size, "a leasefs is mounted at '%s' already: use that one, or unmount it first", path);
        return -EBUSY;
    }
}

/* One layer: 1 if one was detached, 0 if there is nothing in the way. */
static int mountpoint_clear_one(const char *path, char *error, size_t error_size)
{
    uid_t user = 0;
    int result = 0;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return 0; /* the mount will tell */
    }
    if (mountpoint_is_leasefs(mountpoint_id(fd), path, &user)) {
        g_autofree char *link = mountpoint_descriptor(fd, "fd");
        if (user == geteuid()) {
            result = mountpoint_remove(path, link, error, error_size);
        } else { /* whose state only that user is told */
            snprintf(
                error, error_size,
                "user %u has a leasefs at mount point '%s': unmount that first, with umount -l if it has no daemon",
                (unsigned)user, path);
            result = -EBUSY;
        }
    }
    close(fd);
    return result;
}

int mountpoint_clear(const char *path, char *error, size_t error_size)
{
    int result = 1;
    for (int layer = 0; result == 1 && layer < LAYERS_MAX; layer++) {
        result = mountpoint_clear_one(path, error, error_size);
    }
    return result < 0 ? result : 0;
}

int mountpoint_set_ttl(const char *path, int64_t ttl, char *error, size_t error_size)
{
    char value[32];
    uid_t user;
    int result = 0;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    g_autofree char *link = mountpoint_descriptor(fd, "fd");
    snprintf(value, sizeof value, "%" PRId64 "ms", ttl);
    if (fd < 0 || !mountpoint_is_leasefs(mountpoint_id(fd), path, &user) ||
        mountpoint_probe(link) != MOUNTPOINT_ALIVE) {
        snprintf(error, error_size, "no leasefs that answers is mounted at '%s': mount it, without remount", path);
        result = -EINVAL;
    } else if (setxattr(link, "user.lease.ttl", value, strlen(value), 0) < 0) {
        result = -errno;
        snprintf(error, error_size, "cannot set user.lease.ttl of '%s': %s", path, g_strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return result;
}
