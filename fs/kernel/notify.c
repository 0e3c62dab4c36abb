/* notify: telling the kernel what changed behind its back; see notify.h.
 *
 * The queue is not GLib's: ThreadSanitizer does not see what orders the two ends
 * of that.
 */
#include "fs/kernel/notify.h"

#include <ev.h>
#include <glib.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "fs/keep/memory.h"
#include "fs/options/options.h"

STAILQ_HEAD(notify_queue, notify_message);

struct notify {
    struct fuse_session *session;
    struct keep_table *notices;
    GQueue records; /* struct notify_record, of notifications that may be delivered already, in order */
    struct ev_loop *loop;
    pthread_mutex_t mutex; /* of the queue */
    pthread_cond_t filled;
    struct notify_queue queue;
    GThread *thread; /* NULL: notifications are dropped */
    ev_async ended;
    bool has_ended; /* the loop's */
    uint64_t sent;  /* the loop's, too */
    bool can_expire;
    _Atomic uint64_t delivered, expired;
    _Atomic uint64_t awaited; /* `progress` when `expired` has reached it */
    ev_async progress;
    void (*then)(void *arg);
    void *arg;
};

struct notify_message {
    STAILQ_ENTRY(notify_message) next;
    uint64_t parent; /* 0: of the attributes of `child` */
    uint64_t child;  /* 0: the entry is only forgotten */
    bool last, expire;
    struct notify_record *record; /* or NULL */
    char name[];
};

/* After so many without a pause a short one, in microseconds.  Each takes the lock of its directory, and a lock that is
 * given back and taken again at once goes past a system call that waits for it, which must wake up first, for 4 ms.
 * (Linux kernel/locking/rwsem.c, RWSEM_WAIT_TIMEOUT.) */
#define NOTIFY_ROW 64
#define NOTIFY_PAUSE 20

static struct notify_message *notify_pop(struct notify *notify, unsigned *row)
{
    if (++*row >= NOTIFY_ROW) {
        *row = 0;
        g_usleep(NOTIFY_PAUSE);
    }
    pthread_mutex_lock(&notify->mutex);
    while (STAILQ_EMPTY(&notify->queue)) {
        *row = 0;
        pthread_cond_wait(&notify->filled, &notify->mutex);
    }
    struct notify_message *message = STAILQ_FIRST(&notify->queue);
    STAILQ_REMOVE_HEAD(&notify->queue, next);
    pthread_mutex_unlock(&notify->mutex);
    return message;
}

/* fuse_notify_inval_entry_out with the flag of protocol 7.38, which not all headers
 * and libraries have that we are built with. */
struct notify_expiry {
    uint64_t parent;
    uint32_t length;
    uint32_t flags;
};
#define NOTIFY_EXPIRE_ONLY 1

static void notify_expire(struct notify *notify, const struct notify_message *message)
{
    size_t length = strlen(message->name);
    struct notify_expiry expiry = {.parent = message->parent, .length = (uint32_t)length, .flags = NOTIFY_EXPIRE_ONLY};
    struct fuse_out_header header = {.len = (uint32_t)(sizeof header + sizeof expiry + length + 1),
                                     .error = FUSE_NOTIFY_INVAL_ENTRY};
    struct iovec parts[] = {{&header, sizeof header}, {&expiry, sizeof expiry}, {(char *)message->name, length + 1}};
    ssize_t ignored = writev(fuse_session_fd(notify->session), parts, G_N_ELEMENTS(parts));
    (void)ignored; /* ENOENT: the kernel does not keep it */
}

/* FUSE_NOTIFY_INC_EPOCH of protocol 7.44, which few headers have.  (Linux fs/fuse/dev.c, fuse_notify_inc_epoch: it
 * takes no lock.) */
#define NOTIFY_INC_EPOCH 8

void notify_expire_all(struct notify *notify)
{
    struct fuse_out_header header = {.len = sizeof header, .error = NOTIFY_INC_EPOCH};
    if (notify->thread) {
        ssize_t ignored = writev(fuse_session_fd(notify->session), &(struct iovec){&header, sizeof header}, 1);
        (void)ignored; /* EINVAL: an older kernel */
    }
}

