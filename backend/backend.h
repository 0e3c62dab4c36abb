/* backend: who holds what until when.
 *
 * The contract between the filesystem (fs/), which knows kernel requests,
 * processes and handles, and a store of leases, which knows none of these.  It
 * is asynchronous and single threaded: every call is made from the loop's
 * thread, and reports its outcome by calling its completion exactly once,
 * either before it returns or later from the loop.  Events come only from the
 * loop, never from inside a call.
 *
 * The core idea: a lock is an ordered queue of tickets.  A ticket *holds* when
 * its place in the queue allows it; until then it waits.  Acquiring appends a
 * ticket, releasing removes one.  The number of a ticket is its fencing token.
 *
 * Names are paths relative to the root, components separated by single
 * slashes, without a leading slash; the root directory is "".
 *
 * Times: see clock.h.  Durations are milliseconds.  GBytes arguments are
 * borrowed: the backend takes its own reference.  Each call is passed on to the store.
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
    BACKEND_QUEUED,    /* the ticket waits; `granted` will tell */
    BACKEND_BUSY,      /* held by another */
    BACKEND_MISSING,   /* no such name, or its directory is not there */
    BACKEND_EXISTS,    /* mkdir: the name is taken */
    BACKEND_NOT_EMPTY, /* rmdir */
    BACKEND_IS_DIRECTORY,
    BACKEND_NOT_DIRECTORY,
    BACKEND_STALE,       /* not the present holder, or the wrong token */
    BACKEND_DEADLOCK,    /* waiting would never end */
    BACKEND_FULL,        /* the store has no room */
    BACKEND_QUOTA,       /* its user has all that a user may have */
    BACKEND_INVALID,     /* this backend cannot have such a name */
    BACKEND_GRACE,       /* convert: nothing is granted until those who held have put it back; nothing is changed */
    BACKEND_UNREACHABLE, /* the service is away; nothing is known or changed */
    BACKEND_UNSUPPORTED, /* this backend has no such feature */
    BACKEND_DAMAGED,     /* what the store keeps of this name is not what it wrote */
};

/* One word for a log line or a status page. */
const char *backend_result_name(enum backend_result result);

enum backend_kind {
    BACKEND_PROVISIONAL, /* opened for writing, undecided; never survives a restart */
    BACKEND_LEASE,       /* outlives descriptors; survives a restart */
    BACKEND_FLOCK,       /* lives as long as a handle; survives a restart where it held, see backend_recover */
    BACKEND_FCNTL,       /* the same, with a byte range */
};

enum backend_mode { BACKEND_EXCLUSIVE, BACKEND_SHARED };

/* Why a ticket ended that its user did not end itself. */
enum backend_end {
    BACKEND_EXPIRED,  /* its deadline passed */
    BACKEND_RELEASED, /* backend_revoke with its token */
    BACKEND_BROKEN,   /* backend_revoke by an administrator */
    BACKEND_LOST,     /* it could not be renewed in time, or was gone */
};

/* A claim on a name, as its user sees it: the public head of a structure that
 * belongs to the backend.  It is valid from the return of backend_acquire (or
 * its completion) until it is passed to backend_release, `ended` has returned
 * for it, or its acquire completed with anything but OK and QUEUED. */
struct backend_ticket {
    void *user;        /* the claim's `user`; may be changed */
    GBytes *content;   /* as far as this mount knows; NULL: empty, or not known */
    uint64_t fence;    /* ticket number = fencing token; 0 while unknown */
    clock_ms acquired; /* when it was granted (or queued, while it waits) */
    clock_ms deadline; /* when it ends unless renewed */
    int64_t ttl;
    uint8_t kind; /* enum backend_kind */
    uint8_t mode; /* enum backend_mode */
    bool held;    /* false: it waits */
    bool resting; /* its term does not run, see backend_renewal; backend_ticket_deadline knows the deadline to show */
    bool joined;  /* FCNTL: it has taken over the ticket with which its lock owner held before */
    uint8_t guarded; /* with `ended`: 1 + the reason, if nobody else gets what it held yet, see backend_revoke; or 0 */
};

#define BACKEND_RANGE_MAX UINT64_MAX

/* Bytes, first and last inclusive.  What a lock owner holds of a lock is an array of these: in order, and as few as can
 * be, so none overlaps another or touches one of its own mode. */
struct backend_segment {
    uint64_t start, end;
    enum backend_mode mode;
};

