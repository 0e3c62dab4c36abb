/* undo: puts the old mount back, if a takeover fails after its switch.
 *
 * A child does it, because the new daemon may be killed just then.  It has the new mount's connection too.  When the
 * old mount is back, it answers what was asked through the new one with ESTALE: for this the kernel looks the path up
 * once more, and finds the old mount.  So no call by path fails.
 */
#ifndef FS_DAEMON_UNDO_H
#define FS_DAEMON_UNDO_H

#include <stdbool.h>
#include <sys/types.h>

struct undo_mounts {
    const char *path; /* the mount point */
    int root;         /* the top of the old mount (O_PATH) */
    int copy, tree;   /* a copy of the old mount, to put back, and the new mount */
    int connection;   /* of the new mount, /dev/fuse */
    int daemon;       /* the pidfd of the old daemon */
    pid_t pid;        /* the same process */
    int manager;      /* see sdnotify.h: the old daemon is the main process again when it is undone */
    int lock;         /* of mountpoint_lock: closed when the takeover is undone */
};

struct undo;

/* Before the switch.  From now on the old mount is put back when this process ends, unless the old daemon has ended.
 * Kills this process if it does not call one of the others in 15 s.  Or -errno. */
int undo_start(const struct undo_mounts *mounts, struct undo **ret_undo);

/* The old daemon has ended.  Frees `undo`; NULL is allowed. */
void undo_cancel(struct undo *undo);

/* Returns when the old mount is back, and the old daemon has TAKEOVER_UNDONE.  Frees `undo`; NULL is allowed. */
void undo_run(struct undo *undo);

#endif
