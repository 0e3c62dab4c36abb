/* preflight: tries a server before a mount, so that one line names what is wrong: the host, the port, the password, the
 * database, permissions, the kind of server.
 */
#ifndef BACKEND_REDIS_PREFLIGHT_H
#define BACKEND_REDIS_PREFLIGHT_H

#include <glib.h>
#include <stddef.h>

#include "backend/redis/redis.h"

/* Connects as a mount with these options does, and probes its permissions, without changing a key.  It blocks: until
 * the connection is up, at most ten seconds (or command_timeout=, if that is longer), and then until all probes are
 * answered.  0 or -errno with one line in `error`; appends to `warnings` in both cases. */
int redis_preflight(const struct redis_options *options, GPtrArray *warnings, char *error, size_t error_size);

/* How mounts that share several masters know of each other. */
struct redis_meeting {
    unsigned format;     /* the format number of this mount */
    char letter;         /* of the side key with the number of the store */
    const char *channel; /* that mounts without a number share; "": they have one each */
};

/* The same for one of several independent masters, on which the mount calls these scripts.  *ret_info: the text of
 * INFO, a new string; untouched if the server did not give it. */
int redis_preflight_master(const struct redis_options *options, const struct redis_script *scripts, size_t script_count,
                           const struct redis_meeting *meeting, char **ret_info, GPtrArray *warnings, char *error,
                           size_t error_size);

#endif
