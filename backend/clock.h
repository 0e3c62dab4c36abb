/* clock: time as the backends know it.
 *
 * Every deadline is a count of milliseconds of CLOCK_BOOTTIME, so that a
 * suspended host's leases do run out.  Code below backend/ never reads a clock
 * itself: it is given `now`, so a test can run a year of leases in a second.
 */
#ifndef BACKEND_CLOCK_H
#define BACKEND_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds of CLOCK_BOOTTIME; may be negative for what happened before the
 * last reboot. */
typedef int64_t clock_ms;

#define CLOCK_NEVER INT64_MAX

/* For the C library: the nearest value where its time has 32 bits. */
static inline time_t clock_time(int64_t seconds)
{
    if (sizeof(time_t) < sizeof seconds) {
        seconds = seconds > INT32_MAX ? INT32_MAX : seconds < INT32_MIN ? INT32_MIN : seconds;
    }
    return (time_t)seconds;
}

static inline struct timespec clock_timespec(int64_t ms)
{
    return (struct timespec){.tv_sec = clock_time(ms / 1000), .tv_nsec = (long)(ms % 1000 * 1000000)};
}

/* The present, in milliseconds of CLOCK_BOOTTIME. */
clock_ms clock_now(void);

/* The wall clock, in milliseconds since the epoch: to show, never to decide. */
int64_t clock_wall(void);

/* The same in microseconds, 0 before the epoch: fencing tokens begin there. */
uint64_t clock_wall_us(void);

#endif
