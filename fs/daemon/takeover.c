/* takeover: see takeover.h.
 *
 * Since Linux 6.5 the new mount goes below the old one, which is then detached.  Both propagate to other mount
 * namespaces.  Until the old daemon has ended, a copy of its mount can be put back.  Before 6.5, the new mount goes
 * over the old one, which stays below it as a dead mount.
 */
#include "fs/daemon/takeover.h"

#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/local/local.h"
#include "backend/log.h"
#include "backend/system.h"
#include "fs/daemon/mountpoint.h"
#include "fs/daemon/sdnotify.h"
#include "fs/daemon/undo.h"
#include "fs/options/options.h"

#define TAKEOVER_END_LIMIT 5000 /* milliseconds until the old daemon must have ended */
#define TAKEOVER_COPIES 3       /* attempts: a journal that is copied while it grows may look damaged */

struct takeover {
    char *path;
    int root; /* of the old mount */
    dev_t device;
    pid_t pid; /* of its daemon */
    int pidfd;
    GHashTable *status; /* .leasefs/status of the old mount: key -> value */
    struct undo *undo;  /* from the switch until the old daemon has ended */
    int lock;           /* mountpoint_lock: one switch of the mount at a time */
};

static const char *takeover_fact(const struct takeover *t, const char *key)
{
    const char *value = g_hash_table_lookup(t->status, key);
    return value ? value : "";
}

static void takeover_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

/* --- a: what can fail ------------------------------------------------------------ */

static void takeover_read_status(struct takeover *t)
{
    g_autofree char *name = g_strdup_printf("/proc/self/fd/%d/.leasefs/status", t->root), *text = NULL;
    t->status = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
    g_file_get_contents(name, &text, NULL, NULL);
    g_auto(GStrv) lines = g_strsplit(text ? text : "", "\n", -1);
    for (size_t i = 0; lines[i]; i++) {
        char *value = strstr(lines[i], ": ");
        if (value) {
            *value = '\0';
            g_hash_table_replace(t->status, g_strdup(lines[i]), g_strdup(value + 2));
        }
    }
}

/* Is it the daemon that its mount names, in the same pid namespace? */
static int takeover_find_daemon(struct takeover *t, char *error, size_t error_size)
{
    if (strcmp(takeover_fact(t, "takeover"), "yes") != 0) {
        snprintf(error, error_size,
                 "the daemon of %s is of a version without takeover (%s): unmount %s, and mount it again", t->path,
                 *takeover_fact(t, "version") ? takeover_fact(t, "version") : "unknown", t->path);
        return -EOPNOTSUPP;
    }
    t->pid = (pid_t)strtol(takeover_fact(t, "pid"), NULL, 10);
    g_autofree char *name = g_strdup_printf("/proc/%d/comm", t->pid), *command = NULL;
    t->pidfd = t->pid > 0 ? (int)syscall(SYS_pidfd_open, t->pid, 0) : -1;
    if (t->pidfd < 0 || !g_file_get_contents(name, &command, NULL, NULL) || !strstr(command, "leasefs")) {
        snprintf(error, error_size, "process %d, the daemon of %s, is not in this pid namespace: take over there",
                 (int)t->pid, t->path);
        return -ESRCH;
    }
    return 0;
}

static void takeover_empty(const char *directory)
{
    GDir *listed = g_dir_open(directory, 0, NULL);
    for (const char *name; listed && (name = g_dir_read_name(listed));) {
        g_autofree char *file = g_build_filename(directory, name, NULL);
        g_unlink(file);
    }
    if (listed) {
        g_dir_close(listed);
    }
}

