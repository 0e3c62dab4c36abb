/* request: requests, from the call to the answer.
 *
 * A request is in `requests` and `live` until its callback was called or it was
 * forgotten, and on one of the lists waiting, held, sent and delayed until it needs no
 * reply any more.  Replies come in the order of `sent`, so what was forgotten
 * stays there, to be passed over.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/redis/conn/private.h"

#define DELAY 50 /* before a request is tried again that was refused for the time being */

#define HEAD 3 /* EVALSHA, hash, number of keys */

enum place { WAITING, HELD, SENT, DELAYED };

struct redis_request {
    TAILQ_ENTRY(redis_request) place_link;
    TAILQ_ENTRY(redis_request) live_link;
    enum place place; /* the list it is on */
    bool live;
    bool watch;    /* asked with CLIENT CACHING YES before it */
    bool skip;     /* the reply to that is still to come */
    bool whole;    /* sends the script's text: the server has lost it */
    bool repeated; /* a try before the present one may have been carried out */
    bool mended;   /* it met a key of the wrong type, and is tried once more */
    uint64_t id;
    redis_answered *answered;
    void *arg;
    const struct redis_script *script; /* NULL: a plain command */
    redisReply *refusal;               /* the last one, while it is tried again */
    clock_ms deadline;
    clock_ms sent;
    clock_ms again_at; /* while delayed */
    char keys[24];     /* the number of keys, in digits */
    int count;
    const char **arguments; /* behind the structure, with their lengths and bytes */
    size_t *lengths;
};

static struct redis_requests *list_of(struct redis_conn *conn, enum place place)
{
    switch (place) {
    case HELD:
        return &conn->held;
    case SENT:
        return &conn->sent;
    case DELAYED:
        return &conn->delayed;
    default:
        return &conn->waiting;
    }
}

static void leave(struct redis_conn *conn, struct redis_request *request)
{
    TAILQ_REMOVE(list_of(conn, request->place), request, place_link);
}

static void append(struct redis_conn *conn, struct redis_request *request, enum place place)
{
    request->place = place;
    TAILQ_INSERT_TAIL(list_of(conn, place), request, place_link);
}

static void request_free(struct redis_request *request)
{
    if (request->refusal) {
        freeReplyObject(request->refusal);
    }
    g_free(request);
}

/* Its callback is not called (again). */
static void retire(struct redis_conn *conn, struct redis_request *request)
{
    if (!request->live) {
        return;
    }
    request->live = false;
    TAILQ_REMOVE(&conn->live, request, live_link);
    g_hash_table_remove(conn->requests, &request->id);
}

/* Answers a request that is on no list any more, or was sent and stays. */
static void answer(struct redis_conn *conn, struct redis_request *request, enum redis_outcome outcome,
                   const redisReply *reply)
{
    const struct redis_answer given = {
        .outcome = outcome,
        .reply = reply,
        .key = request->script && request->count > HEAD ? request->arguments[HEAD] : NULL,
        .key_length = request->script && request->count > HEAD ? request->lengths[HEAD] : 0,
        .sent = request->sent,
        .repeated = request->repeated,
    };
    if (!request->live) {
        return;
    }
    retire(conn, request);
    if (request->answered) {
        request->answered(request->arg, &given);
    }
}

/* --- asking --- */

static struct redis_request *request_new(struct redis_conn *conn, size_t head, const struct redis_argument *arguments,
                                         size_t count, int64_t timeout)
{
    size_t total = head + count, bytes = 0;
    struct redis_request *request;
    for (size_t i = 0; i < count; i++) {
        bytes += arguments[i].length;
    }
    request = g_malloc0(sizeof(*request) + total * (sizeof(char *) + sizeof(size_t)) + bytes);
    request->arguments = (const char **)(request + 1);
    request->lengths = (size_t *)(request->arguments + total);
    char *data = (char *)(request->lengths + total);
    request->count = (int)total;
    for (size_t i = 0; i < count; i++) {
        if (arguments[i].length) {
            memcpy(data, arguments[i].data, arguments[i].length);
        }
        request->arguments[head + i] = data;
        request->lengths[head + i] = arguments[i].length;
        data += arguments[i].length;
    }
    request->id = ++conn->last_id;
    request->deadline = clock_now() + (timeout ? timeout : conn->options.timeout);
    return request;
}

