/* redis_many: many processes that take and release locks of their own at the same time.
 *
 *     redis_many mounts MS COUNT MOUNTPOINT…
 *         COUNT processes, spread over the mounts, each with
 *         open(O_CREAT|O_EXCL), close, unlink over and over.
 *     redis_many apart MS COUNT MOUNTPOINT…
 *         The same, each process in a directory of its own: the kernel makes and
 *         removes one name at a time in a directory.
 *     redis_many server MS COUNT SOCKET
 *         COUNT connections to a Redis server, each with the requests of one cycle
 *         over and over: from standard input, a line each, as MONITOR prints them.
 *         Each connection replaces the lock's name PLACE and the token by its own.
 *
 * Prints the cycles for a second.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stress/stress.h"

#define PLACE "redis-many-0000" /* what the lock is called whose requests are given */
#define TOKEN_LENGTH 32
#define REQUESTS_MAX 8
#define ARGUMENTS_MAX 64

/* --- through mounts ----------------------------------------------------------------- */

_Noreturn static void many_cycle(const char *mount, int number, bool apart, const _Atomic bool *over,
                                 _Atomic uint64_t *cycles)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/apart-%d", mount, number);
    if (apart && mkdir(path, 0777) != 0 && errno != EEXIST) {
        stress_die("%s: %s", path, strerror(errno));
    }
    snprintf(path, sizeof path, apart ? "%s/apart-%d/lock" : "%s/many-%d", mount, number);
    while (!atomic_load(over)) {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd < 0 || close(fd) != 0 || unlink(path) != 0) {
            stress_die("%s: %s", path, strerror(errno));
        }
        atomic_fetch_add(cycles, 1);
    }
    _exit(0);
}

static double many_through_mounts(int64_t ms, int count, bool apart, char **mounts, int mount_count)
{
    struct {
        _Atomic bool over;
        _Atomic uint64_t cycles;
    } *shared = stress_share(sizeof *shared);
    pid_t *children = calloc((size_t)count, sizeof *children);
    for (int i = 0; children && i < count; i++) {
        children[i] = stress_fork();
        if (children[i] == 0) {
            many_cycle(mounts[i % mount_count], i, apart, &shared->over, &shared->cycles);
        }
    }
    stress_sleep(100 * STRESS_MS);
    uint64_t before = atomic_load(&shared->cycles);
    int64_t began = stress_now();
    stress_sleep(ms * STRESS_MS);
    uint64_t cycles = atomic_load(&shared->cycles) - before;
    int64_t took = stress_now() - began;
    atomic_store(&shared->over, true);
    for (int i = 0; children && i < count; i++) {
        int status = 0;
        if (!stress_wait(children[i], 10 * STRESS_SECOND, &status) || status != 0) {
            stress_die("a process failed");
        }
    }
    free(children);
    return (double)cycles / ((double)took / STRESS_SECOND);
}

/* --- on the server ------------------------------------------------------------------- */

struct many_request {
    int count;
    char *arguments[ARGUMENTS_MAX];
    size_t lengths[ARGUMENTS_MAX];
};

struct many_requests {
    int count;
    struct many_request request[REQUESTS_MAX];
};

struct many_connection {
    redisContext *context;
    struct many_requests requests;
    int at;
};

static char many_escaped(const char **at)
{
    static const char letters[] = "nrtab", bytes[] = "\n\r\t\a\b";
    char c = *(*at)++;
    const char *letter = strchr(letters, c);
    if (c == 'x') {
        char digits[3] = {(*at)[0], (*at)[1], '\0'};
        *at += 2;
        return (char)strtol(digits, NULL, 16);
    }
    return letter && c ? bytes[letter - letters] : c;
}

/* The arguments of a line of MONITOR: each in quotes. */
static void many_parse(const char *line, struct many_request *request)
{
    const char *at = line;
    while ((at = strchr(at, '"')) && request->count < ARGUMENTS_MAX) {
        char *bytes = malloc(strlen(at));
        size_t length = 0;
        for (at++; *at && *at != '"';) {
            char c = *at++;
            bytes[length++] = c == '\\' ? many_escaped(&at) : c;
        }
        if (*at != '"') {
            stress_die("not a line of MONITOR: %s", line);
        }
        at++;
        request->arguments[request->count] = bytes;
        request->lengths[request->count++] = length;
    }
}

static void many_read(struct many_requests *requests)
{
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0 && requests->count < REQUESTS_MAX) {
        many_parse(line, &requests->request[requests->count++]);
    }
    free(line);
    if (requests->count == 0) {
        stress_die("no requests");
    }
}

static bool many_is_token(const char *text, size_t length)
{
    size_t i = 0;
    while (i < length && isxdigit((unsigned char)text[i])) {
        i++;
    }
    return i == length && length == TOKEN_LENGTH;
}

