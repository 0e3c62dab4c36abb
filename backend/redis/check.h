/* check: whether a Redis server can be trusted with leases, asked once
 * before a mount.
 *
 * Lines are whole sentences without the server's name, new strings: errors are
 * what leases cannot be kept with, warnings what they may be lost by.
 */
#ifndef BACKEND_REDIS_CHECK_H
#define BACKEND_REDIS_CHECK_H

#include <glib.h>
#include <stddef.h>

#include "backend/redis/redis.h"

#define REDIS_CHECK_IS_CLUSTER                                                                                         \
    "it belongs to a Redis Cluster: mount redis+cluster://HOST,HOST,HOST/?prefix={TAG}, or a server of its own"

/* Reads the text of INFO of a server that was found in this way; what it does not
 * tell is not judged.  `wait`: as of struct redis_conn_options.  Appends lines to both arrays. */
void redis_check_info(const char *info, enum redis_kind kind, unsigned wait, GPtrArray *errors, GPtrArray *warnings);
/* The same of one of several masters, where nothing is lost by what one of them forgets. */
void redis_check_master(const char *info, enum redis_kind kind, GPtrArray *errors, GPtrArray *warnings);
/* One field of that; a new string, or NULL. */
char *redis_check_field(const char *info, const char *name);

/* What is to be done on one of several masters. */
struct redis_check_needs {
    const struct redis_script *scripts;
    size_t script_count;
};

/* Connects and tries, without changing anything, all that a mount needs, so that
 * what is wrong (the host, the port, the password, the database, permissions, the
 * kind of server) is told in one line.  It blocks: about as long as the timeouts
 * of `options` say for each step, and as long as the resolver takes.
 * `needs` NULL: what a mount of redis:// does.  0 or -errno with one line in `error`; appends to `warnings` in both
 * cases.  *ret_info (may be NULL): what INFO said, a new string; untouched if it did not. */
int redis_check_server(const struct redis_options *options, const struct redis_check_needs *needs, char **ret_info,
                       GPtrArray *warnings, char *error, size_t error_size);

#endif