static void *notify_run(void *arg)
{
    struct notify *notify = arg;
    bool last = false;
    unsigned row = 0;
    while (!last) {
        struct notify_message *message = notify_pop(notify, &row);
        last = message->last;
        if (message->expire) {
            notify_expire(notify, message);
        } else if (message->child && !message->parent) {
            fuse_lowlevel_notify_inval_inode(notify->session, message->child, -1, 0);
        }
        if (++notify->expired >= notify->awaited) {
            ev_async_send(notify->loop, &notify->progress);
        }
        /* ENOENT: the kernel does not know it any more. */
        if (message->child && message->parent) {
            fuse_lowlevel_notify_delete(notify->session, message->parent, message->child, message->name,
                                        strlen(message->name));
        } else if (message->parent) {
            fuse_lowlevel_notify_inval_entry(notify->session, message->parent, message->name, strlen(message->name));
        }
        if (message->record) {
            keep_record_end(message->record);
        }
        g_free(message);
        notify->delivered++;
    }
    ev_async_send(notify->loop, &notify->ended);
    return NULL;
}

static void notify_progress(struct ev_loop *loop, ev_async *async, int events)
{
    struct notify *notify = async->data;
    (void)loop;
    (void)events;
    notify->awaited = UINT64_MAX;
    if (notify->then) {
        notify->then(notify->arg);
    }
}

static void notify_ended(struct ev_loop *loop, ev_async *async, int events)
{
    struct notify *notify = async->data;
    (void)loop;
    (void)events;
    notify->has_ended = true;
}

struct notify *notify_new(struct fuse_session *session, struct ev_loop *loop, struct keep *keep)
{
    struct notify *notify = g_new0(struct notify, 1);
    notify->notices = keep_table(keep, KEEP_NOTICES);
    g_queue_init(&notify->records);
    notify->session = session;
    notify->loop = loop;
    if (session) {
        ev_async_init(&notify->ended, notify_ended);
        notify->ended.data = notify;
        ev_async_start(loop, &notify->ended);
        notify->awaited = UINT64_MAX;
        ev_async_init(&notify->progress, notify_progress);
        notify->progress.data = notify;
        ev_async_start(loop, &notify->progress);
        ev_unref(loop); /* they alone do not keep the loop running */
        ev_unref(loop);
        pthread_mutex_init(&notify->mutex, NULL);
        pthread_cond_init(&notify->filled, NULL);
        STAILQ_INIT(&notify->queue);
        notify->thread = g_thread_new("notify", notify_run, notify);
    }
    return notify;
}

/* Frees the records of what the kernel has got. */
static void notify_free_records(struct notify *notify)
{
    const struct notify_record *first;
    while ((first = g_queue_peek_head(&notify->records)) && first->number <= notify->delivered) {
        keep_record_free(notify->notices, g_queue_pop_head(&notify->records));
    }
}

/* NULL: there is no room, and the next daemon does not repeat it. */
static struct notify_record *notify_keep(struct notify *notify, uint64_t parent, uint64_t child, const char *name,
                                         bool kept)
{
    uint64_t ignored;
    notify_free_records(notify);
    struct notify_record *record = keep_record_new(notify->notices, &ignored);
    if (record) {
        record->number = notify->sent + 1;
        record->parent = parent;
        record->child = child;
        record->kept = kept;
        strcpy(record->name, name);
        keep_record_commit(notify->notices, record);
        g_queue_push_tail(&notify->records, record);
    }
    return record;
}

static void notify_send(struct notify *notify, uint64_t parent, uint64_t child, const char *name, bool expire,
                        bool last, struct notify_record *record)
{
    if (notify->thread) {
        size_t size = strlen(name) + 1;
        struct notify_message *message = g_malloc(sizeof *message + size);
        message->record = record;
        message->parent = parent;
        message->child = child;
        message->last = last;
        message->expire = expire;
        memcpy(message->name, name, size);
        notify->sent++;
        pthread_mutex_lock(&notify->mutex);
        STAILQ_INSERT_TAIL(&notify->queue, message, next);
        pthread_cond_signal(&notify->filled);
        pthread_mutex_unlock(&notify->mutex);
    }
}

