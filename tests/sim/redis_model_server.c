/* redis_model_server: the simulator's Redis server as a program, in place of redis-server, for tests that start a
 * server (REDIS_SERVER).
 *
 * It knows the arguments --port, --unixsocket and --requirepass, keeps nothing on disk, and has no replicas.
 */
#include <ev.h>
#include <glib.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/redis_model.h"

struct connection {
    struct redis_client *client;
    ev_io reading, writing;
    GByteArray *unsent;
};

static struct redis_model *model;
static GPtrArray *connections;
static struct ev_loop *loop;
static ev_timer timer;

static int64_t microseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t read_now(void *arg)
{
    (void)arg;
    return microseconds(CLOCK_MONOTONIC);
}

/* --- connections --- */

static void connection_end(struct connection *c)
{
    ev_io_stop(loop, &c->reading);
    ev_io_stop(loop, &c->writing);
    close(c->reading.fd);
    redis_client_close(c->client);
    g_byte_array_unref(c->unsent);
    g_ptr_array_remove(connections, c);
    g_free(c);
}

/* What there is for it is sent, as far as it takes it.  False: it has ended. */
static bool connection_send(struct connection *c)
{
    char data[65536];
    size_t length;
    while ((length = redis_client_receive(c->client, data, sizeof data)) > 0) {
        g_byte_array_append(c->unsent, (const guint8 *)data, (guint)length);
    }
    ssize_t sent =
        c->unsent->len ? send(c->reading.fd, c->unsent->data, c->unsent->len, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent > 0) {
        g_byte_array_remove_range(c->unsent, 0, (guint)sent);
    }
    if (c->unsent->len) {
        ev_io_start(loop, &c->writing);
        return true;
    }
    ev_io_stop(loop, &c->writing);
    if (redis_client_closed(c->client)) {
        connection_end(c);
        return false;
    }
    return true;
}

/* One of them may have said something that others are to hear; and keys are to run out. */
static void send_all(void)
{
    redis_model_work(model);
    for (guint i = 0; i < connections->len;) {
        i += connection_send(connections->pdata[i]);
    }
    int64_t next = redis_model_next(model);
    ev_timer_stop(loop, &timer);
    if (next < INT64_MAX) {
        ev_timer_set(&timer, (double)MAX(next - read_now(NULL), 0) / 1e6, 0);
        ev_timer_start(loop, &timer);
    }
}

static void on_timer(struct ev_loop *of, ev_timer *watcher, int events)
{
    (void)of, (void)watcher, (void)events;
    send_all();
}

static void on_writable(struct ev_loop *of, ev_io *watcher, int events)
{
    (void)of, (void)events;
    connection_send(watcher->data);
}

static void on_said(struct ev_loop *of, ev_io *watcher, int events)
{
    struct connection *c = watcher->data;
    char data[65536];
    ssize_t length = read(watcher->fd, data, sizeof data);
    (void)of, (void)events;
    if (length <= 0) {
        connection_end(c);
    } else {
        redis_client_send(c->client, data, (size_t)length);
    }
    send_all();
}

static void on_connected(struct ev_loop *of, ev_io *watcher, int events)
{
    int fd = accept4(watcher->fd, NULL, NULL, SOCK_CLOEXEC);
    (void)of, (void)events;
    if (fd < 0) {
        return;
    }
    struct connection *c = g_new0(struct connection, 1);
    c->client = redis_model_connect(model, c);
    c->unsent = g_byte_array_new();
    ev_io_init(&c->reading, on_said, fd, EV_READ);
    ev_io_init(&c->writing, on_writable, fd, EV_WRITE);
    c->reading.data = c->writing.data = c;
    ev_io_start(loop, &c->reading);
    g_ptr_array_add(connections, c);
}

/* --- beginning --- */

static void listen_at(ev_io *watcher, const struct sockaddr *address, socklen_t length)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, address, length) < 0 || listen(fd, 64) < 0) {
        perror("redis_model_server");
        exit(1);
    }
    ev_io_init(watcher, on_connected, fd, EV_READ);
    ev_io_start(loop, watcher);
}

static void name_run(void)
{
    char run[41], replication[41];
    for (size_t i = 0; i < 40; i++) {
        run[i] = "0123456789abcdef"[g_random_int_range(0, 16)];
        replication[i] = "0123456789abcdef"[g_random_int_range(0, 16)];
    }
    run[40] = replication[40] = '\0';
    redis_model_name_run(model, run, replication);
}

static const char *argument(char **arguments, const char *name)
{
    for (; *arguments; arguments++) {
        if (strcmp(*arguments, name) == 0) {
            return arguments[1];
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *port = argument(argv, "--port"), *path = argument(argv, "--unixsocket");
    (void)argc;
    if (!port || !path) {
        fputs("usage: redis_model_server --port PORT --unixsocket PATH [--requirepass PASSWORD]\n", stderr);
        return 1;
    }
    struct sockaddr_in inet = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct redis_model_options options = {
        .seed = g_random_int(), .now = read_now, .wall = microseconds(CLOCK_REALTIME) - microseconds(CLOCK_MONOTONIC)};
    ev_io listening[2];
    loop = ev_default_loop(EVFLAG_AUTO);
    g_strlcpy(local.sun_path, path, sizeof local.sun_path);
    unlink(path);
    model = redis_model_new(&options);
    name_run();
    redis_model_set_password(model, argument(argv, "--requirepass"));
    connections = g_ptr_array_new();
    ev_init(&timer, on_timer);
    listen_at(&listening[0], (struct sockaddr *)&inet, sizeof inet);
    listen_at(&listening[1], (struct sockaddr *)&local, sizeof local);
    return ev_run(loop, 0);
}
