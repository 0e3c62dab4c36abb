/* epoch: which version of its data a store has, and the grace period after the store has lost some.
 *
 * A store's data have an epoch.  A marker in the store holds its stamp, a random text.  Every request that changes a
 * lock carries the stamp that its mount knows, and the store refuses the request if the marker has another.  A server
 * that restarts without all of its data, is flushed, or gives way to a replica has no marker, or an old one.  The first
 * mount that notices closes the store: the grace period begins.  While it lasts, the store grants nothing new, and
 * every mount restores what it holds, under the old ticket ids and fencing tokens.  A mount that has known the store to
 * be closed for as long as the longest renewable term opens it: by then the term of every holder that was cut off has
 * run out.  A mount measures that time with its own clock, from the answer that said closed.  So steps of the server's
 * clock do not matter.
 *
 * If k replicas must confirm each write, and k is half of the data nodes, rounded down, a mount measures from when k
 * replicas had confirmed the marker of the closed store.  As many nodes had confirmed every term that an older master
 * granted, so one node had confirmed both.  That node had the term before it followed the new master.  So the term
 * began before the mount began to measure.
 * The new master may not have heard of the term, so it must not be longer than what each mount reports of itself:
 * own_term, which is the mount's ttl=.
 *
 * The store decides all this in one atomic step, which reads the marker and may write it: see struct epoch_store.
 * backend/redis/script/enter.lua is one.
 */
#pragma once

#include "backend/remote/remote.h"

#define EPOCH_STAMP_SIZE 32     /* bytes of a stamp, with its NUL */
#define EPOCH_TERM_KEPT 60000   /* ms: the store counts a reported term so long beyond its end */
#define EPOCH_GRACE_MAX 3600000 /* ms: the default of the longest grace period */

enum epoch_state {
    EPOCH_FRESH, /* no mount knew an earlier epoch */
    EPOCH_CLOSED,
    EPOCH_OPEN /* again */
};

/* What the mount tells the store with each look at the marker.  Times are in milliseconds. */
struct epoch_report {
    const char *stamp;            /* the epoch that the mount knows; "": none */
    char fresh[EPOCH_STAMP_SIZE]; /* for a new epoch, if one must begin */
    int64_t term;                 /* the longest renewable term of a ticket of this mount */
    int64_t others;               /* the same of the other mounts, as the last marker said */
    int64_t reports;              /* as the last marker said */
    int64_t grace_max;            /* the longest grace period */
    int64_t closed_for;           /* so long this mount has known that the store is closed */
    bool restored;                /* the store has all that this mount holds */
    bool strict;                  /* option grace=strict */
};

/* What the marker says. */
struct epoch_marker {
    const char *stamp; /* shorter than EPOCH_STAMP_SIZE */
    enum epoch_state state;
    int64_t longest; /* while closed: the longest term of a ticket that may still have to be restored */
    int64_t others;  /* the longest renewable term of the other mounts */
    int64_t reports; /* so many terms were reported that were longer than their mount's before: a server with fewer than
                        a mount knows has lost data */
    bool lost_data;  /* the store is closed because it lost data, as far as any mount knows */
};

/* What a store supplies. */
struct epoch_store {
    /* Sends epoch_report and reads the marker.  The answer goes to epoch_on_marker or to epoch_on_failure.  The
     * store carries out later requests after it. */
    void (*ask)(struct remote *r);
    /* From now on requests carry this stamp.  `changed`: it is another than before. */
    void (*set_stamp)(struct remote *r, const char *stamp, bool changed);
};

struct epoch {
    struct remote *remote;
    const struct epoch_store *store;
    const char *address; /* for messages; the store's */
    char stamp[EPOCH_STAMP_SIZE];
    enum epoch_state state;
    bool changed;    /* the store's data are another epoch's than before, and nothing is restored yet */
    int64_t longest; /* see struct epoch_marker */
    int64_t others, reports;
    bool lost_data;
    int64_t own_term;    /* the term that the mount reports even if it has no ticket */
    int64_t term;        /* as this mount has reported it */
    clock_ms term_until; /* until then the store counts it */
    int64_t grace_max;
    bool strict;
    bool announced;         /* the log says that the store is closed */
    bool reported_restored; /* the store knows that it has all that this mount holds */
    GHashTable *missing;    /* ids of tickets that must be restored before that */
    clock_ms closed_since; /* since then this mount knows that it is closed, and will be after a failover; 0: not yet */
    ev_timer ask_timer, lower_timer;
    uint64_t restored, lost; /* tickets, for the status */
};

/* `own_term` and `grace_max` in ms.  `store` and `address` must outlive it. */
void epoch_init(struct epoch *e, struct remote *r, const struct epoch_store *store, const char *address,
                int64_t own_term, int64_t grace_max, bool strict);
void epoch_clear(struct epoch *e);

static inline bool epoch_is_closed(const struct epoch *e)
{
    return e->state == EPOCH_CLOSED;
}

/* A connection is new: all terms are reported on it. */
void epoch_on_connect(struct epoch *e);
/* Fills the next report, which the caller sends. */
void epoch_report(struct epoch *e, struct epoch_report *ret);
/* The marker was read before the connection was up.  `confirmed`: so many replicas as are asked for have it. */
void epoch_set_marker(struct epoch *e, const struct epoch_marker *marker, bool confirmed);
/* The connection is up: restores the directories of what this mount holds, if the epoch is another.  The tickets follow
 * with remote_on_up. */
void epoch_restore(struct epoch *e);

/* Looks at the marker, when it may have changed. */
void epoch_ask(struct epoch *e);
void epoch_on_marker(struct epoch *e, const struct epoch_marker *marker);
/* `unknown`: the store may have written the marker. */
void epoch_on_failure(struct epoch *e, bool unknown);

/* A request is about to be sent.  Reports the term that it asks for first, if that is longer than what the store knows;
 * lowers the report soon if the longest is given back.  `t`: its ticket, or NULL. */
void epoch_before_request(struct epoch *e, const struct remote_request *request, const struct remote_ticket *t);
/* A ticket with that renewable term was found. */
void epoch_use_term(struct epoch *e, int64_t term);
/* The store holds the ticket; `restored`: it had lost it. */
void epoch_on_confirmed(struct epoch *e, const char *ticket_id, bool restored);
/* The store does not have the ticket. */
void epoch_on_missing(struct epoch *e);

/* Fills `grace`, and appends lines. */
void epoch_fill_status(const struct epoch *e, struct backend_status *status);
