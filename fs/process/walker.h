/* walker: walks for the daemon, in the privileged child.
 *
 * A request has the files to look for, a reply what a walk found, and which dead mounts
 * are gone.  Each walk is made in a process of its own, so that a file system that never
 * answers stops only that walk.
 *
 * Both sides are the same program, so messages are structs.
 */
#ifndef FS_PROCESS_WALKER_H
#define FS_PROCESS_WALKER_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/process/walk.h"

#define WALKER_FILES_MAX (1u << 24)
#define WALKER_SAME_FILES UINT32_MAX /* as in the request before */

/* Followed by `files` times struct walk_file, sorted, without doubles. */
struct walker_request {
    uint32_t files;
};

enum walker_state {
    WALKER_PRESENT, /* it was there during the whole walk, so its number meant nothing else */
    WALKER_GONE,    /* the kernel has removed the mount */
    WALKER_UNKNOWN, /* fusectl is out of reach */
};

struct walker_mount {
    uint64_t device;
    uint32_t state;
};

/* Followed by `openers` times struct walk_opener, then `mounts` times struct walker_mount. */
struct walker_reply {
    uint32_t openers, mounts;
    uint64_t processor_ns;
    uint32_t processes;
    uint8_t failed; /* no walk was made */
    uint8_t settled, in_flight;
    uint8_t blind; /* the child lacks CAP_SYS_PTRACE, or may not use it */
};

struct walker; /* opaque */

/* In the child, before it is confined.  `socket` stays the caller's. */
struct walker *walker_new(int socket, bool blind);

/* What to poll besides the socket, for reading; -1: nothing. */
int walker_descriptor(const struct walker *walker);

/* The socket is readable.  False at its end. */
bool walker_receive(struct walker *walker);

/* walker_descriptor is readable.  False if the daemon is gone. */
bool walker_collect(struct walker *walker);

#endif
