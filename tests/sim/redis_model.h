/* redis_model: a Redis server as an object, for the simulator.
 *
 * It has no descriptor, no thread and no clock of its own: bytes go in and out by calls, and time is a function.  So
 * the same seed, times and bytes give the same answers.  It speaks RESP2.  It runs scripts as they are sent, on an
 * embedded Lua 5.1.  It knows the commands of its table, which check_redis_like compares with a real server, and
 * answers any other with an error.
 *
 * Times are in µs.  Call nothing of this from inside `ready`: only note the connection there.
 *
 * redis_model.c          the server: connections, states, faults
 * redis_model_data.c     keys and their values; expiry; what a restart loses
 * redis_model_command.c  commands about keys, strings, hashes, sets and lists
 * redis_model_zset.c     commands about sorted sets
 * redis_model_talk.c     commands about the server, connections, channels and scripts
 * redis_model_lua.c      scripts
 * redis_model_pack.c     the library cmsgpack of scripts
 * redis_model_replica.c  replication; Sentinels
 */
#ifndef TESTS_SIM_REDIS_MODEL_H
#define TESTS_SIM_REDIS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct redis_model;
struct redis_model_change;
struct redis_client;

struct redis_model_options {
    uint32_t seed;             /* of its ids */
    int64_t (*now)(void *arg); /* the world's time: never goes back */
    int64_t wall;              /* what its own clock, which TIME tells, shows when `now` is 0: since the epoch */
    size_t undo;               /* how many of its last writes a restart can lose; 0: none */
    void (*ready)(void *arg,
                  struct redis_client *client); /* there is something to receive, or it was closed; or NULL */
    /* What a write has changed, to be sent to replicas, and freed; or NULL.  It needs `undo`. */
    void (*wrote)(void *arg, struct redis_model_change *change);
    /* Of a Sentinel: which server is the master; or NULL. */
    void (*master)(void *arg, const char **ret_host, unsigned *ret_port);
    void *arg;
};

struct redis_model *redis_model_new(const struct redis_model_options *options);
/* Ends its connections, too.  NULL is allowed. */
void redis_model_free(struct redis_model *model);

/* --- time --- */

/* When redis_model_work has something to do, as `now` counts; INT64_MAX: never, as it stands. */
int64_t redis_model_next(const struct redis_model *model);
/* Deletes keys that have expired, ten times a second as a server does.  Without it they are deleted when they are met.
 */
void redis_model_work(struct redis_model *model);

/* --- connections --- */

/* NULL: refused, since it is down.  `user` is the caller's. */
struct redis_client *redis_model_connect(struct redis_model *model, void *user);
void *redis_client_user(const struct redis_client *client);
/* The client closes it, and it is freed.  NULL is allowed. */
void redis_client_close(struct redis_client *client);
/* Bytes of the client, in pieces of any size.  Complete commands are carried out before it returns, or when a paused
 * server continues. */
void redis_client_send(struct redis_client *client, const void *data, size_t length);
/* Bytes for the client: how many there are; takes at most `size` of them. */
size_t redis_client_pending(const struct redis_client *client);
size_t redis_client_receive(struct redis_client *client, void *data, size_t size);
/* The server has closed it: nothing comes any more behind what is pending. */
bool redis_client_closed(const struct redis_client *client);

/* --- faults --- */

/* States that last until they are set otherwise. */
enum redis_model_state {
    REDIS_MODEL_DOWN,     /* not there: connections are closed, and refused.  Going down forgets scripts; see below */
    REDIS_MODEL_PAUSED,   /* SIGSTOP: connections are accepted, nothing is answered; carries on where it stopped */
    REDIS_MODEL_LOADING,  /* LOADING, to all but what may be asked then */
    REDIS_MODEL_BUSY,     /* BUSY: a script of somebody else's runs.  SCRIPT KILL ends it */
    REDIS_MODEL_FULL,     /* OOM, to what may need memory, as in a server at maxmemory with noeviction */
    REDIS_MODEL_REPLICA,  /* READONLY, to writes */
    REDIS_MODEL_STALE,    /* MASTERDOWN, with REPLICA: it does not serve stale data */
    REDIS_MODEL_LONELY,   /* NOREPLICAS, to writes */
    REDIS_MODEL_DISKLESS, /* MISCONF, to writes */
    REDIS_MODEL_CLUSTER,  /* CLUSTERDOWN, to all that names a key */
    REDIS_MODEL_STATES
};
void redis_model_set(struct redis_model *model, enum redis_model_state state, bool on);
bool redis_model_is(const struct redis_model *model, enum redis_model_state state);

