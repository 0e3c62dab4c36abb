/* key: names to keys, on one server and on several.
 *
 * The key of a lock is the prefix and the template with its name in place of {n}; its side keys are lfs:X: and that
 * key.  So a prefix with a {tag}, which Redis Cluster makes a hash slot of, has all keys of its mounts in one slot.  A
 * lock cannot have a name whose key would be a side key itself, of whatever lock.
 *
 * The root directory has no key that any name could have, under whatever template: else a name in one mount would be
 * the root of another whose prefix it is.
 */
#ifndef BACKEND_REDIS_KEY_H
#define BACKEND_REDIS_KEY_H

#include <glib.h>
#include <stdbool.h>

#define REDIS_SIDE "lfs:" /* all side keys begin with it */

struct redis_keys {
    char *before, *behind; /* of a lock's key: around the name */
    char *identity;        /* the digest of a mount's identity, behind the prefix; or NULL */
    GString *made;         /* see redis_key_make */
};

/* The options prefix= and key=; NULL: the defaults.  0, or -EINVAL with one line in `error`; free with redis_keys_clear
 * in both cases. */
int redis_keys_init(struct redis_keys *keys, const char *prefix, const char *template, char *error, size_t error_size);
void redis_keys_set_identity(struct redis_keys *keys, const char *identity);
void redis_keys_clear(struct redis_keys *keys);

/* The key of a name, "" for the root, in keys->made, which the next call overwrites: a call has twenty keys.  `letter`:
 * 0: the lock's own key; 'm': that of the leases of the mount with `identity`; else that side key. */
GString *redis_key_make(struct redis_keys *keys, char letter, const char *name);
/* The same as a new string. */
char *redis_key(struct redis_keys *keys, char letter, const char *name);
/* Is it a side key, which no lock can have? */
bool redis_key_is_side(const char *key);
/* Has it a {tag}, which puts all keys that begin with it into one hash slot of a Cluster? */
bool redis_key_has_tag(const char *key);
/* Can a lock have this name?  The root always can. */
bool redis_key_allowed(struct redis_keys *keys, const char *name);
/* The name of the lock whose key or side key this is; NULL: of none.  A new string. */
char *redis_key_name(const struct redis_keys *keys, const char *key, size_t length);

#endif
