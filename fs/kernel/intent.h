/* intent: what a request means to do, in memory that outlives the daemon.
 *
 * A daemon may die after the store has done what a request wants, and before the reply.  The next daemon handles the
 * same request again, and may not do it twice, or refuse it because it was done.  So a request writes here what it
 * means before it asks the store, and the second run does that and nothing else.  Most requests need nothing: what they
 * want is there already when they look again.
 *
 * request                     intent                        the second run
 * --------------------------  ----------------------------  ----------------------------------------------------------
 * any that was answered with  `failed`                      gives the same answer
 *   an error
 * LOOKUP, CREATE, MKNOD, …    `raised`, `lookups`           takes the look-up back, and raises it again
 * CREATE, OPEN                `handle`                      opens the file under the same number
 * CREATE with O_EXCL, MKNOD,  `begun`                       a lease of the caller on the name is the one that it made:
 * 0 SYMLINK, LINK CREATE, OPEN, WRITE,        -                             finds the lease of its process, and goes on
 * as its owner SETATTR, FLUSH, RELEASE CREATE of a ticket          `handle`                      the ticket that names
 * this handle is the one that it made flock, fcntl: lock          -                             finds the lock on its
 * handle, and converts it to itself unlock                    -                             releases what the handle
 * still has: nothing, 0 WRITE with O_APPEND         `offset`                      writes the same bytes at the same
 * place WRITE, truncate, times      -                             the same again UNLINK                      `begun`,
 * `fence`: the         releases what is left of them; 0, also if nothing is: a greatest token that it        later
 * holder has a greater token releases RENAME                      `begun`, `fence`, `node`      if the source has no
 * lease with that token it was renamed: the node gets the new name; 0 MKDIR                       `begun`, `when`
 * EEXIST, and the directory has the mtime, owner and mode of this request: it made it: 0 RMDIR `begun` ENOENT: 0
 * user.lease.release          `begun`                       ESTALE: 0
 * user.lease.break            `begun`, `fence`, `guarded`   another token, or a guard that there was not: 0
 * other attributes            -                             the same again
 * FORGET                      -                             is not repeated
 *
 * If the kernel refuses the reply of the second run with ENOENT, it has the first one: then the handle and the look-up
 * of the second run are those that the kernel knows.
 */
#ifndef FS_KERNEL_INTENT_H
#define FS_KERNEL_INTENT_H

#include <stdint.h>

struct intent {
    uint64_t raised;  /* number of the node whose look-ups the reply raises */
    uint64_t lookups; /* of that before */
    uint64_t handle;  /* number of the handle that it opens */
    uint64_t fence;
    uint64_t node;    /* number of the node that it renames, or makes for a ticket */
    uint64_t offset;  /* of an append, and 1 */
    int64_t when[2];  /* seconds and nanoseconds */
    uint32_t begun;   /* the store was asked to do it, or is about to be */
    uint32_t replies; /* with the look-up or the handle */
    int32_t failed;   /* negated errno of the answer */
    uint32_t guarded; /* a guard keeps the lock that is broken */
};

#endif
