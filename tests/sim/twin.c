/* twin: a real redis-server and a redis_model with the same input. */
#include "tests/sim/twin.h"

#include <check.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/redis_server.h"
#include "tests/support/scratch.h"

enum { HISTORY_LINES = 40, POLL_MS = 20000, SHOWN = 300 };

#define EPOCH INT64_C(1700000000000000) /* µs: what both clocks show at first */

struct twin {
    TAILQ_ENTRY(twin) link;
    struct redis_client *client;
    int fd;
    redisReader *reader;
    GString *bytes; /* of the reply that is being read, and behind it */
    GString *reply;
    void (*on_message)(void *arg, const char *data, size_t length);
    void *arg;
};

struct redis_model *twin_model;

static TAILQ_HEAD(, twin) twins = TAILQ_HEAD_INITIALIZER(twins);
static struct redis_server *server;
static redisContext *admin; /* to the real one only */
static struct twin *control;
static char *directory;
static int64_t *server_clock;
static int64_t now;
static GQueue history = G_QUEUE_INIT;
static GHashTable *unordered; /* hashes of scripts that read what has no order */
static uint64_t commands;

const char *const twin_arguments[] = {"--enable-debug-command", "yes", NULL};

/* --- what was said --- */

static char *show(const char *data, size_t length)
{
    GString *text = g_string_new(NULL);
    for (size_t i = 0; i < length && text->len < SHOWN; i++) {
        guchar c = (guchar)data[i];
        g_string_append_printf(text, c >= ' ' && c < 127 ? "%c" : c == '\n' ? "\\n" : c == '\r' ? "" : "\\x%02x", c);
    }
    return g_string_free(text, FALSE);
}

static void note(const struct twin *twin, const struct twin_word *words, size_t count)
{
    GString *line = g_string_new(NULL);
    g_string_printf(line, "%" G_GINT64_FORMAT " #%d", now, twin->fd);
    for (size_t i = 0; i < count; i++) {
        char *word = show(words[i].data, words[i].length);
        g_string_append_printf(line, " '%s'", word);
        g_free(word);
    }
    g_queue_push_tail(&history, g_string_free(line, FALSE));
    if (history.length > HISTORY_LINES) {
        g_free(g_queue_pop_head(&history));
    }
}

static void stop(const char *what, const GString *real, const GString *model)
{
    for (const GList *at = history.head; at; at = at->next) {
        fprintf(stderr, "%s\n", (const char *)at->data);
    }
    char *a = real ? show(real->str, real->len) : NULL, *b = model ? show(model->str, model->len) : NULL;
    ck_abort_msg("%s\nthe server: %s\nthe model:  %s\n(the commands before are told on stderr)", what, a ? a : "",
                 b ? b : "");
}

/* --- bytes of the server --- */

static void read_more(struct twin *twin)
{
    struct pollfd poll_for = {.fd = twin->fd, .events = POLLIN};
    char data[65536];
    if (poll(&poll_for, 1, POLL_MS) != 1) {
        stop("the server says nothing", NULL, NULL);
    }
    ssize_t length = read(twin->fd, data, sizeof data);
    if (length <= 0) {
        stop("the server has closed a connection", NULL, NULL);
    }
    g_string_append_len(twin->bytes, data, length);
    redisReaderFeed(twin->reader, data, (size_t)length);
}

/* One reply, or message, into `reply`. */
static redisReply *read_reply(struct twin *twin)
{
    void *reply = NULL;
    while (redisReaderGetReply(twin->reader, &reply) == REDIS_OK && !reply) {
        read_more(twin);
    }
    if (!reply) {
        stop("the server's reply is none", twin->bytes, NULL);
    }
    size_t left = twin->reader->len - twin->reader->pos;
    g_string_truncate(twin->reply, 0);
    g_string_append_len(twin->reply, twin->bytes->str, (gssize)(twin->bytes->len - left));
    g_string_erase(twin->bytes, 0, (gssize)(twin->bytes->len - left));
    return reply;
}

static GString *take_model(struct twin *twin)
{
    GString *bytes = g_string_new(NULL);
    g_string_set_size(bytes, redis_client_pending(twin->client));
    redis_client_receive(twin->client, bytes->str, bytes->len);
    return bytes;
}

/* --- comparing --- */

