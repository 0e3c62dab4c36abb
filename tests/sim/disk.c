/* disk: the disk of a local store; see disk.h. */
#include "tests/sim/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/journal/file.h"
#include "tests/sim/descriptor.h"
#include "tests/sim/task.h"
#include "tests/sim/world.h"

#define DISK_NAMES 4
#define DISK_PAGE 4096

struct disk_file {
    ino_t ino;
    unsigned links;      /* names, durable ones too, and opens */
    GByteArray *bytes;   /* in the page cache */
    GByteArray *durable; /* on the platter */
    guint room;          /* so much of it has its blocks, whatever becomes of the disk */
    bool in_place;       /* it was written over or in memory: its pages reach the platter in any order */
    struct disk_open *locked;
};

struct disk_name {
    char name[16];
    struct disk_file *file, *durable;
};

struct disk {
    unsigned index;
    struct disk_name names[DISK_NAMES];
    int write_error;
    bool syncs_fail, shorten, twice;
    int next_error;           /* of one write */
    bool unmapped;            /* its files cannot be mapped */
    bool damaged;             /* something of it is not as it was written */
    unsigned cut_in;          /* writes; 0: never */
    int64_t written, durable; /* the last write; and the last one that was synced */
    ino_t next_ino;
    void (*cut)(void *arg);
    void *arg;
};

struct disk_open {
    struct disk *disk;
    struct disk_file *file; /* NULL: the directory itself */
    bool append;
};

static struct disk *disks[16];

struct disk *disk_new(unsigned index)
{
    struct disk *disk = g_new0(struct disk, 1);
    disk->index = index;
    disk->next_ino = 100;
    disk->unmapped = world_chance(300);
    disks[index] = disk;
    return disk;
}

void disk_on_cut(struct disk *disk, void (*cut)(void *arg), void *arg)
{
    disk->cut = cut;
    disk->arg = arg;
}

static void disk_unlink(struct disk_file *file)
{
    if (file && --file->links == 0) {
        g_byte_array_unref(file->bytes);
        g_byte_array_unref(file->durable);
        g_free(file);
    }
}

static struct disk_name *disk_name(struct disk *disk, const char *name)
{
    struct disk_name *free = NULL;
    for (size_t i = 0; i < DISK_NAMES; i++) {
        if (strcmp(disk->names[i].name, name) == 0) {
            return &disk->names[i];
        }
        free = free ? free : !disk->names[i].name[0] ? &disk->names[i] : NULL;
    }
    g_strlcpy(free->name, name, sizeof free->name);
    return free;
}

static void disk_set(struct disk_file **at, struct disk_file *file)
{
    if (file) {
        file->links++;
    }
    disk_unlink(*at);
    *at = file;
}

/* "/sim/3" or "/sim/3/lock"; NULL: no path of ours. */
static struct disk *disk_of_path(const char *path, const char **ret_name)
{
    unsigned index;
    int length = 0;
    if (sscanf(path, "/sim/%u%n", &index, &length) < 1 || !length || index >= G_N_ELEMENTS(disks) || !disks[index]) {
        return NULL;
    }
    *ret_name = path[length] == '/' ? path + length + 1 : NULL;
    return disks[index];
}

static struct disk_open *disk_of(int fd)
{
    struct disk_open *open = descriptor_object(fd, DESCRIPTOR_FILE);
    return open ? open : descriptor_object(fd, DESCRIPTOR_DIRECTORY);
}

static int disk_open(struct disk *disk, const char *name, int flags)
{
    struct disk_open *open = g_new0(struct disk_open, 1);
    open->disk = disk;
    open->append = flags & O_APPEND;
    if (!name) {
        return descriptor_new(DESCRIPTOR_DIRECTORY, open);
    }
    struct disk_name *at = disk_name(disk, name);
    if (!at->file && !(flags & O_CREAT)) {
        g_free(open);
        errno = ENOENT;
        return -1;
    }
    if (!at->file) {
        struct disk_file *file = g_new0(struct disk_file, 1);
        file->ino = disk->next_ino++;
        file->bytes = g_byte_array_new();
        file->durable = g_byte_array_new();
        disk_set(&at->file, file);
    }
    if (flags & O_TRUNC) {
        g_byte_array_set_size(at->file->bytes, 0);
    }
    disk_set(&open->file, at->file);
    return descriptor_new(DESCRIPTOR_FILE, open);
}

