/* fuzz_replies: the input selects the requests of a mount of Redis, and the changes to the answers.
 *
 * It replaces backend/redis/conn by one on which the simulator's server answers, with the real scripts.  Then it
 * changes replies and messages: another word, number or id, other bytes, another length, or the reply to another
 * request.  Each request is answered once, and everything that the mount reports is within its bounds.
 */
#include <ev.h>
#include <glib.h>
#include <stdio.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/conn/link.h"
#include "backend/redis/redis.h"
#include "tests/fuzz/fuzz.h"
#include "tests/sim/redis_model.h"

enum { TICKETS = 12, SEEN = 32, ROUNDS = 64 };

struct redis_request {
    uint64_t id;
    GByteArray *command; /* as it is sent */
    char *key;
    size_t key_length;
    redis_answered *answered;
    void *arg;
    bool forgotten;
};

struct redis_conn {
    const struct redis_conn_events *events;
    void *context;
    const struct redis_script *greet;
    char stamp[REDIS_STAMP_MAX + 1];
    GQueue requests;
    uint64_t ids;
};

static struct fuzz_bytes *input;
static struct ev_loop *loop;
static ev_idle not_blocking;
static ev_prepare answering;
static struct redis_model *model;
static struct redis_client *client, *listener;
static struct redis_conn *conn;
static GPtrArray *seen; /* GBytes: strings of replies */
static clock_ms now;
static unsigned calls; /* that are not answered */

/* In place of backend/clock.c. */
clock_ms clock_now(void)
{
    return now;
}

int64_t clock_wall(void)
{
    return 1700000000000 + now;
}

static int64_t read_now(void *arg)
{
    (void)arg;
    return now * 1000;
}

static uint32_t pick(uint32_t below)
{
    return fuzz_below(input, below);
}

#define PICK(array) (array)[pick(G_N_ELEMENTS(array))]

/* --- in place of backend/redis/conn ------------------------------------------------------- */

struct redis_conn *redis_conn_new(const struct redis_conn_options *options, const struct redis_script *scripts,
                                  size_t script_count)
{
    (void)scripts, (void)script_count;
    conn = g_new0(struct redis_conn, 1);
    conn->greet = options->greet;
    g_queue_init(&conn->requests);
    char *command =
        g_strdup_printf("*2\r\n$9\r\nSUBSCRIBE\r\n$%zu\r\n%s\r\n", strlen(options->channel), options->channel);
    redis_client_send(listener, command, strlen(command));
    char rest[256];
    redis_client_receive(listener, rest, sizeof rest);
    g_free(command);
    return conn;
}

void redis_conn_start(struct redis_conn *c, struct ev_loop *on, const struct redis_conn_events *events, void *context)
{
    (void)on;
    c->events = events;
    c->context = context;
}

static void request_free(gpointer data)
{
    struct redis_request *request = data;
    g_byte_array_unref(request->command);
    g_free(request->key);
    g_free(request);
}

void redis_conn_free(struct redis_conn *c)
{
    g_queue_clear_full(&c->requests, request_free);
    g_free(c);
    conn = NULL;
}

void redis_conn_keep(struct redis_conn *c, int more)
{
    (void)c, (void)more;
}

bool redis_conn_is_up(const struct redis_conn *c)
{
    (void)c;
    return true;
}

const char *redis_conn_error(const struct redis_conn *c)
{
    (void)c;
    return "";
}

const char *redis_conn_place(const struct redis_conn *c)
{
    (void)c;
    return NULL;
}

struct redis_conn_counts redis_conn_counts(const struct redis_conn *c)
{
    (void)c;
    return (struct redis_conn_counts){.since = 1};
}

static void add_word(GByteArray *command, const char *data, size_t length)
{
    char head[32];
    int size = g_snprintf(head, sizeof head, "$%zu\r\n", length);
    g_byte_array_append(command, (const guint8 *)head, (guint)size);
    g_byte_array_append(command, (const guint8 *)data, (guint)length);
    g_byte_array_append(command, (const guint8 *)"\r\n", 2);
}

