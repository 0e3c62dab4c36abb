/* private: what the files of redis_conn share.
 *
 * conn.c     the states of the two connections; time
 * setup.c    what is said on a new connection before it is up
 * request.c  requests
 *
 * The last two know nothing of the states: what they find on a connection that
 * makes it useless they return, as one line in `error` (REDIS_ERROR_SIZE bytes).
 *
 * The connection for Pub/Sub is made first, since the other one must name it, and
 * to the same address, as the target of its tracking.
 */
#ifndef BACKEND_REDIS_CONN_PRIVATE_H
#define BACKEND_REDIS_CONN_PRIVATE_H

#include <ev.h>
#include <glib.h>
#include <sys/queue.h>

#include "backend/redis/conn/conn.h"
#include "backend/redis/conn/link.h"

#define REDIS_ERROR_SIZE 1024 /* all Sentinels that were asked, and why each is of no use */

enum redis_conn_state {
    REDIS_CONN_NEW,       /* not started */
    REDIS_CONN_PAUSE,     /* nothing is tried before `retry_at` */
    REDIS_CONN_RESOLVE,   /* locate.c finds the server, and its addresses are looked up */
    REDIS_CONN_SUBSCRIBE, /* the Pub/Sub connection is being made and set up */
    REDIS_CONN_PREPARE,   /* then the one for commands */
    REDIS_CONN_UP,
};

/* One command on a new connection. */
enum redis_step {
    REDIS_STEP_AUTH,
    REDIS_STEP_PING,
    REDIS_STEP_ROLE,
    REDIS_STEP_SELECT,
    REDIS_STEP_NAME,
    REDIS_STEP_SCRIPT,
    REDIS_STEP_ID,
    REDIS_STEP_SUBSCRIBE,
    REDIS_STEP_SUBSCRIBE_INVALIDATE,
    REDIS_STEP_TRACK,
    REDIS_STEP_GREET,
    REDIS_STEP_KILL,
    REDIS_STEP_INFO,
};

struct redis_peer { /* one of the two connections */
    struct redis_conn *conn;
    struct redis_link link;
    clock_ms connect_by;                    /* while it is being made */
    int64_t connect_timeout, setup_timeout; /* of this attempt: until it is made, and of each answer before it is up */
    clock_ms sent;                          /* when the set-up, or the probe, was sent */
    clock_ms last_reply;                    /* when the last reply came */
    GByteArray *steps;                      /* enum redis_step: what was said, in order */
    guint answered;                         /* how many of them were */
};

struct redis_request;
TAILQ_HEAD(redis_requests, redis_request);

struct redis_conn {
    struct redis_conn_options options;
    char *where; /* the server, for logs */
    struct ssl_ctx_st *tls_trust;
    const struct redis_script *scripts;
    size_t script_count;
    char **hashes; /* SHA-1 of each script */
    char stamp[REDIS_STAMP_MAX + 1];
    char former_stamp[REDIS_STAMP_MAX + 1]; /* when the last connection was begun */
    GRand *random;                          /* jitter */

    struct ev_loop *loop; /* NULL until started */
    const struct redis_conn_events *events;
    void *context;
    struct ev_timer alarm;
    struct ev_prepare work; /* fed, never started: runs after all other events of a turn */

    enum redis_conn_state state;
    char error[REDIS_ERROR_SIZE];  /* why it is not up, or what it refused at `refused_at` */
    char logged[REDIS_ERROR_SIZE]; /* what was logged last of that */
    struct redis_locate *locate;
    char *host;  /* where the server is, by a name or an address; NULL: not known, or a path */
    char *place; /* the same with its port, for messages; NULL: the URI has it */
    uint16_t port;
    struct remote_resolve *resolve;
    GArray *addresses; /* struct remote_address; NULL: not looked up yet */
    guint address;     /* the address that is tried */
    unsigned attempts; /* rounds over all addresses that failed */
    clock_ms retry_at;
    clock_ms needed_by; /* the last result of events->needed; if it is past, that is called again */
    clock_ms refused_at;
    struct redis_peer pubsub;
    struct redis_peer command;
    long long pubsub_id; /* CLIENT ID */
    bool may_track;      /* the invalidation channel is subscribed */
    bool tracking;
    bool tracking_logged; /* that there is none */
    char **former;        /* of the last connection for commands: CLIENT ID, and its address as the server sees it */
    bool killing_logged;  /* that it cannot be ended */
    bool probing;         /* a PING is under way on the Pub/Sub connection */
    bool watched;         /* something, since it is up */
    int keep;
    struct redis_conn_counts counts;
    bool was_up; /* ever */

    GHashTable *requests;              /* by id: requests whose callback has not been called */
    struct redis_requests live;        /* the same, oldest first */
    struct redis_requests waiting;     /* to be sent, in order */
    struct redis_requests held;        /* behind those, for a moment */
    struct redis_requests sent;        /* to be answered, in order; also forgotten ones */
    struct redis_requests delayed;     /* refused for the time being, in order */
    struct redis_requests unconfirmed; /* answered, in order; reported after the answer to WAIT */
    bool confirming;                   /* a WAIT is under way: nothing is sent before its answer */
    bool marked;                       /* the write before the last one was done */
    bool short_of_replicas;            /* the last one was not met */
    uint64_t last_id;
    clock_ms expire_at; /* no request's time is up before */
};

/* Schedules `work` for the end of this turn of the loop. */
static inline void redis_conn_wake(struct redis_conn *conn)
{
    if (conn->loop) {
        ev_feed_event(conn->loop, &conn->work, EV_CUSTOM);
    }
}

/* Does `error` describe the present? */
static inline bool redis_conn_is_away(const struct redis_conn *conn)
{
    return conn->error[0] && (conn->state != REDIS_CONN_UP || clock_now() - conn->refused_at <= conn->options.timeout);
}

/* --- setup.c --- */

/* Sends the commands of the set-up on a connection that was just made. */
void redis_conn_setup_begin(struct redis_peer *peer);
/* Is an answer to them still to come? */
bool redis_conn_setup_pending(const struct redis_peer *peer);
/* Takes the next answer, borrowed.  False: the connection is useless. */
bool redis_conn_setup_answer(struct redis_peer *peer, const redisReply *reply, char *error);

/* --- request.c --- */

void redis_conn_request_init(struct redis_conn *conn);
void redis_conn_request_free(struct redis_conn *conn);
/* It is up: calls `up`, then all may be sent. */
void redis_conn_request_resume(struct redis_conn *conn);
/* Sent requests wait again. */
void redis_conn_request_lost(struct redis_conn *conn);
/* A reply on the connection for commands; takes it.  False: the connection is useless. */
bool redis_conn_request_replied(struct redis_conn *conn, redisReply *reply, char *error);
/* Answers requests whose time is up, and sends waiting ones. */
void redis_conn_request_work(struct redis_conn *conn, clock_ms now);
/* When there is something to do for it next, but for replies; CLOCK_NEVER. */
clock_ms redis_conn_request_due(const struct redis_conn *conn);
/* When the oldest request that has no reply was sent; CLOCK_NEVER: none. */
clock_ms redis_conn_request_oldest(const struct redis_conn *conn);

#endif
