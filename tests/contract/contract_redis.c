/* contract_redis: the contract, kept by a Redis server. */
#include <stdio.h>

#include "check_main.h"
#include "contract.h"
#include "redis.h"
#include "redis_server.h"

static struct redis_server *server;

static struct backend *open_redis(void)
{
    char error[256] = "";
    struct redis_options options = {.prefix = "t:", .seed = 1};
    struct backend *b = NULL;

    server = redis_server_start(NULL);
    options.conn.uri.path = (char *)redis_server_socket(server);
    ck_assert_msg(redis_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    return b;
}

static void end_server(void)
{
    redis_server_free(server);
}

int main(void)
{
    static const struct contract redis = {.name = "redis", .open = open_redis, .clean = end_server};

    return check_main(contract_suite(&redis));
}
