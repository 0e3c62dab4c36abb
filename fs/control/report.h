/* report: what the log says of locks: who lost one, whose ran out, who broke whose.
 *
 * One line each; names, hosts and commands escaped (log_escape).
 */
#ifndef FS_CONTROL_REPORT_H
#define FS_CONTROL_REPORT_H

#include "fs/fs.h"

struct hold;
struct node;
struct request;

/* A hold of this mount was taken, and why. */
void report_ended(struct fs *fs, struct hold *hold, enum backend_end why);

/* A descendant of the lease's owner was refused to write it. */
void report_contended(struct request *r, struct hold *lease);

/* Who holds this node's lock, a line each, as "process PID (COMMAND) on HOST, uid
 * UID": this mount's holders or, when it has none, what the backend knows (may be
 * NULL).  To be freed. */
char *report_holders(struct fs *fs, const struct node *node, const struct backend_info *info);

/* The locks of `holders` (see above) on `path` were broken by the request's caller:
 * a line each, never left out. */
void report_broken(struct request *r, const char *path, const char *holders);

#endif
