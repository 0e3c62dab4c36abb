/* relay: loses, delays or changes what servers and mounts send; see relay.h. */
#include "tests/support/relay.h"

#include <arpa/inet.h>
#include <check.h>
#include <ev.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

struct relay {
    ev_io listening;
    uint16_t port, to;
    const char *text, *request, *late; /* of the rules */
    unsigned times, request_times, lost;
    bool close;
    relay_forge_piece *forge;
    void *forge_arg;
    GByteArray *held;
    int held_for; /* the server's end */
};

struct pair {
    LIST_ENTRY(pair) link;
    struct relay *relay;
    ev_io client, server;
    ev_timer request, answer; /* what waits because the relay is slow */
    bool unanswered;          /* its next answer is lost */
};

static struct ev_loop *loop;
static struct relay relays[8];
static unsigned count;
static LIST_HEAD(, pair) pairs = LIST_HEAD_INITIALIZER(pairs);
static bool deaf, mute, cutting, closed, stopped;
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

/* Blocks, because a script may be larger than a socket's buffer; but `flags` is MSG_DONTWAIT for forged answers.  Their
 * mount is on this loop and may not read them, and they need not arrive. */
static bool pass_on(int fd, const char *data, size_t length, int flags)
{
    for (ssize_t n; length > 0; data += n, length -= (size_t)n) {
        n = send(fd, data, length, MSG_NOSIGNAL | flags);
        if (n <= 0)
            return false;
    }
    return true;
}

static bool contains(const char *data, ssize_t length, const char *text)
{
    return length > 0 && memmem(data, (size_t)length, text, strlen(text));
}

static void request(struct pair *pair)
{
    struct relay *relay = pair->relay;
    char data[65536];
    ssize_t n = read(pair->client.fd, data, sizeof data);
    if (relay->request_times > 0 && contains(data, n, relay->request)) {
        relay->request_times--;
        pair->unanswered = true;
    }
    if (relay->late && contains(data, n, relay->late)) {
        relay->late = NULL;
        relay->held = g_byte_array_append(g_byte_array_new(), (const guint8 *)data, (guint)n);
        relay->held_for = dup(pair->server.fd);
        end_pair(pair);
    } else if (n <= 0 || (!mute && !pass_on(pair->server.fd, data, (size_t)n, 0))) {
        end_pair(pair);
    }
}

static bool forge(struct pair *pair, const char *data, ssize_t length)
{
    GString *piece = g_string_new_len(data, length);
    pair->relay->forge(pair->relay->forge_arg, piece);
    bool passed = pass_on(pair->client.fd, piece->str, piece->len, MSG_DONTWAIT);
    g_string_free(piece, TRUE);
    return passed;
}

static void answer(struct pair *pair)
{
    struct relay *relay = pair->relay;
    char data[65536];
    ssize_t n = read(pair->server.fd, data, sizeof data);
    bool open = n > 0;
    if (cutting) {
        relay_reset();
        return;
    }
    if (open && relay->times > 0 && contains(data, n, relay->text)) {
        relay->times--;
        relay->lost++;
        open = !relay->close;
    } else if (open && pair->unanswered) {
        relay->lost++;
        open = false;
    } else if (open && relay->forge) {
        open = forge(pair, data, n);
    } else if (open && !deaf) {
        open = pass_on(pair->client.fd, data, (size_t)n, 0);
    }
    if (!open)
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
    struct relay *relay = io->data;
    struct sockaddr_in address = address_of(relay->to);
    int client = accept4(io->fd, NULL, NULL, SOCK_CLOEXEC), server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int at_once = 1;
    (void)events;
    ck_assert_int_ge(client, 0);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    if (closed || connect(server, (struct sockaddr *)&address, sizeof address) < 0) {
        close(client);
        close(server);
        return;
    }
    struct pair *pair = g_new0(struct pair, 1);
    pair->relay = relay;
    ev_io_init(&pair->client, on_request, client, EV_READ);
    ev_io_init(&pair->server, on_answer, server, EV_READ);
    ev_timer_init(&pair->request, on_late_request, 0, 0);
    ev_timer_init(&pair->answer, on_late_answer, 0, 0);
    pair->client.data = pair->server.data = pair->request.data = pair->answer.data = pair;
    ev_io_start(l, &pair->client);
    ev_io_start(l, &pair->server);
    LIST_INSERT_HEAD(&pairs, pair, link);
}

struct relay *relay_to(struct ev_loop *of, uint16_t port)
{
    struct sockaddr_in address = address_of(0);
    socklen_t size = sizeof address;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_uint_lt(count, G_N_ELEMENTS(relays));
    struct relay *relay = &relays[count++];
    loop = of;
    ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(listening, 64), 0);
    ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&address, &size), 0);
    *relay = (struct relay){.port = ntohs(address.sin_port), .to = port};
    ev_io_init(&relay->listening, on_connection, listening, EV_READ);
    relay->listening.data = relay;
    ev_io_start(loop, &relay->listening);
    return relay;
}

uint16_t relay_port(const struct relay *relay)
{
    return relay->port;
}

void relay_end(void)
{
    relay_reset();
    for (; count > 0; count--) {
        ev_io_stop(loop, &relays[count - 1].listening);
        close(relays[count - 1].listening.fd);
    }
}

void relay_be_deaf(void)
{
    deaf = true;
}

void relay_be_mute(void)
{
    mute = true;
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
        ev_io_stop(loop, &relays[i].listening);
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
        ev_io_start(loop, &relays[i].listening);
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
    deaf = mute = cutting = closed = false;
    while (!LIST_EMPTY(&pairs))
        end_pair(LIST_FIRST(&pairs));
}

void relay_lose(struct relay *relay, const char *text, unsigned times, bool close)
{
    relay->text = text;
    relay->times = times;
    relay->close = close;
}

void relay_lose_answer(struct relay *relay, const char *text, unsigned times)
{
    relay->request = text;
    relay->request_times = times;
}

unsigned relay_lost(const struct relay *relay)
{
    return relay->lost;
}

void relay_hold_back(struct relay *relay, const char *text)
{
    relay->late = text;
}

void relay_forward_held(struct relay *relay)
{
    pass_on(relay->held_for, (const char *)relay->held->data, relay->held->len, 0); /* the server may have closed it */
    close(relay->held_for);
    g_byte_array_unref(relay->held);
}

void relay_forge(struct relay *relay, relay_forge_piece *change, void *arg)
{
    relay->forge = change;
    relay->forge_arg = arg;
}