static struct redis_request *new_request(size_t words, redis_answered *answered, void *arg)
{
    struct redis_request *request = g_new0(struct redis_request, 1);
    char head[32];
    int size = g_snprintf(head, sizeof head, "*%zu\r\n", words);
    *request =
        (struct redis_request){.id = ++conn->ids, .command = g_byte_array_new(), .answered = answered, .arg = arg};
    g_byte_array_append(request->command, (const guint8 *)head, (guint)size);
    g_queue_push_tail(&conn->requests, request);
    return request;
}

uint64_t redis_conn_call(struct redis_conn *c, const struct redis_script *script, size_t keys,
                         const struct redis_argument *arguments, size_t count, int64_t timeout,
                         redis_answered *answered, void *arg)
{
    struct redis_request *request = new_request(count + 4, answered, arg);
    char number[24];
    (void)timeout;
    add_word(request->command, "EVAL", 4);
    add_word(request->command, script->text, strlen(script->text));
    g_snprintf(number, sizeof number, "%zu", keys);
    add_word(request->command, number, strlen(number));
    for (size_t i = 0; i < count; i++) {
        add_word(request->command, arguments[i].data, arguments[i].length);
    }
    add_word(request->command, c->stamp, strlen(c->stamp));
    if (keys > 0) {
        request->key_length = arguments[0].length;
        request->key = g_strndup(arguments[0].data, arguments[0].length);
    }
    return request->id;
}

void redis_conn_stamp(struct redis_conn *c, const char *stamp)
{
    g_strlcpy(c->stamp, stamp, sizeof c->stamp);
}

uint64_t redis_conn_command(struct redis_conn *c, const struct redis_argument *arguments, size_t count, int64_t timeout,
                            redis_answered *answered, void *arg)
{
    struct redis_request *request = new_request(count, answered, arg);
    (void)c, (void)timeout;
    for (size_t i = 0; i < count; i++) {
        add_word(request->command, arguments[i].data, arguments[i].length);
    }
    return request->id;
}

uint64_t redis_conn_watch(struct redis_conn *c, const char *key, size_t length, const char *member,
                          redis_answered *answered, void *arg)
{
    const struct redis_argument arguments[] = {
        {member ? "ZSCORE" : "EXISTS", 6}, {key, length}, {member, member ? strlen(member) : 0}};
    return redis_conn_command(c, arguments, member ? 3 : 2, 0, answered, arg);
}

bool redis_conn_forget(struct redis_conn *c, uint64_t id)
{
    for (GList *at = c->requests.head; at; at = at->next) {
        struct redis_request *request = at->data;
        if (request->id == id) {
            request->forgotten = true;
        }
    }
    return false;
}

/* --- what is changed of a reply ------------------------------------------------------------ */

static const char *const words[] = {"granted",   "queued",       "busy",    "ok",      "stale",
                                    "missing",   "exists",       "lock",    "nothing", "free",
                                    "directory", "notdirectory", "invalid", "",        "gone"};
static const char *const numbers[] = {"0",
                                      "1",
                                      "-1",
                                      "-2",
                                      "77",
                                      "65536",
                                      "4294967295",
                                      "4294967296",
                                      "9007199254740993",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "18446744073709551615",
                                      "1e300",
                                      "nan",
                                      "0000000000000005",
                                      "ffffffffffffffff 0000000000000000 0 5",
                                      "a",
                                      "a/b",
                                      "..",
                                      "x y z"};

static void remember(const char *data, gsize length)
{
    if (length == 0 || length > 4096) {
        return;
    }
    if (seen->len < SEEN) {
        g_ptr_array_add(seen, NULL);
    }
    guint at = (guint)length % seen->len;
    if (seen->pdata[at]) {
        g_bytes_unref(seen->pdata[at]);
    }
    seen->pdata[at] = g_bytes_new(data, length);
}

static gsize line_end(const GString *reply, gsize from)
{
    const char *end = memmem(reply->str + from, reply->len - from, "\r\n", 2);
    return end ? (gsize)(end - reply->str) + 2 : reply->len;
}

