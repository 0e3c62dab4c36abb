/* engine: the backend of every store that keeps records; see store.h and private.h. */
#ifndef BACKEND_RECORD_ENGINE_H
#define BACKEND_RECORD_ENGINE_H

#include "backend/record/store.h"

struct engine_options {
    int64_t timeout;      /* ms after which a call is answered with UNREACHABLE */
    int64_t grace;        /* the longest grace period, ms; 0: 1 h */
    int64_t term;         /* ms: that of most locks of this mount */
    const char *identity; /* of the mount, the same when it starts again, and no other's: by it its tickets are found
                             again; NULL: they are not */
    const char *text;     /* how it describes itself to other mounts: see backend/format.h */
    const char *address;  /* the store's, for messages and the status */
    void (*random)(void *bytes, size_t size); /* NULL: getrandom(2) */
    uint32_t seed;                            /* of pauses */
};

/* Takes the store over.  0 or -errno; then the store is freed. */
int engine_new(struct store *store, const struct engine_options *options, struct backend **ret_backend);

#endif
