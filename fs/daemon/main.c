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
#include "backend/local/local.h"
#include "backend/log.h"
#include "backend/postgresql/postgresql.h"
#include "backend/redis/preflight.h"
#include "backend/redis/redis.h"
#include "backend/redlock/redlock.h"
#include "backend/zookeeper/zookeeper.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/sdnotify.h"
#include "fs/daemon/session.h"
#include "fs/daemon/unmounter.h"
#include "fs/options/options.h"
#include "fs/process/process.h"

#define NOBODY_WAITS (-1)

#define MAIN_LOCK_TRIES 50    /* to lock the directory of a daemon that is ending */
#define MAIN_LOCK_PAUSE 20000 /* microseconds between two */

static const char help[] = "Usage: leasefs [-f] [-o OPTIONS] BACKEND MOUNTPOINT\n"
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
                           "  -V, --version         the version\n"
                           "  --print-schema=postgresql[:NAME]\n"
                           "                        what makes the schema for locks in PostgreSQL, as SQL\n"
                           "\n";
static const char help_end[] = "\n"
                               "End it with umount MOUNTPOINT or fusermount3 -u MOUNTPOINT.  More in leasefs(8);\n"
                               "what each system call means is in leasefs(7).\n";

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
    int waiting; /* the parent's pipe, or NOBODY_WAITS */
    int manager; /* see sdnotify.h */
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

/* session_run's `ready`: the caller has waited long enough. */
static void main_detach(void *arg)
{
    struct audience *audience = arg;
    int *waiting = &audience->waiting;
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
    while (write(*waiting, "", 1) < 0 && errno == EINTR) {
    }
    close(*waiting);
    *waiting = NOBODY_WAITS;
}

/* For local:DIR only DIR itself is made: a mistyped path in fstab must be an error, not an empty store elsewhere. */
static bool main_has_parent(const struct options *options, char *error, size_t error_size)
{
    if (!g_str_has_prefix(options->backend, "local:")) {
        return true;
    }
    g_autofree char *parent = g_path_get_dirname(options->directory);
    bool missing = access(parent, F_OK) < 0 && errno == ENOENT;
    if (missing) {
        g_snprintf(error, error_size,
                   "%s does not exist, so %s is not made in it: mkdir -p %s, or give another directory", parent,
                   options->directory, parent);
    }
    return !missing;
}

static int main_open_local(const struct options *options, struct backend **ret, char *error, size_t error_size)
{
    if (!main_has_parent(options, error, error_size)) {
        return -ENOENT;
    }
    const struct local_options store = {
        .directory = options->directory,
        .sync_always = options->sync_always,
        .seed = g_random_int(),
    };
    /* A daemon that was killed keeps its directory locked until its last thread has ended. */
    int result = local_new(&store, ret, error, error_size);
    for (int i = 0; result == -EWOULDBLOCK && i < MAIN_LOCK_TRIES; i++) {
        g_usleep(MAIN_LOCK_PAUSE);
        result = local_new(&store, ret, error, error_size);
    }
    return result;
}

/* Looks at the server first, unless it may be away. */
static int main_open_server(const struct redis_options *server, bool background, struct backend **ret, char *error,
                            size_t error_size)
{
    struct redis_options checked = *server;
    checked.checked = !background;
    int result = redis_new(&checked, ret, error, error_size); /* refuses what no server could do */
    if (result < 0 || background) {
        return result;
    }
    GPtrArray *warnings = g_ptr_array_new_with_free_func(g_free);
    result = redis_preflight(server, warnings, error, error_size);
    for (guint i = 0; result == 0 && i < warnings->len; i++) {
        log_warning("the Redis server: %s", (const char *)warnings->pdata[i]);
    }
    g_ptr_array_unref(warnings);
    if (result < 0) {
        backend_free(*ret);
        *ret = NULL;
    }
    return result;
}

/* Identifies this mount among all mounts of the store; the same when it starts again.
 * It names the pid namespace, because owners are found by their pids. */
