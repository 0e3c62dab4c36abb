/* judge: decides whether what users of leasefs saw is possible by its contract.
 *
 * It sees what users see: each call with its process, mount, time and answer; reports of inotify(7) and poll(2); and
 * faults of the world that a user could know of.  It knows nothing of the store and the daemon, and was written from
 * the contract alone.  All events come in the order of `when`, one virtual time.
 *
 * The simulator calls it like this:
 *
 *     struct judge *judge = judge_new(&(struct judge_options){.ttl = …, …});
 *     judge_fork(judge, when, process, parent, pid, uid, session);        the first processes have parent 0
 *     judge_call(judge, &call);                                           a system call begins
 *     judge_answer(judge, &answer);                                       it returned to the caller
 *     judge_exit(judge, when, process, status);                           closes its descriptors, ends its calls
 *     judge_end(judge, when, left);                                       after enough time to release everything
 *     judge_verdict(judge, &first)                                        the number of faults, and the first one
 *     judge_free(judge);
 *
 * How it judges: a hold has four times.  It may begin when its call is made, and has begun when that is answered.  It
 * may end when a call is made that ends it, and has ended when that is answered, or when a time limit has passed.
 * Between has-begun and may-end the hold is certain; before may-begin and after has-ended it is impossible.  Two
 * certain holds that exclude each other are a fault, and so is a refusal while no hold was possible.  Anything between
 * is not judged.
 *
 * An event costs O(log n) in the number of names, processes, handles and calls, plus the holds and calls of its own
 * name that have not ended.
 */
#ifndef TESTS_SIM_JUDGE_H
#define TESTS_SIM_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Nanoseconds of the one virtual clock of a world. */
#define JUDGE_SECOND INT64_C(1000000000)
#define JUDGE_MS INT64_C(1000000)
#define JUDGE_NEVER INT64_MAX

#define JUDGE_BYTES_MAX INT64_MAX

struct judge;

struct judge_options {
    int64_t ttl;      /* of the mounts */
    int64_t settle;   /* in a world without faults, time for a message, for the end of a process to be noticed, for an
                         event to reach a waiter, and for requests that the kernel does not wait for */
    int64_t prompt;   /* in a world without faults, a waiter gets its lock this long after the call that freed it was
                         answered; less than the interval of heartbeats; 0: not judged */
    int64_t margin;   /* a lock without a reason ends at most one TTL and this later */
    bool remote;      /* the store is a server, and a mount can be cut off from it */
    bool moves;       /* another server, with a clock of its own, can take over from one that fails */
    bool unfair;      /* waiters are not served in order, and only their own mount counts them */
    bool keeps;       /* the store is this host's disk: leases outlive the daemon */
    bool recovers;    /* the next daemon recovers handle locks */
    int64_t validity; /* a mount that is away for longer loses all its locks, whatever their ttl; 0: no such limit */
    bool plain;       /* the store renames only to free names */
    bool same_user;   /* mounted with owner=user */
    bool forgets;     /* the kernel drops an entry without waiting for the directory's lock (Linux 6.2) */
    FILE *out;        /* gets a line or two for each broken rule; may be NULL */
};

