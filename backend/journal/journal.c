/* journal: appends records, and syncs them from a thread of its own.
 *
 * The first sync after journal_open or journal_rest starts the thread, so a process
 * may fork after journal_open.  The thread only syncs, writes marks and closes files;
 * the caller's thread does everything else.
 */
#include "backend/journal/journal.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "backend/journal/file.h"

#define ROOM_STEP (256 * 1024) /* reserved at a time, so that few records need a system call for it */

int journal_fail(struct journal *j, int error)
{
    int none = 0;
    atomic_compare_exchange_strong(&j->failed, &none, error);
    return -error;
}

/* One round of the thread, with the mutex held before and after: syncs all that is
 * committed now, and closes retired files. */
static void journal_sync_round(struct journal *j)
{
    bool both = j->compaction == JOURNAL_COMPACT_SYNCING || j->compaction == JOURNAL_COMPACT_READY;
    bool rename = j->directory_dirty;
    uint64_t target = atomic_load(&j->committed);
    uint64_t compactions = j->compactions;
    struct journal_mark mark = j->file.mark, next_mark = j->compact_mark;
    bool marked = false, mark_next = both && !j->compact_marked && *next_mark.boot;
    int fd = j->file.fd, next = j->next.fd, error = 0, next_error = 0;
    mark.synced = atomic_load(&j->committed_size);
    GArray *retired = j->retired;
    j->retired = g_array_new(FALSE, FALSE, sizeof(int));
    j->directory_dirty = false;
    pthread_mutex_unlock(&j->mutex);

    for (guint i = 0; i < retired->len; i++) {
        close(g_array_index(retired, int, i));
    }
    g_array_unref(retired);
    if (fdatasync(fd) < 0 || (rename && fsync(j->directory) < 0)) {
        error = errno;
    } else if (*mark.boot) {
        journal_mark_write(&mark);
    }
    if (both && fdatasync(next) < 0) {
        next_error = errno;
    } else if (mark_next && journal_mark_write(&next_mark) == 0) {
        marked = fdatasync(next_mark.fd) == 0;
        next_error = marked ? 0 : errno;
    }

    pthread_mutex_lock(&j->mutex);
    if (error) {
        journal_fail(j, error);
    } else {
        atomic_store(&j->synced, target);
    }
    if (both && compactions == j->compactions) { /* else the next file is another by now */
        if (next_error) {
            j->compact_error = next_error;
        }
        j->compact_marked = j->compact_marked || marked;
        if (j->compaction == JOURNAL_COMPACT_SYNCING) {
            j->compaction = JOURNAL_COMPACT_READY;
        }
    }
}

static bool journal_has_work(const struct journal *j)
{
    return (j->wanted > atomic_load(&j->synced) && !atomic_load(&j->failed)) ||
           j->compaction == JOURNAL_COMPACT_SYNCING || j->directory_dirty || j->retired->len;
}

static void *journal_run_thread(void *arg)
{
    struct journal *j = arg;
    pthread_mutex_lock(&j->mutex);
    for (;;) {
        void (*synced)(void *);
        while (!j->stop && !journal_has_work(j)) {
            pthread_cond_wait(&j->work, &j->mutex);
        }
        if (j->stop) {
            break;
        }
        journal_sync_round(j);
        pthread_cond_broadcast(&j->progress);
        synced = j->on_synced;
        if (synced) {
            synced(j->on_synced_arg);
        }
    }
    pthread_mutex_unlock(&j->mutex);
    return NULL;
}

int journal_need_thread(struct journal *j)
{
    sigset_t all, old;
    if (j->threaded) {
        return 0;
    }
    /* only the loop's thread handles signals */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = pthread_create(&j->thread, NULL, journal_run_thread, j);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r) {
        return journal_fail(j, r);
    }
    j->threaded = true;
    return 0;
}

void journal_rest(struct journal *j)
{
    journal_map_close(&j->file.map); /* the process may set its signal handlers before the next map is opened */
    if (!j->threaded) {
        return;
    }
    pthread_mutex_lock(&j->mutex);
    j->stop = true;
    pthread_cond_signal(&j->work);
    pthread_mutex_unlock(&j->mutex);
    pthread_join(j->thread, NULL);
    j->threaded = j->stop = false;
}

void journal_retire(struct journal *j, int fd)
{
    if (j->threaded) {
        g_array_append_val(j->retired, fd);
    } else {
        close(fd);
    }
}

int journal_append(struct journal *j, uint8_t type, const void *payload, size_t length)
{
    int r = -atomic_load(&j->failed);
    if (r == 0) {
        r = journal_file_append(&j->file, type, payload, length);
    }
    if (r < 0) {
        return r;
    }
    j->appended++;
    if (j->next.fd >= 0) {
        journal_file_append(&j->next, type, payload, length);
    }
    return 0;
}

int journal_commit(struct journal *j)
{
    int r = -atomic_load(&j->failed);
    if (r < 0) {
        return r;
    }
    r = journal_file_commit(&j->file);
    if (r < 0 && !journal_is_full(r)) {
        return journal_fail(j, -r);
    }
    if (r < 0) {
        j->appended = atomic_load(&j->committed);
        if (j->next.fd >= 0) { /* it has the dropped records */
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
    atomic_store(&j->committed_size, j->file.size);
    atomic_store(&j->committed, j->appended);
    return 0;
}

int journal_make_room(struct journal *j, size_t bytes, uint64_t spare)
{
    int r = -atomic_load(&j->failed);
    j->spare = spare;
    if (r < 0 || j->roomless) {
        return r < 0 ? r : 1;
    }
    if (j->file.size + j->file.batch->len + bytes + spare <= j->file.room) {
        return 0;
    }
    r = journal_file_make_room(&j->file, bytes + spare + ROOM_STEP);
    if (journal_is_full(r)) {
        r = journal_file_make_room(&j->file, bytes + spare);
    }
    if (r == -EIO) {
        return journal_fail(j, EIO);
    }
    j->roomless = r < 0 && !journal_is_full(r) && r != -EFBIG;
    return j->roomless ? 1 : r;
}

void journal_give_room_back(struct journal *j, uint64_t kept)
{
    if (!journal_failed(j) && journal_file_give_room_back(&j->file, kept) < 0) {
        journal_fail(j, EIO); /* the file's end is not known */
    }
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
    if (journal_need_thread(j) == 0) {
        pthread_cond_signal(&j->work);
    }
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
    while (!atomic_load(&j->failed) && journal_has_work(j)) {
        pthread_cond_wait(&j->progress, &j->mutex);
    }
    pthread_mutex_unlock(&j->mutex);
    return -atomic_load(&j->failed);
}
