/* attributes: what stat(2) shows of a name, and what users may set of it.
 *
 * A lock of this mount, and any lock if no other mount changes the store, needs no call to
 * the store.  Otherwise each request calls backend_stat; the node and the kernel cache no
 * answer.  Each of the two functions ends its request.
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
