/* notify: notifications to the kernel about changes that it did not cause.
 *
 * A thread sends them: fuse_lowlevel_notify_delete and _inval_entry take a lock of
 * the directory.  A system call may hold that lock while it waits for a reply of the
 * loop, so sending from the loop would deadlock.  (Linux fs/fuse/dir.c,
 * fuse_reverse_inval_entry.)
 */
#ifndef FS_KERNEL_NOTIFY_H
#define FS_KERNEL_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/fs.h"

struct ev_loop;
struct fuse_session;
struct keep;
struct notify;

/* A notification that the kernel may not have got, in KEEP_NOTICES. */
struct notify_record {
    uint64_t number;        /* of the notification, in the daemon that sent it */
    uint64_t parent, child; /* as in notify_delete; `parent` 0: of the attributes of `child` */
    uint8_t kept;           /* as in notify_delete */
    char name[NAME_BYTES_MAX + 1];
};

/* With NULL for `session` (tests without a mount) notifications are dropped. */
struct notify *notify_new(struct fuse_session *session, struct ev_loop *loop, struct keep *keep);

/* Sends what an earlier daemon has sent, perhaps in vain: calls `sent` with each record and its new number.  When the
 * kernel's INIT was handled. */
void notify_repeat(struct notify *notify, void (*sent)(void *arg, const struct notify_record *record, uint64_t number),
                   void *arg);

/* Ends the thread when it has sent all notifications.  Runs the loop until then, because the kernel may need replies
 * first. Later notifications are dropped. */
void notify_finish(struct notify *notify);

/* Calls notify_finish first.  NULL is allowed. */
void notify_free(struct notify *notify);

/* This kernel can expire a cached entry (Linux 6.2). */
void notify_enable_expire(struct notify *notify);

/* The name is gone: the kernel drops its entry, and inotify(7) reports DELETE_SELF.  Returns the notification's number;
 * 0 if it was dropped.
 *
 * Dropping takes the locks of the directory and of the file, and the caller of
 * setxattr(2) holds the file's.  So if the kernel may have `kept` the entry, it is
 * expired first, which takes only the directory's lock.
 */
uint64_t notify_delete(struct notify *notify, uint64_t parent, uint64_t child, const char *name, bool kept);

/* Attributes of a node have changed: the kernel drops its cached ones.  Returns the notification's number, as
 * notify_delete does. */
uint64_t notify_invalidate(struct notify *notify, uint64_t child);
/* The same, done when it returns.  Only while the kernel waits for the reply to a request about that node: for a node
 * that the kernel is about to forget, this could wait for that reply. */
void notify_invalidate_now(struct notify *notify, uint64_t child);

/* The number of the last notification that the kernel has got.  It may still get those with higher numbers. */
uint64_t notify_last_sent(struct notify *notify);

/* The number of the last notification whose entry, or attributes, the kernel no longer uses. */
uint64_t notify_last_expired(struct notify *notify);
/* Calls `then` from the loop when notify_last_expired has reached `number`, or earlier. */
void notify_call_when_expired(struct notify *notify, uint64_t number, void (*then)(void *arg), void *arg);

/* The kernel looks up every cached entry once more, also entries with notifications under way.  Does not block.
 * Kernels before Linux 6.16 still use their caches. */
void notify_expire_all(struct notify *notify);

/* Wakes the processes that poll a file, once, and sets `*poll` to 0.  It is the kernel's number for them, or 0. */
void notify_poll(struct notify *notify, uint64_t *poll);

#endif
