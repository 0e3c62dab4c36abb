/* private: what the files of the ZooKeeper backend share.
 *
 * From the top to the ground; none calls one above it.
 *
 * zookeeper.c  the backend: its beginning and end, status
 * check.c      what is asked of the servers before a mount
 * recover.c    the leases of a mount that starts again
 * revoke.c     ending holders by name
 * change.c     what is done to tickets
 * convert.c    what a node that holds excludes: conversions, byte ranges, and undoing a claim
 * acquire.c    taking: the nodes of tickets
 * turn.c       whose turn it is, and waiting for it
 * ask.c        questions: who holds, and what is in a directory
 * directory.c  directories
 * session.c    the session: connection, belief, heartbeat
 * watch.c      nodes of this mount, and names that others hold
 * state.c      the session in a file, for the next daemon
 * call.c       requests that go together, and are repeated when the connection was lost
 * node.c       names and data of nodes
 * uri.c        the address
 */
#ifndef BACKEND_ZOOKEEPER_PRIVATE_H
#define BACKEND_ZOOKEEPER_PRIVATE_H

#include <zookeeper/zookeeper.h>

#include "backend/remote/remote.h"
#include "backend/zookeeper/zookeeper.h"

#define ZOOKEEPER_TIMEOUT 5000      /* ms of a call, all tries */
#define ZOOKEEPER_HIDDEN ".leasefs" /* in the root: what mounts keep for themselves */
#define ZOOKEEPER_CONTENT_MAX 65536
#define ZOOKEEPER_META_MAX 4096

struct zookeeper {
    struct remote remote;
    /* the session */
    zhandle_t *handle;
    char *hosts;   /* numeric, as the library wants them */
    char *chroot;  /* "" or "/a/b" */
    char *digest;  /* or NULL */
    char *own;     /* the node that heartbeats write to */
    uint64_t base; /* see node_fence */
    bool kazoo, was_up;
    bool connected;      /* as its watcher has told */
    bool expired;        /* the same */
    bool ready;          /* and the session's own node is there: calls are sent */
    int64_t asked;       /* ms for a session */
    int64_t belief;      /* ms for which an acknowledged write is believed in */
    clock_ms acked;      /* before the last acknowledged write was sent */
    clock_ms beaten;     /* when the last heartbeat was sent */
    clock_ms changed;    /* when it came up or went down */
    int64_t server_time; /* the server's clock less ours, as of the last heartbeat */
    int64_t latency;     /* ms of that */
    int64_t zxid;
    uint64_t requests, reconnects;
    char *why;           /* it is away; or NULL */
    clock_ms complained; /* when the last refusal was logged */
    ev_prepare prepare;
    ev_io io;
    ev_timer timer, beat;
    ev_io alarm; /* a timerfd on CLOCK_BOOTTIME: belief ends */
    /* what is under way, and known */
    TAILQ_HEAD(, zk_call) calls;
    GHashTable *nodes;   /* token -> struct zk_node */
    GHashTable *watches; /* path -> GPtrArray of tokens */
    GHashTable *named;   /* name that is watched for the filesystem -> its link in */
    GQueue recent;       /* the same, the last looked up first */
    char *address;       /* to show */
    bool told_of_ranges;
    /* from one daemon to the next */
    struct journal *state; /* or NULL */
    char *identity;        /* of the mount, its ensemble and its chroot */
    clientid_t saved;      /* as it is noted; 0: none */
    bool resumes;          /* the session of the daemon before, of which not all is known yet */
};

/* --- call.c --- */

struct zk_call;
struct zk_node;
typedef void zk_step(struct zk_call *call);

/* A kind of flow: a struct of its own whose first member is a struct zk_call. */
struct zk_flow {
    size_t size;    /* of that struct */
    zk_step *begin; /* also where an answer was lost with the connection */
    void (*failed)(struct zk_call *call, enum remote_outcome outcome); /* its time is up; NULL: it has no request */
    zk_step *clear; /* frees its other members; NULL: it has none to free */
    bool urgent;    /* the session needs it to be there: it waits for the connection only */
    bool persists;  /* it goes on when its request was answered that the outcome is unknown */
};

/* OK: the node excludes all others now, to whoever looks at it.  BUSY: others share the lock.  STALE: it is gone. */
typedef void zk_raised(struct zk_call *call, enum backend_result result);