/* Of one; free with g_array_unref. */
GArray *backend_segments_new(uint64_t start, uint64_t end, enum backend_mode mode);
/* These bytes are from now on of that mode; NULL: not among them. */
void backend_segments_set(GArray *segments, uint64_t start, uint64_t end, const enum backend_mode *mode);
/* The first of `segments` that excludes one of `others`, or NULL. */
const struct backend_segment *backend_segments_conflict(const GArray *segments, const GArray *others);
/* EXCLUSIVE if one of them is. */
enum backend_mode backend_segments_mode(const GArray *segments);

/* By which two tickets are compatible, whatever they cover. */
struct backend_identity {
    uint64_t handle, lock_owner; /* 0: none */
};

/* Of a claim, or of what a store has for one. */
#define BACKEND_IDENTITY(of) ((struct backend_identity){.handle = (of)->handle, .lock_owner = (of)->lock_owner})

/* Are they of one lock owner or, unless each has a lock owner, of one handle?  What a lock owner has got by several
 * handles is of the first of them. */
static inline bool backend_identity_matches(struct backend_identity a, struct backend_identity b)
{
    return a.lock_owner && b.lock_owner ? a.lock_owner == b.lock_owner : a.handle && a.handle == b.handle;
}

/* What is asked for.  Zero-initialise; then `kind` PROVISIONAL, exclusive,
 * range 0..0: so always set kind and, for other than FCNTL, leave the range
 * alone (it is ignored: every other kind covers the whole lock). */
struct backend_claim {
    void *user; /* handed back in the ticket; see `lock_owner` */
    enum backend_kind kind;
    enum backend_mode mode;
    bool wait;           /* queue when it cannot be granted at once */
    bool sequence;       /* name is DIR/prefix-: a ticket in DIR's queue, named
                            prefix-NNNNNNNNNN; never BUSY */
    uint64_t handle;     /* tickets of one handle exclude each other only as two lock owners; 0: none */
    uint64_t lock_owner; /* those of one POSIX lock owner never do; 0: none */
    uint64_t start;      /* FCNTL: first and last byte, inclusive, in this order */
    uint64_t end;
    int64_t ttl;     /* counts from the grant; while it waits, from queueing */
    int64_t due;     /* the event `due` this long after the grant (or the
                        queueing); 0: none */
    GBytes *meta;    /* what the filesystem wants to know of the holder */
    GBytes *content; /* NULL: empty */
};

/* What is known of a name. */
enum backend_type { BACKEND_NOTHING, BACKEND_DIRECTORY, BACKEND_LOCK };

struct backend_directory {
    int64_t ttl;       /* default for what is made in it; 0: inherited */
    uint32_t width;    /* how many tickets hold at once, >= 1 */
    int64_t delay;     /* what is in it stays refused this long after a holder
                          ended against its will (EXPIRED, LOST, BROKEN); 0: not at all */
    uint64_t sequence; /* the number of the next sequence ticket; never lowered */
    GBytes *meta;
};

struct backend_info {
    enum backend_type type;
    /* of a lock: the first holder (of backend_test: the conflicting one with the
     * lowest range).  Of one that is no
     * mount's, but another client's of the same store, meta is NULL, kind LEASE
     * and fence 0, and where they are not known acquired and deadline (it has no
     * end) are CLOCK_NEVER and ttl is 0. */
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
    bool guarded;                  /* it has been lost by its holder, and is kept from others: see backend_revoke */
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
};

/* What only the backend knows of itself: for people and for metrics, never to
 * decide by.  Counters begin with 0 at backend_start and never fall. */
struct backend_status {
    bool away;      /* calls are answered UNREACHABLE, in whole or in part */
    clock_ms since; /* since when it is away or, if not, there */
    char *why;      /* of one that is away: the reason in one line, as the log tells it; else NULL */
    char *address;  /* where the leases are, as the mount names it, without passwords or
                       tokens: "local:/var/lib/x", "redis://host:6379/0"; NULL: nowhere */
    bool has_connections;
    uint64_t round_trips; /* requests sent, repeated ones too, that an answer is expected to */
    uint64_t reconnects;  /* connections made again after one was lost */
    bool has_journal;
    uint64_t journal_bytes; /* in the file now */
    uint64_t journal_records;
    int64_t grace;       /* ms for which it grants nothing new, as it may have lost locks; 0: it does */
    GPtrArray *details;  /* of char *, "key: value" with a key of [a-z -]: what else is worth knowing */
    GPtrArray *warnings; /* of char *, one line each: what makes the store less safe than it could be, and what to do */
};

