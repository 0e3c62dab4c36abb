/* mount_option: parses the options of an -o list; see options.h.
 *
 * Every word is in one table: ours, FUSE's own and mount(8)'s flags (handed on to
 * libfuse as they are), and words that only mount(8) and fstab(5) care for
 * (dropped).  A word that is in none of these is an error, so that a misspelt
 * option is never quietly without effect.  The table is also what --help shows,
 * and what the man page and the completion of bash are tested against.
 */
#include <errno.h>
#include <glib.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fs/options/duration.h"
#include "fs/options/private.h"

#define PERMISSION_BITS 07777
#define LOCK_PERMISSION_BITS 0777

enum mount_option_kind {
    OPTION_TIME,   /* int64_t: milliseconds, from min to max */
    OPTION_GRACE,  /* the same, or "strict", which leaves it as it is */
    OPTION_OCTAL,  /* mode_t: at most max */
    OPTION_NUMBER, /* uint32_t, uid_t or gid_t: at most max */
    OPTION_COUNT,  /* uint64_t, with K, M or G behind it: 2^10, 2^20, 2^30 */
    OPTION_CHOICE, /* bool: whether it is the second word of `argument` */
    OPTION_LEVEL,  /* enum log_level */
    OPTION_TEXT,   /* char *: may have any character */
    OPTION_KEY,    /* the same, with {n} in it */
    OPTION_PATH,   /* char *: of a file, made absolute, because the daemon leaves the working directory */
    OPTION_SET,    /* bool: true */
    OPTION_CLEAR,  /* bool: false */
    OPTION_PASS,   /* for libfuse; a bool that tells so, if there is one */
    OPTION_DROP,
    OPTION_SHOWN,  /* what mount tables show of any FUSE mount, and mount(8) hands back to be remounted */
    OPTION_REFUSED /* with the reason in `help` */
};

/* Backends that have a use for it. */
enum option_scope {
    FOR_ALL = 0,
    FOR_LOCAL = 1 << OPTIONS_LOCAL,
    FOR_REDIS = 1 << OPTIONS_REDIS,
    FOR_REDLOCK = 1 << OPTIONS_REDLOCK,
    FOR_ZOOKEEPER = 1 << OPTIONS_ZOOKEEPER,
    FOR_POSTGRESQL = 1 << OPTIONS_POSTGRESQL
};
#define FOR_BOTH_REDIS (FOR_REDIS | FOR_REDLOCK)
#define FOR_SERVERS (FOR_BOTH_REDIS | FOR_ZOOKEEPER | FOR_POSTGRESQL)

struct mount_option {
    const char *name; /* all of the word, or with '=' or '-' at its end, how it begins */
    enum mount_option_kind kind;
    unsigned scope; /* of enum option_scope */
    size_t offset;  /* of its field in struct options; 0 (which is `kind`): none */
    int64_t min, max;
    const char *argument; /* as --help shows it */
    const char *takes;    /* as an error tells it */
    const char *help;     /* NULL: one of the words that --help only names */
};

#define FIELD(name) offsetof(struct options, name)
#define LEASE_TIME LEASE_TTL_MIN, LEASE_TTL_MAX, "TIME", "a time from 100ms to 3650d, such as 500ms, 30s, 5m or 1h"
#define REDIS_TIME REDIS_TIME_MIN, REDIS_TIME_MAX, "TIME", "a time from 10ms to 10m, such as 500ms, 2s or 1m"
#define COUNT "a number, such as 5000, 64K, 64M or 1G, or 0 for no limit"
#define KEEP_MAX (3600LL * 1000)
#define ID_MAX (UINT_MAX - 1) /* (uid_t)-1 means "none" everywhere */
#define READ_ONLY "a mount cannot be read-only, because locks need writing"

