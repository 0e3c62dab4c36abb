/* conn: one Redis server, as the backend sees it.
 *
 * It keeps two connections of hiredis on the loop: one for commands, one for Pub/Sub.
 * When they are lost, it makes both again, with jittered backoff, and sends
 * pending requests again until their timeout.  So a request must be safe to
 * repeat: the server may have carried it out although the reply was lost.
 *
 * Up means: connected, authenticated, database selected, scripts loaded,
 * subscribed, and tracking what `redis_conn_watch` names.  Requests
 * that arrive while it is not up wait in order.  Requests sent in one turn of the
 * loop leave in one write.
 *
 * Every request is answered exactly once, never from inside a call, and within
 * its time; times are milliseconds of CLOCK_BOOTTIME.
 *
 * Events and answers come from the loop, and may call anything here but
 * redis_conn_free.  The process must ignore SIGPIPE.
 */
#ifndef BACKEND_REDIS_CONN_CONN_H
#define BACKEND_REDIS_CONN_CONN_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/clock.h"
#include "backend/redis/conn/link.h"
#include "backend/redis/conn/uri.h"
#include "backend/remote/remote.h"

struct ev_loop;
struct redis_conn;

#define REDIS_TIMEOUT_DEFAULT 5000         /* of a request, all tries */
#define REDIS_COMMAND_TIMEOUT_DEFAULT 2000 /* of one reply: then the connection is given up */
#define REDIS_CONNECT_TIMEOUT_DEFAULT 2000
#define REDIS_RETRY_MIN 20 /* before the second connection attempt, doubled for each, ±50 % */
#define REDIS_RETRY_MAX 2000
#define REDIS_RETRY_SOON 100   /* the same when it is needed soon: see struct redis_conn_events */
#define REDIS_CONNECT_SOON 250 /* the time limit of an attempt is at least this then */
#define REDIS_STAMP_MAX 31
#define REDIS_STEADY 200 /* after so long a time up, the pauses start at the minimum again */

struct redis_conn_options {
    struct redis_uri uri;                          /* copied */
    const char *user;                              /* overrides the URI's; NULL: that */
    const char *password;                          /* NULL: none; copied, never logged */
    const char *sentinel_user, *sentinel_password; /* the same, for the Sentinels */
    const char *prefix;                            /* what every key begins with, in a Cluster; copied */
    int64_t timeout;                               /* 0: the defaults above */
    int64_t command_timeout;
    int64_t connect_timeout;
    int64_t retry_max;                /* between two attempts to connect; 0: REDIS_RETRY_MAX */
    unsigned wait;                    /* replicas that must confirm a write; 0: none */
    const char *mark;                 /* a key that is written and deleted before they are asked; copied */
    bool keepalive;                   /* TCP keepalive (15 s) */
    const char *channel;              /* this mount's, subscribed; copied */
    uint32_t seed;                    /* of the jitter */
    const struct redis_script *greet; /* one of the table, or NULL: called on each new connection before it is up */
};

/* A script, as one of a static table. */
struct redis_script {
    const char *name; /* for logs */
    const char *text;
    bool confirmed; /* `wait` replicas must confirm what it wrote before its answer is reported */
};

struct redis_argument {
    const char *data;
    size_t length;
};

/* An outcome and its details.  Valid during the callback only. */
struct redis_answer {
    enum remote_outcome outcome;
    const redisReply *reply; /* of the server; an error if it is REFUSED; else NULL */
    const char **keys;       /* of a script, with their lengths */
    const size_t *key_lengths;
    size_t key_count; /* 0: a plain command, or a script without keys */
    clock_ms sent;    /* before the try that was answered (or the last) was sent; 0 if never */
    bool repeated;    /* an earlier try was sent too, and may have been carried out */
};

typedef void redis_answered(void *arg, const struct redis_answer *answer);

struct redis_conn_events {
    /* Calls redis_conn_greet. */
    void (*greet)(void *context);
    /* The reply of the script `greet`, which is no error.  False: the connection is useless. */
    bool (*greeted)(void *context, const redisReply *reply);
    /* It is up (again).  Called before requests that wait are sent, so that
     * requests made from inside it (to extend what is held) go first. */
    void (*up)(void *context);
    /* It was up and is not any more. */
    void (*down)(void *context, const char *why);
    /* A message on our channel. */
    void (*message)(void *context, const char *data, size_t length);
    /* A key that was watched has changed or is gone (this may come before the
     * answer to the watch); or with NULL: any may have, as after `up`. */
    void (*changed)(void *context, const char *key, size_t length);
    /* By when it should be up again, so that nothing is lost, or CLOCK_NEVER: the pauses between attempts are an eighth
     * of what is left until then, and an attempt takes half of it.  Asked while it is not up, and again when that is
     * over; NULL: there is no such time.
     */
    clock_ms (*needed)(void *context);

    /* For a connection that is only tried; NULL: failures and refusals are logged instead. */

