/* redlock: leases in several independent Redis servers, shared by all hosts that mount them.
 *
 * A client holds a lock if a majority of the servers has its key: the algorithm that redis.io calls Redlock.  The key
 * is the string that other clients use (SET key token NX PX ttl), so leasefs and node-redlock, redsync, redlock-py and
 * similar clients exclude each other on the same servers.
 */
#ifndef BACKEND_REDLOCK_REDLOCK_H
#define BACKEND_REDLOCK_REDLOCK_H

#include "backend/backend.h"
#include "backend/redis/conn/conn.h"

/* The servers, at least three: redlock://[USER@]HOST[:PORT],HOST[:PORT],…[/DB] */
struct redlock_uri {
    unsigned count;
    struct redis_uri *servers;
};

/* 0, or -EINVAL with one line in `error`; then there is nothing to clear. */
int redlock_uri_parse(struct redlock_uri *uri, const char *text, char *error, size_t error_size);
void redlock_uri_clear(struct redlock_uri *uri);

#define REDLOCK_FORMAT 1 /* see backend/format.h */

struct redlock_options {
    const struct redlock_uri *uri;
    struct redis_conn_options conn; /* of each, but `uri`, `channel` and `greet` */
    const char *prefix;             /* before every key of a lock; NULL: "" */
    const char *identity;           /* of the mount, the same when it starts again on the same host, and no other's: by
                                       it the mount finds what it held; NULL: it finds nothing */
    const char *key;                /* template of a lock's key, with {n} for its name; NULL: "{n}" */
    int64_t ttl;                    /* the default of the mount */
    int64_t grace; /* the vote of a server that started less than this (plus a second) ago does not count for a claim,
                      because it may have lost locks; 0: the longest term that this mount has requested */
    uint32_t seed;
};

/* Connects to each server and checks it without changing data; some may be away: a warning.  Blocks, for each server at
 * most as long as the timeout in `conn`.  0, or -errno with one line in `error`. */
int redlock_check(const struct redlock_options *options, GPtrArray *warnings, char *error, size_t error_size);

/* 0, or -EINVAL with one line in `error` (see redis_new).  Connects when started.  Copies the options. */
int redlock_new(const struct redlock_options *options, struct backend **ret, char *error, size_t error_size);

#endif
