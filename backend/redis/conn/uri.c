/* uri: where a Redis server is, and how to speak to it; see uri.h.
 *
 * GUri takes the text apart and decodes it; this file says which of what it
 * allows is an address of a Redis server.  No message repeats the URI or a line
 * of a credentials file: a secret may be in it, also where none belongs.
 */
#include "config.h"

#include "backend/redis/conn/uri.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "backend/remote/remote.h"

#define DATABASE_MAX 65535
#define SOCKET_PATH_MAX (sizeof((struct sockaddr_un *)NULL)->sun_path - 1)
#define CREDENTIALS_BYTES_MAX 4096
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_"

#define SCHEME_UNIX "redis+unix:"

static const struct uri_scheme {
    const char *text;
    enum redis_kind kind;
    bool tls;
} schemes[] = {
    {"redis:", REDIS_SERVER, false},
    {"rediss:", REDIS_SERVER, true},
    {SCHEME_UNIX, REDIS_SERVER, false},
    {"redis+sentinel:", REDIS_SENTINEL, false},
    {"rediss+sentinel:", REDIS_SENTINEL, true},
    {"redis+cluster:", REDIS_CLUSTER, false},
    {"rediss+cluster:", REDIS_CLUSTER, true},
};

/* What a message needs to be written. */
struct complaint {
    char *text;
    size_t size;
};

static int __attribute__((format(printf, 3, 4)))
complain(const struct complaint *complaint, int result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_vsnprintf(complaint->text, complaint->size, format, arguments);
    va_end(arguments);
    return result;
}

static bool uri_has_scheme(const char *text, const char *scheme)
{
    return g_ascii_strncasecmp(text, scheme, strlen(scheme)) == 0;
}

static const struct uri_scheme *uri_find_scheme(const char *text)
{
    for (size_t i = 0; i < G_N_ELEMENTS(schemes); i++) {
        if (uri_has_scheme(text, schemes[i].text)) {
            return &schemes[i];
        }
    }
    return NULL;
}

/* USER:PASSWORD@, before anything else is judged.  A password may have any
 * character unescaped by mistake, so all up to the last @ counts; but in a path
 * of a socket @ and : are common. */
static bool uri_has_password(const char *text)
{
    const char *begin = strstr(text, "//");
    if (!begin) {
        return false;
    }
    begin += strlen("//");
    size_t length = uri_has_scheme(text, SCHEME_UNIX) ? strcspn(begin, "/?#") : strlen(begin);
    const char *at = memrchr(begin, '@', length);
    return at && memchr(begin, ':', (size_t)(at - begin));
}

/* Several hosts, separated by commas. */
static bool uri_has_list(const char *text)
{
    const char *begin = strstr(text, "//");
    size_t length = begin ? strcspn(begin + 2, "/?#") : 0;
    const char *at = begin ? memrchr(begin + 2, '@', length) : NULL;
    return begin && memchr(at ? at : begin, ',', (size_t)(begin + 2 + length - (at ? at : begin)));
}

static bool uri_parse_database(const char *text, int *ret_database)
{
    guint64 number;
    if (!g_ascii_string_to_unsigned(text, 10, 0, DATABASE_MAX, &number, NULL)) {
        return false;
    }
    *ret_database = (int)number;
    return true;
}

static int uri_complain_of_host(enum remote_host_fault fault, const struct complaint *complaint)
{
    switch (fault) {
    case REMOTE_HOST_MISSING:
        return complain(complaint, -EINVAL, "the redis URI names no host: write redis://HOST, or redis+unix:///PATH");
    case REMOTE_HOST_BAD:
        return complain(complaint, -EINVAL,
                        "the host of the redis URI is neither a name nor an address; IPv6 is written in brackets, "
                        "as in redis://[::1]:6379");
    case REMOTE_HOST_BAD_PORT:
        return complain(complaint, -EINVAL,
                        "the port of the redis URI is not a number from 1 to 65535; IPv6 is written in brackets, as in "
                        "redis://[::1]:6379");
    default:
        return 0;
    }
}

