/* private: what the files of the engine share.
 *
 * The engine keeps what it last saw of each name in which it has an interest (struct lock).  A call of backend.h
 * becomes an op on a lock.  At the end of a turn of the loop all ops of a lock are applied to the record that was seen
 * last, in a lockspace, and the result is one change of that record.  If another mount was quicker, the store's answer
 * has the record as it is, and the same ops are applied to that.  So an op's `apply` is repeatable: it changes nothing
 * but the lockspace and the op's result, and it notices when an earlier attempt was carried out.  When the store has
 * carried out the change, `settle` is called, and then engine_observe compares the record with the tickets of this
 * mount.
 *
 * What the user of a ticket relies on is the truth.  Where the record has something else, because the answer to a call
 * was lost and its caller has been answered with UNREACHABLE, the engine makes the record agree, or else ends the
 * ticket.
 *
 * Which schedule each rule prevents stands where the rule is applied; search for "Rule 1" to "Rule 14".  From top to
 * bottom; no file calls one above it (ops are called through struct op_type):
 *
 * engine.c     begins and ends; the table of operations
 * names.c      listings, stat and test
 * recover.c    the tickets of the daemon before
 * enter.c      a new connection; the epoch and the grace period; heartbeats
 * directories.c  makes, removes and changes directories
 * watch.c      names that others hold, whose end the file system must know
 * revoke.c     revocations, and other mounts' confirmations of them
 * rename.c     rename
 * observe.c    compares a record with this mount's tickets
 * time.c       the agenda: deadlines, due, renewals, and when a waiter looks at its lock
 * tickets.c    acquire, claim, release, convert, set, renew
 * flight.c     sends the changes of a turn, and reads; their answers
 * scratch.c    a record in a lockspace while ops are applied
 * lock.c       locks, tickets and ops; no requests
 */
#ifndef BACKEND_RECORD_PRIVATE_H
#define BACKEND_RECORD_PRIVATE_H

#include <ev.h>
#include <sys/queue.h>

#include "backend/record/engine.h"
#include "backend/sorted.h"

#define ENGINE_HEARTBEAT 2000 /* ms between the heartbeats of a mount */
#define ENGINE_LIVENESS 6000  /* ms that a mount's waiters live after its heartbeat */
#define ENGINE_CLAIM 3000     /* ms in which a mount must claim a grant */
#define ENGINE_MARGIN 20      /* ms behind a deadline at which a waiter looks */
#define ENGINE_RETRY 250      /* ms after a renewal that failed while the store is up */
#define ENGINE_REVOKE 1000    /* ms that a revocation waits for other mounts */
#define ENGINE_POLL 500       /* ms between two looks at what nobody reports: watched names, foreign locks */
#define ENGINE_EXTEND_MAX 100 /* extensions in one request */
#define ENGINE_LATE_GRANTS 3
#define ENGINE_NAME_MAX 4096

struct op;

/* A name: what was seen of it last, and what this mount wants of it. */
struct lock {
    struct engine *engine;
    char *name;
    bool known; /* the values below were read from the store, on this connection; else they are absent */
    bool parent_known;
    uint64_t seen; /* the serial of the request that brought them: older ops are answered by them */
    struct store_value lock, queue, directory, parent; /* STORE_LOCK of the name, …; the parent's STORE_DIRECTORY */
    bool in_lock;                                      /* an ancestor of the name is a lock */
    struct record *record; /* of `directory`, `lock` or `queue`; NULL: none of them is there, or they are damaged */
    bool damaged;
    TAILQ_HEAD(ops, op) ops; /* in the order of their calls */
    LIST_HEAD(, ticket) tickets;
    bool busy; /* a request about it is pending */
    bool look; /* must be read, even if no op needs it */
    bool ready;
    unsigned pins;          /* ops of other locks that refer to it */
    unsigned conflicts;     /* in a row */
    clock_ms pause;         /* nothing is sent before this */
    TAILQ_ENTRY(lock) link; /* engine->ready */
    clock_ms wake;          /* when a waiter looks at it again; CLOCK_NEVER */
    uint64_t serial;        /* makes that key unique */
};

enum ticket_state { TICKET_ACQUIRING, TICKET_WAITING, TICKET_HOLDS };

