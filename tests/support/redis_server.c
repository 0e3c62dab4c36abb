/* redis_server: a Redis server of a check's own. */
#include "tests/support/redis_server.h"

#include <check.h>
#include <glib.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/child.h"
#include "tests/support/scratch.h"

#define TIME_LIMIT 20 /* s */

struct redis_server {
    char *directory;
    char *socket;
    char *password;
    char **arguments;
    uint16_t port;
    pid_t pid; /* 0: it does not run */
};

static const char *program(void)
{
    const char *named = g_getenv("REDIS_SERVER");

    return named ? named : "redis-server";
}

bool redis_server_exists(void)
{
    char *path = g_find_program_in_path(program());

    g_free(path);
    return path != NULL;
}

struct redis_server *redis_server_new(const char *const *arguments)
{
    struct redis_server *server = g_new0(struct redis_server, 1);

    server->directory = scratch_new();
    server->socket = g_build_filename(server->directory, "socket", NULL);
    server->arguments = g_strdupv((char **)arguments);
    server->port = (uint16_t)g_random_int_range(20000, 32000); /* below those that the kernel gives to clients */
    return server;
}

static void run(const struct redis_server *server, const char *port)
{
    GPtrArray *arguments = g_ptr_array_new();
    const char *const first[] = {program(),       "--bind",       "127.0.0.1", "--port",          port,
                                 "--unixsocket",  server->socket, "--dir",     server->directory, "--logfile",
                                 "log",           "--daemonize",  "no",        "--save",          "",
                                 "--appendfsync", "always"};

    for (size_t i = 0; i < G_N_ELEMENTS(first); i++)
        g_ptr_array_add(arguments, (char *)first[i]);
    for (char **more = server->arguments; more && *more; more++)
        g_ptr_array_add(arguments, *more);
    g_ptr_array_add(arguments, NULL);
    execvp(program(), (char **)arguments->pdata);
    _exit(127);
}

static void launch(struct redis_server *server)
{
    char port[8];

    g_snprintf(port, sizeof(port), "%u", server->port);
    server->pid = child_fork();
    if (server->pid < 0)
        ck_abort_msg("cannot fork");
    if (server->pid == 0)
        run(server, port);
}

/* Connected and, if need be, authenticated; NULL if it does not answer. */
static redisContext *converse(const struct redis_server *server)
{
    redisContext *context = redisConnectUnix(server->socket);
    redisReply *reply = NULL;
    bool well;

    if (!context->err && server->password)
        reply = redisCommand(context, "AUTH %s", server->password);
    else if (!context->err)
        reply = redisCommand(context, "PING");
    well = reply && (reply->type != REDIS_REPLY_ERROR || g_str_has_prefix(reply->str, "NOAUTH"));
    if (reply)
        freeReplyObject(reply);
    if (well)
        return context;
    redisFree(context);
    return NULL;
}

/* False: it has ended instead. */
static bool await(struct redis_server *server)
{
    redisContext *context;

    for (int i = 0; i < TIME_LIMIT * 100; i++) {
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
            return false;
        }
        context = converse(server);
        if (context) {
            redisFree(context);
            return true;
        }
        g_usleep(10000);
    }
    ck_abort_msg("redis-server does not answer");
    return false;
}

void redis_server_again(struct redis_server *server)
{
    launch(server);
    ck_assert_msg(await(server), "redis-server ended; see %s/log", server->directory);
}

struct redis_server *redis_server_start(const char *const *arguments)
{
    for (int i = 0; i < 20; i++) {
        struct redis_server *server = redis_server_new(arguments);

        launch(server);
        if (await(server))
            return server;
        redis_server_free(server); /* the port was taken */
    }
    ck_abort_msg("redis-server does not start");
    return NULL;
}

void redis_server_stop(struct redis_server *server)
{
    kill(server->pid, SIGTERM);
    kill(server->pid, SIGCONT);
    ck_assert_int_eq(waitpid(server->pid, NULL, 0), server->pid);
    server->pid = 0;
}

/* Whether each of its threads is. */
static bool is_stopped(const struct redis_server *server)
{
    char *tasks = g_strdup_printf("/proc/%d/task", (int)server->pid);
    GDir *directory = g_dir_open(tasks, 0, NULL);
    bool stopped = true;

    ck_assert_ptr_nonnull(directory);
    for (const char *task; stopped && (task = g_dir_read_name(directory));) {
        char *file = g_build_filename(tasks, task, "stat", NULL), *text = NULL;
        stopped = g_file_get_contents(file, &text, NULL, NULL) && strstr(text, ") T ");
        g_free(file);
        g_free(text);
    }
    g_dir_close(directory);
    g_free(tasks);
    return stopped;
}

void redis_server_pause(struct redis_server *server)
{
    kill(server->pid, SIGSTOP);
    while (!is_stopped(server))
        g_usleep(100);
}

void redis_server_resume(struct redis_server *server)
{
    kill(server->pid, SIGCONT);
}

void redis_server_free(struct redis_server *server)
{
    if (server->pid) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
    }
    scratch_free(server->directory);
    g_free(server->socket);
    g_free(server->password);
    g_strfreev(server->arguments);
    g_free(server);
}

const char *redis_server_socket(const struct redis_server *server)
{
    return server->socket;
}

uint16_t redis_server_port(const struct redis_server *server)
{
    return server->port;
}

void redis_server_use_password(struct redis_server *server, const char *password)
{
    g_free(server->password);
    server->password = g_strdup(password);
}

long long redis_server_do(struct redis_server *server, const char *format, ...)
{
    redisContext *context = converse(server);
    redisReply *reply;
    long long integer;
    va_list arguments;

    ck_assert_ptr_nonnull(context);
    va_start(arguments, format);
    reply = redisvCommand(context, format, arguments);
    va_end(arguments);
    ck_assert_msg(reply && reply->type != REDIS_REPLY_ERROR, "%s: %s", format, reply ? reply->str : context->errstr);
    integer = reply->integer;
    freeReplyObject(reply);
    redisFree(context);
    return integer;
}
