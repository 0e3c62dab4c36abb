/* keeper_process: what the keeper does; see keeper.h.
 *
 * As long as its daemon lives, it waits.  It reads nothing of the kernel's connection, and does not even poll it,
 * because each request would wake it.
 */
#ifndef FS_DAEMON_KEEPER_PROCESS_H
#define FS_DAEMON_KEEPER_PROCESS_H

#include <glib.h>
#include <stdbool.h>
#include <sys/types.h>

struct options;

/* Has this process CAP_SYS_PTRACE, so that its child may look into the processes of other users? */
bool keeper_may_look(void);

/* In the child of `daemon`.  `socket`: for the messages of link.h; `walker`: see walker.h. */
void keeper_run(const struct options *options, bool managed, int socket, int walker, pid_t daemon) G_GNUC_NORETURN;

#endif