struct ticket {
    struct backend_ticket head;
    LIST_ENTRY(ticket) link; /* lock->tickets */
    struct lock *lock;
    struct record_id id;
    char *leaf; /* in a directory's record, once known; else NULL */
    bool sequence;
    enum ticket_state state;
    uint64_t handle, lock_owner, start, end; /* as claimed; 0 as an identity: none, after a restart */
    GArray *segments;                        /* of FCNTL: what it holds */
    GBytes *meta;
    int64_t due_after;
    clock_ms due;   /* CLOCK_NEVER: none */
    clock_ms retry; /* a renewal that failed is repeated; CLOCK_NEVER */
    clock_ms next;  /* its key in the agenda */
    uint64_t serial;
    unsigned changing; /* ops that change what it holds */
    bool renewing, claiming, requeued;
    bool renaming;        /* a rename of it, or over it, is pending */
    bool ending;          /* it has expired, and the record is about to learn that */
    bool content_unknown; /* it has content, which this mount has not read */
    uint8_t why;          /* 1 + the reason of its end, as another mount has reported it */
    uint8_t late_grants;
    uint64_t wanted; /* the waiter that was reported last, by its fencing token */
};

/* A record in a lockspace, while ops are applied. */
struct scratch {
    struct engine *engine;
    struct lockspace *space;
    clock_ms now;
    struct lock *lock[2]; /* the second: the other name of a rename */
    struct record *before[2];
    unsigned locks;
    bool dirty;
    bool needs_parent; /* a lock-delay may begin: the parent's record must be as it was seen */
    clock_ms not_before;
    GPtrArray *fresh;               /* struct record_ticket of new tickets */
    GPtrArray *granted;             /* struct backend_ticket */
    GArray *ended;                  /* struct scratch_end */
    GArray *wanted;                 /* struct record_id: mounts whose holders are wanted */
    struct record_ticket *absorbed; /* the last ticket that another took over; or NULL */
    struct backend_ticket *guard;   /* the last guard */
    GArray *contents;               /* struct scratch_content */
    uint64_t ack;                   /* the revocation that other mounts confirm; 0: none */
    bool make, remove;              /* the directory itself */
    struct record *made;            /* with `make`: its record, borrowed */
    bool foreign_broken;            /* the other client's lock is removed */
};

struct scratch_end {
    struct record_id id, mount;
    uint8_t why;
    bool content;
};

struct scratch_content {
    struct record_id id;
    GBytes *bytes; /* NULL: removed */
};

struct op_type {
    void (*apply)(struct op *op, struct scratch *s);
    /* The op is done, with op->result.  It is freed afterwards. */
    void (*settle)(struct op *op);
    void (*abandon)(struct op *op); /* its time is over: answers its caller; NULL: with UNREACHABLE */
    bool is_single;                 /* the only op of its change: it makes or removes a directory, or has two locks */
    bool is_blind;                  /* may be applied to a name that was not read, as if nothing were there */
    bool is_late;                   /* `settle` comes after engine_observe */
    bool is_lasting;                /* must be done: it goes on when its time is over, or the store is full */
};

struct op {
    TAILQ_ENTRY(op) link;    /* lock->ops */
    TAILQ_ENTRY(op) pending; /* engine->pending, by `until`, while its time is not over (`pends`) */
    bool pends;
    const struct op_type *type;
    struct lock *lock;
    struct ticket *ticket; /* NULL: none, or it has ended */
    struct record_id id;   /* of the ticket */
    char *leaf;            /* in a directory's record: the name; of a new sequence ticket its prefix */
    uint64_t serial;
    clock_ms until; /* then it is answered with UNREACHABLE */
    bool tried;     /* an attempt may have been carried out, and has not been answered */
    bool abandoned; /* its caller has been answered: undo it */
    bool changes;   /* it counts in ticket->changing */
    enum backend_result result;
    backend_done *done;
    backend_info_done *known;
    backend_acquire_done *acquired;
    void *arg;
    struct backend_claim claim; /* with references; of acquire, convert, test */
    struct backend_change change;
    int64_t ttl;
    uint64_t fence;
    uint64_t start, end; /* of release_range */
    bool is_lenient;     /* of a release: that it was not there is no error */
    enum backend_end why;
    struct backend_match *match;
    GArray *targets;          /* struct scratch_end: what a revocation ends, since its first attempt */
    struct backend_info info; /* of busy, stat and test; meta and content are references */
    struct record_id holder;  /* the ticket that it describes */
    struct record_id holder_mount;
    bool apart; /* its content is a value of its own */
    struct backend_directory directory;
    struct record_id made;
    struct record_id joined;   /* of acquire, claim and convert: the ticket that it has taken over */
    struct record_id replaced; /* of a rename */
    struct lock *target;       /* of a rename, with */
    char *target_leaf;
    uint64_t revocation;
    clock_ms sent; /* before the attempt that was carried out */
};

