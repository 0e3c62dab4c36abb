/* The table of processes, on real ones: identity, life, heirs, descent, exit.
 *
 * Each case runs three times: with the identities of this kernel, with those of
 * kernels without pidfs (fstatfs below pretends that), and with those of kernels
 * without pidfd_open (a seccomp filter refuses it), as under older valgrinds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/process/owner.h"
#include "fs/process/process.h"
#include "tests/support/check_main.h"

#define TIME_LIMIT_MS 20000
#define KINDS 3

static struct owner_table *table;
static bool pretend_no_pidfs;
static bool pretend_init;       /* pid 1 of this namespace is the machine's */
static pid_t pretend_in_execve; /* statm of this process tells so */
static const char *pretend_status;

int fstatfs(int fd, struct statfs *buffer)
{
    int result = (int)syscall(SYS_fstatfs, fd, buffer);
    if (pretend_no_pidfs) {
        buffer->f_type = 0x09041934; /* ANON_INODE_FS_MAGIC */
    }
    return result;
}

#ifndef SYS_newfstatat /* with 32 bits */
#define SYS_newfstatat SYS_fstatat64
#endif

int stat(const char *path, struct stat *buffer)
{
    int result = (int)syscall(SYS_newfstatat, AT_FDCWD, path, buffer, 0);
    if (pretend_init) {
        buffer->st_ino = 0xEFFFFFFC; /* PROC_PID_INIT_INO */
    }
    return result;
}

static int pretend_file(int fd, const char *text)
{
    close(fd);
    fd = memfd_create("pretended", MFD_CLOEXEC);
    dprintf(fd, "%s", text);
    lseek(fd, 0, SEEK_SET);
    return fd;
}

int openat(int directory, const char *path, int flags, ...)
{
    char statm[32];
    int fd = (int)syscall(SYS_openat, directory, path, flags, 0);
    snprintf(statm, sizeof statm, "%d/statm", (int)pretend_in_execve);
    if (fd >= 0 && strcmp(path, statm) == 0) {
        return pretend_file(fd, "34 1 1 0 0 34 0\n");
    }
    if (fd >= 0 && pretend_status && strstr(path, "/status")) {
        return pretend_file(fd, pretend_status);
    }
    return fd;
}

static void refuse_pidfd_open(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = G_N_ELEMENTS(filter), .filter = filter};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void begin(int kind)
{
    pretend_no_pidfs = kind != 0;
    if (kind == 2) {
        refuse_pidfd_open();
    }
    table = owner_table_new();
}

static void end(void)
{
    owner_table_free(table);
}

#define AWAIT(condition)                                                                                               \
    do {                                                                                                               \
        for (int waited = 0; !(condition); waited++) {                                                                 \
            ck_assert_msg(waited < TIME_LIMIT_MS, "never true: %s", #condition);                                       \
            poll(NULL, 0, 1);                                                                                          \
        }                                                                                                              \
    } while (0)

/* --- processes ---------------------------------------------------------------- */

/* Children share this page with the test, so that they can tell their pids. */
struct family {
    volatile pid_t child, grandchild;
    volatile bool own_group; /* the grandchild is to take a group of its own */
    volatile bool in_own_group;
};

static G_NORETURN void rest(void)
{
    for (;;) {
        pause();
    }
}

/* In the child returns 0.  It ends with the test at the latest. */
static pid_t spawn(void)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) { /* nothing of check here: the child would write among the messages of the test */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        return 0;
    }
    ck_assert_int_gt(pid, 0);
    return pid;
}

static pid_t spawn_idle(void)
{
    pid_t pid = spawn();
    if (pid == 0) {
        rest();
    }
    return pid;
}

/* Ends a child and leaves its zombie. */
static void end_child(pid_t pid)
{
    siginfo_t info;
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static void reap(pid_t pid)
{
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(directory);
    while (readdir(directory)) {
        count++;
    }
    closedir(directory);
    return count;
}

static int64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

/* Since Linux 6.15. */
static bool kernel_reports_ends(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    ck_assert_int_eq(uname(&name), 0);
    sscanf(name.release, "%d.%d", &major, &minor);
    return major > 6 || (major == 6 && minor >= 15);
}

static struct owner *get(pid_t tid)
{
    struct owner *owner = owner_get(table, tid);
    ck_assert_ptr_nonnull(owner);
    return owner;
}

/* --- identity ------------------------------------------------------------------- */

struct threads {
    pthread_barrier_t barrier;
    pid_t tid;
};

static void *thread_main(void *arg)
{
    struct threads *threads = arg;
    threads->tid = gettid();
    pthread_barrier_wait(&threads->barrier);
    pthread_barrier_wait(&threads->barrier);
    return NULL;
}

static bool nobody(pid_t tid)
{
    struct owner *owner = owner_get(table, tid);
    owner_unref(owner);
    return !owner;
}

START_TEST(a_thread_is_its_process)
{
    begin(_i);
    struct threads threads = {.tid = 0};
    pthread_t thread;
    pthread_barrier_init(&threads.barrier, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, thread_main, &threads), 0);
    pthread_barrier_wait(&threads.barrier);
    ck_assert_int_ne(threads.tid, getpid());
    struct owner *by_thread = get(threads.tid);
    struct owner *again = get(threads.tid);
    struct owner *process = get(getpid());
    ck_assert_ptr_eq(by_thread, process);
    ck_assert_ptr_eq(again, process);
    ck_assert_int_eq(owner_pid(by_thread), getpid());
    ck_assert(owner_alive(by_thread));
    ck_assert(!owner_thread_is_exiting(table, threads.tid));
    pthread_barrier_wait(&threads.barrier);
    pthread_join(thread, NULL);
    AWAIT(nobody(threads.tid));
    ck_assert(owner_thread_is_exiting(table, threads.tid));
    ck_assert(owner_alive(process));
    owner_unref(by_thread);
    owner_unref(again);
    owner_unref(process);
    end();
}
END_TEST

