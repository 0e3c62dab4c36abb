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
             postgresql_server_socket(server), postgresql_server_port(server), contract_world());
    return open_uri(uri, &(struct postgresql_options){.seed = seed, .timeout = 20000, .identity = identity});
}

static struct backend *open_relayed_as(const char *identity)
{
    char uri[256];
    backend_free(open_mount(1, NULL)); /* which makes the schema */
    snprintf(uri, sizeof uri, "postgresql://postgres@127.0.0.1:%u/postgres?schema=t%d",
             relay_port(relay_to(contract_loop, postgresql_server_port(server))), contract_world());
    return open_uri(uri, &(struct postgresql_options){
                             .seed = 1, .timeout = RELAYED_TIMEOUT, .background = true, .identity = identity});
}

static struct backend *open_relayed(void)
{
    return open_relayed_as(NULL);
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

/* `empty`: as a backup of an earlier time, or a standby that lacks all of it. */
static void restart(bool empty)
{
    if (empty) {
        char *statement =
            g_strdup_printf("TRUNCATE t%1$d.ticket, t%1$d.mount, t%1$d.term, t%1$d.restored", contract_world());
        g_free(postgresql_server_do(server, statement));
        g_free(statement);
    }
    postgresql_server_restart(server);
}

static void on_acquired(void *arg, enum backend_result result, struct backend_ticket *ticket,
                        const struct backend_info *holder)
{
    (void)result, (void)ticket, (void)holder;
    *(bool *)arg = true;
}

/* The server rolls the acquire back; before it is repeated its caller gives up, and the release is sent at once. */
START_TEST(acquire_that_was_rolled_back_and_cancelled_is_not_sent_again)
{
    struct contract_log log = {0};
    struct backend_claim claim = contract_claim(BACKEND_LEASE, &log);
    bool acquired = false;
    char *statements = g_strdup_printf(
        "CREATE SEQUENCE t%1$d.attempts; CREATE FUNCTION t%1$d.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF nextval('t%1$d.attempts') = 1 THEN RAISE EXCEPTION 'refused' USING ERRCODE = '40001'; END IF; "
        "RETURN NEW; END $$; CREATE TRIGGER refuse BEFORE INSERT ON t%1$d.ticket FOR EACH ROW "
        "WHEN (NEW.path = 'a'::bytea) EXECUTE FUNCTION t%1$d.refuse()",
        contract_world());

    ck_assert_int_eq(contract_stat("b").type, BACKEND_NOTHING);
    g_free(postgresql_server_do(server, statements));
    g_free(statements);
    struct backend_ticket *ticket = backend_acquire(contract_backend, "a", &claim, on_acquired, &acquired);
    for (int i = 0; i < 10; i++) {
        contract_poll();
        g_usleep(1000);
    }
    if (!acquired) { /* else this machine was too slow */
        backend_cancel(contract_backend, ticket);
        for (int i = 0; i < 100; i++) {
            contract_stat("b"); /* so that the link sends what waits */
            g_usleep(1000);
        }
        ck_assert(!contract_is_busy("a"));
    }
}
END_TEST

static bool on_found(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta, GBytes *content)
{
    (void)name, (void)ticket, (void)meta, (void)content;
    ++*(unsigned *)arg;
    return false;
}

/* Its last calls, the releases, find the connection gone; the loop goes on without it. */
START_TEST(mount_that_ends_without_its_server_leaves_nothing_in_the_loop)
{
    struct contract_log log[2] = {{0}, {0}};
    struct backend *first = contract_backend;

    contract_backend = open_relayed();
    contract_start(contract_backend);
    CONTRACT_UNTIL(contract_stat("c").type == BACKEND_NOTHING);
    struct backend_ticket *a = contract_get("a", BACKEND_LEASE, &log[0]),
                          *b = contract_get("b", BACKEND_LEASE, &log[1]);
    relay_close();
    backend_release(contract_backend, a, NULL, NULL);
    backend_release(contract_backend, b, NULL, NULL);
    backend_free(contract_backend);
    contract_backend = first;
    contract_pass(CONTRACT_TERM);
    relay_end();
}
END_TEST

START_TEST(recovery_whose_answer_is_lost_finds_all_locks)
{
    struct contract_log log[2] = {{0}, {0}};
    unsigned found = 0;
    struct backend *first = contract_backend;

    contract_backend = open_mount(2, "host:/mnt/locks");
    contract_start(contract_backend);
    contract_get("a", BACKEND_FLOCK, &log[0]);
    contract_get("b", BACKEND_FLOCK, &log[1]);
    backend_free(contract_backend);
    contract_backend = open_relayed_as("host:/mnt/locks");
    contract_start(contract_backend);
    CONTRACT_UNTIL(contract_stat("c").type == BACKEND_NOTHING);
    relay_cut();
    backend_recover(contract_backend, on_found, &found);
    ck_assert_uint_eq(found, 2);
    backend_free(contract_backend);
    relay_end();
    contract_backend = first;
}
END_TEST

static TCase *postgresql_case(void)
{
    TCase *tcase = tcase_create("postgresql");
    tcase_set_timeout(tcase, 30);
    tcase_add_checked_fixture(tcase, contract_setup, contract_teardown);
    tcase_add_loop_test(tcase, acquire_that_was_rolled_back_and_cancelled_is_not_sent_again, 0, 5);
    tcase_add_test(tcase, mount_that_ends_without_its_server_leaves_nothing_in_the_loop);
    tcase_add_test(tcase, recovery_whose_answer_is_lost_finds_all_locks);
    return tcase;
}

int main(void)
{
    static const struct contract postgresql = {.name = "postgresql",
                                               .open = open_postgresql,
                                               .open_other = open_other,
                                               .open_again = open_again,
                                               .refuses_daemon_before = true,
                                               .open_relayed = open_relayed,
                                               .restart = restart,
                                               .timeout = RELAYED_TIMEOUT,
                                               .pace = 10};
    if (!postgresql_server_exists()) {
        puts("1..0 # skip there is no PostgreSQL server");
        return 0;
    }
    server = postgresql_server_start();
    Suite *suite = contract_suite(&postgresql);
    suite_add_tcase(suite, postgresql_case());
    int result = check_main(suite);
    postgresql_server_free(server);
    return result;
}
