/* connect: makes a connection, sets its session up, and makes the schema.  All of it blocks, so it is called at the
 * start of the mount, and later from a thread. */
#include <stdio.h>
#include <string.h>

#include "backend/postgresql/private.h"

static const char connect_schema_text[] =
#include "backend/postgresql/schema.inc"
    ;

void pq_connection_clear(struct pq_connection *connection)
{
    if (connection->conn) {
        PQfinish(connection->conn);
        connection->conn = NULL;
    }
    g_clear_pointer(&connection->error, g_free);
    g_clear_pointer(&connection->warnings, g_ptr_array_unref);
    g_clear_pointer(&connection->address, g_free);
}

#define CONNECT_LOCK_WAIT 1000 /* ms for other transactions to end; meanwhile no mount can change a lock */
#define CONNECT_NEWER "LF002"  /* an error of schema.sql: a newer leasefs made the schema */
#define CONNECT_POOLER                                                                                                 \
    "a pooler such as pgbouncer answers in place of the server, and does not pass notifications on: give the "         \
    "server's "                                                                                                        \
    "own host and port"

/* Replaces the schema's name, which the text has as "leasefs." and "SCHEMA leasefs". */
char *postgresql_schema(const char *name)
{
    if (!name || strcmp(name, POSTGRESQL_SCHEMA_DEFAULT) == 0) {
        return g_strdup(connect_schema_text);
    }
    if (!pq_is_schema(name)) {
        return NULL;
    }
    GString *text = g_string_new(connect_schema_text);
    char *with_dot = g_strdup_printf("%s.", name), *after_word = g_strdup_printf("SCHEMA %s", name),
         *if_not = g_strdup_printf("SCHEMA IF NOT EXISTS %s", name);
    g_string_replace(text, POSTGRESQL_SCHEMA_DEFAULT ".", with_dot, 0);
    g_string_replace(text, "SCHEMA " POSTGRESQL_SCHEMA_DEFAULT, after_word, 0);
    g_string_replace(text, "SCHEMA IF NOT EXISTS " POSTGRESQL_SCHEMA_DEFAULT, if_not, 0);
    g_free(with_dot);
    g_free(after_word);
    g_free(if_not);
    return g_string_free(text, FALSE);
}

/* --- errors --- */

char *pq_error_line(const char *message)
{
    GString *line = g_string_new(message && *message ? message : "the connection was closed");
    g_string_replace(line, "\n\t", "; ", 0); /* a line that goes on */
    return g_strchomp(g_strdelimit(g_string_free(line, FALSE), "\n\t", ' '));
}

static void connect_fail(struct pq_connection *c, char *error)
{
    g_free(c->error);
    c->error = error;
    if (c->conn) {
        PQfinish(c->conn);
        c->conn = NULL;
    }
}

static const char *connect_state(const PGresult *rows)
{
    const char *state = PQresultErrorField(rows, PG_DIAG_SQLSTATE);
    return state ? state : "";
}

/* NULL: it failed, and the connection with it. */
static PGresult *connect_query(struct pq_connection *c, const char *text)
{
    PGresult *rows = PQexec(c->conn, text);
    ExecStatusType status = PQresultStatus(rows);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        char *why = pq_error_line(PQresultErrorMessage(rows));
        PQclear(rows);
        connect_fail(c, why);
        return NULL;
    }
    return rows;
}

/* --- the schema --- */

static char *connect_right_to_execute(const struct pq_target *target, const PGconn *conn)
{
    return g_strdup_printf(
        "the role %s may not use the schema %s: run as its owner: GRANT USAGE ON SCHEMA %s TO \"%s\"; "
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %s TO \"%s\"",
        PQuser(conn), target->schema, target->schema, PQuser(conn), target->schema, PQuser(conn));
}

/* Does the schema lack functions of this leasefs, because an older leasefs made it? */
static bool connect_is_older(const struct pq_target *target, struct pq_connection *c)
{
    char *text = g_strdup_printf("SELECT %s.revision()", target->schema);
    PGresult *rows = PQexec(c->conn, text);
    bool older = PQresultStatus(rows) == PGRES_TUPLES_OK ? atoi(PQgetvalue(rows, 0, 0)) < POSTGRESQL_REVISION
                                                         : strcmp(connect_state(rows), "42883") == 0;
    PQclear(rows);
    g_free(text);
    return older;
}

/* Runs schema.sql, which makes or upgrades the schema; the tables keep their rows.  Only one mount at a time runs it.
 * Returns the server's answer, which the caller clears; NULL: the connection failed.  `lock_wait`: ms to wait for other
 * transactions; 0: no limit. */
static PGresult *connect_run_schema(const struct pq_target *target, struct pq_connection *c, int lock_wait)
{
    char *begin = g_strdup_printf("BEGIN; SET LOCAL lock_timeout = %d", lock_wait);
    char *schema = postgresql_schema(target->schema);
    PGresult *rows = PQexec(c->conn, begin);
    if (PQresultStatus(rows) == PGRES_COMMAND_OK) {
        PQclear(rows);
        rows = PQexec(c->conn, schema);
    }
    bool done = PQresultStatus(rows) == PGRES_COMMAND_OK;
    g_free(schema);
    g_free(begin);
    PQclear(connect_query(c, done ? "COMMIT" : "ROLLBACK"));
    if (!c->conn) {
        g_clear_pointer(&rows, PQclear);
    }
    return rows;
}

