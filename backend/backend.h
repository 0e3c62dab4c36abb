/* backend: the contract between the filesystem and a store of locks.
 *
 * The filesystem (fs/) knows kernel requests, processes and handles; a store
 * knows which ticket holds what until when.  All calls are made from the loop's
 * thread, and none blocks.  A call reports its outcome by calling its completion
 * exactly once, before it returns or later from the loop.  Events come only from
 * the loop, never from inside a call.
 *
 * A lock is an ordered queue of tickets.  A ticket *holds* when its position in
 * the queue allows it; until then it waits.  Acquiring appends a ticket,
 * releasing removes one.  The number of a ticket is its fencing token.
 *
 * Names are paths relative to the root, components separated by single
 * slashes, without a leading slash; the root directory is "".
 *
 * Times: see clock.h.  Durations are milliseconds.  GBytes arguments are
 * borrowed: the backend takes its own reference.
 */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "backend/clock.h"

struct ev_loop;
struct backend;

enum backend_result {
    BACKEND_OK,        /* done; of an acquire: granted, the ticket holds */
    BACKEND_QUEUED,    /* the ticket waits; the event `granted` follows */
    BACKEND_BUSY,      /* held by another */
    BACKEND_MISSING,   /* no such name, or its directory is not there */
    BACKEND_EXISTS,    /* mkdir: the name is taken */
    BACKEND_NOT_EMPTY, /* rmdir */
    BACKEND_IS_DIRECTORY,
    BACKEND_NOT_DIRECTORY,
    BACKEND_STALE,       /* not the present holder, or the wrong token */
    BACKEND_DEADLOCK,    /* waiting would never end */
    BACKEND_FULL,        /* the store has no room */
    BACKEND_QUOTA,       /* the user has reached a limit */
    BACKEND_INVALID,     /* this backend cannot have such a name */
    BACKEND_GRACE,       /* convert: refused during the grace period; nothing is changed */
    BACKEND_UNREACHABLE, /* the service is away; nothing is known or changed */
    BACKEND_UNSUPPORTED, /* this backend has no such feature */
    BACKEND_DAMAGED,     /* the store's data about this name is corrupt */
};

/* One word, for messages of the tests. */
const char *backend_result_name(enum backend_result result);

enum backend_kind {
    BACKEND_PROVISIONAL, /* opened for writing, undecided; never survives a restart */
    BACKEND_LEASE,       /* outlives descriptors; survives a restart */
    BACKEND_FLOCK,       /* lives as long as a handle; one that holds survives a restart, see backend_recover */
    BACKEND_FCNTL,       /* the same, with a byte range */
};

enum backend_mode { BACKEND_EXCLUSIVE, BACKEND_SHARED };

/* Why the store ended a ticket. */
enum backend_end {
    BACKEND_EXPIRED,  /* its deadline passed */
    BACKEND_RELEASED, /* backend_revoke with its token */
    BACKEND_BROKEN,   /* backend_revoke by an administrator */
    BACKEND_LOST,     /* it could not be renewed in time, or the store no longer has it */
};

/* The public head of a structure that belongs to the backend.  It is valid from
 * the return of backend_acquire (or its completion) until it is passed to
 * backend_release, `ended` has returned for it, or its acquire completed with
 * anything but OK and QUEUED. */
struct backend_ticket {
    void *user;        /* the claim's `user`; may be changed */
    GBytes *content;   /* NULL: empty, or not known to this mount */
    uint64_t fence;    /* 0 while unknown */
    clock_ms acquired; /* when it was granted (or queued, while it waits) */
    clock_ms deadline; /* when it ends unless renewed */
    int64_t ttl;
    uint8_t kind; /* enum backend_kind */
    uint8_t mode; /* enum backend_mode */
    bool held;    /* false: it waits */
    bool resting; /* its term does not run, see backend_renewal; show backend_ticket_deadline instead of `deadline` */
    bool joined;  /* FCNTL: it has taken over its lock owner's earlier ticket */
    uint8_t guarded; /* in `ended`: 1 + the reason if a guard keeps the lock from others, see backend_revoke; or 0 */
};

#define BACKEND_RANGE_MAX UINT64_MAX

