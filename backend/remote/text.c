/* text: names, ticket ids, and the words of a store's answers. */
#include <sys/random.h>

#include "backend/remote/remote.h"

#define NAME_MAX_BYTES 255
#define PATH_MAX_BYTES 4096

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
