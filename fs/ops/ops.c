/* ops: one thin handler for each kernel request; see ops.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "backend/log.h"
#include "fs/control/control.h"
#include "fs/fs.h"
#include "fs/hold/hold.h"
#include "fs/hold/inherit.h"
#include "fs/hold/quota.h"
#include "fs/kernel/notify.h"
#include "fs/kernel/request.h"
#include "fs/kernel/tree.h"
#include "fs/ops/attributes.h"
#include "fs/ops/content.h"
#include "fs/ops/directory.h"
#include "fs/ops/file.h"
#include "fs/ops/lock.h"
#include "fs/ops/names.h"
#include "fs/ops/opening.h"
#include "fs/ops/ops.h"
#include "fs/ops/sequence.h"
#include "fs/ops/xattr.h"
#include "fs/sandbox/sandbox.h"

static struct fs *ops_fs(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* The same request, unless an earlier daemon answered it with an error, perhaps: then it gets that again.  NULL and
 * answered, here and below: it cannot go on. */
static struct request *ops_unless_failed(struct request *r)
{
    if (r && r->before && r->before->failed) {
        request_reply(r, r->before->failed);
        return NULL;
    }
    return r;
}

/* NULL if the kernel has a node that this daemon does not. */
static struct request *ops_about(fuse_req_t req, enum metrics_operation operation, fuse_ino_t ino,
                                 const struct fuse_file_info *file)
{
    struct fs *fs = ops_fs(req);
    struct node *node = tree_node(fs->tree, ino);
    struct request *r = request_new(fs, req, operation, node, NULL);
    if (!node) {
        request_reply(r, -ESTALE);
        return NULL;
    }
    if (file) {
        r->file = *file;
    }
    return r;
}

static struct request *ops_request(fuse_req_t req, enum metrics_operation operation, fuse_ino_t ino,
                                   const struct fuse_file_info *file)
{
    return ops_unless_failed(ops_about(req, operation, ino, file));
}

/* Continues it, as one about .leasefs or about locks. */
static void ops_continue(struct request *r, request_step *control, request_step *locks)
{
    if (r) {
        (r->node->record->control ? control : locks)(r);
    }
}

/* A request about a name in a directory.  NULL if it is too long, or is .leasefs or in it. */
static struct request *ops_named(fuse_req_t req, enum metrics_operation operation, fuse_ino_t parent, const char *name)
{
    struct fs *fs = ops_fs(req);
    struct node *directory = tree_node(fs->tree, parent);
    struct request *r = request_new(fs, req, operation, NULL, name);
    if (strlen(name) > NAME_BYTES_MAX || !directory || tree_is_full(fs->tree)) {
        request_reply(r, !directory ? -ESTALE : tree_is_full(fs->tree) ? -ENFILE : -ENAMETOOLONG);
        return NULL;
    }
    r->other = tree_ref(directory);
    if (!control_owns(directory, name)) {
        return ops_unless_failed(r);
    }
    if (operation == METRICS_LOOKUP) {
        control_lookup(r);
    } else {
        control_refuse(r);
    }
    return NULL;
}

static struct request *ops_opened(fuse_req_t req, enum metrics_operation operation, fuse_ino_t ino,
                                  const struct fuse_file_info *file)
{
    struct request *r = ops_about(req, operation, ino, file);
    if (r && !r->node->record->control) {
        r->handle = handle_find(r->fs, file->fh);
        if (!r->handle || r->handle->node != r->node) {
            request_reply(r, -EBADF);
            return NULL;
        }
        r->refused = handle_on_error;
    }
    return ops_unless_failed(r);
}

/* The same request, if it is about locks. */
static struct request *ops_of_locks(struct request *r)
{
    if (r && r->node->record->control) {
        control_refuse(r);
        return NULL;
    }
    return r;
}

/* --- session ------------------------------------------------------------------ */

/* What later daemons must repeat. */
static void ops_keep_init(struct keep *keep, const struct fuse_conn_info *connection)
{
    const struct keep_request *slot = keep_request_current(keep);
    struct keep_init init = {
        .length = slot ? slot->length : 0,
        .max_write = connection->max_write,
        .max_readahead = connection->max_readahead,
        .max_background = connection->max_background,
        .congestion = connection->congestion_threshold,
        .time_gran = connection->time_gran,
        .want = connection->want,
    };
    if (slot && slot->length <= sizeof init.message) {
        memcpy(init.message, keep_request_message(keep, slot), slot->length);
        keep_set_init(keep, &init);
    }
}

