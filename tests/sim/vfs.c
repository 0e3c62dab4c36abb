/* vfs: the system calls of simulated programs; see vfs.h. */
#include "tests/sim/vfs.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>

#include "tests/sim/process.h"

/* How a name is looked up. */
enum { VFS_LOCKED = 1, VFS_AGAIN = 2, VFS_EXCLUSIVE = 4 };

/* One request and its answer: the size of what came, or -errno. */
static int vfs_ask(struct thread *t, struct kernel *k, uint32_t opcode, uint64_t node, const void *arg, size_t arg_size,
                   const void *data, size_t data_size, void *ret, size_t ret_size)
{
    struct kernel_request *request = kernel_ask(k, t, opcode, node, arg, arg_size, data, data_size);
    int result = kernel_await(request, opcode == FUSE_FLUSH);
    if (result == 0 && request->answer) {
        result = (int)MIN(request->answer->len, ret_size);
        if (result) {
            memcpy(ret, request->answer->data, (size_t)result);
        }
    }
    kernel_request_free(request);
    return result;
}

/* An answer that must have that size. */
static int vfs_ask_whole(struct thread *t, struct kernel *k, uint32_t opcode, uint64_t node, const void *arg,
                         size_t arg_size, const void *data, size_t data_size, void *ret, size_t ret_size)
{
    int result = vfs_ask(t, k, opcode, node, arg, arg_size, data, data_size, ret, ret_size);
    if (result >= 0 && (size_t)result != ret_size) {
        world_fail("message", "an answer to opcode %u of %d bytes", opcode, result);
    }
    return MIN(result, 0);
}

/* --- names ------------------------------------------------------------------------ */

/* Asks for a name; `*ret` NULL and -ENOENT: it is not there. With the entry. */
static int vfs_lookup_now(struct thread *t, struct kernel *k, struct kernel_node *dir, const char *name,
                          struct kernel_node **ret)
{
    struct fuse_entry_out out;
    int result = vfs_ask_whole(t, k, FUSE_LOOKUP, dir->id, NULL, 0, name, strlen(name) + 1, &out, sizeof out);
    if (result < 0 && result != -ENOENT) {
        return result;
    }
    if (result == -ENOENT) {
        memset(&out, 0, sizeof out);
    }
    struct kernel_node *node = out.nodeid ? kernel_learn(k, &out) : NULL;
    kernel_enter(k, dir, name, node, &out);
    *ret = node;
    return node ? 0 : -ENOENT;
}

/* Does the entry still hold?  As d_revalidate(): 1, 0, or -errno. */
static int vfs_revalidate(struct thread *t, struct kernel *k, struct kernel_node *dir, const char *name,
                          struct kernel_node *node)
{
    struct fuse_entry_out out;
    int result = vfs_ask_whole(t, k, FUSE_LOOKUP, dir->id, NULL, 0, name, strlen(name) + 1, &out, sizeof out);
    if (result == -EINTR || result == -ENOTCONN || result == -ECONNABORTED) {
        return result;
    }
    struct kernel_entry *entry = kernel_find(k, dir, name);
    bool same = result == 0 && out.nodeid == node->id && (out.attr.mode & S_IFMT) == node->type;
    if (result == 0 && out.nodeid) { /* one reference more, or to give back */
        struct kernel_node *found = kernel_learn(k, &out);
        kernel_unref(k, found);
    }
    if (entry && entry->node == node) {
        if (same) {
            kernel_renew(k, entry, &out);
        } else {
            kernel_drop(k, entry);
        }
    }
    return same;
}