static void flatten(const redisReply *reply, GPtrArray *parts)
{
    if (reply->type == REDIS_REPLY_ARRAY) {
        for (size_t i = 0; i < reply->elements; i++) {
            flatten(reply->element[i], parts);
        }
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        g_ptr_array_add(parts, g_strdup_printf(":%lld", reply->integer));
    } else {
        char *text = reply->str ? show(reply->str, (size_t)reply->len) : g_strdup("nil");
        g_ptr_array_add(parts, text);
    }
}

static gint compare_texts(gconstpointer a, gconstpointer b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static GPtrArray *parts_of(const redisReply *reply)
{
    GPtrArray *parts = g_ptr_array_new_with_free_func(g_free);
    flatten(reply, parts);
    g_ptr_array_sort(parts, compare_texts);
    return parts;
}

/* The same, in whatever order. */
static bool same_parts(const redisReply *reply, const GString *model)
{
    redisReader *reader = redisReaderCreate();
    void *other = NULL;
    bool same = false;
    redisReaderFeed(reader, model->str, model->len);
    if (redisReaderGetReply(reader, &other) == REDIS_OK && other) {
        GPtrArray *a = parts_of(reply), *b = parts_of(other);
        same = a->len == b->len;
        for (guint i = 0; same && i < a->len; i++) {
            same = strcmp(a->pdata[i], b->pdata[i]) == 0;
        }
        g_ptr_array_unref(a);
        g_ptr_array_unref(b);
        freeReplyObject(other);
    }
    redisReaderFree(reader);
    return same;
}

static bool is_word(const struct twin_word *word, const char *text)
{
    return word->length == strlen(text) && g_ascii_strncasecmp(word->data, text, word->length) == 0;
}

/* Hashes and sets are returned in any order. */
static bool has_no_order(const struct twin_word *words, size_t count)
{
    static const char *const names[] = {"smembers", "sscan", "hgetall", "hkeys", "hvals"};
    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        if (is_word(&words[0], names[i])) {
            return true;
        }
    }
    if (count < 2 || !(is_word(&words[0], "eval") || is_word(&words[0], "evalsha"))) {
        return false;
    }
    char *hash = is_word(&words[0], "eval")
                     ? g_compute_checksum_for_data(G_CHECKSUM_SHA1, (const guchar *)words[1].data, words[1].length)
                     : g_ascii_strdown(words[1].data, (gssize)words[1].length);
    bool known = g_hash_table_contains(unordered, hash);
    g_free(hash);
    return known;
}

static void remember_script(const struct twin_word *words, size_t count)
{
    size_t at = count > 2 && is_word(&words[0], "script") && is_word(&words[1], "load") ? 2
                : count > 1 && is_word(&words[0], "eval")                               ? 1
                                                                                        : 0;
    if (at && (memmem(words[at].data, words[at].length, "SSCAN", 5) ||
               memmem(words[at].data, words[at].length, "HGETALL", 7) ||
               memmem(words[at].data, words[at].length, "SMEMBERS", 8))) {
        g_hash_table_add(
            unordered, g_compute_checksum_for_data(G_CHECKSUM_SHA1, (const guchar *)words[at].data, words[at].length));
    }
}

/* Messages that other connections got meanwhile. */
static void compare_messages(void)
{
    struct twin *twin;
    TAILQ_FOREACH(twin, &twins, link) {
        GString *model = take_model(twin);
        gsize at = 0;
        while (at < model->len) {
            freeReplyObject(read_reply(twin));
            if (twin->reply->len > model->len - at ||
                memcmp(twin->reply->str, model->str + at, twin->reply->len) != 0) {
                stop("a message differs", twin->reply, model);
            }
            if (twin->on_message) {
                twin->on_message(twin->arg, twin->reply->str, twin->reply->len);
            }
            at += twin->reply->len;
        }
        g_string_free(model, TRUE);
    }
}

static void send_all(struct twin *twin, const GString *request)
{
    for (gsize at = 0; at < request->len;) {
        ssize_t sent = send(twin->fd, request->str + at, request->len - at, MSG_NOSIGNAL);
        if (sent <= 0) {
            stop("the server takes no more", NULL, NULL);
        }
        at += (gsize)sent;
    }
}

/* Several replies to one command: what a subscription says. */
static size_t replies_to(const struct twin_word *words, size_t count)
{
    return is_word(&words[0], "subscribe") || is_word(&words[0], "unsubscribe") ? MAX(count - 1, 1) : 1;
}

