/* contract_example: the smallest store across a network, and the part of the contract that it claims.
 *
 * It talks to example_server.py over a socket: a request is a line, an answer is a line, and so are events.  To write a
 * store, begin here: backend/remote does everything that is not in this file.  A real store also connects again,
 * repeats pending requests, calls remote_on_up after that, and sets remote_answer.repeated.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/remote/remote.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/child.h"
#include "tests/support/scratch.h"

#define TIMEOUT 5000 /* ms, of a request */

struct example {
    struct remote remote;
    int fd;
    ev_io io;
    GString *in;       /* what was read of a line */
    GHashTable *calls; /* number -> struct call */
    guint count;
};

/* A request that is not answered yet. */
struct call {
    struct example *e;
    guint number;
    struct remote_request *request;
    clock_ms sent;
    ev_timer limit;
};

/* --- encode and send --- */

static void add(GString *line, const char *key, const char *value)
{
    char *escaped = g_uri_escape_string(value, NULL, FALSE);
    g_string_append_printf(line, " %s=%s", key, escaped);
    g_free(escaped);
}

static void add_number(GString *line, const char *key, int64_t number)
{
    g_string_append_printf(line, " %s=%" G_GINT64_FORMAT, key, number);
}

static void add_bytes(GString *line, const char *key, GBytes *bytes)
{
    gsize size = 0;
    const guint8 *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    char *escaped = g_uri_escape_bytes(data ? data : (const guint8 *)"", size, NULL);
    g_string_append_printf(line, " %s=%s", key, escaped);
    g_free(escaped);
}

static void add_claim(GString *line, const struct backend_claim *claim)
{
    add_number(line, "kind", claim->kind);
    add_number(line, "ttl", claim->ttl);
    add_number(line, "handle", (int64_t)claim->handle);
    add_number(line, "owner", (int64_t)claim->lock_owner);
}

static void add_ticket(GString *line, const struct remote_ticket *t)
{
    add_claim(line, &(struct backend_claim){
                        .kind = t->head.kind, .ttl = t->head.ttl, .handle = t->handle, .lock_owner = t->lock_owner});
    add_number(line, "wait", t->wait);
    add_number(line, "alive", remote_ticket_liveness(t, t->head.ttl));
    add_bytes(line, "meta", t->meta);
    add_bytes(line, "content", t->head.content);
}

static void add_change(GString *line, const struct backend_change *change)
{
    if (change->set & BACKEND_SET_META) {
        add_bytes(line, "meta", change->meta);
    }
    if (change->set & BACKEND_SET_CONTENT) {
        add_bytes(line, "content", change->content);
    }
}

static void encode(GString *line, const struct remote_request *request, const struct remote_ticket *t)
{
    static const char *const words[REMOTE_PROCEDURES] = {
        [REMOTE_ACQUIRE] = "acquire", [REMOTE_RELEASE] = "release", [REMOTE_RENEW] = "renew",
        [REMOTE_SET] = "set",         [REMOTE_CONVERT] = "convert", [REMOTE_REVOKE] = "revoke",
        [REMOTE_TEST] = "test",       [REMOTE_STAT] = "stat",       [REMOTE_LIST] = "list",
        [REMOTE_MKDIR] = "mkdir",     [REMOTE_RMDIR] = "rmdir",     [REMOTE_SET_DIRECTORY] = "set_directory"};
    g_string_append(line, words[request->procedure]);
    add(line, "id", request->id);
    add(line, "name", t ? t->lock->name : request->name);
    switch (request->procedure) {
    case REMOTE_ACQUIRE:
        add_ticket(line, t);
        break;
    case REMOTE_RENEW:
        add_number(line, "ttl", request->ttl);
        add_number(line, "left", request->renewal.verify_only ? 0 : request->renewal.left);
        break;
    case REMOTE_CONVERT:
        add_claim(line, &request->update.claim);
        add_change(line, &request->update.change);
        break;
    case REMOTE_SET:
        add_change(line, &request->update.change);
        break;
    case REMOTE_TEST:
        add_claim(line, &request->claim);
        break;
    case REMOTE_REVOKE:
        add_number(line, "fence", (int64_t)request->fence);
        add(line, "text", request->match ? request->match->text : "");
        add_number(line, "word", request->match ? request->match->word : 0);
        add_number(line, "matching", request->match != NULL);
        break;
    case REMOTE_LIST:
        add(line, "after", request->listing->after);
        add_number(line, "max", (int64_t)MIN(request->listing->max, 1000));
        break;
    case REMOTE_MKDIR:
    case REMOTE_SET_DIRECTORY:
        add_number(line, "ttl", request->directory.ttl);
        add_bytes(line, "meta", request->directory.meta);
        break;
    default:
        break;
    }
}