/* Makes the schema, or upgrades a schema with an older format number. */
static void connect_make_schema(const struct pq_target *target, struct pq_connection *c, bool upgrade)
{
    PGresult *rows = connect_run_schema(target, c, 0);
    const char *state = connect_state(rows);
    bool may_not = strcmp(state, "42501") == 0;
    if (may_not && upgrade) {
        connect_fail(
            c, g_strdup_printf("the schema %s was made by an older leasefs, and the role %s may not upgrade it: run as "
                               "the schema's owner: leasefs --print-schema=postgresql:%s | psql -1 %s",
                               target->schema, PQuser(c->conn), target->schema, PQdb(c->conn)));
    } else if (may_not) {
        connect_fail(
            c, g_strdup_printf("the database %s has no schema %s, and the role %s may not make one: run as the "
                               "database's owner: leasefs --print-schema=postgresql:%s | psql -1 %s, then GRANT "
                               "USAGE ON SCHEMA %s TO \"%s\"; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %s TO \"%s\"",
                               PQdb(c->conn), target->schema, PQuser(c->conn), target->schema, PQdb(c->conn),
                               target->schema, PQuser(c->conn), target->schema, PQuser(c->conn)));
    } else if (rows && PQresultStatus(rows) != PGRES_COMMAND_OK && strcmp(state, CONNECT_NEWER) != 0) {
        char *why = pq_error_line(PQresultErrorMessage(rows));
        connect_fail(c, g_strdup_printf("cannot make the schema %s: %s", target->schema, why));
        g_free(why);
    }
    PQclear(rows);
}

/* Adds this leasefs' functions to a schema with the same format number that an older leasefs made.  If that fails, the
 * mount works without these functions, and a warning says so. */
static void connect_extend_schema(const struct pq_target *target, struct pq_connection *c, bool may_make)
{
    c->older = connect_is_older(target, c);
    if (c->older && may_make) {
        PQclear(connect_run_schema(target, c, CONNECT_LOCK_WAIT));
        c->older = c->conn && connect_is_older(target, c); /* another mount may have done it */
    }
    if (c->older) {
        g_ptr_array_add(
            c->warnings,
            g_strdup_printf("the schema %s was made by an older leasefs: locks work, but newer features, such "
                            "as leaserun --mounts, do not: run as the schema's owner: leasefs "
                            "--print-schema=postgresql:%s | psql -1 %s",
                            target->schema, target->schema, PQdb(c->conn)));
    }
}

static void connect_check_schema(const struct pq_target *target, struct pq_connection *c, bool may_make)
{
    char *text = g_strdup_printf("SELECT %s.format_version()", target->schema);
    PGresult *rows = PQexec(c->conn, text);
    const char *state = connect_state(rows);
    if (PQresultStatus(rows) == PGRES_TUPLES_OK) {
        int version = atoi(PQgetvalue(rows, 0, 0));
        if (version < POSTGRESQL_FORMAT && may_make) {
            connect_make_schema(target, c, true);
            if (c->conn) {
                connect_check_schema(target, c, false);
            }
        } else if (version != POSTGRESQL_FORMAT) {
            connect_fail(
                c, g_strdup_printf("the schema %s has format %d, this leasefs knows format %d: mount with the leasefs "
                                   "that made it, or a newer one, or choose another schema with ?schema=NAME",
                                   target->schema, version, POSTGRESQL_FORMAT));
        } else {
            connect_extend_schema(target, c, may_make);
        }
    } else if (strcmp(state, "3F000") == 0 && may_make) {
        connect_make_schema(target, c, false);
        if (c->conn) {
            connect_check_schema(target, c, false);
        }
    } else if (strcmp(state, "42501") == 0) {
        connect_fail(c, connect_right_to_execute(target, c->conn));
    } else if (strcmp(state, "3F000") == 0) {
        connect_fail(c,
                     g_strdup_printf("the database %s has no schema %s any more: unmount, and mount again to make it",
                                     PQdb(c->conn), target->schema));
    } else if (strcmp(state, "42883") == 0) {
        connect_fail(
            c, g_strdup_printf("the schema %s of the database %s is not of leasefs: choose another with ?schema=NAME",
                               target->schema, PQdb(c->conn)));
    } else {
        connect_fail(c, pq_error_line(PQresultErrorMessage(rows)));
    }
    PQclear(rows);
    g_free(text);
}

