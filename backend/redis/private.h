/* private: what the files of the Redis backend share.
 *
 * From the top to the ground; none calls one above it.
 *
 * redis.c    the backend: start, connection up and down, messages
 * marker.c   the marker of the epoch, for backend/remote/epoch.h
 * recover.c  the leases of a mount that starts again
 * revoke.c   ending holders by name, on whichever mount
 * change.c   what is done to tickets
 * acquire.c  taking, waiting and claiming; the heartbeat of those that wait
 * ask.c      questions, and directories
 * list.c     the names in a directory
 * watch.c    names that others hold
 * key.c      names to keys, and calls of scripts
 * pack.c     what a script is to do, as one value
 */
#ifndef BACKEND_REDIS_PRIVATE_H
#define BACKEND_REDIS_PRIVATE_H

#include "backend/redis/redis.h"
#include "backend/redis/script.h"
#include "backend/remote/epoch.h"
#include "backend/remote/remote.h"

#define REDIS_TIMEOUT_AWAY 500 /* ms of a request while the server is away for longer than requests take */
#define REDIS_LIST_MAX 1000
#define REDIS_CONTENT_MAX 65536 /* bytes, of what a store says */
#define REDIS_META_MAX 4096
#define REDIS_COMPLAIN_EVERY 1000 /* ms between logged errors of one kind */

/* A name that another mount or client holds, and that the server is to tell of. */
struct redis_watch {
    TAILQ_ENTRY(redis_watch) link;
    char *name;
    char *names; /* the key of its directory's names, if it may be a ticket; else NULL */
    bool rests;  /* the server is not to tell of it, because a ticket of this mount waits for it */
};

struct redis {
    struct remote remote;
    struct redis_conn *conn;
    char *before, *behind;                          /* of a lock's key: around the name */
    char mount[24];                                 /* "lfs:m" and 60 random bits: the mount's channel */
    GHashTable *watches;                            /* name -> struct redis_watch */
    TAILQ_HEAD(redis_watches, redis_watch) watched; /* the same, the last looked up first */
    LIST_HEAD(, redis_revocation) revocations;
    LIST_HEAD(, redis_listing) listings;
    GString *key;        /* the one that was made last */
    GStringChunk *arena; /* keys of the call that is being made */
    GArray *arguments;   /* struct redis_argument: the same, in order */
    GByteArray *packed;  /* and its argument */
    char *identity;      /* see redis_identity */
    char *address;       /* to show */
    char *about;         /* how the mount describes itself: see backend/format.h */
    enum redis_kind kind;
    bool was_up;
    clock_ms noted; /* when the set of this mount's leases was last told how long it is kept; 0: it may be none */
    clock_ms down_since;
    int64_t timeout;     /* of a request */
    GPtrArray *warnings; /* of INFO, as of when it came up */
    bool told;           /* those of the first time were logged by whoever looked before the mount, or are logged */
    clock_ms complained; /* when the last error was logged */
    unsigned probing;    /* side keys that are being read to find the one of the wrong type */
    struct epoch epoch;
    unsigned wait;                   /* replicas that must have what is believed */
    struct redis_recovery *recovery; /* until all is found that this mount held before; or NULL */
    GPtrArray *gathered;             /* renewals of this turn of the loop: of struct remote_request; or NULL */
    GHashTable *renewals;            /* such arrays: that, and those that are not answered */
    ev_prepare gathering;            /* is fed to the loop */
    GHashTable *releases;    /* name -> struct remote_request: what is asked in the short way of release_lone.lua */
    GHashTable *directories; /* name -> struct backend_directory: as they were last seen */
};

static inline struct redis *redis_of(const struct remote_request *request)
{
    return (struct redis *)request->r;
}

/* --- key.c --- */

#define REDIS_WORDS_MAX 6

struct redis_call {
    struct redis *r;
    enum redis_script_id script;
    guint fields; /* of its first argument that is no key */
    guint word_count;
    struct redis_argument words[REDIS_WORDS_MAX]; /* those behind it */
};

