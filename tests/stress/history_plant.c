/* history_plant: tests the judge with faulty histories; see history.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/stress/history.h"

/* --- faults planted into a history that happened ----------------------------- */

static bool history_is_exclusive(const struct history_hold *hold)
{
    return hold->mode == HISTORY_EXCLUSIVE && hold->start == 0 && hold->end == HISTORY_RANGE_MAX &&
           hold->released > hold->acquired && hold->width <= 1;
}

/* The next exclusive hold of the name by another client, or NULL. */
static struct history_hold *history_next(struct history_hold *hold, const struct history_hold *end)
{
    for (struct history_hold *next = hold + 1; next < end && next->name == hold->name; next++) {
        if (history_is_exclusive(next) && next->client != hold->client) {
            return next;
        }
    }
    return NULL;
}

/* The holds of the name that `hold` is of. */
static struct history_hold *history_of_name(struct history_hold *holds, size_t count, const struct history_hold *hold,
                                            size_t *ret_count)
{
    struct history_hold *first = holds + (hold - holds), *end = first;
    while (first > holds && first[-1].name == hold->name) {
        first--;
    }
    while (end < holds + count && end->name == hold->name) {
        end++;
    }
    *ret_count = (size_t)(end - first);
    return first;
}

/* Makes `at` reach into the next exclusive hold, or gives that one its token. */
static bool history_plant_one(struct history_hold *holds, size_t count, const struct history_hold *at, bool token)
{
    size_t n;
    const struct history_hold *first = history_of_name(holds, count, at, &n);
    struct history_hold *copy = malloc(n * sizeof *copy);
    memcpy(copy, first, n * sizeof *copy);
    struct history_hold *hold = copy + (at - first), *next = history_next(hold, copy + n);
    if (token) {
        next->token = hold->token;
        next->token_at = next->acquired + 1;
    } else {
        hold->released = next->acquired + 1;
    }
    struct history_verdict verdict = history_check(copy, n, NULL);
    free(copy);
    return (token ? verdict.tokens : verdict.overlaps) > 0;
}

/* Makes as many exclusive tickets as the queue is wide reach into the next one. */
static bool history_plant_crowd(struct history_hold *holds, size_t count, const struct history_hold *at, bool *ret_can)
{
    size_t n, crowd = 0;
    const struct history_hold *first = history_of_name(holds, count, at, &n);
    struct history_hold *copy = malloc(n * sizeof *copy), *last = NULL;
    memcpy(copy, first, n * sizeof *copy);
    for (struct history_hold *hold = copy + (at - first); hold < copy + n && crowd <= at->width; hold++) {
        if (hold->mode == HISTORY_EXCLUSIVE && hold->released > hold->acquired) {
            last = hold;
            crowd++;
        }
    }
    *ret_can = crowd > at->width;
    for (struct history_hold *hold = copy + (at - first); *ret_can && hold < last; hold++) {
        if (hold->mode == HISTORY_EXCLUSIVE && hold->released > hold->acquired && hold->released <= last->acquired) {
            hold->released = last->acquired + 1;
        }
    }
    size_t overlaps = *ret_can ? history_check(copy, n, NULL).overlaps : 0;
    free(copy);
    return overlaps > 0;
}

size_t history_plant(struct history_hold *holds, size_t count, uint64_t seed, size_t *ret_planted, size_t *ret_crowds)
{
    struct stress_random random = stress_seed(seed, 77);
    size_t planted = 0, found = 0, crowds = 0;
    history_check(holds, count, NULL); /* sorts */
    for (int tries = 0; count && tries < 2000 && planted < 200; tries++) {
        struct history_hold *hold = &holds[stress_below(&random, (uint32_t)count)];
        bool can = false;
        if (hold->width > 1) {
            found += history_plant_crowd(holds, count, hold, &can);
            planted += can;
            crowds += can;
            continue;
        }
        bool token = tries % 2;
        struct history_hold *next = history_is_exclusive(hold) ? history_next(hold, holds + count) : NULL;
        if (next && (!token || (hold->token && next->token))) {
            planted++;
            found += history_plant_one(holds, count, hold, token);
        }
    }
    *ret_planted = planted;
    *ret_crowds = crowds;
    return found;
}

