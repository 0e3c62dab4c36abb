/* tickets: the attribute user.lease.tickets of a directory: the tickets of its queue. */
#ifndef FS_OPS_TICKETS_H
#define FS_OPS_TICKETS_H

#include <stdbool.h>
#include <stddef.h>

struct request;

#define TICKETS_ATTRIBUTE "user.lease.tickets"

/* Is that its name, which may end in ":" and the name of a ticket? */
bool tickets_is_attribute(const char *name);

/* Ends the request.  The value has a line for each ticket, in the order of their names, those behind the one in `name`,
 * as many as there is room for in one value; it is empty if there are none (left).  A line is NAME, held or waiting,
 * when it was made ("": not known) and its owner as in user.lease.owner, with tabs between them.  `size` as of
 * getxattr(2). */
void tickets_get(struct request *r, const char *name, size_t size);

#endif
