/* network: the connections between daemons and servers; see network.h.
 *
 * A connection is two queues of packets.  During a cut packets wait, and arrive afterwards, as with TCP, unless the
 * daemon has closed the connection.  So a server may carry out a request long after it was sent, and again on another
 * connection.
 */
#include "tests/sim/network.h"

#include <errno.h>
#include <ev.h>
#include <glib.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/sim/descriptor.h"
#include "tests/sim/redis_model.h"

#define NETWORK_RETRY (100 * WORLD_MS)

struct packet {
    int64_t due;
    GByteArray *bytes; /* NULL: the end */
};

enum { TO_SERVER, TO_DAEMON };

struct network_server {
    struct redis_model *model;
    unsigned node, port;
    int64_t rate;
};

struct network_socket {
    struct host *host;
    struct network_server *server; /* NULL: not known yet, or there is none */
    struct redis_client *client;   /* NULL: not connected */
    unsigned references;           /* the descriptor, and events to come */
    GQueue *packets[2];
    bool pumping[2];
    GByteArray *arrived, *unsent; /* the daemon's: to be read, to be written */
    int64_t slow;
    int error;     /* of connect; ECONNRESET */
    bool commands; /* the second connection of the two */
    bool connected, ended, closed;
    bool said;      /* the server has something for it */
    bool abandoned; /* close resets it */
};

static struct {
    GPtrArray *servers;
    GPtrArray *sockets;                          /* that have a descriptor, or a client */
    uint8_t cut[NETWORK_PLACES][NETWORK_PLACES]; /* how often */
    int64_t work;                                /* when it is called next */
} network;

static void network_work(void *arg);

int64_t network_clock(int64_t rate)
{
    int64_t now = world_now() / 1000;
    return now + now * rate / 1000000;
}

/* When such a clock will show that, or a moment later. */
static int64_t network_clock_at(int64_t rate, int64_t clock)
{
    return rate ? (clock - clock * rate / (1000000 + rate) + 2) * 1000 : clock * 1000;
}

void network_begin(void)
{
    network.sockets = g_ptr_array_new();
    network.servers = g_ptr_array_new();
    network.work = WORLD_NEVER;
}

void network_add(struct redis_model *model, unsigned node, unsigned port, int64_t rate)
{
    const struct network_server server = {model, node, port, rate};
    g_ptr_array_add(network.servers, g_memdup2(&server, sizeof server));
}

struct redis_model *network_server(void)
{
    return ((const struct network_server *)network.servers->pdata[0])->model;
}

static void network_unref(struct network_socket *s)
{
    if (--s->references == 0) {
        g_ptr_array_remove(network.sockets, s);
        for (int i = 0; i < 2; i++) {
            g_queue_free(s->packets[i]);
        }
        g_byte_array_unref(s->arrived);
        g_byte_array_unref(s->unsent);
        g_free(s);
    }
}

static bool network_is_cut(const struct network_socket *s)
{
    return s->server && network_is_parted(s->host->index, MOUNTS_MAX + s->server->node);
}

/* --- packets ------------------------------------------------------------------------- */

static void network_deliver(struct network_socket *s, int direction, GByteArray *bytes)
{
    if (direction == TO_SERVER && s->client) {
        if (bytes) {
            redis_client_send(s->client, bytes->data, bytes->len);
        } else {
            redis_client_close(s->client);
            s->client = NULL;
        }
        network_look_at_server();
    } else if (direction == TO_DAEMON && !s->closed) {
        if (bytes) {
            g_byte_array_append(s->arrived, bytes->data, bytes->len);
        } else {
            s->ended = true;
        }
    }
    if (bytes) {
        g_byte_array_unref(bytes);
    }
}

struct network_pump {
    struct network_socket *socket;
    int direction;
};