void disk_close(struct disk_open *open)
{
    if (open->file && open->file->locked == open) {
        open->file->locked = NULL;
    }
    disk_unlink(open->file);
    g_free(open);
}

ssize_t disk_write(struct disk_open *open, const void *data, size_t size)
{
    struct disk *disk = open->disk;
    bool fits = disk->write_error == ENOSPC && open->file->bytes->len + size <= open->file->room;
    if (disk->next_error) {
        errno = disk->next_error;
        disk->next_error = 0;
        return -1;
    }
    if (disk->write_error && !fits) {
        errno = disk->write_error;
        return -1;
    }
    if (disk->cut_in && --disk->cut_in == 0) {
        g_byte_array_append(open->file->bytes, data, world_below((uint32_t)size + 1));
        disk->cut(disk->arg);
    }
    if (disk->shorten && size > 1) {
        disk->shorten = false;
        size = 1 + world_below((uint32_t)size - 1);
    }
    for (int i = 0; i < (disk->twice ? 2 : 1); i++) {
        g_byte_array_append(open->file->bytes, data, (guint)size);
    }
    disk->damaged = disk->damaged || disk->twice;
    disk->twice = false;
    open->file->room = MAX(open->file->room, open->file->bytes->len);
    disk->written = world_now();
    return (ssize_t)size;
}

/* In memory, where there is room for it.  A disk that fails is noticed when a page is used. */
static int disk_store(struct disk_open *open, guint at, const void *data, guint size)
{
    struct disk *disk = open->disk;
    guint8 *to = open->file->bytes->data + at;
    if (disk->write_error == EIO) {
        return -EIO;
    }
    open->file->in_place = true;
    if (disk->cut_in && --disk->cut_in == 0) {
        guint from = world_chance(500) ? 0 : world_below(size + 1); /* a copy may begin anywhere */
        memcpy(to + from, (const guint8 *)data + from, world_below(size - from + 1));
        disk->cut(disk->arg);
    }
    memcpy(to, data, size);
    disk->written = world_now();
    return 0;
}

static int disk_sync(struct disk_open *open)
{
    if (task_current()) { /* of the loop's own thread only at the start */
        task_sleep(world_between(50, 5000) * WORLD_US);
    }
    if (open->disk->syncs_fail) {
        errno = EIO;
        return -1;
    }
    if (open->file) {
        g_byte_array_set_size(open->file->durable, 0);
        g_byte_array_append(open->file->durable, open->file->bytes->data, open->file->bytes->len);
        open->disk->durable = open->disk->written;
        return 0;
    }
    for (size_t i = 0; i < DISK_NAMES; i++) {
        disk_set(&open->disk->names[i].durable, open->disk->names[i].file);
    }
    return 0;
}

/* --- faults -------------------------------------------------------------------------- */

void disk_fail_writes(struct disk *disk, int error)
{
    disk->write_error = error;
}

void disk_fail_syncs(struct disk *disk, bool fail)
{
    disk->syncs_fail = fail;
}

void disk_shorten_write(struct disk *disk)
{
    disk->shorten = true;
}

void disk_fail_next_write(struct disk *disk, int error)
{
    disk->next_error = error;
}

void disk_double_write(struct disk *disk)
{
    disk->twice = true;
}

bool disk_was_damaged(struct disk *disk)
{
    bool damaged = disk && disk->damaged;
    if (damaged) {
        disk->damaged = false;
    }
    return damaged;
}

void disk_cut_at_write(struct disk *disk, unsigned writes)
{
    disk->cut_in = writes;
}

int64_t disk_written(const struct disk *disk)
{
    return disk->durable;
}

/* Each page as it is or as it was last synced, and so is the length. */
static size_t disk_lose_pages(GByteArray *was, const GByteArray *durable)
{
    size_t lost = 0;
    if (durable->len < was->len && world_chance(500)) {
        g_byte_array_set_size(was, durable->len);
    }
    for (guint at = 0; at < was->len; at += DISK_PAGE) {
        guint size = MIN(DISK_PAGE, was->len - at), kept = at < durable->len ? MIN(size, durable->len - at) : 0;
        if (world_chance(500)) {
            memset(was->data + at + kept, 0, size - kept);
            if (kept) {
                memcpy(was->data + at, durable->data + at, kept);
            }
            lost += size;
        }
    }
    return lost;
}