/* The kernel goes by the reply that the first daemon gave.  False if this libfuse cannot. */
static bool ops_repeat_init(const struct keep_init *init, struct fuse_conn_info *connection)
{
    connection->max_write = init->max_write;
    connection->max_readahead = init->max_readahead;
    connection->max_background = init->max_background;
    connection->congestion_threshold = init->congestion;
    connection->time_gran = init->time_gran;
    connection->want = (unsigned)init->want;
    return (init->want & ~(uint64_t)connection->capable) == 0;
}

static void ops_init(void *userdata, struct fuse_conn_info *connection)
{
    struct fs *fs = userdata;
    if (!(connection->capable & FUSE_CAP_FLOCK_LOCKS) || !(connection->capable & FUSE_CAP_POSIX_LOCKS)) {
        /* They would stay local to the kernel, and silently so. */
        log_error("this kernel does not pass flock and fcntl locks to FUSE: leasefs needs Linux 3.1 or newer");
        fuse_session_exit(fs->session);
        return;
    }
    connection->want |= FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS | FUSE_CAP_ATOMIC_O_TRUNC;
    connection->want &= ~(unsigned)(FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ);
    if (!(fs->backend->features & BACKEND_SOLE_AUTHORITY)) { /* the kernel must not cache the entries of a listing */
        connection->want &= ~(unsigned)(FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
    }
    connection->max_background = 1024;
    connection->max_write = MIN(connection->max_write, KEEP_WRITE_MAX);
    const struct keep_init *first = fs->keep ? keep_init(fs->keep) : NULL;
    if (first && !ops_repeat_init(first, connection)) {
        fuse_session_exit(fs->session); /* channel_resume says why */
        return;
    }
    if (fs->keep && !first) {
        ops_keep_init(fs->keep, connection);
    }
    if (connection->proto_minor >= 38) {
        notify_enable_expire(fs->notify);
    }
    if (first) {
        inherit_notify(fs);
    }
    if (fs->ready) {
        fs->ready(fs->ready_arg);
    }
    if (fs->sandbox) {
        (fs->sandbox->complete ? log_info : log_warning)("sandbox: %s", fs->sandbox->text);
    }
}

/* --- names ---------------------------------------------------------------------- */

static void ops_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct request *r = ops_named(req, METRICS_LOOKUP, parent, name);
    if (r) {
        names_lookup(r);
    }
}

static void ops_forget_one(struct fs *fs, fuse_ino_t ino, uint64_t count)
{
    struct node *node = tree_node(fs->tree, ino);
    if (node) {
        tree_forget(fs->tree, node, count);
    }
}

/* A FORGET is done before it begins: a count that is too high does less harm than one that is too low. */
static void ops_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    struct fs *fs = ops_fs(req);
    keep_request_settle(fs->keep);
    ops_forget_one(fs, ino, count);
    fuse_reply_none(req);
}

static void ops_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    struct fs *fs = ops_fs(req);
    keep_request_settle(fs->keep);
    for (size_t i = 0; i < count; i++) {
        ops_forget_one(fs, forgets[i].ino, forgets[i].nlookup);
    }
    fuse_reply_none(req);
}

static void ops_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct request *r = ops_named(req, METRICS_MKDIR, parent, name);
    if (r && sequence_is_prefix(name)) {
        request_reply(r, -EINVAL); /* such a name is never found */
    } else if (r) {
        r->mode = mode;
        directory_make(r);
    }
}

static void ops_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct request *r = ops_named(req, METRICS_RMDIR, parent, name);
    if (r) {
        directory_remove(r);
    }
}

static void ops_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct request *r = ops_named(req, METRICS_UNLINK, parent, name);
    if (r) {
        names_unlink(r);
    }
}

static void ops_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct request *r = ops_named(req, METRICS_SYMLINK, parent, name);
    if (r) {
        names_symlink(r, target);
    }
}

static void ops_readlink(fuse_req_t req, fuse_ino_t ino)
{
    names_readlink(ops_request(req, METRICS_READLINK, ino, NULL));
}

static void ops_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    struct request *r = ops_named(req, METRICS_LINK, parent, name);
    struct node *node = r ? tree_node(r->fs->tree, ino) : NULL;
    if (r && !node) {
        request_reply(r, -ESTALE);
    } else if (r && node->record->control) {
        control_refuse(r);
    } else if (r) {
        names_link(r, node);
    }
}

static void ops_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent, const char *new_name,
                       unsigned flags)
{
    struct request *r = ops_named(req, METRICS_RENAME, new_parent, new_name);
    struct node *from = r ? tree_node(r->fs->tree, parent) : NULL;
    if (r && !from) {
        request_reply(r, -ESTALE);
    } else if (r && control_owns(from, name)) {
        control_refuse(r);
    } else if (r) {
        names_rename(r, from, name, flags);
    }
}