static void network_pump(void *arg)
{
    struct network_pump *pump = arg;
    struct network_socket *s = pump->socket;
    struct packet *first;
    while ((first = g_queue_peek_head(s->packets[pump->direction])) && first->due <= world_now() &&
           !network_is_cut(s)) {
        struct packet packet = *first;
        g_free(g_queue_pop_head(s->packets[pump->direction]));
        network_deliver(s, pump->direction, packet.bytes);
    }
    if (first) {
        world_at(network_is_cut(s) ? world_now() + NETWORK_RETRY : first->due, network_pump, pump);
        return;
    }
    s->pumping[pump->direction] = false;
    g_free(pump);
    network_unref(s);
}

static void network_queue(struct network_socket *s, int direction, GByteArray *bytes)
{
    const struct packet *last = g_queue_peek_tail(s->packets[direction]);
    int64_t due = world_now() + s->slow + world_between(30, world_chance(100) ? 3000 : 300) * WORLD_US;
    struct packet packet = {last ? MAX(due, last->due) : due, bytes};
    g_queue_push_tail(s->packets[direction], g_memdup2(&packet, sizeof packet));
    if (!s->pumping[direction]) {
        struct network_pump *pump = g_new0(struct network_pump, 1);
        *pump = (struct network_pump){s, direction};
        s->pumping[direction] = true;
        s->references++;
        world_at(packet.due, network_pump, pump);
    }
}

/* In one piece or two. */
static void network_send(struct network_socket *s, int direction, const void *data, size_t size)
{
    size_t first = size > 1 && world_chance(100) ? 1 + world_below((uint32_t)size - 1) : size;
    GByteArray *bytes = g_byte_array_sized_new((guint)first);
    g_byte_array_append(bytes, data, (guint)first);
    network_queue(s, direction, bytes);
    if (first < size) {
        bytes = g_byte_array_sized_new((guint)(size - first));
        g_byte_array_append(bytes, (const guint8 *)data + first, (guint)(size - first));
        network_queue(s, direction, bytes);
    }
}

/* --- the server ------------------------------------------------------------------------ */

static void network_fetch(struct network_socket *s)
{
    char buffer[4096];
    size_t size;
    while ((size = redis_client_receive(s->client, buffer, sizeof buffer)) > 0) {
        network_send(s, TO_DAEMON, buffer, size);
    }
    if (redis_client_closed(s->client)) {
        redis_client_close(s->client);
        s->client = NULL;
        network_queue(s, TO_DAEMON, NULL);
    }
}

void network_hear(void *arg, struct redis_client *client)
{
    struct network_socket *s = redis_client_user(client);
    (void)arg;
    s->said = true;
}

void network_look_at_server(void)
{
    for (guint i = 0; i < network.sockets->len; i++) {
        struct network_socket *s = g_ptr_array_index(network.sockets, i);
        if (s->client && s->said) {
            s->said = false;
            network_fetch(s);
        }
    }
    for (guint i = 0; i < network.servers->len; i++) {
        const struct network_server *server = network.servers->pdata[i];
        int64_t next = redis_model_next(server->model);
        if (next < INT64_MAX / 2000 && network_clock_at(server->rate, next) < network.work) {
            network.work = network_clock_at(server->rate, next);
            world_at(network.work, network_work, NULL);
        }
    }
}

static void network_work(void *arg)
{
    (void)arg;
    if (world_now() >= network.work) {
        network.work = WORLD_NEVER;
        for (guint i = 0; i < network.servers->len; i++) {
            redis_model_work(((const struct network_server *)network.servers->pdata[i])->model);
        }
        network_look_at_server();
    }
}

/* --- the daemon's end -------------------------------------------------------------------- */

static void network_connected(void *arg)
{
    struct network_socket *s = arg;
    if (network_is_cut(s) && !s->closed) {
        world_after(NETWORK_RETRY, network_connected, s);
        return;
    }
    if (!s->closed) {
        s->client = s->server ? redis_model_connect(s->server->model, s) : NULL;
        s->connected = s->client != NULL;
        s->error = s->client ? 0 : ECONNREFUSED;
        network_look_at_server();
    }
    network_unref(s);
}

