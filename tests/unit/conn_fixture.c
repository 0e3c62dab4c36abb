/* conn_fixture: a redis_conn on a loop of its own, and a record of its events. */
#include "tests/unit/conn_fixture.h"

#include <signal.h>
#include <string.h>

#include "backend/log.h"

struct ev_loop *conn_loop;
struct redis_conn *conn;
struct redis_conn_options conn_options;
struct conn_reported conn_reported;

const struct redis_script conn_scripts[] = {
    {"count", "return redis.call('INCR', KEYS[1])", true},
    {"echo", "return ARGV[1]", false},
};

static unsigned answers;
static clock_ms time_limit;

static void on_up(void *context)
{
    (void)context;
    ck_assert(redis_conn_is_up(conn));
    ck_assert_str_eq(redis_conn_error(conn), "");
    conn_reported.ups++;
    if (conn_reported.on_up)
        conn_reported.on_up();
}

static void on_down(void *context, const char *why)
{
    (void)context;
    ck_assert(!redis_conn_is_up(conn));
    conn_reported.downs++;
    g_strlcpy(conn_reported.why, why, sizeof(conn_reported.why));
}

static void on_message(void *context, const char *data, size_t length)
{
    (void)context;
    conn_reported.messages++;
    g_snprintf(conn_reported.message, sizeof(conn_reported.message), "%.*s", (int)length, data);
}

static void on_changed(void *context, const char *key, size_t length)
{
    (void)context;
    if (key) {
        conn_reported.changes++;
        g_snprintf(conn_reported.key, sizeof(conn_reported.key), "%.*s", (int)length, key);
    } else {
        conn_reported.all_changes++;
    }
}

static clock_ms on_needed(void *context)
{
    (void)context;
    return conn_reported.needed ? conn_reported.needed : CLOCK_NEVER;
}

static const struct redis_conn_events events = {
    .up = on_up, .down = on_down, .message = on_message, .changed = on_changed, .needed = on_needed};

void conn_setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    log_set_level(LOG_LEVEL_ERROR);
    conn_reported = (struct conn_reported){0};
    answers = 0;
    conn_options = (struct redis_conn_options){.timeout = 5000,
                                               .command_timeout = 500,
                                               .connect_timeout = 500,
                                               .channel = "lfs:me",
                                               .mark = "lfs:mark",
                                               .keepalive = true};
    conn_loop = ev_loop_new(EVFLAG_AUTO);
    conn = NULL;
}

void conn_teardown(void)
{
    redis_conn_free(conn);
    ev_loop_destroy(conn_loop);
}

void conn_restart_time_limit(void)
{
    time_limit = clock_now() + 20000;
}

void conn_open_given(void)
{
    conn = redis_conn_new(&conn_options, conn_scripts, 2);
    ck_assert(!redis_conn_is_up(conn));
    redis_conn_start(conn, conn_loop, &events, NULL);
    conn_restart_time_limit();
}

void conn_open(const char *socket)
{
    conn_options.uri.path = (char *)socket;
    conn_open_given();
}

void conn_open_host(const char *host, uint16_t port)
{
    conn_options.uri.host = (char *)host;
    conn_options.uri.port = port;
    conn_open_given();
}

static void on_turn_ends(struct ev_loop *loop, struct ev_timer *timer, int happened)
{
    (void)timer, (void)happened;
    ev_break(loop, EVBREAK_ONE);
}

static void turn(int64_t milliseconds)
{
    struct ev_timer timer;

    ev_timer_init(&timer, on_turn_ends, (double)milliseconds / 1000, 0);
    ev_timer_start(conn_loop, &timer);
    ev_run(conn_loop, EVRUN_ONCE);
    ev_timer_stop(conn_loop, &timer);
}

void conn_turn(void)
{
    ck_assert_msg(clock_now() < time_limit, "nothing comes; %s",
                  redis_conn_is_up(conn) ? "it is up" : redis_conn_error(conn));
    turn(1000);
}

void conn_until_up(void)
{
    CONN_UNTIL(redis_conn_is_up(conn));
}

void conn_pass(int64_t milliseconds)
{
    clock_ms end = clock_now() + milliseconds, now;

    while ((now = clock_now()) < end)
        turn(end - now);
}

static void on_answered(void *arg, const struct redis_answer *given)
{
    struct conn_answer *answer = arg;

    if (!answer)
        return;
    answer->times++;
    answer->outcome = given->outcome;
    answer->sent = given->sent;
    answer->repeated = given->repeated;
    answer->when = ++answers;
    ck_assert_int_eq(given->reply != NULL, given->outcome == REMOTE_ANSWERED || given->outcome == REMOTE_REFUSED);
    if (!given->reply)
        return;
    answer->type = given->reply->type;
    answer->integer = given->reply->integer;
    if (given->reply->str)
        g_strlcpy(answer->text, given->reply->str, sizeof(answer->text));
}

uint64_t conn_command(struct conn_answer *answer, const char *words)
{
    char **split = g_strsplit(words, " ", -1);
    struct redis_argument arguments[16];
    size_t count = 0;
    uint64_t id;

    for (; split[count]; count++)
        arguments[count] = (struct redis_argument){split[count], strlen(split[count])};
    id = redis_conn_command(conn, arguments, count, 0, on_answered, answer);
    ck_assert_uint_ne(id, 0);
    g_strfreev(split);
    return id;
}

uint64_t conn_call(struct conn_answer *answer, const struct redis_script *script, const char *key, const char *argument)
{
    const struct redis_argument arguments[] = {{key, strlen(key)}, {argument, strlen(argument)}};

    return redis_conn_call(conn, script, 1, arguments, 2, 0, on_answered, answer);
}

uint64_t conn_watch(struct conn_answer *answer, const char *key)
{
    return redis_conn_watch(conn, key, strlen(key), NULL, on_answered, answer);
}

struct conn_answer conn_get(const char *words)
{
    struct conn_answer answer = {0};

    conn_command(&answer, words);
    CONN_UNTIL(answer.times);
    return answer;
}