/* Bytes, first and last inclusive.  A lock owner holds an array of them, in order and as few as possible: no segment
 * overlaps another, or touches one of its own mode. */
struct backend_segment {
    uint64_t start, end;
    enum backend_mode mode;
};

/* An array with one segment; free with g_array_unref. */
GArray *backend_segments_new(uint64_t start, uint64_t end, enum backend_mode mode);
/* Gives these bytes that mode; NULL: removes them. */
void backend_segments_set(GArray *segments, uint64_t start, uint64_t end, const enum backend_mode *mode);
/* The first segment from `i` on that ends at `byte` or after it.  A binary search, because a lock owner may have
 * thousands of segments, and many other tickets may be compared with each. */
guint backend_segments_find(const GArray *segments, guint i, uint64_t byte);
/* The first of `segments` that excludes one of `others`, or NULL. */
const struct backend_segment *backend_segments_conflict(const GArray *segments, const GArray *others);
/* EXCLUSIVE if one of them is. */
enum backend_mode backend_segments_mode(const GArray *segments);

/* Two tickets with matching identities are compatible, whatever they cover. */
struct backend_identity {
    uint64_t handle, lock_owner; /* 0: none */
};

/* The identity of a claim, or of a store's struct with the same two fields. */
#define BACKEND_IDENTITY(of) ((struct backend_identity){.handle = (of)->handle, .lock_owner = (of)->lock_owner})

/* Do they have one lock owner or, unless both have a lock owner, one handle?  A lock owner's ticket keeps the handle
 * that it was acquired with, also when the lock owner adds to it through another. */
static inline bool backend_identity_matches(struct backend_identity a, struct backend_identity b)
{
    return a.lock_owner && b.lock_owner ? a.lock_owner == b.lock_owner : a.handle && a.handle == b.handle;
}

/* A request for a ticket.  Zero-initialise and set `kind`; only FCNTL has a range, every other kind covers the whole
 * lock. */
struct backend_claim {
    void *user; /* handed back in the ticket */
    enum backend_kind kind;
    enum backend_mode mode;
    bool wait;           /* queue when it cannot be granted at once */
    bool sequence;       /* name is DIR/prefix-: a ticket in DIR's queue, named
                            prefix-NNNNNNNNNN; never BUSY */
    uint64_t handle;     /* see backend_identity */
    uint64_t lock_owner; /* a POSIX lock owner */
    uint64_t start;      /* FCNTL: first and last byte, inclusive, in this order */
    uint64_t end;
    int64_t ttl;     /* counts from the grant; while it waits, from queueing */
    int64_t due;     /* the event `due` this long after the grant (or the
                        queueing); 0: none */
    GBytes *meta;    /* the filesystem's description of the holder */
    GBytes *content; /* NULL: empty */
};

enum backend_type { BACKEND_NOTHING, BACKEND_DIRECTORY, BACKEND_LOCK };

struct backend_directory {
    int64_t ttl;       /* default for what is made in it; 0: inherited */
    uint32_t width;    /* how many tickets hold at once, >= 1 */
    int64_t delay;     /* for so long a lock in it is refused after its holder
                          ended by EXPIRED, LOST or BROKEN */
    uint64_t sequence; /* the number of the next sequence ticket; never lowered */
    GBytes *meta;
};

struct backend_info {
    enum backend_type type;
    /* Of a lock: its first holder (backend_test: the conflicting one with the
     * lowest range).  If another client of the store holds it, not a mount,
     * meta is NULL, kind LEASE and fence 0; acquired and deadline are
     * CLOCK_NEVER and ttl is 0 where they are not known. */
    enum backend_kind kind;
    enum backend_mode mode;
    uint64_t fence;
    clock_ms acquired;
    clock_ms deadline;
    int64_t ttl;
    uint64_t start, end;
    GBytes *meta; /* valid during the completion only, as is all of this */
    GBytes *content;
    struct backend_ticket *ticket; /* when it belongs to this mount, else NULL */
    bool guarded;                  /* its holder has lost it, and a guard keeps it from others: see backend_revoke */
    uint32_t holders;
    uint32_t waiters;  /* of a directory: for any name in it */
    uint32_t position; /* of a sequence ticket */
    /* of a directory */
    struct backend_directory directory;
};

