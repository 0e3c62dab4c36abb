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
#include "fs/daemon/mountpoint.h"

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
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backend/log.h"
#include "backend/system.h"
#include "fs/process/connection.h"

#define LEASEFS_TYPE "fuse.leasefs"
#define PROBE_LIMIT 5000 /* milliseconds until a mount is said not to answer */
#define SWITCH_LOCK "/run/leasefs.takeover"
#define SWITCH_LIMIT 20000 /* milliseconds; a takeover that is stopped is killed after 15 s */
#define SWITCH_PAUSE 20
#define LAYERS_MAX 16 /* dead mounts on top of each other */

/* The fields of a line of /proc/self/mountinfo up to the optional ones, and those after the dash. */
enum { MOUNTINFO_ID, MOUNTINFO_PARENT, MOUNTINFO_POINT = 4, MOUNTINFO_FIXED = 6 };
enum { MOUNTINFO_TYPE = 1, MOUNTINFO_SUPER = 3, MOUNTINFO_AFTER };

struct mountpoint_mount {
    long parent;
    char *point;
    uid_t user;
    bool is_leasefs;
};

enum mountpoint_state { MOUNTPOINT_ALIVE, MOUNTPOINT_DEAD, MOUNTPOINT_SILENT, MOUNTPOINT_FOREIGN };

static char *mountpoint_descriptor(int fd, const char *kind)
{
    return g_strdup_printf("/proc/self/%s/%d", kind, fd);
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

/* One line of mountinfo: is it this mount? */
static bool mountpoint_parse(const char *line, long id, struct mountpoint_mount *ret)
{
    const char *dash = strstr(line, " - ");
    if (!dash || strtol(line, NULL, 10) != id) {
        return false;
    }
    g_auto(GStrv) before = g_strsplit(line, " ", MOUNTINFO_FIXED);
    g_auto(GStrv) after = g_strsplit(dash + 1, " ", MOUNTINFO_AFTER);
    if (g_strv_length(before) < MOUNTINFO_FIXED || g_strv_length(after) < MOUNTINFO_AFTER) {
        return false;
    }
    const char *user = strstr(after[MOUNTINFO_SUPER], "user_id=");
    ret->parent = strtol(before[MOUNTINFO_PARENT], NULL, 10);
    ret->point = g_strcompress(before[MOUNTINFO_POINT]); /* \040 and the like */
    ret->user = user ? (uid_t)strtoul(user + strlen("user_id="), NULL, 10) : 0;
    ret->is_leasefs = strcmp(after[MOUNTINFO_TYPE], LEASEFS_TYPE) == 0;
    return true;
}

/* Is the mount with this id a leasefs, and `path` its top? */
static bool mountpoint_is_leasefs(long id, const char *path, uid_t *ret_user, long *ret_parent)
{
    struct mountpoint_mount mount = {0};
    g_autofree char *text = NULL;
    if (!g_file_get_contents("/proc/self/mountinfo", &text, NULL, NULL)) {
        return false;
    }
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    size_t i = 0;
    while (lines[i] && !mountpoint_parse(lines[i], id, &mount)) {
        i++;
    }
    bool is_leasefs = mount.is_leasefs && strcmp(mount.point, path) == 0;
    *ret_user = mount.user;
    *ret_parent = mount.parent;
    g_free(mount.point);
    return is_leasefs;
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
        struct statfs info;
        bool dead = statfs(link, &info) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
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

static int mountpoint_report_silent(const char *path, char *error, size_t error_size)
{
    snprintf(error, error_size,
             "the leasefs mounted at '%s' does not answer: is its daemon stopped?  As root, umount -f ends it", path);
    return -ETIMEDOUT;
}

/* Root detaches the very mount that was looked at; an ordinary user has
 * fusermount3, which sees for itself whose mount it is. */
static int mountpoint_detach(const char *path, const char *link, char *error, size_t error_size)
{
    g_autofree char *complaint = NULL;
    char *arguments[] = {"fusermount3", "-u", "-q", "-z", "--", (char *)path, NULL};
    int status = 0;
    if (geteuid() == 0) {
        status = umount2(link, MNT_DETACH);
    } else if (!g_spawn_sync(NULL, arguments, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, &complaint, &status, NULL)) {
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
             complaint && *complaint ? g_strchomp(complaint) : g_strerror(-result));
    return result;
}

/* Looks at the topmost mount at `path`: 1 if it is a dead leasefs of this user, with a
 * descriptor of it; 0 if it is none. */
static int mountpoint_top(const char *path, int *ret_fd, bool *ret_on_another, char *error, size_t error_size)
{
    uid_t user = 0;
    long parent = 0;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || !mountpoint_is_leasefs(mountpoint_id(fd), path, &user, &parent)) {
        if (fd >= 0) {
            close(fd);
        }
        return 0; /* if there is no such directory, the mount will tell */
    }
    g_autofree char *link = mountpoint_descriptor(fd, "fd");
    enum mountpoint_state state = user == geteuid() ? mountpoint_probe(link) : MOUNTPOINT_FOREIGN;
    if (state == MOUNTPOINT_DEAD) {
        *ret_on_another = mountpoint_is_leasefs(parent, path, &user, &parent) && user == geteuid();
        *ret_fd = fd;
        return 1;
    }
    close(fd);
    switch (state) {
    case MOUNTPOINT_FOREIGN: /* only its user may see its state */
        snprintf(error, error_size,
                 "user %u has a leasefs at mount point '%s': unmount that first, with umount -l if it has no daemon",
                 (unsigned)user, path);
        return -EBUSY;
    case MOUNTPOINT_SILENT:
        return mountpoint_report_silent(path, error, error_size);
    default:
        snprintf(error, error_size, "a leasefs is mounted at '%s' already: use that one, or unmount it first", path);
        return -EBUSY;
    }
}

/* Detaches dead mounts from the top, all of them or all but the lowest, which
 * keeps the directory below covered.  1 if that one is left. */
static int mountpoint_peel(const char *path, bool all, char *error, size_t error_size)
{
    int result = 0, fd = -1;
    bool on_another = false;
    for (int layer = 0; layer < LAYERS_MAX; layer++) {
        result = mountpoint_top(path, &fd, &on_another, error, error_size);
        if (result <= 0) {
            return result;
        }
        g_autofree char *link = mountpoint_descriptor(fd, "fd");
        if (all || on_another) {
            result = mountpoint_detach(path, link, error, error_size);
        }
        close(fd);
        if (result < 0 || (!all && !on_another)) {
            return result;
        }
    }
    snprintf(error, error_size, "more than %d mounts without a daemon are at '%s': unmount them", LAYERS_MAX, path);
    return -ELOOP;
}

int mountpoint_check(const char *path, bool *ret_dead, char *error, size_t error_size)
{
    int result = mountpoint_peel(path, false, error, error_size);
    *ret_dead = result == 1;
    return result < 0 ? result : 0;
}

bool mountpoint_is_empty(const char *path)
{
    GDir *directory = g_dir_open(path, 0, NULL);
    bool empty = !directory || !g_dir_read_name(directory);
    if (directory) {
        g_dir_close(directory);
    }
    return empty;
}

int mountpoint_follow_no_links(const char *path)
{
    struct mount_attr attributes = {.attr_set = MOUNT_ATTR_NOSYMFOLLOW};
    return mount_setattr(AT_FDCWD, path, 0, &attributes, sizeof attributes) < 0 ? -errno : 0;
}

int mountpoint_clear(const char *path, char *error, size_t error_size)
{
    return mountpoint_peel(path, true, error, error_size);
}

dev_t mountpoint_device(const char *path)
{
    struct statx mount;
    bool known = statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, 0, &mount) == 0; /* which asks nothing of the daemon */
    return known ? makedev(mount.stx_dev_major, mount.stx_dev_minor) : 0;
}

