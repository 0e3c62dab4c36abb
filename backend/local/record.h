/* record: the payloads of a local backend's journal records.
 *
 * All integers are little-endian; a name or boot id is a u32 length (with the
 * NUL) and its bytes; a GBytes is a u32 length and its bytes, UINT32_MAX for
 * NULL.  A record of an unknown type or length was written by another version,
 * and refuses the start.
 *
 *     SESSION    i64 boottime, i64 wall clock, boot id
 *     FENCE      u64 bound of all fencing tokens so far, u64 bound of the numbers of
 *                all queues so far (older versions left this one out: then the first
 *                bounds both)
 *     LEASE      u64 fence, u64 the fence it had before or 0, u8 flags, i64 ttl,
 *                i64 acquired, i64 deadline, name, meta, content: its whole state;
 *                with LOCAL_LEASE_TARGET then u64 fence of the lease whose name it
 *                took, and which ended; with LOCAL_LEASE_BROKEN or
 *                LOCAL_LEASE_RELEASED it was revoked, and only its guard holds; with
 *                LOCAL_LEASE_HANDLE it is a handle lock that holds: u8 kind, u32 count
 *                of segments, and for each u64 start, u64 end, u8 mode (count 0: the
 *                whole lock); LOCAL_RESTING as the deadline: a full term after a
 *                restart
 *     END        u64 fence
 *     RENEWALS   any number of: u64 fence, i64 ttl, i64 deadline
 *     CHANGE     u64 fence, u8 enum of backend_set, meta, content
 *     DIRECTORY  name, i64 ttl, u32 width, i64 delay, u64 sequence, meta: its whole
 *                state
 *     RMDIR      name
 *     UNTIMED    renewals may be missing from here on, so after a restart each lease
 *                so far gets a full term
 */
#ifndef BACKEND_LOCAL_RECORD_H
#define BACKEND_LOCAL_RECORD_H

#include "backend/backend.h"

#define LOCAL_RESTING 0

enum local_record {
    LOCAL_SESSION = 1,
    LOCAL_FENCE,
    LOCAL_LEASE,
    LOCAL_END,
    LOCAL_RENEWALS,
    LOCAL_CHANGE,
    LOCAL_DIRECTORY,
    LOCAL_RMDIR,
    LOCAL_UNTIMED,
};

enum {
    LOCAL_LEASE_HELD = 1,
    LOCAL_LEASE_SEQUENCE = 2,
    LOCAL_LEASE_SHARED = 4,
    LOCAL_LEASE_TARGET = 8,
    LOCAL_LEASE_BROKEN = 16,
    LOCAL_LEASE_RELEASED = 32,
    LOCAL_LEASE_HANDLE = 64,
};

struct local_session {
    clock_ms boottime; /* both clocks read together */
    int64_t wall;
    const char *boot_id;
};

/* The LEASE record: a lease, or a handle lock that holds. */
struct local_lease {
    const char *name;
    uint64_t fence;
    uint64_t replaces; /* its fencing token in its earlier record; 0: the same */
    uint64_t target;   /* with LOCAL_LEASE_TARGET: fencing token of the lease that the rename replaced */
    uint8_t flags;     /* of LOCAL_LEASE_ */
    uint8_t kind;      /* enum backend_kind: LEASE, or with LOCAL_LEASE_HANDLE another */
    int64_t ttl;
    clock_ms acquired;
    clock_ms deadline;
    GBytes *meta;
    GBytes *content;
    GArray *segments; /* of struct backend_segment; NULL: the whole lock */
};

/* For `flags`. */
static inline unsigned local_lease_handle_flag(enum backend_kind kind)
{
    return kind == BACKEND_FLOCK || kind == BACKEND_FCNTL ? LOCAL_LEASE_HANDLE : 0;
}

/* Writing: appends to `out`. */
void local_record_u64(GByteArray *out, uint64_t value);
void local_record_string(GByteArray *out, const char *text);
void local_record_bytes(GByteArray *out, GBytes *bytes);
void local_record_session(GByteArray *out, const struct local_session *session);
void local_record_lease(GByteArray *out, const struct local_lease *lease);
void local_record_directory(GByteArray *out, const char *name, const struct backend_directory *directory);

/* Reading: a field that is missing reads as 0, "" or NULL and sets `bad`. */
struct local_reader {
    const uint8_t *at;
    size_t left;
    bool bad;
};

uint8_t local_read_u8(struct local_reader *in);
uint64_t local_read_u64(struct local_reader *in);
int64_t local_read_time(struct local_reader *in);       /* bad if so large that sums of times could overflow */
const char *local_read_string(struct local_reader *in); /* borrowed from the record */
GBytes *local_read_bytes(struct local_reader *in);      /* a new reference, or NULL */
/* The same for bytes that often repeat: returns a reference to *last if they are equal, and else replaces it. */
GBytes *local_read_shared(struct local_reader *in, GBytes **last);
/* Strings are borrowed, GBytes and segments are new references; `last_meta`: see local_read_shared. */
void local_read_session(struct local_reader *in, struct local_session *ret_session);
void local_read_lease(struct local_reader *in, GBytes **last_meta, struct local_lease *ret_lease);
const char *local_read_directory(struct local_reader *in, struct backend_directory *ret_directory);

#endif