/* Each is called from the loop, never inside a backend_ call. */
struct backend_events {
    void (*granted)(void *context, struct backend_ticket *ticket);
    void (*due)(void *context, struct backend_ticket *ticket);
    /* `held` tells whether it held */
    void (*ended)(void *context, struct backend_ticket *ticket, enum backend_end why);
    /* somebody began to wait for what this ticket holds */
    void (*wanted)(void *context, struct backend_ticket *ticket);
    /* a name of backend_watch has changed, perhaps only been renewed: is it to be watched on? */
    bool (*watched)(void *context, const char *name);
    /* nobody holds it any more; it is not watched any more */
    void (*gone)(void *context, const char *name);
};

typedef void backend_done(void *arg, enum backend_result result);
/* `ticket` for OK and QUEUED; `holder` for BUSY; else NULL. */
typedef void backend_acquire_done(void *arg, enum backend_result result, struct backend_ticket *ticket,
                                  const struct backend_info *holder);
/* OK (with type BACKEND_NOTHING if there is no such name), UNREACHABLE or DAMAGED. */
typedef void backend_info_done(void *arg, enum backend_result result, const struct backend_info *info);
/* See backend_recover; a value that is not known is NULL.  Returns whether the ticket has an owner that renews it. */
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
    BACKEND_SOLE_AUTHORITY = 4 /* no other mount changes this store: look-ups may be cached */
};

enum backend_safety { BACKEND_SINGLE, BACKEND_REPLICATED, BACKEND_QUORUM };

/* One word for an attribute or a status page. */
const char *backend_safety_name(enum backend_safety safety);

struct backend_renewal {
    struct backend_ticket *ticket;
    int64_t ttl;     /* from now */
    int64_t due;     /* from now; 0: none */
    uint32_t keeper; /* not 0: a SOLE_AUTHORITY lets a held ticket rest.  It is not due and does not end until it is
                        renewed, or until backend_wake for this keeper, when its term starts and it is due at once */
};

/* Of the meta of a ticket, as words with single spaces between them: the `word`th (1: the first) is this; "": it may be
 * any. */
struct backend_match {
    unsigned word;
    char text[24];
};

/* The word of a ticket's meta that is its guard: flags below BACKEND_GUARD_UNIT, BACKEND_FIXED among them, and that
 * many times milliseconds. */
enum { BACKEND_GUARD_WORD = 8, BACKEND_FIXED = 1, BACKEND_GUARD_UNIT = 4, BACKEND_GUARD_MAX = 60000 };

/* The word of a ticket's meta that is the pid of its holder. */
enum { BACKEND_PID_WORD = 2 };

/* For backends: its digits (borrowed; "" if there are none), and how many they are. */
const char *backend_parse_pid(GBytes *meta, size_t *ret_length);

/* For backends: does its user let the term of a lease with this meta (may be NULL) end, and not renew it? */
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
    void (*mkdir)(struct backend *, const char *name, const struct backend_directory *, backend_done *, void *arg);
    void (*rmdir)(struct backend *, const char *name, backend_done *, void *arg);
    void (*set_directory)(struct backend *, const char *name, const struct backend_directory *, backend_done *,
                          void *arg);
    /* May be NULL. */
    void (*watch)(struct backend *, const char *name);
    void (*recover)(struct backend *, backend_recover_each *found, void *arg);
    struct backend_counts (*counts)(struct backend *);
    bool (*name)(struct backend *, const struct backend_ticket *, char *buffer, size_t size);
    /* May be NULL.  Fills in what applies of a zeroed structure whose two lists are
     * empty and free what is added (g_ptr_array_add(list, g_strdup_printf(…)));
     * `why` and `address` are g_malloc'ed.  From memory: it never asks the store. */
    void (*status)(struct backend *, struct backend_status *status);
};

/* Attaches the backend to a loop and starts its events.  Before it only
 * backend_free may be called. */
static inline void backend_start(struct backend *b, struct ev_loop *loop, const struct backend_events *events,
                                 void *context)
{
    b->operations->start(b, loop, events, context);
}

/* Ends the backend; completions still open are not called.  NULL is allowed. */
static inline void backend_free(struct backend *b)
{
    if (b) {
        b->operations->free(b);
    }
}

/* Asks for a claim.  Returns the ticket, or NULL if the completion has already
 * been called with a refusal.  OK: it holds; QUEUED (only with `wait`): it
 * waits and `granted` follows; BUSY: `holder` tells who.  What a lock owner holds
 * of a name is one FCNTL ticket, with segments as POSIX record locks have them
 * (fcntl(2)): one that is told to hold has taken over that which was told before,
 * which is no more (`joined`), with its number, meta and content.  Where it is not
 * `joined`, and one was told before, `ended` is still to be told of that. */
