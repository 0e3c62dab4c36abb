/* kernel: FUSE in the kernel of a host; see kernel.h. */
#include "tests/sim/kernel.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/sim/descriptor.h"
#include "tests/sim/process.h"
#include "tests/sim/task.h"

struct kernel {
    struct host *host;
    struct kernel_options options;
    int descriptor;
    dev_t device;
    bool dead;
    uint64_t next_unique;
    int64_t late;       /* when the last of what nobody waits for leaves: an inode is forgotten behind its files */
    GQueue *interrupts; /* of uint64_t: to be read first */
    GQueue *pending;    /* requests to be read */
    GPtrArray *processing;
    GHashTable *answered; /* unique -> the daemon's number, and 1 */
    unsigned daemon;      /* its number */
    unsigned notifying;
    GPtrArray *nodes;
    GPtrArray *entries;
    struct kernel_node *root;
};

static const char *const kernel_opcodes[] = {
    [FUSE_LOOKUP] = "LOOKUP",
    [FUSE_FORGET] = "FORGET",
    [FUSE_GETATTR] = "GETATTR",
    [FUSE_SETATTR] = "SETATTR",
    [FUSE_READLINK] = "READLINK",
    [FUSE_SYMLINK] = "SYMLINK",
    [FUSE_MKDIR] = "MKDIR",
    [FUSE_UNLINK] = "UNLINK",
    [FUSE_RMDIR] = "RMDIR",
    [FUSE_LINK] = "LINK",
    [FUSE_OPEN] = "OPEN",
    [FUSE_READ] = "READ",
    [FUSE_WRITE] = "WRITE",
    [FUSE_RELEASE] = "RELEASE",
    [FUSE_FSYNC] = "FSYNC",
    [FUSE_SETXATTR] = "SETXATTR",
    [FUSE_GETXATTR] = "GETXATTR",
    [FUSE_FLUSH] = "FLUSH",
    [FUSE_INIT] = "INIT",
    [FUSE_OPENDIR] = "OPENDIR",
    [FUSE_READDIR] = "READDIR",
    [FUSE_GETLK] = "GETLK",
    [FUSE_SETLK] = "SETLK",
    [FUSE_SETLKW] = "SETLKW",
    [FUSE_CREATE] = "CREATE",
    [FUSE_INTERRUPT] = "INTERRUPT",
    [FUSE_POLL] = "POLL",
    [FUSE_RENAME2] = "RENAME",
    [FUSE_RELEASEDIR] = "RELEASEDIR",
};

static const char *kernel_opcode(uint32_t opcode)
{
    return opcode < G_N_ELEMENTS(kernel_opcodes) && kernel_opcodes[opcode] ? kernel_opcodes[opcode] : "?";
}

struct kernel *kernel_new(struct host *host, const struct kernel_options *options)
{
    static dev_t devices;
    struct kernel *kernel = g_new0(struct kernel, 1);
    kernel->host = host;
    kernel->device = ++devices;
    kernel->options = *options;
    kernel->next_unique = 2;
    kernel->interrupts = g_queue_new();
    kernel->pending = g_queue_new();
    kernel->processing = g_ptr_array_new();
    kernel->answered = g_hash_table_new(NULL, NULL);
    kernel->nodes = g_ptr_array_new();
    kernel->entries = g_ptr_array_new();
    kernel->root = g_new0(struct kernel_node, 1);
    kernel->root->id = FUSE_ROOT_ID;
    kernel->root->references = 1;
    kernel->root->type = S_IFDIR;
    g_ptr_array_add(kernel->nodes, kernel->root);
    kernel->descriptor = descriptor_new(DESCRIPTOR_KERNEL, kernel);
    return kernel;
}

struct kernel *kernel_of(int fd)
{
    return descriptor_object(fd, DESCRIPTOR_KERNEL);
}

int kernel_descriptor(const struct kernel *kernel)
{
    return kernel->descriptor;
}

dev_t kernel_device(const struct kernel *kernel)
{
    return kernel->device;
}

unsigned kernel_mount(const struct kernel *kernel)
{
    return kernel->options.mount;
}

