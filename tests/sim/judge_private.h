/* judge_private: shared by the files of the judge; see judge.h.
 *
 *     judge         begin and end, verdict, events
 *     judge_call    a call begins: what it may get, what it may end, for which calls it waits
 *     judge_answer  a call is answered: what it got, what it ended, and whether it may
 *     judge_world   processes, open file descriptions, mounts and their faults
 *     judge_hold    when a hold is certain, possible or over; what it excludes; who may end it
 *     judge_look    calls that show something and change nothing
 */
#ifndef TESTS_SIM_JUDGE_PRIVATE_H
#define TESTS_SIM_JUDGE_PRIVATE_H

#include <glib.h>

#include "tests/sim/judge.h"

#define JUDGE_CONTENT_MAX 65536

/* Hosts' clocks differ, and have milliseconds. */
#define JUDGE_CLOCKS (5 * JUDGE_MS)

/* How long a hold can stay provisional. */
#define JUDGE_PROVISIONAL (JUDGE_SECOND * 5 / 4)

/* A server that lost its data grants nothing for the longest term in use. */

/* The umask of all processes. */
#define JUDGE_UMASK 022

/* How long a kernel may use an entry that is being invalidated. */
#define JUDGE_LEAVING (50 * JUDGE_MS)

/* How long a daemon may count an ended parent as alive. */
#define JUDGE_FRESH (10 * JUDGE_MS)

/* The longest time of a call that waits for requests of others. */
#define JUDGE_WAIT_MAX (5 * JUDGE_SECOND)

/* The same if each of its requests ends without an answer of the store. */
#define JUDGE_AWAY_MAX (20 * JUDGE_SECOND)

/* How long it takes until a daemon has seen twice that nobody has a file open. */
#define JUDGE_SURVIVOR_CHECK_MAX (3 * JUDGE_SECOND)

struct process {
    uint32_t id;
    struct process *parent; /* as it was forked; NULL: the first */
    pid_t pid, session;
    uid_t uid;
    int64_t died; /* JUDGE_NEVER: it lives */
    int status;
    GHashTable *descriptors; /* struct handle → how many */
    struct name *closed;     /* the name whose last descriptor it closed last */
    int64_t closed_at;
};

/* An open file description. */
struct handle {
    uint64_t id;
    struct process *opener;
    uint32_t mount;
    struct name *name;
    uint64_t file; /* name->file when it was opened */
    unsigned flags;
    unsigned descriptors;
    unsigned life;          /* mount->deaths when it was opened */
    int64_t opened, closed; /* JUDGE_NEVER: it is open */
    bool locked;            /* a lock was ever requested through it */
    bool refused;           /* a call through it failed because another holds */
    bool maybe_refused;     /* the same, perhaps */
    bool had;               /* it had a lease: if that was lost, its close acquires none */
    bool astray;            /* it may have another name: a rename's outcome is unknown, or the lock it was opened on */
                            /* has perhaps ended before the name's next lock began */
    bool found;             /* it was perhaps opened on another's lock, and has had none itself */
    bool again;             /* its file may have its name again, after another file */
    bool went;              /* and may have moved with that other file */
    bool spent;             /* its lock was ended by name or token */
    bool failed;            /* a call through it perhaps returned EIO or ENOLCK */
    int64_t flocked;        /* when a flock through it last succeeded */
    struct process *flocked_by;
    bool too_large;   /* a write through it was */
    int64_t given;    /* when it last got a lock; 0: never */
    int64_t lost;     /* since when calls must report that its lock was broken; JUDGE_NEVER: it was not */
    int64_t released; /* the same, if all its locks were released by token */
    struct hold *ticket;
    GPtrArray *recorded; /* processes that have requested record locks through it */
};

enum kind { KIND_PROVISIONAL, KIND_LEASE, KIND_FLOCK, KIND_RECORD, KIND_TICKET };

