/* The sandbox: each case enters one in a child, and tries what it forbids or allows. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/process/process.h"
#include "fs/sandbox/sandbox.h"
#include "tests/support/check_main.h"
#include "tests/support/scratch.h"
#include "tests/unit/sandbox_calls.h"

#define NOT_TRIED 255 /* a child's exit status; others are an errno, 0 is success */

static char *store, *outside;
static struct sandbox_policy policy;
static struct sandbox sandbox;
static char error[512];

static void set_up(void)
{
    store = scratch_new();
    outside = scratch_new();
    scratch_write(store, "file", "x", 1);
    scratch_write(outside, "file", "x", 1);
    policy = (struct sandbox_policy){.directory = store};
}

static void tear_down(void)
{
    scratch_free(store);
    scratch_free(outside);
}

/* --- in a sandbox ------------------------------------------------------------------- */

/* The errno of what `attempt` does in a sandbox; 0 if it succeeds. */
static int try(int (*attempt)(const void *arg), const void *arg)
{
    int status;
    pid_t child = fork();
    if (child < 0) /* and no assertion of the child: it would write among our messages */
        ck_abort_msg("cannot fork");
    if (child == 0) {
        if (sandbox_apply(&policy, &sandbox, error, sizeof error) < 0) {
            fprintf(stderr, "# %s\n", error);
            _exit(NOT_TRIED);
        }
        errno = 0;
        _exit(attempt(arg) < 0 ? errno : 0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
    ck_assert_int_ne(WEXITSTATUS(status), NOT_TRIED);
    return WEXITSTATUS(status);
}

static int attempt_nothing(const void *arg)
{
    (void)arg;
    return 0;
}

/* The text after a word in the description of a sandbox, to be freed; NULL: it has no such part, as in some kernels and
 * with sanitizers. */
static char *part(const char *word)
{
    struct sandbox *seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        struct sandbox_policy none = {0};
        _exit(sandbox_apply(&none, seen, error, sizeof error) == 0 ? 0 : 1);
    }
    waitpid(child, NULL, 0);
    char *parts = g_strndup(seen->text, strcspn(seen->text, "(;"));
    char *found = strstr(parts, word);
    found = found ? g_strdup(found + strlen(word)) : NULL;
    g_free(parts);
    munmap(seen, sizeof *seen);
    return found;
}

/* --- its description ---------------------------------------------------------------- */

/* Runs in the sandbox.  Does a system call fail with the error of our filter?  1 or 0. */
static int attempt_to_be_filtered(const void *arg)
{
    (void)arg;
    return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0 ? -1 : 0;
}

START_TEST(line_names_the_version_of_landlock_and_the_filter)
{
    g_autofree char *landlock = part("Landlock "), *seccomp = part("seccomp");
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
#ifdef SANDBOX_SANITIZERS
    version = 0;
#endif
    ck_assert_int_eq(landlock ? atoi(landlock) : 0, MAX(version, 0));
    ck_assert_int_eq(seccomp != NULL, try(attempt_to_be_filtered, NULL) == ENOSYS);
}
END_TEST

/* --- system calls ------------------------------------------------------------------- */

static int attempt_call(const void *arg)
{
    const struct call *call = arg;
    long result =
        syscall(call->number, call->arguments[0], call->arguments[1], call->arguments[2], call->arguments[3], -1, 0);
    return result < 0 ? -1 : 0;
}

START_TEST(call_that_is_not_needed_is_not_there)
{
    const struct call *call = &calls[_i];
    int result = try(attempt_call, call);
    ck_assert_msg(result == ENOSYS, "%s: %s", call->name, strerror(result));
}
END_TEST

/* The calls that reach a server and look up its name. */
static const long for_names[] = {SYS_connect, SYS_newfstatat, SYS_statx, SYS_faccessat};

static bool reaches_path(const struct call *call)
{
    return call->number == SYS_connect || (call->number == SYS_socket && call->arguments[0] == AF_UNIX);
}

START_TEST(server_with_a_path_opens_no_other_calls)
{
    const struct call *call = &calls[_i];
    policy.servers = SANDBOX_UNIX_SERVERS;
    int result = try(attempt_call, call);
    ck_assert_msg(result == ENOSYS, "%s: %s", call->name, strerror(result));
}
END_TEST

static bool reaches_network(const struct call *call)
{
    bool reaches = call->number == SYS_socket && (call->arguments[0] == AF_INET || call->arguments[0] == AF_INET6);
    for (size_t i = 0; i < G_N_ELEMENTS(for_names); i++) {
        reaches = reaches || call->number == for_names[i];
    }
    return reaches;
}

START_TEST(servers_in_the_network_open_no_other_calls)
{
    const struct call *call = &calls[_i];
    policy.servers = SANDBOX_NETWORK_SERVERS;
    int result = try(attempt_call, call);
    ck_assert_msg(result == ENOSYS, "%s: %s", call->name, strerror(result));
}
END_TEST

/* --- files -------------------------------------------------------------------------- */

struct opening {
    const char *path;
    int flags;
};

static const struct opening openings[] = {
    {"/etc/shadow", O_RDONLY},
    {"/etc/passwd", O_RDONLY},
    {"/etc/passwd", O_WRONLY},
    {"/root", O_RDONLY | O_DIRECTORY},
    {"/", O_RDONLY | O_DIRECTORY},
    {"/bin/sh", O_RDONLY},
    {"/dev/fuse", O_RDWR},
    {"/dev/full", O_WRONLY},
    {"/dev/zero", O_RDONLY},
    {"/proc/self/oom_score_adj", O_WRONLY},
    {"/proc/self/mem", O_RDWR},
    {"/proc/sys/kernel/core_pattern", O_WRONLY},
    {"/proc/sysrq-trigger", O_WRONLY},
    {"/sys/kernel", O_RDONLY | O_DIRECTORY},
    {"/tmp", O_RDONLY | O_DIRECTORY},
    {"/tmp", O_WRONLY | O_TMPFILE},
};

static int attempt_open(const void *arg)
{
    const struct opening *opening = arg;
    return open(opening->path, opening->flags | O_CLOEXEC, 0600);
}

/* EPERM, EROFS and EOPNOTSUPP are the kernel's own, for other reasons. */
START_TEST(file_that_is_not_the_stores_cannot_be_opened)
{
    int result = try(attempt_open, &openings[_i]);
    ck_assert_msg(result == EACCES || result == EPERM, "%s: %s", openings[_i].path, strerror(result));
}
END_TEST

static int attempt_create(const void *arg)
{
    char *path = g_build_filename(arg, "new", NULL);
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static int attempt_read(const void *arg)
{
    char *path = g_build_filename(arg, "file", NULL);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int attempt_overwrite(const void *arg)
{
    char *path = g_build_filename(arg, "file", NULL);
    return open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
}

static int attempt_unlink(const void *arg)
{
    char *path = g_build_filename(arg, "file", NULL);
    return unlinkat(AT_FDCWD, path, 0);
}

static int attempt_rename(const void *arg)
{
    char *path = g_build_filename(arg, "file", NULL), *other = g_build_filename(arg, "other", NULL);
    return renameat(AT_FDCWD, path, AT_FDCWD, other);
}

static int attempt_carry_off(const void *arg)
{
    char *path = g_build_filename(store, "file", NULL), *other = g_build_filename(arg, "stolen", NULL);
    return renameat(AT_FDCWD, path, AT_FDCWD, other);
}

static int (*const attempts[])(const void *arg) = {
    attempt_create, attempt_read, attempt_overwrite, attempt_unlink, attempt_rename,
};

START_TEST(file_outside_the_store_stays_as_it_is)
{
    ck_assert_int_eq(try(attempts[_i], outside), EACCES);
}
END_TEST

START_TEST(file_of_the_store_is_read_written_made_and_removed)
{
    ck_assert_int_eq(try(attempts[_i], store), 0);
}
END_TEST

START_TEST(file_of_the_store_stays_in_it)
{
    int result = try(attempt_carry_off, outside);
    ck_assert(result == EXDEV || result == EACCES);
}
END_TEST

START_TEST(without_a_store_no_file_is_made)
{
    policy.directory = NULL;
    ck_assert_int_eq(try(attempt_create, store), EACCES);
}
END_TEST

START_TEST(store_that_is_not_there_is_reported)
{
    policy.directory = "/nonexistent/store";
    pid_t child = fork();
    int status;
    if (child == 0) {
        int result = sandbox_apply(&policy, &sandbox, error, sizeof error);
        _exit(result == -ENOENT && strstr(error, "sandbox=no") ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

/* A daemon that opens a file below its own mount waits for itself. */
START_TEST(files_that_a_mount_would_hide_are_found)
{
    char *below = g_build_filename(store, "file", NULL);
    policy.files[policy.file_count++] = below;
    ck_assert_str_eq(sandbox_find_below(&policy, "/"), "/proc");
    ck_assert_str_eq(sandbox_find_below(&policy, "/proc"), "/proc");
    ck_assert_str_eq(sandbox_find_below(&policy, "/dev"), "/dev/null");
    ck_assert_str_eq(sandbox_find_below(&policy, "/etc"), "/etc"); /* for a local store, too */
    ck_assert_str_eq(sandbox_find_below(&policy, store), store);
    policy.directory = NULL;
    ck_assert_str_eq(sandbox_find_below(&policy, store), below);
    ck_assert_ptr_null(sandbox_find_below(&policy, outside));
    ck_assert_ptr_null(sandbox_find_below(&policy, "/pro"));
    ck_assert_ptr_null(sandbox_find_below(&policy, "/proc/1"));
    g_free(below);
}
END_TEST

START_TEST(rules_that_the_kernel_refuses_are_an_error)
{
    enum { LAYERS = 16 }; /* that the kernel stacks at most */
    int status;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        for (int i = 0; i < LAYERS && sandbox_landlock(&policy) > 0; i++) {
        }
        int result = sandbox_apply(&policy, &sandbox, error, sizeof error);
        _exit(result == -E2BIG && strstr(error, "Landlock") ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

/* --- what is left ------------------------------------------------------------------- */

static void *thread_main(void *arg)
{
    (void)arg;
    struct __user_cap_header {
        uint32_t version;
        int pid;
    } header = {0x20080522, 0};
    struct {
        uint32_t effective, permitted, inheritable;
    } data[2] = {{0}};
    syscall(SYS_capget, &header, data);
    return NULL;
}

static int attempt_thread(const void *arg)
{
    pthread_t thread;
    (void)arg;
    errno = pthread_create(&thread, NULL, thread_main, NULL);
    return errno || pthread_join(thread, NULL) ? -1 : 0;
}

/* The files by which the daemon identifies the owners of leases. */
static int attempt_look_at_process(const void *arg)
{
    static const char *const files[] = {"status", "statm", "stat", "comm"};
    char path[64], text[64];
    (void)arg;
    for (size_t i = 0; i < G_N_ELEMENTS(files); i++) {
        snprintf(path, sizeof path, "/proc/1/%s", files[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof text) <= 0) {
            return -1;
        }
    }
    if (syscall(SYS_tgkill, 1, 1, 0) < 0 && errno != EPERM) {
        return -1;
    }
    int fd = (int)syscall(SYS_pidfd_open, 1, 0), status;
    errno = 0;
    return fd < 0 || getsid(1) < 0 || process_wait_status(fd, &status) == 0 || errno == ENOSYS ? -1 : 0;
}

static int attempt_wait(const void *arg)
{
    int loop = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
    struct itimerspec soon = {.it_value = {.tv_nsec = 1000000}};
    struct epoll_event event = {.events = EPOLLIN};
    (void)arg;
    if (loop < 0 || timer < 0 || timerfd_settime(timer, 0, &soon, NULL) < 0) {
        return -1;
    }
    return epoll_ctl(loop, EPOLL_CTL_ADD, timer, &event) < 0 || epoll_wait(loop, &event, 1, 10000) != 1 ? -1 : 0;
}

static int attempt_null(const void *arg)
{
    (void)arg;
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static int attempt_unix_socket(const void *arg)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 || connect(fd, arg, sizeof(struct sockaddr_un)) < 0 || send(fd, "x", 1, 0) != 1 ? -1 : 0;
}

START_TEST(threads_processes_timers_and_dev_null_are_left)
{
    ck_assert_int_eq(try(attempt_nothing, NULL), 0);
    ck_assert_int_eq(try(attempt_thread, NULL), 0);
    ck_assert_int_eq(try(attempt_look_at_process, NULL), 0);
    ck_assert_int_eq(try(attempt_wait, NULL), 0);
    ck_assert_int_eq(try(attempt_null, NULL), 0);
}
END_TEST

#ifndef SANDBOX_SANITIZERS /* there is no seccomp then */
static int attempt_priority(const void *arg)
{
    const int *which = arg;
    return setpriority((unsigned)which[0], (id_t)which[1], 19);
}

static int attempt_affinity(const void *arg)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? sched_setaffinity(*(const pid_t *)arg, sizeof set, &set) : -1;
}

/* follow.c binds the loop, and raises its priority. */
START_TEST(priority_and_processors_are_its_own)
{
    const pid_t self = 0, other = getpid();
    ck_assert_int_eq(try(attempt_priority, (const int[]){PRIO_PROCESS, 0}), 0);
    ck_assert_int_eq(try(attempt_priority, (const int[]){PRIO_PROCESS, other}), ENOSYS);
    ck_assert_int_eq(try(attempt_priority, (const int[]){PRIO_PGRP, 0}), ENOSYS);
    ck_assert_int_eq(try(attempt_priority, (const int[]){PRIO_USER, 0}), ENOSYS);
    ck_assert_int_eq(try(attempt_affinity, &self), 0);
    ck_assert_int_eq(try(attempt_affinity, &other), ENOSYS);
}
END_TEST
#endif

static int listen_at(struct sockaddr_un *ret_address, const char *name)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    g_snprintf(ret_address->sun_path, sizeof ret_address->sun_path, "%s/%s", outside, name);
    ck_assert_int_eq(bind(fd, (void *)ret_address, sizeof *ret_address), 0);
    return fd;
}

static int attempt_send(const void *arg)
{
    return send(*(const int *)arg, "x", 1, 0) == 1 ? 0 : -1;
}

static int attempt_fstat(const void *arg)
{
    struct stat status;
    return fstat(*(const int *)arg, &status) == 0 && S_ISSOCK(status.st_mode) ? 0 : -1;
}

START_TEST(syslog_that_was_connected_before_is_reached)
{
    struct sockaddr_un address;
    int server = listen_at(&address, "log"), fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (void *)&address, sizeof address), 0);
    ck_assert_int_eq(try(attempt_send, &fd), 0);
    ck_assert_int_eq(try(attempt_fstat, &fd), 0);
    close(fd);
    close(server);
    unlink(address.sun_path);
}
END_TEST

static int attempt_send_elsewhere(const void *arg)
{
    int fd = *(const int *)arg;
    struct sockaddr_un other = {.sun_family = AF_UNIX};
    g_snprintf(other.sun_path, sizeof other.sun_path, "%s/bus", outside);
    if (sendto(fd, "x", 1, 0, (void *)&other, sizeof other) == 1 || connect(fd, (void *)&other, sizeof other) == 0) {
        return 0;
    }
    return -1;
}

START_TEST(socket_with_a_path_leads_to_nobody_else)
{
    struct sockaddr_un address, other;
    int server = listen_at(&address, "log"), bus = listen_at(&other, "bus");
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (void *)&address, sizeof address), 0);
    ck_assert_int_eq(try(attempt_send_elsewhere, &fd), ENOSYS);
    ck_assert_int_eq(try(attempt_unix_socket, &other), ENOSYS);
#ifndef __i386__ /* its socketcall(2) hides the family from filters */
    policy.servers = SANDBOX_NETWORK_SERVERS;
    ck_assert_int_eq(try(attempt_unix_socket, &other), ENOSYS);
#endif
    policy.servers = SANDBOX_UNIX_SERVERS;
    ck_assert_int_eq(try(attempt_unix_socket, &other), 0);
    close(fd);
    close(bus);
    close(server);
    unlink(address.sun_path);
    unlink(other.sun_path);
}
END_TEST

/* --- the process that unmounts ------------------------------------------------------- */

/* The calls that its filter allows; others give ENOSYS. */
static bool unmounter_may(const struct call *call)
{
    static const long its_own[] = {SYS_kill,       SYS_umount2, SYS_recvmsg,    SYS_sendmsg, SYS_accept4,
                                   SYS_newfstatat, SYS_statx,   SYS_socketpair, SYS_rename,  SYS_unlink};
    bool may = strcmp(call->name, "a new process") == 0;
    for (size_t i = 0; i < G_N_ELEMENTS(its_own); i++) {
        may = may || call->number == its_own[i];
    }
    return may;
}

START_TEST(unmounter_can_make_no_other_calls)
{
    const struct call *call = &calls[_i];
    int status;
    pid_t child = fork();
    if (child == 0) {
        errno = 0;
        bool refused = sandbox_keeper() == 0 && attempt_call(call) < 0 && errno == ENOSYS;
        _exit(refused ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", call->name);
}
END_TEST

/* In a child: 0, or the number of what was possible and should not be, or the other way round. */
static int look_as_unmounter(void)
{
    if (sandbox_keeper() != 0) {
        return 1;
    }
    int fd = openat(AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
    static const int writing[] = {O_WRONLY, O_RDWR, O_RDONLY | O_CREAT, O_RDONLY | O_TRUNC};
    for (size_t i = 0; i < G_N_ELEMENTS(writing); i++) {
        if (openat(AT_FDCWD, "/dev/null", writing[i] | O_CLOEXEC, 0600) >= 0 || errno != ENOSYS) {
            return 2;
        }
    }
    if (fd < 0 || syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILES, 0, 0) != 0) {
        return 3;
    }
    return syscall(SYS_kcmp, getpid(), getpid(), KCMP_VM, 0, 0) < 0 && errno == ENOSYS ? 0 : 4;
}

START_TEST(unmounter_opens_files_for_reading_only)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        _exit(look_as_unmounter());
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(assertion_that_fails_still_ends_it)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        sandbox_apply(&policy, &sandbox, error, sizeof error);
        abort();
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
END_TEST

/* --- the network -------------------------------------------------------------------- */

static int listen_somewhere(uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bind(fd, (void *)&address, size), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    ck_assert_int_eq(getsockname(fd, (void *)&address, &size), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static int attempt_connect(const void *arg)
{
    const uint16_t *port = arg;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(*port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? -1 : connect(fd, (void *)&address, sizeof address);
}

static int attempt_serve(const void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    (void)arg;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd < 0 ? -1 : bind(fd, (void *)&address, sizeof address);
}

static int attempt_resolve(const void *arg)
{
    struct addrinfo *found = NULL;
    if (getaddrinfo(arg, "6379", &(struct addrinfo){.ai_socktype = SOCK_STREAM}, &found) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    freeaddrinfo(found);
    return 0;
}

START_TEST(server_is_reached_by_name_on_its_port)
{
    uint16_t port;
    int server = listen_somewhere(&port);
    policy.servers = SANDBOX_NETWORK_SERVERS;
    policy.ports[policy.port_count++] = port;
    ck_assert_int_eq(try(attempt_connect, &port), 0);
    ck_assert_int_eq(try(attempt_resolve, "localhost"), 0);
    close(server);
}
END_TEST

START_TEST(other_ports_are_closed_where_the_kernel_can_tell)
{
    uint16_t port, other;
    int server = listen_somewhere(&port), forbidden = listen_somewhere(&other);
    policy.servers = SANDBOX_NETWORK_SERVERS;
    policy.ports[policy.port_count++] = port;
    char *version = part("Landlock ");
    if (version && atoi(version) >= 4) {
        ck_assert_int_eq(try(attempt_connect, &other), EACCES);
        int result = try(attempt_serve, NULL);
        ck_assert(result == EACCES || result == ENOSYS);
    }
    g_free(version);
    close(server);
    close(forbidden);
}
END_TEST

START_TEST(servers_that_move_are_reached_on_any_port)
{
    uint16_t port;
    int server = listen_somewhere(&port);
    policy.servers = SANDBOX_NETWORK_SERVERS;
    ck_assert_int_eq(try(attempt_connect, &port), 0);
    close(server);
}
END_TEST

/* --- rights ------------------------------------------------------------------------- */

/* A line of /proc/thread-self/status, behind its name. */
static bool status_is(const char *name, const char *value)
{
    char line[256], wanted[64];
    bool found = false;
    FILE *file = fopen("/proc/thread-self/status", "re");
    g_snprintf(wanted, sizeof wanted, "%s:\t%s\n", name, value);
    while (file && fgets(line, sizeof line, file)) {
        found = found || strcmp(line, wanted) == 0;
    }
    fclose(file);
    return found;
}

static void *look_at_rights(void *arg)
{
    static const char *const sets[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"};
    bool *good = arg;
    *good = status_is("NoNewPrivs", "1");
    for (size_t i = 0; i < G_N_ELEMENTS(sets); i++) {
        bool mine = geteuid() == 0 || strcmp(sets[i], "CapBnd") != 0; /* that one only root can empty */
        *good = *good && (!mine || status_is(sets[i], "0000000000000000"));
    }
    return NULL;
}

static int attempt_to_have_rights(const void *arg)
{
    bool mine, another;
    pthread_t thread;
    (void)arg;
    look_at_rights(&mine);
    errno = pthread_create(&thread, NULL, look_at_rights, &another);
    if (errno || pthread_join(thread, NULL)) {
        return -1;
    }
    errno = EPERM;
    return mine && another ? 0 : -1;
}

START_TEST(no_thread_has_capabilities_or_gets_any)
{
    ck_assert_int_eq(try(attempt_to_have_rights, NULL), 0);
}
END_TEST

#ifndef SANDBOX_SANITIZERS /* which may have threads of their own */
static void *sleep_on(void *arg)
{
    (void)arg;
    pause();
    return NULL;
}

START_TEST(threads_that_would_keep_their_rights_are_an_error)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, sleep_on, NULL);
        _exit(sandbox_apply(&policy, &sandbox, error, sizeof error) == -EBUSY ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST
#endif

static void add_case(Suite *suite, TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    suite_add_tcase(suite, tcase);
}

static void add_files(Suite *suite)
{
    TCase *files = tcase_create("files");
    add_case(suite, files);
    for (int i = 0; i < (int)G_N_ELEMENTS(openings); i++) {
        check_add_loop_where(access(openings[i].path, F_OK) == 0, "on a host that has the file", files,
                             file_that_is_not_the_stores_cannot_be_opened, i, i + 1);
    }
    tcase_add_loop_test(files, file_outside_the_store_stays_as_it_is, 0, G_N_ELEMENTS(attempts));
    tcase_add_test(files, file_of_the_store_stays_in_it);
    tcase_add_test(files, without_a_store_no_file_is_made);
    tcase_add_test(files, store_that_is_not_there_is_reported);
    tcase_add_test(files, rules_that_the_kernel_refuses_are_an_error);
    tcase_add_test(files, other_ports_are_closed_where_the_kernel_can_tell);
}

static void add_calls(Suite *suite)
{
    TCase *system = tcase_create("system calls");
    add_case(suite, system);
    tcase_add_test(system, socket_with_a_path_leads_to_nobody_else);
    tcase_add_test(system, unmounter_opens_files_for_reading_only);
    tcase_add_loop_test(system, call_that_is_not_needed_is_not_there, 0, G_N_ELEMENTS(calls));
    for (int i = 0; i < (int)G_N_ELEMENTS(calls); i++) {
        if (!reaches_path(&calls[i])) {
            tcase_add_loop_test(system, server_with_a_path_opens_no_other_calls, i, i + 1);
        }
        if (!reaches_network(&calls[i])) {
            tcase_add_loop_test(system, servers_in_the_network_open_no_other_calls, i, i + 1);
        }
        if (!unmounter_may(&calls[i])) {
            tcase_add_loop_test(system, unmounter_can_make_no_other_calls, i, i + 1);
        }
    }
}

int main(void)
{
    Suite *suite = suite_create("sandbox");
    TCase *rights = tcase_create("rights"), *use = tcase_create("use");
    add_case(suite, rights);
    tcase_add_test(rights, no_thread_has_capabilities_or_gets_any);
#ifndef SANDBOX_SANITIZERS
    tcase_add_test(rights, threads_that_would_keep_their_rights_are_an_error);
#endif

    add_case(suite, use);
    tcase_add_test(use, line_names_the_version_of_landlock_and_the_filter);
    tcase_add_test(use, threads_processes_timers_and_dev_null_are_left);
#ifndef SANDBOX_SANITIZERS
    tcase_add_test(use, priority_and_processors_are_its_own);
#endif
    tcase_add_test(use, syslog_that_was_connected_before_is_reached);
    tcase_add_test(use, assertion_that_fails_still_ends_it);
    tcase_add_test(use, server_is_reached_by_name_on_its_port);
    tcase_add_test(use, servers_that_move_are_reached_on_any_port);
    tcase_add_test(use, files_that_a_mount_would_hide_are_found);
    tcase_add_loop_test(use, file_of_the_store_is_read_written_made_and_removed, 0, G_N_ELEMENTS(attempts));

    char *landlock = part("Landlock"), *seccomp = part("seccomp");
    if (landlock) {
        add_files(suite);
    } else {
        puts("# left out: the rules of files: would run with Landlock (lsm=landlock)");
    }
    if (seccomp) {
        add_calls(suite);
    } else {
        puts("# left out: the filter of system calls: would run with seccomp");
    }
    g_free(landlock);
    g_free(seccomp);
    return check_main(suite);
}