/* The requests of another lock and another ticket. */
static void many_make_own(const struct many_requests *requests, struct many_requests *own, int number)
{
    char digits[16];
    snprintf(digits, sizeof digits, "%04d", number % 10000);
    *own = *requests;
    for (int i = 0; i < own->count; i++) {
        struct many_request *request = &own->request[i];
        for (int j = 0; j < request->count; j++) {
            size_t length = request->lengths[j];
            char *bytes = malloc(length + 1);
            memcpy(bytes, request->arguments[j], length);
            bytes[length] = '\0';
            char *place = memmem(bytes, length, PLACE, strlen(PLACE));
            if (place) {
                memcpy(place + strlen(PLACE) - 4, digits, 4);
            } else if (many_is_token(bytes, length)) {
                memcpy(bytes, digits, 4);
            }
            request->arguments[j] = bytes;
        }
    }
}

static void many_send(struct many_connection *c)
{
    struct many_request *request = &c->requests.request[c->at];
    int done = 0;
    if (redisAppendCommandArgv(c->context, request->count, (const char **)request->arguments, request->lengths) !=
        REDIS_OK) {
        stress_die("the Redis server: %s", c->context->errstr);
    }
    while (!done) {
        if (redisBufferWrite(c->context, &done) != REDIS_OK) {
            stress_die("the Redis server: %s", c->context->errstr);
        }
    }
}

/* True when a cycle has ended. */
static bool many_receive(struct many_connection *c)
{
    void *got = NULL;
    if (redisBufferRead(c->context) != REDIS_OK || redisReaderGetReply(c->context->reader, &got) != REDIS_OK) {
        stress_die("the Redis server: %s", c->context->errstr);
    }
    if (!got) {
        return false;
    }
    redisReply *reply = got;
    bool failed = reply->type == REDIS_REPLY_ERROR || (reply->type == REDIS_REPLY_INTEGER && reply->integer != 1) ||
                  (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && reply->element[0]->str &&
                   strcmp(reply->element[0]->str, "busy") == 0);
    if (failed) {
        stress_die("request %d of a cycle fails: %s", c->at, reply->str ? reply->str : "refused");
    }
    freeReplyObject(reply);
    c->at = (c->at + 1) % c->requests.count;
    many_send(c);
    return c->at == 0;
}

static uint64_t many_turn(struct many_connection *connections, struct pollfd *polled, int count, int64_t until)
{
    uint64_t cycles = 0;
    while (stress_now() < until) {
        poll(polled, (nfds_t)count, 100);
        for (int i = 0; i < count; i++) {
            cycles += polled[i].revents && many_receive(&connections[i]);
        }
    }
    return cycles;
}

static double many_on_server(int64_t ms, int count, const char *socket)
{
    struct many_requests requests = {0};
    struct many_connection *connections = calloc((size_t)count, sizeof *connections);
    struct pollfd *polled = calloc((size_t)count, sizeof *polled);
    if (!connections || !polled) {
        stress_die("no memory");
    }
    many_read(&requests);
    for (int i = 0; i < count; i++) {
        connections[i].context = redisConnectUnix(socket);
        if (!connections[i].context || connections[i].context->err) {
            stress_die("%s: cannot connect", socket);
        }
        polled[i] = (struct pollfd){.fd = connections[i].context->fd, .events = POLLIN};
        many_make_own(&requests, &connections[i].requests, i + 1);
        many_send(&connections[i]);
    }
    many_turn(connections, polled, count, stress_now() + 100 * STRESS_MS);
    int64_t began = stress_now();
    uint64_t cycles = many_turn(connections, polled, count, began + ms * STRESS_MS);
    return (double)cycles / ((double)(stress_now() - began) / STRESS_SECOND);
}

int main(int argc, char **argv)
{
    bool apart = argc > 4 && strcmp(argv[1], "apart") == 0, mounts = argc > 4 && strcmp(argv[1], "mounts") == 0;
    if (!mounts && !apart && (argc != 5 || strcmp(argv[1], "server") != 0)) {
        stress_die("usage: redis_many mounts|apart MS COUNT MOUNTPOINT… | server MS COUNT SOCKET");
    }
    int64_t ms = atol(argv[2]);
    int count = atoi(argv[3]);
    if (ms < 1 || count < 1 || count > 9999) {
        stress_die("redis_many: MS from 1, COUNT from 1 to 9999");
    }
    double rate = mounts || apart ? many_through_mounts(ms, count, apart, argv + 4, argc - 4)
                                  : many_on_server(ms, count, argv[4]);
    printf("%.0f\n", rate);
    return 0;
}
