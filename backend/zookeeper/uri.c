/* uri: zookeeper://HOST[:PORT],…[/CHROOT] */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/zookeeper/zookeeper.h"

static int uri_fail(char *error, size_t error_size, const char *why)
{
    snprintf(error, error_size, "the zookeeper URI %s: write zookeeper://HOST[:PORT],HOST[:PORT],.../CHROOT", why);
    return -EINVAL;
}

/* "host", "host:port", "[::1]:port". */
static bool uri_take_host(const char *text, char **ret_host, uint16_t *ret_port)
{
    const char *end = *text == '[' ? strchr(text, ']') : strchrnul(text, ':');
    const char *behind = end && *text == '[' ? end + 1 : end;
    const char *begin = text + (*text == '[');
    guint64 port = 0;
    if (!end || end == begin || (*behind && *behind != ':')) {
        return false;
    }
    if (*behind && (!g_ascii_string_to_unsigned(behind + 1, 10, 1, UINT16_MAX, &port, NULL))) {
        return false;
    }
    *ret_host = g_strndup(begin, (gsize)(end - begin));
    *ret_port = (uint16_t)port;
    return true;
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
    char *servers = g_strndup(text, (gsize)(slash - text)), **list = g_strsplit(servers, ",", -1);
    guint count = g_strv_length(list), taken = 0;
    bool secret = strchr(servers, '@');
    g_free(servers);
    uri->hosts = g_new0(char *, count + 1);
    uri->ports = g_new0(uint16_t, count + 1);
    while (taken < count && uri_take_host(list[taken], &uri->hosts[taken], &uri->ports[taken])) {
        taken++;
    }
    g_strfreev(list);
    uri->chroot = g_strdup(slash);
    for (size_t length = strlen(uri->chroot); length > 0 && uri->chroot[length - 1] == '/'; length--) {
        uri->chroot[length - 1] = '\0';
    }
    const char *why = secret                        ? "has a password, which belongs into a file (credentials=)"
                      : taken < count || taken == 0 ? "names no host, or one that is none"
                      : !uri_is_chroot(uri->chroot) ? "has no path of names"
                                                    : NULL;
    if (why) {
        zookeeper_uri_clear(uri);
        return uri_fail(error, error_size, why);
    }
    for (guint i = 0; i < count; i++) {
        uint16_t last = uri->ports[count - 1] ? uri->ports[count - 1] : ZOOKEEPER_PORT;
        uri->ports[i] = uri->ports[i] ? uri->ports[i] : last;
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
