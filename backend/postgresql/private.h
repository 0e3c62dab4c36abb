/* private: what the files of the PostgreSQL store share.
 *
 * From the top to the ground; none calls one above it:
 *
 * postgresql.c  the store: begin and end, connection up and down, notifications, heartbeat of the mount
 * recover.c     the leases of a mount that starts again
 * revoke.c      ending holders by name, on whichever mount
 * request.c     the procedures of remote.h as calls of functions, and their answers
 * watch.c       watches names that others hold
 * marker.c      which epoch the server has, for backend/remote/epoch.h
 * call.c        a call of a function, and values of its answer
 * link.c        the connection on the loop: sends calls, repeats them, reports notifications
 * connect.c     makes a connection, in a thread, and the schema
 * uri.c         the URI and what stands behind it
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
#define POSTGRESQL_FORMAT 1      /* as in schema.sql */
#define POSTGRESQL_VERSION_MIN 140000
#define POSTGRESQL_AWAY_TIMEOUT 500 /* ms of a request while the server has been away for longer than `timeout` */
#define POSTGRESQL_CONTENT_MAX 65536
#define POSTGRESQL_META_MAX 4096
#define POSTGRESQL_LIST_MAX 1000

/* --- uri.c --- */

/* Keywords and values for PQconnectdbParams, NULL behind the last. */
struct pq_target {
    GPtrArray *keywords, *values; /* of char * */
    char *schema;
    char *shedlock; /* ShedLock's table; or NULL */
    char *address;  /* to show: without a password */
};

/* 0, or -errno with one line in `error`. */
int pq_target_parse(const char *uri, const char *user, const char *password, int64_t timeout, struct pq_target *ret,
                    char *error, size_t error_size);
void pq_target_clear(struct pq_target *target);

/* --- connect.c --- */

/* What a connection needs, and what it has found. */
struct pq_connection {
    PGconn *conn;        /* NULL: see `error` */
    char *error;         /* one line */
    bool final;          /* trying again does not cure it while nobody changes the server */
    GPtrArray *warnings; /* of char *: what makes the server less safe than it could be */
    char *address;       /* "postgresql://host:port/database" */
};

void pq_connection_clear(struct pq_connection *connection);

/* Connects and sets the session up; blocks.  Makes the schema if it may. */
void pq_connect(const struct pq_target *target, const char *mount, bool first, struct pq_connection *ret);

/* --- link.c --- */

enum pq_function {
    PQ_ACQUIRE,
    PQ_RELEASE,
    PQ_RELEASE_RANGE,
    PQ_RENEW,
    PQ_RENEW_MANY,
    PQ_RESTORE,
    PQ_BEAT,
    PQ_CONVERT,
    PQ_SET,
    PQ_RENAME,
    PQ_HOLDERS,
    PQ_REVOKE,
    PQ_REVOKE_TOKEN,
    PQ_HEARD,
    PQ_STAT,
    PQ_LIST,
    PQ_TICKETS,
    PQ_WATCH,
    PQ_MKDIR,
    PQ_RMDIR,
    PQ_SET_DIRECTORY,
    PQ_ENTER,
    PQ_GREET,
    PQ_RECOVER,
    PQ_BLOCKERS,
    PQ_FUNCTIONS
};

#define PQ_PARAMETERS_MAX 20

/* Of a call: parameters in order, in one block of bytes. */
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
    enum backend_result result; /* if it is not ANSWERED: UNREACHABLE, FULL or DAMAGED */
    clock_ms sent;
    bool repeated;
    const PGresult *rows; /* ANSWERED; else NULL */
};

typedef void pq_answered(void *arg, const struct pq_answer *answer);

struct pq_link;

struct pq_events {
    void (*connected)(void *context); /* asks for the epoch, and calls pq_link_enter when it is known */
    void (*up)(void *context);
    void (*another_epoch)(void *context); /* than that of the stamp; the call is sent again */
    void (*down)(void *context, const char *why);
    void (*notified)(void *context, const char *text);
    clock_ms (*first_deadline)(void *context);
};

struct pq_counts {
    uint64_t requests, reconnects;
    clock_ms since; /* up, or down, since then */
};

/* Takes the target.  `made` is a connection that is up already, or has none. */
struct pq_link *pq_link_new(struct pq_target *target, const char *mount, int64_t timeout, struct pq_connection *made);
void pq_link_start(struct pq_link *link, struct ev_loop *loop, const struct pq_events *events, void *context);
/* Completions are not called. */
void pq_link_free(struct pq_link *link);
bool pq_link_is_up(const struct pq_link *link);
/* Connected, and the epoch is not known yet. */
bool pq_link_is_entering(const struct pq_link *link);
void pq_link_enter(struct pq_link *link);
/* Calls carry it from now on, also those that are sent again. */
void pq_link_set_stamp(struct pq_link *link, const char *stamp);
/* Takes the parameters' bytes.  `timeout` in ms, all attempts; 0: the link's.  Returns what pq_link_forget takes. */
uint64_t pq_link_send(struct pq_link *link, enum pq_function function, struct pq_parameters *parameters,
                      int64_t timeout, pq_answered *answered, void *arg);
