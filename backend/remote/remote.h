/* remote: what every store across a network shares: the tickets of this mount, while somebody else decides.
 *
 * A ticket is known to the store by its token, which is why every request about it may be repeated.  What a reply
 * leaves open is undone here: an acquire whose outcome is unknown is released, a release is tried for as long as the
 * ticket may live, a conversion is turned back, and after a rename both names are given back.  A conversion, and a
 * claim of a lock owner that holds already, is told to have failed when it is undone; what could not be undone is lost.
 * A mount believes in a ticket only until its deadline, which counts from before the request was sent
 * (remote_deadline).
 *
 *     ASKED ──queued──▶ WAITING ──handed over──▶ CLAIMED ──confirmed──▶ HELD
 *       └───────────────────────granted──────────────────────────────────┘
 *                          ◀──passed over, or the claim is unknown──┘
 *
 * A store puts `struct remote` at the head of its own structure and does what struct remote_store names: mostly to call
 * a procedure, and to say what has come of it.  From the top to the ground; none calls one above it:
 *
 * epoch.c    the version of the store's data, and the grace period: see epoch.h
 * remote.c   beginning and end, connection up and down, what is due
 * change.c   what is done to tickets: convert, set, rename, renew
 * acquire.c  taking, waiting and claiming
 * keep.c     the heartbeat of those that wait; renewals, releases (of byte ranges, too) and ends
 * deadlock.c cycles of waits
 * ticket.c   tickets, their states and times; requests
 */
#ifndef BACKEND_REMOTE_REMOTE_H
#define BACKEND_REMOTE_REMOTE_H

#include <ev.h>
#include <string.h>
#include <sys/queue.h>

#include "backend/backend.h"
#include "backend/skiplist.h"

#define REMOTE_TOKEN_SIZE 33 /* 128 random bits in hexadecimal, and NUL */
#define REMOTE_LIVENESS 6000 /* ms that a waiter counts as alive without a word from its mount */
#define REMOTE_REFRESH 2000  /* how often it gives one, for all of its waiters */
#define REMOTE_REFRESH_MIN 20
#define REMOTE_BEAT_MAX 200      /* waiters of one such request */
#define REMOTE_RELEASE_MAX 60000 /* how long a release is tried whose caller has been told that it is unknown */
#define REMOTE_UNDO_MAX 10000    /* how long a conversion is tried to be undone before its caller is told */
#define REMOTE_LATE_MAX 3        /* grants whose term was over when they were read, to a claim that does not wait */
#define REMOTE_LANE_MAX 64       /* requests under way that nobody waits for: see keep.c */
#define REMOTE_RENEW_RETRY 250   /* after a renewal that failed while the store is there */

/* What a ticket is to the store, as far as this mount knows. */
enum remote_state {
    REMOTE_ASKED,   /* its acquire is not answered */
    REMOTE_WAITING, /* queued */
    REMOTE_CLAIMED, /* handed over; the claim is not answered */
    REMOTE_HELD
};

static inline bool remote_state_waits(enum remote_state state)
{
    return state == REMOTE_WAITING || state == REMOTE_CLAIMED;
}

/* A name with tickets of this mount.  Sequence tickets are of their directory. */
struct remote_place {
    char *name;
    bool sequence;
    bool watched; /* the store tells when its key changes */
    uint32_t held, waiting;
    LIST_HEAD(, remote_ticket) tickets;
};

