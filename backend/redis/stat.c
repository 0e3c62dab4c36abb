/* stat: what a name is, and who holds it. */
#include <string.h>

#include "backend/redis/private.h"

/* Element `first` and on: kind, mode, number, age, time left, ttl, meta,
 * ticket, start, end, mount.  An age or time of -1 (or -2) is not known. */
void redis_describe(struct redis *r, const char *name, const redisReply *reply, struct backend_info *info)
{
    clock_ms now = clock_now();
    int64_t age = redis_time(reply, 4), left = redis_time(reply, 5);
    int64_t ttl = redis_time(reply, 6), kind = redis_number(reply, 1);
    info->type = BACKEND_LOCK;
    info->kind = kind >= BACKEND_PROVISIONAL && kind <= BACKEND_FCNTL ? (enum backend_kind)kind : BACKEND_LEASE;
    info->mode = redis_number(reply, 2) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
    redis_fence(reply, 3, &info->fence);
    info->acquired = age >= 0 ? now - age : CLOCK_NEVER;
    info->deadline = left >= 0 ? now + left : CLOCK_NEVER;
    info->ttl = ttl >= 0 ? ttl : left >= 0 ? left : 0;
    info->meta = *redis_text(reply, 8) ? redis_bytes(reply, 7, REDIS_META_MAX) : NULL; /* no mount's has none */
    info->guarded = *redis_text(reply, 8) == 'g';                                      /* see revoke.lua */
    info->start = redis_offset(reply, 9);
    info->end = redis_offset(reply, 10);
    remote_describe_own(&r->remote, redis_text(reply, 8), name, info);
}

bool redis_describes_own(const struct redis *r, const redisReply *reply, size_t first)
{
    return strcmp(redis_text(reply, first + 10), r->mount) == 0;
}

static void stat_on_answer(void *arg, const struct redis_answer *given);

/* `no_directory`: it was none when it was last asked for. */
static void stat_send(struct remote_request *request, bool no_directory)
{
    struct redis_call call = {.r = redis_of(request), .script = REDIS_STAT};
    const char *leaf;
    char *directory = remote_parent(request->name, &leaf);
    redis_call_lock(&call, request->name, false, NULL);
    redis_call_key(&call, 'q', request->name);
    for (const char *letter = remote_is_numbered(leaf) ? "otiw" : ""; *letter; letter++) {
        redis_call_key(&call, *letter, directory);
    }
    g_free(directory);
    redis_call_leaf(&call, request->name, false);
    redis_call_flag(&call, "root", !*request->name);
    redis_call_flag(&call, "no_directory", no_directory);
    redis_call_send(&call, 0, stat_on_answer, request);
}

/* What stat.lua, or one of the short questions, answers. */
static enum backend_result stat_read(struct redis *r, const char *name, const struct redis_answer *given,
                                     struct backend_info *info)
{
    const redisReply *reply = given->reply;
    const char *word = redis_text(reply, 0);
    if (given->outcome != REMOTE_ANSWERED) {
        return redis_failure(r, given);
    }
    if (strcmp(word, "lock") == 0) {
        redis_describe(r, name, reply, info);
        info->content = redis_bytes(reply, 12, REDIS_CONTENT_MAX);
        info->holders = redis_count(reply, 13);
        info->waiters = redis_count(reply, 14);
        info->position = redis_count(reply, 15);
    } else if (strcmp(word, "directory") == 0) {
        info->type = BACKEND_DIRECTORY;
        info->directory = (struct backend_directory){
            .ttl = MAX(redis_time(reply, 1), 0),
            .width = MAX(redis_count(reply, 2), 1),
            .delay = MAX(redis_time(reply, 3), 0),
            .meta = redis_bytes(reply, 5, REDIS_META_MAX),
        };
        redis_fence(reply, 4, &info->directory.sequence);
        info->waiters = redis_count(reply, 6);
        remote_directory_cache_add(&r->remote, name, &(struct remote_directory){.attributes = info->directory});
    } else if (reply->type == REDIS_REPLY_INTEGER || strcmp(word, "nothing") == 0) {
        info->waiters = redis_count(reply, 1);
    } else {
        redis_disbelieve(r, given);
        return BACKEND_UNREACHABLE;
    }
    return BACKEND_OK;
}

static void stat_on_answer(void *arg, const struct redis_answer *given)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    const redisReply *reply = given->reply;
    bool counted = reply && reply->type == REDIS_REPLY_INTEGER;  /* see stat_count_keys */
    bool no_directory = reply && reply->type == REDIS_REPLY_NIL; /* see stat_send_directory */
    if (no_directory || (counted && reply->integer != 0)) {
        stat_send(request, counted && reply->integer < 2);
        return;
    }
    struct backend_info info = {.type = BACKEND_NOTHING};
    enum backend_result result = stat_read(r, request->name, given, &info);
    if (result == BACKEND_OK && remote_stat_again(request, &info, redis_describes_own(r, reply, 1))) {
        stat_send(request, false);
    } else {
        request->on_answer(request,
                           &(struct remote_answer){.outcome = given->outcome, .result = result, .info = &info});
    }
    remote_info_clear(&info);
}

/* Most names that are looked up are free, because they are about to be created.  To count their keys costs the server a
 * tenth of what stat.lua does.  A directory counts twice. */
static void stat_count_keys(struct remote_request *request)
{
    struct redis *r = redis_of(request);
    struct redis_call call = {.r = r};
    const struct redis_argument exists = {"EXISTS", strlen("EXISTS")};
    g_array_append_val(r->arguments, exists);
    for (const char *letter = "odd"; *letter; letter++) {
        redis_call_key(&call, *letter, request->name);
    }
    redis_call_key(&call, 0, request->name);
    redis_conn_command(r->conn, (const struct redis_argument *)r->arguments->data, r->arguments->len,
                       redis_request_timeout(r), stat_on_answer, request);
    redis_call_end(r);
}

/* The kernel looks up a directory on the way to each name in it. */
static void stat_send_directory(struct remote_request *request)
{
    struct redis_call call = {.r = redis_of(request), .script = REDIS_STAT_DIRECTORY};
    redis_call_key(&call, 'd', request->name);
    redis_call_key(&call, 'q', request->name);
    redis_call_send(&call, 0, stat_on_answer, request);
}

static bool stat_may_be_free(struct redis *r, const char *name)
{
    return *name && !remote_is_numbered(remote_leaf(name)) && !g_hash_table_contains(r->remote.locks, name) &&
           !remote_watches(&r->remote, name) && !remote_directory_cache_find(&r->remote, name);
}

void redis_stat(struct remote_request *request)
{
    struct redis *r = redis_of(request);
    if (stat_may_be_free(r, request->name)) {
        stat_count_keys(request);
    } else if (*request->name && remote_directory_cache_find(&r->remote, request->name)) {
        stat_send_directory(request);
    } else {
        stat_send(request, false);
    }
}
