/* request: requests, from the call to the answer.
 *
 * A request is in `requests` and `live` until its callback was called or it was
 * forgotten, and on one of the lists waiting, held, sent, unconfirmed and delayed until it needs no
 * reply any more.  Replies come in the order of `sent`, so what was forgotten
 * stays there, to be passed over.
 *
 * WAIT holds up what is behind it on its connection, so it goes behind all that leave in one turn, and what comes
 * meanwhile leaves with the next.  It speaks of the last write of its own connection (client.woff; until Redis 7.2 of
 * all that was written before the last command), and a script that has nothing to change writes nothing: a claim
 * that is repeated, a version that another mount has set.  So a write of its own goes before it, behind which all
 * others are.
 */
#include <string.h>

#include "backend/log.h"
#include "backend/redis/conn/private.h"

#define DELAY 50 /* before a request is tried again that was refused for the time being */

#define HEAD 3 /* EVALSHA, hash, number of keys */

enum place { WAITING, HELD, SENT, UNCONFIRMED, DELAYED };

struct redis_request {
    TAILQ_ENTRY(redis_request) place_link;
    TAILQ_ENTRY(redis_request) live_link;
    enum place place; /* the list it is on */
    bool live;
    bool watch;    /* asked with CLIENT CACHING YES before it */
    bool skip;     /* the reply to that is still to come */
    bool whole;    /* sends the script's text: the server has lost it */
    bool once;     /* an error is its answer, not tried again */
    bool repeated; /* a try before the present one may have been carried out */
    bool is_mark;  /* the write before WAIT; like WAIT it has no callback, and is not live */
    bool is_wait;  /* WAIT */
    uint64_t id;
    redis_answered *answered;
    void *arg;
    const struct redis_script *script; /* NULL: a plain command */
    redisReply *refusal;               /* the last one, while it is tried again */
    redisReply *reply;                 /* while it is unconfirmed */
    clock_ms deadline;
    clock_ms sent;
    clock_ms again_at; /* while delayed */
    char keys[24];     /* the number of keys, in digits */
    int count;
    const char **arguments; /* behind the structure, with their lengths and bytes */
    size_t *lengths;
};

static struct redis_requests *request_list_of(struct redis_conn *conn, enum place place)
{
    switch (place) {
    case HELD:
        return &conn->held;
    case SENT:
        return &conn->sent;
    case UNCONFIRMED:
        return &conn->unconfirmed;
    case DELAYED:
        return &conn->delayed;
    default:
        return &conn->waiting;
    }
}

static void request_leave(struct redis_conn *conn, struct redis_request *request)
{
    TAILQ_REMOVE(request_list_of(conn, request->place), request, place_link);
}

static void request_append(struct redis_conn *conn, struct redis_request *request, enum place place)
{
    request->place = place;
    TAILQ_INSERT_TAIL(request_list_of(conn, place), request, place_link);
}

static void request_free(struct redis_request *request)
{
    if (request->refusal) {
        freeReplyObject(request->refusal);
    }
    if (request->reply) {
        freeReplyObject(request->reply);
    }
    g_free(request);
}

/* Its callback is not called (again). */
static void request_retire(struct redis_conn *conn, struct redis_request *request)
{
    request->live = false;
    TAILQ_REMOVE(&conn->live, request, live_link);
    g_hash_table_remove(conn->requests, &request->id);
}

/* Answers a request that is on no list any more, or was sent and stays. */
static void request_answer(struct redis_conn *conn, struct redis_request *request, enum remote_outcome outcome,
                           const redisReply *reply)
{
    const struct redis_answer given = {
        .outcome = outcome,
        .reply = reply,
        .keys = request->arguments + HEAD,
        .key_lengths = request->lengths + HEAD,
        .key_count = request->script ? (size_t)g_ascii_strtoull(request->keys, NULL, 10) : 0,
        .sent = request->sent,
        .repeated = request->repeated,
    };
    if (!request->live) {
        return;
    }
    request_retire(conn, request);
    if (request->answered) {
        request->answered(request->arg, &given);
    }
}

