/* meta: what the filesystem keeps with a lock in the store.
 *
 * One line of text, which every mount of the same store can read.  The backend
 * reads only the words that backend.h names:
 *
 *     1 HOST PID START UID GID MODE FLAGS TIMES BOOT HEIRS COMMAND[TAB NOTE]
 *
 *     PID    0: the holder is in another pid namespace
 *     START  in clock ticks since the boot BOOT
 *     MODE   octal, with the file's type
 *     FLAGS  the sum of 1 (fixed term), 2 (sequence ticket) and 4 times the guard in milliseconds (backend_parse_guard)
 *     TIMES  access and modification, each SECONDS.NANOSECONDS since the epoch, or -
 *     BOOT   a boot id
 *     HEIRS  PID:START,… or -; then, of a handle lock, @MAJOR:MINOR:INODE of the file that its processes have open, and
 *            =NONCE:HANDLE:OWNER in hexadecimal: the memory in which its handle is kept, the handle's number there, and
 *            the lock owner of fcntl(2); or, of a lease, /PID:START,… of its partners
 */
#ifndef FS_HOLD_META_H
#define FS_HOLD_META_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "fs/process/owner.h"

#define META_HEIRS_MAX 8
#define META_UID_WORD 5 /* for backend_match */
#define META_NOTE_MAX 64

struct meta {
    char host[256]; /* equal in all holds of a mount, as `boot` is: update.c relies on that they come first */
    char boot[40];
    char command[OWNER_COMMAND_MAX * 4];
    char note[META_NOTE_MAX + 1]; /* printable; "": none */
    pid_t pid;
    uint64_t start;
    uid_t uid;
    gid_t gid;
    mode_t mode;
    bool fixed;     /* its user set a fixed term: not renewed automatically */
    bool sequence;  /* a ticket of its directory's queue */
    unsigned guard; /* ms; 0: none */
    bool has_times; /* the holder set `times` */
    struct timespec times[2];
    dev_t device; /* of a handle lock: its file, in the mount of its daemon; or 0 */
    uint64_t inode;
    uint64_t nonce; /* of a handle lock: of the fs/keep that has its handle; or 0 */
    uint64_t handle, lock_owner;
    size_t heirs, partners; /* in `heir`, one behind the other */
    struct {
        pid_t pid;
        uint64_t start;
    } heir[META_HEIRS_MAX];
};

/* A new reference. */
GBytes *meta_encode(const struct meta *meta);

/* False if it does not have this form; `*ret_meta` is unchanged then. */
bool meta_decode(GBytes *bytes, struct meta *ret_meta);

#endif
