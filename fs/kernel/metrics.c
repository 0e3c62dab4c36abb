/* metrics: counters and histograms of what the mount does; see metrics.h. */
#include "fs/kernel/metrics.h"

#include <errno.h>

const char *const metrics_operation_names[METRICS_OPERATIONS] = {
    [METRICS_LOOKUP] = "lookup",
    [METRICS_GETATTR] = "getattr",
    [METRICS_READLINK] = "readlink",
    [METRICS_STATFS] = "statfs",
    [METRICS_GETXATTR] = "getxattr",
    [METRICS_LISTXATTR] = "listxattr",
    [METRICS_OPENDIR] = "opendir",
    [METRICS_READDIR] = "readdir",
    [METRICS_RELEASEDIR] = "releasedir",
    [METRICS_OPEN] = "open",
    [METRICS_CREATE] = "create",
    [METRICS_MKNOD] = "mknod",
    [METRICS_SYMLINK] = "symlink",
    [METRICS_LINK] = "link",
    [METRICS_FLUSH] = "flush",
    [METRICS_RELEASE] = "release",
    [METRICS_UNLINK] = "unlink",
    [METRICS_RENAME] = "rename",
    [METRICS_READ] = "read",
    [METRICS_WRITE] = "write",
    [METRICS_FSYNC] = "fsync",
    [METRICS_POLL] = "poll",
    [METRICS_SETATTR] = "setattr",
    [METRICS_SETXATTR] = "setxattr",
    [METRICS_REMOVEXATTR] = "removexattr",
    [METRICS_MKDIR] = "mkdir",
    [METRICS_RMDIR] = "rmdir",
    [METRICS_FLOCK] = "flock",
    [METRICS_SETLK] = "setlk",
    [METRICS_GETLK] = "getlk",
    [METRICS_CONTROL] = "control",
};

const char *const metrics_result_names[METRICS_RESULTS] = {
    [METRICS_OK] = "ok",
    [METRICS_REFUSED] = "refused",
    [METRICS_DENIED] = "denied",
    [METRICS_MISSING] = "missing",
    [METRICS_STALE] = "stale",
    [METRICS_UNAVAILABLE] = "unavailable",
    [METRICS_INTERRUPTED] = "interrupted",
    [METRICS_FULL] = "full",
    [METRICS_INVALID] = "invalid",
};

const char *const metrics_group_names[METRICS_GROUPS] = {
    [METRICS_GROUP_LOOK] = "look",     [METRICS_GROUP_LIST] = "list",     [METRICS_GROUP_ACQUIRE] = "acquire",
    [METRICS_GROUP_CLOSE] = "close",   [METRICS_GROUP_REMOVE] = "remove", [METRICS_GROUP_CONTENT] = "content",
    [METRICS_GROUP_CHANGE] = "change", [METRICS_GROUP_LOCK] = "lock",     [METRICS_GROUP_CONTROL] = "control",
};

const char *const metrics_kind_names[METRICS_KINDS] = {"provisional", "lease", "flock", "fcntl", "ticket"};

