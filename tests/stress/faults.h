/* faults: processes on several mounts of one store take locks and work under them, while their connections to the store
 * break.
 *
 * A lock may be lost.  A hold is certain from the return of the call that acquired it until the end that the last
 * successful check showed (the time before the check plus the remaining time), but no longer than to the call that
 * released it or the death of the process.  An acquire that failed, for any reason, is an open interval, which is not
 * judged.
 *
 *     faults        runs, stops and kills the processes; judges     faults_client  one of them
 *     faults_guard  the files that they work on                     history_check  the judge of overlaps and tokens
 */
#ifndef TESTS_STRESS_FAULTS_H
#define TESTS_STRESS_FAULTS_H

#include "tests/stress/history.h"

#define FAULTS_MOUNTS_MAX 8
#define FAULTS_HOLDS_MAX 20000 /* of one client */

enum faults_operation {
    FAULTS_DIRECTORY,
    FAULTS_EXCL,
    FAULTS_OPEN,
    FAULTS_FLOCK,
    FAULTS_FLOCK_TRY,
    FAULTS_FCNTL,
    FAULTS_FCNTL_TRY,
    FAULTS_TTL,
    FAULTS_STATE,
    FAULTS_TOKEN,
    FAULTS_REMAINING,
    FAULTS_READ,
    FAULTS_CHECK,
    FAULTS_RELEASE,
    FAULTS_BREAK,
    FAULTS_RENAME,
    FAULTS_UNLINK,
    FAULTS_UNLOCK,
    FAULTS_CLOSE,
    FAULTS_OPERATIONS
};

struct faults_options {
    const char *scratch; /* where the guarded and unguarded files are */
    const char *mounts[FAULTS_MOUNTS_MAX];
    uint32_t mount_count, clients, names;
    int64_t kill_every, stop_every, ttl; /* ns, as in struct history_options */
    uint64_t seed;
    bool forgetful; /* the store loses grants: overlaps, and holders that a guarded file refuses, are counted and are no
                       fault */
    bool exclusive; /* the store has no shared locks, no queues and no rename */
    bool full;      /* the disk of the store is full at times */
};

/* One client's notes: the kernel keeps them when it is killed. */
struct faults_log {
    _Atomic uint32_t holds;
    _Atomic uint32_t incarnations;
    _Atomic int64_t since; /* when the system call it is in began; 0: it is in none */
    _Atomic uint32_t doing, doing_name;
    uint32_t kills, stops, long_stops;
    uint32_t acquired, open, lost;             /* locks granted; acquires of unknown outcome; reported losses */
    uint32_t accepted, stale, refused, reused; /* by guarded files; faults: refused to a holder, token of another */
    uint32_t outcome[FAULTS_OPERATIONS][HISTORY_ERRNO_MAX];
    struct history_hold *hold; /* shared */
};

/* Behind the names of locks come those of queues; a store that forgets, or has none, is asked for none. */
#define FAULTS_QUEUES 2 /* of widths 1 and 2 */

static inline bool faults_queues(const struct faults_options *o)
{
    return !o->forgetful && !o->exclusive;
}

static inline uint32_t faults_names(const struct faults_options *o)
{
    return o->names + (faults_queues(o) ? FAULTS_QUEUES : 0);
}

struct faults {
    struct faults_options options;
    struct faults_log *logs;     /* shared */
    _Atomic uint32_t *ending;    /* shared: nothing more is begun */
    _Atomic uint64_t *unguarded; /* shared, by name: increments of the unguarded files */
};

void faults_client_run(struct faults *faults, uint32_t client);
const char *faults_operation_name(unsigned operation);

/* faults_guard: files that count, one of each kind for a name. */

enum guard_answer {
    GUARD_ACCEPTED,
    GUARD_STALE, /* a larger token has been here */
    GUARD_REUSED /* the same token has been here with another owner */
};

/* Reads the counter of the guarded file, with which the token is the one that counts. */
enum guard_answer guard_begin(const struct faults *faults, uint32_t name, int64_t token, int64_t owner,
                              int64_t *ret_value);
/* Writes it, if no larger token has been here. */
enum guard_answer guard_write(const struct faults *faults, uint32_t name, int64_t token, int64_t owner, int64_t value);
/* Increments that were accepted and are not in the counter (anything but 0 is a fault). */
int64_t guard_lost(const struct faults *faults, uint32_t name);

/* The same without a guard. */
int64_t guard_plain_read(const struct faults *faults, uint32_t name);
void guard_plain_write(struct faults *faults, uint32_t name, int64_t value);
/* More than 0: updates were lost. */
int64_t guard_plain_lost(const struct faults *faults, uint32_t name);

#endif
