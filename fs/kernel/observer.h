/* observer: what control wants to be told of holds and requests as it happens.
 *
 * The rooms below tell it and do not know what becomes of it.
 */
#ifndef FS_KERNEL_OBSERVER_H
#define FS_KERNEL_OBSERVER_H

#include <sys/queue.h>

#include "backend/backend.h"

struct fs;
struct hold;
struct request;

/* In a hold or a request: its place on the observer's list, in order of arrival. */
struct observed {
    TAILQ_ENTRY(observed) link;
};

TAILQ_HEAD(observed_list, observed);

struct observer {
    /* Granted, or now of this kind; before hold->kind is set. */
    void (*granted)(struct fs *fs, struct hold *hold, enum backend_kind kind);
    /* Queued. */
    void (*queued)(struct fs *fs, struct hold *hold);
    /* It was taken, and why. */
    void (*ended)(struct fs *fs, struct hold *hold, enum backend_end why);
    /* It is no more; hold->ended: it was taken, else its user released it. */
    void (*gone)(struct fs *fs, struct hold *hold);
    /* A descendant of the lease's owner was refused what it would write, as it has opened the file itself. */
    void (*contended)(struct request *r, struct hold *lease);
    /* A request waits with a ticket of its own, or no more. */
    void (*request_queued)(struct request *r);
    void (*request_dequeued)(struct request *r);
};

#endif