static void call_free(gpointer data)
{
    struct call *call = data;
    ev_timer_stop(call->e->remote.loop, &call->limit);
    g_free(call);
}

/* Hands the answer to the request, and forgets the call. */
static void finish(struct call *call, struct remote_answer *answer)
{
    struct remote_request *request = call->request;
    answer->sent = call->sent;
    g_hash_table_remove(call->e->calls, GUINT_TO_POINTER(call->number));
    request->on_answer(request, answer);
}

static void on_limit(struct ev_loop *loop, ev_timer *limit, int events)
{
    struct call *call = limit->data;
    (void)loop, (void)events;
    finish(call, &(struct remote_answer){.outcome = REMOTE_UNKNOWN, .result = BACKEND_UNREACHABLE});
}

static void write_line(struct example *e, GString *line)
{
    g_string_append_c(line, '\n');
    if (send(e->fd, line->str, line->len, MSG_NOSIGNAL) != (ssize_t)line->len) {
        shutdown(e->fd, SHUT_RDWR);
    }
    g_string_free(line, TRUE);
}

static uint64_t example_send(struct remote_request *request, struct remote_ticket *t, int64_t timeout)
{
    struct example *e = (struct example *)request->r;
    struct call *call = g_new0(struct call, 1);
    GString *line = g_string_new(NULL);
    call->e = e;
    call->number = ++e->count;
    call->request = request;
    call->sent = clock_now();
    ev_timer_init(&call->limit, on_limit, (double)(timeout ? timeout : TIMEOUT) / 1000, 0);
    call->limit.data = call;
    ev_now_update(e->remote.loop);
    ev_timer_start(e->remote.loop, &call->limit);
    g_hash_table_insert(e->calls, GUINT_TO_POINTER(call->number), call);
    g_string_printf(line, "%u ", call->number);
    encode(line, request, t);
    write_line(e, line);
    return call->number;
}

static void example_forget(struct remote *r, uint64_t number)
{
    g_hash_table_remove(((struct example *)r)->calls, GUINT_TO_POINTER((guint)number));
}

/* Of all waiters: the answers are events. */
static void example_heartbeat(struct remote *r, struct remote_ticket *const *tickets, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        GString *line = g_string_new("0 heartbeat");
        add(line, "id", tickets[i]->id);
        add_number(line, "alive", remote_ticket_liveness(tickets[i], tickets[i]->head.ttl));
        write_line((struct example *)r, line);
    }
}

/* --- read and decode --- */

/* "word key=value …": the values. */
static GHashTable *read_fields(char *const *words)
{
    GHashTable *fields = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_bytes_unref);
    for (; *words; words++) {
        char *equals = strchr(*words, '=');
        if (equals) {
            GBytes *value = g_uri_unescape_bytes(equals + 1, -1, NULL, NULL);
            g_hash_table_insert(fields, g_strndup(*words, (gsize)(equals - *words)), value);
        }
    }
    return fields;
}

/* A new string; "" where there is none. */
static char *text_of(GHashTable *fields, const char *key)
{
    gsize size = 0;
    GBytes *bytes = g_hash_table_lookup(fields, key);
    const char *data = bytes ? g_bytes_get_data(bytes, &size) : NULL;
    return g_strndup(data ? data : "", size);
}

static int64_t number_of(GHashTable *fields, const char *key)
{
    char *text = text_of(fields, key);
    int64_t number = g_ascii_strtoll(text, NULL, 10);
    g_free(text);
    return number;
}

