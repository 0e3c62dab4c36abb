/* postgresql_server: a PostgreSQL server of a check's own. */
#include "tests/support/postgresql_server.h"

#include <check.h>
#include <glib.h>
#include <grp.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/child.h"

#define TIME_LIMIT 60 /* s */
#define NOBODY 65534

struct postgresql_server {
    char *directory, *data;
    uint16_t port;
    pid_t pid;
};

/* It runs beside all checks of a program, not in one. */
static void on_time_limit(const char *why)
{
    fprintf(stderr, "the PostgreSQL server: %s\n", why);
    exit(EXIT_FAILURE);
}

/* Where Debian has them, the newest first; a new string, or NULL. */
static char *program(const char *name)
{
    for (int version = 30; version >= 14; version--) {
        char *path = g_strdup_printf("/usr/lib/postgresql/%d/bin/%s", version, name);
        if (access(path, X_OK) == 0) {
            return path;
        }
        g_free(path);
    }
    return g_find_program_in_path(name);
}

bool postgresql_server_exists(void)
{
    char *postgres = program("postgres");
    bool exists = postgres;
    g_free(postgres);
    return exists;
}

static void drop_root(void)
{
    if (geteuid() == 0) {
        bool done = setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0;
        if (!done) {
            _exit(126);
        }
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another user id has undone */
}

static void make_cluster(const struct postgresql_server *server)
{
    char *initdb = program("initdb");
    pid_t pid = child_fork();
    if (pid == 0) {
        drop_root();
        execl(initdb, initdb, "-D", server->data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C",
              "--no-sync", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        on_time_limit("initdb failed");
    }
    g_free(initdb);
}

static void launch(struct postgresql_server *server)
{
    char *postgres = program("postgres"), *port = g_strdup_printf("port=%u", server->port),
         *sockets = g_strdup_printf("unix_socket_directories=%s", server->directory);
    server->pid = child_fork();
    if (server->pid == 0) {
        drop_root();
        execl(postgres, postgres, "-D", server->data, "-c", port, "-c", sockets, "-c", "listen_addresses=127.0.0.1",
              "-c", "fsync=off", "-c", "max_connections=60", "-c", "shared_buffers=16MB", "-c", "autovacuum_naptime=5s",
              (char *)NULL);
        _exit(127);
    }
    g_free(postgres);
    g_free(port);
    g_free(sockets);
}

static PGconn *connection(const struct postgresql_server *server)
{
    char port[8];
    g_snprintf(port, sizeof port, "%u", server->port);
    const char *const keywords[] = {"host", "port", "user", "dbname", NULL}, *const values[] = {server->directory, port,
                                                                                                "postgres", "postgres",
                                                                                                NULL};
    return PQconnectdbParams(keywords, values, 0);
}

/* False: it has ended instead. */
static bool await(struct postgresql_server *server)
{
    for (int i = 0; i < TIME_LIMIT * 20; i++) {
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
            return false;
        }
        PGconn *conn = connection(server);
        bool answers = PQstatus(conn) == CONNECTION_OK;
        PQfinish(conn);
        if (answers) {
            return true;
        }
        g_usleep(50000);
    }
    on_time_limit("it does not answer");
    return false;
}

struct postgresql_server *postgresql_server_start(void)
{
    struct postgresql_server *server = g_new0(struct postgresql_server, 1);
    server->directory = g_dir_make_tmp("leasefs-postgresql-XXXXXX", NULL);
    if (!server->directory) {
        on_time_limit("cannot make its directory");
    }
    server->data = g_build_filename(server->directory, "data", NULL);
    if (geteuid() == 0 && chown(server->directory, NOBODY, NOBODY) < 0) {
        on_time_limit("cannot give its directory away");
    }
    make_cluster(server);
    for (int i = 0; i < 20; i++) {
        server->port = (uint16_t)g_random_int_range(20000, 32000); /* below those that the kernel gives to clients */
        launch(server);
        if (await(server)) {
            return server;
        }
    }
    on_time_limit("it does not start");
    return NULL;
}

uint16_t postgresql_server_port(const struct postgresql_server *server)
{
    return server->port;
}

const char *postgresql_server_socket(const struct postgresql_server *server)
{
    return server->directory;
}

char *postgresql_server_do(const struct postgresql_server *server, const char *statements)
{
    PGconn *conn = connection(server);
    PGresult *rows = PQexec(conn, statements);
    ExecStatusType status = PQresultStatus(rows);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        on_time_limit(PQerrorMessage(conn));
    }
    int count = PQntuples(rows);
    char *value = g_strdup(count > 0 ? PQgetvalue(rows, count - 1, 0) : "");
    PQclear(rows);
    PQfinish(conn);
    return value;
}

void postgresql_server_restart(struct postgresql_server *server)
{
    char *pid =
        postgresql_server_do(server, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'");
    ck_assert_int_eq(kill((pid_t)atoi(pid), SIGKILL), 0); /* of all backends the memory may be damaged now */
    while (kill((pid_t)atoi(pid), 0) == 0) {
        g_usleep(1000);
    }
    await(server);
    g_free(pid);
}

void postgresql_server_free(struct postgresql_server *server)
{
    if (server->pid) {
        kill(server->pid, SIGQUIT); /* its children end with it */
        waitpid(server->pid, NULL, 0);
    }
    const char *const remove[] = {"rm", "-rf", server->directory, NULL};
    g_spawn_sync(NULL, (char **)remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL);
    g_free(server->directory);
    g_free(server->data);
    g_free(server);
}
