/* notify: telling the kernel what changed behind its back.
 *
 * A thread of its own: fuse_lowlevel_notify_delete and _inval_entry take a lock
 * of the directory that may be held by a system call which only the loop can
 * answer, so called from the loop they deadlock.  (Linux fs/fuse/dir.c,
 * fuse_reverse_inval_entry.)
 */
#ifndef FS_KERNEL_NOTIFY_H
#define FS_KERNEL_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

struct ev_loop;
struct fuse_pollhandle;
struct fuse_session;
struct notify;

/* NULL for `session` (tests without a mount): notifications are dropped. */
struct notify *notify_new(struct fuse_session *session, struct ev_loop *loop);

/* Ends the thread when it has told all; runs the loop meanwhile, so that what
 * the kernel needs for it is answered.  Notifications are dropped from then on. */
void notify_finish(struct notify *notify);

/* Finishes if need be.  NULL is allowed. */
void notify_free(struct notify *notify);

/* This kernel can be told to ask again for an entry that it keeps (Linux 6.2). */
void notify_enable_expire(struct notify *notify);

/* The name is gone: its entry is dropped and inotify tells DELETE_SELF.  Returns
 * the number of the notification, 0 if it is dropped.
 *
 * Dropping takes the locks of the directory and of the file, which the caller of
 * setxattr(2) holds; so if the kernel may have `kept` the entry it is told first to
 * ask for it again, which takes the directory's lock only. */
uint64_t notify_delete(struct notify *notify, uint64_t parent, uint64_t child, const char *name, bool kept);

/* What stat(2) shows of a node has changed: the kernel asks again where it has kept that.  Returns its number, as
 * notify_delete does. */
uint64_t notify_invalidate(struct notify *notify, uint64_t child);
/* The same before it returns.  Only while the kernel waits for a request about that node: of one that it is about to
 * give up it could wait for us. */
void notify_invalidate_now(struct notify *notify, uint64_t child);

/* The number of the last one that the kernel was told: until then it may still be
 * told of those that came after it. */
uint64_t notify_last_sent(struct notify *notify);

/* The number of the last one whose entry, or attributes, the kernel does not go by any more. */
uint64_t notify_last_expired(struct notify *notify);
/* Calls `then` from the loop when that has reached `number`, or earlier. */
void notify_call_when_expired(struct notify *notify, uint64_t number, void (*then)(void *arg), void *arg);

/* The kernel looks up anew, once, whatever entry it keeps, also before it is told of what is still to be told.  It
 * waits for nobody.  Kernels before Linux 6.16 go by what they keep. */
void notify_expire_all(struct notify *notify);

/* Tells whoever polls a file that its state has changed, once; `*poll` may be NULL, and is then. */
void notify_poll(struct fuse_pollhandle **poll);

#endif
