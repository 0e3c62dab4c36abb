/* list: the names in a directory.
 *
 * They are noted in order, but some may be left over, by mounts that died.  So they are asked for in parts, and then
 * which of a part are there, which removes the others: no request takes the server long.  All of them together take no
 * longer than one may.
 */
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

#define LIST_PART 500

struct redis_listing {
    LIST_ENTRY(redis_listing) link; /* r->listings */
    struct redis *r;
    char *directory;
    GBytes *after;    /* the next part begins behind it */
    const char *last; /* of the names that were told */
    size_t max;
    clock_ms until; /* it is answered by then */
    GStringChunk *names;
    GPtrArray *asked; /* of this part */
    GArray *found;    /* struct backend_entry */
    backend_list_done *done;
    void *arg;
};

static void list_free(struct redis_listing *l)
{
    LIST_REMOVE(l, link);
    g_bytes_unref(l->after);
    g_string_chunk_free(l->names);
    g_ptr_array_unref(l->asked);
    g_array_unref(l->found);
    g_free(l->directory);
    g_free(l);
}

void redis_list_end_all(struct redis *r)
{
    while (!LIST_EMPTY(&r->listings)) {
        list_free(LIST_FIRST(&r->listings));
    }
}

static void list_complete(struct redis_listing *l, enum backend_result result)
{
    const struct backend_entry *entries = (const struct backend_entry *)l->found->data;
    l->done(l->arg, result, entries, result == BACKEND_OK ? MIN(l->found->len, l->max) : 0);
    list_free(l);
}

static void list_send(struct redis_listing *l, struct redis_call *call, redis_answered *answered)
{
    redis_call_send(call, MAX(l->until - clock_now(), 1), answered, l);
}

static void list_ask(struct redis_listing *l);

static void list_go_on(struct redis_listing *l)
{
    if (l->found->len >= l->max || g_bytes_get_size(l->after) == 0) {
        list_complete(l, BACKEND_OK);
    } else {
        list_ask(l);
    }
}

static void list_on_types(void *arg, const struct redis_answer *answer)
{
    struct redis_listing *l = arg;
    if (answer->outcome != REMOTE_ANSWERED) {
        list_complete(l, redis_failure(l->r, answer));
        return;
    }
    for (guint i = 0; i < l->asked->len; i++) {
        int64_t type = redis_number(answer->reply, i);
        const struct backend_entry entry = {.name = l->asked->pdata[i],
                                            .type = type == 1 ? BACKEND_DIRECTORY : BACKEND_LOCK};
        if (type == 1 || type == 2) {
            g_array_append_val(l->found, entry);
        }
    }
    list_go_on(l);
}

static char *list_path(const struct redis_listing *l, const char *name)
{
    return *l->directory ? g_strconcat(l->directory, "/", name, NULL) : g_strdup(name);
}

static bool list_is_listable(const struct redis_listing *l, const char *name)
{
    char *path = list_path(l, name);
    bool allowed = redis_is_component(name) && strcmp(name, l->last) > 0 && redis_key_allowed(l->r, path);
    g_free(path);
    return allowed;
}

static void list_ask_types(struct redis_listing *l)
{
    struct redis_call call = {.r = l->r, .script = REDIS_NAMES};
    for (const char *letter = "lti"; *letter; letter++) {
        redis_call_key(&call, *letter, l->directory);
    }
    guint begin = redis_call_array(&call, "names");
    for (guint i = 0; i < l->asked->len; i++) {
        const char *name = l->asked->pdata[i];
        char *path = list_path(l, name);
        redis_call_key(&call, 0, path);
        redis_call_key(&call, 'd', path);
        pack_text(l->r->packed, name, strlen(name));
        g_free(path);
    }
    pack_count(l->r->packed, begin, l->asked->len);
    list_send(l, &call, list_on_types);
}

static void list_on_names(void *arg, const struct redis_answer *answer)
{
    struct redis_listing *l = arg;
    const redisReply *reply = answer->reply;
    const char *word = redis_text(reply, 0);
    if (answer->outcome != REMOTE_ANSWERED) {
        list_complete(l, redis_failure(l->r, answer));
        return;
    }
    if (strcmp(word, "ok") != 0) {
        list_complete(l, strcmp(word, "notdirectory") == 0 ? BACKEND_NOT_DIRECTORY : BACKEND_MISSING);
        return;
    }
    GBytes *after = redis_bytes(reply, 1, REDIS_CONTENT_MAX), *before = l->after;
    l->after = g_bytes_compare(after, before) > 0 ? g_bytes_ref(after) : g_bytes_new(NULL, 0);
    g_bytes_unref(after);
    g_bytes_unref(before);
    g_ptr_array_set_size(l->asked, 0);
    for (size_t i = 2; i < reply->elements; i++) {
        if (list_is_listable(l, redis_text(reply, i))) {
            l->last = g_string_chunk_insert(l->names, redis_text(reply, i));
            g_ptr_array_add(l->asked, (char *)l->last);
        }
    }
    if (l->asked->len > 0) {
        list_ask_types(l);
    } else {
        list_go_on(l);
    }
}

static void list_ask(struct redis_listing *l)
{
    struct redis_call call = {.r = l->r, .script = REDIS_LIST};
    redis_call_key(&call, 'l', l->directory);
    redis_call_key(&call, 'd', l->directory);
    redis_call_key(&call, 0, l->directory);
    redis_call_bytes(&call, "after", l->after);
    redis_call_number(&call, "max", LIST_PART);
    redis_call_flag(&call, "needed", *l->directory);
    list_send(l, &call, list_on_names);
}

void redis_list(struct backend *b, const char *directory, const char *after, size_t max, backend_list_done *done,
                void *arg)
{
    struct redis *r = (struct redis *)b;
    if (!redis_key_allowed(r, directory)) {
        done(arg, BACKEND_MISSING, NULL, 0);
        return;
    }
    struct redis_listing *l = g_new0(struct redis_listing, 1);
    l->r = r;
    l->directory = g_strdup(directory);
    l->after = g_bytes_new(after, strlen(after));
    l->names = g_string_chunk_new(4096);
    l->last = g_string_chunk_insert(l->names, after);
    l->max = MIN(max, REDIS_LIST_MAX);
    int64_t patience = redis_patience(r);
    l->until = clock_now() + (patience ? patience : r->timeout);
    l->asked = g_ptr_array_new();
    l->found = g_array_new(FALSE, FALSE, sizeof(struct backend_entry));
    l->done = done;
    l->arg = arg;
    LIST_INSERT_HEAD(&r->listings, l, link);
    list_ask(l);
}
