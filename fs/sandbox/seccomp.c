/* seccomp: which system calls the daemon may still make.
 *
 * Others give ENOSYS, and a line in the audit log.  ENOSYS and not EPERM, since
 * with it a newer libc falls back on an older call; and not the end of the
 * process, since every lock would end with it.
 *
 * Threads are made with clone(2), whose flags can be looked at: clone3(2), whose
 * flags cannot, is not there, and so libc takes the older one.  It tries clone3(2)
 * first, for each thread, so that one is refused without a line in the log.
 */
#include "config.h"

#include "fs/process/process.h"
#include "fs/sandbox/sandbox.h"

#ifdef HAVE_LIBSECCOMP

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __s390__
#define CLONE_FLAGS 1 /* which argument they are */
#else
#define CLONE_FLAGS 0
#endif

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

/* The often used ones are allowed for any arguments: the kernel remembers that. */
static const int seccomp_plain[] = {
    /* descriptors */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(close),
    SCMP_SYS(close_range),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(pipe2),
    SCMP_SYS(lseek),
    SCMP_SYS(_llseek),
    SCMP_SYS(flock),
    /* waiting */
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_pwait2),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(ppoll_time64),
    SCMP_SYS(eventfd2),
    SCMP_SYS(timerfd_create),
    SCMP_SYS(timerfd_settime),
    SCMP_SYS(timerfd_settime64),
    SCMP_SYS(timerfd_gettime),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(wait4),
    SCMP_SYS(waitid),
    /* files */
    SCMP_SYS(openat),
    SCMP_SYS(open),
    SCMP_SYS(fstat),
    SCMP_SYS(fstat64),
#ifndef SANDBOX_OWN_FSTAT
    SCMP_SYS(newfstatat),
    SCMP_SYS(fstatat64),
    SCMP_SYS(statx),
#endif
    SCMP_SYS(fstatfs),
    SCMP_SYS(fstatfs64),
    SCMP_SYS(ftruncate),
    SCMP_SYS(ftruncate64),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(fallocate),
    SCMP_SYS(unlinkat),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(chdir),
    /* memory */
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(brk),
    SCMP_SYS(madvise),
    /* threads, signals, time */
    SCMP_SYS(futex),
    SCMP_SYS(futex_time64),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(gettid),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(getpriority),
    SCMP_SYS(timer_settime),
    SCMP_SYS(timer_settime64),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigreturn),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(setsid),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_gettime64),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(clock_nanosleep_time64),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    /* about itself and the host */
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(getpgid),
    SCMP_SYS(getsid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getrusage),
    SCMP_SYS(sysinfo),
    SCMP_SYS(uname),
    /* sockets that are connected */
    SCMP_SYS(recvfrom),
    SCMP_SYS(shutdown),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(recv),
};

/* For getaddrinfo(3) with its modules, and for OpenSSL. */
static const int seccomp_network[] = {
    SCMP_SYS(getsockname), SCMP_SYS(getpeername), SCMP_SYS(sendmmsg),   SCMP_SYS(readlinkat), SCMP_SYS(readlink),
    SCMP_SYS(access),      SCMP_SYS(faccessat),   SCMP_SYS(faccessat2), SCMP_SYS(getdents64), SCMP_SYS(statfs),
    SCMP_SYS(statfs64),    SCMP_SYS(select),      SCMP_SYS(pselect6),   SCMP_SYS(stat),       SCMP_SYS(newfstatat),
    SCMP_SYS(fstatat64),   SCMP_SYS(statx),
};

/* For the keeper.  It reads and writes the kernel's messages, maps the daemon's memory, and hands both over.  To
 * unmount it looks at the mount table, lets a child ask the mount, and detaches; its other children look at
 * descriptors.  No ptrace, process_vm_readv or pidfd_getfd: of other processes it sees only which files they have open.
 */
static const int seccomp_keeper[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),
    SCMP_SYS(recvfrom),
    SCMP_SYS(recv),
    SCMP_SYS(accept4),
    SCMP_SYS(getsockopt),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(mlock),
    SCMP_SYS(lseek),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(fstatat64),
    SCMP_SYS(statx),
    SCMP_SYS(statfs),
    SCMP_SYS(statfs64),
    SCMP_SYS(getdents64),
    SCMP_SYS(close),
    SCMP_SYS(close_range),
    SCMP_SYS(pipe2),
    SCMP_SYS(umount2),
    SCMP_SYS(kill),
    SCMP_SYS(wait4),
    SCMP_SYS(getpid),
    SCMP_SYS(getppid),
    SCMP_SYS(gettid),
    SCMP_SYS(geteuid),
    SCMP_SYS(geteuid32),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(brk),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(futex_time64),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(getrandom),
    SCMP_SYS(sysinfo),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_gettime64),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(restart_syscall),
};

