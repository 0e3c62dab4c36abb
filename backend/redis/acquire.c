/* acquire: taking a lock, waiting for it, and claiming it: one script does all three.  Another speaks for those that
 * wait. */
#include <inttypes.h>
#include <string.h>

#include "backend/redis/pack.h"
#include "backend/redis/private.h"

#define LONE_CONTENT 512 /* as in head.lua */
#define LONE_GRANTED "granted "
#define ACQUIRE_NOTE_EVERY 3600000 /* ms until the set of this mount's leases is told again how long it is kept */

/* What acquire_free.lua takes: where nobody else is there that claim becomes its key's value. */
static bool acquire_may_be_lone(const struct remote_ticket *t)
{
    return t->head.mode == BACKEND_EXCLUSIVE && !t->lock->sequence && !t->lock_owner && !t->head.fence &&
           (!t->head.content || g_bytes_get_size(t->head.content) <= LONE_CONTENT) &&
           !remote_is_numbered(remote_leaf(t->lock->name));
}

bool redis_acquire_may_be_free(struct redis *r, const struct remote_ticket *t)
{
    bool uncontended = LIST_FIRST(&t->lock->tickets) == t && !LIST_NEXT(t, link);
    return acquire_may_be_lone(t) && t->state == REMOTE_ACQUIRING && uncontended && !epoch_is_closed(&r->epoch) &&
           !g_hash_table_contains(r->watches, t->lock->name);
}

void redis_acquire_fill_free(struct redis_call *call, struct redis *r, const struct remote_ticket *t)
{
    const char *name = t->lock->name, *leaf = remote_leaf(name);
    bool lease = t->head.kind == BACKEND_LEASE;
    bool noted = lease && (r->noted == 0 || clock_now() - r->noted >= ACQUIRE_NOTE_EVERY);
    char to[sizeof r->mount + sizeof t->id + 2];
    g_snprintf(to, sizeof to, " %s %s+", r->mount, t->id);
    redis_call_free(call, r, name);
    redis_call_text(call, "mount", r->mount);
    redis_call_text(call, "path", name);
    redis_call_number(call, "kind", (int64_t)t->head.kind);
    redis_call_number(call, "mode", (int64_t)t->head.mode);
    redis_call_number(call, "ttl", t->head.ttl);
    redis_call_unsigned(call, "handle", t->handle);
    redis_call_bytes(call, "meta", t->meta);
    if (t->head.content) {
        redis_call_bytes(call, "content", t->head.content);
    }
    redis_call_word(call, to);
    redis_call_word_number(call, t->head.ttl);
    redis_call_word(call, leaf);
    redis_call_word_lease(call, t->id, name, lease);
    if (leaf != name || noted) {
        redis_call_word(call, leaf == name ? "m" : noted ? "nm" : "n");
    }
    r->noted = noted ? clock_now() : r->noted;
}

void redis_acquire_fill(struct redis_call *call, struct redis *r, const struct remote_ticket *t, bool test)
{
    const char *name = remote_ticket_name(t);
    bool in_root = !strchr(name, '/');
    const char *leaf;
    char *directory = remote_parent(name, &leaf);
    redis_call_lock(call, r, REDIS_ACQUIRE, t->lock->name, t->lock->sequence, NULL);
    redis_call_key(call, 0, directory);
    for (const char *letter = remote_is_numbered(leaf) ? "oti" : ""; *letter && !t->lock->sequence; letter++) {
        redis_call_key(call, *letter, directory);
    }
    g_free(directory);
    const struct backend_claim claim = {
        .kind = t->head.kind,
        .mode = t->head.mode,
        .ttl = t->head.ttl,
        .handle = t->handle,
        .lock_owner = t->lock_owner,
        .start = t->start,
        .end = t->end,
    };
    redis_call_leaf(call, name, t->lock->sequence);
    redis_call_flag(call, "needed", !in_root);
    redis_call_text(call, "ticket", t->id);
    redis_call_text(call, "mount", r->mount);
    redis_call_text(call, "path", t->lock->name);
    redis_call_claim(call, t, &claim);
    redis_call_flag(call, "wait", t->wait);
    redis_call_flag(call, "test", test);
    redis_call_bytes(call, "meta", t->meta);
    if (t->head.content) {
        redis_call_bytes(call, "content", t->head.content);
    }
    if (t->head.fence) {
        redis_call_number(call, "number", (int64_t)t->head.fence);
    } else if (t->lock->sequence) {
        redis_call_number(call, "next", (int64_t)redis_sequence(r, t->lock->name, 0));
    }
}

