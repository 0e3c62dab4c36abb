/* judge: whether what users of leasefs saw can be true by its contract.
 *
 * It sees what users see: which call was made by which process through which mount, when, and what was answered, when;
 * what inotify(7) and poll(2) told; and the faults of the world that a user could know of.  Of the store and the daemon
 * it knows nothing, and it was written from the contract alone.  It lives in one virtual time: events come in the order
 * of `when`.
 *
 * Whoever tells it of a world does so like this:
 *
 *     struct judge *judge = judge_new(&(struct judge_options){.ttl = …, …});
 *     judge_fork(judge, when, process, parent, pid, uid, session);      the first processes have parent 0
 *     judge_call(judge, &call);                                           a system call begins
 *     judge_answer(judge, &answer);                                       it returned to the caller
 *     judge_exit(judge, when, process, status);                           closes its descriptors, gives up its calls
 *     judge_end(judge, when, left);                                          time to give everything up has passed
 *     judge_verdict(judge, &first)                                       how many faults, and the first one
 *     judge_free(judge);
 *
 * How it judges: a hold has four times.  It may begin when its call was made, and has begun when that was answered; it
 * may end when something was done that ends it, and has ended when that was answered (or a time limit passed).  Between
 * the answer and the first thing that may end it a hold is certain; outside of the outer two it is impossible.  Two
 * certain holds that exclude each other are a fault; so is a refusal while no hold was possible.  What lies between is
 * not judged.
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
    int64_t ttl;    /* of the mounts */
    int64_t settle; /* within this, in a world without faults, a message is through, a process's end is known, a waiter
                       is told; what the kernel does not wait for has happened */
    int64_t margin; /* a lock without a reason is gone one TTL and this later */
    bool remote;    /* the store is a server, which mounts can be away from */
    bool moves;     /* other servers take over from one that fails, with clocks of their own */
    bool unfair;    /* who waits is not served in order, and counted by its own mount only */
    bool keeps;     /* the store is this host's disk: leases outlive the daemon */
    bool recovers;  /* the next daemon recovers the handle locks of the one before */
    int64_t belief; /* a mount that is away for longer loses what it has, whatever its ttl; 0: no */
    bool plain;     /* the store renames to free names only */
    bool same_user; /* mounted with owner=user */
    bool forgets;   /* its kernel forgets an entry at once, behind nobody's lock (Linux 6.2) */
    FILE *out;      /* told of each broken rule in a line or two; may be NULL */
};

/* A rule's name is its verdict: judge_rule_name(). */
enum judge_rule {
    /* exclusion */
    JUDGE_EXCLUSIVE, /* two exclusive holds of a name at once */
    JUDGE_SHARED,    /* an exclusive beside a shared one */
    JUDGE_RANGE,     /* byte ranges that meet, one of them for writing */
    JUDGE_WIDTH,     /* more tickets hold than their queue is wide */
    JUDGE_DELAY,     /* somebody got it while its lock-delay ran */
    JUDGE_GUARD,     /* somebody got it while its guard ran */
    /* fencing tokens */
    JUDGE_TOKEN_GROWS,  /* a later grant's token is not larger */
    JUDGE_TOKEN_REUSED, /* two grants have one token */
    JUDGE_TOKEN_CHECK,  /* user.lease.check or release took a wrong token, or refused the right one */
    JUDGE_NUMBER,       /* a sequence file's number did not grow */
    /* order */
    JUDGE_ORDER, /* granted before one that asked first and still waits */
    JUDGE_STUCK, /* waits beside a lock that is free for it */
    /* rights */
    JUDGE_RELEASE_RIGHT, /* unlink or release by somebody whose lock it is not */
    JUDGE_OWNER_REFUSED, /* the owner or its descendant was told EPERM */
    JUDGE_RENAME_RIGHT,  /* rename of a lease that is not the caller's, or onto one */
    JUDGE_BREAK_RIGHT,   /* break by a user who is neither root nor all its holders */
    JUDGE_CHANGE_RIGHT,  /* content, mode or attributes changed by somebody who may not */
    JUDGE_READ_RIGHT,    /* content read by a user who may not */
    /* truth of what is told */
    JUDGE_EFFECT,     /* still in the way after the answer to the call that ended it */
    JUDGE_REASON,     /* still in the way though its last reason ended more than a TTL and the margin ago */
    JUDGE_GHOST,      /* in the way (or seen) though nobody ever got it */
    JUDGE_UNSEEN,     /* held, but a call says that it is free */
    JUDGE_CONTENT,    /* read what its holder did not write */
    JUDGE_ATTRIBUTE,  /* an attribute, or stat, that cannot be true */
    JUDGE_PROBE,      /* F_GETLK told a lock that is not there, or not the lowest, or none though one is */
    JUDGE_FIRST_TIME, /* a write-open in the first second of another's lease was not refused */
    JUDGE_DEADLOCK,   /* EDEADLK without a cycle, or a cycle within one mount that nobody was told of */
    JUDGE_ERRNO,      /* an error that this call must not have, by the table */
    JUDGE_UNANSWERED, /* no answer to a call that waits for nothing */
    JUDGE_INTERRUPT,  /* EINTR though no signal came, or no answer after one */
    /* loss */
    JUDGE_KEPT, /* lost without a reason */
    JUDGE_LOSS, /* its holder was told that it holds after another did */
    JUDGE_TOLD, /* who watched was not told of the end: poll or inotify */
    /* the end */
    JUDGE_LEFT, /* something is left over at the end */
    /* the teller, not the told: an event that cannot be (an answer without a call); a fault of the simulator */
    JUDGE_TELLER,
    JUDGE_RULES
};

