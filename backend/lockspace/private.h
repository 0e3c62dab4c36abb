/* private: what the files of the lockspace share.
 *
 * From top to bottom; a file calls only those below it:
 *
 * lockspace.c  the calls of lockspace.h on tickets, and time
 * load.c       a record in a lockspace, and back: see record.h
 * names.c      the calls of lockspace.h on names and directories
 * store.c      restoring, and a walk through all names in steps
 * grant.c      which ticket holds next, and how a ticket ends
 * range.c      byte ranges of a lock owner, and cycles of lock owners that wait
 * queue.c      the queue of a lock: which ticket blocks which
 * spans.c      which tickets of a queue cover which bytes
 * group.c      the tickets of a handle or lock owner
 * tree.c       entries and directories
 * ticket.c     a ticket by itself
 * record.c     a record by itself, and its bytes
 *
 * Memory decides the shape, for most locks are one lease: an entry and a ticket.  A queue of its own is made for a lock
 * only while it has a second ticket, and a scope for a ticket only if it needs one.
 */
#ifndef BACKEND_LOCKSPACE_PRIVATE_H
#define BACKEND_LOCKSPACE_PRIVATE_H

#include <sys/queue.h>

#include "backend/lockspace/lockspace.h"
#include "backend/skiplist.h"
#include "backend/sorted.h"

/* A kind of its own: an ownerless ticket that keeps a name refused for its
 * directory's `delay`.  It holds, but is never shown or counted. */
#define LOCKSPACE_DELAY (BACKEND_FCNTL + 1)

#define LOCKSPACE_TTL_MAX (INT64_MAX / 4)

/* An ownerless ticket gets no events.  A guard (head.guarded) keeps the kind of the ticket that it replaces. */
static inline bool lockspace_is_ownerless(const struct backend_ticket *ticket)
{
    return ticket->kind == LOCKSPACE_DELAY || ticket->guarded;
}

/* Tickets that have something in common, found by hash: those of one handle or
 * of one lock owner on one lock, which are compatible, and those of a lock owner that wait anywhere.
 * The only ticket of a lock is in no group: nothing there is compatible with it, and nothing waits for it. */
enum group_kind { GROUP_HANDLE, GROUP_LOCK_OWNER, GROUP_WAITING, GROUP_KINDS };

struct group {
    uint64_t id;
    const struct entry *lock; /* NULL for GROUP_WAITING */
    enum group_kind kind;
    uint32_t count;       /* members; for GROUP_WAITING all tickets of the lock owner in locks with several */
    struct ticket *first; /* linked by scope->next[kind] */
};

/* What only some tickets have. */
struct scope {
    uint64_t handle;
    uint64_t lock_owner;
    struct ticket *ticket; /* whose it is; set while the ticket is in a queue */
    GArray *segments;      /* of FCNTL: what it holds, or the one that it waits for; NULL: the whole lock */
    bool unclaimed;        /* granted, but not yet merged with its lock owner's earlier ticket: see lockspace_claim */
    int64_t due;           /* while it waits: the claim's `due`, which starts again with the grant */
    struct ticket *next[GROUP_KINDS];
};

struct ticket {
    struct backend_ticket head; /* first: a ticket is passed out as this */
    struct entry *entry;        /* its lock; its own file, for a sequence ticket */
    struct scope *scope;        /* NULL: the whole lock, and no identity */
    GBytes *meta;
    clock_ms due; /* CLOCK_NEVER: none, or handled; LOCKSPACE_DUE_REPORTED: reported, and not handled yet;
                     lockspace_resting_due: it rests */
};

#define LOCKSPACE_DUE_REPORTED (-CLOCK_NEVER)

/* By this the tickets of a keeper stand together in the agenda. */
static inline clock_ms lockspace_resting_due(uint32_t keeper)
{
    return LOCKSPACE_DUE_REPORTED + keeper;
}

/* Has its term ended?  Not while `due` is not reported, or not handled: then this process was late, and
 * nobody else can have taken the lock, so its user may renew it first. */
static inline bool lockspace_is_expired(const struct ticket *t, clock_ms now)
{
    return t->head.deadline <= now && t->due > now;
}

/* For a waiter that is late: the rest of the term behind `due` starts when `due` is reported. */
static inline void lockspace_catch_up(struct ticket *t, clock_ms now)
{
    bool late = !t->head.held && t->head.deadline <= now && t->due <= now && t->due != LOCKSPACE_DUE_REPORTED;
    t->head.deadline += late ? now - t->due : 0;
}

