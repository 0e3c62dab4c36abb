/* private: shared by the files of the ZooKeeper backend.
 *
 * No file calls one above it:
 *
 * zookeeper.c      opens and closes the backend; its status
 * check.c          tries the servers before a mount
 * resume.c         restores the leases of a mount that starts again
 * revoke.c         ends holders by name
 * update.c         sets, renews, renames and releases tickets
 * convert.c        conversions, the release of byte ranges, and undoing a claim
 * create.c         takes a lock: creates the ticket's node
 * rank.c           grants, queues or refuses a ticket by the nodes before its own
 * query.c          the holder of a name, the names in a directory, and the mounts
 * directory.c      makes, removes and changes directories
 * session.c        the session: connection, validity, heartbeat
 * watch.c          watches nodes of this mount, and names that others hold
 * servers.c        the addresses of the servers
 * saved_session.c  the session in a file, for the next daemon
 * batch.c          requests sent together, repeated when the connection was lost
 * node.c           names and data of nodes
 * uri.c            parses the address
 */
#ifndef BACKEND_ZOOKEEPER_PRIVATE_H
#define BACKEND_ZOOKEEPER_PRIVATE_H

#include <zookeeper/zookeeper.h>

#include "backend/remote/remote.h"
#include "backend/remote/resolve.h"
#include "backend/zookeeper/zookeeper.h"

#define ZOOKEEPER_TIMEOUT 5000      /* ms for a flow, all its tries */
#define ZOOKEEPER_MARGIN 1000       /* ms: for half of a server's tick, and for the time of a report */
#define ZOOKEEPER_HIDDEN ".leasefs" /* in the root: nodes that mounts keep for themselves */
#define ZOOKEEPER_FORMAT 1          /* see backend/format.h */
#define ZOOKEEPER_CONTENT_MAX 65536
#define ZOOKEEPER_META_MAX 4096

/* One HOST:PORT of the URI. */
struct zk_server {
    struct zookeeper *z;
    char *host;
    uint16_t port;
    bool numeric;    /* it needs no look-up */
    char *addresses; /* as the library wants them; NULL: none is known */
    struct remote_resolve *resolve;
};

struct zookeeper {
    struct remote remote;
    /* the session */
    zhandle_t *handle;
    char *hosts; /* the addresses of all servers, as the library wants them; NULL: none is known */
    struct zk_server *servers;
    guint server_count;
    clock_ms looked_up; /* when the last look-up of their names began */
    char *chroot;       /* "" or "/a/b" */
    char *digest;       /* or NULL */
    char *own;          /* the node that heartbeats write to */
    GBytes *about;      /* its data: see node_encode_session */
    uint64_t base;      /* see node_fence */
    bool kazoo, was_up;
    bool connected;          /* as the library last reported */
    clock_ms answered;       /* when the last answer came */
    bool silent;             /* a flow had no answer for ZOOKEEPER_TIMEOUT, and none has come since */
    bool expired;            /* the same */
    bool ready;              /* connected, and the session's own node is there: batches are sent */
    int64_t session_timeout; /* to request, ms */
    int64_t validity;        /* ms for which an acknowledged write proves that the session is alive */
    clock_ms acknowledged;   /* when the last acknowledged write was sent */
    clock_ms heartbeat_sent;
    clock_ms changed;    /* when the session came up or went down */
    int64_t server_time; /* the server's clock less ours, as of the last heartbeat */
    int64_t latency;     /* ms of the last heartbeat */
    int64_t zxid;
    uint64_t requests, reconnects;
    char *why;           /* the session is down; NULL: it is up */
    clock_ms complained; /* when the last refusal was logged */
    ev_prepare prepare;
    ev_io io;
    ev_timer timer, heartbeat;
    ev_io alarm; /* a timerfd on CLOCK_BOOTTIME: the end of `validity` */
    /* pending requests, and known nodes */
    TAILQ_HEAD(, zk_batch) batches;
    GHashTable *nodes;   /* ticket id -> struct zk_node */
    GHashTable *watches; /* path -> GPtrArray of ticket ids; see node_add_watch */
    char *address;       /* to show */
    /* from one daemon to the next */
    struct journal *state; /* or NULL */
    char *identity;        /* of the mount, its ensemble and its chroot */
    clientid_t saved;      /* the session in `state`; 0: none */
    bool resumes;          /* the session is the last daemon's, and its leases are not all restored yet */
};

