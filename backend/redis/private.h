/* private: what the files of the Redis backend share.
 *
 * From the top to the ground; none calls one above it.
 *
 * redis.c    the backend: start, connection up and down, messages, what is due
 * recover.c  the leases of a mount that starts again
 * revoke.c   ending holders by name, on whichever mount
 * change.c   what is done to tickets
 * acquire.c  taking, waiting and claiming
 * ask.c      questions, and directories
 * keep.c     renewals and releases
 * ticket.c   tickets of this mount
 * key.c      names to keys, and calls of scripts
 */
#ifndef BACKEND_REDIS_PRIVATE_H
#define BACKEND_REDIS_PRIVATE_H

#include <ev.h>
#include <sys/queue.h>

#include "backend/backend.h"
#include "backend/redis/redis.h"
#include "backend/redis/script.h"
#include "backend/skiplist.h"

#define REDIS_TOKEN_SIZE 33 /* 128 random bits in hexadecimal, and NUL */
#define REDIS_LIVENESS 6000 /* ms that a waiter counts as alive without a word from its mount */
#define REDIS_REFRESH 2000  /* how often it gives one */
#define REDIS_REFRESH_MIN 20
#define REDIS_TIMEOUT_AWAY 500 /* ms of a request while the server is away for longer than requests take */
#define REDIS_LIST_MAX 1000
#define REDIS_SEARCH_MAX 100000 /* tickets that a search for cycles looks at */
#define REDIS_CONTENT_MAX 65536 /* bytes, of what a store says */
#define REDIS_META_MAX 4096
#define REDIS_RELEASE_MAX 60000   /* how long a release is tried whose caller has been told that it is unknown */
#define REDIS_COMPLAIN_EVERY 1000 /* ms between logged errors of one kind */
#define REDIS_RENEW_RETRY 250     /* after a renewal that failed while the server is there */

/* What a ticket is to the server, as far as this mount knows. */
enum redis_state {
    REDIS_ASKED,   /* its acquire is not answered */
    REDIS_WAITING, /* queued */
    REDIS_CLAIMED, /* handed over; the claim is not answered */
    REDIS_HELD
};

/* A name with tickets of this mount.  Sequence tickets are of their directory. */
struct redis_place {
    char *name;
    bool sequence;
    bool watched; /* the server tells when its key changes */
    uint32_t held;
    LIST_HEAD(, redis_ticket) tickets;
};

struct redis_segment {
    uint64_t start, end;
    enum backend_mode mode;
};

struct redis_ticket {
    struct backend_ticket head;
    LIST_ENTRY(redis_ticket) link; /* place->tickets */
    struct redis_place *place;
    char token[REDIS_TOKEN_SIZE];
    char *name;    /* of a sequence ticket: as asked for, then as given */
    char *moving;  /* the name that a rename gives it whose outcome is not known (yet); or NULL */
    bool renaming; /* that, or one that replaces it, is not answered */
    enum redis_state state;
    bool handed;            /* the server has told that it holds */
    struct redis_op *asked; /* its acquire that is not answered; or NULL */
    uint64_t request;       /* of that */
    bool wait;              /* it may queue */
    bool over;              /* past its deadline, and the server knows */
    bool renewing;
    uint64_t handle, party, start, end;
    GArray *segments;  /* struct redis_segment; what an FCNTL ticket holds; NULL: nothing known */
    int64_t due_after; /* the claim's `due` */
    clock_ms due;      /* CLOCK_NEVER: none */
    clock_ms refresh;  /* when the server is to be asked again; CLOCK_NEVER: not */
    clock_ms next;     /* the earliest of these and the deadline: its place in the agenda */
    uint64_t serial;   /* makes it unique there */
    GBytes *meta, *content;
    backend_acquired *acquired; /* until it is told */
    void *arg;
};