struct kernel_node *kernel_root(struct kernel *kernel)
{
    return kernel->root;
}

bool kernel_is_dead(const struct kernel *kernel)
{
    return kernel->dead;
}

/* --- requests ------------------------------------------------------------------- */

static void kernel_queue(void *arg)
{
    struct kernel_request *request = arg;
    if (request->kernel->dead) {
        kernel_request_free(request);
    } else {
        g_queue_push_tail(request->kernel->pending, request);
    }
}

struct kernel_request *kernel_ask(struct kernel *kernel, struct thread *caller, uint32_t opcode, uint64_t node,
                                  const void *arg, size_t arg_size, const void *data, size_t data_size)
{
    struct kernel_request *request = g_new0(struct kernel_request, 1);
    struct process *process = caller ? caller->process : NULL;
    struct fuse_in_header header = {.len = (uint32_t)(sizeof header + arg_size + data_size),
                                    .opcode = opcode,
                                    .unique = kernel->next_unique,
                                    .nodeid = node,
                                    .uid = process ? process->uid : 0,
                                    .gid = process ? process->uid : 0,
                                    .pid = process ? (uint32_t)process_tid(process, caller->index) : 0};
    kernel->next_unique += 2;
    request->kernel = kernel;
    request->unique = header.unique;
    request->opcode = opcode;
    request->caller = caller;
    request->message = g_byte_array_sized_new(header.len);
    g_byte_array_append(request->message, (const void *)&header, sizeof header);
    g_byte_array_append(request->message, arg, (guint)arg_size);
    g_byte_array_append(request->message, data, (guint)data_size);
    if (!caller) {
        int64_t leaves = world_now() + world_between(1, 300) * WORLD_US;
        kernel->late = MAX(kernel->late + 1, leaves);
        world_at(kernel->late, kernel_queue, request);
    } else if (kernel->dead) {
        request->answered = true;
        request->error = -ENOTCONN;
    } else {
        kernel_queue(request);
    }
    return request;
}

void kernel_request_free(struct kernel_request *request)
{
    g_byte_array_unref(request->message);
    if (request->answer) {
        g_byte_array_unref(request->answer);
    }
    g_free(request);
}

static void kernel_interrupt(struct kernel *kernel, uint64_t unique)
{
    g_queue_push_tail(kernel->interrupts, GSIZE_TO_POINTER(unique));
}

int kernel_await(struct kernel_request *request, bool force)
{
    struct kernel *kernel = request->kernel;
    struct thread *caller = request->caller;
    while (!request->answered) {
        if ((caller->signalled || caller->killed) && !request->interrupted) {
            request->interrupted = true;
            if (request->sent) {
                kernel_interrupt(kernel, request->unique);
            }
        }
        if (caller->killed && !request->sent && !force) {
            g_queue_remove(kernel->pending, request);
            return -EINTR;
        }
        task_wait();
    }
    return request->error;
}

static void kernel_answer(struct kernel_request *request, int error)
{
    request->answered = true;
    request->error = error;
    if (request->caller) {
        task_wake(request->caller->task);
    } else {
        kernel_request_free(request);
    }
}

void kernel_abort(struct kernel *kernel)
{
    struct kernel_request *request;
    kernel->dead = true;
    descriptor_close(kernel->descriptor);
    while ((request = g_queue_pop_head(kernel->pending))) {
        kernel_answer(request, -ECONNABORTED);
    }
    while (kernel->processing->len) {
        kernel_answer(g_ptr_array_remove_index(kernel->processing, 0), -ECONNABORTED);
    }
    g_queue_clear(kernel->interrupts);
    for (guint i = 0; i < kernel->nodes->len;
         i++) { /* a thread of the daemon may have one, and does not run any more */
        struct kernel_lock *lock = &((struct kernel_node *)g_ptr_array_index(kernel->nodes, i))->lock;
        lock->readers = 0;
        kernel_give(lock, true);
    }
    for (guint i = 0; i < kernel->entries->len; i++) {
        ((struct kernel_entry *)g_ptr_array_index(kernel->entries, i))->expires = 0;
    }
}

void kernel_succeed(struct kernel *kernel)
{
    kernel->daemon++;
}

