/* options: the command line of leasefs(8); see options.h. */
#include "fs/options/private.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <glib.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEM_STATE "/var/lib"
#define USAGE "usage is leasefs [-f] [-o OPTIONS] BACKEND MOUNTPOINT"
#define FLAGS ":dfho:nrsvwV"
#define HELPER_FLAGS FLAGS "N:t:"
#define MODE_UNSET ((mode_t)-1)

/* A comma that follows a backslash belongs to the word, as libfuse reads it. */
static int options_parse_list(struct options_parse *p, const char *list)
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
                result = options_parse_mount_option(p, word->str);
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
 * it: '/' becomes '-', and any character but letters, digits, ':', '_' and '.'
 * (and a '.' at the beginning) becomes \xNN.  So two mounts have two stores. */
static char *options_escape_path(const char *path)
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
static char *options_state_home(void)
{
    const char *home = g_get_home_dir();
    const char *state = g_getenv("XDG_STATE_HOME");
    if (geteuid() == 0) {
        return g_strdup(SYSTEM_STATE);
    }
    if (state && g_path_is_absolute(state)) {
        return g_strdup(state);
    }
    if (access(home, W_OK) < 0) { /* mount.fuse3(8) says /root when mount(8) says nothing */
        const struct passwd *user = getpwuid(geteuid());
        home = user ? user->pw_dir : home;
    }
    return g_build_filename(home, ".local", "state", NULL);
}

/* One for each mount point. */
static char *options_state_directory(const struct options *o)
{
    char *home = o->state ? g_strdup(o->state) : options_state_home(), *name = options_escape_path(o->mountpoint);
    char *directory = g_build_filename(home, o->state ? "" : "leasefs", name, NULL);
    g_free(home);
    g_free(name);
    return directory;
}

/* How each store is written. */
static const struct options_store {
    const char *name;
    const char *form;
} options_stores[] = {
    {"memory", "memory"},
    {"local", "local"},
    {"redis", "redis://HOST"},
    {"rediss", "rediss://HOST"},
    {"redis+unix", "redis+unix:///PATH"},
    {"redis+sentinel", "redis+sentinel://HOST,HOST,HOST/NAME"},
    {"redis+cluster", "redis+cluster://HOST,HOST,HOST/?prefix={TAG}"},
    {"redlock", "redlock://HOST,HOST,HOST"},
    {"zookeeper", "zookeeper://HOST,HOST,HOST"},
    {"postgresql", "postgresql://HOST/DATABASE"},
    {"postgres", "postgresql://HOST/DATABASE"},
    {"zk", "zookeeper://HOST,HOST,HOST"},
};

/* The store that is meant by a name, which may be mistyped by as many letters; or NULL. */
static const struct options_store *options_guess_store(const char *backend, unsigned edits)
{
    g_autofree char *name = g_strndup(backend, strcspn(backend, ":"));
    for (size_t i = 0; i < G_N_ELEMENTS(options_stores); i++) {
        if (options_is_near(name, options_stores[i].name, edits)) {
            return &options_stores[i];
        }
    }
    return NULL;
}

/* Refuses a backend that is none.  Of a URI the message shows only the scheme: the rest may have a password. */
static int options_refuse_store(struct options_parse *p)
{
    const char *backend = p->options->backend;
    size_t scheme = strcspn(backend, ":");
    const struct options_store *meant = NULL;
    for (unsigned edits = 0; !meant && edits <= (scheme < 5 ? 1 : 2); edits++) {
        meant = options_guess_store(backend, edits);
    }
    g_autofree char *shown = backend[scheme] && strpbrk(backend, "/@")
                                 ? g_strdup_printf("%.*s:...", (int)scheme, backend)
                                 : g_strdup(backend);
    return meant ? options_fail(p, "unknown backend '%s': did you mean %s?", shown, meant->form)
                 : options_fail(p,
                                "unknown backend '%s': use memory, local, local:DIR, redis://HOST, "
                                "redlock://HOST,HOST,HOST, zookeeper://HOST or postgresql://HOST/DATABASE",
                                shown);
}

