/* options_word: the words of an -o list; see options.h.
 *
 * Every word is in one table: ours, FUSE's own and mount(8)'s flags (handed on to
 * libfuse as they are), and words that only mount(8) and fstab(5) care for
 * (dropped).  A word that is in none of these is an error, so that a misspelt
 * option is never quietly without effect.
 */
#include <errno.h>
#include <glib.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "duration.h"
#include "options_private.h"

#define PERMISSION_BITS 07777

/* `value` is what follows the word's name in the table. */
typedef int take_word(struct options_parse *p, const char *word, const char *value);

/* Backends that have a use for it. */
enum option_scope { FOR_ALL, FOR_LOCAL, FOR_REDIS };

struct option_word {
    const char *name; /* all of the word, or with '=' or '-' at its end, how it begins */
    take_word *take;
    enum option_scope scope;
};

int options_duration(const char *text, size_t length, int64_t *ret_ms)
{
    return options_duration_within(text, length, LEASE_TTL_MIN, LEASE_TTL_MAX, ret_ms);
}

int options_duration_within(const char *text, size_t length, int64_t min, int64_t max, int64_t *ret_ms)
{
    int64_t ms;
    if (duration_parse(text, length, &ms) != 0 || ms < min || ms > max) {
        return -EINVAL;
    }
    *ret_ms = ms;
    return 0;
}

/* Digits of the base and nothing else, at most `max`. */
static bool parse_number(const char *text, int base, unsigned long max, unsigned long *ret_number)
{
    char *end;
    if (!g_ascii_isdigit(text[0])) {
        return false;
    }
    errno = 0;
    unsigned long number = strtoul(text, &end, base);
    if (errno || *end || number > max) {
        return false;
    }
    *ret_number = number;
    return true;
}

static int take_ttl(struct options_parse *p, const char *word, const char *value)
{
    if (options_duration(value, strlen(value), &p->options->ttl) < 0) {
        return options_fail(p, "%s: ttl= takes a time from 100ms to 3650d, such as 500ms, 30s, 5m or 1h", word);
    }
    p->has_ttl = true;
    return 0;
}

static int take_owner(struct options_parse *p, const char *word, const char *value)
{
    if (strcmp(value, "process") != 0 && strcmp(value, "user") != 0) {
        return options_fail(p, "%s: owner= takes process or user", word);
    }
    p->options->owner_user = strcmp(value, "user") == 0;
    return 0;
}

static int take_sync(struct options_parse *p, const char *word, const char *value)
{
    if (strcmp(value, "always") != 0 && strcmp(value, "no") != 0) {
        return options_fail(p, "%s: sync= takes always or no", word);
    }
    p->options->sync_always = strcmp(value, "always") == 0;
    return 0;
}

static int take_sandbox(struct options_parse *p, const char *word, const char *value)
{
    if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0) {
        return options_fail(p, "%s: sandbox= takes yes or no", word);
    }
    p->options->sandbox = strcmp(value, "yes") == 0;
    return 0;
}

static int take_log(struct options_parse *p, const char *word, const char *value)
{
    if (!log_parse_level(value, &p->options->log)) {
        return options_fail(p, "%s: log= takes error, warning, info or debug", word);
    }
    return 0;
}

static int take_mode(struct options_parse *p, const char *word, const char *value)
{
    unsigned long mode;
    if (!parse_number(value, 8, PERMISSION_BITS, &mode)) {
        return options_fail(p, "%s: mode= takes permissions in octal, such as 0755 or 1777", word);
    }
    p->options->mode = (mode_t)mode;
    p->has_mode = true;
    return 0;
}

/* The highest id is (uid_t)-1, which means "none" everywhere. */
static int take_uid(struct options_parse *p, const char *word, const char *value)
{
    unsigned long id;
    if (!parse_number(value, 10, UINT_MAX - 1, &id)) {
        return options_fail(p, "%s: uid= takes the number of a user", word);
    }
    p->options->uid = (uid_t)id;
    return 0;
}

static int take_gid(struct options_parse *p, const char *word, const char *value)
{
    unsigned long id;
    if (!parse_number(value, 10, UINT_MAX - 1, &id)) {
        return options_fail(p, "%s: gid= takes the number of a group", word);
    }
    p->options->gid = (gid_t)id;
    return 0;
}

