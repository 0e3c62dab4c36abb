/* store: what a store of records does.  Everything else is the engine's.
 *
 * A value is a record (lockspace/record.h), or bytes that the store does not look into.  Each procedure is one atomic
 * step of the store, is answered from the loop exactly once, never inside the call, and STORE_UNKNOWN if the connection
 * drops: the store may carry it out later.  Pointers are valid during the call or the answer only.
 */
#ifndef BACKEND_RECORD_STORE_H
#define BACKEND_RECORD_STORE_H

#include "backend/lockspace/record.h"

enum store_space {
    STORE_LOCK,      /* to every other client of the store this is the lock */
    STORE_QUEUE,     /* of a lock that another client holds */
    STORE_DIRECTORY, /* "" is the root, which is there without a value */
    STORE_CONTENT,   /* of the ticket with that id, as long as its lock */
    STORE_MARKER     /* of the epoch; its first 8 bytes are the epoch's number */
};

struct store_key {
    enum store_space space;
    const char *name;
};

struct store_value {
    enum store_state { STORE_ABSENT, STORE_PRESENT, STORE_FOREIGN } state;
    GBytes *bytes;
    uint64_t stamp;
    clock_ms time; /* of the store when it stamped the value */
    clock_ms end;  /* RECORD_FOREVER: none; of a FOREIGN one CLOCK_NEVER if that is not known */
};

/* One key of a change.  The new end is the later one of `until` and the store's time + `term`.  The stamp is
 * max(the last of this key, also of a value that was removed or has ended; floor; us since 1970) + max(tokens, 1). That
 * holds after the clock has stepped back, too: a store that forgets what it removes keeps the highest stamp of all. */
struct store_put {
    struct store_key key;
    enum store_expect { STORE_IS_ABSENT, STORE_IS_THERE, STORE_IS_SAME, STORE_IS_FOREIGN, STORE_IS_ANY } expect;
    uint64_t stamp; /* of STORE_IS_SAME, with `end` */
    clock_ms end;
    enum store_action { STORE_KEEP, STORE_WRITE, STORE_REMOVE } action;
    GBytes *bytes;
    int64_t term;
    clock_ms until;
    uint32_t tokens;
    uint64_t floor;
    bool must_be_empty; /* no name in this directory has an end that is not past */
};

/* To another mount: what a change has written to its first key, with the bytes if they fit, and `text`.  It may be
 * lost. */
struct store_message {
    struct record_id to;
    GBytes *text;
};

enum { STORE_PUTS_MAX = 16 };

enum store_result {
    STORE_DONE,
    STORE_CHANGED,          /* a key is not as expected */
    STORE_NOT_EMPTY,        /* must_be_empty */
    STORE_AGAIN,            /* locked just now */
    STORE_EARLY,            /* the store's time is before not_before */
    STORE_OTHER_EPOCH,      /* the marker has another number than store->epoch, or is absent */
    STORE_OTHER_CONNECTION, /* the mount's heartbeat is absent or has another number than store->connection */
    STORE_FULL,
    STORE_REFUSED, /* a value of the wrong type, or an error of the store */
    STORE_UNKNOWN  /* no answer, or too few replicas have it */
};

struct store_answer {
    enum store_result result;
    clock_ms time;                  /* of the store; 0: not known */
    const struct store_value *keys; /* of swap, for each put: after it (DONE) or as it is now (CHANGED) */
};

/* All puts, or none.  The caller keeps it until `done`. */
struct store_change {
    struct store_put puts[STORE_PUTS_MAX];
    unsigned count;
    clock_ms not_before; /* the latest deadline of what is removed because of its deadline; 0: none */
    GArray *messages;    /* struct store_message */
    bool marker;         /* it is about the marker itself: the epoch does not matter */
    void (*done)(struct store_change *change, const struct store_answer *answer);
};

/* A value whose end moves to the store's time + term, if its stamp is this one.  The stamp stays. */
struct store_extension {
    struct store_key key;
    uint64_t stamp;
    int64_t term;
    enum store_result result; /* DONE, CHANGED, UNKNOWN */
    clock_ms end;             /* of DONE */
};

struct store_name {
    const char *leaf;
    bool directory;
    struct store_value value; /* of a lock, or without bytes: they did not fit */
};

struct store_mount {
    struct record_id mount;
    clock_ms heartbeat; /* the store's time of the last one */
    const char *text;
};

/* `connection` 0: this connection begins, and gets a number above every earlier one of the mount.  If it is not the
 * daemon's first (`again`), and the last one was another daemon's, the answer is OTHER_CONNECTION. */
struct store_heartbeat {
    uint64_t connection;
    bool again;
    uint64_t incarnation; /* of the daemon */
    int64_t term;         /* so long it is kept */
    const char *text;
    const char *generation; /* in an answer: another one if the store may have lost data */
};

struct store;

struct store_events {
    void (*up)(void *context); /* a new connection, which gets messages */
    void (*down)(void *context);
    void (*message)(void *context, const struct store_key *key, const struct store_value *value, GBytes *text);
    void (*changed)(void *context, const struct store_key *key); /* of `watch` */
};

struct store_operations {
    const char *name;
    enum backend_safety safety;
    void (*start)(struct store *, struct ev_loop *, const struct store_events *, void *context);
    void (*free)(struct store *); /* pending answers are not called */
    void (*heartbeat)(struct store *, const struct store_heartbeat *,
                      void (*done)(void *arg, const struct store_answer *, const struct store_heartbeat *), void *arg);
    void (*mounts)(struct store *,
                   void (*done)(void *arg, const struct store_answer *, const struct store_mount *, size_t), void *arg);
    /* `keys` of the answer are the values. */
    void (*read)(struct store *, const struct store_key *keys, size_t count,
                 void (*done)(void *arg, const struct store_answer *), void *arg);
    void (*swap)(struct store *, struct store_change *const *changes, size_t count);
    void (*extend)(struct store *, struct store_extension *extensions, size_t count, /* kept until `done` */
                   void (*done)(void *arg, const struct store_answer *), void *arg);
    /* Names after `after` in strcmp order whose end is not past; an empty answer: there are none. */
    void (*list)(struct store *, const char *directory, const char *after, size_t max,
                 void (*done)(void *arg, const struct store_answer *, const struct store_name *, size_t count),
                 void *arg);
    void (*send)(struct store *, struct record_id to, GBytes *text);
    void (*watch)(struct store *,
                  const struct store_key *); /* may be NULL: `changed` once, when a FOREIGN value may end */
    bool (*allows_name)(struct store *, const char *name);
    void (*status)(struct store *, struct backend_status *);
};

/* The head of a store. */
struct store {
    const struct store_operations *operations;
    struct record_id mount; /* these are the engine's; a request carries them as they are when it is sent */
    uint64_t connection, epoch;
};

#endif