/* Allowed if (argument & mask) == value. */
struct seccomp_rule {
    int call;
    unsigned argument;
    uint64_t mask, value;
};

#define ANY_BIT UINT64_MAX
#define INT_BITS UINT32_MAX
#define WRITING (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY))
#define NEW_NAMESPACES                                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

static const struct seccomp_rule seccomp_conditional[] = {
    {SCMP_SYS(clone), CLONE_FLAGS, CLONE_VM | CLONE_THREAD | NEW_NAMESPACES, CLONE_VM | CLONE_THREAD},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_DUPFD},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_DUPFD_CLOEXEC},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_GETFD},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_SETFD},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_GETFL},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_SETFL},
    {SCMP_SYS(fcntl64), 1, INT_BITS, F_DUPFD_CLOEXEC},
    {SCMP_SYS(fcntl64), 1, INT_BITS, F_GETFL},
    {SCMP_SYS(fcntl64), 1, INT_BITS, F_SETFL},
    {SCMP_SYS(fcntl64), 1, INT_BITS, F_SETFD},
    {SCMP_SYS(ioctl), 1, INT_BITS, TCGETS}, /* isatty(3), by stdio */
    {SCMP_SYS(ioctl), 1, INT_BITS, FIONREAD},
    {SCMP_SYS(ioctl), 1, INT_BITS, FIONBIO},
    {SCMP_SYS(ioctl), 1, INT_BITS, PROCESS_PIDFD_GET_INFO},
    {SCMP_SYS(mmap), 2, PROT_EXEC, 0},
    {SCMP_SYS(mmap2), 2, PROT_EXEC, 0},
    {SCMP_SYS(mprotect), 2, PROT_EXEC, 0},
    {SCMP_SYS(send), 0, 0, 0},
    {SCMP_SYS(sendto), 4, ANY_BIT, 0},             /* to whom the socket is connected, nobody else */
    {SCMP_SYS(sched_setaffinity), 0, INT_BITS, 0}, /* of the calling thread only */
    {SCMP_SYS(prctl), 0, INT_BITS, PR_SET_NAME},
    {SCMP_SYS(prctl), 0, INT_BITS, PR_SET_VMA},
    {SCMP_SYS(prlimit64), 2, ANY_BIT, 0}, /* to ask, not to set */
};

static const struct seccomp_rule seccomp_conditional_unix[] = {
    {SCMP_SYS(connect), 0, 0, 0},
    {SCMP_SYS(socket), 0, INT_BITS, AF_UNIX},
};

/* Not AF_NETLINK, by which getaddrinfo(3) asks for our addresses: it does without. */
static const struct seccomp_rule seccomp_conditional_network[] = {
    {SCMP_SYS(connect), 0, 0, 0},
    {SCMP_SYS(socket), 0, INT_BITS, AF_INET},
    {SCMP_SYS(socket), 0, INT_BITS, AF_INET6},
};

static const struct seccomp_rule seccomp_conditional_keeper[] = {
    {SCMP_SYS(clone), CLONE_FLAGS, CLONE_VM | CLONE_THREAD | NEW_NAMESPACES, 0},
    {SCMP_SYS(mmap), 2, PROT_EXEC, 0},
    {SCMP_SYS(mmap2), 2, PROT_EXEC, 0},
    {SCMP_SYS(mprotect), 2, PROT_EXEC, 0},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_DUPFD_CLOEXEC},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_GETFL},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_SETFL},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_SETFD},
    {SCMP_SYS(fcntl), 1, INT_BITS, F_GET_SEALS},
    {SCMP_SYS(fcntl64), 1, INT_BITS, F_DUPFD_CLOEXEC},
    {SCMP_SYS(fcntl64), 1, INT_BITS, F_GETFL},
    {SCMP_SYS(fcntl64), 1, INT_BITS, F_SETFL},
    {SCMP_SYS(fcntl64), 1, INT_BITS, F_GET_SEALS},
    {SCMP_SYS(send), 0, 0, 0},
    {SCMP_SYS(sendto), 4, ANY_BIT, 0}, /* to whom the socket is connected, nobody else */
    {SCMP_SYS(open), 1, WRITING, 0},
    {SCMP_SYS(openat), 2, WRITING, 0},
    {SCMP_SYS(kcmp), 2, INT_BITS, KCMP_FILES},
    {SCMP_SYS(socketpair), 0, INT_BITS, AF_UNIX},
};

static int seccomp_allow(scmp_filter_ctx filter, const int *calls, size_t count)
{
    int result = 0;
    for (size_t i = 0; result == 0 && i < count; i++) {
        result = seccomp_rule_add(filter, SCMP_ACT_ALLOW, calls[i], 0);
    }
    return result;
}

