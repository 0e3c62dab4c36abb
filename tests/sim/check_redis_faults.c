/* check_redis_faults: the faults and states of the simulator's Redis server have the effects that they should have. */
#include <check.h>
#include <glib.h>
#include <string.h>

#include "tests/sim/redis_model.h"
#include "tests/support/check_main.h"

#define EPOCH INT64_C(1700000000000000)

static struct redis_model *model;
static struct redis_client *client;
static int64_t now;
static unsigned readies;

static int64_t read_now(void *arg)
{
    (void)arg;
    return now;
}

static void on_ready(void *arg, struct redis_client *ready)
{
    (void)arg, (void)ready;
    readies++;
}

static void setup(void)
{
    struct redis_model_options options = {.seed = 7, .now = read_now, .wall = EPOCH, .undo = 100, .ready = on_ready};
    now = 0;
    readies = 0;
    model = redis_model_new(&options);
    client = redis_model_connect(model, NULL);
}

static void teardown(void)
{
    redis_client_close(client);
    redis_model_free(model);
}

/* Its received data; valid until the next call. */
static const char *receive(struct redis_client *of)
{
    static char text[4096];
    text[redis_client_receive(of, text, sizeof text - 1)] = '\0';
    return text;
}

/* Says a command of words with blanks between. */
static void say(struct redis_client *from, const char *words)
{
    char **parts = g_strsplit(words, " ", -1);
    GString *text = g_string_new(NULL);
    g_string_printf(text, "*%u\r\n", g_strv_length(parts));
    for (char **part = parts; *part; part++) {
        g_string_append_printf(text, "$%zu\r\n%s\r\n", strlen(*part), *part);
    }
    redis_client_send(from, text->str, text->len);
    g_string_free(text, TRUE);
    g_strfreev(parts);
}

static const char *ask(const char *words)
{
    say(client, words);
    return receive(client);
}

static void reconnect(void)
{
    redis_client_close(client);
    client = redis_model_connect(model, NULL);
    ck_assert_ptr_nonnull(client);
}

static void check_begins(const char *reply, const char *begin)
{
    ck_assert_msg(g_str_has_prefix(reply, begin), "%s", reply);
}

#define SET_OF(key) "EVAL redis.call('SET',KEYS[1],'v') 1 " key

START_TEST(restart_forgets_scripts_and_loses_the_last_writes)
{
    char hash[64], *command;
    for (const char *key = "abcd"; *key; key++) {
        g_free(g_strdup(redis_model_do(model, "SET", (char[]){*key, '\0'}, "1", NULL)));
    }
    ask("SET a 2");
    ask("EVAL redis.call('SET',KEYS[1],3)redis.call('DEL',KEYS[2]) 2 a b");
    g_strlcpy(hash, ask("SCRIPT LOAD return(1)") + 5, 41);
    redis_model_restart(model, 1);
    ck_assert(redis_client_closed(client));
    reconnect();
    ck_assert_str_eq(ask("GET a"), "$1\r\n2\r\n");
    ck_assert_str_eq(ask("EXISTS b"), ":1\r\n");
    command = g_strdup_printf("EVALSHA %s 0", hash);
    check_begins(ask(command), "-NOSCRIPT");
    ck_assert_uint_eq(redis_model_counts(model).lost, 1);
    ask("SET a 4");
    redis_model_restart(model, 1);
    reconnect();
    ck_assert_str_eq(ask("GET a"), "$1\r\n2\r\n"); /* what an earlier run has kept is not lost */
    redis_model_restart(model, REDIS_MODEL_NOTHING);
    reconnect();
    ck_assert_str_eq(ask("DBSIZE"), ":0\r\n");
    g_free(command);
}
END_TEST

static char *line_of_info(const char *name)
{
    char **lines = g_strsplit(redis_model_do(model, "INFO", NULL), "\r\n", -1), *found = NULL;
    for (char **line = lines; *line; line++) {
        found = !found && g_str_has_prefix(*line, name) ? g_strdup(*line) : found;
    }
    g_strfreev(lines);
    return found;
}

START_TEST(restart_is_another_run_with_another_history)
{
    char *before = line_of_info("master_replid"), *after;
    now = 5000000;
    redis_model_restart(model, 0);
    after = line_of_info("master_replid");
    ck_assert_ptr_nonnull(before);
    ck_assert_str_ne(before, after);
    g_free(after);
    after = line_of_info("uptime_in_seconds");
    ck_assert_str_eq(after, "uptime_in_seconds:0");
    g_free(before);
    g_free(after);
}
END_TEST

START_TEST(server_that_is_down_refuses_until_it_is_up)
{
    redis_model_set(model, REDIS_MODEL_DOWN, true);
    ck_assert(redis_client_closed(client));
    ck_assert_ptr_null(redis_model_connect(model, NULL));
    redis_model_lose(model, REDIS_MODEL_NOTHING);
    redis_model_set(model, REDIS_MODEL_DOWN, false);
    reconnect();
    ck_assert_str_eq(ask("PING"), "+PONG\r\n");
}
END_TEST