/* With a reference. */
static int vfs_lookup(struct thread *t, struct kernel *k, struct kernel_node *dir, const char *name, unsigned how,
                      struct kernel_node **ret)
{
    struct kernel_entry *entry = kernel_find(k, dir, name);
    bool fresh = entry && kernel_is_fresh(k, entry) && !(how & (VFS_AGAIN | VFS_EXCLUSIVE));
    if (fresh) {
        *ret = entry->node ? kernel_ref(entry->node) : NULL;
        return entry->node ? 0 : -ENOENT;
    }
    if (entry && entry->node) {
        struct kernel_node *node = kernel_ref(entry->node);
        int result = vfs_revalidate(t, k, dir, name, node);
        if (result > 0) {
            *ret = node;
            return 0;
        }
        kernel_unref(k, node);
        if (result < 0) {
            return result;
        }
    }
    if (!(how & VFS_LOCKED)) {
        kernel_take(&dir->lock, false);
    }
    int result = vfs_lookup_now(t, k, dir, name, ret);
    if (!(how & VFS_LOCKED)) {
        kernel_give(&dir->lock, false);
    }
    return result;
}

/* The directory of a path, with a reference, and the last part of its name. */
static int vfs_parent(struct thread *t, struct kernel *k, const char *path, unsigned how, struct kernel_node **ret,
                      const char **ret_name)
{
    const char *slash = strchr(path, '/');
    if (!slash) {
        *ret = kernel_ref(kernel_root(k));
        *ret_name = path;
        return 0;
    }
    g_autofree char *first = g_strndup(path, (gsize)(slash - path));
    int result = vfs_lookup(t, k, kernel_root(k), first, how & VFS_AGAIN, ret);
    if (result == 0 && (*ret)->type != S_IFDIR) {
        kernel_unref(k, *ret);
        result = -ENOTDIR;
    }
    *ret_name = slash + 1;
    return result;
}

static int vfs_find(struct thread *t, struct kernel *k, const char *path, unsigned how, struct kernel_node **ret)
{
    struct kernel_node *dir;
    const char *name;
    if (!*path) {
        *ret = kernel_ref(kernel_root(k));
        return 0;
    }
    int result = vfs_parent(t, k, path, how, &dir, &name);
    if (result == 0) {
        result = vfs_lookup(t, k, dir, name, how, ret);
        kernel_unref(k, dir);
    }
    return result;
}

/* Once more, if need be. */
#define VFS_RETRY(how, result) ((result) == -ESTALE && !((how)&VFS_AGAIN) ? ((how) |= VFS_AGAIN, true) : false)

/* --- opening and closing -------------------------------------------------------------- */

static struct kernel_file *vfs_new_file(struct kernel *k, struct kernel_node *node, int flags, uint64_t fh)
{
    static uint64_t made;
    struct kernel_file *file = g_new0(struct kernel_file, 1);
    file->number = ++made;
    file->fh = fh;
    file->kernel = k;
    file->node = node;
    file->flags = flags;
    file->references = 1;
    node->files++;
    return file;
}

static int vfs_open_node(struct thread *t, struct kernel *k, struct kernel_node *node, int flags,
                         struct kernel_file **ret)
{
    struct fuse_open_in in = {.flags = (uint32_t)(flags & ~(O_CREAT | O_EXCL | O_NOCTTY))};
    struct fuse_open_out out;
    if (node->type == S_IFLNK) {
        return -ELOOP; /* all are opened with O_NOFOLLOW */
    }
    if (node->type == S_IFDIR) {
        return -EISDIR;
    }
    int result = vfs_ask_whole(t, k, FUSE_OPEN, node->id, &in, sizeof in, NULL, 0, &out, sizeof out);
    if (result == 0) {
        *ret = vfs_new_file(k, kernel_ref(node), flags, out.fh);
    }
    return result;
}

static int vfs_create(struct thread *t, struct kernel *k, struct kernel_node *dir, const char *name, int flags,
                      mode_t mode, struct kernel_file **ret)
{
    mode_t umask = t->process->umask;
    struct fuse_create_in in = {
        .flags = (uint32_t)(flags & ~O_NOCTTY), .mode = S_IFREG | (mode & ~umask), .umask = umask};
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } out;
    int result = vfs_ask_whole(t, k, FUSE_CREATE, dir->id, &in, sizeof in, name, strlen(name) + 1, &out, sizeof out);
    if (result == 0) {
        struct kernel_node *node = kernel_learn(k, &out.entry);
        kernel_enter(k, dir, name, node, &out.entry);
        *ret = vfs_new_file(k, node, flags, out.open.fh);
    }
    return result;
}