/* The mode of a new lock.  The kernel has applied the umask already. */
static mode_t ops_lock_mode(const struct fs *fs, mode_t mode)
{
    return (mode & S_IFMT) | (fs->options->lock_mode ? fs->options->lock_mode : mode & 07777);
}

static void ops_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *file)
{
    struct request *r = ops_named(req, METRICS_CREATE, parent, name);
    if (r) {
        r->file = *file;
        r->mode = ops_lock_mode(r->fs, S_IFREG | (mode & 07777));
        names_create(r);
    }
}

static void ops_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
    (void)device;
    struct request *r = ops_named(req, METRICS_MKNOD, parent, name);
    if (r) {
        r->mode = ops_lock_mode(r->fs, mode);
        names_mknod(r);
    }
}

/* --- files ------------------------------------------------------------------------ */

/* The kernel opens a node by a name that it has looked up: does the node still have that name? */
static bool ops_is_meant(struct request *r)
{
    struct node *node = r->node;
    bool gone = !node->record->hashed; /* its lock has ended since it was looked up */
    bool meant = openings_check_open(r->fs->openings, fuse_req_ctx(r->req)->pid, node, gone);
    if (meant) {
        tree_attach(r->fs->tree, node); /* for the second time, or it is opened again by /proc/PID/fd */
    }
    return meant;
}

static void ops_try_open(struct request *r)
{
    struct hold *lease = hold_find_lease(r->node);
    if (lease && lease->renaming &&
        !hold_is_owned_by(lease, request_caller(r))) { /* until then it is not known which name it is meant for */
        hold_await_outcome(r, lease, ops_try_open);
    } else if (ops_is_meant(r)) {
        if (handle_new(r)) {
            file_open(r);
        }
    } else {
        openings_note_refusal(r->fs->openings, fuse_req_ctx(r->req)->pid, r->node);
        request_reply(r, -ESTALE); /* the kernel looks the name up again */
    }
}

static void ops_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    ops_continue(ops_request(req, METRICS_OPEN, ino, file), control_open, ops_try_open);
}

static void ops_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *file)
{
    struct request *r = ops_opened(req, METRICS_READ, ino, file);
    if (r) {
        r->read.size = size;
        r->read.offset = offset;
        r->read.mapped = !file->lock_owner; /* which a read(2) has */
    }
    ops_continue(r, control_read, content_read);
}

static void ops_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
                      struct fuse_file_info *file)
{
    struct request *r = ops_of_locks(ops_opened(req, METRICS_WRITE, ino, file));
    if (r) {
        r->content.bytes = g_bytes_new(data, size);
        r->content.offset = offset;
        r->content.append = file->flags & O_APPEND;
        content_write(r);
    }
}

static void ops_done(struct request *r)
{
    request_reply(r, 0);
}

static void ops_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    ops_continue(ops_opened(req, METRICS_FLUSH, ino, file), ops_done, file_flush);
}

static void ops_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    struct fs *fs = ops_fs(req);
    const struct node *node = tree_node(fs->tree, ino);
    struct handle *handle = node && !node->record->control ? handle_find(fs, file->fh) : NULL;
    if (node && (node->record->control || (handle && file_release_makes_lease(handle)))) {
        ops_continue(ops_opened(req, METRICS_RELEASE, ino, file), control_release, file_release);
    } else {
        uint64_t since = metrics_clock();
        handle_free(fs, handle);
        fuse_reply_err(req, 0);
        metrics_count(fs->metrics, METRICS_RELEASE, 0, since, false);
    }
}

static void ops_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *file)
{
    (void)datasync;
    ops_continue(ops_opened(req, METRICS_FSYNC, ino, file), ops_done, content_sync);
}

static void ops_poll(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file, struct fuse_pollhandle *poll)
{
    if (poll) {
        fuse_pollhandle_destroy(poll); /* the record of the handle has the kernel's number */
    }
    ops_continue(ops_opened(req, METRICS_POLL, ino, file), control_poll, file_poll);
}

/* --- attributes -------------------------------------------------------------------- */

static void ops_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    (void)file;
    ops_continue(ops_request(req, METRICS_GETATTR, ino, NULL), control_getattr, attributes_get);
}

static void ops_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set, struct fuse_file_info *file)
{
    struct request *r =
        ops_of_locks(file ? ops_opened(req, METRICS_SETATTR, ino, file) : ops_request(req, METRICS_SETATTR, ino, NULL));
    if (r) {
        attributes_set(r, st, set);
    }
}

static void ops_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
    struct request *r = ops_of_locks(ops_request(req, METRICS_SETXATTR, ino, NULL));
    if (r) {
        xattr_set(r, name, value, size, flags);
    }
}

