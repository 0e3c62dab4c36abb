/* The kernel's directory of a FUSE connection, of real mounts.  A mount needs no daemon for that: its top can be opened
 * with O_PATH, and when /dev/fuse is closed the mount is a dead one.  Needs root and /dev/fuse. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/process/connection.h"
#include "fs/process/walk.h"
#include "tests/support/check_main.h"

#define TRIES 200 /* other programs of this machine mount, too */

static char directory[] = "/tmp/check_connection.XXXXXX";
static int all = -1;

static bool mount_fuse(int *ret_device)
{
    char options[64];
    *ret_device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", *ret_device);
    if (*ret_device >= 0 && mount("check", directory, "fuse", 0, options) == 0) {
        return true;
    }
    if (*ret_device >= 0) {
        close(*ret_device);
    }
    return false;
}

static void setup(void)
{
    int device;
    strcpy(strrchr(directory, '.'), ".XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    ck_assert(mount_fuse(&device));
    umount2(directory, MNT_DETACH);
    close(device);
    all = connection_open_all();
    ck_assert_int_ge(all, 0);
}

static void teardown(void)
{
    if (all >= 0) {
        close(all);
    }
    rmdir(directory);
}

/* A dead mount, detached; the descriptor of its top is all that keeps it. */
static int make_dead_mount(struct walk_file *ret_top)
{
    int device;
    struct statx top;
    ck_assert(mount_fuse(&device));
    int fd = open(directory, O_PATH | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    close(device);
    ck_assert_int_eq(statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &top), 0);
    *ret_top = (struct walk_file){makedev(top.stx_dev_major, top.stx_dev_minor), top.stx_ino};
    ck_assert_int_eq(umount2(directory, MNT_DETACH), 0);
    return fd;
}

START_TEST(connection_goes_with_the_last_descriptor)
{
    struct walk_file top;
    int fd = make_dead_mount(&top), connection = connection_open(all, (dev_t)top.device);
    ck_assert_int_ge(connection, 0);
    int other = dup(fd);
    close(fd);
    ck_assert(!connection_is_gone(connection));
    close(other);
    ck_assert(connection_is_gone(connection));
    close(connection);
}
END_TEST

START_TEST(mount_without_a_descriptor_has_no_connection)
{
    struct walk_file top;
    close(make_dead_mount(&top));
    int connection = connection_open(all, (dev_t)top.device);
    ck_assert(connection == -ENOENT || connection >= 0); /* somebody else's, since */
}
END_TEST

START_TEST(connection_is_gone_though_its_number_is_used_again)
{
    struct walk_file top, next = {0};
    int tries = 0, fd, connection, again = -1;
    do {
        fd = make_dead_mount(&top);
        connection = connection_open(all, (dev_t)top.device);
        ck_assert_int_ge(connection, 0);
        close(fd);
        if (again >= 0) {
            close(again);
        }
        again = make_dead_mount(&next);
        ck_assert(connection_is_gone(connection));
        if (next.device != top.device) {
            close(connection);
        }
    } while (next.device != top.device && ++tries < TRIES);
    ck_assert_uint_eq(next.device, top.device);
    int new_one = connection_open(all, (dev_t)next.device);
    ck_assert_int_ge(new_one, 0);
    ck_assert(!connection_is_gone(new_one));
    ck_assert(connection_is_gone(connection));
    close(again);
    ck_assert(connection_is_gone(new_one));
    close(new_one);
    close(connection);
}
END_TEST

/* It detaches the mount from a namespace of its own, so its descriptor has a mount id that is nowhere else. */
static pid_t hold_in_another_namespace(int keep, int *ret_device)
{
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    ck_assert(mount_fuse(ret_device));
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNS) < 0 || (keep && open(directory, O_PATH) < 0)) {
            _exit(1);
        }
        close(*ret_device);
        (void)!write(ready[1], "", 1);
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

/* Finds a file that a process has open there.  The connection stays while only another namespace has the mount. */
static void check_namespace(bool opens)
{
    int device, proc = open("/proc", O_PATH | O_CLOEXEC);
    struct statx is;
    struct walk_result result;
    pid_t pid = hold_in_another_namespace(opens, &device);
    ck_assert_int_eq(statx(AT_FDCWD, directory, AT_STATX_DONT_SYNC, 0, &is), 0);
    struct walk_file top = {makedev(is.stx_dev_major, is.stx_dev_minor), is.stx_ino};
    int connection = connection_open(all, (dev_t)top.device);
    close(device);
    ck_assert_int_eq(umount2(directory, MNT_DETACH), 0);
    ck_assert(!connection_is_gone(connection));
    ck_assert_int_eq(walk_processes(proc, &top, 1, &result), 0);
    ck_assert_uint_eq(result.count > 0 && result.openers[0].file == 0 && result.openers[0].pid == pid, opens);
    walk_clear(&result);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    int tries = 0;
    while (!connection_is_gone(connection) && ++tries < TRIES) {
        usleep(50000); /* a namespace is taken apart behind its last process */
    }
    ck_assert(connection_is_gone(connection));
    close(connection);
    close(proc);
}

START_TEST(descriptor_of_another_mount_namespace_is_found)
{
    check_namespace(true);
}
END_TEST

START_TEST(mount_of_another_namespace_keeps_the_connection)
{
    check_namespace(false);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("connection");
    TCase *cases = tcase_create("connection");
    if (!check_may(CAP_SYS_ADMIN) || access("/dev/fuse", R_OK | W_OK) != 0) {
        puts("1..0 # SKIP needs CAP_SYS_ADMIN and /dev/fuse");
        return EXIT_SUCCESS;
    }
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, connection_goes_with_the_last_descriptor);
    tcase_add_test(cases, mount_without_a_descriptor_has_no_connection);
    tcase_add_test(cases, connection_is_gone_though_its_number_is_used_again);
    tcase_add_test(cases, descriptor_of_another_mount_namespace_is_found);
    tcase_add_test(cases, mount_of_another_namespace_keeps_the_connection);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
