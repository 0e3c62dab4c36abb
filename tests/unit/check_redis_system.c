/* check_redis_system: a mount of Redis to which the system refuses a descriptor, a thread or a timer.
 *
 * The calls are wrapped (see Makefile.am); `refusals` is how many of the next ones are refused.
 */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "backend/redlock/redlock.h"
#include "tests/support/check_main.h"
#include "tests/support/scratch.h"
#include "tests/unit/hosts_fixture.h"

enum refused { SOCKET, SOCKET_ERROR, THREAD, TIMER, TIMER_SET, TIMER_READ, FILE_READ, REFUSED };

static unsigned refusals[REFUSED];
static int timer_fd = -1;

static bool refuse(enum refused what, int error)
{
    errno = refusals[what] ? error : errno;
    return refusals[what] && refusals[what]--;
}

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
int __real_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags);
int __real_timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old);
ssize_t __real_read(int fd, void *data, size_t size);
ssize_t __wrap_read(int fd, void *data, size_t size);

int __wrap_socket(int domain, int type, int protocol)
{
    return refuse(SOCKET, EMFILE) ? -1 : __real_socket(domain, type, protocol);
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
    return refuse(SOCKET_ERROR, ENOBUFS) ? -1 : __real_getsockopt(fd, level, name, value, length);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg)
{
    return refuse(THREAD, EAGAIN) ? EAGAIN : __real_pthread_create(thread, attributes, start, arg);
}

int __wrap_timerfd_create(int clock, int flags)
{
    return timer_fd = refuse(TIMER, EMFILE) ? -1 : __real_timerfd_create(clock, flags);
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *value, struct itimerspec *old)
{
    return refuse(TIMER_SET, EINVAL) ? -1 : __real_timerfd_settime(fd, flags, value, old);
}

ssize_t __wrap_read(int fd, void *data, size_t size)
{
    bool refused = fd == timer_fd ? refuse(TIMER_READ, EAGAIN) : refuse(FILE_READ, EIO);
    return refused ? -1 : __real_read(fd, data, size);
}

/* --- timers --- */

START_TEST(mount_without_a_timer_is_refused_and_says_so)
{
    char error[256] = "";
    struct redis_options options = {.conn.uri.path = (char *)"/nowhere"};
    struct redlock_uri uri;
    struct backend *b = NULL;
    refusals[TIMER] = 2;
    ck_assert_int_eq(redis_new(&options, &b, error, sizeof error), -EMFILE);
    ck_assert_msg(g_str_has_prefix(error, "cannot make a timer: "), "%s", error);
    ck_assert_int_eq(redlock_uri_parse(&uri, "redlock://a,b,c", error, sizeof error), 0);
    const struct redlock_options several = {.uri = &uri, .ttl = 30000};
    ck_assert_int_eq(redlock_new(&several, &b, error, sizeof error), -EMFILE);
    ck_assert_msg(g_str_has_prefix(error, "cannot make a timer: "), "%s", error);
    ck_assert_ptr_null(b);
    redlock_uri_clear(&uri);
}
END_TEST

/* It is set again with the next change, and a term that is over in between is none for others. */
START_TEST(lease_whose_timer_could_not_be_set_is_refused_to_nobody_when_it_is_over)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, 200);
    hosts_mount(0);
    refusals[TIMER_SET] = 1;
    struct hosts_record *record = hosts_acquire(0, "a", &claim);
    ck_assert_int_eq(record->result, BACKEND_OK);
    ck_assert_uint_eq(refusals[TIMER_SET], 0);
    hosts_get(0, "b", HOSTS_LONG);
    record->renews = false;
    HOSTS_UNTIL(record->ended);
    ck_assert_int_eq(record->why, BACKEND_EXPIRED);
}
END_TEST

START_TEST(timer_that_had_nothing_to_read_goes_off_again)
{
    struct backend_claim claim = hosts_claim(BACKEND_LEASE, 200);
    hosts_mount(0);
    struct hosts_record *record = hosts_acquire(0, "a", &claim);
    record->renews = false;
    refusals[TIMER_READ] = 1;
    HOSTS_UNTIL(record->ended);
    ck_assert_uint_eq(refusals[TIMER_READ], 0);
    ck_assert_int_eq(record->why, BACKEND_EXPIRED);
}
END_TEST

/* --- files --- */

START_TEST(credentials_that_cannot_be_read_are_refused)
{
    char *directory = scratch_new(), *path = g_build_filename(directory, "credentials", NULL);
    char *user = NULL, *password = NULL, error[256] = "";
    scratch_write(directory, "credentials", "secret", strlen("secret"));
    ck_assert_int_eq(chmod(path, 0600), 0);
    refusals[FILE_READ] = 1;
    ck_assert_int_eq(redis_credentials_read(path, &user, &password, error, sizeof error), -EIO);
    ck_assert_msg(strstr(error, path) && strstr(error, g_strerror(EIO)), "%s", error);
    ck_assert_ptr_null(password);
    scratch_free(directory);
    g_free(path);
}
END_TEST

/* --- connections --- */

/* Each is for a while only: the mount tries again. */
static void check_connects_later(enum refused what, unsigned times)
{
    refusals[what] = times;
    hosts_get(0, "a", HOSTS_LONG); /* when it is up */
    ck_assert_uint_eq(refusals[what], 0);
}

START_TEST(mount_that_gets_no_descriptor_connects_when_it_gets_one)
{
    check_connects_later(SOCKET, 2);
}
END_TEST

START_TEST(connection_of_which_nobody_knows_whether_it_was_made_is_made_again)
{
    check_connects_later(SOCKET_ERROR, 1);
}
END_TEST

START_TEST(mount_that_gets_no_thread_to_look_up_its_host_connects_when_it_gets_one)
{
    hosts_options.conn.uri.path = NULL;
    hosts_options.conn.uri.host = (char *)"localhost";
    hosts_options.conn.uri.port = redis_server_port(hosts_server);
    check_connects_later(THREAD, 1);
}
END_TEST

static Suite *system_suite(void)
{
    Suite *suite = suite_create("a mount of Redis and its system");
    TCase *by_itself = tcase_create("alone"), *tcase = tcase_create("mounts");

    tcase_add_test(by_itself, mount_without_a_timer_is_refused_and_says_so);
    tcase_add_test(by_itself, credentials_that_cannot_be_read_are_refused);
    suite_add_tcase(suite, by_itself);

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, hosts_setup, hosts_teardown);
    tcase_add_test(tcase, lease_whose_timer_could_not_be_set_is_refused_to_nobody_when_it_is_over);
    tcase_add_test(tcase, timer_that_had_nothing_to_read_goes_off_again);
    tcase_add_test(tcase, mount_that_gets_no_descriptor_connects_when_it_gets_one);
    tcase_add_test(tcase, connection_of_which_nobody_knows_whether_it_was_made_is_made_again);
    tcase_add_test(tcase, mount_that_gets_no_thread_to_look_up_its_host_connects_when_it_gets_one);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    if (!redis_server_exists()) {
        puts("1..0 # skip there is no redis-server");
        return 0;
    }
    return check_main(system_suite());
}
