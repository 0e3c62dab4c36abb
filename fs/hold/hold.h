/* hold: what this mount holds on a name, and for whom.
 *
 * A hold is one claim: a lease (or a provisional one) of a process, a flock of
 * a handle, or the fcntl locks of one lock owner.  It knows who owns it, keeps
 * it renewed while the owner lives, decides who may release it, and hears from
 * the backend when it ended.
 *
 *     PROVISIONAL --decided--> LEASE --flock--> FLOCK      all of them end by
 *          \______flock or fcntl_______________/  FCNTL    release or `ended`
 *
 * The room's files, each calling only those before it:
 *
 *     rights, meta, quota  permissions; what the store keeps with a lock; limits of users
 *     heirs   owner and heirs of a hold        update  writes a hold's meta and term to the store
 *     charge  charges content to a user        guard   keeps lost locks from others
 *     hold    finds, makes and ends holds; the store's events
 *     claim   acquires and converts holds
 *     handle  an open file, and its hold       entry   a name's attributes for the kernel
 */
#ifndef FS_HOLD_HOLD_H
#define FS_HOLD_HOLD_H

#include "fs/fs.h"
#include "fs/kernel/observer.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"
#include "fs/process/owner.h"

#define HOLD_HEIRS_MAX 8

struct handle;
struct node;

/* Who inherits a lease when its acquirer exits in the first second, in order; leases of one process share it. */
struct hold_heirs {
    uint32_t references;
    uint32_t count;
    struct owner *heir[]; /* counted */
};

/* What only the record locks of a lock owner have. */
struct hold_records {
    uint64_t lock_owner; /* the kernel's number for it */
    guint name;          /* the hash of the name */
    GPtrArray *handles;  /* by which they were got; each has the hold among its records */
};

/* What most leases do not have. */
struct hold_extra {
    struct request_queue parked; /* who waits for its outcome or for its grant */
    struct timespec *times;      /* access and modification, as set by the holder; or NULL */
    union {
        struct hold_records *records; /* FCNTL: see hold_set_lock_owner */
        struct handle *handle;        /* FLOCK: the only one that it can be of, once granted */
    };
    struct hold_heirs *heirs; /* in the first second; of a handle lock: hold_set_handle_owner */
    uint16_t guard;           /* ms: see guard.h; 0: none */
};

struct hold {
    LIST_ENTRY(hold) link;         /* node->holds, node->waiting or, when it is forgotten, fs->ended */
    struct observed listed;        /* on `list` */
    struct node *node;             /* counted */
    struct backend_ticket *ticket; /* NULL while it is asked for */
    struct owner *owner;           /* the acquirer, then whoever inherited; may be NULL */
    union {
        struct hold_extra *extra; /* if it `has_extra`; see hold_extra */
        struct hold_heirs *heirs; /* else; NULL: not read, or no longer of use */
    };
    clock_ms since; /* since when it is what it is */
    uid_t uid;
    gid_t gid;
    uint32_t size;  /* of the content */
    uid_t account;  /* which user it is charged to, */
    uint32_t bytes; /* with so much content */
    uint32_t references;
    uint16_t mode;
    uint8_t kind;          /* enum backend_kind */
    uint8_t converting_to; /* the kind that it is converted to */
    bool fixed : 1;        /* its term was set: not renewed automatically */
    bool closed : 1;       /* the acquirer has closed the file */
    bool owner_final : 1;  /* the owner is final */
    bool inherited : 1;    /* the owner is another than the acquirer */
    bool has_extra : 1;
    bool converting : 1;   /* hold_convert is not answered: whoever wants to convert it waits in hold_queue */
    bool pinned : 1;       /* `converting` is hold_pin's */
    bool renaming : 1;     /* the store is asked to rename it: by which name it has it is not known */
    bool counted : 1;      /* among what is held below its directories */
    bool charged : 1;      /* to its account */
    bool ended : 1;        /* it was taken: observer->ended */
    uint8_t list : 2;      /* the observer's */
    bool contended : 1;    /* the observer's: it has told of that */
    bool sequence : 1;     /* a ticket in its directory's queue: see sequence.h */
    bool released_all : 1; /* FCNTL: all was given up while its lock owner waited for more */
};