static char *main_mount_identity(const struct options *options)
{
    char *boot = NULL, *pids = g_file_read_link("/proc/self/ns/pid", NULL);
    g_file_get_contents("/proc/sys/kernel/random/boot_id", &boot, NULL, NULL);
    char *identity =
        boot && pids ? g_strdup_printf("%s %s %u %s", g_strstrip(boot), pids, getuid(), options->mountpoint) : NULL;
    g_free(pids);
    g_free(boot);
    return identity;
}

static void main_forget_password(char *password)
{
    if (password) {
        explicit_bzero(password, strlen(password));
    }
    g_free(password);
}

static struct redis_conn_options main_conn_options(const struct options *options)
{
    const struct options_redis *given = &options->redis;
    /* a connection that went silent must be given up, and made again, while leases can still be renewed */
    int64_t third = MAX(options->ttl / 3, REDIS_TIME_MIN);
    return (struct redis_conn_options){
        .timeout = given->timeout,
        .command_timeout = given->command_timeout ? given->command_timeout : MIN(third, REDIS_COMMAND_TIMEOUT_DEFAULT),
        .connect_timeout = given->connect_timeout,
        .retry_max = MIN(MAX(third / 2, REDIS_RETRY_MIN), REDIS_RETRY_MAX),
        .keepalive = given->keepalive,
        .wait = given->wait,
        .seed = g_random_int(),
    };
}

/* Which servers are used is known here only, so what the sandbox leaves open to
 * them is noted here. */
static int main_open_redis(const struct options *options, struct backend **ret, struct sandbox_policy *ret_policy,
                           char *error, size_t error_size)
{
    const struct options_redis *given = &options->redis;
    struct redis_options server = {
        .conn = main_conn_options(options),
        .key = given->key,
        .grace = given->grace,
        .strict = given->strict,
        .term = options->ttl,
        .seed = g_random_int(),
    };
    char *user = NULL, *password = NULL, *sentinel_user = NULL, *sentinel_password = NULL;
    struct redis_uri *uri = &server.conn.uri;
    int result = redis_uri_parse(uri, options->backend, error, error_size);
    if (result == 0 && uri->prefix && given->prefix) {
        g_snprintf(error, error_size, "the prefix is in the URI and among the options: give it once");
        result = -EINVAL;
    }
    if (result == 0 && options->credentials) {
        result = redis_credentials_read(options->credentials, &user, &password, error, error_size);
    }
    if (result == 0 && given->sentinel_credentials) {
        result =
            redis_credentials_read(given->sentinel_credentials, &sentinel_user, &sentinel_password, error, error_size);
    }
    if (result == 0) {
        server.prefix = uri->prefix ? uri->prefix : given->prefix;
        server.conn.user = user;
        server.conn.password = password;
        server.conn.sentinel_user = sentinel_user;
        server.conn.sentinel_password = sentinel_password;
        char *identity = main_mount_identity(options);
        server.identity = identity;
        result = main_open_server(&server, given->background, ret, error, error_size);
        g_free(identity);
        ret_policy->servers = uri->path ? SANDBOX_UNIX_SERVERS : SANDBOX_NETWORK_SERVERS;
        if (uri->kind == REDIS_SERVER) { /* else others say on which port it is */
            ret_policy->ports[ret_policy->port_count++] = uri->port;
        }
    }
    main_forget_password(password);
    main_forget_password(sentinel_password);
    g_free(user);
    g_free(sentinel_user);
    redis_uri_clear(uri);
    return result;
}

/* Looks at the servers first, unless they may be away. */
static int main_open_masters(const struct redlock_options *servers, bool background, struct backend **ret, char *error,
                             size_t error_size)
{
    GPtrArray *warnings = g_ptr_array_new_with_free_func(g_free);
    int result = background ? 0 : redlock_check(servers, warnings, error, error_size);
    for (guint i = 0; result == 0 && i < warnings->len; i++) {
        log_warning("the Redis server %s", (const char *)warnings->pdata[i]);
    }
    g_ptr_array_unref(warnings);
    return result == 0 ? redlock_new(servers, ret, error, error_size) : result;
}

