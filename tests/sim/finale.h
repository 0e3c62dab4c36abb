/* finale: the last scene of a world with servers. */
#ifndef TESTS_SIM_FINALE_H
#define TESTS_SIM_FINALE_H

#include "tests/sim/plan.h"

/* Adds it to the plan of a world with faults, behind all else: what is before it stays as its seed has it. */
void finale_add(struct plan *plan);

#endif