struct backend_entry {
    const char *name; /* one component */
    enum backend_type type;
    const struct backend_info *info; /* backend_tickets: meta, acquired, holders (0: it waits); else NULL */
};

struct backend_counts {
    uint64_t locks;   /* names held */
    uint64_t waiting; /* tickets that wait */
    bool recovering;  /* backend_recover may still find locks */
};

/* For status pages and metrics; no code decides by it.  Counters begin with 0 at
 * backend_start and never fall. */
struct backend_status {
    bool away;      /* calls are answered UNREACHABLE, in whole or in part */
    clock_ms since; /* when `away` last changed */
    char *why;      /* if it is away: the log's reason, one line; else NULL */
    char *address;  /* the store's URI without passwords or tokens: "local:/var/lib/x",
                       "redis://host:6379/0"; NULL: none */
    bool has_connections;
    uint64_t round_trips; /* requests sent that expect an answer, repeated ones too */
    uint64_t reconnects;  /* connections made again after one was lost */
    bool has_journal;
    uint64_t journal_bytes; /* in the file now */
    uint64_t journal_records;
    int64_t grace;       /* ms left of a grace period; 0: none */
    GPtrArray *details;  /* of char *, "key: value" with a key of [a-z -] */
    GPtrArray *warnings; /* of char *, one line each: a setting that makes the store less safe, and the cure */
};

/* Each is called from the loop, never inside a backend_ call. */
struct backend_events {
    void (*granted)(void *context, struct backend_ticket *ticket);
    void (*due)(void *context, struct backend_ticket *ticket);
    /* ticket->held: did it hold until now? */
    void (*ended)(void *context, struct backend_ticket *ticket, enum backend_end why);
    /* a waiter queues behind this holder */
    void (*wanted)(void *context, struct backend_ticket *ticket);
    /* a name of backend_watch has changed, or was only renewed; returns whether to go on watching it */
    bool (*watched)(void *context, const char *name);
    /* a watched name has no holder any more; the watch ends */
    void (*gone)(void *context, const char *name);
};

typedef void backend_done(void *arg, enum backend_result result);
/* `ticket` for OK and QUEUED; `holder` for BUSY; else NULL. */
typedef void backend_acquire_done(void *arg, enum backend_result result, struct backend_ticket *ticket,
                                  const struct backend_info *holder);
/* OK (with type BACKEND_NOTHING if there is no such name), UNREACHABLE or DAMAGED. */
typedef void backend_info_done(void *arg, enum backend_result result, const struct backend_info *info);
/* See backend_recover.  Returns whether the ticket has an owner that renews it. */
typedef bool backend_recover_each(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta,
                                  GBytes *content);
typedef void backend_list_done(void *arg, enum backend_result result, const struct backend_entry *entries,
                               size_t count);

enum backend_feature {
    BACKEND_CAN_RANGE = 1, /* byte ranges; without it FCNTL covers the whole lock */
    BACKEND_CAN_SEQUENCE = 2,
    BACKEND_CAN_RENAME = 8,
    BACKEND_CAN_REPLACE = 16,  /* backend_rename over a ticket; without it UNSUPPORTED */
    BACKEND_CAN_SHARE = 32,    /* several holders; a lock-delay, too */
    BACKEND_CAN_WATCH = 64,    /* backend_watch reports that a name is free */
    BACKEND_SOLE_AUTHORITY = 4 /* no other mount changes this store: look-ups may be cached */
};

enum backend_safety { BACKEND_SINGLE, BACKEND_REPLICATED, BACKEND_QUORUM };

/* One word for an attribute or a status page. */
const char *backend_safety_name(enum backend_safety safety);

struct backend_renewal {
    struct backend_ticket *ticket;
    int64_t ttl;     /* from now */
    int64_t due;     /* from now; 0: none.  If it is a third of ttl, a store across a network may be early by a
                        thirtieth of ttl, to renew many at once */
    uint32_t keeper; /* not 0: a SOLE_AUTHORITY store lets the holder rest: its term stops, and it is not due, until it
                        is renewed, or until backend_wake for this keeper starts its term and makes it due at once */
};

