/* target: the tree of processes below one, as /proc tells it, and its control group; see
 * target.h. */
#include "fs/leaserun/target.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A tree deeper than that is met from the top again when its top is dead. */
#define TARGET_DEPTH_MAX 1000
/* How often all are stopped, until there are no new ones. */
#define TARGET_STOPS_MAX 10
/* Stopping, looking whether there are new ones, and killing are a visit each; one for good measure. */
#define TARGET_VISITS 4

/* A visit to all processes of a target. */
struct target_visit {
    const struct leaserun_target *target;
    int signal;  /* 0: only count them */
    pid_t group; /* these have got it */
    size_t count;
};

void leaserun_target_adopt_orphans(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* --- the descendants --------------------------------------------------------------------- */

static bool target_is_excepted(const struct leaserun_target *t, pid_t pid)
{
    bool excepted = false;
    for (size_t i = 0; i < t->exceptions; i++) {
        excepted = excepted || pid == t->except[i];
    }
    return excepted;
}

static void target_send(const struct target_visit *v, pid_t pid)
{
    /* Its group may be 0, too: one whose leader another pid namespace has. */
    if (v->signal && (v->group == 0 || getpgid(pid) != v->group)) {
        kill(pid, v->signal);
    }
}

static void target_visit_children(struct target_visit *v, pid_t parent, int depth);

/* The children in one file of /proc. */
static void target_visit_list(struct target_visit *v, FILE *children, int depth)
{
    long child;
    /* All are stopped before any is looked into: that takes far longer than a signal. */
    while (v->signal == SIGSTOP && fscanf(children, "%ld", &child) == 1) {
        if (child != v->target->watchdog && !target_is_excepted(v->target, (pid_t)child)) {
            target_send(v, (pid_t)child);
        }
    }
    rewind(children);
    while (fscanf(children, "%ld", &child) == 1) {
        if (target_is_excepted(v->target, (pid_t)child)) {
            continue;
        }
        bool meant = child != v->target->watchdog;
        if (meant && v->signal == SIGSTOP) {
            target_send(v, (pid_t)child); /* once more: it may be new since the first reading */
        }
        target_visit_children(v, (pid_t)child, depth + 1);
        v->count += meant;
        if (meant && v->signal != SIGSTOP) {
            target_send(v, (pid_t)child); /* after its children: when it is dead they are no longer its children */
        }
    }
}

static void target_visit_children(struct target_visit *v, pid_t parent, int depth)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", parent);
    DIR *threads = depth < TARGET_DEPTH_MAX ? opendir(path) : NULL;
    const struct dirent *thread;
    while (threads && (thread = readdir(threads))) {
        long tid = strtol(thread->d_name, NULL, 10);
        if (tid <= 0) {
            continue;
        }
        snprintf(path, sizeof path, "/proc/%d/task/%ld/children", parent, tid);
        FILE *children = fopen(path, "re");
        if (children) {
            target_visit_list(v, children, depth);
            fclose(children);
        }
    }
    if (threads) {
        closedir(threads);
    }
}

/* --- all of them --------------------------------------------------------------------------- */

static bool target_has_ended(const struct leaserun_target *t)
{
    struct pollfd end = {.fd = t->pidfd, .events = POLLIN};
    return t->pidfd >= 0 && poll(&end, 1, 0) > 0;
}

void leaserun_target_signal_command(const struct leaserun_target *t, int signal)
{
    if (t->pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, t->pidfd, signal, NULL, 0);
    } else if (t->command) {
        kill(-t->command, signal);
    }
}

/* The descendants.  Those of a command that is no child are out of sight when it is dead,
 * and its process ID may be another's. */
static size_t target_visit_all(const struct leaserun_target *t, int signal)
{
    struct target_visit v = {.target = t, .signal = signal, .group = t->pidfd < 0 && signal ? t->command : 0};
    if (!target_has_ended(t)) {
        target_visit_children(&v, t->root, 0);
    }
    return v.count;
}

void leaserun_target_signal(const struct leaserun_target *t, int signal)
{
    target_visit_all(t, signal);
    leaserun_target_signal_command(t, signal);
}

void leaserun_target_kill(const struct leaserun_target *t)
{
    size_t before, count = 0;
    int stops = 0;
    leaserun_cgroup_kill(&t->cgroup);
    leaserun_target_signal_command(t, SIGSTOP);
    do {
        before = count;
        count = target_visit_all(t, SIGSTOP);
    } while (count != before && ++stops < TARGET_STOPS_MAX);
    leaserun_target_signal(t, SIGKILL);
}

size_t leaserun_target_count(const struct leaserun_target *t)
{
    size_t count = target_visit_all(t, 0);
    return count ? count : leaserun_cgroup_is_populated(&t->cgroup);
}

static int64_t target_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t leaserun_target_cost(const struct leaserun_target *t)
{
    if (leaserun_cgroup_is_populated(&t->cgroup)) {
        return 0;
    }
    int64_t began = target_now_us();
    target_visit_all(t, 0);
    return (target_now_us() - began) * TARGET_VISITS / 1000;
}