const GString *twin_say(struct twin *twin, const struct twin_word *words, size_t count)
{
    GString *request = g_string_new(NULL);
    g_string_printf(request, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++) {
        g_string_append_printf(request, "$%zu\r\n", words[i].length);
        g_string_append_len(request, words[i].data, (gssize)words[i].length);
        g_string_append(request, "\r\n");
    }
    note(twin, words, count);
    remember_script(words, count);
    commands++;
    send_all(twin, request);
    redis_client_send(twin->client, request->str, request->len);
    g_string_free(request, TRUE);
    GString *model = take_model(twin), *all = g_string_new(NULL);
    bool of_client = is_word(&words[0], "client") && count > 1; /* addresses differ */
    bool may_differ =
        is_word(&words[0], "info") || (of_client && (is_word(&words[1], "info") || is_word(&words[1], "kill")));
    for (size_t i = replies_to(words, count); i > 0; i--) {
        redisReply *reply = read_reply(twin);
        g_string_append_len(all, twin->reply->str, (gssize)twin->reply->len);
        if (i == 1 && !may_differ && !g_string_equal(all, model) &&
            !(has_no_order(words, count) && same_parts(reply, model))) {
            stop("a reply differs", all, model);
        }
        freeReplyObject(reply);
    }
    g_string_assign(twin->reply, "");
    g_string_append_len(twin->reply, all->str, (gssize)all->len);
    g_string_free(all, TRUE);
    g_string_free(model, TRUE);
    GString *own = twin->reply; /* which messages would write over */
    twin->reply = g_string_new(NULL);
    compare_messages();
    g_string_free(twin->reply, TRUE);
    twin->reply = own;
    return own;
}

const GString *twin_do(struct twin *twin, ...)
{
    struct twin_word words[32];
    size_t count = 0;
    const char *word;
    va_list arguments;
    va_start(arguments, twin);
    while ((word = va_arg(arguments, const char *))) {
        words[count++] = (struct twin_word){word, strlen(word)};
    }
    va_end(arguments);
    return twin_say(twin, words, count);
}

/* --- connections --- */

static struct twin *connect_both(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct twin *twin = g_new0(struct twin, 1);
    g_strlcpy(address.sun_path, redis_server_socket(server), sizeof address.sun_path);
    twin->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_msg(connect(twin->fd, (struct sockaddr *)&address, sizeof address) == 0, "cannot connect to the server");
    twin->client = redis_model_connect(twin_model, twin);
    twin->reader = redisReaderCreate();
    twin->bytes = g_string_new(NULL);
    twin->reply = g_string_new(NULL);
    TAILQ_INSERT_TAIL(&twins, twin, link);
    return twin;
}

struct twin *twin_connect(void)
{
    struct twin *twin = connect_both();
    twin_do(twin, "PING", NULL); /* the server knows of it, and has given it its number */
    return twin;
}

void twin_close(struct twin *twin)
{
    char byte;
    TAILQ_REMOVE(&twins, twin, link);
    redis_client_close(twin->client);
    shutdown(twin->fd, SHUT_WR);
    while (read(twin->fd, &byte, 1) > 0) { /* until the server has seen it */
    }
    close(twin->fd);
    redisReaderFree(twin->reader);
    g_string_free(twin->bytes, TRUE);
    g_string_free(twin->reply, TRUE);
    g_free(twin);
}

void twin_listen(struct twin *twin, void (*on_message)(void *arg, const char *data, size_t length), void *arg)
{
    twin->on_message = on_message;
    twin->arg = arg;
}

/* --- time --- */

static int64_t read_now(void *unused)
{
    (void)unused;
    return now;
}

static void show_time(void)
{
    *(volatile int64_t *)server_clock = redis_model_wall(twin_model);
}

void twin_pass(int64_t us)
{
    now += us;
    show_time();
}

void twin_step(int64_t us)
{
    redis_model_step(twin_model, us);
    show_time();
}

/* --- states --- */

static void tell_server(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(admin, format, arguments);
    va_end(arguments);
    ck_assert_msg(reply && reply->type != REDIS_REPLY_ERROR, "%s: %s", format, reply ? reply->str : admin->errstr);
    freeReplyObject(reply);
}

