/* locate: which server has the data.
 *
 * With redis:// that is the one that the URI names.  Sentinels are asked in turn which server is the master of that
 * name, nodes of a Cluster which one has the hash slot of the prefix: the first that answers is believed, whoever is
 * asked next time is another one.  So what they say may be old, or wrong: whether a server is a master, it says itself.
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

/* What does not change while there is one; all borrowed. */
struct redis_locate_options {
    const struct redis_uri *uri;  /* without a path */
    const char *user, *password;  /* for whom is asked; or NULL */
    const char *prefix;           /* what every key begins with, in a Cluster */
    int64_t resolve_timeout;      /* ms, of looking up one name */
    struct ssl_ctx_st *tls_trust; /* of tls.h, where the URI wants TLS */
};

/* It is HOST:PORT (borrowed), or NULL and why nobody tells: once for each redis_locate_ask, perhaps from inside it.
 * Later, too, without having been asked, when Sentinels have made another server the master. */
typedef void redis_located(void *arg, const char *host, uint16_t port, const char *error);

struct redis_locate *redis_locate_new(const struct redis_locate_options *options, struct ev_loop *loop,
                                      redis_located *located, void *arg);
/* Asks all of them once, as far as that is needed. */
void redis_locate_ask(struct redis_locate *locate);
/* Whether that is what a master says to ROLE. */
bool redis_locate_is_master(const redisReply *reply);
/* Nothing is told any more. */
void redis_locate_free(struct redis_locate *locate);

#endif
