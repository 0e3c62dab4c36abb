/* store: opens the store that the options name; see store.h.
 *
 * Which servers it uses is known here only, so this notes what the sandbox must leave open to them.
 */
#include "fs/daemon/store.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "backend/local/local.h"
#include "backend/log.h"
#include "backend/postgresql/postgresql.h"
#include "backend/redis/preflight.h"
#include "backend/redis/redis.h"
#include "backend/redlock/redlock.h"
#include "backend/zookeeper/zookeeper.h"
#include "fs/process/process.h"

#define STORE_LOCK_TRIES 50    /* to lock the directory of a daemon that is ending */
#define STORE_LOCK_PAUSE 20000 /* microseconds between two */

/* For local:DIR only DIR itself is made: a mistyped path in fstab must be an error, not an empty store elsewhere. */
static bool store_has_parent(const struct options *options, char *error, size_t error_size)
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

static int store_open_local(const struct options *options, const int *lock, struct backend **ret, char *error,
                            size_t error_size)
{
    if (!store_has_parent(options, error, error_size)) {
        return -ENOENT;
    }
    const struct local_options store = {
        .directory = options->directory,
        .sync_always = options->sync_always,
        .seed = g_random_int(),
        .lock = lock,
    };
    /* A daemon that was killed keeps its directory locked until its last thread has ended. */
    int result = local_new(&store, ret, error, error_size);
    for (int i = 0; result == -EWOULDBLOCK && i < STORE_LOCK_TRIES; i++) {
        g_usleep(STORE_LOCK_PAUSE);
        result = local_new(&store, ret, error, error_size);
    }
    return result;
}

/* How the mount identifies itself to a server. */
struct store_login {
    char *user, *password; /* or NULL */
    char *identity;        /* this mount among all mounts of the store; NULL: not known */
};

/* The kernel gives the number of a pid namespace again, so its first process identifies it, too.  0: this is
 * the initial one. */
static uint64_t store_namespace_start(void)
{
    struct process_reader reader;
    uint64_t start = 0;
    int pidfd = -1;
    if (!process_first_is_init()) {
        process_open(&reader);
        process_identify(&reader, 1, &start, &pidfd);
        process_close(&reader);
    }
    if (pidfd >= 0) {
        close(pidfd);
    }
    return start;
}

/* Identifies this mount among all mounts of the store; the same when it starts again.
 * It names the pid namespace, because owners are found by their pids. */
static char *store_mount_identity(const struct options *options)
{
    uint64_t start = store_namespace_start();
    g_autofree char *first = start ? g_strdup_printf(" %" G_GUINT64_FORMAT, start) : g_strdup("");
    char *boot = NULL, *pids = g_file_read_link("/proc/self/ns/pid", NULL);
    g_file_get_contents("/proc/sys/kernel/random/boot_id", &boot, NULL, NULL);
    char *identity =
        boot && pids ? g_strdup_printf("%s %s%s %u %s", g_strstrip(boot), pids, first, getuid(), options->mountpoint)
                     : NULL;
    g_free(pids);
    g_free(boot);
    return identity;
}

static int store_login_read(const struct options *options, struct store_login *ret, char *error, size_t error_size)
{
    *ret = (struct store_login){.identity = store_mount_identity(options)};
    return options->credentials
               ? redis_credentials_read(options->credentials, &ret->user, &ret->password, error, error_size)
               : 0;
}

static void store_forget_password(char *password)
{
    if (password) {
        explicit_bzero(password, strlen(password));
    }
    g_free(password);
}

static void store_login_clear(struct store_login *login)
{
    store_forget_password(login->password);
    g_free(login->user);
    g_free(login->identity);
}

static void store_allow_port(struct sandbox_policy *policy, uint16_t port)
{
    if (policy->port_count < SANDBOX_PORTS_MAX) {
        policy->ports[policy->port_count++] = port;
    }
}

/* --- Redis --- */