START_TEST(no_pid_and_no_process_have_no_owner)
{
    begin(_i);
    pid_t pid = spawn_idle();
    end_child(pid);
    reap(pid);
    ck_assert_ptr_null(owner_get(table, 0));
    ck_assert_ptr_null(owner_get(table, pid));
    ck_assert(owner_thread_is_exiting(table, pid));
    end();
}
END_TEST

START_TEST(a_process_keeps_its_identity_while_it_lives)
{
    begin(_i);
    pid_t pid = spawn_idle();
    struct owner *owner = get(pid);
    uint64_t start = owner_start(owner);
    ck_assert_ptr_eq(get(pid), owner);
    owner_unref(owner);
    owner_unref(owner);
    owner = get(pid);
    ck_assert_uint_eq(owner_start(owner), start);
    owner_unref(owner);
    owner_table_free(table);
    table = owner_table_new(); /* as after a restart */
    owner = get(pid);
    ck_assert_uint_eq(owner_start(owner), start);
    owner_unref(owner);
    end_child(pid);
    reap(pid);
    end();
}
END_TEST

START_TEST(a_command_may_have_any_characters)
{
    begin(_i);
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    int64_t made = milliseconds();
    pid_t pid = spawn();
    if (pid == 0) {
        prctl(PR_SET_NAME, "a) R 1 (b");
        if (write(ready[1], "", 1) == 1) {
            rest();
        }
        _exit(1);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    struct owner *owner = get(pid);
    ck_assert_str_eq(owner_command(owner), "a) R 1 (b");
    if (pretend_no_pidfs) { /* then it is the start time, in hundredths of a second */
        ck_assert_uint_ge(owner_start(owner), (uint64_t)made / 10);
        ck_assert_uint_le(owner_start(owner), (uint64_t)milliseconds() / 10);
    }
    owner_unref(owner);
    close(ready[0]);
    close(ready[1]);
    end_child(pid);
    reap(pid);
    end();
}
END_TEST

/* --- life ----------------------------------------------------------------------- */

START_TEST(a_zombie_is_not_alive)
{
    begin(_i);
    pid_t pid = spawn_idle();
    struct owner *owner = get(pid);
    uint64_t start = owner_start(owner);
    ck_assert(owner_alive(owner));
    end_child(pid);
    ck_assert(!owner_alive(owner));
    ck_assert(nobody(pid));
    reap(pid);
    ck_assert(!owner_alive(owner));
    ck_assert_int_eq(owner_pid(owner), pid);
    ck_assert_uint_eq(owner_start(owner), start);
    owner_unref(owner);
    end();
}
END_TEST

static void *thread_rest(void *arg)
{
    (void)arg;
    rest();
}

START_TEST(a_process_outlives_its_first_thread)
{
    begin(_i);
    pid_t pid = spawn();
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, thread_rest, NULL);
        pthread_exit(NULL);
    }
    struct owner *owner = get(pid);
    AWAIT(owner_thread_is_exiting(table, pid)); /* that thread, not the process */
    ck_assert(owner_alive(owner));
    ck_assert(!nobody(pid));
    end_child(pid);
    ck_assert(!owner_alive(owner));
    reap(pid);
    owner_unref(owner);
    end();
}
END_TEST

START_TEST(a_restored_process_is_the_same_only_with_the_same_start)
{
    begin(_i);
    pid_t pid = spawn_idle();
    struct owner *owner = get(pid);
    uint64_t start = owner_start(owner);
    owner_unref(owner);
    owner_table_free(table);
    table = owner_table_new();

    struct owner *unlike = owner_restore(table, pid, start + 2, "former");
    ck_assert(!owner_alive(unlike));
    owner_unref(unlike);
    struct owner *same = owner_restore(table, pid, start, "kept");
    ck_assert(owner_alive(same));
    ck_assert_str_eq(owner_command(same), "kept");
    struct owner *other = owner_restore(table, pid, start + 1, "former");
    ck_assert(!owner_alive(other));
    ck_assert_int_eq(owner_pid(other), pid);
    ck_assert_uint_eq(owner_start(other), start + 1);
    ck_assert_str_eq(owner_command(other), "former");
    ck_assert(!owner_descends(same, other));
    ck_assert(!owner_descends(other, same));
    owner = get(pid);
    ck_assert_ptr_eq(owner, same);
    ck_assert(owner_alive(owner));
    owner_unref(owner);

    end_child(pid);
    reap(pid);
    struct owner *gone = owner_restore(table, pid, start, "kept");
    ck_assert(!owner_alive(gone));
    ck_assert(!owner_alive(same));
    struct owner *former = owner_restore(table, pid, start + 1, "former");
    ck_assert_ptr_eq(former, other);
    owner_unref(gone);
    owner_unref(same);
    owner_unref(other);
    owner_unref(former);
    end();
}
END_TEST

