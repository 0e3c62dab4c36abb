/* zookeeper_server: a ZooKeeper server of a check's own. */
#include "tests/support/zookeeper_server.h"

#include <arpa/inet.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/child.h"

#define JAR "/usr/share/java/zookeeper.jar"
#define TIME_LIMIT 60 /* s */

struct zookeeper_server {
    char *directory;
    uint16_t port;
    pid_t pid;
};

/* It runs beside all checks of a program, not in one. */
static void on_time_limit(const char *why)
{
    fprintf(stderr, "the ZooKeeper server: %s\n", why);
    exit(EXIT_FAILURE);
}

bool zookeeper_server_exists(void)
{
    char *java = g_find_program_in_path("java");
    bool exists = java && access(JAR, R_OK) == 0;

    g_free(java);
    return exists;
}

static void write_configuration(const struct zookeeper_server *server, const char *file)
{
    char *text = g_strdup_printf("tickTime=500\ndataDir=%s\nclientPort=%u\nclientPortAddress=127.0.0.1\n"
                                 "maxClientCnxns=0\nmaxSessionTimeout=200000\nadmin.enableServer=false\n"
                                 "4lw.commands.whitelist=isro,wchs\n",
                                 server->directory, server->port);

    if (!g_file_set_contents(file, text, -1, NULL))
        on_time_limit("cannot write its configuration");
    g_free(text);
}

static void launch(struct zookeeper_server *server)
{
    char *file = g_build_filename(server->directory, "zoo.cfg", NULL);

    write_configuration(server, file);
    server->pid = child_fork();
    if (server->pid < 0)
        on_time_limit("cannot fork");
    if (server->pid == 0) {
        execlp("java", "java", "-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no",
               "-cp", JAR, "org.apache.zookeeper.server.ZooKeeperServerMain", file, NULL);
        _exit(127);
    }
    g_free(file);
}

/* Of one of its words of four letters, all that it says, or as much as there is room for; "": it does not answer. */
static void ask(const struct zookeeper_server *server, const char *word, char *answer, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(server->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 1}, sizeof(struct timeval));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool requested = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && write(fd, word, 4) == 4;
    ssize_t length = requested ? recv(fd, answer, size - 1, MSG_WAITALL) : 0;
    answer[MAX(length, 0)] = '\0';
    close(fd);
}

static bool answers(const struct zookeeper_server *server)
{
    char answer[8];

    ask(server, "isro", answer, sizeof(answer));
    return strcmp(answer, "rw") == 0;
}

unsigned zookeeper_server_watches(const struct zookeeper_server *server)
{
    char answer[256];

    ask(server, "wchs", answer, sizeof(answer));
    const char *total = strstr(answer, "Total watches:");
    if (!total)
        on_time_limit("it does not tell its watches");
    return (unsigned)strtoul(total + strlen("Total watches:"), NULL, 10);
}

/* False: it has ended instead. */
static bool await(struct zookeeper_server *server)
{
    for (int i = 0; i < TIME_LIMIT * 20; i++) {
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
            return false;
        }
        if (answers(server))
            return true;
        g_usleep(50000);
    }
    on_time_limit("it does not answer");
    return false;
}

struct zookeeper_server *zookeeper_server_start(void)
{
    for (int i = 0; i < 20; i++) {
        struct zookeeper_server *server = g_new0(struct zookeeper_server, 1);

        server->directory = g_dir_make_tmp("leasefs-zookeeper-XXXXXX", NULL);
        if (!server->directory)
            on_time_limit("cannot make its directory");
        server->port = (uint16_t)g_random_int_range(20000, 32000); /* below those that the kernel gives to clients */
        launch(server);
        if (await(server))
            return server;
        zookeeper_server_free(server); /* the port was taken */
    }
    on_time_limit("it does not start");
    return NULL;
}

uint16_t zookeeper_server_port(const struct zookeeper_server *server)
{
    return server->port;
}

static void end(struct zookeeper_server *server)
{
    if (server->pid) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}

static void remove_data(const struct zookeeper_server *server)
{
    const char *const remove[] = {"rm", "-rf", server->directory, NULL};
    g_spawn_sync(NULL, (char **)remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL);
}

void zookeeper_server_restart(struct zookeeper_server *server, bool empty)
{
    end(server);
    if (empty) {
        remove_data(server);
        g_mkdir(server->directory, 0700);
    }
    launch(server);
    if (!await(server))
        on_time_limit("it does not start again");
}

void zookeeper_server_free(struct zookeeper_server *server)
{
    end(server);
    remove_data(server);
    g_free(server->directory);
    g_free(server);
}
