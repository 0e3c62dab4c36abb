/* Which processes have files of a dead mount open, as the daemon learns it: its rules with replies of this test in
 * place of the privileged child, and the real child with an ordinary file in place of one of a dead mount. */
#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <glib.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/process/connection.h"
#include "fs/process/openers.h"
#include "fs/process/owner.h"
#include "fs/process/walker.h"
#include "tests/support/check_main.h"

#define TIME_LIMIT 20.0 /* seconds */
#define DEVICE 77
#define MOUNT_THERE 1 /* what the kernel's directory would say, in `*mount` */
#define MOUNT_GONE 2

static struct ev_loop *loop;
static struct owner_table *owners;
static struct openers *openers;
static int child_end, daemon_end; /* of the socket */
static pid_t child;               /* the privileged one, 0: this test takes its place */
static int *mount;                /* shared with the child */

/* In place of the kernel's. */
int connection_open_all(void)
{
    return 0;
}

int connection_open(int all, dev_t device)
{
    (void)all;
    (void)device;
    return *mount == MOUNT_GONE ? -ENOENT : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

bool connection_is_gone(int connection)
{
    (void)connection;
    return *mount == MOUNT_GONE;
}

static void prepare(void)
{
    int ends[2];
    loop = ev_loop_new(EVFLAG_AUTO);
    owners = owner_table_new();
    mount = mmap(NULL, sizeof *mount, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *mount = MOUNT_THERE;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    child_end = ends[1];
    daemon_end = ends[0];
    child = 0;
    openers = openers_new(loop, owners, ends[0]);
}

static void teardown(void)
{
    openers_free(openers);
    owner_table_free(owners);
    ev_loop_destroy(loop);
    if (child) {
        waitpid(child, NULL, 0);
    } else {
        close(child_end);
    }
    munmap(mount, sizeof *mount);
}

/* --- what the callback said --------------------------------------------------------- */

struct reported {
    unsigned calls;
    enum openers_verdict verdict;
    size_t count;
    pid_t first;
    bool unseen, single_threaded;
};

static void note(struct openers_file *file, const struct openers_found *found, void *arg)
{
    struct reported *reported = arg;
    (void)file;
    reported->calls++;
    reported->verdict = found->verdict;
    reported->count = found->count;
    reported->first = found->count > 0 ? owner_pid(found->processes[0].owner) : 0;
    reported->unseen = found->count > 0 && found->processes[0].unseen;
    reported->single_threaded = found->count > 0 && found->processes[0].single_threaded;
}

static void stop(struct ev_loop *at, ev_timer *timer, int events)
{
    (void)timer;
    (void)events;
    ev_break(at, EVBREAK_ALL);
}

static void run_for(double seconds)
{
    ev_timer timer;
    ev_now_update(loop);
    ev_timer_init(&timer, stop, seconds, 0);
    ev_timer_start(loop, &timer);
    ev_run(loop, 0);
    ev_timer_stop(loop, &timer);
}

static void await_verdict(const struct reported *reported, enum openers_verdict verdict)
{
    for (int i = 0; i < TIME_LIMIT * 100 && (reported->calls == 0 || reported->verdict != verdict); i++) {
        run_for(0.01);
    }
    ck_assert_uint_gt(reported->calls, 0);
    ck_assert_int_eq(reported->verdict, verdict);
}

static uint64_t walks(void)
{
    struct openers_metrics metrics;
    openers_measure(openers, &metrics);
    return metrics.walks;
}

/* --- this test as the child ---------------------------------------------------------- */

/* Is there a request?  Takes it, with its files. */
static bool take_request(uint32_t *ret_files)
{
    struct walker_request request;
    struct walk_file file;
    if (recv(child_end, &request, sizeof request, MSG_DONTWAIT) != sizeof request) {
        return false;
    }
    for (uint32_t i = 0; request.files != WALKER_SAME_FILES && i < request.files; i++) {
        ck_assert_int_eq(recv(child_end, &file, sizeof file, 0), sizeof file);
    }
    *ret_files = request.files;
    return true;
}

static uint32_t await_request(void)
{
    uint32_t files;
    for (int i = 0; i < TIME_LIMIT * 100; i++) {
        if (take_request(&files)) {
            return files;
        }
        run_for(0.01);
    }
    ck_abort_msg("no request");
}

static void answer(struct walker_reply reply, const struct walk_opener *list)
{
    struct walker_mount there = {.device = DEVICE, .state = *mount == MOUNT_GONE ? WALKER_GONE : WALKER_PRESENT};
    reply.mounts = 1;
    ck_assert_int_eq(write(child_end, &reply, sizeof reply), sizeof reply);
    if (reply.openers) {
        size_t size = reply.openers * sizeof *list;
        ck_assert_int_eq(write(child_end, list, size), (ssize_t)size);
    }
    ck_assert_int_eq(write(child_end, &there, sizeof there), sizeof there);
    run_for(0.01);
}

static const struct walker_reply calm = {.settled = true};

static void answer_nobody(void)
{
    await_request();
    answer(calm, NULL);
}

static void answer_opener(pid_t pid)
{
    struct walk_opener opener = {.pid = pid, .single_threaded = true};
    struct walker_reply reply = {.settled = true, .openers = 1};
    await_request();
    answer(reply, &opener);
}

static pid_t live(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            pause();
        }
    }
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

START_TEST(nobody_is_certain_after_two_walks)
{
    struct reported reported = {0};
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_UNSURE);
    answer_nobody();
    ck_assert_uint_eq(reported.calls, 2);
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

START_TEST(walk_that_proves_nothing_does_not_count)
{
    struct reported reported = {0};
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    answer_nobody();
    await_request();
    answer((struct walker_reply){.settled = false}, NULL);
    answer_nobody();
    await_request();
    answer((struct walker_reply){.settled = true, .in_flight = true}, NULL);
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_UNSURE);
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

START_TEST(opener_that_ends_during_a_walk_makes_it_prove_nothing)
{
    struct reported reported = {0};
    pid_t pid = live();
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    answer_opener(pid);
    ck_assert_int_eq(reported.verdict, OPENERS_SOME);
    ck_assert_int_eq(reported.first, pid);
    ck_assert(reported.single_threaded);
    openers_ask(openers);
    await_request();
    end(pid);
    answer(calm, NULL);
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_UNSURE);
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

START_TEST(opener_that_has_ended_before_it_is_known_counts)
{
    struct reported reported = {0};
    pid_t pid = live();
    end(pid);
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    answer_nobody();
    answer_opener(pid);
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_UNSURE);
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

START_TEST(end_of_an_opener_starts_a_walk)
{
    struct reported reported = {0};
    pid_t pid = live();
    uint32_t files;
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    answer_opener(pid);
    run_for(0.3);
    ck_assert(!take_request(&files));
    end(pid);
    answer_nobody();
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

START_TEST(file_of_a_hidden_process_waits_for_the_mount)
{
    struct reported reported = {0}, other = {0};
    openers_add(openers, DEVICE, 1, NULL, true, note, &reported);
    openers_add(openers, DEVICE, 2, NULL, false, note, &other);
    for (int i = 0; i < 3; i++) {
        answer_nobody();
    }
    ck_assert_int_eq(reported.verdict, OPENERS_UNSURE);
    ck_assert_int_eq(other.verdict, OPENERS_NOBODY);
    *mount = MOUNT_GONE;
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

/* Another mount has its number since, so that its files look the same. */
START_TEST(file_of_a_mount_that_is_gone_has_no_openers)
{
    struct reported reported = {0};
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    *mount = MOUNT_GONE;
    answer_opener(getpid());
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

START_TEST(mount_whose_number_is_ours_is_gone)
{
    struct reported reported = {0};
    openers_set_own_device(openers, DEVICE);
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    answer_opener(getpid());
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

START_TEST(unseen_process_counts_while_it_lives)
{
    struct reported reported = {0};
    pid_t pid = live();
    struct walk_opener unseen = {.file = WALK_UNSEEN, .pid = pid};
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    await_request();
    answer((struct walker_reply){.settled = true, .openers = 1}, &unseen);
    ck_assert_int_eq(reported.verdict, OPENERS_SOME);
    ck_assert_int_eq(reported.first, pid);
    ck_assert(reported.unseen);
    end(pid);
    answer_nobody();
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

START_TEST(without_the_capability_only_the_opener_counts)
{
    struct reported reported = {0}, other = {0};
    pid_t pid = live(), stranger = live();
    struct walk_opener unseen[] = {{.file = WALK_UNSEEN, .pid = MIN(pid, stranger)},
                                   {.file = WALK_UNSEEN, .pid = MAX(pid, stranger)}};
    struct walker_reply reply = {.settled = true, .openers = 2, .blind = true};
    struct owner *opener = owner_get(owners, pid);
    openers_add(openers, DEVICE, 1, opener, false, note, &reported);
    openers_add(openers, DEVICE, 2, NULL, false, note, &other);
    owner_unref(opener);
    for (int i = 0; i < 2; i++) {
        await_request();
        answer(reply, unseen);
    }
    ck_assert_int_eq(reported.verdict, OPENERS_SOME);
    ck_assert_uint_eq(reported.count, 1);
    ck_assert_int_eq(reported.first, pid);
    ck_assert_int_eq(other.verdict, OPENERS_NOBODY);
    end(pid);
    end(stranger);
    answer_nobody();
    answer_nobody();
    ck_assert_int_eq(reported.verdict, OPENERS_NOBODY);
}
END_TEST

START_TEST(one_walk_serves_all_who_ask)
{
    struct reported reported[3] = {0};
    uint32_t files;
    for (int i = 0; i < 3; i++) {
        openers_add(openers, DEVICE, (ino_t)(1 + i / 2), NULL, false, note, &reported[i]); /* two of the same file */
    }
    ck_assert_uint_eq(await_request(), 2);
    for (int i = 0; i < 100; i++) {
        openers_ask(openers);
    }
    struct walk_opener both[] = {{.file = 0, .pid = getpid()}, {.file = 1, .pid = getpid()}};
    answer((struct walker_reply){.settled = true, .openers = 2}, both);
    ck_assert_uint_eq(await_request(), WALKER_SAME_FILES); /* theirs began before they asked */
    answer((struct walker_reply){.settled = true, .openers = 2}, both);
    run_for(0.3);
    ck_assert(!take_request(&files));
    for (int i = 0; i < 3; i++) {
        ck_assert_uint_eq(reported[i].calls, 2);
        ck_assert_int_eq(reported[i].verdict, OPENERS_SOME);
    }
}
END_TEST

START_TEST(walks_come_every_second_while_somebody_waits)
{
    struct reported reported = {0};
    uint32_t files;
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    openers_set_waited_for(openers, true);
    answer_opener(getpid());
    double began = ev_time();
    answer_opener(getpid());
    ck_assert_double_gt(ev_time() - began, 0.8);
    openers_set_waited_for(openers, false);
    run_for(1.5);
    ck_assert(!take_request(&files));
}
END_TEST

/* A walk of 50 ms of a processor is followed by the next one after half a second. */
START_TEST(walks_use_a_tenth_of_a_processor)
{
    struct reported reported = {0};
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    await_request();
    double began = ev_time();
    answer((struct walker_reply){.settled = true, .processor_ns = 50000000}, NULL);
    openers_ask(openers);
    await_request();
    ck_assert_double_gt(ev_time() - began, 0.45);
}
END_TEST

static struct openers_file *removed_files[2];

static void remove_both(struct openers_file *file, const struct openers_found *found, void *arg)
{
    note(file, found, arg);
    for (int i = 0; i < 2; i++) {
        openers_remove(removed_files[i]);
        removed_files[i] = NULL;
    }
    openers_add(openers, DEVICE, 3, NULL, false, note, arg);
}

START_TEST(callback_may_remove_and_add_files)
{
    struct reported reported = {0};
    removed_files[0] = openers_add(openers, DEVICE, 1, NULL, false, remove_both, &reported);
    removed_files[1] = openers_add(openers, DEVICE, 1, NULL, false, remove_both, &reported);
    answer_nobody();
    ck_assert_uint_eq(reported.calls, 1);
    ck_assert_uint_eq(await_request(), 1);
    answer(calm, NULL);
    ck_assert_uint_eq(reported.calls, 2);
}
END_TEST

START_TEST(files_stay_as_they_are_without_the_child)
{
    struct reported reported = {0};
    struct openers_metrics metrics;
    openers_add(openers, DEVICE, 1, NULL, false, note, &reported);
    answer_nobody();
    shutdown(child_end, SHUT_RDWR);
    run_for(0.3);
    openers_measure(openers, &metrics);
    ck_assert(metrics.lost);
    ck_assert_int_eq(reported.verdict, OPENERS_UNSURE);
    openers_ask(openers);
    run_for(0.3);
    ck_assert_uint_eq(reported.calls, 1);
}
END_TEST

/* --- with the real child ------------------------------------------------------------- */

static char path[] = "/tmp/check_openers.XXXXXX";
static struct stat file;

static void begin_child(bool blind, uid_t uid)
{
    child = fork();
    if (child == 0) {
        if (uid && setresuid(uid, uid, uid) < 0) {
            _exit(1);
        }
        close(daemon_end);
        struct walker *walker = walker_new(child_end, blind);
        for (bool more = true; more;) {
            struct pollfd ready[] = {{.fd = child_end, .events = POLLIN},
                                     {.fd = walker_descriptor(walker), .events = POLLIN}};
            poll(ready, 2, -1);
            more = (!ready[0].revents || walker_receive(walker)) && (!ready[1].revents || walker_collect(walker));
        }
        _exit(0);
    }
    close(child_end);
}

static void prepare_file(void)
{
    prepare();
    strcpy(strrchr(path, '.'), ".XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &file), 0);
    close(fd);
}

static void teardown_file(void)
{
    teardown();
    unlink(path);
}

static pid_t hold(void)
{
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open(path, O_RDONLY);
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

START_TEST(holder_is_reported_until_it_ends)
{
    struct reported reported = {0};
    pid_t pid = hold();
    begin_child(false, 0);
    openers_add(openers, file.st_dev, file.st_ino, NULL, false, note, &reported);
    await_verdict(&reported, OPENERS_SOME);
    ck_assert_int_eq(reported.first, pid);
    end(pid);
    await_verdict(&reported, OPENERS_NOBODY);
    ck_assert_uint_ge(walks(), 3);
}
END_TEST

START_TEST(holder_that_closes_is_noticed_at_the_next_request)
{
    struct reported reported = {0};
    begin_child(false, 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    openers_add(openers, file.st_dev, file.st_ino, NULL, false, note, &reported);
    await_verdict(&reported, OPENERS_SOME);
    ck_assert_int_eq(reported.first, getpid());
    close(fd);
    openers_ask(openers);
    await_verdict(&reported, OPENERS_NOBODY);
}
END_TEST

START_TEST(holder_that_cannot_be_looked_into_is_reported)
{
    struct reported reported = {0};
    if (geteuid() != 0) {
        return;
    }
    pid_t pid = hold();
    struct owner *opener = owner_get(owners, pid);
    begin_child(true, 65534);
    openers_add(openers, file.st_dev, file.st_ino, opener, false, note, &reported);
    owner_unref(opener);
    await_verdict(&reported, OPENERS_SOME);
    ck_assert_int_eq(reported.first, pid);
    ck_assert(reported.unseen);
    end(pid);
    await_verdict(&reported, OPENERS_NOBODY);
}
END_TEST

START_TEST(mount_that_goes_frees_its_files)
{
    struct reported reported = {0};
    begin_child(false, 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    openers_add(openers, file.st_dev, file.st_ino, NULL, true, note, &reported);
    await_verdict(&reported, OPENERS_SOME);
    *mount = MOUNT_GONE;
    openers_ask(openers);
    await_verdict(&reported, OPENERS_NOBODY);
    close(fd);
}
END_TEST

/* OPENERS_CROWD=10000 is the full size.  The share follows from processor time, so a loaded machine does not matter. */
START_TEST(walks_of_many_processes_use_a_tenth_of_a_processor)
{
    enum { WALKS = 6 };
    struct reported reported = {0};
    struct openers_metrics metrics = {0};
    size_t count = (size_t)strtoul(getenv("OPENERS_CROWD") ? getenv("OPENERS_CROWD") : "1000", NULL, 10);
    g_autofree pid_t *crowd = g_new0(pid_t, count);
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* so that they are looked at again each time */
    int64_t spent = 0, walked = 0;
    begin_child(false, 0);
    for (size_t i = 0; i < count; i++) {
        crowd[i] = live();
        ck_assert_int_gt(crowd[i], 0);
    }
    double began = ev_time();
    openers_add(openers, file.st_dev, file.st_ino, NULL, false, note, &reported);
    while (metrics.walks < WALKS) {
        openers_ask(openers);
        run_for(0.005);
        openers_measure(openers, &metrics);
        if ((int64_t)metrics.walks > walked) {
            walked = (int64_t)metrics.walks;
            spent += metrics.last_ns;
        }
    }
    double passed = ev_time() - began;
    printf("# %zu processes: a walk takes %.1f ms of a processor, %.1f walks a second\n", count,
           (double)spent / WALKS / 1e6, WALKS / passed);
    spent -= metrics.last_ns; /* the pause behind it is still to come */
    ck_assert_double_lt((double)spent / 1e9, passed / 10 * 1.01);
    ck_assert_uint_ge(reported.count, count);
    for (size_t i = 0; i < count; i++) {
        end(crowd[i]);
    }
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("openers");
    TCase *rules = tcase_create("rules"), *real = tcase_create("real");
    tcase_set_timeout(rules, 60);
    tcase_set_timeout(real, 240);
    tcase_add_checked_fixture(rules, prepare, teardown);
    tcase_add_checked_fixture(real, prepare_file, teardown_file);
    tcase_add_test(rules, nobody_is_certain_after_two_walks);
    tcase_add_test(rules, walk_that_proves_nothing_does_not_count);
    tcase_add_test(rules, opener_that_ends_during_a_walk_makes_it_prove_nothing);
    tcase_add_test(rules, opener_that_has_ended_before_it_is_known_counts);
    tcase_add_test(rules, end_of_an_opener_starts_a_walk);
    tcase_add_test(rules, file_of_a_hidden_process_waits_for_the_mount);
    tcase_add_test(rules, file_of_a_mount_that_is_gone_has_no_openers);
    tcase_add_test(rules, mount_whose_number_is_ours_is_gone);
    tcase_add_test(rules, unseen_process_counts_while_it_lives);
    tcase_add_test(rules, without_the_capability_only_the_opener_counts);
    tcase_add_test(rules, one_walk_serves_all_who_ask);
    tcase_add_test(rules, walks_come_every_second_while_somebody_waits);
    tcase_add_test(rules, walks_use_a_tenth_of_a_processor);
    tcase_add_test(rules, callback_may_remove_and_add_files);
    tcase_add_test(rules, files_stay_as_they_are_without_the_child);
    tcase_add_test(real, holder_is_reported_until_it_ends);
    tcase_add_test(real, holder_that_closes_is_noticed_at_the_next_request);
    tcase_add_test(real, holder_that_cannot_be_looked_into_is_reported);
    tcase_add_test(real, mount_that_goes_frees_its_files);
    tcase_add_test(real, walks_of_many_processes_use_a_tenth_of_a_processor);
    suite_add_tcase(suite, rules);
    suite_add_tcase(suite, real);
    return check_main(suite);
}