START_TEST(a_thousand_leases_of_one_dead_process_share_it)
{
    begin(_i);
    struct owner *owners[1000];
    for (int i = 0; i < 1000; i++) {
        owners[i] = owner_restore(table, i % 2 ? 0 : INT_MAX, 7, "gone");
        ck_assert(!owner_alive(owners[i]));
        ck_assert_ptr_eq(owners[i], owners[i % 2]);
    }
    for (int i = 0; i < 1000; i++) {
        owner_unref(owners[i]);
    }
    end();
}
END_TEST

/* Ends the child, and forks another with the same pid.  Like fork, it returns 0 in that child.  -1 under valgrind, or
 * without the necessary rights, which only root has. */
static pid_t spawn_again(pid_t pid)
{
    struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};
    int64_t ended = milliseconds();
    end_child(pid);
    reap(pid);
    AWAIT(milliseconds() > ended + 20); /* start times are that coarse */
    pid_t made = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    if (made == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    } else if (made < 0 && (errno == EPERM || errno == ENOSYS)) {
        return -1;
    } else {
        ck_assert_int_eq(made, pid);
    }
    return made;
}

static bool is_another(struct owner *former)
{
    struct owner *owner = get(owner_pid(former));
    bool result = owner_start(owner) != owner_start(former);
    owner_unref(owner);
    return result;
}

START_TEST(a_reused_pid_is_another_process)
{
    begin(_i);
    pid_t pid = spawn_idle();
    struct owner *former = get(pid);
    pid_t again = spawn_again(pid);
    if (again == 0) {
        rest();
    }
    if (again > 0) {
        AWAIT(is_another(former));
        ck_assert(!owner_alive(former));
        ck_assert(!owner_thread_is_exiting(table, pid));
        struct owner *latter = get(pid);
        ck_assert(owner_alive(latter));
        ck_assert(!owner_descends(latter, former));
        owner_unref(latter);
        end_child(pid);
        reap(pid);
    }
    owner_unref(former);
    end();
}
END_TEST

START_TEST(a_command_is_not_that_of_a_process_with_a_reused_pid)
{
    begin(_i);
    void *shared = mmap(NULL, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    volatile pid_t *ready = shared;
    pid_t pid = spawn();
    if (pid == 0) {
        prctl(PR_SET_NAME, "flock"); /* a program whose command is shown instead of it */
        *ready = getpid();
        rest();
    }
    AWAIT(*ready);
    struct owner *former = get(pid);
    ck_assert_str_eq(owner_command(former), "flock"); /* it has no command yet */
    *ready = 0;
    pid_t again = spawn_again(pid);
    if (again == 0) {
        *ready = spawn_idle();
        rest();
    }
    if (again > 0) {
        AWAIT(*ready);
        ck_assert_str_eq(owner_command(former), "flock");
        end_child(again);
        reap(again);
    }
    owner_unref(former);
    end();
}
END_TEST

/* --- kinship -------------------------------------------------------------------- */

/* This process, a child with a process group of its own, and a grandchild. */
static struct family *spawn_family(void)
{
    struct family *family = mmap(NULL, sizeof *family, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(family, MAP_FAILED);
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t test = getpid();
    pid_t parent = spawn();
    if (parent == 0) {
        setpgid(0, 0);
        pid_t child = spawn();
        if (child == 0) {
            pid_t grandchild = fork();
            if (grandchild == 0) {
                family->grandchild = getpid();
                while (!family->own_group && kill(test, 0) == 0) {
                    poll(NULL, 0, 1);
                }
                setpgid(0, 0);
                family->in_own_group = true;
                while (kill(test, 0) == 0) {
                    poll(NULL, 0, 10);
                }
                _exit(0);
            }
            rest();
        }
        family->child = child;
        rest();
    }
    AWAIT(family->child && family->grandchild);
    return family;
}

static pid_t parent_of(pid_t pid)
{
    char path[64], line[256];
    pid_t parent = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "PPid: %d", &parent);
    }
    fclose(file);
    return parent;
}

/* "PID PID": who inherits, in order. */
static const char *heirs(struct owner *owner, size_t max)
{
    static char text[256];
    struct owner *found[8];
    ck_assert_uint_le(max, G_N_ELEMENTS(found));
    size_t count = owner_heirs(owner, found, max);
    ck_assert_uint_le(count, max);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "%s%d", i ? " " : "", (int)owner_pid(found[i]));
        ck_assert(pretend_in_execve || owner_pid(found[i]) == getpid() || owner_start(found[i]) != 0);
        owner_unref(found[i]);
    }
    return text;
}

static const char *pids(int count, pid_t first, pid_t second)
{
    static char text[64];
    snprintf(text, sizeof text, count == 1 ? "%d" : "%d %d", (int)first, (int)second);
    return text;
}

