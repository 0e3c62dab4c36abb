/* How leaserun stops and kills a tree of processes, on real ones, and when. */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fs/leaserun/set.h"
#include "fs/leaserun/target.h"
#include "fs/leaserun/terms.h"
#include "tests/support/check_main.h"

#define WIDTH 50
#define LIFE 60 /* seconds, if a case fails */

static size_t stops;        /* processes that got SIGSTOP */
static size_t stops_before; /* those that had it when a second directory of /proc was opened */
static size_t directories;  /* of /proc that were opened */
static bool forks;          /* then there is a new child, too: `newcomer` */
static pid_t newcomer;
static bool newcomer_stopped, newcomer_was_stopped; /* now, and when its own directory was first opened */

static pid_t start_child(void)
{
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        alarm(LIFE);
        pause();
        _exit(0);
    }
    return pid;
}

int __wrap_kill(pid_t pid, int signal);
int __real_kill(pid_t pid, int signal);
DIR *__wrap_opendir(const char *name);
DIR *__real_opendir(const char *name);

int __wrap_kill(pid_t pid, int signal)
{
    stops += signal == SIGSTOP;
    newcomer_stopped |= signal == SIGSTOP && newcomer && pid == newcomer;
    return __real_kill(pid, signal);
}

DIR *__wrap_opendir(const char *name)
{
    if (++directories == 2) {
        stops_before = stops;
        newcomer = forks ? start_child() : 0;
    }
    if (newcomer && strtol(name + strlen("/proc/"), NULL, 10) == newcomer) {
        newcomer_was_stopped = newcomer_stopped;
        newcomer = 0;
    }
    return __real_opendir(name);
}

/* WIDTH children of this process, each in a session of its own and with a child of its own. */
static void start_tree(void)
{
    int ready[2];
    char byte;
    leaserun_target_adopt_orphans();
    ck_assert_int_eq(pipe(ready), 0);
    for (int i = 0; i < WIDTH; i++) {
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid > 0) {
            continue;
        }
        setsid();
        fork();
        alarm(LIFE);
        (void)!write(ready[1], "", 1);
        for (;;) {
            pause();
        }
    }
    for (int i = 0; i < 2 * WIDTH; i++) {
        ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    }
    close(ready[0]);
    close(ready[1]);
}

static struct leaserun_target tree(void)
{
    return (struct leaserun_target){.pidfd = -1, .root = getpid(), .cgroup.parent = -1};
}

/* A look at one process takes far longer than a signal, most of all on a busy machine. */
START_TEST(processes_of_one_level_are_stopped_before_any_is_looked_into)
{
    struct leaserun_target t = tree();
    start_tree();
    stops = directories = 0;
    leaserun_target_kill(&t);
    ck_assert_uint_ge(stops_before, WIDTH);
}
END_TEST

/* The list of the children was read once, to stop them, and is read again to look into each. */
START_TEST(child_that_appears_after_the_first_signals_is_stopped_before_it_is_looked_into)
{
    struct leaserun_target t = tree();
    start_tree();
    directories = 0;
    forks = true;
    leaserun_target_kill(&t);
    ck_assert_int_eq(newcomer, 0);
    ck_assert(newcomer_was_stopped);
}
END_TEST

START_TEST(all_are_killed_however_they_descend)
{
    struct leaserun_target t = tree();
    start_tree();
    ck_assert_uint_eq(leaserun_target_count(&t), 2 * WIDTH);
    leaserun_target_kill(&t);
    for (int i = 0; i < 2 * WIDTH; i++) {
        int status;
        ck_assert_int_gt(waitpid(-1, &status, 0), 0);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    ck_assert_uint_eq(leaserun_target_count(&t), 0);
}
END_TEST

START_TEST(watchdog_and_exceptions_are_spared)
{
    struct leaserun_target t = tree();
    int status;
    pid_t spared[2];
    for (int i = 0; i < 2; i++) {
        spared[i] = start_child();
    }
    t.watchdog = spared[0];
    t.except[t.exceptions++] = spared[1];
    leaserun_target_kill(&t);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(waitpid(spared[i], &status, WNOHANG | WUNTRACED), 0);
        kill(spared[i], SIGKILL);
    }
}
END_TEST

#define TTL 1000
#define LATE 60

/* A machine on which leaserun wakes late, in each of `terms` terms or only in the first. */
static int64_t early_after(int64_t late, int64_t late_again, int terms, int64_t *ret_grace)
{
    static struct leaserun_view view = {.ttl = TTL, .deadline = 10 * TTL};
    struct leaserun_set set = {.count = 1, .keepers[0].view = &view};
    struct leaserun_target none = {.pidfd = -1, .root = getpid(), .cgroup.parent = -1};
    leaserun_set_measure(&set, &none, late);
    for (int64_t measures = terms * TTL / leaserun_set_measure_pause(&set); measures > 1; measures--) {
        leaserun_set_measure(&set, &none, late_again);
    }
    *ret_grace = leaserun_set_grace(&set, -1);
    return view.deadline - leaserun_guard(TTL) - leaserun_set_last_moment(&set);
}

START_TEST(killing_begins_earlier_by_more_than_it_was_late)
{
    int64_t grace;
    ck_assert_int_ge(early_after(LATE, LATE, 1, &grace), 3 * LATE);
    ck_assert_int_ge(early_after(LATE, 0, 1, &grace), 2 * LATE); /* the next time may be as late as one of the last */
}
END_TEST

/* The first half is for renewals, and the command may clean up all the same. */
START_TEST(killing_begins_in_the_second_half_of_the_term_and_leaves_the_grace)
{
    int64_t grace, early = early_after(TTL, TTL, 1, &grace);
    ck_assert_int_eq(grace, leaserun_grace(TTL));
    ck_assert_int_eq(leaserun_guard(TTL) + early + grace, TTL / 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("leaserun");
    TCase *cases = tcase_create("kill");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, processes_of_one_level_are_stopped_before_any_is_looked_into);
    tcase_add_test(cases, child_that_appears_after_the_first_signals_is_stopped_before_it_is_looked_into);
    tcase_add_test(cases, all_are_killed_however_they_descend);
    tcase_add_test(cases, watchdog_and_exceptions_are_spared);
    tcase_add_test(cases, killing_begins_earlier_by_more_than_it_was_late);
    tcase_add_test(cases, killing_begins_in_the_second_half_of_the_term_and_leaves_the_grace);
    suite_add_tcase(suite, cases);
    return check_main(suite);
}
