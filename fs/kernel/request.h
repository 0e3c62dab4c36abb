/* request: a kernel request on its way to its one reply.
 *
 * It owns the fuse_req_t and whatever it refers to.  Exactly one request_reply_
 * function ends it, at once or much later.  A request that waits is not a thread:
 * where it begins to wait it names its `answer`, which goes on with it, and where
 * it is parked also its `cancel`, which an INTERRUPT from the kernel calls.
 *
 * The room's files:
 *
 *     request  on its way to its reply            tree     names and inodes
 *     notify   telling the kernel what changed    metrics  counters and histograms
 *     nametable  finds the nodes of the tree by name
 *     observer  what control is told as it happens
 */
#ifndef FS_KERNEL_REQUEST_H
#define FS_KERNEL_REQUEST_H

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "fs/fs.h"
#include "fs/kernel/metrics.h"
#include "fs/kernel/observer.h"
#include "fs/options/options.h"
#include "fs/process/owner.h"

struct handle;
struct node;

enum content_reply { CONTENT_REPLY_WRITTEN, CONTENT_REPLY_OPEN, CONTENT_REPLY_ATTRIBUTES };

/* What a request does next: it replies, or waits for something else. */
typedef void request_step(struct request *r);

struct request {
    LIST_ENTRY(request) unanswered;   /* in fs->unanswered */
    TAILQ_ENTRY(request) parked;      /* in the queue it waits in */
    TAILQ_ENTRY(request) interrupted; /* in fs->interrupted */
    struct observed listed;           /* of one that asks */
    struct fs *fs;
    fuse_req_t req;
    struct owner *caller;                          /* see request_caller */
    struct node *node;                             /* counted */
    struct node *other;                            /* the directory of `name`; link: then the file linked to; counted */
    struct handle *handle;                         /* see `opens` */
    struct hold *hold;                             /* what its backend call is about */
    struct backend_ticket *ticket;                 /* a claim of its own that is asked for or waits */
    struct request_queue *queue;                   /* where it is parked, or NULL */
    request_step *answer;                          /* goes on when what it waits for is known */
    request_step *cancel;                          /* of one that is parked: must reply EINTR and undo */
    enum backend_result result;                    /* what came of it */
    void (*refused)(struct request *r, int error); /* it has been answered with an error; may be NULL */
    char *name;                                    /* in `storage` */
    char *value;                                   /* owned: of an attribute that is set */
    struct fuse_file_info file;
    uint64_t since;    /* metrics_clock */
    uint8_t operation; /* enum metrics_operation */
    uint32_t references;
    uint8_t tries;   /* times that the lock which it was about has ended under it, and it went on with another */
    int error;       /* of request_reply_when_invalidated */
    mode_t mode;     /* of what is created */
    bool sets_times; /* SETATTR of them, and of nothing else */
    bool opens;      /* `handle` is new: freed unless the reply hands it to the kernel */
    bool creates;    /* answered by fuse_reply_create */
    bool waited;     /* has waited for a provisional second once */
    bool awaits_provisional; /* is to wait for one of another mount: `provisional` */
    bool blocks;             /* a lock request that waits */
    bool busy_new_lease;     /* refused by a lease in its first second */
    bool queued;             /* has waited for a lock */
    bool listed_waiting;     /* the observer was told that it waits */
    bool is_interrupted;
    bool cancel_pending; /* interrupted, and waits for its answer all the same */
    bool has_caller;
    clock_ms wake; /* of one that sleeps */
    struct {
        clock_ms until; /* 0: it has not waited */
        request_step *answer;
        uint64_t fence;
        int64_t pause;
    } provisional;
    struct {
        GBytes *bytes; /* owned: to be written; NULL: cut or fill to offset */
        off_t offset;
        size_t length;
        uint32_t size; /* of the whole, when done */
        bool append;
        enum content_reply reply;
    } content;
    struct content_times {
        struct timespec time[2]; /* access, modification */
        bool explicit_times;     /* false: now, whenever that is */
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
            const struct backend_info *elsewhere; /* to the answer: another mount holds it; or NULL */
        } attributes;
        struct {
            size_t size;
            off_t offset;
            bool plus;   /* of a directory: with what is known of its names */
            bool mapped; /* of a file: mmap(2) asks, and the kernel keeps the page for all who have it mapped */
        } read;
        struct backend_directory directory; /* to be made */
        struct hold *replaced;              /* of a rename: what the caller has by the new name; counted */
        unsigned releases;                  /* of an unlink: so many are not answered yet */
        struct {
            const struct xattr *attribute;
            size_t size;
            int flags;
        } xattr;
        struct {
            int64_t ttl;
            bool fixed;
        } term; /* to be set, and whether it was fixed before */
    };
    char storage[];
};

