/* link: one connection to a Redis server, on the loop.
 *
 * Bytes and replies are hiredis': its context, output buffer and parser.  Not its
 * asynchronous layer, whose callbacks may find their context freed, which aborts
 * on replies that it does not expect, and which does not time out in 0.14: the
 * replies come here in order, to one function, and whoever asked counts.
 *
 * The process must ignore SIGPIPE.
 */
#ifndef BACKEND_REDIS_CONN_LINK_H
#define BACKEND_REDIS_CONN_LINK_H

#include <ev.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "backend/remote/resolve.h"

struct ssl_st;

/* The largest reply that is accepted.  Ours are far smaller, but the server may be a stranger's, or have a stranger's
 * data. */
#define REDIS_REPLY_ELEMENTS 65536
#define REDIS_REPLY_BYTES (8 << 20)

/* Refuses larger ones before memory is taken for them. */
struct redis_cap {
    redisReplyObjectFunctions functions;
    const redisReplyObjectFunctions *plain;
    size_t elements, bytes; /* of the reply that is being read */
    bool exceeded;
};

/* Caps the replies of a context; the structure must outlive it. */
void redis_cap(struct redis_cap *cap, redisContext *context);
/* Is the part of a reply that has arrived, or the size that it announces, too large? */
bool redis_cap_exceeded(struct redis_cap *cap, const redisContext *context);

/* Why there is no connection. */
enum redis_failure {
    REDIS_NOT_LOCATED,   /* no Sentinel or node of the Cluster names the server */
    REDIS_NOT_RESOLVED,  /* the host name has no address */
    REDIS_NOT_CONNECTED, /* connect(2) failed, or took too long */
    REDIS_NO_MEMORY,
    REDIS_NO_TLS,   /* the handshake failed, or the certificate is not trusted */
    REDIS_NO_REDIS, /* the peer speaks another protocol */
    REDIS_CLOSED,   /* the server closed the connection */
    REDIS_BROKEN,   /* any other error of the connection */
    REDIS_SILENT,   /* no reply in time */
    REDIS_REFUSED,  /* the server refused a command without which the connection is useless */
};

/* Called from the loop, never from inside a call.  Each may close the link, and
 * open it again. */
struct redis_link_events {
    void (*opened)(void *arg);
    /* A reply of the server; now the callee's, to be freed with freeReplyObject. */
    void (*replied)(void *arg, redisReply *reply);
    /* The server or an error closed the connection. */
    void (*closed)(void *arg, enum redis_failure failure, const char *why);
};

enum redis_link_state { REDIS_LINK_CLOSED, REDIS_LINK_CONNECTING, REDIS_LINK_OPEN };

struct redis_link {
    struct ev_loop *loop;
    const struct redis_link_events *events;
    void *arg;
    enum redis_link_state state;
    redisContext *context; /* NULL: closed */
    unsigned opened;       /* times: a new context may have the address of the old one */
    struct redis_cap cap;
    struct ssl_ctx_st *tls_trust;
    const char *tls_name; /* NULL: plain */
    struct ssl_st *tls;   /* NULL: plain, or not connected yet; belongs to the context */
    struct ev_io reading;
    struct ev_io writing; /* active while output waits, or the connection is being made */
};

void redis_link_init(struct redis_link *link, struct ev_loop *loop, const struct redis_link_events *events, void *arg);

/* Begins to connect a link that is closed; 0 or -errno.  `tls_name`: speak TLS,
 * and the server's certificate must be for this name and signed by one of
 * `tls_trust` (both borrowed while it is open); NULL: plain.  `keepalive` sets TCP
 * keepalive: a peer that is gone is noticed within 30 s. */
int redis_link_open(struct redis_link *link, const struct remote_address *address, struct ssl_ctx_st *tls_trust,
                    const char *tls_name, bool keepalive);

/* Is it open, but its TLS handshake not done? */
bool redis_link_in_handshake(const struct redis_link *link);

/* Closes it without an event, if it is open.  Unwritten output is dropped. */
void redis_link_close(struct redis_link *link);

/* The same, and over TCP bytes that are still on their way never arrive: the server must not carry out an old request
 * behind those of the next connection. */
void redis_link_abandon(struct redis_link *link);

/* Appends a command to the output of a link that is open. */
void redis_link_append(struct redis_link *link, int count, const char **arguments, const size_t *lengths);

/* Writes what was appended, as far as the socket takes it now, the rest from the
 * loop.  False: it failed; `closed` follows from the loop. */
bool redis_link_flush(struct redis_link *link);

#endif
