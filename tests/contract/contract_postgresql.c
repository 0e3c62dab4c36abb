/* contract_postgresql: the contract for a PostgreSQL server; and two mounts of one database, beside other clients. */
#include <stdio.h>
#include <unistd.h>

#include "backend/postgresql/postgresql.h"
#include "tests/contract/contract.h"
#include "tests/support/check_main.h"
#include "tests/support/postgresql_server.h"
#include "tests/support/relay.h"

static struct postgresql_server *server; /* each check has a schema of its own in it */

enum { RELAYED_TIMEOUT = 4000 };

static struct backend *open_uri(const char *uri, const struct postgresql_options *given)
{
    char error[1024] = "";
    struct postgresql_options options = *given;
    struct backend *b = NULL;
    options.uri = uri;
    ck_assert_msg(postgresql_new(&options, &b, error, sizeof error) == 0, "%s", error);
    return b;
}

static struct backend *open_mount(uint32_t seed, const char *identity)
{
    char uri[256];
    snprintf(uri, sizeof uri, "postgresql:///postgres?host=%s&port=%u&user=postgres&schema=t%d",
             postgresql_server_socket(server), postgresql_server_port(server), getpid());
    return open_uri(uri, &(struct postgresql_options){.seed = seed, .timeout = 20000, .identity = identity});
}

static struct backend *open_relayed(void)
{
    char uri[256];
    backend_free(open_mount(1, NULL)); /* which makes the schema */
    snprintf(uri, sizeof uri, "postgresql://postgres@127.0.0.1:%u/postgres?schema=t%d",
             relay_to(contract_loop, postgresql_server_port(server)), getpid());
    return open_uri(uri, &(struct postgresql_options){.seed = 1, .timeout = RELAYED_TIMEOUT, .background = true});
}

static struct backend *open_postgresql(void)
{
    return open_mount(1, NULL);
}

static struct backend *open_other(void)
{
    return open_mount(2, NULL);
}

static struct backend *open_again(void)
{
    static uint32_t seed = 3;
    return open_mount(seed++, "host:/mnt/locks");
}

int main(void)
{
    static const struct contract postgresql = {.name = "postgresql",
                                               .open = open_postgresql,
                                               .open_other = open_other,
                                               .open_again = open_again,
                                               .refuses_daemon_before = true,
                                               .open_relayed = open_relayed,
                                               .timeout = RELAYED_TIMEOUT,
                                               .pace = 10};
    if (!postgresql_server_exists()) {
        puts("1..0 # skip there is no PostgreSQL server");
        return 0;
    }
    server = postgresql_server_start();
    int result = check_main(contract_suite(&postgresql));
    postgresql_server_free(server);
    return result;
}