static int take_redis_time(struct options_parse *p, const char *word, const char *value, int64_t *ret_ms)
{
    if (options_duration_within(value, strlen(value), REDIS_TIME_MIN, REDIS_TIME_MAX, ret_ms) < 0) {
        return options_fail(p, "%s: %.*s takes a time from 10ms to 10m, such as 500ms, 2s or 1m", word,
                            (int)(value - word), word);
    }
    return 0;
}

static int take_timeout(struct options_parse *p, const char *word, const char *value)
{
    return take_redis_time(p, word, value, &p->options->redis.timeout);
}

static int take_command_timeout(struct options_parse *p, const char *word, const char *value)
{
    return take_redis_time(p, word, value, &p->options->redis.command_timeout);
}

static int take_connect_timeout(struct options_parse *p, const char *word, const char *value)
{
    return take_redis_time(p, word, value, &p->options->redis.connect_timeout);
}

/* Text that may have any character: a backslash stands before a comma and before
 * itself. */
static char *unescape(const char *value)
{
    GString *text = g_string_new(NULL);
    for (; *value; value++) {
        if (*value == '\\' && value[1]) {
            value++;
        }
        g_string_append_c(text, *value);
    }
    return g_string_free(text, FALSE);
}

static int take_prefix(struct options_parse *p, const char *word, const char *value)
{
    (void)word;
    g_free(p->options->redis.prefix);
    p->options->redis.prefix = unescape(value);
    return 0;
}

static int take_key(struct options_parse *p, const char *word, const char *value)
{
    const char *name = strstr(value, "{n}");
    if (!name || strstr(name + 1, "{n}")) {
        return options_fail(p, "%s: key= takes the key of a lock, with {n} once, where its name is to stand", word);
    }
    g_free(p->options->redis.key);
    p->options->redis.key = unescape(value);
    return 0;
}

/* Absolute, because the daemon leaves the working directory. */
static int take_credentials(struct options_parse *p, const char *word, const char *value)
{
    if (!*value) {
        return options_fail(p, "%s: credentials= takes the name of a file", word);
    }
    char *path = unescape(value);
    g_free(p->options->redis.credentials);
    p->options->redis.credentials = g_canonicalize_filename(path, NULL);
    g_free(path);
    return 0;
}

static int take_keepalive(struct options_parse *p, const char *word, const char *value)
{
    (void)value;
    p->options->redis.keepalive = strcmp(word, "keepalive") == 0;
    return 0;
}

static int take_background(struct options_parse *p, const char *word, const char *value)
{
    (void)word, (void)value;
    p->options->redis.background = true;
    return 0;
}

int options_add_fuse(struct options_parse *p, const char *word)
{
    struct fuse_args *fuse = &p->options->fuse;
    if (fuse_opt_add_arg(fuse, "-o") < 0 || fuse_opt_add_arg(fuse, word) < 0) {
        return options_fail(p, "out of memory");
    }
    return 0;
}

static int pass_on(struct options_parse *p, const char *word, const char *value)
{
    (void)value;
    return options_add_fuse(p, word);
}

static int pass_debug(struct options_parse *p, const char *word, const char *value)
{
    (void)value;
    p->options->foreground = true;
    return options_add_fuse(p, word);
}

static int pass_allow_other(struct options_parse *p, const char *word, const char *value)
{
    (void)value;
    p->allow_other = true;
    return options_add_fuse(p, word);
}

static int pass_fsname(struct options_parse *p, const char *word, const char *value)
{
    (void)value;
    p->has_fsname = true;
    return options_add_fuse(p, word);
}

static int pass_subtype(struct options_parse *p, const char *word, const char *value)
{
    (void)value;
    p->has_subtype = true;
    return options_add_fuse(p, word);
}

static int drop(struct options_parse *p, const char *word, const char *value)
{
    (void)p, (void)word, (void)value;
    return 0;
}

static int take_remount(struct options_parse *p, const char *word, const char *value)
{
    (void)word, (void)value;
    p->options->remount = true;
    return 0;
}

/* What mount tables show of any FUSE mount, and mount(8) hands back to be remounted. */
static int take_shown(struct options_parse *p, const char *word, const char *value)
{
    (void)value;
    return p->options->remount || p->sloppy ? 0 : options_fail(p, "%s: this is the kernel's, not yours to set", word);
}

static int refuse_read_only(struct options_parse *p, const char *word, const char *value)
{
    (void)value;
    return options_fail(p, "%s: a mount cannot be read-only, because locks need writing", word);
}

