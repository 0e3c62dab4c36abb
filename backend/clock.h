/* clock: time as the backends know it.
 *
 * Every deadline is a count of milliseconds of CLOCK_BOOTTIME, so that a
 * suspended host's leases do run out.  Code below backend/ never reads a clock
 * itself: it is given `now`, so a test can run a year of leases in a second.
 */
#ifndef BACKEND_CLOCK_H
#define BACKEND_CLOCK_H

#include <stdint.h>

/* Milliseconds of CLOCK_BOOTTIME; may be negative for what happened before the
 * last reboot. */
typedef int64_t clock_ms;

#define CLOCK_NEVER INT64_MAX

/* The present, in milliseconds of CLOCK_BOOTTIME. */
clock_ms clock_now(void);

/* The wall clock, in milliseconds since the epoch: to show, never to decide. */
int64_t clock_wall(void);

/* The same in microseconds, 0 before the epoch: fencing tokens begin there. */
uint64_t clock_wall_us(void);

#endif
