/* list: the names in a directory.
 *
 * They are noted in order, but some may be left over, by mounts that died.  So they are asked for in parts, and then
 * which of a part are there, which removes the others: no request takes the server long.  All of them together take no
 * longer than one may.  The tickets of a queue come with their descriptions, in one request for each part.
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
    const char *last; /* of the names that were listed */
    size_t max;
    clock_ms until; /* it is answered by then */
    GStringChunk *names;
    GPtrArray *part;  /* names of the present part */
    GArray *found;    /* struct backend_entry */
    GPtrArray *infos; /* struct backend_info, of tickets */
    struct remote_request *request;
};

static void list_free(struct redis_listing *l)
{
    LIST_REMOVE(l, link);
    g_bytes_unref(l->after);
    g_string_chunk_free(l->names);
    g_ptr_array_unref(l->part);
    g_array_unref(l->found);
    g_ptr_array_unref(l->infos);
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
    l->request->on_answer(
        l->request,
        &(struct remote_answer){.result = result, .entries = entries, .entry_count = MIN(l->found->len, l->max)});
    list_free(l);
}

static void list_send(struct redis_listing *l, struct redis_call *call, redis_answered *answered)
{
    redis_call_send(call, MAX(l->until - clock_now(), 1), answered, l);
}

static void list_ask(struct redis_listing *l);

static void list_continue(struct redis_listing *l)
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
    for (guint i = 0; i < l->part->len; i++) {
        int64_t type = redis_number(answer->reply, i);
        const struct backend_entry entry = {.name = l->part->pdata[i],
                                            .type = type == 1 ? BACKEND_DIRECTORY : BACKEND_LOCK};
        if (type == 1 || type == 2) {
            g_array_append_val(l->found, entry);
        }
    }
    list_continue(l);
}

static char *list_path(const struct redis_listing *l, const char *name)
{
    return *l->directory ? g_strconcat(l->directory, "/", name, NULL) : g_strdup(name);
}

static bool list_is_listable(const struct redis_listing *l, const char *name)
{
    char *path = list_path(l, name);
    bool allowed = remote_is_component(name) && strcmp(name, l->last) > 0 && redis_key_allowed(&l->r->keys, path);
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
    for (guint i = 0; i < l->part->len; i++) {
        const char *name = l->part->pdata[i];
        char *path = list_path(l, name);
        redis_call_key(&call, 0, path);
        redis_call_key(&call, 'd', path);
        pack_text(l->r->packed, name, strlen(name));
        g_free(path);
    }
    pack_count(l->r->packed, begin, l->part->len);
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
    g_ptr_array_set_size(l->part, 0);
    for (size_t i = 2; i < reply->elements; i++) {
        if (list_is_listable(l, redis_text(reply, i))) {
            l->last = g_string_chunk_insert(l->names, redis_text(reply, i));
            g_ptr_array_add(l->part, (char *)l->last);
        }
    }
    if (l->part->len > 0) {
        list_ask_types(l);
    } else {
        list_continue(l);
    }
}

static void list_info_free(gpointer data)
{
    struct backend_info *info = data;
    g_bytes_unref(info->meta);
    g_free(info);
}

static void list_on_tickets(void *arg, const struct redis_answer *answer)
{
    struct redis_listing *l = arg;
    const redisReply *reply = answer->reply;
    if (answer->outcome != REMOTE_ANSWERED) {
        list_complete(l, redis_failure(l->r, answer));
        return;
    }
    GBytes *before = l->after;
    l->after = redis_bytes(reply, 0, REDIS_CONTENT_MAX);
    bool last = g_bytes_compare(l->after, before) <= 0;
    g_bytes_unref(before);
    for (size_t i = 1; i + 4 < reply->elements; i += 5) {
        const char *name = redis_text(reply, i);
        if (!list_is_listable(l, name) || !remote_is_numbered(name)) {
            continue;
        }
        struct remote_ticket *t = remote_ticket_find(&l->r->remote, redis_text(reply, i + 1));
        struct backend_info *info = g_new(struct backend_info, 1);
        *info = (struct backend_info){.type = BACKEND_LOCK,
                                      .ticket = t && t->state != REMOTE_ACQUIRING ? &t->head : NULL,
                                      .holders = redis_number(reply, i + 2) ? 0 : 1,
                                      .acquired = clock_now() - MAX(redis_time(reply, i + 3), 0),
                                      .meta = redis_bytes(reply, i + 4, REDIS_META_MAX)};
        l->last = g_string_chunk_insert(l->names, name);
        const struct backend_entry entry = {.name = l->last, .type = BACKEND_LOCK, .info = info};
        g_ptr_array_add(l->infos, info);
        g_array_append_val(l->found, entry);
    }
    if (last) {
        list_complete(l, BACKEND_OK);
    } else {
        list_continue(l);
    }
}

static void list_ask_tickets(struct redis_listing *l)
{
    struct redis_call call = {.r = l->r, .script = REDIS_TICKETS};
    for (const char *letter = "ltwi"; *letter; letter++) {
        redis_call_key(&call, *letter, l->directory);
    }
    redis_call_bytes(&call, "after", l->after);
    redis_call_number(&call, "max", LIST_PART);
    list_send(l, &call, list_on_tickets);
}

static void list_ask(struct redis_listing *l)
{
    if (l->request->procedure == REMOTE_TICKETS) {
        list_ask_tickets(l);
        return;
    }
    struct redis_call call = {.r = l->r, .script = REDIS_LIST};
    redis_call_key(&call, 'l', l->directory);
    redis_call_key(&call, 'd', l->directory);
    redis_call_key(&call, 0, l->directory);
    redis_call_bytes(&call, "after", l->after);
    redis_call_number(&call, "max", LIST_PART);
    redis_call_flag(&call, "needed", *l->directory);
    list_send(l, &call, list_on_names);
}

void redis_list(struct remote_request *request)
{
    struct redis *r = redis_of(request);
    struct redis_listing *l = g_new0(struct redis_listing, 1);
    l->r = r;
    l->request = request;
    l->directory = g_strdup(request->name);
    l->after = g_bytes_new(request->after, strlen(request->after));
    l->names = g_string_chunk_new(4096);
    l->last = g_string_chunk_insert(l->names, request->after);
    l->max = MIN(request->max, REDIS_LIST_MAX);
    int64_t timeout = redis_request_timeout(r);
    l->until = clock_now() + (timeout ? timeout : r->timeout);
    l->part = g_ptr_array_new();
    l->found = g_array_new(FALSE, FALSE, sizeof(struct backend_entry));
    l->infos = g_ptr_array_new_with_free_func(list_info_free);
    LIST_INSERT_HEAD(&r->listings, l, link);
    list_ask(l);
}
