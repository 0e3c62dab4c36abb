/* queue: see queue.h.
 *
 * A directory is made and then gets its width.  Between the two nobody else may take
 * the width that it has for the one that is meant: so whoever finds none, or another
 * width, does that under a lock beside it, named after it, which nobody else uses.
 * Until it has its width, its mode has the sticky bit: so the next process under the
 * lock finishes what one that was killed has begun.
 */
#include "fs/leaserun/queue.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "backend/clock.h"
#include "fs/leaserun/failure.h"
#include "fs/leaserun/lock.h"

#define QUEUE_MAKES "#width"
#define QUEUE_MAKING_MS 1000
#define QUEUE_PAUSE_MS 20

/* 0: there is none.  -errno. */
static int queue_width(const char *path, uint32_t *ret_width)
{
    char text[32];
    ssize_t size = getxattr(path, "user.lease.width", text, sizeof text - 1);
    *ret_width = 0;
    if (size < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    text[size] = '\0';
    *ret_width = (uint32_t)strtoul(text, NULL, 10);
    return 0;
}

static int queue_set_width(const char *path, uint32_t width)
{
    char text[32];
    int size = snprintf(text, sizeof text, "%" PRIu32, width);
    return setxattr(path, "user.lease.width", text, (size_t)size, 0);
}

static int queue_differs(const char *path, uint32_t is, uint32_t width)
{
    warnx("%s has the width %" PRIu32 ", not %" PRIu32 ": all who use a queue must agree (its owner changes it with "
          "setfattr -n user.lease.width -v %" PRIu32 " %s)",
          path, is, width, width, path);
    return EX_DATAERR;
}

/* Under the lock. */
static int queue_make(const char *path, uint32_t width)
{
    uint32_t is;
    struct stat st;
    int result = queue_width(path, &is);
    if (result < 0) {
        return leaserun_failure(path, -result);
    }
    if (is == width) {
        return 0;
    }
    if ((!is && mkdir(path, 0777 | S_ISVTX) != 0) || stat(path, &st) != 0) {
        return leaserun_failure(path, errno);
    }
    if (!(st.st_mode & S_ISVTX)) {
        return queue_differs(path, is, width);
    }
    if (queue_set_width(path, width) != 0 || chmod(path, st.st_mode & 0777) != 0) {
        return leaserun_failure(path, errno);
    }
    return 0;
}

static int queue_lock(int fd, int64_t wait)
{
    const struct timespec pause = {.tv_nsec = QUEUE_PAUSE_MS * 1000000};
    clock_ms until = wait < 0 ? CLOCK_NEVER : clock_now() + (wait ? wait : QUEUE_MAKING_MS);
    int result;
    while ((result = flock(fd, wait < 0 ? LOCK_EX : LOCK_EX | LOCK_NB)) != 0 &&
           (errno == EINTR || (errno == EAGAIN && clock_now() < until))) {
        nanosleep(&pause, NULL);
    }
    return result;
}

static int queue_make_locked(const struct leaserun_arguments *arguments, const char *path)
{
    char name[PATH_MAX];
    struct leaserun_lock *lock = calloc(1, sizeof *lock);
    int size = snprintf(name, sizeof name, "%s" QUEUE_MAKES, path), status = EX_OSERR;
    if (!lock || size < 0 || (size_t)size >= sizeof name) {
        status = leaserun_failure(path, lock ? ENAMETOOLONG : ENOMEM);
        free(lock);
        return status;
    }
    status = leaserun_lock_find(lock, name);
    int fd = status ? -1 : leaserun_lock_open(lock, true, EX_UNAVAILABLE, &status);
    free(lock);
    if (fd < 0) {
        return status;
    }
    if (queue_lock(fd, arguments->wait) == 0) {
        status = queue_make(path, arguments->width);
    } else if (errno == EAGAIN) {
        warnx("%s is being made by another, who holds %s", path, name);
        status = arguments->conflict;
    } else {
        status = leaserun_failure(path, errno);
    }
    close(fd);
    return status;
}

int leaserun_queue_make(const struct leaserun_arguments *arguments, const char *text)
{
    char path[PATH_MAX];
    struct stat st;
    uint32_t is;
    size_t length = strlen(text);
    while (length > 1 && text[length - 1] == '/') {
        length--;
    }
    if (length >= sizeof path) {
        return leaserun_failure(text, ENAMETOOLONG);
    }
    memcpy(path, text, length);
    path[length] = '\0';
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        warnx("%s is a lock, not a directory: -N is for a queue", path);
        return EX_NOINPUT;
    }
    if (path[length - 1] == '-') {
        warnx("%s is a place in a queue: -N is for the queue, which is its directory", path);
        return EX_USAGE;
    }
    return queue_width(path, &is) == 0 && is == arguments->width ? 0 : queue_make_locked(arguments, path);
}
