/* keeper: a process that keeps what the next daemon needs, and unmounts for the daemon.
 *
 * It is the daemon's child.  It has the kernel's connection and kept memory, so both outlive the daemon.  When the
 * daemon ends, it has the next one started, and hands them over to it; that one has a keeper of its own.  If no daemon
 * comes in time, it ends the connection: then every call through an open file fails.
 *
 * A daemon in its sandbox has no right to unmount, and cannot run fusermount3: the keeper does that, too.  It unmounts
 * as mountpoint_clear does: not a mount that somebody has made there since.
 *
 * While walks are made, the keeper also looks into other processes for the daemon: see fs/process/walker.h.
 */
#ifndef FS_DAEMON_KEEPER_H
#define FS_DAEMON_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct keep;
struct keeper;
struct options;

/* Forks it.  Call it before the store is opened, because the child shares its memory, and from the thread that ends
 * with the daemon.  `managed`: a service manager starts the next daemon.  0, or -errno. */
int keeper_start(const struct options *options, bool managed, struct keeper **ret_keeper);

struct keeper_gift {
    int connection;
    struct keep *keep; /* locked by this thread */
    dev_t device;      /* of the mount */
    int store;         /* what keeps other daemons from a local store; -1: none */
    int abort;         /* of mountpoint_open_abort; or -errno */
};

/* From now on it keeps these for the next daemon, and notices a crash of this thread.  If something is missing, this
 * logs what, and the mount ends with the daemon. */
void keeper_give(struct keeper *keeper, const struct keeper_gift *gift);

/* The mount answers: from now on other daemons find this keeper. */
void keeper_publish(struct keeper *keeper);

/* The socket for openers_new, which the caller owns from now on; -1 the second time. */
int keeper_take_walker(struct keeper *keeper);

/* Readable when keeper_must_end has something to say. */
int keeper_descriptor(const struct keeper *keeper);
/* Does another daemon wait to take over? */
bool keeper_must_end(struct keeper *keeper);

/* Waits up to ten seconds until the mount is gone.  The caller has closed /dev/fuse.  0, or -errno with one line in
 * `error`. */
int keeper_unmount(struct keeper *keeper, char *error, size_t error_size);

/* Ends the process.  NULL is allowed. */
void keeper_free(struct keeper *keeper);

#endif
