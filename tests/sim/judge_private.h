/* What the files of the judge share; see judge.h.
 *
 *     judge         its life, its verdict, events, the end
 *     judge_call    a call begins: what it may get, what it may end, for whom it waits
 *     judge_answer  a call is answered: what it ended, what it got, and whether it may
 *     judge_world   processes, open file descriptions, mounts and their troubles
 *     judge_hold    when a hold is certain, possible, over; what excludes what; who may end it
 *     judge_look    what a call tells without changing anything
 */
#ifndef TESTS_SIM_JUDGE_PRIVATE_H
#define TESTS_SIM_JUDGE_PRIVATE_H

#include <glib.h>

#include "tests/sim/judge.h"

#define JUDGE_CONTENT_MAX 65536

/* Clocks of hosts differ, and tell milliseconds. */
#define JUDGE_CLOCKS (5 * JUDGE_MS)

/* How long the mount goes on with what an open began. */
#define JUDGE_PROVISIONAL (JUDGE_SECOND * 5 / 4)

/* A server that begins anew grants nothing for as long as what was there before may last: the longest term in use. */
#define JUDGE_GRACE (30 * JUDGE_SECOND)

/* Of all processes. */
#define JUDGE_UMASK 022

/* How long a kernel goes by an entry of which it is being told that it is gone. */
#define JUDGE_LEAVING (50 * JUDGE_MS)

/* How long a daemon takes a process for alive that has ended, as a parent. */
#define JUDGE_FRESH (10 * JUDGE_MS)

/* How long a call may take that waits for what others have begun. */
#define JUDGE_PATIENCE (5 * JUDGE_SECOND)

/* How long it takes until a daemon has seen twice that nobody has a file open. */
#define JUDGE_SURVIVOR_PATIENCE (3 * JUDGE_SECOND)

struct process {
    uint32_t id;
    struct process *parent; /* as it was forked; NULL: the first */
    pid_t pid, session;
    uid_t uid;
    int64_t died; /* JUDGE_NEVER: it lives */
    int status;
    GHashTable *descriptors; /* struct handle → how many */
    struct name *closed;     /* of a file that it was the last to close, the last time, and when */
    int64_t closed_at;
};

/* An open file description. */
struct handle {
    uint64_t id;
    struct process *opener;
    uint32_t mount;
    struct name *name;
    uint64_t file; /* of that name, when it was opened */
    unsigned flags;
    unsigned descriptors;
    unsigned life;          /* mount->deaths when it was opened */
    int64_t opened, closed; /* JUDGE_NEVER: it is open */
    bool asked, refused;    /* a lock on it, ever; and a time it was told that another holds */
    bool had;               /* a lease, once: if that was lost, closing takes none anew */
    bool astray;            /* it may have another name, as of a rename of unknown outcome */
    bool again;             /* it may have its name again, after another file */
    bool went;              /* and may have gone along with that */
    bool spent;             /* what it had was taken away by name or token */
    bool told_no;           /* perhaps refused */
    bool failed;            /* perhaps answered EIO */
    int64_t flocked;        /* when a flock through it was last answered 0, */
    struct process *flocked_by;
    bool too_large;   /* a write through it was */
    int64_t given;    /* a lock, the last time; 0: never */
    int64_t lost;     /* what it had was broken, and that is told since; JUDGE_NEVER: it was not */
    int64_t released; /* the same, if all that it had was released by its token */
    struct hold *ticket;
    GPtrArray *recorded; /* processes that have asked for record locks of theirs by it */
};

enum kind { KIND_PROVISIONAL, KIND_LEASE, KIND_FLOCK, KIND_RECORD, KIND_TICKET };

/* Who asks, for what. */
struct claim {
    enum kind kind;
    bool shared, ofd;
    bool creates; /* what must not be there, not even for the owner itself; until it has begun */
    int64_t start, end;
    struct handle *handle;
    struct process *process;
    uint32_t mount;
};

