/* descriptor: the open files of the simulated daemons; see descriptor.h. */
#include "tests/sim/descriptor.h"

#include <errno.h>
#include <ev.h>
#include <glib.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/disk.h"
#include "tests/sim/kernel.h"
#include "tests/sim/network.h"
#include "tests/sim/process.h"
#include "tests/sim/zookeeper_model.h"

#define DESCRIPTOR_FIRST (1 << 24)

struct descriptor {
    enum descriptor_kind kind;
    void *object;
};

struct timer {
    struct host *host;
    int64_t due; /* CLOCK_BOOTTIME; 0: not set */
};

static GArray *descriptors;

static struct descriptor *descriptor_of(int fd)
{
    bool known = descriptors && fd >= DESCRIPTOR_FIRST && (guint)(fd - DESCRIPTOR_FIRST) < descriptors->len;
    return known ? &g_array_index(descriptors, struct descriptor, fd - DESCRIPTOR_FIRST) : NULL;
}

int descriptor_new(enum descriptor_kind kind, void *object)
{
    struct descriptor new = {kind, object};
    if (!descriptors) {
        descriptors = g_array_new(FALSE, FALSE, sizeof new);
    }
    for (guint i = 0; i < descriptors->len; i++) {
        struct descriptor *d = &g_array_index(descriptors, struct descriptor, i);
        if (d->kind == DESCRIPTOR_FREE) {
            *d = new;
            return DESCRIPTOR_FIRST + (int)i;
        }
    }
    g_array_append_val(descriptors, new);
    return DESCRIPTOR_FIRST + (int)descriptors->len - 1;
}

void *descriptor_object(int fd, enum descriptor_kind kind)
{
    const struct descriptor *d = descriptor_of(fd);
    return d && d->kind == kind ? d->object : NULL;
}

void descriptor_close(int fd)
{
    struct descriptor *d = descriptor_of(fd);
    if (!d) {
        return;
    }
    switch (d->kind) {
    case DESCRIPTOR_TIMER:
        g_free(d->object);
        break;
    case DESCRIPTOR_SOCKET:
        network_close(d->object);
        break;
    case DESCRIPTOR_ZOOKEEPER:
        zkconn_close(d->object);
        break;
    case DESCRIPTOR_PIDFD:
        process_unwatch(fd);
        process_unref(d->object);
        break;
    case DESCRIPTOR_WATCH:
        process_watch_free(d->object);
        break;
    case DESCRIPTOR_FILE:
        disk_close(d->object);
        break;
    default:
        break;
    }
    d->kind = DESCRIPTOR_FREE;
}

static bool timer_has_expired(const struct timer *timer)
{
    return timer->due && host_boottime(timer->host) >= timer->due;
}

int descriptor_ready(int fd)
{
    const struct descriptor *d = descriptor_of(fd);
    switch (d ? d->kind : DESCRIPTOR_FREE) {
    case DESCRIPTOR_TIMER:
        return timer_has_expired(d->object) ? EV_READ : 0;
    case DESCRIPTOR_SOCKET:
        return network_ready(d->object);
    case DESCRIPTOR_ZOOKEEPER:
        return zkconn_ready(d->object);
    case DESCRIPTOR_KERNEL:
        return kernel_has_message(d->object) ? EV_READ : 0;
    case DESCRIPTOR_WATCH:
        return process_watch_is_ready(d->object) ? EV_READ : 0;
    default:
        return 0;
    }
}

int64_t descriptor_next(int fd, const struct host *host)
{
    const struct timer *timer = descriptor_object(fd, DESCRIPTOR_TIMER);
    return timer && timer->due ? host_boottime_at(host, timer->due) : WORLD_NEVER;
}

/* --- in place of the C library ------------------------------------------------------ */

ssize_t __real_read(int fd, void *data, size_t size);
ssize_t __wrap_read(int fd, void *data, size_t size);
ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
ssize_t __real_writev(int fd, const struct iovec *parts, int count);
ssize_t __wrap_writev(int fd, const struct iovec *parts, int count);
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_timerfd_create(int clock, int flags);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned flags);
guint32 __wrap_g_random_int(void);
int __wrap_gethostname(char *name, size_t size);
FILE *__wrap_fopen(const char *path, const char *mode);
int __wrap_getrlimit(__rlimit_resource_t resource, struct rlimit *limit);
int __wrap_getpid(void);

