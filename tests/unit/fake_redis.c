/* fake_redis: a Redis server whose faults a check sets; see fake_redis.h. */
#include "tests/unit/fake_redis.h"

#include <check.h>
#include <errno.h>
#include <ev.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const char FAKE_REDIS_SILENT[] = "silent", FAKE_REDIS_LATE[] = "late", FAKE_REDIS_CLOSE[] = "close",
           FAKE_REDIS_RESET[] = "reset", FAKE_REDIS_HALF[] = "half";

struct rule {
    const char *prefix;
    const char *answer;
    unsigned times; /* left */
};

struct client {
    struct fake_redis *fake;
    struct ev_io reading;
    redisReader *reader;
    bool subscribed;
    bool silent;
};

struct fake_redis {
    struct ev_loop *loop;
    uint16_t port;
    struct ev_io listening;
    GPtrArray *clients;
    GString *commands;
    GArray *rules;
    unsigned connections;
    unsigned reads, resets;
    unsigned answered;
};

static void client_free(struct client *client)
{
    ev_io_stop(client->fake->loop, &client->reading);
    close(client->reading.fd);
    redisReaderFree(client->reader);
    g_free(client);
}

static void end_client(struct client *client)
{
    g_ptr_array_remove_fast(client->fake->clients, client);
    client_free(client);
}

/* Nothing is lost if the other side has gone: its end is read next. */
static void send_bytes(struct client *client, const char *bytes)
{
    size_t length = strlen(bytes);
    ssize_t sent = client->silent ? 0 : send(client->reading.fd, bytes, length, MSG_NOSIGNAL);

    ck_assert(sent <= 0 || sent == (ssize_t)length);
}

static char *words_of(const redisReply *command)
{
    GString *words = g_string_new(NULL);

    for (size_t i = 0; i < command->elements; i++) {
        g_string_append(words, i ? " " : "");
        g_string_append_len(words, command->element[i]->str, (gssize)command->element[i]->len);
    }
    return g_string_free(words, FALSE);
}

