/* journal: opens the state directory, takes records, and syncs them from a
 * thread of its own.
 *
 * The thread is started by the first sync, so a process may still fork after
 * journal_open, and by the first one after journal_rest.  It does nothing but fdatasync, fsync and close; everything
 * else, failing included, is decided by the caller's thread.
 */
#include "backend/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/journal/file.h"

#define ROOM_STEP (256 * 1024) /* taken ahead, so that it need not be asked for with each record */

int journal_fail(struct journal *j, int error)
{
    int none = 0;

    atomic_compare_exchange_strong(&j->failed, &none, error);
    return -error;
}

/* One round of the thread, with the mutex held before and after: makes safe
 * what is committed now, and closes what is no longer used. */
static void sync_round(struct journal *j)
{
    bool both = j->compaction == JOURNAL_COMPACT_SYNCING || j->compaction == JOURNAL_COMPACT_READY;
    bool rename = j->directory_dirty;
    uint64_t target = atomic_load(&j->committed);
    uint64_t compactions = j->compactions;
    int fd = j->file.fd, next = j->next.fd, error = 0, next_error = 0;
    GArray *retired = j->retired;

    j->retired = g_array_new(FALSE, FALSE, sizeof(int));
    j->directory_dirty = false;
    pthread_mutex_unlock(&j->mutex);

    for (guint i = 0; i < retired->len; i++)
        close(g_array_index(retired, int, i));
    g_array_unref(retired);
    if (fdatasync(fd) < 0 || (rename && fsync(j->directory) < 0))
        error = errno;
    if (both && fdatasync(next) < 0)
        next_error = errno;

    pthread_mutex_lock(&j->mutex);
    if (error)
        journal_fail(j, error);
    else
        atomic_store(&j->synced, target);
    if (both && compactions == j->compactions) { /* else it was another file */
        if (next_error)
            j->compact_error = next_error;
        if (j->compaction == JOURNAL_COMPACT_SYNCING)
            j->compaction = JOURNAL_COMPACT_READY;
    }
}

static bool has_work(const struct journal *j)
{
    return (j->wanted > atomic_load(&j->synced) && !atomic_load(&j->failed)) ||
           j->compaction == JOURNAL_COMPACT_SYNCING || j->directory_dirty || j->retired->len;
}

static void *run_thread(void *arg)
{
    struct journal *j = arg;

    pthread_mutex_lock(&j->mutex);
    for (;;) {
        void (*synced)(void *);

        while (!j->stop && !has_work(j))
            pthread_cond_wait(&j->work, &j->mutex);
        if (j->stop)
            break;
        sync_round(j);
        pthread_cond_broadcast(&j->progress);
        synced = j->on_synced;
        if (synced)
            synced(j->on_synced_arg);
    }
    pthread_mutex_unlock(&j->mutex);
    return NULL;
}

int journal_need_thread(struct journal *j)
{
    sigset_t all, old;
    int r;

    if (j->threaded)
        return 0;
    /* signals are for the loop */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&j->thread, NULL, run_thread, j);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r)
        return journal_fail(j, r);
    j->threaded = true;
    return 0;
}

void journal_retire(struct journal *j, int fd)
{
    if (j->threaded)
        g_array_append_val(j->retired, fd);
    else
        close(fd);
}

int journal_append(struct journal *j, uint8_t type, const void *payload, size_t length)
{
    int r = -atomic_load(&j->failed);

    if (r == 0)
        r = journal_file_append(&j->file, type, payload, length);
    if (r < 0)
        return r;
    j->appended++;
    if (j->next.fd >= 0)
        journal_file_append(&j->next, type, payload, length);
    return 0;
}

int journal_commit(struct journal *j)
{
    int r = -atomic_load(&j->failed);

    if (r < 0)
        return r;
    r = journal_file_commit(&j->file);
    if (r < 0 && !journal_is_full(r))
        return journal_fail(j, -r);
    if (r < 0) {
        j->appended = atomic_load(&j->committed);
        if (j->next.fd >= 0) { /* it has what was dropped */
            pthread_mutex_lock(&j->mutex);
            j->compact_error = -r;
            pthread_mutex_unlock(&j->mutex);
        }
        return r;
    }
    if (j->next.fd >= 0) {
        r = journal_file_commit(&j->next);
        if (r < 0) {
            pthread_mutex_lock(&j->mutex);
            j->compact_error = -r;
            pthread_mutex_unlock(&j->mutex);
        }
    }
    atomic_store(&j->committed, j->appended);
    return 0;
}