enum judge_operation {
    JUDGE_OPEN,     /* name, flags, mode; answers handle (and, of a ticket, nothing more: its name is read) */
    JUDGE_CLOSE,    /* handle: one descriptor of the caller's */
    JUDGE_SYMLINK,  /* name; value = its target */
    JUDGE_LINK,     /* name = the one that is there, target = the new one */
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

/* Of an open file description the number is the simulator's: never used again, the same in all who inherited it.
 * Processes and calls have such numbers too (a pid may come again).  Names are paths below the top of the mount,
 * "q/job-", "" the top. */
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

/* Faults of the world. `mount` may be JUDGE_ALL; some are over as they begin. */
enum judge_trouble {
    JUDGE_AWAY,    /* cut off from its store; or the server paused, away, refusing */
    JUDGE_LATE,    /* its messages, or their answers, come late */
    JUDGE_STOPPED, /* the daemon does not run: SIGSTOP, a suspended host */
    JUDGE_DEAD,    /* the daemon was killed; ends when another serves the same mount number */
    JUDGE_FULL,    /* the store or its disk takes nothing more */
    JUDGE_FAILS,   /* its disk fails: what was promised and not yet written is lost */
    JUDGE_FORGOT,  /* the server forgot everything (a moment) */
    JUDGE_MOVED,   /* another server took over, or has what one had of its own since (a moment) */
    JUDGE_CUT,     /* the end of its journal was lost, with the numbers that were given (a moment) */
    JUDGE_EMPTIED, /* its disk begins anew, with nothing (a moment) */
    JUDGE_CLOCK,   /* the server's wall clock was stepped (a moment) */
    JUDGE_WALL,    /* the host loses its power before its store has written that its wall clock was set (a moment) */
    JUDGE_POWER, /* the host loses its power: a term that is there again is full as a daemon serves again (a moment) */
    JUDGE_FOREIGN, /* somebody who is no mount changed the key of `name` (a moment) */
    JUDGE_TROUBLES
};
#define JUDGE_MOUNTS 16
#define JUDGE_ALL UINT32_MAX

enum judge_event {
    JUDGE_WATCHES,  /* the process begins to watch `name` (inotify) or `handle` (poll) through the mount */
    JUDGE_DELETED,  /* IN_DELETE_SELF or IN_DELETE of `name` */
    JUDGE_HUNG_UP,  /* POLLERR and POLLHUP on `handle` */
    JUDGE_PRIORITY, /* POLLPRI on `handle`: somebody waits */
};

struct judge *judge_new(const struct judge_options *options);
void judge_free(struct judge *judge); /* may be NULL */

/* A process begins, with all descriptors of its parent.  The first ones have parent 0. */
void judge_fork(struct judge *judge, int64_t when, uint32_t process, uint32_t parent, pid_t pid, uid_t uid,
                pid_t session);
/* It ended, `status` as wait(2) tells it. */
void judge_exit(struct judge *judge, int64_t when, uint32_t process, int status);
/* `to` has a descriptor more of the handle: dup(2) (to == from), or passed through a socket. */
void judge_pass(struct judge *judge, int64_t when, uint32_t to, uint64_t handle);
/* A signal whose handler does not restart calls, while the call was on. */
void judge_signal(struct judge *judge, int64_t when, uint64_t call);

/* Strings and values are copied. */
void judge_call(struct judge *judge, const struct judge_call *call);
void judge_answer(struct judge *judge, const struct judge_answer *answer);

void judge_event(struct judge *judge, int64_t when, enum judge_event event, uint32_t process, uint32_t mount,
                 const char *name, uint64_t handle);
void judge_trouble(struct judge *judge, int64_t when, enum judge_trouble trouble, uint32_t mount, const char *name,
                   bool begins);

/* Judges what is left: `left` are the names (but directories) that a listing of all shows now, each with a newline. */
void judge_end(struct judge *judge, int64_t when, const char *left);

const char *judge_rule_name(enum judge_rule rule);
/* How often a rule was broken, and how often it could have been (0: the world did not try it). */
uint64_t judge_broken(const struct judge *judge, enum judge_rule rule);
uint64_t judge_tried(const struct judge *judge, enum judge_rule rule);
/* All of them; the first in *ret_first (JUDGE_RULES if none), which may be NULL. */
uint64_t judge_verdict(const struct judge *judge, enum judge_rule *ret_first);

#endif
