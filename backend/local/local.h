/* local: the embedded store; lockspace + journal + the loop's timers. */
#ifndef BACKEND_LOCAL_LOCAL_H
#define BACKEND_LOCAL_LOCAL_H

#include "backend/backend.h"

struct local_options {
    const char *directory; /* of the journal; NULL: nothing is kept (`memory`) */
    bool sync_always;      /* fdatasync before a grant of a lease is told */
    uint32_t seed;
    uint64_t compact_min; /* bytes below which the journal is left to grow; 0: 1 MiB */
    uint32_t fence_step;  /* us: fencing tokens reserved at a time; 0: 10 s */
    const char *boot_id;  /* which boot this is; NULL: ask the kernel */
};

/* Reads the store back and returns it, to be started with backend_start.
 * 0, or -errno with one line in `error` that says what is wrong and what to do.
 * Fork before, not after: the store belongs to the process that opened it.  No
 * thread of its own runs before it is started. */
int local_new(const struct local_options *options, struct backend **ret_backend, char *error, size_t error_size);

#endif