START_TEST(paused_server_answers_when_it_goes_on)
{
    struct redis_client *second;
    redis_model_set(model, REDIS_MODEL_PAUSED, true);
    second = redis_model_connect(model, NULL);
    ck_assert_str_eq(ask("SET a 1"), "");
    say(second, "GET a");
    ck_assert_uint_eq(redis_client_pending(second), 0);
    redis_model_set(model, REDIS_MODEL_PAUSED, false);
    ck_assert_str_eq(receive(client), "+OK\r\n");
    ck_assert_str_eq(receive(second), "$1\r\n1\r\n");
    redis_client_close(second);
}
END_TEST

START_TEST(command_in_pieces_is_carried_out_when_it_is_complete)
{
    const char *text = "*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\n*1\r\n$4\r\nPI";
    for (const char *at = text; *at; at++) {
        redis_client_send(client, at, 1);
    }
    ck_assert_str_eq(receive(client), "$3\r\nabc\r\n");
    redis_client_send(client, "NG\r\n", 4);
    ck_assert_str_eq(receive(client), "+PONG\r\n");
    redis_client_send(client, "*1\r\nx\r\n", 7);
    check_begins(receive(client), "-ERR Protocol");
    ck_assert(redis_client_closed(client));
}
END_TEST

START_TEST(connection_is_cut_with_half_a_reply)
{
    redis_client_cut(client, 7);
    ck_assert_str_eq(ask("ECHO abc"), "$3\r\nabc");
    ck_assert(redis_client_closed(client));
    ck_assert_str_eq(ask("SET a 1"), "");
    check_begins(redis_model_do(model, "EXISTS", "a", NULL), ":0");
    reconnect();
    readies = 0;
    say(client, "SET a 1"); /* is carried out, and its answer is lost */
    redis_client_cut(client, 0);
    ck_assert_uint_ge(readies, 2);
    ck_assert_str_eq(receive(client), "");
    check_begins(redis_model_do(model, "EXISTS", "a", NULL), ":1");
}
END_TEST

static const struct {
    enum redis_model_state state;
    const char *command, *error, *permitted;
} cases[] = {
    {REDIS_MODEL_LOADING, "GET a", "-LOADING ", "INFO"},
    {REDIS_MODEL_BUSY, "GET a", "-BUSY ", "AUTH default x"},
    {REDIS_MODEL_FULL, "SET a 1", "-OOM ", "DEL a"},
    {REDIS_MODEL_FULL, SET_OF("a"), "-OOM ", "GET a"},
    {REDIS_MODEL_REPLICA, "DEL a", "-READONLY ", "GET a"},
    {REDIS_MODEL_LONELY, SET_OF("a"), "-NOREPLICAS ", "GET a"},
    {REDIS_MODEL_DISKLESS, SET_OF("a"), "-MISCONF ", "GET a"},
    {REDIS_MODEL_CLUSTER, "GET a", "-CLUSTERDOWN ", "PING"},
};

START_TEST(states_answer_with_their_error)
{
    redis_model_set(model, cases[_i].state, true);
    check_begins(ask(cases[_i].command), cases[_i].error);
    ck_assert(*ask(cases[_i].permitted) != '-');
    redis_model_set(model, cases[_i].state, false);
    ck_assert(*ask(cases[_i].command) != '-');
}
END_TEST

START_TEST(busy_server_is_freed_by_script_kill)
{
    redis_model_set(model, REDIS_MODEL_BUSY, true);
    check_begins(ask("EVAL return(1) 0"), "-BUSY ");
    ck_assert_str_eq(ask("SCRIPT KILL"), "+OK\r\n");
    ck_assert_str_eq(ask("EVAL return(1) 0"), ":1\r\n");
    check_begins(ask("SCRIPT KILL"), "-NOTBUSY ");
}
END_TEST

START_TEST(killed_script_has_written_nothing_and_cannot_catch_it)
{
    redis_model_kill_scripts(model, 1);
    check_begins(ask("EVAL pcall(redis.pcall,'SET',KEYS[1],'v')return(1) 1 a"),
                 "-ERR Script killed by user with SCRIPT "
                 "KILL. script: ");
    ck_assert_str_eq(ask("EXISTS a"), ":0\r\n");
    ck_assert_uint_eq(redis_model_counts(model).killed, 1);
    ck_assert_str_eq(ask(SET_OF("a")), "$-1\r\n");
    ck_assert_str_eq(ask("EXISTS a"), ":1\r\n");
}
END_TEST

