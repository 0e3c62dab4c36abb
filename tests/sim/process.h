/* process: the processes of simulated programs, and what a daemon can learn of them (in place of fs/process/process.c).
 *
 * A process has threads, each a task.  It becomes a zombie when the last has ended, and is gone when its parent has
 * waited for it.  There are few pids, so that they are used again soon.
 */
#ifndef TESTS_SIM_PROCESS_H
#define TESTS_SIM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/sim/world.h"

#define PROCESS_DESCRIPTORS 8
#define PROCESS_THREADS 2

struct kernel_file;
struct task;

enum process_state { PROCESS_RUNS, PROCESS_EXITS, PROCESS_ZOMBIE, PROCESS_GONE };

struct process {
    struct host *host;
    uint32_t number; /* never used again */
    unsigned references;
    pid_t pid, session;
    uint64_t start;         /* the inode of its pidfd */
    struct process *parent; /* counted; NULL: pid 1 */
    uid_t uid;
    mode_t umask;
    char command[16];
    enum process_state state;
    bool reaped; /* its status can be asked for */
    int status;
    bool no_memory; /* do_exit has given it up */
    struct kernel_file *files[PROCESS_DESCRIPTORS];
    bool closes[PROCESS_DESCRIPTORS];        /* on exec */
    struct thread *threads[PROCESS_THREADS]; /* of user.c; NULL: none */
};

/* With one reference, which process_is_gone gives back. */
struct process *process_new(struct host *host, struct process *parent, uid_t uid);
struct process *process_ref(struct process *process);
void process_unref(struct process *process);
/* The number of a thread. */
pid_t process_tid(const struct process *process, unsigned thread);

/* All its threads have ended. */
void process_is_zombie(struct process *process);
void process_is_gone(struct process *process);

/* What a daemon wants to know the end of; see fs/process/process.h. */
struct process_watch;
bool process_watch_is_ready(struct process_watch *watch);
void process_watch_free(struct process_watch *watch);
/* The pidfd is closed. */
void process_unwatch(int pidfd);

/* The processes of all hosts, in order of their making, but those that are gone. */
struct process *process_nth(size_t which);

#endif
