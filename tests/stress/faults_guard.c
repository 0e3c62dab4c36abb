/* faults_guard: ordinary files that a lock on another filesystem protects; see faults.h.
 *
 * The guarded one compares and stores the fencing token with every access, under a flock of its own.  One call writes a
 * record, so that a kill cannot separate the counter from the count of accepted writes.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/stress/faults.h"

struct guard_record {
    int64_t token, owner;
    int64_t value;    /* read, incremented and written */
    int64_t accepted; /* writes */
};

static int guard_open(const struct faults *faults, const char *kind, uint32_t name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%u", faults->options.scratch, kind, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        stress_die("%s: %m", path);
    }
    return fd;
}

static int guard_lock(const struct faults *faults, uint32_t name, struct guard_record *ret_record)
{
    int fd = guard_open(faults, "guarded", name);
    while (flock(fd, LOCK_EX) != 0) {
    }
    memset(ret_record, 0, sizeof *ret_record);
    if (pread(fd, ret_record, sizeof *ret_record, 0) < 0) {
        stress_die("guarded.%u: %m", name);
    }
    return fd;
}

static void guard_store(int fd, const struct guard_record *record)
{
    if (pwrite(fd, record, sizeof *record, 0) != sizeof *record) {
        stress_die("a guarded file: %m");
    }
}

static enum guard_answer guard_compare(const struct guard_record *record, int64_t token, int64_t owner)
{
    if (token < record->token) {
        return GUARD_STALE;
    }
    return token == record->token && owner != record->owner ? GUARD_REUSED : GUARD_ACCEPTED;
}

enum guard_answer guard_begin(const struct faults *faults, uint32_t name, int64_t token, int64_t owner,
                              int64_t *ret_value)
{
    struct guard_record record;
    int fd = guard_lock(faults, name, &record);
    enum guard_answer answer = guard_compare(&record, token, owner);
    if (answer == GUARD_ACCEPTED) {
        record.token = token;
        record.owner = owner;
        guard_store(fd, &record);
        *ret_value = record.value;
    }
    close(fd);
    return answer;
}

enum guard_answer guard_write(const struct faults *faults, uint32_t name, int64_t token, int64_t owner, int64_t value)
{
    struct guard_record record;
    int fd = guard_lock(faults, name, &record);
    enum guard_answer answer = guard_compare(&record, token, owner);
    if (answer == GUARD_ACCEPTED) {
        record.value = value;
        record.accepted++;
        guard_store(fd, &record);
    }
    close(fd);
    return answer;
}

int64_t guard_lost(const struct faults *faults, uint32_t name)
{
    struct guard_record record;
    close(guard_lock(faults, name, &record));
    return record.accepted - record.value;
}

int64_t guard_plain_read(const struct faults *faults, uint32_t name)
{
    int64_t value = 0;
    int fd = guard_open(faults, "plain", name);
    if (pread(fd, &value, sizeof value, 0) < 0) {
        stress_die("plain.%u: %m", name);
    }
    close(fd);
    return value;
}

void guard_plain_write(struct faults *faults, uint32_t name, int64_t value)
{
    int fd = guard_open(faults, "plain", name);
    if (pwrite(fd, &value, sizeof value, 0) != sizeof value) {
        stress_die("plain.%u: %m", name);
    }
    close(fd);
    atomic_fetch_add(&faults->unguarded[name], 1); /* one that is killed before it counts makes less lost */
}

int64_t guard_plain_lost(const struct faults *faults, uint32_t name)
{
    return (int64_t)atomic_load(&faults->unguarded[name]) - guard_plain_read(faults, name);
}