bool kernel_is_notified(const struct kernel *kernel)
{
    return kernel->notifying > 0;
}

/* Has a daemon before this one answered it? */
static bool kernel_was_answered(const struct kernel *kernel, uint64_t unique)
{
    unsigned by = GPOINTER_TO_UINT(g_hash_table_lookup(kernel->answered, GSIZE_TO_POINTER(unique)));
    return by && by <= kernel->daemon;
}

void kernel_greet(struct kernel *kernel)
{
    struct fuse_init_in in = {.major = FUSE_KERNEL_VERSION,
                              .minor = kernel->options.can_expire ? 38 : 36,
                              .max_readahead = 131072,
                              .flags = FUSE_FLOCK_LOCKS | FUSE_POSIX_LOCKS | FUSE_ATOMIC_O_TRUNC | FUSE_ASYNC_READ |
                                       FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_DO_READDIRPLUS};
    struct kernel_request *request = kernel_ask(kernel, NULL, FUSE_INIT, 0, &in, sizeof in, NULL, 0);
    (void)request;
}

/* --- the daemon's side -------------------------------------------------------------- */

bool kernel_has_message(const struct kernel *kernel)
{
    return kernel->dead || !g_queue_is_empty(kernel->interrupts) || !g_queue_is_empty(kernel->pending);
}

static ssize_t kernel_copy(void *buffer, size_t size, const void *data, size_t length)
{
    memcpy(buffer, data, length);
    memset((char *)buffer + length, 0, MIN(size - length, 256)); /* nothing of earlier messages behind this one */
    return (ssize_t)length;
}

ssize_t kernel_read(struct kernel *kernel, void *buffer, size_t size)
{
    if (!kernel || kernel->dead) {
        errno = ENODEV;
        return -1;
    }
    uint64_t interrupted = GPOINTER_TO_SIZE(g_queue_pop_head(kernel->interrupts));
    if (interrupted) {
        struct {
            struct fuse_in_header header;
            struct fuse_interrupt_in in;
        } message = {{.len = sizeof message, .opcode = FUSE_INTERRUPT, .unique = interrupted | 1}, {interrupted}};
        world_trace("m%u> INTERRUPT %lu", kernel->options.mount, (unsigned long)interrupted);
        return kernel_copy(buffer, size, &message, sizeof message);
    }
    struct kernel_request *request = g_queue_pop_head(kernel->pending);
    if (!request) {
        errno = EAGAIN;
        return -1;
    }
    const struct fuse_in_header *header = (const void *)request->message->data;
    world_trace("m%u> %lu %s pid %u", kernel->options.mount, (unsigned long)request->unique,
                kernel_opcode(request->opcode), header->pid);
    ssize_t length = kernel_copy(buffer, size, request->message->data, request->message->len);
    request->sent = true;
    if (request->opcode == FUSE_FORGET) {
        kernel_request_free(request);
        return length;
    }
    g_ptr_array_add(kernel->processing, request);
    if (request->interrupted) {
        kernel_interrupt(kernel, request->unique);
    }
    return length;
}

static struct kernel_request *kernel_processing(struct kernel *kernel, uint64_t unique)
{
    for (guint i = 0; i < kernel->processing->len; i++) {
        struct kernel_request *request = g_ptr_array_index(kernel->processing, i);
        if (request->unique == unique) {
            return g_ptr_array_remove_index(kernel->processing, i);
        }
    }
    return NULL;
}

static struct kernel_node *kernel_node(const struct kernel *kernel, uint64_t id)
{
    for (guint i = 0; i < kernel->nodes->len; i++) {
        struct kernel_node *node = g_ptr_array_index(kernel->nodes, i);
        if (node->id == id) {
            return node;
        }
    }
    return NULL;
}

