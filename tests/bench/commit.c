/* commit: the throughput of a disk for synced records, with group commit.
 *
 *     commit DIRECTORY MS CALLERS
 *         CALLERS threads append a record to one file, over and over, and wait until
 *         it is synced.  While one of them is in fdatasync(2), the others append; the
 *         next call syncs all of these.  Prints the records for a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/stress/stress.h"

#define RECORD_BYTES 256 /* about what a lease is in the journal */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int fd;
    uint64_t written, synced;
    bool syncing;
    _Atomic bool over;
} commit = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void commit_sync(void)
{
    uint64_t written = commit.written;
    commit.syncing = true;
    pthread_mutex_unlock(&commit.mutex);
    if (fdatasync(commit.fd) != 0) {
        stress_die("fdatasync: %s", strerror(errno));
    }
    pthread_mutex_lock(&commit.mutex);
    commit.synced = written;
    commit.syncing = false;
    pthread_cond_broadcast(&commit.changed);
}

static void *commit_caller(void *arg)
{
    static const char record[RECORD_BYTES];
    pthread_mutex_lock(&commit.mutex);
    while (!atomic_load(&commit.over)) {
        if (write(commit.fd, record, sizeof record) != (ssize_t)sizeof record) {
            stress_die("write: %s", strerror(errno));
        }
        uint64_t number = ++commit.written;
        while (commit.synced < number) {
            if (commit.syncing) {
                pthread_cond_wait(&commit.changed, &commit.mutex);
            } else {
                commit_sync();
            }
        }
    }
    pthread_mutex_unlock(&commit.mutex);
    return arg;
}

int main(int argc, char **argv)
{
    int callers = argc == 4 ? atoi(argv[3]) : 0;
    if (callers < 1 || callers > 1000 || atol(argv[2]) < 1) {
        stress_die("usage: commit DIRECTORY MS CALLERS");
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/commit", argv[1]);
    commit.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    pthread_t *threads = calloc((size_t)callers, sizeof *threads);
    if (commit.fd < 0 || !threads) {
        stress_die("%s: %s", path, strerror(errno));
    }
    int64_t began = stress_now();
    for (int i = 0; i < callers; i++) {
        if (pthread_create(&threads[i], NULL, commit_caller, NULL) != 0) {
            stress_die("cannot start a thread");
        }
    }
    stress_sleep(atol(argv[2]) * STRESS_MS);
    atomic_store(&commit.over, true);
    for (int i = 0; i < callers; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("%.1f\n", (double)commit.synced / ((double)(stress_now() - began) / STRESS_SECOND));
    free(threads);
    close(commit.fd);
    unlink(path);
    return 0;
}