struct remote_ticket {
    struct backend_ticket head;
    LIST_ENTRY(remote_ticket) link;    /* place->tickets */
    LIST_ENTRY(remote_ticket) waiters; /* of those that wait or claim */
    struct remote_place *place;
    char token[REMOTE_TOKEN_SIZE];
    char *name;          /* of a sequence ticket: as asked for, then as given */
    char *moving;        /* the name that a rename gives it whose outcome is not known (yet); or NULL */
    bool renaming;       /* that, or one that replaces it, is not answered */
    unsigned converting; /* conversions that are not answered */
    uint32_t changes;    /* what it is, and what is kept with it, was changed so often */
    enum remote_state state;
    bool handed;             /* the store has told that it holds */
    struct remote_op *asked; /* its acquire that is not answered; or NULL */
    uint64_t request;        /* of that */
    bool wait;               /* it may queue */
    uint8_t late;            /* grants that came too late */
    bool cancelled;          /* it ends if the next answer does not grant it */
    bool unknown;            /* what has come of its last acquire is not known */
    bool undoing;            /* it is to end, which is told when what it may have changed is as it was */
    bool stands;             /* that could not be undone before */
    bool alone;        /* for a store that can do with less then: nobody else has asked for it, as far as is told */
    bool expired;      /* past its deadline, and the store knows */
    bool told_expired; /* the store has said that its term is over, perhaps before it was granted: that is asked */
    bool renewing;
    bool in_lane;        /* its renewal is still to be sent, */
    bool in_lane_long;   /* which extends it, */
    clock_ms in_lane_by; /* before this, its deadline then: its place in the lane */
    uint64_t handle, lock_owner, start, end;
    GArray *segments;  /* struct backend_segment; what an FCNTL ticket holds; NULL: nothing known */
    int64_t due_after; /* the claim's `due` */
    clock_ms due;      /* CLOCK_NEVER: none */
    clock_ms ends;     /* of a lease whose user has fixed its term: when that is over.  Only its user moves that */
    clock_ms refresh;  /* when the store is to be asked again for it alone; CLOCK_NEVER: not */
    clock_ms spoke;    /* the last word of life of one that waits */
    clock_ms next;     /* the earliest of these and the deadline: its place in the agenda */
    uint64_t serial;   /* makes it unique there */
    GBytes *meta;
    backend_acquire_done *acquired; /* until it is told */
    void *arg;
};

/* --- the call tier: what is asked of a store, and what comes of it --- */

/* Each may be repeated: a ticket is known by its token.  `t` is the ticket, the rest stands in the op. */
enum remote_procedure {
    REMOTE_ACQUIRE, /* takes the lock, a place in its queue, or what was handed over to t; with a token that is there
                       already it gives a word of life.  OK, QUEUED, BUSY with `holder`, or MISSING and its like */
    REMOTE_RELEASE, /* ends `token` on `name`.  What its lock owner holds there with another ticket, and it has changed,
                       is as it was.  OK, also if it was gone; STALE: its lock owner has lost that, as others share it
                     */
    REMOTE_RELEASE_RANGE, /* the bytes of `claim` of its lock owner on `name`.  OK */
    REMOTE_RENEW,  /* extends t to `ttl` from now.  OK; STALE: it does not hold (any more); BUSY: it holds, but in
                      another mode than that of `claim` */
    REMOTE_SET,    /* t to `change` */
    REMOTE_RENAME, /* t to `name`, where `replaced` ends */
    REMOTE_CONVERT /* t to `claim` and `change` */
};

/* Of all tries. */
enum remote_outcome {
    REMOTE_ANSWERED, /* the store has said what has come of it */
    REMOTE_REFUSED,  /* it has said that it cannot, and trying again does not cure that, or has not */
    REMOTE_NOT_SENT, /* its time is up; it never left: nothing has changed */
    REMOTE_UNKNOWN   /* its time is up; it may have been carried out */
};

struct remote_answer {
    enum remote_outcome outcome;
    enum backend_result result; /* what it means; UNREACHABLE, FULL or DAMAGED if it is not ANSWERED */
    clock_ms sent;              /* before the try that was answered (or the last) was sent */
    bool repeated;              /* an earlier try was sent, too, and may have been carried out */
    /* values, valid during the call only */
    uint64_t fence;                    /* of acquire and rename: its number; 0: as before */
    const char *token, *segments;      /* OK of acquire: under which it holds, and "start end mode …" */
    const char *leaf;                  /* OK and QUEUED of a sequence ticket: the name that it was given */
    int64_t rank;                      /* QUEUED: how many wait before it; negative: it does not wait */
    int64_t wait;                      /* QUEUED: ms until the holder's deadline; negative: not known */
    bool foreign;                      /* QUEUED: the holder is no mount's */
    const struct backend_info *holder; /* BUSY of acquire */
};

