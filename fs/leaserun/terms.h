/* terms: when to end a command whose lock ends.
 *
 *     deadline - guard - early - grace    SIGTERM
 *     deadline - guard - early            SIGKILL
 *     deadline                            from here on another may hold the lock
 *
 * `early` is the measured time of killing: long with many processes, or on a busy machine.
 * leasefs renews every third of the ttl, so at least two thirds of it mostly remain.  The
 * three together are at most half of the ttl, so that one renewal may be late without harm.
 */
#ifndef FS_LEASERUN_TERMS_H
#define FS_LEASERUN_TERMS_H

#include <stdint.h>

#define LEASERUN_GUARD_MIN 20LL /* milliseconds */
#define LEASERUN_GUARD_MAX 5000LL
#define LEASERUN_BREAK_MARGIN 5000LL /* to learn of a break; may be long, because the guard ends with the command */
#define LEASERUN_BREAK_MAX 60000LL   /* of a guard */
#define LEASERUN_GRACE_MAX 10000LL   /* without -k */

/* How long processes may take to be gone after SIGKILL. */
static inline int64_t leaserun_guard(int64_t ttl)
{
    int64_t guard = ttl / 10;
    return guard < LEASERUN_GUARD_MIN ? LEASERUN_GUARD_MIN : guard > LEASERUN_GUARD_MAX ? LEASERUN_GUARD_MAX : guard;
}

static inline int64_t leaserun_grace_limit(int64_t ttl)
{
    return ttl / 2 - leaserun_guard(ttl);
}

static inline int64_t leaserun_grace(int64_t ttl)
{
    int64_t grace = ttl / 6;
    return grace > LEASERUN_GRACE_MAX ? LEASERUN_GRACE_MAX : grace;
}

/* The most by which killing may begin earlier, ms: half of the ttl less the guard and the grace time. */
static inline int64_t leaserun_early_limit(int64_t ttl)
{
    return leaserun_grace_limit(ttl) - leaserun_grace(ttl);
}

/* How long a broken lock must stay refused to others: user.lease.guard. */
static inline int64_t leaserun_break_guard(int64_t ttl, int64_t grace)
{
    int64_t time = (grace < 0 ? leaserun_grace(ttl) : grace) + leaserun_guard(ttl) + LEASERUN_BREAK_MARGIN;
    return time > LEASERUN_BREAK_MAX ? LEASERUN_BREAK_MAX : time;
}

#endif