enum entry_type {
    ENTRY_DIRECTORY,
    ENTRY_SINGLE,         /* a lock with one ticket, which holds (or, within a call, none) */
    ENTRY_QUEUE,          /* a lock with several */
    ENTRY_SEQUENCE,       /* the file of a sequence ticket */
    ENTRY_ENDED,          /* not in the tree: remembers the path of a ticket that ended … */
    ENTRY_ENDED_SEQUENCE, /* … which was one of a sequence */
};

struct entry {
    struct directory *parent; /* NULL for the root */
    union {
        struct directory *directory;
        struct ticket *ticket;
        struct queue *queue;
    };
    uint8_t type; /* enum entry_type */
    bool counted; /* is among the names held */
    char name[];
};

/* The bytes that the holders, or the waiters, of a queue cover: spans.c. */
struct spans {
    struct span *root;
};

/* Tickets by fencing token: holders and waiters.  Its entry is the `lock`; for sequence tickets that is their
 * directory.
 */
struct queue {
    struct skiplist holders, waiters;
    struct spans held, wanted;
    uint64_t granted;       /* the highest fencing token that was granted in it */
    uint32_t exclusive;     /* holders that are exclusive */
    uint32_t same_identity; /* for each group of more than one ticket: how many more */
    struct ticket *delay;   /* the holder that is only there for a delay; or NULL */
    struct entry *lock;
    LIST_ENTRY(queue) granting; /* in space->granting while grants are left for the next tick: see grant.c */
    struct {
        bool left;
        uint64_t start, end; /* of what was freed */
        uint64_t from;       /* the fencing token of the next waiter to look at */
    } grants;
};

struct directory {
    struct entry *entry;
    struct sorted entries;
    struct queue *queue; /* of its sequence tickets; NULL without any */
    uint32_t waiting;    /* tickets that wait for a name in it */
    struct backend_directory attributes;
};

struct lockspace {
    struct lockspace_listener listener;
    void *context;
    struct directory *root;
    struct sorted agenda; /* tickets by the time of their next event */
    GHashTable *groups;   /* struct group, as a set */
    bool defer_grants;    /* see lockspace_defer_grants */
    LIST_HEAD(, queue) granting;
    bool of_record;      /* grants are not left for a tick, and an overtaken sequence ticket gets a new token, too */
    bool grants_nothing; /* see record_close */
    uint64_t next_fence;
    uint64_t next_number; /* no queue has given this number to a ticket, or a greater one */
    uint64_t locks;
    uint64_t waiting;
    uint64_t keep_candidates;
    uint32_t random;
};

/* A search for spans that overlap start..end, in the order of their first bytes.  Set its first fields. */
struct span_search {
    uint64_t start, end;
    uint64_t before; /* fencing token: only older tickets */
    bool exclusive;  /* only exclusive spans */
    bool begun;      /* `at` and `fence` tell the last result */
    uint64_t at, fence;
};

/* A walk over the tickets that block another; begins as {0}.  A ticket of several segments may come several times. */
struct blocker_walk {
    struct span_search search;
    enum { WALK_START, WALK_HOLDERS, WALK_WAITERS, WALK_END } at;
    unsigned steps; /* tickets that were looked at */
};

static inline struct ticket *lockspace_ticket(struct skiplist_node *node)
{
    return skiplist_item(node);
}

static inline bool lockspace_shared(const struct ticket *t)
{
    return t->head.mode == BACKEND_SHARED;
}

/* The entry whose queue the ticket is in. */
static inline struct entry *lockspace_lock_of(const struct ticket *t)
{
    return t->entry->type == ENTRY_SEQUENCE ? t->entry->parent->entry : t->entry;
}

/* NULL: the whole lock, in its mode. */
static inline GArray *lockspace_segments(const struct ticket *t)
{
    return t->scope ? t->scope->segments : NULL;
}

/* The queue of an entry that has tickets or may get some; NULL: it has at most one. */
static inline struct queue *lockspace_queue(const struct entry *lock)
{
    switch ((enum entry_type)lock->type) {
    case ENTRY_QUEUE:
        return lock->queue;
    case ENTRY_DIRECTORY:
        return lock->directory->queue;
    default:
        return NULL;
    }
}

/* The first byte, and the last. */
static inline uint64_t lockspace_start(const struct ticket *t)
{
    return lockspace_segments(t) ? g_array_index(lockspace_segments(t), struct backend_segment, 0).start : 0;
}

