/* openers: which processes have files of a dead mount open.
 *
 * When a daemon ends, its handle locks belong to the processes that have their files
 * open.  A file is recognised by the device of the dead mount and its inode number.  The
 * daemon itself is not allowed to look into processes.  So it asks the privileged child
 * over a socket (walker.h), and nothing here blocks.
 *
 * A walk looks at every process.  It serves all files, and everybody who asks within
 * 100 ms.  A walk happens when a file is added, when openers_ask is called, when a known
 * opener ends, and every second while somebody waits, else every ten.  Walks use at most a tenth of a
 * processor.
 *
 * OPENERS_NOBODY is final, and is reported
 *
 *  - after two walks in a row that saw no opener, if between them no known opener ended,
 *    every process could be looked into, and no descriptor was on its way through a unix
 *    socket;
 *  - or when the kernel has removed the dead mount's connection (fusectl), which it does
 *    when the last descriptor of that mount is closed.  Only this counts for a file that
 *    a process of a hidden pid namespace had opened.
 *
 * As long as the connection is there, the kernel gives its device number to no other
 * mount.
 *
 * The room's files for this:
 *
 *     openers  the daemon's side    walker  the privileged child's side    walk  one look at every process
 *     connection  the fusectl directory of a mount
 */
#ifndef FS_PROCESS_OPENERS_H
#define FS_PROCESS_OPENERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ev_loop;
struct owner;
struct owner_table;
struct openers;      /* opaque */
struct openers_file; /* opaque: one subscription to one file */

struct openers_process {
    struct owner *owner; /* its identity, pid and command; take a reference to keep it */
    uid_t uid;           /* effective */
    bool single_threaded;
    bool unseen; /* it could not be looked into, so it counts while it lives */
};

enum openers_verdict {
    OPENERS_SOME,   /* `processes` have the file open, or may have */
    OPENERS_UNSURE, /* no process was seen with it, which is not certain yet */
    OPENERS_NOBODY, /* nobody has it open, for good */
};

/* What a walk found for one file. */
struct openers_found {
    enum openers_verdict verdict;
    const struct openers_process *processes; /* valid during the callback; sorted by pid */
    size_t count;                            /* 0 unless OPENERS_SOME */
};

/* Called after each walk, for each file.  It may call everything here but openers_free. */
typedef void openers_callback(struct openers_file *file, const struct openers_found *found, void *arg);

/* `socket`: to the privileged child, from unmounter_take_walker; owned from now on.  -1: there is no child, so no file
 * is ever reported.  `owners` is the caller's, and lives longer. */
struct openers *openers_new(struct ev_loop *loop, struct owner_table *owners, int socket);
/* Removes all files.  NULL is allowed. */
void openers_free(struct openers *openers);

/* The device number of this daemon's own mount.  A dead mount that had this number is gone. */
void openers_set_own_device(struct openers *openers, dev_t device);

/* Watches the file `inode` of the dead mount `device`, and walks soon.  `opener`: the process that opened it, as far as
 * is known, or NULL; a reference is taken.  Without CAP_SYS_PTRACE, that process counts as long as it lives if it
 * cannot be looked into.  `hidden`: a process of a pid namespace that the daemon cannot see opened it.  The same file
 * may be added several times.  OPENERS_OTHER as `inode`: any file of that mount that was not added. */
#define OPENERS_OTHER 0
struct openers_file *openers_add(struct openers *openers, dev_t device, ino_t inode, struct owner *opener, bool hidden,
                                 openers_callback *callback, void *arg);
/* NULL is allowed. */
void openers_remove(struct openers_file *file);

/* Somebody asks for a lock: walks as soon as the limits allow.  The walk begins after this call. */
void openers_ask(struct openers *openers);

/* Is a walk under way, or still to come, that openers_ask has asked for? */
bool openers_is_wanted(const struct openers *openers);

/* Walks every second from now on, or no longer. */
void openers_set_waited_for(struct openers *openers, bool waited_for);

struct openers_metrics {
    uint64_t walks;
    int64_t last_ns; /* processor time that the last walk took */
    size_t files;    /* different ones that are watched */
    bool blind;      /* the child lacks CAP_SYS_PTRACE, or may not use it; known after the first walk */
    bool lost;       /* the child has ended: every file keeps its last verdict */
};

void openers_measure(const struct openers *openers, struct openers_metrics *ret_metrics);

#endif