/* What one request was answered. */
struct zk_reply {
    struct zk_call *call;
    int rc;
    struct Stat stat;
    char *name;
    char **children;
    GBytes *data;
    zoo_op_t operations[4];
    zoo_op_result_t results[4];
    char buffer[8];
};

/* Steps of requests that are sent together.  When an answer is lost with the connection it begins anew. */
struct zk_call {
    TAILQ_ENTRY(zk_call) link;
    struct zookeeper *z;
    struct remote_op *op; /* NULL: nobody waits for it any more */
    const struct zk_flow *flow;
    zk_step *next;
    GPtrArray *replies; /* struct zk_reply, in the order of the requests */
    GPtrArray *before;  /* those of the step before */
    unsigned open;
    bool parked;   /* until the session is there, or another call has ended: call_may_write, zk_call.revokes */
    bool was_sent; /* some of it, in an earlier try */
    bool revokes;  /* what holds `path` */
    bool sending, lost, ended;
    clock_ms sent;
    ev_timer limit, soon;
    char *path;                 /* the node that it is about */
    enum backend_result result; /* what the request is answered when the last step is done */
    char *writes;               /* the ticket to whose node this call writes, and until it ends no other; or NULL */
    struct zk_node *draft;      /* what it writes there, which is not confirmed; or NULL */
};

/* A struct of flow->size bytes, all 0 but its struct zk_call. */
void *call_new(struct zookeeper *z, const struct zk_flow *flow, struct remote_op *op);
/* Begins it, now or when the session is there.  `timeout` 0: ZOOKEEPER_TIMEOUT. */
void call_start(struct zk_call *call, int64_t timeout);
/* No step is called any more; it is freed when nothing of it is under way. */
void call_end(struct zk_call *call);
void call_resume_all(struct zookeeper *z);
/* At the end: nobody is told. */
void call_end_all(struct zookeeper *z);

/* Requests; the answers are those of the next step. */
void call_create(struct zk_call *call, const char *path, GBytes *data, int mode);
void call_delete(struct zk_call *call, const char *path, int version);
void call_set(struct zk_call *call, const char *path, GBytes *data, int version);
void call_get(struct zk_call *call, const char *path);
/* The same, and if it is there a change of it is told, once, to the ticket (see node_note_watch; NULL: to none).  To
 * ask whether it exists would watch a node that has gone for good: no node of a queue is made twice. */
void call_watch(struct zk_call *call, const char *path, const char *token);
void call_exists(struct zk_call *call, const char *path);
/* `watch`: a change is told, once. */
void call_children(struct zk_call *call, const char *path, bool watch);
void call_sync(struct zk_call *call, const char *path);
/* A node that says `data`, in place of one of version `replace` (-1: of none), in one step.  Its version is another
 * than that, and not 0: who has looked at the one before does not take it for that. */
void call_make(struct zk_call *call, const char *path, GBytes *data, int replace);
/* In one step the node is removed, and its lock says that it was lost, which counts for `delay`, or given back: 0. */
void call_end_hold(struct zk_call *call, const char *path, const char *lock, int64_t delay);
/* In one step the node is removed, and there is a guard for it. */
void call_guard(struct zk_call *call, const char *path, const char *guard, GBytes *data);
/* In one step `from` is removed, and `to` says `data`; of a lock-delay nothing is left behind. */
void call_move(struct zk_call *call, const struct zk_node *from, const struct zk_node *to, GBytes *data);
/* Where there is a lock-delay, the node's lock says that it holds, if the node is there; */
void call_mark(struct zk_call *call, struct zk_node *node);
/* and when the node is removed, in the same step, that it was lost or given back. */
void call_leave(struct zk_call *call, const struct zk_node *node, bool lost);
/* Nothing is sent; this is done so many ms from now. */
void call_wait(struct zk_call *call, int64_t ms, zk_step *next);
/* They are sent, and this is done when all are answered. */
void call_then(struct zk_call *call, zk_step *next);
/* Whether it may write to the node of that ticket, from now until it ends.  False: another call does; it is parked, and
 * begins anew when that has ended. */
bool call_may_write(struct zk_call *call, const char *token);
bool call_is_written(const struct zookeeper *z, const char *token);
/* Begins a draft: a copy of the node that it may write to, which is to be changed and sent with call_write. */
struct zk_node *call_draft(struct zk_call *call);
/* The first request of its step. */
void call_write(struct zk_call *call);
/* What the answer to that means; where it is OK, the node is noted as it was written. */
enum backend_result call_written(struct zk_call *call);
/* Answers the request of remote.h that it carries out, and ends. */
void call_answer(struct zk_call *call, enum backend_result result);
/* The same from the loop: nothing has to be asked. */
void call_settle(struct zk_call *call, enum backend_result result);
const struct zk_reply *call_reply(const struct zk_call *call, guint index);
/* What an error means to a user; logs those that are worth it. */
enum backend_result call_result(struct zk_call *call, int rc);

