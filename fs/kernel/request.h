/* request: a kernel request on its way to its one reply.
 *
 * It owns the fuse_req_t and everything it refers to.  Exactly one request_reply_
 * function ends it, at once or much later.  A waiting request is not a thread: it has
 * an `answer`, which continues it, and while it is parked a `cancel`, which an
 * INTERRUPT from the kernel calls.
 *
 * The room's files:
 *
 *     request    on its way to its reply          tree     names and inodes
 *     notify     notifications to the kernel      metrics  counters and histograms
 *     nametable  finds the nodes of the tree by name
 *     observer   what control learns of holds and requests
 */
#ifndef FS_KERNEL_REQUEST_H
#define FS_KERNEL_REQUEST_H

#include <errno.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "fs/fs.h"
#include "fs/keep/memory.h"
#include "fs/kernel/intent.h"
#include "fs/kernel/metrics.h"
#include "fs/kernel/observer.h"
#include "fs/options/options.h"
#include "fs/process/owner.h"

struct handle;
struct node;

enum content_reply { CONTENT_REPLY_WRITTEN, CONTENT_REPLY_OPEN, CONTENT_REPLY_ATTRIBUTES };

/* The next step of a request: replies, or waits again. */
typedef void request_step(struct request *r);

struct request {
    LIST_ENTRY(request) unanswered;   /* in fs->unanswered */
    TAILQ_ENTRY(request) parked;      /* in `queue` */
    TAILQ_ENTRY(request) interrupted; /* in fs->interrupted or fs->signalled */
    struct observed listed;           /* in control's list, while `listed_waiting` */
    struct fs *fs;
    fuse_req_t req;
    struct keep_request *kept;     /* in fs->keep, until the reply; or NULL */
    struct intent *before;         /* owned: what an earlier daemon meant to do; NULL: nothing, as far as is known */
    struct node *raised;           /* counted: the node whose look-ups that daemon raised, or NULL */
    struct owner *caller;          /* see request_caller */
    struct node *node;             /* counted */
    struct node *other;            /* counted: the directory of `name`; of a link, later the file linked to */
    struct handle *handle;         /* new if `opens` */
    struct hold *hold;             /* that its backend call is about */
    struct hold *claim;            /* counted: of flock, granted beside the lock that its handle has; or NULL */
    struct backend_ticket *ticket; /* its own ticket, which waits or is not answered yet */
    struct request_queue *queue;   /* where it is parked, or NULL */
    request_step *next_step;       /* continues it, when the result is known */
    request_step *cancel;          /* of a parked request: replies EINTR, and undoes what it began */
    enum backend_result result;    /* of what it waited for */
    void (*refused)(struct request *r, int error); /* called after a reply with an error; may be NULL */
    char *name;                                    /* in `storage` */
    char *value; /* owned: the attribute's value, or the path of a directory that is looked for */
    struct fuse_file_info file;
    uint64_t since;    /* metrics_clock at its arrival */
    uint8_t operation; /* enum metrics_operation */
    uint32_t references;
    uint8_t tries;           /* how often its lock has ended under it, and it went on with another */
    int error;               /* for request_reply_when_invalidated */
    mode_t mode;             /* of the file that it creates */
    bool sets_times;         /* a SETATTR of times, and of nothing else */
    bool opens;              /* `handle` is new: freed unless the kernel gets it with the reply */
    bool creates;            /* the reply is fuse_reply_create */
    bool waited;             /* it has waited once for a provisional hold */
    bool awaits_provisional; /* it may wait for another mount's provisional hold: `provisional` */
    bool blocks;             /* a lock request that waits (F_SETLKW, or flock without LOCK_NB) */
    bool busy_new_lease;     /* refused because of a lease in its first second */
    bool beside;             /* of flock: its handle had a lock when it asked for another */
    bool queued;             /* it has waited for a lock */
    bool listed_waiting;     /* it is in control's list */
    bool is_interrupted;     /* it is in fs->interrupted or, if `is_signalled`, in fs->signalled */
    bool is_signalled;
    bool awaits_store;   /* parked by request_park_for_store */
    bool cancel_pending; /* interrupted, but the backend's answer must come first */
    bool has_caller;
    bool deadlocked;     /* cancelled because it waits for its own process */
    clock_ms walk_since; /* when it began to wait for a walk through the processes; 0: it has not */
    clock_ms wake;       /* for request_sleep */
    clock_ms retry_at;   /* of a lock request: see hold_retry_at; 0: it is refused */
    struct {
        clock_ms until; /* 0: it has not waited yet */
        request_step *next_step;
        uint64_t fence;
        int64_t pause;
    } provisional;
    struct {
        GBytes *bytes; /* owned: the bytes to write; NULL: truncate to offset */
        off_t offset;
        size_t length;
        uint32_t size; /* of the whole content afterwards */
        bool append;
        enum content_reply reply;
    } content;
    struct content_times {
        struct timespec time[2]; /* access, modification */
        bool explicit_times;     /* false: the time at which they are set */
    } times;
    union {
        struct {
            struct flock range;
            uint64_t start, end, owner;
            enum backend_mode mode;
        } lock;
        struct {
            struct stat stat;
            int set;
            clock_ms stat_time;                   /* when the store was asked about the node; 0: it was not */
            const struct backend_info *elsewhere; /* until the reply: the lock of another mount; or NULL */
        } attributes;
        struct {
            size_t size;
            off_t offset;
            bool plus;   /* READDIRPLUS */
            bool mapped; /* for mmap(2): the kernel shares the page among all processes that map the file */
        } read;
        struct backend_directory directory; /* to make */
        struct {
            struct hold *replaced; /* counted: the caller's lock on the new name */
            uint64_t fence;        /* of the lock that moves, before */
        } rename;
        unsigned releases; /* of an unlink: releases without an answer yet */
        struct {
            const struct xattr *attribute;
            size_t size;
            int flags;
        } xattr;
        struct {
            int64_t ttl;
            bool fixed;
        } term; /* the new term, and whether the old one was fixed */
        struct {
            uint64_t token, handle; /* the survivor's, and the id of the handle that gets it; 0: not found yet */
        } resume;
    };
    char storage[];
};

