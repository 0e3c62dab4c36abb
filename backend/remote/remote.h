/* remote: what every store across a network shares: the tickets of this mount, while a server decides.
 *
 * The store knows a ticket by its id, so every request about it may be repeated.  This room undoes what an unknown
 * outcome leaves open: it releases an acquire, repeats a release for as long as the ticket may live, reverts a
 * conversion, and gives back both names of a rename.  A conversion, and a claim of a lock owner that holds already,
 * fails once it is undone; a lock for which that is impossible is lost.  A mount relies on a ticket only until its
 * deadline, which counts from before the request was sent (remote_deadline).
 *
 *     ACQUIRING ──queued──▶ WAITING ──granted──▶ CLAIMING ──confirmed──▶ HELD
 *         └──────────────────────────granted────────────────────────────┘
 *                              ◀──passed over, or the outcome is unknown──┘
 *
 * This room has the only table of struct backend_operations of such stores, so none can forget an operation.  A store
 * puts `struct remote` at the head of its own structure and gives a struct remote_store: its features, and how it
 * sends a request and reads the answer.  From the top to the ground; no file calls one above it:
 *
 * epoch.c       the epoch of the store's data, and the grace period: see epoch.h
 * operations.c  the table of operations: checks names and features, makes requests about names
 * messages.c    messages of the store; requests that wait until other mounts have read theirs
 * remote.c      begins and ends; connection up and down; timers
 * update.c      sets, renews, renames and releases tickets
 * convert.c     converts tickets, and reverts conversions
 * acquire.c     takes locks, waits for them and claims them; the heartbeat of waiters
 * background.c  renewals and releases, which nobody waits for; ends of tickets
 * deadlock.c    cycles of waits
 * listing.c     the names in a directory
 * watch.c       names that others hold, whose end the file system must know
 * directory_cache.c  the directories that this mount has seen
 * ticket.c      tickets, their states and times; requests
 * text.c        names, ticket ids, hosts, and the words of a store's answers
 */
#ifndef BACKEND_REMOTE_REMOTE_H
#define BACKEND_REMOTE_REMOTE_H

#include <ev.h>
#include <string.h>
#include <sys/queue.h>

#include "backend/backend.h"
#include "backend/skiplist.h"

#define REMOTE_ID_SIZE 33            /* 128 random bits in hexadecimal, and NUL */
#define REMOTE_LIVENESS 6000         /* ms that a waiter counts as alive after a heartbeat */
#define REMOTE_HEARTBEAT 2000        /* ms between the heartbeats of a mount, for all of its waiters */
#define REMOTE_HEARTBEAT_MIN 20      /* the same at least, for short terms */
#define REMOTE_HEARTBEAT_TICKETS 200 /* waiters of one heartbeat request */
#define REMOTE_RELEASE_MAX 60000     /* ms that a release with an unknown outcome is repeated */
#define REMOTE_UNDO_MAX 10000        /* ms that an undo is repeated before its caller gets the result */
#define REMOTE_TIMEOUT_AWAY 20       /* ms of a request while the store has not answered for longer than a timeout */
#define REMOTE_LATE_GRANTS 3         /* grants that arrive after their term before a claim that does not wait fails */
#define REMOTE_BACKGROUND_MAX 1024   /* cost of pending background requests; see background.c */
#define REMOTE_BACKGROUND_COST 16    /* of one; an uncontended renewal, which a store may send with others, costs 1 */
#define REMOTE_RENEW_RETRY 250       /* ms after a renewal that failed while the store is up */
#define REMOTE_RENEWALS_MAX 100      /* renewals of one batch */
#define REMOTE_RENEW_EARLY 30        /* this part of its ttl a renewal may be early, to be in a batch with others */

/* What a ticket is to the store, as far as this mount knows. */
enum remote_state {
    REMOTE_ACQUIRING, /* its acquire is pending */
    REMOTE_WAITING,   /* queued */
    REMOTE_CLAIMING,  /* granted; the claim is pending */
    REMOTE_HELD
};

static inline bool remote_state_waits(enum remote_state state)
{
    return state == REMOTE_WAITING || state == REMOTE_CLAIMING;
}

/* A name with tickets of this mount; or a directory, for its sequence tickets. */
struct remote_lock {
    char *name;
    bool sequence;
    bool watched; /* the store reports changes of the lock: see watch_lock */
    uint32_t held, waiting;
    LIST_HEAD(, remote_ticket) tickets;
};

