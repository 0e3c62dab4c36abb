/* process: what the kernel says of a process, asked without ever blocking.
 *
 * That rules out /proc/PID/stat, the usual source of a start time: newer kernels
 * let its reader wait while the process is in execve(2), and a process in
 * execve(2) may be waiting for us to answer the FLUSH of a descriptor that is
 * closed on exec.  Instead:
 *
 *  - which start of a pid this is, is told by the inode number of its pidfd,
 *    which is never given twice (pidfs, Linux 6.9).  On older kernels it is the
 *    start time after all, but read only when statm shows that the process has a
 *    program, which it has not in the middle of execve(2);
 *  - thread group, parent and command come from /proc/PID/status;
 *  - a pidfd is readable when the process has ended, as a zombie too (without
 *    pidfd_open, Linux 5.3, stat tells that too);
 *  - statm is all zeros once the memory is gone, which do_exit() gives up after
 *    setting PF_EXITING and before it closes descriptors.
 *
 * When descriptors run out a spare one is used, so that answers stay right.
 * Needs /proc, readable for all processes that matter (no hidepid=).
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
    int spare; /* given up for a moment when descriptors run out */
    bool pidfs;
};

struct process_status {
    pid_t group, parent;
    char command[PROCESS_COMMAND_MAX];
};

void process_open(struct process_reader *reader);
void process_close(struct process_reader *reader);

/* Of a thread or a process, a zombie too.  0; -ENOENT or -ESRCH: there is none;
 * another -errno: not known. */
int process_status(struct process_reader *reader, pid_t tid, struct process_status *ret_status);

/* Which start of `pid` lives now.  0; -ESRCH: none does; -EBUSY: one does, but
 * which is not known while it is in execve(2); another -errno: not known.  On 0
 * and -EBUSY with ret_pidfd, *ret_pidfd is a descriptor to keep, or -1 if there is
 * none to spare. */
int process_identify(struct process_reader *reader, pid_t pid, uint64_t *ret_start, int *ret_pidfd);

/* 0 or -errno. */
int process_umask(struct process_reader *reader, pid_t pid, mode_t *ret_mask);

/* How many threads it has; 0: not known, or it has ended. */
unsigned process_threads(struct process_reader *reader, pid_t pid);

/* Is this one of its supplementary groups? */
bool process_in_group(struct process_reader *reader, pid_t pid, gid_t group);

static inline bool process_has_ended(int pidfd)
{
    struct pollfd ready = {.fd = pidfd, .events = POLLIN};
    return poll(&ready, 1, 0) > 0;
}

/* How the process of a pidfd ended: its wait status as of waitpid(2).  0; -EAGAIN:
 * it lives, or nobody has reaped it; -EOPNOTSUPP: the kernel does not tell
 * (before Linux 6.15).  (ioctl PIDFD_GET_INFO, include/uapi/linux/pidfd.h) */
int process_wait_status(int pidfd, int *ret_status);

/* Is /proc that of the pid namespace of the caller?  In another one the pids of
 * requests would be mistaken for those of strangers. */
bool process_sees_itself(void);

/* Is pid 1 the machine's init: is the caller in the initial pid namespace? */
bool process_first_is_init(void);

/* Is this thread on its way out, or gone?  1, 0, or -errno: not known.  `statm`
 * is -1 or what process_keep_statm gave for this thread. */
int process_exiting(struct process_reader *reader, pid_t tid, int statm);

/* A descriptor that makes process_exiting four times as quick; -1: none. */
int process_keep_statm(struct process_reader *reader, pid_t tid);

#endif