/* A request that is not answered yet. */
struct remote_op {
    LIST_ENTRY(remote_op) link;
    TAILQ_ENTRY(remote_op) lane; /* in r->endings */
    bool in_lane;                /* it counts among the requests under way that nobody waits for */
    struct remote *r;
    uint64_t serial; /* grows with each that is sent */
    enum remote_procedure procedure;
    void (*answered)(struct remote_op *op, const struct remote_answer *answer); /* frees it, or sends it again */
    char token[REMOTE_TOKEN_SIZE]; /* of the ticket that it is about; "" if none */
    char *name;                    /* of a release, renewal, set or rename: the place's; of the new place */
    char *file;                    /* of a release: the ticket's own name */
    char *replaced;                /* of rename: the token of the ticket that it is to replace; or NULL */
    struct backend_claim claim;    /* of convert; of a release what is given back; of renew the mode */
    struct backend_change change;  /* of convert and set: references */
    GArray *segments;              /* of renew: as of the ticket; or NULL */
    int64_t ttl;                   /* of acquire, renew and release */
    int64_t left;                  /* of renew: of a fixed term, which is not extended; or as ttl */
    uint32_t changes;              /* of renew: as of the ticket */
    uint64_t request;              /* of release, of a store that asks in a short way first: that */
    bool confirm;               /* of renew: whether it holds; a store may extend it, or change `ttl` to what is left */
    const char *why;            /* of release: "" by its holder, else "expired" or "lost" */
    bool lease;                 /* of release: the store keeps it for a mount that starts again */
    bool alone;                 /* of release: by its holder, as of the ticket */
    bool back;                  /* of convert: to what it was before one whose outcome is unknown, */
    bool weaker;                /* by which others may have been let in, */
    struct remote_op *forth;    /* and which waits for that; or NULL */
    bool stands;                /* of convert: it could not be undone before */
    bool undo;                  /* of release: of what may be a part of what its lock owner holds; `done` decides */
    enum backend_result result; /* of an acquire that is undone: to be told */
    bool again; /* of stat: asked once more; for a store that asks in a short way first: that was repeated */
    backend_done *done;
    backend_info_done *known;
    backend_list_done *listed;
    void *arg;
};

/* What a store does; it tells remote_up, remote_changed and remote_told. */
struct remote_store {
    bool (*is_up)(struct remote *r);
    /* Sends it, and calls op->answered, once, from the loop.  `t` may be NULL where the ticket is forgotten.  `timeout`
     * in ms, all tries; 0: the store's own.  Returns what `forget` takes: it is not sent (again), nor answered. */
    uint64_t (*call)(struct remote_op *op, struct remote_ticket *t, int64_t timeout);
    void (*forget)(struct remote *r, uint64_t request);
    /* A word of life for tickets that wait, those of a place one after the other, and a look at their places → if it is
     * answered, remote_beaten for each that does not wait any more, and for the first that waits at a place. */
    void (*beat)(struct remote *r, struct remote_ticket *const *tickets, size_t count);
    /* A ticket begins or stops to wait (a claim still waits), and is turning into `to`: REMOTE_HELD if it was granted,
     * REMOTE_ASKED if it ends.  t->place->waiting is up to date. */
    void (*waits)(struct remote *r, struct remote_ticket *t, enum remote_state to);
    /* Tells remote_changed when the place's lock, which a stranger holds, may be free. */
    void (*watch)(struct remote *r, struct remote_ticket *t);
};

struct remote {
    struct backend backend;
    const struct remote_store *store;
    struct ev_loop *loop;
    const struct backend_events *events;
    void *context;
    ev_io alarm;         /* a timerfd on CLOCK_BOOTTIME, which goes on while suspended */
    clock_ms armed;      /* when it will go off; CLOCK_NEVER: not */
    GHashTable *tickets; /* token -> struct remote_ticket */
    GHashTable *places;  /* name -> struct remote_place */
    GHashTable *queues;  /* the same for sequences: directory -> struct remote_place */
    struct skiplist agenda;
    uint64_t serials;
    LIST_HEAD(, remote_op) ops;
    struct skiplist lane;            /* tickets whose renewal is still to be sent, the nearest deadline first */
    TAILQ_HEAD(, remote_op) endings; /* releases of what has ended here that are still to be sent */
    unsigned under_way;              /* of these two, sent and not answered */
    LIST_HEAD(, remote_ticket) waiters;
    uint64_t waiting; /* so many */
    clock_ms beat;    /* when the next word of life is due; CLOCK_NEVER: nobody waits */
};

/* --- remote.c --- */