struct remote_ticket {
    struct backend_ticket head;
    LIST_ENTRY(remote_ticket) link;    /* lock->tickets */
    LIST_ENTRY(remote_ticket) waiters; /* r->waiters */
    struct remote_lock *lock;
    char id[REMOTE_ID_SIZE];
    char *name;       /* of a sequence ticket: as requested, then as given */
    char *moving;     /* the new name of a rename whose outcome is pending or unknown; or NULL */
    bool renaming;    /* a rename is pending: of this ticket, or of another to its name */
    uint32_t changes; /* counts changes of the ticket and of what the store keeps with it */
    enum remote_state state;
    bool granted_unclaimed;           /* the store granted it; the claim is not confirmed yet */
    struct remote_request *acquiring; /* the pending acquire, or NULL */
    uint64_t acquiring_call;          /* what remote_store.send returned for it */
    bool wait;                        /* it may queue */
    uint8_t late_grants;              /* grants that arrived after their term; see remote_acquire */
    bool cancelled;                   /* it ends unless the next answer grants it */
    bool outcome_unknown;             /* of its last acquire */
    bool undoing;                     /* it ends, which is reported once its acquire is undone */
    bool undo_failed;                 /* its acquire could not be undone before */
    bool uncontended;                 /* hint for Redis' short scripts: no other ticket is known */
    bool expiry_sent;                 /* past its deadline, and the store knows */
    bool expiry_reported;             /* by the store, possibly for an earlier grant: verify before acting */
    bool renewing;                    /* a renewal that extends it is pending */
    bool in_background;               /* its renewal waits to be sent; */
    bool background_extends;          /* the renewal extends it; */
    clock_ms background_order;        /* its deadline when the renewal was queued */
    uint64_t handle, lock_owner, start, end;
    GArray *segments;        /* struct backend_segment; what an FCNTL ticket holds; NULL: not known */
    int64_t due_after;       /* the claim's `due` */
    clock_ms due;            /* CLOCK_NEVER: none */
    clock_ms ends;           /* of a lease with a fixed term: its end, which only its user moves */
    clock_ms refresh;        /* when to ask the store again for this ticket alone; CLOCK_NEVER: not */
    clock_ms last_heartbeat; /* a waiter's */
    clock_ms next;           /* the earliest of these and the deadline: its key in the agenda */
    uint64_t serial;         /* makes that key unique */
    GBytes *meta;
    backend_acquire_done *acquire_done; /* NULL once it was called */
    void *arg;
};

/* --- Requests to the store, and their results --- */

/* Each may be repeated.  `t` is the ticket; the rest is in the request.  Results besides those of any request
 * (UNREACHABLE, FULL, DAMAGED, GRACE): */
enum remote_procedure {
    REMOTE_ACQUIRE, /* takes the lock or queues for it, or claims a grant to t; for an id that is there already it is a
                       heartbeat.  OK, QUEUED, DEADLOCK, BUSY with `info`, MISSING, IS_DIRECTORY, NOT_DIRECTORY */
    REMOTE_RELEASE, /* ends ticket `id` on `name`.  If it has changed another ticket of its lock owner there, that is
                       as it was before.  OK; MISSING: it was gone, and the store has not lost data; BUSY: others share
                       the lock, so that cannot be as it was; STALE: the lock owner has lost it for that reason */
    REMOTE_RELEASE_RANGE, /* the bytes of `release` of its lock owner on `name`.  OK.  Of a store with BACKEND_CAN_RANGE
                             or BACKEND_CAN_SHARE; others have the whole lock until nothing is left, and get a RELEASE
                           */
    REMOTE_RENEW,         /* extends t to `renewal.left` from now; a later end stays, but at most `ttl` from now.  OK;
                             STALE: it does not hold; BUSY: it holds in another mode than `renewal` says */
    REMOTE_SET,           /* t to `update`.  OK, STALE */
    REMOTE_RENAME,        /* t to `name`, where ticket `replaced` ends.  OK, BUSY, STALE */
    REMOTE_CONVERT,       /* t to `update`.  OK, BUSY, STALE */
    REMOTE_REVOKE,        /* `fence`, `match`: see backend_revoke */
    REMOTE_TEST,          /* `claim`: see backend_test.  `info` */
    REMOTE_STAT,          /* see backend_stat.  `info` */
    REMOTE_LIST,          /* a part of `listing`: see backend_list and listing.c */
    REMOTE_TICKETS,       /* the same: see backend_tickets.  Of a store with BACKEND_CAN_SEQUENCE */
    REMOTE_MOUNTS,        /* see backend_mounts.  `info`; UNSUPPORTED */
    REMOTE_MKDIR,         /* `directory` */
    REMOTE_RMDIR,
    REMOTE_SET_DIRECTORY, /* `directory` */
    REMOTE_PROCEDURES,
    REMOTE_NO_PROCEDURE = REMOTE_PROCEDURES
};