int mountpoint_open_abort(const char *path)
{
    dev_t device = mountpoint_device(path);
    if (!device) {
        return -errno;
    }
    int all = connection_open_all();
    int connection = all < 0 ? all : connection_open(all, device);
    int fd = connection < 0 ? connection : openat(connection, "abort", O_WRONLY | O_CLOEXEC);
    int result = connection >= 0 && fd < 0 ? -errno : fd;
    if (all >= 0) {
        close(all);
    }
    if (connection >= 0) {
        close(connection);
    }
    return result;
}

int mountpoint_lock(dev_t byte, char *error, size_t error_size)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
    int fd = open(SWITCH_LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), result = fd < 0 ? -errno : -EAGAIN;
    for (int waited = 0; result == -EAGAIN && waited < SWITCH_LIMIT; waited += SWITCH_PAUSE) {
        result = fcntl(fd, F_OFD_SETLK, &range) == 0 ? 0 : errno == EACCES ? -EAGAIN : -errno;
        g_usleep(result == -EAGAIN ? SWITCH_PAUSE * 1000 : 0);
    }
    if (result == 0) {
        return fd;
    }
    if (result == -EAGAIN) {
        snprintf(error, error_size, "another daemon has been replacing a mount for 20 s: fuser -v %s shows its process",
                 SWITCH_LOCK);
    } else {
        snprintf(error, error_size, "cannot lock %s: %s", SWITCH_LOCK, g_strerror(-result));
    }
    if (fd >= 0) {
        close(fd);
    }
    return result;
}

