/* tick: interrupts a blocking read of the loop's thread once in a millisecond.
 *
 * While the next request comes within microseconds, a read that waits for it in the kernel saves the two system calls
 * of epoll.  But timers, sockets and other processes must not wait for the next request.  A signal may come just before
 * the read, and be lost; so it comes again.
 */
#ifndef FS_DAEMON_TICK_H
#define FS_DAEMON_TICK_H

#include <stdbool.h>

#define TICK_NS 1000000

/* Of the calling thread, from now on.  Before the sandbox.  False: there are no ticks. */
bool tick_init(void);

/* From now on; without tick_init(), or after tick_stop(), there are none. */
void tick_start(void);
void tick_stop(void);

/* Has there been one since tick_start()? */
bool tick_has_elapsed(void);

#endif
