/* history_test: judges small histories; see history.h. */
#include <inttypes.h>
#include <string.h>

#include "tests/stress/history.h"

/* Holds with commas between them: CLIENT MODE ACQUIRED RELEASED [#TOKEN] [@START-END] [/WIDTH]; x is exclusive, s
 * shared. */
static const struct {
    const char *what;
    size_t overlaps, tokens;
    const char *holds;
} cases[] = {
    {"one after the other is no fault", 0, 0, "1 x 10 20 #1, 2 x 20 30 #2, 1 x 31 40 #5"},
    {"two exclusive holds at once are an overlap", 1, 0, "1 x 10 20 #1, 2 x 19 30 #2"},
    {"an overlap is found behind a short hold that ended", 1, 0, "1 s 10 90, 2 s 20 30, 3 x 40 50"},
    {"shared holds may overlap", 0, 0, "1 s 10 20 #1, 2 s 15 30 #1"},
    {"a shared and an exclusive hold may not", 1, 0, "1 s 10 20, 2 x 15 30 @40-50"},
    {"ranges that do not meet may overlap", 0, 0, "1 x 10 20 @0-9, 2 x 12 22 @10-19"},
    {"ranges that meet in one byte may not", 1, 0, "1 x 10 20 @0-10, 2 x 12 22 @10-19"},
    {"what one client holds twice is no overlap", 0, 0, "1 x 10 20 @0-10, 1 s 12 22 @5-19"},
    {"a hold that was never certain is not judged", 0, 0, "1 x 10 20 #1, 2 x 15 15"},
    {"a fencing token that goes back is found", 0, 1, "1 x 10 20 #9, 2 x 30 40 #8"},
    {"a fencing token that is used twice is found", 0, 1, "1 x 10 20 #9, 2 x 30 40 #9"},
    {"two tickets at once in a queue of width 1 are too many", 1, 0, "1 x 10 20 #1 /1, 2 x 19 30 #2 /1"},
    {"one client's tickets count as anybody's", 1, 0, "1 x 10 20 #1 /1, 1 x 19 30 #2 /1"},
    {"as many tickets as the queue is wide may hold", 0, 0, "1 x 10 20 #2 /2, 2 x 11 30 #1 /2, 3 x 20 40 #3 /2"},
    {"one more is found", 1, 0, "1 x 10 21 #1 /2, 2 x 11 30 #2 /2, 3 x 20 40 #3 /2"},
    {"an exclusive one among too many that share is found", 1, 0, "1 s 10 50 #1 /2, 2 s 11 50 #2 /2, 3 x 20 40 #3 /2"},
    {"any number of tickets may share", 0, 0, "1 s 10 50 #1 /1, 2 s 11 50 #2 /1, 3 s 20 40 #3 /1"},
    {"a token that goes back in a queue of width 1 is found", 0, 1, "1 x 10 20 #9 /1, 2 x 30 40 #8 /1"},
};

enum { HOLDS_MAX = 4 };

static size_t holds_of(const char *text, struct history_hold *holds)
{
    size_t count = 0;
    for (char mode; text && count < HOLDS_MAX; count++) {
        struct history_hold *hold = &holds[count];
        *hold = (struct history_hold){.name = 7, .kind = HISTORY_FLOCK, .end = HISTORY_RANGE_MAX};
        const char *next = strchr(text, ',');
        int used = 0;
        if (sscanf(text, "%" SCNu16 " %c %" SCNd64 " %" SCNd64 "%n", &hold->client, &mode, &hold->acquired,
                   &hold->released, &used) != 4) {
            stress_die("not a hold: %s", text);
        }
        for (text += used; *text && *text != ','; text++) {
            sscanf(text, "#%" SCNd64, &hold->token);
            sscanf(text, "@%" SCNd64 "-%" SCNd64, &hold->start, &hold->end);
            sscanf(text, "/%" SCNu8, &hold->width);
        }
        hold->mode = mode == 's' ? HISTORY_SHARED : HISTORY_EXCLUSIVE;
        hold->grant = (uint32_t)hold->acquired;
        text = next ? next + 1 : NULL;
    }
    return count;
}

int history_self_test(void)
{
    size_t n = sizeof cases / sizeof *cases, failed = 0;
    for (size_t i = 0; i < n; i++) {
        struct history_hold holds[HOLDS_MAX];
        size_t count = holds_of(cases[i].holds, holds);
        struct history_verdict verdict = history_check(holds, count, NULL);
        bool right = verdict.overlaps == cases[i].overlaps && verdict.tokens == cases[i].tokens;
        failed += !right;
        printf("%s: %s\n", right ? "right" : "WRONG", cases[i].what);
    }
    printf("%zu histories, %zu judged wrong\n", n, failed);
    return failed ? 1 : 0;
}