/* A lock, a directory, or nothing. */
static void decode_info(struct remote *r, GHashTable *fields, struct backend_info *info)
{
    char *id = text_of(fields, "id");
    struct remote_ticket *t = remote_ticket_find(r, id);
    *info = (struct backend_info){
        .type = (enum backend_type)number_of(fields, "type"),
        .kind = (enum backend_kind)number_of(fields, "kind"),
        .fence = (uint64_t)number_of(fields, "fence"),
        .acquired = clock_now() - number_of(fields, "age"),
        .deadline = clock_now() + number_of(fields, "left"),
        .ttl = number_of(fields, "ttl"),
        .end = BACKEND_RANGE_MAX,
        .meta = g_hash_table_lookup(fields, "meta"),
        .content = g_hash_table_lookup(fields, "content"),
        .guarded = number_of(fields, "guarded"),
        .holders = (uint32_t)number_of(fields, "holders"),
        .waiters = (uint32_t)number_of(fields, "waiters"),
        .directory = {.ttl = number_of(fields, "ttl"), .width = 1, .meta = g_hash_table_lookup(fields, "meta")}};
    if (t && t->state != REMOTE_ACQUIRING) {
        remote_ticket_describe(t, info);
    }
    g_free(id);
}

/* "l:name" of a lock, "d:name" of a directory, "/" between them.  There is one part. */
static void decode_entries(struct remote_request *request, const char *text)
{
    char **entries = g_strsplit(text, "/", -1);
    for (char **entry = entries; *entry && **entry; entry++) {
        remote_listing_add(request, *entry + 2, **entry == 'd' ? BACKEND_DIRECTORY : BACKEND_LOCK, NULL);
    }
    g_strfreev(entries);
}

static void on_answer(struct example *e, struct call *call, const char *word, GHashTable *fields)
{
    struct backend_info info;
    char *id = text_of(fields, "id"), *entries = text_of(fields, "entries");
    struct remote_answer answer = {
        .outcome = REMOTE_ANSWERED,
        .result = strcmp(word, "queued") == 0 ? BACKEND_QUEUED : remote_parse_result(word, BACKEND_UNREACHABLE),
        .fence = (uint64_t)number_of(fields, "fence"),
        .id = *id ? id : NULL,
        .rank = number_of(fields, "rank"),
        .wait = number_of(fields, "left"),
        .info = &info,
    };
    decode_info(&e->remote, fields, &info);
    if (*entries) {
        decode_entries(call->request, entries);
    }
    finish(call, &answer);
    g_free(entries);
    g_free(id);
}

static void on_event(struct example *e, const char *word, GHashTable *fields)
{
    char *id = text_of(fields, "id");
    if (strcmp(word, "granted") == 0) {
        remote_on_event(&e->remote, id, REMOTE_GRANTED, BACKEND_LOST);
    } else if (strcmp(word, "wanted") == 0) {
        remote_on_event(&e->remote, id, REMOTE_WANTED, BACKEND_LOST);
    } else if (strcmp(word, "ended") == 0) {
        remote_on_event(&e->remote, id, REMOTE_ENDED, (enum backend_end)number_of(fields, "why"));
    } else if (strcmp(word, "rank") == 0) {
        remote_heartbeat_reply(
            &e->remote, id,
            &(struct remote_answer){.rank = number_of(fields, "rank"), .wait = number_of(fields, "left")});
    }
    g_free(id);
}

/* "NUMBER word key=value …"; number 0: an event. */
static void on_line(struct example *e, const char *line)
{
    char **words = g_strsplit(line, " ", -1);
    if (g_strv_length(words) >= 2) {
        guint number = (guint)strtoul(words[0], NULL, 10);
        struct call *call = g_hash_table_lookup(e->calls, GUINT_TO_POINTER(number));
        GHashTable *fields = read_fields(words + 2);
        if (number == 0) {
            on_event(e, words[1], fields);
        } else if (call) {
            on_answer(e, call, words[1], fields);
        }
        g_hash_table_unref(fields);
    }
    g_strfreev(words);
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
    struct example *e = io->data;
    char buffer[65536], *end;
    ssize_t size = recv(e->fd, buffer, sizeof buffer, MSG_DONTWAIT);
    (void)events;
    if (size == 0) { /* what is sent from now on is not answered */
        ev_io_stop(loop, io);
    }
    g_string_append_len(e->in, buffer, MAX(size, 0));
    while ((end = strchr(e->in->str, '\n'))) {
        char *line = g_strndup(e->in->str, (gsize)(end - e->in->str));
        g_string_erase(e->in, 0, end + 1 - e->in->str);
        on_line(e, line);
        g_free(line);
    }
}

