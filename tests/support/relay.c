/* relay: loses what servers answer. */
#include "tests/support/relay.h"

#include <arpa/inet.h>
#include <check.h>
#include <ev.h>
#include <glib.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
    LIST_ENTRY(pair) link;
    ev_io client, server;
};

struct door {
    ev_io listening;
    uint16_t to;
};

static struct ev_loop *loop;
static struct door doors[8];
static unsigned count;
static LIST_HEAD(, pair) pairs = LIST_HEAD_INITIALIZER(pairs);
static bool deaf, cutting, closed;

static void end_pair(struct pair *pair)
{
    ev_io_stop(loop, &pair->client);
    ev_io_stop(loop, &pair->server);
    close(pair->client.fd);
    close(pair->server.fd);
    LIST_REMOVE(pair, link);
    g_free(pair);
}

static bool pass_on(int fd, const char *data, ssize_t length)
{
    for (ssize_t n; length > 0; data += n, length -= n) {
        n = send(fd, data, (size_t)length, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
    }
    return true;
}

static void on_request(struct ev_loop *l, ev_io *io, int events)
{
    struct pair *pair = io->data;
    char data[65536];
    ssize_t n = read(io->fd, data, sizeof data);
    (void)l, (void)events;
    if (n <= 0 || !pass_on(pair->server.fd, data, n))
        end_pair(pair);
}

static void on_answer(struct ev_loop *l, ev_io *io, int events)
{
    struct pair *pair = io->data;
    char data[65536];
    ssize_t n = read(io->fd, data, sizeof data);
    (void)l, (void)events;
    if (cutting)
        relay_reset();
    else if (n <= 0 || (!deaf && !pass_on(pair->client.fd, data, n)))
        end_pair(pair);
}

static struct sockaddr_in address_of(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void on_connection(struct ev_loop *l, ev_io *io, int events)
{
    const struct door *door = io->data;
    struct sockaddr_in address = address_of(door->to);
    int client = accept(io->fd, NULL, NULL), server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)events;
    ck_assert_int_ge(client, 0);
    if (closed || connect(server, (struct sockaddr *)&address, sizeof address) < 0) {
        close(client);
        close(server);
        return;
    }
    struct pair *pair = g_new0(struct pair, 1);
    ev_io_init(&pair->client, on_request, client, EV_READ);
    ev_io_init(&pair->server, on_answer, server, EV_READ);
    pair->client.data = pair->server.data = pair;
    ev_io_start(l, &pair->client);
    ev_io_start(l, &pair->server);
    LIST_INSERT_HEAD(&pairs, pair, link);
}

uint16_t relay_to(struct ev_loop *of, uint16_t port)
{
    struct sockaddr_in address = address_of(0);
    socklen_t size = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_uint_lt(count, G_N_ELEMENTS(doors));
    struct door *door = &doors[count++];
    loop = of;
    ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(listening, 64), 0);
    ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&address, &size), 0);
    door->to = port;
    ev_io_init(&door->listening, on_connection, listening, EV_READ);
    door->listening.data = door;
    ev_io_start(loop, &door->listening);
    return ntohs(address.sin_port);
}

void relay_end(void)
{
    relay_reset();
    for (; count > 0; count--) {
        ev_io_stop(loop, &doors[count - 1].listening);
        close(doors[count - 1].listening.fd);
    }
}

void relay_be_deaf(void)
{
    deaf = true;
}

void relay_cut(void)
{
    cutting = true;
}

void relay_close(void)
{
    relay_reset();
    closed = true;
}

void relay_reset(void)
{
    deaf = cutting = closed = false;
    while (!LIST_EMPTY(&pairs))
        end_pair(LIST_FIRST(&pairs));
}
