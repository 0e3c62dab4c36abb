/* record: the queue of a lock, or of a directory, as a value and as bytes.
 *
 * A store that keeps records has one for each lock that is held, and one for each directory.  A mount reads the bytes,
 * loads them into a lockspace, changes that, saves it into a new record and writes the bytes.  The rule that grants is
 * the lockspace's own.
 *
 * Two values are not known to the mount that writes a record: the stamp that the store gives it, and the time of the
 * store at that moment.  Values that depend on them are marked as new, and a reader computes them from the stamp and
 * the time that the store keeps beside the bytes:
 *
 *   - The record gives out `tokens` new fencing tokens.  The last of them is the stamp, so the first is
 *     stamp - tokens + 1, and the next stamp is above all of them.  In a lockspace they begin at RECORD_NEW_TOKENS.
 *   - A new deadline is a term from the time of the swap; the time of a new grant is the time of the swap.
 *   - The deadline of the only ticket may be the end of the record (`ends_with_record`), which the store can move
 *     without a change of the bytes.
 *
 * The next writer knows these values and writes them out.  Times are in ms of the store's clock.
 */
#ifndef BACKEND_LOCKSPACE_RECORD_H
#define BACKEND_LOCKSPACE_RECORD_H

#include "backend/lockspace/lockspace.h"

#define RECORD_TICKETS_MAX 4096
#define RECORD_BYTES_MAX (256 * 1024)
#define RECORD_CONTENT_MAX 1024 /* bytes of content in a record; more is a value of its own */
#define RECORD_NEW_TOKENS ((uint64_t)1 << 62)
#define RECORD_FOREVER (INT64_MAX / 4) /* the end of what does not end */

#define RECORD_DELAY (BACKEND_FCNTL + 1)          /* a ticket's kind: it keeps a name refused for a lock-delay */
#define RECORD_FOREIGN_HOLDER (BACKEND_FCNTL + 2) /* another client of the store holds; it is never in the bytes */

struct record_id {
    uint64_t half[2]; /* both 0: none */
};

static inline bool record_id_equal(struct record_id a, struct record_id b)
{
    return a.half[0] == b.half[0] && a.half[1] == b.half[1];
}

static inline bool record_id_is_set(struct record_id id)
{
    return id.half[0] || id.half[1];
}

struct record_ticket {
    struct record_id id, mount; /* none: of a delay */
    char *leaf;                 /* in a directory's record: its name there ("" for the delay of a queue); else NULL */
    bool sequence;              /* in the directory's queue */
    bool held;
    bool claim;         /* granted, and its mount has not claimed it yet; `deadline` is that of the claim */
    bool content_apart; /* its content is a value of its own in the store */
    uint8_t kind, mode;
    uint8_t guarded; /* as in struct backend_ticket */
    uint64_t fence;  /* the place in its queue, too */
    uint64_t handle, lock_owner;
    clock_ms acquired, deadline; /* CLOCK_NEVER as the deadline: it waits */
    bool acquired_new, deadline_new;
    int64_t ttl;
    GArray *segments; /* of FCNTL, except in a queue of sequence tickets; else NULL */
    GBytes *meta, *content;
};

struct record {
    bool directory;
    struct backend_directory attributes; /* of a directory; meta is a reference */
    struct record_id made;               /* of a directory: which mkdir made it */
    uint64_t granted;                    /* the highest fencing token that was granted */
    uint32_t tokens;                     /* new fencing tokens */
    bool ends_with_record;               /* the deadline of its only ticket is `after` ms before the record's end */
    int64_t after;
    GPtrArray *tickets; /* struct record_ticket, by fencing token */
};

struct record *record_new(bool directory);
struct record *record_copy(const struct record *record);
/* NULL is allowed. */
void record_free(struct record *record);
struct record_ticket *record_ticket_copy(const struct record_ticket *ticket);
void record_ticket_free(gpointer ticket);
/* NULL: it has none with that id. */
struct record_ticket *record_find(const struct record *record, struct record_id id);

/* The bytes, for a swap that is computed for the time `now`.  NULL: more than a record may have. */
GBytes *record_write(const struct record *record, clock_ms now);
/* What the store has, with the stamp, time and end beside it.  NULL: these bytes are no record.  They may come from a
 * stranger: each field is checked. */
struct record *record_read(GBytes *bytes, bool directory, uint64_t stamp, clock_ms time, clock_ms end);

/* Loads the record into directory `name`, which is made; attributes: of a lock's record those of the directory that it
 * is in.  The lock of a lock's record is "NAME/" RECORD_LEAF.  Each ticket's `user` is its struct record_ticket. */
#define RECORD_LEAF "l"
void record_load(struct lockspace *space, const char *name, const struct record *record,
                 const struct backend_directory *attributes);
/* The directory's present state as a new record.  A ticket's `user` is the struct record_ticket that gives what the
 * lockspace does not know; NULL: none of it. */
struct record *record_save(struct lockspace *space, const char *name, const struct record *before);

/* The rest are steps of the rule that a store with one authority does not need. */

/* From now on no waiter is granted: the grace period of the store. */
void record_close(struct lockspace *space);
/* Sets when a ticket ends, and nothing else: a new deadline, which counts from the swap.  Call it for each new term of
 * a holder: `now` is an estimate, so that the deadline may happen to be that of the record. */
void record_set_deadline(struct lockspace *space, struct backend_ticket *ticket, clock_ms deadline);
/* Grants what may hold: after the grace period, when all were only queued. */
void record_grant(struct lockspace *space, clock_ms now, const char *name);
/* Puts a ticket into its queue as it is described, in place of `present` (NULL: it is not there).  BUSY: it holds, and
 * a holder or guard excludes it; then `present` is as it was. */
enum backend_result record_put(struct lockspace *space, clock_ms now, const char *name, struct record_ticket *ticket,
                               struct backend_ticket *present);
/* Ends a ticket for that reason, and grants what has become free. */
void record_end(struct lockspace *space, clock_ms now, struct backend_ticket *ticket, enum backend_end why);
/* The tickets that lockspace_revoke would end, and the end of one of them; grants nothing.  Free with
 * g_ptr_array_unref. */
GPtrArray *record_revoked(struct lockspace *space, const char *name, uint64_t fence);
void record_revoke(struct lockspace *space, clock_ms now, struct backend_ticket *ticket, enum backend_end why);
/* Gives a ticket another identity. */
void record_identify(struct lockspace *space, struct backend_ticket *ticket, struct backend_identity identity);
/* Calls `each` for every ticket of the directory: holders of a lock, then its waiters in order.  It must not change the
 * lockspace. */
void record_visit(struct lockspace *space, const char *name,
                  void (*each)(void *arg, const char *leaf, struct backend_ticket *ticket), void *arg);
/* The ticket with that id, or NULL. */
struct backend_ticket *record_ticket_find(struct lockspace *space, const char *name, struct record_id id);

#endif
