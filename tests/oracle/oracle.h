/* oracle: random lock programs run on tmpfs and on mounts, and must get the same answers.  The kernel's own locks are
 * the oracle.
 *
 * A program is a list of steps by up to six processes that share open files by fork, lock with flock(2), POSIX and open
 * file description locks, wait, are interrupted, call exec and are killed.  A step is done on tmpfs first, and on the
 * mount when no process moves there any more.  The mount must give the same answer, or none yet as well; and the same
 * waiters must continue.  A call waits if its process sleeps without an answer; the time that it takes says nothing.
 *
 * The contract differs from Linux here, and this is not compared:
 *
 *  - A claim queues behind an earlier waiter with which it conflicts.  Linux grants it if no holder conflicts: a
 *    program ends where Linux does that ("overtaken"), after the mount has queued a process that holds nothing.  So
 *    F_GETLK shows a waiter that would block.
 *  - A flock(2) that shares, and is refused or waits to be exclusive, is kept on the mount, and given up by Linux: one
 *    that is refused is taken again on tmpfs, and a program ends where one waits ("gives up what is shared").
 *  - The end of a flock, of an open file description lock and of a killed process follows the last close a moment
 *    later: what is refused on the mount after one is asked again for a while.
 *  - Linux tells any of several locks that are in the way, the mount that with the lowest range.
 *  - Of an open file description lock Linux tells no process, the mount the one that took it; to who asks for such a
 *    lock it tells none.  A lock that was taken through another mount has no process here.
 *  - flock and record locks exclude each other on the mount, also those of one process unless by one open file: a file
 * is used for one of both.
 *  - Content ends with its lock, and is no file's: it is not compared.
 *  - A file that is opened for writing is held for a moment: a lock that is tried at once decides that.
 *  - Cycles of waits are found within one mount, there all of them, and through open file descriptions, too: Linux
 *    looks at one of several locks that are in the way, and not at those ("circle").
 *  - A process of one thread that would wait for what it holds itself, by another open file, gets EDEADLK.  Linux
 * lets it wait for good ("circle").
 *
 *     oracle   the programs: made, run, compared, made smaller
 *     program  their steps: at random, in words
 *     side     processes on one side, and whether they wait
 *     worker   what such a process does
 *     kernel   what /proc/locks tells of a file
 */
#ifndef TESTS_ORACLE_ORACLE_H
#define TESTS_ORACLE_ORACLE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "tests/stress/stress.h"

enum {
    SLOTS = 6,        /* processes of a program */
    FLOCK_FILES = 2,  /* descriptors 0 to 3 are of the first files, */
    RECORD_FILES = 2, /* 4 to 7 of the others */
    DESCRIPTORS = 8,
    STEPS_MAX = 46,
    BYTES = 8,      /* of a record file are locked, and all behind them */
    DECIDES = 1000, /* the byte that decides what an open has begun */
};

enum what {
    STEP_OPEN,
    STEP_DUP,
    STEP_CLOSE,
    STEP_FORK,
    STEP_EXEC,
    STEP_EXIT,
    STEP_KILL,
    STEP_SIGNAL,
    STEP_FLOCK,
    STEP_SETLK,
    STEP_GETLK,
    STEP_CLEAR, /* not in programs: closes all */
};

struct step {
    uint8_t what, slot;
    uint8_t descriptor;
    uint8_t other;         /* dup: the new one; open: which file of the two */
    uint8_t flags;         /* open: O_ACCMODE; flock: LOCK_SH, LOCK_EX, LOCK_UN */
    uint8_t type;          /* F_RDLCK, F_WRLCK, F_UNLCK */
    uint8_t start, length; /* length 0: to the end */
    bool waits, ofd, cloexec;
};

struct program {
    uint64_t seed;
    uint32_t processes; /* to begin with */
    uint32_t count;
    struct step steps[STEPS_MAX];
};

struct program program_random(uint64_t seed);
void program_print_step(const struct step *step, FILE *out);

/* --- worker */

struct request {
    struct step step;
    uint32_t number; /* of the program: its files */
};

struct probe_answer {
    int32_t type, whence;
    int64_t start, length;
    int32_t pid;
};

struct answer {
    int32_t error;
    int32_t pid;                  /* fork: the child */
    struct probe_answer reported; /* GETLK */
};

/* What a worker needs to know; given by arguments to one that executes itself again. */
struct worker {
    int channels[2 * SLOTS]; /* of those that the side starts, and of those that fork */
    uint32_t index;          /* of this one's channel */
    const char *directory;   /* where its files are, and those of its forks */
};
_Noreturn void worker_begin(struct worker *worker);
_Noreturn void worker_run(struct worker *worker);
/* main() of one that was executed again. */
_Noreturn void worker_again(char **arguments);

/* --- side */

enum state { STATE_NONE, STATE_READY, STATE_WAITS };

struct side {
    const char *directories[SLOTS];
    bool remote; /* a store elsewhere: what is done follows by messages */
    struct worker worker;
    int ours[2 * SLOTS]; /* our ends of the channels: of those that the side starts, and of forks */
    pid_t pids[2 * SLOTS];
    int pidfds[2 * SLOTS], stats[2 * SLOTS]; /* of that process; -1: none */
    enum state states[SLOTS];
    uint32_t channel[SLOTS]; /* which one the slot uses */
    pid_t seen[64];          /* all processes of this program, and their slots */
    uint32_t seen_slots[64], seen_count;
};

void side_channels(struct side *side);
void side_stop(struct side *side);
/* A program begins, with so many processes; and ends. */
void side_begin(struct side *side, uint32_t processes);
void side_end(struct side *side);
/* Sends the step to the slot's process. */
void side_tell(struct side *side, uint32_t slot, const struct step *step, uint32_t number);
/* Has it answered, or does it within so many ms? */
bool side_heard(struct side *side, uint32_t slot, int ms, struct answer *ret_answer);
/* Returns when it has answered (true), or sleeps in its step. */
bool side_settled(struct side *side, uint32_t slot, struct answer *ret_answer);
/* The process is gone when this returns. */
void side_kill(struct side *side, uint32_t slot);
void side_await_end(struct side *side, uint32_t slot);
void side_signal(struct side *side, uint32_t slot);
void side_forked(struct side *side, uint32_t child, pid_t pid);
/* Returns when the mounts have read all earlier requests and, as far as this process can see, have done them. */
void side_barrier(struct side *side);
/* Of this program's process, alive or not; -1: none. */
int side_slot_of(const struct side *side, pid_t pid);

/* --- kernel */

struct kernel_lock {
    bool ofd, shared;
    pid_t pid;
    int64_t start, end; /* inclusive; INT64_MAX: to the end */
};
/* The record locks of a file on tmpfs; how many. */
size_t kernel_locks(const char *path, struct kernel_lock *locks, size_t size);

#endif
