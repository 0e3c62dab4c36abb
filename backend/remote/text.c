/* text: names, ticket ids, hosts, and the words of a store's answers. */
#include <sys/random.h>

#include "backend/remote/remote.h"

#define NAME_MAX_BYTES 255
#define PATH_MAX_BYTES 4096
#define HOST_BYTES_MAX 253
#define HOST_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_"

char *remote_parent(const char *name, const char **ret_leaf)
{
    const char *slash = strrchr(name, '/');
    *ret_leaf = slash ? slash + 1 : name;
    return g_strndup(name, slash ? (gsize)(slash - name) : 0);
}

bool remote_is_id(const char *id)
{
    return strlen(id) == REMOTE_ID_SIZE - 1 && strspn(id, "0123456789abcdef") == REMOTE_ID_SIZE - 1;
}

clock_ms remote_deadline(clock_ms sent, int64_t ttl)
{
    return sent + ttl - (ttl / 100 + 2);
}

int64_t remote_time_left(const struct remote_ticket *t)
{
    int64_t left = MAX(t->head.deadline - clock_now(), 0);
    return left + left / 99 + 3; /* more than remote_deadline takes off */
}

void remote_make_id(char id[REMOTE_ID_SIZE])
{
    unsigned char random[(REMOTE_ID_SIZE - 1) / 2];
    while (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
    }
    for (size_t i = 0; i < sizeof random; i++) {
        id[2 * i] = "0123456789abcdef"[random[i] >> 4];
        id[2 * i + 1] = "0123456789abcdef"[random[i] & 15];
    }
    id[REMOTE_ID_SIZE - 1] = '\0';
}

bool remote_is_component(const char *name)
{
    return *name && strlen(name) <= NAME_MAX_BYTES && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

bool remote_is_path(const char *path)
{
    char **parts = g_strsplit(path, "/", -1);
    bool good = *path && strlen(path) < PATH_MAX_BYTES;
    for (size_t i = 0; parts[i] && good; i++) {
        good = remote_is_component(parts[i]);
    }
    g_strfreev(parts);
    return good;
}

bool remote_is_numbered(const char *leaf)
{
    size_t length = strlen(leaf);
    return length > 10 && leaf[length - 11] == '-' && strspn(leaf + length - 10, "0123456789") == 10;
}

enum backend_result remote_parse_result(const char *word, enum backend_result otherwise)
{
    static const struct {
        const char *word;
        enum backend_result result;
    } words[] = {
        {"ok", BACKEND_OK},
        {"busy", BACKEND_BUSY},
        {"stale", BACKEND_STALE},
        {"missing", BACKEND_MISSING},
        {"exists", BACKEND_EXISTS},
        {"notempty", BACKEND_NOT_EMPTY},
        {"invalid", BACKEND_INVALID},
        {"grace", BACKEND_GRACE},
        {"deadlock", BACKEND_DEADLOCK},
        {"directory", BACKEND_IS_DIRECTORY},
        {"notdirectory", BACKEND_NOT_DIRECTORY},
        {"full", BACKEND_FULL},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(words); i++) {
        if (strcmp(word, words[i].word) == 0) {
            return words[i].result;
        }
    }
    return otherwise;
}

GArray *remote_parse_segments(const char *text)
{
    GArray *segments = *text ? g_array_new(FALSE, FALSE, sizeof(struct backend_segment)) : NULL;
    for (char *at = (char *)text, *mode; *at;) { /* sscanf(3) would look at all the rest for each number */
        struct backend_segment s = {.start = g_ascii_strtoull(at, &mode, 16)};
        s.end = g_ascii_strtoull(mode, &mode, 16);
        s.mode = g_ascii_strtoull(mode, &at, 10) ? BACKEND_SHARED : BACKEND_EXCLUSIVE;
        if (at == mode) {
            break;
        }
        g_array_append_val(segments, s);
    }
    return segments;
}

bool remote_is_host(const char *host)
{
    return g_hostname_is_ip_address(host) ||
           (strlen(host) <= HOST_BYTES_MAX && host[strspn(host, HOST_CHARACTERS)] == '\0');
}

static enum remote_host_fault text_parse_host(const char *text, char **ret_host, uint16_t *ret_port)
{
    const char *close = *text == '[' ? strchr(text, ']') : NULL, *begin = text + (close != NULL);
    const char *end = close ? close : strchrnul(text, ':'), *behind = close ? close + 1 : end;
    guint64 port = 0;
    if (*behind == ':' && behind[1] && !g_ascii_string_to_unsigned(behind + 1, 10, 1, UINT16_MAX, &port, NULL)) {
        return REMOTE_HOST_BAD_PORT;
    }
    *ret_host = g_strndup(begin, (gsize)(end - begin));
    *ret_port = (uint16_t)port;
    return end == begin                                                ? REMOTE_HOST_MISSING
           : (*behind && *behind != ':') || !remote_is_host(*ret_host) ? REMOTE_HOST_BAD
                                                                       : REMOTE_HOST_GOOD;
}

enum remote_host_fault remote_parse_hosts(const char *text, char ***ret_hosts, uint16_t **ret_ports)
{
    char **list = g_strsplit(text, ",", -1);
    guint count = g_strv_length(list);
    enum remote_host_fault fault = count > 0 ? REMOTE_HOST_GOOD : REMOTE_HOST_MISSING;
    *ret_hosts = g_new0(char *, count + 1);
    *ret_ports = g_new0(uint16_t, count + 1);
    for (guint i = 0; i < count && fault == REMOTE_HOST_GOOD; i++) {
        fault = text_parse_host(list[i], &(*ret_hosts)[i], &(*ret_ports)[i]);
    }
    g_strfreev(list);
    return fault;
}
