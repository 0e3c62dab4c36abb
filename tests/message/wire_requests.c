/* wire_requests: the kernel's messages, one function each; see wire.h. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "tests/message/wire.h"

static uint64_t wire_opening(struct wire *w, uint64_t unique, int flags)
{
    struct wire_exchange *e = g_hash_table_lookup(w->exchanges, GSIZE_TO_POINTER(unique));
    e->flags = (uint32_t)flags;
    return unique;
}

uint64_t wire_lookup(struct wire *w, const char *name)
{
    return wire_send(w, FUSE_LOOKUP, w->directory, name, strlen(name) + 1, NULL, 0);
}

uint64_t wire_create(struct wire *w, const char *name, int flags)
{
    struct fuse_create_in in = {.flags = (uint32_t)flags | O_CREAT, .mode = S_IFREG | w->mode, .umask = 022};
    return wire_opening(w, wire_send(w, FUSE_CREATE, w->directory, &in, sizeof in, name, strlen(name) + 1), flags);
}

uint64_t wire_open(struct wire *w, uint64_t node, int flags)
{
    struct fuse_open_in in = {.flags = (uint32_t)flags};
    return wire_opening(w, wire_send(w, FUSE_OPEN, node, &in, sizeof in, NULL, 0), flags);
}

uint64_t wire_write(struct wire *w, struct wire_file file, uint64_t offset, const void *data, size_t size)
{
    struct fuse_write_in in = {.fh = file.fh, .offset = offset, .size = (uint32_t)size, .flags = file.flags};
    return wire_send(w, FUSE_WRITE, file.node, &in, sizeof in, data, size);
}

uint64_t wire_read(struct wire *w, struct wire_file file, uint64_t offset, uint32_t size)
{
    struct fuse_read_in in = {.fh = file.fh,
                              .offset = offset,
                              .size = size,
                              .read_flags = FUSE_READ_LOCKOWNER,
                              .lock_owner = 1,
                              .flags = file.flags};
    return wire_send(w, FUSE_READ, file.node, &in, sizeof in, NULL, 0);
}

uint64_t wire_flush(struct wire *w, struct wire_file file, uint64_t lock_owner)
{
    struct fuse_flush_in in = {.fh = file.fh, .lock_owner = lock_owner};
    return wire_send(w, FUSE_FLUSH, file.node, &in, sizeof in, NULL, 0);
}

uint64_t wire_release(struct wire *w, struct wire_file file)
{
    struct fuse_release_in in = {.fh = file.fh, .flags = file.flags};
    g_hash_table_remove(w->opened, GSIZE_TO_POINTER(file.fh));
    return wire_send(w, FUSE_RELEASE, file.node, &in, sizeof in, NULL, 0);
}

uint64_t wire_fsync(struct wire *w, struct wire_file file)
{
    struct fuse_fsync_in in = {.fh = file.fh};
    return wire_send(w, FUSE_FSYNC, file.node, &in, sizeof in, NULL, 0);
}

uint64_t wire_poll(struct wire *w, struct wire_file file, uint64_t handle)
{
    struct fuse_poll_in in = {.fh = file.fh, .kh = handle, .flags = FUSE_POLL_SCHEDULE_NOTIFY, .events = 0xffff};
    return wire_send(w, FUSE_POLL, file.node, &in, sizeof in, NULL, 0);
}

uint64_t wire_unlink(struct wire *w, const char *name)
{
    return wire_send(w, FUSE_UNLINK, w->directory, name, strlen(name) + 1, NULL, 0);
}

uint64_t wire_mkdir(struct wire *w, const char *name)
{
    struct fuse_mkdir_in in = {.mode = 0755, .umask = 022};
    return wire_send(w, FUSE_MKDIR, w->directory, &in, sizeof in, name, strlen(name) + 1);
}

uint64_t wire_rmdir(struct wire *w, const char *name)
{
    return wire_send(w, FUSE_RMDIR, w->directory, name, strlen(name) + 1, NULL, 0);
}

uint64_t wire_symlink(struct wire *w, const char *name, const char *target)
{
    return wire_send(w, FUSE_SYMLINK, w->directory, name, strlen(name) + 1, target, strlen(target) + 1);
}

uint64_t wire_link(struct wire *w, uint64_t node, const char *name)
{
    struct fuse_link_in in = {.oldnodeid = node};
    return wire_send(w, FUSE_LINK, w->directory, &in, sizeof in, name, strlen(name) + 1);
}

uint64_t wire_rename(struct wire *w, const char *from, const char *to, unsigned flags)
{
    struct fuse_rename2_in in = {.newdir = w->directory, .flags = flags};
    char names[2 * NAME_BYTES_MAX + 16];
    size_t first = strlen(from) + 1, second = strlen(to) + 1;
    ck_assert_uint_le(first + second, sizeof names);
    memcpy(names, from, first);
    memcpy(names + first, to, second);
    return wire_send(w, FUSE_RENAME2, w->directory, &in, sizeof in, names, first + second);
}

uint64_t wire_getattr(struct wire *w, uint64_t node)
{
    struct fuse_getattr_in in = {.getattr_flags = 0};
    return wire_send(w, FUSE_GETATTR, node, &in, sizeof in, NULL, 0);
}

uint64_t wire_setattr(struct wire *w, uint64_t node, const struct wire_file *file, struct fuse_setattr_in in)
{
    if (file) {
        in.valid |= FATTR_FH;
        in.fh = file->fh;
    }
    return wire_send(w, FUSE_SETATTR, node, &in, sizeof in, NULL, 0);
}

uint64_t wire_touch(struct wire *w, uint64_t node, const struct wire_file *file)
{
    const uint32_t now = FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW;
    return wire_setattr(w, node, file, (struct fuse_setattr_in){.valid = now});
}

uint64_t wire_setxattr(struct wire *w, uint64_t node, const char *name, const char *value)
{
    return wire_setxattr_if(w, node, name, value, 0);
}

uint64_t wire_setxattr_if(struct wire *w, uint64_t node, const char *name, const char *value, uint32_t flags)
{
    struct {
        uint32_t size, flags;
    } in = {(uint32_t)strlen(value), flags}; /* without FUSE_SETXATTR_EXT */
    size_t length = strlen(name) + 1;
    char *both = g_strdup_printf("%s%c%s", name, '\1', value);
    both[length - 1] = '\0';
    uint64_t unique = wire_send(w, FUSE_SETXATTR, node, &in, sizeof in, both, length + in.size);
    g_free(both);
    return unique;
}