/* clang-format off */
static const struct mount_option mount_options[] = {
    {"ttl=", OPTION_TIME, FOR_ALL, FIELD(ttl), LEASE_TIME, "how long a lease outlives its owner (default 30s)"},
    {"owner=", OPTION_CHOICE, FOR_ALL, FIELD(owner_user), 0, 0, "process|user", "process or user",
     "whom a lease belongs to (default process)"},
    {"mode=", OPTION_OCTAL, FOR_ALL, FIELD(mode), 0, PERMISSION_BITS, "OCTAL",
     "permissions in octal, such as 0755 or 0777", "permissions of the top directory"},
    {"uid=", OPTION_NUMBER, FOR_ALL, FIELD(uid), 0, ID_MAX, "NUMBER", "the number of a user", "its owner"},
    {"gid=", OPTION_NUMBER, FOR_ALL, FIELD(gid), 0, ID_MAX, "NUMBER", "the number of a group", "its group"},
    {"lockmode=", OPTION_OCTAL, FOR_ALL, FIELD(lock_mode), 0, LOCK_PERMISSION_BITS, "OCTAL",
     "permissions in octal, such as 0666 or 0660", "permissions of new locks, whatever the umask"},
    {"user_locks=", OPTION_COUNT, FOR_ALL, FIELD(user_locks), 0, 0, "NUMBER", COUNT,
     "locks and directories of a user (default 100000)"},
    {"user_content=", OPTION_COUNT, FOR_ALL, FIELD(user_content), 0, 0, "NUMBER", COUNT,
     "bytes of content of a user (default 64M)"},
    {"locks=", OPTION_COUNT, FOR_ALL, FIELD(locks), 0, 0, "NUMBER", COUNT,
     "locks and directories of all users (default 10000000)"},
    {"content=", OPTION_COUNT, FOR_ALL, FIELD(content), 0, 0, "NUMBER", COUNT,
     "bytes of content of all users (default 1G)"},
    {"sync=", OPTION_CHOICE, FOR_LOCAL, FIELD(sync_always), 0, 0, "no|always", "always or no",
     "fsync before a lease is granted (default no)"},
    {"sandbox=", OPTION_CHOICE, FOR_ALL, FIELD(sandbox), 0, 0, "no|yes", "yes or no",
     "give up what the daemon does not need (default yes)"},
    {"follow=", OPTION_CHOICE, FOR_ALL, FIELD(follow), 0, 0, "no|yes", "yes or no",
     "run on the processor of the caller while one thread sends all requests (default yes)"},
    {"spin=", OPTION_NUMBER, FOR_ALL, FIELD(spin), 0, SPIN_MAX, "NUMBER", "microseconds from 0 to 1000",
     "how long to await the next request awake, in us (default 25)"},
    {"log=", OPTION_LEVEL, FOR_ALL, FIELD(log), 0, 0, "LEVEL", "error, warning, notice, info or debug",
     "error, warning, notice, info (default) or debug"},
    {"keep=", OPTION_TIME, FOR_ALL, FIELD(keep), 0, KEEP_MAX, "TIME", "a time up to 1h, such as 0, 30s or 1m",
     "how long the mount outlives its daemon (default 0)"},
    {"takeover", OPTION_SET, FOR_ALL, FIELD(takeover), .help = "replace the daemon of the mount that is there"},
    {"auto_unmount", OPTION_SET, FOR_ALL, FIELD(auto_unmount), .help = "unmount when no daemon comes in time"},
    {"remount", OPTION_SET, FOR_ALL, FIELD(remount), .help = "with ttl=: change that of the mount that is there"},

    {"credentials=", OPTION_PATH, FOR_SERVERS, FIELD(credentials), 0, 0, "FILE", "the name of a file",
     "password, or USER:PASSWORD, for the server"},
    {"sentinel_credentials=", OPTION_PATH, FOR_REDIS, FIELD(server.sentinel_credentials), 0, 0, "FILE",
     "the name of a file", "the same for Redis' Sentinels"},
    {"prefix=", OPTION_TEXT, FOR_BOTH_REDIS, FIELD(server.prefix), 0, 0, "TEXT", "", "before every key in Redis"},
    {"key=", OPTION_KEY, FOR_BOTH_REDIS, FIELD(server.key), 0, 0, "TEMPLATE",
     "the key of a lock, with {n} once, where its name is to stand", "the key of a lock (default {n})"},
    {"timeout=", OPTION_TIME, FOR_BOTH_REDIS, FIELD(server.timeout), REDIS_TIME, "of a request to Redis (default 5s)"},
    {"command_timeout=", OPTION_TIME, FOR_BOTH_REDIS, FIELD(server.command_timeout), REDIS_TIME,
     "of one command, before it is sent again"},
    {"connect_timeout=", OPTION_TIME, FOR_BOTH_REDIS, FIELD(server.connect_timeout), REDIS_TIME, "of a connection attempt"},
    {"keepalive", OPTION_SET, FOR_BOTH_REDIS, FIELD(server.keepalive), .help = "probe idle connections (default)"},
    {"nokeepalive", OPTION_CLEAR, FOR_BOTH_REDIS, FIELD(server.keepalive), .help = "do not"},
    {"grace=", OPTION_GRACE, FOR_BOTH_REDIS | FOR_POSTGRESQL, FIELD(server.grace), LEASE_TTL_MIN, LEASE_TTL_MAX, "TIME|strict",
     "strict, or a time from 100ms to 3650d, such as 30s or 5m",
     "how long, at most, a server that has forgotten grants nothing new"},
    {"wait=", OPTION_NUMBER, FOR_REDIS, FIELD(server.wait), 0, REDIS_WAIT_MAX, "NUMBER", "a number from 0 to 100",
     "how many replicas must have what is granted (default 0)"},
    {"background", OPTION_SET, FOR_SERVERS, FIELD(server.background), .help = "mount although the server is away"},

    {"layout=", OPTION_CHOICE, FOR_ZOOKEEPER, FIELD(layout_kazoo), 0, 0, "curator|kazoo", "curator or kazoo",
     "whose locks ours exclude in ZooKeeper (default curator)"},
    {"state=", OPTION_PATH, FOR_ZOOKEEPER, FIELD(state), 0, 0, "DIR", "the name of a directory",
     "where the mount's session is kept for its next daemon"},
    {"shedlock=", OPTION_TEXT, FOR_POSTGRESQL, FIELD(shedlock), 0, 0, "TABLE", "",
     "the table of ShedLock whose locks ours exclude in PostgreSQL"},

    /* libfuse's */
    {"allow_other", OPTION_PASS, FOR_ALL, FIELD(allow_other), .help = "other users may use the mount"},
    {"allow_root", OPTION_PASS, FOR_ALL, .help = "root may use the mount of an ordinary user"},
    {"debug", OPTION_PASS, FOR_ALL, FIELD(foreground), .help = "show each request; implies -f"},
    {"fsname=", OPTION_PASS, FOR_ALL, FIELD(has_fsname), 0, 0, "NAME", "", "the source that mount tables show"},
    {"subtype=", OPTION_PASS, FOR_ALL, FIELD(has_subtype), 0, 0, "NAME", "", "the type that they show (default leasefs)"},
    {"default_permissions", OPTION_DROP, FOR_ALL, .help = "no effect: permissions are always checked"},

    /* mount(8)'s that the kernel wants to know */
    {"rw", .kind = OPTION_PASS},
    {"suid", .kind = OPTION_PASS},
    {"nosuid", .kind = OPTION_PASS},
    {"dev", .kind = OPTION_PASS},
    {"nodev", .kind = OPTION_PASS},
    {"exec", .kind = OPTION_PASS},
    {"noexec", .kind = OPTION_PASS},
    {"atime", .kind = OPTION_PASS},
    {"noatime", .kind = OPTION_PASS},
    {"async", .kind = OPTION_PASS},
    {"sync", .kind = OPTION_PASS},
    {"dirsync", .kind = OPTION_PASS},
    {"ro", .kind = OPTION_REFUSED, .takes = READ_ONLY},
    {"user_id=", .kind = OPTION_SHOWN},
    {"group_id=", .kind = OPTION_SHOWN},
    {"max_read=", .kind = OPTION_SHOWN},

    /* access times are not kept */
    {"diratime", .kind = OPTION_DROP},
    {"nodiratime", .kind = OPTION_DROP},
    {"relatime", .kind = OPTION_DROP},
    {"norelatime", .kind = OPTION_DROP},
    {"strictatime", .kind = OPTION_DROP},
    {"nostrictatime", .kind = OPTION_DROP},
    {"lazytime", .kind = OPTION_DROP},
    {"nolazytime", .kind = OPTION_DROP},

    /* root's mounts have it, and mount(8) hands it on to a remount */
    {"nosymfollow", .kind = OPTION_DROP},

    /* for mount(8), fstab(5) and systemd.mount(5) */
    {"defaults", .kind = OPTION_DROP},
    {"auto", .kind = OPTION_DROP},
    {"noauto", .kind = OPTION_DROP},
    {"user", .kind = OPTION_DROP},
    {"user=", .kind = OPTION_DROP},
    {"nouser", .kind = OPTION_DROP},
    {"users", .kind = OPTION_DROP},
    {"nousers", .kind = OPTION_DROP},
    {"owner", .kind = OPTION_DROP},
    {"noowner", .kind = OPTION_DROP},
    {"group", .kind = OPTION_DROP},
    {"nogroup", .kind = OPTION_DROP},
    {"nofail", .kind = OPTION_DROP},
    {"_netdev", .kind = OPTION_DROP},
    {"comment=", .kind = OPTION_DROP},
    {"x-", .kind = OPTION_DROP},
    {"X-", .kind = OPTION_DROP},
};
/* clang-format on */

