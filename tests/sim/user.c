/* user: the programs of a world, and their reports to the judge; see user.h. */
#include "tests/sim/user.h"

#include <errno.h>
#include <glib.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/sim/faults.h"
#include "tests/sim/process.h"
#include "tests/sim/task.h"
#include "tests/sim/vfs.h"

#define USER_QUEUE 8
#define USER_UID 1000 /* of the first of the two users */

struct program {
    struct process *process;
    struct thread thread;
    struct mount *mount;
    GQueue *acts; /* of struct act: to be done */
    uint64_t token;
    char ticket[64];  /* the name of the last one */
    int64_t stop_for; /* SIGSTOP came in a call, which it ends first */
};

static struct {
    struct judge *judge;
    struct mount **mounts;
    unsigned count;
    FILE *story;
    struct program *programs[MOUNTS_MAX][PLAN_PROGRAMS];
    GPtrArray *all; /* that have not ended */
    uint64_t calls, next_call;
} users;

void user_begin(struct judge *judge, struct mount **mounts, unsigned count, void *story)
{
    users.judge = judge;
    users.mounts = mounts;
    users.count = count;
    users.story = story;
    users.all = g_ptr_array_new();
}

uint64_t user_calls(void)
{
    return users.calls;
}

void user_tell(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    world_trace("%s", line);
    if (users.story) {
        fprintf(users.story, "%10.3f ms  %s\n", (double)world_now() / 1e6, line);
    }
}

/* --- what the kernel tells --------------------------------------------------------------- */

void user_deleted(unsigned mount, uint32_t process, const char *name)
{
    user_tell("  program %u sees by inotify that %s is gone from mount %u", process, name, mount);
    judge_event(users.judge, world_now(), JUDGE_DELETED, process, mount, name, 0);
}

void user_polled(unsigned mount, uint64_t handle)
{
    world_trace("m%u! POLL %lu", mount, (unsigned long)handle);
}

/* --- calls -------------------------------------------------------------------------------- */

static const char *const user_operations[] = {
    [JUDGE_OPEN] = "open",     [JUDGE_CLOSE] = "close",       [JUDGE_SYMLINK] = "symlink",
    [JUDGE_LINK] = "link",     [JUDGE_RENAME] = "rename",     [JUDGE_UNLINK] = "unlink",
    [JUDGE_MKDIR] = "mkdir",   [JUDGE_RMDIR] = "rmdir",       [JUDGE_READ] = "read",
    [JUDGE_WRITE] = "write",   [JUDGE_TRUNCATE] = "truncate", [JUDGE_FSYNC] = "fsync",
    [JUDGE_TIMES] = "utimens", [JUDGE_CHMOD] = "chmod",       [JUDGE_STAT] = "stat",
    [JUDGE_LIST] = "readdir",  [JUDGE_GETXATTR] = "getxattr", [JUDGE_SETXATTR] = "setxattr",
    [JUDGE_FLOCK] = "flock",   [JUDGE_FUNLOCK] = "flock",     [JUDGE_SETLK] = "fcntl",
    [JUDGE_UNLCK] = "fcntl",   [JUDGE_GETLK] = "fcntl"};

/* The words of a call, as strace(1) would show it. */
static const char *user_show(const struct judge_call *call)
{
    static char text[512];
    GString *s = g_string_new(user_operations[call->operation]);
    g_string_append_c(s, '(');
    if (call->handle) {
        g_string_append_printf(s, "file %lu", (unsigned long)call->handle);
    }
    if (call->name) {
        g_string_append_printf(s, "\"%s\"", call->name);
    }
    if (call->target) {
        g_string_append_printf(s, ", \"%s\"", call->target);
    }
    if (call->value) {
        g_string_append_printf(s, ", \"%.*s\"", (int)call->size, (const char *)call->value);
    }
    switch (call->operation) {
    case JUDGE_OPEN:
        g_string_append_printf(s, ", %s%s%s%s", call->flags & JUDGE_WRITES ? "O_RDWR" : "O_RDONLY",
                               call->flags & JUDGE_CREATE ? "|O_CREAT" : "", call->flags & JUDGE_EXCL ? "|O_EXCL" : "",
                               call->flags & JUDGE_TRUNC ? "|O_TRUNC" : "");
        break;
    case JUDGE_FLOCK:
        g_string_append_printf(s, ", %s%s", call->flags & JUDGE_SHARE ? "LOCK_SH" : "LOCK_EX",
                               call->flags & JUDGE_TRY ? "|LOCK_NB" : "");
        break;
    case JUDGE_FUNLOCK:
        g_string_append(s, ", LOCK_UN");
        break;
    case JUDGE_SETLK:
    case JUDGE_UNLCK:
    case JUDGE_GETLK:
        g_string_append_printf(s, ", F_%s%s%s, %s, %ld to %ld", call->flags & JUDGE_OFD ? "OFD_" : "",
                               call->operation == JUDGE_GETLK ? "GETLK" : "SETLK",
                               call->operation == JUDGE_SETLK && !(call->flags & JUDGE_TRY) ? "W" : "",
                               call->operation == JUDGE_UNLCK ? "F_UNLCK"
                               : call->flags & JUDGE_SHARE    ? "F_RDLCK"
                                                              : "F_WRLCK",
                               (long)call->start, (long)call->end);
        break;
    default:
        break;
    }
    g_strlcpy(text, s->str, sizeof text);
    g_string_free(s, TRUE);
    return text;
}