/* The outcome of a request over all its attempts. */
enum remote_outcome {
    REMOTE_ANSWERED, /* the store has answered it */
    REMOTE_REFUSED,  /* the store cannot, and another attempt does not help, or has not */
    REMOTE_NOT_SENT, /* timeout; it was never sent, so nothing has changed */
    REMOTE_UNKNOWN   /* timeout; the store may have carried it out */
};

struct remote_answer {
    enum remote_outcome outcome;
    enum backend_result result; /* UNREACHABLE, FULL or DAMAGED unless it is ANSWERED */
    clock_ms sent;              /* before the attempt that was answered (or the last one) was sent */
    bool repeated;              /* an earlier attempt may have been carried out, too */
    /* Valid during the call only. */
    uint64_t fence;                  /* of acquire and rename; 0: unchanged */
    const char *id;                  /* OK of acquire: the ticket id under which it holds; NULL: its own */
    const GArray *segments;          /* OK of acquire with BACKEND_CAN_RANGE: what its lock owner holds; or NULL */
    const char *leaf;                /* OK and QUEUED of a sequence ticket: its name; NULL: unchanged */
    int64_t rank;                    /* QUEUED: tickets before it; negative: it does not wait */
    int64_t wait;                    /* QUEUED: ms until the holder's deadline; negative: not known */
    bool foreign;                    /* QUEUED: the holder is another client of the store, no mount */
    const struct backend_info *info; /* BUSY of acquire: the holder; OK of stat and test */
};

/* What a LIST or TICKETS request has found. */
struct remote_listing {
    char *after; /* names up to this one are listed, or not wanted */
    size_t max;
    bool more; /* the store may have names after it */
    clock_ms until;
    int64_t timeout; /* of the part that is requested, ms; 0: the store's own */
    GStringChunk *names;
    GArray *entries; /* struct backend_entry, in the order of their names */
    guint described; /* so many have their type: the first ones */
    guint next;      /* the index of the first without a type; those between are empty */
};

/* A pending request; or REMOTE_NO_PROCEDURE: what a store keeps while it waits for an answer that concerns nobody else,
 * with `id`, `name` and `arg`. */
struct remote_request {
    LIST_ENTRY(remote_request) link;
    struct remote *r;
    enum remote_procedure procedure;
    uint64_t serial; /* grows with each that is sent */
    void (*on_answer)(struct remote_request *request, const struct remote_answer *answer); /* frees or sends it again */
    char id[REMOTE_ID_SIZE]; /* of its ticket; "": of none */
    char *name;              /* of the lock or directory; of a rename: the new one */
    union {
        backend_done *done; /* or NULL */
        backend_info_done *known;
        backend_list_done *listed;
    };
    void *arg;
    uint8_t background_cost; /* its share of r->background_pending; 0: it is not of the background */
    bool repeated;           /* for the store: an attempt by other means may have been carried out */
    int64_t ttl;             /* of acquire, renew and release */
    uint64_t lock_owner;     /* of release and convert: whose bytes on the lock may change; or 0 */
    struct {
        TAILQ_ENTRY(remote_request) ended; /* r->ended_releases */
        char *ticket_name;                 /* the ticket's own name */
        bool sequence;
        enum backend_kind kind;
        GBytes *meta;
        uint64_t start, end;        /* the bytes */
        const char *why;            /* "" by its holder, else "expired" or "lost" */
        bool uncontended;           /* by its holder, as of the ticket */
        bool held;                  /* by its holder, which has relied on it until then */
        bool undo;                  /* `done` gets BUSY and STALE, see REMOTE_RELEASE */
        enum backend_result result; /* with `undo`: what the caller of the acquire gets */
    } release;
    struct {
        enum backend_mode mode;
        int64_t left;     /* as ttl; or less: of a fixed term, and with `verify_only` what this mount relies on */
        uint32_t changes; /* as of the ticket */
        GArray *segments; /* as of the ticket; or NULL */
        bool verify_only; /* its user has not asked to extend it */
        bool restores;    /* the store's own mark: this renewal restores the ticket */
    } renewal;
    struct {                          /* of set and convert */
        struct backend_change change; /* references */
        struct backend_claim claim;
        bool reverts;                    /* it undoes a conversion whose outcome is unknown, */
        bool weaker;                     /* which may have let others in, */
        struct remote_request *reverted; /* and which waits for that; or NULL */
        bool undo_failed;                /* it could not be reverted before */
    } update;
    char *replaced;                     /* of rename: the id of the ticket that it replaces; or NULL */
    struct backend_claim claim;         /* of test */
    uint64_t fence;                     /* of revoke */
    struct backend_match *match;        /* of revoke; NULL: all match */
    struct remote_listing *listing;     /* of list and tickets */
    bool verified;                      /* of test and stat: it was sent again to verify the answer */
    struct backend_directory directory; /* of mkdir and set_directory; meta is a reference */
};

