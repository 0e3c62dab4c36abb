/* One look at every process, on real ones.  The file that is looked for is an ordinary one: a walk knows files by
 * device and inode, whatever they are on. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/process/walk.h"
#include "tests/support/check_main.h"

#define CROWD 200
#define CROWD_THREADS 40
#define CHAIN_WALKS 60

static char directory[] = "/tmp/check_walk.XXXXXX";
static char *path, *other_path;
static struct walk_file files[2]; /* `path` and `other_path`, sorted */
static uint32_t number;           /* of `path` in `files` */
static int proc;
static struct walk_result result;
static unsigned opens; /* of this process, since set to 0 */

/* What a walk costs is counted, not timed. */
int openat(int fd, const char *name, int flags, ...)
{
    opens++;
    return (int)syscall(SYS_openat, fd, name, flags, 0);
}

static struct walk_file identify(const char *name)
{
    struct stat is;
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &is), 0);
    close(fd);
    return (struct walk_file){is.st_dev, is.st_ino};
}

static void setup(void)
{
    strcpy(strrchr(directory, '.'), ".XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    chmod(directory, 0755);
    path = g_build_filename(directory, "file", NULL);
    other_path = g_build_filename(directory, "other", NULL);
    struct walk_file file = identify(path);
    files[0] = file;
    files[1] = identify(other_path);
    qsort(files, 2, sizeof *files, walk_compare_files);
    number = files[0].inode == file.inode ? 0 : 1;
    proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    result = (struct walk_result){0};
}

static void teardown(void)
{
    walk_clear(&result);
    close(proc);
    unlink(path);
    unlink(other_path);
    rmdir(directory);
    g_free(path);
    g_free(other_path);
}

static void walk(void)
{
    walk_clear(&result);
    ck_assert_int_eq(walk_processes(proc, files, 2, &result), 0);
}

static const struct walk_opener *find(uint32_t file, pid_t pid)
{
    for (size_t i = 0; i < result.count; i++) {
        if (result.openers[i].file == file && result.openers[i].pid == pid) {
            return &result.openers[i];
        }
    }
    return NULL;
}

static size_t count(uint32_t file)
{
    size_t found = 0;
    for (size_t i = 0; i < result.count; i++) {
        found += result.openers[i].file == file;
    }
    return found;
}

/* --- children: they are ready when a byte has come, and live until they are killed ------- */

static int ready[2];

static pid_t begin(void)
{
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

static void G_GNUC_NORETURN stay(void)
{
    (void)!write(ready[1], "", 1);
    for (;;) {
        pause();
    }
}

static void await(void)
{
    char byte;
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static pid_t hold(void)
{
    pid_t pid = begin();
    if (pid == 0) {
        open(path, O_RDONLY);
        stay();
    }
    await();
    return pid;
}

START_TEST(process_with_the_file_open_is_found)
{
    pid_t pid = hold();
    walk();
    const struct walk_opener *opener = find(number, pid);
    ck_assert_ptr_nonnull(opener);
    ck_assert_uint_eq(count(number), 1);
    ck_assert_uint_eq(count(1 - number), 0);
    ck_assert_uint_eq(opener->uid, geteuid());
    ck_assert(opener->single_threaded);
    end(pid);
    walk();
    ck_assert_uint_eq(count(number), 0);
}
END_TEST

START_TEST(file_is_reported_once_for_each_process)
{
    int fds[] = {open(path, O_RDONLY | O_CLOEXEC), open(path, O_RDONLY | O_CLOEXEC),
                 open(other_path, O_RDONLY | O_CLOEXEC)};
    pid_t pid = hold();
    walk();
    ck_assert_uint_eq(count(number), 2);
    ck_assert_uint_eq(count(1 - number), 2); /* inherited */
    ck_assert_ptr_nonnull(find(number, pid));
    ck_assert_ptr_nonnull(find(number, getpid()));
    end(pid);
    for (size_t i = 0; i < G_N_ELEMENTS(fds); i++) {
        close(fds[i]);
    }
}
END_TEST

START_TEST(other_files_of_a_device_are_found_together)
{
    pid_t pid = hold();
    int fd = open(other_path, O_RDONLY | O_CLOEXEC);
    files[1 - number].inode = WALK_OTHER;
    qsort(files, 2, sizeof *files, walk_compare_files);
    number = files[0].inode == WALK_OTHER ? 1 : 0;
    walk();
    ck_assert_ptr_nonnull(find(number, pid));
    ck_assert_ptr_null(find(number, getpid()));
    ck_assert_ptr_nonnull(find(1 - number, getpid()));
    end(pid);
    close(fd);
}
END_TEST

static void *stay_as_thread(void *arg)
{
    if (arg) {
        unshare(CLONE_FILES);
        open(path, O_RDONLY);
    }
    stay();
}

START_TEST(process_whose_first_thread_has_exited_is_found)
{
    pid_t pid = begin();
    if (pid == 0) {
        pthread_t thread;
        open(path, O_RDONLY);
        pthread_create(&thread, NULL, stay_as_thread, NULL);
        syscall(SYS_exit, 0);
    }
    await();
    char state[64];
    do { /* the thread may be quicker */
        g_autofree char *status = g_strdup_printf("/proc/%d/status", (int)pid);
        g_autofree char *text = NULL;
        ck_assert(g_file_get_contents(status, &text, NULL, NULL));
        g_strlcpy(state, strstr(text, "State:"), sizeof state);
    } while (!strchr(state, 'Z'));
    walk();
    ck_assert_ptr_nonnull(find(number, pid));
    end(pid);
}
END_TEST

START_TEST(thread_with_descriptors_of_its_own_is_found)
{
    pid_t pid = begin();
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, stay_as_thread, "");
        pthread_join(thread, NULL);
    }
    await();
    walk();
    const struct walk_opener *opener = find(number, pid);
    ck_assert_ptr_nonnull(opener);
    ck_assert(!opener->single_threaded);
    end(pid);
}
END_TEST

START_TEST(process_of_another_mount_namespace_is_found)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0) {
        return; /* needs CAP_SYS_ADMIN */
    }
    pid_t pid = begin();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
            mount(directory, directory, NULL, MS_BIND, NULL) == 0) {
            open(path, O_RDONLY);
        }
        stay();
    }
    await();
    walk();
    ck_assert_ptr_nonnull(find(number, pid));
    end(pid);
}
END_TEST

