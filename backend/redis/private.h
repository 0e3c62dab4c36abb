/* private: what the files of the Redis backend share.  From the top to the ground; no file calls one above it:
 *
 * redis.c        the backend: start, connection up and down, messages
 * recover.c      the leases and handle locks of a mount that starts again
 * uncontended.c  short scripts for a lock with one ticket; every request begins here
 * procedures.c   requests as scripts, from one table
 * marker.c       the marker of the epoch, for backend/remote/epoch.h
 * revoke.c       ends holders by name, on whichever mount
 * list.c         the names in a directory
 * stat.c         what a name is, and who holds it
 * directory.c    makes, changes and removes directories
 * waiters.c      the heartbeat of waiters; watches locks that other clients hold
 * watch.c        watches names for the file system
 * reply.c        what a reply says
 * calls.c        builds and sends calls of scripts
 * key.c          names to keys, on one server and on several
 * pack.c         the argument of a script, as one value
 */
#ifndef BACKEND_REDIS_PRIVATE_H
#define BACKEND_REDIS_PRIVATE_H

#include "backend/redis/key.h"
#include "backend/redis/redis.h"
#include "backend/redis/script.h"
#include "backend/remote/epoch.h"
#include "backend/remote/remote.h"

#define REDIS_CONTENT_MAX 65536 /* bytes, of what a store says */
#define REDIS_META_MAX 4096
#define REDIS_COMPLAIN_EVERY 1000 /* ms between logged errors of one kind */

/* What uncontended.c keeps. */
struct redis_uncontended {
    GHashTable *releases;  /* name -> struct uncontended_release: pending ones */
    clock_ms leases_noted; /* when the expiry of the set of this mount's leases was renewed; 0: that set may be gone */
};

struct redis {
    struct remote remote;
    struct redis_conn *conn;
    struct redis_keys keys;
    char mount[24];      /* "lfs:m" and 60 random bits: the mount's channel */
    GStringChunk *arena; /* keys and words of the call that is being built */
    GArray *arguments;   /* struct redis_argument: its KEYS, in order */
    GByteArray *packed;  /* its ARGV[1] */
    char *address;       /* for messages */
    char *about;         /* how the mount describes itself: see backend/format.h */
    enum redis_kind kind;
    clock_ms started;
    bool was_up;
    GPtrArray *warnings; /* about INFO, when the server came up last */
    bool warned;         /* the warnings of the first time are logged, by the preflight or here */
    clock_ms complained; /* when the last error was logged */
    clock_ms full;       /* when the server last refused something for lack of memory; 0: never */
    unsigned probing;    /* pending requests that look for the side key of a wrong type */
    struct epoch epoch;
    unsigned wait;                   /* replicas that must confirm a grant */
    struct redis_recovery *recovery; /* until all leases of the daemon before are found; or NULL */
    struct redis_uncontended uncontended;
    LIST_HEAD(, redis_directory_flow) directory_flows;
};

static inline struct redis *redis_of(const struct remote_request *request)
{
    return (struct redis *)request->r;
}

/* --- calls.c --- */

#define REDIS_WORDS_MAX 6

/* A call that is being built, one at a time: the caller sets `r` and `script`. */
struct redis_call {
    struct redis *r;
    enum redis_script_id script;
    guint fields; /* of ARGV[1], a table to the script */
    guint word_count;
    struct redis_argument words[REDIS_WORDS_MAX]; /* ARGV[2] and so on */
};

/* ARGV[2] and so on, which a script reads without unpacking; numbers are not negative. */
void redis_call_word(struct redis_call *call, const char *text);
void redis_call_word_number(struct redis_call *call, int64_t number);
/* The keys that head.lua names, of a lock, or (`sequence`) of a directory's queue.  `numbered`: letters of further side
 * keys of its directory, if the leaf can be a name of a sequence; or NULL. */
void redis_call_lock(struct redis_call *call, const char *name, bool sequence, const char *numbered);
/* Side keys of one name, which differ in the letter only. */
void redis_call_sides(struct redis_call *call, const char *letters, const char *name);
/* One key: see redis_key_make. */
void redis_call_key(struct redis_call *call, char letter, const char *name);
/* Fields of the one argument, a table to the script. */
void redis_call_leaf(struct redis_call *call, const char *name, bool sequence);
void redis_call_text(struct redis_call *call, const char *field, const char *text);
void redis_call_number(struct redis_call *call, const char *field, int64_t number); /* below 2^53 */
void redis_call_flag(struct redis_call *call, const char *field, bool is);
void redis_call_unsigned(struct redis_call *call, const char *field, uint64_t number); /* as text; 0: none */
void redis_call_bytes(struct redis_call *call, const char *field, GBytes *bytes);      /* NULL: '' */
/* Begins an array.  The caller packs its values, and then gives their count to pack_count with the returned position.
 */