static void user_call(struct program *p, struct judge_call *call)
{
    call->id = p->thread.call = ++users.next_call;
    call->when = p->thread.since = world_now();
    call->process = p->process->number;
    call->mount = kernel_mount(mount_kernel(p->mount));
    user_tell("program %u on mount %u calls %s)", call->process, call->mount, user_show(call));
    judge_call(users.judge, call);
}

static void user_answer(struct program *p, const struct judge_call *call, struct judge_answer *answer, int result)
{
    p->thread.call = 0;
    p->thread.signalled = false;
    if (p->thread.killed) {
        return; /* no process is left to report to */
    }
    answer->id = call->id;
    answer->when = world_now();
    answer->error = result < 0 ? -result : 0;
    if (answer->error) {
        user_tell("  program %u: %s is answered %s", call->process, user_operations[call->operation],
                  answer->error == EAGAIN ? "EAGAIN" : g_strerror(answer->error));
    } else if (answer->value) {
        user_tell("  program %u: %s is answered \"%.*s\"", call->process, user_operations[call->operation],
                  (int)answer->size, (const char *)answer->value);
    } else if (answer->conflict.found) {
        user_tell("  program %u: %s tells a %s lock of process %d, %ld to %ld", call->process,
                  user_operations[call->operation], answer->conflict.shared ? "shared" : "exclusive",
                  answer->conflict.pid, (long)answer->conflict.start, (long)answer->conflict.end);
    } else if (answer->handle) {
        user_tell("  program %u: %s is answered file %lu", call->process, user_operations[call->operation],
                  (unsigned long)answer->handle);
    } else {
        user_tell("  program %u: %s is answered 0", call->process, user_operations[call->operation]);
    }
    users.calls++;
    judge_answer(users.judge, answer);
}

/* --- what programs do ------------------------------------------------------------------------ */

static struct kernel_file **user_slot(const struct program *p, unsigned slot)
{
    return &p->process->files[slot % PROCESS_DESCRIPTORS];
}

static struct kernel_file *user_file(const struct program *p, unsigned slot)
{
    return *user_slot(p, slot);
}

static const char *user_name(const struct program *p, unsigned name)
{
    return name == PLAN_TICKET ? p->ticket : plan_names[name % PLAN_NAMES];
}

/* Closes what is in a place, if there is anything. */
static void user_close(struct program *p, unsigned slot)
{
    struct kernel_file *file = user_file(p, slot);
    if (!file) {
        return;
    }
    struct judge_call call = {.operation = JUDGE_CLOSE, .handle = file->number};
    *user_slot(p, slot) = NULL;
    user_call(p, &call);
    int result = vfs_close(&p->thread, file);
    user_answer(p, &call, &(struct judge_answer){0}, result);
}

