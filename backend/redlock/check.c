/* check: tries the servers before a mount. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/redis/info.h"
#include "backend/redis/preflight.h"
#include "backend/redlock/private.h"

/* Is this an error that may pass by itself? */
static bool check_is_away(int result)
{
    return result == -ECONNREFUSED || result == -EHOSTUNREACH || result == -ETIMEDOUT || result == -ECONNRESET ||
           result == -EIO;
}

/* Refuses two addresses of one server, which would vote twice. */
static int check_twins(const struct redlock_uri *uri, char *const *run_ids, char *error, size_t error_size)
{
    for (unsigned i = 0; i < uri->count; i++) {
        for (unsigned k = 0; k < i; k++) {
            if (run_ids[i] && g_strcmp0(run_ids[i], run_ids[k]) == 0) {
                snprintf(error, error_size, "%s:%u and %s:%u are the same server, whose vote would count twice",
                         uri->servers[k].host, uri->servers[k].port, uri->servers[i].host, uri->servers[i].port);
                return -EINVAL;
            }
        }
    }
    return 0;
}

int redlock_check(const struct redlock_options *options, GPtrArray *warnings, char *error, size_t error_size)
{
    const struct redlock_uri *uri = options->uri;
    char **run_ids = g_new0(char *, uri->count), one[512] = "";
    unsigned there = 0, majority = vote_majority(uri->count);
    int result = 0;
    char *former = redlock_channel(REDLOCK_CHANNEL_FORMER, options->prefix, options->key);
    const struct redis_meeting meeting = {.format = REDLOCK_FORMAT, .letter = 'S', .channel = former};
    for (unsigned i = 0; i < uri->count && result == 0; i++) {
        struct redis_options server = {.conn = options->conn, .prefix = options->prefix, .key = options->key};
        server.conn.uri = uri->servers[i];
        char *info = NULL;
        int found = redis_preflight_master(&server, redlock_scripts, REDLOCK_SCRIPTS, &meeting, &info, warnings, one,
                                           sizeof one);
        there += found == 0;
        run_ids[i] = info ? redis_info_field(info, "run_id") : NULL;
        if (found < 0 && check_is_away(found)) {
            g_ptr_array_add(warnings, g_strdup(one));
        } else if (found < 0) {
            snprintf(error, error_size, "%s", one);
            result = found;
        }
        g_free(info);
    }
    if (result == 0) {
        result = check_twins(uri, run_ids, error, error_size);
    }
    if (result == 0 && there < majority) {
        snprintf(error, error_size, "%u of %u servers are there, and %u are needed; %s", there, uri->count, majority,
                 one);
        result = -EHOSTUNREACH;
    }
    for (unsigned i = 0; i < uri->count; i++) {
        g_free(run_ids[i]);
    }
    g_free(run_ids);
    g_free(former);
    return result;
}