/* Where the nth value begins: an index less than the length, or that. */
static gsize find_value(const GString *reply, uint32_t nth)
{
    gsize at = 0;
    while (at < reply->len && nth-- > 0) {
        gsize next = line_end(reply, at);
        if (reply->str[at] == '$' && reply->str[at + 1] != '-') {
            gint64 length = g_ascii_strtoll(reply->str + at + 1, NULL, 10);
            remember(reply->str + next, (gsize)MIN((guint64)length, reply->len - MIN(next, reply->len)));
            next += (gsize)length + 2;
        }
        at = next;
    }
    return at;
}

static void replace_string(GString *reply, gsize at, const char *data, gsize length)
{
    gsize body = line_end(reply, at);
    gint64 old = g_ascii_strtoll(reply->str + at + 1, NULL, 10);
    gsize end = MIN(body + (gsize)MAX(old, 0) + 2, reply->len);
    char *head = g_strdup_printf("$%zu\r\n", length);
    g_string_erase(reply, (gssize)at, (gssize)(end - at));
    g_string_insert_len(reply, (gssize)at, "\r\n", 2);
    g_string_insert_len(reply, (gssize)at, data, (gssize)length);
    g_string_insert(reply, (gssize)at, head);
    g_free(head);
}

static void change_value(GString *reply)
{
    gsize at = find_value(reply, pick(32));
    if (at >= reply->len) {
        return;
    }
    const char *text = pick(2) ? PICK(numbers) : PICK(words);
    GBytes *other = seen->len ? seen->pdata[pick(seen->len)] : NULL;
    uint32_t how = pick(6);
    if (reply->str[at] == '$' && how < 2 && other) {
        gsize length;
        const char *data = g_bytes_get_data(other, &length);
        char *copy = g_memdup2(data, length);
        replace_string(reply, at, copy, length);
        g_free(copy);
    } else if (reply->str[at] == '$' && how < 5) {
        replace_string(reply, at, text, strlen(text));
    } else {
        gsize end = line_end(reply, at);
        g_string_erase(reply, (gssize)at + 1, (gssize)(end - at - 1));
        g_string_insert(reply, (gssize)at + 1, "\r\n");
        g_string_insert(reply, (gssize)at + 1, PICK(numbers));
        reply->str[at] = "*$:+-"[pick(5)];
    }
}

static void change_bytes(GString *reply)
{
    gsize at = reply->len ? pick(4096) % reply->len : 0;
    if (reply->len == 0 || pick(2)) {
        char bytes[8];
        uint32_t count = pick(sizeof bytes);
        for (uint32_t i = 0; i < count; i++) {
            bytes[i] = (char)fuzz_byte(input);
        }
        g_string_overwrite_len(reply, at, bytes, (gssize)count);
    } else {
        g_string_truncate(reply, at);
    }
}

static void change(GString *reply)
{
    uint32_t how = pick(8);
    if (how == 6) {
        change_bytes(reply);
    } else if (how == 7) {
        change_value(reply);
        change_value(reply);
    } else if (how > 3) {
        change_value(reply);
    }
}

/* --- answers -------------------------------------------------------------------------------- */

static GString *take(struct redis_client *from)
{
    GString *bytes = g_string_new(NULL);
    g_string_set_size(bytes, redis_client_pending(from));
    redis_client_receive(from, bytes->str, bytes->len);
    return bytes;
}

/* As a link of the backend reads it; NULL: there is no reply that is complete, and none too large. */
static redisReply *parse(const GString *bytes)
{
    redisContext context = {.reader = redisReaderCreate()};
    struct redis_cap cap;
    void *reply = NULL;
    redis_cap(&cap, &context);
    redisReaderFeed(context.reader, bytes->str, bytes->len);
    if (redisReaderGetReply(context.reader, &reply) != REDIS_OK || redis_cap_exceeded(&cap, &context)) {
        g_clear_pointer(&reply, freeReplyObject);
    }
    redisReaderFree(context.reader);
    return reply;
}