int options_fail(struct options_parse *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_vsnprintf(p->error, p->error_size, format, arguments);
    va_end(arguments);
    for (char *at = p->error; *at; at++) { /* it is one line, whatever the words that it repeats have in them */
        *at = g_ascii_iscntrl(*at) ? '?' : *at;
    }
    return -EINVAL;
}

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

/* --- values ------------------------------------------------------------------ */

/* Digits of the base and nothing else, at most `max`. */
static bool mount_option_read_number(const char *text, int base, int64_t max, uint32_t *ret_number)
{
    char *end;
    if (!g_ascii_isdigit(text[0])) {
        return false;
    }
    errno = 0;
    unsigned long number = strtoul(text, &end, base);
    if (errno || *end || number > (unsigned long)max) {
        return false;
    }
    *ret_number = (uint32_t)number;
    return true;
}

static bool mount_option_read_count(const char *text, uint64_t *ret_count)
{
    static const char units[] = "KMG";
    char *end;
    uint64_t count = g_ascii_strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (!g_ascii_isdigit(text[0]) || (*end && (!unit || end[1])) || count > (uint64_t)INT64_MAX >> shift) {
        return false;
    }
    *ret_count = count << shift;
    return true;
}

static bool mount_option_read_choice(const struct mount_option *known, const char *value, bool *ret_second)
{
    const char *second = strchr(known->argument, '|') + 1;
    size_t length = (size_t)(second - known->argument) - 1;
    bool is_second = strcmp(value, second) == 0;
    if (!is_second && (strlen(value) != length || strncmp(value, known->argument, length) != 0)) {
        return false;
    }
    *ret_second = is_second;
    return true;
}

