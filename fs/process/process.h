/* process: reads a process's state from the kernel, and never blocks.
 *
 * That rules out /proc/PID/stat, the usual source of a start time: on newer kernels
 * its reader waits while the process is in execve(2), and a process in execve(2) may be
 * waiting for us to answer the FLUSH of a descriptor that is closed on exec.  Instead:
 *
 *  - the inode number of a pidfd, which is never given twice (pidfs, Linux 6.9),
 *    distinguishes the starts of a pid.  Older kernels have only the start time; it is
 *    read only when statm shows that the process has a program, which it has not in the
 *    middle of execve(2);
 *  - thread group, parent and command come from /proc/PID/status;
 *  - a pidfd is readable when the process has ended, as a zombie too (without
 *    pidfd_open, Linux 5.3: /proc/PID/stat);
 *  - statm is all zeros once the memory is gone: do_exit() gives it up after it sets
 *    PF_EXITING and before it closes descriptors.
 *
 * A spare descriptor is used when there is no other free one, so that answers stay
 * right.  Needs /proc, readable for all processes that matter (no hidepid=).
 */
#ifndef FS_PROCESS_PROCESS_H
#define FS_PROCESS_PROCESS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESS_COMMAND_MAX 16 /* TASK_COMM_LEN */

/* _IOWR(PIDFS_IOCTL_MAGIC, 11, struct pidfd_info) of Linux 6.13, which older headers lack. */
#define PROCESS_PIDFD_GET_INFO 0xC040FF0B

/* By value in its owner; the fields belong to process.c. */
struct process_reader {
    int proc;  /* /proc */
    int spare; /* a descriptor to close when no other is free */
    int ended; /* readable when a process of process_watch has ended; -1: none is watched */
    bool pidfs;
};

struct process_status {
    pid_t group, parent;
    char command[PROCESS_COMMAND_MAX];
};

/* What a process leaves only by setsid(2) and setpgid(2). */
struct process_job {
    pid_t session, group;
};

void process_open(struct process_reader *reader);
void process_close(struct process_reader *reader);

/* Of a thread or a process, also a zombie.  0; -ENOENT or -ESRCH: it does not exist; another -errno: not known. */
int process_status(struct process_reader *reader, pid_t tid, struct process_status *ret_status);

/* The processes that it has made or adopted last, of a single-threaded one; returns how many, at most `max`; none of
 * more than 4096, as the kernel lists them from the first one on. */
size_t process_children(struct process_reader *reader, pid_t pid, pid_t *ret_children, size_t max);

/* Also of a zombie; -1: of none that exists. */
struct process_job process_job(pid_t pid);

/* The command of its first child, if it is single-threaded.  0; -ENOENT: it has none; another -errno: not known. */
int process_child_command(struct process_reader *reader, pid_t pid, char ret_command[PROCESS_COMMAND_MAX]);

/* The start of `pid` that lives now.  0; -ESRCH: none lives; -EBUSY: one lives, but its start is not known during
 * execve(2); another -errno: not known.  With ret_pidfd, 0 and -EBUSY set *ret_pidfd to a descriptor that the caller
 * owns, or to -1 if none is free. */
int process_identify(struct process_reader *reader, pid_t pid, uint64_t *ret_start, int *ret_pidfd);

/* With which it uses files (fsuid).  0 or -errno. */
int process_uid(struct process_reader *reader, pid_t pid, uid_t *ret_uid);

/* 0 or -errno. */
int process_umask(struct process_reader *reader, pid_t pid, mode_t *ret_mask);

/* The processor that it runs on, or ran on last; -1: not known.  Only while this thread waits for us in a request that
 * execve(2) does not wait for, see above. */
int process_cpu(struct process_reader *reader, pid_t tid);

/* Its number of threads; 0: not known, or it has ended. */
unsigned process_threads(struct process_reader *reader, pid_t pid);

/* Will this thread end, though it has not noticed yet: has it a fatal signal?  Also true if it is gone. */
bool process_is_killed(struct process_reader *reader, pid_t tid);

/* Is this one of its supplementary groups? */
bool process_in_group(struct process_reader *reader, pid_t pid, gid_t group);

static inline bool process_has_ended(int pidfd)
{
    struct pollfd ready = {.fd = pidfd, .events = POLLIN};
    return poll(&ready, 1, 0) > 0;
}

/* How the process of a pidfd ended: its wait status (waitpid(2)).  0; -EAGAIN: it lives, or nobody has reaped it;
 * -EOPNOTSUPP: before Linux 6.15.  (ioctl PIDFD_GET_INFO, include/uapi/linux/pidfd.h) */
int process_wait_status(int pidfd, int *ret_status);

/* Has the end of a pidfd's process reported: `data` then comes from process_next_ended, once.  0 or -errno.  Closing
 * the pidfd ends it. */
int process_watch(struct process_reader *reader, int pidfd, void *data);

/* The `data` of a process that has ended; NULL: there is none now. */
void *process_next_ended(struct process_reader *reader);

/* Is /proc of the caller's pid namespace?  Otherwise the pids of requests would name other processes there. */
bool process_sees_itself(void);

/* Is pid 1 the machine's init, so that the caller is in the initial pid namespace? */
bool process_first_is_init(void);

/* Process numbers are below it; 0: not known. */
pid_t process_pid_max(void);

/* Is this thread exiting, or gone?  1, 0, or -errno: not known.  `statm` is -1, or what process_keep_statm returned for
 * this thread. */
int process_exiting(struct process_reader *reader, pid_t tid, int statm);

/* A descriptor that makes process_exiting four times as fast, which the caller owns; -1: none is free. */
int process_keep_statm(struct process_reader *reader, pid_t tid);

#endif
