/* history: the answers that processes got from a filesystem that locks, and whether all of them can be true.
 *
 * A hold is certain from the return of the call that acquired it to the call that released it (or the moment before its
 * process was killed).  An acquire that was interrupted, refused, or cut short by a kill is no hold.
 *
 * A queue is a name, too: as many of its tickets hold together as its width allows.
 *
 * kills.c and faults.c let processes make such a history; history_check.c judges it.
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
#define HISTORY_ERRNO_MAX 1024

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

#endif
