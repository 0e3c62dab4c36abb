/* faults: the faults of a world. */
#ifndef TESTS_SIM_FAULTS_H
#define TESTS_SIM_FAULTS_H

#include <stdint.h>

#include "tests/sim/plan.h"

struct judge;

enum fault_kind {
    FAULT_DAEMON_KILLED,
    FAULT_DAEMON_SUCCEEDED,
    FAULT_DAEMON_ENDED,
    FAULT_DAEMON_STOPPED,
    FAULT_HOST_SUSPENDED,
    FAULT_HOST_REBOOTED,
    FAULT_WALL_STEPPED,
    FAULT_MEMORY_WANTED,
    FAULT_KILLED_AT_WRITE,
    FAULT_WRITE_SHORT,
    FAULT_WRITE_INTERRUPTED,
    FAULT_WRITE_REFUSED,
    FAULT_DISK_FULL,
    FAULT_WRITE_FAILS,
    FAULT_SYNC_FAILS,
    FAULT_WRITE_DOUBLED,
    FAULT_BIT_FLIPPED,
    FAULT_MESSAGES_LATE,
    FAULT_NEWS_LATE,
    FAULT_RESET,
    FAULT_HALF_REPLY,
    FAULT_CUT_OFF,
    FAULT_ALL_CUT_OFF,
    FAULT_SERVER_PAUSED,
    FAULT_SERVER_DOWN,
    FAULT_SERVER_RESTARTED,
    FAULT_SERVER_LOST_SOME,
    FAULT_SERVER_LOST_ALL,
    FAULT_FLUSHALL,
    FAULT_SERVER_FULL,
    FAULT_SERVER_READONLY,
    FAULT_SERVER_LOADING,
    FAULT_SERVER_BUSY,
    FAULT_SCRIPTS_KILLED,
    FAULT_SCRIPTS_FORGOTTEN,
    FAULT_REFUSED,
    FAULT_TWO_RESTORE,
    FAULT_CLOCK_FORWARD,
    FAULT_CLOCK_BACK,
    FAULT_KEY_DELETED,
    FAULT_KEY_OVERWRITTEN,
    FAULT_KEY_PERSISTED,
    FAULT_KEY_EXPIRED,
    FAULT_LEADER_KILLED,
    FAULT_LEADER_STOPPED,
    FAULT_LEADER_APART,
    FAULT_FOLLOWER_KILLED,
    FAULT_FOLLOWER_STOPPED,
    FAULT_FOLLOWER_APART,
    FAULT_FOLLOWER_LAGS,
    FAULT_ENSEMBLE_RESTARTED,
    FAULT_NODES_CUT_OFF,
    FAULT_NODES_PAUSED,
    FAULT_NODES_KILLED,
    FAULT_NODES_IN_TURN,
    FAULT_PARTED,
    FAULT_MASTER_KEPT,
    FAULT_MASTER_LEFT,
    FAULT_REPLICA_LATE,
    FAULT_FAILOVER,
    FAULT_NODES_BUSY, /* of a finale only */
    FAULTS_DRAWN,
    /* what happens to programs: user.c */
    FAULT_SIGNAL = FAULTS_DRAWN,
    FAULT_PROGRAM_KILLED,
    FAULT_PROGRAM_KILLED_IN_CALL,
    FAULT_PROGRAM_STOPPED,
    FAULTS
};

/* `ttl`: ms */
void faults_begin(struct judge *judge, struct mount **mounts, unsigned count, int64_t ttl);
/* Of mount_options. */
void faults_died(unsigned mount);
/* Of nodes_options. */
void faults_away(unsigned mount, bool away);
void faults_moved(void);
/* One that is not of this file has struck. */
void fault_count(enum fault_kind kind);
const char *fault_name(enum fault_kind kind);
/* Which there can be in this world, and how often; returns the sum. */
unsigned faults_draw(const struct plan *plan, unsigned *ret_weights);
void fault_act(const struct act *act);
/* Daemons whose store is on disk are killed, and come again: they read what was written. */
void faults_restart(void);
/* All is well again, and what is down comes up. */
void faults_end(void);
/* How often each has struck. */
const uint64_t *faults_struck(void);

#endif