/* `node` and `name` may be NULL.  Takes a reference to the node, and copies the name. */
struct request *request_new(struct fs *fs, fuse_req_t req, enum metrics_operation operation, struct node *node,
                            const char *name);

/* Keeps the structure, not the request, alive over a call that may reply. */
static inline struct request *request_ref(struct request *r)
{
    r->references++;
    return r;
}

static inline void request_unref(struct request *r)
{
    if (--r->references == 0) {
        g_free(r);
    }
}

/* Where the request writes what it means to do: see intent.h. */
struct intent *request_intent(struct request *r);

/* Did an earlier daemon ask the store to do this? */
static inline bool request_begun_before(const struct request *r)
{
    return r->before && r->before->begun;
}

/* The process that sent it; NULL if it is in another pid namespace (see owner.h).  Borrowed. */
static inline struct owner *request_caller(struct request *r)
{
    if (!r->has_caller) {
        r->caller = owner_get(r->fs->owners, fuse_req_ctx(r->req)->pid);
        r->has_caller = true;
    }
    return r->caller;
}

/* Is it from a process in a pid namespace that the daemon cannot see?  The kernel sends pid 0 then (fs/fuse/dev.c,
 * fuse_get_req). */
static inline bool request_is_foreign(const struct request *r)
{
    return fuse_req_ctx(r->req)->pid == 0;
}

static inline uid_t request_uid(const struct request *r)
{
    return fuse_req_ctx(r->req)->uid;
}

/* Waits at the end of `queue` until somebody resumes it.  Interruptible. */
void request_park(struct request *r, struct request_queue *queue, request_step *answer, request_step *cancel);
/* The same for a request that waits for the store's decision, and for no other holder: only a signal that ends its
 * process interrupts it, because a program with a timer would never get a free name otherwise.  If the daemon cannot
 * see the process, any signal does. */
void request_park_for_store(struct request *r, struct request_queue *queue, request_step *answer, request_step *cancel);
/* Waits until clock_now() has reached `when`.  Interruptible. */
void request_sleep(struct request *r, clock_ms when, request_step *answer, request_step *cancel);
/* Resumes sleeping requests that have reached their time. */
void request_wake_due(struct fs *fs);

/* Continues the request with its answer, wherever it waits.  A backend_done. */
void request_resume(void *request, enum backend_result result);

/* Takes it out of its queue, if it is in one. */
void request_unpark(struct request *r);

/* Resumes all requests in `queue`, in order of arrival. */
void request_resume_all(struct request_queue *queue, enum backend_result result);

/* Cancels the requests that the kernel has interrupted.  Called from the loop, outside of handlers. */
void request_cancel_interrupted(struct fs *fs);

/* Cancels those of fs->signalled whose processes have got a fatal signal since. */
void request_check_signalled(struct fs *fs);

/* What a `cancel` replies. */
static inline int request_cancel_error(const struct request *r)
{
    return r->deadlocked ? -EDEADLK : -EINTR;
}

/* A `cancel` for request_park, for a request that has nothing to undo. */
void request_reply_interrupted(struct request *r);

/* Writes the backend's path of r->node, or of r->name in r->other, to TREE_PATH_MAX bytes.  False if it is too long:
 * the request has its reply then. */
bool request_path(struct request *r, char *ret_path);
bool request_path_in(struct request *r, char *ret_path);
/* backend_stat of that path, unless it is too long. */
void request_stat(struct request *r, backend_info_done *answer);
void request_stat_in(struct request *r, backend_info_done *answer);

/* Adds a name to the buffer of a listing.  Returns the size that it needs; if that is more than `size`, nothing was
 * added.  Without a node in `entry` it has only st_ino and type. */
size_t request_add_name(struct request *r, char *buffer, size_t size, const char *name,
                        const struct fuse_entry_param *entry, off_t next);

/* Ends the request.  `error` is 0 or a negated errno. */
void request_reply(struct request *r, int error);
/* The same once the kernel no longer uses its cached entry of r->node, if that name is gone.  Not for calls that hold
 * the directory's lock. */
void request_reply_when_invalidated(struct request *r, int error);
/* Sends the replies of request_reply_when_invalidated that are due. */
void request_reply_invalidated(struct fs *fs);
/* With r->file, and with the entry that an O_CREAT made, or NULL.  False if the caller is gone (-ENOENT from libfuse):
 * then the kernel sends no RELEASE and no FORGET. */
bool request_reply_open(struct request *r, const struct fuse_entry_param *entry);
void request_reply_statfs(struct request *r, const struct statvfs *filesystem);
void request_reply_poll(struct request *r, unsigned events);
void request_reply_entry(struct request *r, const struct fuse_entry_param *entry);
void request_reply_attr(struct request *r, const struct stat *attributes, double timeout);
/* False if the caller is gone: the kernel does not know the nodes in the buffer then. */
bool request_reply_buffer(struct request *r, const char *buffer, size_t size);
void request_reply_write(struct request *r, size_t count);
void request_reply_lock(struct request *r, const struct flock *lock);
void request_reply_xattr_size(struct request *r, size_t size);
void request_reply_readlink(struct request *r, const char *target);

/* A backend_done: replies with the result. */
void request_done(void *arg, enum backend_result result);
/* The same, by request_reply_when_invalidated. */
void request_released(void *arg, enum backend_result result);

#endif
