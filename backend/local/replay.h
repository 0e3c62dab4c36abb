/* replay: restores a lockspace from journal records.
 *
 * It gathers all records first, because a lockspace could not take them in the
 * journal's order: compaction writes changes before the state that they change.
 */
#ifndef BACKEND_LOCAL_REPLAY_H
#define BACKEND_LOCAL_REPLAY_H

#include "backend/local/record.h"
#include "backend/lockspace/lockspace.h"

struct local_replay; /* opaque */

struct local_replay *local_replay_new(void);
/* NULL is allowed. */
void local_replay_free(struct local_replay *replay);

/* A journal_replay; `arg` is the struct local_replay.  0 or -EPROTO. */
int local_replay_record(void *arg, uint8_t type, const void *payload, size_t length);

struct local_restored {
    size_t leases; /* restored */
    size_t handle_locks;
    size_t late;        /* leases whose deadline has passed: they end unless their owner lives */
    size_t rebooted;    /* leases that got a full term because the host has rebooted */
    GPtrArray *granted; /* struct backend_ticket: leases that waited and now hold */
    GArray *gone;       /* fencing tokens (uint64_t) of those that could not be restored */
    uint64_t next;      /* the next fencing token */
    bool same_boot;     /* all records were written since the last reboot */
    bool untimed;       /* renewals are missing, so some leases got a full term */
    uint64_t bytes;     /* about what the leases take in a journal */
};

/* Fills the lockspace.  `now` is the present session.  Unref `granted` and `gone`. */
void local_replay_restore(struct local_replay *replay, struct lockspace *space, const struct local_session *now,
                          struct local_restored *ret_restored);

#endif
