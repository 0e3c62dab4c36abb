/* list: the names in a directory.
 *
 * The server has them in order, but mounts that died may have left some.  So names.lua says which of the listed names
 * are there, and removes the others: no request takes the server long.  The tickets of a queue come with their
 * descriptions.
 */
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

#define LIST_PART 500

static void list_send(struct redis_call *call, struct remote_request *request, redis_answered *answered)
{
    redis_call_send(call, request->listing->timeout, answered, request);
}

static void list_on_types(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    bool answered = answer->outcome == REMOTE_ANSWERED;
    for (size_t i = 0; answered && i < LIST_PART && remote_listing_undescribed(request, 0); i++) {
        int64_t type = redis_number(answer->reply, i);
        remote_listing_describe(request, type == 1 ? BACKEND_DIRECTORY : type == 2 ? BACKEND_LOCK : BACKEND_NOTHING);
    }
    remote_request_answer(request, answered ? BACKEND_OK : redis_failure(r, answer), answer->sent);
}

static void list_ask_types(struct remote_request *request)
{
    struct redis *r = redis_of(request);
    struct redis_call call = {.r = r, .script = REDIS_NAMES};
    const struct backend_entry *entry;
    guint count = 0;
    for (const char *letter = "lti"; *letter; letter++) {
        redis_call_key(&call, *letter, request->name);
    }
    guint begin = redis_call_array(&call, "names");
    for (; count < LIST_PART && (entry = remote_listing_undescribed(request, count)); count++) {
        char *path = g_strconcat(request->name, *request->name ? "/" : "", entry->name, NULL);
        redis_call_key(&call, 0, path);
        redis_call_key(&call, 'd', path);
        pack_text(r->packed, entry->name, strlen(entry->name));
        g_free(path);
    }
    pack_count(r->packed, begin, count);
    list_send(&call, request, list_on_types);
}

static void list_on_names(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    enum backend_result result = redis_result(redis_of(request), answer);
    const redisReply *reply = answer->reply;
    for (size_t i = 2; result == BACKEND_OK && i < reply->elements; i++) {
        remote_listing_add(request, redis_text(reply, i), BACKEND_NOTHING, NULL);
    }
    if (result == BACKEND_OK) {
        remote_listing_end_part(request, redis_text(reply, 1));
    }
    remote_request_answer(request, result, answer->sent);
}

static void list_on_tickets(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    const redisReply *reply = answer->reply;
    bool answered = answer->outcome == REMOTE_ANSWERED;
    for (size_t i = 1; answered && i + 4 < reply->elements; i += 5) {
        GBytes *meta = redis_bytes(reply, i + 4, REDIS_META_MAX);
        struct backend_info info = remote_listing_ticket(
            request, redis_text(reply, i + 1), redis_number(reply, i + 2) == 0, redis_time(reply, i + 3), meta);
        remote_listing_add(request, redis_text(reply, i), BACKEND_LOCK, &info);
        g_bytes_unref(meta);
    }
    if (answered) {
        remote_listing_end_part(request, redis_text(reply, 0));
    }
    remote_request_answer(request, answered ? BACKEND_OK : redis_failure(redis_of(request), answer), answer->sent);
}

void redis_list(struct remote_request *request)
{
    bool tickets = request->procedure == REMOTE_TICKETS;
    struct redis_call call = {.r = redis_of(request), .script = tickets ? REDIS_TICKETS : REDIS_LIST};
    if (remote_listing_undescribed(request, 0)) {
        list_ask_types(request);
        return;
    }
    for (const char *letter = tickets ? "ltwi" : "ld"; *letter; letter++) {
        redis_call_key(&call, *letter, request->name);
    }
    if (!tickets) {
        redis_call_key(&call, 0, request->name);
        redis_call_flag(&call, "needed", *request->name);
    }
    redis_call_text(&call, "after", request->listing->after);
    redis_call_number(&call, "max", LIST_PART);
    list_send(&call, request, tickets ? list_on_tickets : list_on_names);
}