static int main_open_redlock(const struct options *options, struct backend **ret, struct sandbox_policy *ret_policy,
                             char *error, size_t error_size)
{
    struct redlock_uri uri;
    struct redlock_options servers = {.uri = &uri,
                                      .conn = main_conn_options(options),
                                      .prefix = options->redis.prefix,
                                      .key = options->redis.key,
                                      .ttl = options->ttl,
                                      .grace = options->redis.grace,
                                      .seed = g_random_int()};
    char *user = NULL, *password = NULL;
    int result = redlock_uri_parse(&uri, options->backend, error, error_size);
    if (result < 0) {
        return result;
    }
    if (options->credentials) {
        result = redis_credentials_read(options->credentials, &user, &password, error, error_size);
    }
    if (result == 0) {
        servers.conn.user = user;
        servers.conn.password = password;
        char *identity = main_mount_identity(options);
        servers.identity = identity;
        result = main_open_masters(&servers, options->redis.background, ret, error, error_size);
        g_free(identity);
        ret_policy->servers = SANDBOX_NETWORK_SERVERS;
        for (unsigned i = 0; i < uri.count; i++) {
            ret_policy->ports[ret_policy->port_count++] = uri.servers[i].port;
        }
    }
    main_forget_password(password);
    g_free(user);
    redlock_uri_clear(&uri);
    return result;
}

static int main_open_zookeeper(const struct options *options, struct backend **ret, struct sandbox_policy *ret_policy,
                               char *error, size_t error_size)
{
    struct zookeeper_options server = {.kazoo = options->layout_kazoo, .ttl = options->ttl, .seed = g_random_int()};
    struct zookeeper_uri uri;
    char *user = NULL, *password = NULL, *digest = NULL;
    int result = zookeeper_uri_parse(&uri, options->backend, error, error_size);
    if (result < 0) {
        return result;
    }
    if (options->credentials) {
        result = redis_credentials_read(options->credentials, &user, &password, error, error_size);
    }
    if (result == 0) {
        digest = password ? g_strdup_printf("%s:%s", user ? user : "", password) : NULL;
        char *identity = main_mount_identity(options);
        server.uri = &uri;
        server.digest = digest;
        server.identity = identity;
        server.background = options->redis.background;
        server.state = identity ? options->directory : NULL;
        result = zookeeper_new(&server, ret, error, error_size);
        g_free(identity);
        ret_policy->directory = NULL; /* what is kept is open */
        ret_policy->servers = SANDBOX_NETWORK_SERVERS;
        for (size_t i = 0; uri.hosts[i] && i < SANDBOX_PORTS_MAX; i++) {
            ret_policy->ports[ret_policy->port_count++] = uri.ports[i];
        }
    }
    main_forget_password(digest);
    main_forget_password(password);
    g_free(user);
    zookeeper_uri_clear(&uri);
    return result;
}

static int main_open_postgresql(const struct options *options, struct backend **ret, struct sandbox_policy *ret_policy,
                                char *error, size_t error_size)
{
    struct postgresql_options server = {
        .uri = options->backend,
        .background = options->redis.background,
        .term = options->ttl,
        .grace = options->redis.grace,
        .strict = options->redis.strict,
        .shedlock = options->shedlock,
        .seed = g_random_int(),
    };
    char *user = NULL, *password = NULL;
    int result = 0;
    if (options->credentials) {
        result = redis_credentials_read(options->credentials, &user, &password, error, error_size);
    }
    if (result == 0) {
        struct postgresql_needs needs;
        char *identity = main_mount_identity(options);
        server.user = user;
        server.password = password;
        server.identity = identity;
        result = postgresql_new(&server, ret, error, error_size);
        g_free(identity);
        postgresql_find_needs(options->backend, &needs);
        ret_policy->servers = SANDBOX_ALL_SERVERS;
        for (size_t i = 0; i < needs.file_count; i++) {
            ret_policy->files[ret_policy->file_count++] = needs.files[i];
        }
        for (size_t i = 0; i < needs.port_count; i++) {
            ret_policy->ports[ret_policy->port_count++] = needs.ports[i];
        }
    }
    main_forget_password(password);
    g_free(user);
    return result;
}