struct redis {
    struct backend backend;
    struct redis_conn *conn;
    struct ev_loop *loop;
    const struct backend_events *events;
    void *context;
    ev_io alarm;           /* a timerfd on CLOCK_BOOTTIME, which goes on while suspended */
    clock_ms armed;        /* when it will go off; CLOCK_NEVER: not */
    char *before, *behind; /* of a lock's key: around the name */
    char mount[24];        /* "lfs:" and 64 random bits: the mount's channel */
    GHashTable *tickets;   /* token -> struct redis_ticket */
    GHashTable *places;    /* name -> struct redis_place */
    GHashTable *queues;    /* the same for sequences: directory -> struct redis_place */
    struct skiplist agenda;
    uint64_t serials;
    LIST_HEAD(, redis_op) ops;
    LIST_HEAD(, redis_revocation) revocations;
    GStringChunk *arena; /* arguments of the call that is being made */
    uint64_t waiting;
    char *identity; /* of redis_options, digested; "": none */
    char *address;  /* to show */
    bool was_up;
    clock_ms down_since;
    int64_t timeout;     /* of a request */
    GPtrArray *warnings; /* of INFO, as of when it came up */
    bool told;           /* those of the first time were logged by whoever looked before the mount, or are logged */
    clock_ms complained; /* when the last error was logged */
    clock_ms complained_of_type;
};

/* A request that is not answered yet. */
struct redis_op {
    LIST_ENTRY(redis_op) link;
    struct redis *r;
    char token[REDIS_TOKEN_SIZE]; /* of the ticket that it is about; "" if none */
    char *name;                   /* of a release, renewal, set or rename: the place's; of the new place */
    char *file;                   /* of a release: the ticket's own name */
    char *replaced;               /* of rename: the token of the ticket that it is to replace; or NULL */
    struct backend_claim claim;   /* of convert, without meta and content; of a release what is given back */
    struct backend_change change; /* of convert and set: references */
    int64_t ttl;                  /* of acquire, renew and release */
    const char *why;              /* of release */
    bool lease;                   /* of release: the server keeps it for a mount that starts again */
    bool back;                    /* of convert: to what it was before one whose outcome is unknown */
    bool again;                   /* of stat: asked once more */
    backend_done *done;
    backend_known *known;
    backend_listed *listed;
    void *arg;
};

struct redis_op *redis_op_new(struct redis *r, const struct redis_ticket *t);
void redis_op_free(struct redis_op *op);
struct redis_op *redis_op_done(struct redis *r, const struct redis_ticket *t, backend_done *done, void *arg);
/* Calls its completion, if it has one, and frees it. */
void redis_op_finish(struct redis_op *op, enum backend_result result);

/* --- key.c --- */

struct redis_call {
    struct redis *r;
    enum redis_script_id script;
    size_t keys, count;
    struct redis_argument argument[48];
};

/* What forbids such keys, behind "keys"; NULL: nothing.  See key.c. */
const char *redis_key_fault(const char *key);
/* Whether a name may be a key; the root may always. */
bool redis_key_allowed(struct redis *r, const char *name);
/* The key of a lock, or what stands for that of the root; a new string. */
char *redis_key(struct redis *r, const char *name);
/* "a/b" -> "a" (a new string, "" for what is in the root); *ret_leaf is "b". */
char *redis_parent(const char *name, const char **ret_leaf);
/* Whether a store may name this: a component, or a path of such. */
bool redis_is_component(const char *name);
bool redis_is_path(const char *path);
bool redis_is_token(const char *token);
/* Whether it may be the name of a sequence ticket. */
bool redis_is_numbered(const char *leaf);

/* A call with the keys that common.lua takes, for a lock or for a directory's
 * queue, and its first arguments: leaf and sequence.  With `numbered` also those
 * of the directory's queue, when the leaf may be a name in it. */
void redis_call_lock(struct redis_call *call, struct redis *r, enum redis_script_id script, const char *name,
                     bool sequence, const char *numbered);
