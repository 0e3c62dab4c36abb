/* private: shared by the files of the PostgreSQL store.
 *
 * No file calls one above it:
 *
 * postgresql.c  opens and closes the backend; connection up and down, notifications, the mount's heartbeat
 * recover.c     restores the leases of a mount that starts again
 * revoke.c      ends holders by name, of any mount
 * request.c     the procedures of remote.h as calls of functions, and their answers
 * watch.c       watches names that others hold
 * marker.c      the epoch of the server, for backend/remote/epoch.h
 * values.c      encodes the parameters of a call, and reads its answer
 * pending.c     calls that are not answered yet
 * link.c        the connection on the loop: sends calls, repeats them, reports notifications
 * function.c    the statement of each function, and what errors mean
 * attempt.c     connects in a thread
 * connect.c     makes a connection, and the schema
 * uri.c         parses the address
 */
#ifndef BACKEND_POSTGRESQL_PRIVATE_H
#define BACKEND_POSTGRESQL_PRIVATE_H

#include <ev.h>
#include <glib.h>
#include <libpq-fe.h>

#include "backend/postgresql/postgresql.h"
#include "backend/remote/epoch.h"
#include "backend/remote/remote.h"

#define POSTGRESQL_MOUNT_SIZE 17 /* 64 random bits in hexadecimal, and NUL */
#define POSTGRESQL_FORMAT 2      /* as in schema.sql */
#define POSTGRESQL_REVISION 2    /* as in schema.sql */
#define POSTGRESQL_VERSION_MIN 140000
#define POSTGRESQL_LOCK_TIMEOUT 80 /* ms that a call waits for a name that a transaction keeps */
#define POSTGRESQL_CONTENT_MAX 65536
#define POSTGRESQL_META_MAX 4096
#define POSTGRESQL_LIST_MAX 1000

/* --- uri.c --- */

/* Keywords and values for PQconnectdbParams, NULL behind the last. */
struct pq_target {
    GPtrArray *keywords, *values; /* of char * */
    char *schema;
    char *shedlock; /* ShedLock's table; or NULL */
    char *address;  /* for messages: without a password */
};

bool pq_is_schema(const char *name);
/* 0, or -errno with one line in `error`. */
int pq_target_parse(const char *uri, const char *user, const char *password, int64_t timeout, struct pq_target *ret,
                    char *error, size_t error_size);
void pq_target_copy(struct pq_target *to, const struct pq_target *from);
void pq_target_clear(struct pq_target *target);

/* --- connect.c --- */

struct pq_connection {
    PGconn *conn;        /* NULL: see `error` */
    char *error;         /* one line */
    GPtrArray *warnings; /* of char *: settings that make the server less safe */
    char *address;       /* "postgresql://host:port/database" */
    bool older;          /* an older leasefs made the schema, so it may lack functions; the log has a warning */
};

void pq_connection_clear(struct pq_connection *connection);
/* An error message of libpq as one line: a new string. */
char *pq_error_line(const char *message);

/* Connects and sets up the session; blocks.  If `first`, makes or upgrades the schema if the role may. */
void pq_connect(const struct pq_target *target, const char *mount, bool first, struct pq_connection *ret);

/* --- function.c --- */

enum pq_function {
    PQ_ACQUIRE,
    PQ_RELEASE,
    PQ_RELEASE_RANGE,
    PQ_RENEW,
    PQ_RENEW_MANY,
    PQ_VERIFY_MANY, /* the same for terms that are not extended by all of the ttl */
    PQ_RESTORE,
    PQ_HEARTBEAT,
    PQ_CONVERT,
    PQ_SET,
    PQ_RENAME,
    PQ_HOLDERS,
    PQ_REVOKE,
    PQ_REVOKE_TOKEN,
    PQ_CONFIRM_ENDS,
    PQ_STAT,
    PQ_LIST,
    PQ_TICKETS,
    PQ_WATCH,
    PQ_MKDIR,
    PQ_RMDIR,
    PQ_SET_DIRECTORY,
    PQ_ENTER,
    PQ_GREET,
    PQ_NOTE_MOUNT,
    PQ_MOUNTS,
    PQ_SWEEP,
    PQ_RECOVER,
    PQ_BLOCKERS,
    PQ_FUNCTIONS
};

/* Does its last parameter name the epoch?  Then it takes a lock, whose path is its first parameter. */
bool pq_function_is_stamped(enum pq_function function);
/* The statement that calls it: a new string. */
char *pq_function_statement(enum pq_function function, const char *schema);

enum pq_failure {
    PQ_REFUSED,
    PQ_AGAIN,   /* rolled back: repeat the call */
    PQ_BLOCKED, /* the same, because another transaction keeps the name's lock */
    PQ_EPOCH,   /* the same, because the call named another epoch */
    PQ_FULL,
    PQ_DAMAGED
};

/* Why the server rolled a call back. */
enum pq_failure pq_failure_of(const PGresult *rows);

/* --- attempt.c --- */

struct pq_attempt;

/* Starts to connect.  Sends `wake` when the attempt has succeeded or failed.  NULL: no thread can be started.  `first`:
 * see pq_connect. */
