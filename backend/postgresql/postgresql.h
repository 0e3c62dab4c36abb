/* postgresql: leases in a PostgreSQL database.
 *
 * Functions in the database (schema.sql) decide.  A mount has one connection, on which it sends many calls before the
 * first is answered (libpq's pipeline mode); a call is one transaction.  NOTIFY reports a grant to a waiter, which then
 * claims it; if a notification is lost, the next heartbeat finds the grant.
 *
 * The server's clock decides when terms end.  After a failover, a crash or a restored backup the server may have lost
 * locks; then it grants nothing new until mounts have restored what they hold: see backend/remote/epoch.h.
 */
#ifndef BACKEND_POSTGRESQL_POSTGRESQL_H
#define BACKEND_POSTGRESQL_POSTGRESQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;

#define POSTGRESQL_SCHEMA_DEFAULT "leasefs"
#define POSTGRESQL_TIMEOUT_DEFAULT 5000 /* ms of a request */
#define POSTGRESQL_FILES_MAX 10
#define POSTGRESQL_PORTS_MAX 16

struct postgresql_options {
    const char *uri;             /* a URI of libpq, which may also have schema=NAME */
    const char *user, *password; /* replace the URI's; NULL: use those */
    const char *shedlock;        /* ShedLock's table, [SCHEMA.]TABLE; NULL: none */
    const char *identity;        /* of this mount, the same when it starts again; NULL: none */
    int64_t timeout;             /* ms of a request; 0: the default */
    int64_t term;                /* ms: the longest renewable term, unless a user sets one */
    int64_t grace;               /* ms: the longest grace period; 0: the default */
    bool strict;                 /* see struct epoch_report */
    bool background;             /* the server may be away at the start */
    uint32_t seed;
};

/* The files and ports that libpq may need when it reconnects, by the URI, its service and the environment. */
struct postgresql_needs {
    char *files[POSTGRESQL_FILES_MAX]; /* g_malloc'ed; those that exist */
    size_t file_count;
    uint16_t ports[POSTGRESQL_PORTS_MAX];
    size_t port_count;
};

/* 0, or -errno with one line in `error`.  Unless `background`, it has connected, and the schema exists. */
int postgresql_new(const struct postgresql_options *options, struct backend **ret, char *error, size_t error_size);

void postgresql_find_needs(const char *uri, struct postgresql_needs *ret);

/* The statements that make the schema `name` (NULL: leasefs).  A new string; NULL: the name is not valid, or this build
 * has no PostgreSQL. */
char *postgresql_schema(const char *name);

#endif
