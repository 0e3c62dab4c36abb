/* task: the threads of simulated programs and daemons; one of them runs at a time.
 *
 * A task runs until it waits; then the world chooses the next event.  The daemons' calls of pthread_ and g_thread_ come
 * here (see sim_wraps in Makefile.am): their threads are tasks too.
 */
#ifndef TESTS_SIM_TASK_H
#define TESTS_SIM_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/sim/world.h"

struct task;

/* It is ready. `host`: whose clocks it reads, NULL for the world's own. `halted`: it does not run while *halted is
 * true; may be NULL. */
struct task *task_new(struct host *host, const bool *halted, void (*run)(void *arg), void *arg);
/* Of a task that has ended, or is never to run again. */
void task_free(struct task *task);

/* NULL: none, but a turn of a loop, or the world. */
struct task *task_current(void);
/* Of the current task: until task_wake. */
void task_wait(void);
void task_sleep(int64_t duration);
/* Once for each wait; one that does not wait will not, the next time. */
void task_wake(struct task *task);

/* For world.c. */
size_t task_ready_count(void);
void task_run_ready(size_t which);

/* The threads that are made from now on belong to that.  Returns what was before, for when the caller has done: the
 * world may go on inside of it, and daemons take turns. */
struct task_maker {
    struct host *host;
    const bool *halted;
};
struct task_maker task_set_maker(struct task_maker maker);

#endif