static const struct option_word option_words[] = {
    {"ttl=", take_ttl, FOR_ALL},
    {"owner=", take_owner, FOR_ALL},
    {"mode=", take_mode, FOR_ALL},
    {"uid=", take_uid, FOR_ALL},
    {"gid=", take_gid, FOR_ALL},
    {"sync=", take_sync, FOR_LOCAL},
    {"sandbox=", take_sandbox, FOR_ALL},
    {"log=", take_log, FOR_ALL},
    {"ro", refuse_read_only, FOR_ALL},
    {"remount", take_remount, FOR_ALL},
    {"user_id=", take_shown, FOR_ALL},
    {"group_id=", take_shown, FOR_ALL},
    {"max_read=", take_shown, FOR_ALL},

    {"prefix=", take_prefix, FOR_REDIS},
    {"key=", take_key, FOR_REDIS},
    {"credentials=", take_credentials, FOR_REDIS},
    {"timeout=", take_timeout, FOR_REDIS},
    {"command_timeout=", take_command_timeout, FOR_REDIS},
    {"connect_timeout=", take_connect_timeout, FOR_REDIS},
    {"keepalive", take_keepalive, FOR_REDIS},
    {"nokeepalive", take_keepalive, FOR_REDIS},
    {"background", take_background, FOR_REDIS},

    /* libfuse's */
    {"allow_other", pass_allow_other, FOR_ALL},
    {"allow_root", pass_on, FOR_ALL},
    {"auto_unmount", pass_on, FOR_ALL},
    {"debug", pass_debug, FOR_ALL},
    {"default_permissions", drop, FOR_ALL}, /* on where it matters */
    {"fsname=", pass_fsname, FOR_ALL},
    {"subtype=", pass_subtype, FOR_ALL},

    /* mount(8)'s that the kernel wants to know */
    {"rw", pass_on, FOR_ALL},
    {"suid", pass_on, FOR_ALL},
    {"nosuid", pass_on, FOR_ALL},
    {"dev", pass_on, FOR_ALL},
    {"nodev", pass_on, FOR_ALL},
    {"exec", pass_on, FOR_ALL},
    {"noexec", pass_on, FOR_ALL},
    {"atime", pass_on, FOR_ALL},
    {"noatime", pass_on, FOR_ALL},
    {"async", pass_on, FOR_ALL},
    {"sync", pass_on, FOR_ALL},
    {"dirsync", pass_on, FOR_ALL},

    /* access times are not kept */
    {"diratime", drop, FOR_ALL},
    {"nodiratime", drop, FOR_ALL},
    {"relatime", drop, FOR_ALL},
    {"norelatime", drop, FOR_ALL},
    {"strictatime", drop, FOR_ALL},
    {"nostrictatime", drop, FOR_ALL},
    {"lazytime", drop, FOR_ALL},
    {"nolazytime", drop, FOR_ALL},

    /* for mount(8), fstab(5) and systemd.mount(5) */
    {"defaults", drop, FOR_ALL},
    {"auto", drop, FOR_ALL},
    {"noauto", drop, FOR_ALL},
    {"user", drop, FOR_ALL},
    {"user=", drop, FOR_ALL},
    {"nouser", drop, FOR_ALL},
    {"users", drop, FOR_ALL},
    {"nousers", drop, FOR_ALL},
    {"owner", drop, FOR_ALL},
    {"noowner", drop, FOR_ALL},
    {"group", drop, FOR_ALL},
    {"nogroup", drop, FOR_ALL},
    {"nofail", drop, FOR_ALL},
    {"_netdev", drop, FOR_ALL},
    {"comment=", drop, FOR_ALL},
    {"x-", drop, FOR_ALL},
    {"X-", drop, FOR_ALL},
};

/* Which backend it is for, is known only after the last word. */
static void note_scope(struct options_parse *p, const struct option_word *known)
{
    if (known->scope == FOR_REDIS && !p->only_redis) {
        p->only_redis = known->name;
    } else if (known->scope == FOR_LOCAL && !p->only_local) {
        p->only_local = known->name;
    }
}

int options_word(struct options_parse *p, const char *word)
{
    for (size_t i = 0; i < G_N_ELEMENTS(option_words); i++) {
        const char *name = option_words[i].name;
        size_t length = strlen(name);
        bool is_beginning = name[length - 1] == '=' || name[length - 1] == '-';
        if (is_beginning ? strncmp(word, name, length) == 0 : strcmp(word, name) == 0) {
            note_scope(p, &option_words[i]);
            return option_words[i].take(p, word, word + length);
        }
    }
    return p->sloppy ? 0 : options_fail(p, "unknown option '%s': see OPTIONS in leasefs(8)", word);
}