static int vfs_open_once(struct thread *t, struct kernel *k, const char *path, int flags, mode_t mode, unsigned how,
                         struct kernel_file **ret)
{
    struct kernel_node *dir, *node = NULL;
    const char *name;
    int result = vfs_parent(t, k, path, how, &dir, &name);
    if (result < 0) {
        return result;
    }
    if (flags & O_CREAT) {
        kernel_take(&dir->lock, true);
        how |= VFS_LOCKED | (flags & O_EXCL ? VFS_EXCLUSIVE : 0u);
    }
    result = vfs_lookup(t, k, dir, name, how, &node);
    bool made = result == -ENOENT && flags & O_CREAT;
    if (made) {
        result = vfs_create(t, k, dir, name, flags, mode, ret);
    } else if (result == 0 && flags & O_CREAT && flags & O_EXCL) {
        result = -EEXIST;
    }
    if (flags & O_CREAT) {
        kernel_give(&dir->lock, true);
    }
    if (result == 0 && !made) {
        result = vfs_open_node(t, k, node, flags, ret);
    }
    kernel_unref(k, node);
    kernel_unref(k, dir);
    return result;
}

int vfs_open(struct thread *t, struct kernel *k, const char *path, int flags, mode_t mode, struct kernel_file **ret)
{
    unsigned how = 0;
    int result;
    do {
        result = vfs_open_once(t, k, path, flags, mode, how, ret);
    } while (VFS_RETRY(how, result));
    return result;
}

struct kernel_file *vfs_ref(struct kernel_file *file)
{
    file->references++;
    return file;
}

static uint64_t vfs_file_owner(const struct kernel_file *file)
{
    return UINT64_C(1) << 40 | file->number;
}

int vfs_close(struct thread *t, struct kernel_file *file)
{
    struct fuse_flush_in in = {.fh = file->fh, .lock_owner = t->process->number};
    int result = vfs_ask(t, file->kernel, FUSE_FLUSH, file->node->id, &in, sizeof in, NULL, 0, NULL, 0);
    if (--file->references == 0) {
        struct fuse_release_in release = {.fh = file->fh, .flags = (uint32_t)file->flags};
        if (file->flocked) {
            release.release_flags = FUSE_RELEASE_FLOCK_UNLOCK;
            release.lock_owner = vfs_file_owner(file);
        }
        if (!kernel_is_dead(file->kernel)) {
            kernel_ask(file->kernel, NULL, FUSE_RELEASE, file->node->id, &release, sizeof release, NULL, 0);
        }
        file->node->files--;
        kernel_tell_watchers(file->kernel, file->node);
        kernel_unref(file->kernel, file->node);
        g_free(file);
    }
    return result;
}

/* --- content and attributes ------------------------------------------------------------- */

static bool vfs_writes(const struct kernel_file *file)
{
    return (file->flags & O_ACCMODE) != O_RDONLY;
}

static bool vfs_reads(const struct kernel_file *file)
{
    return (file->flags & O_ACCMODE) != O_WRONLY;
}

int vfs_read(struct thread *t, struct kernel_file *file, GByteArray *ret)
{
    char buffer[4096];
    struct fuse_read_in in = {.fh = file->fh, .size = sizeof buffer, .flags = (uint32_t)file->flags};
    if (!vfs_reads(file)) {
        return -EBADF;
    }
    int result = vfs_ask(t, file->kernel, FUSE_READ, file->node->id, &in, sizeof in, NULL, 0, buffer, sizeof buffer);
    if (result > 0) {
        g_byte_array_append(ret, (const void *)buffer, (guint)result);
    }
    return MIN(result, 0);
}

