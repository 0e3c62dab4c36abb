/* locate: which server has the data.
 *
 * With redis:// the URI names it.  Sentinels are asked in turn for the master of that name, and nodes of a Cluster for
 * the one with the hash slot of the prefix.  The first answer counts, and the next request goes to another of them.  An
 * answer may be old or wrong, so the server itself must say that it is a master.
 */
#ifndef BACKEND_REDIS_CONN_LOCATE_H
#define BACKEND_REDIS_CONN_LOCATE_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/redis/conn/uri.h"

#define REDIS_LOCATE_TIMEOUT 500 /* ms, of a connection to one of them, and of its answer */
#define REDIS_LOCATE_RETRY 2000  /* ms, before others are asked in place of one that is gone */

struct ev_loop;
struct redis_locate;
struct ssl_ctx_st;

/* They do not change while it lives; all borrowed. */
struct redis_locate_options {
    const struct redis_uri *uri;  /* without a path */
    const char *user, *password;  /* for whom is asked; or NULL */
    const char *prefix;           /* what every key begins with, in a Cluster */
    int64_t resolve_timeout;      /* ms, of looking up one name */
    struct ssl_ctx_st *tls_trust; /* of tls.h, where the URI wants TLS */
};

/* The server is HOST:PORT (borrowed); or NULL, and why nobody names one.  Called once for each redis_locate_ask,
 * perhaps from inside it, and again when Sentinels have made another server the master. */
typedef void redis_located(void *arg, const char *host, uint16_t port, const char *error);

struct redis_locate *redis_locate_new(const struct redis_locate_options *options, struct ev_loop *loop,
                                      redis_located *located, void *arg);
/* Asks all of them once, as far as that is needed. */
void redis_locate_ask(struct redis_locate *locate);
/* Is that a master's answer to ROLE? */
bool redis_locate_is_master(const redisReply *reply);
/* No callback follows. */
void redis_locate_free(struct redis_locate *locate);

#endif
