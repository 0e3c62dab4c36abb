/* mount: a simulated host with its daemon: the real backend/ and fs/ on a loop of the world. */
#ifndef TESTS_SIM_MOUNT_H
#define TESTS_SIM_MOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/kernel.h"
#include "tests/sim/world.h"

#define MOUNTS_MAX 5

enum mount_store {
    MOUNT_MEMORY,
    MOUNT_LOCAL,
    MOUNT_LOCAL_SYNC,
    MOUNT_REDIS,
    MOUNT_ZOOKEEPER,
    MOUNT_SENTINEL, /* with wait=1 */
    MOUNT_FAILOVER, /* the same without */
    MOUNT_REDLOCK,
    MOUNT_STORES
};
/* Several servers of Redis: with Sentinels, or masters that know nothing of each other. */
static inline bool mount_has_nodes(enum mount_store store)
{
    return store > MOUNT_ZOOKEEPER;
}
static inline bool mount_is_redis(enum mount_store store)
{
    return store == MOUNT_REDIS || mount_has_nodes(store);
}
enum mount_state { MOUNT_SERVES, MOUNT_ENDED, MOUNT_KILLED };

struct mount_options {
    enum mount_store store;
    unsigned nodes; /* of servers */
    int64_t ttl;    /* ms */
    bool owner_user;
    bool state; /* ZooKeeper's session is kept for the next daemon */
    struct kernel_options kernel;
    int64_t rate;                 /* of the host's clocks, in millionths */
    void (*died)(unsigned mount); /* the daemon was killed */
};

struct mount; /* a host, and the daemon that serves on it now */

struct mount *mount_new(unsigned index, const struct mount_options *options);
struct host *mount_host(struct mount *mount);
enum mount_store mount_store(const struct mount *mount);
/* NULL before the first start. After the end of the daemon that of the former. */
struct kernel *mount_kernel(struct mount *mount);
struct disk *mount_disk(struct mount *mount); /* NULL: nothing is kept */
enum mount_state mount_state(const struct mount *mount);

/* A daemon begins; false: it refuses to, with a line in the trace. */
bool mount_start(struct mount *mount);
/* Its own thread is on the stack: it cannot be ended from outside now. */
bool mount_is_busy(const struct mount *mount);
/* SIGKILL.  Does not return if called from inside of the daemon. */
void mount_kill(struct mount *mount);
/* SIGKILL, and the next daemon goes on with the same kernel, which nobody is to notice.  False: not now. */
bool mount_succeed(struct mount *mount);
/* SIGTERM: it ends in order. */
void mount_end(struct mount *mount);
/* SIGSTOP and SIGCONT. */
void mount_stop(struct mount *mount, bool stop);
bool mount_is_stopped(const struct mount *mount);
/* The host loses its power and boots again: the daemon is gone, and what the disk had not yet. */
void mount_reboot(struct mount *mount);

#endif
