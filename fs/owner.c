/* owner: which process is this, is it alive, whose descendant is it; see owner.h. */
#include "owner.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OWNER_HEIRS_MAX 8
/* Owners that nobody refers to and that are kept all the same. */
#define OWNER_IDLE_MAX 256
/* A pid cannot be used again before 32768 others have been (pid_max is at least
 * that on hosts with processes to lock out): not within this time. */
#define OWNER_VERIFIED_NS (5 * 1000 * 1000)
/* Who asks for the third time is likely to go on: a descriptor is kept. */
#define OWNER_ASKS_OFTEN 3
#define OWNER_ANCESTORS_MAX 1024
#define OWNER_PF_EXITING 0x4

struct owner_table {
    GHashTable *by_pid; /* the living, as far as is known: pid -> owner */
    GQueue idle;        /* without references, the longest idle first */
};

struct owner {
    struct owner_table *table;
    uint64_t start;
    int64_t verified;  /* CLOCK_MONOTONIC nanoseconds: it lived then */
    pid_t pid;
    int pidfd;         /* -1: none to be had, or dead */
    int statm;         /* /proc/PID/statm, or -1 */
    uint32_t references;
    uint32_t asked;    /* how often owner_thread_exiting was */
    bool dead;
    GList idle;
    size_t heirs;
    struct owner *heir[OWNER_HEIRS_MAX]; /* counted */
    char command[OWNER_COMMAND_MAX];
};

/* What is read of /proc/PID/stat (proc(5)). */
struct owner_stat {
    char command[OWNER_COMMAND_MAX];
    char state;
    pid_t parent;
    pid_t group;
    unsigned flags;
    uint64_t start;
};

static int64_t owner_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* --- /proc ------------------------------------------------------------------- */

static ssize_t owner_read_proc(pid_t pid, const char *file, char *buffer, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t length = read(fd, buffer, size - 1);
    close(fd);
    if (length > 0) {
        buffer[length] = '\0';
    }
    return length;
}

/* The command may hold anything, ')' and spaces too: it ends at the last ')'. */
static bool owner_read_stat(pid_t pid, struct owner_stat *stat)
{
    char text[1024];
    ssize_t length = owner_read_proc(pid, "stat", text, sizeof text);
    char *open = length > 0 ? strchr(text, '(') : NULL;
    char *close = length > 0 ? strrchr(text, ')') : NULL;
    if (!open || !close || close < open) {
        return false;
    }
    *close = '\0';
    g_strlcpy(stat->command, open + 1, sizeof stat->command);
    return sscanf(close + 1, " %c %d %d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
                  &stat->state, &stat->parent, &stat->group, &stat->flags, &stat->start) == 5;
}

/* The process of a thread; 0 if it is not there. */
static pid_t owner_thread_group(pid_t tid)
{
    char text[4096];
    int group = 0;
    if (owner_read_proc(tid, "status", text, sizeof text) > 0) {
        const char *line = strstr(text, "\nTgid:");
        if (line) {
            sscanf(line, "\nTgid: %d", &group);
        }
    }
    return group;
}

/* --- the table ---------------------------------------------------------------- */

struct owner_table *owner_table_new(void)
{
    struct owner_table *table = g_new0(struct owner_table, 1);
    table->by_pid = g_hash_table_new(g_direct_hash, g_direct_equal);
    g_queue_init(&table->idle);
    return table;
}

static void owner_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static void owner_drop_heirs(struct owner *o)
{
    while (o->heirs) {
        owner_unref(o->heir[--o->heirs]);
    }
}

static void owner_leave_table(struct owner *o)
{
    if (g_hash_table_lookup(o->table->by_pid, GINT_TO_POINTER(o->pid)) == o) {
        g_hash_table_remove(o->table->by_pid, GINT_TO_POINTER(o->pid));
    }
}

static void owner_free(struct owner *o)
{
    owner_leave_table(o);
    owner_drop_heirs(o);
    owner_close(&o->pidfd);
    owner_close(&o->statm);
    g_free(o);
}

void owner_table_free(struct owner_table *table)
{
    if (!table) {
        return;
    }
    GList *link;
    while ((link = g_queue_pop_head_link(&table->idle))) {
        owner_free(link->data); /* which may make its heirs idle */
    }
    g_hash_table_destroy(table->by_pid);
    g_free(table);
}

struct owner *owner_ref(struct owner *o)
{
    if (o->references++ == 0) {
        g_queue_unlink(&o->table->idle, &o->idle);
    }
    return o;
}

void owner_unref(struct owner *o)
{
    if (!o || --o->references > 0) {
        return;
    }
    struct owner_table *table = o->table;
    g_queue_push_tail_link(&table->idle, &o->idle);
    if (o->dead) {
        g_queue_unlink(&table->idle, &o->idle);
        owner_free(o);
    } else if (table->idle.length > OWNER_IDLE_MAX) {
        owner_free(g_queue_pop_head_link(&table->idle)->data);
    }
}

/* A new one, with a reference. */
static struct owner *owner_new(struct owner_table *table, pid_t pid, uint64_t start, const char *command)
{
    struct owner *o = g_new0(struct owner, 1);
    o->table = table;
    o->pid = pid;
    o->start = start;
    o->pidfd = o->statm = -1;
    o->references = 1;
    o->idle.data = o;
    g_strlcpy(o->command, command, sizeof o->command);
    return o;
}

static void owner_mark_dead(struct owner *o)
{
    o->dead = true;
    owner_leave_table(o);
    owner_drop_heirs(o);
    owner_close(&o->pidfd);
    owner_close(&o->statm);
}