/* It goes down and comes up again as another run: without its last `lost` writes (as many as `undo` at most), or with
 * REDIS_MODEL_NOTHING without any data.  A script is one write, whole or not at all. */
#define REDIS_MODEL_NOTHING SIZE_MAX
void redis_model_restart(struct redis_model *model, size_t lost);
/* The same without coming up: what it will know when DOWN is set to false. */
void redis_model_lose(struct redis_model *model, size_t lost);

/* The next `times` commands that name a key are answered so, and not carried out: "MOVED 1 10.0.0.1:6379". */
void redis_model_refuse(struct redis_model *model, const char *error, unsigned times);
/* The next `times` scripts that would write are killed just before that (SCRIPT KILL; after it a script cannot be). */
void redis_model_kill_scripts(struct redis_model *model, unsigned times);
/* Whether there will be such a command, or script. */
bool redis_model_is_to_fail(const struct redis_model *model);
/* Clients without it get NOAUTH; NULL: none is needed. */
void redis_model_set_password(struct redis_model *model, const char *password);
/* Its clock is stepped by so much, either way. */
void redis_model_step(struct redis_model *model, int64_t by);
/* Its clock, as TIME tells it. */
int64_t redis_model_wall(const struct redis_model *model);
/* The connection ends behind that many bytes more, of what is pending or is still to be said: half a reply. */
void redis_client_cut(struct redis_client *client, size_t bytes);
/* All connections end at once (CLIENT KILL TYPE normal). */
void redis_model_cut_all(struct redis_model *model);

/* --- replicas --- */

#define REDIS_MODEL_REPLICAS 8

/* Grows with each write. */
uint64_t redis_model_offset(const struct redis_model *model);
/* All of its data: what a replica begins with. */
struct redis_model_change *redis_model_snapshot(const struct redis_model *model);
struct redis_model_change *redis_model_change_copy(const struct redis_model_change *change);
void redis_model_change_free(struct redis_model_change *change); /* NULL is allowed */
/* What the master has sent. */
void redis_model_apply(struct redis_model *model, const struct redis_model_change *change);
/* The replica has confirmed all up to `offset`; a lower one later changes nothing.  redis_model_forget_replica: it is
 * gone. */
void redis_model_acknowledge(struct redis_model *model, unsigned replica, uint64_t offset);
void redis_model_forget_replica(struct redis_model *model, unsigned replica);
/* REPLICAOF by a Sentinel, which ends all connections: of nobody, and then it is a master with another replication id;
 * or of another. */
void redis_model_promote(struct redis_model *model);
void redis_model_demote(struct redis_model *model);

/* --- other clients --- */

/* A command by somebody else, of words up to a NULL; whatever state it is in, but DOWN.  Returns the reply as it would
 * be sent, which is valid until the next call. */
const char *redis_model_do(struct redis_model *model, ...) __attribute__((sentinel));
/* The keys of database 0 that are there, in order of their bytes; NULL-terminated, to be freed with g_strfreev. */
char **redis_model_keys(struct redis_model *model);
/* All that is at its keys, a line each, the same for the same data: to be compared, and shown.  A new string. */
char *redis_model_dump(struct redis_model *model);

/* What INFO tells of this run of the server: 40 hexadecimal digits each. */
void redis_model_name_run(struct redis_model *model, const char *runid, const char *replid);

/* --- to be counted --- */

struct redis_model_counts {
    uint64_t commands; /* of clients, carried out or refused */
    uint64_t refused;  /* by one of the states */
    uint64_t scripts;  /* run */
    uint64_t calls;    /* of commands in scripts */
    uint64_t killed;   /* scripts */
    uint64_t writes;   /* commands and scripts that changed something */
    uint64_t lost;     /* writes, by restarts */
    uint64_t expired;  /* keys */
    uint64_t messages; /* delivered, of channels */
    uint64_t unheard;  /* messages that nobody was subscribed to */
    uint64_t reported; /* keys that were watched (CLIENT TRACKING) and changed */
    uint64_t cut;      /* connections that the server has closed */
    uint64_t longest;  /* calls of the longest script */
};
struct redis_model_counts redis_model_counts(const struct redis_model *model);

#endif
