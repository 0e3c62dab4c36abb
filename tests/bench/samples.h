/* samples: measured durations, and their percentiles. */
#ifndef TESTS_BENCH_SAMPLES_H
#define TESTS_BENCH_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

struct samples {
    int64_t *ns;
    size_t count, room;
};

/* Has room for that many. */
struct samples samples_new(size_t room);
void samples_free(struct samples *samples);

/* Beyond the room it is dropped. */
void samples_add(struct samples *samples, int64_t ns);

/* Sorts them; 0 <= permille <= 1000.  0 if there are none. */
int64_t samples_quantile(struct samples *samples, unsigned permille);

/* How many are longer. */
size_t samples_above(const struct samples *samples, int64_t ns);

#endif