struct hold {
    struct claim claim;
    struct name *name;
    uint64_t serial;
    int64_t may_begin, begun, may_end, ended; /* JUDGE_NEVER: not yet known */
    int64_t steady;                           /* certain without a break since */
    int64_t sure;                             /* renewed then, at the earliest */
    int64_t ttl;
    unsigned pending;      /* calls that may be ending it */
    bool survives;         /* the daemon's death, if the next comes in time */
    bool survivor;         /* a handle lock whose daemon has died, and whose store keeps it */
    unsigned life;         /* mount->deaths when it was asked for */
    bool doubt;            /* the world has shaken it */
    bool ageless;          /* its age is told by a clock that was set since */
    bool anew;             /* its term begins anew when a daemon serves again */
    bool timeless;         /* no limit of time can be told */
    bool fixed;            /* its term */
    bool released;         /* by a call; else by a limit of time */
    bool broken;           /* that call took it away from whoever held it */
    bool holding;          /* a ticket that has been told that it is its turn */
    uint64_t origin;       /* the first of those that were converted into one another */
    bool converted;        /* it was another hold before, or may have been */
    int64_t guard;         /* certainly; 0: not known */
    int64_t token;         /* 0: not known */
    GPtrArray *owners;     /* of a lease: processes that may own it */
    int64_t reason;        /* the last handle that kept it was closed then */
    struct process *owner; /* who certainly does, or NULL */
    bool decided;          /* it was provisional before, which other mounts count in */
    bool closed;           /* a close made it: the rest is done behind its answer */
    bool twin;             /* its file has, or had, another name */
    bool unclosed;         /* its owner has ended with the file open */
    bool moved;            /* by a rename, with its token */
    uint64_t asked_of;     /* name->anew by then, */
    uint64_t got_of;       /* and when it was answered */
    bool joined;           /* of record locks: its lock owner may have others of the name, which share a token */
    mode_t mode;           /* 0: not known */
    int64_t deadline;      /* of a fixed term, at the latest; 0: none */
    GByteArray *content;   /* NULL: not known */
    unsigned writing;      /* calls that may be changing it */
    int64_t written;       /* content is that since */
};

struct name {
    char *path;
    GPtrArray *holds;   /* not over */
    GPtrArray *calls;   /* under way */
    GPtrArray *handles; /* open */
    GPtrArray *watches;
    uint64_t file[JUDGE_MOUNTS]; /* which of those that had the name has it now on the mount */
    bool link;                   /* it is a symbolic link */
    int64_t last_ended;          /* of a hold that is over; -1: there was none */
    bool last_released, last_broken;
    int64_t broken;                      /* one of its holders was, the last time */
    int64_t missed;                      /* the same, where one may have let go before that was answered */
    int64_t elsewhere[JUDGE_MOUNTS];     /* the same of those of the mount, by another one, also by a token; 0: never */
    int64_t interrupted;                 /* a wait for it was, the last time, which its store may not know yet */
    int64_t delayed_from, delayed_until; /* its lock-delay certainly runs; -1: never */
    int64_t guard;                       /* the longest that one of its holders ever asked for */
    int64_t guarded_from, guarded_until; /* the guard of what is broken certainly runs, while this file is open */
    const struct handle *guarded;        /* NULL: none does */
    bool foreign;                        /* somebody else has meddled with its key */
    bool directory;
    bool queue;                 /* a directory in which there was a ticket */
    GArray *tokens;             /* of grants, the last ones: struct grant */
    int64_t ttl;                /* of a directory, if set */
    int64_t delay, delay_least; /* the longest and the shortest that it may have */
    int64_t delay_since;        /* it has one; JUDGE_NEVER: perhaps not */
    int64_t width, width_before, width_changed;
    bool width_unknown;
    int64_t number; /* the largest of a ticket that is over */
    uint64_t anew;  /* how often the numbers have begun so, or may have */
};

struct grant {
    uint64_t serial, origin;
    int64_t token, may_begin, begun;
    bool excludes;
    const struct process *process;
};

struct watch {
    struct process *process;
    uint32_t mount;
    struct handle *handle; /* NULL: the name */
    int64_t since, due;    /* due: JUDGE_NEVER: nothing to tell */
    int64_t ended;         /* what is told then, at the earliest */
};

/* A call under way. */
struct call {
    struct judge_call call; /* with copies */
    struct process *process;
    struct name *name, *target;
    struct handle *handle;
    struct hold *attempt;  /* what it may get */
    GPtrArray *ending;     /* the holds that it may be ending */
    int64_t blocked_until; /* by holds that are over */
    bool blocked_released, blocked;
    bool changed;      /* content was written meanwhile, or a holder came or went */
    int64_t signalled; /* JUDGE_NEVER: not */
    uint64_t file;     /* which had the name as it began */
    bool renews;       /* its caller had a lease as it began, perhaps */
    bool unasked;      /* its daemon was gone before */
    bool asked_before; /* somebody had, for a lock, through its handle */
    bool waits;        /* without a limit */
    bool owned;        /* what is renamed is certainly the caller's own */
    GPtrArray *cycle;  /* of certain waits that this one closes */
};

