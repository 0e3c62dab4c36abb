/* main: starts the daemon, and tells whoever started it how that went.
 *
 * Without -f it forks at once, before the journal is opened or a thread is
 * made.  The child does everything; the parent waits on a pipe and returns 0
 * only when the mount answers.  Until then the child has the caller's stderr,
 * so an error is one line there; from then on it is a daemon of its own session
 * that logs to syslog(3).
 */
#include "config.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <glib.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/log.h"
#include "backend/postgresql/postgresql.h"
#include "backend/system.h"
#include "fs/daemon/keeper.h"
#include "fs/daemon/keeper_process.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/predecessor.h"
#include "fs/daemon/protect.h"
#include "fs/daemon/sdnotify.h"
#include "fs/daemon/session.h"
#include "fs/daemon/starter.h"
#include "fs/daemon/store.h"
#include "fs/daemon/takeover.h"
#include "fs/options/options.h"
#include "fs/process/process.h"

#define NOBODY_WAITS (-1)

static const char help[] =
    "Usage: leasefs [-f] [-o OPTIONS] BACKEND MOUNTPOINT\n"
    "Shows locks as files: a file below MOUNTPOINT exists exactly while its lock is held.\n"
    "\n"
    "Backends:\n"
    "  memory                locks are gone when the daemon ends\n"
    "  local                 locks survive the daemon; kept in /var/lib/leasefs (root)\n"
    "                        or ~/.local/state/leasefs, one store for each mount point\n"
    "  local:DIR             the same, kept in DIR\n"
    "  redis://HOST[:PORT][/DB], rediss://..., redis+unix:///PATH\n"
    "                        locks of all hosts that mount this Redis server\n"
    "  redis+sentinel://HOST[:PORT][,HOST...]/NAME[?db=DB]\n"
    "                        of the master that these Sentinels call NAME\n"
    "  redis+cluster://HOST[:PORT][,HOST...]/?prefix={TAG}\n"
    "                        of the slot of that TAG in a Redis Cluster\n"
    "  redlock://HOST[:PORT],HOST[:PORT],HOST[:PORT][,...][/DB]\n"
    "                        the same of a majority of independent Redis servers\n"
    "  zookeeper://HOST[:PORT][,HOST...][/CHROOT]\n"
    "                        the same of a ZooKeeper ensemble\n"
    "  postgresql://[USER@]HOST[:PORT][,HOST...]/DATABASE[?schema=NAME]\n"
    "                        the same of a PostgreSQL database\n"
    "\n"
    "Options:\n"
    "  -f                    stay in the foreground and log to stderr\n"
    "  -d                    show each request; implies -f\n"
    "  -o OPTION[,...]       see below\n"
    "  -h, --help            this text\n"
    "  -V, --version         the version; as JSON with --json\n"
    "  --print-schema=postgresql[:NAME]\n"
    "                        what makes the schema for locks in PostgreSQL, as SQL\n"
    "  --status MOUNTPOINT   what the process that keeps the mount knows, also without a daemon\n"
    "  --protect DIRECTORY   let nobody make files in a mount point while nothing is mounted\n"
    "\n";
static const char help_end[] = "\n"
                               "End it with umount MOUNTPOINT or fusermount3 -u MOUNTPOINT.  More in leasefs(8);\n"
                               "what each system call means is in leasefs-semantics(7).\n";

/* Descriptors 0 to 2 must be taken, or the mount would get one of them. */
static void main_open_standard_descriptors(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) {
        close(fd);
    }
}

/* Each process that holds a lease costs a descriptor. */
static void main_raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* In the parent: the exit status, once the child has told, or ended. */
static int main_await_child(pid_t child, int fd)
{
    char byte;
    ssize_t got;
    int status;
    do {
        got = read(fd, &byte, 1);
    } while (got < 0 && errno == EINTR);
    if (got == 1) {
        return EXIT_SUCCESS;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status)) {
        log_error("ended by signal %d before the mount was ready", WTERMSIG(status));
    }
    return EXIT_FAILURE;
}

