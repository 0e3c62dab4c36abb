/* notify: telling the kernel what changed behind its back.
 *
 * A thread of its own: fuse_lowlevel_notify_delete and _inval_entry take a lock
 * of the directory that may be held by a system call which only the loop can
 * answer, so called from the loop they deadlock.  (Linux fs/fuse/dir.c,
 * fuse_reverse_inval_entry.)
 */
#ifndef FS_NOTIFY_H
#define FS_NOTIFY_H

#include <stdint.h>

struct ev_loop;
struct fuse_session;
struct notify;

/* NULL for `session` (tests without a mount): notifications are dropped. */
struct notify *notify_new(struct fuse_session *session, struct ev_loop *loop);

/* Ends the thread when it has told all; runs the loop meanwhile, so that what
 * the kernel needs for it is answered.  Notifications are dropped from then on. */
void notify_finish(struct notify *notify);

/* Finishes if need be.  NULL is allowed. */
void notify_free(struct notify *notify);

/* The name is gone: its entry is dropped and inotify tells DELETE_SELF. */
void notify_deleted(struct notify *notify, uint64_t parent, uint64_t child, const char *name);

/* What is remembered of the name ("not there") is no longer so. */
void notify_changed(struct notify *notify, uint64_t parent, const char *name);

#endif
