/* hold: what this mount holds on a name, and for which process or handle.
 *
 * A hold is one claim: a lease (perhaps provisional) of a process, a flock of
 * a handle, or the fcntl locks of one lock owner.  It has an owner, is renewed
 * while the owner lives, decides who may release it, and ends when the backend
 * says so.
 *
 *     PROVISIONAL --write or close--> LEASE --flock--> FLOCK    each ends by
 *          \___________flock or fcntl________________/ FCNTL    release or `ended`
 *
 * The room's files, each calling only those before it:
 *
 *     rights, meta, quota  permissions; what the store keeps with a lock; limits of users
 *     survivor  a handle lock whose daemon has ended
 *     heirs   owner and heirs of a hold        update  writes a hold's meta and term to the store
 *     charge  charges content to a user        guard   keeps lost locks from others
 *     hold    finds, makes and ends holds; the store's events
 *     claim   acquires and converts holds
 *     handle  an open file, and its hold       entry   a name's attributes for the kernel
 *     verdict  ends surviving locks that no process has open    resume  moves one to an open file
 */
#ifndef FS_HOLD_HOLD_H
#define FS_HOLD_HOLD_H

#include "fs/fs.h"
#include "fs/kernel/observer.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"
#include "fs/process/owner.h"

#define HOLD_HEIRS_MAX 8
#define HOLD_SHOWN_MAX 64 /* holders that a text names, the latest first; .leasefs/locks has all */

struct handle;
struct node;
struct survivor;

/* The processes that inherit a lease, in order, if its acquirer exits in the first second.  Leases of one process share
 * it. */
struct hold_heirs {
    uint32_t references;
    uint32_t count;
    struct owner *heir[]; /* counted */
};

/* Only for the record locks of a lock owner. */
struct hold_records {
    uint64_t lock_owner; /* the kernel's number for it */
    guint name;          /* hash of the name */
    bool resumed;        /* of an open file, as an OFD lock is: see resume.c */
    GPtrArray *handles;  /* through which it got its locks; each has the hold among its records */
};

/* Only some holds need these fields. */
struct hold_extra {
    struct request_queue parked; /* requests that wait for its outcome or for its grant */
    struct timespec *times;      /* access and modification, set by the holder; or NULL */
    union {
        struct hold_records *records; /* FCNTL: see hold_set_lock_owner */
        struct handle *handle;        /* FLOCK: the only handle that can have it, once granted */
    };
    struct hold_heirs *partners; /* own it together with the owner: see heirs.c; or NULL */
    struct hold_heirs *heirs;    /* in the first second; of a handle lock: see hold_set_handle_owner */
    struct survivor *survivor;   /* of a handle lock whose daemon has ended: no handle has it; else NULL */
    GArray *resumers;            /* see survivor_keep_resumers; or NULL */
    uint16_t guard;              /* ms: see guard.h; 0: none */
    char *note;                  /* what its holder says of it (user.lease.note); or NULL */
};

struct hold {
    LIST_ENTRY(hold) link;         /* in node->holds or node->waiting; once freed, in fs->ended */
    struct observed listed;        /* on the observer's `list` */
    struct node *node;             /* counted */
    struct backend_ticket *ticket; /* NULL until the backend has answered */
    struct owner *owner;           /* counted: the acquirer, or an heir; may be NULL */
    union {
        struct hold_extra *extra; /* if `has_extra` */
        struct hold_heirs *heirs; /* else; NULL: not read yet, or not needed any more */
    };
    clock_ms since; /* when it was granted or converted; 0: not granted yet */
    uid_t uid;
    gid_t gid;
    uint32_t size;  /* of the content, bytes */
    uid_t account;  /* the user it is charged to */
    uint32_t bytes; /* content charged to that user */
    uint32_t references;
    uint16_t mode;
    uint8_t kind;          /* enum backend_kind */
    uint8_t converting_to; /* the kind that hold_convert asks for */
    bool fixed : 1;        /* its user set a fixed term: not renewed automatically */
    bool closed : 1;       /* the acquirer has closed the file */
    bool owner_final : 1;  /* nobody inherits it any more */
    bool inherited : 1;    /* the owner is an heir */
    bool has_extra : 1;
    bool converting : 1;   /* hold_convert or hold_pin is under way: other requests wait in hold_queue */
    bool pinned : 1;       /* `converting` is set by hold_pin */
    bool renaming : 1;     /* backend_rename is under way: the store may have it by either name */
    bool counted : 1;      /* in `held` of its directories */
    bool charged : 1;      /* to its account */
    bool ended : 1;        /* the backend ended it: observer->ended was called */
    uint8_t list : 2;      /* enum control_list */
    bool contended : 1;    /* control has logged that */
    bool sequence : 1;     /* a ticket in its directory's queue: see sequence.h */
    bool released_all : 1; /* FCNTL: its lock owner has released all while it waited for more */
};