/* Renewals that a store sends in one request. */
struct remote_batch {
    LIST_ENTRY(remote_batch) link; /* r->batches */
    struct remote *r;
    unsigned count; /* at least 1 */
    struct remote_request *requests[REMOTE_RENEWALS_MAX];
    char ids[REMOTE_RENEWALS_MAX][REMOTE_ID_SIZE]; /* of their tickets, also when a request is answered and freed */
};

/* What a store gives.  Every member is set unless it says NULL. */
struct remote_store {
    const char *name;  /* "redis" */
    unsigned features; /* of enum backend_feature */
    enum backend_safety safety;
    /* Logged when a feature that the store lacks is used: byte ranges, shared locks or sequences, a directory's width
     * or lock-delay, rename, rename over a lock. */
    const char *no_range, *no_share, *no_width, *no_rename, *no_replace;
    enum backend_result revoke_root, rmdir_root; /* what these operations give for the root */
    /* r->loop is set; from now on it calls remote_on_up, remote_retry_waiter and remote_on_event. */
    void (*start)(struct remote *r);
    /* Frees all but what remote_init made.  No ticket or request is left; `holds`: tickets of this mount held. */
    void (*free)(struct remote *r, bool holds);
    bool (*is_up)(const struct remote *r);
    bool (*allows_name)(struct remote *r, const char *name);
    /* Encodes and sends it, reads the answer and calls request->on_answer with that, once, from the loop (of stat and
     * test also at once).  `t`: the ticket, or NULL if it is forgotten or there is none.  `timeout` in ms, over all
     * attempts; 0: the store's own.  Returns what `forget` takes. */
    uint64_t (*send)(struct remote_request *request, struct remote_ticket *t, int64_t timeout);
    /* Sends the renewals that the store has given to remote_batch_add, in one request, and calls on_answer of each.
     * Each is answered by itself: what the request cannot renew goes on alone.  Then frees the batch.  NULL: adds none.
     */
    void (*renew)(struct remote *r, struct remote_batch *batch);
    /* A pending request is not sent (again), and not answered. */
    void (*forget)(struct remote *r, uint64_t call);
    /* Keeps waiting tickets alive. `tickets` is grouped by lock.  On an answer, calls remote_heartbeat_reply for every
     * ticket that no longer waits and for the first waiter of each lock. */
    void (*heartbeat)(struct remote *r, struct remote_ticket *const *tickets, size_t count);
    /* A ticket begins or stops to wait, and its state is about to be `to`.  t->lock->waiting is up to date.  Or NULL.
     */
    void (*on_waiting)(struct remote *r, struct remote_ticket *t, enum remote_state to);
    /* Calls remote_retry_waiter when the ticket's lock, which another client holds, may be free.  Or NULL. */
    void (*watch_lock)(struct remote *r, struct remote_ticket *t);
    /* Reads a name that others hold.  If nobody does, it calls remote_watch_gone; otherwise it calls
     * remote_watch_changed when that may have changed, once.  Or NULL. */
    void (*watch_name)(struct remote *r, const char *name);
    /* The first name is watched, or none any more.  Or NULL. */
    void (*on_watching)(struct remote *r, bool any);
    /* See backend_recover.  NULL: the leases of a mount that has ended expire. */
    void (*recover)(struct remote *r, backend_recover_each *found, void *arg);
    /* Has `recover` not read all yet?  It goes on while the mount serves, after the time of a request.  NULL: `recover`
     * returns when it has. */
    bool (*is_recovering)(const struct remote *r);
    /* See backend_operations; has_connections is set. */
    void (*status)(struct remote *r, struct backend_status *status);
};

/* A name that others hold, and whose end the file system must know. */
struct remote_watch {
    TAILQ_ENTRY(remote_watch) link; /* r->watched */
    struct remote *r;
    char *name;
    bool rests;     /* a ticket of this mount waits for the lock: see watch.c */
    ev_timer timer; /* reads it again: see remote_watch_later */
};