/* What remote.h asks for a ticket. */
struct zk_change {
    struct zk_call call;
    char *token;         /* the ticket's id; of a range that is released NULL while no node has it */
    char *lock;          /* its name, where the ticket is not known */
    uint64_t lock_owner; /* of the claim; or 0 */
    bool sequence;       /* it is a ticket of a directory's queue */
    bool against_will;   /* of a release: its holder did not ask for it */
    /* acquiring */
    GPtrArray *before;                     /* leaves of the nodes before its own that may exclude it, in order */
    uint32_t width;                        /* of the directory whose queue it is in */
    clock_ms delayed_since, delayed_until; /* the lock-delay that it was refused for */
    bool keeps_ticket; /* its node is removed only when the one before it is surely there: see turn_refuse */
    GPtrArray *made;   /* paths of the nodes that earlier tries made, which acquire_remove removes */
    /* converting */
    GPtrArray *queue;  /* leaves of the lock's nodes */
    int64_t raised_at; /* the transaction since which the node wants to exclude all others */
    zk_raised *raised; /* follows convert_raise */
    zk_step *then;     /* follows acquire_remove or convert_undoes */
};

static inline struct zk_change *zk_change_of(const struct zk_call *call)
{
    return (struct zk_change *)call;
}

/* --- node.c --- */

/* The node of a ticket of this mount. */
struct zk_node {
    char *path;
    const char *leaf; /* in it */
    int32_t sequence;
    uint64_t fence;
    uint8_t kind, mode; /* as the store has confirmed, with these: */
    bool automatic;
    int64_t ttl;
    GBytes *meta, *content;
    char *place;         /* the name of the lock */
    uint64_t handle;     /* or 0 */
    uint64_t lock_owner; /* the same */
    int64_t delay;       /* lock-delay of its directory */
    bool marked;         /* its lock has said that it holds */
    clock_ms delayed;    /* while that of another runs: its end; else 0 */
    bool leaves;         /* a rename or a revocation is under way, which removes it */
    bool again;          /* what it waits for has changed since it was looked at */
    bool raises;         /* of a draft: it is shared, and wants to be exclusive */
    bool unsure;         /* what was written to it last is not confirmed: it may say that instead */
    bool lax;            /* it was written as shared since it was known to exclude all others: some may share it now */
    int32_t version;     /* of its data when they were last seen to say this */
};

/* What is read of a node. */
struct zk_data {
    bool ours;      /* else the rest is not known */
    bool directory; /* then: */
    struct backend_directory attributes;
    uint64_t nonce; /* of whoever made it */
    char held[256]; /* of a lock: the node that holds it, or "-"; "": it has never had a lock-delay */
    int64_t bound;  /* if that is gone, it was lost this long after this was written, at the latest, */
    int64_t delay;  /* and this is the lock-delay from then on */
    enum backend_kind kind;
    enum backend_mode mode;
    bool raises;                 /* it is shared, and wants to be exclusive: nobody is to join it */
    int64_t ttl;                 /* from when the node was written or, */
    bool automatic;              /* where it is renewed with the session, from now */
    uint64_t handle, lock_owner; /* of its mount; or 0 */
    uint64_t guards;             /* the fencing token of whom it is a guard for; 0: it is none */
    int64_t granted;             /* of a guard: when that was granted, by the server's clock */
    bool broken;                 /* the same: it was, else it was released by its token */
    char token[REMOTE_TOKEN_SIZE];
    GBytes *meta, *content;
};

char *node_path(const struct zookeeper *z, const char *name);
char *node_child(const char *path, const char *leaf);
/* Where a ticket's node is made: the server adds the number. */
char *node_prefix(const struct zookeeper *z, const struct remote_ticket *t);
/* The fencing token of a ticket: the transaction that made its node, counted from a base that the hidden node keeps
 * since it was made.  That is the microsecond of the wall clock then, so that a move from another store does not go
 * back; less the transaction that made it, or those before, and a change of leader skips 2^32, would lead the clock.
 * Where an older version has made the hidden node the base is 0 for ever.  A guard's is that of whom it is a guard for;
 * `data` NULL: the node is none. */
