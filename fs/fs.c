/* fs: what the rooms of the filesystem share; see fs.h. */
#include "fs/fs.h"

#include <errno.h>
#include <stdlib.h>

int fs_error(enum backend_result result)
{
    static const int errors[] = {
        [BACKEND_OK] = 0,
        [BACKEND_QUEUED] = 0,
        [BACKEND_BUSY] = EBUSY,
        [BACKEND_MISSING] = ENOENT,
        [BACKEND_EXISTS] = EEXIST,
        [BACKEND_NOT_EMPTY] = ENOTEMPTY,
        [BACKEND_IS_DIRECTORY] = EISDIR,
        [BACKEND_NOT_DIRECTORY] = ENOTDIR,
        [BACKEND_STALE] = ESTALE,
        [BACKEND_DEADLOCK] = EDEADLK,
        [BACKEND_FULL] = ENOSPC,
        [BACKEND_QUOTA] = EDQUOT,
        [BACKEND_INVALID] = EINVAL,
        [BACKEND_UNREACHABLE] = ENOLCK,
        [BACKEND_UNSUPPORTED] = EOPNOTSUPP,
        [BACKEND_DAMAGED] = EIO,
    };
    return -errors[result];
}

/* Two clocks cannot be read at once: differences below this are only that. */
#define FS_WALL_JITTER 50

int64_t fs_wall(struct fs *fs, clock_ms when)
{
    int64_t offset = clock_wall() - clock_now();
    if (llabs(offset - fs->wall_offset) > FS_WALL_JITTER) {
        fs->wall_offset = offset;
    }
    return when + fs->wall_offset;
}
