/* local: the embedded store; lockspace + journal + the loop's timers. */
#ifndef BACKEND_LOCAL_LOCAL_H
#define BACKEND_LOCAL_LOCAL_H

#include "backend/backend.h"

struct local_options {
    const char *directory; /* of the journal; NULL: no journal (`memory`) */
    bool sync_always;      /* report the grant of a lease only after an fdatasync */
    uint32_t seed;
    uint64_t compact_min; /* bytes: a smaller journal is not compacted; 0: 1 MiB */
    uint32_t fence_step;  /* us: fencing tokens reserved at a time; 0: 10 s */
    const char *boot_id;  /* NULL: read it from the kernel */
    const int *lock;      /* see journal_open_in_boot */
};

/* Opens the store and restores its locks; start it with backend_start.  0, or
 * -errno with one line in `error` that says what is wrong and what to do.  The
 * store belongs to the process that opened it, so fork before this call.  It has
 * no thread before it is started. */
int local_new(const struct local_options *options, struct backend **ret_backend, char *error, size_t error_size);

/* The lock of the directory: see journal_lock_descriptor.  -1: it has none. */
int local_lock_descriptor(const struct backend *backend);

#endif