START_TEST(commands_with_keys_are_refused_as_often_as_requested)
{
    redis_model_refuse(model, "MOVED 1 10.0.0.1:6379", 2);
    ck_assert_str_eq(ask("PING"), "+PONG\r\n");
    ck_assert_str_eq(ask("GET a"), "-MOVED 1 10.0.0.1:6379\r\n");
    ck_assert_str_eq(ask(SET_OF("a")), "-MOVED 1 10.0.0.1:6379\r\n");
    ck_assert_str_eq(ask("EXISTS a"), ":0\r\n");
    ck_assert_uint_eq(redis_model_counts(model).refused, 2);
}
END_TEST

START_TEST(keys_expire_by_its_clock_and_are_reported_to_watchers)
{
    struct redis_client *listener = redis_model_connect(model, NULL);
    say(listener, "SUBSCRIBE __redis__:invalidate");
    receive(listener);
    ask("CLIENT TRACKING ON REDIRECT 2 OPTIN");
    ask("SET a 1 PX 1000");
    ask("CLIENT CACHING YES");
    ck_assert_str_eq(ask("EXISTS a"), ":1\r\n");
    ck_assert_int_ge(redis_model_next(model), 1000000);
    now = redis_model_next(model);
    ck_assert_int_le(now, 1200000);
    ck_assert_uint_eq(redis_client_pending(listener), 0);
    redis_model_work(model);
    ck_assert_str_eq(receive(listener), "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\na\r\n");
    ck_assert_str_eq(ask("DBSIZE"), ":0\r\n");
    ck_assert(redis_model_next(model) == INT64_MAX);
    ask("SET a 1 PX 1000");
    redis_model_step(model, 5000000);
    ck_assert_str_eq(ask("EXISTS a"), ":0\r\n"); /* at once: it has missed the time between */
    ask("SET a 1 PX 1000");
    redis_model_step(model, -5000000);
    now += 3000000;
    ck_assert_str_eq(ask("PTTL a"), ":3000\r\n");
    redis_client_close(listener);
}
END_TEST

START_TEST(who_gives_no_password_is_refused)
{
    redis_model_set_password(model, "secret");
    check_begins(ask("GET a"), "-NOAUTH ");
    check_begins(ask("AUTH wrong"), "-WRONGPASS ");
    ck_assert_str_eq(ask("AUTH secret"), "+OK\r\n");
    ck_assert_str_eq(ask("GET a"), "$-1\r\n");
}
END_TEST

START_TEST(same_seed_and_bytes_give_the_same_run)
{
    char *dumps[2], *runs[2];
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 200; k++) {
            char key[16];
            g_snprintf(key, sizeof key, "k%d", k * 7919 % 211);
            redis_model_do(model, "SET", key, "v", "PX", "5000", NULL);
            redis_model_do(model, "ZADD", "z", "1", key, NULL);
            redis_model_do(model, "HSET", "h", key, "x y", NULL);
        }
        dumps[i] = redis_model_dump(model);
        runs[i] = line_of_info("run_id");
        teardown();
        setup();
    }
    ck_assert_str_eq(dumps[0], dumps[1]);
    ck_assert_str_eq(runs[0], runs[1]);
    for (int i = 0; i < 2; i++) {
        g_free(dumps[i]);
        g_free(runs[i]);
    }
}
END_TEST

START_TEST(a_replica_keeps_what_it_has_whatever_comes_later)
{
    check_begins(ask("SET a 1"), "+OK");
    uint64_t before = redis_model_offset(model);
    check_begins(ask("SET b 2"), "+OK");
    check_begins(ask("WAIT 1 10"), "");
    redis_model_acknowledge(model, 1, redis_model_offset(model));
    ck_assert_str_eq(receive(client), ":1\r\n");
    redis_model_acknowledge(model, 1, before);
    ck_assert_str_eq(ask("WAIT 1 10"), ":1\r\n");
    redis_model_forget_replica(model, 1);
    ck_assert_str_eq(ask("WAIT 0 10"), ":0\r\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("faults of the model of Redis");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, restart_forgets_scripts_and_loses_the_last_writes);
    tcase_add_test(all, restart_is_another_run_with_another_history);
    tcase_add_test(all, server_that_is_down_refuses_until_it_is_up);
    tcase_add_test(all, paused_server_answers_when_it_goes_on);
    tcase_add_test(all, command_in_pieces_is_carried_out_when_it_is_complete);
    tcase_add_test(all, connection_is_cut_with_half_a_reply);
    tcase_add_loop_test(all, states_answer_with_their_error, 0, G_N_ELEMENTS(cases));
    tcase_add_test(all, busy_server_is_freed_by_script_kill);
    tcase_add_test(all, killed_script_has_written_nothing_and_cannot_catch_it);
    tcase_add_test(all, commands_with_keys_are_refused_as_often_as_requested);
    tcase_add_test(all, keys_expire_by_its_clock_and_are_reported_to_watchers);
    tcase_add_test(all, who_gives_no_password_is_refused);
    tcase_add_test(all, same_seed_and_bytes_give_the_same_run);
    tcase_add_test(all, a_replica_keeps_what_it_has_whatever_comes_later);
    suite_add_tcase(suite, all);
    return check_main(suite);
}