/* --- batch.c --- */

struct zk_batch;
struct zk_node;
typedef void zk_step(struct zk_batch *batch);

/* A kind of flow: requests in several steps.  Each kind has a struct of its own, whose first member is a struct
 * zk_batch. */
struct zk_flow {
    size_t size;    /* of that struct */
    zk_step *begin; /* the first step; also called again when an answer was lost with the connection */
    void (*failed)(struct zk_batch *batch, enum remote_outcome outcome); /* after the timeout; or NULL */
    zk_step *clear; /* frees the other members; NULL: there are none to free */
    bool urgent;    /* needs only the connection, because it makes the session ready */
    bool persists;  /* goes on after `failed` */
};

/* OK: the node now excludes all others, and everybody sees it.  BUSY: others share the lock.  STALE: the node is gone.
 */
typedef void zk_raised(struct zk_batch *batch, enum backend_result result);

/* The answer to one request. */
struct zk_reply {
    struct zk_batch *batch;
    int rc;
    struct Stat stat;
    char *name;
    char **children;
    GBytes *data;
    zoo_op_t operations[4];
    zoo_op_result_t results[4];
    char buffer[8];
};

/* The requests of one step of a flow.  When an answer is lost with the connection the flow begins again. */
struct zk_batch {
    TAILQ_ENTRY(zk_batch) link;
    struct zookeeper *z;
    struct remote_request *request; /* NULL: no request waits for this flow */
    const struct zk_flow *flow;
    zk_step *next;
    GPtrArray *replies; /* struct zk_reply, in the order of the requests */
    GPtrArray *before;  /* those of the step before */
    unsigned open;      /* requests without an answer */
    bool parked;        /* until the session is ready, or another flow has ended: batch_begin_write, revokes */
    bool was_sent;      /* some of its requests were sent in an earlier try */
    bool revokes;       /* ends the holders of the lock at `path`: changes of that lock wait */
    bool sending, lost, ended;
    clock_ms begun; /* its first try */
    clock_ms sent;  /* the requests of this step */
    ev_timer limit, soon;
    char *path;                 /* the node that it is about */
    enum backend_result result; /* the answer to `op` when the last step is done */
    char *writes;               /* the ticket to whose node this flow, and no other, writes until it ends; or NULL */
    struct zk_node *draft;      /* the node as this flow writes it, not confirmed yet; or NULL */
};

/* Allocates flow->size bytes, all 0 but the struct zk_batch. */
void *batch_new(struct zookeeper *z, const struct zk_flow *flow, struct remote_request *request);
/* Begins the flow, now or when the session is ready.  `timeout`: ms for all tries; 0: ZOOKEEPER_TIMEOUT,
 * or, while the servers are silent, REMOTE_TIMEOUT_AWAY. */
void batch_start(struct zk_batch *batch, int64_t timeout);
/* Calls no further step, and frees the flow once no request is open. */
void batch_end(struct zk_batch *batch);
void batch_resume_all(struct zookeeper *z);
/* At the end of the backend: calls no step and no completion. */
void batch_end_all(struct zookeeper *z);

/* Requests.  The next step finds their answers with batch_reply, in this order. */
void batch_create(struct zk_batch *batch, const char *path, GBytes *data, int mode);
void batch_delete(struct zk_batch *batch, const char *path, int version);
void batch_set(struct zk_batch *batch, const char *path, GBytes *data, int version);
void batch_get(struct zk_batch *batch, const char *path);
/* Gets the node, and watches it once for the ticket (see node_add_watch; NULL: for none) if it exists.  Unlike
 * exists(), this never watches a node that is gone for good: no node of a queue is made twice. */
