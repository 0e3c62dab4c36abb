/* kills: processes that lock while their daemon is killed and started again, over and over.
 *
 *     kills.c         kills and starts the daemon, and judges the records
 *     kills_worker.c  one process
 */
#ifndef TESTS_STRESS_KILLS_H
#define TESTS_STRESS_KILLS_H

#include "tests/stress/history.h"

#define KILLS_NAMES 3
#define KILLS_SLOTS 4 /* byte ranges of a name; a whole lock has them all */
#define KILLS_SLOT_BYTES 10
#define KILLS_COUNTERS (KILLS_NAMES * KILLS_SLOTS + 1) /* the last is the queue's */

/* A lease of its own name, or of a name that is renamed or linked to that; and handle locks. */
enum kills_kind {
    KILLS_LEASE,
    KILLS_RENAMED,
    KILLS_LINKED,
    KILLS_FLOCK,
    KILLS_RANGE,
    KILLS_OFD,
    KILLS_TICKET,
    KILLS_INHERITED,
    KILLS_KINDS
};
extern const char *const kills_kind_names[KILLS_KINDS];

/* One worker's notes. */
struct kills_log {
    _Atomic uint32_t holds;
    _Atomic bool idle;     /* it holds nothing, and waits until it may go on */
    _Atomic int64_t since; /* when the acquire or release it is in began; 0: it is in none */
    uint64_t added[KILLS_COUNTERS];
    uint32_t taken[KILLS_KINDS], survived[KILLS_KINDS]; /* holds, and those during which a daemon died */
    uint32_t lost;                                      /* leases that were gone when they were given back */
    uint32_t faults;                                    /* calls that failed as they must not, and the last one */
    int fault_kind, fault_error;
    struct history_hold *hold;
};

struct kills {
    const char *mount;
    unsigned workers, kills, capacity;
    unsigned kinds; /* a bit for each enum kills_kind */
    bool exclusive; /* there are no shared locks */
    uint64_t seed;
    struct kills_log *logs;
    struct kills_shared {
        volatile uint64_t counter[KILLS_COUNTERS]; /* read, and written a moment later, by whoever has the lock alone */
        _Atomic uint32_t deaths;
        _Atomic bool rest, over;
    } * shared;
};

/* Works until `over`, or until it kills itself with a lock in its hands. */
_Noreturn void kills_work(const struct kills *k, unsigned index, unsigned incarnation);

#endif