static void ops_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    struct request *r = ops_of_locks(ops_request(req, METRICS_GETXATTR, ino, NULL));
    if (r) {
        xattr_get(r, name, size);
    }
}

static void ops_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    struct request *r = ops_request(req, METRICS_LISTXATTR, ino, NULL);
    if (r) {
        r->xattr.size = size;
    }
    ops_continue(r, control_listxattr, xattr_list);
}

static void ops_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    struct request *r = ops_of_locks(ops_request(req, METRICS_REMOVEXATTR, ino, NULL));
    if (r) {
        xattr_remove(r, name);
    }
}

#define OPS_BLOCK 4096

/* Locks held are files used, their content is blocks used; what is free is what the caller may still have. */
static void ops_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct request *r = ops_request(req, METRICS_STATFS, ino, NULL);
    struct backend_counts counts = backend_counts(r->fs->backend);
    struct quota_left left = quota_left(r->fs->quota, request_uid(r));
    struct statvfs st = {.f_bsize = OPS_BLOCK, .f_frsize = OPS_BLOCK, .f_namemax = NAME_BYTES_MAX};
    st.f_ffree = st.f_favail = MIN(left.locks, UINT32_MAX);
    st.f_files = counts.locks + st.f_ffree;
    st.f_bfree = st.f_bavail = MIN(left.content / OPS_BLOCK, UINT32_MAX);
    st.f_blocks = (left.used + OPS_BLOCK - 1) / OPS_BLOCK + st.f_bfree;
    request_reply_statfs(r, &st);
}

/* --- directories ---------------------------------------------------------------------- */

static void ops_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    ops_continue(ops_request(req, METRICS_OPENDIR, ino, file), control_open, directory_open);
}

static void ops_list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *file, bool plus)
{
    struct request *r = ops_request(req, METRICS_READDIR, ino, file);
    if (r) {
        r->read.size = size;
        r->read.offset = offset;
        r->read.plus = plus;
    }
    ops_continue(r, control_readdir, directory_read);
}

static void ops_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *file)
{
    ops_list(req, ino, size, offset, file, false);
}

static void ops_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *file)
{
    ops_list(req, ino, size, offset, file, true);
}

static void ops_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    ops_continue(ops_request(req, METRICS_RELEASEDIR, ino, file), control_release, directory_close);
}

/* --- handle locks ----------------------------------------------------------------------- */

static void ops_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file, int operation)
{
    struct request *r = ops_of_locks(ops_opened(req, METRICS_FLOCK, ino, file));
    if (r) {
        lock_flock(r, operation);
    }
}

static struct request *ops_of_range(struct request *r, const struct flock *lock)
{
    if (r && (lock->l_start < 0 || lock->l_len < 0)) { /* the kernel asks for none */
        request_reply(r, -EINVAL);
        return NULL;
    }
    return r;
}

static void ops_setlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file, struct flock *lock, int sleep)
{
    struct request *r = ops_of_range(ops_of_locks(ops_opened(req, METRICS_SETLK, ino, file)), lock);
    if (r) {
        lock_set(r, lock, sleep);
    }
}

static void ops_getlk(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file, struct flock *lock)
{
    struct request *r = ops_of_range(ops_of_locks(ops_opened(req, METRICS_GETLK, ino, file)), lock);
    if (r) {
        lock_get(r, lock);
    }
}

const struct fuse_lowlevel_ops ops_table = {
    .init = ops_init,
    .lookup = ops_lookup,
    .forget = ops_forget,
    .forget_multi = ops_forget_multi,
    .getattr = ops_getattr,
    .setattr = ops_setattr,
    .readlink = ops_readlink,
    .mknod = ops_mknod,
    .mkdir = ops_mkdir,
    .unlink = ops_unlink,
    .rmdir = ops_rmdir,
    .symlink = ops_symlink,
    .rename = ops_rename,
    .link = ops_link,
    .open = ops_open,
    .create = ops_create,
    .read = ops_read,
    .write = ops_write,
    .flush = ops_flush,
    .release = ops_release,
    .fsync = ops_fsync,
    .poll = ops_poll,
    .opendir = ops_opendir,
    .readdir = ops_readdir,
    .readdirplus = ops_readdirplus,
    .releasedir = ops_releasedir,
    .statfs = ops_statfs,
    .setxattr = ops_setxattr,
    .getxattr = ops_getxattr,
    .listxattr = ops_listxattr,
    .removexattr = ops_removexattr,
    .flock = ops_flock,
    .setlk = ops_setlk,
    .getlk = ops_getlk,
};