void batch_watch(struct zk_batch *batch, const char *path, const char *id);
void batch_exists(struct zk_batch *batch, const char *path);
/* `watch`: reports a change of the children, once. */
void batch_children(struct zk_batch *batch, const char *path, bool watch);
void batch_sync(struct zk_batch *batch, const char *path);
/* In one step, makes a node with `data` in place of the one of version `replace` (-1: of none).  The new version
 * differs from `replace` and from 0, so it cannot be mistaken for the old node. */
void batch_replace(struct zk_batch *batch, const char *path, GBytes *data, int replace);
/* In one step, removes the node and records in its lock that the holder was lost, with a lock-delay of `delay` ms; 0:
 * that it released the lock. */
void batch_end_hold(struct zk_batch *batch, const char *path, const char *lock, int64_t delay);
/* In one step, removes the node and makes a guard for it. */
void batch_guard(struct zk_batch *batch, const char *path, const char *guard, GBytes *data);
/* In one step, removes `from` and writes `data` to `to`.  Leaves no lock-delay behind. */
void batch_move(struct zk_batch *batch, const struct zk_node *from, const struct zk_node *to, GBytes *data);
/* Notes in the node's lock that it is held, if its directory has a lock-delay and the node exists. */
void batch_mark_held(struct zk_batch *batch, struct zk_node *node);
/* Removes the node; where it was marked, notes in the same step whether it was lost or released. */
void batch_remove_node(struct zk_batch *batch, const struct zk_node *node, bool lost);
/* Sends nothing; calls `next` after `ms`. */
void batch_wait(struct zk_batch *batch, int64_t ms, zk_step *next);
/* Calls `next` when all requests of this step are answered. */
void batch_then(struct zk_batch *batch, zk_step *next);
/* Reserves the node of that ticket for this flow's writes until it ends.  False: another flow has it; this one is
 * parked, and begins again when that has ended. */
bool batch_begin_write(struct zk_batch *batch, const char *id);
/* The flow that has reserved it, or NULL. */
const struct zk_batch *batch_find_writer(const struct zookeeper *z, const char *id);
/* Begins a draft: a copy of the reserved node, to be changed and sent with batch_send_draft. */
struct zk_node *batch_begin_draft(struct zk_batch *batch);
/* Must be the first request of its step. */
void batch_send_draft(struct zk_batch *batch);
/* The result of batch_send_draft; OK: the node now has the draft's data. */
enum backend_result batch_confirm_write(struct zk_batch *batch);
/* Answers `op`, and ends the flow. */
void batch_finish(struct zk_batch *batch, enum backend_result result);
/* The same, from the loop, for a step that has no request to send. */
void batch_finish_soon(struct zk_batch *batch, enum backend_result result);
const struct zk_reply *batch_reply(const struct zk_batch *batch, guint index);
/* The result for a code of the library; logs those that an operator must see, once a second. */
enum backend_result batch_result(struct zk_batch *batch, int rc);

/* The flow of a request of remote.h about a ticket. */
struct zk_update {
    struct zk_batch batch;
    char *id;            /* the ticket's id; NULL: the release of a range, while no node has it */
    char *lock;          /* the lock's name, if the ticket is not known */
    uint64_t lock_owner; /* of the claim; or 0 */
    bool sequence;       /* a ticket of a directory's queue */
    bool against_will;   /* of a release: the holder did not ask for it */
    /* acquiring */
    int64_t blocker_written;               /* the transaction that wrote the blocker as it was read; 0: not read */
    GPtrArray *before;                     /* leaves of the nodes before its own that may conflict, in order */
    uint32_t width;                        /* of the directory whose queue it is in */
    clock_ms delayed_since, delayed_until; /* the lock-delay that it was refused for */
    bool keeps_ticket;                     /* removes its node only after it has found a holder: see rank_refuse */
    GPtrArray *earlier;                    /* paths of the nodes that earlier tries made; create_remove_earlier */
    /* converting */
    GPtrArray *queue;  /* leaves of the lock's nodes */
    int64_t raised_at; /* the transaction that wrote to the node that it wants to exclude all others */
    zk_raised *raised; /* follows convert_raise */
    zk_step *then;     /* follows create_remove_earlier or convert_undo */
};

static inline struct zk_update *zk_update_of(const struct zk_batch *batch)
{
    return (struct zk_update *)batch;
}

