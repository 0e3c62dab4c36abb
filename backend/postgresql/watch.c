/* watch: names that others hold, and of which the filesystem wants to hear when nobody does any more.
 *
 * The server notes which mounts want to know, and notifies them when the ticket ends; nobody is told that one expires,
 * so a mount asks again when its term would be over.
 */
#include <string.h>

#include "backend/postgresql/private.h"

#define WATCH_MAX 1024

struct pq_watch {
    struct postgresql *p;
    char *name;
    ev_timer timer;
    bool asked, again; /* a request is pending, and to be repeated */
};

static void watch_free(gpointer data)
{
    struct pq_watch *w = data;
    ev_timer_stop(w->p->remote.loop, &w->timer);
    g_free(w->name);
    g_free(w);
}

static GHashTable *watch_table(struct postgresql *p)
{
    if (!p->watches) {
        p->watches = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, watch_free);
    }
    return p->watches;
}

static void watch_ask(struct pq_watch *w);

struct watch_question {
    struct postgresql *p;
    char *name;
};

static void watch_on_answer(void *arg, const struct pq_answer *answer)
{
    struct watch_question *q = arg;
    struct postgresql *p = q->p;
    struct pq_watch *w = g_hash_table_lookup(watch_table(p), q->name);
    if (w) {
        w->asked = false;
    }
    bool answered = answer->outcome == REMOTE_ANSWERED;
    int64_t left = w && answered ? g_ascii_strtoll(PQgetvalue(answer->rows, 0, 0), NULL, 10) : 0;
    if (w && w->again) {
        watch_ask(w);
    } else if (w && answered && left < 0) {
        char *name = g_strdup(w->name);
        g_hash_table_remove(p->watches, w->name);
        p->remote.events->gone(p->remote.context, name);
        g_free(name);
    } else if (w) {
        ev_timer_stop(p->remote.loop, &w->timer);
        ev_timer_set(&w->timer, answered ? (double)MIN(left + 1, 3600000) / 1000 : 1.0, 0);
        ev_now_update(p->remote.loop);
        ev_timer_start(p->remote.loop, &w->timer);
    }
    g_free(q->name);
    g_free(q);
}

static void watch_ask(struct pq_watch *w)
{
    struct pq_parameters f = {.count = 0};
    w->again = w->asked;
    if (w->asked) {
        return;
    }
    w->asked = true;
    struct watch_question *q = g_new(struct watch_question, 1);
    *q = (struct watch_question){.p = w->p, .name = g_strdup(w->name)};
    pq_add_name(&f, w->name);
    pq_add_text(&f, w->p->mount);
    postgresql_send(w->p, PQ_WATCH, &f, 0, watch_on_answer, q);
}

static void watch_look_again(struct pq_watch *w)
{
    struct postgresql *p = w->p;
    if (p->remote.events->watched(p->remote.context, w->name)) {
        watch_ask(w);
    } else {
        g_hash_table_remove(p->watches, w->name);
    }
}

static void watch_on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
    (void)loop, (void)events;
    watch_look_again(timer->data);
}

void pq_watch_name(struct remote *r, const char *name)
{
    struct postgresql *p = (struct postgresql *)r;
    if (g_hash_table_contains(watch_table(p), name) || g_hash_table_size(p->watches) >= WATCH_MAX) {
        return;
    }
    struct pq_watch *w = g_new0(struct pq_watch, 1);
    w->p = p;
    w->name = g_strdup(name);
    ev_timer_init(&w->timer, watch_on_timer, 0, 0);
    w->timer.data = w;
    g_hash_table_insert(p->watches, w->name, w);
    watch_ask(w);
}

static char *watch_unhex(const char *text, size_t length)
{
    GString *plain = g_string_new(NULL);
    for (size_t i = 0; i + 1 < length; i += 2) {
        g_string_append_c(plain, (char)(g_ascii_xdigit_value(text[i]) << 4 | g_ascii_xdigit_value(text[i + 1])));
    }
    return g_string_free(plain, FALSE);
}

void pq_watch_freed(struct postgresql *p, const char *text)
{
    GHashTableIter each;
    struct pq_watch *w;
    if (text) {
        size_t length = strcspn(text, " ");
        char *path = watch_unhex(text, length),
             *name = text[length] ? watch_unhex(text + length + 1, strlen(text) - length - 1) : NULL;
        char *whole = name && *name ? g_strconcat(strcmp(path, "/") == 0 ? "" : path, name, NULL) : g_strdup(path);
        w = g_hash_table_lookup(watch_table(p), whole);
        if (w) {
            watch_look_again(w);
        }
        g_free(whole);
        g_free(path);
        g_free(name);
        return;
    }
    GPtrArray *all = g_ptr_array_new_with_free_func(g_free);
    g_hash_table_iter_init(&each, watch_table(p));
    while (g_hash_table_iter_next(&each, NULL, (gpointer *)&w)) {
        g_ptr_array_add(all, g_strdup(w->name));
    }
    for (guint i = 0; i < all->len; i++) {
        w = g_hash_table_lookup(p->watches, all->pdata[i]);
        if (w) {
            watch_look_again(w);
        }
    }
    g_ptr_array_unref(all);
}

void pq_watch_end_all(struct postgresql *p)
{
    g_clear_pointer(&p->watches, g_hash_table_unref);
}
