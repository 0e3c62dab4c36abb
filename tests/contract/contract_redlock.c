/* contract_redlock: the contract, kept by a majority of independent Redis servers; what two mounts of them, and other
 * clients, are to each other; and what servers that fail are to a mount. */
#include <stdio.h>
#include <unistd.h>

#include "backend/redlock/redlock.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/redis_server.h"

#define TERM 1 /* ms: for so long servers are held off, and for a second, which is over when the first check begins */

static struct redis_server *servers[3]; /* each check has a prefix of its own in them */

static struct backend *open_mount(uint32_t seed)
{
    char error[256] = "", *prefix = g_strdup_printf("t%d:", getpid());
    char *text = g_strdup_printf("redlock://127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", redis_server_port(servers[0]),
                                 redis_server_port(servers[1]), redis_server_port(servers[2]));
    struct redlock_uri uri;
    struct backend *b = NULL;

    ck_assert_msg(redlock_uri_parse(&uri, text, error, sizeof(error)) == 0, "%s", error);
    const struct redlock_options options = {
        .uri = &uri, .prefix = prefix, .ttl = CONTRACT_LONG, .grace = TERM, .seed = seed};
    ck_assert_msg(redlock_new(&options, &b, error, sizeof(error)) == 0, "%s", error);
    redlock_uri_clear(&uri);
    g_free(prefix);
    g_free(text);
    return b;
}

/* Until it is not held off any more. */
static void await_term(struct redis_server *server)
{
    static const char uptime[] = "return tonumber(redis.call('INFO', 'server'):match('uptime_in_seconds:(%d+)'))";

    while (redis_server_do(server, "EVAL %s 0", uptime) < 2)
        g_usleep(10000);
}

static struct backend *open_redlock(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        await_term(servers[i]);
    return open_mount(1);
}

int main(void)
{
    static const struct contract redlock = {.name = "redlock", .open = open_redlock, .pace = 10};

    if (!redis_server_exists()) {
        puts("1..0 # skip there is no redis-server");
        return 0;
    }
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        servers[i] = redis_server_start(NULL);
    Suite *suite = contract_suite(&redlock);
    int result = check_main(suite);
    for (size_t i = 0; i < G_N_ELEMENTS(servers); i++)
        redis_server_free(servers[i]);
    return result;
}
