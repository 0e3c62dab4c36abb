/* processes: the tree of processes below this one, as /proc tells it;
 * see processes.h. */
#include "fs/leaserun/processes.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

struct processes {
    const pid_t *except;
    size_t exceptions;
    pid_t group;
    int signal;
    size_t count;
};

void leaserun_processes_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void processes_visit(struct processes *p, pid_t parent, int depth);

static void processes_visit_child(struct processes *p, pid_t child, int depth)
{
    for (size_t i = 0; i < p->exceptions; i++) {
        if (child == p->except[i]) {
            return;
        }
    }
    p->count++;
    /* Its children first: when it is dead they are no longer its children. */
    processes_visit(p, child, depth + 1);
    /* Its group may be 0, too: one whose leader another pid namespace has. */
    if (p->signal && (p->group == 0 || getpgid(child) != p->group)) {
        kill(child, p->signal);
    }
}

/* A tree deeper than that is met from the top again when its top is dead. */
#define DEPTH_MAX 1000

static void processes_visit(struct processes *p, pid_t parent, int depth)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", parent);
    DIR *threads = depth < DEPTH_MAX ? opendir(path) : NULL;
    const struct dirent *thread;
    while (threads && (thread = readdir(threads))) {
        long tid = strtol(thread->d_name, NULL, 10), child;
        if (tid <= 0) {
            continue;
        }
        snprintf(path, sizeof path, "/proc/%d/task/%ld/children", parent, tid);
        FILE *children = fopen(path, "re");
        while (children && fscanf(children, "%ld", &child) == 1) {
            processes_visit_child(p, (pid_t)child, depth);
        }
        if (children) {
            fclose(children);
        }
    }
    if (threads) {
        closedir(threads);
    }
}

size_t leaserun_processes_signal(pid_t root, const pid_t *except, size_t count, pid_t group, int signal)
{
    struct processes p = {.except = except, .exceptions = count, .group = group, .signal = signal};
    processes_visit(&p, root, 0);
    return p.count;
}
