/* uri: redlock://[USER@]HOST[:PORT],HOST[:PORT],…[/DB] */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/redlock/redlock.h"
#include "backend/redlock/vote.h"

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

int redlock_uri_parse(struct redlock_uri *uri, const char *text, char *error, size_t error_size)
{
    *uri = (struct redlock_uri){0};
    if (g_ascii_strncasecmp(text, SCHEME, strlen(SCHEME)) != 0) {
        return uri_fail(error, error_size, "does not begin with " SCHEME);
    }
    const char *hosts = text + strlen(SCHEME), *slash = strchrnul(hosts, '/'),
               *at = memrchr(hosts, '@', (size_t)(slash - hosts));
    char *user = g_strndup(hosts, at ? (gsize)(at + 1 - hosts) : 0);
    hosts = at ? at + 1 : hosts;
    char *servers = g_strndup(hosts, (gsize)(slash - hosts)), **list = g_strsplit(servers, ",", -1);
    unsigned count = g_strv_length(list);
    int result = 0;
    if (count < SERVERS_MIN || count > VOTE_SERVERS) {
        result =
            uri_fail(error, error_size,
                     count < SERVERS_MIN ? "names fewer than 3 servers: of 2 a majority is both, so one that fails "
                                           "stops all; for one server there is redis://HOST"
                                         : "names more than 15 servers");
    }
    uri->servers = g_new0(struct redis_uri, count);
    while (result == 0 && uri->count < count) {
        char *one = g_strconcat("redis://", user, list[uri->count], slash, NULL);
        result = redis_uri_parse(&uri->servers[uri->count++], one, error, error_size);
        if (result == 0 && uri_is_there_before(uri, uri->count - 1)) {
            result = uri_fail(error, error_size, "names a server twice, whose vote would count twice");
        }
        g_free(one);
    }
    g_strfreev(list);
    g_free(servers);
    g_free(user);
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