struct engine {
    struct backend backend;
    struct store *store;
    struct engine_options options;
    struct ev_loop *loop;
    const struct backend_events *events;
    void *context;

    ev_prepare flush;
    ev_io alarm; /* a timerfd on CLOCK_BOOTTIME, which runs during suspend */
    clock_ms armed;
    struct sorted agenda, wakes; /* tickets, locks */
    GHashTable *locks;           /* name -> struct lock */
    GHashTable *tickets;         /* id -> struct ticket */
    GHashTable *directories;     /* name -> struct backend_directory: as seen last */
    TAILQ_HEAD(, lock) ready;
    TAILQ_HEAD(, op) pending;
    GPtrArray *extending; /* struct ticket: extensions of this turn */
    GPtrArray *blocked;   /* struct lock: its rename waits for the other lock */
    uint64_t serials;
    uint64_t waiting;
    uint64_t salt; /* for identities */
    GRand *chance;

    bool connected, up;
    bool entering;
    uint64_t entry; /* counts connections */
    clock_ms since; /* when `up` last changed */
    uint64_t incarnation;
    clock_ms offset;      /* the store's clock minus ours, as of the last answer */
    clock_ms judges_from; /* Rule 4: heartbeats are not judged before this */
    clock_ms next_heartbeat, next_poll;
    GArray *mounts; /* struct record_id: alive, as of the last look */

    uint64_t epoch; /* 0: none known */
    bool closed, must_restore;
    clock_ms closed_since; /* on our clock, when the marker was confirmed; 0: not */
    int64_t longest;       /* the longest term that a ticket may have, as the marker says */
    int64_t term;          /* what this mount has put into it */
    char *generation;
    struct store_value marker;
    bool marking;

    bool recovering;
    backend_recover_each *found;
    void *found_arg;

    LIST_HEAD(, revocation) revocations;
    TAILQ_HEAD(watches, watch) watches;
    GHashTable *watched;  /* name -> struct watch */
    GHashTable *requests; /* pending -> the function that frees it */

    uint64_t round_trips, reconnects, restored, lost;
    bool freeing;

    /* Calls up: set by engine.c. */
    void (*observe)(struct lock *lock, bool own_swap, clock_ms sent);
    void (*enter)(struct engine *e);
    bool (*allows_term)(struct engine *e, int64_t term);
    void (*heartbeat)(struct engine *e);
    void (*poll)(struct engine *e);
};

/* Sets the timer to the next thing that time brings. */
void engine_set_alarm(struct engine *e);

/* --- lock.c --- */

struct record_id engine_new_id(struct engine *e);
/* In hexadecimal; a new string. */
char *record_id_text(struct record_id id);
uint64_t engine_identity(const struct engine *e, uint64_t number);
clock_ms engine_deadline(clock_ms sent, int64_t ttl);
/* Pending requests are freed with the engine.  The second one frees it now. */
void engine_begin_request(struct engine *e, void *request, GDestroyNotify free);
void engine_end_request(struct engine *e, void *request);
/* The store's clock, as far as is known. */
static inline clock_ms engine_store_now(const struct engine *e, clock_ms now)
{
    return now + e->offset;
}
void engine_note_time(struct engine *e, clock_ms time);

