/* starter: a process that starts the next daemon, where no service manager does.
 *
 * The keeper forks it before it gives up its rights.  It does one thing: for each byte that it gets, it runs the
 * program that its daemon was, with the same arguments, in the same directory and environment.  It reports with a byte
 * when that program has ended.  It ends with its keeper.
 */
#ifndef FS_DAEMON_STARTER_H
#define FS_DAEMON_STARTER_H

#define STARTER_ENVIRONMENT "LEASEFS_NEXT_DAEMON" /* is set for the program */

/* Returns the keeper's end of a socket, or -errno.  `arguments`: those of main(), ended by NULL. */
int starter_start(char *const *arguments);

#endif
