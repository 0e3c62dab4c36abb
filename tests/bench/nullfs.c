/* nullfs: a FUSE filesystem that does nothing, to compare leasefs with.
 *
 *     nullfs [-d] [-o OPTIONS] MOUNTPOINT
 *         stays in the foreground until it is unmounted or ended by a signal.
 *
 * It answers the requests of open(O_CREAT|O_EXCL), close, unlink and flock, and lets the kernel cache as leasefs does:
 * names and their absence, but not attributes of files; reads and writes are direct.  It keeps no state: every name is
 * free and every file a new one, except `held`, which always exists and whose times cannot be set, and names that end
 * in '-', which are not cached.
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse_lowlevel.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEP_SECONDS (24.0 * 3600)
#define HELD 2 /* inode */

static struct stat nullfs_attributes(fuse_ino_t ino)
{
    mode_t mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
    return (struct stat){.st_ino = ino, .st_mode = mode, .st_nlink = 1, .st_uid = getuid(), .st_gid = getgid()};
}

static void nullfs_init(void *userdata, struct fuse_conn_info *connection)
{
    (void)userdata;
    connection->want |= FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_POSIX_LOCKS | FUSE_CAP_ATOMIC_O_TRUNC;
    connection->want &= ~(unsigned)(FUSE_CAP_READDIRPLUS | FUSE_CAP_WRITEBACK_CACHE | FUSE_CAP_SPLICE_READ);
}

static double nullfs_keep(const char *name)
{
    return name[strlen(name) - 1] == '-' ? 0 : KEEP_SECONDS;
}

static void nullfs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    (void)parent;
    struct fuse_entry_param entry = {.ino = 0, .entry_timeout = nullfs_keep(name)};
    if (strcmp(name, "held") == 0) {
        entry.ino = HELD;
        entry.attr = nullfs_attributes(HELD);
    }
    fuse_reply_entry(req, &entry);
}

static void nullfs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    (void)file;
    struct stat st = nullfs_attributes(ino);
    fuse_reply_attr(req, &st, ino == FUSE_ROOT_ID ? KEEP_SECONDS : 0);
}

static void nullfs_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *file)
{
    (void)parent;
    (void)mode;
    fuse_ino_t *last = fuse_req_userdata(req);
    struct fuse_entry_param entry = {.ino = ++*last, .entry_timeout = nullfs_keep(name)};
    entry.attr = nullfs_attributes(entry.ino);
    file->direct_io = 1;
    fuse_reply_create(req, &entry, file);
}

static void nullfs_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    (void)ino;
    file->direct_io = 1;
    fuse_reply_open(req, file);
}

static void nullfs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int set, struct fuse_file_info *file)
{
    (void)ino;
    (void)st;
    (void)set;
    (void)file;
    fuse_reply_err(req, EBUSY);
}

static void nullfs_flock(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file, int operation)
{
    (void)ino;
    (void)file;
    (void)operation;
    fuse_reply_err(req, 0);
}

static void nullfs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    (void)ino;
    (void)file;
    fuse_reply_err(req, 0);
}

static void nullfs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *file)
{
    (void)ino;
    (void)file;
    fuse_reply_err(req, 0);
}

static void nullfs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    (void)parent;
    (void)name;
    fuse_reply_err(req, 0);
}

static void nullfs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    (void)ino;
    (void)count;
    fuse_reply_none(req);
}

static void nullfs_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    (void)count;
    (void)forgets;
    fuse_reply_none(req);
}

static const struct fuse_lowlevel_ops nullfs_operations = {
    .init = nullfs_init,
    .lookup = nullfs_lookup,
    .getattr = nullfs_getattr,
    .setattr = nullfs_setattr,
    .create = nullfs_create,
    .open = nullfs_open,
    .flock = nullfs_flock,
    .flush = nullfs_flush,
    .release = nullfs_release,
    .unlink = nullfs_unlink,
    .forget = nullfs_forget,
    .forget_multi = nullfs_forget_multi,
};

int main(int argc, char **argv)
{
    struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
    struct fuse_cmdline_opts options;
    fuse_ino_t last = HELD;
    int result = 1;
    if (fuse_parse_cmdline(&args, &options) != 0 || !options.mountpoint) {
        fprintf(stderr, "usage: nullfs [-d] [-o OPTIONS] MOUNTPOINT\n");
        return 1;
    }
    struct fuse_session *session = fuse_session_new(&args, &nullfs_operations, sizeof nullfs_operations, &last);
    if (session && fuse_set_signal_handlers(session) == 0) {
        if (fuse_session_mount(session, options.mountpoint) == 0) {
            result = fuse_session_loop(session) == 0 ? 0 : 1;
            fuse_session_unmount(session);
        }
        fuse_remove_signal_handlers(session);
    }
    if (session) {
        fuse_session_destroy(session);
    }
    free(options.mountpoint);
    fuse_opt_free_args(&args);
    return result;
}
