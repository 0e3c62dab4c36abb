/* sandbox: gives up the daemon's rights once its mount is made.
 *
 *   capabilities    all, from every set
 *   no_new_privs    no program that it runs gets more rights
 *   Landlock        files: its store, /proc to read, /dev/null; TCP: its servers
 *   seccomp         only the system calls that it needs; it maps no program, and
 *                   makes sockets only to reach its servers
 *
 * Existing connections stay: syslog, the service manager.
 *
 * What the kernel or this build does not support is left out, and struct sandbox says
 * so.  A system call or file that is refused later is an error for its caller, and does
 * not end the daemon: that would end all locks.  The kernel's audit log names the call.
 *
 *     sandbox  capabilities, and all parts in order    landlock, seccomp  these parts
 */
#ifndef FS_SANDBOX_SANDBOX_H
#define FS_SANDBOX_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SANDBOX_TEXT_MAX 256
#define SANDBOX_PORTS_MAX 16
#define SANDBOX_FILES_MAX 10

/* The kernel's structure is libc's, so that the filter allows fstat(2) alone.  Elsewhere libc needs the calls that look
 * at any path, too. */
#if defined __x86_64__ || defined __aarch64__ || (defined __riscv && __riscv_xlen == 64)
#define SANDBOX_OWN_FSTAT
#endif

/* How the daemon reaches the store's servers. */
enum sandbox_servers {
    SANDBOX_NO_SERVERS,      /* it makes and connects no socket */
    SANDBOX_UNIX_SERVERS,    /* sockets with a path */
    SANDBOX_NETWORK_SERVERS, /* IPv4 and IPv6, with DNS */
    SANDBOX_ALL_SERVERS      /* both */
};

static inline bool sandbox_has_network(enum sandbox_servers servers)
{
    return servers == SANDBOX_NETWORK_SERVERS || servers == SANDBOX_ALL_SERVERS;
}

struct sandbox_policy {
    const char *directory; /* it may make, write and remove files below; NULL: none */
    enum sandbox_servers servers;
    uint16_t ports[SANDBOX_PORTS_MAX];
    size_t port_count;                    /* TCP only to these ports; 0: to any */
    const char *files[SANDBOX_FILES_MAX]; /* it may read these, and what is below them */
    size_t file_count;
};

struct sandbox {
    char text[SANDBOX_TEXT_MAX]; /* one line, for logs and the status; "" before sandbox_apply */
    bool complete;               /* nothing was left out */
};

/* Confines this process and its children, for good.  Call it while the process has one thread: other threads would keep
 * their rights.  0, or -errno with one line in `error`; part of the rights may be given up then. */
int sandbox_apply(const struct sandbox_policy *policy, struct sandbox *ret_sandbox, char *error, size_t error_size);

/* The first file that the confined daemon needs and that is at or below `directory`, an absolute path without symbolic
 * links; NULL: none.  A mount there would hide that file, and the daemon would wait for itself when it opens it. */
const char *sandbox_find_below(const struct sandbox_policy *policy, const char *directory);
bool sandbox_is_below(const char *path, const char *directory);

/* --- its parts ------------------------------------------------------------------- */

/* The version of Landlock that was applied; 0: the kernel has none; or -errno. */
int sandbox_landlock(const struct sandbox_policy *policy);

/* 1: applied; 0: the kernel or this build has none; or -errno. */
int sandbox_seccomp(const struct sandbox_policy *policy);
int sandbox_seccomp_keeper(void);

/* For root's process that unmounts: no_new_privs, and a filter for the calls that it needs.  0, or -errno. */
int sandbox_keeper(void);

#endif
