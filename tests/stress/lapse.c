/* lapse: closes files of a leasefs at the moment when their provisional second ends.
 *
 *     lapse DIRECTORY [FILES [ROUNDS]]
 *
 * A process whose close(2) succeeds must hold the lease.
 *
 * Exit status: 0, 3 if such a lease is missing, 1 if it could not be run.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stress/stress.h"

struct lapse_file {
    char path[4096];
    int fd;
    int64_t opened;
    bool promised;
};

static void lapse_open(struct lapse_file *file, const char *directory, int round, int number)
{
    snprintf(file->path, sizeof file->path, "%s/lapse-%d-%d.lock", directory, round, number);
    file->fd = open(file->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    file->opened = stress_now();
    if (file->fd < 0) {
        stress_die("%s: %s", file->path, strerror(errno));
    }
    while (stress_now() < file->opened + STRESS_MS / 5) { /* so that there is time to close each */
    }
}

/* When exactly it ends is known to a millisecond only, and a busy machine misses
 * the moment: that is what many files are for. */
static void lapse_close(struct lapse_file *file, int64_t age)
{
    while (stress_now() < file->opened + age) {
    }
    file->promised = close(file->fd) == 0;
}

static int lapse_count_broken(const struct lapse_file *files, int count, int *ret_promised)
{
    struct stat st;
    int broken = 0;
    for (int i = 0; i < count; i++) {
        bool there = lstat(files[i].path, &st) == 0;
        *ret_promised += files[i].promised;
        broken += files[i].promised && !there;
        if (there) {
            unlink(files[i].path);
        }
    }
    return broken;
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[2]) : 800, rounds = argc > 3 ? atoi(argv[3]) : 3, broken = 0, promised = 0;
    if (argc < 2 || count < 1 || rounds < 1) {
        stress_die("usage: lapse DIRECTORY [FILES [ROUNDS]]");
    }
    struct lapse_file *files = calloc((size_t)count, sizeof *files);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++) {
            lapse_open(&files[i], argv[1], round, i);
        }
        for (int i = 0; i < count; i++) {
            lapse_close(&files[i], STRESS_SECOND - (i % 15) * STRESS_MS / 10);
        }
        stress_sleep(20 * STRESS_MS); /* for what is about to lapse */
        broken += lapse_count_broken(files, count, &promised);
    }
    printf("%d files, %d closed with success, of which %d are not held\n", count * rounds, promised, broken);
    free(files);
    return broken ? 3 : promised ? 0 : 1;
}
