/* loop: replaces libev in the simulator.
 *
 * Events that are ready together run in random order within their priority.  A loop belongs to the host and the daemon
 * that were current when it was made.
 */
#ifndef TESTS_SIM_LOOP_H
#define TESTS_SIM_LOOP_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/world.h"

/* Does it have anything to do now? */
bool loop_has_work(const struct ev_loop *loop);
/* When it will, by its timers alone; WORLD_NEVER. */
int64_t loop_next(const struct ev_loop *loop);
/* One turn. */
void loop_turn(struct ev_loop *loop);

/* Whose it is; it does not run while *halted is true. */
void loop_belongs_to(struct ev_loop *loop, struct host *host, const bool *halted);
/* Is one of its callbacks on the stack? */
bool loop_is_running(const struct ev_loop *loop);
/* From inside of a turn: ends it, without return. Otherwise nothing. */
void loop_escape(struct ev_loop *loop);
/* Of a daemon that was killed: it never runs again, and nothing that it watches is touched. */
void loop_abandon(struct ev_loop *loop);

#endif