/* Its answer is the server's own: a mount that does not come up asks nothing. */
void redis_conn_greet(struct redis_conn *c, size_t keys, const struct redis_argument *arguments, size_t count)
{
    redis_conn_call(c, c->greet, keys, arguments, count, 0, NULL, NULL);
    struct redis_request *request = g_queue_pop_tail(&c->requests);
    redis_client_send(client, request->command->data, request->command->len);
    GString *bytes = take(client);
    redisReply *reply = parse(bytes);
    FUZZ_MUST(reply && c->events->greeted(c->context, reply));
    freeReplyObject(reply);
    g_string_free(bytes, TRUE);
    request_free(request);
}

static void come_up(void)
{
    conn->events->greet(conn->context);
    conn->events->up(conn->context);
}

static void answer(struct redis_request *request)
{
    redis_client_send(client, request->command->data, request->command->len);
    GString *bytes = take(client);
    change(bytes);
    redisReply *reply = pick(16) ? parse(bytes) : NULL;
    struct redis_answer answer = {.outcome = !reply                             ? REMOTE_UNKNOWN
                                             : reply->type == REDIS_REPLY_ERROR ? REMOTE_REFUSED
                                                                                : REMOTE_ANSWERED,
                                  .reply = reply,
                                  .keys = (const char **)&request->key,
                                  .key_lengths = &request->key_length,
                                  .key_count = request->key != NULL,
                                  .sent = now,
                                  .repeated = pick(8) == 7};
    if (request->answered && !request->forgotten) {
        request->answered(request->arg, &answer);
    }
    bool forgotten = reply && reply->type == REDIS_REPLY_ERROR && g_str_has_prefix(reply->str, "VERSION");
    if (reply) {
        freeReplyObject(reply);
    }
    g_string_free(bytes, TRUE);
    request_free(request);
    if (forgotten) {
        come_up();
    }
}

static void on_idle(struct ev_loop *of, ev_idle *watcher, int revents)
{
    (void)of, (void)watcher, (void)revents;
}

static void on_prepare(struct ev_loop *of, ev_prepare *watcher, int revents)
{
    struct redis_request *request = g_queue_pop_head(&conn->requests);
    (void)of, (void)watcher, (void)revents;
    if (request) {
        answer(request);
    }
}

static void tell_messages(void)
{
    GString *bytes = take(listener);
    change(bytes);
    redisReply *reply = parse(bytes);
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
        reply->element[2]->type == REDIS_REPLY_STRING) {
        conn->events->message(conn->context, reply->element[2]->str, (size_t)reply->element[2]->len);
    }
    if (reply) {
        freeReplyObject(reply);
    }
    g_string_free(bytes, TRUE);
}

/* --- what a mount is asked ------------------------------------------------------------------- */

struct ticket {
    struct backend_ticket *ticket; /* NULL: ended */
    bool used, answered;
};

static struct ticket tickets[TICKETS];
static const char *const names[] = {"a", "b", "d/a", "d/b", "e", "{t}x"};
static struct ticket ranges[G_N_ELEMENTS(names)][4]; /* by name and lock owner, what that holds */

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *of,
                        const struct backend_info *holder)
{
    struct ticket *t = arg;
    (void)of, (void)holder;
    FUZZ_MUST(!t->answered);
    t->answered = true;
    calls--;
    if (result != BACKEND_OK && result != BACKEND_QUEUED) {
        t->ticket = NULL;
    } else if (result == BACKEND_OK && of->kind == BACKEND_FCNTL) {
        ((struct ticket *)of->user)->ticket = of;
    }
}

static void on_done(void *arg, enum backend_result result)
{
    (void)arg, (void)result;
    calls--;
}

static void on_known(void *arg, enum backend_result result, const struct backend_info *info)
{
    (void)arg;
    calls--;
    if (result == BACKEND_OK) {
        FUZZ_MUST(info->deadline == CLOCK_NEVER || info->deadline <= now + INT64_C(316000000000));
        FUZZ_MUST(!info->content || g_bytes_get_size(info->content) <= 65536);
        FUZZ_MUST(info->kind <= BACKEND_FCNTL);
    }
}