size_t disk_lose_power(struct disk *disk)
{
    size_t lost = 0;
    for (size_t i = 0; i < DISK_NAMES; i++) {
        struct disk_name *name = &disk->names[i];
        /* what is in a directory comes to the platter in time by itself */
        struct disk_file *file = name->durable && world_chance(500) ? name->durable : name->file;
        disk_set(&name->file, file);
        disk_set(&name->durable, file);
        if (!file) {
            continue;
        }
        GByteArray *was = file->bytes, *durable = file->durable;
        guint kept = durable->len;
        if (file->in_place) {
            lost += disk_lose_pages(was, durable);
        } else if (was->len > kept) {
            kept += world_below(was->len - kept + 1);
            lost += was->len - kept;
            g_byte_array_set_size(was, kept);
        }
        g_byte_array_set_size(durable, 0);
        g_byte_array_append(durable, was->data, was->len);
    }
    disk_forget_opens(disk);
    return lost;
}

bool disk_flip(struct disk *disk, bool last)
{
    struct disk_file *file = disk_name(disk, "journal")->file;
    if (!file || file->bytes->len == 0) {
        return false;
    }
    guint among = last ? MIN(file->bytes->len, 16) : file->bytes->len;
    guint at = file->bytes->len - 1 - world_below(among);
    file->bytes->data[at] ^= (guint8)(1u << world_below(8));
    disk->damaged = true;
    return true;
}

void disk_forget_opens(struct disk *disk)
{
    for (size_t i = 0; i < DISK_NAMES; i++) {
        if (disk->names[i].file) {
            disk->names[i].file->locked = NULL;
        }
    }
    disk->cut_in = 0;
    disk->shorten = disk->twice = false;
    disk->next_error = 0;
}

void disk_remove(struct disk *disk)
{
    for (size_t i = 0; i < DISK_NAMES; i++) {
        disk_set(&disk->names[i].file, NULL);
        disk_set(&disk->names[i].durable, NULL);
    }
    disk_forget_opens(disk);
}

/* --- in place of the C library ------------------------------------------------------- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int directory, const char *name, int flags, ...);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_fstat(int fd, struct stat *ret);
int __wrap_fstat(int fd, struct stat *ret);
int __wrap_fstatat(int directory, const char *name, struct stat *ret, int flags);
int __wrap_flock(int fd, int operation);
int __real_ftruncate(int fd, off_t length);
int __wrap_ftruncate(int fd, off_t length);
ssize_t __wrap_pread(int fd, void *data, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t length);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_unlinkat(int directory, const char *name, int flags);
int __wrap_renameat(int from, const char *old, int to, const char *new);

int __wrap_open(const char *path, int flags, ...)
{
    const char *name;
    struct disk *disk = disk_of_path(path, &name);
    if (!disk && g_str_has_suffix(path, ".gcda")) { /* what this program itself has reached, of make coverage */
        return __real_open(path, flags, 0600);
    }
    if (!disk) {
        errno = ENOENT;
        return -1;
    }
    return disk_open(disk, name, flags);
}

int __wrap_openat(int directory, const char *name, int flags, ...)
{
    return disk_open(disk_of(directory)->disk, name, flags);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    (void)path, (void)mode;
    errno = EEXIST;
    return -1;
}

static void disk_stat(const struct disk_file *file, struct stat *ret)
{
    *ret = (struct stat){.st_mode = file ? S_IFREG | 0600 : S_IFDIR | 0700,
                         .st_ino = file ? file->ino : 2,
                         .st_size = file ? (off_t)file->bytes->len : 0,
                         .st_nlink = 1,
                         .st_uid = geteuid()};
}

int __wrap_fstat(int fd, struct stat *ret)
{
    if (!disk_of(fd)) {
        return __real_fstat(fd, ret);
    }
    disk_stat(disk_of(fd)->file, ret);
    return 0;
}

int __wrap_fstatat(int directory, const char *name, struct stat *ret, int flags)
{
    const struct disk_file *file = disk_name(disk_of(directory)->disk, name)->file;
    (void)flags;
    if (!file) {
        errno = ENOENT;
        return -1;
    }
    disk_stat(file, ret);
    return 0;
}

