/* key: names to keys; see key.h. */
#include "backend/redis/key.h"

#include <errno.h>
#include <string.h>

#include "backend/redis/redis.h"

int redis_keys_init(struct redis_keys *keys, const char *prefix, const char *template, char *error, size_t error_size)
{
    template = template ? template : REDIS_KEY_DEFAULT;
    const char *at = strstr(template, "{n}");
    *keys = (struct redis_keys){.made = g_string_new(NULL)};
    if (!at) {
        g_snprintf(error, error_size,
                   "key=%s: the template of keys has no {n}: it must contain {n}, which stands for the lock's name",
                   template);
        return -EINVAL;
    }
    keys->before = g_strdup_printf("%s%.*s", prefix ? prefix : "", (int)(at - template), template);
    keys->behind = g_strdup(at + strlen("{n}"));
    if (redis_key_is_side(keys->before)) {
        g_snprintf(error, error_size, "prefix= and key= give keys that begin with lfs:, as the side keys of locks do");
        return -EINVAL;
    }
    return 0;
}

void redis_keys_set_identity(struct redis_keys *keys, const char *identity)
{
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, identity, -1);
    keys->identity = g_strdup_printf("%s%.32s", keys->before, digest);
    g_free(digest);
}

void redis_keys_clear(struct redis_keys *keys)
{
    g_free(keys->before);
    g_free(keys->behind);
    g_free(keys->identity);
    g_string_free(keys->made, TRUE);
}

GString *redis_key_make(struct redis_keys *keys, char letter, const char *name)
{
    GString *key = g_string_truncate(keys->made, 0);
    if (letter) { /* no call in another's arguments: GLib has macros of them that shadow their own variables */
        g_string_append(key, REDIS_SIDE);
        g_string_append_c(key, letter);
        g_string_append_c(key, ':');
    }
    if (letter == 'm') {
        return g_string_append(key, keys->identity);
    }
    g_string_append(key, *name ? "" : REDIS_SIDE);
    g_string_append(key, keys->before);
    g_string_append(key, *name ? name : "/");
    return g_string_append(key, keys->behind);
}

char *redis_key(struct redis_keys *keys, char letter, const char *name)
{
    const GString *key = redis_key_make(keys, letter, name);
    return g_strndup(key->str, key->len);
}

bool redis_key_is_side(const char *key)
{
    return g_str_has_prefix(key, REDIS_SIDE);
}

/* The text between the first { and the next } is the tag, unless it is empty. */
bool redis_key_has_tag(const char *key)
{
    const char *open = strchr(key, '{'), *close = open ? strchr(open, '}') : NULL;
    return close && close > open + 1;
}

bool redis_key_allowed(struct redis_keys *keys, const char *name)
{
    return !*name || !redis_key_is_side(redis_key_make(keys, 0, name)->str);
}

char *redis_key_name(const struct redis_keys *keys, const char *key, size_t length)
{
    size_t side = strlen(REDIS_SIDE "X:"), before = strlen(keys->before), behind = strlen(keys->behind);
    if (length > side && memcmp(key, REDIS_SIDE, strlen(REDIS_SIDE)) == 0) {
        key += side;
        length -= side;
    }
    return length < before + behind ? NULL : g_strndup(key + before, length - before - behind);
}
