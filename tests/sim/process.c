/* process: the processes of simulated programs; see process.h.  fs/process/process.h has the functions for daemons. */
#include "tests/sim/process.h"

#include <errno.h>
#include <ev.h>
#include <glib.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "fs/process/process.h"
#include "tests/sim/descriptor.h"
#include "tests/sim/kernel.h"

/* Those of a host: 100 to 163, in a ring; a thread's own number is 1000 and more above its process's. */
#define PROCESS_PID_FIRST 100
#define PROCESS_PIDS 48
#define PROCESS_THREAD_STEP 1000

static struct {
    GPtrArray *all; /* not gone */
    uint32_t made;
    unsigned next_pid;
} processes;

static struct process *process_find(const struct host *host, pid_t pid)
{
    for (guint i = 0; processes.all && i < processes.all->len; i++) {
        struct process *process = g_ptr_array_index(processes.all, i);
        if (process->host == host && process->pid == pid) {
            return process;
        }
    }
    return NULL;
}

struct process *process_new(struct host *host, struct process *parent, uid_t uid)
{
    struct process *process = g_new0(struct process, 1);
    if (!processes.all) {
        processes.all = g_ptr_array_new();
    }
    process->host = host;
    process->number = ++processes.made;
    process->start = 4000 + process->number;
    process->references = 1;
    do {
        process->pid = PROCESS_PID_FIRST + (pid_t)(processes.next_pid++ % PROCESS_PIDS);
    } while (process_find(host, process->pid));
    process->parent = parent ? process_ref(parent) : NULL;
    process->session = parent ? parent->session : process->pid;
    process->uid = uid;
    process->umask = parent ? parent->umask : 022;
    g_snprintf(process->command, sizeof process->command, "prog%u", process->number);
    g_ptr_array_add(processes.all, process);
    return process;
}

struct process *process_ref(struct process *process)
{
    process->references++;
    return process;
}

void process_unref(struct process *process)
{
    if (process && --process->references == 0) {
        process_unref(process->parent);
        g_free(process);
    }
}

pid_t process_tid(const struct process *process, unsigned thread)
{
    return process->pid + (pid_t)thread * PROCESS_THREAD_STEP;
}

void process_is_zombie(struct process *process)
{
    process->state = PROCESS_ZOMBIE;
    for (guint i = 0; i < processes.all->len; i++) {
        struct process *child = g_ptr_array_index(processes.all, i);
        if (child->parent == process) {
            child->parent = NULL; /* pid 1's */
            process_unref(process);
        }
    }
}

void process_is_gone(struct process *process)
{
    process->state = PROCESS_GONE;
    process->reaped = true;
    g_ptr_array_remove(processes.all, process);
    process_unref(process);
}

struct process *process_nth(size_t which)
{
    return processes.all && which < processes.all->len ? g_ptr_array_index(processes.all, which) : NULL;
}

/* --- what a daemon asks ----------------------------------------------------------------- */

static struct process *process_of(pid_t tid)
{
    return process_find(world_host(), tid % PROCESS_THREAD_STEP);
}

/* Of one daemon: the pidfds whose end it wants to know. */
struct process_watch {
    struct process_watched {
        int pidfd;
        void *data; /* NULL: its end was reported; it stays until it is closed, as with EPOLLONESHOT */
    } watched[1024];
    size_t count;
};

static GPtrArray *watches;

void process_unwatch(int pidfd)
{
    for (guint i = 0; watches && i < watches->len; i++) {
        struct process_watch *watch = g_ptr_array_index(watches, i);
        for (size_t j = watch->count; j-- > 0;) {
            if (watch->watched[j].pidfd == pidfd) {
                watch->watched[j] = watch->watched[--watch->count];
            }
        }
    }
}

void process_watch_free(struct process_watch *watch)
{
    g_ptr_array_remove(watches, watch);
    g_free(watch);
}

static struct process_watched *watch_find_ended(struct process_watch *watch)
{
    for (size_t i = 0; i < watch->count; i++) {
        const struct process *process = descriptor_object(watch->watched[i].pidfd, DESCRIPTOR_PIDFD);
        if (watch->watched[i].data && process && process->state >= PROCESS_ZOMBIE) {
            return &watch->watched[i];
        }
    }
    return NULL;
}

bool process_watch_is_ready(struct process_watch *watch)
{
    return watch_find_ended(watch) != NULL;
}

void process_open(struct process_reader *reader)
{
    struct process_watch *watch = g_new0(struct process_watch, 1);
    watches = watches ? watches : g_ptr_array_new();
    g_ptr_array_add(watches, watch);
    *reader = (struct process_reader){
        .proc = -1, .spare = -1, .ended = descriptor_new(DESCRIPTOR_WATCH, watch), .pidfs = true};
}

void process_close(struct process_reader *reader)
{
    descriptor_close(reader->ended);
}

int process_watch(struct process_reader *reader, int pidfd, void *data)
{
    struct process_watch *watch = descriptor_object(reader->ended, DESCRIPTOR_WATCH);
    for (size_t i = 0; i < watch->count; i++) {
        if (watch->watched[i].pidfd == pidfd) {
            return -EEXIST;
        }
    }
    if (watch->count == G_N_ELEMENTS(watch->watched)) {
        return -ENOSPC;
    }
    watch->watched[watch->count++] = (struct process_watched){pidfd, data};
    return 0;
}

