/* spin: not going to sleep for a moment, where the next request is near.
 *
 * To be woken costs a process more than most requests do.  So after an answer the
 * loop may poll for some microseconds before it sleeps; all other events are
 * served meanwhile.
 *
 * That takes a processor from others, and is done while it pays.  What shows that
 * it would pay are requests that come soon, but not at once: what comes at once is
 * sent by a process on our own processor, which spinning would only keep from
 * running.  A request in time is a hit; after some misses spinning has to be earned
 * again.  Who asks seldom is never spun for, and where nothing happens, nothing spins.
 *
 * `now` is that of the loop, ev_now().
 */
#ifndef FS_DAEMON_SPIN_H
#define FS_DAEMON_SPIN_H

#include <ev.h>
#include <stdbool.h>

#define SPIN_AT_ONCE 10e-6 /* seconds from an answer to the next request: sooner, sleeping costs nothing */
#define SPIN_SOON 150e-6   /* later, spinning for so short a time is in vain */
#define SPIN_CREDIT 16     /* a hit earns 1 of it */
#define SPIN_MISS 2        /* what a miss costs */
#define SPIN_DEBT 32       /* requests that come soon before it is tried again */

struct spin {
    struct ev_loop *loop;
    ev_idle idle;    /* active while it spins: the loop does not sleep then */
    ev_tstamp limit; /* seconds; 0: never */
    ev_tstamp since; /* when the last answer was sent; 0: a request has come since */
    int credit;      /* above 0 it spins */
};

/* For `microseconds` at most; 0: never.  Never either where the process may run on
 * one processor only, because whoever is to send a request needs another. */
void spin_init(struct spin *spin, struct ev_loop *loop, unsigned microseconds);

/* An answer was sent.  True if it spins now, and did not before. */
bool spin_on_reply(struct spin *spin, ev_tstamp now);

/* Was an answer sent, and has no request come since? */
static inline bool spin_awaits_request(const struct spin *spin)
{
    return spin->since > 0;
}

/* A request has come.  True if that was a hit. */
bool spin_on_request(struct spin *spin, ev_tstamp now);

/* The loop has polled in vain; called from `idle`. */
void spin_on_poll(struct spin *spin, ev_tstamp now);

void spin_stop(struct spin *spin);

#endif