/* A condition on a ticket's meta, which is words with single spaces between them: word number `word` (from 1) is
 * `text`; "" matches any. */
struct backend_match {
    unsigned word;
    char text[24];
};

/* One word of a ticket's meta is its guard: milliseconds times BACKEND_GUARD_UNIT, plus flags such as BACKEND_FIXED. */
enum { BACKEND_GUARD_WORD = 8, BACKEND_FIXED = 1, BACKEND_GUARD_UNIT = 4, BACKEND_GUARD_MAX = 60000 };

/* The word of a ticket's meta that is the pid of its holder. */
enum { BACKEND_PID_WORD = 2 };

/* For backends: the digits of the pid (borrowed; "" if there are none), and how many they are. */
const char *backend_parse_pid(GBytes *meta, size_t *ret_length);

/* For backends: does a lease with this meta (may be NULL) have a fixed term, which its user does not renew? */
bool backend_parse_fixed(GBytes *meta);

/* For backends: the guard of a ticket with this meta (may be NULL) in ms; 0: none. */
int64_t backend_parse_guard(GBytes *meta);

enum { BACKEND_SET_META = 1, BACKEND_SET_CONTENT = 2 };

struct backend_change {
    unsigned set;
    GBytes *meta;
    GBytes *content;
};

/* One implementation: the head of its structure. */
struct backend {
    const struct backend_operations *operations;
    const char *name;  /* "memory", "local", … */
    unsigned features; /* of enum backend_feature */
    enum backend_safety safety;
};

struct backend_operations {
    void (*start)(struct backend *, struct ev_loop *, const struct backend_events *, void *context);
    void (*free)(struct backend *);
    struct backend_ticket *(*acquire)(struct backend *, const char *name, const struct backend_claim *,
                                      backend_acquire_done *, void *arg);
    void (*release)(struct backend *, struct backend_ticket *, backend_done *, void *arg);
    /* May be NULL: as release. */
    bool (*cancel)(struct backend *, struct backend_ticket *);
    bool (*release_range)(struct backend *, struct backend_ticket *, uint64_t start, uint64_t end, backend_done *,
                          void *arg);
    void (*convert)(struct backend *, struct backend_ticket *, const struct backend_claim *, backend_done *, void *arg);
    void (*renew)(struct backend *, const struct backend_renewal *, size_t count);
    /* May be NULL: no ticket rests. */
    void (*wake)(struct backend *, uint32_t keeper);
    void (*set)(struct backend *, struct backend_ticket *, const struct backend_change *, backend_done *, void *arg);
    void (*revoke)(struct backend *, const char *name, uint64_t fence, const struct backend_match *, backend_done *,
                   void *arg);
    void (*rename)(struct backend *, struct backend_ticket *, const char *name, struct backend_ticket *replaced,
                   backend_done *, void *arg);
    void (*test)(struct backend *, const char *name, const struct backend_claim *, backend_info_done *, void *arg);
    void (*stat)(struct backend *, const char *name, backend_info_done *, void *arg);
    void (*list)(struct backend *, const char *directory, const char *after, size_t max, backend_list_done *,
                 void *arg);
    /* May be NULL: there are no queues. */
    void (*tickets)(struct backend *, const char *directory, const char *after, size_t max, backend_list_done *,
                    void *arg);
    void (*mounts)(struct backend *, backend_info_done *, void *arg); /* may be NULL */
    void (*mkdir)(struct backend *, const char *name, const struct backend_directory *, backend_done *, void *arg);
    void (*rmdir)(struct backend *, const char *name, backend_done *, void *arg);
    void (*set_directory)(struct backend *, const char *name, const struct backend_directory *, backend_done *,
                          void *arg);
    /* May be NULL. */
    void (*watch)(struct backend *, const char *name);
    void (*recover)(struct backend *, backend_recover_each *found, void *arg);
    void (*identify)(struct backend *, struct backend_ticket *, struct backend_identity);
    struct backend_counts (*counts)(struct backend *);
    bool (*name)(struct backend *, const struct backend_ticket *, char *buffer, size_t size);
    /* May be NULL.  Fills in a structure that is zeroed but for its two empty lists,
     * which free what is added to them.  `why` and `address` are g_malloc'ed.  Sends
     * no request. */
    void (*status)(struct backend *, struct backend_status *status);
};