/* Whether the words of `leasefs MOUNTPOINT BACKEND` are in the wrong order. */
static bool options_are_swapped(const char *first, const char *second)
{
    return !options_guess_store(first, 0) && options_guess_store(second, 0) && access(second, F_OK) < 0;
}

/* What the store is.  Of a server only that it is meant: its own room reads the rest. */
static int options_find_store(struct options_parse *p)
{
    struct options *o = p->options;
    if (strcmp(o->backend, "memory") == 0) {
        return o->keep > 0 ? options_fail(p, "keep= needs a store that outlives the daemon, and memory does not: use "
                                             "local:DIR, or leave it out")
                           : 0;
    }
    if (strcmp(o->backend, "local") == 0) {
        o->directory = options_state_directory(o);
        return 0;
    }
    if (g_str_has_prefix(o->backend, "local:")) {
        const char *directory = o->backend + strlen("local:");
        if (!*directory) {
            return options_fail(p, "backend 'local:' needs a directory: use local:DIR, or local for the default one");
        }
        o->directory = g_canonicalize_filename(directory, NULL);
        return 0;
    }
    if (strncmp(strchrnul(o->backend, ':'), "://", strlen("://")) != 0) {
        return options_refuse_store(p);
    }
    if (g_ascii_strncasecmp(o->backend, "redis", strlen("redis")) == 0 && strchr(o->backend, ':')) {
        o->kind = OPTIONS_REDIS;
        return 0;
    }
    if (g_ascii_strncasecmp(o->backend, "redlock:", strlen("redlock:")) == 0) {
        o->kind = OPTIONS_REDLOCK;
        return o->server.strict ? options_fail(p, "grace=strict is how redlock:// always is: leave it out") : 0;
    }
    if (g_ascii_strncasecmp(o->backend, "zookeeper", strlen("zookeeper")) == 0 && strchr(o->backend, ':')) {
        char *directory = options_state_directory(o);
        o->kind = OPTIONS_ZOOKEEPER;
        o->directory = g_build_filename(directory, "zookeeper", NULL); /* beside what `local` keeps there */
        g_free(directory);
        return 0;
    }
    if (g_str_has_prefix(o->backend, "postgresql://") || g_str_has_prefix(o->backend, "postgres://")) {
        o->kind = OPTIONS_POSTGRESQL;
        return 0;
    }
    return options_refuse_store(p);
}

static int options_refuse_of_others(struct options_parse *p)
{
    static const char *const stores[] = {"memory and local stores", "redis://", "redlock://", "zookeeper://",
                                         "postgresql://"};
    for (unsigned scope = 1; scope < G_N_ELEMENTS(p->only); scope++) {
        if (p->only[scope] && !(scope & 1u << p->options->kind)) {
            GString *list = g_string_new(NULL);
            for (unsigned kind = 0; kind < OPTIONS_KINDS; kind++) {
                if (scope & 1u << kind) {
                    bool last = scope >> (kind + 1) == 0;
                    g_string_append_printf(list, "%s%s", !list->len ? "" : last ? " and " : ", ", stores[kind]);
                }
            }
            int result = options_fail(p, "option %s is only for %s", p->only[scope], list->str);
            g_string_free(list, TRUE);
            return result;
        }
    }
    return 0;
}

/* The absolute path of that directory, without asking a file system that is mounted
 * there, so that one without its daemon has a path too. */
static int options_find_mountpoint(struct options_parse *p, const char *given)
{
    int fd = open(given, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT    ? options_fail(p, "mount point '%s' does not exist: run mkdir %s", given, given)
               : errno == ENOTDIR ? options_fail(p, "mount point '%s' is not a directory", given)
                                  : options_fail(p, "mount point '%s': %s", given, g_strerror(errno));
    }
    g_autofree char *link = g_strdup_printf("/proc/self/fd/%d", fd);
    p->options->mountpoint = g_file_read_link(link, NULL);
    close(fd);
    return p->options->mountpoint ? 0 : options_fail(p, "cannot read %s: is /proc mounted?", link);
}