int vfs_write(struct thread *t, struct kernel_file *file, const void *data, size_t size, uint64_t offset)
{
    struct fuse_write_in in = {
        .fh = file->fh, .offset = offset, .size = (uint32_t)size, .flags = (uint32_t)file->flags};
    struct fuse_write_out out;
    if (!vfs_writes(file)) {
        return -EBADF;
    }
    kernel_take(&file->node->lock, true);
    int result =
        vfs_ask_whole(t, file->kernel, FUSE_WRITE, file->node->id, &in, sizeof in, data, size, &out, sizeof out);
    kernel_give(&file->node->lock, true);
    return result;
}

int vfs_fsync(struct thread *t, struct kernel_file *file)
{
    struct fuse_fsync_in in = {.fh = file->fh};
    kernel_take(&file->node->lock, true);
    int result = vfs_ask(t, file->kernel, FUSE_FSYNC, file->node->id, &in, sizeof in, NULL, 0, NULL, 0);
    kernel_give(&file->node->lock, true);
    return result;
}

int vfs_poll(struct thread *t, struct kernel_file *file, uint64_t handle, uint32_t *ret_events)
{
    struct fuse_poll_in in = {.fh = file->fh, .kh = handle, .flags = FUSE_POLL_SCHEDULE_NOTIFY, .events = 0xffff};
    struct fuse_poll_out out;
    int result = vfs_ask_whole(t, file->kernel, FUSE_POLL, file->node->id, &in, sizeof in, NULL, 0, &out, sizeof out);
    *ret_events = result == 0 ? out.revents : 0;
    return result;
}

/* A call on what has a path, or on a file: `call` gets the node. */
struct vfs_call {
    struct kernel_file *file;
    const char *name, *value;
    const void *in;
    GByteArray *bytes;
    struct fuse_attr *attr;
};

static int vfs_on_node(struct thread *t, struct kernel *k, const char *path, struct vfs_call *call,
                       int (*act)(struct thread *t, struct kernel *k, struct kernel_node *node, struct vfs_call *call))
{
    unsigned how = 0;
    int result;
    if (call->file) {
        return act(t, call->file->kernel, call->file->node, call);
    }
    do {
        struct kernel_node *node = NULL;
        result = vfs_find(t, k, path, how, &node);
        if (result == 0) {
            result = act(t, k, node, call);
        }
        kernel_unref(k, node);
    } while (VFS_RETRY(how, result));
    return result;
}

static int vfs_getattr_node(struct thread *t, struct kernel *k, struct kernel_node *node, struct vfs_call *call)
{
    struct fuse_getattr_in in = {.getattr_flags = call->file ? FUSE_GETATTR_FH : 0,
                                 .fh = call->file ? call->file->fh : 0};
    struct fuse_attr_out out;
    int result = vfs_ask_whole(t, k, FUSE_GETATTR, node->id, &in, sizeof in, NULL, 0, &out, sizeof out);
    if (result == 0) {
        node->links = out.attr.nlink;
        *call->attr = out.attr;
    }
    return result;
}

int vfs_stat(struct thread *t, struct kernel *k, const char *path, struct kernel_file *file, struct fuse_attr *ret)
{
    return vfs_on_node(t, k, path, &(struct vfs_call){.file = file, .attr = ret}, vfs_getattr_node);
}

static int vfs_setattr_node(struct thread *t, struct kernel *k, struct kernel_node *node, struct vfs_call *call)
{
    struct fuse_setattr_in in = *(const struct fuse_setattr_in *)call->in;
    struct fuse_attr_out out;
    if (in.valid & FATTR_SIZE && node->type == S_IFLNK) {
        return -EINVAL; /* truncate(2) asks for what it leads to */
    }
    if (call->file && in.valid & FATTR_SIZE) { /* of mode, owner and times Linux does not tell the file */
        in.valid |= FATTR_FH;
        in.fh = call->file->fh;
    }
    kernel_take(&node->lock, true);
    int result = vfs_ask_whole(t, k, FUSE_SETATTR, node->id, &in, sizeof in, NULL, 0, &out, sizeof out);
    kernel_give(&node->lock, true);
    if (result == 0) {
        node->links = out.attr.nlink;
    }
    return result;
}