/* Attaches the backend to a loop and starts its events.  Before this call only
 * backend_free is allowed. */
static inline void backend_start(struct backend *b, struct ev_loop *loop, const struct backend_events *events,
                                 void *context)
{
    b->operations->start(b, loop, events, context);
}

/* Pending completions are not called.  NULL is allowed. */
static inline void backend_free(struct backend *b)
{
    if (b) {
        b->operations->free(b);
    }
}

/* Requests a ticket.  Returns it, or NULL if the completion has already been
 * called with a refusal.  OK: it holds; QUEUED (only with `wait`): it waits, and
 * `granted` follows; BUSY: `holder` describes who holds it; DEADLOCK: it would
 * wait for one that waits for what its identity holds, or close a cycle of lock
 * owners.
 *
 * A claim of a holder's identity does not wait for those that wait for that
 * holder.  So a shared FLOCK holder waits to become exclusive with an exclusive
 * claim of its handle, converts its ticket once that is granted, and releases the
 * claim.  The claim excludes others only beside the ticket; the conversion may
 * still be BUSY.
 *
 * A lock owner has one FCNTL ticket on a name, with the segments of fcntl(2).  A
 * new FCNTL ticket of that lock owner that is reported to hold with `joined` has
 * taken over the earlier one, with its fencing token, meta and content; the
 * earlier one is no longer valid.  Without `joined`, `ended` follows for the
 * earlier one. */
static inline struct backend_ticket *backend_acquire(struct backend *b, const char *name,
                                                     const struct backend_claim *claim, backend_acquire_done *done,
                                                     void *arg)
{
    return b->operations->acquire(b, name, claim, done, arg);
}

/* Ends a ticket, whether it holds or waits.  If its acquire has not completed,
 * that completion is not called.  The ticket is no longer valid when the call
 * returns.  `done` may be NULL. */
static inline void backend_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg)
{
    b->operations->release(b, ticket, done, arg);
}

/* Ends a ticket that does not hold, because its user stopped waiting.  False: the ticket stays until a pending answer
 * arrives, because the request may already have changed what its lock owner holds.  Then it is granted, or its acquire
 * completes with UNREACHABLE or, if it was QUEUED, `ended` follows. */
static inline bool backend_cancel(struct backend *b, struct backend_ticket *ticket)
{
    if (b->operations->cancel) {
        return b->operations->cancel(b, ticket);
    }
    backend_release(b, ticket, NULL, NULL);
    return true;
}

/* Releases bytes (inclusive) of an FCNTL ticket.  False: that was all of them, and the ticket is no longer valid when
 * the call returns. */
static inline bool backend_release_range(struct backend *b, struct backend_ticket *ticket, uint64_t start, uint64_t end,
                                         backend_done *done, void *arg)
{
    return b->operations->release_range(b, ticket, start, end, done, arg);
}

/* Converts a ticket in one step to another claim on the same name: kind, mode,
 * handle, lock owner, ttl, due, user, and meta and content if not NULL.  It goes
 * on holding, with its fencing token.  BUSY: others hold too and conflict with
 * the new mode; nothing is changed.  A waiting ticket keeps its position. */
static inline void backend_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                                   backend_done *done, void *arg)
{
    b->operations->convert(b, ticket, claim, done, arg);
}

/* Extends tickets.  One that cannot be extended in time ends with LOST.  If the
 * store has no room to record a longer ttl, ticket->ttl stays as it was. */
static inline void backend_renew(struct backend *b, const struct backend_renewal *renewals, size_t count)
{
    b->operations->renew(b, renewals, count);
}

/* Starts the terms of all resting tickets of this keeper, a part in each turn of the loop. */
static inline void backend_wake(struct backend *b, uint32_t keeper)
{
    if (b->operations->wake) {
        b->operations->wake(b, keeper);
    }
}

/* When the ticket ends unless renewed.  A resting one appears to be renewed every third of its ttl. */
static inline clock_ms backend_ticket_deadline(const struct backend_ticket *ticket, clock_ms now)
{
    int64_t step = MAX(ticket->ttl / 3, 1), since = now - (ticket->deadline - ticket->ttl);
    return ticket->resting ? ticket->deadline + since / step * step : ticket->deadline;
}

