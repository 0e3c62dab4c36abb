/* sandbox: what a daemon gives up when its mount is made.
 *
 *   capabilities    all, from every set
 *   no_new_privs    no program that it might run gets more
 *   Landlock        files: its store, /proc to read, /dev/null; TCP: its servers
 *   seccomp         system calls: those that it needs; no program is mapped, and
 *                   no socket made but to reach its servers
 *
 * What is connected before stays connected: syslog, the service manager.
 *
 * What the kernel or this build does not have is left out, and told.  That a
 * system call or a file is refused later on is an error to the caller, not the
 * end of the daemon, since that would take all locks with it; the kernel's audit
 * log names the call.
 *
 *     sandbox  capabilities, and all of it in order    landlock, seccomp  these parts
 */
#ifndef FS_SANDBOX_SANDBOX_H
#define FS_SANDBOX_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SANDBOX_TEXT_MAX 256
#define SANDBOX_PORTS_MAX 16

/* Where the servers of the store are. */
enum sandbox_servers {
    SANDBOX_NO_SERVERS,     /* no socket is made or connected */
    SANDBOX_UNIX_SERVERS,   /* sockets with a path */
    SANDBOX_NETWORK_SERVERS /* IPv4 and IPv6, with DNS */
};

struct sandbox_policy {
    const char *directory; /* files below may be made, written and removed; NULL: none */
    enum sandbox_servers servers;
    uint16_t ports[SANDBOX_PORTS_MAX];
    size_t port_count; /* in the network, by TCP only on these ports; 0: on any */
};

struct sandbox {
    char text[SANDBOX_TEXT_MAX]; /* one line, for logs and the status; "" before */
    bool complete;               /* nothing was left out */
};

/* For this process and those that it starts, for good.  Called while it has one
 * thread, since others would keep what they have.  0, or -errno with one line in
 * `error`, and then only a part may be given up. */
int sandbox_apply(const struct sandbox_policy *policy, struct sandbox *ret_sandbox, char *error, size_t error_size);

/* --- its parts ------------------------------------------------------------------- */

/* The version that was applied; 0: the kernel has none; or -errno. */
int sandbox_landlock(const struct sandbox_policy *policy);

/* 1; 0: the kernel or this build has none; or -errno. */
int sandbox_seccomp(const struct sandbox_policy *policy);
int sandbox_seccomp_unmounter(void);

/* For root's process that unmounts: no_new_privs, and a filter with what that
 * needs.  0, or -errno. */
int sandbox_unmounter(void);

#endif