int vfs_setattr(struct thread *t, struct kernel *k, const char *path, struct kernel_file *file,
                const struct fuse_setattr_in *in)
{
    if (file && in->valid & FATTR_SIZE && (file->flags & O_ACCMODE) == O_RDONLY) {
        return -EINVAL;
    }
    return vfs_on_node(t, k, path, &(struct vfs_call){.file = file, .in = in}, vfs_setattr_node);
}

static int vfs_getxattr_node(struct thread *t, struct kernel *k, struct kernel_node *node, struct vfs_call *call)
{
    char value[1024];
    struct fuse_getxattr_in in = {.size = sizeof value};
    int result =
        vfs_ask(t, k, FUSE_GETXATTR, node->id, &in, sizeof in, call->name, strlen(call->name) + 1, value, sizeof value);
    if (result > 0) {
        g_byte_array_append(call->bytes, (const void *)value, (guint)result);
    }
    return MIN(result, 0);
}

int vfs_getxattr(struct thread *t, struct kernel *k, const char *path, struct kernel_file *file, const char *name,
                 GByteArray *ret)
{
    return vfs_on_node(t, k, path, &(struct vfs_call){.file = file, .name = name, .bytes = ret}, vfs_getxattr_node);
}

static int vfs_setxattr_node(struct thread *t, struct kernel *k, struct kernel_node *node, struct vfs_call *call)
{
    struct {
        uint32_t size, flags;
    } in = {(uint32_t)strlen(call->value), 0}; /* without FUSE_SETXATTR_EXT */
    GByteArray *both = g_byte_array_new();
    g_byte_array_append(both, (const void *)call->name, (guint)strlen(call->name) + 1);
    g_byte_array_append(both, (const void *)call->value, in.size);
    kernel_take(&node->lock, true);
    int result = vfs_ask(t, k, FUSE_SETXATTR, node->id, &in, sizeof in, both->data, both->len, NULL, 0);
    kernel_give(&node->lock, true);
    g_byte_array_unref(both);
    return result;
}

int vfs_setxattr(struct thread *t, struct kernel *k, const char *path, struct kernel_file *file, const char *name,
                 const char *value)
{
    return vfs_on_node(t, k, path, &(struct vfs_call){.file = file, .name = name, .value = value}, vfs_setxattr_node);
}

static int vfs_readlink_node(struct thread *t, struct kernel *k, struct kernel_node *node, struct vfs_call *call)
{
    char target[4096];
    if (node->type != S_IFLNK) {
        return -EINVAL;
    }
    int result = vfs_ask(t, k, FUSE_READLINK, node->id, NULL, 0, NULL, 0, target, sizeof target);
    if (result > 0) {
        g_byte_array_append(call->bytes, (const void *)target, (guint)result);
    }
    return MIN(result, 0);
}

int vfs_readlink(struct thread *t, struct kernel *k, const char *path, GByteArray *ret)
{
    return vfs_on_node(t, k, path, &(struct vfs_call){.bytes = ret}, vfs_readlink_node);
}

static int vfs_watch_node(struct thread *t, struct kernel *k, struct kernel_node *node, struct vfs_call *call)
{
    (void)k;
    kernel_watch(node, t->process->number, call->name);
    return 0;
}

int vfs_watch(struct thread *t, struct kernel *k, const char *path)
{
    return vfs_on_node(t, k, path, &(struct vfs_call){.name = path}, vfs_watch_node);
}

/* --- names that come and go ------------------------------------------------------------------ */

