/* names: looks up, makes, renames and removes names.
 *
 * Each function ends its request.  The request has the name (r->name), its directory
 * (r->other) and, to make something, its mode (r->mode, with the type).
 */
#ifndef FS_OPS_NAMES_H
#define FS_OPS_NAMES_H

#include "fs/fs.h"

struct node;
struct request;

void names_lookup(struct request *r);

/* open(2) with O_CREAT; r->file has the flags. */
void names_create(struct request *r);
void names_mknod(struct request *r);
void names_symlink(struct request *r, const char *target);
void names_readlink(struct request *r);

/* Acquires r->name with the content of `other`. */
void names_link(struct request *r, struct node *other);

/* Renames the caller's lease `name` in `from` to r->name in r->other. */
void names_rename(struct request *r, struct node *from, const char *name, unsigned flags);

void names_unlink(struct request *r);

#endif