/* redis://[USER@]HOST[:PORT][/DB] */
static int uri_take_network(struct redis_uri *uri, GUri *parts, const struct complaint *complaint)
{
    const char *path = g_uri_get_path(parts), *host = g_uri_get_host(parts);
    int port = g_uri_get_port(parts);
    int result = uri_complain_of_host(!host || !*host         ? REMOTE_HOST_MISSING
                                      : !remote_is_host(host) ? REMOTE_HOST_BAD
                                      : port == 0             ? REMOTE_HOST_BAD_PORT
                                                              : REMOTE_HOST_GOOD,
                                      complaint);
    if (result < 0) {
        return result;
    }
    uri->host = g_strdup(host);
    uri->port = port > 0 ? (uint16_t)port : REDIS_PORT_DEFAULT;
    if (g_uri_get_query(parts)) {
        return complain(complaint, -EINVAL,
                        "the redis URI has a '?': a database is written redis://HOST/NUMBER, and settings are options");
    }
    if (*path && strcmp(path, "/") != 0 && !uri_parse_database(path + 1, &uri->database)) {
        return complain(complaint, -EINVAL,
                        "what follows the host in the redis URI is not a database: write /NUMBER, 0 to %d",
                        DATABASE_MAX);
    }
    return 0;
}

/* redis+unix://[USER@]/PATH[?db=DB] */
static int uri_take_socket(struct redis_uri *uri, GUri *parts, const struct complaint *complaint)
{
    const char *host = g_uri_get_host(parts), *path = g_uri_get_path(parts), *query = g_uri_get_query(parts);
    if ((host && *host) || path[0] != '/' || path[1] == '\0') {
        return complain(complaint, -EINVAL,
                        "the redis URI names no socket: write redis+unix:///PATH, with three slashes");
    }
    if (strlen(path) > SOCKET_PATH_MAX) {
        return complain(complaint, -EINVAL, "the path of the socket is longer than the %zu bytes that are possible",
                        SOCKET_PATH_MAX);
    }
    if (query && (!g_str_has_prefix(query, "db=") || !uri_parse_database(query + strlen("db="), &uri->database))) {
        return complain(complaint, -EINVAL,
                        "what follows '?' in the redis URI is not a database: write ?db=NUMBER, 0 to %d (a '?' of the "
                        "path itself is written %%3F)",
                        DATABASE_MAX);
    }
    uri->path = g_strdup(path);
    return 0;
}

/* The part behind the hosts: /NAME[?db=DB] */
static int uri_take_master(struct redis_uri *uri, GUri *parts, const struct complaint *complaint)
{
    const char *path = g_uri_get_path(parts), *query = g_uri_get_query(parts);
    if (path[0] != '/' || path[1] == '\0' || path[1 + strspn(path + 1, NAME_CHARACTERS)] != '\0') {
        return complain(complaint, -EINVAL,
                        "the redis URI names no master as its Sentinels know it, with letters, digits and '.-_': write "
                        "redis+sentinel://HOST,HOST,HOST/NAME");
    }
    if (query && (!g_str_has_prefix(query, "db=") || !uri_parse_database(query + strlen("db="), &uri->database))) {
        return complain(complaint, -EINVAL,
                        "what follows '?' in the redis URI is not a database: write ?db=NUMBER, 0 to %d", DATABASE_MAX);
    }
    uri->name = g_strdup(path + 1);
    return 0;
}

/* [/][?prefix=PREFIX] */
static int uri_take_prefix(struct redis_uri *uri, GUri *parts, const struct complaint *complaint)
{
    const char *path = g_uri_get_path(parts), *query = g_uri_get_query(parts);
    if (*path && strcmp(path, "/") != 0) {
        return complain(complaint, -EINVAL,
                        "what follows the hosts in the redis URI is not possible there, as a Cluster has one database: "
                        "write redis+cluster://HOST,HOST,HOST/?prefix={TAG}");
    }
    if (query && !g_str_has_prefix(query, "prefix=")) {
        return complain(complaint, -EINVAL,
                        "what follows '?' in the redis URI is not a prefix: write ?prefix={TAG}, and settings as "
                        "options");
    }
    uri->prefix = query ? g_strdup(query + strlen("prefix=")) : NULL;
    return 0;
}

