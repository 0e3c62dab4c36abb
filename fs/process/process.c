/* process: see process.h. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "fs/process/process.h"

#define PROCESS_PIDFS_MAGIC 0x50494446
#define PROCESS_INITIAL_NAMESPACE 0xEFFFFFFC /* PROC_PID_INIT_INO of include/linux/proc_ns.h */

static int process_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

void process_open(struct process_reader *reader)
{
    reader->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    reader->spare = reader->proc < 0 ? -1 : fcntl(reader->proc, F_DUPFD_CLOEXEC, 0);
    reader->pidfs = false;
    reader->ended = epoll_create1(EPOLL_CLOEXEC);
    int fd = process_pidfd(getpid());
    if (fd >= 0) {
        struct statfs fs;
        reader->pidfs = fstatfs(fd, &fs) == 0 && fs.f_type == PROCESS_PIDFS_MAGIC;
        close(fd);
    }
}

void process_close(struct process_reader *reader)
{
    if (reader->ended >= 0) {
        close(reader->ended);
    }
    if (reader->spare >= 0) {
        close(reader->spare);
    }
    if (reader->proc >= 0) {
        close(reader->proc);
    }
}

int process_watch(struct process_reader *reader, int pidfd, void *data)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = data};
    return epoll_ctl(reader->ended, EPOLL_CTL_ADD, pidfd, &event) == 0 ? 0 : -errno;
}

void *process_next_ended(struct process_reader *reader)
{
    struct epoll_event event;
    return epoll_wait(reader->ended, &event, 1, 0) == 1 ? event.data.ptr : NULL;
}

/* --- descriptors ----------------------------------------------------------- */

/* After a failed open: makes room for one, if that was what it failed for. */
static bool process_spend_spare(struct process_reader *reader)
{
    if ((errno != EMFILE && errno != ENFILE) || reader->spare < 0) {
        return false;
    }
    close(reader->spare);
    reader->spare = -1;
    return true;
}

static void process_close_one(struct process_reader *reader, int fd)
{
    close(fd);
    if (reader->spare < 0) {
        reader->spare = fcntl(reader->proc, F_DUPFD_CLOEXEC, 0);
    }
}

static int process_open_file(struct process_reader *reader, pid_t tid, const char *file)
{
    char path[64];
    snprintf(path, sizeof path, "%d/%s", (int)tid, file);
    return openat(reader->proc, path, O_RDONLY | O_CLOEXEC);
}

/* The beginning of a file of /proc/TID, terminated; its length, or -errno. */
static ssize_t process_read(struct process_reader *reader, pid_t tid, const char *file, char *buffer, size_t size)
{
    int fd = process_open_file(reader, tid, file);
    if (fd < 0 && process_spend_spare(reader)) {
        fd = process_open_file(reader, tid, file);
    }
    if (fd < 0) {
        return -errno;
    }
    ssize_t length = read(fd, buffer, size - 1);
    length = length < 0 ? -errno : length;
    process_close_one(reader, fd);
    buffer[length < 0 ? 0 : length] = '\0';
    return length;
}

/* --- what it is ------------------------------------------------------------------ */

static const char *process_field(const char *status, const char *name)
{
    const char *at = strstr(status, name);
    return at ? at + strlen(name) : NULL;
}

int process_status(struct process_reader *reader, pid_t tid, struct process_status *ret_status)
{
    char text[1024];
    ssize_t length = process_read(reader, tid, "status", text, sizeof text);
    if (length < 0) {
        return (int)length;
    }
    /* A line break in the name would be escaped. */
    const char *name = process_field(text, "Name:\t");
    const char *group = process_field(text, "\nTgid:\t");
    const char *parent = process_field(text, "\nPPid:\t");
    if (!name || !group || !parent) {
        return -EIO;
    }
    ret_status->group = atoi(group);
    ret_status->parent = atoi(parent);
    size_t size = MIN(sizeof ret_status->command - 1, strcspn(name, "\n"));
    memcpy(ret_status->command, name, size);
    ret_status->command[size] = '\0';
    return 0;
}

#define PROCESS_CHILDREN_MAX 4096 /* are listed in a millisecond */