/* Replaces meta or content.  Without `done` the call cannot fail for lack of room: a full store takes the change now
 * or as soon as it can. */
static inline void backend_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
                               backend_done *done, void *arg)
{
    b->operations->set(b, ticket, change, done, arg);
}

/* Ends holders of a name: the one whose fencing token is `fence` (event:
 * RELEASED; STALE if none has it), or with 0 all (BROKEN).  A sequence ticket
 * need not hold.  OK: the events for tickets of this mount, and of other mounts
 * that can be reached, have been reported.  On ZooKeeper and several Redis
 * servers those of other mounts follow a moment later.
 *
 * A ticket whose meta has a guard ends for its user like any other, but the store keeps the lock with the same meta,
 * content and fencing token: until the guard's time or the ticket's term is over, whichever is first, or until the lock
 * is revoked once more.  A revocation ends guards only if there is nothing else to end. */
static inline void backend_revoke(struct backend *b, const char *name, uint64_t fence, backend_done *done, void *arg)
{
    b->operations->revoke(b, name, fence, NULL, done, arg);
}

/* The same, in one step, if all tickets that would end match; else BUSY, and nothing ends.  It ends no guard: BUSY if
 * there is nothing else. */
static inline void backend_revoke_matching(struct backend *b, const char *name, uint64_t fence,
                                           const struct backend_match *match, backend_done *done, void *arg)
{
    b->operations->revoke(b, name, fence, match, done, arg);
}

/* For backends: does this meta (may be NULL) match? */
bool backend_matches(const struct backend_match *match, GBytes *meta);

/* Moves a holder to another name with its fencing token and content.  The name
 * must be free, or held only by `replaced` (NULL: none), which ends in the same
 * step (event: RELEASED); waiters for the name go on waiting.  Else BUSY.  If the
 * result is not OK, nothing has changed, also after a crash; but if the outcome
 * stays unknown, both tickets end as LOST, and then UNREACHABLE is reported.  The
 * token is raised if the other name has seen a higher one.  A backend_set that
 * overlaps with the rename is not lost. */
static inline void backend_rename(struct backend *b, struct backend_ticket *ticket, const char *name,
                                  struct backend_ticket *replaced, backend_done *done, void *arg)
{
    b->operations->rename(b, ticket, name, replaced, done, arg);
}

/* Finds the holder that conflicts with this claim (F_GETLK); type
 * BACKEND_NOTHING: it would be granted. */
static inline void backend_test(struct backend *b, const char *name, const struct backend_claim *claim,
                                backend_info_done *done, void *arg)
{
    b->operations->test(b, name, claim, done, arg);
}

static inline void backend_stat(struct backend *b, const char *name, backend_info_done *done, void *arg)
{
    b->operations->stat(b, name, done, arg);
}

/* Lists at most `max` entries of a directory in strcmp order, beginning after
 * the name `after` ("": from the first).  A name that exists during the whole
 * listing appears exactly once. */
static inline void backend_list(struct backend *b, const char *directory, const char *after, size_t max,
                                backend_list_done *done, void *arg)
{
    b->operations->list(b, directory, after, max, done, arg);
}

/* The same for the tickets of a directory's queue, each with its `info`; one request of the store covers many tickets.
 * Other locks whose names end in digits may be among them. */
static inline void backend_tickets(struct backend *b, const char *directory, const char *after, size_t max,
                                   backend_list_done *done, void *arg)
{
    if (b->operations->tickets) {
        b->operations->tickets(b, directory, after, max, done, arg);
    } else {
        done(arg, BACKEND_OK, NULL, 0);
    }
}

/* The mounts that use the store now, this one among them, as the content of `info`: a line for each, of version, host,
 * and for how many ms its daemon has been there, or -, with tabs between them.  Of an older leasefs some may be
 * missing. UNSUPPORTED: there is only this mount, or the store knows no other. */
static inline void backend_mounts(struct backend *b, backend_info_done *done, void *arg)
{
    if (b->operations->mounts) {
        b->operations->mounts(b, done, arg);
    } else {
        done(arg, BACKEND_UNSUPPORTED, NULL);
    }
}

