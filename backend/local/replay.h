/* replay: from journal records to a lockspace.
 *
 * Records are first gathered, because during compaction those of later changes
 * stand before those of the state they change, so neither directories nor
 * leases come in an order in which a lockspace could take them.
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
    size_t leases;       /* that are there again */
    size_t handle_locks; /* the same */
    size_t late;         /* of the leases, how many end now unless their owner lives, as their deadline has passed */
    size_t rebooted;     /* of these, how many were given a full term because the host has rebooted */
    GPtrArray *granted;  /* struct backend_ticket: leases that waited and now hold */
    GArray *gone;        /* fencing tokens (uint64_t) of those that could not be put back */
    uint64_t next;       /* the next fencing token */
    bool same_boot;      /* all was written since the last reboot */
    bool untimed;        /* renewals are missing, so some of them were given a full term */
    uint64_t bytes;      /* what the leases take in a journal, about */
};

/* Fills the lockspace.  `now` is the present session.  Free `granted` and
 * `gone`. */
void local_replay_restore(struct local_replay *replay, struct lockspace *space, const struct local_session *now,
                          struct local_restored *ret_restored);

#endif