/* The answer to what is said before a connection is up; NULL: it is not that. */
static char *set_up_answer(struct client *client, const redisReply *command, const char *words)
{
    static const char *const plain[] = {"AUTH ", "SELECT ", "SCRIPT LOAD ", "CLIENT "};

    if (g_str_has_prefix(words, "SUBSCRIBE ")) {
        client->subscribed = true;
        return g_strdup_printf("*3\r\n$9\r\nsubscribe\r\n$%zu\r\n%s\r\n:1\r\n", command->element[1]->len,
                               command->element[1]->str);
    }
    if (strcmp(words, "CLIENT ID") == 0)
        return g_strdup(":7\r\n");
    if (strcmp(words, "ROLE") == 0)
        return g_strdup("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    if (strcmp(words, "PING") == 0)
        return g_strdup(client->subscribed ? "*2\r\n$4\r\npong\r\n$0\r\n\r\n" : "+PONG\r\n");
    for (size_t i = 0; i < G_N_ELEMENTS(plain); i++)
        if (g_str_has_prefix(words, plain[i]))
            return g_strdup("+OK\r\n");
    return NULL;
}

static const char *apply_rule(struct fake_redis *fake, const char *words, const char *usual)
{
    for (guint i = 0; i < fake->rules->len; i++) {
        struct rule *rule = &g_array_index(fake->rules, struct rule, i);

        if (rule->times && g_str_has_prefix(words, rule->prefix)) {
            rule->times -= rule->times != FAKE_REDIS_ALWAYS;
            return rule->answer;
        }
    }
    return usual;
}

/* False: the connection has ended. */
static bool answer(struct client *client, const redisReply *command)
{
    static const struct linger hard = {1, 0};
    struct fake_redis *fake = client->fake;
    char *words = words_of(command), *usual = set_up_answer(client, command, words);
    const char *given;
    bool ends;

    if (!usual) {
        g_string_append_printf(fake->commands, "%s%s", fake->commands->len ? ";" : "", words);
        usual = g_strdup_printf(":%u\r\n", ++fake->answered);
    }
    given = apply_rule(fake, words, usual);
    ends = given == FAKE_REDIS_CLOSE || given == FAKE_REDIS_RESET || given == FAKE_REDIS_HALF;
    if (given == FAKE_REDIS_RESET)
        setsockopt(client->reading.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    client->silent = client->silent || given == FAKE_REDIS_SILENT;
    if (given == FAKE_REDIS_HALF)
        usual[strlen(usual) / 2] = '\0';
    if (given == FAKE_REDIS_HALF || given == usual)
        send_bytes(client, usual);
    else if (!ends && given != FAKE_REDIS_LATE)
        send_bytes(client, given);
    if (ends)
        end_client(client);
    g_free(usual);
    g_free(words);
    return !ends;
}

static void on_readable(struct ev_loop *loop, struct ev_io *watcher, int events)
{
    struct client *client = watcher->data;
    char bytes[65536];
    ssize_t length = read(watcher->fd, bytes, sizeof(bytes));
    void *command;
    bool open = true;

    (void)loop, (void)events;
    if (length <= 0) {
        client->fake->resets += length < 0 && errno == ECONNRESET;
        end_client(client);
        return;
    }
    client->fake->reads++;
    redisReaderFeed(client->reader, bytes, (size_t)length);
    while (open && redisReaderGetReply(client->reader, &command) == REDIS_OK && command) {
        open = answer(client, command);
        freeReplyObject(command);
    }
}

static void on_connection(struct ev_loop *loop, struct ev_io *watcher, int events)
{
    struct fake_redis *fake = watcher->data;
    struct client *client = g_new0(struct client, 1);
    int fd = accept4(watcher->fd, NULL, NULL, SOCK_CLOEXEC);

    (void)events;
    ck_assert_int_ge(fd, 0);
    client->fake = fake;
    client->reader = redisReaderCreate();
    ev_io_init(&client->reading, on_readable, fd, EV_READ);
    client->reading.data = client;
    ev_io_start(loop, &client->reading);
    g_ptr_array_add(fake->clients, client);
    fake->connections++;
}

struct fake_redis *fake_redis_new(struct ev_loop *loop)
{
    struct fake_redis *fake = g_new0(struct fake_redis, 1);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    fake->loop = loop;
    fake->clients = g_ptr_array_new();
    fake->commands = g_string_new(NULL);
    fake->rules = g_array_new(FALSE, FALSE, sizeof(struct rule));
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    fake->port = ntohs(address.sin_port);
    ck_assert_int_eq(listen(fd, 100), 0);
    ev_io_init(&fake->listening, on_connection, fd, EV_READ);
    fake->listening.data = fake;
    ev_io_start(loop, &fake->listening);
    return fake;
}

void fake_redis_free(struct fake_redis *fake)
{
    while (fake->clients->len)
        end_client(g_ptr_array_index(fake->clients, 0));
    ev_io_stop(fake->loop, &fake->listening);
    close(fake->listening.fd);
    g_ptr_array_unref(fake->clients);
    g_string_free(fake->commands, TRUE);
    g_array_unref(fake->rules);
    g_free(fake);
}

uint16_t fake_redis_port(const struct fake_redis *fake)
{
    return fake->port;
}

void fake_redis_rule(struct fake_redis *fake, const char *prefix, const char *answer, unsigned times)
{
    const struct rule rule = {prefix, answer, times};

    g_array_append_val(fake->rules, rule);
}

void fake_redis_behave(struct fake_redis *fake)
{
    g_array_set_size(fake->rules, 0);
}

const char *fake_redis_commands(struct fake_redis *fake)
{
    return fake->commands->str;
}

void fake_redis_clear(struct fake_redis *fake)
{
    g_string_truncate(fake->commands, 0);
}

static void write_to(struct fake_redis *fake, bool subscribed, const char *bytes)
{
    for (guint i = 0; i < fake->clients->len; i++) {
        struct client *client = g_ptr_array_index(fake->clients, i);

        if (client->subscribed == subscribed)
            send_bytes(client, bytes);
    }
}

void fake_redis_push(struct fake_redis *fake, const char *bytes)
{
    write_to(fake, true, bytes);
}

void fake_redis_say(struct fake_redis *fake, const char *bytes)
{
    write_to(fake, false, bytes);
}

unsigned fake_redis_connections(const struct fake_redis *fake)
{
    return fake->connections;
}

unsigned fake_redis_resets(const struct fake_redis *fake)
{
    return fake->resets;
}

unsigned fake_redis_reads(const struct fake_redis *fake)
{
    return fake->reads;
}