/* What a call that makes a name gets back. */
static int vfs_make(struct thread *t, struct kernel *k, const char *path, uint32_t opcode, const void *arg,
                    size_t arg_size, const void *data, size_t data_size)
{
    struct kernel_node *dir, *node = NULL;
    const char *name;
    unsigned how = 0;
    int result;
    do {
        result = vfs_parent(t, k, path, how, &dir, &name);
        if (result < 0) {
            continue;
        }
        kernel_take(&dir->lock, true);
        result = vfs_lookup(t, k, dir, name, how | VFS_LOCKED | VFS_EXCLUSIVE, &node);
        result = result == 0 ? -EEXIST : result == -ENOENT ? 0 : result;
        if (result == 0) {
            struct fuse_entry_out out;
            GByteArray *names = g_byte_array_new();
            g_byte_array_append(names, (const void *)name, (guint)strlen(name) + 1);
            g_byte_array_append(names, data, (guint)data_size);
            result = vfs_ask_whole(t, k, opcode, dir->id, arg, arg_size, names->data, names->len, &out, sizeof out);
            g_byte_array_unref(names);
            if (result == 0) {
                node = kernel_learn(k, &out);
                kernel_enter(k, dir, name, node, &out);
            }
        }
        kernel_give(&dir->lock, true);
        kernel_unref(k, node);
        kernel_unref(k, dir);
        node = NULL;
    } while (VFS_RETRY(how, result));
    return result;
}

int vfs_symlink(struct thread *t, struct kernel *k, const char *target, const char *path)
{
    return vfs_make(t, k, path, FUSE_SYMLINK, NULL, 0, target, strlen(target) + 1);
}

int vfs_mkdir(struct thread *t, struct kernel *k, const char *path, mode_t mode)
{
    struct fuse_mkdir_in in = {.mode = mode & ~t->process->umask, .umask = t->process->umask};
    return vfs_make(t, k, path, FUSE_MKDIR, &in, sizeof in, NULL, 0);
}

int vfs_link(struct thread *t, struct kernel *k, const char *path, const char *new)
{
    unsigned how = 0;
    int result;
    do {
        struct kernel_node *node = NULL;
        result = vfs_find(t, k, path, how, &node);
        if (result == 0 && node->type == S_IFDIR) {
            result = -EPERM;
        } else if (result == 0) {
            struct fuse_link_in in = {.oldnodeid = node->id};
            result = vfs_make(t, k, new, FUSE_LINK, &in, sizeof in, NULL, 0);
        }
        kernel_unref(k, node);
    } while (VFS_RETRY(how, result));
    return result;
}

/* It has a name less, by the kernel's own doing. */
static void vfs_unlinked(struct kernel *k, struct kernel_node *node)
{
    node->links -= node->links ? 1 : 0;
    node->links = node->type == S_IFDIR ? 0 : node->links;
    kernel_tell_watchers(k, node);
}

/* Takes the name away: `opcode` UNLINK or RMDIR. */
static int vfs_remove(struct thread *t, struct kernel *k, const char *path, uint32_t opcode)
{
    struct kernel_node *dir, *node = NULL;
    const char *name;
    unsigned how = 0;
    int result;
    do {
        result = vfs_parent(t, k, path, how, &dir, &name);
        if (result < 0) {
            continue;
        }
        kernel_take(&dir->lock, true);
        result = vfs_lookup(t, k, dir, name, how | VFS_LOCKED, &node);
        bool is_directory = result == 0 && node->type == S_IFDIR;
        if (result == 0 && is_directory != (opcode == FUSE_RMDIR)) {
            result = is_directory ? -EISDIR : -ENOTDIR;
        }
        if (result == 0) {
            kernel_take(&node->lock, true);
            result = vfs_ask(t, k, opcode, dir->id, NULL, 0, name, strlen(name) + 1, NULL, 0);
            kernel_give(&node->lock, true);
            struct kernel_entry *entry = kernel_find(k, dir, name);
            if (entry && (result == 0 || result == -EINTR)) {
                kernel_drop(k, entry);
            }
            if (result == 0) {
                vfs_unlinked(k, node);
            }
        }
        kernel_give(&dir->lock, true);
        kernel_unref(k, node);
        kernel_unref(k, dir);
        node = NULL;
    } while (VFS_RETRY(how, result));
    return result;
}

int vfs_unlink(struct thread *t, struct kernel *k, const char *path)
{
    return vfs_remove(t, k, path, FUSE_UNLINK);
}