/* For the report that the mount answers. */
struct audience {
    const struct options *options;
    int waiting;   /* the parent's pipe, or NOBODY_WAITS */
    bool may_look; /* into other users' processes */
    bool own_pids; /* a pid namespace other than the machine's.  Both are read before the sandbox forbids it */
    int manager;   /* see sdnotify.h */
    struct ev_loop *loop;
    ev_timer watchdog;
};

static void main_tell_alive(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct audience *audience = timer->data;
    (void)loop;
    (void)events;
    sdnotify_alive(audience->manager);
}

static void main_start_watchdog(struct audience *audience)
{
    double interval = audience->manager >= 0 ? sdnotify_watchdog() : 0;
    if (interval > 0) {
        ev_timer_init(&audience->watchdog, main_tell_alive, interval, interval);
        audience->watchdog.data = audience;
        ev_timer_start(audience->loop, &audience->watchdog);
    }
}

/* The next daemon looks which processes have files of this one's mount open.  Locks in memory end with their daemon.
 * Only once the mount is there: a mount that fails has one line, the error. */
static void main_warn_of_blindness(const struct audience *audience)
{
    const struct options *options = audience->options;
    bool others = options->allow_other || geteuid() == 0;
    if (strcmp(options->backend, "memory") == 0) {
        return;
    }
    if (audience->own_pids) {
        log_notice(
            "this daemon is in a pid namespace of its own: when that ends, as with its container, locks end too; "
            "in the host's pid namespace (hostPID: true, --pid=host) they survive it");
    }
    if (others && !audience->may_look) {
        log_warning("no CAP_SYS_PTRACE: cannot look into the processes of other users: if a daemon is killed, only the "
                    "process that opened a lock's file keeps the lock");
    }
}

/* session_run's `ready`: the caller has waited long enough. */
static void main_detach(void *arg)
{
    struct audience *audience = arg;
    int *waiting = &audience->waiting;
    main_warn_of_blindness(audience);
    if (*waiting == NOBODY_WAITS) {
        const struct options *options = audience->options;
        sdnotify_ready(audience->manager, "%s mounted on %s", options->backend, options->mountpoint);
        main_start_watchdog(audience);
        return;
    }
    setsid();
    if (chdir("/") < 0) {
        log_warning("cannot leave the working directory: %s", g_strerror(errno));
    }
    log_to_syslog();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++) {
        dup2(null, fd);
    }
    if (null >= 0) {
        close(null);
    }
    if (audience->manager >= 0) { /* this one takes over, and is the service's main process by now */
        sdnotify_ready(audience->manager, "%s mounted on %s", audience->options->backend,
                       audience->options->mountpoint);
        main_start_watchdog(audience);
    }
    while (write(*waiting, "", 1) < 0 && errno == EINTR) {
    }
    close(*waiting);
    *waiting = NOBODY_WAITS;
}

/* What main_open_store needs. */
struct main_store {
    const struct options *options;
    struct backend *backend; /* once it is open */
    struct session_sandbox sandbox;
    const struct predecessor *before; /* or NULL */
};

static struct backend *main_open_store(void *arg, char *error, size_t error_size)
{
    struct main_store *store = arg;
    const int *lock = store->before ? predecessor_store(store->before) : NULL;
    store_open(store->options, lock, &store->backend, &store->sandbox.policy, error, error_size);
    return store->backend;
}

/* A store that a directory belongs to is open once at a time: after the old daemon's end. */
static bool main_store_is_exclusive(const struct options *options)
{
    return (options->kind == OPTIONS_LOCAL && options->directory) || options->kind == OPTIONS_ZOOKEEPER;
}

static int main_begin_takeover(struct main_store *store, struct takeover **ret_old, char *error, size_t error_size)
{
    int result = takeover_begin(store->options, ret_old, error, error_size);
    if (result == 0 && !main_store_is_exclusive(store->options) && !main_open_store(store, error, error_size)) {
        result = -EIO;
    }
    return result < 0 ? result : takeover_check_store(*ret_old, store->options, store->backend, error, error_size);
}

/* Tries all that can fail before the old daemon ends. */
static int main_begin_after(struct main_store *store, const struct predecessor *before, char *error, size_t error_size)
{
    int result = predecessor_check(before, store->options, error, error_size);
    store->before = before;
    if (result == 0 && main_store_is_exclusive(store->options)) {
        return predecessor_daemon(before) ? takeover_try_store(store->options, error, error_size) : 0;
    }
    return result < 0 || main_open_store(store, error, error_size) ? result : -EIO;
}