/* fuse_reverse_inval_entry: takes the locks of the directory, and of a file that was deleted. */
static int kernel_invalidate(struct kernel *kernel, uint64_t parent_id, uint64_t child, const char *name, bool expire)
{
    struct kernel_node *parent = kernel_node(kernel, parent_id);
    if (!parent) {
        return -ENOENT;
    }
    kernel_ref(parent);
    kernel_take(&parent->lock, true);
    struct kernel_entry *entry = kernel_find(kernel, parent, name);
    int result = entry ? 0 : -ENOENT;
    if (entry && expire) {
        entry->expires = 0;
    } else if (entry && child) {
        struct kernel_node *node = entry->node ? kernel_ref(entry->node) : NULL;
        entry->expires = 0;
        if (node) {
            kernel_take(&node->lock, true);
            entry = kernel_find(kernel, parent, name);
            result = node->id == child ? 0 : -ENOENT;
            if (entry && entry->node == node) {
                kernel_drop(kernel, entry);
            }
            if (result == 0) {
                node->links = 0;
                kernel_tell_watchers(kernel, node);
            }
            kernel_give(&node->lock, true);
            kernel_unref(kernel, node);
        }
    } else if (entry) {
        kernel_drop(kernel, entry);
    }
    kernel_give(&parent->lock, true);
    kernel_unref(kernel, parent);
    return result;
}

#define KERNEL_INC_EPOCH 8 /* FUSE_NOTIFY_INC_EPOCH, which few headers have */

static int kernel_notified(struct kernel *kernel, int code, const char *body)
{
    if (code == FUSE_NOTIFY_DELETE) {
        struct fuse_notify_delete_out out;
        memcpy(&out, body, sizeof out);
        world_trace("m%u! DELETE %s", kernel->options.mount, body + sizeof out);
        return kernel_invalidate(kernel, out.parent, out.child, body + sizeof out, false);
    }
    if (code == FUSE_NOTIFY_INVAL_ENTRY) {
        struct fuse_notify_inval_entry_out out;
        uint32_t flags;
        memcpy(&out, body, sizeof out);
        memcpy(&flags, body + sizeof out - sizeof flags, sizeof flags); /* older headers call it padding */
        bool expire = flags & 1;                                        /* FUSE_EXPIRE_ONLY */
        world_trace("m%u! %s %s", kernel->options.mount, expire ? "EXPIRE" : "INVALIDATE", body + sizeof out);
        return kernel_invalidate(kernel, out.parent, 0, body + sizeof out, expire);
    }
    if (code == FUSE_NOTIFY_POLL) {
        struct fuse_notify_poll_wakeup_out out;
        memcpy(&out, body, sizeof out);
        kernel->options.polled(kernel->options.mount, out.kh);
        return 0;
    }
    if (code == KERNEL_INC_EPOCH) {
        world_trace("m%u! EPOCH", kernel->options.mount);
        for (guint i = 0; kernel->options.can_expire && i < kernel->entries->len; i++) {
            ((struct kernel_entry *)g_ptr_array_index(kernel->entries, i))->expires = 0;
        }
        return kernel->options.can_expire ? 0 : -EINVAL;
    }
    world_fail("message", "a notification that no kernel knows: %d", code);
}