/* `node` and `name` may be NULL; it gets a reference and a copy of its own. */
struct request *request_new(struct fs *fs, fuse_req_t req, enum metrics_operation operation, struct node *node,
                            const char *name);

/* Keeps the structure (not the request) alive over a call that may reply. */
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

/* The process that asked; NULL when it has none here (see owner.h).  Borrowed. */
static inline struct owner *request_caller(struct request *r)
{
    if (!r->has_caller) {
        r->caller = owner_get(r->fs->owners, fuse_req_ctx(r->req)->pid);
        r->has_caller = true;
    }
    return r->caller;
}

/* Is it of a process in a pid namespace that the daemon cannot see? (The kernel
 * tells pid 0 then; fs/fuse/dev.c, fuse_get_req.) */
static inline bool request_is_foreign(const struct request *r)
{
    return fuse_req_ctx(r->req)->pid == 0;
}

static inline uid_t request_uid(const struct request *r)
{
    return fuse_req_ctx(r->req)->uid;
}

/* Waits at the end of `queue` until its owner lets it go on.  Interruptible. */
void request_park(struct request *r, struct request_queue *queue, request_step *answer, request_step *cancel);
/* Waits until clock_now() has reached `when`.  Interruptible. */
void request_sleep(struct request *r, clock_ms when, request_step *answer, request_step *cancel);
/* Lets those go on whose time has come. */
void request_wake_due(struct fs *fs);

/* Lets it go on with its answer, wherever it waits; the completion of a backend call. */
void request_resume(void *request, enum backend_result result);

/* Takes it out of its queue. */
void request_unpark(struct request *r);

/* Lets all in `queue` go on, in order of arrival. */
void request_resume_all(struct request_queue *queue, enum backend_result result);

/* Cancels what the kernel has interrupted; from the loop, outside of handlers. */
void request_cancel_interrupted(struct fs *fs);

/* For request_park: whoever waits only for its turn has nothing to undo. */
void request_reply_interrupted(struct request *r);

/* The path for the backend, of r->node or of r->name in r->other, for TREE_PATH_MAX bytes.  False: it is too long,
 * and the request is answered. */
bool request_path(struct request *r, char *ret_path);
bool request_path_in(struct request *r, char *ret_path);
/* Asks the backend about that, unless the path is too long. */
void request_stat(struct request *r, backend_info_done *answer);
void request_stat_in(struct request *r, backend_info_done *answer);

/* Adds a name to the answer of a listing; returns what it needs, and if that is more than `size` has added nothing.
 * Without a node in `entry` only st_ino and the type are told. */
size_t request_add_name(struct request *r, char *buffer, size_t size, const char *name,
                        const struct fuse_entry_param *entry, off_t next);

/* Replies.  `error` is 0 or a negated errno. */
void request_reply(struct request *r, int error);
/* The same when the kernel does not go any more by what it has kept of r->node's
 * name, if the name has gone.  Not for calls that hold the directory's lock. */
void request_reply_when_invalidated(struct request *r, int error);
/* Replies to those of these whose time has come. */
void request_reply_invalidated(struct fs *fs);
/* r->file, and what an O_CREAT has made or NULL.  False when the caller is gone (-ENOENT from libfuse): the kernel
 * sends neither RELEASE nor FORGET for it. */
bool request_reply_open(struct request *r, const struct fuse_entry_param *entry);
void request_reply_statfs(struct request *r, const struct statvfs *filesystem);
void request_reply_poll(struct request *r, unsigned events);
void request_reply_entry(struct request *r, const struct fuse_entry_param *entry);
void request_reply_attr(struct request *r, const struct stat *attributes, double timeout);
/* False when the caller is gone: the kernel knows nothing of the nodes that were in it. */
bool request_reply_buffer(struct request *r, const char *buffer, size_t size);
void request_reply_write(struct request *r, size_t count);
void request_reply_lock(struct request *r, const struct flock *lock);
void request_reply_xattr_size(struct request *r, size_t size);
void request_reply_readlink(struct request *r, const char *target);

/* The completion of a plain backend call: replies with its outcome. */
void request_done(void *arg, enum backend_result result);
/* The same with request_reply_when_invalidated. */
void request_released(void *arg, enum backend_result result);

#endif
