/* network: the connections between daemons and servers, in place of sockets and of hiredis' reading and writing.
 *
 * Data of one side reaches the other later, in order within a connection; each direction can be slow or cut.  A server
 * is at the socket "/sim/redis", or at an address and port: see nodes.h.
 */
#ifndef TESTS_SIM_NETWORK_H
#define TESTS_SIM_NETWORK_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/sim/mount.h"
#include "tests/sim/world.h"

struct network_socket;
struct redis_client;
struct redis_model;

#define NETWORK_SERVER "/sim/redis"

/* Places between which it can be cut: hosts, and then nodes, on which servers are. */
#define NETWORK_NODES 5
#define NETWORK_ADDRESS 0x0a000001 /* 10.0.0.1: of the first node */
#define NETWORK_PLACES (MOUNTS_MAX + NETWORK_NODES)

void network_begin(void);
/* A server on that node, at the port; clocks of nodes are fast by `rate` millionths. */
void network_add(struct redis_model *server, unsigned node, unsigned port, int64_t rate);
/* The first. */
struct redis_model *network_server(void);
/* To be called when something was done to a server. */
void network_look_at_server(void);
/* µs of a clock that is fast by so many millionths. */
int64_t network_clock(int64_t rate);

/* As `ready` of struct redis_model_options. */
void network_hear(void *arg, struct redis_client *client);

/* For descriptor.c. */
void network_close(struct network_socket *socket);
int network_ready(const struct network_socket *socket);
/* A daemon was killed: all its connections are closed by its kernel. */
void network_drop(const struct host *host);

/* --- faults ------------------------------------------------------------------- */

/* Nothing gets through to or from this host, in silence. */
void network_cut(const struct host *host, bool cut);
/* Cuts or repairs the network between two places; each cut needs a repair. */
void network_part(unsigned a, unsigned b, bool cut);
bool network_is_parted(unsigned a, unsigned b);
/* All its connections are reset: how many there were. */
unsigned network_reset(const struct host *host);
/* Delays all further data on one of its connections, until it is set again. */
bool network_slow(const struct host *host, bool commands, int64_t by);
/* Of the next reply only a part comes, and then the connection is reset. */
bool network_halve_reply(const struct host *host);

#endif