/* A ticket in a sequence is named by what was asked for, and a number. */
static bool acquire_is_given_name(const struct remote_ticket *t, const char *given)
{
    const char *leaf = remote_leaf(t->name);
    size_t prefix = strlen(leaf) - (remote_is_numbered(leaf) ? 10 : 0);
    return remote_is_component(given) && strlen(given) == prefix + 10 && strncmp(given, leaf, prefix) == 0 &&
           remote_is_numbered(given);
}

/* Of a name in a sequence. */
static uint64_t acquire_number(const char *leaf)
{
    return g_ascii_strtoull(leaf + strlen(leaf) - 10, NULL, 10);
}

/* The number that acquire_free.lua has given, or NULL. */
static const char *acquire_lone_number(const redisReply *reply)
{
    bool is = reply && reply->type == REDIS_REPLY_STRING && g_str_has_prefix(reply->str, LONE_GRANTED);
    return is ? reply->str + strlen(LONE_GRANTED) : NULL;
}

/* Whether the script can have given this answer to this ticket. */
static bool acquire_is_credible(struct redis *r, struct remote_ticket *t, const redisReply *reply, bool granted,
                                uint64_t *ret_fence)
{
    const char *name = redis_text(reply, granted ? 4 : 5), *lone = acquire_lone_number(reply);
    if (lone) {
        return acquire_may_be_lone(t) && redis_fence_of(lone, ret_fence);
    }
    if (!redis_fence(reply, granted ? 2 : 1, ret_fence)) {
        return false;
    }
    if (t->lock->sequence && !acquire_is_given_name(t, name)) {
        return false;
    }
    return granted ? remote_ticket_accepts_id(&r->remote, t, redis_text(reply, 1)) : t->wait;
}

void redis_acquire_read(const struct remote_request *request, const struct redis_answer *given,
                        struct remote_answer *answer, struct backend_info *holder, GArray **ret_segments)
{
    struct redis *r = redis_of(request);
    struct remote_ticket *t = remote_ticket_find(&r->remote, request->id);
    const redisReply *reply = given->reply;
    const char *word = redis_text(reply, 0);
    bool lone = acquire_lone_number(reply), granted = lone || strcmp(word, "granted") == 0,
         queued = strcmp(word, "queued") == 0;
    answer->result = granted ? BACKEND_OK : queued ? BACKEND_QUEUED : redis_result(r, given);
    if (answer->outcome == REMOTE_ANSWERED && (granted || queued) &&
        acquire_is_credible(r, t, reply, granted, &answer->fence)) {
        t->uncontended = lone;
        answer->id = lone ? t->id : redis_text(reply, 1);
        *ret_segments = redis_segments(reply, 3);
        answer->segments = *ret_segments;
        answer->leaf = redis_text(reply, granted ? 4 : 5);
        answer->rank = redis_number(reply, 2);
        answer->wait = redis_number(reply, 3);
        answer->foreign = redis_number(reply, 4) == 1;
        if (t->lock->sequence) {
            redis_sequence(r, t->lock->name, acquire_number(answer->leaf) + 1);
        }
    } else if (answer->result == BACKEND_BUSY) {
        redis_describe(r, t->lock->name, reply, 1, holder);
        answer->info = holder;
    } else if (answer->outcome == REMOTE_ANSWERED && answer->result != BACKEND_MISSING &&
               answer->result != BACKEND_GRACE && answer->result != BACKEND_IS_DIRECTORY &&
               answer->result != BACKEND_NOT_DIRECTORY) {
        redis_disbelieve(r, given);
        answer->outcome = REMOTE_UNKNOWN;
        answer->result = BACKEND_UNREACHABLE;
    }
}

