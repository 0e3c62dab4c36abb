/* postgresql_cycle: what it takes to lock and unlock with nothing but a row of PostgreSQL.
 *
 *     postgresql_cycle CONNINFO COUNT [SCHEMA]
 *         COUNT times INSERT of a row with a unique name, and DELETE of it, each committed, by libpq with prepared
 *         statements.  With SCHEMA the functions of leasefs that acquire and release a lock, in place of these. Prints,
 * in nanoseconds: the median of a cycle, its 90 and 99 percent, the medians of the two calls, and the server's
 *         processor time for a cycle (0: the role may not read it).
 */
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/samples.h"
#include "tests/stress/stress.h"

#define WARM_UP 200

static PGresult *postgresql_cycle_checked(PGconn *conn, PGresult *rows)
{
    ExecStatusType status = PQresultStatus(rows);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        stress_die("the PostgreSQL server: %s", PQerrorMessage(conn));
    }
    return rows;
}

static void postgresql_cycle_prepare(PGconn *conn, const char *schema)
{
    char acquire[512], release[256];
    if (schema) {
        PGresult *rows = PQexec(conn, "SET search_path = pg_catalog, pg_temp");
        PQclear(postgresql_cycle_checked(conn, rows));
        snprintf(
            acquire, sizeof acquire,
            "SELECT * FROM %s.acquire('cycle', '', 'cycle', false, 'id', 'm', 'i', 1, 0, 30000, 6000, true, false, "
            "NULL, NULL, NULL, NULL, NULL, 'meta', '', (SELECT stamp FROM %s.life))",
            schema, schema);
        snprintf(release, sizeof release,
                 "SELECT %s.release('cycle', 'id', 'm', NULL, NULL, (SELECT stamp FROM %s.life))", schema, schema);
    } else {
        PGresult *rows =
            PQexec(conn, "CREATE TABLE IF NOT EXISTS public.leasefs_bench (name text PRIMARY KEY, holder text)");
        PQclear(postgresql_cycle_checked(conn, rows));
        snprintf(acquire, sizeof acquire, "INSERT INTO public.leasefs_bench VALUES ('cycle', 'holder')");
        snprintf(release, sizeof release,
                 "DELETE FROM public.leasefs_bench WHERE name = 'cycle' AND holder = 'holder'");
    }
    PQclear(postgresql_cycle_checked(conn, PQprepare(conn, "acquire", acquire, 0, NULL)));
    PQclear(postgresql_cycle_checked(conn, PQprepare(conn, "release", release, 0, NULL)));
}

static void postgresql_cycle_call(PGconn *conn, const char *statement)
{
    PQclear(postgresql_cycle_checked(conn, PQexecPrepared(conn, statement, 0, NULL, NULL, NULL, 0)));
}

/* ns that the session has been on a processor; 0: not known. */
static int64_t postgresql_cycle_server_time(PGconn *conn)
{
    PGresult *rows = PQexec(conn, "SELECT pg_catalog.pg_read_file('/proc/self/schedstat')");
    int64_t ns = PQresultStatus(rows) == PGRES_TUPLES_OK ? atoll(PQgetvalue(rows, 0, 0)) : 0;
    PQclear(rows);
    return ns;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4 || atol(argv[2]) < 1) {
        stress_die("usage: postgresql_cycle CONNINFO COUNT [SCHEMA]");
    }
    PGconn *conn = PQconnectdb(argv[1]);
    if (PQstatus(conn) != CONNECTION_OK) {
        stress_die("%s: %s", argv[1], PQerrorMessage(conn));
    }
    postgresql_cycle_prepare(conn, argc > 3 ? argv[3] : NULL);
    size_t count = (size_t)atol(argv[2]);
    struct samples cycles = samples_new(count), acquires = samples_new(count), releases = samples_new(count);
    int64_t before = 0;
    for (size_t i = 0; i < count + WARM_UP; i++) {
        before = i == WARM_UP ? postgresql_cycle_server_time(conn) : before;
        int64_t began = stress_now();
        postgresql_cycle_call(conn, "acquire");
        int64_t acquired = stress_now();
        postgresql_cycle_call(conn, "release");
        int64_t ended = stress_now();
        if (i >= WARM_UP) {
            samples_add(&cycles, ended - began);
            samples_add(&acquires, acquired - began);
            samples_add(&releases, ended - acquired);
        }
    }
    printf("%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", samples_quantile(&cycles, 500),
           samples_quantile(&cycles, 900), samples_quantile(&cycles, 990), samples_quantile(&acquires, 500),
           samples_quantile(&releases, 500), (postgresql_cycle_server_time(conn) - before) / (int64_t)count);
    samples_free(&cycles);
    samples_free(&acquires);
    samples_free(&releases);
    PQfinish(conn);
    return 0;
}