static uint64_t ask(struct redis_conn *conn, struct redis_request *request, redis_answered *answered, void *arg)
{
    request->answered = answered;
    request->arg = arg;
    request->live = true;
    TAILQ_INSERT_TAIL(&conn->live, request, live_link);
    g_hash_table_insert(conn->requests, &request->id, request);
    append(conn, request, WAITING);
    conn->expire_at = MIN(conn->expire_at, request->deadline);
    redis_conn_wake(conn);
    return request->id;
}

static void set_head(struct redis_request *request, int i, const char *text)
{
    request->arguments[i] = text;
    request->lengths[i] = strlen(text);
}

uint64_t redis_conn_call(struct redis_conn *conn, const struct redis_script *script, size_t keys,
                         const struct redis_argument *arguments, size_t count, int64_t timeout,
                         redis_answered *answered, void *arg)
{
    struct redis_request *request = request_new(conn, HEAD, arguments, count, timeout);
    request->script = script;
    g_snprintf(request->keys, sizeof(request->keys), "%zu", keys);
    set_head(request, 0, "EVALSHA");
    set_head(request, 1, conn->hashes[script - conn->scripts]);
    set_head(request, 2, request->keys);
    return ask(conn, request, answered, arg);
}

uint64_t redis_conn_command(struct redis_conn *conn, const struct redis_argument *arguments, size_t count,
                            int64_t timeout, redis_answered *answered, void *arg)
{
    return ask(conn, request_new(conn, 0, arguments, count, timeout), answered, arg);
}

uint64_t redis_conn_watch(struct redis_conn *conn, const char *key, size_t length, redis_answered *answered, void *arg)
{
    const struct redis_argument arguments[] = {{"EXISTS", 6}, {key, length}};
    struct redis_request *request = request_new(conn, 0, arguments, 2, 0);
    request->watch = true;
    return ask(conn, request, answered, arg);
}

bool redis_conn_forget(struct redis_conn *conn, uint64_t id)
{
    struct redis_request *request = g_hash_table_lookup(conn->requests, &id);
    if (!request) {
        return false;
    }
    retire(conn, request);
    if (request->place == SENT) {
        return false;
    }
    bool never_sent = !request->repeated;
    leave(conn, request);
    request_free(request);
    return never_sent;
}

/* --- sending --- */

static void send_request(struct redis_conn *conn, struct redis_request *request, clock_ms now)
{
    static const char *caching[] = {"CLIENT", "CACHING", "YES"};
    static const size_t caching_lengths[] = {6, 7, 3};
    leave(conn, request);
    request->skip = request->watch && conn->tracking;
    if (request->skip) {
        redis_link_append(&conn->command.link, 3, caching, caching_lengths);
    }
    conn->watched = conn->watched || request->skip;
    redis_link_append(&conn->command.link, request->count, request->arguments, request->lengths);
    request->sent = now;
    append(conn, request, SENT);
    conn->counts.requests++;
}

static void send_waiting(struct redis_conn *conn, clock_ms now)
{
    struct redis_request *request;
    bool any = false;
    while ((request = TAILQ_FIRST(&conn->waiting))) {
        send_request(conn, request, now);
        any = true;
    }
    if (any) {
        redis_link_flush(&conn->command.link);
    }
}

/* --- waiting again --- */

static void move(struct redis_conn *conn, struct redis_request *request, enum place place)
{
    leave(conn, request);
    append(conn, request, place);
}

static void move_all(struct redis_conn *conn, enum place from, enum place to)
{
    struct redis_request *request;
    while ((request = TAILQ_FIRST(list_of(conn, from)))) {
        move(conn, request, to);
    }
}

static void end_delays(struct redis_conn *conn, clock_ms now)
{
    struct redis_request *request = TAILQ_FIRST(&conn->delayed);
    if (!request || request->again_at > now) {
        return;
    }
    move_all(conn, WAITING, HELD); /* what waits is newer */
    while ((request = TAILQ_FIRST(&conn->delayed)) && request->again_at <= now) {
        move(conn, request, WAITING);
    }
    move_all(conn, HELD, WAITING);
}

