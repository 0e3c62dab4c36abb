/* control: the directory .leasefs in the root, through which people and monitors
 * look inside.
 *
 *     status    what is mounted, and how it is       locks     what this mount holds
 *     metrics   for Prometheus                       waiters   who waits for what
 *
 * The name is found by look-up and never listed.  Whoever may read the root may
 * read these files; nothing in there can be made, removed or written (EPERM), or
 * locked (ENOLCK), and no lock can have that name.
 *
 * An open shows how things were then.  Only the tables of very many locks are
 * written as they are read, a slice at a time between other requests: then a
 * line is true when it is written; and what was there at the open and still is
 * when its turn comes is told exactly once, and nothing that came later is.
 *
 *     control  names, open files, and the lists of what is held and waits: fs->observer keeps them
 *     table, text, metrics  what the files show       report  what the log says of locks
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
struct fuse_pollhandle;

/* What a node is: node->control. */
enum control_node {
    CONTROL_NONE,
    CONTROL_DIRECTORY,
    CONTROL_STATUS,
    CONTROL_LOCKS,
    CONTROL_WAITERS,
    CONTROL_METRICS,
    CONTROL_NODES
};

/* On which list of the mount's holds and waits something is. */
enum control_list {
    CONTROL_UNLISTED,
    CONTROL_HELD,     /* struct hold */
    CONTROL_WAITING,  /* struct hold: tickets that wait */
    CONTROL_REQUESTS, /* struct request: waits of lock owners (fcntl), which share one hold */
    CONTROL_LISTS
};

TAILQ_HEAD(control_files, control_file);

struct control {
    struct observed_list lists[CONTROL_LISTS];
    struct node *nodes[CONTROL_NODES];
    struct control_files files; /* open */
    unsigned open;
    struct request_queue reads; /* parked until enough is written */
    ev_idle slices;
    clock_ms started;
    clock_ms contended; /* when the log last told of that; 0: never */
};

struct control *control_new(struct fs *fs);
/* Answers the reads that are parked. */
void control_stop(struct fs *fs);
void control_free(struct fs *fs);

/* --- requests -------------------------------------------------------------------- */

/* Is that name in that directory the control directory or in it? */
static inline bool control_owns(const struct node *parent, const char *name)
{
    return parent->control || (!parent->parent && strcmp(name, CONTROL_NAME) == 0);
}

/* Each ends the request. */
void control_lookup(struct request *r);
void control_getattr(struct request *r);
void control_open(struct request *r);
void control_read(struct request *r);
void control_poll(struct request *r, struct fuse_pollhandle *poll);
void control_release(struct request *r);
void control_readdir(struct request *r);
void control_listxattr(struct request *r);
/* What cannot be done there, by r->operation. */
void control_refuse(struct request *r);

/* --- what the files show: table.c, text.c, metrics.c ------- */

/* Appends the line of what is on a list.  `places`: how many before it wait for the
 * same (node -> number). */
void control_add_held(struct fs *fs, GString *text, struct hold *hold);
/* The lines of what guards keep from others. */
void control_add_guarded(struct fs *fs, GString *text);
void control_add_waiting(struct fs *fs, GString *text, struct hold *hold, GHashTable *places);
void control_add_request(struct fs *fs, GString *text, struct request *r);
extern const char control_locks_header[], control_waiters_header[];

void control_add_status(struct fs *fs, GString *text);
void control_add_metrics(struct fs *fs, GString *text);

#endif