START_TEST(the_parent_inherits_and_then_its_parents_of_any_group)
{
    begin(_i);
    struct family *family = spawn_family();
    pid_t parent = parent_of(family->child);
    struct owner *owner = get(family->grandchild);
    char *three = g_strdup_printf("%d %d %d", (int)family->child, (int)parent, (int)getpid());
    ck_assert_str_eq(heirs(owner, 3), three);
    ck_assert_str_eq(heirs(owner, 3), three); /* as kept */
    ck_assert_str_eq(heirs(owner, 2), pids(2, family->child, parent));
    ck_assert_str_eq(heirs(owner, 1), pids(1, family->child, 0));
    ck_assert_str_eq(heirs(owner, 0), "");
    family->own_group = true;
    AWAIT(family->in_own_group);
    ck_assert_str_eq(heirs(owner, 3), three);
    owner_unref(owner);
    g_free(three);
    kill(family->grandchild, SIGKILL);
    kill(family->child, SIGKILL);
    kill(parent, SIGKILL);
    end();
}
END_TEST

/* --- inheriting in a pid namespace, whose first process makes all of it --- */

/* A child in which `next` goes on, or that rests; nothing of check in it. */
static pid_t descend(bool new_session, pid_t *ret_child)
{
    int ends[2];
    pid_t child = 0;
    if (pipe(ends) != 0) {
        _exit(1);
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (new_session) {
            setsid();
        }
        if (ret_child) { /* with a child of its own, in its session */
            child = fork();
            if (child == 0) {
                rest();
            }
        }
        (void)!write(ends[1], &child, sizeof child);
        rest();
    }
    (void)!read(ends[0], &child, sizeof child);
    if (ret_child) {
        *ret_child = child;
    }
    close(ends[0]);
    close(ends[1]);
    return pid;
}

/* child of 1 in session A, with a child in session A or B, with a child */
static pid_t daemon_with(bool job_has_session, pid_t *ret_job, pid_t *ret_helper)
{
    pid_t *shared = mmap(NULL, 2 * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        shared[0] = descend(job_has_session, &shared[1]);
        rest();
    }
    while (!((volatile pid_t *)shared)[0]) {
        poll(NULL, 0, 1);
    }
    *ret_job = shared[0];
    *ret_helper = shared[1];
    return pid;
}

/* "PID PID": without asserts, which are not for a child of the test. */
static bool inherit(pid_t pid, const char *expected)
{
    struct owner *owner = owner_get(table, pid), *found[8];
    size_t count = owner_heirs(owner, found, G_N_ELEMENTS(found));
    GString *text = g_string_new(NULL);
    for (size_t i = 0; i < count; i++) {
        g_string_append_printf(text, "%s%d", i ? " " : "", (int)owner_pid(found[i]));
        owner_unref(found[i]);
    }
    owner_unref(owner);
    bool is_right = strcmp(text->str, expected) == 0;
    if (!is_right) {
        fprintf(stderr, "heirs of %d: '%s', not '%s'\n", (int)pid, text->str, expected);
    }
    g_string_free(text, TRUE);
    return is_right;
}

static bool first_process_is_right(int kind)
{
    pid_t job, helper, child;
    bool right = true;
    pid_t service = daemon_with(false, &job, &helper);
    begin(kind);
    right &= inherit(helper, pids(2, job, service)); /* of one session, as a service's script */
    service = daemon_with(true, &job, &helper);
    right &= inherit(helper, pids(1, job, 0)); /* as cron's job: cron lives for ever */
    service = descend(true, &child);
    right &= inherit(child, pids(1, service, 0)); /* the parent does, whose child it may be */
    service = descend(false, &child);
    right &= inherit(child, pretend_init ? pids(1, service, 0) : pids(2, service, 1));
    right &= inherit(service, pretend_init ? "" : "1");
    end();
    return right;
}

static void expect_right_as_first_process(int kind)
{
    int status;
    pid_t outside = fork(); /* which cannot make threads any more, as sanitizers want to at its end */
    if (outside == 0) {
        pid_t first = unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 ? fork() : -1;
        if (first == 0) {
            bool can =
                mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount("proc", "/proc", "proc", 0, NULL) == 0;
            _exit(can && first_process_is_right(kind) ? 0 : 1);
        }
        _exit(first > 0 && waitpid(first, &status, 0) == first ? WEXITSTATUS(status) : 2);
    }
    ck_assert_int_eq(waitpid(outside, &status, 0), outside);
    ck_assert_int_eq(status, 0);
}

START_TEST(a_child_of_the_first_process_inherits_in_its_session_only)
{
    pretend_init = true;
    expect_right_as_first_process(_i);
}
END_TEST

START_TEST(the_first_process_inherits_where_it_is_not_the_init_of_the_machine)
{
    expect_right_as_first_process(_i);
}
END_TEST

/* --- how it ended --- */