void redis_conn_request_lost(struct redis_conn *conn)
{
    struct redis_request *sent, *delayed;
    move_all(conn, WAITING, HELD);
    while ((sent = TAILQ_FIRST(&conn->sent))) {
        delayed = TAILQ_FIRST(&conn->delayed);
        if (!sent->live) {
            leave(conn, sent);
            request_free(sent);
        } else if (delayed && delayed->id < sent->id) {
            move(conn, delayed, WAITING);
        } else {
            sent->repeated = true;
            move(conn, sent, WAITING);
        }
    }
    move_all(conn, DELAYED, WAITING);
    move_all(conn, HELD, WAITING);
}

void redis_conn_request_resume(struct redis_conn *conn)
{
    move_all(conn, WAITING, HELD);
    conn->events->up(conn->context);
    move_all(conn, HELD, WAITING);
    redis_conn_wake(conn);
}

/* --- replies --- */

/* Whether the server may say otherwise in a moment. */
static bool is_passing(const char *error)
{
    static const char *const codes[] = {"LOADING ",    "BUSY ",        "MASTERDOWN ", "TRYAGAIN ", "READONLY ",
                                        "NOREPLICAS ", "CLUSTERDOWN ", "MOVED ",      "ASK "};

    for (size_t i = 0; i < G_N_ELEMENTS(codes); i++) {
        if (g_str_has_prefix(error, codes[i])) {
            return true;
        }
    }
    return false;
}

static void note_refusal(struct redis_conn *conn, const char *why)
{
    clock_ms now = clock_now();
    if (!redis_conn_is_away(conn)) {
        conn->counts.refused = now;
    }
    conn->refused_at = now;
    log_escape(conn->error, sizeof(conn->error), why);
}

static void send_first(struct redis_conn *conn, struct redis_request *request)
{
    request->place = WAITING;
    TAILQ_INSERT_HEAD(&conn->waiting, request, place_link);
    redis_conn_wake(conn);
}

static void on_mended(void *arg, const struct redis_answer *answer)
{
    struct redis_conn *conn = arg;
    if (answer->outcome == REDIS_REPLY && answer->reply->type == REDIS_REPLY_ARRAY) {
        conn->events->mended(conn->context, answer->reply);
    }
}

/* The keys of a script are looked at before it is tried once more. */
static void mend(struct redis_conn *conn, struct redis_request *request)
{
    const struct redis_script *script = conn->options.mend;
    size_t keys = (size_t)g_ascii_strtoull(request->keys, NULL, 10);
    struct redis_argument *arguments = g_new(struct redis_argument, keys);
    for (size_t i = 0; i < keys; i++) {
        arguments[i] = (struct redis_argument){request->arguments[HEAD + i], request->lengths[HEAD + i]};
    }
    uint64_t id = redis_conn_call(conn, script, keys, arguments, keys, 0, on_mended, conn);
    g_free(arguments);
    request->mended = request->repeated = true;
    send_first(conn, request);
    request = g_hash_table_lookup(conn->requests, &id);
    leave(conn, request);
    send_first(conn, request);
}

/* Takes the reply and tries again, if that may help. */
static bool try_again(struct redis_conn *conn, struct redis_request *request, redisReply *reply)
{
    if (request->script && !request->whole && g_str_has_prefix(reply->str, "NOSCRIPT")) {
        request->whole = true;
        set_head(request, 0, "EVAL");
        set_head(request, 1, request->script->text);
        freeReplyObject(reply);
        send_first(conn, request);
        return true;
    }
    if (request->script && !request->mended && conn->options.mend && strstr(reply->str, "WRONGTYPE")) {
        freeReplyObject(reply);
        mend(conn, request);
        return true;
    }
    if (!is_passing(reply->str)) {
        return false;
    }
    if (request->refusal) {
        freeReplyObject(request->refusal);
    }
    request->refusal = reply;
    note_refusal(conn, reply->str);
    request->again_at = conn->refused_at + DELAY;
    append(conn, request, DELAYED);
    redis_conn_wake(conn);
    return true;
}