/* The rules; see judge_rule_name(). */
enum judge_rule {
    /* exclusion */
    JUDGE_EXCLUSIVE, /* two exclusive holds of a name at once */
    JUDGE_SHARED,    /* an exclusive beside a shared one */
    JUDGE_RANGE,     /* byte ranges that overlap, one of them for writing */
    JUDGE_WIDTH,     /* more tickets hold than the width of their queue */
    JUDGE_DELAY,     /* a grant during the lock-delay */
    JUDGE_GUARD,     /* a grant during the guard */
    /* fencing tokens */
    JUDGE_TOKEN_GROWS,  /* a later grant's token is not larger */
    JUDGE_TOKEN_REUSED, /* two grants have one token */
    JUDGE_TOKEN_CHECK,  /* user.lease.check or release took a wrong token, or refused the right one */
    JUDGE_NUMBER,       /* a sequence file's number did not grow */
    /* order */
    JUDGE_ORDER,  /* granted before an earlier claim that still waits */
    JUDGE_STUCK,  /* waits although the lock is free for it, and all faults have been over for the longest term */
    JUDGE_PROMPT, /* granted later than the messages of the release and the grant take */
    /* rights */
    JUDGE_RELEASE_RIGHT, /* unlink or release by a process without the right */
    JUDGE_OWNER_REFUSED, /* the owner or its descendant got EPERM */
    JUDGE_RENAME_RIGHT,  /* rename of a lease that is not the caller's, or onto one */
    JUDGE_BREAK_RIGHT,   /* break by a user that is not root and not the user of all holders */
    JUDGE_CHANGE_RIGHT,  /* content, mode or attributes changed without the right */
    JUDGE_READ_RIGHT,    /* content read without the right */
    /* true answers */
    JUDGE_EFFECT,    /* blocks after the answer to the call that ended it */
    JUDGE_REASON,    /* blocks longer than a TTL and the margin after its last reason ended */
    JUDGE_GHOST,     /* blocks, or is shown, although nobody ever got it */
    JUDGE_UNSEEN,    /* held, but a call shows it as free */
    JUDGE_CONTENT,   /* a read returned what the holder did not write */
    JUDGE_ATTRIBUTE, /* an impossible value of an attribute or of stat */
    JUDGE_PROBE, /* F_GETLK returned no lock although there is one, or one that does not exist or is not the lowest */
    JUDGE_FIRST_TIME, /* a write-open in the first second of another's lease was not refused */
    JUDGE_DEADLOCK,   /* EDEADLK without a cycle, or a cycle within one mount without EDEADLK */
    JUDGE_ERRNO,      /* an error that this call must not have, by the table */
    JUDGE_UNANSWERED, /* no answer to a call that need not wait, while its daemon runs */
    JUDGE_INTERRUPT,  /* EINTR without a signal, or no answer after one */
    /* loss */
    JUDGE_KEPT,   /* lost without a reason */
    JUDGE_LOSS,   /* a call shows a holder that it holds, after another did */
    JUDGE_REPORT, /* the end was not reported to a watcher, by poll or inotify */
    /* the end */
    JUDGE_LEFT, /* a name is left over at the end */
    /* a fault of the simulator: an impossible event, such as an answer without a call */
    JUDGE_SIMULATOR,
    JUDGE_RULES
};

enum judge_operation {
    JUDGE_OPEN,     /* name, flags, mode; answers handle (and, of a ticket, nothing more: its name is read) */
    JUDGE_CLOSE,    /* handle: one descriptor of the caller's */
    JUDGE_SYMLINK,  /* name; value = its target */
    JUDGE_LINK,     /* name = the existing one, target = the new one */
    JUDGE_RENAME,   /* name to target; flags: JUDGE_NOREPLACE */
    JUDGE_UNLINK,   /* name */
    JUDGE_MKDIR,    /* name */
    JUDGE_RMDIR,    /* name */
    JUDGE_READ,     /* handle, or name for readlink; whole, from 0; answers value */
    JUDGE_WRITE,    /* handle; value, start */
    JUDGE_TRUNCATE, /* handle, or name; start = the new size */
    JUDGE_FSYNC,    /* handle */
    JUDGE_TIMES,    /* handle, or name */
    JUDGE_CHMOD,    /* handle, or name; mode */
    JUDGE_STAT,     /* name, or handle; answers the fields of stat */
    JUDGE_LIST,     /* name of a directory; value = the names in it, each with a newline */
    JUDGE_GETXATTR, /* name, or handle; target = the attribute, in full; answers value */
    JUDGE_SETXATTR, /* name, or handle; target = the attribute; value */
    JUDGE_FLOCK,    /* handle; flags: JUDGE_SHARE, JUDGE_TRY */
    JUDGE_FUNLOCK,  /* handle */
    JUDGE_SETLK,    /* handle, start, end, inclusive; flags: JUDGE_SHARE, JUDGE_TRY, JUDGE_OFD */
    JUDGE_UNLCK,    /* handle, start, end; flags: JUDGE_OFD */
    JUDGE_GETLK,    /* handle, start, end; flags: JUDGE_SHARE, JUDGE_OFD; answers conflict */
    JUDGE_OPERATIONS
};

enum {
    JUDGE_CREATE = 1, /* O_CREAT */
    JUDGE_EXCL = 2,   /* O_EXCL */
    JUDGE_TRUNC = 4,  /* O_TRUNC */
    JUDGE_WRITES = 8, /* O_WRONLY or O_RDWR */
    JUDGE_SHARE = 16, /* LOCK_SH, F_RDLCK */
    JUDGE_TRY = 32,   /* LOCK_NB, F_SETLK */
    JUDGE_OFD = 64,   /* the lock's owner is the open file description */
    JUDGE_NOREPLACE = 128,
};

/* The simulator numbers open file descriptions, processes and calls, and uses no number twice (unlike pids).  Names are
 * paths below the top directory of the mount, such as "q/job-"; "" is the top directory. */
