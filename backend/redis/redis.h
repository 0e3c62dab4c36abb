/* redis: leases in a Redis server, shared by all hosts that mount it.
 *
 * An exclusive lock is the string key that other clients' locks are (SET key
 * token NX PX ttl), so they and we exclude each other.  What such a key cannot
 * say (the queue, fencing tokens, holders, directories) is kept in side keys,
 * which only scripts change.
 */
#ifndef BACKEND_REDIS_REDIS_H
#define BACKEND_REDIS_REDIS_H

#include "backend/backend.h"
#include "backend/redis/conn/conn.h"

/* A server at its maxmemory with the policy noeviction, and for how many ms after a refusal the status says so. */
#define REDIS_FULL                                                                                                     \
    "the server's memory is full (maxmemory): new locks are refused until there is room, and what is held is renewed " \
    "and released as before: raise maxmemory"
#define REDIS_FULL_SHOWN 60000
#define REDIS_KEY_DEFAULT "{n}"
#define REDIS_FORMAT 1 /* see backend/format.h */

struct redis_options {
    struct redis_conn_options conn; /* its `channel` is set by redis_new */
    const char *prefix;             /* before every key of a lock; NULL: "" */
    const char *key;                /* template of a lock's key, with {n} for its name; NULL: the default */
    uint32_t seed;
    int64_t grace;        /* for how long, at most, nothing new is granted when the server has forgotten; 0: 1 h */
    bool strict;          /* also if nobody is there who knows that it has, but it was started less than `term` ago */
    int64_t term;         /* ms: that of most locks of this mount */
    bool checked;         /* redis_check_server has told its warnings */
    const char *identity; /* of the mount, the same when it starts again on the same host, and no other's: by
                             it leases are found again; NULL: they are not */
};

/* 0, or -errno with one line in `error`: -EINVAL for a key template without {n}, or
 * that no lock can have.  Connects when started.  Copies the options. */
int redis_new(const struct redis_options *options, struct backend **ret, char *error, size_t error_size);

#endif
