/* options: the command line, and the option lists of mount(8); see options.h.
 *
 * Every word of an -o list is in one table: ours, FUSE's own and mount(8)'s
 * flags (handed on to libfuse as they are), and words that only mount(8) and
 * fstab(5) care for (dropped).  A word that is in none of these is an error,
 * so that a misspelt option is never quietly without effect.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <glib.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SYSTEM_STATE "/var/lib"
#define PERMISSION_BITS 07777
#define USAGE "usage is leasefs [-f] [-o OPTIONS] BACKEND MOUNTPOINT"

struct parse {
    struct options *options;
    bool allow_other;
    bool has_mode, has_fsname, has_subtype;
    char *error;
    size_t error_size;
};

/* `value` is what follows the word's name in the table. */
typedef int take_word(struct parse *p, const char *word, const char *value);

struct option_word {
    const char *name; /* all of the word, or with '=' or '-' at its end, how it begins */
    take_word *take;
};

static int __attribute__((format(printf, 2, 3))) fail(struct parse *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_vsnprintf(p->error, p->error_size, format, arguments);
    va_end(arguments);
    return -EINVAL;
}

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

static int take_ttl(struct parse *p, const char *word, const char *value)
{
    if (options_duration(value, strlen(value), &p->options->ttl) < 0) {
        return fail(p, "%s: ttl= takes a time from 100ms to 3650d, such as 500ms, 30s, 5m or 1h", word);
    }
    return 0;
}

static int take_owner(struct parse *p, const char *word, const char *value)
{
    if (strcmp(value, "process") != 0 && strcmp(value, "user") != 0) {
        return fail(p, "%s: owner= takes process or user", word);
    }
    p->options->owner_user = strcmp(value, "user") == 0;
    return 0;
}

static int take_sync(struct parse *p, const char *word, const char *value)
{
    if (strcmp(value, "always") != 0 && strcmp(value, "no") != 0) {
        return fail(p, "%s: sync= takes always or no", word);
    }
    p->options->sync_always = strcmp(value, "always") == 0;
    return 0;
}

static int take_mode(struct parse *p, const char *word, const char *value)
{
    unsigned long mode;
    if (!parse_number(value, 8, PERMISSION_BITS, &mode)) {
        return fail(p, "%s: mode= takes permissions in octal, such as 0755 or 1777", word);
    }
    p->options->mode = (mode_t)mode;
    p->has_mode = true;
    return 0;
}

/* The highest id is (uid_t)-1, which means "none" everywhere. */
static int take_uid(struct parse *p, const char *word, const char *value)
{
    unsigned long id;
    if (!parse_number(value, 10, UINT_MAX - 1, &id)) {
        return fail(p, "%s: uid= takes the number of a user", word);
    }
    p->options->uid = (uid_t)id;
    return 0;
}

static int take_gid(struct parse *p, const char *word, const char *value)
{
    unsigned long id;
    if (!parse_number(value, 10, UINT_MAX - 1, &id)) {
        return fail(p, "%s: gid= takes the number of a group", word);
    }
    p->options->gid = (gid_t)id;
    return 0;
}

static int add_fuse_option(struct parse *p, const char *word)
{
    struct fuse_args *fuse = &p->options->fuse;
    if (fuse_opt_add_arg(fuse, "-o") < 0 || fuse_opt_add_arg(fuse, word) < 0) {
        return fail(p, "out of memory");
    }
    return 0;
}

static int pass_on(struct parse *p, const char *word, const char *value)
{
    (void)value;
    return add_fuse_option(p, word);
}

static int pass_debug(struct parse *p, const char *word, const char *value)
{
    (void)value;
    p->options->foreground = true;
    return add_fuse_option(p, word);
}

static int pass_allow_other(struct parse *p, const char *word, const char *value)
{
    (void)value;
    p->allow_other = true;
    return add_fuse_option(p, word);
}

static int pass_fsname(struct parse *p, const char *word, const char *value)
{
    (void)value;
    p->has_fsname = true;
    return add_fuse_option(p, word);
}