size_t process_children(struct process_reader *reader, pid_t pid, pid_t *ret_children, size_t max)
{
    char file[32], text[4096];
    size_t count = 0, listed = 0;
    pid_t child = 0;
    snprintf(file, sizeof file, "task/%d/children", (int)pid);
    int fd = process_open_file(reader, pid, file);
    for (ssize_t length; fd >= 0 && listed <= PROCESS_CHILDREN_MAX && (length = read(fd, text, sizeof text)) > 0;) {
        for (ssize_t i = 0; i < length; i++) {
            if (text[i] != ' ') {
                child = child * 10 + (text[i] - '0');
                continue;
            }
            if (count == max) { /* the last ones count */
                count -= max / 2;
                memmove(ret_children, ret_children + max / 2, count * sizeof child);
            }
            ret_children[count++] = child;
            child = 0;
            listed++;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return listed <= PROCESS_CHILDREN_MAX ? count : 0;
}

struct process_job process_job(pid_t pid)
{
    return (struct process_job){.session = getsid(pid), .group = getpgid(pid)};
}

int process_child_command(struct process_reader *reader, pid_t pid, char ret_command[PROCESS_COMMAND_MAX])
{
    char file[32], text[32];
    struct process_status status;
    snprintf(file, sizeof file, "task/%d/children", (int)pid);
    ssize_t length = process_read(reader, pid, file, text, sizeof text);
    int child = length > 0 ? atoi(text) : 0;
    int result = length < 0 ? (int)length : child <= 0 ? -ENOENT : process_status(reader, child, &status);
    if (result == 0) {
        memcpy(ret_command, status.command, sizeof status.command);
    }
    return result;
}

int process_uid(struct process_reader *reader, pid_t pid, uid_t *ret_uid)
{
    char text[1024];
    ssize_t length = process_read(reader, pid, "status", text, sizeof text);
    const char *uids = length < 0 ? NULL : process_field(text, "\nUid:\t");
    if (!uids || sscanf(uids, "%*u %*u %*u %u", ret_uid) != 1) {
        return length < 0 ? (int)length : -EIO;
    }
    return 0;
}

int process_umask(struct process_reader *reader, pid_t pid, mode_t *ret_mask)
{
    char text[1024];
    ssize_t length = process_read(reader, pid, "status", text, sizeof text);
    const char *mask = length < 0 ? NULL : process_field(text, "\nUmask:\t");
    if (!mask) {
        return length < 0 ? (int)length : -EIO;
    }
    *ret_mask = (mode_t)strtoul(mask, NULL, 8) & 0777;
    return 0;
}

/* Each is a directory in /proc/PID/task, and counts as a link of that. */
unsigned process_threads(struct process_reader *reader, pid_t pid)
{
    char path[32];
    struct stat task = {0};
    snprintf(path, sizeof path, "%d/task", (int)pid);
    int fd = openat(reader->proc, path, O_PATH | O_CLOEXEC); /* the sandbox has no stat(2) of paths */
    if (fd >= 0) {
        (void)!fstat(fd, &task);
        close(fd);
    }
    return task.st_nlink > 2 ? (unsigned)task.st_nlink - 2 : 0;
}

/* A process may have 65536 groups (NGROUPS_MAX), of at most eleven characters each. */
#define PROCESS_STATUS_MAX (1 << 20)

static char *process_whole_status(struct process_reader *reader, pid_t tid)
{
    char *text = g_malloc(PROCESS_STATUS_MAX);
    if (process_read(reader, tid, "status", text, PROCESS_STATUS_MAX) < 0) {
        g_clear_pointer(&text, g_free);
    }
    return text;
}

bool process_in_group(struct process_reader *reader, pid_t pid, gid_t group)
{
    g_autofree char *text = process_whole_status(reader, pid);
    const char *at = text ? process_field(text, "\nGroups:\t") : NULL;
    while (at && *at >= '0' && *at <= '9') {
        char *end;
        if (strtoul(at, &end, 10) == group) {
            return true;
        }
        at = end + (*end == ' ');
    }
    return false;
}

static uint64_t process_signals(const char *status, const char *name)
{
    const char *at = process_field(status, name);
    return at ? strtoull(at, NULL, 16) : 0;
}

#define PROCESS_SIGNAL(number) (UINT64_C(1) << ((number)-1))

/* Signals that end a process with a core dump. */
#define PROCESS_CORE                                                                                                   \
    (PROCESS_SIGNAL(SIGQUIT) | PROCESS_SIGNAL(SIGILL) | PROCESS_SIGNAL(SIGTRAP) | PROCESS_SIGNAL(SIGABRT) |            \
     PROCESS_SIGNAL(SIGBUS) | PROCESS_SIGNAL(SIGFPE) | PROCESS_SIGNAL(SIGSEGV) | PROCESS_SIGNAL(SIGXCPU) |             \
     PROCESS_SIGNAL(SIGXFSZ) | PROCESS_SIGNAL(SIGSYS))

/* When a fatal signal comes that dumps no core, the kernel also sends SIGKILL to each thread (complete_signal in
 * kernel/signal.c), whatever the process blocks or ignores. */
bool process_is_killed(struct process_reader *reader, pid_t tid)
{
    g_autofree char *text = process_whole_status(reader, tid);
    if (!text) {
        return true;
    }
    uint64_t pending = process_signals(text, "\nSigPnd:\t"), shared = process_signals(text, "\nShdPnd:\t");
    uint64_t kept = process_signals(text, "\nSigBlk:\t") | process_signals(text, "\nSigIgn:\t") |
                    process_signals(text, "\nSigCgt:\t");
    return pending & PROCESS_SIGNAL(SIGKILL) || (pending | shared) & PROCESS_CORE & ~kept;
}

/* From /proc/PID/stat.  0; -ESRCH: it has ended; -EBUSY: it is in execve(2);
 * another -errno. */
static int process_start_time(struct process_reader *reader, pid_t pid, uint64_t *ret_start)
{
    char text[1024], state;
    unsigned long size, code;
    long threads;
    ssize_t length = process_read(reader, pid, "statm", text, sizeof text);
    if (length >= 0 && sscanf(text, "%lu %*u %*u %lu", &size, &code) == 2 && size > 0 && code == 0) {
        return -EBUSY;
    }
    length = process_read(reader, pid, "stat", text, sizeof text);
    if (length < 0) {
        return length == -ENOENT ? -ESRCH : (int)length;
    }
    /* The command is in parentheses, and may have spaces and parentheses itself.
     * After it come the fields 3 (state), 20 (threads) and 22 (start time). */
    const char *end = strrchr(text, ')');
    if (!end || sscanf(end, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %" SCNu64,
                       &state, &threads, ret_start) != 3) {
        return -EIO;
    }
    /* Of a process whose first thread alone has ended the others are counted. */
    return (state == 'Z' || state == 'X') && threads <= 1 ? -ESRCH : 0;
}

int process_cpu(struct process_reader *reader, pid_t tid)
{
    char text[1024];
    int cpu;
    const char *at = process_read(reader, tid, "stat", text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    for (int field = 2; at && field < 39; field++) { /* the command, in parentheses, is field 2 */
        at = strchr(at + 1, ' ');
    }
    return at && sscanf(at, "%d", &cpu) == 1 && cpu >= 0 && cpu < CPU_SETSIZE ? cpu : -1;
}

static int process_inode(int pidfd, uint64_t *ret_start)
{
    struct stat st;
    if (fstat(pidfd, &st) != 0) {
        return -errno;
    }
    *ret_start = st.st_ino;
    return 0;
}

int process_identify(struct process_reader *reader, pid_t pid, uint64_t *ret_start, int *ret_pidfd)
{
    bool keep = ret_pidfd;
    int fd = process_pidfd(pid);
    if (fd < 0 && process_spend_spare(reader)) {
        keep = false;
        fd = process_pidfd(pid);
    }
    if (fd < 0 && (reader->pidfs || (errno != ENOSYS && errno != EPERM))) {
        /* EINVAL, ENOENT: it is a thread's, so no process has this pid. */
        return errno == EINVAL || errno == ENOENT ? -ESRCH : -errno;
    }
    int result = 0;
    if (fd >= 0 && process_has_ended(fd)) {
        result = -ESRCH;
    } else if (reader->pidfs) {
        result = process_inode(fd, ret_start);
    }
    if (fd >= 0 && (!keep || result != 0)) {
        process_close_one(reader, fd);
        fd = -1;
    }
    if (result == 0 && !reader->pidfs) {
        result = process_start_time(reader, pid, ret_start);
        if (result != 0 && result != -EBUSY && fd >= 0) {
            close(fd);
            fd = -1;
        }
    }
    if ((result == 0 || result == -EBUSY) && ret_pidfd) {
        *ret_pidfd = fd;
    }
    return result;
}

/* --- how it is ------------------------------------------------------------------- */

/* As in the kernel's header, which older systems lack; of Linux 6.13. */
struct process_pidfd_info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
    int32_t exit_code;
};
G_STATIC_ASSERT(sizeof(struct process_pidfd_info) == 64);
G_STATIC_ASSERT(PROCESS_PIDFD_GET_INFO == _IOWR(0xFF, 11, struct process_pidfd_info));
#define PROCESS_PIDFD_INFO_EXIT 8u /* of Linux 6.15 */

int process_wait_status(int pidfd, int *ret_status)
{
    struct process_pidfd_info info = {.mask = PROCESS_PIDFD_INFO_EXIT};
    if (ioctl(pidfd, PROCESS_PIDFD_GET_INFO, &info) != 0) {
        return -EOPNOTSUPP; /* a kernel that tells of the dead knows this of each */
    }
    if (!(info.mask & PROCESS_PIDFD_INFO_EXIT)) {
        return -EAGAIN;
    }
    *ret_status = info.exit_code;
    return 0;
}

bool process_sees_itself(void)
{
    char text[16];
    ssize_t length = readlink("/proc/self", text, sizeof text - 1);
    text[MAX(length, 0)] = '\0';
    return atoi(text) == getpid();
}

bool process_first_is_init(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) != 0 || st.st_ino == PROCESS_INITIAL_NAMESPACE;
}

pid_t process_pid_max(void)
{
    g_autofree char *text = NULL;
    return g_file_get_contents("/proc/sys/kernel/pid_max", &text, NULL, NULL) ? atoi(text) : 0;
}

int process_keep_statm(struct process_reader *reader, pid_t tid)
{
    return process_open_file(reader, tid, "statm");
}

int process_exiting(struct process_reader *reader, pid_t tid, int statm)
{
    char text[128];
    ssize_t length = -1;
    if (statm >= 0) {
        length = pread(statm, text, sizeof text - 1, 0);
    }
    if (length < 0) {
        length = process_read(reader, tid, "statm", text, sizeof text);
    }
    if (length < 0) {
        return length == -ENOENT || length == -ESRCH ? 1 : (int)length;
    }
    return length >= 2 && text[0] == '0' && text[1] == ' ';
}