static void on_listed(void *arg, enum backend_result result, const struct backend_entry *entries, size_t count)
{
    (void)arg, (void)result;
    calls--;
    for (size_t i = 0; i < count; i++) {
        FUZZ_MUST(*entries[i].name && !strchr(entries[i].name, '/') && strlen(entries[i].name) <= 255);
    }
}

static void on_ended(void *context, struct backend_ticket *of, enum backend_end why)
{
    struct ticket *t = of->user;
    (void)context, (void)why;
    if (t && (of->kind != BACKEND_FCNTL || t->ticket == of)) {
        FUZZ_MUST(t->ticket == of);
        t->ticket = NULL;
    }
}

static void on_granted(void *context, struct backend_ticket *of)
{
    (void)context;
    if (of->kind == BACKEND_FCNTL) {
        ((struct ticket *)of->user)->ticket = of;
    }
}

static void on_event(void *context, struct backend_ticket *of)
{
    (void)context, (void)of;
}

static bool on_recovered(void *arg, const char *name, struct backend_ticket *of, GBytes *meta, GBytes *content)
{
    (void)arg;
    if (!name) { /* that was all */
        return false;
    }
    FUZZ_MUST(*name && strlen(name) < 4096 && (!of || !of->user));
    (void)meta, (void)content;
    return false;
}

static const struct backend_events events = {
    .granted = on_granted, .due = on_event, .ended = on_ended, .wanted = on_event};

static void acquire(struct backend *b, struct ticket *t)
{
    static const enum backend_kind kinds[] = {BACKEND_PROVISIONAL, BACKEND_LEASE, BACKEND_FLOCK, BACKEND_FCNTL};
    struct backend_claim claim = {.kind = PICK(kinds),
                                  .mode = pick(2) ? BACKEND_SHARED : BACKEND_EXCLUSIVE,
                                  .wait = pick(2),
                                  .handle = pick(3),
                                  .ttl = 10000,
                                  .due = 3000,
                                  .user = t};
    unsigned which = pick(G_N_ELEMENTS(names));
    const char *name = names[which];
    if (claim.kind == BACKEND_FCNTL) {
        claim.lock_owner = 1 + pick(3);
        claim.handle = 0;
        claim.start = pick(10);
        claim.end = claim.start + pick(10);
        claim.user = &ranges[which][claim.lock_owner];
    } else if (pick(3) == 2) {
        claim.sequence = claim.wait = true;
        name = pick(2) ? "d/s-" : "s-";
    }
    *t = (struct ticket){.used = true};
    calls++;
    struct backend_ticket *made = backend_acquire(b, name, &claim, on_acquired, t);
    t->ticket = claim.user == t ? made : NULL;
}

static void change_ticket(struct backend *b, struct ticket *t)
{
    struct backend_claim claim = {
        .user = t, .kind = pick(2) ? BACKEND_LEASE : BACKEND_FLOCK, .mode = (enum backend_mode)pick(2), .ttl = 10000};
    struct backend_change what = {.set = BACKEND_SET_CONTENT};
    struct backend_renewal renewal = {.ticket = t->ticket, .ttl = 8000, .due = 2000};
    char name[8192];
    backend_ticket_name(b, t->ticket, name, sizeof name);
    calls++;
    switch (pick(6)) {
    case 0:
        if (t->ticket->held) {
            backend_convert(b, t->ticket, &claim, on_done, NULL);
            return;
        }
        break;
    case 1:
        if (t->ticket->held) {
            backend_rename(b, t->ticket, PICK(names), NULL, on_done, NULL);
            return;
        }
        break;
    case 2:
        what.content = g_bytes_new_static("content", 7);
        backend_set(b, t->ticket, &what, on_done, NULL);
        g_bytes_unref(what.content);
        return;
    case 3:
        calls--;
        backend_renew(b, &renewal, 1);
        return;
    default:
        break;
    }
    backend_release(b, t->ticket, on_done, NULL);
    t->ticket = NULL;
}