static void user_open(struct program *p, const struct act *act)
{
    const char *name = user_name(p, act->name);
    struct judge_call call = {.operation = JUDGE_OPEN, .name = name, .mode = 0600 | (act->value & 066)};
    struct judge_answer answer = {0};
    struct kernel_file *file = NULL;
    user_close(p, act->slot);
    if (p->thread.killed || !*name) {
        return;
    }
    call.flags = (act->flags & O_CREAT ? JUDGE_CREATE : 0u) | (act->flags & O_EXCL ? JUDGE_EXCL : 0u) |
                 (act->flags & O_TRUNC ? JUDGE_TRUNC : 0u) | ((act->flags & O_ACCMODE) == O_RDONLY ? 0u : JUDGE_WRITES);
    user_call(p, &call);
    int result = vfs_open(&p->thread, mount_kernel(p->mount), name, act->flags | O_NOFOLLOW, call.mode, &file);
    answer.handle = file ? file->number : 0;
    user_answer(p, &call, &answer, result);
    if (file) {
        *user_slot(p, act->slot) = file;
        p->process->closes[act->slot % PROCESS_DESCRIPTORS] = act->flags & O_CLOEXEC;
    }
}

/* Reads a ticket's own name, to know it. */
static void user_learn_ticket(struct program *p, const char *name, const GByteArray *bytes)
{
    const char *end = bytes->len ? memchr(bytes->data, '\n', bytes->len) : NULL;
    if (name && g_str_has_suffix(name, "-") && end) {
        g_snprintf(p->ticket, sizeof p->ticket, "q/%.*s", (int)(end - (const char *)bytes->data), bytes->data);
    }
}

static void user_read(struct program *p, const struct act *act)
{
    struct kernel_file *file = user_file(p, act->slot);
    struct judge_call call = {.operation = JUDGE_READ};
    struct judge_answer answer = {0};
    GByteArray *bytes = g_byte_array_new();
    int result;
    if (file) {
        call.handle = file->number;
        user_call(p, &call);
        result = vfs_read(&p->thread, file, bytes);
    } else {
        call.name = user_name(p, act->name);
        user_call(p, &call);
        result = vfs_readlink(&p->thread, mount_kernel(p->mount), call.name, bytes);
    }
    answer.value = result == 0 ? bytes->len ? bytes->data : (const void *)"" : NULL;
    answer.size = bytes->len;
    if (result == 0 && file) {
        user_learn_ticket(p, bytes->len > 4 && memcmp(bytes->data, "job-", 4) == 0 ? "-" : NULL, bytes);
    }
    user_answer(p, &call, &answer, result);
    g_byte_array_unref(bytes);
}

static void user_write(struct program *p, const struct act *act)
{
    struct kernel_file *file = user_file(p, act->slot);
    if (!file) {
        return;
    }
    g_autofree char *text = g_strdup_printf("w%u\n", act->value);
    struct judge_call call = {
        .operation = JUDGE_WRITE, .handle = file->number, .value = text, .size = strlen(text), .start = act->start};
    user_call(p, &call);
    int result = vfs_write(&p->thread, file, text, call.size, (uint64_t)act->start);
    user_answer(p, &call, &(struct judge_answer){0}, result);
}

/* By the file in the place, if there is one, or else by name. */
static struct kernel_file *user_either(struct program *p, const struct act *act, struct judge_call *call)
{
    struct kernel_file *file = act->value & 1 ? user_file(p, act->slot) : NULL;
    if (file) {
        call->handle = file->number;
    } else {
        call->name = user_name(p, act->name);
    }
    return file;
}

static void user_setattr(struct program *p, const struct act *act, struct judge_call call, struct fuse_setattr_in in)
{
    struct kernel_file *file = user_either(p, act, &call);
    if (!file && !*call.name) {
        return;
    }
    user_call(p, &call);
    int result = vfs_setattr(&p->thread, mount_kernel(p->mount), call.name, file, &in);
    user_answer(p, &call, &(struct judge_answer){0}, result);
}

static void user_stat(struct program *p, const struct act *act)
{
    struct judge_call call = {.operation = JUDGE_STAT};
    struct judge_answer answer = {0};
    struct fuse_attr attr;
    struct kernel_file *file = user_either(p, act, &call);
    if (!file && !*call.name) {
        return;
    }
    user_call(p, &call);
    int result = vfs_stat(&p->thread, mount_kernel(p->mount), call.name, file, &attr);
    if (result == 0) {
        answer.stat.uid = attr.uid;
        answer.stat.mode = attr.mode;
        answer.stat.ino = attr.ino;
        answer.stat.size = (int64_t)attr.size;
        answer.stat.nlink = attr.nlink;
    }
    user_answer(p, &call, &answer, result);
}