/* GUri's own messages repeat what they could not read. */
static int uri_complain_of_syntax(int code, const struct complaint *complaint)
{
    switch (code) {
    case G_URI_ERROR_BAD_HOST:
        return uri_complain_of_host(REMOTE_HOST_BAD, complaint);
    case G_URI_ERROR_BAD_PORT:
        return uri_complain_of_host(REMOTE_HOST_BAD_PORT, complaint);
    case G_URI_ERROR_BAD_USER:
        return complain(complaint, -EINVAL, "the user in the redis URI is not UTF-8 in percent-encoding");
    default:
        return complain(complaint, -EINVAL,
                        "the redis URI is malformed: write redis://[USER@]HOST[:PORT][/DB] or redis+unix:///PATH, "
                        "with special characters as %%XX");
    }
}

static int uri_split(const char *text, GUri **ret_parts, const struct complaint *complaint)
{
    GError *syntax = NULL;
    *ret_parts = g_uri_parse(text, G_URI_FLAGS_NONE, &syntax);
    if (!*ret_parts) {
        int code = syntax->code;
        g_error_free(syntax);
        return uri_complain_of_syntax(code, complaint);
    }
    return 0;
}

static int uri_take_hosts(struct redis_uri *uri, const char *text, const struct complaint *complaint)
{
    uint16_t usual = uri->kind == REDIS_SENTINEL ? REDIS_SENTINEL_PORT_DEFAULT : REDIS_PORT_DEFAULT;
    enum remote_host_fault fault = remote_parse_hosts(text, &uri->hosts, &uri->ports);
    if (fault == REMOTE_HOST_MISSING || !*text) {
        return complain(complaint, -EINVAL, "the redis URI names no host: write HOST,HOST,HOST behind the //");
    }
    for (guint i = 0; uri->hosts[i]; i++) {
        uri->ports[i] = uri->ports[i] ? uri->ports[i] : usual;
    }
    return uri_complain_of_host(fault, complaint);
}

/* Takes the list of hosts out of the text, and puts one in its place that GUri can read. */
static int uri_take_list(struct redis_uri *uri, const char *text, char **ret_rest, const struct complaint *complaint)
{
    const char *begin = strstr(text, "//");
    if (!begin) {
        return uri_complain_of_syntax(G_URI_ERROR_FAILED, complaint);
    }
    begin += strlen("//");
    size_t length = strcspn(begin, "/?#");
    const char *at = memrchr(begin, '@', length), *hosts = at ? at + 1 : begin;
    char *list = g_strndup(hosts, (gsize)(begin + length - hosts));
    int result = uri_take_hosts(uri, list, complaint);
    g_free(list);
    *ret_rest = g_strdup_printf("redis://%.*slist%s", (int)(hosts - begin), begin, begin + length);
    return result;
}

static int uri_take(struct redis_uri *uri, const char *text, const struct complaint *complaint)
{
    GUri *parts;
    int result = uri_split(text, &parts, complaint);
    if (result < 0) {
        return result;
    }
    const char *user = g_uri_get_user(parts);
    if (g_uri_get_fragment(parts)) {
        result = complain(complaint, -EINVAL, "the redis URI has a '#', which is written %%23 where it is meant");
    } else if (uri->kind == REDIS_SENTINEL) {
        result = uri_take_master(uri, parts, complaint);
    } else if (uri->kind == REDIS_CLUSTER) {
        result = uri_take_prefix(uri, parts, complaint);
    } else if (uri_has_scheme(text, SCHEME_UNIX)) {
        result = uri_take_socket(uri, parts, complaint);
    } else {
        result = uri_take_network(uri, parts, complaint);
    }
    uri->user = user && *user ? g_strdup(user) : NULL;
    g_uri_unref(parts);
    return result;
}

