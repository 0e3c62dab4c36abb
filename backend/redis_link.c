/* redis_link: one connection to a Redis server, on the loop. */
#include "redis_link.h"

#include <errno.h>
#include <glib.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "redis_tls.h"

/* Tells that it is closed, after closing it: the callee may open it again. */
static void fail(struct redis_link *link, const char *why)
{
    char text[sizeof(link->context->errstr)];

    g_strlcpy(text, why, sizeof(text)); /* is the context's, perhaps */
    redis_link_close(link);
    link->events->closed(link->arg, text);
}

static void fail_with_context(struct redis_link *link)
{
    const char *untrusted = link->tls ? redis_tls_error(link->tls) : NULL;

    fail(link, untrusted ? untrusted : link->context->errstr);
}

static void on_connected(struct redis_link *link)
{
    int error = 0;
    socklen_t length = sizeof(error);

    if (getsockopt(link->context->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        error = errno;
    if (!error && link->tls_name)
        error = -redis_tls_start(link->context, link->tls_name, &link->tls);
    if (error) {
        fail(link, link->context->err ? link->context->errstr : g_strerror(error));
        return;
    }
    link->state = REDIS_LINK_OPEN;
    ev_io_stop(link->loop, &link->writing);
    ev_io_start(link->loop, &link->reading);
    link->events->opened(link->arg);
}

static void on_writable(struct ev_loop *loop, struct ev_io *watcher, int events)
{
    struct redis_link *link = watcher->data;

    (void)loop, (void)events;
    if (link->state == REDIS_LINK_CONNECTING)
        on_connected(link);
    else if (link->context->err)
        fail_with_context(link);
    else if (link->state == REDIS_LINK_OPEN)
        redis_link_flush(link);
}

static void on_readable(struct ev_loop *loop, struct ev_io *watcher, int events)
{
    struct redis_link *link = watcher->data;
    redisContext *context = link->context;
    int status = redisBufferRead(context);
    void *reply = NULL;

    (void)loop, (void)events;
    /* what came before the end is heard too */
    do {
        if (redisReaderGetReply(context->reader, &reply) != REDIS_OK) {
            fail(link, context->reader->errstr);
            return;
        }
        if (reply)
            link->events->replied(link->arg, reply);
    } while (reply && link->context == context);
    if (link->context != context)
        return; /* closed by the callee */
    if (status != REDIS_OK)
        fail_with_context(link);
    else if (link->tls)
        redis_link_flush(link); /* its output may have waited for this input */
}

void redis_link_init(struct redis_link *link, struct ev_loop *loop, const struct redis_link_events *events, void *arg)
{
    *link = (struct redis_link){.loop = loop, .events = events, .arg = arg};
}

static void set_options(int fd, bool keepalive)
{
    static const int on = 1, idle = 15, interval = 5, count = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (!keepalive)
        return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

int redis_link_open(struct redis_link *link, const struct redis_address *address, const char *tls_name, bool keepalive)
{
    const struct sockaddr *to = (const struct sockaddr *)&address->address;
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), r;

    if (fd < 0)
        return -errno;
    if (to->sa_family != AF_UNIX)
        set_options(fd, keepalive);
    if (connect(fd, to, address->length) < 0 && errno != EINPROGRESS) {
        r = -errno;
        close(fd);
        return r;
    }
    link->context = redisConnectFd(fd);
    if (!link->context) {
        close(fd);
        return -ENOMEM;
    }
    link->context->flags &= ~REDIS_BLOCK;
    link->tls_name = tls_name;
    link->state = REDIS_LINK_CONNECTING;
    ev_io_init(&link->reading, on_readable, fd, EV_READ);
    ev_io_init(&link->writing, on_writable, fd, EV_WRITE);
    link->reading.data = link->writing.data = link;
    ev_io_start(link->loop, &link->writing);
    return 0;
}

void redis_link_close(struct redis_link *link)
{
    if (!link->context)
        return;
    ev_io_stop(link->loop, &link->reading);
    ev_io_stop(link->loop, &link->writing);
    redisFree(link->context); /* closes the socket */
    link->context = NULL;
    link->tls = NULL;
    link->state = REDIS_LINK_CLOSED;
}

void redis_link_append(struct redis_link *link, int count, const char **arguments, const size_t *lengths)
{
    if (redisAppendCommandArgv(link->context, count, arguments, lengths) != REDIS_OK)
        ev_io_start(link->loop, &link->writing); /* tells of the error */
}

bool redis_link_flush(struct redis_link *link)
{
    int done = 0;

    if (redisBufferWrite(link->context, &done) != REDIS_OK) {
        ev_feed_event(link->loop, &link->writing, EV_WRITE);
        return false;
    }
    if (done || (link->tls && redis_tls_wants_input(link->tls)))
        ev_io_stop(link->loop, &link->writing);
    else
        ev_io_start(link->loop, &link->writing);
    return true;
}