uint64_t node_fence(const struct zookeeper *z, const struct zk_data *data, const struct Stat *stat);
/* What the hidden node says if it is made now; and the base, by what it says. */
GBytes *node_encode_base(void);
uint64_t node_base(GBytes *data, const struct Stat *stat);
/* Whether a name can be that of a lock or a directory. */
bool node_is_name(const char *name);
/* Whether what has this name in the root is none. */
bool node_is_hidden(const struct zookeeper *z, const char *leaf);
/* Whether the server has numbered it, and how. */
bool node_number(const char *leaf, int32_t *ret_number);
/* Whether this is the node of that ticket in a lock. */
bool node_is_of(const char *leaf, const char *token);
/* The numbered of them in order: new, of borrowed strings. */
GPtrArray *node_queue(char *const *children);
/* The same as paths; what it was before is freed. */
void node_take_queue(GPtrArray **paths, const char *path, char *const *children);
GBytes *node_encode(const struct zk_node *node, const char *token);
/* Of a guard, whose session is this mount's, for what is known of a holder: it is there for so many ms. */
GBytes *node_encode_guard(const struct zookeeper *z, const struct zk_data *data, const struct Stat *stat, bool broken,
                          int64_t left);
/* Where that is made: in place of the holder's node, by another name unless that is a ticket's file. */
char *node_guard_path(const struct zookeeper *z, const char *path, bool sequence);
GBytes *node_encode_directory(const struct backend_directory *directory, uint64_t nonce);
/* What a lock says of its holder, so that whoever comes next knows of the lock-delay if that is lost.  `leaf` NULL: it
 * is lost now. */
GBytes *node_encode_mark(const char *leaf, int64_t bound, int64_t delay);
/* When the lock-delay ends that runs now, by the lock's data and children; 0: none does. */
clock_ms node_delay(const struct zookeeper *z, GBytes *data, const struct Stat *stat, char *const *children);
/* The lock-delay that a directory's data say. */
int64_t node_delay_of(GBytes *directory);
/* Of the nodes of a queue, as they were read in order, those that hold: which none before them excludes; new, a bool
 * for each. */
GArray *node_holders(const GPtrArray *replies);
/* Clear with node_data_clear. */
void node_decode(GBytes *bytes, struct zk_data *data);
void node_data_clear(struct zk_data *data);
struct zk_node *node_of(struct zookeeper *z, const char *token);
/* The ticket of a user of this mount whose node that is, or NULL: what others write into theirs is not believed. */
struct remote_ticket *node_ticket(struct zookeeper *z, const struct zk_data *data, const struct Stat *stat);
/* Whether that is the node of the ticket, or of one of this mount that it does not exclude. */
bool node_is_kin(struct zookeeper *z, const struct remote_ticket *t, const char *leaf);
struct zk_node *node_note(struct zookeeper *z, const struct remote_ticket *t, const char *path, uint64_t fence);
void node_free(gpointer node);
/* A copy of what it says, which belongs to no ticket; and what it says is from now on this. */
struct zk_node *node_copy(const struct zk_node *node);
void node_accept(struct zk_node *node, const struct zk_node *draft);
/* It is the other one from now on. */
void node_move(struct zk_node *node, const struct zk_node *to);
void node_change(struct zk_node *node, const struct backend_change *change);
/* The ticket wants to hear of a change of that node, which a request watches; "": watch_directory does. */
void node_note_watch(struct zookeeper *z, const char *path, const char *token);

/* --- watch.c --- */

/* The ticket wants to hear of the end of its own node. */
void watch_node(struct zookeeper *z, const char *path, const char *token);
/* That has gone, and not by this mount. */
void watch_node_gone(struct zookeeper *z, const char *token);
/* What is held in it is to heed its lock-delay as it is now, who waits in its queue its width. */
void watch_directory(struct zookeeper *z, const char *path);
void zk_watch(struct backend *b, const char *name);
/* Something at that path has. */
void watch_changed(struct zookeeper *z, const char *path);
/* What has changed meanwhile was not told. */
void watch_look_all(struct zookeeper *z);

/* --- state.c --- */

/* What the last daemon has noted there, and a place to note.  `directory` NULL: nothing is kept. */
void state_open(struct zookeeper *z, const char *directory);
/* NULL: it was closed. */
void state_keep(struct zookeeper *z, const clientid_t *id);

/* --- session.c --- */