int vfs_rmdir(struct thread *t, struct kernel *k, const char *path)
{
    return vfs_remove(t, k, path, FUSE_RMDIR);
}

static int vfs_rename_locked(struct thread *t, struct kernel *k, struct kernel_node *from, const char *old,
                             struct kernel_node *to, const char *new, unsigned flags, unsigned how)
{
    struct fuse_rename2_in in = {.newdir = to->id, .flags = flags};
    struct kernel_node *source = NULL, *target = NULL;
    int result = vfs_lookup(t, k, from, old, how | VFS_LOCKED, &source);
    if (result == 0) {
        result = vfs_lookup(t, k, to, new, how | VFS_LOCKED | VFS_EXCLUSIVE, &target);
        result = result == -ENOENT ? 0 : result == 0 && flags & RENAME_NOREPLACE ? -EEXIST : result;
    }
    if (result == 0 && source == target) {
        goto out;
    }
    if (result == 0 && target && (source->type == S_IFDIR) != (target->type == S_IFDIR)) {
        result = target->type == S_IFDIR ? -EISDIR : -ENOTDIR;
    }
    if (result == 0) {
        GByteArray *names = g_byte_array_new();
        g_byte_array_append(names, (const void *)old, (guint)strlen(old) + 1);
        g_byte_array_append(names, (const void *)new, (guint)strlen(new) + 1);
        if (target) {
            kernel_take(&target->lock, true);
        }
        result = vfs_ask(t, k, FUSE_RENAME2, from->id, &in, sizeof in, names->data, names->len, NULL, 0);
        if (target) {
            kernel_give(&target->lock, true);
        }
        g_byte_array_unref(names);
        struct kernel_entry *entry;
        if (result == 0 || result == -EINTR) {
            if ((entry = kernel_find(k, to, new))) {
                kernel_drop(k, entry);
            }
            if ((entry = kernel_find(k, from, old))) {
                kernel_drop(k, entry);
            }
        }
        if (result == 0) { /* d_move; the time of the entry is that of no answer */
            kernel_enter(k, to, new, source, &(struct fuse_entry_out){0});
        }
        if (result == 0 && target) {
            vfs_unlinked(k, target);
        }
    }
out:
    kernel_unref(k, source);
    kernel_unref(k, target);
    return result;
}

int vfs_rename(struct thread *t, struct kernel *k, const char *path, const char *new, unsigned flags)
{
    unsigned how = 0;
    int result;
    do {
        struct kernel_node *from = NULL, *to = NULL;
        const char *old_name, *new_name;
        result = vfs_parent(t, k, path, how, &from, &old_name);
        if (result < 0) {
            continue;
        }
        result = vfs_parent(t, k, new, how, &to, &new_name);
        if (result == 0) {
            struct kernel_node *first = from->id <= to->id ? from : to, *second = first == from ? to : from;
            kernel_take(&first->lock, true);
            if (second != first) {
                kernel_take(&second->lock, true);
            }
            result = vfs_rename_locked(t, k, from, old_name, to, new_name, flags, how);
            if (second != first) {
                kernel_give(&second->lock, true);
            }
            kernel_give(&first->lock, true);
            kernel_unref(k, to);
        }
        kernel_unref(k, from);
    } while (VFS_RETRY(how, result));
    return result;
}

/* The entries of one answer; the offset behind them. */
static uint64_t vfs_list_part(const char *data, int size, GString *ret)
{
    uint64_t offset = 0;
    for (int at = 0; at + (int)FUSE_NAME_OFFSET <= size;) {
        struct fuse_dirent dirent;
        memcpy(&dirent, data + at, FUSE_NAME_OFFSET);
        const char *name = data + at + FUSE_NAME_OFFSET;
        if (!(dirent.namelen == 1 && name[0] == '.') && !(dirent.namelen == 2 && name[0] == '.' && name[1] == '.')) {
            g_string_append_len(ret, name, (gssize)dirent.namelen);
            g_string_append_c(ret, '\n');
        }
        offset = dirent.off;
        at += (int)FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + dirent.namelen);
    }
    return offset;
}

