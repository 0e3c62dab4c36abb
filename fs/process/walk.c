/* walk: see walk.h. */
#include "fs/process/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define WALK_PASSES_MAX 16
#define WALK_BUFFER 16384 /* of directory entries; while they are worked off processes end */

struct walk {
    int proc;
    const struct walk_file *files;
    size_t file_count;
    bool *seen;          /* of each file */
    GArray *openers;     /* of struct walk_opener */
    GHashTable *looked;  /* set of pids that were looked into in this walk */
    GHashTable *sockets; /* inode of a socket → "PID/task/TID/fdinfo/N" */
    bool vanished;       /* in this pass: a process or thread ended before it was looked into */
};

/* What became of a look at a process, thread or descriptor. */
enum walk_look { WALK_DONE, WALK_VANISHED, WALK_FORBIDDEN };

int walk_compare_files(const void *a, const void *b)
{
    const struct walk_file *left = a, *right = b;
    if (left->device != right->device) {
        return left->device < right->device ? -1 : 1;
    }
    return left->inode < right->inode ? -1 : left->inode > right->inode;
}

static enum walk_look walk_failure(int error)
{
    return error == ENOENT || error == ESRCH ? WALK_VANISHED : WALK_FORBIDDEN;
}

/* --- directories of /proc: their entries with numbers as names ---------------------- */

struct walk_directory {
    int fd;
    ssize_t length, at;
    char buffer[WALK_BUFFER] __attribute__((aligned(8)));
};