struct claim {
    enum kind kind;
    bool shared, ofd;
    bool creates; /* conflicts even with a lease of its own process, until it has begun */
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
    int64_t renewed;                          /* its earliest possible last renewal */
    int64_t forgotten;                        /* by the store, since it was granted; 0: never */
    int64_t ttl;
    unsigned pending;             /* calls that may be ending it */
    bool survives;                /* the daemon's death, if the next one starts in time */
    bool survivor;                /* a handle lock whose daemon has died, and whose store keeps it */
    unsigned life;                /* mount->deaths when it was requested */
    bool uncertain;               /* a fault of the world may have ended it */
    bool ageless;                 /* the clock that shows its age was set since */
    bool restarts_term;           /* its term begins again with the next daemon */
    bool timeless;                /* it has no known limit of time */
    bool fixed;                   /* it has a fixed term */
    bool released;                /* by a call; else by a limit of time */
    bool broken;                  /* that call was a break or a release by token */
    bool holding;                 /* a ticket whose flock has succeeded */
    uint64_t origin;              /* the first hold of a chain of conversions */
    bool converted;               /* it was another hold before, or may have been */
    int64_t guard;                /* its certain guard; 0: not known */
    int64_t token;                /* 0: not known */
    GPtrArray *owners;            /* of a lease: processes that may own it */
    int64_t reason;               /* when the last handle that kept it was closed */
    struct process *owner;        /* its certain owner, or NULL */
    bool decided;                 /* it was provisional before, and other mounts count from then */
    bool closed;                  /* a close made it: the store may get the request after the answer */
    bool twin;                    /* its file has, or had, another name */
    bool unclosed;                /* its owner has ended with the file open */
    bool moved;                   /* by a rename, with its token */
    uint64_t numbering_requested; /* name->numbering when it was requested */
    uint64_t numbering_granted;   /* the same when it was answered */
    bool joined;                  /* a record lock whose lock owner may have others of the name, with its token */
    mode_t mode;                  /* 0: not known */
    int64_t deadline;             /* of a fixed term, at the latest; 0: none */
    GByteArray *content;          /* NULL: not known */
    unsigned writing;             /* calls that may be changing it */
    int64_t written;              /* since when it has this content */
};

struct name {
    char *path;
    GPtrArray *holds;   /* not over */
    GPtrArray *calls;   /* pending */
    GPtrArray *handles; /* open */
    GPtrArray *watches;
    uint64_t file[JUDGE_MOUNTS]; /* the number of the file that has the name now, by mount */
    bool link;                   /* it is a symbolic link */
    int64_t last_ended;          /* the end of the last hold; -1: there was none */
    bool last_released, last_broken;
    int64_t broken;                      /* the last break */
    int64_t late_break;                  /* one whose caller was killed may be carried out until then */
    int64_t missed;                      /* the last break whose holder may have released before the answer */
    int64_t elsewhere[JUDGE_MOUNTS];     /* the last revocation of this mount's holder by another mount; 0: never */
    int64_t interrupted;                 /* the last interrupted wait, which the store may not know yet */
    int64_t delayed_from, delayed_until; /* its lock-delay certainly runs; -1: never */
    int64_t guard;                       /* the longest guard that a holder ever set */
    int64_t guarded_from, guarded_until; /* a guard certainly runs, while `guarded` is open */
    const struct handle *guarded;        /* NULL: no guard runs */
    bool foreign;                        /* another client has changed its key */
    bool directory;
    int64_t answered; /* for a directory: when the last call on a name in it was answered; see call_queued_until */
    bool queue;       /* a directory in which there was a ticket */
    GArray *tokens;   /* struct grant: the last ones */
    int64_t ttl;      /* of a directory, if set */
    int64_t delay, delay_least; /* the longest and the shortest that it may have */
    int64_t delay_since;        /* it has one; JUDGE_NEVER: perhaps not */
    int64_t width, width_before, width_changed;
    bool width_unknown;
    int64_t number;     /* the largest of a ticket that is over */
    uint64_t numbering; /* how often its numbers have begun again, or may have */
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
    int64_t since, due;    /* due: JUDGE_NEVER: nothing to report */
    int64_t ended;         /* the earliest time of the end to report */
};

/* A pending call. */
struct call {
    struct judge_call call; /* with copies */
    struct process *process;
    struct name *name, *target;
    struct handle *handle;
    struct hold *attempt;  /* the hold that it may get */
    GPtrArray *ending;     /* the holds that it may be ending */
    int64_t blocked_until; /* by holds that are over */
    bool blocked;
    bool changed;       /* content was written meanwhile, or a holder came or went */
    int64_t signalled;  /* JUDGE_NEVER: not */
    uint64_t file;      /* the number of the file that had the name when it began */
    bool renews;        /* its caller perhaps had a lease when it began */
    bool daemon_gone;   /* its daemon had ended before */
    bool locked_before; /* a lock was requested through its handle before */
    bool waits;         /* without a limit */
    bool owned;         /* the renamed lease is certainly the caller's own */
    GPtrArray *cycle;   /* of certain waits that this one closes */
};

struct mount {
    int64_t since[JUDGE_TROUBLES]; /* JUDGE_NEVER: no fault of that kind */
    int64_t calm;                  /* the end of the last fault */
    int64_t renews;                /* the same without resets, which lengthen no term */
    int64_t ran;                   /* the end of the last fault that stopped the daemon */
    bool died;                     /* a daemon of it died */
    unsigned deaths;               /* how many */
    int64_t full;                  /* the last time that the store was full; -1: never */
    int64_t emptied;               /* when its disk was replaced by an empty one */
    bool dark;                     /* its host lost its power, and no daemon has served since */
};