/* These parts of hold->extra; NULL if it has none. */
static inline struct hold_heirs *hold_heirs(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->heirs : hold->heirs;
}

static inline struct hold_heirs *hold_partners(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->partners : NULL;
}

static inline const char *hold_note(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->note : NULL;
}

static inline GArray *hold_resumers(const struct hold *hold)
{
    return hold->has_extra ? hold->extra->resumers : NULL;
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

/* Does it hold, as far as this mount knows? */
static inline bool hold_holds(const struct hold *hold)
{
    return hold->ticket && hold->ticket->held;
}

/* Does it exclude every other holder?  False for record locks: others may hold other bytes. */
static inline bool hold_is_exclusive(const struct hold *hold)
{
    return hold->kind != BACKEND_FCNTL && hold->ticket && hold->ticket->mode == BACKEND_EXCLUSIVE;
}

/* Does its name exist because of it?  It holds, or is a ticket in its directory's queue. */
static inline bool hold_makes_name(const struct hold *hold)
{
    return hold_holds(hold) || (hold->ticket && hold->sequence);
}

/* The lease of a process on a node, PROVISIONAL or LEASE: the one that holds; else the first that is not answered yet
 * (`since` is 0); or NULL. */
static inline struct hold *hold_find_lease(const struct node *node)
{
    struct hold *hold, *pending = NULL;
    LIST_FOREACH(hold, &node->holds, link) {
        if (hold->since || hold->kind > BACKEND_LEASE) {
            return hold->kind <= BACKEND_LEASE ? hold : pending;
        }
        pending = hold;
    }
    return pending;
}

/* The first hold of any kind that makes the name exist, or NULL. */
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

/* The hold whose content and attributes the name shows; or NULL. */
static inline struct hold *hold_find_shown(const struct node *node)
{
    return node->longest;
}

/* The store reported that this one has held longest. */
void hold_mark_longest(struct hold *hold);
/* Does the handle have it, by itself or for a lock owner? */
bool hold_has_handle(const struct hold *hold, const struct handle *handle);
/* Charges this much content to its user before the store has it.  False, and nothing is charged, over the user's limit.
 */
bool hold_charge(struct fs *fs, struct hold *hold, size_t content);
/* Its content has this size now. */
void hold_set_size(struct fs *fs, struct hold *hold, size_t size);

/* Does this mount hold something on the node, or below it if it is a directory? */
bool hold_exists_at(const struct node *node);
/* The lease of the node's path.  A rename may have put it on another node. */
static inline struct hold *hold_find_lease_by_path(struct fs *fs, struct node *node)
{
    return hold_find_lease(tree_current_node(fs->tree, node));
}
/* The fcntl locks of one lock owner on the node's path, or NULL.  In the store they are one ticket, whichever nodes its
 * handles have. */
struct hold *hold_find_by_lock_owner(struct fs *fs, struct node *node, uint64_t lock_owner);
/* From now on hold_find_by_lock_owner finds this hold. */
void hold_set_lock_owner(struct fs *fs, struct hold *hold, uint64_t lock_owner);
/* Renames the node, and keeps its record locks found by lock owner. */
void hold_rename_node(struct fs *fs, struct node *node, struct node *parent, const char *name);
/* The lock is on this node from now on: the node that the kernel has for its name. */
void hold_move(struct fs *fs, struct hold *hold, struct node *node);
/* For fs->records. */
GHashTable *hold_records_table(void);

/* A hold that is not acquired yet, owned by `owner` (may be NULL). */
struct hold *hold_new(struct fs *fs, struct node *node, enum backend_kind kind, struct owner *owner, uid_t uid,
                      gid_t gid, mode_t mode);
/* Forgets it: its handles hold nothing, its parked requests resume. */
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

/* Makes hold->extra if there is none.  hold_finalize_owner frees it if it is empty; else it lives as long as the hold.
 */
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

/* Requests that wait for its outcome or for its grant. */
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
/* Parks the request until the hold's outcome is known.  An interrupt ends it with EINTR, and undoes nothing. */
void hold_await_outcome(struct request *r, struct hold *hold, request_step *answer);

/* Fills in a claim of this kind, with its ttl.  `handle` and `lock_owner`: by which a handle lock is asked for; else
 * NULL and 0.  claim->meta is a new reference, which hold_acquire_claim or hold_convert gives back. */
void hold_fill_claim(struct fs *fs, struct hold *hold, enum backend_kind kind, const struct handle *handle,
                     uint64_t lock_owner, struct backend_claim *claim);

/* Acquires a hold made by hold_new, with this content (NULL: empty).  `answer` continues the request.  If r->result is
 * not OK, the hold is freed. */
void hold_acquire(struct request *r, struct hold *hold, GBytes *content, request_step *answer);
/* The same for r->hold and a claim that the caller has completed. */
void hold_acquire_claim(struct request *r, struct backend_claim *claim, request_step *answer);

/* The request was refused for `holder`.  If that is a provisional hold of another mount, when shall the request try
 * again?  0: not at all.  The backend reports no decision, so it tries after 8, 16, … 128 ms, until that hold is a
 * lease or a lock for good, has ended, or is a different one; at most until its second or, if that mount is gone, its
 * term is over.  A waiting ticket would not do: nothing reports the decision to it, and it would block real waiters. */
clock_ms hold_retry_at(struct request *r, const struct backend_info *holder);

/* Converts r->hold to the claim's kind, in place.  `answer` continues the request; r->hold is NULL if the hold ended
 * meanwhile. */
void hold_convert(struct request *r, struct backend_claim *claim, request_step *answer);

/* Converts the provisional r->hold to a lease, with this content (NULL: empty). */
void hold_make_lease(struct request *r, GBytes *content, request_step *answer);

/* Makes the hold's node the one that its name finds.  Another node may have the name: of another type, or of a lock
 * whose end the kernel does not know yet. */
void hold_attach_name(struct fs *fs, const struct hold *hold, enum backend_kind kind);
/* It is held from now on, with this ticket and this ticket's kind. */
void hold_mark_granted(struct fs *fs, struct hold *hold, struct backend_ticket *ticket);
/* Its outcome is known: resumes the requests parked on it, in order. */
void hold_resume_all(struct fs *fs, struct hold *hold);
static inline void hold_resume_parked(struct fs *fs, struct hold *hold)
{
    if (hold_first_parked(hold)) {
        hold_resume_all(fs, hold);
    }
}
/* Closing or writing through its handles never acquires again.  `lost`: it did not end by its user's will. */
void hold_spend_handles(struct fs *fs, struct hold *hold, bool lost);
/* The result of a change through this handle (or NULL) that the store has answered: STALE if the hold was lost
 * meanwhile.
 */
enum backend_result hold_result(const struct hold *hold, const struct handle *handle, enum backend_result result);

/* Releases the ticket and forgets the hold.  `done` may be NULL. */
void hold_release(struct fs *fs, struct hold *hold, backend_done *done, void *arg);
/* Releases bytes of record locks; the hold ends with the last byte. */
void hold_release_range(struct fs *fs, struct hold *hold, uint64_t start, uint64_t end, backend_done *done, void *arg);

/* --- owner and heirs: heirs.c --- */

/* Makes the first of acquirer, heirs and partners that lives the owner, and returns it; or NULL. */
struct owner *hold_update_owner(struct hold *hold);

/* Passes it to the next heir as long as its owner has ended and its end allows that.  `is_over`: the first second has
 * passed. */
void hold_pass_to_heirs(struct hold *hold, bool is_over);
void hold_drop_heirs(struct hold *hold);
/* Replaces its heirs; `count` may be 0. */
void hold_set_heirs(struct hold *hold, struct owner *const *heir, size_t count);
void hold_heirs_unref(struct hold_heirs *heirs);
/* Replaces those that own it together with its owner; `count` may be 0. */
void hold_set_partners(struct hold *hold, struct owner *const *partner, size_t count);

/* Must it be renewed?  Yes while its owner lives, or while a handle of that owner is open. */
bool hold_needs_renewal(struct hold *hold);

/* Reads the heirs of a living owner, if they are not known yet. */
void hold_read_heirs(struct fs *fs, struct hold *hold);

/* Is `who` the owner or a partner?  For a handle lock, also the process that opened the handle; of a surviving one
 * nobody is. */
bool hold_is_owned_by(struct hold *hold, struct owner *who);

/* It became a handle lock.  The owner is `taker` and, after that has ended, `opener`, for which flock(1) may have
 * acted. Either may be NULL. */
void hold_set_handle_owner(struct hold *hold, struct owner *taker, struct owner *opener);

/* If `who` is an heir and the owner is exiting, `who` becomes the owner, however the old owner ends. */
void hold_adopt(struct fs *fs, struct hold *hold, struct owner *who);

/* May this process unlink it, or change its content and attributes? */
bool hold_allows_change(struct fs *fs, struct hold *hold, struct owner *who, uid_t uid);

/* Is `who` a descendant of its owner or a partner, with its uid, theirs, or as root? */
bool hold_allows_descendant(struct hold *hold, struct owner *who, uid_t uid);

/* --- meta and term in the store: update.c --- */

/* The first second is over: the owner is final, and nobody inherits after it. */
void hold_finalize_owner(struct fs *fs, struct hold *hold);

/* Sets its term, from now on.  A lease gets a fixed term, or automatic renewal with 0.  A handle lock is always
 * renewed: `ttl` is what it has left when renewals stop.  False if the store is too full to keep a longer term: the old
 * one starts again.  The caller has stored the flag `fixed` before (hold_store_for). */
bool hold_set_term(struct fs *fs, struct hold *hold, int64_t ttl);
/* Its deadline is `ttl` milliseconds from now. */
void hold_extend(struct fs *fs, struct hold *hold, int64_t ttl);
/* Starts its automatic term again, because its owner uses it. */
void hold_renew(struct fs *fs, struct hold *hold);
/* When a handle lock is due: what was not known of its command when it was granted. */
void hold_update_command(struct fs *fs, struct hold *hold);
/* "": none.  hold_store writes it to the store. */
void hold_set_note(struct hold *hold, const char *note);
/* Keeps a provisional hold for the next moment: the reply to FLUSH says that it is held, and RELEASE comes later. */
void hold_extend_provisional(struct fs *fs, struct hold *hold);
/* Writes owner, mode and times to the store. */
void hold_store(struct fs *fs, struct hold *hold);
void hold_store_then(struct fs *fs, struct hold *hold, backend_done *done, void *arg);
/* Writes them for a request: `answer` continues it, with r->hold and r->result. */
void hold_store_for(struct request *r, struct hold *hold, request_step *answer);

/* The default TTL in a directory, in milliseconds. */
int64_t hold_directory_ttl(const struct fs *fs, const struct node *directory);

/* --- its name in the kernel: hold.c --- */

/* The backend reported that nobody holds the name: the kernel drops it. */
void hold_notify_gone(struct fs *fs, struct node *node);
/* Counts it, or no longer, in `held` of its directories.  A rename calls it twice. */
void hold_count_in_directories(struct hold *hold, bool held);

extern const struct backend_events hold_events;

#endif