static int main_begin(struct main_store *store, const struct predecessor *before, struct takeover **ret_old,
                      char *error, size_t error_size)
{
    if (before) {
        return main_begin_after(store, before, error, error_size);
    }
    if (store->options->takeover) {
        return main_begin_takeover(store, ret_old, error, error_size);
    }
    return main_open_store(store, error, error_size) ? 0 : -EIO;
}

static int main_serve_confined(const struct options *options, int waiting, struct session_keepers *keepers)
{
    char error[1024] = "";
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct main_store store = {.options = options, .sandbox = {.wanted = options->sandbox}};
    struct audience audience = {.options = options,
                                .waiting = waiting,
                                .may_look = keeper_may_look(),
                                .own_pids = !process_first_is_init(),
                                .manager = keepers->manager,
                                .loop = loop};
    struct session_takeover takeover = {.open_store = main_open_store, .arg = &store, .manager = keepers->manager};
    if (!options->foreground) {
        log_connect_syslog("leasefs");
    }
    int result = predecessor_find(options, &keepers->before, error, sizeof error);
    if (result == 0) {
        result = main_begin(&store, keepers->before, &takeover.old, error, sizeof error);
    }
    if (result == 0) {
        result = session_run(options, store.backend, takeover.old || !store.backend ? &takeover : NULL, loop,
                             &store.sandbox, keepers, main_detach, &audience, error, sizeof error);
        if (result >= 0 || !options->takeover) { /* a takeover that failed leaves the old daemon as it was */
            sdnotify_stopping(audience.manager);
        }
        ev_timer_stop(loop, &audience.watchdog);
    }
    if (audience.manager >= 0) {
        close(audience.manager);
    }
    takeover_free(takeover.old);
    backend_free(store.backend);
    predecessor_free(keepers->before);
    keeper_free(keepers->own);
    ev_loop_destroy(loop);
    if (result < 0) {
        log_error("%s", error);
    }
    return result < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The keeper is made before there is a store to share. */
static int main_serve(const struct options *options, int waiting)
{
    struct session_keepers keepers = {.manager = -1};
    if (options->foreground || options->takeover) { /* else the manager waits for the parent */
        keepers.manager = sdnotify_open();
    }
    int result = keeper_start(options, keepers.manager >= 0, &keepers.own);
    if (result < 0) {
        log_error("cannot start the process that keeps the mount: %s", g_strerror(-result));
        return EXIT_FAILURE;
    }
    return main_serve_confined(options, waiting, &keepers);
}

static int main_serve_in_background(const struct options *options)
{
    int ends[2];
    if (g_getenv(STARTER_ENVIRONMENT)) { /* nobody reads its errors */
        log_connect_syslog("leasefs");
        log_to_syslog();
    }
    closefrom(STDERR_FILENO + 1); /* the caller's: a daemon would keep its locks and pipes */
    if (pipe2(ends, O_CLOEXEC) < 0) {
        log_error("cannot make a pipe: %s", g_strerror(errno));
        return EXIT_FAILURE;
    }
    pid_t child = fork();
    if (child < 0) {
        log_error("cannot fork: %s", g_strerror(errno));
        return EXIT_FAILURE;
    }
    if (child > 0) {
        close(ends[1]);
        return main_await_child(child, ends[0]);
    }
    close(ends[0]);
    return main_serve(options, ends[1]);
}

/* FUSE's own remount does not reach the daemon, but the attribute does. */
static int main_remount(const struct options *options)
{
    char error[1024] = "";
    if (mountpoint_set_ttl(options->mountpoint, options->ttl, error, sizeof error) < 0) {
        log_error("%s", error);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static int main_print_schema(const char *store)
{
    bool known = g_str_has_prefix(store, "postgresql") && (!store[10] || store[10] == ':');
    g_autofree char *schema = known ? postgresql_schema(store[10] ? store + 11 : NULL) : NULL;
    if (!schema) {
        log_error(
            "--print-schema=%s: write --print-schema=postgresql, or postgresql:NAME for another schema than "
            "leasefs; NAME has lower case letters, digits and underscores, and begins with a letter, and not with pg_",
            store);
        return EXIT_FAILURE;
    }
    fputs(schema, stdout);
    return EXIT_SUCCESS;
}

static int main_protect(const char *path)
{
    char error[1024] = "";
    if (protect_mountpoint(path, error, sizeof error) < 0) {
        log_error("%s", error);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

/* The optional parts: the key in --version --json, the name for people, and whether ./configure found the library. */
static const struct main_feature {
    const char *key, *name;
    bool built;
} main_features[] = {
#ifdef HAVE_HIREDIS_SSL
    {"tls", "TLS", true},
#else
    {"tls", "TLS", false},
#endif
#ifdef HAVE_ZOOKEEPER
    {"zookeeper", "ZooKeeper", true},
#else
    {"zookeeper", "ZooKeeper", false},
#endif
#ifdef HAVE_POSTGRESQL
    {"postgresql", "PostgreSQL", true},
#else
    {"postgresql", "PostgreSQL", false},
#endif
#ifdef HAVE_LIBSECCOMP
    {"seccomp", "seccomp", true},
#else
    {"seccomp", "seccomp", false},
#endif
};

static void main_print_version(bool json)
{
    printf(json ? "{\"version\": \"%s\", \"libfuse\": \"%s\", \"takeover\": true" : "leasefs %s (libfuse %s",
           PACKAGE_VERSION, fuse_pkgversion());
    for (size_t i = 0; i < G_N_ELEMENTS(main_features); i++) {
        const struct main_feature *feature = &main_features[i];
        if (json) {
            printf(", \"%s\": %s", feature->key, feature->built ? "true" : "false");
        } else {
            printf("; %s: %s", feature->name, feature->built ? "yes" : "no");
        }
    }
    puts(json ? "}" : ")");
}

static int main_status(const char *path)
{
    char error[1024] = "";
    g_autofree char *real = realpath(path, NULL);
    if (predecessor_print_status(real ? real : path, error, sizeof error) < 0) {
        log_error("%s", error);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static int main_act(const struct options *options)
{
    if (options->show_help) {
        g_autofree char *words = options_help();
        printf("%s%s%s", help, words, help_end);
        return EXIT_SUCCESS;
    }
    if (options->show_version) {
        main_print_version(options->json);
        return EXIT_SUCCESS;
    }
    if (options->print_schema) {
        return main_print_schema(options->print_schema);
    }
    if (options->protect) {
        return main_protect(options->protect);
    }
    if (options->status) {
        return main_status(options->status);
    }
    if (!process_sees_itself()) {
        log_error(
            "/proc is not that of this pid namespace, so strangers would be taken for the owners of locks: mount one "
            "first, as unshare --mount-proc and container engines do");
        return EXIT_FAILURE;
    }
    if (options->foreground) {
        return main_serve(options, NOBODY_WAITS);
    }
    int status = EXIT_SUCCESS;
    if (!options->fake) {
        status = options->remount ? main_remount(options) : main_serve_in_background(options);
    }
    if (status == EXIT_SUCCESS && options->verbose) {
        printf("leasefs: %s mounted on %s\n", options->backend, options->mountpoint); /* as mount(8) says it */
    }
    return status;
}

/* glibc gathers small pieces that were freed, and some day joins all of them within one call of free(3): when a million
 * leases end that took 18 ms, in which nobody is answered.  So they are joined one by one. */
static void main_free_bit_by_bit(void)
{
#ifdef M_MXFAST
    mallopt(M_MXFAST, 0);
#endif
}

int main(int argc, char **argv)
{
    char error[1024] = "";
    struct options options;
    int status = EXIT_SUCCESS;
    g_auto(GStrv) arguments = g_strdupv(argv); /* getopt(3) sorts them */
    main_free_bit_by_bit();
    main_open_standard_descriptors();
    log_to_stderr();
    signal(SIGPIPE, SIG_IGN);
    main_raise_descriptor_limit();
    if (options_parse(&options, argc, argv, error, sizeof error) < 0) {
        log_error("%s", error);
        status = EXIT_FAILURE;
    } else {
        log_set_level(options.log);
        options.arguments = arguments;
        status = main_act(&options);
    }
    options_clear(&options);
    log_flush();
    return status;
}
