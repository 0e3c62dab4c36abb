/* lock: which lock is meant, and whether it is held already; see
 * lock.h.
 *
 * LEASE_NAME and LEASE_TOKEN are of the innermost lock; of several that are taken
 * together, of the one named first.  LEASE_OUTER has the others, from the inside to
 * the outside, a line each: token, space, name.
 */
#include "fs/leaserun/lock.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <sysexits.h>
#include <unistd.h>

#include "fs/leaserun/arguments.h"
#include "fs/leaserun/failure.h"
#include "fs/options/duration.h"

#define TICKET "run-"
#define OPEN_TRIES 20
#define LINKS_MAX 8

/* --- finding --------------------------------------------------------------- */

static int lock_directory_time(const char *directory, const char *attribute, int64_t *ret_ms)
{
    char text[64];
    ssize_t size = getxattr(directory, attribute, text, sizeof text);
    if (size < 0) {
        return -errno;
    }
    return duration_parse(text, (size_t)size, ret_ms);
}

/* Is it a directory of a leasefs that answers? */
static int lock_check_directory(struct leaserun_lock *lock, const char *named)
{
    struct statfs fs;
    if (statfs(lock->directory, &fs) != 0) {
        return leaserun_failure(lock->directory, errno);
    }
    int result = (unsigned long)fs.f_type == FUSE_SUPER_MAGIC
                     ? lock_directory_time(lock->directory, "user.lease.ttl", &lock->ttl)
                     : -ENODATA;
    if (result == -ENODATA || result == -EOPNOTSUPP || result == -EINVAL) {
        warnx("%s is not in a leasefs: mount one with leasefs(8), and name a lock below its mount point", named);
        return EX_NOINPUT;
    }
    if (result != 0) {
        return leaserun_failure(named, -result);
    }
    if (lock_directory_time(lock->directory, "user.lease.delay", &lock->delay) != 0) {
        lock->delay = 0;
    }
    return 0;
}

static int lock_join(struct leaserun_lock *lock, const char *directory, const char *base)
{
    char resolved[PATH_MAX];
    if (!realpath(directory, resolved)) {
        if (errno != ENOENT) {
            return leaserun_failure(directory, errno);
        }
        warnx("%s: no such directory: correct its name, or make it with mkdir -p", directory);
        return EX_NOINPUT;
    }
    const char *slash = strcmp(resolved, "/") == 0 ? "" : "/";
    int size = snprintf(lock->name, sizeof lock->name, "%s%s%s", resolved, slash, base);
    if (size < 0 || (size_t)size >= sizeof lock->name) {
        return leaserun_failure(directory, ENAMETOOLONG);
    }
    memcpy(lock->directory, resolved, sizeof resolved);
    return lock_check_directory(lock, strcmp(base, TICKET) == 0 ? lock->directory : lock->name);
}

/* If `path` is a symbolic link outside of a leasefs, replaces it by the link's target.  False: it is no such link. */
static bool lock_follow_link(char path[PATH_MAX])
{
    char target[PATH_MAX], link[PATH_MAX];
    struct statfs fs;
    int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    bool outside = fd >= 0 && fstatfs(fd, &fs) == 0 && (unsigned long)fs.f_type != FUSE_SUPER_MAGIC;
    ssize_t length = outside ? readlinkat(fd, "", target, sizeof target - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    if (length <= 0) {
        return false;
    }
    target[length] = '\0';
    const char *slash = strrchr(path, '/');
    int directory = slash && *target != '/' ? (int)(slash - path + 1) : 0;
    int size = snprintf(link, sizeof link, "%.*s%s", directory, path, target);
    if (size < 0 || (size_t)size >= sizeof link) {
        return false;
    }
    memcpy(path, link, (size_t)size + 1);
    return true;
}

int leaserun_lock_find(struct leaserun_lock *lock, const char *name)
{
    struct stat st;
    char directory[PATH_MAX] = ".", path[PATH_MAX];
    memset(lock, 0, sizeof *lock);
    if (strlen(name) >= sizeof path) {
        return leaserun_failure(name, ENAMETOOLONG);
    }
    strcpy(path, name);
    for (int links = 0; links < LINKS_MAX && lock_follow_link(path); links++) {
    }
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return lock_join(lock, path, TICKET);
    }
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0) {
        return leaserun_failure(path, ENOENT);
    }
    if (slash) {
        size_t length = slash == path ? 1 : (size_t)(slash - path);
        memcpy(directory, path, length);
        directory[length] = '\0';
    }
    return lock_join(lock, directory, base);
}

