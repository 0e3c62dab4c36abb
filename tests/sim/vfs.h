/* vfs: the system calls of simulated programs, which make FUSE requests as Linux does.
 *
 * Each is called in a thread's task, with a path below the mount ("q/job-"; "" is the top directory), and returns 0, a
 * count, or -errno.  It takes the locks of directories and files as fs/namei.c and fs/fuse do.  After ESTALE a call is
 * tried once more with new look-ups.
 */
#ifndef TESTS_SIM_VFS_H
#define TESTS_SIM_VFS_H

#include <fcntl.h>
#include <glib.h>
#include <sys/stat.h>

#include "tests/sim/kernel.h"

/* An open file description. */
struct kernel_file {
    uint64_t number; /* never used again */
    uint64_t fh;
    struct kernel *kernel;
    struct kernel_node *node;
    int flags;
    unsigned references;
    bool flocked; /* flock was ever asked for */
};

int vfs_open(struct thread *t, struct kernel *k, const char *path, int flags, mode_t mode, struct kernel_file **ret);
struct kernel_file *vfs_ref(struct kernel_file *file);
/* close(2): the end of one descriptor. */
int vfs_close(struct thread *t, struct kernel_file *file);

int vfs_read(struct thread *t, struct kernel_file *file, GByteArray *ret);
int vfs_write(struct thread *t, struct kernel_file *file, const void *data, size_t size, uint64_t offset);
int vfs_fsync(struct thread *t, struct kernel_file *file);
int vfs_poll(struct thread *t, struct kernel_file *file, uint64_t handle, uint32_t *ret_events);

/* By path, or if it is not NULL by file. */
int vfs_stat(struct thread *t, struct kernel *k, const char *path, struct kernel_file *file, struct fuse_attr *ret);
int vfs_setattr(struct thread *t, struct kernel *k, const char *path, struct kernel_file *file,
                const struct fuse_setattr_in *in);
int vfs_getxattr(struct thread *t, struct kernel *k, const char *path, struct kernel_file *file, const char *name,
                 GByteArray *ret);
int vfs_setxattr(struct thread *t, struct kernel *k, const char *path, struct kernel_file *file, const char *name,
                 const char *value);

int vfs_symlink(struct thread *t, struct kernel *k, const char *target, const char *path);
int vfs_readlink(struct thread *t, struct kernel *k, const char *path, GByteArray *ret);
int vfs_link(struct thread *t, struct kernel *k, const char *path, const char *new);
int vfs_rename(struct thread *t, struct kernel *k, const char *path, const char *new, unsigned flags);
int vfs_unlink(struct thread *t, struct kernel *k, const char *path);
int vfs_mkdir(struct thread *t, struct kernel *k, const char *path, mode_t mode);
int vfs_rmdir(struct thread *t, struct kernel *k, const char *path);
/* Names, each with a newline, but "." and "..". */
int vfs_list(struct thread *t, struct kernel *k, const char *path, GString *ret);
/* inotify_add_watch for IN_DELETE_SELF, until the process ends. */
int vfs_watch(struct thread *t, struct kernel *k, const char *path);

/* `type` F_RDLCK, F_WRLCK or F_UNLCK. */
int vfs_flock(struct thread *t, struct kernel_file *file, short type, bool wait);
int vfs_setlk(struct thread *t, struct kernel_file *file, short type, int64_t start, int64_t end, bool ofd, bool wait);
int vfs_getlk(struct thread *t, struct kernel_file *file, short type, int64_t start, int64_t end, bool ofd,
              struct fuse_file_lock *ret);

#endif
