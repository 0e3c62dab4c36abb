/* watch: names that others hold, and whose end the file system must know.
 *
 * A server reports one change of a name.  If the file system still has the name then, it is read again, and its next
 * change is reported.  Only the WATCH_MAX names that were looked up last are watched, so that a listing of a large
 * directory stays cheap.
 *
 * A lock that a ticket of this mount waits for does not become free before that ticket holds it or ends, so until then
 * the mount does not watch it for the file system.  Otherwise each hand-over would make all mounts ask that wait.
 */
#include "backend/remote/remote.h"

#define WATCH_MAX 1024

static void watch_drop(struct remote_watch *watch)
{
    struct remote *r = watch->r;
    TAILQ_REMOVE(&r->watched, watch, link);
    g_hash_table_remove(r->watches, watch->name);
    ev_timer_stop(r->loop, &watch->timer);
    g_free(watch->name);
    g_free(watch);
    if (TAILQ_EMPTY(&r->watched) && r->store->on_watching) {
        r->store->on_watching(r, false);
    }
}

static void watch_read(struct remote_watch *watch)
{
    struct remote *r = watch->r;
    const struct remote_lock *lock = g_hash_table_lookup(r->locks, watch->name);
    watch->rests = lock && lock->waiting > 0;
    if (!watch->rests) {
        r->store->watch_name(r, watch->name);
    }
}

static void watch_read_again(struct remote_watch *watch)
{
    struct remote *r = watch->r;
    if (r->events->watched(r->context, watch->name)) {
        watch_read(watch);
    } else {
        watch_drop(watch);
    }
}

static void watch_on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    watch_read_again(timer->data);
}

bool remote_watches(const struct remote *r, const char *name)
{
    return g_hash_table_contains(r->watches, name);
}

void remote_watch(struct remote *r, const char *name)
{
    struct remote_watch *watch = g_hash_table_lookup(r->watches, name);
    if (watch) {
        TAILQ_REMOVE(&r->watched, watch, link);
        TAILQ_INSERT_HEAD(&r->watched, watch, link);
        return;
    }
    if (TAILQ_EMPTY(&r->watched) && r->store->on_watching) {
        r->store->on_watching(r, true);
    }
    watch = g_new0(struct remote_watch, 1);
    watch->r = r;
    watch->name = g_strdup(name);
    ev_init(&watch->timer, watch_on_timer);
    watch->timer.data = watch;
    TAILQ_INSERT_HEAD(&r->watched, watch, link);
    g_hash_table_insert(r->watches, watch->name, watch);
    if (g_hash_table_size(r->watches) > WATCH_MAX) {
        watch_drop(TAILQ_LAST(&r->watched, remote_watches));
    }
    watch_read(watch);
}

void remote_watch_changed(struct remote *r, const char *name)
{
    struct remote_watch *watch = name ? g_hash_table_lookup(r->watches, name) : TAILQ_FIRST(&r->watched), *next;
    for (; watch; watch = next) {
        next = name ? NULL : TAILQ_NEXT(watch, link);
        watch_read_again(watch);
    }
}

void remote_watch_gone(struct remote *r, const char *name)
{
    struct remote_watch *watch = g_hash_table_lookup(r->watches, name);
    if (watch) {
        watch_drop(watch);
        r->events->gone(r->context, name);
    }
}

void remote_watch_later(struct remote *r, const char *name, int64_t ms)
{
    struct remote_watch *watch = g_hash_table_lookup(r->watches, name);
    if (watch) {
        ev_timer_stop(r->loop, &watch->timer);
        ev_timer_set(&watch->timer, (double)ms / 1000, 0);
        ev_now_update(r->loop);
        ev_timer_start(r->loop, &watch->timer);
    }
}

void remote_watch_resume(struct remote *r, const char *name, bool granted)
{
    struct remote_watch *watch = g_hash_table_lookup(r->watches, name);
    if (watch && granted) {
        watch_drop(watch); /* it is not another's any more */
    } else if (watch && watch->rests) {
        watch_read(watch);
    }
}

void remote_watch_clear(struct remote *r)
{
    while (!TAILQ_EMPTY(&r->watched)) {
        watch_drop(TAILQ_FIRST(&r->watched));
    }
    g_hash_table_unref(r->watches);
}