int mountpoint_stage(char *error, size_t error_size)
{
    int lock = mountpoint_lock(0, error, error_size);
    while (lock >= 0 && umount2(MOUNTPOINT_STAGE, MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
        /* left by a daemon that was killed */
    }
    if (lock >= 0 && ((mkdir(MOUNTPOINT_STAGES, 0700) < 0 && errno != EEXIST) ||
                      (mkdir(MOUNTPOINT_STAGE, 0700) < 0 && errno != EEXIST))) {
        int result = -errno;
        snprintf(error, error_size, "cannot make the directory %s: %s", MOUNTPOINT_STAGE, g_strerror(-result));
        close(lock);
        return result;
    }
    return lock;
}

int mountpoint_unstage(int lock, bool mounted)
{
    int tree = mounted ? open_tree(AT_FDCWD, MOUNTPOINT_STAGE, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC) : -1;
    int result = tree < 0 ? -errno : tree;
    if (mounted) {
        umount2(MOUNTPOINT_STAGE, MNT_DETACH | UMOUNT_NOFOLLOW);
    }
    rmdir(MOUNTPOINT_STAGE);
    rmdir(MOUNTPOINT_STAGES);
    close(lock);
    return result;
}

/* Below the dead one, which is then detached; or, before Linux 6.5, on top of it. */
static int mountpoint_move(int tree, const char *path, const char *dead, char *error, size_t error_size)
{
    if (move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_BENEATH) == 0) {
        return mountpoint_detach(path, dead, error, error_size);
    }
    if (move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
        int result = -errno;
        snprintf(error, error_size, "cannot mount at %s, where there is a mount without its daemon: %s", path,
                 g_strerror(-result));
        return result;
    }
    return 0;
}

int mountpoint_replace(int tree, const char *path, char *error, size_t error_size)
{
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), result = fd < 0 ? -errno : 0;
    if (result < 0) {
        snprintf(error, error_size, "cannot move the mount to %s: %s", path, g_strerror(-result));
    } else {
        g_autofree char *dead = mountpoint_descriptor(fd, "fd");
        result = mountpoint_move(tree, path, dead, error, error_size);
        close(fd);
    }
    if (result == 0) {
        log_info("mounted at %s in place of a mount whose daemon had been killed", path);
    }
    return result;
}

int mountpoint_user(const char *path, uid_t *ret_user)
{
    long parent;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool is = fd >= 0 && mountpoint_is_leasefs(mountpoint_id(fd), path, ret_user, &parent);
    if (fd >= 0) {
        close(fd);
    }
    return is ? 0 : -ENOENT;
}

int mountpoint_open_living(const char *path, uid_t *ret_user, char *error, size_t error_size)
{
    long parent;
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    g_autofree char *link = mountpoint_descriptor(fd, "fd");
    bool is = fd >= 0 && mountpoint_is_leasefs(mountpoint_id(fd), path, ret_user, &parent);
    enum mountpoint_state state = is ? mountpoint_probe(link) : MOUNTPOINT_FOREIGN;
    if (state == MOUNTPOINT_ALIVE) {
        return fd;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (state == MOUNTPOINT_SILENT) {
        return mountpoint_report_silent(path, error, error_size);
    }
    snprintf(error, error_size, "no leasefs that answers is mounted at '%s': mount it, without remount or takeover",
             path);
    return -EINVAL;
}

bool mountpoint_is_at(int fd, const char *path)
{
    uid_t user;
    long parent;
    return mountpoint_is_leasefs(mountpoint_id(fd), path, &user, &parent);
}

bool mountpoint_is_top(int fd, const char *path)
{
    int top = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool is = top >= 0 && mountpoint_id(top) == mountpoint_id(fd);
    if (top >= 0) {
        close(top);
    }
    return is;
}

char *mountpoint_source(int fd)
{
    g_autofree char *text = NULL;
    long id = mountpoint_id(fd);
    g_file_get_contents("/proc/self/mountinfo", &text, NULL, NULL);
    g_auto(GStrv) lines = g_strsplit(text ? text : "", "\n", -1);
    for (size_t i = 0; lines[i]; i++) {
        const char *dash = strstr(lines[i], " - ");
        if (dash && strtol(lines[i], NULL, 10) == id) {
            g_auto(GStrv) after = g_strsplit(dash + 1, " ", MOUNTINFO_AFTER);
            return g_strv_length(after) > 2 ? g_strcompress(after[2]) : NULL;
        }
    }
    return NULL;
}

int mountpoint_set_ttl(const char *path, int64_t ttl, char *error, size_t error_size)
{
    char value[32];
    uid_t user;
    int fd = mountpoint_open_living(path, &user, error, error_size), result = fd < 0 ? fd : 0;
    g_autofree char *link = mountpoint_descriptor(fd, "fd");
    snprintf(value, sizeof value, "%" PRId64 "ms", ttl);
    if (fd >= 0 && setxattr(link, "user.lease.ttl", value, strlen(value), 0) < 0) {
        result = -errno;
        snprintf(error, error_size, "cannot set user.lease.ttl of '%s': %s", path, g_strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return result;
}