struct remote {
    struct backend backend;
    const struct remote_store *store;
    struct ev_loop *loop;
    const struct backend_events *events;
    void *context;
    int64_t timeout;     /* of a request over all its attempts, ms; the store sets it */
    ev_io alarm;         /* a timerfd on CLOCK_BOOTTIME, which runs during suspend */
    clock_ms armed;      /* when it fires; CLOCK_NEVER: not */
    GHashTable *tickets; /* ticket id -> struct remote_ticket */
    GHashTable *locks;   /* name -> struct remote_lock */
    GHashTable *queues;  /* directory -> struct remote_lock, of its sequence tickets */
    struct skiplist agenda;
    GHashTable *directories; /* name -> struct remote_directory; see directory_cache.c */
    uint64_t serials;
    LIST_HEAD(, remote_request) requests;
    LIST_HEAD(, remote_revocation) revocations;
    struct skiplist background;                  /* tickets whose renewal waits to be sent, nearest deadline first */
    TAILQ_HEAD(, remote_request) ended_releases; /* releases of ended tickets that wait to be sent */
    unsigned background_pending;                 /* cost of the pending requests of these two */
    struct remote_batch *batch;                  /* renewals of this turn of the loop; or NULL */
    ev_prepare batching;                         /* is fed to the loop while there are any */
    LIST_HEAD(, remote_batch) batches;           /* that one, and those that are pending */
    GHashTable *watches;                         /* name -> struct remote_watch */
    TAILQ_HEAD(remote_watches, remote_watch) watched; /* the same, the last looked up first */
    LIST_HEAD(, remote_ticket) waiters;
    uint64_t waiting;                  /* so many */
    clock_ms next_heartbeat;           /* CLOCK_NEVER: nobody waits */
    bool range_noticed, share_noticed; /* no_range, no_share were logged */
};

/* --- operations.c --- */

/* Initialises the parts of a zeroed structure, r->backend included.  0 or -errno. */
int remote_init(struct remote *r, const struct remote_store *store, uint32_t seed);
/* Sends MKDIR, RMDIR or SET_DIRECTORY for the store itself; nobody gets the result. */
void remote_send_directory(struct remote *r, enum remote_procedure procedure, const char *name,
                           const struct backend_directory *directory);

/* --- messages.c --- */

/* A message, in words: "g ID": the ticket holds; "a ID": it waits, and asks again; "w ID": another waits for what it
 * holds; "e ID WHY": it has ended; "h SERIAL": another mount has read what the revocation with this serial ended.  Any
 * other is the store's own. */
void remote_on_message(struct remote *r, char *const *words);

/* A revocation that is not complete.  Its request's serial names it to other mounts. */
struct remote_revocation {
    LIST_ENTRY(remote_revocation) link; /* r->revocations */
    struct remote_request *request;
    GPtrArray *ends;     /* the ids of the tickets that it ends */
    int64_t unconfirmed; /* other mounts that have not confirmed; negative before the answer */
    bool answered;
    clock_ms until; /* the store answers all requests of it by then */
    ev_timer limit;
};

struct remote_revocation *remote_revocation_new(struct remote_request *request);
void remote_revocation_add(struct remote_revocation *v, const char *id);
/* The store has ended the tickets, and so many other mounts must confirm.  Frees it when they have. */
void remote_revocation_wait(struct remote_revocation *v, int64_t others);
/* Answers its request, and frees it. */
void remote_revocation_complete(struct remote_revocation *v, enum backend_result result);
void remote_revocation_clear_all(struct remote *r);

/* --- remote.c --- */

/* For remote_init and the operations. */
int remote_init_tables(struct remote *r, uint32_t seed);
void remote_start(struct remote *r);
/* Frees tickets and requests, without their completions. */
void remote_clear(struct remote *r);
struct backend_counts remote_count(const struct remote *r);
/* Tickets of this mount that wait for the lock. */
uint32_t remote_count_waiters(const struct remote *r, const char *name);
/* The store is up (again): verifies what is held; waiters queue again, in their order. */
void remote_on_up(struct remote *r);
/* The first deadline of a ticket that is renewed while the store is up; CLOCK_NEVER: the store is up, or there is no
 * such ticket.  Looks at all tickets. */
clock_ms remote_first_deadline(const struct remote *r);

enum remote_event {
    REMOTE_GRANTED,     /* the ticket must be claimed */
    REMOTE_MAY_BE_FREE, /* the lock that it waits for: ask again */
    REMOTE_WANTED,      /* another ticket waits for what it holds */
    REMOTE_ENDED        /* for the reason `why` */
};
/* An event from the store about a ticket of this mount.  Unknown tickets are ignored. */
void remote_on_event(struct remote *r, const char *id, enum remote_event event, enum backend_end why);
/* An end may be reported on another connection than the grant.  If a grant was not claimed in time because the store
 * was away, it was acquired again under the same id; then the report may be of the earlier grant, so this verifies the
 * ticket.  False: the report is of this grant.  A break and a release always are, because their caller waits. */
bool remote_verify_end(struct remote *r, const char *id, enum backend_end why);
/* The lock may be free: the first waiter of this mount asks again.  NULL: that of every lock. */
void remote_retry_waiter(struct remote *r, struct remote_lock *lock);