struct judge_call {
    uint64_t id;
    int64_t when;
    uint32_t process;
    uint32_t mount; /* from 0, below JUDGE_MOUNTS */
    enum judge_operation operation;
    unsigned flags;
    const char *name;   /* NULL for a call on a handle */
    const char *target; /* see the operation */
    uint64_t handle;    /* 0 for a call on a name */
    int64_t start, end;
    const void *value;
    size_t size;
    mode_t mode;
};

struct judge_answer {
    uint64_t id;
    int64_t when;
    int error;       /* errno, or 0 */
    uint64_t handle; /* of an open: a new number */
    const void *value;
    size_t size;
    struct {
        bool found, shared;
        int64_t start, end; /* inclusive; JUDGE_BYTES_MAX: to the end */
        pid_t pid;
    } conflict;
    struct {
        uid_t uid;
        mode_t mode;
        uint64_t ino;
        int64_t size;
        unsigned nlink;
    } stat;
};

/* Faults of the world.  `mount` may be JUDGE_ALL.  Some last only a moment. */
enum judge_trouble {
    JUDGE_AWAY,    /* cut off from its store, or the server is paused or refuses */
    JUDGE_RESET,   /* its connections were reset, and it connects again (a moment) */
    JUDGE_LATE,    /* messages or answers are slow */
    JUDGE_STOPPED, /* the daemon does not run: SIGSTOP, a suspended host */
    JUDGE_DEAD,    /* the daemon was killed; ends when another serves the same mount number */
    JUDGE_FULL,    /* the store or its disk is full */
    JUDGE_FAILS,   /* its disk fails, and loses what was not written yet */
    JUDGE_FORGOT,  /* the server lost all data (a moment) */
    JUDGE_MOVED,   /* another server took over, or a server came back with older data (a moment) */
    JUDGE_CUT,     /* the end of its journal was lost, with the numbers that were given out (a moment) */
    JUDGE_EMPTIED, /* its disk is replaced by an empty one (a moment) */
    JUDGE_CLOCK,   /* the server's wall clock was stepped (a moment) */
    JUDGE_WALL,    /* a power cut before the store has recorded that the wall clock was set (a moment) */
    JUDGE_POWER,   /* a power cut: recovered leases get a full term from the next daemon (a moment) */
    JUDGE_FOREIGN, /* another client changed the key of `name` (a moment) */
    JUDGE_FEWER,   /* some of several servers may not answer: a request to all of them may wait for a timeout */
    JUDGE_TROUBLES
};
#define JUDGE_MOUNTS 16
#define JUDGE_ALL UINT32_MAX

enum judge_event {
    JUDGE_WATCHES,  /* the process begins to watch `name` (inotify) or `handle` (poll) through the mount */
    JUDGE_DELETED,  /* IN_DELETE_SELF or IN_DELETE of `name` */
    JUDGE_HUNG_UP,  /* POLLERR and POLLHUP on `handle` */
    JUDGE_PRIORITY, /* POLLPRI on `handle`: a waiter came */
};

struct judge *judge_new(const struct judge_options *options);
void judge_free(struct judge *judge); /* may be NULL */

/* A process starts, with all descriptors of its parent.  The first ones have parent 0. */
void judge_fork(struct judge *judge, int64_t when, uint32_t process, uint32_t parent, pid_t pid, uid_t uid,
                pid_t session);
/* It ended, with the `status` of wait(2). */
void judge_exit(struct judge *judge, int64_t when, uint32_t process, int status);
/* `to` gets another descriptor of the handle: by dup(2), or through a socket. */
void judge_pass(struct judge *judge, int64_t when, uint32_t to, uint64_t handle);
/* A signal, whose handler does not restart calls, interrupts the call. */
void judge_signal(struct judge *judge, int64_t when, uint64_t call);

/* Strings and values are copied. */
void judge_call(struct judge *judge, const struct judge_call *call);
void judge_answer(struct judge *judge, const struct judge_answer *answer);

void judge_event(struct judge *judge, int64_t when, enum judge_event event, uint32_t process, uint32_t mount,
                 const char *name, uint64_t handle);
void judge_trouble(struct judge *judge, int64_t when, enum judge_trouble trouble, uint32_t mount, const char *name,
                   bool begins);

/* `left`: the names, without directories, that a listing of everything shows now, each with a newline. */
void judge_end(struct judge *judge, int64_t when, const char *left);

const char *judge_rule_name(enum judge_rule rule);
/* How often a rule was broken, and how often it was checked (0: the world did not try it). */
uint64_t judge_broken(const struct judge *judge, enum judge_rule rule);
uint64_t judge_tried(const struct judge *judge, enum judge_rule rule);
/* The number of broken rules; the first in *ret_first (JUDGE_RULES: none), which may be NULL. */
uint64_t judge_verdict(const struct judge *judge, enum judge_rule *ret_first);

#endif