bool owner_alive(struct owner *o)
{
    if (o->dead) {
        return false;
    }
    bool alive;
    if (o->pidfd >= 0) {
        struct pollfd fd = {.fd = o->pidfd, .events = POLLIN};
        alive = poll(&fd, 1, 0) == 0;
    } else {
        struct owner_stat stat;
        alive = owner_read_stat(o->pid, &stat) && stat.start == o->start && stat.state != 'Z' && stat.state != 'X';
    }
    if (alive) {
        o->verified = owner_now();
    } else {
        owner_mark_dead(o);
    }
    return alive;
}

static bool owner_alive_lately(struct owner *o)
{
    return !o->dead && (owner_now() - o->verified < OWNER_VERIFIED_NS || owner_alive(o));
}

/* The one in the table that lives, with a new reference, or NULL. */
static struct owner *owner_find(struct owner_table *table, pid_t pid)
{
    struct owner *o = g_hash_table_lookup(table->by_pid, GINT_TO_POINTER(pid));
    if (!o) {
        return NULL;
    }
    owner_ref(o);
    if (owner_alive_lately(o)) {
        return o;
    }
    owner_unref(o);
    return NULL;
}

static struct owner *owner_enter(struct owner_table *table, pid_t pid, int pidfd)
{
    struct owner_stat stat;
    if (!owner_read_stat(pid, &stat)) {
        owner_close(&pidfd);
        return NULL;
    }
    struct owner *o = owner_new(table, pid, stat.start, stat.command);
    o->pidfd = pidfd;
    o->verified = owner_now();
    g_hash_table_insert(table->by_pid, GINT_TO_POINTER(pid), o);
    return o;
}

static int owner_pidfd_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0u); /* close-on-exec by itself */
}

struct owner *owner_get(struct owner_table *table, pid_t tid)
{
    if (tid <= 0) {
        return NULL;
    }
    struct owner *o = owner_find(table, tid);
    if (o) {
        return o;
    }
    /* Only the first thread of a process has a pidfd: no need to ask which. */
    pid_t pid = tid;
    int pidfd = owner_pidfd_open(tid);
    if (pidfd < 0) {
        pid = owner_thread_group(tid);
        if (pid <= 0) {
            return NULL;
        }
        o = owner_find(table, pid);
        if (o) {
            return o;
        }
        pidfd = owner_pidfd_open(pid);
    }
    return owner_enter(table, pid, pidfd);
}

struct owner *owner_restore(struct owner_table *table, pid_t pid, uint64_t start, const char *command)
{
    struct owner *o = owner_get(table, pid);
    if (o && o->pid == pid && o->start == start) {
        return o;
    }
    owner_unref(o);
    o = owner_new(table, pid, start, command);
    o->dead = true;
    return o;
}

pid_t owner_pid(const struct owner *o)
{
    return o->pid;
}

uint64_t owner_start(const struct owner *o)
{
    return o->start;
}

const char *owner_command(const struct owner *o)
{
    return o->command;
}

/* --- kinship ------------------------------------------------------------------- */

static void owner_read_heirs(struct owner *o)
{
    struct owner_stat stat;
    owner_drop_heirs(o);
    if (!owner_read_stat(o->pid, &stat) || stat.start != o->start) {
        return;
    }
    pid_t group = stat.group;
    while (stat.parent > 1 && o->heirs < OWNER_HEIRS_MAX) {
        pid_t pid = stat.parent;
        /* Beyond the parent itself: only in the acquirer's process group. */
        if (!owner_read_stat(pid, &stat) || (o->heirs > 0 && stat.group != group)) {
            return;
        }
        struct owner *heir = owner_get(o->table, pid);
        if (!heir) {
            return;
        }
        o->heir[o->heirs++] = heir;
    }
}

size_t owner_heirs(struct owner *o, struct owner **ret_heirs, size_t max)
{
    if (o->heirs == 0 || !owner_alive_lately(o->heir[0])) {
        owner_read_heirs(o);
    }
    size_t count = MIN(o->heirs, max);
    for (size_t i = 0; i < count; i++) {
        ret_heirs[i] = owner_ref(o->heir[i]);
    }
    return count;
}

bool owner_descends(struct owner *o, struct owner *ancestor)
{
    struct owner_stat stat;
    pid_t pid = o->pid;
    if (o == ancestor || (pid == ancestor->pid && o->start == ancestor->start)) {
        return true;
    }
    if (o->dead || ancestor->dead) {
        return false;
    }
    for (int i = 0; i < OWNER_ANCESTORS_MAX && pid > 1 && owner_read_stat(pid, &stat); i++) {
        if (pid == ancestor->pid) {
            return stat.start == ancestor->start;
        }
        pid = stat.parent;
    }
    return false;
}

/* --- exiting ---------------------------------------------------------------------- */

/* do_exit drops the address space before the descriptors, and a thread without
 * one has 0 pages; this is the cheapest file that tells. (Linux kernel/exit.c) */
static bool owner_has_memory(struct owner *o)
{
    char byte;
    return pread(o->statm, &byte, 1, 0) == 1 && byte != '0';
}

bool owner_thread_exiting(struct owner_table *table, pid_t tid)
{
    struct owner_stat stat;
    struct owner *o = g_hash_table_lookup(table->by_pid, GINT_TO_POINTER(tid));
    if (o && o->statm < 0 && ++o->asked >= OWNER_ASKS_OFTEN) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/statm", tid);
        o->statm = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (o && o->statm >= 0 && owner_has_memory(o)) {
        return false;
    }
    return !owner_read_stat(tid, &stat) || stat.flags & OWNER_PF_EXITING;
}
