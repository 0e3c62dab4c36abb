/* check_redis_conn_tls: a redis_conn over TLS, in a build that has it. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/support/redis_server.h"
#include "tests/support/scratch.h"
#include "tests/unit/conn_fixture.h"

static char *directory, *certificate;
static struct redis_server *server;
static uint16_t port;

/* A certificate for these names, and a server that shows it. */
static void serve(const char *names)
{
    char *key = g_build_filename(directory, "key", NULL), *number;
    char *command = g_strdup_printf("openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -keyout %s "
                                    "-out %s -addext subjectAltName=%s 2>/dev/null",
                                    key, certificate, names);

    ck_assert_int_eq(system(command), 0);
    port = (uint16_t)g_random_int_range(15000, 20000);
    number = g_strdup_printf("%u", port);
    server = redis_server_start((const char *const[]){"--tls-port", number, "--tls-cert-file", certificate,
                                                      "--tls-key-file", key, "--tls-ca-cert-file", certificate,
                                                      "--tls-auth-clients", "no", NULL});
    g_free(command);
    g_free(number);
    g_free(key);
}

static void setup(void)
{
    conn_setup();
    directory = scratch_new();
    certificate = g_build_filename(directory, "certificate", NULL);
    setenv("SSL_CERT_FILE", certificate, 1);
    conn_options.uri.tls = true;
}

static void teardown(void)
{
    conn_teardown();
    redis_server_free(server);
    scratch_free(directory);
    g_free(certificate);
}

START_TEST(comes_up_with_a_trusted_server)
{
    enum { COUNT = 10000 };
    struct conn_answer *all = g_new0(struct conn_answer, COUNT), watch = {0};

    serve(_i ? "DNS:localhost" : "IP:127.0.0.1");
    conn_open_host(_i ? "localhost" : "127.0.0.1", port);
    conn_until_up();
    for (int i = 0; i < COUNT; i++)
        conn_call(&all[i], CONN_COUNT, "a", "");
    CONN_UNTIL(all[COUNT - 1].times);
    ck_assert_int_eq(all[COUNT - 1].integer, COUNT);
    conn_watch(&watch, "a");
    CONN_UNTIL(watch.times);
    redis_server_do(server, "DEL a");
    CONN_UNTIL(conn_reported.changes);
    ck_assert_uint_eq(conn_reported.downs, 0);
    g_free(all);
}
END_TEST

START_TEST(server_that_nobody_vouches_for_is_refused)
{
    serve("IP:127.0.0.1");
    unsetenv("SSL_CERT_FILE");
    conn_open_host("127.0.0.1", port);
    CONN_UNTIL(strstr(redis_conn_error(conn), "certificate"));
    ck_assert_uint_eq(conn_reported.ups, 0);
}
END_TEST

START_TEST(certificate_for_another_name_is_refused)
{
    serve("IP:127.0.0.2,DNS:other.test");
    conn_open_host(_i ? "localhost" : "127.0.0.1", port);
    CONN_UNTIL(strstr(redis_conn_error(conn), "mismatch"));
    ck_assert_uint_eq(conn_reported.ups, 0);
}
END_TEST

START_TEST(server_without_tls_is_no_server)
{
    serve("IP:127.0.0.1");
    conn_open_host("127.0.0.1", redis_server_port(server));
    CONN_UNTIL(conn_reported.ups || !g_str_has_prefix(redis_conn_error(conn), "not connected"));
    ck_assert_uint_eq(conn_reported.ups, 0);
}
END_TEST

START_TEST(stalled_handshake_does_not_spin)
{
    unsigned turns;

    serve("IP:127.0.0.1");
    conn_options.command_timeout = 1000;
    redis_server_pause(server);
    conn_open_host("127.0.0.1", port);
    conn_pass(50); /* the kernel has accepted the connection */
    turns = ev_iteration(conn_loop);
    conn_pass(500);
    ck_assert_uint_le(ev_iteration(conn_loop) - turns, 4);
    redis_server_resume(server);
    conn_until_up();
}
END_TEST

static Suite *tls_suite(void)
{
    Suite *suite = suite_create("redis_conn_tls");
    TCase *tcase = tcase_create("tls");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, comes_up_with_a_trusted_server, 0, 2);
    tcase_add_test(tcase, server_that_nobody_vouches_for_is_refused);
    tcase_add_loop_test(tcase, certificate_for_another_name_is_refused, 0, 2);
    tcase_add_test(tcase, server_without_tls_is_no_server);
    tcase_add_test(tcase, stalled_handshake_does_not_spin);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return check_main(tls_suite());
}