static void connect_use_shedlock(const struct pq_target *target, struct pq_connection *c)
{
    char *text = g_strdup_printf("SELECT %s.use_shedlock($1)", target->schema);
    PGresult *rows = PQexecParams(c->conn, text, 1, NULL, (const char *const[]){target->shedlock}, NULL, NULL, 0);
    if (strcmp(connect_state(rows), "42501") == 0) {
        connect_fail(c, g_strdup_printf("shedlock=%s: the schema %s does not use this table yet: run as the schema's "
                                        "owner: SELECT %s.use_shedlock('%s')",
                                        target->shedlock, target->schema, target->schema, target->shedlock));
    } else if (PQresultStatus(rows) != PGRES_TUPLES_OK) {
        char *why = pq_error_line(PQresultErrorField(rows, PG_DIAG_MESSAGE_PRIMARY));
        connect_fail(c, g_strdup_printf("shedlock=%s: %s", target->shedlock, why));
        g_free(why);
    }
    PQclear(rows);
    g_free(text);
}

/* --- the session --- */

/* Notifications need one session, which LISTENs: refuses a pooler that changes it. */
static void connect_check_session(struct pq_connection *c)
{
    PGresult *rows = connect_query(c, "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery()");
    if (rows && atoi(PQgetvalue(rows, 0, 0)) != PQbackendPID(c->conn)) {
        connect_fail(c, g_strdup(CONNECT_POOLER));
    } else if (rows && *PQgetvalue(rows, 0, 1) == 't') {
        connect_fail(c, g_strdup("the server is a standby, which takes no locks: give its primary, or all hosts: "
                                 "postgresql://HOST,HOST/DB"));
    }
    PQclear(rows);
}

static void connect_warn(struct pq_connection *c)
{
    PGresult *rows =
        connect_query(c, "SELECT pg_catalog.current_setting('synchronous_commit'), "
                         "pg_catalog.current_setting('fsync'), pg_catalog.current_setting('full_page_writes')");
    if (!rows) {
        return;
    }
    if (strcmp(PQgetvalue(rows, 0, 0), "off") == 0) {
        g_ptr_array_add(c->warnings,
                        g_strdup("synchronous_commit is off: a crash of the server loses the latest locks, "
                                 "so it grants them again: set it to on for this role"));
    }
    if (strcmp(PQgetvalue(rows, 0, 1), "off") == 0) {
        g_ptr_array_add(c->warnings,
                        g_strdup("fsync is off: a crash of the server's host may lose all locks: set it to on"));
    }
    if (strcmp(PQgetvalue(rows, 0, 2), "off") == 0) {
        g_ptr_array_add(
            c->warnings,
            g_strdup("full_page_writes is off: a crash of the server's host may damage locks: set it to on"));
    }
    PQclear(rows);
}

static void connect_set_up(struct pq_connection *c, const char *mount)
{
    char *text = g_strdup_printf("SET search_path = pg_catalog, pg_temp; SET client_min_messages = warning; "
                                 "SET bytea_output = hex; SET jit = off; LISTEN leasefs_epoch; LISTEN leasefs_%s",
                                 mount);
    PQclear(connect_query(c, text));
    g_free(text);
}

static void connect_ignore_notice(void *arg, const PGresult *notice)
{
    (void)arg, (void)notice;
}

static char *connect_address(const PGconn *conn)
{
    return g_strdup_printf("postgresql://%s:%s/%s", PQhost(conn), PQport(conn), PQdb(conn));
}

void pq_connect(const struct pq_target *target, const char *mount, bool first, struct pq_connection *ret)
{
    *ret = (struct pq_connection){.warnings = g_ptr_array_new_with_free_func(g_free)};
    ret->conn =
        PQconnectdbParams((const char *const *)target->keywords->pdata, (const char *const *)target->values->pdata, 0);
    if (PQstatus(ret->conn) != CONNECTION_OK) {
        char *why = pq_error_line(ret->conn ? PQerrorMessage(ret->conn) : "out of memory");
        bool password = ret->conn && PQconnectionNeedsPassword(ret->conn);
        if (strstr(why, "unsupported startup parameter")) { /* PgBouncer's error about `options` */
            g_free(why);
            why = g_strdup(CONNECT_POOLER);
        }
        connect_fail(
            ret, password
                     ? g_strdup("the server requires a password: put USER:PASSWORD in a file with mode 0600 and mount "
                                "with -o credentials=FILE, or put it into ~/.pgpass")
                     : g_steal_pointer(&why));
        g_free(why);
        return;
    }
    PQsetNoticeReceiver(ret->conn, connect_ignore_notice, NULL);
    if (PQserverVersion(ret->conn) < POSTGRESQL_VERSION_MIN) {
        connect_fail(ret, g_strdup_printf("the server is PostgreSQL %d, and leasefs needs 14 or newer: upgrade it",
                                          PQserverVersion(ret->conn) / 10000));
        return;
    }
    connect_check_session(ret);
    if (ret->conn) {
        connect_set_up(ret, mount);
    }
    if (ret->conn) {
        connect_check_schema(target, ret, first);
    }
    if (ret->conn && target->shedlock) {
        connect_use_shedlock(target, ret);
    }
    if (ret->conn) {
        connect_warn(ret);
    }
    if (ret->conn) {
        ret->address = connect_address(ret->conn);
    }
}