struct judge {
    struct judge_options options;
    int64_t now;
    uint64_t serial;
    struct mount mounts[JUDGE_MOUNTS];
    GHashTable *processes, *handles, *calls, *names; /* by number, and by path */
    int64_t forgot;                                  /* when the server last lost its data; -1: never */
    unsigned fewer;                                  /* times that JUDGE_FEWER has begun and not ended */
    int64_t all_since;                               /* when all servers were there again */
    int64_t longest;                                 /* the longest term that anything ever had */
    GPtrArray *waits;                                /* pending calls that wait without a limit */
    int64_t given_up;                                /* the last of them that ended with its process */
    GPtrArray *past;                                 /* leases that are over, which the store may still have */
    uint64_t broken[JUDGE_RULES], tried[JUDGE_RULES];
    enum judge_rule first;
};

/* judge: the verdict */
void judge_break(struct judge *judge, enum judge_rule rule, const struct name *name, const char *format, ...)
    G_GNUC_PRINTF(4, 5);
/* Counts that a rule was checked.  Returns `broken`. */
bool judge_rule(struct judge *judge, enum judge_rule rule, bool broken);

/* The watch ends, or its event came: was that too late? */
void judge_watch_late(struct judge *judge, const struct name *name, struct watch *watch);

/* judge_call */
#define CYCLE_MAX 8
/* Do waits lead from the holders that block `call` to the caller of `first`?  Adds the calls on the way to `cycle`. */
bool waits_lead(struct judge *judge, const struct call *call, const struct call *first, bool surely, GPtrArray *cycle,
                unsigned depth);
void wait_ended(struct judge *judge, struct call *call);
/* The hold is new, or its owner has died: pending calls that end others' holds may end it, too. */
void judge_hold_meets_takers(const struct judge *judge, struct hold *hold);
/* The ticket that a path names, if its number is known. */
struct hold *name_ticket(struct judge *judge, const struct name *name);

/* judge_answer */
/* The caller's own lease, which this call renews. */
struct hold *call_renews(const struct judge *judge, const struct call *call);
/* "500ms", "2s", "30". */
int64_t judge_duration(const char *text, size_t size);
/* A wait ends, or the world does: was it stuck before? */
void call_check_wait(struct judge *judge, const struct call *call, int error);
void call_check_time(struct judge *judge, const struct call *call, const struct judge_answer *answer);

/* judge_world */
struct process *judge_process(struct judge *judge, uint32_t id);
struct handle *judge_handle(struct judge *judge, uint64_t id);
struct name *judge_name(struct judge *judge, const char *path);
/* A directory was removed: the numbers of another with that name begin again. */
void judge_name_removed(const struct judge *judge, struct name *name);
struct name *judge_parent(struct judge *judge, const struct name *name);
/* Is `process` the ancestor itself or a descendant of it?  `strictly`: with all processes between them alive. */
bool process_descends(const struct process *process, const struct process *ancestor, bool strictly);
bool process_lives(const struct process *process);
struct handle *judge_open(struct judge *judge, uint64_t id, struct call *call, int64_t when);
/* Closes one descriptor of the process; true if it was the handle's last one. */
bool judge_close_one(struct judge *judge, struct process *process, struct handle *handle, int64_t when);
bool mount_troubled(const struct judge *judge, uint32_t mount);
/* Had the mount no fault since `from`, and none just before that may still have effects? */
bool mount_calm(const struct judge *judge, uint32_t mount, int64_t from);
bool judge_calm(const struct judge *judge, int64_t from); /* all mounts */
/* The same but for resets: what nobody renews has ended. */
bool judge_renews(const struct judge *judge, int64_t from);
/* When all faults were over for so long that the store has opened again, and locks of before them are kept or gone;
 * JUDGE_NEVER: one is on. */
int64_t judge_recovered(const struct judge *judge);
/* May its mount not know yet that another mount has ended its lock? */
bool judge_call_is_late(const struct judge *judge, const struct call *call, const struct name *name);
/* Did the store lose data so recently that ended locks may be restored? */
bool judge_has_forgot(const struct judge *judge, int64_t from);
void judge_free_name(void *name);
void judge_free_process(void *process);