START_TEST(how_it_ended_is_known_once_it_was_reaped)
{
    static const int signals[] = {0, 0, SIGKILL};
    static const int statuses[] = {0, 3, 0};
    static const enum owner_end ends[] = {OWNER_EXITED, OWNER_FAILED, OWNER_FAILED};
    begin(_i);
    for (size_t i = 0; i < G_N_ELEMENTS(ends); i++) {
        int go[2];
        char byte;
        ck_assert_int_eq(pipe(go), 0);
        pid_t pid = spawn();
        if (pid == 0) {
            close(go[1]);
            (void)!read(go[0], &byte, 1);
            kill(getpid(), signals[i]);
            _exit(statuses[i]);
        }
        struct owner *owner = get(pid);
        ck_assert_int_eq(owner_end(owner), OWNER_LIVES);
        close(go[0]);
        close(go[1]);
        siginfo_t info;
        ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
        bool reports = _i < 2 && kernel_reports_ends();
        ck_assert_int_eq(owner_end(owner), reports ? OWNER_UNREAPED : OWNER_EXITED);
        reap(pid);
        ck_assert_int_eq(owner_end(owner), reports ? ends[i] : OWNER_EXITED);
        ck_assert_int_eq(owner_end(owner), reports ? ends[i] : OWNER_EXITED);
        owner_unref(owner);
    }
    end();
}
END_TEST