char *engine_parent(const char *name, const char **ret_leaf);
/* A name of a sequence ticket, which stands in its directory's record. */
bool engine_is_numbered(const char *leaf);
bool engine_allows_name(struct engine *e, const char *name);
/* The lock with whose record a name stands; *ret_leaf: in a directory's record the name in it, else NULL. */
struct lock *lock_obtain(struct engine *e, const char *name, const char **ret_leaf);
/* The same for a directory's own record. */
struct lock *lock_obtain_named(struct engine *e, const char *name);
struct lock *lock_find(struct engine *e, const char *name);
bool lock_is_directory(const struct lock *lock);
/* Frees it if nothing is of interest in it. */
void lock_drop(struct lock *lock);
void lock_free(struct lock *lock);
/* It is looked at in the flush of this turn. */
void lock_make_ready(struct lock *lock);
void lock_schedule(struct lock *lock, clock_ms at);
/* The directory's settings, as seen last. */
const struct backend_directory *engine_directory(const struct engine *e, const char *name);
void engine_free_directory(gpointer directory);
void engine_set_directory(struct engine *e, const char *name, const struct backend_directory *directory);

void store_value_set(struct store_value *value, const struct store_value *from);
void store_value_clear(struct store_value *value);
/* `record` follows from the values. */
void lock_decode(struct lock *lock);

struct ticket *ticket_new(struct engine *e, struct lock *lock, const char *leaf, const struct backend_claim *claim);
void ticket_free(struct ticket *t);
struct ticket *ticket_find(const struct engine *e, struct record_id id);
void ticket_set_state(struct ticket *t, enum ticket_state state);
void ticket_move(struct ticket *t, struct lock *lock, const char *leaf);
void ticket_set_id(struct ticket *t, struct record_id id);
void ticket_schedule(struct ticket *t);
void ticket_start_term(struct ticket *t, clock_ms now, clock_ms deadline);
void ticket_change(struct ticket *t, const struct backend_change *change);
void ticket_set_segments(struct ticket *t, const GArray *segments);
/* Reports the end, and frees it. */
void ticket_end(struct ticket *t, enum backend_end why);
/* As its user relies on it, for a record. */
struct record_ticket *ticket_describe(const struct ticket *t);
bool ticket_is_expired(const struct ticket *t);

struct op *op_new(struct engine *e, const struct op_type *type, struct lock *lock, struct ticket *t);
/* Appends it to its lock's ops. */
void op_push(struct op *op);
/* Its time is over, but its caller is not answered yet, because what it has changed is not known.  False: it was never
 * sent. */
bool op_postpone(struct op *op, int64_t ms);
bool lock_has_op(const struct lock *lock, const struct op_type *type);
void op_set_claim(struct op *op, const struct backend_claim *claim);
void op_set_info(struct op *op, const struct backend_info *info);
void op_free(struct op *op);
/* Answers its caller, if that has not happened. */
void op_answer(struct op *op, enum backend_result result);

/* --- scratch.c --- */

void scratch_init(struct scratch *s, struct engine *e, clock_ms now);
void scratch_add(struct scratch *s, struct lock *lock);
void scratch_clear(struct scratch *s);
/* Ends all that has expired, in the order of time. */
void scratch_advance(struct scratch *s);
/* After each step that may grant. */
void scratch_settle_grants(struct scratch *s);
/* "0/l", or "0/LEAF"; a new string. */
char *scratch_path(const struct scratch *s, const struct lock *lock, const char *leaf);
const char *scratch_directory(const struct scratch *s, const struct lock *lock);
struct backend_ticket *scratch_find(struct scratch *s, const struct lock *lock, struct record_id id);
struct record_ticket *scratch_tag(struct scratch *s, struct backend_ticket *ticket, struct record_id id);
/* The result if the name cannot have locks; OK. */
enum backend_result scratch_check_name(const struct scratch *s, const struct op *op);
/* A content value is written (NULL: removed) with the change. */
void scratch_add_content(struct scratch *s, struct record_id id, GBytes *bytes);
/* Removes a ticket without an end: it is released. */
void scratch_release(struct scratch *s, struct backend_ticket *ticket);
/* The mount of an ended ticket gets a message. */
void scratch_add_end(struct scratch *s, const struct record_ticket *tag, enum backend_end why);
/* Fills the change; false: a record would be too large.  `change` gets references and strings of its own: free it with
 * change_free. */
bool scratch_write(struct scratch *s, struct store_change *change);
void change_clear(struct store_change *change);
/* The bytes of a message: see engine_on_message. */
GBytes *scratch_message(const struct scratch *s, struct record_id mount);