/* --- node.c --- */

/* The node of a ticket of this mount. */
struct zk_node {
    char *path;
    const char *leaf; /* in `path` */
    int32_t sequence;
    uint64_t fence;
    uint8_t kind, mode; /* these and the next as the store has confirmed them */
    bool automatic;     /* renewed with the session */
    int64_t ttl;
    GBytes *meta, *content;
    char *lock;           /* the lock's name */
    uint64_t handle;      /* or 0 */
    uint64_t lock_owner;  /* or 0 */
    int64_t delay;        /* lock-delay of its directory */
    bool marked;          /* the lock's node has the mark that it holds */
    clock_ms delayed;     /* the end of the lock-delay that it waits for; else 0 */
    bool removing;        /* a rename or a revocation of this mount is about to remove it */
    bool blocker_changed; /* since its queue was last read */
    bool upgrading;       /* of a draft: it is shared, and wants to be exclusive */
    bool unconfirmed;     /* the last write has no answer yet: the store may have that instead */
    bool may_be_shared;   /* it was written as shared since it last excluded all others: others may share the lock */
    int32_t version;      /* of its data when the store last confirmed them */
};

/* The data of a node, as read. */
struct zk_data {
    bool ours;      /* written by leasefs; else nothing below is known */
    bool directory; /* of a directory: attributes and nonce */
    struct backend_directory attributes;
    uint64_t nonce;     /* names the mkdir that made it */
    char *further;      /* fields that a newer leasefs has added to its attributes; or NULL */
    char held[256];     /* of a lock: the node that holds it, or "-"; "": it has never had a lock-delay */
    int64_t lost_after; /* if that node is gone: it was lost at most so many ms after these data were written */
    int64_t delay;      /* the lock-delay, which runs from the loss on */
    enum backend_kind kind;
    enum backend_mode mode;
    bool upgrading;              /* it is shared, and wants to be exclusive: nobody may join it */
    int64_t ttl;                 /* from when the node was written; if automatic, from now */
    bool automatic;              /* renewed with the session */
    uint64_t handle, lock_owner; /* of its mount; or 0 */
    uint64_t guards;             /* of a guard: the fencing token of its holder; else 0 */
    int64_t granted;             /* of a guard: when its holder was granted, by the server's clock */
    bool broken;                 /* of a guard: its holder was broken; else it was released by its token */
    char id[REMOTE_ID_SIZE];
    GBytes *meta, *content;
};

char *node_path(const struct zookeeper *z, const char *name);
char *node_child(const char *path, const char *leaf);
/* The path for a ticket's node; the server adds the number. */
char *node_prefix(const struct zookeeper *z, const struct remote_ticket *t);
/* The fencing token of a ticket: a base plus the transaction that made its node.  The base is in the hidden node: the
 * wall clock in microseconds when that was made, so that tokens do not go back after a move from another store, less
 * the transaction that made it.  (A change of leader skips 2^32 transactions.)  If an older version made the hidden
 * node, the base is 0.  A guard has the fencing token of its holder.  `data` NULL: the node is no guard. */
uint64_t node_fence(const struct zookeeper *z, const struct zk_data *data, const struct Stat *stat);
/* The data for a hidden node that is made now. */
GBytes *node_encode_base(void);
uint64_t node_base(GBytes *data, const struct Stat *stat);
/* The mount that made a hidden node with these data, as format_describe_mount describes it, a new string; NULL: the
 * data have no format number. */