/* What every mount has, whatever was asked for. */
static int options_complete(struct options_parse *p)
{
    struct options *o = p->options;
    char *name = NULL;
    int result = 0;
    if (o->mode == MODE_UNSET) {
        o->mode = o->allow_other && geteuid() == 0 ? 0777 : 0755;
    }
    o->has_ttl = o->ttl != 0;
    o->ttl = o->ttl ? o->ttl : LEASE_TTL_DEFAULT;
    if (!o->has_fsname) {
        char *plain = g_strconcat("fsname=", o->backend, NULL);
        result =
            fuse_opt_add_opt_escaped(&name, plain) < 0 ? options_fail(p, "out of memory") : options_add_fuse(p, name);
        g_free(plain);
        free(name);
    }
    if (result == 0 && !o->has_subtype) {
        result = options_add_fuse(p, "subtype=leasefs");
    }
    /* A mount that root alone can use needs no checks, which would cost the kernel
     * a question about a directory after each change of it.  On other mounts it must
     * look itself: it asks nobody before it lets somebody watch, with inotify(7), a
     * directory that it knows. */
    o->checks = o->allow_other || geteuid() != 0;
    if (result == 0 && o->checks) {
        result = options_add_fuse(p, "default_permissions");
    }
    return result;
}

static int options_refuse_long(struct options_parse *p, const char *word)
{
    g_autofree char *meant = options_guess_mount_option(word + strspn(word, "-"));
    return meant ? options_fail(p, "unknown option '%s': write -o %s", word, meant)
                 : options_fail(p, "unknown option '%s': try leasefs --help", word);
}

/* One option of the command line, as getopt_long(3) told it. */
static int options_parse_flag(struct options_parse *p, int flag, char *const *argv)
{
    struct options *o = p->options;
    switch (flag) {
    case 'f': /* to mount(8), "fake" */
        *(p->is_helper ? &o->fake : &o->foreground) = true;
        return 0;
    case 'd':
        return options_parse_mount_option(p, "debug");
    case 'h':
        o->show_help = true;
        return 0;
    case 'V':
        o->show_version = true;
        return 0;
    case 'J':
        o->json = true;
        return 0;
    case 'S':
        g_free(o->print_schema);
        o->print_schema = g_strdup(optarg);
        return 0;
    case 'P':
        g_free(o->protect);
        o->protect = g_strdup(optarg);
        return 0;
    case 'Q':
        g_free(o->status);
        o->status = g_strdup(optarg);
        return 0;
    case 'r':
        return options_fail(p, "-r: a mount cannot be read-only, because locks need writing");
    case 's':
        p->sloppy = true;
        return 0;
    case 'v':
        o->verbose = true;
        return 0;
    case 'n': /* there is no mtab to write to */
    case 't': /* the type that mount(8) was asked for */
    case 'w':
        return 0;
    case 'N':
        return options_fail(p, "-N %s: use nsenter(1) to mount in another namespace", optarg);
    case ':':
        return optopt == 'Q'   ? options_fail(p, "--status needs a mount point: write --status MOUNTPOINT")
               : optopt == 'P' ? options_fail(p, "--protect needs a directory: write --protect DIRECTORY")
               : optopt == 'S'
                   ? options_fail(p, "--print-schema needs a store: write --print-schema=postgresql")
                   : options_fail(p, "-%c needs %s", optopt, optopt == 'o' ? "a list of options" : "an argument");
    default:
        if (optopt) {
            return options_fail(p, "unknown option '-%c': try leasefs --help", optopt);
        }
        return options_refuse_long(p, argv[optind - 1]);
    }
}