START_TEST(a_session_that_bears_its_parents_name_ends_as_that_does)
{
    static const struct {
        bool leads, has_own_name, reports;
    } parts[] = {{true, false, false}, {false, false, true}, {true, true, true}};
    begin(_i);
    for (size_t i = 0; i < G_N_ELEMENTS(parts); i++) {
        volatile pid_t *helper = mmap(NULL, sizeof *helper, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t part = spawn();
        if (part == 0) {
            if (parts[i].leads) {
                setsid();
            }
            if (parts[i].has_own_name) {
                prctl(PR_SET_NAME, "own");
            }
            *helper = spawn_idle();
            rest();
        }
        AWAIT(*helper);
        struct owner *owner = get(*helper), *heir;
        ck_assert_uint_eq(owner_heirs(owner, &heir, 1), 1);
        ck_assert_int_eq(owner_pid(heir), part);
        end_child(part);
        reap(part);
        bool reports = _i < 2 && kernel_reports_ends();
        ck_assert_int_eq(owner_end(heir), reports && parts[i].reports ? OWNER_FAILED : OWNER_EXITED);
        owner_unref(heir);
        owner_unref(owner);
    }
    end();
}
END_TEST

START_TEST(a_parent_that_is_in_execve_inherits)
{
    begin(_i);
    struct family *family = spawn_family();
    struct owner *owner = get(family->grandchild);
    pretend_in_execve = family->child;
    ck_assert_str_eq(heirs(owner, 1), _i == 2 ? "" : pids(1, family->child, 0));
    pretend_in_execve = 0;
    if (_i < 2) {
        struct owner *heir = get(family->child);
        ck_assert_uint_ne(owner_start(heir), 0);
        struct owner *same = owner_restore(table, family->child, owner_start(heir), "x");
        ck_assert_ptr_eq(same, heir);
        owner_unref(same);
        owner_unref(heir);
    }
    kill(family->grandchild, SIGKILL);
    kill(family->child, SIGKILL);
    kill(parent_of(family->child), SIGKILL);
    owner_unref(owner);
    end();
}
END_TEST

START_TEST(who_adopts_an_orphan_is_its_parent)
{
    begin(_i);
    struct family *family = spawn_family();
    pid_t parent = parent_of(family->child);
    struct owner *owner = get(family->grandchild);
    struct owner *child = get(family->child);
    struct owner *ancestor = get(parent);
    struct owner *self = get(getpid());
    ck_assert_str_eq(heirs(owner, 2), pids(2, family->child, parent));
    ck_assert(owner_descends(owner, ancestor));

    kill(family->child, SIGKILL);
    AWAIT(parent_of(family->grandchild) == getpid()); /* the subreaper */
    AWAIT(strcmp(heirs(owner, 1), pids(1, getpid(), 0)) == 0);
    ck_assert(!owner_alive(child));
    ck_assert(!owner_descends(owner, child));
    ck_assert(!owner_descends(owner, ancestor));
    ck_assert(owner_descends(owner, self));
    kill(family->grandchild, SIGKILL);
    kill(parent, SIGKILL);
    owner_unref(owner);
    owner_unref(child);
    owner_unref(ancestor);
    owner_unref(self);
    end();
}
END_TEST

START_TEST(descent_follows_the_parents)
{
    begin(_i);
    struct family *family = spawn_family();
    pid_t parent = parent_of(family->child);
    pid_t sibling = spawn_idle();
    struct owner *self = get(getpid());
    struct owner *old = get(parent);
    struct owner *middle = get(family->child);
    struct owner *new_server = get(family->grandchild);
    struct owner *aside = get(sibling);
    ck_assert(owner_descends(new_server, new_server));
    ck_assert(owner_descends(new_server, middle));
    ck_assert(owner_descends(new_server, old));
    ck_assert(owner_descends(new_server, self));
    ck_assert(owner_descends(middle, self));
    ck_assert(!owner_descends(middle, new_server));
    ck_assert(!owner_descends(self, new_server));
    ck_assert(!owner_descends(new_server, aside));
    ck_assert(!owner_descends(aside, old));
    ck_assert(owner_descends(aside, self));
    owner_unref(self);
    owner_unref(old);
    owner_unref(middle);
    owner_unref(new_server);
    owner_unref(aside);
    end_child(sibling);
    reap(sibling);
    kill(family->grandchild, SIGKILL);
    kill(family->child, SIGKILL);
    kill(parent, SIGKILL);
    end();
}
END_TEST

/* --- children that stay ---------------------------------------------------------- */

/* A session below this process, which adopts its orphans: its leader, a process that takes a lease, and that one's
 * child. `older` was adopted before. */
struct job {
    volatile pid_t leader, taker, child, older;
    volatile bool own_session; /* the child is to take a session of its own */
};

/* Ends with the test, which nothing reports to an orphan. */
static G_NORETURN void stay(pid_t test, const volatile bool *own_session)
{
    while (kill(test, 0) == 0) {
        poll(NULL, 0, 1);
        if (*own_session) {
            setsid();
        }
    }
    _exit(0);
}

static G_NORETURN void lead_job(struct job *job)
{
    static const bool never;
    pid_t test = getppid();
    setsid();
    if (spawn() == 0) {
        pid_t older = fork();
        if (older == 0) {
            stay(test, &never);
        }
        job->older = older;
        _exit(0);
    }
    wait(NULL);
    poll(NULL, 0, 30); /* start times are in ticks */
    pid_t taker = spawn();
    if (taker == 0) {
        pid_t child = fork();
        if (child == 0) {
            stay(test, &job->own_session);
        }
        job->child = child;
        rest();
    }
    job->taker = taker;
    job->leader = getpid();
    rest();
}

static struct job *spawn_job(void)
{
    struct job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(job, MAP_FAILED);
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    if (spawn() == 0) {
        lead_job(job);
    }
    AWAIT(job->leader && job->taker && job->child && job->older);
    return job;
}

static void end_job(struct job *job)
{
    kill(job->child, SIGKILL);
    kill(job->older, SIGKILL);
    kill(job->leader, SIGKILL);
    munmap(job, sizeof *job);
    end();
}

/* Ends the taker.  Returns how many orphans it left. */
static guint end_taker(const struct job *job, struct owner *taker)
{
    kill(job->taker, SIGKILL);
    AWAIT(parent_of(job->child) == getpid());
    AWAIT(!owner_alive(taker));
    return owner_orphans(taker) ? owner_orphans(taker)->len : 0;
}

START_TEST(child_that_stays_is_known_by_its_job)
{
    begin(_i);
    struct job *job = spawn_job();
    pid_t stranger = spawn_idle();
    struct owner *taker = get(job->taker), *leader = get(job->leader);
    ck_assert_str_eq(heirs(taker, 1), pids(1, job->leader, 0));
    ck_assert_uint_eq(end_taker(job, taker), 1);
    struct owner *child = get(job->child), *older = get(job->older);
    ck_assert_ptr_eq(g_ptr_array_index(owner_orphans(taker), 0), child);
    ck_assert(owner_descends(child, leader));
    ck_assert(!owner_descends(older, leader));
    kill(job->leader, SIGKILL);
    AWAIT(!owner_alive(leader));
    ck_assert(!owner_descends(child, leader));
    owner_unref(child);
    owner_unref(older);
    owner_unref(taker);
    owner_unref(leader);
    end_child(stranger);
    reap(stranger);
    end_job(job);
}
END_TEST

START_TEST(child_in_a_session_of_its_own_is_known_if_it_was_seen)
{
    begin(_i);
    struct job *job = spawn_job();
    bool seen = _i != 0;
    struct owner *taker = get(job->taker), *child = get(job->child);
    ck_assert_str_eq(heirs(taker, 1), pids(1, job->leader, 0));
    if (seen) {
        ck_assert(owner_descends(child, taker));
    }
    job->own_session = true;
    AWAIT(getsid(job->child) == job->child);
    ck_assert_uint_eq(end_taker(job, taker), seen);
    owner_unref(child);
    owner_unref(taker);
    end_job(job);
}
END_TEST

START_TEST(children_of_a_process_that_exits_are_read)
{
    begin(_i);
    struct job *job = spawn_job();
    struct owner *taker = get(job->taker);
    job->own_session = true;
    AWAIT(getsid(job->child) == job->child);
    ck_assert_str_eq(heirs(taker, 1), pids(1, job->leader, 0));
    owner_note_children(taker);
    ck_assert_uint_eq(end_taker(job, taker), 1);
    owner_unref(taker);
    end_job(job);
}
END_TEST

START_TEST(child_of_a_process_that_ends_later_does_not_count)
{
    begin(_i);
    struct job *job = spawn_job();
    struct owner *taker = get(job->taker);
    ck_assert_str_eq(heirs(taker, 1), pids(1, job->leader, 0));
    owner_note_children(taker);
    taker->took_at -= 1100 * INT64_C(1000000);
    ck_assert_uint_eq(end_taker(job, taker), 0);
    owner_unref(taker);
    end_job(job);
}
END_TEST

START_TEST(processor_of_a_thread_is_known)
{
    struct process_reader reader;
    cpu_set_t all, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    process_open(&reader);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((size_t)cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET((size_t)cpu, &one);
            ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
            ck_assert_int_eq(process_cpu(&reader, (pid_t)syscall(SYS_gettid)), cpu);
        }
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof all, &all), 0);
    ck_assert_int_eq(process_cpu(&reader, 0), -1);
    process_close(&reader);
}
END_TEST

/* --- exit ------------------------------------------------------------------------- */

