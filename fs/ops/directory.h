/* directory: making, removing and listing directories. */
#ifndef FS_OPS_DIRECTORY_H
#define FS_OPS_DIRECTORY_H

#include "fs/fs.h"
#include "fs/kernel/request.h"

struct node;

/* Takes over what the backend knows of a directory. */
void directory_load(struct node *node, const struct backend_directory *directory);

/* Writes the attributes, mode and owner of r->node to the backend; r->result
 * tells `answer` what came of it.  What it did not take is as it was. */
void directory_store(struct request *r, request_step *answer);

/* r->name in r->other, with r->mode. */
void directory_make(struct request *r);
void directory_remove(struct request *r);

/* Each ends the request.  A listing tells a name that is there all the time
 * exactly once, and needs no memory for the names before or after. */
void directory_open(struct request *r);
void directory_read(struct request *r); /* r->read */
void directory_close(struct request *r);

/* Frees what is still open when the mount ends: nobody closes it then. */
void directory_close_all(struct fs *fs);

#endif
