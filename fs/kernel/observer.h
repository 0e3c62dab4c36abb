/* observer: what control learns of holds and requests as it happens.
 *
 * The rooms below call it, and do not depend on what it does.
 */
#ifndef FS_KERNEL_OBSERVER_H
#define FS_KERNEL_OBSERVER_H

#include <sys/queue.h>

#include "backend/backend.h"

struct fs;
struct guard;
struct hold;
struct request;

/* In a hold, a guard or a request: its link in the observer's list, in order of arrival. */
struct observed {
    TAILQ_ENTRY(observed) link;
};

TAILQ_HEAD(observed_list, observed);

struct observer {
    /* It was granted, or converted to this kind.  Called before hold->kind is set. */
    void (*granted)(struct fs *fs, struct hold *hold, enum backend_kind kind);
    /* It waits in a queue. */
    void (*queued)(struct fs *fs, struct hold *hold);
    /* The backend ended it, for this reason. */
    void (*ended)(struct fs *fs, struct hold *hold, enum backend_end why);
    /* It is forgotten.  With hold->ended the backend ended it; else its user released it. */
    void (*gone)(struct fs *fs, struct hold *hold);
    /* A guard begins to keep a lost lock from others; the guard is freed. */
    void (*guarded)(struct fs *fs, struct guard *guard);
    void (*unguarded)(struct fs *fs, struct guard *guard);
    /* A descendant of the lease's owner opened the file itself, and was not allowed to write. */
    void (*contended)(struct request *r, struct hold *lease);
    /* A request waits with a ticket of its own, or waits no longer. */
    void (*request_queued)(struct request *r);
    void (*request_dequeued)(struct request *r);
};

#endif