/* A backslash stands before a comma and before itself. */
static char *mount_option_unescape(const char *value)
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

static void mount_option_read_text(char **field, char *text)
{
    g_free(*field);
    *field = text;
}

static bool mount_option_read_key(const char *value, char **field)
{
    const char *name = strstr(value, "{n}");
    if (!name || strstr(name + 1, "{n}")) {
        return false;
    }
    mount_option_read_text(field, mount_option_unescape(value));
    return true;
}

static bool mount_option_read_path(const char *value, char **field)
{
    g_autofree char *path = mount_option_unescape(value);
    if (!*path) {
        return false;
    }
    mount_option_read_text(field, g_canonicalize_filename(path, NULL));
    return true;
}

/* Sets its field; false if the value is not one that it takes. */
static bool mount_option_read_value(struct options *o, const struct mount_option *known, const char *value)
{
    void *field = (char *)o + known->offset;
    switch (known->kind) {
    case OPTION_TIME:
        return options_duration_within(value, strlen(value), known->min, known->max, field) == 0;
    case OPTION_GRACE:
        o->server.strict = o->server.strict || strcmp(value, "strict") == 0;
        return strcmp(value, "strict") == 0 ||
               options_duration_within(value, strlen(value), known->min, known->max, field) == 0;
    case OPTION_OCTAL:
        return mount_option_read_number(value, 8, known->max, field);
    case OPTION_NUMBER:
        return mount_option_read_number(value, 10, known->max, field);
    case OPTION_COUNT:
        return mount_option_read_count(value, field);
    case OPTION_CHOICE:
        return mount_option_read_choice(known, value, field);
    case OPTION_LEVEL:
        return log_parse_level(value, field);
    case OPTION_TEXT:
        mount_option_read_text(field, mount_option_unescape(value));
        return true;
    case OPTION_KEY:
        return mount_option_read_key(value, field);
    default:
        return mount_option_read_path(value, field);
    }
}

