/* owner: identity, life and ancestors of a process.
 *
 * A process is identified by its pid and a number that differs for each start of that
 * pid, so a reused pid is never mistaken for it.  The kernel names the *thread* that
 * sent a request; identities here are those of its process (Tgid).
 *
 * Reading /proc costs 5 to 35 microseconds.  So identities are kept in a table as long
 * as they have a reference, and beyond that a few hundred recent ones.  A pidfd shows
 * when a process has ended (a zombie has).  Without free file descriptors the kernel is
 * asked by pid instead.
 *
 * No call blocks, not even on a process that waits for us in execve(2): see process.h,
 * which also says what it needs of /proc.
 *
 *     owner  identities, and references to them    process  reads a process's state from the kernel
 */
#ifndef FS_PROCESS_OWNER_H
#define FS_PROCESS_OWNER_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "fs/process/process.h"

#define OWNER_COMMAND_MAX 16 /* TASK_COMM_LEN */

struct owner_table; /* opaque */

/* A process; counted.  The fields belong to owner.c. */
struct owner {
    struct owner_table *table;
    struct owner *parent; /* counted, as last read; NULL: not read, or `rootless` */
    TAILQ_ENTRY(owner) recent;
    uint64_t start;     /* 0: not known yet, because it was in execve(2); its pidfd or the table pins the identity */
    int64_t status_at;  /* when /proc/PID/status was last read */
    int64_t alive_at;   /* when it last was alive for certain */
    int64_t heirs_seen; /* when `heirs` was counted */
    int64_t took_at;    /* when owner_heirs was last called for it, */
    struct process_job job; /* and what it belonged to */
    GPtrArray *orphans;     /* see owner_orphans; or NULL */
    uint32_t references;    /* 0: in table->recent */
    uint32_t heirs;         /* how many of its ancestors, beginning with itself, inherit from their children */
    pid_t pid;
    pid_t first_parent;  /* its parent's pid when its status was read; 0: read again since */
    int pidfd;           /* -1: no free descriptor */
    int statm;           /* /proc/PID/statm; -1: not open */
    uint8_t exit_checks; /* how often owner_thread_is_exiting was called for it */
    bool rootless;       /* its parent is in another pid namespace */
    bool dead;
    bool failed;  /* it ended by a signal, or with a status other than 0 */
    bool watched; /* report its end */
    bool is_part; /* a part of its parent, whose end counts instead: see owner_note_part */
    char command[OWNER_COMMAND_MAX];
};

struct owner_table *owner_table_new(void);
/* All references must be given back first.  NULL is allowed. */
void owner_table_free(struct owner_table *table);

/* The process of the thread `tid`, with a new reference.  NULL if tid is 0 (another pid namespace), if there is no such
 * thread any more, or if /proc does not show it. */
struct owner *owner_get(struct owner_table *table, pid_t tid);

/* A process by its identity as a store kept it, alive or not; never NULL.  With a NULL command, that of the process if
 * it lives. */
struct owner *owner_restore(struct owner_table *table, pid_t pid, uint64_t start, const char *command);

/* For owner_ref and owner_unref.  An owner without references is kept for a while, or freed. */
void owner_on_first_ref(struct owner *owner);
void owner_on_last_unref(struct owner *owner);

static inline struct owner *owner_ref(struct owner *owner)
{
    if (owner->references++ == 0) {
        owner_on_first_ref(owner);
    }
    return owner;
}

/* NULL is allowed. */
static inline void owner_unref(struct owner *owner)
{
    if (owner && --owner->references == 0) {
        owner_on_last_unref(owner);
    }
}

static inline pid_t owner_pid(const struct owner *owner)
{
    return owner->pid;
}

/* Reads a start that is not known yet. */
uint64_t owner_read_start(struct owner *owner);

/* Distinguishes processes of one boot; 0: not known yet. */
static inline uint64_t owner_start(struct owner *owner)
{
    return owner->start ? owner->start : owner_read_start(owner);
}