int session_init(struct zookeeper *z);
void session_start(struct zookeeper *z);
/* `keep`: the servers are to find out by themselves that it is over. */
void session_close(struct zookeeper *z, bool keep);
/* It ends by itself; a new one is made. */
void session_abandon(struct zookeeper *z, const char *why);
void session_beat(struct zookeeper *z);
bool session_is_up(struct remote *r);
void session_on_log(const char *message);

/* --- check.c --- */

/* 0, or -errno with one line in `error`.  It blocks, for ten seconds at most. */
int check_servers(const struct zookeeper *z, char *error, size_t error_size);

/* --- directory.c --- */

void zk_mkdir(struct backend *b, const char *name, const struct backend_directory *directory, backend_done *done,
              void *arg);
void zk_rmdir(struct backend *b, const char *name, backend_done *done, void *arg);
void zk_set_directory(struct backend *b, const char *name, const struct backend_directory *directory,
                      backend_done *done, void *arg);

/* --- ask.c --- */

void zk_stat(struct backend *b, const char *name, backend_info_done *done, void *arg);
void zk_test(struct backend *b, const char *name, const struct backend_claim *claim, backend_info_done *done,
             void *arg);
void zk_list(struct backend *b, const char *directory, const char *after, size_t max, backend_list_done *done,
             void *arg);
/* One ticket, of what is read of its node; `info` borrows of `data`. */
void ask_describe(struct zookeeper *z, const struct zk_data *data, const struct Stat *stat, struct backend_info *info);

/* --- turn.c: steps of a call that acquires --- */

/* What it asks for. */
struct remote_ticket *turn_ticket(const struct zk_call *call);
void turn_answer(struct zk_call *call, struct remote_answer *answer);
void turn_tell(struct zk_call *call, enum backend_result result);
/* That one's node does for what it asks for too; `spare` is removed. */
void turn_join(struct zk_call *call, const struct remote_ticket *was, const struct zk_node *spare);
/* What its lock owner has then. */
enum backend_mode turn_joined_mode(const struct remote_ticket *t, const struct remote_ticket *was);
/* Its node is there: looks at what stands before it, */
void turn_look(struct zk_call *call);
/* or has looked in the flush that made it: at the lock's children, the lock, and the directory of that. */
void turn_judge(struct zk_call *call, const struct zk_reply *list, const struct zk_reply *get,
                const struct zk_reply *directory);
/* It was made where no ticket of its sort belongs: it is removed. */
bool turn_is_misplaced(struct zk_call *call, const struct zk_reply *get);
/* It has been, and call->max is told. */
void turn_on_undone(struct zk_call *call);
/* The lock is a ticket of a queue, which is always held. */
void turn_busy_with_ticket(struct zk_call *call);
void turn_get_directory(struct zk_call *call);

/* --- acquire.c --- */

struct backend_ticket *zk_acquire(struct backend *b, const char *name, const struct backend_claim *claim,
                                  backend_acquire_done *done, void *arg);
void acquire_begin(struct zk_call *call);
/* Nodes in the place at `path` that say the token `name` are removed; `flag`: it is a sequence. */
void acquire_remove(struct zk_call *call, zk_step *next);

/* --- change.c --- */

/* As struct remote_store says. */
uint64_t change_call(struct remote_op *op, struct remote_ticket *t, int64_t timeout);
void change_forget(struct remote *r, uint64_t request);
void zk_rename(struct backend *b, struct backend_ticket *ticket, const char *name, struct backend_ticket *replaced,
               backend_done *done, void *arg);

/* --- convert.c --- */

void convert_begin(struct zk_call *call);
void convert_release_range(struct zk_call *call);
/* A claim that is released may have changed the node with which its lock owner holds: that says again what it is
 * believed to.  `next` follows; call->max is OK, BUSY if others share the lock by now, or STALE if it is gone.  False:
 * it is not so. */
bool convert_undoes(struct zk_call *call, zk_step *next);
/* A revocation of the lock is under way: what was asked for after it is done after it. */
bool convert_is_put_off(struct zk_call *call);

/* --- revoke.c --- */

void zk_revoke(struct backend *b, const char *name, uint64_t fence, const struct backend_match *match,
               backend_done *done, void *arg);

/* Ends a guard of this mount's session in so many ms; `delay`: the lock-delay of its directory. */
void revoke_end_guard_in(struct zookeeper *z, const char *path, int64_t left, int64_t delay, bool broken);

/* --- recover.c --- */

void zk_recover(struct backend *b, backend_recover_each *found, void *arg);

#endif