int network_ready(const struct network_socket *s)
{
    bool readable = s->arrived->len || s->ended || s->error;
    bool writable = s->connected || s->error;
    return (readable ? EV_READ : 0) | (writable ? EV_WRITE : 0);
}

void network_close(struct network_socket *s)
{
    struct packet *packet;
    s->closed = true;
    while (s->abandoned && network_is_cut(s) && (packet = g_queue_pop_tail(s->packets[TO_SERVER]))) {
        g_clear_pointer(&packet->bytes, g_byte_array_unref); /* nobody sends again what could not be sent */
        g_free(packet);
    }
    if (s->client) {
        network_queue(s, TO_SERVER, NULL);
    }
    network_unref(s);
}

void network_drop(const struct host *host)
{
    for (guint i = network.sockets->len; i-- > 0;) {
        struct network_socket *s = g_ptr_array_index(network.sockets, i);
        if (s->host == host && !s->closed) {
            network_close(s);
        }
    }
}

/* --- faults -------------------------------------------------------------------------------- */

void network_part(unsigned a, unsigned b, bool cut)
{
    network.cut[a][b] = (uint8_t)(network.cut[a][b] + (cut ? 1 : -1));
    network.cut[b][a] = network.cut[a][b];
}

bool network_is_parted(unsigned a, unsigned b)
{
    return network.cut[a][b];
}

void network_cut(const struct host *host, bool cut)
{
    for (unsigned i = 0; i < NETWORK_NODES; i++) {
        network_part(host->index, MOUNTS_MAX + i, cut);
    }
}

/* Data on the way to the server arrives when the daemon has long had another connection, or is lost. */
static void network_linger(struct network_socket *s)
{
    int64_t by = world_chance(500) ? world_between(1, 500) * WORLD_MS : 0;
    for (GList *at = s->packets[TO_SERVER]->head; at; at = at->next) {
        ((struct packet *)at->data)->due += by;
    }
    network_queue(s, TO_SERVER, NULL);
}

unsigned network_reset(const struct host *host)
{
    unsigned count = 0;
    for (guint i = 0; i < network.sockets->len; i++) {
        struct network_socket *s = g_ptr_array_index(network.sockets, i);
        if (s->host == host && !s->closed && s->connected && !s->error) {
            s->error = ECONNRESET;
            count++;
            if (s->client && world_chance(500)) { /* what was under way is lost, too */
                redis_client_close(s->client);
                s->client = NULL;
            } else if (s->client) {
                network_linger(s);
            }
        }
    }
    return count;
}

bool network_slow(const struct host *host, bool commands, int64_t by)
{
    bool found = false;
    for (guint i = 0; i < network.sockets->len; i++) {
        struct network_socket *s = g_ptr_array_index(network.sockets, i);
        if (s->host == host && s->commands == commands && !s->closed) {
            s->slow = by;
            found = true;
        }
    }
    return found;
}

bool network_halve_reply(const struct host *host)
{
    for (guint i = 0; i < network.sockets->len; i++) {
        struct network_socket *s = g_ptr_array_index(network.sockets, i);
        if (s->host == host && s->client && s->commands) {
            redis_client_cut(s->client, 1 + world_below(40));
            network_look_at_server();
            return true;
        }
    }
    return false;
}

/* --- in place of the C library and of hiredis ------------------------------------------------- */

int __wrap_socket(int domain, int type, int protocol);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_setsockopt(int fd, int level, int option, const void *value, socklen_t length);
int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length);
int __wrap_redisAppendFormattedCommand(redisContext *context, const char *text, size_t length);
int __wrap_redisBufferWrite(redisContext *context, int *done);
int __wrap_redisBufferRead(redisContext *context);
void __real_redisFree(redisContext *context);
void __wrap_redisFree(redisContext *context);