/* Keys come before all arguments. */
void redis_call_key(struct redis_call *call, char letter, const char *name); /* 0: the lock's own */
void redis_call_leaf(struct redis_call *call, const char *name, bool sequence);
void redis_call_text(struct redis_call *call, const char *text);
void redis_call_number(struct redis_call *call, int64_t number);
void redis_call_unsigned(struct redis_call *call, uint64_t number); /* 0 is '' */
void redis_call_offset(struct redis_call *call, uint64_t offset);   /* 16 hexadecimal digits */
void redis_call_bytes(struct redis_call *call, GBytes *bytes);      /* NULL is '' */
/* Keys and first arguments of a call about a ticket. */
void redis_call_ticket(struct redis_call *call, struct redis *r, enum redis_script_id script,
                       const struct redis_ticket *t);
uint64_t redis_call_send(struct redis_call *call, int64_t timeout, redis_answered *answered, void *arg);

/* --- replies --- */

/* The element of an array reply, as text ("" when it is not there), whole number, or bytes (borrowed). */
const char *redis_text(const redisReply *reply, size_t index);
int64_t redis_number(const redisReply *reply, size_t index);
uint64_t redis_unsigned(const redisReply *reply, size_t index);
uint64_t redis_offset(const redisReply *reply, size_t index);
GBytes *redis_bytes(const redisReply *reply, size_t index, size_t max); /* a new reference, `max` bytes at most */

/* A reply is what a stranger may have written: numbers within bounds. */
int64_t redis_time(const redisReply *reply, size_t index);                    /* ms, at most 10 years; -1: not known */
uint32_t redis_count(const redisReply *reply, size_t index);                  /* 0 and more */
bool redis_fence(const redisReply *reply, size_t index, uint64_t *ret_fence); /* false: no token can be that */

/* The result of an answer that is not REDIS_REPLY; logs errors of the server. */
enum backend_result redis_failure(struct redis *r, const struct redis_answer *answer);
/* An answer that no script gives; the request's outcome is not known. */
void redis_disbelieve(struct redis *r, const struct redis_answer *answer);

/* What an answer's first word says, or its failure. */
enum backend_result redis_result(struct redis *r, const struct redis_answer *answer);

/* The term as this mount may believe in it: from before it was asked for, less
 * what clocks may differ by (the allowance of Redlock: ttl/100 + 2 ms). */
clock_ms redis_deadline(clock_ms sent, int64_t ttl);

/* --- ticket.c --- */

struct redis_ticket *redis_ticket_new(struct redis *r, const char *name, const struct backend_claim *claim);
/* Out of all tables, and freed. */
void redis_ticket_free(struct redis *r, struct redis_ticket *t);
struct redis_ticket *redis_ticket_find(struct redis *r, const char *token);
/* The only function that changes its state. */
void redis_ticket_turn(struct redis *r, struct redis_ticket *t, enum redis_state state);
void redis_ticket_rename(struct redis *r, struct redis_ticket *t, const char *name);
/* Whether a grant may name that token: its own, or one of its party at its place, which holds. */
bool redis_ticket_may_adopt(struct redis *r, const struct redis_ticket *t, const char *token);
/* It is the one that the server knows by that token: another of its party that
 * was is forgotten. */
void redis_ticket_adopt(struct redis *r, struct redis_ticket *t, const char *token);
/* Whether it may have been under another name than this one when a request that named this one was carried out. */
bool redis_ticket_has_moved(const struct redis_ticket *t, const char *name);
/* Its times have changed. */
void redis_ticket_schedule(struct redis *r, struct redis_ticket *t);
/* To when the first is to be seen to. */
void redis_ticket_set_alarm(struct redis *r);
/* What the script says that it holds: "start end mode …". */
void redis_ticket_segments(struct redis_ticket *t, const char *text);
/* Whether another ticket of this mount at its place is of its handle or party. */
bool redis_ticket_has_kin(const struct redis_ticket *t, uint64_t handle, uint64_t party);
/* A cycle of waits of parties of this mount that begins with this one. */
bool redis_ticket_deadlocked(struct redis *r, struct redis_ticket *t);

