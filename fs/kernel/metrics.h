/* metrics: counters and histograms of what the mount does.
 *
 * All in memory and cheap: a request costs two readings of the clock and a few
 * instructions.  Counters begin with 0 when the daemon starts, and only `held` and
 * `waiting` ever fall.  control/metrics.c shows them.
 */
#ifndef FS_KERNEL_METRICS_H
#define FS_KERNEL_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* The kernel's requests; those about .leasefs are METRICS_CONTROL. */
enum metrics_operation {
    METRICS_LOOKUP,
    METRICS_GETATTR,
    METRICS_READLINK,
    METRICS_STATFS,
    METRICS_GETXATTR,
    METRICS_LISTXATTR,
    METRICS_OPENDIR,
    METRICS_READDIR,
    METRICS_RELEASEDIR,
    METRICS_OPEN,
    METRICS_CREATE,
    METRICS_MKNOD,
    METRICS_SYMLINK,
    METRICS_LINK,
    METRICS_FLUSH,
    METRICS_RELEASE,
    METRICS_UNLINK,
    METRICS_RENAME,
    METRICS_READ,
    METRICS_WRITE,
    METRICS_FSYNC,
    METRICS_POLL,
    METRICS_SETATTR,
    METRICS_SETXATTR,
    METRICS_REMOVEXATTR,
    METRICS_MKDIR,
    METRICS_RMDIR,
    METRICS_FLOCK,
    METRICS_SETLK,
    METRICS_GETLK,
    METRICS_CONTROL,
    METRICS_OPERATIONS
};

/* The kinds of replies, by their errno. */
enum metrics_result {
    METRICS_OK,
    METRICS_REFUSED,     /* EEXIST, EBUSY, EAGAIN: another holds it */
    METRICS_DENIED,      /* EPERM, EACCES */
    METRICS_MISSING,     /* ENOENT */
    METRICS_STALE,       /* ESTALE: the lock was lost, or the kernel must look the name up again */
    METRICS_UNAVAILABLE, /* ENOLCK, EIO: the store is unreachable */
    METRICS_INTERRUPTED, /* EINTR */
    METRICS_FULL,        /* ENOSPC, EFBIG, EDQUOT */
    METRICS_INVALID,     /* all others */
    METRICS_RESULTS
};

/* Operations of similar cost share a histogram. */
enum metrics_group {
    METRICS_GROUP_LOOK,
    METRICS_GROUP_LIST,
    METRICS_GROUP_ACQUIRE,
    METRICS_GROUP_CLOSE,
    METRICS_GROUP_REMOVE,
    METRICS_GROUP_CONTENT,
    METRICS_GROUP_CHANGE,
    METRICS_GROUP_LOCK,
    METRICS_GROUP_CONTROL,
    METRICS_GROUPS
};

/* enum backend_kind, and a ticket of a directory's queue, of any kind. */
enum { METRICS_TICKET = 4, METRICS_KINDS };

/* Bucket n counts values of at most 2^(n + first) units that do not fit bucket n - 1.  The last counts all larger ones.
 */
enum { METRICS_BUCKETS = 28 };

struct metrics_histogram {
    uint64_t count[METRICS_BUCKETS + 1];
    uint64_t sum; /* of the units */
};

struct metrics {
    uint64_t requests[METRICS_OPERATIONS][METRICS_RESULTS];
    struct metrics_histogram latency[METRICS_GROUPS]; /* microseconds */
    struct metrics_histogram wait, hold;              /* milliseconds */
    uint64_t held[METRICS_KINDS], waiting;
    uint64_t acquired[METRICS_KINDS], released[METRICS_KINDS], expired[METRICS_KINDS], lost[METRICS_KINDS],
        broken[METRICS_KINDS], guarded[METRICS_KINDS];
    uint64_t follows, follow_moves; /* how often the loop began to follow a caller, and moved */
    uint64_t spins, spin_hits; /* how often the loop polled for a request without sleeping, and how often one came */
};

/* For each histogram: `first` of bucket 0, and how many buckets it has without +Inf. */
enum { METRICS_LATENCY_FIRST = 2, METRICS_LATENCY_BUCKETS = 23, METRICS_TIME_FIRST = 0, METRICS_TIME_BUCKETS = 28 };

extern const char *const metrics_operation_names[METRICS_OPERATIONS];
extern const char *const metrics_result_names[METRICS_RESULTS];
extern const char *const metrics_group_names[METRICS_GROUPS];
extern const char *const metrics_kind_names[METRICS_KINDS];

/* Can this operation acquire something, and so be refused? */
bool metrics_acquires(enum metrics_operation operation);

/* Nanoseconds of CLOCK_MONOTONIC, to measure durations. */
static inline uint64_t metrics_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* A request got its reply, with this negated errno.  `waited`: it waited for a lock; its time counts as `wait`, not as
 * `latency`. */
void metrics_count(struct metrics *metrics, enum metrics_operation operation, int error, uint64_t since, bool waited);

void metrics_held_for(struct metrics *metrics, int64_t milliseconds);

#endif
