/* info: judges what a Redis server says of itself: INFO, and why it refuses.  Can it be trusted with leases?
 *
 * Each line is a sentence without the server's name, a new string.  An error means that the server cannot keep leases;
 * a warning, that it may lose some.  Missing fields are ignored.
 */
#ifndef BACKEND_REDIS_INFO_H
#define BACKEND_REDIS_INFO_H

#include <glib.h>

#include "backend/redis/conn/uri.h"

#define REDIS_INFO_IS_CLUSTER                                                                                          \
    "it belongs to a Redis Cluster: mount redis+cluster://HOST,HOST,HOST/?prefix={TAG}, or a server of its own"

/* `kind` is how the server was found, `wait` as in struct redis_conn_options.  Appends lines to both arrays. */
void redis_info_check(const char *info, enum redis_kind kind, unsigned wait, GPtrArray *errors, GPtrArray *warnings);
/* The same for one of several independent masters: what one of them forgets loses nothing, and is not judged. */
void redis_info_check_master(const char *info, enum redis_kind kind, GPtrArray *errors, GPtrArray *warnings);
/* The value of one field: a new string, or NULL. */
char *redis_info_field(const char *info, const char *name);
/* Advice for an error reply of the server; NULL: there is none for it. */
const char *redis_info_advice(const char *error);

#endif
