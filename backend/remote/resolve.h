/* resolve: the addresses of a host.
 *
 * getaddrinfo(3) blocks, so names are looked up in a thread of their own;
 * numeric addresses need none.
 */
#ifndef BACKEND_REMOTE_RESOLVE_H
#define BACKEND_REMOTE_RESOLVE_H

#include <glib.h>
#include <stdint.h>
#include <sys/socket.h>

struct ev_loop;
struct remote_resolve;

struct remote_address {
    struct sockaddr_storage address;
    socklen_t length;
};

/* The address of a Unix-domain socket, whose path is no longer than redis_uri_parse takes it. */
GArray *remote_resolve_path(const char *path);
/* The address that a numeric host stands for; NULL: it is a name. */
GArray *remote_resolve_numeric(const char *host, uint16_t port);

/* Looks up a name, and blocks; `flags` of getaddrinfo(3).  NULL, and *ret_why: it has no address. */
GArray *remote_resolve_now(const char *host, uint16_t port, int flags, const char **ret_why);

/* Called from the loop: an array of struct remote_address (one at least), now the callee's, or
 * NULL and why.  The look-up is over; it frees itself. */
typedef void remote_resolved(void *arg, GArray *addresses, const char *error);

/* Begins to look up a name.  NULL: no thread could be started. */
struct remote_resolve *remote_resolve_start(struct ev_loop *loop, const char *host, uint16_t port, int flags,
                                            remote_resolved *done, void *arg);
/* `done` is not called any more.  NULL is allowed. */
void remote_resolve_cancel(struct remote_resolve *resolve);

#endif