/* Makes the parts; `backend` is the caller's.  0 or -errno. */
int remote_init(struct remote *r, const struct remote_store *store, uint32_t seed);
void remote_start(struct remote *r, struct ev_loop *loop, const struct backend_events *events, void *context);
/* Frees tickets and requests, whose completions are not called; before the store's connection ends. */
void remote_clear(struct remote *r);
/* The store is there (again): what is held is confirmed, what waits stands in the queue again, in order. */
void remote_up(struct remote *r);
/* When the first term ends that is renewed while the store is there; CLOCK_NEVER: it is, or there is none.  It looks at
 * all tickets. */
clock_ms remote_needed(const struct remote *r);
/* What a store tells unasked of a ticket of this mount; others are passed over. */
enum remote_news {
    REMOTE_HANDED_OVER, /* it holds, and is to claim */
    REMOTE_MAY_BE_FREE, /* what it waits for: it is to ask again */
    REMOTE_WANTED,      /* somebody waits for what it holds */
    REMOTE_ENDED        /* for that reason */
};
void remote_told(struct remote *r, const char *token, enum remote_news news, enum backend_end why);
/* That a ticket has ended is said on another connection than its grant.  What was handed over, and not claimed in time
 * as the store was away, is asked for again under the same token: then its end is told behind its grant, so the store
 * is asked.  False: it is not that, and to be believed; a break and a release are, as who asked for them waits. */
bool remote_doubt_end(struct remote *r, const char *token, enum backend_end why);
/* The lock of that place may be free: of the tickets that wait there the first asks.  NULL: of all places. */
void remote_changed(struct remote *r, struct remote_place *place);
/* Operations of a backend. */
struct backend_counts remote_counts(struct backend *b);
bool remote_name(struct backend *b, const struct backend_ticket *ticket, char *buffer, size_t size);

/* --- change.c: operations of a backend --- */

void remote_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg);
void remote_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                    backend_done *done, void *arg);
void remote_renew(struct backend *b, const struct backend_renewal *renewals, size_t count);
bool remote_release_range(struct backend *b, struct backend_ticket *ticket, uint64_t start, uint64_t end,
                          backend_done *done, void *arg);
void remote_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
                backend_done *done, void *arg);
void remote_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                   backend_done *done, void *arg);

/* --- acquire.c --- */

void remote_acquire(struct remote *r, struct remote_ticket *t, backend_acquire_done *done, void *arg);
bool remote_cancel(struct backend *b, struct backend_ticket *ticket);
/* Asks again for one that waits: a claim if it was handed over, else a look at the lock. */
void remote_refresh(struct remote *r, struct remote_ticket *t);
/* `rank`, `wait` and `foreign` of what a heartbeat has found. */
void remote_beaten(struct remote *r, const char *token, const struct remote_answer *answer);

/* --- keep.c --- */

/* How often one that waits is spoken for. */
int64_t remote_pause(const struct remote_ticket *t);
/* The word of life of all that wait, in as few requests as may be. */
void remote_beat(struct remote *r, clock_ms now);
/* Sends the release of a ticket that is (to be) forgotten here, and does not
 * cease before the ticket must have run out.  `why`: as in remote_op. */
void remote_send_release(struct remote *r, const struct remote_ticket *t, const char *why, backend_done *done,
                         void *arg);
/* The same for one whose acquire may have changed what its lock owner holds; `done` is told REMOTE_UNDO_MAX later at
 * the latest. */
void remote_send_undo(struct remote *r, const struct remote_ticket *t, backend_done *done, void *arg);
/* Extends one that holds to its ttl from now, in its turn; or asks whether it holds, which need not extend it, in its
 * turn or at once, so that what is asked behind it comes behind its answer. */
void remote_extend(struct remote *r, struct remote_ticket *t);
void remote_confirm_in_turn(struct remote *r, struct remote_ticket *t);
void remote_confirm(struct remote *r, struct remote_ticket *t);
/* The order of r->lane. */
int remote_compare_lane(const void *a, const void *b);
/* Tells its end, and forgets it: of one that holds, or waits.  `release`: the store may not know of it yet. */
void remote_end(struct remote *r, struct remote_ticket *t, enum backend_end why, bool release);
/* Lets the store know now what is past its deadline at a place, or has ended there: before who asks for the name. */
void remote_tell_expired(struct remote *r, const char *name);
/* What the store says of a place does not go with what is held there: asks it, as a renewal does, so that what it has
 * forgotten is lost now.  `sure`: it holds, so only what that excludes; NULL: all. */