struct pq_attempt *pq_attempt_start(const struct pq_target *target, const char *mount, bool first, struct ev_loop *loop,
                                    ev_async *wake);
/* False: it has not ended yet.  True: it is freed; clear `ret`. */
bool pq_attempt_end(struct pq_attempt *attempt, struct pq_connection *ret);
/* It ends by itself, and sends nothing. */
void pq_attempt_abandon(struct pq_attempt *attempt);

/* --- pending.c --- */

#define PQ_PARAMETERS_MAX 20

/* The parameters of a call, in order, in one block of bytes. */
struct pq_parameters {
    unsigned count;
    struct {
        guint offset;
        int length; /* -1: NULL */
        bool binary;
    } at[PQ_PARAMETERS_MAX];
    GByteArray *bytes;
};

struct pq_answer {
    enum remote_outcome outcome;
    enum backend_result result; /* unless ANSWERED: UNREACHABLE, FULL or DAMAGED */
    clock_ms sent;
    bool repeated;
    const PGresult *rows; /* ANSWERED; else NULL */
};

typedef void pq_answered(void *arg, const struct pq_answer *answer);

struct pq_call {
    TAILQ_ENTRY(pq_call) link;
    uint64_t id; /* 0: the request prepares the statement of the function */
    enum pq_function function;
    struct pq_parameters parameters;
    clock_ms until;        /* its timeout */
    clock_ms sent;         /* the last attempt; 0: none */
    clock_ms not_before;   /* when to send it */
    bool repeated;         /* an earlier attempt may have been carried out */
    clock_ms blocked;      /* since when another transaction has kept its name from it; 0: none does */
    bool unconfirmed;      /* a standby may lack its commit */
    PGresult *rows;        /* of this attempt */
    pq_answered *answered; /* NULL: forgotten, or answered already */
    void *arg;
};

TAILQ_HEAD(pq_call_list, pq_call);

struct pq_pending {
    struct pq_call_list waiting; /* not sent on this connection; in the order of their ids */
    struct pq_call_list sent;    /* in order */
    GHashTable *by_id;           /* -> struct pq_call */
    GHashTable *blocked;         /* path (GBytes) -> the one call that waits for a transaction which keeps it */
    uint64_t ids;
};

void pq_pending_init(struct pq_pending *pending);
/* Frees all calls.  Completions are not called. */
void pq_pending_clear(struct pq_pending *pending);
/* A new call that waits to be sent.  Takes over the parameters' bytes. */
struct pq_call *pq_pending_add(struct pq_pending *pending, enum pq_function function,
                               const struct pq_parameters *parameters, clock_ms until, pq_answered *answered,
                               void *arg);
/* The connection prepares a statement: a refusal is only logged. */
void pq_pending_add_preparation(struct pq_pending *pending, enum pq_function function);
/* The path of the lock that the call takes, to be unreferenced.  NULL: it takes none, so it waits for no other
 * transaction.  The first parameter of each function that takes a lock is its path. */
GBytes *pq_pending_path(const struct pq_call *call);
/* Another transaction keeps the path from this call. */
void pq_pending_set_blocked(struct pq_pending *pending, GBytes *path, struct pq_call *call);
/* Does another call wait for a transaction which keeps the path of this one? */
bool pq_pending_is_behind_blocked(struct pq_pending *pending, const struct pq_call *call);
/* Puts a call that is in no list where it was among those that wait: a later one may rely on it. */
void pq_pending_put_back(struct pq_pending *pending, struct pq_call *call);
/* Frees a call that is in no list. */
void pq_pending_free(struct pq_pending *pending, struct pq_call *call);
/* Calls its completion, once. */
void pq_pending_answer(struct pq_call *call, enum remote_outcome outcome, enum backend_result result,
                       const PGresult *rows);
/* See pq_link_forget. */
void pq_pending_forget(struct pq_pending *pending, uint64_t id);
/* The connection ended: all calls wait for the next one. */
void pq_pending_take_back(struct pq_pending *pending);
/* Answers the calls whose timeout is over. */
void pq_pending_expire(struct pq_pending *pending, clock_ms now);

/* --- link.c --- */

struct pq_link;

struct pq_events {
    void (*connected)(void *context); /* reads the epoch, then calls pq_link_enter */
    void (*up)(void *context);
    void (*another_epoch)(void *context); /* the stamp of a call is not the present epoch; the call is sent again */
    void (*down)(void *context, const char *why);
    void (*notified)(void *context, const char *text);
};

struct pq_counts {
    uint64_t requests, reconnects;
    clock_ms since; /* when the connection came up or went down */
};

/* Takes over the target.  `made`: a connection that is up already; its `conn` may be NULL. */
struct pq_link *pq_link_new(struct pq_target *target, const char *mount, int64_t timeout, struct pq_connection *made);
void pq_link_start(struct pq_link *link, struct ev_loop *loop, const struct pq_events *events, void *context);
/* Completions are not called. */
void pq_link_free(struct pq_link *link);
bool pq_link_is_up(const struct pq_link *link);
/* Is it connected, with the epoch not yet known? */
bool pq_link_is_entering(const struct pq_link *link);
void pq_link_enter(struct pq_link *link);
/* All further calls carry this stamp, repeated ones too. */
void pq_link_set_stamp(struct pq_link *link, const char *stamp);
/* Takes over the parameters' bytes.  `timeout`: ms for all attempts; 0: the link's.  Returns an id for pq_link_forget.
 */