static inline void backend_mkdir(struct backend *b, const char *name, const struct backend_directory *directory,
                                 backend_done *done, void *arg)
{
    b->operations->mkdir(b, name, directory, done, arg);
}
static inline void backend_rmdir(struct backend *b, const char *name, backend_done *done, void *arg)
{
    b->operations->rmdir(b, name, done, arg);
}

/* Replaces a directory's attributes; the root's too. */
static inline void backend_set_directory(struct backend *b, const char *name, const struct backend_directory *directory,
                                         backend_done *done, void *arg)
{
    b->operations->set_directory(b, name, directory, done, arg);
}

/* Watches a name that another holds: `gone` follows when nobody does, after a release, expiry or break, also by another
 * mount or client.  `watched` decides how long the watch goes on.  A store may limit the number of watches; the newest
 * are kept.  A waiting sequence ticket counts as a holder here. */
static inline void backend_watch(struct backend *b, const char *name)
{
    if (b->operations->watch) {
        b->operations->watch(b, name);
    }
}

/* Calls `found` for each lease that this mount had when it last ended, and for each handle lock that held.  `found` may
 * set ticket->user, and calls nothing of the backend but backend_identify.  If the content is NULL, backend_stat has
 * it.  On a SOLE_AUTHORITY store `found` is also called for each directory, with NULL as the ticket, and for leases
 * whose deadline has passed: such a lease goes on if it is renewed, and ends otherwise.  If a store across a network
 * needs longer than one request may take, this call returns first, and `found` is called from the loop, until
 * backend_free at the latest.
 *
 * A handle lock (kind FLOCK or FCNTL, also a sequence ticket that held) is found with its fencing token, mode, bytes,
 * meta and content.  It still holds, before all waiters.  It has the identity that backend_identify
 * gives it.  Its user renews and releases it as any handle lock; backend_set must keep the form of its meta.  If
 * `found` returns false, it is not renewed, and ends with its term.  Waiting handle locks are not found, but tickets of
 * a queue are: a wait is requested again.  A store that cannot keep handle locks finds none; `memory` keeps nothing.
 *
 * The daemon before may still run: it was stopped, or what it has sent arrives late.  So a recovered ticket belongs to
 * one incarnation of the mount: its record in the store names the new daemon's channel (Redis), or it gets a new ticket
 * id (Redlock, PostgreSQL).  A renewal, release, change or conversion by the daemon before finds no such ticket.  This
 * costs nothing while nobody restarts: the scripts compare what they read anyway.  On
 * `local` no second daemon starts, and on ZooKeeper none gets the session: the state directory is locked.
 *
 * A new claim of the daemon before is not refused.  It is safe: exclusion is between tickets, whichever daemon asked
 * for them.  If a process still uses the earlier mount, it is a holder like any other; if not, nobody renews the
 * ticket, and it ends with its term. */
static inline void backend_recover(struct backend *b, backend_recover_each *found, void *arg)
{
    b->operations->recover(b, found, arg);
}

/* A recovered handle lock belongs to this handle and lock owner, which have the numbers that they had before. */
static inline void backend_identify(struct backend *b, struct backend_ticket *ticket, struct backend_identity identity)
{
    b->operations->identify(b, ticket, identity);
}

static inline struct backend_counts backend_counts(struct backend *b)
{
    return b->operations->counts(b);
}

/* Free with backend_status_clear. */
void backend_status(struct backend *b, struct backend_status *ret_status);
void backend_status_clear(struct backend_status *status);

/* The name of a ticket's lock, NUL-terminated; of a sequence ticket with its
 * number.  False if it does not fit. */
static inline bool backend_ticket_name(struct backend *b, const struct backend_ticket *ticket, char *buffer,
                                       size_t size)
{
    return b->operations->name(b, ticket, buffer, size);
}

/* A zeroed structure, for allocations in each request.  Several times as fast as g_new0: calloc(3) does not reuse what
 * the thread has freed (glibc before 2.41). */
static inline void *backend_new0(size_t size)
{
    return memset(g_malloc(size), 0, size);
}

#endif
