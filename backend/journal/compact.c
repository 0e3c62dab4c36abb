/* compact: replaces the journal by a shorter one while it is in use.
 *
 * This order makes every crash harmless.  The new file is complete and synced before
 * it takes the old one's name.  A sync between these two steps syncs both files.  The
 * first sync after the rename also syncs the directory before it is reported.  So a
 * reported sync covers the journal whichever file a crash leaves under its name.  The
 * new file is not mapped before it has a mark on the disk.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "backend/journal/file.h"

int journal_compact_begin(struct journal *j)
{
    int r = -atomic_load(&j->failed);
    if (r == 0) {
        r = journal_commit(j);
    }
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&j->mutex);
    if (j->compaction != JOURNAL_COMPACT_NONE) {
        pthread_mutex_unlock(&j->mutex);
        return -EALREADY;
    }
    r = journal_file_create(&j->next, j->directory, JOURNAL_NEW_NAME);
    if (r == 0) {
        j->next.mark.fd = j->lock;
        j->next.mark.boot = j->boot;
        j->next.mark.slot = 1 - j->file.mark.slot;
        j->compact_marked = false;
        j->compaction = JOURNAL_COMPACT_COPYING;
        j->compactions++;
        j->compact_error = 0;
    }
    pthread_mutex_unlock(&j->mutex);
    return r;
}

/* -errno if the new file cannot be used; else 0, and `ret_compaction` is its state. */
static int compact_check(struct journal *j, enum journal_compaction *ret_compaction)
{
    pthread_mutex_lock(&j->mutex);
    *ret_compaction = j->compaction;
    int r = j->compaction == JOURNAL_COMPACT_NONE ? -EINVAL : -j->compact_error;
    pthread_mutex_unlock(&j->mutex);
    return r;
}

static int compact_error(struct journal *j)
{
    enum journal_compaction compaction;
    return compact_check(j, &compaction);
}

int journal_compact_append(struct journal *j, uint8_t type, const void *payload, size_t length)
{
    int r = compact_error(j);
    return r < 0 ? r : journal_file_append(&j->next, type, payload, length);
}

int journal_compact_finish(struct journal *j)
{
    int r = journal_commit(j);
    if (r == 0) {
        r = compact_error(j);
    }
    if (r < 0) {
        return r;
    }
    /* If there is no room now, there is when the old file is removed. */
    if (!j->roomless) {
        journal_file_make_room(&j->next, j->spare);
    }
    pthread_mutex_lock(&j->mutex);
    r = journal_need_thread(j);
    if (r == 0) {
        j->compact_mark = j->next.mark;
        j->compact_mark.synced = j->next.size;
        j->compaction = JOURNAL_COMPACT_SYNCING;
        pthread_cond_signal(&j->work);
    }
    pthread_mutex_unlock(&j->mutex);
    return r;
}

bool journal_compact_ready(const struct journal *j)
{
    struct journal *locked = (struct journal *)j; /* only for the mutex */
    pthread_mutex_lock(&locked->mutex);
    bool ready = j->compaction == JOURNAL_COMPACT_READY || (j->compaction != JOURNAL_COMPACT_NONE && j->compact_error);
    pthread_mutex_unlock(&locked->mutex);
    return ready;
}

int journal_compact_swap(struct journal *j)
{
    enum journal_compaction compaction = JOURNAL_COMPACT_NONE;
    int r = journal_commit(j);
    if (r == 0) {
        r = compact_check(j, &compaction);
    }
    if (r == 0 && compaction != JOURNAL_COMPACT_READY) {
        r = -EAGAIN;
    }
    if (r == 0 && renameat(j->directory, JOURNAL_NEW_NAME, j->directory, JOURNAL_NAME) < 0) {
        r = -errno;
    }
    if (r < 0) {
        journal_compact_abort(j);
        return r;
    }
    pthread_mutex_lock(&j->mutex);
    journal_retire(j, j->file.fd);
    journal_map_close(&j->file.map);
    g_byte_array_unref(j->file.batch);
    j->file = j->next;
    j->file.mappable = j->compact_marked;
    atomic_store(&j->committed_size, j->file.size);
    j->next = (struct journal_file){.fd = -1};
    j->compaction = JOURNAL_COMPACT_NONE;
    j->directory_dirty = true;
    pthread_cond_signal(&j->work);
    pthread_mutex_unlock(&j->mutex);
    return 0;
}

void journal_compact_abort(struct journal *j)
{
    if (j->next.fd < 0) {
        return;
    }
    unlinkat(j->directory, JOURNAL_NEW_NAME, 0);
    pthread_mutex_lock(&j->mutex);
    journal_retire(j, j->next.fd);
    g_byte_array_unref(j->next.batch);
    j->next = (struct journal_file){.fd = -1};
    j->compaction = JOURNAL_COMPACT_NONE;
    j->compact_error = 0;
    pthread_cond_signal(&j->work);
    pthread_mutex_unlock(&j->mutex);
}