void notify_finish(struct notify *notify)
{
    if (!notify->thread) {
        return;
    }
    notify_send(notify, 0, 0, "", false, true, NULL);
    while (!notify->has_ended) {
        ev_run(notify->loop, EVRUN_ONCE);
    }
    ev_ref(notify->loop);
    ev_ref(notify->loop);
    ev_async_stop(notify->loop, &notify->ended);
    ev_async_stop(notify->loop, &notify->progress);
    g_thread_join(notify->thread);
    notify->thread = NULL;
    struct notify_message *late; /* messages that the loop sent while it waited for the thread to end */
    while ((late = STAILQ_FIRST(&notify->queue))) {
        STAILQ_REMOVE_HEAD(&notify->queue, next);
        g_free(late);
    }
    notify_free_records(notify);
    pthread_cond_destroy(&notify->filled);
    pthread_mutex_destroy(&notify->mutex);
}

void notify_free(struct notify *notify)
{
    if (notify) {
        notify_finish(notify);
        g_queue_clear(&notify->records);
        g_free(notify);
    }
}

void notify_enable_expire(struct notify *notify)
{
    notify->can_expire = true;
}

uint64_t notify_delete(struct notify *notify, uint64_t parent, uint64_t child, const char *name, bool kept)
{
    if (!notify->thread) {
        return 0;
    }
    notify_send(notify, parent, child, name, kept && notify->can_expire, false,
                notify_keep(notify, parent, child, name, kept));
    return notify->sent;
}

uint64_t notify_invalidate(struct notify *notify, uint64_t child)
{
    if (!notify->thread) {
        return 0;
    }
    notify_send(notify, 0, child, "", false, false, notify_keep(notify, 0, child, "", false));
    return notify->sent;
}

void notify_invalidate_now(struct notify *notify, uint64_t child)
{
    if (notify->thread) {
        fuse_lowlevel_notify_inval_inode(notify->session, child, -1, 0);
    }
}

uint64_t notify_last_sent(struct notify *notify)
{
    return notify->thread ? notify->delivered : UINT64_MAX;
}

uint64_t notify_last_expired(struct notify *notify)
{
    return notify->thread && notify->can_expire ? notify->expired : UINT64_MAX;
}

void notify_call_when_expired(struct notify *notify, uint64_t number, void (*then)(void *arg), void *arg)
{
    notify->then = then;
    notify->arg = arg;
    notify->awaited = number;
    if (notify->expired >= number) { /* meanwhile */
        ev_async_send(notify->loop, &notify->progress);
    }
}

static int notify_compare_records(gconstpointer a, gconstpointer b)
{
    const struct notify_record *const *x = a, *const *y = b;
    return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

void notify_repeat(struct notify *notify, void (*sent)(void *arg, const struct notify_record *record, uint64_t number),
                   void *arg)
{
    GPtrArray *all = g_ptr_array_new();
    struct notify_record *record;
    for (record = keep_record_next(notify->notices, NULL); record; record = keep_record_next(notify->notices, record)) {
        record->name[NAME_BYTES_MAX] = '\0';
        g_ptr_array_add(all, record);
    }
    g_ptr_array_sort(all, notify_compare_records);
    for (guint i = 0; i < all->len && notify->thread; i++) {
        record = g_ptr_array_index(all, i);
        notify_send(notify, record->parent, record->child, record->name, record->kept && notify->can_expire, false,
                    record);
        record->number = notify->sent;
        g_queue_push_tail(&notify->records, record);
        sent(arg, record, notify->sent);
    }
    g_ptr_array_free(all, TRUE);
}

void notify_poll(struct notify *notify, uint64_t *poll)
{
    struct fuse_notify_poll_wakeup_out wakeup = {.kh = *poll};
    struct fuse_out_header header = {.len = sizeof header + sizeof wakeup, .error = FUSE_NOTIFY_POLL};
    struct iovec parts[] = {{&header, sizeof header}, {&wakeup, sizeof wakeup}};
    if (*poll && notify->thread) {
        ssize_t ignored = writev(fuse_session_fd(notify->session), parts, G_N_ELEMENTS(parts));
        (void)ignored;
        *poll = 0;
    }
}
