/* cgroup: see cgroup.h. */
#include "fs/leaserun/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/clock.h"

#define CGROUP_REMOVE_TRIES 50 /* a millisecond each: what was killed may not have left yet */
#define CGROUP_TEXT_MAX 4096
#define CGROUP_DEPTH_MAX 100

/* --- finding the group of this process ---------------------------------------------- */

/* Its path within the hierarchy, from /proc/self/cgroup. */
static bool cgroup_read_own(char *path, size_t size)
{
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !found && getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        found = strncmp(line, "0::/", 4) == 0 && snprintf(path, size, "%s", line + 3) < (int)size;
    }
    free(line);
    if (file) {
        fclose(file);
    }
    return found && !strstr(path, "/.."); /* of another namespace */
}

/* Where `own` is seen, if this line of mountinfo is the mount of the hierarchy. */
static bool cgroup_parse_mount(const char *line, const char *own, char *path, size_t size)
{
    char root[PATH_MAX], point[PATH_MAX];
    _Static_assert(PATH_MAX == 4096, "the widths below");
    const char *type = strstr(line, " - ");
    if (!type || strncmp(type, " - cgroup2 ", strlen(" - cgroup2 ")) != 0 ||
        sscanf(line, "%*u %*u %*u:%*u %4095s %4095s", root, point) != 2 || strchr(point, '\\')) {
        return false;
    }
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(own, root, length) != 0 || (own[length] != '/' && own[length] != '\0')) {
        return false;
    }
    return snprintf(path, size, "%s%s", point, own + length) < (int)size;
}

static int cgroup_open_own(void)
{
    char own[PATH_MAX], path[2 * PATH_MAX] = "", *line = NULL;
    size_t room = 0;
    struct statfs fs;
    FILE *file = cgroup_read_own(own, sizeof own) ? fopen("/proc/self/mountinfo", "re") : NULL;
    bool found = false;
    while (file && !found && getline(&line, &room, file) > 0) {
        found = cgroup_parse_mount(line, own, path, sizeof path);
    }
    free(line);
    if (file) {
        fclose(file);
    }
    int fd = found ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0 && (fstatfs(fd, &fs) != 0 || (unsigned long)fs.f_type != CGROUP2_SUPER_MAGIC)) {
        close(fd); /* another is mounted over it */
        fd = -1;
    }
    return fd;
}

/* --- its files ------------------------------------------------------------------------ */

/* Returns how much is read; -1 for an error. */
static ssize_t cgroup_read(int directory, const char *name, char *text, size_t size)
{
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    text[length > 0 ? length : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
    return length;
}

static bool cgroup_move(int directory, long pid)
{
    char text[32];
    int size = snprintf(text, sizeof text, "%ld", pid), fd = openat(directory, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    bool moved = fd >= 0 && write(fd, text, (size_t)size) == size;
    if (fd >= 0) {
        close(fd);
    }
    return moved;
}

/* Do the groups below get limits of their own? */
static bool cgroup_limits_children(int directory)
{
    char text[CGROUP_TEXT_MAX];
    return cgroup_read(directory, "cgroup.subtree_control", text, sizeof text) < 0 || strspn(text, "\n") < strlen(text);
}

/* --- the group -------------------------------------------------------------------------- */

void leaserun_cgroup_make(struct leaserun_cgroup *c)
{
    *c = (struct leaserun_cgroup){.parent = cgroup_open_own(), .directory = -1, .kill = -1};
    snprintf(c->name, sizeof c->name, "leaserun.%d.%lld", (int)getpid(), (long long)clock_now());
    if (c->parent < 0 || cgroup_limits_children(c->parent) || mkdirat(c->parent, c->name, 0755) != 0) {
        close(c->parent);
        c->parent = -1;
        return;
    }
    c->directory = openat(c->parent, c->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    c->kill = openat(c->directory, "cgroup.kill", O_WRONLY | O_CLOEXEC);
    if (c->kill < 0) {
        leaserun_cgroup_remove(c);
    }
}

pid_t leaserun_cgroup_fork(const struct leaserun_cgroup *c)
{
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)(uint32_t)c->directory};
    pid_t pid = c->parent < 0 ? -1 : (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid >= 0) {
        return pid;
    }
    pid = fork(); /* a filter may forbid clone3(2) */
    if (pid == 0) {
        leaserun_cgroup_enter(c, 0);
    }
    return pid;
}

void leaserun_cgroup_enter(const struct leaserun_cgroup *c, pid_t pid)
{
    if (c->parent >= 0) {
        cgroup_move(c->directory, pid);
    }
}

void leaserun_cgroup_kill(const struct leaserun_cgroup *c)
{
    while (c->parent >= 0 && write(c->kill, "1", 1) < 0 && errno == EINTR) {
    }
}

bool leaserun_cgroup_is_populated(const struct leaserun_cgroup *c)
{
    char text[CGROUP_TEXT_MAX];
    return c->parent >= 0 && cgroup_read(c->directory, "cgroup.events", text, sizeof text) > 0 &&
           strstr(text, "populated 1");
}

static void cgroup_empty(const struct leaserun_cgroup *c)
{
    char text[CGROUP_TEXT_MAX], *rest, *line;
    bool moved = true;
    while (moved && cgroup_read(c->directory, "cgroup.procs", text, sizeof text) > 0) {
        moved = false;
        for (rest = text; (line = strsep(&rest, "\n")) && rest;) {
            moved = cgroup_move(c->parent, strtol(line, NULL, 10)) || moved;
        }
    }
}

/* Groups that were made below it, such as that of a leaserun in it that was killed with its command. */
static void cgroup_remove_below(int directory, int depth)
{
    int fd = depth < CGROUP_DEPTH_MAX ? openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    while (entries && (entry = readdir(entries))) {
        int below = entry->d_type == DT_DIR && entry->d_name[0] != '.'
                        ? openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                        : -1;
        if (below >= 0) {
            cgroup_remove_below(below, depth + 1);
            close(below);
            unlinkat(directory, entry->d_name, AT_REMOVEDIR);
        }
    }
    if (entries) {
        closedir(entries);
    } else if (fd >= 0) {
        close(fd);
    }
}

void leaserun_cgroup_remove(struct leaserun_cgroup *c)
{
    if (c->parent < 0) {
        return;
    }
    for (int tries = 0; tries < CGROUP_REMOVE_TRIES && unlinkat(c->parent, c->name, AT_REMOVEDIR) != 0; tries++) {
        if (errno != EBUSY) {
            break; /* another of leaserun's processes has done it */
        }
        cgroup_empty(c);
        cgroup_remove_below(c->directory, 0);
        poll(NULL, 0, tries ? 1 : 0);
    }
    close(c->kill);
    close(c->directory);
    close(c->parent);
    c->parent = -1;
}
