/* uri: zookeeper://HOST[:PORT],…[/CHROOT] */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/remote/remote.h"
#include "backend/zookeeper/zookeeper.h"

static int uri_fail(char *error, size_t error_size, const char *why)
{
    snprintf(error, error_size, "the zookeeper URI %s: write zookeeper://HOST[:PORT],HOST[:PORT],.../CHROOT", why);
    return -EINVAL;
}

static bool uri_is_chroot(const char *chroot)
{
    return !*chroot || (g_utf8_validate(chroot, -1, NULL) && !strstr(chroot, "//") && !strstr(chroot, "/./") &&
                        !strstr(chroot, "/../") && !g_str_has_suffix(chroot, "/.") && !g_str_has_suffix(chroot, "/.."));
}

int zookeeper_uri_parse(struct zookeeper_uri *uri, const char *text, char *error, size_t error_size)
{
    static const char scheme[] = "zookeeper://";
    *uri = (struct zookeeper_uri){0};
    if (g_ascii_strncasecmp(text, "zookeepers:", strlen("zookeepers:")) == 0 ||
        g_ascii_strncasecmp(text, "zookeeper+", strlen("zookeeper+")) == 0) {
        return uri_fail(
            error, error_size,
            "is for TLS, and the ZooKeeper library with an event loop of its user's (libzookeeper-st) has no "
            "TLS; in a network that is trusted, or through a tunnel");
    }
    if (g_ascii_strncasecmp(text, scheme, strlen(scheme)) != 0) {
        return uri_fail(error, error_size, "does not begin with zookeeper://");
    }
    text += strlen(scheme);
    const char *slash = strchrnul(text, '/');
    char *servers = g_strndup(text, (gsize)(slash - text));
    bool secret = strchr(servers, '@');
    bool good = remote_parse_hosts(servers, &uri->hosts, &uri->ports) == REMOTE_HOST_GOOD;
    g_free(servers);
    uri->chroot = g_strdup(slash);
    for (size_t length = strlen(uri->chroot); length > 0 && uri->chroot[length - 1] == '/'; length--) {
        uri->chroot[length - 1] = '\0';
    }
    const char *why = secret  ? "has a user or a password, which belong into a file (credentials=)"
                      : !good ? "has no host, or a host or port that is none; IPv6 is written in brackets"
                      : !uri_is_chroot(uri->chroot) ? "has a chroot that is no path of names"
                                                    : NULL;
    if (why) {
        zookeeper_uri_clear(uri);
        return uri_fail(error, error_size, why);
    }
    uint16_t last = uri->ports[g_strv_length(uri->hosts) - 1];
    for (guint i = 0; uri->hosts[i]; i++) {
        uri->ports[i] = uri->ports[i] ? uri->ports[i] : last ? last : ZOOKEEPER_PORT;
    }
    return 0;
}

void zookeeper_uri_clear(struct zookeeper_uri *uri)
{
    g_strfreev(uri->hosts);
    g_free(uri->ports);
    g_free(uri->chroot);
    *uri = (struct zookeeper_uri){0};
}
