/* redis_model_private: shared by the files of the model. */
#ifndef TESTS_SIM_REDIS_MODEL_PRIVATE_H
#define TESTS_SIM_REDIS_MODEL_PRIVATE_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>

#include "tests/sim/redis_model.h"

#define MODEL_DATABASES 16

/* --- redis_model_data.c: bytes --- */

struct slice { /* borrowed */
    const char *data;
    size_t length;
};

/* As functions of a GHashTable whose keys begin with a slice. */
guint slice_hash(gconstpointer slice);
gboolean slice_equal(gconstpointer a, gconstpointer b);
int slice_compare(const struct slice *a, const struct slice *b);
bool slice_is(const struct slice *slice, const char *word); /* in whatever case */
bool slice_is_exactly(const struct slice *slice, const char *text);
static inline struct slice slice_of(const char *text)
{
    return (struct slice){text, strlen(text)};
}
/* As servers read numbers: all of it, no blanks, no leading zeros. */
bool slice_number(const struct slice *slice, int64_t *ret_number);
bool slice_score(const struct slice *slice, double *ret_score);

/* --- redis_model_data.c: values --- */

enum model_type { MODEL_STRING, MODEL_LIST, MODEL_SET, MODEL_ZSET, MODEL_HASH, MODEL_ANY };

struct model_field { /* of a hash or set */
    struct slice name;
    TAILQ_ENTRY(model_field) link;
    GString *value;  /* NULL in a set */
    uint64_t serial; /* grows in the order of their coming: cursors */
    char bytes[];
};

struct model_fields {
    GHashTable *by_name; /* struct model_field, which begins with its name */
    TAILQ_HEAD(, model_field) order;
    uint64_t serials;
};

struct model_ranked { /* of a sorted set */
    struct slice name;
    double score;
    GSequenceIter *at;
    char bytes[];
};

struct model_zset {
    GHashTable *by_name; /* struct model_ranked, which begins with its name */
    GSequence *order;
};

struct model_value {
    struct slice key; /* its own */
    enum model_type type;
    int64_t expires; /* ms of its clock; INT64_MAX: never */
    union {
        GString *text;
        GQueue list; /* GString */
        struct model_fields fields;
        struct model_zset zset;
    };
};

struct model_field *model_fields_find(const struct model_fields *fields, const struct slice *name);
struct model_field *model_fields_add(struct model_fields *fields, const struct slice *name);
bool model_fields_remove(struct model_fields *fields, const struct slice *name);

struct model_ranked *model_zset_find(const struct model_zset *zset, const struct slice *name);
/* Adds it, or moves it. */
struct model_ranked *model_zset_put(struct model_zset *zset, const struct slice *name, double score);
void model_zset_remove(struct model_zset *zset, struct model_ranked *ranked);

/* --- redis_model_data.c: keys --- */

struct model_unit; /* a write that can be lost */

struct redis_model_change {
    bool all;
    char *replid;     /* of all: the master's replication id */
    GPtrArray *after; /* struct model_before: what is there since */
};

struct model_data {
    GHashTable *keys[MODEL_DATABASES]; /* struct model_value, which begins with its key */
    int64_t soonest;                   /* ms: no key expires before */
    size_t undo;
    GQueue units;            /* the oldest first */
    struct model_unit *unit; /* the one that is being made */
    bool changed;            /* it has changed something */
};

void model_data_init(struct model_data *data, size_t undo);
void model_data_clear(struct model_data *data);

/* NULL: nothing there, whatever its deadline. */
struct model_value *model_data_get(struct model_data *data, int db, const struct slice *key);
/* Call it before a change of the key, so that the change can be lost. */
void model_data_touch(struct model_data *data, int db, const struct slice *key);
/* Replaces the key's value by an empty one that does not expire. */
struct model_value *model_data_create(struct model_data *data, int db, const struct slice *key, enum model_type type);
void model_data_delete(struct model_data *data, int db, const struct slice *key);
void model_data_expire(struct model_data *data, struct model_value *value, int64_t at);
bool model_data_is_empty(const struct model_value *value);
void model_data_flush(struct model_data *data, int db); /* -1: all */
/* The values of the keys that were changed since the last model_data_commit, or (`all`) of all keys. */
struct redis_model_change *model_data_change(const struct model_data *data, bool all);
void model_data_apply(struct model_data *data, const struct redis_model_change *change);
/* Makes one write of the changes since the last call.  True if there were any. */
bool model_data_commit(struct model_data *data);
/* The last writes are undone; returns how many. */
size_t model_data_lose(struct model_data *data, size_t count);
/* Earlier changes can no longer be lost. */
void model_data_settle(struct model_data *data);
/* Values in order of their keys; the caller frees the array. */
GPtrArray *model_data_sorted(const struct model_data *data, int db);

/* --- redis_model.c --- */

struct model_command;

struct redis_client {
    TAILQ_ENTRY(redis_client) link;
    struct redis_model *m;
    void *user;
    uint64_t id;
    GString *in, *out;
    GString *name;
    int db;
    bool closed;
    bool authenticated;
    size_t left;          /* bytes until it is cut; SIZE_MAX: it is not */
    GHashTable *channels; /* struct slice, subscribed */
    bool tracking, optin;
    uint64_t redirect; /* to another client; 0: none */
    int caching;       /* 1: of the next command; 2: of this one; 0: not */
    uint64_t written;  /* the offset of its last command that wrote: what WAIT asks for */
    bool waits;        /* in WAIT, for so many replicas, until then (by `now`; INT64_MAX: for ever) */
    int64_t wait_count, wait_until;
};

