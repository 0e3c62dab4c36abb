/* store_private: what the two files of the store share.
 *
 * store.c  beginning and end, fencing tokens, compaction
 * write.c  records, and the room for them
 */
#ifndef BACKEND_LOCAL_STORE_PRIVATE_H
#define BACKEND_LOCAL_STORE_PRIVATE_H

#include "backend/local/store.h"

struct journal;

/* Upper bounds: every number given out is below these. */
struct local_marks {
    uint64_t fence;  /* fencing tokens */
    uint64_t number; /* those of queues */
};

enum compacting { COMPACT_IDLE, COMPACT_COPYING, COMPACT_FINISHING };

struct local_store {
    struct journal *journal;
    struct lockspace *space;
    char *directory;
    char *boot_id;
    bool sync_always;
    bool pending;    /* the batch is not empty */
    bool lasting;    /* it has more than handle locks, so sync_always asks for a sync */
    bool full;       /* the last that asked for room found none */
    bool roomless;   /* the filesystem gives no room ahead: writing tells whether there is any */
    bool untimed;    /* the journal says that renewals may be missing, and has none since */
    GArray *ends;    /* uint64_t: fencing tokens of ends not yet written */
    bool unwritten;  /* they are in no batch */
    bool reported;   /* that the journal failed, */
    clock_ms failed; /* then */
    clock_ms looked; /* when the files were last seen in their place */
    bool displaced;  /* they are not any more, */
    clock_ms missed; /* as was noticed then */
    GByteArray *record;
    int64_t wall; /* the wall clock less the other, by the last session's record, in ms */
    uint64_t fence_step;
    struct local_marks reserved;  /* what is below may be used, */
    struct local_marks reserving; /* and what is below these */
    uint64_t reserving_sequence;  /* once the journal is synced up to here; 0: nothing asked for */
    GHashTable *numbers;          /* directory -> uint64_t: numbers below this are reserved */
    uint64_t compact_min;
    uint64_t compact_at;       /* the journal's size at which compaction begins */
    uint64_t compact_most;     /* the most locks since the last one, */
    uint64_t compact_sequence; /* and the last record before it */
    enum compacting compacting;
    int compact_error;
    uint64_t compact_bytes; /* copied in this step */
    char cursor[LOCAL_NAME_MAX];
};

/* Logs, once, that the journal has failed if it has. */
void local_store_report_failure(struct local_store *store);
/* Names held, and tickets that wait. */
uint64_t local_store_locks(const struct local_store *store);
struct local_session local_store_present_session(const struct local_store *store);
/* store->record, empty; what is in it then goes into the batch. */
GByteArray *local_store_fresh_record(struct local_store *store);
enum backend_result local_store_put_record(struct local_store *store, enum local_record type);
enum backend_result local_store_put(struct local_store *store, enum local_record type, const void *payload,
                                    size_t length);
/* Instead of renewals, on a full disk: one does for all that follow. */
enum backend_result local_store_put_untimed(struct local_store *store);
/* `name`, which *ret_lease borrows, is the ticket's. */
void local_store_describe_ticket(const struct backend_ticket *ticket, const char *name, struct local_lease *ret_lease);
/* In store->record, the directory as it is to be found after a crash. */
void local_store_record_directory(struct local_store *store, const char *name,
                                  const struct backend_directory *directory);

#endif