uint64_t wire_getxattr(struct wire *w, uint64_t node, const char *name)
{
    struct fuse_getxattr_in in = {.size = 4096};
    return wire_send(w, FUSE_GETXATTR, node, &in, sizeof in, name, strlen(name) + 1);
}

static uint64_t wire_lock(struct wire *w, uint32_t opcode, struct wire_file file, const struct fuse_lk_in *in)
{
    return wire_send(w, opcode, file.node, in, sizeof *in, NULL, 0);
}

uint64_t wire_flock(struct wire *w, struct wire_file file, int operation)
{
    struct fuse_lk_in in = {.fh = file.fh, .lk_flags = FUSE_LK_FLOCK, .lk.end = INT64_MAX, .lk.pid = (uint32_t)w->pid};
    in.lk.type = operation & LOCK_UN ? F_UNLCK : operation & LOCK_SH ? F_RDLCK : F_WRLCK;
    return wire_lock(w, operation & (LOCK_NB | LOCK_UN) ? FUSE_SETLK : FUSE_SETLKW, file, &in);
}

uint64_t wire_setlk(struct wire *w, struct wire_file file, uint64_t owner, uint32_t type, uint64_t start, uint64_t end,
                    bool wait)
{
    struct fuse_lk_in in = {.fh = file.fh, .owner = owner, .lk = {start, end, type, (uint32_t)w->pid}};
    return wire_lock(w, wait ? FUSE_SETLKW : FUSE_SETLK, file, &in);
}

uint64_t wire_getlk(struct wire *w, struct wire_file file, uint64_t owner, uint32_t type, uint64_t start, uint64_t end)
{
    struct fuse_lk_in in = {.fh = file.fh, .owner = owner, .lk = {start, end, type, (uint32_t)w->pid}};
    return wire_lock(w, FUSE_GETLK, file, &in);
}

void wire_interrupt(struct wire *w, uint64_t unique)
{
    struct fuse_interrupt_in in = {.unique = unique};
    wire_send(w, FUSE_INTERRUPT, 0, &in, sizeof in, NULL, 0);
}

void wire_forget(struct wire *w, uint64_t node, uint64_t count)
{
    struct fuse_forget_in in = {.nlookup = count};
    uint64_t reported = (uint64_t)(uintptr_t)g_hash_table_lookup(w->lookups, GSIZE_TO_POINTER(node));
    ck_assert_uint_le(count, reported);
    if (reported == count) {
        g_hash_table_remove(w->lookups, GSIZE_TO_POINTER(node));
    } else {
        g_hash_table_insert(w->lookups, GSIZE_TO_POINTER(node), GSIZE_TO_POINTER(reported - count));
    }
    wire_send(w, FUSE_FORGET, node, &in, sizeof in, NULL, 0);
}

/* --- done and checked ---------------------------------------------------------------- */

struct wire_file wire_created(struct wire *w, const char *name, int flags)
{
    return wire_file(w, wire_create(w, name, flags));
}

struct wire_file wire_opened(struct wire *w, uint64_t node, int flags)
{
    return wire_file(w, wire_open(w, node, flags));
}

int wire_close(struct wire *w, struct wire_file file)
{
    int error = wire_result(w, wire_flush(w, file, (uint64_t)w->pid));
    ck_assert_int_eq(wire_result(w, wire_release(w, file)), 0);
    return error;
}

char *wire_xattr(struct wire *w, uint64_t node, const char *name)
{
    uint64_t unique = wire_getxattr(w, node, name);
    if (wire_result(w, unique) != 0) {
        return g_strdup("");
    }
    size_t size;
    const char *value = wire_data(w, unique, &size);
    return g_strndup(value, size);
}

bool wire_exists(struct wire *w, const char *name)
{
    uint64_t unique = wire_lookup(w, name);
    int error = wire_result(w, unique);
    ck_assert(error == 0 || error == ENOENT);
    return error == 0 && wire_node(w, unique) != 0;
}
