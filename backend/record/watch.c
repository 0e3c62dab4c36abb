/* watch: names that others hold, whose end the file system must know; see backend_watch. */
#include "backend/record/private.h"

enum { WATCHES_MAX = 1024 };

struct watch {
    TAILQ_ENTRY(watch) link; /* engine->watches, the newest first */
    struct engine *engine;
    char *name;
    bool pending; /* a look at it is pending: it must not be freed */
};

static void watch_free(struct watch *w)
{
    TAILQ_REMOVE(&w->engine->watches, w, link);
    g_hash_table_remove(w->engine->watched, w->name);
    g_free(w->name);
    g_free(w);
}

void watch_clear(struct engine *e)
{
    while (!TAILQ_EMPTY(&e->watches)) {
        watch_free(TAILQ_FIRST(&e->watches));
    }
    g_hash_table_unref(e->watched);
}

static void watch_on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    struct watch *w = arg;
    struct engine *e = w->engine;
    g_autofree char *name = g_strdup(w->name);
    w->pending = false;
    if (result != BACKEND_OK) {
        return;
    }
    if (info->type != BACKEND_LOCK) {
        watch_free(w);
        e->events->gone(e->context, name);
    } else if (!e->events->watched(e->context, name) && (w = g_hash_table_lookup(e->watched, name)) && !w->pending) {
        watch_free(w);
    }
}

void watch_poll(struct engine *e)
{
    struct watch *w;
    e->next_poll = TAILQ_EMPTY(&e->watches) ? CLOCK_NEVER : clock_now() + ENGINE_POLL;
    TAILQ_FOREACH(w, &e->watches, link) {
        if (!w->pending && e->up) {
            w->pending = true;
            engine_stat(&e->backend, w->name, watch_on_known, w);
        }
    }
}

void engine_watch(struct backend *b, const char *name)
{
    struct engine *e = (struct engine *)b;
    struct watch *w = g_hash_table_lookup(e->watched, name);
    if (!w) {
        w = g_new0(struct watch, 1);
        w->engine = e;
        w->name = g_strdup(name);
        g_hash_table_insert(e->watched, w->name, w);
    } else {
        TAILQ_REMOVE(&e->watches, w, link);
    }
    TAILQ_INSERT_HEAD(&e->watches, w, link);
    w = TAILQ_LAST(&e->watches, watches);
    if (g_hash_table_size(e->watched) > WATCHES_MAX && !w->pending) {
        watch_free(w);
    }
    if (e->next_poll == CLOCK_NEVER) {
        e->next_poll = clock_now() + ENGINE_POLL;
        engine_set_alarm(e);
    }
}
