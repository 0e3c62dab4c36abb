/* plan: the events of a world, drawn from its seed before it begins.
 *
 * An act is a system call of a program, an event of a program such as its death, or a fault.  Acts do not depend on
 * each other: without one of them the rest is still a plan, so a plan can be reduced to the acts that matter.
 */
#ifndef TESTS_SIM_PLAN_H
#define TESTS_SIM_PLAN_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/mount.h"

enum act_kind {
    /* system calls */
    ACT_OPEN,
    ACT_CLOSE,
    ACT_SYMLINK,
    ACT_LINK,
    ACT_RENAME,
    ACT_UNLINK,
    ACT_MKDIR,
    ACT_RMDIR,
    ACT_READ,
    ACT_WRITE,
    ACT_TRUNCATE,
    ACT_FSYNC,
    ACT_TIMES,
    ACT_CHMOD,
    ACT_STAT,
    ACT_LIST,
    ACT_GETXATTR,
    ACT_SETXATTR,
    ACT_FLOCK,
    ACT_FUNLOCK,
    ACT_SETLK,
    ACT_UNLCK,
    ACT_GETLK,
    ACT_WATCH,
    ACT_POLL,
    ACT_FORK,
    ACT_EXEC,
    ACT_EXIT,
    ACT_DUP,
    ACT_CALLS, /* how many of those */
    /* what happens to programs */
    ACT_SPAWN = ACT_CALLS,
    ACT_PASS,
    ACT_SIGNAL,
    ACT_KILL,
    ACT_STOP,
    /* faults: faults.h */
    ACT_FAULT,
    ACT_KINDS
};

#define PLAN_PROGRAMS 6 /* places for programs on each host */

struct act {
    int64_t delay; /* since the one before, ns */
    int64_t duration;
    enum act_kind kind;
    unsigned fault; /* enum fault_kind */
    unsigned mount, program;
    unsigned slot, other; /* descriptors; `other`: of a program, too */
    unsigned name, target;
    unsigned attribute;
    int flags;
    int64_t start, end;
    uint32_t value;
};

struct plan {
    uint64_t seed;
    struct mount_options options;
    unsigned mounts;
    bool faults;
    GArray *acts; /* of struct act */
};

struct plan_request {
    uint64_t seed;
    unsigned operations;
    int store;   /* enum mount_store, or -1: drawn */
    bool faults; /* may there be any? */
};

/* Draws with its own chance: the world begins afterwards. */
struct plan *plan_new(const struct plan_request *request);
void plan_free(struct plan *plan);

/* "a", "d/x", "q/job-"…; for ACT_LIST and the like those of directories. */
#define PLAN_NAMES 8
#define PLAN_TICKET 7 /* the one that the program has taken last */
#define PLAN_DIRECTORIES 4
extern const char *const plan_names[PLAN_NAMES];
extern const char *const plan_directories[PLAN_DIRECTORIES];

enum plan_attribute {
    PLAN_STATE,
    PLAN_KIND,
    PLAN_MODE,
    PLAN_TOKEN,
    PLAN_REMAINING,
    PLAN_WAITERS,
    PLAN_POSITION,
    PLAN_NAME,
    PLAN_TTL,
    PLAN_WIDTH, /* from here on of what is set */
    PLAN_DELAY,
    PLAN_CHECK,
    PLAN_RELEASE,
    PLAN_BREAK,
    PLAN_GUARD,
    PLAN_ATTRIBUTES
};
extern const char *const plan_attributes[PLAN_ATTRIBUTES];

#endif