/* --- asking --- */

/* `before` and `behind`: for how many further arguments it leaves room. */
static struct redis_request *request_new(struct redis_conn *conn, size_t head, const struct redis_argument *arguments,
                                         size_t count, size_t tail, int64_t timeout)
{
    size_t total = head + count + tail, bytes = 0;
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

static uint64_t request_ask(struct redis_conn *conn, struct redis_request *request, redis_answered *answered, void *arg)
{
    request->answered = answered;
    request->arg = arg;
    request->live = true;
    TAILQ_INSERT_TAIL(&conn->live, request, live_link);
    g_hash_table_insert(conn->requests, &request->id, request);
    request_append(conn, request, WAITING);
    conn->expire_at = MIN(conn->expire_at, request->deadline);
    redis_conn_wake(conn);
    return request->id;
}

static void request_set(struct redis_request *request, int i, const char *text)
{
    request->arguments[i] = text;
    request->lengths[i] = strlen(text);
}

uint64_t redis_conn_call(struct redis_conn *conn, const struct redis_script *script, size_t keys,
                         const struct redis_argument *arguments, size_t count, int64_t timeout,
                         redis_answered *answered, void *arg)
{
    struct redis_request *request = request_new(conn, HEAD, arguments, count, 1, timeout);
    request->script = script;
    g_snprintf(request->keys, sizeof(request->keys), "%zu", keys);
    request_set(request, 0, "EVALSHA");
    request_set(request, 1, conn->hashes[script - conn->scripts]);
    request_set(request, 2, request->keys);
    return request_ask(conn, request, answered, arg);
}

uint64_t redis_conn_command(struct redis_conn *conn, const struct redis_argument *arguments, size_t count,
                            int64_t timeout, redis_answered *answered, void *arg)
{
    return request_ask(conn, request_new(conn, 0, arguments, count, 0, timeout), answered, arg);
}

uint64_t redis_conn_try(struct redis_conn *conn, const struct redis_argument *arguments, size_t count, int64_t timeout,
                        redis_answered *answered, void *arg)
{
    struct redis_request *request = request_new(conn, 0, arguments, count, 0, timeout);
    request->once = true;
    return request_ask(conn, request, answered, arg);
}

uint64_t redis_conn_watch(struct redis_conn *conn, const char *key, size_t length, const char *member,
                          redis_answered *answered, void *arg)
{
    const struct redis_argument arguments[] = {
        {member ? "ZSCORE" : "EXISTS", 6}, {key, length}, {member, member ? strlen(member) : 0}};
    struct redis_request *request = request_new(conn, 0, arguments, member ? 3 : 2, 0, 0);
    request->watch = true;
    return request_ask(conn, request, answered, arg);
}

void redis_conn_stamp(struct redis_conn *conn, const char *stamp)
{
    g_strlcpy(conn->stamp, stamp, sizeof conn->stamp);
}

bool redis_conn_forget(struct redis_conn *conn, uint64_t id)
{
    struct redis_request *request = g_hash_table_lookup(conn->requests, &id);
    if (!request) {
        return false;
    }
    request_retire(conn, request);
    if (request->place == SENT) {
        return false;
    }
    bool never_sent = request->place != UNCONFIRMED && !request->repeated;
    request_leave(conn, request);
    request_free(request);
    return never_sent;
}

/* --- sending --- */

static void request_send(struct redis_conn *conn, struct redis_request *request, clock_ms now)
{
    static const char *caching[] = {"CLIENT", "CACHING", "YES"};
    static const size_t caching_lengths[] = {6, 7, 3};
    request_leave(conn, request);
    request->skip = request->watch && conn->tracking;
    if (request->skip) {
        redis_link_append(&conn->command.link, 3, caching, caching_lengths);
    }
    conn->watched = conn->watched || request->skip;
    if (request->script) {
        request_set(request, request->count - 1, conn->stamp);
    }
    redis_link_append(&conn->command.link, request->count, request->arguments, request->lengths);
    request->sent = now;
    request_append(conn, request, SENT);
    conn->counts.requests++;
}

static bool request_needs_confirmation(const struct redis_conn *conn, const struct redis_request *request)
{
    return conn->options.wait > 0 && request->script && request->script->confirmed;
}

/* Writes something that leaves nothing behind.  A server that is full permits it, too: there a script may write
 * anything after a DEL. */
static void request_send_mark(struct redis_conn *conn, clock_ms now)
{
    static const char text[] = "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], '') redis.call('DEL', KEYS[1])";
    const char *key = conn->options.mark;
    const struct redis_argument words[] = {{"EVAL", 4}, {text, sizeof text - 1}, {"1", 1}, {key, strlen(key)}};
    struct redis_request *request = request_new(conn, 0, words, G_N_ELEMENTS(words), 0, 0);
    request->is_mark = true;
    request_append(conn, request, WAITING);
    request_send(conn, request, now);
    conn->marked = false;
}

/* Sends WAIT, which asks whether the replicas have all earlier requests. */
static void request_send_wait(struct redis_conn *conn, clock_ms now)
{
    char replicas[16], time[24];
    g_snprintf(replicas, sizeof replicas, "%u", conn->options.wait);
    g_snprintf(time, sizeof time, "%lld", (long long)MAX(conn->options.command_timeout / 2, 1));
    const struct redis_argument words[] = {{"WAIT", 4}, {replicas, strlen(replicas)}, {time, strlen(time)}};
    struct redis_request *request = request_new(conn, 0, words, G_N_ELEMENTS(words), 0, 0);
    request->is_wait = true;
    request_append(conn, request, WAITING);
    request_send(conn, request, now);
    conn->confirming = true;
    conn->counts.waits++;
}

static void request_send_waiting(struct redis_conn *conn, clock_ms now)
{
    struct redis_request *request;
    bool any = false, confirms = false;
    while ((request = TAILQ_FIRST(&conn->waiting))) {
        confirms = confirms || request_needs_confirmation(conn, request);
        request_send(conn, request, now);
        any = true;
    }
    if (confirms) {
        request_send_mark(conn, now);
        request_send_wait(conn, now);
    }
    if (any) {
        redis_link_flush(&conn->command.link);
    }
}

/* --- waiting again --- */

static void request_move(struct redis_conn *conn, struct redis_request *request, enum place place)
{
    request_leave(conn, request);
    request_append(conn, request, place);
}

static void request_move_all(struct redis_conn *conn, enum place from, enum place to)
{
    struct redis_request *request;
    while ((request = TAILQ_FIRST(request_list_of(conn, from)))) {
        request_move(conn, request, to);
    }
}

static void request_end_delays(struct redis_conn *conn, clock_ms now)
{
    struct redis_request *request = TAILQ_FIRST(&conn->delayed);
    if (!request || request->again_at > now) {
        return;
    }
    request_move_all(conn, WAITING, HELD); /* what waits is newer */
    while ((request = TAILQ_FIRST(&conn->delayed)) && request->again_at <= now) {
        request_move(conn, request, WAITING);
    }
    request_move_all(conn, HELD, WAITING);
}

void redis_conn_request_lost(struct redis_conn *conn)
{
    struct redis_request *sent, *delayed;
    conn->confirming = false;
    while ((sent = TAILQ_LAST(&conn->unconfirmed, redis_requests))) { /* they were sent before the others */
        g_clear_pointer(&sent->reply, freeReplyObject);
        request_leave(conn, sent);
        sent->place = SENT;
        TAILQ_INSERT_HEAD(&conn->sent, sent, place_link);
    }
    request_move_all(conn, WAITING, HELD);
    while ((sent = TAILQ_FIRST(&conn->sent))) {
        delayed = TAILQ_FIRST(&conn->delayed);
        if (!sent->live) {
            request_leave(conn, sent);
            request_free(sent);
        } else if (delayed && delayed->id < sent->id) {
            request_move(conn, delayed, WAITING);
        } else {
            sent->repeated = true;
            request_move(conn, sent, WAITING);
        }
    }
    request_move_all(conn, DELAYED, WAITING);
    request_move_all(conn, HELD, WAITING);
}

void redis_conn_request_resume(struct redis_conn *conn)
{
    request_move_all(conn, WAITING, HELD);
    conn->events->up(conn->context);
    request_move_all(conn, HELD, WAITING);
    redis_conn_wake(conn);
}

/* --- replies --- */

/* May the server answer otherwise in a moment?  A client that ends a script that is slow (SCRIPT KILL) may meet ours,
 * which has written nothing then. */
static bool request_is_passing(const char *error)
{
    static const char *const codes[] = {"LOADING ",    "BUSY ",        "MASTERDOWN ", "TRYAGAIN ", "READONLY ",
                                        "NOREPLICAS ", "CLUSTERDOWN ", "MOVED ",      "ASK ",      "VERSION "};

    for (size_t i = 0; i < G_N_ELEMENTS(codes); i++) {
        if (g_str_has_prefix(error, codes[i])) {
            return true;
        }
    }
    return strstr(error, "Script killed by user") != NULL;
}

/* Has another server the data, or will it soon; or has this one a new epoch?
 * Not ASK: while a slot is moved no server runs what names several keys, unless it has all of them. */
static bool request_is_elsewhere(const char *error)
{
    return g_str_has_prefix(error, "READONLY ") || g_str_has_prefix(error, "MOVED ") ||
           g_str_has_prefix(error, "VERSION ");
}

static void request_note_refusal(struct redis_conn *conn, const char *why)
{
    clock_ms now = clock_now();
    if (!redis_conn_is_away(conn)) {
        conn->counts.refused = now;
    }
    conn->refused_at = now;
    log_escape(conn->error, sizeof(conn->error), why);
}

static void request_send_first(struct redis_conn *conn, struct redis_request *request)
{
    request->place = WAITING;
    TAILQ_INSERT_HEAD(&conn->waiting, request, place_link);
    redis_conn_wake(conn);
}

/* Takes the reply and tries again, if that may help. */
static bool request_try_again(struct redis_conn *conn, struct redis_request *request, redisReply *reply)
{
    if (request->script && !request->whole && g_str_has_prefix(reply->str, "NOSCRIPT")) {
        request->whole = true;
        request_set(request, 0, "EVAL");
        request_set(request, 1, request->script->text);
        freeReplyObject(reply);
        request_send_first(conn, request);
        return true;
    }
    if (request->once || !request_is_passing(reply->str)) {
        return false;
    }
    if (request->refusal) {
        freeReplyObject(request->refusal);
    }
    request->refusal = reply;
    request_note_refusal(conn, reply->str);
    request->again_at = conn->refused_at + DELAY;
    request_append(conn, request, DELAYED);
    redis_conn_wake(conn);
    return true;
}

static void request_note_shortfall(struct redis_conn *conn, const redisReply *reply)
{
    char why[REDIS_ERROR_SIZE];
    if (!conn->marked) {
        g_strlcpy(why, "nothing can be written that replicas could be asked about", sizeof why);
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        g_snprintf(why, sizeof why, "%lld replicas have what was written, but wait=%u asks for more", reply->integer,
                   conn->options.wait);
    } else {
        g_snprintf(why, sizeof why, "WAIT: %s", reply->type == REDIS_REPLY_ERROR ? reply->str : "no number");
    }
    request_note_refusal(conn, why);
    conn->counts.shortfalls++;
    if (!conn->short_of_replicas) {
        log_warning("%s: %s: nothing is granted until they have", conn->where, conn->error);
    }
    conn->short_of_replicas = true;
}

/* The answer to WAIT: reports those before it. */
static void request_waited(struct redis_conn *conn, const redisReply *reply)
{
    struct redis_request *request;
    bool met = conn->marked && reply->type == REDIS_REPLY_INTEGER && reply->integer >= conn->options.wait;
    if (!met) {
        request_note_shortfall(conn, reply);
    } else if (conn->short_of_replicas) {
        conn->short_of_replicas = false;
        conn->error[0] = '\0';
        log_info("%s: the replicas have what is written again", conn->where);
    }
    conn->confirming = false;
    while ((request = TAILQ_FIRST(&conn->unconfirmed))) {
        request_leave(conn, request);
        request_answer(conn, request, met ? REMOTE_ANSWERED : REMOTE_UNKNOWN, met ? request->reply : NULL);
        request_free(request);
    }
    redis_conn_wake(conn);
}

bool redis_conn_request_replied(struct redis_conn *conn, redisReply *reply, char *error)
{
    struct redis_request *request = TAILQ_FIRST(&conn->sent);
    bool refused = reply->type == REDIS_REPLY_ERROR;
    bool elsewhere = refused && request_is_elsewhere(reply->str);
    if (!request) {
        g_strlcpy(error, refused ? reply->str : "a reply that nobody asked for", REDIS_ERROR_SIZE);
        freeReplyObject(reply);
        return false;
    }
    if (request->skip) {
        request->skip = false;
        conn->tracking = conn->tracking && !refused; /* CLIENT CACHING is not permitted */
        freeReplyObject(reply);
        return true;
    }
    request_leave(conn, request);
    if (request->is_mark) {
        conn->marked = !refused;
        request_free(request);
        freeReplyObject(reply);
        return true;
    }
    if (request->is_wait) {
        request_free(request);
        request_waited(conn, reply);
        freeReplyObject(reply);
        return true;
    }
    if (request->live && refused && request_try_again(conn, request, reply)) {
        if (elsewhere) {
            g_strlcpy(error, request->refusal->str, REDIS_ERROR_SIZE);
        }
        return !elsewhere;
    }
    if (request->refusal) {
        conn->error[0] = '\0';
    }
    if (request->live && !refused && request_needs_confirmation(conn, request)) {
        request->reply = reply;
        request_append(conn, request, UNCONFIRMED);
        return true;
    }
    request_answer(conn, request, refused ? REMOTE_REFUSED : REMOTE_ANSWERED, reply);
    request_free(request);
    freeReplyObject(reply);
    return true;
}

/* --- time --- */

static void request_abandon(struct redis_conn *conn, struct redis_request *request)
{
    if (request->place == SENT) {
        request_answer(conn, request, REMOTE_UNKNOWN, NULL);
        return; /* its reply may still come, and is passed over */
    }
    request_leave(conn, request);
    if (request->repeated || request->place == UNCONFIRMED) {
        request_answer(conn, request, REMOTE_UNKNOWN, NULL);
    } else if (request->refusal) {
        request_answer(conn, request, REMOTE_REFUSED, request->refusal);
    } else {
        request_answer(conn, request, REMOTE_NOT_SENT, NULL);
    }
    request_free(request);
}

/* A request whose time is up; if there is none, sets `expire_at`. */
static struct redis_request *request_find_expired(struct redis_conn *conn, clock_ms now)
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
    while (conn->expire_at <= now && (request = request_find_expired(conn, now))) {
        request_abandon(conn, request);
    }
    request_end_delays(conn, now);
    if (conn->state == REDIS_CONN_UP && !conn->confirming) {
        request_send_waiting(conn, clock_now());
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
    TAILQ_INIT(&conn->unconfirmed);
    TAILQ_INIT(&conn->delayed);
    conn->expire_at = CLOCK_NEVER;
}

void redis_conn_request_free(struct redis_conn *conn)
{
    static const enum place places[] = {WAITING, HELD, SENT, UNCONFIRMED, DELAYED};
    struct redis_request *request;
    for (size_t i = 0; i < G_N_ELEMENTS(places); i++) {
        while ((request = TAILQ_FIRST(request_list_of(conn, places[i])))) {
            request_leave(conn, request);
            request_free(request);
        }
    }
    g_hash_table_unref(conn->requests);
}