char *node_format(const char *bytes, gssize size);
char *node_session_path(const struct zookeeper *z, int64_t session);
/* The data for this mount's session node; `timeout`: ms. */
GBytes *node_encode_session(int timeout);
/* The timeout in such data, ms; 0: an older version wrote them, or another client. */
int64_t node_session_timeout(GBytes *data);
/* Can a lock or a directory have this name? */
bool node_is_name(const char *name);
/* Is this name in the root neither, because leasefs or the server uses it? */
bool node_is_hidden(const struct zookeeper *z, const char *leaf);
/* The number that the server gave this node; false: none. */
bool node_parse_number(const char *leaf, int32_t *ret_number);
/* Is this that ticket's node?  Not for sequence files, whose names have no ticket id. */
bool node_has_token(const char *leaf, const char *id);
/* The numbered children in order: a new array of borrowed strings. */
GPtrArray *node_queue(char *const *children);
/* The same as paths, in place of *paths, which is freed. */
void node_replace_queue(GPtrArray **paths, const char *path, char *const *children);
GBytes *node_encode(const struct zk_node *node, const char *id);
/* The data of a guard for the holder with `data` and `stat`; it lasts `left` ms, and ends with this mount's session. */
GBytes *node_encode_guard(const struct zookeeper *z, const struct zk_data *data, const struct Stat *stat, bool broken,
                          int64_t left);
/* Its path: beside the holder's node, or the same for a ticket's file. */
char *node_guard_path(const struct zookeeper *z, const char *path, bool sequence);
GBytes *node_encode_directory(const struct backend_directory *directory, uint64_t nonce, const char *further);
/* The data of a lock's node: its holder, so that the next ticket knows of the lock-delay if the holder is lost.  `leaf`
 * NULL: it is lost now.  `lost_after`: ms; see struct zk_data. */
GBytes *node_encode_mark(const char *leaf, int64_t lost_after, int64_t delay);
/* When the running lock-delay ends, from the lock's data and children; 0: none runs. */
clock_ms node_delay(const struct zookeeper *z, GBytes *data, const struct Stat *stat, char *const *children);
/* The lock-delay in a directory's data, ms. */
int64_t node_read_delay(GBytes *directory);
/* A new array of bool, one for each node of a queue as read in order: does it hold, because no node before it
 * conflicts? */
GArray *node_holders(const GPtrArray *replies);
/* Clear with node_data_clear. */
void node_decode(GBytes *bytes, struct zk_data *data);
void node_data_clear(struct zk_data *data);
struct zk_node *node_find(struct zookeeper *z, const char *id);
/* The ticket of this mount whose node that is, or NULL.  The node's session decides, because other clients can write
 * any data. */
struct remote_ticket *node_ticket(struct zookeeper *z, const struct zk_data *data, const struct Stat *stat);
/* Is that the ticket's own node, or one of this mount with a compatible identity? */
bool node_is_compatible(struct zookeeper *z, const struct remote_ticket *t, const char *leaf);
struct zk_node *node_register(struct zookeeper *z, const struct remote_ticket *t, const char *path, uint64_t fence);
void node_free(gpointer node);
/* A copy of the data, which belongs to no ticket. */
struct zk_node *node_copy(const struct zk_node *node);
/* Takes over the draft's data. */
void node_confirm(struct zk_node *node, const struct zk_node *draft);
/* Gives the ticket of `node` the node `to`. */
void node_move(struct zk_node *node, const struct zk_node *to);
void node_change(struct zk_node *node, const struct backend_change *change);
/* Notes that a request watches that node for a ticket; "": for watch_directory. */
void node_add_watch(struct zookeeper *z, const char *path, const char *id);

/* --- watch.c --- */

/* Watches the ticket's own node for its end. */
void watch_node(struct zookeeper *z, const char *path, const char *id);
/* Reports the end of a ticket whose node another client removed. */
void watch_report_end(struct zookeeper *z, const char *id);
/* Reads the directory's lock-delay and width, for the tickets that hold in it or wait in its queue. */
void watch_directory(struct zookeeper *z, const char *path);
/* See struct remote_store. */
void watch_name(struct remote *r, const char *name);

/* --- saved_session.c --- */

/* Reads the session that the last daemon saved in `directory`, and keeps it open for writing.  NULL: saves nothing. */
void saved_session_open(struct zookeeper *z, const char *directory);
/* Saves the session; NULL: it was closed. */
void saved_session_write(struct zookeeper *z, const clientid_t *id);

/* --- session.c --- */

int session_init(struct zookeeper *z);
void session_start(struct zookeeper *z);
/* `keep`: the session goes on until it times out, for the next daemon. */
void session_close(struct zookeeper *z, bool keep);
/* Leaves the session to time out, and opens a new one. */
void session_abandon(struct zookeeper *z, const char *why);
bool session_is_up(const struct remote *r);
void session_on_log(const char *message);

