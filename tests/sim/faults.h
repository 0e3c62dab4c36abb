/* faults: what goes wrong in a world. */
#ifndef TESTS_SIM_FAULTS_H
#define TESTS_SIM_FAULTS_H

#include <stdint.h>

#include "tests/sim/plan.h"

struct judge;

enum fault_kind {
    FAULT_DAEMON_KILLED,
    FAULT_DAEMON_ENDED,
    FAULT_DAEMON_STOPPED,
    FAULT_HOST_SUSPENDED,
    FAULT_HOST_REBOOTED,
    FAULT_WALL_STEPPED,
    FAULT_MEMORY_WANTED,
    FAULT_KILLED_AT_WRITE,
    FAULT_WRITE_SHORT,
    FAULT_DISK_FULL,
    FAULT_WRITE_FAILS,
    FAULT_SYNC_FAILS,
    FAULTS
};

void faults_begin(struct judge *judge, struct mount **mounts, unsigned count);
const char *fault_name(enum fault_kind kind);
/* Which there can be in this world, and how often; returns the sum. */
unsigned faults_draw(const struct plan *plan, unsigned *ret_weights);
void fault_act(const struct act *act);
/* All is well again, and what is down comes up. */
void faults_end(void);
/* How often each has struck. */
const uint64_t *faults_struck(void);

#endif