/* judge_hold */
struct hold *judge_hold_new(struct judge *judge, struct name *name, const struct claim *claim, int64_t when);
void judge_hold_free(void *hold);
void judge_hold_begin(struct judge *judge, struct hold *hold, int64_t when);
/* While this call is pending, inotify may not report the end of a file. */
void judge_call_hides_ends(struct judge *judge, const struct call *call);
/* It is over at `ended`, by a call (`released`) or a limit of time. */
void judge_hold_end(struct judge *judge, struct hold *hold, int64_t may_end, int64_t ended, bool released);
/* It was lost against its holder's will, which poll(2) must report. */
void judge_hold_expect_report(struct judge *judge, const struct hold *hold);
/* Its latest possible end, by what is known now. */
int64_t judge_hold_end_at_latest(const struct judge *judge, const struct hold *hold);
bool judge_hold_certain(const struct judge *judge, const struct hold *hold, int64_t from);
/* The same, and the store has it: after it forgot, a name may show no lock until its mount has restored it. */
bool judge_hold_shown(const struct judge *judge, const struct hold *hold, int64_t from);
/* How long its mount keeps it without an answer of the store; and its earliest possible last renewal, which comes every
 * third of a term. */
int64_t judge_hold_term(const struct judge *judge, const struct hold *hold);
int64_t judge_hold_renewed(const struct judge *judge, const struct hold *hold, int64_t term);
/* Until when the mount keeps it although it cannot be renewed. */
int64_t judge_hold_assured(const struct judge *judge, const struct hold *hold);
bool judge_hold_possible(const struct judge *judge, const struct hold *hold, int64_t from);
/* A handle that was open on its name was closed. */
void judge_hold_handle_closed(struct hold *hold, const struct handle *handle, int64_t when);
/* Is a call pending that may get it? */
bool judge_hold_is_requested(const struct hold *hold);
void judge_hold_steady(struct hold *hold, int64_t when);
/* Does it exclude the claim?  `surely`: by no rule they can be compatible. */
bool judge_hold_excludes(const struct hold *hold, const struct claim *claim, bool surely);
/* Did it take the lock, or open the file that has it, or may it own the lease? */
bool judge_hold_belongs_to(const struct hold *hold, const struct process *process);
bool judge_hold_may_end(const struct judge *judge, const struct hold *hold, const struct process *process,
                        uint32_t mount);
bool judge_hold_must_end(const struct judge *judge, const struct hold *hold, const struct process *process,
                         uint32_t mount);
/* Its daemon died; or is just dying, and has granted it nevertheless. */
void judge_hold_daemon_died(struct judge *judge, struct hold *hold);
/* Does `process` (NULL: any process) have its file open, since before its daemon's death? */
void judge_survivor_check(struct judge *judge, struct hold *hold);
bool judge_survivor_is_open(const struct judge *judge, const struct hold *hold, const struct process *process);
void judge_hold_owner_died(struct judge *judge, struct hold *hold, struct process *process);
/* The token was read of that hold. */
void judge_hold_token(struct judge *judge, struct hold *hold, int64_t token);
/* The only hold that was possible since `from`, or NULL. */
struct hold *name_only(const struct judge *judge, const struct name *name, int64_t from);
/* May the name be refused, since `from`, for its directory's lock-delay? */
bool name_is_delayed(const struct judge *judge, const struct name *name, int64_t from);
/* The same for who waits for `claimed`, which it has not had yet. */
bool name_is_delayed_for(const struct judge *judge, const struct name *name, int64_t from, const struct hold *claimed);
/* The same of its tickets. */
bool queue_is_delayed(const struct judge *judge, const struct name *queue, int64_t from);
/* Is a break of its holder pending? */
bool name_is_being_broken(const struct name *name);
/* A certain hold of it is broken, by a call that began then. */
void name_begin_delay(struct judge *judge, struct name *name, int64_t when);
void name_begin_guard(struct judge *judge, const struct hold *hold, int64_t when);
/* How long it may be refused after a revocation. */
int64_t name_guard(const struct judge *judge, const struct name *name);
/* Its guard may have ended. */
void name_end_guard(struct name *name, int64_t when);
/* Frees holds that are over, unless a disk may bring them back. */
void name_prune(struct judge *judge, struct name *name);
/* The end of the mount's journal was lost, so the lease that ended last may exist again; after a power cut, any number
 * of ended leases. */
void judge_hold_comes_back(struct judge *judge, uint32_t mount, bool power);

/* judge_look */
void look_answered(struct judge *judge, struct call *call, const struct judge_answer *answer);
void look_errno(struct judge *judge, const struct call *call, const struct judge_answer *answer);
/* A call shows that the name is not held. */
void look_absent(struct judge *judge, const struct name *name, const struct call *call);
/* A call was refused, or saw the name: which hold explains it? */
void look_present(struct judge *judge, const struct name *name, const struct call *call, const struct claim *claim);

#endif
