/* clock: the only place where the backends' time is read.
 *
 * In this file time has 64 bits on every machine.  Other files share struct stat and struct
 * timeval with libraries, and so must use their width. */
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS
#define _FILE_OFFSET_BITS 64
#define _TIME_BITS 64
#include "backend/clock.h"

#include <time.h>

static int64_t clock_milliseconds(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

clock_ms clock_now(void)
{
    return clock_milliseconds(CLOCK_BOOTTIME);
}

int64_t clock_wall(void)
{
    return clock_milliseconds(CLOCK_REALTIME);
}

uint64_t clock_wall_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec < 0 ? 0 : (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}