ssize_t kernel_writev(struct kernel *kernel, const struct iovec *parts, int count)
{
    if (!kernel || kernel->dead) {
        errno = ENODEV;
        return -1;
    }
    GByteArray *message = g_byte_array_new();
    for (int i = 0; i < count; i++) {
        g_byte_array_append(message, parts[i].iov_base, (guint)parts[i].iov_len);
    }
    struct fuse_out_header header;
    memcpy(&header, message->data, sizeof header);
    ssize_t length = (ssize_t)message->len;
    if (header.len != message->len) {
        world_fail("message", "an answer's length is wrong");
    }
    if (!header.unique) {
        g_byte_array_append(message, (const guint8 *)"", 1);
        kernel->notifying++;
        int result = kernel_notified(kernel, header.error, (const char *)message->data + sizeof header);
        kernel->notifying--;
        g_byte_array_unref(message);
        errno = -result;
        return result < 0 ? -1 : length;
    }
    if (header.unique & 1) { /* an INTERRUPT of what the daemon has not met, or has answered */
        struct kernel_request *interrupted = kernel_processing(kernel, header.unique & ~UINT64_C(1));
        if (interrupted) {
            g_ptr_array_add(kernel->processing, interrupted);
            kernel_interrupt(kernel, interrupted->unique);
        }
        g_byte_array_unref(message);
        return length;
    }
    if (kernel_was_answered(kernel, header.unique)) {
        g_byte_array_unref(message);
        errno = ENOENT;
        return -1;
    }
    struct kernel_request *request = kernel_processing(kernel, header.unique);
    if (!request) {
        world_fail("message", "an answer to request %lu, which has none to come", (unsigned long)header.unique);
    }
    if (header.error > 0 || header.error <= -512) {
        world_fail("message", "request %lu is answered with error %d", (unsigned long)header.unique, header.error);
    }
    if (header.error == -EINTR && !request->interrupted) {
        world_fail("message", "request %lu is answered EINTR, and nobody has interrupted it",
                   (unsigned long)header.unique);
    }
    world_trace("m%u< %lu %s %d", kernel->options.mount, (unsigned long)request->unique, kernel_opcode(request->opcode),
                header.error);
    g_hash_table_insert(kernel->answered, GSIZE_TO_POINTER(request->unique), GUINT_TO_POINTER(kernel->daemon + 1));
    g_byte_array_remove_range(message, 0, sizeof header);
    request->answer = message;
    kernel_answer(request, header.error);
    return length;
}

/* --- inodes and entries ------------------------------------------------------------- */

struct kernel_node *kernel_ref(struct kernel_node *node)
{
    node->references++;
    return node;
}

static void kernel_forget(struct kernel *kernel, uint64_t id, uint64_t lookups)
{
    struct fuse_forget_in in = {.nlookup = lookups};
    if (!kernel->dead && lookups) {
        kernel_ask(kernel, NULL, FUSE_FORGET, id, &in, sizeof in, NULL, 0);
    }
}

void kernel_unref(struct kernel *kernel, struct kernel_node *node)
{
    if (node && --node->references == 0) {
        kernel_forget(kernel, node->id, node->lookups);
        g_ptr_array_remove(kernel->nodes, node);
        if (node->watchers) {
            g_ptr_array_free(node->watchers, TRUE);
        }
        if (node->lock.waiting) {
            g_ptr_array_free(node->lock.waiting, TRUE);
        }
        g_free(node);
    }
}

struct kernel_node *kernel_learn(struct kernel *kernel, const struct fuse_entry_out *out)
{
    struct kernel_node *node = kernel_node(kernel, out->nodeid);
    if (node) {
        kernel_ref(node);
    } else {
        node = g_new0(struct kernel_node, 1);
        node->id = out->nodeid;
        node->references = 1;
        g_ptr_array_add(kernel->nodes, node);
    }
    node->type = out->attr.mode & S_IFMT;
    node->links = out->attr.nlink;
    node->ino = out->attr.ino;
    node->lookups++;
    return node;
}

struct kernel_entry *kernel_find(struct kernel *kernel, const struct kernel_node *parent, const char *name)
{
    for (guint i = 0; i < kernel->entries->len; i++) {
        struct kernel_entry *entry = g_ptr_array_index(kernel->entries, i);
        if (entry->parent == parent && strcmp(entry->name, name) == 0) {
            return entry;
        }
    }
    return NULL;
}

void kernel_renew(const struct kernel *kernel, struct kernel_entry *entry, const struct fuse_entry_out *out)
{
    entry->expires =
        host_monotonic(kernel->host) + (int64_t)MIN(out->entry_valid, 1000000) * WORLD_SECOND + out->entry_valid_nsec;
    if (!out->entry_valid && !out->entry_valid_nsec) {
        entry->expires = 0;
    }
}

bool kernel_is_fresh(const struct kernel *kernel, const struct kernel_entry *entry)
{
    return host_monotonic(kernel->host) < entry->expires;
}

void kernel_enter(struct kernel *kernel, struct kernel_node *parent, const char *name, struct kernel_node *node,
                  const struct fuse_entry_out *out)
{
    struct kernel_entry *entry = kernel_find(kernel, parent, name);
    if (entry) {
        kernel_drop(kernel, entry);
    }
    entry = g_new0(struct kernel_entry, 1);
    entry->parent = kernel_ref(parent);
    entry->node = node ? kernel_ref(node) : NULL;
    g_strlcpy(entry->name, name, sizeof entry->name);
    kernel_renew(kernel, entry, out);
    g_ptr_array_add(kernel->entries, entry);
}

