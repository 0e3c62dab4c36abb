/* check_redis_conn_random: every request gets one true answer, whatever the server does to it.  The seed is printed.
 *
 * Or all requests are scripts that a replica must confirm: an answer follows a WAIT that was met. */
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
    bool requested;   /* a WAIT came after the last time */
    bool confirmed;   /* the first of those was met */
};

static struct request requests[COUNT];
static struct fake_redis *fake;
static GRand *chance;
static GPtrArray *prefixes; /* of rules */

/* The first answers to WAIT; later ones are met. */
static const char *const waits[] = {":1\r\n",         ":2\r\n",          ":0\r\n",        "-UNBLOCKED\r\n",
                                    FAKE_REDIS_CLOSE, FAKE_REDIS_SILENT, FAKE_REDIS_RESET};
#define MET 2 /* of these, the first ones */
static int waited[COUNT];

static void setup(void)
{
    conn_setup();
    fake = fake_redis_new(conn_loop);
    chance = g_rand_new_with_seed(scratch_seed());
    memset(requests, 0, sizeof(requests));
    conn_options.command_timeout = 100;
    conn_options.timeout = 2000;
    prefixes = g_ptr_array_new_with_free_func(g_free);
}

static void teardown(void)
{
    g_ptr_array_unref(prefixes);
    g_rand_free(chance);
    fake_redis_free(fake);
    conn_teardown();
}

/* As it begins on its way to the server. */
static const char *prefix_of(const struct request *request)
{
    char *hash = g_compute_checksum_for_string(G_CHECKSUM_SHA1, CONN_COUNT->text, -1);
    char *prefix =
        conn_options.wait ? g_strdup_printf("EVALSHA %s 1 %s", hash, request->name) : g_strdup(request->name);

    g_ptr_array_add(prefixes, prefix);
    g_free(hash);
    return prefix;
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

            fake_redis_rule(fake, prefix_of(request), faults[fault], times);
            request->refused += fault >= REFUSALS ? times : 0;
        }
    }
    for (int i = 0; i < COUNT; i++) {
        bool bad = g_rand_int_range(chance, 0, 8) == 0;

        waited[i] = g_rand_int_range(chance, bad ? MET : 0, bad ? (gint32)G_N_ELEMENTS(waits) : MET);
        fake_redis_rule(fake, "WAIT", waits[waited[i]], 1);
    }
    fake_redis_rule(fake, "WAIT", waits[0], FAKE_REDIS_ALWAYS);
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
    int requested = 0;

    while (requested < COUNT) {
        int burst = g_rand_int_range(chance, 1, 6), pause = g_rand_int_range(chance, 0, 30);

        for (; burst && requested < COUNT; burst--, requested++)
            requests[requested].id =
                conn_options.wait ? conn_call(&requests[requested].answer, CONN_COUNT, requests[requested].name, "")
                                  : conn_command(&requests[requested].answer, requests[requested].name);
        if (g_rand_int_range(chance, 0, 4) == 0)
            forget_one(requested);
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
    int last = -1, requested = 0;

    for (char **command = seen; *command; command++) {
        const char *name = strchr(*command, 'R');
        int i;

        if (g_str_has_prefix(*command, "WAIT")) {
            bool met = requested >= COUNT || waited[requested] < MET;

            requested++;
            for (i = 0; i < COUNT; i++)
                if (requests[i].arrived && !requests[i].requested) {
                    requests[i].requested = true;
                    requests[i].confirmed = met;
                }
        }
        if (!name || sscanf(name, "R%d", &i) != 1)
            continue;
        requests[i].requested = requests[i].confirmed = false;
        if (requests[i].arrived++ == 0) {
            ck_assert_msg(i > last, "R%04d came first after R%04d did", i, last);
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
        ck_assert(!conn_options.wait || request->confirmed);
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

    conn_options.wait = (unsigned)_i % 2;
    conn_options.timeout *= conn_options.wait ? 4 : 1; /* one fault undoes all that left with it */
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
    tcase_add_loop_test(tcase, every_request_is_answered_once_and_truly, 0, 6);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