void twin_set(enum redis_model_state state, bool on)
{
    static const char *const settings[REDIS_MODEL_STATES][3] = {
        [REDIS_MODEL_FULL] = {"maxmemory", "0", "1"},
        [REDIS_MODEL_STALE] = {"replica-serve-stale-data", "yes", "no"},
        [REDIS_MODEL_LONELY] = {"min-replicas-to-write", "0", "1"},
    };
    if (state == REDIS_MODEL_REPLICA) {
        tell_server(on ? "REPLICAOF 127.0.0.1 1" : "REPLICAOF NO ONE");
    } else {
        tell_server("CONFIG SET %s %s", settings[state][0], settings[state][1 + on]);
    }
    redis_model_set(twin_model, state, on);
}

/* --- keys --- */

static void compare_value(const char *key, const GString *type)
{
    if (strcmp(type->str, "+string\r\n") == 0) {
        twin_do(control, "GET", key, NULL);
    } else if (strcmp(type->str, "+hash\r\n") == 0) {
        twin_do(control, "HGETALL", key, NULL);
    } else if (strcmp(type->str, "+set\r\n") == 0) {
        twin_do(control, "SMEMBERS", key, NULL);
    } else if (strcmp(type->str, "+zset\r\n") == 0) {
        twin_do(control, "ZRANGE", key, "0", "-1", "WITHSCORES", NULL);
    } else if (strcmp(type->str, "+list\r\n") == 0) {
        twin_do(control, "LRANGE", key, "0", "-1", NULL);
    }
}

void twin_compare_keys(void)
{
    char **keys = redis_model_keys(twin_model);
    twin_do(control, "DBSIZE", NULL);
    for (char **key = keys; *key; key++) {
        const GString *type = twin_do(control, "TYPE", *key, NULL);
        char *kept = g_strdup(type->str);
        twin_do(control, "PEXPIRETIME", *key, NULL);
        compare_value(*key, &(GString){.str = kept});
        g_free(kept);
    }
    g_strfreev(keys);
}

uint64_t twin_commands(void)
{
    return commands;
}

/* --- beginning and end --- */

void twin_before_start(void)
{
    char *self = g_file_read_link("/proc/self/exe", NULL), *where = g_path_get_dirname(self);
    char *library = g_build_filename(where, "still_clock.so", NULL), *path;
    int fd;
    directory = scratch_new();
    path = g_build_filename(directory, "clock", NULL);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 && ftruncate(fd, sizeof now) == 0);
    server_clock = mmap(NULL, sizeof now, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(server_clock != MAP_FAILED);
    close(fd);
    *(volatile int64_t *)server_clock = EPOCH;
    ck_assert_msg(g_file_test(library, G_FILE_TEST_EXISTS), "%s is not there", library);
    g_setenv("LD_PRELOAD", library, TRUE);
    g_setenv("REDIS_STILL_CLOCK", path, TRUE);
    g_free(path);
    g_free(library);
    g_free(where);
    g_free(self);
}

/* So that connections have the same numbers in both. */
static void catch_up(void)
{
    redisReply *reply = redisCommand(admin, "CLIENT ID");
    for (long long i = 0; i < reply->integer; i++) {
        redis_client_close(redis_model_connect(twin_model, NULL));
    }
    freeReplyObject(reply);
}

/* Replaces the run id, which differs between the two, also in replies of scripts. */
static void be_the_same_run(void)
{
    redisReply *reply = redisCommand(admin, "INFO");
    char ids[2][41] = {"", ""};
    static const char *const fields[] = {"\nrun_id:", "\nmaster_replid:"};
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(reply->str, fields[i]);
        ck_assert_ptr_nonnull(at);
        g_strlcpy(ids[i], at + strlen(fields[i]), sizeof ids[i]);
    }
    redis_model_name_run(twin_model, ids[0], ids[1]);
    freeReplyObject(reply);
}

void twin_begin(struct redis_server *of)
{
    struct redis_model_options options = {.seed = 1, .now = read_now, .wall = EPOCH};
    g_unsetenv("LD_PRELOAD");
    server = of;
    now = 0;
    twin_model = redis_model_new(&options);
    unordered = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    admin = redisConnectUnix(redis_server_socket(server));
    tell_server("DEBUG SET-ACTIVE-EXPIRE 0");
    catch_up();
    be_the_same_run();
    control = twin_connect();
}

void twin_end(void)
{
    struct twin *twin;
    while ((twin = TAILQ_FIRST(&twins))) {
        twin_close(twin);
    }
    g_queue_clear_full(&history, g_free);
    g_queue_init(&history);
    redisFree(admin);
    g_hash_table_unref(unordered);
    redis_model_free(twin_model);
    munmap(server_clock, sizeof now);
    scratch_free(directory);
}