void kernel_drop(struct kernel *kernel, struct kernel_entry *entry)
{
    g_ptr_array_remove(kernel->entries, entry);
    kernel_unref(kernel, entry->node);
    kernel_unref(kernel, entry->parent);
    g_free(entry);
}

bool kernel_drop_any(struct kernel *kernel)
{
    if (kernel->entries->len == 0 || kernel->dead) {
        return false;
    }
    struct kernel_entry *entry = g_ptr_array_index(kernel->entries, world_below(kernel->entries->len));
    for (guint i = 0; i < kernel->entries->len; i++) {
        if (((struct kernel_entry *)g_ptr_array_index(kernel->entries, i))->parent == entry->node) {
            return false; /* a directory that is in use */
        }
    }
    if (entry->node && (entry->node->watchers && entry->node->watchers->len)) {
        return false; /* inotify keeps the inode */
    }
    kernel_drop(kernel, entry);
    return true;
}

static void kernel_free_watcher(void *data)
{
    struct kernel_watcher *watcher = data;
    g_free(watcher->path);
    g_free(watcher);
}

void kernel_watch(struct kernel_node *node, uint32_t process, const char *path)
{
    if (!node->watchers) {
        node->watchers = g_ptr_array_new_with_free_func(kernel_free_watcher);
    }
    for (guint i = 0; i < node->watchers->len; i++) {
        if (((const struct kernel_watcher *)g_ptr_array_index(node->watchers, i))->process == process) {
            return;
        }
    }
    struct kernel_watcher *watcher = g_new(struct kernel_watcher, 1);
    *watcher = (struct kernel_watcher){process, g_strdup(path)};
    g_ptr_array_add(node->watchers, watcher);
    kernel_ref(node);
}

void kernel_unwatch(struct kernel *kernel, uint32_t process)
{
    for (guint i = kernel->nodes->len; i-- > 0;) {
        struct kernel_node *node = g_ptr_array_index(kernel->nodes, i);
        for (guint k = node->watchers ? node->watchers->len : 0; k-- > 0;) {
            if (((const struct kernel_watcher *)g_ptr_array_index(node->watchers, k))->process == process) {
                g_ptr_array_remove_index(node->watchers, k);
                kernel_unref(kernel, node);
                break;
            }
        }
    }
}

void kernel_tell_watchers(struct kernel *kernel, struct kernel_node *node)
{
    if (node->links || node->files || !node->watchers) {
        return;
    }
    kernel_ref(node);
    while (node->watchers->len) {
        struct kernel_watcher *watcher = g_ptr_array_index(node->watchers, 0);
        kernel->options.deleted(kernel->options.mount, watcher->process, watcher->path);
        g_ptr_array_remove_index(node->watchers, 0);
        kernel_unref(kernel, node);
    }
    kernel_unref(kernel, node);
}

/* --- locks -------------------------------------------------------------------------- */

void kernel_take(struct kernel_lock *lock, bool write)
{
    while (lock->writer || (write && lock->readers)) {
        if (!task_current()) {
            world_fail("deadlock", "a daemon's loop waits for a lock that only its answer can give back");
        }
        if (!lock->waiting) {
            lock->waiting = g_ptr_array_new();
        }
        g_ptr_array_add(lock->waiting, task_current());
        task_wait();
        g_ptr_array_remove(lock->waiting, task_current());
    }
    if (write) {
        static int outside; /* of a task: a daemon's loop */
        lock->writer = task_current() ? task_current() : (const void *)&outside;
    } else {
        lock->readers++;
    }
}

void kernel_give(struct kernel_lock *lock, bool write)
{
    if (write) {
        lock->writer = NULL;
    } else if (lock->readers) {
        lock->readers--;
    }
    for (guint i = 0; lock->waiting && i < lock->waiting->len; i++) {
        task_wake(g_ptr_array_index(lock->waiting, i));
    }
}
