/* reply: reads replies.  Anybody may have written what they have, so every value is checked. */
#include <string.h>

#include "backend/log.h"
#include "backend/redis/private.h"

#define TIME_MAX INT64_C(315576000000) /* ms: 10 years */
#define FENCE_MAX (UINT64_C(1) << 53)  /* what scripts count to */

static const redisReply *reply_element(const redisReply *reply, size_t index)
{
    return reply && reply->type == REDIS_REPLY_ARRAY && index < reply->elements ? reply->element[index] : NULL;
}

const char *redis_text(const redisReply *reply, size_t index)
{
    const redisReply *e = reply_element(reply, index);
    if (reply && reply->type == REDIS_REPLY_STRING && index == 0) {
        e = reply;
    }
    return e && (e->type == REDIS_REPLY_STRING || e->type == REDIS_REPLY_STATUS) ? e->str : "";
}

int64_t redis_number(const redisReply *reply, size_t index)
{
    const redisReply *e = reply_element(reply, index);
    if (reply && reply->type == REDIS_REPLY_INTEGER && index == 0) {
        e = reply;
    }
    if (e && e->type == REDIS_REPLY_INTEGER) {
        return e->integer;
    }
    return g_ascii_strtoll(redis_text(reply, index), NULL, 10);
}

static uint64_t redis_unsigned(const redisReply *reply, size_t index)
{
    const redisReply *e = reply_element(reply, index);
    if (e && e->type == REDIS_REPLY_INTEGER) {
        return (uint64_t)e->integer;
    }
    return g_ascii_strtoull(redis_text(reply, index), NULL, 10);
}

uint64_t redis_offset(const redisReply *reply, size_t index)
{
    return g_ascii_strtoull(redis_text(reply, index), NULL, 16);
}

GBytes *redis_bytes(const redisReply *reply, size_t index, size_t max)
{
    const redisReply *e = reply_element(reply, index);
    bool is_text = e && e->type == REDIS_REPLY_STRING;
    return g_bytes_new(is_text ? e->str : "", is_text ? MIN((gsize)e->len, max) : 0);
}

int64_t redis_time(const redisReply *reply, size_t index)
{
    return CLAMP(redis_number(reply, index), -1, TIME_MAX);
}

uint32_t redis_count(const redisReply *reply, size_t index)
{
    return (uint32_t)CLAMP(redis_number(reply, index), 0, UINT32_MAX);
}

static bool reply_take_fence(uint64_t fence, uint64_t *ret_fence)
{
    if (fence == 0 || fence > FENCE_MAX) {
        return false;
    }
    *ret_fence = fence;
    return true;
}

bool redis_fence(const redisReply *reply, size_t index, uint64_t *ret_fence)
{
    return reply_take_fence(redis_unsigned(reply, index), ret_fence);
}

bool redis_fence_of(const char *text, uint64_t *ret_fence)
{
    return reply_take_fence(g_ascii_strtoull(text, NULL, 10), ret_fence);
}

static void reply_complain(struct redis *r, const char *what, const struct redis_answer *answer, const char *error)
{
    char key[512], text[256];
    char *name = answer->key_count ? g_strndup(answer->keys[0], answer->key_lengths[0]) : NULL;
    if (clock_now() - r->complained >= REDIS_COMPLAIN_EVERY) {
        r->complained = clock_now();
        log_error("the Redis server %s%s%s: %s", what, name ? " for " : "",
                  name ? log_escape(key, sizeof key, name) : "", log_escape(text, sizeof text, error));
    }
    g_free(name);
}

void redis_disbelieve(struct redis *r, const struct redis_answer *answer)
{
    reply_complain(r, "gives an answer that cannot be", answer, redis_text(answer->reply, 0));
}

static void reply_on_probed(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    redis_of(request)->probing--;
    const char *error = answer->outcome == REMOTE_REFUSED && answer->reply ? answer->reply->str : "";
    if (g_str_has_prefix(error, "WRONGTYPE")) {
        char *quoted = g_shell_quote(request->name), key[512], word[512];
        log_error("%s: the key %s has the wrong type, because another program has written to it: what belongs to it "
                  "gives errors until it is deleted: redis-cli DEL %s",
                  redis_of(request)->address, log_escape(key, sizeof key, request->name),
                  log_escape(word, sizeof word, quoted));
        g_free(quoted);
    }
    remote_request_free(request);
}

/* The error does not say which of the script's keys has the wrong type.  So each side key is read by a command for its
 * type, and the log names the keys that refuse it. */
static void reply_find_wrong_type(struct redis *r, const struct redis_answer *answer)
{
    static const char *const probes[] = {
        ['o'] = "ZCARD",   ['t'] = "ZCARD",   ['w'] = "ZCARD",   ['l'] = "ZCARD",   ['q'] = "ZCARD",
        ['i'] = "HEXISTS", ['d'] = "HEXISTS", ['s'] = "HEXISTS", ['e'] = "HEXISTS", ['f'] = "GET",
        ['v'] = "GET",     ['m'] = "SCARD",   ['r'] = "SCARD"};
    if (r->probing) {
        return;
    }
    GHashTable *seen = g_hash_table_new(g_str_hash, g_str_equal); /* a script of several names may have a key twice */
    for (size_t i = 0; i < answer->key_count; i++) {
        char *key = g_strndup(answer->keys[i], answer->key_lengths[i]);
        unsigned char letter = redis_key_is_side(key) ? (unsigned char)key[strlen(REDIS_SIDE)] : 0;
        const char *probe = letter < G_N_ELEMENTS(probes) ? probes[letter] : NULL;
        if (!probe || g_hash_table_contains(seen, key)) {
            g_free(key);
            continue;
        }
        struct remote_request *request = remote_request_new(&r->remote, REMOTE_NO_PROCEDURE, NULL, NULL);
        const struct redis_argument words[] = {
            {probe, strlen(probe)}, {key, answer->key_lengths[i]}, {"", 0}}; /* no field is named "" */
        request->name = key;
        g_hash_table_add(seen, key);
        r->probing++;
        redis_conn_command(r->conn, words, strcmp(probe, "HEXISTS") == 0 ? 3 : 2, 0, reply_on_probed, request);
    }
    g_hash_table_unref(seen);
}

enum backend_result redis_failure(struct redis *r, const struct redis_answer *answer)
{
    if (answer->outcome != REMOTE_REFUSED) {
        return BACKEND_UNREACHABLE;
    }
    const char *error = answer->reply && answer->reply->str ? answer->reply->str : "";
    if (strstr(error, "WRONGTYPE")) {
        reply_find_wrong_type(r, answer);
        return BACKEND_DAMAGED;
    }
    if (strstr(error, "OOM ")) {
        r->full = clock_now();
        reply_complain(r, "refuses a lock", answer, REDIS_FULL);
        return BACKEND_FULL;
    }
    reply_complain(r, "refuses", answer, error);
    return strstr(error, " user_script:") ? BACKEND_DAMAGED : BACKEND_UNREACHABLE; /* an error of Lua's own */
}

enum backend_result redis_result(struct redis *r, const struct redis_answer *answer)
{
    return answer->outcome == REMOTE_ANSWERED ? remote_parse_result(redis_text(answer->reply, 0), BACKEND_UNREACHABLE)
                                              : redis_failure(r, answer);
}