/* Those parts of `more`, or NULL. */
static inline struct hold_heirs *hold_heirs(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->heirs : hold->heirs;
}

static inline struct timespec *hold_times(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->times : NULL;
}

static inline struct hold_records *hold_records(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->records : NULL;
}

static inline struct handle *hold_handle(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->handle : NULL;
}

static inline struct request *hold_first_parked(const struct hold *hold)
{
    return hold->has_extra ? TAILQ_FIRST(&hold->extra->parked) : NULL;
}

/* Does it hold, as far as is known here? */
static inline bool hold_holds(const struct hold *hold)
{
    return hold->ticket && hold->ticket->held;
}

/* Can nobody hold beside it?  (Of byte ranges others may have others.) */
static inline bool hold_is_exclusive(const struct hold *hold)
{
    return hold->kind != BACKEND_FCNTL && hold->ticket && hold->ticket->mode == BACKEND_EXCLUSIVE;
}

/* Does it make the name exist: does it hold, or is it a ticket in its directory's queue? */
static inline bool hold_makes_name(const struct hold *hold)
{
    return hold_holds(hold) || (hold->ticket && hold->sequence);
}

/* The exclusive claim of a process (PROVISIONAL or LEASE) on a node: the one that
 * holds, or else the first that was asked for and is not answered (`since` is 0);
 * or NULL. */
static inline struct hold *hold_find_lease(const struct node *node)
{
    struct hold *hold, *pending = NULL;
    LIST_FOREACH(hold, &node->holds, link) {
        if (hold->kind == BACKEND_PROVISIONAL || hold->kind == BACKEND_LEASE) {
            if (hold->since) {
                return hold;
            }
            pending = hold;
        }
    }
    return pending;
}

/* One that makes the name exist, of any kind, or NULL: it holds, or is a ticket
 * in its directory's queue. */
static inline struct hold *hold_find_first(const struct node *node)
{
    struct hold *hold;
    LIST_FOREACH(hold, &node->holds, link) {
        if (hold_makes_name(hold)) {
            return hold;
        }
    }
    return NULL;
}

/* The one whose content and attributes the name shows: of those that hold, or are tickets in their directory's queue,
 * the one that has held longest. */
static inline struct hold *hold_find_shown(const struct node *node)
{
    struct hold *hold, *longest = NULL;
    LIST_FOREACH(hold, &node->holds, link) {
        longest = hold->since ? hold : longest;
    }
    return longest;
}

/* The store has said that this one holds, and none has held longer. */
void hold_mark_longest(struct hold *hold);
/* Does the handle have it, by itself or for a lock owner? */
bool hold_has_handle(const struct hold *hold, const struct handle *handle);
/* Charges so much content to its user, now or when it gets that.  False, and nothing
 * is changed, if the user may not have that much. */
bool hold_charge(struct fs *fs, struct hold *hold, size_t content);
/* The content is now this large. */
void hold_set_size(struct fs *fs, struct hold *hold, size_t size);

/* Does this mount hold something on the node, or below it if it is a directory? */
bool hold_exists_at(const struct node *node);
/* The lease of the node's path: that may be held on another node, on which a rename has put it. */
static inline struct hold *hold_find_lease_by_path(struct fs *fs, struct node *node)
{
    return hold_find_lease(tree_current_node(fs->tree, node));
}
/* The fcntl locks of one lock owner on the node's path, or NULL.  To the store they are one ticket, whichever nodes its
 * handles have. */
struct hold *hold_find_by_lock_owner(struct fs *fs, struct node *node, uint64_t lock_owner);
/* It is from now on what that finds. */
void hold_set_lock_owner(struct fs *fs, struct hold *hold, uint64_t lock_owner);
/* Gives the node another name; a lock owner that has asked meanwhile is found by that. */
void hold_rename_node(struct fs *fs, struct node *node, struct node *parent, const char *name);
/* For fs->records. */
GHashTable *hold_records_table(void);

/* A hold that is still to be asked for, owned by `owner` (may be NULL). */
struct hold *hold_new(struct fs *fs, struct node *node, enum backend_kind kind, struct owner *owner, uid_t uid,
                      gid_t gid, mode_t mode);
/* Forgets one: its handles hold nothing, whoever was parked on it goes on. */
void hold_free(struct fs *fs, struct hold *hold);