static int seccomp_allow_if(scmp_filter_ctx filter, const struct seccomp_rule *rules, size_t count)
{
    int result = 0;
    for (size_t i = 0; result == 0 && i < count; i++) {
        struct scmp_arg_cmp is = SCMP_CMP64(rules[i].argument, SCMP_CMP_MASKED_EQ, rules[i].mask, rules[i].value);
        result = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rules[i].call, 1, &is);
    }
    return result;
}

/* abort(3) signals its own process, and signal 0 asks whether a thread lives.  The priority of the calling thread only.
 */
static int seccomp_allow_special(scmp_filter_ctx filter)
{
    const struct scmp_arg_cmp own_thread[] = {SCMP_CMP64(0, SCMP_CMP_MASKED_EQ, INT_BITS, PRIO_PROCESS),
                                              SCMP_CMP64(1, SCMP_CMP_MASKED_EQ, INT_BITS, 0)};
    struct seccomp_rule own[] = {
        {SCMP_SYS(tgkill), 0, INT_BITS, (uint64_t)getpid()},
        {SCMP_SYS(tgkill), 2, INT_BITS, 0},
    };
    int result = seccomp_allow_if(filter, own, G_N_ELEMENTS(own));
    return result ? result
                  : seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, SCMP_SYS(setpriority), G_N_ELEMENTS(own_thread),
                                           own_thread);
}

static int seccomp_fill(scmp_filter_ctx filter, enum sandbox_servers servers)
{
    int result = seccomp_allow(filter, seccomp_plain, G_N_ELEMENTS(seccomp_plain));
    if (result == 0) {
        result = seccomp_allow_if(filter, seccomp_conditional, G_N_ELEMENTS(seccomp_conditional));
    }
    if (result == 0) {
        result = seccomp_allow_special(filter);
    }
    if (result == 0 && (servers == SANDBOX_UNIX_SERVERS || servers == SANDBOX_ALL_SERVERS)) {
        result = seccomp_allow_if(filter, seccomp_conditional_unix, G_N_ELEMENTS(seccomp_conditional_unix));
    }
    if (result == 0 && sandbox_has_network(servers)) {
        result = seccomp_allow(filter, seccomp_network, G_N_ELEMENTS(seccomp_network));
    }
    if (result == 0 && sandbox_has_network(servers)) {
        result = seccomp_allow_if(filter, seccomp_conditional_network, G_N_ELEMENTS(seccomp_conditional_network));
    }
    return result;
}

static int seccomp_fill_keeper(scmp_filter_ctx filter, enum sandbox_servers servers)
{
    (void)servers;
    int result = seccomp_allow(filter, seccomp_keeper, G_N_ELEMENTS(seccomp_keeper));
    return result ? result
                  : seccomp_allow_if(filter, seccomp_conditional_keeper, G_N_ELEMENTS(seccomp_conditional_keeper));
}

/* Whether it logs is a property of a whole filter, so what is refused in silence has one of its own. */
static int seccomp_refuse_clone3(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter) {
        return -ENOMEM;
    }
    int result = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (result == 0) {
        result = seccomp_load(filter);
    }
    seccomp_release(filter);
    return result;
}

/* 1; 0: the kernel has none; or -errno. */
static int seccomp_confine(int (*fill)(scmp_filter_ctx filter, enum sandbox_servers servers),
                           enum sandbox_servers servers)
{
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) < 0 && errno == EINVAL) {
        return 0; /* EFAULT would be a kernel that has them */
    }
    int result = seccomp_refuse_clone3();
    scmp_filter_ctx filter = result == 0 ? seccomp_init(SCMP_ACT_ERRNO(ENOSYS)) : NULL;
    if (!filter) {
        return result ? result : -ENOMEM;
    }
    result = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree, not a list */
    if (result == 0) {
        result = fill(filter, servers);
    }
    if (result == 0) {
        result = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone3), 0); /* for the filter before to refuse */
    }
    /* Kernels before 4.14 cannot log; that is all that they lack. */
    seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1);
    if (result == 0) {
        result = seccomp_load(filter);
    }
    seccomp_release(filter);
    return result == 0 ? 1 : result;
}

int sandbox_seccomp(const struct sandbox_policy *policy)
{
    return seccomp_confine(seccomp_fill, policy->servers);
}

int sandbox_seccomp_keeper(void)
{
    return seccomp_confine(seccomp_fill_keeper, SANDBOX_NO_SERVERS);
}

#ifdef SANDBOX_OWN_FSTAT
/* Of what is open the daemon may ask, of a path it may not.  The fstat(3) of glibc before 2.39 makes the call that does
 * both, so this one takes its place, in the libraries too. */
int fstat(int fd, struct stat *ret_status)
{
    return (int)syscall(SYS_fstat, fd, ret_status);
}
#endif

#else

int sandbox_seccomp_keeper(void)
{
    return 0;
}

int sandbox_seccomp(const struct sandbox_policy *policy)
{
    (void)policy;
    return 0;
}

#endif