static struct redis_conn_options store_conn_options(const struct options *options)
{
    const struct options_server *given = &options->server;
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

/* Looks at the server first, unless it may be away. */
static int store_open_server(const struct redis_options *server, bool background, struct backend **ret, char *error,
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
    g_autofree char *address = redis_uri_show(&server->conn.uri);
    for (guint i = 0; result == 0 && i < warnings->len; i++) {
        log_warning("%s: %s", address, (const char *)warnings->pdata[i]);
    }
    g_ptr_array_unref(warnings);
    if (result < 0) {
        backend_free(*ret);
        *ret = NULL;
    }
    return result;
}

static int store_open_redis(const struct options *options, struct backend **ret, struct sandbox_policy *ret_policy,
                            char *error, size_t error_size)
{
    const struct options_server *given = &options->server;
    struct redis_options server = {
        .conn = store_conn_options(options),
        .key = given->key,
        .grace = given->grace,
        .strict = given->strict,
        .term = options->ttl,
        .seed = g_random_int(),
    };
    struct store_login login = {0};
    char *sentinel_user = NULL, *sentinel_password = NULL;
    struct redis_uri *uri = &server.conn.uri;
    int result = redis_uri_parse(uri, options->backend, error, error_size);
    if (result == 0 && uri->prefix && given->prefix) {
        g_snprintf(error, error_size, "the prefix is in the URI and among the options: give it once");
        result = -EINVAL;
    }
    if (result == 0) {
        result = store_login_read(options, &login, error, error_size);
    }
    if (result == 0 && given->sentinel_credentials) {
        result =
            redis_credentials_read(given->sentinel_credentials, &sentinel_user, &sentinel_password, error, error_size);
    }
    if (result == 0) {
        server.prefix = uri->prefix ? uri->prefix : given->prefix;
        server.conn.user = login.user;
        server.conn.password = login.password;
        server.conn.sentinel_user = sentinel_user;
        server.conn.sentinel_password = sentinel_password;
        server.identity = login.identity;
        result = store_open_server(&server, given->background, ret, error, error_size);
        ret_policy->servers = uri->path ? SANDBOX_UNIX_SERVERS : SANDBOX_NETWORK_SERVERS;
        if (uri->kind == REDIS_SERVER) { /* else others say on which port it is */
            store_allow_port(ret_policy, uri->port);
        }
    }
    store_forget_password(sentinel_password);
    g_free(sentinel_user);
    store_login_clear(&login);
    redis_uri_clear(uri);
    return result;
}

/* Looks at the servers first, unless they may be away. */
static int store_open_masters(const struct redlock_options *servers, bool background, struct backend **ret, char *error,
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

static int store_open_redlock(const struct options *options, struct backend **ret, struct sandbox_policy *ret_policy,
                              char *error, size_t error_size)
{
    struct redlock_uri uri;
    struct redlock_options servers = {.uri = &uri,
                                      .conn = store_conn_options(options),
                                      .prefix = options->server.prefix,
                                      .key = options->server.key,
                                      .ttl = options->ttl,
                                      .grace = options->server.grace,
                                      .seed = g_random_int()};
    struct store_login login;
    int result = redlock_uri_parse(&uri, options->backend, error, error_size);
    if (result < 0) {
        return result;
    }
    result = store_login_read(options, &login, error, error_size);
    if (result == 0) {
        servers.conn.user = login.user;
        servers.conn.password = login.password;
        servers.identity = login.identity;
        result = store_open_masters(&servers, options->server.background, ret, error, error_size);
        ret_policy->servers = SANDBOX_NETWORK_SERVERS;
        for (unsigned i = 0; i < uri.count; i++) {
            store_allow_port(ret_policy, uri.servers[i].port);
        }
    }
    store_login_clear(&login);
    redlock_uri_clear(&uri);
    return result;
}

/* --- others --- */

static int store_open_zookeeper(const struct options *options, struct backend **ret, struct sandbox_policy *ret_policy,
                                char *error, size_t error_size)
{
    struct zookeeper_uri uri;
    struct zookeeper_options server = {.uri = &uri,
                                       .kazoo = options->layout_kazoo,
                                       .ttl = options->ttl,
                                       .background = options->server.background,
                                       .seed = g_random_int()};
    struct store_login login;
    int result = zookeeper_uri_parse(&uri, options->backend, error, error_size);
    if (result < 0) {
        return result;
    }
    result = store_login_read(options, &login, error, error_size);
    if (result == 0) {
        char *digest = login.password ? g_strdup_printf("%s:%s", login.user ? login.user : "", login.password) : NULL;
        server.digest = digest;
        server.identity = login.identity;
        server.state = login.identity ? options->directory : NULL;
        result = zookeeper_new(&server, ret, error, error_size);
        store_forget_password(digest);
        ret_policy->directory = NULL; /* the state file is open already */
        ret_policy->servers = SANDBOX_NETWORK_SERVERS;
        for (size_t i = 0; uri.hosts[i]; i++) {
            store_allow_port(ret_policy, uri.ports[i]);
        }
    }
    store_login_clear(&login);
    zookeeper_uri_clear(&uri);
    return result;
}

static int store_open_postgresql(const struct options *options, struct backend **ret, struct sandbox_policy *ret_policy,
                                 char *error, size_t error_size)
{
    struct postgresql_options server = {
        .uri = options->backend,
        .background = options->server.background,
        .term = options->ttl,
        .grace = options->server.grace,
        .strict = options->server.strict,
        .shedlock = options->shedlock,
        .seed = g_random_int(),
    };
    struct store_login login;
    int result = store_login_read(options, &login, error, error_size);
    if (result == 0) {
        _Static_assert(POSTGRESQL_FILES_MAX <= SANDBOX_FILES_MAX, "the policy has a slot for each file");
        static struct postgresql_needs needs; /* the policy refers to its files until the process ends */
        server.user = login.user;
        server.password = login.password;
        server.identity = login.identity;
        result = postgresql_new(&server, ret, error, error_size);
        postgresql_find_needs(options->backend, &needs);
        ret_policy->servers = SANDBOX_ALL_SERVERS;
        for (size_t i = 0; i < needs.file_count; i++) {
            ret_policy->files[ret_policy->file_count++] = needs.files[i];
        }
        for (size_t i = 0; i < needs.port_count; i++) {
            store_allow_port(ret_policy, needs.ports[i]);
        }
    }
    store_login_clear(&login);
    return result;
}

int store_open(const struct options *options, const int *lock, struct backend **ret, struct sandbox_policy *ret_policy,
               char *error, size_t error_size)
{
    *ret_policy = (struct sandbox_policy){.directory = options->directory};
    switch (options->kind) {
    case OPTIONS_REDIS:
        return store_open_redis(options, ret, ret_policy, error, error_size);
    case OPTIONS_REDLOCK:
        return store_open_redlock(options, ret, ret_policy, error, error_size);
    case OPTIONS_ZOOKEEPER:
        return store_open_zookeeper(options, ret, ret_policy, error, error_size);
    case OPTIONS_POSTGRESQL:
        return store_open_postgresql(options, ret, ret_policy, error, error_size);
    default:
        return store_open_local(options, lock, ret, error, error_size);
    }
}