static int main_open_backend(const struct options *options, struct backend **ret, struct sandbox_policy *ret_policy,
                             char *error, size_t error_size)
{
    *ret_policy = (struct sandbox_policy){.directory = options->directory};
    switch (options->kind) {
    case OPTIONS_REDIS:
        return main_open_redis(options, ret, ret_policy, error, error_size);
    case OPTIONS_REDLOCK:
        return main_open_redlock(options, ret, ret_policy, error, error_size);
    case OPTIONS_ZOOKEEPER:
        return main_open_zookeeper(options, ret, ret_policy, error, error_size);
    case OPTIONS_POSTGRESQL:
        return main_open_postgresql(options, ret, ret_policy, error, error_size);
    default:
        return main_open_local(options, ret, error, error_size);
    }
}

static int main_serve_confined(const struct options *options, int waiting, struct unmounter *unmounter)
{
    char error[1024] = "";
    struct backend *backend = NULL;
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct session_sandbox sandbox = {.wanted = options->sandbox, .unmounter = unmounter};
    struct audience audience = {.options = options, .waiting = waiting, .manager = -1, .loop = loop};
    if (options->foreground) { /* else the manager waits for the parent */
        audience.manager = sdnotify_open();
    } else {
        log_connect_syslog("leasefs");
    }
    int result = main_open_backend(options, &backend, &sandbox.policy, error, sizeof error);
    if (result == 0) {
        result = session_run(options, backend, loop, &sandbox, main_detach, &audience, error, sizeof error);
        sdnotify_stopping(audience.manager);
        ev_timer_stop(loop, &audience.watchdog);
    }
    if (audience.manager >= 0) {
        close(audience.manager);
    }
    backend_free(backend);
    unmounter_free(unmounter);
    ev_loop_destroy(loop);
    if (result < 0) {
        log_error("%s", error);
    }
    return result < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* The next daemon looks which processes have files of this one's mount open.  Locks in memory end with their daemon. */
static void main_warn_of_blindness(const struct options *options)
{
    bool others = options->allow_other || geteuid() == 0;
    if (others && strcmp(options->backend, "memory") != 0 && !unmounter_may_look()) {
        log_warning("no CAP_SYS_PTRACE: cannot look into the processes of other users: if a daemon is killed, only the "
                    "process that opened a lock's file keeps the lock");
    }
}

/* The process that will unmount is made before there is a store to share. */
static int main_serve(const struct options *options, int waiting)
{
    struct unmounter *unmounter = NULL;
    main_warn_of_blindness(options);
    int result = unmounter_start(options->mountpoint, &unmounter);
    if (result < 0) {
        log_error("cannot start the process that unmounts: %s", g_strerror(-result));
        return EXIT_FAILURE;
    }
    return main_serve_confined(options, waiting, unmounter);
}

static int main_serve_in_background(const struct options *options)
{
    int ends[2];
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
            "--print-schema=%s: write --print-schema=postgresql, or postgresql:NAME for another schema than leasefs",
            store);
        return EXIT_FAILURE;
    }
    fputs(schema, stdout);
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
        printf("leasefs %s (libfuse %s)\n", PACKAGE_VERSION, fuse_pkgversion());
        return EXIT_SUCCESS;
    }
    if (options->print_schema) {
        return main_print_schema(options->print_schema);
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
        status = main_act(&options);
    }
    options_clear(&options);
    log_flush();
    return status;
}
