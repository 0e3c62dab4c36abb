/* report: the log's lines about locks that were lost, expired or broken.
 *
 * One line each; names, hosts and commands are escaped (log_escape).
 */
#ifndef FS_CONTROL_REPORT_H
#define FS_CONTROL_REPORT_H

#include "fs/fs.h"

struct hold;
struct node;
struct request;

/* The backend ended a hold of this mount, for this reason. */
void report_ended(struct fs *fs, struct hold *hold, enum backend_end why);

/* A descendant of the lease's owner was not allowed to write to it. */
void report_contended(struct request *r, struct hold *lease);

/* The holders of the node's lock, one line each: "process PID (COMMAND) on HOST, uid UID".  This mount's holders or, if
 * it has none, the holder that `info`, the store's answer about this lock, names.  The caller frees the text. */
char *report_holders(struct fs *fs, const struct node *node, const struct backend_info *info);

/* The request's caller broke the locks of `holders` on `path`: one line each, which log_audit never drops. */
void report_broken(struct request *r, const char *path, const char *holders);

#endif
