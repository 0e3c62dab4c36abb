/* disk: write, fallocate, fdatasync and fsync, wrapped. */
#include "tests/support/disk.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>
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
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .released = PTHREAD_COND_INITIALIZER};

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
    if (disk.write_error) {
        errno = disk.write_error;
        return -1;
    }
    if (disk.write_at_most && length > disk.write_at_most)
        length = disk.write_at_most;
    return __real_write(fd, data, length);
}

/* The C library has two names for it: which one is called depends on how off_t was chosen. */
int __wrap_fallocate64(int fd, int mode, off64_t offset, off64_t length)
{
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
    struct stat st;
    uint8_t *data;
    ssize_t length;

    fstat(fd, &st);
    data = g_malloc((gsize)st.st_size);
    length = pread(fd, data, (size_t)st.st_size, 0);
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

static int sync_file(int fd, int (*real)(int))
{
    struct stat st, named = {0};
    GBytes *bytes = NULL;

    fstat(fd, &st);
    errno = wait_for_disk(st.st_ino);
    if (errno)
        return -1;
    /* as it is before the call: that much at least is safe after it */
    if (disk.durable && S_ISREG(st.st_mode))
        bytes = bytes_of(fd);
    else if (disk.durable && S_ISDIR(st.st_mode))
        fstatat(fd, disk.name, &named, 0);
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