/* --- flight.c --- */

/* Sends what the locks of this turn need. */
void flight_on_flush(struct ev_loop *loop, ev_prepare *watcher, int events);
/* Answers the callers of ops whose time is over. */
void flight_check_time(struct engine *e, clock_ms now);
/* The values that were seen must not be used any more: a new connection, or another epoch. */
void flight_forget_all(struct engine *e);
/* A message brought a lock's value. */
void flight_take_value(struct lock *lock, const struct store_value *value);

/* --- time.c --- */

int time_init(struct engine *e);
void time_clear(struct engine *e);

/* --- rename.c --- */

void engine_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                   backend_done *done, void *arg);

/* --- tickets.c --- */

struct backend_ticket *engine_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                      backend_acquire_done *done, void *arg);
void engine_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg);
bool engine_cancel(struct backend *b, struct backend_ticket *ticket);
bool engine_release_range(struct backend *b, struct backend_ticket *ticket, uint64_t start, uint64_t end,
                          backend_done *done, void *arg);
void engine_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                    backend_done *done, void *arg);
void engine_renew(struct backend *b, const struct backend_renewal *renewals, size_t count);
void engine_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
                backend_done *done, void *arg);
void engine_identify(struct backend *b, struct backend_ticket *ticket, struct backend_identity identity);
extern const struct op_type op_renew, op_end, op_claim, op_requeue, op_remove, op_restore, op_touch;
/* It holds from now on, by a swap that was sent then.  False: that is too long ago to rely on it. */
bool ticket_begin_hold(struct ticket *t, struct record_id joined, clock_ms sent);
/* What a request about the lock must find ended: tickets that have expired here, which is not reported yet. */
void lock_end_expired(struct lock *lock);
/* `info` of the op, from the lockspace: keeps it; and in terms of this mount, at the end. */
void op_describe(struct op *op, const struct backend_info *info);
void op_finish_info(struct op *op);
/* A renewal by a swap. */
void ticket_push_renewal(struct ticket *t);

/* --- watch.c --- */

void engine_watch(struct backend *b, const char *name);
void watch_poll(struct engine *e);
void watch_clear(struct engine *e);

/* --- revoke.c --- */

void engine_revoke(struct backend *b, const char *name, uint64_t fence, const struct backend_match *match,
                   backend_done *done, void *arg);
void engine_on_message(void *context, const struct store_key *key, const struct store_value *value, GBytes *text);
void revoke_clear(struct engine *e);

/* --- observe.c --- */

/* `own_swap`: the record is what this mount has just written, in a swap that was sent then. */
void engine_observe(struct lock *lock, bool own_swap, clock_ms sent);

/* --- enter.c --- */

void enter_on_up(void *context);
void enter_on_down(void *context);
void enter_start(struct engine *e);
/* The store has refused the epoch or the connection. */
void enter_again(struct engine *e);
void enter_heartbeat(struct engine *e);
/* The marker must know this term before a ticket has it. */
bool enter_allows_term(struct engine *e, int64_t term);

/* --- recover.c --- */

void engine_recover(struct backend *b, backend_recover_each *found, void *arg);
void recover_begin(struct engine *e);

/* --- directories.c --- */

void engine_mkdir(struct backend *b, const char *name, const struct backend_directory *directory, backend_done *done,
                  void *arg);
void engine_rmdir(struct backend *b, const char *name, backend_done *done, void *arg);
void engine_set_directory_op(struct backend *b, const char *name, const struct backend_directory *directory,
                             backend_done *done, void *arg);
/* The store has lost its data: makes the directories of what this mount holds. */
void engine_restore_directories(struct engine *e);

/* --- names.c --- */

void engine_stat(struct backend *b, const char *name, backend_info_done *done, void *arg);
void engine_test(struct backend *b, const char *name, const struct backend_claim *claim, backend_info_done *done,
                 void *arg);
void engine_list(struct backend *b, const char *directory, const char *after, size_t max, backend_list_done *done,
                 void *arg);
void engine_tickets(struct backend *b, const char *directory, const char *after, size_t max, backend_list_done *done,
                    void *arg);
void engine_mounts(struct backend *b, backend_info_done *done, void *arg);

#endif
