/* descriptor: the open files of the simulated daemons, and the system calls on them.
 *
 * Their numbers begin above all real ones, so calls on the simulator's own files (its output) go to the system.
 * sim_wraps in Makefile.am has the calls that come here.  Disks are in disk.h, connections in network.h and
 * zookeeper_model.h, pidfds in process.h.
 */
#ifndef TESTS_SIM_DESCRIPTOR_H
#define TESTS_SIM_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "tests/sim/world.h"

enum descriptor_kind {
    DESCRIPTOR_FREE,
    DESCRIPTOR_TIMER,
    DESCRIPTOR_SOCKET,
    DESCRIPTOR_ZOOKEEPER,
    DESCRIPTOR_KERNEL, /* /dev/fuse */
    DESCRIPTOR_PIDFD,
    DESCRIPTOR_WATCH, /* the epoll of pidfds */
    DESCRIPTOR_FILE,
    DESCRIPTOR_DIRECTORY,
};

/* The kind's own code frees `object`. */
int descriptor_new(enum descriptor_kind kind, void *object);
/* NULL if it is none of these. */
void *descriptor_object(int fd, enum descriptor_kind kind);
void descriptor_close(int fd);

/* For loop.c: EV_READ and EV_WRITE as they apply now; when a timer goes off. */
int descriptor_ready(int fd);
int64_t descriptor_next(int fd, const struct host *host);

#endif
