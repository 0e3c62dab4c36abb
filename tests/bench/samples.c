/* samples: see samples.h. */
#include "tests/bench/samples.h"

#include <stdlib.h>

#include "tests/stress/stress.h"

struct samples samples_new(size_t room)
{
    struct samples samples = {.ns = calloc(room ? room : 1, sizeof *samples.ns), .room = room};
    if (!samples.ns) {
        stress_die("no memory for %zu samples", room);
    }
    return samples;
}

void samples_free(struct samples *samples)
{
    free(samples->ns);
    samples->ns = NULL;
}

void samples_add(struct samples *samples, int64_t ns)
{
    if (samples->count < samples->room) {
        samples->ns[samples->count++] = ns;
    }
}

static int samples_compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

int64_t samples_quantile(struct samples *samples, unsigned permille)
{
    if (samples->count == 0) {
        return 0;
    }
    qsort(samples->ns, samples->count, sizeof *samples->ns, samples_compare);
    return samples->ns[(samples->count - 1) * permille / 1000];
}

size_t samples_above(const struct samples *samples, int64_t ns)
{
    size_t above = 0;
    for (size_t i = 0; i < samples->count; i++) {
        above += samples->ns[i] > ns;
    }
    return above;
}
