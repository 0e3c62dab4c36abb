/* notify: telling the kernel what changed behind its back; see notify.h.
 *
 * The queue is not GLib's: ThreadSanitizer does not see what orders the two ends
 * of that.
 */
#include "notify.h"

#include <ev.h>
#include <glib.h>
#include <pthread.h>
#include <string.h>
#include <sys/queue.h>

#include "options.h"

STAILQ_HEAD(notify_queue, notify_message);

struct notify {
    struct fuse_session *session;
    struct ev_loop *loop;
    pthread_mutex_t mutex; /* of the queue */
    pthread_cond_t filled;
    struct notify_queue queue;
    GThread *thread; /* NULL: notifications are dropped */
    ev_async ended;
    bool has_ended; /* the loop's */
    uint64_t sent;  /* the loop's, too */
    _Atomic uint64_t told;
};

struct notify_message {
    STAILQ_ENTRY(notify_message) next;
    uint64_t parent;
    uint64_t child; /* 0: the entry is only forgotten */
    bool last;
    char name[];
};

static struct notify_message *notify_pop(struct notify *notify)
{
    pthread_mutex_lock(&notify->mutex);
    while (STAILQ_EMPTY(&notify->queue)) {
        pthread_cond_wait(&notify->filled, &notify->mutex);
    }
    struct notify_message *message = STAILQ_FIRST(&notify->queue);
    STAILQ_REMOVE_HEAD(&notify->queue, next);
    pthread_mutex_unlock(&notify->mutex);
    return message;
}

static void *notify_run(void *arg)
{
    struct notify *notify = arg;
    bool last = false;
    while (!last) {
        struct notify_message *message = notify_pop(notify);
        last = message->last;
        /* ENOENT: the kernel does not know it any more. */
        if (message->child) {
            fuse_lowlevel_notify_delete(notify->session, message->parent, message->child, message->name,
                                        strlen(message->name));
        } else if (!last) {
            fuse_lowlevel_notify_inval_entry(notify->session, message->parent, message->name, strlen(message->name));
        }
        g_free(message);
        notify->told++;
    }
    ev_async_send(notify->loop, &notify->ended);
    return NULL;
}

static void notify_ended(struct ev_loop *loop, ev_async *async, int events)
{
    struct notify *notify = async->data;
    (void)loop;
    (void)events;
    notify->has_ended = true;
}

struct notify *notify_new(struct fuse_session *session, struct ev_loop *loop)
{
    struct notify *notify = g_new0(struct notify, 1);
    notify->session = session;
    notify->loop = loop;
    if (session) {
        ev_async_init(&notify->ended, notify_ended);
        notify->ended.data = notify;
        ev_async_start(loop, &notify->ended);
        ev_unref(loop); /* it alone does not keep the loop running */
        pthread_mutex_init(&notify->mutex, NULL);
        pthread_cond_init(&notify->filled, NULL);
        STAILQ_INIT(&notify->queue);
        notify->thread = g_thread_new("notify", notify_run, notify);
    }
    return notify;
}

static void notify_send(struct notify *notify, uint64_t parent, uint64_t child, const char *name, bool last)
{
    if (notify->thread) {
        size_t size = strlen(name) + 1;
        struct notify_message *message = g_malloc(sizeof *message + size);
        message->parent = parent;
        message->child = child;
        message->last = last;
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
    notify_send(notify, 0, 0, "", true);
    while (!notify->has_ended) {
        ev_run(notify->loop, EVRUN_ONCE);
    }
    ev_ref(notify->loop);
    ev_async_stop(notify->loop, &notify->ended);
    g_thread_join(notify->thread);
    notify->thread = NULL;
    pthread_cond_destroy(&notify->filled);
    pthread_mutex_destroy(&notify->mutex);
}

void notify_free(struct notify *notify)
{
    if (notify) {
        notify_finish(notify);
        g_free(notify);
    }
}

uint64_t notify_deleted(struct notify *notify, uint64_t parent, uint64_t child, const char *name)
{
    notify_send(notify, parent, child, name, false);
    return notify->thread ? notify->sent : 0;
}

uint64_t notify_told(struct notify *notify)
{
    return notify->thread ? notify->told : UINT64_MAX;
}

void notify_changed(struct notify *notify, uint64_t parent, const char *name)
{
    notify_send(notify, parent, 0, name, false);
}
