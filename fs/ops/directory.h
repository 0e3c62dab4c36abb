/* directory: making, removing and listing directories. */
#ifndef FS_OPS_DIRECTORY_H
#define FS_OPS_DIRECTORY_H

#include "fs/fs.h"

struct node;
struct request;

/* Takes over what the backend knows of a directory. */
void directory_load(struct node *node, const struct backend_directory *directory);

/* Writes the node's attributes, mode and owner to the backend, then calls
 * `done` with `arg`. */
void directory_store(struct fs *fs, struct node *node, backend_done *done, void *arg);

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