/* --- keep.c --- */

/* Sends the release of a ticket that is (to be) forgotten here, and does not
 * cease before the ticket must have run out.  `why`: as release.lua takes it. */
void redis_send_release(struct redis *r, const struct redis_ticket *t, const char *why, backend_done *done, void *arg);
/* Extends one that holds to its ttl from now. */
void redis_extend(struct redis *r, struct redis_ticket *t);
/* Tells its end, and forgets it; `release`: the server may not know of it yet. */
void redis_ticket_end(struct redis *r, struct redis_ticket *t, enum backend_end why, bool release);
/* Lets the server know what is past its deadline at a place, before its end is told here. */
void redis_ticket_tell_over(struct redis *r, const char *name);
/* What the server says of a place does not go with what is held there: asks it, as a renewal does, so that what it has
 * forgotten is lost now.  Not `sure` (may be NULL) and its kin. */
void redis_ticket_doubt(struct redis *r, struct redis_place *place, const struct redis_ticket *sure);

/* --- acquire.c --- */

struct backend_ticket *redis_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                     backend_acquired *done, void *arg);
void redis_test(struct backend *b, const char *name, const struct backend_claim *claim, backend_known *done, void *arg);
/* Asks again for one that waits: a word of life, and a claim if it was handed over. */
void redis_refresh(struct redis *r, struct redis_ticket *t);

/* --- change.c --- */

void redis_release(struct backend *b, struct backend_ticket *ticket, backend_done *done, void *arg);
void redis_release_range(struct backend *b, const char *name, uint64_t party, uint64_t start, uint64_t end,
                         backend_done *done, void *arg);
void redis_convert(struct backend *b, struct backend_ticket *ticket, const struct backend_claim *claim,
                   backend_done *done, void *arg);
void redis_renew(struct backend *b, const struct backend_renewal *renewals, size_t count);
void redis_set(struct backend *b, struct backend_ticket *ticket, const struct backend_change *change,
               backend_done *done, void *arg);
void redis_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
                  backend_done *done, void *arg);

/* --- revoke.c --- */

void redis_revoke(struct backend *b, const char *name, uint64_t fence, const struct backend_match *match,
                  backend_done *done, void *arg);
/* The server has told that a ticket of this mount ended, and why. */
void redis_revoke_told(struct redis *r, struct redis_ticket *t, const char *why);
/* The mount with that channel wants to know when what it has ended is known here. */
void redis_revoke_asked(struct redis *r, const char *mount, const char *number);
/* What this mount has ended is known by one more. */
void redis_revoke_heard(struct redis *r, const char *number);
/* At the end: completions are not called. */
void redis_revoke_end_all(struct redis *r);

/* --- ask.c --- */

void redis_stat(struct backend *b, const char *name, backend_known *done, void *arg);
void redis_list(struct backend *b, const char *directory, const char *after, size_t max, backend_listed *done,
                void *arg);
void redis_mkdir(struct backend *b, const char *name, const struct backend_directory *directory, backend_done *done,
                 void *arg);
void redis_rmdir(struct backend *b, const char *name, backend_done *done, void *arg);
void redis_set_directory(struct backend *b, const char *name, const struct backend_directory *directory,
                         backend_done *done, void *arg);
/* `reply` from element `first` on is what describe of common.lua tells of that name. */
void redis_describe(struct redis *r, const char *name, const redisReply *reply, size_t first,
                    struct backend_info *info);
/* It was ours, and is over: the server did not know that yet when it answered. */
bool redis_is_over(struct redis *r, const redisReply *reply, size_t first, const struct backend_info *info);
void redis_info_clear(struct backend_info *info);

/* --- recover.c --- */

void redis_recover(struct backend *b,
                   void (*found)(void *arg, const char *name, struct backend_ticket *ticket, GBytes *meta), void *arg);

#endif
