/* control: the directory .leasefs in the root, which shows the mount's state to people and monitors.
 *
 *     status    the mount and its store              locks     locks that this mount holds
 *     metrics   for Prometheus                       waiters   who waits for which lock
 *
 * A look-up finds the name, and no listing shows it.  Whoever may read the root may
 * read these files.  Nothing in there can be made, removed or written (EPERM), or locked
 * (ENOLCK), and no lock can have that name.
 *
 * A file shows the state at its open.  Only long tables are written as they are read, a slice at a time between other
 * requests: then each line shows the state when it is written, but the number of a lock's waiters is that of the lock's
 * first line.  A lock or waiter that exists from the open until its line is due appears exactly once; later ones do not
 * appear.  The last MiB that was read can be read again.  A read at an earlier offset starts a new table, of the state
 * at this read.
 *
 *     control  names, open files, and the lists of holds and waits, as fs->observer
 *     table, text, metrics  the content of the files     report  lines about locks in the log
 */
#ifndef FS_CONTROL_CONTROL_H
#define FS_CONTROL_CONTROL_H

#include <string.h>

#include "fs/fs.h"
#include "fs/kernel/metrics.h"
#include "fs/kernel/observer.h"
#include "fs/kernel/tree.h"

#define CONTROL_NAME ".leasefs"

struct control_file;

/* For node->record->control. */
enum control_node {
    CONTROL_NONE,
    CONTROL_DIRECTORY,
    CONTROL_STATUS,
    CONTROL_LOCKS,
    CONTROL_WAITERS,
    CONTROL_METRICS,
    CONTROL_NODES
};

/* The lists of the mount's holds and waits. */
enum control_list {
    CONTROL_UNLISTED,
    CONTROL_HELD,     /* struct hold */
    CONTROL_WAITING,  /* struct hold: waiting tickets */
    CONTROL_REQUESTS, /* struct request: waits of lock owners (fcntl), which share one hold */
    CONTROL_GUARDED,  /* struct guard */
    CONTROL_LISTS
};

TAILQ_HEAD(control_files, control_file);

struct control {
    struct observed_list lists[CONTROL_LISTS];
    struct node *nodes[CONTROL_NODES];
    struct control_files files; /* open */
    unsigned open;
    struct request_queue reads; /* parked until their slice is written */
    ev_idle slices;
    clock_ms contended; /* when the log last reported that; 0: never */
};

struct control *control_new(struct fs *fs);
/* Replies to the parked reads. */
void control_stop(struct fs *fs);
void control_free(struct fs *fs);

/* --- requests -------------------------------------------------------------------- */

/* Is it .leasefs, or in it? */
static inline bool control_owns(const struct node *parent, const char *name)
{
    return parent->record->control || (!parent->parent && strcmp(name, CONTROL_NAME) == 0);
}

/* Each ends the request. */
void control_lookup(struct request *r);
void control_getattr(struct request *r);
void control_open(struct request *r);
void control_read(struct request *r);
void control_poll(struct request *r);
void control_release(struct request *r);
void control_readdir(struct request *r);
void control_listxattr(struct request *r);
/* For requests that .leasefs does not allow, by r->operation. */
void control_refuse(struct request *r);

/* --- content of the files: table.c, text.c, metrics.c ------- */

/* Each appends the line of one hold, guard, waiting ticket or waiting request.  `counts` belongs to the open file, maps
 * nodes to numbers, and has a reference to each node.  In the table of waits the number is that of the lines so far of
 * tickets that wait for the name; in the table of locks: 1 + the number of waiters at the name's first line. */
void control_add_held(struct fs *fs, GString *text, struct hold *hold, GHashTable *counts);
/* Appends no line if the guard has ended. */
void control_add_guarded(struct fs *fs, GString *text, struct guard *guard, GHashTable *counts);
void control_add_waiting(struct fs *fs, GString *text, struct hold *hold, GHashTable *counts);
void control_add_request(struct fs *fs, GString *text, struct request *r);
extern const char control_locks_header[], control_waiters_header[];

void control_add_status(struct fs *fs, GString *text);
void control_add_metrics(struct fs *fs, GString *text);

#endif