guint redis_call_array(struct redis_call *call, const char *field);
void redis_call_range(struct redis_call *call, uint64_t lock_owner, uint64_t start, uint64_t end);
void redis_call_segments(struct redis_call *call, const GArray *segments); /* struct backend_segment */
void redis_call_texts(struct redis_call *call, const char *field, const GPtrArray *texts);
/* The handle of the claim, and whether this mount has another ticket of the same identity on the lock. */
void redis_call_identity(struct redis_call *call, const struct remote_ticket *t, struct backend_identity identity);
void redis_call_claim(struct redis_call *call, const struct remote_ticket *t, const struct backend_claim *claim);
/* Keys and first fields of a call about a ticket. */
void redis_call_ticket(struct redis_call *call, const struct remote_ticket *t);
/* The built KEYS and ARGV, valid until redis_call_end. */
const struct redis_argument *redis_call_arguments(struct redis_call *call, size_t *ret_keys, size_t *ret_count);
void redis_call_end(struct redis *r);
/* ms for a request; 0: the default.  While the server has been away for long, requests fail sooner. */
int64_t redis_request_timeout(const struct redis *r);
uint64_t redis_call_send(struct redis_call *call, int64_t timeout, redis_answered *answered, void *arg);

/* --- replies --- */

/* The element of an array reply, as text ("" when it is not there), whole number, or bytes (borrowed). */
const char *redis_text(const redisReply *reply, size_t index);
int64_t redis_number(const redisReply *reply, size_t index);
uint64_t redis_offset(const redisReply *reply, size_t index);
GBytes *redis_bytes(const redisReply *reply, size_t index, size_t max); /* a new reference, `max` bytes at most */

/* Anybody may have written what a reply has, so these bound numbers. */
int64_t redis_time(const redisReply *reply, size_t index);                    /* ms, at most 10 years; -1: not known */
uint32_t redis_count(const redisReply *reply, size_t index);                  /* 0 and more */
bool redis_fence(const redisReply *reply, size_t index, uint64_t *ret_fence); /* false: no token can be that */
bool redis_fence_of(const char *text, uint64_t *ret_fence);                   /* the same */

/* The result of an answer that is not REMOTE_ANSWERED; logs errors of the server. */
enum backend_result redis_failure(struct redis *r, const struct redis_answer *answer);
/* An answer that no script gives; the request's outcome is not known. */
void redis_disbelieve(struct redis *r, const struct redis_answer *answer);

/* What an answer's first word says, or its failure. */
enum backend_result redis_result(struct redis *r, const struct redis_answer *answer);

/* --- marker.c --- */

extern const struct epoch_store redis_epoch_store;
/* As struct redis_conn_events says. */
void redis_marker_greet(void *context);
bool redis_marker_greeted(void *context, const redisReply *reply);
/* Looks at the marker now, and whenever it changes. */
void redis_marker_watch(struct redis *r);
/* Whether that is the marker's key. */
bool redis_marker_is_key(struct redis *r, const char *key, size_t length);

/* --- uncontended.c --- */

/* As struct remote_store says: by a short script if there may be one ticket only, else by redis_procedure_send. */
uint64_t redis_send_request(struct remote_request *request, struct remote_ticket *t, int64_t timeout);
/* As struct remote_store says. */
void redis_uncontended_renew(struct remote *remote, struct remote_batch *batch);
/* What the set of the mount's leases and handle locks has of a lock; "" of a provisional one.  A new string. */
char *redis_note(const char *id, bool sequence, const char *name, enum backend_kind kind, GBytes *meta);
/* The keys and the id of a lease, in a call of uncontended_recover.lua. */
void redis_uncontended_add_lease(struct redis_call *call, const char *id, const char *path);
void redis_uncontended_init(struct redis *r);
/* After the connection is freed. */
void redis_uncontended_clear(struct redis *r);

/* --- procedures.c --- */

/* Sends the full script of the request.  As struct remote_store says. */
uint64_t redis_procedure_send(struct remote_request *request, struct remote_ticket *t, int64_t timeout);
/* Reads its answer, and calls request->on_answer. */
void redis_procedure_answer(struct remote_request *request, const struct redis_answer *given);

/* --- waiters.c --- */

/* As struct remote_store says. */
void redis_send_heartbeat(struct remote *remote, struct remote_ticket *const *tickets, size_t count);
void redis_watch_lock(struct remote *remote, struct remote_ticket *t);

/* --- revoke.c --- */

void redis_revoke(struct remote_request *request);
/* The mount with that channel has ended tickets, and asks this mount to confirm that it has read so. */
void redis_revoke_confirm(struct redis *r, const char *mount, const char *number);

/* --- stat.c --- */

void redis_stat(struct remote_request *request);
/* `reply`, behind its first word, is what describe of look.lua says of that name. */
void redis_describe(struct redis *r, const char *name, const redisReply *reply, struct backend_info *info);
/* Does it describe a ticket of this mount? */
bool redis_describes_own(const struct redis *r, const redisReply *reply, size_t first);

/* --- directory.c --- */

/* REMOTE_MKDIR, REMOTE_RMDIR, REMOTE_SET_DIRECTORY */
void redis_change_directory(struct remote_request *request);
/* The next number of its sequence tickets, as far as is known: at least `next`. */
uint64_t redis_sequence(struct redis *r, const char *name, uint64_t next);
/* At the end: completions are not called. */
void redis_directory_end_all(struct redis *r);

/* --- list.c --- */

void redis_list(struct remote_request *request);

/* --- watch.c --- */

void redis_watch_name(struct remote *remote, const char *name);
/* The server reports that a side key has changed. */
void redis_watch_side_changed(struct redis *r, const char *key, size_t length);

/* --- recover.c --- */

void redis_recover(struct remote *remote, backend_recover_each *found, void *arg);
/* At the end: no further lease is found. */
void redis_recover_stop(struct redis *r);

#endif
