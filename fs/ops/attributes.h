/* attributes: what stat(2) shows of a name, whoever holds it, and what of it may be
 * set.
 *
 * Of what this mount holds, and of everything when no other mount changes the
 * store, all is known here.  Anything else the backend is asked for each time:
 * neither the node nor the kernel keeps what it answers.  Each of the two
 * functions ends its request.
 */
#ifndef FS_OPS_ATTRIBUTES_H
#define FS_OPS_ATTRIBUTES_H

#include <sys/stat.h>

#include "fs/fs.h"

struct node;
struct request;

void attributes_get(struct request *r);
/* `set` of FUSE_SET_ATTR_ */
void attributes_set(struct request *r, const struct stat *st, int set);

#endif
