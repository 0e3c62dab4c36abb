/* kernel: FUSE in the kernel of a host: requests, answers and notifications of one mount, its inodes and entries, and
 * the locks of directories and files that its calls hold meanwhile.
 *
 * It sends requests and handles answers as Linux's fs/fuse and fs/namei.c do; see vfs.h for the calls.
 */
#ifndef TESTS_SIM_KERNEL_H
#define TESTS_SIM_KERNEL_H

#include <glib.h>
#include <linux/fuse.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "tests/sim/world.h"

struct kernel;
struct process;
struct task;

/* Of a process; in a system call, or at the end. */
struct thread {
    struct process *process;
    unsigned index;
    struct task *task;
    bool signalled; /* a signal is pending that has a handler */
    bool killed;
    uint64_t call; /* as the judge knows it; 0: in none */
    int64_t since;
    void *user; /* of user.c */
};

struct kernel_lock {
    const struct task *writer;
    unsigned readers;
    GPtrArray *waiting; /* of struct task; NULL: none */
};

struct kernel_node {
    uint64_t id, lookups, ino;
    unsigned references;
    mode_t type;
    unsigned links, files; /* as the kernel counts them: the attributes' st_nlink, and what is open */
    struct kernel_lock lock;
    GPtrArray *watchers; /* of struct kernel_watcher; NULL: none */
};

/* inotify(7) keeps the inode, not its entry. */
struct kernel_watcher {
    uint32_t process;
    char *path;
};

struct kernel_entry {
    struct kernel_node *parent, *node; /* node NULL: it is known not to be there */
    char name[256];
    int64_t expires; /* CLOCK_MONOTONIC of the host */
};

struct kernel_request {
    struct kernel *kernel;
    uint64_t unique;
    uint32_t opcode;
    GByteArray *message;
    struct thread *caller; /* NULL: nobody waits */
    bool sent, answered, interrupted;
    int error; /* negative */
    GByteArray *answer;
};

struct kernel_options {
    unsigned mount;
    bool can_expire; /* Linux 6.2, and all of 6.16 that it is asked for */
    /* IN_DELETE_SELF of what a process watches by that path */
    void (*deleted)(unsigned mount, uint32_t process, const char *path);
    void (*polled)(unsigned mount, uint64_t handle);
};

/* A mount; its descriptor is the daemon's. */
struct kernel *kernel_new(struct host *host, const struct kernel_options *options);
/* NULL: it is gone. */
struct kernel *kernel_of(int fd);
int kernel_descriptor(const struct kernel *kernel);
unsigned kernel_mount(const struct kernel *kernel);
/* Of this mount and no other one, ever. */
dev_t kernel_device(const struct kernel *kernel);
/* FUSE_INIT is the first message. */
void kernel_greet(struct kernel *kernel);
/* Another daemon goes on with it: what the one before has answered is answered. */
void kernel_succeed(struct kernel *kernel);
/* Is a notification in the middle of it?  A daemon that is killed then needs another one's replies to be gone. */
bool kernel_is_notified(const struct kernel *kernel);
/* The daemon has ended: all requests are answered ECONNABORTED. */
void kernel_abort(struct kernel *kernel);
bool kernel_is_dead(const struct kernel *kernel);

/* The daemon's side. */
bool kernel_has_message(const struct kernel *kernel);
ssize_t kernel_read(struct kernel *kernel, void *buffer, size_t size);
ssize_t kernel_writev(struct kernel *kernel, const struct iovec *parts, int count);

/* The callers' side.  `caller` NULL: nobody waits for it, and it leaves after a while. */
struct kernel_request *kernel_ask(struct kernel *kernel, struct thread *caller, uint32_t opcode, uint64_t node,
                                  const void *arg, size_t arg_size, const void *data, size_t data_size);
/* Until it is answered: 0 or -errno; -EINTR when the caller was killed before the daemon has read it.  `force`: also
 * then. */
int kernel_await(struct kernel_request *request, bool force);
void kernel_request_free(struct kernel_request *request);

struct kernel_node *kernel_root(struct kernel *kernel);
/* The node that an answer names, with a reference more. */
struct kernel_node *kernel_learn(struct kernel *kernel, const struct fuse_entry_out *out);
struct kernel_node *kernel_ref(struct kernel_node *node);
void kernel_unref(struct kernel *kernel, struct kernel_node *node);

/* NULL: not known. */
struct kernel_entry *kernel_find(struct kernel *kernel, const struct kernel_node *parent, const char *name);
/* `node` may be NULL; takes a reference of its own. */
void kernel_enter(struct kernel *kernel, struct kernel_node *parent, const char *name, struct kernel_node *node,
                  const struct fuse_entry_out *out);
bool kernel_is_fresh(const struct kernel *kernel, const struct kernel_entry *entry);
void kernel_renew(const struct kernel *kernel, struct kernel_entry *entry, const struct fuse_entry_out *out);
void kernel_drop(struct kernel *kernel, struct kernel_entry *entry);
/* inotify(7): of that path of the node, by the process; all of a process's. */
void kernel_watch(struct kernel_node *node, uint32_t process, const char *path);
void kernel_unwatch(struct kernel *kernel, uint32_t process);
/* Tells who watches it if it has no name any more and nobody has it open: as its last entry goes. */
void kernel_tell_watchers(struct kernel *kernel, struct kernel_node *node);
/* One of them that is drawn, as for want of memory. False: there was none. */
bool kernel_drop_any(struct kernel *kernel);

void kernel_take(struct kernel_lock *lock, bool write);
void kernel_give(struct kernel_lock *lock, bool write);

#endif