/* --- small histories ------------------------------------------------------------ */

struct history_case {
    const char *what;
    size_t overlaps, tokens, count;
    struct history_hold holds[4];
};

#define HOLD(client_, kind_, mode_, acquired_, released_, token_, start_, end_)                                        \
    {                                                                                                                  \
        .name = 7, .client = client_, .grant = acquired_, .kind = HISTORY_##kind_, .mode = HISTORY_##mode_,            \
        .acquired = acquired_, .released = released_, .token = token_, .token_at = acquired_ + 1, .start = start_,     \
        .end = end_                                                                                                    \
    }
#define TICKET(client_, mode_, acquired_, released_, token_, width_)                                                   \
    {                                                                                                                  \
        .name = 7, .client = client_, .grant = acquired_, .kind = HISTORY_TICKET, .mode = HISTORY_##mode_,             \
        .acquired = acquired_, .released = released_, .token = token_, .token_at = acquired_ + 1,                      \
        .end = HISTORY_RANGE_MAX, .width = width_                                                                      \
    }
#define RANGE(client_, mode_, acquired_, released_, start_, end_)                                                      \
    HOLD(client_, POSIX, mode_, acquired_, released_, 0, start_, end_)

static const struct history_case history_cases[] = {
    {"one after the other is no fault",
     0,
     0,
     3,
     {HOLD(1, LEASE, EXCLUSIVE, 10, 20, 1, 0, HISTORY_RANGE_MAX),
      HOLD(2, FLOCK, EXCLUSIVE, 20, 30, 2, 0, HISTORY_RANGE_MAX),
      HOLD(1, OFD, EXCLUSIVE, 31, 40, 5, 0, HISTORY_RANGE_MAX)}},
    {"two exclusive holds at once are an overlap",
     1,
     0,
     2,
     {HOLD(1, LEASE, EXCLUSIVE, 10, 20, 1, 0, HISTORY_RANGE_MAX),
      HOLD(2, FLOCK, EXCLUSIVE, 19, 30, 2, 0, HISTORY_RANGE_MAX)}},
    {"an overlap is found behind a short hold that ended",
     1,
     0,
     3,
     {HOLD(1, FLOCK, SHARED, 10, 90, 0, 0, HISTORY_RANGE_MAX), HOLD(2, FLOCK, SHARED, 20, 30, 0, 0, HISTORY_RANGE_MAX),
      HOLD(3, FLOCK, EXCLUSIVE, 40, 50, 0, 0, HISTORY_RANGE_MAX)}},
    {"shared holds may overlap",
     0,
     0,
     2,
     {HOLD(1, FLOCK, SHARED, 10, 20, 1, 0, HISTORY_RANGE_MAX),
      HOLD(2, POSIX, SHARED, 15, 30, 1, 0, HISTORY_RANGE_MAX)}},
    {"a shared and an exclusive hold may not",
     1,
     0,
     2,
     {HOLD(1, FLOCK, SHARED, 10, 20, 0, 0, HISTORY_RANGE_MAX), HOLD(2, POSIX, EXCLUSIVE, 15, 30, 0, 40, 50)}},
    {"ranges that do not meet may overlap",
     0,
     0,
     2,
     {RANGE(1, EXCLUSIVE, 10, 20, 0, 9), RANGE(2, EXCLUSIVE, 12, 22, 10, 19)}},
    {"ranges that meet in one byte may not",
     1,
     0,
     2,
     {RANGE(1, EXCLUSIVE, 10, 20, 0, 10), RANGE(2, EXCLUSIVE, 12, 22, 10, 19)}},
    {"what one client holds twice is no overlap",
     0,
     0,
     2,
     {RANGE(1, EXCLUSIVE, 10, 20, 0, 10), RANGE(1, SHARED, 12, 22, 5, 19)}},
    {"a hold that was never certain is not judged",
     0,
     0,
     2,
     {HOLD(1, LEASE, EXCLUSIVE, 10, 20, 1, 0, HISTORY_RANGE_MAX),
      HOLD(2, LEASE, EXCLUSIVE, 15, 15, 0, 0, HISTORY_RANGE_MAX)}},
    {"a fencing token that goes back is found",
     0,
     1,
     2,
     {HOLD(1, LEASE, EXCLUSIVE, 10, 20, 9, 0, HISTORY_RANGE_MAX),
      HOLD(2, LEASE, EXCLUSIVE, 30, 40, 8, 0, HISTORY_RANGE_MAX)}},
    {"a fencing token that is used twice is found",
     0,
     1,
     2,
     {HOLD(1, LEASE, EXCLUSIVE, 10, 20, 9, 0, HISTORY_RANGE_MAX),
      HOLD(2, FLOCK, EXCLUSIVE, 30, 40, 9, 0, HISTORY_RANGE_MAX)}},
    {"a shared holder's token that goes back is found",
     0,
     1,
     2,
     {HOLD(1, FLOCK, EXCLUSIVE, 10, 20, 9, 0, HISTORY_RANGE_MAX),
      HOLD(2, FLOCK, SHARED, 30, 40, 8, 0, HISTORY_RANGE_MAX)}},
    {"two tickets at once in a queue of width 1 are too many",
     1,
     0,
     2,
     {TICKET(1, EXCLUSIVE, 10, 20, 1, 1), TICKET(2, EXCLUSIVE, 19, 30, 2, 1)}},
    {"one client's tickets count as anybody's",
     1,
     0,
     2,
     {TICKET(1, EXCLUSIVE, 10, 20, 1, 1), TICKET(1, EXCLUSIVE, 19, 30, 2, 1)}},
    {"as many tickets as the queue is wide may hold",
     0,
     0,
     3,
     {TICKET(1, EXCLUSIVE, 10, 20, 2, 2), TICKET(2, EXCLUSIVE, 11, 30, 1, 2), TICKET(3, EXCLUSIVE, 20, 40, 3, 2)}},
    {"one more is found",
     1,
     0,
     3,
     {TICKET(1, EXCLUSIVE, 10, 21, 1, 2), TICKET(2, EXCLUSIVE, 11, 30, 2, 2), TICKET(3, EXCLUSIVE, 20, 40, 3, 2)}},
    {"an exclusive one among too many that share is found",
     1,
     0,
     3,
     {TICKET(1, SHARED, 10, 50, 1, 2), TICKET(2, SHARED, 11, 50, 2, 2), TICKET(3, EXCLUSIVE, 20, 40, 3, 2)}},
    {"any number of tickets may share",
     0,
     0,
     3,
     {TICKET(1, SHARED, 10, 50, 1, 1), TICKET(2, SHARED, 11, 50, 2, 1), TICKET(3, SHARED, 20, 40, 3, 1)}},
    {"a token that goes back in a queue of width 1 is found",
     0,
     1,
     2,
     {TICKET(1, EXCLUSIVE, 10, 20, 9, 1), TICKET(2, EXCLUSIVE, 30, 40, 8, 1)}},
    {"those who share may be told in any order",
     0,
     0,
     2,
     {HOLD(1, FLOCK, SHARED, 10, 20, 9, 0, HISTORY_RANGE_MAX),
      HOLD(2, FLOCK, SHARED, 30, 40, 8, 0, HISTORY_RANGE_MAX)}},
};

int history_self_test(void)
{
    size_t n = sizeof history_cases / sizeof *history_cases, failed = 0;
    for (size_t i = 0; i < n; i++) {
        const struct history_case *one = &history_cases[i];
        struct history_hold holds[4];
        memcpy(holds, one->holds, sizeof holds);
        struct history_verdict verdict = history_check(holds, one->count, NULL);
        bool right = verdict.overlaps == one->overlaps && verdict.tokens == one->tokens;
        failed += !right;
        printf("%s: %s\n", right ? "right" : "WRONG", one->what);
    }
    printf("%zu histories, %zu judged wrong\n", n, failed);
    return failed ? 1 : 0;
}