/* All flags come before any -o list is read, so that -s may stand after it. */
static int options_parse_flags(struct options_parse *p, int argc, char **argv)
{
    static const struct option long_options[] = {{"help", no_argument, NULL, 'h'},
                                                 {"version", no_argument, NULL, 'V'},
                                                 {"json", no_argument, NULL, 'J'},
                                                 {"print-schema", required_argument, NULL, 'S'},
                                                 {"protect", required_argument, NULL, 'P'},
                                                 {"status", required_argument, NULL, 'Q'},
                                                 {NULL, 0, NULL, 0}};
    g_autoptr(GPtrArray) lists = g_ptr_array_new();
    int flag, result = 0;
    optind = 0; /* GNU: resets the parser */
    opterr = 0;
    while (result == 0 &&
           (flag = getopt_long(argc, argv, p->is_helper ? HELPER_FLAGS : FLAGS, long_options, NULL)) != -1) {
        if (flag == 'o') {
            g_ptr_array_add(lists, optarg);
        } else {
            result = options_parse_flag(p, flag, argv);
        }
    }
    for (guint i = 0; result == 0 && i < lists->len; i++) {
        result = options_parse_list(p, g_ptr_array_index(lists, i));
    }
    return result;
}

int options_parse(struct options *options, int argc, char **argv, char *error, size_t error_size)
{
    struct options_parse p = {.options = options, .error = error, .error_size = error_size};
    *options = (struct options){
        .mode = MODE_UNSET,
        .uid = geteuid(),
        .gid = getegid(),
        .sandbox = true,
        .follow = true,
        .spin = SPIN_DEFAULT,
        .user_locks = USER_LOCKS_DEFAULT,
        .user_content = USER_CONTENT_DEFAULT,
        .locks = LOCKS_DEFAULT,
        .content = CONTENT_DEFAULT,
        .log = LOG_LEVEL_INFO,
        .server = {.keepalive = true},
    };
    if (fuse_opt_add_arg(&options->fuse, "leasefs") < 0) {
        return options_fail(&p, "out of memory");
    }
    g_autofree char *program = g_path_get_basename(argc > 0 ? argv[0] : "leasefs");
    p.is_helper = g_str_has_prefix(program, "mount.");
    int result = options_parse_flags(&p, argc, argv);
    if (result == 0 && (options->protect || options->print_schema || options->status) && argc > optind) {
        return options_fail(&p,
                            "'%s' is one argument too many: usage is leasefs --protect DIRECTORY, or leasefs "
                            "--print-schema=postgresql[:NAME]",
                            argv[optind]);
    }
    if (result < 0 || options->show_help || options->show_version || options->print_schema || options->protect ||
        options->status) {
        return result;
    }
    if (options->json) {
        return options_fail(&p, "--json is for --version: write leasefs --version --json");
    }
    if (argc - optind < 2) {
        return options_fail(&p, "a backend and a mount point are needed: " USAGE);
    }
    if (argc - optind > 2) {
        return options_fail(&p, "'%s' is one argument too many: " USAGE, argv[optind + 2]);
    }
    /* Not before all is read: some versions of mount(8) put what is mounted before "remount", others after it. */
    if (p.shown && !options->remount && !p.sloppy) {
        return options_fail(&p, "option %s is the kernel's, not yours to set", p.shown);
    }
    if (options->remount && !options->ttl) {
        return options_fail(&p,
                            "remount changes ttl= and nothing else: say remount,ttl=TIME, or unmount and mount anew");
    }
    options->backend = g_strdup(argv[optind]);
    if (options_are_swapped(argv[optind], argv[optind + 1])) {
        return options_fail(&p, "'%s' is not a backend: the order is leasefs BACKEND MOUNTPOINT, as in leasefs %s %s",
                            argv[optind], argv[optind + 1], argv[optind]);
    }
    result = options_find_mountpoint(&p, argv[optind + 1]);
    if (result == 0) {
        result = options_find_store(&p);
    }
    if (result == 0) {
        result = options_refuse_of_others(&p);
    }
    return result == 0 ? options_complete(&p) : result;
}

void options_clear(struct options *options)
{
    g_free(options->backend);
    g_free(options->directory);
    g_free(options->mountpoint);
    g_free(options->server.prefix);
    g_free(options->server.key);
    g_free(options->server.sentinel_credentials);
    g_free(options->credentials);
    g_free(options->state);
    g_free(options->shedlock);
    g_free(options->print_schema);
    g_free(options->protect);
    g_free(options->status);
    fuse_opt_free_args(&options->fuse);
    *options = (struct options){0};
}