/* It is not sent (again), and not answered. */
void pq_link_forget(struct pq_link *link, uint64_t id);
struct pq_counts pq_link_counts(const struct pq_link *link);
const char *pq_link_error(const struct pq_link *link); /* "": it is up */
const char *pq_link_address(const struct pq_link *link);
const GPtrArray *pq_link_warnings(const struct pq_link *link);
int64_t pq_link_timeout(const struct pq_link *link);

/* --- call.c --- */

void pq_add_text(struct pq_parameters *p, const char *text); /* NULL: NULL */
void pq_add_number(struct pq_parameters *p, int64_t number);
void pq_add_flag(struct pq_parameters *p, bool is);
void pq_add_null(struct pq_parameters *p);
void pq_add_nonzero(struct pq_parameters *p, uint64_t number); /* 0: NULL; its bits, signed */
void pq_add_offset(struct pq_parameters *p, uint64_t offset);
void pq_add_path(struct pq_parameters *p, const char *path);
void pq_add_bytes(struct pq_parameters *p, GBytes *bytes); /* NULL: '' */
void pq_add_segments(struct pq_parameters *p, const GArray *segments, enum backend_mode mode);
/* Arrays: of texts that need no quotes, numbers, or paths. */
void pq_add_texts(struct pq_parameters *p, const char *const *texts, size_t count);
void pq_add_numbers(struct pq_parameters *p, const int64_t *numbers, size_t count);
void pq_add_paths(struct pq_parameters *p, const char *const *paths, size_t count);
/* Path, parent and leaf of a name. */
void pq_add_name(struct pq_parameters *p, const char *name);
/* The path of a lock, or of a directory's queue. */
char *pq_lock_path(const char *name, bool sequence);

/* A value of a row; a column that is not there, or NULL, is "", -1 or an empty one. */
const char *pq_text(const PGresult *rows, int row, const char *column);
bool pq_is_null(const PGresult *rows, int row, const char *column);
int64_t pq_number(const PGresult *rows, int row, const char *column);
uint64_t pq_fence(const PGresult *rows, int row, const char *column); /* 0: no token can be that */
uint64_t pq_offset(const PGresult *rows, int row, const char *column);
GBytes *pq_bytes(const PGresult *rows, int row, const char *column, size_t max);
/* struct backend_segment; NULL: none.  Free it with g_array_unref. */
GArray *pq_segments(const PGresult *rows, int row, const char *column);
/* Bytes as a name: a new string; NULL: no name. */
char *pq_name(const PGresult *rows, int row, const char *column);
/* The word in the first column, or in that column, as a result. */
enum backend_result pq_result(const struct pq_answer *answer, const char *column);
/* What leasefs.describe says. */
void pq_describe(struct remote *r, const char *name, const PGresult *rows, struct backend_info *info);
void pq_info_clear(struct backend_info *info);

/* --- the store --- */

struct postgresql {
    struct remote remote;
    struct pq_link *link;
    struct epoch epoch;
    char mount[POSTGRESQL_MOUNT_SIZE]; /* the mount's channel is leasefs_ and this */
    char *identity, *host, *address;
    bool was_up;
    ev_timer pulse;
    int64_t page;        /* of the tickets' table, that is swept next */
    int64_t clock_ahead; /* the server's clock less ours, ms, when it was last told; 0: not yet */
    GPtrArray *gathered; /* renewals of this turn of the loop: of struct remote_request; or NULL */
    ev_prepare gathering;
    GPtrArray *renewals;     /* such arrays: that, and those that are not answered */
    GHashTable *stats_again; /* set of struct remote_request: stats that were sent once more */
    LIST_HEAD(, pq_revocation) revocations;
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
/* The connection is new. */
void pq_marker_enter(struct postgresql *p);

/* --- watch.c --- */

void pq_watch_name(struct remote *r, const char *name);
/* "PATH NAME" in hexadecimal: that was released. */
void pq_watch_freed(struct postgresql *p, const char *text);

/* --- request.c --- */

uint64_t pq_send_request(struct remote_request *request, struct remote_ticket *t, int64_t timeout);
void pq_send_heartbeat(struct remote *r, struct remote_ticket *const *tickets, size_t count);
void pq_send_renewals(struct postgresql *p);

/* --- revoke.c --- */

void pq_revoke(struct remote_request *request);
enum backend_end pq_end(const char *why);
/* The mount with that channel wants to know when what it has ended is known here. */
void pq_revoke_asked(struct postgresql *p, const char *mount, const char *number);
void pq_revoke_heard(struct postgresql *p, const char *number);
void pq_revoke_end_all(struct postgresql *p);

/* --- recover.c --- */

void pq_recover(struct remote *r, backend_recover_each *found, void *arg);
void pq_recover_stop(struct postgresql *p);

#endif