struct walk_entry { /* struct linux_dirent64 */
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static enum walk_look walk_open(struct walk_directory *directory, int parent, const char *path)
{
    directory->fd = openat(parent, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    directory->length = directory->at = 0;
    return directory->fd < 0 ? walk_failure(errno) : WALK_DONE;
}

/* The next number; -1 at the end.  A directory of what has ended is empty, or ends early. */
static int walk_next(struct walk_directory *directory)
{
    for (;;) {
        if (directory->at >= directory->length) {
            directory->length = syscall(SYS_getdents64, directory->fd, directory->buffer, sizeof directory->buffer);
            directory->at = 0;
        }
        if (directory->length <= 0) {
            return -1;
        }
        const struct walk_entry *entry = (const void *)(directory->buffer + directory->at);
        directory->at += entry->length;
        if (g_ascii_isdigit(entry->name[0])) {
            return atoi(entry->name);
        }
    }
}

/* --- one table of descriptors ---------------------------------------------------- */

static void walk_note(struct walk *w, pid_t pid, size_t file)
{
    struct walk_opener opener = {.file = (uint32_t)file, .pid = pid};
    for (guint i = w->openers->len; i > 0; i--) {
        const struct walk_opener *other = &g_array_index(w->openers, struct walk_opener, i - 1);
        if (other->pid != pid) {
            break;
        }
        if (other->file == opener.file) {
            return;
        }
    }
    g_array_append_val(w->openers, opener);
    if (file != WALK_UNSEEN) {
        w->seen[file] = true;
    }
}

static void walk_note_socket(struct walk *w, pid_t pid, pid_t tid, int fd, uint64_t inode)
{
    gpointer key = (gpointer)(uintptr_t)inode;
    if (!g_hash_table_contains(w->sockets, key)) {
        g_hash_table_insert(w->sockets, key, g_strdup_printf("%d/task/%d/fdinfo/%d", (int)pid, (int)tid, fd));
    }
}

static enum walk_look walk_descriptor(struct walk *w, int table, pid_t pid, pid_t tid, int fd)
{
    char name[16];
    struct statx is;
    snprintf(name, sizeof name, "%d", fd);
    if (statx(table, name, AT_STATX_DONT_SYNC, 0, &is) < 0) {
        return errno == ENOENT ? WALK_DONE : walk_failure(errno); /* closed meanwhile */
    }
    struct walk_file key = {.device = makedev(is.stx_dev_major, is.stx_dev_minor), .inode = is.stx_ino};
    const struct walk_file *found = bsearch(&key, w->files, w->file_count, sizeof key, walk_compare_files);
    if (!found) {
        key.inode = WALK_OTHER;
        found = bsearch(&key, w->files, w->file_count, sizeof key, walk_compare_files);
    }
    if (found) {
        walk_note(w, pid, (size_t)(found - w->files));
    } else if (S_ISSOCK(is.stx_mode)) {
        walk_note_socket(w, pid, tid, fd, is.stx_ino);
    }
    return WALK_DONE;
}

static enum walk_look walk_table(struct walk *w, int task, pid_t pid, pid_t tid)
{
    char path[32];
    struct walk_directory directory;
    snprintf(path, sizeof path, "%d/fd", (int)tid);
    enum walk_look look = walk_open(&directory, task, path);
    if (look != WALK_DONE) {
        return look;
    }
    for (int fd; look == WALK_DONE && (fd = walk_next(&directory)) >= 0;) {
        look = walk_descriptor(w, directory.fd, pid, tid, fd);
    }
    if (look == WALK_DONE && directory.length < 0) {
        look = walk_failure(errno);
    }
    close(directory.fd);
    return look;
}

/* --- one process ------------------------------------------------------------------- */

/* Threads mostly share one table.  Where that cannot be asked, each is looked at. */
static bool walk_shares_table(pid_t a, pid_t b)
{
    return a > 0 && syscall(SYS_kcmp, a, b, KCMP_FILES, 0, 0) == 0;
}

/* The threads that end meanwhile are not counted as looked at.  So the next pass looks again. */
static enum walk_look walk_threads(struct walk *w, struct walk_directory *task, pid_t pid, unsigned *ret_threads)
{
    enum walk_look result = WALK_DONE;
    pid_t looked = 0;
    for (pid_t tid; (tid = walk_next(task)) >= 0; ++*ret_threads) {
        if (walk_shares_table(looked, tid)) {
            continue;
        }
        enum walk_look look = walk_table(w, task->fd, pid, tid);
        if (look == WALK_DONE) {
            looked = tid;
        } else if (result != WALK_FORBIDDEN) {
            result = look;
        }
    }
    if (*ret_threads == 0 && result == WALK_DONE) {
        result = WALK_VANISHED;
    }
    return result;
}

/* Of what this process has open: who it is. */
static void walk_describe(struct walk *w, guint first, pid_t pid, unsigned threads)
{
    char name[16];
    struct stat is = {0};
    snprintf(name, sizeof name, "%d", (int)pid);
    (void)!fstatat(w->proc, name, &is, 0);
    for (guint i = first; i < w->openers->len; i++) {
        struct walk_opener *opener = &g_array_index(w->openers, struct walk_opener, i);
        opener->uid = is.st_uid;
        opener->single_threaded = threads == 1;
    }
}

static void walk_process(struct walk *w, pid_t pid)
{
    char path[32];
    struct walk_directory task;
    unsigned threads = 0;
    guint first = w->openers->len;
    snprintf(path, sizeof path, "%d/task", (int)pid);
    enum walk_look look = walk_open(&task, w->proc, path);
    if (look == WALK_DONE) {
        look = walk_threads(w, &task, pid, &threads);
        close(task.fd);
    }
    if (look == WALK_VANISHED) {
        w->vanished = true;
        return;
    }
    if (look == WALK_FORBIDDEN) {
        walk_note(w, pid, WALK_UNSEEN);
    }
    if (first < w->openers->len) {
        walk_describe(w, first, pid, threads);
    }
    g_hash_table_add(w->looked, GINT_TO_POINTER(pid));
}

/* False if /proc cannot be listed. */
static bool walk_pass(struct walk *w)
{
    struct walk_directory all;
    w->vanished = false;
    if (walk_open(&all, w->proc, ".") != WALK_DONE) {
        return false;
    }
    for (pid_t pid; (pid = walk_next(&all)) >= 0;) {
        if (!g_hash_table_contains(w->looked, GINT_TO_POINTER(pid))) {
            walk_process(w, pid);
        }
    }
    close(all.fd);
    return all.length == 0;
}

/* --- descriptors on their way ------------------------------------------------------ */

/* Linux 5.6 shows for a unix socket how many descriptors its queue has.  -1: no such line. */
static long walk_count_in_flight(int proc, const char *path)
{
    char text[1024];
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        close(fd);
    }
    text[length < 0 ? 0 : length] = '\0';
    const char *field = strstr(text, "\nscm_fds:");
    return field ? strtol(field + strlen("\nscm_fds:"), NULL, 10) : -1;
}

static bool walk_shows_in_flight(int proc)
{
    int ends[2];
    char path[32];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        return false;
    }
    snprintf(path, sizeof path, "self/fdinfo/%d", ends[0]);
    bool shows = walk_count_in_flight(proc, path) >= 0;
    close(ends[0]);
    close(ends[1]);
    return shows;
}

