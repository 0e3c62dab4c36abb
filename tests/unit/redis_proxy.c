/* redis_proxy: loses or changes a Redis server's answers; see redis_proxy.h. */
#include "tests/unit/redis_proxy.h"

#include <check.h>
#include <ev.h>
#include <glib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/scratch.h"

struct pair {
    LIST_ENTRY(pair) link;
    struct redis_proxy *proxy;
    ev_io client, server;
    bool deaf; /* its next answer is lost */
};

struct redis_proxy {
    struct ev_loop *loop;
    char *directory, *socket, *upstream;
    ev_io listening;
    LIST_HEAD(, pair) pairs;
    const char *text, *request;
    unsigned times, request_times, lost;
    bool close;
    redis_proxy_forge_piece *forge;
    void *forge_arg;
    const char *late; /* what is held back */
    GByteArray *held;
    int held_for; /* the server's end */
};

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    ck_assert_uint_lt(g_strlcpy(address.sun_path, path, sizeof(address.sun_path)), sizeof(address.sun_path));
    return address;
}

static void end_pair(struct pair *pair)
{
    ev_io_stop(pair->proxy->loop, &pair->client);
    ev_io_stop(pair->proxy->loop, &pair->server);
    close(pair->client.fd);
    close(pair->server.fd);
    LIST_REMOVE(pair, link);
    g_free(pair);
}

/* To the server with blocking, as the scripts are more than a socket's buffer takes.  To a
 * mount, which is on this loop, without: answers fit, and what is forged need not arrive. */
static bool pass_on(int fd, const char *data, size_t length, int flags)
{
    while (length > 0) {
        ssize_t n = send(fd, data, length, MSG_NOSIGNAL | flags);

        if (n <= 0)
            return false;
        data += n;
        length -= (size_t)n;
    }
    return true;
}

static void on_request(struct ev_loop *loop, ev_io *io, int events)
{
    struct pair *pair = io->data;
    struct redis_proxy *proxy = pair->proxy;
    char data[65536];
    ssize_t n = read(io->fd, data, sizeof(data));

    (void)loop, (void)events;
    if (n > 0 && proxy->request_times > 0 && memmem(data, (size_t)n, proxy->request, strlen(proxy->request))) {
        proxy->request_times--;
        pair->deaf = true;
    }
    if (n > 0 && proxy->late && memmem(data, (size_t)n, proxy->late, strlen(proxy->late))) {
        proxy->late = NULL;
        proxy->held = g_byte_array_append(g_byte_array_new(), (const guint8 *)data, (guint)n);
        proxy->held_for = dup(pair->server.fd);
        end_pair(pair);
        return;
    }
    if (n <= 0 || !pass_on(pair->server.fd, data, (size_t)n, 0))
        end_pair(pair);
}

static void on_answer(struct ev_loop *loop, ev_io *io, int events)
{
    struct pair *pair = io->data;
    struct redis_proxy *proxy = pair->proxy;
    char data[65536];
    ssize_t n = read(io->fd, data, sizeof(data));

    (void)loop, (void)events;
    if (n > 0 && proxy->times > 0 && memmem(data, (size_t)n, proxy->text, strlen(proxy->text))) {
        proxy->times--;
        proxy->lost++;
        if (proxy->close)
            end_pair(pair);
    } else if (n > 0 && pair->deaf) {
        proxy->lost++;
        end_pair(pair);
    } else if (n > 0 && proxy->forge) {
        GString *piece = g_string_new_len(data, n);

        proxy->forge(proxy->forge_arg, piece);
        if (!pass_on(pair->client.fd, piece->str, piece->len, MSG_DONTWAIT))
            end_pair(pair);
        g_string_free(piece, TRUE);
    } else if (n <= 0 || !pass_on(pair->client.fd, data, (size_t)n, MSG_DONTWAIT)) {
        end_pair(pair);
    }
}

static void on_connection(struct ev_loop *loop, ev_io *io, int events)
{
    struct redis_proxy *proxy = io->data;
    struct sockaddr_un address = address_of(proxy->upstream);
    int client = accept(io->fd, NULL, NULL), server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pair *pair;

    (void)events;
    ck_assert_int_ge(client, 0);
    if (connect(server, (struct sockaddr *)&address, sizeof(address)) < 0) {
        close(client);
        close(server);
        return;
    }
    pair = g_new0(struct pair, 1);
    pair->proxy = proxy;
    ev_io_init(&pair->client, on_request, client, EV_READ);
    ev_io_init(&pair->server, on_answer, server, EV_READ);
    pair->client.data = pair->server.data = pair;
    ev_io_start(loop, &pair->client);
    ev_io_start(loop, &pair->server);
    LIST_INSERT_HEAD(&proxy->pairs, pair, link);
}

struct redis_proxy *redis_proxy_new(struct ev_loop *loop, const char *server)
{
    struct redis_proxy *proxy = g_new0(struct redis_proxy, 1);
    int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;

    proxy->loop = loop;
    proxy->directory = scratch_new();
    proxy->socket = g_build_filename(proxy->directory, "socket", NULL);
    proxy->upstream = g_strdup(server);
    LIST_INIT(&proxy->pairs);
    address = address_of(proxy->socket);
    ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(listening, 64), 0);
    ev_io_init(&proxy->listening, on_connection, listening, EV_READ);
    proxy->listening.data = proxy;
    ev_io_start(loop, &proxy->listening);
    return proxy;
}

void redis_proxy_free(struct redis_proxy *proxy)
{
    while (!LIST_EMPTY(&proxy->pairs))
        end_pair(LIST_FIRST(&proxy->pairs));
    ev_io_stop(proxy->loop, &proxy->listening);
    close(proxy->listening.fd);
    scratch_free(proxy->directory);
    g_free(proxy->socket);
    g_free(proxy->upstream);
    g_free(proxy);
}

const char *redis_proxy_socket(const struct redis_proxy *proxy)
{
    return proxy->socket;
}

void redis_proxy_lose(struct redis_proxy *proxy, const char *text, unsigned times, bool close)
{
    proxy->text = text;
    proxy->times = times;
    proxy->close = close;
}

void redis_proxy_lose_answer(struct redis_proxy *proxy, const char *text, unsigned times)
{
    proxy->request = text;
    proxy->request_times = times;
}

void redis_proxy_hold_back(struct redis_proxy *proxy, const char *text)
{
    proxy->late = text;
}

void redis_proxy_forward_held(struct redis_proxy *proxy)
{
    pass_on(proxy->held_for, (const char *)proxy->held->data, proxy->held->len, 0); /* which may be closed */
    close(proxy->held_for);
    g_byte_array_unref(proxy->held);
}

void redis_proxy_forge(struct redis_proxy *proxy, redis_proxy_forge_piece *forge, void *arg)
{
    proxy->forge = forge;
    proxy->forge_arg = arg;
}

unsigned redis_proxy_lost(const struct redis_proxy *proxy)
{
    return proxy->lost;
}