static void user_getxattr(struct program *p, const struct act *act)
{
    struct judge_call call = {.operation = JUDGE_GETXATTR, .target = plan_attributes[act->attribute]};
    struct judge_answer answer = {0};
    GByteArray *bytes = g_byte_array_new();
    struct kernel_file *file = user_either(p, act, &call);
    if (file || *call.name) {
        user_call(p, &call);
        int result = vfs_getxattr(&p->thread, mount_kernel(p->mount), call.name, file, call.target, bytes);
        answer.value = result == 0 ? bytes->len ? bytes->data : (const void *)"" : NULL;
        answer.size = bytes->len;
        g_byte_array_append(bytes, (const guint8 *)"", 1);
        if (result == 0 && act->attribute == PLAN_TOKEN) {
            p->token = g_ascii_strtoull((const char *)bytes->data, NULL, 10);
        }
        answer.value = result == 0 ? bytes->data : NULL;
        user_answer(p, &call, &answer, result);
    }
    g_byte_array_unref(bytes);
}

static void user_setxattr(struct program *p, const struct act *act)
{
    static const char *const terms[] = {"100ms", "500ms", "2s", "auto", "auto", "30s", "nonsense"};
    struct judge_call call = {.operation = JUDGE_SETXATTR, .target = plan_attributes[act->attribute]};
    struct kernel_file *file = user_either(p, act, &call);
    char value[32] = "1";
    if (act->attribute == PLAN_WIDTH || act->attribute == PLAN_DELAY) {
        file = NULL;
        call.handle = 0;
        call.name = act->attribute == PLAN_WIDTH ? "q" : plan_directories[1 + act->name % (PLAN_DIRECTORIES - 1)];
        g_snprintf(value, sizeof value, "%u", 1 + act->value / 2 % 3);
    } else if (act->attribute == PLAN_TTL) {
        g_strlcpy(value, terms[act->value / 2 % G_N_ELEMENTS(terms)], sizeof value);
    } else if (act->attribute == PLAN_GUARD) {
        static const char *const guards[] = {"100ms", "500ms", "1s", "2s", "2s", "0", "61s"};
        g_strlcpy(value, guards[act->value / 2 % G_N_ELEMENTS(guards)], sizeof value);
    } else if (act->attribute == PLAN_CHECK || act->attribute == PLAN_RELEASE) {
        unsigned wrong = act->value / 2 % 16; /* by one, sometimes */
        g_snprintf(value, sizeof value, "%lu", (unsigned long)p->token + (wrong == 0) - (wrong == 1 && p->token));
    }
    if (!file && !*call.name) {
        return;
    }
    call.value = value;
    call.size = strlen(value);
    user_call(p, &call);
    int result = vfs_setxattr(&p->thread, mount_kernel(p->mount), call.name, file, call.target, value);
    user_answer(p, &call, &(struct judge_answer){0}, result);
}

static void user_named(struct program *p, const struct act *act)
{
    struct kernel *k = mount_kernel(p->mount);
    struct thread *t = &p->thread;
    struct judge_call call = {.name = user_name(p, act->name)};
    struct judge_answer answer = {0};
    g_autofree char *target = g_strdup_printf("t%u", act->value);
    GString *names = g_string_new(NULL);
    int result = 0;
    switch (act->kind) {
    case ACT_SYMLINK:
        call.operation = JUDGE_SYMLINK;
        call.value = target;
        call.size = strlen(target);
        break;
    case ACT_LINK:
        call.operation = JUDGE_LINK;
        call.target = plan_names[act->target];
        break;
    case ACT_RENAME:
        call.operation = JUDGE_RENAME;
        call.target = plan_names[act->target];
        call.flags = act->flags & RENAME_NOREPLACE ? JUDGE_NOREPLACE : 0;
        break;
    case ACT_UNLINK:
        call.operation = JUDGE_UNLINK;
        break;
    default:
        call.operation = act->kind == ACT_MKDIR ? JUDGE_MKDIR : act->kind == ACT_RMDIR ? JUDGE_RMDIR : JUDGE_LIST;
        call.name = plan_directories[act->name % PLAN_DIRECTORIES];
        call.mode = 0777;
        break;
    }
    bool same = call.target && strcmp(call.name, call.target) == 0; /* which the kernel does by itself */
    if ((*call.name || act->kind == ACT_LIST) && !same) {
        user_call(p, &call);
        switch (act->kind) {
        case ACT_SYMLINK:
            result = vfs_symlink(t, k, target, call.name);
            break;
        case ACT_LINK:
            result = vfs_link(t, k, call.name, call.target);
            break;
        case ACT_RENAME:
            result = vfs_rename(t, k, call.name, call.target, (unsigned)act->flags);
            break;
        case ACT_UNLINK:
            result = vfs_unlink(t, k, call.name);
            break;
        case ACT_MKDIR:
            result = vfs_mkdir(t, k, call.name, call.mode);
            break;
        case ACT_RMDIR:
            result = vfs_rmdir(t, k, call.name);
            break;
        default:
            result = vfs_list(t, k, call.name, names);
            answer.value = result == 0 ? names->str : NULL;
            answer.size = names->len;
            break;
        }
        user_answer(p, &call, &answer, result);
    }
    g_string_free(names, TRUE);
}