static inline uint64_t lockspace_end(const struct ticket *t)
{
    const GArray *s = lockspace_segments(t);
    return s ? g_array_index(s, struct backend_segment, s->len - 1).end : BACKEND_RANGE_MAX;
}

static inline uint64_t lockspace_lock_owner(const struct ticket *t)
{
    return t->scope ? t->scope->lock_owner : 0;
}

/* lockspace.c */

/* The tickets that a revocation ends: the holders, or the one whose fencing token is `fence`; a sequence ticket that
 * waits too. Guards only if there is nothing else. */
GPtrArray *lockspace_revoked(const struct entry *entry, uint64_t fence);

/* ticket.c */

/* By fencing token. */
int lockspace_compare_tickets(const void *a, const void *b);
/* A ticket that is not in any queue: waiting, without entry, number and times. */
struct ticket *lockspace_ticket_new(const struct backend_claim *claim);
/* Takes handle, lock owner and range over from a claim; only while the ticket is not linked. */
void lockspace_set_scope(struct ticket *t, const struct backend_claim *claim);
/* Frees the scope if nothing needs it. */
void lockspace_trim_scope(struct ticket *t);
/* Starts a term: deadline and due from now. */
void lockspace_start_term(struct ticket *t, clock_ms now, int64_t ttl, int64_t due);

/* tree.c */

uint32_t lockspace_random(struct lockspace *space);
/* The directory that a name is in, and its last component.  OK, MISSING, NOT_DIRECTORY or INVALID. */
enum backend_result lockspace_locate(const struct lockspace *space, const char *name, struct directory **ret_directory,
                                     const char **ret_leaf);
/* The entry of a name; also MISSING. */
enum backend_result lockspace_find(const struct lockspace *space, const char *name, struct entry **ret_entry);
struct entry *lockspace_entry_find(struct directory *directory, const char *leaf);
/* The first entry behind this name, which need not exist. */
struct sorted_position lockspace_entry_after(struct directory *directory, const char *leaf);
struct entry *lockspace_entry_new(struct directory *directory, const char *leaf, enum entry_type type);
void lockspace_entry_free(struct lockspace *space, struct entry *entry);
/* An entry outside the tree with the whole path of one in it. */
struct entry *lockspace_entry_ended(const struct entry *entry);
/* OK and the directory, or why there is none. */
enum backend_result lockspace_directory_find(const struct lockspace *space, const char *name,
                                             struct directory **ret_directory);
struct directory *lockspace_directory_new(struct lockspace *space, struct directory *parent, const char *leaf,
                                          const struct backend_directory *attributes);
/* Takes the attributes over, but for the number of the next ticket, which only grows. */
void lockspace_directory_set(struct lockspace *space, struct directory *directory,
                             const struct backend_directory *attributes);
/* The next ticket of the directory's queue gets this number, or a greater one. */
void lockspace_directory_raise_number(struct lockspace *space, struct directory *directory, uint64_t next);
/* Frees a directory that has no entries and no queue. */
void lockspace_directory_free(struct lockspace *space, struct directory *directory);

/* group.c */

guint lockspace_group_hash(gconstpointer group);
gboolean lockspace_group_equal(gconstpointer a, gconstpointer b);
struct group *lockspace_group(struct lockspace *space, enum group_kind kind, uint64_t id, const struct entry *lock);
/* Adds the ticket to its groups, or removes it; returns by how much queue->same_identity changes. */
uint32_t lockspace_group_join(struct lockspace *space, struct ticket *t);
uint32_t lockspace_group_leave(struct lockspace *space, struct ticket *t);

/* spans.c */

/* Adds the ticket's segments that touch start..end, or removes them.  All spans of a scope belong to the ticket that
 * was added last. */
void lockspace_spans_add(struct lockspace *space, struct spans *spans, struct ticket *t, uint64_t start, uint64_t end);
void lockspace_spans_remove(struct lockspace *space, struct spans *spans, struct ticket *t, uint64_t start,
                            uint64_t end);
void lockspace_spans_clear(struct spans *spans);
/* The next result of a search, or NULL. */
struct ticket *lockspace_spans_next(const struct spans *spans, struct span_search *search);

/* queue.c.  `lock` is an entry that has tickets or may get some. */