static int vfs_list_node(struct thread *t, struct kernel *k, struct kernel_node *node, struct vfs_call *call)
{
    struct fuse_open_in in = {.flags = O_RDONLY | O_DIRECTORY};
    struct fuse_open_out out;
    char buffer[4096];
    GString *names = (GString *)call->bytes;
    if (node->type != S_IFDIR) {
        return -ENOTDIR;
    }
    int result = vfs_ask_whole(t, k, FUSE_OPENDIR, node->id, &in, sizeof in, NULL, 0, &out, sizeof out);
    if (result < 0) {
        return result;
    }
    struct fuse_read_in read = {.fh = out.fh, .size = sizeof buffer};
    kernel_take(&node->lock, false);
    while ((result = vfs_ask(t, k, FUSE_READDIR, node->id, &read, sizeof read, NULL, 0, buffer, sizeof buffer)) > 0) {
        read.offset = vfs_list_part(buffer, result, names);
    }
    kernel_give(&node->lock, false);
    struct fuse_release_in release = {.fh = out.fh};
    if (!kernel_is_dead(k)) {
        kernel_ask(k, NULL, FUSE_RELEASEDIR, node->id, &release, sizeof release, NULL, 0);
    }
    return result;
}

int vfs_list(struct thread *t, struct kernel *k, const char *path, GString *ret)
{
    return vfs_on_node(t, k, path, &(struct vfs_call){.bytes = (GByteArray *)ret}, vfs_list_node);
}

/* --- locks ----------------------------------------------------------------------------------------- */

static int vfs_lock(struct thread *t, struct kernel_file *file, const struct fuse_lk_in *in, bool wait)
{
    return vfs_ask(t, file->kernel, wait ? FUSE_SETLKW : FUSE_SETLK, file->node->id, in, sizeof *in, NULL, 0, NULL, 0);
}

int vfs_flock(struct thread *t, struct kernel_file *file, short type, bool wait)
{
    struct fuse_lk_in in = {
        .fh = file->fh,
        .owner = vfs_file_owner(file),
        .lk_flags = FUSE_LK_FLOCK,
        .lk = {.end = INT64_MAX, .type = (uint32_t)type, .pid = type == F_UNLCK ? 0 : (uint32_t)t->process->pid}};
    file->flocked = true;
    return vfs_lock(t, file, &in, wait);
}

static struct fuse_lk_in vfs_range(const struct thread *t, const struct kernel_file *file, short type, int64_t start,
                                   int64_t end, bool ofd)
{
    return (struct fuse_lk_in){.fh = file->fh,
                               .owner = ofd ? vfs_file_owner(file) : t->process->number,
                               .lk = {.start = (uint64_t)start,
                                      .end = (uint64_t)end,
                                      .type = (uint32_t)type,
                                      .pid = type == F_UNLCK ? 0 : (uint32_t)t->process->pid}};
}

int vfs_setlk(struct thread *t, struct kernel_file *file, short type, int64_t start, int64_t end, bool ofd, bool wait)
{
    struct fuse_lk_in in = vfs_range(t, file, type, start, end, ofd);
    if ((type == F_RDLCK && !vfs_reads(file)) || (type == F_WRLCK && !vfs_writes(file))) {
        return -EBADF;
    }
    return vfs_lock(t, file, &in, wait && type != F_UNLCK);
}

int vfs_getlk(struct thread *t, struct kernel_file *file, short type, int64_t start, int64_t end, bool ofd,
              struct fuse_file_lock *ret)
{
    struct fuse_lk_in in = vfs_range(t, file, type, start, end, ofd);
    struct fuse_lk_out out;
    int result = vfs_ask_whole(t, file->kernel, FUSE_GETLK, file->node->id, &in, sizeof in, NULL, 0, &out, sizeof out);
    if (result == 0) {
        *ret = out.lk;
    }
    return result;
}
