/* notify: telling the kernel what changed behind its back; see notify.h. */
#include "notify.h"

#include <ev.h>
#include <glib.h>
#include <string.h>

#include "options.h"

struct notify {
    struct fuse_session *session;
    struct ev_loop *loop;
    GAsyncQueue *queue;
    GThread *thread; /* NULL: notifications are dropped */
    ev_async ended;
    bool has_ended; /* the loop's */
    uint64_t sent;  /* the loop's, too */
    _Atomic uint64_t told;
};

struct notify_message {
    uint64_t parent;
    uint64_t child; /* 0: the entry is only forgotten */
    bool last;
    char name[];
};

static void *notify_run(void *arg)
{
    struct notify *notify = arg;
    bool last = false;
    while (!last) {
        struct notify_message *message = g_async_queue_pop(notify->queue);
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
        notify->queue = g_async_queue_new_full(g_free);
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
        g_async_queue_push(notify->queue, message);
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
    g_async_queue_unref(notify->queue);
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