void *process_next_ended(struct process_reader *reader)
{
    struct process_watch *watch = descriptor_object(reader->ended, DESCRIPTOR_WATCH);
    struct process_watched *ended = watch_find_ended(watch);
    void *data = ended ? ended->data : NULL;
    if (ended) {
        ended->data = NULL;
    }
    return data;
}

int process_status(struct process_reader *reader, pid_t tid, struct process_status *ret_status)
{
    const struct process *process = process_of(tid);
    (void)reader;
    if (tid == 1) {
        *ret_status = (struct process_status){.group = 1, .parent = 0, .command = "init"};
        return 0;
    }
    if (!process) {
        return -ENOENT;
    }
    *ret_status = (struct process_status){.group = process->pid, .parent = process->parent ? process->parent->pid : 1};
    g_strlcpy(ret_status->command, process->command, sizeof ret_status->command);
    return 0;
}

int process_identify(struct process_reader *reader, pid_t pid, uint64_t *ret_start, int *ret_pidfd)
{
    static struct process init = {.references = 1, .pid = 1, .start = 1};
    struct process *process = pid == 1 ? &init : process_find(world_host(), pid);
    (void)reader;
    if (!process || process->state >= PROCESS_ZOMBIE) {
        return -ESRCH;
    }
    *ret_start = process->start;
    if (ret_pidfd) {
        *ret_pidfd = descriptor_new(DESCRIPTOR_PIDFD, process_ref(process));
    }
    return 0;
}

int process_uid(struct process_reader *reader, pid_t pid, uid_t *ret_uid)
{
    const struct process *process = process_of(pid);
    (void)reader;
    *ret_uid = process ? process->uid : 0;
    return process ? 0 : -ENOENT;
}

int process_umask(struct process_reader *reader, pid_t pid, mode_t *ret_mask)
{
    const struct process *process = process_of(pid);
    (void)reader;
    if (!process) {
        return -ENOENT;
    }
    *ret_mask = process->umask;
    return 0;
}

unsigned process_threads(struct process_reader *reader, pid_t pid)
{
    const struct process *process = process_of(pid);
    unsigned count = 0;
    (void)reader;
    for (size_t i = 0; process && i < PROCESS_THREADS; i++) {
        count += process->threads[i] != NULL;
    }
    return count;
}

bool process_in_group(struct process_reader *reader, pid_t pid, gid_t group)
{
    (void)reader, (void)pid, (void)group;
    return false;
}

/* In a world nobody outlives the parent that took a lease. */
size_t process_children(struct process_reader *reader, pid_t pid, pid_t *ret_children, size_t max)
{
    (void)reader, (void)pid, (void)ret_children, (void)max;
    return 0;
}

struct process_job process_job(pid_t pid)
{
    const struct process *process = process_of(pid);
    return process ? (struct process_job){process->session, process->session} : (struct process_job){-1, -1};
}

/* No process of a world is flock(1) or leaserun(1). */
int process_child_command(struct process_reader *reader, pid_t pid, char ret_command[PROCESS_COMMAND_MAX])
{
    (void)reader, (void)pid;
    ret_command[0] = '\0';
    return -ENOENT;
}

int process_wait_status(int pidfd, int *ret_status)
{
    const struct process *process = descriptor_object(pidfd, DESCRIPTOR_PIDFD);
    if (!process->reaped) {
        return -EAGAIN;
    }
    *ret_status = process->status;
    return 0;
}

bool process_sees_itself(void)
{
    return true;
}

pid_t process_pid_max(void)
{
    return 0;
}

bool process_first_is_init(void)
{
    return true;
}

int process_exiting(struct process_reader *reader, pid_t tid, int statm)
{
    const struct process *process = process_of(tid);
    (void)reader, (void)statm;
    return !process || process->no_memory;
}

bool process_is_killed(struct process_reader *reader, pid_t tid)
{
    const struct process *process = process_of(tid);
    const struct thread *thread = process ? process->threads[(tid - process->pid) / PROCESS_THREAD_STEP] : NULL;
    (void)reader;
    return !thread || thread->killed;
}

int process_keep_statm(struct process_reader *reader, pid_t tid)
{
    (void)reader, (void)tid;
    return -1;
}

/* --- in place of the C library ------------------------------------------------------------ */

int __wrap_tgkill(pid_t pid, pid_t tid, int signal);
pid_t __wrap_getsid(pid_t pid);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);

int __wrap_tgkill(pid_t pid, pid_t tid, int signal)
{
    const struct process *process = process_of(tid);
    (void)signal;
    if (process && process->pid == pid && process->threads[(tid - pid) / PROCESS_THREAD_STEP]) {
        return 0;
    }
    errno = ESRCH;
    return -1;
}

pid_t __wrap_getsid(pid_t pid)
{
    const struct process *process = process_of(pid);
    return process ? process->session : pid == 1 ? 1 : -1;
}

/* process_has_ended asks it of a pidfd, redis_link_is_read of a connection. */
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout)
{
    const struct process *process = descriptor_object(fds->fd, DESCRIPTOR_PIDFD);
    (void)count, (void)timeout;
    return process ? process->state >= PROCESS_ZOMBIE : (descriptor_ready(fds->fd) & EV_READ) != 0;
}
