/* meta: what the filesystem keeps with a lease in the store.
 *
 * One line of text that the backend does not look into, and every mount of the
 * same store can read:
 *
 *     1 HOST PID START UID GID MODE FLAGS TIMES BOOT HEIRS COMMAND
 *
 * PID 0 is a holder of another pid namespace.  MODE is octal with the file's
 * type, FLAGS a sum of 1 (fixed term), 2 (sequence ticket) and 4 times the guard in
 * milliseconds, which the stores read, too (backend_parse_guard), TIMES access and modification, each
 * SECONDS.NANOSECONDS since the epoch, or -, BOOT the boot id that START (clock ticks since boot) refers to, HEIRS
 * PID:START,… or -.
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

struct meta {
    char host[256]; /* first what all holds of a mount have in common: update.c */
    char boot[40];
    char command[OWNER_COMMAND_MAX * 4];
    pid_t pid;
    uint64_t start;
    uid_t uid;
    gid_t gid;
    mode_t mode;
    bool fixed;     /* its term is fixed: not renewed automatically */
    bool sequence;  /* a ticket of its directory's queue */
    unsigned guard; /* ms; 0: none */
    bool has_times; /* the holder set them */
    struct timespec times[2];
    size_t heirs;
    struct {
        pid_t pid;
        uint64_t start;
    } heir[META_HEIRS_MAX];
};

/* A new reference. */
GBytes *meta_encode(const struct meta *meta);

/* False if it is not of this form (`*meta` is then undefined). */
bool meta_decode(GBytes *bytes, struct meta *meta);

#endif