static void user_lock(struct program *p, const struct act *act)
{
    struct kernel_file *file = user_file(p, act->slot);
    struct judge_answer answer = {0};
    struct fuse_file_lock lock;
    bool shared = act->flags & LOCK_SH, wait = !(act->flags & LOCK_NB), ofd = act->flags & LOCK_MAND;
    short type = shared ? F_RDLCK : F_WRLCK;
    int result;
    if (!file) {
        return;
    }
    struct judge_call call = {.handle = file->number, .start = act->start, .end = act->end};
    call.flags = (shared ? JUDGE_SHARE : 0u) | (wait ? 0u : JUDGE_TRY) | (ofd ? JUDGE_OFD : 0u);
    file = vfs_ref(file); /* another thread may close it meanwhile */
    switch (act->kind) {
    case ACT_FLOCK:
        call.operation = JUDGE_FLOCK;
        call.start = call.end = 0;
        call.flags &= ~(unsigned)JUDGE_OFD;
        user_call(p, &call);
        result = vfs_flock(&p->thread, file, type, wait);
        break;
    case ACT_FUNLOCK:
        call.operation = JUDGE_FUNLOCK;
        call.start = call.end = 0;
        call.flags = 0;
        user_call(p, &call);
        result = vfs_flock(&p->thread, file, F_UNLCK, false);
        break;
    case ACT_SETLK:
        call.operation = JUDGE_SETLK;
        user_call(p, &call);
        result = vfs_setlk(&p->thread, file, type, act->start, act->end, ofd, wait);
        break;
    case ACT_UNLCK:
        call.operation = JUDGE_UNLCK;
        call.flags &= JUDGE_OFD;
        user_call(p, &call);
        result = vfs_setlk(&p->thread, file, F_UNLCK, act->start, act->end, ofd, false);
        break;
    default:
        call.operation = JUDGE_GETLK;
        call.flags &= ~(unsigned)JUDGE_TRY;
        user_call(p, &call);
        result = vfs_getlk(&p->thread, file, type, act->start, act->end, ofd, &lock);
        if (result == 0 && lock.type != F_UNLCK) {
            answer.conflict.found = true;
            answer.conflict.shared = lock.type == F_RDLCK;
            answer.conflict.start = (int64_t)lock.start;
            answer.conflict.end = (int64_t)lock.end;
            answer.conflict.pid = (pid_t)lock.pid;
        }
        break;
    }
    file->references--; /* the place that it is in has one */
    user_answer(p, &call, &answer, result);
}

static void user_watch(struct program *p, const struct act *act)
{
    const char *name = user_name(p, act->name);
    if (*name && vfs_watch(&p->thread, mount_kernel(p->mount), name) == 0 && !p->thread.killed) {
        user_tell("program %u on mount %u watches %s by inotify", p->process->number,
                  kernel_mount(mount_kernel(p->mount)), name);
        judge_event(users.judge, world_now(), JUDGE_WATCHES, p->process->number, kernel_mount(mount_kernel(p->mount)),
                    name, 0);
    }
}

static void user_poll(struct program *p, const struct act *act)
{
    struct kernel_file *file = user_file(p, act->slot);
    uint32_t events;
    if (!file) {
        return;
    }
    uint64_t number = file->number;
    if (vfs_poll(&p->thread, file, number, &events) == 0 && !p->thread.killed && events & POLLHUP) {
        user_tell("program %u: poll says POLLERR and POLLHUP for file %lu", p->process->number, (unsigned long)number);
        judge_event(users.judge, world_now(), JUDGE_HUNG_UP, p->process->number, kernel_mount(mount_kernel(p->mount)),
                    NULL, number);
    }
}