void lockspace_queue_free(struct queue *q);
bool lockspace_conflict(const struct entry *lock, const struct ticket *a, const struct ticket *b);
/* The segment of `t` that blocks `claimant` (NULL: anybody). */
struct backend_segment lockspace_blocking_segment(const struct ticket *t, const struct ticket *claimant);
/* Inserts a ticket whose entry is set; removes it.  Grants nothing. */
void lockspace_join(struct lockspace *space, struct ticket *t, bool held);
void lockspace_leave(struct lockspace *space, struct ticket *t);
/* The same for one whose spans the caller adds or removes, if its lock has a queue. */
void lockspace_join_only(struct lockspace *space, struct ticket *t, bool held);
void lockspace_leave_only(struct lockspace *space, struct ticket *t);
/* Removes a ticket without an event; frees it, and a sequence ticket's file. */
void lockspace_remove(struct lockspace *space, struct ticket *t);
/* Before and after a change to handle, lock owner, range, kind or mode of a ticket that is in. */
void lockspace_unlink(struct lockspace *space, struct ticket *t);
void lockspace_link(struct lockspace *space, struct ticket *t);
/* A ticket that keeps `t` from holding: of those that hold, the one with the lowest range.  `t` may be in or not. */
struct ticket *lockspace_blocker(struct lockspace *space, const struct entry *lock, const struct ticket *t);
/* The next such ticket: first those that hold. */
struct ticket *lockspace_next_blocker(struct lockspace *space, const struct entry *lock, const struct ticket *t,
                                      struct blocker_walk *walk);
/* Would `t`, which is not in the queue yet, and a waiter wait for each other?  Each waits for what the other's identity
 * holds. */
bool lockspace_is_rivalled(struct lockspace *space, const struct entry *lock, const struct ticket *t);
/* Does the ticket, which covers one range, exclude all others from these bytes? */
bool lockspace_excludes(const struct ticket *t, uint64_t start, uint64_t end);
/* Of a sequence ticket: those that hold come first, then those that wait. */
uint32_t lockspace_position(const struct ticket *t);
/* The first holder that is no delay, or NULL. */
struct ticket *lockspace_first_holder(const struct entry *lock);
/* Removes the lock if it has no ticket left; frees its queue if one ticket is left. */
void lockspace_shrink(struct lockspace *space, struct entry *lock);

/* range.c */

/* How many ranges a lock owner may hold and wait for on one lock: each change looks at all of them. */
#define LOCKSPACE_RANGES_MAX 4096
bool lockspace_range_may_grow(struct lockspace *space, const struct entry *lock, uint64_t lock_owner);
/* `t`, a holder, takes over segments, fencing token, meta and content of its lock owner's other ticket on the lock,
 * which is `absorbed`.  True if there was one.  `new`: `t` is not in the queue yet, and is afterwards if this is true.
 */
bool lockspace_range_join(struct lockspace *space, struct ticket *t, bool new);
/* Takes bytes from a ticket; QUOTA if that would leave too many segments, MISSING none: then it is as it was. */
enum backend_result lockspace_range_take(struct lockspace *space, struct ticket *t, uint64_t start, uint64_t end);
/* Would waiting for the tickets that block `t` close a cycle of lock owners? */
bool lockspace_range_deadlock(struct lockspace *space, const struct ticket *t);

/* grant.c */

/* Reports `wanted` to holders that block `t`, which waits. */
void lockspace_report_wanted(struct lockspace *space, const struct ticket *t);
/* Removes a ticket and reports `ended`; may leave a delay in its place.  Grants nothing. */
void lockspace_expel(struct lockspace *space, clock_ms now, struct ticket *t, enum backend_end why);
/* The same for a revocation: a holder with a guard leaves the guard in its place. */
void lockspace_expel_revoked(struct lockspace *space, clock_ms now, struct ticket *t, enum backend_end why);
/* The same as lockspace_expel, and grants what has become free. */
void lockspace_end_ticket(struct lockspace *space, clock_ms now, struct ticket *t, enum backend_end why);
/* Grants waiters that may hold now that something in start..end was freed, then shrinks the queue.  Looks at a part of
 * a long queue; lockspace_grant_more looks at the next part. */
void lockspace_grant_waiters(struct lockspace *space, clock_ms now, struct entry *lock, uint64_t start, uint64_t end);
void lockspace_grant_more(struct lockspace *space, clock_ms now);

/* names.c */

/* Describes `t` as the blocker of `claimant` (NULL: of anybody). */
void lockspace_describe(const struct ticket *t, const struct ticket *claimant, struct backend_info *ret_info);
/* Frees the root and all below it, tickets included, without events. */
void lockspace_tree_free(struct lockspace *space);

#endif
