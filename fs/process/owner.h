/* owner: which process is this, is it alive, whose descendant is it.
 *
 * A process is its pid plus a number that tells which start of that pid it is,
 * so a reused pid is never mistaken for it.  The kernel names the *thread* that
 * made a request; identities here are of the process it belongs to (Tgid).
 *
 * Reading /proc costs 5 to 35 microseconds, so identities are kept in a table as
 * long as somebody holds a reference, and a few hundred recent ones beyond that;
 * a pidfd says when a process has ended (a zombie has).  When file descriptors
 * run out the kernel is asked again by pid instead.
 *
 * No call blocks, not even on a process that waits for us in execve(2): see
 * process.h, which also says what is needed of /proc.
 *
 *     owner  who it is, and who is told of it    process  what the kernel tells of a process, now
 */
#ifndef FS_PROCESS_OWNER_H
#define FS_PROCESS_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#define OWNER_COMMAND_MAX 16 /* TASK_COMM_LEN */

struct owner_table; /* opaque */

/* A process; counted.  The fields belong to owner.c. */
struct owner {
    struct owner_table *table;
    struct owner *parent; /* as last read, with a reference; NULL: not read, or `rootless` */
    TAILQ_ENTRY(owner) recent;
    uint64_t start;      /* 0: not known yet, as it was in execve(2); its pidfd or the table pins it */
    int64_t met;         /* when its status was read */
    int64_t seen;        /* when it was last known to live */
    int64_t heirs_seen;  /* when `heirs` was counted */
    uint32_t references; /* 0: it is in table->recent */
    uint32_t heirs;      /* so many of the chain that begins with it inherit from its children */
    pid_t pid;
    pid_t first_parent;  /* its parent's when it was `met`; 0: it has been asked for since */
    int pidfd;           /* -1: none to spare */
    int statm;           /* -1: not kept */
    uint8_t exit_checks; /* how often for being on its way out */
    bool rootless;       /* its parent is in another pid namespace */
    bool dead;
    bool failed;  /* it ended by a signal, or with another status than 0 */
    bool is_part; /* of its parent, whose end counts instead: see owner_note_part */
    char command[OWNER_COMMAND_MAX];
};

struct owner_table *owner_table_new(void);
/* All references must have been given back.  NULL is allowed. */
void owner_table_free(struct owner_table *table);

/* The process of the thread `tid`, with a new reference; NULL if tid is 0
 * (another pid namespace), no such thread is there any more, or /proc does not
 * show it. */
struct owner *owner_get(struct owner_table *table, pid_t tid);

/* A process by identity, alive or not, as read back from a store; never NULL.  A
 * command of NULL was not stored: it is that of the process, if it lives. */
struct owner *owner_restore(struct owner_table *table, pid_t pid, uint64_t start, const char *command);

/* What was without a reference has one; what has none any more is kept for a while, or freed. */
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

/* Of one whose start is not known yet: asks again. */
uint64_t owner_read_start(struct owner *owner);

/* Means something within one boot; 0: not known yet. */
static inline uint64_t owner_start(struct owner *owner)
{
    return owner->start ? owner->start : owner_read_start(owner);
}

/* Its pid, and owner_start. */
static inline pid_t owner_identity(struct owner *owner, uint64_t *ret_start)
{
    *ret_start = owner_start(owner);
    return owner->pid;
}

/* Are they the same process?  Either may be NULL, which is nobody. */
bool owner_is_same(struct owner *a, struct owner *b);
static inline const char *owner_command(const struct owner *owner)
{
    return owner->command;
}

/* Asked of the kernel each time (one system call). */
bool owner_alive(struct owner *owner);

enum owner_end {
    OWNER_LIVES,
    OWNER_UNREAPED, /* it has ended, and how is told once its parent has waited for it */
    OWNER_EXITED,   /* with status 0, or the kernel does not tell (before Linux 6.15); or a part of its parent */
    OWNER_FAILED,   /* with another status, or by a signal */
};

enum owner_end owner_end(struct owner *owner);

/* Who inherits a lease when its acquirer exits within the first second, in order:
 * its parent, then that one's, across process groups and sessions.  From the
 * second on not a child of pid 1 that is in another session than the first, as
 * it lives for ever (cron, sshd, a tmux server), nor anybody above it.  pid 1
 * only where it is not the machine's init, as the parent or in the parent's
 * session.  Read now, with new references, at most `max`; returns how many.
 * Kept from call to call, also for the first heir's other children, while it lives. */
size_t owner_heirs(struct owner *owner, struct owner **ret_heirs, size_t max);

/* Is `owner` a descendant of `ancestor` (by the chain of parents as it is now),
 * or the same process? */
bool owner_descends(struct owner *owner, struct owner *ancestor);

/* The umask of a process, as it is now. */
#define OWNER_UMASK_USUAL 022 /* where the kernel does not tell */
mode_t owner_umask(struct owner *owner);

/* Has it one thread, so that nothing else of it goes on while that waits?  False when it has ended. */
bool owner_is_single_threaded(struct owner *owner);

/* Is this one of its supplementary groups, now?  False when it has ended. */
bool owner_in_group(struct owner *owner, gid_t group);

/* Is this thread on its way out: has the kernel taken its memory away?  It does
 * so after setting PF_EXITING, and closes the descriptors next, which is not a
 * close(2) that the program asked for.  True also when it is gone. */
bool owner_thread_is_exiting(struct owner_table *table, pid_t tid);

#endif
