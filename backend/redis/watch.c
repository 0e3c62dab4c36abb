/* watch: watches names that others hold, for backend/remote/watch.c.
 *
 * The server reports once when a key has changed, by whomever (CLIENT TRACKING).  A renewal is such a change, too; then
 * the key is read and watched again, which is one small request for a term.
 *
 * A ticket has no key of its own.  It is among the names of its directory for as long as it is in the queue, so where
 * there is no lock of a name that a ticket may have, those are watched: they change when one comes or goes, not when it
 * is renewed.
 */
#include <string.h>

#include "backend/redis/private.h"

/* The key of its directory's names, if it may be a ticket; else NULL.  A new string. */
static char *watch_names_key(struct redis *r, const char *name)
{
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    char *key = remote_is_numbered(leaf) ? redis_key(&r->keys, 'l', directory) : NULL;
    g_free(directory);
    return key;
}

static void watch_on_named(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    if (answer->outcome == REMOTE_ANSWERED && answer->reply->type == REDIS_REPLY_NIL) {
        remote_watch_gone(request->r, request->name);
    }
    remote_request_free(request);
}

static void watch_on_read(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    bool free = answer->outcome == REMOTE_ANSWERED && redis_number(answer->reply, 0) == 0;
    char *names = free && remote_watches(request->r, request->name) ? watch_names_key(r, request->name) : NULL;
    if (names) {
        redis_conn_watch(r->conn, names, strlen(names), remote_leaf(request->name), watch_on_named, request);
        g_free(names);
        return;
    }
    if (free) {
        remote_watch_gone(request->r, request->name);
    }
    remote_request_free(request);
}

void redis_watch_name(struct remote *remote, const char *name)
{
    struct redis *r = (struct redis *)remote;
    struct remote_request *request = remote_request_new(remote, REMOTE_NO_PROCEDURE, NULL, name);
    char *key = redis_key(&r->keys, 0, name);
    redis_conn_watch(r->conn, key, strlen(key), NULL, watch_on_read, request);
    g_free(key);
}

void redis_watch_side_changed(struct redis *r, const char *key, size_t length)
{
    struct remote_watch *watch, *next;
    for (watch = TAILQ_FIRST(&r->remote.watched); watch; watch = next) {
        char *names = watch_names_key(r, watch->name);
        next = TAILQ_NEXT(watch, link);
        if (names && strlen(names) == length && memcmp(names, key, length) == 0) {
            remote_watch_changed(&r->remote, watch->name);
        }
        g_free(names);
    }
}