/* --- the store --- */

static void example_start(struct remote *r)
{
    ev_io_start(r->loop, &((struct example *)r)->io);
}

static void example_free(struct remote *r, bool holds)
{
    struct example *e = (struct example *)r;
    (void)holds;
    if (r->loop) {
        ev_io_stop(r->loop, &e->io);
    }
    close(e->fd);
    g_string_free(e->in, TRUE);
    g_hash_table_unref(e->calls);
    g_free(e);
}

static bool example_is_up(const struct remote *r)
{
    return ev_is_active(&((const struct example *)r)->io);
}

static bool example_allows_name(struct remote *r, const char *name)
{
    (void)r;
    return !*name || remote_is_path(name);
}

static void example_status(struct remote *r, struct backend_status *status)
{
    status->away = !example_is_up(r);
    status->address = g_strdup("example");
}

/* It claims no feature: no byte ranges, shared locks, sequence files or renames. */
static const struct remote_store store = {
    .name = "example",
    .no_range = "a lock of a range of bytes covers the whole lock on the example store",
    .no_share = "there are no shared locks and no sequence files on the example store",
    .no_width = "a directory has no width and no lock-delay on the example store",
    .no_rename = "a lock cannot be renamed on the example store",
    .revoke_root = BACKEND_IS_DIRECTORY,
    .rmdir_root = BACKEND_INVALID,
    .start = example_start,
    .free = example_free,
    .is_up = example_is_up,
    .allows_name = example_allows_name,
    .send = example_send,
    .forget = example_forget,
    .heartbeat = example_heartbeat,
    .status = example_status,
};

/* `world`: the server keeps the locks of each apart. */
static struct backend *example_new(const char *socket_path, const char *world)
{
    struct example *e = g_new0(struct example, 1);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    g_strlcpy(address.sun_path, socket_path, sizeof address.sun_path);
    e->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    e->remote.timeout = TIMEOUT;
    if (remote_init(&e->remote, &store, 1) < 0 || connect(e->fd, (struct sockaddr *)&address, sizeof address) < 0) {
        ck_abort_msg("no connection: %s", g_strerror(errno));
    }
    e->in = g_string_new(NULL);
    e->calls = g_hash_table_new_full(NULL, NULL, NULL, call_free);
    ev_io_init(&e->io, on_readable, e->fd, EV_READ);
    e->io.data = e;
    GString *line = g_string_new("0 hello");
    add(line, "world", world);
    write_line(e, line);
    return &e->remote.backend;
}

/* --- the contract --- */

static char *server_path;

/* Each check is a process, and has a world of its own. */
static struct backend *open_example(void)
{
    char world[24];
    g_snprintf(world, sizeof world, "%d", getpid());
    return example_new(server_path, world);
}

int main(void)
{
    static const struct contract example = {.name = "example", .open = open_example, .open_other = open_example};
    const char *top = g_getenv("top_srcdir") ? g_getenv("top_srcdir") : ".";
    char *script = g_build_filename(top, "tests/contract/example_server.py", NULL), *directory = scratch_new();
    server_path = g_build_filename(directory, "socket", NULL);
    pid_t server = child_fork();
    if (server == 0) {
        execlp("python3", "python3", script, server_path, (char *)NULL);
        _exit(127);
    }
    while (access(server_path, F_OK) < 0) {
        g_usleep(10000);
    }
    int result = check_main(contract_suite(&example));
    kill(server, SIGTERM);
    scratch_free(directory);
    g_free(script);
    return result;
}
