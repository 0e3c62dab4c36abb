/* wire: the kernel's side of a FUSE connection without a mount.
 *
 * fs/ runs on one end of a socketpair, above the fake backend.  The check writes the kernel's messages (<linux/fuse.h>)
 * at the other end and reads the answers.  Nothing happens by itself: wire_ functions move messages, the loop and the
 * backend's events, and wire_advance moves the clock (clock_now).  A second answer to a request, or one without a
 * request, fails the check at once.
 */
#ifndef TESTS_MESSAGE_WIRE_H
#define TESTS_MESSAGE_WIRE_H

#include <linux/fuse.h>
#include <sys/types.h>

#include <setjmp.h>

#include "fs/daemon/channel.h"
#include "fs/daemon/filesystem.h"
#include "fs/options/options.h"
#include "tests/message/fake_backend.h"

struct wire {
    struct ev_loop *loop;
    struct options options;
    struct fake_backend *fake;
    struct keep *keep;
    struct fs *fs;
    struct fuse_session *session;
    struct channel channel;
    int end; /* the filesystem's */
    unsigned features;
    void (*between)(struct wire *w); /* called when a daemon has died and the next one has not begun; or NULL */
    jmp_buf *living;                 /* to where a daemon goes that dies by itself; NULL: none runs */
    GPtrArray *graves;               /* of daemons that have died */
    int kernel;                      /* the check's end */
    uint64_t next_unique;
    GHashTable *exchanges; /* unique -> struct wire_exchange */
    GHashTable *lookups;   /* node id -> how often it was returned */
    GHashTable *opened;    /* file handle -> struct wire_file */
    GArray *notices;       /* struct wire_notice */
    GArray *children;      /* pid_t, to be killed in the end */
    struct wire *beside;   /* the other mount, or NULL */
    uint64_t directory;    /* in which names are looked up, created, … */
    /* whom the next requests come from */
    pid_t pid;
    uid_t uid;
    uint32_t mode; /* of what they create */
};

struct wire_file {
    uint64_t node, fh;
    uint32_t flags;
};

/* FUSE_NOTIFY_INC_EPOCH, which few headers have. */
#define WIRE_NOTIFY_INC_EPOCH 8

/* A notification to the kernel. */
struct wire_notice {
    int code; /* enum fuse_notify_code */
    uint64_t parent, child, poll;
    char name[NAME_BYTES_MAX + 1];
};

/* One request and its answer. */
struct wire_exchange {
    const struct fs *replier; /* the daemon that has written the reply */
    uint32_t opcode;
    uint64_t node;
    uint32_t flags; /* of an open */
    bool answered;
    int error; /* positive */
    GBytes *data;
};

/* `features` of enum backend_feature. */
struct wire *wire_new(unsigned features);
/* wire_new on a kernel whose FUSE protocol has version 7.`minor`; wire_new takes that of <linux/fuse.h>. */
struct wire *wire_new_on_kernel(unsigned features, unsigned minor);
/* Another mount of the same store, on another host.  The two move together, and
 * wire_free of the first ends both. */
struct wire *wire_new_beside(struct wire *first);
/* Closes what is open, forgets all nodes, checks that nothing is left. */
void wire_free(struct wire *w);
/* The mount ends as it is, with calls of the backend that were held back; checks that nothing is left unanswered. */
void wire_end(struct wire *w);

/* --- the daemon's death: as kill -9, and the next daemon begins at once ------------------ */

/* It dies now. */
void wire_die(struct wire *w);
/* It dies in the nth call of the store of this kind from now (0: the next), before or after that is carried out.  The
 * next wire_turn begins the next daemon. */
void wire_die_at(struct wire *w, enum fake_call call, unsigned nth, bool after);

/* It dies before the nth store (from 1) from now into the memory that outlives it.  True, later: it did. */
void wire_die_at_store(struct wire *w, unsigned nth);
bool wire_has_died(const struct wire *w);

/* --- processes ------------------------------------------------------------------ */

/* A process that sleeps; it is killed at the end, or ends with the check. */
pid_t wire_child(struct wire *w);
pid_t wire_sleeper(void);
/* A chain of them: each the parent of the next. */
void wire_chain(struct wire *w, pid_t *ret_pids, size_t count);
/* The same in a session of its own. */
void wire_session(struct wire *w, pid_t *ret_pids, size_t count);
/* Kills one: gone or a zombie when it returns. */
void wire_kill(struct wire *w, pid_t pid);

/* --- moving ----------------------------------------------------------------------- */