ssize_t __wrap_read(int fd, void *data, size_t size)
{
    struct timer *timer = descriptor_object(fd, DESCRIPTOR_TIMER);
    struct kernel *kernel = descriptor_object(fd, DESCRIPTOR_KERNEL);
    if (kernel) {
        return kernel_read(kernel, data, size);
    }
    if (!timer) {
        return __real_read(fd, data, size);
    }
    if (!timer_has_expired(timer)) {
        errno = EAGAIN;
        return -1;
    }
    timer->due = 0;
    memcpy(data, &(uint64_t){1}, sizeof(uint64_t));
    return sizeof(uint64_t);
}

ssize_t __wrap_write(int fd, const void *data, size_t size)
{
    struct disk_open *file = descriptor_object(fd, DESCRIPTOR_FILE);
    struct kernel *kernel = descriptor_object(fd, DESCRIPTOR_KERNEL);
    if (kernel) {
        return kernel_writev(kernel, &(struct iovec){(void *)data, size}, 1);
    }
    return file ? disk_write(file, data, size) : __real_write(fd, data, size);
}

ssize_t __wrap_writev(int fd, const struct iovec *parts, int count)
{
    struct kernel *kernel = descriptor_object(fd, DESCRIPTOR_KERNEL);
    return kernel ? kernel_writev(kernel, parts, count) : __real_writev(fd, parts, count);
}

int __wrap_close(int fd)
{
    if (fd < DESCRIPTOR_FIRST) {
        return __real_close(fd);
    }
    descriptor_close(fd);
    return 0;
}

int __wrap_timerfd_create(int clock, int flags)
{
    struct timer *timer = g_new0(struct timer, 1);
    (void)clock, (void)flags;
    timer->host = world_host();
    return descriptor_new(DESCRIPTOR_TIMER, timer);
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old)
{
    struct timer *timer = descriptor_object(fd, DESCRIPTOR_TIMER);
    (void)flags, (void)old;
    timer->due = new->it_value.tv_sec *WORLD_SECOND + new->it_value.tv_nsec;
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const struct host *host = world_host();
    bool real = clock == CLOCK_REALTIME, monotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
    int64_t value = !host       ? world_now()
                    : real      ? host_realtime(host)
                    : monotonic ? host_monotonic(host)
                                : host_boottime(host);
    *now = (struct timespec){.tv_sec = (time_t)(value / WORLD_SECOND), .tv_nsec = (long)(value % WORLD_SECOND)};
    return 0;
}

ssize_t __wrap_getrandom(void *buffer, size_t size, unsigned flags)
{
    unsigned char *bytes = buffer;
    (void)flags;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)world_random();
    }
    return (ssize_t)size;
}

guint32 __wrap_g_random_int(void)
{
    return (guint32)world_random();
}

int __wrap_gethostname(char *name, size_t size)
{
    g_snprintf(name, size, "host%u", world_host()->index);
    return 0;
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
    static char boot_id[40];
    (void)mode;
    if (strcmp(path, "/proc/sys/kernel/random/boot_id") != 0) {
        return NULL;
    }
    g_strlcpy(boot_id, world_host()->boot_id, sizeof boot_id);
    return fmemopen(boot_id, strlen(boot_id), "r");
}

int __wrap_getrlimit(__rlimit_resource_t resource, struct rlimit *limit)
{
    (void)resource;
    limit->rlim_cur = limit->rlim_max = 1024;
    return 0;
}

int __wrap_getpid(void)
{
    return 2 + (int)(world_host() ? world_host()->index : 0);
}

/* With 64-bit offsets the names are others. */
FILE *__wrap_fopen64(const char *path, const char *mode) __attribute__((alias("__wrap_fopen")));
int __wrap_getrlimit64(__rlimit_resource_t resource, struct rlimit *limit) __attribute__((alias("__wrap_getrlimit")));
