/* disk: the calls that disk_wraps of Makefile.am names. */
#include "tests/support/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int __real_fallocate64(int fd, int mode, off64_t offset, off64_t length);
int __wrap_fallocate64(int fd, int mode, off64_t offset, off64_t length);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t length);
ssize_t __real_write(int fd, const void *data, size_t length);
int __real_fdatasync(int fd);
int __real_fsync(int fd);
ssize_t __wrap_write(int fd, const void *data, size_t length);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t released;
    int write_error;
    size_t write_at_most;
    int room_error;
    int sync_error;
    ino_t sync_error_on;
    bool hold;
    const char *name;
    GHashTable *durable; /* inode -> its bytes when last synced; NULL: not remembered */
    ino_t durable_name;
    int named[2]; /* the file of that name and the one before, open so that no other gets its inode; or -1 */
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER, .named = {-1, -1}};

static struct {
    bool planned;
    unsigned skip;
    int number;
    void (*before)(void);
} plans[DISK_CALLS];
static pthread_mutex_t plans_mutex = PTHREAD_MUTEX_INITIALIZER;

void disk_plan(enum disk_call call, unsigned skip, int number, void (*before)(void))
{
    pthread_mutex_lock(&plans_mutex);
    plans[call].planned = true;
    plans[call].skip = skip;
    plans[call].number = number;
    plans[call].before = before;
    pthread_mutex_unlock(&plans_mutex);
}

bool disk_happened(void)
{
    bool all = true;

    pthread_mutex_lock(&plans_mutex);
    for (int i = 0; i < DISK_CALLS; i++) {
        all = all && !plans[i].planned;
        plans[i].planned = false;
    }
    pthread_mutex_unlock(&plans_mutex);
    return all;
}

/* Whether this call is the one that is planned; it then fails with `*ret_number`, if that is not 0. */
static bool is_planned(enum disk_call call, int *ret_number)
{
    void (*before)(void) = NULL;
    bool now;

    pthread_mutex_lock(&plans_mutex);
    now = plans[call].planned && plans[call].skip-- == 0;
    if (now) {
        plans[call].planned = false;
        before = plans[call].before;
    }
    *ret_number = now ? plans[call].number : 0;
    pthread_mutex_unlock(&plans_mutex);
    if (before)
        before();
    return now;
}

/* -1, with errno, if this call is to fail. */
static int plan(enum disk_call call)
{
    int number;

    is_planned(call, &number);
    if (number)
        errno = number;
    return number ? -1 : 0;
}

/* A call wrapped under a name, which fails if that is planned. */
#define PLANNED(call, type, name, parameters, arguments)                                                               \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        return plan(call) < 0 ? -1 : __real_##name arguments;                                                          \
    }

PLANNED(DISK_LOCK, int, flock, (int fd, int operation), (fd, operation))
PLANNED(DISK_PREAD, ssize_t, pread, (int fd, void *to, size_t length, off_t at), (fd, to, length, at))
PLANNED(DISK_PREAD, ssize_t, pread64, (int fd, void *to, size_t length, off64_t at), (fd, to, length, at))
PLANNED(DISK_PWRITE, ssize_t, pwrite, (int fd, const void *from, size_t length, off_t at), (fd, from, length, at))
PLANNED(DISK_PWRITE, ssize_t, pwrite64, (int fd, const void *from, size_t length, off64_t at), (fd, from, length, at))
PLANNED(DISK_STAT, int, fstat, (int fd, struct stat *st), (fd, st))
PLANNED(DISK_STAT, int, fstat64, (int fd, struct stat64 *st), (fd, st))
PLANNED(DISK_STATAT, int, fstatat, (int at, const char *path, struct stat *st, int flags), (at, path, st, flags))
PLANNED(DISK_STATAT, int, fstatat64, (int at, const char *path, struct stat64 *st, int flags), (at, path, st, flags))
PLANNED(DISK_TRUNCATE, int, ftruncate, (int fd, off_t length), (fd, length))
PLANNED(DISK_TRUNCATE, int, ftruncate64, (int fd, off64_t length), (fd, length))
PLANNED(DISK_RENAME, int, renameat, (int at, const char *from, int to_at, const char *to), (at, from, to_at, to))
PLANNED(DISK_RANDOM, ssize_t, getrandom, (void *to, size_t length, unsigned flags), (to, length, flags))

/* These have a mode where there is a file to make. */
#define PLANNED_OPEN(call, name, parameters, arguments)                                                                \
    int __real_##name parameters;                                                                                      \
    int __wrap_##name parameters;                                                                                      \
    int __wrap_##name parameters                                                                                       \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                                                      \
        va_end(rest);                                                                                                  \
        return plan(call) < 0 ? -1 : __real_##name arguments;                                                          \
    }

PLANNED_OPEN(DISK_OPEN, open, (const char *path, int flags, ...), (path, flags, mode))
PLANNED_OPEN(DISK_OPEN, open64, (const char *path, int flags, ...), (path, flags, mode))
PLANNED_OPEN(DISK_OPENAT, openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
PLANNED_OPEN(DISK_OPENAT, openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *arg)
{
    return plan(DISK_THREAD) < 0 ? errno : __real_pthread_create(thread, attributes, run, arg);
}

void disk_fail_writes(int number)
{
    disk.write_error = number;
}

void disk_shorten_writes(size_t at_most)
{
    disk.write_at_most = at_most;
}

void disk_fail_room(int number)
{
    disk.room_error = number;
}

void disk_fail_syncs(int number, ino_t inode)
{
    pthread_mutex_lock(&disk.mutex);
    disk.sync_error = number;
    disk.sync_error_on = inode;
    pthread_mutex_unlock(&disk.mutex);
}

void disk_hold_syncs(bool hold)
{
    pthread_mutex_lock(&disk.mutex);
    disk.hold = hold;
    pthread_cond_broadcast(&disk.released);
    pthread_mutex_unlock(&disk.mutex);
}

void disk_remember(const char *name)
{
    disk.name = name;
    disk.durable = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)g_bytes_unref);
}

