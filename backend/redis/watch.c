/* watch: names that others hold, and that the filesystem wants to hear of when nobody does any more.
 *
 * The server tells once when a key has changed, by whomever (CLIENT TRACKING).  A renewal is such a change, too: if the
 * filesystem still wants to know, the key is looked at and watched again, which is one small request for a term.  So
 * that a listing of a large directory costs little, only the REDIS_WATCH_MAX names looked up last are watched.
 *
 * A ticket has no key of its own.  It is among the names of its directory for as long as it is in the queue, so where
 * there is no lock of a name that a ticket may have, those are watched: they change when one comes or goes, not when it
 * is renewed.
 *
 * A lock that a ticket of this mount waits for does not become free before that ticket holds it or ends, so until then
 * the mount does not watch it for the filesystem.  Else each hand-over would make all mounts ask that wait; only the
 * mount of the first waiter watches, and only a lock of another client: see remote_store.watch.
 */
#include <string.h>

#include "backend/redis/private.h"

#define REDIS_WATCH_MAX 1024

static void watch_drop(struct redis *r, struct redis_watch *watch)
{
    TAILQ_REMOVE(&r->watched, watch, link);
    g_hash_table_remove(r->watches, watch->name);
    g_free(watch->name);
    g_free(watch->names);
    g_free(watch);
    if (g_hash_table_size(r->watches) == 0) {
        redis_conn_keep(r->conn, -1);
    }
}

static void watch_is_gone(struct redis *r, struct redis_watch *watch, const char *name)
{
    watch_drop(r, watch);
    r->remote.events->gone(r->remote.context, name);
}

static void watch_on_named(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    struct redis_watch *watch = g_hash_table_lookup(r->watches, request->name);
    if (watch && answer->outcome == REMOTE_ANSWERED && answer->reply->type == REDIS_REPLY_NIL) {
        watch_is_gone(r, watch, request->name);
    }
    remote_request_free(request);
}

static void watch_on_looked(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    struct redis_watch *watch = g_hash_table_lookup(r->watches, request->name);
    bool free = watch && answer->outcome == REMOTE_ANSWERED && redis_number(answer->reply, 0) == 0;
    if (free && watch->names) {
        const char *leaf = remote_leaf(watch->name);
        redis_conn_watch(r->conn, watch->names, strlen(watch->names), leaf, watch_on_named, request);
        return;
    }
    if (free) {
        watch_is_gone(r, watch, request->name);
    }
    remote_request_free(request);
}

/* The server reports every change behind this. */
static void watch_look(struct redis *r, struct redis_watch *watch)
{
    const struct remote_lock *lock = g_hash_table_lookup(r->remote.locks, watch->name);
    watch->rests = lock && lock->waiting > 0;
    if (watch->rests) {
        return;
    }
    struct remote_request *request = remote_request_new(&r->remote, NULL);
    char *key = redis_key(r, watch->name);
    request->name = g_strdup(watch->name);
    redis_conn_watch(r->conn, key, strlen(key), NULL, watch_on_looked, request);
    g_free(key);
}

void redis_watch_name(struct remote *remote, const char *name)
{
    struct redis *r = (struct redis *)remote;
    struct redis_watch *watch = g_hash_table_lookup(r->watches, name);
    if (watch) {
        TAILQ_REMOVE(&r->watched, watch, link);
        TAILQ_INSERT_HEAD(&r->watched, watch, link);
        return;
    }
    watch = g_new0(struct redis_watch, 1);
    watch->name = g_strdup(name);
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    watch->names = remote_is_numbered(leaf) ? redis_side_key(r, 'l', directory) : NULL;
    g_free(directory);
    TAILQ_INSERT_HEAD(&r->watched, watch, link);
    g_hash_table_insert(r->watches, watch->name, watch);
    if (g_hash_table_size(r->watches) == 1) {
        redis_conn_keep(r->conn, 1);
    } else if (g_hash_table_size(r->watches) > REDIS_WATCH_MAX) {
        watch_drop(r, TAILQ_LAST(&r->watched, redis_watches));
    }
    watch_look(r, watch);
}

static void watch_look_again(struct redis *r, struct redis_watch *watch)
{
    if (r->remote.events->watched(r->remote.context, watch->name)) {
        watch_look(r, watch);
    } else {
        watch_drop(r, watch);
    }
}

void redis_watch_changed(struct redis *r, const char *name)
{
    struct redis_watch *watch = name ? g_hash_table_lookup(r->watches, name) : TAILQ_FIRST(&r->watched), *next;
    for (; watch; watch = next) {
        next = name ? NULL : TAILQ_NEXT(watch, link);
        watch_look_again(r, watch);
    }
}

void redis_watch_side_changed(struct redis *r, const char *key, size_t length)
{
    struct redis_watch *watch, *next;
    for (watch = TAILQ_FIRST(&r->watched); watch; watch = next) {
        next = TAILQ_NEXT(watch, link);
        if (watch->names && strlen(watch->names) == length && memcmp(watch->names, key, length) == 0) {
            watch_look_again(r, watch);
        }
    }
}

void redis_watch_resume(struct redis *r, const char *name, bool granted)
{
    struct redis_watch *watch = g_hash_table_lookup(r->watches, name);
    if (watch && granted) {
        watch_drop(r, watch); /* it is not another's any more */
    } else if (watch && watch->rests) {
        watch_look(r, watch);
    }
}

void redis_watch_end_all(struct redis *r)
{
    while (!TAILQ_EMPTY(&r->watched)) {
        watch_drop(r, TAILQ_FIRST(&r->watched));
    }
}
