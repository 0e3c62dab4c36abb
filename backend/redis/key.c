/* key: names to keys.
 *
 * The key of a lock is the prefix and the template with its name in place of
 * {n}; its side keys are lfs:X: and that key.  So a prefix with a {tag}, which
 * Redis Cluster makes a hash slot of, has all keys of its mounts in one slot.  A
 * name is refused whose key would be a side key itself, of whatever lock.
 *
 * The root directory has no key that any name could have, under whatever
 * template: else a name in one mount would be the root of another whose prefix
 * it is.
 */
#include <string.h>

#include "backend/redis/private.h"

GString *redis_key_make(struct redis *r, char letter, const char *name)
{
    GString *key = g_string_truncate(r->key, 0);
    if (letter) { /* no call in another's arguments: GLib has macros of them that shadow their own variables */
        g_string_append(key, REDIS_SIDE);
        g_string_append_c(key, letter);
        g_string_append_c(key, ':');
    }
    if (letter == 'm') {
        return g_string_append(key, r->identity);
    }
    g_string_append(key, *name ? "" : REDIS_SIDE);
    g_string_append(key, r->before);
    g_string_append(key, *name ? name : "/");
    return g_string_append(key, r->behind);
}

char *redis_key(struct redis *r, const char *name)
{
    return redis_side_key(r, 0, name);
}

char *redis_side_key(struct redis *r, char letter, const char *name)
{
    const GString *key = redis_key_make(r, letter, name);
    return g_strndup(key->str, key->len);
}

char *redis_identity(struct redis *r, const char *identity)
{
    char *digest = g_compute_checksum_for_string(G_CHECKSUM_SHA256, identity, -1);
    char *key = g_strdup_printf("%s%.32s", r->before, digest);
    g_free(digest);
    return key;
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

bool redis_key_allowed(struct redis *r, const char *name)
{
    return !*name || !redis_key_is_side(redis_key_make(r, 0, name)->str);
}

char *redis_key_name(struct redis *r, const char *key, size_t length)
{
    size_t side = strlen(REDIS_SIDE "X:"), before = strlen(r->before), behind = strlen(r->behind);
    if (length > side && memcmp(key, REDIS_SIDE, strlen(REDIS_SIDE)) == 0) {
        key += side;
        length -= side;
    }
    return length < before + behind ? NULL : g_strndup(key + before, length - before - behind);
}