static inline struct backend_ticket *backend_acquire(struct backend *b, const char *name,
                                                     const struct backend_claim *claim, backend_acquire_done *done,
                                                     void *arg)
{
    return b->operations->acquire(b, name, claim, done, arg);
}

/* Ends a ticket, whether it holds or waits (also one whose acquire has not
 * completed: that completion is then not called).  The ticket is no longer
 * valid when the call returns.  `done` may be NULL. */
static inline void backend_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg)
{
    b->operations->release(b, ticket, done, arg);
}

/* Ends a ticket that does not hold, as its user has given up waiting.  False: it stays for the answer that is under
 * way, as what its lock owner holds may have been changed by it, and others let in: it is granted, or its acquire
 * completes with UNREACHABLE or, where it was QUEUED, `ended` is told. */
static inline bool backend_cancel(struct backend *b, struct backend_ticket *ticket)
{
    if (b->operations->cancel) {
        return b->operations->cancel(b, ticket);
    }
    backend_release(b, ticket, NULL, NULL);
    return true;
}

/* Gives back bytes (inclusive) of what an FCNTL ticket of a lock owner holds.  False: that was all of it, and the
 * ticket is no longer valid when the call returns. */
static inline bool backend_release_range(struct backend *b, struct backend_ticket *ticket, uint64_t start, uint64_t end,
                                         backend_done *done, void *arg)
{
    return b->operations->release_range(b, ticket, start, end, done, arg);
}

/* Turns a ticket that holds into another claim on the same name, in place and
 * without letting go: kind, mode, handle, lock owner, ttl, due, user, and meta and
 * content when not NULL.  The fencing token stays.  BUSY: others hold too and
 * the new mode excludes them; nothing is changed.  (A waiting ticket may be
 * converted as well: it keeps its place.) */
static inline void backend_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                                   backend_done *done, void *arg)
{
    b->operations->convert(b, ticket, claim, done, arg);
}

/* Extends tickets.  One that cannot be extended in time ends with LOST.  The ttl
 * stays as it was (ticket->ttl) if the store has no room to note a longer one. */
static inline void backend_renew(struct backend *b, const struct backend_renewal *renewals, size_t count)
{
    b->operations->renew(b, renewals, count);
}

/* Ends the rest of all tickets of this keeper, a part in each turn of the loop. */
static inline void backend_wake(struct backend *b, uint32_t keeper)
{
    if (b->operations->wake) {
        b->operations->wake(b, keeper);
    }
}

/* When the ticket ends unless renewed.  One that rests is shown as if it were renewed every third of its ttl. */
static inline clock_ms backend_ticket_deadline(const struct backend_ticket *ticket, clock_ms now)
{
    int64_t step = MAX(ticket->ttl / 3, 1), since = now - (ticket->deadline - ticket->ttl);
    return ticket->resting ? ticket->deadline + since / step * step : ticket->deadline;
}

/* Replaces meta or content.  Without `done` nobody would hear that there is no room: a store that is full takes it all
 * the same, now or as soon as it can. */
static inline void backend_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
                               backend_done *done, void *arg)
{
    b->operations->set(b, ticket, change, done, arg);
}

/* Ends the holders of a name, whoever they are: the one whose fencing token is
 * `fence` (event: RELEASED; STALE if none has it), or with 0 all (BROKEN).  The
 * name of a sequence ticket may be one that waits.  When it completes with OK, the
 * events of this mount's tickets have been told, and those of other mounts that
 * can be reached.
 *
 * What is held by a ticket whose meta has a guard ends for its user like any other, but stays held in the store, by the
 * same meta, content and fencing token: until the guard's time or the term as it was is over, whichever is first, or it
 * is revoked once more.  Guards are ended only by a revocation that finds nothing else to end. */
static inline void backend_revoke(struct backend *b, const char *name, uint64_t fence, backend_done *done, void *arg)
{
    b->operations->revoke(b, name, fence, NULL, done, arg);
}

/* The same if all that would end match, in one step; else BUSY, and nothing ends.  It ends no guard: if there is
 * nothing else, it is BUSY. */
static inline void backend_revoke_matching(struct backend *b, const char *name, uint64_t fence,
                                           const struct backend_match *match, backend_done *done, void *arg)
{
    b->operations->revoke(b, name, fence, match, done, arg);
}

/* For backends: does this meta (may be NULL)? */
bool backend_matches(const struct backend_match *match, GBytes *meta);

