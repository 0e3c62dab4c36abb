/* store: opens the store that the options name. */
#ifndef FS_DAEMON_STORE_H
#define FS_DAEMON_STORE_H

#include "backend/backend.h"
#include "fs/options/options.h"
#include "fs/sandbox/sandbox.h"

/* Looks at the servers first, unless they may be away.  *ret_policy: what the store needs to reach.  0, or -errno with
 * one line in `error`.  `lock`: see local.h; or NULL. */
int store_open(const struct options *options, const int *lock, struct backend **ret, struct sandbox_policy *ret_policy,
               char *error, size_t error_size);

#endif