/* Keeps the structure over a call that may end the hold; `ticket` is NULL then. */
static inline struct hold *hold_ref(struct hold *hold)
{
    hold->references++;
    return hold;
}

void hold_destroy(struct fs *fs, struct hold *hold);
static inline void hold_unref(struct fs *fs, struct hold *hold)
{
    if (--hold->references == 0) {
        hold_destroy(fs, hold);
    }
}

/* `more`, made if need be; hold_finalize_owner frees it if it is empty then, else it goes with the hold. */
static inline struct hold_extra *hold_extra(struct hold *hold)
{
    if (!hold->has_extra) {
        struct hold_extra *extra = backend_new0(sizeof *extra);
        TAILQ_INIT(&extra->parked);
        extra->heirs = hold->heirs;
        hold->extra = extra;
        hold->has_extra = true;
    }
    return hold->extra;
}

/* Where requests wait for its outcome or for its grant. */
static inline struct request_queue *hold_queue(struct hold *hold)
{
    return &hold_extra(hold)->parked;
}
/* Keeps kind and name of a hold while the store changes it: a request that wants to convert or rename it waits in
 * hold_queue.  Takes a reference, which hold_unpin gives back.  NULL is allowed, and returned. */
static inline struct hold *hold_pin(struct hold *hold)
{
    if (hold) {
        hold_ref(hold)->pinned = true;
        hold->converting = true;
        hold->converting_to = hold->kind;
    }
    return hold;
}
/* The same for a lease; a hold of another kind gets a reference only. */
static inline struct hold *hold_pin_lease(struct hold *hold)
{
    return hold->kind == BACKEND_LEASE ? hold_pin(hold) : hold_ref(hold);
}
/* Ends hold_pin or hold_pin_lease, and resumes the requests that wait.  NULL is allowed. */
void hold_unpin(struct fs *fs, struct hold *hold);
/* Waits there for its outcome, as one that has nothing to undo. */
void hold_await_outcome(struct request *r, struct hold *hold, request_step *answer);

/* The claim for a ticket of this hold of that kind, with its ttl.  `meta` is a new
 * reference, for hold_acquire_claim or hold_convert. */
void hold_fill_claim(struct fs *fs, struct hold *hold, enum backend_kind kind, struct backend_claim *claim);

/* Asks the backend for a hold (made by hold_new), with this content (NULL: none).  When
 * the answer is that it was not granted, the hold is gone. */
void hold_acquire(struct request *r, struct hold *hold, GBytes *content, request_step *answer);
/* The same for r->hold, and a claim of which more is said; gives claim->meta back. */
void hold_acquire_claim(struct request *r, struct backend_claim *claim, request_step *answer);

/* Turns r->hold into another kind in place; it is NULL if it ended meanwhile.  Gives claim->meta back. */
void hold_convert(struct request *r, struct backend_claim *claim, request_step *answer);

/* A provisional lease becomes a lease (`content` may be NULL: empty). */
void hold_make_lease(struct request *r, GBytes *content, request_step *answer);

/* What holds a name is found by it: not a node of another type that asked in vain,
 * nor one whose end is still to be told. */
void hold_attach_name(struct fs *fs, const struct hold *hold, enum backend_kind kind);
/* Notes that it is held from now on, with this ticket and as what that is. */
void hold_mark_granted(struct fs *fs, struct hold *hold, struct backend_ticket *ticket);
/* Its outcome is known: those parked on it go on, in order. */
void hold_resume_all(struct fs *fs, struct hold *hold);
static inline void hold_resume_parked(struct fs *fs, struct hold *hold)
{
    if (hold_first_parked(hold)) {
        hold_resume_all(fs, hold);
    }
}
/* Its handles shall not acquire again by closing or writing; `lost`: it was
 * taken from them. */
void hold_spend_handles(struct hold *hold, bool lost);

/* Ends a hold: the ticket is released, the handles hold nothing any extra;
 * `done` may be NULL. */
void hold_release(struct fs *fs, struct hold *hold, backend_done *done, void *arg);
/* Gives back bytes of record locks; they end with the last. */
void hold_release_range(struct fs *fs, struct hold *hold, uint64_t start, uint64_t end, backend_done *done, void *arg);

