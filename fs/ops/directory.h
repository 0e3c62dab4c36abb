/* directory: makes, removes and lists directories. */
#ifndef FS_OPS_DIRECTORY_H
#define FS_OPS_DIRECTORY_H

#include "fs/fs.h"
#include "fs/kernel/request.h"

struct node;

/* Takes over a directory's attributes from the backend. */
void directory_load(struct node *node, const struct backend_directory *directory);

/* Has the process that asks made the directory r->node, on this host?  Not the top directory. */
bool directory_is_made_by_caller(struct request *r);

/* Writes attributes, mode and owner of r->node to the backend.  `answer` continues the request, with r->result.  If
 * that is not OK, it gives the node its old values again, and calls directory_reload. */
void directory_store(struct request *r, request_step *answer);
/* Reads them from the backend, if that answers. */
void directory_reload(struct request *r, request_step *answer);

/* r->name in r->other, with r->mode. */
void directory_make(struct request *r);
void directory_remove(struct request *r);

/* Each ends the request.  A listing shows a name that exists all the time exactly once.  Its memory does not grow with
 * the directory. */
void directory_open(struct request *r);
void directory_read(struct request *r); /* r->read */
void directory_close(struct request *r);

/* Frees open directories when the mount ends: the kernel does not close them then. */
void directory_close_all(struct fs *fs);

#endif
