/* cycle: what it takes to acquire a lease and to release it.
 *
 *     cycle FILE COUNT
 *         COUNT times open(O_CREAT|O_EXCL), close, unlink.  Prints, in nanoseconds:
 *         the cycle's median, 90 and 99 percent, and the medians of the three calls.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/samples.h"
#include "tests/stress/stress.h"

#define WARM_UP 200

int main(int argc, char **argv)
{
    if (argc != 3 || atol(argv[2]) < 1) {
        stress_die("usage: cycle FILE COUNT");
    }
    const char *path = argv[1];
    size_t count = (size_t)atol(argv[2]);
    struct samples cycles = samples_new(count), opens = samples_new(count);
    struct samples closes = samples_new(count), unlinks = samples_new(count);
    for (size_t i = 0; i < count + WARM_UP; i++) {
        int64_t began = stress_now();
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
        int64_t opened = stress_now();
        if (fd < 0 || close(fd) != 0) {
            stress_die("%s: %s", path, strerror(errno));
        }
        int64_t closed = stress_now();
        if (unlink(path) != 0) {
            stress_die("%s: %s", path, strerror(errno));
        }
        int64_t ended = stress_now();
        if (i >= WARM_UP) {
            samples_add(&cycles, ended - began);
            samples_add(&opens, opened - began);
            samples_add(&closes, closed - opened);
            samples_add(&unlinks, ended - closed);
        }
    }
    printf("%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", samples_quantile(&cycles, 500),
           samples_quantile(&cycles, 900), samples_quantile(&cycles, 990), samples_quantile(&opens, 500),
           samples_quantile(&closes, 500), samples_quantile(&unlinks, 500));
    samples_free(&cycles);
    samples_free(&opens);
    samples_free(&closes);
    samples_free(&unlinks);
    return 0;
}