    /* All addresses of the server have failed, or the connection was lost; `why` is one line without the server's name,
     * escaped.  It tries again after this. */
    void (*failed)(void *context, enum redis_failure failure, const char *why);
    /* The server refuses a command of the set-up (a channel may follow the command), or the answer is useless.  True:
     * go on without it. */
    bool (*refused)(void *context, const char *command, const char *why);
};

/* What `refused` gets for ROLE when the server is not the master. */
#define REDIS_NO_MASTER "it is not the master (any more, or yet)"
#define REDIS_INVALIDATE "__redis__:invalidate" /* the channel of Redis' tracking */

/* Copies the options.  `scripts` must outlive it. */
struct redis_conn *redis_conn_new(const struct redis_conn_options *options, const struct redis_script *scripts,
                                  size_t script_count);
/* Connects from the loop.  Host names are resolved outside of the loop's thread
 * (getaddrinfo(3) blocks). */
void redis_conn_start(struct redis_conn *conn, struct ev_loop *loop, const struct redis_conn_events *events,
                      void *context);
/* Ends it; callbacks of requests under way are not called.  NULL is allowed. */
void redis_conn_free(struct redis_conn *conn);

/* Counts (+1, -1) waiters for a message or a change of a key.  While there are any, a Pub/Sub connection that was
 * silent for twice the time of a reply is probed.  Without any it costs no wake-ups. */
void redis_conn_keep(struct redis_conn *conn, int more);

bool redis_conn_is_up(const struct redis_conn *conn);
/* One line: why it is not up, or what it has refused for the time being; "": it answers. */
const char *redis_conn_error(const struct redis_conn *conn);

/* "host:port", as Sentinels or a Cluster say; NULL: they have not, or the URI says it. */
const char *redis_conn_place(const struct redis_conn *conn);

/* Counters since the start, and since when it is up. */
struct redis_conn_counts {
    uint64_t requests;   /* sent, repetitions included */
    uint64_t reconnects; /* times it came up after the first */
    uint64_t waits;      /* how often replicas were asked for confirmation */
    uint64_t shortfalls; /* of these, how often too few had it in time */
    clock_ms since;      /* 0: it is down */
    clock_ms silent;     /* since when the server owes an answer, or is down; 0: neither */
    clock_ms refused;    /* of redis_conn_error, while it is up: since when */
};
struct redis_conn_counts redis_conn_counts(const struct redis_conn *conn);

/* A call of a script: EVALSHA, and EVAL when the server has lost it (NOSCRIPT).
 * `arguments` are KEYS then ARGV, by length, copied.  `timeout` in ms, all tries;
 * 0: the default.  LOADING, BUSY, MASTERDOWN, TRYAGAIN, NOREPLICAS, CLUSTERDOWN,
 * ASK, and READONLY and MOVED (over a new connection: another server may have the
 * data by then) are tried again until the time is up.  VERSION, which scripts say, ends the connection, and they are
 * called again on a new one.  Behind `arguments` stands, when it is sent, what redis_conn_stamp has said last.
 * With the option `wait` one WAIT follows all scripts with `confirmed` that leave in one turn: their replies are
 * reported when it was met, and when it was not, in half of `command_timeout`, the outcome is UNKNOWN. Returns an id
 * for redis_conn_forget, never 0. */
uint64_t redis_conn_call(struct redis_conn *conn, const struct redis_script *script, size_t keys,
                         const struct redis_argument *arguments, size_t count, int64_t timeout,
                         redis_answered *answered, void *arg);
/* Only from `greet`: `keys` KEYS and then ARGV of that script, copied. */
void redis_conn_greet(struct redis_conn *conn, size_t keys, const struct redis_argument *arguments, size_t count);
/* At most REDIS_STAMP_MAX bytes; at first "". */
void redis_conn_stamp(struct redis_conn *conn, const char *stamp);
/* A plain command. */
uint64_t redis_conn_command(struct redis_conn *conn, const struct redis_argument *arguments, size_t count,
                            int64_t timeout, redis_answered *answered, void *arg);
/* The same, and whatever the server answers first is the answer: no error is tried again. */
uint64_t redis_conn_try(struct redis_conn *conn, const struct redis_argument *arguments, size_t count, int64_t timeout,
                        redis_answered *answered, void *arg);

/* Drops the callback of a request.  True: it was not sent, and never is.  A request that was sent is carried out. */
bool redis_conn_forget(struct redis_conn *conn, uint64_t id);

/* Tells `changed` once when the key changes, expires or is deleted, by whomever
 * (CLIENT TRACKING with REDIRECT and OPTIN, so RESP2 and Redis >= 6); `answered`
 * gets the reply to EXISTS key, or with a member to ZSCORE key member, which was
 * read after the watch began.  Where the
 * server has no tracking or does not permit it (logged once), only the reply. */
uint64_t redis_conn_watch(struct redis_conn *conn, const char *key, size_t length, const char *member,
                          redis_answered *answered, void *arg);

#endif