/* --- programs ------------------------------------------------------------------------------------ */

static struct program *user_new(struct mount *mount, unsigned place, struct process *parent, uid_t uid);

static void user_fork(struct program *p, const struct act *act)
{
    unsigned mount = mount_host(p->mount)->index;
    struct program **place = &users.programs[mount][act->other % PLAN_PROGRAMS];
    if (*place || p->thread.killed) {
        return;
    }
    struct program *child = user_new(p->mount, act->other % PLAN_PROGRAMS, p->process, p->process->uid);
    for (unsigned i = 0; i < PROCESS_DESCRIPTORS; i++) {
        child->process->files[i] = p->process->files[i] ? vfs_ref(p->process->files[i]) : NULL;
        child->process->closes[i] = p->process->closes[i];
    }
    child->token = p->token;
    memcpy(child->ticket, p->ticket, sizeof child->ticket);
}

static void user_exec(struct program *p)
{
    user_tell("program %u calls execve", p->process->number);
    for (unsigned i = 0; i < PROCESS_DESCRIPTORS; i++) {
        if (p->process->closes[i]) {
            user_close(p, i);
        }
    }
    g_snprintf(p->process->command, sizeof p->process->command, "exec%u", p->process->number);
}

static void user_dup(struct program *p, const struct act *act)
{
    struct kernel_file *file = user_file(p, act->slot);
    if (!file || user_file(p, act->other)) {
        return;
    }
    *user_slot(p, act->other) = vfs_ref(file);
    p->process->closes[act->other % PROCESS_DESCRIPTORS] = false;
    user_tell("program %u calls dup(file %lu)", p->process->number, (unsigned long)file->number);
    judge_pass(users.judge, world_now(), p->process->number, file->number);
}

static void user_exit(struct program *p, int status)
{
    struct process *process = p->process;
    if (process->state == PROCESS_RUNS) {
        process->state = PROCESS_EXITS;
        process->status = status;
        user_tell("program %u %s", process->number,
                  status & 0x7f ? "is killed"
                  : status      ? "exits with 1"
                                : "exits with 0");
        kernel_unwatch(mount_kernel(p->mount), process->number);
        judge_exit(users.judge, world_now(), process->number, status);
    }
}

static void user_do(struct program *p, const struct act *act)
{
    const struct fuse_setattr_in now = {.valid = FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW};
    switch (act->kind) {
    case ACT_OPEN:
        user_open(p, act);
        break;
    case ACT_CLOSE:
        user_close(p, act->slot);
        break;
    case ACT_READ:
        user_read(p, act);
        break;
    case ACT_WRITE:
        user_write(p, act);
        break;
    case ACT_TRUNCATE:
        user_setattr(p, act, (struct judge_call){.operation = JUDGE_TRUNCATE, .start = act->start},
                     (struct fuse_setattr_in){.valid = FATTR_SIZE, .size = (uint64_t)act->start});
        break;
    case ACT_TIMES:
        user_setattr(p, act, (struct judge_call){.operation = JUDGE_TIMES}, now);
        break;
    case ACT_CHMOD:
        user_setattr(p, act, (struct judge_call){.operation = JUDGE_CHMOD, .mode = 0600 | (act->value & 066)},
                     (struct fuse_setattr_in){.valid = FATTR_MODE, .mode = S_IFREG | 0600 | (act->value & 066)});
        break;
    case ACT_FSYNC:
        if (user_file(p, act->slot)) {
            struct kernel_file *file = user_file(p, act->slot);
            struct judge_call call = {.operation = JUDGE_FSYNC, .handle = file->number};
            user_call(p, &call);
            user_answer(p, &call, &(struct judge_answer){0}, vfs_fsync(&p->thread, file));
        }
        break;
    case ACT_STAT:
        user_stat(p, act);
        break;
    case ACT_GETXATTR:
        user_getxattr(p, act);
        break;
    case ACT_SETXATTR:
        user_setxattr(p, act);
        break;
    case ACT_FLOCK:
    case ACT_FUNLOCK:
    case ACT_SETLK:
    case ACT_UNLCK:
    case ACT_GETLK:
        user_lock(p, act);
        break;
    case ACT_WATCH:
        user_watch(p, act);
        break;
    case ACT_POLL:
        user_poll(p, act);
        break;
    case ACT_FORK:
        user_fork(p, act);
        break;
    case ACT_EXEC:
        user_exec(p);
        break;
    case ACT_EXIT:
        user_exit(p, act->value % 4 ? 0 : 0x100);
        break;
    case ACT_DUP:
        user_dup(p, act);
        break;
    default:
        user_named(p, act);
        break;
    }
}

