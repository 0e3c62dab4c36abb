/* directory: the state directory, its lock and its files: opens and closes the
 * journal.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "backend/journal/file.h"

/* mkdir -p with mode 0700. */
static int directory_make(const char *path)
{
    char *part = g_strdup(path);
    int r = 0;
    for (char *p = part + 1; r == 0; p++) {
        char c = *p;
        if (c != '/' && c != '\0') {
            continue;
        }
        *p = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST) {
            r = -errno;
        }
        *p = c;
        if (c == '\0') {
            break;
        }
    }
    g_free(part);
    return r;
}

static int directory_open(struct journal *j, char *error, size_t error_size)
{
    struct stat st;
    int r = *j->path ? directory_make(j->path) : -ENOENT;
    if (r == 0) {
        j->directory = open(j->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (j->directory < 0 || fstat(j->directory, &st) < 0) {
            r = -errno;
        }
    }
    if (r < 0 && g_file_test(j->path, G_FILE_TEST_IS_SYMLINK)) {
        g_snprintf(error, error_size,
                   "%s is a symbolic link, which may lead elsewhere tomorrow: give the directory itself", j->path);
        return r;
    }
    if (r == -ENOTDIR) {
        g_snprintf(error, error_size, "%s is no directory, or is below a file: give another directory", j->path);
        return r;
    }
    if (r < 0) {
        g_snprintf(error, error_size,
                   "%s cannot be used to keep leases: %s: make it writable, or give another directory", j->path,
                   g_strerror(-r));
        return r;
    }
    if (st.st_uid != geteuid()) {
        g_snprintf(error, error_size,
                   "%s belongs to user %u, who could forge leases: chown it to user %u, or give another directory",
                   j->path, (unsigned)st.st_uid, (unsigned)geteuid());
        return -EACCES;
    }
    if (st.st_mode & (S_IWGRP | S_IWOTH)) {
        g_snprintf(error, error_size, "%s can be written by other users, who could forge leases: chmod 700 %s", j->path,
                   j->path);
        return -EACCES;
    }
    return 0;
}

/* Opens the path again, as the next daemon would, because another directory may have
 * that name now. */
static bool directory_is_at_path(const struct journal *j, const char *name, int fd)
{
    char path[PATH_MAX];
    struct stat ours, there;
    g_snprintf(path, sizeof(path), "%s/%s", j->path, name);
    int found = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (found < 0) {
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM; /* cannot know: assume that it is there */
    }
    bool same = fstat(fd, &ours) == 0 && fstat(found, &there) == 0 && ours.st_ino == there.st_ino &&
                ours.st_dev == there.st_dev;
    close(found);
    return same;
}

bool journal_in_place(struct journal *j)
{
    struct stat st;
    struct statfs fs;
    if (fstat(j->file.fd, &st) == 0 && (uint64_t)st.st_size < j->file.size) {
        journal_fail(j, EIO); /* it was truncated */
    }
    if (fstatfs(j->file.fd, &fs) == 0 && fs.f_flags & ST_RDONLY) {
        journal_fail(j, EROFS); /* the kernel does that after an error of the disk, and writes go to memory only */
    }
    return directory_is_at_path(j, LOCK_NAME, j->lock) && directory_is_at_path(j, JOURNAL_NAME, j->file.fd);
}

/* Refuses a link, a pipe, a device, or another user's file at the path of a journal file. */
static int directory_check_file(const struct journal *j, const char *name, char *error, size_t error_size)
{
    struct stat st = {0};
    if (fstatat(j->directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
        return 0;
    }
    if (S_ISREG(st.st_mode) && st.st_uid == geteuid()) {
        return 0;
    }
    g_snprintf(error, error_size, "%s/%s is not a regular file of user %u: see who put it there, and take it away",
               j->path, name, (unsigned)geteuid());
    return -EACCES;
}

static int directory_check_files(const struct journal *j, char *error, size_t error_size)
{
    static const char *const names[] = {LOCK_NAME, JOURNAL_NAME, JOURNAL_NEW_NAME};
    int r = 0;
    for (size_t i = 0; r == 0 && i < G_N_ELEMENTS(names); i++) {
        r = directory_check_file(j, names[i], error, error_size);
    }
    return r;
}

static int directory_take_lock(struct journal *j, char *error, size_t error_size)
{
    char pid[JOURNAL_PID_SIZE + 1] = "";
    if (j->lock < 0) {
        j->lock = openat(j->directory, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    if (j->lock >= 0 && flock(j->lock, LOCK_EX | LOCK_NB) == 0) {
        if (!directory_is_at_path(j, LOCK_NAME, j->lock)) {
            g_snprintf(error, error_size, "%s was replaced by somebody while it was opened: try again", j->path);
            return -ESTALE;
        }
        int length = g_snprintf(pid, sizeof(pid), "%-*d\n", JOURNAL_PID_SIZE - 1, (int)getpid());

        /* the pid is only for people, so a full disk is no error here */
        bool noted = ftruncate(j->lock, JOURNAL_LOCK_SIZE) == 0 && pwrite(j->lock, pid, (size_t)length, 0) > 0;
        (void)noted;
        return 0;
    }
    int r = -errno;
    if (r == -EWOULDBLOCK) {
        if (pread(j->lock, pid, sizeof(pid) - 1, 0) < 0) {
            pid[0] = '\0';
        }
        pid[strspn(pid, "0123456789")] = '\0';
        g_snprintf(
            error, error_size,
            "%s is in use by another leasefs (pid %s): unmount that one first, also where a container or a service "
            "has a copy of its mount, or give another directory",
            j->path, *pid ? pid : "unknown");
    } else {
        g_snprintf(error, error_size, "%s/lock cannot be opened: %s: make it writable, or give another directory",
                   j->path, g_strerror(-r));
    }
    return r;
}

/* An empty journal appears whole or not at all. */
static int directory_create_journal(struct journal *j, char *error, size_t error_size)
{
    struct journal_mark mark = j->file.mark;
    int r = journal_file_create(&j->file, j->directory, JOURNAL_NEW_NAME);
    j->file.mark.fd = mark.fd;
    j->file.mark.boot = mark.boot;
    if (r == 0 && (fsync(j->file.fd) < 0 || renameat(j->directory, JOURNAL_NEW_NAME, j->directory, JOURNAL_NAME) < 0 ||
                   fsync(j->directory) < 0)) {
        r = -errno;
    }
    if (r < 0) {
        g_snprintf(error, error_size, "%s/" JOURNAL_NAME " cannot be created: %s: make room, or give another directory",
                   j->path, g_strerror(-r));
    }
    return r;
}

/* Writes the journal's mark to the disk, and allows the mapping if there was room for the mark.  After a reboot all
 * records that were read came from the disk, so they count as synced. */
static int directory_mark_journal(struct journal *j, char *error, size_t error_size)
{
    struct journal_mark *mark = &j->file.mark;
    bool new = !mark->found || mark->rebooted;
    if (new) {
        mark->synced = mark->rebooted ? j->file.size : 0;
    }
    j->file.mappable = *mark->boot && (!new || journal_mark_write(mark) == 0);
    if ((j->file.mappable && new &&fdatasync(j->lock) < 0) ||
        (!j->file.mappable && j->file.room && journal_file_give_room_back(&j->file, 0) < 0)) {
        int r = -errno;
        g_snprintf(error, error_size, "%s/" LOCK_NAME " cannot be written: %s: make room, or give another directory",
                   j->path, g_strerror(-r));
        return r;
    }
    return 0;
}

static int directory_read_journal(struct journal *j, journal_replay *replay, void *arg, uint64_t *ret_cut, char *error,
                                  size_t error_size)
{
    char *path = g_build_filename(j->path, JOURNAL_NAME, NULL);
    int r;
    j->file.mark = (struct journal_mark){.fd = j->lock, .boot = j->boot};
    j->file.fd = openat(j->directory, JOURNAL_NAME, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (j->file.fd >= 0) {
        j->file.batch = g_byte_array_new();
        r = journal_file_read(&j->file, path, replay, arg, ret_cut, error, error_size);
    } else if (errno == ENOENT) {
        r = directory_create_journal(j, error, error_size);
    } else {
        r = -errno;
        g_snprintf(error, error_size,
                   "%s cannot be opened: %s: make it readable and writable, or give another directory", path,
                   g_strerror(-r));
    }
    g_free(path);
    return r < 0 ? r : directory_mark_journal(j, error, error_size);
}

char *journal_boot_id(void)
{
    char *id = NULL;
    if (!g_file_get_contents("/proc/sys/kernel/random/boot_id", &id, NULL, NULL)) {
        return g_strdup("");
    }
    return g_strstrip(id);
}

int journal_lock_descriptor(const struct journal *j)
{
    return j->lock;
}

int journal_open(const char *directory, journal_replay *replay, void *arg, struct journal **ret_journal,
                 uint64_t *ret_cut, char *error, size_t error_size)
{
    g_autofree char *boot = journal_boot_id();
    return journal_open_in_boot(directory, boot, NULL, replay, arg, ret_journal, ret_cut, error, error_size);
}

int journal_open_in_boot(const char *directory, const char *boot, const int *lock, journal_replay *replay, void *arg,
                         struct journal **ret_journal, uint64_t *ret_cut, char *error, size_t error_size)
{
    struct journal *j = g_new0(struct journal, 1);
    uint64_t cut = 0;
    j->path = g_strdup(directory);
    j->boot = g_strdup(boot);
    j->directory = j->file.fd = j->next.fd = -1;
    j->lock = lock ? *lock : -1;
    j->retired = g_array_new(FALSE, FALSE, sizeof(int));
    pthread_mutex_init(&j->mutex, NULL);
    pthread_cond_init(&j->work, NULL);
    pthread_cond_init(&j->progress, NULL);

    int r = directory_open(j, error, error_size);
    if (r == 0) {
        r = directory_check_files(j, error, error_size);
    }
    if (r == 0) {
        r = directory_take_lock(j, error, error_size);
    }
    if (r == 0) {
        unlinkat(j->directory, JOURNAL_NEW_NAME, 0);
        r = directory_read_journal(j, replay, arg, &cut, error, error_size);
    }
    if (r < 0) {
        journal_close(j);
        return r;
    }
    j->appended = j->file.sequence;
    atomic_store(&j->committed_size, j->file.size);
    atomic_store(&j->committed, j->appended);
    *ret_cut = cut;
    *ret_journal = j;
    return 0;
}

static void directory_close_file(struct journal_file *file)
{
    journal_map_close(&file->map);
    if (file->fd >= 0) {
        close(file->fd);
    }
    if (file->batch) {
        g_byte_array_unref(file->batch);
    }
}

void journal_close(struct journal *j)
{
    if (!j) {
        return;
    }
    journal_rest(j);
    journal_compact_abort(j);
    for (guint i = 0; i < j->retired->len; i++) {
        close(g_array_index(j->retired, int, i));
    }
    g_array_unref(j->retired);
    directory_close_file(&j->file);
    if (j->directory >= 0) {
        close(j->directory);
    }
    if (j->lock >= 0) {
        close(j->lock);
    }
    pthread_cond_destroy(&j->progress);
    pthread_cond_destroy(&j->work);
    pthread_mutex_destroy(&j->mutex);
    g_free(j->boot);
    g_free(j->path);
    g_free(j);
}
