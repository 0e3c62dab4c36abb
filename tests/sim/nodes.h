/* nodes: the servers' machines, and what happens between them.
 *
 * With redis there is one.  With replicas there are three, each with a server and a Sentinel.  The master sends its
 * writes and a replica confirms them.  If a majority of the Sentinels cannot reach the master, one of them promotes a
 * replica, with a growing epoch number; the others follow when they learn of it.  No server follows an older epoch than
 * it has followed before, and none is promoted that lost its data and has not got them again.  With redlock there are
 * three or five independent masters.
 *
 * This also knows whether a mount can work: with the present master, one of its replicas and an open store, or with a
 * majority of masters that have not started recently.
 */
#ifndef TESTS_SIM_NODES_H
#define TESTS_SIM_NODES_H

#include "tests/sim/mount.h"
#include "tests/sim/network.h"

#define NODES_SENTINEL_PORT 26379
#define NODES_MASTER_NAME "locks"

struct nodes_options {
    enum mount_store store;
    unsigned count, mounts;
    int64_t ttl; /* ms */
    /* It has not what it needs, or has it again. */
    void (*away)(unsigned mount, bool away);
    void (*moved)(void); /* another server is the master, or one that was follows it */
};

void nodes_begin(const struct nodes_options *options);
/* "10.0.0.1" */
const char *nodes_address(unsigned node);
unsigned nodes_count(void);
/* The one that was promoted last. */
unsigned nodes_master(void);
struct redis_model *nodes_server(unsigned node);
/* To be called when places were parted or joined, or a server was paused or goes on. */
void nodes_look(void);

/* --- faults ------------------------------------------------------------------- */

void nodes_stop(unsigned node, bool stop);
void nodes_kill(unsigned node);
/* Starts a server, with all of its data or none; false: it is a master that the Sentinels have not replaced yet. */
bool nodes_start(unsigned node, bool empty);
/* Delays the master's writes to it. */
void nodes_slow(unsigned node, int64_t by);
/* As an administrator asks for it, while all is well; false: no replica can be promoted. */
bool nodes_fail_over(void);
bool nodes_fail_over_now(void); /* that of the next moment */

#endif