/* --- update.c --- */

void remote_release(struct remote *r, struct remote_ticket *t, backend_done *done, void *arg);
void remote_renew(struct remote *r, const struct backend_renewal *renewals, size_t count);
void remote_set(struct remote *r, struct remote_ticket *t, const struct backend_change *change, backend_done *done,
                void *arg);
void remote_rename(struct remote *r, struct remote_ticket *t, const char *name, struct remote_ticket *replaced,
                   backend_done *done, void *arg);

/* --- convert.c --- */

void remote_convert(struct remote *r, struct remote_ticket *t, const struct backend_claim *claim, backend_done *done,
                    void *arg);

/* --- acquire.c --- */

/* A grant that arrives after its term is requested again, for a claim that does not wait REMOTE_LATE_GRANTS times. */
void remote_acquire(struct remote *r, struct remote_ticket *t, backend_acquire_done *done, void *arg);
bool remote_cancel(struct remote *r, struct remote_ticket *t);
/* Asks again for one that waits: claims it if it was granted, else looks at the lock. */
void remote_refresh(struct remote *r, struct remote_ticket *t);
/* Sends the heartbeat of all waiters, in as few requests as possible. */
void remote_heartbeat(struct remote *r, clock_ms now);
/* The answer to a heartbeat: `rank`, `wait` and `foreign`. */
void remote_heartbeat_reply(struct remote *r, const char *id, const struct remote_answer *answer);

/* --- background.c --- */

/* Sends the release of a ticket that the caller frees, and repeats it until the ticket must have run out.  `why`: as in
 * remote_request. */
void remote_send_release(struct remote *r, const struct remote_ticket *t, const char *why, backend_done *done,
                         void *arg);
/* The same for one whose acquire may have changed what its lock owner holds; `done` gets the result after
 * REMOTE_UNDO_MAX at the latest. */
void remote_send_undo(struct remote *r, const struct remote_ticket *t, backend_done *done, void *arg);
bool remote_release_range(struct remote *r, struct remote_ticket *t, uint64_t start, uint64_t end, backend_done *done,
                          void *arg);
/* Extends a holder to its ttl from now, in the background. */
void remote_extend(struct remote *r, struct remote_ticket *t);
/* Verifies a holder in the background, or at once, so that its answer comes before those of later requests. */
void remote_verify_in_background(struct remote *r, struct remote_ticket *t);
void remote_verify_ticket(struct remote *r, struct remote_ticket *t);
/* For a store's send: the renewal is sent by its renew, with others, in this turn of the loop. */
void remote_batch_add(struct remote *r, struct remote_request *request);
void remote_batch_free(struct remote_batch *batch);
/* Frees all at the end. */
void remote_batch_clear(struct remote *r);
/* The store's view of `lock` contradicts ours: renews our tickets on it, so that those it no longer has are lost now.
 * If `holder` is given it surely holds, so this verifies only tickets that conflict with it. */
void remote_verify(struct remote *r, struct remote_lock *lock, const struct remote_ticket *holder);
/* Must the store be asked once more, because its answer to a stat contradicts what this mount holds?  Then this has
 * verified that, so that the caller does not see the lock gone before its holder does.  `own`: the described holder is
 * a ticket of this mount; one that has expired here is not there. */
bool remote_stat_again(struct remote_request *request, struct backend_info *info, bool own);
/* The order of r->background. */
int remote_compare_background(const void *a, const void *b);
/* Reports the end of a ticket that holds or waits, and frees it.  `release`: the store may still have it. */
void remote_end_ticket(struct remote *r, struct remote_ticket *t, enum backend_end why, bool release);
/* Releases in the store now what has expired or ended at a name, before another request for that name. */
void remote_report_expired(struct remote *r, const char *name);

/* --- deadlock.c --- */

/* A cycle of waits of lock owners of this mount that begins with this one. */
bool remote_deadlocked(struct remote *r, const struct remote_ticket *t);

/* --- listing.c --- */

/* Sends a LIST or TICKETS request, and calls `listed`. */
void remote_listing_start(struct remote_request *request, const char *after, size_t max);
/* For stores, which send one part at a time: if there are names without a type they describe some, else they list names
 * after listing->after; then they answer without values.  Names come in their order; this ignores others, and those
 * that no mount can have.  `type`: BACKEND_NOTHING: not known yet.  `info`: of a ticket, or NULL; copied, without
 * content. */
void remote_listing_add(struct remote_request *request, const char *name, enum backend_type type,
                        const struct backend_info *info);