static int pass_subtype(struct parse *p, const char *word, const char *value)
{
    (void)value;
    p->has_subtype = true;
    return add_fuse_option(p, word);
}

static int drop(struct parse *p, const char *word, const char *value)
{
    (void)p, (void)word, (void)value;
    return 0;
}

static int refuse_read_only(struct parse *p, const char *word, const char *value)
{
    (void)value;
    return fail(p, "%s: a mount cannot be read-only, because locks need writing", word);
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

static int parse_word(struct parse *p, const char *word)
{
    for (size_t i = 0; i < G_N_ELEMENTS(option_words); i++) {
        const char *name = option_words[i].name;
        size_t length = strlen(name);
        bool is_beginning = name[length - 1] == '=' || name[length - 1] == '-';
        if (is_beginning ? strncmp(word, name, length) == 0 : strcmp(word, name) == 0) {
            return option_words[i].take(p, word, word + length);
        }
    }
    return fail(p, "unknown option '%s': see OPTIONS in leasefs(8)", word);
}

/* A comma that follows a backslash belongs to the word, as libfuse reads it. */
static int parse_list(struct parse *p, const char *list)
{
    int result = 0;
    GString *word = g_string_new(NULL);
    for (const char *at = list; result == 0; at++) {
        if (*at == '\\' && at[1]) {
            g_string_append_c(word, *at++);
            g_string_append_c(word, *at);
        } else if (*at && *at != ',') {
            g_string_append_c(word, *at);
        } else {
            if (word->len > 0) {
                result = parse_word(p, word->str);
                g_string_truncate(word, 0);
            }
            if (!*at) {
                break;
            }
        }
    }
    g_string_free(word, TRUE);
    return result;
}

/* The name of a mount point as one component, as systemd-escape --path writes
 * it: '/' becomes '-', and what is neither a letter, a digit, ':', '_' nor '.'
 * (at the beginning, '.' too) \xNN.  So two mounts have two stores. */
static char *escape_path(const char *path)
{
    GString *text = g_string_new(NULL);
    for (const char *at = path + 1; *at; at++) {
        if (*at == '/') {
            g_string_append_c(text, '-');
        } else if (g_ascii_isalnum(*at) || *at == ':' || *at == '_' || (*at == '.' && at > path + 1)) {
            g_string_append_c(text, *at);
        } else {
            g_string_append_printf(text, "\\x%02x", (unsigned char)*at);
        }
    }
    if (text->len == 0) {
        g_string_append_c(text, '-');
    }
    return g_string_free(text, FALSE);
}

/* Where this user's programs keep what they must not lose, as in file-hierarchy(7). */
static char *state_home(void)
{
    const char *state = g_getenv("XDG_STATE_HOME");
    if (geteuid() == 0) {
        return g_strdup(SYSTEM_STATE);
    }
    if (state && g_path_is_absolute(state)) {
        return g_strdup(state);
    }
    return g_build_filename(g_get_home_dir(), ".local", "state", NULL);
}

static int find_directory(struct parse *p)
{
    struct options *o = p->options;
    if (strcmp(o->backend, "memory") == 0) {
        return 0;
    }
    if (strcmp(o->backend, "local") == 0) {
        char *home = state_home(), *name = escape_path(o->mountpoint);
        o->directory = g_build_filename(home, "leasefs", name, NULL);
        g_free(home);
        g_free(name);
        return 0;
    }
    if (g_str_has_prefix(o->backend, "local:")) {
        const char *directory = o->backend + strlen("local:");
        if (!*directory) {
            return fail(p, "backend 'local:' needs a directory: use local:DIR, or local for the default one");
        }
        o->directory = g_canonicalize_filename(directory, NULL);
        return 0;
    }
    return fail(p, "unknown backend '%s': use memory, local or local:DIR", o->backend);
}

static int find_mountpoint(struct parse *p, const char *given)
{
    struct stat status;
    char *path = realpath(given, NULL);
    if (!path || stat(path, &status) < 0) {
        int error = errno;
        free(path);
        if (error == ENOENT) {
            return fail(p, "mount point '%s' does not exist: make it with mkdir", given);
        }
        if (error == ENOTCONN) {
            return fail(p, "mount point '%s' is a mount without its daemon: end it with umount or fusermount3 -u",
                        given);
        }
        return fail(p, "mount point '%s': %s", given, g_strerror(error));
    }
    if (!S_ISDIR(status.st_mode)) {
        free(path);
        return fail(p, "mount point '%s' is not a directory", given);
    }
    p->options->mountpoint = g_strdup(path);
    free(path);
    return 0;
}

/* What every mount has, whatever was asked for. */
static int complete(struct parse *p)
{
    struct options *o = p->options;
    char *name = NULL;
    int result = 0;
    if (!p->has_mode) {
        o->mode = p->allow_other && geteuid() == 0 ? 01777 : 0755;
    }
    if (!p->has_fsname) {
        char *plain = g_strconcat("fsname=", o->backend, NULL);
        result = fuse_opt_add_opt_escaped(&name, plain) < 0 ? fail(p, "out of memory") : add_fuse_option(p, name);
        g_free(plain);
        free(name);
    }
    if (result == 0 && !p->has_subtype) {
        result = add_fuse_option(p, "subtype=leasefs");
    }
    /* A mount that root alone can use needs no checks, which would cost the kernel
     * a question about the directory at each step. */
    if (result == 0 && (p->allow_other || geteuid() != 0)) {
        result = add_fuse_option(p, "default_permissions");
    }
    return result;
}

/* One option of the command line, as getopt_long(3) told it. */
static int parse_flag(struct parse *p, int flag, char *const *argv)
{
    struct options *o = p->options;
    switch (flag) {
    case 'f':
        o->foreground = true;
        return 0;
    case 'd':
        return pass_debug(p, "debug", NULL);
    case 'h':
        o->show_help = true;
        return 0;
    case 'V':
        o->show_version = true;
        return 0;
    case 'o':
        return parse_list(p, optarg);
    case 'r':
        return refuse_read_only(p, "-r", NULL);
    case 'n': /* mount(8) may hand these on: no mtab, sloppy, verbose, writable */
    case 's':
    case 'v':
    case 'w':
        return 0;
    case ':':
        return fail(p, "-o needs a list of options");
    default:
        if (optopt) {
            return fail(p, "unknown option '-%c': try leasefs --help", optopt);
        }
        return fail(p, "unknown option '%s': try leasefs --help", argv[optind - 1]);
    }
}

int options_parse(struct options *options, int argc, char **argv, char *error, size_t error_size)
{
    static const struct option long_options[] = {
        {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {NULL, 0, NULL, 0}};
    struct parse p = {.options = options, .error = error, .error_size = error_size};
    *options = (struct options){.ttl = LEASE_TTL_DEFAULT, .uid = geteuid(), .gid = getegid()};
    int flag, result = 0;

    if (fuse_opt_add_arg(&options->fuse, "leasefs") < 0) {
        return fail(&p, "out of memory");
    }
    optind = 0; /* GNU: begin anew */
    opterr = 0;
    while (result == 0 && (flag = getopt_long(argc, argv, ":fdho:nrsvwV", long_options, NULL)) != -1) {
        result = parse_flag(&p, flag, argv);
    }
    if (result < 0 || options->show_help || options->show_version) {
        return result;
    }
    if (argc - optind < 2) {
        return fail(&p, "a backend and a mount point are needed: " USAGE);
    }
    if (argc - optind > 2) {
        return fail(&p, "'%s' is one argument too many: " USAGE, argv[optind + 2]);
    }
    options->backend = g_strdup(argv[optind]);
    result = find_mountpoint(&p, argv[optind + 1]);
    if (result == 0) {
        result = find_directory(&p);
    }
    return result == 0 ? complete(&p) : result;
}

void options_clear(struct options *options)
{
    g_free(options->backend);
    g_free(options->directory);
    g_free(options->mountpoint);
    fuse_opt_free_args(&options->fuse);
    *options = (struct options){0};
}