/* Returns its pid, and sets *ret_start to owner_start. */
static inline pid_t owner_identity(struct owner *owner, uint64_t *ret_start)
{
    *ret_start = owner_start(owner);
    return owner->pid;
}

/* Are they the same process?  False if either is NULL. */
bool owner_is_same(struct owner *a, struct owner *b);

/* Its name; of flock(1) and leaserun(1), that of the command which they run, as soon as it is known. */
const char *owner_command(struct owner *owner);
/* Will owner_command change, because it is such a program, whose command is not known yet? */
bool owner_is_wrapper(const struct owner *owner);

/* Calls `ended` with a pid when a process of owner_watch has ended, from owner_table_check or from any call that
 * notices it.  The descriptor (-1: there is none) is readable when owner_table_check has something to do. */
void owner_table_on_ended(struct owner_table *table, void (*ended)(void *arg, pid_t pid), void *arg);
int owner_table_descriptor(const struct owner_table *table);
void owner_table_check(struct owner_table *table);

/* Has its end reported, once.  False: it has ended, or its end is only seen by asking. */
bool owner_watch(struct owner *owner);

/* Asks the kernel each time: one system call. */
bool owner_alive(struct owner *owner);

enum owner_end {
    OWNER_LIVES,
    OWNER_UNREAPED, /* ended; its exit status is known after its parent's wait(2) */
    OWNER_EXITED,   /* with status 0, or an unknown one (before Linux 6.15); or a part of its parent */
    OWNER_FAILED,   /* with another status, or by a signal */
};

enum owner_end owner_end(struct owner *owner);

/* The processes that inherit a lease if its acquirer exits within the first second, in order: its parent, its parent's
 * parent and so on, across process groups and sessions.
 *
 * From the second heir on, the list ends before a child of pid 1 in another session than
 * the first heir (cron, sshd, a tmux server), because that lives for ever.  pid 1 itself
 * inherits only if it is not the machine's init: as the parent, or in the parent's session.
 *
 * Writes at most `max` new references, and returns how many.  Reads /proc; the result is
 * kept for the next call, also for other children of the first heir, while that lives.
 */
size_t owner_heirs(struct owner *owner, struct owner **ret_heirs, size_t max);

/* The children that a process left when it ended within a second of owner_heirs; NULL: none are known.  They stay
 * descendants of its parent.
 *
 * The kernel has given an orphan to another parent by the time the end is seen.  So an orphan is: a child that sent a
 * request before, or that owner_note_children found; or, of the processes that pid 1 or an ancestor outside the session
 * has got, one of the same session and process group that is younger than the ended process.  Needs
 * CONFIG_PROC_CHILDREN. */
static inline const GPtrArray *owner_orphans(const struct owner *owner)
{
    return owner->orphans;
}

/* For a process that is exiting, and still has its children. */
void owner_note_children(struct owner *owner);

/* Is `owner` a descendant of `ancestor`, by the present chain of parents, or the same process? */
bool owner_descends(struct owner *owner, struct owner *ancestor);

/* Is `uid` the user with which it uses files now?  False if it has ended. */
bool owner_has_uid(struct owner *owner, uid_t uid);

/* The process's present umask. */
#define OWNER_UMASK_USUAL 022 /* where the kernel does not show it */
mode_t owner_umask(struct owner *owner);

/* Has it only one thread, so that nothing of it runs while that waits?  False if it has ended. */
bool owner_is_single_threaded(struct owner *owner);

/* Is this one of its present supplementary groups?  False if it has ended. */
bool owner_in_group(struct owner *owner, gid_t group);

/* Is this thread exiting, so that the kernel has taken its memory away?  The kernel closes its descriptors after that;
 * such a close is not a close(2) of the program.  Also true if the thread is gone. */
bool owner_thread_is_exiting(struct owner_table *table, pid_t tid);
/* Has it a fatal signal?  Also true if it is gone. */
bool owner_thread_is_killed(struct owner_table *table, pid_t tid);

#endif
