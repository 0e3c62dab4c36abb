/* attributes: what stat(2) shows of a name, and what users may set of it.
 *
 * For a lock of this mount, and for every lock if no other mount changes the store, no
 * call to the store is needed.  Otherwise the backend is asked each time: neither the
 * node nor the kernel caches its answer.  Each of the two functions ends its request.
 */
#ifndef FS_OPS_ATTRIBUTES_H
#define FS_OPS_ATTRIBUTES_H

#include <sys/stat.h>

#include "fs/fs.h"

struct node;
struct request;

void attributes_get(struct request *r);
/* `set`: bits of FUSE_SET_ATTR_ */
void attributes_set(struct request *r, const struct stat *st, int set);

#endif