/* --- words ------------------------------------------------------------------- */

int options_add_fuse(struct options_parse *p, const char *word)
{
    struct fuse_args *fuse = &p->options->fuse;
    if (fuse_opt_add_arg(fuse, "-o") < 0 || fuse_opt_add_arg(fuse, word) < 0) {
        return options_fail(p, "out of memory");
    }
    return 0;
}

static int mount_option_parse(struct options_parse *p, const struct mount_option *known, const char *word,
                              const char *value)
{
    bool *field = known->offset ? (bool *)((char *)p->options + known->offset) : NULL;
    switch (known->kind) {
    case OPTION_SET:
    case OPTION_CLEAR:
    case OPTION_PASS:
        if (field) {
            *field = known->kind != OPTION_CLEAR;
        }
        return known->kind == OPTION_PASS ? options_add_fuse(p, word) : 0;
    case OPTION_DROP:
        return 0;
    case OPTION_SHOWN:
        p->shown = known->name;
        return 0;
    case OPTION_REFUSED:
        return options_fail(p, "%s: %s", word, known->takes);
    default:
        return mount_option_read_value(p->options, known, value)
                   ? 0
                   : options_fail(p, "%s: %s takes %s", word, known->name, known->takes);
    }
}

/* Which backend it is for, is known only after the last word. */
static void mount_option_note_scope(struct options_parse *p, const struct mount_option *known)
{
    if (!p->only[known->scope]) {
        p->only[known->scope] = known->name;
    }
}

/* --- near misses -------------------------------------------------------------- */

static char mount_option_fold(char c)
{
    return c == '-' ? '_' : g_ascii_tolower(c);
}

bool options_is_near(const char *word, const char *name, unsigned edits)
{
    while (*word && mount_option_fold(*word) == mount_option_fold(*name)) {
        word++;
        name++;
    }
    if (!*word && !*name) {
        return true;
    }
    return edits > 0 && ((*word && options_is_near(word + 1, name, edits - 1)) ||
                         (*name && options_is_near(word, name + 1, edits - 1)) ||
                         (*word && *name && options_is_near(word + 1, name + 1, edits - 1)) ||
                         (*word && *name && mount_option_fold(word[0]) == mount_option_fold(name[1]) &&
                          mount_option_fold(word[1]) == mount_option_fold(name[0]) &&
                          options_is_near(word + 2, name + 2, edits - 1)));
}