int journal_make_room(struct journal *j, size_t bytes, uint64_t spare)
{
    int r = -atomic_load(&j->failed);

    j->spare = spare;
    if (r < 0 || j->roomless)
        return r < 0 ? r : 1;
    if (j->file.size + j->file.batch->len + bytes + spare <= j->file.room)
        return 0;
    r = journal_file_make_room(&j->file, bytes + spare + ROOM_STEP);
    if (journal_is_full(r))
        r = journal_file_make_room(&j->file, bytes + spare);
    if (r == -EIO)
        return journal_fail(j, EIO);
    j->roomless = r < 0 && !journal_is_full(r) && r != -EFBIG;
    return j->roomless ? 1 : r;
}

void journal_give_room_back(struct journal *j)
{
    if (journal_failed(j) || ftruncate(j->file.fd, (off_t)j->file.size) < 0)
        return;
    j->file.room = 0;
}

int journal_failed(const struct journal *j)
{
    return atomic_load(&j->failed);
}

uint64_t journal_sequence(const struct journal *j)
{
    return atomic_load(&j->committed);
}

uint64_t journal_size(const struct journal *j)
{
    return j->file.size;
}

void journal_on_synced(struct journal *j, void (*synced)(void *arg), void *arg)
{
    pthread_mutex_lock(&j->mutex);
    j->on_synced = synced;
    j->on_synced_arg = arg;
    pthread_mutex_unlock(&j->mutex);
}

void journal_sync(struct journal *j)
{
    pthread_mutex_lock(&j->mutex);
    j->wanted = atomic_load(&j->committed);
    if (journal_need_thread(j) == 0)
        pthread_cond_signal(&j->work);
    pthread_mutex_unlock(&j->mutex);
}

uint64_t journal_synced(const struct journal *j)
{
    return atomic_load(&j->synced);
}

int journal_sync_wait(struct journal *j)
{
    journal_sync(j);
    pthread_mutex_lock(&j->mutex);
    while (!atomic_load(&j->failed) && has_work(j))
        pthread_cond_wait(&j->progress, &j->mutex);
    pthread_mutex_unlock(&j->mutex);
    return -atomic_load(&j->failed);
}

/* --- the state directory --- */

/* As mkdir -p with mode 0700; what is there stays as it is. */
static int make_directories(const char *path)
{
    char *part = g_strdup(path);
    int r = 0;

    for (char *p = part + 1; r == 0; p++) {
        char c = *p;

        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST)
            r = -errno;
        *p = c;
        if (c == '\0')
            break;
    }
    g_free(part);
    return r;
}