bool redis_conn_request_replied(struct redis_conn *conn, redisReply *reply, char *error)
{
    struct redis_request *request = TAILQ_FIRST(&conn->sent);
    bool refused = reply->type == REDIS_REPLY_ERROR, replica = refused && g_str_has_prefix(reply->str, "READONLY");
    if (!request) {
        g_strlcpy(error, refused ? reply->str : "a reply that nobody asked for", REDIS_ERROR_SIZE);
        freeReplyObject(reply);
        return false;
    }
    if (request->skip) {
        request->skip = false;
        freeReplyObject(reply);
        return true;
    }
    leave(conn, request);
    if (request->live && refused && try_again(conn, request, reply)) {
        if (replica) { /* the name may lead to its master soon */
            g_snprintf(error, REDIS_ERROR_SIZE, "the server is a replica: %s", request->refusal->str);
        }
        return !replica;
    }
    if (request->refusal) {
        conn->error[0] = '\0';
    }
    answer(conn, request, refused ? REDIS_ERROR : REDIS_REPLY, reply);
    request_free(request);
    freeReplyObject(reply);
    return true;
}

/* --- time --- */

static void give_up(struct redis_conn *conn, struct redis_request *request)
{
    if (request->place == SENT) {
        answer(conn, request, REDIS_UNKNOWN, NULL);
        return; /* its reply may still come, and is passed over */
    }
    leave(conn, request);
    if (request->repeated) {
        answer(conn, request, REDIS_UNKNOWN, NULL);
    } else if (request->refusal) {
        answer(conn, request, REDIS_ERROR, request->refusal);
    } else {
        answer(conn, request, REDIS_NOT_SENT, NULL);
    }
    request_free(request);
}

/* One whose time is up; when there is none, sets `expire_at`. */
static struct redis_request *find_expired(struct redis_conn *conn, clock_ms now)
{
    struct redis_request *request;
    clock_ms next = CLOCK_NEVER;
    TAILQ_FOREACH(request, &conn->live, live_link) {
        if (request->deadline <= now) {
            return request;
        }
        next = MIN(next, request->deadline);
    }
    conn->expire_at = next;
    return NULL;
}

void redis_conn_request_work(struct redis_conn *conn, clock_ms now)
{
    struct redis_request *request;
    while (conn->expire_at <= now && (request = find_expired(conn, now))) {
        give_up(conn, request);
    }
    end_delays(conn, now);
    if (conn->state == REDIS_CONN_UP) {
        send_waiting(conn, clock_now());
    }
}

clock_ms redis_conn_request_due(const struct redis_conn *conn)
{
    const struct redis_request *delayed = TAILQ_FIRST(&conn->delayed);
    return delayed ? MIN(conn->expire_at, delayed->again_at) : conn->expire_at;
}

clock_ms redis_conn_request_oldest(const struct redis_conn *conn)
{
    const struct redis_request *oldest = TAILQ_FIRST(&conn->sent);
    return oldest ? oldest->sent : CLOCK_NEVER;
}

/* --- beginning and end --- */

void redis_conn_request_init(struct redis_conn *conn)
{
    conn->requests = g_hash_table_new(g_int64_hash, g_int64_equal);
    TAILQ_INIT(&conn->live);
    TAILQ_INIT(&conn->waiting);
    TAILQ_INIT(&conn->held);
    TAILQ_INIT(&conn->sent);
    TAILQ_INIT(&conn->delayed);
    conn->expire_at = CLOCK_NEVER;
}

void redis_conn_request_free(struct redis_conn *conn)
{
    static const enum place places[] = {WAITING, HELD, SENT, DELAYED};
    struct redis_request *request;
    for (size_t i = 0; i < G_N_ELEMENTS(places); i++) {
        while ((request = TAILQ_FIRST(list_of(conn, places[i])))) {
            leave(conn, request);
            request_free(request);
        }
    }
    g_hash_table_unref(conn->requests);
}
