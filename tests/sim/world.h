/* world: time, chance, and the choice of the next event.
 *
 * One world is one process.  It has one true time, one source of chance, and hosts whose clocks each follow the true
 * time in their own way.  An event is the run of a task (a thread of a simulated program or daemon), a turn of a
 * daemon's loop, or a function for a set time; chance selects the next one.  Nothing depends on the real machine, so
 * the same seed gives the same world.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORLD_US INT64_C(1000)
#define WORLD_MS INT64_C(1000000)
#define WORLD_SECOND INT64_C(1000000000)
#define WORLD_NEVER INT64_MAX

struct ev_loop;

/* A computer: the clocks, and whether anything on it runs. */
struct host {
    unsigned index;
    int64_t boot;     /* CLOCK_BOOTTIME when the world began */
    int64_t rate;     /* how much its clocks are fast, in millionths */
    int64_t asleep;   /* how long it was suspended: CLOCK_MONOTONIC does not count that */
    int64_t wall;     /* CLOCK_REALTIME less CLOCK_BOOTTIME, */
    int64_t wall_set; /* which was set then, the last time */
    bool suspended;   /* nothing runs */
    char boot_id[40]; /* another after a power cut */
};

void world_begin(uint64_t seed);
/* From now on, and each line of text too if there is a file. */
void world_trace_to(void *file);
/* Makes no trace, and no checksum of it. */
void world_hush(void);
uint64_t world_trace_sum(void);
void world_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the program: what was found cannot be, whatever a judge says. */
void world_fail(const char *rule, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* --- time -------------------------------------------------------------------- */

int64_t world_now(void);
int64_t host_boottime(const struct host *host);
int64_t host_monotonic(const struct host *host);
int64_t host_realtime(const struct host *host);
/* When a clock of the host will show that, in true time. */
int64_t host_boottime_at(const struct host *host, int64_t boottime);
int64_t host_monotonic_at(const struct host *host, int64_t monotonic);

/* Whose code runs: its clocks are read. NULL: the world's own. */
struct host *world_host(void);
struct host *world_enter(struct host *host); /* returns the former */

void world_at(int64_t when, void (*then)(void *arg), void *arg);
void world_after(int64_t delay, void (*then)(void *arg), void *arg);

/* --- chance ------------------------------------------------------------------- */

uint64_t world_random(void);
uint32_t world_below(uint32_t bound);
int64_t world_between(int64_t least, int64_t most);
bool world_chance(unsigned permille);

/* --- what runs ----------------------------------------------------------------- */

/* Loops take part from their making to their end: see loop.c. */
void world_add_loop(struct ev_loop *loop);
void world_remove_loop(struct ev_loop *loop);

/* One thing happens; false: nothing will any more, before `until`. */
bool world_step(int64_t until);
/* Until that time. */
void world_run(int64_t until);
uint64_t world_steps(void);

#endif
