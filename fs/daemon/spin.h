/* spin: polls for a moment before the loop sleeps, while the next request is near.
 *
 * Waking a process costs more than most requests do.  So after a reply the loop may poll
 * for some microseconds before it sleeps; it serves all other events meanwhile.
 *
 * That takes a processor from others, so it happens only while it pays.  It pays for
 * requests that come soon, but not at once: a request that comes at once was sent by a
 * process on our own processor, which spinning would only keep from running.  A request
 * in time is a hit.  After some misses spinning must be earned again.  A process that
 * seldom sends requests is never spun for, and nothing spins without requests.
 *
 * `now` is ev_now() of the loop.
 */
#ifndef FS_DAEMON_SPIN_H
#define FS_DAEMON_SPIN_H

#include <ev.h>
#include <stdbool.h>

#define SPIN_AT_ONCE 10e-6 /* seconds from a reply to the next request: below this, sleeping costs nothing */
#define SPIN_SOON 150e-6   /* above this, spinning for so short a time does not help */
#define SPIN_CREDIT 16     /* a hit earns 1 */
#define SPIN_MISS 2        /* a miss costs this much */
#define SPIN_DEBT 32       /* requests that come soon until it tries again */

struct spin {
    struct ev_loop *loop;
    ev_idle idle;    /* active while it spins, so that the loop does not sleep */
    ev_tstamp limit; /* seconds; 0: never */
    ev_tstamp since; /* when the last reply was sent; 0: a request has come since */
    int credit;      /* it spins while this is above 0 */
};

/* Spins for at most `microseconds`; 0: never.  Never if the process may run on one processor only: the sender of the
 * next request needs another one. */
void spin_init(struct spin *spin, struct ev_loop *loop, unsigned microseconds);

/* A reply was sent.  True if it begins to spin. */
bool spin_on_reply(struct spin *spin, ev_tstamp now);

/* Has no request come since the last reply? */
static inline bool spin_awaits_request(const struct spin *spin)
{
    return spin->since > 0;
}

/* A request has come.  True if that was a hit. */
bool spin_on_request(struct spin *spin, ev_tstamp now);

/* The loop has polled and found nothing; called from `idle`. */
void spin_on_poll(struct spin *spin, ev_tstamp now);

void spin_stop(struct spin *spin);

#endif
