/* postgresql: leases in a PostgreSQL database.
 *
 * Functions in the database (schema.sql) decide.  A mount has one connection, on which it sends many calls before the
 * first is answered (libpq's pipeline mode); a call is one transaction.  A waiter learns by NOTIFY that it holds, and
 * claims; a lost notification costs it no more than REMOTE_HEARTBEAT.
 *
 * The server's clock judges the terms.  A server that may have forgotten locks, after a failover, a crash or a restored
 * backup, grants nothing new before mounts have restored what they hold: backend/remote/epoch.h.
 */
#ifndef BACKEND_POSTGRESQL_POSTGRESQL_H
#define BACKEND_POSTGRESQL_POSTGRESQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;

#define POSTGRESQL_SCHEMA_DEFAULT "leasefs"
#define POSTGRESQL_TIMEOUT_DEFAULT 5000 /* ms of a request */
#define POSTGRESQL_FILES_MAX 8
#define POSTGRESQL_PORTS_MAX 16

struct postgresql_options {
    const char *uri;             /* postgresql://…, as libpq(3) has it; also schema=NAME */
    const char *user, *password; /* instead of the URI's; NULL: those */
    const char *shedlock;        /* ShedLock's table, [SCHEMA.]TABLE; NULL: none */
    const char *identity;        /* the same for a mount that starts again; NULL: none */
    int64_t timeout;             /* ms of a request; 0: the default */
    int64_t term;                /* ms: the longest renewable one that the mount has by itself */
    int64_t grace;               /* ms: the longest grace period; 0: the default */
    bool strict;                 /* as struct epoch_report says */
    bool background;             /* the server may be away at the start */
    uint32_t seed;
};

/* What libpq reads and connects to when it reconnects, as far as the URI and the environment say. */
struct postgresql_needs {
    char *files[POSTGRESQL_FILES_MAX]; /* g_malloc'ed; those that exist */
    size_t file_count;
    uint16_t ports[POSTGRESQL_PORTS_MAX];
    size_t port_count;
};

/* 0, or -errno with one line in `error`.  Unless `background`, the server is there, and has the schema. */
int postgresql_new(const struct postgresql_options *options, struct backend **ret, char *error, size_t error_size);

void postgresql_find_needs(const char *uri, struct postgresql_needs *ret);

/* The statements that make the schema of that name; NULL: leasefs.  A new string; NULL: that cannot be its name, or
 * this build has no PostgreSQL. */
char *postgresql_schema(const char *name);

#endif