/* --- the order ------------------------------------------------------------------ */

static int lock_compare(const void *left, const void *right)
{
    const struct leaserun_lock *a = left, *b = right;
    int order = strcmp(a->mount.inner, b->mount.inner);
    order = order ? order : strcmp(strrchr(a->name, '/'), strrchr(b->name, '/'));
    order = order || a->mount.device == b->mount.device ? order : strcmp(a->mount.store, b->mount.store);
    bool same_store = a->mount.device == b->mount.device || a->mount.store[0];
    return order || same_store ? order : a->mount.device < b->mount.device ? -1 : 1;
}

size_t leaserun_lock_sort(struct leaserun_lock *locks, size_t count)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        leaserun_mount_find(&locks[i].mount, locks[i].directory);
    }
    qsort(locks, count, sizeof *locks, lock_compare);
    for (size_t i = 0; i < count; i++) {
        if (left && lock_compare(&locks[left - 1], &locks[i]) == 0) {
            continue;
        }
        if (left != i) {
            locks[left] = locks[i];
        }
        left++;
    }
    return left;
}

/* --- opening ----------------------------------------------------------------- */

/* Tries without O_CREAT first: with it, in a directory that all may write to, the kernel
 * may refuse the lock of another user (fs.protected_regular), which must be waited for. */
static int lock_open_once(int directory, const char *name, bool create)
{
    int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW;
    int fd = openat(directory, name, flags);
    return create && fd < 0 && errno == ENOENT ? openat(directory, name, flags | O_CREAT, 0666) : fd;
}

/* Is this directory in a leasefs that answers?  0, or -errno. */
static int lock_check_mounted(int directory)
{
    char link[64];
    int64_t ttl;
    struct statfs fs;
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory); /* for the attributes of an O_PATH descriptor */
    if (fstatfs(directory, &fs) != 0) {
        return -errno;
    }
    int result =
        (unsigned long)fs.f_type == FUSE_SUPER_MAGIC ? lock_directory_time(link, "user.lease.ttl", &ttl) : -ENODATA;
    return result == -ENODATA || result == -EOPNOTSUPP ? -ENOTCONN : result;
}