/* Handles the messages that were sent; the loop does not run. */
void wire_take(struct wire *w);
/* That, the loop, and the backend's events, until all is quiet. */
void wire_turn(struct wire *w);
void wire_advance(struct wire *w, int64_t milliseconds);
/* Moves the clock, and nothing else. */
void wire_let_time_pass(int64_t milliseconds);

/* Is it unanswered, after a turn? */
bool wire_waits(struct wire *w, uint64_t unique);
/* The errno it was answered with, after a turn; it must have been. */
int wire_result(struct wire *w, uint64_t unique);
/* What came with the answer. */
const void *wire_data(struct wire *w, uint64_t unique, size_t *ret_size);
/* The file of an open or create that succeeded. */
struct wire_file wire_file(struct wire *w, uint64_t unique);
/* The node of a look-up or the like that succeeded. */
uint64_t wire_node(struct wire *w, uint64_t unique);
/* Has the kernel got this notification?  `name` NULL: any. */
bool wire_has_notification(struct wire *w, int code, const char *name);

/* Delays all further notify_delete messages to the kernel, or ends that. */
void wire_hold_deletions(bool hold);

/* The answer to this request finds nobody: its caller is gone. */
void wire_lose_caller(struct wire *w, uint64_t unique);

/* --- requests: each returns its unique ------------------------------------------------ */

uint64_t wire_send(struct wire *w, uint32_t opcode, uint64_t node, const void *arg, size_t arg_size, const void *data,
                   size_t data_size);
uint64_t wire_lookup(struct wire *w, const char *name);
uint64_t wire_create(struct wire *w, const char *name, int flags);
uint64_t wire_open(struct wire *w, uint64_t node, int flags);
uint64_t wire_write(struct wire *w, struct wire_file file, uint64_t offset, const void *data, size_t size);
uint64_t wire_read(struct wire *w, struct wire_file file, uint64_t offset, uint32_t size);
uint64_t wire_flush(struct wire *w, struct wire_file file, uint64_t lock_owner);
uint64_t wire_release(struct wire *w, struct wire_file file);
uint64_t wire_fsync(struct wire *w, struct wire_file file);
uint64_t wire_poll(struct wire *w, struct wire_file file, uint64_t handle);
uint64_t wire_unlink(struct wire *w, const char *name);
uint64_t wire_mkdir(struct wire *w, const char *name);
uint64_t wire_rmdir(struct wire *w, const char *name);
uint64_t wire_symlink(struct wire *w, const char *name, const char *target);
uint64_t wire_link(struct wire *w, uint64_t node, const char *name);
uint64_t wire_rename(struct wire *w, const char *from, const char *to, unsigned flags);
uint64_t wire_getattr(struct wire *w, uint64_t node);
/* `file` NULL: by path. */
uint64_t wire_setattr(struct wire *w, uint64_t node, const struct wire_file *file, struct fuse_setattr_in in);
uint64_t wire_touch(struct wire *w, uint64_t node, const struct wire_file *file);
uint64_t wire_setxattr(struct wire *w, uint64_t node, const char *name, const char *value);
/* With XATTR_CREATE or XATTR_REPLACE. */
uint64_t wire_setxattr_if(struct wire *w, uint64_t node, const char *name, const char *value, uint32_t flags);
uint64_t wire_getxattr(struct wire *w, uint64_t node, const char *name);
/* `operation` of flock(2) */
uint64_t wire_flock(struct wire *w, struct wire_file file, int operation);
/* type F_RDLCK, F_WRLCK, F_UNLCK; start to end inclusive */
uint64_t wire_setlk(struct wire *w, struct wire_file file, uint64_t owner, uint32_t type, uint64_t start, uint64_t end,
                    bool wait);
uint64_t wire_getlk(struct wire *w, struct wire_file file, uint64_t owner, uint32_t type, uint64_t start, uint64_t end);
void wire_interrupt(struct wire *w, uint64_t unique);
void wire_forget(struct wire *w, uint64_t node, uint64_t count);

/* --- the same, done and checked ------------------------------------------------------- */

struct wire_file wire_created(struct wire *w, const char *name, int flags);
struct wire_file wire_opened(struct wire *w, uint64_t node, int flags);
/* FLUSH by the process that asks, then RELEASE; the error of FLUSH. */
int wire_close(struct wire *w, struct wire_file file);
/* "" if there is none. */
char *wire_xattr(struct wire *w, uint64_t node, const char *name);
bool wire_exists(struct wire *w, const char *name);

#endif