/* Reads a copy of the journal to its end, as the start does, and writes only to that copy. */
static int takeover_try_journal(const char *directory, enum log_level level, char *error, size_t error_size)
{
    g_autofree char *copy = g_build_filename(directory, "takeover", NULL);
    g_autofree char *copied = g_build_filename(copy, "journal", NULL);
    g_autofree char *text = NULL, *journal = g_build_filename(directory, "journal", NULL);
    struct backend *backend = NULL;
    GError *failed = NULL;
    gsize size;
    int result = 0;
    if (g_mkdir(copy, 0700) < 0 && errno != EEXIST) {
        snprintf(error, error_size, "cannot make the directory %s: %s", copy, g_strerror(errno));
        return -EIO;
    }
    takeover_empty(copy); /* of one that was killed */
    if (!g_file_get_contents(journal, &text, &size, &failed) ||
        !g_file_set_contents(copied, text, (gssize)size, &failed)) {
        snprintf(error, error_size, "cannot copy %s to try it: %s", journal, failed->message);
        g_clear_error(&failed);
        result = -EIO;
    } else {
        log_set_level(LOG_LEVEL_ERROR); /* what it has to say comes again, from the start */
        result =
            local_new(&(struct local_options){.directory = copy, .seed = g_random_int()}, &backend, error, error_size);
        log_set_level(level);
        backend_free(backend);
    }
    takeover_empty(copy);
    g_rmdir(copy);
    return result;
}

static int takeover_check_local(const struct options *options, char *error, size_t error_size)
{
    int result = -EAGAIN;
    for (int i = 0; result < 0 && i < TAKEOVER_COPIES; i++) {
        result = takeover_try_journal(options->directory, options->log, error, error_size);
    }
    return result;
}

int takeover_try_store(const struct options *options, char *error, size_t error_size)
{
    return options->kind == OPTIONS_LOCAL ? takeover_check_local(options, error, error_size) : 0;
}

int takeover_begin(const struct options *options, struct takeover **ret, char *error, size_t error_size)
{
    if (geteuid() != 0) {
        snprintf(error, error_size,
                 "takeover is for root: an ordinary user cannot move a mount; unmount %s, and mount it again",
                 options->mountpoint);
        return -EPERM;
    }
    uid_t user = 0;
    struct takeover *t = g_new0(struct takeover, 1);
    *t = (struct takeover){.path = g_strdup(options->mountpoint), .pidfd = -1, .lock = -1};
    t->root = mountpoint_open_living(t->path, &user, error, error_size);
    int result = t->root < 0 ? t->root : user == 0 ? 0 : -EPERM;
    if (user != 0) { /* its status could name any process */
        snprintf(error, error_size, "the leasefs at %s is of uid %u, not of root: unmount it, and mount it again",
                 t->path, (unsigned)user);
    }
    if (result == 0) {
        t->device = mountpoint_device(t->path);
        takeover_read_status(t);
        result = takeover_find_daemon(t, error, error_size);
    }
    if (result < 0) {
        takeover_free(t);
        return result;
    }
    *ret = t;
    return 0;
}

void takeover_free(struct takeover *t)
{
    if (t) {
        g_clear_pointer(&t->undo, undo_run);
        takeover_close(&t->root);
        takeover_close(&t->pidfd);
        takeover_close(&t->lock);
        g_clear_pointer(&t->status, g_hash_table_unref);
        g_free(t->path);
        g_free(t);
    }
}

dev_t takeover_device(const struct takeover *t)
{
    return t->device;
}

/* As .leasefs/status shows it. */
static char *takeover_escape(const char *text)
{
    size_t size = strlen(text) * 4 + 1;
    char *escaped = g_malloc(size);
    log_escape(escaped, size, text);
    return escaped;
}

int takeover_check_store(const struct takeover *t, const struct options *options, struct backend *backend, char *error,
                         size_t error_size)
{
    struct backend_status status = {0};
    g_autofree char *address = NULL;
    if (options->kind == OPTIONS_LOCAL && !options->directory) {
        snprintf(error, error_size, "a store in memory ends with its daemon: nothing could be taken over");
        return -EOPNOTSUPP;
    }
    if (backend) {
        backend_status(backend, &status);
        address = takeover_escape(status.address);
        backend_status_clear(&status);
    } else if (options->kind == OPTIONS_LOCAL) {
        g_autofree char *local = g_strconcat("local:", options->directory, NULL);
        address = takeover_escape(local);
    }
    g_autofree char *source = mountpoint_source(t->root);
    bool same =
        address ? strcmp(address, takeover_fact(t, "address")) == 0 : source && strcmp(source, options->backend) == 0;
    if (!same) {
        snprintf(error, error_size,
                 "%s shows the locks of %s, not of %s: a takeover keeps the store; unmount %s, and mount it again",
                 t->path, takeover_fact(t, "address"), address ? address : options->backend, t->path);
        return -EINVAL;
    }
    return options->kind == OPTIONS_LOCAL ? takeover_check_local(options, error, error_size) : 0;
}

