/* Random messages in a random world; see fuzz_world.h.  CHECK_SEED repeats a run. */
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/backend.h"
#include "tests/message/fuzz_world.h"
#include "tests/support/check_main.h"

#define FUZZ_RUNS 20
#define FUZZ_STEPS 1000

static GRand *source;
static uint32_t fuzz_seed;

static uint32_t pick(void *arg, uint32_t below)
{
    (void)arg;
    return (uint32_t)g_rand_int_range(source, 0, (gint32)below);
}

static void set_up_with(unsigned features)
{
    source = g_rand_new();
    fuzz_world_new(features, pick, NULL);
}

static void set_up(void)
{
    set_up_with(BACKEND_SOLE_AUTHORITY);
}

/* Other mounts change the store, too. */
static void set_up_shared(void)
{
    set_up_with(0);
}

static void tear_down(void)
{
    fuzz_world_free();
    g_rand_free(source);
}

START_TEST(every_request_is_answered_once_whatever_happens)
{
    g_rand_set_seed(source, fuzz_seed + (uint32_t)_i);
    for (int i = 0; i < FUZZ_STEPS; i++) {
        fuzz_world_step();
    }
    fuzz_world_end();
}
END_TEST

int main(void)
{
    const char *given = getenv("CHECK_SEED");
    fuzz_seed = given ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)time(NULL);
    printf("# seeds %u to %u (CHECK_SEED=%u)\n", fuzz_seed, fuzz_seed + FUZZ_RUNS - 1, fuzz_seed);
    fflush(stdout);
    Suite *suite = suite_create("fs: fuzzing");
    TCase *cases = tcase_create("all");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, every_request_is_answered_once_whatever_happens, 0, FUZZ_RUNS);
    TCase *shared = tcase_create("shared");
    tcase_add_checked_fixture(shared, set_up_shared, tear_down);
    tcase_set_timeout(shared, 120);
    tcase_add_loop_test(shared, every_request_is_answered_once_whatever_happens, 0, FUZZ_RUNS);
    suite_add_tcase(suite, cases);
    suite_add_tcase(suite, shared);
    return check_main(suite);
}