START_TEST(process_of_a_pid_namespace_below_is_found)
{
    if (geteuid() != 0) {
        return;
    }
    pid_t outer = begin();
    if (outer == 0) {
        if (unshare(CLONE_NEWPID) == 0 && fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            open(path, O_RDONLY);
            stay();
        }
        for (;;) {
            pause();
        }
    }
    await();
    walk();
    ck_assert_uint_eq(count(number), 1);
    ck_assert_ptr_null(find(number, outer));
    end(outer);
}
END_TEST

START_TEST(descriptor_in_a_socket_is_noticed)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (size_t i = 0; i < G_N_ELEMENTS(types); i++) {
        int ends[2], fd = open(path, O_RDONLY | O_CLOEXEC);
        char byte = 0, control[CMSG_SPACE(sizeof fd)] = {0};
        struct iovec data = {.iov_base = &byte, .iov_len = 1};
        struct msghdr message = {
            .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
        ck_assert_int_eq(socketpair(AF_UNIX, types[i] | SOCK_CLOEXEC, 0, ends), 0);
        ck_assert_int_eq(sendmsg(ends[0], &message, 0), 1);
        close(fd);
        walk();
        ck_assert_uint_eq(count(number), 0);
        ck_assert(result.in_flight);
        close(ends[0]); /* the receiver's end keeps it */
        walk();
        ck_assert(result.in_flight);
        ck_assert_int_eq(recvmsg(ends[1], &message, MSG_CMSG_CLOEXEC), 1);
        walk();
        ck_assert_ptr_nonnull(find(number, getpid()));
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        close(fd);
        close(ends[1]);
    }
}
END_TEST

