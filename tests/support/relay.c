/* relay: loses or delays what servers and mounts say. */
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
    ev_timer request, answer; /* what waits because the relay is slow */
};

struct door {
    ev_io listening;
    uint16_t to;
};

static struct ev_loop *loop;
static struct door doors[8];
static unsigned count;
static LIST_HEAD(, pair) pairs = LIST_HEAD_INITIALIZER(pairs);
static bool deaf, cutting, closed, stopped;
static double slow; /* s */

static void end_pair(struct pair *pair)
{
    ev_io_stop(loop, &pair->client);
    ev_io_stop(loop, &pair->server);
    ev_timer_stop(loop, &pair->request);
    ev_timer_stop(loop, &pair->answer);
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

static void request(struct pair *pair)
{
    char data[65536];
    ssize_t n = read(pair->client.fd, data, sizeof data);
    if (n <= 0 || !pass_on(pair->server.fd, data, n))
        end_pair(pair);
}

static void answer(struct pair *pair)
{
    char data[65536];
    ssize_t n = read(pair->server.fd, data, sizeof data);
    if (cutting)
        relay_reset();
    else if (n <= 0 || (!deaf && !pass_on(pair->client.fd, data, n)))
        end_pair(pair);
}

static void later(ev_io *io, ev_timer *timer)
{
    ev_io_stop(loop, io);
    ev_timer_set(timer, slow, 0);
    ev_timer_start(loop, timer);
}

static void on_request(struct ev_loop *l, ev_io *io, int events)
{
    struct pair *pair = io->data;
    (void)l, (void)events;
    if (slow > 0)
        later(io, &pair->request);
    else
        request(pair);
}

static void on_answer(struct ev_loop *l, ev_io *io, int events)
{
    struct pair *pair = io->data;
    (void)l, (void)events;
    if (slow > 0)
        later(io, &pair->answer);
    else
        answer(pair);
}

static void on_late_request(struct ev_loop *l, ev_timer *timer, int events)
{
    struct pair *pair = timer->data;
    (void)events;
    if (!stopped)
        ev_io_start(l, &pair->client);
    request(pair);
}

static void on_late_answer(struct ev_loop *l, ev_timer *timer, int events)
{
    struct pair *pair = timer->data;
    (void)events;
    if (!stopped)
        ev_io_start(l, &pair->server);
    answer(pair);
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
    int client = accept4(io->fd, NULL, NULL, SOCK_CLOEXEC), server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
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
    ev_timer_init(&pair->request, on_late_request, 0, 0);
    ev_timer_init(&pair->answer, on_late_answer, 0, 0);
    pair->client.data = pair->server.data = pair->request.data = pair->answer.data = pair;
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

void relay_stop(void)
{
    struct pair *pair;
    stopped = true;
    for (unsigned i = 0; i < count; i++)
        ev_io_stop(loop, &doors[i].listening);
    LIST_FOREACH(pair, &pairs, link) {
        ev_io_stop(loop, &pair->client);
        ev_io_stop(loop, &pair->server);
    }
}

void relay_continue(void)
{
    struct pair *pair;
    stopped = false;
    slow = 0;
    for (unsigned i = 0; i < count; i++)
        ev_io_start(loop, &doors[i].listening);
    LIST_FOREACH(pair, &pairs, link) {
        ev_io_start(loop, &pair->client);
        ev_io_start(loop, &pair->server);
    }
}

void relay_be_slow(int64_t ms)
{
    slow = (double)ms / 1e3;
}

void relay_reset(void)
{
    deaf = cutting = closed = false;
    while (!LIST_EMPTY(&pairs))
        end_pair(LIST_FIRST(&pairs));
}