/* --- check.c --- */

/* Returns 0, or -errno and one line in `error`.  Blocks for ten seconds at most. */
int check_servers(const struct zookeeper *z, char *error, size_t error_size);

/* --- directory.c --- */

void directory_start(struct remote_request *request);

/* --- query.c --- */

void query_start_about(struct remote_request *request);
void query_start_list(struct remote_request *request);
void query_start_mounts(struct remote_request *request);
/* Describes a ticket from its node; `info` borrows from `data`. */
void query_describe(struct zookeeper *z, const struct zk_data *data, const struct Stat *stat,
                    struct backend_info *info);

/* --- rank.c: steps of an acquire --- */

/* The ticket that is acquired. */
struct remote_ticket *rank_ticket(const struct zk_batch *batch);
void rank_finish_with(struct zk_batch *batch, enum backend_result result);
/* The node of `was`, its lock owner's ticket, takes over the claim; removes `spare`. */
void rank_join(struct zk_batch *batch, const struct remote_ticket *was, const struct zk_node *spare);
/* The mode that the lock owner has then. */
enum backend_mode rank_joined_mode(const struct remote_ticket *t, const struct remote_ticket *was);
/* The ticket's node exists: reads the queue, then grants, queues or refuses the ticket. */
void rank_read_queue(struct zk_batch *batch);
/* The same by answers of the step that made the node: the lock's children, the lock, and its directory. */
void rank_decide(struct zk_batch *batch, const struct zk_reply *list, const struct zk_reply *get,
                 const struct zk_reply *directory);
/* Removes a lock's ticket that was made in a directory, or a sequence file's that was not; false: the node is right. */
bool rank_remove_misplaced(struct zk_batch *batch, const struct zk_reply *get);
/* The node has been removed: answers batch->result. */
void rank_on_node_removed(struct zk_batch *batch);
/* The name is a ticket of a queue, which is always held. */
void rank_refuse_for_ticket(struct zk_batch *batch);
void rank_watch_directory(struct zk_batch *batch);

/* --- create.c --- */

void create_begin(struct zk_batch *batch);
/* Removes the nodes of this ticket that earlier tries made, then calls `next`. */
void create_remove_earlier(struct zk_batch *batch, zk_step *next);

/* --- update.c --- */

/* See struct remote_store. */
uint64_t update_send(struct remote_request *request, struct remote_ticket *t, int64_t timeout);
void update_forget(struct remote *r, uint64_t call);

/* --- convert.c --- */

/* Makes the node that the flow has reserved exclude all others, if nobody shares the lock with it; then calls `raised`,
 * which writes the node again. */
void convert_raise(struct zk_batch *batch, zk_raised *raised);
void convert_begin(struct zk_batch *batch);
void convert_release_range(struct zk_batch *batch);
/* The claim that is released may have changed the node with which its lock owner holds: writes the held mode to that
 * node, then calls `next` with batch->result OK, BUSY if others share the lock by now, or STALE if the node is gone.
 * False: the node is unchanged. */
bool convert_undo(struct zk_batch *batch, zk_step *next);
/* Parks the flow while a revocation of the lock is pending. */
bool convert_is_deferred(struct zk_batch *batch);

/* --- revoke.c --- */

void revoke_start(struct remote_request *request);

/* Removes a guard of this mount's session in `left` ms; `delay`: the lock-delay of its directory. */
void revoke_end_guard_in(struct zookeeper *z, const char *path, int64_t left, int64_t delay, bool broken);

/* --- servers.c --- */

/* Looks all names up, and blocks.  -EHOSTUNREACH and one line in `error`: no server has an address yet. */
int servers_init(struct zookeeper *z, const struct zookeeper_uri *uri, char *error, size_t error_size);
/* While the session is not connected: looks the names up again, in threads, at most once a second. */
void servers_look_up(struct zookeeper *z);
void servers_clear(struct zookeeper *z);

/* --- resume.c --- */

void zk_recover(struct remote *remote, backend_recover_each *found, void *arg);

#endif