struct redis_model {
    struct redis_model_options options;
    GRand *random;
    struct model_data data;
    struct redis_model_counts counts;
    bool state[REDIS_MODEL_STATES];
    int64_t stepped; /* of its clock */
    int64_t started; /* by `now` */
    uint64_t ids;
    TAILQ_HEAD(, redis_client) clients;
    GHashTable *watched;     /* key -> GArray of ids of clients that want to know (CLIENT TRACKING) */
    GPtrArray *report_later; /* struct slice: keys of the client whose command runs, that wants to know itself */
    GString *refusal;
    unsigned refusals;
    unsigned kills;
    char *password; /* NULL: none */
    char *replid, *former_replid, *runid;
    uint64_t offset; /* of the last write */
    struct {
        bool there;
        uint64_t offset;
    } replicas[REDIS_MODEL_REPLICAS];
    struct redis_client *current; /* whose command runs */
    struct redis_client *foreign; /* somebody else, who is not connected */
    GHashTable *commands;         /* struct slice -> struct model_command */
    struct model_lua *lua;
};

struct model_call {
    struct redis_model *m;
    struct redis_client *client;
    const struct model_command *command;
    const struct slice *argv;
    size_t argc;
    GString *out;
    bool in_script;
};

enum { /* flags of commands */
       MODEL_WRITE = 1 << 0,
       MODEL_DENYOOM = 1 << 1,
       MODEL_READ = 1 << 2,
       MODEL_LOADING = 1 << 3, /* permitted while it loads */
       MODEL_STALE = 1 << 4,   /* permitted of a replica without master */
       MODEL_NOSCRIPT = 1 << 5,
       MODEL_ALLOW_BUSY = 1 << 6,
       MODEL_NO_AUTH = 1 << 7,
};

struct model_command {
    const char *name; /* lower case; with a bar: a subcommand */
    int arity;        /* with the name; negative: at least */
    unsigned flags;
    int first, last, step; /* where keys are; last -1: to the end */
    void (*run)(struct model_call *call);
};

#define MODEL_NUMBERED (-1) /* `first` of a command that says how many keys it has */

extern const struct model_command model_key_commands[], model_zset_commands[], model_talk_commands[],
    model_replica_commands[];

/* NULL: there is none.  The second word may name a subcommand. */
const struct model_command *model_command_find(const struct redis_model *m, const struct slice *argv, size_t argc);
bool model_command_fits(const struct model_command *command, size_t argc);
/* Carries it out: the caller has seen that it may be. */
void model_run(struct model_call *call);
/* Where the keys are; false: it names none. */
bool model_command_keys(const struct model_call *call, size_t *ret_first, size_t *ret_last, size_t *ret_step);

int64_t model_now_ms(const struct redis_model *m); /* its clock */
void model_flush_watched(struct redis_model *m);
struct redis_client *model_client_find(struct redis_model *m, uint64_t id);
void model_deliver(struct redis_client *client, const char *data, size_t length);
/* A key was changed, or deleted, or has expired. */
void model_changed(struct redis_model *m, int db, const struct slice *key);
void model_forget_scripts(struct redis_model *m);
/* Makes one write of the changes, and sends it to the replicas. */
void model_commit(struct redis_model *m);
char *model_new_id(struct redis_model *m);
/* It may say something again. */
void model_resume(struct redis_client *client);

/* --- redis_model_replica.c --- */

unsigned model_replica_count(const struct redis_model *m, uint64_t offset); /* which have all up to there */
/* When the first that waits for replicas is answered all the same; INT64_MAX: never. */
int64_t model_replica_next(const struct redis_model *m);
/* Answers those that wait and have what they wait for, or do so for too long. */
void model_replica_work(struct redis_model *m);

/* The error for a write, or NULL if it is allowed. */
const char *model_write_refusal(const struct redis_model *m);
extern const char MODEL_OOM[], MODEL_MASTERDOWN[];

/* --- values, as commands see them --- */

/* The key's value, if it has not expired; answers WRONGTYPE and returns false if it is of another type (MODEL_ANY: none
 * is).
 */
bool model_look(struct model_call *call, const struct slice *key, enum model_type type, struct model_value **ret_value);
/* The same, to be changed. */
bool model_open(struct model_call *call, const struct slice *key, enum model_type type, struct model_value **ret_value);
/* The same, made if it is not there. */
bool model_make(struct model_call *call, const struct slice *key, enum model_type type, struct model_value **ret_value);
/* It was changed; what is empty now goes. */
void model_close(struct model_call *call, const struct slice *key);

/* --- replies --- */

void model_say(struct model_call *call, const char *line); /* "+OK" */
void model_say_error(struct model_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
void model_say_number(struct model_call *call, int64_t number);
void model_say_array(struct model_call *call, size_t count);
void model_say_bulk(struct model_call *call, const char *data, size_t length);
void model_say_text(struct model_call *call, const char *text);
void model_say_nil(struct model_call *call);
void model_say_score(struct model_call *call, double score);
void model_say_syntax(struct model_call *call);

/* --- redis_model_lua.c --- */

struct model_lua *model_lua_new(struct redis_model *m);
void model_lua_free(struct model_lua *lua);
/* Its hash, 40 digits, borrowed; NULL: says what is wrong with it. */
const char *model_lua_load(struct model_call *call, const struct slice *text);
bool model_lua_knows(const struct model_lua *lua, const struct slice *hash);
/* `words`: that many keys, and the arguments behind them. */
void model_lua_run(struct model_call *call, const char *hash, size_t keys, const struct slice *words, size_t count);

/* --- redis_model_pack.c --- */

struct lua_State;
int model_pack_open(struct lua_State *lua); /* leaves the library on the stack */

#endif
