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

#include "options_private.h"

#define PERMISSION_BITS 07777

/* `value` is what follows the word's name in the table. */
typedef int take_word(struct options_parse *p, const char *word, const char *value);

struct option_word {
    const char *name; /* all of the word, or with '=' or '-' at its end, how it begins */
    take_word *take;
};

int options_duration(const char *text, size_t length, int64_t *ret_ms)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    int64_t whole = 0, fraction = 0, scale = 1;
    size_t at = 0;

    for (; at < length && g_ascii_isdigit(text[at]); at++) {
        whole = whole * 10 + (text[at] - '0');
        if (whole > LEASE_TTL_MAX) {
            return -EINVAL;
        }
    }
    if (at == 0) {
        return -EINVAL;
    }
    if (at < length && text[at] == '.') {
        size_t point = at++;
        for (; at < length && g_ascii_isdigit(text[at]); at++) {
            if (scale < 1000000000) { /* finer than a millisecond of a day */
                fraction = fraction * 10 + (text[at] - '0');
                scale *= 10;
            }
        }
        if (at == point + 1) {
            return -EINVAL;
        }
    }
    for (size_t i = 0; i < G_N_ELEMENTS(units); i++) {
        if (strlen(units[i].name) == length - at && memcmp(text + at, units[i].name, length - at) == 0) {
            if (whole > LEASE_TTL_MAX / units[i].ms) {
                return -EINVAL;
            }
            int64_t ms = whole * units[i].ms + fraction * units[i].ms / scale;
            if (ms < LEASE_TTL_MIN || ms > LEASE_TTL_MAX) {
                return -EINVAL;
            }
            *ret_ms = ms;
            return 0;
        }
    }
    return -EINVAL;
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

static int refuse_read_only(struct options_parse *p, const char *word, const char *value)
{
    (void)value;
    return options_fail(p, "%s: a mount cannot be read-only, because locks need writing", word);
}

static const struct option_word option_words[] = {
    {"ttl=", take_ttl},
    {"owner=", take_owner},
    {"mode=", take_mode},
    {"uid=", take_uid},
    {"gid=", take_gid},
    {"sync=", take_sync},
    {"ro", refuse_read_only},

    /* libfuse's */
    {"allow_other", pass_allow_other},
    {"allow_root", pass_on},
    {"auto_unmount", pass_on},
    {"debug", pass_debug},
    {"default_permissions", drop}, /* on where it matters */
    {"fsname=", pass_fsname},
    {"subtype=", pass_subtype},

    /* mount(8)'s that the kernel wants to know */
    {"rw", pass_on},
    {"suid", pass_on},
    {"nosuid", pass_on},
    {"dev", pass_on},
    {"nodev", pass_on},
    {"exec", pass_on},
    {"noexec", pass_on},
    {"atime", pass_on},
    {"noatime", pass_on},
    {"async", pass_on},
    {"sync", pass_on},
    {"dirsync", pass_on},

    /* access times are not kept */
    {"diratime", drop},
    {"nodiratime", drop},
    {"relatime", drop},
    {"norelatime", drop},
    {"strictatime", drop},
    {"nostrictatime", drop},
    {"lazytime", drop},
    {"nolazytime", drop},

    /* for mount(8), fstab(5) and systemd.mount(5) */
    {"defaults", drop},
    {"auto", drop},
    {"noauto", drop},
    {"user", drop},
    {"user=", drop},
    {"nouser", drop},
    {"users", drop},
    {"nousers", drop},
    {"owner", drop},
    {"noowner", drop},
    {"group", drop},
    {"nogroup", drop},
    {"nofail", drop},
    {"_netdev", drop},
    {"comment=", drop},
    {"x-", drop},
};

int options_word(struct options_parse *p, const char *word)
{
    for (size_t i = 0; i < G_N_ELEMENTS(option_words); i++) {
        const char *name = option_words[i].name;
        size_t length = strlen(name);
        bool is_beginning = name[length - 1] == '=' || name[length - 1] == '-';
        if (is_beginning ? strncmp(word, name, length) == 0 : strcmp(word, name) == 0) {
            return option_words[i].take(p, word, word + length);
        }
    }
    return options_fail(p, "unknown option '%s': see OPTIONS in leasefs(8)", word);
}
