/* redis_cycle: the time to acquire and release a lock with Redis alone, as its clients do it.
 *
 *     redis_cycle SERVER KEY COUNT
 *         COUNT times SET KEY token NX PX, and compare-and-delete by EVALSHA, one
 *         after the other.  SERVER is the path of a socket or a port of 127.0.0.1.
 *         Prints, in nanoseconds: the cycle's median, 90 and 99 percent, and the
 *         medians of the two calls.
 */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/samples.h"
#include "tests/stress/stress.h"

#define WARM_UP 200
#define TTL "30000"
#define TOKEN "0123456789abcdef0123456789abcdef"
#define COMPARE_AND_DELETE                                                                                             \
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"

static redisReply *redis_cycle_checked(redisContext *context, redisReply *reply)
{
    if (!reply || reply->type == REDIS_REPLY_ERROR) {
        stress_die("the Redis server: %s", reply ? reply->str : context->errstr);
    }
    return reply;
}

static redisContext *redis_cycle_connect(const char *server)
{
    redisContext *context = strchr(server, '/') ? redisConnectUnix(server) : redisConnect("127.0.0.1", atoi(server));
    if (!context || context->err) {
        stress_die("%s: %s", server, context ? context->errstr : "no memory");
    }
    return context;
}

static void redis_cycle_acquire(redisContext *context, const char *key)
{
    const char *arguments[] = {"SET", key, TOKEN, "NX", "PX", TTL};
    redisReply *reply = redis_cycle_checked(context, redisCommandArgv(context, 6, arguments, NULL));
    if (reply->type != REDIS_REPLY_STATUS) {
        stress_die("%s is held by another", key);
    }
    freeReplyObject(reply);
}

static void redis_cycle_release(redisContext *context, const char *key, const char *script)
{
    const char *arguments[] = {"EVALSHA", script, "1", key, TOKEN};
    redisReply *reply = redis_cycle_checked(context, redisCommandArgv(context, 5, arguments, NULL));
    if (reply->integer != 1) {
        stress_die("%s was lost", key);
    }
    freeReplyObject(reply);
}

int main(int argc, char **argv)
{
    if (argc != 4 || atol(argv[3]) < 1) {
        stress_die("usage: redis_cycle SERVER KEY COUNT");
    }
    redisContext *context = redis_cycle_connect(argv[1]);
    redisReply *script = redis_cycle_checked(context, redisCommand(context, "SCRIPT LOAD %s", COMPARE_AND_DELETE));
    size_t count = (size_t)atol(argv[3]);
    struct samples cycles = samples_new(count), acquires = samples_new(count), releases = samples_new(count);
    for (size_t i = 0; i < count + WARM_UP; i++) {
        int64_t began = stress_now();
        redis_cycle_acquire(context, argv[2]);
        int64_t acquired = stress_now();
        redis_cycle_release(context, argv[2], script->str);
        int64_t ended = stress_now();
        if (i >= WARM_UP) {
            samples_add(&cycles, ended - began);
            samples_add(&acquires, acquired - began);
            samples_add(&releases, ended - acquired);
        }
    }
    printf("%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", samples_quantile(&cycles, 500),
           samples_quantile(&cycles, 900), samples_quantile(&cycles, 990), samples_quantile(&acquires, 500),
           samples_quantile(&releases, 500));
    samples_free(&cycles);
    samples_free(&acquires);
    samples_free(&releases);
    freeReplyObject(script);
    redisFree(context);
    return 0;
}