int redis_uri_parse(struct redis_uri *uri, const char *text, char *error, size_t error_size)
{
    const struct complaint complaint = {error, error_size};
    const struct uri_scheme *scheme = uri_find_scheme(text);
    *uri = (struct redis_uri){0};
    if (!scheme) {
        return complain(&complaint, -EINVAL,
                        "the scheme of the redis URI is not known: write redis://, rediss://, redis+unix://, "
                        "redis+sentinel:// or redis+cluster://");
    }
    uri->kind = scheme->kind;
    uri->tls = scheme->tls;
#ifndef HAVE_HIREDIS_SSL
    if (uri->tls) {
        return complain(&complaint, -EOPNOTSUPP,
                        "%s// needs a leasefs that was built with hiredis 1.0 or newer and its hiredis_ssl, which this "
                        "one was not: use a tunnel, and %s// to its end",
                        scheme->text, scheme[-1].text);
    }
#endif
    if (uri_has_password(text)) {
        return complain(&complaint, -EINVAL,
                        "a password in the URI would be shown to all users: put it in a file with mode 0600 and mount "
                        "with -o credentials=FILE");
    }
    if (uri->kind == REDIS_SERVER && uri_has_list(text)) {
        return complain(&complaint, -EINVAL,
                        "the redis URI names several hosts: write redis+sentinel://HOST,HOST,HOST/NAME for Sentinels, "
                        "redis+cluster://HOST,HOST,HOST/?prefix={TAG} for a Cluster, or redlock://HOST,HOST,HOST for "
                        "independent servers");
    }
    if (uri->kind == REDIS_SERVER) {
        return uri_take(uri, text, &complaint);
    }
    char *rest = NULL;
    int result = uri_take_list(uri, text, &rest, &complaint);
    if (result == 0) {
        result = uri_take(uri, rest, &complaint);
    }
    g_free(rest);
    return result;
}

void redis_uri_clear(struct redis_uri *uri)
{
    g_free(uri->user);
    g_free(uri->host);
    g_free(uri->path);
    g_strfreev(uri->hosts);
    g_free(uri->ports);
    g_free(uri->name);
    g_free(uri->prefix);
    *uri = (struct redis_uri){0};
}

struct redis_uri redis_uri_copy(const struct redis_uri *uri)
{
    struct redis_uri copy = *uri;
    copy.user = NULL;
    copy.host = g_strdup(uri->host);
    copy.path = g_strdup(uri->path);
    copy.hosts = g_strdupv(uri->hosts);
    if (uri->hosts) {
        copy.ports = g_new(uint16_t, g_strv_length(uri->hosts));
        memcpy(copy.ports, uri->ports, g_strv_length(uri->hosts) * sizeof *copy.ports);
    }
    copy.name = g_strdup(uri->name);
    copy.prefix = g_strdup(uri->prefix);
    return copy;
}

char *redis_uri_show_host(const char *host, uint16_t port)
{
    bool brackets = strchr(host, ':') != NULL;
    return g_strdup_printf("%s%s%s:%u", brackets ? "[" : "", host, brackets ? "]" : "", port);
}

char *redis_uri_show(const struct redis_uri *uri)
{
    const char *secure = uri->tls ? "s" : "";
    char *text;
    if (uri->path) {
        char *path = g_uri_escape_string(uri->path, G_URI_RESERVED_CHARS_ALLOWED_IN_PATH, FALSE);
        text = g_strdup_printf(SCHEME_UNIX "//%s?db=%d", path, uri->database);
        g_free(path);
        return text;
    }
    if (uri->host) {
        char *host = redis_uri_show_host(uri->host, uri->port);
        text = g_strdup_printf("redis%s://%s/%d", secure, host, uri->database);
        g_free(host);
        return text;
    }
    GString *list = g_string_new(NULL);
    g_string_printf(list, "redis%s+%s://", secure, uri->kind == REDIS_SENTINEL ? "sentinel" : "cluster");
    for (size_t i = 0; uri->hosts[i]; i++) {
        char *host = redis_uri_show_host(uri->hosts[i], uri->ports[i]);
        g_string_append_printf(list, "%s%s", i > 0 ? "," : "", host);
        g_free(host);
    }
    if (uri->kind == REDIS_SENTINEL) {
        g_string_append_printf(list, "/%s?db=%d", uri->name, uri->database);
    } else if (uri->prefix) {
        g_string_append(list, "/?prefix=");
        g_string_append_uri_escaped(list, uri->prefix, "{}:/", FALSE);
    }
    return g_string_free(list, FALSE);
}

