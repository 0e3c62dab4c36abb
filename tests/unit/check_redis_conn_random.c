/* check_redis_conn_random: what is promised of every request, whatever the server
 * does to it: one answer, which is true.  The seed is printed. */
#include <stdio.h>
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/support/scratch.h"
#include "tests/unit/conn_fixture.h"
#include "tests/unit/fake_redis.h"

#define COUNT 100

static const char *const faults[] = {
    FAKE_REDIS_CLOSE,
    FAKE_REDIS_HALF,
    FAKE_REDIS_RESET,
    FAKE_REDIS_SILENT,
    "rubbish\r\n",
    "-LOADING Redis is loading the dataset in memory\r\n",
    "-BUSY Redis is busy running a script\r\n",
    "-READONLY You can't write against a read only replica.\r\n",
};
#define REFUSALS 5 /* faults from here on are refusals: nothing is carried out */

struct request {
    char name[16];
    struct conn_answer answer;
    uint64_t id;
    bool forgotten, unsent;
    unsigned refused; /* how many times it may be */
    unsigned arrived; /* times the server saw it */
};

static struct request requests[COUNT];
static struct fake_redis *fake;
static GRand *chance;

static void setup(void)
{
    conn_setup();
    fake = fake_redis_new(conn_loop);
    chance = g_rand_new_with_seed(scratch_seed());
    memset(requests, 0, sizeof(requests));
    conn_options.command_timeout = 100;
    conn_options.timeout = 2000;
}

static void teardown(void)
{
    g_rand_free(chance);
    fake_redis_free(fake);
    conn_teardown();
}

/* Lets some requests meet a fault, or several. */
static void plan_faults(void)
{
    for (int i = 0; i < COUNT; i++) {
        struct request *request = &requests[i];

        g_snprintf(request->name, sizeof(request->name), "R%04d", i);
        while (g_rand_int_range(chance, 0, 12) == 0) {
            int fault = g_rand_int_range(chance, 0, (gint32)G_N_ELEMENTS(faults));
            unsigned times = (unsigned)g_rand_int_range(chance, 1, 3);

            fake_redis_rule(fake, request->name, faults[fault], times);
            request->refused += fault >= REFUSALS ? times : 0;
        }
    }
    fake_redis_rule(fake, "SCRIPT LOAD", faults[REFUSALS], 2);
    fake_redis_rule(fake, "CLIENT ID", FAKE_REDIS_CLOSE, 2);
}

static void forget_one(int among)
{
    struct request *request = &requests[g_rand_int_range(chance, 0, among)];

    if (request->forgotten || request->answer.times)
        return;
    request->forgotten = true;
    request->unsent = redis_conn_forget(conn, request->id);
}

static void ask_all(void)
{
    int asked = 0;

    while (asked < COUNT) {
        int burst = g_rand_int_range(chance, 1, 6), pause = g_rand_int_range(chance, 0, 30);

        for (; burst && asked < COUNT; burst--, asked++)
            requests[asked].id = conn_command(&requests[asked].answer, requests[asked].name);
        if (g_rand_int_range(chance, 0, 4) == 0)
            forget_one(asked);
        conn_pass(pause);
    }
}

static bool is_done(void)
{
    for (int i = 0; i < COUNT; i++)
        if (!requests[i].answer.times && !requests[i].forgotten)
            return false;
    return true;
}

/* What the server saw, which came in the order of asking. */
static void count_arrivals(void)
{
    char **seen = g_strsplit(fake_redis_commands(fake), ";", -1);
    int last = -1;

    for (char **name = seen; *name; name++) {
        int i;

        if (**name != 'R')
            continue;
        ck_assert_int_eq(sscanf(*name, "R%d", &i), 1);
        if (requests[i].arrived++ == 0) {
            ck_assert_msg(i > last, "%s came first after R%04d did", *name, last);
            last = i;
        }
    }
    g_strfreev(seen);
}

static void judge(const struct request *request)
{
    const struct conn_answer *answer = &request->answer;

    ck_assert_uint_eq(answer->times, request->forgotten ? 0 : 1);
    if (request->forgotten) {
        if (request->unsent)
            ck_assert_uint_le(request->arrived, request->refused);
        return;
    }
    switch (answer->outcome) {
    case REMOTE_ANSWERED:
        ck_assert_uint_ge(request->arrived, 1);
        if (!answer->repeated)
            ck_assert_uint_le(request->arrived, request->refused + 1);
        break;
    case REMOTE_REFUSED:
        ck_assert_uint_gt(request->refused, 0);
        break;
    case REMOTE_NOT_SENT:
        ck_assert_uint_eq(request->arrived, 0);
        ck_assert(!answer->repeated);
        break;
    case REMOTE_UNKNOWN:
        break;
    }
}

START_TEST(every_request_is_answered_once_and_truly)
{
    unsigned outcomes[4] = {0};

    plan_faults();
    conn_open_host("127.0.0.1", fake_redis_port(fake));
    ask_all();
    CONN_UNTIL(is_done());
    fake_redis_behave(fake);
    CONN_UNTIL(conn_get("PING").outcome == REMOTE_ANSWERED);
    count_arrivals();
    for (int i = 0; i < COUNT; i++) {
        judge(&requests[i]);
        outcomes[requests[i].answer.outcome] += !requests[i].forgotten;
    }
    printf("# %u replies, %u errors, %u not sent, %u unknown\n", outcomes[REMOTE_ANSWERED], outcomes[REMOTE_REFUSED],
           outcomes[REMOTE_NOT_SENT], outcomes[REMOTE_UNKNOWN]);
    fflush(stdout);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_conn_random");
    TCase *tcase = tcase_create("random");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_request_is_answered_once_and_truly, 0, 3);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