static const uint8_t metrics_groups[METRICS_OPERATIONS] = {
    [METRICS_LOOKUP] = METRICS_GROUP_LOOK,        [METRICS_GETATTR] = METRICS_GROUP_LOOK,
    [METRICS_READLINK] = METRICS_GROUP_LOOK,      [METRICS_STATFS] = METRICS_GROUP_LOOK,
    [METRICS_GETXATTR] = METRICS_GROUP_LOOK,      [METRICS_LISTXATTR] = METRICS_GROUP_LOOK,
    [METRICS_OPENDIR] = METRICS_GROUP_LIST,       [METRICS_READDIR] = METRICS_GROUP_LIST,
    [METRICS_RELEASEDIR] = METRICS_GROUP_LIST,    [METRICS_OPEN] = METRICS_GROUP_ACQUIRE,
    [METRICS_CREATE] = METRICS_GROUP_ACQUIRE,     [METRICS_MKNOD] = METRICS_GROUP_ACQUIRE,
    [METRICS_SYMLINK] = METRICS_GROUP_ACQUIRE,    [METRICS_LINK] = METRICS_GROUP_ACQUIRE,
    [METRICS_FLUSH] = METRICS_GROUP_CLOSE,        [METRICS_RELEASE] = METRICS_GROUP_CLOSE,
    [METRICS_UNLINK] = METRICS_GROUP_REMOVE,      [METRICS_RENAME] = METRICS_GROUP_REMOVE,
    [METRICS_READ] = METRICS_GROUP_CONTENT,       [METRICS_WRITE] = METRICS_GROUP_CONTENT,
    [METRICS_FSYNC] = METRICS_GROUP_CONTENT,      [METRICS_POLL] = METRICS_GROUP_CONTENT,
    [METRICS_SETATTR] = METRICS_GROUP_CHANGE,     [METRICS_SETXATTR] = METRICS_GROUP_CHANGE,
    [METRICS_REMOVEXATTR] = METRICS_GROUP_CHANGE, [METRICS_MKDIR] = METRICS_GROUP_CHANGE,
    [METRICS_RMDIR] = METRICS_GROUP_CHANGE,       [METRICS_FLOCK] = METRICS_GROUP_LOCK,
    [METRICS_SETLK] = METRICS_GROUP_LOCK,         [METRICS_GETLK] = METRICS_GROUP_LOCK,
    [METRICS_CONTROL] = METRICS_GROUP_CONTROL,
};

bool metrics_acquires(enum metrics_operation operation)
{
    static const bool acquires[METRICS_OPERATIONS] = {
        [METRICS_OPEN] = true,    [METRICS_CREATE] = true, [METRICS_MKNOD] = true, [METRICS_SYMLINK] = true,
        [METRICS_LINK] = true,    [METRICS_RENAME] = true, [METRICS_FLUSH] = true, [METRICS_WRITE] = true,
        [METRICS_SETATTR] = true, [METRICS_FLOCK] = true,  [METRICS_SETLK] = true,
    };
    return acquires[operation];
}

static enum metrics_result metrics_result(int error)
{
    static const uint8_t results[] = {
        [EEXIST] = METRICS_REFUSED,    [EBUSY] = METRICS_REFUSED,      [EAGAIN] = METRICS_REFUSED,
        [EPERM] = METRICS_DENIED,      [EACCES] = METRICS_DENIED,      [ENOENT] = METRICS_MISSING,
        [ESTALE] = METRICS_STALE,      [ENOLCK] = METRICS_UNAVAILABLE, [EIO] = METRICS_UNAVAILABLE,
        [EINTR] = METRICS_INTERRUPTED, [ENOSPC] = METRICS_FULL,        [EFBIG] = METRICS_FULL,
        [EDQUOT] = METRICS_FULL,
    };
    enum metrics_result result = (size_t)-error < sizeof results ? results[-error] : METRICS_INVALID;
    return result || !error ? result : METRICS_INVALID;
}

static void metrics_observe(struct metrics_histogram *histogram, uint64_t value, unsigned first, unsigned buckets)
{
    /* The smallest power of two that it does not exceed. */
    unsigned power = value <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(value - 1);
    unsigned bucket = power > first ? power - first : 0;
    histogram->count[bucket < buckets ? bucket : METRICS_BUCKETS]++;
    histogram->sum += value;
}

void metrics_count(struct metrics *metrics, enum metrics_operation operation, int error, uint64_t since, bool waited)
{
    uint64_t nanoseconds = metrics_clock() - since;
    metrics->requests[operation][metrics_result(error)]++;
    if (waited) {
        metrics_observe(&metrics->wait, nanoseconds / 1000000, METRICS_TIME_FIRST, METRICS_TIME_BUCKETS);
    } else {
        metrics_observe(&metrics->latency[metrics_groups[operation]], (nanoseconds + 999) / 1000, METRICS_LATENCY_FIRST,
                        METRICS_LATENCY_BUCKETS);
    }
}

void metrics_held_for(struct metrics *metrics, int64_t milliseconds)
{
    metrics_observe(&metrics->hold, milliseconds > 0 ? (uint64_t)milliseconds : 0, METRICS_TIME_FIRST,
                    METRICS_TIME_BUCKETS);
}