START_TEST(asking_often_gives_the_same_answer)
{
    begin(_i);
    pid_t pid = spawn_idle();
    struct owner *owner = get(pid);
    for (int i = 0; i < 10; i++) {
        ck_assert(!owner_thread_is_exiting(table, pid));
    }
    end_child(pid);
    ck_assert(owner_thread_is_exiting(table, pid));
    reap(pid);
    ck_assert(owner_thread_is_exiting(table, pid));
    ck_assert(!owner_thread_is_exiting(table, getpid()));
    owner_unref(owner);
    end();
}
END_TEST

/* The pending signals of a thread and of its process, and what happens to them: the signals are numbered from the
 * right, from 1. */
START_TEST(thread_is_killed_by_a_fatal_signal_only)
{
    static const struct {
        const char *pending, *shared, *blocked, *ignored, *caught;
        bool killed;
    } cases[] = {
        {"0", "0", "0", "0", "0", false},       {"100", "0", "fffffffffffbfeff", "0", "0", true}, /* SIGKILL */
        {"0", "2", "0", "0", "2", false},       /* SIGINT, with a handler */
        {"0", "2000", "0", "0", "2000", false}, /* SIGALRM */
        {"0", "80000", "0", "0", "0", false},   /* SIGTSTP */
        {"0", "4", "0", "0", "0", true},        /* SIGQUIT, which dumps a core */
        {"20", "0", "0", "0", "0", true},       /* SIGABRT, to the thread */
        {"0", "4", "4", "0", "0", false},       {"0", "4", "0", "4", "0", false},
        {"0", "4", "0", "0", "4", false},
    };
    begin(0);
    for (size_t i = 0; i < G_N_ELEMENTS(cases); i++) {
        g_autofree char *text = g_strdup_printf(
            "Name:\tx\nTgid:\t1\nPPid:\t1\nSigPnd:\t%s\nShdPnd:\t%s\nSigBlk:\t%s\nSigIgn:\t%s\nSigCgt:\t%s\n",
            cases[i].pending, cases[i].shared, cases[i].blocked, cases[i].ignored, cases[i].caught);
        pretend_status = text;
        ck_assert_msg(owner_thread_is_killed(table, getpid()) == cases[i].killed, "case %zu", i);
    }
    pretend_status = NULL;
    ck_assert(!owner_thread_is_killed(table, getpid()));
    pid_t pid = spawn_idle();
    end_child(pid);
    reap(pid);
    ck_assert(owner_thread_is_killed(table, pid));
    end();
}
END_TEST

/* --- descriptors -------------------------------------------------------------------- */

/* The most descriptors in use while `count` processes come and go. */
static int descriptors_during(int count)
{
    int most = 0;
    for (int i = 0; i < count; i++) {
        pid_t pid = spawn_idle();
        struct owner *owner = get(pid);
        struct owner *heir;
        ck_assert_uint_eq(owner_heirs(owner, &heir, 1), 1);
        for (int requested = 0; requested < 4; requested++) {
            owner_thread_is_exiting(table, pid);
        }
        owner_unref(heir);
        owner_unref(owner);
        end_child(pid);
        reap(pid);
        most = MAX(most, count_descriptors());
    }
    return most;
}

static void limit_descriptors(rlim_t count)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = count;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

START_TEST(short_lived_processes_leave_nothing_behind)
{
    int before = count_descriptors();
    begin(_i);
    int first = descriptors_during(1000);
    int second = descriptors_during(1000);
    ck_assert_int_le(second, first);
    end();
    ck_assert_int_eq(count_descriptors(), before);
}
END_TEST

START_TEST(without_descriptors_the_answers_are_the_same)
{
    begin(_i);
    pid_t known = spawn_idle(), unknown = spawn_idle();
    struct owner *owner = get(known);
    limit_descriptors(200);
    while (dup(0) >= 0) {
    }
    ck_assert_int_eq(errno, EMFILE);

    struct owner *late = get(unknown);
    struct owner *heir;
    ck_assert(owner_alive(late));
    ck_assert_uint_eq(owner_heirs(late, &heir, 1), 1);
    ck_assert_int_eq(owner_pid(heir), getpid());
    ck_assert(owner_descends(late, heir));
    ck_assert(!owner_descends(heir, late));
    for (int i = 0; i < 5; i++) {
        ck_assert(!owner_thread_is_exiting(table, unknown));
    }
    struct owner *wrong = owner_restore(table, unknown, owner_start(late) + 1, "");
    ck_assert(!owner_alive(wrong));
    end_child(unknown);
    ck_assert(owner_thread_is_exiting(table, unknown));
    ck_assert(!owner_alive(late));
    ck_assert(nobody(unknown));
    ck_assert(owner_alive(owner));
    end_child(known);
    ck_assert(!owner_alive(owner));
    reap(known);
    reap(unknown);
    owner_unref(wrong);
    owner_unref(heir);
    owner_unref(late);
    owner_unref(owner);
    end();
}
END_TEST

