/* store_private: shared by the two files of the store.
 *
 * store.c  beginning and end, fencing tokens, compaction
 * write.c  records, and the room for them
 */
#ifndef BACKEND_LOCAL_STORE_PRIVATE_H
#define BACKEND_LOCAL_STORE_PRIVATE_H

#include "backend/local/store.h"

struct journal;

/* Every fencing token, and every number of a queue, that was given out is below these. */
struct local_marks {
    uint64_t fence;
    uint64_t number;
};

enum compacting { COMPACT_IDLE, COMPACT_COPYING, COMPACT_FINISHING };

struct local_store {
    struct journal *journal;
    struct lockspace *space;
    char *directory;
    char *boot_id;
    bool sync_always;
    bool pending;          /* the batch is not empty */
    bool lasting;          /* the batch has more than handle locks, so sync_always requires a sync */
    bool full;             /* the last request for room on the disk failed */
    bool roomless;         /* the filesystem cannot reserve room: only a write shows whether there is any */
    bool untimed;          /* the last record about deadlines was UNTIMED */
    GArray *ends;          /* uint64_t: fencing tokens of ends not yet written */
    bool unwritten;        /* their records were dropped with a batch */
    bool reported;         /* the failure of the journal was logged */
    clock_ms failed_at;    /* when that was */
    clock_ms checked_at;   /* when the paths of the files were last checked */
    bool displaced;        /* the files are no longer at their paths */
    clock_ms displaced_at; /* when that was noticed */
    GByteArray *record;
    int64_t wall; /* wall clock minus CLOCK_BOOTTIME in the last session record, in ms */
    uint64_t fence_step;
    struct local_marks reserved;  /* synced */
    struct local_marks reserving; /* in force once the journal is synced up to reserving_sequence */
    uint64_t reserving_sequence;  /* 0: no reservation is pending */
    GHashTable *numbers;          /* directory -> uint64_t: numbers below this are reserved */
    uint64_t compact_min;
    uint64_t compact_at;       /* the journal's size at which compaction begins */
    uint64_t compact_most;     /* the most locks since the last compaction */
    uint64_t compact_sequence; /* the last record before it */
    enum compacting compacting;
    int compact_error;
    uint64_t compact_bytes; /* copied in this step */
    char cursor[LOCAL_NAME_MAX];
};

/* If the journal has failed, logs it once. */
void local_store_report_failure(struct local_store *store);
/* Names held, and tickets that wait. */
uint64_t local_store_locks(const struct local_store *store);
/* Bytes of room for the ends of all locks, and what a restart writes. */
uint64_t local_store_room_of_ends(const struct local_store *store);
struct local_session local_store_present_session(const struct local_store *store);
/* Empties store->record and returns it; local_store_put_record adds it to the batch. */
GByteArray *local_store_fresh_record(struct local_store *store);
enum backend_result local_store_put_record(struct local_store *store, enum local_record type);
enum backend_result local_store_put(struct local_store *store, enum local_record type, const void *payload,
                                    size_t length);
/* On a full disk one UNTIMED record replaces all renewals that follow. */
enum backend_result local_store_put_untimed(struct local_store *store);
/* Puts the directory, as a restart must find it, into store->record. */
void local_store_record_directory(struct local_store *store, const char *name,
                                  const struct backend_directory *directory);

#endif