GBytes *disk_durable(ino_t inode)
{
    GBytes *bytes;

    pthread_mutex_lock(&disk.mutex);
    bytes = g_hash_table_lookup(disk.durable, GSIZE_TO_POINTER(inode));
    if (bytes)
        g_bytes_ref(bytes);
    pthread_mutex_unlock(&disk.mutex);
    return bytes;
}

ino_t disk_durable_name(void)
{
    ino_t inode;

    pthread_mutex_lock(&disk.mutex);
    inode = disk.durable_name;
    pthread_mutex_unlock(&disk.mutex);
    return inode;
}

ssize_t __wrap_write(int fd, const void *data, size_t length)
{
    int number;

    if (is_planned(DISK_WRITE, &number) && !number)
        return __real_write(fd, data, length / 2);
    if (number) {
        errno = number;
        return -1;
    }
    if (disk.write_error) {
        errno = disk.write_error;
        return -1;
    }
    if (disk.write_at_most && length > disk.write_at_most)
        length = disk.write_at_most;
    return __real_write(fd, data, length);
}

struct journal_map;
int __real_journal_map_copy(struct journal_map *map, uint64_t at, const void *data, size_t length);
int __wrap_journal_map_copy(struct journal_map *map, uint64_t at, const void *data, size_t length);

/* In place of a write: it cannot be interrupted or short, and takes no room that is not there. */
int __wrap_journal_map_copy(struct journal_map *map, uint64_t at, const void *data, size_t length)
{
    int number;

    is_planned(DISK_WRITE, &number);
    if (number && number != EINTR)
        return -number;
    if (disk.write_error && disk.write_error != ENOSPC)
        return -disk.write_error;
    return __real_journal_map_copy(map, at, data, length);
}

/* The C library has two names for it: which one is called depends on how off_t was chosen. */
int __wrap_fallocate64(int fd, int mode, off64_t offset, off64_t length)
{
    if (plan(DISK_ROOM) < 0)
        return -1;
    if (disk.room_error) {
        errno = disk.room_error;
        return -1;
    }
    return __real_fallocate64(fd, mode, offset, length);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t length)
{
    return __wrap_fallocate64(fd, mode, offset, length);
}

static GBytes *bytes_of(int fd)
{
    struct stat64 st;
    uint8_t *data;
    ssize_t length;

    __real_fstat64(fd, &st);
    data = g_malloc((gsize)st.st_size);
    length = __real_pread64(fd, data, (size_t)st.st_size, 0);
    return g_bytes_new_take(data, (gsize)MAX(length, 0));
}

/* 0 or the errno with which this sync is to fail, after the wait for its release. */
static int wait_for_disk(ino_t inode)
{
    int error = 0;

    pthread_mutex_lock(&disk.mutex);
    while (disk.hold)
        pthread_cond_wait(&disk.released, &disk.mutex);
    if (!disk.sync_error_on || disk.sync_error_on == inode)
        error = disk.sync_error;
    pthread_mutex_unlock(&disk.mutex);
    return error;
}

/* A file that the journal has closed is still the durable one until the directory is synced. */
static void keep_named(int directory, ino_t inode)
{
    pthread_mutex_lock(&disk.mutex);
    if (inode != disk.durable_name) {
        if (disk.named[1] >= 0)
            close(disk.named[1]);
        disk.named[1] = disk.named[0];
        disk.named[0] = (int)syscall(SYS_openat, directory, disk.name, O_PATH | O_CLOEXEC, 0);
    }
    pthread_mutex_unlock(&disk.mutex);
}

static int sync_file(int fd, int (*real)(int))
{
    struct stat64 st, named = {0};
    GBytes *bytes = NULL;

    if (plan(DISK_SYNC) < 0)
        return -1;
    __real_fstat64(fd, &st);
    errno = wait_for_disk(st.st_ino);
    if (errno)
        return -1;
    /* as it is before the call: that much at least is safe after it */
    if (disk.durable && S_ISREG(st.st_mode))
        bytes = bytes_of(fd);
    else if (disk.durable && S_ISDIR(st.st_mode))
        __real_fstatat64(fd, disk.name, &named, 0);
    if (named.st_ino)
        keep_named(fd, named.st_ino);
    if (real(fd) < 0)
        return -1;
    pthread_mutex_lock(&disk.mutex);
    if (bytes)
        g_hash_table_replace(disk.durable, GSIZE_TO_POINTER(st.st_ino), bytes);
    if (named.st_ino)
        disk.durable_name = named.st_ino;
    pthread_mutex_unlock(&disk.mutex);
    return 0;
}

#ifdef __SANITIZE_THREAD__
/* It does not see how GLib counts the references of a GBytes. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:^g_bytes_unref$\n";
}
#endif

int __wrap_fdatasync(int fd)
{
    return sync_file(fd, __real_fdatasync);
}

int __wrap_fsync(int fd)
{
    return sync_file(fd, __real_fsync);
}