/* The names up to `last` are listed, and there may be others.  "", or no call: these were all. */
void remote_listing_end_part(struct remote_request *request, const char *last);
/* The info of a ticket that the store describes: `age` in ms; `meta` is borrowed. */
struct backend_info remote_listing_ticket(struct remote_request *request, const char *id, bool holds, int64_t age,
                                          GBytes *meta);
/* The name with this index among those without a type; NULL: none. */
struct backend_entry *remote_listing_undescribed(const struct remote_request *request, guint index);
/* The first name without a type has this one.  BACKEND_NOTHING: it is not there. */
void remote_listing_describe(struct remote_request *request, enum backend_type type);

/* --- watch.c --- */

/* See backend_watch. */
void remote_watch(struct remote *r, const char *name);
bool remote_watches(const struct remote *r, const char *name);
/* The lock of this name may have changed; NULL: any lock may have. */
void remote_watch_changed(struct remote *r, const char *name);
/* Nobody holds it. */
void remote_watch_gone(struct remote *r, const char *name);
/* Others hold it, and the end of that may not be reported: reads it again after `ms`. */
void remote_watch_later(struct remote *r, const char *name, int64_t ms);
/* The last ticket of this mount that waited for the lock was granted, or has ended. */
void remote_watch_resume(struct remote *r, const char *name, bool granted);
void remote_watch_clear(struct remote *r);

/* --- ticket.c --- */

/* A request about the ticket, or about none (NULL).  `name` may be NULL. */
struct remote_request *remote_request_new(struct remote *r, enum remote_procedure procedure,
                                          const struct remote_ticket *t, const char *name);
void remote_request_free(struct remote_request *request);
void remote_listing_free_info(struct backend_entry *entry);
/* With references to the values. */
void remote_request_set_change(struct remote_request *request, const struct backend_change *change);
/* See remote_store.send. */
uint64_t remote_request_send(struct remote_request *request, struct remote_ticket *t,
                             void (*on_answer)(struct remote_request *request, const struct remote_answer *answer),
                             int64_t timeout);
/* Calls `done`, if it is set, and frees the request. */
void remote_request_finish(struct remote_request *request, enum backend_result result);
/* For stores: the answer to a request that has no values. */
void remote_request_answer(struct remote_request *request, enum backend_result result, clock_ms sent);

struct remote_ticket *remote_ticket_new(struct remote *r, const char *name, const struct backend_claim *claim);
/* A ticket that this mount had before it started again, as the store has it. */
struct remote_restored {
    const char *id;
    uint64_t fence;
    bool waits; /* in a queue; else it holds */
    clock_ms acquired, deadline;
};
/* The caller sets `due` and calls remote_ticket_schedule. */
struct remote_ticket *remote_ticket_restore(struct remote *r, const char *name, const struct backend_claim *claim,
                                            const struct remote_restored *restored);
/* Logs that a handle lock of the daemon before ended in the store: a process that has its file open does not learn it
 * otherwise.  `pid` <= 0: not known. */
void remote_log_lost(const char *name, pid_t pid);
/* Removes it from all tables, and frees it. */
void remote_ticket_free(struct remote *r, struct remote_ticket *t);
/* NULL: this mount has no ticket with that id. */
struct remote_ticket *remote_ticket_find(struct remote *r, const char *id);
/* The lock's name; of a sequence ticket its own. */
const char *remote_ticket_name(const struct remote_ticket *t);
/* The only function that changes its state. */
void remote_ticket_set_state(struct remote *r, struct remote_ticket *t, enum remote_state state);
void remote_ticket_rename(struct remote *r, struct remote_ticket *t, const char *name);
void remote_ticket_change(struct remote_ticket *t, const struct backend_change *change);
/* Its deadline has passed, which is not reported yet. */
bool remote_ticket_is_expired(const struct remote_ticket *t);
/* May a grant to `t` carry this ticket id?  Yes for its own id, and for the id under which its lock owner already holds
 * the lock. */
bool remote_ticket_accepts_id(struct remote *r, const struct remote_ticket *t, const char *id);
/* `t` takes over the id; the ticket of its lock owner that had it is freed. */
void remote_ticket_adopt_id(struct remote *r, struct remote_ticket *t, const char *id);
/* May it have been under another name than this one when the store carried out a request that named this one? */
bool remote_ticket_has_moved(const struct remote_ticket *t, const char *name);
/* Its times have changed. */
void remote_ticket_schedule(struct remote *r, struct remote_ticket *t);
/* Its term ends at `deadline`.  It is due after what its claim says or, if the answer came so late that little would be
 * left, after a third of what is left. */