/* Whether it may be a side key, so that no lock can have it. */
bool redis_key_is_side(const char *key);
/* Whether it has a {tag}, by which all that begins with it is in one hash slot of a Cluster. */
bool redis_key_has_tag(const char *key);
/* Whether a name may be a key; the root may always. */
bool redis_key_allowed(struct redis *r, const char *name);
/* Digested, as it stands in the key of the mount's leases: behind the prefix.  A new string. */
char *redis_identity(struct redis *r, const char *identity);
/* The key of a lock, or what stands for that of the root; a new string. */
char *redis_key(struct redis *r, const char *name);
/* The same of a side key, as redis_call_key names it. */
char *redis_side_key(struct redis *r, char letter, const char *name);

/* What a script may take without unpacking its first argument, in that order; numbers are not negative. */
void redis_call_word(struct redis_call *call, const char *text);
void redis_call_word_number(struct redis_call *call, int64_t number);
/* What the set of the mount's leases has of a lock; '' if it is none. */
void redis_call_word_lease(struct redis_call *call, const char *id, const char *name, bool lease);
/* A call with the keys that common.lua takes, for a lock or for a directory's
 * queue, and its first fields: leaf and sequence.  With `numbered` also those
 * of the directory's queue, when the leaf may be a name in it. */
void redis_call_lock(struct redis_call *call, struct redis *r, enum redis_script_id script, const char *name,
                     bool sequence, const char *numbered);
/* The same with the keys of acquire_free.lua and of release_lone.lua. */
void redis_call_free(struct redis_call *call, struct redis *r, const char *name);
void redis_call_lone(struct redis_call *call, struct redis *r, const char *name);
/* 0: the lock's own; 'm': that of the mount's leases, without a name. */
void redis_call_key(struct redis_call *call, char letter, const char *name);
/* Fields of the one argument, a table to the script. */
void redis_call_leaf(struct redis_call *call, const char *name, bool sequence);
void redis_call_text(struct redis_call *call, const char *field, const char *text);
void redis_call_number(struct redis_call *call, const char *field, int64_t number); /* below 2^53 */
void redis_call_flag(struct redis_call *call, const char *field, bool is);
void redis_call_unsigned(struct redis_call *call, const char *field, uint64_t number); /* as text; 0: none */
void redis_call_bytes(struct redis_call *call, const char *field, GBytes *bytes);      /* NULL: '' */
/* What is packed next; its count is written last (pack_count), at the place that is returned. */
guint redis_call_array(struct redis_call *call, const char *field);
void redis_call_range(struct redis_call *call, uint64_t lock_owner, uint64_t start, uint64_t end);
void redis_call_segments(struct redis_call *call, const GArray *segments); /* struct backend_segment */
void redis_call_texts(struct redis_call *call, const char *field, const GPtrArray *texts);
/* What is asked for with this ticket. */
/* By which handle it is asked, and whether another ticket is kin to it. */
void redis_call_kin(struct redis_call *call, const struct remote_ticket *t, struct backend_identity kin);
void redis_call_claim(struct redis_call *call, const struct remote_ticket *t, const struct backend_claim *claim);
/* Keys and first fields of a call about a ticket. */
void redis_call_ticket(struct redis_call *call, struct redis *r, enum redis_script_id script,
                       const struct remote_ticket *t);
/* What is to be sent, KEYS and then ARGV; until redis_call_end. */
const struct redis_argument *redis_call_arguments(struct redis_call *call, size_t *ret_keys, size_t *ret_count);
void redis_call_end(struct redis *r);
/* Who asks when the server has long been away is not kept as long; 0: the default. */
int64_t redis_patience(const struct redis *r);
uint64_t redis_call_send(struct redis_call *call, int64_t timeout, redis_answered *answered, void *arg);

/* The name of the lock that this key is of, or belongs to as a side key; NULL if it cannot be one.  A new string. */
char *redis_key_name(struct redis *r, const char *key, size_t length);

/* --- replies --- */