/* Another program of this machine may just have one on its way, but not each time. */
START_TEST(empty_socket_is_no_uncertainty)
{
    int tries = 0;
    do {
        walk();
    } while ((result.in_flight || !result.settled) && ++tries < 100);
    ck_assert_int_lt(tries, 100);
}
END_TEST

/* Each process makes the next one and ends.  Two walks in a row that see nobody would free the lock. */
START_TEST(chain_of_processes_is_never_missed_twice)
{
    bool *stop = mmap(NULL, sizeof *stop, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_IGN);
    pid_t pid = begin();
    if (pid == 0) {
        open(path, O_RDONLY);
        (void)!write(ready[1], "", 1);
        while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
            pid_t next = fork();
            if (next > 0) {
                _exit(0);
            }
        }
        _exit(0);
    }
    await();
    unsigned missed = 0, seen = 0;
    for (int i = 0; i < CHAIN_WALKS; i++) {
        walk();
        bool nobody = count(number) == 0 && result.settled && !result.in_flight;
        missed = nobody ? missed + 1 : 0;
        seen += count(number) > 0;
        ck_assert_uint_lt(missed, 2);
    }
    ck_assert_uint_gt(seen, 0);
    __atomic_store_n(stop, true, __ATOMIC_RELAXED);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
    }
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    munmap(stop, sizeof *stop);
    walk();
    ck_assert_uint_eq(count(number), 0);
}
END_TEST

/* Walks as an ordinary user in a child, which tells what it saw by its exit status. */
START_TEST(process_that_cannot_be_looked_into_is_unseen)
{
    if (geteuid() != 0) {
        return;
    }
    pid_t holder = hold(), walker = begin();
    if (walker == 0) {
        if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0) {
            _exit(3);
        }
        walk();
        _exit(find(number, holder) ? 2 : find(WALK_UNSEEN, holder) ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(walker, &status, 0), walker);
    ck_assert_int_eq(status, 0);
    end(holder);
}
END_TEST

/* Per process: its threads, one table of descriptors.  Threads that share it cost no open. */
START_TEST(walk_opens_two_directories_for_each_process)
{
    pid_t crowd[CROWD];
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = begin();
        if (crowd[i] == 0) {
            pthread_t thread;
            for (int k = 1; i == 0 && k < CROWD_THREADS; k++) {
                pthread_create(&thread, NULL, stay_as_thread, NULL);
            }
            stay();
        }
        await();
    }
    int tries = 0;
    do {
        int fd = open(path, O_RDONLY | O_CLOEXEC), other = open(other_path, O_RDONLY | O_CLOEXEC);
        opens = 0;
        walk();
        close(fd);
        close(other);
    } while (!result.settled && ++tries < 100);
    ck_assert_uint_gt(result.processes, CROWD);
    ck_assert_uint_le(opens,
                      2 * result.processes + 64); /* other programs of this machine have a few threads of their own */
    for (int i = 0; i < CROWD; i++) {
        end(crowd[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("walk");
    TCase *cases = tcase_create("walk");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, process_with_the_file_open_is_found);
    tcase_add_test(cases, file_is_reported_once_for_each_process);
    tcase_add_test(cases, other_files_of_a_device_are_found_together);
    tcase_add_test(cases, process_whose_first_thread_has_exited_is_found);
    tcase_add_test(cases, thread_with_descriptors_of_its_own_is_found);
    tcase_add_test(cases, process_of_another_mount_namespace_is_found);
    tcase_add_test(cases, process_of_a_pid_namespace_below_is_found);
    tcase_add_test(cases, descriptor_in_a_socket_is_noticed);
    tcase_add_test(cases, empty_socket_is_no_uncertainty);
    tcase_add_test(cases, chain_of_processes_is_never_missed_twice);
    tcase_add_test(cases, process_that_cannot_be_looked_into_is_unseen);
    tcase_add_test(cases, walk_opens_two_directories_for_each_process);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
