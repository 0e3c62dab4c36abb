/* terms: how much time there is to end a command before its lock ends.
 *
 *     deadline - guard - early - grace    SIGTERM
 *     deadline - guard - early            SIGKILL
 *     deadline                            from here on another may hold the lock
 *
 * `early` is what killing takes, as it was measured: with many processes, or on a busy
 * machine.  leasefs renews every third of the ttl, so what remains is hardly ever less
 * than two thirds.  Together these are at most half of the ttl, so that one renewal may
 * be late without harm.
 */
#ifndef FS_LEASERUN_TERMS_H
#define FS_LEASERUN_TERMS_H

#include <stdint.h>

#define LEASERUN_GUARD_MIN 20LL /* milliseconds */
#define LEASERUN_GUARD_MAX 5000LL
#define LEASERUN_BREAK_MARGIN 5000LL /* to hear of a break; as the guard ends with the command, it may be long */
#define LEASERUN_BREAK_MAX 60000LL   /* the longest guard */
#define LEASERUN_GRACE_MAX 10000LL   /* unless asked for */

/* How long processes may need to be gone after SIGKILL. */
static inline int64_t leaserun_guard(int64_t ttl)
{
    int64_t guard = ttl / 10;
    return guard < LEASERUN_GUARD_MIN ? LEASERUN_GUARD_MIN : guard > LEASERUN_GUARD_MAX ? LEASERUN_GUARD_MAX : guard;
}

static inline int64_t leaserun_early_limit(int64_t ttl)
{
    return ttl / 5;
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

/* For how long a lock that is broken must stay refused to others: user.lease.guard. */
static inline int64_t leaserun_break_guard(int64_t ttl, int64_t grace)
{
    int64_t time = (grace < 0 ? leaserun_grace(ttl) : grace) + leaserun_guard(ttl) + LEASERUN_BREAK_MARGIN;
    return time > LEASERUN_BREAK_MAX ? LEASERUN_BREAK_MAX : time;
}

#endif