void remote_ticket_start_term(struct remote_ticket *t, clock_ms now, clock_ms deadline);
/* Sets the timer to the next ticket of the agenda. */
void remote_ticket_set_alarm(struct remote *r);
/* What it holds: struct backend_segment, copied; NULL: not known. */
void remote_ticket_set_segments(struct remote_ticket *t, const GArray *segments);
/* The bytes that its lock owner holds after the grant: those of `joined`, the ticket with which it holds already, or
 * NULL, and those of `t`.  A store without BACKEND_CAN_RANGE holds the whole lock for them.  A new array. */
GArray *remote_ticket_join_segments(const struct remote_ticket *t, const struct remote_ticket *joined);
/* The part of `info` that this mount knows best of its own ticket: times, fencing token and the ticket itself. */
void remote_ticket_describe(struct remote_ticket *t, struct backend_info *info);
/* The same, if this mount has that ticket on that name, or may have it there after a pending rename. */
void remote_describe_own(struct remote *r, const char *id, const char *name, struct backend_info *info);
/* `own`: the store names a ticket of this mount.  Has it expired here?  The store may not have known when it answered.
 */
bool remote_info_is_expired(const struct backend_info *info, bool own);
/* Unreferences meta and content. */
void remote_info_clear(struct backend_info *info);
/* Does it hold, or ask for, some of these bytes? */
bool remote_ticket_covers(const struct remote_ticket *t, uint64_t start, uint64_t end);
/* Removes these bytes from what it holds.  False: nothing is left. */
bool remote_ticket_cut_range(struct remote_ticket *t, uint64_t start, uint64_t end);
/* Has this mount another ticket on its lock with that identity? */
bool remote_ticket_has_compatible(const struct remote_ticket *t, struct backend_identity identity);
/* The ticket with which its lock owner holds the lock already, and which its grant changes; or NULL. */
struct remote_ticket *remote_ticket_find_joined(const struct remote_ticket *t);
/* How long it lives in the store without a heartbeat or renewal. */
int64_t remote_ticket_liveness(const struct remote_ticket *t, int64_t ttl);
/* It may have been carried out, and the store has not said so. */
bool remote_outcome_is_unknown(const struct remote_answer *answer);

/* --- directory_cache.c --- */

struct remote_directory {
    struct backend_directory attributes; /* the sequence never goes back */
    char *mark;                          /* for the store, with `revision`: which mkdir made it; or NULL */
    int64_t revision;
};

/* A copy, with references. */
void remote_directory_cache_add(struct remote *r, const char *name, const struct remote_directory *directory);
void remote_directory_cache_remove(struct remote *r, const char *name);
/* NULL: this mount has not seen it. */
struct remote_directory *remote_directory_cache_find(const struct remote *r, const char *name);
void remote_directory_cache_free(gpointer directory);

/* --- text.c --- */

bool remote_is_id(const char *id);
/* A new random one. */
void remote_make_id(char id[REMOTE_ID_SIZE]);
/* "a/b" -> "b"; borrowed. */
static inline const char *remote_leaf(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}
/* "a/b" -> "a" (a new string, "" for what is in the root); *ret_leaf is "b". */
char *remote_parent(const char *name, const char **ret_leaf);
/* May a store name this: a component of a path, or a path? */
bool remote_is_component(const char *name);
bool remote_is_path(const char *path);
/* May it be the name of a sequence ticket? */
bool remote_is_numbered(const char *leaf);
/* "ok", "busy", "stale", "missing", …; `otherwise` for a word that is none of these. */
enum backend_result remote_parse_result(const char *word, enum backend_result otherwise);
/* "start end mode …", in hexadecimal, mode 1: shared.  A new array of struct backend_segment; NULL: "". */
GArray *remote_parse_segments(const char *text);
/* A name or an address, as far as its characters tell. */
bool remote_is_host(const char *host);
enum remote_host_fault { REMOTE_HOST_GOOD, REMOTE_HOST_MISSING, REMOTE_HOST_BAD, REMOTE_HOST_BAD_PORT };
/* "HOST[:PORT],HOST[:PORT],…", with brackets around an IPv6 address.  New arrays, for g_strfreev and g_free: hosts
 * without brackets, NULL behind the last; ports, 0: none.  The fault of the first host that has one. */
enum remote_host_fault remote_parse_hosts(const char *text, char ***ret_hosts, uint16_t **ret_ports);
/* The end of the term on which this mount may rely: it counts from before the request was sent, less what clocks may
 * differ by (the allowance of Redlock: ttl/100 + 2 ms). */
clock_ms remote_deadline(clock_ms sent, int64_t ttl);
/* The term that a request sent now must ask for, so that its deadline is that of the ticket, ms. */
int64_t remote_time_left(const struct remote_ticket *t);

#endif