uint64_t pq_link_send(struct pq_link *link, enum pq_function function, struct pq_parameters *parameters,
                      int64_t timeout, pq_answered *answered, void *arg);
/* Cancels a call: it is not sent or repeated, and not answered. */
void pq_link_forget(struct pq_link *link, uint64_t id);
struct pq_counts pq_link_counts(const struct pq_link *link);
const char *pq_link_error(const struct pq_link *link);   /* "": it is up */
const char *pq_link_refusal(const struct pq_link *link); /* of the last minute; NULL: none */
const char *pq_link_address(const struct pq_link *link);
const GPtrArray *pq_link_warnings(const struct pq_link *link);

/* --- values.c --- */

void pq_add_text(struct pq_parameters *p, const char *text); /* NULL: NULL */
void pq_add_number(struct pq_parameters *p, int64_t number);
void pq_add_flag(struct pq_parameters *p, bool is);
void pq_add_null(struct pq_parameters *p);
void pq_add_nonzero(struct pq_parameters *p, uint64_t number); /* 0: NULL; as a signed number with the same bits */
void pq_add_offset(struct pq_parameters *p, uint64_t offset);
void pq_add_path(struct pq_parameters *p, const char *path);
void pq_add_bytes(struct pq_parameters *p, GBytes *bytes); /* NULL: '' */
void pq_add_segments(struct pq_parameters *p, const GArray *segments, enum backend_mode mode);
/* Arrays of texts that need no quotes, of numbers, or of paths. */
void pq_add_texts(struct pq_parameters *p, const char *const *texts, size_t count);
void pq_add_numbers(struct pq_parameters *p, const int64_t *numbers, size_t count);
void pq_add_paths(struct pq_parameters *p, const char *const *paths, size_t count);
/* Path, parent and leaf of a name. */
void pq_add_name(struct pq_parameters *p, const char *name);
/* The path of a lock, or of a directory's queue. */
char *pq_lock_path(const char *name, bool sequence);

/* A value of a row; a column that is missing or NULL is "", -1 or empty. */
const char *pq_text(const PGresult *rows, int row, const char *column);
int64_t pq_number(const PGresult *rows, int row, const char *column);
uint64_t pq_fence(const PGresult *rows, int row, const char *column); /* 0: no valid token */
GBytes *pq_bytes(const PGresult *rows, int row, const char *column, size_t max);
/* Bytes as a name: a new string; NULL: no valid name. */
char *pq_name(const PGresult *rows, int row, const char *column);
/* The word in a column (NULL: the first) as a result. */
enum backend_result pq_result(const struct pq_answer *answer, const char *column);
/* Fills in a row of leasefs.describe. */
void pq_describe(struct remote *r, const char *name, const PGresult *rows, struct backend_info *info);

/* --- the store --- */

struct postgresql {
    struct remote remote;
    struct pq_link *link;
    struct epoch epoch;
    char mount[POSTGRESQL_MOUNT_SIZE]; /* the mount's channel is leasefs_ and this */
    char *identity, *host, *address;
    bool was_up;
    ev_timer pulse, sweeping;
    int64_t page;        /* the page of the tickets' table to sweep next */
    int64_t clock_ahead; /* ms: the server's clock less ours, in its last report; 0: none yet */
    struct pq_recovery *recovery;
};

static inline struct postgresql *postgresql_of(const struct remote_request *request)
{
    return (struct postgresql *)request->r;
}

static inline uint64_t postgresql_send(struct postgresql *p, enum pq_function function,
                                       struct pq_parameters *parameters, int64_t timeout, pq_answered *answered,
                                       void *arg)
{
    return pq_link_send(p->link, function, parameters, timeout, answered, arg);
}

/* --- marker.c --- */

extern const struct epoch_store pq_epoch_store;
/* Call it for each new connection. */
void pq_marker_enter(struct postgresql *p);

/* --- watch.c --- */

void pq_watch_name(struct remote *r, const char *name);
/* `text`, "PATH NAME" in hexadecimal: the lock was released; NULL: any lock may have been. */
void pq_watch_on_released(struct postgresql *p, const char *text);

/* --- request.c --- */

uint64_t pq_send_request(struct remote_request *request, struct remote_ticket *t, int64_t timeout);
void pq_send_heartbeat(struct remote *r, struct remote_ticket *const *tickets, size_t count);
void pq_send_renewals(struct remote *r, struct remote_batch *batch);

/* --- revoke.c --- */

void pq_revoke(struct remote_request *request);
/* The mount with that channel has revoked tickets of this mount, and waits until their ends are reported here. */
void pq_revoke_on_confirm_request(struct postgresql *p, const char *mount, const char *number);

/* --- recover.c --- */

void pq_recover(struct remote *r, backend_recover_each *found, void *arg);
void pq_recover_stop(struct postgresql *p);

#endif