static void user_reap(void *arg)
{
    struct process *process = arg;
    process_is_gone(process);
}

/* do_exit: frees the memory, closes the descriptors, then notifies the parent. */
static void user_bury(struct program *p)
{
    struct process *process = p->process;
    process->no_memory = true;
    p->thread.killed = p->thread.killed || process->status & 0x7f;
    for (unsigned i = 0; i < PROCESS_DESCRIPTORS; i++) {
        struct kernel_file *file = process->files[i];
        process->files[i] = NULL;
        if (file) {
            vfs_close(&p->thread, file);
        }
    }
    unsigned mount = mount_host(p->mount)->index;
    for (unsigned i = 0; i < PLAN_PROGRAMS; i++) {
        if (users.programs[mount][i] == p) {
            users.programs[mount][i] = NULL;
        }
    }
    process->threads[0] = NULL;
    process_is_zombie(process);
    g_ptr_array_remove(users.all, p);
    world_after(process->parent ? world_between(1, 5000) * WORLD_US : 50 * WORLD_US, user_reap, process);
}

static void user_run(void *arg)
{
    struct program *p = arg;
    while (p->process->state == PROCESS_RUNS) {
        if (p->stop_for) {
            int64_t until = world_now() + p->stop_for;
            p->stop_for = 0;
            while (world_now() < until && !p->thread.killed) {
                task_sleep(MIN(until - world_now(), 10 * WORLD_MS));
            }
            continue;
        }
        struct act *act = g_queue_pop_head(p->acts);
        if (act) {
            user_do(p, act);
            g_free(act);
            if (p->process->state == PROCESS_RUNS && !p->thread.killed) {
                task_sleep(world_between(1, 60) * WORLD_US);
            }
        } else {
            task_wait();
        }
    }
    user_bury(p);
}

static struct program *user_new(struct mount *mount, unsigned place, struct process *parent, uid_t uid)
{
    struct program *p = g_new0(struct program, 1);
    struct host *host = mount_host(mount);
    p->mount = mount;
    p->process = process_new(host, parent, uid);
    p->acts = g_queue_new();
    p->thread.process = p->process;
    p->process->threads[0] = &p->thread;
    p->thread.task = task_new(host, NULL, user_run, p);
    users.programs[host->index][place] = p;
    g_ptr_array_add(users.all, p);
    if (parent) {
        user_tell("program %u forks program %u", parent->number, p->process->number);
    } else {
        user_tell("program %u begins on host %u as user %u", p->process->number, host->index, uid);
    }
    judge_fork(users.judge, world_now(), p->process->number, parent ? parent->number : 0, p->process->pid, uid,
               p->process->session);
    return p;
}

/* --- what happens to programs ----------------------------------------------------------------------- */

static void user_signal(struct program *p)
{
    if (p->thread.call && !p->thread.signalled) {
        user_tell("program %u gets a signal", p->process->number);
        judge_signal(users.judge, world_now(), p->thread.call);
        p->thread.signalled = true;
        fault_count(FAULT_SIGNAL);
        task_wake(p->thread.task);
    }
}

static void user_kill(struct program *p)
{
    if (p->process->state != PROCESS_RUNS) {
        return;
    }
    p->thread.killed = true;
    user_exit(p, SIGKILL);
    task_wake(p->thread.task);
}

/* It stops on its way back to the program, never with a lock of the kernel's. */
static void user_stop(struct program *p, int64_t duration)
{
    user_tell("program %u is stopped for %.3f s", p->process->number, (double)duration / 1e9);
    user_signal(p);
    p->stop_for = duration;
    fault_count(FAULT_PROGRAM_STOPPED);
}

