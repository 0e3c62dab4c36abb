/* failure: what leaserun says of an error of the mount, and the exit status for it. */
#ifndef FS_LEASERUN_FAILURE_H
#define FS_LEASERUN_FAILURE_H

#define LEASERUN_EXIT_DAEMON 70 /* the daemon of the mount has ended */

/* Prints one line about the path `name`: the error, and the cause as far as its mount tells it.  Returns the
 * exit status. */
int leaserun_failure(const char *name, int error);

/* Prints one line about a command that could not be executed. */
void leaserun_failure_to_execute(const char *command, int error);

#endif
