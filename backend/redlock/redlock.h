/* redlock: leases in several Redis servers that know nothing of each other, shared by all hosts that mount them.
 *
 * A lock is held by whom a majority of the servers has given it: the algorithm that redis.io calls Redlock.  On each
 * server it is the string key that other clients' locks are (SET key token NX PX ttl), so that node-redlock, redsync,
 * redlock-py and their like, which use the same servers, and we exclude each other.
 */
#ifndef BACKEND_REDLOCK_REDLOCK_H
#define BACKEND_REDLOCK_REDLOCK_H

#include "backend/backend.h"
#include "backend/redis/conn/conn.h"

/* Where the servers are, as in redlock://[USER@]HOST[:PORT],HOST[:PORT],…[/DB]: three at least. */
struct redlock_uri {
    unsigned count;
    struct redis_uri *servers;
};

/* 0, or -EINVAL with one line in `error`, and then nothing is to be freed. */
int redlock_uri_parse(struct redlock_uri *uri, const char *text, char *error, size_t error_size);
void redlock_uri_clear(struct redlock_uri *uri);

#define REDLOCK_FORMAT 1 /* see backend/format.h */

struct redlock_options {
    const struct redlock_uri *uri;
    struct redis_conn_options conn; /* of each, but `uri`, `channel` and `greet` */
    const char *prefix;             /* before every key of a lock; NULL: "" */
    const char *key;                /* template of a lock's key, with {n} for its name; NULL: "{n}" */
    int64_t ttl;                    /* of most leases */
    int64_t grace; /* a server that was started less than this ago (and a second) may have forgotten locks that are
                      held, and counts for nobody who wants one; 0: the longest term that this mount has asked for */
    uint32_t seed;
};

/* Connects to each and looks whether it can be used, changing nothing; that some are away is a warning.  It blocks: for
 * each that does not answer as long as `conn` says.  0, or -errno with one line in `error`. */
int redlock_check(const struct redlock_options *options, GPtrArray *warnings, char *error, size_t error_size);

/* 0, or -EINVAL with one line in `error` (see redis_new).  Connects when started.  Copies the options. */
int redlock_new(const struct redlock_options *options, struct backend **ret, char *error, size_t error_size);

#endif
