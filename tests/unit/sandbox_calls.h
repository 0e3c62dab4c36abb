/* sandbox_calls: system calls that a sandboxed daemon must not be able to make, with arguments that are harmless if it
 * can. */
#ifndef TESTS_UNIT_SANDBOX_CALLS_H
#define TESTS_UNIT_SANDBOX_CALLS_H

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "fs/sandbox/sandbox.h"

#ifndef SYS_newfstatat /* with 32 bits */
#define SYS_newfstatat SYS_fstatat64
#endif

static const struct call {
    const char *name;
    long number, arguments[4];
} calls[] = {
    {"execve", SYS_execve, {0}},
    {"execveat", SYS_execveat, {0}},
    {"a new process", SYS_clone, {SIGCHLD}},
    {"a thread in a new user namespace", SYS_clone, {CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_NEWUSER}},
    {"clone3", SYS_clone3, {0}},
    {"ptrace", SYS_ptrace, {0}},
    {"process_vm_readv", SYS_process_vm_readv, {0}},
    {"process_vm_writev", SYS_process_vm_writev, {0}},
    {"kcmp", SYS_kcmp, {0}},
    {"kill", SYS_kill, {1, 0}},
    {"tkill", SYS_tkill, {1, 0}},
    {"tgkill of another process", SYS_tgkill, {1, 1, SIGURG}},
    {"pidfd_send_signal", SYS_pidfd_send_signal, {-1}},
    {"pidfd_getfd", SYS_pidfd_getfd, {-1}},
    {"rt_sigqueueinfo", SYS_rt_sigqueueinfo, {1, 0}},
    {"setuid", SYS_setuid, {0}},
    {"setresuid", SYS_setresuid, {-1, -1, -1}},
    {"setgid", SYS_setgid, {0}},
    {"setgroups", SYS_setgroups, {0}},
    {"capset", SYS_capset, {0}},
    {"mount", SYS_mount, {0}},
    {"umount2", SYS_umount2, {0}},
    {"pivot_root", SYS_pivot_root, {0}},
    {"open_tree", SYS_open_tree, {-1}},
    {"move_mount", SYS_move_mount, {-1}},
    {"fsopen", SYS_fsopen, {0}},
    {"chroot", SYS_chroot, {0}},
    {"unshare", SYS_unshare, {0}},
    {"setns", SYS_setns, {-1}},
    {"bpf", SYS_bpf, {-1}},
    {"perf_event_open", SYS_perf_event_open, {0}},
    {"userfaultfd", SYS_userfaultfd, {0}},
    {"io_uring_setup", SYS_io_uring_setup, {0}},
    {"keyctl", SYS_keyctl, {-1}},
    {"add_key", SYS_add_key, {0}},
    {"init_module", SYS_init_module, {0}},
    {"finit_module", SYS_finit_module, {-1}},
    {"delete_module", SYS_delete_module, {0}},
    {"kexec_load", SYS_kexec_load, {0, 0, 0, -1}},
    {"reboot", SYS_reboot, {0}},
    {"swapon", SYS_swapon, {0}},
    {"acct", SYS_acct, {-1}},
    {"quotactl", SYS_quotactl, {-1}},
    {"syslog", SYS_syslog, {10}},
    {"sethostname", SYS_sethostname, {0, -1}},
    {"clock_settime", SYS_clock_settime, {-1}},
    {"adjtimex", SYS_adjtimex, {0}},
    {"personality", SYS_personality, {(long)0xffffffff}},
    {"memfd_create", SYS_memfd_create, {0}},
    {"mmap of a program", SYS_mmap, {0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS}},
    {"mprotect to a program", SYS_mprotect, {0, 0, PROT_READ | PROT_EXEC}},
    {"pkey_mprotect", SYS_pkey_mprotect, {0, 0, PROT_EXEC, -1}},
    {"prctl that makes dumpable", SYS_prctl, {PR_SET_DUMPABLE, 1}},
    {"seccomp", SYS_seccomp, {0}},
    {"name_to_handle_at", SYS_name_to_handle_at, {-1}},
    {"open_by_handle_at", SYS_open_by_handle_at, {-1}},
    {"fanotify_init", SYS_fanotify_init, {0}},
    {"mkdirat", SYS_mkdirat, {-1}},
    {"mknodat", SYS_mknodat, {-1}},
    {"linkat", SYS_linkat, {-1}},
    {"symlinkat", SYS_symlinkat, {0, -1}},
    {"fchmod", SYS_fchmod, {-1}},
    {"fchmodat", SYS_fchmodat, {-1}},
    {"fchown", SYS_fchown, {-1}},
    {"fchownat", SYS_fchownat, {-1}},
    {"truncate", SYS_truncate, {0}},
    {"fsetxattr", SYS_fsetxattr, {-1}},
    {"fcntl that sends signals", SYS_fcntl, {0, F_SETOWN, 0}},
    {"ioctl that types at a terminal", SYS_ioctl, {0, 0x5412, 0}},
    {"prlimit64 that sets", SYS_prlimit64, {0, RLIMIT_NOFILE, 1}},
    {"socket AF_PACKET", SYS_socket, {AF_PACKET, SOCK_RAW, 0}},
    {"socket AF_INET", SYS_socket, {AF_INET, SOCK_STREAM, 0}},
    {"socket AF_INET6", SYS_socket, {AF_INET6, SOCK_STREAM, 0}},
    {"socket AF_NETLINK", SYS_socket, {AF_NETLINK, SOCK_RAW, 0}},
    {"socket AF_VSOCK", SYS_socket, {AF_VSOCK, SOCK_STREAM, 0}},
    {"socket AF_UNIX", SYS_socket, {AF_UNIX, SOCK_STREAM, 0}},
    {"socketpair", SYS_socketpair, {AF_UNIX, SOCK_DGRAM, 0, 0}},
    {"connect", SYS_connect, {-1}},
    {"sendto another than the peer", SYS_sendto, {-1}},
    {"sendmsg", SYS_sendmsg, {-1}},
    {"recvmsg", SYS_recvmsg, {-1}},
#ifdef SANDBOX_OWN_FSTAT
    {"newfstatat", SYS_newfstatat, {AT_FDCWD, (long)"/etc/shadow"}},
    {"newfstatat with AT_EMPTY_PATH", SYS_newfstatat, {AT_FDCWD, (long)"/etc/shadow", 0, AT_EMPTY_PATH}},
    {"statx", SYS_statx, {AT_FDCWD, (long)"/etc/shadow"}},
#endif
    {"faccessat", SYS_faccessat, {AT_FDCWD, (long)"/etc/shadow"}},
    {"bind", SYS_bind, {-1}},
    {"listen", SYS_listen, {-1}},
};

#endif
