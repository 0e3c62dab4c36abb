/* uri: redlock://[USER@]HOST[:PORT],HOST[:PORT],…[/DB] */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/redlock/redlock.h"
#include "backend/redlock/vote.h"
#include "backend/remote/remote.h"

#define SCHEME "redlock://"
#define SERVERS_MIN 3

static int uri_fail(char *error, size_t error_size, const char *why)
{
    snprintf(error, error_size, "the redlock URI %s: write redlock://HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB]", why);
    return -EINVAL;
}

static bool uri_is_there_before(const struct redlock_uri *uri, unsigned index)
{
    const struct redis_uri *server = &uri->servers[index];
    for (unsigned i = 0; i < index; i++) {
        if (g_ascii_strcasecmp(uri->servers[i].host, server->host) == 0 && uri->servers[i].port == server->port) {
            return true;
        }
    }
    return false;
}

/* The fault of the list of hosts; or NULL. */
static const char *uri_find_fault(enum remote_host_fault fault, unsigned count)
{
    return fault == REMOTE_HOST_MISSING ? "names no host between two commas"
           : fault == REMOTE_HOST_BAD ? "has a host that is neither a name nor an address; IPv6 is written in brackets"
           : fault == REMOTE_HOST_BAD_PORT
               ? "has a port that is not a number from 1 to 65535; IPv6 is written in brackets"
           : count < SERVERS_MIN  ? "names fewer than 3 servers: of 2 a majority is both, so one that fails stops "
                                    "all; for one server there is redis://HOST"
           : count > VOTE_SERVERS ? "names more than 15 servers"
                                  : NULL;
}

int redlock_uri_parse(struct redlock_uri *uri, const char *text, char *error, size_t error_size)
{
    *uri = (struct redlock_uri){0};
    if (g_ascii_strncasecmp(text, SCHEME, strlen(SCHEME)) != 0) {
        return uri_fail(error, error_size, "does not begin with " SCHEME);
    }
    const char *user = text + strlen(SCHEME), *slash = strchrnul(user, '/'),
               *at = memrchr(user, '@', (size_t)(slash - user)), *begin = at ? at + 1 : user;
    char **hosts, *servers = g_strndup(begin, (gsize)(slash - begin));
    uint16_t *ports;
    enum remote_host_fault fault = remote_parse_hosts(servers, &hosts, &ports);
    unsigned count = g_strv_length(hosts);
    const char *why = uri_find_fault(fault, count);
    int result = why ? uri_fail(error, error_size, why) : 0;
    uri->servers = g_new0(struct redis_uri, count);
    while (result == 0 && uri->count < count) {
        const char *host = hosts[uri->count];
        char *one =
            g_strdup_printf(strchr(host, ':') ? "redis://%.*s[%s]:%u%s" : "redis://%.*s%s:%u%s", (int)(begin - user),
                            user, host, ports[uri->count] ? ports[uri->count] : REDIS_PORT_DEFAULT, slash);
        result = redis_uri_parse(&uri->servers[uri->count++], one, error, error_size);
        if (result == 0 && uri_is_there_before(uri, uri->count - 1)) {
            result = uri_fail(error, error_size, "names a server twice, whose vote would count twice");
        }
        g_free(one);
    }
    g_strfreev(hosts);
    g_free(ports);
    g_free(servers);
    if (result < 0) {
        redlock_uri_clear(uri);
    }
    return result;
}

void redlock_uri_clear(struct redlock_uri *uri)
{
    for (unsigned i = 0; i < uri->count; i++) {
        redis_uri_clear(&uri->servers[i]);
    }
    g_free(uri->servers);
    *uri = (struct redlock_uri){0};
}