static int open_directory(struct journal *j, char *error, size_t error_size)
{
    struct stat st;
    int r = *j->path ? make_directories(j->path) : -ENOENT;

    if (r == 0) {
        j->directory = open(j->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (j->directory < 0 || fstat(j->directory, &st) < 0)
            r = -errno;
    }
    if (r < 0 && g_file_test(j->path, G_FILE_TEST_IS_SYMLINK)) {
        g_snprintf(error, error_size,
                   "%s is a symbolic link, which may lead elsewhere tomorrow: give the directory itself", j->path);
        return r;
    }
    if (r < 0) {
        g_snprintf(error, error_size,
                   "%s cannot be used to keep leases: %s: make it writable, or give another directory with local:DIR",
                   j->path, g_strerror(-r));
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

/* Opens the path anew, as the next daemon would: the directory's descriptor stays
 * good when another directory has taken its name. */
static bool is_at_path(const struct journal *j, const char *name, int fd)
{
    char path[PATH_MAX];
    struct stat ours, there;
    int found;
    bool same;

    g_snprintf(path, sizeof(path), "%s/%s", j->path, name);
    found = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (found < 0)
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM; /* not known: do not accuse anybody */
    same = fstat(fd, &ours) == 0 && fstat(found, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
    close(found);
    return same;
}

bool journal_in_place(const struct journal *j)
{
    return is_at_path(j, LOCK_NAME, j->lock) && is_at_path(j, JOURNAL_NAME, j->file.fd);
}

/* Nothing else may be where our files are: not a link, a pipe, a device, or another user's. */
static int check_file(const struct journal *j, const char *name, char *error, size_t error_size)
{
    struct stat st = {0};

    if (fstatat(j->directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    if (S_ISREG(st.st_mode) && st.st_uid == geteuid())
        return 0;
    g_snprintf(error, error_size, "%s/%s is not a regular file of user %u: see who put it there, and take it away",
               j->path, name, (unsigned)geteuid());
    return -EACCES;
}

static int check_files(const struct journal *j, char *error, size_t error_size)
{
    static const char *const names[] = {LOCK_NAME, JOURNAL_NAME, JOURNAL_NEW_NAME};
    int r = 0;

    for (size_t i = 0; r == 0 && i < G_N_ELEMENTS(names); i++)
        r = check_file(j, names[i], error, error_size);
    return r;
}

static int take_lock(struct journal *j, char *error, size_t error_size)
{
    char pid[16] = "";
    int r;

    j->lock = openat(j->directory, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (j->lock >= 0 && flock(j->lock, LOCK_EX | LOCK_NB) == 0) {
        if (!is_at_path(j, LOCK_NAME, j->lock)) {
            g_snprintf(error, error_size, "%s was replaced by somebody while it was opened: try again", j->path);
            return -ESTALE;
        }
        int length = g_snprintf(pid, sizeof(pid), "%d\n", (int)getpid());

        /* only to be read by people; a full disk must not keep leases from being released */
        if (ftruncate(j->lock, 0) < 0 || pwrite(j->lock, pid, (size_t)length, 0) < 0)
            return 0;
        return 0;
    }
    r = -errno;
    if (r == -EWOULDBLOCK) {
        if (pread(j->lock, pid, sizeof(pid) - 1, 0) < 0)
            pid[0] = '\0';
        pid[strspn(pid, "0123456789")] = '\0';
        g_snprintf(error, error_size,
                   "%s is in use by another leasefs (pid %s): unmount that one first, or give another directory with "
                   "local:DIR",
                   j->path, *pid ? pid : "unknown");
    } else {
        g_snprintf(error, error_size,
                   "%s/lock cannot be opened: %s: make it writable, or give another directory with local:DIR", j->path,
                   g_strerror(-r));
    }
    return r;
}

/* An empty journal appears whole or not at all. */
static int create_journal(struct journal *j, char *error, size_t error_size)
{
    int r = journal_file_create(&j->file, j->directory, JOURNAL_NEW_NAME);

    if (r == 0 && (fsync(j->file.fd) < 0 || renameat(j->directory, JOURNAL_NEW_NAME, j->directory, JOURNAL_NAME) < 0 ||
                   fsync(j->directory) < 0))
        r = -errno;
    if (r < 0)
        g_snprintf(error, error_size, "%s/" JOURNAL_NAME " cannot be created: %s", j->path, g_strerror(-r));
    return r;
}

static int read_journal(struct journal *j, journal_replay *replay, void *arg, uint64_t *ret_cut, char *error,
                        size_t error_size)
{
    char *path = g_build_filename(j->path, JOURNAL_NAME, NULL);
    int r;

    j->file.fd = openat(j->directory, JOURNAL_NAME, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    if (j->file.fd >= 0) {
        j->file.batch = g_byte_array_new();
        r = journal_file_read(&j->file, path, replay, arg, ret_cut, error, error_size);
    } else if (errno == ENOENT) {
        r = create_journal(j, error, error_size);
    } else {
        r = -errno;
        g_snprintf(error, error_size,
                   "%s cannot be opened: %s: make it readable and writable, or give another directory with local:DIR",
                   path, g_strerror(-r));
    }
    g_free(path);
    return r;
}

int journal_open(const char *directory, journal_replay *replay, void *arg, struct journal **ret_journal,
                 uint64_t *ret_cut, char *error, size_t error_size)
{
    struct journal *j = g_new0(struct journal, 1);
    uint64_t cut = 0;
    int r;

    j->path = g_strdup(directory);
    j->directory = j->lock = j->file.fd = j->next.fd = -1;
    j->retired = g_array_new(FALSE, FALSE, sizeof(int));
    pthread_mutex_init(&j->mutex, NULL);
    pthread_cond_init(&j->work, NULL);
    pthread_cond_init(&j->progress, NULL);

    r = open_directory(j, error, error_size);
    if (r == 0)
        r = check_files(j, error, error_size);
    if (r == 0)
        r = take_lock(j, error, error_size);
    if (r == 0) {
        unlinkat(j->directory, JOURNAL_NEW_NAME, 0);
        r = read_journal(j, replay, arg, &cut, error, error_size);
    }
    if (r < 0) {
        journal_close(j);
        return r;
    }
    j->appended = j->file.sequence;
    atomic_store(&j->committed, j->appended);
    *ret_cut = cut;
    *ret_journal = j;
    return 0;
}

static void close_file(struct journal_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->batch)
        g_byte_array_unref(file->batch);
}

void journal_rest(struct journal *j)
{
    if (!j->threaded)
        return;
    pthread_mutex_lock(&j->mutex);
    j->stop = true;
    pthread_cond_signal(&j->work);
    pthread_mutex_unlock(&j->mutex);
    pthread_join(j->thread, NULL);
    j->threaded = j->stop = false;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    journal_rest(j);
    journal_compact_abort(j);
    for (guint i = 0; i < j->retired->len; i++)
        close(g_array_index(j->retired, int, i));
    g_array_unref(j->retired);
    close_file(&j->file);
    if (j->directory >= 0)
        close(j->directory);
    if (j->lock >= 0)
        close(j->lock);
    pthread_cond_destroy(&j->progress);
    pthread_cond_destroy(&j->work);
    pthread_mutex_destroy(&j->mutex);
    g_free(j->path);
    g_free(j);
}