int __wrap_socket(int domain, int type, int protocol)
{
    struct network_socket *s = g_new0(struct network_socket, 1);
    (void)domain, (void)type, (void)protocol;
    s->host = world_host();
    s->references = 1;
    s->packets[TO_SERVER] = g_queue_new();
    s->packets[TO_DAEMON] = g_queue_new();
    s->arrived = g_byte_array_new();
    s->unsent = g_byte_array_new();
    g_ptr_array_add(network.sockets, s);
    return descriptor_new(DESCRIPTOR_SOCKET, s);
}

static struct network_server *network_find(const struct sockaddr *address)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
    for (guint i = 0; i < network.servers->len; i++) {
        struct network_server *server = network.servers->pdata[i];
        if (address->sa_family == AF_UNIX ||
            (ntohl(in->sin_addr.s_addr) == NETWORK_ADDRESS + server->node && ntohs(in->sin_port) == server->port)) {
            return server;
        }
    }
    return NULL;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    struct network_socket *s = descriptor_object(fd, DESCRIPTOR_SOCKET);
    (void)length;
    s->server = network_find(address);
    for (guint i = 0; i < network.sockets->len; i++) {
        const struct network_socket *other = g_ptr_array_index(network.sockets, i);
        s->commands =
            s->commands || (other != s && other->host == s->host && other->server == s->server && !other->closed);
    }
    s->references++;
    world_after(world_between(50, 1000) * WORLD_US, network_connected, s);
    errno = EINPROGRESS;
    return -1;
}

int __wrap_setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
    struct network_socket *s = descriptor_object(fd, DESCRIPTOR_SOCKET);
    (void)value, (void)length;
    s->abandoned = s->abandoned || (level == SOL_SOCKET && option == SO_LINGER);
    return 0;
}

int __wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
    const struct network_socket *s = descriptor_object(fd, DESCRIPTOR_SOCKET);
    (void)level, (void)option, (void)length;
    memcpy(value, &s->error, sizeof s->error);
    return 0;
}

int __wrap_redisAppendFormattedCommand(redisContext *context, const char *text, size_t length)
{
    struct network_socket *s = descriptor_object(context->fd, DESCRIPTOR_SOCKET);
    g_byte_array_append(s->unsent, (const guint8 *)text, (guint)length);
    return REDIS_OK;
}

static int network_fail(redisContext *context, int error, const char *why)
{
    context->err = error;
    g_strlcpy(context->errstr, why, sizeof context->errstr);
    return REDIS_ERR;
}

int __wrap_redisBufferWrite(redisContext *context, int *done)
{
    struct network_socket *s = descriptor_object(context->fd, DESCRIPTOR_SOCKET);
    if (context->err) {
        return REDIS_ERR;
    }
    if (s->error) {
        return network_fail(context, REDIS_ERR_IO, g_strerror(s->error));
    }
    if (s->unsent->len) {
        network_send(s, TO_SERVER, s->unsent->data, s->unsent->len);
        g_byte_array_set_size(s->unsent, 0);
    }
    *done = 1;
    return REDIS_OK;
}

int __wrap_redisBufferRead(redisContext *context)
{
    struct network_socket *s = descriptor_object(context->fd, DESCRIPTOR_SOCKET);
    if (context->err) {
        return REDIS_ERR;
    }
    if (s->error) {
        return network_fail(context, REDIS_ERR_IO, g_strerror(s->error));
    }
    if (s->arrived->len) {
        redisReaderFeed(context->reader, (const char *)s->arrived->data, s->arrived->len);
        g_byte_array_set_size(s->arrived, 0);
        return REDIS_OK;
    }
    return s->ended ? network_fail(context, REDIS_ERR_EOF, "Server closed the connection") : REDIS_OK;
}

void __wrap_redisFree(redisContext *context)
{
    descriptor_close(context->fd);
    context->fd = -1;
    __real_redisFree(context);
}