static void acquire_on_heartbeat(void *arg, const struct redis_answer *answer)
{
    const redisReply *reply = answer->reply;
    for (size_t i = 0; answer->outcome == REMOTE_ANSWERED && i + 3 < reply->elements; i += 4) {
        remote_heartbeat_reply(arg, redis_text(reply, i),
                               &(struct remote_answer){.rank = redis_number(reply, i + 1),
                                                       .wait = redis_number(reply, i + 2),
                                                       .foreign = redis_number(reply, i + 3) == 1});
    }
}

void redis_send_heartbeat(struct remote *remote, struct remote_ticket *const *tickets, size_t count)
{
    struct redis *r = (struct redis *)remote;
    struct redis_call call = {.r = r};
    guint begin = redis_call_array(&call, "places"), locks = 0;
    for (size_t i = 0, next; i < count; i = next) {
        const struct remote_lock *lock = tickets[i]->lock;
        const char *leaf = remote_leaf(lock->name);
        for (next = i + 1; next < count && tickets[next]->lock == lock; next++) {
        }
        redis_call_lock(&call, r, REDIS_BEAT, lock->name, lock->sequence, NULL);
        pack_text(r->packed, leaf, strlen(leaf));
        pack_number(r->packed, lock->sequence);
        pack_number(r->packed, (int64_t)(next - i));
        locks++;
    }
    pack_count(r->packed, begin, 3 * locks);
    begin = redis_call_array(&call, "tickets");
    for (size_t i = 0; i < count; i++) {
        pack_text(r->packed, tickets[i]->id, strlen(tickets[i]->id));
        pack_number(r->packed, remote_ticket_liveness(tickets[i], tickets[i]->head.ttl));
    }
    pack_count(r->packed, begin, (guint)(2 * count));
    redis_call_send(&call, 0, acquire_on_heartbeat, remote);
}

static void acquire_on_tested(void *arg, const struct redis_answer *given)
{
    struct remote_request *request = arg;
    struct redis *r = redis_of(request);
    struct backend_info info = {.type = BACKEND_NOTHING};
    struct remote_answer answer = {.outcome = given->outcome, .info = &info};
    if (given->outcome != REMOTE_ANSWERED) {
        answer.result = redis_failure(r, given);
    } else if (strcmp(redis_text(given->reply, 0), "grace") == 0) {
        answer.result = BACKEND_GRACE;
    } else if (strcmp(redis_text(given->reply, 0), "busy") == 0) {
        info = (struct backend_info){.type = BACKEND_LOCK, .holders = 1};
        redis_describe(r, request->name, given->reply, 1, &info);
        if (redis_is_expired(r, given->reply, 1, &info)) {
            info.type = BACKEND_NOTHING;
        }
    }
    request->on_answer(request, &answer);
    redis_info_clear(&info);
}

void redis_test(struct remote_request *request)
{
    struct redis *r = redis_of(request);
    struct redis_call call = {0};
    /* for as long as the call is made */
    struct remote_ticket *t = remote_ticket_new(&r->remote, request->name, &request->claim);
    redis_acquire_fill(&call, r, t, true);
    redis_call_send(&call, 0, acquire_on_tested, request);
    remote_ticket_free(&r->remote, t);
}

static void acquire_on_watched(void *arg, const struct redis_answer *answer)
{
    struct remote_request *request = arg;
    struct remote_ticket *t = remote_ticket_find(request->r, request->id);
    bool answered = answer->outcome == REMOTE_ANSWERED;
    bool there = !answered || redis_number(answer->reply, 0) != 0;
    if (t && !answered) {
        t->lock->watched = false;
    }
    if (t && !there && t->state == REMOTE_WAITING) {
        remote_refresh(request->r, t);
    }
    remote_request_free(request);
}

void redis_watch(struct remote *remote, struct remote_ticket *t)
{
    struct redis *r = (struct redis *)remote;
    char *key = redis_key(r, t->lock->name);
    redis_conn_watch(r->conn, key, strlen(key), NULL, acquire_on_watched, remote_request_new(&r->remote, t));
    g_free(key);
}