/* --- owner and heirs: heirs.c --- */

/* The present owner: the first of acquirer and heirs that lives.  NULL: it has none. */
struct owner *hold_current_owner(struct hold *hold);

/* While the owner has ended and may pass it on, the next heir has it; `is_over`: the first second is. */
void hold_pass_to_heirs(struct hold *hold, bool is_over);
void hold_drop_heirs(struct hold *hold);
/* These, perhaps none, in place of those that it has. */
void hold_set_heirs(struct hold *hold, struct owner *const *heir, size_t count);
void hold_heirs_unref(struct hold_heirs *heirs);

/* Does its owner live, or an heir, as long as it is not told that the owner failed? */
bool hold_has_living_owner(struct hold *hold);

/* Is it to be renewed: does its owner live, or is a handle of its own open? */
bool hold_needs_renewal(struct hold *hold);

/* Reads who inherits, if that is not known yet; while the owner is alive. */
void hold_read_heirs(struct fs *fs, struct hold *hold);

/* Is `who` the owner itself; of a handle lock, also the one that opened the handle? */
bool hold_is_owned_by(struct hold *hold, struct owner *who);

/* It became a handle lock: of the process that took it and, when that has ended, of
 * the one that opened the handle, for which flock(1) may have asked.  Either may be
 * NULL. */
void hold_set_handle_owner(struct hold *hold, struct owner *taker, struct owner *opener);

/* An heir has made it its own: it has it from now on, however the helper that took it ends. */
void hold_adopt(struct fs *fs, struct hold *hold, struct owner *who);

/* May this process unlink it, or change its content and attributes? */
bool hold_allows_change(struct fs *fs, struct hold *hold, struct owner *who, uid_t uid);

/* The hold that the caller is told of: its own, if it has one, as a store that forgot may have granted it beside
 * another; or else what this mount holds exclusively; or of several that share, its ancestor's.  NULL: none of these.
 */
struct hold *hold_find_shown_to(const struct node *node, struct owner *caller);

/* --- meta and term in the store: update.c --- */

/* The first second is over: the owner is final, when it dies nobody inherits. */
void hold_finalize_owner(struct fs *fs, struct hold *hold);

/* Its term from now on: of a lease a fixed one, or with 0 automatic renewal; of
 * a handle lock, which is always renewed, what it has left when that stops.  False
 * if the store is too full to note it: its term is what it was, begun anew.  Whether
 * the term is fixed is the caller's to store (hold_store_for), before. */
bool hold_set_term(struct fs *fs, struct hold *hold, int64_t ttl);
/* So many milliseconds from now on. */
void hold_extend(struct fs *fs, struct hold *hold, int64_t ttl);
/* Starts the automatic term anew, as an owner that uses it again does. */
void hold_renew(struct fs *fs, struct hold *hold);
/* One that is provisional does not lapse in the next moment: who closes a file
 * has been told that it is held, by the answer to FLUSH, before RELEASE decides. */
void hold_extend_provisional(struct fs *fs, struct hold *hold);
/* Writes owner, mode and times to the backend again after a change. */
void hold_store(struct fs *fs, struct hold *hold);
void hold_store_then(struct fs *fs, struct hold *hold, backend_done *done, void *arg);
/* The same with another content, of one that holds, in one step: nobody reads that by the rights of before. */
void hold_store_content(struct fs *fs, struct hold *hold, GBytes *content);
/* The same for a request, which goes on with `answer` when the store has it: r->hold is the hold then, r->result what
 * came of it. */
void hold_store_for(struct request *r, struct hold *hold, request_step *answer);

/* The default TTL in a directory. */
int64_t hold_directory_ttl(const struct fs *fs, const struct node *directory);

/* --- when it is gone: hold.c --- */

/* After something of the node's ended: if nothing holds it any more, and nobody here
 * waits for it, tells the kernel that the name is gone. */
void hold_notify_if_gone(struct fs *fs, struct node *node);
/* The backend has said that nobody holds it. */
void hold_notify_gone(struct fs *fs, struct node *node);
/* Counts it below its directories, or no more: around a rename. */
void hold_count_in_directories(struct hold *hold, bool held);

extern const struct backend_events hold_events;

#endif