static bool walk_is_in_flight(struct walk *w)
{
    GHashTableIter all;
    gpointer path;
    if (!walk_shows_in_flight(w->proc)) {
        return true;
    }
    g_hash_table_iter_init(&all, w->sockets);
    while (g_hash_table_iter_next(&all, NULL, &path)) {
        if (walk_count_in_flight(w->proc, path) > 0) {
            return true;
        }
    }
    return false;
}

/* --- all ----------------------------------------------------------------------- */

static uint64_t walk_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool walk_saw_all(const struct walk *w)
{
    size_t i = 0;
    while (i < w->file_count && w->seen[i]) {
        i++;
    }
    return i == w->file_count;
}

static int walk_compare_openers(const void *a, const void *b)
{
    const struct walk_opener *left = a, *right = b;
    if (left->file != right->file) {
        return left->file < right->file ? -1 : 1;
    }
    return left->pid < right->pid ? -1 : left->pid > right->pid;
}

/* A process that was looked at in two passes may be there twice. */
static void walk_sort_openers(GArray *openers)
{
    guint kept = 0;
    g_array_sort(openers, walk_compare_openers);
    for (guint i = 0; i < openers->len; i++) {
        struct walk_opener *all = (struct walk_opener *)(void *)openers->data;
        if (kept == 0 || walk_compare_openers(&all[kept - 1], &all[i]) != 0) {
            all[kept++] = all[i];
        }
    }
    g_array_set_size(openers, kept);
}

int walk_processes(int proc, const struct walk_file *files, size_t count, struct walk_result *ret_result)
{
    struct walk w = {
        .proc = proc,
        .files = files,
        .file_count = count,
        .seen = g_new0(bool, count + 1),
        .openers = g_array_new(FALSE, TRUE, sizeof(struct walk_opener)),
        .looked = g_hash_table_new(NULL, NULL),
        .sockets = g_hash_table_new_full(NULL, NULL, NULL, g_free),
    };
    uint64_t began = walk_clock();
    bool listed = walk_pass(&w);
    for (int pass = 1; listed && w.vanished && pass < WALK_PASSES_MAX; pass++) {
        listed = walk_pass(&w);
    }
    *ret_result = (struct walk_result){
        .settled = !w.vanished,
        .in_flight = !walk_saw_all(&w) && walk_is_in_flight(&w),
        .processes = g_hash_table_size(w.looked),
    };
    walk_sort_openers(w.openers);
    ret_result->count = w.openers->len;
    ret_result->openers = (struct walk_opener *)(void *)g_array_free(w.openers, FALSE);
    ret_result->processor_ns = walk_clock() - began;
    g_hash_table_destroy(w.sockets);
    g_hash_table_destroy(w.looked);
    g_free(w.seen);
    if (!listed) {
        walk_clear(ret_result);
        return -EIO;
    }
    return 0;
}

void walk_clear(struct walk_result *result)
{
    g_free(result->openers);
    *result = (struct walk_result){0};
}