START_TEST(descriptors_are_left_for_others)
{
    limit_descriptors(100);
    begin(_i);
    enum { COUNT = 60 };
    pid_t children[COUNT];
    struct owner *owners[COUNT];
    for (int i = 0; i < COUNT; i++) {
        children[i] = spawn_idle();
        owners[i] = get(children[i]);
    }
    ck_assert_int_lt(count_descriptors(), 60);
    for (int i = 0; i < COUNT; i += 2) {
        end_child(children[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(owner_alive(owners[i]), i % 2);
    }
    for (int i = 0; i < COUNT; i++) {
        owner_unref(owners[i]);
        kill(children[i], SIGKILL);
        reap(children[i]);
    }
    end();
}
END_TEST

static void count_end(void *arg, pid_t pid)
{
    *(pid_t *)arg = *(pid_t *)arg ? -1 : pid; /* once */
}

/* By its pidfd; without pidfd_open the end is only seen by asking. */
START_TEST(the_end_of_a_process_that_is_watched_is_reported_once)
{
    begin(_i);
    pid_t reported = 0, child = spawn_idle(), noticed = spawn_idle();
    struct owner *owner = get(child), *other = get(noticed);
    owner_table_on_ended(table, count_end, &reported);
    bool watched = owner_watch(owner);
    ck_assert_int_eq(watched, _i < 2);
    ck_assert_int_eq(owner_watch(owner), watched);
    owner_table_check(table);
    ck_assert_int_eq(reported, 0);
    end_child(child);
    owner_table_check(table);
    ck_assert_int_eq(reported, watched ? child : 0);
    owner_table_check(table);
    ck_assert(!owner_alive(owner));
    ck_assert_int_eq(reported, watched ? child : 0);
    ck_assert(!owner_watch(owner));
    reported = 0;
    ck_assert_int_eq(owner_watch(other), watched);
    end_child(noticed);
    ck_assert(!owner_alive(other)); /* whoever notices it first */
    owner_table_check(table);
    ck_assert_int_eq(reported, watched ? noticed : 0);
    owner_unref(owner);
    owner_unref(other);
    owner_table_on_ended(table, NULL, NULL);
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("owner");
    TCase *cases = tcase_create("owner");
    tcase_set_timeout(cases, 120);
    tcase_add_loop_test(cases, a_thread_is_its_process, 0, KINDS);
    tcase_add_loop_test(cases, no_pid_and_no_process_have_no_owner, 0, KINDS);
    tcase_add_loop_test(cases, a_process_keeps_its_identity_while_it_lives, 0, KINDS);
    tcase_add_loop_test(cases, a_command_may_have_any_characters, 0, KINDS);
    tcase_add_loop_test(cases, a_zombie_is_not_alive, 0, KINDS);
    tcase_add_loop_test(cases, a_process_outlives_its_first_thread, 0, KINDS);
    tcase_add_loop_test(cases, a_restored_process_is_the_same_only_with_the_same_start, 0, KINDS);
    tcase_add_loop_test(cases, a_thousand_leases_of_one_dead_process_share_it, 0, KINDS);
    tcase_add_loop_test(cases, a_reused_pid_is_another_process, 0, KINDS);
    tcase_add_loop_test(cases, a_command_is_not_that_of_a_process_with_a_reused_pid, 0, KINDS);
    tcase_add_loop_test(cases, the_parent_inherits_and_then_its_parents_of_any_group, 0, KINDS);
    check_add_loop_where(check_may(CAP_SYS_ADMIN), "with CAP_SYS_ADMIN", cases,
                         a_child_of_the_first_process_inherits_in_its_session_only, 0, KINDS);
    check_add_loop_where(check_may(CAP_SYS_ADMIN), "with CAP_SYS_ADMIN", cases,
                         the_first_process_inherits_where_it_is_not_the_init_of_the_machine, 0, KINDS);
    tcase_add_loop_test(cases, how_it_ended_is_known_once_it_was_reaped, 0, KINDS);
    tcase_add_loop_test(cases, a_session_that_bears_its_parents_name_ends_as_that_does, 0, KINDS);
    tcase_add_loop_test(cases, a_parent_that_is_in_execve_inherits, 0, KINDS);
    tcase_add_loop_test(cases, who_adopts_an_orphan_is_its_parent, 0, KINDS);
    tcase_add_loop_test(cases, descent_follows_the_parents, 0, KINDS);
    tcase_add_loop_test(cases, child_that_stays_is_known_by_its_job, 0, KINDS);
    tcase_add_loop_test(cases, child_in_a_session_of_its_own_is_known_if_it_was_seen, 0, KINDS);
    tcase_add_loop_test(cases, children_of_a_process_that_exits_are_read, 0, KINDS);
    tcase_add_loop_test(cases, child_of_a_process_that_ends_later_does_not_count, 0, KINDS);
    tcase_add_test(cases, processor_of_a_thread_is_known);
    tcase_add_loop_test(cases, asking_often_gives_the_same_answer, 0, KINDS);
    tcase_add_test(cases, thread_is_killed_by_a_fatal_signal_only);
    tcase_add_loop_test(cases, short_lived_processes_leave_nothing_behind, 0, KINDS);
    tcase_add_loop_test(cases, without_descriptors_the_answers_are_the_same, 0, KINDS);
    tcase_add_loop_test(cases, descriptors_are_left_for_others, 0, KINDS);
    tcase_add_loop_test(cases, the_end_of_a_process_that_is_watched_is_reported_once, 0, KINDS);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