static void ask(struct backend *b)
{
    struct backend_claim claim = {
        .kind = BACKEND_FCNTL, .lock_owner = 1 + pick(3), .start = pick(8), .end = 20, .ttl = 1000};
    struct backend_directory directory = {.width = 1 + pick(3), .delay = pick(2)};
    unsigned which = pick(G_N_ELEMENTS(names));
    const char *name = names[which];
    struct ticket *range = &ranges[which][claim.lock_owner];
    calls++;
    switch (pick(9)) {
    case 0:
        backend_test(b, name, &claim, on_known, NULL);
        break;
    case 1:
        backend_list(b, pick(2) ? "d" : "", "", 10, on_listed, NULL);
        break;
    case 2:
        backend_revoke(b, name, pick(2), on_done, NULL);
        break;
    case 3:
        backend_set_directory(b, pick(2) ? "d" : "", &directory, on_done, NULL);
        break;
    case 4:
        if (range->ticket) {
            if (!backend_release_range(b, range->ticket, claim.start, 20, on_done, NULL)) {
                range->ticket = NULL;
            }
        } else {
            calls--;
        }
        break;
    case 5:
        backend_mkdir(b, "d", &directory, on_done, NULL);
        break;
    case 6:
        backend_rmdir(b, "d", on_done, NULL);
        break;
    case 7: /* waits for its answers in the loop */
        calls--;
        ev_idle_start(loop, &not_blocking);
        ev_prepare_start(loop, &answering);
        backend_recover(b, on_recovered, NULL);
        ev_prepare_stop(loop, &answering);
        ev_idle_stop(loop, &not_blocking);
        break;
    default:
        backend_stat(b, pick(4) ? name : "s-0000000000", on_known, NULL);
    }
}

static void step(struct backend *b)
{
    struct ticket *t = &tickets[pick(TICKETS)];
    struct redis_request *request;
    switch (pick(8)) {
    case 0:
    case 1:
        if (t->used && t->answered && !t->ticket) {
            t->used = false;
        }
        if (!t->used) {
            acquire(b, t);
        } else if (t->ticket && t->answered) {
            change_ticket(b, t);
        }
        break;
    case 2:
        ask(b);
        break;
    case 3:
        now += pick(5000);
        redis_model_work(model);
        break;
    case 4:
        tell_messages();
        break;
    default:
        request = g_queue_pop_nth(&conn->requests, pick(3) % MAX(conn->requests.length, 1));
        if (request) {
            answer(request);
        }
    }
    ev_run(loop, EVRUN_NOWAIT);
}

static void free_bytes(gpointer bytes)
{
    if (bytes) {
        g_bytes_unref(bytes);
    }
}

static void begin(void)
{
    struct redis_model_options options = {.seed = 1, .now = read_now, .wall = INT64_C(1700000000000000)};
    if (!loop) {
        loop = ev_loop_new(EVFLAG_AUTO);
        ev_idle_init(&not_blocking, on_idle);
        ev_prepare_init(&answering, on_prepare);
        log_set_level(LOG_LEVEL_ERROR);
        model = redis_model_new(&options); /* which keeps the scripts */
    }
    now = 1000000;
    calls = 0;
    memset(tickets, 0, sizeof tickets);
    memset(ranges, 0, sizeof ranges);
    redis_model_do(model, "FLUSHALL", NULL);
    client = redis_model_connect(model, NULL);
    listener = redis_model_connect(model, NULL);
    seen = g_ptr_array_new_with_free_func(free_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes bytes = {data, size};
    struct redis_options options = {.prefix = "h:", .seed = 1, .identity = "fuzz", .conn.uri.path = "/nowhere"};
    struct backend *backend;
    struct redis_request *request;
    char error[256];
    input = &bytes;
    begin();
    FUZZ_MUST(redis_new(&options, &backend, error, sizeof error) == 0);
    backend_start(backend, loop, &events, NULL);
    come_up();
    while (bytes.left > 0) {
        step(backend);
    }
    for (int i = 0; i < ROUNDS && (request = g_queue_pop_head(&conn->requests)); i++) {
        answer(request);
    }
    backend_free(backend);
    g_ptr_array_unref(seen);
    redis_client_close(client);
    redis_client_close(listener);
    return 0;
}