/* The element of an array reply, as text ("" when it is not there), whole number, or bytes (borrowed). */
const char *redis_text(const redisReply *reply, size_t index);
int64_t redis_number(const redisReply *reply, size_t index);
uint64_t redis_unsigned(const redisReply *reply, size_t index);
uint64_t redis_offset(const redisReply *reply, size_t index);
/* "start end mode …", in hexadecimal, mode 1: shared.  A new array, or NULL. */
GArray *redis_segments(const redisReply *reply, size_t index);
GBytes *redis_bytes(const redisReply *reply, size_t index, size_t max); /* a new reference, `max` bytes at most */

/* A reply is what a stranger may have written: numbers within bounds. */
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

/* --- acquire.c --- */

void redis_test(struct remote_request *request);
/* Whether it is asked for in the short way first; and that. */
bool redis_acquire_may_be_free(struct redis *r, const struct remote_ticket *t);
void redis_acquire_fill_free(struct redis_call *call, struct redis *r, const struct remote_ticket *t);
/* With `test` what would stand in its way. */
void redis_acquire_fill(struct redis_call *call, struct redis *r, const struct remote_ticket *t, bool test);
/* Values are borrowed of `given`, of `holder`, which the caller clears, and of *ret_segments, which it frees. */
void redis_acquire_read(const struct remote_request *request, const struct redis_answer *given,
                        struct remote_answer *answer, struct backend_info *holder, GArray **ret_segments);
/* As struct remote_store says. */
void redis_send_heartbeat(struct remote *remote, struct remote_ticket *const *tickets, size_t count);
void redis_watch(struct remote *remote, struct remote_ticket *t);

/* --- change.c --- */

/* As struct remote_store says. */
uint64_t redis_send_request(struct remote_request *request, struct remote_ticket *t, int64_t timeout);
/* What was gathered in this turn of the loop. */
void redis_send_renewals(struct redis *r);

/* --- revoke.c --- */

void redis_revoke(struct remote_request *request);
/* Why a ticket has ended, as messages say it. */
enum backend_end redis_end(const char *why);
/* The mount with that channel wants to know when what it has ended is known here. */
void redis_revoke_asked(struct redis *r, const char *mount, const char *number);
/* What this mount has ended is known by one more. */
void redis_revoke_heard(struct redis *r, const char *number);
/* At the end: completions are not called. */
void redis_revoke_end_all(struct redis *r);

/* --- ask.c --- */

void redis_stat(struct remote_request *request);
void redis_change_directory(struct remote_request *request);
/* `reply` from element `first` on is what describe of common.lua tells of that name. */
void redis_describe(struct redis *r, const char *name, const redisReply *reply, size_t first,
                    struct backend_info *info);
/* It was ours, and has expired: the server did not know that yet when it answered. */
bool redis_is_expired(struct redis *r, const redisReply *reply, size_t first, const struct backend_info *info);
void redis_info_clear(struct backend_info *info);

/* The next number of its sequence tickets, as far as is known: at least `next`. */
uint64_t redis_sequence(struct redis *r, const char *name, uint64_t next);
/* Makes it as it was when it was last looked up; of the root sets that.  Nobody is told. */
void redis_restore_directory(struct redis *r, const char *name);

/* --- list.c --- */

void redis_list(struct remote_request *request);
/* At the end: completions are not called. */
void redis_list_end_all(struct redis *r);

/* --- watch.c --- */

void redis_watch_name(struct remote *remote, const char *name);
/* The server has told that the lock of this name has changed (NULL: any may have). */
void redis_watch_changed(struct redis *r, const char *name);
/* That key has changed, which is no lock's. */
void redis_watch_side_changed(struct redis *r, const char *key, size_t length);
/* No ticket of this mount waits for the lock any more: the last one was granted, or ended. */
void redis_watch_resume(struct redis *r, const char *name, bool granted);
void redis_watch_end_all(struct redis *r);

/* --- recover.c --- */

void redis_recover(struct remote *remote, backend_recover_each *found, void *arg);
/* At the end: nothing more is found. */
void redis_recover_stop(struct redis *r);

#endif
