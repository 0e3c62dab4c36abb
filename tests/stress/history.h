/* history: the answers that processes got from a filesystem that locks, and whether all of them can be true.
 *
 * A hold is certain from the return of the call that acquired it to the call that released it (or the moment before its
 * process was killed).  An acquire that was interrupted, refused, or cut short by a kill is no hold.
 *
 * A queue is a name, too: as many of its tickets hold together as its width allows.
 *
 *     history        runs the processes and kills them    history_client  one of them
 *     history_check  judges their records                 history_test    judges small histories
 */
#ifndef TESTS_STRESS_HISTORY_H
#define TESTS_STRESS_HISTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tests/stress/stress.h"

#define HISTORY_RANGE_MAX INT64_MAX

/* Queues: directories of tickets, whose widths are 1, 2, … */
#define HISTORY_QUEUES 3

enum history_kind { HISTORY_LEASE, HISTORY_FLOCK, HISTORY_POSIX, HISTORY_OFD, HISTORY_TICKET, HISTORY_NOTHING };
enum history_mode { HISTORY_EXCLUSIVE, HISTORY_SHARED };

struct history_hold {
    int64_t acquired; /* the call that acquired it had returned */
    int64_t released; /* the call that gave it up began; 0: not yet */
    int64_t token;    /* the name's fencing token, read while it was held; 0: not read */
    int64_t start;    /* its bytes, inclusive */
    int64_t end;
    uint16_t name;
    uint16_t client;
    uint32_t grant; /* of the client: what was converted without being let go has the same */
    uint8_t kind;
    uint8_t mode;
    uint8_t width; /* of a ticket: how many hold its queue at most when one of them is exclusive; else 0 */
};

/* What a client does, for the count of outcomes. */
enum history_operation {
    OPERATION_EXCL,
    OPERATION_SYMLINK,
    OPERATION_OPEN,
    OPERATION_TIMES,
    OPERATION_CLOSE,
    OPERATION_WRITE,
    OPERATION_LINK,
    OPERATION_RENAME,
    OPERATION_UNLINK_OWN,
    OPERATION_UNLINK_OTHER,
    OPERATION_TTL,
    OPERATION_FLOCK,
    OPERATION_FLOCK_TRY,
    OPERATION_FLOCK_UNLOCK,
    OPERATION_FCNTL,
    OPERATION_FCNTL_TRY,
    OPERATION_FCNTL_UNLOCK,
    OPERATION_CHECK,
    OPERATION_LOOK,
    OPERATION_RELEASE,
    OPERATION_BREAK,
    OPERATION_TICKET,
    OPERATIONS
};

#define HISTORY_ERRNO_MAX 1024

/* A call that ended as it must not. */
struct history_fault {
    int64_t when;
    int error;
    uint16_t operation, name;
    uint8_t kind; /* of what was held, by the same client, under that name */
};

#define HISTORY_FAULTS_MAX 8

/* One client's notes; written by it alone, and read when it has ended. */
struct history_log {
    _Atomic uint32_t holds;      /* of `hold` */
    _Atomic uint32_t operations; /* done */
    _Atomic int64_t since;       /* when the system call it is in began; 0: it is in none */
    _Atomic uint32_t doing;      /* which: enum history_operation */
    _Atomic uint32_t doing_name;
    _Atomic uint32_t incarnations;
    uint32_t kills, stops; /* what was done to it */
    uint32_t outcome[OPERATIONS][HISTORY_ERRNO_MAX];
    uint32_t faults;
    struct history_fault fault[HISTORY_FAULTS_MAX]; /* the first ones */
    struct history_hold *hold;                      /* shared */
};

struct history_options {
    const char *directory;
    uint32_t clients, operations, names;
    int64_t kill_every, stop_every; /* ns, on average for one client */
    int64_t ttl;                    /* ns; the mount's option */
    uint64_t seed;
    bool fuse;     /* a leasefs: kinds exclude each other, and there are attributes */
    bool unfenced; /* leave out the calls that lock */
};

struct history {
    struct history_options options;
    struct history_log *logs; /* one for each client; shared */
    uint32_t capacity;        /* holds in each log */
};

/* history_client: runs operations until `until` of them are noted; then gives up
 * all that it holds. */
void history_client_run(struct history *history, uint32_t client, uint32_t until);
/* All that is noted since the hold `first` ended at the latest now, with its process. */
void history_end_holds(struct history_log *log, uint32_t first, int64_t now);
/* May the call fail with that? */
bool history_allows(unsigned operation, int error);
const char *history_operation_name(unsigned operation);

/* history_check: the number of holds that cannot be true together with others,
 * each told to `out` (may be NULL).  Sorts the holds. */
struct history_verdict {
    size_t overlaps;
    size_t tokens;    /* that went back */
    size_t handovers; /* exclusive holds that followed another client's */
    size_t certain;   /* holds that were judged */
    size_t full;      /* judged holds during which a queue wider than 1 had as many holders as it allows */
};
const char *history_kind_name(unsigned kind);
struct history_verdict history_check(struct history_hold *holds, size_t count, FILE *out);

/* Judges small histories with known faults: 0 if all verdicts are right. */
int history_self_test(void);

#endif
