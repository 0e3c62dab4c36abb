/* resolve: the addresses of a host.
 *
 * getaddrinfo(3) blocks, so names are looked up in a thread of their own;
 * numeric addresses need none.
 */
#ifndef BACKEND_REDIS_CONN_RESOLVE_H
#define BACKEND_REDIS_CONN_RESOLVE_H

#include <glib.h>
#include <stdint.h>

#include "backend/redis/conn/link.h"

struct ev_loop;
struct redis_resolve;

/* The address of a Unix-domain socket, whose path is no longer than redis_uri_parse takes it. */
GArray *redis_resolve_path(const char *path);
/* The address that a numeric host stands for; NULL: it is a name. */
GArray *redis_resolve_numeric(const char *host, uint16_t port);

/* Called from the loop: an array of struct redis_address (one at least), now the callee's, or
 * NULL and why.  The look-up is over; it frees itself. */
typedef void redis_resolved(void *arg, GArray *addresses, const char *error);

/* Begins to look up a name.  NULL: no thread could be started. */
struct redis_resolve *redis_resolve_start(struct ev_loop *loop, const char *host, uint16_t port, redis_resolved *done,
                                          void *arg);
/* `done` is not called any more.  NULL is allowed. */
void redis_resolve_cancel(struct redis_resolve *resolve);

#endif
