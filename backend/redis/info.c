/* info: judges what a server says of itself; see info.h. */
#include "backend/redis/info.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "backend/log.h"
#include "backend/redis/conn/conn.h"

#define VERSION_MIN 5
#define SNAPSHOT_OVERDUE 3900 /* seconds: Redis makes one after an hour with a change, unless told otherwise */

static void __attribute__((format(printf, 2, 3))) info_add(GPtrArray *lines, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    g_ptr_array_add(lines, g_strdup_vprintf(format, arguments));
    va_end(arguments);
}

/* A table of the "name:value\r\n" lines. */
static GHashTable *info_read_fields(const char *info)
{
    GHashTable *fields = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    char **lines = g_strsplit(info, "\n", -1);
    for (char **line = lines; *line; line++) {
        char *colon = strchr(*line, ':');
        if (colon && **line != '#') {
            char *value = g_strdup(colon + 1);
            g_hash_table_insert(fields, g_strndup(*line, (gsize)(colon - *line)), g_strchomp(value));
        }
    }
    g_strfreev(lines);
    return fields;
}

static bool info_has(GHashTable *fields, const char *name, const char *value)
{
    return g_strcmp0(g_hash_table_lookup(fields, name), value) == 0;
}

static int64_t info_number(GHashTable *fields, const char *name)
{
    const char *value = g_hash_table_lookup(fields, name);
    return value ? g_ascii_strtoll(value, NULL, 10) : 0;
}

static void info_check_kind(GHashTable *fields, enum redis_kind kind, GPtrArray *errors)
{
    const char *version = g_hash_table_lookup(fields, "redis_version");
    char text[64];
    if (version && atoi(version) < VERSION_MIN) {
        info_add(errors, "the server is Redis %s, which is too old: %d or newer is needed",
                 log_escape(text, sizeof text, version), VERSION_MIN);
    }
    if (info_has(fields, "redis_mode", "sentinel")) {
        info_add(errors, "the server is a Sentinel, which keeps no keys: mount redis+sentinel://HOST,HOST,HOST/NAME");
    }
    if (kind != REDIS_CLUSTER &&
        (info_has(fields, "cluster_enabled", "1") || info_has(fields, "redis_mode", "cluster"))) {
        info_add(errors, REDIS_INFO_IS_CLUSTER);
    }
}

static void info_check_role(GHashTable *fields, GPtrArray *errors)
{
    const char *role = g_hash_table_lookup(fields, "role");
    const char *host = g_hash_table_lookup(fields, "master_host");
    char text[256];
    if (!role || strcmp(role, "master") == 0) {
        return;
    }
    if (strcmp(role, "active-replica") == 0) {
        info_add(
            errors,
            "the server is a KeyDB with active-replica, where two masters can give the same lock to two holders: mount "
            "a server with one master");
    } else if (host) {
        info_add(errors, "the server is a replica: mount its master, %s port %" G_GINT64_FORMAT,
                 log_escape(text, sizeof text, host), info_number(fields, "master_port"));
    } else {
        info_add(errors, "the server's role is %s: mount a master", log_escape(text, sizeof text, role));
    }
}

/* Locks have a time to live, so every policy but noeviction may delete them.
 * Without a limit of memory Redis never evicts, so there is no warning. */
static void info_check_eviction(GHashTable *fields, GPtrArray *warnings)
{
    const char *policy = g_hash_table_lookup(fields, "maxmemory_policy");
    bool limited = !g_hash_table_contains(fields, "maxmemory") || info_number(fields, "maxmemory") > 0;
    char text[64];
    if (policy && limited && (g_str_has_prefix(policy, "volatile-") || g_str_has_prefix(policy, "allkeys-"))) {
        info_add(warnings,
                 "the server deletes locks that are held when its memory is full (maxmemory-policy %s): set "
                 "maxmemory-policy "
                 "noeviction",
                 log_escape(text, sizeof text, policy));
    }
}

/* INFO does not show save points, only their results. */
static void info_check_persistence(GHashTable *fields, GPtrArray *warnings)
{
    bool never = info_has(fields, "rdb_last_bgsave_time_sec", "-1") &&
                 info_number(fields, "rdb_changes_since_last_save") > 0 &&
                 info_number(fields, "uptime_in_seconds") >= SNAPSHOT_OVERDUE;
    if (info_has(fields, "aof_enabled", "0")) {
        info_add(warnings,
                 "a restart makes the server forget locks that are held: %s (appendonly no): set appendonly yes",
                 never ? "it keeps nothing on disk" : "all since its last snapshot, if it makes any");
    }
    if (info_has(fields, "rdb_last_bgsave_status", "err")) {
        info_add(warnings, "the server's last snapshot failed, and it may refuse to write: see its log");
    }
    if (info_has(fields, "aof_last_write_status", "err")) {
        info_add(warnings, "the server could not write to its append-only file, and may refuse to write: see its log");
    }
}