void remote_doubt(struct remote *r, struct remote_place *place, const struct remote_ticket *sure);

/* --- deadlock.c --- */

/* A cycle of waits of lock owners of this mount that begins with this one. */
bool remote_deadlocked(struct remote *r, const struct remote_ticket *t);

/* --- ticket.c --- */

struct remote_op *remote_op_new(struct remote *r, const struct remote_ticket *t);
struct remote_op *remote_op_done(struct remote *r, const struct remote_ticket *t, backend_done *done, void *arg);
void remote_op_free(struct remote_op *op);
/* Sends it; see remote_store. */
uint64_t remote_op_send(struct remote_op *op, struct remote_ticket *t, enum remote_procedure procedure,
                        void (*answered)(struct remote_op *op, const struct remote_answer *answer), int64_t timeout);
/* Calls its completion, if it has one, and frees it. */
void remote_op_finish(struct remote_op *op, enum backend_result result);

struct remote_ticket *remote_ticket_new(struct remote *r, const char *name, const struct backend_claim *claim);
/* Out of all tables, and freed. */
void remote_ticket_free(struct remote *r, struct remote_ticket *t);
struct remote_ticket *remote_ticket_find(struct remote *r, const char *token);
/* The name that it is on; of a sequence ticket its own, else its place's. */
const char *remote_ticket_name(const struct remote_ticket *t);
/* The only function that changes its state. */
void remote_ticket_turn(struct remote *r, struct remote_ticket *t, enum remote_state state);
void remote_ticket_rename(struct remote *r, struct remote_ticket *t, const char *name);
/* Whether a grant may name that token: its own, or one of its lock owner at its place, which holds. */
bool remote_ticket_may_adopt(struct remote *r, const struct remote_ticket *t, const char *token);
/* It is the one that the store knows by that token: another of its lock owner that
 * was is forgotten. */
void remote_ticket_adopt(struct remote *r, struct remote_ticket *t, const char *token);
/* Whether it may have been under another name than this one when a request that named this one was carried out. */
bool remote_ticket_has_moved(const struct remote_ticket *t, const char *name);
/* Its times have changed. */
void remote_ticket_schedule(struct remote *r, struct remote_ticket *t);
/* Its term runs until then; it is due after what was asked for or, where the store's answer came so late that little
 * would be left, as is asked for of a term as long as what is left. */
void remote_ticket_start_term(struct remote_ticket *t, clock_ms now, clock_ms deadline);
/* The deadline of a lease that was recovered is that of its term, which may be fixed. */
void remote_ticket_fix_term(struct remote_ticket *t);
/* To when the first is to be seen to. */
void remote_ticket_set_alarm(struct remote *r);
/* What the store says that it holds: "start end mode …". */
void remote_ticket_segments(struct remote_ticket *t, const char *text);
/* Whether it holds some of these bytes, or asks for some. */
bool remote_ticket_covers(const struct remote_ticket *t, uint64_t start, uint64_t end);
/* Forgets them.  False: nothing is left that it holds. */
bool remote_ticket_cut(struct remote_ticket *t, uint64_t start, uint64_t end);
/* Whether another ticket of this mount at its place is kin to these. */
bool remote_ticket_has_kin(const struct remote_ticket *t, struct backend_identity kin);
/* The ticket with which its lock owner holds already, and which is changed when it is granted; or NULL. */
struct remote_ticket *remote_ticket_joins(const struct remote_ticket *t);
/* How long it lives in the store without a word of this mount. */
int64_t remote_ticket_liveness(const struct remote_ticket *t, int64_t ttl);
bool remote_is_token(const char *token);
/* "a/b" -> "b"; borrowed. */
static inline const char *remote_leaf(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}
/* A new one, as no other is. */
void remote_make_token(char token[REMOTE_TOKEN_SIZE]);
/* "a/b" -> "a" (a new string, "" for what is in the root); *ret_leaf is "b". */
char *remote_parent(const char *name, const char **ret_leaf);
/* It may have been carried out, and the store has not said so. */
bool remote_is_unknown(const struct remote_answer *answer);
/* The term as this mount may believe in it: from before it was asked for, less
 * what clocks may differ by (the allowance of Redlock: ttl/100 + 2 ms). */
clock_ms remote_deadline(clock_ms sent, int64_t ttl);

#endif
