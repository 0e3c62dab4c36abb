/* fs: what the rooms of the filesystem share; see fs.h. */
#include "fs/fs.h"

#include <errno.h>

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
        [BACKEND_GRACE] = ENOLCK,
        [BACKEND_UNREACHABLE] = ENOLCK,
        [BACKEND_UNSUPPORTED] = EOPNOTSUPP,
        [BACKEND_DAMAGED] = EIO,
    };
    return -errors[result];
}