static void user_pass(struct program *from, struct program *to, const struct act *act)
{
    struct kernel_file *file = user_file(from, act->slot);
    if (!to || to == from || !file || user_file(to, act->slot) || to->process->state != PROCESS_RUNS ||
        to->thread.call) {
        return; /* who is in a call receives nothing */
    }
    *user_slot(to, act->slot) = vfs_ref(file);
    to->process->closes[act->slot % PROCESS_DESCRIPTORS] = false;
    user_tell("program %u passes file %lu to program %u", from->process->number, (unsigned long)file->number,
              to->process->number);
    judge_pass(users.judge, world_now(), to->process->number, file->number);
}

void user_act(const struct act *act)
{
    unsigned mount = act->mount % users.count;
    struct program **place = &users.programs[mount][act->program % PLAN_PROGRAMS], *p = *place;
    if (act->kind == ACT_SPAWN) {
        if (!p) {
            user_new(users.mounts[mount], act->program % PLAN_PROGRAMS, NULL,
                     act->value % 5 == 0 ? 0 : USER_UID + act->value % 2);
        }
        return;
    }
    if (!p || p->process->state != PROCESS_RUNS) {
        return;
    }
    if (act->kind < ACT_CALLS) {
        if (g_queue_get_length(p->acts) < USER_QUEUE) {
            g_queue_push_tail(p->acts, g_memdup2(act, sizeof *act));
            task_wake(p->thread.task);
        } else if (act->value % 4) { /* as timeout(1) does */
            user_signal(p);
        }
    } else if (act->kind == ACT_SIGNAL) {
        user_signal(p);
    } else if (act->kind == ACT_KILL) {
        fault_count(p->thread.call ? FAULT_PROGRAM_KILLED_IN_CALL : FAULT_PROGRAM_KILLED);
        user_kill(p);
    } else if (act->kind == ACT_STOP) {
        user_stop(p, act->duration);
    } else if (act->kind == ACT_PASS) {
        user_pass(p, users.programs[mount][act->other % PLAN_PROGRAMS], act);
    }
}

void user_kill_all(unsigned mount)
{
    for (unsigned i = 0; i < PLAN_PROGRAMS; i++) {
        if (users.programs[mount][i]) {
            user_kill(users.programs[mount][i]);
        }
    }
}

void user_end(void)
{
    for (guint i = 0; i < users.all->len; i++) {
        user_kill(g_ptr_array_index(users.all, i));
    }
}

bool user_has_ended(void)
{
    return users.all->len == 0;
}

const char *user_stuck(int64_t duration)
{
    static char text[128];
    for (guint i = 0; i < users.all->len; i++) {
        struct program *p = g_ptr_array_index(users.all, i);
        if (p->process->state != PROCESS_RUNS && world_now() - p->thread.since > duration) {
            g_snprintf(text, sizeof text, "program %u has not ended", p->process->number);
            return text;
        }
    }
    return NULL;
}

/* --- at the end ---------------------------------------------------------------------------------------- */

struct user_listing {
    struct thread thread;
    struct kernel *kernel;
    GString *names;
    bool done;
};

static void user_run_listing(void *arg)
{
    struct user_listing *listing = arg;
    for (unsigned i = 0; i < PLAN_DIRECTORIES; i++) {
        GString *names = g_string_new(NULL);
        if (vfs_list(&listing->thread, listing->kernel, plan_directories[i], names) == 0) {
            g_auto(GStrv) each = g_strsplit(names->str, "\n", -1);
            for (char **name = each; *name && **name; name++) {
                struct fuse_attr attr;
                g_autofree char *path = g_strdup_printf("%s%s%s", plan_directories[i], i ? "/" : "", *name);
                if (!(strcmp(path, ".leasefs") == 0) &&
                    vfs_stat(&listing->thread, listing->kernel, path, NULL, &attr) == 0 && !S_ISDIR(attr.mode)) {
                    g_string_append_printf(listing->names, "%s\n", path);
                }
            }
        }
        g_string_free(names, TRUE);
    }
    listing->done = true;
}

char *user_list_all(unsigned mount)
{
    struct user_listing *listing = g_new0(struct user_listing, 1);
    struct host *host = mount_host(users.mounts[mount]);
    listing->kernel = mount_kernel(users.mounts[mount]);
    listing->names = g_string_new(NULL);
    listing->thread.process = process_new(host, NULL, 0);
    listing->thread.task = task_new(host, NULL, user_run_listing, listing);
    int64_t until = world_now() + 60 * WORLD_SECOND;
    while (!listing->done && world_now() < until && world_step(until)) {
    }
    return g_string_free(listing->names, FALSE);
}