/* Moves a ticket that holds to another name with its token and content.  The name
 * must be free, or held by `replaced` (NULL: none) and nobody else: that ends in
 * the same step (event: RELEASED), and who waits for the name goes on waiting.
 * BUSY if it is not.  Whatever is told but OK, nothing has changed, a crash in
 * between included; of an outcome that stays unknown both tickets end as LOST
 * before UNREACHABLE is told.  The token is raised if the other name has seen a
 * higher one.  A change of the ticket (backend_set) that crosses it is not lost. */
static inline void backend_rename(struct backend *b, struct backend_ticket *ticket, const char *name,
                                  struct backend_ticket *replaced, backend_done *done, void *arg)
{
    b->operations->rename(b, ticket, name, replaced, done, arg);
}

/* What stands in the way of this claim (F_GETLK): type BACKEND_NOTHING if it
 * would be granted. */
static inline void backend_test(struct backend *b, const char *name, const struct backend_claim *claim,
                                backend_info_done *done, void *arg)
{
    b->operations->test(b, name, claim, done, arg);
}

static inline void backend_stat(struct backend *b, const char *name, backend_info_done *done, void *arg)
{
    b->operations->stat(b, name, done, arg);
}

/* At most `max` entries of a directory in strcmp order, beginning after the
 * name `after` ("": from the first).  A name that is there during the whole of
 * a listing is told exactly once. */
static inline void backend_list(struct backend *b, const char *directory, const char *after, size_t max,
                                backend_list_done *done, void *arg)
{
    b->operations->list(b, directory, after, max, done, arg);
}

/* The same of the tickets of a directory's queue, each with its `info`, in requests that do not grow in number with
 * each ticket.  Other locks whose names end in digits may be among them. */
static inline void backend_tickets(struct backend *b, const char *directory, const char *after, size_t max,
                                   backend_list_done *done, void *arg)
{
    if (b->operations->tickets) {
        b->operations->tickets(b, directory, after, max, done, arg);
    } else {
        done(arg, BACKEND_OK, NULL, 0);
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

/* Somebody else holds this name, and `gone` shall tell when nobody does, by release, expiry or break, through another
 * mount or by another client.  For as long as `watched` says so; there may be a limit to how many are watched, the
 * last first.  A sequence ticket is there while it waits, too. */
static inline void backend_watch(struct backend *b, const char *name)
{
    if (b->operations->watch) {
        b->operations->watch(b, name);
    }
}

/* Calls `found` for each lease, and each handle lock that held, which the mount of this store had when it last
 * ended; `found` may set ticket->user, and must not call the backend.  With NULL
 * for the ticket it is told of each directory, if no other mount makes any.  A store that alone decides tells of leases
 * whose deadline has passed, too: one that is renewed goes on, and else it ends.  A store
 * that does not know the content yet tells NULL, and has to be asked: backend_stat.
 * A store across a network that has not found all of them in the time of a request goes on after the return: `found` is
 * called from the loop, until backend_free at the latest.
 *
 * A handle lock (kind FLOCK or FCNTL, also of a sequence ticket that held) is found with its fencing token, mode,
 * bytes, meta and content.  It stands before all who wait, and beside the locks that it held beside before.  It has no
 * identity any more: handles and lock owners have other numbers now.  Its user renews it, as any handle lock, and
 * releases it; with backend_set its meta stays in the form that it had.  If `found` returns false it is not renewed,
 * and ends with its term.  Waiting handle locks are not found: their waits ended with the daemon.  A store that cannot
 * keep handle locks finds none; `memory` keeps nothing. */
static inline void backend_recover(struct backend *b, backend_recover_each *found, void *arg)
{
    b->operations->recover(b, found, arg);
}

static inline struct backend_counts backend_counts(struct backend *b)
{
    return b->operations->counts(b);
}

/* Free with backend_status_clear. */
void backend_status(struct backend *b, struct backend_status *ret_status);
void backend_status_clear(struct backend_status *status);

/* The name that a ticket is on, NUL-terminated: of a sequence ticket the one it
 * was given.  False if it does not fit. */
static inline bool backend_ticket_name(struct backend *b, const struct backend_ticket *ticket, char *buffer,
                                       size_t size)
{
    return b->operations->name(b, ticket, buffer, size);
}

/* A new structure, all 0, for what each request makes.  Several times as quick as g_new0: calloc(3) does not use again
 * what the thread has freed (glibc before 2.41). */
static inline void *backend_new0(size_t size)
{
    return memset(g_malloc(size), 0, size);
}

#endif
