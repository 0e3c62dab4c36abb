/* names: looking names up, making, moving and removing them.
 *
 * Each function ends its request, which carries the name (r->name) in
 * a directory (r->other), and where something is made its mode (r->mode, with type).
 */
#ifndef FS_OPS_NAMES_H
#define FS_OPS_NAMES_H

#include "fs/fs.h"

struct node;
struct request;

void names_lookup(struct request *r);

/* open with O_CREAT: r->file has the flags. */
void names_create(struct request *r);
void names_mknod(struct request *r);
void names_symlink(struct request *r, const char *target);
void names_readlink(struct request *r);

/* Acquires the name with the content that `other` has. */
void names_link(struct request *r, struct node *other);

/* Moves the caller's lease `name` in `from` to r->name in r->other. */
void names_rename(struct request *r, struct node *from, const char *name, unsigned flags);

void names_unlink(struct request *r);

#endif