/* By a descriptor of the directory: below the mount point, O_CREAT would make a plain file. */
int leaserun_lock_reopen(const struct leaserun_lock *lock, const char *name, bool create)
{
    int directory = open(lock->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int result = directory < 0 ? -errno : lock_check_mounted(directory);
    if (result == 0) {
        result = lock_open_once(directory, name, create);
        result = result < 0 ? -errno : result;
    }
    if (directory >= 0) {
        close(directory);
    }
    return result;
}

int leaserun_lock_open(const struct leaserun_lock *lock, bool waits, int conflict, int *ret_status)
{
    int fd = -1;
    for (int tries = 0; tries < OPEN_TRIES && fd < 0; tries++) {
        fd = lock_open_once(AT_FDCWD, lock->name, true);
        if (fd < 0 && errno != EACCES && errno != EINTR) {
            break; /* EACCES: perhaps another's, made between the two */
        }
    }
    if (fd < 0 && errno == ELOOP) {
        *ret_status = waits ? EX_NOINPUT : conflict;
        if (waits) {
            warnx("%s: it is held as a symbolic link (ln -s), which cannot be waited for", lock->name);
        }
    } else if (fd < 0) {
        *ret_status = leaserun_failure(lock->name, errno);
    }
    return fd;
}

/* --- what encloses this process ------------------------------------------------ */

/* Adds what LEASE_NAME and LEASE_TOKEN say to LEASE_OUTER.  A name with a newline
 * is not kept: it is only not recognised then. */
static int lock_push(void)
{
    const char *name = getenv("LEASE_NAME"), *token = getenv("LEASE_TOKEN"), *outer = getenv("LEASE_OUTER");
    char *text;
    if (!name || !token || strchr(name, '\n')) {
        return 0;
    }
    if (asprintf(&text, "%s %s\n%s", token, name, outer ? outer : "") < 0) {
        return -ENOMEM;
    }
    int result = setenv("LEASE_OUTER", text, 1) == 0 ? 0 : -errno;
    free(text);
    return result;
}

static int lock_export(const char *name, uint64_t token)
{
    char text[32];
    const char *current = getenv("LEASE_NAME"), *before = getenv("LEASE_TOKEN");
    snprintf(text, sizeof text, "%" PRIu64, token);
    if (current && before && strcmp(current, name) == 0 && strcmp(before, text) == 0) {
        return 0; /* the innermost already */
    }
    int result = lock_push();
    if (result == 0 && (setenv("LEASE_NAME", name, 1) != 0 || setenv("LEASE_TOKEN", text, 1) != 0)) {
        result = -errno;
    }
    return result;
}

/* The one that was named first becomes the innermost. */
int leaserun_lock_export(const struct leaserun_lock *locks, size_t count)
{
    int result = 0;
    for (size_t position = LEASERUN_LOCKS_MAX; position-- > 0;) {
        for (size_t i = 0; i < count && result == 0; i++) {
            if (locks[i].position == position) {
                result = lock_export(locks[i].held, locks[i].token);
            }
        }
    }
    return result;
}

/* Does a held name stand for this lock: the same, or a ticket made by it? */
static bool lock_is(const struct leaserun_lock *lock, const char *name)
{
    size_t length = strlen(lock->name);
    if (lock->name[length - 1] != '-') {
        return strcmp(lock->name, name) == 0;
    }
    return strncmp(lock->name, name, length) == 0 && strspn(name + length, "0123456789") == strlen(name + length);
}

static bool lock_is_current(const char *name, const char *token)
{
    char text[32];
    if (setxattr(name, "user.lease.check", token, strlen(token), 0) == 0) {
        return true;
    }
    if (errno != EACCES && errno != EPERM) {
        return false;
    }
    /* Of another user: it may be read. */
    ssize_t size = getxattr(name, "user.lease.token", text, sizeof text);
    return size > 0 && (size_t)size == strlen(token) && memcmp(text, token, (size_t)size) == 0;
}

static enum leaserun_lock_inherited lock_try(struct leaserun_lock *lock, bool shared, const char *name,
                                             const char *token)
{
    char mode[16];
    if (strlen(name) >= sizeof lock->held || !lock_is(lock, name) || !lock_is_current(name, token)) {
        return LEASERUN_LOCK_FREE;
    }
    ssize_t size = shared ? 0 : getxattr(name, "user.lease.mode", mode, sizeof mode);
    bool is_shared = size == (ssize_t)strlen("shared") && memcmp(mode, "shared", (size_t)size) == 0;
    strcpy(lock->held, name);
    lock->token = strtoull(token, NULL, 10);
    return is_shared ? LEASERUN_LOCK_SHARED : LEASERUN_LOCK_INHERITED;
}

enum leaserun_lock_inherited leaserun_lock_inherited(struct leaserun_lock *lock, bool shared)
{
    const char *name = getenv("LEASE_NAME"), *token = getenv("LEASE_TOKEN"), *outer = getenv("LEASE_OUTER");
    enum leaserun_lock_inherited found = name && token ? lock_try(lock, shared, name, token) : LEASERUN_LOCK_FREE;
    char *lines = strdup(outer ? outer : ""), *rest = lines, *line;
    while (found == LEASERUN_LOCK_FREE && rest && (line = strsep(&rest, "\n"))) {
        char *space = strchr(line, ' ');
        if (space) {
            *space = '\0';
            found = lock_try(lock, shared, space + 1, line);
        }
    }
    free(lines);
    return found;
}