int __wrap_flock(int fd, int operation)
{
    struct disk_open *open = disk_of(fd);
    (void)operation;
    if (open->file->locked && open->file->locked != open) {
        errno = EWOULDBLOCK;
        return -1;
    }
    open->file->locked = open;
    return 0;
}

static void disk_set_length(struct disk_file *file, guint length)
{
    guint before = file->bytes->len;
    g_byte_array_set_size(file->bytes, length);
    if (length > before) {
        memset(file->bytes->data + before, 0, length - before);
    }
}

int __wrap_ftruncate(int fd, off_t length)
{
    if (!disk_of(fd)) {
        return __real_ftruncate(fd, length); /* a memfd */
    }
    struct disk_file *file = disk_of(fd)->file;
    if ((guint)length <= file->bytes->len) {
        file->room = (guint)length;
    }
    disk_set_length(file, (guint)length);
    return 0;
}

ssize_t __wrap_pread(int fd, void *data, size_t size, off_t offset)
{
    const GByteArray *bytes = disk_of(fd)->file->bytes;
    size_t there = (size_t)offset < bytes->len ? bytes->len - (size_t)offset : 0;
    memcpy(data, bytes->data + offset, MIN(size, there));
    return (ssize_t)MIN(size, there);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    struct disk_file *file = disk_of(fd)->file;
    file->in_place = true;
    disk_set_length(file, MAX(file->bytes->len, (guint)offset + (guint)size));
    memcpy(file->bytes->data + offset, data, size);
    return (ssize_t)size;
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t length)
{
    const struct disk_open *open = disk_of(fd);
    guint room = (guint)(offset + length);
    (void)mode;
    if (open->disk->write_error == ENOSPC && room > open->file->room) {
        errno = ENOSPC;
        return -1;
    }
    open->file->room = MAX(open->file->room, room);
    return 0;
}

int __wrap_fsync(int fd)
{
    return disk_sync(disk_of(fd));
}

int __wrap_fdatasync(int fd)
{
    return disk_sync(disk_of(fd));
}

int __wrap_unlinkat(int directory, const char *name, int flags)
{
    struct disk_name *at = disk_name(disk_of(directory)->disk, name);
    (void)flags;
    disk_set(&at->file, NULL);
    return 0;
}

int __wrap_renameat(int from, const char *old, int to, const char *new)
{
    struct disk *disk = disk_of(from)->disk;
    struct disk_name *source = disk_name(disk, old), *target = disk_name(disk, new);
    (void)to;
    disk_set(&target->file, source->file);
    disk_set(&source->file, NULL);
    return 0;
}

int __wrap_journal_map_open(struct journal_map *map, int fd, uint64_t from, uint64_t end);
int __wrap_journal_map_copy(struct journal_map *map, uint64_t at, const void *data, size_t length);
void __wrap_journal_map_close(struct journal_map *map);

int __wrap_journal_map_open(struct journal_map *map, int fd, uint64_t from, uint64_t end)
{
    struct disk_open *open = disk_of(fd);
    if (open->disk->unmapped) {
        return -ENODEV;
    }
    *map = (struct journal_map){.base = (void *)open, .offset = from, .end = end};
    return 0;
}

int __wrap_journal_map_copy(struct journal_map *map, uint64_t at, const void *data, size_t length)
{
    return disk_store((void *)map->base, (guint)at, data, (guint)length);
}

void __wrap_journal_map_close(struct journal_map *map)
{
    *map = (struct journal_map){.base = NULL};
}

/* With 64-bit offsets the names are others. */
int __wrap_open64(const char *path, int flags, ...) __attribute__((alias("__wrap_open")));
int __wrap_openat64(int directory, const char *name, int flags, ...) __attribute__((alias("__wrap_openat")));
int __wrap_fstat64(int fd, struct stat *ret) __attribute__((alias("__wrap_fstat")));
int __wrap_fstatat64(int directory, const char *name, struct stat *ret, int flags)
    __attribute__((alias("__wrap_fstatat")));
int __wrap_ftruncate64(int fd, off_t length) __attribute__((alias("__wrap_ftruncate")));
ssize_t __wrap_pread64(int fd, void *data, size_t size, off_t offset) __attribute__((alias("__wrap_pread")));
ssize_t __wrap_pwrite64(int fd, const void *data, size_t size, off_t offset) __attribute__((alias("__wrap_pwrite")));
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t length) __attribute__((alias("__wrap_fallocate")));