/* --- b: the switch ------------------------------------------------------------------ */

/* Another takeover may have been quicker. */
static int takeover_lock(struct takeover *t, char *error, size_t error_size)
{
    t->lock = mountpoint_lock(t->device, error, error_size);
    if (t->lock < 0) {
        return t->lock;
    }
    if (!mountpoint_is_top(t->root, t->path)) {
        snprintf(error, error_size, "another daemon has taken over %s meanwhile: try again", t->path);
        return -EBUSY;
    }
    return 0;
}

/* Before Linux 6.5 the new mount goes on top. */
static int takeover_exchange(const struct takeover *t, int tree)
{
    g_autofree char *old = g_strdup_printf("/proc/self/fd/%d", t->root);
    int result = move_mount(tree, "", AT_FDCWD, t->path, MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_BENEATH) == 0
                     ? umount2(old, MNT_DETACH)
                     : move_mount(tree, "", AT_FDCWD, t->path, MOVE_MOUNT_F_EMPTY_PATH);
    return result < 0 ? -errno : 0;
}

int takeover_switch(struct takeover *t, int tree, int connection, int manager, char *error, size_t error_size)
{
    int copy = open_tree(t->root, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    int result = copy < 0 ? -errno : 0;
    if (result == 0) {
        result = takeover_lock(t, error, error_size);
    }
    if (result == 0) {
        const struct undo_mounts mounts = {t->path,  t->root, copy,    tree,   connection,
                                           t->pidfd, t->pid,  manager, t->lock};
        result = undo_start(&mounts, &t->undo);
        result = result < 0 ? result : takeover_exchange(t, tree);
    }
    if (result < 0) {
        g_clear_pointer(&t->undo, undo_run);
        if (!*error) {
            snprintf(error, error_size, "cannot move the new mount to %s: %s", t->path, g_strerror(-result));
        }
    }
    takeover_close(&copy);
    return result;
}

/* --- c: the old daemon's end ----------------------------------------------------------- */

/* The old daemon's limit, in its environment, counts for this process from now on. */
static void takeover_adopt_watchdog(const struct takeover *t)
{
    static const char name[] = "WATCHDOG_USEC=";
    g_autofree char *file = g_strdup_printf("/proc/%d/environ", t->pid), *text = NULL;
    gsize size = 0;
    g_file_get_contents(file, &text, &size, NULL);
    for (const char *at = text; at && at < text + size; at += strlen(at) + 1) {
        if (g_str_has_prefix(at, name)) {
            g_setenv("WATCHDOG_USEC", at + strlen(name), TRUE);
            g_unsetenv("WATCHDOG_PID");
        }
    }
}

int takeover_await_end(struct takeover *t, int manager, char *error, size_t error_size)
{
    struct pollfd ended = {.fd = t->pidfd, .events = POLLIN};
    int ready;
    takeover_adopt_watchdog(t);
    sdnotify_main_pid(manager, getpid());
    syscall(SYS_pidfd_send_signal, t->pidfd, TAKEOVER_BEGINS, NULL, 0);
    do {
        ready = poll(&ended, 1, TAKEOVER_END_LIMIT);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        g_clear_pointer(&t->undo, undo_run);
        snprintf(error, error_size,
                 "the daemon of %s (process %d) does not end: it goes on, and nothing has changed; is it stopped?",
                 t->path, (int)t->pid);
        return -ETIMEDOUT;
    }
    g_clear_pointer(&t->undo, undo_cancel);
    takeover_close(&t->lock);
    takeover_close(&t->root); /* or this process would be one that has a file of the old mount open */
    log_info("mounted at %s in place of process %d (version %s)", t->path, (int)t->pid, takeover_fact(t, "version"));
    return 0;
}