struct mount {
    int64_t since[JUDGE_TROUBLES]; /* JUDGE_NEVER: none of that kind */
    int64_t calm;                  /* the last one ended then */
    bool died;                     /* a daemon of it did */
    unsigned deaths;               /* how many */
    int64_t full;                  /* the last time that the store was full; -1: never */
    int64_t emptied;               /* its disk began anew then */
    bool dark;                     /* its host has lost its power, and no daemon has served since */
};

struct judge {
    struct judge_options options;
    int64_t now;
    uint64_t serial;
    struct mount mounts[JUDGE_MOUNTS];
    GHashTable *processes, *handles, *calls, *names; /* by number, and by path */
    int64_t forgot;                                  /* the server did, last; -1: never */
    GPtrArray *waits;                                /* calls under way that wait without a limit */
    int64_t given_up;                                /* one of them, by a process that died */
    GPtrArray *past;                                 /* leases that are over, where the store keeps them */
    uint64_t broken[JUDGE_RULES], tried[JUDGE_RULES];
    enum judge_rule first;
};

/* judge: the verdict */
void judge_break(struct judge *judge, enum judge_rule rule, const struct name *name, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* A rule had something to say: broken if `broken`. Returns `broken`. */
bool judge_rule(struct judge *judge, enum judge_rule rule, bool broken);

/* It is, or will be, told no more: was it due before? */
void judge_watch_late(struct judge *judge, const struct name *name, struct watch *watch);

/* judge_call */
#define CYCLE_MAX 8
/* Do waits lead from who holds what `call` wants to the caller of `first`?  The calls on the way are added to `cycle`.
 */
bool waits_lead(struct judge *judge, const struct call *call, const struct call *first, bool surely, GPtrArray *cycle,
                unsigned depth);
void wait_ended(struct judge *judge, struct call *call);
/* Calls under way that take what others hold may end it, too: it is new, or its owner has died. */
void judge_hold_meets_takers(const struct judge *judge, struct hold *hold);
/* The ticket that a path names, if its number is known. */
struct hold *name_ticket(struct judge *judge, const struct name *name);

/* judge_answer */
/* The caller's own lease, which what it did now renews. */
struct hold *call_renews(const struct judge *judge, const struct call *call);
/* "500ms", "2s", "30". */
int64_t judge_duration(const char *text, size_t size);
/* A wait is over, or the world is: was it stuck before? */
void call_check_wait(struct judge *judge, const struct call *call, int error);
void call_check_time(struct judge *judge, const struct call *call, const struct judge_answer *answer);

/* judge_world */
struct process *judge_process(struct judge *judge, uint32_t id);
struct handle *judge_handle(struct judge *judge, uint64_t id);
struct name *judge_name(struct judge *judge, const char *path);
/* A directory was: another that is made there begins anew. */
void judge_name_removed(const struct judge *judge, struct name *name);
struct name *judge_parent(struct judge *judge, const struct name *name);
/* Is it one or a descendant of it?  `strictly`: with all between alive. */
bool process_descends(const struct process *process, const struct process *ancestor, bool strictly);
bool process_lives(const struct process *process);
struct handle *judge_open(struct judge *judge, uint64_t id, struct call *call, int64_t when);
/* One descriptor of the process; true if it was the last one of all. */
bool judge_close_one(struct judge *judge, struct process *process, struct handle *handle, int64_t when);
bool mount_troubled(const struct judge *judge, uint32_t mount);
/* Had it any trouble in that time, or so shortly before that it may still be felt? */
bool mount_calm(const struct judge *judge, uint32_t mount, int64_t from);
bool judge_calm(const struct judge *judge, int64_t from); /* all mounts */
/* Its mount may not have heard yet that another has ended its lock, and goes on as its holder. */
bool judge_call_is_late(const struct judge *judge, const struct call *call, const struct name *name);
/* Did a store forget so shortly before that what it had once may be there again? */
bool judge_has_forgot(const struct judge *judge, int64_t from);
void judge_free_name(void *name);
void judge_free_process(void *process);

/* judge_hold */
struct hold *judge_hold_new(struct judge *judge, struct name *name, const struct claim *claim, int64_t when);
void judge_hold_free(void *hold);
void judge_hold_begin(struct judge *judge, struct hold *hold, int64_t when);
/* It is over at `ended`, by a call (`released`) or a limit of time. */
/* Who watches a file by inotify may not be told of its end, as this call begins. */
void judge_call_hides_ends(struct judge *judge, const struct call *call);
void judge_hold_end(struct judge *judge, struct hold *hold, int64_t may_end, int64_t ended, bool released);
void judge_hold_tell(struct judge *judge, const struct hold *hold);
int64_t judge_hold_over(const struct judge *judge, const struct hold *hold);
bool judge_hold_certain(const struct judge *judge, const struct hold *hold, int64_t from);
/* For how long its mount goes on with it without a word of the store; it has had one then, at the earliest, which it
 * has every third of a term. */
int64_t judge_hold_term(const struct judge *judge, const struct hold *hold);
int64_t judge_hold_renewed(const struct judge *judge, const struct hold *hold, int64_t term);
/* Until when the mount goes on with it though it cannot be renewed. */
int64_t judge_hold_assured(const struct judge *judge, const struct hold *hold);
bool judge_hold_possible(const struct judge *judge, const struct hold *hold, int64_t from);
/* A handle that was open on its name is not any more. */
void judge_hold_handle_closed(struct hold *hold, const struct handle *handle, int64_t when);
/* Is a call under way that may get it? */
bool judge_hold_is_asked_for(const struct hold *hold);
void judge_hold_steady(struct hold *hold, int64_t when);
/* Does it exclude the claim?  `surely`: no rule lets them be one party. */
bool judge_hold_excludes(const struct hold *hold, const struct claim *claim, bool surely);
/* Did it take the lock, or open the file that has it, or may it own the lease? */
bool judge_hold_belongs_to(const struct hold *hold, const struct process *process);
bool judge_hold_may_end(const struct judge *judge, const struct hold *hold, const struct process *process,
                        uint32_t mount);
bool judge_hold_must_end(const struct judge *judge, const struct hold *hold, const struct process *process,
                         uint32_t mount);
/* Or the daemon is on its way out, and has granted it all the same. */
void judge_hold_daemon_died(struct judge *judge, struct hold *hold);
/* Has anybody its file open, from before its daemon's death?  By a descriptor of `process`; NULL: of anybody. */
void judge_survivor_check(struct judge *judge, struct hold *hold);
bool judge_survivor_is_open(const struct judge *judge, const struct hold *hold, const struct process *process);
void judge_hold_owner_died(struct judge *judge, struct hold *hold, struct process *process);
/* The token was read of that hold. */
void judge_hold_token(struct judge *judge, struct hold *hold, int64_t token);
/* The only hold that was possible since `from`, or NULL. */
struct hold *name_only(const struct judge *judge, const struct name *name, int64_t from);
/* May it be refused, since `from`, as it was lost less than its directory's delay ago? */
bool name_is_delayed(const struct judge *judge, const struct name *name, int64_t from);
/* The same of its tickets. */
bool queue_is_delayed(const struct judge *judge, const struct name *queue, int64_t from);
/* Does somebody break what it has just now? */
bool name_is_being_broken(const struct name *name);
/* A certain hold of it is broken, by a call that began then. */
void name_begin_delay(struct judge *judge, struct name *name, int64_t when);
/* The same of its guard; */
void name_begin_guard(struct judge *judge, const struct hold *hold, int64_t when);
/* for how long what is revoked of it may be refused after that; */
int64_t name_guard(const struct judge *judge, const struct name *name);
/* and it may have ended. */
void name_end_guard(struct name *name, int64_t when);
/* What is over is forgotten, but for what a disk may bring back. */
void name_prune(struct judge *judge, struct name *name);
/* The end of the mount's journal was lost: so was that of the lease that ended last, which is there again; by a loss of
 * power those of any number of them. */
void judge_hold_comes_back(struct judge *judge, uint32_t mount, bool power);

/* judge_look */
void look_answered(struct judge *judge, struct call *call, const struct judge_answer *answer);
void look_errno(struct judge *judge, const struct call *call, const struct judge_answer *answer);
/* A look says that the name is not held. */
void look_absent(struct judge *judge, const struct name *name, const struct call *call);
/* A call was refused, or saw the name: by whom? */
void look_present(struct judge *judge, const struct name *name, const struct call *call, const struct claim *claim);

#endif