/* Half of the n data nodes, rounded down, and the master are a majority. */
static void info_check_replicas(GHashTable *fields, unsigned wait, GPtrArray *warnings)
{
    int64_t replicas = info_number(fields, "connected_slaves"), enough = (replicas + 1) / 2;
    if (wait > 0 && replicas < wait) {
        info_add(warnings,
                 "the server has %" G_GINT64_FORMAT
                 " %s, fewer than wait=%u asks for: nothing is granted until it has them",
                 replicas, replicas == 1 ? "replica" : "replicas", wait);
    } else if (wait > 0 && wait < enough) {
        info_add(warnings,
                 "the server has %" G_GINT64_FORMAT
                 " replicas, too many for wait=%u: a failover to one that has not heard of "
                 "a lock may give it to another holder: mount with wait=%" G_GINT64_FORMAT,
                 replicas, wait, enough);
    } else if (wait == 0 && replicas > 0 && !g_hash_table_contains(fields, "min_slaves_good_slaves")) {
        info_add(warnings,
                 "the server has %" G_GINT64_FORMAT
                 " %s but grants locks also when cut off from them, which another holder can get "
                 "after a failover: set min-replicas-to-write",
                 replicas, replicas == 1 ? "replica" : "replicas");
    }
}

/* Replication is asynchronous: a replica gets a lock after the client has its answer. */
static void info_check_failover(GHashTable *fields, enum redis_kind kind, unsigned wait, GPtrArray *warnings)
{
    int64_t enough = MAX((info_number(fields, "connected_slaves") + 1) / 2, 1);
    if (kind != REDIS_SERVER && wait == 0) {
        info_add(warnings,
                 "a failover may lose locks that were granted just before it, or by a master that was cut off, so that "
                 "another holder can get them: mount with wait=%" G_GINT64_FORMAT,
                 enough);
    }
}

void redis_info_check_master(const char *info, enum redis_kind kind, GPtrArray *errors, GPtrArray *warnings)
{
    GHashTable *fields = info_read_fields(info);
    info_check_kind(fields, kind, errors);
    info_check_role(fields, errors);
    info_check_eviction(fields, warnings);
    g_hash_table_unref(fields);
}

void redis_info_check(const char *info, enum redis_kind kind, unsigned wait, GPtrArray *errors, GPtrArray *warnings)
{
    GHashTable *fields = info_read_fields(info);
    redis_info_check_master(info, kind, errors, warnings);
    info_check_persistence(fields, warnings);
    info_check_replicas(fields, wait, warnings);
    info_check_failover(fields, kind, wait, warnings);
    g_hash_table_unref(fields);
}

char *redis_info_field(const char *info, const char *name)
{
    GHashTable *fields = info_read_fields(info);
    char *value = g_strdup(g_hash_table_lookup(fields, name));
    g_hash_table_unref(fields);
    return value;
}

const char *redis_info_advice(const char *error)
{
    static const struct {
        const char *begin, *words;
    } known[] = {
        {"NOAUTH",
         "the server requires a password: put it in a file with mode 0600 and mount with -o credentials=FILE"},
        {"WRONGPASS",
         "the server does not know this user with this password: correct the file that credentials= names"},
        {"ERR invalid password", "the server has another password: correct the file that credentials= names"},
        {"ERR Client sent AUTH", "the server has no password: leave out credentials="},
        {"ERR AUTH <password> called",
         "the server's default user has no password: leave out credentials=, or write USER:PASSWORD to that file"},
        {"ERR wrong number of arguments for 'auth'",
         "the server has no users, which came with Redis 6: give only the password, and no user"},
        {"DENIED",
         "the server is in protected mode: give it a password (requirepass), or an address to listen on (bind)"},
        {"LOADING", "the server is still reading its data: try again when it has, or use the option background"},
        {"MASTERDOWN", "the server is a replica without its master: mount a master"},
        {"READONLY", "the server is a read-only replica: mount its master"},
        {"MISCONF", "the server refuses to write because it cannot save to its disk: see its log"},
        {"NOREPLICAS", "the server refuses to write while it has too few replicas (min-replicas-to-write)"},
        {"CLUSTERDOWN", "the server's Cluster is down: see redis-cli CLUSTER INFO"},
        {"TRYAGAIN", "the slot of the prefix is being moved: try again when it is, or use the option background"},
        {"ASK ", "the slot of the prefix is being moved: try again when it is, or use the option background"},
        {"MOVED", REDIS_INFO_IS_CLUSTER},
        {"ERR SELECT is not allowed in cluster mode", REDIS_INFO_IS_CLUSTER},
        {"ERR DB index is out of range", "the server has no database of this number: see its setting databases"},
        {"ERR invalid DB index", "the server has no database of this number: see its setting databases"},
        {REDIS_NO_MASTER, REDIS_NO_MASTER ": try again, or use the option background"},
        {"ERR max number of clients", "the server has as many clients as it allows: raise its setting maxclients"},
    };
    for (size_t i = 0; i < G_N_ELEMENTS(known); i++) {
        if (g_str_has_prefix(error, known[i].begin)) {
            return known[i].words;
        }
    }
    return NULL;
}