/* Opens it without waiting for anybody (a FIFO) and without following a symbolic
 * link, whose target others may choose; what it is, is asked of what was opened. */
static int uri_open_credentials(const char *path, const struct complaint *complaint)
{
    struct stat status;
    int result = 0;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP) {
        return complain(complaint, -ELOOP, "credentials file '%s' is a symbolic link: name the file itself", path);
    }
    if (fd < 0 || fstat(fd, &status) < 0) {
        result = -errno;
        complain(complaint, result, "credentials file '%s': %s", path, g_strerror(-result));
    } else if (!S_ISREG(status.st_mode)) {
        result = complain(complaint, -EINVAL, "credentials file '%s' is not a regular file", path);
    } else if (status.st_uid != 0 && status.st_uid != geteuid()) {
        result = complain(complaint, -EPERM,
                          "credentials file '%s' belongs to another user: its owner must be root or who mounts", path);
    } else if (status.st_mode & 07777 & ~(mode_t)(S_IRUSR | S_IWUSR)) {
        result =
            complain(complaint, -EPERM, "credentials file '%s' has mode %04o, and must have 0600: run chmod 600 %s",
                     path, status.st_mode & 07777, path);
    } else if (status.st_size > CREDENTIALS_BYTES_MAX) {
        result =
            complain(complaint, -EFBIG, "credentials file '%s' is longer than %d bytes", path, CREDENTIALS_BYTES_MAX);
    }
    if (result < 0 && fd >= 0) {
        close(fd);
    }
    return result < 0 ? result : fd;
}

/* Reads all of it: at most `size` bytes, or -errno. */
static ssize_t uri_read_whole(int fd, char *buffer, size_t size)
{
    size_t used = 0;
    while (used < size) {
        ssize_t got = read(fd, buffer + used, size - used);
        if (got < 0 && errno != EINTR) {
            return -errno;
        }
        if (got == 0) {
            break;
        }
        used += got > 0 ? (size_t)got : 0;
    }
    return (ssize_t)used;
}

int redis_credentials_read(const char *path, char **ret_user, char **ret_password, char *error, size_t error_size)
{
    const struct complaint complaint = {error, error_size};
    char text[CREDENTIALS_BYTES_MAX + 1];
    int result = 0, fd = uri_open_credentials(path, &complaint);
    if (fd < 0) {
        return fd;
    }
    ssize_t got = uri_read_whole(fd, text, CREDENTIALS_BYTES_MAX);
    close(fd);
    if (got < 0) {
        explicit_bzero(text, sizeof text); /* what was read before */
        return complain(&complaint, (int)got, "credentials file '%s': %s", path, g_strerror((int)-got));
    }
    text[got] = '\0';
    bool binary = strlen(text) < (size_t)got;
    text[strcspn(text, "\r\n")] = '\0';
    char *colon = strchr(text, ':'), *password = colon ? colon + 1 : text;
    if (binary) {
        result = complain(&complaint, -EINVAL, "credentials file '%s' is not a text file", path);
    } else if (!*password) {
        result =
            complain(&complaint, -EINVAL,
                     "credentials file '%s' has no password in its first line: write PASSWORD or USER:PASSWORD", path);
    } else {
        *ret_user = colon && colon > text ? g_strndup(text, (gsize)(colon - text)) : NULL;
        *ret_password = g_strdup(password);
    }
    explicit_bzero(text, sizeof text);
    return result;
}