char *options_guess_mount_option(const char *word)
{
    g_autofree char *begin = g_strndup(word, strcspn(word, "=:"));
    unsigned most = strlen(begin) < 5 ? 1 : 2;
    for (unsigned edits = 0; edits <= most; edits++) {
        for (size_t i = 0; i < G_N_ELEMENTS(mount_options); i++) {
            const struct mount_option *known = &mount_options[i];
            g_autofree char *name = g_strndup(known->name, strcspn(known->name, "="));
            if (known->help && options_is_near(begin, name, edits)) {
                return g_strconcat(known->name, known->argument, NULL);
            }
        }
    }
    return NULL;
}

/* A word that is no option, perhaps because its value is missing, or it takes none. */
static int mount_option_refuse(struct options_parse *p, const char *word)
{
    size_t length = strcspn(word, "=");
    for (size_t i = 0; i < G_N_ELEMENTS(mount_options); i++) {
        const struct mount_option *known = &mount_options[i];
        if (known->help && strncmp(known->name, word, length) == 0 && strcspn(known->name, "=") == length) {
            return word[length] == '='
                       ? options_fail(p, "%s: %s takes no value: write %s", word, known->name, known->name)
                   : *known->takes
                       ? options_fail(p, "%s needs a value: %s takes %s", word, known->name, known->takes)
                       : options_fail(p, "%s needs a value: write %s%s", word, known->name, known->argument);
        }
    }
    g_autofree char *guess = options_guess_mount_option(word);
    return guess ? options_fail(p, "unknown option '%s': did you mean %s? See OPTIONS in leasefs(8)", word, guess)
                 : options_fail(p, "unknown option '%s': see OPTIONS in leasefs(8)", word);
}

int options_parse_mount_option(struct options_parse *p, const char *word)
{
    for (size_t i = 0; i < G_N_ELEMENTS(mount_options); i++) {
        const struct mount_option *known = &mount_options[i];
        size_t length = strlen(known->name);
        bool is_beginning = strchr("=-", known->name[length - 1]) != NULL;
        if (is_beginning ? strncmp(word, known->name, length) == 0 : strcmp(word, known->name) == 0) {
            mount_option_note_scope(p, known);
            return mount_option_parse(p, known, word, word + length);
        }
    }
    return p->sloppy ? 0 : mount_option_refuse(p, word);
}

/* --- help -------------------------------------------------------------------- */

#define HELP_COLUMN 28
#define HELP_WIDTH 80

/* The names of a kind that have no line of their own, in one paragraph. */
static void mount_option_list_names(GString *text, const char *title, enum mount_option_kind kind)
{
    const char *separator = " ";
    g_string_append(text, title);
    size_t column = strlen(title);
    for (size_t i = 0; i < G_N_ELEMENTS(mount_options); i++) {
        const struct mount_option *known = &mount_options[i];
        if (!known->help && known->kind == kind) {
            column += strlen(separator) + strlen(known->name);
            if (column >= HELP_WIDTH) {
                separator = ",\n    ";
                column = 4 + strlen(known->name);
            }
            g_string_append_printf(text, "%s%s", separator, known->name);
            separator = ", ";
        }
    }
    g_string_append_c(text, '\n');
}

char *options_help(void)
{
    GString *text = g_string_new("Options after -o, separated by commas:\n");
    for (size_t i = 0; i < G_N_ELEMENTS(mount_options); i++) {
        const struct mount_option *known = &mount_options[i];
        if (known->help) {
            g_autofree char *word = g_strconcat(known->name, known->argument, NULL);
            const char *stores =
                known->scope == FOR_LOCAL                           ? "; not on a server"
                : known->scope == (FOR_BOTH_REDIS | FOR_POSTGRESQL) ? "; Redis and PostgreSQL only"
                : known->scope & FOR_REDIS && !(known->scope & FOR_ZOOKEEPER) && !strstr(known->help, "Redis")
                    ? "; Redis only"
                    : "";
            g_string_append_printf(text, "  %-*s%s%s\n", HELP_COLUMN - 2, word, known->help, stores);
        }
    }
    mount_option_list_names(text, "  of mount(8):", OPTION_PASS);
    mount_option_list_names(text, "  without effect here:", OPTION_DROP);
    return g_string_free(text, FALSE);
}
